// The wafer's results compared with the CPU's, from the same checkpoints.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "models/llama_family.h"
#include "models/llama_runner.h"
#include "wafer/programs/memory.h"
#include "wafer/programs/wafer_llama.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;

// Logits of every token, by the CPU in float32: weights, too, so that its KV cache is.
class Reference {
 public:
  explicit Reference(const ModelSource& source)
      : executor_(load_model(source, {.dtype = DType::float32, .compute = Compute::float32, .on_progress = {}}),
                  {.step = {.max_tokens = 64, .max_sequences = 1, .max_samples = 64, .max_pages_per_sequence = 4},
                   .page_size = 32,
                   .num_pages = 4},
                  1) {}

  std::vector<std::vector<float>> run(const std::vector<std::int32_t>& tokens) {
    StepPlan plan;
    const auto count = static_cast<std::int32_t>(tokens.size());
    plan.tokens = tokens;
    plan.pages = {0, 1, 2, 3};
    plan.pages.resize(static_cast<std::size_t>((count + 31) / 32));
    plan.sequences.push_back({.num_tokens = count,
                              .context_len = count,
                              .first_page = 0,
                              .num_pages = static_cast<std::int32_t>(plan.pages.size())});
    for (std::int32_t i = 0; i < count; ++i) {
      plan.positions.push_back(i);
      plan.samples.push_back({.sequence = 0, .row = i, .position = i + 1, .params = {}});
    }
    const Tensor logits = executor_.run(plan);
    std::vector<std::vector<float>> rows;
    for (std::int64_t row = 0; row < logits.rows; ++row) {
      const auto values = logits_row(logits, row);
      rows.emplace_back(values.begin(), values.end());
    }
    return rows;
  }

 private:
  Executor executor_;
};

std::int32_t likeliest(const std::vector<float>& logits) {
  return static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Both compute in float32; only the order of sums differs. A sum of K rounds by sqrt(K) 2^-24 of its terms, and some
// thirty of them follow each other here, K up to 704: 5e-5. Measured: 1e-6 to 4e-6 of the largest logit.
void expect_close(const std::vector<float>& ours, const std::vector<float>& expected, const std::string& what) {
  ASSERT_EQ(ours.size(), expected.size());
  float largest = 0, error = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    error = std::max(error, std::abs(ours[i] - expected[i]));
    ASSERT_FALSE(std::isnan(ours[i])) << what;
  }
  EXPECT_LE(error, 5e-5F * largest) << what;
}

std::vector<std::int32_t> some_tokens(int count, int vocab) {
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 37 + 11) % vocab);
  return tokens;
}

WaferLlama on_wafer(const ModelSource& source, WaferMesh cores, ThreadPool& pool, WaferDecodeOptions decode = {}) {
  return WaferLlama(source, {.cores = cores, .decode = decode, .load = {}}, pool);
}

struct WaferCase {
  const char* model;
  WaferMesh cores;
};

class WaferModelTest : public testing::TestWithParam<WaferCase> {};

// Both ways give the same logits: a prompt by prefill, and token by token.
TEST_P(WaferModelTest, PrefillAndDecodeGiveTheCpusLogits) {
  const Checkpoint source(golden_folder(GetParam().model));
  ThreadPool pool(2);
  const WaferMesh cores = GetParam().cores;
  WaferLlama wafer = on_wafer(source, cores, pool);
  const auto tokens = some_tokens(17, wafer.shape().vocab);
  const auto expected = Reference(source).run(tokens);

  expect_close(wafer.prefill(std::span(tokens).first(1)), expected[0], "prefill of one token");
  for (std::size_t i = 1; i < tokens.size(); ++i)
    expect_close(wafer.decode(tokens[i]), expected[i], fmt::format("token {} decoded", i));
  expect_close(wafer.prefill(tokens), expected.back(), "prefill of all");
  expect_close(wafer.prefill(std::span(tokens).first(12)), expected[11], "prefill of twelve");
  for (std::size_t i = 12; i < tokens.size(); ++i)
    expect_close(wafer.decode(tokens[i]), expected[i], fmt::format("token {} after the transition", i));
}

INSTANTIATE_TEST_SUITE_P(
    Models, WaferModelTest,
    testing::Values(WaferCase{"gqa", {3, 3}}, WaferCase{"gqa", {5, 5}}, WaferCase{"gqa", {16, 16}},
                    WaferCase{"gqa-bfloat16", {4, 4}}, WaferCase{"mha-tied", {4, 6}},  // places: 12 x 12
                    WaferCase{"mqa-sharded", {6, 3}}, WaferCase{"tied-float16", {7, 7}},
                    WaferCase{"mqa-sharded", {33, 33}}),  // more cores along x than pairs: some hold no keys
    [](const auto& test) {
      std::string name = fmt::format("{}_{}x{}", test.param.model, test.param.cores.width, test.param.cores.height);
      std::ranges::replace(name, '-', '_');
      return name;
    });

