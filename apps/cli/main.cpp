// heddle: the command line. Usage errors and bad input exit with 2, failures with 1, signals with
// 128 + signal.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <new>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/suggestion.h"
#include "cli/commands.h"
#include "cli/format_text.h"
#include "cli/help_format.h"
#include "cli/output.h"
#include "fabric/launch.h"

namespace {

constexpr int kFailure = 1;
constexpr int kBadInput = 2;
constexpr int kSignalled = 128;

// In a run of several processes: "rank 2: ", unless the message names a rank.
std::string rank_prefix(std::string_view message) {
  if (!heddle::started_by_mpirun() || message.starts_with("rank ")) return {};
  try {
    const heddle::Launch launch = heddle::read_launch();
    return launch.world_size > 1 ? fmt::format("rank {}: ", launch.rank) : std::string();
  } catch (const heddle::InputError&) {  // which the command has told
    return {};
  }
}

int report(int exit_code, std::string_view message) {
  heddle::write_stderr(fmt::format("heddle: error: {}{}\n", rank_prefix(message), message));
  return exit_code;
}

// The command that was named, and its name with those of the commands above it.
struct NamedCommand {
  const CLI::App* command;
  std::string name;
};

NamedCommand named_command(const CLI::App& app) {
  NamedCommand named{&app, "heddle"};
  while (!named.command->get_subcommands().empty()) {
    named.command = named.command->get_subcommands().front();
    named.name += " " + named.command->get_name();
  }
  return named;
}

// "--temperature" and so on, those of groups (subcommands without a name) too.
void add_option_names(const CLI::App& command, std::vector<std::string>& names) {
  for (const CLI::Option* option : command.get_options())
    if (!option->get_group().empty())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const CLI::App* group : command.get_subcommands({}))
    if (group->get_name().empty()) add_option_names(*group, names);
}

std::vector<std::string> command_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* other : command.get_subcommands({}))
    if (!other->get_name().empty() && !other->get_group().empty()) names.push_back(other->get_name());
  return names;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  const std::string name = heddle::nearest(word, names);
  return name.empty() ? std::string() : fmt::format("; did you mean {}?", name);
}

// CLI11's "--seed: At Most 1 required but received 2", "--prompt: 1 required TEXT missing", "Requires at
// most 1 options be given from [--text,--file]" and "A subcommand is required".
std::string in_words(const CLI::ParseError& error, const std::vector<std::string>& commands) {
  std::string text = error.what();
  if (const std::size_t more = text.find(": At Most 1 required"); more != std::string::npos)
    return text.substr(0, more) + " is given more than once";
  if (const std::size_t none = text.find(": 1 required "); none != std::string::npos && text.ends_with(" missing"))
    return text.substr(0, none) + " is given without its value";
  if (text.starts_with("Exactly 1 option from [") || text.starts_with("Requires at most 1 option")) {
    const std::size_t begin = text.find('[') + 1;
    return "give one of " + text.substr(begin, text.find(']') - begin);
  }
  if (!text.starts_with("A subcommand is required")) return text;
  return fmt::format("which command? There are {}", fmt::join(commands, ", "));
}

// The nearest command, or all of them.
std::string alternatives(const std::string& word, const std::vector<std::string>& commands) {
  const std::string near = did_you_mean(word, commands);
  return near.empty() ? fmt::format("; there are {}", fmt::join(commands, ", ")) : near;
}

// "heddle doctor takes no "x" by itself", or that a model stands before `word` already.
std::string explain_word(const CLI::App& command, const std::string& name, const std::string& word) {
  const CLI::Option* model = command.get_option_no_throw("--model");
  if (model == nullptr || model->count() == 0) return fmt::format("{} takes no \"{}\" by itself", name, word);
  std::string text = fmt::format("{} takes one model, and was given \"{}\" and \"{}\"", name,
                                 heddle::printable_text(model->results().front()), word);
  for (const char* option : {"prompt", "text"}) {
    const CLI::Option* unused = command.get_option_no_throw(fmt::format("--{}", option));
    if (unused != nullptr && unused->count() == 0) text += fmt::format("; a {0} needs --{0}", option);
  }
  return text;
}

