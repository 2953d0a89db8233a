#include "text/grammar/automaton.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/grammar/cpu_time.h"
#include "text/grammar/limits.h"

namespace heddle::grammar {
namespace {

std::size_t index_of(std::int32_t id) {
  return static_cast<std::size_t>(id);
}

// The height of `edge`'s source if the edge is taken.
std::int32_t height_over(const Edge& edge, const std::vector<std::int32_t>& heights,
                         const std::vector<Automaton::Rule>& rules) {
  const std::int32_t behind = heights[index_of(edge.target)];
  if (edge.kind == Edge::Kind::bytes || edge.kind == Edge::Kind::empty) return behind;
  if (edge.kind == Edge::Kind::repeat && edge.least == 0) return behind;
  const std::int32_t inside = heights[index_of(rules[index_of(edge.rule)].first)];
  return std::min(kNever, std::max(behind, inside + 1));
}

}  // namespace

std::span<const Edge> Automaton::edges(StateId state) const {
  const auto begin = begin_[index_of(state)];
  return std::span(edges_).subspan(index_of(begin), index_of(begin_[index_of(state) + 1] - begin));
}

AutomatonBuilder::AutomatonBuilder() : started_(thread_seconds()) {}

void AutomatonBuilder::check_time() const {
  if (thread_seconds() - started_ > kMaxCompileSeconds)
    throw_error<InputError>("the grammar takes more than {} s to compile: simplify it", kMaxCompileSeconds);
}

StateId AutomatonBuilder::state() {
  if (edges_.size() >= kMaxStates)
    throw_error<InputError>("the grammar needs more than {} states: simplify it, or shorten its lists and patterns",
                            kMaxStates);
  if (edges_.size() % 1024 == 0) check_time();
  edges_.emplace_back();
  return static_cast<StateId>(edges_.size()) - 1;
}

void AutomatonBuilder::add(StateId from, Edge edge) {
  edges_[index_of(from)].push_back(edge);
}

Fragment AutomatonBuilder::nothing() {
  const StateId only = state();
  return {only, only};
}

Fragment AutomatonBuilder::never() {
  const StateId first = state();
  return {first, state()};
}

Fragment AutomatonBuilder::literal(std::string_view text) {
  Fragment fragment = nothing();
  for (const char c : text) {
    const StateId next = state();
    bytes(fragment.last, static_cast<std::uint8_t>(c), static_cast<std::uint8_t>(c), next);
    fragment.last = next;
  }
  return fragment;
}

Fragment AutomatonBuilder::one_of(std::uint8_t first, std::uint8_t last) {
  const StateId from = state();
  const StateId to = state();
  bytes(from, first, last, to);
  return {from, to};
}

Fragment AutomatonBuilder::sequence(std::initializer_list<Fragment> parts) {
  Fragment whole = *parts.begin();
  for (const Fragment& part : std::span(parts).subspan(1)) {
    empty(whole.last, part.first);
    whole.last = part.last;
  }
  return whole;
}

Fragment AutomatonBuilder::choice(std::span<const Fragment> parts) {
  const Fragment whole = never();
  for (const Fragment& part : parts) {
    empty(whole.first, part.first);
    empty(part.last, whole.last);
  }
  return whole;
}

Fragment AutomatonBuilder::optional(Fragment part) {
  const Fragment whole = never();
  empty(whole.first, part.first);
  empty(part.last, whole.last);
  empty(whole.first, whole.last);
  return whole;
}

Fragment AutomatonBuilder::any_literal(std::span<const std::string_view> texts) {
  const Fragment whole = never();
  std::vector<std::string_view> sorted(texts.begin(), texts.end());
  std::ranges::sort(sorted);
  std::vector<StateId> path{whole.first};  // path[i]: behind the first i bytes of the text before
  std::string_view before;
  for (const std::string_view text : sorted) {
    const auto common = static_cast<std::size_t>(std::ranges::mismatch(text, before).in1 - text.begin());
    path.resize(common + 1);
    for (std::size_t i = common; i < text.size(); ++i) {
      const StateId next = state();
      bytes(path.back(), static_cast<std::uint8_t>(text[i]), static_cast<std::uint8_t>(text[i]), next);
      path.push_back(next);
    }
    empty(path.back(), whole.last);
    before = text;
  }
  return whole;
}

Fragment AutomatonBuilder::call(RuleId rule) {
  const Fragment fragment = never();
  add(fragment.first, {.kind = Edge::Kind::call, .target = fragment.last, .rule = rule});
  return fragment;
}

Fragment AutomatonBuilder::repeat(RuleId rule, std::int32_t least, std::int32_t most) {
  require(least >= 0 && (most == kUnbounded || most >= least), "grammar: {} to {} repetitions", least, most);
  if (most == 0) return nothing();
  const Fragment fragment = never();
  add(fragment.first,
      {.kind = Edge::Kind::repeat, .target = fragment.last, .rule = rule, .least = least, .most = most});
  return fragment;
}

RuleId AutomatonBuilder::declare() {
  const StateId first = state();
  rules_.push_back({first, state()});
  return static_cast<RuleId>(rules_.size()) - 1;
}

void AutomatonBuilder::define(RuleId rule, Fragment body) {
  const Automaton::Rule& ends = rules_[index_of(rule)];
  empty(ends.first, body.first);
  empty(body.last, ends.last);
}

RuleId AutomatonBuilder::rule(Fragment body) {
  const RuleId id = declare();
  define(id, body);
  return id;
}

void AutomatonBuilder::find_heights(Automaton& automaton) const {
  std::vector<std::int32_t>& heights = automaton.heights_;
  heights.assign(edges_.size(), kNever);
  std::vector<std::vector<StateId>> before(edges_.size());  // whose heights depend on a state's
  for (std::size_t from = 0; from < edges_.size(); ++from)
    for (const Edge& edge : edges_[from]) {
      before[index_of(edge.target)].push_back(static_cast<StateId>(from));
      if (edge.kind == Edge::Kind::call || edge.kind == Edge::Kind::repeat)
        before[index_of(rules_[index_of(edge.rule)].first)].push_back(static_cast<StateId>(from));
    }
  // In ascending order of heights, each state settles once.
  std::vector<std::vector<StateId>> open(1);
  for (const Automaton::Rule& rule : rules_) {
    heights[index_of(rule.last)] = 0;
    open[0].push_back(rule.last);
  }
  for (std::size_t height = 0; height < open.size(); ++height) {
    for (std::size_t i = 0; i < open[height].size(); ++i) {
      const StateId settled = open[height][i];
      if (index_of(heights[index_of(settled)]) != height) continue;
      for (const StateId from : before[index_of(settled)]) {
        std::int32_t least = heights[index_of(from)];
        for (const Edge& edge : edges_[index_of(from)]) least = std::min(least, height_over(edge, heights, rules_));
        if (least >= heights[index_of(from)]) continue;
        heights[index_of(from)] = least;
        if (open.size() <= index_of(least)) open.resize(index_of(least) + 1);
        open[index_of(least)].push_back(from);
      }
    }
    check_time();
  }
}

// A call before the first byte leads from rule to rule. A cycle of such calls would never end.
void AutomatonBuilder::refuse_left_recursion() const {
  // Which rules match the empty text.
  std::vector<bool> nullable(rules_.size(), false);
  std::vector<std::vector<RuleId>> calls(rules_.size());
  std::vector<std::int32_t> seen(edges_.size(), 0);  // the last walk that has come to a state
  std::int32_t walk = 0;
  const auto reached = [&](RuleId id, bool note) {
    ++walk;
    std::vector<StateId> open{rules_[index_of(id)].first};
    seen[index_of(open.front())] = walk;
    for (std::size_t i = 0; i < open.size(); ++i)
      for (const Edge& edge : edges_[index_of(open[i])]) {
        if (edge.kind == Edge::Kind::bytes) continue;
        const bool calls_rule = edge.kind != Edge::Kind::empty;
        if (calls_rule && note) calls[index_of(id)].push_back(edge.rule);
        const bool passes =
            !calls_rule || nullable[index_of(edge.rule)] || (edge.kind == Edge::Kind::repeat && edge.least == 0);
        if (!passes || seen[index_of(edge.target)] == walk) continue;
        seen[index_of(edge.target)] = walk;
        open.push_back(edge.target);
      }
    return seen[index_of(rules_[index_of(id)].last)] == walk;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (std::size_t id = 0; id < rules_.size(); ++id) {
      if (nullable[id]) continue;
      check_time();
      if (reached(static_cast<RuleId>(id), false)) changed = nullable[id] = true;
    }
  }
  for (std::size_t id = 0; id < rules_.size(); ++id) reached(static_cast<RuleId>(id), true);
  // Depth-first search for a cycle, without recursion of its own.
  enum : std::uint8_t { fresh, on_path, done };
  std::vector<std::uint8_t> marks(rules_.size(), fresh);
  for (std::size_t root = 0; root < rules_.size(); ++root) {
    std::vector<std::pair<std::size_t, std::size_t>> path;  // a rule, and which of its calls comes next
    if (marks[root] == fresh) path.emplace_back(root, 0), marks[root] = on_path;
    while (!path.empty()) {
      auto& [rule, next] = path.back();
      if (next == calls[rule].size()) {
        marks[rule] = done;
        path.pop_back();
        continue;
      }
      const std::size_t callee = index_of(calls[rule][next++]);
      if (marks[callee] == on_path) throw InputError("the grammar calls itself before it has matched anything");
      if (marks[callee] == fresh) marks[callee] = on_path, path.emplace_back(callee, 0);
    }
  }
}

Automaton AutomatonBuilder::finish(RuleId start) && {
  Automaton automaton;
  find_heights(automaton);
  if (automaton.heights_[index_of(rules_[index_of(start)].first)] >= kMaxFrames)
    throw InputError("the grammar matches nothing: no answer could satisfy it");
  refuse_left_recursion();
  automaton.start_ = start;
  automaton.begin_.push_back(0);
  for (std::vector<Edge>& edges : edges_) {
    for (const Edge& edge : edges)
      if (automaton.heights_[index_of(edge.target)] < kNever) automaton.edges_.push_back(edge);
    automaton.begin_.push_back(static_cast<std::int32_t>(automaton.edges_.size()));
    edges = {};
  }
  automaton.rules_ = std::move(rules_);
  return automaton;
}

}  // namespace heddle::grammar
