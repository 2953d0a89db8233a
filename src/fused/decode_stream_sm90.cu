// decode_block on a GPU as one stream: decode_stream_plan.h says which block computes what. A warp of each block copies
// Wqkv's rows, then keys and values, then Wo's rows into a ring of shared memory, and never waits for the others: while
// blocks meet between two phases, the ring fills with what the next phase reads. Eight warps consume it.
#include <algorithm>
#include <cmath>

#include "base/dtype_switch.h"
#include "device/atomics.h"
#include "device/launch_sm90.cuh"
#include "device/mbarrier_sm90.cuh"
#include "device/tma_ring.h"
#include "fused/decode_block_sm90.h"
#include "fused/decode_stream_plan.h"
#include "fused/grid_barrier.cuh"
#include "kernels/attention/rope_sm90.cuh"
#include "kernels/sm90/convert_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernel

constexpr const char* kDecodeStream = "decode_block";
constexpr int kStreamWarps = 8, kConsumers = 32 * kStreamWarps, kStreamThreads = kConsumers + 32;
constexpr int kGridBarriers = 3;  // two barriers and the end
static_assert(kGridBarriers <= kStreamCounters);
constexpr int kRows = DecodeStreamPlan::kRowTile;
constexpr int kSegment = 1024, kOfWarp = kSegment / kStreamWarps;  // features of a stage, and of a warp
constexpr int kRowBytes = kSegment * 2 + 16;                       // so that ldmatrix uses all 32 banks
constexpr int kKeyBytes = DecodeStreamPlan::kTileElements * 2;
constexpr int kStageBytes = kRows * kRowBytes;
static_assert(kStageBytes >= 2 * kKeyBytes && kStageBytes % 128 == 0);  // keys, then values
constexpr int kMostStages = 6, kFewestStages = 2;
// Stages whose copies a block has under way at once. Two of all blocks are 8.7 MB, which keeps the memory busy for 2 us; with
// more, every load of a consumer queues behind them, and those stand between the phases.
constexpr int kMostInFlight = 2;
constexpr int kRecord = 4;  // words behind a partial attention's values: the largest score, the sum of weights
constexpr int kPad = 8;     // elements behind a row of x, for the banks

constexpr int token_tiles_of(int tokens) {
  return tokens <= 8 ? 1 : 2;
}
// Template argument for so many query heads of a KV head.
constexpr int heads_template(int group) {
  return group == 1 ? 1 : group <= 4 ? 4 : 8;
}

// Offsets in bytes.
struct StreamMemory {
  int x, sums, queries, ring;
  int stages;

  constexpr StreamMemory(const DecodeBlockShape& shape, int most_bytes)
      : x(0), sums(0), queries(0), ring(0), stages(0) {
    const int heads = heads_template(shape.group()), columns = shape.heads * shape.head_dim;
    const int widest = shape.hidden > columns ? shape.hidden : columns;
    sums = rounded_up(shape.tokens * (widest + kPad) * 2);
    const int of_rows = 2 * kStreamWarps * 8 * token_tiles_of(shape.tokens) * kRows * 4;
    const int of_heads = kStreamWarps * heads * (shape.head_dim + kRecord) * 4;
    queries = sums + rounded_up(of_rows > of_heads ? of_rows : of_heads);
    ring = queries + rounded_up((heads + 2) * shape.head_dim * 4);
    stages = ring < most_bytes ? (most_bytes - ring) / kStageBytes : 0;
    if (stages > kMostStages) stages = kMostStages;
  }
  constexpr int bytes() const { return ring + stages * kStageBytes; }
  static constexpr int rounded_up(int bytes) { return (bytes + 127) / 128 * 128; }
};
constexpr int kMostStreamBytes = 225 << 10;

struct StreamParams {
  DecodeBlockParams block;
  DecodeStreamPlan plan;
  DecodeStreamScratch scratch;
  StreamMemory memory;
  KernelWaits waits;
};

using StreamRing = TmaRing<Mbarrier, kMostStages>;

__device__ inline std::uint64_t clock_now() {
  std::uint64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
  return cycles;
}

// The warp that copies.
template <class T>
class Producer {
 public:
  __device__ Producer(const StreamParams& params, StreamRing& stages, std::uint32_t ring)
      : params_(params), stages_(stages), ring_(ring), lane_(static_cast<int>(threadIdx.x) % 32) {}

