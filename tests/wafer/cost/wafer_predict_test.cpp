#include "wafer/cost/wafer_predict.h"

#include <gmock/gmock.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "wafer/cost/model_error.h"
#include "wafer/cost/wafer_baselines.h"
#include "wafer/cost/wafer_published.h"
#include "wafer/cost/wafer_tune.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr WaferModel kModels[] = {{.num_layers = 32,
                                   .hidden = 4096,
                                   .intermediate = 14336,
                                   .num_heads = 32,
                                   .num_kv_heads = 8,
                                   .head_dim = 128,
                                   .vocab = 128256},
                                  {.num_layers = 40,
                                   .hidden = 5120,
                                   .intermediate = 13824,
                                   .num_heads = 40,
                                   .num_kv_heads = 40,
                                   .head_dim = 128,
                                   .vocab = 32000},
                                  {.num_layers = 48,
                                   .hidden = 8192,
                                   .intermediate = 22016,
                                   .num_heads = 64,
                                   .num_kv_heads = 8,
                                   .head_dim = 128,
                                   .vocab = 32000},
                                  {.num_layers = 80,
                                   .hidden = 8192,
                                   .intermediate = 29568,
                                   .num_heads = 64,
                                   .num_kv_heads = 8,
                                   .head_dim = 128,
                                   .vocab = 152064}};

const WaferModel& model_named(std::string_view name) {
  if (name == "llama-3-8b") return kModels[0];
  if (name == "llama-2-13b") return kModels[1];
  return name == "codellama-34b" ? kModels[2] : kModels[3];
}

const PlmrDevice& wafer() {
  static const PlmrDevice device = plmr_preset("wse-2");
  return device;
}

WaferWork on_square(WaferPhase phase, int side, WaferMethod method = WaferMethod::waferllm) {
  return {.phase = phase, .prefill_mesh = {side, side}, .decode_mesh = {side, side}, .method = method};
}

double error_percent(double predicted, double published) {
  return 100 * std::abs(predicted / published - 1);
}

// WaferLLM: the fit's targets. T10 and Ladder: one to three constants for six cells each, measured on other programs.
TEST(WaferPrediction, IsNearEveryVisibleThroughput) {
  for (const auto& row : published::kThroughputs)
    for (int i = 0; i < 3; ++i) {
      if (row.tokens_per_second[i] == published::kWithheld) continue;
      const double bound = row.method == WaferMethod::waferllm ? (row.phase == WaferPhase::prefill ? 3 : 5)
                                                               : (row.phase == WaferPhase::prefill ? 2 : 6);
      const WaferPrediction p =
          predict_wafer(wafer(), model_named(row.model), on_square(row.phase, row.sides[i], row.method));
      EXPECT_LT(error_percent(p.tokens_per_second, row.tokens_per_second[i]), bound)
          << row.model << " " << row.sides[i];
    }
}

WaferWork end_to_end_work(const published::EndToEnd& row, int column) {
  const bool stays = row.method != WaferMethod::waferllm;  // the baselines decode where they prefilled
  const bool small = row.model == "llama-3-8b";
  const auto [in, out] = published::kEndToEndLengths[column];
  return {.phase = WaferPhase::end_to_end,
          .prefill_mesh = small ? WaferMesh{660, 660} : WaferMesh{750, 750},
          .decode_mesh = stays ? (small ? WaferMesh{660, 660} : WaferMesh{750, 750})
                               : (small ? WaferMesh{360, 360} : WaferMesh{375, 375}),
          .context = in,
          .output = out,
          .method = row.method};
}

double end_to_end_rate(const published::EndToEnd& row, int column) {
  return wafer_tokens_per_second(wafer(), model_named(row.model), end_to_end_work(row, column));
}

// Held out from the fit; each range is of the other cells' errors alone. Llama-2-13B's prefill takes longer on 750 cores a
// side than on 720 in the paper (docs/notes/wafer.md).
TEST(WaferPrediction, EndToEndIsNearTable2) {
  for (const auto& row : published::kEndToEnd) {
    const bool stays = row.method != WaferMethod::waferllm;  // the baselines decode where they prefilled
    const bool small = row.model == "llama-3-8b";
    for (int i = 0; i < 3; ++i) {
      const auto [in, out] = published::kEndToEndLengths[i];
      const WaferPrediction p = predict_wafer(wafer(), model_named(row.model), end_to_end_work(row, i));
      const double said = row.tokens_per_second[i];
      EXPECT_LT(error_percent(p.tokens_per_second, said), stays   ? 14.5
                                                          : small ? 7
                                                                  : 16)
          << row.model << " " << in << "/" << out;
      EXPECT_LE(p.range.low, said) << row.model << " " << in << "/" << out;
      EXPECT_GE(p.range.high, said) << row.model << " " << in << "/" << out;
    }
  }
}

