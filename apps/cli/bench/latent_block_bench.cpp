// bench block with latents of all heads (MLA): fused over clusters in both forms (fused/latent_block), and the separate
// operators, absorbed.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/copy.h"
#include "cli/bench/block_ways.h"
#include "cli/bench/operands.h"
#include "fused/latent_block/latent_block.h"
#include "fused/latent_block/latent_block_sm90.h"
#include "fused/latent_block/latent_block_traffic.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/latent_kv_write.h"
#include "kernels/linear/head_linear.h"
#include "kernels/linear/linear.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {
namespace {

struct LatentBenchShape {
  const char* name;
  int hidden, heads, nope_dim, rope_dim, value_dim, latent_dim;

  int query_dim() const { return nope_dim + rope_dim; }
  int cached_dim() const { return latent_dim + rope_dim; }
  int queries() const { return heads * query_dim(); }
};
constexpr LatentBenchShape kLatentShapes[] = {{"deepseek-v2-lite", 2048, 16, 128, 64, 128, 512}};

// A layer's own operands.
struct LatentLayer {
  Weight down, to_latents, from_latents, output;
  PagedKv kv;
};

class LatentBlockBench final : public BlockBench {
 public:
  LatentBlockBench(const LatentBenchShape& shape, const BlockBenchOptions& options, int context)
      : shape_(shape),
        options_(options),
        context_(context),
        device_({DeviceKind::cuda, 0}, 1),
        operands_(device_.stream()),
        lane_(operands_.lane(linear_workspace_bytes(device_.device()))),
        sequences_(block_sequences(operands_, options.batch, context)) {
    const int batch = options.batch, columns = shape.heads * shape.value_dim;
    const auto floats = [&](int count, double deviation) {
      return static_cast<const float*>(operands_.random(static_cast<std::size_t>(count), DType::float32, deviation));
    };
    inv_freq_ = floats(shape.rope_dim / 2, 0.1);
    norm_ = floats(shape.hidden, 1);
    latent_norm_ = floats(shape.latent_dim, 1);
    for (int layer = 0; layer < options.layers; ++layer) {
      PagedKv kv{
          .num_kv_heads = 1, .page_size = kBlockPageSize, .head_dim = shape.cached_dim(), .dtype = kBlockWeights};
      kv.keys = kv.values = operands_.random(kv.offset(sequences_.pages, 0, 0), kBlockWeights, 1);
      layers_.push_back(
          {.down = operands_.weight(shape.queries() + shape.cached_dim(), shape.hidden, kBlockWeights),
           .to_latents = operands_.weight(std::int64_t{shape.heads} * shape.latent_dim, shape.nope_dim, kBlockWeights),
           .from_latents = operands_.weight(columns, shape.latent_dim, kBlockWeights),
           .output = operands_.weight(shape.hidden, columns, kBlockWeights),
           .kv = kv});
    }
    residual_ = operands_.tensor(batch, shape.hidden, DType::float32);
    other_residual_ = operands_.like(residual_);
    delta_ = operands_.tensor(batch, shape.hidden, kBlockWeights);
    x_ = operands_.like(delta_);
    down_ = operands_.tensor(batch, shape.queries() + shape.cached_dim(), kBlockWeights);
    query_ = operands_.tensor(batch, std::int64_t{shape.heads} * shape.cached_dim(), kBlockWeights);
    attended_ = operands_.like(query_);
    values_ = operands_.tensor(batch, columns, kBlockWeights);
    partials_ = operands_.tensor(std::int64_t{kMostLatentPartials} * batch, shape.hidden, DType::float32);
    attention_scratch_ = operands_.zeros(attention_scratch_bytes(batch, batch, shape.heads, shape.cached_dim()));
    plan_bytes_ = latent_plan_bytes(batch, batch, shape.heads);
    plan_ = operands_.zeros(plan_bytes_);
    for (const LatentBlockMapping& mapping : mappings())
      scratch_bytes_ = std::max(scratch_bytes_, latent_block_scratch_bytes(block_shape(mapping, 1), kBlockWeights));
    scratch_ = operands_.zeros(scratch_bytes_);
  }

  double floor_seconds() override {
    const LatentBlockShape any = block_shape(mappings().front(), 1);
    const double bytes = static_cast<double>(latent_block_read_bytes(
        any, static_cast<std::int64_t>(options_.batch) * (context_ - 1), size_of(kBlockWeights)));
    return bytes / (device_.read_gbps() * 1e9);
  }

