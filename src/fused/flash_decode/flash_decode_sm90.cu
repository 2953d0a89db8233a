// Distributed flash decode on Hopper. Blocks take splits of the units' keys; the last block of a unit merges its splits
// to the rank's part. In `push` the same kernel sends the part to all ranks, and merges the ranks' parts to y behind its
// own splits: its blocks wait for other ranks and for each other, so all are resident.
#include "fused/flash_decode/flash_decode_sm90.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "device/channel_calls.h"
#include "device/enqueue_body.h"
#include "fused/flash_decode/attend_split_sm90.cuh"
#include "kernels/attention/attention.h"

namespace heddle {
namespace {

using namespace flash_decode;  // NOLINT(google-build-using-namespace): this operator's own kernels

constexpr char kDecode[] = "flash_decode";
constexpr int kLeastKeysOfSplit = 256;

DecodeUnit unit_shape(const FlashDecodeParams& params) {
  return {.heads = params.num_heads / params.kv.num_kv_heads, .head_dim = params.kv.head_dim};
}
int units_of_call(const FlashDecodeParams& params) {
  return params.sequences.num_sequences * params.kv.num_kv_heads;
}

// Blocks for every SM twice, whose splits then differ little in length.
int splits_for(const FlashDecodeParams& params, const Lane& lane) {
  constexpr int kMostSplits = 128;
  return std::clamp(2 * lane.num_sms / std::max(1, units_of_call(params)), 1, kMostSplits);
}

// Merges parts of a unit, part(i) of `count`, in that order. The lanes share the elements of o.
struct MergeUnit {
  DecodeUnit unit;

  struct Sums {
    float m, l;
  };

  // f(head, d, value of o, its sums) for all elements.
  template <Group G, class Part, class F>
  __device__ void operator()(const G& group, int count, const Part& part, const F& f) const {
    for (int i = group.lane(); i < unit.heads * unit.head_dim; i += group.lanes()) {
      const int head = i / unit.head_dim, d = i % unit.head_dim;
      float most = -std::numeric_limits<float>::infinity(), l = 0, o = 0;
      for (int p = 0; p < count; ++p)
        if (unit.l(part(p), head) != 0) most = fmaxf(most, unit.m(part(p), head));
      for (int p = 0; p < count; ++p) {
        const float of_part = unit.l(part(p), head);
        if (of_part == 0) continue;  // no keys; its m would make a NaN of two infinities
        const float weight = __expf(unit.m(part(p), head) - most);
        l += of_part * weight;
        o += unit.o(part(p), head)[d] * weight;
      }
      f(head, d, o, Sums{most, l});
    }
  }
};

// y of one unit from the ranks' parts.
struct UnitOutput {
  float* y;
  std::int64_t y_stride;
  int num_kv_heads;
  DecodeUnit unit;

  template <Group G, class Part>
  __device__ void store(const G& group, int index, int ranks, const Part& part) const {
    float* const to = y + index / num_kv_heads * y_stride + index % num_kv_heads * unit.heads * unit.head_dim;
    MergeUnit{unit}(group, ranks, part, [&](int head, int d, float o, const MergeUnit::Sums& sums) {
      to[head * unit.head_dim + d] = sums.l == 0 ? 0 : o / sums.l;
    });
  }
};

UnitOutput output_of_units(const FlashDecodeParams& params) {
  return {static_cast<float*>(params.y.data), params.y.row_stride, params.kv.num_kv_heads, unit_shape(params)};
}

HEDDLE_HOST_DEVICE const float* part_of(const TileSlots& slots, int rank, int index) {
  return reinterpret_cast<const float*>(slots.arriving(rank, index));
}

// This rank's part of a unit, which lies in its own slot, to `to`.
template <VotingGroup G>
__device__ bool send_part(const G& group, const DecodeExchange& exchange, int to, int index) {
  const TileSlots& slots = exchange.slots;
  const Peers& peers = exchange.peers;
  if (!claim(group, peers, to, slots.channel, index, "decode: credit")) return false;
  std::byte* const part = slots.arriving(peers.rank, index);
  if (to != peers.rank) put(group, peers, to, part, part, slots.tile_bytes);
  fill(group, peers, to, slots.channel, index);
  return true;
}

// What every kernel of a call reads.
struct SplitCall {
  PagedKv kv;
  PagedSequences sequences;
  const float* q;
  std::int64_t q_stride;
  float scale;
  DecodeUnit unit;
  int units, splits, chunks;  // chunks: of the unit's heads
  float* scratch;             // [units, splits] parts
  std::uint32_t* finished;
  DecodeParts parts;

