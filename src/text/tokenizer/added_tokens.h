// tokenizer.json's "added_tokens": strings that become their id wherever they occur in a text, before any other
// processing.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/pieces.h"

namespace heddle {

struct AddedToken {
  std::int32_t id;
  std::string content;
  bool single_word;  // does not match next to a word character
  bool lstrip;       // includes the white space to its left
  bool rstrip;
  bool normalized;  // matches in the normalized text
  bool special;
  std::string text;  // the string to match and to decode to: the content, normalized if `normalized`
};

// Finds the longest of several strings that begins at a position of a text.
class StringTrie {
 public:
  // `value` is what `longest_match` returns for the string; of equal strings the first wins. Not empty.
  void add(std::string_view string, std::int32_t value);

  struct Match {
    std::int32_t value;
    std::size_t length;
  };
  std::optional<Match> longest_match(std::string_view text) const;

  bool empty() const { return num_nodes_ == 1; }

 private:
  std::array<bool, 256> begins_{};                             // whether some string begins with this byte
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // node << 8 | byte -> node
  std::unordered_map<std::uint32_t, std::int32_t> values_;     // of the nodes where a string ends
  std::uint32_t num_nodes_ = 1;
};

class AddedTokens {
 public:
  AddedTokens() = default;

  // `field` is the array. A token of the model's vocabulary keeps its id; the others must have the ids that
  // `tokenizers` gives them, counting on from the size of the vocabulary. Throws InputError that names the field
  // otherwise, for a duplicate id or content, for content above 1 KiB or 16 MiB in all, and for content that normalizes
  // to nothing.
  AddedTokens(const JsonField& field, const Bpe& model, const Normalizer& normalizer);

  const std::vector<AddedToken>& list() const { return tokens_; }

  // Splits off the tokens that match the raw text, then normalizes the rest and splits off the others. `guarded`: as in
  // Tokenizer::encode.
  void split(Pieces& pieces, const Normalizer& normalizer, std::span<const std::size_t> guarded = {}) const;

 private:
  enum class Form : std::uint8_t { raw, normalized };
  void split_at(Form form, Pieces& pieces, std::span<const std::size_t> guarded) const;

  std::vector<AddedToken> tokens_;
  StringTrie raw_;  // values are indices of tokens_
  StringTrie normalized_;
};

}  // namespace heddle
