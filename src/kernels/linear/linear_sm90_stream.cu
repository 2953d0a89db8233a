#include "kernels/linear/linear_sm90_stream.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "kernels/linear/linear_sm90_stream.cuh"

namespace heddle {
namespace {

// What the kernel's shape takes from the role.
struct Neighbours {
  bool before_attention;  // attention's blocks must find room beside this kernel's
  bool after_attention;   // this kernel's blocks run beside attention's, or beside those of the kernel after it
};

Neighbours neighbours_of(LinearRole role) {
  return {.before_attention = role == LinearRole::qkv,
          .after_attention = role == LinearRole::attention_output || role == LinearRole::down};
}

// More than half of an SM's shared memory, so that each SM holds one block of a GEMM. Otherwise some SMs would get two
// blocks of a grid and others none, and the next grid would inherit the imbalance. A block starts where a block of the
// last GEMM ends, and fills its ring while the kernels in between run (docs/notes/linear_gpu.md).
constexpr std::size_t kLeastSharedBytes = std::size_t{116} << 10;

// A third of an SM's shared memory, together with what each block has besides: at most two blocks share an SM. A small
// GEMM, whose blocks load all their weights at once, starts sooner where two blocks may share an SM that is free while
// attention's last blocks hold others. It ends before the imbalance matters.
constexpr std::size_t kLeastSharedBytesOfSmall = std::size_t{76} << 10;

// With all of x in shared memory: leaves room for the small kernels that wait beside a GEMM.
constexpr std::size_t kMostSharedBytes = std::size_t{216} << 10;

constexpr std::int64_t kFewRows = 64;

// As many blocks as SMs, because each block takes more than half of one.
int num_blocks(const Lane& lane) {
  return std::min(lane.num_sms, kMostBlocks);
}

// The most rows of W that a block takes.
std::int64_t rows_of_block(const LinearParams& params, StreamOutput output, int blocks) {
  const int parts = rows_of_output(output);
  return ceil_div<std::int64_t>(params.weight.out_features / parts, blocks) * parts;
}

template <class Config>
StreamMap<Config> map_of_tokens(const Tensor& x) {
  if constexpr (Config::kWholeTokens)
    return {};
  else
    return sm90::tensor_map("linear", {.data = x.data,
                                       .rows = static_cast<std::uint64_t>(x.rows),
                                       .columns = static_cast<std::uint64_t>(x.columns),
                                       .row_stride = static_cast<std::uint64_t>(x.row_stride),
                                       .box_rows = static_cast<std::uint32_t>(x.rows),
                                       .box_columns = Config::kBoxFeatures});
}

template <class Config, StreamOutput kOutput, class Tiles, class T, class Y>
void enqueue_stream_by(const LinearParams& params, int blocks, std::size_t shared_bytes, const Lane& lane) {
  constexpr int kParts = rows_of_output(kOutput);
  const typename Tiles::Sizes sizes =
      Tiles::Sizes::of(narrow<int>(params.weight.out_features / kParts, "outputs"), Config::kTileRows / kParts,
                       steps_of_tile<Config>(static_cast<int>(params.weight.in_features)));
  launch_sm90(
      "linear", linear_stream<Config, kOutput, Tiles, T, Y>,
      {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(Config::kBlockThreads), .shared_bytes = shared_bytes},
      lane, operands_of<T, T, Y>(params), sizes, map_of_tokens<Config>(params.x), waits_of(lane.stream, "linear"));
}

template <class Config, StreamOutput kOutput, class T, class Y>
void enqueue_stream(const LinearParams& params, int blocks, const Lane& lane) {
  const std::int64_t rows = rows_of_block(params, kOutput, blocks), in_features = params.weight.in_features;
  const auto shared_bytes = [&](std::int64_t steps, std::size_t least) {
    return std::max(stream_shared_bytes<Config>(params.x.rows, in_features, steps), least);
  };
  // Where shares and blocks end at different rows, a block may have more tiles, so the ring gets as many steps as
  // allowed.
  if (blocks != kShares)
    return enqueue_stream_by<Config, kOutput, StreamTiles, T, Y>(params, blocks,
                                                                 shared_bytes(Config::kDepth, kLeastSharedBytes), lane);
  const std::int64_t tiles = ceil_div<std::int64_t>(rows, Config::kTileRows);
  const std::int64_t steps = tiles * steps_of_tile<Config>(static_cast<int>(in_features));
  const bool is_small = steps <= Config::kDepth && neighbours_of(params.role).after_attention;
  enqueue_stream_by<Config, kOutput, ShareTiles, T, Y>(
      params, blocks, shared_bytes(steps, is_small ? kLeastSharedBytesOfSmall : kLeastSharedBytes), lane);
}

// The order of sums is the same in all configurations, so a token's bits do not depend on the batch. A tile with few of
// its rows in use wastes loads in flight; a high tile reads x less often, which matters from 9 tokens on.
template <StreamOutput kOutput, class T, class Y>
void enqueue_for_tokens(const LinearParams& params, const Lane& lane) {
  constexpr StreamTokens kWhole = StreamTokens::whole, kBySteps = StreamTokens::by_steps;
  const int blocks = num_blocks(lane);
  const std::int64_t rows = rows_of_block(params, kOutput, blocks);
  // By steps, tiles of 16 rows have half as much again of W in flight where blocks have no more rows.
  if (params.x.rows > 8) {
    if (rows <= 16) return enqueue_stream<StreamConfig<1, 2, 6, kBySteps>, kOutput, T, Y>(params, blocks, lane);
    if (rows <= 32) return enqueue_stream<StreamConfig<2, 2, 4, kBySteps>, kOutput, T, Y>(params, blocks, lane);
    return enqueue_stream<StreamConfig<3, 2, 3, kBySteps>, kOutput, T, Y>(params, blocks, lane);
  }
  using Low = StreamConfig<1, 1, 10, kWhole>;
  using Short = StreamConfig<2, 1, 4, kWhole>;
  using High = StreamConfig<2, 1, 5, kWhole>;
  static_assert(Low::kRingBytes == High::kRingBytes && Low::kSumsBytes < High::kSumsBytes);
  const std::int64_t in_features = params.weight.in_features;
  if (stream_shared_bytes<High>(params.x.rows, in_features, High::kDepth) > kMostSharedBytes) {
    if (rows <= 16) return enqueue_stream<StreamConfig<1, 1, 8, kBySteps>, kOutput, T, Y>(params, blocks, lane);
    return enqueue_stream<StreamConfig<2, 1, 5, kBySteps>, kOutput, T, Y>(params, blocks, lane);
  }
  if (rows <= 16) return enqueue_stream<Low, kOutput, T, Y>(params, blocks, lane);
  // Next to attention a shorter ring makes a step faster (docs/notes/linear_gpu.md, "Room for attention").
  if (rows <= kFewRows && neighbours_of(params.role).before_attention)
    return enqueue_stream<Short, kOutput, T, Y>(params, blocks, lane);
  enqueue_stream<High, kOutput, T, Y>(params, blocks, lane);
}

template <class T>
void enqueue_for_y(const LinearParams& params, const Lane& lane) {
  if (params.y.dtype == DType::float32) return enqueue_for_tokens<StreamOutput::sums, T, float>(params, lane);
  enqueue_for_tokens<StreamOutput::sums, T, T>(params, lane);
}

}  // namespace

bool is_for_stream(const LinearParams& params) {
  const DType dtype = params.weight.dtype;
  return params.x.rows <= kLinearSmallRows && dtype != DType::float32 && params.x.dtype == dtype &&
         (params.y.dtype == dtype || params.y.dtype == DType::float32) && params.weight.out_features <= kMostOutputs &&
         rows_are_aligned(params.x) && rows_are_aligned(params.weight);
}

bool is_for_swiglu_stream(const LinearSwigluParams& params) {
  return is_for_stream(params.gate_up) && params.y.dtype == params.gate_up.weight.dtype;
}

void linear_stream(const LinearParams& params, const Lane& lane) {
  with_16_bit_element(params.weight.dtype, [&]<class T>() { enqueue_for_y<T>(params, lane); });
}

void linear_swiglu_stream(const LinearSwigluParams& params, const Lane& lane) {
  LinearParams linear = params.gate_up;
  linear.y = params.y;
  with_16_bit_element(linear.weight.dtype,
                      [&]<class T>() { enqueue_for_tokens<StreamOutput::swiglu, T, T>(linear, lane); });
}

}  // namespace heddle