  std::vector<BlockWay> ways() override {
    plan_attention({.kv = layers_[0].kv,
                    .sequences = sequences_.sequences,
                    .num_tokens = options_.batch,
                    .num_heads = shape_.heads,
                    .value_dim = shape_.latent_dim,
                    .older_keys = OlderKeys::in_place,
                    .plan = plan_,
                    .plan_bytes = plan_bytes_},
                   lane_);
    device_.stream().synchronize();
    std::vector<BlockWay> all{{.name = "separate operators", .run = device_.timer(options_.layers, [this](int i) {
                                 separate(layers_[static_cast<std::size_t>(i)]);
                               })}};
    for (const LatentBlockMapping& mapping : mappings())
      for (const int partials : {1, 8}) {
        if (!runs(mapping, partials)) continue;
        const bool meets = mapping.flow == LatentFlow::all_heads_a_tile;
        all.push_back({.name = fmt::format("{}, {} clusters of {}, {} splits, {} partials",
                                           meets ? "a tile serves all heads" : "Alg. 4", mapping.units, mapping.cluster,
                                           mapping.splits, partials),
                       .run = device_.timer(options_.layers,
                                            [this, mapping, partials](int i) {
                                              LatentBlockParams params =
                                                  fused(layers_[static_cast<std::size_t>(i)], mapping, partials);
                                              if (i % 2 == 1) std::swap(params.residual, params.new_residual);
                                              latent_block(params, lane_);
                                            }),
                       .difference = difference(mapping, partials),
                       .details = {{"cluster", mapping.cluster},
                                   {"clusters", mapping.units},
                                   {"splits", mapping.splits},
                                   {"algorithm_4", !meets},
                                   {"partials", partials}}});
      }
    return all;
  }

  BenchDevice& device() override { return device_; }

