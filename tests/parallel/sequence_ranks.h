// Sequence parallelism on the ranks of any fabric, beside attention of the whole sequence.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/buffer.h"
#include "base/copy.h"
#include "fabric/counted_fabric.h"
#include "fused/piece_attention/attention_oracle.h"
#include "parallel/sequence/sequence_attention.h"

namespace heddle {

struct SequenceCase {
  Placement placement;
  int num_heads, head_dim;
  std::vector<int> tokens;  // of each rank
  int batch = 1;
  DType dtype = DType::float32;
  PieceMask mask = PieceMask::full;
  std::optional<int> degree = {};
};

inline SequenceShape shape_of(const SequenceCase& of) {
  return {of.batch, of.num_heads, of.head_dim, of.dtype, of.mask, of.tokens};
}

inline WholeAttention whole(const SequenceCase& of, unsigned seed = 1) {
  const int tokens = static_cast<int>(shape_of(of).num_tokens());
  const std::size_t count = static_cast<std::size_t>(of.batch) * tokens * of.num_heads * of.head_dim;
  return {.batch = of.batch,
          .num_heads = of.num_heads,
          .num_kv_heads = of.num_heads,
          .head_dim = of.head_dim,
          .num_queries = tokens,
          .num_keys = tokens,
          .scale = 1 / std::sqrt(static_cast<float>(of.head_dim)),
          .mask = of.mask,
          .dtype = of.dtype,
          .q = normal_numbers(count, seed, of.dtype),
          .k = normal_numbers(count, seed + 1, of.dtype),
          .v = normal_numbers(count, seed + 2, of.dtype)};
}

// One rank's tokens of a whole attention, in the memory of the stream's device.
class RankOperands {
 public:
  RankOperands(const SequenceCase& of, const WholeAttention& attention, int rank, Stream& stream)
      : attention_(attention),
        first_(std::accumulate(of.tokens.begin(), of.tokens.begin() + rank, 0)),
        count_(of.tokens[static_cast<std::size_t>(rank)]),
        wrong_(tokens_of(attention.q).size(), std::byte{0xff}),
        q_(on_device(tokens_of(attention.q), stream)),
        k_(on_device(tokens_of(attention.k), stream)),
        v_(on_device(tokens_of(attention.v), stream)),
        y_(on_device(wrong_, stream)) {}

  // Every layer's y begins as what no layer computes.
  void attend(SequenceAttention& layer, const Lane& lane) {
    clear_output(lane.stream);
    layer.attend(q_.data(), k_.data(), v_.data(), y_.data(), attention_.scale, lane);
  }
  // A layer as a graph; y, which it does not clear, is cleared by clear_output().
  Graph capture(SequenceAttention& layer, const Lane& lane) {
    return layer.capture(q_.data(), k_.data(), v_.data(), y_.data(), attention_.scale, lane);
  }
  void clear_output(Stream& stream) { enqueue_copy(stream, y_.data(), wrong_.data(), wrong_.size()); }
  void put_output(std::vector<float>& whole_y, Stream& stream) const {
    const std::vector<std::byte> y = output(stream);
    for_tokens([&](std::size_t in_whole, std::size_t here, std::size_t n) {
      convert(y.data() + here * size_of(attention_.dtype), attention_.dtype, whole_y.data() + in_whole, DType::float32,
              n);
    });
  }
  std::vector<std::byte> output(Stream& stream) const {
    std::vector<std::byte> y(wrong_.size());
    enqueue_copy(stream, y.data(), y_.data(), y.size());
    stream.synchronize();
    return y;
  }
  int first() const { return first_; }
  int count() const { return count_; }

 private:
  // Calls copy(first element in the whole, first element here, elements) for each member of the batch.
  template <class Copy>
  void for_tokens(const Copy& copy) const {
    const std::size_t row = static_cast<std::size_t>(attention_.num_heads) * attention_.head_dim;
    for (int b = 0; b < attention_.batch; ++b)
      copy((static_cast<std::size_t>(b) * attention_.num_queries + first_) * row,
           static_cast<std::size_t>(b) * count_ * row, count_ * row);
  }
  std::vector<std::byte> tokens_of(const std::vector<float>& x) const {
    const std::size_t elements =
        static_cast<std::size_t>(attention_.batch) * count_ * attention_.num_heads * attention_.head_dim;
    std::vector<std::byte> part(elements * size_of(attention_.dtype) + 1);  // an address, also of a rank without tokens
    for_tokens([&](std::size_t in_whole, std::size_t here, std::size_t n) {
      convert(x.data() + in_whole, DType::float32, part.data() + here * size_of(attention_.dtype), attention_.dtype, n);
    });
    return part;
  }

  static Buffer on_device(const std::vector<std::byte>& bytes, Stream& stream) {
    Buffer buffer(bytes.size(), stream.device());
    enqueue_copy(stream, buffer.data(), bytes.data(), bytes.size());
    stream.synchronize();
    return buffer;
  }