// Table 2's errors, which ranges end to end are made of: a cell's own is not among them. With its own, the widest error
// would widen its own range; so would a bound that was read off these cells.
TEST(WaferPrediction, ACellOfTable2HasARangeWithoutItsOwnError) {
  for (const WaferMethod method : {WaferMethod::waferllm, WaferMethod::t10, WaferMethod::ladder})
    for (const auto& row : published::kEndToEnd) {
      if (row.method != method) continue;
      const int hidden = model_named(row.model).hidden;
      for (int i = 0; i < 3; ++i) {
        double squares = 0;
        for (const auto& other : published::kEndToEnd)
          for (int j = 0; j < 3; ++j) {
            if (other.method != method || (other.model == row.model && i == j)) continue;
            const double predicted = end_to_end_rate(other, j);
            squares += std::pow(predicted / other.tokens_per_second[j] - 1, 2);
          }
        const auto [in, out] = published::kEndToEndLengths[i];
        const ModelError error = end_to_end_error(method, hidden, in, out);
        // The errors of the header leave out the transition, a per cent at most.
        EXPECT_NEAR(error.rms, std::sqrt(squares / 5), 0.01) << row.model << " " << in << "/" << out;
        EXPECT_DOUBLE_EQ(error.margin, 2.571 * error.rms);  // Student's t of five errors, 95 %
      }
      EXPECT_DOUBLE_EQ(end_to_end_error(method, hidden, 100, 100).margin,
                       2.447 * end_to_end_error(method, hidden, 100, 100).rms);  // of six
    }
}

// Llama-2-13B's context of 4096 tokens fits 420, 460 and 485 cores a side, and not those between.
TEST(WaferPrediction, DecodeOfAContextThatAMeshHasNoRoomForIsScaledWithAWarning) {
  for (const int side : {415, 465, 480, 560, 590}) {
    const WaferPrediction p = predict_wafer(wafer(), kModels[1], on_square(WaferPhase::decode, side));
    const double near = predict_wafer(wafer(), kModels[1], on_square(WaferPhase::decode, 540)).tokens_per_second;
    EXPECT_NEAR(p.tokens_per_second / near, 1, 0.08) << side;
    EXPECT_THAT(p.warnings, ::testing::Contains(AllOf(HasSubstr("a context of 4096 tokens"),
                                                      HasSubstr("the smallest square mesh that would do is"))));
    EXPECT_THAT(p.warnings, ::testing::Contains(HasSubstr("the layers which fit, scaled")));
  }
}

// Moving any constant increases the sum of squared relative errors of the fitted cells: the header has the fit of
// exactly these formulas.
TEST(WaferFit, ConstantsAreTheLeastSquaresOptimum) {
  const auto squares = [](const PlmrDevice& device) {
    double sum = 0;
    for (const auto& row : published::kThroughputs)
      for (int i = 0; i < 3; ++i) {
        if (row.method != WaferMethod::waferllm || row.tokens_per_second[i] == published::kWithheld) continue;
        const WaferMesh mesh{row.sides[i], row.sides[i]};
        const WaferModel& model = model_named(row.model);
        const double tokens = row.phase == WaferPhase::prefill ? 4096 : 1;
        const double cycles = row.phase == WaferPhase::prefill ? prefill_layer_cost(device, model, mesh, 4096).cycles()
                                                               : decode_layer_cost(device, model, mesh, 4096).cycles();
        const double published = tokens / row.tokens_per_second[i] * 1.1e9 / model.num_layers;
        sum += std::pow(cycles / published - 1, 2);
      }
    for (const auto& row : published::kGemvs)
      if (row.wafer_ms != published::kWithheld)
        sum +=
            std::pow(device.seconds(gemv_cost(device, row.n, row.n, {750, 750}).cycles()) * 1e3 / row.wafer_ms - 1, 2);
    return sum;
  };
  const double least = squares(wafer());
  for (Constant PlmrDevice::*constant : kFittedConstants)
    for (const double factor : {0.99, 1.01}) {
      PlmrDevice other = wafer();
      (other.*constant).value *= factor;
      EXPECT_GT(squares(other), least);
    }
}

