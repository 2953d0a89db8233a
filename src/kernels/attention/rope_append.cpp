#include "kernels/attention/rope_append.h"

#include "base/error.h"
#include "kernels/attention/kv_append.h"
#include "kernels/attention/rope.h"
#include "kernels/attention/rope_append_sm90.h"
#include "kernels/dry_run.h"
#include "kernels/preconditions.h"

namespace heddle {

void rope_append(const RopeAppendParams& params, const Lane& lane) {
  const PagedKv& kv = params.kv;
  const Tensor &q = params.q, &k = params.k, &v = params.v;
  require_paged_kv(kv, params.sequences, q.rows, "rope_append");
  require_shard(kv, lane.stream, "rope_append");
  require(kv.head_dim % 2 == 0, "rope_append: head_dim is {}, expected an even number", kv.head_dim);
  require(q.columns % kv.head_dim == 0, "rope_append: q has {} columns: not a multiple of head_dim {}", q.columns,
          kv.head_dim);
  const std::int64_t columns = std::int64_t{kv.num_kv_heads} * kv.head_dim;
  const ActivationDTypes dtypes = activations_on(lane.stream, ActivationDTypes::float32);
  require_activation(q, q.rows, q.columns, "rope_append", "q", dtypes);
  require_activation(k, q.rows, columns, "rope_append", "k", dtypes);
  require_activation(v, q.rows, columns, "rope_append", "v", dtypes);
  require(q.dtype == k.dtype && q.dtype == v.dtype, "rope_append: q is {}, k {}, v {}: expected the same",
          name_of(q.dtype), name_of(k.dtype), name_of(v.dtype));
  require_array(params.positions, q.rows, "rope_append", "positions");
  require_array(params.inv_freq, q.rows, "rope_append", "inv_freq");
  if (q.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda && rope_append_takes(params))
      return rope_append_sm90(params, lane);
  }
  rope({.q = q,
        .k = k,
        .positions = params.positions,
        .inv_freq = params.inv_freq,
        .head_dim = kv.head_dim,
        .scale = params.scale},
       lane);
  kv_append({.k = k, .v = v, .kv = kv, .sequences = params.sequences}, lane);
}

}  // namespace heddle
