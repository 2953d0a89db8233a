// Attention over pieces by FlashRows (flash_rows_sm90.cuh) and StreamFusion's Algorithm 2. A work is some queries of one piece,
// head and member of the batch. The kernel is persistent; PieceShares says which works, or parts of works, a block has. Of a
// divided work each warp leaves its rows' sums in the workspace, and the last warp to arrive merges them in the order of keys.
//
// One warp loads queries and keys by TMA, one loads values, tile by tile and piece by piece. A tile lies in one piece:
// TMA fills what lies beyond the piece with zeros, and the softmax masks it.
#include "fused/piece_attention/piece_attention_sm90.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/alignment.h"
#include "base/checked.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "device/atomics.h"
#include "device/bulk_stores_sm90.cuh"
#include "device/head_map_sm90.cuh"
#include "device/launch_sm90.cuh"
#include "fused/piece_attention/piece_shares.h"
#include "kernels/attention/flash_rows_sm90.cuh"

namespace heddle {
namespace {

using namespace sm90;  // NOLINT(google-build-using-namespace): this file's own kernels

// Small heads leave registers for a third warpgroup.
constexpr int groups_for(int head_dim) {
  return head_dim <= 64 ? 3 : 2;
}

struct alignas(128) PieceQueries {
  CUtensorMap map;
  void* y;
  PieceStrides y_strides;
  float *o, *l, *m;
  int num_tokens, first_position;
};

struct alignas(128) PieceKeysValues {
  CUtensorMap keys, values;
  int num_tokens, first_position;
};

struct PieceKernelParams {
  const PieceQueries* queries;
  const PieceKeysValues* keys_values;
  const int* first_tiles;  // of each query piece, then their number
  int num_queries, num_keys_values;
  int num_tiles;  // of queries, of one head
  int num_heads, batch;
  int group;          // query heads of a KV head
  float score_scale;  // scale * log2(e): weights are powers of two
  PieceStart start;
  PieceEnd end;
  PieceShares shares;
  float* sums;         // of parts of works, PieceSums a slot
  unsigned* arrivals;  // of a divided work's warps; 0 between calls
  KernelWaits waits;
};

// A slot's sums of a work: o, l and m of its rows.
template <int kHeadDim>
struct PieceSums {
  static constexpr int kRows = groups_for(kHeadDim) * kFlashRows;
  static constexpr std::int64_t kFloats = std::int64_t{kRows} * (kHeadDim + 2);

  template <class Float>
  __device__ static FlashState<Float> at(Float* sums, int slot) {
    Float* const o = sums + slot * kFloats;
    return {o, o + kRows * kHeadDim, o + kRows * (kHeadDim + 1), 0};
  }
};

template <int kHeadDim>
using PieceShared = FlashShared<kHeadDim, kHeadDim, groups_for(kHeadDim), 2, kHeadDim <= 64 ? 3 : 2>;

// Some rows of a query piece, of one head and member of the batch.
struct WorkOfPiece {
  const PieceQueries* piece;
  int first_row, head, batch;
};

// Works of a head follow each other, so that blocks read the same keys. Where queries see different numbers of keys, those
// with most come first.
template <PieceMask mask, int kRows>
__device__ WorkOfPiece work_at(const PieceKernelParams& params, int index) {
  const int heads = params.num_heads * params.batch;
  const int tile = mask == PieceMask::full ? index % params.num_tiles : params.num_tiles - 1 - index / heads;
  const int of = mask == PieceMask::full ? index / params.num_tiles : index % heads;
  int low = 0, high = params.num_queries;  // first_tiles[low] <= tile < first_tiles[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (params.first_tiles[middle] <= tile ? low : high) = middle;
  }
  return {params.queries + low, (tile - params.first_tiles[low]) * kRows, of % params.num_heads, of / params.num_heads};
}

// The tiles of keys of an item, in the order of the layout.
template <PieceMask mask>
class KeyWalk {
 public:
  // `last_position`: of the work's last row. Causal works are whole.
  __device__ KeyWalk(const PieceKernelParams& params, const PieceItem& item, int last_position)
      : params_(params), last_position_(last_position), left_(item.end - item.first), skip_(item.first) {
    take_piece();
  }

