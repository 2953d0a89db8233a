// decode_block on a GPU, against the oracle. Skipped without a GPU.
#include <gtest/gtest.h>

#include "base/checked.h"
#include "decode_block_case.h"
#include "fused/decode_block.h"
#include "fused/decode_block_sm90.h"
#include "kernels/cuda_operands.h"

namespace heddle {
namespace {

// The operands on a GPU.
class GpuOperands {
 public:
  GpuOperands(const DecodeBlockCase& of, DecodeBlockOperands& host)
      : of_(of),
        residual_(host.residual, DType::float32),
        new_residual_(of.tokens(), of.hidden, DType::float32),
        partials_(std::int64_t{of.partials} * of.tokens(), of.hidden, DType::float32),
        norm_(host.norm),
        query_norm_(host.query_norm),
        key_norm_(host.key_norm),
        qkv_bias_(host.qkv_bias),
        output_bias_(host.output_bias),
        inv_freq_(host.inv_freq),
        deltas_(bytes_of(host.deltas, of.deltas_dtype)),
        qkv_(bytes_of(host.qkv, of.dtype)),
        output_(bytes_of(host.output, of.dtype)),
        keys_(bytes_of(host.cache.keys(), of.dtype)),
        values_(bytes_of(host.cache.values(), of.dtype)),
        positions_(host.positions),
        query_start_(array_of(host.cache.view().query_start, of.tokens() + 1)),
        context_len_(array_of(host.cache.view().context_len, of.tokens())),
        page_table_(array_of(host.cache.view().page_table, of.tokens() * host.cache.view().page_table_stride)),
        scratch_(std::vector<std::byte>(host.scratch.size() * 16)),
        params_(host.params(of)) {
    params_.residual = residual_;
    params_.new_residual = new_residual_;
    params_.partials = partials_;
    params_.deltas.data = deltas_.data();
    params_.norm = norm_.data();
    params_.qkv.blocks[0].data = qkv_.data();
    params_.output.blocks[0].data = output_.data();
    if (of.bias) params_.qkv.bias = qkv_bias_.data(), params_.output.bias = output_bias_.data();
    if (of.qk_norm) params_.query_norm = query_norm_.data(), params_.key_norm = key_norm_.data();
    params_.positions = positions_.data();
    params_.inv_freq = inv_freq_.data();
    params_.kv.keys = keys_.data();
    params_.kv.values = values_.data();
    params_.sequences.query_start = query_start_.data();
    params_.sequences.context_len = context_len_.data();
    params_.sequences.page_table = page_table_.data();
    params_.scratch = scratch_.data();
  }

  void run() {
    on_gpu([&](Stream& stream) { decode_block(params_, stream); });
  }
  Rows partials() const { return partials_.rows(); }
  Rows new_residual() const { return new_residual_.rows(); }
  std::vector<float> keys() const { return as_floats(keys_.values(), of_.dtype); }
  std::vector<float> values() const { return as_floats(values_.values(), of_.dtype); }
  const DecodeBlockParams& params() const { return params_; }

 private:
  static std::vector<std::byte> bytes_of(const Elements& elements, DType dtype) {
    const auto* first = static_cast<const std::byte*>(elements.data());
    return {first, first + elements.count() * size_of(dtype)};
  }
  static std::vector<std::int32_t> array_of(const std::int32_t* first, int count) { return {first, first + count}; }

