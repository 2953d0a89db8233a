// Attention on a GPU against float64; skipped, saying so, where there is none.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "base/buffer.h"
#include "base/cuda_runtime.h"
#include "base/pinned_buffer.h"
#include "device/wait_record.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/attention_decode_sm90.h"
#include "kernels/attention/attention_sm90.h"
#include "kernels/operands.h"
#include "kernels/sequences.h"
#include "kernels/sm_holder.h"

namespace heddle {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};

struct GpuCase {
  int num_heads, num_kv_heads, head_dim, page_size;
  std::vector<TestSequence> sequences;
  int window = 0;
  float query_scale = 1;
  int num_sms = 0;  // 0: all
};

// Rows of any dtype, NaN between them and before anything is written.
struct GpuRows {
  GpuRows(std::int64_t num_rows, std::int64_t num_columns, std::int64_t gap, DType of_elements)
      : dtype(of_elements),
        rows(num_rows),
        columns(num_columns),
        stride(num_columns + gap),
        values(static_cast<std::size_t>(num_rows * stride), kPoison) {}
  void upload() {
    std::vector<std::byte> bytes(values.size() * size_of(dtype));
    convert(values.data(), DType::float32, bytes.data(), dtype, values.size());
    memory = Buffer(std::max<std::size_t>(bytes.size(), 16), kGpu);
    cuda::copy(memory.data(), bytes.data(), bytes.size(), nullptr);
  }
  std::vector<std::byte> download(Stream& stream) const {
    std::vector<std::byte> bytes(values.size() * size_of(dtype));
    cuda::copy(bytes.data(), memory.data(), bytes.size(), stream.native());
    stream.synchronize();
    return bytes;
  }
  Tensor tensor() { return {memory.data(), rows, columns, stride, dtype}; }

  DType dtype;
  std::int64_t rows, columns, stride;
  std::vector<float> values;
  Buffer memory;
};

Buffer on_gpu(const void* data, std::size_t size_bytes) {
  Buffer memory(std::max<std::size_t>(size_bytes, 16), kGpu);
  cuda::copy(memory.data(), data, size_bytes, nullptr);
  return memory;
}

// A cache and its page tables on the GPU.
struct GpuSequences {
  explicit GpuSequences(const Sequences& sequences) : view(sequences.view()), kv(sequences.kv()) {
    const auto pages = sequences.keys().count() * size_of(kv.dtype);
    const auto count = static_cast<std::size_t>(view.num_sequences);
    keys = on_gpu(kv.keys, pages);
    values = on_gpu(kv.values, pages);
    query_start = on_gpu(view.query_start, 4 * (count + 1));
    context_len = on_gpu(view.context_len, 4 * count);
    page_table = on_gpu(view.page_table, 4 * count * static_cast<std::size_t>(view.page_table_stride));
    kv.keys = keys.data();
    kv.values = values.data();
    view.query_start = reinterpret_cast<const std::int32_t*>(query_start.data());
    view.context_len = reinterpret_cast<const std::int32_t*>(context_len.data());
    view.page_table = reinterpret_cast<const std::int32_t*>(page_table.data());
  }

  PagedSequences view;
  PagedKv kv;
  Buffer keys, values, query_start, context_len, page_table;
};

Buffer zeroed(std::size_t size_bytes) {
  const std::vector<std::byte> zeros(size_bytes);
  return on_gpu(zeros.data(), size_bytes);
}

// What no plan has written.
Buffer poisoned(std::size_t size_bytes) {
  const std::vector<std::byte> ones(size_bytes, std::byte{0xff});
  return on_gpu(ones.data(), size_bytes);
}

AttentionPlanParams plan_of(const AttentionParams& params, Buffer& plan) {
  return {.kv = params.kv,
          .sequences = params.sequences,
          .num_tokens = params.q.rows,
          .num_heads = params.num_heads,
          .window = params.window,
          .older_keys = params.older_keys,
          .plan = plan.data(),
          .plan_bytes = plan.size_bytes()};
}

struct Expected {
  double value, bound;
};

// y in float64, with a bound on what float32 sums, weights rounded to the cache's dtype and exp2's approximation lose.
// `query_error`: the relative error of q's elements when they are multiplied.
std::vector<Expected> attention_in_float64(const float* q, const std::vector<float>& keys,
                                           const std::vector<float>& values, int head_dim, double scale, int first,
                                           int position, double query_error, DType cache, DType y) {
  std::vector<double> scores;
  double largest = -std::numeric_limits<double>::infinity(), score_error = 0;
  for (int j = first; j <= position; ++j) {
    double dot = 0, magnitude = 0;
    for (int d = 0; d < head_dim; ++d) {
      const double product = static_cast<double>(q[d]) * keys[static_cast<std::size_t>(j * head_dim + d)];
      dot += product;
      magnitude += std::fabs(product);
    }
    scores.push_back(dot * scale);
    largest = std::max(largest, scores.back());
    // Tensor cores add with a unit of the last place twice that of float32, in any order.
    score_error = std::max(score_error, (2.0 * (head_dim + 8) * kUnit + query_error) * magnitude * scale);
  }
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  const double weight_error = cache == DType::float32 ? 0 : unit_roundoff(cache);
  const double growth = 2 * std::expm1(2 * score_error) + weight_error + (4.0 * (position - first + 1) + 64) * kUnit;
  // float16 has no weights below 2^-24, so rounds to that.
  const double lost = cache == DType::float16 ? 0x1p-24 : 0;
  std::vector<Expected> result;
  for (int d = 0; d < head_dim; ++d) {
    double value = 0, magnitude = 0, total = 0;
    for (int j = first; j <= position; ++j) {
      const double v = values[static_cast<std::size_t>(j * head_dim + d)];
      value += scores[static_cast<std::size_t>(j - first)] * v;
      magnitude += scores[static_cast<std::size_t>(j - first)] * std::fabs(v);
      total += std::fabs(v);
    }
    const double bound = magnitude / sum * growth + lost * total / sum;
    const double rounding = y == DType::float32 ? kUnit : unit_roundoff(y);
    result.push_back({value / sum, bound + rounding * (std::fabs(value / sum) + bound) + 0x1p-24});
  }
  return result;
}

class AttentionOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) GTEST_SKIP() << "there is no GPU here";
  }

  // What is computed for the case, compared and run again.
  static void check(const GpuCase& c, DType cache, DType q_dtype, DType y_dtype, bool rounded_queries = true) {
    SCOPED_TRACE(fmt::format(
        "cache {}, q {}, y {}, {}/{} heads of {}, pages of {}, window {}, {} sequences, the first "
        "of {} tokens, {} new",
        name_of(cache), name_of(q_dtype), name_of(y_dtype), c.num_heads, c.num_kv_heads, c.head_dim, c.page_size,
        c.window, c.sequences.size(), c.sequences[0].context_len, c.sequences[0].num_new_tokens));
    Sequences sequences({c.num_kv_heads, c.head_dim, c.page_size, cache}, c.sequences);
    sequences.fill(c.sequences);
    const std::int64_t columns = std::int64_t{c.num_heads} * c.head_dim;
    std::vector<std::vector<float>> keys, values;
    for (int s = 0; s < static_cast<int>(c.sequences.size()); ++s) {
      for (int head = 0; head < c.num_kv_heads; ++head) {
        keys.push_back(sequences.keys_of(s, head));
        values.push_back(sequences.values_of(s, head));
      }
      const TestSequence& sequence = c.sequences[static_cast<std::size_t>(s)];
      const int before = sequence.context_len - sequence.num_new_tokens;
      sequences.forget_before(s, c.window == 0 ? 0 : std::max(0, before - c.window + 1));
    }
    const int y_gap = c.num_kv_heads % 2 == 0 ? 8 : 12;  // rows of y are aligned to 16 bytes in the half of all cases
    GpuRows q(sequences.num_tokens(), columns, 8, q_dtype), y(sequences.num_tokens(), columns, y_gap, y_dtype);
    const std::vector<float> random = random_floats(static_cast<std::size_t>(q.rows * columns), 11, c.query_scale);
    for (std::int64_t row = 0; row < q.rows; ++row)
      for (std::int64_t i = 0; i < columns; ++i) {
        float& value = q.values[static_cast<std::size_t>(row * q.stride + i)];
        value = random[static_cast<std::size_t>(row * columns + i)];
        for (const DType dtype : {rounded_queries ? cache : q_dtype, q_dtype}) {
          float narrow = 0;
          convert(&value, DType::float32, &narrow, dtype, 1);
          convert(&narrow, dtype, &value, DType::float32, 1);
        }
      }
    q.upload();
    y.upload();

    GpuSequences on_device(sequences);
    const double scale = 1 / std::sqrt(c.head_dim);
    Buffer scratch = zeroed(attention_scratch_bytes(sequences.num_tokens(), 8, c.num_heads, c.head_dim));
    const std::size_t plan_bytes = attention_plan_bytes(static_cast<int>(c.sequences.size()), c.num_kv_heads);
    Buffer plan = poisoned(plan_bytes + 256);
    AttentionParams params{.q = q.tensor(),
                           .y = y.tensor(),
                           .kv = on_device.kv,
                           .sequences = on_device.view,
                           .num_heads = c.num_heads,
                           .scale = static_cast<float>(scale),
                           .window = c.window,
                           .scratch = scratch.data(),
                           .plan = plan.data()};
    Stream stream(kGpu);
    const Lane lane = c.num_sms == 0 ? Lane(stream) : Lane(stream, std::min(c.num_sms, num_sms_of(kGpu)));
    plan_attention(plan_of(params, plan), lane);
    attention(params, lane);
    const std::vector<std::byte> once = y.download(stream);
    for (int again = 0; again < 4; ++again) {
      params.older_keys = again < 2 ? OlderKeys::in_flight : OlderKeys::in_place;
      attention(params, lane);
      ASSERT_EQ(y.download(stream), once);
    }
    std::vector<std::byte> behind(256);
    cuda::copy(behind.data(), plan.data() + plan_bytes, behind.size(), stream.native());
    stream.synchronize();
    ASSERT_TRUE(std::all_of(behind.begin(), behind.end(), [](std::byte byte) { return byte == std::byte{0xff}; }));
    // Parts are there when they are no zeros: each launch must leave zeros for the next.
    std::vector<std::byte> parts(attention_decode_scratch_bytes(c.head_dim));
    cuda::copy(parts.data(), scratch.data(), parts.size(), stream.native());
    stream.synchronize();
    ASSERT_TRUE(std::all_of(parts.begin(), parts.end(), [](std::byte byte) { return byte == std::byte{}; }));

    std::vector<float> result(y.values.size());
    convert(once.data(), y_dtype, result.data(), DType::float32, result.size());
    std::int64_t token = 0;
    for (int s = 0; s < static_cast<int>(c.sequences.size()); ++s) {
      const TestSequence& sequence = c.sequences[static_cast<std::size_t>(s)];
      for (int j = 0; j < sequence.num_new_tokens; ++j, ++token) {
        const int position = sequence.context_len - sequence.num_new_tokens + j;
        const int first = c.window == 0 ? 0 : std::max(0, position - c.window + 1);
        // Of long prompts the edges of tiles, and some between.
        if (sequence.num_new_tokens > 300 && j % 64 != 0 && j % 64 != 63 && j % 41 != 0) continue;
        for (int head = 0; head < c.num_heads; ++head) {
          const auto view = static_cast<std::size_t>(s * c.num_kv_heads + head / (c.num_heads / c.num_kv_heads));
          const std::vector<Expected> expected = attention_in_float64(
              q.values.data() + token * q.stride + head * c.head_dim, keys[view], values[view], c.head_dim, scale,
              first, position, rounded_queries || cache == DType::float32 ? 0 : unit_roundoff(cache), cache, y_dtype);
          for (int d = 0; d < c.head_dim; ++d)
            ASSERT_NEAR(result[static_cast<std::size_t>(token * y.stride + head * c.head_dim + d)],
                        expected[static_cast<std::size_t>(d)].value, expected[static_cast<std::size_t>(d)].bound)
                << "sequence " << s << " position " << position << " head " << head << " element " << d;
        }
      }
      for (std::int64_t t = 0; t < y.rows; ++t)
        for (std::int64_t i = columns; i < y.stride; ++i)
          ASSERT_TRUE(std::isnan(result[static_cast<std::size_t>(t * y.stride + i)])) << "between rows";
    }
  }

  static void check_all(const std::vector<GpuCase>& cases) {
    int turn = 0;
    for (const GpuCase& c : cases) {
      for (const DType cache : {DType::bfloat16, DType::float16}) {
        check(c, cache, kDTypes[turn % 3], kDTypes[turn / 3 % 3]);
        ++turn;
        if (HasFatalFailure()) return;
      }
    }
  }
};

