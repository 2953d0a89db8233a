#include "weights/synthetic_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"

namespace heddle {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

SyntheticModel synthetic(const std::string& name) {
  return SyntheticModel(*parse_synthetic_name(name));
}

std::string name_error(const std::string& name) {
  try {
    parse_synthetic_name(name);
  } catch (const InputError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<float> floats_of(const TensorSource& source, std::string_view name) {
  const TensorInfo& info = *source.find(name);
  const TensorRows rows = source.rows(name, 0, info.shape[0]);
  std::vector<float> values(static_cast<std::size_t>(info.num_elements()));
  convert(rows.bytes.data(), *info.dtype.dtype, values.data(), DType::float32, values.size());
  return values;
}

// As transformers counts the parameters of models with the published configurations.
TEST(KnownShapes, HaveAsManyParametersAsTheRealModels) {
  const std::map<std::string_view, std::int64_t> real{
      {"llama-2-7b", 6'738'415'616},      {"llama-2-13b", 13'015'864'320},     {"llama-3-8b", 8'030'261'248},
      {"llama-3.2-1b", 1'235'814'400},    {"llama-3.3-70b", 70'553'706'496},   {"codellama-34b", 33'743'970'304},
      {"qwen2-72b", 72'706'203'648},      {"qwen2.5-7b", 7'615'616'512},       {"qwen2.5-72b", 72'706'203'648},
      {"qwen3-8b", 8'190'735'360},        {"mistral-7b", 7'241'732'096},       {"mixtral-8x7b", 46'702'792'704},
      {"mixtral-8x22b", 140'620'634'112}, {"deepseek-v2-lite", 15'706'484'224}};
  for (const KnownShape& shape : kKnownShapes) {
    if (shape.real_model.empty()) continue;
    const SyntheticModel model = synthetic(fmt::format("synth:{}", shape.name));
    std::int64_t parameters = 0;
    for (const std::string_view name : model.names()) parameters += model.find(name)->num_elements();
    ASSERT_TRUE(real.contains(shape.name)) << shape.name;
    EXPECT_EQ(parameters, real.at(shape.name)) << shape.name;
    EXPECT_EQ(model.total_bytes(), 2 * static_cast<std::size_t>(parameters)) << shape.name;
  }
}

TEST(SyntheticName, IsNothingElse) {
  EXPECT_FALSE(parse_synthetic_name("synth"));
  EXPECT_FALSE(parse_synthetic_name("./synth:tiny"));
  EXPECT_FALSE(parse_synthetic_name(""));
}

TEST(SyntheticName, TakesLayersAndDtype) {
  const SyntheticName plain = *parse_synthetic_name("synth:llama-2-7b");
  EXPECT_EQ(plain.shape->name, "llama-2-7b");
  EXPECT_EQ(plain.num_layers, 32);
  EXPECT_EQ(plain.dtype, DType::float16);
  EXPECT_EQ(plain.text(), "synth:llama-2-7b");
  const SyntheticName name = *parse_synthetic_name("synth:llama-2-7b,dtype=float32,layers=2");
  EXPECT_EQ(name.num_layers, 2);
  EXPECT_EQ(name.dtype, DType::float32);
  EXPECT_EQ(name.text(), "synth:llama-2-7b,layers=2,dtype=float32");
}

TEST(SyntheticName, SaysWhatIsWrong) {
  for (const char* unknown : {"synth:", "synth:llama-4", "synth:LLAMA-2-7B", "synth: tiny", "synth:,layers=2"})
    EXPECT_THAT(name_error(unknown), AllOf(HasSubstr("there is no synthetic model"), HasSubstr("llama-3.2-1b, ")))
        << unknown;
  for (const char* layers : {"0", "-1", "5", "99999999999", "", "2x", "1.5", " 2", "+2"})
    EXPECT_THAT(name_error(fmt::format("synth:tiny,layers={}", layers)), HasSubstr("tiny can have 1 to 4")) << layers;
  for (const char* dtype : {"", "fp16", "F32", "auto"})
    EXPECT_THAT(name_error(fmt::format("synth:tiny,dtype={}", dtype)),
                HasSubstr("expected float32, bfloat16 or float16"))
        << dtype;
  for (const char* option : {"", "layer=2", "layers", "=", "seed=1"})
    EXPECT_THAT(name_error(fmt::format("synth:tiny,{}", option)),
                option == std::string("layers") ? HasSubstr("1 to 4") : HasSubstr("is not an option"))
        << option;
  EXPECT_THAT(name_error("synth:tiny,layers=2,"), HasSubstr("is not an option"));
  EXPECT_THAT(name_error("synth:tiny,layers=2,layers=3"), HasSubstr("layers is given twice"));
  EXPECT_THAT(name_error("synth:\n\x1b\xff" + std::string(100'000, 'x')),
              AllOf(StartsWith("\"synth:\\n"), testing::Not(HasSubstr("\n")), testing::Not(HasSubstr("\x1b"))));
}

TEST(SyntheticModel, IsWhatTheCommandsOpen) {
  const auto model = open_model("synth:tiny,layers=1");
  EXPECT_EQ(model->where(), "synth:tiny,layers=1");
  EXPECT_EQ(model->config().at("num_hidden_layers").integer(0, 9), 1);
  EXPECT_EQ(model->generation_config()->at("eos_token_id").integer(0, 9), 2);
  EXPECT_THROW(open_model("synth:no"), InputError);
}

TEST(SyntheticModel, SlicesEqualTheWhole) {
  for (const char* name : {"synth:tiny", "synth:tiny,dtype=float16", "synth:tiny,dtype=float32"}) {
    const SyntheticModel model = synthetic(name);
    const std::string_view tensor = "model.embed_tokens.weight";  // 1000 x 128: several threads' pieces
    const TensorRows whole = model.rows(tensor, 0, 1000);
    const std::size_t row_bytes = whole.bytes.size() / 1000;
    for (const auto& [first, count] : {std::pair{0, 1}, {1, 2}, {517, 300}, {999, 1}, {3, 0}, {1000, 0}}) {
      const TensorRows slice = model.rows(tensor, first, count);
      ASSERT_EQ(slice.bytes.size(), row_bytes * static_cast<std::size_t>(count));
      if (count > 0) {
        EXPECT_EQ(std::memcmp(slice.bytes.data(), whole.bytes.data() + row_bytes * static_cast<std::size_t>(first),
                              slice.bytes.size()),
                  0)
            << name << " " << first;
      }
    }
    EXPECT_THROW(model.rows(tensor, 999, 2), InvalidArgument);
    EXPECT_THROW(model.rows(tensor, -1, 2), InvalidArgument);
    EXPECT_THROW(model.rows("lm_head", 0, 1), InvalidArgument);
  }
}

TEST(SyntheticModel, HasTheSameNumbersInEveryDtype) {
  const SyntheticModel exact = synthetic("synth:tiny,dtype=float32");
  const SyntheticModel bfloat = synthetic("synth:tiny,dtype=bfloat16");
  const SyntheticModel half = synthetic("synth:tiny,dtype=float16");
  for (const std::string_view name : {"model.layers.2.mlp.down_proj.weight", "model.norm.weight"}) {
    const auto values = floats_of(exact, name);
    const auto bfloats = floats_of(bfloat, name);
    const auto halves = floats_of(half, name);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(bfloats[i], to_float(to_bfloat16(values[i])));
      ASSERT_EQ(halves[i], to_float(to_float16(values[i])));
    }
  }
}

// Fewer layers do not change the others, except for the weights that write to the residual.
TEST(SyntheticModel, KeepsTheNumbersOfALayerThatIsLeft) {
  const SyntheticModel whole = synthetic("synth:tiny");
  const SyntheticModel part = synthetic("synth:tiny,layers=2");
  EXPECT_EQ(part.find("model.layers.2.mlp.up_proj.weight"), nullptr);
  for (const std::string_view name : {"model.layers.1.mlp.up_proj.weight", "lm_head.weight"})
    EXPECT_EQ(floats_of(part, name), floats_of(whole, name));
}

struct Statistics {
  std::string_view tensor;
  double mean;
  double deviation;
};

TEST(SyntheticModel, ScalesWeightsSoThatActivationsStayNearOne) {
  const SyntheticModel model = synthetic("synth:tiny");
  for (const Statistics& expected :
       {Statistics{"model.embed_tokens.weight", 0, 3 / std::sqrt(128.0)},
        Statistics{"lm_head.weight", 0, 3 / std::sqrt(128.0)},
        Statistics{"model.layers.0.self_attn.q_proj.weight", 0, 1 / std::sqrt(128.0)},
        Statistics{"model.layers.3.mlp.gate_proj.weight", 0, 1 / std::sqrt(128.0)},
        Statistics{"model.layers.0.mlp.down_proj.weight", 0, 2.5 / std::sqrt(384 * 8.0)},
        Statistics{"model.layers.0.self_attn.o_proj.weight", 0, 2.5 / std::sqrt(128 * 8.0)},
        Statistics{"model.layers.1.input_layernorm.weight", 1, 0.1}, Statistics{"model.norm.weight", 1, 0.1}}) {
    const auto values = floats_of(model, expected.tensor);
    const double n = static_cast<double>(values.size());
    double sum = 0;
    double squares = 0;
    for (const float value : values) {
      ASSERT_TRUE(std::isfinite(value));
      ASSERT_NE(value, 0);
      sum += value;
      squares += (value - expected.mean) * (value - expected.mean);
    }
    // Five standard errors of the mean, and of the deviation, for this many independent numbers.
    EXPECT_NEAR(sum / n, expected.mean, 5 * expected.deviation / std::sqrt(n)) << expected.tensor;
    EXPECT_NEAR(std::sqrt(squares / n) / expected.deviation, 1, 5 / std::sqrt(2 * n)) << expected.tensor;
  }
}

TEST(SyntheticModel, HasTheTensorsOfItsFamily) {
  const SyntheticModel qwen2 = synthetic("synth:qwen2.5-7b,layers=1");
  EXPECT_EQ(qwen2.find("model.layers.0.self_attn.k_proj.bias")->shape, std::vector<std::int64_t>{512});
  EXPECT_EQ(qwen2.find("model.layers.0.self_attn.o_proj.bias"), nullptr);
  const SyntheticModel qwen3 = synthetic("synth:qwen3-8b,layers=1");
  EXPECT_EQ(qwen3.find("model.layers.0.self_attn.q_norm.weight")->shape, std::vector<std::int64_t>{128});
  EXPECT_EQ(qwen3.find("model.layers.0.self_attn.q_proj.bias"), nullptr);
  EXPECT_EQ(synthetic("synth:llama-3.2-1b").find("lm_head.weight"), nullptr);  // tied
  EXPECT_EQ(synthetic("synth:mistral-7b").config().at("sliding_window").integer(0, 9999), 4096);
}

TEST(SyntheticModel, AnyColumnsAreThoseOfWholeRows) {
  for (const char* dtype : {"float32", "bfloat16"}) {
    const SyntheticModel model(*parse_synthetic_name(std::string("synth:tiny,dtype=") + dtype));
    constexpr std::string_view kName = "model.layers.0.mlp.down_proj.weight";
    const auto columns = static_cast<std::size_t>(model.find(kName)->shape[1]);
    const std::size_t element_bytes = model.find(kName)->dtype.bits / 8;
    const TensorRows whole = model.rows(kName, 3, 4);
    const Slice slice{5, static_cast<std::int64_t>(columns) - 9};
    const std::size_t part_bytes = static_cast<std::size_t>(slice.count) * element_bytes;
    std::vector<std::byte> part(4 * part_bytes);
    model.read_columns(kName, 3, 4, slice, part.data());
    for (std::size_t row = 0; row < 4; ++row)
      EXPECT_EQ(std::memcmp(part.data() + row * part_bytes, whole.bytes.data() + (row * columns + 5) * element_bytes,
                            part_bytes),
                0);
    EXPECT_THROW(model.read_columns(kName, 0, 1, {1, static_cast<std::int64_t>(columns)}, part.data()),
                 InvalidArgument);
  }
}

}  // namespace
}  // namespace heddle
