// Two kernels: gate and up with SwiGLU, then down with the sum over experts. Each streams the weights of the shared and the
// chosen experts once through a ring of shared memory, as much of them on each SM. One block an SM:
//
// - a producer warp copies rows of weights into the ring by TMA, each row's piece by a copy of its own. It begins with the
//   shared experts' rows, by programmatic dependent launch (PDL), before x and the router's logits are there;
// - router warps choose each token's experts, in every block by itself, while the ring is on its way;
// - eight consumer warps multiply: the tokens are the sixteen rows of mma.sync, all at once whoever chose the expert,
//   and the weights' rows its eight columns. A warp has every eighth chunk of 32 features, and the warps' sums are added
//   in their order. In the first half they have x in registers all the time.
//
// A token that has not chosen an expert takes part in the first half with results that nobody stores, and in the second half
// as zeros. With few tokens memory decides, not tensor cores.
#include "kernels/moe/mixture_sm90.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype_switch.h"
#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tma_ring.h"
#include "kernels/moe/mixture_sm90.cuh"
#include "kernels/moe/route_sm90.cuh"
#include "kernels/rows/swiglu_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): this file's own kernels

constexpr int kMixtureWarps = 8, kMixtureThreads = 32 * kMixtureWarps;  // that multiply
constexpr int kConsumerBarrier = 1, kRouterBarrier = 2;
constexpr int kChunk = 32;  // features of a row that four lanes load at once, 16 bytes each
// Whose weights a warp loads before it multiplies.
template <int kMostChunks>
constexpr int kAtOnce = kMostChunks % 4 == 0 ? 4 : 2;
constexpr int kFewSlots = 6, kManySlots = 8;  // about 200 KB on its way: the whole of an SM's memory, for one block
// Two rows that eight lanes read at once lie in different banks.
constexpr int kRowPadding = 64;
constexpr int kLargePitch = 2 * kMostPieceFeatures + kRowPadding, kSmallPitch = 2944;  // of few and of many slots

// The most chunks of a piece that a warp has.
template <int kSlots>
constexpr int kChunks = ceil_div(((kSlots == kFewSlots ? kLargePitch : kSmallPitch) - kRowPadding) / 2,
                                 kChunk* kMixtureWarps);

template <MixtureHalf kHalf>
constexpr int kRouterWarps = kHalf == MixtureHalf::gate_up ? 4 : 1;
template <MixtureHalf kHalf>
constexpr int kBlockThreads = kMixtureThreads + 32 * (1 + kRouterWarps<kHalf>);

struct RouterShared {
  std::int16_t experts[kMixtureTokens][kMaxTopExperts];
  float weights[kMixtureTokens][kMaxTopExperts];
  float scratch[kRouterWarps<MixtureHalf::gate_up>][2][kMixtureExperts];
};
struct NoRouter {};

// The slots lie behind it.
template <MixtureHalf kHalf, int kSlots>
struct __align__(128) MixtureShared {
  float sums[2][kMixtureWarps][kMixtureTokens][kTileWeightRows];  // double-buffered: a tile takes one barrier
  ChosenExperts chosen;
  std::conditional_t<kHalf == MixtureHalf::gate_up, RouterShared, NoRouter> router;
  TmaRing<Mbarrier, kSlots> ring;
  Mbarrier routed;
};

template <class T>
__device__ const T* first_weight(const MixtureParams& params, MixtureHalf half, int expert) {
  const bool gate_up = half == MixtureHalf::gate_up;
  if (expert == kSharedExperts)
    return static_cast<const T*>((gate_up ? params.shared_gate_up : params.shared_down).blocks[0].data);
  return static_cast<const T*>((gate_up ? params.gate_up : params.down).table[expert]);
}

// How many experts have been chosen; none if the wait for it gave up.
template <class Shared>
__device__ int wait_for_choice(const Shared& shared, const KernelWaits& waits) {
  return shared.routed.template wait<LongWaitDeadline>(waits, 0) ? shared.chosen.num_active : 0;
}

