#include "step/step_plan.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace heddle {

void StepPlan::clear() {
  tokens.clear();
  positions.clear();
  sequences.clear();
  pages.clear();
  samples.clear();
  page_copies.clear();
}

void StepPlan::reserve(const StepLimits& limits) {
  tokens.reserve(static_cast<std::size_t>(limits.max_tokens));
  positions.reserve(static_cast<std::size_t>(limits.max_tokens));
  sequences.reserve(static_cast<std::size_t>(limits.max_sequences));
  pages.reserve(static_cast<std::size_t>(limits.max_sequences) *
                static_cast<std::size_t>(limits.max_pages_per_sequence));
  samples.reserve(static_cast<std::size_t>(limits.max_samples));
  page_copies.reserve(static_cast<std::size_t>(limits.max_sequences));
}

void validate(const StepPlan& plan, const StepLimits& limits, int page_size, int num_pages, std::int64_t vocab_size) {
  require(std::ssize(plan.tokens) <= limits.max_tokens && std::ssize(plan.sequences) <= limits.max_sequences &&
              std::ssize(plan.samples) <= limits.max_samples,
          "step: {} tokens of {} sequences with {} samples, the limits are {}, {} and {}", plan.tokens.size(),
          plan.sequences.size(), plan.samples.size(), limits.max_tokens, limits.max_sequences, limits.max_samples);
  require(plan.positions.size() == plan.tokens.size(), "step: {} tokens but {} positions", plan.tokens.size(),
          plan.positions.size());
  std::int64_t next_row = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const StepSequence& sequence = plan.sequences[i];
    require(sequence.num_tokens >= 1 && sequence.context_len >= sequence.num_tokens,
            "step: sequence {} has {} new tokens in a context of {}", i, sequence.num_tokens, sequence.context_len);
    require(sequence.first_token == next_row, "step: sequence {} begins at row {}, expected {}", i,
            sequence.first_token, next_row);
    next_row += sequence.num_tokens;
    require(next_row <= std::ssize(plan.tokens), "step: sequence {} ends at row {}, but there are {} tokens", i,
            next_row, plan.tokens.size());
    for (int j = 0; j < sequence.num_tokens; ++j) {
      const auto row = static_cast<std::size_t>(sequence.first_token + j);
      const int position = sequence.context_len - sequence.num_tokens + j;
      require(plan.positions[row] == position, "step: row {} is at position {}, expected {}", row, plan.positions[row],
              position);
      require(plan.tokens[row] >= 0 && plan.tokens[row] < vocab_size, "step: row {} has token {}, outside [0, {})", row,
              plan.tokens[row], vocab_size);
    }
    require(sequence.first_page >= 0 && sequence.num_pages >= ceil_div(sequence.context_len, page_size) &&
                std::int64_t{sequence.first_page} + sequence.num_pages <= std::ssize(plan.pages),
            "step: sequence {} has {} pages for a context of {}", i, sequence.num_pages, sequence.context_len);
    require(sequence.num_pages <= limits.max_pages_per_sequence, "step: sequence {} has {} pages, the limit is {}", i,
            sequence.num_pages, limits.max_pages_per_sequence);
    for (int page = 0; page < sequence.num_pages; ++page) {
      const int number = plan.pages[static_cast<std::size_t>(sequence.first_page + page)];
      require(number >= 0 && number < num_pages, "step: sequence {} uses page {}, outside [0, {})", i, number,
              num_pages);
    }
  }
  require(next_row == std::ssize(plan.tokens), "step: the sequences have {} rows, but there are {} tokens", next_row,
          plan.tokens.size());
  for (const PageCopy& copy : plan.page_copies)
    require(copy.from >= 0 && copy.from < num_pages && copy.to >= 0 && copy.to < num_pages && copy.from != copy.to,
            "step: a copy of page {} to page {} of {}", copy.from, copy.to, num_pages);
  std::int64_t last_row = -1;
  for (const StepSample& sample : plan.samples) {
    require(sample.row > last_row && sample.row < next_row, "step: a sample at row {} after row {} of {}", sample.row,
            last_row, next_row);
    last_row = sample.row;
    require(sample.sequence >= 0 && sample.sequence < std::ssize(plan.sequences), "step: a sample of sequence {} of {}",
            sample.sequence, plan.sequences.size());
    const StepSequence& sequence = plan.sequences[static_cast<std::size_t>(sample.sequence)];
    require(sample.row >= sequence.first_token && sample.row < sequence.first_token + sequence.num_tokens,
            "step: row {} does not belong to sequence {}", sample.row, sample.sequence);
    require(sample.scored >= StepSample::kNone && sample.scored < vocab_size,
            "step: row {} scores token {}, outside [0, {})", sample.row, sample.scored, vocab_size);
  }
}

StepTensors place(const StepPlan& plan, const StepLimits& limits, Arena& arena) {
  const auto take = [&](int count) { return arena.take_array<std::int32_t>(static_cast<std::size_t>(count)); };
  const int stride = limits.max_pages_per_sequence;
  std::int32_t* tokens = take(limits.max_tokens);
  std::int32_t* positions = take(limits.max_tokens);
  std::int32_t* query_start = take(limits.max_sequences + 1);
  std::int32_t* context_len = take(limits.max_sequences);
  std::int32_t* page_table =
      arena.take_array<std::int32_t>(static_cast<std::size_t>(limits.max_sequences) * static_cast<std::size_t>(stride));
  std::int32_t* logit_rows = take(limits.max_samples);

  std::ranges::copy(plan.tokens, tokens);
  std::ranges::copy(plan.positions, positions);
  int max_query_len = 0;
  for (std::size_t i = 0; i < plan.sequences.size(); ++i) {
    const StepSequence& sequence = plan.sequences[i];
    max_query_len = std::max(max_query_len, sequence.num_tokens);
    query_start[i] = sequence.first_token;
    context_len[i] = sequence.context_len;
    std::copy_n(plan.pages.begin() + sequence.first_page, sequence.num_pages,
                page_table + i * static_cast<std::size_t>(stride));
  }
  query_start[plan.sequences.size()] = static_cast<std::int32_t>(plan.tokens.size());
  std::ranges::transform(plan.samples, logit_rows, &StepSample::row);

  return {.tokens = tokens,
          .positions = positions,
          .query_start = query_start,
          .context_len = context_len,
          .page_table = page_table,
          .logit_rows = logit_rows,
          .num_tokens = static_cast<int>(plan.tokens.size()),
          .num_sequences = static_cast<int>(plan.sequences.size()),
          .page_table_stride = stride,
          .num_logit_rows = static_cast<int>(plan.samples.size()),
          .max_query_len = max_query_len};
}

std::size_t placed_bytes(const StepLimits& limits) {
  const auto array = [](std::int64_t count) {
    return Arena::rounded(static_cast<std::size_t>(count) * sizeof(std::int32_t));
  };
  return 2 * array(limits.max_tokens) + array(limits.max_sequences + 1) + array(limits.max_sequences) +
         array(std::int64_t{limits.max_sequences} * limits.max_pages_per_sequence) + array(limits.max_samples);
}

}  // namespace heddle
