// Scores a text longer than the context in overlapping windows, as in Hugging Face's guide on the perplexity of
// fixed-length models.
#pragma once

#include <cstdint>
#include <optional>

namespace heddle {

// Tokens [begin, end) of a text. The window gives the log-probabilities of [first, end); tokens before `first` are
// context.
struct ScoreWindow {
  std::int64_t begin = 0;
  std::int64_t first = 0;
  std::int64_t end = 0;
};

// Every window of `window` tokens begins `stride` after the previous one, and scores what earlier windows have not. The
// first token of the text has no log-probability; with stride == window, nor has the first token of any window.
class ScoreWindows {
 public:
  // 1 <= stride <= window, window >= 2.
  ScoreWindows(std::int64_t num_tokens, std::int64_t window, std::int64_t stride);

  std::optional<ScoreWindow> next();

 private:
  std::int64_t num_tokens_;
  std::int64_t window_;
  std::int64_t stride_;
  std::int64_t begin_ = 0;
  std::int64_t scored_ = 0;  // tokens that earlier windows covered
};

}  // namespace heddle
