#include "cli/tuned_gathers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "machine/machine.h"
#include "machine/tuned_store.h"
#include "models/registry.h"

namespace heddle {
namespace {

// Of the weights as a rank has them: what --dtype says, or a checkpoint's. With --compute float32 it is a name of its own,
// because activations then have another dtype.
std::optional<std::string> dtype_of(const ModelSource& source, const ModelOptions& options) {
  std::optional<DType> dtype = options.dtype;
  if (!dtype)
    for (const std::string_view name : source.names())
      if (name.ends_with("gate_proj.weight")) {
        dtype = source.find(name)->dtype.dtype;
        break;
      }
  if (!dtype) return std::nullopt;
  return std::string(name_of(*dtype)) +
         (options.compute == Compute::float32 && *dtype != DType::float32 ? "-in-float32" : "");
}

void add_lines(std::string& text, std::string_view gemm, const GatherTable& table) {
  if (table.empty()) {
    text += fmt::format("heddle: all-gather + GEMM of {}: push, as nothing is tuned (heddle tune all-gather-linear)\n",
                        gemm);
    return;
  }
  for (const GatherLine& line : table) {
    const bool last = line.up_to_rows == std::numeric_limits<int>::max();
    text += fmt::format("heddle: all-gather + GEMM of {}, steps of {}: {} ({:.1f} us measured, untuned {:.1f})\n", gemm,
                        last ? std::string("more tokens") : fmt::format("up to {} tokens", line.up_to_rows),
                        text_of(line.choice), line.microseconds, line.untuned_microseconds);
  }
}

}  // namespace

std::optional<GatherKeys> gather_keys_of(const ModelSource& source, const ModelOptions& options,
                                         const std::vector<Device>& devices) {
  const ModelDescription model = describe_model(source.config());
  const std::optional<std::string> dtype = dtype_of(source, options);
  if (model.latent || model.experts || !dtype || !model.hidden || !model.intermediate || !model.heads ||
      !model.kv_heads || !model.head_dim)
    return std::nullopt;
  const Device first = devices.front();
  GatherKeys keys;
  for (GatherKey* const key : {&keys.qkv, &keys.gate_up})
    *key = {.k = *model.hidden,
            .dtype = *dtype,
            .ranks = options.ranks,
            .device = first.kind,
            .shared = first.kind == DeviceKind::cuda && std::ranges::count(devices, first) > 1};
  keys.qkv.n = (*model.heads + 2 * *model.kv_heads) * *model.head_dim;
  keys.gate_up.n = 2 * *model.intermediate;
  return keys;
}

void add_tuned_gathers(ChoiceTables& tables, const ModelSource& source, const ModelOptions& options,
                       const std::vector<Device>& devices) {
  const std::optional<GatherKeys> keys = gather_keys_of(source, options, devices);
  if (!keys) return;
  const TunedStore store(default_tuned_store_file(), machine_key(), HEDDLE_VERSION);
  tables.qkv_gather = tuned_gathers(store, keys->qkv).value_or(GatherTable{});
  tables.gate_up_gather = tuned_gathers(store, keys->gate_up).value_or(GatherTable{});
}

std::string text_of_gathers(const ChoiceTables& tables) {
  std::string text;
  add_lines(text, "qkv", tables.qkv_gather);
  add_lines(text, "gate_up", tables.gate_up_gather);
  return text;
}

}  // namespace heddle
