// latent_block on a GPU: a cluster of thread blocks for each unit (latent_block_plan.h), of eight warps a block, in both
// forms. Simple, and slower than separate operators (docs/notes/cluster.md). Weights go straight into registers, some loads
// ahead, and are multiplied by mma.sync, as in decode_block_sm90.cu; those of later phases are prefetched to the L2 cache at the start.
//
// Attention takes tiles of sixteen rows of the cache, two in flight, as attention_latent_sm90.cu takes its larger ones: for
// the scores the warps divide the elements, the softmax is common to the block with two heads a warp, and for the output
// each warp has 64 elements of the latent. Products are transposed, so that heads fill the N dimension of mma.sync.
#include "fused/latent_block/latent_block_sm90.h"

#include <algorithm>
#include <cmath>

#include "base/dtype_switch.h"
#include "base/error.h"
#include "device/bulk_stores_sm90.cuh"
#include "device/cluster/cluster_sm90.cuh"
#include "device/launch_sm90.cuh"
#include "fused/block_rows_sm90.cuh"
#include "fused/latent_block/latent_block_body.cuh"
#include "fused/latent_block/latent_head_body.cuh"
#include "kernels/attention/rope_sm90.cuh"
#include "kernels/sm90/elements_sm90.cuh"
#include "kernels/sm90/instructions_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): of this file's own kernel

constexpr const char* kLatentBlock = "latent_block";
constexpr int kLatentWarps = 8, kLatentThreads = 32 * kLatentWarps;
constexpr int kLatentDim = 512, kRopeDim = 64, kCachedDim = kLatentDim + kRopeDim;
constexpr int kTileKeys = LatentBlockShape::kKeyTile, kTileStride = kCachedDim + 8;  // so that ldmatrix uses all banks
constexpr int kMostHeads = 16, kHeadTiles = kMostHeads / 8;
constexpr int kRows = 16, kChunk = 64;  // of a weight's rows, and their features, that a warp multiplies at a time
constexpr int kChunksInFlight = 2;      // four of them spill at two blocks an SM
static_assert(kTileKeys == 16 && kLatentDim == 64 * kLatentWarps);

// The kernel's own shared memory, and the tiles, which lie where partial attention will be.
struct LatentWork {
  static constexpr int kWeightStride = kTileKeys + 8;

  float sums[kLatentWarps][static_cast<int>(kMostLatentTokens)][kRows];  // of warps, of rows of weights; or of squares
  float scores[kLatentWarps][kMostHeads][kTileKeys];                     // of warps
  alignas(16) std::uint16_t weights[kMostHeads][kWeightStride];
  float correction[kMostHeads];
};
constexpr int kWorkVectors = LatentBlockMemory::vectors(sizeof(LatentWork));
constexpr int kTilesVectors = LatentBlockMemory::vectors(2 * kTileKeys * kTileStride * 2);

struct LatentKernelParams {
  LatentBlockParams block;
  LatentBlockShape shape;
  LatentBlockScratch scratch;
  int work, tiles;  // in vectors: where the work and the tiles lie
  KernelWaits waits;
};

template <class T, int kTokenTiles>
class LatentGpuWork {
 public:
  static constexpr int kTileVectors = kTilesVectors;

  __device__ LatentGpuWork(const LatentKernelParams& params, const ClusterBlock& team, int unit, Vector16* memory)
      : block_(params.block),
        shape_(params.shape),
        team_(team),
        unit_(unit),
        heads_(shape_.heads_of(unit)),
        work_(*reinterpret_cast<LatentWork*>(memory + params.work)),
        tiles_(reinterpret_cast<T*>(memory + params.tiles)) {}

  // Weights of later phases, which no kernel writes, to the L2 cache.
  __device__ void begin() const {
    const DecodeRange elements = shape_.elements_of(team_.block()), output = shape_.output_rows_of(team_.block());
    const DecodeRange values = shape_.value_rows_of(unit_, team_.block());
    for (int head = heads_.begin; head < heads_.end; ++head)
      for (int i = elements.begin + thread(); i < elements.end; i += kLatentThreads)
        prefetch_bytes(row_of(block_.to_latents, head * kLatentDim + i), bytes_of(shape_.nope_dim));
    for (int i = values.begin + thread(); i < values.end; i += kLatentThreads)
      prefetch_bytes(row_of(block_.from_latents, heads_.begin * shape_.value_dim + i), bytes_of(kLatentDim));
    for (int i = output.begin + thread(); i < output.end; i += kLatentThreads)
      prefetch_bytes(output_row(i), bytes_of(heads_.count() * shape_.value_dim));
  }

