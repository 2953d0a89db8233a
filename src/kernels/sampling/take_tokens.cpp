#include "kernels/sampling/take_tokens.h"

#include <algorithm>

#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/preconditions.h"
#include "kernels/sampling/take_tokens_sm90.h"

namespace heddle {

void take_tokens(const TakeTokensParams& params, const Lane& lane) {
  require_array(params.tokens, params.num_tokens, "take_tokens", "tokens");
  require_array(params.chosen, params.num_chosen, "take_tokens", "chosen");
  if (params.num_tokens == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return take_tokens_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool&) {
    for (std::int32_t i = 0; i < params.num_tokens; ++i)
      if (const std::int32_t source = ~params.tokens[i]; source >= 0)
        params.tokens[i] = source < params.num_chosen ? std::max(params.chosen[source], 0) : 0;
  });
}

}  // namespace heddle
