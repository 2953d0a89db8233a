#include "parallel/fused.h"

#include "base/copy.h"
#include "base/error.h"
#include "base/stand_in.h"
#include "fused/rows_of.h"
#include "kernels/dry_run.h"

namespace heddle {

void FusedStrategy::clear_rows(const Tensor& tensor, std::int64_t first, std::int64_t end, const Lane& lane) {
  if (first >= end) return;
  const Tensor rows = rows_of(tensor, first, end - first);
  enqueue_clear(lane.stream, rows.data, static_cast<std::size_t>(rows.rows * rows.row_stride) * size_of(rows.dtype));
}

FusedStrategy::FusedStrategy(const ModelRank& place, Slice vocabulary, std::int64_t vocab_size)
    : TensorStrategy(place, vocabulary, vocab_size), mode_(place.mode), all_reduce_norm_(place.all_reduce_norm) {}

BlockRows FusedStrategy::take_block_rows(const BlockRowsShape& shape, Arena& arena, const Lane& lane) {
  const auto tensor = [&](std::byte* at, DType dtype) {
    return Tensor{at, shape.num_tokens, shape.hidden, shape.hidden, dtype};
  };
  const auto bytes = [&](DType dtype) {
    return Arena::rounded(static_cast<std::size_t>(shape.num_tokens * shape.hidden) * size_of(dtype));
  };
  const std::size_t of_delta = bytes(shape.deltas), all = of_delta + bytes(shape.activations);
  const bool outline = all_reduce_norm_ == nullptr;
  if (!outline && all > all_reduce_norm_->row_memory().size())
    return TensorStrategy::take_block_rows(shape, arena, lane);
  if (lane.dry_run != nullptr) lane.dry_run->take_symmetric_rows(all);
  std::byte* const first = outline ? stand_in_memory() : all_reduce_norm_->row_memory().data();
  return {.delta = tensor(first, shape.deltas), .normalized = tensor(first + of_delta, shape.activations)};
}

void FusedStrategy::normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) {
  if (choices().sums == SumForm::separate) return TensorStrategy::normalize(hidden, norm, normalized, lane);
  const bool pending = hidden.delta.data != nullptr;
  if (pending && all_reduce_norm_ != nullptr) {
    const std::string reason = all_reduce_norm_->why_not(hidden.delta.columns, hidden.delta.dtype, normalized.dtype);
    if (!reason.empty()) throw_error<InputError>("--tp-mode {}: {}; use --tp-mode default", name_of(mode_), reason);
  }
  if (!pending || !crosses_ranks(lane))                               // nothing to sum
    return LocalStrategy::normalize(hidden, norm, normalized, lane);  // NOLINT(bugprone-parent-virtual-call)
  require(all_reduce_norm_ != nullptr, "tensor parallelism: no all_reduce_norm, as for dry runs");
  (*all_reduce_norm_)(
      {.x = hidden.delta,
       .weight = norm.weight,
       .residual = hidden.residual,
       .y = normalized,
       .eps = norm.eps,
       .symmetric = all_reduce_norm_->in_row_memory(hidden.delta) && all_reduce_norm_->in_row_memory(normalized)},
      lane);
}

// Rows of the residual become partial sums: whoever has a row keeps it, all others clear it. Returns whether any row was
// on one rank alone; otherwise nothing is done.
bool FusedStrategy::keep_shares(const Hidden& hidden, std::int64_t prefix_tokens, const Lane& lane) const {
  const Tensor& residual = hidden.residual;
  const auto sharded = [&](std::int64_t rows) {
    return rows > 0 && all_reduce_norm_->shards_residual(rows, residual.columns, hidden.delta.dtype);
  };
  const std::int64_t parts[] = {prefix_tokens, residual.rows - prefix_tokens};
  if (!sharded(parts[0]) && !sharded(parts[1])) return false;
  std::int64_t first = 0;
  for (const std::int64_t rows : parts) {
    const EvenShards shards = all_reduce_norm_->rows(rows);
    const int rank = all_reduce_norm_->rank();
    const bool on_all = !sharded(rows);  // rank 0 gives these
    const std::int64_t begin = on_all ? 0 : shards.begin(rank);
    const std::int64_t end = on_all ? (rank == 0 ? rows : 0) : shards.end(rank);
    clear_rows(residual, first, first + begin, lane);
    clear_rows(residual, first + end, first + rows, lane);
    first += rows;
  }
  return true;
}

Hidden FusedStrategy::wanted_rows(const Hidden& hidden, const WantedRows& wanted, Arena& arena, const Lane& lane) {
  if (choices().sums == SumForm::separate)
    return TensorStrategy::wanted_rows(hidden, wanted, arena, lane);  // every rank has all rows
  const bool all = wanted.num_rows == hidden.residual.rows;
  if (all && wanted.prefix_tokens == 0) return hidden;  // who has which row stays as it is
  const bool partial = hidden.delta.data != nullptr && crosses_ranks(lane) && wanted.num_rows > 0 &&
                       keep_shares(hidden, wanted.prefix_tokens, lane);
  const Hidden rows = LocalStrategy::wanted_rows(hidden, wanted, arena, lane);
  if (partial) sum_over_ranks(rows.residual, lane);  // exact: each row is zero on all ranks but one
  return rows;
}

}  // namespace heddle
