#include "parallel/sequence/sequence_attention.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/trace.h"

namespace heddle {
namespace {

int rank_in(std::span<const int> team, int rank) {
  const auto found = std::ranges::find(team, rank);
  require(found != team.end(), "sequence attention: rank {} is not in its team", rank);
  return static_cast<int>(found - team.begin());
}

struct SpanName {
  std::string_view name;
  int index;  // of the peer, or -1
};

// What a trace calls an operation; empty: nothing, as it takes no time of its own.
SpanName span_of(const SequenceOp& op) {
  if (const auto* move = std::get_if<SequenceMove>(&op)) {
    static constexpr std::string_view kNames[2][3] = {{"push q", "push kv", "push o"}, {"pull q", "pull kv", "pull o"}};
    return {kNames[static_cast<int>(move->direction)][static_cast<int>(move->tensor)], move->peer};
  }
  if (const auto* take = std::get_if<SequenceTake>(&op)) return {"wait for word", take->from};
  if (std::holds_alternative<SequenceAwait>(op)) return {"wait for lane", -1};
  if (std::holds_alternative<SequenceAttend>(op)) return {"attend", -1};
  if (std::holds_alternative<SequenceSplit>(op)) return {"split heads", -1};
  if (std::holds_alternative<SequenceJoin>(op)) return {"join heads", -1};
  if (std::holds_alternative<SequenceBarrier>(op)) return {"barrier", -1};
  return {};
}

bool computes(const SequenceOp& op) {
  return std::holds_alternative<SequenceSplit>(op) || std::holds_alternative<SequenceJoin>(op) ||
         std::holds_alternative<SequenceAttend>(op);
}

// Of transfers: on the CPU a thread of its own, on a GPU a CUDA stream.
Stream stream_of(Device device, ThreadPool& pool) {
  return device.kind == DeviceKind::cpu ? Stream(pool) : Stream(device);
}

// A trace knows a stream's rank from its waits, and a lane that pulls alone may never wait.
void tell_trace_of_rank(Stream& stream, int rank) {
  if (stream.device().kind != DeviceKind::cpu || Tracer::active() == nullptr) return;
  stream.enqueue([rank](ThreadPool&) {
    if (TraceTrack* const track = track_of_this_thread()) track->set_rank(rank);
  });
}

// Of each call of piece_attention().
PieceShape piece_shape_of(const SequenceMemory& memory) {
  const SequenceShape& shape = memory.shape();
  return {shape.batch, memory.group_heads(), memory.group_heads(), shape.head_dim, shape.dtype};
}

// The SMs of a rank without one for the transfer lanes. Attention has a block on each of its SMs and leaves no registers
// beside it, so their kernels, which are of one thread (messages, barriers, waits), would wait until a stage ends.
Lane lane_that_computes(const Lane& whole, int ranks) {
  if (ranks == 1 || whole.num_sms < 2) return whole;
  return Lane(whole.stream, whole.num_sms - 1, whole.workspace);
}

}  // namespace

std::size_t SequenceAttention::heap_bytes(const SequenceMemory& memory) {
  return static_cast<std::size_t>(memory.symmetric_bytes()) + 4096;
}

SequenceAttention::SequenceAttention(Fabric& fabric, std::span<const int> team, SequenceStrategy strategy,
                                     const SequenceMesh& mesh, const SequenceShape& shape)
    : fabric_(fabric),
      team_(team.begin(), team.end()),
      rank_(rank_in(team, fabric.rank())),
      strategy_(strategy),
      memory_(mesh, shape),
      program_(make_sequence_program(strategy, memory_, rank_)),
      symmetric_(fabric, static_cast<std::size_t>(memory_.symmetric_bytes())),
      private_(std::max<std::size_t>(1, static_cast<std::size_t>(memory_.private_bytes())), fabric.device()),
      workspace_(std::max<std::size_t>(1, piece_attention_workspace(piece_shape_of(memory_), fabric.device())),
                 fabric.device()),
      ring_(stream_of(fabric.device(), pool_)),
      other_(stream_of(fabric.device(), pool_)),
      layer_begun_(fabric.device()),
      ring_done_(fabric.device()),
      other_done_(fabric.device()) {
  require_team(team, fabric.size(), fabric.rank(), "sequence attention");
  require(static_cast<int>(team.size()) == mesh.size(), "sequence attention: a team of {} ranks and a mesh of {}",
          team.size(), mesh.size());
  make_layouts();
  for (Stream* each : {&ring_, &other_}) tell_trace_of_rank(*each, fabric.rank());
  for (int event = 0; event < program_.num_events; ++event) events_.emplace_back(fabric.device());
  // No rank's kernel may wait for a rank that still allocates memory of the GPU that they share.
  if (fabric.device().kind == DeviceKind::cuda) fabric.meet();
}

// Moves that have begun before an error may still use this object's memory. (On a GPU, freeing it waits for them.)
SequenceAttention::~SequenceAttention() {
  if (fabric_.device().kind == DeviceKind::cuda) return;
  for (Stream* const each : {&other_, &ring_}) {
    try {
      fabric_.synchronize(*each);
    } catch (const std::exception&) {  // nothing is under way, and whoever has called synchronize() knows why
    }
  }
}

std::byte* SequenceAttention::address(const SequencePlace& place) {
  return (place.area == SequencePlace::Area::symmetric ? symmetric_.data() : private_.data()) + place.offset;
}

SequenceAttention::Transfer SequenceAttention::transfer_of(const SequenceMove& move) {
  return {.peer = team_[static_cast<std::size_t>(move.peer)],
          .here = address(move.here),
          .there = address({SequencePlace::Area::symmetric, move.there}),
          .bytes = static_cast<std::size_t>(move.bytes)};
}

// Everything lies at the same addresses in every layer.
void SequenceAttention::make_layouts() {
  const SequenceMesh& mesh = memory_.mesh();
  const SequenceShape& shape = memory_.shape();
  const int place = mesh.place_of(rank_), group = mesh.group_of(rank_), group_heads = memory_.group_heads();
  const auto symmetric = [&](std::int64_t offset) { return address({SequencePlace::Area::symmetric, offset}); };

  q_pieces_ = {.batch = shape.batch,
               .num_tokens = shape.tokens[static_cast<std::size_t>(rank_)],
               .num_heads = shape.num_heads,
               .head_dim = shape.head_dim,
               .dtype = shape.dtype,
               .groups = {}};
  k_pieces_ = v_pieces_ = o_pieces_ = q_pieces_;
  for (int heads = 0; heads < mesh.groups(); ++heads) {
    std::byte* const keys = symmetric(memory_.packed_key_value(rank_, heads));
    q_pieces_.groups.push_back(symmetric(memory_.packed_query(rank_, heads)));
    k_pieces_.groups.push_back(keys);
    v_pieces_.groups.push_back(keys + memory_.piece_bytes(group, place));
    o_pieces_.groups.push_back(symmetric(memory_.output(rank_, heads)));
  }

  std::vector<QueryPiece> queries;
  std::int64_t num_rows = 0;
  for (int of = 0; of < mesh.groups(); ++of)
    num_rows += std::int64_t{shape.batch} * group_heads * memory_.tokens(of, place);
  const auto state_floats = static_cast<std::size_t>(num_rows) * static_cast<std::size_t>(shape.head_dim + 2);
  state_ = Buffer(std::max<std::size_t>(1, state_floats * sizeof(float)), fabric_.device());
  float* o = reinterpret_cast<float*>(state_.data());  // of all query pieces, one after the other; then l, then m
  float* l = o + num_rows * shape.head_dim;
  for (int of = 0; of < mesh.groups(); ++of) {
    const int tokens = memory_.tokens(of, place);
    const std::int64_t rows = std::int64_t{shape.batch} * group_heads * tokens;
    const PieceStrides strides = head_major(group_heads, tokens, shape.head_dim);
    QueryPiece piece{.q = symmetric(memory_.query(rank_, of)),
                     .q_strides = strides,
                     .y = of == group ? symmetric(memory_.output(rank_, group))
                                      : address({SequencePlace::Area::own, memory_.result(rank_, of)}),
                     .y_strides = strides,
                     .o = o,
                     .l = l,
                     .m = l + num_rows,
                     .num_tokens = tokens,
                     .first_position = memory_.first_position(of, place)};
    o += rows * shape.head_dim;
    l += rows;
    queries.push_back(piece);
  }

  for (const SequenceOp& op : program_.ops) {
    const auto* attend = std::get_if<SequenceAttend>(&op);
    if (attend == nullptr) continue;
    std::vector<QueryPiece> of_call;
    std::vector<KeyValuePiece> keys_values;
    for (const int of : attend->queries) of_call.push_back(queries[static_cast<std::size_t>(of)]);
    for (const SequenceAttend::KeysValues& from : attend->keys_values) {
      const int tokens = memory_.tokens(from.group, from.ring_place);
      const std::byte* const keys = address(from.place);
      keys_values.push_back({.k = keys,
                             .v = keys + memory_.piece_bytes(from.group, from.ring_place),
                             .strides = head_major(group_heads, tokens, shape.head_dim),
                             .num_tokens = tokens,
                             .first_position = memory_.first_position(from.group, from.ring_place)});
    }
    layouts_.emplace_back(piece_shape_of(memory_), std::move(of_call), std::move(keys_values), fabric_.device());
  }
}

struct SequenceAttention::Call {
  const void *q, *k, *v;
  void* y;
  float scale;
  Lane lane;                                        // of what computes
  std::size_t num_attends = 0;                      // so far
  std::array<std::size_t, kSequenceLanes> begun{};  // by lane: the program's moves before this place have begun

