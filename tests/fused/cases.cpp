#include "fused/cases.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "base/thread_pool.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/course_rank.h"
#include "fused/linear_all_reduce/linear_all_reduce.h"
#include "fused/linear_reduce_scatter/linear_reduce_scatter.h"
#include "fused/numbers.h"
#include "kernels/linear/linear.h"

namespace heddle {
namespace {

constexpr std::int64_t kMostRows = 23, kMostColumns = 40, kMostOut = 13, kTileRows = 3;
constexpr CourseHeads kCourseHeads[] = {
    {6, 3, DType::float32}, {4, 4, DType::bfloat16}, {8, 1, DType::float32}, {5, 1, DType::bfloat16, 16}};

// Cuts `total` at random; some ranks may get nothing, and none more than `most`.
Shards drawn_shards(Draws& draws, std::int64_t total, int ranks) {
  std::vector<std::int64_t> cuts{0, total};
  for (int i = 1; i < ranks; ++i) cuts.push_back(draws.between(0, total));
  std::sort(cuts.begin(), cuts.end());
  std::vector<std::int64_t> counts;
  for (std::size_t i = 1; i < cuts.size(); ++i) counts.push_back(cuts[i] - cuts[i - 1]);
  return Shards::of(counts);
}

// The columns [begin, begin + count) of a matrix with k columns.
std::vector<float> columns_of(const std::vector<float>& matrix, std::int64_t k, std::int64_t begin,
                              std::int64_t count) {
  std::vector<float> part;
  for (std::int64_t row = 0; row < std::ssize(matrix) / k; ++row)
    part.insert(part.end(), matrix.begin() + row * k + begin, matrix.begin() + row * k + begin + count);
  return part;
}

// The operands of one call of y = A W^T, in the dtypes that `linear` takes on the CPU.
struct Operands {
  std::int64_t m = 0, n = 0, k = 0;
  std::vector<float> a, w, bias;
  std::vector<float> x;  // what this rank holds of A, perhaps with columns that are not A's behind each row
  std::vector<bfloat16> x16, w16;
  std::vector<float> y;
  std::vector<bfloat16> y16;
  Tensor x_view, y_view;
  Weight weight;

