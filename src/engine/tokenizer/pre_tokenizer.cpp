#include "engine/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

// The expression that GPT-2 cut its text with; ByteLevel has it built in.
constexpr std::string_view kGpt2Regex = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Rust's \w, unlike Oniguruma's, has the joiners.
constexpr std::string_view kRustWords =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)";

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

// Covers `region` with the matches and what lies between them.
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

// Merges parts as `behavior` says. A match joins its neighbour unless that neighbour is a match as well.
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

void apply_step(const Split& split, Pieces& pieces) {
  spell_out(pieces);
  PatternScan scan(split.pattern, pieces.text);
  std::vector<Piece> result;
  result.reserve(pieces.list.size() + pieces.text.size() / 4);
  std::vector<Span> matches;
  std::vector<Part> parts;
  for (const Piece& piece : pieces.list) {
    if (piece.token != Piece::kNoToken) {
      result.push_back(piece);
      continue;
    }
    scan.find(piece.span, matches);
    cover(piece.span, matches, split.invert, parts);
    merge(split.behavior, parts);
    for (const Part& part : parts)
      if (part.span.begin != part.span.end) result.push_back({part.span});
  }
  pieces.list = std::move(result);
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
  const auto split = [&](std::string_view regex, SplitBehavior behavior, bool invert) {
    steps_.emplace_back(Split{Pattern::regex(regex, field.path()), behavior, invert});
  };
  if (type == "Sequence") {
    for (const JsonField& element : field.at("pretokenizers").elements()) add(element);
  } else if (type == "Split") {
    steps_.emplace_back(Split{Pattern::from_json(field.at("pattern")), behavior_of(field.at("behavior")),
                              field.at("invert").boolean()});
  } else if (type == "ByteLevel") {
    if (field.at("add_prefix_space").boolean()) steps_.emplace_back(PrefixSpace{});
    const auto use_regex = field.find("use_regex");
    if (!use_regex || use_regex->boolean()) split(kGpt2Regex, SplitBehavior::isolated, false);
    steps_.emplace_back(ByteAlphabet{});
  } else if (type == "Digits") {
    const bool individual = field.at("individual_digits").boolean();
    split("\\p{N}", individual ? SplitBehavior::isolated : SplitBehavior::contiguous, false);
  } else if (type == "WhitespaceSplit") {
    split("\\s", SplitBehavior::removed, false);
  } else if (type == "Whitespace") {
    split(kRustWords, SplitBehavior::removed, true);
  } else {
    field.at("type").fail(
        fmt::format("the pre-tokenizer \"{}\" is not supported (Split, ByteLevel, Digits, Whitespace, "
                    "WhitespaceSplit and Sequence are)",
                    type));
  }
}

void PreTokenizer::apply(Pieces& pieces) const {
  for (const Step& step : steps_) std::visit([&](const auto& chosen) { apply_step(chosen, pieces); }, step);
}

}  // namespace heddle
