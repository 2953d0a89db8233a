// The rules of docs/architecture.md on a checkout. Each check gives one line for every fault: "file:line: include: why".
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "architecture/source_tree.h"

namespace heddle::architecture {

using Faults = std::vector<std::string>;

// A room is a folder of src, or a sub-folder that has arrows of its own; a room without them holds its sub-folders. It uses
// itself and what lies downstream of it:
//   apps -> {engine, wafer};  engine -> {models, text};  models -> layers -> parallel -> {fused, collectives}
//   {fused, collectives} -> {fabric, kernels} -> device
//   {engine, models, layers, parallel, fused} -> step;  {engine, models, layers, parallel} -> weights
//   {parallel, collectives, fabric, wafer} -> machine;  {device, fabric, wafer} -> schedule
//   wafer/programs -> {models, wafer/mesh} -> ...;  wafer/mesh -> wafer/cost;  everything -> base
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
