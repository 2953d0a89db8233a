#include "weights/synthetic_model.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>

#include "base/buffer.h"
#include "base/error.h"
#include "base/stream.h"
#include "base/suggestion.h"
#include "weights/synthetic_fill.h"

namespace heddle {
namespace {

using nlohmann::json;

constexpr std::string_view kPrefix = "synth:";

constexpr double kLogitDeviation = 3;       // realistic: the likeliest of 100 000 tokens has a few percent
constexpr double kResidualDeviation = 2.5;  // compensates for averaging and gating
constexpr double kBiasDeviation = 0.1;
constexpr double kNormDeviation = 0.1;  // around 1

constexpr int kMaxThreads = 32;
constexpr std::int64_t kPieceElements = 1 << 16;

struct FamilyNames {
  std::string_view architecture;
  std::string_view model_type;
};

FamilyNames names_of(Family family) {
  switch (family) {
    case Family::llama:
      return {"LlamaForCausalLM", "llama"};
    case Family::mistral:
      return {"MistralForCausalLM", "mistral"};
    case Family::qwen2:
      return {"Qwen2ForCausalLM", "qwen2"};
    case Family::qwen3:
      return {"Qwen3ForCausalLM", "qwen3"};
    case Family::mixtral:
      return {"MixtralForCausalLM", "mixtral"};
    case Family::deepseek_v2:
      return {"DeepseekV2ForCausalLM", "deepseek_v2"};
  }
  throw InvalidArgument("no such family");
}

void add_experts(const KnownShape& shape, json& config) {
  const ExpertSizes& experts = shape.experts;
  config["num_experts_per_tok"] = experts.per_token;
  if (shape.family == Family::mixtral) {
    config["num_local_experts"] = experts.count;
    config["sliding_window"] = nullptr;
    return;
  }
  config["n_routed_experts"] = experts.count;
  config["n_shared_experts"] = experts.shared;
  config["moe_intermediate_size"] = experts.intermediate;
  config["first_k_dense_replace"] = experts.num_dense_layers;
  config["moe_layer_freq"] = 1;
  config["n_group"] = 1;
  config["topk_group"] = 1;
  config["topk_method"] = "greedy";
  config["scoring_func"] = "softmax";
  config["norm_topk_prob"] = false;
  config["routed_scaling_factor"] = 1.0;
}

void add_latent(const KnownShape& shape, json& config) {
  config.erase("head_dim");
  config["q_lora_rank"] = nullptr;
  config["kv_lora_rank"] = shape.latent.latent_dim;
  config["qk_nope_head_dim"] = shape.latent.nope_dim;
  config["qk_rope_head_dim"] = shape.latent.rope_dim;
  config["v_head_dim"] = shape.latent.value_dim;
  config["attention_bias"] = false;
}

json eos_json(const KnownShape& shape) {
  const auto ids = eos_ids_of(shape);
  return ids.size() == 1 ? json(ids[0]) : json(std::vector(ids.begin(), ids.end()));
}

// With the key names of transformers 4, which version 5 also reads.
json config_of(const SyntheticName& name) {
  const KnownShape& shape = *name.shape;
  const FamilyNames names = names_of(shape.family);
  json config{{"architectures", {std::string(names.architecture)}},
              {"model_type", std::string(names.model_type)},
              {"vocab_size", shape.vocab_size},
              {"hidden_size", shape.hidden},
              {"intermediate_size", shape.intermediate},
              {"num_hidden_layers", name.num_layers},
              {"num_attention_heads", shape.num_heads},
              {"num_key_value_heads", shape.num_kv_heads},
              {"head_dim", shape.head_dim},
              {"hidden_act", "silu"},
              {"max_position_embeddings", shape.max_position},
              {"rms_norm_eps", shape.rms_norm_eps},
              {"rope_theta", shape.rope_theta},
              {"tie_word_embeddings", shape.tie_embeddings},
              {"attention_dropout", 0.0},
              {"bos_token_id", shape.bos_id},
              {"eos_token_id", eos_json(shape)},
              {"initializer_range", 0.02},
              {"use_cache", true},
              {"torch_dtype", std::string(name_of(name.dtype))},
              // Below version 5, transformers suspects an old mistake in a tokenizer beside a Mistral config.
              {"transformers_version", "5.0.0"}};
  if (shape.rope_scaling.factor != 0)
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", shape.rope_scaling.factor},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", shape.rope_scaling.original_max_position}};
  if (shape.yarn_scaling.factor != 0)
    config["rope_scaling"] = {{"type", "yarn"},
                              {"factor", shape.yarn_scaling.factor},
                              {"beta_fast", 32},
                              {"beta_slow", 1},
                              {"mscale", shape.yarn_scaling.mscale},
                              {"mscale_all_dim", shape.yarn_scaling.mscale},
                              {"original_max_position_embeddings", shape.yarn_scaling.original_max_position}};
  if (shape.experts.count > 0) add_experts(shape, config);
  if (shape.latent.latent_dim > 0) add_latent(shape, config);
  if (shape.sliding_window != 0) config["sliding_window"] = shape.sliding_window;
  if (shape.family == Family::qwen2 || shape.family == Family::qwen3) config["use_sliding_window"] = false;
  if (shape.family == Family::llama || shape.family == Family::qwen3) config["attention_bias"] = false;
  if (shape.family == Family::llama) config["mlp_bias"] = false;
  return config;
}

