// decode_block by SplitHead on a GPU: a cluster of thread blocks for each unit, of eight warps a block, each with a slice of
// the unit's heads (decode_head_plan.h). A baseline to compare SplitToken with.
//
// Weights of both projections stream through one ring in shared memory, as in decode_block_sm90.cu: each warp copies what it
// alone reads. Keys and values go straight into registers, some lanes a key, all loads of a batch in flight together; with a
// tile's keys their values are prefetched to the L2 cache, where they arrive while blocks sum the scores.
#include <algorithm>
#include <bit>

#include "base/dtype_switch.h"
#include "device/bulk_stores_sm90.cuh"
#include "device/cluster/cluster_sm90.cuh"
#include "device/launch_sm90.cuh"
#include "fused/block_rows_sm90.cuh"
#include "fused/decode_block_sm90.h"
#include "fused/decode_head_body.cuh"
#include "kernels/attention/rope_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernel

constexpr const char* kDecodeHead = "decode_block by SplitHead";
constexpr int kHeadWarps = 8, kHeadThreads = 32 * kHeadWarps;
constexpr int kMostHeadTokens = 8, kMostHeadsOfUnit = 4;
constexpr int kTile = DecodeBlockShape::kRowTile;      // rows
constexpr int kChunk = 64;                             // features: lines of 128 bytes
constexpr int kStepVectors = kTile * kChunk * 2 / 16;  // that a warp copies and multiplies at a time
constexpr int kDepth = 5;                              // steps of a warp's ring
constexpr int kRingVectors = kDepth * kHeadWarps * kStepVectors;
constexpr int kRowTiles = 8;                       // of Wqkv whose sums lie in registers
constexpr int kRowStride = kRowTiles * kTile + 4;  // of sums: a warp's stores use all 32 banks

// Of the kernel's own region: what warps add up. The ring follows.
int sums_vectors_of(const DecodeBlockShape& shape) {
  const int of_rows = kHeadWarps * shape.tokens * kRowStride;
  const int of_values = kHeadWarps * kMostHeadsOfUnit * shape.head_slice();
  return (std::max({of_rows, of_values, kHeadWarps * kMostHeadTokens}) + 3) / 4;
}

struct HeadKernelParams {
  DecodeBlockParams block;
  DecodeBlockShape shape;
  UnitOutputs scratch;
  int work, ring;  // in vectors of shared memory
  int page_shift;  // page_size is 2^page_shift; negative: it is no power of two
  KernelWaits waits;
};

__device__ inline std::uint64_t head_cycles() {
  std::uint64_t cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles));
  return cycles;
}

// Softmax statistics of warps.
struct HeadStatistics {
  float maxima[kMostHeadsOfUnit][kHeadWarps];
  float sums[kMostHeadsOfUnit][kHeadWarps];
};

template <class T>
__device__ inline void widen_vector(const uint4& raw, float (&values)[8]) {
  const std::uint32_t words[4] = {raw.x, raw.y, raw.z, raw.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) values[2 * i] = low_element<T>(words[i]), values[2 * i + 1] = high_element<T>(words[i]);
}

// kHeads: at least the unit's query heads. kSlice: a block's elements of a head.
template <class T, int kHeads, int kSlice>
class HeadWork {
 public:
  __device__ HeadWork(const HeadKernelParams& params, const ClusterBlock& team, int unit, Vector16* memory,
                      HeadStatistics& statistics)
      : block_(params.block),
        shape_(params.shape),
        rank_(team.block()),
        unit_(unit),
        page_shift_(params.page_shift),
        kv_head_(shape_.kv_head(unit)),
        heads_(shape_.heads_of(unit)),
        work_(reinterpret_cast<float*>(memory + params.work)),
        my_ring_(reinterpret_cast<uint4*>(memory + params.ring) + warp() * kStepVectors),
        statistics_(statistics),
        began_(head_cycles()),
        group_(warp()),
        next_{.chunks = (shape_.hidden / kChunk - warp() + kHeadWarps - 1) / kHeadWarps, .group = warp()} {
    next_.of_output = next_.chunks == 0;
  }

  __device__ void mark(DecodeBlockPhase phase) const {
    if (block_.times == nullptr || threadIdx.x != 0) return;
    block_.times[static_cast<int>(blockIdx.x) * kBlockPhases + static_cast<int>(phase)] = head_cycles() - began_;
  }

