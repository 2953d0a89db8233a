// A thread copies the same offset of every page, move after move. So each move sees the earlier ones without
// synchronization between threads.
#include "base/alignment.h"
#include "base/checked.h"
#include "device/launch_sm90.cuh"
#include "kernels/attention/copy_pages_sm90.h"

namespace heddle {
namespace {

constexpr int kCopyThreads = 256;

template <class Word>
__global__ void __launch_bounds__(kCopyThreads) copy_words(const __grid_constant__ CopyPagesParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const std::size_t words = params.page_bytes / sizeof(Word);
  for (unsigned half = blockIdx.y; half < static_cast<unsigned>(params.num_halves); half += gridDim.y) {
    auto* pages = static_cast<Word*>(params.data) + std::size_t{half} * params.num_pages * words;
    for (std::size_t word = std::size_t{blockIdx.x} * kCopyThreads + threadIdx.x; word < words;
         word += std::size_t{gridDim.x} * kCopyThreads)
      for (int i = 0; i < params.num_moves; ++i)
        pages[params.moves[i].to * words + word] = pages[params.moves[i].from * words + word];
  }
}

template <class Word>
void copy_with(const CopyPagesParams& params, const Lane& lane) {
  const std::size_t words = params.page_bytes / sizeof(Word);
  launch_sm90("copy_pages", copy_words<Word>,
              {.grid = dim3(static_cast<unsigned>(ceil_div<std::size_t>(words, kCopyThreads)),
                            static_cast<unsigned>(params.num_halves)),
               .block = kCopyThreads,
               .fit = GridFit::trimmed},
              lane, params);
}

}  // namespace

void copy_pages_sm90(const CopyPagesParams& params, const Lane& lane) {
  if (params.page_bytes % kVectorBytes == 0 && is_aligned(params.data)) return copy_with<uint4>(params, lane);
  copy_with<unsigned char>(params, lane);
}

}  // namespace heddle
