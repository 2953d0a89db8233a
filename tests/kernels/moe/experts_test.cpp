// The operators of a mixture of experts against float64, alone and one after the other.
#include <algorithm>
#include <numeric>

#include "kernels/cpu_arithmetic.h"
#include "kernels/linear/linear.h"
#include "kernels/moe/combine_experts.h"
#include "kernels/moe/group_rows.h"
#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/grouped_swiglu.h"
#include "kernels/moe/route.h"
#include "kernels/operands.h"
#include "kernels/rows/gather_rows.h"

namespace heddle {
namespace {

struct Chosen {
  std::vector<std::int32_t> experts;
  std::vector<float> weights;
};

Chosen routed(const Rows& logits, const RouteRule& rule, const float* bias = nullptr, int threads = 1) {
  const auto count = static_cast<std::size_t>(logits.rows() * rule.top_k);
  Chosen chosen{std::vector<std::int32_t>(count, -1), std::vector<float>(count, kPoison)};
  on_cpu(threads, [&](Stream& stream) {
    route({.logits = logits,
           .bias = bias,
           .rule = rule,
           .experts = chosen.experts.data(),
           .weights = chosen.weights.data()},
          stream);
  });
  return chosen;
}

std::vector<std::size_t> largest_first(const std::vector<double>& values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return values[a] > values[b]; });
  return order;
}

// The formulas of route.h in float64, with whole sorts.
void expect_routed(const Rows& logits, const RouteRule& rule, const std::vector<float>& bias) {
  const Chosen chosen = routed(logits, rule, bias.empty() ? nullptr : bias.data());
  const auto num_experts = static_cast<std::size_t>(logits.columns());
  for (std::int64_t t = 0; t < logits.rows(); ++t) {
    std::vector<double> scores(num_experts), choice(num_experts);
    double sum = 0;
    for (std::size_t e = 0; e < num_experts; ++e) sum += std::exp(static_cast<double>(logits.row(t)[e]));
    for (std::size_t e = 0; e < num_experts; ++e) {
      const double logit = logits.row(t)[e];
      scores[e] = rule.score == RouterScore::softmax ? std::exp(logit) / sum : 1 / (1 + std::exp(-logit));
      choice[e] = scores[e] + (bias.empty() ? 0 : bias[e]);
    }
    const std::size_t size = num_experts / static_cast<std::size_t>(rule.num_groups);
    std::vector<double> group_scores;
    for (int g = 0; g < rule.num_groups; ++g) {
      std::vector<double> members(choice.begin() + static_cast<std::ptrdiff_t>(size) * g,
                                  choice.begin() + static_cast<std::ptrdiff_t>(size) * (g + 1));
      std::sort(members.begin(), members.end(), std::greater<>());
      const bool two = rule.group_score == GroupScore::two_largest && size > 1;
      group_scores.push_back(two ? members[0] + members[1] : members[0]);
    }
    const auto groups = largest_first(group_scores);
    for (std::size_t i = static_cast<std::size_t>(rule.top_groups); i < groups.size(); ++i)
      for (std::size_t e = groups[i] * size; e < (groups[i] + 1) * size; ++e) choice[e] = -1e30;
    const auto order = largest_first(choice);
    double total = rule.normalized ? 0 : 1;
    if (rule.normalized)
      for (int k = 0; k < rule.top_k; ++k) total += scores[order[static_cast<std::size_t>(k)]];
    for (int k = 0; k < rule.top_k; ++k) {
      const auto at = static_cast<std::size_t>(t * rule.top_k + k);
      const std::size_t expert = order[static_cast<std::size_t>(k)];
      ASSERT_EQ(chosen.experts[at], static_cast<std::int32_t>(expert)) << "token " << t << " slot " << k;
      const double exact = scores[expert] / total * rule.scale;
      // A score is rounded once, their sum top_k times; then quotient and product.
      EXPECT_NEAR(chosen.weights[at], exact, exact * (rule.top_k + 4) * kUnit);
    }
  }
}

