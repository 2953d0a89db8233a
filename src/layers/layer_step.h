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
  Arena& arena;             // what blocks take of it is their own until they return (LayerScratch)
  Lane lane;                // its workspace is that of matrices
  TransferLane* transfers;  // null: nothing overlaps
  LayerDTypes dtypes;
  Tensor residual;    // [num_tokens, hidden], float32
  Tensor delta;       // [num_tokens, hidden], dtypes.deltas: where blocks leave what they produce
  Tensor normalized;  // [num_tokens, hidden], dtypes.activations: what blocks compute from
  int part = 0;       // of the step, where its blocks run in parts

  // A step on a GPU begins with a copy of its arrays, so all that earlier steps wrote is there. What an earlier part of
  // this step writes is not.
  OlderKeys older_keys() const { return part == 0 ? OlderKeys::in_place : OlderKeys::in_flight; }
};

// Takes workspace and residual from the arena, delta and normalized as the strategy has them. `hidden`: the model's width.
LayerStep begin_step(Strategy& strategy, const StepTensors& tensors, const KvPages& kv, Arena& arena,
                     const Execution& execution, const LayerDTypes& dtypes, std::int64_t hidden);

// The blocks of a model in their order, `count` of them: block i normalises with norm(i), and then compute(i, part) leaves
// in part.delta what it makes of part.normalized. Runs them on each part of the step, and returns what they leave.
Hidden run_blocks(const LayerStep& step, int count, FunctionRef<Norm(int)> norm,
                  FunctionRef<void(int, const LayerStep& part)> compute);

// The same for a step whose choice of attention is fused (StepChoices::decode), where every other block, from the first on,
// is attention: fused(i, before, after) reads the residual and what is pending, and writes both anew. All tensors are the
// step's, in one part.
Hidden run_fused_blocks(const LayerStep& step, int count, FunctionRef<Norm(int)> norm,
                        FunctionRef<void(int, const LayerStep& part)> compute,
                        FunctionRef<void(int, const Hidden& before, const Hidden& after)> fused);

// The step's sequences as attention reads them, with the page tables of the cache.
PagedSequences sequences_of(const StepTensors& step);

// The planes of the cache that hold a layer's keys and values; they may be one.
struct KeyValuePlanes {
  int keys, values;
};

// A layer's pages as attention reads and writes them.
PagedKv pages_of(const LayerStep& step, int layer, KeyValuePlanes planes);

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
