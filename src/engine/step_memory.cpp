#include "engine/step_memory.h"

#include <algorithm>
#include <set>

#include "base/checked.h"
#include "base/stand_in.h"
#include "engine/token_history.h"
#include "fused/decode_block.h"
#include "kernels/linear/gemm_tile.h"
#include "kernels/linear/linear.h"

namespace heddle {
namespace {

// Decode steps of more sequences than kExactBatch are computed with a multiple of kFineBatch: more sequences cost less
// than another graph, as the weights are read all the same. Below, they do not: 9 filled up to 16 took 5.29 ms a step
// of llama-3-8b, where 12 took 4.77 and the operators of 9 alone 4.62.
constexpr int kExactBatch = 16;
constexpr int kFineBatch = 8;
constexpr int kManySequences = 64;
constexpr int kCoarseBatch = 32;

bool on_gpu(const Model& model) {
  return model.device().kind == DeviceKind::cuda;
}

int most_decoding(const StepLimits& limits) {
  return std::min({limits.max_sequences, limits.max_tokens, limits.max_samples});
}

// The shape cut behind so many tokens. Its first sequence has the most new tokens, the others one each.
PartShapes cut(const StepShape& shape, int border) {
  const int longest = shape.max_query_len;
  const int whole_before = std::max(border - longest, 0);  // sequences of one token in the first part
  const bool within_longest = border < longest;
  return {PartShape{.first_token = 0,
                    .num_tokens = border,
                    .first_sequence = 0,
                    .num_sequences = 1 + whole_before,
                    .max_query_len = std::min(border, longest)},
          PartShape{.first_token = border,
                    .num_tokens = shape.num_tokens - border,
                    .first_sequence = within_longest ? 0 : 1 + whole_before,
                    .num_sequences = shape.num_sequences - (within_longest ? 0 : 1 + whole_before),
                    .max_query_len = within_longest ? longest - border : 1}};
}

// Calls f(step) for the dry run of each shape.
template <class F>
void each_dry_step(Model& model, const ExecutorLimits& limits, const F& f) {
  for (const StepShape& shape : shapes_in_every_way(limits)) f(run_dry(model, limits, shape));
}

}  // namespace

KvPages cache_shape(const Model& model, const ExecutorLimits& limits) {
  const int num_spare = on_gpu(model) ? spare_pages_for(kCoarseBatch - 1, limits.page_size) : 0;
  return model.shape().kv_pages(limits.page_size, limits.num_pages + num_spare);
}

int graph_batch(int num_sequences) {
  if (num_sequences <= kExactBatch) return num_sequences;
  return round_up(num_sequences, num_sequences <= kManySequences ? kFineBatch : kCoarseBatch);
}

int decode_batch(int num_sequences, const ExecutorLimits& limits) {
  const int batch = graph_batch(num_sequences);
  // A page table must have room for the pages of the sequences that are added.
  const bool fits = spare_pages_for(batch - num_sequences, limits.page_size) <= limits.step.max_pages_per_sequence;
  return fits ? std::min(batch, most_decoding(limits.step)) : num_sequences;
}

StepInputBytes input_bytes(const Model& model, const ExecutorLimits& limits) {
  const auto samples = static_cast<std::size_t>(limits.step.max_samples);
  // Each token of the vocabulary, or of the context and the biases, at most once.
  const std::int64_t longest = std::min(
      model.shape().vocab_size, std::int64_t{limits.step.max_pages_per_sequence} * limits.page_size + kMostLogitBiases);
  return {.arrays = placed_bytes(limits.step),
          .samples = samples * sizeof(SampleRow),
          .histories = samples * static_cast<std::size_t>(longest) * sizeof(HistoryToken)};
}

StepInputs take_inputs(const Model& model, const ExecutorLimits& limits, Arena& arena) {
  if (!on_gpu(model)) return {};
  const StepInputBytes bytes = input_bytes(model, limits);
  StepInputs inputs;
  inputs.arrays = static_cast<std::byte*>(arena.take_bytes(bytes.arrays));
  inputs.samples = static_cast<SampleRow*>(arena.take_bytes(bytes.samples));
  inputs.histories = static_cast<HistoryToken*>(arena.take_bytes(bytes.histories));
  return inputs;
}

DryStep run_dry(Model& model, const ExecutorLimits& limits, const StepShape& shape) {
  Arena arena = Arena::measuring();
  const StepInputs inputs = take_inputs(model, limits, arena);
  std::byte* const arrays = inputs.arrays != nullptr ? inputs.arrays : stand_in_memory();
  KvPages kv = cache_shape(model, limits);
  kv.data = stand_in_memory();
  DryRun run(model.device());
  model.run(tensors_at(arrays, shape, limits.step), kv, arena, run.lane());
  return {.arena_bytes = arena.peak_bytes(),
          .symmetric = {.exchanges = run.symmetric_bytes(), .rows = run.symmetric_row_bytes()},
          .calls = run.calls()};
}

LayerTiles layer_tiles(Model& model, const ExecutorLimits& limits, const Lane& lane) {
  // As large a workspace as a step's GEMMs have: cuBLASLt's choice depends on it, and with none it has no GEMM for some
  // numbers of SMs. Nothing is written.
  const Lane asked = lane.with({stand_in_memory(), linear_workspace_bytes(lane.stream.device())});
  const int tokens = limits.step.max_tokens;
  const DryStep step =
      run_dry(model, limits, {.num_tokens = tokens, .num_sequences = 1, .num_logit_rows = 0, .max_query_len = tokens});
  LayerTiles tiles{.kernels = {}, .num_sms = std::max(1, lane.num_sms)};
  const auto add = [&](const GemmTile& tile, std::int64_t features) {
    tiles.kernels.push_back({.tile_tokens = tile.tokens,
                             .blocks_per_tile = static_cast<int>(ceil_div<std::int64_t>(features, tile.features))});
  };
  std::set<LinearRole> seen;
  for (const OperatorCall& call : step.calls) {
    const auto* const plain = std::get_if<LinearParams>(&call);
    const auto* const gated = std::get_if<LinearSwigluParams>(&call);
    if (plain == nullptr && gated == nullptr) continue;
    const LinearParams& gemm = plain != nullptr ? *plain : gated->gate_up;
    if (gemm.role == LinearRole::alone || gemm.role == LinearRole::logits || !seen.insert(gemm.role).second) continue;
    add(plain != nullptr ? gemm_tile(*plain, asked) : gemm_tile(*gated, asked), gemm.weight.out_features);
  }
  return tiles;
}

std::vector<StepShape> largest_shapes(const ExecutorLimits& limits) {
  std::vector<StepShape> shapes;
  for (int batch = 0; batch < most_decoding(limits.step);) {
    batch = decode_batch(batch + 1, limits);
    shapes.push_back({.num_tokens = batch, .num_sequences = batch, .num_logit_rows = batch, .max_query_len = 1});
  }
  // Logits of some rows take more than those of all: the rows are gathered.
  const auto add_chunks = [&](int num_tokens, int num_rows) {
    for (const int num_sequences : {1, std::min(limits.step.max_sequences, num_tokens)})
      shapes.push_back({.num_tokens = num_tokens,
                        .num_sequences = num_sequences,
                        .num_logit_rows = num_rows,
                        .max_query_len = num_tokens - num_sequences + 1});
  };
  const int most_tokens = limits.step.max_tokens, most_rows = std::min(limits.step.max_samples, most_tokens);
  add_chunks(most_tokens, 0);
  add_chunks(most_tokens, std::min(most_rows, most_tokens - 1));
  add_chunks(most_rows, most_rows);
  // More sequences of a token each than have logits: a model may take another path for them.
  const int most_sequences = std::min(limits.step.max_sequences, most_tokens);
  for (const int num_rows : {0, std::min(limits.step.max_samples, most_sequences)})
    shapes.push_back({.num_tokens = most_sequences,
                      .num_sequences = most_sequences,
                      .num_logit_rows = num_rows,
                      .max_query_len = 1});
  return shapes;
}

std::vector<StepShape> shapes_in_every_way(const ExecutorLimits& limits) {
  std::vector<StepShape> shapes;
  for (StepShape shape : largest_shapes(limits)) {
    const std::set<int> borders =
        limits.step.max_parts > 1 ? std::set{1, shape.num_tokens / 2, shape.num_tokens - 1} : std::set<int>{};
    shape.choices = {.sums = SumForm::separate, .decode = {.form = DecodeChoice::Form::clusters}};
    const bool decodes = shape.max_query_len == 1 && shape.num_logit_rows == shape.num_tokens;
    if (limits.step.fused_decode && decodes && shape.num_tokens <= kMostBlockTokens) shapes.push_back(shape);
    shape.choices = {};
    for (const SumForm form : {SumForm::of_mode, SumForm::separate, SumForm::fused}) {
      shape.choices.sums = form;
      shape.parts = {};
      shapes.push_back(shape);
      for (const int border : borders) {
        if (border < 1 || border >= shape.num_tokens) continue;
        shape.parts = cut(shape, border);
        shapes.push_back(shape);
      }
    }
  }
  return shapes;
}

std::size_t step_bytes(Model& model, const ExecutorLimits& limits) {
  std::size_t most = 0;
  each_dry_step(model, limits, [&](const DryStep& step) { most = std::max(most, step.arena_bytes); });
  return most;
}

SymmetricStepBytes symmetric_step_bytes(Model& model, const ExecutorLimits& limits) {
  SymmetricStepBytes most;
  each_dry_step(model, limits, [&](const DryStep& step) { most = max(most, step.symmetric); });
  return most;
}

}  // namespace heddle
