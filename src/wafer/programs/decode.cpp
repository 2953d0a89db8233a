#include "wafer/programs/decode.h"

#include <algorithm>

#include "base/error.h"
#include "wafer/mesh/gemm.h"

namespace heddle {

double wafer_decode_bytes(const WaferModel& model, WaferMesh cores) {
  const double places = static_cast<double>(cores.height) * static_cast<double>(mesh::value_pitch(cores.width));
  const HeadPartition heads = head_partition(model.num_heads, model.num_kv_heads, model.head_dim, cores.width);
  const auto tile = [](int size, int line) { return static_cast<double>(mesh::tile_side(size, line)); };
  const double hidden = tile(model.hidden, cores.height), attention = 2.0 * heads.queries.tile + 2.0 * heads.keys.tile;
  const double feed_forward = 3 * tile(model.intermediate, cores.width);
  const double layer = hidden * (attention + feed_forward), output = hidden * tile(model.vocab, cores.width);
  return sizeof(float) * places * (model.num_layers * layer + layer + output);
}

WaferDecode::WaferDecode(const WaferWeights& weights, WaferMesh cores, const WaferDecodeOptions& options,
                         ThreadPool& pool)
    : weights_(weights), options_(options), cores_(cores), rows_(cores.height, options.kv_method, options.kv_limits) {
  for (const LayerRange layers : region_layers(weights.shape.num_layers, options.program.regions))
    regions_.push_back(std::make_unique<WaferDecodeRegion>(weights, cores, layers, options.program, rows_, pool));
}

std::vector<float> WaferDecode::decode(std::int32_t token) {
  for (auto& region : regions_) region->reserve(rows_.fullest() + 1);
  const auto passing = rows_.append();
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    WaferDecodeRegion& region = *regions_[i];
    region.append(passing);
    if (i == 0) {
      region.embed(token);
    } else {
      region.receive(*regions_[i - 1],
                     HandOver(options_.program.device, cores_, options_.program.regions, static_cast<int>(i) - 1));
    }
    region.run_layers();
  }
  std::vector<float> logits = regions_.back()->logits();
  collect_costs();
  return logits;
}

std::vector<float> WaferDecode::take(const WaferPrompt& prompt) {
  require(rows_.size() == 0, "a wafer's decode takes a prompt once");
  rows_.fill(prompt.num_tokens);
  const LayerMoves moves(weights_.shape, prompt.cores, cores_, rows_);
  for (auto& region : regions_) {
    region->reserve(rows_.fullest());
    region->take(prompt, moves);
  }
  regions_.back()->take_hidden(prompt, moves);
  std::vector<float> logits = regions_.back()->logits();
  collect_costs();
  return logits;
}

void WaferDecode::collect_costs() {
  cost_ = {};
  double busy = 0;
  for (auto& region : regions_) {
    const WaferCost cost = region->take_cost();
    busy += cost.cycles();
    cost_.memory_bytes = std::max(cost_.memory_bytes, cost.memory_bytes);
    cost_.routes = std::max(cost_.routes, cost.routes);
    for (const WaferCost::Part& part : cost.breakdown) cost_.add(part.name, part.cycles, part.basis);
  }
  const double all = static_cast<double>(regions_.size()) * cost_.cycles();
  idle_share_ = all > 0 && regions_.size() > 1 ? 1 - busy / all : 0;
}

}  // namespace heddle
