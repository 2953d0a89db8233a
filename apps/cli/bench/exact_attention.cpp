#include "cli/bench/exact_attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

namespace heddle {

std::vector<float> exact_attention(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                                   int head_dim, float scale) {
  const auto dim = static_cast<std::size_t>(head_dim);
  const std::size_t num_keys = k.size() / dim;
  std::vector<float> result(q.size());
  for (std::size_t row = 0; row < q.size(); row += dim) {
    std::vector<double> weights(num_keys), y(dim);
    for (std::size_t key = 0; key < num_keys; ++key)
      for (std::size_t d = 0; d < dim; ++d) weights[key] += static_cast<double>(q[row + d]) * k[key * dim + d] * scale;
    const double largest = *std::ranges::max_element(weights);
    double sum = 0;
    for (std::size_t key = 0; key < num_keys; ++key) {
      const double weight = std::exp(weights[key] - largest);
      sum += weight;
      for (std::size_t d = 0; d < dim; ++d) y[d] += weight * v[key * dim + d];
    }
    for (std::size_t d = 0; d < dim; ++d) result[row + d] = static_cast<float>(y[d] / sum);
  }
  return result;
}

}  // namespace heddle
