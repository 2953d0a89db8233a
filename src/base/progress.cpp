#include "base/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace heddle {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxBar = 30;
constexpr std::size_t kMinBar = 5;
constexpr double kLeastShare = 0.02;  // before, an estimate of the time left is off by a factor

bool can_erase_lines() {
  const char* terminal = std::getenv("TERM");
  return ::isatty(STDERR_FILENO) == 1 && terminal != nullptr && std::string_view(terminal) != "dumb";
}

std::size_t terminal_columns() {
  winsize size{};
  return ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

std::string time_left_text(double seconds) {
  if (seconds < 99.5) return fmt::format("{:.0f} s left", seconds);
  if (seconds < 99.5 * 60) return fmt::format("{:.0f} min left", seconds / 60);
  return fmt::format("{:.1f} h left", seconds / 3600);
}

}  // namespace

std::string progress_line(const ProgressState& state, std::size_t columns) {
  std::string text = fmt::format(" {:3.0f} % of {}", state.share * 100, state.total);
  if (!state.detail.empty()) text += fmt::format(", {}", state.detail);
  if (state.share >= kLeastShare && state.share < 1)
    text += ", " + time_left_text(state.seconds * (1 - state.share) / state.share);
  std::string line(state.title);
  const std::size_t taken = line.size() + text.size() + std::string_view(" []").size();
  if (taken + kMinBar <= columns) {
    const std::size_t width = std::min(kMaxBar, columns - taken);
    const auto filled = static_cast<std::size_t>(state.share * static_cast<double>(width));
    line += fmt::format(" [{}{}]", std::string(filled, '='), std::string(width - filled, ' '));
  }
  line += text;
  if (line.size() > columns) line.resize(columns);
  return line;
}

Progress::Progress(std::string title, std::size_t total, ProgressUnit unit, ProgressShown shown)
    : title_(std::move(title)),
      total_(std::max<std::size_t>(total, 1)),
      unit_(unit),
      begin_(std::chrono::steady_clock::now()),
      next_draw_(begin_ + 500ms),
      shown_(shown == ProgressShown::on_terminal && can_erase_lines()) {}

bool Progress::due() const {
  return shown_ && std::chrono::steady_clock::now() >= next_draw_;
}

void Progress::update(std::size_t done) {
  if (!due()) return;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin_;
  const double rate = static_cast<double>(done) / unit_.size / seconds.count();
  draw(done, fmt::format("{:.{}f} {}", rate, rate < 99.95 ? 1 : 0, unit_.rate));
}

void Progress::update(std::size_t done, std::string_view detail) {
  if (due()) draw(done, detail);
}

void Progress::show(std::size_t done) {
  if (shown_) draw(done, {});
}

void Progress::draw(std::size_t done, std::string_view detail) {
  const auto now = std::chrono::steady_clock::now();
  next_draw_ = now + 100ms;
  const std::string total =
      fmt::format("{:.{}f} {}", static_cast<double>(total_) / unit_.size, unit_.digits, unit_.name);
  const ProgressState state{.title = title_,
                            .share = static_cast<double>(std::min(done, total_)) / static_cast<double>(total_),
                            .total = total,
                            .detail = detail,
                            .seconds = std::chrono::duration<double>(now - begin_).count()};
  const std::size_t columns = terminal_columns() - 1;  // in the last one the cursor would go to the next line
  std::fputs(fmt::format("\r{}\033[K", progress_line(state, columns)).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void Progress::hide() {
  if (!drawn_) return;
  std::fputs("\r\033[K", stderr);
  std::fflush(stderr);
  drawn_ = false;
}

Progress::~Progress() {
  hide();
}

}  // namespace heddle
