// Gate and up of many tokens by wgmma, and SwiGLU on their sums, so that neither is ever written: of 128 tokens and 128
// columns of y a block holds the sums of both in registers. Blocks stay, one a multiprocessor, and take tile after tile;
// two of a cluster have the same columns of different tokens, and each brings half of those rows of W to both. A warp has
// the copy engine fill a ring of steps along k; two warpgroups multiply, 64 tokens each, and while they gate, round and
// store a tile, the ring fills for the next.
//
// Prefill keeps an H200 at its power limit, so what counts is energy: what a product moves, how far, how often. Hence
// tiles as large as registers allow, W shared, and an order of tiles that keeps what is read together in L2
// (docs/notes/linear_gpu.md, "Gates of many tokens").
#include "kernels/linear_swiglu_sm90.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>

#include "base/checked.h"
#include "base/error.h"
#include "kernels/instructions_sm90.cuh"
#include "kernels/launch_sm90.cuh"
#include "kernels/mbarrier_sm90.cuh"
#include "kernels/swiglu_sm90.cuh"
#include "kernels/tensor_map_sm90.cuh"
#include "kernels/tile_sm90.cuh"
#include "kernels/wgmma_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernels

constexpr int kGroupTokens = 64, kGroups = 2;                    // tokens of a warpgroup, warpgroups that multiply
constexpr int kTokens = kGroupTokens * kGroups, kColumns = 128;  // of a tile
constexpr int kDepth = 64;                                       // features of a step: a line of 128 bytes
constexpr int kSteps = 4;                                        // on their way
constexpr int kCluster = 2;                                      // blocks that share W, one half each
constexpr int kThreads = 128 * (kGroups + 1);
constexpr int kGroupBarrier = 1;  // one each a warpgroup
// Tokens whose tiles are taken together, column by column: x and W of what runs at a time are then equally large, 16 MB
// each where x has 4096 features.
constexpr int kTokensTogether = 2048;

struct GatedShared {
  using X = Tile<kTokens, kDepth>;
  using W = Tile<kColumns, kDepth>;
  using Y = Tile<kGroupTokens, kColumns>;

  struct Step {
    std::byte x[X::kBytes];
    std::byte gate_up[2][W::kBytes];  // one behind the other: the right operand of one product
  };
  Step steps[kSteps];
  std::byte y[kGroups][Y::kBytes];
  std::uint64_t full[kSteps], empty[kSteps];
};

// Tiles of all clusters: pairs of token tiles, so that each block of a cluster has one, by tiles of columns.
struct GatedTiles {
  int pairs, columns;
  int steps;  // along k

  struct Place {
    int pair, column;
  };
  __host__ __device__ int count() const { return pairs * columns; }
  __device__ Place at(int index) const {
    constexpr int kTogether = kTokensTogether / (kTokens * kCluster);
    const int of_group = kTogether * columns, first = index / of_group * kTogether;
    const int together = min(kTogether, pairs - first), inside = index % of_group;
    return {.pair = first + inside % together, .column = inside / together};
  }
};

struct GatedMaps {
  CUtensorMap x, gate, up, y;
};

// What a block works at, one after the other: a tile, and k in steps through the ring.
class Ring {
 public:
  __device__ explicit Ring(GatedShared& shared) : shared_(shared) {}

  __device__ GatedShared::Step& step() { return shared_.steps[slot_]; }
  __device__ std::uint32_t full() const { return shared_address(&shared_.full[slot_]); }
  __device__ std::uint32_t empty() const { return shared_address(&shared_.empty[slot_]); }
  __device__ int parity() const { return parity_; }
  __device__ void advance() {
    if (++slot_ == kSteps) slot_ = 0, parity_ ^= 1;
  }

 private:
  GatedShared& shared_;
  int slot_ = 0, parity_ = 0;
};

__device__ int first_token(const GatedTiles::Place& place, int rank) {
  return (place.pair * kCluster + rank) * kTokens;
}

// Has the steps of all tiles copied: x for this block, gate's rows of W or up's for both. One thread.
__device__ void fetch_steps(const GatedTiles& tiles, GatedShared& shared, const GatedMaps& maps, int rank) {
  constexpr std::uint16_t kBoth = (1 << kCluster) - 1;
  const CUtensorMap& half = rank == 0 ? maps.gate : maps.up;
  Ring ring(shared);
  for (int tile = static_cast<int>(blockIdx.x) / kCluster; tile < tiles.count();
       tile += static_cast<int>(gridDim.x) / kCluster) {
    const GatedTiles::Place place = tiles.at(tile);
    for (int k = 0; k < tiles.steps; ++k, ring.advance()) {
      GatedShared::Step& step = ring.step();
      wait_for_phase(ring.empty(), ring.parity() ^ 1);  // both blocks have read it
      arrive_expecting(ring.full(), sizeof(GatedShared::Step));
      copy_box(shared_address(step.x), maps.x, k * kDepth, first_token(place, rank), ring.full());
      copy_box_to_blocks(shared_address(step.gate_up[rank]), half, k * kDepth, place.column * kColumns, ring.full(),
                         kBoth);
    }
  }
}

