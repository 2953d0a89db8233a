// linear on a GPU: exactly, where every sum is exact; otherwise against float64 and the CPU's linear. Skipped, saying
// so, where there is no GPU.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "base/cuda_runtime.h"
#include "kernels/cuda_operands.h"
#include "kernels/linear/linear.h"
#include "kernels/sm_holder.h"

namespace heddle {
namespace {

constexpr std::byte kGuardByte{0xff};  // NaN in every dtype

struct Case;
struct Dtypes;

class LinearCuda : public OnGpu {
 protected:
  void SetUp() override {
    OnGpu::SetUp();
    if (IsSkipped()) return;
    stream_.emplace(kGpu);
    workspace_ = Buffer(linear_workspace_bytes(kGpu), kGpu);
  }

  LinearParams on_gpu(const Tensor& x, const Weight& weight, const Tensor& y) {
    return {.x = x, .weight = weight, .y = y};
  }
  Stream& stream() { return *stream_; }
  Workspace workspace() { return {workspace_.data(), workspace_.size_bytes()}; }
  Lane lane() { return {stream(), workspace()}; }
  void expect_exact(const Case& c, const Dtypes& d);

 private:
  std::optional<Stream> stream_;
  Buffer workspace_;
};

// Rows on the GPU in any dtype, with NaN before, between and behind them.
class GuardedRows {
 public:
  GuardedRows(std::int64_t rows, std::int64_t columns, DType dtype, std::int64_t gap = 0, std::size_t misalignment = 0)
      : rows_(rows),
        columns_(columns),
        stride_(columns + gap),
        dtype_(dtype),
        offset_(kGuard + misalignment),
        host_((offset_ + static_cast<std::size_t>(rows * stride_) + kGuard) * size_of(dtype), kGuardByte),
        memory_(host_.size(), kGpu) {
    upload();
  }
  static GuardedRows of(const std::vector<float>& values, std::int64_t rows, std::int64_t columns, DType dtype,
                        std::int64_t gap = 0, std::size_t misalignment = 0) {
    GuardedRows result(rows, columns, dtype, gap, misalignment);
    for (std::int64_t r = 0; r < rows; ++r)
      convert(values.data() + r * columns, DType::float32, result.host(r), dtype, static_cast<std::size_t>(columns));
    result.upload();
    return result;
  }

  Tensor tensor() const { return {memory_.data_at(offset_ * size_of(dtype_)), rows_, columns_, stride_, dtype_}; }
  Tensor part(std::int64_t begin, std::int64_t count) const {
    Tensor part = tensor();
    part.data = static_cast<std::byte*>(part.data) + static_cast<std::size_t>(begin * stride_) * size_of(dtype_);
    part.rows = count;
    return part;
  }

  // What the GPU holds now: all rows without gaps, and raw.
  std::vector<float> values() {
    download();
    std::vector<float> values(static_cast<std::size_t>(rows_ * columns_));
    for (std::int64_t r = 0; r < rows_; ++r)
      convert(host(r), dtype_, values.data() + r * columns_, DType::float32, static_cast<std::size_t>(columns_));
    return values;
  }
  std::vector<std::byte> bytes() {
    download();
    return host_;
  }
  bool guards_untouched() {
    download();
    for (std::int64_t r = 0; r < rows_; ++r)
      std::fill_n(host(r), static_cast<std::size_t>(columns_) * size_of(dtype_), kGuardByte);
    return std::all_of(host_.begin(), host_.end(), [](std::byte byte) { return byte == kGuardByte; });
  }

 private:
  static constexpr std::size_t kGuard = 128;  // elements: more than a kernel's widest access

  // A Buffer gives its memory out as const from a const object; a tensor's view is not.
  struct Memory : Buffer {
    using Buffer::Buffer;
    std::byte* data_at(std::size_t offset) const { return const_cast<std::byte*>(data()) + offset; }
  };

