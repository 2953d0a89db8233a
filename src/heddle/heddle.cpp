#include "heddle/heddle.h"

#include <unordered_map>
#include <utility>

#include "base/cuda_runtime.h"
#include "base/error.h"
#include "engine/completion.h"
#include "engine/engine.h"
#include "engine/generation_defaults.h"
#include "engine/memory_plan.h"
#include "engine/model_template.h"
#include "engine/model_tokenizer.h"
#include "engine/sampler.h"
#include "machine/cpu.h"
#include "machine/device_choice.h"
#include "machine/gpu.h"
#include "models/registry.h"
#include "weights/model_source.h"

namespace heddle {
namespace {

Device device_for(const ModelSource& source, const TextModelOptions& options, const EngineOptions& engine) {
  const std::optional<Device> asked = device_named(options.device);
  if (!asked && options.device != "auto")
    throw_error<InputError>("device is \"{}\", expected auto, cpu, cuda or cuda:N", options.device);
  if (asked && asked->kind == DeviceKind::cpu) return *asked;
  const auto why_not = [&](Device device) {
    std::size_t available = 0;
    if constexpr (kHaveCuda) available = cuda::memory_info(device.index).free_bytes;
    return why_too_large(plan_memory(*outline_model(source, {.device = device}), engine, available));
  };
  return choose_device(asked, discover_gpus(), why_not).device;
}

EngineOptions engine_options(const TextModelOptions& options) {
  if (options.threads < 0) throw_error<InputError>("threads is {}, expected 0 or more", options.threads);
  if (options.max_sequences < 1)
    throw_error<InputError>("max_sequences is {}, expected 1 or more", options.max_sequences);
  if (options.kv_bytes.value_or(1) < 1)
    throw_error<InputError>("kv_bytes is {}, expected 1 or more", *options.kv_bytes);
  if (options.max_context.value_or(2) < 2)
    throw_error<InputError>("max_context is {}, expected 2 or more", *options.max_context);
  return {.threads = options.threads > 0 ? options.threads : discover_cpu().usable_threads,
          .max_sequences = options.max_sequences,
          .kv_bytes = options.kv_bytes,
          .max_context = options.max_context};
}

std::unique_ptr<Engine> load_engine(const ModelSource& source, const TextModelOptions& options) {
  EngineOptions engine = engine_options(options);
  const Device device = device_for(source, options, engine);
  if (const std::int64_t available = discover_cpu().available_memory_bytes;
      device.kind == DeviceKind::cpu && !engine.kv_bytes && available > 0)
    engine.kv_bytes = available / 4;
  return std::make_unique<Engine>(load_model(source, {.device = device}), engine);
}

GenerationDefaults defaults_of(const ModelSource& source) {
  const auto config = source.generation_config();
  return config ? read_generation_defaults(*config) : GenerationDefaults{};
}

// `number`: of the model's requests, from 0.
SamplingParams sampling_of(const TextRequest& request, std::uint64_t number, SamplingParams defaults) {
  return {.temperature = request.temperature.value_or(defaults.temperature),
          .top_k = request.top_k.value_or(defaults.top_k),
          .top_p = request.top_p.value_or(defaults.top_p),
          .min_p = request.min_p.value_or(defaults.min_p),
          .repetition_penalty = request.repetition_penalty.value_or(defaults.repetition_penalty),
          .presence_penalty = request.presence_penalty,
          .frequency_penalty = request.frequency_penalty,
          .seed = request.seed.value_or(seed_of(0, {.prompt = number}))};
}

TextEnd end_of(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return TextEnd::stop;
    case FinishReason::length:
      return TextEnd::length;
    case FinishReason::error:
      break;
  }
  return TextEnd::error;
}

}  // namespace

struct TextModel::State {
  State(const std::string& name, const TextModelOptions& options) : State(name, options, *open_model(name)) {}

  State(const std::string& name, const TextModelOptions& options, const ModelSource& source)
      : model(name),
        tokenizer(load_model_tokenizer(name)),
        defaults(defaults_of(source)),
        engine(load_engine(source, options)) {
    if (defaults.eos_ids.empty()) defaults.eos_ids = engine->model_shape().eos_ids;
  }

