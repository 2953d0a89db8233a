// The cases of the fused benchmarks: all-gather + GEMM, GEMM + reduce-scatter, GEMM + all-reduce, each beside the pair
// of a collective, our own or NCCL's, and `linear`.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "base/buffer.h"
#include "base/copy.h"
#include "base/error.h"
#include "cli/bench/collective.h"
#include "cli/bench/fused.h"
#include "cli/bench/fused_gather.h"
#include "cli/bench/operands.h"
#include "cli/bench/place_pieces.h"
#include "cli/format_text.h"
#include "cli/number_option.h"
#include "collectives/all_gather.h"
#include "collectives/all_reduce.h"
#include "collectives/reduce_scatter.h"
#include "fabric/nvlink/nccl_collectives.h"
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

constexpr std::uint32_t kA = 1, kW = 2;  // matrices, for hashed_element

std::size_t bytes_of(std::int64_t rows, std::int64_t columns, DType dtype) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns) * size_of(dtype);
}

// Rows and columns of an operand in memory of its own, on a rank's device.
class Part {
 public:
  Part(const FusedRank& rank, std::int64_t rows, std::int64_t columns, DType dtype)
      : buffer_(std::max<std::size_t>(1, bytes_of(rows, columns, dtype)), rank.device()),
        tensor_{buffer_.data(), rows, columns, columns, dtype} {}
  Part(const FusedRank& rank, std::uint32_t matrix, std::int64_t first_row, std::int64_t rows,
       std::int64_t first_column, std::int64_t columns, DType dtype)
      : tensor_{nullptr, rows, columns, columns, dtype} {
    Buffer values(std::max<std::size_t>(1, bytes_of(rows, columns, dtype)));
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        store(values, row * columns + column, hashed_element(matrix, dtype, first_row + row, first_column + column));
    buffer_ = rank.on_gpu() ? uploaded(rank, values.data(), values.size_bytes()) : std::move(values);
    tensor_.data = buffer_.data();
  }
  // In memory of another owner, which outlives it.
  Part(std::byte* memory, std::int64_t rows, std::int64_t columns, DType dtype)
      : tensor_{memory, rows, columns, columns, dtype} {}
  // By name: a tensor into this object's memory.
  const Tensor& tensor() const { return tensor_; }
  Weight weight() const {
    return {.blocks = {{{tensor_.data, tensor_.rows}}},
            .out_features = tensor_.rows,
            .in_features = tensor_.columns,
            .dtype = tensor_.dtype};
  }

 private:
  void store(Buffer& values, std::int64_t at, float value) const {
    if (tensor_.dtype == DType::float32)
      reinterpret_cast<float*>(values.data())[at] = value;
    else if (tensor_.dtype == DType::bfloat16)
      reinterpret_cast<bfloat16*>(values.data())[at] = to_bfloat16(value);
    else
      reinterpret_cast<float16*>(values.data())[at] = to_float16(value);
  }

  Buffer buffer_;
  Tensor tensor_;
};

// In a window of NCCL's; nothing where it gives none.
std::optional<Part> window_part(const FusedRank& rank, std::int64_t rows, std::int64_t columns, DType dtype) {
  if (rank.nccl == nullptr) return std::nullopt;
  std::byte* const window = vendor_window(*rank.nccl, std::max<std::size_t>(1, bytes_of(rows, columns, dtype)));
  if (window == nullptr) return std::nullopt;
  return Part(window, rows, columns, dtype);
}

// A way to carry out bsp's collective.
struct BspWay {
  std::string name;
  VendorCollectives* nccl;  // null: Heddle's
  const Part& from;         // what this rank gives, or, of sums, its products
  const Part& to;           // what it gets
};

// `windows`: buffers in NCCL's, if it has given both.
std::vector<BspWay> bsp_ways(const FusedRank& rank, const Part& from, const Part& to,
                             std::optional<std::pair<const Part&, const Part&>> windows) {
  std::vector<BspWay> ways{{"own", nullptr, from, to}};
  if (rank.nccl != nullptr) ways.push_back({"nccl", rank.nccl, from, to});
  if (windows) ways.push_back({"nccl-windows", rank.nccl, windows->first, windows->second});
  return ways;
}

// The CPU multiplies weights of float16 with activations of float32.
DType activation_dtype(DType dtype, DeviceKind device) {
  return dtype == DType::float16 && device == DeviceKind::cpu ? DType::float32 : dtype;
}

