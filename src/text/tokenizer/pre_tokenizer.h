// tokenizer.json's "pre_tokenizer": cuts text into the pieces that the model sees one by one.
#pragma once

#include <variant>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/pieces.h"

namespace heddle {

// What becomes of a match where the text is cut.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Split {
  Pattern pattern;
  SplitBehavior behavior;
  bool invert;  // what lies between matches counts as the matches
};

// A space before each piece that does not begin with one.
struct PrefixSpace {};

// Pieces are from here on bytes in GPT-2's alphabet.
struct ByteAlphabet {};

class PreTokenizer {
 public:
  // Each piece stays as it is.
  PreTokenizer() = default;

  // Throws InputError that names an element which is not supported. A Sequence is flattened; ByteLevel, Digits,
  // Punctuation, Whitespace and the like are put in terms of the steps above. At most 64 steps.
  explicit PreTokenizer(const JsonField& field);

  // Throws InputError as PatternScan does.
  void apply(Pieces& pieces) const;

 private:
  using Step = std::variant<Split, PrefixSpace, ByteAlphabet, Metaspace>;
  void add(const JsonField& field);

  std::vector<Step> steps_;
};

}  // namespace heddle
