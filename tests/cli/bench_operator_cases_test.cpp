// `heddle bench operator` times the operators that a step of the model runs: same order, places, shapes, dtypes, biases,
// windows and norms of heads.
#include "cli/bench/operator_cases.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "engine/executor.h"
#include "models/llama.h"
#include "models/llama_family.h"
#include "models/llama_runner.h"
#include "parallel/local.h"

namespace heddle {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAreArray;
using Products = std::vector<std::string>;

constexpr int kSequences = 2, kTokens = 3;

std::size_t size_bytes_of(const Tensor& tensor) {
  return static_cast<std::size_t>(tensor.rows * tensor.columns) * size_of(tensor.dtype);
}

// As a case of the bench is described: role, shape, and the bytes that it reads and writes, which dtypes decide.
std::string product(LinearRole role, const Tensor& x, const Weight& weight, const Tensor& y) {
  return fmt::format("linear {}: {} x {} x {}{}, {} bytes", name_of(role), x.rows, weight.out_features,
                     weight.in_features, weight.bias != nullptr ? ", bias" : "",
                     size_bytes_of(x) + weight.size_bytes() + size_bytes_of(y));
}

// Runs a forward pass and keeps what it multiplies; not what an executor's dry runs only name.
class RecordingStrategy : public LocalStrategy {
 public:
  explicit RecordingStrategy(Products& products) : products_(products) {}

  void linear(Tensor x, const Weight& weight, LinearRole role, Tensor y, const Lane& lane) override {
    if (lane.dry_run == nullptr) products_.push_back(product(role, x, weight, y));
    LocalStrategy::linear(x, weight, role, y, lane);
  }
  void linear_swiglu(Tensor x, const Weight& weight, Tensor gate_up, Tensor y, const Lane& lane) override {
    if (lane.dry_run == nullptr) products_.push_back(product(LinearRole::gate_up, x, weight, gate_up));
    LocalStrategy::linear_swiglu(x, weight, gate_up, y, lane);
  }

 private:
  Products& products_;
};

// Of one step of kSequences prompts of kTokens tokens.
Products products_of_model(const Checkpoint& checkpoint, const LlamaConfig& config) {
  Products products;
  auto model = std::make_unique<Llama>(config, load_llama_weights(checkpoint, config, {}),
                                       std::make_unique<RecordingStrategy>(products), Compute::automatic);
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

Products products_of_bench(const Checkpoint& checkpoint) {
  Products products;
  const std::unique_ptr<Model> outline = outline_model(checkpoint, {});
  for (const OperatorCase& one :
       operator_cases({.model = *outline, .sizes = {}, .batch = kSequences, .tokens = kTokens, .page_size = 4}))
    if (one.name.starts_with("linear "))
      for (int call = 0; call < one.calls_per_step; ++call)
        products.push_back(fmt::format("{}: {}, {:.0f} bytes", one.name, one.shape, one.bytes));
  return products;
}

void expect_the_model_s_products(const std::filesystem::path& folder) {
  const Checkpoint checkpoint(folder);
  const LlamaConfig config = parse_llama_config(checkpoint.config());
  const Products expected = products_of_model(checkpoint, config);
  EXPECT_GT(expected.size(), 4u);
  EXPECT_THAT(products_of_bench(checkpoint), UnorderedElementsAreArray(expected));
}

TEST(OperatorCases, AreTheProductsOfAStepOfTheModel) {
  expect_the_model_s_products(golden_folder("gqa"));
  expect_the_model_s_products(golden_folder("gqa-bfloat16"));
  expect_the_model_s_products(golden_folder("tied-float16"));
}

TEST(OperatorCases, HaveTheBiasesOfTheModel) {
  const LlamaFamily family;
  for (const char* name : {"qwen2", "llama-biases", "qwen3"}) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    family.write(family.find(name), folder.path());
    expect_the_model_s_products(folder.path());
  }
}

// The bench's cases of a member of the family, on a device that need not be there.
class CasesOf {
 public:
  explicit CasesOf(const std::string& name, DeviceKind kind = DeviceKind::cpu, std::optional<DType> dtype = {}) {
    const LlamaFamily family;
    family.write(family.find(name), folder_.path());
    outline_ = outline_model(Checkpoint(folder_.path()), {.device = {kind, 0}, .dtype = dtype});
  }

  std::vector<OperatorCase> all(int tokens = kTokens, int context = 0) {
    return operator_cases(
        {.model = *outline_, .sizes = {}, .batch = kSequences, .context = context, .tokens = tokens, .page_size = 4});
  }

  // "name: shape", and how often where it is more than once in a step; of the cases whose name begins so.
  std::vector<std::string> texts(const std::string& beginning = "", int tokens = kTokens) {
    std::vector<std::string> texts;
    for (const OperatorCase& one : all(tokens)) {
      if (!one.name.starts_with(beginning)) continue;
      texts.push_back(fmt::format("{}: {}", one.name, one.shape));
      if (one.calls_per_step > 1) texts.back() += fmt::format(" ({})", one.calls_per_step);
    }
    return texts;
  }

