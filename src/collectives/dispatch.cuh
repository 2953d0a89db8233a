// From run-time values to the parameters of templates; with_element comes from base/dtype_switch.h.
#pragma once

#include "base/dtype_switch.h"
#include "collectives/communicator.h"

namespace heddle {

// f.operator()<kAtOnce>(), the number of ranks whose packets a lane loads at once. On the CPU it matters little.
template <class F>
void with_at_once(const Communicator& communicator, const F& f) {
#ifdef __CUDACC__
  if (communicator.size() <= 2) return f.template operator()<2>();
  if (communicator.size() > 4) return f.template operator()<8>();
#else
  static_cast<void>(communicator);
#endif
  f.template operator()<4>();
}

}  // namespace heddle
