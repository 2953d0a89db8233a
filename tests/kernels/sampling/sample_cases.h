// Rows to sample from, with settings of each kind: what the CPU's tests and the GPU's share.
#pragma once

#include <memory>
#include <numeric>

#include "kernels/operands.h"
#include "kernels/sampling/sample.h"

namespace heddle {

// Rows with settings and histories, on the host.
struct SampleRows {
  Rows logits;
  std::vector<SampleRow> rows;
  std::vector<std::vector<HistoryToken>> histories;
};

// What a row's logits look like.
enum class Logits { spread, peaked, tied, equal, masked, unsound };
inline constexpr Logits kLogits[] = {Logits::spread, Logits::peaked, Logits::tied,
                                     Logits::equal,  Logits::masked, Logits::unsound};

inline void write_logits(Logits kind, float* row, std::int64_t vocab_size, std::mt19937& random) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::normal_distribution<float> normal(0, 2);
  for (std::int64_t id = 0; id < vocab_size; ++id) {
    const float value = normal(random);
    switch (kind) {
      case Logits::spread:
        row[id] = value;
        break;
      case Logits::peaked:
        row[id] = random() % 64 == 0 ? value + 12 : value;
        break;
      case Logits::tied:
        row[id] = std::floor(value);
        break;
      case Logits::equal:
        row[id] = 0.25f;
        break;
      case Logits::masked:
        row[id] = random() % 3 == 0 ? value : -kInfinity;
        break;
      case Logits::unsound:
        row[id] = value;
        break;
    }
  }
  const auto any = [&] { return random() % static_cast<std::uint32_t>(vocab_size); };
  if (kind == Logits::masked) row[any()] = 1;
  if (kind == Logits::unsound) row[any()] = random() % 2 == 0 ? kPoison : kInfinity;
}

// Settings of a row: each filter and penalty is on in about half of the rows, at values from one end of its range to
// the other.
inline SampleRow random_settings(std::int64_t vocab_size, std::mt19937& random) {
  const auto pick = [&](std::initializer_list<double> values) { return values.begin()[random() % values.size()]; };
  const auto often = [&] { return random() % 2 == 0; };
  SampleRow row;
  row.temperature = pick({0, 0.6, 0.6, 1, 1, 1, 3, 50, 1e-3, 1e300, 1e-310});
  if (often()) row.top_k = static_cast<std::int32_t>(pick({1, 5, 40, 600, 5000, double(vocab_size), 1e9}));
  if (often()) row.top_p = pick({1e-9, 0.3, 0.9, 0.95, 0.999, 1 - 1e-12});
  if (often()) row.min_p = pick({1e-300, 0.01, 0.1, 0.9, 1});
  if (often()) row.repetition_penalty = pick({1.1, 2, 0.5, 1000});
  if (often()) row.presence_penalty = pick({0.5, -1, 1000});
  if (often()) row.frequency_penalty = pick({0.3, -0.2, -1000});
  row.seed = (std::uint64_t{random()} << 32) | random();
  row.position = static_cast<std::int32_t>(random() % 100000);
  return row;
}

inline SampleRows random_rows(std::int64_t vocab_size, int count, unsigned seed) {
  std::mt19937 random(seed);
  SampleRows result{Rows(count, vocab_size, 3), {}, {}};
  for (int r = 0; r < count; ++r) {
    const Logits kind = kLogits[random() % 16 == 0 ? 5 : random() % 5];
    write_logits(kind, result.logits.row(r), vocab_size, random);
    result.rows.push_back(random_settings(vocab_size, random));
    std::vector<HistoryToken> history;
    const auto length = random() % 3 == 0 ? 0 : random() % std::min<std::uint64_t>(2000, 1 + vocab_size / 2);
    std::vector<bool> seen(static_cast<std::size_t>(vocab_size));
    for (std::uint64_t i = 0; i < length; ++i) {
      const auto id = random() % static_cast<std::uint32_t>(vocab_size);
      const auto times = static_cast<std::int32_t>(random() % 5) + HistoryToken::kUnseen;
      const float bias = times == HistoryToken::kUnseen || random() % 8 == 0
                             ? std::ldexp(1.25f, static_cast<int>(random() % 8)) - 20
                             : 0;
      if (!seen[id]) history.push_back({.id = static_cast<std::int32_t>(id), .count = times, .bias = bias});
      seen[id] = true;
    }
    result.histories.push_back(std::move(history));
  }
  for (std::size_t r = 0; r < result.rows.size(); ++r) {
    result.rows[r].history = result.histories[r].data();
    result.rows[r].num_history = static_cast<std::int32_t>(result.histories[r].size());
  }
  return result;
}

inline std::vector<std::int32_t> sampled_on_cpu(const SampleRows& rows, int threads) {
  std::vector<std::int32_t> tokens(rows.rows.size(), 99);
  std::vector<SampleCandidate> scratch(rows.rows.size() * static_cast<std::size_t>(rows.logits.columns()));
  on_cpu(threads, [&](Stream& stream) {
    sample({.logits = rows.logits, .rows = rows.rows.data(), .tokens = tokens.data(), .scratch = scratch.data()},
           stream);
  });
  return tokens;
}

}  // namespace heddle
