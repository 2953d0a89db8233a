// GEMM of gate and up for many tokens with WGMMA, with SwiGLU as its epilogue, so gate and up are never written. A tile
// is 128 tokens and 128 columns of y (or 96, where that fills the SMs better); its sums of gate and up stay in
// registers. The kernel is persistent: one block per SM loops over tiles. The two blocks of a cluster have the same
// columns and different tokens, and each loads half of W's rows for both by multicast. One warp issues the TMA loads
// along k into a ring of slots. Two warpgroups multiply, 64 tokens each; while they run the epilogue, the ring fills
// for the next tile.
//
// Prefill runs an H200 at its power limit, so energy decides: how much a GEMM moves, how far and how often. Hence tiles
// as large as registers allow, multicast of W, and a tile order that keeps shared operands in L2
// (docs/notes/linear_gpu.md, "Gates of many tokens").
#include "kernels/linear/linear_swiglu_sm90.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tensor_map_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/linear/grouped_tiles.h"
#include "kernels/rows/swiglu_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"
#include "kernels/sm90/tile_sm90.cuh"
#include "kernels/sm90/wgmma_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): this file's own kernels

constexpr int kGroupThreads = 128;             // of a warpgroup, four warps
constexpr int kGroupTokens = 64, kGroups = 2;  // per warpgroup; warpgroups that multiply
constexpr int kTileTokens = kGroupTokens * kGroups;
constexpr int kDepth = 64;   // features of a step: a line of 128 bytes
constexpr int kCluster = 2;  // blocks that share W: one loads the rows of gate, the other those of up
constexpr int kThreads = kGroupThreads * (kGroups + 1);
constexpr int kGroupBarrier = 1;  // one per warpgroup
constexpr std::size_t kAlignment = 1024, kMostSharedBytes = std::size_t{227} << 10;
// Tokens whose tiles are taken together, column by column. x and W of the tiles in flight are then equally large: 16 MB
// each with tiles of 128 columns and 4096 features.
constexpr int kTokensTogether = 2048;

// kColumns: of y, per tile.
template <int kColumns>
struct GatedShared {
  static constexpr int kSlots = kColumns > 96 ? 4 : 5;  // as many as fit
  using X = Tile<kTileTokens, kDepth>;
  using W = Tile<kColumns, kDepth>;
  using Y = Tile<kGroupTokens, kColumns>;

  struct Step {
    std::byte x[X::kBytes];
    std::byte gate_up[2][W::kBytes];  // contiguous: the right operand of one WGMMA
  };
  Step slots[kSlots];
  std::byte y[kGroups][Y::kBytes];
  TmaRing<Mbarrier, kSlots> ring;
  static_assert(X::kBytes % kAlignment == 0 && W::kBytes % kAlignment == 0 && Y::kBytes % kAlignment == 0);
};

template <int kColumns>
constexpr std::size_t shared_bytes() {
  constexpr std::size_t bytes = sizeof(GatedShared<kColumns>) + kAlignment;
  static_assert(bytes <= kMostSharedBytes);
  return bytes;
}

// Tiles of all clusters: pairs of token tiles, one for each block of a cluster, times column tiles.
struct GatedTiles {
  int pairs, columns;
  int steps;  // along k

  constexpr GroupedTiles order() const {
    return {.rows = pairs, .columns = columns, .together = kTokensTogether / (kTileTokens * kCluster)};
  }
};

struct GatedMaps {
  CUtensorMap x, gate, up, y;
};

// Calls f(place) for the tiles of this block's cluster. All roles of a block iterate over them, and over the steps of
// each, in this order.
template <class F>
__device__ void each_tile(const GatedTiles& tiles, F f) {
  const int first = static_cast<int>(blockIdx.x) / kCluster, clusters = static_cast<int>(gridDim.x) / kCluster;
  const GroupedTiles order = tiles.order();
  for (int tile = first; tile < order.count(); tile += clusters) f(order.at(tile));
}

__device__ int first_token(const GroupedTiles::Place& place, int rank) {
  return (place.row * kCluster + rank) * kTileTokens;
}

