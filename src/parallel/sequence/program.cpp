#include "parallel/sequence/program.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "schedule/torus.h"

namespace heddle {
namespace {

using Lane3 = SequenceLane;
using Direction = SequenceMove::Direction;
using Tensor3 = SequenceMove::Tensor;
using Area = SequencePlace::Area;

constexpr int kNoEvent = -1;

class ProgramBuilder {
 public:
  ProgramBuilder(const SequenceMemory& memory, int rank)
      : memory_(memory),
        mesh_(memory.mesh()),
        rank_(rank),
        group_(mesh_.group_of(rank)),
        place_(mesh_.place_of(rank)),
        part_(mesh_.part_of(rank)),
        ring_(memory.ring_of(rank)),
        imports_taken_(static_cast<std::size_t>(mesh_.ring)) {}

  SequenceProgram one_sided();
  SequenceProgram staged();

 private:
  // In place: GCC 12 takes a moved variant's other members for uninitialised.
  template <class Op>
  void enqueue(Op&& op) {
    program_.ops.emplace_back(std::forward<Op>(op));
  }
  int record(Lane3 lane) {
    enqueue(SequenceRecord{lane, program_.num_events});
    return program_.num_events++;
  }
  void await(Lane3 lane, int event) {
    if (event != kNoEvent) enqueue(SequenceAwait{lane, event});
  }
  void move(Lane3 lane, Direction direction, Tensor3 tensor, int peer, SequencePlace here, std::int64_t there,
            std::int64_t bytes) {
    enqueue(SequenceMove{lane, direction, tensor, peer, here, there, bytes});
  }
  void barrier(Lane3 lane, std::vector<int> ranks) {
    if (ranks.size() > 1) enqueue(SequenceBarrier{lane, std::move(ranks)});
  }

