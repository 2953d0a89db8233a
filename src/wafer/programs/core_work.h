// What cores do by themselves between the products and sums of a transformer's layer, with the sums along a line that
// it takes. Tiles hold a token a row; a feature's axis is the one along which features are dealt out.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "parallel/plan.h"
#include "wafer/mesh/timed_mesh.h"
#include "wafer/programs/partition.h"

namespace heddle {

// y = x / sqrt(mean(x^2) + eps) * weight, each row of a tile by itself; features, `size` of them, lie along `axis`.
void rms_norm(mesh::TimedMesh& mesh, const AllReduceOptions& all_reduce, mesh::Tile x, mesh::Tile weight, mesh::Tile y,
              mesh::Axis axis, int size, float eps);

// x += y, or x += y of one row where y has one (a bias).
void add(mesh::TimedMesh& mesh, mesh::Tile x, mesh::Tile y);

// y = gate / (1 + exp(-gate)) * up.
void swiglu(mesh::TimedMesh& mesh, mesh::Tile gate, mesh::Tile up, mesh::Tile y);

// The same of each head by itself, in place (Qwen3): x lies along x as `pieces` says, which name the head of every pair
// of columns; `weight` [head_dim] lies like x. Sums of all heads go along x together.
void norm_heads(mesh::TimedMesh& mesh, const AllReduceOptions& all_reduce, mesh::Tile x, mesh::Tile weight,
                std::span<const HeadColumns> pieces, int num_heads, int head_dim, float eps);

// The first position of row i of places; row r of its tiles is r later.
struct Positions {
  std::int64_t first = 0;
  std::int64_t per_row = 0;
  std::int64_t of(int i, int r) const { return first + i * per_row + r; }
};

// Turns heads in place (kernels/attention/rope.h); x [.., members * 2 * units] lies along x as `heads` says.
void rotate(mesh::TimedMesh& mesh, mesh::Tile x, const HeadPartition& heads, std::span<const float> inv_freq,
            float scale, Positions positions);

}  // namespace heddle
