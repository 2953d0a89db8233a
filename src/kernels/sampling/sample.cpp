#include "kernels/sampling/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"
#include "kernels/sampling/random.h"
#include "kernels/sampling/sample_sm90.h"

namespace heddle {
namespace {

// In descending order of logits; ties by smaller id, so that the order of candidates does not matter.
bool larger(const SampleCandidate& a, const SampleCandidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Applies penalties and biases. `candidates`: all, in order of ids.
void adjust(const SampleRow& row, std::span<SampleCandidate> candidates) {
  for (const HistoryToken& token : std::span(row.history, static_cast<std::size_t>(row.num_history))) {
    if (token.id < 0 || token.id >= std::ssize(candidates)) continue;
    double& logit = candidates[static_cast<std::size_t>(token.id)].logit;
    if (token.count != HistoryToken::kUnseen)
      logit = logit > 0 ? logit / row.repetition_penalty : logit * row.repetition_penalty;
    if (token.count > 0) logit -= row.presence_penalty + row.frequency_penalty * token.count;
    logit += static_cast<double>(token.bias);
  }
}

std::span<SampleCandidate> keep_top_k(std::span<SampleCandidate> candidates, std::int32_t k) {
  if (k == 0 || k >= std::ssize(candidates)) return candidates;
  std::ranges::nth_element(candidates, candidates.begin() + k, larger);
  return candidates.first(static_cast<std::size_t>(k));
}

std::span<SampleCandidate> keep_top_p(std::span<SampleCandidate> candidates, double p) {
  if (p >= 1) return candidates;
  std::ranges::sort(candidates, larger);
  double total = 0;
  for (const SampleCandidate& candidate : candidates) total += std::exp(candidate.logit);
  double sum = 0;
  std::size_t kept = 0;
  while (kept < candidates.size() && (kept == 0 || sum < p * total)) sum += std::exp(candidates[kept++].logit);
  return candidates.first(kept);
}

std::span<SampleCandidate> keep_min_p(std::span<SampleCandidate> candidates, double min_p) {
  if (min_p == 0) return candidates;
  // Logits are relative to the largest, which is 0, so exp(logit) is the probability relative to the largest one.
  const auto end = std::remove_if(candidates.begin(), candidates.end(),
                                  [&](const SampleCandidate& candidate) { return std::exp(candidate.logit) < min_p; });
  return candidates.first(static_cast<std::size_t>(end - candidates.begin()));
}

void sample_rows(const SampleParams& params, std::int64_t begin, std::int64_t end) {
  const auto vocab_size = static_cast<std::size_t>(params.logits.columns);
  for (std::int64_t r = begin; r < end; ++r) {
    const float* logits = static_cast<const float*>(params.logits.data) + r * params.logits.row_stride;
    const SampleRow& row = params.rows[r];
    params.tokens[r] = argmax_of(logits, params.logits.columns);
    if (params.tokens[r] == kUnsoundRow || (row.temperature == 0 && !row.adjusted())) continue;
    params.tokens[r] =
        sample_of({logits, vocab_size}, row, {params.scratch + static_cast<std::size_t>(r) * vocab_size, vocab_size});
  }
}

}  // namespace

std::int32_t sample_of(std::span<const float> logits, const SampleRow& row, std::span<SampleCandidate> scratch) {
  std::span<SampleCandidate> candidates = scratch.first(logits.size());
  for (std::size_t id = 0; id < logits.size(); ++id)
    candidates[id] = {static_cast<std::int32_t>(id), static_cast<double>(logits[id])};
  if (row.adjusted()) adjust(row, candidates);
  const SampleCandidate largest = *std::ranges::min_element(candidates, larger);
  if (row.temperature == 0) return largest.id;

  // Subtracts the largest first, so that a tiny temperature does not overflow.
  for (SampleCandidate& candidate : candidates) candidate.logit = (candidate.logit - largest.logit) / row.temperature;
  candidates = keep_min_p(keep_top_p(keep_top_k(candidates, row.top_k), row.top_p), row.min_p);
  for (SampleCandidate& candidate : candidates) {
    const double u =
        uniform(row.seed, static_cast<std::uint32_t>(row.position), static_cast<std::uint32_t>(candidate.id));
    candidate.logit -= std::log(-std::log(u));
  }
  return std::ranges::min_element(candidates, larger)->id;
}

void sample(const SampleParams& params, const Lane& lane) {
  const Tensor& logits = params.logits;
  const bool on_gpu = lane.stream.device().kind == DeviceKind::cuda;
  require_activation(logits, logits.rows, logits.columns, "sample", "logits");
  require(logits.columns <= std::numeric_limits<std::int32_t>::max(), "sample: a row has {} logits", logits.columns);
  require(!on_gpu || logits.columns <= kMostGpuVocabulary, "sample: a row has {} logits, a GPU takes {}",
          logits.columns, kMostGpuVocabulary);
  require_array(params.rows, logits.rows, "sample", "rows");
  require_array(params.tokens, logits.rows, "sample", "tokens");
  require_array(params.scratch, on_gpu ? 0 : logits.rows, "sample", "scratch");
  if (logits.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (on_gpu) return sample_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) {
    pool.parallel_for(params.logits.rows, rows_per_piece(32 * params.logits.columns),
                      [&](std::int64_t begin, std::int64_t end) { sample_rows(params, begin, end); });
  });
}

}  // namespace heddle
