// A layer of experts on a wafer compared with float64.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"
#include "wafer/programs/moe.h"

namespace heddle {
namespace {

class MoeLayer {
 public:
  MoeLayer(int hidden, int intermediate, int experts, int per_token) : hidden_(hidden), intermediate_(intermediate) {
    router_ = matrix(experts, hidden);
    moe_ = {.hidden = hidden, .intermediate = intermediate, .experts_per_token = per_token};
    moe_.router = view(router_, experts, hidden);
    for (int e = 0; e < experts; ++e) {
      gate_up_.push_back(matrix(2 * intermediate, hidden));
      down_.push_back(matrix(hidden, intermediate));
    }
    for (int e = 0; e < experts; ++e)
      moe_.experts.push_back({.gate_up = view(gate_up_[at(e)], 2 * intermediate, hidden),
                              .down = view(down_[at(e)], hidden, intermediate)});
  }

  const WaferMoe& moe() const { return moe_; }
  std::vector<float> tokens(int count) { return matrix(count, hidden_); }

  struct Expected {
    std::vector<double> y;
    std::vector<int> experts;
  };
  Expected exact(const std::vector<float>& x) const {
    Expected result;
    for (std::size_t t = 0; t < x.size() / at(hidden_); ++t) {
      const float* row = x.data() + t * at(hidden_);
      std::vector<double> logits;
      for (std::size_t e = 0; e < moe_.experts.size(); ++e) logits.push_back(dot(router_, static_cast<int>(e), row));
      std::vector<int> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::sort(order, [&](int a, int b) { return logits[at(a)] > logits[at(b)]; });
      order.resize(at(moe_.experts_per_token));
      double sum = 0;
      for (const int e : order) sum += std::exp(logits[at(e)]);
      std::vector<double> y(at(hidden_));
      for (const int e : order) {
        std::vector<double> inner(at(intermediate_));
        for (int f = 0; f < intermediate_; ++f) {
          const double gate = dot(gate_up_[at(e)], f, row), up = dot(gate_up_[at(e)], intermediate_ + f, row);
          inner[at(f)] = gate / (1 + std::exp(-gate)) * up;
        }
        for (int d = 0; d < hidden_; ++d)
          for (int f = 0; f < intermediate_; ++f)
            y[at(d)] += std::exp(logits[at(e)]) / sum * static_cast<double>(down_[at(e)][at(d * intermediate_ + f)]) *
                        inner[at(f)];
      }
      result.y.insert(result.y.end(), y.begin(), y.end());
      result.experts.insert(result.experts.end(), order.begin(), order.end());
    }
    return result;
  }

 private:
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  static Weight view(const std::vector<float>& values, int rows, int columns) {
    return {.blocks = {WeightBlock{values.data(), rows}}, .out_features = rows, .in_features = columns};
  }
  std::vector<float> matrix(int rows, int columns) {
    std::uniform_real_distribution<float> uniform(-1, 1);
    std::vector<float> values(at(rows) * at(columns));
    for (float& value : values) value = uniform(random_);
    return values;
  }
  double dot(const std::vector<float>& weights, int row, const float* x) const {
    double sum = 0;
    for (int i = 0; i < hidden_; ++i)
      sum += static_cast<double>(weights[at(row * hidden_ + i)]) * static_cast<double>(x[i]);
    return sum;
  }

