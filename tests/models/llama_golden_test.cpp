// Logits against transformers (tools/goldens/make_llama.py).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/json.h"
#include "gpu_here.h"
#include "models/llama_runner.h"
#include "weights/safetensors.h"

namespace heddle {
namespace {

using Rows = std::vector<std::vector<float>>;

struct GoldenOn {
  const char* folder;
  Device device;
  int ranks = 1;  // all on this device
  TpMode mode = TpMode::standard;
  int context_ranks = 1;  // of them, that divide the keys and values
};

class LlamaGolden : public testing::TestWithParam<GoldenOn> {
 protected:
  LlamaGolden()
      : folder_(golden_folder(GetParam().folder)),
        json_(parse_json(read_file(folder_ / "golden.json", 1 << 20), "golden.json")),
        tensors_(folder_ / "golden.safetensors") {}

  void SetUp() override {
    if (GetParam().device.kind == DeviceKind::cpu) return;
    prepare_shared_gpus(std::vector<Device>(static_cast<std::size_t>(GetParam().ranks), GetParam().device));
    if (const std::string why = why_no_gpu(); !why.empty()) GTEST_SKIP() << why;
  }

  LlamaRunner runner(std::optional<DType> dtype = {}) const {
    LlamaRunner::Options options{.threads = 2,
                                 .dtype = dtype,
                                 .device = GetParam().device,
                                 .ranks = GetParam().ranks,
                                 .context_ranks = GetParam().context_ranks,
                                 .tp_mode = GetParam().mode};
    if (GetParam().mode == TpMode::weave) options.border = [](int num_tokens) { return num_tokens / 2; };
    return {folder_, options};
  }

  std::vector<std::int32_t> tokens() const { return json_["tokens"]; }
  const StoredTensor* find(const std::string& name) const {
    const auto found = std::ranges::find(tensors_.tensors(), name, &StoredTensor::name);
    return found == tensors_.tensors().end() ? nullptr : &*found;
  }

  Rows golden(const std::string& name) const {
    const StoredTensor* tensor = find(name);
    require(tensor != nullptr, "no golden {}", name);
    Rows rows(static_cast<std::size_t>(tensor->shape[0]),
              std::vector<float>(static_cast<std::size_t>(tensor->shape[1])));
    const std::size_t row_bytes = rows[0].size() * sizeof(float);
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::memcpy(rows[i].data(), tensor->bytes.data() + i * row_bytes, row_bytes);
    return rows;
  }

  // What our result may be off by. Float32 weights: the 1e-4 that float32 rounding in another order stays well below.
  // 2-byte weights: keys and values are cached in that dtype, which is a part of what transformers rounds when it
  // computes in that dtype, so we must stay below its own loss. On a GPU what is multiplied is rounded, too, as there.
  double bound() const {
    if (find("native") == nullptr) return 1e-4;
    return largest_difference(golden("native"), golden("prefill"));
  }

  static double largest_difference(const Rows& a, const Rows& b) {
    EXPECT_EQ(a.size(), b.size());
    double largest = 0;
    for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      EXPECT_EQ(a[i].size(), b[i].size());
      for (std::size_t j = 0; j < a[i].size(); ++j) {
        const double difference = std::abs(static_cast<double>(a[i][j]) - b[i][j]);
        if (!(difference <= largest)) largest = difference;  // NaN sticks
      }
    }
    return largest;
  }

  std::filesystem::path folder_;
  nlohmann::json json_;
  SafetensorsFile tensors_;
};

TEST_P(LlamaGolden, PrefillAgrees) {
  LlamaRunner model = runner();
  auto sequence = model.sequence();
  EXPECT_LE(largest_difference(model.step({{&sequence, tokens()}}), golden("prefill")), bound());
}

TEST_P(LlamaGolden, ChunkedPrefillAgrees) {
  LlamaRunner model = runner();
  auto sequence = model.sequence();
  const std::vector<std::int32_t> all = tokens();
  Rows rows;
  std::size_t start = 0;
  for (const std::size_t length : json_["chunks"].get<std::vector<std::size_t>>()) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(start);
    for (auto& row : model.step({{&sequence, {first, first + static_cast<std::ptrdiff_t>(length)}}}))
      rows.push_back(std::move(row));
    start += length;
  }
  EXPECT_LE(largest_difference(rows, golden("chunked")), bound());
}

