#include "parallel/context_rows.h"

#include "base/error.h"
#include "base/trace.h"
#include "collectives/broadcast.h"

namespace heddle {

Tensor ContextRows::own(const Tensor& tensor) const {
  if (tensor.data == nullptr) return {};
  return tensor.row_slice(shares_.begin(tensor.rows, shares_.rank), shares_.count(tensor.rows, shares_.rank));
}

void ContextRows::complete(const Tensor& tensor, const Lane& lane) {
  require(fabric_ != nullptr, "context parallelism: no fabric, as for dry runs");
  if (communicator_ == nullptr)
    communicator_ = std::make_unique<Communicator>(*fabric_, team_, lane.stream, CommunicatorOptions{.vendor = false});
  require(tensor.row_stride == tensor.columns, "context parallelism: rows of {} elements lie {} apart", tensor.columns,
          tensor.row_stride);
  const Span span(lane.stream, "all_gather");
  for (int rank = 0; rank < shares_.ranks; ++rank) {
    const Tensor share = tensor.row_slice(shares_.begin(tensor.rows, rank), shares_.count(tensor.rows, rank));
    broadcast(*communicator_,
              {.input = share.data,
               .output = share.data,
               .count = static_cast<std::size_t>(share.rows) * static_cast<std::size_t>(share.columns),
               .dtype = share.dtype,
               .root = rank},
              lane);
  }
}

void ContextRows::embed(const Weight& table, const std::int32_t* tokens, Tensor y, const Lane& lane) {
  inner_->embed(table, tokens, y, lane);
}

void ContextRows::normalize(const Hidden& hidden, const Norm& norm, Tensor normalized, const Lane& lane) {
  if (!divides(hidden.residual, lane)) return inner_->normalize(hidden, norm, normalized, lane);
  inner_->normalize({.residual = own(hidden.residual), .delta = own(hidden.delta)}, norm, own(normalized), lane);
}

// Where all rows are wanted, they stay as they are: normalize() and logits() go by the number of rows, too.
Hidden ContextRows::wanted_rows(const Hidden& hidden, const WantedRows& wanted, Arena& arena, const Lane& lane) {
  if (divides(hidden.residual, lane) && wanted.num_rows != hidden.residual.rows && wanted.num_rows > 0) {
    complete(hidden.residual, lane);
    if (hidden.delta.data != nullptr) complete(hidden.delta, lane);
  }
  return inner_->wanted_rows(hidden, wanted, arena, lane);
}

void ContextRows::linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) {
  if (!divides(x, lane)) return inner_->linear(x, weight, role, y, lane);
  if (role == LinearRole::alone) {  // a router: experts take the rows of all tokens
    complete(x, lane);
    return inner_->linear(x, weight, role, y, lane);
  }
  inner_->linear(own(x), weight, role, own(y), lane);
  if (role == LinearRole::qkv) complete(y, lane);
}

void ContextRows::linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) {
  if (!divides(x, lane)) return inner_->linear_swiglu(x, weight, gate_up, y, lane);
  inner_->linear_swiglu(own(x), weight, own(gate_up), own(y), lane);
}

void ContextRows::logits(Tensor x, const Weight& weight, Tensor y, const Lane& lane) {
  if (divides(x, lane)) complete(x, lane);
  inner_->logits(x, weight, y, lane);
}

}  // namespace heddle