double exact_element(const FusedShape& shape, std::int64_t row, std::int64_t column) {
  double sum = 0;
  for (std::int64_t i = 0; i < shape.k; ++i)
    sum += static_cast<double>(hashed_element(kA, activation_dtype(shape.dtype, shape.device), row, i)) *
           static_cast<double>(hashed_element(kW, shape.dtype, column, i));
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
    const std::vector<float> result = result_on_host(rank_);
    double most = 0;
    for (std::int64_t i = 0, look = 0; i < count; i += stride, ++look) {
      if (look == std::ssize(exact_))
        exact_.push_back(exact_element(shape_, first_row_ + i / result_.columns, first_column_ + i % result_.columns));
      const double want = exact_[static_cast<std::size_t>(look)], got = result[static_cast<std::size_t>(i)];
      if (std::isnan(got)) return got;
      most = std::max(most, std::abs(got - want) / std::max(std::abs(want), root_mean_square));
    }
    return most;
  }

 protected:
  LinearCase(const FusedShape& shape, const FusedRank& rank) : shape_(shape), rank_(rank) {}

  int me() const { return rank_.fabric.rank(); }

  FusedShape shape_;
  FusedRank rank_;
  std::int64_t first_row_ = 0, first_column_ = 0;  // where result_ begins in C

 private:
  mutable std::vector<double> exact_;  // of the elements that are looked at, computed once
};

AllGatherLinearLimits gather_limits(const FusedShape& shape, int ranks) {
  const bool of_rows = shape.sharded == Sharded::rows;
  return {.sharded = shape.sharded,
          .largest_shard = Shards::even(of_rows ? shape.m : shape.k, ranks).largest(),
          .other = of_rows ? shape.k : shape.m,
          .dtype = activation_dtype(shape.dtype, shape.device)};
}

class GatherCase final : public LinearCase {
 public:
  GatherCase(const FusedShape& shape, const std::vector<GatherWay>& ways, const FusedRank& rank)
      : LinearCase(shape, rank),
        of_rows_(shape.sharded == Sharded::rows),
        shards_(Shards::even(of_rows_ ? shape.m : shape.k, rank.fabric.size())),
        columns_(Shards::even(shape.n, rank.fabric.size())),
        x_(rank, kA, of_rows_ ? begin() : 0, of_rows_ ? count() : shape.m, of_rows_ ? 0 : begin(),
           of_rows_ ? shape.k : count(), activation_dtype(shape.dtype, shape.device)),
        weight_(rank, kW, columns_.begin(me()), columns_.count(me()), 0, shape.k, shape.dtype),
        y_(rank, shape.m, columns_.count(me()), DType::float32),
        piece_(rank, largest_rows(), largest_columns(), x_.tensor().dtype),
        pieces_(rank, largest_rows() * rank.fabric.size(), largest_columns(), x_.tensor().dtype),
        window_piece_(window_part(rank, largest_rows(), largest_columns(), x_.tensor().dtype)),
        window_pieces_(window_part(rank, largest_rows() * rank.fabric.size(), largest_columns(), x_.tensor().dtype)),
        whole_(rank, shape.m, shape.k, x_.tensor().dtype),
        fused_(rank.fabric, whole_team(rank.fabric), gather_limits(shape, rank.fabric.size())) {
    result_ = y_.tensor();
    first_column_ = columns_.begin(me());
    // The gathered A is written and read, and, where it is moved to its place, once more.
    const auto gathered = static_cast<std::int64_t>(bytes_of(shape.m, shape.k, x_.tensor().dtype));
    if (window_piece_) fill_piece(*window_piece_);
    for (const GatherWay& way : ways) {
      const std::optional<GatherVariant> variant = gather_variant(way.choice);
      if (!variant) {
        for (const BspWay& bsp : gather_ways())
          variants_.push_back(
              {way.name, [this, bsp] { call_pair(bsp); }, (gathers_in_place() ? 2 : 4) * gathered, bsp.name});
        continue;
      }
      variants_.push_back({way.name, [this, variant = *variant, choice = way.choice] {
                             fused_({.shards = shards_,
                                     .x = x_.tensor(),
                                     .weight = weight_.weight(),
                                     .y = y_.tensor(),
                                     .variant = variant,
                                     .transfer_sms = choice.transfer_sms,
                                     .tile = choice.tile},
                                    rank_.lane, rank_.transfers);
                           }});
    }
    gemm_ = [this] { multiply_gathered(pieces_); };
  }

