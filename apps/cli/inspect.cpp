// heddle inspect: the contents of a model's folder, or of a synthetic model, and what Heddle does not support of it.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
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
#include "cli/format_text.h"
#include "cli/output.h"
#include "engine/synthetic_tokenizer.h"
#include "models/registry.h"
#include "text/tokenizer/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kTokenizer = "tokenizer.json";
constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;

struct InspectOptions {
  std::string folder;
  bool json = false;
};

struct TokenizerFile {
  std::string model;           // "BPE"
  std::size_t vocab_size = 0;  // including added tokens
};

struct FolderReport {
  std::string folder;
  std::string architecture;
  std::int64_t num_parameters = 0;
  std::size_t size_bytes = 0;
  std::map<std::string, std::int64_t> parameters_by_dtype;
  std::optional<TokenizerFile> tokenizer;
  ModelDescription sizes;
  std::vector<std::string> files;
  std::vector<std::string> unsupported;
};

TokenizerFile describe_tokenizer(const JsonField& root) {
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

// Nothing if no readable tokenizer exists; add_unsupported reports the reason.
std::optional<TokenizerFile> read_tokenizer(const std::filesystem::path& path) {
  try {
    const nlohmann::json file = parse_json(read_file(path, kMaxTokenizerBytes), path.string());
    return describe_tokenizer(JsonField(file, path.string()));
  } catch (const InputError&) {
    return std::nullopt;
  }
}

void count_tensors(const ModelSource& source, FolderReport& report) {
  for (const std::string_view name : source.names()) {
    const TensorInfo& info = *source.find(name);
    report.num_parameters += info.num_elements();
    const auto [count, first_of_dtype] = report.parameters_by_dtype.try_emplace(std::string(info.dtype.name), 0);
    count->second += info.num_elements();
    if (first_of_dtype && !info.dtype.dtype)
      report.unsupported.push_back(fmt::format("tensor {} has dtype {}; only F32, F16 and BF16 can be loaded",
                                               quoted_name(name), info.dtype.name));
  }
}

// Adds the error that `load` throws to the unsupported features.
template <class Load>
void attempt(FolderReport& report, const Load& load) {
  try {
    load();
  } catch (const InputError& error) {
    report.unsupported.emplace_back(error.what());
  }
}

// Everything except the files and the tokenizer.
FolderReport examine_source(const ModelSource& source, const std::string& name) {
  const JsonField config = source.config();
  FolderReport report{.folder = name,
                      .architecture = architecture_of(config),
                      .size_bytes = source.total_bytes(),
                      .sizes = describe_model(config)};
  count_tensors(source, report);
  attempt(report, [&] {
    const std::vector<std::string> sentences = unsupported(config);
    report.unsupported.insert(report.unsupported.begin(), sentences.begin(), sentences.end());
  });
  // It stops at the first error, which may have been reported already.
  if (report.unsupported.empty()) attempt(report, [&] { check_model(source); });
  return report;
}

FolderReport examine_folder(const std::filesystem::path& folder) {
  const Checkpoint checkpoint(folder);
  FolderReport report = examine_source(checkpoint, folder.string());
  report.files = checkpoint.weight_files();
  report.tokenizer = read_tokenizer(folder / kTokenizer);
  std::error_code error;
  if (!std::filesystem::exists(folder / kTokenizer, error))
    report.unsupported.emplace_back("tokenizer.json is missing, so text cannot be made into tokens");
  else
    attempt(report, [&] { Tokenizer::load(folder); });
  return report;
}

FolderReport examine(const std::string& model) {
  const auto synthetic = parse_synthetic_name(model);
  if (!synthetic) return examine_folder(model);
  FolderReport report = examine_source(SyntheticModel(*synthetic), model);
  const nlohmann::json tokenizer = parse_json(synthetic_tokenizer(*synthetic->shape).tokenizer_json, model);
  report.tokenizer = describe_tokenizer(JsonField(tokenizer, model));
  return report;
}

ordered_json json_of(const FolderReport& report) {
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
      {"context", number(report.sizes.context)},
      {"layers", number(report.sizes.layers)},
      {"hidden", number(report.sizes.hidden)},
      {"intermediate", number(report.sizes.intermediate)},
      {"heads", number(report.sizes.heads)},
      {"kv_heads", number(report.sizes.kv_heads)},
      {"head_dim", number(report.sizes.head_dim)},
      {"vocab_size", number(report.sizes.vocab_size)},
      {"files", report.files},
      {"unsupported", report.unsupported},
  };
}

std::string text_of(const FolderReport& report) {
  std::string text;
  const auto line = [&](std::string_view title, std::string_view value) {
    text += fmt::format("{:<12}  {}\n", title, printable_text(value));
  };
  const auto number = [&](std::string_view title, std::optional<std::int64_t> value) {
    line(title, value ? fmt::format("{}", *value) : "not given");
  };
  std::vector<std::string> dtypes;
  for (const auto& [name, count] : report.parameters_by_dtype)
    dtypes.push_back(report.parameters_by_dtype.size() == 1 ? name
                                                            : fmt::format("{} ({})", name, magnitude_text(count)));

  line("folder", report.folder);
  line("architecture", report.architecture);
  line("parameters", magnitude_text(report.num_parameters));
  line("bytes", fmt::format("{} ({})", report.size_bytes, size_text(report.size_bytes)));
  line("dtype", fmt::format("{}", fmt::join(dtypes, ", ")));
  line("tokenizer", report.tokenizer
                        ? fmt::format("{}, {} tokens", report.tokenizer->model, report.tokenizer->vocab_size)
                        : "none that can be read");
  number("context", report.sizes.context);
  number("layers", report.sizes.layers);
  number("hidden", report.sizes.hidden);
  number("intermediate", report.sizes.intermediate);
  number("heads", report.sizes.heads);
  number("KV heads", report.sizes.kv_heads);
  number("head_dim", report.sizes.head_dim);
  number("vocabulary", report.sizes.vocab_size);
  line("files", report.files.empty() ? "none" : fmt::format("{}", fmt::join(report.files, ", ")));
  if (report.unsupported.empty()) line("unsupported", "nothing");
  for (std::size_t i = 0; i < report.unsupported.size(); ++i) line(i == 0 ? "unsupported" : "", report.unsupported[i]);
  return text;
}

void run(const InspectOptions& options) {
  const FolderReport report = examine(options.folder);
  write_stdout(options.json ? json_of(report).dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n"
                            : text_of(report));
}

}  // namespace

void add_inspect(CLI::App& app) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Describe a model's folder, and say what of it is unsupported");
  command->add_option("folder", options->folder, "The folder: config.json, weights, tokenizer.json; or synth:NAME")
      ->required();
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace heddle
