#include "cli/help_format.h"

#include <algorithm>
#include <cctype>
#include <vector>

namespace heddle {

std::string HelpFormat::make_positionals(const CLI::App* command) const {
  const std::vector<const CLI::Option*> options = command->get_options([](const CLI::Option* option) {
    return !option->get_group().empty() && option->get_positional() && !option->nonpositional();
  });
  return options.empty() ? std::string() : make_group("Arguments", true, options);
}

std::string HelpFormat::make_expanded(const CLI::App* group) const {
  const std::vector<const CLI::Option*> options =
      group->get_options([group](const CLI::Option* option) { return option != group->get_help_ptr(); });
  return make_group(group->get_description(), false, options);
}

std::string HelpFormat::make_option_usage(const CLI::Option* option) const {
  std::string text = Formatter::make_option_usage(option);
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

std::string HelpFormat::make_option_desc(const CLI::Option* option) const {
  const bool both = option->get_positional() && option->nonpositional();
  return Formatter::make_option_desc(option) + (both ? "; by position, too" : "");
}

}  // namespace heddle
