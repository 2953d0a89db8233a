// With a CUDA compiler this file is CUDA, and its body runs on both devices.
#include "cli/bench/place_pieces.h"

#include "device/enqueue_body.h"
#include "device/vector_copy.h"

namespace heddle {
namespace {

struct PlacePieces {
  PiecePlaces places;

  // On a GPU each warp takes a row. A block would read it with one load of each thread at a time, and wait for it.
  template <Group G>
  HEDDLE_HOST_DEVICE void operator()(const G& group) const {
#ifdef __CUDA_ARCH__
    const int warps = group.lanes() / 32;
    place_rows(DeviceWarp{}, group.block() * warps + group.lane() / 32, group.blocks() * warps);
#else
    place_rows(group, group.block(), group.blocks());
#endif
  }

  // Of the rows of each piece, number `first` and every `step`-th behind it.
  template <Group G>
  HEDDLE_HOST_DEVICE void place_rows(const G& group, int first, int step) const {
    const PiecePlaces& p = places;
    for (int rank = 0; rank < p.shards.ranks; ++rank) {
      const std::int64_t rows = p.of_rows ? p.shards.count(rank) : p.rows,
                         columns = p.of_rows ? p.columns : p.shards.count(rank),
                         first_row = p.of_rows ? p.shards.begin(rank) : 0,
                         first_column = p.of_rows ? 0 : p.shards.begin(rank);
      // Pieces are packed: rows of a shorter shard of columns lie closer together.
      for (std::int64_t row = first; row < rows; row += step)
        vector_copy(group,
                    p.matrix + static_cast<std::size_t>((first_row + row) * p.columns + first_column) * p.element_bytes,
                    p.pieces + static_cast<std::size_t>(rank * p.piece_rows * p.piece_columns + row * columns) *
                                   p.element_bytes,
                    static_cast<std::size_t>(columns) * p.element_bytes);
    }
  }
};

}  // namespace

void place_pieces(const PiecePlaces& places, int sms, Stream& stream) {
  enqueue_body(stream, {.blocks = sms < 1 ? 1 : sms, .threads = 512}, PlacePieces{places});
}

}  // namespace heddle
