// Absorbed latent attention on a GPU against float64: rows of 512 + 64 elements, one for all heads.
#include <algorithm>
#include <cmath>

#include "base/cuda_runtime.h"
#include "kernels/attention/attention.h"
#include "kernels/cuda_operands.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

constexpr int kCached = 576, kLatent = 512;

struct LatentCase {
  int num_heads, page_size;
  std::vector<TestSequence> sequences;
  DType q = DType::bfloat16, y = DType::bfloat16;
  float query_scale = 0.2f;
  int num_sms = 0;  // 0: all
};

// Values of a token and head in float64, and a bound on what float32 sums, and weights rounded to the cache's dtype, lose.
struct ExactRow {
  ExactRow(const float* q, const std::vector<float>& rows, int num_keys, double scale, DType cache, DType y)
      : value(kLatent), bound(kLatent) {
    std::vector<double> weights;
    double largest = -std::numeric_limits<double>::infinity(), score_error = 0, sum = 0;
    for (int j = 0; j < num_keys; ++j) {
      double dot = 0, magnitude = 0;
      for (int d = 0; d < kCached; ++d) {
        const double product = static_cast<double>(q[d]) * rows[static_cast<std::size_t>(j * kCached + d)];
        dot += product;
        magnitude += std::fabs(product);
      }
      weights.push_back(dot * scale);
      largest = std::max(largest, weights.back());
      // Tensor cores add with a unit of the last place twice that of float32, in any order.
      score_error = std::max(score_error, 2.0 * (kCached + 8) * kUnit * magnitude * scale);
    }
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    const double growth = 2 * std::expm1(2 * score_error) + unit_roundoff(cache) + (4.0 * num_keys + 64) * kUnit;
    const double lost = cache == DType::float16 ? 0x1p-24 : 0;  // float16 has no weights below 2^-24
    for (int d = 0; d < kLatent; ++d) {
      double magnitude = 0, total = 0;
      const auto at = static_cast<std::size_t>(d);
      for (int j = 0; j < num_keys; ++j) {
        const double v = rows[static_cast<std::size_t>(j * kCached + d)], weight = weights[static_cast<std::size_t>(j)];
        value[at] += weight * v;
        magnitude += weight * std::fabs(v);
        total += std::fabs(v);
      }
      value[at] /= sum;
      const double without_y = magnitude / sum * growth + lost * total / sum;
      const double rounding = y == DType::float32 ? kUnit : unit_roundoff(y);
      bound[at] = without_y + rounding * (std::fabs(value[at]) + without_y) + 0x1p-24;
    }
  }

  std::vector<double> value, bound;
};

class LatentAttentionOnGpu : public OnGpu {
 protected:
  static void check(const LatentCase& c, DType cache) {
    SCOPED_TRACE(testing::Message() << name_of(cache) << ", " << c.num_heads << " heads, pages of " << c.page_size
                                    << ", " << c.sequences.size() << " sequences, the first of "
                                    << c.sequences[0].context_len);
    Sequences sequences({1, kCached, c.page_size, cache}, c.sequences);
    sequences.fill(c.sequences);
    const std::int64_t tokens = sequences.num_tokens(), columns = std::int64_t{c.num_heads} * kCached;
    const Rows q = rounded(rounded(Rows::random(tokens, columns, 11, c.query_scale), cache), c.q);
    const GpuRows q_there(q, c.q, {.gap = 8}), y_there(tokens, columns, c.y, {.gap = 8});

    const PagedSequences host = sequences.view();
    const auto count = static_cast<std::size_t>(host.num_sequences);
    const GpuArray<std::int32_t> query_start(std::span(host.query_start, count + 1)),
        context_len(std::span(host.context_len, count)),
        page_table(std::span(host.page_table, count * static_cast<std::size_t>(host.page_table_stride)));
    const std::size_t cache_bytes = sequences.keys().count() * size_of(cache);
    GpuArray<std::byte> pages(std::span(static_cast<const std::byte*>(sequences.keys().data()), cache_bytes));
    PagedKv kv = sequences.kv();
    kv.keys = kv.values = pages.data();

    GpuArray<std::byte> scratch(std::vector<std::byte>(
        attention_scratch_bytes(static_cast<int>(tokens), static_cast<int>(count), c.num_heads, kCached)));
    const std::size_t plan_bytes = latent_plan_bytes(tokens, static_cast<int>(count), c.num_heads);
    GpuArray<std::byte> plan(std::vector<std::byte>(plan_bytes + 256, std::byte{0xff}));
    AttentionParams params{.q = q_there,
                           .y = y_there,
                           .kv = kv,
                           .sequences = {query_start.data(), context_len.data(), page_table.data(), host.num_sequences,
                                         host.page_table_stride, host.max_query_len},
                           .num_heads = c.num_heads,
                           .scale = 0.1f,
                           .value_dim = kLatent,
                           .scratch = scratch.data(),
                           .plan = plan.data()};
    Stream stream(kGpu);
    const Lane lane = c.num_sms == 0 ? Lane(stream) : Lane(stream, c.num_sms);
    plan_attention({.kv = kv,
                    .sequences = params.sequences,
                    .num_tokens = tokens,
                    .num_heads = c.num_heads,
                    .value_dim = kLatent,
                    .plan = plan.data(),
                    .plan_bytes = plan_bytes},
                   lane);
    attention(params, lane);
    stream.synchronize();
    const Rows got = y_there.rows();
    for (const OlderKeys older : {OlderKeys::in_flight, OlderKeys::in_place, OlderKeys::in_place}) {
      params.older_keys = older;
      attention(params, lane);
      stream.synchronize();
      ASSERT_EQ(bits(y_there.rows()), bits(got)) << "the same step again";
    }
    const std::vector<std::byte> plan_after = plan.values(), scratch_after = scratch.values();
    ASSERT_TRUE(std::all_of(plan_after.begin() + static_cast<std::ptrdiff_t>(plan_bytes), plan_after.end(),
                            [](std::byte byte) { return byte == std::byte{0xff}; }));
    // Partial results are there when they are no zeros: each launch must leave zeros for the next.
    ASSERT_TRUE(std::all_of(scratch_after.begin(), scratch_after.end(), [](std::byte b) { return b == std::byte{}; }));

    ASSERT_TRUE(got.gaps_untouched());
    std::int64_t token = 0;
    for (int s = 0; s < host.num_sequences; ++s) {
      const TestSequence& sequence = c.sequences[static_cast<std::size_t>(s)];
      const std::vector<float> rows = sequences.keys_of(s, 0);
      for (int j = 0; j < sequence.num_new_tokens; ++j, ++token) {
        if (sequence.num_new_tokens > 20 && j % 64 != 0 && j % 64 != 63 && j % 41 != 0) continue;
        // Of many heads or keys some: float64 is slow.
        const int step = std::max(1, c.num_heads * sequence.context_len / 20000);
        for (int head = j % step; head < c.num_heads; head += step) {
          const int num_keys = sequence.context_len - sequence.num_new_tokens + j + 1;
          const ExactRow exact(q.row(token) + head * kCached, rows, num_keys, params.scale, cache, c.y);
          for (int d = 0; d < kLatent; ++d)
            ASSERT_NEAR(got.row(token)[head * kCached + d], exact.value[static_cast<std::size_t>(d)],
                        exact.bound[static_cast<std::size_t>(d)])
                << "sequence " << s << " token " << j << " head " << head << " element " << d;
        }
      }
    }
  }

