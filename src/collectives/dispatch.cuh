// From run-time values to the parameters of templates.
#pragma once

#include "base/dtype.h"
#include "collectives/communicator.h"

namespace heddle {

// f.operator()<T>() with the element type.
template <class F>
void with_element(DType dtype, const F& f) {
  switch (dtype) {
    case DType::float32:
      return f.template operator()<float>();
    case DType::bfloat16:
      return f.template operator()<bfloat16>();
    case DType::float16:
      return f.template operator()<float16>();
  }
}

// f.operator()<kAtOnce>(): from how many ranks a lane has packets under way at once. On the CPU it matters little.
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
