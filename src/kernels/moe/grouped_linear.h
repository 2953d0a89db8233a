// GEMMs of groups of rows, each with a weight of its own: y[r] = x[r] W[g]^T + bias[g] for the rows r of group g,
// first_row[g] <= r < first_row[g + 1]. A row's bits are those of linear() on the CPU (linear/linear.h), whatever else is
// in its group. Only the weights of groups with rows are read.
#pragma once

#include <cstdint>

#include "base/lane.h"
#include "base/tensor.h"
#include "base/weight.h"

namespace heddle {

// The weights of all groups, of equal sizes and dtype.
struct WeightGroup {
  const Weight* weights{};     // [count], in host memory; on a GPU of one run each, without biases
  const void* const* table{};  // on a GPU [count] in its memory: the first element of each weight; null on the CPU
  int count = 0;
};

struct GroupedLinearParams {
  Tensor x;  // [num_rows, in_features], as linear() takes it
  WeightGroup group;
  const std::int32_t* first_row{};  // [count + 1] in memory of the stream's device: 0, ascending, num_rows
  Tensor y;                         // [num_rows, out_features], as linear() writes it; does not overlap x
};

// Enqueues on the lane's stream. A launch depends on shapes only. Throws InvalidArgument unless shapes and dtypes fit;
// the contents of first_row are a precondition, which a CPU stream checks.
void grouped_linear(const GroupedLinearParams& params, const Lane& lane);

// The checks of grouped_linear(): throws InvalidArgument.
void require_grouped_linear(const GroupedLinearParams& params, const Lane& lane);

}  // namespace heddle
