// The cases of the fused benchmarks: all-gather + GEMM, GEMM + reduce-scatter, GEMM + all-reduce, each beside the pair
// of our own collective and `linear`.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/buffer.h"
#include "base/error.h"
#include "cli/bench/fused.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/reduce_scatter.h"
#include "fused/all_gather_linear/all_gather_linear.h"
#include "fused/linear_all_reduce/linear_all_reduce.h"
#include "fused/linear_reduce_scatter/linear_reduce_scatter.h"
#include "fused/rows_of.h"
#include "kernels/linear/linear.h"

namespace heddle {
namespace {

enum class FusedOperator : std::uint8_t { all_gather_linear, linear_reduce_scatter, linear_all_reduce };

std::string name_of(FusedOperator fused) {
  switch (fused) {
    case FusedOperator::all_gather_linear:
      return "all-gather-linear";
    case FusedOperator::linear_reduce_scatter:
      return "linear-reduce-scatter";
    case FusedOperator::linear_all_reduce:
      return "linear-all-reduce";
  }
  return "?";
}

// C [m, n] = A [m, k] times the transpose of W [n, k], as a whole: each rank holds its shards.
struct FusedShape {
  std::int64_t m = 0, n = 0, k = 0;
  Sharded sharded = Sharded::columns;
  DType dtype = DType::float32;
};

enum class Operand : std::uint32_t { a = 1, w = 2 };

// From -1 to 1, rounded to the dtype in which the operand lies.
float element(Operand operand, DType dtype, std::int64_t row, std::int64_t column) {
  auto x = static_cast<std::uint32_t>(row) * 2654435761u ^ static_cast<std::uint32_t>(column) * 2246822519u ^
           static_cast<std::uint32_t>(operand) * 3266489917u;
  x ^= x >> 15;
  x *= 2246822519u;
  x ^= x >> 13;
  const float value = static_cast<float>(x >> 8) * 0x1p-23f - 1;
  if (dtype == DType::bfloat16) return to_float(to_bfloat16(value));
  return dtype == DType::float16 ? to_float(to_float16(value)) : value;
}

std::size_t bytes_of(std::int64_t rows, std::int64_t columns, DType dtype) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * size_of(dtype);
}

// Rows and columns of an operand in memory of its own.
class Part {
 public:
  Part(std::int64_t rows, std::int64_t columns, DType dtype)
      : buffer_(std::max<std::size_t>(1, bytes_of(rows, columns, dtype))),
        tensor_{buffer_.data(), rows, columns, columns, dtype} {}
  Part(Operand operand, std::int64_t first_row, std::int64_t rows, std::int64_t first_column, std::int64_t columns,
       DType dtype)
      : Part(rows, columns, dtype) {
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        store(row * columns + column, element(operand, dtype, first_row + row, first_column + column));
  }
  // By name: a tensor into this object's memory.
  const Tensor& tensor() const { return tensor_; }
  Weight weight() const {
    return {.blocks = {{{tensor_.data, tensor_.rows}}},
            .out_features = tensor_.rows,
            .in_features = tensor_.columns,
            .dtype = tensor_.dtype};
  }

 private:
  void store(std::int64_t at, float value) {
    if (tensor_.dtype == DType::float32)
      static_cast<float*>(tensor_.data)[at] = value;
    else if (tensor_.dtype == DType::bfloat16)
      static_cast<bfloat16*>(tensor_.data)[at] = to_bfloat16(value);
    else
      static_cast<float16*>(tensor_.data)[at] = to_float16(value);
  }

  Buffer buffer_;
  Tensor tensor_;
};

// The CPU multiplies weights of float16 with activations of float32.
DType activation_dtype(DType dtype) {
  return dtype == DType::float16 ? DType::float32 : dtype;
}

double exact_element(const FusedShape& shape, std::int64_t row, std::int64_t column) {
  double sum = 0;
  for (std::int64_t i = 0; i < shape.k; ++i)
    sum += static_cast<double>(element(Operand::a, activation_dtype(shape.dtype), row, i)) *
           static_cast<double>(element(Operand::w, shape.dtype, column, i));
  return sum;
}

// A part of C.
class LinearCase : public FusedCase {
 public:
  double max_relative_error() const final {
    constexpr std::int64_t kMostLooks = 4096;
    const std::int64_t count = result_.rows * result_.columns;
    const std::int64_t stride = count / kMostLooks | 1;  // odd, so that it visits all columns of even widths
    // Of k products of two numbers that are even over [-1, 1], each of variance 1/3.
    const double root_mean_square = std::sqrt(static_cast<double>(shape_.k)) / 3;
    double most = 0;
    for (std::int64_t i = 0; i < count; i += stride) {
      const std::int64_t row = i / result_.columns, column = i % result_.columns;
      const double want = exact_element(shape_, first_row_ + row, first_column_ + column);
      const double got = static_cast<const float*>(result_.data)[row * result_.row_stride + column];
      if (std::isnan(got)) return got;
      most = std::max(most, std::abs(got - want) / std::max(std::abs(want), root_mean_square));
    }
    return most;
  }