  __device__ float* split_part(int index, int split) const {
    return scratch +
           (static_cast<std::size_t>(index) * static_cast<std::size_t>(splits) + static_cast<std::size_t>(split)) *
               unit.floats();
  }

  // One split of some heads of a unit.
  template <class Split>
  __device__ void attend(typename Split::Shared& shared, int index, int chunk, int split) const {
    const int sequence = index / kv.num_kv_heads, kv_head = index % kv.num_kv_heads;
    const int count = sequences.context_len[sequence];
    const int each = max(kLeastKeysOfSplit, (count + splits - 1) / splits);
    const int begin = min(count, split * each);
    const SplitOfKeys keys{.kv = kv,
                           .pages = sequences.pages(sequence),
                           .q = q + sequence * q_stride + kv_head * unit.heads * unit.head_dim,
                           .kv_head = kv_head,
                           .begin = begin,
                           .end = min(count, begin + each),
                           .scale = scale};
    Split::attend(shared, unit, keys, chunk * Split::kHeadsAtOnce, split_part(index, split));
  }

  // Whether this block is the last of the unit; then all its splits are visible.
  __device__ bool is_last(int index) const {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      const auto all = static_cast<std::uint32_t>(splits * chunks);
      last = atomicAdd(finished + index, 1u) + 1 == all;
      if (last) finished[index] = 0;
      __threadfence();
    }
    __syncthreads();
    return last;
  }

  __device__ void merge_splits(int index) const {
    auto* const part = reinterpret_cast<float*>(parts.first + static_cast<std::size_t>(index) * parts.bytes_apart);
    MergeUnit{unit}(
        DeviceBlock{}, splits, [&](int split) { return static_cast<const float*>(split_part(index, split)); },
        [&](int head, int d, float o, const MergeUnit::Sums& sums) {
          unit.o(part, head)[d] = o;
          if (d == 0) unit.m(part, head) = sums.m, unit.l(part, head) = sums.l;
        });
  }

