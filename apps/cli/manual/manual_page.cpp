#include "cli/manual/manual_page.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>

namespace heddle {
namespace {

// Backslashes and hyphens mean something to roff; so do a dot or an apostrophe at the beginning of a line.
std::string escaped(std::string_view text) {
  std::string result;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) result += "\\&";
    line_begins = c == '\n';
    if (c == '\\')
      result += "\\e";
    else if (c == '-')
      result += "\\-";
    else
      result += c;
  }
  return result;
}

std::string upper(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return text;
}

// "\fB\-m\fR, \fB\-\-model\fR \fIMODEL\fR"
std::string heading(const OptionText& option) {
  std::string text;
  for (const std::string& name : option.names)
    text += fmt::format("{}\\fB{}\\fR", text.empty() ? "" : ", ", escaped(name));
  if (option.names.empty()) return fmt::format("\\fI{}\\fR", escaped(upper(option.positional)));
  if (option.value.empty()) return text;
  const std::string value =
      option.choices.empty() || option.files ? option.value : fmt::format("{}", fmt::join(option.choices, "|"));
  text += fmt::format(" \\fI{}\\fR", escaped(value));
  return option.positional.empty() ? text : text + ", or by position";
}

std::string synopsis(const CommandText& command) {
  std::string text = fmt::format("\\fB{}\\fR", escaped(command.name));
  for (const OptionText& option : command.options)
    if (!option.positional.empty())
      text += option.required ? fmt::format(" \\fI{}\\fR", escaped(upper(option.positional)))
                              : fmt::format(" [\\fI{}\\fR]", escaped(upper(option.positional)));
  text += " [\\fIOPTION\\fR...]";
  return command.commands.empty() ? text : text + " \\fICOMMAND\\fR";
}

std::string option_lines(const CommandText& command) {
  std::string text;
  for (const OptionText& option : command.options) {
    text += fmt::format(".TP\n{}\n{}{}\n", heading(option), escaped(option.description),
                        option.standard.empty() ? "" : fmt::format(" (default: {})", escaped(option.standard)));
  }
  return text;
}

}  // namespace

std::string page_name(const CommandText& command) {
  std::string name = command.name;
  std::ranges::replace(name, ' ', '-');
  return name;
}

std::string manual_page(const CommandText& command, std::string_view version) {
  std::string text = fmt::format(".TH {} 1 \"\" \"heddle {}\" \"Heddle\"\n", upper(page_name(command)), version);
  text += fmt::format(".SH NAME\n{} \\- {}\n", escaped(page_name(command)), escaped(command.description));
  text += fmt::format(".SH SYNOPSIS\n{}\n", synopsis(command));
  if (!command.commands.empty()) {
    text += ".SH COMMANDS\n";
    for (const CommandText& below : command.commands)
      text += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n", escaped(page_name(below)), escaped(below.description));
  }
  text += ".SH OPTIONS\n" + option_lines(command);
  if (!command.footer.empty()) text += fmt::format(".SH NOTES\n.nf\n{}\n.fi\n", escaped(command.footer));
  if (const std::size_t last = command.name.rfind(' '); last != std::string::npos) {
    std::string above = command.name.substr(0, last);
    std::ranges::replace(above, ' ', '-');
    text += fmt::format(".SH SEE ALSO\n\\fB{}\\fR(1)\n", escaped(above));
  }
  return text;
}

}  // namespace heddle