  __device__ void run() {
    const DecodeStreamPlan& plan = params_.plan;
    const int block = static_cast<int>(blockIdx.x);
    copy_rows(params_.block.qkv, plan.row_tiles(plan.qkv_rows(), block), plan.shape.hidden);
    copy_keys(block);
    copy_rows(params_.block.output, plan.row_tiles(plan.shape.hidden, block), plan.columns());
  }

 private:
  __device__ std::uint32_t begin_stage(std::uint32_t bytes) {
    stages_.wait_until_empty(at_, params_.waits);
    if (++begun_ > kMostInFlight) {
      stages_.wait_until_full(oldest_, params_.waits);
      oldest_.advance(params_.memory.stages);
    }
    if (lane_ == 0) stages_.full(at_).arrive_expecting(bytes);
    return ring_ + static_cast<std::uint32_t>(at_.slot() * kStageBytes);
  }
  __device__ std::uint32_t landed() const { return stages_.full(at_).address(); }

  __device__ void copy_rows(const Weight& weight, DecodeRange tiles, int features) {
    const T* first = static_cast<const T*>(weight.blocks[0].data) + std::int64_t{tiles.begin} * kRows * features;
    for (int tile = tiles.begin; tile < tiles.end; ++tile, first += std::int64_t{kRows} * features)
      for (int k = 0; k < features; k += kSegment) {
        const auto bytes = static_cast<std::uint32_t>(min(kSegment, features - k)) * 2;
        const std::uint32_t stage = begin_stage(kRows * bytes);
        if (lane_ == 0)
#pragma unroll 4
          for (int row = 0; row < kRows; ++row)
            copy_bytes(stage + static_cast<std::uint32_t>(row * kRowBytes), first + std::int64_t{row} * features + k,
                       bytes, landed());
        at_.advance(params_.memory.stages);
      }
  }

  __device__ void copy_keys(int block) {
    const PagedSequences& sequences = params_.block.sequences;
    const PagedKv& kv = params_.block.kv;
    const int keys = params_.plan.keys_of_tile();
    const int rows = min(keys, kv.page_size), pieces = keys / rows;  // of a page, of a tile
    const auto bytes = static_cast<std::uint32_t>(kKeyBytes / pieces);
    DecodeSegments segments(params_.plan, sequences.context_len, block);
    for (DecodeSegment of = segments.next(); of.tiles > 0; of = segments.next()) {
      const int last_page = (sequences.context_len[of.sequence] - 1) / kv.page_size;
      for (int i = 0; i < of.tiles; ++i) {
        // A lane looks up a piece's page. Behind the sequence its last page stands for others.
        const int position = (of.tile + i) * keys + min(lane_, pieces - 1) * rows;
        const int page = min(position / kv.page_size, last_page);
        const auto from = static_cast<std::int64_t>(
            kv.offset(__ldg(sequences.pages(of.sequence) + page), of.kv_head, position % kv.page_size));
        std::uint32_t to = begin_stage(2 * kKeyBytes);
        for (int piece = 0; piece < pieces; ++piece, to += bytes) {
          const std::int64_t of_piece = __shfl_sync(~0u, from, piece);
          if (lane_ != 0) continue;
          copy_bytes(to, static_cast<const T*>(kv.keys) + of_piece, bytes, landed());
          copy_bytes(to + kKeyBytes, static_cast<const T*>(kv.values) + of_piece, bytes, landed());
        }
        at_.advance(params_.memory.stages);
      }
    }
  }

  const StreamParams& params_;
  StreamRing& stages_;
  std::uint32_t ring_;
  int lane_;
  PartialRingProducer at_;
  PartialRingConsumer oldest_;  // of the stages that may still be under way
  int begun_ = 0;
};

// The eight warps that compute. kHeads: query heads of a KV head, at least as many as there are.
template <class T, int kHeadDim, int kHeads, int kTokenTiles>
class Consumers {
 public:
  __device__ Consumers(const StreamParams& params, StreamRing& stages, std::byte* memory, std::uint32_t* last)
      : params_(params),
        block_(params.block),
        plan_(params.plan),
        stages_(stages),
        x_(reinterpret_cast<T*>(memory + params.memory.x)),
        sums_(reinterpret_cast<float*>(memory + params.memory.sums)),
        queries_(reinterpret_cast<float*>(memory + params.memory.queries)),
        ring_(memory + params.memory.ring),
        last_(last),
        began_(clock_now()) {}

