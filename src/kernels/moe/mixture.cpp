#include "kernels/moe/mixture.h"

#include <algorithm>

#include "base/alignment.h"
#include "base/error.h"
#include "kernels/dry_run.h"
#include "kernels/moe/mixture_sm90.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

// Whether the kernels read rows as they lie: whole packs of 16 bytes.
bool is_packed(const Tensor& rows) {
  return rows.columns % 8 == 0 && rows_are_aligned(rows);
}

bool is_plain(const Weight& weight, DType dtype) {
  return weight.dtype == dtype && weight.bias == nullptr && rows_are_aligned(weight);
}

void require_shapes(const MixtureParams& params) {
  const std::int64_t hidden = params.x.columns, intermediate = params.gated.columns;
  const auto has_shape = [](const Weight& weight, std::int64_t rows, std::int64_t columns) {
    return weight.out_features == rows && weight.in_features == columns;
  };
  for (int e = 0; e < params.gate_up.count; ++e)
    require(has_shape(params.gate_up.weights[e], 2 * intermediate, hidden) &&
                has_shape(params.down.weights[e], hidden, intermediate),
            "mixture: expert {} is not of {} features between {}", e, intermediate, hidden);
  require(params.gate_up.count == params.down.count && params.logits.columns == params.gate_up.count,
          "mixture: {} logits for {} and {} experts", params.logits.columns, params.gate_up.count, params.down.count);
  require(!params.has_shared() || (has_shape(params.shared_gate_up, 2 * params.shared_gated.columns, hidden) &&
                                   has_shape(params.shared_down, hidden, params.shared_gated.columns)),
          "mixture: the shared experts are not of {} features between {}", params.shared_gated.columns, hidden);
  const std::int64_t tokens = params.x.rows;
  require(params.logits.rows == tokens && params.y.rows == tokens && params.y.columns == hidden &&
              params.gated.rows == tokens * params.rule.top_k &&
              (!params.has_shared() || params.shared_gated.rows == tokens),
          "mixture: rows of logits, scratch or y are not those of {} tokens", tokens);
  require_array(params.experts, tokens * params.rule.top_k, "mixture", "experts");
}

}  // namespace

bool mixture_takes(const MixtureParams& params, Device device) {
  if (!kHaveCuda || device.kind != DeviceKind::cuda) return false;
  const DType dtype = params.x.dtype;
  const auto plain = [dtype](const Weight& weight) { return is_plain(weight, dtype); };
  const auto all_plain = [&](const WeightGroup& group) {
    return std::all_of(group.weights, group.weights + group.count, plain);
  };
  return size_of(dtype) == 2 && params.x.rows <= kMixtureTokens && params.gate_up.count <= kMixtureExperts &&
         params.logits.dtype == DType::float32 && params.gated.dtype == dtype &&
         (params.y.dtype == dtype || params.y.dtype == DType::float32) && is_packed(params.x) &&
         is_packed(params.gated) && all_plain(params.gate_up) && all_plain(params.down) &&
         (!params.has_shared() || (plain(params.shared_gate_up) && plain(params.shared_down) &&
                                   params.shared_gated.dtype == dtype && is_packed(params.shared_gated)));
}

void mixture(const MixtureParams& params, const Lane& lane) {
  require_rule(params.logits, params.rule, "mixture");
  require_shapes(params);
  require(mixture_takes(params, lane.stream.device()), "mixture: these operands are not for its kernels");
  if (params.x.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) mixture_sm90(params, lane);
}

}  // namespace heddle