// Statements of the paper that were not fitted.
TEST(WaferPrediction, AgreesWithWhatThePaperSaysOfWithheldModels) {
  const auto prefill = [](const WaferModel& model, int side) {
    return predict_wafer(wafer(), model, on_square(WaferPhase::prefill, side)).tokens_per_second;
  };
  EXPECT_NEAR(prefill(kModels[3], 720) / prefill(kModels[3], 480), 1.6, 0.05);
  EXPECT_NEAR(prefill(kModels[0], 720) / prefill(kModels[0], 480), 1.4, 0.07);  // 1.36 by table 3 itself
  // 166 times 16 A100s, which take for 32K about the 0.340 ms that they take for 16K.
  EXPECT_NEAR(wafer().seconds(gemv_cost(wafer(), 32768, 32768, {750, 750}).cycles()), 0.340e-3 / 166, 0.06e-6);
}

TEST(WaferPrediction, RangeHoldsTheValueAndIsTheFitsWhereThereAreSome) {
  for (const char* name : {"wse-2", "wse-3", "dojo"}) {
    const PlmrDevice device = plmr_preset(name);
    const int side = device.mesh_width.value > 400 ? 420 : 90;
    const WaferPrediction p = predict_wafer(device, kModels[0], on_square(WaferPhase::decode, side));
    EXPECT_LT(p.range.low, p.tokens_per_second) << name;
    EXPECT_GT(p.range.high, p.tokens_per_second) << name;
  }
  const WaferPrediction fitted = predict_wafer(wafer(), kModels[0], on_square(WaferPhase::decode, 420));
  EXPECT_LT(fitted.range.high / fitted.range.low, 1.15);  // the constants trade places, so their sum hardly moves
}

// A range is of the cells themselves; so each is also predicted by the fits that left a cell, or a model, out, its own
// among them: the largest error is 3.21 %, of Llama-2-13B on 540 x 540, where the fit to all has 2.38.
TEST(WaferPrediction, FitsThatHaveNotSeenACellPredictItToo) {
  constexpr std::size_t kCells = 13, kFittedModels = 2;
  for (const auto& row : published::kThroughputs) {
    if (row.method != WaferMethod::waferllm) continue;
    for (int i = 0; i < 3; ++i) {
      const double said = row.tokens_per_second[i];
      if (said == published::kWithheld) continue;
      for (std::size_t f = 0; f < kCells + kFittedModels; ++f) {
        PlmrDevice other = wafer();
        for (std::size_t c = 0; c < kVariedConstants.size(); ++c)
          (other.*kVariedConstants[c]).value = wafer().other_fits.at(f)[c];
        const WaferPrediction p =
            predict_wafer(other, model_named(row.model), on_square(row.phase, row.sides[i], row.method));
        EXPECT_LT(error_percent(p.tokens_per_second, said), 3.25) << row.model << " " << row.sides[i] << ", fit " << f;
      }
    }
  }
}

// Each of the thirteen cells beside the fit to the twelve others: within what that fit's own errors say of one more cell,
// by Student's t of its seven degrees of freedom, 95 %. The cell has no part in the fit nor in the bound. The one GEMV is
// alone of its kind: without it beta and Fd trade places, and it is missed by 7.8 %.
TEST(WaferPrediction, EveryFittedCellLiesWithinTheErrorsOfTheFitWithoutIt) {
  struct FittedCell {
    std::string name;
    double published;
    std::function<double(const PlmrDevice&)> predict;
  };
  std::vector<FittedCell> cells;  // in the fit's order
  for (const auto& row : published::kThroughputs) {
    if (row.method != WaferMethod::waferllm || row.tokens_per_second[0] == published::kWithheld) continue;
    for (int i = 0; i < 3; ++i) {
      const WaferWork work = on_square(row.phase, row.sides[i]);
      cells.push_back({fmt::format("{} {}", row.model, row.sides[i]), 1 / row.tokens_per_second[i],
                       [&model = model_named(row.model), work](const PlmrDevice& device) {
                         return 1 / wafer_tokens_per_second(device, model, work);
                       }});
    }
  }
  cells.push_back({"GEMV", published::kGemvs[0].wafer_ms / 1e3, [](const PlmrDevice& device) {
                     return device.seconds(gemv_cost(device, 16384, 16384, {750, 750}).cycles());
                   }});
  ASSERT_EQ(cells.size(), 13u);
  constexpr double kStudentOfSeven = 2.365;
  for (std::size_t out = 0; out < cells.size(); ++out) {
    PlmrDevice other = wafer();
    for (std::size_t c = 0; c < kVariedConstants.size(); ++c)
      (other.*kVariedConstants[c]).value = wafer().other_fits.at(out)[c];
    double squares = 0;
    for (std::size_t i = 0; i < cells.size(); ++i)
      if (i != out) squares += std::pow(cells[i].predict(other) / cells[i].published - 1, 2);
    const double standard_error = std::sqrt(squares / 7);  // twelve cells, five constants
    const double bound = cells[out].name == "GEMV" ? 0.08 : kStudentOfSeven * standard_error;
    EXPECT_LT(std::abs(cells[out].predict(other) / cells[out].published - 1), bound) << cells[out].name;
  }
}

