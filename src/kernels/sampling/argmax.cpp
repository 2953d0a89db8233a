#include "kernels/sampling/argmax.h"

#include <limits>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"
#include "kernels/preconditions.h"
#include "kernels/sampling/argmax_sm90.h"

namespace heddle {

std::int32_t argmax_of(const float* logits, std::int64_t vocab_size) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::int64_t largest = 0;
  for (std::int64_t id = 0; id < vocab_size; ++id) {
    if (!(logits[id] < kInfinity)) return kUnsoundRow;  // NaN too
    if (logits[id] > logits[largest]) largest = id;
  }
  return logits[largest] == -kInfinity ? kUnsoundRow : static_cast<std::int32_t>(largest);
}

void argmax(const ArgmaxParams& params, const Lane& lane) {
  const Tensor& logits = params.logits;
  require_activation(logits, logits.rows, logits.columns, "argmax", "logits");
  require(logits.columns <= std::numeric_limits<std::int32_t>::max(), "argmax: a row has {} logits", logits.columns);
  require_array(params.tokens, logits.rows, "argmax", "tokens");
  if (logits.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return argmax_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) {
    pool.parallel_for(
        params.logits.rows, rows_per_piece(params.logits.columns), [&](std::int64_t begin, std::int64_t end) {
          for (std::int64_t row = begin; row < end; ++row)
            params.tokens[row] = argmax_of(
                static_cast<const float*>(params.logits.data) + row * params.logits.row_stride, params.logits.columns);
        });
  });
}

}  // namespace heddle
