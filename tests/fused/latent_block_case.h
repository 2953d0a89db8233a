// Operands of latent_block and its oracle: the formulas of latent_block.h in float64, rounded where they say.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "fused/latent_block/latent_block.h"
#include "kernels/operands.h"
#include "kernels/sequences.h"

namespace heddle {

struct LatentBlockCase {
  std::vector<int> contexts;  // a token each
  int hidden = 64, heads = 4, nope = 16, rope = 8, value = 24, latent = 32, page_size = 8;
  LatentBlockMapping mapping;
  int partials = 1, deltas = 1;
  DType dtype = DType::float32, deltas_dtype = DType::float32;

  int tokens() const { return static_cast<int>(contexts.size()); }
  int query() const { return nope + rope; }
  int cached() const { return latent + rope; }
  int down_rows() const { return heads * query() + cached(); }
  std::vector<TestSequence> sequences() const {
    std::vector<TestSequence> all;
    for (const int context : contexts)
      all.push_back({.context_len = context, .num_new_tokens = 1, .seed = static_cast<std::uint32_t>(all.size() + 5)});
    return all;
  }
};

// The operands on the host. Slots that no token may read are NaN: those of new tokens, too.
struct LatentBlockOperands {
  static constexpr float kEps = 1e-5f, kLatentEps = 1e-6f, kRopeScale = 1.25f;

  explicit LatentBlockOperands(const LatentBlockCase& of)
      : residual(Rows::random(of.tokens(), of.hidden, 1)),
        new_residual(of.tokens(), of.hidden),
        deltas(random_floats(static_cast<std::size_t>(of.deltas * of.tokens() * of.hidden), 2, 0.5f), of.deltas_dtype),
        norm(random_floats(static_cast<std::size_t>(of.hidden), 3)),
        latent_norm(random_floats(static_cast<std::size_t>(of.latent), 4)),
        down(matrix(of.down_rows(), of.hidden, 5), of.dtype),
        to_latents(matrix(of.heads * of.latent, of.nope, 6), of.dtype),
        from_latents(matrix(of.heads * of.value, of.latent, 7), of.dtype),
        output(matrix(of.hidden, of.heads * of.value, 8), of.dtype),
        cache({1, of.cached(), of.page_size, of.dtype}, of.sequences()),
        partials(of.partials * of.tokens(), of.hidden) {
    cache.fill(of.sequences());
    const std::vector<float> poison(static_cast<std::size_t>(of.cached()), kPoison);
    for (int t = 0; t < of.tokens(); ++t) {
      const int newest = of.contexts[static_cast<std::size_t>(t)] - 1;
      positions.push_back(newest);
      convert(poison.data(), DType::float32,
              static_cast<std::byte*>(cache.kv().keys) + cache.element(t, newest, 0) * size_of(of.dtype), of.dtype,
              poison.size());
    }
    for (int i = 0; i < of.rope / 2; ++i)
      inv_freq.push_back(std::pow(1e4f, -2.0f * static_cast<float>(i) / static_cast<float>(of.rope)));
  }

  static std::vector<float> matrix(int rows, int columns, std::uint32_t seed) {
    return random_floats(static_cast<std::size_t>(rows) * static_cast<std::size_t>(columns), seed,
                         1 / std::sqrt(static_cast<float>(columns)));
  }
  static float scale_of(const LatentBlockCase& of) { return 1 / std::sqrt(static_cast<float>(of.query())); }

