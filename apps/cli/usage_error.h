// Errors of the command line as a person reads them: what was not understood, and the nearest that there is.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace heddle {

// Those of the commands below `command`, without hidden ones.
std::vector<std::string> command_names(const CLI::App& command);

// Names the word that was not understood, and the nearest that there is; without such a word, CLI11's own message in
// other words.
std::string explain(const CLI::App& app, const CLI::ParseError& error);

// What CLI11 would take without a word, though it is a mistake: an option's name where an option's value is due
// (`-p --json`, whose prompt would be "--json"; --prompt=--json says that it is meant), and a long option with one dash
// (`-maxtokens=3`, which would be -m with "axtokens=3"). Throws InputError.
void refuse_misread_words(const CLI::App& app, const std::vector<std::string>& words);

}  // namespace heddle