  // done(unit), by the block that has merged it.
  template <class Split, class Done>
  __device__ void run(typename Split::Shared& shared, const Done& done) const {
    for (int item = static_cast<int>(blockIdx.x); item < units * chunks * splits; item += static_cast<int>(gridDim.x)) {
      const int index = item / (chunks * splits), rest = item % (chunks * splits);
      attend<Split>(shared, index, rest % chunks, rest / chunks);
      if (!is_last(index)) continue;
      merge_splits(index);
      done(index);
    }
  }
};

template <class Split>
__device__ typename Split::Shared& shared_of() {
  extern __shared__ __align__(16) std::byte decode_memory[];
  return *reinterpret_cast<typename Split::Shared*>(decode_memory);
}

template <class Split>
__global__ void __launch_bounds__(kThreads) decode_splits(const __grid_constant__ SplitCall call) {
  call.run<Split>(shared_of<Split>(), [](int) {});
}

template <class Split>
__global__ void __launch_bounds__(kThreads)
    decode_and_push(const __grid_constant__ SplitCall call, const __grid_constant__ DecodeExchange exchange,
                    const __grid_constant__ UnitOutput output) {
  const DeviceBlock block;
  const Peers& peers = exchange.peers;
  bool alive = true;
  call.run<Split>(shared_of<Split>(), [&](int index) {
    __syncthreads();                                // the part is there
    for (int step = 1; step <= peers.size; ++step)  // itself last
      alive = alive && send_part(block, exchange, (peers.rank + step) % peers.size, index);
  });
  if (!alive) return;
  for (int index = static_cast<int>(blockIdx.x); index < call.units; index += static_cast<int>(gridDim.x)) {
    for (int rank = 0; rank < peers.size; ++rank)
      if (!await_full(block, peers, rank, exchange.slots.channel, index, "decode: part")) return;
    output.store(block, index, peers.size, [&](int rank) { return part_of(exchange.slots, rank, index); });
    for (int rank = 0; rank < peers.size; ++rank) give_back(block, peers, rank, exchange.slots.channel, index, 1);
  }
}

// Calls run(Split{}) with the kernel for these keys.
template <class Run>
void with_split(const FlashDecodeParams& params, const Run& run) {
  with_element(params.kv.dtype, [&]<class T>() {
    const bool aligned = is_aligned(params.kv.keys) && is_aligned(params.kv.values);
    const int heads = params.num_heads / params.kv.num_kv_heads, head_dim = params.kv.head_dim;
    if (!aligned || (head_dim != 64 && head_dim != 128)) return run(PlainSplit<T>{});
    if (head_dim == 64) return heads == 1 ? run(FastSplit<T, 1, 2>{}) : run(FastSplit<T, 4, 2>{});
    return heads == 1 ? run(FastSplit<T, 1, 4>{}) : run(FastSplit<T, 4, 4>{});
  });
}

template <class Split>
SplitCall split_call(const FlashDecodeParams& params, const DecodeParts& parts, const DecodeScratch& scratch) {
  const DecodeUnit unit = unit_shape(params);
  return {.kv = params.kv,
          .sequences = params.sequences,
          .q = static_cast<const float*>(params.q.data),
          .q_stride = params.q.row_stride,
          .scale = params.scale,
          .unit = unit,
          .units = units_of_call(params),
          .splits = scratch.splits_per_unit,
          .chunks = ceil_div(unit.heads, Split::kHeadsAtOnce),
          .scratch = scratch.splits,
          .finished = scratch.finished,
          .parts = parts};
}

template <class Split>
LaunchShape split_shape(const SplitCall& call, int most_blocks) {
  return {.grid = dim3(static_cast<unsigned>(std::min(call.units * call.chunks * call.splits, most_blocks))),
          .block = dim3(kThreads),
          .shared_bytes = sizeof(typename Split::Shared),
          .programmatic = false,
          .fit = GridFit::resident};
}

// Bodies that need no attention.
struct SendParts {
  DecodeExchange exchange;
  int units;

  template <VotingGroup G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
#ifdef __CUDA_ARCH__
    const Peers& peers = exchange.peers;
    for (int step = 1; step < peers.size; ++step)
      for (int index = group.block(); index < units; index += group.blocks())
        if (!send_part(group, exchange, (peers.rank + step) % peers.size, index)) return;
#endif
  }
};

__global__ void await_all_parts(const __grid_constant__ DecodeExchange exchange, int units) {
  const Peers& peers = exchange.peers;
  for (int i = static_cast<int>(threadIdx.x); i < peers.size * units; i += static_cast<int>(blockDim.x))
    if (const int rank = i / units; rank != peers.rank)
      if (!await_full(DeviceThread{}, peers, rank, exchange.slots.channel, i % units, "decode: parts")) return;
}

__global__ void __launch_bounds__(kThreads)
    merge_slots(const __grid_constant__ DecodeExchange exchange, const __grid_constant__ UnitOutput output, int units) {
  const DeviceBlock block;
  const Peers& peers = exchange.peers;
  for (int index = static_cast<int>(blockIdx.x); index < units; index += static_cast<int>(gridDim.x)) {
    for (int rank = 0; rank < peers.size; ++rank)
      if (rank != peers.rank && !await_full(block, peers, rank, exchange.slots.channel, index, "decode: part")) return;
    output.store(block, index, peers.size, [&](int rank) { return part_of(exchange.slots, rank, index); });
    for (int rank = 0; rank < peers.size; ++rank)
      if (rank != peers.rank) give_back(block, peers, rank, exchange.slots.channel, index, 1);
  }
}

