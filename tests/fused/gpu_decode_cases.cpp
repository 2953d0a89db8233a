#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "fused/flash_decode/flash_decode.h"
#include "fused/gpu_rank.h"
#include "fused/numbers.h"

namespace heddle {
namespace {

constexpr int kGpuSequences = 3, kGpuMostKeys = 600, kGpuPage = 16;

// One rank's keys of all sequences. The pages of a sequence lie in reverse.
struct GpuKeys {
  std::vector<std::int32_t> counts, table;
  std::vector<float> keys, values;
  int pages_of_sequence = kGpuMostKeys / kGpuPage + 1;

  GpuKeys(std::vector<std::int32_t> counts_of, const GpuDecodeForm& form, std::uint32_t seed)
      : counts(std::move(counts_of)) {
    const auto sequences = static_cast<int>(counts.size());
    for (int s = 0; s < sequences; ++s)
      for (int p = 0; p < pages_of_sequence; ++p) table.push_back(s * pages_of_sequence + pages_of_sequence - 1 - p);
    const std::int64_t elements =
        std::int64_t{sequences} * pages_of_sequence * kGpuPage * form.kv_heads * form.head_dim;
    keys = numbers(elements, seed, DType::bfloat16);
    values = numbers(elements, seed + 1, DType::bfloat16);
  }

  std::size_t offset(const GpuDecodeForm& form, int sequence, int token, int kv_head) const {
    const PagedKv kv{.num_kv_heads = form.kv_heads, .page_size = kGpuPage, .head_dim = form.head_dim};
    return kv.offset(table[static_cast<std::size_t>(sequence * pages_of_sequence + token / kGpuPage)], kv_head,
                     token % kGpuPage);
  }
};

struct GpuDecodeCall {
  FlashDecodeParams params;
  std::vector<float> q;
  std::vector<std::unique_ptr<GpuKeys>> of_rank;

  std::vector<double> exact_head(const GpuDecodeForm& form, int sequence, int head) const {
    const int kv_head = head / (form.heads / form.kv_heads);
    const std::size_t q_at =
        static_cast<std::size_t>(sequence * form.heads + head) * static_cast<std::size_t>(form.head_dim);
    std::vector<double> y(static_cast<std::size_t>(form.head_dim));
    double sum = 0, most = -1e300;
    for (int pass = 0; pass < 2; ++pass)
      for (const auto& keys : of_rank)
        for (int token = 0; token < keys->counts[static_cast<std::size_t>(sequence)]; ++token) {
          const std::size_t at = keys->offset(form, sequence, token, kv_head);
          double score = 0;
          for (std::size_t d = 0; d < y.size(); ++d)
            score += static_cast<double>(q[q_at + d]) * static_cast<double>(keys->keys[at + d]);
          score *= static_cast<double>(params.scale);
          if (pass == 0) {
            most = std::max(most, score);
            continue;
          }
          const double weight = std::exp(score - most);
          sum += weight;
          for (std::size_t d = 0; d < y.size(); ++d) y[d] += weight * static_cast<double>(keys->values[at + d]);
        }
    for (double& one : y) one = sum == 0 ? 0 : one / sum;
    return y;
  }
};

void check_gpu_decode(const GpuRank& gpu, const GpuDecodeForm& form, const GpuDecodeCall& call, DecodeVariant variant,
                      int number) {
  const Tensor& y = call.params.y;
  std::vector<float> got(static_cast<std::size_t>(y.rows * y.columns));
  enqueue_copy(gpu.rank.stream, got.data(), y.data, got.size() * sizeof(float));
  gpu.rank.stream.synchronize();
  const int heads = static_cast<int>(y.rows) * form.heads;
  for (int i = 0; i < heads; i += heads / 7 + 1) {
    const std::vector<double> want = call.exact_head(form, i / form.heads, i % form.heads);
    for (std::size_t d = 0; d < want.size(); ++d) {
      const float one = got[static_cast<std::size_t>(i) * want.size() + d];
      if (!(std::abs(static_cast<double>(one) - want[d]) <= 2e-5))
        throw_error<Failure>("flash_decode {}: call {} on rank {}: sequence {} head {} column {} is {}, expected {}",
                             name_of(variant), number, gpu.me(), i / form.heads, i % form.heads, d, one, want[d]);
    }
  }
}

}  // namespace

FlashDecodeLimits gpu_decode_limits(const GpuDecodeForm& form) {
  return {.max_sequences = kGpuSequences,
          .num_heads = form.heads,
          .num_kv_heads = form.kv_heads,
          .head_dim = form.head_dim};
}

void decode_on_gpus(GpuRank& gpu, const GpuDecodeForm& form) {
  FlashDecode fused(gpu.rank.fabric, world_of(gpu.rank.fabric), gpu_decode_limits(form));
  gpu.run([&](int number) -> GpuRank::Call {
    auto call = std::make_shared<GpuDecodeCall>();
    const int sequences = static_cast<int>(gpu.shared.between(1, kGpuSequences));
    const auto variant = static_cast<DecodeVariant>(gpu.shared.between(0, 2));
    const auto seed = static_cast<std::uint32_t>(gpu.shared.between(0, 1 << 18));
    const std::int64_t columns = std::int64_t{form.heads} * form.head_dim;
    call->q = numbers(sequences * columns, seed, DType::float32);
    for (int r = 0; r < gpu.size(); ++r) {
      std::vector<std::int32_t> counts;
      for (int s = 0; s < sequences; ++s)  // some ranks have no keys
        counts.push_back(
            static_cast<std::int32_t>(gpu.shared.between(0, 2) == 0 ? 0 : gpu.shared.between(1, kGpuMostKeys)));
      call->of_rank.push_back(std::make_unique<GpuKeys>(counts, form, seed + 10 + static_cast<std::uint32_t>(r) * 2));
    }
    const GpuKeys& mine = *call->of_rank[static_cast<std::size_t>(gpu.me())];
    call->params = {
        .q = {gpu.room.put(gpu.rank.stream, encoded(call->q, DType::float32)), sequences, columns, columns},
        .y = {gpu.room.put_nans(gpu.rank.stream, call->q.size() * sizeof(float)), sequences, columns, columns},
        .kv = {gpu.room.put(gpu.rank.stream, encoded(mine.keys, form.dtype)),
               gpu.room.put(gpu.rank.stream, encoded(mine.values, form.dtype)), form.kv_heads, kGpuPage, form.head_dim,
               form.dtype},
        .sequences = {.context_len = gpu.room.put_array(gpu.rank.stream, mine.counts),
                      .page_table = gpu.room.put_array(gpu.rank.stream, mine.table),
                      .num_sequences = sequences,
                      .page_table_stride = mine.pages_of_sequence},
        .num_heads = form.heads,
        .scale = 1 / std::sqrt(static_cast<float>(form.head_dim))};
    return {.enqueue = [&gpu, &fused, call, variant] { fused(call->params, variant, gpu.lane(), gpu.transfers); },
            .check = [&gpu, call, variant, form, number] { check_gpu_decode(gpu, form, *call, variant, number); }};
  });
}

}  // namespace heddle
