#include "fused/decode_block.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/alignment.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "device/free_cluster.h"
#include "fused/block_preconditions.h"
#include "fused/decode_block_body.cuh"
#include "fused/decode_block_cpu.h"
#include "fused/decode_block_sm90.h"
#include "fused/decode_head_plan.h"
#include "fused/one_block.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

constexpr const char* kOp = "decode_block";

template <class T>
void decode_block_cpu(const DecodeBlockParams& params, ThreadPool& pool) {
  DecodeBlockShape shape = shape_of(params);
  shape.mapping.cluster = 1;  // other blocks would have to make progress, which a pool's pieces need not
  shape.mapping.split = DecodeSplit::tokens;  // one block has them all, and the whole head
  const UnitOutputs scratch = scratch_of(params);
  pool.parallel_for(shape.units(), 1, [&](std::int64_t begin, std::int64_t end) {
    const OneBlock team;
    const KernelWaits waits;
    std::vector<Vector16> memory(static_cast<std::size_t>(DecodeBlockMemory(shape, sizeof(T)).end));
    for (std::int64_t unit = begin; unit < end; ++unit) {
      DecodeBlockBarriers<OneBlock::Barrier> barriers;
      DecodeBlockCpuWork<T, OneBlock> work(params, shape, team, static_cast<int>(unit));
      DecodeBlockBody<T, OneBlock, OneBlock::Barrier, DecodeBlockCpuWork<T, OneBlock>>(
          team, shape, static_cast<int>(unit), barriers, memory.data(), work, waits)
          .run(scratch, static_cast<float*>(params.partials.data), nullptr);
    }
  });
}

void require_params(const DecodeBlockParams& params, const DecodeBlockShape& shape, const Lane& lane) {
  const std::int64_t tokens = params.residual.rows, hidden = params.residual.columns;
  const DType dtype = params.qkv.dtype;
  require_block_rows({.residual = params.residual,
                      .new_residual = params.new_residual,
                      .deltas = params.deltas,
                      .num_deltas = params.num_deltas,
                      .most_deltas = kMostBlockPartials,
                      .weights = dtype},
                     kOp);
  require_paged_kv(params.kv, params.sequences, tokens, kOp);
  require_decode_sequences(params.sequences, tokens, kOp);
  require(params.num_heads > 0 && params.num_heads % params.kv.num_kv_heads == 0,
          "{}: num_heads {} is not a multiple of num_kv_heads {}", kOp, params.num_heads, params.kv.num_kv_heads);
  require(params.window >= 0, "{}: window is {}, expected 0 for none, or a number of keys", kOp, params.window);
  require(std::isfinite(params.eps) && params.eps >= 0, "{}: eps is {}, expected a finite number >= 0", kOp,
          params.eps);
  const std::int64_t dim = params.kv.head_dim;
  require_weight(params.qkv, kOp);
  require_weight(params.output, kOp);
  require(params.qkv.in_features == hidden &&
              params.qkv.out_features == (params.num_heads + 2 * std::int64_t{params.kv.num_kv_heads}) * dim,
          "{}: qkv is [{}, {}], expected [{}, {}]", kOp, params.qkv.out_features, params.qkv.in_features,
          (params.num_heads + 2 * std::int64_t{params.kv.num_kv_heads}) * dim, hidden);
  require(params.output.out_features == hidden && params.output.in_features == params.num_heads * dim,
          "{}: output is [{}, {}], expected [{}, {}]", kOp, params.output.out_features, params.output.in_features,
          hidden, params.num_heads * dim);
  require(params.output.dtype == dtype && params.kv.dtype == dtype,
          "{}: qkv is {}, output {}, the cache {}: expected the same", kOp, name_of(dtype),
          name_of(params.output.dtype), name_of(params.kv.dtype));
  require(!shape.splits_head() || (params.query_norm == nullptr && params.key_norm == nullptr),
          "{}: norms of queries and keys, SplitHead has only slices of them", kOp);
  require_array(params.norm, tokens, kOp, "norm");
  require_array(params.positions, tokens, kOp, "positions");
  require_array(params.inv_freq, tokens, kOp, "inv_freq");
  require(params.num_partials >= 1 && params.num_partials <= kMostBlockPartials && params.num_partials <= shape.units(),
          "{}: num_partials is {}, expected 1 to {} and no more than the {} units", kOp, params.num_partials,
          kMostBlockPartials, shape.units());
  require_activation(params.partials, params.num_partials * tokens, hidden, kOp, "partials");
  require(params.partials.row_stride == hidden, "{}: partials have gaps between their rows", kOp);
  require(params.scratch != nullptr && params.scratch_bytes >= decode_block_scratch_bytes(shape) &&
              is_aligned(params.scratch),
          "{}: has {} bytes of scratch and wants {}, aligned to 16", kOp, params.scratch_bytes,
          decode_block_scratch_bytes(shape));
  if (lane.dry_run != nullptr) return;  // whose device need not exist
  const std::string why = why_not_fused(shape, dtype, lane.stream.device().kind);
  require(why.empty(), "{}: {}", kOp, why);
  if (lane.stream.device().kind != DeviceKind::cuda) return;
  require_one_run(params.qkv, kOp);
  require_one_run(params.output, kOp);
  require(is_aligned(params.qkv.row(0)) && is_aligned(params.output.row(0)) && is_aligned(params.kv.keys) &&
              is_aligned(params.kv.values),
          "{}: weights and cache are not aligned to 16 bytes", kOp);
}

}  // namespace