 private:
  bool is_even() const { return shards_.total() == shards_.largest() * shards_.ranks; }
  bool gathers_in_place() const { return of_rows_ && is_even(); }
  std::int64_t begin() const { return shards_.begin(me()); }
  std::int64_t count() const { return shards_.count(me()); }
  std::int64_t largest_rows() const { return of_rows_ ? shards_.largest() : shape_.m; }
  std::int64_t largest_columns() const { return of_rows_ ? shape_.k : shards_.largest(); }

  void warm_up() override { multiply(whole_.tensor()); }

  std::vector<BspWay> gather_ways() const {
    std::optional<std::pair<const Part&, const Part&>> windows;
    if (window_piece_ && window_pieces_) windows.emplace(*window_piece_, *window_pieces_);
    return bsp_ways(rank_, is_even() ? x_ : piece_, pieces_, windows);
  }

  void fill_piece(const Part& piece) const {
    const Tensor& x = x_.tensor();
    enqueue_copy(rank_.stream, piece.tensor().data, x.data, bytes_of(x.rows, x.columns, x.dtype));
  }

  // All-gather takes pieces of one length, so a shorter shard is padded. Even shards of rows lie as A does; others are
  // moved to their place.
  void call_pair(const BspWay& way) {
    const Tensor &from = way.from.tensor(), &to = way.to.tensor();
    if (!is_even()) fill_piece(way.from);
    const auto count = static_cast<std::size_t>(largest_rows() * largest_columns());
    if (way.nccl != nullptr)
      way.nccl->all_gather(rank_.stream, to.data, from.data, count, from.dtype);
    else
      all_gather(rank_.communicator, {from.data, to.data, count, from.dtype}, rank_.lane);
    if (!gathers_in_place())
      place_pieces({.shards = shards_,
                    .of_rows = of_rows_,
                    .rows = shape_.m,
                    .columns = shape_.k,
                    .piece_rows = largest_rows(),
                    .piece_columns = largest_columns(),
                    .element_bytes = size_of(from.dtype),
                    .pieces = static_cast<const std::byte*>(to.data),
                    .matrix = static_cast<std::byte*>(whole_.tensor().data)},
                   rank_.lane.num_sms, rank_.stream);
    multiply_gathered(way.to);
  }

  void multiply_gathered(const Part& pieces) const {
    multiply(gathers_in_place() ? rows_of(pieces.tensor(), 0, shape_.m) : whole_.tensor());
  }

  void multiply(const Tensor& a) const { linear({.x = a, .weight = weight_.weight(), .y = y_.tensor()}, rank_.lane); }

  bool of_rows_;
  Shards shards_, columns_;  // of A, and of W's rows
  Part x_, weight_, y_, piece_, pieces_;
  std::optional<Part> window_piece_, window_pieces_;
  Part whole_;
  AllGatherLinear fused_;
};

// Each rank has columns of A and W; a rank keeps rows of the sum, or all ranks all of it.
class ReduceCase final : public LinearCase {
 public:
  ReduceCase(FusedOperator fused, const FusedShape& shape, const FusedRank& rank)
      : LinearCase(shape, rank),
        scatters_(fused == FusedOperator::linear_reduce_scatter),
        rows_(Shards::even(shape.m, rank.fabric.size())),
        columns_(Shards::even(shape.k, rank.fabric.size())),
        x_(rank, kA, 0, shape.m, columns_.begin(me()), columns_.count(me()),
           activation_dtype(shape.dtype, shape.device)),
        weight_(rank, kW, 0, shape.n, columns_.begin(me()), columns_.count(me()), shape.dtype),
        partials_(rank, scatters_ ? rows_.largest() * rank.fabric.size() : shape.m, shape.n, DType::float32),
        window_partials_(window_part(rank, partials_.tensor().rows, shape.n, DType::float32)),
        window_y_(window_part(rank, y_rows(), shape.n, DType::float32)),
        own_y_(rank, window_y_ ? 0 : y_rows(), shape.n, DType::float32) {
    result_ = y().tensor();
    gemm_ = [this] { multiply_all(partials_); };
    const auto handed = 2 * static_cast<std::int64_t>(bytes_of(shape.m, shape.n, DType::float32));  // the partial sums
    if (scatters_) {
      scatter_.emplace(rank.fabric, whole_team(rank.fabric), scatter_limits(shape, rank.fabric.size()));
      first_row_ = rows_.begin(me());
      result_.rows = rows_.count(me());
      for (const BspWay& way : sum_ways())
        variants_.push_back({"bsp", [this, way] { scatter_pair(way); }, handed, way.name});
      variants_.push_back({"fused", [this] {
                             (*scatter_)({rows_, x_.tensor(), weight_.weight(), result_}, rank_.lane);
                           }});
      return;
    }
    reduce_.emplace(rank.fabric, whole_team(rank.fabric), LinearAllReduceLimits{.m = shape.m, .n = shape.n});
    for (const BspWay& way : sum_ways())
      variants_.push_back({"bsp", [this, way] { reduce_pair(way); }, handed, way.name});
    variants_.push_back({"fused", [this] { (*reduce_)({x_.tensor(), weight_.weight(), result_}, rank_.lane); }});
  }

