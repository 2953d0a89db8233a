// Runs the program `heddle` as a user would.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace heddle {

struct ProgramResult {
  int status = 0;  // exit status; 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

struct ProgramOptions {
  std::string stdin_text;                                          // what standard input gives, then its end
  std::string stdout_file;                                         // where standard output goes instead of `out`
  std::function<void(int pid, const std::string& out)> on_output;  // called when `out` has grown
  std::chrono::seconds limit{60};                                  // then it is killed, and this throws
  std::vector<std::pair<std::string, std::string>> environment;    // names and values beside those of this process
};

// `arguments` after the program's name. Throws std::runtime_error when it cannot be run or exceeds its time.
ProgramResult run_heddle(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

// The same on a terminal with 200 columns, on which `type` is typed. Each text is typed once the output since the
// previous one contains its `after`; an empty `after` waits for any output. `out` is the whole output, including escape
// sequences.
struct Typed {
  std::string after;
  std::string text;
};
ProgramResult run_heddle_on_terminal(const std::vector<std::string>& arguments, const std::vector<Typed>& typed,
                                     std::chrono::seconds limit = std::chrono::seconds(30));

// assets/demo-llama, and tests/data.
std::filesystem::path demo_model();
std::filesystem::path test_data();

}  // namespace heddle
