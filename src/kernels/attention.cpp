#include "kernels/attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention_part.h"
#include "kernels/attention_sm90.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

template <class W>
HWY_INLINE void widen(const W* source, int count, int padded_count, float* destination) {
  int i = 0;
  for (; i + kWidth <= count; i += kWidth) hn::StoreU(load(source + i), Floats(), destination + i);
  for (; i < count; ++i) destination[i] = to_float(source[i]);
  for (; i < padded_count; ++i) destination[i] = 0;
}

// The part's view of keys or values at positions [begin, end), widened and side by side.
template <class W>
void load_positions(const PagedKv& kv, const void* pages, const std::int32_t* page_table, int head, int begin, int end,
                    float* destination) {
  const int width = padded(kv.head_dim);
  int page_idx = begin / kv.page_size, slot = begin % kv.page_size;
  for (int position = begin; position < end; ++page_idx, slot = 0) {
    const int count = std::min(kv.page_size - slot, end - position);
    const W* source = static_cast<const W*>(pages) + kv.offset(page_table[page_idx], head, slot);
    for (int i = 0; i < count; ++i, ++position, source += kv.head_dim, destination += width)
      widen(source, kv.head_dim, width, destination);
  }
}

template <class Y>
HWY_INLINE void divide_row(const float* o, float sum, Y* y, int head_dim) {
  const Vector sums = hn::Set(Floats(), sum);
  int i = 0;
  for (; i + kWidth <= head_dim; i += kWidth) store(hn::Div(load(o + i), sums), y + i);
  for (; i < head_dim; ++i) store_one(o[i] / sum, y + i);
}

template <class W>
void attend(const AttentionParams& params, const AttentionPart& part) {
  const PagedKv& kv = params.kv;
  const PagedSequences& sequences = params.sequences;
  const int head_dim = kv.head_dim;
  const int width = padded(head_dim);
  const int at_once = keys_at_once(head_dim);
  const std::int32_t* page_table = sequences.pages(part.sequence);
  const std::int64_t first_row = sequences.query_start[part.sequence] + part.first_token;
  const int first_position =
      sequences.context_len[part.sequence] - sequences.num_new_tokens(part.sequence) + part.first_token;
  const int num_rows = part.num_rows();

  Scratch scratch;
  for (int row = 0; row < num_rows; ++row) {
    const std::int64_t token = first_row + row / part.num_heads;
    const int head = part.first_head + row % part.num_heads;
    widen(static_cast<const float*>(params.q.data) + token * params.q.row_stride + std::int64_t{head} * head_dim,
          head_dim, width, scratch.q + row * width);
    if (num_rows >= kFewestRowsToTurn) turn_query(scratch.q + row * width, width);
    scratch.largest[row] = -std::numeric_limits<float>::infinity();
    scratch.sum[row] = 0;
  }
  std::fill_n(scratch.o, num_rows * width, 0.0f);

  const int first_key = first_visible(first_position, params.window);  // what comes before, nobody here sees
  const int end_key = first_position + part.num_tokens;                // the last token sees what comes before
  for (int block = first_key / kBlockKeys * kBlockKeys; block < end_key; block += kBlockKeys) {
    const int block_begin = std::max(first_key - block, 0);
    const int block_end = std::min(end_key - block, kBlockKeys);
    const auto visible = [&](int row) {
      return visible_keys(part, row, first_position, params.window, block, block_end);
    };
    const auto for_each_load = [&](const void* pages, auto use) {
      for (int first = block_begin / at_once * at_once; first < block_end; first += at_once) {
        const Keys keys{.first = first,
                        .begin = std::max(first, block_begin),
                        .end = std::min(first + at_once, block_end),
                        .width = width};
        load_positions<W>(kv, pages, page_table, part.kv_head, block + keys.begin, block + keys.end,
                          scratch.kv + (keys.begin - first) * width);
        use(keys);
      }
    };
    for_each_load(kv.keys, [&](const Keys& keys) {
      score_block(scratch, num_rows, keys, std::min(at_once, kBlockKeys - keys.first), params.scale);
    });
    for (int row = 0; row < num_rows; ++row) {
      const auto [begin, end] = visible(row);
      if (begin < end) weigh_row(scratch, row, begin, end, width);
    }
    for_each_load(kv.values, [&](const Keys& keys) { add_visible_values(scratch, num_rows, keys, visible); });
  }

  for (int row = 0; row < num_rows; ++row) {
    const std::int64_t token = first_row + row / part.num_heads;
    const int head = part.first_head + row % part.num_heads;
    const std::int64_t y = token * params.y.row_stride + std::int64_t{head} * head_dim;
    const float* o = scratch.o + row * width;
    if (params.y.dtype == DType::bfloat16)
      divide_row(o, scratch.sum[row], static_cast<bfloat16*>(params.y.data) + y, head_dim);
    else
      divide_row(o, scratch.sum[row], static_cast<float*>(params.y.data) + y, head_dim);
  }
}

