// ClusterFusion's figures that `heddle bench block --figure` measures: what each is of, and its picture.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace heddle {

struct BlockFigure {
  int number;
  std::string words;                // for --help
  std::vector<std::string> shapes;  // each is measured; empty: --shape says which
  bool takes_latents;               // of --shape
  int batch;
  std::vector<int> contexts;  // unless --context says which
};

// In the order of their numbers.
const std::vector<BlockFigure>& block_figures();

// Null: there is no such figure.
const BlockFigure* block_figure(int number);

// From a record of `heddle bench block --figure`, as SVG. Without a figure, that of figure 9.
std::string svg_of_block(const nlohmann::ordered_json& record);

}  // namespace heddle
