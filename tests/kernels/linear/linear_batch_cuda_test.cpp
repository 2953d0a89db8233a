// The GEMM of a decode batch, 17 to 64 tokens, in each of its plans. Tests on a GPU are skipped, saying so, where there
// is none.
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <span>
#include <vector>

#include "base/graph.h"
#include "kernels/cuda_operands.h"
#include "kernels/linear/linear_sm90.h"
#include "kernels/linear/linear_sm90_batch.h"

namespace heddle {
namespace {

constexpr DType kF32 = DType::float32, kBf16 = DType::bfloat16, kF16 = DType::float16;

using LinearBatchOnGpu = OnGpu;

struct Shape {
  std::int64_t tokens, outputs, in_features;
  bool has_bias = false;
  std::int64_t y_gap = 3;
};

// Integers in [-largest, largest].
Rows integers(std::int64_t rows, std::int64_t columns, std::uint32_t seed, int largest) {
  std::mt19937 random(seed);
  Rows result(rows, columns);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      result.row(r)[c] =
          static_cast<float>(static_cast<int>(random() % static_cast<std::uint32_t>(2 * largest + 1)) - largest);
  return result;
}

// A GEMM on the GPU, or, with `gated`, one of gate and up. Behind the tokens of x there are rows of NaN, and behind
// those of y rows that nobody may touch.
struct Problem {
  static constexpr std::int64_t kSpareRows = 65;

  enum class Values { integers, reals };

  Problem(const Shape& shape, DType dtype, DType y_dtype, Values values, bool gated = false)
      : rows(gated ? 2 * shape.outputs : shape.outputs),
        x(made(values, shape.tokens, shape.in_features, 1, gated ? 1 : 3)),
        w(made(values, rows, shape.in_features, 2, gated ? 1 : 3)),
        bias(integers(1, rows, 3, 20)),
        gpu_x(with_spare_rows(x), dtype, {.gap = 8}),
        gpu_w(w, dtype),
        gpu_bias(bias, kF32),
        between(shape.tokens, gated ? rows : 1, dtype),
        y(shape.tokens + kSpareRows, shape.outputs, y_dtype, {.gap = shape.y_gap}),
        workspace(linear_workspace_bytes(kGpu), kGpu),
        is_gated(gated) {
    weight.blocks[0] = {Tensor(gpu_w).data, rows};
    weight.out_features = rows;
    weight.in_features = shape.in_features;
    weight.dtype = dtype;
    if (shape.has_bias) weight.bias = static_cast<const float*>(Tensor(gpu_bias).data);
  }

  LinearParams params() const { return {.x = tokens_of(gpu_x), .weight = weight, .y = tokens_of(y)}; }
  LinearSwigluParams swiglu_params() const {
    return {.gate_up = {.x = tokens_of(gpu_x), .weight = weight, .y = between}, .y = tokens_of(y)};
  }
  Workspace space() { return {workspace.data(), workspace.size_bytes()}; }

  void clear_y(Stream& stream) const {
    const Tensor all = y;
    ASSERT_EQ(cudaMemsetAsync(all.data, 0xff, static_cast<std::size_t>(all.rows * all.row_stride) * size_of(all.dtype),
                              static_cast<cudaStream_t>(stream.native())),
              cudaSuccess);
  }
  void enqueue(const BatchPlan& plan, const Lane& lane) const {
    if (is_gated)
      linear_swiglu_batch(swiglu_params(), plan, lane);
    else
      linear_batch(params(), plan, lane);
  }
  // What linear() or linear_swiglu() choose.
  void enqueue(const Lane& lane) const {
    if (is_gated)
      linear_swiglu(swiglu_params(), lane);
    else
      linear(params(), lane);
  }
  std::vector<std::uint32_t> bits_of_y() const { return bits(y.rows(), 0, x.rows()); }

  // Of what a lane of so many SMs makes of a y of NaN.
  std::vector<std::uint32_t> bits_on(Stream& stream, int num_sms) {
    clear_y(stream);
    enqueue({stream, num_sms, space()});
    stream.synchronize();
    return bits_of_y();
  }

