#include "cli/usage_error.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/suggestion.h"
#include "cli/format_text.h"

namespace heddle {
namespace {

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

std::vector<std::string> option_names(const CLI::App& command) {
  std::vector<std::string> names;
  add_option_names(command, names);
  return names;
}

std::string did_you_mean(const std::string& word, const std::vector<std::string>& names) {
  const std::string name = nearest(word, names);
  return name.empty() ? std::string() : fmt::format("; did you mean {}?", name);
}

// CLI11's list of the options of a group, "--text,--file" or "-p,--prompt,--file", by their long names.
std::vector<std::string> long_names(std::string_view list) {
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    if (const std::string_view name = list.substr(begin, end - begin); name.starts_with("--")) names.emplace_back(name);
    begin = end + 1;
  }
  return names;
}

// CLI11's "--seed: At Most 1 required but received 2", "--prompt: 1 required TEXT missing", "Requires at
// most 1 options be given from [--text,--file]" and "A subcommand is required".
std::string in_words(const CLI::ParseError& error, const std::vector<std::string>& commands) {
  std::string text = error.what();
  if (const std::size_t more = text.find(": At Most 1 required"); more != std::string::npos)
    return text.substr(0, more) + " is given more than once";
  if (const std::size_t none = text.find(": 1 required "); none != std::string::npos && text.ends_with(" missing"))
    return text.substr(0, none) + " is given without its value";
  const bool too_many = text.starts_with("Requires at most 1 option");
  if (text.starts_with("Exactly 1 option from [") || too_many) {
    const std::size_t begin = text.find('[') + 1;
    const std::string names = list_text(long_names(text.substr(begin, text.find(']') - begin)));
    return too_many || text.ends_with(" were given") ? "give only one of " + names : "give one of " + names;
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
                                 printable_text(model->results().front()), word);
  for (const char* option : {"prompt", "text"}) {
    const CLI::Option* unused = command.get_option_no_throw(fmt::format("--{}", option));
    if (unused != nullptr && unused->count() == 0) text += fmt::format("; a {0} needs --{0}", option);
  }
  return text;
}

// "--seed" of "--seed=1".
std::string before_equals(const std::string& word) {
  return word.substr(0, word.find('='));
}

const CLI::Option* option_named(const CLI::App& command, const std::string& word) {
  return word.size() > 1 && word.starts_with('-') ? command.get_option_no_throw(word) : nullptr;
}

const CLI::App* command_named(const CLI::App& command, const std::string& word) {
  const std::vector<std::string> names = command_names(command);
  return std::ranges::find(names, word) == names.end() ? nullptr : command.get_subcommand(word);
}

// The long option that a word of one dash is near to; empty: none, or the word has two letters at most, as -m has with
// a value of one letter.
std::string long_option_near(const CLI::App& command, const std::string& word) {
  constexpr std::size_t kLongestOther = 3;  // "-mD"
  const std::string name = before_equals(word);
  if (!name.starts_with('-') || name.starts_with("--") || name.size() <= kLongestOther) return {};
  return nearest("-" + name, option_names(command));
}

}  // namespace

std::vector<std::string> command_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* other : command.get_subcommands({}))
    if (!other->get_name().empty() && !other->get_group().empty()) names.push_back(other->get_name());
  return names;
}

std::string explain(const CLI::App& app, const CLI::ParseError& error) {
  const auto [command, name] = named_command(app);
  const std::vector<std::string> rest = command->remaining();
  const auto option = std::ranges::find_if(rest, [](const std::string& word) { return word.starts_with('-'); });
  const std::vector<std::string> commands = command_names(*command);
  if (rest.empty() || rest.front() == "--") return fmt::format("{}; see {} --help", in_words(error, commands), name);
  const bool no_command = !commands.empty() && !rest.front().starts_with('-');
  const std::string given = printable_text(no_command || option == rest.end() ? rest.front() : *option);
  if (no_command)
    return fmt::format("{} has no command \"{}\"{}; see {} --help", name, given, alternatives(given, commands), name);
  if (!given.starts_with('-')) return fmt::format("{}; see {} --help", explain_word(*command, name, given), name);
  return fmt::format("{} has no option {}{}; see {} --help", name, given,
                     did_you_mean(before_equals(given), option_names(*command)), name);
}

void refuse_misread_words(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  std::string name = "heddle";
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") return;
    if (!word.starts_with('-')) {
      if (const CLI::App* below = command_named(*command, word)) {
        command = below;
        name += " " + word;
      } else if (command->get_prefix_command()) {  // the rest is another command's
        return;
      }
      continue;
    }
    const CLI::Option* option = option_named(*command, word);
    if (option == nullptr) {
      if (const std::string near = long_option_near(*command, word); !near.empty())
        throw_error<InputError>("{} has no option {}; did you mean {}?; see {} --help", name,
                                printable_text(before_equals(word)), near, name);
      continue;
    }
    if (option->get_items_expected_min() == 0) continue;  // a flag
    ++i;                                                  // its value
    if (i == words.size() || option_named(*command, before_equals(words[i])) == nullptr) continue;
    const std::string asked = option->get_name();
    throw_error<InputError>(
        "{0} is given without its value: {1} is an option; where \"{1}\" is the value, write {0}={1}; see {2} --help",
        asked, printable_text(words[i]), name);
  }
}

}  // namespace heddle
