#include "cli/manual/shell_completion.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace heddle {
namespace {

// 'it'\''s'
std::string shell_quoted(std::string_view text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

// The first sentence or clause of a description: a line of a menu.
std::string brief(std::string_view description) {
  return std::string(description.substr(0, description.find_first_of(";\n")));
}

std::string last_word(const CommandText& command) {
  return command.name.substr(command.name.rfind(' ') + 1);
}

std::vector<std::string> option_names(const CommandText& command) {
  std::vector<std::string> names;
  for (const OptionText& option : command.options) names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

// "'heddle bench'|'heddle bench decode'": all but the program itself.
std::string names_of_commands(const CommandText& program) {
  std::vector<std::string> names;
  for (const CommandText* command : all_commands(program))
    if (command != &program) names.push_back(shell_quoted(command->name));
  return fmt::format("{}", fmt::join(names, "|"));
}

// In an option of zsh's _arguments, brackets and colons end a part.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
    result += c;
  }
  return result;
}

bool is_number(const OptionText& option) {
  return option.value == "NUMBER" || option.value == "SIZE" || option.value == "ID" || option.value == "ID=BIAS";
}

std::string zsh_option(const OptionText& option) {
  std::string value;
  if (option.files) {
    value = ":MODEL:_heddle_models";
  } else if (!option.value.empty()) {
    value = option.choices.empty() ? fmt::format(":{}:{}", zsh_text(option.value), is_number(option) ? " " : "_files")
                                   : fmt::format(":{}:({})", zsh_text(option.value), fmt::join(option.choices, " "));
  }
  std::string text;
  for (const std::string& name : option.names)
    text += fmt::format(" \\\n        {}",
                        shell_quoted(fmt::format("*{}[{}]{}", name, zsh_text(brief(option.description)), value)));
  return text;
}

// "-l model" or "-s m"
std::string fish_name(std::string_view name) {
  return name.starts_with("--") ? fmt::format("-l {}", name.substr(2)) : fmt::format("-s {}", name.substr(1));
}

// The names that a model may have beside those of folders, the same for every command.
std::string names_of_models(const CommandText& program) {
  for (const CommandText* command : all_commands(program))
    for (const OptionText& option : command->options)
      if (option.files) return fmt::format("{}", fmt::join(option.choices, " "));
  return "";
}

// What may stand by position: choices, and whether names of models and files do.
struct Positional {
  std::vector<std::string> choices;
  bool models = false;
};

Positional positional_of(const CommandText& command) {
  Positional result;
  for (const OptionText& option : command.options) {
    if (option.files && !option.positional.empty()) result.models = true;
    if (option.names.empty() && !option.files)
      result.choices.insert(result.choices.end(), option.choices.begin(), option.choices.end());
  }
  return result;
}

// The same commands as words of `heddle man`: "heddle man bench", "heddle man bench decode".
std::vector<CommandText> as_words_of_man(const std::vector<CommandText>& commands, const std::string& above) {
  std::vector<CommandText> words;
  for (const CommandText& command : commands) {
    CommandText word{.name = above + " " + last_word(command),
                     .description = command.description,
                     .footer = {},
                     .options = {},
                     .commands = {}};
    word.commands = as_words_of_man(command.commands, word.name);
    words.push_back(std::move(word));
  }
  return words;
}

// The program with the words that `heddle man` takes: "bench", then "decode", or "bench-decode".
CommandText with_pages(CommandText program) {
  std::vector<std::string> pages;
  for (const CommandText* command : all_commands(program)) {
    std::string words = command->name.substr(std::min(command->name.size(), program.name.size() + 1));
    if (words.find(' ') == std::string::npos) continue;
    std::ranges::replace(words, ' ', '-');
    pages.push_back(std::move(words));
  }
  std::vector<CommandText> words = as_words_of_man(program.commands, "heddle man");
  const auto man = std::ranges::find(program.commands, "heddle man", &CommandText::name);
  if (man == program.commands.end()) return program;
  man->commands = std::move(words);
  for (OptionText& option : man->options)
    if (option.names.empty()) option.choices = pages;
  return program;
}

}  // namespace

