// decode_block on a GPU: a cluster of thread blocks for each unit (decode_block_plan.h), of eight warps a block.
//
// Weights of both projections stream through one ring in shared memory, by cp.async: each warp copies what it alone reads,
// so that no barrier is needed, and goes on with Wo's while blocks talk to each other. They are multiplied by mma.sync, as
// in kernels/linear/linear_sm90_stream.cuh: up to eight tokens cost the same as one. What the ring has no room for is
// prefetched to the L2 cache meanwhile.
//
// In attention some lanes have a key to themselves, head_dim / 8 of them: a stream, with a softmax of its own for each
// query head. Streams are merged at the end of a token, then the warps, then the blocks.
#include "fused/decode_block_sm90.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/dtype_switch.h"
#include "device/bulk_stores_sm90.cuh"
#include "device/cluster/cluster_sm90.cuh"
#include "device/launch_sm90.cuh"
#include "fused/block_rows_sm90.cuh"
#include "fused/decode_block_body.cuh"
#include "kernels/attention/rope_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernel

constexpr const char* kDecodeBlock = "decode_block";
constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kMostUnitHeads = 4;
constexpr int kTile = DecodeBlockShape::kRowTile;      // rows
constexpr int kChunk = 64;                             // features: lines of 128 bytes
constexpr int kStepVectors = kTile * kChunk * 2 / 16;  // that a warp copies and multiplies at a time

// By tokens: more of them need more shared memory for x and for sums.
template <int kTokenTiles>
struct RingShape {
  static constexpr int kDepth = kTokenTiles == 1 ? 5 : 2;     // steps
  static constexpr int kRowTiles = kTokenTiles == 1 ? 8 : 4;  // of Wqkv whose sums lie in registers
  static constexpr int kRowStride = kRowTiles * kTile + 4;    // of sums: a warp's stores use all 32 banks
  static constexpr int kRingVectors = kDepth * kWarps * kStepVectors;
};

// Of the kernel's own region: sums of warps of projections, or sums of warps of attention; and the ring.
template <int kTokenTiles>
constexpr int sums_vectors(const DecodeBlockShape& shape) {
  const int heads = shape.most_heads() == 1 ? 1 : kMostUnitHeads;
  const int floats = std::max({kWarps * shape.tokens * RingShape<kTokenTiles>::kRowStride,
                               kWarps * heads * (shape.head_dim + DecodeBlockMemory::kMergeWords),
                               kWarps * static_cast<int>(kMostBlockTokens)});
  return (floats + 3) / 4;
}
template <int kTokenTiles>
constexpr int work_vectors(const DecodeBlockShape& shape) {
  return sums_vectors<kTokenTiles>(shape) + RingShape<kTokenTiles>::kRingVectors;
}

struct KernelParams {
  DecodeBlockParams block;
  DecodeBlockShape shape;
  UnitOutputs scratch;
  Vector16* exchanged;
  int sums_vectors;
  int page_shift;  // page_size is 2^page_shift; negative: it is no power of two
  KernelWaits waits;
};

__device__ inline std::uint64_t now_cycles() {
  std::uint64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
  return cycles;
}

template <class T>
__device__ inline void widen_eight(const uint4& raw, float (&values)[8]) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) values[2 * i] = low_element<T>(words[i]), values[2 * i + 1] = high_element<T>(words[i]);
}

template <class T, int kTokenTiles>
class Work {
 public:
  using Ring = RingShape<kTokenTiles>;