  const DecodeBlockCase& of_;
  GpuRows residual_, new_residual_, partials_;
  GpuArray<float> norm_, query_norm_, key_norm_, qkv_bias_, output_bias_, inv_freq_;
  GpuArray<std::byte> deltas_, qkv_, output_, keys_, values_;
  GpuArray<std::int32_t> positions_, query_start_, context_len_, page_table_;
  GpuArray<std::byte> scratch_;
  DecodeBlockParams params_;
};

DecodeBlockCase with(DecodeBlockCase of, DecodeBlockMapping mapping, DType dtype) {
  of.mapping = mapping;
  of.dtype = dtype;
  if (of.deltas_dtype != DType::float32) of.deltas_dtype = dtype;
  return of;
}

std::vector<int> ragged(int tokens) {
  std::vector<int> contexts;
  for (int t = 0; t < tokens; ++t) contexts.push_back(1 + t * 37 % 200);
  return contexts;
}

const DecodeBlockCase kShapes[] = {
    {.contexts = {1}, .hidden = 256, .heads = 2, .kv_heads = 2, .head_dim = 64, .page_size = 16},
    {.contexts = {300}, .hidden = 512, .heads = 4, .kv_heads = 4, .head_dim = 128, .page_size = 64, .partials = 2},
    {.contexts = {130}, .hidden = 512, .heads = 8, .kv_heads = 2, .head_dim = 64, .page_size = 48, .bias = true},
    {.contexts = {250},
     .hidden = 896,
     .heads = 7,
     .kv_heads = 1,
     .head_dim = 128,
     .page_size = 64,
     .partials = 1,
     .deltas = 8,
     .qk_norm = true},
    {.contexts = {500, 40},
     .hidden = 640,
     .heads = 10,
     .kv_heads = 10,
     .head_dim = 64,
     .page_size = 64,
     .window = 100,
     .partials = 8,
     .deltas = 0},
    {.contexts = ragged(8), .hidden = 512, .heads = 8, .kv_heads = 4, .head_dim = 128, .page_size = 64, .partials = 4},
    {.contexts = ragged(16),
     .hidden = 1024,
     .heads = 8,
     .kv_heads = 2,
     .head_dim = 128,
     .page_size = 64,
     .partials = 2,
     .deltas = 2,
     .bias = true,
     .deltas_dtype = DType::bfloat16},
};

class DecodeBlockOnGpu : public OnGpu, public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(Shapes, DecodeBlockOnGpu, testing::Range(0, static_cast<int>(std::size(kShapes))));

// Checks a call in its mapping against the oracle, and that reruns have its bits.
void expect_right_and_repeatable(const DecodeBlockCase& of) {
  DecodeBlockOperands host(of);
  ASSERT_EQ(why_not_fused(shape_of(host.params(of)), of.dtype, DeviceKind::cuda), "");
  const DecodeBlockResult expected = oracle_of(of, host);
  GpuOperands gpu(of, host);
  gpu.run();
  const Rows first = gpu.partials();
  expect_close(of, expected, first, gpu.new_residual(), new_ones(of, host.cache, gpu.keys()),
               new_ones(of, host.cache, gpu.values()));
  for (int rerun = 0; rerun < 5; ++rerun) {
    gpu.run();
    ASSERT_EQ(bits(first), bits(gpu.partials()));
  }
}

// In every mapping that takes the shape; twice, with the same bits.
TEST_P(DecodeBlockOnGpu, ComputesTheAttentionBlockInEveryMapping) {
  int mappings = 0;
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    const DecodeBlockCase plain = with(kShapes[GetParam()], {}, dtype);
    DecodeBlockOperands host(plain);
    const DecodeBlockResult expected = oracle_of(plain, host);
    for (const int cluster : {1, 2, 4, 8, 16})
      for (int parts = 1; parts <= plain.heads / plain.kv_heads; parts *= 2)
        for (const DecodeMerge merge : {DecodeMerge::directly, DecodeMerge::tree}) {
          const bool varies = merge == DecodeMerge::tree;
          const DecodeBlockCase of =
              with(plain,
                   {cluster, parts, merge, varies ? DecodePrefetch::none : DecodePrefetch::next_weights,
                    varies ? DecodeNorm::shared : DecodeNorm::every_block},
                   dtype);
          DecodeBlockShape shape = shape_of(host.params(of));
          if (!why_not_fused(shape, dtype, DeviceKind::cuda).empty() || shape.partials > shape.units()) continue;
          SCOPED_TRACE(testing::Message() << name_of(dtype) << ", clusters of " << cluster << ", parts " << parts
                                          << (merge == DecodeMerge::tree ? ", tree" : ", directly"));
          GpuOperands gpu(of, host);
          gpu.run();
          ++mappings;
          const Rows first = gpu.partials();
          expect_close(of, expected, first, gpu.new_residual(), new_ones(of, host.cache, gpu.keys()),
                       new_ones(of, host.cache, gpu.values()));
          if (HasFatalFailure()) return;
          gpu.run();
          ASSERT_EQ(bits(first), bits(gpu.partials()));
        }
  }
  EXPECT_GT(mappings, 8);
}

// Between the blocks of a cluster by way of global memory.
TEST_P(DecodeBlockOnGpu, ComputesTheAttentionBlockWithExchangesOffTheChip) {
  int mappings = 0;
  const int group = kShapes[GetParam()].heads / kShapes[GetParam()].kv_heads;
  for (const DecodeNorm norm : {DecodeNorm::shared, DecodeNorm::every_block})
    for (const int cluster : {1, 2, 4, 8, 16})
      for (int parts = ceil_div(group, 4); parts <= group; parts *= 2) {
        const DecodeBlockCase of = with(
            kShapes[GetParam()],
            {.cluster = cluster, .parts = parts, .norm = norm, .exchange = DecodeExchange::off_chip}, DType::bfloat16);
        DecodeBlockOperands host(of);
        const DecodeBlockShape shape = shape_of(host.params(of));
        if (!why_not_fused(shape, of.dtype, DeviceKind::cuda).empty() || shape.partials > shape.units()) continue;
        SCOPED_TRACE(testing::Message() << "clusters of " << cluster << ", parts " << parts);
        ++mappings;
        expect_right_and_repeatable(of);
        if (HasFatalFailure()) return;
      }
  EXPECT_GT(mappings, 3);
}

// One stream a block instead of clusters: as many blocks as there are SMs, and few, so that shares end anywhere.
TEST_P(DecodeBlockOnGpu, ComputesTheAttentionBlockInOneStream) {
  for (const DType dtype : {DType::bfloat16, DType::float16})
    for (const int blocks : {132, 17, 1}) {
      DecodeBlockCase of = with(kShapes[GetParam()], {.streamed_blocks = blocks}, dtype);
      of.partials = 1;
      if (of.page_size % 64 != 0 && 64 % of.page_size != 0) of.page_size = 32;
      SCOPED_TRACE(testing::Message() << name_of(dtype) << ", " << blocks << " blocks");
      DecodeBlockOperands host(of);
      ASSERT_EQ(why_not_fused(shape_of(host.params(of)), dtype, DeviceKind::cuda), "");
      const DecodeBlockResult expected = oracle_of(of, host);
      GpuOperands gpu(of, host);
      gpu.run();
      const Rows first = gpu.partials();
      expect_close(of, expected, first, gpu.new_residual(), new_ones(of, host.cache, gpu.keys()),
                   new_ones(of, host.cache, gpu.values()));
      if (HasFatalFailure()) return;
      for (int i = 0; i < 20; ++i) gpu.run();
      ASSERT_EQ(bits(first), bits(gpu.partials()));
    }
}

// SplitHead, against the oracle that its CPU twin is held against: every cluster that takes the shape, scores in tiles of
// few keys and of many.
TEST_P(DecodeBlockOnGpu, ComputesTheAttentionBlockBySplitHead) {
  int mappings = 0;
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    DecodeBlockCase plain = with(kShapes[GetParam()], {}, dtype);
    plain.qk_norm = false;
    if (plain.tokens() > 8) plain.contexts.resize(8);
    DecodeBlockOperands host(plain);
    const DecodeBlockResult expected = oracle_of(plain, host);
    for (const int cluster : {2, 4, 8})
      for (int parts = 1; parts <= plain.heads / plain.kv_heads; parts *= 2)
        for (const int exchanged : {512, 2048}) {
          const DecodeBlockCase of = with(
              plain, {.cluster = cluster, .parts = parts, .split = DecodeSplit::head, .exchanged = exchanged}, dtype);
          const DecodeBlockShape shape = shape_of(host.params(of));
          if (!why_not_fused(shape, dtype, DeviceKind::cuda).empty() || shape.partials > shape.units()) continue;
          SCOPED_TRACE(testing::Message() << name_of(dtype) << ", clusters of " << cluster << ", parts " << parts
                                          << ", " << exchanged << " at a time");
          GpuOperands gpu(of, host);
          gpu.run();
          ++mappings;
          const Rows first = gpu.partials();
          expect_close(of, expected, first, gpu.new_residual(), new_ones(of, host.cache, gpu.keys()),
                       new_ones(of, host.cache, gpu.values()));
          if (HasFatalFailure()) return;
          for (int i = 0; i < 20; ++i) gpu.run();
          ASSERT_EQ(bits(first), bits(gpu.partials()));
        }
  }
  EXPECT_GT(mappings, 3);
}

