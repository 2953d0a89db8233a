// bench block with keys and values of heads: fused over clusters (fused/decode_block.h), and the separate operators.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/copy.h"
#include "cli/bench/block_ways.h"
#include "cli/bench/operands.h"
#include "cli/bench/quantile.h"
#include "fused/decode_block.h"
#include "fused/decode_block_sm90.h"
#include "fused/decode_head_plan.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/rope_kv_write.h"
#include "kernels/linear/linear.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {
namespace {

struct BlockShape {
  const char* name;
  int hidden, heads, kv_heads, head_dim;
};
constexpr BlockShape kHeadShapes[] = {{"llama-2-7b", 4096, 32, 32, 128},
                                      {"llama-2-13b", 5120, 40, 40, 128},
                                      {"llama-3-8b", 4096, 32, 8, 128},
                                      {"llama-3.2-1b", 2048, 32, 8, 64},
                                      {"qwen2.5-7b", 3584, 28, 4, 128}};
// Of figure 11: llama-2-7b with other numbers of heads.
constexpr BlockShape kShapesByHeads[] = {
    {"32 heads", 4096, 32, 32, 128}, {"64 heads", 4096, 64, 64, 128}, {"128 heads", 4096, 128, 128, 128}};

// A layer's own operands.
struct BlockLayer {
  Weight qkv, output;
  PagedKv kv;
};

class DecodeBlockBench final : public BlockBench {
 public:
  DecodeBlockBench(const BlockShape& shape, const BlockBenchOptions& options, int context)
      : shape_(shape),
        options_(options),
        context_(context),
        device_({DeviceKind::cuda, 0}, 1),
        operands_(device_.stream()),
        lane_(operands_.lane(linear_workspace_bytes(device_.device()))) {
    const BlockSequences of = block_sequences(operands_, options.batch, context);
    sequences_ = of.sequences;
    positions_ = of.positions;
    inv_freq_ =
        static_cast<const float*>(operands_.random(static_cast<std::size_t>(shape.head_dim), DType::float32, 0.1));
    norm_ = static_cast<const float*>(operands_.random(static_cast<std::size_t>(shape.hidden), DType::float32, 1));
    for (int layer = 0; layer < options.layers; ++layer) {
      PagedKv kv{.num_kv_heads = shape.kv_heads,
                 .page_size = kBlockPageSize,
                 .head_dim = shape.head_dim,
                 .dtype = kBlockWeights};
      kv.keys = operands_.random(kv.offset(of.pages, 0, 0), kBlockWeights, 1);
      kv.values = operands_.random(kv.offset(of.pages, 0, 0), kBlockWeights, 1);
      layers_.push_back({.qkv = operands_.weight(rows(), shape.hidden, kBlockWeights),
                         .output = operands_.weight(shape.hidden, columns(), kBlockWeights),
                         .kv = kv});
    }
    residual_ = operands_.tensor(options.batch, shape.hidden, DType::float32);
    other_residual_ = operands_.like(residual_);
    delta_ = operands_.tensor(options.batch, shape.hidden, kBlockWeights);
    x_ = operands_.like(delta_);
    qkv_ = operands_.tensor(options.batch, rows(), kBlockWeights);
    attended_ = operands_.tensor(options.batch, columns(), kBlockWeights);
    partials_ = operands_.tensor(std::int64_t{kMostBlockPartials} * options.batch, shape.hidden, DType::float32);
    scratch_ = operands_.zeros(attention_scratch_bytes(options.batch, options.batch, shape.heads, shape.head_dim));
    plan_bytes_ = attention_plan_bytes(options.batch, shape.kv_heads);
    plan_ = operands_.zeros(plan_bytes_);
    for (const DecodeBlockMapping& widest :
         {DecodeBlockMapping{.cluster = 1, .parts = group(), .streamed_blocks = num_sms()},
          DecodeBlockMapping{.cluster = 16, .parts = group(), .exchange = DecodeExchange::off_chip}})
      block_scratch_bytes_ =
          std::max(block_scratch_bytes_, decode_block_scratch_bytes(shape_of(fused_params(layers_[0], widest, 1))));
    block_scratch_ = operands_.zeros(block_scratch_bytes_);
  }