 protected:
  explicit LinearCase(const FusedShape& shape) : shape_(shape) {}

  FusedShape shape_;
  std::int64_t first_row_ = 0, first_column_ = 0;  // where result_ begins in C
};

AllGatherLinearLimits gather_limits(const FusedShape& shape, int ranks) {
  const bool of_rows = shape.sharded == Sharded::rows;
  return {.sharded = shape.sharded,
          .largest_shard = Shards::even(of_rows ? shape.m : shape.k, ranks).largest(),
          .other = of_rows ? shape.k : shape.m,
          .dtype = activation_dtype(shape.dtype)};
}

class GatherCase final : public LinearCase {
 public:
  GatherCase(const FusedShape& shape, const FusedRank& rank)
      : LinearCase(shape),
        rank_(rank),
        of_rows_(shape.sharded == Sharded::rows),
        shards_(Shards::even(of_rows_ ? shape.m : shape.k, rank.fabric.size())),
        columns_(Shards::even(shape.n, rank.fabric.size())),
        x_(Operand::a, of_rows_ ? begin() : 0, of_rows_ ? count() : shape.m, of_rows_ ? 0 : begin(),
           of_rows_ ? shape.k : count(), activation_dtype(shape.dtype)),
        weight_(Operand::w, columns_.begin(me()), columns_.count(me()), 0, shape.k, shape.dtype),
        y_(shape.m, columns_.count(me()), DType::float32),
        piece_(largest_rows(), largest_columns(), x_.tensor().dtype),
        pieces_(largest_rows() * rank.fabric.size(), largest_columns(), x_.tensor().dtype),
        whole_(shape.m, shape.k, x_.tensor().dtype),
        fused_(rank.fabric, whole_team(rank.fabric), gather_limits(shape, rank.fabric.size())) {
    result_ = y_.tensor();
    first_column_ = columns_.begin(me());
    variants_.push_back({"bsp", [this] { call_pair(); }});
    for (const GatherVariant variant : {GatherVariant::pull, GatherVariant::push, GatherVariant::copy})
      variants_.push_back({std::string(name_of(variant)), [this, variant] {
                             fused_({.shards = shards_,
                                     .x = x_.tensor(),
                                     .weight = weight_.weight(),
                                     .y = y_.tensor(),
                                     .variant = variant},
                                    rank_.stream, rank_.transfers);
                           }});
  }

 private:
  int me() const { return rank_.fabric.rank(); }
  std::int64_t begin() const { return shards_.begin(me()); }
  std::int64_t count() const { return shards_.count(me()); }
  std::int64_t largest_rows() const { return of_rows_ ? shards_.largest() : shape_.m; }
  std::int64_t largest_columns() const { return of_rows_ ? shape_.k : shards_.largest(); }

  // All-gather takes pieces of one length, so a shorter shard is padded. Even shards of rows lie as A does; others are
  // moved to their place.
  void call_pair() {
    const bool even = shards_.total() == shards_.largest() * shards_.ranks;
    const Tensor x = x_.tensor();
    if (!even)
      rank_.stream.enqueue([x, to = piece_.tensor().data](ThreadPool&) {
        std::memcpy(to, x.data, bytes_of(x.rows, x.columns, x.dtype));
      });
    const auto count = static_cast<std::size_t>(largest_rows() * largest_columns());
    all_gather(rank_.communicator, {even ? x.data : piece_.tensor().data, pieces_.tensor().data, count, x.dtype},
               rank_.stream);
    const bool in_place = of_rows_ && even;
    if (!in_place) rank_.stream.enqueue([this](ThreadPool&) { move_to_place(); });
    linear({.x = in_place ? rows_of(pieces_.tensor(), 0, shape_.m) : whole_.tensor(),
            .weight = weight_.weight(),
            .y = y_.tensor()},
           rank_.stream);
  }