  __device__ Work(const KernelParams& params, const ClusterBlock& team, int unit, float* work)
      : block_(params.block),
        shape_(params.shape),
        team_(team),
        unit_(unit),
        page_shift_(params.page_shift),
        kv_head_(shape_.kv_head(unit)),
        heads_(shape_.heads_of(unit)),
        rows_(shape_.rows_of(unit, team.block())),
        work_(work),
        my_ring_(reinterpret_cast<uint4*>(work) + params.sums_vectors +
                 static_cast<int>(threadIdx.x) / 32 * kStepVectors),
        began_(now_cycles()) {
    const DecodeRange output_rows = shape_.output_rows_of(team_.block());
    next_ = {.tiles = rows_.count() / kTile, .chunks = (shape_.hidden / kChunk - warp() + kWarps - 1) / kWarps};
    output_tiles_ = {output_rows.begin / kTile, output_rows.end / kTile};
    if (next_.tiles == 0 || next_.chunks == 0) begin_output();
  }

  __device__ void mark(DecodeBlockPhase phase) const {
    if (block_.times == nullptr || threadIdx.x != 0) return;
    block_.times[static_cast<int>(blockIdx.x) * kBlockPhases + static_cast<int>(phase)] = now_cycles() - began_;
  }

  // Fills the ring: weights, which no kernel writes.
  __device__ void begin() {
    for (int step = 0; step < Ring::kDepth; ++step) copy_next();
  }

  static __device__ float exp2(float x) { return exp2_approx(x); }
  static __device__ T rounded(float x) { return sm90::rounded<T>(x); }
  static __device__ float load_shared(const float* from) { return __ldcg(from); }

  __device__ void sum_squares(float* sums) const {
    const DecodeRange features = shape_.features_of(team_.block());
    for (int t = 0; t < shape_.tokens; ++t) {
      float sum = 0;
      for (int i = features.begin + 4 * static_cast<int>(threadIdx.x); i < features.end; i += 4 * kThreads) {
        const float4 of = z(t, i);
        sum += of.x * of.x + of.y * of.y + of.z * of.z + of.w * of.w;
        if (unit_ == 0 && i / shape_.slice() == team_.block())
          *reinterpret_cast<float4*>(element<float>(block_.new_residual, t, i)) = of;
      }
      sum = warp_sum(sum);
      if (lane() == 0) work_[warp() * kMostBlockTokens + t] = sum;
    }
    __syncthreads();
    if (const int t = static_cast<int>(threadIdx.x); t < shape_.tokens) {
      float sum = 0;
      for (int w = 0; w < kWarps; ++w) sum += work_[w * kMostBlockTokens + t];
      sums[t] = sum;
    }
  }

  // sums [parts][stride]; x [cluster][tokens][slice], of which it writes its features.
  __device__ void normalize(const float* sums, int parts, int stride, T* x) const {
    const DecodeRange features = shape_.features_of(team_.block());
    const int slice = shape_.slice();
    for (int t = 0; t < shape_.tokens; ++t) {
      float sum = 0;
      for (int part = 0; part < parts; ++part) sum += sums[part * stride + t];
      const float factor = 1.0f / sqrtf(sum / static_cast<float>(shape_.hidden) + block_.eps);
      for (int i = features.begin + 4 * static_cast<int>(threadIdx.x); i < features.end; i += 4 * kThreads) {
        const float4 of = z(t, i);
        const float4 norm = *reinterpret_cast<const float4*>(block_.norm + i);
        *reinterpret_cast<uint2*>(x + (i / slice * shape_.tokens + t) * slice + i % slice) =
            make_uint2(pack<T>(of.x * factor * norm.x, of.y * factor * norm.y),
                       pack<T>(of.z * factor * norm.z, of.w * factor * norm.w));
      }
    }
  }

