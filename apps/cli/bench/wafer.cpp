// bench wafer: speed of the wafer simulator. Core-steps per second of the timing mesh, a prefill layer at full size,
// and multiply-accumulates per second of the value mesh. Rates use a thread's CPU time, which other work on the machine
// does not reduce; the layer's seconds are wall-clock time.
#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "cli/bench/bench.h"
#include "cli/bench/record.h"
#include "cli/format_text.h"
#include "wafer/mesh/gemm.h"
#include "wafer/mesh/max_plus_mesh.h"
#include "wafer/mesh/simulate.h"
#include "wafer/mesh/value_mesh.h"

namespace heddle {
namespace {

using WaferClock = std::chrono::steady_clock;

constexpr WaferMesh kFullMesh{720, 720};
constexpr int kValueSide = 128;  // places a side of the value mesh
constexpr int kValueTile = 4;
constexpr std::int64_t kPromptTokens = 4096;
constexpr WaferModel kPrefillModel{.num_layers = 32,
                                   .hidden = 4096,
                                   .intermediate = 14336,
                                   .num_heads = 32,
                                   .num_kv_heads = 8,
                                   .head_dim = 128,
                                   .vocab = 128256};  // llama-3-8b

template <class Work>
double seconds_of(Work&& work) {
  const auto begin = WaferClock::now();
  work();
  return std::chrono::duration<double>(WaferClock::now() - begin).count();
}

// CPU time of all threads of this process; only one works at a time here.
template <class Work>
double processor_seconds_of(Work&& work) {
  const std::clock_t begin = std::clock();
  work();
  return std::max(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 1e-6);
}

// MeshGEMM of 4096 on 720 x 720, with every step simulated.
double core_steps_per_second(const PlmrDevice& device, WaferSync sync) {
  mesh::MaxPlusMesh timing(device, mesh::Grid::square(kFullMesh, mesh::LineOrder::interleaved),
                           {.sync = sync, .stop = mesh::Stop::never});
  const mesh::GemmTiles t = allocate_gemm(timing, {4096, 4096, 4096}, WaferGemm::mesh_gemm);
  const double seconds = processor_seconds_of([&] { mesh::mesh_gemm(timing, t.a, t.b, t.c); });
  return static_cast<double>(timing.core_steps()) / seconds;
}

double value_macs_per_second() {
  ThreadPool pool(1);
  mesh::ValueMesh values(mesh::Grid::square({kValueSide, kValueSide}, mesh::LineOrder::interleaved), pool);
  const std::int64_t size = std::int64_t{kValueSide} * kValueTile;
  const mesh::GemmTiles t = allocate_gemm(values, {size, size, size}, WaferGemm::mesh_gemm);
  for (const mesh::Tile tile : {t.a, t.b})
    for (int i = 0; i < kValueSide; ++i)
      for (int r = 0; r < tile.rows; ++r)
        for (int c = 0; c < tile.columns; ++c)
          for (int j = 0; j < kValueSide; ++j) values.at(tile, i, r, c)[j] = 1;  // a row of zeros would be skipped
  const double seconds = processor_seconds_of([&] {
    mesh::mesh_gemm(values, t.a, t.b, t.c);
    values.settle();
  });
  if (values.at(t.c, 0, 0, 0)[0] != static_cast<float>(size)) throw Failure("the value mesh's product is wrong");
  return static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) / seconds;
}

}  // namespace

BenchResult bench_wafer(const BenchOptions& options) {
  const InterruptGuard guard;
  const PlmrDevice device = plmr_preset("wse-2");
  std::vector<double> timing, rendezvous, layer, values;
  double cycles = 0;
  for (int i = 0; i < options.repeats; ++i) {
    stop_if_interrupted(guard);
    timing.push_back(core_steps_per_second(device, WaferSync::dataflow));
    rendezvous.push_back(core_steps_per_second(device, WaferSync::rendezvous));
    stop_if_interrupted(guard);
    layer.push_back(
        seconds_of([&] { cycles = mesh::simulate_prefill_layer(device, kPrefillModel, kFullMesh, kPromptTokens); }));
    values.push_back(value_macs_per_second());
  }
  PlmrDevice padded = device;  // the program pads its tiles; the paper's system spreads them
  padded.tile_rounding.value = 1;
  const double closed = prefill_layer_cost(padded, kPrefillModel, kFullMesh, kPromptTokens).cycles();
  BenchResult result;
  result.fields = {{"threads", 1},
                   {"rates_of", "the thread's processor time"},
                   {"mesh", {kFullMesh.width, kFullMesh.height}},
                   {"timing_core_steps_per_second", spread(timing)},
                   {"timing_rendezvous_core_steps_per_second", spread(rendezvous)},
                   {"prefill_layer",
                    {{"model", "llama-3-8b"},
                     {"tokens", kPromptTokens},
                     {"seconds", spread(layer)},
                     {"cycles", cycles},
                     {"closed_form_cycles", closed}}},
                   {"values_macs_per_second", spread(values)},
                   {"values_tile", kValueTile}};
  result.table = table_text(
      {{"", "median", "p10", "p90"},
       {"timing, 1e9 core-steps/s", fmt::format("{:.2f}", median(timing) / 1e9),
        fmt::format("{:.2f}", quantile(timing, 0.1) / 1e9), fmt::format("{:.2f}", quantile(timing, 0.9) / 1e9)},
       {"with rendezvous", fmt::format("{:.2f}", median(rendezvous) / 1e9),
        fmt::format("{:.2f}", quantile(rendezvous, 0.1) / 1e9), fmt::format("{:.2f}", quantile(rendezvous, 0.9) / 1e9)},
       {"prefill layer, s", fmt::format("{:.3f}", median(layer)), fmt::format("{:.3f}", quantile(layer, 0.1)),
        fmt::format("{:.3f}", quantile(layer, 0.9))},
       {"values, GMAC/s", fmt::format("{:.2f}", median(values) / 1e9),
        fmt::format("{:.2f}", quantile(values, 0.1) / 1e9), fmt::format("{:.2f}", quantile(values, 0.9) / 1e9)}});
  return result;
}

}  // namespace heddle