  void move_to_place() const {
    const std::size_t element_bytes = size_of(whole_.tensor().dtype);
    const auto* const from = static_cast<const std::byte*>(pieces_.tensor().data);
    auto* const to = static_cast<std::byte*>(whole_.tensor().data);
    for (int rank = 0; rank < shards_.ranks; ++rank) {
      const std::byte* const piece =
          from + static_cast<std::size_t>(rank * largest_rows() * largest_columns()) * element_bytes;
      const std::int64_t rows = of_rows_ ? shards_.count(rank) : shape_.m;
      const std::int64_t columns = of_rows_ ? shape_.k : shards_.count(rank);
      for (std::int64_t row = 0; row < rows; ++row) {
        const std::int64_t place =
            of_rows_ ? (shards_.begin(rank) + row) * shape_.k : row * shape_.k + shards_.begin(rank);
        std::memcpy(to + static_cast<std::size_t>(place) * element_bytes,
                    piece + static_cast<std::size_t>(row * columns) * element_bytes,
                    static_cast<std::size_t>(columns) * element_bytes);
      }
    }
  }

  FusedRank rank_;
  bool of_rows_;
  Shards shards_, columns_;  // of A, and of W's rows
  Part x_, weight_, y_, piece_, pieces_, whole_;
  AllGatherLinear fused_;
};

// Each rank has columns of A and W; a rank keeps rows of the sum, or all ranks all of it.
class ReduceCase final : public LinearCase {
 public:
  ReduceCase(FusedOperator fused, const FusedShape& shape, const FusedRank& rank)
      : LinearCase(shape),
        rank_(rank),
        scatters_(fused == FusedOperator::linear_reduce_scatter),
        rows_(Shards::even(shape.m, rank.fabric.size())),
        columns_(Shards::even(shape.k, rank.fabric.size())),
        x_(Operand::a, 0, shape.m, columns_.begin(me()), columns_.count(me()), activation_dtype(shape.dtype)),
        weight_(Operand::w, 0, shape.n, columns_.begin(me()), columns_.count(me()), shape.dtype),
        partials_(scatters_ ? rows_.largest() * rank.fabric.size() : shape.m, shape.n, DType::float32),
        y_(scatters_ ? std::max<std::int64_t>(1, rows_.largest()) : shape.m, shape.n, DType::float32) {
    result_ = y_.tensor();
    if (scatters_) {
      scatter_.emplace(rank.fabric, whole_team(rank.fabric), scatter_limits(shape, rank.fabric.size()));
      first_row_ = rows_.begin(me());
      result_.rows = rows_.count(me());
      variants_ = {{"bsp", [this] { scatter_pair(); }},
                   {"fused", [this] {
                      (*scatter_)({rows_, x_.tensor(), weight_.weight(), result_}, rank_.stream);
                    }}};
      return;
    }
    reduce_.emplace(rank.fabric, whole_team(rank.fabric), LinearAllReduceLimits{.m = shape.m, .n = shape.n});
    variants_ = {{"bsp", [this] { reduce_pair(); }},
                 {"fused", [this] {
                    (*reduce_)({x_.tensor(), weight_.weight(), result_}, rank_.stream);
                  }}};
  }

  static PartialLimits scatter_limits(const FusedShape& shape, int ranks) {
    return {.largest_shard = Shards::even(shape.m, ranks).largest(), .n = shape.n};
  }

 private:
  int me() const { return rank_.fabric.rank(); }

  void multiply(std::int64_t first, std::int64_t count, std::int64_t to) {
    linear({.x = rows_of(x_.tensor(), first, count),
            .weight = weight_.weight(),
            .y = rows_of(partials_.tensor(), to, count)},
           rank_.stream);
  }

  // Reduce-scatter takes pieces of one length, so a shorter one is padded.
  void scatter_pair() {
    if (rows_.largest() * rows_.ranks == shape_.m)
      multiply(0, shape_.m, 0);
    else
      for (int rank = 0; rank < rows_.ranks; ++rank)
        multiply(rows_.begin(rank), rows_.count(rank), rank * rows_.largest());
    reduce_scatter(rank_.communicator,
                   {partials_.tensor().data, y_.tensor().data, static_cast<std::size_t>(rows_.largest() * shape_.n),
                    DType::float32},
                   rank_.stream);
  }

  void reduce_pair() {
    multiply(0, shape_.m, 0);
    all_reduce(
        rank_.communicator,
        {partials_.tensor().data, y_.tensor().data, static_cast<std::size_t>(shape_.m * shape_.n), DType::float32},
        rank_.stream);
  }

