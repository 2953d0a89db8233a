#include "kernels/attention/copy_pages.h"

#include <cstring>

#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/attention/copy_pages_sm90.h"
#include "kernels/dry_run.h"
#include "kernels/pieces.h"

namespace heddle {
namespace {

void copy_pages_cpu(const CopyPagesParams& params, ThreadPool& pool) {
  const std::size_t half_bytes = params.page_bytes * static_cast<std::size_t>(params.num_pages);
  const auto work = static_cast<std::int64_t>(params.page_bytes / 4) * params.num_moves;
  pool.parallel_for(params.num_halves, rows_per_piece(work), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t half = begin; half < end; ++half) {
      std::byte* pages = static_cast<std::byte*>(params.data) + half_bytes * static_cast<std::size_t>(half);
      for (int i = 0; i < params.num_moves; ++i) {
        const PageMove move = params.moves[static_cast<std::size_t>(i)];
        if (move.from != move.to)
          std::memcpy(pages + params.page_bytes * static_cast<std::size_t>(move.to),
                      pages + params.page_bytes * static_cast<std::size_t>(move.from), params.page_bytes);
      }
    }
  });
}

}  // namespace

void copy_pages(const CopyPagesParams& params, const Lane& lane) {
  require(params.num_halves >= 0 && params.num_pages >= 0, "copy_pages: {} halves of {} pages", params.num_halves,
          params.num_pages);
  require(params.num_moves >= 0 && params.num_moves <= CopyPagesParams::kMostMoves, "copy_pages: {} moves, at most {}",
          params.num_moves, CopyPagesParams::kMostMoves);
  for (int i = 0; i < params.num_moves; ++i) {
    const PageMove move = params.moves[static_cast<std::size_t>(i)];
    require(move.from >= 0 && move.from < params.num_pages && move.to >= 0 && move.to < params.num_pages,
            "copy_pages: move {} is of page {} to page {} of {}", i, move.from, move.to, params.num_pages);
  }
  if (params.num_moves == 0 || params.num_halves == 0 || params.page_bytes == 0) return;
  require(params.data != nullptr, "copy_pages: data is null");
  if (recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return copy_pages_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { copy_pages_cpu(params, pool); });
}

}  // namespace heddle
