#include "kernels/attention/attention.h"

#include <numbers>
#include <tuple>

#include "kernels/cpu_arithmetic.h"
#include "kernels/operands.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

struct AttentionCase {
  int num_heads, num_kv_heads, head_dim, page_size;
  std::vector<TestSequence> sequences;
  float query_scale = 1;
  int window = 0;
};

int first_visible(int position, int window) {
  return window == 0 ? 0 : std::max(0, position - window + 1);
}

const AttentionCase kAttentionCases[] = {
    {1, 1, 1, 1, {{1, 1}}},                                          // one key: y is its value
    {4, 4, 16, 16, {{5, 5}, {1, 1}, {40, 1}}},                       // MHA
    {6, 2, 24, 16, {{15, 1}, {16, 1}, {17, 1}, {32, 2}, {33, 18}}},  // GQA around page edges
    {6, 2, 7, 3, {{9, 9}, {10, 1}, {4, 0}, {11, 2}}},                // odd head_dim; a sequence without new tokens
    {40, 1, 64, 16, {{70, 3}}},                                      // MQA with more heads than a part has rows
    {40, 40, 80, 5, {{63, 1}, {64, 1}, {65, 1}, {66, 2}}},           // around a tile of 64 keys
    {4, 2, 64, 32, {{127, 1}, {128, 3}, {129, 1}, {130, 130}}},      // and a block of 128
    {8, 2, 128, 64, {{129, 1}, {200, 70}}},
    {3, 3, 33, 16, {{130, 130}}},  // rows of a part see different blocks
    {2, 1, 300, 16, {{100, 40}}},  // fewer than 128 keys are widened at once
    {3, 1, 1024, 7, {{70, 10}}},
    {6, 2, 24, 16, {{100, 20}, {300, 1}}, 1e4f},  // scores of +-1e4: all weight on one key
    {6, 2, 24, 16, {{100, 20}}, 1e-30f},          // equal weights

    {6, 2, 24, 16, {{5, 5}, {130, 130}, {300, 1}}, 1, 16},         // the window ends where pages do
    {6, 2, 24, 5, {{64, 64}, {65, 1}, {128, 1}, {129, 2}}, 1, 1},  // a token sees itself alone
    {4, 1, 16, 16, {{200, 100}, {64, 1}, {127, 1}}, 1, 64},        // a tile long
    {4, 4, 16, 16, {{200, 100}, {130, 3}}, 1, 65},                 // and one key of another
    {8, 1, 128, 7, {{150, 40}, {20, 20}}, 1, 3},                   // rows of a part see nothing in common
    {2, 1, 300, 16, {{150, 90}}, 1, 70},                           // fewer than 128 keys are widened at once
    {6, 2, 24, 16, {{100, 20}, {100, 100}}, 1, 100},               // as long as the context: as without
    {6, 2, 24, 16, {{100, 20}}, 1, std::numeric_limits<int>::max()},
    {6, 2, 24, 16, {{300, 40}}, 1e4f, 50},
};

constexpr float kScale = 0.25f;

// What is multiplied: float32, or bfloat16, to which queries and weights are rounded.
enum class Products { of_float32, of_bfloat16 };

float to_and_from_bfloat16(float x) {
  return to_float(to_bfloat16(x));
}

// What is multiplied of a query where products are of bfloat16; the weights are powers of two of such scores.
std::vector<float> scaled_to_bfloat16(const float* query, int head_dim) {
  std::vector<float> result(query, query + head_dim);
  for (float& value : result) value = to_and_from_bfloat16(value * (kScale * kLog2OfE));
  return result;
}

// The dot product of bfloat16 products: one chain over pairs of elements.
float dot_of_pairs(const float* a, const float* b, int count) {
  float sum = 0;
  for (int i = 0; i < count; i += 2) {
    if (i + 1 < count) sum = std::fma(a[i + 1], b[i + 1], sum);
    sum = std::fma(a[i], b[i], sum);
  }
  return sum;
}

