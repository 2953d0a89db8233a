#include "kernels/linear/linear_swiglu.h"

#include <functional>
#include <memory>
#include <random>

#include "device/free_cluster.h"
#include "kernels/cuda_operands.h"
#include "kernels/rows/swiglu.h"

namespace heddle {
namespace {

using LinearSwigluOnGpu = OnGpu;

struct Shape {
  std::int64_t tokens, intermediate, in_features;
  bool has_bias = false;
  std::int64_t y_gap = 3;  // between rows; those of 8 elements are aligned
};

Rows integers(std::int64_t rows, std::int64_t columns, std::uint32_t seed) {
  std::mt19937 random(seed);
  Rows result(rows, columns);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t c = 0; c < columns; ++c)
      result.row(r)[c] = static_cast<float>(static_cast<int>(random() % 3) - 1);
  return result;
}

// Some rows 32 times as large: gates far below where exp overflows.
Rows uneven_integers(std::int64_t rows, std::int64_t columns, std::uint32_t seed) {
  Rows result = integers(rows, columns, seed);
  for (std::int64_t r = 0; r < rows; r += 5)
    for (std::int64_t c = 0; c < columns; ++c) result.row(r)[c] *= 32;
  return result;
}

// A product on the GPU; of integers so small, unless told otherwise, that gate and up are exact. Behind y's last row
// there are more, which nobody may touch.
struct Problem {
  static constexpr std::int64_t kSpareRows = 257;

  Problem(const Shape& shape, DType dtype, Rows (*tokens)(std::int64_t, std::int64_t, std::uint32_t) = integers)
      : x(tokens(shape.tokens, shape.in_features, 1)),
        w(integers(2 * shape.intermediate, shape.in_features, 2)),
        bias(integers(1, 2 * shape.intermediate, 3)),
        gpu_x(x, dtype, {.gap = 8}),
        gpu_w(w, dtype),
        gpu_bias(bias, DType::float32),
        between(shape.tokens, 2 * shape.intermediate, dtype),
        y(shape.tokens + kSpareRows, shape.intermediate, dtype, {.gap = shape.y_gap}),
        workspace(linear_workspace_bytes(kGpu), kGpu) {
    weight.blocks[0] = {Tensor(gpu_w).data, shape.intermediate};
    weight.blocks[1] = {static_cast<std::byte*>(Tensor(gpu_w).data) +
                            static_cast<std::size_t>(shape.intermediate * shape.in_features) * size_of(dtype),
                        shape.intermediate};
    weight.out_features = 2 * shape.intermediate;
    weight.in_features = shape.in_features;
    weight.dtype = dtype;
    if (shape.has_bias) weight.bias = static_cast<const float*>(Tensor(gpu_bias).data);
  }

  LinearSwigluParams params() {
    Tensor rows = y;
    rows.rows = x.rows();
    return {.gate_up = {.x = gpu_x, .weight = weight, .y = between}, .y = rows};
  }
  Lane lane(Stream& stream) { return {stream, Workspace{workspace.data(), workspace.size_bytes()}}; }

  double sum(std::int64_t token, std::int64_t row) const {
    double sum = weight.bias != nullptr ? bias.row(0)[row] : 0;
    for (std::int64_t k = 0; k < x.columns(); ++k) sum += static_cast<double>(x.row(token)[k]) * w.row(row)[k];
    return sum;
  }

