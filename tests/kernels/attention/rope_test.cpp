#include "kernels/attention/rope.h"

#include "kernels/operands.h"

namespace heddle {
namespace {

std::vector<float> inverse_frequencies(int head_dim, double theta) {
  std::vector<float> result;
  for (int i = 0; i < head_dim; i += 2) result.push_back(static_cast<float>(std::pow(theta, -double(i) / head_dim)));
  return result;
}

struct RopeCase {
  int head_dim, num_heads, num_kv_heads;
  float scale = 1;
};

// More pairs than are turned at once; two elements; one head; sizes that are no power of two.
const RopeCase kRopeCases[] = {{2, 1, 1}, {24, 6, 2}, {64, 4, 4}, {128, 40, 8}, {130, 3, 1, 1.1386294f}, {258, 2, 1}};

TEST(Rope, TurnsEachPairByItsFloat32Angle) {
  for (const RopeCase& c : kRopeCases) {
    SCOPED_TRACE(fmt::format("head_dim {}", c.head_dim));
    const std::vector<std::int32_t> positions = {0, 1, 2, 1000, 131071, 7, 7};
    const std::vector<float> inv_freq = inverse_frequencies(c.head_dim, 10000);
    const int q_columns = c.num_heads * c.head_dim, k_columns = c.num_kv_heads * c.head_dim, half = c.head_dim / 2;
    // q and k are columns of one tensor, a third part of which stays as it is.
    const Rows before = Rows::random(7, q_columns + 2 * k_columns, 1, 1, 3), fused = before;
    on_cpu(2, [&](Stream& stream) {
      rope({.q = Tensor(fused).column_slice(0, q_columns),
            .k = Tensor(fused).column_slice(q_columns, k_columns),
            .positions = positions.data(),
            .inv_freq = inv_freq.data(),
            .head_dim = c.head_dim,
            .scale = c.scale},
           stream);
    });
    for (std::int64_t t = 0; t < 7; ++t) {
      const float *x = before.row(t), *y = fused.row(t);
      for (int column = 0; column < q_columns + k_columns; ++column) {
        const int head_start = column / c.head_dim * c.head_dim, i = column % c.head_dim;
        const bool low = i < half;
        const float angle =
            static_cast<float>(positions[static_cast<std::size_t>(t)]) * inv_freq[static_cast<std::size_t>(i % half)];
        const double a = x[column], b = x[head_start + (low ? i + half : i - half)];
        const double cosine = std::cos(double{angle}) * c.scale, sine = std::sin(double{angle}) * c.scale;
        const double exact = low ? a * cosine - b * sine : a * cosine + b * sine;
        // Cosine and scale are rounded, then product and sum.
        ASSERT_NEAR(y[column], exact, 4 * kUnit * (std::fabs(a * cosine) + std::fabs(b * sine))) << "token " << t;
        // Bit for bit: the four rounded steps of the header.
        const float cos32 = static_cast<float>(std::cos(double{angle})) * c.scale;
        const float sin32 = static_cast<float>(std::sin(double{angle})) * c.scale;
        const float a32 = x[column], b32 = x[head_start + (low ? i + half : i - half)];
        ASSERT_EQ(y[column], low ? a32 * cos32 - b32 * sin32 : a32 * cos32 + b32 * sin32) << "token " << t;
      }
      for (int column = q_columns + k_columns; column < fused.columns(); ++column) ASSERT_EQ(y[column], x[column]);
    }
    EXPECT_TRUE(fused.gaps_untouched());
  }
}

TEST(Rope, BitsDependOnNeitherThreadsNorBatch) {
  constexpr int kTokens = 90, kHeadDim = 64, kColumns = 8 * kHeadDim;  // several pieces
  std::vector<std::int32_t> positions(kTokens);
  for (int t = 0; t < kTokens; ++t) positions[static_cast<std::size_t>(t)] = 37 * t;
  const std::vector<float> inv_freq = inverse_frequencies(kHeadDim, 500000);
  const auto run = [&](int threads, Tensor q, Tensor k, const std::int32_t* at) {
    on_cpu(threads, [&](Stream& stream) { rope({q, k, at, inv_freq.data(), kHeadDim}, stream); });
  };
  const Rows q = Rows::random(kTokens, kColumns, 1), k = Rows::random(kTokens, kHeadDim, 2);
  const Rows q1 = q, k1 = k, q5 = q, k5 = k, q_alone = q, k_alone = k;
  run(1, q1, k1, positions.data());
  run(5, q5, k5, positions.data());
  run(1, q_alone.part(71, 1), k_alone.part(71, 1), positions.data() + 71);
  EXPECT_EQ(bits(q5), bits(q1));
  EXPECT_EQ(bits(k5), bits(k1));
  EXPECT_EQ(bits(q_alone, 71, 1), bits(q1, 71, 1));
  EXPECT_EQ(bits(k_alone, 71, 1), bits(k1, 71, 1));
}

TEST(Rope, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Rows q = Rows::random(2, 16, 1), k = Rows::random(2, 8, 2);
  const std::vector<std::int32_t> positions = {0, 1};
  const std::vector<float> inv_freq = inverse_frequencies(8, 10000);
  const RopeParams good{q, k, positions.data(), inv_freq.data(), 8};
  const auto broken = [&](auto change, const std::string& part) {
    RopeParams params = good;
    change(params);
    expect_invalid([&] { rope(params, stream); }, part);
  };
  rope(good, stream);
  broken([](RopeParams& p) { p.head_dim = 7; }, "rope: head_dim is 7, expected an even number");
  broken([](RopeParams& p) { p.head_dim = 0; }, "rope: head_dim is 0");
  broken([](RopeParams& p) { p.head_dim = 6; }, "not multiples of head_dim 6");
  broken([](RopeParams& p) { p.k.rows = 1; }, "rope: k is [1, 8], expected [2, 8]");
  broken([](RopeParams& p) { p.q.data = nullptr; }, "rope: q is null");
  broken([](RopeParams& p) { p.positions = nullptr; }, "rope: positions is null");
  broken([](RopeParams& p) { p.inv_freq = nullptr; }, "rope: inv_freq is null");
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
