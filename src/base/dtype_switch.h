// From a dtype that is known at run time to a type: the one switch over dtypes.
#pragma once

#include "base/dtype.h"

namespace heddle {

// f.operator()<T>() with the element type: float, bfloat16 or float16.
template <class F>
constexpr decltype(auto) with_element(DType dtype, const F& f) {
  switch (dtype) {
    case DType::bfloat16:
      return f.template operator()<bfloat16>();
    case DType::float16:
      return f.template operator()<float16>();
    case DType::float32:
      break;
  }
  return f.template operator()<float>();
}

// The same for a dtype of 16 bits.
template <class F>
constexpr decltype(auto) with_16_bit_element(DType dtype, const F& f) {
  return dtype == DType::bfloat16 ? f.template operator()<bfloat16>() : f.template operator()<float16>();
}

}  // namespace heddle
