// Expanded latent attention on a GPU against the CPU's.
#include <algorithm>
#include <cmath>
#include <thread>

#include "kernels/attention/expanded_attention.h"
#include "kernels/attention/gather_latents.h"
#include "kernels/cuda_operands.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

constexpr int kNope = 128, kRope = 64, kValue = 128;

struct ExpandedCase {
  int heads;
  int num_tokens;         // new ones
  int cached;             // before them
  int piece;              // positions that a call has, as a rule a multiple of 128; 0: all
  float query_scale = 8;  // scores have a deviation of 2.7; larger: all weight is on few keys
  int num_sms = 0;        // 0: all
};

std::ostream& operator<<(std::ostream& out, const ExpandedCase& c) {
  return out << c.heads << " heads, " << c.num_tokens << " tokens after " << c.cached << ", pieces of " << c.piece
             << ", queries times " << c.query_scale;
}

int threads_here() {
  return static_cast<int>(std::max(1u, std::min(16u, std::thread::hardware_concurrency())));
}

// Numbers of one sequence that both devices have.
struct ExpandedNumbers {
  ExpandedNumbers(const ExpandedCase& c, DType dtype)
      : context(c.cached + c.num_tokens),
        q(rounded(Rows::random(c.num_tokens, std::int64_t{c.heads} * (kNope + kRope), 1, c.query_scale), dtype)),
        keys_values(rounded(Rows::random(context, std::int64_t{c.heads} * (kNope + kValue), 2), dtype)),
        shared(rounded(Rows::random(context, kRope, 3), dtype)) {}

  int context;
  Rows q, keys_values, shared;
};

constexpr float kScoreScale = 0.0721688f;  // 1 / sqrt(192)

// A call for each piece.
void expand(const ExpandedCase& c, Tensor q, Tensor keys_values, Tensor shared, Tensor y, float* state,
            const Lane& lane) {
  const auto context = static_cast<int>(keys_values.rows);
  const int piece = c.piece == 0 ? context : c.piece;
  for (int first = 0; first < context; first += piece) {
    const int count = std::min(piece, context - first);
    expanded_attention(
        {.q = q,
         .keys_values = keys_values.row_slice(first, count),
         .shared_keys = shared.row_slice(first, count),
         .y = y,
         .sequences =
             ExpandedSequence{.num_tokens = c.num_tokens, .first_query = context - c.num_tokens, .num_keys = count},
         .num_heads = c.heads,
         .value_dim = kValue,
         .scale = kScoreScale,
         .first_key = first,
         .before = first == 0 ? nullptr : state,
         .after = first + count == context ? nullptr : state},
        lane);
  }
}

Rows expanded_on_cpu(const ExpandedCase& c, const ExpandedNumbers& of, const Rows& keys_values) {
  Rows y(c.num_tokens, std::int64_t{c.heads} * kValue);
  on_cpu(threads_here(), [&](Stream& stream) {
    ExpandedCase whole = c;
    whole.piece = 0;
    expand(whole, of.q, keys_values, of.shared, y, nullptr, stream);
    stream.synchronize();
  });
  return y;
}

// What rounding may change: weights to the dtype, the result, and sums of float32 in any order. `magnitude`: the same of
// the values' magnitudes.
float bound_of(float y, float magnitude, const ExpandedCase& c, DType dtype) {
  const auto unit = static_cast<float>(unit_roundoff(dtype));
  // A score sums 192 products; tensor cores add with twice the unit of float32.
  const float scores = 2 * (kNope + kRope + 8) * 0x1p-24f * c.query_scale * kScoreScale * (kNope + kRope) / 4;
  const float lost = dtype == DType::float16 ? 0x1p-25f * static_cast<float>(c.cached + c.num_tokens) : 0;
  const float without_y = magnitude * (1.05f * unit + 2 * scores + 0x1p-17f) + lost;
  return without_y + 1.05f * unit * (std::fabs(y) + without_y) + 1e-7f;
}