json generation_config_of(const KnownShape& shape) {
  return {{"bos_token_id", shape.bos_id}, {"eos_token_id", eos_json(shape)}};
}

// "; did you mean tiny? There are llama-3.2-1b, ..." or ", only llama-3.2-1b, ...".
std::string advice_on_name(std::string_view unknown) {
  std::vector<std::string> names;
  names.reserve(std::size(kKnownShapes));
  for (const KnownShape& shape : kKnownShapes) names.emplace_back(shape.name);
  const std::string near = nearest(unknown, names);
  const std::string before = near.empty() ? ", only" : fmt::format("; did you mean {}? There are", near);
  return fmt::format("{} {}", before, fmt::join(names, ", "));
}

// At least one part, which may be empty.
std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

void read_layers(std::string_view model, std::string_view value, SyntheticName& name) {
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), name.num_layers);
  if (error != std::errc() || end != value.data() + value.size() || name.num_layers < 1 ||
      name.num_layers > name.shape->num_layers)
    throw_error<InputError>("{}: layers is {}; {} can have 1 to {}", shorten(json(model)), shorten(json(value)),
                            name.shape->name, name.shape->num_layers);
}

void read_dtype(std::string_view model, std::string_view value, SyntheticName& name) {
  const auto dtype = dtype_named(value);
  if (!dtype)
    throw_error<InputError>("{}: dtype is {}, expected float32, bfloat16 or float16", shorten(json(model)),
                            shorten(json(value)));
  name.dtype = *dtype;
}

}  // namespace

std::string SyntheticName::text() const {
  std::string text = fmt::format("{}{}", kPrefix, shape->name);
  if (num_layers != shape->num_layers) text += fmt::format(",layers={}", num_layers);
  if (dtype != shape->dtype) text += fmt::format(",dtype={}", name_of(dtype));
  return text;
}