  double sum(std::int64_t token, std::int64_t row) const {
    double sum = weight.bias != nullptr ? bias.row(0)[row] : 0;
    for (std::int64_t k = 0; k < x.columns(); ++k) sum += static_cast<double>(x.row(token)[k]) * w.row(row)[k];
    return sum;
  }
  double magnitude(std::int64_t token, std::int64_t row) const {
    double sum = std::fabs(bias.row(0)[row]);
    for (std::int64_t k = 0; k < x.columns(); ++k)
      sum += std::fabs(static_cast<double>(x.row(token)[k]) * w.row(row)[k]);
    return sum;
  }
  bool others_untouched() const {
    const Rows all = y.rows();
    for (std::int64_t row = x.rows(); row < all.rows(); ++row)
      for (std::int64_t column = 0; column < all.columns(); ++column)
        if (!std::isnan(all.row(row)[column])) return false;
    return all.gaps_untouched();
  }

  std::int64_t rows;
  Rows x, w, bias;
  GpuRows gpu_x, gpu_w, gpu_bias, between, y;
  Buffer workspace;
  Weight weight;
  bool is_gated;

 private:
  static Rows made(Values values, std::int64_t rows, std::int64_t columns, std::uint32_t seed, int largest) {
    return values == Values::integers ? integers(rows, columns, seed, largest)
                                      : rounded(Rows::random(rows, columns, seed), kBf16);
  }
  static Rows with_spare_rows(const Rows& x) {
    Rows all(x.rows() + kSpareRows, x.columns());
    for (std::int64_t r = 0; r < all.rows(); ++r)
      for (std::int64_t c = 0; c < x.columns(); ++c) all.row(r)[c] = r < x.rows() ? x.row(r)[c] : kPoison;
    return all;
  }
  Tensor tokens_of(const GpuRows& all) const {
    Tensor tensor = all;
    tensor.rows = x.rows();
    return tensor;
  }
};

std::string describe(const Shape& shape, const BatchPlan& plan) {
  return fmt::format("{} tokens [{}, {}]{}, clusters of {}, tiles of {}, {} steps apart", shape.tokens, shape.outputs,
                     shape.in_features, shape.has_bias ? " with bias" : "", plan.cluster, plan.tile_rows,
                     plan.steps_apart);
}

// Fewer outputs than clusters; k that ends within a step and within its first block; fewer steps than a cluster has
// blocks; more steps than the ring has slots; tiles of two heights; several tiles a block.
const Shape kShapes[] = {{17, 1, 8},
                         {64, 37, 72, true},
                         {24, 129, 512},
                         {33, 300, 1096, true, 8},
                         {40, 4400, 264, false, 4},
                         {25, 9001, 136, true},
                         {32, 140, 8456, false, 0},
                         {63, 16500, 72, true, 0},
                         {48, 2048, 2048, false, 0}};

// Small integers: float32 holds every sum, whatever its order.
TEST_F(LinearBatchOnGpu, EachPlanIsExactWhereSumsAre) {
  for (const Shape& shape : kShapes)
    for (const auto& [dtype, y_dtype] : {std::pair{kBf16, kF32}, std::pair{kF16, kF16}}) {
      Problem p(shape, dtype, y_dtype, Problem::Values::integers);
      std::vector<float> expected;
      for (std::int64_t t = 0; t < shape.tokens; ++t)
        for (std::int64_t r = 0; r < shape.outputs; ++r)
          expected.push_back(rounded(static_cast<float>(p.sum(t, r)), y_dtype));
      for (const BatchPlan& plan : batch_plans()) {
        SCOPED_TRACE(describe(shape, plan));
        on_gpu([&](Stream& stream) {
          p.clear_y(stream);
          p.enqueue(plan, {stream, p.space()});
        });
        const Rows y = p.y.rows();
        for (std::int64_t t = 0; t < shape.tokens; ++t)
          for (std::int64_t r = 0; r < shape.outputs; ++r)
            ASSERT_EQ(y.row(t)[r], expected[static_cast<std::size_t>(t * shape.outputs + r)])
                << "token " << t << " row " << r;
        ASSERT_TRUE(p.others_untouched());
      }
    }
}

TEST_F(LinearBatchOnGpu, EachPlanOfGateAndUpMatchesFloat64) {
  for (const Shape& shape : kShapes) {
    if (shape.outputs > 9001) continue;
    Problem p(shape, kBf16, kBf16, Problem::Values::integers, true);
    std::vector<double> expected;
    for (std::int64_t t = 0; t < shape.tokens; ++t)
      for (std::int64_t i = 0; i < shape.outputs; ++i) {
        const double gate = p.sum(t, i);
        expected.push_back(gate / (1 + std::exp(-gate)) * p.sum(t, shape.outputs + i));
      }
    for (const BatchPlan& plan : swiglu_batch_plans()) {
      SCOPED_TRACE(describe(shape, plan));
      on_gpu([&](Stream& stream) {
        p.clear_y(stream);
        p.enqueue(plan, {stream, p.space()});
      });
      const Rows y = p.y.rows();
      for (std::int64_t t = 0; t < shape.tokens; ++t)
        for (std::int64_t i = 0; i < shape.outputs; ++i) {
          const double exact = expected[static_cast<std::size_t>(t * shape.outputs + i)];
          ASSERT_NEAR(y.row(t)[i], exact, std::fabs(exact) * (unit_roundoff(kBf16) + 1e-6) + 0x1p-24)
              << "token " << t << " of " << i;
        }
      ASSERT_TRUE(p.others_untouched());
    }
  }
}

TEST_F(LinearBatchOnGpu, IsCloseToFloat64) {
  const Shape shape{.tokens = 40, .outputs = 300, .in_features = 4096, .has_bias = true};
  for (const DType y_dtype : {kBf16, kF32}) {
    Problem p(shape, kBf16, y_dtype, Problem::Values::reals);
    for (const BatchPlan& plan : batch_plans()) {
      SCOPED_TRACE(describe(shape, plan));
      on_gpu([&](Stream& stream) { p.enqueue(plan, {stream, p.space()}); });
      const Rows y = p.y.rows();
      for (std::int64_t t = 0; t < shape.tokens; t += 13)
        for (std::int64_t r = 0; r < shape.outputs; ++r) {
          // A tensor core drops what lies below 2^-23 of the largest of the 16 products that it adds at once.
          const double exact = p.sum(t, r),
                       most = (static_cast<double>(shape.in_features) / 8 + 32) * 0x1p-23 * p.magnitude(t, r);
          ASSERT_NEAR(y.row(t)[r], exact, most + unit_roundoff(y_dtype) * std::fabs(exact)) << t << ", " << r;
        }
    }
  }
}

// Launches of real widths, whose ring goes round often, on lanes whose blocks have several tiles each.
TEST_F(LinearBatchOnGpu, RealWidthsGiveTheSameBitsAgainOnAnyNumberOfSms) {
  const Shape shapes[] = {{24, 6144, 4096}, {32, 4096, 4096, true}, {64, 4096, 14336}};
  for (const Shape& shape : shapes) {
    Problem p(shape, kBf16, kBf16, Problem::Values::reals);
    ASSERT_TRUE(takes_batch(p.params()));
    Stream stream(kGpu);
    const std::vector<std::uint32_t> expected = p.bits_on(stream, num_sms_of(kGpu));
    for (const int num_sms : {16, 66, num_sms_of(kGpu)}) {
      if (!is_for_batch(p.params(), {stream, num_sms, p.space()})) continue;
      for (int repeat = 0; repeat < (num_sms == num_sms_of(kGpu) ? 200 : 20); ++repeat)
        ASSERT_EQ(p.bits_on(stream, num_sms), expected)
            << shape.outputs << " x " << shape.in_features << ", " << num_sms << " SMs";
    }
  }
}

TEST_F(LinearBatchOnGpu, GatesGiveTheSameBitsAgainOnAnyNumberOfSms) {
  const Shape shape{.tokens = 32, .outputs = 14336, .in_features = 2048, .has_bias = false, .y_gap = 0};
  Problem p(shape, kBf16, kBf16, Problem::Values::reals, true);
  ASSERT_TRUE(is_for_swiglu_batch(p.swiglu_params()));
  Stream stream(kGpu);
  const std::vector<std::uint32_t> expected = p.bits_on(stream, num_sms_of(kGpu));
  for (const int num_sms : {1, 16, 66, num_sms_of(kGpu)})
    for (int repeat = 0; repeat < 50; ++repeat) ASSERT_EQ(p.bits_on(stream, num_sms), expected) << num_sms << " SMs";
}

// Each kernel of the chain starts before the one ahead of it has ended.
TEST_F(LinearBatchOnGpu, AReplayedGraphOfAChainReadsWhatTheKernelBeforeItWrote) {
  constexpr std::int64_t kTokens = 24, kSize = 1024;
  Problem a({.tokens = kTokens, .outputs = kSize, .in_features = kSize}, kBf16, kBf16, Problem::Values::reals);
  GpuRows first(a.x, kBf16), second(kTokens, kSize, kBf16), third(kTokens, kSize, kBf16);
  for (const BatchPlan& plan : batch_plans()) {
    SCOPED_TRACE(describe({kTokens, kSize, kSize}, plan));
    Stream stream(kGpu);
    const auto enqueue = [&](const GpuRows& from, const GpuRows& to) {
      LinearParams params = a.params();
      params.x = from;
      params.y = to;
      linear_batch(params, plan, {stream, a.space()});
    };
    enqueue(first, second);
    stream.synchronize();
    enqueue(second, third);
    stream.synchronize();
    const std::vector<std::uint32_t> expected = bits(third.rows());
    const Graph graph(stream, [&] {
      enqueue(first, second);
      enqueue(second, third);
    });
    for (int replay = 0; replay < 20; ++replay) {
      for (const Tensor& rows : {Tensor(second), Tensor(third)})
        ASSERT_EQ(cudaMemset(rows.data, 0xff, static_cast<std::size_t>(kTokens * kSize) * 2), cudaSuccess);
      graph.launch(stream);
      stream.synchronize();
      ASSERT_EQ(bits(third.rows()), expected) << "replay " << replay;
    }
  }
}

// Needs no GPU.
TEST(LinearBatch, TakesAlignedOperandsOf16BitsAnd17To64Tokens) {
  alignas(16) static std::byte memory[16];
  LinearParams good{.x = {memory, 40, 64, 64, kBf16}, .weight = {}, .y = {memory, 40, 32, 32, kBf16}};
  good.weight.blocks[0] = {memory, 32};
  good.weight.out_features = 32;
  good.weight.in_features = 64;
  good.weight.dtype = kBf16;
  EXPECT_TRUE(takes_batch(good));
  const auto taken = [&](auto change) {
    LinearParams params = good;
    change(params);
    return takes_batch(params);
  };
  EXPECT_TRUE(taken([](LinearParams& p) { p.y.dtype = kF32; }));
  EXPECT_TRUE(taken([](LinearParams& p) { p.x.rows = 17; }));
  EXPECT_TRUE(taken([](LinearParams& p) { p.x.rows = 64; }));
  const std::function<void(LinearParams&)> changes[] = {[](LinearParams& p) { p.x.rows = 16; },
                                                        [](LinearParams& p) { p.x.rows = 65; },
                                                        [](LinearParams& p) { p.x.dtype = kF16; },
                                                        [](LinearParams& p) { p.y.dtype = kF16; },
                                                        [](LinearParams& p) { p.weight.dtype = p.x.dtype = kF32; },
                                                        [](LinearParams& p) { p.weight.in_features = 60; },
                                                        [](LinearParams& p) { p.x.row_stride = 68; },
                                                        [](LinearParams& p) { p.x.data = memory + 8; },
                                                        [](LinearParams& p) { p.weight.blocks[0].data = memory + 8; }};
  int index = 0;
  for (const auto& change : changes) EXPECT_FALSE(taken(change)) << "change " << index++;
}

}  // namespace
}  // namespace heddle
