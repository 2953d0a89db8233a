#include "wafer/cost/kv_accounting.h"

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "wafer/cost/wafer_regions.h"

namespace heddle {
namespace {

// Bytes of a core of one region.
struct Region {
  double weights, token;
};

// The regions that may hold the fewest tokens. Whole layers: the two regions with a table have the fewest of them.
std::vector<Region> regions_of(const WaferModel& model, WaferMesh mesh, int regions, const KvAccounting& way) {
  const double cores = 1.0 * mesh.width * mesh.height, layers = model.num_layers;
  const double layer = wafer_weight_bytes(model) / layers / cores, token = wafer_kv_bytes(model) / layers / mesh.width;
  const double table = way.tables ? kValueBytes * model.vocab * model.hidden / cores : 0;
  const double tables = model.tied_embedding ? table : 2 * table;
  if (!way.whole_layers) return {{(layers * layer + tables) / regions, layers * token / regions}};
  if (regions == 1) return {{layers * layer + tables, layers * token}};
  const std::vector<LayerRange> ranges = region_layers(model.num_layers, regions);  // the longest first
  const double most = ranges.front().count(), with_table = ranges[ranges.size() - 2].count();
  return {{with_table * layer + table, with_table * token}, {most * layer + (regions == 2 ? table : 0), most * token}};
}

}  // namespace

std::vector<KvAccounting> kv_accountings(const PlmrDevice& device, const WaferModel& model, WaferMesh mesh,
                                         int regions) {
  require(regions >= 1 && regions <= model.num_layers, "{} regions of {} layers", regions, model.num_layers);
  region_room(device, mesh);  // refuses what is no mesh
  const auto tile = [](std::int64_t size, int cores) {
    return static_cast<double>(ceil_div(size, std::int64_t{cores}));
  };
  const std::int64_t queries = std::int64_t{model.num_heads} * model.head_dim;
  const double buffers = kValueBytes * (tile(model.hidden, mesh.height) + 3 * tile(queries, mesh.width) +
                                        2 * tile(model.intermediate, mesh.width));
  const double score = kValueBytes;
  std::vector<KvAccounting> ways;
  for (const bool fitted : {false, true})
    for (const bool tables : {true, false})
      for (const bool whole : {true, false}) {
        KvAccounting way{.tables = tables, .whole_layers = whole, .fitted_reserve = fitted};
        way.beside_bytes = fitted ? KvCapacityOptions{}.reserve_bytes : buffers;
        double fewest = 9e15 / mesh.height;
        for (const Region& region : regions_of(model, mesh, regions, way)) {
          const double a_token = region.token + (fitted ? 0 : score);
          const double tokens = (device.sram_bytes.value - way.beside_bytes - region.weights) / a_token;
          if (way.token_bytes > 0 && tokens >= fewest) continue;
          fewest = std::min(fewest, tokens);
          way.weight_bytes = region.weights;
          way.token_bytes = a_token;
        }
        if (fewest > 0) {
          way.concat_tokens = static_cast<std::int64_t>(fewest);
          way.shift_tokens = static_cast<std::int64_t>(fewest * mesh.height);
        }
        ways.push_back(way);
      }
  return ways;
}

}  // namespace heddle