// Copies a piece of a tile's rows into the next slot. One warp.
template <MixtureHalf kHalf, class T, int kSlots>
__device__ void copy_tile(const T* weight, const HalfShape& shape, const MixtureSegment& segment, int first, int piece,
                          std::uint32_t slots, TmaRing<Mbarrier, kSlots>& ring, RingProducer<kSlots>& at,
                          const KernelWaits& waits) {
  constexpr int kParts = kHalf == MixtureHalf::gate_up ? 2 : 1, kOutputs = kTileWeightRows / kParts;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const RowPieces& pieces = shape.pieces(segment);
  const int outputs = min(kOutputs, segment.end - first);
  const auto bytes = static_cast<std::uint32_t>(pieces.length(piece)) * 2;
  ring.wait_until_empty(at, waits);
  if (lane == 0) ring.full(at).arrive_expecting(static_cast<std::uint32_t>(kParts * outputs) * bytes);
  __syncwarp();
  if (lane < kTileWeightRows && lane % kOutputs < outputs) {
    const std::int64_t row = first + lane % kOutputs + std::int64_t{lane / kOutputs} * shape.outputs_of(segment);
    copy_bytes(slots + static_cast<std::uint32_t>(at.slot() * shape.slot_bytes() + lane * shape.pitch),
               weight + row * pieces.features + pieces.begin(piece), bytes, ring.full(at).address());
  }
  at.advance();
}

template <MixtureHalf kHalf, class T, int kSlots>
__device__ void fetch_weights(const MixtureParams& params, const HalfShape& shape, std::uint32_t slots,
                              MixtureShared<kHalf, kSlots>& shared, const KernelWaits& waits) {
  RingProducer<kSlots> at;
  const auto copy = [&](const MixtureSegment& segment, int first, int piece) {
    copy_tile<kHalf>(first_weight<T>(params, kHalf, segment.expert), shape, segment, first, piece, slots, shared.ring,
                     at, waits);
  };
  const auto ready = [&] { return wait_for_choice(shared, waits); };
  if constexpr (kHalf == MixtureHalf::gate_up)
    each_gate_segment(shape, shared.chosen, ready, [&](const MixtureSegment& segment) {
      for (int first = segment.begin; first < segment.end; first += kTileWeightRows / 2)
        for (int piece = 0; piece < shape.pieces(segment).count; ++piece) copy(segment, first, piece);
    });
  else
    each_down_segment(
        shape, shared.chosen, ready,
        [&](const MixtureSegment& segment) {
          for (int piece = 0; piece < shape.pieces(segment).count; ++piece)
            for (int first = segment.begin; first < segment.end; first += kTileWeightRows) copy(segment, first, piece);
        },
        [](int, int) {});
  wait_for_earlier_kernels();  // as every thread does before it ends
}

// Chooses the experts of all tokens, or reads what the first half has chosen. The router warps.
template <MixtureHalf kHalf, int kSlots>
__device__ void choose_experts(const MixtureParams& params, MixtureShared<kHalf, kSlots>& shared) {
  const int warp = static_cast<int>(threadIdx.x) / 32 - kMixtureWarps - 1, lane = static_cast<int>(threadIdx.x) % 32;
  const int num_tokens = static_cast<int>(params.x.rows), top_k = params.rule.top_k;
  wait_for_earlier_kernels();
  if constexpr (kHalf == MixtureHalf::gate_up) {
    RouterShared& router = shared.router;
    auto& scratch = router.scratch[warp];
    for (int token = warp; token < num_tokens; token += kRouterWarps<kHalf>)
      route_row<kMixtureExperts>(static_cast<const float*>(params.logits.data) + token * params.logits.row_stride,
                                 params.bias, params.gate_up.count, params.rule,
                                 {.choice = scratch[0], .groups = scratch[1]}, [&](int k, int expert, float weight) {
                                   router.experts[token][k] = static_cast<std::int16_t>(expert);
                                   router.weights[token][k] = weight;
                                   if (blockIdx.x == 0) params.experts[token * top_k + k] = expert;
                                 });
    sync_threads(kRouterBarrier, 32 * kRouterWarps<kHalf>);
    if (warp > 0) return;
    shared.chosen.collect(num_tokens, top_k, params.gate_up.count,
                          [&](int token, int k) { return int{router.experts[token][k]}; });
  } else {
    shared.chosen.collect(num_tokens, top_k, params.gate_up.count, [&](int token, int k) {
      return min(max(params.experts[token * top_k + k], 0), params.gate_up.count - 1);
    });
  }
  if (lane == 0) shared.routed.arrive();
}

// What a lane has of a piece of all tokens: of token lane / 4 and of the one eight further, features 8 * (lane % 4) to + 7 of
// each of its warp's chunks.
template <int kTokenTiles, int kMostChunks>
struct TokenPieces {
  static constexpr int kWords = 4 * kTokenTiles * kMostChunks;  // registers
  static constexpr int kChunksAtOnce = kAtOnce<kMostChunks>;

