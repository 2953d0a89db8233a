// `heddle bench operator` times the products that a step of the model runs: same places, shapes, dtypes and biases.
#include "cli/bench/operator_cases.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/executor.h"
#include "models/llama.h"
#include "models/llama_family.h"
#include "models/llama_runner.h"
#include "parallel/local.h"

namespace heddle {
namespace {

using testing::UnorderedElementsAreArray;
using Products = std::vector<std::string>;

constexpr int kSequences = 2, kTokens = 3;

std::size_t bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.rows * tensor.columns) * size_of(tensor.dtype);
}

// As a case of the bench is described: role, shape, and the bytes that it reads and writes, which dtypes decide.
std::string product(LinearRole role, const Tensor& x, const Weight& weight, const Tensor& y) {
  return fmt::format("linear {}: {} x {} x {}{}, {} bytes", name_of(role), x.rows, weight.out_features,
                     weight.in_features, weight.bias != nullptr ? ", bias" : "",
                     bytes_of(x) + weight.size_bytes() + bytes_of(y));
}

// Runs a forward pass and keeps what it multiplies.
class RecordingPlan : public LocalPlan {
 public:
  explicit RecordingPlan(Products& products) : products_(products) {}

  void linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) override {
    products_.push_back(product(role, x, weight, y));
    LocalPlan::linear(x, weight, role, y, lane);
  }
  void linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) override {
    products_.push_back(product(LinearRole::gate_up, x, weight, gate_up));
    LocalPlan::linear_swiglu(x, weight, gate_up, y, lane);
  }

 private:
  Products& products_;
};

// Of one step of kSequences prompts of kTokens tokens.
Products products_of_model(const Checkpoint& checkpoint, const LlamaConfig& config) {
  Products products;
  auto model = std::make_unique<Llama>(config, load_llama_weights(checkpoint, config, {}),
                                       std::make_unique<RecordingPlan>(products), Compute::automatic);
  Executor executor(
      std::move(model),
      {.step = {.max_tokens = kSequences * kTokens, .max_sequences = kSequences, .max_samples = kSequences},
       .page_size = 4,
       .num_pages = kSequences},
      1);
  StepPlan plan;
  for (int sequence = 0; sequence < kSequences; ++sequence) {
    plan.sequences.push_back({.request = sequence,
                              .first_token = sequence * kTokens,
                              .num_tokens = kTokens,
                              .context_len = kTokens,
                              .first_page = sequence,
                              .num_pages = 1});
    plan.pages.push_back(sequence);
    for (int token = 0; token < kTokens; ++token) {
      plan.tokens.push_back(token);
      plan.positions.push_back(token);
    }
    plan.samples.push_back({.sequence = sequence, .row = (sequence + 1) * kTokens - 1, .position = kTokens});
  }
  executor.run(plan);
  return products;
}

Products products_of_bench(const LlamaConfig& config, DType dtype) {
  Products products;
  for (const OperatorCase& one : operator_cases(
           {.config = config, .dtype = dtype, .batch = kSequences, .tokens = kTokens, .page_size = 4, .device = {}}))
    if (one.name.starts_with("linear "))
      for (int call = 0; call < one.calls_per_step; ++call)
        products.push_back(fmt::format("{}: {}, {:.0f} bytes", one.name, one.shape, one.bytes));
  return products;
}

void expect_the_model_s_products(const std::filesystem::path& folder, DType dtype) {
  const Checkpoint checkpoint(folder);
  const LlamaConfig config = parse_llama_config(checkpoint.config());
  const Products expected = products_of_model(checkpoint, config);
  EXPECT_GT(expected.size(), 4u);
  EXPECT_THAT(products_of_bench(config, dtype), UnorderedElementsAreArray(expected));
}

TEST(OperatorCases, AreTheProductsOfAStepOfTheModel) {
  expect_the_model_s_products(golden_folder("gqa"), DType::float32);
  expect_the_model_s_products(golden_folder("gqa-bfloat16"), DType::bfloat16);
  expect_the_model_s_products(golden_folder("tied-float16"), DType::float16);
}

TEST(OperatorCases, HaveTheBiasesOfTheModel) {
  const LlamaFamily family;
  for (const char* name : {"qwen2", "llama-biases", "qwen3"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    family.write(family.find(name), folder.path());
    expect_the_model_s_products(folder.path(), DType::float32);
  }
}

}  // namespace
}  // namespace heddle
