// Operands of decode_block and its oracle: the formulas of decode_block.h in float64, rounded where they say.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/tensor.h"
#include "fused/decode_block.h"
#include "kernels/operands.h"
#include "kernels/sequences.h"

namespace heddle {

struct DecodeBlockCase {
  std::vector<int> contexts;  // a token each
  int hidden = 64, heads = 4, kv_heads = 2, head_dim = 16, page_size = 8, window = 0;
  DecodeBlockMapping mapping;
  int partials = 1, deltas = 1;
  bool qk_norm = false, bias = false;
  DType dtype = DType::float32, deltas_dtype = DType::float32;

  int tokens() const { return static_cast<int>(contexts.size()); }
  int columns() const { return heads * head_dim; }
  int qkv_rows() const { return (heads + 2 * kv_heads) * head_dim; }
  int first_key(int token) const {
    const int context = contexts[static_cast<std::size_t>(token)];
    return window > 0 ? std::max(0, context - window) : 0;
  }
  std::vector<TestSequence> sequences() const {
    std::vector<TestSequence> all;
    for (const int context : contexts)
      all.push_back({.context_len = context, .num_new_tokens = 1, .seed = static_cast<std::uint32_t>(all.size() + 5)});
    return all;
  }
};

// The operands on the host. Slots that no token may read are NaN: those of new tokens, those before the window.
struct DecodeBlockOperands {
  explicit DecodeBlockOperands(const DecodeBlockCase& of)
      : residual(Rows::random(of.tokens(), of.hidden, 1)),
        new_residual(of.tokens(), of.hidden),
        deltas(random_floats(static_cast<std::size_t>(of.deltas * of.tokens() * of.hidden), 2, 0.5f), of.deltas_dtype),
        norm(random_floats(static_cast<std::size_t>(of.hidden), 3)),
        qkv(random_floats(static_cast<std::size_t>(of.qkv_rows() * of.hidden), 4, scale_of(of.hidden)), of.dtype),
        output(random_floats(static_cast<std::size_t>(of.hidden * of.columns()), 5, scale_of(of.columns())), of.dtype),
        query_norm(random_floats(static_cast<std::size_t>(of.head_dim), 6)),
        key_norm(random_floats(static_cast<std::size_t>(of.head_dim), 7)),
        qkv_bias(random_floats(static_cast<std::size_t>(of.qkv_rows()), 8)),
        output_bias(random_floats(static_cast<std::size_t>(of.hidden), 9)),
        cache({of.kv_heads, of.head_dim, of.page_size, of.dtype}, of.sequences()),
        partials(of.partials * of.tokens(), of.hidden) {
    cache.fill(of.sequences());
    for (int t = 0; t < of.tokens(); ++t) {
      const int context = of.contexts[static_cast<std::size_t>(t)];
      positions.push_back(context - 1);
      if (of.first_key(t) > 0) cache.forget_before(t, of.first_key(t));
    }
    for (int i = 0; i < of.head_dim / 2; ++i)
      inv_freq.push_back(std::pow(1e4f, -2.0f * static_cast<float>(i) / static_cast<float>(of.head_dim)));
  }

  static float scale_of(int columns) { return 1 / std::sqrt(static_cast<float>(columns)); }

  // Memory of the host. `scratch` is as large as the call wants.
  DecodeBlockParams params(const DecodeBlockCase& of) {
    DecodeBlockParams all{
        .residual = residual,
        .deltas = {deltas.data(), of.deltas * of.tokens(), of.hidden, of.hidden, of.deltas_dtype},
        .num_deltas = of.deltas,
        .new_residual = new_residual,
        .norm = norm.data(),
        .eps = 1e-5f,
        .qkv = one_block(qkv, of.dtype, of.qkv_rows(), of.hidden),
        .query_norm = of.qk_norm ? query_norm.data() : nullptr,
        .key_norm = of.qk_norm ? key_norm.data() : nullptr,
        .positions = positions.data(),
        .inv_freq = inv_freq.data(),
        .kv = cache.kv(),
        .sequences = cache.view(),
        .num_heads = of.heads,
        .scale = 1 / std::sqrt(static_cast<float>(of.head_dim)),
        .window = of.window,
        .output = one_block(output, of.dtype, of.hidden, of.columns()),
        .partials = partials,
        .num_partials = of.partials,
        .mapping = of.mapping,
    };
    if (of.bias) all.qkv.bias = qkv_bias.data(), all.output.bias = output_bias.data();
    scratch.assign(decode_block_scratch_bytes(shape_of(all)) / 16 + 1, {});
    all.scratch = scratch.data();
    all.scratch_bytes = scratch.size() * 16;
    return all;
  }

