// latent_block on a GPU, against the oracle. Skipped without a GPU.
#include <gtest/gtest.h>

#include "fused/latent_block/latent_block.h"
#include "fused/latent_block/latent_block_sm90.h"
#include "kernels/cuda_operands.h"
#include "latent_block_case.h"

namespace heddle {
namespace {

// The operands on a GPU.
class LatentGpuOperands {
 public:
  LatentGpuOperands(const LatentBlockCase& of, LatentBlockOperands& host)
      : of_(of),
        params_(host.params(of)),
        residual_(host.residual, DType::float32),
        new_residual_(of.tokens(), of.hidden, DType::float32),
        partials_(std::int64_t{of.partials} * of.tokens(), of.hidden, DType::float32),
        norm_(host.norm),
        latent_norm_(host.latent_norm),
        inv_freq_(host.inv_freq),
        deltas_(bytes_of(host.deltas, of.deltas_dtype)),
        down_(bytes_of(host.down, of.dtype)),
        to_latents_(bytes_of(host.to_latents, of.dtype)),
        from_latents_(bytes_of(host.from_latents, of.dtype)),
        output_(bytes_of(host.output, of.dtype)),
        latents_(bytes_of(host.cache.keys(), of.dtype)),
        positions_(host.positions),
        query_start_(array_of(host.cache.view().query_start, of.tokens() + 1)),
        context_len_(array_of(host.cache.view().context_len, of.tokens())),
        page_table_(array_of(host.cache.view().page_table, of.tokens() * host.cache.view().page_table_stride)),
        scratch_(std::vector<std::byte>(host.scratch.size() * 16)) {
    params_.residual = residual_;
    params_.new_residual = new_residual_;
    params_.partials = partials_;
    params_.deltas.data = deltas_.data();
    params_.norm = norm_.data();
    params_.latent_norm = latent_norm_.data();
    params_.down.blocks[0].data = down_.data();
    params_.to_latents.blocks[0].data = to_latents_.data();
    params_.from_latents.blocks[0].data = from_latents_.data();
    params_.output.blocks[0].data = output_.data();
    params_.positions = positions_.data();
    params_.inv_freq = inv_freq_.data();
    params_.kv.keys = params_.kv.values = latents_.data();
    params_.sequences.query_start = query_start_.data();
    params_.sequences.context_len = context_len_.data();
    params_.sequences.page_table = page_table_.data();
    params_.scratch = scratch_.data();
  }

  void run() {
    on_gpu([&](Stream& stream) { latent_block(params_, stream); });
  }
  Rows partials() const { return partials_.rows(); }
  Rows new_residual() const { return new_residual_.rows(); }
  std::vector<float> latents() const { return as_floats(latents_.values(), of_.dtype); }

 private:
  static std::vector<std::byte> bytes_of(const Elements& elements, DType dtype) {
    const auto* first = static_cast<const std::byte*>(elements.data());
    return {first, first + elements.count() * size_of(dtype)};
  }
  static std::vector<std::int32_t> array_of(const std::int32_t* first, int count) { return {first, first + count}; }

  const LatentBlockCase& of_;
  LatentBlockParams params_;
  GpuRows residual_, new_residual_, partials_;
  GpuArray<float> norm_, latent_norm_, inv_freq_;
  GpuArray<std::byte> deltas_, down_, to_latents_, from_latents_, output_, latents_;
  GpuArray<std::int32_t> positions_, query_start_, context_len_, page_table_;
  GpuArray<std::byte> scratch_;
};

std::vector<int> ragged_contexts(int tokens) {
  std::vector<int> contexts;
  for (int t = 0; t < tokens; ++t) contexts.push_back(1 + t * 137 % 900);
  return contexts;
}

LatentBlockCase real_heads(std::vector<int> contexts, int heads, int hidden) {
  return {.contexts = std::move(contexts),
          .hidden = hidden,
          .heads = heads,
          .nope = 128,
          .rope = 64,
          .value = 128,
          .latent = 512,
          .page_size = 64};
}

const LatentBlockCase kLatentGpuShapes[] = {
    real_heads({1}, 16, 256),
    real_heads({300}, 16, 2048),
    real_heads({4096}, 16, 512),
    real_heads({700, 5}, 8, 512),
    real_heads(ragged_contexts(8), 4, 256),
    real_heads(ragged_contexts(16), 16, 512),
};

class LatentBlockOnGpu : public OnGpu, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Shapes, LatentBlockOnGpu, testing::Range(0, static_cast<int>(std::size(kLatentGpuShapes))));

// Both forms, clusters of every size, one segment a cluster and several; twice, with the same bits.
TEST_P(LatentBlockOnGpu, ComputesTheAttentionBlockInEveryMapping) {
  int mappings = 0;
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    LatentBlockCase of = kLatentGpuShapes[GetParam()];
    of.dtype = dtype;
    for (const int cluster : {1, 2, 4, 8, 16})
      for (const LatentFlow flow : {LatentFlow::all_heads_a_tile, LatentFlow::head_a_cluster})
        for (const int splits : {1, 3, std::max(1, of.heads / of.tokens())}) {
          if (flow == LatentFlow::head_a_cluster && splits != 1) continue;
          of.mapping = {.cluster = cluster, .units = of.heads, .splits = splits, .flow = flow};
          of.partials = std::min(of.heads, 8);
          LatentBlockOperands host(of);
          const LatentBlockShape shape = shape_of(host.params(of));
          if (!why_not_fused(shape, dtype, DeviceKind::cuda).empty()) continue;
          if (latent_block_clusters(shape, dtype, kGpu) < (shape.uses_grid_barriers() ? shape.units() : 1)) continue;
          SCOPED_TRACE(fmt::format("{}, clusters of {}, {} splits, form {}", name_of(dtype), cluster, splits,
                                   static_cast<int>(flow)));
          const LatentBlockResult expected = oracle_of(of, host);
          LatentGpuOperands gpu(of, host);
          gpu.run();
          const Rows partials = gpu.partials();
          expect_close(of, expected, partials, gpu.new_residual(), new_rows(of, host.cache, gpu.latents()));
          gpu.run();
          EXPECT_EQ(bits(gpu.partials()), bits(partials));
          ++mappings;
        }
  }
  EXPECT_GE(mappings, 8);
}

TEST(LatentBlockShapeOnGpu, SaysWhyItDoesNotTakeAShape) {
  const LatentBlockShape shape{1, 2048, 16, 128, 64, 128, 512, 8, {8, 16, 16}};
  const auto why = [&](auto change) {
    LatentBlockShape other = shape;
    change(other);
    return why_not_fused(other, DType::bfloat16, DeviceKind::cuda);
  };
  EXPECT_EQ(why([](auto&) {}), "");
  EXPECT_EQ(why([](auto& s) { s.latent_dim = 256; }), "latents of 256 + 64, the fused block takes 512 + 64");
  EXPECT_EQ(why([](auto& s) { s.heads = 32; }), "32 heads, the fused block takes up to 16");
  EXPECT_EQ(why([](auto& s) { s.nope_dim = 96; }), "96 columns of a weight, the fused block takes multiples of 64");
  EXPECT_EQ(why_not_fused(shape, DType::float32, DeviceKind::cuda),
            "weights are float32, the fused block takes bfloat16 and float16");
}

}  // namespace
}  // namespace heddle
