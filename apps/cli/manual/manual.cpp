// heddle completion and heddle man: the program's completion scripts and man pages.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/suggestion.h"
#include "cli/commands.h"
#include "cli/manual/manual_page.h"
#include "cli/manual/shell_completion.h"
#include "cli/output.h"

namespace heddle {
namespace {

std::string script(const std::string& shell, const CommandText& program) {
  if (shell == "bash") return bash_completion(program);
  return shell == "zsh" ? zsh_completion(program) : fish_completion(program);
}

struct ManOptions {
  std::vector<std::string> command;
  std::optional<std::string> out;
};

struct CompletionOptions {
  std::string shell;
  std::optional<std::string> out;
};

void create_folder(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) throw_error<Failure>("{}: cannot be created: {}", folder.string(), error.message());
}

// Every page, into a folder that is created.
void write_pages(const CommandText& program, const std::filesystem::path& folder) {
  create_folder(folder);
  for (const CommandText* command : all_commands(program))
    write_file(folder / (page_name(*command) + ".1"), manual_page(*command, HEDDLE_VERSION));
}

void completion(const CompletionOptions& options, const CommandText& program) {
  const std::string text = script(options.shell, program);
  if (!options.out) return write_stdout(text);
  const std::filesystem::path file = *options.out;
  if (file.has_parent_path()) create_folder(file.parent_path());
  write_file(file, text);
}

// "decode" of "heddle bench decode".
std::string last_word(const std::string& name) {
  return name.substr(name.rfind(' ') + 1);  // npos + 1: from the beginning
}

// The command that is meant by `words`, "bench decoed" or "bench-decoed", by its whole name; empty: none is near. What is
// compared is the first word that is no command, with the commands that can stand there.
std::string nearest_command(const CommandText& program, std::string_view words) {
  const CommandText* above = &program;
  for (bool deeper = true; deeper;) {
    const auto below = std::ranges::find_if(above->commands, [&](const CommandText& command) {
      const std::string name = last_word(command.name);
      return !command.commands.empty() && words.size() > name.size() && words.starts_with(name) &&
             (words[name.size()] == ' ' || words[name.size()] == '-');
    });
    deeper = below != above->commands.end();
    if (!deeper) continue;
    words.remove_prefix(last_word(below->name).size() + 1);
    above = &*below;
  }
  std::vector<std::string> names;
  for (const CommandText& command : above->commands) names.push_back(last_word(command.name));
  const std::string near = nearest(words.substr(0, words.find(' ')), names);
  return near.empty() ? near : above->name + " " + near;
}

void man(const ManOptions& options, const CommandText& program) {
  if (options.out) return write_pages(program, *options.out);
  std::string name = fmt::format("{}", fmt::join(options.command, " "));
  std::string page = fmt::format("{}", fmt::join(options.command, "-"));
  if (page != program.name && !page.starts_with(program.name + "-")) {
    name = name.empty() ? program.name : program.name + " " + name;
    page = page.empty() ? program.name : program.name + "-" + page;
  }
  for (const CommandText* command : all_commands(program))
    if (page_name(*command) == page) return write_stdout(manual_page(*command, HEDDLE_VERSION));
  const std::size_t prefix = std::min(program.name.size() + 1, name.size());  // "heddle " or "heddle-"
  const std::string meant = nearest_command(program, std::string_view(name).substr(prefix));
  throw_error<InputError>("there is no command \"{}\"{}; heddle --help lists those that there are", name,
                          meant.empty() ? "" : fmt::format("; did you mean {}?", meant));
}

}  // namespace

void add_completion(CLI::App& app) {
  const auto options = std::make_shared<CompletionOptions>();
  CLI::App* command = app.add_subcommand("completion", "Print the completion script of a shell");
  command->add_option("shell", options->shell, "bash, zsh or fish")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
  command->add_option("--out", options->out, "Write it to this file instead")->type_name("FILE");
  command->footer(
      "bash: heddle completion bash --out ~/.local/share/bash-completion/completions/heddle\n"
      "zsh:  heddle completion zsh --out DIR/_heddle, for a DIR in fpath\n"
      "fish: heddle completion fish --out ~/.config/fish/completions/heddle.fish\n"
      "cmake --install installs all three.");
  command->callback([options, &app] { completion(*options, describe_commands(app)); });
}

void add_man(CLI::App& app) {
  const auto options = std::make_shared<ManOptions>();
  CLI::App* command = app.add_subcommand("man", "Print a man page: heddle man generate | man -l -");
  command
      ->add_option("command", options->command,
                   "Of which command, as wafer run, wafer-run or heddle-wafer-run; default: of heddle itself")
      ->type_name("COMMAND");
  command->add_option("--out", options->out, "Write all pages into this folder instead")->type_name("DIR");
  command->callback([options, &app] { man(*options, describe_commands(app)); });
}

}  // namespace heddle
