#include "engine/grammar_constraint.h"

#include <algorithm>

#include "base/error.h"
#include "text/tokenizer/token_table.h"

namespace heddle {
namespace {

constexpr std::size_t kKeptGrammars = 16;

class GrammarConstraint final : public TokenConstraint {
 public:
  GrammarConstraint(std::shared_ptr<grammar::TokenMasks> masks, std::vector<std::int32_t> end_ids)
      : masks_(std::move(masks)), end_ids_(std::move(end_ids)), place_(masks_->start()) {}

  std::span<const std::uint64_t> allowed() override {
    const auto mask = masks_->mask(place_);
    words_.assign(mask->begin(), mask->end());
    if (place_.accepting)
      for (const std::int32_t id : end_ids_) {
        const auto word = static_cast<std::size_t>(id) / 64;
        if (word >= words_.size()) words_.resize(word + 1);
        words_[word] |= std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
      }
    return words_;
  }

  void accept(std::int32_t token) override {
    if (std::ranges::find(end_ids_, token) != end_ids_.end() && place_.accepting) return;
    require(masks_->accept(place_, token), "grammar: token {} is not allowed here", token);
  }

  bool complete() override { return place_.accepting && !place_.continues; }

 private:
  std::shared_ptr<grammar::TokenMasks> masks_;
  std::vector<std::int32_t> end_ids_;
  grammar::TokenMasks::Place place_;
  std::vector<std::uint64_t> words_;
};

}  // namespace

GrammarConstraints::GrammarConstraints(const Tokenizer& tokenizer)
    : tree_(std::make_shared<const grammar::TokenTree>(tokenizer)) {}

std::shared_ptr<TokenConstraint> GrammarConstraints::make(const grammar::GrammarSource& source, std::string_view where,
                                                          std::vector<std::int32_t> end_ids) {
  std::erase_if(end_ids, [](std::int32_t id) { return id < 0 || id > kMaxTokenId; });
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find_if(known_, [&](const auto& known) { return known.first == source; });
    if (found != known_.end()) {
      known_.splice(known_.begin(), known_, found);
      return std::make_shared<GrammarConstraint>(found->second, std::move(end_ids));
    }
  }
  const auto masks = std::make_shared<grammar::TokenMasks>(tree_, grammar::compile_grammar(source, where));
  const std::lock_guard lock(mutex_);
  known_.emplace_front(source, masks);
  if (known_.size() > kKeptGrammars) known_.pop_back();
  return std::make_shared<GrammarConstraint>(masks, std::move(end_ids));
}

}  // namespace heddle