  static PartialLimits scatter_limits(const FusedShape& shape, int ranks) {
    return {.largest_shard = Shards::even(shape.m, ranks).largest(), .n = shape.n};
  }

 private:
  std::int64_t y_rows() const { return scatters_ ? std::max<std::int64_t>(1, rows_.largest()) : shape_.m; }
  const Part& y() const { return window_y_ ? *window_y_ : own_y_; }

  std::vector<BspWay> sum_ways() const {
    std::optional<std::pair<const Part&, const Part&>> windows;
    if (window_partials_ && window_y_) windows.emplace(*window_partials_, *window_y_);
    return bsp_ways(rank_, partials_, y(), windows);
  }

  void multiply(std::int64_t first, std::int64_t count, std::int64_t to, const Part& partials) const {
    linear({.x = rows_of(x_.tensor(), first, count),
            .weight = weight_.weight(),
            .y = rows_of(partials.tensor(), to, count)},
           rank_.lane);
  }

  void multiply_all(const Part& partials) const {
    if (!scatters_ || rows_.largest() * rows_.ranks == shape_.m) return multiply(0, shape_.m, 0, partials);
    for (int rank = 0; rank < rows_.ranks; ++rank)
      multiply(rows_.begin(rank), rows_.count(rank), rank * rows_.largest(), partials);
  }

  void warm_up() override { multiply_all(partials_); }

  // Reduce-scatter takes pieces of one length, so a shorter one is padded.
  void scatter_pair(const BspWay& way) {
    multiply_all(way.from);
    const Tensor &from = way.from.tensor(), &to = way.to.tensor();
    const auto count = static_cast<std::size_t>(rows_.largest() * shape_.n);
    if (way.nccl != nullptr)
      way.nccl->reduce_scatter(rank_.stream, to.data, from.data, count, DType::float32);
    else
      reduce_scatter(rank_.communicator, {from.data, to.data, count, DType::float32}, rank_.stream);
  }

  void reduce_pair(const BspWay& way) {
    multiply_all(way.from);
    const Tensor &from = way.from.tensor(), &to = way.to.tensor();
    const auto count = static_cast<std::size_t>(shape_.m * shape_.n);
    if (way.nccl != nullptr)
      way.nccl->all_reduce(rank_.stream, to.data, from.data, count, DType::float32);
    else
      all_reduce(rank_.communicator, {from.data, to.data, count, DType::float32}, rank_.stream);
  }

  bool scatters_;
  Shards rows_, columns_;  // of C, and of A and W
  Part x_, weight_, partials_;
  std::optional<Part> window_partials_, window_y_;
  Part own_y_;  // where there is no window
  std::optional<LinearReduceScatter> scatter_;
  std::optional<LinearAllReduce> reduce_;
};

std::size_t heap_bytes_of(FusedOperator fused, const FusedShape& shape, int ranks, DeviceKind device) {
  switch (fused) {
    case FusedOperator::all_gather_linear:
      return AllGatherLinear::heap_bytes(ranks, gather_limits(shape, ranks), device);
    case FusedOperator::linear_reduce_scatter:
      return LinearReduceScatter::heap_bytes(ranks, ReduceCase::scatter_limits(shape, ranks), device);
    case FusedOperator::linear_all_reduce:
      return LinearAllReduce::heap_bytes(ranks, {.m = shape.m, .n = shape.n}, device);
  }
  return 0;
}