  __device__ void run() {
    const int block = static_cast<int>(blockIdx.x);
    wait_for_earlier_kernels();
    mark(DecodeBlockPhase::start);
    normalize(block);
    mark(DecodeBlockPhase::normalize);
    multiply(plan_.row_tiles(plan_.qkv_rows(), block), plan_.shape.hidden, [&](int token, int row, float sum) {
      if (block_.qkv.bias != nullptr) sum += block_.qkv.bias[row];
      __stcg(params_.scratch.qkv + std::int64_t{token} * plan_.qkv_rows() + row, sum);
    });
    mark(DecodeBlockPhase::project);
    grid_barrier(0);
    mark(DecodeBlockPhase::gather);
    attend(block);
    mark(DecodeBlockPhase::attend);
    grid_barrier(1);
    mark(DecodeBlockPhase::merge);
    let_later_kernels_start();
    load_attended();
    multiply(plan_.row_tiles(plan_.shape.hidden, block), plan_.columns(), [&](int token, int row, float sum) {
      if (block_.output.bias != nullptr) sum += block_.output.bias[row];
      static_cast<float*>(block_.partials.data)[std::int64_t{token} * plan_.shape.hidden + row] = sum;
    });
    mark(DecodeBlockPhase::project_out);
    if (thread() == 0) reset_grid_barriers(counter(0), kGridBarriers, num_blocks());
  }

