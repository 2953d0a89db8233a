#include "step/step_plan.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "step/arena.h"

namespace heddle {
namespace {

// A step's border cuts one sequence at most.
int most_page_tables(const StepLimits& limits) {
  return limits.max_sequences + limits.max_parts - 1;
}

// Byte offsets of the arrays of the largest step. The page tables come last: a step with few sequences need not copy
// the rest.
struct Layout {
  std::size_t tokens, positions, query_start, context_len, alone_start, logit_rows, page_table;

  explicit Layout(const StepLimits& limits) {
    std::size_t end = 0;
    const auto take = [&](int count) {
      const std::size_t begin = end;
      end += Arena::rounded(static_cast<std::size_t>(count) * sizeof(std::int32_t));
      return begin;
    };
    tokens = take(limits.max_tokens);
    positions = take(limits.max_tokens);
    query_start = take(most_page_tables(limits) + limits.max_parts);
    context_len = take(most_page_tables(limits));
    alone_start = take(2 * most_page_tables(limits));
    logit_rows = take(limits.max_samples);
    page_table = end;
  }
};

std::int32_t* array_at(std::byte* base, std::size_t offset) {
  return reinterpret_cast<std::int32_t*>(base + offset);
}

}  // namespace

void StepPlan::clear() {
  tokens.clear();
  positions.clear();
  sequences.clear();
  pages.clear();
  samples.clear();
  page_copies.clear();
  prefix_tokens = 0;
  choices = {};
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

void validate(const StepPlan& plan, const StepLimits& limits, int page_size, int num_pages, std::int64_t vocab_size,
              int num_chosen) {
  require(std::ssize(plan.tokens) <= limits.max_tokens && std::ssize(plan.sequences) <= limits.max_sequences &&
              std::ssize(plan.samples) <= limits.max_samples,
          "step: {} tokens of {} sequences with {} samples, the limits are {}, {} and {}", plan.tokens.size(),
          plan.sequences.size(), plan.samples.size(), limits.max_tokens, limits.max_sequences, limits.max_samples);
  require(plan.positions.size() == plan.tokens.size(), "step: {} tokens but {} positions", plan.tokens.size(),
          plan.positions.size());
  require(plan.prefix_tokens >= 0 && (plan.prefix_tokens == 0 || plan.prefix_tokens < std::ssize(plan.tokens)),
          "step: {} of {} tokens in the first part", plan.prefix_tokens, plan.tokens.size());
  require(plan.prefix_tokens == 0 || limits.max_parts == kMostParts, "step: in two parts, the limit is {}",
          limits.max_parts);
  if (plan.choices.decode.fused()) {
    require(limits.fused_decode, "step: with fused attention, which the limits have not");
    require(is_decode(plan) && plan.prefix_tokens == 0,
            "step: fused attention for {} tokens of {} sequences with {} samples, {} tokens in the first part",
            plan.tokens.size(), plan.sequences.size(), plan.samples.size(), plan.prefix_tokens);
  }
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
      require(plan.tokens[row] >= -num_chosen && plan.tokens[row] < vocab_size,
              "step: row {} has token {}, outside [0, {})", row, plan.tokens[row], vocab_size);
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

StepShape shape_of(const StepPlan& plan) {
  StepShape shape{.num_tokens = static_cast<int>(plan.tokens.size()),
                  .num_sequences = static_cast<int>(plan.sequences.size()),
                  .num_logit_rows = static_cast<int>(plan.samples.size()),
                  .parts = parts_of(plan),
                  .choices = plan.choices};
  for (const StepSequence& sequence : plan.sequences) {
    shape.max_query_len = std::max(shape.max_query_len, sequence.num_tokens);
    shape.max_context_len = std::max(shape.max_context_len, sequence.context_len);
  }
  return shape;
}

StepTensors tensors_at(std::byte* seen_at, const StepShape& shape, const StepLimits& limits) {
  const Layout layout(limits);
  const auto array = [&](std::size_t offset) { return array_at(seen_at, offset); };
  StepTensors step{.tokens = array(layout.tokens),
                   .positions = array(layout.positions),
                   .query_start = array(layout.query_start),
                   .context_len = array(layout.context_len),
                   .page_table = array(layout.page_table),
                   .alone_start = array(layout.alone_start),
                   .logit_rows = array(layout.logit_rows),
                   .num_tokens = shape.num_tokens,
                   .num_sequences = shape.num_sequences,
                   .page_table_stride = limits.max_pages_per_sequence,
                   .num_logit_rows = shape.num_logit_rows,
                   .max_query_len = shape.max_query_len,
                   .max_context_len = shape.max_context_len,
                   .limits = limits,
                   .choices = shape.choices};
  if (shape.parts.front().num_tokens == 0) return step;
  std::ptrdiff_t tables = 0, starts = 0;  // of earlier parts
  for (std::size_t i = 0; i < shape.parts.size(); ++i) {
    step.parts[i] = {.shape = shape.parts[i],
                     .query_start = step.query_start + starts,
                     .context_len = step.context_len + tables,
                     .page_table = step.page_table + tables * step.page_table_stride,
                     .alone_start = step.alone_start + 2 * tables};
    tables += shape.parts[i].num_sequences;
    starts += shape.parts[i].num_sequences + 1;
  }
  step.query_start = step.context_len = step.page_table = step.alone_start = nullptr;
  return step;
}

StepSequence sequence_of(const StepTensors& step, int index) {
  StepSequence sequence = step.host_sequences[index];
  const std::int32_t begin = sequence.first_token - step.host_first_token, end = begin + sequence.num_tokens;
  sequence.first_token = std::max(begin, 0);
  sequence.context_len -= std::max(end - step.num_tokens, 0);
  sequence.num_tokens = std::min(end, step.num_tokens) - sequence.first_token;
  return sequence;
}

StepTensors part_at(const StepTensors& step, int index) {
  if (step.num_parts() == 1) return step;
  const StepPart& part = step.parts[static_cast<std::size_t>(index)];
  return {.tokens = step.tokens + part.shape.first_token,
          .positions = step.positions + part.shape.first_token,
          .query_start = part.query_start,
          .context_len = part.context_len,
          .page_table = part.page_table,
          .alone_start = part.alone_start,
          .host_sequences = step.host_sequences == nullptr ? nullptr : step.host_sequences + part.shape.first_sequence,
          .host_first_token = step.host_first_token + part.shape.first_token,
          .num_tokens = part.shape.num_tokens,
          .num_sequences = part.shape.num_sequences,
          .page_table_stride = step.page_table_stride,
          .max_query_len = part.shape.max_query_len,
          .max_context_len = step.max_context_len,
          .limits = step.limits,
          .choices = step.choices};
}

StepTensors place(const StepPlan& plan, const StepLimits& limits, std::byte* memory, std::byte* seen_at) {
  const Layout layout(limits);
  std::int32_t* query_start = array_at(memory, layout.query_start);
  std::int32_t* context_len = array_at(memory, layout.context_len);
  std::int32_t* page_table = array_at(memory, layout.page_table);
  std::int32_t* alone_start = array_at(memory, layout.alone_start);
  const auto stride = static_cast<std::size_t>(limits.max_pages_per_sequence);

  std::ranges::copy(plan.tokens, array_at(memory, layout.tokens));
  std::ranges::copy(plan.positions, array_at(memory, layout.positions));
  const StepShape shape = shape_of(plan);
  const auto place_sequences = [&](const PartShape& part) {
    const int end = part.first_token + part.num_tokens;
    for (int i = 0; i < part.num_sequences; ++i) {
      const StepSequence& sequence = plan.sequences[static_cast<std::size_t>(part.first_sequence + i)];
      *query_start++ = std::max(sequence.first_token - part.first_token, 0);
      // Without the new tokens that a later part has.
      *context_len++ = sequence.context_len - std::max(sequence.first_token + sequence.num_tokens - end, 0);
      *alone_start++ = 0;
      *alone_start++ =
          std::min(sequence.first_token + sequence.num_tokens, end) - std::max(sequence.first_token, part.first_token);
      std::copy_n(plan.pages.begin() + sequence.first_page, sequence.num_pages, page_table);
      page_table += stride;
    }
    *query_start++ = part.num_tokens;
  };
  if (plan.prefix_tokens == 0)
    place_sequences({.num_tokens = shape.num_tokens, .num_sequences = shape.num_sequences});
  else
    std::ranges::for_each(shape.parts, place_sequences);
  std::ranges::transform(plan.samples, array_at(memory, layout.logit_rows), &StepSample::row);
  StepTensors step = tensors_at(seen_at, shape, limits);
  step.host_sequences = plan.sequences.data();
  return step;
}

std::size_t placed_bytes(const StepLimits& limits) {
  return placed_bytes(limits, most_page_tables(limits));
}

std::size_t placed_bytes(const StepLimits& limits, int num_page_tables) {
  const std::size_t rows =
      static_cast<std::size_t>(num_page_tables) * static_cast<std::size_t>(limits.max_pages_per_sequence);
  return Layout(limits).page_table + Arena::rounded(rows * sizeof(std::int32_t));
}

void pad_decode(const StepPlan& plan, int batch, int page_size, int spare_page, StepPlan& padded) {
  padded.clear();
  padded.tokens.assign(plan.tokens.begin(), plan.tokens.end());
  padded.positions.assign(plan.positions.begin(), plan.positions.end());
  padded.sequences.assign(plan.sequences.begin(), plan.sequences.end());
  padded.pages.assign(plan.pages.begin(), plan.pages.end());
  padded.samples.assign(plan.samples.begin(), plan.samples.end());
  padded.page_copies.assign(plan.page_copies.begin(), plan.page_copies.end());
  padded.prefix_tokens = plan.prefix_tokens;
  padded.choices = plan.choices;
  const auto first_page = static_cast<std::int32_t>(padded.pages.size());
  const int num_pages = spare_pages_for(batch - static_cast<int>(plan.sequences.size()), page_size);
  for (int page = 0; page < num_pages; ++page) padded.pages.push_back(spare_page + page);
  // Each added sequence has its own position, so that no slot is written twice; it attends to what the others wrote
  // before it.
  for (int added = 0; static_cast<int>(padded.sequences.size()) < batch; ++added) {
    const auto row = static_cast<std::int32_t>(padded.tokens.size());
    padded.samples.push_back({.sequence = static_cast<std::int32_t>(padded.sequences.size()),
                              .row = row,
                              .position = added + 1,
                              .params = {}});
    padded.sequences.push_back({.request = -1,
                                .first_token = row,
                                .num_tokens = 1,
                                .context_len = added + 1,
                                .first_page = first_page,
                                .num_pages = spare_pages_for(added + 1, page_size)});
    padded.tokens.push_back(0);
    padded.positions.push_back(added);
  }
}

int spare_pages_for(int num_added, int page_size) {
  return ceil_div(std::max(num_added, 0), page_size);
}

bool is_decode(const StepPlan& plan) {
  return !plan.sequences.empty() && plan.tokens.size() == plan.sequences.size() &&
         plan.samples.size() == plan.sequences.size();
}

bool awaits_tokens(const StepPlan& plan) {
  return std::ranges::any_of(plan.tokens, [](std::int32_t token) { return token < 0; });
}

}  // namespace heddle
