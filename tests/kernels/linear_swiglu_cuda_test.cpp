#include "kernels/linear_swiglu.h"

#include <random>

#include "cuda_operands.h"

namespace heddle {
namespace {

using LinearSwigluOnGpu = OnGpu;

struct Shape {
  std::int64_t tokens, intermediate, in_features;
  bool has_bias = false;
  std::int64_t y_gap = 3;  // between rows; those of 8 elements are aligned
};

// A product on the GPU of integers so small that gate and up are exact.
struct Problem {
  Problem(const Shape& shape, DType dtype)
      : x(integers(shape.tokens, shape.in_features, 1)),
        w(integers(2 * shape.intermediate, shape.in_features, 2)),
        bias(integers(1, 2 * shape.intermediate, 3)),
        gpu_x(x, dtype, {.gap = 8}),
        gpu_w(w, dtype),
        gpu_bias(bias, DType::float32),
        between(shape.tokens, 2 * shape.intermediate, dtype),
        y(shape.tokens, shape.intermediate, dtype, {.gap = shape.y_gap}),
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
    return {.gate_up = {.x = gpu_x,
                        .weight = weight,
                        .y = between,
                        .workspace = workspace.data(),
                        .workspace_bytes = workspace.size_bytes()},
            .y = y};
  }

  static Rows integers(std::int64_t rows, std::int64_t columns, std::uint32_t seed) {
    std::mt19937 random(seed);
    Rows result(rows, columns);
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < columns; ++c)
        result.row(r)[c] = static_cast<float>(static_cast<int>(random() % 3) - 1);
    return result;
  }

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

// `every`: which tokens are looked at, where there are too many for all.
void expect_close(const Shape& shape, DType dtype, int every = 1) {
  SCOPED_TRACE(
      fmt::format("{} tokens [2 x {}, {}] {}", shape.tokens, shape.intermediate, shape.in_features, name_of(dtype)));
  Problem p(shape, dtype);
  on_gpu([&](Stream& stream) { linear_swiglu(p.params(), stream); });
  const Rows y = p.y.rows();
  EXPECT_TRUE(y.gaps_untouched());
  // Otherwise gate and up are rounded, too, and a rounded gate moves its exponential.
  const bool at_once = gates_at_once(p.params(), kGpu);
  for (std::int64_t t = 0; t < shape.tokens; t += every)
    for (std::int64_t i = 0; i < shape.intermediate; ++i) {
      const double gate = p.sum(t, i), up = p.sum(t, shape.intermediate + i);
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
    for (const Shape& shape : shapes) ASSERT_NO_FATAL_FAILURE(expect_close(shape, dtype));
}

// Columns of y for which a round of tiles, one of 256 tokens and 128 columns for two multiprocessors, is full.
std::int64_t columns_of_a_round() {
  int multiprocessors = 0;
  cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, kGpu.index);
  return multiprocessors / 2 * 128;
}

// Tiles that x and W end within, more steps along k than are on their way and fewer, k that ends within one, several
// rounds, more tokens than are taken together.
TEST_F(LinearSwigluOnGpu, TilesMatchFloat64) {
  const std::int64_t round = columns_of_a_round();
  const Shape shapes[] = {{.tokens = 250, .intermediate = round - 8, .in_features = 328, .y_gap = 8},
                          {.tokens = 511, .intermediate = round, .in_features = 64, .y_gap = 0},
                          {.tokens = 2300, .intermediate = round - 120, .in_features = 136, .y_gap = 16}};
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const Shape& shape : shapes) {
      ASSERT_TRUE(gates_at_once(Problem(shape, dtype).params(), kGpu));
      ASSERT_NO_FATAL_FAILURE(expect_close(shape, dtype, 7));
    }
}

TEST_F(LinearSwigluOnGpu, TilesAreForWhatFillsTheGpuAndIsAligned) {
  const std::int64_t round = columns_of_a_round();
  const auto at_once = [](const Shape& shape, DType dtype = DType::bfloat16) {
    return gates_at_once(Problem(shape, dtype).params(), kGpu);
  };
  const Shape shape{.tokens = 256, .intermediate = round, .in_features = 64, .y_gap = 8};
  EXPECT_TRUE(at_once(shape));
  EXPECT_FALSE(at_once(shape, DType::float32));
  for (const auto change :
       {+[](Shape& s) { s.y_gap = 3; }, +[](Shape& s) { s.in_features = 68; }, +[](Shape& s) { s.has_bias = true; },
        +[](Shape& s) { s.tokens = 230; }, +[](Shape& s) { s.intermediate += 128; }}) {
    Shape other = shape;
    change(other);
    EXPECT_FALSE(at_once(other)) << other.tokens << " tokens [2 x " << other.intermediate << ", " << other.in_features;
  }
}

TEST_F(LinearSwigluOnGpu, TilesGiveTheSameBitsAgain) {
  Problem p({.tokens = 512, .intermediate = columns_of_a_round() - 8, .in_features = 520, .y_gap = 8}, DType::bfloat16);
  const auto run = [&] {
    on_gpu([&](Stream& stream) { linear_swiglu(p.params(), stream); });
    return p.y.rows();
  };
  const Rows first = run();
  for (int i = 0; i < 5; ++i) {
    const Rows again = run();
    for (std::int64_t t = 0; t < first.rows(); ++t) ASSERT_EQ(bits(again, t, 1), bits(first, t, 1)) << "token " << t;
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
      on_gpu([&](Stream& stream) { linear_swiglu(params, stream); });
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
