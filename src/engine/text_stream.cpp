#include "engine/text_stream.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {

StopStrings::StopStrings(const std::vector<std::string>& strings) {
  std::size_t total = 0;
  for (const std::string& string : strings) {
    if (string.empty()) throw InputError("a stop string is empty: it would end every text before it begins");
    total += string.size();
    if (total > kMaxStopBytes)
      throw_error<InputError>("the stop strings have more than {} bytes (max_stop_bytes)", kMaxStopBytes);
  }
  for (const std::string& string : strings) {
    std::uint32_t node = kStart;
    for (const char byte : string) {
      std::uint32_t next = child(node, byte);
      if (next == 0) {
        next = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back({0, nodes_[node].first_child, 0, nodes_[node].depth + 1, 0, byte});
        nodes_[node].first_child = next;
      }
      node = next;
    }
    nodes_[node].match_length = nodes_[node].depth;
  }
  // Level by level: a node's fallback is nearer to the start.
  std::vector<std::uint32_t> level{kStart};
  while (!level.empty()) {
    std::vector<std::uint32_t> below;
    for (const std::uint32_t node : level) {
      for (std::uint32_t at = nodes_[node].first_child; at != 0; at = nodes_[at].sibling) {
        if (node != kStart) nodes_[at].fallback = next(nodes_[node].fallback, nodes_[at].byte);
        if (nodes_[at].match_length == 0) nodes_[at].match_length = nodes_[nodes_[at].fallback].match_length;
        below.push_back(at);
      }
    }
    level = std::move(below);
  }
}

std::uint32_t StopStrings::child(std::uint32_t node, char byte) const {
  std::uint32_t at = nodes_[node].first_child;
  while (at != 0 && nodes_[at].byte != byte) at = nodes_[at].sibling;
  return at;
}

StopStrings::State StopStrings::next(State state, char byte) const {
  for (;;) {
    if (const std::uint32_t found = child(state, byte)) return found;
    if (state == kStart) return kStart;
    state = nodes_[state].fallback;
  }
}

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop)
    : decoder_(tokenizer, Specials::skip), vocab_size_(tokenizer.vocab_size()) {
  if (!stop.empty()) stop_ = std::make_shared<const StopStrings>(stop);
}

std::string TextStream::push(std::int32_t token) {
  // A model's vocabulary may be padded beyond the tokenizer's; such tokens have no text.
  if (token >= vocab_size_) return {};
  return release(decoder_.push(token));
}

std::string TextStream::finish() {
  if (stopped_) return {};
  std::string rest = release(decoder_.finish());
  return stopped_ ? rest : rest + std::exchange(held_, {});
}

std::string TextStream::release(std::string more) {
  if (!stop_) return more;
  std::string text = std::exchange(held_, {});
  for (const char byte : more) {
    text += byte;
    state_ = stop_->next(state_, byte);
    const std::size_t match_length = stop_->match_length(state_);
    if (match_length == 0) continue;
    stopped_ = true;
    text.erase(text.size() - match_length);
    return text;
  }
  const std::size_t certain = text.size() - stop_->length(state_);
  held_ = text.substr(certain);
  text.erase(certain);
  return text;
}

}  // namespace heddle