  Rows x, w, bias;
  GpuRows gpu_x, gpu_w, gpu_bias, between, y;
  Buffer workspace;
  Weight weight;
};

bool rows_untouched(const Rows& y, std::int64_t first) {
  for (std::int64_t row = first; row < y.rows(); ++row)
    for (std::int64_t column = 0; column < y.columns(); ++column)
      if (!std::isnan(y.row(row)[column])) return false;
  return true;
}

// `every`: which tokens are looked at, where there are too many for all.
void expect_close(Problem& p, int every = 1) {
  const LinearSwigluParams params = p.params();
  const std::int64_t tokens = params.y.rows, intermediate = params.y.columns;
  const DType dtype = params.y.dtype;
  SCOPED_TRACE(fmt::format("{} tokens [2 x {}, {}] {}", tokens, intermediate, p.x.columns(), name_of(dtype)));
  on_gpu([&](Stream& stream) { linear_swiglu(params, p.lane(stream)); });
  const Rows y = p.y.rows();
  EXPECT_TRUE(y.gaps_untouched());
  EXPECT_TRUE(rows_untouched(y, tokens));
  // Otherwise gate and up are rounded, too, and a rounded gate moves its exponential.
  const bool at_once = is_fused(params, kGpu);
  for (std::int64_t t = 0; t < tokens; t += every)
    for (std::int64_t i = 0; i < intermediate; ++i) {
      const double gate = p.sum(t, i), up = p.sum(t, intermediate + i);
      const double exact = gate / (1 + std::exp(-gate)) * up;
      const double units = at_once ? 1 : 3 + std::fabs(gate);
      ASSERT_NEAR(y.row(t)[i], exact, std::fabs(exact) * (units * unit_roundoff(dtype) + 1e-6) + 0x1p-24)
          << "token " << t << " of " << i << ", gate " << gate;
    }
}

// Each kernel that streams, rows of W that no tile divides, fewer outputs than blocks; then those that do not stream.
TEST_F(LinearSwigluOnGpu, MatchesFloat64) {
  const Shape shapes[] = {{1, 150, 520, true},   {3, 2200, 264}, {8, 4500, 136, true}, {6, 35, 8456}, {9, 1056, 264},
                          {16, 3000, 136, true}, {5, 2113, 64},  {17, 130, 264, true}, {40, 77, 88}};
  for (const DType dtype : {DType::bfloat16, DType::float16, DType::float32})
    for (const Shape& shape : shapes) {
      Problem p(shape, dtype);
      ASSERT_NO_FATAL_FAILURE(expect_close(p));
    }
}

// Columns of y for which a round of tiles, one of 256 tokens for two of an H200's 132 SMs, is full. Tiles of 96 columns
// are taken where those of 128 would leave more of their rounds idle.
std::int64_t columns_of_a_round(int columns_of_tile = 128) {
  return std::int64_t{132} / 2 * columns_of_tile;
}

// Tiles that x and W end within; more steps along k than there are slots and fewer; k that ends within a step; several
// rounds; blocks and warpgroups that have no tokens at all; more tokens than are taken together.
TEST_F(LinearSwigluOnGpu, TilesMatchFloat64) {
  const std::int64_t round = columns_of_a_round(), narrow = columns_of_a_round(96);
  const Shape shapes[] = {{.tokens = 250, .intermediate = round - 8, .in_features = 328, .y_gap = 8},
                          {.tokens = 511, .intermediate = round, .in_features = 64, .y_gap = 0},
                          {.tokens = 2170, .intermediate = round, .in_features = 136, .y_gap = 16},
                          {.tokens = 249, .intermediate = narrow - 8, .in_features = 392, .y_gap = 8},
                          {.tokens = 256, .intermediate = 2 * narrow - 40, .in_features = 8, .y_gap = 0}};
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const Shape& shape : shapes) {
      Problem p(shape, dtype, dtype == DType::bfloat16 ? uneven_integers : integers);
      ASSERT_TRUE(is_fused(p.params(), kGpu));
      ASSERT_NO_FATAL_FAILURE(expect_close(p, shape.tokens > 1000 ? 37 : 7));
    }
}