  std::byte* host(std::int64_t row) {
    return host_.data() + (offset_ + static_cast<std::size_t>(row * stride_)) * size_of(dtype_);
  }
  void upload() {
    cuda::copy(memory_.data_at(0), host_.data(), host_.size(), nullptr);
    cudaDeviceSynchronize();
  }
  void download() {
    cuda::copy(host_.data(), memory_.data_at(0), host_.size(), nullptr);
    cudaDeviceSynchronize();
  }

  std::int64_t rows_, columns_, stride_;
  DType dtype_;
  std::size_t offset_;
  std::vector<std::byte> host_;
  Memory memory_;
};

struct Case {
  std::int64_t num_tokens, out_features, in_features;
  std::int64_t gap = 0;          // between rows of x and of y
  std::size_t misalignment = 0;  // of W and x, in elements
  bool has_bias = false;
};

const Case kCudaCases[] = {
    {1, 1, 1},
    {1, 1, 8},
    {2, 3, 15, 1},            // rows of W that begin anywhere
    {3, 37, 72, 8, 0, true},  // k ends within a chunk; fewer rows than blocks
    {4, 131, 1000, 16},
    {5, 4608, 264, 8, 0, true},  // 35 rows a block
    {7, 300, 520, 3},            // x unaligned from the second row on
    {8, 2112, 256},              // just 16 rows a block
    {8, 2113, 256, 0, 0, true},  // and one more
    {9, 7001, 136, 8},
    {15, 129, 2048, 0, 1},  // nothing is aligned
    {16, 600, 4104, 0, 0, true},
    {8, 140, 14344},      // x too long to be held as a whole
    {2, 140, 11016},      // long, but held
    {16, 5000, 2568, 8},  // 38 rows a block, more steps than a ring holds
    {11, 140, 18944, 0, 0, true},
    {16, 9000, 1032},             // two tiles, and a ring that goes round where they meet
    {8, 4400, 2568, 0, 0, true},  // likewise, of more x than can be held
    {10, 4400, 4096, 8, 0, true},
    {2, 4096, 4096},
    {8, 9000, 1032, 0, 0, true},
    {2, 140, 8192},
    {4, 140, 8192},  // more of x than can be held
    {5, 4608, 1032},
    {17, 129, 512, 8, 0, true},  // the first of a decode batch
    {33, 77, 88},
    {40, 264, 1016, 0, 0, true},
    {40, 61, 71, 1, 1, true},  // large and unaligned
    {257, 520, 264, 8, 0, true},
};

struct Dtypes {
  DType x, weight, y;
};

constexpr DType kF32 = DType::float32, kBf16 = DType::bfloat16, kF16 = DType::float16;
const Dtypes kDtypes[] = {
    {kBf16, kBf16, kBf16}, {kBf16, kBf16, kF32}, {kF16, kF16, kF16},   {kF16, kF16, kF32},   {kF32, kF32, kF32},
    {kF32, kBf16, kF32},   {kF32, kF16, kF16},   {kBf16, kF32, kBf16}, {kBf16, kBf16, kF16},
};

std::string describe(const Case& c, const Dtypes& d) {
  return fmt::format("{} tokens [{}, {}] gap {} misaligned {}{}, x {} W {} y {}", c.num_tokens, c.out_features,
                     c.in_features, c.gap, c.misalignment, c.has_bias ? " with bias" : "", name_of(d.x),
                     name_of(d.weight), name_of(d.y));
}

constexpr LinearRole kRoles[] = {LinearRole::qkv, LinearRole::attention_output, LinearRole::gate_up, LinearRole::down,
                                 LinearRole::logits};

std::vector<float> random_integers(std::size_t count, std::uint32_t seed, int largest) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& value : values)
    value = static_cast<float>(static_cast<int>(random() % static_cast<std::uint32_t>(2 * largest + 1)) - largest);
  return values;
}

