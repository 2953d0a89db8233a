#include "layers/latent_rows.h"

#include <algorithm>
#include <limits>

namespace heddle {
namespace {

// The sequences of a step, or such as a dry run's shape may have.
StepSequence sequence_or_longest(const StepTensors& step, int index, int longest_context) {
  if (step.host_sequences != nullptr) return sequence_of(step, index);
  const bool all_equal = step.num_sequences * step.max_query_len == step.num_tokens;
  const int others = step.num_sequences - 1;
  StepSequence sequence{.num_tokens = step.max_query_len, .context_len = std::max(longest_context, step.max_query_len)};
  if (all_equal) {
    sequence.first_token = index * step.max_query_len;
  } else if (index < others) {  // the last is the longest
    const int rest = step.num_tokens - step.max_query_len, each = rest / others;
    sequence.first_token = index * each;
    sequence.num_tokens = index < others - 1 ? each : rest - index * each;
  } else {
    sequence.first_token = step.num_tokens - step.max_query_len;
  }
  return sequence;
}

// The new tokens of a sequence in the whole step, of which this may be a part: both parts of a sequence go the same way, so
// that the border changes no bit.
int tokens_in_step(const StepTensors& step, int index) {
  return step.host_sequences != nullptr ? step.host_sequences[index].num_tokens
                                        : sequence_or_longest(step, index, 0).num_tokens;
}

ExpandedSequence expanded_of(const StepSequence& sequence) {
  return {.num_tokens = sequence.num_tokens,
          .first_query = sequence.context_len - sequence.num_tokens,
          .num_keys = sequence.context_len};
}

}  // namespace

PagedSequences LatentRun::alone(int i) const {
  PagedSequences one = sequences;
  one.query_start += std::ptrdiff_t{2} * i;
  one.context_len += i;
  one.page_table = sequences.pages(i);
  one.max_query_len = expanded[i].num_tokens;
  return one;
}

int most_absorbed_tokens(const LatentDims& dims) {
  const std::int64_t saved =
      std::int64_t{2} * dims.latent - dims.nope - dims.value;  // cached_dim has rope, query_dim too
  if (saved <= 0) return std::numeric_limits<int>::max();
  return static_cast<int>(std::int64_t{dims.latent} * (dims.nope + dims.value) / saved);
}

void for_each_run(const StepTensors& step, const LatentLimits& limits, FunctionRef<void(const LatentRun&)> use) {
  const int longest_context = limits.longest_context;
  const auto is_absorbed = [&](int index) { return tokens_in_step(step, index) <= limits.most_absorbed; };
  PagedSequences all{.query_start = step.query_start,
                     .context_len = step.context_len,
                     .page_table = step.page_table,
                     .num_sequences = step.num_sequences,
                     .page_table_stride = step.page_table_stride,
                     .max_query_len = step.max_query_len};
  int index = 0;
  LatentRun first{.sequences = all};
  first.sequences.max_query_len = 0;
  for (; index < step.num_sequences && is_absorbed(index); ++index) {
    const StepSequence sequence = sequence_or_longest(step, index, longest_context);
    first.num_rows += sequence.num_tokens;
    first.sequences.max_query_len = std::max(first.sequences.max_query_len, sequence.num_tokens);
  }
  first.sequences.num_sequences = index;
  if (index > 0) use(first);
  while (index < step.num_sequences) {
    const StepSequence sequence = sequence_or_longest(step, index, longest_context);
    LatentRun run{.sequences = {.query_start = step.alone_start + std::ptrdiff_t{2} * index,
                                .context_len = step.context_len + index,
                                .page_table = all.pages(index),
                                .num_sequences = 1,
                                .page_table_stride = step.page_table_stride,
                                .max_query_len = sequence.num_tokens},
                  .first_row = sequence.first_token,
                  .num_rows = sequence.num_tokens,
                  .by_itself = true};
    ++index;
    if (!is_absorbed(index - 1)) {
      run.way = LatentWay::expanded;
      run.expanded.add(expanded_of(sequence));
      for (; index < step.num_sequences && !is_absorbed(index); ++index) {
        const StepSequence next = sequence_or_longest(step, index, longest_context);
        ExpandedSequences together = run.expanded;
        if (together.count == kMostExpandedSequences) break;
        together.add(expanded_of(next));
        if (together.num_key_rows() > limits.piece_keys) break;
        run.expanded = together;
        run.num_rows += next.num_tokens;
      }
    }
    use(run);
  }
}

}  // namespace heddle
