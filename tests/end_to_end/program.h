// Runs the program `heddle` as a user would.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace heddle {

struct ProgramResult {
  int status = 0;  // exit status; 128 + signal when a signal ended it
  std::string out;
  std::string err;
};

struct ProgramOptions {
  std::string stdout_file;                                         // where standard output goes instead of `out`
  std::function<void(int pid, const std::string& out)> on_output;  // called when `out` has grown
  std::chrono::seconds limit{120};                                 // then it is killed, and this throws
};

// `arguments` after the program's name. Throws std::runtime_error when it cannot be run or exceeds its time.
ProgramResult run_heddle(const std::vector<std::string>& arguments, const ProgramOptions& options = {});

// assets/demo-llama, and tests/data.
std::filesystem::path demo_model();
std::filesystem::path test_data();

}  // namespace heddle
