#include "kernels/moe/route.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/moe/route_sm90.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

using Scores = std::array<float, kMaxExperts>;

bool is_sound(std::span<const float> logits) {
  return std::ranges::none_of(logits,
                              [](float l) { return std::isnan(l) || l == std::numeric_limits<float>::infinity(); }) &&
         std::ranges::any_of(logits, [](float l) { return std::isfinite(l); });
}

void score_softmax(std::span<const float> logits, Scores& scores) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  for (std::size_t e = 0; e < logits.size(); ++e) scores[e] = static_cast<float>(std::exp(logits[e] - largest) / sum);
}

void score_sigmoid(std::span<const float> logits, Scores& scores) {
  for (std::size_t e = 0; e < logits.size(); ++e)
    scores[e] = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(logits[e]))));
}

// Excluded candidates are below every number.
constexpr float kExcluded = -std::numeric_limits<float>::infinity();

// Of equal ones the first.
std::size_t largest_of(std::span<const float> values) {
  return static_cast<std::size_t>(std::ranges::max_element(values) - values.begin());
}

float score_of(std::span<const float> group, GroupScore kind) {
  float first = kExcluded, second = kExcluded;
  for (const float value : group) {
    second = std::max(second, std::min(first, value));
    first = std::max(first, value);
  }
  return kind == GroupScore::largest || group.size() == 1 ? first : first + second;
}

// Excludes the experts of all groups but the best ones.
void limit_groups(const RouteRule& rule, std::span<float> candidates) {
  Scores group_scores;
  const auto num_groups = static_cast<std::size_t>(rule.num_groups);
  const std::size_t size = candidates.size() / num_groups;
  for (std::size_t g = 0; g < num_groups; ++g)
    group_scores[g] = score_of(candidates.subspan(g * size, size), rule.group_score);
  std::array<bool, kMaxExperts> chosen{};
  for (int i = 0; i < rule.top_groups; ++i) {
    const std::size_t best = largest_of(std::span(group_scores).first(num_groups));
    chosen[best] = true;
    group_scores[best] = kExcluded;
  }
  for (std::size_t e = 0; e < candidates.size(); ++e)
    if (!chosen[e / size]) candidates[e] = kExcluded;
}

void route_row(const RouteParams& params, std::int64_t token) {
  const RouteRule& rule = params.rule;
  const auto num_experts = static_cast<std::size_t>(params.logits.columns);
  const auto top_k = static_cast<std::size_t>(rule.top_k);
  const std::span logits(static_cast<const float*>(params.logits.data) + token * params.logits.row_stride, num_experts);
  std::int32_t* experts = params.experts + token * rule.top_k;
  float* weights = params.weights + token * rule.top_k;
  if (!is_sound(logits)) {
    for (int k = 0; k < rule.top_k; ++k) experts[k] = k;
    std::fill_n(weights, top_k, std::numeric_limits<float>::quiet_NaN());
    return;
  }
  Scores scores{};
  rule.score == RouterScore::softmax ? score_softmax(logits, scores) : score_sigmoid(logits, scores);
  Scores choice = scores;
  const std::span candidates = std::span(choice).first(num_experts);
  if (params.bias != nullptr)
    for (std::size_t e = 0; e < num_experts; ++e) candidates[e] += params.bias[e];
  if (rule.num_groups > rule.top_groups) limit_groups(rule, candidates);
  float sum = 0;
  for (std::size_t k = 0; k < top_k; ++k) {
    const std::size_t best = largest_of(candidates);
    candidates[best] = kExcluded;
    experts[k] = static_cast<std::int32_t>(best);
    weights[k] = scores[best];
    sum += weights[k];
  }
  for (std::size_t k = 0; k < top_k; ++k) {
    if (rule.normalized) weights[k] /= sum + 1e-20f;
    weights[k] *= rule.scale;
  }
}

}  // namespace

void require_rule(const Tensor& logits, const RouteRule& rule, std::string_view op) {
  const std::int64_t num_experts = logits.columns;
  require_activation(logits, logits.rows, num_experts, op, "logits");
  require(num_experts <= kMaxExperts, "{}: {} experts, at most {}", op, num_experts, kMaxExperts);
  require(rule.num_groups >= 1 && num_experts % rule.num_groups == 0, "{}: {} experts in {} groups", op, num_experts,
          rule.num_groups);
  require(rule.top_groups >= 1 && rule.top_groups <= rule.num_groups, "{}: the best {} of {} groups", op,
          rule.top_groups, rule.num_groups);
  const std::int64_t candidates = num_experts / rule.num_groups * rule.top_groups;
  require(rule.top_k >= 1 && rule.top_k <= kMaxTopExperts && rule.top_k <= candidates,
          "{}: the best {} of {} experts, at most {}", op, rule.top_k, candidates, kMaxTopExperts);
}

void route(const RouteParams& params, const Lane& lane) {
  require_rule(params.logits, params.rule, "route");
  require_array(params.experts, params.logits.rows, "route", "experts");
  require_array(params.weights, params.logits.rows, "route", "weights");
  if (params.logits.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return route_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) {
    pool.parallel_for(params.logits.rows, rows_per_piece(32 * params.logits.columns),
                      [&](std::int64_t begin, std::int64_t end) {
                        for (std::int64_t token = begin; token < end; ++token) route_row(params, token);
                      });
  });
}

}  // namespace heddle
