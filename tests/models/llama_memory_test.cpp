// A step takes of memory what its dry run says, and blocks leave each other nothing there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <set>

#include "base/team.h"
#include "base/thread_pool.h"
#include "engine/rank_world.h"
#include "engine/step_memory.h"
#include "models/llama.h"
#include "models/llama_family.h"
#include "models/llama_runner.h"
#include "parallel/local.h"
#include "parallel/tensor.h"

namespace heddle {
namespace {

constexpr ExecutorLimits kLimits{
    .step = {.max_tokens = 12, .max_sequences = 5, .max_samples = 12, .max_pages_per_sequence = 4},
    .page_size = 4,
    .num_pages = 20};
constexpr int kEarlier = 2;  // tokens of each sequence in the cache before a step
constexpr std::size_t kGuard = 4096;

void for_each_model(const std::function<void(const std::filesystem::path& folder)>& check) {
  for (const char* name : {"gqa", "mqa-sharded", "gqa-bfloat16", "tied-float16"}) {
    SCOPED_TRACE(name);
    check(golden_folder(name));
  }
  const LlamaFamily family;
  for (const auto& one : family.cases()) {
    SCOPED_TRACE(one["name"].get<std::string>());
    const TemporaryFolder folder;
    family.write(one, folder.path());
    check(folder.path());
  }
}

// The first sequence has the most new tokens, the others one each; the first rows have logits.
StepPlan plan_of(const StepShape& shape) {
  StepPlan plan;
  for (int i = 0; i < shape.num_sequences; ++i) {
    const int count = i == 0 ? shape.max_query_len : 1;
    plan.sequences.push_back({.request = i,
                              .first_token = static_cast<std::int32_t>(plan.tokens.size()),
                              .num_tokens = count,
                              .context_len = kEarlier + count,
                              .first_page = static_cast<std::int32_t>(plan.pages.size()),
                              .num_pages = kLimits.step.max_pages_per_sequence});
    for (int page = 0; page < kLimits.step.max_pages_per_sequence; ++page)
      plan.pages.push_back(i * kLimits.step.max_pages_per_sequence + page);
    for (int token = 0; token < count; ++token) {
      const auto row = static_cast<std::int32_t>(plan.tokens.size());
      if (row < shape.num_logit_rows)
        plan.samples.push_back({.sequence = i, .row = row, .position = kEarlier + token + 1});
      plan.tokens.push_back(7 * row % 100 + 1);
      plan.positions.push_back(kEarlier + token);
    }
  }
  return plan;
}

// Before each norm, all scratch that earlier blocks have left becomes NaN (all ones, in each of the dtypes).
template <class Base>
class PoisoningStrategy : public Base {
 public:
  using Base::Base;

  std::byte* end = nullptr;  // of the scratch; null: it stays as it is

  void normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) override {
    auto* const begin = static_cast<std::byte*>(normalized.data);
    if (end != nullptr && lane.dry_run == nullptr)
      lane.stream.enqueue([begin, end = end](ThreadPool&) { std::fill(begin, end, std::byte{0xff}); });
    Base::normalize(hidden, norm, normalized, lane);
  }
};

class SteppedModel {
 public:
  explicit SteppedModel(const std::filesystem::path& folder) {
    const Checkpoint checkpoint(folder);
    const LlamaConfig config = parse_llama_config(checkpoint.config());
    make<PoisoningStrategy<LocalStrategy>>(config, load_llama_weights(checkpoint, config, {}));
  }

  // One rank of several, whose steps are to run at the same time.
  SteppedModel(const std::filesystem::path& folder, const ModelRank& place) {
    const Checkpoint checkpoint(folder);
    const LlamaConfig config = parse_llama_config(checkpoint.config());
    Llama::Weights weights = load_llama_weights(checkpoint, config, {.place = place});
    const Slice vocabulary = weights.split.vocabulary;
    make<PoisoningStrategy<TensorStrategy>>(config, std::move(weights), place, vocabulary, config.vocab_size);
  }

  Llama& model() { return *model_; }