  static __device__ float exp2(float x) { return exp2_approx(x); }
  static __device__ T rounded(float x) { return sm90::rounded<T>(x); }
  static __device__ float load_shared(const float* from) { return __ldcg(from); }

  __device__ int context_len(int token) const { return block_.sequences.context_len[token]; }

  __device__ void normalize(T* x) {
    const int hidden = shape_.hidden;
    const DecodeRange kept = shape_.features_of(unit_, team_.block());
    for (int t = 0; t < shape_.tokens; ++t) {
      float sum = 0;
      for (int i = 4 * thread(); i < hidden; i += 4 * kLatentThreads) {
        const float4 of = z(t, i);
        sum += of.x * of.x + of.y * of.y + of.z * of.z + of.w * of.w;
        const float values[4] = {of.x, of.y, of.z, of.w};
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (i + e >= kept.begin && i + e < kept.end) *element<float>(block_.new_residual, t, i + e) = values[e];
      }
      const float factor = 1.0f / sqrtf(block_sum(sum) / static_cast<float>(hidden) + block_.eps);
      for (int i = 4 * thread(); i < hidden; i += 4 * kLatentThreads) {
        const float4 of = z(t, i), norm = *reinterpret_cast<const float4*>(block_.norm + i);
        *reinterpret_cast<uint2*>(x + t * hidden + i) =
            make_uint2(pack<T>(of.x * factor * norm.x, of.y * factor * norm.y),
                       pack<T>(of.z * factor * norm.z, of.w * factor * norm.w));
      }
    }
  }

  // Both kinds of rows in common tiles.
  template <class Put>
  __device__ void project(const T* x, float* queries, const Put& put_latent) {
    const DecodeRange rows = shape_.query_rows_of(unit_, team_.block());
    const DecodeRange latents = shape_.latent_rows_of(unit_, team_.block());
    const int of_queries = rows.count(), each = shape_.block_query_rows(), hidden = shape_.hidden;
    multiply(
        of_queries + latents.count(), hidden,
        [&](int row) {
          return row_of(block_.down, row < of_queries ? shape_.down_row_of_query(unit_, rows.begin + row)
                                                      : shape_.down_row_of_latent(latents.begin + row - of_queries));
        },
        [&](int token, int k) { return x + token * hidden + k; },
        [&](int token, int row, float sum) {
          if (row < of_queries)
            queries[token * each + row] = sum;
          else
            put_latent(token, latents.begin + row - of_queries, sum);
        });
  }

  __device__ void finish_queries(const float* gathered, T* queries) const {
    const int dim = shape_.query_dim(), nope = shape_.nope_dim, rows = shape_.block_query_rows();
    const int pairs = dim / 2;
    for (int i = thread(); i < shape_.tokens * heads_.count() * pairs; i += kLatentThreads) {
      const int token = i / (heads_.count() * pairs), head = i / pairs % heads_.count(), d = 2 * (i % pairs);
      const int row = head * dim + d;  // of a piece of eight rows, as the next one
      const float* const from = gathered + (row / rows * shape_.tokens + token) * rows + row % rows;
      float a = from[0], b = from[1];
      if (d >= nope)
        rotate_pair(rotation_of(block_.positions[token], block_.inv_freq[(d - nope) / 2], block_.rope_scale), a, b);
      *reinterpret_cast<std::uint32_t*>(queries + (token * shape_.most_heads() + head) * dim + d) = pack<T>(a, b);
    }
  }

  template <class Put>
  __device__ void absorb(const T* queries, const Put& put) {
    const DecodeRange elements = shape_.elements_of(team_.block());
    const int dim = shape_.query_dim();
    for (int head = 0; head < heads_.count(); ++head)
      multiply(
          elements.count(), shape_.nope_dim,
          [&](int row) { return row_of(block_.to_latents, (heads_.begin + head) * kLatentDim + elements.begin + row); },
          [&](int token, int k) { return queries + (token * shape_.most_heads() + head) * dim + k; },
          [&](int token, int row, float sum) { put(token, head, elements.begin + row, rounded(sum)); });
  }