  // Fills the ring: weights, which no kernel writes.
  __device__ void begin() {
    for (int step = 0; step < kDepth; ++step) copy_next();
  }

  static __device__ float load_shared(const float* from) { return __ldcg(from); }

  __device__ void sum_squares(float* sums) const {
    const int first_kept = rank_ * shape_.slice(), end_kept = unit_ == 0 ? first_kept + shape_.slice() : 0;
    for (int t = 0; t < shape_.tokens; ++t) {
      float sum = 0;
      for (int i = 4 * thread(); i < shape_.hidden; i += 4 * kHeadThreads) {
        const float4 of = z(t, i);
        sum += of.x * of.x + of.y * of.y + of.z * of.z + of.w * of.w;
        if (i >= first_kept && i < end_kept) *reinterpret_cast<float4*>(element<float>(block_.new_residual, t, i)) = of;
      }
      sum = warp_sum(sum);
      if (lane() == 0) work_[warp() * kMostHeadTokens + t] = sum;
    }
    __syncthreads();
    if (thread() >= shape_.tokens) return;
    float sum = 0;
    for (int w = 0; w < kHeadWarps; ++w) sum += work_[w * kMostHeadTokens + thread()];
    sums[thread()] = sum;
  }

  // x [tokens][hidden].
  __device__ void normalize(const float* sums, int, int, T* x) const {
    for (int t = 0; t < shape_.tokens; ++t) {
      const float factor = 1.0f / sqrtf(sums[t] / static_cast<float>(shape_.hidden) + block_.eps);
      for (int i = 4 * thread(); i < shape_.hidden; i += 4 * kHeadThreads) {
        const float4 of = z(t, i);
        const float4 norm = *reinterpret_cast<const float4*>(block_.norm + i);
        *reinterpret_cast<uint2*>(x + t * shape_.hidden + i) =
            make_uint2(pack<T>(of.x * factor * norm.x, of.y * factor * norm.y),
                       pack<T>(of.z * factor * norm.z, of.w * factor * norm.w));
      }
    }
  }

