#include "text/tokenizer/decoder_stages.h"

#include <algorithm>
#include <utility>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/utf8.h"

namespace heddle {

// Rust's parser accepts a sign, so <0x+A> is valid, too.
std::optional<char> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return std::nullopt;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  const int high = token[3] == '+' ? 0 : digit(token[3]);
  const int low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(16 * high + low);
}

void JoinWithSpaces::text(std::string_view text, DecoderNext next) {
  if (at_start && !is_first) next.text(" ");
  at_start = is_first = false;
  next.text(text);
}

void JoinWithSpaces::end(DecoderNext) {
  at_start = true;
}

void JoinWithSpaces::finish(DecoderNext next) {
  next.end();
}

void ByteLevelStage::text(std::string_view text, DecoderNext) {
  token += text;
}

void ByteLevelStage::end(DecoderNext next) {
  if (auto spelled = from_byte_level(token)) {
    bytes += *spelled;
  } else {
    bytes += token;
  }
  token.clear();
  const std::size_t certain = bytes.size() - cut_off_bytes(bytes);
  if (certain == 0) return;
  next.text(replace_invalid_utf8(std::string_view(bytes).substr(0, certain)));
  bytes.erase(0, certain);
}

void ByteLevelStage::finish(DecoderNext next) {
  next.text(replace_invalid_utf8(std::exchange(bytes, {})));
  next.end();
}

void ByteFallbackStage::text(std::string_view text, DecoderNext) {
  token += text;
}

void ByteFallbackStage::end(DecoderNext next) {
  const std::string whole = std::exchange(token, {});
  if (const auto byte = byte_of_token(whole)) {
    bytes += *byte;
    return;
  }
  end_run(next);
  next.text(whole);
  next.end();
}

void ByteFallbackStage::end_run(DecoderNext next) {
  const std::string run = std::exchange(bytes, {});
  if (run.empty()) return;
  if (!find_invalid_utf8(run)) {
    next.text(run);
    next.end();
    return;
  }
  for (std::size_t count = run.size(); count > 0; --count) {
    next.text("\uFFFD");
    next.end();
  }
}

void ByteFallbackStage::finish(DecoderNext next) {
  end_run(next);
}

void ReplaceStage::text(std::string_view text, DecoderNext) {
  token += text;
}

void ReplaceStage::end(DecoderNext next) {
  if (!token.empty()) next.text(replace_all(pattern, std::exchange(token, {}), content));
  next.end();
}

void ReplaceStage::finish(DecoderNext) {}

void StripStage::text(std::string_view text, DecoderNext next) {
  const auto release = [&] {
    for (; num_held > 0; --num_held) next.text(content);
  };
  while (!text.empty()) {
    if (!text.starts_with(content)) {
      const std::size_t plain = std::min(text.find(content), text.size());
      at_start = false;
      release();
      next.text(text.substr(0, plain));
      text.remove_prefix(plain);
      continue;
    }
    text.remove_prefix(content.size());
    if (at_start && num_cut < start) {
      ++num_cut;
    } else if (num_held < stop) {
      at_start = false;
      ++num_held;
    } else {
      at_start = false;
      next.text(content);
    }
  }
}

void StripStage::end(DecoderNext next) {
  num_cut = num_held = 0;
  at_start = true;
  next.end();
}

void StripStage::finish(DecoderNext) {}

void FuseStage::text(std::string_view text, DecoderNext next) {
  next.text(text);
}

void FuseStage::end(DecoderNext) {}

void FuseStage::finish(DecoderNext next) {
  next.end();
}

void MetaspaceStage::text(std::string_view text, DecoderNext next) {
  const bool drops = in_first && metaspace.prepend != PrependScheme::never;
  for (std::size_t at; (at = text.find(metaspace.replacement)) != std::string_view::npos;) {
    next.text(text.substr(0, at));
    if (!drops) next.text(" ");
    text.remove_prefix(at + metaspace.replacement.size());
  }
  next.text(text);
}

void MetaspaceStage::end(DecoderNext next) {
  in_first = false;
  next.end();
}

void MetaspaceStage::finish(DecoderNext) {}

void WordSuffixStage::release(std::string_view instead, DecoderNext next) {
  if (!std::exchange(has_token, false)) return;
  const std::string whole = std::exchange(token, {});
  std::string_view rest = whole;
  for (std::size_t at; (at = rest.find(suffix)) != std::string_view::npos;) {
    next.text(rest.substr(0, at));
    next.text(instead);
    rest.remove_prefix(at + suffix.size());
  }
  next.text(rest);
  next.end();
}

void WordSuffixStage::text(std::string_view text, DecoderNext next) {
  release(" ", next);
  token += text;
}

void WordSuffixStage::end(DecoderNext next) {
  release(" ", next);
  has_token = true;
}

void WordSuffixStage::finish(DecoderNext next) {
  release("", next);
}

}  // namespace heddle