  __device__ bool is_over() const { return mask == PieceMask::full ? left_ == 0 : piece_ == params_.num_keys_values; }
  __device__ const PieceKeysValues& piece() const { return params_.keys_values[piece_]; }
  __device__ int first_key() const { return key_; }         // of the tile in its piece
  __device__ int num_keys() const { return keys_ - key_; }  // of the piece from there on; may exceed a tile
  __device__ void advance() {
    --left_;
    key_ += kFlashKeys;
    if (key_ < keys_) return;
    ++piece_;
    take_piece();
  }

 private:
  // The first piece that has tiles to be seen, behind skip_ of them.
  __device__ void take_piece() {
    for (; !is_over(); ++piece_) {
      keys_ = piece().num_tokens;
      if (mask == PieceMask::causal) keys_ = min(keys_, last_position_ - piece().first_position + 1);
      key_ = skip_ * kFlashKeys;
      if (key_ < keys_) break;
      skip_ -= max(0, (keys_ + kFlashKeys - 1) / kFlashKeys);
    }
    skip_ = 0;
  }

  const PieceKernelParams& params_;
  int piece_ = 0, last_position_, key_ = 0, keys_ = 0, left_, skip_;
};

template <int kRows>
__device__ int last_position_of(const WorkOfPiece& work) {
  return work.piece->first_position + min(work.first_row + kRows, work.piece->num_tokens) - 1;
}

// Of the state: element of l and m, that by head_dim of o.
__device__ std::int64_t first_state(const PieceKernelParams& params, const WorkOfPiece& work) {
  return (static_cast<std::int64_t>(work.batch) * params.num_heads + work.head) * work.piece->num_tokens;
}

// Brings the o that a work continues with to L2 while the block computes the work before.
template <int kHeadDim>
__device__ void bring_state(const PieceKernelParams& params, const WorkOfPiece& work) {
  const int rows = min(PieceSums<kHeadDim>::kRows, work.piece->num_tokens - work.first_row);
  prefetch_bytes(work.piece->o + (first_state(params, work) + work.first_row) * kHeadDim,
                 static_cast<std::uint32_t>(rows) * kHeadDim * sizeof(float));
}

enum class PieceOperand : std::uint8_t { keys, values };

// Loads all tiles of keys, and before those of an item its queries; or all tiles of values. One warp.
template <PieceOperand what, int kHeadDim, PieceMask mask>
__device__ void load_pieces(const PieceKernelParams& params, PieceShared<kHeadDim>& shared) {
  using Shared = PieceShared<kHeadDim>;
  using QueryTile = typename Shared::QueryTile;
  using KeyTile = typename Shared::KeyTile;
  constexpr int kGroups = Shared::kGroups, kRows = Shared::kRows, kBlocks = KeyTile::kColumnBlocks;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  auto& ring = what == PieceOperand::keys ? shared.key_ring : shared.value_ring;
  auto& tiles = what == PieceOperand::keys ? shared.keys : shared.values;
  RingProducer<Shared::kSlots> query_at;
  RingProducer<Shared::kStages> at;
  for (int index = 0;; ++index) {
    const PieceItem item = params.shares.item(static_cast<int>(blockIdx.x), index);
    if (item.is_over()) return;
    const WorkOfPiece work = work_at<mask, kRows>(params, item.work);
    if constexpr (what == PieceOperand::keys) {
      Mbarrier& full = shared.query_ring.full(query_at);
      shared.query_ring.wait_until_empty(query_at, params.waits);
      if (lane == 0) full.arrive_expecting(kGroups * QueryTile::kBytes);
      __syncwarp();
      if (lane < kGroups * kBlocks) {  // a box each
        const int group = lane / kBlocks, block = lane % kBlocks;
        acquire_map(work.piece->map);
        copy_box(shared_address(shared.queries[query_at.slot()][group]) + block * QueryTile::kBlockBytes,
                 work.piece->map,
                 HeadBox{block * QueryTile::kBoxColumns, work.first_row + group * kFlashRows, work.head, work.batch},
                 full.address());
      }
      query_at.advance();
      if (params.start == PieceStart::carried && item.first == 0 && lane == 0) bring_state<kHeadDim>(params, work);
    }
    bool begins = true;
    const int head = work.head / params.group;
    for (KeyWalk<mask> walk(params, item, last_position_of<kRows>(work)); !walk.is_over();
         walk.advance(), at.advance()) {
      const CUtensorMap& map = what == PieceOperand::keys ? walk.piece().keys : walk.piece().values;
      ring.wait_until_empty(at, params.waits);
      if (lane == 0) ring.full(at).arrive_expecting(KeyTile::kBytes);
      __syncwarp();
      if (lane < kBlocks) {
        if (begins || walk.first_key() == 0) acquire_map(map);
        copy_box(shared_address(tiles[at.slot()]) + lane * KeyTile::kBlockBytes, map,
                 HeadBox{lane * KeyTile::kBoxColumns, walk.first_key(), head, work.batch}, ring.full(at).address());
      }
      begins = false;
    }
  }
}

// Attention of one warpgroup's rows of each item.
template <class T, int kHeadDim, PieceMask mask>
class PieceRows : FlashRows<T, PieceShared<kHeadDim>, PieceKernelParams> {
  using Base = FlashRows<T, PieceShared<kHeadDim>, PieceKernelParams>;
  using Base::kRows, Base::params_;
  using Sums = PieceSums<kHeadDim>;

