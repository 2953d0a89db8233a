// Turns sampled tokens into text that may be shown. Leaves out special tokens and stop strings; holds back text that
// may become a stop string, and incomplete characters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace heddle {

constexpr std::size_t kMaxStopBytes = std::size_t{1} << 20;

// Finds any of many strings in a text, byte by byte (Aho and Corasick, 1975).
class StopStrings {
 public:
  explicit StopStrings(const std::vector<std::string>& strings);

  // The longest suffix of the text so far that is a prefix of one of the strings.
  using State = std::uint32_t;
  static constexpr State kStart = 0;
  State next(State state, char byte) const;

  std::uint32_t length(State state) const { return nodes_[state].depth; }
  // Length of the longest string that ends here; 0: none.
  std::uint32_t match_length(State state) const { return nodes_[state].match_length; }

 private:
  struct Node {
    std::uint32_t first_child = 0;  // 0: none, as the start is not a child
    std::uint32_t sibling = 0;
    std::uint32_t fallback = 0;  // the longest proper suffix that is also a node
    std::uint32_t depth = 0;
    std::uint32_t match_length = 0;
    char byte = 0;
  };
  std::uint32_t child(std::uint32_t node, char byte) const;

  std::vector<Node> nodes_{Node{}};
};

class TextStream {
 public:
  // `stop`: the text ends before the first of these that appears. Throws InputError when one is empty or longer than 1
  // KiB, or when there are more than 1024.
  TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop);

  // Returns the text that has become final with this token. Do not call it once stopped().
  std::string push(std::int32_t token);

  // Returns the rest, when no token will follow. Empty once stopped().
  std::string finish();

  bool stopped() const { return stopped_; }

 private:
  std::string release(std::string more);

  StreamDecoder decoder_;
  std::int32_t vocab_size_;
  std::shared_ptr<const StopStrings> stop_;  // copies share it; null: none
  StopStrings::State state_ = StopStrings::kStart;
  std::string held_;  // may be the beginning of a stop string
  bool stopped_ = false;
};

}  // namespace heddle
