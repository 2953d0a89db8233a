#include "kernels/attention/rope_kv_write.h"

#include "base/error.h"
#include "kernels/attention/kv_write.h"
#include "kernels/attention/rope.h"
#include "kernels/attention/rope_kv_write_sm90.h"
#include "kernels/dry_run.h"
#include "kernels/preconditions.h"

namespace heddle {

void rope_kv_write(const RopeKvWriteParams& params, const Lane& lane) {
  const PagedKv& kv = params.kv;
  const Tensor &q = params.q, &k = params.k, &v = params.v;
  require_paged_kv(kv, params.sequences, q.rows, "rope_kv_write");
  require(kv.head_dim % 2 == 0, "rope_kv_write: head_dim is {}, expected an even number", kv.head_dim);
  require(q.columns % kv.head_dim == 0, "rope_kv_write: q has {} columns: not a multiple of head_dim {}", q.columns,
          kv.head_dim);
  const std::int64_t columns = std::int64_t{kv.num_kv_heads} * kv.head_dim;
  const ActivationDTypes dtypes = activations_on(lane.stream, ActivationDTypes::float32);
  require_activation(q, q.rows, q.columns, "rope_kv_write", "q", dtypes);
  require_activation(k, q.rows, columns, "rope_kv_write", "k", dtypes);
  require_activation(v, q.rows, columns, "rope_kv_write", "v", dtypes);
  require(q.dtype == k.dtype && q.dtype == v.dtype, "rope_kv_write: q is {}, k {}, v {}: expected the same",
          name_of(q.dtype), name_of(k.dtype), name_of(v.dtype));
  require_array(params.positions, q.rows, "rope_kv_write", "positions");
  require_array(params.inv_freq, q.rows, "rope_kv_write", "inv_freq");
  if (q.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda && rope_kv_write_takes(params))
      return rope_kv_write_sm90(params, lane);
  }
  rope({.q = q,
        .k = k,
        .positions = params.positions,
        .inv_freq = params.inv_freq,
        .head_dim = kv.head_dim,
        .scale = params.scale},
       lane);
  kv_write({.k = k, .v = v, .kv = kv, .sequences = params.sequences}, lane);
}

}  // namespace heddle
