#include "kernels/attention/attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention/attention_bf16_dot.h"
#include "kernels/attention/attention_part.h"
#include "kernels/attention/attention_sm90.h"
#include "kernels/attention/attention_sums.h"
#include "kernels/cpu_target.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "kernels/attention/attention.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/attention/attention-inl.h"
#include "kernels/attention/attention_loop-inl.h"
#include "kernels/attention/attention_rounded-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

void attend_part(const AttentionParams& params, const AttentionPart& part) {
  if (rounds_products(params)) return attend<RoundedProducts>(params, part);
  with_element(params.kv.dtype, [&]<class T>() { attend<WidenedProducts<T>>(params, part); });
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {
namespace {

HWY_EXPORT(attend_part);

// How a step is cut into parts. The cut decides what is read together, never a result.
struct Cut {
  const AttentionParams& params;
  int group;           // query heads per KV head
  int heads_per_part;  // of a group; the last part may have fewer
  int head_parts;      // per group
  int tokens_per_part;

  Cut(const AttentionParams& of, int num_threads)
      : params(of),
        group(of.num_heads / of.kv.num_kv_heads),
        heads_per_part(heads_of_part(of, num_threads)),
        head_parts(ceil_div(group, heads_per_part)),
        tokens_per_part(rows_of_part(of, num_threads) / heads_per_part) {}

  // Heads of a group stay together, as each part reads the keys once for all of its rows. But a decode step of few
  // sequences has fewer groups than there are threads, one with latent attention; then threads share a group's heads.
  static int heads_of_part(const AttentionParams& of, int num_threads) {
    constexpr int kFewest = 4;  // fewer rows cost little less than the keys that they read
    const int group = of.num_heads / of.kv.num_kv_heads, most = std::min(group, max_rows(of.kv.head_dim));
    const std::int64_t tokens_of_part = std::max(1, rows_of_part(of, num_threads) / most);
    const std::int64_t tokens = std::max<std::int64_t>(of.sequences.num_sequences, ceil_div(of.q.rows, tokens_of_part));
    const std::int64_t parts = tokens * of.kv.num_kv_heads * ceil_div(group, most);
    if (parts == 0 || parts >= num_threads) return most;
    return std::clamp(static_cast<int>(ceil_div(std::int64_t{group}, ceil_div(std::int64_t{num_threads}, parts))),
                      std::min(kFewest, most), most);
  }

  // The more rows, the less often keys are widened and transposed. But each thread needs many parts for load balance.
  static int rows_of_part(const AttentionParams& of, int num_threads) {
    constexpr int kPartsOfThread = 16, kFewest = 32;
    const std::int64_t share = of.q.rows * of.num_heads / (num_threads * kPartsOfThread);
    const int most = max_rows(of.kv.head_dim);
    const int fewest = std::max(of.num_heads / of.kv.num_kv_heads, kFewest);
    return static_cast<int>(std::min<std::int64_t>(most, std::max<std::int64_t>(share, fewest)));
  }

  std::int64_t parts_of(int sequence) const {
    return std::int64_t{ceil_div(params.sequences.num_new_tokens(sequence), tokens_per_part)} * head_parts *
           params.kv.num_kv_heads;
  }

  // Part `index` of a sequence. Late tokens see the most keys and come first, so the last parts are short.
  AttentionPart at(int sequence, std::int64_t index) const {
    const auto head_part = static_cast<int>(index % head_parts);
    const auto kv_head = static_cast<int>(index / head_parts % params.kv.num_kv_heads);
    const auto tiles_after = static_cast<int>(index / head_parts / params.kv.num_kv_heads);
    const int num_tiles = ceil_div(params.sequences.num_new_tokens(sequence), tokens_per_part);
    const int first_token = (num_tiles - 1 - tiles_after) * tokens_per_part;
    const int first_head = head_part * heads_per_part;
    return {.sequence = sequence,
            .first_token = first_token,
            .num_tokens = std::min(tokens_per_part, params.sequences.num_new_tokens(sequence) - first_token),
            .kv_head = kv_head,
            .first_head = kv_head * group + first_head,
            .num_heads = std::min(heads_per_part, group - first_head)};
  }
};

AttendPart loop_for(const AttentionParams& params) {
  if (rounds_products(params) && cpu_target().name == "AVX3")  // and no test has chosen another one
    if (const AttendPart attend = attend_part_bf16_dot()) return attend;
  return HWY_DYNAMIC_DISPATCH(attend_part);
}

void attention_cpu(const AttentionParams& params, ThreadPool& pool, FunctionRef<void(const AttentionPart&)> done) {
  const Cut cut(params, pool.num_threads());
  const int num_sequences = params.sequences.num_sequences;
  std::int64_t num_parts = 0, work = 0;
  for (int sequence = 0; sequence < num_sequences; ++sequence) {
    const int context_len = params.sequences.context_len[sequence];
    num_parts += cut.parts_of(sequence);
    work += cut.parts_of(sequence) * (params.window > 0 ? std::min(params.window, context_len) : context_len);
  }
  if (num_parts == 0) return;
  const std::int64_t work_per_part = work / num_parts * params.kv.head_dim * cut.tokens_per_part;

  const AttendPart attend = loop_for(params);
  pool.parallel_for(num_parts, rows_per_piece(work_per_part), [&](std::int64_t begin, std::int64_t end) {
    int sequence = 0;
    std::int64_t before = 0;  // parts of earlier sequences
    for (std::int64_t part = begin; part < end; ++part) {
      for (; part - before >= cut.parts_of(sequence); ++sequence) before += cut.parts_of(sequence);
      const AttentionPart at = cut.at(sequence, part - before);
      attend(params, at);
      done(at);
    }
  });
}

// The checks that attention() and plan_attention() share.
void require_shapes(const PagedKv& kv, const PagedSequences& sequences, std::int64_t num_tokens, int num_heads,
                    int window, const Lane& lane) {
  require_paged_kv(kv, sequences, num_tokens, "attention");
  require(kv.head_dim <= kMaxHeadDim, "attention: head_dim is {}, at most {} are supported", kv.head_dim, kMaxHeadDim);
  require(num_heads > 0 && num_heads % kv.num_kv_heads == 0,
          "attention: num_heads {} is not a multiple of num_kv_heads {}", num_heads, kv.num_kv_heads);
  require(window >= 0, "attention: window is {}, expected 0 for none, or a number of keys", window);
  if (num_tokens == 0 || lane.stream.device().kind != DeviceKind::cuda) return;
  require(sequences.max_query_len >= 1 && sequences.max_query_len <= num_tokens,
          "attention: max_query_len is {}, expected 1 to {}, the step's tokens", sequences.max_query_len, num_tokens);
}

void require_value_dim(int value_dim, const PagedKv& kv) {
  require(value_dim >= 0 && value_dim <= kv.head_dim, "attention: value_dim is {}, expected 0 to head_dim, {}",
          value_dim, kv.head_dim);
}

}  // namespace

std::size_t attention_scratch_bytes(int max_tokens, int max_sequences, int num_heads, int head_dim) {
  if constexpr (kHaveCuda) return attention_scratch_bytes_sm90(max_tokens, max_sequences, num_heads, head_dim);
  return 0;
}

std::size_t attention_plan_bytes(int max_sequences, int num_kv_heads) {
  if constexpr (kHaveCuda) return attention_plan_bytes_sm90(max_sequences, num_kv_heads);
  return 0;
}

std::size_t latent_plan_bytes(std::int64_t max_tokens, int max_sequences, int num_heads) {
  if constexpr (kHaveCuda) return latent_plan_bytes_sm90(max_tokens, max_sequences, num_heads);
  return 0;
}

void plan_attention(const AttentionPlanParams& params, const Lane& lane) {
  require_shapes(params.kv, params.sequences, params.num_tokens, params.num_heads, params.window, lane);
  require_value_dim(params.value_dim, params.kv);
  if (params.num_tokens == 0 || lane.stream.device().kind != DeviceKind::cuda) return;
  const std::size_t wanted =
      params.value_dim > 0 ? latent_plan_bytes(params.num_tokens, params.sequences.num_sequences, params.num_heads)
                           : attention_plan_bytes(params.sequences.num_sequences, params.kv.num_kv_heads);
  require(params.plan != nullptr, "attention: plan is null");
  require(is_aligned(params.plan), "attention: plan is not at a multiple of 16 bytes");
  require(params.plan_bytes >= wanted, "attention: has a plan of {} bytes and wants {}", params.plan_bytes, wanted);
  if (recorded(params, lane)) return;
  if constexpr (kHaveCuda) plan_attention_sm90(params, lane);
}

void require_attention(const AttentionParams& params, const Lane& lane) {
  require_shapes(params.kv, params.sequences, params.q.rows, params.num_heads, params.window, lane);
  require_value_dim(params.value_dim, params.kv);
  const std::int64_t columns = std::int64_t{params.num_heads} * params.kv.head_dim;
  require_activation(params.q, params.q.rows, columns, "attention", "q",
                     activations_on(lane.stream, ActivationDTypes::float32));
  require_activation(params.y, params.q.rows, columns, "attention", "y",
                     activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  const bool on_gpu = lane.stream.device().kind == DeviceKind::cuda, sums = params.sums.first != nullptr;
  const int group = params.num_heads / params.kv.num_kv_heads;
  require(!sums || params.sums.bytes_apart >= AttentionSums::bytes(group, params.sum_columns()),
          "attention: units of sums {} bytes apart, expected {} at least", params.sums.bytes_apart,
          AttentionSums::bytes(group, params.sum_columns()));
  if (params.q.rows == 0 || !on_gpu) return;
  require(params.scratch != nullptr, "attention: scratch is null");
  require(params.plan != nullptr, "attention: plan is null");
}

void attend_now(const AttentionParams& params, ThreadPool& pool, FunctionRef<void(const AttendedUnits&)> done) {
  const PagedSequences& sequences = params.sequences;
  // A unit whose heads are in several parts is complete when all are.
  const bool at_once = Cut(params, pool.num_threads()).head_parts == 1;
  attention_cpu(params, pool, [&](const AttentionPart& part) {
    if (at_once)
      done({.first_token = sequences.query_start[part.sequence] + part.first_token,
            .num_tokens = part.num_tokens,
            .kv_head = part.kv_head});
  });
  for (int kv_head = 0; !at_once && kv_head < params.kv.num_kv_heads; ++kv_head)
    done({.first_token = 0, .num_tokens = static_cast<int>(params.q.rows), .kv_head = kv_head});
}

void attention(const AttentionParams& params, const Lane& lane) {
  require_attention(params, lane);
  require(params.sums.first != nullptr || params.kv.shard.ranks == 1,
          "attention: the cache is one of {} ranks', so there must be sums", params.kv.shard.ranks);
  if (params.q.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return attention_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { attention_cpu(params, pool, [](const AttentionPart&) {}); });
}

}  // namespace heddle
#endif