  TextPiece piece_of(const TokenOutput& output);
  std::vector<std::int32_t> encode(const TemplateInput& conversation);
  std::vector<std::int32_t> stop_ids_of(const TextRequest& request) const;

  std::string model;
  Tokenizer tokenizer;
  GenerationDefaults defaults;
  std::unique_ptr<Engine> engine;
  std::optional<ModelChatTemplate> chat_template;  // read when it is first used: not every model has one
  std::unordered_map<std::int64_t, Completion> completions;
  std::uint64_t num_submitted = 0;
  std::vector<TextPiece> pieces;
};

TextPiece TextModel::State::piece_of(const TokenOutput& output) {
  if (output.finish == FinishReason::error)
    return {.request = output.request, .end = TextEnd::error, .error = output.error};
  Completion& completion = completions.at(output.request);
  TextPiece piece{.request = output.request, .text = completion.push(output), .token = output.token};
  if (completion.finished()) piece.end = end_of(*completion.finish());
  return piece;
}

std::vector<std::int32_t> TextModel::State::encode(const TemplateInput& conversation) {
  if (!chat_template) chat_template = load_model_chat_template(model);
  // The template writes the special tokens; the tokenizer must not add its own.
  return tokenizer.encode(chat_template->render(conversation), SpecialTokens::omit);
}

// The request's own, and the model's: those of its configuration and, as a chat needs it, the tokenizer's.
std::vector<std::int32_t> TextModel::State::stop_ids_of(const TextRequest& request) const {
  std::vector<std::int32_t> ids = request.stop_ids;
  if (request.ignore_eos) return ids;
  ids.insert(ids.end(), defaults.eos_ids.begin(), defaults.eos_ids.end());
  if (const auto eos = tokenizer.eos_id()) ids.push_back(*eos);
  return ids;
}

TextModel::TextModel(const std::string& model, const TextModelOptions& options)
    : state_(std::make_unique<State>(model, options)) {}
TextModel::TextModel(TextModel&&) noexcept = default;
TextModel& TextModel::operator=(TextModel&&) noexcept = default;
TextModel::~TextModel() = default;

const Tokenizer& TextModel::tokenizer() const {
  return state_->tokenizer;
}

std::vector<std::int32_t> TextModel::encode(std::string_view text) const {
  return state_->tokenizer.encode(text);
}

std::vector<std::int32_t> TextModel::encode_chat(std::span<const ChatMessage> messages) const {
  TemplateInput conversation;
  for (const ChatMessage& message : messages)
    conversation.messages.push_back({{"role", message.role}, {"content", message.content}});
  return state_->encode(conversation);
}

std::vector<std::int32_t> TextModel::encode_chat(std::string_view json) const {
  return state_->encode(parse_template_input(json, "the conversation"));
}

std::int64_t TextModel::max_length() const {
  return state_->engine->max_length();
}

std::int64_t TextModel::submit(const TextRequest& request) {
  Completion completion(state_->tokenizer, request.stop);
  std::vector<LogitBias> biases;
  for (const auto& [id, bias] : request.logit_bias) biases.push_back({id, bias});
  const std::int64_t id =
      state_->engine->submit({.prompt = request.prompt,
                              .sampling = sampling_of(request, state_->num_submitted, state_->defaults.sampling),
                              .max_tokens = request.max_tokens,
                              .stop_ids = state_->stop_ids_of(request),
                              .logit_bias = std::move(biases)});
  ++state_->num_submitted;
  state_->completions.emplace(id, std::move(completion));
  return id;
}

void TextModel::cancel(std::int64_t request) {
  state_->engine->cancel(request);
  state_->completions.erase(request);
}

std::span<const TextPiece> TextModel::step() {
  state_->pieces.clear();
  for (const TokenOutput& output : state_->engine->step()) state_->pieces.push_back(state_->piece_of(output));
  for (const TextPiece& piece : state_->pieces)
    if (piece.end) cancel(piece.request);  // at a stop string the engine would go on
  return state_->pieces;
}

bool TextModel::idle() const {
  return state_->engine->idle();
}

}  // namespace heddle
