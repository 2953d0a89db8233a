// heddle inspect: what a model's folder holds, and what of it Heddle cannot do.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/commands.h"
#include "cli/output.h"
#include "models/llama_config.h"
#include "models/registry.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;

struct Options {
  std::string folder;
  bool json = false;
};

struct TokenizerFile {
  std::string model;           // "BPE"
  std::size_t vocab_size = 0;  // added tokens counted in
};

// Numbers are what config.json says; nothing where it is silent, which is no error for an unknown architecture.
struct Report {
  std::string folder;
  std::string architecture;
  std::int64_t num_parameters = 0;
  std::size_t size_bytes = 0;
  std::map<std::string, std::int64_t> parameters_by_dtype;
  std::optional<TokenizerFile> tokenizer;
  std::optional<std::int64_t> context, layers, hidden, intermediate, heads, kv_heads, head_dim, vocab_size;
  std::vector<std::string> files;
  std::vector<std::string> unsupported;
};

std::optional<TokenizerFile> read_tokenizer(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return std::nullopt;
  const nlohmann::json file = parse_json(read_file(path, kMaxTokenizerBytes), path.string());
  const JsonField root(file, path.string());
  const JsonField model = root.at("model");
  const auto type = model.find("type");
  const JsonField vocab = model.at("vocab");
  if (!vocab.is_object() && !vocab.is_array()) vocab.fail_expected("an object or an array");

  TokenizerFile tokenizer{type ? type->text() : "unnamed", vocab.value().size()};
  std::set<std::string> added;
  if (const auto tokens = root.find("added_tokens"))
    for (const JsonField& token : tokens->elements()) added.insert(token.at("content").text());
  std::erase_if(added, [&](const std::string& token) { return vocab.value().contains(token); });
  tokenizer.vocab_size += added.size();
  return tokenizer;
}

void count_tensors(const Checkpoint& checkpoint, Report& report) {
  for (const std::string_view name : checkpoint.names()) {
    const TensorInfo& info = *checkpoint.find(name);
    report.num_parameters += info.num_elements();
    const auto [count, first_of_dtype] = report.parameters_by_dtype.try_emplace(std::string(info.dtype.name), 0);
    count->second += info.num_elements();
    if (first_of_dtype && !info.dtype.dtype)
      report.unsupported.push_back(fmt::format("tensor {} has dtype {}; only F32, F16 and BF16 can be loaded",
                                               quoted_name(name), info.dtype.name));
  }
}

void read_numbers(const JsonField& config, Report& report) {
  const auto number = [&](std::string_view key) -> std::optional<std::int64_t> {
    const auto field = config.find(key);
    if (!field || !field->value().is_number_integer()) return std::nullopt;
    return field->value().get<std::int64_t>();
  };
  report.context = number("max_position_embeddings");
  report.layers = number("num_hidden_layers");
  report.hidden = number("hidden_size");
  report.intermediate = number("intermediate_size");
  report.heads = number("num_attention_heads");
  report.kv_heads = number("num_key_value_heads");
  report.head_dim = number("head_dim");
  report.vocab_size = number("vocab_size");
}

void read_llama(const JsonField& config, Report& report) {
  const std::vector<std::string> features = unsupported_llama_features(config);
  report.unsupported.insert(report.unsupported.end(), features.begin(), features.end());
  if (!features.empty()) return;
  const LlamaConfig llama = parse_llama_config(config);  // knows what is derived and what is absurd
  report.context = llama.max_position;
  report.kv_heads = llama.num_kv_heads;
  report.head_dim = llama.head_dim;
}

Report examine(const std::filesystem::path& folder) {
  const Checkpoint checkpoint(folder);
  const JsonField config = checkpoint.config();
  Report report{.folder = folder.string(),
                .architecture = architecture_of(config),
                .size_bytes = checkpoint.total_bytes(),
                .tokenizer = read_tokenizer(folder / "tokenizer.json"),
                .files = checkpoint.weight_files()};
  count_tensors(checkpoint, report);
  read_numbers(config, report);
  const std::vector<std::string> known = known_architectures();
  if (report.architecture == "LlamaForCausalLM")
    read_llama(config, report);
  else if (std::ranges::find(known, report.architecture) == known.end())
    report.unsupported.push_back(
        fmt::format("architecture {}; only {} is supported", quoted_name(report.architecture), fmt::join(known, ", ")));
  if (!report.tokenizer)
    report.unsupported.emplace_back("tokenizer.json is missing, so text cannot be made into tokens");
  else if (report.tokenizer->model != "BPE")
    report.unsupported.push_back(
        fmt::format("tokenizer model {}; only BPE is supported", quoted_name(report.tokenizer->model)));
  return report;
}

