// Which tokens may come next: a tree of the tokens' bytes, walked with a state of an automaton.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/grammar/state_table.h"
#include "text/tokenizer/tokenizer.h"

namespace heddle::grammar {

// The bytes of every token that is text. Immutable.
class TokenTree {
 public:
  // Special tokens, those without bytes and those of more than 32 bytes are left out. Throws InputError when the
  // tokenizer's tokens have no bytes of their own (Tokenizer::token_bytes).
  explicit TokenTree(const Tokenizer& tokenizer);

  // The same of texts by id.
  explicit TokenTree(std::vector<std::string> tokens);

  // A node is a byte; its first child follows it, its next sibling is at `skip`.
  struct Node {
    std::uint8_t byte = 0;
    std::uint16_t depth = 0;  // of the root's children: 0
    std::int32_t skip = 0;    // the index of the node behind its subtree
    std::int32_t first = 0;   // its tokens are ids()[first, first of the next node)
  };
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  std::span<const std::int32_t> ids_of(std::size_t node) const;

  std::int32_t vocab_size() const { return static_cast<std::int32_t>(bytes_.size()); }
  std::int32_t max_bytes() const { return max_bytes_; }  // of a token
  // Empty for a token that is left out.
  std::string_view bytes(std::int32_t id) const { return bytes_[static_cast<std::size_t>(id)]; }

 private:
  void build();

  std::vector<std::string> bytes_;
  std::vector<Node> nodes_;  // in depth-first order, and one behind the last
  std::vector<std::int32_t> ids_;
  std::int32_t max_bytes_ = 0;
};

// One bit per token, from bit 0 of word 0.
using TokenMask = std::vector<std::uint64_t>;

// The states of one automaton that matchers share, and their masks. Thread-safe.
class TokenMasks {
 public:
  TokenMasks(std::shared_ptr<const TokenTree> tree, std::shared_ptr<const Automaton> automaton);

  // Where one answer is. States of an older generation of the table are kept with it.
  struct Place {
    std::shared_ptr<StateTable> table;
    StateTable::Id state = 0;
    bool accepting = false;  // whether the text so far matches
    bool continues = false;  // whether any text may follow
  };

  Place start();

  // The tokens of which a text that matches can go on. Throws Failure as StateTable::next, and when
  // that takes too long.
  std::shared_ptr<const TokenMask> mask(const Place& place);

  // False, and nothing changes, when the token is no text or the grammar does not allow it.
  bool accept(Place& place, std::int32_t token);

  const TokenTree& tree() const { return *tree_; }

 private:
  void renew(Place& place);
  static void move(Place& place, StateTable::Id state);
  std::shared_ptr<const TokenMask> compute(StateTable& table, StateTable::Id state) const;

  std::shared_ptr<const TokenTree> tree_;
  std::mutex mutex_;
  std::shared_ptr<StateTable> table_;
  std::unordered_map<StateTable::Id, std::shared_ptr<const TokenMask>> masks_;  // of representatives in table_
};

}  // namespace heddle::grammar
