#include "kernels/cuda_operands.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {
namespace {

using RmsNormOnGpu = OnGpu;

struct GpuNormCase {
  std::int64_t num_tokens, hidden;
  int num_heads = 1;
  float scale = 1;
  float eps = 1e-5f;
};

const GpuNormCase kGpuNormCases[] = {
    {1, 1},
    {2, 7},
    {3, 64, 5},    // several heads a block
    {3, 72, 3},    // lanes without a pack
    {2, 128, 40},  // Qwen3
    {3, 256, 3},
    {2, 264, 2},
    {2, 72, 1, 1e5f},    // squares overflow float16
    {2, 72, 1, 1e-25f},  // squares vanish beside eps
    {2, 72, 1, 1e-18f, 0},
    {1, 4096},
    {19, 4096},
    {5, 5120},
    {2, 8192},
    {2, 11000},
    {1, 16384},  // the last that stays in registers
    {2, 16392},
};

struct NormDTypes {
  DType x, residual, y;
};
const NormDTypes kNormDTypes[] = {
    {DType::float32, DType::float32, DType::float32},    {DType::float32, DType::float32, DType::bfloat16},
    {DType::float32, DType::float32, DType::float16},    {DType::bfloat16, DType::float32, DType::bfloat16},
    {DType::bfloat16, DType::bfloat16, DType::bfloat16}, {DType::float16, DType::float16, DType::float16},
};

// Float64 of rounded inputs, then the last rounding. `residual` null: none.
void expect_normalized(const GpuNormCase& c, const Rows& x, const Rows* residual, const std::vector<float>& weight,
                       DType residual_dtype, DType y_dtype, const Rows& y, const Rows& residual_after) {
  for (std::int64_t t = 0; t < c.num_tokens; ++t) {
    for (std::int64_t start = 0; start < c.hidden * c.num_heads; start += c.hidden) {
      std::vector<float> z(x.row(t) + start, x.row(t) + start + c.hidden);
      if (residual != nullptr)
        for (std::int64_t i = 0; i < c.hidden; ++i) z[static_cast<std::size_t>(i)] += residual->row(t)[start + i];
      double squares = 0;
      for (const float value : z) squares += static_cast<double>(value) * value;
      const double factor = 1 / std::sqrt(squares / static_cast<double>(c.hidden) + c.eps);
      // A thread adds up to 16 or, where it has more packs, hidden / 1024 + 8 squares, then 5 halvings and 31 warps add
      // up; half of that relative error, then mean, eps, root, inverse and two products.
      const double bound = ((static_cast<double>(c.hidden) / 1024 + 16 + 5 + 31) / 2 + 5) * kUnit;
      for (std::int64_t i = 0; i < c.hidden; ++i) {
        const float zi = z[static_cast<std::size_t>(i)];
        const double exact = zi * factor * weight[static_cast<std::size_t>(i)];
        const double last = y_dtype == DType::float32 ? 0 : unit_roundoff(y_dtype);
        const double smallest = y_dtype == DType::float16 ? 0x1p-25 : 0x1p-134;
        ASSERT_NEAR(y.row(t)[start + i], exact, std::fabs(exact) * (bound + last) + smallest) << t << " " << i;
        if (residual != nullptr) {
          ASSERT_EQ(residual_after.row(t)[start + i], rounded(zi, residual_dtype)) << t << " " << i;
        }
      }
    }
  }
}

TEST_F(RmsNormOnGpu, MatchesFloat64) {
  for (const GpuNormCase& c : kGpuNormCases) {
    for (const NormDTypes& dtypes : kNormDTypes) {
      if (c.scale != 1 && (dtypes.x == DType::float16 || dtypes.residual == DType::float16)) continue;
      for (const bool add : {false, true}) {
        for (const GpuRows::Placement placement : {kPlacements[1], kPlacements[2], kPlacements[3]}) {
          SCOPED_TRACE(fmt::format("[{}, {} x {}] scale {} {} {} {} add {} gap {} misalignment {}", c.num_tokens,
                                   c.num_heads, c.hidden, c.scale, name_of(dtypes.x), name_of(dtypes.residual),
                                   name_of(dtypes.y), add, placement.gap, placement.misalignment));
          const Rows x = rounded(Rows::random(c.num_tokens, c.hidden * c.num_heads, 1, c.scale), dtypes.x);
          const Rows before = rounded(Rows::random(c.num_tokens, c.hidden * c.num_heads, 2, c.scale), dtypes.residual);
          const std::vector<float> weight = random_floats(static_cast<std::size_t>(c.hidden), 3);
          const GpuArray<float> weight_there(weight);
          const GpuRows x_there(x, dtypes.x, placement), residual(before, dtypes.residual, placement),
              y(c.num_tokens, c.hidden * c.num_heads, dtypes.y, placement);
          on_gpu([&](Stream& stream) {
            rmsnorm({.x = x_there,
                     .weight = weight_there.data(),
                     .residual = add ? Tensor(residual) : Tensor{},
                     .y = y,
                     .eps = c.eps,
                     .num_heads = c.num_heads},
                    stream);
          });
          const Rows result = y.rows(), after = residual.rows();
          expect_normalized(c, x, add ? &before : nullptr, weight, dtypes.residual, dtypes.y, result, after);
          EXPECT_TRUE(result.gaps_untouched() && after.gaps_untouched());
          if (!add) {
            EXPECT_EQ(bits(after), bits(before));
          }
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// In place, alone or in a batch, with or without packs.
TEST_F(RmsNormOnGpu, BitsDependOnNeitherBatchNorAlignmentNorPlace) {
  for (const std::int64_t hidden : {72, 128, 4096, 5120, 16384}) {
    SCOPED_TRACE(hidden);
    const Rows x = Rows::random(200, hidden, 1), before = Rows::random(200, hidden, 2);
    const GpuArray<float> weight(random_floats(static_cast<std::size_t>(hidden), 3));
    const auto run = [&](Tensor in, Tensor residual, Tensor out) {
      on_gpu([&](Stream& stream) {
        rmsnorm({.x = in, .weight = weight.data(), .residual = residual, .y = out, .eps = 1e-5f}, stream);
      });
    };
    const GpuRows y(200, hidden, DType::float32);
    {
      const GpuRows in(x, DType::float32), residual(before, DType::float32);
      run(in, residual, y);
    }
    const Rows expected = y.rows();
    {
      const GpuRows in(x, DType::float32, {.gap = 1}), residual(before, DType::float32);
      run(in, residual, in);
      EXPECT_EQ(bits(in.rows()), bits(expected)) << "in place, without packs";
    }
    {
      const GpuRows in(x, DType::float32), residual(before, DType::float32);
      Tensor one = in, its_residual = residual;
      one.data = static_cast<float*>(one.data) + 61 * hidden;
      its_residual.data = static_cast<float*>(its_residual.data) + 61 * hidden;
      one.rows = its_residual.rows = 1;
      run(one, its_residual, one);
      EXPECT_EQ(bits(in.rows(), 61, 1), bits(expected, 61, 1)) << "alone, in place";
    }
  }
}

TEST_F(RmsNormOnGpu, NamesTheBrokenPrecondition) {
  Stream stream(kGpu);
  GpuArray<float> weight(std::vector<float>(8, 1.0f));
  const GpuRows x(Rows::random(2, 8, 1), DType::bfloat16), y(2, 8, DType::float16);
  expect_invalid([&] { rmsnorm({.x = x, .weight = weight.data(), .y = y, .eps = 1e-5f}, stream); },
                 "rmsnorm: bfloat16 and float16 do not mix");
  const Tensor wide{weight.data(), 1, 50000, 50000, DType::float32};
  expect_invalid([&] { rmsnorm({.x = wide, .weight = weight.data(), .y = wide, .eps = 1e-5f}, stream); },
                 "rmsnorm: 50000 elements to normalise, a GPU takes 49152");
}

}  // namespace
}  // namespace heddle