std::optional<SyntheticName> parse_synthetic_name(std::string_view model) {
  if (!model.starts_with(kPrefix)) return std::nullopt;
  const std::vector<std::string_view> parts = split_at_commas(model.substr(kPrefix.size()));
  const std::string_view known = parts[0];
  const KnownShape* shape = find_known_shape(known);
  if (shape == nullptr)
    throw_error<InputError>("{}: there is no synthetic model {}{}", shorten(json(model)), shorten(json(known)),
                            advice_on_name(known));
  SyntheticName name{.shape = shape, .num_layers = shape->num_layers, .dtype = shape->dtype};
  std::vector<std::string_view> seen;
  for (const std::string_view option : std::span(parts).subspan(1)) {
    const std::size_t equals = std::min(option.find('='), option.size());
    const std::string_view key = option.substr(0, equals);
    const std::string_view value = option.substr(std::min(option.size(), equals + 1));
    if (key != "layers" && key != "dtype")
      throw_error<InputError>("{}: {} is not an option; a name may be followed by ,layers=N and ,dtype=D",
                              shorten(json(model)), shorten(json(option)));
    if (std::ranges::find(seen, key) != seen.end())
      throw_error<InputError>("{}: {} is given twice", shorten(json(model)), key);
    seen.push_back(key);
    key == "layers" ? read_layers(model, value, name) : read_dtype(model, value, name);
  }
  return name;
}

SyntheticModel::SyntheticModel(const SyntheticName& name)
    : name_(name),
      where_(name.text()),
      config_(std::make_shared<const json>(config_of(name))),
      generation_config_(std::make_shared<const json>(generation_config_of(*name.shape))),
      pool_(std::make_unique<ThreadPool>(
          std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kMaxThreads))) {
  const KnownShape& shape = *name_.shape;
  const double logits = kLogitDeviation / std::sqrt(shape.hidden);
  add("model.embed_tokens.weight", {shape.vocab_size, shape.hidden}, logits);
  for (int layer = 0; layer < name_.num_layers; ++layer) add_layer(layer);
  add("model.norm.weight", {shape.hidden}, kNormDeviation, 1);
  if (!shape.tie_embeddings) add("lm_head.weight", {shape.vocab_size, shape.hidden}, logits);
}

void SyntheticModel::add(const std::string& tensor, std::vector<std::int64_t> shape, double deviation, float offset) {
  TensorInfo info{.dtype = stored_dtype(name_.dtype), .shape = std::move(shape), .file = where_};
  info.size_bytes = static_cast<std::size_t>(info.num_elements()) * size_of(name_.dtype);
  total_bytes_ += info.size_bytes;
  const SyntheticTensor recipe{.key = synthetic_key(name_.shape->name, tensor),
                               .scale = static_cast<float>(deviation / kUnitDeviation),
                               .offset = offset};
  tensors_.emplace(tensor, Entry{std::move(info), recipe});
}

// Standard deviation `gain` / sqrt(in_features): inputs of deviation 1 give outputs of deviation `gain`.
void SyntheticModel::add_projection(const std::string& name, std::int64_t out_features, std::int64_t in_features,
                                    double gain) {
  add(name + ".weight", {out_features, in_features}, gain / std::sqrt(static_cast<double>(in_features)));
}

void SyntheticModel::add_norm(const std::string& name, std::int64_t size) {
  add(name + ".weight", {size}, kNormDeviation, 1);
}

double SyntheticModel::gain_to_residual() const {
  return kResidualDeviation / std::sqrt(2.0 * name_.num_layers);
}

void SyntheticModel::add_layer(int layer) {
  const KnownShape& shape = *name_.shape;
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  add_norm(prefix + "input_layernorm", shape.hidden);
  shape.latent.latent_dim > 0 ? add_latent_attention(prefix + "self_attn.") : add_attention(prefix);
  add_norm(prefix + "post_attention_layernorm", shape.hidden);
  if (shape.experts.count > 0 && layer >= shape.experts.num_dense_layers)
    add_experts(prefix);
  else
    add_feed_forward(prefix + "mlp.", {"gate_proj", "up_proj", "down_proj"}, shape.intermediate);
}

void SyntheticModel::add_feed_forward(const std::string& prefix, const std::array<const char*, 3>& gate_up_down,
                                      std::int64_t intermediate) {
  const std::int64_t hidden = name_.shape->hidden;
  add_projection(prefix + gate_up_down[0], intermediate, hidden, 1);
  add_projection(prefix + gate_up_down[1], intermediate, hidden, 1);
  add_projection(prefix + gate_up_down[2], hidden, intermediate, gain_to_residual());
}