  // Weights, keys and values of a layer, once.
  double bytes() const {
    return 2.0 * (static_cast<double>(rows() + columns()) * shape_.hidden +
                  2.0 * options_.batch * context_ * shape_.kv_heads * shape_.head_dim);
  }
  double floor_seconds() override { return bytes() / (device_.read_gbps() * 1e9); }
  std::vector<BlockWay> ways() override;
  BenchDevice& device() override { return device_; }

 private:
  std::vector<BlockWay> every_mapping();
  std::vector<BlockWay> figure_11();
  std::vector<BlockWay> figure_13();
  std::vector<BlockWay> figure_20();

  // Nothing where no kernel takes it.
  void add_fused(std::vector<BlockWay>& ways, std::string name, const DecodeBlockMapping& mapping, int partials) {
    std::function<double()> run = fused_timer(mapping, partials);
    if (!run) return;
    ways.push_back({.name = std::move(name),
                    .run = std::move(run),
                    .difference = difference(mapping, partials),
                    .details = {{"cluster", mapping.cluster},
                                {"parts", mapping.parts},
                                {"partials", partials},
                                {"cycles_to_end_of_phase", phases(mapping, partials)}}});
  }

  std::function<double()> plain_timer() {
    plan_attention({.kv = layers_[0].kv,
                    .sequences = sequences_,
                    .num_tokens = options_.batch,
                    .num_heads = shape_.heads,
                    .plan = plan_,
                    .plan_bytes = plan_bytes_},
                   lane_);
    device_.stream().synchronize();
    return device_.timer(options_.layers, [this](int i) { plain(layers_[static_cast<std::size_t>(i)]); });
  }

  // Empty: no kernel takes it.
  std::function<double()> fused_timer(DecodeBlockMapping mapping, int partials) {
    const DecodeBlockShape shape = shape_of(fused_params(layers_[0], mapping, partials));
    if (!why_not_fused(shape, kBlockWeights, DeviceKind::cuda).empty() || partials > shape.units()) return {};
    if constexpr (kHaveCuda)
      if (mapping.streamed_blocks == 0 && decode_block_clusters(shape, kBlockWeights, device_.device()) == 0) return {};
    return device_.timer(options_.layers, [this, mapping, partials](int i) {
      DecodeBlockParams params = fused_params(layers_[static_cast<std::size_t>(i)], mapping, partials);
      if (i % 2 == 1) std::swap(params.residual, params.new_residual);
      decode_block(params, lane_);
    });
  }

  // The cycles from a block's start to the end of each phase, the median over all blocks of one call that is not alone.
  std::vector<double> phases(DecodeBlockMapping mapping, int partials) {
    DecodeBlockParams params = fused_params(layers_[0], mapping, partials);
    const auto blocks =
        static_cast<std::size_t>(mapping.streamed_blocks > 0 ? mapping.streamed_blocks : shape_of(params).blocks());
    std::vector<std::uint64_t> times(blocks * kBlockPhases);
    params.times = static_cast<std::uint64_t*>(operands_.zeros(times.size() * sizeof(std::uint64_t)));
    for (int layer = 1; layer < options_.layers; ++layer)
      decode_block(fused_params(layers_[static_cast<std::size_t>(layer)], mapping, partials), lane_);
    decode_block(params, lane_);
    enqueue_copy(device_.stream(), times.data(), params.times, times.size() * sizeof(std::uint64_t));
    device_.stream().synchronize();
    std::vector<double> medians;
    for (std::size_t phase = 0; phase < kBlockPhases; ++phase) {
      std::vector<double> of_phase;
      for (std::size_t block = 0; block < blocks; ++block)
        of_phase.push_back(static_cast<double>(times[block * kBlockPhases + phase]));
      medians.push_back(median(of_phase));
    }
    return medians;
  }