// y of one head and token by the formulas of attention.h.
std::vector<float> attention_by_definition(const float* q, const std::vector<float>& keys,
                                           const std::vector<float>& values, int head_dim, int position, int first,
                                           Products products) {
  const bool pairs = products == Products::of_bfloat16;
  const auto power = [&](float x) { return pairs ? power_of_two(x) : exponential(x); };
  float largest = -std::numeric_limits<float>::infinity(), sum = 0;
  std::vector<float> o(static_cast<std::size_t>(head_dim));
  for (int block = first / 128 * 128; block <= position; block += 128) {
    std::array<float, 128> weights;
    weights.fill(-std::numeric_limits<float>::infinity());
    const int begin = std::max(0, first - block), end = std::min(128, position + 1 - block);
    const float before = largest;
    for (int i = begin; i < end; ++i) {
      const float* key = keys.data() + (block + i) * head_dim;
      weights[i] = pairs ? dot_of_pairs(q, key, head_dim) : dot_product(q, key, head_dim) * kScale;
      largest = std::max(largest, weights[i]);
    }
    std::array<float, 16> lanes{};
    for (int i = 0; i < 128; ++i) {
      weights[i] = power(weights[i] - largest);
      lanes[i % 16] += weights[i];
    }
    const float correction = power(before - largest);
    sum = std::fma(sum, correction, sum_of_lanes(lanes));
    for (float& value : o) value *= correction;
    for (int i = 0; i < 128; ++i) {
      const int key = pairs ? i ^ 1 : i;
      if (key < begin || key >= end) continue;
      const float weight = pairs ? to_and_from_bfloat16(weights[key]) : weights[key];
      const float* value = values.data() + (block + key) * head_dim;
      for (int d = 0; d < head_dim; ++d) o[d] = std::fma(weight, value[d], o[d]);
    }
  }
  for (float& value : o) value /= sum;
  return o;
}

struct Exact {
  double value, bound;
};

// The same in float64, with a bound on the error of float32.
std::vector<Exact> attention_in_float64(const float* q, const std::vector<float>& keys,
                                        const std::vector<float>& values, int head_dim, int position, int first,
                                        Products products) {
  const bool pairs = products == Products::of_bfloat16;
  const double scale = pairs ? std::numbers::ln2 : kScale;  // of exponents of e
  std::vector<double> scores;
  double largest = -std::numeric_limits<double>::infinity(), score_error = 0;
  for (int j = first; j <= position; ++j) {
    double dot = 0, magnitude = 0;
    for (int d = 0; d < head_dim; ++d) {
      const double product = static_cast<double>(q[d]) * keys[j * head_dim + d];
      dot += product;
      magnitude += std::fabs(product);
    }
    scores.push_back(dot * scale);
    largest = std::max(largest, scores.back());
    // The dot product, the scale, and the subtraction of the maximum.
    const double additions = pairs ? head_dim : head_dim / 16.0;
    score_error = std::max(score_error, (additions + 8) * kUnit * magnitude * scale);
  }
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  std::vector<double> sums(static_cast<std::size_t>(head_dim)), magnitudes(sums.size());
  for (int j = first; j <= position; ++j) {
    const float* value = values.data() + j * head_dim;
    for (int d = 0; d < head_dim; ++d) {
      const double product = scores[j - first] * value[d];
      sums[d] += product;
      magnitudes[d] += std::fabs(product);
    }
  }
  std::vector<Exact> result;
  for (int d = 0; d < head_dim; ++d) {
    // An error e of a score changes its weight by a factor of exp(e), in the sum above and below; then exp's own three
    // roundings and those of at most position + 1 additions and a correction a block, in both sums, and the quotient.
    const int roundings = 2 * (position + 1 + position / 128 * 4 + 6);
    const double rounding_of_weights = pairs ? unit_roundoff(DType::bfloat16) * (1 + std::expm1(2 * score_error)) : 0;
    const double growth = 2 * std::expm1(2 * score_error) + roundings * kUnit + rounding_of_weights;
    result.push_back({sums[d] / sum, magnitudes[d] / sum * growth + 0x1p-140});
  }
  return result;
}

// Calls attend(y of bfloat16), and widens it to `y` when the stream is done.
template <class Attend>
void attend_to_bfloat16(Rows& y, Stream& stream, const Attend& attend) {
  const Tensor wide = y;
  std::vector<bfloat16> bits(static_cast<std::size_t>(wide.rows * wide.row_stride));
  Tensor narrow = wide;
  narrow.data = bits.data();
  narrow.dtype = DType::bfloat16;
  attend(narrow);
  stream.synchronize();
  for (std::int64_t row = 0; row < wide.rows; ++row)
    for (std::int64_t i = 0; i < wide.columns; ++i)
      y.row(row)[i] = to_float(bits[static_cast<std::size_t>(row * wide.row_stride + i)]);
}