// One case: host values that the dtypes hold, their copies on the GPU, and y.
struct Problem {
  Problem(const Case& c, const Dtypes& d, const std::vector<float>& x_values, const std::vector<float>& w_values,
          const std::vector<float>& bias_values)
      : x(rounded(x_values, d.x)),
        w(rounded(w_values, d.weight)),
        bias(c.has_bias ? bias_values : std::vector<float>(bias_values.size(), 0.0f)),
        gpu_x(GuardedRows::of(x, c.num_tokens, c.in_features, d.x, c.gap, c.misalignment)),
        gpu_w(GuardedRows::of(w, c.out_features, c.in_features, d.weight, 0, c.misalignment)),
        gpu_bias(GuardedRows::of(bias, 1, c.out_features, kF32)),
        gpu_y(c.num_tokens, c.out_features, d.y, c.gap) {
    weight.blocks[0] = {gpu_w.tensor().data, c.out_features};
    weight.out_features = c.out_features;
    weight.in_features = c.in_features;
    weight.dtype = d.weight;
    if (c.has_bias) weight.bias = static_cast<const float*>(gpu_bias.tensor().data);
  }
  static Problem random(const Case& c, const Dtypes& d) {
    return {c, d, random_floats(static_cast<std::size_t>(c.num_tokens * c.in_features), 1),
            random_floats(static_cast<std::size_t>(c.out_features * c.in_features), 2),
            random_floats(static_cast<std::size_t>(c.out_features), 3)};
  }

  std::vector<float> x, w, bias;
  GuardedRows gpu_x, gpu_w, gpu_bias, gpu_y;
  Weight weight;
};

// Integers so small that float32 holds every sum exactly: whatever the order, there is one right answer, and a piece
// that is left out, taken twice or read from a gap shows.
void LinearCuda::expect_exact(const Case& c, const Dtypes& d) {
  SCOPED_TRACE(describe(c, d));
  Problem p(c, d, random_integers(static_cast<std::size_t>(c.num_tokens * c.in_features), 1, 3),
            random_integers(static_cast<std::size_t>(c.out_features * c.in_features), 2, 3),
            random_integers(static_cast<std::size_t>(c.out_features), 3, 100));
  linear(on_gpu(p.gpu_x.tensor(), p.weight, p.gpu_y.tensor()), lane());
  stream().synchronize();
  const std::vector<float> y = p.gpu_y.values();
  std::vector<float> expected(y.size());
  for (std::int64_t t = 0; t < c.num_tokens; ++t)
    for (std::int64_t r = 0; r < c.out_features; ++r) {
      float sum = p.bias[static_cast<std::size_t>(r)];
      for (std::int64_t k = 0; k < c.in_features; ++k)
        sum +=
            p.x[static_cast<std::size_t>(t * c.in_features + k)] * p.w[static_cast<std::size_t>(r * c.in_features + k)];
      expected[static_cast<std::size_t>(t * c.out_features + r)] = sum;
    }
  expected = rounded(expected, d.y);
  const auto [wrong, right] = std::mismatch(y.begin(), y.end(), expected.begin());
  ASSERT_TRUE(wrong == y.end()) << *wrong << " instead of " << *right << " at token "
                                << (wrong - y.begin()) / c.out_features << " row "
                                << (wrong - y.begin()) % c.out_features;
  for (const LinearRole role : kRoles) {  // other tiles, rings and algorithms
    LinearParams params = on_gpu(p.gpu_x.tensor(), p.weight, p.gpu_y.tensor());
    params.role = role;
    linear(params, lane());
    stream().synchronize();
    ASSERT_EQ(p.gpu_y.values(), expected) << name_of(role);
  }
  for (const int num_sms : {5, 16, 66}) {  // of a lane; cuBLASLt's kernels then have small clusters, or none
    linear(on_gpu(p.gpu_x.tensor(), p.weight, p.gpu_y.tensor()), {stream(), num_sms, workspace()});
    stream().synchronize();
    ASSERT_EQ(p.gpu_y.values(), expected) << num_sms << " SMs";
  }
  EXPECT_TRUE(p.gpu_y.guards_untouched());
}

TEST_F(LinearCuda, IsExactWhereSumsAre) {
  for (const Dtypes& d : kDtypes)
    for (const Case& c : kCudaCases) ASSERT_NO_FATAL_FAILURE(expect_exact(c, d));
}

