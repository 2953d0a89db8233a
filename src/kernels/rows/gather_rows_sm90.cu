// Copies rows as bytes, whatever their dtype.
#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/rows/gather_rows_sm90.h"
#include "kernels/sm90/elements_sm90.cuh"

namespace heddle {
namespace {

constexpr int kGatherThreads = 256;

// Copies in words of 16 bytes or of one element. A row that does not exist becomes all ones: NaN in each dtype.
template <class Word>
__global__ void __launch_bounds__(kGatherThreads) gather_words(const __grid_constant__ GatherRowsParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int element_bytes = params.x.dtype == DType::float32 ? 4 : 2;
  const std::int64_t words = params.y.columns * element_bytes / sizeof(Word);
  Word nan;
  memset(&nan, 0xff, sizeof(Word));
  for (std::int64_t wanted = blockIdx.x; wanted < params.y.rows; wanted += gridDim.x) {
    const std::int64_t row = params.rows[wanted];
    const bool there = row >= 0 && row < params.x.rows;
    const auto* from = reinterpret_cast<const Word*>(static_cast<const std::byte*>(params.x.data) +
                                                     (there ? row : 0) * params.x.row_stride * element_bytes);
    auto* to =
        reinterpret_cast<Word*>(static_cast<std::byte*>(params.y.data) + wanted * params.y.row_stride * element_bytes);
    for (std::int64_t i = blockIdx.y * kGatherThreads + threadIdx.x; i < words; i += gridDim.y * kGatherThreads)
      to[i] = there ? from[i] : nan;
  }
}

}  // namespace

void gather_rows_sm90(const GatherRowsParams& params, const Lane& lane) {
  const bool packs = takes_packs(params.x) && takes_packs(params.y);
  const std::int64_t words =
      packs ? params.y.columns * static_cast<std::int64_t>(size_of(params.y.dtype)) / 16 : params.y.columns;
  LaunchShape shape{.grid = dim3(static_cast<unsigned>(params.y.rows),
                                 static_cast<unsigned>(ceil_div<std::int64_t>(words, kGatherThreads))),
                    .block = kGatherThreads,
                    .fit = GridFit::trimmed};
  shape.grid.y = shape.grid.y < 64 ? shape.grid.y : 64;
  launch_sm90("gather_rows",
              packs                              ? gather_words<uint4>
              : params.y.dtype == DType::float32 ? gather_words<std::uint32_t>
                                                 : gather_words<std::uint16_t>,
              shape, lane, params);
}

}  // namespace heddle