  uint4 x[kMostChunks][kTokenTiles];

  // row_of(token): null for zeros.
  template <class T, class F>
  __device__ void load(int begin, int length, F row_of) {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
      const T* row = row_of(8 * n + lane / 4);
#pragma unroll
      for (int i = 0; i < kMostChunks; ++i) {
        const int k = (warp + kMixtureWarps * i) * kChunk + lane % 4 * 8;
        x[i][n] = make_uint4(0, 0, 0, 0);
        if (row != nullptr && k < length) x[i][n] = *reinterpret_cast<const uint4*>(row + begin + k);
      }
    }
  }

  // sums += x of the piece times the slot's rows, in two chains, of which one ends here.
  template <class T>
  __device__ void multiply(const std::byte* slot, int pitch, int length, float (&sums)[4]) const {
    const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
    const std::byte* row = slot + lane / 4 * pitch + lane % 4 * 16;
    float odd[4] = {};
#pragma unroll
    for (int first = 0; first < kMostChunks; first += kChunksAtOnce) {
      uint4 w[kChunksAtOnce];
#pragma unroll
      for (int i = 0; i < kChunksAtOnce; ++i) {
        const int k = (warp + kMixtureWarps * (first + i)) * kChunk;
        w[i] = make_uint4(0, 0, 0, 0);  // what lies behind a row may be NaN
        if (k + lane % 4 * 8 < length) w[i] = *reinterpret_cast<const uint4*>(row + 2 * k);
      }
#pragma unroll
      for (int i = 0; i < kChunksAtOnce; ++i) {
        const uint4 low = x[first + i][0];
        uint4 high = make_uint4(0, 0, 0, 0);
        if constexpr (kTokenTiles == 2) high = x[first + i][1];
        multiply_add_packs<T>(i % 2 == 0 ? sums : odd, low, high, w[i]);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += odd[i];
  }
};

// The consumers' part of a block. They go through the segments as the producer does.
template <MixtureHalf kHalf, class T, int kTokenTiles, int kSlots>
class MixtureConsumer {
 public:
  __device__ MixtureConsumer(const MixtureParams& params, const HalfShape& shape, const std::byte* slots,
                             MixtureShared<kHalf, kSlots>& shared, const KernelWaits& waits)
      : params_(params), shape_(shape), slots_(slots), shared_(shared), waits_(waits) {}

  __device__ void multiply_gates() {
    const RowPieces& pieces = shape_.routed;
    const bool one_piece = pieces.count == 1;
    if (one_piece) load_x(0);
    each_gate_segment(shape_, shared_.chosen, ready(), [&](const MixtureSegment& segment) {
      for (int first = segment.begin; first < segment.end; first += kTileWeightRows / 2) {
        float sums[4] = {};
        for (int piece = 0; piece < pieces.count; ++piece) {
          if (!one_piece) load_x(piece);
          multiply_slot(pieces.length(piece), sums);
        }
        add_warps(sums);
        store_gates(segment, first);
      }
    });
  }

  // What the gates of a piece are, is loaded while the piece before is multiplied, where registers hold both.
  __device__ void multiply_down() {
    constexpr bool kLoadsAhead = Pieces::kWords <= 48;
    DownSums sums{};
    MixtureSegment before{};
    int length = 0;  // of the piece that tokens_ is; 0: none
    each_down_segment(
        shape_, shared_.chosen, ready(),
        [&](const MixtureSegment& segment) {
          const RowPieces& pieces = shape_.pieces(segment);
          for (int piece = 0; piece < pieces.count; ++piece) {
            if constexpr (kLoadsAhead) {
              Pieces next;
              load_gated(next, segment.expert, pieces, piece);
              if (length > 0) multiply_tiles(before, length, sums);
              tokens_ = next;
            } else {
              if (length > 0) multiply_tiles(before, length, sums);
              load_gated(tokens_, segment.expert, pieces, piece);
            }
            before = segment;
            length = pieces.length(piece);
          }
        },
        [&](int begin, int end) {
          if (length > 0) multiply_tiles(before, length, sums);
          length = 0;
#pragma unroll
          for (int tile = 0; tile < kRowTiles; ++tile) {
            const int first = begin + tile * kTileWeightRows;
            if (first >= end) break;
            add_warps(sums.of_tile[tile]);
            store_outputs(first, min(kTileWeightRows, end - first));
          }
          sums = {};
        });
  }

 private:
  using Pieces = TokenPieces<kTokenTiles, kChunks<kSlots>>;
  struct DownSums {
    float of_tile[kRowTiles][4];
  };

  static __device__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  static __device__ int warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }

  __device__ auto ready() const {
    return [this] { return wait_for_choice(shared_, waits_); };
  }

  // All tiles of a segment, of the piece that tokens_ is.
  __device__ void multiply_tiles(const MixtureSegment& segment, int length, DownSums& sums) {
#pragma unroll
    for (int tile = 0; tile < kRowTiles; ++tile)
      if (segment.begin + tile * kTileWeightRows < segment.end) multiply_slot(length, sums.of_tile[tile]);
  }

  __device__ void load_x(int piece) {
    tokens_.template load<T>(shape_.routed.begin(piece), shape_.routed.length(piece), [&](int token) -> const T* {
      if (token >= params_.x.rows) return nullptr;
      return static_cast<const T*>(params_.x.data) + token * params_.x.row_stride;
    });
  }

  __device__ void load_gated(Pieces& to, int expert, const RowPieces& pieces, int piece) const {
    to.template load<T>(pieces.begin(piece), pieces.length(piece), [&](int token) -> const T* {
      if (token >= params_.x.rows) return nullptr;
      if (expert == kSharedExperts)
        return static_cast<const T*>(params_.shared_gated.data) + token * params_.shared_gated.row_stride;
      const int slot = shared_.chosen.slot_of[expert][token];
      if (slot == kNoSlot) return nullptr;
      return static_cast<const T*>(params_.gated.data) +
             std::int64_t{token * params_.rule.top_k + slot} * params_.gated.row_stride;
    });
  }

  __device__ void multiply_slot(int length, float (&sums)[4]) {
    shared_.ring.wait_until_full(at_, waits_);
    tokens_.template multiply<T>(slots_ + at_.slot() * shape_.slot_bytes(), shape_.pitch, length, sums);
    fence_async_proxy();  // TMA writes the slot next (tma_ring.h)
    __syncwarp();         // all lanes have read it
    if (lane() == 0) shared_.ring.empty(at_).arrive();
    at_.advance();
  }

  // Puts the warps' sums of a tile side by side, so that all consumers may read them until the tile after the next.
  __device__ void add_warps(const float (&sums)[4]) {
    buffer_ ^= 1;
    auto& mine = shared_.sums[buffer_][warp()];
#pragma unroll
    for (int half = 0; half < kTokenTiles; ++half)
      *reinterpret_cast<float2*>(&mine[8 * half + lane() / 4][lane() % 4 * 2]) =
          make_float2(sums[2 * half], sums[2 * half + 1]);
    sync_threads(kConsumerBarrier, kMixtureThreads);
  }

  __device__ float sum_of(int token, int row) const {
    float sum = shared_.sums[buffer_][0][token][row];
#pragma unroll
    for (int w = 1; w < kMixtureWarps; ++w) sum += shared_.sums[buffer_][w][token][row];
    return sum;
  }

  // The thread's place among those that store a tile: each tile keeps other warps from the next slot.
  __device__ int place() {
    turn_ = (turn_ + 1) % kMixtureWarps;
    return (static_cast<int>(threadIdx.x) + 32 * turn_) % kMixtureThreads;
  }

  __device__ void store_gates(const MixtureSegment& segment, int first) {
    constexpr int kOutputs = kTileWeightRows / 2;
    const int at = place(), token = at / kOutputs, output = at % kOutputs;
    if (token >= params_.x.rows || first + output >= segment.end) return;
    float weight = 1;
    T* row = nullptr;
    if (segment.expert == kSharedExperts) {
      row = static_cast<T*>(params_.shared_gated.data) + token * params_.shared_gated.row_stride;
    } else {
      const int slot = shared_.chosen.slot_of[segment.expert][token];
      if (slot == kNoSlot) return;
      if constexpr (kHalf == MixtureHalf::gate_up) weight = shared_.router.weights[token][slot];
      row = static_cast<T*>(params_.gated.data) +
            std::int64_t{token * params_.rule.top_k + slot} * params_.gated.row_stride;
    }
    row[first + output] = rounded<T>(weight * gated(sum_of(token, output), sum_of(token, output + kOutputs), T{}));
  }

  __device__ void store_outputs(int first, int count) {
    const int at = place(), token = at / kTileWeightRows, row = at % kTileWeightRows;
    if (token >= params_.x.rows || row >= count) return;
    const Tensor& y = params_.y;
    const std::int64_t index = token * y.row_stride + first + row;
    if (y.dtype == DType::float32)
      static_cast<float*>(y.data)[index] = sum_of(token, row);
    else
      static_cast<T*>(y.data)[index] = rounded<T>(sum_of(token, row));
  }

  const MixtureParams& params_;
  const HalfShape& shape_;
  const std::byte* slots_;
  MixtureShared<kHalf, kSlots>& shared_;
  const KernelWaits& waits_;
  RingConsumer<kSlots> at_;
  Pieces tokens_;
  int buffer_ = 0, turn_ = 0;
};