// As many tokens as a model may have, beside a text of few: with two heads, so that an oracle is quick.
TEST_F(OnGpu, DecodeBlockTakesLongContexts) {
  const DecodeBlockMapping mappings[] = {
      {.cluster = 4}, {.cluster = 16, .parts = 2}, {.streamed_blocks = 132}, {.streamed_blocks = 17}};
  for (const DecodeBlockMapping& mapping : mappings) {
    SCOPED_TRACE(testing::Message() << "clusters of " << mapping.cluster << ", streamed by "
                                    << mapping.streamed_blocks);
    expect_right_and_repeatable({.contexts = {131072, 5, 16385},
                                 .hidden = 256,
                                 .heads = 2,
                                 .kv_heads = 1,
                                 .head_dim = 64,
                                 .page_size = 64,
                                 .mapping = mapping,
                                 .dtype = DType::bfloat16});
    if (HasFatalFailure()) return;
  }
}

// When the choice is made, and not at a launch: clusters that the GPU cannot schedule, or more blocks than a rank's SMs.
TEST_F(OnGpu, DecodeBlockRefusesWhatTheGpuCannotSchedule) {
  const int sms = num_sms_of(kGpu);
  for (const int cluster : {1, 2, 4, 8, 16}) {
    const DecodeBlockShape shape{.tokens = 1,
                                 .hidden = 4096,
                                 .heads = 32,
                                 .kv_heads = 32,
                                 .head_dim = 128,
                                 .mapping = {.cluster = cluster},
                                 .page_size = 64};
    const std::string why = why_not_fused_on(shape, DType::float16, kGpu, sms);
    if (decode_block_clusters(shape, DType::float16, kGpu) > 0)
      EXPECT_EQ(why, "") << cluster;
    else
      EXPECT_EQ(why, "no cluster of " + std::to_string(cluster) + " blocks fits the GPU");
    if (why.empty()) {
      EXPECT_EQ(why_not_fused_on(shape, DType::float16, kGpu, 20),
                std::to_string(32 * cluster) + " blocks, this rank has 20 SMs");
    }
  }
}

