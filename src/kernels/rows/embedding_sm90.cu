// One block per token; its threads loop over the packs of the row.
#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/rows/embedding_sm90.h"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kEmbeddingThreads = 256;

// The first element of the token's row; null if the table has no such row.
__device__ const void* table_row(const EmbeddingParams& params, std::int64_t index) {
  const Weight& table = params.table;
  std::int64_t token = params.tokens[index] - params.first_token;
  if (token < 0 || token >= table.out_features) return nullptr;
#pragma unroll
  for (int i = 0; i < Weight::kMaxBlocks; ++i) {
    const WeightBlock& block = table.blocks[i];
    if (token < block.num_rows)
      return static_cast<const std::byte*>(block.data) + static_cast<std::size_t>(token) *
                                                             static_cast<std::size_t>(table.in_features) *
                                                             (table.dtype == DType::float32 ? 4 : 2);
    token -= block.num_rows;
  }
  return nullptr;
}

// Of a token without a row: zero where another part of the table has it, else NaN.
__device__ float value_without_row(const EmbeddingParams& params, std::int64_t index) {
  const std::int32_t token = params.tokens[index];
  return token >= 0 && token < params.vocab_size ? 0.0f : __int_as_float(0x7fffffff);
}

template <class From, class To>
__global__ void __launch_bounds__(kEmbeddingThreads) embedding_packs(const __grid_constant__ EmbeddingParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const std::int64_t packs = params.y.columns / kPackElements;
  for (std::int64_t token = blockIdx.x; token < params.y.rows; token += gridDim.x) {
    const auto* row = static_cast<const From*>(table_row(params, token));
    To* y = element<To>(params.y, token, 0);
    for (std::int64_t pack = blockIdx.y * kEmbeddingThreads + threadIdx.x; pack < packs;
         pack += gridDim.y * kEmbeddingThreads) {
      Pack values;
      if (row != nullptr) {
        values = load_pack(row + pack * kPackElements);
      } else {
#pragma unroll
        for (float& value : values.values) value = value_without_row(params, token);
      }
      store_pack(y + pack * kPackElements, values);
    }
  }
}

__global__ void __launch_bounds__(kEmbeddingThreads)
    embedding_elements(const __grid_constant__ EmbeddingParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  for (std::int64_t token = blockIdx.x; token < params.y.rows; token += gridDim.x) {
    const void* row = table_row(params, token);
    for (std::int64_t i = blockIdx.y * kEmbeddingThreads + threadIdx.x; i < params.y.columns;
         i += gridDim.y * kEmbeddingThreads)
      store_element(params.y.data, token * params.y.row_stride + i, params.y.dtype,
                    row != nullptr ? load_element(row, i, params.table.dtype) : value_without_row(params, token));
  }
}

}  // namespace

void embedding_sm90(const EmbeddingParams& params, const Lane& lane) {
  const bool packs = takes_packs(params.y) && rows_are_aligned(params.table);
  const std::int64_t pieces = packs ? params.y.columns / kPackElements : params.y.columns;
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.y.rows),
                                 static_cast<unsigned>(ceil_div<std::int64_t>(pieces, kEmbeddingThreads))),
                    .block = kEmbeddingThreads,
                    .fit = GridFit::trimmed};
  shape.grid.y = shape.grid.y < 64 ? shape.grid.y : 64;
  if (!packs) return launch_sm90("embedding", embedding_elements, shape, lane, params);
  with_element(params.table.dtype, [&]<class From>() {
    with_element(params.y.dtype,
                 [&]<class To>() { launch_sm90("embedding", embedding_packs<From, To>, shape, lane, params); });
  });
}

}  // namespace heddle
