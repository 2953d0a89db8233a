// Answers that a grammar allows: text/grammar as a request's TokenConstraint.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/token_constraint.h"
#include "text/grammar/grammar.h"
#include "text/grammar/token_masks.h"
#include "text/tokenizer/tokenizer.h"

namespace heddle {

// Makes constraints for one model. Thread-safe. Requests with the same grammar share its automaton and its masks; the
// grammars that were used last are kept.
class GrammarConstraints {
 public:
  // Throws InputError when the tokenizer's tokens have no bytes of their own.
  explicit GrammarConstraints(const Tokenizer& tokenizer);

  // `end_ids`: the model's tokens that end a text, allowed exactly where the grammar may end. All other special tokens
  // are never allowed. Throws InputError as compile_grammar does. The constraint may outlive this object.
  std::shared_ptr<TokenConstraint> make(const grammar::GrammarSource& source, std::string_view where,
                                        std::vector<std::int32_t> end_ids);

 private:
  std::shared_ptr<const grammar::TokenTree> tree_;
  std::mutex mutex_;
  std::list<std::pair<grammar::GrammarSource, std::shared_ptr<grammar::TokenMasks>>> known_;  // used last first
};

}  // namespace heddle
