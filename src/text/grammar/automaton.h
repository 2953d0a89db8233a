// A push-down automaton over bytes: rules whose states are joined by bytes, by calls of other rules, and by counted
// repetitions of them.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace heddle::grammar {

using StateId = std::int32_t;
using RuleId = std::int32_t;

inline constexpr std::int32_t kUnbounded = -1;
inline constexpr std::int32_t kNever = 1 << 20;  // the height of a state from which no end can be reached

struct Edge {
  enum class Kind : std::uint8_t {
    bytes,  // one byte in [first, last]
    empty,
    call,   // what `rule` matches
    repeat  // what `rule` matches, `least` to `most` times; the rule matches no empty text
  };
  Kind kind = Kind::empty;
  std::uint8_t first = 0;
  std::uint8_t last = 0;
  StateId target = 0;
  RuleId rule = 0;
  std::int32_t least = 0;
  std::int32_t most = kUnbounded;
};

// Immutable; made by AutomatonBuilder.
class Automaton {
 public:
  struct Rule {
    StateId first = 0;
    StateId last = 0;  // the only accepting state; it has no edges
  };

  const Rule& rule(RuleId id) const { return rules_[static_cast<std::size_t>(id)]; }
  RuleId start() const { return start_; }
  std::int32_t num_states() const { return static_cast<std::int32_t>(begin_.size()) - 1; }
  std::int32_t num_edges() const { return static_cast<std::int32_t>(edges_.size()); }

  // Edges that lead nowhere are gone: an end can be reached from every target.
  std::span<const Edge> edges(StateId state) const;
  const Edge& edge(std::int32_t index) const { return edges_[static_cast<std::size_t>(index)]; }
  std::int32_t edge_index(const Edge& edge) const { return static_cast<std::int32_t>(&edge - edges_.data()); }

  // Frames that must lie above a rule's own frame, at least, before its end is reached from `state`. kNever: the end
  // cannot be reached.
  std::int32_t height(StateId state) const { return heights_[static_cast<std::size_t>(state)]; }
  // The same of a rule as a whole.
  std::int32_t rule_height(RuleId id) const { return height(rule(id).first); }

 private:
  friend class AutomatonBuilder;
  std::vector<Rule> rules_;
  std::vector<Edge> edges_;
  std::vector<std::int32_t> begin_;  // [num_states + 1], into edges_
  std::vector<std::int32_t> heights_;
  RuleId start_ = 0;
};

// A part of a rule under construction: what leads from `first` to `last`.
struct Fragment {
  StateId first = 0;
  StateId last = 0;
};

// Every function may throw InputError: too many states, or too much time.
class AutomatonBuilder {
 public:
  AutomatonBuilder();

  StateId state();
  void empty(StateId from, StateId to) { add(from, {.target = to}); }
  void bytes(StateId from, std::uint8_t first, std::uint8_t last, StateId to) {
    add(from, {.kind = Edge::Kind::bytes, .first = first, .last = last, .target = to});
  }

  Fragment nothing();  // the empty text
  Fragment never();    // no text
  Fragment literal(std::string_view text);
  Fragment one_of(std::uint8_t first, std::uint8_t last);
  Fragment sequence(std::initializer_list<Fragment> parts);
  Fragment choice(std::span<const Fragment> parts);
  Fragment optional(Fragment part);
  // Any of the texts, as a tree of their prefixes.
  Fragment any_literal(std::span<const std::string_view> texts);
  Fragment call(RuleId rule);
  // `most` may be kUnbounded.
  Fragment repeat(RuleId rule, std::int32_t least, std::int32_t most);

  RuleId declare();                         // a rule without a body, to be called before it is defined
  void define(RuleId rule, Fragment body);  // once
  RuleId rule(Fragment body);               // both

  // Throws InputError when the thread has computed for too long since this builder was made.
  void check_time() const;

  // Throws InputError when `start` matches nothing at all, or when a rule calls itself before it has matched a byte.
  Automaton finish(RuleId start) &&;

 private:
  void add(StateId from, Edge edge);
  void find_heights(Automaton& automaton) const;
  void refuse_left_recursion() const;

  std::vector<std::vector<Edge>> edges_;
  std::vector<Automaton::Rule> rules_;
  double started_;  // CPU seconds of the thread
};

}  // namespace heddle::grammar