  const WholeAttention& attention_;
  int first_, count_;
  std::vector<std::byte> wrong_;
  Buffer q_, k_, v_, y_;
};

// A fabric that is late at random: before a transfer or a message its stream sleeps.
class LateFabric : public CountedFabric {
 public:
  LateFabric(Fabric& inner, unsigned seed) : CountedFabric(inner), engine_(seed) {}

  void put(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override {
    sleep(stream);
    CountedFabric::put(stream, peer, destination, source, bytes);
  }
  void get(Stream& stream, int peer, void* destination, const void* source, std::size_t bytes) override {
    sleep(stream);
    CountedFabric::get(stream, peer, destination, source, bytes);
  }
  void signal_add(Stream& stream, int peer, std::uint64_t* flag, std::uint64_t value) override {
    sleep(stream);
    CountedFabric::signal_add(stream, peer, flag, value);
  }
  void barrier(Stream& stream, std::span<const int> team) override {
    sleep(stream);
    CountedFabric::barrier(stream, team);
  }

 private:
  void sleep(Stream& stream) {
    if (engine_() % 4 != 0) return;
    const std::chrono::microseconds time(engine_() % 500);
    stream.enqueue([time](ThreadPool&) { std::this_thread::sleep_for(time); });
  }

  std::minstd_rand engine_;
};

inline Ranks ranks_from(int first, int count) {
  Ranks ranks(static_cast<std::size_t>(count));
  std::iota(ranks.begin(), ranks.end(), first);
  return ranks;
}

// A rank's lane: of a GPU that ranks share, its share.
inline Lane rank_lane(const Fabric& fabric, Stream& stream) {
  const DeviceShare share = fabric.device_share();
  return share.ranks > 1 ? Lane(stream, share.sms) : Lane(stream);
}

// Runs layers of a strategy on this rank, alternating between two sets of operands. Teams of as many ranks as the case has divide
// the world, and run beside each other. Each set's first output is held to float64, the others to its bits. Returns what is
// off; empty: nothing.
inline std::string run_layers(Fabric& fabric, Stream& stream, SequenceStrategy strategy, const SequenceCase& of,
                              int layers) {
  const SequenceMesh mesh = make_sequence_mesh(strategy, of.placement, of.num_heads, of.degree);
  WholeAttention attentions[2] = {whole(of, 1), whole(of, 7)};
  for (WholeAttention& attention : attentions) attention.rounds_weights = fabric.device().kind == DeviceKind::cuda;
  const int ranks = of.placement.size(), place = fabric.rank() % ranks;
  RankOperands operands[2] = {{of, attentions[0], place, stream}, {of, attentions[1], place, stream}};
  SequenceAttention layer(fabric, ranks_from(fabric.rank() - place, ranks), strategy, mesh, shape_of(of));
  std::vector<std::byte> first[2];
  std::string off;
  int off_layers = 0;
  for (int i = 0; i < layers; ++i) {
    RankOperands& now = operands[i % 2];
    now.attend(layer, rank_lane(fabric, stream));
    layer.synchronize(stream);
    if (i >= 2) {
      off_layers += now.output(stream) != first[i % 2];
      continue;
    }
    first[i] = now.output(stream);
    std::vector<float> y(attentions[i].q.size());
    now.put_output(y, stream);
    off += first_miss(attentions[i], y, now.first(), now.count());
  }
  if (off_layers > 0) off += fmt::format("; {} layers have other bits than the first", off_layers);
  return off;
}

// The same on a GPU with layers that are replays of two graphs. Returns what is off; empty: nothing.
inline std::string run_replays(Fabric& fabric, Stream& stream, SequenceStrategy strategy, const SequenceCase& of,
                               int replays) {
  const SequenceMesh mesh = make_sequence_mesh(strategy, of.placement, of.num_heads, of.degree);
  const WholeAttention attentions[2] = {whole(of, 1), whole(of, 7)};
  RankOperands operands[2] = {{of, attentions[0], fabric.rank(), stream}, {of, attentions[1], fabric.rank(), stream}};
  SequenceAttention layer(fabric, ranks_from(0, of.placement.size()), strategy, mesh, shape_of(of));
  const Lane lane = rank_lane(fabric, stream);
  std::vector<std::byte> wanted[2];
  Graph graphs[2];
  for (int i = 0; i < 2; ++i) {
    operands[i].attend(layer, lane);
    layer.synchronize(stream);
    wanted[i] = operands[i].output(stream);
    graphs[i] = operands[i].capture(layer, lane);
  }
  int off = 0;
  for (int i = 0; i < replays; ++i) {
    operands[i % 2].clear_output(stream);
    graphs[i % 2].launch(stream);
    layer.synchronize(stream);
    off += operands[i % 2].output(stream) != wanted[i % 2];
  }
  return off == 0 ? "" : fmt::format("{} of {} replays have other bits than a layer that was enqueued", off, replays);
}

inline FabricOptions options_for(const SequenceMemory& memory) {
  return {.heap_bytes = SequenceAttention::heap_bytes(memory), .deadline = std::chrono::seconds(60)};
}

}  // namespace heddle
