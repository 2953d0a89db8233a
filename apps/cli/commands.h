// The subcommands of `heddle`. Each registers its options and, as CLI11's callback, its work; errors are exceptions.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace heddle {

void add_chat(CLI::App& app);
void add_generate(CLI::App& app);
void add_score(CLI::App& app);
void add_serve(CLI::App& app);
void add_template(CLI::App& app);
void add_tokenize(CLI::App& app);
void add_inspect(CLI::App& app);
void add_synth(CLI::App& app);
void add_doctor(CLI::App& app);
void add_launch(CLI::App& app);
void add_bench(CLI::App& app);
void add_plan(CLI::App& app);
void add_trace(CLI::App& app);
void add_tune(CLI::App& app);
void add_wafer(CLI::App& app);

// Runs one command of this program, as its main function does: reports errors on standard error and returns the exit
// status.
int run_heddle_command(const std::vector<std::string>& arguments);

// Thrown by a command that has run another one, which has reported its error.
struct ExitWith {
  int status = 0;
};

// These describe all commands of `app`, which must outlive them.
void add_completion(CLI::App& app);
void add_man(CLI::App& app);

// Thrown by a command that a signal ended; finished results are written. The exit status is 128 + signal, as usual for
// Ctrl-C (130), termination (143) and a reader of standard output that has gone (141).
struct Interrupted {
  int signal = 0;
};

}  // namespace heddle
