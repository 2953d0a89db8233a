// Properties that hold for any text and any ids.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "golden.h"
#include "text/tokenizer/utf8.h"

namespace heddle {
namespace {

using Ids = std::vector<std::int32_t>;

const Tokenizer& tokenizer(int kind) {
  static const std::vector<Tokenizer> all = [] {
    std::vector<Tokenizer> loaded;
    for (const char* name : {"gpt2", "llama3", "llama2", "qwen2"})
      loaded.push_back(Tokenizer::load(golden_folder() / name));
    return loaded;
  }();
  return all[static_cast<std::size_t>(kind)];
}

std::string text_of(const std::vector<std::uint32_t>& numbers) {
  std::string text;
  for (const std::uint32_t number : numbers) {
    // Half of the characters are ASCII.
    const char32_t c = number % 2 == 0 ? number / 2 % 0x80 : number / 2 % 0x110000;
    append_utf8(text, c >= 0xD800 && c < 0xE000 ? U' ' : c);
  }
  return text;
}

RC_GTEST_PROP(TokenizerProperty, ByteLevelRoundTrips, (const std::vector<std::uint32_t>& numbers)) {
  const std::string text = text_of(numbers);
  for (const int kind : {0, 1}) {  // no normalizer
    const Ids ids = tokenizer(kind).encode(text, SpecialTokens::omit);
    RC_ASSERT(tokenizer(kind).decode(ids) == text);
  }
}

RC_GTEST_PROP(TokenizerProperty, SentencePieceRoundTrips, (const std::vector<std::uint32_t>& numbers)) {
  const std::string text = text_of(numbers);
  RC_PRE(text.find("\u2581") == std::string::npos);  // means a space
  RC_PRE(text.find('<') == std::string::npos);       // may begin a special token, behind which a space is added
  RC_ASSERT(tokenizer(2).decode(tokenizer(2).encode(text, SpecialTokens::omit)) == text);
}

RC_GTEST_PROP(TokenizerProperty, AStreamSaysWhatDecodeSays, (const std::vector<std::uint32_t>& numbers)) {
  for (int kind = 0; kind < 4; ++kind) {
    Ids ids;
    for (const std::uint32_t number : numbers)
      ids.push_back(static_cast<std::int32_t>(number % static_cast<std::uint32_t>(tokenizer(kind).vocab_size())));
    for (const Specials specials : {Specials::keep, Specials::skip}) {
      StreamDecoder decoder(tokenizer(kind), specials);
      std::string text;
      for (const std::int32_t id : ids) {
        const std::string more = decoder.push(id);
        RC_ASSERT(!find_invalid_utf8(more));
        text += more;
      }
      RC_ASSERT(text + decoder.finish() == tokenizer(kind).decode(ids, specials));
    }
  }
}

}  // namespace
}  // namespace heddle
