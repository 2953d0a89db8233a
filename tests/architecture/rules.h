// The house's rules on a checkout (docs/house.md). Each check gives one line for every fault, "file:line: include:
// why".
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "architecture/source_tree.h"

namespace heddle::architecture {

using Faults = std::vector<std::string>;

// A room uses itself and what lies downstream of it:
//   apps -> engine -> models -> plans -> {fused, collectives} -> {fabric, kernels}
//   {engine, models, plans, fused} -> step;  {engine, models, plans} -> weights -> kernels
//   {plans, fused, collectives, fabric} -> {schedule, topology}
//   {step, weights, fabric, kernels, topology} -> base;  schedule -> nothing
Faults check_directions(const SourceTree& tree);

// Every quoted include is a file of ours; every include can be read as text.
Faults check_resolution(const SourceTree& tree);

// A .h of kernels, fused and collectives leads to no CUDA header, neither itself nor through others of ours.
Faults check_operator_headers(const SourceTree& tree);

// In src and apps, the headers of NCCL and MPI stand in src/fabric/<name>/ alone.
Faults check_communication_headers(const SourceTree& tree);

// Each folder of src, apps, tests, bench, tools and docs that holds anything has a README.md.
Faults check_readmes(const std::filesystem::path& root);

}  // namespace heddle::architecture
