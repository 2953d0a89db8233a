// A progress bar on standard error, for long loads and long texts; only on a terminal.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

// The unit of the displayed numbers, and its size in what is counted.
struct ProgressUnit {
  std::string_view name;  // a literal
  double size;
  int digits;             // after the decimal point
  std::string_view rate;  // the unit of the rate
};
inline constexpr ProgressUnit kGigabytes{.name = "GB", .size = 1e9, .digits = 1, .rate = "GB/s"};
inline constexpr ProgressUnit kTokens{.name = "tokens", .size = 1, .digits = 0, .rate = "tok/s"};

enum class ProgressShown : std::uint8_t {
  on_terminal,  // if standard error is one that can erase a line
  never,
};
constexpr ProgressShown shown_unless(bool quiet) {
  return quiet ? ProgressShown::never : ProgressShown::on_terminal;
}

class Progress {
 public:
  // Shows nothing before the work has lasted half a second.
  Progress(std::string title, std::size_t total, ProgressUnit unit = kGigabytes,
           ProgressShown shown = ProgressShown::on_terminal);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress();  // hides the line

  // Draws at most ten times a second: the share that is done, the rate so far, and the time left at that rate.
  void update(std::size_t done);

  // The same with `detail` in place of the rate.
  void update(std::size_t done, std::string_view detail);

  // Draws at once, without a rate: before a part that takes long by itself.
  void show(std::size_t done);

  // Clears the line so that something else can be written; the next update may draw it again.
  void hide();

 private:
  bool due() const;
  void draw(std::size_t done, std::string_view detail);

  std::string title_;
  std::size_t total_;
  ProgressUnit unit_;
  std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point next_draw_;
  bool shown_;
  bool drawn_ = false;
};

// What a progress bar shows, in at most `columns` columns: the bar is as wide as there is room for.
struct ProgressState {
  std::string_view title;
  double share = 0;         // that is done, 0 to 1
  std::string_view total;   // "7501 tokens"
  std::string_view detail;  // "433 tok/s"; may be empty
  double seconds = 0;       // since the beginning
};
std::string progress_line(const ProgressState& state, std::size_t columns);

}  // namespace heddle