 private:
  static constexpr int kLanes = kHeadDim / 8, kStreams = 32 / kLanes;
  static constexpr int kKeysOfTile = DecodeStreamPlan::kTileElements / kHeadDim;
  static constexpr int kKeysOfStream = kKeysOfTile / (kStreamWarps * kStreams);
  static constexpr int kStride = kHeadDim + kRecord;
  static constexpr int kSumsOfWarp = 8 * kTokenTiles * kRows;

  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ int lane() { return thread() % 32; }
  static __device__ int warp() { return thread() / 32; }
  static __device__ void sync() { sync_threads(1, kConsumers); }
  static __device__ float warp_sum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
  }
  __device__ std::uint32_t num_blocks() const {
    return static_cast<std::uint32_t>(plan_.blocks);
  }
  __device__ std::uint32_t* counter(int i) const {
    return params_.scratch.counters + i;
  }

  __device__ void mark(DecodeBlockPhase phase) const {
    if (block_.times == nullptr || thread() != 0) return;
    block_.times[static_cast<int>(blockIdx.x) * kBlockPhases + static_cast<int>(phase)] = clock_now() - began_;
  }

  // Until all blocks have come here; then each sees what the others wrote before. Not heddle::grid_barrier(): this
  // kernel waits by WaitDeadline.
  __device__ void grid_barrier(int which) const {
    sync();
    if (thread() == 0) {
      atomic_add<Order::acq_rel, Scope::gpu>(counter(which), 1);
      sm90::spin_until(params_.waits, num_blocks(), 0,
                       [&] { return atomic_load<Order::acquire, Scope::gpu>(counter(which)) >= num_blocks(); });
    }
    sync();
  }

  __device__ const std::byte* wait_for_stage() const {
    stages_.wait_until_full(at_, params_.waits);
    return ring_ + at_.slot() * kStageBytes;
  }
  __device__ void release_stage() {
    fence_async_proxy();  // orders these reads before the next TMA load into this stage
    __syncwarp();
    if (lane() == 0) stages_.empty(at_).arrive();
    at_.advance(params_.memory.stages);
  }

  __device__ float4 z(int token, int feature) const {
    float4 sum = *reinterpret_cast<const float4*>(element<float>(block_.residual, token, feature));
    for (int i = 0; i < block_.num_deltas; ++i) {
      const std::int64_t at = std::int64_t{i} * plan_.shape.tokens + token;
      float4 more;
      if (block_.deltas.dtype == DType::float32) {
        more = *reinterpret_cast<const float4*>(element<float>(block_.deltas, at, feature));
      } else {
        const uint2 raw = *reinterpret_cast<const uint2*>(element<T>(block_.deltas, at, feature));
        more = {low_element<T>(raw.x), high_element<T>(raw.x), low_element<T>(raw.y), high_element<T>(raw.y)};
      }
      sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
    }
    return sum;
  }

  // x; every block all of it. A block keeps an even share of the new residual. What a thread has of a token stays in
  // registers: behind the copies that fill the ring, a load takes microseconds.
  __device__ void normalize(int block) {
    constexpr int kHeld = 5;  // of 1024 features each
    const int hidden = plan_.shape.hidden, tokens = plan_.shape.tokens;
    const DecodeRange kept = plan_.share(static_cast<std::uint64_t>(hidden / 4), plan_.blocks, block);
    for (int t = 0; t < tokens; ++t) {
      float4 held[kHeld];
      float sum = 0;
      const auto take = [&](const float4& of, int i) {
        sum += of.x * of.x + of.y * of.y + of.z * of.z + of.w * of.w;
        if (i / 4 >= kept.begin && i / 4 < kept.end)
          *reinterpret_cast<float4*>(element<float>(block_.new_residual, t, i)) = of;
      };
      const auto feature_of = [&](int turn) { return 4 * (thread() + turn * kConsumers); };
#pragma unroll
      for (int turn = 0; turn < kHeld; ++turn)
        if (feature_of(turn) < hidden) held[turn] = z(t, feature_of(turn));
#pragma unroll
      for (int turn = 0; turn < kHeld; ++turn)
        if (feature_of(turn) < hidden) take(held[turn], feature_of(turn));
      for (int i = feature_of(kHeld); i < hidden; i += 4 * kConsumers) take(z(t, i), i);
      sum = warp_sum(sum);
      float* const sums = sums_ + t % 2 * kStreamWarps;
      if (lane() == 0) sums[warp()] = sum;
      sync();
      sum = 0;
#pragma unroll
      for (int w = 0; w < kStreamWarps; ++w) sum += sums[w];
      const float factor = 1.0f / sqrtf(sum / static_cast<float>(hidden) + block_.eps);
      const auto put = [&](const float4& of, int i) {
        const float4 norm = __ldg(reinterpret_cast<const float4*>(block_.norm + i));
        *reinterpret_cast<uint2*>(x_ + t * (hidden + kPad) + i) =
            make_uint2(pack<T>(of.x * factor * norm.x, of.y * factor * norm.y),
                       pack<T>(of.z * factor * norm.z, of.w * factor * norm.w));
      };
#pragma unroll
      for (int turn = 0; turn < kHeld; ++turn)
        if (feature_of(turn) < hidden) put(held[turn], feature_of(turn));
      for (int i = feature_of(kHeld); i < hidden; i += 4 * kConsumers) put(z(t, i), i);
    }
    sync();
  }

  __device__ void load_attended() {
    const int columns = plan_.columns(), vectors = columns / 8;
    const auto* const from = static_cast<const uint4*>(params_.scratch.attended);
    for (int i = thread(); i < plan_.shape.tokens * vectors; i += kConsumers)
      *reinterpret_cast<uint4*>(x_ + i / vectors * (columns + kPad) + i % vectors * 8) = __ldcg(from + i);
    sync();
  }

  // keep(token, row, sum) of x W^T. The warps split k; their sums are added in order.
  template <class Keep>
  __device__ void multiply(DecodeRange tiles, int features, Keep keep) {
    const int tokens = plan_.shape.tokens;
    const std::uint32_t of_lane =
        static_cast<std::uint32_t>(lane() % 16 * kRowBytes + (lane() / 16 * 8 + warp() * kOfWarp) * 2);
    const T* x[kTokenTiles];
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n)
      x[n] = x_ + (8 * n + lane() / 4) * (features + kPad) + warp() * kOfWarp + lane() % 4 * 2;
    for (int tile = tiles.begin, turn = 0; tile < tiles.end; ++tile, turn ^= 1) {
      float c[kTokenTiles][4] = {};
      for (int k = 0; k < features; k += kSegment) {
        const std::uint32_t stage = shared_address(wait_for_stage());
        const int left = features - k - warp() * kOfWarp;
        if (left > 0) {
#pragma unroll
          for (int step = 0; step < kOfWarp; step += 16) {
            if (step >= left) break;
            std::uint32_t a[4];
            load_matrices(stage + of_lane + static_cast<std::uint32_t>(step * 2), a);
#pragma unroll
            for (int n = 0; n < kTokenTiles; ++n) {
              std::uint32_t low = 0, high = 0;
              if (8 * n + lane() / 4 < tokens) {
                low = *reinterpret_cast<const std::uint32_t*>(x[n] + k + step);
                high = *reinterpret_cast<const std::uint32_t*>(x[n] + k + step + 8);
              }
              multiply_add<T>(c[n], a, low, high);
            }
          }
        }
        release_stage();
      }
      float* const sums = sums_ + turn * kStreamWarps * kSumsOfWarp;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          sums[warp() * kSumsOfWarp + (8 * n + lane() % 4 * 2 + i % 2) * kRows + i / 2 * 8 + lane() / 4] = c[n][i];
      sync();  // the other turn's sums have been read
      for (int i = thread(); i < tokens * kRows; i += kConsumers) {
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kStreamWarps; ++w) sum += sums[w * kSumsOfWarp + i];
        keep(i / kRows, tile * kRows + i % kRows, sum);
      }
    }
  }

  // A part of a row of attention: the largest score, the sum of weights, and eight elements of the weighted values.
  struct Row {
    float largest = -INFINITY, sum = 0, o[8] = {};

    __device__ void merge(int step) {  // with the stream `step` lanes away
      const float its_largest = __shfl_xor_sync(~0u, largest, step), its_sum = __shfl_xor_sync(~0u, sum, step);
      const float top = fmaxf(largest, its_largest), shift = top == -INFINITY ? 0 : top;
      const float mine = exp2_approx(largest - shift), its = exp2_approx(its_largest - shift);
      const bool low = (lane() & step) == 0;  // both add in the same order
      largest = top;
      sum = low ? fmaf(its_sum, its, sum * mine) : fmaf(sum, mine, its_sum * its);
#pragma unroll
      for (int d = 0; d < 8; ++d) {
        const float its_o = __shfl_xor_sync(~0u, o[d], step);
        o[d] = low ? fmaf(its_o, its, o[d] * mine) : fmaf(o[d], mine, its_o * its);
      }
    }
  };

  static __device__ void widen(const uint4& raw, float (&values)[8]) {
    const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) values[2 * i] = low_element<T>(words[i]), values[2 * i + 1] = high_element<T>(words[i]);
  }

  __device__ void attend(int block) {
    DecodeSegments segments(plan_, block_.sequences.context_len, block);
    for (DecodeSegment of = segments.next(); of.tiles > 0; of = segments.next()) attend_to(of, block);
  }

  __device__ void attend_to(const DecodeSegment& of, int block) {
    sync();  // the last segment's queries and sums have been read
    finish_heads(of);
    sync();
    const int first_d = lane() % kLanes * 8, stream = lane() / kLanes;
    float query[kHeads][8];
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
#pragma unroll
      for (int d = 0; d < 8; ++d) query[h][d] = queries_[h * kHeadDim + first_d + d];
    Row rows[kHeads];
    const int context = block_.sequences.context_len[of.sequence];
    for (int i = 0; i < of.tiles; ++i)
      take_tile(query, rows, (of.tile + i) * kKeysOfTile, plan_.first_key(context), context - 1);
    if (of.has_new_key && warp() == 0) take_new_key(query, rows, stream == 0);
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int step = kLanes; step < 32; step *= 2) rows[h].merge(step);
      float* const mine = sums_ + (warp() * kHeads + h) * kStride;
      if (lane() >= kLanes) continue;
