// tokenizer.json's "normalizer": rewrites text before it is split.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/pieces.h"

namespace heddle {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

// Maps every character by itself, without context.
struct Lowercase {};

// Removes white space at the ends.
struct Strip {
  bool left;
  bool right;
};

// Removes combining marks. Composed characters stay (a decomposing normalizer comes before this).
struct StripAccents {};

// Each byte becomes its character of GPT-2's alphabet.
struct ToByteLevel {};

struct Replace {
  Pattern pattern;
  std::string content;
};

// Prepends to a text that is not empty.
struct Prepend {
  std::string content;
};

class Normalizer {
 public:
  // The identity.
  Normalizer() = default;

  // Throws InputError that names an unsupported element. A Sequence is flattened.
  explicit Normalizer(const JsonField& field);

  bool empty() const { return steps_.empty(); }

  // Normalizes each piece by itself. Throws InputError when the text grows beyond kMaxTextBytes, and as PatternScan
  // does.
  void apply(Pieces& pieces) const;

  std::string apply(std::string_view text) const;

 private:
  using Step = std::variant<UnicodeForm, Lowercase, Replace, Prepend, Strip, StripAccents, ToByteLevel>;
  void add(const JsonField& field);

  std::vector<Step> steps_;
};

}  // namespace heddle