void SyntheticModel::add_experts(const std::string& prefix) {
  const KnownShape& shape = *name_.shape;
  const bool mixtral = shape.family == Family::mixtral;
  const std::array<const char*, 3> in_mlp{"gate_proj", "up_proj", "down_proj"}, in_mixtral{"w1", "w3", "w2"};
  const std::string of = prefix + (mixtral ? "block_sparse_moe." : "mlp.");
  add_projection(of + "gate", shape.experts.count, shape.hidden, 1);
  for (int expert = 0; expert < shape.experts.count; ++expert)
    add_feed_forward(fmt::format("{}experts.{}.", of, expert), mixtral ? in_mixtral : in_mlp,
                     shape.experts.intermediate);
  if (shape.experts.shared > 0)
    add_feed_forward(of + "shared_experts.", in_mlp, std::int64_t{shape.experts.shared} * shape.experts.intermediate);
}

void SyntheticModel::add_latent_attention(const std::string& prefix) {
  const KnownShape& shape = *name_.shape;
  const LatentSizes& latent = shape.latent;
  const std::int64_t heads = shape.num_heads;
  add_projection(prefix + "q_proj", heads * (latent.nope_dim + latent.rope_dim), shape.hidden, 1);
  add_projection(prefix + "kv_a_proj_with_mqa", latent.latent_dim + latent.rope_dim, shape.hidden, 1);
  add_norm(prefix + "kv_a_layernorm", latent.latent_dim);
  add_projection(prefix + "kv_b_proj", heads * (latent.nope_dim + latent.value_dim), latent.latent_dim, 1);
  add_projection(prefix + "o_proj", shape.hidden, heads * latent.value_dim, gain_to_residual());
}

void SyntheticModel::add_attention(const std::string& prefix) {
  const KnownShape& shape = *name_.shape;
  const std::int64_t heads = std::int64_t{shape.num_heads} * shape.head_dim;
  const std::int64_t kv_heads = std::int64_t{shape.num_kv_heads} * shape.head_dim;
  add_projection(prefix + "self_attn.q_proj", heads, shape.hidden, 1);
  add_projection(prefix + "self_attn.k_proj", kv_heads, shape.hidden, 1);
  add_projection(prefix + "self_attn.v_proj", kv_heads, shape.hidden, 1);
  add_projection(prefix + "self_attn.o_proj", shape.hidden, heads, gain_to_residual());
  if (shape.qkv_bias()) {
    add(prefix + "self_attn.q_proj.bias", {heads}, kBiasDeviation);
    add(prefix + "self_attn.k_proj.bias", {kv_heads}, kBiasDeviation);
    add(prefix + "self_attn.v_proj.bias", {kv_heads}, kBiasDeviation);
  }
  if (shape.qk_norm()) {
    add_norm(prefix + "self_attn.q_norm", shape.head_dim);
    add_norm(prefix + "self_attn.k_norm", shape.head_dim);
  }
}

JsonField SyntheticModel::config() const {
  return {*config_, where_ + ": config"};
}

std::optional<JsonField> SyntheticModel::generation_config() const {
  return JsonField(*generation_config_, where_ + ": generation_config");
}

std::vector<std::string_view> SyntheticModel::names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const auto& [name, entry] : tensors_) names.push_back(name);
  return names;
}

const TensorInfo* SyntheticModel::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second.info;
}

const SyntheticModel::Entry& SyntheticModel::entry(std::string_view tensor) const {
  const auto found = tensors_.find(tensor);
  require(found != tensors_.end(), "{}: there is no tensor {}", where_, quoted_name(tensor));
  return found->second;
}

const SyntheticTensor& SyntheticModel::recipe(std::string_view tensor) const {
  return entry(tensor).recipe;
}

void SyntheticModel::check_rows(std::string_view name, const Entry& tensor, std::int64_t first_row,
                                std::int64_t num_rows) const {
  const std::int64_t all_rows = tensor.info.shape.front();
  require(first_row >= 0 && num_rows >= 0 && first_row <= all_rows && num_rows <= all_rows - first_row,
          "{}: tensor {} has {} rows; {} from {} were asked for", where_, quoted_name(name), all_rows, num_rows,
          first_row);
}