  template <class Put>
  __device__ void copy_rotated(const T* queries, const Put& put) const {
    for (int i = thread(); i < shape_.tokens * heads_.count() * kRopeDim; i += kLatentThreads) {
      const int token = i / (heads_.count() * kRopeDim), head = i / kRopeDim % heads_.count(), d = i % kRopeDim;
      put(token, head, d, queries[(token * shape_.most_heads() + head) * shape_.query_dim() + shape_.nope_dim + d]);
    }
  }

  template <class Down>
  __device__ void finish_latent(int token, const Down& down, T* newest, bool writes_cache) {
    float sum = 0;
    for (int i = thread(); i < kLatentDim; i += kLatentThreads) {
      const float of = down(i);
      sum += of * of;
    }
    const float factor = 1.0f / sqrtf(block_sum(sum) / static_cast<float>(kLatentDim) + block_.latent_eps);
    T* const slot = writes_cache ? row_of_key(token, context_len(token) - 1) : nullptr;
    const auto put = [&](int i, float value) {
      newest[i] = rounded(value);
      if (slot != nullptr) slot[i] = rounded(value);
    };
    for (int i = thread(); i < kLatentDim; i += kLatentThreads) put(i, down(i) * factor * block_.latent_norm[i]);
    for (int i = thread(); i < kRopeDim / 2; i += kLatentThreads) {
      float a = down(kLatentDim + 2 * i), b = down(kLatentDim + 2 * i + 1);
      rotate_pair(rotation_of(block_.positions[token], block_.inv_freq[i], block_.rope_scale), a, b);
      put(kLatentDim + 2 * i, a), put(kLatentDim + 2 * i + 1, b);
    }
  }

  // What other blocks have written, past the L1 cache.
  __device__ void load_queries(const T* from, T* to) const {
    constexpr int kPieces = kCachedDim / 8;
    for (int i = thread(); i < shape_.heads * kPieces; i += kLatentThreads)
      *reinterpret_cast<uint4*>(to + i / kPieces * shape_.absorbed_stride() + i % kPieces * 8) =
          __ldcg(reinterpret_cast<const uint4*>(from) + i);
  }