  // The warps split k; their sums are added in order.
  __device__ void project(const T* x, float* out) {
    const int tiles = rows_.count() / kTile, slice = shape_.slice(), stride = shape_.block_rows();
    const int row_of_lane = lane() / 4, piece = lane() % 4 * 8;
    for (int first = 0; first < tiles; first += Ring::kRowTiles) {
      float c[Ring::kRowTiles][kTokenTiles][4] = {};
      for (int k = warp() * kChunk; k < shape_.hidden; k += kWarps * kChunk) {
        uint4 pieces[2][kTokenTiles];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int feature = k + 32 * half + piece, owner = feature / slice;
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n) {
            const int token = 8 * n + row_of_lane;
            pieces[half][n] = make_uint4(0, 0, 0, 0);
            if (token < shape_.tokens)
              pieces[half][n] = *reinterpret_cast<const uint4*>(x + (owner * shape_.tokens + token) * slice + feature -
                                                                owner * slice);
          }
        }
#pragma unroll
        for (int m = 0; m < Ring::kRowTiles; ++m)
          if (first + m < tiles) multiply_step(c[m], pieces);
      }
      if (first > 0) __syncthreads();  // the last sums have been read
      float* const mine = work_ + warp() * shape_.tokens * Ring::kRowStride;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = n * 8 + lane() % 4 * 2 + i % 2;
          if (token >= shape_.tokens) continue;
#pragma unroll
          for (int m = 0; m < Ring::kRowTiles; ++m)
            mine[token * Ring::kRowStride + m * kTile + i / 2 * 8 + row_of_lane] = c[m][n][i];
        }
      __syncthreads();
      const int here = min(Ring::kRowTiles, tiles - first) * kTile;
      for (int i = static_cast<int>(threadIdx.x); i < shape_.tokens * here; i += kThreads) {
        const int token = i / here, row = i % here;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kWarps; ++w) sum += work_[(w * shape_.tokens + token) * Ring::kRowStride + row];
        const int of_block = first * kTile + row;
        if (block_.qkv.bias != nullptr) sum += block_.qkv.bias[shape_.qkv_row(unit_, rows_.begin + of_block)];
        out[token * stride + of_block] = sum;
      }
    }
    if (shape_.mapping.prefetch == DecodePrefetch::none) return;
    prefetch_first_keys();
    prefetch_output_weights();
  }

  // A warp a head.
  __device__ void finish_heads(const float* qkv, float* heads) const {
    const int dim = shape_.head_dim, half = dim / 2, rows = shape_.block_rows(), count = heads_.count();
    const auto at = [&](int token, int row) { return qkv[(row / rows * shape_.tokens + token) * rows + row % rows]; };
    for (int item = warp(); item < shape_.tokens * (count + 2); item += kWarps) {
      const int token = item / (count + 2), head = item % (count + 2);
      float* const to = heads + (token * (shape_.most_heads() + 2) + head) * dim;
      float low[2], high[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int d = min(lane() + 32 * i, half - 1);
        low[i] = at(token, head * dim + d), high[i] = at(token, head * dim + d + half);
      }
      const float* const norm = head < count ? block_.query_norm : head == count ? block_.key_norm : nullptr;
      if (norm != nullptr) {
        float sum = low[0] * low[0] + high[0] * high[0];
        if (half > 32) sum += low[1] * low[1] + high[1] * high[1];
        const float factor = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(dim) + block_.eps);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int d = min(lane() + 32 * i, half - 1);
          low[i] *= factor * norm[d], high[i] *= factor * norm[d + half];
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int d = lane() + 32 * i;
        if (d >= half) continue;
        if (head <= count)
          rotate_pair(rotation_of(block_.positions[token], block_.inv_freq[d], block_.rope_scale), low[i], high[i]);
        const T low_there = rounded(low[i]), high_there = rounded(high[i]);
        to[d] = widened(low_there), to[d + half] = widened(high_there);
        if (head >= count && team_.block() == 0 && shape_.writes_cache(unit_)) {
          void* const pages = head == count ? block_.kv.keys : block_.kv.values;
          T* const slot = static_cast<T*>(pages) + slot_of_key(token, block_.sequences.context_len[token] - 1);
          slot[d] = low_there, slot[d + half] = high_there;
        }
      }
    }
  }

  __device__ void attend(const float* heads, float* merge) const {
    if (shape_.head_dim == 128)
      heads_.count() == 1 ? attend<128, 1, 8>(heads, merge) : attend<128, kMostUnitHeads, 2>(heads, merge);
    else
      heads_.count() == 1 ? attend<64, 1, 8>(heads, merge) : attend<64, kMostUnitHeads, 2>(heads, merge);
    let_later_kernels_start();
  }

  // A warp has tiles of 16 rows of Wo to itself, and all of the unit's columns.
  __device__ void project_out(const T* attended, float* to) {
    const int columns = heads_.count() * shape_.head_dim, stride = shape_.most_heads() * shape_.head_dim;
    const int row_of_lane = lane() / 4, piece = lane() % 4 * 8;
    for (int tile = output_tiles_.begin + warp(); tile < output_tiles_.end; tile += kWarps) {
      float c[kTokenTiles][4] = {};
      for (int k = 0; k < columns; k += kChunk) {
        uint4 pieces[2][kTokenTiles];
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int n = 0; n < kTokenTiles; ++n) {
            const int token = 8 * n + row_of_lane;
            pieces[half][n] = make_uint4(0, 0, 0, 0);
            if (token < shape_.tokens)
              pieces[half][n] = *reinterpret_cast<const uint4*>(attended + token * stride + k + 32 * half + piece);
          }
        multiply_step(c, pieces);
      }
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = n * 8 + lane() % 4 * 2 + i % 2, row = tile * kTile + i / 2 * 8 + row_of_lane;
          if (token >= shape_.tokens) continue;
          const float bias = unit_ == 0 && block_.output.bias != nullptr ? block_.output.bias[row] : 0;
          to[std::int64_t{token} * shape_.hidden + row] = c[n][i] + bias;
        }
    }
    wait_for_groups<0>();
  }

 private:
  // Which weights a warp copies next: of Wqkv tile by tile of a few, chunk by chunk; then of Wo chunk by chunk.
  struct Cursor {
    int tiles = 0, chunks = 0;  // of Wqkv, of this warp
    int first = 0, tile = 0, chunk = 0;
    bool of_output = false;
  };

  __device__ void begin_output() {
    next_.of_output = true;
    next_.tile = output_tiles_.begin + warp();
    next_.chunk = 0;
  }

  // The next step's weights go to the slot after the last one's; the halves of every second row are swapped, so that the
  // four pieces of two neighbouring rows that eight lanes read at once lie in different banks.
  __device__ void copy_next() {
    const T* from = nullptr;
    std::int64_t four_rows = 0;
    const int row = lane() / 8, piece = lane() % 8;
    if (!next_.of_output) {
      from = qkv_row(rows_.begin + (next_.first + next_.tile) * kTile) + (warp() + kWarps * next_.chunk) * kChunk;
      from += std::int64_t{row} * shape_.hidden + piece * 8;
      four_rows = std::int64_t{4} * shape_.hidden;
      const int here = min(Ring::kRowTiles, next_.tiles - next_.first);
      if (++next_.tile == here) {
        next_.tile = 0;
        if (++next_.chunk == next_.chunks) {
          next_.chunk = 0;
          next_.first += Ring::kRowTiles;
          if (next_.first >= next_.tiles) begin_output();
        }
      }
    } else if (next_.tile < output_tiles_.end) {
      const std::int64_t row_elements = std::int64_t{shape_.heads} * shape_.head_dim;
      from = output_row(next_.tile * kTile) + next_.chunk * kChunk + row * row_elements + piece * 8;
      four_rows = 4 * row_elements;
      if (++next_.chunk == heads_.count() * shape_.head_dim / kChunk) {
        next_.chunk = 0;
        next_.tile += kWarps;
      }
    }
    if (from != nullptr) {
      const std::uint32_t to =
          shared_address(my_ring_ + filled_ * (kWarps * kStepVectors) + row * 8 + (piece ^ row % 2 * 4));
#pragma unroll
      for (int i = 0; i < 4; ++i) copy_once(to + i * 512, from + i * four_rows);
    }
    end_group();
    filled_ = filled_ + 1 == Ring::kDepth ? 0 : filled_ + 1;
  }

  // c += the next step's weights times x, whose features the lane has in `pieces`.
  __device__ void multiply_step(float (&c)[kTokenTiles][4], const uint4 (&pieces)[2][kTokenTiles]) {
    wait_for_groups<Ring::kDepth - 1>();
    __syncwarp();  // makes the other lanes' copies visible
    const int row = lane() / 4;
    const uint4* const rows = my_ring_ + filled_ * (kWarps * kStepVectors) + row * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int piece = (half * 4 + lane() % 4) ^ row % 2 * 4;
      const uint4 low = rows[piece], high = rows[64 + piece];
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) multiply_add_packs<T>(c[n], low, high, pieces[half][n]);
    }
    __syncwarp();  // all lanes have read, so the slot may be overwritten
    copy_next();
  }

  static __device__ int lane() {
    return static_cast<int>(threadIdx.x) % 32;
  }
  static __device__ int warp() {
    return static_cast<int>(threadIdx.x) / 32;
  }
  static __device__ float warp_sum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
  }

  __device__ int first_feature() const {
    return team_.block() * shape_.slice();
  }

  // As DecodeBlockShape::qkv_row, without divisions: a step asks for one.
  __device__ const T* qkv_row(int row) const {
    const int of_heads = heads_.count() * shape_.head_dim, of_kind = row - of_heads;
    int of_weight = heads_.begin * shape_.head_dim + row;
    if (of_kind >= shape_.head_dim)
      of_weight = (shape_.heads + shape_.kv_heads + kv_head_ - 1) * shape_.head_dim + of_kind;
    else if (of_kind >= 0)
      of_weight = (shape_.heads + kv_head_) * shape_.head_dim + of_kind;
    return static_cast<const T*>(block_.qkv.blocks[0].data) + std::int64_t{of_weight} * shape_.hidden;
  }
  // The unit's columns of a row.
  __device__ const T* output_row(int row) const {
    return static_cast<const T*>(block_.output.blocks[0].data) +
           (std::int64_t{row} * shape_.heads + heads_.begin) * shape_.head_dim;
  }

  // As many as a few loads of all streams take; a thread a key.
  __device__ void prefetch_first_keys() const {
    for (int t = 0; t < shape_.tokens; ++t) {
      const DecodeRange keys = keys_of(t);
      const int position = keys.begin + static_cast<int>(threadIdx.x);
      if (position >= keys.end) continue;
      const std::int64_t slot = slot_of_key(t, position);
      const auto bytes = static_cast<std::uint32_t>(shape_.head_dim) * 2;
      prefetch_bytes(static_cast<const T*>(block_.kv.keys) + slot, bytes);
      prefetch_bytes(static_cast<const T*>(block_.kv.values) + slot, bytes);
    }
  }

  // The older keys of a token that are this block's.
  __device__ DecodeRange keys_of(int token) const {
    const int newest = block_.sequences.context_len[token] - 1;
    const int first = block_.window > 0 ? max(0, newest + 1 - block_.window) : 0;
    return shape_.keys_of(first, newest - first, team_.block());
  }

  __device__ void prefetch_output_weights() const {
    const DecodeRange rows = shape_.output_rows_of(team_.block());
    for (int row = rows.begin + static_cast<int>(threadIdx.x); row < rows.end; row += kThreads)
      prefetch_bytes(output_row(row), static_cast<std::uint32_t>(heads_.count() * shape_.head_dim) * 2);
  }

  __device__ float4 z(int token, int feature) const {
    return pending_sum<T>(block_.residual, block_.deltas, block_.num_deltas, token, feature);
  }

  __device__ int page_index(int position) const {
    return page_shift_ >= 0 ? position >> page_shift_ : position / block_.kv.page_size;
  }
  // Of a key in that page.
  __device__ std::int64_t slot_in_page(std::int64_t page, int position) const {
    const PagedKv& kv = block_.kv;
    const int in_page = page_shift_ >= 0 ? position & (kv.page_size - 1) : position % kv.page_size;
    return ((page * kv.num_kv_heads + kv_head_) * kv.page_size + in_page) * kv.head_dim;
  }
  __device__ std::int64_t slot_of_key(int token, int position) const {
    return slot_in_page(__ldg(block_.sequences.pages(token) + page_index(position)), position);
  }

  // A stream's part of a row: the largest score, the sum of weights, and eight elements of the weighted values.
  struct Row {
    float largest = -INFINITY, sum = 0, o[8] = {};

    __device__ void add(float score, const float (&value)[8]) {
      const float top = fmaxf(largest, score), shift = top == -INFINITY ? 0 : top;
      const float correction = exp2_approx(largest - shift), weight = exp2_approx(score - shift);
      largest = top;
      sum = fmaf(sum, correction, weight);
#pragma unroll
      for (int d = 0; d < 8; ++d) o[d] = fmaf(weight, value[d], o[d] * correction);
    }
    // The stream `step` lanes away.
    __device__ void merge(int step) {
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

  // kKeys: keys whose loads a stream has in flight.
  template <int kHeadDim, int kHeads, int kKeys>
  __device__ void attend(const float* heads, float* merge) const {
    constexpr int kLanes = kHeadDim / 8, kStreams = 32 / kLanes, kAll = kWarps * kStreams;
    constexpr int kRecord = kHeadDim + DecodeBlockMemory::kMergeWords;
    const int stream = warp() * kStreams + lane() / kLanes, first_d = lane() % kLanes * 8, count = heads_.count();
    for (int t = 0; t < shape_.tokens; ++t) {
      const float* const of_token = heads + t * (shape_.most_heads() + 2) * kHeadDim + first_d;
      float query[kHeads][8];
      const float scale = block_.scale * 1.44269504f;
#pragma unroll
      for (int h = 0; h < kHeads; ++h)
#pragma unroll
        for (int d = 0; d < 8; ++d) query[h][d] = of_token[min(h, count - 1) * kHeadDim + d] * scale;
      Row rows[kHeads];
      const auto take = [&](bool there, const float(&key)[8], const float(&value)[8]) {
#pragma unroll
        for (int h = 0; h < kHeads; ++h) {
          float score = 0;
#pragma unroll
          for (int d = 0; d < 8; ++d) score = fmaf(query[h][d], key[d], score);
#pragma unroll
          for (int step = 1; step < kLanes; step *= 2) score += __shfl_xor_sync(~0u, score, step);
          rows[h].add(there ? score : -INFINITY, value);
        }
      };

      const DecodeRange keys = keys_of(t);
      const std::int32_t* const pages = block_.sequences.pages(t);
      for (int base = keys.begin; base < keys.end; base += kKeys * kAll) {  // the same in all lanes
        // The last key stands for those that are not there, so that all loads are in flight together.
        const auto position_of = [&](int u) { return min(base + u * kAll + stream, keys.end - 1); };
        std::int32_t page[kKeys];
#pragma unroll
        for (int u = 0; u < kKeys; ++u) page[u] = __ldg(pages + page_index(position_of(u)));
        uint4 key[kKeys], value[kKeys];
#pragma unroll
        for (int u = 0; u < kKeys; ++u) {
          const std::int64_t slot = slot_in_page(page[u], position_of(u)) + first_d;
          key[u] = load_once(static_cast<const T*>(block_.kv.keys) + slot);
          value[u] = load_once(static_cast<const T*>(block_.kv.values) + slot);
        }
#pragma unroll
        for (int u = 0; u < kKeys; ++u) {
          float wide_key[8], wide_value[8];
          widen_eight<T>(key[u], wide_key);
          widen_eight<T>(value[u], wide_value);
          take(base + u * kAll + stream < keys.end, wide_key, wide_value);
        }
      }
      if (warp() == 0 && team_.block() == team_.blocks() - 1) {  // the new key
        float key[8], value[8];
#pragma unroll
        for (int d = 0; d < 8; ++d) {
          key[d] = of_token[count * kHeadDim + d];
          value[d] = of_token[(count + 1) * kHeadDim + d];
        }
        take(stream == 0, key, value);
      }

      if (t > 0) __syncthreads();  // the last token's have been read
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
#pragma unroll
        for (int step = kLanes; step < 32; step *= 2) rows[h].merge(step);
        float* const mine = work_ + (warp() * kHeads + h) * kRecord;
        if (lane() < kLanes) {
#pragma unroll
          for (int d = 0; d < 8; ++d) mine[first_d + d] = rows[h].o[d];
          if (lane() == 0) mine[kHeadDim] = rows[h].largest, mine[kHeadDim + 1] = rows[h].sum;
        }
      }
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < shape_.most_heads() * kHeadDim; i += kThreads) {
        const int h = i / kHeadDim, d = i % kHeadDim;
        float* const to = merge + (t * shape_.most_heads() + h) * kRecord;
        float largest = -INFINITY, sum = 0, value = 0;
        if (h < count) {
#pragma unroll
          for (int w = 0; w < kWarps; ++w) largest = fmaxf(largest, work_[(w * kHeads + h) * kRecord + kHeadDim]);
          const float shift = largest == -INFINITY ? 0 : largest;
#pragma unroll
          for (int w = 0; w < kWarps; ++w) {
            const float* const of_warp = work_ + (w * kHeads + h) * kRecord;
            const float weight = exp2_approx(of_warp[kHeadDim] - shift);
            sum = fmaf(weight, of_warp[kHeadDim + 1], sum);
            value = fmaf(weight, of_warp[d], value);
          }
        } else {
          largest = 0, sum = 1;  // nobody's head
        }
        to[d] = value;
        if (d == 0) to[kHeadDim] = largest, to[kHeadDim + 1] = sum, to[kHeadDim + 2] = to[kHeadDim + 3] = 0;
      }
    }
  }

  const DecodeBlockParams& block_;
  const DecodeBlockShape& shape_;
  const ClusterBlock& team_;
  int unit_, page_shift_, kv_head_;
  DecodeRange heads_, rows_, output_tiles_{};
  float* work_;
  uint4* my_ring_;
  std::uint64_t began_;
  Cursor next_{};
  int filled_ = 0;  // the slot that is filled next; when all are filled, the one that is read next
};