  FusedRank rank_;
  bool scatters_;
  Shards rows_, columns_;  // of C, and of A and W
  Part x_, weight_, partials_, y_;
  std::optional<LinearReduceScatter> scatter_;
  std::optional<LinearAllReduce> reduce_;
};

std::unique_ptr<FusedCase> make_case(FusedOperator fused, const FusedShape& shape, const FusedRank& rank) {
  if (fused == FusedOperator::all_gather_linear) return std::make_unique<GatherCase>(shape, rank);
  return std::make_unique<ReduceCase>(fused, shape, rank);
}

std::size_t heap_bytes_of(FusedOperator fused, const FusedShape& shape, int ranks) {
  switch (fused) {
    case FusedOperator::all_gather_linear:
      return AllGatherLinear::heap_bytes(ranks, gather_limits(shape, ranks));
    case FusedOperator::linear_reduce_scatter:
      return LinearReduceScatter::heap_bytes(ranks, ReduceCase::scatter_limits(shape, ranks));
    case FusedOperator::linear_all_reduce:
      return LinearAllReduce::heap_bytes(ranks, {.m = shape.m, .n = shape.n});
  }
  return 0;
}

constexpr std::int64_t kMostOfDimension = std::int64_t{1} << 20;

struct LinearBenchOptions : FusedBenchOptions {
  std::vector<int> m{1, 96};
  FusedShape shape{.n = 1024, .k = 1024};  // of the whole product
};

// Every rank must have something to multiply; rows may be missing.
void require_shapes(FusedOperator fused, const LinearBenchOptions& options) {
  const int ranks = options.num_ranks();
  const bool gathers = fused == FusedOperator::all_gather_linear;
  const FusedShape& shape = options.shape;
  if (gathers && shape.n < ranks)
    throw_error<InputError>("--n {}: {} ranks divide the {} columns of C, and each needs one", shape.n, ranks, shape.n);
  if ((!gathers || shape.sharded == Sharded::columns) && shape.k < ranks)
    throw_error<InputError>("--k {}: {} ranks divide the {} columns of A, and each needs one", shape.k, ranks, shape.k);
}

void run_linear_bench(FusedOperator fused, const LinearBenchOptions& options) {
  require_devices(options, name_of(fused));
  require_shapes(fused, options);
  std::vector<FusedCaseMaker> cases;
  for (const int m : options.m) {
    FusedShape shape = options.shape;
    shape.m = m;
    cases.push_back({.shape = {{"m", shape.m},
                               {"n", shape.n},
                               {"k", shape.k},
                               {"shard", shape.sharded == Sharded::rows ? "m" : "k"},
                               {"dtype", name_of(shape.dtype)}},
                     .heap_bytes = heap_bytes_of(fused, shape, options.num_ranks()),
                     .make = [fused, shape](const FusedRank& rank) { return make_case(fused, shape, rank); }});
  }
  run_fused_bench(name_of(fused), options, cases);
}

void add_linear_benchmark(CLI::App& bench, FusedOperator fused, const std::string& description) {
  const auto options = std::make_shared<LinearBenchOptions>();
  CLI::App* command = bench.add_subcommand(name_of(fused), description);
  add_fused_options(*command, *options);
  command
      ->add_option_function<std::vector<int>>(
          "--m", [options](const std::vector<int>& m) { options->m = m; }, "Rows of A, comma-separated; default 1,96")
      ->delimiter(',')
      ->check(CLI::Range(1, static_cast<int>(kMostOfDimension)));
  add_number_option<std::int64_t>(*command, "--n", options->shape.n, "Columns of C, of all ranks; default 1024",
                                  {.min = 1, .max = kMostOfDimension});
  add_number_option<std::int64_t>(*command, "--k", options->shape.k, "Columns of A, of all ranks; default 1024",
                                  {.min = 1, .max = kMostOfDimension});
  command->add_option_function<std::string>(
      "--shard",
      [options](const std::string& text) {
        if (text != "k" && text != "m")
          throw CLI::ValidationError("--shard", fmt::format("is \"{}\", expected k or m", printable_text(text)));
        options->shape.sharded = text == "m" ? Sharded::rows : Sharded::columns;
      },
      fused == FusedOperator::all_gather_linear
          ? "Which dimension of A the ranks divide: k or m; default k"
          : "k or m, recorded: in either case the ranks divide A on k and the sum on m; default k");
  command
      ->add_option_function<std::string>(
          "--dtype", [options](const std::string& text) { options->shape.dtype = *dtype_named(text); },
          "Of A and W; default float32. On the CPU A is float32 where W is float16")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  command->callback([fused, options] { run_linear_bench(fused, *options); });
}

}  // namespace

void add_fused_linear_benchmarks(CLI::App& bench) {
  add_linear_benchmark(bench, FusedOperator::all_gather_linear,
                       "All-gather + GEMM over ranks: the pair, and fused by pull, push and copy");
  add_linear_benchmark(bench, FusedOperator::linear_reduce_scatter,
                       "GEMM + reduce-scatter over ranks: the pair, and fused");
  add_linear_benchmark(bench, FusedOperator::linear_all_reduce, "GEMM + all-reduce over ranks: the pair, and fused");
}

}  // namespace heddle