 public:
  using Base::Base;

  __device__ void run() {
    for (int index = 0;; ++index) {
      const PieceItem item = item_at(index);
      if (item.is_over()) return;
      Base::wait_for_queries();
      attend(item);
      // Found again, because an item kept through the loop over keys would cost registers that it has not.
      store(item_at(index));
    }
  }

 private:
  __device__ PieceItem item_at(int index) const { return params_.shares.item(static_cast<int>(blockIdx.x), index); }
  static __device__ FlashTile tile_of(const WorkOfPiece& work) { return {work.first_row, work.piece->num_tokens}; }
  template <class Float>
  __device__ FlashState<Float> state_of(const WorkOfPiece& work) const {
    const PieceQueries& piece = *work.piece;
    return {piece.o, piece.l, piece.m, first_state(params_, work)};
  }

  __device__ void attend(const PieceItem& item) {
    const WorkOfPiece work = work_at<mask, kRows>(params_, item.work);
    Base::clear_state();
    if (params_.start == PieceStart::carried && item.first == 0)
      Base::load_state(tile_of(work), state_of<const float>(work));
    const int first_position = work.piece->first_position + work.first_row + Base::group_row();
    KeyWalk<mask> walk(params_, item, last_position_of<kRows>(work));
    Base::attend(walk, [&](const KeyWalk<mask>& at) {
      if constexpr (mask == PieceMask::full)
        Base::hide_behind(at.num_keys());
      else
        Base::hide_later(at.num_keys(), first_position, at.piece().first_position + at.first_key());
    });
  }

  __device__ void store(const PieceItem& item) {
    if (mask == PieceMask::full && !params_.shares.is_whole(item) && !merge(item)) return;
    const WorkOfPiece work = work_at<mask, kRows>(params_, item.work);
    if (params_.end == PieceEnd::carry) return Base::store_state(tile_of(work), state_of<float>(work));
    const PieceQueries& piece = *work.piece;
    T* const y = static_cast<T*>(piece.y) + work.batch * piece.y_strides.batch + work.head * piece.y_strides.head;
    Base::store_rows(tile_of(work), y, piece.y_strides.token);
  }

  // Leaves the sums of a part of a work for the last block that has one. In that, takes the sums of all and returns true.
  __device__ bool merge(const PieceItem& item) {
    constexpr FlashTile kAll{0, Sums::kRows};
    const PieceShares& shares = params_.shares;
    const int block = static_cast<int>(blockIdx.x);
    Base::store_state(kAll, Sums::at(params_.sums, PieceShares::slot(block, item.first == 0)));
    const int first = shares.first_block(item.work), last = shares.last_block(item.work);
    if (!is_last_to_arrive(item.work, last - first + 1)) return false;
    const auto sums_of = [&](int of) {
      return Sums::at(static_cast<const float*>(params_.sums), PieceShares::slot(of, of == first));
    };
    Base::clear_state();
    Base::load_state(kAll, sums_of(first));
    for (int of = first + 1; of <= last; ++of) Base::merge_state(kAll, sums_of(of));
    return true;
  }

