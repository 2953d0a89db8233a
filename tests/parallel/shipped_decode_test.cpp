// Tables of decode choices that are shipped with Heddle.
#include "parallel/shipped_decode.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace heddle {
namespace {

constexpr const char* kH200 = "NVIDIA H200";

SplitKey llama_2_7b() {
  return {.layers = 32,
          .hidden = 4096,
          .intermediate = 11008,
          .heads = 32,
          .kv_heads = 32,
          .head_dim = 128,
          .device = DeviceKind::cuda};
}

TEST(ShippedDecode, EveryTableIsOneAndCoversAllSteps) {
  const nlohmann::json all = nlohmann::json::parse(shipped_decode_json());
  for (const auto& [gpu, shipped] : all.items()) {
    EXPECT_FALSE(shipped["from"].get<std::string>().empty()) << gpu;
    for (const auto& [model, rows] : shipped["models"].items()) {
      const std::optional<DecodeTable> table = decode_table_in(rows);
      ASSERT_TRUE(table.has_value() && !table->empty()) << model;
      EXPECT_EQ(table->back().up_to_tokens, std::numeric_limits<int>::max()) << model;
      EXPECT_EQ(table->back().up_to_context, std::numeric_limits<int>::max()) << model;
    }
  }
}

TEST(ShippedDecode, IsFoundByGpuAndShapeWhateverTheLayers) {
  SplitKey key = llama_2_7b();
  const std::optional<ShippedDecode> found = shipped_decode(kH200, key);
  ASSERT_TRUE(found.has_value());
  EXPECT_FALSE(found->from.empty());
  EXPECT_TRUE(found->table.front().times.has_value());
  key.layers = 8;
  EXPECT_EQ(shipped_decode(kH200, key)->table, found->table);
  EXPECT_FALSE(shipped_decode("NVIDIA H100", key).has_value());
  key.head_dim = 64;
  EXPECT_FALSE(shipped_decode(kH200, key).has_value());
  key = llama_2_7b();
  key.ranks = 2;
  EXPECT_FALSE(shipped_decode(kH200, key).has_value());
}

TEST(ShippedDecode, WhatIsNoTableIsNotThere) {
  const std::string name = shape_name_of(llama_2_7b());
  for (const std::string models : {R"(5)", R"({"NAME": 5})", R"({"NAME": [{"form": "woven"}]})", R"({})"}) {
    std::string of_model = models;
    if (const auto at = of_model.find("NAME"); at != std::string::npos) of_model.replace(at, 4, name);
    const std::string text = R"({"NVIDIA H200": {"from": "x", "models": )" + of_model + "}}";
    EXPECT_FALSE(shipped_decode(kH200, llama_2_7b(), text).has_value()) << text;
  }
  for (const char* const text : {"", "[]", R"({"NVIDIA H200": 1})", R"({"NVIDIA H200": {}})"})
    EXPECT_FALSE(shipped_decode(kH200, llama_2_7b(), text).has_value()) << text;
  const std::string good = R"({"NVIDIA H200": {"from": "x", "models": {")" + name + R"(": [{"form": "streamed"}]}}})";
  EXPECT_EQ(shipped_decode(kH200, llama_2_7b(), good)->table,
            (DecodeTable{{.choice = {.form = DecodeChoice::Form::streamed}}}));
}

}  // namespace
}  // namespace heddle
