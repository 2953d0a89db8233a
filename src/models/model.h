// What the engine knows of a language model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/device.h"
#include "base/dtype.h"
#include "base/stream.h"
#include "base/tensor.h"
#include "step/arena.h"
#include "step/kv_pages.h"
#include "step/step_plan.h"

namespace heddle {

// Whether what is multiplied with weights is rounded first; it depends on this setting and on nothing else.
enum class Compute {
  // To the matrices' dtype, where all have the same: on the CPU bfloat16 alone, on a GPU float16, too. As PyTorch does;
  // sums are in float32.
  automatic,
  float32,  // never
};

struct LoadOptions {
  Device device;                                            // in whose memory the weights will lie
  std::optional<DType> dtype;                               // of the weights; nothing: as stored
  Compute compute = Compute::automatic;                     // of products with weights
  std::function<void(std::size_t bytes_done)> on_progress;  // of source.total_bytes(); may be empty
};

struct ModelShape {
  int num_layers = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  std::int64_t vocab_size = 0;
  std::int64_t max_context = 0;           // positions the model was made for
  std::vector<std::int32_t> eos_ids;      // by config.json; may be empty
  DType dtype = DType::float32;           // of most weights
  std::size_t weight_bytes_per_step = 0;  // weights that a step reads whole, whatever its batch
  std::size_t weight_bytes = 0;           // all weights in memory
};

class Model {
 public:
  virtual ~Model() = default;

  virtual const ModelShape& shape() const = 0;
  virtual Device device() const { return {}; }  // where its weights lie, and run() works

  // Arena bytes that run() takes for a step within these limits.
  virtual std::size_t arena_bytes(const StepLimits& limits) const = 0;

  // Enqueues one step on `stream`: reads `step`, reads and extends `kv`, takes its tensors from `arena`. Returns the
  // logits [num_logit_rows, vocab_size], float32, in the arena, valid once the stream has come that far.
  // The step must be valid (step/step_plan.h), the arena zeroed before the first step and afterwards its alone. On the
  // CPU a row's logits depend on its sequence alone, bit for bit; on a GPU last bits depend on the step's size, too,
  // and the same step gives the same bits.
  virtual Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena, Stream& stream) = 0;
};

}  // namespace heddle
