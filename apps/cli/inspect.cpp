// heddle inspect: the contents of a model's folder, or of a synthetic model, and what Heddle does not support of it.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "cli/commands.h"
#include "cli/format_text.h"
#include "cli/model_options.h"
#include "cli/number_option.h"
#include "cli/output.h"
#include "cli/rope_text.h"
#include "engine/generation_defaults.h"
#include "engine/memory_plan.h"
#include "engine/model_template.h"
#include "engine/rank_models.h"
#include "engine/rank_world.h"
#include "engine/synthetic_tokenizer.h"
#include "models/registry.h"
#include "text/tokenizer/tokenizer.h"
#include "weights/checkpoint.h"
#include "weights/damage.h"
#include "weights/model_folder.h"
#include "weights/synthetic_model.h"

namespace heddle {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kTokenizer = "tokenizer.json";
constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;

struct InspectOptions {
  std::string folder;
  bool json = false;
  bool check_weights = false;  // read them all
  int ranks = 1;
  int context_ranks = 1;
};

struct TokenizerFile {
  std::string model;           // "BPE"
  std::size_t vocab_size = 0;  // including added tokens
};

// What a text of `context` tokens takes on a device, weights included.
struct MemoryNeed {
  std::string device;
  std::int64_t context = 0;
  MemoryPlan plan;
};

// What one rank of several holds.
struct RankNeed {
  std::size_t weights = 0;
  std::size_t cache_per_token = 0;  // keys and values; where ranks divide them by position, on average
  std::size_t exchange = 0;         // what others write into
  std::vector<MemoryNeed> memory;   // without `exchange`
};

struct FolderReport {
  std::string folder;
  std::string architecture;
  std::int64_t num_parameters = 0;
  std::size_t size_bytes = 0;
  std::map<std::string, std::int64_t> parameters_by_dtype;
  std::optional<TokenizerFile> tokenizer;
  ModelDescription sizes;
  std::vector<std::string> templates;  // their names; empty: no chat template
  bool template_fails = false;         // there is one, and it is unsupported
  std::vector<std::int32_t> eos_ids;   // that end a text
  GenerationDefaults defaults;
  std::vector<MemoryNeed> memory;
  std::vector<RankNeed> ranks;  // of --tp and --cp
  std::vector<std::string> files;
  std::vector<std::string> warnings;
  std::vector<std::string> unsupported;
  std::vector<std::string> damaged;  // a sentence for each tensor that has NaN or infinities
  bool weights_read = false;
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
    report.parameters_by_dtype[std::string(info.dtype.name)] += info.num_elements();
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

// 1024, 8192 and so on up to the model's own context.
std::vector<std::int64_t> contexts_up_to(std::int64_t longest) {
  std::vector<std::int64_t> contexts;
  for (const std::int64_t context : {1024, 8192, 32768})
    if (context < longest) contexts.push_back(context);
  contexts.push_back(longest);
  return contexts;
}

constexpr std::array<Device, 2> kDevices{Device{.kind = DeviceKind::cpu}, Device{.kind = DeviceKind::cuda}};

// For one sequence, by the plan that a run makes.
std::vector<MemoryNeed> memory_needs(Model& outline) {
  std::vector<MemoryNeed> needs;
  const bool on_cpu = outline.device().kind == DeviceKind::cpu;
  for (const std::int64_t context : contexts_up_to(outline.shape().max_context)) {
    MemoryPlan plan = plan_memory(
        outline, {.max_sequences = 1, .kv_bytes = std::numeric_limits<std::int64_t>::max() / 2, .max_context = context},
        0);
    if (on_cpu) plan.other = 0;  // which is CUDA's
    needs.push_back({on_cpu ? "CPU" : "GPU", context, plan});
  }
  return needs;
}

// Empty for a model that cannot be loaded.
std::vector<MemoryNeed> memory_needs(const ModelSource& source) {
  std::vector<MemoryNeed> needs;
  for (const Device device : kDevices) {
    try {
      const std::unique_ptr<Model> outline = outline_model(source, {.device = device});
      std::ranges::move(memory_needs(*outline), std::back_inserter(needs));
    } catch (const std::exception&) {  // its error is reported elsewhere; or this build knows no such device
      continue;
    }
  }
  return needs;
}

// Throws InputError for more ranks than the model has pieces.
std::vector<RankNeed> rank_needs(const ModelSource& source, const InspectOptions& options) {
  const int ranks = options.ranks * options.context_ranks;
  const auto divided = static_cast<std::size_t>(options.context_ranks);
  std::vector<RankNeed> needs;
  for (const RankPart& part : outline_ranks(source, {.context_ranks = options.context_ranks}, ranks))
    needs.push_back(
        {.weights = part.model->shape().weight_bytes,
         .cache_per_token = ceil_div(part.model->shape().kv_pages(options.context_ranks, 1).bytes_per_token(), divided),
         .exchange = exchange_bytes(std::vector<Device>(static_cast<std::size_t>(ranks)),
                                    {.context_ranks = options.context_ranks}),
         .memory = memory_needs(*part.model)});
  try {
    const RankModels on_gpus =
        outline_ranks(source, {.device = kDevices.back(), .context_ranks = options.context_ranks}, ranks);
    for (std::size_t rank = 0; rank < needs.size(); ++rank)
      std::ranges::move(memory_needs(*on_gpus[rank].model), std::back_inserter(needs[rank].memory));
  } catch (const std::exception&) {  // this build knows no such device
    return needs;
  }
  return needs;
}

// A text never ends at an id that the model cannot give.
void warn_of_unknown_eos_ids(FolderReport& report) {
  const std::int64_t known = report.sizes.vocab_size.value_or(std::numeric_limits<std::int64_t>::max());
  for (const std::int32_t id : report.eos_ids)
    if (id < 0 || id >= known)
      report.warnings.push_back(
          fmt::format("EOS id {}: the model knows 0 to {}, so no text ends there; is {} from another model?", id,
                      known - 1, report.defaults.eos_ids.empty() ? "config.json" : "generation_config.json"));
}

// Everything except the files and the tokenizer.
FolderReport examine_source(const ModelSource& source, const std::string& name, const InspectOptions& options) {
  const JsonField config = source.config();
  FolderReport report{.folder = name,
                      .architecture = architecture_of(config),
                      .size_bytes = source.total_bytes(),
                      .sizes = describe_model(config)};
  count_tensors(source, report);
  attempt(report, [&] { report.unsupported = unsupported_in(source); });
  // It stops at the first error, which may have been reported already.
  if (report.unsupported.empty()) attempt(report, [&] { check_model(source); });
  if (const auto config_of_generation = source.generation_config())
    attempt(report, [&] { report.defaults = read_generation_defaults(*config_of_generation); });
  report.eos_ids = report.defaults.eos_ids.empty() ? report.sizes.eos_ids : report.defaults.eos_ids;
  report.warnings = source.warnings();
  warn_of_unknown_eos_ids(report);
  report.memory = memory_needs(source);
  const bool spread = options.ranks * options.context_ranks > 1;
  if (spread && report.unsupported.empty()) report.ranks = rank_needs(source, options);
  return report;
}

// A model without a template completes texts; one that cannot be read is unsupported.
template <class Load>
void add_templates(FolderReport& report, const Load& load) {
  try {
    const ModelChatTemplate chat_template = load();
    report.templates = chat_template.names();
  } catch (const ModelChatTemplate::Missing&) {
    return;
  } catch (const InputError& error) {
    report.unsupported.emplace_back(error.what());
    report.template_fails = true;
  }
}

// Reads all weights.
void check_weights(const ModelSource& source, FolderReport& report) {
  Progress progress("checking weights", source.total_bytes(), kGigabytes);
  std::size_t done = 0;
  for (const std::string_view name : source.names()) {
    if (auto damage = find_damage(source, name)) report.damaged.push_back(std::move(*damage));
    progress.update(done += source.find(name)->size_bytes);
  }
  report.weights_read = true;
}

FolderReport examine_folder(const std::filesystem::path& folder, const InspectOptions& options) {
  const Checkpoint checkpoint(folder);
  FolderReport report = examine_source(checkpoint, folder.string(), options);
  report.files = checkpoint.weight_files();
  report.tokenizer = read_tokenizer(folder / kTokenizer);
  std::error_code error;
  if (!std::filesystem::exists(folder / kTokenizer, error))
    report.unsupported.emplace_back("tokenizer.json is missing, so text cannot be made into tokens");
  else
    attempt(report, [&] { Tokenizer::load(folder); });
  add_templates(report, [&] { return ModelChatTemplate::load(folder); });
  if (options.check_weights) check_weights(checkpoint, report);
  return report;
}

FolderReport examine(const InspectOptions& options) {
  const std::string& model = options.folder;
  require_ranks(options.ranks, options.context_ranks);
  const auto synthetic = parse_synthetic_name(model);
  if (!synthetic) return examine_folder(model_folder(model), options);
  if (options.check_weights)
    throw_error<InputError>("--check-weights: {} has no files; its weights are made when it is loaded", model);
  FolderReport report = examine_source(SyntheticModel(*synthetic), model, options);
  const nlohmann::json tokenizer = parse_json(synthetic_tokenizer(*synthetic->shape).tokenizer_json, model);
  report.tokenizer = describe_tokenizer(JsonField(tokenizer, model));
  add_templates(report, [&] { return load_model_chat_template(model); });
  return report;
}

// "4096 in all layers", "4096 in 4 of 28 layers", "none"; empty: not known.
std::string window_text(const std::vector<int>& windows) {
  std::string text;
  std::map<int, std::size_t> layers;
  for (const int window : windows) ++layers[window];
  layers.erase(0);
  if (layers.empty()) return windows.empty() ? "not known" : "none";
  for (const auto& [window, count] : layers)
    text += fmt::format("{}{} in {}", text.empty() ? "" : ", ", window,
                        count == windows.size() ? "all layers" : fmt::format("{} of {} layers", count, windows.size()));
  return text;
}

std::string text_of(const GenerationDefaults& defaults) {
  const SamplingParams& sampling = defaults.sampling;
  if (sampling.temperature == 0 && sampling.repetition_penalty == 1) return "greedy";
  std::string text = sampling.temperature == 0 ? "greedy" : fmt::format("temperature {}", sampling.temperature);
  if (sampling.top_k != 0) text += fmt::format(", top_k {}", sampling.top_k);
  if (sampling.top_p != 1) text += fmt::format(", top_p {}", sampling.top_p);
  if (sampling.min_p != 0) text += fmt::format(", min_p {}", sampling.min_p);
  if (sampling.repetition_penalty != 1) text += fmt::format(", repetition_penalty {}", sampling.repetition_penalty);
  return text;
}

std::string text_of(const MemoryNeed& need) {
  const MemoryPlan& plan = need.plan;
  return fmt::format("{}, {} tokens: {} ({} of weights, {} of keys and values, {} for a step{})", need.device,
                     need.context, memory_text(plan.total()), memory_text(plan.weights), memory_text(plan.cache),
                     memory_text(plan.step),
                     plan.other > 0 ? fmt::format(", {} for kernels and graphs", memory_text(plan.other)) : "");
}

// "; 8192 tokens: on the CPU 5.2 GiB, 0.1 GiB of it for a step and 2.0 MiB for exchanges".
std::string totals_text(const RankNeed& need) {
  constexpr std::int64_t kContext = 8192;  // or the model's, if that is less
  std::string text;
  for (const std::string_view device : {"CPU", "GPU"}) {
    const MemoryNeed* shown = nullptr;
    for (const MemoryNeed& one : need.memory)
      if (one.device == device && one.context <= kContext) shown = &one;
    if (shown == nullptr) continue;
    const bool on_cpu = device == "CPU";
    text += text.empty() ? fmt::format("; {} tokens: ", shown->context) : ", ";
    text += fmt::format("on the {} {}, {} of it for a step", device,
                        memory_text(shown->plan.total() + (on_cpu ? need.exchange : 0)), memory_text(shown->plan.step));
    if (on_cpu) text += fmt::format(" and {} for exchanges", memory_text(need.exchange));
  }
  return text;
}

ordered_json json_of(const MemoryNeed& need) {
  return {{"device", need.device},        {"context", need.context},     {"bytes", need.plan.total()},
          {"weights", need.plan.weights}, {"kv_cache", need.plan.cache}, {"step", need.plan.step},
          {"other", need.plan.other}};
}

ordered_json json_of(const RankNeed& need) {
  ordered_json memory = ordered_json::array();
  for (const MemoryNeed& one : need.memory) {
    memory.push_back(json_of(one));
    if (one.device == "CPU") memory.back()["bytes"] = one.plan.total() + need.exchange;
  }
  return {{"weights", need.weights},
          {"kv_cache_per_token", need.cache_per_token},
          {"exchange", need.exchange},
          {"memory", std::move(memory)}};
}

ordered_json json_of(const GenerationDefaults& defaults) {
  const SamplingParams& sampling = defaults.sampling;
  return {{"temperature", sampling.temperature},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"repetition_penalty", sampling.repetition_penalty}};
}

ordered_json json_of(const ExpertsDescription& experts) {
  return {{"count", experts.count},
          {"per_token", experts.per_token},
          {"shared", experts.shared},
          {"intermediate", experts.intermediate},
          {"dense_layers", experts.dense_layers},
          {"scoring", experts.scoring},
          {"method", experts.method},
          {"groups", experts.groups},
          {"groups_per_token", experts.groups_per_token},
          {"normalized", experts.normalized},
          {"scaling", experts.scaling}};
}

ordered_json json_of(const LatentDescription& latent) {
  return {{"kv_lora_rank", latent.kv_lora_rank},
          {"q_lora_rank", latent.q_lora_rank > 0 ? ordered_json(latent.q_lora_rank) : ordered_json()},
          {"qk_nope_head_dim", latent.qk_nope_head_dim},
          {"qk_rope_head_dim", latent.qk_rope_head_dim},
          {"v_head_dim", latent.v_head_dim}};
}

// "64 in a layer, each 1408 wide, 6 for each token; 2 shared; none in the first layer".
std::string text_of(const ExpertsDescription& experts) {
  std::string text =
      fmt::format("{} in a layer, each {} wide, {} for each token; {} shared", experts.count, experts.intermediate,
                  experts.per_token, experts.shared > 0 ? fmt::format("{}", experts.shared) : std::string("none"));
  if (experts.dense_layers == 1) text += "; none in the first layer";
  if (experts.dense_layers > 1) text += fmt::format("; none in the first {} layers", experts.dense_layers);
  return text;
}

// "sigmoid, noaux_tc, from 4 of 8 groups; weights normalized, times 2.5".
std::string routing_text(const ExpertsDescription& experts) {
  std::string text = fmt::format("{}, {}", experts.scoring, experts.method);
  if (experts.groups > 1) text += fmt::format(", from {} of {} groups", experts.groups_per_token, experts.groups);
  text += experts.normalized ? "; weights normalized" : "; weights not normalized";
  return experts.scaling == 1 ? text : text + fmt::format(", times {}", experts.scaling);
}

// "kv_lora_rank 512, q_lora_rank none; heads: keys of 128 and 64 rotated, values of 128; 576 elements ...".
std::string text_of(const LatentDescription& latent) {
  return fmt::format(
      "kv_lora_rank {}, q_lora_rank {}; heads: keys of {} and {} rotated, values of {}; {} elements of each token and "
      "layer are cached",
      latent.kv_lora_rank, latent.q_lora_rank > 0 ? fmt::format("{}", latent.q_lora_rank) : std::string("none"),
      latent.qk_nope_head_dim, latent.qk_rope_head_dim, latent.v_head_dim, latent.cached());
}

ordered_json json_of(const FolderReport& report) {
  const auto number = [](std::optional<std::int64_t> value) { return value ? ordered_json(*value) : ordered_json(); };
  const std::optional<LatentDescription>& latent = report.sizes.latent;
  ordered_json tokenizer;
  ordered_json memory = ordered_json::array();
  for (const MemoryNeed& need : report.memory) memory.push_back(json_of(need));
  ordered_json ranks = ordered_json::array();
  for (const RankNeed& need : report.ranks) ranks.push_back(json_of(need));
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
      {"experts", report.sizes.experts ? json_of(*report.sizes.experts) : ordered_json()},
      {"latent", latent ? ordered_json(latent->cached()) : ordered_json()},
      {"latent_attention", latent ? json_of(*latent) : ordered_json()},
      {"windows", report.sizes.windows},
      {"rope", report.sizes.rope ? rope_json(*report.sizes.rope) : ordered_json()},
      {"tied_embeddings", report.sizes.tied_embeddings ? ordered_json(*report.sizes.tied_embeddings) : ordered_json()},
      {"chat_templates", report.templates},
      {"eos_ids", report.eos_ids},
      {"generation", json_of(report.defaults)},
      {"memory", memory},
      {"ranks", ranks},
      {"files", report.files},
      {"warnings", report.warnings},
      {"unsupported", report.unsupported},
      {"damaged", report.weights_read ? ordered_json(report.damaged) : ordered_json()},
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
  if (report.sizes.experts) {
    line("experts", text_of(*report.sizes.experts));
    line("routing", routing_text(*report.sizes.experts));
  }
  if (report.sizes.latent) line("latent", text_of(*report.sizes.latent));
  line("window", window_text(report.sizes.windows));
  line("rope", report.sizes.rope ? rope_text(*report.sizes.rope) : "not known");
  line("embeddings", !report.sizes.tied_embeddings   ? "not known"
                     : *report.sizes.tied_embeddings ? "tied: the output weights are the embedding"
                                                     : "not tied");
  line("template", report.template_fails      ? "none that can be used: heddle chat needs --chat-template"
                   : report.templates.empty() ? "none: heddle chat needs --chat-template"
                                              : fmt::format("{}", fmt::join(report.templates, ", ")));
  line("EOS ids", report.eos_ids.empty() ? "none" : fmt::format("{}", fmt::join(report.eos_ids, ", ")));
  line("generation", text_of(report.defaults));
  for (std::size_t i = 0; i < report.memory.size(); ++i) line(i == 0 ? "memory" : "", text_of(report.memory[i]));
  for (std::size_t i = 0; i < report.ranks.size(); ++i)
    line(i == 0 ? "ranks" : "", fmt::format("rank {}: {} of weights, {} of keys and values per token{}", i,
                                            memory_text(report.ranks[i].weights),
                                            size_text(report.ranks[i].cache_per_token), totals_text(report.ranks[i])));
  if (!report.weights_read && !report.files.empty())
    line("weights", "not read: --check-weights looks for NaN and infinities");
  if (report.weights_read && report.damaged.empty()) line("weights", "all are finite");
  for (std::size_t i = 0; i < report.damaged.size(); ++i) line(i == 0 ? "weights" : "", report.damaged[i]);
  for (const std::string& warning : report.warnings) line("warning", warning);
  line("files", report.files.empty() ? "none" : fmt::format("{}", fmt::join(report.files, ", ")));
  if (report.unsupported.empty()) line("unsupported", "nothing");
  for (std::size_t i = 0; i < report.unsupported.size(); ++i) line(i == 0 ? "unsupported" : "", report.unsupported[i]);
  return text;
}

std::string json_text(const ordered_json& object) {
  return object.dump(2, ' ', true, ordered_json::error_handler_t::replace) + "\n";
}

// A folder that is no model at all has a report of why, for programs that read the JSON.
FolderReport examine_or_say_why(const InspectOptions& options) {
  try {
    return examine(options);
  } catch (const InputError& error) {
    if (options.json)
      write_stdout(json_text({{"folder", options.folder}, {"unsupported", ordered_json::array({error.what()})}}));
    throw;
  }
}

void run(const InspectOptions& options) {
  const FolderReport report = examine_or_say_why(options);
  write_stdout(options.json ? json_text(json_of(report)) : text_of(report));
  if (!report.damaged.empty())
    throw_error<InputError>("{}: {} NaN or infinities", report.folder,
                            report.damaged.size() == 1 ? "one of its tensors has"
                                                       : fmt::format("{} of its tensors have", report.damaged.size()));
  if (!report.unsupported.empty())
    throw_error<InputError>("{}: {} unsupported, so Heddle cannot run all of it", report.folder,
                            report.unsupported.size() == 1
                                ? "one thing of it is"
                                : fmt::format("{} things of it are", report.unsupported.size()));
}

}  // namespace

void add_inspect(CLI::App& app) {
  const auto options = std::make_shared<InspectOptions>();
  CLI::App* command = app.add_subcommand("inspect", "Describe a model's folder, and say what of it is unsupported");
  add_model_option(*command, options->folder,
                   "The folder: config.json, weights, tokenizer.json; ORG/NAME in the cache of Hugging Face; or "
                   "synth:NAME");
  command->footer(
      "Exit status: 2 if anything that the model needs is unsupported, or weights are damaged; the report is "
      "printed all the same.");
  add_number_option<int>(*command, "--tp", options->ranks,
                         "Say what each of so many ranks takes that share the model, each with its part of the weights "
                         "(tensor parallelism); default 1",
                         {.min = 1, .max = kMaxRanks});
  add_context_ranks_option(*command, options->context_ranks);
  command->add_flag("--check-weights", options->check_weights,
                    "Read all weights and name the tensors that have NaN or infinities");
  command->add_flag("--json", options->json, "Print one JSON object");
  command->callback([options] { run(*options); });
}

}  // namespace heddle
