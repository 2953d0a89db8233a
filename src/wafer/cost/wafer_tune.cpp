#include "wafer/cost/wafer_tune.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"

namespace heddle {
namespace {

constexpr int kCoarse = 10;        // step between sides in decode's first search
constexpr int kMostSides = 1200;   // sides searched along an axis; of larger devices not every side
constexpr std::size_t kSeeds = 6;  // best candidates of the first search, around which the second one searches

struct Candidate {
  WaferMesh mesh;
  double cycles = std::numeric_limits<double>::infinity();
};

struct Search {
  const PlmrDevice& device;
  const WaferModel& model;
  WaferWork work;
  double bytes;  // that all regions must hold
  RegionCount count = RegionCount::side_by_side;

  int width() const { return static_cast<int>(device.mesh_width.value); }
  int height() const { return static_cast<int>(device.mesh_height.value); }

  int step() const { return (std::max(width(), height()) - 1) / kMostSides + 1; }

  // A quick test: whether the regions have enough memory in total.
  bool may_fit(WaferMesh mesh) const {
    const RegionRoom room = region_room(device, mesh);
    const int regions =
        std::min(count == RegionCount::side_by_side ? room.side_by_side : room.by_cores, model.num_layers);
    return 1.0 * regions * mesh.width * mesh.height * device.sram_bytes.value >= bytes;
  }
  WaferWork on(WaferMesh mesh) const {
    WaferWork there = work;
    (work.phase == WaferPhase::prefill ? there.prefill_mesh : there.decode_mesh) = mesh;
    return there;
  }
  std::optional<Candidate> look_at(WaferMesh mesh, const WaferWork& as) const {
    try {
      if (const auto cycles = fitting_cycles(device, model, as, count)) return Candidate{mesh, *cycles};
    } catch (const InputError&) {  // thrown for a single layer
    }
    return std::nullopt;
  }
  // Times every token as the middle one, which is fast enough for many meshes. Memory is that of the last token.
  std::optional<Candidate> glance_at(WaferMesh mesh) const {
    WaferWork middle = on(mesh);
    middle.context += middle.output - 1;
    middle.output = 1;
    if (!look_at(mesh, middle)) return std::nullopt;
    return Candidate{mesh, decode_layer_cost(device, model, mesh, work.context + work.output / 2).cycles()};
  }
  [[noreturn]] void fail() const {
    const int side = std::min(width(), height());
    try {
      check_fits_side_by_side(device, model, on({side, side}));
    } catch (const InputError& error) {
      throw_error<InputError>("no mesh of {} would do; {}", device.name, error.what());
    }
    throw_error<InvalidArgument>("{} x {} would do", side, side);
  }
};

bool is_faster(const Candidate& a, const Candidate& b) {
  return a.cycles < b.cycles;
}

// GEMMs take as many steps as the least common multiple of the sides; beyond twice the longer side they never win.
std::optional<WaferMesh> best_for_prefill(const Search& search) {
  Candidate best;
  for (int w = search.width(); w >= 3; w -= search.step())
    for (int h = search.height(); h >= 3; h -= search.step()) {
      const WaferMesh mesh{w, h};
      if (evener_mesh(mesh) || !search.may_fit(mesh)) continue;
      if (const auto found = search.look_at(mesh, search.on(mesh)); found && is_faster(*found, best)) best = *found;
    }
  if (best.mesh.width == 0) return std::nullopt;
  return best.mesh;
}

// Estimates all squares, a grid of rectangles, and the sides that share the device evenly; then all sides around the
// best of them.
std::optional<WaferMesh> best_for_decode(const Search& search) {
  std::vector<Candidate> seeds;
  const auto glance = [&](WaferMesh mesh) {
    if (!search.may_fit(mesh)) return;
    if (const auto found = search.glance_at(mesh)) seeds.push_back(*found);
  };
  const int coarse = kCoarse * search.step();
  for (int w = search.width(); w >= 3; w -= coarse)
    for (int h = search.height(); h >= 3; h -= coarse) glance({w, h});
  for (int side = std::min(search.width(), search.height()); side >= 3; side -= search.step()) glance({side, side});
  // The sizes at which one more region fits side by side.
  for (int columns = 1; search.width() / columns >= 3; ++columns)
    for (int rows = 1; rows * columns <= search.model.num_layers && search.height() / rows >= 3; ++rows)
      glance({search.width() / columns, search.height() / rows});
  if (seeds.empty()) return std::nullopt;
  std::ranges::stable_sort(seeds, is_faster);
  seeds.resize(std::min(seeds.size(), kSeeds));
  Candidate best;
  for (const Candidate& seed : seeds)
    for (int w = std::max(3, seed.mesh.width - kCoarse); w <= std::min(search.width(), seed.mesh.width + kCoarse); ++w)
      for (int h = std::max(3, seed.mesh.height - kCoarse); h <= std::min(search.height(), seed.mesh.height + kCoarse);
           ++h) {
        const WaferMesh mesh{w, h};
        if (!search.may_fit(mesh)) continue;
        const auto found = search.glance_at(mesh);
        if (found && is_faster(*found, best)) best = *found;
      }
  // Decides between equal estimates by the exact time of the whole request.
  Candidate exact;
  for (int w = std::max(3, best.mesh.width - 2); w <= std::min(search.width(), best.mesh.width + 2); ++w)
    for (int h = std::max(3, best.mesh.height - 2); h <= std::min(search.height(), best.mesh.height + 2); ++h) {
      const auto found = search.look_at({w, h}, search.on({w, h}));
      if (found && is_faster(*found, exact)) exact = *found;
    }
  return exact.mesh;
}

// Side by side if possible, else by the number of cores, as the paper counts.
template <class BestOf>
WaferMesh best_of(Search search, const BestOf& best) {
  for (const RegionCount count : {RegionCount::side_by_side, RegionCount::by_cores}) {
    search.count = count;
    if (const auto mesh = best(search)) return *mesh;
  }
  search.fail();
}

}  // namespace

WaferTuning tune_wafer(const PlmrDevice& device, const WaferModel& model, std::int64_t context, std::int64_t output) {
  require(context > 0 && output > 0, "{} tokens of prompt, {} of output", context, output);
  WaferWork work{.phase = WaferPhase::end_to_end, .context = context, .output = output};
  const double weights = wafer_weight_bytes(model);
  const Search prefill{
      .device = device, .model = model, .work = {.phase = WaferPhase::prefill, .context = context}, .bytes = weights};
  const Search decode{.device = device,
                      .model = model,
                      .work = {.phase = WaferPhase::decode, .context = context, .output = output},
                      .bytes = weights + wafer_kv_bytes(model) * static_cast<double>(context + output)};
  work.prefill_mesh = best_of(prefill, best_for_prefill);
  work.decode_mesh = best_of(decode, best_for_decode);
  return {work.prefill_mesh, work.decode_mesh, predict_wafer(device, model, work)};
}

}  // namespace heddle