// So small that a sanitizer is through in seconds.
TEST_F(LinearCuda, IsExactForASmallShapeOfEachKernelThatStreams) {
  const Case cases[] = {{.num_tokens = 1, .out_features = 300, .in_features = 520, .has_bias = true},
                        {.num_tokens = 3, .out_features = 4400, .in_features = 264},
                        {.num_tokens = 8, .out_features = 9000, .in_features = 136},
                        {.num_tokens = 7, .out_features = 70, .in_features = 8456},
                        {.num_tokens = 12, .out_features = 140, .in_features = 2568},
                        {.num_tokens = 16, .out_features = 6400, .in_features = 520},
                        {.num_tokens = 9, .out_features = 2112, .in_features = 264},
                        {.num_tokens = 16, .out_features = 6000, .in_features = 136}};
  for (const Case& c : cases) ASSERT_NO_FATAL_FAILURE(expect_exact(c, {kBf16, kBf16, kBf16}));
}

// A tensor core adds 16 products to a sum at once and drops what lies below 2^-23 of the largest, on the way as often
// as twice; float32 alone rounds once a product. Then 16 parts of a sum, and one rounding to y's dtype.
double bound(double magnitude, double exact, std::int64_t n, const Dtypes& d) {
  const double depth = static_cast<double>(d.x == d.weight && d.x != kF32 ? n / 8 + 32 : n / 8 + n % 8 + 40);
  return depth * 0x1p-23 * magnitude + unit_roundoff(d.y) * std::fabs(exact) + 0x1p-24;  // the last: subnormal float16
}

TEST_F(LinearCuda, IsCloseToFloat64AndToTheCpu) {
  const Case cases[] = {{1, 200, 4096, 0, 0, true}, {4, 4400, 520, 0, 0, true},  {2, 9000, 264},
                        {6, 170, 1096, 8},          {16, 140, 2048, 0, 0, true}, {40, 72, 1024, 0, 0, true},
                        {3, 50, 999, 1, 1, true}};
  for (const Dtypes& d : kDtypes) {
    for (const Case& c : cases) {
      SCOPED_TRACE(describe(c, d));
      Problem p = Problem::random(c, d);
      linear(on_gpu(p.gpu_x.tensor(), p.weight, p.gpu_y.tensor()), lane());
      stream().synchronize();
      const std::vector<float> y = p.gpu_y.values();

      const Elements elements(p.w, d.weight);
      Weight weight = one_block(elements, d.weight, c.out_features, c.in_features);
      if (c.has_bias) weight.bias = p.bias.data();
      Rows cpu_x = Rows::of(p.x, c.num_tokens, c.in_features), cpu_y(c.num_tokens, c.out_features);
      on_cpu(2, [&](Stream& cpu) { linear({.x = cpu_x, .weight = weight, .y = cpu_y}, cpu); });

      for (std::int64_t t = 0; t < c.num_tokens; ++t)
        for (std::int64_t r = 0; r < c.out_features; ++r) {
          double exact = p.bias[static_cast<std::size_t>(r)], magnitude = std::fabs(exact);
          for (std::int64_t k = 0; k < c.in_features; ++k) {
            const double product = static_cast<double>(p.x[static_cast<std::size_t>(t * c.in_features + k)]) *
                                   p.w[static_cast<std::size_t>(r * c.in_features + k)];
            exact += product;
            magnitude += std::fabs(product);
          }
          // float32 of cuBLASLt adds one product after the other.
          const bool one_by_one = d.x == kF32 && d.weight == kF32 && c.num_tokens > kLinearSmallRows;
          const double allowed = bound(magnitude, exact, one_by_one ? 8 * c.in_features : c.in_features, d);
          const float got = y[static_cast<std::size_t>(t * c.out_features + r)];
          ASSERT_NEAR(got, exact, allowed) << "token " << t << " row " << r;
          ASSERT_NEAR(got, cpu_y.row(t)[r], 2 * allowed) << "token " << t << " row " << r;
        }
    }
  }
}

