// What the blocks of a model share while one step runs through them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "kernels/attention/paged_kv.h"
#include "layers/compute.h"
#include "parallel/strategy.h"
#include "step/arena.h"
#include "step/kv_pages.h"
#include "step/step_plan.h"

namespace heddle {

struct LayerStep {
  Strategy& strategy;
  const StepTensors& tensors;
  const KvPages& kv;
  Arena& arena;  // what blocks take of it is their own until they return (LayerScratch)
  Lane lane;     // its workspace is that of matrices
  LayerDTypes dtypes;
  Tensor residual;  // [num_tokens, hidden], float32
  Tensor delta;     // [num_tokens, hidden], dtypes.deltas: where blocks leave what they produce
};

// Takes workspace, residual and delta from the arena. `hidden`: the model's width.
LayerStep begin_step(Strategy& strategy, const StepTensors& tensors, const KvPages& kv, Arena& arena, const Lane& lane,
                     const LayerDTypes& dtypes, std::int64_t hidden);

// A step on a GPU begins with a copy of its arrays, so all that earlier steps wrote is there.
inline constexpr OlderKeys kOlderKeys = OlderKeys::in_place;

// The step's sequences as attention reads them, with the page tables of the cache.
PagedSequences sequences_of(const StepTensors& step);

// Tensors of a block are scratch: the next block reuses their memory, in stream order.
class LayerScratch {
 public:
  explicit LayerScratch(const LayerStep& step) : arena_(step.arena), mark_(step.arena.mark()) {}
  LayerScratch(const LayerScratch&) = delete;
  LayerScratch& operator=(const LayerScratch&) = delete;
  ~LayerScratch() { arena_.rewind(mark_); }

  Tensor take(std::int64_t rows, std::int64_t columns, DType dtype = DType::float32) {
    return arena_.take(rows, columns, dtype);
  }

 private:
  Arena& arena_;
  std::size_t mark_;
};

}  // namespace heddle