std::string bash_completion(const CommandText& given) {
  const CommandText program = with_pages(given);
  std::string values, words;
  for (const CommandText* command : all_commands(program)) {
    for (const OptionText& option : command->options)
      for (const std::string& name : option.names)
        if (option.files)
          values += fmt::format("    {}) models=1 value=1 ;;\n", shell_quoted(command->name + " " + name));
        else if (!option.value.empty())
          values += fmt::format("    {}) words={} value=1 ;;\n", shell_quoted(command->name + " " + name),
                                shell_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
    std::vector<std::string> commands;
    for (const CommandText& below : command->commands) commands.push_back(last_word(below));
    const Positional positional = positional_of(*command);
    commands.insert(commands.end(), positional.choices.begin(), positional.choices.end());
    words +=
        fmt::format("    {}) options={} words={}{} ;;\n", shell_quoted(command->name),
                    shell_quoted(fmt::format("{}", fmt::join(option_names(*command), " "))),
                    shell_quoted(fmt::format("{}", fmt::join(commands, " "))), positional.models ? " models=1" : "");
  }
  return fmt::format(R"(# bash completion of heddle; made by: heddle completion bash
_heddle() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} command=heddle words='' options='' models='' value='' stem='' at=$COMP_CWORD last i
  # bash makes three words of synth:NAME, and replaces the last of them only.
  if [[ $current == ':' ]]; then
    at=$((at - 1)) stem=${{COMP_WORDS[COMP_CWORD - 1]}}: current=''
  elif [[ $at -gt 2 && ${{COMP_WORDS[at - 1]}} == ':' ]]; then
    at=$((at - 2)) stem=${{COMP_WORDS[COMP_CWORD - 2]}}:
  fi
  # And three of --option=value.
  last=$((at - 1))
  if [[ ${{COMP_WORDS[at]}} == '=' ]]; then
    current=''
  elif [[ ${{COMP_WORDS[last]}} == '=' ]]; then
    last=$((last - 1))
  fi
  for ((i = 1; i < at; ++i)); do
    case "$command ${{COMP_WORDS[i]}}" in
    {}) command="$command ${{COMP_WORDS[i]}}" ;;
    esac
  done
  COMPREPLY=()
  case "$command ${{COMP_WORDS[last]}}" in
{}  esac
  if [[ -z $value ]]; then
    case "$command" in
{}    esac
    [[ $current == -* ]] && words=$options models=''
  fi
  [[ -n $words ]] && COMPREPLY=($(compgen -W "$words" -- "$stem$current"))
  # Folders alone (bash's default) until a letter is typed.
  if [[ -n $models && -n $stem$current ]]; then
    COMPREPLY=($(compgen -W '{}' -- "$stem$current"))
    [[ -z ${{COMPREPLY[0]}} ]] || COMPREPLY+=($(compgen -f -- "$stem$current"))
  fi
  COMPREPLY=("${{COMPREPLY[@]#"$stem"}}")
}}
complete -o bashdefault -o default -F _heddle heddle
)",
                     names_of_commands(program), values, words, names_of_models(program));
}

std::string zsh_completion(const CommandText& given) {
  const CommandText program = with_pages(given);
  std::string cases;
  for (const CommandText* command : all_commands(program)) {
    cases += fmt::format("    ({})\n", shell_quoted(command->name));
    std::string arguments;
    for (const OptionText& option : command->options) arguments += zsh_option(option);
    std::vector<std::string> commands;
    for (const CommandText& below : command->commands)
      commands.push_back(shell_quoted(fmt::format("{}:{}", last_word(below), zsh_text(brief(below.description)))));
    const Positional positional = positional_of(*command);
    if (!commands.empty())
      cases += fmt::format(
          "      commands=({})\n      [[ $words[CURRENT] != -* ]] && _describe command commands && return\n",
          fmt::join(commands, " "));
    const std::string rest = positional.models ? "'*:model:_heddle_models'"
                             : positional.choices.empty()
                                 ? "'*:file:_files'"
                                 : shell_quoted(fmt::format("*:value:({})", fmt::join(positional.choices, " ")));
    cases += fmt::format("      _arguments{} \\\n        {} ;;\n", arguments, rest);
  }
  return fmt::format(R"(#compdef heddle
# zsh completion of heddle; made by: heddle completion zsh
_heddle_models() {{ _files; compadd -- {} }}
_heddle() {{
  local command=heddle i
  local -a commands
  for (( i = 2; i < CURRENT; ++i )); do
    case "$command $words[i]" in
      ({}) command="$command $words[i]" ;;
    esac
  done
  case "$command" in
{}  esac
}}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then _heddle "$@"; else compdef _heddle heddle; fi
)",
                     names_of_models(program), names_of_commands(program), cases);
}

std::string fish_completion(const CommandText& given) {
  const CommandText program = with_pages(given);
  std::string lines;
  for (const CommandText* command : all_commands(program)) {
    const std::string here = fmt::format("complete -c heddle -n '__heddle_at \"{}\"'", command->name);
    for (const CommandText& below : command->commands)
      lines += fmt::format("{} -f -a {} -d {}\n", here, last_word(below), shell_quoted(brief(below.description)));
    for (const OptionText& option : command->options) {
      std::string text;
      for (const std::string& name : option.names) text += " " + fish_name(name);
      if (option.names.empty() && option.choices.empty()) continue;
      if (!option.choices.empty())
        text += fmt::format(" {} -a {}",
                            option.files           ? "-r"
                            : option.names.empty() ? "-f"
                                                   : "-x",
                            shell_quoted(fmt::format("{}", fmt::join(option.choices, " "))));
      else if (!option.value.empty())
        text += " -r";
      lines += fmt::format("{}{} -d {}\n", here, text, shell_quoted(brief(option.description)));
    }
  }
  return fmt::format(R"(# fish completion of heddle; made by: heddle completion fish
function __heddle_at
  set -l command heddle
  for word in (commandline -opc)[2..-1]
    switch "$command $word"
      case {}
        set command "$command $word"
    end
  end
  test "$command" = "$argv[1]"
end
{})",
                     [&] {
                       std::string names = names_of_commands(program);
                       std::ranges::replace(names, '|', ' ');
                       return names;
                     }(),
                     lines);
}

}  // namespace heddle
