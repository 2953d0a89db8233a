// Input: a tokenizer.json; after a first zero byte a text to encode, after a second a tokenizer_config.json.
#include "text/tokenizer/tokenizer.h"

#include "fuzz/target.h"
#include "fuzz/tokenizer_text.h"

namespace heddle::fuzz {

void fuzz_tokenizer(std::string_view input) {
  const auto json_and_rest = split_at_zero(input);
  const auto text_and_config = split_at_zero(json_and_rest.second);
  const std::string_view text = text_and_config.first;
  accepts([&] {
    const Tokenizer tokenizer = Tokenizer::from_json(json_and_rest.first, text_and_config.second, "fuzz");
    const std::int32_t vocab_size = tokenizer.vocab_size();
    expect(vocab_size > 0, "a vocabulary of {}", vocab_size);
    for (std::int32_t id = 0; id < std::min(vocab_size, 1000); ++id) {
      tokenizer.token_text(id);
      tokenizer.is_special(id);
    }
    for (const auto& id : {tokenizer.bos_id(), tokenizer.eos_id()})
      expect(!id || (*id >= 0 && *id < vocab_size), "a special id outside of the vocabulary");
    accepts([&] { tokenizer.token_text(vocab_size); });
    check_text(tokenizer, text);
    check_text(tokenizer, " A  caf\u00e9's \u4e2d\u6587 12345\r\n\n\t<|endoftext|>\u2581x\U0001f600e\u0301 ");
  });
}

}  // namespace heddle::fuzz
