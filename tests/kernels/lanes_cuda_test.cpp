// Operators on lanes of few SMs: their grids shrink, blocks go on to what others would have taken, and no bit changes.
// Enough rows for several rounds on the smallest lane. attention_cuda_test.cpp and the tests of linear/ have their own.
#include "kernels/attention/copy_pages.h"
#include "kernels/attention/kv_write.h"
#include "kernels/attention/rope.h"
#include "kernels/attention/rope_kv_write.h"
#include "kernels/cuda_operands.h"
#include "kernels/linear/linear.h"
#include "kernels/rows/embedding.h"
#include "kernels/rows/gather_rows.h"
#include "kernels/rows/rmsnorm.h"
#include "kernels/rows/swiglu.h"
#include "kernels/sampling/argmax.h"
#include "kernels/sampling/take_tokens.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

using LanesOnGpu = OnGpu;

using Bits = std::vector<std::uint32_t>;

// `run`, with operands that are made anew, gives on every lane what it gives on the whole device.
template <class F>
void expect_same_on_every_lane(F run) {
  const auto on_lane = [&](int num_sms) {
    Stream stream(kGpu);
    return run(Lane(stream, num_sms));
  };
  const int all = num_sms_of(kGpu);
  const auto expected = on_lane(all);
  for (const int num_sms : {1, 2, 20, all - 1}) ASSERT_EQ(on_lane(num_sms), expected) << num_sms << " SMs";
}

// Packs and, where rows are not aligned, elements.
constexpr GpuRows::Placement kPacked{}, kUneven{.gap = 3};

TEST_F(LanesOnGpu, ALaneIsOfOneSmToAllOfThem) {
  Stream stream(kGpu);
  const int all = num_sms_of(kGpu);
  EXPECT_EQ(Lane(stream).num_sms, all);
  EXPECT_EQ(Lane(stream, 5).num_other_sms(), all - 5);
  for (const int wrong : {-1, 0, all + 1})
    expect_invalid([&] { Lane(stream, wrong); }, fmt::format("lane: {} SMs on cuda:0, expected 1 to {}", wrong, all));
}

TEST_F(LanesOnGpu, RmsNormKeepsItsBits) {
  for (const GpuRows::Placement placement : {kPacked, kUneven})
    for (const int hidden : {128, 4096})
      expect_same_on_every_lane([&](const Lane& lane) {
        const GpuRows x(Rows::random(700, hidden, 1), DType::bfloat16, placement),
            residual(Rows::random(700, hidden, 2), DType::float32, placement), y(700, hidden, DType::bfloat16);
        const GpuArray<float> weight(random_floats(static_cast<std::size_t>(hidden), 3));
        rmsnorm({.x = x, .weight = weight.data(), .residual = residual, .y = y, .eps = 1e-5f}, lane);
        lane.stream.synchronize();
        return std::pair(bits(y.rows()), bits(residual.rows()));
      });
}

TEST_F(LanesOnGpu, EmbeddingKeepsItsBits) {
  for (const GpuRows::Placement placement : {kPacked, kUneven})
    expect_same_on_every_lane([&](const Lane& lane) {
      const GpuRows rows(Rows::random(8, 4096, 1), DType::bfloat16), y(700, 4096, DType::float32, placement);
      Weight table;
      table.blocks[0] = {Tensor(rows).data, 8};
      table.out_features = 8;
      table.in_features = 4096;
      table.dtype = DType::bfloat16;
      std::vector<std::int32_t> tokens(700);
      for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int32_t>(i * 5 % 8);
      const GpuArray<std::int32_t> tokens_there(tokens);
      embedding({.table = table, .tokens = tokens_there.data(), .y = y}, lane);
      lane.stream.synchronize();
      return bits(y.rows());
    });
}

TEST_F(LanesOnGpu, GatherRowsKeepsItsBits) {
  expect_same_on_every_lane([&](const Lane& lane) {
    const GpuRows x(Rows::random(40, 4096, 1), DType::bfloat16), y(300, 4096, DType::bfloat16);
    std::vector<std::int32_t> rows(300);
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::int32_t>(i * 7 % 40);
    const GpuArray<std::int32_t> rows_there(rows);
    gather_rows({.x = x, .rows = rows_there.data(), .y = y}, lane);
    lane.stream.synchronize();
    return bits(y.rows());
  });
}