template <MixtureHalf kHalf, class T, int kTokenTiles, int kSlots>
__global__ void __launch_bounds__(kBlockThreads<kHalf>, 1)
    multiply_experts(const __grid_constant__ MixtureParams params, const __grid_constant__ HalfShape shape,
                     const __grid_constant__ KernelWaits waits) {
  extern __shared__ __align__(128) std::byte shared_bytes[];
  let_later_kernels_start();
  auto& shared = *reinterpret_cast<MixtureShared<kHalf, kSlots>*>(shared_bytes);
  const std::byte* slots = shared_bytes + sizeof shared;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  if (threadIdx.x == kMixtureThreads) {
    shared.ring.init({.producers = 1, .consumers = kMixtureWarps});
    shared.routed.init(1);
    publish_barriers();
  }
  __syncthreads();
  if (warp > kMixtureWarps) return choose_experts(params, shared);
  if (warp == kMixtureWarps) return fetch_weights<kHalf, T>(params, shape, shared_address(slots), shared, waits);
  wait_for_earlier_kernels();
  MixtureConsumer<kHalf, T, kTokenTiles, kSlots> consumer(params, shape, slots, shared, waits);
  if constexpr (kHalf == MixtureHalf::gate_up)
    consumer.multiply_gates();
  else
    consumer.multiply_down();
}