// The spread of the fits and twice their standard error hold every cell, and still say something: of WaferLLM at most an
// eighth from end to end.
TEST(WaferPrediction, RangeCoversEveryCellThatWasFittedAndIsNarrow) {
  for (const auto& row : published::kThroughputs)
    for (int i = 0; i < 3; ++i) {
      const double said = row.tokens_per_second[i];
      if (said == published::kWithheld) continue;
      const WaferRange range =
          predict_wafer(wafer(), model_named(row.model), on_square(row.phase, row.sides[i], row.method)).range;
      EXPECT_LE(range.low, said) << row.model << " " << row.sides[i];
      EXPECT_GE(range.high, said) << row.model << " " << row.sides[i];
      EXPECT_LT(range.high / range.low, row.method == WaferMethod::waferllm ? 1.125 : 1.5)
          << row.model << " " << row.sides[i];
    }
}

TEST(WaferPrediction, DecodeOfManyTokensIsTheSumOfEach) {
  WaferWork work = on_square(WaferPhase::decode, 360);
  work.context = 100;
  work.output = 1000;
  double cycles = 0;
  for (std::int64_t at = 100; at < 1100; ++at)
    cycles += kModels[0].num_layers * decode_layer_cost(wafer(), kModels[0], {360, 360}, at).cycles();
  EXPECT_NEAR(predict_wafer(wafer(), kModels[0], work).cost.cycles(), cycles, 1e-9 * cycles);
}

TEST(WaferPrediction, ScalesTheLayersThatFitButRefusesAWholeModelThatDoesNot) {
  const WaferPrediction prefill = predict_wafer(wafer(), kModels[3], on_square(WaferPhase::prefill, 480));
  EXPECT_GT(prefill.devices, 1);
  EXPECT_LE(prefill.cost.memory_bytes, wafer().sram_bytes.value);
  WaferWork work = on_square(WaferPhase::end_to_end, 480);
  work.output = 128;
  EXPECT_THAT(
      [&] { predict_wafer(wafer(), kModels[3], work); },
      ThrowsMessage<InputError>(AllOf(HasSubstr("GB"), HasSubstr("regions of 480 x 480"), HasSubstr("850000"))));
}

TEST(WaferPrediction, RefusesAContextBeyondTheCacheWithTheNumbers) {
  WaferWork work = on_square(WaferPhase::decode, 360);
  work.context = 170000;
  EXPECT_THAT([&] { predict_wafer(wafer(), kModels[0], work); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("170000"), HasSubstr("137548"), HasSubstr("6 region"))));
}

TEST(WaferPrediction, NamesTheSmallestMeshThatALayerNeeds) {
  EXPECT_THAT(
      [&] { predict_wafer(wafer(), kModels[0], on_square(WaferPhase::decode, 60)); },
      ThrowsMessage<InputError>(AllOf(HasSubstr("too few"), HasSubstr("smallest square mesh that would do is"))));
  EXPECT_THAT([&] { predict_wafer(wafer(), kModels[0], on_square(WaferPhase::prefill, 2)); },
              ThrowsMessage<InputError>(HasSubstr("3 or more")));
}

// 103 x 103 would hold a layer's product, but not a layer's weights and cache.
TEST(WaferPrediction, RefusesAMeshThatALayerDoesNotFit) {
  EXPECT_THAT([&] { predict_wafer(wafer(), kModels[0], on_square(WaferPhase::decode, 103)); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("decode: core (0, 0) of 103 x 103"), HasSubstr("49152"),
                                              HasSubstr("each of 32 layers has a region"),
                                              HasSubstr("smallest square mesh that would do is"))));
}

// 7.1's averages over four models, two of which are held out, on the meshes whose known cells have such ratios.
TEST(WaferBaselines, AreAsMuchSlowerAsTheTextSays) {
  const auto times = [](WaferPhase phase, int side, WaferMethod rival) {
    double sum = 0;
    for (const WaferModel& model : kModels)
      sum += predict_wafer(wafer(), model, on_square(phase, side)).tokens_per_second /
             predict_wafer(wafer(), model, on_square(phase, side, rival)).tokens_per_second;
    return sum / std::size(kModels);
  };
  EXPECT_NEAR(times(WaferPhase::prefill, 600, WaferMethod::t10), 160, 5);
  EXPECT_NEAR(times(WaferPhase::decode, 420, WaferMethod::t10), 5.7, 0.2);
  EXPECT_NEAR(times(WaferPhase::prefill, 480, WaferMethod::ladder), 270, 6);
  EXPECT_NEAR(times(WaferPhase::prefill, 600, WaferMethod::ladder), 450, 9);
  EXPECT_NEAR(times(WaferPhase::decode, 420, WaferMethod::ladder), 217, 4);
}

