#include "kernels/moe/grouped_linear.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "kernels/dry_run.h"
#include "kernels/linear/linear_cpu.h"
#include "kernels/moe/grouped_linear_sm90.h"
#include "kernels/preconditions.h"

namespace heddle {
namespace {

// Rows of a weight that a thread takes at a time: whole tiles (linear-inl.h), and long enough to be worth handing out.
std::int64_t rows_of_chunk(std::int64_t out_features, std::int64_t in_features) {
  constexpr std::int64_t kChunkElements = 1 << 17;
  constexpr std::int64_t kTiles = 4 * kRowsOfFew;
  return std::min(round_up(std::max<std::int64_t>(1, kChunkElements / in_features), kTiles),
                  round_up(out_features, kTiles));
}

Tensor rows_at(const Tensor& tensor, std::int64_t first, std::int64_t count) {
  Tensor part = tensor;
  part.data = static_cast<std::byte*>(tensor.data) +
              static_cast<std::size_t>(first * tensor.row_stride) * size_of(tensor.dtype);
  part.rows = count;
  return part;
}

void grouped_linear_cpu(const GroupedLinearParams& params, ThreadPool& pool) {
  const LinearRows multiply = linear_rows_of(loops_for(linear_cpu_machine(), params.x.dtype));
  const std::int32_t* first_row = params.first_row;
  const int count = params.group.count;
  require(first_row[0] == 0 && first_row[count] == params.x.rows && std::is_sorted(first_row, first_row + count + 1),
          "grouped_linear: the groups of {} rows begin at {} and end at {}, or do not ascend", params.x.rows,
          first_row[0], first_row[count]);
  std::int64_t groups = 0;  // that have rows
  for (int g = 0; g < count; ++g) groups += first_row[g + 1] > first_row[g] ? 1 : 0;
  const Weight& any = params.group.weights[0];
  const std::int64_t chunk = rows_of_chunk(any.out_features, any.in_features);
  const std::int64_t chunks = ceil_div(any.out_features, chunk);  // of a group
  pool.parallel_for(groups * chunks, 1, [&](std::int64_t begin, std::int64_t end) {
    int g = -1;
    std::int64_t reached = -1;  // g is this one of the groups that have rows
    for (std::int64_t piece = begin; piece < end; ++piece) {
      for (; reached < piece / chunks; ++reached) do {
          ++g;
        } while (first_row[g + 1] == first_row[g]);
      const std::int64_t first = first_row[g], rows = first_row[g + 1] - first;
      const std::int64_t begin_row = piece % chunks * chunk;
      const LinearParams of_group{
          .x = rows_at(params.x, first, rows), .weight = params.group.weights[g], .y = rows_at(params.y, first, rows)};
      multiply(of_group, begin_row, std::min(any.out_features, begin_row + chunk));
    }
  });
}

}  // namespace

void require_grouped_linear(const GroupedLinearParams& params, const Lane& lane) {
  const bool on_gpu = lane.stream.device().kind == DeviceKind::cuda;
  const WeightGroup& group = params.group;
  require(group.count >= 1 && group.weights != nullptr, "grouped_linear: no weights");
  const Weight& any = group.weights[0];
  for (int g = 0; g < group.count; ++g) {
    const Weight& weight = group.weights[g];
    require_weight(weight, "grouped_linear");
    require(
        weight.out_features == any.out_features && weight.in_features == any.in_features && weight.dtype == any.dtype,
        "grouped_linear: weight {} is [{}, {}] of {}, weight 0 [{}, {}] of {}", g, weight.out_features,
        weight.in_features, name_of(weight.dtype), any.out_features, any.in_features, name_of(any.dtype));
    if (!on_gpu) continue;
    require_one_run(weight, "grouped_linear");
    require(weight.bias == nullptr, "grouped_linear: weight {} has a bias, on a GPU", g);
  }
  require_activation(params.x, params.x.rows, any.in_features, "grouped_linear", "x",
                     activations_on(lane.stream, ActivationDTypes::with_bfloat16));
  require_activation(params.y, params.x.rows, any.out_features, "grouped_linear", "y",
                     activations_on(lane.stream, ActivationDTypes::float32));
  require(on_gpu || params.x.dtype == DType::float32 || any.dtype == DType::bfloat16,
          "grouped_linear: x is bfloat16 and the weights {}; bfloat16 is multiplied with bfloat16 alone",
          name_of(any.dtype));
  require_array(params.first_row, params.x.rows, "grouped_linear", "first_row");
  if (on_gpu) require_array(group.table, params.x.rows, "grouped_linear", "the table of weights");
}

void grouped_linear(const GroupedLinearParams& params, const Lane& lane) {
  require_grouped_linear(params, lane);
  if (params.x.rows == 0 || recorded(params, lane)) return;
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) return grouped_linear_sm90(params, lane);
  }
  lane.stream.enqueue([params](ThreadPool& pool) { grouped_linear_cpu(params, pool); });
}

}  // namespace heddle
