#include "parallel/sequence/timeline.h"

#include <algorithm>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>

#include "base/error.h"

namespace heddle {
namespace {

double seconds_of_attend(const SequenceMemory& memory, int rank, const SequenceAttend& attend,
                         const SequenceRates& rates) {
  const SequenceShape& shape = memory.shape();
  double num_queries = 0, num_keys = 0;
  for (const int group : attend.queries) num_queries += memory.tokens(group, memory.mesh().place_of(rank));
  for (const SequenceAttend::KeysValues& from : attend.keys_values)
    num_keys += memory.tokens(from.group, from.ring_place);
  const double rows = num_queries * shape.batch * memory.group_heads();
  const double state_bytes = rows * (shape.head_dim + 2) * sizeof(float);  // O', l and m
  const int state_passes = (attend.start == PieceStart::carried) + (attend.end == PieceEnd::carry);
  return rates.call_seconds + state_passes * state_bytes / rates.memory_bytes +
         4 * rows * num_keys * shape.head_dim / rates.attention_flops;
}

double seconds_of_copies(const SequenceMemory& memory, int rank, int tensors, const SequenceRates& rates) {
  const SequenceShape& shape = memory.shape();
  const double bytes = 2.0 * static_cast<double>(size_of(shape.dtype)) * tensors * shape.batch * shape.num_heads *
                       shape.head_dim * shape.tokens[static_cast<std::size_t>(rank)];
  return tensors * rates.call_seconds + bytes / rates.memory_bytes;
}

// One lane of one rank.
struct LaneState {
  std::vector<const SequenceOp*> ops;
  std::size_t next = 0;
  double free_at = 0;
  bool queued = false;
};

class Simulation {
 public:
  Simulation(const SequenceMemory& memory, const std::vector<SequenceProgram>& programs, const SequenceRates& rates)
      : memory_(memory),
        placement_(memory.mesh().placement),
        rates_(rates),
        lanes_(programs.size() * kSequenceLanes),
        events_(programs.size()),
        flags_(programs.size()),
        compute_seconds_(programs.size()),
        way_out_(static_cast<std::size_t>(placement_.machines)),
        way_in_(way_out_) {
    for (std::size_t rank = 0; rank < programs.size(); ++rank) {
      events_[rank].resize(static_cast<std::size_t>(programs[rank].num_events), kNotYet);
      flags_[rank].resize(static_cast<std::size_t>(memory.num_flags()));
      for (const SequenceOp& op : programs[rank].ops)
        lanes_[rank * kSequenceLanes + static_cast<std::size_t>(lane_of(op))].ops.push_back(&op);
    }
  }

  SequenceTimeline run() {
    for (std::size_t lane = 0; lane < lanes_.size(); ++lane) offer(lane);
    while (!ready_.empty()) {
      const auto [start, lane] = ready_.top();
      ready_.pop();
      lanes_[lane].queued = false;
      execute(lane, start);
      offer(lane);
    }
    SequenceTimeline result;
    for (const LaneState& lane : lanes_) {
      require(lane.next == lane.ops.size(), "sequence attention: the programs of the ranks wait in a circle");
      result.seconds = std::max(result.seconds, lane.free_at);
    }
    result.compute_seconds = std::ranges::max(compute_seconds_);
    result.exposed_seconds = result.seconds - result.compute_seconds;
    return result;
  }

 private:
  static constexpr double kNotYet = -1;

  struct Semaphore {
    std::vector<double> arrivals;
    std::size_t taken = 0;
  };
  struct Barrier {
    std::size_t entered = 0;
    double last = 0;
    std::vector<std::size_t> lanes;  // that wait in it
  };

  static std::size_t rank_of(std::size_t lane) { return lane / kSequenceLanes; }

  // When the lane's next operation can begin; nothing while something that it waits for has no time yet.
  std::optional<double> start_of_next(std::size_t lane) {
    const LaneState& state = lanes_[lane];
    if (state.next == state.ops.size()) return {};
    const SequenceOp& op = *state.ops[state.next];
    if (const auto* await = std::get_if<SequenceAwait>(&op)) {
      const double at = events_[rank_of(lane)][static_cast<std::size_t>(await->event)];
      if (at == kNotYet) return {};
      return std::max(state.free_at, at);
    }
    if (const auto* take = std::get_if<SequenceTake>(&op)) {
      const Semaphore& flag = flags_[rank_of(lane)][static_cast<std::size_t>(take->flag)];
      if (flag.taken == flag.arrivals.size()) return {};
      return std::max(state.free_at, flag.arrivals[flag.taken]);
    }
    return state.free_at;
  }

  void offer(std::size_t lane) {
    if (lanes_[lane].queued || in_barrier(lane)) return;
    if (const std::optional<double> start = start_of_next(lane)) {
      ready_.push({*start, lane});
      lanes_[lane].queued = true;
    }
  }
  void offer_all_of(std::size_t rank) {
    for (std::size_t lane = rank * kSequenceLanes; lane < (rank + 1) * kSequenceLanes; ++lane) offer(lane);
  }

