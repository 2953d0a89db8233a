// tokenizer.json's "added_tokens": strings that become their id wherever they stand in a text, before anything else is
// done with it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
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
  bool single_word;  // not where a word's character touches it
  bool lstrip;       // takes the white space to its left with it
  bool rstrip;
  bool normalized;  // is looked for in the normalized text
  bool special;
  std::string text;  // what is looked for and decoded: the content, normalized if `normalized`
};

// The longest of several strings that begins at a place of a text.
class StringTrie {
 public:
  // `value` is what `longest_match` gives for the string; of equal strings the first counts. Not empty.
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

  // `field` is the array. A token of the model's vocabulary keeps its id there; the others must have the ids that
  // `tokenizers` gives them, counting on from the size of the vocabulary. Throws InputError that names the field
  // otherwise, for an id or content twice, for content above 1 KiB or 16 MiB in all, and for content that normalizes to
  // nothing.
  AddedTokens(const JsonField& field, const Bpe& model, const Normalizer& normalizer);

  const std::vector<AddedToken>& list() const { return tokens_; }

  // Cuts out the tokens that are looked for as the text is, then normalizes what lies between and cuts out the others.
  void split(Pieces& pieces, const Normalizer& normalizer) const;

 private:
  void split_at(const StringTrie& trie, Pieces& pieces) const;

  std::vector<AddedToken> tokens_;
  StringTrie raw_;  // values are indices of tokens_
  StringTrie normalized_;
};

}  // namespace heddle
