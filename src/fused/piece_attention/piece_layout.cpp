#include "fused/piece_attention/piece_layout.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/cuda_runtime.h"
#include "base/error.h"
#include "base/stream.h"
#include "fused/piece_attention/piece_attention_sm90.h"

namespace heddle {
namespace {

// More queries of a tile share a block of keys once it is widened and transposed; fewer make more tiles for threads.
constexpr int kTileTokens = 64;
constexpr int kLargestHeadDim = 256;  // up to here a block's 128 keys are widened at once

}  // namespace

PieceLayout::PieceLayout(const PieceShape& shape, std::vector<QueryPiece> queries,
                         std::vector<KeyValuePiece> keys_values, Device device)
    : shape_(shape), queries_(std::move(queries)), keys_values_(std::move(keys_values)), device_(device) {
  require(shape.batch >= 1, "piece_attention: batch is {}, expected 1 or more", shape.batch);
  require(shape.head_dim >= 1 && shape.head_dim <= kLargestHeadDim, "piece_attention: head_dim is {}, expected 1 to {}",
          shape.head_dim, kLargestHeadDim);
  require(shape.num_kv_heads >= 1 && shape.num_heads >= 1 && shape.num_heads % shape.num_kv_heads == 0,
          "piece_attention: num_heads {} is not a multiple of num_kv_heads {}", shape.num_heads, shape.num_kv_heads);
  first_tiles_.push_back(0);
  for (std::size_t i = 0; i < queries_.size(); ++i) {
    const QueryPiece& piece = queries_[i];
    require(piece.num_tokens >= 0, "piece_attention: query piece {} has {} tokens", i, piece.num_tokens);
    require(
        piece.num_tokens == 0 || (piece.q != nullptr && piece.o != nullptr && piece.l != nullptr && piece.m != nullptr),
        "piece_attention: query piece {} has a null q, o, l or m", i);
    first_tiles_.push_back(first_tiles_.back() + ceil_div(piece.num_tokens, kTileTokens));
  }
  for (std::size_t i = 0; i < keys_values_.size(); ++i) {
    const KeyValuePiece& piece = keys_values_[i];
    require(piece.num_tokens >= 0, "piece_attention: key/value piece {} has {} tokens", i, piece.num_tokens);
    require(piece.num_tokens == 0 || (piece.k != nullptr && piece.v != nullptr),
            "piece_attention: key/value piece {} has a null k or v", i);
  }
  if (device.kind == DeviceKind::cuda) make_table();
}

void PieceLayout::make_table() {
  if constexpr (kHaveCuda) {
    const std::string why = why_no_piece_kernel(shape_, queries_, keys_values_);
    require(why.empty(), "piece_attention: {}", why);
    const std::vector<std::byte> table = piece_table_sm90(*this);
    Buffer on_device(table.size(), device_);
    Stream stream(device_);
    cuda::copy(on_device.data(), table.data(), table.size(), stream.native());
    stream.synchronize();
    table_ = std::make_shared<Buffer>(std::move(on_device));
  } else {
    throw_error<InvalidArgument>("piece_attention: this build has no CUDA");
  }
}

PieceTile PieceLayout::tile(std::int64_t tile) const {
  const auto after = std::ranges::upper_bound(first_tiles_, tile);
  const auto piece = static_cast<int>(after - first_tiles_.begin()) - 1;
  const auto first_token = static_cast<int>(tile - first_tiles_[piece]) * kTileTokens;
  return {.piece = piece,
          .first_token = first_token,
          .num_tokens = std::min(kTileTokens, queries_[piece].num_tokens - first_token)};
}

double PieceLayout::flops() const {
  double num_queries = 0, num_keys = 0;
  for (const QueryPiece& piece : queries_) num_queries += piece.num_tokens;
  for (const KeyValuePiece& piece : keys_values_) num_keys += piece.num_tokens;
  return 4.0 * shape_.batch * shape_.num_heads * shape_.head_dim * num_queries * num_keys;
}

}  // namespace heddle