  static void check_all(const std::vector<LatentCase>& cases) {
    for (const LatentCase& c : cases)
      for (const DType cache : {DType::bfloat16, DType::float16}) {
        LatentCase here = c;
        if (cache == DType::float16 && c.q == DType::bfloat16) here.q = here.y = DType::float16;
        check(here, cache);
        if (HasFatalFailure()) return;
      }
  }
};

TEST_F(LatentAttentionOnGpu, DecodeMatchesFloat64) {
  check_all({
      {16, 16, {{1, 1}}},  // one key: y is its latent
      {16, 16, {{64, 1}}},
      {16, 16, {{2, 1}, {15, 1}, {16, 1}, {17, 1}, {63, 1}, {64, 1}, {65, 1}, {129, 1}}},  // page and tile edges
      {16, 32, {{1024, 1}}},
      {16, 32, {{700, 1}, {3, 1}, {0, 0}, {64, 1}, {1500, 1}}},  // one without new tokens between others
      {16, 64, {{4100, 1}}, DType::float32, DType::float32},
      {16, 256, {{600, 1}, {5, 1}}},   // several boxes a page
      {128, 32, {{900, 1}, {77, 1}}},  // eight items a token
      {8, 32, {{500, 1}, {1, 1}}},     // a rank of two
      {5, 16, {{300, 1}, {130, 1}}, DType::float32, DType::bfloat16},
      {16, 32, {{20000, 1}}},
  });
}

TEST_F(LatentAttentionOnGpu, ChunksMatchFloat64) {
  check_all({
      {16, 16, {{65, 65}, {128, 128}, {129, 129}, {1, 1}, {200, 130}}},
      {16, 32, {{1000, 300}, {700, 1}, {40, 17}, {0, 0}}},  // long and short ones in a step
      {5, 16, {{150, 90}, {20, 3}}},                        // rows of a token lie in two items
      {128, 32, {{200, 40}}},
      {16, 32, {{600, 600}}, DType::float32, DType::float32},
  });
}

TEST_F(LatentAttentionOnGpu, SharesOutManySequences) {
  std::vector<TestSequence> sequences;
  for (int i = 0; i < 75; ++i)
    sequences.push_back({.context_len = i % 5 == 0 ? 0 : 1 + i * i * 37 % 500,
                         .num_new_tokens = i % 5 == 0 ? 0 : 1,
                         .seed = static_cast<std::uint32_t>(i)});
  check_all({{16, 32, sequences}});
  sequences.resize(24);
  for (std::size_t i = 0; i < sequences.size(); ++i)  // more tiles than blocks
    sequences[i] = {.context_len = 900 + static_cast<int>(i) * 61, .num_new_tokens = 1, .seed = 3};
  check_all({{16, 32, sequences}});
}

TEST_F(LatentAttentionOnGpu, OneKeyMayHaveAllTheWeight) {
  check_all({{16, 32, {{900, 1}}, DType::bfloat16, DType::bfloat16, 1e3f},
             {16, 32, {{900, 1}}, DType::bfloat16, DType::bfloat16, 1e-4f}});
}

TEST_F(LatentAttentionOnGpu, KeepsToItsLane) {
  check_all({{16, 32, {{900, 1}, {2000, 1}}, DType::bfloat16, DType::bfloat16, 0.2f, 20}});
}

}  // namespace
}  // namespace heddle