// Slower than Heddle's own programs everywhere, scaled by the device's hops, ramps and links; the range shows the
// uncertainty.
TEST(WaferBaselines, KeepTheirOrderOnDevicesThatNobodyMeasured) {
  for (const char* name : {"wse-3", "blackhole", "wormhole", "dojo"}) {
    const PlmrDevice device = plmr_preset(name);
    const int side = static_cast<int>(std::min(device.mesh_width.value, device.mesh_height.value));
    const WaferMesh mesh{side, side};
    const auto gemm = [&](WaferMethod method) { return gemm_cost(device, {1024, 1024, 1024}, mesh, method).cycles(); };
    EXPECT_LT(gemm(WaferMethod::waferllm), gemm(WaferMethod::t10)) << name;
    EXPECT_LT(gemm(WaferMethod::t10), gemm(WaferMethod::ladder)) << name;
    const auto gemv = [&](WaferMethod method) { return gemv_cost(device, 2048, 2048, mesh, method).cycles(); };
    EXPECT_LT(gemv(WaferMethod::waferllm), gemv(WaferMethod::t10)) << name;
    EXPECT_LT(gemv(WaferMethod::t10), gemv(WaferMethod::ladder)) << name;
    if (device.name != "dojo") continue;  // which has the memory of a whole model
    constexpr WaferModel kOneBillion{.num_layers = 16,
                                     .hidden = 2048,
                                     .intermediate = 8192,
                                     .num_heads = 32,
                                     .num_kv_heads = 8,
                                     .head_dim = 64,
                                     .vocab = 128256};
    for (const WaferMethod method : {WaferMethod::t10, WaferMethod::ladder}) {
      WaferWork work = on_square(WaferPhase::decode, side, method);
      work.context = 1024;
      const WaferRange range = predict_wafer(device, kOneBillion, work).range;
      EXPECT_GT(range.high / range.low, 1.5) << name;
    }
  }
}

// Where a tile's size steps (8B: 14 % from 682 to 683 cores a side), no measurement shows on which side of the step a
// mesh is: its range covers its neighbours' predictions. And more cores slow prefill down by at most a few per cent.
TEST(WaferPrediction, PrefillsRangeHoldsTheStepsBesideItsMesh) {
  for (const WaferModel& model : kModels) {
    double best = 0;
    WaferPrediction last;
    for (int side = 480; side <= 750; ++side) {
      const WaferPrediction p = predict_wafer(wafer(), model, on_square(WaferPhase::prefill, side));
      EXPECT_GT(p.tokens_per_second, 0.95 * best) << side;
      EXPECT_GT(p.range.high, 0.99 * best) << side;
      EXPECT_LT(p.range.high / p.range.low, 1.3) << side;  // it still says something
      best = std::max(best, p.tokens_per_second);
      if (side > 480) {
        EXPECT_LE(std::max(p.range.low, last.range.low), std::min(p.range.high, last.range.high)) << side;
        EXPECT_LE(p.range.low, last.tokens_per_second) << side;
        EXPECT_GE(p.range.high, last.tokens_per_second) << side;
        EXPECT_LE(last.range.low, p.tokens_per_second) << side;
        EXPECT_GE(last.range.high, p.tokens_per_second) << side;
      }
      last = p;
    }
  }
}

// A rectangular mesh's range is wider than its square neighbour's by the model's error, and both kinds of unmeasured
// meshes have a note.
TEST(WaferPrediction, SaysWhereNoMeshOfTheKindWasMeasured) {
  const auto on = [](WaferMesh mesh) {
    return predict_wafer(wafer(), kModels[0], {.phase = WaferPhase::decode, .decode_mesh = mesh});
  };
  const WaferPrediction square = on({480, 480}), oblong = on({500, 480}), small = on({360, 360});
  EXPECT_THAT(square.notes, ::testing::Not(::testing::Contains(HasSubstr("oblong"))));
  EXPECT_THAT(square.notes, ::testing::Not(::testing::Contains(HasSubstr("outside"))));
  EXPECT_THAT(oblong.notes, ::testing::Contains(HasSubstr("no oblong mesh was measured")));
  EXPECT_THAT(small.notes, ::testing::Contains(HasSubstr("420 to 660 cores a side; 360 x 360 is outside")));
  EXPECT_GT(oblong.range.high / oblong.tokens_per_second, square.range.high / square.tokens_per_second);
  EXPECT_LT(oblong.range.low / oblong.tokens_per_second, square.range.low / square.tokens_per_second);
}