// Issues the TMA loads of all tiles: x for this block, rows of gate or of up for both blocks. One thread.
template <int kColumns>
__device__ void fetch_steps(const GatedTiles& tiles, GatedShared<kColumns>& shared, const GatedMaps& maps, int rank,
                            const KernelWaits& waits) {
  static_assert(kCluster == 2, "a block brings gate or up");
  constexpr std::uint16_t kBoth = 0b11;
  const CUtensorMap& half = rank == 0 ? maps.gate : maps.up;
  auto& ring = shared.ring;
  RingProducer<GatedShared<kColumns>::kSlots> at;
  each_tile(tiles, [&](const GroupedTiles::Place& place) {
    for (int k = 0; k < tiles.steps; ++k, at.advance()) {
      auto& step = shared.slots[at.slot()];
      const std::uint32_t full = ring.full(at).address();
      ring.wait_until_empty(at, waits);  // both blocks have read it
      ring.full(at).arrive_expecting(sizeof step);
      copy_box(shared_address(step.x), maps.x, k * kDepth, first_token(place, rank), full);
      copy_box_to_blocks(shared_address(step.gate_up[rank]), half, k * kDepth, place.column * kColumns, full, kBoth);
    }
  });
  ring.wait_until_all_empty(at, waits);
}

// One warpgroup's tokens of this block's tiles. A thread has rows lane / 4 and lane / 4 + 8 of its warp's sixteen. Of
// each row it has columns 2 * (lane % 4) + {0, 1} of every eight: of gate in the first half of its registers, of up in
// the second.
template <class T, int kColumns>
class GatedTokens {
  using Shared = GatedShared<kColumns>;
  using X = typename Shared::X;
  using W = typename Shared::W;
  using Y = typename Shared::Y;
  static constexpr int kSums = 2 * kColumns * kGroupTokens / kGroupThreads;  // per thread

 public:
  __device__ GatedTokens(Shared& shared, const CUtensorMap& y, int warpgroup, int rank, const KernelWaits& waits)
      : shared_(shared), waits_(waits), y_(y), warpgroup_(warpgroup), rank_(rank) {}

  __device__ void run(const GatedTiles& tiles) {
    each_tile(tiles, [&](const GroupedTiles::Place& place) {
      multiply(tiles.steps);
      store(first_token(place, rank_) + warpgroup_ * kGroupTokens, place.column * kColumns);
    });
    if (stores()) wait_for_stores();
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) % kGroupThreads / 32; }  // of the warpgroup
  static __device__ bool stores() { return threadIdx.x % kGroupThreads == 0; }

  // sums = x [gate; up]^T. A slot is released when its WGMMAs have ended; the thread waits for them once those of the
  // next slot are in flight.
  __device__ void multiply(int steps) {
    std::uint32_t last_empty = 0;
    for (int k = 0; k < steps; ++k, at_.advance()) {
      shared_.ring.wait_until_full(at_, waits_);
      auto& step = shared_.slots[at_.slot()];
      const std::uint64_t x = matrix_descriptor<X::kRowBytes>(
                              shared_address(step.x) + warpgroup_ * kGroupTokens * X::kRowBytes, 8 * X::kRowBytes, 0),
                          gate_up = matrix_descriptor<W::kRowBytes>(shared_address(step.gate_up), 8 * W::kRowBytes, 0);
      constexpr int kFeatures = 16;  // per instruction, two bytes each
      pin(sums_);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kDepth; i += kFeatures)
        wgmma_ss<T>(sums_, advanced(x, 2 * i), advanced(gate_up, 2 * i), k > 0 || i > 0);
      wgmma_commit();
      if (k > 0) {
        wgmma_wait<1>();
        release(last_empty);
      }
      last_empty = shared_.ring.empty(at_).address();
    }
    wgmma_wait<0>();
    pin(sums_);
    release(last_empty);
  }

  // To both blocks, as both copy into the slot. Each warp arrives for itself.
  __device__ void release(std::uint32_t empty) const {
    if (lane() < kCluster) arrive_in_block(address_in_block(empty, lane()));
  }

  // Goes through shared memory, so that TMA stores whole lines and clips at the matrix's end.
  __device__ void store(int token, int column) {
    std::byte* const y = shared_.y[warpgroup_];
    if (stores()) wait_until_stores_have_read();
    sync_threads(kGroupBarrier + warpgroup_, kGroupThreads);
    const int row = warp() * 16 + lane() % 16;
#pragma unroll
    for (int i = 0; i < kColumns / 8; i += 2) {
      std::uint32_t m[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* gate = &sums_[(i + j / 2) * 4 + 2 * (j % 2)];
        const float* up = gate + kSums / 2;
        m[j] = pack<T>(gated(gate[0], up[0], T{}), gated(gate[1], up[1], T{}));
      }
      store_matrices(shared_address(y + Y::offset(row, 8 * (i + lane() / 16))), m);
    }
    fence_async_proxy();
    sync_threads(kGroupBarrier + warpgroup_, kGroupThreads);
    if (!stores()) return;
#pragma unroll
    for (int block = 0; block < Y::kColumnBlocks; ++block)
      store_box(y_, column + block * Y::kBoxColumns, token, shared_address(y) + block * Y::kBlockBytes);
    commit_stores();
  }

  Shared& shared_;
  const KernelWaits& waits_;
  const CUtensorMap& y_;
  const int warpgroup_, rank_;
  RingConsumer<Shared::kSlots> at_;
  float sums_[kSums];
};