#pragma unroll
      for (int d = 0; d < 8; ++d) mine[first_d + d] = rows[h].o[d];
      if (lane() == 0) mine[kHeadDim] = rows[h].largest, mine[kHeadDim + 1] = rows[h].sum;
    }
    sync();
    leave(of, block);
  }

  // The keys of a tile that lie in [first, end).
  __device__ void take_tile(const float (&query)[kHeads][8], Row (&rows)[kHeads], int position, int first, int end) {
    const int of_lane = (warp() * kStreams + lane() / kLanes) * kHeadDim * 2 + lane() % kLanes * 16;
    constexpr int kStep = kStreamWarps * kStreams;  // keys
    const auto is_there = [&](int u) {
      const int at = position + u * kStep + warp() * kStreams + lane() / kLanes;
      return at >= first && at < end;
    };
    float weight[kHeads][kKeysOfStream];
    const std::byte* const stage = wait_for_stage();
#pragma unroll
    for (int u = 0; u < kKeysOfStream; ++u) {
      float key[8];
      widen(*reinterpret_cast<const uint4*>(stage + u * kStep * kHeadDim * 2 + of_lane), key);
      const bool there = is_there(u);
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        float score = 0;
#pragma unroll
        for (int d = 0; d < 8; ++d) score = fmaf(query[h][d], key[d], score);
#pragma unroll
        for (int step = 1; step < kLanes; step *= 2) score += __shfl_xor_sync(~0u, score, step);
        weight[h][u] = there ? score : -INFINITY;
      }
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float top = rows[h].largest;
#pragma unroll
      for (int u = 0; u < kKeysOfStream; ++u) top = fmaxf(top, weight[h][u]);
      const float shift = top == -INFINITY ? 0 : top, correction = exp2_approx(rows[h].largest - shift);
      rows[h].largest = top;
      rows[h].sum *= correction;
#pragma unroll
      for (int u = 0; u < kKeysOfStream; ++u) {
        weight[h][u] = exp2_approx(weight[h][u] - shift);
        rows[h].sum += weight[h][u];
      }
#pragma unroll
      for (int d = 0; d < 8; ++d) rows[h].o[d] *= correction;
    }
