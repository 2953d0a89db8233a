#include "parallel/tp_mode.h"

#include <array>
#include <utility>

#include "base/error.h"
#include "fabric/fabric.h"

namespace heddle {
namespace {

using NamedMode = std::pair<TpMode, std::string_view>;
constexpr std::array<NamedMode, 7> kTpModes{{{TpMode::automatic, "auto"},
                                             {TpMode::standard, "default"},
                                             {TpMode::symmetric, "symmetric"},
                                             {TpMode::fused, "fused"},
                                             {TpMode::weave, "weave"},
                                             {TpMode::sequence, "sequence"},
                                             {TpMode::no_comm, "no-comm"}}};

}  // namespace

std::string_view name_of(TpMode mode) {
  for (const auto& [value, name] : kTpModes)
    if (value == mode) return name;
  throw_error<InvalidArgument>("no mode of tensor parallelism: {}", static_cast<int>(mode));
}

std::optional<TpMode> tp_mode_named(std::string_view name) {
  for (const auto& [value, text] : kTpModes)
    if (text == name) return value;
  return std::nullopt;
}

std::vector<std::string> tp_mode_names() {
  std::vector<std::string> names;
  names.reserve(kTpModes.size());
  for (const auto& mode : kTpModes) names.emplace_back(mode.second);
  return names;
}

bool uses_all_reduce_norm(TpMode mode) {
  return mode == TpMode::fused || mode == TpMode::weave || mode == TpMode::sequence;
}

void require_tp_mode(TpMode mode, const Fabric& fabric) {
  const bool needs_addresses = mode == TpMode::symmetric || uses_all_reduce_norm(mode);
  if (needs_addresses && !fabric.has(Capability::peer_addresses))
    throw_error<InputError>(
        "--tp-mode {}: ranks need to reach each other's memory, which the fabric {} cannot do between machines; use "
        "--tp-mode default",
        name_of(mode), fabric.name());
}

}  // namespace heddle