TEST_F(LanesOnGpu, SwigluKeepsItsBits) {
  for (const GpuRows::Placement placement : {kPacked, kUneven})
    for (const std::int64_t rows : {1, 300})
      expect_same_on_every_lane([&](const Lane& lane) {
        const GpuRows gate_up(Rows::random(rows, 2 * 14336, 1), DType::bfloat16, placement),
            y(rows, 14336, DType::bfloat16, placement);
        swiglu({.gate_up = gate_up, .y = y}, lane);
        lane.stream.synchronize();
        return bits(y.rows());
      });
}

TEST_F(LanesOnGpu, LinearOfUnalignedOperandsKeepsItsBits) {
  expect_same_on_every_lane([&](const Lane& lane) {
    const GpuRows x(Rows::random(40, 100, 1), DType::float32, kUneven), w(Rows::random(700, 100, 2), DType::bfloat16),
        y(40, 700, DType::float32, kUneven);
    Weight weight;
    weight.blocks[0] = {Tensor(w).data, 700};
    weight.out_features = 700;
    weight.in_features = 100;
    weight.dtype = DType::bfloat16;
    Buffer workspace(linear_workspace_bytes(kGpu), kGpu);
    linear({.x = x, .weight = weight, .y = y}, lane.with({workspace.data(), workspace.size_bytes()}));
    lane.stream.synchronize();
    return bits(y.rows());
  });
}

// Of queries and keys that lie side by side, as a model has them; the cache where one is written.
struct Heads {
  static constexpr int kHeads = 8, kKvHeads = 2, kHeadDim = 128, kPage = 16;
  static constexpr std::int64_t kQuery = kHeads * kHeadDim, kKey = kKvHeads * kHeadDim;

  explicit Heads(const std::vector<TestSequence>& shape, GpuRows::Placement placement)
      : cache({kKvHeads, kHeadDim, kPage, DType::bfloat16}, shape),
        qkv(Rows::random(cache.num_tokens(), kQuery + 2 * kKey, 1), DType::bfloat16, placement),
        host(cache.view()),
        count(static_cast<std::size_t>(host.num_sequences)),
        query_start(std::span(host.query_start, count + 1)),
        context_len(std::span(host.context_len, count)),
        page_table(std::span(host.page_table, count * static_cast<std::size_t>(host.page_table_stride))),
        positions(positions_of(shape)),
        inv_freq(random_floats(kHeadDim / 2, 5)),
        keys(bytes_of(cache.keys())),
        values(bytes_of(cache.values())) {
    kv = cache.kv();
    kv.keys = keys.data();
    kv.values = values.data();
  }

  Tensor q() const { return Tensor(qkv).column_slice(0, kQuery); }
  Tensor k() const { return Tensor(qkv).column_slice(kQuery, kKey); }
  Tensor v() const { return Tensor(qkv).column_slice(kQuery + kKey, kKey); }
  PagedSequences sequences() const {
    return {query_start.data(), context_len.data(), page_table.data(), host.num_sequences, host.page_table_stride};
  }

  static std::vector<std::int32_t> positions_of(const std::vector<TestSequence>& shape) {
    std::vector<std::int32_t> positions;
    for (const TestSequence& s : shape)
      for (int i = s.context_len - s.num_new_tokens; i < s.context_len; ++i) positions.push_back(i);
    return positions;
  }
  static std::vector<std::byte> bytes_of(const Elements& elements) {
    std::vector<std::byte> bytes(elements.count() * 2);
    std::memcpy(bytes.data(), elements.data(), bytes.size());
    return bytes;
  }

  Sequences cache;
  GpuRows qkv;
  PagedSequences host;
  std::size_t count;
  GpuArray<std::int32_t> query_start, context_len, page_table, positions;
  GpuArray<float> inv_freq;
  GpuArray<std::byte> keys, values;
  PagedKv kv;
};

// Few tokens, whose heads are spread over blocks, and so many that a block takes all heads of a token.
const std::vector<TestSequence> kFewTokens{{150, 1}, {120, 90}}, kManyTokens{{600, 600}, {150, 1}, {80, 80}};

TEST_F(LanesOnGpu, RopeKeepsItsBits) {
  for (const GpuRows::Placement placement : {kPacked, kUneven})
    for (const auto* shape : {&kFewTokens, &kManyTokens})
      expect_same_on_every_lane([&](const Lane& lane) {
        const Heads heads(*shape, placement);
        rope({.q = heads.q(),
              .k = heads.k(),
              .positions = heads.positions.data(),
              .inv_freq = heads.inv_freq.data(),
              .head_dim = Heads::kHeadDim},
             lane);
        lane.stream.synchronize();
        return bits(heads.qkv.rows());
      });
}

