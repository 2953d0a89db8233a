// A block copies the heads of a token after those of another. Reads or writes by tokens are in whole lines; in a piece a
// head of a token is one line or less.
#include "fused/piece_attention/head_groups_sm90.h"

#include <algorithm>

#include "base/alignment.h"
#include "base/error.h"
#include "device/launch_sm90.cuh"

namespace heddle {
namespace {

constexpr int kHeadCopyThreads = 256;

struct HeadCopyParams {
  std::byte* tokens;
  std::byte* groups[kMostGpuHeadGroups];
  int num_tokens, num_heads, group_heads, head_bytes;
  unsigned num_rows;  // batch * num_tokens
};

template <class Word, HeadGroupCopy which>
__global__ void __launch_bounds__(kHeadCopyThreads) copy_heads(const __grid_constant__ HeadCopyParams params) {
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int words_of_head = params.head_bytes / static_cast<int>(sizeof(Word));
  const int words = params.num_heads * words_of_head;
  for (unsigned row = blockIdx.x; row < params.num_rows; row += gridDim.x) {
    const unsigned batch = row / static_cast<unsigned>(params.num_tokens);
    const std::int64_t token = row - batch * static_cast<unsigned>(params.num_tokens);
    Word* const by_tokens = reinterpret_cast<Word*>(params.tokens) + static_cast<std::int64_t>(row) * words;
    for (int word = static_cast<int>(threadIdx.x); word < words; word += kHeadCopyThreads) {
      const int head = word / words_of_head, group = head / params.group_heads;
      const std::int64_t head_of_piece =
          static_cast<std::int64_t>(batch) * params.group_heads + head - group * params.group_heads;
      Word* const in_piece = reinterpret_cast<Word*>(params.groups[group]) +
                             (head_of_piece * params.num_tokens + token) * words_of_head + word - head * words_of_head;
      if constexpr (which == HeadGroupCopy::split)
        *in_piece = by_tokens[word];
      else
        by_tokens[word] = *in_piece;
    }
  }
}

}  // namespace

void copy_head_groups_sm90(HeadGroupCopy which, void* tokens, const HeadGroups& groups, const Lane& lane) {
  require(groups.groups.size() <= kMostGpuHeadGroups, "{} groups of heads, expected at most {} on a GPU",
          groups.groups.size(), kMostGpuHeadGroups);
  HeadCopyParams params{.tokens = static_cast<std::byte*>(tokens),
                        .groups = {},
                        .num_tokens = groups.num_tokens,
                        .num_heads = groups.num_heads,
                        .group_heads = groups.num_heads / static_cast<int>(groups.groups.size()),
                        .head_bytes = groups.head_dim * static_cast<int>(size_of(groups.dtype)),
                        .num_rows = static_cast<unsigned>(groups.batch) * static_cast<unsigned>(groups.num_tokens)};
  if (params.num_rows == 0) return;
  bool aligned = is_aligned(tokens) && params.head_bytes % static_cast<int>(kVectorBytes) == 0;
  for (std::size_t i = 0; i < groups.groups.size(); ++i) {
    params.groups[i] = static_cast<std::byte*>(groups.groups[i]);
    aligned = aligned && is_aligned(groups.groups[i]);
  }
  const LaunchShape shape{
      .grid = dim3(std::min(params.num_rows, 1u << 20)), .block = dim3(kHeadCopyThreads), .fit = GridFit::trimmed};
  const auto launch = [&]<class Word>() {
    if (which == HeadGroupCopy::split)
      launch_sm90("split_heads", copy_heads<Word, HeadGroupCopy::split>, shape, lane, params);
    else
      launch_sm90("join_heads", copy_heads<Word, HeadGroupCopy::join>, shape, lane, params);
  };
  if (aligned)
    launch.operator()<uint4>();
  else
    launch.operator()<unsigned char>();
}

}  // namespace heddle