template <class T, int kTokenTiles>
__global__ void __launch_bounds__(kThreads, 2) decode_block_kernel(const __grid_constant__ KernelParams params) {
  extern __shared__ __align__(128) uint4 decode_block_memory[];
  __shared__ DecodeBlockBarriers<ClusterMbarrier> barriers;
  auto* const memory = reinterpret_cast<Vector16*>(decode_block_memory);
  const ClusterBlock team;
  const int unit = static_cast<int>(blockIdx.x) / team.blocks();
  if (team.lane() == 0) {
    barriers.init(team);
    publish_barriers();
  }
  Work<T, kTokenTiles> work(params, team, unit,
                            reinterpret_cast<float*>(memory + DecodeBlockMemory(params.shape, sizeof(T)).work));
  work.begin();
  meet_cluster();
  wait_for_earlier_kernels();
  work.mark(DecodeBlockPhase::start);
  DecodeBlockBody<T, ClusterBlock, ClusterMbarrier, Work<T, kTokenTiles>>(team, params.shape, unit, barriers, memory,
                                                                          work, params.waits)
      .run(params.scratch, static_cast<float*>(params.block.partials.data), params.exchanged);
  meet_cluster();
}

int token_tiles_of(const DecodeBlockShape& shape) {
  return shape.tokens <= 8 ? 1 : 2;
}

