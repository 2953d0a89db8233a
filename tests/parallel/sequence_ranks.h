// Sequence parallelism on the ranks of any fabric, beside attention of the whole sequence.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <vector>

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

// One rank's tokens of a whole attention.
class RankOperands {
 public:
  RankOperands(const SequenceCase& of, const WholeAttention& attention, int rank)
      : attention_(attention),
        first_(std::accumulate(of.tokens.begin(), of.tokens.begin() + rank, 0)),
        count_(of.tokens[static_cast<std::size_t>(rank)]),
        q_(tokens_of(attention.q)),
        k_(tokens_of(attention.k)),
        v_(tokens_of(attention.v)),
        y_(q_.size()) {}

  // Every layer's y begins as what no layer computes.
  void attend(SequenceAttention& layer, Stream& stream) {
    stream.enqueue([this](ThreadPool&) { std::ranges::fill(y_, std::byte{0xff}); });
    layer.attend(q_.data(), k_.data(), v_.data(), y_.data(), attention_.scale, stream);
  }
  void put_output(std::vector<float>& whole_y) const {
    for_tokens([&](std::size_t in_whole, std::size_t here, std::size_t n) {
      convert(y_.data() + here * size_of(attention_.dtype), attention_.dtype, whole_y.data() + in_whole, DType::float32,
              n);
    });
  }
  const std::vector<std::byte>& output() const { return y_; }
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

  const WholeAttention& attention_;
  int first_, count_;
  std::vector<std::byte> q_, k_, v_, y_;
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

inline FabricOptions options_for(const SequenceMemory& memory) {
  return {.heap_bytes = SequenceAttention::heap_bytes(memory), .deadline = std::chrono::seconds(60)};
}

}  // namespace heddle