void check(const AttentionCase& c, DType dtype, Products products = Products::of_float32) {
  const bool pairs = products == Products::of_bfloat16;
  SCOPED_TRACE(fmt::format("{} {}/{} heads of {}, pages of {}, query scale {}, window {}{}", name_of(dtype),
                           c.num_heads, c.num_kv_heads, c.head_dim, c.page_size, c.query_scale, c.window,
                           pairs ? ", products of bfloat16" : ""));
  Sequences sequences({c.num_kv_heads, c.head_dim, c.page_size, dtype}, c.sequences);
  sequences.fill(c.sequences);
  const std::int64_t columns = std::int64_t{c.num_heads} * c.head_dim;
  const Rows q = Rows::random(sequences.num_tokens(), columns, 9, c.query_scale, 11);
  Rows y(sequences.num_tokens(), columns, 3);
  std::vector<std::vector<float>> keys, values;  // of each sequence, head after head
  for (int s = 0; s < static_cast<int>(c.sequences.size()); ++s) {
    for (int head = 0; head < c.num_kv_heads; ++head) {
      keys.push_back(sequences.keys_of(s, head));
      values.push_back(sequences.values_of(s, head));
    }
    const TestSequence& sequence = c.sequences[static_cast<std::size_t>(s)];
    sequences.forget_before(s, first_visible(sequence.context_len - sequence.num_new_tokens, c.window));
  }
  on_cpu(2, [&](Stream& stream) {
    const auto attend_to = [&](Tensor to) {
      attention({q, to, sequences.kv(), sequences.view(), c.num_heads, kScale, c.window}, stream);
    };
    if (pairs)
      attend_to_bfloat16(y, stream, attend_to);
    else
      attend_to(y);
  });
  EXPECT_TRUE(y.gaps_untouched());

  for (int head = 0; head < c.num_heads; ++head) {
    const int kv_head = head / (c.num_heads / c.num_kv_heads);
    std::int64_t token = 0;
    for (int s = 0; s < static_cast<int>(c.sequences.size()); ++s) {
      const TestSequence& sequence = c.sequences[static_cast<std::size_t>(s)];
      const auto view = static_cast<std::size_t>(s * c.num_kv_heads + kv_head);
      for (int j = 0; j < sequence.num_new_tokens; ++j, ++token) {
        const int position = sequence.context_len - sequence.num_new_tokens + j;
        const float* as_given = q.row(token) + head * c.head_dim;
        const std::vector<float> scaled = scaled_to_bfloat16(as_given, c.head_dim);
        const float* query = pairs ? scaled.data() : as_given;
        const float* result = y.row(token) + head * c.head_dim;
        const int first = first_visible(position, c.window);
        const std::vector<Exact> exact =
            attention_in_float64(query, keys[view], values[view], c.head_dim, position, first, products);
        const std::vector<float> model =
            attention_by_definition(query, keys[view], values[view], c.head_dim, position, first, products);
        for (int d = 0; d < c.head_dim; ++d) {
          const double of_y = pairs ? unit_roundoff(DType::bfloat16) * (std::fabs(exact[d].value) + exact[d].bound) : 0;
          ASSERT_NEAR(result[d], exact[d].value, exact[d].bound + of_y) << "sequence " << s << " position " << position;
          if (cpu_target().fused_multiply_add) {
            ASSERT_EQ(result[d], pairs ? to_and_from_bfloat16(model[d]) : model[d])
                << "sequence " << s << " position " << position;
          }
        }
      }
    }
  }
}

TEST(Attention, MatchesFloat64AndItsDefinition) {
  for (const AttentionCase& c : kAttentionCases)
    for (const DType dtype : kDTypes) check(c, dtype);
}

TEST(Attention, WithOutputsOfBfloat16MultipliesBfloat16) {
  for (const AttentionCase& c : kAttentionCases) {
    check(c, DType::bfloat16, Products::of_bfloat16);
    if (!cpu_target().fused_multiply_add) continue;
    for_each_fused_target([&] { check(c, DType::bfloat16, Products::of_bfloat16); });
  }
}

// A prompt of 150 tokens beside another sequence; its bits must be the same however it is computed.
constexpr int kBitsHeads = 6, kBitsKvHeads = 2, kBitsHeadDim = 24, kBitsPrompt = 150,
              kBitsColumns = kBitsHeads * kBitsHeadDim;
