#include "text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/utf8.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxCachedPieceBytes = 64;
constexpr std::size_t kMaxCachedPieces = std::size_t{1} << 16;
constexpr std::size_t kMaxMerges = std::size_t{1} << 24;
constexpr std::int32_t kNone = -1;

std::uint64_t key_of(std::int32_t left, std::int32_t right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}

// A missing or null flag is off.
bool flag(const JsonField& model, std::string_view key) {
  const auto field = model.find(key);
  return field && field->boolean();
}

}  // namespace

void CutPoints::add_merge(std::string_view left, std::string_view right) {
  if (left.empty() || right.empty()) return;  // an empty merge never applies: no character is empty
  const char32_t before = last_char(left);
  const char32_t behind = first_char(right).code_point;
  if ((before | behind) < 0x80) {
    ascii_[before].set(behind);
  } else {
    others_.insert(std::uint64_t{before} << 32 | behind);
  }
}

MergeTable::MergeTable(std::size_t max_merges) : slots_(std::bit_ceil(2 * max_merges + 2)) {}

std::size_t MergeTable::slot_of(std::uint64_t key) const {
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t mixed = (key ^ key >> 31) * 0x9E3779B97F4A7C15u;
  mixed = (mixed ^ mixed >> 29) * 0xBF58476D1CE4E5B9u;
  std::size_t slot = (mixed >> 32) & mask;
  while (slots_[slot].key != key && slots_[slot].key != kFree) slot = (slot + 1) & mask;
  return slot;
}

void MergeTable::set(std::int32_t left, std::int32_t right, Merge merge) {
  const std::uint64_t key = key_of(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const MergeTable::Merge* MergeTable::find(std::int32_t left, std::int32_t right) const {
  const Slot& slot = slots_[slot_of(key_of(left, right))];
  return slot.key == kFree ? nullptr : &slot.merge;
}

// The scratch of one call of encode, reused from piece to piece.
struct Bpe::Scratch {
  struct Symbol {
    std::int32_t id;
    std::int32_t previous;  // index of a symbol, or kNone
    std::int32_t next;
  };
  struct Range {
    std::size_t begin;
    std::size_t count;
  };

  std::vector<Symbol> symbols;
  std::vector<std::uint64_t> queue;  // a heap of rank << 32 | index of the left symbol, the least on top
  bool has_unknown = false;          // an unknown token waits for neighbours to be fused with
  std::unordered_map<std::string_view, Range> cache;  // position in the result of a piece's ids
};

Bpe::Bpe(const JsonField& model) {
  if (const auto type = model.find("type"); type && type->text() != "BPE")
    type->fail(fmt::format("the model \"{}\" is not supported (BPE is)", type->text()));
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto field = model.find(key); field && !field->text().empty())
      field->fail_expected("null (an affix of sub-words is not supported)");
  if (const auto dropout = model.find("dropout"); dropout && dropout->number(0, 1) != 0)
    dropout->fail_expected("null (encoding that depends on chance is not supported)");
  byte_fallback_ = flag(model, "byte_fallback");
  fuse_unknown_ = flag(model, "fuse_unk");
  ignore_merges_ = flag(model, "ignore_merges");

  read_vocabulary(model.at("vocab"));
  read_merges(model.at("merges"));

  if (const auto unknown = model.find("unk_token")) {
    unknown_token_ = unknown->text();
    unknown_id_ = id_of(*unknown_token_);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const auto index = static_cast<std::size_t>(byte);
    byte_ids_[index] = id_of(byte_level_char(static_cast<unsigned char>(byte)));
    if (byte_fallback_) fallback_ids_[index] = id_of(fmt::format("<0x{:02X}>", byte));
  }
}

void Bpe::read_vocabulary(const JsonField& field) {
  if (!field.is_object()) field.fail_expected("an object of tokens and ids");
  std::vector<TokenTable::Entry> entries;
  entries.reserve(field.value().size());
  const std::int32_t max_id = max_token_id(field.value().size());
  std::vector<bool> taken;
  for (const auto& [token, value] : field.value().items()) {
    // A field with its path is created only when needed: there are 10^5 tokens.
    const bool is_plain = value.is_number_unsigned() && value.get<std::uint64_t>() <= kMaxTokenId;
    const auto id =
        is_plain ? value.get<std::int32_t>() : static_cast<std::int32_t>(field.at(token).integer(0, kMaxTokenId));
    if (id > max_id) field.at(token).fail(far_token_id(id, field.value().size()));
    const auto index = static_cast<std::size_t>(id);
    if (index >= taken.size()) taken.resize(std::max(index + 1, 2 * taken.size()));
    if (taken[index]) field.at(token).fail(fmt::format("another token has the id {} as well", id));
    taken[index] = true;
    entries.push_back({id, token});
    longest_token_ = std::max(longest_token_, token.size());
  }
  ids_.reserve(entries.size());
  std::vector<std::int32_t> used;
  used.reserve(entries.size());
  for (const TokenTable::Entry& entry : entries) used.push_back(entry.id);
  tokens_ = TokenTable(std::move(entries));
  for (const std::int32_t id : used) {
    const std::string_view token = tokens_[id];
    ids_.emplace(token, id);
    const Utf8Char c = token.empty() ? Utf8Char{0, 0, false} : first_char(token);
    if (token.empty() || c.length != token.size()) continue;
    if (c.code_point >= char_ids_.size()) char_ids_.resize(c.code_point + 1, kNoId);
    char_ids_[c.code_point] = id;
  }
}

std::int32_t Bpe::merge_operand(std::string_view token, const JsonField& list, std::size_t index) const {
  if (const auto id = id_of(token)) return *id;
  throw_error<InputError>("{}[{}]: the token {} is not in the vocabulary", list.path(), index,
                          shorten(nlohmann::json(token)));
}

void Bpe::read_merges(const JsonField& field) {
  if (!field.is_array()) field.fail_expected("an array of merges");
  const nlohmann::json& merges = field.value();
  if (merges.size() > kMaxMerges) field.fail(fmt::format("more than {} merges (max_merges)", kMaxMerges));
  merges_ = MergeTable(merges.size());
  std::uint32_t rank = 0;
  std::string joined;
  for (std::size_t index = 0; index < merges.size(); ++index) {
    const nlohmann::json& merge = merges[index];
    const auto fail = [&]() {
      JsonField(merge, fmt::format("{}[{}]", field.path(), index))
          .fail_expected("\"LEFT RIGHT\" or [\"LEFT\", \"RIGHT\"]");
    };
    std::string_view left;
    std::string_view right;
    if (merge.is_string()) {
      const std::string_view text = merge.get_ref<const std::string&>();
      if (text.starts_with("#version")) continue;  // the first line of GPT-2's merges.txt
      const std::size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) fail();
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) fail();
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
    }
    joined.assign(left).append(right);
    cut_points_.add_merge(left, right);
    const std::int32_t left_id = merge_operand(left, field, index);
    const std::int32_t right_id = merge_operand(right, field, index);
    merges_.set(left_id, right_id, {rank++, merge_operand(joined, field, index)});
  }
}