TEST(Route, ChoosesAsInFloat64) {
  const std::vector<RouteRule> rules = {
      {.top_k = 1},
      {.top_k = 2, .normalized = true},
      {.top_k = 6, .scale = 16},
      {.top_k = 3, .num_groups = 4, .top_groups = 2},
      {.top_k = 6, .num_groups = 8, .top_groups = 3, .scale = 2.5f},
      {.top_k = 8, .num_groups = 2, .top_groups = 1, .normalized = true},
      {.score = RouterScore::sigmoid, .top_k = 4, .normalized = true},
      {.score = RouterScore::sigmoid,
       .top_k = 8,
       .num_groups = 8,
       .top_groups = 4,
       .group_score = GroupScore::two_largest,
       .normalized = true,
       .scale = 2.5f},
      {.score = RouterScore::sigmoid,
       .top_k = 5,
       .num_groups = 16,
       .top_groups = 5,
       .group_score = GroupScore::two_largest},
  };
  std::uint32_t seed = 0;
  for (const RouteRule& rule : rules)
    for (const int num_experts : {16, 64, 256}) {
      SCOPED_TRACE(fmt::format("top {} of {} experts, {} groups", rule.top_k, num_experts, rule.num_groups));
      const Rows logits = Rows::random(23, num_experts, ++seed, 3, 5);
      expect_routed(logits, rule, {});
      if (rule.score == RouterScore::sigmoid)
        expect_routed(logits, rule, random_floats(static_cast<std::size_t>(num_experts), 100 + seed));
    }
}

TEST(Route, TakesTheLowerIndexOfEqualExperts) {
  const Rows logits = Rows::of({1, 2, 2, 1, 2, 0}, 1, 6);
  EXPECT_EQ(routed(logits, {.top_k = 4}).experts, (std::vector<std::int32_t>{1, 2, 4, 0}));
}

TEST(Route, GivesWeightsOfNanWhereARowIsNotFinite) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const Rows logits = Rows::of(
      {1, kPoison, 0, 0, kInfinity, 0, 5, 1, -kInfinity, -kInfinity, -kInfinity, -kInfinity, 0, -kInfinity, 1, 2}, 4,
      4);
  const Chosen chosen = routed(logits, {.top_k = 2, .normalized = true});
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(std::isnan(chosen.weights[i])) << i;
    EXPECT_EQ(chosen.experts[i], static_cast<std::int32_t>(i % 2));
  }
  EXPECT_EQ(chosen.experts[6], 3);
  EXPECT_EQ(chosen.experts[7], 2);
  EXPECT_TRUE(std::isfinite(chosen.weights[6]) && std::isfinite(chosen.weights[7]));
}

TEST(Route, BitsDependOnNeitherThreadsNorNeighbours) {
  const Rows logits = Rows::random(3000, 64, 7);
  const RouteRule rule{.top_k = 6, .num_groups = 4, .top_groups = 2, .normalized = true};
  const Chosen together = routed(logits, rule), threaded = routed(logits, rule, nullptr, 5);
  EXPECT_EQ(together.experts, threaded.experts);
  EXPECT_EQ(together.weights, threaded.weights);
  const Rows one = Rows::of(std::vector<float>(logits.row(77), logits.row(77) + 64), 1, 64);
  const Chosen alone = routed(one, rule);
  for (std::size_t k = 0; k < 6; ++k) EXPECT_EQ(alone.weights[k], together.weights[77 * 6 + k]);
}

TEST(Route, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Rows logits = Rows::random(2, 8, 1);
  std::int32_t experts[32];
  float weights[32];
  const auto attempt = [&](const Rows& of, const RouteRule& rule) {
    route({.logits = of, .rule = rule, .experts = experts, .weights = weights}, stream);
  };
  expect_invalid([&] { attempt(logits, {.top_k = 9}); }, "route: the best 9 of 8 experts");
  expect_invalid([&] { attempt(logits, {.top_k = 0}); }, "route: the best 0 of 8 experts");
  expect_invalid([&] { attempt(logits, {.top_k = 1, .num_groups = 3}); }, "route: 8 experts in 3 groups");
  expect_invalid([&] { attempt(logits, {.top_k = 1, .num_groups = 2, .top_groups = 3}); },
                 "route: the best 3 of 2 groups");
  expect_invalid([&] { attempt(logits, {.top_k = 5, .num_groups = 2}); }, "route: the best 5 of 4 experts");
  expect_invalid([&] { attempt(Rows(1, kMaxExperts + 1), {}); }, "route: 513 experts, at most 512");
  expect_invalid([&] { route({.logits = logits, .experts = experts}, stream); }, "route: weights is null");
}

