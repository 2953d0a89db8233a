// ClusterReduce and ClusterGather (ClusterFusion, Alg. 1 and 2): log2 N rounds with doubling stride. N is a power of two;
// the paper's clusters have at most 16 blocks.
//
//   ClusterReduce   a message is the whole buffer D, added to (or max'ed with) the receiver's: at the end all ranks
//                   have the result. What arrives needs a second buffer (B in the paper) because D is being sent.
//                   Traffic_Reduce(size, N) = size * log2(N) * N bytes in the cluster
//   ClusterGather   messages double: in round i a rank sends the 2^i segments that it has.
//                   Traffic_Gather(size, N) = size * (2^(log2(N/2) + 1) - 1) * N = size * (N - 1) * N bytes
//
// With whom a rank exchanges messages (Peers):
//
//   pairs    rank xor stride, as in recursive doubling. Both ranks of a pair add the same two numbers, so all ranks end
//            with the same bits. Segment i of every rank holds the data of rank i.
//   offset   the paper's: a rank sends to rank + stride and receives from rank - stride (mod N). Each rank adds in another
//            order (N = 4: (d0+d3)+(d2+d1) on rank 0, (d1+d0)+(d3+d2) on rank 1), so float sums differ between ranks in
//            their low-order bits. Segment i of rank r holds the data of rank r - i: whoever reads them asks segment_of().
#pragma once

#include <cstdint>
#include <initializer_list>

#include "schedule/proofs.h"
#include "schedule/transfer.h"

namespace heddle::schedule {

enum class Peers { pairs, offset };

struct ClusterReduce {
  int size;  // precondition of both: supports(size)
  Peers peers = Peers::pairs;

  static constexpr const char* kName = "ClusterReduce";
  static constexpr const char* kTeams = "a power of two of ranks";
  static constexpr bool supports(int size) { return is_power_of_two(size); }
  constexpr int steps() const { return log2_exact(size); }
  constexpr int pieces() const { return 1; }
  constexpr int traffic() const { return log2_exact(size); }  // buffers that each rank sends

  // Precondition: 0 <= rank < size, 0 <= step < steps().
  constexpr Transfer at(int rank, int step) const {
    require_step(*this, rank, step);
    const int stride = 1 << step;
    if (peers == Peers::pairs) return {.to = rank ^ stride, .from = rank ^ stride, .reduce = true};
    return {.to = mod(rank + stride, size), .from = mod(rank - stride, size), .reduce = true};
  }

  constexpr bool ends_with(int, int) const { return true; }
};

struct ClusterGather {
  int size;
  Peers peers = Peers::pairs;

  static constexpr const char* kName = "ClusterGather";
  static constexpr const char* kTeams = "a power of two of ranks";
  static constexpr bool supports(int size) { return is_power_of_two(size); }
  constexpr int steps() const { return log2_exact(size); }
  constexpr int pieces() const { return size; }
  constexpr int traffic() const { return size - 1; }  // segments that each rank sends

  // As ClusterReduce's. Sends from and receives into the same buffer.
  constexpr Transfer at(int rank, int step) const {
    require_step(*this, rank, step);
    const int stride = 1 << step;
    if (peers == Peers::pairs) {
      const int peer = rank ^ stride;
      return {.to = peer, .from = peer, .send = rank & ~(stride - 1), .receive = peer & ~(stride - 1), .count = stride};
    }
    return {.to = mod(rank + stride, size),
            .from = mod(rank - stride, size),
            .send = 0,
            .receive = stride,
            .count = stride};
  }

  // The segment of rank `rank`'s buffer that holds rank `owner`'s data: its own at the start, all at the end. It is its own
  // inverse: the rank whose data lie in segment `owner`.
  constexpr int segment_of(int rank, int owner) const {
    return peers == Peers::pairs ? owner : mod(rank - owner, size);
  }

  constexpr int piece_sent(int rank, int slot) const { return segment_of(rank, slot); }
  constexpr int piece_received(int rank, int slot) const { return segment_of(rank, slot); }
  constexpr bool starts_with(int rank, int piece) const { return rank == piece; }
  constexpr bool ends_with(int, int) const { return true; }
};

// Bytes through a cluster's shared memory, by the paper's formulas. `size_bytes` is the size of D in Alg. 1, of one
// segment in Alg. 2.
constexpr std::int64_t cluster_reduce_traffic_bytes(std::int64_t size_bytes, int size) {
  return size_bytes * log2_exact(size) * size;
}
constexpr std::int64_t cluster_gather_traffic_bytes(std::int64_t size_bytes, int size) {
  if (size == 1) return 0;  // the paper's clusters begin with two blocks
  const std::int64_t segments = (std::int64_t{1} << (log2_exact(size / 2) + 1)) - 1;
  return size_bytes * segments * size;
}

static_assert(ProvedReduce<ClusterReduce{1}, ClusterReduce{2}, ClusterReduce{4}, ClusterReduce{8}, ClusterReduce{16},
                           ClusterReduce{4, Peers::offset}, ClusterReduce{16, Peers::offset}>::holds);
static_assert(ProvedGather<ClusterGather{1}, ClusterGather{2}, ClusterGather{4}, ClusterGather{8}, ClusterGather{16},
                           ClusterGather{4, Peers::offset}, ClusterGather{16, Peers::offset}>::holds);
static_assert(reads_and_writes_apart(ClusterGather{16}) && reads_and_writes_apart(ClusterGather{16, Peers::offset}));

// Bytes of all messages of all ranks, counted one by one; a slot has `slot_bytes`.
template <class S>
constexpr std::int64_t bytes_sent(const S& s, std::int64_t slot_bytes) {
  std::int64_t bytes = 0;
  for (int rank = 0; rank < s.size; ++rank)
    for (int step = 0; step < s.steps(); ++step) bytes += s.at(rank, step).count * slot_bytes;
  return bytes;
}
constexpr bool bytes_are_the_papers(int size) {
  for (const Peers peers : {Peers::pairs, Peers::offset})
    if (cluster_reduce_traffic_bytes(3, size) != bytes_sent(ClusterReduce{size, peers}, 3) ||
        cluster_gather_traffic_bytes(3, size) != bytes_sent(ClusterGather{size, peers}, 3))
      return false;
  return true;
}
static_assert(bytes_are_the_papers(1) && bytes_are_the_papers(2) && bytes_are_the_papers(4) &&
                  bytes_are_the_papers(8) && bytes_are_the_papers(16),
              "proof failed: bytes_are_the_papers");

template <class S>
constexpr bool supports_powers_of_two_alone() {
  for (int size = -1; size <= 33; ++size)
    if (S::supports(size) != (size == 1 || size == 2 || size == 4 || size == 8 || size == 16 || size == 32))
      return false;
  return true;
}
static_assert(supports_powers_of_two_alone<ClusterReduce>() && supports_powers_of_two_alone<ClusterGather>(),
              "proof failed: supports");

}  // namespace heddle::schedule
