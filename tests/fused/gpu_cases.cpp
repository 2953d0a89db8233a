#include "fused/gpu_cases.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/lane.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/gpu_rank.h"
#include "fused/linear_all_reduce/linear_all_reduce.h"
#include "fused/linear_reduce_scatter/linear_reduce_scatter.h"
#include "fused/numbers.h"

namespace heddle {
namespace {

constexpr std::size_t kRoomBytes = std::size_t{192} << 20, kWorkspaceBytes = std::size_t{8} << 20;

// One way to be made: what TMA and WGMMA take, or what the plain kernels are for.
struct GpuForm {
  DType dtype;
  std::int64_t tile_rows;
  std::int64_t unit;  // K, and where it is divided, are multiples of this
  std::int64_t least_rows = 1, most_rows = 300, most_columns = 256, most_out = 300;
  int most_calls = 1000, most_in_flight = 1000;
};
constexpr GpuForm kForms[] = {{DType::bfloat16, 64, 8},
                              {DType::float16, 128, 8},
                              {DType::bfloat16, 16, 8},
                              {DType::float32, 64, 1},
                              {DType::bfloat16, 5, 1},
                              // An all-reduce of few rows, in one shot and in two phases.
                              {DType::bfloat16, 64, 8, 1, 64, 128, 4400, 10, 5},
                              // Several tiles of C per block, and several rounds of its ring.
                              {DType::float16, 64, 8, 800, 1100, 640, 4400, 6, 2}};
// What the decode kernel takes: one and several heads of a KV head, up to three work items of a unit. And what it does
// not: dtype, head_dim, heads, latents.
constexpr GpuDecodeForm kDecodeForms[] = {
    {8, 2, 128, DType::bfloat16}, {3, 3, 64, DType::float16},        {5, 5, 128, DType::bfloat16},
    {16, 2, 128, DType::float16}, {12, 1, 64, DType::bfloat16},      {36, 1, 128, DType::bfloat16},
    {4, 2, 96, DType::bfloat16},  {6, 1, 64, DType::float32},        {9, 1, 72, DType::bfloat16},
    {70, 1, 64, DType::bfloat16}, {16, 1, 576, DType::bfloat16, 512}};

// Columns [begin, begin + count + behind) of a matrix with k columns; those behind are not A's.
std::vector<float> columns_and_more(const std::vector<float>& matrix, std::int64_t k, std::int64_t begin,
                                    std::int64_t count, std::int64_t behind) {
  std::vector<float> part;
  for (std::int64_t row = 0; row < std::ssize(matrix) / k; ++row) {
    part.insert(part.end(), matrix.begin() + row * k + begin, matrix.begin() + row * k + begin + count);
    part.insert(part.end(), static_cast<std::size_t>(behind), std::nanf(""));
  }
  return part;
}

Weight weight_on(GpuRank& gpu, const std::vector<float>& values, std::int64_t n, std::int64_t k, DType dtype,
                 const std::vector<float>& bias) {
  return {.blocks = {{{gpu.room.put(gpu.rank.stream, encoded(values, dtype)), n}}},
          .out_features = n,
          .in_features = k,
          .dtype = dtype,
          .bias = bias.empty()
                      ? nullptr
                      : static_cast<const float*>(gpu.room.put(gpu.rank.stream, encoded(bias, DType::float32)))};
}

Tensor empty_result(GpuRank& gpu, std::int64_t rows, std::int64_t columns, DType dtype) {
  return {gpu.room.put_nans(gpu.rank.stream, static_cast<std::size_t>(rows * columns) * size_of(dtype) + 1), rows,
          columns, columns, dtype};
}

AllGatherLinearLimits gather_limits_of(Sharded sharded, const GpuForm& form) {
  const bool of_rows = sharded == Sharded::rows;
  return {.sharded = sharded,
          .largest_shard = of_rows ? form.most_rows : form.most_columns,
          .other = of_rows ? form.most_columns - (form.unit == 1 ? 7 : 0) : form.most_rows,
          .dtype = form.dtype,
          .tile_rows = form.tile_rows};
}

void gather_on_gpus(GpuRank& gpu, Sharded sharded, const GpuForm& form) {
  const bool of_rows = sharded == Sharded::rows;
  const AllGatherLinearLimits limits = gather_limits_of(sharded, form);
  AllGatherLinear fused(gpu.rank.fabric, world_of(gpu.rank.fabric), limits);
  gpu.run(
      [&](int number) -> GpuRank::Call {
        const int me = gpu.me();
        const std::int64_t m = gpu.shared.between(form.least_rows, form.most_rows),
                           k = of_rows ? limits.other
                                       : gpu.shared.between(1, form.most_columns / form.unit) * form.unit;
        const Shards shards = gpu.drawn_shards(of_rows ? m : k, of_rows ? 1 : form.unit);
        const auto variant = static_cast<GatherVariant>(gpu.shared.between(0, 2));
        const auto seed = static_cast<std::uint32_t>(gpu.shared.between(0, 1 << 18));
        const std::int64_t n =
            form.most_out - (static_cast<std::int64_t>(seed) + me * 7) % 300;  // other ranks: other widths
        const DType y_dtype = seed % 2 == 0 ? form.dtype : DType::float32;
        const std::vector<float> a = numbers(m * k, seed, form.dtype),
                                 w = numbers(n * k, seed + 7 + static_cast<std::uint32_t>(me), form.dtype),
                                 bias = seed % 3 == 0 ? std::vector<float>{} : numbers(n, seed + 5, DType::bfloat16);
        const std::int64_t behind = of_rows || me % 2 == 0 ? 0 : form.unit;  // rows that are not packed, on some ranks
        const std::vector<float> mine =
            of_rows ? std::vector<float>(a.begin() + shards.begin(me) * k, a.begin() + shards.begins[me + 1] * k)
                    : columns_and_more(a, k, shards.begin(me), shards.count(me), behind);
        const std::int64_t rows = of_rows ? shards.count(me) : m, columns = of_rows ? k : shards.count(me);
        const AllGatherLinearParams params{.shards = shards,
                                           .x = {gpu.room.put(gpu.rank.stream, encoded(mine, form.dtype)), rows,
                                                 columns, columns + behind, form.dtype},
                                           .weight = weight_on(gpu, w, n, k, form.dtype, bias),
                                           .y = empty_result(gpu, m, n, y_dtype),
                                           .variant = variant,
                                           .tile = number % 6 - 1};
        return {.enqueue = [&gpu, &fused, params] { fused(params, gpu.lane(), gpu.transfers); },
                .check = [&gpu, params, a, w, bias, k,
                          number] { gpu.check(params.y, a, w, bias, k, 0, name_of(params.variant).data(), number); }};
      },
      form.most_calls, form.most_in_flight);
}

struct ReduceOperands {
  std::vector<float> a, w;
  std::int64_t m, k;
  Tensor x;
  Weight weight;
};

ReduceOperands reduce_operands_on(GpuRank& gpu, const GpuForm& form, std::int64_t n) {
  ReduceOperands made;
  made.m = gpu.shared.between(form.least_rows, form.most_rows);
  // Every rank has a column.
  const Shards k = Shards::even(gpu.shared.between(gpu.size(), form.most_columns / form.unit), gpu.size());
  made.k = k.total() * form.unit;
  const auto seed = static_cast<std::uint32_t>(gpu.shared.between(0, 1 << 18));
  made.a = numbers(made.m * made.k, seed, form.dtype);
  made.w = numbers(n * made.k, seed + 7, form.dtype);
  const std::int64_t begin = k.begin(gpu.me()) * form.unit, count = k.count(gpu.me()) * form.unit;
  made.x = {gpu.room.put(gpu.rank.stream, encoded(columns_and_more(made.a, made.k, begin, count, 0), form.dtype)),
            made.m, count, count, form.dtype};
  made.weight = weight_on(gpu, columns_and_more(made.w, made.k, begin, count, 0), n, count, form.dtype, {});
  return made;
}

std::int64_t out_of(const GpuForm& form) {
  return form.unit == 1 ? 131 : form.most_out;
}

void reduce_scatter_on_gpus(GpuRank& gpu, const GpuForm& form) {
  const std::int64_t n = out_of(form);
  LinearReduceScatter fused(gpu.rank.fabric, world_of(gpu.rank.fabric),
                            {.largest_shard = form.most_rows, .n = n, .tile_rows = form.tile_rows});
  gpu.run(
      [&](int number) -> GpuRank::Call {
        const ReduceOperands made = reduce_operands_on(gpu, form, n);
        const Shards rows = gpu.drawn_shards(made.m, 1);
        const LinearReduceScatterParams params{
            .rows = rows,
            .x = made.x,
            .weight = made.weight,
            .y = empty_result(gpu, rows.count(gpu.me()), n, number % 2 == 0 ? DType::float32 : form.dtype)};
        return {.enqueue = [&gpu, &fused, params] { fused(params, gpu.lane()); },
                .check =
                    [&gpu, params, made, number] {
                      gpu.check(params.y, made.a, made.w, {}, made.k, params.rows.begin(gpu.me()),
                                "linear_reduce_scatter", number);
                    }};
      },
      form.most_calls, form.most_in_flight);
}

void all_reduce_on_gpus(GpuRank& gpu, const GpuForm& form) {
  const std::int64_t n = out_of(form);
  LinearAllReduce fused(gpu.rank.fabric, world_of(gpu.rank.fabric),
                        {.m = form.most_rows, .n = n, .tile_rows = form.tile_rows});
  gpu.run(
      [&](int number) -> GpuRank::Call {
        const ReduceOperands made = reduce_operands_on(gpu, form, n);
        const LinearAllReduceParams params{
            .x = made.x, .weight = made.weight, .y = empty_result(gpu, made.m, n, DType::float32)};
        return {.enqueue = [&gpu, &fused, params] { fused(params, gpu.lane()); },
                .check = [&gpu, params, made,
                          number] { gpu.check(params.y, made.a, made.w, {}, made.k, 0, "linear_all_reduce", number); }};
      },
      form.most_calls, form.most_in_flight);
}

}  // namespace

std::size_t heap_bytes_of_fused_gpu_course(int ranks) {
  std::size_t most = 0;
  for (const GpuForm& form : kForms) {
    for (const Sharded sharded : {Sharded::rows, Sharded::columns})
      most = std::max(most, AllGatherLinear::heap_bytes(ranks, gather_limits_of(sharded, form), DeviceKind::cuda));
    most =
        std::max({most,
                  LinearReduceScatter::heap_bytes(
                      ranks, {.largest_shard = form.most_rows, .n = out_of(form), .tile_rows = form.tile_rows},
                      DeviceKind::cuda),
                  LinearAllReduce::heap_bytes(
                      ranks, {.m = form.most_rows, .n = out_of(form), .tile_rows = form.tile_rows}, DeviceKind::cuda)});
  }
  for (const GpuDecodeForm& form : kDecodeForms)
    most = std::max(most, FlashDecode::heap_bytes(ranks, gpu_decode_limits(form)));
  return most + heap_bytes_of_norm_gpu_course(ranks) + (std::size_t{1} << 20);
}

void run_fused_gpu_course(Fabric& fabric, Stream& stream, const FusedCourse& course,
                          FunctionRef<void(const char*)> done) {
  CourseRank rank{fabric, stream, course};
  DeviceRoom room(kRoomBytes, fabric.device());
  Buffer workspace(kWorkspaceBytes, fabric.device());
  Stream transfers(fabric.device());
  fabric.meet();
  GpuRank gpu{rank, room, transfers, Draws(course.seed), {workspace.data(), workspace.size_bytes()}};
  const auto part = [&](const char* name, const auto& run) {
    if (!std::string_view(name).starts_with(course.only)) return;
    run();
    done(name);
  };
  const auto each_form = [](const auto& forms, const auto& run) {
    return [&forms, run] {
      for (const auto& form : forms) run(form);
    };
  };
  part("all_gather_linear, A sharded on M",
       each_form(kForms, [&](const GpuForm& form) { gather_on_gpus(gpu, Sharded::rows, form); }));
  part("all_gather_linear, A sharded on K",
       each_form(kForms, [&](const GpuForm& form) { gather_on_gpus(gpu, Sharded::columns, form); }));
  part("linear_reduce_scatter", each_form(kForms, [&](const GpuForm& form) { reduce_scatter_on_gpus(gpu, form); }));
  part("linear_all_reduce", each_form(kForms, [&](const GpuForm& form) { all_reduce_on_gpus(gpu, form); }));
  part("flash_decode", each_form(kDecodeForms, [&](const GpuDecodeForm& form) { decode_on_gpus(gpu, form); }));
  part("all_reduce_norm", [&] { norm_gpu_course(rank, room); });
  fabric.meet();  // memory is freed when no kernel waits any more
}

}  // namespace heddle
