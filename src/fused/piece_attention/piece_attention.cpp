#include "fused/piece_attention/piece_attention.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/checked.h"
#include "base/dtype_switch.h"
#include "base/error.h"
#include "base/thread_pool.h"
#include "fused/piece_attention/piece_attention_sm90.h"
#include "kernels/attention/attention_part.h"
#include "kernels/pieces.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE \
  "fused/piece_attention/piece_attention.cpp"  // Highway includes this file again for each instruction set
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>
#include "kernels/attention/attention-inl.h"
#include "kernels/attention/attention_loop-inl.h"

#ifndef HEDDLE_FUSED_PIECE_WORK
#define HEDDLE_FUSED_PIECE_WORK
namespace heddle {

// A tile of one head and one member of the batch.
struct PieceWork {
  PieceTile tile;
  int batch;
  int head;
};

}  // namespace heddle
#endif

HWY_BEFORE_NAMESPACE();
namespace heddle::HWY_NAMESPACE {

// Adds the keys and values of one piece to the rows' state.
template <class W>
void add_piece(const PieceAttentionParams& params, const KeyValuePiece& piece, const PieceWork& work,
               typename WidenedProducts<W>::Scratch& scratch) {
  using Products = WidenedProducts<W>;
  const PieceShape& shape = params.layout->shape();
  const int head_dim = shape.head_dim, width = padded(head_dim), num_rows = work.tile.num_tokens;
  const std::int64_t at =
      work.batch * piece.strides.batch + work.head / (shape.num_heads / shape.num_kv_heads) * piece.strides.head;
  const auto* keys = static_cast<const W*>(piece.k) + at;
  const auto* values = static_cast<const W*>(piece.v) + at;
  const bool causal = params.mask == PieceMask::causal;
  const int first_position = params.layout->queries()[work.tile.piece].first_position + work.tile.first_token;

  for (int block = 0; block < piece.num_tokens; block += kBlockKeys) {
    int block_end = std::min(kBlockKeys, piece.num_tokens - block);
    const int block_position = piece.first_position + block;
    // The last row sees the most keys.
    if (causal) block_end = visible_keys(first_position + num_rows - 1, 0, block_position, block_end).end;
    if (block_end == 0) break;
    const int whole_tiles = round_up(block_end, kTileKeys);
    const Keys all{.first = 0, .begin = 0, .end = block_end, .width = width, .columns = width};
    const auto take = [&](const W* from) {
      from += block * piece.strides.token;
      for (int key = 0; key < block_end; ++key, from += piece.strides.token)
        Products::take_key_or_value(scratch, key, from, head_dim, width);
    };
    // Values replace the keys in scratch.kv after the first group of rows. Later groups score against the transposed
    // keys; where rows are too few to transpose, there is one group.
    for (RowGroup rows{0, 0}; rows.begin < num_rows; rows.begin = rows.end) {
      rows.end = std::min(rows.begin + rows_of_group(head_dim, num_rows), num_rows);
      Visible seen[kMaxGroupRows];
      for (int row = rows.begin; row < rows.end; ++row)
        seen[rows.slot(row)] =
            causal ? visible_keys(first_position + row, 0, block_position, block_end) : Visible{0, block_end};
      if (rows.begin == 0) {
        take(keys);
        Products::prepare_keys(scratch, all, whole_tiles);
      }
      Products::score(scratch, rows, all, whole_tiles);
      weigh_group<Products>(scratch, rows, seen, whole_tiles, width);
      if (rows.begin == 0) {
        take(values);
        Products::prepare_values(scratch, all);
      }
      Products::add_values(scratch, rows, all, seen);
    }
  }
}

template <class W>
void attend_tile(const PieceAttentionParams& params, const PieceWork& work) {
  using Products = WidenedProducts<W>;
  const PieceShape& shape = params.layout->shape();
  const QueryPiece& piece = params.layout->queries()[work.tile.piece];
  const int head_dim = shape.head_dim, width = padded(head_dim), num_rows = work.tile.num_tokens;
  const std::int64_t first_state =
      (std::int64_t{work.batch} * shape.num_heads + work.head) * piece.num_tokens + work.tile.first_token;

  typename Products::Scratch scratch;
  const auto row_of = [&](const PieceStrides& strides, int row) {
    return work.batch * strides.batch + work.head * strides.head + (work.tile.first_token + row) * strides.token;
  };
  for (int row = 0; row < num_rows; ++row) {
    float q[kMaxHeadDim];
    widen(static_cast<const W*>(piece.q) + row_of(piece.q_strides, row), head_dim, head_dim, q);
    Products::take_query(scratch, row, num_rows, q, params.scale, head_dim, width);
    float* o = scratch.o + row * width;
    if (params.start == PieceStart::fresh) {
      scratch.largest[row] = -std::numeric_limits<float>::infinity();
      scratch.sum[row] = 0;
      std::fill_n(o, width, 0.0f);
    } else {
      scratch.largest[row] = piece.m[first_state + row];
      scratch.sum[row] = piece.l[first_state + row];
      widen(piece.o + (first_state + row) * head_dim, head_dim, width, o);
    }
  }

  for (const KeyValuePiece& keys_values : params.layout->keys_values())
    add_piece<W>(params, keys_values, work, scratch);

  for (int row = 0; row < num_rows; ++row) {
    const float* o = scratch.o + row * width;
    if (params.end == PieceEnd::carry) {
      piece.m[first_state + row] = scratch.largest[row];
      piece.l[first_state + row] = scratch.sum[row];
      std::copy_n(o, head_dim, piece.o + (first_state + row) * head_dim);
    } else {
      const float sum = scratch.sum[row] == 0 ? 1.0f : scratch.sum[row];  // o is 0 where it saw no key
      W* const y = static_cast<W*>(piece.y) + row_of(piece.y_strides, row);
      if constexpr (std::is_same_v<W, float16>) {
        float quotients[kMaxHeadDim];
        divide_row(o, sum, quotients, head_dim);
        convert(quotients, DType::float32, y, DType::float16, static_cast<std::size_t>(head_dim));
      } else {
        divide_row(o, sum, y, head_dim);
      }
    }
  }
}

void attend_pieces(const PieceAttentionParams& params, const PieceWork& work) {
  with_element(params.layout->shape().dtype, [&]<class W>() { attend_tile<W>(params, work); });
}

}  // namespace heddle::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace heddle {
namespace {

HWY_EXPORT(attend_pieces);

void piece_attention_cpu(const PieceAttentionParams& params, ThreadPool& pool) {
  const PieceLayout& layout = *params.layout;
  const PieceShape& shape = layout.shape();
  const std::int64_t num_tiles = layout.num_tiles(), num_works = num_tiles * shape.batch * shape.num_heads;
  if (num_works == 0) return;
  const auto attend = HWY_DYNAMIC_DISPATCH(attend_pieces);
  const auto work_of_each = static_cast<std::int64_t>(layout.flops() / 2 / static_cast<double>(num_works));
  pool.parallel_for(num_works, rows_per_piece(work_of_each), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const auto head = static_cast<int>(i / num_tiles % shape.num_heads);
      const auto batch = static_cast<int>(i / num_tiles / shape.num_heads);
      attend(params, {layout.tile(i % num_tiles), batch, head});
    }
  });
}

}  // namespace

std::size_t piece_attention_workspace(const PieceShape& shape, Device device) {
  if constexpr (kHaveCuda) {
    if (device.kind == DeviceKind::cuda) return piece_attention_workspace_sm90(shape, device);
  }
  return 0;
}

void piece_attention(const PieceAttentionParams& params, const Lane& lane) {
  require(params.layout != nullptr, "piece_attention: layout is null");
  if (params.end == PieceEnd::finalise)
    for (std::size_t i = 0; i < params.layout->queries().size(); ++i)
      require(params.layout->queries()[i].y != nullptr || params.layout->queries()[i].num_tokens == 0,
              "piece_attention: query piece {} is finalised and has a null y", i);
  require(lane.stream.device() == params.layout->device(), "piece_attention: a layout of {} on a stream of {}",
          name_of(params.layout->device()), name_of(lane.stream.device()));
  if constexpr (kHaveCuda) {
    if (lane.stream.device().kind == DeviceKind::cuda) {
      require(params.scale > 0, "piece_attention: scale is {}, expected more than 0 on a GPU", params.scale);
      return piece_attention_sm90(params, lane);
    }
  }
  lane.stream.enqueue([params](ThreadPool& pool) { piece_attention_cpu(params, pool); });
}

}  // namespace heddle
#endif