constexpr TestSequence kNeighbour{.context_len = 77, .num_new_tokens = 5, .seed = 5};

class AttentionBits : public ::testing::TestWithParam<std::tuple<int, Products>> {  // the window
 protected:
  // The rows of `count` tokens that end at context length `context`, computed in one call.
  Rows run(int context, int count, int page_size = 16, int threads = 1, bool with_neighbour = false) const {
    std::vector<TestSequence> sequences;
    if (with_neighbour) sequences.push_back(kNeighbour);
    sequences.push_back({context, count, 3});
    if (with_neighbour) sequences.push_back(kNeighbour);
    Sequences cache({kBitsKvHeads, kBitsHeadDim, page_size, DType::bfloat16}, sequences);
    cache.fill(sequences);
    const int before = with_neighbour ? kNeighbour.num_new_tokens : 0;
    Rows q = with_neighbour ? Rows::random(cache.num_tokens(), kBitsColumns, 8) : Rows(count, kBitsColumns);
    for (int t = 0; t < count; ++t) std::copy_n(q_.row(context - count + t), kBitsColumns, q.row(before + t));
    Rows y(cache.num_tokens(), kBitsColumns);
    const auto [window, products] = GetParam();
    on_cpu(threads, [&, w = window, p = products](Stream& stream) {
      const auto attend_to = [&](Tensor to) {
        attention({q, to, cache.kv(), cache.view(), kBitsHeads, kScale, w}, stream);
      };
      if (p == Products::of_bfloat16)
        attend_to_bfloat16(y, stream, attend_to);
      else
        attend_to(y);
    });
    Rows result(count, kBitsColumns);
    for (int t = 0; t < count; ++t) std::copy_n(y.row(before + t), kBitsColumns, result.row(t));
    return result;
  }

  Rows q_ = Rows::random(kBitsPrompt, kBitsColumns, 1);
  Rows whole_ = run(kBitsPrompt, kBitsPrompt);
};

TEST_P(AttentionBits, AreThoseOfAnyChunking) {
  for (const int chunk : {1, 7, 50, 64, 100}) {
    for (int begin = 0; begin < kBitsPrompt; begin += chunk) {
      const int count = std::min(chunk, kBitsPrompt - begin);
      ASSERT_EQ(bits(run(begin + count, count)), bits(whole_, begin, count)) << "chunk of " << chunk << " at " << begin;
    }
  }
}

TEST_P(AttentionBits, DependOnNeitherPagesNorThreadsNorNeighbours) {
  for (const int page_size : {1, 5, 16, 64})
    EXPECT_EQ(bits(run(kBitsPrompt, kBitsPrompt, page_size)), bits(whole_)) << page_size;
  for (const int threads : {2, 5})
    EXPECT_EQ(bits(run(kBitsPrompt, kBitsPrompt, 16, threads, true)), bits(whole_)) << threads;
  EXPECT_EQ(bits(run(kBitsPrompt, 1, 16, 2, true)), bits(whole_, kBitsPrompt - 1, 1));
}

TEST_P(AttentionBits, DependOnNoVectorWidth) {
  if (!cpu_target().fused_multiply_add) GTEST_SKIP() << "no fused multiply-add on this machine";
  for_each_fused_target([&] { EXPECT_EQ(bits(run(kBitsPrompt, kBitsPrompt)), bits(whole_)) << cpu_target().name; });
}

INSTANTIATE_TEST_SUITE_P(Window, AttentionBits,
                         ::testing::Combine(::testing::Values(0, 10, 64, 100),
                                            ::testing::Values(Products::of_float32, Products::of_bfloat16)));

