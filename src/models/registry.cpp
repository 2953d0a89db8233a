#include "models/registry.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "models/llama.h"

namespace heddle {
namespace {

struct Architecture {
  std::string_view name;
  std::unique_ptr<Model> (*load)(const Checkpoint&, const LoadOptions&);
};

constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", load_llama},
};

}  // namespace

std::string architecture_of(const JsonField& config) {
  const auto names = config.at("architectures").elements();
  if (names.empty()) config.at("architectures").fail("is empty, expected the name of an architecture");
  return names.front().text();
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Architecture& architecture : kArchitectures) names.emplace_back(architecture.name);
  return names;
}

std::unique_ptr<Model> load_model(const Checkpoint& checkpoint, const LoadOptions& options) {
  const JsonField config = checkpoint.config();
  const std::string name = architecture_of(config);
  const auto* found = std::ranges::find(kArchitectures, name, &Architecture::name);
  if (found == std::end(kArchitectures))
    config.at("architectures")
        .fail(fmt::format("\"{}\" is not supported; Heddle knows {}", name, fmt::join(known_architectures(), ", ")));
  return found->load(checkpoint, options);
}

}  // namespace heddle
