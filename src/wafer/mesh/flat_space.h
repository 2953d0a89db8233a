// A mesh as a compiler for another machine sees it: one flat address space, whose cores are all equally near. Neighbouring
// addresses lie on cores that are far apart: Fibonacci hashing (Knuth, The Art of Computer Programming, 6.4), as memories
// interleave addresses over banks. No cost was fitted to it.
#pragma once

#include <cmath>
#include <cstdint>
#include <numeric>

#include "wafer/cost/wafer_cost.h"

namespace heddle::mesh {

struct FlatSpace {
  std::int64_t cores = 0, stride = 1;

  static FlatSpace of(WaferMesh mesh) {
    constexpr double kGoldenRatio = 0.6180339887498949;
    FlatSpace space{.cores = std::int64_t{mesh.width} * mesh.height};
    space.stride = std::llround(kGoldenRatio * static_cast<double>(space.cores));
    while (std::gcd(space.stride, space.cores) != 1) ++space.stride;
    return space;
  }

  // Consecutive addresses visit every core once before they come back to the first. Precondition: address >= 0.
  int core(std::int64_t address) const { return static_cast<int>(address % cores * stride % cores); }
  // How often addresses below this one have visited its core.
  int slot(std::int64_t address) const { return static_cast<int>(address / cores); }
};

}  // namespace heddle::mesh