// A decode step of one sequence and one KV head, as with latent attention: the threads share the query heads.
TEST(Attention, ThreadsThatShareTheHeadsOfAGroupChangeNoBit) {
  constexpr int kHeads = 17, kHeadDim = 40, kRead = 24;
  const std::vector<TestSequence> shape = {{300, 1}};
  Sequences cache({1, kHeadDim, 16, DType::bfloat16}, shape);
  cache.fill(shape);
  const Rows q = Rows::random(1, std::int64_t{kHeads} * kHeadDim, 1);
  const auto params = [&](Tensor y, int value_dim) {
    return AttentionParams{.q = q,
                           .y = y,
                           .kv = cache.kv(),
                           .sequences = cache.view(),
                           .num_heads = kHeads,
                           .scale = kScale,
                           .value_dim = value_dim};
  };
  const auto run = [&](int threads, Products products, int value_dim) {
    Rows y(1, q.columns());
    on_cpu(threads, [&](Stream& stream) {
      const auto attend_to = [&](Tensor to) { attention(params(to, value_dim), stream); };
      products == Products::of_bfloat16 ? attend_to_bfloat16(y, stream, attend_to) : attend_to(y);
    });
    std::vector<float> read;
    for (int head = 0; head < kHeads; ++head)
      read.insert(read.end(), y.row(0) + head * kHeadDim, y.row(0) + head * kHeadDim + kRead);
    return read;
  };
  const auto sums = [&](int threads) {
    std::vector<float> unit(AttentionSums::bytes(kHeads, kHeadDim) / sizeof(float));
    Rows y(1, q.columns());
    on_cpu(threads, [&](Stream& stream) {
      AttentionParams to_sums = params(y, 0);
      to_sums.sums = {.first = reinterpret_cast<std::byte*>(unit.data()), .bytes_apart = unit.size() * sizeof(float)};
      attention(to_sums, stream);
    });
    return unit;
  };
  for (const int threads : {2, 3, 8, 20}) {
    for (const Products products : {Products::of_float32, Products::of_bfloat16})
      for (const int value_dim : {0, kRead})
        EXPECT_EQ(run(threads, products, value_dim), run(1, products, 0)) << threads;
    EXPECT_EQ(sums(threads), sums(1)) << threads;
  }
}

TEST(Attention, OfATokenIgnoresWhatFollowsIt) {
  const std::vector<TestSequence> shape = {{70, 70}};
  Sequences cache({1, 16, 16, DType::float32}, shape);
  cache.fill(shape);
  const Rows q = Rows::random(70, 16, 1), before(70, 16), after(70, 16);
  on_cpu(1, [&](Stream& stream) { attention({q, before, cache.kv(), cache.view(), 1, kScale}, stream); });
  cache.set_value(0, 69, 0, kPoison);
  on_cpu(1, [&](Stream& stream) { attention({q, after, cache.kv(), cache.view(), 1, kScale}, stream); });
  EXPECT_EQ(bits(after, 0, 69), bits(before, 0, 69));
  EXPECT_TRUE(std::isnan(after.row(69)[0]));
}

TEST(Attention, OfATokenIgnoresWhatFollowsItInAPairOfBfloat16) {
  const std::vector<TestSequence> shape = {{70, 70}};
  Sequences cache({1, 16, 16, DType::bfloat16}, shape);
  cache.fill(shape);
  const Rows q = Rows::random(70, 16, 1);
  Rows before(70, 16), after(70, 16);
  const auto run = [&](Rows& y) {
    on_cpu(1, [&](Stream& stream) {
      attend_to_bfloat16(y, stream, [&](Tensor to) {
        attention({q, to, cache.kv(), cache.view(), 1, kScale}, stream);
      });
    });
  };
  run(before);
  for (const int poisoned : {69, 68}) {  // the odd one of a pair, and both
    cache.set_value(0, poisoned, 0, kPoison);
    run(after);
    EXPECT_EQ(bits(after, 0, poisoned), bits(before, 0, poisoned));
    EXPECT_TRUE(std::isnan(after.row(poisoned)[0]));
  }
}

TEST(Attention, DoesNotHideNaN) {
  const std::vector<TestSequence> shape = {{3, 1}};
  Sequences cache({1, 16, 16, DType::float32}, shape);
  cache.fill(shape);
  const Rows q = Rows::of(std::vector<float>(16, kPoison), 1, 16), y(1, 16);
  Rows result = y;
  on_cpu(1, [&](Stream& stream) { attention({q, result, cache.kv(), cache.view(), 1, kScale}, stream); });
  for (int d = 0; d < 16; ++d) EXPECT_TRUE(std::isnan(result.row(0)[d]));
}