  bool in_barrier(std::size_t lane) const { return waiting_.contains(lane); }

  void execute(std::size_t lane, double start) {
    LaneState& state = lanes_[lane];
    const SequenceOp& op = *state.ops[state.next];
    const std::size_t rank = rank_of(lane);
    if (const auto* barrier = std::get_if<SequenceBarrier>(&op)) return enter(lane, *barrier, start);
    double end = start;
    if (const auto* move = std::get_if<SequenceMove>(&op)) {
      end = end_of(static_cast<int>(rank), *move, start);
    } else if (const double seconds = sequence_compute_seconds(memory_, static_cast<int>(rank), op, rates_);
               seconds > 0) {
      end = start + seconds;
      compute_seconds_[rank] += seconds;
    } else if (const auto* take = std::get_if<SequenceTake>(&op)) {
      ++flags_[rank][static_cast<std::size_t>(take->flag)].taken;
    }
    state.free_at = end;
    ++state.next;
    if (const auto* record = std::get_if<SequenceRecord>(&op)) {
      events_[rank][static_cast<std::size_t>(record->event)] = end;
      offer_all_of(rank);
    } else if (const auto* signal = std::get_if<SequenceSignal>(&op)) {
      flags_[static_cast<std::size_t>(signal->peer)][static_cast<std::size_t>(signal->flag)].arrivals.push_back(
          end + seconds_of_message(static_cast<int>(rank), signal->peer));
      offer_all_of(static_cast<std::size_t>(signal->peer));
    }
  }

  // A rank is in one barrier of a team at a time, and all of its ranks name them in the same order.
  void enter(std::size_t lane, const SequenceBarrier& op, double start) {
    Barrier& barrier = barriers_[op.ranks];
    waiting_.insert(lane);
    barrier.last = std::max(barrier.last, start);
    barrier.lanes.push_back(lane);
    if (++barrier.entered < op.ranks.size()) return;
    const bool spans = !placement_.share_machine(op.ranks.front(), op.ranks.back());
    const double end = barrier.last + (spans ? rates_.remote_seconds : rates_.local_seconds);
    const std::vector<std::size_t> lanes = std::move(barrier.lanes);
    barriers_.erase(op.ranks);
    for (const std::size_t other : lanes) {
      waiting_.erase(other);
      lanes_[other].free_at = end;
      ++lanes_[other].next;
    }
    for (const std::size_t other : lanes) offer(other);
  }

  double seconds_of_message(int a, int b) const {
    return placement_.share_machine(a, b) ? rates_.local_seconds : rates_.remote_seconds;
  }

  double end_of(int rank, const SequenceMove& move, double start) {
    const double latency = seconds_of_message(rank, move.peer);
    const auto bytes = static_cast<double>(move.bytes);
    if (placement_.share_machine(rank, move.peer)) return start + latency + bytes / rates_.gpu_link_bytes;
    const bool pull = move.direction == SequenceMove::Direction::pull;
    double& out = way_out_[static_cast<std::size_t>(placement_.machine_of(pull ? move.peer : rank))];
    double& in = way_in_[static_cast<std::size_t>(placement_.machine_of(pull ? rank : move.peer))];
    out = in = std::max({start, out, in}) + bytes / rates_.machine_link_bytes;
    return out + latency;
  }

  const SequenceMemory& memory_;
  const Placement& placement_;
  const SequenceRates& rates_;
  std::vector<LaneState> lanes_;
  std::vector<std::vector<double>> events_;
  std::vector<std::vector<Semaphore>> flags_;
  std::vector<double> compute_seconds_;
  std::vector<double> way_out_, way_in_;  // when a machine's link is free
  std::map<std::vector<int>, Barrier> barriers_;
  std::set<std::size_t> waiting_;  // lanes in a barrier
  std::priority_queue<std::pair<double, std::size_t>, std::vector<std::pair<double, std::size_t>>, std::greater<>>
      ready_;
};

}  // namespace

double sequence_compute_seconds(const SequenceMemory& memory, int rank, const SequenceOp& op,
                                const SequenceRates& rates) {
  if (const auto* attend = std::get_if<SequenceAttend>(&op)) return seconds_of_attend(memory, rank, *attend, rates);
  if (std::holds_alternative<SequenceSplit>(op)) return seconds_of_copies(memory, rank, 3, rates);
  return std::holds_alternative<SequenceJoin>(op) ? seconds_of_copies(memory, rank, 1, rates) : 0;
}

SequenceTimeline predict_sequence(const SequenceMemory& memory, const std::vector<SequenceProgram>& programs,
                                  const SequenceRates& rates) {
  return Simulation(memory, programs, rates).run();
}

}  // namespace heddle
