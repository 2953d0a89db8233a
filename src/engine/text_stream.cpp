#include "engine/text_stream.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

// Every token's text is searched for each of them.
constexpr std::size_t kMaxStops = 1024;
constexpr std::size_t kMaxStopBytes = 1024;

// Length of the longest end of `text` that begins `stop`, the whole of `stop` excluded.
std::size_t overlap(std::string_view text, std::string_view stop) {
  for (std::size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length)
    if (text.ends_with(stop.substr(0, length))) return length;
  return 0;
}

}  // namespace

TextStream::TextStream(const Tokenizer& tokenizer, std::vector<std::string> stop)
    : decoder_(tokenizer, Specials::skip), vocab_size_(tokenizer.vocab_size()), stop_(std::move(stop)) {
  if (stop_.size() > kMaxStops) throw_error<InputError>("more than {} stop strings", kMaxStops);
  for (const std::string& text : stop_) {
    if (text.empty()) throw InputError("a stop string is empty: it would end every text before it begins");
    if (text.size() > kMaxStopBytes) throw_error<InputError>("a stop string is longer than {} bytes", kMaxStopBytes);
  }
}

std::string TextStream::push(std::int32_t token) {
  // A model's vocabulary may be padded beyond the tokenizer's; such tokens stand for nothing.
  if (token >= vocab_size_) return {};
  return release(decoder_.push(token));
}

std::string TextStream::finish() {
  if (stopped_) return {};
  std::string rest = release(decoder_.finish());
  return stopped_ ? rest : rest + std::exchange(held_, {});
}

std::string TextStream::release(std::string more) {
  std::string text = std::exchange(held_, {}) + std::move(more);
  std::size_t first_stop = std::string::npos;
  for (const std::string& stop : stop_) first_stop = std::min(first_stop, text.find(stop));
  if (first_stop != std::string::npos) {
    stopped_ = true;
    text.resize(first_stop);
    return text;
  }
  std::size_t uncertain = 0;
  for (const std::string& stop : stop_) uncertain = std::max(uncertain, overlap(text, stop));
  held_ = text.substr(text.size() - uncertain);
  text.resize(text.size() - uncertain);
  return text;
}

}  // namespace heddle
