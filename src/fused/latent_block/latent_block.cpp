#include "fused/latent_block/latent_block.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/alignment.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "device/free_cluster.h"
#include "fused/block_preconditions.h"
#include "fused/latent_block/latent_block_body.cuh"
#include "fused/latent_block/latent_block_cpu.h"
#include "fused/latent_block/latent_block_sm90.h"
#include "fused/latent_block/latent_head_body.cuh"
#include "fused/one_block.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

constexpr const char* kOp = "latent_block";
// Of a sequence's tokens, on the CPU: enough for the threads of a desktop, and the same for all, since bits depend on it.
constexpr int kCpuSplits = 8;

// One unit on a thread of a pool.
template <class T>
class UnitOnCpu {
 public:
  using Work = LatentBlockCpuWork<T, OneBlock>;
  using Body = LatentBlockBody<T, OneBlock, OneBlock::Barrier, Work>;
  using HeadBody = LatentHeadBody<T, OneBlock, OneBlock::Barrier, Work>;

  UnitOnCpu(const LatentBlockParams& params, const LatentBlockShape& shape, int unit)
      : shape_(shape),
        unit_(unit),
        memory_(static_cast<std::size_t>(shape.uses_grid_barriers() ? LatentBlockMemory(shape, sizeof(T)).end
                                                                    : LatentHeadMemory(shape, sizeof(T)).end)),
        work_(params, shape, team_, unit) {}

  Body body() { return {team_, shape_, unit_, barriers_, memory_.data(), work_, waits_}; }
  HeadBody head_body() { return {team_, shape_, unit_, barriers_, memory_.data(), work_, waits_}; }

 private:
  const LatentBlockShape& shape_;
  int unit_;
  OneBlock team_;
  KernelWaits waits_;
  LatentBlockBarriers<OneBlock::Barrier> barriers_;
  std::vector<Vector16> memory_;
  Work work_;
};

// Where units meet on a GPU, the pool's pieces end here.
template <class T>
void latent_block_cpu(const LatentBlockParams& params, ThreadPool& pool) {
  LatentBlockShape shape = shape_of(params);
  shape.mapping.cluster = 1;
  const LatentBlockScratch scratch = scratch_of(params);
  auto* const partials = static_cast<float*>(params.partials.data);
  const auto for_each_unit = [&](const auto& compute) {
    pool.parallel_for(shape.units(), 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t unit = begin; unit < end; ++unit) {
        UnitOnCpu<T> on_cpu(params, shape, static_cast<int>(unit));
        compute(on_cpu);
      }
    });
  };
  if (!shape.uses_grid_barriers())
    return for_each_unit([&](UnitOnCpu<T>& unit) { unit.head_body().run(scratch, partials); });
  for_each_unit([&](UnitOnCpu<T>& unit) { unit.body().project(scratch); });
  for_each_unit([&](UnitOnCpu<T>& unit) { unit.body().attend(scratch); });
  for_each_unit([&](UnitOnCpu<T>& unit) { unit.body().finish(scratch, partials); });
}

void require_matrix(const Weight& weight, std::int64_t rows, std::int64_t columns, DType dtype, const char* name) {
  require_weight(weight, kOp);
  require(weight.out_features == rows && weight.in_features == columns, "{}: {} is [{}, {}], expected [{}, {}]", kOp,
          name, weight.out_features, weight.in_features, rows, columns);
  require(weight.dtype == dtype, "{}: {} is {}, down {}: expected the same", kOp, name, name_of(weight.dtype),
          name_of(dtype));
  require(weight.bias == nullptr, "{}: {} has a bias", kOp, name);
}

