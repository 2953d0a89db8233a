// Every family of models, in every mode in which ranks add, whole and in parts, by every choice: a step takes of memory what
// its dry run says, and blocks leave each other nothing there.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "base/team.h"
#include "base/thread_pool.h"
#include "engine/rank_models.h"
#include "engine/rank_world.h"
#include "engine/step_memory.h"
#include "models/experts_family.h"
#include "models/llama_family.h"
#include "models/registry.h"
#include "parallel/choice_tables.h"
#include "parallel/strategy.h"
#include "temporary_folder.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

constexpr int kCached = 2;  // tokens of each sequence before a step
constexpr std::size_t kFence = 4096;

ExecutorLimits mode_limits(TpMode mode) {
  return {.step = {.max_tokens = 10,
                   .max_sequences = 4,
                   .max_samples = 10,
                   .max_pages_per_sequence = 4,
                   .max_parts = mode == TpMode::weave ? kMostParts : 1,
                   .fused_decode = true},
          .page_size = 4,
          .num_pages = 16};
}

const StepChoices kEveryChoice[] = {{.sums = SumForm::of_mode},
                                    {.sums = SumForm::fused},
                                    {.sums = SumForm::separate},
                                    {.sums = SumForm::separate, .decode = {.form = DecodeChoice::Form::clusters}}};

// The first sequence has the most new tokens, the others one each; the first rows have logits.
StepPlan plan_in_mode(int num_tokens, int num_sequences, int num_rows, int border, const StepChoices& choices) {
  StepPlan plan;
  plan.prefix_tokens = border;
  plan.choices = choices;
  constexpr int kPages = 4;
  for (int i = 0; i < num_sequences; ++i) {
    const int count = i == 0 ? num_tokens - num_sequences + 1 : 1;
    plan.sequences.push_back({.request = i,
                              .first_token = static_cast<std::int32_t>(plan.tokens.size()),
                              .num_tokens = count,
                              .context_len = kCached + count,
                              .first_page = static_cast<std::int32_t>(plan.pages.size()),
                              .num_pages = kPages});
    for (int page = 0; page < kPages; ++page) plan.pages.push_back(i * kPages + page);
    for (int token = 0; token < count; ++token) {
      const auto row = static_cast<std::int32_t>(plan.tokens.size());
      if (row < num_rows) plan.samples.push_back({.sequence = i, .row = row, .position = kCached + token + 1});
      plan.tokens.push_back(7 * row % 60 + 1);
      plan.positions.push_back(kCached + token);
    }
  }
  return plan;
}

StepPlan plan_in_mode(const StepShape& shape) {
  return plan_in_mode(shape.num_tokens, shape.num_sequences, shape.num_logit_rows, shape.parts.front().num_tokens,
                      shape.choices);
}

// Any strategy, but before each block computes, all scratch behind the step's own tensors becomes NaN (all ones).
class NanBetweenBlocks : public Strategy {
 public:
  NanBetweenBlocks(std::unique_ptr<Strategy> inner, std::byte*& end) : inner_(std::move(inner)), end_(end) {}

  void begin_step(const StepChoices& choices) override { inner_->begin_step(choices); }
  BlockRows take_block_rows(const BlockRowsShape& shape, Arena& arena, const Lane& lane) override {
    const BlockRows rows = inner_->take_block_rows(shape, arena, lane);
    scratch_ = static_cast<std::byte*>(arena.take_bytes(1));
    return rows;
  }
  void embed(const Weight& table, const std::int32_t* tokens, Tensor y, const Lane& lane) override {
    inner_->embed(table, tokens, y, lane);
  }
  void normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) override {
    inner_->normalize(hidden, norm, normalized, lane);
  }
  void sum_pending(const Hidden& hidden, const Lane& lane) override { inner_->sum_pending(hidden, lane); }
  std::string why_not_summed() const override { return inner_->why_not_summed(); }
  Hidden wanted_rows(const Hidden& hidden, const WantedRows& wanted, Arena& arena, const Lane& lane) override {
    return inner_->wanted_rows(hidden, wanted, arena, lane);
  }
  void run(const Blocks& blocks, std::span<const PartRows> parts, const Execution& execution) override {
    const auto compute = [&](int block, int part) {
      if (end_ != nullptr && execution.compute.dry_run == nullptr)
        execution.compute.stream.enqueue(
            [begin = scratch_, end = end_](ThreadPool&) { std::fill(begin, end, std::byte{0xff}); });
      blocks.compute(block, part);
    };
    inner_->run({.count = blocks.count, .norm = blocks.norm, .compute = compute}, parts, execution);
  }
  void linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) override {
    inner_->linear(x, weight, role, y, lane);
  }
  void linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) override {
    inner_->linear_swiglu(x, weight, gate_up, y, lane);
  }
  void logits(Tensor x, const Weight& weight, Tensor y, const Lane& lane) override {
    inner_->logits(x, weight, y, lane);
  }

 private:
  std::unique_ptr<Strategy> inner_;
  std::byte* scratch_ = nullptr;  // behind the step's own tensors
  std::byte*& end_;               // of it; null: it stays as it is
};

