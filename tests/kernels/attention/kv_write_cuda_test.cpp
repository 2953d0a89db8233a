#include "kernels/attention/kv_write.h"
#include "kernels/cuda_operands.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

using KvWriteOnGpu = OnGpu;

std::vector<std::byte> cache_bytes(const Elements& elements, DType dtype) {
  std::vector<std::byte> bytes(elements.count() * size_of(dtype));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

struct GpuAppendCase {
  int num_kv_heads, head_dim, page_size;
  KvShard shard = {};
};

// What the CPU writes, and nothing else: all other bytes of the cache are NaN before and after.
void expect_cpu_bytes(const GpuAppendCase& c, const std::vector<TestSequence>& shape, DType in, DType dtype,
                      GpuRows::Placement placement) {
  SCOPED_TRACE(fmt::format("{} heads of {}, pages of {}, {} to {} gap {} misalignment {}", c.num_kv_heads, c.head_dim,
                           c.page_size, name_of(in), name_of(dtype), placement.gap, placement.misalignment));
  const Sequences cache({c.num_kv_heads, c.head_dim, c.page_size, dtype}, shape);
  const std::int64_t tokens = cache.num_tokens(), columns = std::int64_t{c.num_kv_heads} * c.head_dim;
  const Rows fused = rounded(Rows::random(tokens, 2 * columns, 1, 100), in);
  const GpuRows fused_there(fused, in, placement);
  const PagedSequences host = cache.view();
  const auto count = static_cast<std::size_t>(host.num_sequences);
  const GpuArray<std::int32_t> query_start(std::span(host.query_start, count + 1)),
      context_len(std::span(host.context_len, count)),
      page_table(std::span(host.page_table, count * static_cast<std::size_t>(host.page_table_stride)));
  GpuArray<std::byte> keys(cache_bytes(cache.keys(), dtype)), values(cache_bytes(cache.values(), dtype));
  PagedKv kv = cache.kv(), kv_of_cpu = cache.kv();
  kv.shard = kv_of_cpu.shard = c.shard;
  kv.keys = keys.data();
  kv.values = values.data();
  const PagedSequences there{query_start.data(), context_len.data(), page_table.data(), host.num_sequences,
                             host.page_table_stride};
  const auto write = [&](Tensor x, const PagedKv& pages, const PagedSequences& sequences, Stream& stream) {
    kv_write({x.column_slice(0, columns), x.column_slice(columns, columns), pages, sequences}, stream);
  };
  on_gpu([&](Stream& stream) { write(fused_there, kv, there, stream); });
  on_cpu(1, [&](Stream& stream) { write(fused, kv_of_cpu, host, stream); });
  EXPECT_EQ(keys.values(), cache_bytes(cache.keys(), dtype));
  EXPECT_EQ(values.values(), cache_bytes(cache.values(), dtype));
}

TEST_F(KvWriteOnGpu, WritesWhatTheCpuWritesAndNothingElse) {
  const std::vector<TestSequence> shape = {{15, 1}, {16, 16}, {4, 0}, {17, 2}, {1, 1}, {40, 33}, {3, 0}};
  for (const GpuAppendCase c : {GpuAppendCase{3, 7, 3}, {1, 8, 1}, {8, 128, 16}, {40, 128, 64}, {2, 64, 48}})
    for (const DType in : kDTypes)
      for (const DType dtype : kDTypes)
        for (const GpuRows::Placement placement : kPlacements) expect_cpu_bytes(c, shape, in, dtype, placement);
}

TEST_F(KvWriteOnGpu, WritesOfDividedPositionsItsOwnAlone) {
  const std::vector<TestSequence> shape = {{15, 1}, {16, 16}, {17, 2}, {1, 1}, {150, 149}};
  for (int rank = 0; rank < 3; ++rank)
    for (const GpuAppendCase c : {GpuAppendCase{3, 7, 3, {rank, 3}}, {8, 128, 16, {rank, 3}}})
      for (const DType dtype : kDTypes) expect_cpu_bytes(c, shape, DType::float32, dtype, {});
}

// More sequences than a block has threads, some of which bring nothing.
TEST_F(KvWriteOnGpu, FindsTheSequenceAmongMany) {
  std::vector<TestSequence> shape;
  for (int i = 0; i < 700; ++i) shape.push_back({1 + i % 5, i % 3 == 0 ? 0 : 1});
  expect_cpu_bytes({1, 16, 4}, shape, DType::float32, DType::bfloat16, {});
}

}  // namespace
}  // namespace heddle