template <class T, int kColumns>
__global__ void __launch_bounds__(kThreads, 1)
    gated_tiles(const __grid_constant__ GatedTiles tiles, const __grid_constant__ GatedMaps maps,
                const __grid_constant__ KernelWaits waits) {
  extern __shared__ std::byte memory[];
  const std::uint32_t misaligned = shared_address(memory) % kAlignment;  // the swizzle follows address bits
  auto& shared = *reinterpret_cast<GatedShared<kColumns>*>(memory + (misaligned == 0 ? 0 : kAlignment - misaligned));
  if (threadIdx.x == 0) {
    constexpr int kReadingWarps = kGroupThreads / 32 * kGroups * kCluster;
    shared.ring.init({.producers = 1, .consumers = kReadingWarps});
    publish_barriers();
    for (const CUtensorMap* map : {&maps.x, &maps.gate, &maps.up, &maps.y}) prefetch_map(*map);
  }
  __syncthreads();
  arrive_at_cluster();
  wait_for_cluster();
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // warp-uniform, and the compiler knows it
  constexpr int kGroupWarps = kGroupThreads / 32;
  if (warp < kGroupWarps) {
    give_up_registers<40>();
    if (threadIdx.x == 0) fetch_steps(tiles, shared, maps, rank, waits);
  } else {
    take_registers<232>();
    GatedTokens<T, kColumns>(shared, maps.y, warp / kGroupWarps - 1, rank, waits).run(tiles);
  }
}

// A tensor map of a matrix with boxes as wide as a swizzle, 64 or 32 columns.
CUtensorMap map_of(const Tensor& matrix, int box_rows, int box_columns) {
  return tensor_map("linear_swiglu",
                    {.data = matrix.data,
                     .rows = static_cast<std::uint64_t>(matrix.rows),
                     .columns = static_cast<std::uint64_t>(matrix.columns),
                     .row_stride = static_cast<std::uint64_t>(matrix.row_stride),
                     .box_rows = static_cast<std::uint32_t>(box_rows),
                     .box_columns = static_cast<std::uint32_t>(box_columns),
                     .swizzle = box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                     .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B});
}

// Clusters that run at a time.
int num_clusters(const Lane& lane) {
  return std::max(1, lane.num_sms / kCluster);
}