#pragma unroll
    for (int u = 0; u < kKeysOfStream; ++u) {
      if (!is_there(u)) continue;  // anything may lie there, NaN too
      float value[8];
      widen(*reinterpret_cast<const uint4*>(stage + kKeyBytes + u * kStep * kHeadDim * 2 + of_lane), value);
#pragma unroll
      for (int h = 0; h < kHeads; ++h)
#pragma unroll
        for (int d = 0; d < 8; ++d) rows[h].o[d] = fmaf(weight[h][u], value[d], rows[h].o[d]);
    }
    release_stage();
  }

  // A whole warp; the stream for which `mine` holds takes it.
  __device__ void take_new_key(const float (&query)[kHeads][8], Row (&rows)[kHeads], bool mine) {
    const float *const key = queries_ + kHeads * kHeadDim + lane() % kLanes * 8, *const value = key + kHeadDim;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      float score = 0;
#pragma unroll
      for (int d = 0; d < 8; ++d) score = fmaf(query[h][d], key[d], score);
#pragma unroll
      for (int step = 1; step < kLanes; step *= 2) score += __shfl_xor_sync(~0u, score, step);
      if (!mine) continue;
      const float top = fmaxf(rows[h].largest, score), correction = exp2_approx(rows[h].largest - top);
      const float weight = exp2_approx(score - top);
      rows[h].largest = top;
      rows[h].sum = fmaf(rows[h].sum, correction, weight);
#pragma unroll
      for (int d = 0; d < 8; ++d) rows[h].o[d] = fmaf(weight, value[d], rows[h].o[d] * correction);
    }
  }

  // The item's queries, normalised, rotated and scaled; with the new key also this and its value, which go to the cache.
  // A warp a head.
  __device__ void finish_heads(const DecodeSegment& of) const {
    constexpr int kHalf = kHeadDim / 2, kTurns = kHalf / 32;
    const int group = plan_.shape.group(), token = of.sequence;
    const float* const qkv = params_.scratch.qkv + std::int64_t{token} * plan_.qkv_rows();
    for (int head = warp(); head < kHeads + 2; head += kStreamWarps) {
      float* const to = queries_ + head * kHeadDim;
      const bool is_query = head < kHeads;
      if (is_query ? head >= group : !of.has_new_key) {
        for (int d = lane(); d < kHeadDim; d += 32) to[d] = 0;
        continue;
      }
      const int row = is_query ? of.kv_head * group + head
                               : plan_.shape.heads + (head - kHeads) * plan_.shape.kv_heads + of.kv_head;
      float low[kTurns], high[kTurns];
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        low[i] = __ldcg(qkv + row * kHeadDim + lane() + 32 * i);
        high[i] = __ldcg(qkv + row * kHeadDim + lane() + 32 * i + kHalf);
      }
      const float* const norm = is_query ? block_.query_norm : head == kHeads ? block_.key_norm : nullptr;
      if (norm != nullptr) {
        float sum = 0;
#pragma unroll
        for (int i = 0; i < kTurns; ++i) sum += low[i] * low[i] + high[i] * high[i];
        const float factor = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(kHeadDim) + block_.eps);
#pragma unroll
        for (int i = 0; i < kTurns; ++i) {
          low[i] *= factor * norm[lane() + 32 * i];
          high[i] *= factor * norm[lane() + 32 * i + kHalf];
        }
      }
      T* slot = nullptr;
      if (!is_query) {
        const int position = block_.sequences.context_len[token] - 1, page_size = block_.kv.page_size;
        slot = static_cast<T*>(head == kHeads ? block_.kv.keys : block_.kv.values) +
               block_.kv.offset(__ldg(block_.sequences.pages(token) + position / page_size), of.kv_head,
                                position % page_size);
      }
      const float scale = is_query ? block_.scale * 1.44269504f : 1;
