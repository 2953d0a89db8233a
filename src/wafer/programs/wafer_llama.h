// A model of the Llama family on a simulated wafer: computes with wafer/programs, in float32, from the same checkpoint
// as the CPU. One request at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "models/llama.h"
#include "wafer/programs/decode.h"

namespace heddle {

// The sizes from which the wafer's costs and capacities are computed. Throws as parse_llama_config does.
WaferModel wafer_shape(const ModelSource& source);

struct WaferLlamaOptions {
  WaferMesh cores;                              // of decode
  std::optional<WaferMesh> prefill_cores = {};  // none: the same
  WaferDecodeOptions decode;
  // Of prefill, whose device is decode's.
  int prefill_regions = 1;
  std::optional<CoreRectangle> spill = {};
  LoadOptions load;
};

class WaferLlama {
 public:
  // `pool` must outlive it. Throws as wafer_shape and load_llama do; Failure when memory is short.
  WaferLlama(const ModelSource& source, const WaferLlamaOptions& options, ThreadPool& pool);
  WaferLlama(const WaferLlama&) = delete;
  WaferLlama& operator=(const WaferLlama&) = delete;

  const WaferModel& shape() const { return weights_.shape; }
  std::span<const std::int32_t> eos_ids() const { return config_.eos_ids; }
  std::int64_t max_context() const { return config_.max_position; }
  const KvRows& rows() const { return decode_->rows(); }

  // Clears the KV cache, computes the prompt and returns the logits [vocab] after its last token. Throws InputError
  // when the prompt is empty, has unknown tokens, or does not fit into the KV cache.
  std::vector<float> prefill(std::span<const std::int32_t> prompt);

  // Adds a token and returns the next one's logits. Throws as prefill does.
  std::vector<float> decode(std::int32_t token);

  // The token that the cores chose from the last logits; -1 where they are not numbers.
  std::int32_t chosen() const { return decode_->chosen(); }

  // Of the last prefill or decode, on options.decode.program's device: cycles of the executed operations by part,
  // including logits. A prefill includes the transition to decode (relayout.h).
  const WaferCost& cost() const { return cost_; }
  // Of the fullest idle core that got keys and values of the last prefill.
  double idle_core_bytes() const { return idle_core_bytes_; }
  double idle_share() const { return decode_->idle_share(); }  // of the last decode (wafer/programs/decode.h)

 private:
  void check(std::int32_t token) const;

  LlamaConfig config_;
  Llama::Weights loaded_;
  WaferLlamaOptions options_;
  ThreadPool& pool_;
  WaferWeights weights_;
  std::unique_ptr<WaferDecode> decode_;
  WaferCost cost_;
  double idle_core_bytes_ = 0;
};

}  // namespace heddle
