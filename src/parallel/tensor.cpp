#include "parallel/tensor.h"

#include "base/copy.h"
#include "base/error.h"
#include "collectives/all_reduce.h"
#include "kernels/rows/embedding.h"
#include "parallel/choice_tables.h"
#include "parallel/token_weave.h"

namespace heddle {
namespace {

std::size_t elements_of(const Tensor& tensor) {
  require(tensor.row_stride == tensor.columns, "tensor parallelism: rows of {} elements lie {} apart", tensor.columns,
          tensor.row_stride);
  return static_cast<std::size_t>(tensor.rows) * static_cast<std::size_t>(tensor.columns);
}

}  // namespace

TensorStrategy::TensorStrategy(const ModelRank& place, Slice vocabulary, std::int64_t vocab_size)
    : communicator_(place.communicator),
      alone_(place.alone),
      communicates_(place.mode != TpMode::no_comm),
      vocabulary_(vocabulary),
      vocab_size_(vocab_size) {}

void TensorStrategy::embed(const Weight& table, const std::int32_t* tokens, Tensor y, const Lane& lane) {
  embedding({.table = table, .tokens = tokens, .y = y, .first_token = vocabulary_.first, .vocab_size = vocab_size_},
            lane);
  sum_over_ranks(y, lane);
}

void TensorStrategy::sum_pending(const Hidden& hidden, const Lane& lane) {
  if (hidden.delta.data != nullptr) sum_over_ranks(hidden.delta, lane, sum_choice(choices_));
}

void TensorStrategy::normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) {
  TensorStrategy::sum_pending(hidden, lane);
  LocalStrategy::normalize(hidden, norm, normalized, lane);
}

void TensorStrategy::run(const Blocks& blocks, std::span<const PartRows> parts, const Execution& execution) {
  if (parts.size() == kMostParts && execution.transfers != nullptr)
    run_interleaved(*this, blocks, parts, execution);
  else
    LocalStrategy::run(blocks, parts, execution);
}

void TensorStrategy::logits(Tensor x, const Weight& weight, Tensor y, const Lane& lane) {
  const std::size_t size_bytes = elements_of(y) * size_of(y.dtype);
  if (lane.dry_run == nullptr && size_bytes > 0) enqueue_clear(lane.stream, y.data, size_bytes);
  linear(x, weight, LinearRole::logits, own_logits(y), lane);
  sum_over_ranks(y, lane);
}

bool TensorStrategy::crosses_ranks(const Lane& lane) const {
  return communicates_ && lane.dry_run == nullptr && (alone_ == nullptr || !*alone_);
}

void TensorStrategy::sum_over_ranks(Tensor tensor, const Lane& lane, const std::optional<Choice>& choice) {
  const std::size_t elements = elements_of(tensor);
  if (!crosses_ranks(lane)) return;
  require(communicator_ != nullptr, "tensor parallelism: no communicator, as for dry runs");
  all_reduce(*communicator_,
             {.input = tensor.data, .output = tensor.data, .count = elements, .dtype = tensor.dtype, .choice = choice},
             lane);
}

}  // namespace heddle