class ExpandedOnGpu : public OnGpu {
 protected:
  static void check(const ExpandedCase& c, DType dtype) {
    SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << c);
    const ExpandedNumbers of(c, dtype);
    const GpuRows q(of.q, dtype, {.gap = 8}), keys_values(of.keys_values, dtype, {.gap = 16}),
        shared(of.shared, dtype, {.gap = 512}), y(c.num_tokens, std::int64_t{c.heads} * kValue, dtype, {.gap = 8});
    GpuArray<float> state(std::vector<float>(expanded_state_floats(c.num_tokens, c.heads, kValue), kPoison));
    Stream stream(kGpu);
    const Lane lane = c.num_sms == 0 ? Lane(stream) : Lane(stream, c.num_sms);
    const auto run = [&] {
      expand(c, q, keys_values, shared, y, state.data(), lane);
      stream.synchronize();
      return y.rows();
    };
    const Rows got = run();
    ASSERT_EQ(bits(run()), bits(got)) << "the same calls again";
    ASSERT_TRUE(got.gaps_untouched());

    const Rows expected = expanded_on_cpu(c, of, of.keys_values);
    Rows magnitudes = of.keys_values;
    for (std::int64_t row = 0; row < magnitudes.rows(); ++row)
      for (std::int64_t i = 0; i < magnitudes.columns(); ++i)
        if (i % (kNope + kValue) >= kNope) magnitudes.row(row)[i] = std::fabs(magnitudes.row(row)[i]);
    const Rows magnitude = expanded_on_cpu(c, of, magnitudes);
    for (std::int64_t token = 0; token < c.num_tokens; ++token)
      for (std::int64_t i = 0; i < expected.columns(); ++i)
        ASSERT_NEAR(got.row(token)[i], expected.row(token)[i],
                    bound_of(expected.row(token)[i], magnitude.row(token)[i], c, dtype))
            << "token " << token << " head " << i / kValue << " element " << i % kValue;
  }

  static void check_all(const std::vector<ExpandedCase>& cases) {
    for (const ExpandedCase& c : cases)
      for (const DType dtype : {DType::bfloat16, DType::float16}) {
        check(c, dtype);
        if (HasFatalFailure()) return;
      }
  }
};

TEST_F(ExpandedOnGpu, OnePieceAgreesWithTheCpu) {
  check_all({
      {1, 1, 0, 0},      // one key: y is its value
      {3, 2, 0, 0},      //
      {2, 63, 0, 0},     // around the rows of a warpgroup
      {2, 65, 64, 0},    //
      {1, 127, 1, 0},    // around a work tile and a tile of keys
      {2, 129, 126, 0},  //
      {5, 171, 0, 0},
      {16, 300, 1000, 0},
      {1, 1, 700, 0},     // a single query, many keys
      {140, 200, 56, 0},  // more work tiles than SMs, so blocks take several
      {8, 1100, 0, 0},    // rings turn, and blocks take tiles from both ends
  });
}

TEST_F(ExpandedOnGpu, PiecesAgreeWithTheCpu) {
  check_all({
      {2, 171, 0, 128},    // queries that see nothing of the second piece
      {3, 200, 312, 256},  // the border of pieces before, and the context's end at, the new tokens
      {2, 256, 256, 256},  // the border at the first new token
      {2, 300, 470, 384},  // the border within them
      {16, 400, 1, 128},
      {1, 129, 5000, 1024},
  });
}

TEST_F(ExpandedOnGpu, LongChunksAgreeWithTheCpu) {
  check_all({{2, 5000, 0, 4096}, {1, 5000, 3200, 4096}, {2, 2048, 6144, 4096}});
}

TEST_F(ExpandedOnGpu, OneKeyMayHaveAllTheWeight) {
  check_all({{2, 200, 100, 128, 1e3f}, {2, 200, 100, 0, 1e-2f}});
}