// The sums of one warpgroup's tokens. A thread has rows lane / 4 and lane / 4 + 8 of its warp's sixteen, and of each
// columns 2 * (lane % 4) + {0, 1} of every eight: of gates in the first half of its registers, of ups in the second.
template <class T>
class GatedTokens {
  using X = GatedShared::X;
  using W = GatedShared::W;
  using Y = GatedShared::Y;

 public:
  __device__ GatedTokens(const GatedTiles& tiles, GatedShared& shared, const CUtensorMap& y, int warpgroup, int rank)
      : tiles_(tiles), shared_(shared), y_(y), warpgroup_(warpgroup), rank_(rank), ring_(shared) {}

  __device__ void run() {
    for (int tile = static_cast<int>(blockIdx.x) / kCluster; tile < tiles_.count();
         tile += static_cast<int>(gridDim.x) / kCluster) {
      const GatedTiles::Place place = tiles_.at(tile);
      multiply();
      store(first_token(place, rank_) + warpgroup_ * kGroupTokens, place.column * kColumns);
    }
    if (stores()) wait_for_stores();
  }

 private:
  static __device__ int lane() { return static_cast<int>(threadIdx.x) % 32; }
  static __device__ int warp() { return static_cast<int>(threadIdx.x) % 128 / 32; }  // of the warpgroup
  static __device__ bool stores() { return threadIdx.x % 128 == 0; }

  // sums = x [gate; up]^T. A step is given back when the products behind it have begun.
  __device__ void multiply() {
    std::uint32_t last = 0;
    for (int k = 0; k < tiles_.steps; ++k, ring_.advance()) {
      wait_for_phase(ring_.full(), ring_.parity());
      GatedShared::Step& step = ring_.step();
      const std::uint64_t x = operand<X::kRowBytes>(shared_address(step.x) + warpgroup_ * kGroupTokens * X::kRowBytes,
                                                    8 * X::kRowBytes, 0),
                          gate_up = operand<W::kRowBytes>(shared_address(step.gate_up), 8 * W::kRowBytes, 0);
      pin(sums_);
      wgmma_begin();
#pragma unroll
      for (int i = 0; i < kDepth / 16; ++i)
        multiply_shared<T>(sums_, moved(x, i * 32), moved(gate_up, i * 32), k > 0 || i > 0);
      wgmma_commit();
      if (k > 0) {
        wgmma_wait<1>();
        release(last);
      }
      last = ring_.empty();
    }
    wgmma_wait<0>();
    pin(sums_);
    release(last);
  }

  // To both blocks, as both write to the step: each warp for itself.
  __device__ void release(std::uint32_t empty) const {
    if (lane() < kCluster) arrive_in_block(address_in_block(empty, lane()));
  }

  // By way of shared memory, so that the copy engine writes whole lines and leaves out what is beyond the matrix.
  __device__ void store(int token, int column) {
    std::byte* const y = shared_.y[warpgroup_];
    if (stores()) wait_until_stores_have_read();
    sync_threads(kGroupBarrier + warpgroup_, 128);
    const int row = warp() * 16 + lane() % 16;
#pragma unroll
    for (int i = 0; i < kColumns / 8; i += 2) {
      std::uint32_t m[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* gate = &sums_[(i + j / 2) * 4 + 2 * (j % 2)];
        const float* up = gate + kColumns / 2;
        m[j] = pack<T>(gated(gate[0], up[0], T{}), gated(gate[1], up[1], T{}));
      }
      store_matrices(shared_address(y + Y::offset(row, 8 * (i + lane() / 16))), m);
    }
    fence_async_proxy();
    sync_threads(kGroupBarrier + warpgroup_, 128);
    if (!stores()) return;
#pragma unroll
    for (int block = 0; block < Y::kColumnBlocks; ++block)
      store_box(y_, column + block * Y::kBoxColumns, token, shared_address(y) + block * Y::kBlockBytes);
    commit_stores();
  }

  const GatedTiles& tiles_;
  GatedShared& shared_;
  const CUtensorMap& y_;
  const int warpgroup_, rank_;
  Ring ring_;
  float sums_[kColumns];
};

