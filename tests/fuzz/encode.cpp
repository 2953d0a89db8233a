// Input: a byte that chooses a tokenizer of tests/data/tokenizer, then a text, which is also read as ids.
#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "fuzz/target.h"
#include "fuzz/tokenizer_text.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/utf8.h"

namespace heddle::fuzz {
namespace {

enum class RoundTrip {
  exact,                    // decode gives the same text
  settles,                  // decode gives a text (normalized, a prefix stripped) that the next round trip keeps
  settles_without_specials  // a space is added again after each special token
};

struct Kind {
  const char* folder;
  RoundTrip round_trip;
};

// Add new ones at the end: inputs of the corpus choose by number.
constexpr Kind kKinds[] = {
    {"gpt2", RoundTrip::exact},
    {"llama3", RoundTrip::exact},
    {"qwen2", RoundTrip::settles},  // NFC
    {"llama2", RoundTrip::settles_without_specials},
};

std::vector<Tokenizer> load_tokenizers() {
  const char* elsewhere = std::getenv("HEDDLE_FUZZ_DATA");
  const std::filesystem::path data = elsewhere != nullptr ? elsewhere : HEDDLE_SOURCE_DIR "/tests/data";
  std::vector<Tokenizer> tokenizers;
  for (const Kind& kind : kKinds) tokenizers.push_back(Tokenizer::load(data / "tokenizer" / kind.folder));
  return tokenizers;
}

void check_utf8(std::string_view bytes) {
  const std::string mended = replace_invalid_utf8(bytes);
  expect(!find_invalid_utf8(mended), "replace_invalid_utf8 left something");
  if (!find_invalid_utf8(bytes)) expect(mended == bytes, "replace_invalid_utf8 changed what was right");
  const std::size_t cut_off = cut_off_bytes(bytes);
  expect(cut_off <= 3 && cut_off <= bytes.size(), "cut_off_bytes gave {}", cut_off);
}

}  // namespace

void fuzz_encode(std::string_view input) {
  if (input.empty()) return;
  static const std::vector<Tokenizer> tokenizers = load_tokenizers();
  const auto kind = static_cast<unsigned char>(input[0]) % std::size(kKinds);
  const Tokenizer& tokenizer = tokenizers[kind];
  const std::string_view text = input.substr(1);

  check_utf8(text);
  const bool encoded = check_text(tokenizer, text);
  expect(encoded == !find_invalid_utf8(text), "{}: {}", kKinds[kind].folder,
         encoded ? "took what is not UTF-8" : "refused UTF-8");
  if (encoded) {
    const auto round_trip = [&](std::string_view of) {
      return tokenizer.decode(tokenizer.encode(of, SpecialTokens::omit));
    };
    const std::string once = round_trip(text);
    if (kKinds[kind].round_trip == RoundTrip::exact)
      expect(once == text, "{}: \"{}\" came back as \"{}\"", kKinds[kind].folder, text, once);
    const auto ids = tokenizer.encode(text, SpecialTokens::omit);
    const bool has_special = std::ranges::any_of(ids, [&](std::int32_t id) { return tokenizer.is_special(id); });
    const std::string twice = round_trip(once);
    if (!has_special || kKinds[kind].round_trip != RoundTrip::settles_without_specials)
      expect(twice == once, "{}: \"{}\" came back as \"{}\"", kKinds[kind].folder, once, twice);
  }

  std::vector<std::int32_t> ids;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2)
    ids.push_back((static_cast<unsigned char>(text[i]) * 256 + static_cast<unsigned char>(text[i + 1])) %
                  tokenizer.vocab_size());
  check_decode(tokenizer, ids);
}

}  // namespace heddle::fuzz
