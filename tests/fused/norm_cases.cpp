// The course of AllReduceNorm: random shapes, dtypes and regimes, one call after the other.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "fused/all_reduce_norm/all_reduce_norm.h"
#include "fused/course_rank.h"
#include "fused/device_room.h"
#include "fused/numbers.h"
#include "kernels/rows/rmsnorm.h"

namespace heddle {
namespace {

constexpr std::int64_t kMostTokens = 29, kMostHidden = 75;
constexpr DType kNormDTypes[] = {DType::float32, DType::bfloat16, DType::float16};

// Small, so that every regime takes rounds: slots are used again within a call.
constexpr AllReduceNormOptions kNormOptions{
    .one_shot_bytes = 4096, .two_phase_bytes = 8192, .slots_bytes = 2048, .row_bytes = 1 << 20};

struct NormOperands {
  std::int64_t tokens = 0, hidden = 0;
  DType x_dtype{}, y_dtype{};
  bool sharded = false;
  std::vector<std::vector<float>> parts;  // of every rank, as x_dtype holds them
  std::vector<float> before, weight;
  std::vector<std::byte> x, y;  // of this rank
  void* y_place = nullptr;      // where the operator writes y
  std::vector<float> residual;
};

[[noreturn]] void fail_norm(int call, const NormOperands& one, const char* what, std::int64_t at, double got,
                            double want) {
  throw_error<Failure>("all_reduce_norm: call {} ([{}, {}], {} to {}): {} {} is {}, expected {}", call, one.tokens,
                       one.hidden, name_of(one.x_dtype), name_of(one.y_dtype), what, at, got, want);
}

// The sum in rank order, in float32, of what the ranks give.
std::vector<float> rank_order_sum(const NormOperands& one) {
  std::vector<float> sum(one.before.size());
  for (std::size_t i = 0; i < sum.size(); ++i)
    for (std::size_t p = 0; p < one.parts.size(); ++p) sum[i] = p == 0 ? one.parts[p][i] : sum[i] + one.parts[p][i];
  return sum;
}

// y against float64, and the residual bit for bit: on its owner, or on all ranks, with the sum; elsewhere as it was.
void check_normed(const NormOperands& one, const EvenShards& rows, int me, int call) {
  const std::vector<float> got = decoded(one.y, one.y_dtype), sum = rank_order_sum(one);
  for (std::int64_t token = 0; token < one.tokens; ++token) {
    const bool mine = !one.sharded || (token >= rows.begin(me) && token < rows.end(me));
    double squares = 0;
    for (std::int64_t i = token * one.hidden; i < (token + 1) * one.hidden; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const float residual = mine ? sum[at] + one.before[at] : one.before[at];
      if (std::bit_cast<std::uint32_t>(one.residual[at]) != std::bit_cast<std::uint32_t>(residual))
        fail_norm(call, one, mine ? "own residual" : "another's residual", i, one.residual[at], residual);
      double exact = one.before[at];
      for (const auto& part : one.parts) exact += static_cast<double>(part[at]);
      squares += exact * exact;
    }
    // A sum of n + 1 terms of 1 at most is off by n^2 / 2 roundings; the norm adds a few, and y one of its own.
    const double factor = 1 / std::sqrt(squares / static_cast<double>(one.hidden) + 1e-5);
    const auto ranks = static_cast<double>(one.parts.size());
    const double unit = one.y_dtype == DType::float32 ? 0x1p-24 : one.y_dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
    for (std::int64_t i = token * one.hidden; i < (token + 1) * one.hidden; ++i) {
      const auto at = static_cast<std::size_t>(i);
      double exact = one.before[at];
      for (const auto& part : one.parts) exact += static_cast<double>(part[at]);
      const double y_exact =
          exact * factor * static_cast<double>(one.weight[at % static_cast<std::size_t>(one.hidden)]);
      const double bound = 0x1p-24 * (8 + ranks * ranks) * (factor + std::abs(y_exact)) * 2 + unit * std::abs(y_exact) +
                           (one.y_dtype == DType::float16 ? 0x1p-25 : 0);
      if (!(std::abs(static_cast<double>(got[at]) - y_exact) <= bound))
        fail_norm(call, one, "element of y, against float64,", i, got[at], y_exact);
    }
  }
}

// Bit for bit, as sums in rank order followed by rmsnorm() on the CPU.
void check_normed_as_on_one_rank(const NormOperands& one, Stream& stream, int call) {
  std::vector<float> z = one.before, sum = rank_order_sum(one);
  const bool by_float = one.y_dtype == DType::float16;  // which rmsnorm() does not write on the CPU
  const DType dtype = by_float ? DType::float32 : one.y_dtype;
  std::vector<std::byte> y(z.size() * size_of(dtype));
  const auto view = [&](void* data, DType of) { return Tensor{data, one.tokens, one.hidden, one.hidden, of}; };
  rmsnorm({.x = view(sum.data(), DType::float32),
           .weight = one.weight.data(),
           .residual = view(z.data(), DType::float32),
           .y = view(y.data(), dtype),
           .eps = 1e-5f},
          stream);
  stream.synchronize();
  if (by_float) y = encoded(decoded(y, DType::float32), DType::float16);
  const std::vector<float> got = decoded(one.y, one.y_dtype), want = decoded(y, one.y_dtype);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (std::bit_cast<std::uint32_t>(got[i]) != std::bit_cast<std::uint32_t>(want[i]))
      fail_norm(call, one, "element of y", static_cast<std::int64_t>(i), got[i], want[i]);
}

// The operands of one call, which all ranks draw alike.
NormOperands drawn_operands(Draws& shared, int ranks, std::int64_t tokens, std::int64_t hidden, DType x, DType y) {
  NormOperands one{.tokens = tokens, .hidden = hidden, .x_dtype = x, .y_dtype = y};
  const auto seed = static_cast<std::uint32_t>(shared.between(0, 1 << 18));
  const std::int64_t count = tokens * hidden;
  for (int p = 0; p < ranks; ++p) one.parts.push_back(numbers(count, seed + static_cast<std::uint32_t>(p), x));
  one.before = numbers(count, seed + 91, DType::float32);
  one.weight = numbers(hidden, seed + 92, DType::float32);
  one.residual = one.before;
  return one;
}

// Often fewer tokens than ranks, and hardly ever a multiple of them.
std::int64_t drawn_tokens(Draws& shared, int ranks, std::int64_t most) {
  return shared.between(0, 2) == 0 ? shared.between(0, ranks) : shared.between(1, most);
}

std::optional<AllReduceNormRegime> drawn_regime(Draws& shared) {
  const std::int64_t regime = shared.between(0, 3);
  return regime == 3 ? std::nullopt : std::optional(static_cast<AllReduceNormRegime>(regime));
}

}  // namespace

std::size_t heap_bytes_of_norm_course(int ranks) {
  return AllReduceNorm::heap_bytes(ranks, {}, kNormOptions) + 4096;
}

void norm_course(CourseRank& rank) {
  AllReduceNorm fused(rank.fabric, world_of(rank.fabric), rank.stream, kNormOptions);
  DeviceRoom symmetric(fused.row_memory());
  Draws shared(rank.course.seed + 77);
  const int size = rank.fabric.size(), me = rank.fabric.rank();
  std::vector<std::unique_ptr<NormOperands>> flying;
  for (int number = 0; number < rank.course.calls; ++number) {
    const std::int64_t tokens = drawn_tokens(shared, size, kMostTokens), hidden = shared.between(1, kMostHidden);
    const DType x = kNormDTypes[shared.between(0, 2)], y = kNormDTypes[shared.between(0, 2)];
    auto one = std::make_unique<NormOperands>(
        drawn_operands(shared, size, tokens, fused.why_not(hidden, x, y).empty() ? hidden : 8, x, y));
    one->x = encoded(one->parts[static_cast<std::size_t>(me)], x);
    one->y.assign(static_cast<std::size_t>(one->tokens * one->hidden) * size_of(y), std::byte{0x77});
    fused.force(drawn_regime(shared));
    one->sharded = fused.shards_residual(one->tokens, one->hidden, one->x_dtype);
    const auto view = [&](void* data, DType dtype) {
      return Tensor{data, one->tokens, one->hidden, one->hidden, dtype};
    };
    const bool in_symmetric = shared.between(0, 1) == 1 && symmetric.fits(one->x.size() + one->y.size() + 512);
    void* x_place = one->x.data();
    one->y_place = one->y.data();
    if (in_symmetric) {
      x_place = symmetric.take(one->x.size());
      one->y_place = symmetric.take(one->y.size());
      std::ranges::copy(one->x, static_cast<std::byte*>(x_place));
    }
    rank.be_late();
    fused({.x = view(x_place, one->x_dtype),
           .weight = one->weight.data(),
           .residual = view(one->residual.data(), DType::float32),
           .y = view(one->y_place, one->y_dtype),
           .eps = 1e-5f,
           .symmetric = in_symmetric},
          rank.stream);
    flying.push_back(std::move(one));
    if (std::ssize(flying) < rank.course.calls_in_flight && number + 1 < rank.course.calls) continue;
    rank.fabric.synchronize(rank.stream);
    symmetric.clear();
    for (const auto& done : flying) {
      std::copy_n(static_cast<const std::byte*>(done->y_place), done->y.size(), done->y.data());
      check_normed(*done, fused.rows(done->tokens), me, number);
      check_normed_as_on_one_rank(*done, rank.stream, number);
    }
    flying.clear();
  }
}

namespace {

// What one part of the course on GPUs draws from. Slots are few, so that they are used again within a call.
struct GpuNormShapes {
  AllReduceNormOptions options;
  std::int64_t most_tokens;
  std::span<const std::int64_t> widths;  // drawn from; none: any up to most_hidden
  std::int64_t most_hidden;
  int most_calls, most_in_flight;
};
// Widths of models, and what neither registers nor shared memory hold (direct_norm_sm90.cuh).
constexpr std::int64_t kModelWidths[] = {2048, 3616, 4096, 5120, 8192, 8200, 12288};
constexpr GpuNormShapes kNarrowShapes{
    .options = {.one_shot_bytes = 1 << 16, .two_phase_bytes = 1 << 17, .slots_bytes = 1 << 17, .row_bytes = 16 << 20},
    .most_tokens = 120,
    .widths = {},
    .most_hidden = 1024,
    .most_calls = 1 << 30,
    .most_in_flight = 1 << 30};
constexpr GpuNormShapes kWideShapes{
    .options = {.one_shot_bytes = 1 << 16, .two_phase_bytes = 1 << 18, .slots_bytes = 1 << 20, .row_bytes = 96 << 20},
    .most_tokens = 200,
    .widths = kModelWidths,
    .most_hidden = 12288,
    .most_calls = 12,
    .most_in_flight = 6};
constexpr std::pair<DType, DType> kGpuForms[] = {{DType::bfloat16, DType::bfloat16},
                                                 {DType::float16, DType::float16},
                                                 {DType::float32, DType::float32},
                                                 {DType::float32, DType::float16},
                                                 {DType::float32, DType::bfloat16}};

}  // namespace

std::size_t heap_bytes_of_norm_gpu_course(int ranks) {
  const Device gpu{DeviceKind::cuda, 0};
  return AllReduceNorm::heap_bytes(ranks, gpu, kNarrowShapes.options) +
         AllReduceNorm::heap_bytes(ranks, gpu, kWideShapes.options) + 8192;
}

namespace {

void norm_gpu_calls(CourseRank& rank, DeviceRoom& room, const GpuNormShapes& shapes) {
  AllReduceNorm fused(rank.fabric, world_of(rank.fabric), rank.stream, shapes.options);
  DeviceRoom symmetric(fused.row_memory());
  Draws shared(rank.course.seed + 78);
  const int size = rank.fabric.size(), me = rank.fabric.rank(), sms = rank.fabric.device_share().sms;
  const int calls = std::min(rank.course.calls, shapes.most_calls);
  const int in_flight = std::min(rank.course.calls_in_flight, shapes.most_in_flight);
  struct Flying {
    NormOperands one;
    AllReduceNormParams params;
    std::optional<AllReduceNormRegime> regime;
  };
  for (int number = 0; number < calls;) {
    std::vector<Flying> flying;
    room.clear();
    symmetric.clear();
    for (; number < calls && std::ssize(flying) < in_flight; ++number) {
      const std::int64_t tokens = 1 + drawn_tokens(shared, size, shapes.most_tokens);
      const std::int64_t hidden =
          shapes.widths.empty()
              ? 8 * shared.between(1, shapes.most_hidden / 8)
              : shapes.widths[static_cast<std::size_t>(shared.between(0, std::ssize(shapes.widths) - 1))];
      const auto [x, y] = kGpuForms[shared.between(0, 4)];
      Flying call{drawn_operands(shared, size, tokens, hidden, x, y), {}, drawn_regime(shared)};
      const auto count = static_cast<std::size_t>(tokens * hidden);
      const auto view = [&](void* data, DType dtype) { return Tensor{data, tokens, hidden, hidden, dtype}; };
      const auto put = [&](const std::vector<float>& values, DType dtype) {
        return room.put(rank.stream, encoded(values, dtype));
      };
      const bool in_symmetric = shared.between(0, 1) == 1 && symmetric.fits(count * (size_of(x) + size_of(y)) + 512);
      DeviceRoom& of_rows = in_symmetric ? symmetric : room;
      call.params = {.x = view(of_rows.put(rank.stream, encoded(call.one.parts[static_cast<std::size_t>(me)], x)), x),
                     .weight = put(call.one.weight, DType::float32),
                     .residual = view(put(call.one.before, DType::float32), DType::float32),
                     .y = view(of_rows.put_nans(rank.stream, count * size_of(y)), y),
                     .eps = 1e-5f,
                     .num_sms = static_cast<int>(shared.between(0, std::min(sms, AllReduceNormMemory::kMostBlocks))),
                     .symmetric = in_symmetric};
      flying.push_back(std::move(call));
    }
    rank.fabric.meet();
    for (Flying& call : flying) {
      rank.be_late();
      fused.force(call.regime);
      call.one.sharded = fused.shards_residual(call.one.tokens, call.one.hidden, call.one.x_dtype);
      fused(call.params, Lane(rank.stream, sms));
    }
    rank.fabric.synchronize(rank.stream);
    rank.fabric.meet();
    for (Flying& call : flying) {
      NormOperands& one = call.one;
      one.y.resize(static_cast<std::size_t>(one.tokens * one.hidden) * size_of(one.y_dtype));
      enqueue_copy(rank.stream, one.y.data(), call.params.y.data, one.y.size());
      enqueue_copy(rank.stream, one.residual.data(), call.params.residual.data, one.residual.size() * sizeof(float));
      rank.stream.synchronize();
      check_normed(one, fused.rows(one.tokens), me, number);
    }
  }
  rank.fabric.meet();  // memory is freed when no kernel waits any more
}

}  // namespace

void norm_gpu_course(CourseRank& rank, DeviceRoom& room) {
  norm_gpu_calls(rank, room, kNarrowShapes);
  norm_gpu_calls(rank, room, kWideShapes);
}

}  // namespace heddle