  struct alignas(16) Sixteen {
    std::byte bytes[16];
  };

  Rows residual, new_residual;
  Elements deltas;
  std::vector<float> norm;
  Elements qkv, output;
  std::vector<float> query_norm, key_norm, qkv_bias, output_bias, inv_freq;
  Sequences cache;
  std::vector<std::int32_t> positions;
  Rows partials;
  std::vector<Sixteen> scratch;
};

struct DecodeBlockResult {
  std::vector<double> y;             // [tokens, hidden], the sum of the partials
  std::vector<double> new_residual;  // likewise
  std::vector<double> keys, values;  // [tokens, kv_heads, head_dim], the new ones
};

inline double rounded_to(DType dtype, double x) {
  if (dtype == DType::float32) return static_cast<double>(static_cast<float>(x));
  if (dtype == DType::bfloat16) return static_cast<double>(to_float(to_bfloat16(static_cast<float>(x))));
  return static_cast<double>(to_float(to_float16(static_cast<float>(x))));
}

// Before the call that writes the new keys.
inline DecodeBlockResult oracle_of(const DecodeBlockCase& of, const DecodeBlockOperands& with) {
  DecodeBlockResult result;
  const std::vector<float> deltas = with.deltas.floats(), qkv = with.qkv.floats(), output = with.output.floats();
  const std::vector<float> all_keys = with.cache.keys().floats(), all_values = with.cache.values().floats();
  const auto at = [](const std::vector<float>& v, std::int64_t i) {
    return static_cast<double>(v[static_cast<std::size_t>(i)]);
  };
  for (int t = 0; t < of.tokens(); ++t) {
    std::vector<double> x;
    double squares = 0;
    for (int i = 0; i < of.hidden; ++i) {
      double z = static_cast<double>(with.residual.row(t)[i]);
      for (int d = 0; d < of.deltas; ++d) z += at(deltas, (std::int64_t{d} * of.tokens() + t) * of.hidden + i);
      squares += z * z;
      x.push_back(z);
      result.new_residual.push_back(z);
    }
    for (int i = 0; i < of.hidden; ++i)
      x[static_cast<std::size_t>(i)] = rounded_to(
          of.dtype, x[static_cast<std::size_t>(i)] / std::sqrt(squares / of.hidden + 1e-5) * at(with.norm, i));
    const auto head_of = [&](int first_row, const std::vector<float>* norm, bool rotates) {
      std::vector<double> head;
      double sum = 0;
      for (int d = 0; d < of.head_dim; ++d) {
        double dot = of.bias ? at(with.qkv_bias, first_row + d) : 0;
        for (int i = 0; i < of.hidden; ++i)
          dot += at(qkv, std::int64_t{first_row + d} * of.hidden + i) * x[static_cast<std::size_t>(i)];
        head.push_back(dot);
        sum += dot * dot;
      }
      if (norm != nullptr && of.qk_norm)
        for (int d = 0; d < of.head_dim; ++d)
          head[static_cast<std::size_t>(d)] *= at(*norm, d) / std::sqrt(sum / of.head_dim + 1e-5);
      for (int i = 0; rotates && i < of.head_dim / 2; ++i) {
        const double angle = static_cast<double>(static_cast<float>(with.positions[static_cast<std::size_t>(t)]) *
                                                 with.inv_freq[static_cast<std::size_t>(i)]);
        double &low = head[static_cast<std::size_t>(i)], &high = head[static_cast<std::size_t>(i + of.head_dim / 2)];
        const double a = low, b = high;
        low = a * std::cos(angle) - b * std::sin(angle);
        high = b * std::cos(angle) + a * std::sin(angle);
      }
      for (double& value : head) value = rounded_to(of.dtype, value);
      return head;
    };
    std::vector<double> attended;
    for (int kv_head = 0; kv_head < of.kv_heads; ++kv_head) {
      const std::vector<double> key = head_of((of.heads + kv_head) * of.head_dim, &with.key_norm, true);
      const std::vector<double> value = head_of((of.heads + of.kv_heads + kv_head) * of.head_dim, nullptr, false);
      result.keys.insert(result.keys.end(), key.begin(), key.end());
      result.values.insert(result.values.end(), value.begin(), value.end());
      const auto cached = [&](const std::vector<float>& pages, int position, int d) {
        return at(pages, static_cast<std::int64_t>(with.cache.element(t, position, kv_head)) + d);
      };
      const int group = of.heads / of.kv_heads, newest = of.contexts[static_cast<std::size_t>(t)] - 1;
      for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const std::vector<double> query = head_of(head * of.head_dim, &with.query_norm, true);
        std::vector<double> scores;
        for (int j = of.first_key(t); j <= newest; ++j) {
          double score = 0;
          for (int d = 0; d < of.head_dim; ++d)
            score += query[static_cast<std::size_t>(d)] *
                     (j == newest ? key[static_cast<std::size_t>(d)] : cached(all_keys, j, d));
          scores.push_back(score / std::sqrt(of.head_dim));
        }
        const double largest = *std::ranges::max_element(scores);
        double sum = 0;
        for (double& score : scores) sum += score = std::exp(score - largest);
        for (int d = 0; d < of.head_dim; ++d) {
          double weighted = 0;
          for (int j = of.first_key(t); j <= newest; ++j)
            weighted += scores[static_cast<std::size_t>(j - of.first_key(t))] *
                        (j == newest ? value[static_cast<std::size_t>(d)] : cached(all_values, j, d));
          attended.push_back(rounded_to(of.dtype, weighted / sum));
        }
      }
    }
    for (int row = 0; row < of.hidden; ++row) {
      double y = of.bias ? at(with.output_bias, row) : 0;
      for (int k = 0; k < of.columns(); ++k)
        y += at(output, std::int64_t{row} * of.columns() + k) * attended[static_cast<std::size_t>(k)];
      result.y.push_back(y);
    }
  }
  return result;
}