// Mixtral's sizes. Of eight experts two work for a token: decode takes their GEMVs and more sums, prefill the rows of
// all.
TEST(WaferPrediction, ExpertsCostTheirMemoryRouterAndAllToAll) {
  WaferModel dense = kModels[0];
  WaferModel mixture = dense;
  mixture.experts = 8;
  mixture.experts_per_token = 2;
  EXPECT_NEAR(wafer_weight_bytes(mixture) - wafer_weight_bytes(dense), 2.0 * 32 * (7 * 3.0 * 4096 * 14336 + 8.0 * 4096),
              1);
  const auto prefill = [&](const WaferModel& model, int side) {
    return predict_wafer(wafer(), model, on_square(WaferPhase::prefill, side)).cost;
  };
  const WaferCost cost = prefill(mixture, 720);
  EXPECT_GT(cost.cycles("all-to-all"), 0);
  EXPECT_GT(cost.cycles("router"), 0);
  // Twice the rows of a dense layer's feed-forward, in smaller tiles.
  const double experts = cost.cycles("experts' gate, up") + cost.cycles("experts' down");
  const double feed_forward = prefill(dense, 720).cycles("gate, up") + prefill(dense, 720).cycles("down");
  EXPECT_GT(experts, 1.2 * feed_forward);
  EXPECT_LT(experts, 8 * feed_forward);  // a core of a band makes the calls of eight places
  const auto decode = [&](const WaferModel& model) {
    return predict_wafer(wafer(), model, on_square(WaferPhase::decode, 660)).cost;
  };
  EXPECT_GT(decode(mixture).cycles("GEMV"), decode(dense).cycles("GEMV"));
  EXPECT_LT(decode(mixture).cycles("GEMV"), 2 * decode(dense).cycles("GEMV"));
  EXPECT_GT(decode(mixture).cycles("all-reduce"), decode(dense).cycles("all-reduce"));
}

TEST(WaferBaselines, IgnoreWhatTheyIgnore) {
  for (const WaferMethod method : {WaferMethod::t10, WaferMethod::ladder}) {
    const auto rate = [&](WaferPhase phase, int side) {
      return predict_wafer(wafer(), kModels[0], on_square(phase, side, method)).tokens_per_second;
    };
    EXPECT_GT(rate(WaferPhase::prefill, 480), rate(WaferPhase::prefill, 720));  // more cores are slower: P, L
    EXPECT_GT(rate(WaferPhase::decode, 420), rate(WaferPhase::decode, 660));
    EXPECT_GT(gemm_cost(wafer(), {4096, 4096, 4096}, {360, 540}, method).cycles(),
              gemm_cost(wafer(), {4096, 4096, 4096}, {360, 540}, WaferMethod::waferllm).cycles());
    EXPECT_GT(gemv_cost(wafer(), 4096, 4096, {360, 540}, method).cycles(),
              gemv_cost(wafer(), 4096, 4096, {360, 540}, WaferMethod::waferllm).cycles());
  }
}

// Transfers, and the memory and routes they need, are each program's own.
TEST(WaferBaselines, HaveMemoryAndRoutesOfTheirOwn) {
  const GemmSize size{4096, 4096, 4096};
  const WaferCost own = gemm_cost(wafer(), size, {480, 480}, WaferMethod::waferllm);
  const WaferCost t10 = gemm_cost(wafer(), size, {480, 480}, WaferMethod::t10);
  const WaferCost ladder = gemm_cost(wafer(), size, {480, 480}, WaferMethod::ladder);
  EXPECT_EQ(t10.routes, 8);  // relays: one in and one out, of each direction
  EXPECT_EQ(ladder.routes, 8);
  EXPECT_LE(t10.memory_bytes, own.memory_bytes);  // M likewise
  EXPECT_GT(ladder.memory_bytes, own.memory_bytes);
  EXPECT_GT(t10.cycles("crossbar"), 0);
  EXPECT_GT(ladder.cycles("remote reads"), 0);
  EXPECT_EQ(ignored_properties(WaferMethod::t10), "P L");
  EXPECT_EQ(ignored_properties(WaferMethod::ladder), "P L M R");
  // Pieces of K are cut by the longer side: no least common multiple.
  EXPECT_EQ(baseline_tiles(size, {719, 720}).steps, 720);
  EXPECT_THAT(
      [&] {
        gemm_cost(wafer(), size, {9, 9}, WaferMethod::ladder);
      },
      ThrowsMessage<InputError>(AllOf(HasSubstr("Ladder-like GEMM on 9 x 9"), HasSubstr("too few"))));
}