TEST_F(LinearCuda, GivesTheSameBitsAgainAndInAnyBatchThatStreams) {
  // Rows a block and lengths that take each kind of kernel; the first in all dtypes.
  const Case cases[] = {{.num_tokens = 40, .out_features = 4608, .in_features = 1032, .has_bias = true},
                        {.num_tokens = 40, .out_features = 300, .in_features = 4104},
                        {.num_tokens = 40, .out_features = 4400, .in_features = 4096},
                        {.num_tokens = 40, .out_features = 16500, .in_features = 264},
                        {.num_tokens = 40, .out_features = 260, .in_features = 14336}};
  for (const Case& c : cases) {
    for (const Dtypes& d : std::span(kDtypes).first(&c == cases ? std::size(kDtypes) : 2)) {
      SCOPED_TRACE(describe(c, d));
      Problem p = Problem::random(c, d);
      GuardedRows alone(1, c.out_features, d.y), batch(kLinearSmallRows, c.out_features, d.y);
      GuardedRows other(c.num_tokens, c.out_features, d.y);
      linear(on_gpu(p.gpu_x.tensor(), p.weight, p.gpu_y.tensor()), lane());
      for (int run = 0; run < 20; ++run) linear(on_gpu(p.gpu_x.tensor(), p.weight, other.tensor()), lane());
      stream().synchronize();
      EXPECT_EQ(p.gpu_y.bytes(), other.bytes());
      for (std::int64_t tokens = 1; tokens <= kLinearSmallRows; ++tokens) {
        linear(on_gpu(p.gpu_x.part(7, tokens), p.weight, batch.part(0, tokens)), lane());
        linear(on_gpu(p.gpu_x.part(6 + tokens, 1), p.weight, alone.tensor()), lane());
        stream().synchronize();
        const std::vector<float> many = batch.values(), one = alone.values();
        const auto last = many.begin() + (tokens - 1) * c.out_features;
        EXPECT_TRUE(std::equal(one.begin(), one.end(), last)) << tokens << " tokens";
      }
    }
  }
}

// What a caller's role or its share of the SMs chooses, up to kLinearSmallRows tokens: tiles, rings, blocks.
TEST_F(LinearCuda, RoleAndNumberOfSmsChangeNoBitUpToSmallRows) {
  const Case cases[] = {{.num_tokens = 16, .out_features = 131, .in_features = 4104, .has_bias = true},
                        {.num_tokens = 16, .out_features = 2048, .in_features = 2048},
                        {.num_tokens = 16, .out_features = 3072, .in_features = 2048},
                        {.num_tokens = 16, .out_features = 4608, .in_features = 3584, .has_bias = true},
                        {.num_tokens = 16, .out_features = 16500, .in_features = 1032},
                        {.num_tokens = 16, .out_features = 260, .in_features = 14336}};
  for (const Case& c : cases) {
    SCOPED_TRACE(describe(c, kDtypes[0]));
    Problem p = Problem::random(c, kDtypes[0]);
    for (const std::int64_t tokens : {1, 3, 8, 9, 16}) {
      GuardedRows expected(tokens, c.out_features, kBf16, 8), other(tokens, c.out_features, kBf16, 8);
      linear(on_gpu(p.gpu_x.part(0, tokens), p.weight, expected.tensor()), lane());
      for (const LinearRole role : kRoles)
        for (const int num_sms : {1, 2, 48, 66, 100, 114, num_sms_of(kGpu) - 1, num_sms_of(kGpu)}) {
          LinearParams params = on_gpu(p.gpu_x.part(0, tokens), p.weight, other.tensor());
          params.role = role;
          linear(params, {stream(), num_sms, workspace()});
          stream().synchronize();
          ASSERT_EQ(other.bytes(), expected.bytes()) << tokens << " tokens, " << name_of(role) << ", " << num_sms;
        }
    }
  }
}