  // Memory of the host. `scratch` is as large as the call wants, and keeps what an earlier call left.
  LatentBlockParams params(const LatentBlockCase& of) {
    PagedKv latents = cache.kv();
    latents.values = latents.keys;
    LatentBlockParams all{
        .residual = residual,
        .deltas = {deltas.data(), of.deltas * of.tokens(), of.hidden, of.hidden, of.deltas_dtype},
        .num_deltas = of.deltas,
        .new_residual = new_residual,
        .norm = norm.data(),
        .eps = kEps,
        .down = one_block(down, of.dtype, of.down_rows(), of.hidden),
        .latent_norm = latent_norm.data(),
        .latent_eps = kLatentEps,
        .to_latents = one_block(to_latents, of.dtype, of.heads * of.latent, of.nope),
        .positions = positions.data(),
        .inv_freq = inv_freq.data(),
        .rope_scale = kRopeScale,
        .kv = latents,
        .sequences = cache.view(),
        .num_heads = of.heads,
        .nope_dim = of.nope,
        .rope_dim = of.rope,
        .value_dim = of.value,
        .scale = scale_of(of),
        .from_latents = one_block(from_latents, of.dtype, of.heads * of.value, of.latent),
        .output = one_block(output, of.dtype, of.hidden, of.heads * of.value),
        .partials = partials,
        .num_partials = of.partials,
        .mapping = of.mapping,
    };
    scratch.resize(std::max(scratch.size(), latent_block_scratch_bytes(shape_of(all), of.dtype) / 16 + 1));
    all.scratch = scratch.data();
    all.scratch_bytes = scratch.size() * 16;
    return all;
  }

  struct alignas(16) Sixteen {
    std::byte bytes[16];
  };

