// Tensor maps of heads, by which TMA copies some tokens of one head to shared memory, with zeros behind the last token.
#pragma once

#include "device/tensor_map_sm90.cuh"

namespace heddle::sm90 {

// Some tokens of some heads as a tensor [batch, heads, tokens, head_dim] of 16-bit elements, whatever its strides: a
// box has some tokens of one head.
struct HeadBoxes {
  const void* data = nullptr;  // aligned to 16 bytes
  std::uint64_t batch = 0, heads = 0, tokens = 0, head_dim = 0;
  std::uint64_t batch_stride = 0, head_stride = 0, token_stride = 0;  // elements, multiples of 8
  std::uint32_t box_tokens = 0, box_columns = 0;                      // as in MatrixBoxes
  CUtensorMapSwizzle swizzle = CU_TENSOR_MAP_SWIZZLE_NONE;
  CUtensorMapL2promotion promotion = CU_TENSOR_MAP_L2_PROMOTION_NONE;
};

// Throws Failure that names `op` if the driver has no tensor maps or rejects this one.
inline CUtensorMap tensor_map(const char* op, const HeadBoxes& of) {
  const std::array<cuuint64_t, 4> sizes{of.head_dim, of.tokens, of.heads, of.batch};
  const std::array<cuuint64_t, 3> strides{of.token_stride * 2, of.head_stride * 2, of.batch_stride * 2};
  const std::array<cuuint32_t, 4> box{of.box_columns, of.box_tokens, 1, 1};
  const std::array<cuuint32_t, 4> steps{1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = tensor_map_encoder(op)(
      &map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, const_cast<void*>(of.data), sizes.data(), strides.data(), box.data(),
      steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, of.swizzle, of.promotion, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw_error<Failure>("{}: cuTensorMapEncodeTiled returns {} for boxes {} x {} of heads [{}, {}, {}, {}]", op,
                         static_cast<int>(result), of.box_tokens, of.box_columns, of.batch, of.heads, of.tokens,
                         of.head_dim);
  return map;
}

struct HeadBox {
  int column, token, head, batch;  // of its first element
};

// Copies a box to shared memory. Completes on `barrier`.
__device__ inline void copy_box(std::uint32_t to, const CUtensorMap& map, const HeadBox& at, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6];" ::"r"(to),
      "l"(&map), "r"(at.column), "r"(at.token), "r"(at.head), "r"(at.batch), "r"(barrier)
      : "memory");
}

// Makes a map in global memory that the host wrote before the kernel visible to this thread's copies, also where an
// older map at the same address is still cached.
__device__ inline void acquire_map(const CUtensorMap& map) {
  asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(&map) : "memory");
}

}  // namespace heddle::sm90