  __device__ void attend(int token, DecodeRange keys, const T* newest, const T* queries, int heads, float* out) {
    const int record = shape_.record(), head = 2 * warp() + lane() / 16;
    const float scale = block_.scale * 1.44269504f;
    float o[kHeadTiles][4][4] = {};
    float largest = -INFINITY, sum = 0;  // of this half warp's head; the sum of this lane's own weights
    const int tiles = (keys.count() + kTileKeys - 1) / kTileKeys;
    if (tiles > 0) load_tile(token, keys, 0, newest);
#pragma unroll 1
    for (int tile = 0; tile < tiles; ++tile) {
      if (tile + 1 < tiles) load_tile(token, keys, tile + 1, newest);
      tile + 1 < tiles ? wait_for_groups<1>() : wait_for_groups<0>();
      team_.sync();
      const T* const rows = tiles_ + tile % 2 * kTileKeys * kTileStride;
      multiply_keys(rows, queries, heads);
      team_.sync();  // the scores are there
      weigh(head, keys.count() - tile * kTileKeys, scale, largest, sum);
      team_.sync();  // the weights are there
      add_values(rows, o);
      team_.sync();  // before a tile, scores or weights are overwritten
    }
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (head < heads && lane() % 16 == 0) {
      out[head * record + kLatentDim] = largest;
      out[head * record + kLatentDim + 1] = sum;
      out[head * record + kLatentDim + 2] = out[head * record + kLatentDim + 3] = 0;
    }
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int of_head = 8 * n + lane() % 4 * 2 + j % 2;
          if (of_head < heads) out[of_head * record + 64 * warp() + 16 * i + j / 2 * 8 + lane() / 4] = o[n][i][j];
        }
  }

  __device__ void values(const T* attended, T* out) {
    const DecodeRange rows = shape_.value_rows_of(unit_, team_.block());
    const int each = shape_.block_value_rows(), dim = shape_.value_dim;
    for (int head = rows.begin / dim; head * dim < rows.end; ++head) {
      const int begin = max(rows.begin, head * dim), end = min(rows.end, (head + 1) * dim);
      multiply(
          end - begin, kLatentDim,
          [&](int row) { return row_of(block_.from_latents, heads_.begin * dim + begin + row); },
          [&](int token, int k) { return attended + (token * shape_.most_heads() + head) * kLatentDim + k; },
          [&](int token, int row, float sum) { out[token * each + begin - rows.begin + row] = rounded(sum); });
    }
  }

  __device__ void partial_values(const T* attended, float* out) {
    const DecodeRange elements = shape_.elements_of(team_.block());
    const int dim = shape_.value_dim;
    multiply(
        dim, elements.count(),
        [&](int row) { return row_of(block_.from_latents, heads_.begin * dim + row) + elements.begin; },
        [&](int token, int k) { return attended + token * kLatentDim + elements.begin + k; },
        [&](int token, int row, float sum) { out[token * dim + row] = sum; });
  }

  __device__ void project_out(const T* values, int part_rows, float* to) {
    const DecodeRange rows = shape_.output_rows_of(team_.block());
    multiply(
        rows.count(), heads_.count() * shape_.value_dim, [&](int row) { return output_row(rows.begin + row); },
        [&](int token, int k) { return values + (k / part_rows * shape_.tokens + token) * part_rows + k % part_rows; },
        [&](int token, int row, float sum) { to[std::int64_t{token} * shape_.hidden + rows.begin + row] = sum; });
  }

 private:
  static __device__ int thread() {
    return static_cast<int>(threadIdx.x);
  }
  static __device__ int lane() {
    return thread() % 32;
  }
  static __device__ int warp() {
    return thread() / 32;
  }
  static __device__ std::uint32_t bytes_of(int elements) {
    return static_cast<std::uint32_t>(elements) * 2;
  }

  static __device__ const T* row_of(const Weight& weight, int row) {
    return static_cast<const T*>(weight.blocks[0].data) + row * weight.in_features;
  }
  // The unit's columns of a row.
  __device__ const T* output_row(int row) const {
    return row_of(block_.output, row) + heads_.begin * shape_.value_dim;
  }
  __device__ T* row_of_key(int token, int position) const {
    const PagedKv& kv = block_.kv;
    const std::int32_t page = __ldg(block_.sequences.pages(token) + position / kv.page_size);
    return static_cast<T*>(kv.keys) + kv.offset(page, 0, position % kv.page_size);
  }
  __device__ float4 z(int token, int feature) const {
    return pending_sum<T>(block_.residual, block_.deltas, block_.num_deltas, token, feature);
  }

  // Of all threads, in a fixed order.
  __device__ float block_sum(float x) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(~0u, x, step);
    float* const sums = &work_.sums[0][0][0];
    team_.sync();  // the last sums have been read
    if (lane() == 0) sums[warp()] = x;
    team_.sync();
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kLatentWarps; ++w) sum += sums[w];
    return sum;
  }

  // put(token, row, sum of row_at(row)[k] * piece_at(token, k)[0] over k) for so many rows; `columns` is a multiple of kChunk.
  // piece_at gives eight elements in a row. Warps share tiles of rows, and where there are few of these, k; their sums are
  // added in order.
  template <class RowAt, class PieceAt, class Put>
  __device__ void multiply(int rows, int columns, const RowAt& row_at, const PieceAt& piece_at, const Put& put) {
    const int tiles = (rows + kRows - 1) / kRows, chunks = columns / kChunk;
    if (tiles == 0) return;
    int slices = 1;
    while (2 * slices * tiles <= kLatentWarps && 2 * slices <= chunks) slices *= 2;
    const int at_once = kLatentWarps / slices, slice = warp() % slices, piece = lane() % 4 * 8;
#pragma unroll 1
    for (int first = 0; first < tiles; first += at_once) {
      const int tile = first + warp() / slices;
      float c[kTokenTiles][4] = {};
      if (tile < tiles) {
        const T* const low = row_at(min(tile * kRows + lane() / 4, rows - 1)) + piece;
        const T* const high = row_at(min(tile * kRows + lane() / 4 + 8, rows - 1)) + piece;
#pragma unroll 1
        for (int chunk = slice; chunk < chunks; chunk += slices * kChunksInFlight) {
          uint4 weights[kChunksInFlight][4];
#pragma unroll
          for (int u = 0; u < kChunksInFlight; ++u) {
            const int k = min(chunk + u * slices, chunks - 1) * kChunk;
            weights[u][0] = load_once(low + k), weights[u][1] = load_once(high + k);
            weights[u][2] = load_once(low + k + 32), weights[u][3] = load_once(high + k + 32);
          }
#pragma unroll
          for (int u = 0; u < kChunksInFlight; ++u) {
            if (chunk + u * slices >= chunks) continue;
            const int k = (chunk + u * slices) * kChunk + piece;
#pragma unroll
            for (int half = 0; half < 2; ++half)
#pragma unroll
              for (int n = 0; n < kTokenTiles; ++n) {
                const int token = 8 * n + lane() / 4;
                uint4 x = make_uint4(0, 0, 0, 0);
                if (token < shape_.tokens) x = *reinterpret_cast<const uint4*>(piece_at(token, k + 32 * half));
                multiply_add_packs<T>(c[n], weights[u][2 * half], weights[u][2 * half + 1], x);
              }
          }
        }
      }
      team_.sync();  // the last sums have been read
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          work_.sums[warp()][8 * n + lane() % 4 * 2 + i % 2][i / 2 * 8 + lane() / 4] = c[n][i];
      team_.sync();
      for (int i = thread(); i < at_once * shape_.tokens * kRows; i += kLatentThreads) {
        const int row_in_tile = i % kRows, token = i / kRows % shape_.tokens, of = i / (kRows * shape_.tokens);
        const int row = (first + of) * kRows + row_in_tile;
        if (row >= rows) continue;
        float sum = 0;
#pragma unroll 1
        for (int s = 0; s < slices; ++s) sum += work_.sums[of * slices + s][token][row_in_tile];
        put(token, row, sum);
      }
    }
  }

  // Rows behind the keys are zeros: other slots may hold NaN, and 0 * NaN is NaN. All threads; a group of copies.
  __device__ void load_tile(int token, DecodeRange keys, int tile, const T* newest) {
    constexpr int kPieces = kCachedDim / 8;
    T* const to = tiles_ + tile % 2 * kTileKeys * kTileStride;
#pragma unroll 1
    for (int i = thread(); i < kTileKeys * kPieces; i += kLatentThreads) {
      const int row = i / kPieces, piece = i % kPieces * 8, position = keys.begin + tile * kTileKeys + row;
      T* const place = to + row * kTileStride + piece;
      if (newest != nullptr && position + 1 == keys.end) {
        *reinterpret_cast<uint4*>(place) = *reinterpret_cast<const uint4*>(newest + piece);
        continue;
      }
      const bool is_there = position < keys.end;
      copy_or_clear(shared_address(place), row_of_key(token, is_there ? position : keys.begin) + piece, is_there);
    }
    end_group();
  }

  // Each warp's part of the scores, of steps of 16 elements that it has.
  __device__ void multiply_keys(const T* rows, const T* queries, int heads) {
    float s[kHeadTiles][4] = {};
#pragma unroll 1
    for (int step = warp(); step < kCachedDim / 16; step += kLatentWarps) {
      std::uint32_t m[4];  // elements 0-7, keys 0-7 and 8-15, then elements 8-15
      load_matrices(shared_address(rows + lane() % 16 * kTileStride + 16 * step + lane() / 16 * 8), m);
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) {
        const T* const query =
            queries + min(8 * n + lane() / 4, heads - 1) * shape_.absorbed_stride() + 16 * step + lane() % 4 * 2;
        multiply_add<T>(s[n], m, *reinterpret_cast<const std::uint32_t*>(query),
                        *reinterpret_cast<const std::uint32_t*>(query + 8));
      }
    }
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        work_.scores[warp()][8 * n + lane() % 4 * 2 + i % 2][lane() / 4 + i / 2 * 8] = s[n][i];
  }

  // Replaces a head's scores by weights, a key a lane. `there`: keys of the tile that are in the segment.
  __device__ void weigh(int head, int there, float scale, float& largest, float& sum) {
    const int key = lane() % 16;
    float score = 0;
#pragma unroll
    for (int w = 0; w < kLatentWarps; ++w) score += work_.scores[w][head][key];
    score = key < there ? score * scale : -INFINITY;
    float top = fmaxf(largest, score);
    for (int step = 8; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, step));
    const float shift = top == -INFINITY ? 0 : top, correction = exp2_approx(largest - shift);
    const float weight = exp2_approx(score - shift);
    largest = top;
    sum = fmaf(sum, correction, weight);
    work_.weights[head][key] = static_cast<std::uint16_t>(pack<T>(weight, 0));
    if (key == 0) work_.correction[head] = correction;
  }

  // In o elements 16 * i + lane / 4 + {0, 8} of the warp's 64, of heads 8 * n + 2 * (lane % 4) + {0, 1}.
  __device__ void add_values(const T* rows, float (&o)[kHeadTiles][4][4]) {
    std::uint32_t weights[kHeadTiles][2];
#pragma unroll
    for (int n = 0; n < kHeadTiles; ++n) {
      const float2 correction = *reinterpret_cast<const float2*>(&work_.correction[8 * n + lane() % 4 * 2]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) o[n][i][j] *= j % 2 == 0 ? correction.x : correction.y;
#pragma unroll
      for (int i = 0; i < 2; ++i)
        weights[n][i] =
            *reinterpret_cast<const std::uint32_t*>(&work_.weights[8 * n + lane() / 4][8 * i + lane() % 4 * 2]);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t m[4];  // keys 0-7, elements 0-7 and 8-15, then keys 8-15
      load_matrices_transposed(shared_address(rows + (lane() / 16 * 8 + lane() % 8) * kTileStride + 64 * warp() +
                                              16 * i + lane() / 8 % 2 * 8),
                               m);
#pragma unroll
      for (int n = 0; n < kHeadTiles; ++n) multiply_add<T>(o[n][i], m, weights[n][0], weights[n][1]);
    }
  }

  const LatentBlockParams& block_;
  const LatentBlockShape& shape_;
  const ClusterBlock& team_;
  int unit_;
  DecodeRange heads_;
  LatentWork& work_;
  T* tiles_;  // [2][kTileKeys][kTileStride]
};