  Rows residual, new_residual;
  Elements deltas;
  std::vector<float> norm, latent_norm, inv_freq;
  Elements down, to_latents, from_latents, output;
  Sequences cache;
  std::vector<std::int32_t> positions;
  Rows partials;
  std::vector<Sixteen> scratch;
};

struct LatentBlockResult {
  std::vector<double> y;             // [tokens, hidden], the sum of the partials
  std::vector<double> new_residual;  // likewise
  std::vector<double> rows;          // [tokens, cached], the new ones of the cache
};

inline double latent_rounded(DType dtype, double x) {
  if (dtype == DType::float32) return static_cast<double>(static_cast<float>(x));
  if (dtype == DType::bfloat16) return static_cast<double>(to_float(to_bfloat16(static_cast<float>(x))));
  return static_cast<double>(to_float(to_float16(static_cast<float>(x))));
}

// Before the call that writes the new rows.
inline LatentBlockResult oracle_of(const LatentBlockCase& of, const LatentBlockOperands& with) {
  using Vector = std::vector<double>;
  LatentBlockResult result;
  const std::vector<float> deltas = with.deltas.floats(), down = with.down.floats(),
                           to_latents = with.to_latents.floats(), from_latents = with.from_latents.floats(),
                           output = with.output.floats(), pages = with.cache.keys().floats();
  const auto rounded = [&](double x) { return latent_rounded(of.dtype, x); };
  const auto dot = [](const std::vector<float>& weights, int row, const Vector& x) {
    double sum = 0;
    for (std::size_t k = 0; k < x.size(); ++k)
      sum += static_cast<double>(weights[static_cast<std::size_t>(row) * x.size() + k]) * x[k];
    return sum;
  };
  for (int t = 0; t < of.tokens(); ++t) {
    const auto token = static_cast<std::size_t>(t);
    Vector x;
    double squares = 0;
    for (int i = 0; i < of.hidden; ++i) {
      double z = static_cast<double>(with.residual.row(t)[i]);
      for (int d = 0; d < of.deltas; ++d)
        z += static_cast<double>(deltas[static_cast<std::size_t>((d * of.tokens() + t) * of.hidden + i)]);
      squares += z * z;
      x.push_back(z);
      result.new_residual.push_back(z);
    }
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = rounded(x[i] / std::sqrt(squares / of.hidden + static_cast<double>(with.kEps)) *
                     static_cast<double>(with.norm[i]));
    const auto rotated = [&](double a, double b, int pair, bool second) {
      const double angle = static_cast<double>(static_cast<float>(with.positions[token]) *
                                               with.inv_freq[static_cast<std::size_t>(pair)]);
      const double cosine = std::cos(angle) * static_cast<double>(with.kRopeScale);
      const double sine = std::sin(angle) * static_cast<double>(with.kRopeScale);
      return rounded(second ? b * cosine + a * sine : a * cosine - b * sine);
    };
    const auto push_rotated = [&](Vector& to, int first_row) {
      for (int i = 0; i < of.rope / 2; ++i) {
        const double a = dot(down, first_row + 2 * i, x), b = dot(down, first_row + 2 * i + 1, x);
        to.push_back(rotated(a, b, i, false));
        to.push_back(rotated(a, b, i, true));
      }
    };
    Vector newest;
    const int latent_row = of.heads * of.query();
    double latent_squares = 0;
    for (int i = 0; i < of.latent; ++i) {
      newest.push_back(dot(down, latent_row + i, x));
      latent_squares += newest.back() * newest.back();
    }
    for (std::size_t i = 0; i < newest.size(); ++i)
      newest[i] = rounded(newest[i] / std::sqrt(latent_squares / of.latent + static_cast<double>(with.kLatentEps)) *
                          static_cast<double>(with.latent_norm[i]));
    push_rotated(newest, latent_row + of.latent);
    result.rows.insert(result.rows.end(), newest.begin(), newest.end());
    const auto row_element = [&](int position, int d) {
      if (position == of.contexts[token] - 1) return newest[static_cast<std::size_t>(d)];
      return static_cast<double>(pages[with.cache.element(t, position, 0) + static_cast<std::size_t>(d)]);
    };
    Vector values;
    for (int head = 0; head < of.heads; ++head) {
      Vector nope, query;
      for (int d = 0; d < of.nope; ++d) nope.push_back(rounded(dot(down, head * of.query() + d, x)));
      for (int i = 0; i < of.latent; ++i) query.push_back(rounded(dot(to_latents, head * of.latent + i, nope)));
      push_rotated(query, head * of.query() + of.nope);
      Vector scores;
      for (int position = 0; position < of.contexts[token]; ++position) {
        double score = 0;
        for (int d = 0; d < of.cached(); ++d) score += query[static_cast<std::size_t>(d)] * row_element(position, d);
        scores.push_back(score * static_cast<double>(with.scale_of(of)));
      }
      const double largest = *std::ranges::max_element(scores);
      double sum = 0;
      for (double& score : scores) sum += score = std::exp(score - largest);
      Vector attended;
      for (int d = 0; d < of.latent; ++d) {
        double weighted = 0;
        for (int position = 0; position < of.contexts[token]; ++position)
          weighted += scores[static_cast<std::size_t>(position)] * row_element(position, d);
        attended.push_back(rounded(weighted / sum));
      }
      for (int d = 0; d < of.value; ++d) values.push_back(rounded(dot(from_latents, head * of.value + d, attended)));
    }
    for (int row = 0; row < of.hidden; ++row) result.y.push_back(dot(output, row, values));
  }
  return result;
}

// The new rows in a cache's pages, as LatentBlockResult's.
inline std::vector<double> new_rows(const LatentBlockCase& of, const Sequences& cache,
                                    const std::vector<float>& pages) {
  std::vector<double> result;
  for (int t = 0; t < of.tokens(); ++t) {
    const std::size_t first = cache.element(t, of.contexts[static_cast<std::size_t>(t)] - 1, 0);
    for (int d = 0; d < of.cached(); ++d)
      result.push_back(static_cast<double>(pages[first + static_cast<std::size_t>(d)]));
  }
  return result;
}

// Where two roundings of a number may differ, they do so by one unit of the dtype's last place; the sums average that out
// over many numbers of size about 1. The factor covers what does not average out.
inline double latent_tolerance_of(DType dtype) {
  return dtype == DType::float32 ? 3e-5 : 6 * unit_roundoff(dtype);
}

// Compares what a call has left with the oracle.
inline void expect_close(const LatentBlockCase& of, const LatentBlockResult& expected, const Rows& partials,
                         const Rows& new_residual, const std::vector<double>& rows) {
  const double tolerance = latent_tolerance_of(of.dtype);
  for (int t = 0; t < of.tokens(); ++t)
    for (int i = 0; i < of.hidden; ++i) {
      double y = 0;
      for (int p = 0; p < of.partials; ++p)
        y += static_cast<double>(partials.row(std::int64_t{p} * of.tokens() + t)[i]);
      const auto at = static_cast<std::size_t>(t * of.hidden + i);
      ASSERT_NEAR(y, expected.y[at], tolerance) << "token " << t << ", feature " << i;
      ASSERT_NEAR(static_cast<double>(new_residual.row(t)[i]), expected.new_residual[at], 1e-6 * of.deltas + 1e-6);
    }
  ASSERT_EQ(rows.size(), expected.rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) ASSERT_NEAR(rows[i], expected.rows[i], 4 * tolerance) << "row " << i;
}

}  // namespace heddle
