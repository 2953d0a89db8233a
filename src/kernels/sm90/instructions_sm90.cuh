// The instructions of sm_90a that kernels use, one function each. Those of barriers, clusters and TMA
// are in mbarrier_sm90.cuh, cluster_sm90.cuh and tensor_map_sm90.cuh, WGMMA is in wgmma_sm90.cuh.
#pragma once

#include <cstdint>

#include "base/dtype.h"
#include "device/cluster/cluster_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "kernels/sm90/convert_sm90.cuh"

namespace heddle::sm90 {

// Orders a thread's writes to shared memory before their use by TMA or WGMMA (the async proxy).
__device__ inline void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// After an acquire: orders what other threads wrote to any memory before TMA's later reads of it by this thread.
__device__ inline void fence_async_proxy_of_all_memory() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

// Sets the registers per thread of a warpgroup: producers give registers up so that consumers can take them. A multiple
// of 8, from 24 to 256; the kernel's register count at launch must cover the sum.
template <int kRegisters>
__device__ inline void give_up_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Words in global memory that other blocks access concurrently. Each of four words is atomic by itself.
__device__ inline std::uint32_t load_relaxed(const std::uint32_t* from) {
  std::uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline uint4 load_four_relaxed(const std::uint32_t* from) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ inline void store_relaxed(std::uint32_t* to, std::uint32_t value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ inline void store_four_relaxed(std::uint32_t* to, const uint4& v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// Loads four 8x8 matrices of 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8.
__device__ inline void load_matrices(std::uint32_t address, std::uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}
__device__ inline void load_matrices_transposed(std::uint32_t address, std::uint32_t (&m)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(address)
               : "memory");
}

// The inverse of load_matrices.
__device__ inline void store_matrices(std::uint32_t address, const std::uint32_t (&m)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(m[0]), "r"(m[1]),
               "r"(m[2]), "r"(m[3])
               : "memory");
}

// Transposes an 8x8 matrix of 16-bit elements: lane i gets elements 2 * (i % 4) and the next one of row i / 4.
__device__ inline std::uint32_t transpose(std::uint32_t m) {
  std::uint32_t transposed;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(m));
  return transposed;
}

// c += a b with a [16, 16] and b [16, 8].
template <class T>
__device__ inline void multiply_add(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.%10.%10.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "C"(PtxType<T>::name));
}

// c += W x^T of 16 rows, 32 features and 8 tokens. `low` is of row lane / 4, `high` of the row 8 below, `x` of token
// lane / 4; each holds the same 8 features.
template <class T>
__device__ inline void multiply_add_packs(float (&c)[4], const uint4& low, const uint4& high, const uint4& x) {
  multiply_add<T>(c, {low.x, high.x, low.y, high.y}, x.x, x.y);
  multiply_add<T>(c, {low.z, high.z, low.w, high.w}, x.z, x.w);
}

__device__ inline float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace heddle::sm90
