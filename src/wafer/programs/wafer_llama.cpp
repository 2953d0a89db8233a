#include "wafer/programs/wafer_llama.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "wafer/programs/prefill.h"
#include "wafer/programs/relayout.h"

namespace heddle {
namespace {

WaferModel shape_of(const LlamaConfig& config) {
  return {.num_layers = config.num_layers,
          .hidden = config.hidden,
          .intermediate = config.intermediate,
          .num_heads = config.num_heads,
          .num_kv_heads = config.num_kv_heads,
          .head_dim = config.head_dim,
          .vocab = narrow<int>(config.vocab_size, "vocab_size"),
          .tied_embedding = config.tie_embeddings};
}

WaferWeights wafer_weights(const LlamaConfig& config, const Llama::Weights& loaded) {
  const RopeFrequencies rope = rope_frequencies(config.rope, config.head_dim);
  WaferWeights weights{.shape = shape_of(config),
                       .embedding = loaded.embedding,
                       .layers = {},
                       .final_norm = loaded.head.norm,
                       .logits = loaded.head.logits,
                       .inv_freq = rope.inv_freq,
                       .rope_scale = rope.scale};
  for (std::size_t i = 0; i < loaded.layers.size(); ++i) {
    const Llama::Layer& layer = loaded.layers[i];
    weights.layers.push_back({.attention_norm = layer.attention.norm,
                              .qkv = layer.attention.qkv,
                              .query_norm = layer.attention.query_norm,
                              .key_norm = layer.attention.key_norm,
                              .output = layer.attention.output,
                              .feed_forward_norm = layer.feed_forward.norm,
                              .gate_up = layer.feed_forward.gated.gate_up,
                              .down = layer.feed_forward.gated.down,
                              .window = config.windows[i]});
  }
  return weights;
}

}  // namespace

WaferModel wafer_shape(const ModelSource& source) {
  return shape_of(parse_llama_config(source.config()));
}

WaferLlama::WaferLlama(const ModelSource& source, const WaferLlamaOptions& options, ThreadPool& pool)
    : config_(parse_llama_config(source.config())),
      loaded_(load_llama_weights(source, config_, options.load)),
      options_(options),
      pool_(pool),
      weights_(wafer_weights(config_, loaded_)),
      decode_(std::make_unique<WaferDecode>(weights_, options.cores, options.decode, pool)) {}

void WaferLlama::check(std::int32_t token) const {
  if (token < 0 || token >= shape().vocab)
    throw_error<InputError>("token {}, the model knows 0 to {}: is the tokenizer another model's?", token,
                            shape().vocab - 1);
}

std::vector<float> WaferLlama::prefill(std::span<const std::int32_t> prompt) {
  if (prompt.empty()) throw_error<InputError>("the prompt has no tokens");
  for (const std::int32_t token : prompt) check(token);
  KvRows(decode_->rows()).fill(std::ssize(prompt));  // throws before the work, not after
  decode_->clear();
  const WaferProgram& decode = options_.decode.program;
  const WaferMesh cores = options_.prefill_cores.value_or(options_.cores);
  const WaferPrompt computed = wafer_prefill(weights_, cores, prompt,
                                             {.all_reduce = decode.all_reduce,
                                              .device = decode.device,
                                              .regions = options_.prefill_regions,
                                              .spill = options_.spill},
                                             pool_);
  std::vector<float> logits = decode_->take(computed);
  cost_ = computed.cost;
  idle_core_bytes_ = computed.idle_core_bytes;
  if (options_.decode.program.device) {
    const Relayout layout{.prefill = cores,
                          .prefill_regions = options_.prefill_regions,
                          .spill = options_.spill,
                          .decode = options_.cores,
                          .decode_regions = decode.regions};
    const RelayoutCost transition = run_relayout(*decode.device, shape(), layout, decode_->rows());
    cost_.add_run("transition", transition.cycles, transition.hops_and_words, transition.basis);
    const WaferCost& first = decode_->cost();
    for (const auto& [name, cycles, basis] : first.breakdown)
      cost_.add(name == "hand-over" ? "hand-over to decode" : name == "token choice" ? name : "logits", cycles, basis);
    cost_.memory_bytes = std::max(cost_.memory_bytes, first.memory_bytes);
    cost_.routes = std::max(cost_.routes, first.routes);
  }
  return logits;
}

std::vector<float> WaferLlama::decode(std::int32_t token) {
  check(token);
  std::vector<float> logits = decode_->decode(token);
  cost_ = decode_->cost();
  return logits;
}

}  // namespace heddle