  // |fused - plain| / |plain| of the first layer.
  double difference(DecodeBlockMapping mapping, int partials) {
    const std::vector<std::int64_t> all = sampled(options_.batch, options_.batch);
    const Tensor residual = operands_.like(residual_);
    DecodeBlockParams params = fused_params(layers_[0], mapping, partials);
    params.residual = residual;
    decode_block(params, lane_);
    const std::vector<std::int64_t> rows = sampled(std::int64_t{partials} * options_.batch, 1 << 20);
    Tensor written = partials_;
    written.rows = std::int64_t{partials} * options_.batch;
    const std::vector<float> parts = HostRows(device_.stream(), written, rows).floats();
    std::vector<float> sum(static_cast<std::size_t>(options_.batch * shape_.hidden));
    for (std::size_t i = 0; i < parts.size(); ++i) sum[i % sum.size()] += parts[i];
    const Tensor delta = delta_;
    const Tensor kept = operands_.like(delta);  // what the fused block added
    std::swap(residual_, params.residual);
    delta_ = kept;
    copy_rows(delta, kept);
    plain(layers_[0]);
    const std::vector<float> wanted = HostRows(device_.stream(), delta_, all).floats();
    std::swap(residual_, params.residual);
    delta_ = delta;
    return relative_error(sum, wanted);
  }

  int num_sms() const { return lane_.num_sms; }
  int group() const { return shape_.heads / shape_.kv_heads; }
  std::int64_t rows() const { return std::int64_t{shape_.heads + 2 * shape_.kv_heads} * shape_.head_dim; }
  std::int64_t columns() const { return std::int64_t{shape_.heads} * shape_.head_dim; }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape_.head_dim)); }

  void copy_rows(const Tensor& from, const Tensor& to) {
    enqueue_copy(device_.stream(), to.data, from.data,
                 static_cast<std::size_t>(from.rows * from.row_stride) * size_of(from.dtype));
  }

  void plain(const BlockLayer& layer) {
    const std::int64_t heads = columns(), kv_heads = std::int64_t{shape_.kv_heads} * shape_.head_dim;
    rmsnorm({.x = delta_, .weight = norm_, .residual = residual_, .y = x_, .eps = 1e-5f}, lane_);
    linear({.x = x_, .weight = layer.qkv, .y = qkv_, .role = LinearRole::qkv}, lane_);
    const Tensor q = qkv_.column_slice(0, heads);
    rope_kv_write({.q = q,
                   .k = qkv_.column_slice(heads, kv_heads),
                   .v = qkv_.column_slice(heads + kv_heads, kv_heads),
                   .positions = positions_,
                   .inv_freq = inv_freq_,
                   .kv = layer.kv,
                   .sequences = sequences_,
                   .older_keys = OlderKeys::in_place},
                  lane_);
    attention({.q = q,
               .y = attended_,
               .kv = layer.kv,
               .sequences = sequences_,
               .num_heads = shape_.heads,
               .scale = scale(),
               .older_keys = OlderKeys::in_place,
               .scratch = scratch_,
               .plan = plan_},
              lane_);
    linear({.x = attended_, .weight = layer.output, .y = delta_, .role = LinearRole::attention_output}, lane_);
  }

  DecodeBlockParams fused_params(const BlockLayer& layer, DecodeBlockMapping mapping, int partials) const {
    Tensor written = partials_;
    written.rows = std::int64_t{partials} * options_.batch;
    return {.residual = residual_,
            .deltas = delta_,
            .num_deltas = 1,
            .new_residual = other_residual_,
            .norm = norm_,
            .eps = 1e-5f,
            .qkv = layer.qkv,
            .positions = positions_,
            .inv_freq = inv_freq_,
            .kv = layer.kv,
            .sequences = sequences_,
            .num_heads = shape_.heads,
            .scale = scale(),
            .output = layer.output,
            .partials = written,
            .num_partials = partials,
            .mapping = mapping,
            .scratch = block_scratch_,
            .scratch_bytes = block_scratch_bytes_};
  }

  const BlockShape& shape_;
  const BlockBenchOptions& options_;
  int context_;
  BenchDevice device_;
  Operands operands_;
  Lane lane_;
  PagedSequences sequences_;
  const std::int32_t* positions_ = nullptr;
  const float* inv_freq_ = nullptr;
  const float* norm_ = nullptr;
  std::vector<BlockLayer> layers_;
  Tensor residual_, other_residual_, delta_, x_, qkv_, attended_, partials_;
  void* scratch_ = nullptr;
  void* plan_ = nullptr;
  std::size_t plan_bytes_ = 0;
  void* block_scratch_ = nullptr;
  std::size_t block_scratch_bytes_ = 0;
};