TEST_F(LinearSwigluOnGpu, TilesAreForWhatFillsTheGpuAndIsAligned) {
  const std::int64_t round = columns_of_a_round();
  Problem p({.tokens = 256, .intermediate = round, .in_features = 64, .y_gap = 8}, DType::bfloat16);
  EXPECT_TRUE(is_fused(p.params(), kGpu));
  const auto moved = [](auto* data, int bytes) {
    return const_cast<std::byte*>(static_cast<const std::byte*>(static_cast<const void*>(data))) + bytes;
  };
  const std::function<void(LinearSwigluParams&)> changes[] = {
      [](auto& q) { q.gate_up.weight.bias = reinterpret_cast<const float*>(&q); },
      [](auto& q) { q.gate_up.x.dtype = DType::float16; },
      [](auto& q) { q.gate_up.x.row_stride += 2; },
      [&](auto& q) { q.gate_up.x.data = moved(q.gate_up.x.data, 2); },
      [&](auto& q) { q.gate_up.weight.blocks[0].data = moved(q.gate_up.weight.blocks[0].data, 8); },
      [](auto& q) { q.gate_up.weight.in_features -= 4; },
      [](auto& q) { q.y.dtype = DType::float32; },
      [](auto& q) { q.y.row_stride += 4; },
      [&](auto& q) { q.y.data = moved(q.y.data, 4); },
      [](auto& q) { q.gate_up.x.rows = q.y.rows = 230; },
      [](auto& q) { q.gate_up.x.rows = q.y.rows = 300; },
      [](auto& q) { q.y.columns += 128; },
      [](auto& q) { q.y.columns -= 5; }};
  int index = 0;
  for (const auto& change : changes) {
    LinearSwigluParams params = p.params();
    change(params);
    EXPECT_FALSE(is_fused(params, kGpu)) << "change " << index;
    ++index;
  }
  Problem plain({.tokens = 256, .intermediate = round, .in_features = 64, .y_gap = 8}, DType::float32);
  EXPECT_FALSE(is_fused(plain.params(), kGpu));
}

TEST_F(LinearSwigluOnGpu, TilesGiveTheSameBitsAgain) {
  const auto reals =
      +[](std::int64_t rows, std::int64_t columns, std::uint32_t seed) { return Rows::random(rows, columns, seed); };
  Problem p({.tokens = 512, .intermediate = columns_of_a_round() - 8, .in_features = 4104, .y_gap = 8}, DType::bfloat16,
            reals);
  ASSERT_TRUE(is_fused(p.params(), kGpu));
  const auto run = [&] {
    on_gpu([&](Stream& stream) {
      const Tensor y = p.y;
      ASSERT_EQ(cudaMemsetAsync(y.data, 0xff, static_cast<std::size_t>(y.rows * y.row_stride) * size_of(y.dtype),
                                static_cast<cudaStream_t>(stream.native())),
                cudaSuccess);
      linear_swiglu(p.params(), p.lane(stream));
    });
    return p.y.rows();
  };
  const std::vector<std::uint32_t> first = bits(run(), 0, 512);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(bits(run(), 0, 512), first) << "run " << i;
}

TEST_F(LinearSwigluOnGpu, NumberOfSmsChangesNoBit) {
  const auto reals =
      +[](std::int64_t rows, std::int64_t columns, std::uint32_t seed) { return Rows::random(rows, columns, seed); };
  const Shape shapes[] = {{.tokens = 1, .intermediate = 4500, .in_features = 1032},
                          {.tokens = 16, .intermediate = 2113, .in_features = 2056},
                          {.tokens = 512, .intermediate = columns_of_a_round() - 8, .in_features = 1032, .y_gap = 8}};
  for (const Shape& shape : shapes) {
    Problem p(shape, DType::bfloat16, reals);
    ASSERT_TRUE(is_fused(p.params(), kGpu));
    const auto run = [&](int num_sms) {
      on_gpu([&](Stream& stream) { linear_swiglu(p.params(), {stream, num_sms, p.lane(stream).workspace}); });
      return bits(p.y.rows(), 0, shape.tokens);
    };
    const std::vector<std::uint32_t> expected = run(num_sms_of(kGpu));
    for (const int num_sms : {1, 2, 9, 66, 114, num_sms_of(kGpu) - 1})
      if (shape.tokens <= kLinearSmallRows || hold_a_pair(num_sms)) {
        ASSERT_EQ(run(num_sms), expected) << shape.tokens << " tokens, " << num_sms << " SMs";
      }
  }
}

TEST_F(LinearSwigluOnGpu, ManyTokensOnSmsThatMayHoldNoPairAreComputedApart) {
  const auto reals =
      +[](std::int64_t rows, std::int64_t columns, std::uint32_t seed) { return Rows::random(rows, columns, seed); };
  Problem p({.tokens = 512, .intermediate = columns_of_a_round() - 8, .in_features = 1032, .y_gap = 8}, DType::bfloat16,
            reals);
  on_gpu([&](Stream& stream) {
    const Lane lane{stream, 8, p.lane(stream).workspace};
    linear(p.params().gate_up, lane);
    swiglu({.gate_up = p.params().gate_up.y, .y = p.params().y}, lane);
  });
  const std::vector<std::uint32_t> expected = bits(p.y.rows(), 0, 512);
  on_gpu([&](Stream& stream) { linear_swiglu(p.params(), {stream, 8, p.lane(stream).workspace}); });
  EXPECT_EQ(bits(p.y.rows(), 0, 512), expected);
}

