// MeshGEMV (WaferLLM, section 6): y [n] = x [k] B [k, n], with k along `axis` and n across it. All lines along the axis
// hold the same x. The all-reduce completes y and leaves it at all places of such a line. The next GEMV can therefore
// run along the other axis without a transpose. Tiles are ceil(size / places) wide, padded with zeros. Of a batch each
// core has a row of x and of y for each vector: it multiplies them one after the other and sums them in one all-reduce.
#pragma once

#include "wafer/mesh/gemm.h"

namespace heddle::mesh {

struct GemvTiles {
  Tile x, b, y;
};

template <Mesh M>
GemvTiles allocate_gemv(M& mesh, std::int64_t k, std::int64_t n, Axis axis = Axis::y, int batch = 1) {
  mesh.phase("allocation");
  const int inner = tile_side(k, mesh.grid().places(axis)), outer = tile_side(n, mesh.grid().places(across(axis)));
  return {.x = mesh.allocate("x", batch, inner, Buffers::one),
          .b = mesh.allocate("B", inner, outer, Buffers::one),
          .y = mesh.allocate("y", batch, outer, Buffers::two)};
}

template <Mesh M>
void mesh_gemv(M& mesh, const GemvTiles& t, Axis axis = Axis::y, const AllReduceOptions& options = {}) {
  mesh.phase("local GEMV");
  mesh.clear(t.y);
  mesh.multiply_vector(t.x, t.b, t.y);
  mesh.phase("all-reduce");
  mesh.all_reduce(t.y, axis, Reduction::sum, options);
}

}  // namespace heddle::mesh