void require_params(const LatentBlockParams& params, const LatentBlockShape& shape, const Lane& lane) {
  const std::int64_t tokens = params.residual.rows, hidden = params.residual.columns;
  const DType dtype = params.down.dtype;
  require_block_rows({.residual = params.residual,
                      .new_residual = params.new_residual,
                      .deltas = params.deltas,
                      .num_deltas = params.num_deltas,
                      .most_deltas = kMostLatentPartials,
                      .weights = dtype},
                     kOp);
  require_paged_kv(params.kv, params.sequences, tokens, kOp);
  require_decode_sequences(params.sequences, tokens, kOp);
  require(params.kv.num_kv_heads == 1, "{}: the cache has {} heads, expected one latent", kOp, params.kv.num_kv_heads);
  require(params.kv.shard.ranks == 1, "{}: ranks divide the latents", kOp);
  require(params.kv.dtype == dtype, "{}: the cache is {}, down {}: expected the same", kOp, name_of(params.kv.dtype),
          name_of(dtype));
  require(params.num_heads > 0 && params.nope_dim > 0 && params.rope_dim > 0 && params.value_dim > 0 &&
              params.rope_dim < params.kv.head_dim,
          "{}: {} heads of {} + {} and {} elements over rows of {}", kOp, params.num_heads, params.nope_dim,
          params.rope_dim, params.value_dim, params.kv.head_dim);
  for (const float eps : {params.eps, params.latent_eps})
    require(std::isfinite(eps) && eps >= 0, "{}: eps is {}, expected a finite number >= 0", kOp, eps);
  const std::int64_t heads = params.num_heads;
  require_matrix(params.down, heads * shape.query_dim() + shape.cached_dim(), hidden, dtype, "down");
  require_matrix(params.to_latents, heads * shape.latent_dim, shape.nope_dim, dtype, "to_latents");
  require_matrix(params.from_latents, heads * shape.value_dim, shape.latent_dim, dtype, "from_latents");
  require_matrix(params.output, hidden, heads * shape.value_dim, dtype, "output");
  require_array(params.norm, tokens, kOp, "norm");
  require_array(params.latent_norm, tokens, kOp, "latent_norm");
  require_array(params.positions, tokens, kOp, "positions");
  require_array(params.inv_freq, tokens, kOp, "inv_freq");
  const std::string why =
      why_not_fused(shape, dtype, lane.dry_run != nullptr ? DeviceKind::cpu : lane.stream.device().kind);
  require(why.empty(), "{}: {}", kOp, why);
  require(
      params.num_partials >= 1 && params.num_partials <= kMostLatentPartials && params.num_partials <= shape.units(),
      "{}: num_partials is {}, expected 1 to {} and no more than the {} units", kOp, params.num_partials,
      kMostLatentPartials, shape.units());
  require_activation(params.partials, params.num_partials * tokens, hidden, kOp, "partials");
  require(params.partials.row_stride == hidden, "{}: partials have gaps between their rows", kOp);
  const std::size_t wanted = latent_block_scratch_bytes(shape, dtype);
  require(params.scratch != nullptr && params.scratch_bytes >= wanted && is_aligned(params.scratch),
          "{}: has {} bytes of scratch and wants {}, aligned to 16", kOp, params.scratch_bytes, wanted);
  if (lane.dry_run != nullptr || lane.stream.device().kind != DeviceKind::cuda) return;
  for (const Weight* weight : {&params.down, &params.to_latents, &params.from_latents, &params.output}) {
    require_one_run(*weight, kOp);
    require(is_aligned(weight->row(0)), "{}: a weight is not aligned to 16 bytes", kOp);
  }
  require(is_aligned(params.kv.keys), "{}: the cache is not aligned to 16 bytes", kOp);
}

std::size_t rounded_up(std::size_t bytes) {
  return (bytes + 15) / 16 * 16;
}

// Where the parts of the scratch begin, in bytes. Counters come first, in the same place for all calls: no call's numbers
// lie where another counts.
struct ScratchPlaces {
  static constexpr std::size_t kArrivals = 32;  // behind the barriers
  static constexpr std::size_t kQueries = kArrivals + sizeof(std::uint32_t) * kMostLatentPartials * 16;
  static_assert(kArrivals >= sizeof(std::uint64_t) * kLatentBarriers && kQueries % 16 == 0);
  std::size_t latents, parts, outputs, end;

  ScratchPlaces(const LatentBlockShape& shape, std::size_t element_bytes) : latents(), parts(), outputs(), end() {
    const auto product = [](std::int64_t a, std::int64_t b, std::int64_t c) {
      return static_cast<std::size_t>(a) * static_cast<std::size_t>(b) * static_cast<std::size_t>(c);
    };
    latents = kQueries + rounded_up(product(shape.tokens, shape.heads, shape.cached_dim()) * element_bytes);
    parts = latents + rounded_up(product(shape.tokens, shape.cached_dim(), sizeof(float)));
    outputs = parts + rounded_up(product(shape.segments(), shape.heads, shape.record()) * sizeof(float));
    end = outputs + rounded_up(product(shape.units(), shape.tokens, shape.hidden) * sizeof(float));
  }
};

}  // namespace

LatentBlockShape shape_of(const LatentBlockParams& params) {
  return {.tokens = static_cast<int>(params.residual.rows),
          .hidden = static_cast<int>(params.residual.columns),
          .heads = params.num_heads,
          .nope_dim = params.nope_dim,
          .rope_dim = params.rope_dim,
          .value_dim = params.value_dim,
          .latent_dim = params.kv.head_dim - params.rope_dim,
          .partials = params.num_partials,
          .mapping = params.mapping};
}