std::optional<std::int32_t> Bpe::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::vector<std::int32_t> Bpe::encode(const Pieces& pieces) const {
  std::vector<std::int32_t> ids;
  ids.reserve(pieces.text.size() / 3 + pieces.list.size() / 2);
  Scratch scratch;
  for (const Piece& piece : pieces.list) {
    if (piece.token != Piece::kNoToken) {
      ids.push_back(piece.token);
      continue;
    }
    const std::string_view text = pieces.text_of(piece.span);
    // With ignore_merges a whole piece may be a token that no merge produces.
    if (pieces.alphabet == Alphabet::characters && !ignore_merges_) {
      encode_cut(text, scratch, ids);
    } else {
      encode_cached(text, pieces.alphabet, scratch, ids);
    }
  }
  return ids;
}

void Bpe::encode_cut(std::string_view piece, Scratch& scratch, std::vector<std::int32_t>& ids) const {
  std::size_t begin = 0;
  char32_t previous = 0;
  bool previous_is_known = false;  // otherwise bytes, or an unknown token that may be extended
  for (std::size_t at = 0; at < piece.size();) {
    const auto byte = static_cast<unsigned char>(piece[at]);
    const Utf8Char c = byte < 0x80 ? Utf8Char{byte, 1, false} : first_char(piece.substr(at));
    const bool is_known = id_of_char(c.code_point) != kNoId;
    if (is_known && previous_is_known && !cut_points_.may_join(previous, c.code_point)) {
      encode_cached(piece.substr(begin, at - begin), Alphabet::characters, scratch, ids);
      begin = at;
    }
    previous = c.code_point;
    previous_is_known = is_known;
    at += c.length;
  }
  encode_cached(piece.substr(begin), Alphabet::characters, scratch, ids);
}

void Bpe::encode_cached(std::string_view piece, Alphabet alphabet, Scratch& scratch,
                        std::vector<std::int32_t>& ids) const {
  if (piece.size() > kMaxCachedPieceBytes) return encode_piece(piece, alphabet, scratch, ids);
  const auto cached = scratch.cache.find(piece);
  if (cached != scratch.cache.end()) {
    const auto [begin, count] = cached->second;
    for (std::size_t index = begin; index < begin + count; ++index) ids.push_back(ids[index]);
    return;
  }
  const std::size_t begin = ids.size();
  encode_piece(piece, alphabet, scratch, ids);
  if (scratch.cache.size() < kMaxCachedPieces) scratch.cache.emplace(piece, Scratch::Range{begin, ids.size() - begin});
}

