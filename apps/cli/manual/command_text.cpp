#include "cli/manual/command_text.h"

#include <CLI/CLI.hpp>
#include <string_view>

namespace heddle {
namespace {

// CLI11 appends what an option accepts to the name of its type: "TEXT:{auto,cpu}", "SIZE [b, kb(=1000b), ...]".
struct TypeText {
  std::string name;
  std::vector<std::string> choices;
};

TypeText type_of(const CLI::Option& option) {
  const std::string text = option.get_type_name();
  TypeText type{.name = text.substr(0, text.find(':')), .choices = {}};
  const std::size_t begin = text.find('{');
  if (begin == std::string::npos || !text.ends_with('}')) return type;
  std::string_view rest = std::string_view(text).substr(begin + 1, text.size() - begin - 2);
  while (!rest.empty()) {
    const std::size_t comma = std::min(rest.find(','), rest.size());
    type.choices.emplace_back(rest.substr(0, comma));
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return type;
}

OptionText describe(const CLI::Option& option) {
  TypeText type = type_of(option);
  OptionText text{.names = {},
                  .positional = option.get_positional() ? option.get_name(true, false) : std::string(),
                  .value = option.get_type_size_max() == 0 ? std::string() : type.name,
                  .choices = std::move(type.choices),
                  .files = type.name == "MODEL",
                  .description = option.get_description(),
                  .standard = option.get_default_str(),
                  .required = option.get_required()};
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  if (text.positional.starts_with('-')) text.positional.clear();
  return text;
}

void add_options(const CLI::App& app, std::vector<OptionText>& options) {
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) options.push_back(describe(*option));
  for (const CLI::App* group : app.get_subcommands({}))
    if (group->get_name().empty()) add_options(*group, options);
}

CommandText describe(const CLI::App& app, const std::string& above) {
  CommandText text{.name = above.empty() ? app.get_name() : above + " " + app.get_name(),
                   .description = app.get_description(),
                   .footer = app.get_footer(),
                   .options = {},
                   .commands = {}};
  add_options(app, text.options);
  for (const CLI::App* command : app.get_subcommands({}))
    if (!command->get_name().empty() && !command->get_group().empty())
      text.commands.push_back(describe(*command, text.name));
  return text;
}

void add_all(const CommandText& command, std::vector<const CommandText*>& all) {
  all.push_back(&command);
  for (const CommandText& below : command.commands) add_all(below, all);
}

}  // namespace

CommandText describe_commands(const CLI::App& app) {
  return describe(app, "");
}

std::vector<const CommandText*> all_commands(const CommandText& command) {
  std::vector<const CommandText*> all;
  add_all(command, all);
  return all;
}

}  // namespace heddle
