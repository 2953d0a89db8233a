#include "wafer/programs/memory.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.h"
#include "wafer/cost/wafer_regions.h"
#include "wafer/mesh/core_budget.h"
#include "wafer/mesh/gemm.h"
#include "wafer/programs/partition.h"

namespace heddle {
namespace {

// Tile sizes: hidden, queries, keys, intermediate, vocabulary.
struct TileSides {
  double h, q, k, f, v;
  double layer() const { return h * (2 * q + 2 * k + 3 * f); }  // weights
};

// Hidden is split over `hidden_line` cores, all else over `line`.
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

double wafer_prefill_core_bytes(const WaferModel& model, WaferMesh cores, int regions, std::int64_t tokens,
                                PromptKv home) {
  const mesh::Grid grid = mesh::Grid::square(cores, mesh::LineOrder::interleaved);
  const TileSides sides = tile_sides(model, grid.columns, grid.columns);
  const double h = sides.h, q = sides.q, k = sides.k, f = sides.f;
  const double t = mesh::tile_side(tokens, grid.rows);
  // A GEMM: its weight, the second buffer of its operand, its result.
  const auto product = [&](double in, double out) { return in * out + t * in + t * out; };
  const double attention = t * (h + q + 2 * k);  // normed, q, k, v
  const int layers = longest_share(model, regions);
  // Of all layers; in the last one's attention, its own are among the activations.
  const double kv = home == PromptKv::held ? 2 * t * k * layers : 0;
  const double before_last = home == PromptKv::held ? 2 * t * k * (layers - 1) : 0;
  const double in_attention = std::max({
      t * h + h + 2 * t,                // a norm
      t * h + product(h, q),            // q
      t * (h + q + k) + product(h, k),  // v
      attention + t * q + (3 + model.num_kv_heads) * t * t + 2 * t * k +
          std::max(t * k, 4 * t),         // one head of each KV head
      attention + t * q + product(q, h),  // output
  });
  const double in_feed_forward = std::max({
      t * h + h + 2 * t,                // a norm
      t * (h + f) + product(h, f),      // up
      t * (h + 2 * f) + product(f, h),  // down
  });
  const double most = std::max(before_last + in_attention, kv + in_feed_forward);
  return kValueBytes * grid.tiles_a_core() * (layers * sides.layer() + t * h + most);
}

double wafer_decode_core_bytes(const WaferModel& model, WaferMesh cores, int regions, std::int64_t tokens_in_row) {
  const TileSides sides = tile_sides(model, cores.height, cores.width);
  const double h = sides.h, q = sides.q, k = sides.k, f = sides.f, v = sides.v;
  const double slots = static_cast<double>(tokens_in_row), heads = model.num_heads;
  const double attention = h + 2 * q + 4 * k + 2 * q + std::max(2 * slots * heads + 4 * heads, 2 * h);
  const double feed_forward = h + 4 * f + 2 * h;
  const auto values = [&](int layers, bool has_embedding, bool has_output) {
    const int tables = has_embedding && has_output && !model.tied_embedding ? 2 : 1;
    const double placed = 2 * h + layers * (sides.layer() + 2 * h) + tables * h * v + 2 * k * layers * slots;
    const double at_the_end = h + h + 2 * v + 6;  // the last norm, normed, logits, the token chosen
    return placed + std::max({attention + (has_output ? h : 0), feed_forward + (has_output ? h : 0),
                              has_output ? at_the_end : 0});
  };
  const std::vector<LayerRange> layers = region_layers(model.num_layers, regions);
  return kValueBytes * std::max(values(layers.front().count(), true, regions == 1),
                                values(layers.back().count(), regions == 1, true));
}

namespace {

// Per core, with `regions` regions.
WaferFit bytes_in_regions(const WaferModel& model, WaferMesh cores, int regions, std::int64_t tokens,
                          std::int64_t tokens_in_row, PromptKv home) {
  return {.regions = regions,
          .prefill_bytes = tokens > 0 ? wafer_prefill_core_bytes(model, cores, regions, tokens, home) : 0,
          .decode_bytes = tokens_in_row > 0 ? wafer_decode_core_bytes(model, cores, regions, tokens_in_row) : 0};
}

double need(const WaferFit& fit) {
  return std::max(fit.prefill_bytes, fit.decode_bytes);
}

// The least number of regions, up to `most`, that hold everything; 0: none.
int least_regions(const PlmrDevice& device, const WaferModel& model, WaferMesh cores, std::int64_t tokens,
                  std::int64_t tokens_in_row, int most, PromptKv home = PromptKv::held) {
  const auto fits = [&](int regions) {
    return need(bytes_in_regions(model, cores, regions, tokens, tokens_in_row, home)) <= device.sram_bytes.value;
  };
  if (most < 1 || !fits(most)) return 0;
  int regions = 1;
  while (!fits(regions)) ++regions;
  return regions;
}

// Of prefill, on a core.
double weight_bytes(const WaferModel& model, WaferMesh cores, int regions) {
  const mesh::Grid grid = mesh::Grid::square(cores, mesh::LineOrder::interleaved);
  return kValueBytes * grid.tiles_a_core() * longest_share(model, regions) *
         tile_sides(model, grid.columns, grid.columns).layer();
}

// Bytes of an idle core below a region that gets all keys and values of the region: its column's, shared evenly.
double spilled_bytes(const WaferModel& model, WaferMesh cores, int regions, std::int64_t tokens,
                     const CoreRectangle& idle) {
  const mesh::Grid grid = mesh::Grid::square(cores, mesh::LineOrder::interleaved);
  const double a_layer =
      2.0 * mesh::tile_side(tokens, grid.rows) * tile_sides(model, grid.columns, grid.columns).k * grid.tiles_a_core();
  return kValueBytes * a_layer * longest_share(model, regions) * std::ceil(1.0 * cores.height / idle.height);
}

// Regions whose keys and values fit on idle cores; 0 regions: none.
WaferFit spilled(const PlmrDevice& device, const WaferModel& model, WaferMesh cores, std::int64_t tokens,
                 std::int64_t tokens_in_row, int regions, int most) {
  if (tokens == 0) return {};
  const int least = regions > 0 ? regions : 1;
  for (int count = least; count <= (regions > 0 ? regions : most); ++count) {
    const auto idle = idle_cores_below(device, cores, count);
    if (!idle) return {};
    WaferFit fit = bytes_in_regions(model, cores, count, tokens, tokens_in_row, PromptKv::spilled);
    fit.spill = idle;
    fit.spill_bytes = spilled_bytes(model, cores, count, tokens, *idle);
    if (need(fit) <= device.sram_bytes.value && fit.spill_bytes <= device.sram_bytes.value) return fit;
  }
  return {};
}

// The end of an error message: what would be large enough.
std::string cure(const PlmrDevice& device, const WaferModel& model, WaferMesh cores, std::int64_t tokens,
                 std::int64_t tokens_in_row) {
  if (const int regions = least_regions(device, model, cores, tokens, tokens_in_row,
                                        std::min(region_room(device, cores).side_by_side, model.num_layers));
      regions > 0)
    return fmt::format("{} regions would do", regions);
  const int longest = static_cast<int>(std::min(device.mesh_width.value, device.mesh_height.value));
  const std::int64_t in_all_rows = tokens_in_row * cores.height;
  for (int side = 3; side <= longest; ++side) {
    const WaferMesh square{side, side};
    const int regions = least_regions(device, model, square, tokens, (in_all_rows - 1) / side + 1,
                                      std::min(region_room(device, square).side_by_side, model.num_layers));
    if (regions > 0)
      return fmt::format("the smallest square mesh that would do is {} x {}, in {} region(s)", side, side, regions);
  }
  return "no square mesh of the device would do, in any number of regions";
}

}  // namespace

WaferFit fit_wafer_regions(const PlmrDevice& device, const WaferModel& model, WaferMesh cores, std::int64_t tokens,
                           std::int64_t tokens_in_row, int regions) {
  const mesh::CoreBudget refuses_what_is_no_mesh(device, mesh::Grid::of_cores(cores));
  const int on_device = region_room(device, cores).side_by_side, most = std::min(on_device, model.num_layers);
  if (regions > on_device)
    throw_error<InputError>("{} regions of {} x {}, but the {} x {} of {} make {}", regions, cores.width, cores.height,
                            device.mesh_width.value, device.mesh_height.value, device.name, on_device);
  if (regions > model.num_layers) throw_error<InputError>("{} regions share {} layers", regions, model.num_layers);
  const int found = least_regions(device, model, cores, tokens, tokens_in_row, regions > 0 ? regions : most);
  WaferFit fit =
      bytes_in_regions(model, cores, regions > 0 ? regions : std::max(found, 1), tokens, tokens_in_row, PromptKv::held);
  if (found == 0) fit = spilled(device, model, cores, tokens, tokens_in_row, regions, most);
  if (fit.regions == 0) {
    fit = bytes_in_regions(model, cores, regions > 0 ? regions : most, tokens, tokens_in_row, PromptKv::held);
    const bool in_prefill = fit.prefill_bytes > fit.decode_bytes;
    const double without =
        bytes_in_regions(model, cores, fit.regions, tokens, tokens_in_row, PromptKv::spilled).prefill_bytes;
    const std::string of_kv = in_prefill
                                  ? fmt::format(" ({:.0f} of them weights, {:.0f} the prompt's keys and values)",
                                                weight_bytes(model, cores, fit.regions), fit.prefill_bytes - without)
                                  : "";
    throw_error<InputError>(
        "core (0, 0) of {} x {}, {}: {} layer(s) a region in {} region(s), of {} that {} and {} layers make, with {} "
        "tokens "
        "of prompt and {} in a row of cores need {:.0f} bytes{}, but a core of {} has {:.0f}, {:.0f} too few; {}",
        cores.width, cores.height, in_prefill ? "prefill" : "decode", longest_share(model, fit.regions), fit.regions,
        most, device.name, model.num_layers, tokens, tokens_in_row, need(fit), of_kv, device.name,
        device.sram_bytes.value, need(fit) - device.sram_bytes.value,
        cure(device, model, cores, tokens, tokens_in_row));
  }
  if (tokens_in_row == 0) return fit;
  std::int64_t low = tokens_in_row, high = tokens_in_row + 1;  // low fits, high does not
  const auto fits = [&](std::int64_t row) {
    return wafer_decode_core_bytes(model, cores, fit.regions, row) <= device.sram_bytes.value;
  };
  while (fits(high)) low = high, high *= 2;
  while (high - low > 1) (fits((low + high) / 2) ? low : high) = (low + high) / 2;
  fit.row_tokens = low;
  return fit;
}

}  // namespace heddle