TEST(WaferModel, TheDemoModelsTokensAreTheCpus) {
  const auto source = open_model(std::string(HEDDLE_SOURCE_DIR) + "/assets/demo-llama");
  ThreadPool pool(2);
  WaferLlama wafer = on_wafer(*source, {8, 8}, pool);
  std::vector<std::int32_t> tokens = some_tokens(9, wafer.shape().vocab);
  std::vector<float> logits = wafer.prefill(tokens);
  for (int i = 0; i < 8; ++i) {
    tokens.push_back(likeliest(logits));
    logits = wafer.decode(tokens.back());
  }
  const auto expected = Reference(*source).run(tokens);
  for (std::size_t i = 9; i < tokens.size(); ++i) EXPECT_EQ(tokens[i], likeliest(expected[i - 1])) << i;
  expect_close(logits, expected.back(), "after the last token");
}

// Biases, windows, head norms, stretched positions: compared with transformers. The bound is llama_family_test's.
TEST(WaferModel, TheWholeFamilyAgreesWithTransformers) {
  const LlamaFamily family;
  const std::vector<std::int32_t> tokens = family.tokens();
  ThreadPool pool(2);
  for (const auto& a_case : family.cases()) {
    const TemporaryFolder folder;
    family.write(a_case, folder.path());
    const Checkpoint source(folder.path());
    WaferLlama wafer = on_wafer(source, {5, 5}, pool);
    const auto golden = family.golden(a_case["name"]);
    const auto length = family.rows().back() + 1;  // of the text whose last logits the goldens hold
    std::vector<float> logits = wafer.prefill(std::span(tokens).first(length - 3));
    for (std::size_t i = length - 3; i < length; ++i) logits = wafer.decode(tokens[i]);
    double error = 0;
    for (std::size_t i = 0; i < logits.size(); ++i)
      error = std::max(error, std::abs(static_cast<double>(logits[i]) - static_cast<double>(golden.back()[i])));
    EXPECT_LE(error, 1e-4) << a_case["name"];
  }
}

TEST(WaferModel, ConcatenationGivesTheSameLogitsFromOneRow) {
  const Checkpoint source(golden_folder("gqa"));
  ThreadPool pool(1);
  WaferLlama wafer = on_wafer(source, {4, 4}, pool, {.kv_method = KvMethod::concat});
  const auto tokens = some_tokens(12, wafer.shape().vocab);
  const auto expected = Reference(source).run(tokens);
  wafer.prefill(std::span(tokens).first(4));
  for (std::size_t i = 4; i < tokens.size(); ++i) expect_close(wafer.decode(tokens[i]), expected[i], "decoded");
  EXPECT_EQ(wafer.rows().count(3), 9);
  EXPECT_EQ(wafer.rows().count(0), 1);
}

PlmrDevice roomy_wafer() {
  PlmrDevice device = plmr_preset("wse-2");
  device.sram_bytes.value = 1e9;
  return device;
}

// The same sums in the same order, whichever region has the layers: the same bits.
TEST(WaferModel, RegionsChangeNoBitAndCostTheirHandOver) {
  const auto source = open_model(std::string(HEDDLE_SOURCE_DIR) + "/assets/demo-llama");
  ThreadPool pool(2);
  const auto run = [&](int regions) {
    WaferLlama wafer = on_wafer(*source, {8, 8}, pool, {.program = {.device = roomy_wafer(), .regions = regions}});
    std::vector<std::vector<float>> logits{wafer.prefill(some_tokens(5, wafer.shape().vocab))};
    const double prefill = wafer.cost().cycles();
    for (int i = 0; i < 3; ++i) logits.push_back(wafer.decode(likeliest(logits.back())));
    return std::tuple(logits, wafer.cost(), wafer.idle_share(), prefill);
  };
  const auto [expected, alone, never_idle, prefill_alone] = run(1);
  EXPECT_EQ(never_idle, 0);
  EXPECT_EQ(alone.cycles("hand-over"), 0);
  for (const int regions : {2, 4, 6}) {
    const auto [logits, cost, idle, prefill] = run(regions);
    EXPECT_EQ(logits, expected) << regions;
    const double handed_over = cost.cycles("hand-over");
    EXPECT_GT(handed_over, (regions - 1) * 8);  // a hop a core of the line
    // The same work beside it, but a caches' shift a region.
    EXPECT_NEAR(cost.cycles() - handed_over - cost.cycles("KV shift"), alone.cycles() - alone.cycles("KV shift"), 1e-6);
    EXPECT_NEAR(idle, 1 - 1.0 / regions, 0.01);
    EXPECT_LT(cost.memory_bytes, alone.memory_bytes);
    EXPECT_GT(prefill, prefill_alone);
  }
  EXPECT_THROW(run(7), InputError);
}

