// What the kernels of fused blocks of a decode step do with weights and rows (decode_block_sm90.cu, latent_block_sm90.cu).
#pragma once

#include <cstdint>

#include "base/tensor.h"
#include "kernels/sm90/convert_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle::sm90 {

// Copies of 16 bytes into shared memory, in groups that a thread waits for.
__device__ inline void copy_once(std::uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// Zeros unless it is there; `from` is not read then.
__device__ inline void copy_or_clear(std::uint32_t to, const void* from, bool is_there) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(is_there ? 16 : 0)
               : "memory");
}
__device__ inline void end_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kPending>
__device__ inline void wait_for_groups() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// 16 bytes that no kernel writes, past the L1 cache.
__device__ inline uint4 load_once(const void* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

// Four features of the residual with what is pending: `deltas` has num_deltas times the residual's rows.
template <class T>
__device__ inline float4 pending_sum(const Tensor& residual, const Tensor& deltas, int num_deltas, int token,
                                     int feature) {
  float4 sum = *reinterpret_cast<const float4*>(element<float>(residual, token, feature));
  for (int i = 0; i < num_deltas; ++i) {
    const std::int64_t at = i * residual.rows + token;
    float4 more;
    if (deltas.dtype == DType::float32) {
      more = *reinterpret_cast<const float4*>(element<float>(deltas, at, feature));
    } else {
      const uint2 raw = *reinterpret_cast<const uint2*>(element<T>(deltas, at, feature));
      more = {low_element<T>(raw.x), high_element<T>(raw.x), low_element<T>(raw.y), high_element<T>(raw.y)};
    }
    sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
  }
  return sum;
}

}  // namespace heddle::sm90