#pragma unroll
      for (int i = 0; i < kTurns; ++i) {
        const int d = lane() + 32 * i;
        if (head <= kHeads)
          rotate_pair(rotation_of(block_.positions[token], block_.inv_freq[d], block_.rope_scale), low[i], high[i]);
        const T low_there = rounded<T>(low[i]), high_there = rounded<T>(high[i]);
        to[d] = widened(low_there) * scale, to[d + kHalf] = widened(high_there) * scale;
        if (slot != nullptr) slot[d] = low_there, slot[d + kHalf] = high_there;
      }
    }
  }

  // What the warps have of a segment, put together: the attended vector of a whole item, or else a part of it.
  __device__ void leave(const DecodeSegment& of, int block) {
    const int group = plan_.shape.group();
    const bool whole = of.num_blocks() == 1;
    float* const part = part_of_block(block, of);
    for (int i = thread(); i < group * kHeadDim; i += kConsumers) {
      const int h = i / kHeadDim, d = i % kHeadDim;
      const Merged merged = merge(kStreamWarps, d, [&](int w) { return sums_ + (w * kHeads + h) * kStride; });
      if (whole) {
        attended(of, h)[d] = rounded<T>(merged.value / merged.sum);
        continue;
      }
      __stcg(part + h * kStride + d, merged.value);
      if (d == 0)
        __stcg(part + h * kStride + kHeadDim, merged.largest), __stcg(part + h * kStride + kHeadDim + 1, merged.sum);
    }
    if (whole) return;
    std::uint32_t* const arrivals = counter(kStreamCounters + of.sequence * plan_.shape.kv_heads + of.kv_head);
    sync();
    if (thread() == 0) *last_ = atomic_add<Order::acq_rel, Scope::gpu>(arrivals, 1) + 1;
    sync();
    if (static_cast<int>(*last_) != of.num_blocks()) return;
    for (int i = thread(); i < group * kHeadDim; i += kConsumers) {
      const int h = i / kHeadDim, d = i % kHeadDim;
      const Merged merged =
          merge(of.num_blocks(), d, [&](int b) { return part_of_block(of.first_block + b, of) + h * kStride; });
      attended(of, h)[d] = rounded<T>(merged.value / merged.sum);
    }
    if (thread() == 0) atomic_store<Order::relaxed, Scope::gpu>(arrivals, 0);
  }

  struct Merged {
    float value, largest, sum;
  };
  // Element d of `count` records, in order. Some record has keys.
  template <class RecordOf>
  static __device__ Merged merge(int count, int d, RecordOf record_of) {
    float largest = -INFINITY, sum = 0, value = 0;
    for (int i = 0; i < count; ++i) largest = fmaxf(largest, load(record_of(i) + kHeadDim));
    const float shift = largest == -INFINITY ? 0 : largest;
    for (int i = 0; i < count; ++i) {
      const float weight = exp2_approx(load(record_of(i) + kHeadDim) - shift);
      sum = fmaf(weight, load(record_of(i) + kHeadDim + 1), sum);
      value = fmaf(weight, load(record_of(i) + d), value);
    }
    return {value, largest, sum};
  }
  // Of shared memory, or what other SMs have written.
  static __device__ float load(const float* from) {
    return *static_cast<const volatile float*>(from);
  }

  __device__ float* part_of_block(int block, const DecodeSegment& of) const {
    return params_.scratch.parts +
           std::int64_t{2 * block + DecodeSegment::slot_of(block, of.first_block)} * plan_.shape.group() * kStride;
  }
  __device__ T* attended(const DecodeSegment& of, int head) const {
    return static_cast<T*>(params_.scratch.attended) +
           (std::int64_t{of.sequence} * plan_.shape.heads + of.kv_head * plan_.shape.group() + head) * kHeadDim;
  }

  const StreamParams& params_;
  const DecodeBlockParams& block_;
  const DecodeStreamPlan& plan_;
  StreamRing& stages_;
  T* x_;            // [tokens][features + kPad]
  float* sums_;     // of warps
  float* queries_;  // [kHeads + 2][kHeadDim]: queries, the new key, its value
  std::byte* ring_;
  std::uint32_t* last_;
  std::uint64_t began_;
  PartialRingConsumer at_;
};

