// tokenizer.json's "pre_tokenizer": splits text into the pieces that the model encodes separately.
#pragma once

#include <variant>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/metaspace.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/pieces.h"

namespace heddle {

// What happens to a match where the text is split.
enum class SplitBehavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

struct Split {
  Pattern pattern;
  SplitBehavior behavior;
  bool invert;  // swaps matches and the text between them
};

// Prepends a space to each piece that does not begin with one.
struct PrefixSpace {};

// From here on pieces are bytes in GPT-2's alphabet.
struct ByteAlphabet {};

class PreTokenizer {
 public:
  // Leaves pieces unchanged.
  PreTokenizer() = default;

  // Throws InputError that names an unsupported element. A Sequence is flattened; ByteLevel, Digits, Punctuation,
  // Whitespace and the like are expressed in the steps above. At most 64 steps.
  explicit PreTokenizer(const JsonField& field);

  // Throws InputError as PatternScan does.
  void apply(Pieces& pieces) const;

 private:
  using Step = std::variant<Split, PrefixSpace, ByteAlphabet, Metaspace>;
  void add(const JsonField& field);

  std::vector<Step> steps_;
};

}  // namespace heddle