// llama-2-7b's, llama-3-8b's, qwen2.5-7b's and llama-2-13b's, as far as an oracle is quick.
TEST_F(OnGpu, DecodeBlockComputesALayerOfAModel) {
  const DecodeBlockCase shapes[] = {
      {.contexts = {1000},
       .hidden = 4096,
       .heads = 32,
       .kv_heads = 32,
       .head_dim = 128,
       .page_size = 64,
       .mapping = {.cluster = 4},
       .partials = 8,
       .deltas = 1,
       .dtype = DType::float16,
       .deltas_dtype = DType::float16},
      {.contexts = {1000},
       .hidden = 4096,
       .heads = 32,
       .kv_heads = 8,
       .head_dim = 128,
       .page_size = 64,
       .mapping = {.cluster = 16},
       .partials = 8,
       .deltas = 1,
       .dtype = DType::bfloat16,
       .deltas_dtype = DType::bfloat16},
      {.contexts = {1000, 3},
       .hidden = 4096,
       .heads = 32,
       .kv_heads = 32,
       .head_dim = 128,
       .page_size = 64,
       .mapping = {.streamed_blocks = 132},
       .deltas = 1,
       .dtype = DType::float16,
       .deltas_dtype = DType::float16},
      {.contexts = {3000},
       .hidden = 4096,
       .heads = 32,
       .kv_heads = 32,
       .head_dim = 128,
       .page_size = 64,
       .mapping = {.cluster = 4, .split = DecodeSplit::head},
       .partials = 8,
       .deltas = 1,
       .dtype = DType::float16,
       .deltas_dtype = DType::float16},
      {.contexts = {2000},
       .hidden = 3584,
       .heads = 28,
       .kv_heads = 4,
       .head_dim = 128,
       .page_size = 64,
       .mapping = {.streamed_blocks = 132},
       .deltas = 1,
       .dtype = DType::bfloat16,
       .deltas_dtype = DType::bfloat16},
      {.contexts = {400, 77, 1},
       .hidden = 3584,
       .heads = 28,
       .kv_heads = 4,
       .head_dim = 128,
       .page_size = 64,
       .mapping = {.cluster = 8, .parts = 2},
       .partials = 8,
       .bias = true,
       .dtype = DType::bfloat16,
       .deltas_dtype = DType::bfloat16},
      {.contexts = {700},
       .hidden = 5120,
       .heads = 40,
       .kv_heads = 40,
       .head_dim = 128,
       .page_size = 64,
       .mapping = {.cluster = 2},
       .partials = 8,
       .dtype = DType::float16,
       .deltas_dtype = DType::float16},
      {.contexts = {700, 9},
       .hidden = 5120,
       .heads = 40,
       .kv_heads = 40,
       .head_dim = 128,
       .page_size = 64,
       .mapping = {.streamed_blocks = 132},
       .dtype = DType::float16,
       .deltas_dtype = DType::float16},
  };
  for (const DecodeBlockCase& of : shapes) {
    expect_right_and_repeatable(of);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace heddle