void attend_part(const AttentionParams& params, const AttentionPart& part) {
  switch (params.kv.dtype) {
    case DType::float32:
      return attend<float>(params, part);
    case DType::bfloat16:
      return attend<bfloat16>(params, part);
    case DType::float16:
      return attend<float16>(params, part);
  }
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
  int group;           // query heads of a KV head
  int heads_per_part;  // of a group; the last part may have fewer
  int head_parts;      // of a group
  int tokens_per_part;

  Cut(const AttentionParams& of, int num_threads)
      : params(of),
        group(of.num_heads / of.kv.num_kv_heads),
        heads_per_part(std::min(group, max_rows(of.kv.head_dim))),
        head_parts(ceil_div(group, heads_per_part)),
        tokens_per_part(rows_of_part(of, num_threads) / heads_per_part) {}

  // The more, the less often keys are widened and turned; but each thread should get many parts, so that all end
  // together.
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

  // Part `index` of a sequence. Late tokens see the most keys and come first: what is left at the end is short.
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

void attention_cpu(const AttentionParams& params, ThreadPool& pool) {
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

  const auto attend = HWY_DYNAMIC_DISPATCH(attend_part);
  pool.parallel_for(num_parts, rows_per_piece(work_per_part), [&](std::int64_t begin, std::int64_t end) {
    int sequence = 0;
    std::int64_t before = 0;  // parts of earlier sequences
    for (std::int64_t part = begin; part < end; ++part) {
      for (; part - before >= cut.parts_of(sequence); ++sequence) before += cut.parts_of(sequence);
      attend(params, cut.at(sequence, part - before));
    }
  });
}

}  // namespace

std::size_t attention_scratch_bytes(int max_tokens, int max_sequences, int num_heads, int head_dim) {
  if constexpr (kHaveCuda) return attention_scratch_bytes_sm90(max_tokens, max_sequences, num_heads, head_dim);
  return 0;
}

void attention(const AttentionParams& params, Stream& stream) {
  require_paged_kv(params.kv, params.sequences, params.q.rows, "attention");
  require(params.kv.head_dim <= kMaxHeadDim, "attention: head_dim is {}, at most {} are supported", params.kv.head_dim,
          kMaxHeadDim);
  require(params.num_heads > 0 && params.num_heads % params.kv.num_kv_heads == 0,
          "attention: num_heads {} is not a multiple of num_kv_heads {}", params.num_heads, params.kv.num_kv_heads);
  require(params.window >= 0, "attention: window is {}, expected 0 for none, or a number of keys", params.window);
  const std::int64_t columns = std::int64_t{params.num_heads} * params.kv.head_dim;
  require_activation(params.q, params.q.rows, columns, "attention", "q",
                     activations_on(stream, ActivationDTypes::float32));
  require_activation(params.y, params.q.rows, columns, "attention", "y",
                     activations_on(stream, ActivationDTypes::with_bfloat16));
  if (params.q.rows == 0) return;
  if (stream.device().kind == DeviceKind::cuda) {
    require(params.scratch != nullptr, "attention: scratch is null");
    require(params.sequences.max_query_len >= 1 && params.sequences.max_query_len <= params.q.rows,
            "attention: max_query_len is {}, expected 1 to {}, the step's tokens", params.sequences.max_query_len,
            params.q.rows);
    if constexpr (kHaveCuda) return attention_sm90(params, stream);
  }
  stream.enqueue([params](ThreadPool& pool) { attention_cpu(params, pool); });
}

}  // namespace heddle
#endif
