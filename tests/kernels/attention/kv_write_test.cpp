#include "kernels/attention/kv_write.h"

#include <bit>
#include <cstring>

#include "kernels/operands.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

std::vector<std::byte> bytes_of(const Elements& elements, DType dtype) {
  std::vector<std::byte> bytes(elements.count() * size_of(dtype));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

TEST(KvWrite, WritesRoundedRowsIntoTheirSlotsAndNothingElse) {
  const std::vector<TestSequence> shape = {{15, 1}, {16, 16}, {4, 0}, {17, 2}, {1, 1}, {40, 33}};
  for (const DType dtype : kDTypes) {
    for (const int page_size : {1, 3, 16, 64}) {
      for (const int threads : {1, 5}) {
        SCOPED_TRACE(fmt::format("{}, pages of {}, {} threads", name_of(dtype), page_size, threads));
        constexpr int kKvHeads = 3, kHeadDim = 7;
        const Sequences cache({kKvHeads, kHeadDim, page_size, dtype}, shape);
        const std::int64_t tokens = cache.num_tokens();
        // One fused tensor, of which k and v are columns.
        const Rows fused = Rows::random(tokens, 2 * kKvHeads * kHeadDim, 1, 100, 5);
        const Tensor k = Tensor(fused).column_slice(0, kKvHeads * kHeadDim);
        const Tensor v = Tensor(fused).column_slice(kKvHeads * kHeadDim, kKvHeads * kHeadDim);

        std::vector<std::byte> keys = bytes_of(cache.keys(), dtype), values = bytes_of(cache.values(), dtype);
        std::int64_t token = 0;
        for (int s = 0; s < static_cast<int>(shape.size()); ++s) {
          const TestSequence& sequence = shape[static_cast<std::size_t>(s)];
          for (int position = sequence.context_len - sequence.num_new_tokens; position < sequence.context_len;
               ++position, ++token) {
            for (int head = 0; head < kKvHeads; ++head) {
              const std::size_t at = cache.element(s, position, head) * size_of(dtype);
              const float* row = fused.row(token) + head * kHeadDim;
              convert(row, DType::float32, keys.data() + at, dtype, kHeadDim);
              convert(row + kKvHeads * kHeadDim, DType::float32, values.data() + at, dtype, kHeadDim);
            }
          }
        }
        on_cpu(threads, [&](Stream& stream) { kv_write({k, v, cache.kv(), cache.view()}, stream); });
        EXPECT_EQ(bytes_of(cache.keys(), dtype), keys);
        EXPECT_EQ(bytes_of(cache.values(), dtype), values);
      }
    }
  }
}

// In pages of which the ranks take turns: all that each writes, and where.
TEST(KvWrite, OfDividedPositionsEachIsWrittenByItsOwnerAlone) {
  constexpr int kPage = 4, kDim = 6, kRanks = 3;
  const std::vector<TestSequence> shape = {{2, 2}, {50, 47}, {13, 1}};
  int written = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    const Sequences cache({1, kDim, kPage, DType::float32}, shape);
    PagedKv kv = cache.kv();
    kv.shard = {rank, kRanks};
    const Rows k = Rows::random(cache.num_tokens(), kDim, 1), v = Rows::random(cache.num_tokens(), kDim, 2);
    std::vector<std::byte> keys = bytes_of(cache.keys(), DType::float32);
    std::int64_t token = 0;
    for (int s = 0; s < static_cast<int>(shape.size()); ++s) {
      const TestSequence& sequence = shape[static_cast<std::size_t>(s)];
      for (int p = sequence.context_len - sequence.num_new_tokens; p < sequence.context_len; ++p, ++token) {
        const int round = p / kPage / kRanks, turn = p / kPage % kRanks;
        if ((round % 2 == 0 ? turn : kRanks - 1 - turn) != rank) continue;
        const int place = round * kPage + p % kPage;
        std::memcpy(keys.data() + cache.element(s, place, 0) * sizeof(float), k.row(token), kDim * sizeof(float));
        ++written;
      }
    }
    on_cpu(2, [&](Stream& stream) { kv_write({k, v, kv, cache.view()}, stream); });
    EXPECT_EQ(bytes_of(cache.keys(), DType::float32), keys) << rank;
  }
  EXPECT_EQ(written, 50);
}

TEST(KvWrite, FindsTheSequenceOfEveryPiece) {
  // Wide rows, so that pieces are a few tokens and begin within and between sequences, empty ones among them.
  const std::vector<TestSequence> shape = {{3, 0}, {30, 30}, {2, 0}, {2, 0}, {9, 9}, {5, 1}, {1, 0}};
  const Sequences cache({64, 128, 16, DType::float32}, shape);
  const Rows k = Rows::random(40, 64 * 128, 1), v = Rows::random(40, 64 * 128, 2);
  on_cpu(2, [&](Stream& stream) { kv_write({k, v, cache.kv(), cache.view()}, stream); });
  const auto* keys = static_cast<const float*>(cache.keys().data());
  const auto* values = static_cast<const float*>(cache.values().data());
  std::int64_t token = 0;
  for (const int s : {1, 4, 5}) {
    const TestSequence& sequence = shape[static_cast<std::size_t>(s)];
    for (int p = sequence.context_len - sequence.num_new_tokens; p < sequence.context_len; ++p, ++token) {
      EXPECT_EQ(keys[cache.element(s, p, 63)], k.row(token)[63 * 128]) << s << " " << p;
      EXPECT_EQ(values[cache.element(s, p, 0)], v.row(token)[0]) << s << " " << p;
    }
  }
}

TEST(KvWrite, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Sequences cache({2, 8, 16, DType::float16}, {{3, 2}});
  const Rows k = Rows::random(2, 16, 1), v = Rows::random(2, 16, 2);
  const KvWriteParams good{k, v, cache.kv(), cache.view()};
  const auto broken = [&](auto change, const std::string& part) {
    KvWriteParams params = good;
    change(params);
    expect_invalid([&] { kv_write(params, stream); }, part);
  };
  kv_write(good, stream);
  broken([](KvWriteParams& p) { p.kv.head_dim = 9; }, "kv_write: k is [2, 16], expected [2, 18]");
  broken([](KvWriteParams& p) { p.kv.head_dim = 0; }, "head_dim 0");
  broken([](KvWriteParams& p) { p.v.rows = 3; }, "kv_write: v is [3, 16], expected [2, 16]");
  broken([](KvWriteParams& p) { p.v.data = nullptr; }, "kv_write: v is null");
  broken([](KvWriteParams& p) { p.kv.keys = nullptr; }, "kv_write: kv.keys is null");
  broken([](KvWriteParams& p) { p.sequences.page_table = nullptr; }, "kv_write: page_table is null");
  broken([](KvWriteParams& p) { p.sequences.num_sequences = -1; }, "num_sequences -1");
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