DecodeBlockShape shape_of(const DecodeBlockParams& params) {
  return {.tokens = static_cast<int>(params.residual.rows),
          .hidden = static_cast<int>(params.residual.columns),
          .heads = params.num_heads,
          .kv_heads = params.kv.num_kv_heads,
          .head_dim = params.kv.head_dim,
          .partials = params.num_partials,
          .mapping = params.mapping,
          .page_size = params.kv.page_size};
}

namespace {

// Words of counters, of both forms; those of the stream come last. As many for any number of tokens, so that calls of
// several sizes may share scratch: no call's numbers lie where another counts.
std::size_t cluster_counters() {
  return kMostBlockPartials * 16;
}
std::size_t counter_words(const DecodeBlockShape& shape) {
  const std::size_t words = cluster_counters() + kStreamCounters +
                            static_cast<std::size_t>(kMostBlockTokens) * static_cast<std::size_t>(shape.kv_heads);
  return (words + 3) / 4 * 4;
}
std::size_t output_floats(const DecodeBlockShape& shape) {
  return static_cast<std::size_t>(shape.units()) * static_cast<std::size_t>(shape.tokens) *
         static_cast<std::size_t>(shape.hidden);
}
// Of elements of four bytes, whatever they have.
std::size_t exchange_floats(const DecodeBlockShape& shape) {
  if (shape.mapping.exchange == DecodeExchange::on_chip) return 0;
  const DecodeExchangePlaces places(DecodeBlockMemory(shape, sizeof(float)), shape.mapping.cluster);
  return static_cast<std::size_t>(shape.units()) * static_cast<std::size_t>(places.end) * 4;
}
std::size_t qkv_floats(const DecodeBlockShape& shape) {
  return static_cast<std::size_t>(shape.tokens) * static_cast<std::size_t>(shape.heads + 2 * shape.kv_heads) *
         static_cast<std::size_t>(shape.head_dim);
}
std::size_t part_floats(const DecodeBlockShape& shape) {
  return static_cast<std::size_t>(2 * shape.mapping.streamed_blocks) * static_cast<std::size_t>(shape.group()) *
         static_cast<std::size_t>(shape.head_dim + DecodeBlockMemory::kMergeWords);
}

}  // namespace

UnitOutputs scratch_of(const DecodeBlockParams& params) {
  auto* const counters = static_cast<std::uint32_t*>(params.scratch);
  return {.outputs = reinterpret_cast<float*>(counters + counter_words(shape_of(params))), .arrivals = counters};
}

Vector16* exchange_of(const DecodeBlockParams& params) {
  if (params.mapping.exchange == DecodeExchange::on_chip) return nullptr;
  return reinterpret_cast<Vector16*>(scratch_of(params).outputs + output_floats(shape_of(params)));
}

DecodeStreamScratch stream_scratch_of(const DecodeBlockParams& params) {
  const DecodeBlockShape shape = shape_of(params);
  auto* const counters = static_cast<std::uint32_t*>(params.scratch);
  auto* const qkv = reinterpret_cast<float*>(counters + counter_words(shape));
  float* const parts = qkv + qkv_floats(shape);
  return {
      .counters = counters + cluster_counters(), .qkv = qkv, .parts = parts, .attended = parts + part_floats(shape)};
}

std::size_t decode_block_scratch_bytes(const DecodeBlockShape& shape) {
  const std::size_t of_clusters = output_floats(shape) + exchange_floats(shape);
  const std::size_t attended = static_cast<std::size_t>(shape.tokens) * static_cast<std::size_t>(shape.heads) *
                               static_cast<std::size_t>(shape.head_dim);
  const std::size_t of_stream =
      shape.mapping.streamed_blocks > 0 ? qkv_floats(shape) + part_floats(shape) + attended : 0;
  return sizeof(std::uint32_t) * counter_words(shape) + sizeof(float) * std::max(of_clusters, of_stream);
}

