// Moves the pieces that an all-gather has put behind each other to their places in a matrix.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/stream.h"
#include "fused/shards.h"

namespace heddle {

// Piece r is [piece_rows, piece_columns], of which rank r's shard fills the first rows or columns.
struct PiecePlaces {
  Shards shards;
  bool of_rows;                // shards are of the matrix's rows; else of its columns
  std::int64_t rows, columns;  // of the matrix
  std::int64_t piece_rows;     // of each piece, so that piece r begins at row r * piece_rows
  std::int64_t piece_columns;
  std::size_t element_bytes;
  const std::byte* pieces;
  std::byte* matrix;
};

// Enqueues; on a GPU on `sms` SMs.
void place_pieces(const PiecePlaces& places, int sms, Stream& stream);

}  // namespace heddle