TEST_F(AttentionOnGpu, DecodeMatchesFloat64) {
  check_all({
      {4, 4, 128, 16, {{1, 1}}},  // one key: y is its value
      {4, 4, 128, 16, {{2, 1}, {15, 1}, {16, 1}, {17, 1}, {63, 1}, {64, 1}, {65, 1}, {129, 1}}},  // page and tile edges
      {32, 8, 128, 32, {{700, 1}, {3, 1}, {0, 0}, {64, 1}, {1500, 1}}},  // one without new tokens between others
      {40, 40, 128, 16, {{300, 1}}},
      {40, 1, 128, 64, {{5000, 1}}},         // three tiles of rows, every block has a part of each
      {6, 2, 64, 16, {{100, 1}, {200, 1}}},  // a group of 3
      {5, 1, 64, 32, {{1000, 1}}},
      {14, 2, 64, 128, {{900, 1}, {128, 1}, {129, 1}}},  // a group of 7; two boxes a page
      {8, 8, 96, 16, {{77, 1}, {400, 1}}},
      {4, 1, 96, 32, {{1300, 1}}},
      {4, 2, 256, 16, {{90, 1}, {333, 1}}},
      {8, 1, 256, 64, {{2000, 1}}},
      {16, 2, 128, 256, {{600, 1}}},
      {8, 2, 128, 64, {{20000, 1}}},                          // as many tiles as clusters take
      {8, 2, 128, 64, {{40000, 1}}},                          // and more
      {2, 1, 128, 16, {{300, 2}, {5, 5}, {64, 3}, {66, 4}}},  // a few new tokens each
      {8, 2, 128, 32, {{1000, 16}, {200, 1}, {16, 16}}},      // four tiles of rows
  });
}

TEST_F(AttentionOnGpu, DecodeKeepsToTheWindow) {
  check_all({
      {8, 2, 128, 16, {{300, 1}, {64, 1}, {20, 1}}, 64},
      {8, 2, 128, 16, {{300, 1}, {65, 1}}, 1},  // its own key alone
      {8, 2, 64, 32, {{1000, 1}, {70, 4}}, 65},
      {4, 4, 128, 64, {{1500, 8}}, 500},
      {4, 1, 128, 16, {{300, 1}}, std::numeric_limits<int>::max()},
      {4, 1, 256, 16, {{700, 3}}, 200},
  });
}

TEST_F(AttentionOnGpu, OneKeyMayHaveAllTheWeight) {
  check_all({{8, 2, 128, 16, {{900, 1}}, 0, 1e4f}, {8, 2, 128, 16, {{900, 1}}, 0, 1e-5f}});
  check_all({{8, 2, 128, 16, {{400, 200}}, 0, 1e4f}, {8, 2, 128, 16, {{400, 200}}, 0, 40.0f}});
}

// Values of keys that nobody sees are NaN here and cleared before both warpgroups multiply them: in a work's last tile
// (contexts that are no multiple of 128), in its first one (windows), and in a tile that is both. Run it under
// compute-sanitizer's racecheck.
TEST_F(AttentionOnGpu, PrefillClearsValuesThatNobodySees) {
  check_all({
      {4, 1, 128, 16, {{130, 130}}},
      {4, 1, 128, 16, {{330, 100}}, 70},
      {4, 1, 128, 16, {{100, 100}}, 40},
      {4, 1, 256, 16, {{150, 90}}, 50},
      {2, 2, 64, 32, {{385, 129}}, 100},
  });
}

TEST_F(AttentionOnGpu, PrefillMatchesFloat64) {
  check_all({
      {4, 4, 128, 16, {{65, 65}, {128, 128}, {129, 129}, {1, 1}, {200, 130}}},  // around a block of 128 rows
      {8, 2, 128, 32, {{300, 300}, {700, 1}, {150, 60}, {0, 0}, {40, 17}}},     // long and short ones in a step
      {40, 40, 64, 16, {{150, 150}}},
      {14, 2, 64, 64, {{500, 90}}},  // a group of 7: rows of a token lie in two blocks
      {5, 1, 128, 128, {{333, 100}}},
      {40, 1, 128, 16, {{70, 70}, {400, 3}}},
      {6, 2, 96, 16, {{260, 140}, {129, 129}}},
      {4, 2, 256, 32, {{200, 200}, {321, 65}}},
      {8, 1, 256, 16, {{90, 90}}},
      {2, 1, 128, 256, {{1700, 1700}}},
      {4, 1, 128, 16, {{4000, 64}}},  // a chunk that comes late
  });
}

// Too few rows for the SMs: a work tile's keys are split, and partial results merged.
TEST_F(AttentionOnGpu, PrefillSplitsTheKeysOfFewRows) {
  check_all({
      {28, 4, 128, 64, {{8208, 16}}},
      {14, 2, 64, 64, {{2600, 90}}},  // the first split of a late tile sees all rows
      {8, 2, 96, 16, {{3000, 40}, {20, 20}, {0, 0}, {5000, 1}, {700, 70}}},  // split, whole, and for the decode kernel
      {4, 1, 256, 32, {{1500, 70}}},
      {8, 1, 128, 32, {{4100, 9}, {4100, 30}}, 1000},  // windows
      {8, 2, 128, 16, {{2000, 20}}, 300},              // shorter than two splits
      {28, 4, 128, 64, {{4000, 16}}, 0, 1, 40},        // on part of the SMs
  });
  std::vector<TestSequence> sequences(70, {.context_len = 600, .num_new_tokens = 1});  // more than lanes before it
  sequences.push_back({.context_len = 2500, .num_new_tokens = 30});
  check_all({{8, 1, 64, 32, sequences}});
}

TEST_F(AttentionOnGpu, PrefillKeepsToTheWindow) {
  check_all({
      {8, 2, 128, 16, {{300, 300}, {500, 70}, {64, 1}}, 64},
      {8, 2, 128, 16, {{200, 200}}, 1},
      {4, 2, 64, 32, {{900, 400}}, 129},
      {4, 4, 128, 64, {{1500, 300}}, 500},
      {4, 1, 96, 16, {{700, 200}}, std::numeric_limits<int>::max()},
      {4, 1, 256, 16, {{700, 200}}, 200},
  });
}

// More sequences than a warp has lanes, of all lengths.
TEST_F(AttentionOnGpu, SharesOutManySequences) {
  std::vector<TestSequence> sequences;
  for (int i = 0; i < 75; ++i)
    sequences.push_back({.context_len = i % 5 == 0 ? 0 : 1 + i * i * 37 % 500,
                         .num_new_tokens = i % 5 == 0 ? 0 : 1,
                         .seed = static_cast<std::uint32_t>(i)});
  check_all({{8, 2, 64, 16, sequences}, {4, 4, 128, 32, sequences}});
  for (std::size_t i = 3; i < sequences.size(); i += 7)  // and chunks between them
    sequences[i].num_new_tokens = std::min(sequences[i].context_len, 100);
  check_all({{8, 2, 64, 16, sequences}, {4, 2, 128, 16, sequences}});
}

