// Runs a model step by step without an engine: the test chooses the chunks of sequences.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/error.h"
#include "engine/executor.h"
#include "engine/page_allocator.h"
#include "engine/rank_group.h"
#include "fused/all_reduce_norm/all_reduce_norm.h"
#include "fused/decode_block.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle {

inline std::filesystem::path golden_folder(const std::string& name) {
  return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama" / name;
}

class LlamaRunner {
 public:
  struct Sequence {
    PageTable pages;
    std::vector<std::int32_t> tokens;  // so far
  };

  struct Options {
    int threads = 1;
    int page_size = 4;
    int num_pages = 64;
    int max_sequences = 8;
    int max_tokens = 64;  // of a step
    int num_sms = 0;      // of a GPU; 0: all
    std::optional<DType> dtype;
    Device device;
    int ranks = 1;          // threads of this process
    int context_ranks = 1;  // of them, that divide the keys and values
    TpMode tp_mode = TpMode::standard;
    std::optional<AllReduceNormRegime> regime;    // of the fused operator; nothing: by size
    std::function<SumForm(int num_tokens)> sums;  // of a step; empty: as the mode does
    // Where a step of so many tokens is cut in two parts (StepPlan::prefix_tokens); not within it: it stays whole. Empty:
    // no step is cut.
    std::function<int(int num_tokens)> border;
    // How attention is computed in steps of one new token a sequence, of kMostBlockTokens at most.
    DecodeChoice decode;
  };

  LlamaRunner(const std::filesystem::path& folder, const Options& options)
      : LlamaRunner(load_ranks(Checkpoint(folder),
                               {.device = options.device,
                                .dtype = options.dtype,
                                .tp_mode = options.tp_mode,
                                .context_ranks = options.context_ranks},
                               options.ranks),
                    options) {}

  LlamaRunner(std::unique_ptr<Model> model, const Options& options)
      : LlamaRunner(one_rank(std::move(model)), options) {}

  static RankModels forced(RankModels ranks, std::optional<AllReduceNormRegime> regime) {
    for (std::size_t rank = 0; regime && rank < ranks.size(); ++rank)
      ranks[rank].world->all_reduce_norm(static_cast<int>(rank))->force(regime);
    return ranks;
  }

  LlamaRunner(RankModels ranks, const Options& options)
      : limits_({.step = {.max_tokens = options.max_tokens,
                          .max_sequences = options.max_sequences,
                          .max_samples = options.max_tokens,
                          .max_pages_per_sequence = options.num_pages,
                          .max_parts = options.border ? kMostParts : 1,
                          .fused_decode = options.decode.fused()},
                 .page_size = options.page_size * options.context_ranks,
                 .num_pages = options.num_pages,
                 .num_sms = options.num_sms}),
        model_(*ranks.front().model),
        ranks_(forced(std::move(ranks), options.regime), limits_, options.threads),
        pages_(options.num_pages),
        border_(options.border),
        sums_(options.sums),
        decode_(options.decode) {}

  Executor& executor() { return ranks_.first(); }
  PageAllocator& pages() { return pages_; }
  Sequence sequence() { return {PageTable(pages_, limits_.page_size), {}}; }

  struct Chunk {
    Sequence* sequence;
    std::vector<std::int32_t> tokens;
  };