template <class T, int kTokenTiles, LatentFlow kFlow>
__global__ void __launch_bounds__(kLatentThreads, 2)
    latent_block_kernel(const __grid_constant__ LatentKernelParams params) {
  extern __shared__ __align__(128) uint4 latent_block_memory[];
  __shared__ LatentBlockBarriers<ClusterMbarrier> barriers;
  using Work = LatentGpuWork<T, kTokenTiles>;
  auto* const memory = reinterpret_cast<Vector16*>(latent_block_memory);
  const ClusterBlock team;
  const int unit = static_cast<int>(blockIdx.x) / team.blocks();
  if (team.lane() == 0) {
    barriers.init(team);
    publish_barriers();
  }
  Work work(params, team, unit, memory);
  work.begin();
  meet_cluster();
  wait_for_earlier_kernels();
  auto* const partials = static_cast<float*>(params.block.partials.data);
  if constexpr (kFlow == LatentFlow::all_heads_a_tile)
    LatentBlockBody<T, ClusterBlock, ClusterMbarrier, Work>(team, params.shape, unit, barriers, memory, work,
                                                            params.waits)
        .run(params.scratch, partials);
  else
    LatentHeadBody<T, ClusterBlock, ClusterMbarrier, Work>(team, params.shape, unit, barriers, memory, work,
                                                           params.waits)
        .run(params.scratch, partials);
  meet_cluster();
}

