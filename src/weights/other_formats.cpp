#include "weights/other_formats.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/printable.h"
#include "weights/folder_file.h"
#include "weights/model_folder.h"

#include <nlohmann/json.hpp>

namespace heddle {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kAdapterConfig = "adapter_config.json";
constexpr std::size_t kMaxShownName = 160;

constexpr std::string_view kGguf =
    "is a GGUF file (llama.cpp), which Heddle does not read yet; it reads safetensors. Give the folder of the original "
    "model from Hugging Face, which the file's page names as its base model";
constexpr std::string_view kPickled =
    "these weights are pickled; Heddle reads safetensors. Convert them: load the model with transformers and call "
    "save_pretrained(folder, safe_serialization=True)";
constexpr std::string_view kOriginalLayout =
    "these weights are in their authors' own layout; Heddle reads the layout of transformers (config.json, "
    "model.safetensors). Download the model in that layout, or convert it with transformers";

bool has_gguf_magic(const fs::path& path) {
  std::array<char, 4> magic{};
  std::ifstream(path, std::ios::binary).read(magic.data(), magic.size());
  return std::string_view(magic.data(), magic.size()) == "GGUF";
}

// A text field of a JSON file that may be malformed; empty if there is none.
std::string text_field(const fs::path& path, std::string_view key) {
  try {
    const nlohmann::json file = parse_json(read_file(path, kMaxConfigBytes), path.string());
    const auto field = JsonField(file, path.string()).find(key);
    return field ? printable(field->text(), kMaxShownName) : std::string();
  } catch (const std::exception&) {
    return {};
  }
}

// "a LoRA adapter of meta-llama/Llama-3.2-1B"
std::string adapter_text(const fs::path& config) {
  const std::string kind = text_field(config, "peft_type");
  const std::string base = text_field(config, "base_model_name_or_path");
  const std::string name = kind.empty() || kind == "LORA" ? "LoRA" : kind;
  return fmt::format("a {} adapter{}", name, base.empty() ? "" : " of " + base);
}

constexpr std::string_view kMerge =
    "with the Python package peft: AutoPeftModelForCausalLM.from_pretrained(adapter).merge_and_unload(), then "
    "save_pretrained(folder)";

// The method by which the weights of a folder are quantised, as its config.json says, or the quantize_config.json of
// AutoGPTQ and AutoAWQ; empty if neither does.
std::string quantization_method(const fs::path& folder) {
  try {
    const fs::path path = folder / "config.json";
    const nlohmann::json file = parse_json(read_file(path, kMaxConfigBytes), path.string());
    if (const auto field = JsonField(file, path.string()).find("quantization_config"))
      if (const auto method = field->find("quant_method")) return printable(method->text(), kMaxShownName);
  } catch (const std::exception&) {  // says nothing of quantisation that can be read
  }
  if (!is_there(folder / "quantize_config.json")) return {};
  const std::string method = text_field(folder / "quantize_config.json", "quant_method");
  return method.empty() ? "GPTQ or AWQ" : method;
}

// Shards without their index, a variant like model.fp16.safetensors, or something else.
std::string stray_safetensors(const fs::path& folder, const std::string& name) {
  if (!is_there(folder / name))
    return fmt::format("{}: is a link to a file that is not there. Is the download complete?",
                       (folder / printable(name, kMaxShownName)).string());
  if (name.find("-of-") != std::string::npos)
    return fmt::format("{}: holds {}, but no model.safetensors.index.json. Is the download complete?", folder.string(),
                       printable(name, kMaxShownName));
  return fmt::format(
      "{}: holds {}; Heddle looks for model.safetensors and model.safetensors.index.json. If that file is the whole "
      "model, rename it",
      folder.string(), printable(name, kMaxShownName));
}

}  // namespace

std::optional<std::string> what_file(const fs::path& path) {
  const std::string extension = path.extension().string();
  if (extension == ".gguf" || has_gguf_magic(path)) return std::string(kGguf);
  if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt")
    return std::string(kPickled);
  if (extension == ".safetensors" || path.filename() == "config.json") {
    const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
    return fmt::format("is one file of a model. Give its folder: {}", folder);
  }
  return std::nullopt;
}

std::optional<std::string> what_folder(const fs::path& folder) {
  const std::vector<std::string> names = names_in(folder);
  const auto has = [&](std::string_view name) { return std::ranges::find(names, name) != names.end(); };
  const auto first = [&](std::string_view extension) -> std::optional<std::string> {
    const auto found = std::ranges::find_if(names, [&](const std::string& name) { return name.ends_with(extension); });
    return found == names.end() ? std::nullopt : std::optional(*found);
  };
  const auto about = [&](std::string_view name, std::string_view text) {
    return fmt::format("{}: {}", (folder / printable(name, kMaxShownName)).string(), text);
  };

  if (has(kAdapterConfig))
    return fmt::format("{}: is {} without its base model. Heddle does not apply adapters: merge it {}", folder.string(),
                       adapter_text(folder / kAdapterConfig), kMerge);
  if (has("model_index.json"))
    return fmt::format("{}: is a diffusion pipeline (model_index.json); Heddle runs language models", folder.string());
  if (const std::string method = quantization_method(folder); !method.empty())
    return fmt::format(
        "{}: is a model quantised by {}, which Heddle does not read yet (nor are its weights there by the names "
        "model.safetensors or model.safetensors.index.json). Give the model that was quantised, in bfloat16 or float16",
        folder.string(), method);
  for (const std::string_view name : {"pytorch_model.bin", "pytorch_model.bin.index.json"})
    if (has(name)) return about(name, kPickled);
  for (const std::string_view name : {"consolidated.safetensors", "consolidated.00.pth", "params.json"})
    if (has(name)) return about(name, kOriginalLayout);
  if (const auto name = first(".gguf")) return about(*name, kGguf);
  if (const auto name = first(".safetensors")) return stray_safetensors(folder, *name);
  for (const std::string_view name : {"tf_model.h5", "flax_model.msgpack"})
    if (has(name)) return about(name, "these weights are TensorFlow's or Flax's; Heddle reads safetensors");
  if (const auto repository = repository_of_folder(folder.parent_path().parent_path());
      repository && has("config.json"))
    return fmt::format(
        "{}: this snapshot of Hugging Face's cache holds no weights. Is the download complete? This goes on with it: "
        "hf download {}",
        folder.string(), *repository);
  return std::nullopt;
}

std::optional<std::string> adapter_beside_weights(const fs::path& folder) {
  if (!is_there(folder / kAdapterConfig)) return std::nullopt;
  return fmt::format("{}: {} lies beside the weights and is not applied: they run without it. To apply it, merge it {}",
                     (folder / kAdapterConfig).string(), adapter_text(folder / kAdapterConfig), kMerge);
}

}  // namespace heddle