 private:
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape_.query_dim())); }

  // In both forms; runs() leaves out what does not fit the device.
  std::vector<LatentBlockMapping> mappings() const {
    std::vector<LatentBlockMapping> all;
    for (const int cluster : {4, 8, 16})
      for (const int units : {8, 16})
        if (units <= shape_.heads)
          all.push_back({cluster, units, std::max(1, units / options_.batch), LatentFlow::all_heads_a_tile});
    for (const int cluster : {2, 4, 8}) all.push_back({cluster, shape_.heads, 1, LatentFlow::head_a_cluster});
    return all;
  }

  LatentBlockShape block_shape(const LatentBlockMapping& mapping, int partials) const {
    return shape_of(fused(layers_.empty() ? LatentLayer{} : layers_.front(), mapping, partials));
  }

  bool runs(const LatentBlockMapping& mapping, int partials) const {
    const LatentBlockShape shape = block_shape(mapping, partials);
    if (!why_not_fused(shape, kBlockWeights, DeviceKind::cuda).empty() || partials > shape.units()) return false;
    if constexpr (kHaveCuda)
      return latent_block_clusters(shape, kBlockWeights, device_.device()) >=
             (shape.uses_grid_barriers() ? shape.units() : 1);
    return false;
  }

  // |fused - separate| / |separate| of the first layer.
  double difference(const LatentBlockMapping& mapping, int partials) {
    const LatentBlockParams params = fused(layers_[0], mapping, partials);
    latent_block(params, lane_);
    const std::vector<float> parts =
        HostRows(device_.stream(), params.partials, sampled(params.partials.rows, 1 << 20)).floats();
    std::vector<float> sum(static_cast<std::size_t>(options_.batch * shape_.hidden));
    for (std::size_t i = 0; i < parts.size(); ++i) sum[i % sum.size()] += parts[i];
    // The separate norm adds in place, and the last product overwrites the pending delta: on copies.
    const Tensor residual = residual_, delta = delta_;
    residual_ = operands_.like(residual), delta_ = operands_.like(delta);
    copy_rows(residual, residual_), copy_rows(delta, delta_);
    separate(layers_[0]);
    const std::vector<float> wanted =
        HostRows(device_.stream(), delta_, sampled(options_.batch, options_.batch)).floats();
    residual_ = residual, delta_ = delta;
    return relative_error(sum, wanted);
  }

  void copy_rows(const Tensor& from, const Tensor& to) {
    enqueue_copy(device_.stream(), to.data, from.data,
                 static_cast<std::size_t>(from.rows * from.row_stride) * size_of(from.dtype));
  }

  // As layers/latent_attention.h does it for decode steps.
  void separate(const LatentLayer& layer) {
    const int heads = shape_.heads, cached = shape_.cached_dim();
    rmsnorm({.x = delta_, .weight = norm_, .residual = residual_, .y = x_, .eps = 1e-5f}, lane_);
    linear({.x = x_, .weight = layer.down, .y = down_, .role = LinearRole::qkv}, lane_);
    const Tensor q = down_.column_slice(0, shape_.queries());
    const Tensor latent = down_.column_slice(shape_.queries(), cached);
    const Tensor unrotated = latent.column_slice(0, shape_.latent_dim);
    rmsnorm({.x = unrotated, .weight = latent_norm_, .y = unrotated, .eps = 1e-6f}, lane_);
    head_linear({.x = of_heads(q, shape_.query_dim(), shape_.nope_dim),
                 .x_stride = shape_.query_dim(),
                 .weight = layer.to_latents,
                 .num_heads = heads,
                 .y = of_heads(query_, cached, shape_.latent_dim),
                 .y_stride = cached},
                lane_);
    latent_kv_write({.q = q,
                     .latent = latent,
                     .query = query_,
                     .positions = sequences_.positions,
                     .inv_freq = inv_freq_,
                     .num_heads = heads,
                     .rope_dim = shape_.rope_dim,
                     .kv = layer.kv,
                     .sequences = sequences_.sequences},
                    lane_);
    attention({.q = query_,
               .y = attended_,
               .kv = layer.kv,
               .sequences = sequences_.sequences,
               .num_heads = heads,
               .scale = scale(),
               .value_dim = shape_.latent_dim,
               .older_keys = OlderKeys::in_place,
               .scratch = attention_scratch_,
               .plan = plan_},
              lane_);
    head_linear({.x = of_heads(attended_, cached, shape_.latent_dim),
                 .x_stride = cached,
                 .weight = layer.from_latents,
                 .num_heads = heads,
                 .y = values_,
                 .y_stride = shape_.value_dim},
                lane_);
    linear({.x = values_, .weight = layer.output, .y = delta_, .role = LinearRole::attention_output}, lane_);
  }

  // The first `dim` columns of each head's `stride`.
  Tensor of_heads(const Tensor& rows, int stride, int dim) const {
    return rows.column_slice(0, std::int64_t{shape_.heads - 1} * stride + dim);
  }

  LatentBlockParams fused(const LatentLayer& layer, const LatentBlockMapping& mapping, int partials) const {
    return {.residual = residual_,
            .deltas = delta_,
            .num_deltas = 1,
            .new_residual = other_residual_,
            .norm = norm_,
            .eps = 1e-5f,
            .down = layer.down,
            .latent_norm = latent_norm_,
            .latent_eps = 1e-6f,
            .to_latents = layer.to_latents,
            .positions = sequences_.positions,
            .inv_freq = inv_freq_,
            .kv = layer.kv,
            .sequences = sequences_.sequences,
            .num_heads = shape_.heads,
            .nope_dim = shape_.nope_dim,
            .rope_dim = shape_.rope_dim,
            .value_dim = shape_.value_dim,
            .scale = scale(),
            .from_latents = layer.from_latents,
            .output = layer.output,
            .partials = partials_.row_slice(0, std::int64_t{partials} * options_.batch),
            .num_partials = partials,
            .mapping = mapping,
            .scratch = scratch_,
            .scratch_bytes = scratch_bytes_};
  }

  const LatentBenchShape& shape_;
  const BlockBenchOptions& options_;
  int context_;
  BenchDevice device_;
  Operands operands_;
  Lane lane_;
  BlockSequences sequences_;
  const float* inv_freq_ = nullptr;
  const float* norm_ = nullptr;
  const float* latent_norm_ = nullptr;
  std::vector<LatentLayer> layers_;
  Tensor residual_, other_residual_, delta_, x_, down_, query_, attended_, values_, partials_;
  void* attention_scratch_ = nullptr;
  void* plan_ = nullptr;
  std::size_t plan_bytes_ = 0;
  void* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

}  // namespace

std::unique_ptr<BlockBench> make_latent_block_bench(const BlockBenchOptions& options, int context) {
  const auto shape =
      std::ranges::find_if(kLatentShapes, [&](const LatentBenchShape& of) { return of.name == options.shape; });
  if (shape == std::end(kLatentShapes)) return nullptr;
  return std::make_unique<LatentBlockBench>(*shape, options, context);
}

std::vector<std::string> latent_block_shapes() {
  std::vector<std::string> names;
  for (const LatentBenchShape& shape : kLatentShapes) names.emplace_back(shape.name);
  return names;
}

}  // namespace heddle
