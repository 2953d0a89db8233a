#include "wafer/programs/core_work.h"

#include <cmath>

namespace heddle {

using mesh::Axis;
using mesh::Buffers;
using mesh::Reduction;
using mesh::Tile;
using mesh::TimedMesh;
using mesh::ValueMesh;

void rms_norm(TimedMesh& mesh, const AllReduceOptions& all_reduce, Tile x, Tile weight, Tile y, Axis axis, int size,
              float eps) {
  const int places = mesh.grid().columns;
  const Tile sum = mesh.allocate("sum of squares", x.rows, 1, Buffers::two);
  mesh.apply({.macs = 1.0 * x.rows * x.columns}, [&](ValueMesh& values, int i) {
    for (int r = 0; r < x.rows; ++r) {
      float* s = values.at(sum, i, r, 0);
      for (int c = 0; c < x.columns; ++c) {
        const float* z = values.at(x, i, r, c);
        for (int j = 0; j < places; ++j) s[j] += z[j] * z[j];
      }
    }
  });
  mesh.all_reduce(sum, axis, Reduction::sum, all_reduce);
  mesh.apply({.values = 2.0 * x.rows * x.columns}, [&](ValueMesh& values, int i) {
    for (int r = 0; r < x.rows; ++r) {
      float* s = values.at(sum, i, r, 0);
      for (int j = 0; j < places; ++j) s[j] = 1 / std::sqrt(s[j] / static_cast<float>(size) + eps);
      for (int c = 0; c < x.columns; ++c) {
        const float *z = values.at(x, i, r, c), *w = values.at(weight, i, 0, c);
        float* result = values.at(y, i, r, c);
        for (int j = 0; j < places; ++j) result[j] = z[j] * s[j] * w[j];
      }
    }
  });
  mesh.release(sum);
}

void norm_heads(TimedMesh& mesh, const AllReduceOptions& all_reduce, Tile x, Tile weight,
                std::span<const HeadColumns> pieces, int num_heads, int head_dim, float eps) {
  const Tile sums = mesh.allocate("sums of squares", x.rows, num_heads, Buffers::two);
  mesh.apply({.macs = 1.0 * x.rows * x.columns}, [&](ValueMesh& values, int i) {
    for (int r = 0; r < x.rows; ++r)
      for (const auto& [column, head, begin, end] : pieces) {
        const float *a = values.at(x, i, r, column), *b = values.at(x, i, r, column + 1);
        float* s = values.at(sums, i, r, head);
        for (int j = begin; j < end; ++j) s[j] += a[j] * a[j] + b[j] * b[j];
      }
  });
  mesh.all_reduce(sums, Axis::x, Reduction::sum, all_reduce);
  mesh.apply({.values = 2.0 * x.rows * x.columns}, [&](ValueMesh& values, int i) {
    for (int r = 0; r < x.rows; ++r)
      for (const auto& [column, head, begin, end] : pieces)
        for (const int c : {column, column + 1}) {
          const float *s = values.at(sums, i, r, head), *w = values.at(weight, i, 0, c);
          float* z = values.at(x, i, r, c);
          for (int j = begin; j < end; ++j) z[j] *= 1 / std::sqrt(s[j] / static_cast<float>(head_dim) + eps) * w[j];
        }
  });
  mesh.release(sums);
}

void add(TimedMesh& mesh, Tile x, Tile y) {
  const int places = mesh.grid().columns;
  mesh.apply({.values = 1.0 * x.rows * x.columns}, [&](ValueMesh& values, int i) {
    for (int r = 0; r < x.rows; ++r)
      for (int c = 0; c < x.columns; ++c) {
        float* to = values.at(x, i, r, c);
        const float* from = values.at(y, i, y.rows == 1 ? 0 : r, c);
        for (int j = 0; j < places; ++j) to[j] += from[j];
      }
  });
}

void swiglu(TimedMesh& mesh, Tile gate, Tile up, Tile y) {
  const int places = mesh.grid().columns;
  mesh.apply({.values = 2.0 * y.rows * y.columns}, [&](ValueMesh& values, int i) {
    for (int r = 0; r < y.rows; ++r)
      for (int c = 0; c < y.columns; ++c) {
        const float *g = values.at(gate, i, r, c), *u = values.at(up, i, r, c);
        float* to = values.at(y, i, r, c);
        for (int j = 0; j < places; ++j) to[j] = g[j] / (1 + std::exp(-g[j])) * u[j];
      }
  });
}

void rotate(TimedMesh& mesh, Tile x, const HeadPartition& heads, std::span<const float> inv_freq, float scale,
            Positions positions) {
  const int places = mesh.grid().columns, members = x.columns / (2 * heads.units);
  mesh.apply({.values = 1.0 * x.rows * x.columns}, [&](ValueMesh& values, int i) {
    std::vector<float> cosine(inv_freq.size()), sine(inv_freq.size());
    for (int r = 0; r < x.rows; ++r) {
      const auto position = static_cast<float>(positions.of(i, r));
      for (std::size_t pair = 0; pair < inv_freq.size(); ++pair) {
        const double angle =
            position * inv_freq[pair];  // the product rounds to float32, as kernels/attention/rope.h says
        cosine[pair] = static_cast<float>(std::cos(angle)) * scale;
        sine[pair] = static_cast<float>(std::sin(angle)) * scale;
      }
      for (int member = 0; member < members; ++member)
        for (int u = 0; u < heads.units; ++u) {
          const int column = 2 * (member * heads.units + u);
          float *low = values.at(x, i, r, column), *high = values.at(x, i, r, column + 1);
          for (int j = 0; j < places; ++j) {
            const auto pair = static_cast<std::size_t>(heads.pair(j, u));
            const float a = low[j], b = high[j];
            low[j] = a * cosine[pair] - b * sine[pair];
            high[j] = b * cosine[pair] + a * sine[pair];
          }
        }
    }
  });
}

}  // namespace heddle
