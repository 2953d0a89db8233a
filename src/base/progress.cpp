#include "base/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace heddle {

using namespace std::chrono_literals;

Progress::Progress(std::string title, std::size_t total_bytes)
    : title_(std::move(title)),
      total_bytes_(std::max<std::size_t>(total_bytes, 1)),
      next_draw_(std::chrono::steady_clock::now() + 500ms),
      terminal_(::isatty(STDERR_FILENO) == 1) {}

void Progress::update(std::size_t done_bytes) {
  if (!terminal_ || std::chrono::steady_clock::now() < next_draw_) return;
  next_draw_ = std::chrono::steady_clock::now() + 100ms;
  constexpr std::size_t kWidth = 30;
  const double share = static_cast<double>(std::min(done_bytes, total_bytes_)) / static_cast<double>(total_bytes_);
  const auto filled = static_cast<std::size_t>(share * kWidth);
  const std::string line =
      fmt::format("\r{} [{}{}] {:3.0f} % of {:.1f} GB", title_, std::string(filled, '='),
                  std::string(kWidth - filled, ' '), share * 100, static_cast<double>(total_bytes_) / 1e9);
  std::fputs(line.c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

Progress::~Progress() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

}  // namespace heddle
