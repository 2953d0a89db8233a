#include "fused/piece_attention/head_groups.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "base/thread_pool.h"
#include "fused/piece_attention/head_groups_sm90.h"
#include "kernels/pieces.h"

namespace heddle {
namespace {

void require_groups(const void* tokens, const HeadGroups& groups, std::string_view op) {
  require(!groups.groups.empty(), "{}: there are no groups of heads", op);
  require(groups.batch >= 1 && groups.num_tokens >= 0 && groups.num_heads >= 1 && groups.head_dim >= 1,
          "{}: the shape [{}, {}, {}, {}] has a size below 1", op, groups.batch, groups.num_tokens, groups.num_heads,
          groups.head_dim);
  require(groups.num_heads % static_cast<int>(groups.groups.size()) == 0, "{}: {} heads do not make {} equal groups",
          op, groups.num_heads, groups.groups.size());
  require(groups.num_tokens == 0 || (tokens != nullptr && !std::ranges::count(groups.groups, nullptr)),
          "{}: an address is null", op);
}

// Calls copy(address of a row by tokens, address of the same row in its piece, bytes) for every row of a head.
template <class Copy>
void for_each_row_of_heads(const void* tokens, const HeadGroups& groups, ThreadPool& pool, const Copy& copy) {
  const std::size_t row_bytes = static_cast<std::size_t>(groups.head_dim) * size_of(groups.dtype);
  const int group_heads = groups.num_heads / static_cast<int>(groups.groups.size());
  const std::int64_t num_rows = std::int64_t{groups.batch} * groups.num_tokens;
  pool.parallel_for(num_rows, rows_per_piece(std::int64_t{groups.num_heads} * groups.head_dim),
                    [&](std::int64_t begin, std::int64_t end) {
                      for (std::int64_t row = begin; row < end; ++row) {
                        const std::int64_t batch = row / groups.num_tokens, token = row % groups.num_tokens;
                        for (int head = 0; head < groups.num_heads; ++head) {
                          const std::int64_t in_piece =
                              (batch * group_heads + head % group_heads) * groups.num_tokens + token;
                          copy(static_cast<const std::byte*>(tokens) +
                                   static_cast<std::size_t>(row * groups.num_heads + head) * row_bytes,
                               static_cast<std::byte*>(groups.groups[head / group_heads]) +
                                   static_cast<std::size_t>(in_piece) * row_bytes,
                               row_bytes);
                        }
                      }
                    });
}

}  // namespace

void split_heads(const void* tokens, const HeadGroups& groups, const Lane& lane) {
  require_groups(tokens, groups, "split_heads");
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda)
      return copy_head_groups_sm90(HeadGroupCopy::split, const_cast<void*>(tokens), groups, lane);
  }
  lane.stream.enqueue([tokens, &groups](ThreadPool& pool) {
    for_each_row_of_heads(tokens, groups, pool, [](const std::byte* row, std::byte* piece, std::size_t bytes) {
      std::memcpy(piece, row, bytes);
    });
  });
}

void join_heads(const HeadGroups& groups, void* tokens, const Lane& lane) {
  require_groups(tokens, groups, "join_heads");
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda)
      return copy_head_groups_sm90(HeadGroupCopy::join, tokens, groups, lane);
  }
  lane.stream.enqueue([tokens, &groups](ThreadPool& pool) {
    auto* const begin = static_cast<std::byte*>(tokens);
    for_each_row_of_heads(tokens, groups, pool, [&](const std::byte* row, const std::byte* piece, std::size_t bytes) {
      std::memcpy(begin + (row - begin), piece, bytes);
    });
  });
}

}  // namespace heddle
