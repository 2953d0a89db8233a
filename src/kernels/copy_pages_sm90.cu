// A thread takes the same places of every page it is to move, move after move: so each move sees what the earlier ones
// did there, with no wait between threads.
#include "kernels/copy_pages_sm90.h"
#include "kernels/launch_sm90.cuh"

namespace heddle {
namespace {

constexpr int kCopyThreads = 256;
constexpr int kWordsOfThread = 4;  // on their way at once

template <class Word>
__global__ void __launch_bounds__(kCopyThreads) copy_words(const __grid_constant__ CopyPagesParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const std::size_t words = params.page_bytes / sizeof(Word);
  auto* pages = static_cast<Word*>(params.data) + std::size_t{blockIdx.y} * params.num_pages * words;
  const std::size_t first = std::size_t{blockIdx.x} * kCopyThreads * kWordsOfThread + threadIdx.x;
  for (int i = 0; i < params.num_moves; ++i) {
    const Word* from = pages + params.moves[i].from * words;
    Word* to = pages + params.moves[i].to * words;
    Word held[kWordsOfThread];
#pragma unroll
    for (int j = 0; j < kWordsOfThread; ++j)
      if (first + j * kCopyThreads < words) held[j] = from[first + j * kCopyThreads];
#pragma unroll
    for (int j = 0; j < kWordsOfThread; ++j)
      if (first + j * kCopyThreads < words) to[first + j * kCopyThreads] = held[j];
  }
}

template <class Word>
void copy_with(const CopyPagesParams& params, Stream& stream) {
  const std::size_t words = params.page_bytes / sizeof(Word), a_block = std::size_t{kCopyThreads} * kWordsOfThread;
  launch_sm90(
      "copy_pages", copy_words<Word>,
      {.grid = dim3(static_cast<unsigned>((words + a_block - 1) / a_block), static_cast<unsigned>(params.num_halves)),
       .block = kCopyThreads},
      stream, params);
}

}  // namespace

void copy_pages_sm90(const CopyPagesParams& params, Stream& stream) {
  if (params.page_bytes % 16 == 0 && reinterpret_cast<std::uintptr_t>(params.data) % 16 == 0)
    return copy_with<uint4>(params, stream);
  copy_with<unsigned char>(params, stream);
}

}  // namespace heddle
