// What latent attention adds to attention(), on a GPU against the CPU's.
#include "kernels/attention/latent_append.h"
#include "kernels/cuda_operands.h"
#include "kernels/linear/head_linear.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

using LatentOnGpu = OnGpu;

TEST_F(LatentOnGpu, HeadLinearAgreesWithTheCpu) {
  constexpr int kHeads = 3;
  constexpr std::int64_t kOut = 70, kIn = 48, kInApart = 64, kOutApart = 80;
  for (const DType dtype : kDTypes)
    for (const std::int64_t tokens : {1, 5, 33}) {
      const std::vector<float> values = random_floats(kHeads * kOut * kIn, 1);
      const Elements host(values, dtype);
      const GpuArray<std::byte> there(as_bytes(values, dtype));
      const Weight weight = one_block(host, dtype, kHeads * kOut, kIn);
      Weight weight_there = weight;
      weight_there.blocks[0].data = there.data();
      const Rows x = rounded(Rows::random(tokens, (kHeads - 1) * kInApart + kIn, 2), dtype);
      const Rows y(tokens, (kHeads - 1) * kOutApart + kOut);
      const GpuRows x_there(x, dtype), y_there(y, dtype);
      const auto run = [&](Tensor from, const Weight& by, Tensor to, Stream& stream) {
        head_linear(
            {.x = from, .x_stride = kInApart, .weight = by, .num_heads = kHeads, .y = to, .y_stride = kOutApart},
            stream);
      };
      on_cpu(1, [&](Stream& stream) { run(x, weight, y, stream); });
      on_gpu([&](Stream& stream) { run(x_there, weight_there, y_there, stream); });
      const Rows got = y_there.rows();
      for (std::int64_t t = 0; t < tokens; ++t)
        for (std::int64_t c = 0; c < y.columns(); ++c) {
          if (c % kOutApart >= kOut)
            ASSERT_TRUE(std::isnan(got.row(t)[c]));
          else
            ASSERT_NEAR(got.row(t)[c], y.row(t)[c], 1e-4 + 2 * unit_roundoff(dtype) * std::fabs(y.row(t)[c]));
        }
    }
}

TEST_F(LatentOnGpu, LatentAppendAgreesWithTheCpu) {
  constexpr int kHeads = 3, kNope = 16, kRope = 10, kLatent = 40;
  const std::vector<TestSequence> shape = {{15, 1}, {16, 16}, {4, 0}, {17, 2}, {40, 33}};
  for (const DType dtype : kDTypes) {
    SCOPED_TRACE(name_of(dtype));
    const Sequences cache({1, kLatent + kRope, 16, dtype}, shape);
    const PagedSequences host = cache.view();
    const std::int64_t tokens = cache.num_tokens();
    const Rows q = rounded(Rows::random(tokens, kHeads * (kNope + kRope), 1), dtype),
               latent = rounded(Rows::random(tokens, kLatent + kRope, 2), dtype),
               query(tokens, kHeads * (kLatent + kRope));
    std::vector<std::int32_t> positions;
    for (const TestSequence& s : shape)
      for (int p = s.context_len - s.num_new_tokens; p < s.context_len; ++p) positions.push_back(p);
    const std::vector<float> inv_freq = {1, 0.5f, 0.1f, 0.02f, 0.003f};

    const auto count = static_cast<std::size_t>(host.num_sequences);
    const GpuArray<std::int32_t> query_start(std::span(host.query_start, count + 1)),
        context_len(std::span(host.context_len, count)),
        page_table(std::span(host.page_table, count * static_cast<std::size_t>(host.page_table_stride))),
        positions_there(positions);
    const GpuArray<float> inv_freq_there(inv_freq);
    const auto cache_bytes = [&] {
      std::vector<std::byte> bytes(cache.keys().count() * size_of(dtype));
      std::memcpy(bytes.data(), cache.keys().data(), bytes.size());
      return bytes;
    };
    GpuArray<std::byte> pages(cache_bytes());
    PagedKv kv = cache.kv();
    const GpuRows q_there(q, dtype), latent_there(latent, dtype), query_there(query, dtype);
    LatentAppendParams params{.q = q,
                              .latent = latent,
                              .query = query,
                              .positions = positions.data(),
                              .inv_freq = inv_freq.data(),
                              .scale = 1.1f,
                              .num_heads = kHeads,
                              .rope_dim = kRope,
                              .kv = kv,
                              .sequences = host};
    on_cpu(1, [&](Stream& stream) { latent_append(params, stream); });
    kv.keys = kv.values = pages.data();
    params.q = q_there;
    params.latent = latent_there;
    params.query = query_there;
    params.positions = positions_there.data();
    params.inv_freq = inv_freq_there.data();
    params.kv = kv;
    params.sequences = {query_start.data(), context_len.data(),     page_table.data(),
                        host.num_sequences, host.page_table_stride, host.max_query_len};
    on_gpu([&](Stream& stream) { latent_append(params, stream); });
    EXPECT_EQ(pages.values(), cache_bytes());  // the CPU's x is float32, of the same numbers
    EXPECT_EQ(bits(query_there.rows()), bits(rounded(query, dtype)));
  }
}

}  // namespace
}  // namespace heddle
