// mixture() against float64, with the CPU's choice of experts.
#include <algorithm>
#include <numeric>

#include "kernels/cuda_operands.h"
#include "kernels/moe/mixture.h"
#include "kernels/moe/route.h"

namespace heddle {
namespace {

using MixtureOnGpu = OnGpu;

struct MixtureCase {
  DType dtype = DType::bfloat16;
  int tokens = 1;
  std::int64_t hidden = 264, intermediate = 40, shared = 72;  // shared 0: none
  int experts = 8;
  RouteRule rule{.top_k = 2};
  float one_expert = 0;  // added to the logits of the third expert
  DType y_dtype = DType::bfloat16;
};

// Weights of all experts, as numbers and on the GPU.
class MixtureWeights {
 public:
  MixtureWeights(int count, std::int64_t rows, std::int64_t columns, DType dtype, std::uint32_t seed)
      : rows_(rows),
        columns_(columns),
        values_(rounded(random_floats(static_cast<std::size_t>(count * rows * columns), seed,
                                      1 / std::sqrt(static_cast<float>(columns))),
                        dtype)),
        bytes_(as_bytes(values_, dtype)),
        table_(pointers(count, dtype)) {
    for (int e = 0; e < count; ++e) {
      Weight weight{.out_features = rows, .in_features = columns, .dtype = dtype};
      weight.blocks[0] = {bytes_.data() + offset(e, dtype), rows};
      weights_.push_back(weight);
    }
  }

  WeightGroup group() const {
    return {.weights = weights_.data(), .table = table_.data(), .count = static_cast<int>(weights_.size())};
  }
  const Weight& first() const { return weights_.front(); }

  double dot(int e, std::int64_t row, const std::vector<double>& x) const {
    const float* w = values_.data() + (e * rows_ + row) * columns_;
    double sum = 0;
    for (std::int64_t k = 0; k < columns_; ++k) sum += w[k] * x[static_cast<std::size_t>(k)];
    return sum;
  }

  std::vector<double> gates(int e, const std::vector<double>& x) const {
    std::vector<double> result;
    for (std::int64_t i = 0; i < rows_ / 2; ++i) {
      const double gate = dot(e, i, x);
      result.push_back(gate / (1 + std::exp(-gate)) * dot(e, rows_ / 2 + i, x));
    }
    return result;
  }

 private:
  std::size_t offset(int e, DType dtype) const {
    return static_cast<std::size_t>(e * rows_ * columns_) * size_of(dtype);
  }
  std::vector<const void*> pointers(int count, DType dtype) const {
    std::vector<const void*> result;
    for (int e = 0; e < count; ++e) result.push_back(bytes_.data() + offset(e, dtype));
    return result;
  }

  std::int64_t rows_, columns_;
  std::vector<float> values_;
  GpuArray<std::byte> bytes_;
  GpuArray<const void*> table_;
  std::vector<Weight> weights_;
};

// Operands of a case, whose mixture can be computed again and again.
class Mixture {
 public:
  explicit Mixture(const MixtureCase& of)
      : of_(of),
        x_(rounded(Rows::random(of.tokens, of.hidden, 1), of.dtype)),
        logits_(Rows::random(of.tokens, of.experts, 2, 2)),
        gate_up_(of.experts, 2 * of.intermediate, of.hidden, of.dtype, 3),
        down_(of.experts, of.hidden, of.intermediate, of.dtype, 4),
        shared_gate_up_(1, 2 * std::max<std::int64_t>(of.shared, 8), of.hidden, of.dtype, 5),
        shared_down_(1, of.hidden, std::max<std::int64_t>(of.shared, 8), of.dtype, 6) {
    for (std::int64_t t = 0; t < of.tokens; ++t) logits_.row(t)[2] += of.one_expert;
  }

  Rows& logits() { return logits_; }