  // Whether `blocks` blocks have come here with this warp's rows of a work. The last finds what the others have stored.
  __device__ bool is_last_to_arrive(int work, int blocks) const {
    constexpr int kWarps = Sums::kRows / 16;
    const int warp = static_cast<int>(threadIdx.x) / 32 - 4;  // behind those of the producers
    const int divided = work - params_.shares.first_divided();
    unsigned before = 0;
    __syncwarp();
    if (threadIdx.x % 32 == 0) {
      unsigned* const arrivals = params_.arrivals + divided * kWarps + warp;
      before = atomic_add<Order::acq_rel, Scope::gpu>(arrivals, 1u);
      if (before + 1 == static_cast<unsigned>(blocks)) atomic_store<Order::relaxed, Scope::gpu>(arrivals, 0u);
    }
    __syncwarp();  // all lanes read behind what the first has acquired
    return __shfl_sync(~0u, before, 0) + 1 == static_cast<unsigned>(blocks);
  }
};

template <class T, int kHeadDim, PieceMask mask>
__global__ void __launch_bounds__(128 * (groups_for(kHeadDim) + 1), 1)
    piece_attention_kernel(const __grid_constant__ PieceKernelParams params) {
  constexpr int kGroups = groups_for(kHeadDim);
  extern __shared__ std::byte shared_bytes[];
  auto& shared = flash_shared<PieceShared<kHeadDim>>(shared_bytes);
  let_later_kernels_start();
  wait_for_earlier_kernels();
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);  // warp-uniform, and the compiler knows it
  if (warp < 4) {
    give_up_registers<kGroups == 3 ? 32 : 40>();
    if (warp == 0) load_pieces<PieceOperand::keys, kHeadDim, mask>(params, shared);
    if (warp == 1) load_pieces<PieceOperand::values, kHeadDim, mask>(params, shared);
  } else {
    take_registers<kGroups == 3 ? 160 : 232>();
    PieceRows<T, kHeadDim, mask>(params, shared, warp / 4 - 1).run();
  }
}

template <class F>
bool with_piece_head_dim(int head_dim, F f) {
  switch (head_dim) {
    case 32:
      f(std::integral_constant<int, 32>());
      return true;
    case 64:
      f(std::integral_constant<int, 64>());
      return true;
    case 128:
      f(std::integral_constant<int, 128>());
      return true;
    default:
      return false;
  }
}

bool are_aligned(const PieceStrides& strides) {
  return strides.batch % 8 == 0 && strides.token % 8 == 0 && strides.head % 8 == 0;
}

struct TableParts {
  std::size_t keys_values, first_tiles, arrivals, bytes;  // where they begin
};

// Works that are divided are those of two rounds at most.
int most_divided(Device device) {
  return 2 * num_sms_of(device);
}

TableParts parts_of(const PieceLayout& layout) {
  const std::size_t num_queries = layout.queries().size(), num_keys_values = layout.keys_values().size();
  const std::size_t keys_values = num_queries * sizeof(PieceQueries);
  const std::size_t first_tiles = keys_values + num_keys_values * sizeof(PieceKeysValues);
  const std::size_t arrivals = first_tiles + (num_queries + 1) * sizeof(int);
  const int warps = groups_for(layout.shape().head_dim) * 4;
  return {keys_values, first_tiles, arrivals,
          arrivals + static_cast<std::size_t>(most_divided(layout.device()) * warps) * sizeof(unsigned)};
}

std::size_t bytes_of_sums(const PieceShape& shape, int blocks) {
  const int rows = groups_for(shape.head_dim) * kFlashRows;
  return static_cast<std::size_t>(blocks * PieceShares::kSlotsOfBlock) * static_cast<std::size_t>(rows) *
         static_cast<std::size_t>(shape.head_dim + 2) * sizeof(float);
}

