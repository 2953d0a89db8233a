// Local work of cores between the GEMMs of a transformer layer, with its sums along a line. Tiles hold one token per
// row; the axis of a feature is the one along which features are distributed.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/strategy.h"
#include "wafer/mesh/timed_mesh.h"
#include "wafer/programs/partition.h"

namespace heddle {

// y = x / sqrt(mean(x^2) + eps) * weight for each row of a tile; its `size` features lie along `axis`.
void rms_norm(mesh::TimedMesh& mesh, const AllReduceOptions& all_reduce, mesh::Tile x, mesh::Tile weight, mesh::Tile y,
              mesh::Axis axis, int size, float eps);

// x += y; where y has one row (a bias), it is added to every row of x.
void add(mesh::TimedMesh& mesh, mesh::Tile x, mesh::Tile y);

// y = gate / (1 + exp(-gate)) * up.
void swiglu(mesh::TimedMesh& mesh, mesh::Tile gate, mesh::Tile up, mesh::Tile y);

// RMSNorm of each head by itself, in place (Qwen3). x lies along x as `pieces` says, which name the head of every pair
// of columns; `weight` [head_dim] lies like x. One reduction along x serves all heads.
void norm_heads(mesh::TimedMesh& mesh, const AllReduceOptions& all_reduce, mesh::Tile x, mesh::Tile weight,
                std::span<const HeadColumns> pieces, int num_heads, int head_dim, float eps);

// Row i of places begins at position first + i * per_row; row r of its tiles is r positions later.
struct Positions {
  std::int64_t first = 0;
  std::int64_t per_row = 0;
  std::int64_t of(int i, int r) const { return first + i * per_row + r; }
};

// Applies rotary positions to heads in place (kernels/attention/rope.h); x [.., members * 2 * units] lies along x as
// `heads` says.
void rotate(mesh::TimedMesh& mesh, mesh::Tile x, const HeadPartition& heads, std::span<const float> inv_freq,
            float scale, Positions positions);

}  // namespace heddle
