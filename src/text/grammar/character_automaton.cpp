#include "text/grammar/character_automaton.h"

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <utility>

#include "base/error.h"
#include "text/grammar/limits.h"
#include "text/tokenizer/utf8.h"

namespace heddle::grammar {
namespace {

std::size_t place_of(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

[[noreturn]] void refuse_size() {
  throw_error<InputError>("an expression needs more than {} states: simplify it", kMaxCharacterStates);
}

// Thompson's construction.
struct Nfa {
  struct State {
    std::vector<std::int32_t> empty;
    std::vector<std::int32_t> at_start;  // followed at the start of the text only
    std::vector<std::int32_t> at_end;
    const CharacterSet* characters = nullptr;  // leads to `target`
    std::int32_t target = 0;
  };
  std::vector<State> states;

  std::int32_t add() {
    if (states.size() >= 4 * kMaxCharacterStates) refuse_size();
    states.emplace_back();
    return static_cast<std::int32_t>(states.size()) - 1;
  }
  State& at(std::int32_t id) { return states[place_of(id)]; }

  // Builds what leads from `from`, and returns where it ends.
  std::int32_t build(const RegexNode& node, std::int32_t from) {
    switch (node.kind) {
      case RegexNode::Kind::nothing:
        return from;
      case RegexNode::Kind::characters: {
        const std::int32_t begin = add();
        at(from).empty.push_back(begin);
        const std::int32_t to = add();
        at(begin).characters = &node.characters;
        at(begin).target = to;
        return to;
      }
      case RegexNode::Kind::text_start:
      case RegexNode::Kind::text_end: {
        const std::int32_t to = add();
        (node.kind == RegexNode::Kind::text_start ? at(from).at_start : at(from).at_end).push_back(to);
        return to;
      }
      case RegexNode::Kind::sequence:
        for (const auto& part : node.parts) from = build(*part, from);
        return from;
      case RegexNode::Kind::choice: {
        const std::int32_t to = add();
        for (const auto& part : node.parts) {
          const std::int32_t begin = add();
          at(from).empty.push_back(begin);
          const std::int32_t end = build(*part, begin);
          at(end).empty.push_back(to);
        }
        return to;
      }
      case RegexNode::Kind::repeat:
        return build_repeat(node, from);
    }
    return from;
  }

  std::int32_t build_repeat(const RegexNode& node, std::int32_t from) {
    const RegexNode& part = *node.parts.front();
    for (int i = 0; i < node.least; ++i) from = build(part, from);
    if (node.most == kUnbounded) {
      const std::int32_t loop = add();
      at(from).empty.push_back(loop);
      const std::int32_t end = build(part, loop);
      at(end).empty.push_back(loop);
      return loop;
    }
    const std::int32_t to = add();
    for (int i = node.least; i < node.most; ++i) {
      at(from).empty.push_back(to);
      const std::int32_t begin = add();
      at(from).empty.push_back(begin);
      from = build(part, begin);
    }
    at(from).empty.push_back(to);
    return to;
  }
};

// Subsets of an Nfa's states.
class Determiniser {
 public:
  Determiniser(const Nfa& nfa, std::int32_t first, std::int32_t last, const AutomatonBuilder& builder)
      : nfa_(nfa), last_(last), builder_(builder), marks_(nfa.states.size(), 0) {
    add({.states = closed({first}, true, false), .is_start = true});
  }

  std::vector<CharacterAutomaton::State> run() {
    for (std::size_t i = 0; i < open_.size(); ++i) {
      const Subset subset = open_[i];
      result_[i].accepting = std::ranges::binary_search(closed(subset.states, subset.is_start, true), last_);
      result_[i].moves = moves_of(subset);
      num_moves_ += result_[i].moves.size();
      if (num_moves_ > kMaxCharacterEdges) refuse_size();
      builder_.check_time();
    }
    return std::move(result_);
  }

 private:
  struct Subset {
    std::vector<std::int32_t> states;
    bool is_start = false;
    bool operator<(const Subset& other) const {
      return is_start != other.is_start ? other.is_start : states < other.states;
    }
  };

  std::vector<std::int32_t> closed(std::vector<std::int32_t> open, bool at_start, bool at_end) {
    ++walk_;
    std::vector<std::int32_t> states;
    while (!open.empty()) {
      const std::int32_t state = open.back();
      open.pop_back();
      if (marks_[place_of(state)] == walk_) continue;
      marks_[place_of(state)] = walk_;
      states.push_back(state);
      const Nfa::State& from = nfa_.states[place_of(state)];
      open.insert(open.end(), from.empty.begin(), from.empty.end());
      if (at_start) open.insert(open.end(), from.at_start.begin(), from.at_start.end());
      if (at_end) open.insert(open.end(), from.at_end.begin(), from.at_end.end());
    }
    std::ranges::sort(states);
    return states;
  }

  std::int32_t add(Subset subset) {
    const auto [place, added] = known_.try_emplace(subset, static_cast<std::int32_t>(open_.size()));
    if (added) {
      if (open_.size() >= kMaxCharacterStates) refuse_size();
      open_.push_back(std::move(subset));
      result_.emplace_back();
    }
    return place->second;
  }

  std::vector<CharacterAutomaton::Move> moves_of(const Subset& subset) {
    // Where the set of targets changes: +target at a range's first character, -target behind its last.
    std::map<char32_t, std::vector<std::pair<std::int32_t, int>>> changes;
    for (const std::int32_t id : subset.states) {
      const Nfa::State& state = nfa_.states[place_of(id)];
      if (state.characters == nullptr) continue;
      for (const CharacterRange& range : state.characters->ranges()) {
        changes[range.first].emplace_back(state.target, 1);
        changes[range.last + 1].emplace_back(state.target, -1);
      }
    }
    std::map<std::int32_t, int> targets;
    std::vector<CharacterAutomaton::Move> moves;
    for (auto at = changes.begin(); at != changes.end(); ++at) {
      for (const auto& [target, change] : at->second)
        if ((targets[target] += change) == 0) targets.erase(target);
      if (targets.empty()) continue;
      std::vector<std::int32_t> states;
      states.reserve(targets.size());
      for (const auto& [target, count] : targets) states.push_back(target);
      const std::int32_t target = add({.states = closed(std::move(states), false, false)});
      const char32_t last = std::next(at)->first - 1;
      if (!moves.empty() && moves.back().target == target && moves.back().last + 1 == at->first)
        moves.back().last = last;
      else
        moves.push_back({at->first, last, target});
    }
    return moves;
  }

  const Nfa& nfa_;
  std::int32_t last_;
  const AutomatonBuilder& builder_;
  std::vector<std::int32_t> marks_;
  std::int32_t walk_ = 0;
  std::size_t num_moves_ = 0;
  std::map<Subset, std::int32_t> known_;
  std::deque<Subset> open_;
  std::vector<CharacterAutomaton::State> result_;
};

std::vector<CharacterAutomaton::Move> common_moves(const CharacterAutomaton::State& a,
                                                   const CharacterAutomaton::State& b, const auto& target_of) {
  std::vector<CharacterAutomaton::Move> moves;
  auto one = a.moves.begin();
  auto other = b.moves.begin();
  while (one != a.moves.end() && other != b.moves.end()) {
    const char32_t first = std::max(one->first, other->first);
    const char32_t last = std::min(one->last, other->last);
    if (first <= last) moves.push_back({first, last, target_of(one->target, other->target)});
    (one->last < other->last ? one : other)++;
  }
  return moves;
}

}  // namespace

CharacterAutomaton CharacterAutomaton::of(const RegexNode& expression, Match match, const AutomatonBuilder& builder) {
  const RegexNode any{.kind = RegexNode::Kind::characters, .characters = CharacterSet::all()};
  Nfa nfa;
  const std::int32_t first = nfa.add();
  std::int32_t begin = first;
  const auto loop = [&](std::int32_t state) {
    if (match == Match::whole) return state;
    const std::int32_t inside = nfa.add();
    nfa.at(state).empty.push_back(inside);
    const std::int32_t end = nfa.build(any, inside);
    nfa.at(end).empty.push_back(inside);
    return inside;
  };
  begin = loop(begin);
  const std::int32_t last = loop(nfa.build(expression, begin));
  CharacterAutomaton automaton;
  automaton.states_ = Determiniser(nfa, first, last, builder).run();
  return automaton;
}

CharacterAutomaton CharacterAutomaton::all_but(std::span<const std::string_view> texts) {
  CharacterAutomaton automaton;
  automaton.states_.push_back({.moves = {{0, kLastCharacter, 0}}, .accepting = true});  // other texts, for ever
  const auto add = [&] {
    automaton.states_.push_back({.moves = {}, .accepting = true});
    return static_cast<std::int32_t>(automaton.states_.size()) - 1;
  };
  std::vector<std::map<char32_t, std::int32_t>> children(2);
  const std::int32_t root = add();
  for (std::string_view text : texts) {
    std::int32_t at = root;
    while (!text.empty()) {
      const Utf8Char next = first_char(text);
      text.remove_prefix(next.length);
      const auto [place, added] = children[place_of(at)].try_emplace(next.code_point, 0);
      if (added) {
        if (automaton.states_.size() >= kMaxCharacterStates) refuse_size();
        const std::int32_t child = add();
        place->second = child;
        children.emplace_back();
      }
      at = children[place_of(at)].at(next.code_point);
    }
    automaton.states_[place_of(at)].accepting = false;
  }
  for (std::size_t id = 1; id < children.size(); ++id) {
    std::vector<Move>& moves = automaton.states_[id].moves;
    char32_t next = 0;
    for (const auto& [character, child] : children[id]) {
      if (character > next) moves.push_back({next, character - 1, 0});
      moves.push_back({character, character, child});
      next = character + 1;
    }
    if (next <= kLastCharacter) moves.push_back({next, kLastCharacter, 0});
  }
  std::swap(automaton.states_[0], automaton.states_[1]);  // the start comes first
  for (State& state : automaton.states_)
    for (Move& move : state.moves)
      if (move.target <= 1) move.target = 1 - move.target;
  return automaton;
}

CharacterAutomaton CharacterAutomaton::of_length(std::int64_t least, std::int64_t most,
                                                 const AutomatonBuilder& builder) const {
  // A state of the product: one of this automaton's, and the characters so far, up to where they no longer matter.
  const std::int64_t counted = most == kUnbounded ? least : most;
  std::map<std::pair<std::int32_t, std::int64_t>, std::int32_t> known{{{0, 0}, 0}};
  std::vector<std::pair<std::int32_t, std::int64_t>> open{{0, 0}};
  CharacterAutomaton result;
  std::size_t num_moves = 0;
  for (std::size_t i = 0; i < open.size(); ++i) {
    builder.check_time();
    const auto [id, count] = open[i];
    const State& state = states_[place_of(id)];
    State product{.moves = {}, .accepting = state.accepting && count >= least};
    const std::int64_t next = most == kUnbounded ? std::min(count + 1, counted) : count + 1;
    if (most == kUnbounded || next <= counted)
      for (const Move& move : state.moves) {
        const auto [place, added] = known.try_emplace({move.target, next}, static_cast<std::int32_t>(open.size()));
        if (added) open.emplace_back(move.target, next);
        product.moves.push_back({move.first, move.last, place->second});
      }
    num_moves += product.moves.size();
    if (open.size() > 4 * kMaxCharacterStates || num_moves > kMaxCharacterEdges) refuse_size();
    result.states_.push_back(std::move(product));
  }
  return result;
}

CharacterAutomaton CharacterAutomaton::operator&(const CharacterAutomaton& other) const {
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> known{{{0, 0}, 0}};
  std::vector<std::pair<std::int32_t, std::int32_t>> open{{0, 0}};
  CharacterAutomaton result;
  std::size_t num_moves = 0;
  for (std::size_t i = 0; i < open.size(); ++i) {
    const auto [a, b] = open[i];
    const State& one = states_[place_of(a)];
    const State& two = other.states_[place_of(b)];
    result.states_.push_back(
        {.moves = common_moves(
             one, two,
             [&](std::int32_t to_a, std::int32_t to_b) {
               const auto [place, added] = known.try_emplace({to_a, to_b}, static_cast<std::int32_t>(open.size()));
               if (added) open.emplace_back(to_a, to_b);
               return place->second;
             }),
         .accepting = one.accepting && two.accepting});
    num_moves += result.states_.back().moves.size();
    if (open.size() > kMaxCharacterStates || num_moves > kMaxCharacterEdges) refuse_size();
  }
  return result;
}

bool CharacterAutomaton::accepts(std::string_view text) const {
  std::int32_t at = 0;
  while (!text.empty()) {
    const Utf8Char next = first_char(text);
    text.remove_prefix(next.length);
    const std::vector<Move>& moves = states_[place_of(at)].moves;
    const auto move = std::ranges::find_if(
        moves, [&](const Move& one) { return one.first <= next.code_point && next.code_point <= one.last; });
    if (move == moves.end()) return false;
    at = move->target;
  }
  return states_[place_of(at)].accepting;
}

}  // namespace heddle::grammar