 private:
  TemporaryFolder folder_;
  std::unique_ptr<Model> outline_;
};

TEST(OperatorCases, AreThoseOfAStepInItsOrder) {
  EXPECT_THAT(CasesOf("llama-2").texts(),
              ElementsAre("embedding: 6 of 131 x 48", "rmsnorm: 6 x 48", "linear qkv: 6 x 256 x 48 (2)",
                          "rope_kv_write: 6 x (128 + 2 x 64) (2)", "attention: 2 x 3, 3 keys, 4/2 heads of 32 (2)",
                          "linear output: 6 x 48 x 128 (2)", "rmsnorm: 6 x 48, with a residual (3)",
                          "linear gate_up: 6 x 128 x 48 (2)", "swiglu: 6 x 64 (2)", "linear down: 6 x 48 x 64 (2)",
                          "gather_rows: 2 of 6 x 48, float32 (2)", "rmsnorm: 2 x 48, with a residual",
                          "linear logits: 2 x 131 x 48"));
}

TEST(OperatorCases, OfADecodeStepGatherNoRows) {
  EXPECT_THAT(CasesOf("llama-2").texts("gather_rows", 1), IsEmpty());
  EXPECT_THAT(CasesOf("llama-2").texts("rmsnorm", 1),
              ElementsAre("rmsnorm: 2 x 48", "rmsnorm: 2 x 48, with a residual (4)"));
}

TEST(OperatorCases, NormalizeTheHeadsOfQueriesAndKeys) {
  EXPECT_THAT(CasesOf("qwen3").texts("rmsnorm heads"),
              ElementsAre("rmsnorm heads: 6 x 4 heads of 32 (2)", "rmsnorm heads: 6 x 2 heads of 32 (2)"));
  EXPECT_THAT(CasesOf("qwen2").texts("rmsnorm heads"), IsEmpty());
}

TEST(OperatorCases, AttendInEachLayersOwnWindow) {
  EXPECT_THAT(CasesOf("mistral-window").texts("attention"),
              ElementsAre("attention: 2 x 3, 3 keys, 4/2 heads of 32, window 16 (2)"));
  EXPECT_THAT(
      CasesOf("qwen2-window").texts("attention"),
      ElementsAre("attention: 2 x 3, 3 keys, 4/2 heads of 32", "attention: 2 x 3, 3 keys, 4/2 heads of 32, window 24"));
  EXPECT_THAT(
      CasesOf("qwen2-layer-types").texts("attention"),
      ElementsAre("attention: 2 x 3, 3 keys, 4/2 heads of 32, window 24", "attention: 2 x 3, 3 keys, 4/2 heads of 32"));
  std::vector<double> keys;  // that 3 tokens behind 40 see, of both sequences and all heads
  for (const OperatorCase& one : CasesOf("qwen2-window").all(kTokens, 40))
    if (one.name == "attention") keys.push_back(one.flops / (4.0 * kSequences * 128));
  EXPECT_THAT(keys, ElementsAre(41 + 42 + 43, 3 * 24));
}

TEST(OperatorCases, AddTheBiasesOfQueriesKeysAndValuesAlone) {
  EXPECT_THAT(
      CasesOf("qwen2").texts("linear"),
      ElementsAre("linear qkv: 6 x 256 x 48, bias (2)", "linear output: 6 x 48 x 128 (2)",
                  "linear gate_up: 6 x 128 x 48 (2)", "linear down: 6 x 48 x 64 (2)", "linear logits: 2 x 131 x 48"));
}

// In bfloat16 the delta is narrower than the residual there, and each is gathered as it is.
TEST(OperatorCases, OfAGpuHaveTheDtypesOfAGpu) {
  CasesOf on_gpu("qwen2", DeviceKind::cuda, DType::bfloat16);
  EXPECT_THAT(on_gpu.texts("gather_rows"),
              ElementsAre("gather_rows: 2 of 6 x 48, float32", "gather_rows: 2 of 6 x 48, bfloat16"));
  if (kHaveCuda) {
    EXPECT_THAT(on_gpu.texts("linear_swiglu"), ElementsAre("linear_swiglu: 6 x 128 x 48 (2)"));
  }
  const auto bytes_of_norm = [](CasesOf& of) {
    for (const OperatorCase& one : of.all())
      if (one.shape == "6 x 48, with a residual") return one.bytes;
    return 0.0;
  };
  CasesOf in_float32("qwen2");
  EXPECT_EQ(bytes_of_norm(on_gpu), 6 * 48 * (2 * 4 + 2 + 2) + 48 * 4);
  EXPECT_EQ(bytes_of_norm(in_float32), 6 * 48 * (2 * 4 + 4 + 4) + 48 * 4);
}

TEST(OperatorCases, ComputeWhatTheCpuDoesAlsoWhenCalledAgain) {
  ThreadPool pool(1);
  Stream stream(pool);
  Operands operands(stream);
  for (const char* name : {"llama-biases", "qwen2-window", "qwen3-v5"})
    for (const int tokens : {1, kTokens}) {
      CasesOf cases(name);
      for (const OperatorCase& one : cases.all(tokens, 30)) {
        SCOPED_TRACE(fmt::format("{} {}: {}", name, one.name, one.shape));
        const PreparedOperator prepared = one.prepare(operands, 2);
        for (int call = 0; call < 6; ++call) prepared.call(call % 2);
        EXPECT_LE(prepared.check(), prepared.most_error);
      }
    }
}

}  // namespace
}  // namespace heddle
