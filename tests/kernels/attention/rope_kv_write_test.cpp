#include "kernels/attention/rope_kv_write.h"

#include "kernels/attention/kv_write.h"
#include "kernels/attention/rope.h"
#include "kernels/operands.h"
#include "kernels/sequences.h"

namespace heddle {
namespace {

std::vector<std::byte> bytes_of_cache(const Elements& elements, DType dtype) {
  std::vector<std::byte> bytes(elements.count() * size_of(dtype));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  return bytes;
}

TEST(RopeKvWrite, DoesWhatTheTwoOperatorsDo) {
  constexpr int kHeads = 6, kKvHeads = 2, kHeadDim = 24, kQ = kHeads * kHeadDim, kK = kKvHeads * kHeadDim;
  const std::vector<TestSequence> shape = {{15, 1}, {16, 16}, {4, 0}, {17, 2}, {40, 33}};
  for (const DType dtype : kDTypes) {
    const Sequences expected({kKvHeads, kHeadDim, 16, dtype}, shape), cache({kKvHeads, kHeadDim, 16, dtype}, shape);
    const std::int64_t tokens = cache.num_tokens();
    std::vector<std::int32_t> positions;
    for (const TestSequence& s : shape)
      for (int i = s.context_len - s.num_new_tokens; i < s.context_len; ++i) positions.push_back(i);
    const std::vector<float> inv_freq = random_floats(kHeadDim / 2, 3);
    const Rows apart = Rows::random(tokens, kQ + 2 * kK, 1, 1, 5), at_once = apart;
    const auto q = [&](Tensor x) { return x.column_slice(0, kQ); };
    const auto k = [&](Tensor x) { return x.column_slice(kQ, kK); };
    const auto v = [&](Tensor x) { return x.column_slice(kQ + kK, kK); };
    on_cpu(2, [&](Stream& stream) {
      rope({q(apart), k(apart), positions.data(), inv_freq.data(), kHeadDim, 1.5f}, stream);
      kv_write({k(apart), v(apart), expected.kv(), expected.view()}, stream);
    });
    on_cpu(2, [&](Stream& stream) {
      rope_kv_write(
          {q(at_once), k(at_once), v(at_once), positions.data(), inv_freq.data(), 1.5f, cache.kv(), cache.view()},
          stream);
    });
    for (std::int64_t t = 0; t < tokens; ++t)
      for (int i = 0; i < kQ; ++i) ASSERT_EQ(at_once.row(t)[i], apart.row(t)[i]) << "token " << t;
    EXPECT_EQ(bytes_of_cache(cache.keys(), dtype), bytes_of_cache(expected.keys(), dtype));
    EXPECT_EQ(bytes_of_cache(cache.values(), dtype), bytes_of_cache(expected.values(), dtype));
    EXPECT_TRUE(at_once.gaps_untouched());
  }
}

TEST(RopeKvWrite, NamesTheBrokenPrecondition) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Sequences cache({1, 8, 16, DType::float32}, {{2, 2}});
  const Rows q = Rows::random(2, 16, 1), k = Rows::random(2, 8, 2), v = Rows::random(2, 8, 3);
  const std::vector<std::int32_t> positions = {0, 1};
  const std::vector<float> inv_freq = {1, 0.5f, 0.25f, 0.125f};
  const RopeKvWriteParams good{q, k, v, positions.data(), inv_freq.data(), 1, cache.kv(), cache.view()};
  const auto broken = [&](auto change, const std::string& part) {
    RopeKvWriteParams params = good;
    change(params);
    expect_invalid([&] { rope_kv_write(params, stream); }, part);
  };
  rope_kv_write(good, stream);
  broken([](RopeKvWriteParams& p) { p.kv.head_dim = 7; }, "rope_kv_write: head_dim is 7, expected an even number");
  broken([](RopeKvWriteParams& p) { p.q.columns = 12; },
         "rope_kv_write: q has 12 columns: not a multiple of head_dim 8");
  broken([](RopeKvWriteParams& p) { p.k.rows = 1; }, "rope_kv_write: k is [1, 8], expected [2, 8]");
  broken([](RopeKvWriteParams& p) { p.v.columns = 4; }, "rope_kv_write: v is [2, 4], expected [2, 8]");
  broken([](RopeKvWriteParams& p) { p.q.data = nullptr; }, "rope_kv_write: q is null");
  broken([](RopeKvWriteParams& p) { p.kv.keys = nullptr; }, "rope_kv_write: ");
  broken([](RopeKvWriteParams& p) { p.positions = nullptr; }, "rope_kv_write: positions is null");
  broken([](RopeKvWriteParams& p) { p.inv_freq = nullptr; }, "rope_kv_write: inv_freq is null");
  stream.synchronize();
}

}  // namespace
}  // namespace heddle
