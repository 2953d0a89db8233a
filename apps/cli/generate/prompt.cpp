#include "cli/generate/prompt.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <iterator>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "cli/input.h"
#include "cli/jsonl.h"
#include "engine/sampler.h"

namespace heddle {
namespace {

constexpr std::size_t kMaxPromptBytes = std::size_t{256} << 20;  // max_text_bytes of the tokenizer

constexpr std::string_view kConversation[] = {"messages", "tools", "documents", "chat_template_kwargs"};

const std::vector<std::string> kFields = {"prompt",
                                          "messages",
                                          "tools",
                                          "documents",
                                          "chat_template_kwargs",
                                          "id",
                                          "max_tokens",
                                          "n",
                                          "seed",
                                          "stop",
                                          "stop_ids",
                                          "ignore_eos",
                                          "logit_bias",
                                          "temperature",
                                          "top_k",
                                          "top_p",
                                          "min_p",
                                          "repetition_penalty",
                                          "presence_penalty",
                                          "frequency_penalty",
                                          "logprobs",
                                          "json_object",
                                          "json_schema",
                                          "regex",
                                          "choice"};

// Fields of other programs' prompts files.
constexpr FieldAdvice kAdvice[] = {
    {"custom_id", "use \"id\""},
    {"body", "put the fields of a request's body into the line itself"},
    {"model", "the model is that of --model"},
    {"max_completion_tokens", "use \"max_tokens\""},
    {"max_new_tokens", "use \"max_tokens\""},
    {"top_logprobs", "use \"logprobs\", the number of alternatives"},
    {"stop_token_ids", "use \"stop_ids\""},
    {"text", "use \"prompt\""},
    {"response_format", "use \"json_object\": true or \"json_schema\""},
    {"guided_json", "use \"json_schema\""},
    {"guided_regex", "use \"regex\""},
    {"guided_choice", "use \"choice\""},
};

// The order of members matters to a template that prints them, so the text is parsed again with it.
TemplateInput conversation_of(const JsonField& line, std::string_view text) {
  nlohmann::ordered_json all = parse_ordered_json(text, line.path());
  nlohmann::ordered_json parts;
  for (const std::string_view name : {"messages", "tools", "documents"})
    if (line.find(name)) parts[std::string(name)] = std::move(all[std::string(name)]);
  TemplateInput conversation = template_input_of(std::move(parts), line.path());
  if (conversation.messages.empty()) line.at("messages").fail("holds no messages; give at least one");
  if (const auto variables = line.find("chat_template_kwargs")) {
    if (!variables->is_object()) variables->fail_expected("an object");
    conversation.extra = std::move(all["chat_template_kwargs"]);
  }
  return conversation;
}

void read_text(const JsonField& line, std::string_view text, Prompt& prompt) {
  const auto plain = line.find("prompt");
  const bool has_messages = line.find("messages").has_value();
  if (plain && has_messages) line.fail("has both \"prompt\" and \"messages\"; give one of them");
  if (!plain && !has_messages) line.fail("has neither \"prompt\" nor \"messages\"; give one of them");
  if (has_messages) {
    prompt.conversation = conversation_of(line, text);
    return;
  }
  for (const std::string_view name : kConversation)
    if (line.find(name)) line.fail(fmt::format("has \"{}\" without \"messages\"", name));
  prompt.text = plain->text();
}

std::vector<std::string> stop_of(const JsonField& stop) {
  if (stop.is_string()) return {stop.text()};
  if (!stop.is_array()) stop.fail_expected("a string or a list of strings");
  std::vector<std::string> strings;
  for (const JsonField& element : stop.elements()) strings.push_back(element.text());
  return strings;
}

constexpr std::int64_t kMostInt = std::numeric_limits<std::int32_t>::max();

std::vector<std::int32_t> stop_ids_of(const JsonField& ids) {
  std::vector<std::int32_t> result;
  for (const JsonField& id : ids.elements()) result.push_back(static_cast<std::int32_t>(id.integer(0, kMostInt)));
  return result;
}

// {"15043": -100}: JSON's keys are strings.
std::vector<LogitBias> logit_bias_of(const JsonField& biases) {
  std::vector<LogitBias> result;
  for (const auto& [key, bias] : biases.members()) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      biases.fail(
          fmt::format("{} is no token id; expected an object like {{\"15043\": -100}}", shorten(nlohmann::json(key))));
    result.push_back({id, bias.number(-kLargestLogitBias, kLargestLogitBias)});
  }
  return result;
}

std::uint64_t seed_from(const JsonField& seed) {
  const nlohmann::json& value = seed.value();
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  constexpr double kMostExact = 0x1p53;  // a float without a fraction counts, as everywhere
  if (value.is_number_float() && value.get<double>() >= 0 && value.get<double>() <= kMostExact)
    return static_cast<std::uint64_t>(seed.integer(0, std::int64_t{1} << 53));
  seed.fail_expected(fmt::format("a whole number from 0 to {}", std::numeric_limits<std::uint64_t>::max()));
}

// Members of a schema keep their order, so the text is parsed again.
void read_grammar(const JsonField& line, std::string_view text, GenerationSettings& settings) {
  using Kind = grammar::GrammarSource::Kind;
  std::vector<grammar::GrammarSource> sources;
  if (const auto object = line.find("json_object"); object && object->boolean())
    sources.push_back({.kind = Kind::json_object});
  if (const auto schema = line.find("json_schema"))
    sources.push_back({.kind = Kind::json_schema, .text = parse_ordered_json(text, line.path())["json_schema"].dump()});
  if (const auto regex = line.find("regex")) sources.push_back({.kind = Kind::regex, .text = regex->text()});
  if (const auto choice = line.find("choice")) {
    sources.push_back({.kind = Kind::choice});
    for (const JsonField& one : choice->elements()) sources.back().choices.push_back(one.text());
  }
  if (sources.size() > 1) line.fail("has several of \"json_object\", \"json_schema\", \"regex\" and \"choice\"");
  if (!sources.empty()) settings.grammar = sources.front();
}

void read_settings(const JsonField& line, GenerationSettings& settings) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const auto number = [&](std::string_view name, double& value) {
    constexpr double kLimit = std::numeric_limits<double>::max();
    if (const auto field = line.find(name)) value = field->number(-kLimit, kLimit);
  };
  SamplingParams& sampling = settings.sampling;
  number("temperature", sampling.temperature);
  number("top_p", sampling.top_p);
  number("min_p", sampling.min_p);
  number("repetition_penalty", sampling.repetition_penalty);
  number("presence_penalty", sampling.presence_penalty);
  number("frequency_penalty", sampling.frequency_penalty);
  if (const auto top_k = line.find("top_k")) sampling.top_k = static_cast<std::int32_t>(top_k->integer(0, kMostInt));
  if (const auto seed = line.find("seed")) {
    sampling.seed = seed_from(*seed);
    settings.own_seed = true;
  }
  try {
    validate(sampling);
  } catch (const InputError& error) {
    line.fail(error.what());
  }
  if (const auto most = line.find("max_tokens")) settings.max_tokens = most->integer(1, kMost);
  if (const auto n = line.find("n")) settings.num_samples = static_cast<int>(n->integer(1, kMaxSamples));
  if (const auto stop = line.find("stop")) settings.stop = stop_of(*stop);
  if (const auto ids = line.find("stop_ids")) settings.stop_ids = stop_ids_of(*ids);
  if (const auto ignore = line.find("ignore_eos")) settings.ignore_eos = ignore->boolean();
  if (const auto biases = line.find("logit_bias")) settings.logit_bias = logit_bias_of(*biases);
  if (const auto top = line.find("logprobs")) settings.num_top_logprobs = static_cast<int>(top->integer(0, kMostInt));
}

}  // namespace

