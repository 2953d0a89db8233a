#include "cli/score_windows.h"

#include <algorithm>

#include "base/error.h"

namespace heddle {

ScoreWindows::ScoreWindows(std::int64_t num_tokens, std::int64_t window, std::int64_t stride)
    : num_tokens_(num_tokens), window_(window), stride_(stride) {
  require(window >= 2 && stride >= 1 && stride <= window, "windows of {} tokens, {} apart", window, stride);
}

std::optional<ScoreWindow> ScoreWindows::next() {
  while (scored_ < num_tokens_) {
    const ScoreWindow window{.begin = begin_,
                             .first = std::max(scored_, begin_ + 1),
                             .end = begin_ + std::min(window_, num_tokens_ - begin_)};
    begin_ += stride_;
    scored_ = window.end;
    if (window.first < window.end) return window;
  }
  return std::nullopt;
}

}  // namespace heddle