template <class T, int kHeadDim, int kHeads, int kTokenTiles>
__global__ void __launch_bounds__(kStreamThreads, 1) decode_stream_kernel(const __grid_constant__ StreamParams params) {
  extern __shared__ __align__(128) std::byte decode_stream_memory[];
  __shared__ StreamRing stages;
  __shared__ std::uint32_t last;
  if (threadIdx.x == 0) {
    stages.init({.producers = 1, .consumers = kStreamWarps});
    publish_barriers();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    Producer<T>(params, stages, shared_address(decode_stream_memory + params.memory.ring)).run();
    wait_for_earlier_kernels();
  } else {
    Consumers<T, kHeadDim, kHeads, kTokenTiles>(params, stages, decode_stream_memory, &last).run();
  }
}

LaunchShape launch_of(const StreamParams& params) {
  return {.grid = dim3(static_cast<unsigned>(params.plan.blocks)),
          .block = dim3(kStreamThreads),
          .shared_bytes = static_cast<std::size_t>(params.memory.bytes()),
          .fit = GridFit::resident};
}

template <class T, int kHeadDim, class F>
auto with_heads(const DecodeBlockShape& shape, const F& f) {
  const auto with_tokens = [&]<int kHeads>() {
    return token_tiles_of(shape.tokens) == 1 ? f(decode_stream_kernel<T, kHeadDim, kHeads, 1>)
                                             : f(decode_stream_kernel<T, kHeadDim, kHeads, 2>);
  };
  switch (heads_template(shape.group())) {
    case 1:
      return with_tokens.template operator()<1>();
    case 4:
      return with_tokens.template operator()<4>();
    default:
      return with_tokens.template operator()<8>();
  }
}

}  // namespace

std::string why_not_streamed_sm90(const DecodeBlockShape& shape, DType weights) {
  if (weights == DType::float32) return "weights are float32, the fused block takes bfloat16 and float16";
  if (shape.head_dim != 64 && shape.head_dim != 128)
    return fmt::format("head_dim is {}, the fused block takes 64 and 128", shape.head_dim);
  if (shape.hidden % 16 != 0) return fmt::format("hidden size {} is not a multiple of 16", shape.hidden);
  if (shape.group() > 8) return fmt::format("{} query heads share keys, the fused block takes up to 8", shape.group());
  const int keys = DecodeStreamPlan::kTileElements / shape.head_dim;
  if (shape.page_size % keys != 0 && (keys % shape.page_size != 0 || keys / shape.page_size > 32))
    return fmt::format("pages of {} tokens do not divide tiles of {} keys", shape.page_size, keys);
  if (StreamMemory(shape, kMostStreamBytes).stages < kFewestStages)
    return fmt::format("{} tokens of hidden size {} leave too little shared memory for the weights", shape.tokens,
                       shape.hidden);
  return {};
}

void decode_stream_sm90(const DecodeBlockParams& params, const Lane& lane) {
  const DecodeBlockShape shape = shape_of(params);
  const StreamParams all{.block = params,
                         .plan = {.shape = shape, .blocks = shape.mapping.streamed_blocks, .window = params.window},
                         .scratch = stream_scratch_of(params),
                         .memory = StreamMemory(shape, kMostStreamBytes),
                         .waits = waits_of(lane.stream, "decode_block")};
  with_16_bit_element(params.qkv.dtype, [&]<class T>() {
    const auto launch = [&](auto kernel) { launch_sm90(kDecodeStream, kernel, launch_of(all), lane, all); };
    return shape.head_dim == 128 ? with_heads<T, 128>(shape, launch) : with_heads<T, 64>(shape, launch);
  });
}

}  // namespace heddle