TEST_F(ExpandedOnGpu, KeepsToItsLane) {
  check_all({{16, 500, 100, 256, 8, 20}, {3, 500, 0, 0, 8, 7}});
}

TEST_F(ExpandedOnGpu, NamesTheBrokenPrecondition) {
  const GpuRows q(171, 192, DType::bfloat16), keys_values(171, 256, DType::bfloat16), shared(171, 64, DType::bfloat16),
      y(171, 128, DType::bfloat16);
  const ExpandedAttentionParams good{.q = q,
                                     .keys_values = keys_values,
                                     .shared_keys = shared,
                                     .y = y,
                                     .sequences = ExpandedSequence{.num_tokens = 171, .num_keys = 171},
                                     .num_heads = 1,
                                     .value_dim = kValue,
                                     .scale = 1};
  const auto expect = [&](auto change, const char* message) {
    ExpandedAttentionParams params = good;
    change(params);
    Stream stream(kGpu);
    expect_invalid([&] { expanded_attention(params, stream); }, message);
  };
  expect([](auto& p) { p.value_dim = 64; }, "keys of 128 + 64 elements and values of 64, expected 128 + 64 and 128");
  expect([](auto& p) { p.q.dtype = DType::float32; }, "q is float32, expected bfloat16 or float16");
  expect([](auto& p) { p.y.dtype = DType::float16; }, "y is float16, q bfloat16");
  expect([](auto& p) { p.shared_keys.row_stride = 65; }, "shared_keys has rows that are not aligned to 16 bytes");
  expect([](auto& p) { p.scale = 0; }, "scale is 0, expected more than 0");
}

// Several sequences in one call, against a call for each: an item's sums are the same, whatever its neighbours are.
TEST_F(ExpandedOnGpu, SequencesOfOneCallHaveTheBitsOfTheirOwn) {
  constexpr int kHeads = 5;
  ExpandedSequences sequences;
  for (const auto& [tokens, context] :
       {std::pair(171, 171), {200, 456}, {1, 130}, {300, 300}, {0, 5}, {257, 384}, {64, 65}})
    sequences.add({.num_tokens = tokens, .first_query = context - tokens, .num_keys = context});
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const std::int64_t tokens = sequences.num_tokens(), keys = sequences.num_key_rows();
    const GpuRows q(Rows::random(tokens, kHeads * (kNope + kRope), 1, 8), dtype),
        keys_values(Rows::random(keys, kHeads * (kNope + kValue), 2), dtype),
        shared(Rows::random(keys, kRope, 3), dtype), together(tokens, kHeads * kValue, dtype, {.gap = 8}),
        alone(tokens, kHeads * kValue, dtype, {.gap = 8});
    const ExpandedAttentionParams params{.q = q,
                                         .keys_values = keys_values,
                                         .shared_keys = shared,
                                         .y = together,
                                         .sequences = sequences,
                                         .num_heads = kHeads,
                                         .value_dim = kValue,
                                         .scale = kScoreScale};
    on_gpu([&](Stream& stream) {
      expanded_attention(params, stream);
      for (int i = 0; i < sequences.count; ++i) {
        const ExpandedSequence& sequence = sequences[i];
        ExpandedAttentionParams one = params;
        one.q = params.q.row_slice(sequences.first_token(i), sequence.num_tokens);
        one.y = Tensor(alone).row_slice(sequences.first_token(i), sequence.num_tokens);
        one.keys_values = params.keys_values.row_slice(sequences.first_key_row(i), sequence.num_keys);
        one.shared_keys = params.shared_keys.row_slice(sequences.first_key_row(i), sequence.num_keys);
        one.sequences = sequence;
        expanded_attention(one, stream);
      }
    });
    EXPECT_EQ(bits(together.rows()), bits(alone.rows()));
  }
}

using GatherLatentsOnGpu = OnGpu;