// Runs of many tiles a block: items of several blocks, and blocks with parts of several items.
TEST_F(AttentionOnGpu, DecodesLongSequences) {
  std::vector<TestSequence> many;
  for (int i = 0; i < 34; ++i)
    many.push_back({.context_len = 2040 + 11 * i, .num_new_tokens = 1, .seed = static_cast<std::uint32_t>(i)});
  check_all({
      {4, 4, 64, 64, {{68000, 1}}},
      {8, 4, 64, 64, {{40000, 1}, {30, 1}, {0, 0}, {29000, 2}, {500, 1}}},
      {4, 4, 64, 32, many},
  });
}

// More than two work tiles per block, so that blocks take the rest from the counter.
TEST_F(AttentionOnGpu, PrefillTakesManyWorkTiles) {
  std::vector<TestSequence> sequences;
  for (int i = 0; i < 24; ++i)
    sequences.push_back({.context_len = 70 + i * 7 % 40, .num_new_tokens = 70, .seed = static_cast<std::uint32_t>(i)});
  check_all({{16, 16, 64, 16, sequences}, {12, 12, 128, 16, sequences}, {12, 12, 256, 32, sequences, 50}});
}

// Dtypes, head sizes, pages and alignments that the fast kernels do not take.
TEST_F(AttentionOnGpu, TakesAnyShape) {
  check_all({
      {6, 2, 7, 3, {{9, 9}, {10, 1}, {4, 0}, {11, 2}}},
      {2, 1, 300, 16, {{100, 40}}},
      {3, 1, 1024, 7, {{70, 10}}},
      {4, 2, 128, 5, {{63, 1}, {66, 20}}},
      {4, 2, 128, 48, {{200, 1}}, 50},
      {1, 1, 1, 1, {{1, 1}}},
  });
  for (const DType q : kDTypes) {
    check({4, 2, 128, 16, {{100, 1}, {90, 90}}}, DType::float32, q, DType::float32);
    check({4, 2, 64, 16, {{100, 100}}, 33}, DType::float32, DType::float32, q);
  }
}

TEST_F(AttentionOnGpu, TakesQueriesThatTheCacheWouldRound) {
  for (const DType cache : {DType::bfloat16, DType::float16}) {
    check({8, 2, 128, 16, {{300, 1}, {100, 1}}}, cache, DType::float32, DType::float32, false);
    check({8, 2, 64, 16, {{300, 200}, {50, 4}}}, cache, DType::float32, DType::bfloat16, false);
  }
}

// Grids of few blocks, without clusters and with smaller ones than the device could have.
TEST_F(AttentionOnGpu, TakesAsManySmsAsItIsGranted) {
  for (const int num_sms : {1, 2, 20, 66, 125, 131, 132, 1000})
    check_all({
        {.num_heads = 32,
         .num_kv_heads = 8,
         .head_dim = 128,
         .page_size = 32,
         .sequences = {{1500, 1}},
         .num_sms = num_sms},
        {.num_heads = 8,
         .num_kv_heads = 2,
         .head_dim = 128,
         .page_size = 64,
         .sequences = {{9000, 1}, {30, 1}, {700, 3}},
         .num_sms = num_sms},
        {.num_heads = 8,
         .num_kv_heads = 2,
         .head_dim = 64,
         .page_size = 16,
         .sequences = {{300, 300}, {150, 60}, {70, 1}},
         .num_sms = num_sms},
    });
}

// Blocks of decode attention wait for each other: all of them must find room on the SMs that are left, or none ends.
TEST_F(AttentionOnGpu, EndsWhileOtherKernelsHoldTheSmsItIsNotGranted) {
  constexpr int kHeads = 8, kKvHeads = 2, kHeadDim = 128;
  const int sms = num_sms_of(kGpu);
  const std::vector<std::vector<TestSequence>> steps{
      {{3000, 1, 1}}, {{9000, 1, 1}, {30, 1, 2}, {700, 3, 3}}, {{300, 300, 1}, {150, 60, 2}, {70, 1, 3}}};
  for (const std::vector<TestSequence>& shape : steps) {
    Sequences sequences({kKvHeads, kHeadDim, 16, DType::bfloat16}, shape);
    sequences.fill(shape);
    GpuSequences on_device(sequences);
    GpuRows q(sequences.num_tokens(), kHeads * kHeadDim, 0, DType::bfloat16),
        y(sequences.num_tokens(), kHeads * kHeadDim, 0, DType::float32);
    q.values = random_floats(q.values.size(), 5);
    q.upload();
    y.upload();
    Buffer scratch = zeroed(attention_scratch_bytes(sequences.num_tokens(), 3, kHeads, kHeadDim));
    Buffer plan = poisoned(attention_plan_bytes(3, kKvHeads));
    PinnedBuffer memory(sizeof(WaitRecord));
    WaitRecord* const record = std::construct_at(reinterpret_cast<WaitRecord*>(memory.data()));
    Stream stream(kGpu);
    stream.set_wait_record(record);
    for (const int granted : {sms, sms - 1, sms - 7, sms / 2, 3}) {
      const AttentionParams params{.q = q.tensor(),
                                   .y = y.tensor(),
                                   .kv = on_device.kv,
                                   .sequences = on_device.view,
                                   .num_heads = kHeads,
                                   .scale = 0.1f,
                                   .scratch = scratch.data(),
                                   .plan = plan.data()};
      const auto attended = [&] {
        const Lane lane(stream, granted);
        plan_attention(plan_of(params, plan), lane);
        attention(params, lane);
        return y.download(stream);
      };
      const std::vector<std::byte> alone = attended();
      const auto native = static_cast<cudaStream_t>(stream.native());
      ASSERT_EQ(cudaMemsetAsync(y.memory.data(), 0xff, y.memory.size_bytes(), native), cudaSuccess);
      const SmHolder holder(sms - granted);
      EXPECT_EQ(attended(), alone) << granted << " SMs";
      ASSERT_EQ(record->state, WaitRecord::empty) << granted << " SMs";
    }
  }
}

