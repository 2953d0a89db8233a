// The subcommands of `heddle`. Each registers its options and, as CLI11's callback, the work; errors are thrown.
#pragma once

namespace CLI {
class App;
}

namespace heddle {

void add_generate(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_inspect(CLI::App& app);
void add_doctor(CLI::App& app);

// Thrown by a command that the user ended: what was finished is written, the exit status is 130 as for any program
// that Ctrl-C ends.
struct Interrupted {};

}  // namespace heddle