LatentBlockMapping latent_mapping_of_cpu(int num_heads) {
  return {.cluster = 1, .units = num_heads, .splits = kCpuSplits};
}

LatentBlockMapping latent_mapping_of_gpu(int num_heads, int num_tokens, int cluster) {
  return {.cluster = cluster, .units = num_heads, .splits = std::max(1, num_heads / num_tokens)};
}

LatentBlockScratch scratch_of(const LatentBlockParams& params) {
  const ScratchPlaces at(shape_of(params), size_of(params.down.dtype));
  auto* const first = static_cast<std::byte*>(params.scratch);
  return {.barriers = reinterpret_cast<std::uint64_t*>(first),
          .queries = first + ScratchPlaces::kQueries,
          .latents = reinterpret_cast<float*>(first + at.latents),
          .parts = reinterpret_cast<float*>(first + at.parts),
          .outputs = {.outputs = reinterpret_cast<float*>(first + at.outputs),
                      .arrivals = reinterpret_cast<std::uint32_t*>(first + ScratchPlaces::kArrivals)}};
}

std::size_t latent_block_scratch_bytes(const LatentBlockShape& shape, DType weights) {
  return ScratchPlaces(shape, size_of(weights)).end;
}

std::string why_not_fused(const LatentBlockShape& shape, DType weights, DeviceKind device) {
  const LatentBlockMapping& mapping = shape.mapping;
  const int cluster = mapping.cluster;
  if (shape.tokens > kMostLatentTokens)
    return fmt::format("{} tokens, the fused block takes up to {}", shape.tokens, kMostLatentTokens);
  if (cluster != 1 && cluster != 2 && cluster != 4 && cluster != 8 && cluster != 16)
    return fmt::format("clusters of {} blocks, expected 1, 2, 4, 8 or 16", cluster);
  if (mapping.units < 1 || mapping.units > shape.heads)
    return fmt::format("{} clusters for {} heads", mapping.units, shape.heads);
  if (!shape.uses_grid_barriers() && (mapping.units != shape.heads || mapping.splits != 1))
    return fmt::format("a head a cluster, and {} clusters for {} heads, tokens in {} splits", mapping.units,
                       shape.heads, mapping.splits);
  if (mapping.splits < 1) return fmt::format("{} splits, expected at least 1", mapping.splits);
  if (shape.hidden % 8 != 0) return fmt::format("hidden size {} is not a multiple of 8", shape.hidden);
  if (shape.rope_dim % 2 != 0) return fmt::format("{} rotated elements, expected an even number", shape.rope_dim);
  if (device == DeviceKind::cpu) return {};
  if constexpr (kHaveCuda) return why_not_fused_sm90(shape, weights);
  static_cast<void>(weights);
  return "this build has no CUDA";
}

std::string why_not_fused_on(const LatentBlockShape& shape, DType weights, Device device, int num_sms) {
  if (std::string why = why_not_fused(shape, weights, device.kind); !why.empty()) return why;
  if constexpr (kHaveCuda) {
    if (device.kind == DeviceKind::cpu) return {};
    // Blocks wait for each other, so other kernels that hold SMs would be in the way.
    if (shape.uses_grid_barriers() && num_sms < num_sms_of(device))
      return fmt::format("this rank has {} SMs of a GPU", num_sms);
    if (num_sms < num_sms_of(device) && !hold_a_cluster(num_sms, shape.mapping.cluster))
      return fmt::format("clusters of {} blocks, and any {} SMs need not hold one", shape.mapping.cluster, num_sms);
    const int clusters = latent_block_clusters(shape, weights, device);
    if (clusters < (shape.uses_grid_barriers() ? shape.units() : 1))
      return fmt::format("{} clusters of {} blocks, of which the GPU runs {} at once", shape.units(),
                         shape.mapping.cluster, clusters);
  }
  static_cast<void>(num_sms);
  return {};
}

void latent_block(const LatentBlockParams& params, const Lane& lane) {
  const LatentBlockShape shape = shape_of(params);
  require_params(params, shape, lane);
  if (lane.dry_run != nullptr || params.residual.rows == 0) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return latent_block_sm90(params, lane);
  }
  lane.stream.enqueue([shared = std::make_shared<const LatentBlockParams>(params)](ThreadPool& pool) {
    with_element(shared->down.dtype, [&]<class T>() { latent_block_cpu<T>(*shared, pool); });
  });
}

}  // namespace heddle