// The fraction of the peak of all rounds of tiles that y uses, with all SMs of an H200; each round takes as long as a
// full one. A lane with fewer SMs gets the same kernel, so the same bits.
double wanted_share(const Tensor& y, int columns_of_tile) {
  constexpr std::int64_t kPairTokens = kTileTokens * kCluster, kClusters = 132 / kCluster;
  const std::int64_t tiles = ceil_div(y.rows, kPairTokens) * ceil_div(y.columns, std::int64_t{columns_of_tile});
  const std::int64_t places = round_up(tiles, kClusters) * kPairTokens * columns_of_tile;
  return static_cast<double>(y.rows) * static_cast<double>(y.columns) / static_cast<double>(places);
}

constexpr int kWide = 128, kNarrow = 96;  // columns per tile

// The columns of the faster tiles for y; 0 where cuBLASLt followed by SwiGLU is faster. Compares speeds relative to
// full rounds of wide tiles, measured on one H200 (docs/notes/linear_gpu.md).
int tile_columns_for(const Tensor& y) {
  constexpr double kFastEnough = 0.94;
  constexpr double kNarrowSpeed = 0.98;  // reads x more often: where both fill their rounds
  const double wide = wanted_share(y, kWide), narrow = kNarrowSpeed * wanted_share(y, kNarrow);
  if (std::max(wide, narrow) < kFastEnough) return 0;
  return wide >= narrow ? kWide : kNarrow;
}

template <class T, int kColumns>
void enqueue_tiles(const LinearSwigluParams& params, const Lane& lane) {
  const Tensor& x = params.gate_up.x;
  const Tensor& y = params.y;
  const Weight& weight = params.gate_up.weight;
  const auto rows_of_w = [&](std::int64_t first) {
    return Tensor{const_cast<void*>(weight.row(first)), y.columns, x.columns, x.columns, weight.dtype};
  };
  const GatedMaps maps{.x = map_of(x, kTileTokens, kDepth),
                       .gate = map_of(rows_of_w(0), kColumns, kDepth),
                       .up = map_of(rows_of_w(y.columns), kColumns, kDepth),
                       .y = map_of(y, kGroupTokens, GatedShared<kColumns>::Y::kBoxColumns)};
  const GatedTiles tiles{.pairs = static_cast<int>(ceil_div(x.rows, std::int64_t{kTileTokens * kCluster})),
                         .columns = static_cast<int>(ceil_div(y.columns, std::int64_t{kColumns})),
                         .steps = static_cast<int>(ceil_div(x.columns, std::int64_t{kDepth}))};
  const int clusters = std::min(num_clusters(lane), tiles.order().count());
  launch_sm90("linear_swiglu", gated_tiles<T, kColumns>,
              {.grid = dim3(static_cast<unsigned>(clusters * kCluster)),
               .block = dim3(kThreads),
               .shared_bytes = shared_bytes<kColumns>(),
               .cluster = kCluster},
              lane, tiles, maps, waits_of(lane.stream, "linear_swiglu"));
}

template <class T>
void enqueue(const LinearSwigluParams& params, const Lane& lane) {
  if (tile_columns_for(params.y) == kNarrow) return enqueue_tiles<T, kNarrow>(params, lane);
  enqueue_tiles<T, kWide>(params, lane);
}

}  // namespace

bool is_for_swiglu_tiles(const LinearSwigluParams& params) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();  // TMA coordinates are 32-bit
  const LinearParams& p = params.gate_up;
  const DType dtype = p.weight.dtype;
  // W is contiguous (linear.h), so rows of up are aligned where those of gate are. Where a row of y ends within 16
  // bytes, TMA was observed to write beyond it.
  if (p.x.rows <= kLinearSmallRows || std::max({p.x.rows, p.x.columns, params.y.columns}) > kMost ||
      params.y.columns % 8 != 0 || dtype == DType::float32 || p.x.dtype != dtype || params.y.dtype != dtype ||
      p.weight.bias != nullptr || !rows_are_aligned(p.weight) || !rows_are_aligned(p.x) || !rows_are_aligned(params.y))
    return false;
  return tile_columns_for(params.y) > 0;
}

void linear_swiglu_tiles(const LinearSwigluParams& params, const Lane& lane) {
  with_16_bit_element(params.gate_up.weight.dtype, [&]<class T>() { enqueue<T>(params, lane); });
}

}  // namespace heddle