  // The warps split k; their sums are added in order. out [tokens][block_rows].
  __device__ void project(const T* x, float* out) {
    const int row_of_lane = lane() / 4, piece = lane() % 4 * 8;
    for (int first = 0; first < tiles(); first += kRowTiles) {
      float c[kRowTiles][4] = {};
      for (int k = warp() * kChunk; k < shape_.hidden; k += kHeadWarps * kChunk) {
        uint4 pieces[2] = {};
        if (row_of_lane < shape_.tokens)
#pragma unroll
          for (int half = 0; half < 2; ++half)
            pieces[half] = *reinterpret_cast<const uint4*>(x + row_of_lane * shape_.hidden + k + 32 * half + piece);
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m)
          if (first + m < tiles()) multiply_features(c[m], pieces);
      }
      if (first > 0) __syncthreads();  // the last sums have been read
      float* const mine = work_ + warp() * shape_.tokens * kRowStride;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int token = lane() % 4 * 2 + i % 2;
        if (token >= shape_.tokens) continue;
#pragma unroll
        for (int m = 0; m < kRowTiles; ++m) mine[token * kRowStride + m * kTile + i / 2 * 8 + row_of_lane] = c[m][i];
      }
      __syncthreads();
      const int here = min(kRowTiles, tiles() - first) * kTile;
      for (int i = thread(); i < shape_.tokens * here; i += kHeadThreads) {
        const int token = i / here, row = first * kTile + i % here;
        float sum = 0;
#pragma unroll
        for (int w = 0; w < kHeadWarps; ++w) sum += work_[(w * shape_.tokens + token) * kRowStride + i % here];
        if (block_.qkv.bias != nullptr) sum += block_.qkv.bias[weight_row(row)];
        out[token * shape_.block_rows() + row] = sum;
      }
    }
  }

  // A thread a pair of elements. heads [tokens][most_heads + 2][kSlice].
  __device__ void finish_slices(const float* qkv, float* heads) const {
    constexpr int kHalf = kSlice / 2;
    const int count = heads_.count();
    for (int at = thread(); at < shape_.tokens * (count + 2) * kHalf; at += kHeadThreads) {
      const int i = at % kHalf, head = at / kHalf % (count + 2), token = at / kHalf / (count + 2);
      const float* const from = qkv + token * shape_.block_rows() + head * kSlice + i;
      float low = from[0], high = from[kHalf];
      if (head <= count)
        rotate_pair(rotation_of(block_.positions[token], block_.inv_freq[key_element(i)], block_.rope_scale), low,
                    high);
      const T low_there = rounded<T>(low), high_there = rounded<T>(high);
      float* const to = heads + (token * (shape_.most_heads() + 2) + head) * kSlice + i;
      to[0] = widened(low_there), to[kHalf] = widened(high_there);
      if (head < count || !shape_.writes_cache(unit_)) continue;
      T* const slot = static_cast<T*>(head == count ? block_.kv.keys : block_.kv.values) +
                      slot_of_key(token, block_.sequences.context_len[token] - 1);
      slot[head == count ? key_element(i) : value_element(i)] = low_there;
      slot[head == count ? key_element(i + kHalf) : value_element(i + kHalf)] = high_there;
    }
  }

  // The keys of a token: the last one is new.
  __device__ DecodeRange keys_of(int token) const {
    const int end = block_.sequences.context_len[token];
    return {block_.window > 0 ? max(0, end - block_.window) : 0, end};
  }

  __device__ void begin_token(int token, const float*) {
    newest_ = block_.sequences.context_len[token] - 1;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      largest_[h] = -INFINITY, sum_[h] = 0;
#pragma unroll
      for (int d = 0; d < 8; ++d) o_[h][d] = 0;
    }
  }

  // What this block's slices have of the scores of a tile: scores [heads][score_stride].
  __device__ void score(int token, DecodeRange tile, const float* heads, float* scores) const {
    const int stride = DecodeHeadPlan::score_stride(tile.count()), count = heads_.count();
    const float* const of_token = heads + token * (shape_.most_heads() + 2) * kSlice + first_element();
    const float scale = block_.scale * 1.44269504f;
    float query[kHeads][8];
#pragma unroll
    for (int h = 0; h < kHeads; ++h)
#pragma unroll
      for (int d = 0; d < 8; ++d) query[h][d] = of_token[min(h, count - 1) * kSlice + d] * scale;
    const auto put = [&](bool there, int key, const float(&values)[8]) {
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        float score = 0;
#pragma unroll
        for (int d = 0; d < 8; ++d) score = fmaf(query[h][d], values[d], score);
#pragma unroll
        for (int step = 1; step < kLanes; step *= 2) score += __shfl_xor_sync(~0u, score, step);
        if (there && h < count && lane() % kLanes == 0) scores[h * stride + key] = score;
      }
    };
    for_cached(token, tile, [&](const std::int64_t(&slots)[kKeys], const int(&keys)[kKeys], int there) {
      uint4 raw[kKeys];
#pragma unroll
      for (int u = 0; u < kKeys; ++u)
        raw[u] = load_once(static_cast<const T*>(block_.kv.keys) + slots[u] + key_element(first_element()));
      if (shape_.mapping.prefetch != DecodePrefetch::none && lane() % kLanes == 0)
#pragma unroll
        for (int u = 0; u < kKeys; ++u)
          if (keys[u] < there)
            prefetch_bytes(static_cast<const T*>(block_.kv.values) + slots[u] + value_element(0), kSlice * 2);
#pragma unroll
      for (int u = 0; u < kKeys; ++u) {
        float key[8];
        widen_vector<T>(raw[u], key);
        put(keys[u] < there, keys[u], key);
      }
    });
    if (newest_ < tile.end && warp() == 0) {
      float key[8];
#pragma unroll
      for (int d = 0; d < 8; ++d) key[d] = of_token[count * kSlice + d];
      put(lane() < kLanes, newest_ - tile.begin, key);
    }
    if (tile.count() + thread() < stride)
      for (int h = 0; h < count; ++h) scores[h * stride + tile.count() + thread()] = 0;  // nobody's
  }

  // The values of a tile, whose scores are complete: they become weights. A thread sums up the weights that it makes.
  __device__ void add_values(int token, DecodeRange tile, const float* heads, float* scores) {
    const int stride = DecodeHeadPlan::score_stride(tile.count()), count = heads_.count();
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h >= count) continue;
      float top = -INFINITY;
      for (int i = thread(); i < tile.count(); i += kHeadThreads) top = fmaxf(top, scores[h * stride + i]);
#pragma unroll
      for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
      if (lane() == 0) statistics_.maxima[h][warp()] = top;
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (h >= count) continue;
      float top = largest_[h];