// Beside the mapping onto clusters, one thing is changed at a time.
struct BlockVariant {
  const char* name;
  DecodeMerge merge;
  DecodePrefetch prefetch;
  DecodeNorm norm;
  int partials;
};
constexpr BlockVariant kVariants[] = {
    {"8 partials", DecodeMerge::directly, DecodePrefetch::next_weights, DecodeNorm::every_block, 8},
    {"1 partial", DecodeMerge::directly, DecodePrefetch::next_weights, DecodeNorm::every_block, 1},
    {"no prefetch", DecodeMerge::directly, DecodePrefetch::none, DecodeNorm::every_block, 8},
    {"shared norm", DecodeMerge::directly, DecodePrefetch::next_weights, DecodeNorm::shared, 8},
    {"shared norm, tree", DecodeMerge::tree, DecodePrefetch::next_weights, DecodeNorm::shared, 8},
};

std::vector<BlockWay> DecodeBlockBench::every_mapping() {
  std::vector<BlockWay> all;
  add_fused(all, "streamed, a block an SM", {.streamed_blocks = num_sms()}, 1);
  for (const int cluster : {2, 4, 8, 16})
    for (int parts = 1; parts <= group(); ++parts)
      for (const BlockVariant& variant : kVariants) {
        if (group() % parts != 0 && parts != ceil_div(group(), 4)) continue;
        const DecodeBlockMapping mapping{cluster, parts, variant.merge, variant.prefetch, variant.norm};
        const int count = std::min(variant.partials, shape_.kv_heads * parts);
        add_fused(all, fmt::format("clusters of {}, parts {}, {}", cluster, parts, variant.name), mapping, count);
      }
  return all;
}

// A head a cluster, in the variant that was the fastest at batch 1.
std::vector<BlockWay> DecodeBlockBench::figure_11() {
  std::vector<BlockWay> all;
  for (const int cluster : {1, 2, 4, 8, 16})
    add_fused(all, fmt::format("clusters of {}", cluster),
              {.cluster = cluster, .prefetch = DecodePrefetch::none, .norm = DecodeNorm::every_block},
              std::min(kMostBlockPartials, shape_.kv_heads));
  return all;
}

// Clusters whose blocks exchange segments by distributed shared memory, and the same through global memory; with two
// exchanges a block, and with four.
std::vector<BlockWay> DecodeBlockBench::figure_13() {
  std::vector<BlockWay> all;
  const int parts = ceil_div(group(), 4);
  for (const int cluster : {2, 4, 8, 16})
    for (const DecodeNorm norm : {DecodeNorm::every_block, DecodeNorm::shared})
      for (const DecodeExchange exchange : {DecodeExchange::on_chip, DecodeExchange::off_chip}) {
        const bool on_chip = exchange == DecodeExchange::on_chip;
        const std::size_t before = all.size();
        add_fused(
            all,
            fmt::format("clusters of {}{}, {}", cluster, norm == DecodeNorm::shared ? ", shared norm" : "",
                        on_chip ? "by DSMEM" : "through global memory"),
            {.cluster = cluster, .parts = parts, .prefetch = DecodePrefetch::none, .norm = norm, .exchange = exchange},
            std::min(kMostBlockPartials, shape_.kv_heads * parts));
        if (all.size() > before) all.back().details["exchange"] = on_chip ? "on chip" : "off chip";
      }
  return all;
}