struct Grouping {
  std::vector<std::int32_t> first_row, token_of, row_of;
};

Grouping grouped(const std::vector<std::int32_t>& experts, int top_k, int num_experts) {
  Grouping grouping{std::vector<std::int32_t>(static_cast<std::size_t>(num_experts) + 1, -1),
                    std::vector<std::int32_t>(experts.size(), -1), std::vector<std::int32_t>(experts.size(), -1)};
  on_cpu(1, [&](Stream& stream) {
    group_rows({.experts = experts.data(),
                .num_tokens = static_cast<std::int64_t>(experts.size()) / top_k,
                .top_k = top_k,
                .num_experts = num_experts,
                .first_row = grouping.first_row.data(),
                .token_of = grouping.token_of.data(),
                .row_of = grouping.row_of.data()},
               stream);
  });
  return grouping;
}

TEST(GroupRows, PutsEachExpertsTokensTogetherInOrder) {
  const Grouping grouping = grouped({3, 0, 1, 3, 3, 1}, 2, 5);
  EXPECT_EQ(grouping.first_row, (std::vector<std::int32_t>{0, 1, 3, 3, 6, 6}));
  EXPECT_EQ(grouping.token_of, (std::vector<std::int32_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(grouping.row_of, (std::vector<std::int32_t>{3, 0, 1, 4, 5, 2}));
}

TEST(GroupRows, NamesAnExpertOutOfRange) {
  EXPECT_THROW(grouped({0, 5}, 1, 5), InvalidArgument);
  EXPECT_THROW(grouped({0, -1}, 1, 5), InvalidArgument);
}

// Weights of several experts in one array, as the tests need them.
class ExpertWeights {
 public:
  ExpertWeights(int count, std::int64_t out, std::int64_t in, DType dtype, std::uint32_t seed)
      : elements_(random_floats(static_cast<std::size_t>(count * out * in), seed), dtype) {
    for (int e = 0; e < count; ++e) {
      Weight weight{.out_features = out, .in_features = in, .dtype = dtype};
      auto* data = static_cast<std::byte*>(elements_.data()) + static_cast<std::size_t>(e * out * in) * size_of(dtype);
      // Two blocks, as gate and up are.
      const std::int64_t first = out / 2;
      weight.blocks[0] = {data, first};
      weight.blocks[1] = {data + static_cast<std::size_t>(first * in) * size_of(dtype), out - first};
      weights_.push_back(weight);
    }
  }
  WeightGroup group() const { return {.weights = weights_.data(), .count = static_cast<int>(weights_.size())}; }
  const Weight& operator[](std::size_t e) const { return weights_[e]; }

 private:
  Elements elements_;
  std::vector<Weight> weights_;
};

TEST(GroupedLinear, ARowHasTheBitsOfLinear) {
  struct Case {
    std::vector<std::int32_t> first_row;
    const char* why;
  };
  const std::vector<Case> cases = {{{0, 1, 2, 3}, "decode: one row each"},
                                   {{0, 0, 1, 1}, "a single row: two experts without tokens"},
                                   {{0, 0, 0, 37}, "all tokens to one expert"},
                                   {{0, 5, 5, 41}, "ragged"}};
  for (const DType dtype : kDTypes)
    for (const Case& one : cases) {
      SCOPED_TRACE(fmt::format("{} {}", name_of(dtype), one.why));
      constexpr std::int64_t kOut = 210, kIn = 77;
      const std::int64_t rows = one.first_row.back();
      const ExpertWeights weights(3, kOut, kIn, dtype, 5);
      const Rows x = Rows::random(rows, kIn, 6, 1, 3), y(rows, kOut, 2), expected(rows, kOut);
      on_cpu(3, [&](Stream& stream) {
        grouped_linear({.x = x, .group = weights.group(), .first_row = one.first_row.data(), .y = y}, stream);
      });
      on_cpu(1, [&](Stream& stream) {
        for (std::size_t e = 0; e < 3; ++e) {
          const std::int64_t first = one.first_row[e], count = one.first_row[e + 1] - first;
          linear({.x = x.part(first, count), .weight = weights[e], .y = expected.part(first, count)}, stream);
        }
      });
      EXPECT_EQ(bits(y), bits(expected));
      EXPECT_TRUE(y.gaps_untouched());
    }
}

TEST(GroupedSwiglu, ARowIsGateTimesUpOfItsToken) {
  constexpr std::int64_t kIntermediate = 24, kIn = 40;
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(name_of(dtype));
    const ExpertWeights weights(3, 2 * kIntermediate, kIn, dtype, 5);
    const std::vector<std::int32_t> first_row = {0, 2, 2, 5}, token_of = {1, 3, 0, 1, 3};
    const Rows x = Rows::random(4, kIn, 6, 0.2f, 3), grouped(5, kIn), gate_up(5, 2 * kIntermediate),
               y(5, kIntermediate, 2);
    on_cpu(2, [&](Stream& stream) {
      grouped_swiglu({.x = x,
                      .token_of = token_of.data(),
                      .gate_up = {.x = grouped, .group = weights.group(), .first_row = first_row.data(), .y = gate_up},
                      .y = y},
                     stream);
    });
    for (std::size_t r = 0; r < 5; ++r) {
      const Weight& weight = weights[r < 2 ? 0 : 2];
      for (std::int64_t c = 0; c < kIntermediate; ++c) {
        const auto sum = [&](std::int64_t row) {
          std::vector<float> w(kIn);
          convert(weight.row(row), dtype, w.data(), DType::float32, w.size());
          double total = 0;
          for (std::size_t k = 0; k < w.size(); ++k) total += static_cast<double>(w[k]) * x.row(token_of[r])[k];
          return total;
        };
        const double gate = sum(c), up = sum(kIntermediate + c), exact = gate / (1 + std::exp(-gate)) * up;
        ASSERT_NEAR(y.row(static_cast<std::int64_t>(r))[c], exact, 2e-5 * (1 + std::fabs(exact))) << "row " << r;
      }
    }
    EXPECT_TRUE(y.gaps_untouched());
  }
}

TEST(GroupedSwiglu, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const ExpertWeights weights(2, 8, 4, DType::float32, 5);
  const std::vector<std::int32_t> first_row = {0, 1, 2};
  const Rows x(2, 4), narrow(2, 3), grouped(2, 4), gate_up(2, 8), y(2, 4);
  const auto attempt = [&](const Rows& tokens, const std::int32_t* token_of) {
    grouped_swiglu({.x = tokens,
                    .token_of = token_of,
                    .gate_up = {.x = grouped, .group = weights.group(), .first_row = first_row.data(), .y = gate_up},
                    .y = y},
                   stream);
  };
  expect_invalid([&] { attempt(narrow, first_row.data()); }, "grouped_swiglu: x is [2, 3], expected [2, 4]");
  expect_invalid([&] { attempt(x, nullptr); }, "grouped_swiglu: token_of is null");
}

TEST(GroupedLinear, ReadsOnlyTheWeightsOfExpertsWithRows) {
  const ExpertWeights weights(3, 48, 32, DType::float32, 1);
  Weight copies[] = {weights[0], weights[1], weights[2]};
  copies[1].blocks = {};
  copies[1].blocks[0] = {reinterpret_cast<const void*>(std::uintptr_t{64}), 48};  // nothing is mapped there
  const Rows x = Rows::random(4, 32, 2), y(4, 48);
  const std::int32_t first_row[] = {0, 3, 3, 4};
  on_cpu(2, [&](Stream& stream) {
    grouped_linear({.x = x, .group = {.weights = copies, .count = 3}, .first_row = first_row, .y = y}, stream);
  });
  for (std::int64_t r = 0; r < 4; ++r) EXPECT_TRUE(std::isfinite(y.row(r)[47]));
}

TEST(GroupedLinear, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const ExpertWeights weights(2, 8, 4, DType::float32, 1), others(1, 8, 6, DType::float32, 1);
  const Rows x = Rows::random(3, 4, 2), y(3, 8);
  const std::int32_t first_row[] = {0, 1, 3};
  const auto attempt = [&](WeightGroup group, Tensor to) {
    grouped_linear({.x = x, .group = group, .first_row = first_row, .y = to}, stream);
  };
  expect_invalid([&] { attempt({}, y); }, "grouped_linear: no weights");
  expect_invalid([&] { attempt(weights.group(), Rows(3, 7)); }, "grouped_linear: y is [3, 7], expected [3, 8]");
  const Weight mixed[] = {weights[0], others[0]};
  expect_invalid([&] { attempt({.weights = mixed, .count = 2}, y); }, "weight 1 is [8, 6] of float32");
  const std::int32_t wrong[] = {0, 4, 3};
  EXPECT_THROW(
      on_cpu(1,
             [&](Stream& on) { grouped_linear({.x = x, .group = weights.group(), .first_row = wrong, .y = y}, on); }),
      InvalidArgument);
}

TEST(CombineExperts, AddsInTheOrderOfTheChoice) {
  constexpr std::int64_t kTokens = 5, kHidden = 33;
  constexpr int kTop = 3;
  const Rows x = Rows::random(kTokens * kTop, kHidden, 1, 1, 4), shared = Rows::random(kTokens, kHidden, 2, 1, 1);
  const std::vector<float> weights = random_floats(kTokens * kTop, 3);
  std::vector<std::int32_t> row_of(kTokens * kTop);
  std::iota(row_of.rbegin(), row_of.rend(), 0);
  for (const bool with_shared : {false, true}) {
    const Rows y(kTokens, kHidden, 2);
    on_cpu(2, [&](Stream& stream) {
      combine_experts({.x = x,
                       .weights = weights.data(),
                       .row_of = row_of.data(),
                       .top_k = kTop,
                       .shared = with_shared ? Tensor(shared) : Tensor{},
                       .y = y},
                      stream);
    });
    EXPECT_TRUE(y.gaps_untouched());
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t c = 0; c < kHidden; ++c) {
        double exact = with_shared ? shared.row(t)[c] : 0, magnitude = std::fabs(exact);
        for (int k = 0; k < kTop; ++k) {
          const auto at = static_cast<std::size_t>(t * kTop + k);
          const double product = static_cast<double>(weights[at]) * x.row(row_of[at])[c];
          exact += product;
          magnitude += std::fabs(product);
        }
        EXPECT_NEAR(y.row(t)[c], exact, magnitude * (2 * kTop + 1) * kUnit);
      }
  }
}

