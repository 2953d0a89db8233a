// What the CPU twins of fused blocks of a decode step do with numbers and rows (decode_block_cpu.h, latent_block_cpu.h).
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "base/dtype.h"
#include "base/tensor.h"

namespace heddle {

// T: the weights' type, to which activations are rounded.
template <class T>
class BlockRowsCpu {
 public:
  static float exp2(float x) { return std::exp2(x); }
  static T rounded(float x) {
    if constexpr (std::is_same_v<T, float>)
      return x;
    else if constexpr (std::is_same_v<T, bfloat16>)
      return to_bfloat16(x);
    else
      return to_float16(x);
  }
  static float load_shared(const float* from) { return *from; }

  static float to_float(float x) { return x; }
  static float to_float(bfloat16 x) { return heddle::to_float(x); }
  static float to_float(float16 x) { return heddle::to_float(x); }

  template <class Element>
  static Element* row(const Tensor& tensor, std::int64_t at) {
    return static_cast<Element*>(tensor.data) + at * tensor.row_stride;
  }

  // The residual with what is pending: `deltas` has num_deltas times the residual's rows.
  static float pending_sum(const Tensor& residual, const Tensor& deltas, int num_deltas, int token, int feature) {
    float sum = row<float>(residual, token)[feature];
    for (int i = 0; i < num_deltas; ++i) {
      const std::int64_t at = i * residual.rows + token;
      sum += deltas.dtype == DType::float32 ? row<float>(deltas, at)[feature] : to_float(row<T>(deltas, at)[feature]);
    }
    return sum;
  }
};

}  // namespace heddle