// As many heads as a real model's: blocks of a small lane have runs over several items, and those of a larger one share
// an item evenly.
TEST_F(AttentionOnGpu, DecodeOfManyHeadsGivesTheSameBitsAgainOnAnyNumberOfSms) {
  constexpr int kHeads = 32, kKvHeads = 8, kHeadDim = 128;
  const std::vector<TestSequence> shape{{301, 1, 1}, {2, 1, 2}, {63, 1, 3}, {126, 1, 4}, {18, 1, 5}};
  Sequences sequences({kKvHeads, kHeadDim, 16, DType::bfloat16}, shape);
  sequences.fill(shape);
  GpuSequences on_device(sequences);
  GpuRows q(sequences.num_tokens(), kHeads * kHeadDim, 0, DType::bfloat16),
      y(sequences.num_tokens(), kHeads * kHeadDim, 0, DType::bfloat16);
  q.values = random_floats(q.values.size(), 5);
  q.upload();
  y.upload();
  Buffer scratch = zeroed(attention_scratch_bytes(sequences.num_tokens(), 5, kHeads, kHeadDim));
  Buffer plan = poisoned(attention_plan_bytes(5, kKvHeads));
  Stream stream(kGpu);
  const AttentionParams params{.q = q.tensor(),
                               .y = y.tensor(),
                               .kv = on_device.kv,
                               .sequences = on_device.view,
                               .num_heads = kHeads,
                               .scale = 0.1f,
                               .scratch = scratch.data(),
                               .plan = plan.data()};
  for (const int num_sms : {8, 16, 66, 100, num_sms_of(kGpu)}) {
    const auto attended = [&] {
      const Lane lane(stream, num_sms);
      plan_attention(plan_of(params, plan), lane);
      attention(params, lane);
      return y.download(stream);
    };
    const std::vector<std::byte> expected = attended();
    for (int run = 0; run < 200; ++run) ASSERT_EQ(attended(), expected) << num_sms << " SMs, run " << run;
  }
}

// Two items of 47 splits each; the last block of the plan is not launched, so that the block before it, which merges
// half of the second item's rows, waits for a split that never comes. Takes the 10 s of the deadline.
TEST_F(AttentionOnGpu, ASplitThatNeverComesEndsTheKernelAndIsReported) {
  constexpr int kHeads = 8, kKvHeads = 1, kHeadDim = 128, kPlanned = 94;
  const std::vector<TestSequence> shape{{9000, 1, 1}, {9000, 1, 2}};
  Sequences sequences({kKvHeads, kHeadDim, 64, DType::bfloat16}, shape);
  sequences.fill(shape);
  GpuSequences on_device(sequences);
  GpuRows q(2, kHeads * kHeadDim, 0, DType::bfloat16), y(2, kHeads * kHeadDim, 0, DType::float32);
  q.values = random_floats(q.values.size(), 5);
  q.upload();
  y.upload();
  Buffer scratch = zeroed(attention_scratch_bytes(2, 2, kHeads, kHeadDim));
  Buffer plan = poisoned(attention_plan_bytes(2, kKvHeads));
  PinnedBuffer memory(sizeof(WaitRecord));
  const auto* record = std::construct_at(reinterpret_cast<WaitRecord*>(memory.data()));
  Stream stream(kGpu);
  stream.set_wait_record(const_cast<WaitRecord*>(record));
  AttentionParams params{.q = q.tensor(),
                         .y = y.tensor(),
                         .kv = on_device.kv,
                         .sequences = on_device.view,
                         .num_heads = kHeads,
                         .scale = 0.1f,
                         .scratch = scratch.data(),
                         .plan = plan.data()};
  const Lane planned(stream, kPlanned);
  plan_attention(plan_of(params, plan), planned);
  attention(params, planned);
  const std::vector<std::byte> whole = y.download(stream);
  ASSERT_EQ(record->state, WaitRecord::empty);
  attention(params, {stream, kPlanned - 1});
  EXPECT_NE(y.download(stream), whole);
  EXPECT_EQ(record->state, WaitRecord::complete);
  EXPECT_EQ(record->tag.view(), "attn. decode");
  EXPECT_EQ(record->from, kPlanned - 2);
  // The process has its GPU still, and with scratch that is zero again the right numbers.
  Buffer fresh = zeroed(scratch.size_bytes());
  params.scratch = fresh.data();
  attention(params, planned);
  EXPECT_EQ(y.download(stream), whole);
}

// The kernel of y rounds weights to 16 bits; the simple one, which leaves the sums of more heads, does not.
double difference_from_y(int heads_per_kv_head) {
  return heads_per_kv_head <= kMostDecodeRows ? 1e-6 : 2e-3;
}

