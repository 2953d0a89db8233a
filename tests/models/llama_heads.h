// The models of tests/data/llama/heads: weights are made here, as tools/goldens/make_llama_heads.py makes them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "weights/safetensors.h"
#include "weights/synthetic_values.h"

namespace heddle {

// How far numbers are from a golden.
class Distance {
 public:
  void add(double got, double expected) {
    const double difference = std::abs(got - expected);
    if (!(difference <= largest_)) largest_ = difference;  // NaN sticks
    sum_of_squares_ += difference * difference;
    ++count_;
  }

  std::int64_t count() const { return count_; }
  double largest() const { return largest_; }
  double root_mean_square() const { return std::sqrt(sum_of_squares_ / static_cast<double>(count_)); }

 private:
  double largest_ = 0, sum_of_squares_ = 0;
  std::int64_t count_ = 0;
};

class LlamaHeads {
 public:
  static constexpr const char* kCases[] = {"llama-64",  "llama-128", "mha-128",   "qwen2-64",
                                           "qwen2-128", "qwen3-64",  "qwen3-128", "mistral-128"};
  using Tokens = std::vector<std::int32_t>;

  explicit LlamaHeads(const std::string& name) {
    for (const auto& c : json_["cases"])
      if (c["name"] == name) case_ = c;
    require(!case_.is_null(), "no case {}", name);
    for (std::size_t i = 0; i < case_["sequences"].size(); ++i) logits_.push_back(numbers(fmt::format("logits.{}", i)));
  }

  std::vector<Tokens> sequences() const { return case_["sequences"]; }
  std::vector<std::size_t> prompt_lengths() const { return case_["prompt_lengths"]; }
  std::vector<Tokens> answers() const { return case_["answers"]; }  // to so many tokens of each sequence, in float32

  // The distance of logits and of log-probabilities from float32 that is allowed. Float32: rounding in another order
  // stays below 1e-4, which moves a log-probability by up to twice that. 2-byte dtypes: what transformers loses there.
  struct Allowed {
    double largest, root_mean_square;
  };
  Allowed allowed_of_logits(DType dtype) const { return allowed(dtype, "logits", 1e-4); }
  Allowed allowed_of_logprobs(DType dtype) const { return allowed(dtype, "logprobs", 2e-4); }

  // Adds how far the golden columns of `row`, the logits at a position of a sequence, are from the golden.
  void compare(const std::vector<float>& row, std::size_t sequence, std::size_t position, Distance& distance) const {
    for (std::size_t i = 0; i < columns_.size(); ++i)
      distance.add(row.at(columns_[i]), logits_.at(sequence).at(position * columns_.size() + i));
  }

  // [length - 1], of each token from the second on
  std::vector<float> logprobs(std::size_t sequence) const { return numbers(fmt::format("logprobs.{}", sequence)); }

  // Writes config.json and the weights, in bfloat16.
  void write(const std::filesystem::path& folder) const {
    std::vector<TensorToWrite> tensors;
    for (const auto& recipe : case_["tensors"])
      tensors.push_back({recipe["name"], stored_dtype(DType::bfloat16), recipe["shape"]});
    write_file(folder / "config.json", case_["config"].dump());
    write_safetensors(folder / "model.safetensors", tensors, [&](std::size_t i, const ByteSink& sink) {
      const auto& recipe = case_["tensors"][i];
      std::size_t count = 1;
      for (const std::int64_t size : tensors[i].shape) count *= static_cast<std::size_t>(size);
      std::vector<std::uint16_t> values(count);
      fill_synthetic({.key = synthetic_key(case_["name"].get<std::string>(), tensors[i].name),
                      .scale = static_cast<float>(recipe["deviation"].get<double>() / kUnitDeviation),
                      .offset = recipe["offset"]},
                     0, count, DType::bfloat16, values.data());
      sink(std::as_bytes(std::span(values)));
    });
  }

 private:
  static std::filesystem::path data() { return std::filesystem::path(HEDDLE_SOURCE_DIR) / "tests/data/llama/heads"; }

  Allowed allowed(DType dtype, const char* what, double in_float32) const {
    if (dtype == DType::float32) return {in_float32, in_float32};
    const auto& loss = case_["loss"][std::string(name_of(dtype))][what];
    return {loss["largest"], loss["root_mean_square"]};
  }

  std::vector<float> numbers(const std::string& what) const {
    const std::string name = case_["name"].get<std::string>() + "." + what;
    for (const StoredTensor& tensor : goldens_.tensors()) {
      if (tensor.name != name) continue;
      std::vector<float> values(tensor.bytes.size() / sizeof(float));
      std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
      return values;
    }
    throw_error<Failure>("no golden {}", name);
  }

  nlohmann::json json_ = parse_json(read_file(data() / "heads.json", 1 << 20), "heads.json");
  SafetensorsFile goldens_{data() / "heads.safetensors"};
  std::vector<std::size_t> columns_ = json_["columns"];
  nlohmann::json case_;
  std::vector<std::vector<float>> logits_;  // of each sequence [length, columns]
};

}  // namespace heddle
