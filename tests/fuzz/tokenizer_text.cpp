#include "fuzz/tokenizer_text.h"

#include "fuzz/target.h"
#include "text/tokenizer/utf8.h"

namespace heddle::fuzz {

void check_decode(const Tokenizer& tokenizer, std::span<const std::int32_t> ids) {
  for (const Specials specials : {Specials::keep, Specials::skip}) {
    const std::string whole = tokenizer.decode(ids, specials);
    expect(!find_invalid_utf8(whole), "decode() gave what is not UTF-8");
    StreamDecoder stream(tokenizer, specials);
    std::string joined;
    for (const std::int32_t id : ids) {
      joined += stream.push(id);
      expect(!find_invalid_utf8(joined), "push() gave what is not UTF-8");
    }
    joined += stream.finish();
    expect(joined == whole, "the stream gave \"{}\", decode() \"{}\"", joined, whole);
  }
}

bool check_text(const Tokenizer& tokenizer, std::string_view text) {
  return accepts([&] {
    const auto ids = tokenizer.encode(text);
    expect(!find_invalid_utf8(text), "encode() took what is not UTF-8");
    expect(ids == tokenizer.encode(text), "two ways to encode one text");
    for (const std::int32_t id : ids) expect(id >= 0 && id < tokenizer.vocab_size(), "the id {}", id);
    check_decode(tokenizer, ids);
    tokenizer.encode(text, SpecialTokens::omit);
  });
}

}  // namespace heddle::fuzz