// Units of attention over sequences with one new token each, whose last one loses all its keys before.
void expect_sums_of_y(const GpuCase& c, DType cache) {
  SCOPED_TRACE(fmt::format("cache {}, {}/{} heads of {}, {} sequences, the first of {} tokens", name_of(cache),
                           c.num_heads, c.num_kv_heads, c.head_dim, c.sequences.size(), c.sequences[0].context_len));
  Sequences sequences({c.num_kv_heads, c.head_dim, c.page_size, cache}, c.sequences);
  sequences.fill(c.sequences);
  GpuSequences on_device(sequences);
  const std::int64_t columns = std::int64_t{c.num_heads} * c.head_dim;
  GpuRows q(sequences.num_tokens(), columns, 0, DType::float32), y(sequences.num_tokens(), columns, 0, DType::float32);
  q.values = random_floats(q.values.size(), 11);
  for (float& value : q.values) value = to_float(to_bfloat16(value));
  q.upload();
  y.upload();
  const int group = c.num_heads / c.num_kv_heads, last = static_cast<int>(c.sequences.size()) - 1;
  std::vector<std::int32_t> context_len;
  for (const TestSequence& sequence : c.sequences) context_len.push_back(sequence.context_len);
  context_len.back() = 0;
  const Buffer emptied = on_gpu(context_len.data(), 4 * context_len.size());
  Buffer scratch = zeroed(attention_scratch_bytes(sequences.num_tokens(), 8, c.num_heads, c.head_dim));
  Buffer plan = poisoned(attention_plan_bytes(last + 1, c.num_kv_heads));
  const double scale = 1 / std::sqrt(c.head_dim);
  AttentionParams params{.q = q.tensor(),
                         .y = y.tensor(),
                         .kv = on_device.kv,
                         .sequences = on_device.view,
                         .num_heads = c.num_heads,
                         .scale = static_cast<float>(scale),
                         .scratch = scratch.data(),
                         .plan = plan.data()};
  Stream stream(kGpu);
  plan_attention(plan_of(params, plan), stream);
  attention(params, stream);
  std::vector<float> averages(y.values.size());
  const std::vector<std::byte> bytes = y.download(stream);
  std::memcpy(averages.data(), bytes.data(), bytes.size());

  const std::size_t of_unit = AttentionSums::bytes(group, c.head_dim) / sizeof(float);
  const auto sums = [&] {
    const std::vector<float> nothing(of_unit * static_cast<std::size_t>(q.rows * c.num_kv_heads), kPoison);
    Buffer units = on_gpu(nothing.data(), nothing.size() * sizeof(float));
    params.sums = {.first = units.data(), .bytes_apart = of_unit * sizeof(float)};
    plan_attention(plan_of(params, plan), stream);
    attention(params, stream);
    std::vector<float> found(nothing.size());
    cuda::copy(found.data(), units.data(), found.size() * sizeof(float), stream.native());
    stream.synchronize();
    return found;
  };
  const std::vector<float> all = sums();
  ASSERT_EQ(sums(), all);
  EXPECT_EQ(y.download(stream), bytes);
  params.sequences.context_len = reinterpret_cast<const std::int32_t*>(emptied.data());
  const std::vector<float> without_last = sums();
  for (int s = 0; s <= last; ++s)
    for (int head = 0; head < c.num_heads; ++head) {
      const float* const unit = all.data() + static_cast<std::size_t>(s * c.num_kv_heads + head / group) * of_unit;
      const int of_group = head % group;
      const auto m = static_cast<double>(unit[group * c.head_dim + of_group]),
                 l = static_cast<double>(unit[group * (c.head_dim + 1) + of_group]);
      const std::vector<float> keys = sequences.keys_of(s, head / group);
      double largest = -std::numeric_limits<double>::infinity(), exact = 0;
      for (int pass = 0; pass < 2; ++pass)
        for (int j = 0; j < c.sequences[static_cast<std::size_t>(s)].context_len; ++j) {
          double score = 0;
          for (int d = 0; d < c.head_dim; ++d)
            score +=
                static_cast<double>(q.values[static_cast<std::size_t>((s * c.num_heads + head) * c.head_dim + d)]) *
                static_cast<double>(keys[static_cast<std::size_t>(j * c.head_dim + d)]);
          if (pass == 0)
            largest = std::max(largest, score * scale);
          else
            exact += std::exp(score * scale - largest);
        }
      ASSERT_NEAR(m, largest, 1e-5) << "sequence " << s << " head " << head;
      ASSERT_NEAR(l / exact, 1, 1e-4) << "sequence " << s << " head " << head;
      for (int d = 0; d < c.head_dim; ++d) {
        const auto average =
            static_cast<double>(averages[static_cast<std::size_t>((s * c.num_heads + head) * c.head_dim + d)]);
        ASSERT_NEAR(static_cast<double>(unit[of_group * c.head_dim + d]) / l, average, difference_from_y(group))
            << "sequence " << s << " head " << head << " element " << d;
      }
    }
  for (std::size_t i = 0; i < of_unit * static_cast<std::size_t>(c.num_kv_heads); ++i) {
    const float value = without_last[without_last.size() - 1 - i];
    const std::size_t in_unit = of_unit - 1 - i % of_unit, first_m = static_cast<std::size_t>(group * c.head_dim);
    const bool is_m = in_unit >= first_m && in_unit < first_m + static_cast<std::size_t>(group);
    ASSERT_EQ(value, is_m ? -std::numeric_limits<float>::infinity() : 0) << "without keys, " << in_unit;
  }
}

TEST_F(AttentionOnGpu, LeavesTheSumsOfYAlsoWhereASequenceHasNoKeys) {
  for (const GpuCase& c :
       std::vector<GpuCase>{{4, 4, 128, 16, {{65, 1}}},  // units of 8 bytes more than a multiple of 16
                            {32, 8, 128, 32, {{700, 1}, {3, 1}, {64, 1}, {1500, 1}}},
                            {8, 1, 128, 64, {{20000, 1}}},  // merged in clusters, and in global memory
                            {8, 1, 128, 64, {{60000, 1}}},
                            {24, 2, 64, 16, {{333, 1}, {90, 1}}},  // two work items of a unit
                            {4, 2, 256, 16, {{90, 1}}},
                            {70, 1, 64, 16, {{90, 1}, {20, 1}}},  // for the simple kernel
                            {6, 3, 72, 16, {{90, 1}, {20, 1}}}}) {
    for (const DType cache : {DType::bfloat16, DType::float16}) {
      expect_sums_of_y(c, cache);
      if (HasFatalFailure()) return;
    }
  }
}

Buffer encoded_on_gpu(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> bytes(values.size() * size_of(dtype));
  convert(values.data(), DType::float32, bytes.data(), dtype, values.size());
  return on_gpu(bytes.data(), bytes.size());
}

// A rank's part of a cache, in pages of its own; NaN in slots without a key.
struct ShardOnGpu {
  ShardOnGpu(const Sequences& whole, KvShard shard) : kv(whole.kv()), stride(whole.view().page_table_stride) {
    kv.shard = shard;
    const int num_pages = whole.view().num_sequences * stride;
    std::vector<std::int32_t> table(static_cast<std::size_t>(num_pages));
    for (int i = 0; i < num_pages; ++i) table[static_cast<std::size_t>(i)] = num_pages - 1 - i;
    std::vector<float> of_keys(kv.offset(num_pages, 0, 0), kPoison), of_values = of_keys;
    for (int s = 0; s < whole.view().num_sequences; ++s)
      for (int head = 0; head < kv.num_kv_heads; ++head) {
        const std::vector<float> all_keys = whole.keys_of(s, head), all_values = whole.values_of(s, head);
        for (int position = 0; position < whole.view().context_len[s]; ++position) {
          if (!kv.has(position)) continue;
          const int place = kv.place(position);
          const std::int32_t page = table[static_cast<std::size_t>(s * stride + place / kv.page_size)];
          const auto to = static_cast<std::ptrdiff_t>(kv.offset(page, head, place % kv.page_size));
          const std::ptrdiff_t from = std::ptrdiff_t{position} * kv.head_dim;
          std::copy_n(all_keys.begin() + from, kv.head_dim, of_keys.begin() + to);
          std::copy_n(all_values.begin() + from, kv.head_dim, of_values.begin() + to);
        }
      }
    keys = encoded_on_gpu(of_keys, kv.dtype);
    values = encoded_on_gpu(of_values, kv.dtype);
    pages = on_gpu(table.data(), 4 * table.size());
    kv.keys = keys.data();
    kv.values = values.data();
  }

