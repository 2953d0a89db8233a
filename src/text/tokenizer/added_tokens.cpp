#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "text/tokenizer/unicode_sets.h"
#include "text/tokenizer/utf8.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxContentBytes = 1 << 10;  // a search may cost this much per byte of text
constexpr std::size_t kMaxContentsBytes = 16 << 20;

AddedToken read_token(const JsonField& field) {
  AddedToken token{
      .id = static_cast<std::int32_t>(field.at("id").integer(0, kMaxTokenId)),
      .content = field.at("content").text(),
      .single_word = field.at("single_word").boolean(),
      .lstrip = field.at("lstrip").boolean(),
      .rstrip = field.at("rstrip").boolean(),
      .normalized = field.at("normalized").boolean(),
      .special = field.at("special").boolean(),
      .text = {},
  };
  if (token.content.size() > kMaxContentBytes)
    field.at("content").fail(fmt::format("longer than {} bytes (max_added_token_bytes)", kMaxContentBytes));
  return token;
}

bool is_word(char32_t c) {
  return rust_word_characters().contains(static_cast<UChar32>(c));
}

bool touches_word(std::string_view text, std::size_t begin, std::size_t end) {
  return (begin > 0 && is_word(last_char(text.substr(0, begin)))) ||
         (end < text.size() && is_word(first_char(text.substr(end)).code_point));
}

}  // namespace

void StringTrie::add(std::string_view string, std::int32_t value) {
  begins_[static_cast<unsigned char>(string.front())] = true;
  std::uint32_t node = 0;
  for (const char byte : string) {
    const std::uint64_t key = std::uint64_t{node} << 8 | static_cast<unsigned char>(byte);
    const auto [child, is_new] = children_.try_emplace(key, num_nodes_);
    if (is_new) ++num_nodes_;
    node = child->second;
  }
  values_.try_emplace(node, value);
}

std::optional<StringTrie::Match> StringTrie::longest_match(std::string_view text) const {
  std::optional<Match> longest;
  if (!begins_[static_cast<unsigned char>(text.front())]) return longest;
  std::uint32_t node = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto child = children_.find(std::uint64_t{node} << 8 | static_cast<unsigned char>(text[at]));
    if (child == children_.end()) break;
    node = child->second;
    const auto value = values_.find(node);
    if (value != values_.end()) longest = Match{value->second, at + 1};
  }
  return longest;
}

AddedTokens::AddedTokens(const JsonField& field, const Bpe& model, const Normalizer& normalizer) {
  std::set<std::string> contents;
  std::set<std::int32_t> ids;
  std::size_t contents_bytes = 0;
  // `tokenizers` ignores the ids in the file and counts on from the size of the model's vocabulary.
  auto next_id = static_cast<std::int32_t>(model.num_tokens());
  for (const JsonField& element : field.elements()) {
    AddedToken token = read_token(element);
    if (token.content.empty()) continue;  // as in `tokenizers`
    if (!contents.insert(token.content).second) element.at("content").fail("an added token stands here twice");
    const auto known = model.id_of(token.content);
    const std::int32_t id = known ? *known : next_id;
    // An added token that is in the model's vocabulary advances the count as well, if the vocabulary has gaps.
    next_id = std::max(next_id, id + 1);
    if (token.id != id)
      element.at("id").fail(fmt::format("the token {} has the id {} by the vocabulary, not {}",
                                        shorten(element.at("content").value()), id, token.id));
    if (!ids.insert(id).second) element.at("id").fail("another added token has this id as well");
    contents_bytes += token.content.size();
    if (contents_bytes > kMaxContentsBytes)
      field.fail(fmt::format("more than {} bytes of tokens (max_added_tokens_bytes)", kMaxContentsBytes));

    token.text = token.normalized ? normalizer.apply(token.content) : token.content;
    tokens_.push_back(std::move(token));
  }
  // Of tokens that normalize to the same text, a special one is found, else the first.
  for (const bool special : {true, false}) {
    for (std::size_t index = 0; index < tokens_.size(); ++index) {
      const AddedToken& token = tokens_[index];
      if (token.special != special) continue;
      const std::string& string = token.text;
      if (string.empty() || string.size() > kMaxContentBytes)
        field.fail(fmt::format("the token {} has {} bytes when normalized, expected 1 to {}",
                               shorten(nlohmann::json(token.content)), string.size(), kMaxContentBytes));
      (token.normalized ? normalized_ : raw_).add(string, static_cast<std::int32_t>(index));
    }
  }
}

void AddedTokens::split(Pieces& pieces, const Normalizer& normalizer, std::span<const std::size_t> guarded) const {
  split_at(Form::raw, pieces, guarded);
  normalizer.apply(pieces);
  split_at(Form::normalized, pieces, guarded);
}

void AddedTokens::split_at(Form form, Pieces& pieces, std::span<const std::size_t> guarded) const {
  const StringTrie& trie = form == Form::raw ? raw_ : normalized_;
  if (trie.empty()) return;
  // Whether a special token may stand at these bytes. Offsets are those of the raw text.
  const auto allowed = [&](std::size_t begin, std::size_t end) {
    if (guarded.empty()) return true;
    if (form == Form::normalized) return false;
    const auto first = std::ranges::lower_bound(guarded, begin);
    return first == guarded.end() || *first >= end;
  };
  std::vector<Piece> result;
  for (const Piece& piece : pieces.list) {
    if (piece.token != Piece::kNoToken) {
      result.push_back(piece);
      continue;
    }
    const std::string_view text = pieces.text_of(piece.span);
    const auto span_of = [&](std::size_t begin, std::size_t end) {
      return Span{static_cast<std::uint32_t>(piece.span.begin + begin),
                  static_cast<std::uint32_t>(piece.span.begin + end)};
    };
    std::size_t done = 0;       // what lies before is in `result`
    std::size_t space_end = 0;  // end of the white space that was skipped last
    for (std::size_t at = 0; at < text.size();) {
      const auto match = trie.longest_match(text.substr(at));
      if (!match) {
        ++at;
        continue;
      }
      const AddedToken& token = tokens_[static_cast<std::size_t>(match->value)];
      std::size_t begin = at;
      std::size_t end = at + match->length;
      if (token.special && !allowed(piece.span.begin + begin, piece.span.begin + end)) {
        ++at;
        continue;
      }
      at = end;  // also where the match is dropped, and where white space is included
      if (token.single_word && touches_word(text, begin, end)) continue;
      if (token.lstrip && begin > done) begin = skip_space_back(text, begin, done);
      if (token.rstrip) {
        // A white-space token reuses the end of the run that its predecessor found, instead of walking it again.
        if (end >= space_end) space_end = skip_space(text, end);
        end = space_end;
      }
      if (done < begin) result.push_back({span_of(done, begin)});
      result.push_back({span_of(end, end), token.id});
      done = end;  // may lie before the last token's end; its white space then counts again, as in `tokenizers`
    }
    if (done < text.size()) result.push_back({span_of(done, text.size())});
  }
  pieces.list = std::move(result);
}

}  // namespace heddle