TEST_F(LanesOnGpu, KvWriteKeepsItsBytes) {
  for (const GpuRows::Placement placement : {kPacked, kUneven})
    for (const auto* shape : {&kFewTokens, &kManyTokens})
      expect_same_on_every_lane([&](const Lane& lane) {
        const Heads heads(*shape, placement);
        kv_write({heads.k(), heads.v(), heads.kv, heads.sequences()}, lane);
        lane.stream.synchronize();
        return std::pair(heads.keys.values(), heads.values.values());
      });
}

TEST_F(LanesOnGpu, RopeKvWriteKeepsItsBytes) {
  for (const auto* shape : {&kFewTokens, &kManyTokens})
    for (const OlderKeys older_keys : {OlderKeys::in_flight, OlderKeys::in_place})
      expect_same_on_every_lane([&](const Lane& lane) {
        const Heads heads(*shape, kPacked);
        rope_kv_write({.q = heads.q(),
                       .k = heads.k(),
                       .v = heads.v(),
                       .positions = heads.positions.data(),
                       .inv_freq = heads.inv_freq.data(),
                       .kv = heads.kv,
                       .sequences = heads.sequences(),
                       .older_keys = older_keys},
                      lane);
        lane.stream.synchronize();
        const Rows after = heads.qkv.rows();
        Bits queries;
        for (std::int64_t t = 0; t < after.rows(); ++t)
          for (std::int64_t i = 0; i < Heads::kQuery; ++i)
            queries.push_back(std::bit_cast<std::uint32_t>(after.row(t)[i]));
        return std::tuple(queries, heads.keys.values(), heads.values.values());
      });
}

TEST_F(LanesOnGpu, CopyPagesKeepsItsBytes) {
  constexpr std::size_t kPageBytes = 100'000, kPages = 9;
  constexpr int kHalves = 6;
  std::vector<std::byte> before(kPageBytes * kPages * kHalves);
  for (std::size_t i = 0; i < before.size(); ++i) before[i] = static_cast<std::byte>(i * i / 7);
  for (const std::size_t misalignment : {0, 1})
    expect_same_on_every_lane([&](const Lane& lane) {
      GpuArray<std::byte> pages(before, misalignment);
      CopyPagesParams params{
          .data = pages.data(), .num_halves = kHalves, .num_pages = kPages, .page_bytes = kPageBytes};
      for (const PageMove move : {PageMove{0, 5}, {5, 6}, {1, 5}, {6, 1}})
        params.moves[static_cast<std::size_t>(params.num_moves++)] = move;
      copy_pages(params, lane);
      lane.stream.synchronize();
      return pages.values();
    });
}

TEST_F(LanesOnGpu, ArgmaxGivesTheSameTokens) {
  for (const std::int64_t vocab_size : {31, 8193, 128256})
    expect_same_on_every_lane([&](const Lane& lane) {
      Rows rows = Rows::random(40, vocab_size, 1);
      for (std::int64_t r = 0; r < 40; r += 3)
        for (std::int64_t i = r; i < vocab_size; i += 1 + vocab_size / 17) rows.row(r)[i] = 50;  // ties
      rows.row(7)[vocab_size / 2] = kPoison;
      const GpuRows logits(rows, DType::float32);
      GpuArray<std::int32_t> tokens(std::vector<std::int32_t>(40, 99));
      argmax({.logits = logits, .tokens = tokens.data()}, lane);
      lane.stream.synchronize();
      return tokens.values();
    });
}

TEST_F(LanesOnGpu, TakeTokensTakesAllOfThem) {
  constexpr std::int32_t kTokens = 9000;  // more than a lane of one SM has threads
  expect_same_on_every_lane([&](const Lane& lane) {
    std::vector<std::int32_t> tokens(kTokens), chosen(100);
    for (std::int32_t i = 0; i < 100; ++i) chosen[static_cast<std::size_t>(i)] = 500 + i;
    for (std::int32_t i = 0; i < kTokens; ++i) tokens[static_cast<std::size_t>(i)] = i % 3 == 0 ? i : ~(i % 100);
    GpuArray<std::int32_t> array(tokens);
    const GpuArray<std::int32_t> there(chosen);
    take_tokens({.tokens = array.data(), .chosen = there.data(), .num_tokens = kTokens, .num_chosen = 100}, lane);
    lane.stream.synchronize();
    return array.values();
  });
}

}  // namespace
}  // namespace heddle