TEST_P(LlamaGolden, DecodeWithCacheAgrees) {
  LlamaRunner model = runner();
  auto sequence = model.sequence();
  Rows rows;
  for (const std::int32_t token : tokens()) rows.push_back(model.step({{&sequence, {token}}})[0]);
  EXPECT_LE(largest_difference(rows, golden("decode")), bound());
}

TEST_P(LlamaGolden, ABatchOfUnequalLengthsAgrees) {
  LlamaRunner model = runner();
  const auto batch = json_["batch"].get<std::vector<std::vector<std::int32_t>>>();
  std::vector<LlamaRunner::Sequence> sequences;
  for (std::size_t i = 0; i < batch.size(); ++i) sequences.push_back(model.sequence());
  std::vector<LlamaRunner::Chunk> chunks;
  Rows expected;
  for (std::size_t i = 0; i < batch.size(); ++i) {
    chunks.push_back({&sequences[i], batch[i]});
    for (auto& row : golden("batch." + std::to_string(i))) expected.push_back(std::move(row));
  }
  EXPECT_LE(largest_difference(model.step(chunks), expected), bound());
}

// With --dtype float32 nothing is rounded to 2 bytes any more, and the float32 bound holds.
TEST_P(LlamaGolden, WidenedWeightsAgreeAsFloat32) {
  LlamaRunner model = runner(DType::float32);
  auto sequence = model.sequence();
  EXPECT_LE(largest_difference(model.step({{&sequence, tokens()}}), golden("prefill")), 1e-4);
}

std::vector<GoldenOn> goldens_on_all_devices() {
  std::vector<GoldenOn> cases;
  for (const Device device : {Device{}, kFirstGpu})
    for (const char* folder : {"gqa", "mha-tied", "mqa-sharded", "gqa-bfloat16", "tied-float16"})
      cases.push_back({folder, device});
  // Heads, features and tokens that no number of ranks divides; KV heads that several ranks share.
  for (const GoldenOn& c : {GoldenOn{"gqa", kFirstGpu, 2}, GoldenOn{"gqa", kFirstGpu, 3}, GoldenOn{"gqa", kFirstGpu, 4},
                            GoldenOn{"mha-tied", kFirstGpu, 2}, GoldenOn{"mqa-sharded", kFirstGpu, 4},
                            GoldenOn{"gqa-bfloat16", kFirstGpu, 2}, GoldenOn{"gqa-bfloat16", kFirstGpu, 4},
                            GoldenOn{"tied-float16", kFirstGpu, 2}})
    cases.push_back(c);
  for (const TpMode mode : {TpMode::symmetric, TpMode::fused, TpMode::weave})
    for (const int ranks : {2, 4})
      for (const char* folder : {"gqa", "gqa-bfloat16"}) cases.push_back({folder, kFirstGpu, ranks, mode});
  for (const int context_ranks : {2, 3, 4})
    for (const char* folder : {"gqa", "gqa-bfloat16"})
      cases.push_back({folder, kFirstGpu, context_ranks, TpMode::standard, context_ranks});
  cases.push_back({"gqa", kFirstGpu, 4, TpMode::standard, 2});
  cases.push_back({"gqa-bfloat16", kFirstGpu, 4, TpMode::fused, 2});
  return cases;
}

INSTANTIATE_TEST_SUITE_P(, LlamaGolden, testing::ValuesIn(goldens_on_all_devices()), [](const auto& test) {
  std::string name = test.param.folder;
  std::ranges::replace(name, '-', '_');
  if (test.param.ranks > 1) name += "_on_" + std::to_string(test.param.ranks) + "_ranks";
  if (test.param.context_ranks > 1) name += "_of_" + std::to_string(test.param.context_ranks) + "_contexts";
  if (test.param.mode != TpMode::standard) name += "_" + std::string(name_of(test.param.mode));
  return name + (test.param.device.kind == DeviceKind::cuda ? "_on_gpu" : "");
});

}  // namespace
}  // namespace heddle
