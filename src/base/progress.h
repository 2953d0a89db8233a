// A progress bar on standard error, for long loads and long texts; only on a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

namespace heddle {

// The unit of the displayed numbers, and its size in what is counted.
struct ProgressUnit {
  std::string_view name;  // a literal
  double size;
  int digits;  // after the decimal point
};
inline constexpr ProgressUnit kGigabytes{.name = "GB", .size = 1e9, .digits = 1};
inline constexpr ProgressUnit kTokens{.name = "tokens", .size = 1, .digits = 0};

class Progress {
 public:
  // Shows nothing unless standard error is a terminal and the work has lasted half a second.
  Progress(std::string title, std::size_t total, ProgressUnit unit = kGigabytes);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // hides the line

  void update(std::size_t done);

  // Clears the line so that something else can be written; the next update may draw it again.
  void hide();

 private:
  std::string title_;
  std::size_t total_;
  ProgressUnit unit_;
  std::chrono::steady_clock::time_point next_draw_;
  bool terminal_;
  bool drawn_ = false;
};

}  // namespace heddle
