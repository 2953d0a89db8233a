#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

namespace heddle {

using namespace std::chrono_literals;

namespace {

// A terminal that cannot draw over a line.
bool is_dumb() {
  const char* name = std::getenv("TERM");
  return name != nullptr && std::string_view(name) == "dumb";
}

}  // namespace

Progress::Progress(std::string title, std::size_t total, ProgressUnit unit)
    : title_(std::move(title)),
      total_(std::max<std::size_t>(total, 1)),
      unit_(unit),
      next_draw_(std::chrono::steady_clock::now() + 500ms),
      terminal_(::isatty(STDERR_FILENO) == 1 && !is_dumb()) {}

void Progress::update(std::size_t done) {
  if (!terminal_ || std::chrono::steady_clock::now() < next_draw_) return;
  next_draw_ = std::chrono::steady_clock::now() + 100ms;
  constexpr std::size_t kWidth = 30;
  const double share = static_cast<double>(std::min(done, total_)) / static_cast<double>(total_);
  const auto filled = static_cast<std::size_t>(share * kWidth);
  const std::string line = fmt::format("\r{} [{}{}] {:3.0f} % of {:.{}f} {}", title_, std::string(filled, '='),
                                       std::string(kWidth - filled, ' '), share * 100,
                                       static_cast<double>(total_) / unit_.size, unit_.digits, unit_.name);
  std::fputs(line.c_str(), stderr);
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