// linear_few_rows_sm90.cu
TEST_F(LinearCuda, ARouterGivesTheSameBitsAgainInAnyBatchAndOnAnyNumberOfSms) {
  for (const std::int64_t in_features : {264, 2048, 4104}) {
    const Case c{.num_tokens = 16, .out_features = 70, .in_features = in_features, .has_bias = true};
    const Dtypes d{kBf16, kBf16, kF32};
    SCOPED_TRACE(describe(c, d));
    Problem p = Problem::random(c, d);
    const auto routed = [&](std::int64_t first, std::int64_t tokens, LinearRole role, int num_sms) {
      GuardedRows y(tokens, c.out_features, kF32, 3);
      LinearParams params = on_gpu(p.gpu_x.part(first, tokens), p.weight, y.tensor());
      params.role = role;
      linear(params, {stream(), num_sms, workspace()});
      stream().synchronize();
      std::vector<float> values = y.values();
      EXPECT_TRUE(y.guards_untouched());
      return values;
    };
    const int all_sms = num_sms_of(kGpu);
    const std::vector<float> all = routed(0, 16, LinearRole::alone, all_sms);
    const std::vector<float> streamed = routed(0, 16, LinearRole::qkv, all_sms);
    for (std::size_t i = 0; i < all.size(); ++i)
      ASSERT_NEAR(all[i], streamed[i], 1e-4 * (1 + std::fabs(streamed[i]))) << i;
    for (const int num_sms : {1, 20}) EXPECT_EQ(routed(0, 16, LinearRole::alone, num_sms), all) << num_sms << " SMs";
    for (const std::int64_t tokens : {1, 3, 4, 5, 15}) {
      const auto last = all.end() - tokens * c.out_features;
      EXPECT_EQ(routed(16 - tokens, tokens, LinearRole::alone, all_sms), std::vector(last, all.end())) << tokens;
    }
  }
}

// Blocks of small lanes take many tiles of many steps each: a ring that goes round often, so that a slot which is
// overwritten too early shows.
TEST_F(LinearCuda, StreamsOfRealWidthsGiveTheSameBitsAgainOnAnyNumberOfSms) {
  const Case cases[] = {{.num_tokens = 5, .out_features = 6144, .in_features = 4096},
                        {.num_tokens = 5, .out_features = 4096, .in_features = 4096},
                        {.num_tokens = 5, .out_features = 4096, .in_features = 14336},
                        {.num_tokens = 8, .out_features = 4096, .in_features = 14336},
                        {.num_tokens = 12, .out_features = 4096, .in_features = 4096}};
  for (const Case& c : cases) {
    SCOPED_TRACE(describe(c, kDtypes[0]));
    Problem p = Problem::random(c, kDtypes[0]);
    GuardedRows expected(c.num_tokens, c.out_features, kBf16), other(c.num_tokens, c.out_features, kBf16);
    linear(on_gpu(p.gpu_x.tensor(), p.weight, expected.tensor()), lane());
    for (const int num_sms : {16, 66, 100, num_sms_of(kGpu)})
      for (int run = 0; run < 100; ++run) {
        linear(on_gpu(p.gpu_x.tensor(), p.weight, other.tensor()), {stream(), num_sms, workspace()});
        stream().synchronize();
        ASSERT_EQ(other.bytes(), expected.bytes()) << num_sms << " SMs, run " << run;
      }
  }
}

// The GEMMs of a step in two parts, whose computation leaves some SMs to the transfers: none is refused.
TEST_F(LinearCuda, LargeGemmsOfRealWidthsRunOnPartOfADevice) {
  const Case cases[] = {{.num_tokens = 8192, .out_features = 3072, .in_features = 4096},
                        {.num_tokens = 2048, .out_features = 3072, .in_features = 4096},
                        {.num_tokens = 4096, .out_features = 4096, .in_features = 2048},
                        {.num_tokens = 4096, .out_features = 4096, .in_features = 7168},
                        {.num_tokens = 1024, .out_features = 14336, .in_features = 4096}};
  for (const Case& c : cases) {
    const GuardedRows x(c.num_tokens, c.in_features, kBf16), w(c.out_features, c.in_features, kBf16),
        y(c.num_tokens, c.out_features, kBf16);
    Weight weight;
    weight.blocks[0] = {w.tensor().data, c.out_features};
    weight.out_features = c.out_features;
    weight.in_features = c.in_features;
    weight.dtype = kBf16;
    for (const int num_sms : {66, 100, 116, 124}) {
      SCOPED_TRACE(fmt::format("{}, {} SMs", describe(c, kDtypes[0]), num_sms));
      linear(on_gpu(x.tensor(), weight, y.tensor()), {stream(), num_sms, workspace()});
      stream().synchronize();
    }
  }
}