void Bpe::encode_piece(std::string_view piece, Alphabet alphabet, Scratch& scratch,
                       std::vector<std::int32_t>& ids) const {
  // A token is at least as long as the bytes that it encodes.
  if (ignore_merges_ && piece.size() <= longest_token_) {
    if (const auto id = alphabet == Alphabet::bytes ? id_of(to_byte_level(piece)) : id_of(piece))
      return ids.push_back(*id);
  }
  scratch.symbols.clear();
  if (alphabet == Alphabet::bytes) {
    for (const char byte : piece) {
      const auto value = static_cast<unsigned char>(byte);
      if (byte_ids_[value] && !scratch.has_unknown) {
        scratch.symbols.push_back({*byte_ids_[value], kNone, kNone});
      } else {
        add_symbol(byte_level_char(value), scratch);
      }
    }
  } else {
    while (!piece.empty()) {
      const std::size_t length = first_char(piece).length;
      add_symbol(piece.substr(0, length), scratch);
      piece.remove_prefix(length);
    }
  }
  flush_unknown(scratch);
  merge_all(scratch);
  if (scratch.symbols.empty()) return;
  for (std::int32_t index = 0; index != kNone; index = scratch.symbols[static_cast<std::size_t>(index)].next)
    ids.push_back(scratch.symbols[static_cast<std::size_t>(index)].id);
}

void Bpe::flush_unknown(Scratch& scratch) const {
  if (scratch.has_unknown) scratch.symbols.push_back({*unknown_id_, kNone, kNone});
  scratch.has_unknown = false;
}

void Bpe::add_symbol(std::string_view character, Scratch& scratch) const {
  if (const auto id = id_of(character)) {
    flush_unknown(scratch);
    scratch.symbols.push_back({*id, kNone, kNone});
    return;
  }
  const auto fallback_of = [&](char byte) { return fallback_ids_[static_cast<unsigned char>(byte)]; };
  if (byte_fallback_ && std::all_of(character.begin(), character.end(), fallback_of)) {
    // A waiting unknown token keeps waiting, as in `tokenizers`.
    for (const char byte : character) scratch.symbols.push_back({*fallback_of(byte), kNone, kNone});
    return;
  }
  if (!unknown_token_) return;
  if (!unknown_id_)
    throw_error<InputError>(
        "the text has the character {}, which is not in the tokenizer's vocabulary, and neither is its unk_token {}",
        shorten(nlohmann::json(character)), shorten(nlohmann::json(*unknown_token_)));
  if (!fuse_unknown_) flush_unknown(scratch);
  scratch.has_unknown = true;
}

void Bpe::merge_all(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& queue = scratch.queue;
  const auto at = [&](std::int32_t index) -> Scratch::Symbol& { return symbols[static_cast<std::size_t>(index)]; };
  const auto num_symbols = static_cast<std::int32_t>(symbols.size());
  const auto entry_of = [](std::uint32_t rank, std::int32_t left) {
    return std::uint64_t{rank} << 32 | static_cast<std::uint32_t>(left);
  };
  // The merge of the symbol at `left` with the next one, if there is one.
  const auto merge_at = [&](std::int32_t left) -> const MergeTable::Merge* {
    const std::int32_t next = at(left).next;
    return next == kNone ? nullptr : merges_.find(at(left).id, at(next).id);
  };

  queue.clear();
  for (std::int32_t index = 0; index < num_symbols; ++index) {
    at(index).previous = index - 1;
    at(index).next = index + 1 < num_symbols ? index + 1 : kNone;
  }
  for (std::int32_t index = 0; index < num_symbols; ++index)
    if (const auto* merge = merge_at(index)) queue.push_back(entry_of(merge->rank, index));
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto push = [&](std::int32_t left) {
    if (const auto* merge = merge_at(left)) {
      queue.push_back(entry_of(merge->rank, left));
      std::push_heap(queue.begin(), queue.end(), std::greater<>());
    }
  };

  while (!queue.empty()) {
    const std::uint64_t entry = queue.front();
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    queue.pop_back();
    const auto left = static_cast<std::int32_t>(entry & 0xFFFFFFFFu);
    // Stale if either symbol has been merged since: the current pair has another rank, or none.
    if (at(left).id == kNone) continue;
    const auto* merge = merge_at(left);
    if (merge == nullptr || merge->rank != entry >> 32) continue;

    const std::int32_t right = at(left).next;
    at(left).id = merge->token;
    at(left).next = at(right).next;
    at(right).id = kNone;
    if (at(left).next != kNone) at(at(left).next).previous = left;
    if (at(left).previous != kNone) push(at(left).previous);
    push(left);
  }
}

}  // namespace heddle
