// What latent attention adds to attention(), on a GPU against the CPU's.
#include "kernels/attention/latent_kv_write.h"
#include "kernels/cuda_operands.h"
#include "kernels/linear/head_linear.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

using LatentOnGpu = OnGpu;

struct HeadShape {
  std::int64_t out, in, in_apart, out_apart;
};

// Rows of elements, and of packs; rows that one, two and four warps share, and some that leave them a part.
constexpr HeadShape kHeadShapes[] = {
    {70, 48, 64, 80}, {48, 128, 192, 56}, {16, 136, 136, 16}, {32, 504, 576, 40}, {128, 512, 576, 128}};

TEST_F(LatentOnGpu, HeadLinearAgreesWithTheCpu) {
  constexpr int kHeads = 3;
  for (const DType dtype : kDTypes)
    for (const HeadShape& of : kHeadShapes)
      for (const std::int64_t tokens : {1, 5, 16, 17, 33}) {
        SCOPED_TRACE(fmt::format("{}, {} x {}, {} tokens", name_of(dtype), of.out, of.in, tokens));
        const std::vector<float> values = random_floats(static_cast<std::size_t>(kHeads * of.out * of.in), 1,
                                                        1 / std::sqrt(static_cast<float>(of.in)));
        const Elements host(values, dtype);
        const GpuArray<std::byte> there(as_bytes(values, dtype));
        const Weight weight = one_block(host, dtype, kHeads * of.out, of.in);
        Weight weight_there = weight;
        weight_there.blocks[0].data = there.data();
        const Rows x = rounded(Rows::random(tokens, (kHeads - 1) * of.in_apart + of.in, 2), dtype);
        const Rows y(tokens, (kHeads - 1) * of.out_apart + of.out);
        const GpuRows x_there(x, dtype), y_there(y, dtype);
        const auto run = [&](Tensor from, const Weight& by, Tensor to, Stream& stream) {
          head_linear({.x = from,
                       .x_stride = of.in_apart,
                       .weight = by,
                       .num_heads = kHeads,
                       .y = to,
                       .y_stride = of.out_apart},
                      stream);
        };
        on_cpu(1, [&](Stream& stream) { run(x, weight, y, stream); });
        on_gpu([&](Stream& stream) { run(x_there, weight_there, y_there, stream); });
        const Rows got = y_there.rows();
        for (std::int64_t t = 0; t < tokens; ++t)
          for (std::int64_t c = 0; c < y.columns(); ++c) {
            if (c % of.out_apart >= of.out)
              ASSERT_TRUE(std::isnan(got.row(t)[c]));
            else
              ASSERT_NEAR(got.row(t)[c], y.row(t)[c], 1e-4 + 2 * unit_roundoff(dtype) * std::fabs(y.row(t)[c]));
          }
      }
}

TEST_F(LatentOnGpu, HeadLinearOfAFewTokensGivesTheSameBitsAmongOthersAndOnAnyNumberOfSms) {
  constexpr int kHeads = 16;
  constexpr std::int64_t kTokens = 16;
  const DType dtype = DType::bfloat16;
  for (const std::int64_t in : {128, 512}) {
    const std::int64_t out = 640 - in;
    const GpuArray<std::byte> there(as_bytes(random_floats(static_cast<std::size_t>(kHeads * out * in), 1), dtype));
    Weight weight{.out_features = kHeads * out, .in_features = in, .dtype = dtype};
    weight.blocks[0] = {there.data(), kHeads * out};
    const Rows x = Rows::random(kTokens, kHeads * in, 2);
    const auto bits_of = [&](std::int64_t first, std::int64_t count, int sms) {
      Rows of(count, kHeads * in);
      for (std::int64_t t = 0; t < count; ++t) std::copy_n(x.row(first + t), kHeads * in, of.row(t));
      const GpuRows from(of, dtype), to(count, kHeads * out, dtype);
      on_gpu([&](Stream& stream) {
        head_linear({.x = from, .x_stride = in, .weight = weight, .num_heads = kHeads, .y = to, .y_stride = out},
                    sms == 0 ? Lane(stream) : Lane(stream, sms));
      });
      return bits(to.rows());
    };
    const auto all = bits_of(0, kTokens, 0);
    for (const int sms : {1, 20}) EXPECT_EQ(bits_of(0, kTokens, sms), all) << sms << " SMs";
    for (const std::int64_t t : {0, 7, 15}) {
      const auto row = all.begin() + t * kHeads * out;
      EXPECT_EQ(bits_of(t, 1, 0), std::vector(row, row + kHeads * out)) << "token " << t;
    }
  }
}

TEST_F(LatentOnGpu, LatentKvWriteAgreesWithTheCpu) {
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
    LatentKvWriteParams params{.q = q,
                               .latent = latent,
                               .query = query,
                               .positions = positions.data(),
                               .inv_freq = inv_freq.data(),
                               .scale = 1.1f,
                               .num_heads = kHeads,
                               .rope_dim = kRope,
                               .kv = kv,
                               .sequences = host};
    on_cpu(1, [&](Stream& stream) { latent_kv_write(params, stream); });
    kv.keys = kv.values = pages.data();
    params.q = q_there;
    params.latent = latent_there;
    params.query = query_there;
    params.positions = positions_there.data();
    params.older_keys = dtype == DType::float32 ? OlderKeys::in_flight : OlderKeys::in_place;
    params.inv_freq = inv_freq_there.data();
    params.kv = kv;
    params.sequences = {query_start.data(), context_len.data(),     page_table.data(),
                        host.num_sequences, host.page_table_stride, host.max_query_len};
    on_gpu([&](Stream& stream) { latent_kv_write(params, stream); });
    EXPECT_EQ(pages.values(), cache_bytes());  // the CPU's x is float32, of the same numbers
    EXPECT_EQ(bits(query_there.rows()), bits(rounded(query, dtype)));
  }
}

}  // namespace
}  // namespace heddle