  // The logits of a step in an arena of so many bytes, in which `guarded` writes and watches guards on both sides.
  std::vector<float> logits(const StepPlan& step, std::size_t arena_bytes, bool guarded) {
    Buffer cache(model_->shape().kv_pages(kLimits.page_size, kLimits.num_pages).size_bytes());
    KvPages kv = model_->shape().kv_pages(kLimits.page_size, kLimits.num_pages);
    kv.data = cache.data();
    Buffer arrays(placed_bytes(kLimits.step));
    const StepTensors tensors = place(step, kLimits.step, arrays.data(), arrays.data());
    Arena arena(guarded ? 2 * kGuard + arena_bytes : arena_bytes);
    auto* const memory = static_cast<std::byte*>(arena.take_bytes(arena.capacity_bytes()));
    arena.rewind(0);
    if (guarded) {
      std::fill_n(memory, arena.capacity_bytes(), std::byte{0x5a});
      std::fill_n(memory + kGuard, arena_bytes, std::byte{0xff});
      arena.take_bytes(kGuard);
    }
    *poisoned_end_ = guarded ? memory + kGuard + arena_bytes : nullptr;
    const Tensor logits = run(tensors, kv, arena);
    if (guarded) {
      const auto is_guard = [](std::byte value) { return value == std::byte{0x5a}; };
      EXPECT_TRUE(std::all_of(memory, memory + kGuard, is_guard));
      EXPECT_TRUE(std::all_of(memory + kGuard + arena_bytes, memory + arena.capacity_bytes(), is_guard));
    }
    const auto* const values = static_cast<const float*>(logits.data);
    return {values, values + logits.rows * logits.columns};
  }

 private:
  template <class PoisoningStrategy, class... Args>
  void make(const LlamaConfig& config, Llama::Weights weights, const Args&... args) {
    auto strategy = std::make_unique<PoisoningStrategy>(args...);
    poisoned_end_ = &strategy->end;
    model_ = std::make_unique<Llama>(config, std::move(weights), std::move(strategy), Compute::automatic);
  }

  // Ends only when what it has enqueued has.
  Tensor run(const StepTensors& step, const KvPages& kv, Arena& arena) {
    try {
      const Tensor logits = model_->run(step, kv, arena, Lane(stream_));
      stream_.synchronize();
      return logits;
    } catch (...) {
      stream_.synchronize();
      throw;
    }
  }