TensorRows SyntheticModel::rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows) const {
  const Entry& tensor = entry(name);
  check_rows(name, tensor, first_row, num_rows);
  const std::int64_t row_elements = tensor.info.num_elements() / tensor.info.shape.front();
  const std::int64_t count = num_rows * row_elements;
  const std::size_t element_bytes = size_of(name_.dtype);
  auto buffer = std::make_shared<Buffer>(static_cast<std::size_t>(count) * element_bytes);
  const auto first = static_cast<std::uint64_t>(first_row * row_elements);
  pool_->parallel_for(count, kPieceElements, [&](std::int64_t begin, std::int64_t end) {
    fill_synthetic(tensor.recipe, first + static_cast<std::uint64_t>(begin), static_cast<std::size_t>(end - begin),
                   name_.dtype, buffer->data() + static_cast<std::size_t>(begin) * element_bytes);
  });
  return {.bytes = {buffer->data(), buffer->size_bytes()}, .owner = buffer};
}

void SyntheticModel::read_rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows,
                               std::byte* destination) const {
  const Entry& tensor = entry(name);
  check_rows(name, tensor, first_row, num_rows);
  const std::int64_t row_elements = tensor.info.num_elements() / tensor.info.shape.front();
  fill_synthetic(tensor.recipe, static_cast<std::uint64_t>(first_row * row_elements),
                 static_cast<std::size_t>(num_rows * row_elements), name_.dtype, destination);
}

void SyntheticModel::read_columns(std::string_view name, std::int64_t first_row, std::int64_t num_rows, Slice columns,
                                  std::byte* destination) const {
  const Entry& tensor = entry(name);
  check_rows(name, tensor, first_row, num_rows);
  require_columns(*this, name, columns);
  const std::size_t part_bytes = static_cast<std::size_t>(columns.count) * size_of(name_.dtype);
  for (std::int64_t row = 0; row < num_rows; ++row)
    fill_synthetic(tensor.recipe, static_cast<std::uint64_t>((first_row + row) * tensor.info.shape[1] + columns.first),
                   static_cast<std::size_t>(columns.count), name_.dtype,
                   destination + static_cast<std::size_t>(row) * part_bytes);
}

bool SyntheticModel::make_rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows, DType dtype,
                               std::byte* destination, Stream& stream) const {
  if (stream.device().kind != DeviceKind::cuda) return false;
  const Entry& tensor = entry(name);
  check_rows(name, tensor, first_row, num_rows);
  const std::int64_t row_elements = tensor.info.num_elements() / tensor.info.shape.front();
  if constexpr (kHaveCuda)
    cuda::fill_synthetic(tensor.recipe, static_cast<std::uint64_t>(first_row * row_elements),
                         static_cast<std::size_t>(num_rows * row_elements), name_.dtype, dtype, destination, stream);
  return true;
}

bool SyntheticModel::make_columns(std::string_view name, std::int64_t first_row, std::int64_t num_rows, Slice columns,
                                  DType dtype, std::byte* destination, Stream& stream) const {
  if (stream.device().kind != DeviceKind::cuda) return false;
  const Entry& tensor = entry(name);
  check_rows(name, tensor, first_row, num_rows);
  require_columns(*this, name, columns);
  const std::int64_t row_elements = tensor.info.shape[1];
  if constexpr (kHaveCuda)
    cuda::fill_synthetic_columns(tensor.recipe,
                                 {.first = static_cast<std::uint64_t>(first_row * row_elements + columns.first),
                                  .rows = static_cast<std::uint64_t>(num_rows),
                                  .columns = static_cast<std::uint64_t>(columns.count),
                                  .row_stride = static_cast<std::uint64_t>(row_elements)},
                                 name_.dtype, dtype, destination, stream);
  return true;
}

}  // namespace heddle
