#include "parallel/split_rule.h"

#include <algorithm>

namespace heddle {

std::string_view name_of(SplitKind kind) {
  return kind == SplitKind::none ? "none" : kind == SplitKind::equal ? "equal" : "smart";
}

int LayerTiles::granule() const {
  int largest = 0;
  for (const schedule::TokenTiles& kernel : kernels) largest = std::max(largest, kernel.tile_tokens);
  return largest;
}

int prefix_tokens(const SplitOptions& options, const LayerTiles& tiles, int num_tokens) {
  const int granule = tiles.granule();
  if (options.kind == SplitKind::none || granule == 0) return 0;
  if (num_tokens < std::max(options.min_tokens, 2 * granule)) return 0;
  const schedule::TokenSplit split = options.kind == SplitKind::equal
                                         ? schedule::equal_split(tiles.kernels, num_tokens, granule, tiles.num_sms)
                                         : schedule::smart_split(tiles.kernels, num_tokens, granule, tiles.num_sms);
  return split.suffix > 0 ? split.prefix : 0;
}

}  // namespace heddle