// Blocks that divide works read the keys of a head at different places, which is as fast while they stay in the L2 cache.
constexpr std::int64_t kMostDividedBytes = std::int64_t{25} << 20;

PieceShares shares_of(const PieceAttentionParams& params, int works, const Lane& lane) {
  const PieceShape& shape = params.layout->shape();
  int key_tiles = 0;
  std::int64_t keys = 0;
  for (const KeyValuePiece& piece : params.layout->keys_values()) {
    key_tiles += ceil_div(piece.num_tokens, kFlashKeys);
    keys += piece.num_tokens;
  }
  const bool divides = params.mask == PieceMask::full &&
                       lane.workspace.size_bytes >= bytes_of_sums(shape, lane.num_sms) &&
                       is_aligned(lane.workspace.data) &&
                       keys * shape.head_dim * 2 * static_cast<std::int64_t>(size_of(shape.dtype)) <= kMostDividedBytes;
  return divides ? PieceShares::divided(works, key_tiles, lane.num_sms)
                 : PieceShares(works, key_tiles, std::min(works, lane.num_sms));
}

CUtensorMap map_of(const PieceShape& shape, const void* data, const PieceStrides& strides, int heads, int tokens,
                   int box_tokens) {
  const bool wide = shape.head_dim % 64 == 0;
  // Of a dimension of one, any stride will do that TMA takes.
  const auto stride = [&](std::int64_t elements) {
    return static_cast<std::uint64_t>(elements > 0 ? elements : shape.head_dim);
  };
  return tensor_map("piece_attention",
                    HeadBoxes{.data = data,
                              .batch = static_cast<std::uint64_t>(shape.batch),
                              .heads = static_cast<std::uint64_t>(heads),
                              .tokens = static_cast<std::uint64_t>(tokens),
                              .head_dim = static_cast<std::uint64_t>(shape.head_dim),
                              .batch_stride = stride(strides.batch),
                              .head_stride = stride(strides.head),
                              .token_stride = stride(strides.token),
                              .box_tokens = static_cast<std::uint32_t>(box_tokens),
                              .box_columns = wide ? 64u : 32u,
                              .swizzle = wide ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
                              .promotion = CU_TENSOR_MAP_L2_PROMOTION_L2_256B});
}

}  // namespace

std::string why_no_piece_kernel(const PieceShape& shape, const std::vector<QueryPiece>& queries,
                                const std::vector<KeyValuePiece>& keys_values) {
  if (!with_piece_head_dim(shape.head_dim, [](auto) {}))
    return fmt::format("head_dim is {}, expected 32, 64 or 128", shape.head_dim);
  if (shape.dtype == DType::float32) return "dtype is float32, expected bfloat16 or float16";
  const auto fits = [](const void* data, const PieceStrides& strides) {
    return is_aligned(data) && are_aligned(strides);
  };
  for (std::size_t i = 0; i < queries.size(); ++i)
    if (queries[i].num_tokens > 0 && (!fits(queries[i].q, queries[i].q_strides) ||
                                      !fits(queries[i].y, queries[i].y_strides) || !is_aligned(queries[i].o)))
      return fmt::format("query piece {} has rows that are not aligned to 16 bytes", i);
  for (std::size_t i = 0; i < keys_values.size(); ++i)
    if (keys_values[i].num_tokens > 0 &&
        (!fits(keys_values[i].k, keys_values[i].strides) || !is_aligned(keys_values[i].v)))
      return fmt::format("key/value piece {} has rows that are not aligned to 16 bytes", i);
  return {};
}