  void view(std::int64_t rows, std::int64_t columns, std::int64_t stride, std::int64_t weight_columns, DType dtype,
            const std::vector<float>& own_weight) {
    y.assign(static_cast<std::size_t>(y_view.rows * y_view.columns), std::nanf(""));
    y_view.data = y.data();
    const bool narrow = dtype == DType::bfloat16;
    if (narrow) {
      x16 = rounded(x);
      w16 = rounded(own_weight);
    }
    x_view = {narrow ? static_cast<void*>(x16.data()) : x.data(), rows, columns, stride, dtype};
    weight = {.blocks = {{{narrow ? static_cast<const void*>(w16.data()) : own_weight.data(), n}}},
              .out_features = n,
              .in_features = weight_columns,
              .dtype = dtype,
              .bias = bias.empty() ? nullptr : bias.data()};
  }
};

void check_gathered(const Operands& call, Stream& stream, const char* what, int number) {
  // On the CPU, the bits of the unfused pair: `linear` over all of A.
  std::vector<float> whole(call.y.size());
  std::vector<bfloat16> a16;
  std::vector<float> a = call.a;
  if (call.x_view.dtype == DType::bfloat16) a16 = rounded(a);
  const Tensor x{a16.empty() ? static_cast<void*>(a.data()) : a16.data(), call.m, call.k, call.k, call.x_view.dtype};
  Tensor y = call.y_view;
  y.data = whole.data();
  linear({.x = x, .weight = call.weight, .y = y}, stream);
  stream.synchronize();
  for (std::size_t i = 0; i < whole.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    Dot want = dot_of(call.a, call.w, call.k, at / call.n, at % call.n);
    want.value += static_cast<double>(call.bias[i % static_cast<std::size_t>(call.n)]);
    want.magnitude += 4;
    expect_close(call.y[i], want, call.k, what, number, at);
    if (std::bit_cast<std::uint32_t>(call.y[i]) != std::bit_cast<std::uint32_t>(whole[i]))
      throw_error<Failure>("{}: call {} element {} is {}, and {} by linear over all of A", what, number, i, call.y[i],
                           whole[i]);
  }
}

void gather_course(CourseRank& rank, Sharded sharded, DType dtype) {
  const bool of_rows = sharded == Sharded::rows;
  const int size = rank.fabric.size(), me = rank.fabric.rank();
  AllGatherLinear fused(rank.fabric, world_of(rank.fabric),
                        {.sharded = sharded,
                         .largest_shard = of_rows ? kMostRows : kMostColumns,
                         .other = of_rows ? kMostColumns : kMostRows,
                         .dtype = dtype,
                         .tile_rows = kTileRows});
  ThreadPool pool(1);
  Stream transfers(pool);
  Draws shared(rank.course.seed + (of_rows ? 1 : 2) + static_cast<std::uint32_t>(dtype) * 8);
  std::vector<std::unique_ptr<Operands>> flying;
  for (int number = 0; number < rank.course.calls; ++number) {
    auto call = std::make_unique<Operands>();
    call->m = shared.between(0, kMostRows);
    call->k = of_rows ? kMostColumns : shared.between(1, kMostColumns);
    const Shards shards = drawn_shards(shared, of_rows ? call->m : call->k, size);
    const auto variant = static_cast<GatherVariant>(shared.between(0, 2));
    const auto seed = static_cast<std::uint32_t>(shared.between(0, 1 << 18));
    call->n = 1 + (static_cast<std::int64_t>(seed) + me) % kMostOut;  // other ranks have other widths
    call->a = numbers(call->m * call->k, seed, dtype);
    call->w = numbers(call->n * call->k, seed + 7 + static_cast<std::uint32_t>(me), dtype);
    call->bias = numbers(call->n, seed + 5, DType::float32);
    call->y_view = {nullptr, call->m, call->n, call->n, DType::float32};
    if (of_rows) {
      const auto begin = call->a.begin() + shards.begin(me) * call->k;
      call->x.assign(begin, begin + shards.count(me) * call->k);
      call->view(shards.count(me), call->k, call->k, call->k, dtype, call->w);
    } else {
      // A slice of a wider matrix on some ranks: rows that are not packed.
      const std::int64_t behind = me % 2 == 0 ? 0 : std::min<std::int64_t>(2, call->k - shards.begins[me + 1]);
      call->x = columns_of(call->a, call->k, shards.begin(me), shards.count(me) + behind);
      call->view(call->m, shards.count(me), shards.count(me) + behind, call->k, dtype, call->w);
    }
    rank.be_late();
    fused({.shards = shards, .x = call->x_view, .weight = call->weight, .y = call->y_view, .variant = variant},
          rank.stream, transfers);
    flying.push_back(std::move(call));
    if (std::ssize(flying) < rank.course.calls_in_flight && number + 1 < rank.course.calls) continue;
    rank.fabric.synchronize(rank.stream);
    for (const auto& done : flying)
      check_gathered(*done, rank.stream, of_rows ? "all_gather_linear on M" : "all_gather_linear on K", number);
    flying.clear();
  }
}

// Each rank holds columns of A and W.
std::unique_ptr<Operands> reduce_operands(Draws& shared, const Fabric& fabric, DType dtype) {
  auto call = std::make_unique<Operands>();
  call->m = shared.between(0, kMostRows);
  call->k = shared.between(fabric.size(), kMostColumns);
  call->n = kMostOut;
  const auto seed = static_cast<std::uint32_t>(shared.between(0, 1 << 18));
  call->a = numbers(call->m * call->k, seed, dtype);
  call->w = numbers(call->n * call->k, seed + 7, dtype);
  const Shards k = Shards::even(call->k, fabric.size());
  const int me = fabric.rank();
  call->x = columns_of(call->a, call->k, k.begin(me), k.count(me));
  call->view(call->m, k.count(me), k.count(me), k.count(me), dtype,
             call->bias = columns_of(call->w, call->k, k.begin(me), k.count(me)));
  call->weight.bias = nullptr;
  return call;
}

void check_summed(const Operands& call, std::int64_t first_row, const char* what, int number) {
  for (std::size_t i = 0; i < call.y.size(); ++i) {
    const auto at = static_cast<std::int64_t>(i);
    expect_close(call.y[i], dot_of(call.a, call.w, call.k, first_row + at / call.n, at % call.n), call.k + 8, what,
                 number, at);
  }
}

// The products of the ranks, as `linear` computes each, added in rank order: the bits that every rank must have.
std::vector<float> sum_in_rank_order(const Operands& call, int ranks, Stream& stream) {
  std::vector<float> sum(static_cast<std::size_t>(call.m * call.n)), part(sum.size());
  const Shards k = Shards::even(call.k, ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    std::vector<float> x = columns_of(call.a, call.k, k.begin(rank), k.count(rank));
    const std::vector<float> w = columns_of(call.w, call.k, k.begin(rank), k.count(rank));
    std::vector<bfloat16> x16 = rounded(x), w16 = rounded(w);
    const bool narrow = call.x_view.dtype == DType::bfloat16;
    linear({.x = {narrow ? static_cast<void*>(x16.data()) : x.data(), call.m, k.count(rank), k.count(rank),
                  call.x_view.dtype},
            .weight = {.blocks = {{{narrow ? static_cast<const void*>(w16.data()) : w.data(), call.n}}},
                       .out_features = call.n,
                       .in_features = k.count(rank),
                       .dtype = call.x_view.dtype},
            .y = {part.data(), call.m, call.n, call.n, DType::float32}},
           stream);
    stream.synchronize();
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = rank == 0 ? part[i] : sum[i] + part[i];
  }
  return sum;
}

// `first_row`: of the call's rows, the first that y has.
void check_bits_of_sum(const Operands& call, std::int64_t first_row, CourseRank& rank, const char* what, int number) {
  const std::vector<float> want = sum_in_rank_order(call, rank.fabric.size(), rank.stream);
  const auto first = static_cast<std::size_t>(first_row * call.n);
  const auto check = [&](const auto& y, const auto& narrowed, const auto& bits) {
    for (std::size_t i = 0; i < y.size(); ++i)
      if (bits(y[i]) != bits(narrowed(want[first + i])))
        throw_error<Failure>("{}: call {} element {} is {}, and {} by sums in rank order", what, number, i,
                             to_float(y[i]), want[first + i]);
  };
  if (call.y_view.dtype == DType::bfloat16)
    check(call.y16, to_bfloat16, [](bfloat16 x) { return x.bits; });
  else
    check(
        call.y, [](float x) { return x; }, [](float x) { return std::bit_cast<std::uint32_t>(x); });
}

// To y of x's dtype in every other call.
void reduce_scatter_course(CourseRank& rank, DType dtype) {
  LinearReduceScatter fused(rank.fabric, world_of(rank.fabric),
                            {.largest_shard = kMostRows, .n = kMostOut, .tile_rows = kTileRows});
  Draws shared(rank.course.seed + 3);
  std::vector<std::pair<std::unique_ptr<Operands>, std::int64_t>> flying;
  for (int number = 0; number < rank.course.calls; ++number) {
    auto call = reduce_operands(shared, rank.fabric, dtype);
    const Shards rows = drawn_shards(shared, call->m, rank.fabric.size());
    const int me = rank.fabric.rank();
    const auto elements = static_cast<std::size_t>(rows.count(me) * call->n);
    const bool narrow = dtype == DType::bfloat16 && number % 2 == 1;
    call->y.assign(narrow ? 0 : elements, std::nanf(""));
    call->y16.assign(narrow ? elements : 0, to_bfloat16(std::nanf("")));
    call->y_view = {narrow ? static_cast<void*>(call->y16.data()) : call->y.data(), rows.count(me), call->n, call->n,
                    narrow ? dtype : DType::float32};
    rank.be_late();
    fused({.rows = rows, .x = call->x_view, .weight = call->weight, .y = call->y_view}, rank.stream);
    flying.emplace_back(std::move(call), rows.begin(me));
    if (std::ssize(flying) < rank.course.calls_in_flight && number + 1 < rank.course.calls) continue;
    rank.fabric.synchronize(rank.stream);
    for (const auto& [done, first_row] : flying) {
      check_summed(*done, first_row, "linear_reduce_scatter", number);
      check_bits_of_sum(*done, first_row, rank, "linear_reduce_scatter", number);
    }
    flying.clear();
  }
}

void all_reduce_course(CourseRank& rank, DType dtype) {
  LinearAllReduce fused(rank.fabric, world_of(rank.fabric), {.m = kMostRows, .n = kMostOut, .tile_rows = kTileRows});
  Draws shared(rank.course.seed + 4);
  std::vector<std::unique_ptr<Operands>> flying;
  for (int number = 0; number < rank.course.calls; ++number) {
    auto call = reduce_operands(shared, rank.fabric, dtype);
    call->y.assign(static_cast<std::size_t>(call->m * call->n), std::nanf(""));
    call->y_view = {call->y.data(), call->m, call->n, call->n, DType::float32};
    rank.be_late();
    fused({.x = call->x_view, .weight = call->weight, .y = call->y_view}, rank.stream);
    flying.push_back(std::move(call));
    if (std::ssize(flying) < rank.course.calls_in_flight && number + 1 < rank.course.calls) continue;
    rank.fabric.synchronize(rank.stream);
    for (const auto& done : flying) {
      check_summed(*done, 0, "linear_all_reduce", number);
      check_bits_of_sum(*done, 0, rank, "linear_all_reduce", number);
    }
    flying.clear();
  }
}

}  // namespace

std::size_t heap_bytes_of_fused_course(int ranks) {
  const AllGatherLinearLimits limits{
      .largest_shard = kMostRows, .other = kMostColumns, .dtype = DType::float32, .tile_rows = 1};
  return 4 * (AllGatherLinear::heap_bytes(ranks, limits, DeviceKind::cpu) + 4096) + (std::size_t{1} << 20) +
         heap_bytes_of_norm_course(ranks);
}

void run_fused_course(Fabric& fabric, Stream& stream, const FusedCourse& course, FunctionRef<void(const char*)> done) {
  CourseRank rank{fabric, stream, course};
  const auto part = [&](const char* name, const auto& run) {
    if (!std::string_view(name).starts_with(course.only)) return;
    run();
    done(name);
  };
  part("all_gather_linear, A sharded on M", [&] { gather_course(rank, Sharded::rows, DType::float32); });
  part("all_gather_linear, A sharded on K", [&] { gather_course(rank, Sharded::columns, DType::float32); });
  part("all_gather_linear, bfloat16", [&] {
    gather_course(rank, Sharded::rows, DType::bfloat16);
    gather_course(rank, Sharded::columns, DType::bfloat16);
  });
  part("linear_reduce_scatter", [&] {
    reduce_scatter_course(rank, DType::float32);
    reduce_scatter_course(rank, DType::bfloat16);
  });
  part("linear_all_reduce", [&] {
    all_reduce_course(rank, DType::float32);
    all_reduce_course(rank, DType::bfloat16);
  });
  part("flash_decode", [&] {
    for (const CourseHeads& form : kCourseHeads) decode_course(rank, form);
  });
  part("flash_decode, attend", [&] {
    for (const CourseHeads& form : kCourseHeads) attend_course(rank, form);
  });
  part("all_reduce_norm", [&] { norm_course(rank); });
}

}  // namespace heddle
