#include "kernels/attention/kv_write.h"
#include "kernels/attention/rope.h"
#include "kernels/attention/rope_kv_write.h"
#include "kernels/cuda_operands.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

using RopeKvWriteOnGpu = OnGpu;

struct GpuRopeKvWriteCase {
  int num_heads, num_kv_heads, head_dim, page_size;
  KvShard shard = {};
};

std::vector<std::byte> bytes_of_pages(const Elements& elements, DType dtype) {
  std::vector<std::byte> bytes(elements.count() * size_of(dtype));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

// q and the cache as the CPU leaves them, and nothing else: all other bytes of the cache are NaN before and after.
void expect_bits_of_cpu(const GpuRopeKvWriteCase& c, const std::vector<TestSequence>& shape, DType in, DType dtype,
                        GpuRows::Placement placement) {
  SCOPED_TRACE(fmt::format("{}/{} heads of {}, pages of {}, {} to {} gap {} misalignment {}", c.num_heads,
                           c.num_kv_heads, c.head_dim, c.page_size, name_of(in), name_of(dtype), placement.gap,
                           placement.misalignment));
  const std::int64_t heads = std::int64_t{c.num_heads} * c.head_dim,
                     kv_heads = std::int64_t{c.num_kv_heads} * c.head_dim;
  std::vector<std::int32_t> positions;
  for (const TestSequence& s : shape)
    for (int i = s.context_len - s.num_new_tokens; i < s.context_len; ++i) positions.push_back(i);
  std::vector<float> inv_freq;
  for (int i = 0; i < c.head_dim; i += 2)
    inv_freq.push_back(static_cast<float>(std::pow(500000.0, -double(i) / c.head_dim)));
  const Rows before = rounded(Rows::random(std::ssize(positions), heads + 2 * kv_heads, 1), in);
  for (const OlderKeys older_keys : {OlderKeys::in_flight, OlderKeys::in_place}) {
    const Sequences cache({c.num_kv_heads, c.head_dim, c.page_size, dtype}, shape);
    const PagedSequences host = cache.view();
    const auto count = static_cast<std::size_t>(host.num_sequences);
    const GpuRows there(before, in, placement);
    const GpuArray<std::int32_t> query_start(std::span(host.query_start, count + 1)),
        context_len(std::span(host.context_len, count)),
        page_table(std::span(host.page_table, count * static_cast<std::size_t>(host.page_table_stride))),
        positions_there(positions);
    const GpuArray<float> inv_freq_there(inv_freq);
    GpuArray<std::byte> keys(bytes_of_pages(cache.keys(), dtype)), values(bytes_of_pages(cache.values(), dtype));
    PagedKv kv = cache.kv(), kv_of_cpu = cache.kv();
    kv.shard = kv_of_cpu.shard = c.shard;
    kv.keys = keys.data();
    kv.values = values.data();
    const Tensor x = there;
    on_gpu([&](Stream& stream) {
      rope_kv_write({.q = x.column_slice(0, heads),
                     .k = x.column_slice(heads, kv_heads),
                     .v = x.column_slice(heads + kv_heads, kv_heads),
                     .positions = positions_there.data(),
                     .inv_freq = inv_freq_there.data(),
                     .scale = 1.25f,
                     .kv = kv,
                     .sequences = {query_start.data(), context_len.data(), page_table.data(), host.num_sequences,
                                   host.page_table_stride},
                     .older_keys = older_keys},
                    stream);
    });

    const Rows expected = before;
    on_cpu(1, [&](Stream& stream) {
      rope({.q = Tensor(expected).column_slice(0, heads),
            .k = Tensor(expected).column_slice(heads, kv_heads),
            .positions = positions.data(),
            .inv_freq = inv_freq.data(),
            .head_dim = c.head_dim,
            .scale = 1.25f},
           stream);
    });
    const Rows narrow = rounded(expected, in);
    on_cpu(1, [&](Stream& stream) {
      kv_write({Tensor(narrow).column_slice(heads, kv_heads), Tensor(narrow).column_slice(heads + kv_heads, kv_heads),
                kv_of_cpu, host},
               stream);
    });
    EXPECT_EQ(keys.values(), bytes_of_pages(cache.keys(), dtype));
    EXPECT_EQ(values.values(), bytes_of_pages(cache.values(), dtype));
    const Rows got = there.rows();
    for (std::int64_t t = 0; t < got.rows(); ++t)
      for (std::int64_t i = 0; i < heads; ++i) ASSERT_EQ(got.row(t)[i], narrow.row(t)[i]) << "token " << t;
    EXPECT_TRUE(got.gaps_untouched());
  }
}

TEST_F(RopeKvWriteOnGpu, GivesTheBitsOfTheCpu) {
  const std::vector<TestSequence> shape = {{15, 1}, {16, 16}, {4, 0}, {17, 2}, {1, 1}, {40, 33}, {3, 0}};
  for (const GpuRopeKvWriteCase c : {GpuRopeKvWriteCase{3, 3, 14, 3},
                                     {6, 2, 16, 16},
                                     {32, 8, 128, 64},
                                     {5, 1, 64, 48},
                                     {4, 4, 96, 16},
                                     {2, 1, 256, 32}})
    for (const DType in : kDTypes)
      for (const DType dtype : kDTypes)
        for (const GpuRows::Placement placement : kPlacements) expect_bits_of_cpu(c, shape, in, dtype, placement);
}

TEST_F(RopeKvWriteOnGpu, WritesOfDividedPositionsItsOwnAlone) {
  const std::vector<TestSequence> shape = {{15, 1}, {16, 16}, {17, 2}, {1, 1}, {150, 149}};
  for (int rank = 0; rank < 3; ++rank)
    for (const GpuRopeKvWriteCase c : {GpuRopeKvWriteCase{3, 3, 14, 3, {rank, 3}}, {32, 8, 128, 16, {rank, 3}}})
      for (const DType dtype : kDTypes) expect_bits_of_cpu(c, shape, dtype, dtype, {});
}

// So many that a block takes all heads of a token.
TEST_F(RopeKvWriteOnGpu, TakesLongPrompts) {
  expect_bits_of_cpu({40, 8, 128, 64}, {{300, 300}, {1, 1}}, DType::bfloat16, DType::bfloat16, {});
  expect_bits_of_cpu({6, 2, 96, 16}, {{400, 290}}, DType::float32, DType::float16, {});
}

}  // namespace
}  // namespace heddle