#pragma unroll
      for (int w = 0; w < kHeadWarps; ++w) top = fmaxf(top, statistics_.maxima[h][w]);
      const float correction = exp2_approx(largest_[h] - top);
      largest_[h] = top;
      sum_[h] *= correction;
#pragma unroll
      for (int d = 0; d < 8; ++d) o_[h][d] *= correction;
      for (int i = thread(); i < tile.count(); i += kHeadThreads) {
        const float weight = exp2_approx(scores[h * stride + i] - top);
        scores[h * stride + i] = weight;
        sum_[h] += weight;
      }
    }
    __syncthreads();
    const auto add = [&](bool there, int key, const float(&values)[8]) {
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        const float weight = there && h < count ? scores[h * stride + key] : 0;
#pragma unroll
        for (int d = 0; d < 8; ++d) o_[h][d] = fmaf(weight, values[d], o_[h][d]);
      }
    };
    for_cached(token, tile, [&](const std::int64_t(&slots)[kKeys], const int(&keys)[kKeys], int there) {
      uint4 raw[kKeys];
#pragma unroll
      for (int u = 0; u < kKeys; ++u)
        raw[u] = load_once(static_cast<const T*>(block_.kv.values) + slots[u] + value_element(first_element()));
#pragma unroll
      for (int u = 0; u < kKeys; ++u) {
        float value[8];
        widen_vector<T>(raw[u], value);
        add(keys[u] < there, keys[u], value);
      }
    });
    if (newest_ < tile.end && thread() < kLanes) {
      const float* const of_value = heads + (token * (shape_.most_heads() + 2) + count + 1) * kSlice + first_element();
      float value[8];
#pragma unroll
      for (int d = 0; d < 8; ++d) value[d] = of_value[d];
      add(true, newest_ - tile.begin, value);
    }
  }

  // attended [tokens][most_heads * kSlice].
  __device__ void end_token(int token, T* attended) {
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
#pragma unroll
      for (int step = kLanes; step < 32; step *= 2)
#pragma unroll
        for (int d = 0; d < 8; ++d) o_[h][d] += __shfl_xor_sync(~0u, o_[h][d], step);
      const float sum = warp_sum(sum_[h]);
      if (lane() == 0) statistics_.sums[h][warp()] = sum;
      if (lane() >= kLanes) continue;
#pragma unroll
      for (int d = 0; d < 8; ++d) work_[(warp() * kHeads + h) * kSlice + first_element() + d] = o_[h][d];
    }
    __syncthreads();
    for (int i = thread(); i < heads_.count() * kSlice; i += kHeadThreads) {
      float value = 0, sum = 0;
#pragma unroll
      for (int w = 0; w < kHeadWarps; ++w) {
        value += work_[w * kHeads * kSlice + i];
        sum += statistics_.sums[i / kSlice][w];
      }
      attended[token * shape_.most_heads() * kSlice + i] = rounded<T>(value / sum);
    }
  }

  // What this block's slices have of some rows' outputs: outputs [tokens][rows]. A warp has groups of rows to itself.
  __device__ void project_out(const T* attended, DecodeRange rows, float* outputs) {
    if (rows.begin == 0) let_later_kernels_start();
    const int stride = shape_.most_heads() * kSlice, row_of_lane = lane() / 4, piece = lane() % 4 * 4;
    for (; group_ * kGroupRows < rows.end; group_ += kHeadWarps) {
      float c[kGroupTiles][4] = {};
      for (int head = 0; head < heads_.count(); ++head) {
        uint2 pieces[kSlice / 16] = {};
        if (row_of_lane < shape_.tokens)
#pragma unroll
          for (int k = 0; k < kSlice / 16; ++k)
            pieces[k] =
                *reinterpret_cast<const uint2*>(attended + row_of_lane * stride + head * kSlice + 16 * k + piece);
        multiply_slices(c, pieces);
      }
#pragma unroll
      for (int m = 0; m < kGroupTiles; ++m)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int token = lane() % 4 * 2 + i % 2;
          const int row = group_ * kGroupRows + m * kTile + i / 2 * 8 + row_of_lane - rows.begin;
          if (token < shape_.tokens) outputs[token * rows.count() + row] = c[m][i];
        }
    }
    if (rows.end == shape_.hidden) wait_for_groups<0>();
  }

  __device__ float output_bias(int row) const {
    return unit_ == 0 && block_.output.bias != nullptr ? block_.output.bias[row] : 0;
  }

 private:
  static constexpr int kLanes = kSlice / 8;            // of a key: a stream
  static constexpr int kStreams = 32 / kLanes;         // of a warp
  static constexpr int kKeys = kHeads == 1 ? 8 : 4;    // whose loads a stream has in flight
  static constexpr int kGroupTiles = kChunk / kSlice;  // of rows of Wo, whose slices of one head are a step
  static constexpr int kGroupRows = kGroupTiles * kTile;
  static_assert(DecodeHeadPlan::kRows % kGroupRows == 0 && kSlice % 16 == 0);

  // Which weights a warp copies next: of Wqkv tile by tile of a few, chunk by chunk; then of Wo head by head.
  struct Cursor {
    int chunks = 0;  // of Wqkv, of this warp
    int first = 0, tile = 0, chunk = 0;
    bool of_output = false;
    int group = 0, head = 0;
  };

  static __device__ int thread() {
    return static_cast<int>(threadIdx.x);
  }
  static __device__ int lane() {
    return thread() % 32;
  }
  static __device__ int warp() {
    return thread() / 32;
  }
  static __device__ int first_element() {
    return lane() % kLanes * 8;
  }
  static __device__ float warp_sum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    return x;
  }

  __device__ int tiles() const {
    return (heads_.count() + 2) * kSlice / kTile;
  }
  __device__ int key_element(int i) const {
    return decode_key_element(shape_.head_dim, kSlice, rank_, i);
  }
  __device__ int value_element(int i) const {
    return rank_ * kSlice + i;
  }

  // As DecodeBlockShape::qkv_row of the block's own rows, without divisions: a step asks for two.
  __device__ int weight_row(int row) const {
    const int head = row / kSlice, i = row % kSlice, count = heads_.count();
    const int of_all = head < count ? heads_.begin + head : shape_.heads + (head - count) * shape_.kv_heads + kv_head_;
    return of_all * shape_.head_dim + (head > count ? value_element(i) : key_element(i));
  }

  // The next step's weights go to the slot after the last one's.
  __device__ void copy_next() {
    uint4* const slot = my_ring_ + filled_ * (kHeadWarps * kStepVectors);
    if (!next_.of_output) {
      // The halves of every second row are swapped, so that the four pieces of two neighbouring rows that eight lanes read
      // at once lie in different banks. Eight rows lie one behind the other in Wqkv, as half a slice has so many or more.
      const int row = lane() / 8, piece = lane() % 8, of_block = (next_.first + next_.tile) * kTile;
      const std::uint32_t to = shared_address(slot + row * 8 + (piece ^ row % 2 * 4));
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const T* const from = static_cast<const T*>(block_.qkv.blocks[0].data) +
                              std::int64_t{weight_row(of_block + 8 * half) + row} * shape_.hidden +
                              (warp() + kHeadWarps * next_.chunk) * kChunk + piece * 8;
        copy_once(to + half * 1024, from);
        copy_once(to + half * 1024 + 512, from + std::int64_t{4} * shape_.hidden);
      }
      if (++next_.tile == min(kRowTiles, tiles() - next_.first)) {
        next_.tile = 0;
        if (++next_.chunk == next_.chunks) {
          next_.chunk = 0;
          next_.first += kRowTiles;
          next_.of_output = next_.first >= tiles();
        }
      }
    } else if (next_.group * kGroupRows < shape_.hidden) {
      constexpr int kPieces = kSlice / 8;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = (lane() + 32 * i) / kPieces, piece = lane() % kPieces;
        const T* const from =
            static_cast<const T*>(block_.output.blocks[0].data) +
            (std::int64_t{next_.group * kGroupRows + row} * shape_.heads + heads_.begin + next_.head) *
                shape_.head_dim +
            value_element(piece * 8);
        copy_once(shared_address(slot + row * kPieces + swizzled(row, piece)), from);
      }
      if (++next_.head == heads_.count()) {
        next_.head = 0;
        next_.group += kHeadWarps;
      }
    }
    end_group();
    filled_ = filled_ + 1 == kDepth ? 0 : filled_ + 1;
  }

  // Where piece `piece` of a row of Wo lies: rows that sixteen lanes read at once, 32 bytes of each, have different banks.
  static __device__ int swizzled(int row, int piece) {
    return piece ^ row * kSlice / kChunk % (kSlice / 16) * 2;
  }

  __device__ const uint4* wait_for_step() const {
    wait_for_groups<kDepth - 1>();
    __syncwarp();  // makes the other lanes' copies visible
    return my_ring_ + filled_ * (kHeadWarps * kStepVectors);
  }
  __device__ void release_step() {
    __syncwarp();  // all lanes have read, so the slot may be overwritten
    copy_next();
  }

  // c += the next step's weights times x, whose features the lane has in `pieces`.
  __device__ void multiply_features(float (&c)[4], const uint4 (&pieces)[2]) {
    const int row = lane() / 4;
    const uint4* const rows = wait_for_step() + row * 8;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int piece = (half * 4 + lane() % 4) ^ row % 2 * 4;
      multiply_add_packs<T>(c, rows[piece], rows[64 + piece], pieces[half]);
    }
    release_step();
  }

  // The same of rows of Wo and one head's slice.
  __device__ void multiply_slices(float (&c)[kGroupTiles][4], const uint2 (&pieces)[kSlice / 16]) {
    const uint4* const step = wait_for_step();
    const auto weights = [&](int row, int k) {
      const uint4* const at = step + row * (kSlice / 8) + swizzled(row, 2 * k + lane() % 4 / 2);
      return reinterpret_cast<const uint2*>(at)[lane() % 2];
    };
#pragma unroll
    for (int m = 0; m < kGroupTiles; ++m)
#pragma unroll
      for (int k = 0; k < kSlice / 16; ++k) {
        const uint2 low = weights(m * kTile + lane() / 4, k), high = weights(m * kTile + 8 + lane() / 4, k);
        multiply_add<T>(c[m], {low.x, high.x, low.y, high.y}, pieces[k].x, pieces[k].y);
      }
    release_step();
  }

  // f(slots, keys, there) of the keys of a tile that lie in the cache, kKeys of each stream at a time, the same number of
  // times in all lanes. Keys are counted from the tile's first; those from `there` on do not belong to it, and the last
  // key's slot stands for theirs, so that all loads are in flight together.
  template <class F>
  __device__ void for_cached(int token, DecodeRange tile, const F& f) const {
    const int there = min(tile.end, newest_) - tile.begin, stream = warp() * kStreams + lane() / kLanes;
    const std::int32_t* const pages = block_.sequences.pages(token);
    for (int base = 0; base < there; base += kKeys * kHeadWarps * kStreams) {
      int keys[kKeys];
      std::int32_t page[kKeys];
      std::int64_t slots[kKeys];
#pragma unroll
      for (int u = 0; u < kKeys; ++u) {
        keys[u] = base + u * kHeadWarps * kStreams + stream;
        page[u] = __ldg(pages + page_index(tile.begin + min(keys[u], there - 1)));
      }
#pragma unroll
      for (int u = 0; u < kKeys; ++u) slots[u] = slot_in_page(page[u], tile.begin + min(keys[u], there - 1));
      f(slots, keys, there);
    }
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

  const DecodeBlockParams& block_;
  const DecodeBlockShape& shape_;
  int rank_, unit_, page_shift_, kv_head_;
  DecodeRange heads_;
  float* work_;
  uint4* my_ring_;
  HeadStatistics& statistics_;
  std::uint64_t began_;
  int group_;  // of rows of Wo, this warp's next
  Cursor next_;
  int filled_ = 0;  // the slot that is filled next; when all are filled, the one that is read next
  int newest_ = 0;  // of the token
  // Of the token: the softmax, in units of log 2, and this stream's part of the weighted values.
  float largest_[kHeads], sum_[kHeads], o_[kHeads][8];
};