template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    gated_tiles(const __grid_constant__ GatedTiles tiles, const __grid_constant__ GatedMaps maps) {
  extern __shared__ std::byte shared_bytes[];
  const std::uint32_t misaligned = shared_address(shared_bytes) % 1024;  // swizzling goes by addresses
  auto& shared = *reinterpret_cast<GatedShared*>(shared_bytes + (misaligned == 0 ? 0 : 1024 - misaligned));
  if (threadIdx.x == 0) {
    for (std::uint64_t& barrier : shared.full) init_barrier(shared_address(&barrier), 1);
    for (std::uint64_t& barrier : shared.empty) init_barrier(shared_address(&barrier), 4 * kGroups * kCluster);
    publish_barriers();
    for (const CUtensorMap* map : {&maps.x, &maps.gate, &maps.up, &maps.y}) prefetch_map(*map);
  }
  __syncthreads();
  arrive_at_cluster();
  wait_for_cluster();
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int rank = static_cast<int>(blockIdx.x) % kCluster;
  const int warp =
      __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // the same in a whole warp, and known to be
  if (warp < 4) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) fetch_steps(tiles, shared, maps, rank);
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    GatedTokens<T>(tiles, shared, maps.y, warp / 4 - 1, rank).run();
  }
  // A block's memory is there until the other one neither copies to it nor arrives at its barriers.
  arrive_at_cluster();
  wait_for_cluster();
}

int num_multiprocessors(Device device) {
  int count = 0;
  const cudaError_t error = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device.index);
  if (error != cudaSuccess) throw_error<Failure>("linear_swiglu: cuda:{}: {}", device.index, cudaGetErrorString(error));
  return count;
}

bool takes_boxes(const void* data, std::int64_t row_stride) {
  return reinterpret_cast<std::uintptr_t>(data) % 16 == 0 && row_stride % 8 == 0;
}

CUtensorMap map_of(const void* data, std::int64_t rows, std::int64_t columns, std::int64_t row_stride, int box_rows) {
  return tensor_map("linear_swiglu", {.data = data,
                                      .rows = static_cast<std::uint64_t>(rows),
                                      .columns = static_cast<std::uint64_t>(columns),
                                      .row_stride = static_cast<std::uint64_t>(row_stride),
                                      .box_rows = static_cast<std::uint32_t>(box_rows),
                                      .box_columns = kDepth,
                                      .swizzle = CU_TENSOR_MAP_SWIZZLE_128B,
                                      .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B});
}

}  // namespace

bool is_for_swiglu_tiles(const LinearSwigluParams& params, Device device) {
  const LinearParams& p = params.gate_up;
  const DType dtype = p.weight.dtype;
  if (p.x.rows <= kLinearSmallRows || dtype == DType::float32 || p.x.dtype != dtype || params.y.dtype != dtype ||
      p.weight.bias != nullptr || p.weight.in_features % 8 != 0 || !takes_boxes(p.x.data, p.x.row_stride) ||
      !takes_boxes(params.y.data, params.y.row_stride) || !takes_boxes(p.weight.row(0), p.weight.in_features))
    return false;
  // Each round of tiles takes as long as a full one: where much of one is idle, the other way is faster.
  constexpr double kLeastUsed = 0.94;
  const std::int64_t clusters = num_multiprocessors(device) / kCluster;
  const std::int64_t tiles =
      ceil_div(p.x.rows, std::int64_t{kTokens * kCluster}) * ceil_div(params.y.columns, std::int64_t{kColumns});
  const double places = static_cast<double>(ceil_div(tiles, clusters) * clusters) * (kTokens * kCluster * kColumns);
  return static_cast<double>(p.x.rows) * static_cast<double>(params.y.columns) >= kLeastUsed * places;
}

void linear_swiglu_tiles(const LinearSwigluParams& params, Stream& stream) {
  const Tensor& x = params.gate_up.x;
  const Tensor& y = params.y;
  const Weight& weight = params.gate_up.weight;
  const GatedMaps maps{.x = map_of(x.data, x.rows, x.columns, x.row_stride, kTokens),
                       .gate = map_of(weight.row(0), y.columns, x.columns, x.columns, kColumns),
                       .up = map_of(weight.row(y.columns), y.columns, x.columns, x.columns, kColumns),
                       .y = map_of(y.data, y.rows, y.columns, y.row_stride, kGroupTokens)};
  const GatedTiles tiles{.pairs = static_cast<int>(ceil_div(x.rows, std::int64_t{kTokens * kCluster})),
                         .columns = static_cast<int>(ceil_div(y.columns, std::int64_t{kColumns})),
                         .steps = static_cast<int>(ceil_div(x.columns, std::int64_t{kDepth}))};
  const int clusters = std::min(num_multiprocessors(stream.device()) / kCluster, tiles.count());
  const LaunchShape shape{.grid = dim3(static_cast<unsigned>(clusters * kCluster)),
                          .block = dim3(kThreads),
                          .shared_bytes = sizeof(GatedShared) + 1024,
                          .cluster = kCluster};
  if (weight.dtype == DType::bfloat16)
    return launch_sm90("linear_swiglu", gated_tiles<__nv_bfloat16>, shape, stream, tiles, maps);
  launch_sm90("linear_swiglu", gated_tiles<__half>, shape, stream, tiles, maps);
}

}  // namespace heddle