  std::byte** poisoned_end_;  // the model's strategy's
  std::unique_ptr<Llama> model_;
  ThreadPool pool_{1};
  Stream stream_{pool_};
};

// Of each size of a graph and each mode. The Arena throws where a step takes more.
TEST(LlamaMemory, WhatADryRunFindsIsEnoughAndNoBlockReadsWhatOthersHaveLeft) {
  for_each_model([](const std::filesystem::path& folder) {
    SteppedModel stepped(folder);
    const std::size_t most = step_bytes(stepped.model(), kLimits);
    for (const StepShape& shape : largest_shapes(kLimits)) {
      SCOPED_TRACE(fmt::format("{} tokens of {} sequences, {} rows", shape.num_tokens, shape.num_sequences,
                               shape.num_logit_rows));
      const StepPlan plan = plan_of(shape);
      const std::size_t bytes = run_dry(stepped.model(), kLimits, shape).arena_bytes;
      const std::vector<float> expected = stepped.logits(plan, 2 * most, false);
      EXPECT_EQ(expected.size(), static_cast<std::size_t>(shape.num_logit_rows) *
                                     static_cast<std::size_t>(stepped.model().shape().vocab_size));
      EXPECT_EQ(stepped.logits(plan, bytes, true), expected);
      EXPECT_THROW(stepped.logits(plan, bytes - Arena::kAlignment, false), Failure);
    }
  });
}

// The same on three ranks, of which each has scratch of its own size.
TEST(LlamaMemory, OnRanksWhatEachRanksDryRunFindsIsEnough) {
  constexpr int kRanks = 3;
  const LlamaFamily family;
  for (const char* name : {"llama-biases", "qwen3"}) {
    const TemporaryFolder folder;
    family.write(family.find(name), folder.path());
    RankWorld world(std::vector<Device>(kRanks), {.deadline = std::chrono::seconds(20)});
    std::vector<std::unique_ptr<SteppedModel>> ranks;
    for (int rank = 0; rank < kRanks; ++rank)
      ranks.push_back(std::make_unique<SteppedModel>(
          folder.path(), ModelRank{.rank = rank, .ranks = kRanks, .communicator = &world.communicator(rank)}));
    for (const StepShape& shape : largest_shapes(kLimits)) {
      SCOPED_TRACE(fmt::format("{}: {} tokens of {} sequences, {} rows", name, shape.num_tokens, shape.num_sequences,
                               shape.num_logit_rows));
      const StepPlan plan = plan_of(shape);
      std::vector<std::vector<float>> plain(kRanks), guarded(kRanks);
      run_team(kRanks, [&](TeamMember& member) {
        const auto rank = static_cast<std::size_t>(member.rank());
        SteppedModel& own = *ranks[rank];
        plain[rank] = own.logits(plan, 2 * step_bytes(own.model(), kLimits), false);
        guarded[rank] = own.logits(plan, run_dry(own.model(), kLimits, shape).arena_bytes, true);
      });
      EXPECT_EQ(guarded, plain);
    }
  }
}

// What exchanges keep of symmetric memory is measured, too, and the ranks' fabric is made for that, before there are weights.
TEST(LlamaMemory, RanksFabricHasWhatDryRunsSayThatExchangesKeep) {
  const Checkpoint checkpoint(golden_folder("gqa"));
  const auto measured = [&](TpMode mode, int max_tokens) {
    const RankModels outlines = outline_ranks(checkpoint, {.tp_mode = mode}, 2);
    return symmetric_step_bytes(*outlines[1].model, {.step = {.max_tokens = max_tokens}});
  };
  EXPECT_EQ(measured(TpMode::standard, 64), SymmetricStepBytes{});
  EXPECT_GT(measured(TpMode::sequence, 8).exchanges, 0u);
  EXPECT_GT(measured(TpMode::sequence, 64).exchanges, measured(TpMode::sequence, 8).exchanges);
  EXPECT_EQ(measured(TpMode::fused, 64).exchanges, 0u);
  const std::size_t of_token = 2 * load_model(checkpoint, {})->shape().delta_bytes_per_token;
  EXPECT_EQ(measured(TpMode::fused, 64).rows, 64 * of_token) << "what blocks leave, and what they compute from";
  // More rows than a tile of a GPU has, since the fabric is made for either kind of device.
  const auto step_of_960 = [&](int made_for) {
    LlamaRunner runner(load_ranks(checkpoint, {.tp_mode = TpMode::sequence}, 2, {.steps = {.max_tokens = made_for}}),
                       {.num_pages = 256, .max_tokens = 960});
    std::vector<LlamaRunner::Sequence> sequences;
    sequences.reserve(8);
    std::vector<LlamaRunner::Chunk> chunks;
    for (int i = 0; i < 8; ++i) {
      sequences.push_back(runner.sequence());
      chunks.push_back({&sequences.back(), std::vector<std::int32_t>(120, 7)});
    }
    runner.step(chunks);
  };
  step_of_960(960);
  try {
    step_of_960(8);
    ADD_FAILURE() << "a step of 960 tokens in memory for 8";
  } catch (const Failure& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("the symmetric heap has"));
  }
}

// Steps of any size, on the CPU and on a GPU that need not be there.
TEST(LlamaMemory, NoStepTakesMoreThanTheLargestOfItsMode) {
  for_each_model([](const std::filesystem::path& folder) {
    const Checkpoint checkpoint(folder);
    for (const DeviceKind kind : {DeviceKind::cpu, DeviceKind::cuda})
      for (const int max_samples : {5, 11, 12}) {
        ExecutorLimits limits = kLimits;
        limits.step.max_samples = max_samples;
        const auto outline = outline_model(checkpoint, {.device = {kind, 0}});
        const std::size_t most = step_bytes(*outline, limits);
        std::size_t largest = 0;
        for (int tokens = 1; tokens <= limits.step.max_tokens; ++tokens)
          for (int sequences = 1; sequences <= std::min(tokens, limits.step.max_sequences); ++sequences)
            for (int rows = 0; rows <= std::min(tokens, max_samples); ++rows)
              largest = std::max(largest, run_dry(*outline, limits,
                                                  {.num_tokens = tokens,
                                                   .num_sequences = sequences,
                                                   .num_logit_rows = rows,
                                                   .max_query_len = tokens - sequences + 1})
                                              .arena_bytes);
        EXPECT_EQ(most, largest) << max_samples << " rows of logits";
      }
  });
}

TEST(LlamaMemory, AnOutlineTakesWhatItsModelTakes) {
  for_each_model([](const std::filesystem::path& folder) {
    const Checkpoint checkpoint(folder);
    EXPECT_EQ(step_bytes(*outline_model(checkpoint, {}), kLimits), step_bytes(*load_model(checkpoint, {}), kLimits));
  });
}

