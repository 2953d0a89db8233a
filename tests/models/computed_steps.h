// The same steps of a model several times over: on few SMs and on many, on one GPU and on another, and whether the bits
// are the same.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "models/llama_runner.h"
#include "weights/synthetic_model.h"

namespace heddle {

inline constexpr int kCoursePageSize = 16;  // the smallest that the fast kernels take

// For a course and two more, of which none gives its pages back.
inline LlamaRunner::Options course_options(Device device, int num_sms = 0, const DecodeChoice& decode = {}) {
  return {.page_size = kCoursePageSize,
          .num_pages = 192,
          .max_sequences = 8,
          .max_tokens = 600,
          .num_sms = num_sms,
          .device = device,
          .decode = decode};
}

// Of a model with the widths of a real one: "synth:llama-3-8b,layers=2".
inline LlamaRunner synthetic_runner(const std::string& name, const LlamaRunner::Options& options) {
  const auto parsed = parse_synthetic_name(name);
  require(parsed.has_value(), "{} names no synthetic model", name);
  return {load_model(SyntheticModel(*parsed), {.device = options.device}), options};
}

inline std::vector<std::int32_t> tokens_from(int first, int count) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) tokens[static_cast<std::size_t>(i)] = (first + 31 * i) % 250;
  return tokens;
}

// Sequences of a step and the last row of logits of each. A decode step is fused as `decode` says where the model takes
// that; otherwise it has separate operators, as engine/decode_chooser.h has it.
class Batch {
 public:
  Batch(LlamaRunner& runner, int size, const DecodeChoice& decode = {}) : runner_(runner) {
    const Executor& executor = runner.executor();
    const FusedDecode fused{
        .choice = decode, .num_tokens = size, .page_size = kCoursePageSize, .num_sms = executor.lane().num_sms};
    if (decode.fused() && executor.model().why_not_fused(fused).empty()) decode_ = decode;
    for (int i = 0; i < size; ++i) sequences_.push_back(runner.sequence());
  }

  void step(const std::vector<int>& counts) {
    runner_.choose_decode(decode_);
    std::vector<LlamaRunner::Chunk> chunks;
    for (std::size_t i = 0; i < counts.size(); ++i)
      chunks.push_back({&sequences_[i], tokens_from(static_cast<int>(i + sequences_[i].tokens.size()), counts[i])});
    const auto rows = runner_.step(chunks);
    std::size_t end = 0;
    for (const int count : counts) logits_.push_back(rows[(end += static_cast<std::size_t>(count)) - 1]);
  }

  const std::vector<std::vector<float>>& logits() const { return logits_; }

 private:
  LlamaRunner& runner_;
  DecodeChoice decode_;
  std::vector<LlamaRunner::Sequence> sequences_;
  std::vector<std::vector<float>> logits_;
};

struct Computed {
  std::vector<std::vector<float>> alone, together;
  std::vector<std::int32_t> greedy, sampled;
};

// Prefill, decode of one sequence and of five, and both in one step. A decode step of a size is computed as it is, then
// recorded, then replayed, by turns in two slots.
inline Computed compute_everything(LlamaRunner& runner, const DecodeChoice& decode = {}) {
  constexpr int kDecodeSteps = 6;
  Batch one(runner, 1, decode), five(runner, 5, decode);
  one.step({300});
  for (int i = 0; i < kDecodeSteps; ++i) one.step({1});
  five.step({300, 1, 62, 125, 17});
  for (int i = 0; i < kDecodeSteps; ++i) five.step({1, 1, 1, 1, 1});
  five.step({1, 70, 1, 1, 1});
  return {.alone = one.logits(),
          .together = five.logits(),
          .greedy = runner.choose({}),
          .sampled = runner.choose({.temperature = 0.8, .top_p = 0.9, .seed = 7})};
}

// Which rows of two lists of logits differ, and by how much; empty if none. Bits are compared, so a NaN is itself.
inline std::string difference(const char* what, const std::vector<std::vector<float>>& a,
                              const std::vector<std::vector<float>>& b) {
  std::string found;
  for (std::size_t row = 0; row < a.size(); ++row) {
    std::size_t differ = 0, nans = 0;
    float most = 0, largest = 0;
    for (std::size_t i = 0; i < a[row].size(); ++i) {
      nans += std::isnan(a[row][i]) || std::isnan(b[row][i]) ? 1 : 0;
      largest = std::max(largest, std::abs(a[row][i]));
      if (std::bit_cast<std::uint32_t>(a[row][i]) == std::bit_cast<std::uint32_t>(b[row][i])) continue;
      ++differ;
      most = std::max(most, std::abs(a[row][i] - b[row][i]));
    }
    if (differ > 0)
      found += fmt::format("{}: row {} of {} has {} other logits of {} (by {} at most, the largest is {}), {} NaN\n",
                           what, row, a.size(), differ, a[row].size(), most, largest, nans);
  }
  return found;
}

inline std::string difference(const Computed& a, const Computed& b) {
  if (std::string found = difference("one sequence", a.alone, b.alone); !found.empty()) return found;
  if (std::string found = difference("five sequences", a.together, b.together); !found.empty()) return found;
  if (a.greedy != b.greedy) return "the tokens chosen greedily";
  return a.sampled == b.sampled ? "" : "the tokens sampled";
}

}  // namespace heddle
