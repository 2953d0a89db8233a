#include "models/architecture.h"

#include <algorithm>
#include <string_view>

namespace heddle {
namespace {

struct ModelType {
  std::string_view model_type;
  std::string_view architecture;
};

constexpr ModelType kModelTypes[] = {
    {"llama", "LlamaForCausalLM"},
    {"mistral", "MistralForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"mixtral", "MixtralForCausalLM"},
    {"deepseek_v2", "DeepseekV2ForCausalLM"},
    {"deepseek_v3", "DeepseekV3ForCausalLM"},
};

}  // namespace

std::string architecture_of(const JsonField& config) {
  if (!config.find("architectures"))
    if (const auto model_type = config.find("model_type"); model_type && model_type->is_string()) {
      const auto* found = std::ranges::find(kModelTypes, model_type->text(), &ModelType::model_type);
      if (found != std::end(kModelTypes)) return std::string(found->architecture);
    }
  const auto names = config.at("architectures").elements();
  if (names.empty()) config.at("architectures").fail("is empty, expected the name of an architecture");
  return names.front().text();
}

}  // namespace heddle
