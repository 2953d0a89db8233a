// Attention in float64, and a bound on the error of float32.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/dtype.h"
#include "fused/piece_attention/piece_attention.h"

namespace heddle {

// Q [batch, num_queries, num_heads, head_dim]; K and V [batch, num_keys, num_kv_heads, head_dim]. A causal query sees
// the keys up to its own index.
struct WholeAttention {
  int batch, num_heads, num_kv_heads, head_dim;
  int num_queries, num_keys;
  float scale;
  PieceMask mask = PieceMask::full;
  DType dtype = DType::float32;
  std::vector<float> q, k, v;
  bool rounds_weights = false;  // what is checked multiplies weights of 16 bits: the GPU's kernel
};

// Normal numbers that `dtype` holds.
inline std::vector<float> normal_numbers(std::size_t count, unsigned seed, DType dtype, float scale = 1) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> result(count);
  for (float& x : result) {
    x = normal(engine) * scale;
  }
  std::vector<std::byte> bytes(count * size_of(dtype));
  convert(result.data(), DType::float32, bytes.data(), dtype, count);
  convert(bytes.data(), dtype, result.data(), DType::float32, count);
  return result;
}

struct Exact {
  double value, bound;
};

// y of one query and head in float64, with a bound on the error of float32 and of y's dtype, in any order of keys.
inline std::vector<Exact> in_float64(const WholeAttention& of, int batch, int query, int head) {
  const double unit = unit_roundoff(DType::float32);
  const int kv_head = head / (of.num_heads / of.num_kv_heads);
  const auto row = [&](const std::vector<float>& x, int tokens, int heads, int token, int h) {
    return x.data() + ((static_cast<std::size_t>(batch) * tokens + token) * heads + h) * of.head_dim;
  };
  const float* q = row(of.q, of.num_queries, of.num_heads, query, head);
  const int num_keys = of.mask == PieceMask::causal ? query + 1 : of.num_keys;
  std::vector<double> weights;
  double largest = -std::numeric_limits<double>::infinity(), score_error = 0;
  for (int key = 0; key < num_keys; ++key) {
    const float* k = row(of.k, of.num_keys, of.num_kv_heads, key, kv_head);
    double dot = 0, magnitude = 0;
    for (int d = 0; d < of.head_dim; ++d) {
      dot += static_cast<double>(q[d]) * k[d];
      magnitude += std::fabs(static_cast<double>(q[d]) * k[d]);
    }
    weights.push_back(dot * of.scale);
    largest = std::max(largest, weights.back());
    // The roundings of the dot product's chains, of the scale, and of the subtraction of the maximum.
    score_error = std::max(score_error, (of.head_dim / 16.0 + 8) * unit * magnitude * of.scale);
  }
  double sum = 0;
  for (double& weight : weights) sum += weight = std::exp(weight - largest);
  std::vector<Exact> result;
  for (int d = 0; d < of.head_dim; ++d) {
    double value = 0, magnitude = 0, values = 0;
    for (int key = 0; key < num_keys; ++key) {
      const double v = row(of.v, of.num_keys, of.num_kv_heads, key, kv_head)[d];
      values += std::fabs(v);
      value += weights[key] * v;
      magnitude += weights[key] * std::fabs(v);
    }
    // An error of a score changes its weight by that factor above and below; then exp, one addition a key in each sum,
    // a correction a block, and the quotient. Last, y's own rounding.
    const double relative = 2 * std::expm1(score_error) + 2 * (num_keys + 16) * unit;
    const double y = value / sum;
    double rounding = of.dtype == DType::float32 ? 0 : std::fabs(y) * unit_roundoff(of.dtype);
    if (of.dtype == DType::float16) rounding += 0x1p-25;  // below the smallest normal number
    double bound = relative * magnitude / sum * (1 + 0x1p-7) + rounding + 0x1p-126;
    if (of.rounds_weights) {
      // Weights are rounded to 16 bits; float16 has none below 2^-24. Its sums round each product down, and exp2 is
      // approximate.
      bound += (unit_roundoff(of.dtype) + 0x1p-16) * magnitude / sum + relative * magnitude / sum;
      if (of.dtype == DType::float16) bound += 0x1p-24 * values / sum;
    }
    result.push_back({y, bound});
  }
  return result;
}

// The first of `count` queries of `y`, [batch, num_queries, num_heads, head_dim], that is farther from float64 than its
// bound; empty if none is.
inline std::string first_miss(const WholeAttention& of, const std::vector<float>& y, int first, int count) {
  for (int batch = 0; batch < of.batch; ++batch)
    for (int query = first; query < first + count; ++query)
      for (int head = 0; head < of.num_heads; ++head) {
        const std::vector<Exact> exact = in_float64(of, batch, query, head);
        for (int d = 0; d < of.head_dim; ++d) {
          const std::size_t at =
              ((static_cast<std::size_t>(batch) * of.num_queries + query) * of.num_heads + head) * of.head_dim + d;
          if (!(std::fabs(y[at] - exact[d].value) <= exact[d].bound))
            return fmt::format("batch {}, query {}, head {}, element {}: {} instead of {}, bound {}", batch, query,
                               head, d, y[at], exact[d].value, exact[d].bound);
        }
      }
  return {};
}
inline std::string first_miss(const WholeAttention& of, const std::vector<float>& y) {
  return first_miss(of, y, 0, of.num_queries);
}

}  // namespace heddle