std::size_t shared_bytes_of(const DecodeBlockShape& shape) {
  const int own = token_tiles_of(shape) == 1 ? work_vectors<1>(shape) : work_vectors<2>(shape);
  return static_cast<std::size_t>(DecodeBlockMemory(shape, 2, own).end) * sizeof(Vector16);
}

int page_shift_of(int page_size) {
  return std::has_single_bit(static_cast<unsigned>(page_size)) ? std::countr_zero(static_cast<unsigned>(page_size))
                                                               : -1;
}

LaunchShape launch_of(const DecodeBlockShape& shape) {
  return {.grid = dim3(static_cast<unsigned>(shape.blocks())),
          .block = dim3(kThreads),
          .shared_bytes = shared_bytes_of(shape),
          .cluster = static_cast<unsigned>(shape.mapping.cluster)};
}

// f(kernel) of the kernel for a shape.
template <class F>
auto with_kernel(const DecodeBlockShape& shape, DType weights, const F& f) {
  return with_16_bit_element(weights, [&]<class T>() {
    return token_tiles_of(shape) == 1 ? f(decode_block_kernel<T, 1>) : f(decode_block_kernel<T, 2>);
  });
}

}  // namespace

std::string why_not_fused_sm90(const DecodeBlockShape& shape, DType weights) {
  if (shape.splits_head()) return why_not_split_sm90(shape, weights);
  constexpr std::size_t kMostShared = std::size_t{225} << 10;
  if (weights == DType::float32) return "weights are float32, the fused block takes bfloat16 and float16";
  if (shape.head_dim != 64 && shape.head_dim != 128)
    return fmt::format("head_dim is {}, the fused block takes 64 and 128", shape.head_dim);
  if (shape.hidden % kChunk != 0) return fmt::format("hidden size {} is not a multiple of {}", shape.hidden, kChunk);
  if (shape.most_heads() > kMostUnitHeads)
    return fmt::format("{} query heads share keys, a cluster takes up to {}: more parts are needed", shape.most_heads(),
                       kMostUnitHeads);
  if (shared_bytes_of(shape) > kMostShared)
    return fmt::format("{} tokens of hidden size {} need {} KiB of shared memory a block, there are {}", shape.tokens,
                       shape.hidden, shared_bytes_of(shape) >> 10, kMostShared >> 10);
  return {};
}

