#include "text/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/unicode_sets.h"
#include "text/tokenizer/utf8.h"

namespace heddle {
namespace {

// GPT-2's pattern that splits text; ByteLevel has it built in.
constexpr std::string_view kGpt2Regex = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

constexpr std::size_t kMaxSteps = 64;

SplitBehavior behavior_of(const JsonField& field) {
  constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames{{
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous},
  }};
  const std::string name = field.text();
  const auto found = std::find_if(kNames.begin(), kNames.end(), [&](const auto& entry) { return entry.first == name; });
  if (found == kNames.end()) field.fail_expected("Removed, Isolated, MergedWithPrevious, MergedWithNext or Contiguous");
  return found->second;
}

struct Part {
  Span span;  // may be empty
  bool is_match;
};

// Covers `region` with the matches and the text between them.
void cover(Span region, const std::vector<Span>& matches, bool invert, std::vector<Part>& parts) {
  parts.clear();
  std::uint32_t at = region.begin;
  for (const Span match : matches) {
    if (at < match.begin) parts.push_back({{at, match.begin}, invert});
    parts.push_back({match, !invert});
    at = match.end;
  }
  if (at < region.end) parts.push_back({{at, region.end}, invert});
}

// Merges parts as `behavior` says. A match joins its neighbour unless that neighbour is a match, too.
void merge(SplitBehavior behavior, std::vector<Part>& parts) {
  switch (behavior) {
    case SplitBehavior::isolated:
      return;
    case SplitBehavior::removed:
      std::erase_if(parts, [](const Part& part) { return part.is_match; });
      return;
    case SplitBehavior::merged_with_next:
      std::reverse(parts.begin(), parts.end());
      merge(SplitBehavior::merged_with_previous, parts);
      std::reverse(parts.begin(), parts.end());
      return;
    case SplitBehavior::merged_with_previous:
    case SplitBehavior::contiguous:
      break;
  }
  std::vector<Part> merged;
  bool previous_is_match = false;
  for (const Part& part : parts) {
    const bool joins = behavior == SplitBehavior::contiguous ? part.is_match == previous_is_match
                                                             : part.is_match && !previous_is_match;
    previous_is_match = part.is_match;
    if (joins && !merged.empty()) {
      Span& last = merged.back().span;
      last = {std::min(last.begin, part.span.begin), std::max(last.end, part.span.end)};
    } else {
      merged.push_back(part);
    }
  }
  parts = std::move(merged);
}

// Splits each piece. `cut(span, parts)` gives its parts in order; empty ones are dropped.
template <class Cut>
void cut_pieces(Pieces& pieces, Cut cut) {
  std::vector<Piece> result;
  result.reserve(pieces.list.size() + pieces.text.size() / 4);
  std::vector<Part> parts;
  for (const Piece& piece : pieces.list) {
    if (piece.token != Piece::kNoToken) {
      result.push_back(piece);
      continue;
    }
    cut(piece.span, parts);
    for (const Part& part : parts)
      if (part.span.begin != part.span.end) result.push_back({part.span});
    if (&piece == &pieces.list.front() && (result.empty() || result.front().span.begin != piece.span.begin))
      pieces.first_is_at_start = false;
  }
  pieces.list = std::move(result);
}

void apply_step(const Split& split, Pieces& pieces) {
  spell_out(pieces);
  PatternScan scan(split.pattern, pieces.text);
  std::vector<Span> matches;
  cut_pieces(pieces, [&](Span span, std::vector<Part>& parts) {
    scan.find(span, matches);
    cover(span, matches, split.invert, parts);
    merge(split.behavior, parts);
  });
}

void apply_step(const Metaspace& metaspace, Pieces& pieces) {
  spell_out(pieces);
  const std::string_view replacement = metaspace.replacement;
  bool is_at_start = pieces.first_is_at_start && !pieces.list.empty() && pieces.list[0].token == Piece::kNoToken;
  pieces = rewrite_pieces(pieces, [&](std::string& text, std::string_view piece) {
    const bool prepends = metaspace.prepend == PrependScheme::always ||
                          (metaspace.prepend == PrependScheme::first && std::exchange(is_at_start, false));
    if (prepends && !piece.starts_with(replacement) && !piece.starts_with(' ')) text += replacement;
    for (std::size_t space; (space = piece.find(' ')) != std::string_view::npos; piece.remove_prefix(space + 1)) {
      text += piece.substr(0, space);
      text += replacement;
    }
    text += piece;
  });
  if (!metaspace.split) return;
  const std::string_view text = pieces.text;
  cut_pieces(pieces, [&](Span span, std::vector<Part>& parts) {
    parts.clear();
    // In a run of replacements each but the last is a piece of its own.
    for (std::size_t begin = span.begin; begin < span.end;) {
      const std::size_t next = std::min<std::size_t>(text.substr(0, span.end).find(replacement, begin + 1), span.end);
      parts.push_back({{static_cast<std::uint32_t>(begin), static_cast<std::uint32_t>(next)}, false});
      begin = next;
    }
  });
}

void apply_step(const PrefixSpace&, Pieces& pieces) {
  spell_out(pieces);
  pieces = rewrite_pieces(pieces, [](std::string& text, std::string_view piece) {
    if (!piece.starts_with(' ')) text += ' ';
    text += piece;
  });
}

void apply_step(const ByteAlphabet&, Pieces& pieces) {
  spell_out(pieces);
  pieces.alphabet = Alphabet::bytes;
}

}  // namespace

