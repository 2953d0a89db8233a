// Byte pair encoding: a piece begins as its characters. Repeatedly, of all neighbours that a merge rule joins, the pair
// with the lowest rank is merged, the leftmost one first.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/pieces.h"
#include "text/tokenizer/token_table.h"

namespace heddle {

// Pair of token ids -> rank and merged token. A hash table with open addressing: a lookup touches one cache line.
class MergeTable {
 public:
  struct Merge {
    std::uint32_t rank;
    std::int32_t token;
  };

  explicit MergeTable(std::size_t max_merges = 0);

  // Of two merges of one pair the later wins.
  void set(std::int32_t left, std::int32_t right, Merge merge);

  const Merge* find(std::int32_t left, std::int32_t right) const;

 private:
  struct Slot {
    std::uint64_t key = kFree;
    Merge merge{};
  };
  static constexpr std::uint64_t kFree = ~std::uint64_t{0};
  std::size_t slot_of(std::uint64_t key) const;

  std::vector<Slot> slots_;  // a power of two, at least half of them free
};

// Positions where a piece may be split without changing its tokens: between two characters that no merge could join,
// because no rule has a left token that ends with the one and a right token that begins with the other.
class CutPoints {
 public:
  void add_merge(std::string_view left, std::string_view right);

  bool may_join(char32_t before, char32_t behind) const {
    if ((before | behind) < 0x80) return ascii_[before].test(behind);
    return others_.contains(std::uint64_t{before} << 32 | behind);
  }

 private:
  std::array<std::bitset<128>, 128> ascii_;
  std::unordered_set<std::uint64_t> others_;
};

class Bpe {
 public:
  // Reads tokenizer.json's "model". Throws InputError that names the field: a model other than BPE, an unsupported
  // option, a missing vocabulary or list of merges, a duplicate id or one outside [0, kMaxTokenId] or above
  // max_token_id, a merge of tokens that are not in the vocabulary.
  explicit Bpe(const JsonField& model);
  Bpe(const Bpe&) = delete;  // ids_ points into tokens_
  Bpe& operator=(const Bpe&) = delete;

  // The vocabulary by id, without the added tokens.
  const TokenTable& tokens() const { return tokens_; }
  std::optional<std::int32_t> id_of(std::string_view token) const;
  std::size_t num_tokens() const { return ids_.size(); }

  // The ids of all pieces in order; a piece that is already a token gives its id. Time is O(n log n) in the length of a
  // piece. A character that is not in the vocabulary gives its bytes (byte_fallback) or the unknown token; without
  // either it is dropped. Throws InputError when the vocabulary lacks the unknown token.
  std::vector<std::int32_t> encode(const Pieces& pieces) const;

 private:
  struct Scratch;
  void read_vocabulary(const JsonField& field);
  void read_merges(const JsonField& field);
  std::int32_t merge_operand(std::string_view token, const JsonField& list, std::size_t index) const;
  void encode_cut(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void encode_cached(std::string_view piece, Alphabet alphabet, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  std::int32_t id_of_char(char32_t c) const { return c < char_ids_.size() ? char_ids_[c] : kNoId; }
  void encode_piece(std::string_view piece, Alphabet alphabet, Scratch& scratch, std::vector<std::int32_t>& ids) const;
  void add_symbol(std::string_view character, Scratch& scratch) const;
  void flush_unknown(Scratch& scratch) const;
  void merge_all(Scratch& scratch) const;

  TokenTable tokens_;
  std::unordered_map<std::string_view, std::int32_t> ids_;  // views of tokens_
  static constexpr std::int32_t kNoId = -1;
  std::vector<std::int32_t> char_ids_;  // by code point: ids of single-character tokens
  MergeTable merges_;
  CutPoints cut_points_;
  std::array<std::optional<std::int32_t>, 256> byte_ids_;      // of the characters of GPT-2's alphabet
  std::array<std::optional<std::int32_t>, 256> fallback_ids_;  // of <0x00> .. <0xFF>, where byte_fallback is on
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  bool ignore_merges_ = false;
  std::size_t longest_token_ = 0;  // bytes
  std::optional<std::string> unknown_token_;
  std::optional<std::int32_t> unknown_id_;
};

}  // namespace heddle