class RankInMode {
 public:
  RankInMode(const ModelSource& source, ModelRank place, const ExecutorLimits& limits) : limits_(limits) {
    place.wrap = [this](std::unique_ptr<Strategy> inner) {
      return std::make_unique<NanBetweenBlocks>(std::move(inner), scratch_end_);
    };
    model_ = load_model(source, {.tp_mode = place.mode, .place = place});
  }

  Model& model() { return *model_; }

  std::vector<float> logits(const StepPlan& plan, std::size_t arena_bytes, bool guarded) {
    KvPages kv = cache_shape(*model_, limits_);
    Buffer cache(kv.size_bytes());
    kv.data = cache.data();
    Buffer arrays(placed_bytes(limits_.step));
    const StepTensors tensors = place(plan, limits_.step, arrays.data(), arrays.data());
    Arena arena(guarded ? 2 * kFence + arena_bytes : arena_bytes);
    auto* const memory = static_cast<std::byte*>(arena.take_bytes(arena.capacity_bytes()));
    arena.rewind(0);
    if (guarded) {
      std::fill_n(memory, arena.capacity_bytes(), std::byte{0x5a});
      // Fused attention begins with counters, which an executor has cleared.
      std::fill_n(memory + kFence, arena_bytes, plan.choices.decode.fused() ? std::byte{} : std::byte{0xff});
      arena.take_bytes(kFence);
    }
    scratch_end_ = guarded ? memory + kFence + arena_bytes : nullptr;
    const Lane lane(stream_);
    TransferLane transfers(Stream(transfer_pool_), lane, 1);
    const Tensor logits =
        model_->run(tensors, kv, arena, tensors.num_parts() > 1 ? Execution(lane, transfers) : Execution(lane));
    stream_.synchronize();
    transfers.stream().synchronize();
    if (guarded) {
      const auto is_fence = [](std::byte value) { return value == std::byte{0x5a}; };
      EXPECT_TRUE(std::all_of(memory, memory + kFence, is_fence));
      EXPECT_TRUE(std::all_of(memory + kFence + arena_bytes, memory + arena.capacity_bytes(), is_fence));
    }
    const auto* const values = static_cast<const float*>(logits.data);
    return {values, values + logits.rows * logits.columns};
  }

 private:
  ExecutorLimits limits_;
  std::byte* scratch_end_ = nullptr;
  std::unique_ptr<Model> model_;
  ThreadPool pool_{1};
  ThreadPool transfer_pool_{1};
  Stream stream_{pool_};
};

struct InMode {
  const char* name;
  TpMode mode;
  int ranks;
};

class MemoryInMode : public testing::TestWithParam<InMode> {
 protected:
  // A model of each family, as the mode takes them.
  template <class Check>
  void for_each_family(const Check& check) const {
    const LlamaFamily llamas;
    for (const char* name : {"llama-biases", "qwen3"}) {
      SCOPED_TRACE(name);
      const TemporaryFolder folder;
      llamas.write(llamas.find(name), folder.path());
      check(Checkpoint(folder.path()));
    }
    if (GetParam().mode == TpMode::sequence) return;  // not for experts
    const ExpertsFamily experts;
    for (const char* name : {"mixtral-window", "v2", "v2-lite", "v3"}) {
      SCOPED_TRACE(name);
      const TemporaryFolder folder;
      experts.write(experts.find(name), folder.path());
      check(Checkpoint(folder.path()));
    }
  }
};

// Where a model does not take fused attention, nobody chooses it.
bool takes_fused(const std::vector<std::unique_ptr<RankInMode>>& members, const StepShape& shape) {
  return std::ranges::all_of(members, [&](const auto& member) {
    return member->model()
        .why_not_fused({.choice = shape.choices.decode, .num_tokens = shape.num_tokens, .page_size = 4, .num_sms = 1})
        .empty();
  });
}