  // y of tokens [first, first + count), on as many SMs; 0: all.
  Rows run(int first, int count, int sms = 0) const {
    const int top_k = of_.rule.top_k;
    Rows x(count, of_.hidden), logits(count, of_.experts);
    for (int t = 0; t < count; ++t) {
      std::copy_n(x_.row(first + t), of_.hidden, x.row(t));
      std::copy_n(logits_.row(first + t), of_.experts, logits.row(t));
    }
    const GpuRows x_there(x, of_.dtype, {.gap = 8}), logits_there(logits, DType::float32, {.gap = 3}),
        gated(count * top_k, of_.intermediate, of_.dtype),
        shared_gated(count, std::max<std::int64_t>(of_.shared, 8), of_.dtype),
        y(count, of_.hidden, of_.y_dtype, {.gap = 5});
    GpuArray<std::int32_t> experts(std::vector<std::int32_t>(static_cast<std::size_t>(count * top_k), -1));
    MixtureParams params{.x = x_there,
                         .logits = logits_there,
                         .rule = of_.rule,
                         .gate_up = gate_up_.group(),
                         .down = down_.group(),
                         .experts = experts.data(),
                         .gated = gated,
                         .y = y};
    if (of_.shared > 0) {
      params.shared_gate_up = shared_gate_up_.first();
      params.shared_down = shared_down_.first();
      params.shared_gated = shared_gated;
    }
    EXPECT_TRUE(mixture_takes(params, kGpu));
    on_gpu([&](Stream& stream) { mixture(params, sms == 0 ? Lane(stream) : Lane(stream, sms)); });
    Rows result = y.rows();
    EXPECT_TRUE(result.gaps_untouched());
    return result;
  }

  // The formula of mixture.h, but for the rounding of gates.
  std::vector<double> oracle(int token) const {
    const auto top_k = static_cast<std::size_t>(of_.rule.top_k);
    std::vector<std::int32_t> experts(top_k);
    std::vector<float> weights(top_k);
    const Rows logits =
        Rows::of(std::vector<float>(logits_.row(token), logits_.row(token) + of_.experts), 1, of_.experts);
    on_cpu(1, [&](Stream& stream) {
      route({.logits = logits, .rule = of_.rule, .experts = experts.data(), .weights = weights.data()}, stream);
    });
    const std::vector<double> x(x_.row(token), x_.row(token) + of_.hidden);
    std::vector<double> y(static_cast<std::size_t>(of_.hidden));
    const auto add = [&](const MixtureWeights& down, int expert, const std::vector<double>& gates, double weight) {
      for (std::int64_t r = 0; r < of_.hidden; ++r)
        y[static_cast<std::size_t>(r)] += weight * down.dot(expert, r, gates);
    };
    if (of_.shared > 0) add(shared_down_, 0, shared_gate_up_.gates(0, x), 1);
    for (std::size_t k = 0; k < top_k; ++k) add(down_, experts[k], gate_up_.gates(experts[k], x), weights[k]);
    return y;
  }

  void expect_oracle(const std::vector<int>& tokens) const {
    const Rows got = run(0, of_.tokens);
    for (const int token : tokens) {
      const std::vector<double> wanted = oracle(token);
      double square = 0;
      for (const double value : wanted) square += value * value;
      const double deviation = std::sqrt(square / static_cast<double>(of_.hidden));
      // A sum of many gates that are rounded each, and y's own rounding.
      const double gates = 2 * unit_roundoff(of_.dtype) * deviation + 1e-6;
      for (std::int64_t r = 0; r < of_.hidden; ++r) {
        const double value = wanted[static_cast<std::size_t>(r)];
        ASSERT_NEAR(got.row(token)[r], value, 3 * gates + unit_roundoff(of_.y_dtype) * std::fabs(value))
            << "token " << token << ", feature " << r;
      }
    }
  }