__global__ void __launch_bounds__(kThreads)
    merge_whole_parts(const __grid_constant__ UnitOutput output, DecodeParts parts, std::size_t of_rank, int ranks,
                      int units) {
  for (int index = static_cast<int>(blockIdx.x); index < units; index += static_cast<int>(gridDim.x))
    output.store(DeviceBlock{}, index, ranks, [&](int rank) {
      return reinterpret_cast<const float*>(parts.first + static_cast<std::size_t>(rank) * of_rank +
                                            static_cast<std::size_t>(index) * parts.bytes_apart);
    });
}

LaunchShape merge_shape(int units, const Lane& lane) {
  return {.grid = dim3(static_cast<unsigned>(std::min(units, lane.num_sms))),
          .block = dim3(kThreads),
          .programmatic = false,
          .fit = GridFit::resident};
}

}  // namespace

std::size_t decode_scratch_bytes(const FlashDecodeParams& params, const Lane& lane) {
  return static_cast<std::size_t>(units_of_call(params)) * static_cast<std::size_t>(splits_for(params, lane)) *
         unit_shape(params).floats() * sizeof(float);
}

DecodeScratch decode_scratch(const FlashDecodeParams& params, std::uint32_t* finished, const Lane& lane) {
  const std::size_t wanted = decode_scratch_bytes(params, lane);
  require(lane.workspace.size_bytes >= wanted, "flash_decode: has a workspace of {} bytes and wants {}",
          lane.workspace.size_bytes, wanted);
  return {.splits = static_cast<float*>(lane.workspace.data),
          .finished = finished,
          .splits_per_unit = splits_for(params, lane)};
}

void decode_parts_sm90(const FlashDecodeParams& params, const DecodeParts& parts, const DecodeScratch& scratch,
                       const Lane& lane) {
  with_split(params, [&]<class Split>(Split) {
    const SplitCall call = split_call<Split>(params, parts, scratch);
    launch_sm90(kDecode, decode_splits<Split>, split_shape<Split>(call, lane.num_sms), lane, call);
  });
}

void push_decode_sm90(const FlashDecodeParams& params, const DecodeExchange& exchange, const DecodeScratch& scratch,
                      const Lane& lane) {
  const DecodeParts parts{exchange.slots.arriving(exchange.peers.rank, 0), exchange.slots.tile_bytes};
  with_split(params, [&]<class Split>(Split) {
    const SplitCall call = split_call<Split>(params, parts, scratch);
    launch_sm90(kDecode, decode_and_push<Split>, split_shape<Split>(call, lane.num_sms), lane, call, exchange,
                output_of_units(params));
  });
}

void send_parts_sm90(int units, const DecodeExchange& exchange, Stream& stream) {
  constexpr int kMostBlocks = 8;
  enqueue_body(stream, {.blocks = std::min(units, kMostBlocks), .threads = kThreads}, SendParts{exchange, units});
}

void await_parts_sm90(int units, const DecodeExchange& exchange, Stream& stream) {
  launch_sm90(kDecode, await_all_parts, {.grid = dim3(1), .block = dim3(kThreads), .programmatic = false}, stream,
              exchange, units);
}

void merge_slots_sm90(const FlashDecodeParams& params, const DecodeExchange& exchange, const Lane& lane) {
  const int units = units_of_call(params);
  launch_sm90(kDecode, merge_slots, merge_shape(units, lane), lane, exchange, output_of_units(params), units);
}

void merge_parts_sm90(const FlashDecodeParams& params, const DecodeParts& parts, std::size_t of_rank, int ranks,
                      const Lane& lane) {
  const int units = units_of_call(params);
  launch_sm90(kDecode, merge_whole_parts, merge_shape(units, lane), lane, output_of_units(params), parts, of_rank,
              ranks, units);
}

}  // namespace heddle
