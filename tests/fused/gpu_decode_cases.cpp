#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <memory>
#include <numeric>
#include <vector>

#include "base/buffer.h"
#include "base/checked.h"
#include "fused/flash_decode/flash_decode.h"
#include "fused/gpu_rank.h"
#include "fused/numbers.h"
#include "kernels/attention/attention.h"

namespace heddle {
namespace {

constexpr int kGpuSequences = 16, kGpuPage = 16;
constexpr std::int64_t kMostKeysOfCall = 2400;  // of a rank

// One rank's keys of all sequences. The pages of a sequence lie in reverse. Slots and pages without a key hold NaN.
struct GpuKeys {
  std::vector<std::int32_t> counts, table;
  std::vector<float> keys, values;
  int pages_of_sequence;

  GpuKeys(std::vector<std::int32_t> counts_of, const GpuDecodeForm& form, std::uint32_t seed)
      : counts(std::move(counts_of)),
        pages_of_sequence(*std::max_element(counts.begin(), counts.end()) / kGpuPage + 2) {
    const auto sequences = static_cast<int>(counts.size());
    for (int s = 0; s < sequences; ++s)
      for (int p = 0; p < pages_of_sequence; ++p) table.push_back(s * pages_of_sequence + pages_of_sequence - 1 - p);
    const std::int64_t elements =
        std::int64_t{sequences} * pages_of_sequence * kGpuPage * form.kv_heads * form.head_dim;
    keys = numbers(elements, seed, DType::bfloat16);
    values = form.value_dim > 0 ? keys : numbers(elements, seed + 1, DType::bfloat16);
    for (int s = 0; s < sequences; ++s)
      for (int token = counts[static_cast<std::size_t>(s)]; token < pages_of_sequence * kGpuPage; ++token)
        for (int head = 0; head < form.kv_heads; ++head) {
          const auto at = static_cast<std::ptrdiff_t>(offset(form, s, token, head));
          std::fill_n(keys.begin() + at, form.head_dim, std::nanf(""));
          std::fill_n(values.begin() + at, form.head_dim, std::nanf(""));
        }
  }

  std::size_t offset(const GpuDecodeForm& form, int sequence, int token, int kv_head) const {
    const PagedKv kv{.num_kv_heads = form.kv_heads, .page_size = kGpuPage, .head_dim = form.head_dim};
    return kv.offset(table[static_cast<std::size_t>(sequence * pages_of_sequence + token / kGpuPage)], kv_head,
                     token % kGpuPage);
  }
};

// What a head is in float64, and what rounding weights to the cache's dtype may lose of each element.
struct ExactHead {
  std::vector<double> y, magnitude;
};

struct GpuDecodeCall {
  FlashDecodeParams params;
  Tensor again;  // y of another call
  DecodeVariant variant, variant_again;
  std::vector<float> q;
  std::vector<std::unique_ptr<GpuKeys>> of_rank;

