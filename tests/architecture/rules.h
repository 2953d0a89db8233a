// The rules of docs/architecture.md on a checkout. Each check gives one line for every fault: "file:line: include:
// why".
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "architecture/source_tree.h"

namespace heddle::architecture {

using Faults = std::vector<std::string>;

// A module is a folder of src, or a sub-folder that has arrows of its own; a module without them holds its sub-folders.
// It uses itself and what lies downstream of it:
//   apps -> {engine, wafer};  engine -> {models, text};  models -> layers -> parallel -> {fused, collectives}
//   {fused, collectives} -> {fabric, kernels} -> device
//   {engine, models, layers, parallel, fused} -> step;  {engine, models, layers, parallel} -> weights
//   {parallel, collectives, fabric, wafer} -> machine;  {device, fabric, wafer} -> schedule
//   wafer/programs -> {models, wafer/mesh} -> ...;  wafer/mesh -> wafer/cost;  everything -> base
// Within a module, a sub-folder uses the module's own files and another sub-folder only along an arrow:
//   kernels/{attention, moe} -> kernels/linear -> kernels/rows;  fused/linear_all_reduce -> fused/linear_reduce_scatter
//   fabric/hierarchical -> fabric/{mpi, nvlink, staged};  fabric/{mpi, nvlink} -> fabric/shm
Faults check_directions(const SourceTree& tree);

// Every quoted include names a file of ours, and every include directive can be parsed.
Faults check_resolution(const SourceTree& tree);

// A .h of kernels, fused and collectives includes no CUDA header, neither directly nor through other headers of ours.
Faults check_operator_headers(const SourceTree& tree);

// In src and apps, only src/fabric/<name>/ includes the headers of NCCL and MPI.
Faults check_communication_headers(const SourceTree& tree);

// Each non-empty folder of src, apps, tests, bench, tools and docs has a README.md.
Faults check_readmes(const std::filesystem::path& root);

}  // namespace heddle::architecture
