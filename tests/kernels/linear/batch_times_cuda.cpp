// Times the GEMM of a decode batch (linear_sm90_batch.h) in each of its plans beside cuBLASLt, all interleaved:
//   linear_batch_times [--repeats 9] [--tokens 17,24,32,48,64] [MODEL ...]
// MODEL: llama-3-8b or qwen2.5-7b; both where none is named. A time is a call's in a graph of many calls, each with a
// weight of its own, as many as exceed L2 twice. "%" is of the time that W's bytes take at 4.55 TB/s.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/buffer.h"
#include "base/cuda_runtime.h"
#include "base/error.h"
#include "base/graph.h"
#include "base/stream.h"
#include "kernels/linear/linear_sm90.h"
#include "kernels/linear/linear_sm90_batch.h"
#include "kernels/rows/swiglu.h"

namespace heddle {
namespace {

constexpr Device kGpu{DeviceKind::cuda, 0};
constexpr double kBytesPerSecond = 4.55e12;             // that a reading kernel reaches on an H200
constexpr std::size_t kApart = std::size_t{160} << 20;  // of weights, before a call reads the first one again
constexpr int kCalls = 24;                              // of a graph, at least
constexpr std::int64_t kMostTokens = 64;

struct Gemm {
  LinearRole role;
  std::int64_t rows, features;
  bool has_bias = false;
};

const std::map<std::string_view, std::vector<Gemm>> kModels = {{"llama-3-8b",
                                                                {{LinearRole::qkv, 6144, 4096},
                                                                 {LinearRole::attention_output, 4096, 4096},
                                                                 {LinearRole::gate_up, 28672, 4096},
                                                                 {LinearRole::down, 4096, 14336},
                                                                 {LinearRole::logits, 128256, 4096}}},
                                                               {"qwen2.5-7b",
                                                                {{LinearRole::qkv, 4608, 3584, true},
                                                                 {LinearRole::attention_output, 3584, 3584},
                                                                 {LinearRole::gate_up, 37888, 3584},
                                                                 {LinearRole::down, 3584, 18944},
                                                                 {LinearRole::logits, 152064, 3584}}}};

void check(cudaError_t error) {
  if (error != cudaSuccess) throw_error<Failure>("linear_batch_times: {}", cudaGetErrorString(error));
}

// Random bfloat16 in [-1, 1), the same 16 MiB again and again.
void fill(Buffer& memory) {
  constexpr std::size_t kPiece = std::size_t{16} << 20;
  std::vector<std::uint16_t> piece(kPiece / 2);
  std::mt19937 random(1);
  for (std::uint16_t& element : piece) {
    const float value = static_cast<float>(static_cast<int>(random() % 4096) - 2048) / 2048;
    element = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  }
  for (std::size_t at = 0; at < memory.size_bytes(); at += kPiece)
    check(cudaMemcpy(memory.data() + at, piece.data(), std::min(kPiece, memory.size_bytes() - at),
                     cudaMemcpyHostToDevice));
}

struct Variant {
  std::string name;
  std::function<void(int set)> call;
  std::optional<Graph> graph;
  std::vector<double> microseconds;
  double error = 0;  // against the first variant, of the largest number
};

class Times {
 public:
  explicit Times(int repeats)
      : repeats_(repeats),
        stream_(kGpu),
        workspace_(linear_workspace_bytes(kGpu), kGpu),
        weights_(std::size_t{2300} << 20, kGpu),
        x_(std::size_t{4} << 20, kGpu),
        bias_(std::size_t{1} << 20, kGpu),
        between_(std::size_t{8} << 20, kGpu),
        y_(std::size_t{48} << 20, kGpu) {
    fill(weights_);
    fill(x_);
    check(cudaMemset(bias_.data(), 0, bias_.size_bytes()));
    check(cudaEventCreate(&begin_));
    check(cudaEventCreate(&end_));
  }

