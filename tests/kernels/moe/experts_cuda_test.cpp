// The operators of a mixture of experts on a GPU against the CPU's.
#include <algorithm>

#include "kernels/cuda_operands.h"
#include "kernels/moe/combine_experts.h"
#include "kernels/moe/group_rows.h"
#include "kernels/moe/grouped_linear.h"
#include "kernels/moe/grouped_swiglu.h"
#include "kernels/moe/route.h"

namespace heddle {
namespace {

using ExpertsOnGpu = OnGpu;

TEST_F(ExpertsOnGpu, RouteChoosesTheExpertsOfTheCpu) {
  const std::vector<RouteRule> rules = {{.top_k = 1},
                                        {.top_k = 2, .normalized = true},
                                        {.top_k = 6, .num_groups = 8, .top_groups = 3, .scale = 16},
                                        {.score = RouterScore::sigmoid,
                                         .top_k = 8,
                                         .num_groups = 8,
                                         .top_groups = 4,
                                         .group_score = GroupScore::two_largest,
                                         .normalized = true,
                                         .scale = 2.5f}};
  for (const RouteRule& rule : rules)
    for (const int num_experts : {16, 64, 160}) {
      SCOPED_TRACE(fmt::format("top {} of {} experts", rule.top_k, num_experts));
      constexpr std::int64_t kTokens = 37;
      Rows logits = Rows::random(kTokens, num_experts, 1, 3);
      logits.row(5)[3] = kPoison;
      const std::vector<float> bias = random_floats(static_cast<std::size_t>(num_experts), 2, 0.1f);
      const bool with_bias = rule.score == RouterScore::sigmoid;
      const auto count = static_cast<std::size_t>(kTokens * rule.top_k);
      std::vector<std::int32_t> experts(count);
      std::vector<float> weights(count);
      on_cpu(1, [&](Stream& stream) {
        route({.logits = logits,
               .bias = with_bias ? bias.data() : nullptr,
               .rule = rule,
               .experts = experts.data(),
               .weights = weights.data()},
              stream);
      });
      const GpuRows logits_there(logits, DType::float32);
      const GpuArray<float> bias_there(bias);
      GpuArray<std::int32_t> experts_there(std::vector<std::int32_t>(count, -1));
      GpuArray<float> weights_there(std::vector<float>(count, -1));
      on_gpu([&](Stream& stream) {
        route({.logits = logits_there,
               .bias = with_bias ? bias_there.data() : nullptr,
               .rule = rule,
               .experts = experts_there.data(),
               .weights = weights_there.data()},
              stream);
      });
      EXPECT_EQ(experts_there.values(), experts);
      const std::vector<float> got = weights_there.values();
      for (std::size_t i = 0; i < count; ++i) {
        if (i / static_cast<std::size_t>(rule.top_k) == 5)
          EXPECT_TRUE(std::isnan(got[i]));
        else
          EXPECT_NEAR(got[i], weights[i], 1e-6 * weights[i]);
      }
    }
}

TEST_F(ExpertsOnGpu, GroupRowsIsTheCpus) {
  for (const int tokens : {1, 7, 700}) {
    constexpr int kTop = 3, kExperts = 64;
    std::vector<std::int32_t> experts;
    for (int i = 0; i < tokens * kTop; ++i) experts.push_back((i * 37 + i / 5) % (kExperts - 4));
    const auto run = [&](std::vector<std::int32_t>& first, std::vector<std::int32_t>& token,
                         std::vector<std::int32_t>& row) {
      on_cpu(1, [&](Stream& stream) {
        group_rows({.experts = experts.data(),
                    .num_tokens = tokens,
                    .top_k = kTop,
                    .num_experts = kExperts,
                    .first_row = first.data(),
                    .token_of = token.data(),
                    .row_of = row.data()},
                   stream);
      });
    };
    std::vector<std::int32_t> first(kExperts + 1), token(experts.size()), row(experts.size());
    run(first, token, row);
    const GpuArray<std::int32_t> experts_there(experts);
    GpuArray<std::int32_t> first_there(std::vector<std::int32_t>(kExperts + 1, -1)),
        token_there(std::vector<std::int32_t>(experts.size(), -1)),
        row_there(std::vector<std::int32_t>(experts.size(), -1));
    on_gpu([&](Stream& stream) {
      group_rows({.experts = experts_there.data(),
                  .num_tokens = tokens,
                  .top_k = kTop,
                  .num_experts = kExperts,
                  .first_row = first_there.data(),
                  .token_of = token_there.data(),
                  .row_of = row_there.data()},
                 stream);
    });
    EXPECT_EQ(first_there.values(), first);
    EXPECT_EQ(token_there.values(), token);
    EXPECT_EQ(row_there.values(), row);
  }
}

TEST_F(ExpertsOnGpu, GroupedLinearAgreesWithTheCpu) {
  const std::vector<std::vector<std::int32_t>> groupings = {
      {0, 1, 2, 3}, {0, 0, 1, 1}, {0, 8, 9, 12}, {0, 12, 12, 12}, {0, 0, 0, 37}, {0, 5, 5, 41}, {0, 130, 259, 387}};
  constexpr std::int64_t kOut = 70;
  // Element by element, and in packs.
  for (const auto& [dtype, in_features] : {std::pair(DType::float32, 99), std::pair(DType::bfloat16, 99),
                                           std::pair(DType::bfloat16, 520), std::pair(DType::float16, 520)})
    for (const auto& first_row : groupings) {
      SCOPED_TRACE(fmt::format("{} groups that end at {}", name_of(dtype), fmt::join(first_row, " ")));
      const std::vector<float> values = random_floats(3 * kOut * in_features, 1);
      const Elements host(values, dtype);
      const GpuArray<std::byte> there(as_bytes(values, dtype));
      std::vector<Weight> weights, weights_there;
      std::vector<const void*> table;
      for (int e = 0; e < 3; ++e) {
        const std::size_t offset = static_cast<std::size_t>(e * kOut * in_features) * size_of(dtype);
        Weight weight{.out_features = kOut, .in_features = in_features, .dtype = dtype};
        weight.blocks[0] = {static_cast<const std::byte*>(host.data()) + offset, kOut};
        weights.push_back(weight);
        weight.blocks[0].data = there.data() + offset;
        weights_there.push_back(weight);
        table.push_back(there.data() + offset);
      }
      const GpuArray<const void*> table_there(table);
      const GpuArray<std::int32_t> first_there(first_row);
      const Rows x = rounded(Rows::random(first_row.back(), in_features, 2), dtype), y(first_row.back(), kOut);
      const GpuRows x_there(x, dtype), y_there(first_row.back(), kOut, dtype);
      on_cpu(1, [&](Stream& stream) {
        grouped_linear(
            {.x = x, .group = {.weights = weights.data(), .count = 3}, .first_row = first_row.data(), .y = y}, stream);
      });
      on_gpu([&](Stream& stream) {
        grouped_linear({.x = x_there,
                        .group = {.weights = weights_there.data(), .table = table_there.data(), .count = 3},
                        .first_row = first_there.data(),
                        .y = y_there},
                       stream);
      });
      const Rows got = y_there.rows();
      for (std::int64_t r = 0; r < y.rows(); ++r)
        for (std::int64_t c = 0; c < kOut; ++c)
          ASSERT_NEAR(got.row(r)[c], y.row(r)[c], 1e-4 + 2 * unit_roundoff(dtype) * std::fabs(y.row(r)[c]));
    }
}

// In one kernel, and in three where groups have many rows or x has another dtype.
TEST_F(ExpertsOnGpu, GroupedSwigluAgreesWithTheCpu) {
  constexpr std::int64_t kIntermediate = 35, kIn = 520;
  constexpr int kExperts = 3, kTop = 2;
  for (const auto& [dtype, tokens] :
       {std::pair(DType::bfloat16, 1), std::pair(DType::bfloat16, 12), std::pair(DType::float16, 5),
        std::pair(DType::bfloat16, 30), std::pair(DType::float32, 3)}) {
    SCOPED_TRACE(fmt::format("{}, {} tokens", name_of(dtype), tokens));
    const std::vector<float> values = random_floats(kExperts * 2 * kIntermediate * kIn, 1, 0.1f);
    const Elements host(values, dtype);
    const GpuArray<std::byte> there(as_bytes(values, dtype));
    std::vector<Weight> weights, weights_there;
    std::vector<const void*> table;
    for (int e = 0; e < kExperts; ++e) {
      const std::size_t offset = static_cast<std::size_t>(e * 2 * kIntermediate * kIn) * size_of(dtype);
      Weight weight{.out_features = 2 * kIntermediate, .in_features = kIn, .dtype = dtype};
      weight.blocks[0] = {static_cast<const std::byte*>(host.data()) + offset, 2 * kIntermediate};
      weights.push_back(weight);
      weight.blocks[0].data = there.data() + offset;
      weights_there.push_back(weight);
      table.push_back(there.data() + offset);
    }
    const int rows = tokens * kTop;
    std::vector<std::int32_t> token_of;
    for (int r = 0; r < rows; ++r) token_of.push_back(r * 7 % tokens);
    const std::vector<std::int32_t> first_row = {0, rows / 2, rows / 2, rows};
    const Rows x = rounded(Rows::random(tokens, kIn, 2), dtype), grouped(rows, kIn), gate_up(rows, 2 * kIntermediate),
               y(rows, kIntermediate);
    on_cpu(1, [&](Stream& stream) {
      grouped_swiglu({.x = x,
                      .token_of = token_of.data(),
                      .gate_up = {.x = grouped,
                                  .group = {.weights = weights.data(), .count = kExperts},
                                  .first_row = first_row.data(),
                                  .y = gate_up},
                      .y = y},
                     stream);
    });
    const GpuArray<const void*> table_there(table);
    const GpuArray<std::int32_t> first_there(first_row), token_there(token_of);
    const GpuRows x_there(x, dtype, {.gap = 8}), grouped_there(rows, kIn, dtype),
        gate_up_there(rows, 2 * kIntermediate, dtype), y_there(rows, kIntermediate, dtype, {.gap = 5});
    on_gpu([&](Stream& stream) {
      grouped_swiglu({.x = x_there,
                      .token_of = token_there.data(),
                      .gate_up = {.x = grouped_there,
                                  .group = {.weights = weights_there.data(), .table = table_there.data(), .count = 3},
                                  .first_row = first_there.data(),
                                  .y = gate_up_there},
                      .y = y_there},
                     stream);
    });
    const Rows got = y_there.rows();
    EXPECT_TRUE(got.gaps_untouched());
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t c = 0; c < kIntermediate; ++c)  // gate and up may have been rounded before
        ASSERT_NEAR(got.row(r)[c], y.row(r)[c], 1e-4 + 8 * unit_roundoff(dtype) * (1 + std::fabs(y.row(r)[c])));
  }
}

TEST_F(ExpertsOnGpu, CombineExpertsAgreesWithTheCpu) {
  constexpr std::int64_t kTokens = 9, kHidden = 333;
  constexpr int kTop = 4;
  for (const DType dtype : kDTypes) {
    const Rows x = rounded(Rows::random(kTokens * kTop, kHidden, 1), dtype),
               shared = rounded(Rows::random(kTokens, kHidden, 2), dtype), y(kTokens, kHidden);
    const std::vector<float> weights = random_floats(kTokens * kTop, 3);
    std::vector<std::int32_t> row_of;
    for (int i = 0; i < kTokens * kTop; ++i) row_of.push_back((i * 7) % (static_cast<int>(kTokens) * kTop));
    on_cpu(1, [&](Stream& stream) {
      combine_experts(
          {.x = x, .weights = weights.data(), .row_of = row_of.data(), .top_k = kTop, .shared = shared, .y = y},
          stream);
    });
    const GpuRows x_there(x, dtype), y_there(shared, dtype);  // in place
    const GpuArray<float> weights_there(weights);
    const GpuArray<std::int32_t> rows_there(row_of);
    on_gpu([&](Stream& stream) {
      combine_experts({.x = x_there,
                       .weights = weights_there.data(),
                       .row_of = rows_there.data(),
                       .top_k = kTop,
                       .shared = y_there,
                       .y = y_there},
                      stream);
    });
    const Rows got = y_there.rows();
    for (std::int64_t r = 0; r < kTokens; ++r)
      for (std::int64_t c = 0; c < kHidden; ++c)
        ASSERT_NEAR(got.row(r)[c], y.row(r)[c], 1e-5 + 2 * unit_roundoff(dtype) * std::fabs(y.row(r)[c]));
  }
}

}  // namespace
}  // namespace heddle
