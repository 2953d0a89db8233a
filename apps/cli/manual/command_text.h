// The commands and options of the program as plain text, from their CLI11 definitions: what man pages and shell
// completion are made of.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heddle {

struct OptionText {
  std::vector<std::string> names;  // "-m", "--model"; empty: by position only
  std::string positional;          // its name by position, or empty
  std::string value;               // "FILE"; empty: a flag
  std::vector<std::string> choices;
  bool files = false;  // names of files, beside its choices
  std::string description;
  std::string standard;  // the default, or empty
  bool required = false;
};

struct CommandText {
  std::string name;  // with those above it: "heddle bench decode"
  std::string description;
  std::string footer;
  std::vector<OptionText> options;
  std::vector<CommandText> commands;
};

// Of the whole program, hidden commands and options left out.
CommandText describe_commands(const CLI::App& app);

// `command` and all below it.
std::vector<const CommandText*> all_commands(const CommandText& command);

}  // namespace heddle