// A GPU has graphs for few sizes, and the inputs of a step in its arena.
TEST(LlamaMemory, EverySizeOfAGraphIsMeasured) {
  ExecutorLimits limits = kLimits;
  limits.step = {.max_tokens = 200, .max_sequences = 100, .max_samples = 120, .max_pages_per_sequence = 8};
  std::set<int> measured, used;
  for (const StepShape& shape : largest_shapes(limits))
    if (shape.num_tokens == shape.num_sequences) measured.insert(shape.num_sequences);
  for (int sequences = 1; sequences <= 100; ++sequences) used.insert(decode_batch(sequences, limits));
  EXPECT_TRUE(std::ranges::includes(measured, used));
  EXPECT_EQ(used.size(), 16U + 6U + 2U);  // 1 to 16, 24 to 64, 96 and 100

  const Checkpoint checkpoint(golden_folder("gqa"));
  const auto outline = outline_model(checkpoint, {.device = {DeviceKind::cuda, 0}});
  const StepInputBytes inputs = input_bytes(*outline, limits);
  EXPECT_GE(inputs.arrays, placed_bytes(limits.step));
  Arena arena = Arena::measuring();
  take_inputs(*outline, limits, arena);
  EXPECT_EQ(arena.mark(),
            Arena::rounded(inputs.arrays) + Arena::rounded(inputs.samples) + Arena::rounded(inputs.histories));
  EXPECT_GT(step_bytes(*outline, limits), arena.mark());
}

struct NameOfCall {
  std::string operator()(const EmbeddingParams&) const { return "embedding"; }
  std::string operator()(const RmsNormParams& call) const {
    if (call.num_heads > 1 || call.x.data == call.y.data) return fmt::format("rmsnorm {} heads", call.num_heads);
    return call.residual.data != nullptr ? "add_norm" : "norm";
  }
  std::string operator()(const LinearParams& call) const { return std::string(name_of(call.role)); }
  std::string operator()(const RopeKvWriteParams&) const { return "rope_kv_write"; }
  std::string operator()(const AttentionParams& call) const { return fmt::format("attention {}", call.window); }
  std::string operator()(const AttentionPlanParams& call) const { return fmt::format("plan {}", call.window); }
  std::string operator()(const SwigluParams&) const { return "swiglu"; }
  std::string operator()(const GatherRowsParams& call) const { return fmt::format("gather {}", name_of(call.x.dtype)); }
  template <class Other>
  std::string operator()(const Other&) const {
    return "another";
  }
};

// A dry run names what a step computes, in the order of the paper's equations.
TEST(LlamaDryRun, NamesTheOperatorsOfAStepInOrder) {
  const LlamaFamily family;
  const TemporaryFolder folder;
  family.write(family.find("qwen3-v5"), folder.path());
  const Checkpoint checkpoint(folder.path());
  const auto names = [&](DeviceKind kind, int num_rows) {
    std::vector<std::string> result;
    const auto outline = outline_model(checkpoint, {.device = {kind, 0}});
    for (const OperatorCall& call :
         run_dry(*outline, kLimits,
                 {.num_tokens = 4, .num_sequences = 2, .num_logit_rows = num_rows, .max_query_len = 3})
             .calls)
      result.push_back(std::visit(NameOfCall(), call));
    return result;
  };
  EXPECT_THAT(names(DeviceKind::cpu, 4),
              testing::ElementsAre("embedding",  //
                                   "norm", "qkv", "rmsnorm 4 heads", "rmsnorm 2 heads", "rope_kv_write", "attention 0",
                                   "output", "add_norm", "gate_up", "swiglu", "down",  //
                                   "add_norm", "qkv", "rmsnorm 4 heads", "rmsnorm 2 heads", "rope_kv_write",
                                   "attention 33", "output", "add_norm", "gate_up", "swiglu", "down",  //
                                   "add_norm", "logits"));
  const auto on_gpu = names(DeviceKind::cuda, 2);
  EXPECT_THAT(on_gpu, testing::IsSupersetOf({"plan 0", "plan 33", "gather float32"}));
  EXPECT_EQ(std::ranges::count(on_gpu, "plan 33"), 1);
}

}  // namespace
}  // namespace heddle