nlohmann::ordered_json fields_of(const FusedShape& shape) {
  return {{"m", shape.m},
          {"n", shape.n},
          {"k", shape.k},
          {"shard", shape.sharded == Sharded::rows ? "m" : "k"},
          {"dtype", name_of(shape.dtype)}};
}

struct LinearBenchOptions : FusedBenchOptions {
  LinearBenchOptions() { with_nccl = true; }

  std::vector<int> m{1, 96};
  int transfer_sms = GatherChoice{}.transfer_sms, tile = GatherChoice{}.tile;  // of all-gather-linear
  FusedShape shape{.n = 1024, .k = 1024};                                      // of the whole product
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

std::vector<GatherWay> ways_of(const LinearBenchOptions& options) {
  using Form = GatherChoice::Form;
  const auto tile = static_cast<std::int8_t>(options.tile);
  const auto sms = static_cast<std::uint8_t>(options.transfer_sms);
  std::vector<GatherWay> ways;
  for (const Form form : {Form::bsp, Form::pull, Form::push, Form::copy})
    ways.push_back(
        {text_of(GatherChoice{.form = form}), GatherChoice{.form = form, .tile = tile, .transfer_sms = sms}});
  return ways;
}

FusedCaseMaker reduce_case(FusedOperator fused, const FusedShape& shape, int ranks) {
  return {.shape = fields_of(shape),
          .heap_bytes = heap_bytes_of(fused, shape, ranks, shape.device),
          .make = [fused, shape](const FusedRank& rank) -> std::unique_ptr<FusedCase> {
            return std::make_unique<ReduceCase>(fused, shape, rank);
          }};
}

void run_linear_bench(FusedOperator fused, const LinearBenchOptions& options) {
  const std::vector<Device> devices = require_devices(options);
  require_shapes(fused, options);
  std::vector<FusedCaseMaker> cases;
  for (const int m : options.m) {
    FusedShape shape = options.shape;
    shape.m = m;
    shape.device = devices.front().kind;
    cases.push_back(fused == FusedOperator::all_gather_linear
                        ? gather_case(shape, options.num_ranks(), ways_of(options))
                        : reduce_case(fused, shape, options.num_ranks()));
  }
  run_fused_bench(name_of(fused), options, devices, cases);
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
  if (fused == FusedOperator::all_gather_linear) {
    add_number_option<int>(*command, "--tile", options->tile,
                           "Of the GEMM on GPUs, as kGatherTiles numbers them; default -1, by shape",
                           {.min = -1, .max = 15});
    add_number_option<int>(*command, "--transfer-sms", options->transfer_sms,
                           "SMs of a GPU that offer tiles for pull, or push them to the plain kernel; default 4",
                           {.min = 1, .max = 64});
  }
  command
      ->add_option_function<std::string>(
          "--bsp", [options](const std::string& text) { options->with_nccl = text == "fastest"; },
          "The pair's collective: Heddle's (own), or, where each rank has a GPU of its own, the fastest of Heddle's, "
          "NCCL's and NCCL's on registered windows; default fastest")
      ->check(CLI::IsMember({"own", "fastest"}));
  command->callback([fused, options] { run_linear_bench(fused, *options); });
}

}  // namespace

FusedCaseMaker gather_case(const FusedShape& shape, int ranks, const std::vector<GatherWay>& ways) {
  return {.shape = fields_of(shape),
          .heap_bytes = heap_bytes_of(FusedOperator::all_gather_linear, shape, ranks, shape.device),
          .make = [shape, ways](const FusedRank& rank) -> std::unique_ptr<FusedCase> {
            return std::make_unique<GatherCase>(shape, ways, rank);
          }};
}

void add_fused_linear_benchmarks(CLI::App& bench) {
  add_linear_benchmark(bench, FusedOperator::all_gather_linear,
                       "All-gather + GEMM over ranks: the pair, and fused by pull, push and copy");
  add_linear_benchmark(bench, FusedOperator::linear_reduce_scatter,
                       "GEMM + reduce-scatter over ranks: the pair, and fused");
  add_linear_benchmark(bench, FusedOperator::linear_all_reduce, "GEMM + all-reduce over ranks: the pair, and fused");
}

}  // namespace heddle