  ExactHead exact_head(const GpuDecodeForm& form, int sequence, int head) const {
    const int kv_head = head / (form.heads / form.kv_heads);
    const std::size_t q_at =
        static_cast<std::size_t>(sequence * form.heads + head) * static_cast<std::size_t>(form.head_dim);
    const auto columns = static_cast<std::size_t>(form.head_dim);
    std::vector<double> y(form.value_dim > 0 ? static_cast<std::size_t>(form.value_dim) : columns), magnitude(y.size());
    double sum = 0, most = -1e300;
    for (int pass = 0; pass < 2; ++pass)
      for (const auto& keys : of_rank)
        for (int token = 0; token < keys->counts[static_cast<std::size_t>(sequence)]; ++token) {
          const std::size_t at = keys->offset(form, sequence, token, kv_head);
          double score = 0;
          for (std::size_t d = 0; d < columns; ++d)
            score += static_cast<double>(q[q_at + d]) * static_cast<double>(keys->keys[at + d]);
          score *= static_cast<double>(params.scale);
          if (pass == 0) {
            most = std::max(most, score);
            continue;
          }
          const double weight = std::exp(score - most);
          sum += weight;
          for (std::size_t d = 0; d < y.size(); ++d) {
            y[d] += weight * static_cast<double>(keys->values[at + d]);
            magnitude[d] += weight * std::abs(static_cast<double>(keys->values[at + d]));
          }
        }
    for (std::vector<double>* of : {&y, &magnitude})
      for (double& one : *of) one = sum == 0 ? 0 : one / sum;
    return {std::move(y), std::move(magnitude)};
  }
};

std::vector<float> downloaded(const GpuRank& gpu, const Tensor& y) {
  std::vector<float> got(static_cast<std::size_t>(y.rows * y.columns));
  enqueue_copy(gpu.rank.stream, got.data(), y.data, got.size() * sizeof(float));
  gpu.rank.stream.synchronize();
  return got;
}

void check_gpu_decode(const GpuRank& gpu, const GpuDecodeForm& form, const GpuDecodeCall& call, int number) {
  const Tensor& y = call.params.y;
  const std::vector<float> got = downloaded(gpu, y), again = downloaded(gpu, call.again);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(again[i]))
      throw_error<Failure>("flash_decode {}: call {} on rank {}: element {} of {} is {}, and {} by {}",
                           name_of(call.variant), number, gpu.me(), i, got.size(), got[i], again[i],
                           name_of(call.variant_again));
  const double rounding = form.dtype == DType::float32 ? 0 : form.dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
  const int heads = static_cast<int>(y.rows) * form.heads;
  for (int i = 0; i < heads; i += heads / 7 + 1) {
    const ExactHead want = call.exact_head(form, i / form.heads, i % form.heads);
    for (std::size_t d = 0; d < want.y.size(); ++d) {
      const float one = got[static_cast<std::size_t>(i) * static_cast<std::size_t>(form.head_dim) + d];
      if (!(std::abs(static_cast<double>(one) - want.y[d]) <= 2e-5 + rounding * want.magnitude[d]))
        throw_error<Failure>("flash_decode {}: call {} on rank {}: sequence {} head {} column {} is {}, expected {}",
                             name_of(call.variant), number, gpu.me(), i / form.heads, i % form.heads, d, one,
                             want.y[d]);
    }
  }
}

// What a GPU's attention needs beside a call's operands: as an engine, once for all calls of a stream.
struct GpuDecodeRoom {
  Buffer scratch, plans;
  std::size_t plan_bytes;
  int next = 0;

  GpuDecodeRoom(const GpuRank& gpu, const GpuDecodeForm& form)
      : scratch(attention_scratch_bytes(kGpuSequences, kGpuSequences, form.heads, form.head_dim),
                gpu.rank.fabric.device()),
        plan_bytes(round_up(form.value_dim > 0 ? latent_plan_bytes(kGpuSequences, kGpuSequences, form.heads)
                                               : attention_plan_bytes(kGpuSequences, form.kv_heads),
                            std::size_t{256})) {
    plans = Buffer(plan_bytes * static_cast<std::size_t>(gpu.rank.course.calls_in_flight), gpu.rank.fabric.device());
    enqueue_clear(gpu.rank.stream, scratch.data(), scratch.size_bytes());
    gpu.rank.stream.synchronize();
  }

  std::byte* plan(const GpuRank& gpu) {
    return plans.data() + static_cast<std::size_t>(next++ % gpu.rank.course.calls_in_flight) * plan_bytes;
  }
};

}  // namespace

FlashDecodeLimits gpu_decode_limits(const GpuDecodeForm& form) {
  return {.max_sequences = kGpuSequences,
          .num_heads = form.heads,
          .num_kv_heads = form.kv_heads,
          .head_dim = form.head_dim,
          .value_dim = form.value_dim};
}