TEST(Attention, DoesNotHideNaNOfAnyPayload) {  // exp works on the bits of numbers
  const std::vector<TestSequence> shape = {{16, 16}};
  Sequences cache({1, 16, 16, DType::float32}, shape);
  cache.fill(shape);
  for (const std::uint32_t payload : {1u, 0x1ffu, 0x100u, 0x3fffffu}) {
    const auto poison = std::bit_cast<float>(0x7fc00000u | payload);
    const Rows q = Rows::of(std::vector<float>(16 * 16, poison), 16, 16), y(16, 16);
    on_cpu(1, [&](Stream& stream) { attention({q, y, cache.kv(), cache.view(), 1, kScale}, stream); });
    for (int token = 0; token < 16; ++token) EXPECT_TRUE(std::isnan(y.row(token)[0])) << payload << ' ' << token;
  }
}

TEST(Attention, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const std::vector<TestSequence> shape = {{3, 2}};
  Sequences cache({2, 8, 16, DType::float32}, shape);
  cache.fill(shape);
  const Rows q = Rows::random(2, 32, 1), y(2, 32);
  const AttentionParams good{q, y, cache.kv(), cache.view(), 4, kScale};
  const auto broken = [&](auto change, const std::string& part) {
    AttentionParams params = good;
    change(params);
    expect_invalid([&] { attention(params, stream); }, part);
  };
  attention(good, stream);
  broken([](AttentionParams& p) { p.num_heads = 3; }, "num_heads 3 is not a multiple of num_kv_heads 2");
  broken([](AttentionParams& p) { p.num_heads = 0; }, "num_heads 0 is not a multiple");
  broken([](AttentionParams& p) { p.num_heads = 6; }, "attention: q is [2, 32], expected [2, 48]");
  broken([](AttentionParams& p) { p.y.rows = 1; }, "attention: y is [1, 32], expected [2, 32]");
  broken([](AttentionParams& p) { p.window = -1; }, "window is -1, expected 0 for none");
  broken([](AttentionParams& p) { p.value_dim = p.kv.head_dim + 1; }, "expected 0 to head_dim");
  broken([](AttentionParams& p) { p.kv.page_size = 0; }, "page_size 0");
  broken([](AttentionParams& p) { p.kv.num_kv_heads = 0; }, "num_kv_heads 0");
  broken([](AttentionParams& p) { p.kv.head_dim = kMaxHeadDim + 1; }, "head_dim is 1025, at most 1024");
  broken([](AttentionParams& p) { p.kv.keys = nullptr; }, "attention: kv.keys is null");
  broken([](AttentionParams& p) { p.kv.values = nullptr; }, "attention: kv.values is null");
  broken([](AttentionParams& p) { p.sequences.query_start = nullptr; }, "attention: query_start is null");
  broken([](AttentionParams& p) { p.sequences.context_len = nullptr; }, "attention: context_len is null");
  broken([](AttentionParams& p) { p.sequences.page_table = nullptr; }, "attention: page_table is null");
  broken([](AttentionParams& p) { p.sequences.num_sequences = 0; }, "2 tokens, but no sequences");
  broken([](AttentionParams& p) { p.sequences.page_table_stride = 0; }, "page_table_stride is 0");
  AttentionParams empty = good;
  empty.q.rows = empty.y.rows = 0;
  empty.sequences = {};
  attention(empty, stream);
  stream.synchronize();
}

// On the CPU a plan is nothing, but what is wrong with a step is said all the same.
TEST(Attention, PlansOnlyWhatItCouldAttend) {
  const Sequences cache({2, 16, 4, DType::float32}, {{5, 1}, {3, 1}});
  ThreadPool pool(1);
  Stream stream(pool);
  const AttentionPlanParams good{.kv = cache.kv(), .sequences = cache.view(), .num_tokens = 2, .num_heads = 4};
  plan_attention(good, stream);
  const auto broken = [&](auto change, const std::string& part) {
    AttentionPlanParams params = good;
    change(params);
    expect_invalid([&] { plan_attention(params, stream); }, part);
  };
  broken([](AttentionPlanParams& p) { p.num_heads = 3; }, "num_heads 3 is not a multiple of num_kv_heads 2");
  broken([](AttentionPlanParams& p) { p.window = -1; }, "window is -1, expected 0 for none");
  broken([](AttentionPlanParams& p) { p.value_dim = -1; }, "value_dim is -1, expected 0 to head_dim");
  broken([](AttentionPlanParams& p) { p.kv.head_dim = kMaxHeadDim + 1; }, "head_dim is 1025, at most 1024");
  broken([](AttentionPlanParams& p) { p.sequences.context_len = nullptr; }, "attention: context_len is null");
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