// Where the kernel's own memory lies, and the end of all, in vectors.
struct LatentPlaces {
  int work, tiles, end;
};
LatentPlaces places_of(const LatentBlockShape& shape) {
  if (shape.uses_grid_barriers()) {
    const LatentBlockMemory at(shape, 2, kWorkVectors, kTilesVectors);
    return {at.work, at.partial, at.end};
  }
  const int end = LatentHeadMemory(shape, 2).end;
  return {end, end + kWorkVectors, end + kWorkVectors + kTilesVectors};
}

LaunchShape launch_of(const LatentBlockShape& shape) {
  return {.grid = dim3(static_cast<unsigned>(shape.blocks())),
          .block = dim3(kLatentThreads),
          .shared_bytes = static_cast<std::size_t>(places_of(shape).end) * sizeof(Vector16),
          .cluster = static_cast<unsigned>(shape.mapping.cluster),
          .fit = shape.uses_grid_barriers() ? GridFit::resident : GridFit::by_caller};
}

// f(kernel) of the kernel for a shape.
template <class F>
auto with_kernel(const LatentBlockShape& shape, DType weights, const F& f) {
  return with_16_bit_element(weights, [&]<class T>() {
    const auto with_tokens = [&]<LatentFlow kFlow>() {
      return shape.tokens <= 8 ? f(latent_block_kernel<T, 1, kFlow>) : f(latent_block_kernel<T, 2, kFlow>);
    };
    return shape.uses_grid_barriers() ? with_tokens.template operator()<LatentFlow::all_heads_a_tile>()
                                      : with_tokens.template operator()<LatentFlow::head_a_cluster>();
  });
}

}  // namespace