int decode_block_clusters(const DecodeBlockShape& shape, DType weights, Device device) {
  if (shape.splits_head()) return decode_head_clusters(shape, weights, device);
  return with_kernel(shape, weights, [&](auto kernel) {
    return clusters_of_device(kDecodeBlock, reinterpret_cast<const void*>(kernel), launch_of(shape), device);
  });
}

void decode_block_sm90(const DecodeBlockParams& params, const Lane& lane) {
  const DecodeBlockShape shape = shape_of(params);
  require(rows_are_aligned(params.residual) && rows_are_aligned(params.new_residual) &&
              (params.num_deltas == 0 || rows_are_aligned(params.deltas)) && is_aligned(params.norm),
          "decode_block: rows of the residual, the deltas or the norm are not aligned to 16 bytes");
  if (shape.mapping.streamed_blocks > 0) return decode_stream_sm90(params, lane);
  if (shape.splits_head()) return decode_head_sm90(params, lane);
  const KernelParams all{.block = params,
                         .shape = shape,
                         .scratch = scratch_of(params),
                         .exchanged = exchange_of(params),
                         .sums_vectors = token_tiles_of(shape) == 1 ? sums_vectors<1>(shape) : sums_vectors<2>(shape),
                         .page_shift = page_shift_of(params.kv.page_size),
                         .waits = waits_of(lane.stream, "decode_block")};
  with_kernel(shape, params.qkv.dtype,
              [&](auto kernel) { launch_sm90(kDecodeBlock, kernel, launch_of(shape), lane, all); });
}

}  // namespace heddle