  Stream& stream(SequenceAttention& of, SequenceLane which) const {
    return which == SequenceLane::compute ? lane.stream : which == SequenceLane::ring ? of.ring_ : of.other_;
  }
};

void SequenceAttention::attend(const void* q, const void* k, const void* v, void* y, float scale, const Lane& lane) {
  const bool transfers = work_ == SequenceWork::whole;
  const Lane computing = transfers ? lane_that_computes(lane, static_cast<int>(team_.size())) : lane;
  Call call{q, k, v, y, scale, computing.with({workspace_.data(), workspace_.size_bytes()})};
  const Span layer(lane.stream, name_of(strategy_));
  for (std::size_t i = 0; i < program_.ops.size(); ++i) {
    const SequenceOp& op = program_.ops[i];
    if (!transfers && !computes(op)) continue;
    if (std::holds_alternative<SequenceMove>(op)) begin_moves(i, call);
    run(op, call);
    call.num_attends += std::holds_alternative<SequenceAttend>(op);
  }
}

// Begins the moves from operation `first` to where its lane must wait or turns from pulls to pushes, or back. Each is still
// got or put in its turn, so what is recorded or signalled behind it means that it has come, or is on its way before the
// signal. Pushes with a signal among them begin one by one: between machines a signal waits for what has begun to others.
void SequenceAttention::begin_moves(std::size_t first, Call& call) {
  const auto& first_move = std::get<SequenceMove>(program_.ops[first]);
  const bool is_pull = first_move.direction == SequenceMove::Direction::pull;
  std::size_t& begun = call.begun[static_cast<std::size_t>(first_move.lane)];
  if (first < begun) return;
  for (begun = first; begun < program_.ops.size(); ++begun) {
    const SequenceOp& op = program_.ops[begun];
    if (lane_of(op) != first_move.lane || std::holds_alternative<SequenceRecord>(op) ||
        (is_pull && std::holds_alternative<SequenceSignal>(op)))
      continue;
    const auto* const move = std::get_if<SequenceMove>(&op);
    if (move == nullptr || move->direction != first_move.direction) return;
    const auto [peer, here, there, bytes] = transfer_of(*move);
    Stream& stream = call.stream(*this, first_move.lane);
    if (is_pull)
      fabric_.begin_get(stream, peer, here, there, bytes);
    else
      fabric_.begin_put(stream, peer, there, here, bytes);
  }
}

// While ranks share a GPU, no graph may be instantiated beside a kernel that waits for its rank. So all ranks are idle
// before, and none goes on until all have done it. The transfer lanes enter the capture by an event of the compute lane,
// and must join it again before it ends.
Graph SequenceAttention::capture(const void* q, const void* k, const void* v, void* y, float scale, const Lane& lane) {
  require(fabric_.device().kind == DeviceKind::cuda,
          "sequence attention: only layers on a GPU can be captured, this rank is on {}", name_of(fabric_.device()));
  synchronize(lane.stream);
  fabric_.meet();
  Graph graph(lane.stream, [&] {
    layer_begun_.record(lane.stream);
    ring_.wait(layer_begun_);
    other_.wait(layer_begun_);
    attend(q, k, v, y, scale, lane);
    ring_done_.record(ring_);
    other_done_.record(other_);
    lane.stream.wait(ring_done_);
    lane.stream.wait(other_done_);
  });
  fabric_.meet();
  return graph;
}

void SequenceAttention::run(const SequenceOp& op, const Call& call) {
  const auto event = [&](int number) -> Event& { return events_[static_cast<std::size_t>(number)]; };
  const auto world_rank = [&](int rank) { return team_[static_cast<std::size_t>(rank)]; };
  const auto semaphore = [&](int flag) {
    return reinterpret_cast<Semaphore*>(address({SequencePlace::Area::symmetric, memory_.flag(flag)}));
  };
  Stream& stream = call.stream(*this, lane_of(op));
  const SpanName name = span_of(op);
  std::optional<Span> span;
  if (!name.name.empty()) span.emplace(stream, name.name, name.index);
  if (waits_) {
    const std::chrono::duration<double> time(sequence_compute_seconds(memory_, rank_, op, *waits_));
    if (time.count() > 0) return stream.enqueue([time](ThreadPool&) { std::this_thread::sleep_for(time); });
  }
  if (std::holds_alternative<SequenceSplit>(op)) {
    split_heads(call.q, q_pieces_, call.lane);
    split_heads(call.k, k_pieces_, call.lane);
    split_heads(call.v, v_pieces_, call.lane);
  } else if (std::holds_alternative<SequenceJoin>(op)) {
    join_heads(o_pieces_, call.y, call.lane);
  } else if (const auto* attend = std::get_if<SequenceAttend>(&op)) {
    piece_attention({.layout = &layouts_[call.num_attends],
                     .scale = call.scale,
                     .start = attend->start,
                     .end = attend->end,
                     .mask = memory_.shape().mask},
                    call.lane);
  } else if (const auto* move = std::get_if<SequenceMove>(&op)) {
    const auto [peer, here, there, bytes] = transfer_of(*move);
    if (move->direction == SequenceMove::Direction::push)
      fabric_.put(stream, peer, there, here, bytes);
    else
      fabric_.get(stream, peer, here, there, bytes);
  } else if (const auto* record = std::get_if<SequenceRecord>(&op)) {
    event(record->event).record(stream);
  } else if (const auto* await = std::get_if<SequenceAwait>(&op)) {
    stream.wait(event(await->event));
  } else if (const auto* signal = std::get_if<SequenceSignal>(&op)) {
    fabric_.signal_next(stream, world_rank(signal->peer), semaphore(signal->flag));
  } else if (const auto* take = std::get_if<SequenceTake>(&op)) {
    fabric_.wait_next(stream, world_rank(take->from), semaphore(take->flag), "sequence piece");
  } else if (const auto* barrier = std::get_if<SequenceBarrier>(&op)) {
    std::vector<int> ranks;
    ranks.reserve(barrier->ranks.size());
    for (const int rank : barrier->ranks) ranks.push_back(world_rank(rank));
    fabric_.barrier(stream, ranks);
  }
}

void SequenceAttention::replace_computation(const SequenceRates& rates) {
  require(fabric_.device().kind == DeviceKind::cpu, "sequence attention: only streams of the CPU wait by the clock");
  waits_ = rates;
}

void SequenceAttention::synchronize(Stream& stream) {
  std::exception_ptr first;
  // All three, also when one has failed: what they still do uses this object. The transfers know the reason first.
  for (Stream* each : {&other_, &ring_, &stream}) {
    try {
      fabric_.synchronize(*each);
    } catch (...) {
      if (first == nullptr) first = std::current_exception();
    }
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace heddle