  // One step in which each chunk follows its sequence's tokens. Returns the logits of all new tokens, chunk after
  // chunk.
  std::vector<std::vector<float>> step(const std::vector<Chunk>& chunks) {
    plan_.clear();
    for (const Chunk& chunk : chunks) {
      Sequence& sequence = *chunk.sequence;
      const auto computed = static_cast<std::int32_t>(sequence.tokens.size());
      const auto count = static_cast<std::int32_t>(chunk.tokens.size());
      sequence.tokens.insert(sequence.tokens.end(), chunk.tokens.begin(), chunk.tokens.end());
      require(sequence.pages.grow(computed + count, plan_.page_copies), "test: out of pages");
      const auto first_token = static_cast<std::int32_t>(plan_.tokens.size());
      const auto pages = sequence.pages.pages();
      plan_.sequences.push_back({.first_token = first_token,
                                 .num_tokens = count,
                                 .context_len = computed + count,
                                 .first_page = static_cast<std::int32_t>(plan_.pages.size()),
                                 .num_pages = static_cast<std::int32_t>(pages.size())});
      plan_.pages.insert(plan_.pages.end(), pages.begin(), pages.end());
      for (std::int32_t i = 0; i < count; ++i) {
        plan_.tokens.push_back(chunk.tokens[static_cast<std::size_t>(i)]);
        plan_.positions.push_back(computed + i);
        plan_.samples.push_back({.sequence = static_cast<std::int32_t>(plan_.sequences.size()) - 1,
                                 .row = first_token + i,
                                 .position = computed + i + 1,
                                 .params = {}});
      }
    }
    const auto num_tokens = static_cast<int>(plan_.tokens.size());
    const int border = border_ ? border_(num_tokens) : 0;
    plan_.prefix_tokens = border > 0 && border < num_tokens ? border : 0;
    const bool decodes = is_decode(plan_) && num_tokens <= kMostBlockTokens && plan_.prefix_tokens == 0;
    plan_.choices = {.sums = sums_ ? sums_(num_tokens) : SumForm::of_mode,
                     .decode = decodes ? decode_ : DecodeChoice{}};
    if (plan_.choices.decode.fused()) plan_.choices.sums = SumForm::separate;
    num_fused_ += plan_.choices.decode.fused() ? 1 : 0;
    const Tensor logits = ranks_.run(plan_);
    std::vector<std::vector<float>> rows;
    for (std::int64_t i = 0; i < logits.rows; ++i) {
      const auto row = logits_row(logits, i);
      rows.emplace_back(row.begin(), row.end());
    }
    return rows;
  }

  // From now on; made with another that is fused, whose memory is that of all.
  void choose_decode(const DecodeChoice& decode) { decode_ = decode; }
  int num_fused() const { return num_fused_; }  // steps with fused attention, so far

  // The tokens that the device chooses from the logits of the last step, which is computed once more.
  std::vector<std::int32_t> choose(const SamplingParams& params) {
    for (StepSample& sample : plan_.samples) sample.params = params;
    const auto tokens = executor().sample(plan_);
    return {tokens.begin(), tokens.end()};
  }

  // Starts the last step once more, and tokens are to be chosen from its logits: for recording all that an executor
  // launches, after which this runner is of no more use.
  void start_last_step() { executor().start(plan_, Outcome::tokens); }

  // Enqueues the model's part of the last step once more, as the executor does, with arrays that must not be read: for
  // recording what it launches.
  void enqueue_last_step(Arena& arena) {
    Buffer arrays(placed_bytes(limits_.step));
    const StepTensors step = place(plan_, limits_.step, arrays.data(), arrays.data());
    model_.run(step, executor().kv_pages(), arena, executor().lane());
  }
  std::size_t arena_bytes() { return step_bytes(model_, limits_); }  // of the executor's, which is enough

 private:
  ExecutorLimits limits_;
  Model& model_;  // rank 0's
  RankGroup ranks_;
  PageAllocator pages_;
  StepPlan plan_;
  std::function<int(int)> border_;
  std::function<SumForm(int)> sums_;
  DecodeChoice decode_;
  int num_fused_ = 0;
};

// The logits of all tokens of one sequence, in chunks of these lengths; the last is repeated.
inline std::vector<std::vector<float>> logits_in_chunks(LlamaRunner& runner, const std::vector<std::int32_t>& tokens,
                                                        const std::vector<std::size_t>& chunks) {
  auto sequence = runner.sequence();
  std::vector<std::vector<float>> all;
  for (std::size_t start = 0, chunk = 0; start < tokens.size(); ++chunk) {
    const std::size_t length = std::min(chunks[std::min(chunk, chunks.size() - 1)], tokens.size() - start);
    const auto first = tokens.begin() + static_cast<std::ptrdiff_t>(start);
    for (auto& row : runner.step({{&sequence, {first, first + static_cast<std::ptrdiff_t>(length)}}}))
      all.push_back(std::move(row));
    start += length;
  }
  return all;
}

}  // namespace heddle