  int peer(int part, int ulysses) const { return mesh_.rank(part * mesh_.ulysses + ulysses, place_); }
  int group_in(int part, int ulysses) const { return part * mesh_.ulysses + ulysses; }
  std::vector<int> groups_of(int part) const {
    std::vector<int> groups(static_cast<std::size_t>(mesh_.ulysses));
    std::iota(groups.begin(), groups.end(), part * mesh_.ulysses);
    return groups;
  }
  std::vector<int> groups_of_others() const {
    std::vector<int> groups;
    for (int group = 0; group < mesh_.groups(); ++group)
      if (group / mesh_.ulysses != part_) groups.push_back(group);
    return groups;
  }
  std::vector<int> everybody() const {
    std::vector<int> ranks(static_cast<std::size_t>(mesh_.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  std::vector<int> ring_ranks() const {
    std::vector<int> ranks;
    ranks.reserve(static_cast<std::size_t>(mesh_.ring));
    for (int place = 0; place < mesh_.ring; ++place) ranks.push_back(mesh_.rank(group_, place));
    return ranks;
  }

  void begin();
  void push_qkv(int ulysses);
  void push_output(int part, int ulysses);
  void import_part(int part, int ready);
  void make_part_ready(int part, int arrived);
  void ring_attention(const std::vector<int>& queries, const std::vector<int>& parts);
  void take_imports_until(int member, int count);
  int number_of_import(int member, int part, int piece) const;
  void finish();
  void mark_starts_and_ends();

  const SequenceMemory& memory_;
  const SequenceMesh& mesh_;
  int rank_, group_, place_, part_;
  schedule::BorderedRing ring_;
  SequenceProgram program_;
  int gathered_ = kNoEvent;                      // after the first barrier
  std::vector<int> import_order_;                // the parts in the order in which every rank of the ring imports them
  std::vector<int> imports_taken_;               // by ring member: signals of its imports that this rank has taken
  std::map<std::pair<int, int>, int> imported_;  // (part, ring place): event of the own import
  std::array<int, 2> buffer_free_ = {kNoEvent, kNoEvent};
  int num_pulls_ = 0;
};

// Lines 9 to 17: pieces are cut, those of the own part's heads go to their ranks, and everybody waits for everybody.
void ProgramBuilder::begin() {
  enqueue(SequenceSplit{});
  await(Lane3::other, record(Lane3::compute));
  for (int step = 1; step < mesh_.ulysses; ++step) push_qkv((group_ + step) % mesh_.ulysses);
  barrier(Lane3::other, everybody());
  gathered_ = record(Lane3::other);
  await(Lane3::ring, gathered_);
  // Without pushes to wait for, the own piece is enough to begin with.
  if (mesh_.ulysses > 1) await(Lane3::compute, gathered_);
  import_part(part_, kNoEvent);
}

void ProgramBuilder::push_qkv(int ulysses) {
  const int to = peer(part_, ulysses), heads = group_in(part_, ulysses);
  const std::int64_t bytes = memory_.piece_bytes(group_, place_);
  move(Lane3::other, Direction::push, Tensor3::q, to, {Area::symmetric, memory_.packed_query(rank_, heads)},
       memory_.query(to, group_), bytes);
  move(Lane3::other, Direction::push, Tensor3::kv, to, {Area::symmetric, memory_.packed_key_value(rank_, heads)},
       memory_.key_value(to, group_), 2 * bytes);
}

void ProgramBuilder::push_output(int part, int ulysses) {
  const int to = peer(part, ulysses), tokens_of = group_in(part, ulysses);
  move(Lane3::other, Direction::push, Tensor3::o, to, {Area::own, memory_.result(rank_, tokens_of)},
       memory_.output(to, group_), memory_.piece_bytes(tokens_of, place_));
}

// Pulls a part's keys and values from other machines, for the own ring and for its members beside. They come when
// `ready` has.
void ProgramBuilder::import_part(int part, int ready) {
  import_order_.push_back(part);
  bool first = true;
  for (const schedule::RingPull& pull : memory_.ring_pulls(rank_)) {
    if (!pull.crosses) continue;
    if (std::exchange(first, false)) await(Lane3::other, ready);
    const int from = mesh_.rank(group_, pull.from);
    move(Lane3::other, Direction::pull, Tensor3::kv, from, {Area::symmetric, memory_.import(rank_, part, pull.piece)},
         memory_.key_value(from, part * mesh_.ulysses), memory_.part_bytes(part, pull.piece));
    imported_[{part, pull.piece}] = record(Lane3::other);
    for (int beside = ring_.first_beside(place_); beside < ring_.first_beside(place_) + ring_.count_beside(place_);
         ++beside)
      if (beside != place_) enqueue(SequenceSignal{Lane3::other, mesh_.rank(group_, beside), place_});
  }
}

// A part that came over the torus: the ring may read it when all of its members have it (line 29).
void ProgramBuilder::make_part_ready(int part, int arrived) {
  await(Lane3::compute, arrived);
  if (mesh_.ring == 1) return;
  await(Lane3::ring, arrived);
  barrier(Lane3::ring, ring_ranks());
  import_part(part, record(Lane3::ring));
}

// The number, from 1, of a member's import of a piece of a part, in the order in which it signals them.
int ProgramBuilder::number_of_import(int member, int part, int piece) const {
  int number = 0;
  for (const int before : import_order_)
    for (const schedule::RingPull& pull : memory_.ring_pulls(mesh_.rank(group_, member))) {
      if (!pull.crosses) continue;
      ++number;
      if (before == part && pull.piece == piece) return number;
    }
  return number;
}

void ProgramBuilder::take_imports_until(int member, int count) {
  for (int& taken = imports_taken_[static_cast<std::size_t>(member)]; taken < count; ++taken)
    enqueue(SequenceTake{Lane3::ring, mesh_.rank(group_, member), member});
}

// RINGATTN (lines 1 to 7): the queries of some groups attend to some parts of every ring member. What lies beside is
// pulled into one of two buffers while the step before computes.
void ProgramBuilder::ring_attention(const std::vector<int>& queries, const std::vector<int>& parts) {
  for (const schedule::RingPull& pull : memory_.ring_pulls(rank_)) {
    SequenceAttend attend{.queries = queries, .keys_values = {}};
    const auto add = [&](int part, SequencePlace place) {
      for (const int group : groups_of(part)) {
        attend.keys_values.push_back({place, group, pull.piece});
        place.offset += 2 * memory_.piece_bytes(group, pull.piece);
      }
    };
    if (pull.from == place_) {
      for (const int part : parts) add(part, {Area::symmetric, memory_.key_value(rank_, part * mesh_.ulysses)});
      enqueue(std::move(attend));
      continue;
    }
    if (pull.crosses) {
      for (const int part : parts) {
        await(Lane3::compute, imported_.at({part, pull.piece}));
        add(part, {Area::symmetric, memory_.import(rank_, part, pull.piece)});
      }
      enqueue(std::move(attend));
      continue;
    }
    const int slot = num_pulls_++ % 2, from = mesh_.rank(group_, pull.from);
    await(Lane3::ring, buffer_free_[static_cast<std::size_t>(slot)]);
    SequencePlace here{Area::own, memory_.ring_buffer(slot)};
    for (const int part : parts) {
      std::int64_t there = 0;
      if (pull.from == pull.piece) {
        there = memory_.key_value(from, part * mesh_.ulysses);
      } else {
        take_imports_until(pull.from, number_of_import(pull.from, part, pull.piece));
        there = memory_.import(from, part, pull.piece);
      }
      const std::int64_t bytes = memory_.part_bytes(part, pull.piece);
      move(Lane3::ring, Direction::pull, Tensor3::kv, from, here, there, bytes);
      add(part, here);
      here.offset += bytes;
    }
    await(Lane3::compute, record(Lane3::ring));
    enqueue(std::move(attend));
    buffer_free_[static_cast<std::size_t>(slot)] = record(Lane3::compute);
  }
}

// Lines 35 to 37: the outputs of the own part go to their ranks, and everybody waits for everybody.
void ProgramBuilder::finish() {
  await(Lane3::other, record(Lane3::compute));
  for (int step = 1; step < mesh_.ulysses; ++step) push_output(part_, (group_ + step) % mesh_.ulysses);
  barrier(Lane3::other, everybody());
  await(Lane3::compute, record(Lane3::other));
  enqueue(SequenceJoin{});
  mark_starts_and_ends();
}

// The first call that touches a group's queries begins them, the last one finalises them.
void ProgramBuilder::mark_starts_and_ends() {
  std::vector<bool> begun(static_cast<std::size_t>(mesh_.groups())), ended(begun);
  const auto all_or_none = [&](const SequenceAttend& attend, std::vector<bool>& done) {
    const bool before = done[static_cast<std::size_t>(attend.queries.front())];
    for (const int group : attend.queries) {
      require(done[static_cast<std::size_t>(group)] == before, "sequence attention: a call mixes new and old queries");
      done[static_cast<std::size_t>(group)] = true;
    }
    return before;
  };
  for (SequenceOp& op : program_.ops)
    if (auto* attend = std::get_if<SequenceAttend>(&op))
      attend->start = all_or_none(*attend, begun) ? PieceStart::carried : PieceStart::fresh;
  for (auto op = program_.ops.rbegin(); op != program_.ops.rend(); ++op)
    if (auto* attend = std::get_if<SequenceAttend>(&*op))
      attend->end = all_or_none(*attend, ended) ? PieceEnd::carry : PieceEnd::finalise;
}

// Algorithm 1.
SequenceProgram ProgramBuilder::one_sided() {
  begin();
  const int parts = mesh_.torus;
  const auto behind = [&](int k) { return schedule::mod(part_ - k, parts); };
  std::vector<int> queries_here(static_cast<std::size_t>(parts)), keys_values_here(queries_here);
  for (int k = 1; k < parts; ++k) {  // lines 18 to 21: all pulls are issued before any is waited for, Q first
    for (int u = 0; u < mesh_.ulysses; ++u) {
      const int from = peer(behind(k), u), group = group_in(behind(k), u);
      move(Lane3::other, Direction::pull, Tensor3::q, from, {Area::symmetric, memory_.query(rank_, group)},
           memory_.packed_query(from, group_), memory_.piece_bytes(group, place_));
    }
    queries_here[static_cast<std::size_t>(k)] = record(Lane3::other);
  }
  for (int k = 1; k < parts; ++k) {
    for (int u = 0; u < mesh_.ulysses; ++u) {
      const int from = peer(behind(k), u), group = group_in(behind(k), u);
      move(Lane3::other, Direction::pull, Tensor3::kv, from, {Area::symmetric, memory_.key_value(rank_, group)},
           memory_.packed_key_value(from, group_), 2 * memory_.piece_bytes(group, place_));
    }
    keys_values_here[static_cast<std::size_t>(k)] = record(Lane3::other);
  }

  ring_attention(groups_of(part_), {part_});  // Pull Q
  for (int k = 1; k < parts; ++k) {
    await(Lane3::compute, queries_here[static_cast<std::size_t>(k)]);
    ring_attention(groups_of(behind(k)), {part_});
  }
  for (int k = 1; k < parts; ++k) {  // Pull KV
    make_part_ready(behind(k), keys_values_here[static_cast<std::size_t>(k)]);
    ring_attention(groups_of_others(), {behind(k)});
  }
  if (parts > 1) {  // Push O
    await(Lane3::other, record(Lane3::compute));
    std::vector<int> others;
    for (int k = 1; k < parts; ++k) {
      others.push_back(behind(k));
      for (int u = 0; u < mesh_.ulysses; ++u) push_output(behind(k), u);
    }
    ring_attention(groups_of(part_), others);
  }
  finish();
  return std::move(program_);
}

// 4.3 with the handshakes of two-sided messages: in each stage a rank sends when the receiver is there, and goes on when
// its own message has come. A transfer begins with the computation that hides it.
SequenceProgram ProgramBuilder::staged() {
  using schedule::Torus;
  using schedule::TorusStep;
  using schedule::TorusTensor;
  begin();
  const Torus torus = Torus::of(mesh_.torus, 1);
  const int ready_flags = mesh_.ring, arrived_flags = mesh_.ring + mesh_.size();
  std::vector<int> queries_here(static_cast<std::size_t>(mesh_.torus), kNoEvent), keys_values_here(queries_here);
  std::vector<bool> ring_has(static_cast<std::size_t>(mesh_.torus));
  ring_has[static_cast<std::size_t>(part_)] = true;
  for (int step = 0; step < torus.steps(); ++step) {
    const TorusStep now = torus.at(part_, step);
    if (now.to != schedule::kNobody) {
      await(Lane3::other, record(Lane3::compute));
      for (int u = 0; u < mesh_.ulysses; ++u)
        enqueue(SequenceSignal{Lane3::other, peer(now.from, u), ready_flags + rank_});
      for (int u = 0; u < mesh_.ulysses; ++u) {
        const int to = peer(now.to, u), group = group_in(now.to, u);
        enqueue(SequenceTake{Lane3::other, to, ready_flags + to});
        const std::int64_t bytes = memory_.piece_bytes(group_, place_);
        switch (torus.tensor(now.send)) {
          case TorusTensor::kQ:
            move(Lane3::other, Direction::push, Tensor3::q, to, {Area::symmetric, memory_.packed_query(rank_, group)},
                 memory_.query(to, group_), bytes);
            break;
          case TorusTensor::kKv:
            move(Lane3::other, Direction::push, Tensor3::kv, to,
                 {Area::symmetric, memory_.packed_key_value(rank_, group)}, memory_.key_value(to, group_), 2 * bytes);
            break;
          case TorusTensor::kO:
            push_output(now.to, u);
            break;
        }
        enqueue(SequenceSignal{Lane3::other, to, arrived_flags + rank_});
      }
      for (int u = 0; u < mesh_.ulysses; ++u)
        enqueue(SequenceTake{Lane3::other, peer(now.from, u), arrived_flags + peer(now.from, u)});
    }
    // What arrives in this step is used in a later one.
    const int arrived = now.to != schedule::kNobody ? record(Lane3::other) : kNoEvent;
    if (now.query != schedule::kEveryOther) await(Lane3::compute, queries_here[static_cast<std::size_t>(now.query)]);
    if (!ring_has[static_cast<std::size_t>(now.key_value)]) {
      ring_has[static_cast<std::size_t>(now.key_value)] = true;
      make_part_ready(now.key_value, keys_values_here[static_cast<std::size_t>(now.key_value)]);
    }
    ring_attention(now.query == schedule::kEveryOther ? groups_of_others() : groups_of(now.query), {now.key_value});
    if (arrived != kNoEvent && torus.tensor(now.receive) == TorusTensor::kQ)
      queries_here[static_cast<std::size_t>(torus.part(now.receive))] = arrived;
    if (arrived != kNoEvent && torus.tensor(now.receive) == TorusTensor::kKv)
      keys_values_here[static_cast<std::size_t>(torus.part(now.receive))] = arrived;
  }
  finish();
  return std::move(program_);
}

}  // namespace

SequenceLane lane_of(const SequenceOp& op) {
  return std::visit(
      [](const auto& of) {
        if constexpr (requires { of.lane; }) return of.lane;
        return SequenceLane::compute;
      },
      op);
}

SequenceProgram make_sequence_program(SequenceStrategy strategy, const SequenceMemory& memory, int rank) {
  ProgramBuilder builder(memory, rank);
  return strategy == SequenceStrategy::torus ? builder.staged() : builder.one_sided();
}

}  // namespace heddle
