// The attention block of a decoding step in the ways that `heddle bench block` compares, for each kind of attention.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "cli/bench/device.h"
#include "cli/bench/operands.h"
#include "kernels/attention/paged_kv.h"

namespace heddle {

struct BlockBenchOptions {
  std::string shape = "llama-2-7b";
  std::vector<int> contexts{1024, 4096, 16384};
  int batch = 1, layers = 8, repeats = 10;
  int figure = 0;  // of ClusterFusion (block_figures.h); 0: every mapping of the fused block
  std::optional<std::string> json_file;
  std::string svg_file;
};

inline constexpr DType kBlockWeights = DType::float16;
inline constexpr int kBlockPageSize = 64;

// One way to compute the block of one layer.
struct BlockWay {
  std::string name;
  std::function<double()> run;         // all layers once; seconds a layer
  std::optional<double> difference{};  // from the separate operators: |this - those| / |those|; they have none
  nlohmann::ordered_json details{};    // more fields of the record
};

// Layers of one shape and context, whose weights and pages are their own, so that none comes from the cache.
class BlockBench {
 public:
  virtual ~BlockBench() = default;

  // What must be read of a layer, weights, keys and values once, at the rate of the device's memory.
  virtual double floor_seconds() = 0;

  // The separate operators first. What the device cannot run is left out.
  virtual std::vector<BlockWay> ways() = 0;

  virtual BenchDevice& device() = 0;
};

// Of the shape named in `options`; null where there is no such shape of that kind.
std::unique_ptr<BlockBench> make_decode_block_bench(const BlockBenchOptions& options, int context);
std::unique_ptr<BlockBench> make_latent_block_bench(const BlockBenchOptions& options, int context);

// That --shape may name.
std::vector<std::string> decode_block_shapes();
std::vector<std::string> latent_block_shapes();

// Sequences with one new token each, on the device of `operands`; their pages lie in no order.
struct BlockSequences {
  PagedSequences sequences;
  const std::int32_t* positions = nullptr;
  int pages = 0;  // of the cache
};
BlockSequences block_sequences(Operands& operands, int batch, int context);

}  // namespace heddle