TEST_F(GatherLatentsOnGpu, RowsBetweenSequencesAreZero) {
  const std::vector<TestSequence> shape = {{33, 1}, {300, 1}, {128, 1}, {130, 1}};
  for (const int width : {576, 50}) {
    Sequences cache({1, width, 16, DType::bfloat16}, shape);
    cache.fill(shape);
    const PagedSequences view = cache.view();
    ExpandedSequences sequences;
    for (const TestSequence& s : shape) sequences.add({.num_keys = s.context_len});
    const std::int64_t rows = sequences.num_key_rows();
    const GpuArray<std::byte> pages(
        std::span(static_cast<const std::byte*>(cache.keys().data()), cache.keys().count() * 2));
    const GpuArray<std::int32_t> table(
        std::span(view.page_table, shape.size() * static_cast<std::size_t>(view.page_table_stride)));
    const Rows expected(rows, width, 8);
    const GpuRows got(rows, width, DType::bfloat16, {.gap = 8});
    GatherLatentsParams params{.kv = cache.kv(),
                               .page_table = view.page_table,
                               .page_table_stride = view.page_table_stride,
                               .sequences = sequences,
                               .rows = expected};
    on_cpu(2, [&](Stream& stream) {
      gather_latents(params, stream);
      stream.synchronize();
    });
    params.kv.keys = const_cast<std::byte*>(pages.data());
    params.page_table = table.data();
    params.rows = got;
    on_gpu([&](Stream& stream) { gather_latents(params, stream); });
    EXPECT_EQ(bits(got.rows()), bits(expected));
    EXPECT_EQ(expected.row(33)[0], 0);
    EXPECT_EQ(expected.row(127)[width - 1], 0);
  }
}

TEST_F(GatherLatentsOnGpu, HasTheBitsOfTheCpu) {
  struct Case {
    int width, page_size, first, count;
    std::int64_t gap;
  };
  for (const Case& c :
       {Case{576, 16, 0, 300, 0}, Case{576, 32, 256, 44, 8}, Case{50, 5, 7, 93, 3}, Case{40, 16, 1, 0, 0}})
    for (const DType cached : kDTypes)
      for (const DType dtype : kDTypes) {
        SCOPED_TRACE(testing::Message() << c.width << " of " << name_of(cached) << " as " << name_of(dtype));
        const std::vector<TestSequence> shape = {{33, 1}, {300, 1}};
        Sequences cache({1, c.width, c.page_size, cached}, shape);
        cache.fill(shape);
        const PagedSequences sequences = cache.view();
        const PagedKv kv = cache.kv();
        const GpuArray<std::byte> pages(
            std::span(static_cast<const std::byte*>(cache.keys().data()), cache.keys().count() * size_of(cached)));
        const GpuArray<std::int32_t> table(
            std::span(sequences.pages(1), static_cast<std::size_t>(sequences.page_table_stride)));
        const GpuRows got(c.count, c.width, dtype, {.gap = c.gap});
        const Rows expected(c.count, c.width);
        GatherLatentsParams params{.kv = kv,
                                   .page_table = sequences.pages(1),
                                   .first = c.first,
                                   .sequences = ExpandedSequence{.num_keys = c.count},
                                   .rows = expected};
        on_cpu(1, [&](Stream& stream) {
          gather_latents(params, stream);
          stream.synchronize();
        });
        params.kv.keys = const_cast<std::byte*>(pages.data());
        params.page_table = table.data();
        params.rows = got;
        on_gpu([&](Stream& stream) { gather_latents(params, stream); });
        const Rows rows = got.rows();
        for (std::int64_t row = 0; row < c.count; ++row)
          for (std::int64_t i = 0; i < c.width; ++i)
            ASSERT_EQ(rows.row(row)[i], rounded(expected.row(row)[i], dtype)) << row << ", " << i;
        EXPECT_TRUE(rows.gaps_untouched());
      }
}

}  // namespace
}  // namespace heddle