  PagedKv kv;
  int stride;
  Buffer keys, values, pages;
};

constexpr int kShards = 3;

// The sums of all rows over each shard of the cache, merged in float64, are attention over the whole of it.
void expect_shards_merge_to_float64(const GpuCase& c, DType cache) {
  SCOPED_TRACE(fmt::format("cache {}, {}/{} heads of {}, window {}, the first of {} tokens", name_of(cache),
                           c.num_heads, c.num_kv_heads, c.head_dim, c.window, c.sequences[0].context_len));
  Sequences sequences({c.num_kv_heads, c.head_dim, c.page_size, cache}, c.sequences);
  sequences.fill(c.sequences);
  GpuSequences on_device(sequences);
  const std::int64_t columns = std::int64_t{c.num_heads} * c.head_dim;
  GpuRows q(sequences.num_tokens(), columns, 0, DType::float32), y(sequences.num_tokens(), columns, 0, DType::float32);
  q.values = random_floats(q.values.size(), 11);
  for (float& value : q.values) value = to_float(to_bfloat16(value));
  q.upload();
  y.upload();
  const int group = c.num_heads / c.num_kv_heads;
  const std::size_t of_unit = AttentionSums::bytes(group, c.head_dim) / sizeof(float);
  const double scale = 1 / std::sqrt(c.head_dim);
  Buffer scratch = zeroed(attention_scratch_bytes(sequences.num_tokens(), 8, c.num_heads, c.head_dim));
  Stream stream(kGpu);
  std::vector<std::vector<float>> sums;
  for (int rank = 0; rank < kShards; ++rank) {
    const ShardOnGpu shard(sequences, {rank, kShards});
    Buffer plan = poisoned(attention_plan_bytes(on_device.view.num_sequences, c.num_kv_heads));
    const std::vector<float> nothing(of_unit * static_cast<std::size_t>(q.rows * c.num_kv_heads), kPoison);
    Buffer units = on_gpu(nothing.data(), nothing.size() * sizeof(float));
    AttentionParams params{.q = q.tensor(),
                           .y = y.tensor(),
                           .kv = shard.kv,
                           .sequences = on_device.view,
                           .num_heads = c.num_heads,
                           .scale = static_cast<float>(scale),
                           .window = c.window,
                           .scratch = scratch.data(),
                           .plan = plan.data(),
                           .sums = {.first = units.data(), .bytes_apart = of_unit * sizeof(float)}};
    params.sequences.page_table = reinterpret_cast<const std::int32_t*>(shard.pages.data());
    plan_attention(plan_of(params, plan), stream);
    if (on_device.view.max_query_len == 1)
      attention(params, stream);
    else
      attention_sums_of_rows_sm90(params, 0, stream);
    sums.emplace_back(nothing.size());
    cuda::copy(sums.back().data(), units.data(), nothing.size() * sizeof(float), stream.native());
    stream.synchronize();
  }
  const double rounding = cache == DType::bfloat16 ? 0x1p-8 : 0x1p-11;  // of weights, to the cache's dtype
  const PagedSequences host = sequences.view();
  for (int s = 0; s < host.num_sequences; ++s)
    for (int head = 0; head < c.num_heads; ++head) {
      const std::vector<float> keys = sequences.keys_of(s, head / group), values = sequences.values_of(s, head / group);
      for (int token = host.query_start[s]; token < host.query_start[s + 1]; ++token) {
        const int position = host.context_len[s] - (host.query_start[s + 1] - token);
        const int first = c.window > 0 ? std::max(0, position - c.window + 1) : 0;
        std::vector<double> weights;
        double most = -std::numeric_limits<double>::infinity(), total = 0, l = 0;
        for (int j = first; j <= position; ++j) {
          double score = 0;
          for (int d = 0; d < c.head_dim; ++d)
            score +=
                static_cast<double>(q.values[static_cast<std::size_t>((token * c.num_heads + head) * c.head_dim + d)]) *
                static_cast<double>(keys[static_cast<std::size_t>(j * c.head_dim + d)]);
          weights.push_back(score * scale);
          most = std::max(most, weights.back());
        }
        for (double& weight : weights) total += weight = std::exp(weight - most);
        std::vector<double> merged(static_cast<std::size_t>(c.head_dim));
        const auto of_group = static_cast<std::size_t>(head % group), dim = merged.size();
        for (const std::vector<float>& of_rank : sums) {
          const float* const unit =
              of_rank.data() + static_cast<std::size_t>(token * c.num_kv_heads + head / group) * of_unit;
          const auto its_m = static_cast<double>(unit[static_cast<std::size_t>(group) * dim + of_group]);
          const auto its_l = static_cast<double>(unit[static_cast<std::size_t>(group) * (dim + 1) + of_group]);
          if (its_l == 0) continue;  // no keys there
          l += its_l * std::exp(its_m - most);
          for (std::size_t d = 0; d < dim; ++d)
            merged[d] += static_cast<double>(unit[of_group * dim + d]) * std::exp(its_m - most);
        }
        ASSERT_NEAR(l / total, 1, 1e-4) << "row " << token << " head " << head;
        for (std::size_t d = 0; d < dim; ++d) {
          double exact = 0, magnitude = 0;
          for (std::size_t j = 0; j < weights.size(); ++j) {
            const auto value = static_cast<double>(values[(static_cast<std::size_t>(first) + j) * dim + d]);
            exact += weights[j] * value / total;
            magnitude += weights[j] * std::abs(value) / total;
          }
          ASSERT_NEAR(merged[d] / l, exact, 2e-5 + rounding * magnitude)
              << "row " << token << " head " << head << ' ' << d;
        }
      }
    }
}

TEST_F(AttentionOnGpu, SumsOverEachShardOfACacheMergeToFloat64) {
  for (const GpuCase& c :
       std::vector<GpuCase>{{32, 8, 128, 16, {{700, 1}, {3, 1}, {64, 1}, {900, 1}}},  // some ranks have no key of some
                            {8, 1, 64, 32, {{333, 1}, {90, 1}}},
                            {6, 3, 72, 16, {{90, 1}, {20, 1}}},                // for the simple kernel
                            {8, 2, 128, 16, {{170, 1}, {90, 1}}, 40},          // likewise
                            {8, 2, 128, 16, {{170, 140}, {200, 33}, {5, 5}}},  // prompts
                            {8, 2, 128, 16, {{170, 100}, {40, 7}}, 40}}) {
    for (const DType cache : {DType::bfloat16, DType::float16}) {
      expect_shards_merge_to_float64(c, cache);
      if (HasFatalFailure()) return;
    }
  }
}

