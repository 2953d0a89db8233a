// The wafer's results compared with the CPU's, from the same checkpoints.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

#include "models/llama_family.h"
#include "models/llama_runner.h"
#include "wafer/programs/decode.h"
#include "wafer/programs/hand_over.h"
#include "wafer/programs/kv_spill.h"
#include "wafer/programs/memory.h"
#include "wafer/programs/relayout.h"
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
    const double handed_over = cost.cycles("hand-over") + cost.cycles("way to the next region");
    EXPECT_GT(handed_over, (regions - 1) * 8);  // a hop a core of the line
    // The same work beside it, but a caches' shift a region.
    EXPECT_NEAR(cost.cycles() - handed_over - cost.cycles("KV shift"), alone.cycles() - alone.cycles("KV shift"), 1e-6);
    EXPECT_NEAR(idle, 1 - 1.0 / regions, 0.01);
    EXPECT_LT(cost.memory_bytes, alone.memory_bytes);
    EXPECT_GT(prefill, prefill_alone);
  }
  EXPECT_THROW(run(7), InputError);
}

// Regions beside each other, below each other at the end of a row of regions, backwards in the next row, and turned. Decode's
// hidden state goes one hop over the border; below, each row goes down a column of its own. Prefill's goes from every core to
// the one at its place, all of a line over the border.
TEST(WaferModel, TheHiddenStateIsCarriedToTheNextRegionWhereverItLies) {
  const Checkpoint source(golden_folder("gqa"));  // 3 layers, 96 hidden
  ThreadPool pool(1);
  const auto run = [&](WaferMesh device_cores, WaferMesh cores, int regions) {
    PlmrDevice device = roomy_wafer();
    device.mesh_width.value = device_cores.width;
    device.mesh_height.value = device_cores.height;
    WaferLlama wafer(source,
                     {.cores = cores,
                      .decode = {.program = {.device = device, .regions = regions}},
                      .prefill_regions = regions,
                      .load = {}},
                     pool);
    std::vector<std::vector<float>> logits{wafer.prefill(some_tokens(11, wafer.shape().vocab))};
    const double prefill = wafer.cost().cycles("hand-over");
    logits.push_back(wafer.decode(5));
    return std::tuple(logits, prefill, wafer.cost());
  };
  const double hop = 1 + roomy_wafer().beta_cycles.value, ramp = 2;
  struct Case {
    WaferMesh device, cores;
    double along_x, along_y;  // borders that are crossed
  };
  for (const auto& [device, cores, along_x, along_y] :
       {Case{{24, 8}, {8, 8}, 2, 0},
        {{8, 24}, {8, 8}, 0, 2},
        {{16, 16}, {8, 8}, 1, 1},
        {{8, 18}, {6, 8}, 2, 0}}) {  // turned: the device's y is the mesh's x
    SCOPED_TRACE(testing::Message() << device.width << " x " << device.height);
    const auto [expected, none, alone] = run({100, 100}, cores, 1);
    const auto [logits, prefill, cost] = run(device, cores, 3);
    EXPECT_EQ(logits, expected);
    const double values = std::ceil(96.0 / cores.height), words = std::ceil(values / 2);
    // Of the rows below each other, as many as exceed the columns follow one another.
    EXPECT_NEAR(cost.cycles("way to the next region"),
                along_x * (hop + ramp + words) + along_y * (cores.height * hop + ramp + words), 1e-6);
    // In prefill a core has a tile of 11 tokens by the hidden features, of each of its places.
    const int side = std::lcm(cores.width, cores.height);
    const double tile = std::ceil(11.0 / side) * std::ceil(96.0 / side) * (side / cores.width) * (side / cores.height);
    const double in_line = std::ceil(tile / 2);
    EXPECT_NEAR(prefill,
                along_x * std::max(cores.width * in_line + hop + ramp, cores.width * hop + ramp + in_line) +
                    along_y * std::max(cores.height * in_line + hop + ramp, cores.height * hop + ramp + in_line),
                1e-6);
    for (const char* part : {"way to the next region", "hand-over"})
      EXPECT_EQ(cost.bases(part), Basis::simulated | Basis::analytical) << part;
    EXPECT_EQ(alone.cycles("way to the next region") + none, 0);
  }
}