PreTokenizer::PreTokenizer(const JsonField& field) {
  add(field);
}

void PreTokenizer::add(const JsonField& field) {
  const std::string type = field.at("type").text();
  if (steps_.size() >= kMaxSteps)
    field.fail(fmt::format("more than {} pre-tokenizers (max_pre_tokenizers)", kMaxSteps));
  const auto split = [&](Pattern pattern, SplitBehavior behavior) {
    steps_.emplace_back(Split{std::move(pattern), behavior, false});
  };
  if (type == "Sequence") {
    for (const JsonField& element : field.at("pretokenizers").elements()) add(element);
  } else if (type == "Split") {
    steps_.emplace_back(Split{Pattern::from_json(field.at("pattern")), behavior_of(field.at("behavior")),
                              field.at("invert").boolean()});
  } else if (type == "ByteLevel") {
    if (field.at("add_prefix_space").boolean()) steps_.emplace_back(PrefixSpace{});
    const auto use_regex = field.find("use_regex");
    if (!use_regex || use_regex->boolean()) split(Pattern::regex(kGpt2Regex, field.path()), SplitBehavior::isolated);
    steps_.emplace_back(ByteAlphabet{});
  } else if (type == "Metaspace") {
    steps_.emplace_back(Metaspace::from_json(field));
  } else if (type == "Digits") {
    const bool individual = field.at("individual_digits").boolean();
    split(Pattern::any_of(rust_numeric()), individual ? SplitBehavior::isolated : SplitBehavior::contiguous);
  } else if (type == "Punctuation") {
    const auto behavior = field.find("behavior");
    split(Pattern::any_of(rust_punctuation()), behavior ? behavior_of(*behavior) : SplitBehavior::isolated);
  } else if (type == "WhitespaceSplit") {
    split(Pattern::any_of(property("space")), SplitBehavior::removed);
  } else if (type == "BertPreTokenizer") {
    split(Pattern::any_of(property("space")), SplitBehavior::removed);
    split(Pattern::any_of(rust_punctuation()), SplitBehavior::isolated);
  } else if (type == "CharDelimiterSplit") {
    const JsonField delimiter = field.at("delimiter");
    const auto c = static_cast<UChar32>(first_char(one_character(delimiter)).code_point);
    split(Pattern::any_of(icu::UnicodeSet(c, c)), SplitBehavior::removed);
  } else if (type == "Whitespace") {  // runs of word characters, and runs of characters that are neither word nor space
    split(Pattern::any_of(property("space")), SplitBehavior::removed);
    split(Pattern::any_of(rust_word_characters()), SplitBehavior::contiguous);
  } else {
    field.at("type").fail(
        fmt::format("the pre-tokenizer \"{}\" is not supported (Split, ByteLevel, Metaspace, Digits, Punctuation, "
                    "Whitespace, WhitespaceSplit, CharDelimiterSplit, BertPreTokenizer and Sequence are)",
                    type));
  }
}

void PreTokenizer::apply(Pieces& pieces) const {
  for (const Step& step : steps_) std::visit([&](const auto& chosen) { apply_step(chosen, pieces); }, step);
}

}  // namespace heddle