// Sixteen more tokens in one row cost their scores; spread over all rows they cost a shift per token.
TEST(WaferModel, ConcatenationTakesLongerWithEveryToken) {
  const Checkpoint source(golden_folder("gqa"));
  ThreadPool pool(1);
  const auto cycles = [&](KvMethod method) {
    WaferLlama wafer = on_wafer(source, {8, 8}, pool, {.kv_method = method, .program = {.device = roomy_wafer()}});
    wafer.prefill(some_tokens(8, wafer.shape().vocab));
    std::vector<double> taken;
    for (int i = 0; i < 16; ++i) {
      wafer.decode(1);
      taken.push_back(wafer.cost().cycles());
    }
    return taken;
  };
  const std::vector<double> shift = cycles(KvMethod::shift), concat = cycles(KvMethod::concat);
  for (std::size_t i = 1; i < concat.size(); ++i) EXPECT_GT(concat[i], concat[i - 1]);
  EXPECT_LT(shift.back(), concat.back());
  EXPECT_EQ(concat.front(), shift.front());  // rows are equally full: nothing is to be shifted
}

// The check before loading uses exactly what the program then needs.
TEST(WaferModel, TakesTheMemoryThatWasForeseen) {
  ThreadPool pool(1);
  for (const char* model : {"gqa", "mha-tied"})
    for (const WaferMesh cores : {WaferMesh{6, 6}, {4, 6}}) {
      const Checkpoint source(golden_folder(model));
      WaferLlama wafer = on_wafer(source, cores, pool, {.program = {.device = roomy_wafer()}});
      wafer.prefill(some_tokens(300, wafer.shape().vocab));  // so many that scores are the most that there is
      const double whole = wafer.cost().memory_bytes;
      for (int i = 0; i < 4; ++i) wafer.decode(2);
      const std::int64_t in_row = wafer.rows().fullest();
      const double decode = wafer_decode_core_bytes(wafer.shape(), cores, 1, in_row);
      EXPECT_EQ(wafer.cost().memory_bytes, decode) << model;
      EXPECT_EQ(whole, wafer_prefill_core_bytes(wafer.shape(), cores, 1, 300)) << model;
    }
}

TEST(WaferModel, RefusesProgramsBeyondACoresMemoryWithTheNumbers) {
  const Checkpoint source(golden_folder("gqa"));
  ThreadPool pool(1);
  PlmrDevice device = plmr_preset("wse-2");
  device.sram_bytes.value = 2000;
  EXPECT_THAT(
      [&] {
        on_wafer(source, {4, 4}, pool, {.program = {.device = device}});
      },
      ThrowsMessage<InputError>(
          AllOf(HasSubstr("core (0, 0), weights of decode"), HasSubstr("needs"), HasSubstr("has 2000"))));
  const WaferModel shape = wafer_shape(source);
  EXPECT_THAT(
      [&] {
        fit_wafer_regions(device, shape, {4, 4}, 8, 2);
      },
      ThrowsMessage<InputError>(AllOf(HasSubstr("core (0, 0) of 4 x 4"), HasSubstr("with 8 tokens of prompt"),
                                      HasSubstr("has 2000"), HasSubstr("smallest square mesh"))));
  const WaferFit fit = fit_wafer_regions(plmr_preset("wse-2"), shape, {4, 4}, 8, 2);
  EXPECT_LE(wafer_decode_core_bytes(shape, {4, 4}, fit.regions, fit.row_tokens), 49152);
  EXPECT_GT(wafer_decode_core_bytes(shape, {4, 4}, fit.regions, fit.row_tokens + 1), 49152);
}

TEST(WaferModel, RefusesPromptsThatItCannotTake) {
  const Checkpoint source(golden_folder("gqa"));
  ThreadPool pool(1);
  WaferLlama wafer = on_wafer(source, {3, 3}, pool, {.kv_limits = {.tokens = 4}});
  const auto prefill = [&](std::vector<std::int32_t> tokens) { wafer.prefill(tokens); };
  EXPECT_THAT([&] { prefill({}); }, ThrowsMessage<InputError>(HasSubstr("no tokens")));
  EXPECT_THAT([&] { prefill({1, 331}); }, ThrowsMessage<InputError>(HasSubstr("knows 0 to 330")));
  EXPECT_THAT([&] { prefill({1, 2, 3, 4, 5}); }, ThrowsMessage<InputError>(HasSubstr("hold 4 tokens, 5 are needed")));
  prefill({1, 2, 3});
  wafer.decode(4);
  EXPECT_THAT([&] { wafer.decode(5); }, ThrowsMessage<InputError>(HasSubstr("hold 4 tokens, 5 are needed")));
  EXPECT_THROW(wafer.decode(-1), InputError);
}

}  // namespace
}  // namespace heddle