// Two rows of two regions, the second one backwards: over each border there is one hop.
TEST(WaferModel, HandOversCrossTheBorderThatIsThere) {
  PlmrDevice device = roomy_wafer();
  device.mesh_width.value = device.mesh_height.value = 16;
  for (int region = 0; region < 3; ++region) {
    const HandOver way(device, {8, 8}, 4, region);
    EXPECT_EQ(way.axis, region == 1 ? mesh::Axis::y : mesh::Axis::x);
    for (int row = 0; row < 8; ++row) {
      const mesh::RelayMessage message = way.message(way.column_from(row), row, way.column_to(row), row, 1);
      EXPECT_EQ(hops_of(std::span(&message, 1)), region == 1 ? 8 : 1) << region << ", " << row;
    }
  }
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

// The check before loading uses exactly what the program then needs. Which tiles are alive at the fullest moment was
// counted by hand from section 4.1 and 4.2 of the paper, tile by tile: of gqa, with 3 layers, 96 hidden, 112
// intermediate, 6 heads of 24 dimensions on 2 KV heads, 331 tokens.
struct MemoryCase {
  WaferMesh cores;
  int regions, tokens;
  double prefill, decode;  // values
};
const MemoryCase kMemoryCases[] = {
    // 6 x 6 cores, a tile each: 50 tokens, 16 hidden, 24 queries, 8 keys, 19 inner, 56 of the vocabulary.
    {{6, 6},
     1,
     300,
     3 * (16 * 24 + 2 * 16 * 8 + 24 * 16 + 3 * 16 * 19)  // weights
         + 2 * (2 * 50 * 8)                              // keys and values of two layers
         + 50 * 16 + 50 * 16 + 50 * (24 + 8 + 8)         // hidden state, normed, q, k, v
         + 50 * 24 + 50 * 8 + 50 * 8 + 50 * 8            // attended; a head's queries, keys on their way, values
         + 2 * 50 * 50 + 2 * 50 * 50 + 50 * 50,          // sums of scores, scores, scores of the other KV head
     2 * 16 + 3 * (16 * 24 + 2 * 16 * 8 + 24 * 16 + 3 * 16 * 19 + 2 * 16)  // hidden state, weights and norms
         + 16 + 2 * 16 * 56 + 3 * 2 * 8 * 51                               // last norm, tables, 51 tokens' K and V
         + 16 + 2 * (24 + 8 + 8) + 2 * 51 * 6 + 2 * 6 + 2 * 6 + 2 * 24},   // attention
    // One token a core and layer: the product with the output weights is the most.
    {{6, 6},
     1,
     6,
     3 * 1936 + 2 * (2 * 8) + 16 + 16 + 24 + 8 + 8 + 24  // as above
         + 24 * 16 + 24 + 16,                            // the weight's copy, the second buffer, the result
     2 * 16 + 3 * (1936 + 2 * 16) + 16 + 2 * 16 * 56 + 3 * 2 * 8 * 2  //
         + 16 + 2 * (24 + 8 + 8) + 2 * 2 * 6 + 2 * 6 + 2 * 6 + 2 * 24},
    // Two regions, of two layers and one: no region has both tables.
    {{6, 6},
     2,
     300,
     2 * 1936 + 2 * 50 * 8 + 50 * 16 + 50 * 16 + 50 * (24 + 8 + 8) + 50 * 24 + 3 * 50 * 8 + 5 * 50 * 50,
     2 * 16 + 2 * (1936 + 2 * 16) + 16 * 56 + 2 * 2 * 8 * 51 + 16 + 2 * (24 + 8 + 8) + 2 * 51 * 6 + 4 * 6 + 2 * 24},
    // 4 x 6 cores: 12 x 12 places, six a core, of 25 tokens, 8 hidden, 12 queries, 4 keys, 10 inner. In decode 16
    // hidden along y; 36 queries, 12 keys, 28 inner, 83 of the vocabulary along x.
    {{4, 6},
     1,
     300,
     6 * (3 * (8 * 12 + 2 * 8 * 4 + 12 * 8 + 3 * 8 * 10) + 2 * (2 * 25 * 4) + 25 * 8 + 25 * 8 + 25 * (12 + 4 + 4) +
          25 * 12 + 3 * 25 * 4 + 5 * 25 * 25),
     2 * 16 + 3 * (16 * 36 + 2 * 16 * 12 + 36 * 16 + 3 * 16 * 28 + 2 * 16) + 16 + 2 * 16 * 83 + 3 * 2 * 12 * 51 + 16 +
         2 * (36 + 12 + 12) + 2 * 51 * 6 + 4 * 6 + 2 * 36},
};

TEST(WaferModel, TakesTheMemoryThatWasForeseenAndThatItsTilesHave) {
  const Checkpoint source(golden_folder("gqa"));
  ThreadPool pool(1);
  for (const MemoryCase& c : kMemoryCases) {
    SCOPED_TRACE(testing::Message() << c.cores.width << " x " << c.cores.height << ", " << c.tokens << " tokens, "
                                    << c.regions << " regions");
    const WaferModel shape = wafer_shape(source);
    WaferLlama wafer(source,
                     {.cores = c.cores,
                      .decode = {.program = {.device = roomy_wafer(), .regions = c.regions}},
                      .prefill_regions = c.regions,
                      .load = {}},
                     pool);
    wafer.prefill(some_tokens(c.tokens, shape.vocab));
    if (c.tokens > 6) {  // else decode takes more
      EXPECT_EQ(wafer.cost().memory_bytes, 2 * c.prefill);
    }
    EXPECT_EQ(wafer_prefill_core_bytes(shape, c.cores, c.regions, c.tokens), 2 * c.prefill);
    for (int i = 0; i < 4; ++i) wafer.decode(2);
    EXPECT_EQ(wafer.cost().memory_bytes, 2 * c.decode);
    EXPECT_EQ(wafer_decode_core_bytes(shape, c.cores, c.regions, wafer.rows().fullest()), 2 * c.decode);
  }
}

// Two bytes a value less than the prompt's keys and values need: refused, although all else has room.
TEST(WaferModel, RefusesAPromptThatFitsOnlyWithoutItsKeysAndValues) {
  const WaferModel shape = wafer_shape(Checkpoint(golden_folder("gqa")));
  PlmrDevice device = plmr_preset("wse-2");
  device.mesh_width.value = device.mesh_height.value = 6;  // no idle cores
  const MemoryCase& c = kMemoryCases[0];
  device.sram_bytes.value = 2 * c.prefill;
  EXPECT_EQ(fit_wafer_regions(device, shape, c.cores, c.tokens, 0).prefill_bytes, 2 * c.prefill);
  device.sram_bytes.value -= 2;
  EXPECT_THAT([&] { fit_wafer_regions(device, shape, c.cores, c.tokens, 0); },
              ThrowsMessage<InputError>(
                  AllOf(HasSubstr("need 51816 bytes (11616 of them weights, 3200 the prompt's keys and values)"),
                        HasSubstr("has 51814, 2 too few"))));
  device.mesh_height.value = 8;  // two idle rows: each core has the keys and values of three
  const WaferFit spilled = fit_wafer_regions(device, shape, c.cores, c.tokens, 0);
  ASSERT_TRUE(spilled.spill);
  EXPECT_EQ(spilled.prefill_bytes, 2 * c.prefill - 3200);
  EXPECT_EQ(spilled.spill_bytes, 3 * 2 * (3 * 2 * 50 * 8));
  EXPECT_EQ(spilled.spill->y, 6);
  EXPECT_EQ(spilled.spill->height, 2);
}

// As the paper runs Llama-2-13B: 4096 tokens on 750 x 750 leave 244 idle rows.
TEST(WaferModel, SpillsKeysAndValuesOfLlama13bToTheIdleRows) {
  static constexpr WaferModel kPublished13b{.num_layers = 40,
                                            .hidden = 5120,
                                            .intermediate = 13824,
                                            .num_heads = 40,
                                            .num_kv_heads = 40,
                                            .head_dim = 128,
                                            .vocab = 32000};
  const PlmrDevice wse2 = plmr_preset("wse-2");
  // Whole tiles of 40 layers, 7 x 8 four times and 7 x 19 three times, are already too much.
  EXPECT_THAT(
      [&] {
        fit_wafer_regions(wse2, kPublished13b, {750, 750}, 4096, 0);
      },
      ThrowsMessage<InputError>(HasSubstr("61264 bytes (49840 of them weights, 7488 the prompt's keys and values)")));
  WaferModel fewer = kPublished13b;
  fewer.num_layers = 36;
  const WaferFit fit = fit_wafer_regions(wse2, fewer, {750, 750}, 4096, 0);
  EXPECT_EQ(fit.regions, 1);
  EXPECT_LE(fit.prefill_bytes, 49152);
  EXPECT_GT(fit.prefill_bytes + kValueBytes * 35 * 2 * 6 * 8, 49152);  // with those of earlier layers
  ASSERT_TRUE(fit.spill);
  EXPECT_EQ(fit.spill->y, 750);
  EXPECT_EQ(fit.spill->height, 994 - 750);
  // 6 tokens by 8 dimensions of keys, and of values, of 36 layers, of four cores of the column.
  EXPECT_EQ(fit.spill_bytes, 4 * kValueBytes * 36 * 2 * 6 * 8);
}

// Keys and values go to the same cores, whether prefill held or spilled them; the way is longer, and its relays take
// the two routes that are left.
TEST(WaferModel, SpilledKeysAndValuesArriveAndCostTheirWay) {
  const Checkpoint source(golden_folder("gqa"));
  ThreadPool pool(1);
  const auto run = [&](std::optional<CoreRectangle> spill) {
    WaferLlama wafer(
        source, {.cores = {6, 6}, .decode = {.program = {.device = roomy_wafer()}}, .spill = spill, .load = {}}, pool);
    const std::vector<float> logits = wafer.prefill(some_tokens(300, wafer.shape().vocab));
    const WaferCost cost = wafer.cost();
    return std::tuple(logits, cost, wafer.idle_core_bytes(), wafer.decode(3));
  };
  const auto [held, cost, no_bytes, next] = run(std::nullopt);
  const auto [spilled, dearer, idle_bytes, next_spilled] = run(CoreRectangle{.y = 6, .width = 6, .height = 5});
  EXPECT_EQ(held, spilled);
  EXPECT_EQ(next, next_spilled);  // which reads what arrived
  EXPECT_EQ(no_bytes, 0);
  EXPECT_EQ(idle_bytes, 2 * 3 * kValueBytes * 2 * 50 * 8);  // of two rows of cores, three layers
  const PlmrDevice device = roomy_wafer();
  // 50 tokens by 8 dimensions of keys, and of values, are 400 words, of six cores over the last link of a column; behind a
  // stage, a hop and a ramp.
  EXPECT_NEAR(dearer.cycles("KV spill"), 3 * (6 * 400 + device.beta_cycles.value + 1 + 2), 1e-6);
  EXPECT_GT(dearer.cycles("transition"), cost.cycles("transition"));
  EXPECT_LT(dearer.memory_bytes, cost.memory_bytes);
  EXPECT_EQ(dearer.routes, cost.routes + 2);
}

// Meshes whose cores have several places, few idle rows, regions with idle rows of their own.
TEST(WaferModel, SpilledKeysAndValuesLieWhereDecodeTakesThem) {
  const Checkpoint source(golden_folder("gqa"));
  ThreadPool pool(1);
  const auto run = [&](WaferMesh cores, int regions, std::optional<CoreRectangle> spill) {
    WaferLlama wafer(source,
                     {.cores = {5, 3},
                      .prefill_cores = cores,
                      .decode = {.program = {.device = roomy_wafer()}},
                      .prefill_regions = regions,
                      .spill = spill,
                      .load = {}},
                     pool);
    std::vector<std::vector<float>> logits{wafer.prefill(some_tokens(40, wafer.shape().vocab))};
    logits.push_back(wafer.decode(9));
    return logits;
  };
  for (const WaferMesh cores : {WaferMesh{4, 6}, {6, 4}, {7, 7}})
    for (const int regions : {1, 3}) {
      const auto held = run(cores, regions, std::nullopt);
      for (const int height : {1, 4})
        EXPECT_EQ(run(cores, regions, CoreRectangle{.y = cores.height, .width = cores.width, .height = height}), held)
            << cores.width << " x " << cores.height << ", " << height;
    }
}

// Seven rows of cores on one idle core: 7 * 2 * 6 * 8 values of a layer.
TEST(WaferModel, IdleCoresThatAreFullTakeNoMore) {
  ThreadPool pool(1);
  const mesh::Grid grid = mesh::Grid::square({7, 7}, mesh::LineOrder::interleaved);
  PlmrDevice device = roomy_wafer();
  device.sram_bytes.value = 2 * 1344 + 1;
  mesh::TimedMesh cores(device, grid, pool);
  const mesh::Tile k = cores.allocate("k", 6, 8, mesh::Buffers::one), v = cores.allocate("v", 6, 8, mesh::Buffers::one);
  KvSpill spill(grid, {.y = 7, .width = 7, .height = 1});
  for (int layer = 0; layer < 2; ++layer) spill.send(cores, k, v);
  EXPECT_EQ(spill.core_bytes(), 2 * 1344);
  EXPECT_THAT(
      [&] { spill.send(cores, k, v); },
      ThrowsMessage<InputError>(AllOf(HasSubstr("core (0, 7)"), HasSubstr("4032 bytes"), HasSubstr("1343 too few"))));
  spill.begin_region();
  spill.send(cores, k, v);
}

// What is simulated or counted has no fitted constant in it, of an operation, a call, a stage, a value or the residual:
// only what says so changes with them. KV heads that run beside the first are counted; where there is one, it is simulated.
TEST(WaferModel, SimulatedAndCountedCyclesHoldNoFittedConstant) {
  ThreadPool pool(2);
  for (const char* model : {"gqa", "mqa-sharded"}) {
    SCOPED_TRACE(model);
    const Checkpoint source(golden_folder(model));
    const auto costs_with = [&](double times) {
      PlmrDevice device = roomy_wafer();
      for (Constant PlmrDevice::*constant : kFittedConstants) (device.*constant).value *= times;
      device.vector_slice_cycles.value = times - 1;
      WaferDecodeOptions options;
      options.program.device = device;
      WaferLlama wafer = on_wafer(source, {6, 6}, pool, options);
      wafer.prefill(some_tokens(11, wafer.shape().vocab));
      const WaferCost prefill = wafer.cost();
      wafer.decode(3);
      return std::pair(prefill, wafer.cost());
    };
    const auto once = costs_with(1), thrice = costs_with(3);
    for (const auto& [cheap, dear] : {std::pair{once.first, thrice.first}, {once.second, thrice.second}}) {
      EXPECT_GT(cheap.cycles(Basis::simulated), 0);
      EXPECT_DOUBLE_EQ(cheap.cycles(Basis::simulated), dear.cycles(Basis::simulated));
      EXPECT_DOUBLE_EQ(cheap.cycles(Basis::counted), dear.cycles(Basis::counted));
      EXPECT_LT(cheap.cycles(Basis::analytical), dear.cycles(Basis::analytical));
      EXPECT_DOUBLE_EQ(3 * cheap.cycles(Basis::fitted), dear.cycles(Basis::fitted));
    }
    const WaferCost& prefill = once.first;
    const Basis heads = std::string_view(model) == "gqa" ? Basis::counted : Basis::simulated;
    for (const char* part : {"scores", "values"}) {
      EXPECT_TRUE(prefill.bases(part).has(heads)) << part;
    }
    EXPECT_FALSE(prefill.bases("scores").has(heads == Basis::counted ? Basis::simulated : Basis::counted));
    for (const char* part : {"rotation", "SwiGLU", "residuals"})
      EXPECT_EQ(prefill.bases(part), Basis::analytical) << part;
    for (const char* part : {"Q, K, V", "O", "down", "transition"})
      EXPECT_EQ(prefill.bases(part), Basis::simulated | Basis::analytical) << part;
    EXPECT_EQ(prefill.bases("norms"), Basis::simulated | Basis::analytical);
    EXPECT_EQ(once.second.bases(kFittedResidual), Basis::fitted);
    EXPECT_EQ(once.second.bases("all-reduce"), Basis::simulated | Basis::analytical);
    EXPECT_EQ(once.second.bases("products"), Basis::analytical);  // a GEMV's own work; its sums are apart
    EXPECT_EQ(once.second.bases("element-wise work"), Basis::analytical);
  }
}

// All rows shift at once, each over a link of its own: a stage, a hop and the words of all layers' keys and values, however
// many rows there are.
TEST(WaferModel, AShiftOfTheCacheTakesAHopAndItsWords) {
  const Checkpoint source(golden_folder("gqa"));  // 3 layers, 2 KV heads of 24
  ThreadPool pool(2);
  for (const int height : {4, 7, 12}) {
    WaferLlama wafer = on_wafer(source, {6, height}, pool, {.program = {.device = roomy_wafer()}});
    wafer.prefill(some_tokens(2 * height - 1, wafer.shape().vocab));
    wafer.decode(3);  // the first row has one token, all others two: each of those hands one up
    const double words = 3 * 2 * (2 * 24 / 6) / 2.0;
    EXPECT_NEAR(wafer.cost().cycles("KV shift"), 1 + roomy_wafer().beta_cycles.value + 2 + words, 1e-9) << height;
    EXPECT_EQ(wafer.cost().bases("KV shift"), Basis::simulated | Basis::analytical);
  }
}

// Executed message by message, or counted on links: the same words over the same links.
TEST(WaferModel, TheTransitionIsExecutedOrItsWordsCounted) {
  const WaferModel shape = wafer_shape(Checkpoint(golden_folder("gqa")));
  PlmrDevice device = roomy_wafer();
  device.mesh_width.value = device.mesh_height.value = 99;
  for (const int regions : {1, 3})
    for (const WaferMesh decode : {WaferMesh{5, 3}, {12, 12}, {33, 9}}) {
      KvRows rows(decode.height, KvMethod::shift);
      rows.fill(60);
      const Relayout layout{.prefill = {12, 12}, .prefill_regions = 2, .decode = decode, .decode_regions = regions};
      const RelayoutCost executed = run_relayout(device, shape, layout, rows);
      const RelayoutCost counted = run_relayout(device, shape, layout, rows, 0);
      EXPECT_EQ(executed.basis, Basis::simulated);
      EXPECT_EQ(counted.basis, Basis::counted);
      // Six heads of 24 dimensions on 2 KV heads: each value once, and the last token's hidden state.
      const std::int64_t weights = 96 * (144 + 2 * 48) + 144 * 96 + 3 * 96 * 112;
      EXPECT_EQ(executed.values, 3 * (weights + 2 * 60 * 48) + 96);
      EXPECT_EQ(counted.values, executed.values);
      EXPECT_NEAR(executed.cycles / counted.cycles, 1, 0.25) << decode.width << ", " << regions;
    }
}

TEST(WaferModel, TwoMeshesGiveTheCpusLogits) {
  const Checkpoint source(golden_folder("gqa"));
  ThreadPool pool(2);
  const auto tokens = some_tokens(17, wafer_shape(source).vocab);
  const auto expected = Reference(source).run(tokens);
  for (const auto& [prefill, decode] :
       {std::pair{WaferMesh{7, 7}, WaferMesh{5, 3}}, {{4, 6}, {6, 4}}, {{3, 3}, {33, 9}}})
    for (const int regions : {1, 3}) {
      WaferLlama wafer(source,
                       {.cores = decode,
                        .prefill_cores = prefill,
                        .decode = {.program = {.device = roomy_wafer(), .regions = regions}},
                        .prefill_regions = 2,
                        .load = {}},
                       pool);
      expect_close(wafer.prefill(std::span(tokens).first(12)), expected[11], "prefill of twelve");
      EXPECT_GT(wafer.cost().cycles("transition"), 0);
      for (std::size_t i = 12; i < tokens.size(); ++i) {
        expect_close(wafer.decode(tokens[i]), expected[i], fmt::format("token {} after the transition", i));
        EXPECT_EQ(wafer.chosen(), likeliest(expected[i]));
      }
    }
}

// A decoder whose layer adds nothing: logits are the sums of the output matrix's rows, times the norm of ones.
struct ChoiceModel {
  std::vector<float> ones = std::vector<float>(7 * 4, 1), zeros = std::vector<float>(8 * 4), output;
  WaferWeights weights;

  explicit ChoiceModel(const std::vector<float>& logits) {
    for (const float logit : logits) output.insert(output.end(), 4, logit / 4);
    const auto view = [](const std::vector<float>& values, int rows, int columns) {
      return Weight{.blocks = {WeightBlock{values.data(), rows}}, .out_features = rows, .in_features = columns};
    };
    const Norm norm{.weight = ones.data(), .eps = 0};
    weights.shape = {
        .num_layers = 1, .hidden = 4, .intermediate = 4, .num_heads = 1, .num_kv_heads = 1, .head_dim = 2, .vocab = 7};
    weights.embedding = view(ones, 7, 4);
    weights.layers.push_back({.attention_norm = norm,
                              .qkv = view(zeros, 6, 4),
                              .query_norm = {},
                              .key_norm = {},
                              .output = view(zeros, 4, 2),
                              .feed_forward_norm = norm,
                              .gate_up = view(zeros, 8, 4),
                              .down = view(zeros, 4, 4)});
    weights.final_norm = norm;
    weights.logits = view(output, 7, 4);
    weights.inv_freq = {1};
  }
  std::int32_t chosen() const {
    ThreadPool pool(1);
    WaferDecode decode(weights, {3, 3}, {}, pool);
    EXPECT_EQ(decode.decode(6).size(), 7u);
    return decode.chosen();
  }
};

// Columns of three cores have tokens 0 to 2, 3 to 5, and 6 with two of padding.
TEST(WaferModel, CoresChooseTheLowestOfTheLikeliestTokens) {
  EXPECT_EQ(ChoiceModel({0, 0, 0, 0, 0, 0, 0}).chosen(), 0);
  EXPECT_EQ(ChoiceModel({-1, -2, 1, -2, 1, 1, 1}).chosen(), 2);
  EXPECT_EQ(ChoiceModel({-1, -2, -1, -2, 0, 0, -3}).chosen(), 4);
  EXPECT_EQ(ChoiceModel({-4, -4, -4, -4, -4, -4, -3}).chosen(), 6);  // below the padding's zeros
  const float nan = std::nanf(""), infinite = std::numeric_limits<float>::infinity();
  EXPECT_EQ(ChoiceModel({nan, nan, nan, nan, nan, nan, nan}).chosen(), -1);
  EXPECT_EQ(ChoiceModel({0, 0, 0, infinite, 0, 0, 0}).chosen(), -1);
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