  void measure(std::string_view model, const Gemm& gemm, std::int64_t tokens) {
    std::vector<Variant> variants = variants_of(gemm, tokens);
    const std::size_t weight_bytes = static_cast<std::size_t>(gemm.rows * gemm.features) * 2;
    const int sets =
        std::max(1, static_cast<int>(std::min(weights_.size_bytes() / weight_bytes, kApart / weight_bytes + 2)));
    const int calls = (kCalls + sets - 1) / sets * sets;
    std::vector<float> expected;
    for (Variant& variant : variants) {
      check(cudaMemset(y_.data(), 0xff, y_.size_bytes()));
      variant.call(0);
      stream_.synchronize();
      const std::vector<float> y = result(gemm, tokens);
      if (expected.empty()) expected = y;
      variant.error = distance(y, expected);
      variant.graph.emplace(stream_, [&] {
        for (int i = 0; i < calls; ++i) variant.call(i % sets);
      });
    }
    for (int repeat = -1; repeat < repeats_; ++repeat)
      for (Variant& variant : variants) {
        check(cudaEventRecord(begin_, native()));
        variant.graph->launch(stream_);
        check(cudaEventRecord(end_, native()));
        stream_.synchronize();
        float milliseconds = 0;
        check(cudaEventElapsedTime(&milliseconds, begin_, end_));
        if (repeat >= 0) variant.microseconds.push_back(1e3 * milliseconds / calls);
      }
    const double floor = static_cast<double>(weight_bytes) / kBytesPerSecond * 1e6;
    for (Variant& variant : variants) {
      std::sort(variant.microseconds.begin(), variant.microseconds.end());
      const double median = variant.microseconds[variant.microseconds.size() / 2];
      fmt::print(
          "{:<11} {:<8} {:>6} x {:<5} {:>3} {:<34} {:>8.2f} us {:>6.1f} %  min {:>8.2f}  max {:>8.2f}  error "
          "{:.1e}{}\n",
          model, name_of(gemm.role), gemm.rows, gemm.features, tokens, variant.name, median, 100 * floor / median,
          variant.microseconds.front(), variant.microseconds.back(), variant.error,
          variant.error <= 0.02 ? "" : " WRONG");
    }
    std::fflush(stdout);
  }

 private:
  cudaStream_t native() { return static_cast<cudaStream_t>(stream_.native()); }
  Lane lane() { return {stream_, Workspace{workspace_.data(), workspace_.size_bytes()}}; }
  static DType dtype_of_y(const Gemm& gemm) {
    return gemm.role == LinearRole::logits ? DType::float32 : DType::bfloat16;
  }

  LinearParams params(const Gemm& gemm, std::int64_t tokens, int set, Buffer& y) {
    LinearParams params{.x = {x_.data(), tokens, gemm.features, gemm.features, DType::bfloat16},
                        .weight = {},
                        .y = {y.data(), tokens, gemm.rows, gemm.rows, dtype_of_y(gemm)},
                        .role = gemm.role};
    Weight& weight = params.weight;
    weight.blocks[0] = {weights_.data() + static_cast<std::size_t>(set * gemm.rows * gemm.features) * 2, gemm.rows};
    weight.out_features = gemm.rows;
    weight.in_features = gemm.features;
    weight.dtype = DType::bfloat16;
    if (gemm.has_bias) {
      weight.bias = reinterpret_cast<const float*>(bias_.data());
      weight.bias_dtype = DType::bfloat16;
    }
    return params;
  }

  LinearSwigluParams swiglu_params(const Gemm& gemm, std::int64_t tokens, int set) {
    const std::int64_t columns = gemm.rows / 2;
    return {.gate_up = params(gemm, tokens, set, between_),
            .y = {y_.data(), tokens, columns, columns, DType::bfloat16}};
  }