TEST_P(MemoryInMode, WhatADryRunFindsIsEnoughAndNoBlockReadsWhatOthersHaveLeft) {
  const int ranks = GetParam().ranks;
  const TpMode mode = GetParam().mode;
  const ExecutorLimits limits = mode_limits(mode);
  for_each_family([&](const Checkpoint& checkpoint) {
    std::unique_ptr<RankWorld> world;
    if (ranks > 1) {
      const RankModels outlines = outline_ranks(checkpoint, {.tp_mode = mode}, ranks);
      SymmetricStepBytes most;
      for (const RankPart& outline : outlines) most = max(most, symmetric_step_bytes(*outline.model, limits));
      world = std::make_unique<RankWorld>(
          std::vector<Device>(static_cast<std::size_t>(ranks)),
          RankWorldOptions{.mode = mode, .step_bytes = most, .deadline = std::chrono::seconds(20)});
    }
    std::vector<std::unique_ptr<RankInMode>> members;
    for (int rank = 0; rank < ranks; ++rank) {
      ModelRank place{.rank = rank, .ranks = ranks, .mode = mode};
      if (world != nullptr) {
        place.communicator = &world->communicator(rank);
        place.all_reduce_norm = world->all_reduce_norm(rank);
        place.fabric = &world->fabric(rank);
      }
      members.push_back(std::make_unique<RankInMode>(checkpoint, place, limits));
    }
    for (const StepShape& shape : shapes_in_every_way(limits)) {
      const StepPlan plan = plan_in_mode(shape);
      SCOPED_TRACE(fmt::format("{} tokens of {} sequences, {} rows, {} in the first part, fused sums {}, attention {}",
                               shape.num_tokens, shape.num_sequences, shape.num_logit_rows, plan.prefix_tokens,
                               name_of(shape.choices.sums), shape.choices.decode.fused()));
      EXPECT_EQ(shape_of(plan).parts, shape.parts);
      if (shape.choices.decode.fused() && !takes_fused(members, shape)) continue;
      std::vector<std::vector<float>> plain(members.size()), guarded(members.size());
      run_team(ranks, [&](TeamMember& member) {
        const auto rank = static_cast<std::size_t>(member.rank());
        RankInMode& own = *members[rank];
        const std::size_t bytes = run_dry(own.model(), limits, shape).arena_bytes;
        plain[rank] = own.logits(plan, 2 * bytes, false);
        guarded[rank] = own.logits(plan, bytes, true);
      });
      EXPECT_EQ(guarded, plain);
      EXPECT_EQ(plain.front().size(), static_cast<std::size_t>(shape.num_logit_rows) *
                                          static_cast<std::size_t>(members.front()->model().shape().vocab_size));
    }
  });
}

// Of any size, at any border, by each choice.
TEST_P(MemoryInMode, NoStepTakesMoreThanTheLargestOfThoseThatAreMeasured) {
  const int ranks = GetParam().ranks;
  const ExecutorLimits limits = mode_limits(GetParam().mode);
  for_each_family([&](const Checkpoint& checkpoint) {
    const RankModels outlines = outline_ranks(checkpoint, {.tp_mode = GetParam().mode}, ranks);
    Model& model = *outlines.back().model;
    DryStep largest;
    for (int tokens = 1; tokens <= limits.step.max_tokens; ++tokens)
      for (int sequences = 1; sequences <= std::min(tokens, limits.step.max_sequences); ++sequences)
        for (const int rows : {0, 1, tokens / 2, tokens - 1, tokens})
          for (int border = 0; border < (limits.step.max_parts > 1 ? tokens : 1); ++border)
            for (const StepChoices& choices : kEveryChoice) {
              const StepPlan plan = plan_in_mode(tokens, sequences, rows, border, choices);
              if (choices.decode.fused() && (!is_decode(plan) || border > 0 || !limits.step.fused_decode)) continue;
              const DryStep step = run_dry(model, limits, shape_of(plan));
              largest.arena_bytes = std::max(largest.arena_bytes, step.arena_bytes);
              largest.symmetric = max(largest.symmetric, step.symmetric);
            }
    EXPECT_EQ(step_bytes(model, limits), largest.arena_bytes);
    EXPECT_EQ(symmetric_step_bytes(model, limits), largest.symmetric);
  });
}

INSTANTIATE_TEST_SUITE_P(, MemoryInMode,
                         testing::Values(InMode{"one_rank", TpMode::standard, 1},
                                         InMode{"standard", TpMode::standard, 2},
                                         InMode{"symmetric", TpMode::symmetric, 2}, InMode{"fused", TpMode::fused, 3},
                                         InMode{"weave", TpMode::weave, 2}, InMode{"sequence", TpMode::sequence, 3},
                                         InMode{"no_comm", TpMode::no_comm, 2}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace heddle