// cuBLASLt's older kernels have more blocks than such a lane has SMs. They may take others, but must not need them.
TEST_F(LinearCuda, LargeGemmsOfOddSizesEndWhileOthersHoldTheOtherSms) {
  const Case odd{.num_tokens = 1000, .out_features = 3001, .in_features = 1001};
  const Case even{.num_tokens = 1000, .out_features = 3000, .in_features = 1000};
  const std::pair<Case, Dtypes> problems[] = {{odd, {kBf16, kBf16, kBf16}}, {even, {kF32, kF32, kF32}}};
  for (const auto& [c, d] : problems) {
    Problem p = Problem::random(c, d);
    for (const int num_sms : {2, 16, 66}) {
      SCOPED_TRACE(fmt::format("{}, {} SMs", describe(c, d), num_sms));
      GuardedRows alone(c.num_tokens, c.out_features, d.y), beside(c.num_tokens, c.out_features, d.y);
      const Lane part(stream(), num_sms, workspace());
      linear(on_gpu(p.gpu_x.tensor(), p.weight, alone.tensor()), part);
      stream().synchronize();
      {
        const SmHolder holder(num_sms_of(kGpu) - num_sms);
        linear(on_gpu(p.gpu_x.tensor(), p.weight, beside.tensor()), part);
        stream().synchronize();
        EXPECT_TRUE(holder.still_holds());
      }
      EXPECT_EQ(beside.bytes(), alone.bytes());
    }
  }
}

// Sums near -1024 and biases near 1024 that a narrow y's dtype does not hold: their sum it does, so whatever is rounded
// before the end shows. In every regime; with 3000 tokens float32 sums do not fit the workspace at once.
TEST_F(LinearCuda, AddsABiasInFloat32AndRoundsOnce) {
  const Case cases[] = {
      {.num_tokens = 1, .out_features = 300, .in_features = 64, .has_bias = true},
      {.num_tokens = 16, .out_features = 300, .in_features = 64, .has_bias = true},
      {.num_tokens = 17, .out_features = 304, .in_features = 64, .gap = 8, .has_bias = true},
      {.num_tokens = 40, .out_features = 61, .in_features = 71, .gap = 1, .misalignment = 1, .has_bias = true},
      {.num_tokens = 300, .out_features = 1024, .in_features = 4096, .has_bias = true},
      {.num_tokens = 3000, .out_features = 2056, .in_features = 64, .gap = 8, .has_bias = true}};
  const Dtypes dtypes[] = {{kBf16, kBf16, kBf16}, {kF16, kF16, kF16}, {kBf16, kBf16, kF32}, {kF32, kF32, kF32}};
  for (const Case& c : cases)
    for (const Dtypes& d : dtypes)
      for (const bool y_holds_the_bias : {false, true}) {
        SCOPED_TRACE(describe(c, d) + (y_holds_the_bias ? ", of y's dtype" : ""));
        const auto in = static_cast<std::size_t>(c.in_features), out = static_cast<std::size_t>(c.out_features);
        std::vector<float> x(static_cast<std::size_t>(c.num_tokens) * in, 0.0f), w(out * in, 0.0f), bias(out);
        for (std::size_t t = 0; t < static_cast<std::size_t>(c.num_tokens); ++t)
          for (std::size_t k = 0; k < 4; ++k) {
            x[t * in + k] = 8;
            x[t * in + in - 1 - k] = static_cast<float>((t + k) % 3) - 1;
          }
        for (std::size_t r = 0; r < out; ++r) {
          for (std::size_t k = 0; k < 4; ++k) {
            w[r * in + k] = -32;
            w[r * in + in - 1 - k] = static_cast<float>(r % 5) - 2;
          }
          bias[r] =
              y_holds_the_bias ? 1024 + 8 * static_cast<float>(r % 15) : 1001.25f + 2 * static_cast<float>(r % 20);
        }
        Problem p(c, d, x, w, bias);
        if (y_holds_the_bias) p.weight.bias_dtype = d.y;
        linear(on_gpu(p.gpu_x.tensor(), p.weight, p.gpu_y.tensor()), lane());
        stream().synchronize();
        const std::vector<float> y = p.gpu_y.values();
        for (std::size_t t = 0; t < static_cast<std::size_t>(c.num_tokens); ++t)
          for (std::size_t r = 0; r < out; ++r) {
            double exact = -1024.0 + static_cast<double>(bias[r]);
            for (std::size_t k = in - 4; k < in; ++k) exact += static_cast<double>(x[t * in + k]) * w[r * in + k];
            ASSERT_EQ(y[t * out + r], exact) << "token " << t << " row " << r << " bias " << bias[r];
          }
        EXPECT_TRUE(p.gpu_y.guards_untouched());
      }
}