 private:
  MixtureCase of_;
  Rows x_, logits_;
  MixtureWeights gate_up_, down_, shared_gate_up_, shared_down_;
};

TEST_F(MixtureOnGpu, AgreesWithFloat64) {
  const RouteRule groups{.top_k = 6, .num_groups = 8, .top_groups = 3, .scale = 16};
  const RouteRule sigmoid{.score = RouterScore::sigmoid,
                          .top_k = 4,
                          .num_groups = 4,
                          .top_groups = 2,
                          .group_score = GroupScore::two_largest,
                          .normalized = true,
                          .scale = 2.5f};
  const MixtureCase cases[] = {
      {},
      {.tokens = 3, .shared = 0},
      {.dtype = DType::float16, .tokens = 5, .y_dtype = DType::float16},
      {.tokens = 8, .one_expert = 100},                        // all tokens to one expert, and to another
      {.tokens = 9, .rule = {.top_k = 1}, .one_expert = 100},  // experts without tokens
      {.tokens = 16, .hidden = 1032, .intermediate = 152, .experts = 64, .rule = groups},
      {.tokens = 16, .hidden = 136, .intermediate = 24, .shared = 16, .experts = 256, .rule = sigmoid},
      {.tokens = 13, .hidden = 512, .intermediate = 8, .shared = 8, .experts = 160, .rule = {.top_k = 16}},
      {.tokens = 2, .hidden = 2120, .intermediate = 2064, .shared = 0, .experts = 2},  // rows in two pieces
      {.tokens = 12, .hidden = 2120, .intermediate = 4104, .shared = 136, .experts = 3, .y_dtype = DType::float32},
      {.tokens = 1,
       .hidden = 8480,
       .intermediate = 64,
       .shared = 64,
       .experts = 4},  // more rows than a block has sums for
  };
  for (const MixtureCase& one : cases) {
    SCOPED_TRACE(fmt::format("{} tokens of {}, {} experts of {} and {}", one.tokens, one.hidden, one.experts,
                             one.intermediate, one.shared));
    Mixture(one).expect_oracle({0, one.tokens / 2, one.tokens - 1});
  }
}

TEST_F(MixtureOnGpu, AgreesAtRealWidths) {
  for (const int tokens : {1, 16})
    Mixture({.tokens = tokens, .hidden = 2048, .intermediate = 1408, .shared = 2816, .experts = 6}).expect_oracle({0});
}

TEST_F(MixtureOnGpu, ATokenHasTheSameBitsAgainAmongOthersAndOnAnyNumberOfSms) {
  const Mixture of({.tokens = 16, .hidden = 2048, .intermediate = 1408, .shared = 2816, .experts = 6});
  const Rows all = of.run(0, 16);
  const auto expect_same = [&](const Rows& got, int first) {
    for (std::int64_t t = 0; t < got.rows(); ++t)
      ASSERT_TRUE(std::equal(got.row(t), got.row(t) + 2048, all.row(first + t))) << "token " << first + t;
  };
  for (int i = 0; i < 20; ++i) expect_same(of.run(0, 16), 0);
  for (const int sms : {1, 7, 66, 100}) expect_same(of.run(0, 16, sms), 0);
  for (const int token : {0, 7, 15}) expect_same(of.run(token, 1), token);
  expect_same(of.run(3, 8), 3);
  expect_same(of.run(5, 9, 50), 5);
}

TEST_F(MixtureOnGpu, ABrokenRowOfLogitsBreaksItsTokenOnly) {
  Mixture of({.tokens = 4});
  const Rows before = of.run(0, 4);
  of.logits().row(1)[3] = kPoison;
  const Rows after = of.run(0, 4);
  for (const int token : {0, 2, 3})
    EXPECT_TRUE(std::equal(after.row(token), after.row(token) + 264, before.row(token)));
  EXPECT_TRUE(std::all_of(after.row(1), after.row(1) + 264, [](float value) { return std::isnan(value); }));
}

}  // namespace
}  // namespace heddle