ordered_json json_of(const Report& report) {
  const auto number = [](std::optional<std::int64_t> value) { return value ? ordered_json(*value) : ordered_json(); };
  ordered_json tokenizer;
  if (report.tokenizer) tokenizer = {{"model", report.tokenizer->model}, {"vocab_size", report.tokenizer->vocab_size}};
  return {
      {"folder", report.folder},
      {"architecture", report.architecture},
      {"parameters", report.num_parameters},
      {"bytes", report.size_bytes},
      {"dtypes", report.parameters_by_dtype},
      {"tokenizer", tokenizer},
      {"context", number(report.context)},
      {"layers", number(report.layers)},
      {"hidden", number(report.hidden)},
      {"intermediate", number(report.intermediate)},
      {"heads", number(report.heads)},
      {"kv_heads", number(report.kv_heads)},
      {"head_dim", number(report.head_dim)},
      {"vocab_size", number(report.vocab_size)},
      {"files", report.files},
      {"unsupported", report.unsupported},
  };
}

// "4.56 million": three digits of a count.
std::string count_text(std::int64_t count) {
  const auto number = static_cast<double>(count);
  if (number < 1e3) return fmt::format("{}", count);
  if (number < 1e6) return fmt::format("{:.3g} thousand", number / 1e3);
  if (number < 1e9) return fmt::format("{:.3g} million", number / 1e6);
  return fmt::format("{:.4g} billion", number / 1e9);
}

std::string size_text(std::size_t size_bytes) {
  const auto bytes = static_cast<double>(size_bytes);
  if (bytes < 0x1p20) return fmt::format("{:.3g} KiB", bytes / 0x1p10);
  if (bytes < 0x1p30) return fmt::format("{:.3g} MiB", bytes / 0x1p20);
  return fmt::format("{:.1f} GiB", bytes / 0x1p30);
}

std::string text_of(const Report& report) {
  std::string text;
  const auto line = [&](std::string_view title, std::string_view value) {
    text += fmt::format("{:<12}  {}\n", title, value);
  };
  const auto number = [&](std::string_view title, std::optional<std::int64_t> value) {
    line(title, value ? fmt::format("{}", *value) : "not given");
  };
  std::vector<std::string> dtypes;
  for (const auto& [name, count] : report.parameters_by_dtype)
    dtypes.push_back(report.parameters_by_dtype.size() == 1 ? name : fmt::format("{} ({})", name, count_text(count)));

  line("folder", report.folder);
  line("architecture", report.architecture);
  line("parameters", count_text(report.num_parameters));
  line("bytes", fmt::format("{} ({})", report.size_bytes, size_text(report.size_bytes)));
  line("dtype", fmt::format("{}", fmt::join(dtypes, ", ")));
  line("tokenizer",
       report.tokenizer ? fmt::format("{}, {} tokens", report.tokenizer->model, report.tokenizer->vocab_size) : "none");
  number("context", report.context);
  number("layers", report.layers);
  number("hidden", report.hidden);
  number("intermediate", report.intermediate);
  number("heads", report.heads);
  number("KV heads", report.kv_heads);
  number("head_dim", report.head_dim);
  number("vocabulary", report.vocab_size);
  line("files", fmt::format("{}", fmt::join(report.files, ", ")));
  if (report.unsupported.empty()) line("unsupported", "nothing");
  for (std::size_t i = 0; i < report.unsupported.size(); ++i) line(i == 0 ? "unsupported" : "", report.unsupported[i]);
  return text;
}

void run(const Options& options) {
  const Report report = examine(options.folder);
  write_stdout(options.json ? json_of(report).dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n"
                            : text_of(report));
}

}  // namespace

void add_inspect(CLI::App& app) {
  const auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("inspect", "Describe a model's folder, and say what of it is unsupported");
  command->add_option("folder", options->folder, "The folder: config.json, weights, tokenizer.json")->required();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace heddle