// Each kernel starts before the one ahead of it has ended.
TEST_F(LinearCuda, ReadsWhatTheKernelBeforeItWrote) {
  constexpr std::int64_t kSize = 1024, kLayers = 60;
  // Each row of W has a single one: layer by layer the columns of x change places.
  std::vector<std::size_t> from(kSize);
  std::iota(from.begin(), from.end(), std::size_t{0});
  std::shuffle(from.begin(), from.end(), std::mt19937(9));
  std::vector<float> permutation(kSize * kSize, 0.0f);
  for (std::size_t r = 0; r < kSize; ++r) permutation[r * kSize + from[r]] = 1;
  for (const std::int64_t tokens : {1, 8, 16, 24}) {
    const Case c{.num_tokens = tokens, .out_features = kSize, .in_features = kSize};
    const std::vector<float> x = random_integers(static_cast<std::size_t>(tokens * kSize), 4, 100);
    std::vector<float> expected = x;
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const std::vector<float> before = expected;
      for (std::size_t i = 0; i < before.size(); ++i) expected[i] = before[i / kSize * kSize + from[i % kSize]];
    }
    Problem p(c, {kBf16, kBf16, kBf16}, x, permutation, std::vector<float>(kSize));
    for (int repeat = 0; repeat < 20; ++repeat) {
      GuardedRows a = GuardedRows::of(x, tokens, kSize, kBf16), b(tokens, kSize, kBf16);
      for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        linear(on_gpu(a.tensor(), p.weight, b.tensor()), lane());
        std::swap(a, b);
      }
      stream().synchronize();
      ASSERT_EQ(a.values(), expected) << tokens << " tokens";
    }
  }
}

TEST_F(LinearCuda, NamesTheBrokenPrecondition) {
  Problem p = Problem::random({.num_tokens = 20, .out_features = 6, .in_features = 8}, {kBf16, kBf16, kBf16});
  const LinearParams good = on_gpu(p.gpu_x.tensor(), p.weight, p.gpu_y.tensor());
  linear(good, lane());
  const auto broken = [&](auto change, const std::string& part) {
    LinearParams params = good;
    change(params);
    expect_invalid([&] { linear(params, lane()); }, part);
  };
  const auto with = [&](Workspace workspace) {
    return [this, workspace, &good] { linear(good, {stream(), workspace}); };
  };
  expect_invalid(with({nullptr, workspace().size_bytes}), "wants");
  expect_invalid(with({workspace().data, 100}), "linear: has a workspace of 100 bytes");
  broken(
      [](LinearParams& q) {
        q.weight.blocks[1] = {q.weight.blocks[0].data, 3};
        q.weight.blocks[0].num_rows = 3;
      },
      "back to back");
  LinearParams split = good;
  split.weight.blocks[0].num_rows = 2;
  split.weight.blocks[2] = {static_cast<const std::byte*>(good.weight.blocks[0].data) + 2 * 8 * 2, 4};
  linear(split, lane());
  stream().synchronize();
}

}  // namespace
}  // namespace heddle