void decode_on_gpus(GpuRank& gpu, const GpuDecodeForm& form) {
  FlashDecode fused(gpu.rank.fabric, world_of(gpu.rank.fabric), gpu_decode_limits(form));
  GpuDecodeRoom attention(gpu, form);
  gpu.run([&](int number) -> GpuRank::Call {
    constexpr std::array kSequences = {1, 1, 2, 3, 7, kGpuSequences};
    auto call = std::make_shared<GpuDecodeCall>();
    const int sequences = kSequences[static_cast<std::size_t>(gpu.shared.between(0, std::ssize(kSequences) - 1))];
    call->variant = static_cast<DecodeVariant>(gpu.shared.between(0, 2));
    call->variant_again = static_cast<DecodeVariant>(gpu.shared.between(0, 2));
    const auto seed = static_cast<std::uint32_t>(gpu.shared.between(0, 1 << 18));
    const std::int64_t columns = std::int64_t{form.heads} * form.head_dim;
    call->q = numbers(sequences * columns, seed, form.dtype);  // not rounded to the cache's dtype once more
    for (int r = 0; r < gpu.size(); ++r) {
      std::vector<std::int32_t> counts;
      for (int s = 0; s < sequences; ++s)  // some ranks have no keys
        counts.push_back(static_cast<std::int32_t>(
            gpu.shared.between(0, 2) == 0 ? 0 : gpu.shared.between(1, kMostKeysOfCall / sequences)));
      call->of_rank.push_back(std::make_unique<GpuKeys>(counts, form, seed + 10 + static_cast<std::uint32_t>(r) * 2));
    }
    const GpuKeys& mine = *call->of_rank[static_cast<std::size_t>(gpu.me())];
    std::vector<std::int32_t> rows(static_cast<std::size_t>(sequences) + 1);
    std::iota(rows.begin(), rows.end(), 0);
    const auto no_result = [&]() -> Tensor {
      return {gpu.room.put_nans(gpu.rank.stream, call->q.size() * sizeof(float)), sequences, columns, columns};
    };
    call->again = no_result();
    std::byte* const plan = attention.plan(gpu);
    auto* const keys = gpu.room.put(gpu.rank.stream, encoded(mine.keys, form.dtype));
    auto* const values = form.value_dim > 0 ? keys : gpu.room.put(gpu.rank.stream, encoded(mine.values, form.dtype));
    call->params = {.q = {gpu.room.put(gpu.rank.stream, encoded(call->q, DType::float32)), sequences, columns, columns},
                    .y = no_result(),
                    .kv = {keys, values, form.kv_heads, kGpuPage, form.head_dim, form.dtype},
                    .sequences = {.query_start = gpu.room.put_array(gpu.rank.stream, rows),
                                  .context_len = gpu.room.put_array(gpu.rank.stream, mine.counts),
                                  .page_table = gpu.room.put_array(gpu.rank.stream, mine.table),
                                  .num_sequences = sequences,
                                  .page_table_stride = mine.pages_of_sequence,
                                  .max_query_len = 1},
                    .num_heads = form.heads,
                    .scale = 1 / std::sqrt(static_cast<float>(form.head_dim)),
                    .value_dim = form.value_dim,
                    .scratch = attention.scratch.data(),
                    .plan = plan};
    const auto enqueue = [&gpu, &fused, call, plan, plan_bytes = attention.plan_bytes] {
      const FlashDecodeParams& params = call->params;
      plan_attention({.kv = params.kv,
                      .sequences = params.sequences,
                      .num_tokens = params.q.rows,
                      .num_heads = params.num_heads,
                      .value_dim = params.value_dim,
                      .plan = plan,
                      .plan_bytes = plan_bytes},
                     gpu.lane());
      fused(params, call->variant, gpu.lane(), gpu.transfers);
      FlashDecodeParams once_more = params;
      once_more.y = call->again;
      fused(once_more, call->variant_again, gpu.lane(), gpu.transfers);
    };
    return {.enqueue = enqueue, .check = [&gpu, call, form, number] { check_gpu_decode(gpu, form, *call, number); }};
  });
}

}  // namespace heddle