  std::minstd_rand random_{7};
  int hidden_, intermediate_;
  std::vector<float> router_;
  std::vector<std::vector<float>> gate_up_, down_;
  WaferMoe moe_;
};

// Sums of at most 50 terms of size one, and products of three of them: some 3 x 50 roundings of 2^-24 of the largest
// value.
void expect_near(const std::vector<float>& ours, const std::vector<double>& exact, const std::string& what) {
  ASSERT_EQ(ours.size(), exact.size());
  double largest = 0, error = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    error = std::max(error, std::abs(exact[i] - static_cast<double>(ours[i])));
  }
  EXPECT_LE(error, 1e-5 * largest) << what;
}

PlmrDevice wafer_of_experts() {
  PlmrDevice device = plmr_preset("wse-2");
  device.sram_bytes.value = 1e9;
  return device;
}

struct MoeCase {
  int hidden, intermediate, experts, per_token;
};

TEST(WaferMoe, MatchesFloat64OnEveryMeshAndSendsTokensToTheirExperts) {
  ThreadPool pool(2);
  for (const MoeCase& c : {MoeCase{24, 32, 4, 2},  // as Mixtral is, but small
                           MoeCase{17, 23, 8, 2},  // sizes that divide nothing
                           MoeCase{8, 8, 3, 1}, MoeCase{12, 10, 2, 2}, MoeCase{9, 5, 1, 1}}) {
    MoeLayer layer(c.hidden, c.intermediate, c.experts, c.per_token);
    for (const WaferMesh cores : {WaferMesh{3, 3}, {6, 6}, {12, 12}, {8, 13}, {5, 7}, {33, 33}})
      for (const int count : {1, 7, 40}) {
        const std::vector<float> x = layer.tokens(count);
        const auto expected = layer.exact(x);
        const std::string what =
            fmt::format("{} experts, {} tokens, {} x {}", c.experts, count, cores.width, cores.height);
        const WaferMoeResult result = wafer_moe_prefill(layer.moe(), cores, x, {.device = wafer_of_experts()}, pool);
        ASSERT_EQ(result.experts, expected.experts) << what;
        expect_near(result.y, expected.y, what);
        EXPECT_LE(result.cost.routes, 21) << what;
        if (count > 1) continue;
        const WaferMoeResult decoded = wafer_moe_decode(layer.moe(), cores, x, {.device = wafer_of_experts()}, pool);
        EXPECT_EQ(decoded.experts, expected.experts) << what;
        expect_near(decoded.y, expected.y, what + ", decoded");
        EXPECT_EQ(decoded.cost.cycles("all-to-all"), 0);
        EXPECT_GT(decoded.cost.cycles(), 0);
      }
  }
}

// All-to-all is charged for rows that leave their band, in both directions; more tokens, more rows.
TEST(WaferMoe, AllToAllCostsWhatItsRowsDo) {
  ThreadPool pool(1);
  MoeLayer layer(24, 32, 4, 2);
  const PlmrDevice device = wafer_of_experts();
  const auto cost = [&](int tokens) {
    return wafer_moe_prefill(layer.moe(), {12, 12}, layer.tokens(tokens), {.device = device}, pool).cost;
  };
  const WaferCost few = cost(12), many = cost(1200);
  EXPECT_GT(few.cycles("all-to-all"), 0);
  EXPECT_GT(many.cycles("all-to-all"), 2 * few.cycles("all-to-all"));
  // No link carries more than all rows. The lower bound is the rows that cross the middle, spread over all bands.
  const double row_words = 2 * 2 / device.link_bytes_per_cycle.value, rows = 2 * 1200;
  EXPECT_GT(many.cycles("all-to-all"), 2 * rows / 8 * row_words);
  EXPECT_LT(many.cycles("all-to-all"), 2 * (rows * row_words + 24 * (1 + device.beta_cycles.value)));
  for (const char* part : {"products", "all-reduce", "gathers", "experts: products", "experts: element-wise work"})
    EXPECT_GT(many.cycles(part), 0) << part;
}

// Both experts of a token below it: its row goes down once. As many tokens with one expert at the bottom take as long.
TEST(WaferMoe, ARowGoesOnceInEachDirection) {
  ThreadPool pool(1);
  const PlmrDevice device = wafer_of_experts();
  const auto dispatch = [&](const std::vector<mesh::RowMove>& moves) {
    mesh::TimedMesh mesh(device, mesh::Grid::of_cores({3, 12}), pool);
    const mesh::Tile from = mesh.allocate("from", 4, 8, mesh::Buffers::one);
    const mesh::Tile into = mesh.allocate("into", 4, 8, mesh::Buffers::one);
    mesh.exchange(from, into, mesh::Axis::y, moves);
    return mesh.take_cost().cycles("all-to-all");
  };
  const double to_one = dispatch({{0, 0, 11, 0}, {0, 1, 11, 1}});
  EXPECT_EQ(dispatch({{0, 0, 5, 0}, {0, 0, 11, 0}, {0, 1, 5, 1}, {0, 1, 11, 1}}), to_one);
  // Rows of their own, for each of the two places, are four words more over the first links.
  EXPECT_EQ(dispatch({{0, 0, 5, 0}, {0, 1, 11, 0}, {0, 2, 5, 1}, {0, 3, 11, 1}}), to_one + 2 * 4);
  // In both directions at once.
  EXPECT_EQ(dispatch({{6, 0, 0, 0}, {6, 0, 11, 0}}), dispatch({{6, 0, 0, 0}}));
}

TEST(WaferMoe, RefusesWhatIsNoLayer) {
  ThreadPool pool(1);
  MoeLayer layer(8, 8, 3, 1), greedy(8, 8, 3, 4);
  EXPECT_THROW(wafer_moe_prefill(layer.moe(), {3, 3}, std::vector<float>(7), {}, pool), InvalidArgument);
  EXPECT_THROW(wafer_moe_prefill(greedy.moe(), {3, 3}, std::vector<float>(8), {}, pool), InvalidArgument);
  EXPECT_THROW(wafer_moe_decode(layer.moe(), {3, 3}, std::vector<float>(16), {}, pool), InvalidArgument);
  EXPECT_THROW(wafer_moe_prefill(layer.moe(), {3, 2}, std::vector<float>(8), {}, pool), InputError);
  PlmrDevice small = plmr_preset("wse-2");
  small.sram_bytes.value = 100;
  EXPECT_THROW(wafer_moe_prefill(layer.moe(), {3, 3}, std::vector<float>(8), {.device = small}, pool), InputError);
}

TEST(WaferMoe, BandsLieInTheMeshAndTakeAllExperts) {
  for (int side = 3; side <= 100; ++side)
    for (const int experts : {1, 2, 3, 8, 64}) {
      const ExpertBands bands = expert_bands({side, side}, experts);
      EXPECT_GE(bands.height, 3);
      EXPECT_LE(bands.count * bands.height, side);
      EXPECT_GE(bands.count * bands.rounds, experts);
    }
  EXPECT_EQ(expert_bands({660, 660}, 8).height, 66);  // not 82, with 27060 places a side
}

}  // namespace
}  // namespace heddle
