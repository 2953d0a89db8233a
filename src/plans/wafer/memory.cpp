#include "plans/wafer/memory.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

#include "base/error.h"
#include "fabric/mesh/gemm.h"
#include "plans/wafer/partition.h"
#include "topology/wafer_regions.h"

namespace heddle {
namespace {

// Sides of tiles: hidden, queries, keys, intermediate, vocabulary.
struct TileSides {
  double h, q, k, f, v;
  double layer() const { return h * (2 * q + 2 * k + 3 * f); }  // weights
};

// Hidden lies along `hidden_line` cores, all else along `line`.
TileSides tile_sides(const WaferModel& model, int hidden_line, int line) {
  const HeadPartition heads = head_partition(model.num_heads, model.num_kv_heads, model.head_dim, line);
  const auto side = [](int size, int cores) { return static_cast<double>(mesh::tile_side(size, cores)); };
  return {side(model.hidden, hidden_line), static_cast<double>(heads.queries.tile),
          static_cast<double>(heads.keys.tile), side(model.intermediate, line), side(model.vocab, line)};
}

int longest_share(const WaferModel& model, int regions) {
  return region_layers(model.num_layers, regions).front().count();
}

}  // namespace

double wafer_prefill_core_bytes(const WaferModel& model, WaferMesh cores, int regions, std::int64_t tokens) {
  const mesh::Grid grid = mesh::Grid::square(cores, mesh::LineOrder::interleaved);
  const auto [h, q, k, f, v] = tile_sides(model, grid.columns, grid.columns);
  const TileSides sides{h, q, k, f, v};
  const double t = mesh::tile_side(tokens, grid.rows);
  // A product's weight, the second buffer of its operand, its result.
  const auto product = [&](double in, double out) { return in * out + t * in + t * out; };
  const double attention = t * (h + q + 2 * k);  // normed, q, k, v
  const double most = std::max({
      t * h + h + 2 * t,                                                   // a norm
      t * h + product(h, q),                                               // q
      t * (h + q + k) + product(h, k),                                     // v
      attention + t * q + 4 * t * t + 2 * t * k + std::max(t * k, 4 * t),  // a head
      attention + t * q + product(q, h),                                   // output
      t * (h + f) + product(h, f),                                         // up
      t * (h + 2 * f) + product(f, h),                                     // down
  });
  return kValueBytes * grid.tiles_a_core() * (longest_share(model, regions) * sides.layer() + t * h + most);
}

double wafer_decode_core_bytes(const WaferModel& model, WaferMesh cores, int regions, std::int64_t tokens_in_row) {
  const auto [h, q, k, f, v] = tile_sides(model, cores.height, cores.width);
  const TileSides sides{h, q, k, f, v};
  const double slots = static_cast<double>(tokens_in_row), heads = model.num_heads;
  const int layers = longest_share(model, regions), tables = regions == 1 && !model.tied_embedding ? 2 : 1;
  const double placed = 2 * h + layers * (sides.layer() + 2 * h) + h + tables * h * v + 2 * k * layers * slots;
  const double most = std::max({
      h + 2 * q + 4 * k + 2 * q + std::max(2 * slots * heads + 4 * heads, 2 * h),  // attention
      h + 4 * f + 2 * h,                                                           // feed-forward
      h + 2 * v,                                                                   // logits
      h + 2,                                                                       // a norm
  });
  return kValueBytes * (placed + most);
}

WaferFit fit_wafer_regions(const PlmrDevice& device, const WaferModel& model, WaferMesh cores, std::int64_t tokens,
                           std::int64_t tokens_in_row, int regions) {
  const double in_device = std::floor(device.num_cores.value / (static_cast<double>(cores.width) * cores.height));
  const int most = static_cast<int>(std::clamp(in_device, 1.0, 1.0 * model.num_layers));
  if (regions > in_device)
    throw_error<InputError>("{} regions of {} x {}, but the {:.0f} cores of {} make {:.0f}", regions, cores.width,
                            cores.height, device.num_cores.value, device.name, in_device);
  if (regions > model.num_layers) throw_error<InputError>("{} regions share {} layers", regions, model.num_layers);
  WaferFit fit;
  for (int n = regions > 0 ? regions : 1; n <= (regions > 0 ? regions : most); ++n) {
    fit = {.regions = n,
           .prefill_bytes = wafer_prefill_core_bytes(model, cores, n, tokens),
           .decode_bytes = wafer_decode_core_bytes(model, cores, n, tokens_in_row)};
    if (std::max(fit.prefill_bytes, fit.decode_bytes) > device.sram_bytes.value) continue;
    std::int64_t low = tokens_in_row, high = tokens_in_row + 1;  // low fits, high does not
    const auto fits = [&](std::int64_t row) {
      return wafer_decode_core_bytes(model, cores, n, row) <= device.sram_bytes.value;
    };
    while (fits(high)) low = high, high *= 2;
    while (high - low > 1) (fits((low + high) / 2) ? low : high) = (low + high) / 2;
    fit.row_tokens = low;
    return fit;
  }
  throw_error<InputError>(
      "{} tokens in each row of {} x {} cores: in {} region(s), prefill of {} takes {:.0f} bytes a core and decode "
      "{:.0f}, "
      "but a core of {} has {:.0f}",
      tokens_in_row, cores.width, cores.height, fit.regions, tokens, fit.prefill_bytes, fit.decode_bytes, device.name,
      device.sram_bytes.value);
}

}  // namespace heddle