std::string why_not_fused_sm90(const LatentBlockShape& shape, DType weights) {
  constexpr std::size_t kMostShared = std::size_t{225} << 10;
  if (weights == DType::float32) return "weights are float32, the fused block takes bfloat16 and float16";
  if (shape.latent_dim != kLatentDim || shape.rope_dim != kRopeDim)
    return fmt::format("latents of {} + {}, the fused block takes {} + {}", shape.latent_dim, shape.rope_dim,
                       kLatentDim, kRopeDim);
  if (shape.heads > kMostHeads) return fmt::format("{} heads, the fused block takes up to {}", shape.heads, kMostHeads);
  for (const int columns : {shape.hidden, shape.nope_dim, shape.value_dim})
    if (columns % kChunk != 0)
      return fmt::format("{} columns of a weight, the fused block takes multiples of {}", columns, kChunk);
  // Of Alg. 4 a block has a part of the latent's columns.
  if (!shape.uses_grid_barriers() && shape.block_elements() % kChunk != 0)
    return fmt::format("{} elements of the latent a block, the fused block takes multiples of {}",
                       shape.block_elements(), kChunk);
  if (launch_of(shape).shared_bytes > kMostShared)
    return fmt::format("{} tokens of hidden size {} need {} KiB of shared memory a block, there are {}", shape.tokens,
                       shape.hidden, launch_of(shape).shared_bytes >> 10, kMostShared >> 10);
  return {};
}

int latent_block_clusters(const LatentBlockShape& shape, DType weights, Device device) {
  return with_kernel(shape, weights, [&](auto kernel) {
    return clusters_of_device(kLatentBlock, reinterpret_cast<const void*>(kernel), launch_of(shape), device);
  });
}

void latent_block_sm90(const LatentBlockParams& params, const Lane& lane) {
  const LatentBlockShape shape = shape_of(params);
  require(rows_are_aligned(params.residual) && (params.num_deltas == 0 || rows_are_aligned(params.deltas)) &&
              is_aligned(params.norm),
          "latent_block: rows of the residual, the deltas or the norm are not aligned to 16 bytes");
  // Blocks wait for each other, so all must run at once; other kernels that hold SMs would be in the way.
  require(lane.num_other_sms() == 0 || !shape.uses_grid_barriers(), "latent_block: on a part of the device");
  const int clusters = latent_block_clusters(shape, params.down.dtype, lane.stream.device());
  require(clusters >= (shape.uses_grid_barriers() ? shape.units() : 1),
          "latent_block: {} clusters of {} blocks, {} run at once", shape.units(), shape.mapping.cluster, clusters);
  const LatentPlaces places = places_of(shape);
  const LatentKernelParams all{.block = params,
                               .shape = shape,
                               .scratch = scratch_of(params),
                               .work = places.work,
                               .tiles = places.tiles,
                               .waits = waits_of(lane.stream, "latent_block")};
  with_kernel(shape, params.down.dtype,
              [&](auto kernel) { launch_sm90(kLatentBlock, kernel, launch_of(shape), lane, all); });
}

}  // namespace heddle
