// Figure 12 of the StreamFusion paper: what attention over pieces costs, on one device.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"

namespace heddle {

struct PieceBenchOptions {
  Device device;
  std::vector<int> tokens;  // empty: 512 on the CPU; on a GPU the lengths of the paper's layers
  std::optional<int> head_dim;
  std::optional<int> heads;
  int repeats = 5;
  bool compare = false;  // with PyTorch
};

struct PieceBench {
  std::vector<std::vector<std::string>> cells;  // the first row is the head
  nlohmann::ordered_json fields;                // "device", "rows", ...
  std::string wrong;                            // the first case whose values are wrong; empty: none is
};

// Attention of `heads` heads in one piece; then with keys and values in 4 and 8 pieces, in one call and in a call for each,
// whose state is carried. On the CPU on one thread in float32; on a GPU in bfloat16, each call in a graph, with the rate
// of large GEMMs as the floor. Values of some rows are compared with float64.
PieceBench bench_pieces(const PieceBenchOptions& options);

}  // namespace heddle
