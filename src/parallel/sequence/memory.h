// Where the pieces of one attention layer lie on each rank, as offsets that every rank computes for all.
#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "fused/piece_attention/piece_attention.h"
#include "parallel/sequence/mesh.h"
#include "schedule/bordered_ring.h"

namespace heddle {

// One attention layer over the whole sequence. Text tokens are tokens like others. Rank i of the team holds the tokens
// before rank i + 1's.
struct SequenceShape {
  int batch = 1;
  int num_heads = 0;
  int head_dim = 0;
  DType dtype = DType::float32;
  PieceMask mask = PieceMask::full;
  std::vector<int> tokens;  // of each rank of the team; any numbers, also 0

  std::int64_t num_tokens() const;
};

// A shape whose ranks hold equal numbers of tokens, or one more on the first.
SequenceShape even_sequence(const SequenceShape& of, std::int64_t num_tokens, int ranks);

// A rank's memory is two areas. Peers reach the symmetric one, in which all offsets below lie unless they say so.
class SequenceMemory {
 public:
  // Throws InvalidArgument unless there is one number of tokens for each rank and the heads divide by the groups.
  SequenceMemory(const SequenceMesh& mesh, const SequenceShape& shape);

  const SequenceMesh& mesh() const { return mesh_; }
  const SequenceShape& shape() const { return shape_; }

  int group_heads() const { return shape_.num_heads / mesh_.groups(); }
  int tokens(int group, int ring_place) const { return shape_.tokens[mesh_.rank(group, ring_place)]; }
  int first_position(int group, int ring_place) const { return first_positions_[mesh_.rank(group, ring_place)]; }
  // Of one group's heads, of the tokens of that rank: one of Q, K, V and O.
  std::int64_t piece_bytes(int group, int ring_place) const {
    return bytes_of_token_ * shape_.tokens[mesh_.rank(group, ring_place)];
  }

  // Q, or K with V behind it, of the tokens of the rank (group, place of `rank`), of the heads of `rank`. The pieces of
  // K and V lie in the order of groups without gaps, so those of a part are one transfer.
  std::int64_t query(int rank, int group) const;
  std::int64_t key_value(int rank, int group) const;
  // The same of the own tokens of `rank`, of the heads of `group`: what others pull or are sent. Of the rank's own group
  // it is query() and key_value().
  std::int64_t packed_query(int rank, int group) const;
  std::int64_t packed_key_value(int rank, int group) const;
  // Keys and values of a part that `rank` imports from a ring member on another machine (schedule/bordered_ring.h).
  std::int64_t import(int rank, int part, int ring_place) const;
  // O of the own tokens of `rank`, of the heads of `group`.
  std::int64_t output(int rank, int group) const;
  // Semaphore number `flag`.
  std::int64_t flag(int flag) const { return std::int64_t{16} * flag; }

  // In the private area: the two buffers of ring pulls; O of the tokens of `group` before it is sent.
  std::int64_t ring_buffer(int slot) const { return slot * ring_buffer_bytes_; }
  std::int64_t result(int rank, int group) const;

  schedule::BorderedRing ring_of(int rank) const;
  // What `rank` pulls in each step of its ring.
  const std::vector<schedule::RingPull>& ring_pulls(int rank) const {
    return ring_pulls_[static_cast<std::size_t>(rank)];
  }
  // Bytes of a part's keys and values at a ring member.
  std::int64_t part_bytes(int part, int ring_place) const;

  int num_flags() const { return mesh_.ring + 2 * mesh_.size(); }
  // The same on every rank.
  std::int64_t symmetric_bytes() const { return symmetric_bytes_; }
  std::int64_t private_bytes() const { return private_bytes_; }

 private:
  std::int64_t own_piece_bytes(int rank) const { return bytes_of_token_ * shape_.tokens[rank]; }
  // Bytes of Q of the groups before `group` in the ring place of `rank`.
  std::int64_t bytes_before(int rank, int group) const;

  SequenceMesh mesh_;
  SequenceShape shape_;
  std::vector<int> first_positions_;
  std::vector<std::vector<schedule::RingPull>> ring_pulls_;  // by rank
  std::vector<std::vector<std::int64_t>> import_places_;     // by rank; by part and ring place, -1: none
  std::int64_t bytes_of_token_ = 0;  // of one group's heads, in one of Q, K, V and O, for the whole batch
  std::int64_t queries_ = 0, keys_values_ = 0, packed_queries_ = 0, packed_keys_values_ = 0, imports_ = 0, outputs_ = 0;
  std::int64_t symmetric_bytes_ = 0, private_bytes_ = 0, ring_buffer_bytes_ = 0;
};

}  // namespace heddle