std::vector<std::byte> piece_table_sm90(const PieceLayout& layout) {
  const PieceShape& shape = layout.shape();
  const std::vector<QueryPiece>& queries = layout.queries();
  const std::vector<KeyValuePiece>& keys_values = layout.keys_values();
  const TableParts parts = parts_of(layout);
  std::vector<std::byte> table(parts.bytes);
  std::vector<int> first_tiles{0};
  const int rows = groups_for(shape.head_dim) * kFlashRows;
  for (std::size_t i = 0; i < queries.size(); ++i) {
    const QueryPiece& of = queries[i];
    PieceQueries entry{};
    if (of.num_tokens > 0) entry.map = map_of(shape, of.q, of.q_strides, shape.num_heads, of.num_tokens, kFlashRows);
    entry.y = of.y;
    entry.y_strides = of.y_strides;
    entry.o = of.o;
    entry.l = of.l;
    entry.m = of.m;
    entry.num_tokens = of.num_tokens;
    entry.first_position = of.first_position;
    std::memcpy(table.data() + i * sizeof entry, &entry, sizeof entry);
    first_tiles.push_back(first_tiles.back() + ceil_div(of.num_tokens, rows));
  }
  for (std::size_t i = 0; i < keys_values.size(); ++i) {
    const KeyValuePiece& of = keys_values[i];
    PieceKeysValues entry{};
    if (of.num_tokens > 0) {
      entry.keys = map_of(shape, of.k, of.strides, shape.num_kv_heads, of.num_tokens, kFlashKeys);
      entry.values = map_of(shape, of.v, of.strides, shape.num_kv_heads, of.num_tokens, kFlashKeys);
    }
    entry.num_tokens = of.num_tokens;
    entry.first_position = of.first_position;
    std::memcpy(table.data() + parts.keys_values + i * sizeof entry, &entry, sizeof entry);
  }
  std::memcpy(table.data() + parts.first_tiles, first_tiles.data(), first_tiles.size() * sizeof(int));
  return table;
}

std::size_t piece_attention_workspace_sm90(const PieceShape& shape, Device device) {
  return bytes_of_sums(shape, num_sms_of(device));
}

void piece_attention_sm90(const PieceAttentionParams& params, const Lane& lane) {
  const PieceLayout& layout = *params.layout;
  const PieceShape& shape = layout.shape();
  std::byte* const table = layout.table();
  const TableParts parts = parts_of(layout);
  const int rows = groups_for(shape.head_dim) * kFlashRows;
  std::int64_t num_tiles = 0;
  for (const QueryPiece& piece : layout.queries()) num_tiles += ceil_div(piece.num_tokens, rows);
  const int num_works = narrow<int>(num_tiles * shape.batch * shape.num_heads, "tiles of queries");
  if (num_works == 0) return;
  const PieceShares shares = shares_of(params, num_works, lane);
  const PieceKernelParams kernel{.queries = reinterpret_cast<const PieceQueries*>(table),
                                 .keys_values = reinterpret_cast<const PieceKeysValues*>(table + parts.keys_values),
                                 .first_tiles = reinterpret_cast<const int*>(table + parts.first_tiles),
                                 .num_queries = static_cast<int>(layout.queries().size()),
                                 .num_keys_values = static_cast<int>(layout.keys_values().size()),
                                 .num_tiles = static_cast<int>(num_tiles),
                                 .num_heads = shape.num_heads,
                                 .batch = shape.batch,
                                 .group = shape.num_heads / shape.num_kv_heads,
                                 .score_scale = params.scale * static_cast<float>(M_LOG2E),
                                 .start = params.start,
                                 .end = params.end,
                                 .shares = shares,
                                 .sums = static_cast<float*>(lane.workspace.data),
                                 .arrivals = reinterpret_cast<unsigned*>(table + parts.arrivals),
                                 .waits = waits_of(lane.stream, "piece attention")};
  with_piece_head_dim(shape.head_dim, [&](auto head_dim) {
    constexpr int kHeadDim = decltype(head_dim)::value;
    const LaunchShape launch{.grid = dim3(static_cast<unsigned>(shares.blocks())),
                             .block = dim3(128 * (groups_for(kHeadDim) + 1)),
                             .shared_bytes = flash_shared_bytes<PieceShared<kHeadDim>>()};
    with_16_bit_element(shape.dtype, [&]<class T>() {
      if (params.mask == PieceMask::full)
        launch_sm90("piece_attention", piece_attention_kernel<T, kHeadDim, PieceMask::full>, launch, lane, kernel);
      else
        launch_sm90("piece_attention", piece_attention_kernel<T, kHeadDim, PieceMask::causal>, launch, lane, kernel);
    });
  });
}

}  // namespace heddle