TEST(WaferRegions, AreCountedSideBySideAndByCores) {
  const auto room = [](WaferMesh mesh) { return region_room(wafer(), mesh); };
  EXPECT_EQ(room({360, 360}).side_by_side, 4);
  EXPECT_EQ(room({360, 360}).by_cores, 6);
  EXPECT_EQ(room({375, 331}).side_by_side, 6);
  EXPECT_EQ(room({994, 375}).side_by_side, 2);  // turned
  EXPECT_EQ(room({660, 660}).side_by_side, 1);
  EXPECT_THAT([&] { room({751, 751}); }, ThrowsMessage<InputError>(HasSubstr("750 x 994")));
}

// Until they go to the decode's mesh.
TEST(WaferPrediction, PrefillHoldsThePromptsKeysAndValues) {
  const WaferWork work = on_square(WaferPhase::prefill, 660);
  const WaferPrediction p = predict_wafer(wafer(), kModels[0], work);
  EXPECT_NEAR(p.kv_bytes, 131072.0 * 4096 / (660 * 660), 1e-6);
  EXPECT_GT(p.cost.memory_bytes, wafer_weight_bytes(kModels[0]) / (660 * 660) + p.kv_bytes);
  WaferWork longer = on_square(WaferPhase::prefill, 330);
  const int regions = predict_wafer(wafer(), kModels[0], longer).regions;
  longer.context = 4 * 4096;
  EXPECT_GT(predict_wafer(wafer(), kModels[0], longer).regions, regions);
}

// Llama-2-13B on 750 x 750, as the paper runs it: the weights leave no room for the keys and values of 4096 tokens, but
// the cores beside the mesh have room.
TEST(WaferPrediction, KeysAndValuesGoToIdleCoresWhereTheMeshIsFull) {
  WaferWork work{.phase = WaferPhase::end_to_end,
                 .prefill_mesh = {750, 750},
                 .decode_mesh = {375, 375},
                 .context = 4096,
                 .output = 4096};
  const WaferPrediction p = predict_wafer(wafer(), kModels[1], work);
  EXPECT_EQ(p.prefill_placement.regions, 1);
  EXPECT_EQ(p.prefill_placement.kv_bytes, 0);
  EXPECT_NEAR(p.prefill_placement.kv_beside, 819200.0 * 4096, 1);
  // A layer: 74.6 values a core, 38 words, of 750 cores over a column's last link, behind a stage, a hop and a ramp.
  work.phase = WaferPhase::prefill;
  const double stage = wafer().beta_cycles.value;
  EXPECT_NEAR(predict_wafer(wafer(), kModels[1], work).cost.cycles("KV spill"), 40 * (750 * 38 + 1 + stage + 2), 1e-6);
  work.prefill_mesh = {480, 480};  // scaled from the layers that fit
  EXPECT_EQ(predict_wafer(wafer(), kModels[1], work).cost.cycles("KV spill"), 0);
  EXPECT_THAT(p.warnings, ::testing::Contains(HasSubstr("beside its region")));
  EXPECT_THAT(p.warnings, ::testing::Contains(HasSubstr("6 region(s) of 375 x 375")));
  EXPECT_EQ(p.regions, 6);
  EXPECT_EQ(p.room.side_by_side, 4);
}

TEST(WaferPrediction, WarnsOfSidesWithALargeCommonMultiple) {
  WaferWork work{.phase = WaferPhase::prefill, .prefill_mesh = {640, 600}};
  const auto warnings = predict_wafer(wafer(), kModels[0], work).warnings;
  EXPECT_THAT(warnings, ::testing::Contains(AllOf(HasSubstr("9600 steps"), HasSubstr("600 x 600 takes"))));
  EXPECT_FALSE(evener_mesh({720, 720}));
  EXPECT_FALSE(evener_mesh({720, 360}));
  EXPECT_FALSE(evener_mesh({600, 900}));
  ASSERT_TRUE(evener_mesh({994, 330}));
  EXPECT_EQ(evener_mesh({994, 330})->width, 990);
  EXPECT_THAT(
      [] {
        gemm_cost(wafer(), {4096, 4096, 4096}, {719, 720}, WaferGemm::mesh_gemm);
      },
      ThrowsMessage<InputError>(AllOf(HasSubstr("517680 steps"), HasSubstr("719 x 719"))));
}

