#include "parallel/token_shards.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "collectives/all_gather.h"
#include "fabric/symmetric_heap.h"
#include "fused/rows_of.h"
#include "kernels/dry_run.h"
#include "kernels/rows/swiglu.h"
#include "parallel/tuned_gather.h"

namespace heddle {
namespace {

// Of the two fused operators, for steps of up to so many rows.
struct FusedLimits {
  AllGatherLinearLimits gather;
  PartialLimits scatter;
};

FusedLimits limits_of(std::int64_t rows, std::int64_t hidden, DType activations, int ranks) {
  const std::int64_t shard = Shards::even(rows, ranks).largest();
  return {.gather = {.largest_shard = shard, .other = hidden, .dtype = activations},
          .scatter = {.largest_shard = shard, .n = hidden}};
}

}  // namespace

TokenShardStrategy::TokenShardStrategy(const ModelRank& place, Slice vocabulary, std::int64_t vocab_size)
    : FusedStrategy(place, vocabulary, vocab_size), ranks_(place.ranks) {}

TokenShardStrategy::Fused::Fused(Communicator& communicator, std::int64_t most_rows, std::int64_t hidden,
                                 DType activations)
    : rows(most_rows),
      gather(communicator.fabric(), communicator.team(),
             limits_of(most_rows, hidden, activations, communicator.size()).gather),
      scatter(communicator.fabric(), communicator.team(),
              limits_of(most_rows, hidden, activations, communicator.size()).scatter),
      transfers(communicator.fabric().device().kind == DeviceKind::cpu ? Stream(pool)
                                                                       : Stream(communicator.fabric().device())) {}

bool TokenShardStrategy::shards_step() const {
  return choices().sums == SumForm::of_mode || choices().sums == SumForm::sharded;
}

Shards TokenShardStrategy::shards_of(std::int64_t rows) const {
  return Shards::even(rows, ranks_);
}

// What fused_for() will take.
void TokenShardStrategy::keep_dry(std::int64_t rows, std::int64_t hidden, DType activations, const Lane& lane) {
  if (lane.dry_run == nullptr || rows == 0) return;
  most_rows_ = std::max(most_rows_, rows);
  const FusedLimits limits = limits_of(rows, hidden, activations, ranks_);
  const auto taken = [](std::size_t bytes) { return round_up(bytes, SymmetricHeap::kAlignment); };
  const DeviceKind device = lane.stream.device().kind;
  lane.dry_run->keep_symmetric(taken(AllGatherLinear::heap_bytes(ranks_, limits.gather, device)) +
                               taken(LinearReduceScatter::heap_bytes(ranks_, limits.scatter, device)));
}

TokenShardStrategy::Fused& TokenShardStrategy::fused_for(std::int64_t rows, std::int64_t hidden, DType activations,
                                                         const Lane& lane) {
  if (fused_ != nullptr && rows <= fused_->rows) {
    fused_->transfers.set_wait_record(lane.stream.wait_record());
    return *fused_;
  }
  const bool on_gpu = lane.stream.device().kind == DeviceKind::cuda;
  if (fused_ != nullptr && on_gpu)
    throw_error<InvalidArgument>("--tp-mode sequence: a step of {} tokens, planned for up to {}", rows, fused_->rows);
  communicator()->fabric().synchronize(lane.stream);  // before memory is taken or given back, and the ranks meet
  fused_.reset();
  fused_ = std::make_unique<Fused>(*communicator(), std::max(rows, most_rows_), hidden, activations);
  fused_->transfers.set_wait_record(lane.stream.wait_record());
  return *fused_;
}

void TokenShardStrategy::normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) {
  if (!shards_step()) return FusedStrategy::normalize(hidden, norm, normalized, lane);
  // Deltas are summed already, or by nobody.
  if (!crosses_ranks(lane))
    return LocalStrategy::normalize(hidden, norm, normalized, lane);  // NOLINT(bugprone-parent-virtual-call)
  const Shards shards = shards_of(hidden.residual.rows);
  const int rank = communicator()->rank();
  if (shards.count(rank) == 0) return;
  const auto own = [&](const Tensor& tensor) { return rows_of(tensor, shards.begin(rank), shards.count(rank)); };
  LocalStrategy::normalize(  // NOLINT(bugprone-parent-virtual-call)
      {.residual = own(hidden.residual), .delta = hidden.delta.data == nullptr ? Tensor{} : own(hidden.delta)}, norm,
      own(normalized), lane);
}

