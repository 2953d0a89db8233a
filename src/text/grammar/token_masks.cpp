#include "text/grammar/token_masks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "text/grammar/cpu_time.h"
#include "text/grammar/limits.h"

namespace heddle::grammar {
namespace {

constexpr std::size_t kMaxMaskBytes = std::size_t{32} << 20;
// Longer tokens are left out: shorter ones spell the same, and near the end of a bounded string each count of characters
// has a mask of its own, as many as the longest token has bytes.
constexpr std::size_t kLongestToken = 32;

std::vector<std::string> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<std::string> bytes;
  bytes.reserve(static_cast<std::size_t>(tokenizer.vocab_size()));
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id)
    bytes.push_back(tokenizer.token_bytes(id).value_or(std::string()));
  return bytes;
}

}  // namespace

TokenTree::TokenTree(const Tokenizer& tokenizer) : TokenTree(bytes_of_tokens(tokenizer)) {}

TokenTree::TokenTree(std::vector<std::string> tokens) : bytes_(std::move(tokens)) {
  build();
}

void TokenTree::build() {
  std::vector<std::int32_t> order(bytes_.size());
  std::iota(order.begin(), order.end(), 0);
  for (std::string& token : bytes_)
    if (token.size() > kLongestToken) token.clear();
  std::erase_if(order, [&](std::int32_t id) { return bytes(id).empty(); });
  std::ranges::sort(order,
                    [&](std::int32_t a, std::int32_t b) { return std::pair(bytes(a), a) < std::pair(bytes(b), b); });
  std::vector<std::size_t> path;  // the nodes of the token before
  std::string_view before;
  const auto close = [&](std::size_t depth) {
    for (; path.size() > depth; path.pop_back()) nodes_[path.back()].skip = static_cast<std::int32_t>(nodes_.size());
  };
  for (const std::int32_t id : order) {
    const std::string_view text = bytes(id);
    close(static_cast<std::size_t>(std::ranges::mismatch(text, before).in1 - text.begin()));
    while (path.size() < text.size()) {
      const std::size_t depth = path.size();
      path.push_back(nodes_.size());
      nodes_.push_back({.byte = static_cast<std::uint8_t>(text[depth]),
                        .depth = static_cast<std::uint16_t>(depth),
                        .first = static_cast<std::int32_t>(ids_.size())});
    }
    ids_.push_back(id);
    max_bytes_ = std::max(max_bytes_, static_cast<std::int32_t>(text.size()));
    before = text;
  }
  close(0);
  nodes_.push_back({.first = static_cast<std::int32_t>(ids_.size())});
}

std::span<const std::int32_t> TokenTree::ids_of(std::size_t node) const {
  const auto first = static_cast<std::size_t>(nodes_[node].first);
  return std::span(ids_).subspan(first, static_cast<std::size_t>(nodes_[node + 1].first) - first);
}

TokenMasks::TokenMasks(std::shared_ptr<const TokenTree> tree, std::shared_ptr<const Automaton> automaton)
    : tree_(std::move(tree)), table_(std::make_shared<StateTable>(std::move(automaton))) {}

TokenMasks::Place TokenMasks::start() {
  const std::lock_guard lock(mutex_);
  Place place{.table = table_};
  move(place, table_->start());
  return place;
}

void TokenMasks::move(Place& place, StateTable::Id state) {
  place.state = state;
  place.accepting = place.table->accepting(state);
  place.continues = place.table->continues(state);
}

// Answers leave a full table for the new one as they go on.
void TokenMasks::renew(Place& place) {
  if (table_->full()) {
    table_ = std::make_shared<StateTable>(table_->automaton());
    masks_.clear();
  }
  if (place.table == table_) return;
  place.state = table_->import(*place.table, place.state);
  place.table = table_;
}

std::shared_ptr<const TokenMask> TokenMasks::compute(StateTable& table, StateTable::Id state) const {
  const auto mask = std::make_shared<TokenMask>((static_cast<std::size_t>(tree_->vocab_size()) + 63) / 64);
  const std::span<const TokenTree::Node> nodes = tree_->nodes();
  std::vector<StateTable::Id> states(static_cast<std::size_t>(tree_->max_bytes()) + 1);
  states[0] = state;
  const double started = thread_seconds();
  std::size_t num_visited = 0;
  for (std::size_t i = 0; i < nodes.size();) {
    if (++num_visited % 256 == 0 && thread_seconds() - started > kMaxMaskSeconds)
      throw Failure("the grammar takes too long to follow: simplify it");
    const TokenTree::Node& node = nodes[i];
    const StateTable::Id next = table.next(states[node.depth], node.byte);
    if (next == StateTable::kDead) {
      i = static_cast<std::size_t>(node.skip);
      continue;
    }
    states[node.depth + std::size_t{1}] = next;
    for (const std::int32_t id : tree_->ids_of(i))
      (*mask)[static_cast<std::size_t>(id) / 64] |= std::uint64_t{1} << (static_cast<std::size_t>(id) % 64);
    ++i;
  }
  return mask;
}

std::shared_ptr<const TokenMask> TokenMasks::mask(const Place& place) {
  const std::lock_guard lock(mutex_);
  Place here = place;
  renew(here);
  const StateTable::Id state = table_->representative(here.state, tree_->max_bytes());
  const auto known = masks_.find(state);
  if (known != masks_.end()) return known->second;
  if (masks_.size() * static_cast<std::size_t>(tree_->vocab_size()) / 8 > kMaxMaskBytes) masks_.clear();
  auto mask = compute(*table_, state);
  masks_.emplace(state, mask);
  return mask;
}

bool TokenMasks::accept(Place& place, std::int32_t token) {
  const std::lock_guard lock(mutex_);
  renew(place);
  if (token < 0 || token >= tree_->vocab_size() || tree_->bytes(token).empty()) return false;
  StateTable::Id state = place.state;
  for (const char byte : tree_->bytes(token)) {
    state = table_->next(state, static_cast<std::uint8_t>(byte));
    if (state == StateTable::kDead) return false;
  }
  move(place, state);
  return true;
}

}  // namespace heddle::grammar