// SplitToken as ClusterFusion has it, by ClusterReduce, and the fastest that was seen, beside SplitHead with as many scores
// and outputs in an exchange. Bytes are those of appendix B.2.
std::vector<BlockWay> DecodeBlockBench::figure_20() {
  std::vector<BlockWay> all;
  const int parts = ceil_div(group(), 4), partials = std::min(kMostBlockPartials, shape_.kv_heads * parts);
  const auto add = [&](const std::string& name, const DecodeBlockMapping& mapping, std::int64_t bytes) {
    const std::size_t before = all.size();
    add_fused(all, name, mapping, partials);
    if (all.size() == before) return;
    all.back().details["split"] = mapping.split == DecodeSplit::head ? "head" : "tokens";
    all.back().details["paper_dsmem_bytes_of_head"] = bytes;
  };
  for (const int cluster : {2, 4, 8}) {
    const std::int64_t of_tokens = paper_split_token_traffic_bytes(shape_.head_dim, cluster);
    const std::int64_t of_head = paper_split_head_traffic_bytes(context_, shape_.hidden, cluster);
    for (const DecodeMerge merge : {DecodeMerge::tree, DecodeMerge::directly})
      add(fmt::format("SplitToken, clusters of {}, {}", cluster,
                      merge == DecodeMerge::tree ? "by the tree" : "directly"),
          {.cluster = cluster,
           .parts = parts,
           .merge = merge,
           .prefetch = DecodePrefetch::none,
           .norm = DecodeNorm::every_block},
          of_tokens);
    for (const DecodePrefetch prefetch : {DecodePrefetch::none, DecodePrefetch::next_weights})
      for (const int exchanged : {1024, 2048, 8192}) {
        const bool fetches = prefetch == DecodePrefetch::next_weights;
        if (fetches && exchanged != 2048) continue;
        add(fmt::format("SplitHead, clusters of {}, {} at a time{}", cluster, exchanged, fetches ? ", prefetch" : ""),
            {.cluster = cluster,
             .parts = parts,
             .prefetch = prefetch,
             .split = DecodeSplit::head,
             .exchanged = exchanged},
            of_head);
      }
  }
  return all;
}

std::vector<BlockWay> DecodeBlockBench::ways() {
  std::vector<BlockWay> all{{.name = "separate operators", .run = plain_timer()}};
  std::vector<BlockWay> fused = options_.figure == 11   ? figure_11()
                                : options_.figure == 13 ? figure_13()
                                : options_.figure == 20 ? figure_20()
                                                        : every_mapping();
  std::ranges::move(fused, std::back_inserter(all));
  return all;
}

}  // namespace

std::unique_ptr<BlockBench> make_decode_block_bench(const BlockBenchOptions& options, int context) {
  const auto is_named = [&](const BlockShape& of) { return of.name == options.shape; };
  if (const auto* const shape = std::ranges::find_if(kHeadShapes, is_named); shape != std::end(kHeadShapes))
    return std::make_unique<DecodeBlockBench>(*shape, options, context);
  if (const auto* const shape = std::ranges::find_if(kShapesByHeads, is_named); shape != std::end(kShapesByHeads))
    return std::make_unique<DecodeBlockBench>(*shape, options, context);
  return nullptr;
}

std::vector<std::string> decode_block_shapes() {
  std::vector<std::string> names;
  for (const BlockShape& shape : kHeadShapes) names.emplace_back(shape.name);
  return names;
}

}  // namespace heddle
