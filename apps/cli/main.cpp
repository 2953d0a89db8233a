// heddle: the command line. Usage errors and bad input exit with 2, failures with 1, signals with
// 128 + signal.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <new>
#include <sstream>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/commands.h"
#include "cli/help_format.h"
#include "cli/output.h"
#include "cli/usage_error.h"
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

int report_error(int exit_code, std::string_view message) {
  heddle::write_stderr(fmt::format("heddle: error: {}{}\n", rank_prefix(message), message));
  return exit_code;
}

struct Command {
  std::string_view name;
  void (*add)(CLI::App&);
};

constexpr Command kCommands[] = {
    {"chat", heddle::add_chat},       {"generate", heddle::add_generate}, {"score", heddle::add_score},
    {"serve", heddle::add_serve},     {"template", heddle::add_template}, {"tokenize", heddle::add_tokenize},
    {"inspect", heddle::add_inspect}, {"synth", heddle::add_synth},       {"doctor", heddle::add_doctor},
    {"launch", heddle::add_launch},   {"bench", heddle::add_bench},       {"plan", heddle::add_plan},
    {"tune", heddle::add_tune},       {"trace", heddle::add_trace},       {"wafer", heddle::add_wafer},
};

// The command that `words` begin with, and all of them where they begin with none: the options of all commands take a
// third of a start.
void add_commands(CLI::App& app, const std::vector<std::string>& words) {
  app.name("heddle");
  app.formatter(std::make_shared<heddle::HelpFormat>());
  app.set_help_flag("-h,--help", "Print this help and exit");
  app.set_version_flag("--version", "heddle " HEDDLE_VERSION, "Print the version and exit");
  app.footer(
      "Exit status: 0 done, 1 the machine failed, 2 bad input or usage, 130 interrupted, 141 standard output closed.");
  app.require_subcommand(1);
  const Command* const end = std::end(kCommands);
  const Command* const named = words.empty() ? end : std::ranges::find(kCommands, words.front(), &Command::name);
  if (named != end) {
    named->add(app);
    return;
  }
  for (const Command& command : kCommands) command.add(app);
  heddle::add_completion(app);
  heddle::add_man(app);
}

// Runs the command that is named, or prints what --help and --version ask for.
void parse_and_run(CLI::App& app, const std::vector<std::string>& words) {
  heddle::refuse_misread_words(app, words);
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes the last first
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    app.exit(success, text, text);
    heddle::write_stdout(text.str());
  }
}

}  // namespace

int heddle::run_heddle_command(const std::vector<std::string>& arguments) {
  CLI::App app{"Run language models from Hugging Face folders on CPUs and GPUs, and measure them"};
  add_commands(app, arguments);
  try {
    parse_and_run(app, arguments);
    return 0;
  } catch (const CLI::ParseError& error) {
    return report_error(kBadInput, explain(app, error));
  } catch (const InputError& error) {
    return report_error(kBadInput, error.what());
  } catch (const ExitWith& exit) {
    return exit.status;
  } catch (const Interrupted& interrupted) {
    return kSignalled + interrupted.signal;
  } catch (const std::bad_alloc&) {
    return report_error(kFailure, "out of memory");
  } catch (const std::exception& error) {
    return report_error(kFailure, error.what());
  }
}

namespace {

// `heddle help COMMAND` is `heddle COMMAND --help`. A word where a command is due, and that is none, stands without
// --help: what it could mean is then said.
std::vector<std::string> without_help_command(std::vector<std::string> words) {
  if (words.empty() || words.front() != "help") return words;
  words.erase(words.begin());
  CLI::App app;
  add_commands(app, words);
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    const std::vector<std::string> names = heddle::command_names(*command);
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