template <class T, int kHeads, int kSlice>
__global__ void __launch_bounds__(kHeadThreads, 2) decode_head_kernel(const __grid_constant__ HeadKernelParams params) {
  extern __shared__ __align__(128) uint4 decode_head_memory[];
  __shared__ DecodeBlockBarriers<ClusterMbarrier> barriers;
  __shared__ HeadStatistics statistics;
  using Work = HeadWork<T, kHeads, kSlice>;
  auto* const memory = reinterpret_cast<Vector16*>(decode_head_memory);
  const ClusterBlock team;
  const int unit = static_cast<int>(blockIdx.x) / team.blocks();
  if (team.lane() == 0) {
    barriers.init(team);
    publish_barriers();
  }
  Work work(params, team, unit, memory, statistics);
  work.begin();
  meet_cluster();
  wait_for_earlier_kernels();
  work.mark(DecodeBlockPhase::start);
  DecodeHeadBody<T, ClusterBlock, ClusterMbarrier, Work>(team, params.shape, unit, barriers, memory, work, params.waits)
      .run(params.scratch, static_cast<float*>(params.block.partials.data));
  meet_cluster();
}

// Where the kernel's own memory lies, and the end of all, in vectors.
struct HeadPlaces {
  int work, ring, end;
};
HeadPlaces places_of(const DecodeBlockShape& shape) {
  const int work = DecodeHeadMemory(shape, 2).work, ring = work + sums_vectors_of(shape);
  return {work, ring, ring + kRingVectors};
}