  std::vector<Variant> variants_of(const Gemm& gemm, std::int64_t tokens) {
    const bool gated = gemm.role == LinearRole::gate_up;
    std::vector<Variant> variants;
    const auto add = [&](std::string name, std::function<void(int)> call) {
      variants.push_back({.name = std::move(name), .call = std::move(call), .graph = {}, .microseconds = {}});
    };
    if (gated)
      add("cublaslt, swiglu", [=, this](int set) {
        const LinearSwigluParams p = swiglu_params(gemm, tokens, set);
        linear_cublas_lt(p.gate_up, lane());
        swiglu({.gate_up = p.gate_up.y, .y = p.y}, lane());
      });
    else
      add("cublaslt", [=, this](int set) { linear_cublas_lt(params(gemm, tokens, set, y_), lane()); });
    add("ours", [=, this](int set) {
      if (gated)
        linear_swiglu(swiglu_params(gemm, tokens, set), lane());
      else
        linear(params(gemm, tokens, set, y_), lane());
    });
    struct Change {
      const char* name;
      int bytes_ahead, steps_apart;
    };
    constexpr int kPaced = 64 << 10;
    for (const Change& change :
         {Change{"", kPaced, 0}, {" unpaced", 1 << 20, 0}, {" apart", kPaced, 3}, {" both", 1 << 20, 3}})
      for (BatchPlan plan : gated ? swiglu_batch_plans().first(1) : batch_plans()) {
        plan.bytes_ahead = change.bytes_ahead;
        plan.steps_apart = change.steps_apart;
        add(fmt::format("cluster {} rows {}{}", plan.cluster, plan.tile_rows, change.name), [=, this](int set) {
          if (gated)
            linear_swiglu_batch(swiglu_params(gemm, tokens, set), plan, lane());
          else
            linear_batch(params(gemm, tokens, set, y_), plan, lane());
        });
      }
    return variants;
  }

  // Of the last few tokens.
  std::vector<float> result(const Gemm& gemm, std::int64_t tokens) {
    constexpr std::int64_t kChecked = 4;
    const std::int64_t columns = gemm.role == LinearRole::gate_up ? gemm.rows / 2 : gemm.rows;
    const auto count = static_cast<std::size_t>(kChecked * columns);
    std::vector<std::byte> bytes(count * size_of(dtype_of_y(gemm)));
    const auto first = static_cast<std::size_t>((tokens - kChecked) * columns) * size_of(dtype_of_y(gemm));
    check(cudaMemcpy(bytes.data(), y_.data() + first, bytes.size(), cudaMemcpyDeviceToHost));
    std::vector<float> values(count);
    convert(bytes.data(), dtype_of_y(gemm), values.data(), DType::float32, count);
    return values;
  }

  static double distance(const std::vector<float>& y, const std::vector<float>& expected) {
    double largest = 0, most = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double difference = std::fabs(y[i] - expected[i]);
      if (!(difference <= most)) most = difference;  // NaN stays
      largest = std::max(largest, std::fabs(double{expected[i]}));
    }
    return most / largest;
  }

  int repeats_;
  Stream stream_;
  Buffer workspace_, weights_, x_, bias_, between_, y_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

std::vector<std::int64_t> numbers(std::string_view text) {
  std::vector<std::int64_t> result;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    std::int64_t number = 0;
    std::from_chars(one.data(), one.data() + one.size(), number);
    require(number > kLinearSmallRows && number <= kMostTokens, "linear_batch_times: {} is no number of 17 to 64", one);
    result.push_back(number);
    text.remove_prefix(std::min(text.size(), one.size() + 1));
  }
  return result;
}

int run(const std::vector<std::string_view>& words) {
  std::vector<std::int64_t> tokens{17, 24, 32, 48, 64};
  int times = 9;
  std::vector<std::string_view> models;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool has_value = i + 1 < words.size();
    if (words[i] == "--tokens" && has_value)
      tokens = numbers(words[++i]);
    else if (words[i] == "--repeats" && has_value)
      std::from_chars(words[i + 1].data(), words[i + 1].data() + words[i + 1].size(), times), ++i;
    else
      models.push_back(words[i]);
  }
  if (models.empty()) models = {"llama-3-8b", "qwen2.5-7b"};
  Times all(std::max(1, times));
  for (const std::string_view model : models) {
    const auto found = kModels.find(model);
    require(found != kModels.end(), "linear_batch_times: knows no model {}", model);
    for (const Gemm& gemm : found->second)
      for (const std::int64_t count : tokens) all.measure(model, gemm, count);
  }
  return 0;
}

}  // namespace
}  // namespace heddle

int main(int count, char** words) {
  try {
    return heddle::run({words + 1, words + count});
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