Prompt parse_prompt(std::string_view line, std::string where, const GenerationSettings& settings) {
  Prompt prompt{.where = std::move(where), .settings = settings};
  try {
    const nlohmann::json object = parse_object(line, prompt.where);
    const JsonField field(object, prompt.where);
    prompt.id = id_of(field);
    refuse_unknown_fields(field, kFields, kAdvice, "a prompt");
    read_text(field, line, prompt);
    read_settings(field, prompt.settings);
    read_grammar(field, line, prompt.settings);
  } catch (const InputError& error) {
    prompt.error = error.what();
  }
  return prompt;
}

namespace {
constexpr std::size_t kMostAtFirst = 1000;
}

PromptReader::PromptReader(std::string file, GenerationSettings settings)
    : file_(std::move(file)), settings_(std::move(settings)) {
  if (is_stream(file_)) stream_ = std::make_unique<LineStream>(file_);
}

Prompt PromptReader::parse(std::string_view line, std::size_t number, const std::string& where) const {
  Prompt prompt = parse_prompt(line, fmt::format("{}:{}", where, number), settings_);
  prompt.index = static_cast<std::int64_t>(number) - 1;
  return prompt;
}

std::vector<Prompt> PromptReader::first() {
  std::vector<Prompt> prompts;
  if (stream_) {
    while (prompts.empty() && !stream_->ended()) prompts = more(std::chrono::seconds(1));
    while (prompts.size() < kMostAtFirst &&
           !stream_->ended()) {  // what has been written at once, and whether it is all
      std::vector<Prompt> others = more(std::chrono::milliseconds(100));
      if (others.empty()) break;
      std::ranges::move(others, std::back_inserter(prompts));
    }
  } else {
    const InputText input = read_input(file_, kMaxLinesBytes);
    for (const TextLine& line : split_lines(input.text, input.where))
      prompts.push_back(parse(line.text, line.number, input.where));
  }
  if (prompts.empty()) throw_error<InputError>("{}: holds no prompts", file_ == "-" ? "standard input" : file_);
  return prompts;
}

std::vector<Prompt> PromptReader::more(std::chrono::milliseconds timeout) {
  std::vector<Prompt> prompts;
  if (!stream_) return prompts;
  for (const std::string& line : stream_->take(timeout, kMaxLineBytes)) {
    std::string_view text = line;
    if (num_lines_ == 0 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    if (++num_lines_ > kMaxObjects)
      throw_error<InputError>("{}: more than {} lines (max_objects)", stream_->where(), kMaxObjects);
    if (!is_blank(text)) prompts.push_back(parse(text, num_lines_, stream_->where()));
  }
  return prompts;
}

std::string read_prompt_text() {
  std::string text = read_input("-", kMaxPromptBytes).text;
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

}  // namespace heddle
