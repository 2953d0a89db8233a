// y = RMSNorm(residual += the sum of x over the ranks of a team): what follows each block of a model under tensor
// parallelism, in one operator (TokenWeave, sections 3.2 and 3.3). The norm stands between the two halves of the
// all-reduce: each token has one rank that sums its row, adds the residual and normalises, and only the normalised row
// goes to the others. So the residual is read and written once over all ranks, not once on each.
//
//   regime      tokens   how                                                          residual of a token
//   one_shot    few      every rank pushes its rows to all others, sums and            on every rank
//                        normalises all of them: one trip
//   two_phase   some     rows are pushed to their owners, normalised rows from them:   on its owner
//                        two trips; packets carry their own arrival
//   pipelined   many     the same in chunks with a flag each; some warps push, some    on its owner
//                        normalise, some copy out, so both directions stay busy;
//                        where x and y are symmetric, owners read and write them
//                        where they lie, and few SMs suffice
//
// The owner of a token is as rows() says. Sums are in float32, in rank order, and are not rounded before the residual is
// added. Every rank gets the same y, bit for bit; so does every run. On the CPU the bits of y and of the residual are
// those of an all_reduce in float32 followed by rmsnorm(), in every regime.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/lane.h"
#include "base/tensor.h"
#include "fabric/fabric.h"
#include "fabric/symmetric_memory.h"
#include "fused/all_reduce_norm/norm_memory.h"
#include "fused/shards.h"

namespace heddle {

struct NormForm;  // norm_form.h

enum class AllReduceNormRegime : std::uint8_t { one_shot, two_phase, pipelined };
std::string_view name_of(AllReduceNormRegime regime);  // "one_shot"
std::optional<AllReduceNormRegime> all_reduce_norm_regime_named(std::string_view name);

struct AllReduceNormParams {
  Tensor x;              // [num_tokens, hidden], this rank's partial sum; float32, bfloat16 or float16; any memory
  const void* weight{};  // [hidden], float32, likewise below
  Tensor residual;       // [num_tokens, hidden]; this rank reads and writes its own rows, in one_shot all
  Tensor y;              // [num_tokens, hidden], of any of the three dtypes; on a GPU x's, or any where x is float32
  float eps = 0;         // >= 0
  int num_sms = 0;       // of a GPU, 1 to 132, the same on every rank; 0: what suits the size, at most the lane's
  // Whether x and y lie in the fabric's symmetric heap, at the same places on every rank; every rank says the same, or all of
  // them wait in vain. In a pipelined call other ranks then read this rank's x and write its y, from when this rank's call
  // begins until it ends; on a GPU all tensors are then aligned to 16 bytes.
  bool symmetric = false;
};

// Sizes in bytes, of a rank's x but for row_bytes. 0: what suits the device.
struct AllReduceNormOptions {
  std::size_t one_shot_bytes = 0;   // up to which a call is one_shot
  std::size_t two_phase_bytes = 0;  // up to which it is two_phase
  std::size_t slots_bytes = 0;      // of a pipelined call's chunks on their way, per rank of the world
  std::size_t row_bytes = 0;        // of row_memory(); 0: there is none
};

// One for each rank and team. Constructed and destroyed as SymmetricMemory is. Calls follow each other without a barrier,
// on one stream at a time, or on several that events order; a captured graph may be replayed.
class AllReduceNorm {
 public:
  // Collective over the fabric's world: ranks that are not of the team make one of another team meanwhile. Throws
  // InvalidArgument for what is no team or a fabric without Capability::peer_addresses; Failure when the heap is too small.
  AllReduceNorm(Fabric& fabric, Ranks team, Stream& stream, const AllReduceNormOptions& options = {});
  AllReduceNorm(const AllReduceNorm&) = delete;
  AllReduceNorm& operator=(const AllReduceNorm&) = delete;

  // Of each rank's symmetric heap.
  static std::size_t heap_bytes(int world_size, Device device, const AllReduceNormOptions& options = {});

  // Enqueues; every rank of the team makes the same calls. Throws InvalidArgument unless shapes and dtypes fit, rows have
  // no gaps and why_not() is empty. A rank that does not come ends the others' waits at the fabric's deadline.
  void operator()(const AllReduceNormParams& params, const Lane& lane);

  // Why rows of `hidden` elements cannot be summed here; empty if they can.
  std::string why_not(std::int64_t hidden, DType x, DType y) const;
  // Of those reasons what is known without ranks: whether a device takes rows of so many elements.
  static constexpr bool takes_rows_of(std::int64_t hidden, DeviceKind device) {
    return device == DeviceKind::cpu || hidden % 8 == 0;
  }

  AllReduceNormRegime regime(std::int64_t num_tokens, std::int64_t hidden, DType x) const;
  // Whether a call of that shape leaves a token's residual on its owner alone.
  bool shards_residual(std::int64_t num_tokens, std::int64_t hidden, DType x) const {
    return size() > 1 && regime(num_tokens, hidden, x) != AllReduceNormRegime::one_shot;
  }
  // Who owns which tokens: even parts in rank order, the first ones larger by one.
  EvenShards rows(std::int64_t num_tokens) const { return EvenShards::of(num_tokens, size()); }

  // Makes later calls take that regime where it is possible: one_shot and two_phase need space, two_phase a token for each
  // rank. Every rank does the same, between calls. nullopt: by size again.
  void force(std::optional<AllReduceNormRegime> regime) { forced_ = regime; }

  // Symmetric memory for the x and y of calls, aligned to 256 bytes, which the caller divides alike on every rank.
  std::span<std::byte> row_memory() const { return {rows_, options_.row_bytes}; }
  bool in_row_memory(const Tensor& tensor) const;

  int rank() const { return peers_.rank; }
  int size() const { return peers_.size; }
  Fabric& fabric() const { return *fabric_; }

 private:
  bool is_direct(const AllReduceNormParams& params, AllReduceNormRegime regime) const;
  int blocks_for(const NormForm& form, std::int64_t num_tokens, int num_sms, const Lane& lane) const;

  Fabric* fabric_;
  SymmetricMemory heap_memory_;
  AllReduceNormOptions options_;
  Peers peers_;
  AllReduceNormMemory memory_;
  std::byte* rows_ = nullptr;
  std::optional<AllReduceNormRegime> forced_;
};

}  // namespace heddle