// Names what was not understood, and the nearest that there is; without such a word, CLI11's own message.
std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const auto [command, name] = named_command(app);
  const std::vector<std::string> rest = command->remaining();
  const auto option = std::ranges::find_if(rest, [](const std::string& word) { return word.starts_with('-'); });
  const std::vector<std::string> commands = command_names(*command);
  if (rest.empty() || rest.front() == "--") return fmt::format("{}; see {} --help", in_words(error, commands), name);
  const bool no_command = !commands.empty() && !rest.front().starts_with('-');
  const std::string given = heddle::printable_text(no_command || option == rest.end() ? rest.front() : *option);
  if (no_command)
    return fmt::format("{} has no command \"{}\"{}; see {} --help", name, given, alternatives(given, commands), name);
  if (!given.starts_with('-')) return fmt::format("{}; see {} --help", explain_word(*command, name, given), name);
  std::vector<std::string> options;
  add_option_names(*command, options);
  return fmt::format("{} has no option {}{}; see {} --help", name, given,
                     did_you_mean(given.substr(0, given.find('=')), options), name);
}

void add_commands(CLI::App& app) {
  app.name("heddle");
  app.formatter(std::make_shared<heddle::HelpFormat>());
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", "heddle " HEDDLE_VERSION, "Print the version and exit");
  app.footer(
      "Exit status: 0 done, 1 the machine failed, 2 bad input or usage, 130 interrupted, 141 standard output closed.");
  app.require_subcommand(1);
  heddle::add_chat(app);
  heddle::add_generate(app);
  heddle::add_score(app);
  heddle::add_serve(app);
  heddle::add_template(app);
  heddle::add_tokenize(app);
  heddle::add_inspect(app);
  heddle::add_synth(app);
  heddle::add_doctor(app);
  heddle::add_launch(app);
  heddle::add_bench(app);
  heddle::add_plan(app);
  heddle::add_tune(app);
  heddle::add_trace(app);
  heddle::add_wafer(app);
  heddle::add_completion(app);
  heddle::add_man(app);
}

// Parses by `parse(app)` and runs the command that was named.
template <class Parse>
int run_command(const Parse& parse) {
  CLI::App app{"Run language models from Hugging Face folders on CPUs and GPUs, and measure them"};
  add_commands(app);
  try {
    parse(app);
    return 0;
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return report(kBadInput, explain(app, error));
  } catch (const heddle::InputError& error) {
    return report(kBadInput, error.what());
  } catch (const heddle::ExitWith& exit) {
    return exit.status;
  } catch (const heddle::Interrupted& interrupted) {
    return kSignalled + interrupted.signal;
  } catch (const std::bad_alloc&) {
    return report(kFailure, "out of memory");
  } catch (const std::exception& error) {
    return report(kFailure, error.what());
  }
}

}  // namespace

int heddle::run_heddle_command(const std::vector<std::string>& arguments) {
  return run_command([&](CLI::App& app) {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes the last first
  });
}

namespace {

// `heddle help COMMAND` is `heddle COMMAND --help`. A word where a command is due, and that is none, stands without
// --help: what it could mean is then said.
std::vector<std::string> without_help_command(std::vector<std::string> words) {
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  CLI::App app;
  add_commands(app);
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    const std::vector<std::string> names = command_names(*command);
    if (names.empty() || word.starts_with('-')) break;
    if (std::ranges::find(names, word) == names.end()) return words;
    command = command->get_subcommand(word);
  }
  words.emplace_back("--help");
  return words;
}

}  // namespace

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a closed pipe is an error of write(); output.h ends the program by it, silently
  const std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  return heddle::run_heddle_command(without_help_command(words));
}