template <MixtureHalf kHalf, class T, int kTokenTiles, int kSlots>
void enqueue_half(const MixtureParams& params, const HalfShape& shape, const Lane& lane) {
  constexpr std::size_t kFixedBytes = sizeof(MixtureShared<kHalf, kSlots>);
  launch_sm90("mixture", multiply_experts<kHalf, T, kTokenTiles, kSlots>,
              {.grid = dim3(static_cast<unsigned>(lane.num_sms)),
               .block = kBlockThreads<kHalf>,
               .shared_bytes = kFixedBytes + static_cast<std::size_t>(kSlots) * shape.slot_bytes()},
              lane, params, shape, waits_of(lane.stream, "mixture"));
}

HalfShape shape_of(const WeightGroup& group, const Weight& shared, int rows_of_output) {
  const Weight& weight = group.weights[0];
  const RowPieces routed = RowPieces::of(weight.in_features), its = RowPieces::of(shared.in_features);
  return {.routed = routed,
          .shared = its,
          .outputs = static_cast<int>(weight.out_features) / rows_of_output,
          .shared_outputs = static_cast<int>(shared.out_features) / rows_of_output,
          .pitch = 2 * std::max(routed.size, its.size) + kRowPadding};
}

template <MixtureHalf kHalf, class T>
void enqueue_mixture_half(const MixtureParams& params, const HalfShape& shape, const Lane& lane) {
  static_assert(sizeof(MixtureShared<kHalf, kFewSlots>) + kFewSlots * kTileWeightRows * kLargePitch <= 227 << 10);
  static_assert(sizeof(MixtureShared<kHalf, kManySlots>) + kManySlots * kTileWeightRows * kSmallPitch <= 227 << 10);
  const bool small = shape.pitch <= kSmallPitch, few = params.x.rows <= 8;
  if (small && few) return enqueue_half<kHalf, T, 1, kManySlots>(params, shape, lane);
  if (small) return enqueue_half<kHalf, T, 2, kManySlots>(params, shape, lane);
  if (few) return enqueue_half<kHalf, T, 1, kFewSlots>(params, shape, lane);
  enqueue_half<kHalf, T, 2, kFewSlots>(params, shape, lane);
}

}  // namespace

void mixture_sm90(const MixtureParams& params, const Lane& lane) {
  with_16_bit_element(params.x.dtype, [&]<class T>() {
    enqueue_mixture_half<MixtureHalf::gate_up, T>(params, shape_of(params.gate_up, params.shared_gate_up, 2), lane);
    enqueue_mixture_half<MixtureHalf::down, T>(params, shape_of(params.down, params.shared_down, 1), lane);
  });
}

}  // namespace heddle