// Where two roundings of a number may differ, they do so by one unit of the dtype's last place; the sums average that
// out over many numbers of size about 1. The factor covers what does not average out.
inline double tolerance_of(DType dtype) {
  return dtype == DType::float32 ? 3e-5 : 6 * unit_roundoff(dtype);
}

// Compares what a call has left with the oracle. `partials`: rows of each partial in turn.
inline void expect_close(const DecodeBlockCase& of, const DecodeBlockResult& expected, const Rows& partials,
                         const Rows& new_residual, const std::vector<double>& keys, const std::vector<double>& values) {
  const double tolerance = tolerance_of(of.dtype);
  for (int t = 0; t < of.tokens(); ++t)
    for (int i = 0; i < of.hidden; ++i) {
      double y = 0;
      for (int p = 0; p < of.partials; ++p)
        y += static_cast<double>(partials.row(std::int64_t{p} * of.tokens() + t)[i]);
      const auto at = static_cast<std::size_t>(t * of.hidden + i);
      ASSERT_NEAR(y, expected.y[at], tolerance) << "token " << t << ", feature " << i;
      ASSERT_NEAR(static_cast<double>(new_residual.row(t)[i]), expected.new_residual[at], 1e-6 * of.deltas + 1e-6);
    }
  for (std::size_t i = 0; i < expected.keys.size(); ++i) {
    ASSERT_NEAR(keys[i], expected.keys[i], 4 * tolerance) << "key " << i;
    ASSERT_NEAR(values[i], expected.values[i], 4 * tolerance) << "value " << i;
  }
}

// The new keys or values in a cache's pages, as DecodeBlockResult's.
inline std::vector<double> new_ones(const DecodeBlockCase& of, const Sequences& cache,
                                    const std::vector<float>& pages) {
  std::vector<double> result;
  for (int t = 0; t < of.tokens(); ++t)
    for (int head = 0; head < of.kv_heads; ++head) {
      const std::size_t first = cache.element(t, of.contexts[static_cast<std::size_t>(t)] - 1, head);
      for (int d = 0; d < of.head_dim; ++d)
        result.push_back(static_cast<double>(pages[first + static_cast<std::size_t>(d)]));
    }
  return result;
}

}  // namespace heddle
