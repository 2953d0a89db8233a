// The engine's interface to a language model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/device.h"
#include "base/dtype.h"
#include "base/tensor.h"
#include "kernels/attention/paged_kv.h"
#include "layers/attention.h"
#include "layers/compute.h"
#include "layers/experts.h"
#include "parallel/execution.h"
#include "parallel/registry.h"
#include "step/arena.h"
#include "step/kv_pages.h"
#include "step/step_plan.h"

namespace heddle {

struct LoadOptions {
  Device device;                                            // where the weights are loaded
  std::optional<DType> dtype;                               // of the weights; nothing: as stored
  Compute compute = Compute::automatic;                     // of matmuls with weights
  std::function<void(std::size_t bytes_done)> on_progress;  // of source.total_bytes(); may be empty
  TpMode tp_mode = TpMode::standard;                        // of several ranks; not automatic
  int context_ranks = 1;                                    // of several ranks: how many divide the keys and values
  ModelRank place;                                          // which part of the model, of how many
};

struct ModelShape {
  int num_layers = 0;
  KvLayout kv;    // the planes of its cache; of this rank, like bytes below
  KvShard shard;  // which positions of a sequence are in it
  std::int64_t vocab_size = 0;
  std::int64_t max_context = 0;           // positions the model was made for
  std::vector<std::int32_t> eos_ids;      // from config.json; may be empty
  DType dtype = DType::float32;           // of most weights
  std::size_t weight_bytes_per_step = 0;  // that a step of one token reads completely
  ExpertReads experts;                    // of which a larger step reads more
  // Of latent attention: the most new tokens of a sequence in a step that are computed absorbed, longer ones are expanded
  // (layers/latent_rows.h). Nothing: keys and values of all models else, or all tokens absorbed.
  std::optional<int> most_absorbed;
  std::size_t weight_bytes = 0;           // all weights in memory
  std::size_t delta_bytes_per_token = 0;  // of what a block adds to the hidden state: what ranks sum

  // The weights that a step of `num_tokens` tokens reads; of experts, those that routers are expected to choose.
  std::size_t weight_bytes_of_step(std::int64_t num_tokens) const {
    return weight_bytes_per_step + experts.bytes_beyond_one_token(num_tokens);
  }

  // Its cache, without memory. `page_size`: tokens of a page, a multiple of shard.ranks, of which each rank has as many.
  KvPages kv_pages(int page_size, int num_pages) const {
    return {.num_layers = num_layers, .num_pages = num_pages, .page_size = page_size / shard.ranks, .layout = kv};
  }
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelShape& shape() const = 0;
  virtual Device device() const { return {}; }  // where its weights are and run() works

  // Why a decode step cannot be computed with fused attention, for people; rank 0 asks before it chooses. Empty: it can.
  virtual std::string why_not_fused(const FusedDecode& decode) const {
    static_cast<void>(decode);
    return "this family's attention has no fused form";
  }

  // Enqueues one step, and no kernel of it takes more than the lane's SMs: reads `step`, reads and extends `kv`, takes its
  // tensors from `arena`. Returns the logits [num_logit_rows, vocab_size], float32, in the arena; they are valid once the
  // compute lane's stream has reached that point. Of a step in two parts, what crosses ranks may run on the lane of
  // transfers; all of it is done by then.
  // Preconditions: the step is valid (step/step_plan.h); the arena is zeroed before the first step, stands at the same
  // place in every step, and what lies behind it is used by this model only. On the lane of a dry run (dry_run.h)
  // nothing is enqueued and no memory is touched: what it takes depends on the step's shape and limits alone. On the CPU
  // the logits of a row depend on its sequence only, bit for bit, and with latent attention on ModelShape::most_absorbed. On a GPU the same step repeats bit for bit, and another
  // step size, or a step in parts, may change low-order bits.
  virtual Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, const Execution& execution) = 0;
};

}  // namespace heddle