LaunchShape launch_of(const DecodeBlockShape& shape) {
  return {.grid = dim3(static_cast<unsigned>(shape.blocks())),
          .block = dim3(kHeadThreads),
          .shared_bytes = static_cast<std::size_t>(places_of(shape).end) * sizeof(Vector16),
          .cluster = static_cast<unsigned>(shape.mapping.cluster)};
}

// f(kernel) of the kernel for a shape that why_not_split_sm90() takes.
template <class F>
auto with_kernel(const DecodeBlockShape& shape, DType weights, const F& f) {
  return with_16_bit_element(weights, [&]<class T>() {
    const auto with_heads = [&]<int kSlice>() {
      return shape.most_heads() == 1 ? f(decode_head_kernel<T, 1, kSlice>)
                                     : f(decode_head_kernel<T, kMostHeadsOfUnit, kSlice>);
    };
    switch (shape.head_slice()) {
      case 16:
        return with_heads.template operator()<16>();
      case 32:
        return with_heads.template operator()<32>();
      default:
        return with_heads.template operator()<64>();
    }
  });
}

}  // namespace

std::string why_not_split_sm90(const DecodeBlockShape& shape, DType weights) {
  constexpr std::size_t kMostShared = std::size_t{225} << 10;
  const int slice = shape.head_slice();
  if (weights == DType::float32) return "weights are float32, the fused block takes bfloat16 and float16";
  if (shape.tokens > kMostHeadTokens)
    return fmt::format("{} tokens, SplitHead takes up to {}", shape.tokens, kMostHeadTokens);
  if (slice != 16 && slice != 32 && slice != 64)
    return fmt::format("head_dim {} in clusters of {} blocks, SplitHead takes slices of 16, 32 and 64 elements",
                       shape.head_dim, shape.mapping.cluster);
  if (shape.hidden % kChunk != 0) return fmt::format("hidden size {} is not a multiple of {}", shape.hidden, kChunk);
  if (shape.most_heads() > kMostHeadsOfUnit)
    return fmt::format("{} query heads share keys, a cluster takes up to {}: more parts are needed", shape.most_heads(),
                       kMostHeadsOfUnit);
  if (launch_of(shape).shared_bytes > kMostShared)
    return fmt::format("{} tokens of hidden size {} need {} KiB of shared memory a block, there are {}", shape.tokens,
                       shape.hidden, launch_of(shape).shared_bytes >> 10, kMostShared >> 10);
  return {};
}

int decode_head_clusters(const DecodeBlockShape& shape, DType weights, Device device) {
  return with_kernel(shape, weights, [&](auto kernel) {
    return clusters_of_device(kDecodeHead, reinterpret_cast<const void*>(kernel), launch_of(shape), device);
  });
}

void decode_head_sm90(const DecodeBlockParams& params, const Lane& lane) {
  const DecodeBlockShape shape = shape_of(params);
  const HeadPlaces places = places_of(shape);
  const auto page_size = static_cast<unsigned>(params.kv.page_size);
  const HeadKernelParams all{.block = params,
                             .shape = shape,
                             .scratch = scratch_of(params),
                             .work = places.work,
                             .ring = places.ring,
                             .page_shift = std::has_single_bit(page_size) ? std::countr_zero(page_size) : -1,
                             .waits = waits_of(lane.stream, "decode_block")};
  with_kernel(shape, params.qkv.dtype,
              [&](auto kernel) { launch_sm90(kDecodeHead, kernel, launch_of(shape), lane, all); });
}

}  // namespace heddle
