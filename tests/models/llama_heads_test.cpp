// Models with heads as wide as real ones against transformers: several sequences in a step, contexts beyond a tile of
// keys. On a GPU in 2-byte dtypes these are the goldens that the fast kernels meet.
#include "models/llama_heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gpu_here.h"
#include "models/llama_runner.h"
#include "models/recorded_kernels.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Tokens = LlamaHeads::Tokens;

struct HeadsOn {
  const char* name;
  DType dtype;
  Device device;
};

class LlamaHeadsTest : public testing::TestWithParam<HeadsOn> {
 protected:
  void SetUp() override {
    if (GetParam().device.kind == DeviceKind::cpu) return;
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  static bool on_gpu() { return GetParam().device.kind == DeviceKind::cuda; }

  LlamaRunner runner(int max_tokens, int num_pages) const {
    const TemporaryFolder folder;
    heads_.write(folder.path());
    return {folder.path(),
            {.threads = 2,
             .page_size = 16,  // the smallest that the fast kernels take
             .num_pages = num_pages,
             .max_sequences = 64,
             .max_tokens = max_tokens,
             .dtype = GetParam().dtype,
             .device = GetParam().device}};
  }

  // A golden sequence as a step's sequence, and how far it is computed.
  struct Follower {
    std::size_t golden;
    LlamaRunner::Sequence sequence;
  };

  // One step in which each follower with a count above 0 gets so many more of its tokens.
  void step(LlamaRunner& runner, std::vector<Follower>& followers, const std::vector<std::size_t>& counts) {
    std::vector<LlamaRunner::Chunk> chunks;
    std::vector<std::pair<std::size_t, std::size_t>> expected;  // golden sequence and position of each row
    for (std::size_t i = 0; i < followers.size(); ++i) {
      if (counts[i] == 0) continue;
      const std::size_t first = followers[i].sequence.tokens.size();
      const auto begin = sequences_[followers[i].golden].begin() + static_cast<std::ptrdiff_t>(first);
      chunks.push_back({&followers[i].sequence, {begin, begin + static_cast<std::ptrdiff_t>(counts[i])}});
      for (std::size_t j = 0; j < counts[i]; ++j) expected.emplace_back(followers[i].golden, first + j);
    }
    const auto rows = runner.step(chunks);
    ASSERT_EQ(rows.size(), expected.size());
    for (std::size_t i = 0; i < rows.size(); ++i)
      heads_.compare(rows[i], expected[i].first, expected[i].second, distance_);
  }

  void expect_allowed_distance() const {
    const LlamaHeads::Allowed allowed = heads_.allowed_of_logits(GetParam().dtype);
    EXPECT_LE(distance_.largest(), allowed.largest);
    EXPECT_LE(distance_.root_mean_square(), allowed.root_mean_square);
  }

  const LlamaHeads heads_{GetParam().name};
  const std::vector<Tokens> sequences_ = heads_.sequences();
  Distance distance_;
};

TEST_P(LlamaHeadsTest, PromptsOfOneStepAgree) {
  LlamaRunner model = runner(557, 48);
  std::vector<Follower> followers;
  for (std::size_t i = 0; i < sequences_.size(); ++i) followers.push_back({i, model.sequence()});
  step(model, followers, {270, 150, 137});
  expect_allowed_distance();
}

// Chunks of one token to more than a tile, in steps with chunks of other sequences; towards the end all decode.
TEST_P(LlamaHeadsTest, ChunksBesideChunksOfOthersAgree) {
  const std::vector<std::size_t> chunks[] = {
      {255, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
      {1, 15, 16, 17, 64, 30, 1, 1, 1, 1, 1, 1, 1},
      {63, 2, 31, 3, 20, 9, 1, 1, 1, 1, 1, 1, 1, 1, 1},
  };
  LlamaRunner model = runner(320, 48);
  std::vector<Follower> followers;
  for (std::size_t i = 0; i < sequences_.size(); ++i) followers.push_back({i, model.sequence()});
  for (std::size_t at = 0; at < chunks[0].size(); ++at) {
    std::vector<std::size_t> counts;
    for (const auto& of : chunks) counts.push_back(at < of.size() ? of[at] : 0);
    step(model, followers, counts);
  }
  for (std::size_t i = 0; i < followers.size(); ++i)
    ASSERT_EQ(followers[i].sequence.tokens.size(), sequences_[i].size());
  expect_allowed_distance();
}

// Contexts grow past tiles of 64, 128 and 256 keys. On a GPU a step of each size is computed, recorded, then replayed,
// by turns in two slots; decode attention shares out one sequence to a cluster, few to splits of each, many to runs.
TEST_P(LlamaHeadsTest, SequencesDecodedTogetherAgree) {
  constexpr std::size_t kSteps = 8;
  const std::vector<int> batches = on_gpu() ? std::vector{1, 5, 19, 40} : std::vector{1, 5};
  for (const int batch : batches) {
    LlamaRunner model = runner(batch * 270, batch * 17);
    std::vector<Follower> followers;
    std::vector<std::size_t> prompts{252, 124, 1, 62, 125};
    for (std::size_t i = prompts.size(); i < static_cast<std::size_t>(batch); ++i)
      prompts.push_back(1 + 37 * i % (sequences_[i % 3].size() - kSteps));
    prompts.resize(static_cast<std::size_t>(batch));
    for (std::size_t i = 0; i < prompts.size(); ++i) followers.push_back({i % 3, model.sequence()});
    step(model, followers, prompts);
    for (std::size_t i = 0; i < kSteps; ++i) step(model, followers, std::vector<std::size_t>(prompts.size(), 1));
  }
  expect_allowed_distance();
}

// A function of this name in a mangled name, where the name of a source file may stand as well.
testing::Matcher<std::string> names(std::string_view kernel) {
  return HasSubstr(fmt::format("{}{}", kernel.size(), kernel));
}

// Without this the tests above would pass as well with the kernels that take any shape.
using LlamaHeadsKernels = LlamaHeadsTest;
TEST_P(LlamaHeadsKernels, AreTheFastOnes) {
  LlamaRunner model = runner(557, 64);
  Arena arena(model.arena_bytes(), GetParam().device);
  std::vector<Follower> followers;
  for (const std::size_t i : {0, 1, 2}) followers.push_back({i, model.sequence()});
  const auto kernels_after = [&](const std::vector<std::size_t>& counts) {
    step(model, followers, counts);
    std::vector<std::string> kernels;
    if constexpr (kHaveCuda)
      for (RecordedKernel& kernel : recorded_kernels(model.executor().stream(), [&] {
             arena.rewind(0);
             model.enqueue_last_step(arena);
           }))
        kernels.push_back(std::move(kernel.name));
    EXPECT_THAT(kernels, Not(IsEmpty()));
    for (const char* simple : {"attention_simple", "linear_plain", "rope_elements", "append_elements"})
      EXPECT_THAT(kernels, Each(Not(names(simple))));
    return kernels;
  };

  const auto prompt = kernels_after({200, 0, 0});
  EXPECT_THAT(prompt, Contains(names("attention_prefill")));
  EXPECT_THAT(prompt, Contains(names("rope_kv_write_packs")));
  const auto decode = kernels_after({1, 0, 0});
  EXPECT_THAT(decode, Contains(names("attention_decode")));
  EXPECT_THAT(decode, Contains(names("plan_decode_blocks")));
  EXPECT_THAT(decode, Contains(names("linear_stream")));
  EXPECT_THAT(decode, Contains(names("rope_kv_write_packs")));
  EXPECT_THAT(decode, Each(Not(names("attention_prefill"))));
  const auto both = kernels_after({1, 100, 16});
  EXPECT_THAT(both, Contains(names("attention_prefill")));
  EXPECT_THAT(both, Contains(names("attention_decode")));
  const auto batch = kernels_after({1, 1, 1});
  EXPECT_THAT(batch, Contains(names("attention_decode")));
  EXPECT_THAT(batch, Contains(names("linear_stream")));
}

std::vector<HeadsOn> heads_on(Device device, std::initializer_list<DType> dtypes) {
  std::vector<HeadsOn> cases;
  for (const char* name : LlamaHeads::kCases)
    for (const DType dtype : dtypes) cases.push_back({name, dtype, device});
  return cases;
}

std::string case_name(const testing::TestParamInfo<HeadsOn>& test) {
  std::string name = fmt::format("{}_{}", test.param.name, name_of(test.param.dtype));
  std::ranges::replace(name, '-', '_');
  return name + (test.param.device.kind == DeviceKind::cuda ? "_on_gpu" : "");
}

constexpr auto kAllDTypes = {DType::float32, DType::bfloat16, DType::float16};
INSTANTIATE_TEST_SUITE_P(, LlamaHeadsTest, testing::ValuesIn(heads_on({}, kAllDTypes)), case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, LlamaHeadsTest, testing::ValuesIn(heads_on(kFirstGpu, kAllDTypes)), case_name);
INSTANTIATE_TEST_SUITE_P(Gpu, LlamaHeadsKernels,
                         testing::ValuesIn(heads_on(kFirstGpu, {DType::bfloat16, DType::float16})), case_name);

}  // namespace
}  // namespace heddle
