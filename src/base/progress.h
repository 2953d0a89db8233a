// A progress bar on standard error, for long loads; on a terminal only.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>

namespace heddle {

class Progress {
 public:
  // Shows nothing unless standard error is a terminal and the work has lasted half a second.
  Progress(std::string title, std::size_t total_bytes);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // clears the line

  void update(std::size_t done_bytes);

 private:
  std::string title_;
  std::size_t total_bytes_;
  std::chrono::steady_clock::time_point next_draw_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace heddle