// Every row is at one rank: the others contribute zeros to a sum of it.
void TokenShardStrategy::clear_others(const Tensor& rows, const Lane& lane) const {
  const Shards shards = shards_of(rows.rows);
  const int rank = communicator()->rank();
  clear_rows(rows, 0, shards.begin(rank), lane);
  clear_rows(rows, shards.begins[rank + 1], rows.rows, lane);
}

Hidden TokenShardStrategy::wanted_rows(const Hidden& hidden, const WantedRows& wanted, Arena& arena, const Lane& lane) {
  if (!shards_step()) return FusedStrategy::wanted_rows(hidden, wanted, arena, lane);
  const bool from_all = crosses_ranks(lane) && wanted.num_rows > 0 && wanted.num_rows != hidden.residual.rows,
             pending = hidden.delta.data != nullptr;
  if (from_all) {
    clear_others(hidden.residual, lane);
    if (pending) clear_others(hidden.delta, lane);
  }
  const Hidden rows = LocalStrategy::wanted_rows(hidden, wanted, arena, lane);  // NOLINT(bugprone-parent-virtual-call)
  if (from_all) {
    sum_over_ranks(rows.residual, lane);
    if (pending) sum_over_ranks(rows.delta, lane);
  }
  return rows;
}

void TokenShardStrategy::gather(Tensor x, const Weight& weight, const GatherChoice& choice, Tensor y,
                                const Lane& lane) {
  const Shards shards = shards_of(x.rows);
  const int rank = communicator()->rank();
  const Tensor own = rows_of(x, shards.begin(rank), shards.count(rank));
  const bool even = x.rows == shards.largest() * ranks_ && x.row_stride == x.columns;
  if (choice.form == GatherChoice::Form::bsp && even) {
    all_gather(*communicator(),
               {.input = own.data,
                .output = x.data,
                .count = static_cast<std::size_t>(own.rows) * static_cast<std::size_t>(own.columns),
                .dtype = x.dtype},
               lane);
    return LocalStrategy::linear(x, weight, LinearRole::alone, y, lane);  // NOLINT(bugprone-parent-virtual-call)
  }
  Fused& fused = fused_for(x.rows, x.columns, x.dtype, lane);
  fused.gather({.shards = shards,
                .x = own,
                .weight = weight,
                .y = y,
                .variant = gather_variant(choice).value_or(GatherVariant::push),
                .transfer_sms = choice.transfer_sms,
                .tile = choice.tile},
               lane, fused.transfers);
}

void TokenShardStrategy::linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) {
  if (role == LinearRole::alone)  // a router: experts take whole rows
    throw_error<InputError>("--tp-mode sequence: is not for models with experts; use --tp-mode default");
  if (role == LinearRole::qkv) keep_dry(x.rows, x.columns, x.dtype, lane);
  if (!shards_step() || !crosses_ranks(lane)) return FusedStrategy::linear(x, weight, role, y, lane);
  if (role == LinearRole::qkv) return gather(x, weight, choices().qkv_gather, y, lane);
  require(role == LinearRole::attention_output || role == LinearRole::down,
          "--tp-mode sequence: no GEMM of a block: {}", name_of(role));
  const Shards shards = shards_of(x.rows);
  const int rank = communicator()->rank();
  fused_for(x.rows, weight.out_features, x.dtype, lane)
      .scatter({.rows = shards, .x = x, .weight = weight, .y = rows_of(y, shards.begin(rank), shards.count(rank))},
               lane);
}

void TokenShardStrategy::linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) {
  if (!shards_step() || !crosses_ranks(lane)) return FusedStrategy::linear_swiglu(x, weight, gate_up, y, lane);
  gather(x, weight, choices().gate_up_gather, gate_up, lane);
  swiglu({.gate_up = gate_up, .y = y}, lane);
}

void TokenShardStrategy::logits(Tensor x, const Weight& weight, Tensor y, const Lane& lane) {
  if (!shards_step() || !crosses_ranks(lane)) return FusedStrategy::logits(x, weight, y, lane);
  clear_rows(y, 0, y.rows, lane);
  gather(x, weight, GatherChoice{}, own_logits(y), lane);
  sum_over_ranks(y, lane);
}

}  // namespace heddle
