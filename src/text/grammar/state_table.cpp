#include "text/grammar/state_table.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.h"
#include "text/grammar/limits.h"

namespace heddle::grammar {
namespace {

std::size_t mixed(std::size_t hash, std::int32_t value) {
  return (hash ^ static_cast<std::uint32_t>(value)) * 0x9E3779B97F4A7C15U + (hash >> 29);
}

}  // namespace

std::size_t StateTable::FrameHash::operator()(const Frame& frame) const {
  return mixed(mixed(mixed(1, frame.edge), frame.count), frame.parent);
}

StateTable::StateTable(std::shared_ptr<const Automaton> automaton) : automaton_(std::move(automaton)) {
  frames_.emplace_back();  // of the start
  start_ = close({{automaton_->rule(automaton_->start()).first, 0}});
}

bool StateTable::full() const {
  return bytes_ > kMaxTableBytes;
}

std::int32_t StateTable::frame(const Frame& frame) {
  const auto [place, added] = frame_indices_.try_emplace(frame, static_cast<std::int32_t>(frames_.size()));
  if (added) {
    frames_.push_back(frame);
    bytes_ += 4 * sizeof(Frame);
  }
  return place->second;
}

StateTable::Id StateTable::intern(Configurations configurations, bool accepting) {
  std::size_t hash = accepting ? 1 : 0;
  for (const Configuration& one : configurations) hash = mixed(mixed(hash, one.state), one.frame);
  const auto [begin, end] = state_ids_.equal_range(hash);
  for (auto place = begin; place != end; ++place) {
    const State& state = states_[static_cast<std::size_t>(place->second)];
    if (state.accepting == accepting && state.configurations == configurations) return place->second;
  }
  const auto id = static_cast<Id>(states_.size());
  bytes_ += sizeof(State) + configurations.size() * sizeof(Configuration);
  states_.push_back({.configurations = std::move(configurations), .accepting = accepting, .row = nullptr});
  state_ids_.emplace(hash, id);
  return id;
}

// Begins repetition `count` of an edge's rule, unless it would lead too deep to end.
void StateTable::enter(const Edge& edge, std::int32_t count, std::int32_t parent, Configurations& open) {
  const std::int32_t depth = frames_[static_cast<std::size_t>(parent)].depth + 1;
  if (depth + automaton_->rule_height(edge.rule) > kMaxFrames) return;
  const Frame called{.edge = automaton_->edge_index(edge), .count = count, .parent = parent, .depth = depth};
  open.push_back({automaton_->rule(edge.rule).first, frame(called)});
}

void StateTable::finish_rule(std::int32_t frame_idx, Configurations& open) {
  const Frame ended = frames_[static_cast<std::size_t>(frame_idx)];
  const Edge& edge = automaton_->edge(ended.edge);
  if (edge.kind == Edge::Kind::call) {
    open.push_back({edge.target, ended.parent});
    return;
  }
  const std::int32_t count = ended.count + 1;
  if (count >= edge.least) open.push_back({edge.target, ended.parent});
  if (edge.most == kUnbounded)
    enter(edge, std::min(count, edge.least), ended.parent, open);
  else if (count < edge.most)
    enter(edge, count, ended.parent, open);
}

void StateTable::follow(const Configuration& from, Configurations& open) {
  const std::int32_t depth = frames_[static_cast<std::size_t>(from.frame)].depth;
  for (const Edge& edge : automaton_->edges(from.state)) {
    if (edge.kind == Edge::Kind::bytes || depth + automaton_->height(edge.target) > kMaxFrames) continue;
    if (edge.kind == Edge::Kind::empty) {
      open.push_back({edge.target, from.frame});
      continue;
    }
    if (edge.kind == Edge::Kind::repeat && edge.least == 0) open.push_back({edge.target, from.frame});
    enter(edge, 0, from.frame, open);
  }
}

StateTable::Id StateTable::close(Configurations open) {
  std::set<Configuration> seen;
  Configurations kept;
  bool accepting = false;
  while (!open.empty()) {
    const Configuration one = open.back();
    open.pop_back();
    if (!seen.insert(one).second) continue;
    if (seen.size() > 8 * kMaxConfigurations) throw Failure("the grammar is too ambiguous to follow: simplify it");
    const std::span<const Edge> edges = automaton_->edges(one.state);
    if (std::ranges::any_of(edges, [](const Edge& edge) { return edge.kind == Edge::Kind::bytes; }))
      kept.push_back(one);
    const RuleId rule =
        one.frame == 0 ? automaton_->start() : automaton_->edge(frames_[static_cast<std::size_t>(one.frame)].edge).rule;
    if (one.state == automaton_->rule(rule).last) {
      if (one.frame == 0)
        accepting = true;
      else
        finish_rule(one.frame, open);
    }
    follow(one, open);
  }
  if (kept.empty() && !accepting) return kDead;
  if (kept.size() > kMaxConfigurations) throw Failure("the grammar is too ambiguous to follow: simplify it");
  std::sort(kept.begin(), kept.end());
  return intern(std::move(kept), accepting);
}

StateTable::Id StateTable::next(Id state, std::uint8_t byte) {
  std::unique_ptr<std::array<Id, 256>>& row = states_[static_cast<std::size_t>(state)].row;
  if (!row) {
    row = std::make_unique<std::array<Id, 256>>();
    row->fill(kUnknown);
    bytes_ += sizeof(*row);
  }
  std::array<Id, 256>& targets = *row;  // stays where it is when states are added
  if (targets[byte] != kUnknown) return targets[byte];
  Configurations open;
  for (const Configuration& one : states_[static_cast<std::size_t>(state)].configurations) {
    const std::int32_t depth = frames_[static_cast<std::size_t>(one.frame)].depth;
    for (const Edge& edge : automaton_->edges(one.state))
      if (edge.kind == Edge::Kind::bytes && edge.first <= byte && byte <= edge.last &&
          depth + automaton_->height(edge.target) <= kMaxFrames)
        open.push_back({edge.target, one.frame});
  }
  const Id reached = open.empty() ? kDead : close(std::move(open));
  targets[byte] = reached;
  return reached;
}

std::int32_t StateTable::clamped_frame(std::int32_t frame_idx, std::int32_t max_bytes) {
  if (frame_idx == 0) return 0;
  Frame clamped = frames_[static_cast<std::size_t>(frame_idx)];
  clamped.parent = clamped_frame(clamped.parent, max_bytes);
  const Edge& edge = automaton_->edge(clamped.edge);
  if (edge.kind == Edge::Kind::repeat) {
    // Within max_bytes bytes at most so many repetitions end, because none is empty.
    const std::int32_t ends = clamped.count + max_bytes;
    if (ends < edge.least)
      clamped.count = edge.least - max_bytes - 1;
    else if (edge.most != kUnbounded && clamped.count >= edge.least && ends < edge.most)
      clamped.count = edge.most - max_bytes - 1;
  }
  return frame(clamped);
}

StateTable::Id StateTable::representative(Id state, std::int32_t max_bytes) {
  Configurations clamped = states_[static_cast<std::size_t>(state)].configurations;
  for (Configuration& one : clamped) one.frame = clamped_frame(one.frame, max_bytes);
  std::sort(clamped.begin(), clamped.end());
  clamped.erase(std::unique(clamped.begin(), clamped.end()), clamped.end());
  return intern(std::move(clamped), accepting(state));
}

StateTable::Id StateTable::import(const StateTable& other, Id state) {
  std::unordered_map<std::int32_t, std::int32_t> known{{0, 0}};
  Configurations configurations = other.states_[static_cast<std::size_t>(state)].configurations;
  for (Configuration& one : configurations) {
    std::vector<std::int32_t> path;  // from the innermost frame to one that is known
    for (std::int32_t at = one.frame; !known.contains(at); at = other.frames_[static_cast<std::size_t>(at)].parent)
      path.push_back(at);
    for (auto at = path.rbegin(); at != path.rend(); ++at) {
      Frame copy = other.frames_[static_cast<std::size_t>(*at)];
      copy.parent = known.at(copy.parent);
      known.emplace(*at, frame(copy));
    }
    one.frame = known.at(one.frame);
  }
  std::sort(configurations.begin(), configurations.end());
  return intern(std::move(configurations), other.accepting(state));
}

}  // namespace heddle::grammar