// A captured launch reads contexts when it is replayed.
TEST_F(AttentionOnGpu, CanBeReplayedWithOtherContexts) {
  constexpr int kHeads = 14, kKvHeads = 2, kHeadDim = 128, kContexts[] = {1, 700, 63, 2000};
  Sequences sequences({kKvHeads, kHeadDim, 16, DType::bfloat16}, {{2000, 1, 1}, {2000, 1, 2}});
  sequences.fill({{2000, 1, 1}, {2000, 1, 2}});
  GpuSequences on_device(sequences);
  GpuRows q(2, kHeads * kHeadDim, 0, DType::bfloat16), y(2, kHeads * kHeadDim, 0, DType::float32);
  q.values = random_floats(q.values.size(), 5);
  q.upload();
  y.upload();
  Buffer scratch = zeroed(attention_scratch_bytes(2, 2, kHeads, kHeadDim));
  Buffer plan = poisoned(attention_plan_bytes(2, kKvHeads));
  const AttentionParams params{q.tensor(), y.tensor(), on_device.kv,        on_device.view, kHeads,     0.1f,
                               0,          0,          OlderKeys::in_place, scratch.data(), plan.data()};
  Stream stream(kGpu);
  const auto native = static_cast<cudaStream_t>(stream.native());
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t replay = nullptr;
  ASSERT_EQ(cudaStreamBeginCapture(native, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  plan_attention(plan_of(params, plan), stream);
  attention(params, stream);
  attention(params, stream);
  ASSERT_EQ(cudaStreamEndCapture(native, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&replay, graph, 0), cudaSuccess);
  for (const int first : kContexts) {
    for (const int second : kContexts) {
      const std::int32_t contexts[] = {first, second};
      cuda::copy(on_device.context_len.data(), contexts, sizeof(contexts), stream.native());
      plan_attention(plan_of(params, plan), stream);
      attention(params, stream);
      const std::vector<std::byte> launched = y.download(stream);
      ASSERT_EQ(cudaMemsetAsync(y.memory.data(), 0xff, y.memory.size_bytes(), native), cudaSuccess);
      ASSERT_EQ(cudaGraphLaunch(replay, native), cudaSuccess);
      EXPECT_EQ(y.download(stream), launched) << first << ' ' << second;
    }
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
}

// Layers of two windows have a plan each; both are laid out before either is used.
TEST_F(AttentionOnGpu, PlansOfTwoWindowsStandSideBySide) {
  constexpr int kHeads = 8, kKvHeads = 2, kHeadDim = 64;
  const std::vector<TestSequence> shape{{900, 1, 1}, {70, 2, 2}};
  Sequences sequences({kKvHeads, kHeadDim, 16, DType::bfloat16}, shape);
  sequences.fill(shape);
  GpuSequences on_device(sequences);
  GpuRows q(sequences.num_tokens(), kHeads * kHeadDim, 0, DType::bfloat16),
      y(sequences.num_tokens(), kHeads * kHeadDim, 0, DType::float32);
  q.values = random_floats(q.values.size(), 5);
  q.upload();
  y.upload();
  Buffer scratch = zeroed(attention_scratch_bytes(sequences.num_tokens(), 2, kHeads, kHeadDim));
  Stream stream(kGpu);
  const auto with_window = [&](int window, Buffer& plan) {
    return AttentionParams{q.tensor(), y.tensor(), on_device.kv,        on_device.view, kHeads,     0.1f,
                           window,     0,          OlderKeys::in_place, scratch.data(), plan.data()};
  };
  Buffer plan_of_all = poisoned(attention_plan_bytes(2, kKvHeads)), plan_of_window = poisoned(plan_of_all.size_bytes());
  const AttentionParams all = with_window(0, plan_of_all), window = with_window(64, plan_of_window);
  const auto alone = [&](const AttentionParams& params, Buffer& plan) {
    plan_attention(plan_of(params, plan), stream);
    attention(params, stream);
    return y.download(stream);
  };
  const std::vector<std::byte> all_alone = alone(all, plan_of_all), window_alone = alone(window, plan_of_window);
  EXPECT_NE(all_alone, window_alone);
  plan_attention(plan_of(all, plan_of_all), stream);
  plan_attention(plan_of(window, plan_of_window), stream);
  for (int layer = 0; layer < 3; ++layer) {
    attention(all, stream);
    EXPECT_EQ(y.download(stream), all_alone);
    attention(window, stream);
    EXPECT_EQ(y.download(stream), window_alone);
  }
}

TEST_F(AttentionOnGpu, NamesTheBrokenPrecondition) {
  Sequences sequences({2, 64, 16, DType::bfloat16}, {{30, 2, 1}});
  GpuSequences on_device(sequences);
  GpuRows q(2, 4 * 64, 0, DType::bfloat16), y(2, 4 * 64, 0, DType::bfloat16);
  q.upload();
  y.upload();
  Buffer scratch = zeroed(attention_scratch_bytes(2, 1, 4, 64));
  Buffer plan = poisoned(attention_plan_bytes(1, 2));
  const AttentionParams good{q.tensor(), y.tensor(), on_device.kv,         on_device.view, 4,          0.1f,
                             0,          0,          OlderKeys::in_flight, scratch.data(), plan.data()};
  Stream stream(kGpu);
  plan_attention(plan_of(good, plan), stream);
  const auto broken = [&](auto change, const std::string& part) {
    AttentionParams params = good;
    change(params);
    expect_invalid([&] { attention(params, stream); }, part);
  };
  attention(good, stream);
  broken([](AttentionParams& p) { p.scratch = nullptr; }, "attention: scratch is null");
  broken([](AttentionParams& p) { p.plan = nullptr; }, "attention: plan is null");
  AttentionPlanParams unplaced = plan_of(good, plan);
  unplaced.plan = nullptr;
  expect_invalid([&] { plan_attention(unplaced, stream); }, "attention: plan is null");
  AttentionPlanParams short_of_room = plan_of(good, plan);
  short_of_room.plan_bytes = 64;
  expect_invalid([&] { plan_attention(short_of_room, stream); }, "attention: has a plan of 64 bytes and wants");
  broken([](AttentionParams& p) { p.sequences.max_query_len = 0; }, "max_query_len is 0, expected 1 to 2");
  broken([](AttentionParams& p) { p.sequences.max_query_len = 3; }, "max_query_len is 3, expected 1 to 2");
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
