// How --help looks, where CLI11's own way would mislead.
#pragma once

#include <CLI/CLI.hpp>

namespace heddle {

// An option that may also stand by position is listed once, among the options. The options of a group stand under the
// group's description.
class HelpFormat : public CLI::Formatter {
 public:
  std::string make_positionals(const CLI::App* command) const override;
  std::string make_expanded(const CLI::App* group) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace heddle