namespace {

// Of SplitHead, on any device.
std::string why_not_split(const DecodeBlockShape& shape) {
  const int cluster = shape.mapping.cluster;
  if (shape.mapping.streamed_blocks > 0) return "SplitHead has clusters, not streamed blocks";
  if (shape.head_dim % (2 * cluster) != 0)
    return fmt::format("head_dim {} is not a multiple of 2 for each of {} blocks", shape.head_dim, cluster);
  if (shape.mapping.exchanged < DecodeHeadPlan::kRows * shape.tokens ||
      shape.mapping.exchanged < 4 * shape.most_heads())
    return fmt::format("{} floats exchanged at a time, SplitHead takes at least {} for each of {} tokens",
                       shape.mapping.exchanged, DecodeHeadPlan::kRows, shape.tokens);
  return {};
}

}  // namespace

std::string why_not_fused(const DecodeBlockShape& shape, DType weights, DeviceKind device) {
  const int cluster = shape.mapping.cluster, parts = shape.mapping.parts;
  if (shape.tokens > kMostBlockTokens)
    return fmt::format("{} tokens, the fused block takes up to {}", shape.tokens, kMostBlockTokens);
  if (cluster != 1 && cluster != 2 && cluster != 4 && cluster != 8 && cluster != 16)
    return fmt::format("clusters of {} blocks, expected 1, 2, 4, 8 or 16", cluster);
  if (parts < 1 || parts > shape.group())
    return fmt::format("{} parts of {} query heads that share keys", parts, shape.group());
  if (shape.hidden % (8 * cluster) != 0)
    return fmt::format("hidden size {} is not a multiple of 8 for each of {} blocks", shape.hidden, cluster);
  if (shape.head_dim % 4 != 0) return fmt::format("head_dim is {}, not a multiple of 4", shape.head_dim);
  if (shape.mapping.streamed_blocks < 0)
    return fmt::format("{} streamed blocks, expected 0 for none, or the number of SMs", shape.mapping.streamed_blocks);
  if (shape.mapping.streamed_blocks > 0 && shape.partials != 1)
    return fmt::format("{} partials, streamed blocks have one", shape.partials);
  if (shape.mapping.exchange == DecodeExchange::off_chip &&
      (shape.splits_head() || shape.mapping.streamed_blocks > 0 || shape.mapping.merge == DecodeMerge::tree))
    return "exchanges through global memory are of clusters that merge directly";
  if (shape.splits_head())
    if (std::string why = why_not_split(shape); !why.empty()) return why;
  if (device == DeviceKind::cpu) return {};
  if constexpr (kHaveCuda)
    return shape.mapping.streamed_blocks > 0 ? why_not_streamed_sm90(shape, weights)
                                             : why_not_fused_sm90(shape, weights);
  static_cast<void>(weights);
  return "this build has no CUDA";
}

std::string why_not_fused_on(const DecodeBlockShape& shape, DType weights, Device device, int num_sms) {
  if (std::string why = why_not_fused(shape, weights, device.kind); !why.empty()) return why;
  if constexpr (kHaveCuda) {
    if (device.kind == DeviceKind::cpu || shape.mapping.streamed_blocks > 0) return {};
    if (decode_block_clusters(shape, weights, device) == 0)
      return fmt::format("no cluster of {} blocks fits the GPU", shape.mapping.cluster);
    // Ranks share the GPU, and the others' kernels need SMs of their own, anywhere.
    if (num_sms < num_sms_of(device)) {
      if (shape.blocks() > num_sms) return fmt::format("{} blocks, this rank has {} SMs", shape.blocks(), num_sms);
      if (!hold_a_cluster(num_sms, shape.mapping.cluster))
        return fmt::format("clusters of {} blocks, and any {} SMs need not hold one", shape.mapping.cluster, num_sms);
    }
  }
  static_cast<void>(num_sms);
  return {};
}

void decode_block(const DecodeBlockParams& params, const Lane& lane) {
  const DecodeBlockShape shape = shape_of(params);
  require_params(params, shape, lane);
  if (lane.dry_run != nullptr) return;
  if (params.residual.rows == 0) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return decode_block_sm90(params, lane);
  }
  lane.stream.enqueue([shared = std::make_shared<const DecodeBlockParams>(params)](ThreadPool& pool) {
    with_element(shared->qkv.dtype, [&]<class T>() { decode_block_cpu<T>(*shared, pool); });
  });
}

}  // namespace heddle