// x is written by the kernel ahead, y is read by the one behind, and then x by the next one: nobody waits in between
// but the kernels for each other.
TEST_F(LinearSwigluOnGpu, TilesKeepTheirPlaceAmongOtherKernels) {
  constexpr std::int64_t kTokens = 512, kFeatures = 520;
  const std::int64_t columns = columns_of_a_round();
  constexpr int kTurns = 8;
  Problem p({.tokens = kTokens, .intermediate = columns, .in_features = kFeatures, .y_gap = 8}, DType::bfloat16);
  ASSERT_TRUE(is_fused(p.params(), kGpu));
  std::vector<std::unique_ptr<GpuRows>> sources, results;
  for (int turn = 0; turn < kTurns; ++turn) {
    sources.push_back(std::make_unique<GpuRows>(integers(kTokens, 2 * kFeatures, 10 + turn), DType::bfloat16));
    results.push_back(std::make_unique<GpuRows>(kTokens, columns / 2, DType::bfloat16));
  }
  const auto enqueue = [&](int turn, Stream& stream) {
    const auto index = static_cast<std::size_t>(turn);
    swiglu({.gate_up = *sources[index], .y = p.gpu_x}, stream);
    linear_swiglu(p.params(), p.lane(stream));
    swiglu({.gate_up = p.params().y, .y = *results[index]}, stream);
  };
  on_gpu([&](Stream& stream) {
    for (int turn = 0; turn < kTurns; ++turn) enqueue(turn, stream);
  });
  std::vector<std::vector<std::uint32_t>> together;
  for (const auto& result : results) together.push_back(bits(result->rows()));
  for (int turn = 0; turn < kTurns; ++turn) {
    on_gpu([&](Stream& stream) { enqueue(turn, stream); });
    EXPECT_EQ(bits(results[static_cast<std::size_t>(turn)]->rows()), together[static_cast<std::size_t>(turn)]);
  }
}

TEST_F(LinearSwigluOnGpu, GivesTheSameBitsAgainAndInAnyBatchThatStreams) {
  for (const Shape& shape : {Shape{kLinearSmallRows, 4500, 1032, true}, Shape{kLinearSmallRows, 150, 8456}}) {
    Problem p(shape, DType::bfloat16);
    const auto rows_of = [&](std::int64_t first, std::int64_t count) {
      LinearSwigluParams params = p.params();
      Tensor& x = params.gate_up.x;
      x.data = static_cast<std::byte*>(x.data) + static_cast<std::size_t>(first * x.row_stride) * size_of(x.dtype);
      x.rows = params.gate_up.y.rows = params.y.rows = count;
      on_gpu([&](Stream& stream) { linear_swiglu(params, p.lane(stream)); });
      return p.y.rows();
    };
    const Rows all = rows_of(0, shape.tokens);
    for (std::int64_t count = 1; count <= shape.tokens; ++count) {
      const std::int64_t first = shape.tokens - count;
      const Rows some = rows_of(first, count);
      for (std::int64_t t = 0; t < count; ++t)
        ASSERT_EQ(bits(some, t, 1), bits(all, first + t, 1)) << count << " tokens";
    }
  }
}

TEST_F(LinearSwigluOnGpu, NamesTheBrokenPrecondition) {
  Problem p({2, 16, 64}, DType::bfloat16);
  Stream stream(kGpu);
  LinearSwigluParams params = p.params();
  params.y.columns = 17;
  expect_invalid([&] { linear_swiglu(params, stream); }, "swiglu: gate_up is [2, 32], expected [2, 34]");
  params = p.params();
  params.gate_up.y.columns = 31;
  expect_invalid([&] { linear_swiglu(params, stream); }, "linear: y is [2, 31], expected [2, 32]");
}

}  // namespace
}  // namespace heddle