TEST(WaferPrediction, SaysWhatMeshWouldDoForEveryRefusal) {
  WaferWork work = on_square(WaferPhase::decode, 700);
  work.context = 100000;
  EXPECT_THAT(predict_wafer(wafer(), kModels[0], work).warnings,
              ::testing::Contains(AllOf(HasSubstr("decode: a context of 100000"), HasSubstr("smallest square"))));
  work = on_square(WaferPhase::end_to_end, 480);
  work.output = 128;
  EXPECT_THAT([&] { predict_wafer(wafer(), kModels[3], work); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("prefill: "), HasSubstr("side by side"),
                                              HasSubstr("no square mesh of it would do"))));
  EXPECT_THAT(
      [] {
        kv_capacity(wafer(), kModels[1], {375, 375}, {.regions = 3});
      },
      ThrowsMessage<InputError>(HasSubstr("5 regions would do")));
  EXPECT_THAT(
      [] {
        kv_capacity(wafer(), kModels[1], {700, 700});
      },
      ThrowsMessage<InputError>(HasSubstr("the smallest square mesh that would do is")));
}

TEST(WaferTuner, IsNoWorseThanThePapersMeshesAndFits) {
  const WaferTuning best = tune_wafer(wafer(), kModels[0], 2048, 128);
  const WaferWork paper{.phase = WaferPhase::end_to_end,
                        .prefill_mesh = {660, 660},
                        .decode_mesh = {360, 360},
                        .context = 2048,
                        .output = 128};
  EXPECT_GE(best.prediction.tokens_per_second, predict_wafer(wafer(), kModels[0], paper).tokens_per_second);
  EXPECT_LE(best.prediction.regions, best.prediction.room.side_by_side);
  EXPECT_TRUE(best.prediction.warnings.empty());
  EXPECT_THAT([] { tune_wafer(wafer(), kModels[3], 4096, 128); }, ThrowsMessage<InputError>(HasSubstr("prefill")));
}

TEST(WaferTuner, RefusesAContextThatNoMeshHolds) {
  EXPECT_THAT([] { tune_wafer(wafer(), kModels[1], 16, 100000); },
              ThrowsMessage<InputError>(AllOf(HasSubstr("a context of 100016 tokens"), HasSubstr("no square mesh"),
                                              ::testing::Not(HasSubstr("would do is")))));
}

TEST(WaferTuner, EndsOnTheLargestDeviceThatAFileMayHave) {
  PlmrDevice large = wafer();
  large.mesh_width.value = large.mesh_height.value = 65535;
  large.num_cores.value = 65535.0 * 65535;
  EXPECT_GT(tune_wafer(large, kModels[0], 2048, 16).prediction.tokens_per_second, 0);
}

// No square is better; a search over squares only would find 362 on its way to the smallest mesh that fits.
TEST(WaferTuner, TakesRectanglesWhereTheyAreFaster) {
  const WaferTuning best = tune_wafer(wafer(), kModels[0], 2048, 2048);
  const auto cycles = [](WaferMesh mesh) {
    return fitting_cycles(wafer(), kModels[0],
                          {.phase = WaferPhase::decode, .decode_mesh = mesh, .context = 2048, .output = 2048},
                          RegionCount::side_by_side);
  };
  const double found = *cycles(best.decode_mesh);
  for (int side = 200; side <= 750; side += 2) {
    if (const auto square = cycles({side, side})) {
      EXPECT_LT(found, *square) << side;
    }
  }
  EXPECT_NE(best.decode_mesh.width, best.decode_mesh.height);
}

// A model that does not fit side by side is counted as the paper counts, with a warning.
TEST(WaferTuner, FallsBackToTheNumberOfCores) {
  const WaferTuning best = tune_wafer(wafer(), kModels[1], 4096, 4096);
  EXPECT_GT(best.prediction.regions, best.prediction.room.side_by_side);
  EXPECT_THAT(best.prediction.warnings, ::testing::Contains(HasSubstr("as the paper counts")));
}

// The cells in the fit and in the tables are the same.
TEST(WaferPublished, IsWhatTheFitReads) {
  const std::string fit = read_file(HEDDLE_SOURCE_DIR "/tools/fit_plmr.py", 1 << 20);
  for (const auto& row : published::kThroughputs)
    for (int i = 0; i < 3; ++i)
      if (row.tokens_per_second[i] != published::kWithheld) {
        EXPECT_THAT(fit, HasSubstr(fmt::format("{}: {:.1f}", row.sides[i], row.tokens_per_second[i])));
      }
}

}  // namespace
}  // namespace heddle