TEST(CombineExperts, AWeightOfNanReachesItsTokenOnly) {
  const Rows x = Rows::random(2, 8, 1), y(2, 8);
  const float weights[] = {kPoison, 1};
  const std::int32_t row_of[] = {1, 0};
  on_cpu(1, [&](Stream& stream) {
    combine_experts({.x = x, .weights = weights, .row_of = row_of, .top_k = 1, .y = y}, stream);
  });
  for (int c = 0; c < 8; ++c) {
    EXPECT_TRUE(std::isnan(y.row(0)[c]));
    EXPECT_TRUE(std::isfinite(y.row(1)[c]));
  }
}

TEST(GatherRows, CopiesBfloat16ForExperts) {
  const Elements from(random_floats(3 * 5, 1), DType::bfloat16), to(std::vector<float>(10, 0), DType::bfloat16);
  const std::int32_t rows[] = {2, 0};
  on_cpu(1, [&](Stream& stream) {
    gather_rows({.x = {const_cast<void*>(from.data()), 3, 5, 5, DType::bfloat16},
                 .rows = rows,
                 .y = {const_cast<void*>(to.data()), 2, 5, 5, DType::bfloat16}},
                stream);
  });
  const std::vector<float> values = from.floats(), copied = to.floats();
  for (std::size_t c = 0; c < 5; ++c) {
    EXPECT_EQ(copied[c], values[10 + c]);
    EXPECT_EQ(copied[5 + c], values[c]);
  }
}

}  // namespace
}  // namespace heddle
