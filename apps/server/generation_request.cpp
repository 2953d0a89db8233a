#include "server/generation_request.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "engine/sampler.h"
#include "server/api_error.h"
#include "server/constraint_fields.h"
#include "server/request_fields.h"
#include "server/tool_fields.h"

namespace heddle::server {
namespace {

constexpr std::int64_t kMostTokens = std::numeric_limits<std::int32_t>::max();

std::int32_t token_id(const JsonField& field, const RequestDefaults& defaults) {
  return static_cast<std::int32_t>(field.integer(0, defaults.vocab_size - 1));
}

// Runs `parse`; an InputError, which tells line and column, becomes an ApiError 400.
template <class Parse>
auto parsed(Parse parse) {
  try {
    return parse();
  } catch (const InputError& error) {
    throw ApiError(400, error.what(), {}, "invalid_json");
  }
}

void read_stop(const JsonField& field, const RequestLimits& limits, std::vector<std::string>& stop) {
  if (field.is_string())
    stop.push_back(field.text());
  else
    for (const JsonField& element : field.elements()) {
      if (std::ssize(stop) == limits.max_stop_strings)
        field.fail(fmt::format("more than {} strings (max_stop_strings)", limits.max_stop_strings));
      stop.push_back(element.text());
    }
  for (const std::string& text : stop) {
    if (text.empty()) field.fail("an empty string would end every text before it begins");
    if (text.size() > limits.max_stop_string_bytes)
      field.fail(fmt::format("a string of more than {} bytes (max_stop_string_bytes)", limits.max_stop_string_bytes));
  }
}

void read_logit_bias(const JsonField& field, const RequestDefaults& defaults, std::vector<LogitBias>& biases) {
  const auto members = field.members();
  if (std::ssize(members) > kMostLogitBiases) field.fail(fmt::format("more than {} tokens", kMostLogitBiases));
  for (const auto& [name, value] : members) {
    const nlohmann::json id =
        name.empty() || name.size() > 10 || name.find_first_not_of("0123456789") != std::string::npos
            ? nlohmann::json(name)
            : nlohmann::json(std::stoll(name));
    biases.push_back({token_id(JsonField(id, "logit_bias: a token's id"), defaults), value.number(-100, 100)});
  }
}

void read_sampling(RequestFields& fields, const RequestDefaults& defaults, GenerationRequest& request) {
  SamplingParams& sampling = request.sampling;
  const auto number = [&](const char* name, double& value, double min, double max) {
    fields.read(name, [&](const JsonField& field) { value = field.number(min, max); });
  };
  number("temperature", sampling.temperature, 0, 100);
  number("top_p", sampling.top_p, 0, 1);
  number("min_p", sampling.min_p, 0, 1);
  number("repetition_penalty", sampling.repetition_penalty, 0.001, 1000);
  number("presence_penalty", sampling.presence_penalty, -2, 2);
  number("frequency_penalty", sampling.frequency_penalty, -2, 2);
  fields.read("top_k", [&](const JsonField& field) {
    sampling.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(0, field.integer(-1, kMostTokens)));  // -1: all
  });
  if (sampling.top_p == 0) {  // the likeliest alone
    sampling.top_p = 1;
    sampling.temperature = 0;
  }
  fields.read("seed", [&](const JsonField& field) {
    request.seed = static_cast<std::uint64_t>(
        field.integer(std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()));
  });
  fields.read("logit_bias", [&](const JsonField& field) { read_logit_bias(field, defaults, request.logit_bias); });
  try {
    validate(sampling);
  } catch (const InputError& error) {
    throw ApiError(400, error.what());
  }
}

void read_ends(RequestFields& fields, const RequestDefaults& defaults, GenerationRequest& request) {
  const RequestLimits& limits = defaults.limits;
  const auto flag = [&](const char* name, bool& value) {
    fields.read(name, [&](const JsonField& field) { value = field.boolean(); });
  };
  fields.read("max_tokens",
              [&](const JsonField& field) { request.max_tokens = field.integer(request.chat ? 1 : 0, kMostTokens); });
  fields.read("max_completion_tokens",
              [&](const JsonField& field) { request.max_tokens = field.integer(1, kMostTokens); });
  fields.read("min_tokens", [&](const JsonField& field) { request.min_tokens = field.integer(0, kMostTokens); });
  fields.read("stop", [&](const JsonField& field) { read_stop(field, limits, request.stop); });
  fields.read("stop_token_ids", [&](const JsonField& field) {
    const auto ids = field.elements();
    if (std::ssize(ids) > limits.max_stop_ids)
      field.fail(fmt::format("more than {} tokens (max_stop_ids)", limits.max_stop_ids));
    for (const JsonField& id : ids) request.stop_ids.push_back(token_id(id, defaults));
  });
  flag("ignore_eos", request.ignore_eos);
  if (request.max_tokens && request.min_tokens > *request.max_tokens)
    throw ApiError(400,
                   fmt::format("min_tokens is {}, more than max_tokens, {}", request.min_tokens, *request.max_tokens),
                   "min_tokens");
}

void read_number_of_answers(RequestFields& fields, const RequestDefaults& defaults, GenerationRequest& request) {
  const int most = defaults.limits.max_samples;
  fields.read("n", [&](const JsonField& field) { request.num_answers = static_cast<int>(field.integer(1, most)); });
  request.num_samples = request.num_answers;
  fields.read("best_of", [&](const JsonField& field) {
    request.num_samples = static_cast<int>(field.integer(1, most));
    if (request.num_samples < request.num_answers)
      field.fail(fmt::format("less than n, which is {}", request.num_answers));
  });
}

void read_stream(RequestFields& fields, GenerationRequest& request) {
  fields.read("stream", [&](const JsonField& field) { request.stream = field.boolean(); });
  fields.read("stream_options", [&](const JsonField& field) {
    if (!request.stream) field.fail("only with stream: true");
    for (const auto& [name, value] : field.members()) {
      if (value.value().is_null()) continue;
      if (name == "include_usage")
        request.include_usage = value.boolean();
      else if (name == "continuous_usage_stats")
        request.continuous_usage = value.boolean();
      else if (name != "include_obfuscation")  // of OpenAI's own network
        value.fail("no such option");
    }
  });
  if (request.stream && request.num_samples > request.num_answers)
    throw ApiError(400, "best_of: the best answers are known at the end alone, and cannot be streamed", "best_of");
}

void read_shared(RequestFields& fields, const nlohmann::ordered_json& ordered, const RequestDefaults& defaults,
                 GenerationRequest& request) {
  request.sampling = defaults.sampling;
  fields.read("model", [&](const JsonField& field) { request.model = field.text(); });
  read_sampling(fields, defaults, request);
  read_ends(fields, defaults, request);
  read_number_of_answers(fields, defaults, request);
  read_stream(fields, request);
  fields.read("prompt_logprobs", [&](const JsonField& field) {
    request.num_prompt_logprobs = static_cast<int>(field.integer(0, defaults.limits.max_logprobs));
  });
  read_constraint_fields(fields, ordered, request);
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "request_id",
                 "prompt_cache_retention", "verbosity"});
  // The texts of answers never have special tokens, nor spaces between them.
  fields.ignore({"skip_special_tokens", "spaces_between_special_tokens", "guided_decoding_backend"});
  fields.read("add_special_tokens", [&](const JsonField& field) {
    request.special_tokens = field.boolean() ? SpecialTokens::add : SpecialTokens::omit;
  });
  fields.refuse_unless("length_penalty", 1, "beam search is not implemented");
  fields.refuse_unless("early_stopping", false, "beam search is not implemented");
  fields.refuse_unless("include_reasoning", true, "reasoning is always in reasoning_content");
  constexpr const char* kMissing = "is not implemented";
  for (const char* name :
       {"truncate_prompt_tokens", "priority", "return_tokens_as_token_ids", "return_token_ids", "bad_words",
        "allowed_token_ids", "cache_salt", "guided_whitespace_pattern", "structural_tag", "continue_final_message",
        "prompt_embeds", "mm_processor_kwargs", "kv_transfer_params", "vllm_xargs", "chat_template"})
    fields.refuse(name, kMissing);
  fields.refuse("include_stop_str_in_output", "stop strings are always left out");
  fields.refuse("use_beam_search", "beam search is not implemented");
  fields.refuse("logits_processors", "code of a client's does not run here");
  if (request.num_prompt_logprobs && request.stream)
    throw ApiError(400, "prompt_logprobs: not with stream: true", "prompt_logprobs");
}

std::vector<std::int32_t> tokens_of(const JsonField& list, const RequestDefaults& defaults) {
  if (list.is_array() && list.value().empty()) list.fail("an empty list");
  std::vector<std::int32_t> tokens;
  tokens.reserve(list.value().size());
  for (const JsonField& element : list.elements()) tokens.push_back(token_id(element, defaults));
  return tokens;
}

void read_prompts(const JsonField& field, const RequestDefaults& defaults, std::vector<PromptText>& prompts) {
  if (field.is_string()) {
    prompts.emplace_back(field.text());
    return;
  }
  if (!field.is_array()) field.fail_expected("a text, a list of texts, of token ids, or of lists of token ids");
  const nlohmann::json& list = field.value();
  if (list.empty()) field.fail("an empty list");
  if (list.front().is_number()) {
    prompts.emplace_back(tokens_of(field, defaults));
    return;
  }
  if (static_cast<int>(std::min<std::size_t>(list.size(), std::size_t{1} << 30)) > defaults.limits.max_prompts)
    field.fail(fmt::format("more than {} prompts (max_prompts)", defaults.limits.max_prompts));
  for (const JsonField& element : field.elements())
    element.is_string() ? prompts.emplace_back(element.text()) : prompts.emplace_back(tokens_of(element, defaults));
}

// The parts of a message's content as one text: Heddle's models read text alone.
void join_parts(nlohmann::ordered_json& message, std::size_t index) {
  const auto content = message.find("content");
  if (content == message.end() || !content->is_array()) return;
  std::string text;
  for (const auto& part : *content) {
    const auto type = part.is_object() ? part.find("type") : part.end();
    if (!part.is_object() || type == part.end() || !type->is_string())
      throw ApiError(400, fmt::format("messages[{}].content: a part without a type", index), "messages");
    if (*type != "text")
      throw ApiError(501,
                     fmt::format("messages[{}].content: parts of type {} are not implemented, only text", index,
                                 shorten(nlohmann::json(*type))),
                     "messages", "not_implemented");
    const auto part_text = part.find("text");
    if (part_text == part.end() || !part_text->is_string())
      throw ApiError(400, fmt::format("messages[{}].content: a part of type text without a text", index), "messages");
    if (&part != &content->front()) text += '\n';
    text += part_text->get_ref<const std::string&>();
  }
  *content = std::move(text);
}

// Arguments of earlier calls are JSON in a string; templates write them as objects.
void parse_call_arguments(nlohmann::ordered_json& message, std::size_t index, int max_depth) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return;
  for (auto& call : *calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) continue;
    auto& function = call["function"];
    const auto arguments = function.find("arguments");
    if (arguments == function.end() || !arguments->is_string()) continue;
    const std::string text = arguments->get<std::string>();
    *arguments = text.empty()
                     ? nlohmann::ordered_json::object()
                     : parse_ordered_json(text, fmt::format("messages[{}]: a call's arguments", index), max_depth);
  }
}

void check_message(nlohmann::ordered_json& message, std::size_t index, int max_depth) {
  constexpr std::string_view kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};
  if (!message.is_object()) throw ApiError(400, fmt::format("messages[{}]: expected an object", index), "messages");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() ||
      std::ranges::find(kRoles, role->get_ref<const std::string&>()) == std::end(kRoles))
    throw ApiError(400, fmt::format("messages[{}].role: expected system, user, assistant or tool", index), "messages");
  if (*role == "developer") *role = "system";
  const auto content = message.find("content");
  if (content == message.end())
    message["content"] = *role == "assistant" ? nlohmann::ordered_json("") : nlohmann::ordered_json();
  else if (content->is_null() && *role == "assistant")
    *content = "";
  join_parts(message, index);
  const auto& text = message["content"];
  if (!text.is_string())
    throw ApiError(400, fmt::format("messages[{}].content: expected a text or a list of parts", index), "messages");
  parse_call_arguments(message, index, max_depth);
}

// Takes a member out of an object.
nlohmann::ordered_json taken(nlohmann::ordered_json& body, const char* name) {
  const auto found = body.find(name);
  if (found == body.end()) return {};
  nlohmann::ordered_json value = std::move(*found);
  *found = nullptr;
  return value;
}

void take_list(nlohmann::ordered_json& body, const char* name, int most, nlohmann::ordered_json& list) {
  list = taken(body, name);
  if (list.is_array() && list.empty()) list = nullptr;
  if (list.is_null()) return;
  if (!list.is_array()) throw ApiError(400, fmt::format("{}: expected a list", name), name);
  if (std::ssize(list) > most) throw ApiError(400, fmt::format("{}: more than {}", name, most), name);
  for (const auto& element : list)
    if (!element.is_object()) throw ApiError(400, fmt::format("{}: expected objects", name), name);
}

void take_conversation(nlohmann::ordered_json& body, const RequestLimits& limits, TemplateInput& conversation) {
  conversation.messages = taken(body, "messages");
  auto& messages = conversation.messages;
  if (!messages.is_array() || messages.empty())
    throw ApiError(400, "messages: expected a list of at least one message", "messages");
  if (std::ssize(messages) > limits.max_messages)
    throw ApiError(400, fmt::format("messages: more than {} (max_messages)", limits.max_messages), "messages");
  for (std::size_t i = 0; i < messages.size(); ++i) check_message(messages[i], i, limits.max_json_depth);
  take_list(body, "tools", limits.max_tools, conversation.tools);
  take_list(body, "documents", limits.max_tools, conversation.documents);
  conversation.extra = taken(body, "chat_template_kwargs");
  if (conversation.extra.is_null()) conversation.extra = nlohmann::ordered_json::object();
  if (!conversation.extra.is_object())
    throw ApiError(400, "chat_template_kwargs: expected an object", "chat_template_kwargs");
}

}  // namespace

GenerationRequest parse_completion_request(std::string_view body, const RequestDefaults& defaults) {
  const nlohmann::json root = parsed([&] { return parse_json(body, "the body", defaults.limits.max_json_depth); });
  RequestFields fields(root);
  GenerationRequest request;
  fields.read("prompt", [&](const JsonField& field) { read_prompts(field, defaults, request.prompts); });
  if (request.prompts.empty()) throw ApiError(400, "prompt: is missing", "prompt");
  nlohmann::ordered_json ordered;  // read again only for a schema, whose members have an order
  if (root.contains("response_format") || root.contains("guided_json") || root.contains("structured_outputs"))
    ordered = parsed([&] { return parse_ordered_json(body, "the body", defaults.limits.max_json_depth); });
  read_shared(fields, ordered, defaults, request);
  fields.read("echo", [&](const JsonField& field) { request.echo = field.boolean(); });
  fields.read("logprobs", [&](const JsonField& field) {
    if (field.value().is_boolean()) {  // as of a chat, which some clients send
      if (field.boolean()) request.num_top_logprobs = 0;
    } else {
      request.num_top_logprobs = static_cast<int>(field.integer(0, defaults.limits.max_logprobs));
    }
  });
  fields.refuse("suffix", "filling in between two texts is not implemented");
  fields.check_all_known();
  if (request.max_tokens == 0 && !request.echo)
    throw ApiError(400, "max_tokens is 0: without echo there is nothing to answer", "max_tokens");
  if (request.max_tokens == 0 && request.num_samples > 1)
    throw ApiError(400, "max_tokens is 0: there is one answer to each prompt, not n", "n");
  if (static_cast<std::int64_t>(request.prompts.size()) * request.num_samples > defaults.limits.max_answers)
    throw ApiError(400,
                   fmt::format("{} prompts with {} answers each are more than {} (max_answers)", request.prompts.size(),
                               request.num_samples, defaults.limits.max_answers),
                   "n");
  return request;
}

GenerationRequest parse_chat_request(std::string_view body, const RequestDefaults& defaults) {
  nlohmann::ordered_json ordered =
      parsed([&] { return parse_ordered_json(body, "the body", defaults.limits.max_json_depth); });
  if (!ordered.is_object()) throw ApiError(400, "the body is not a JSON object");
  GenerationRequest request{.chat = true, .special_tokens = SpecialTokens::omit};  // the template writes its own
  parsed([&] {
    take_conversation(ordered, defaults.limits, request.conversation);
    return 0;
  });
  const nlohmann::json root = ordered;
  RequestFields fields(root);
  fields.ignore({"messages", "tools", "documents", "chat_template_kwargs", "reasoning_effort"});
  read_shared(fields, ordered, defaults, request);
  fields.read("add_generation_prompt",
              [&](const JsonField& field) { request.conversation.add_generation_prompt = field.boolean(); });
  read_tool_fields(fields, defaults.tools, request);
  bool logprobs = false;
  int num_top = 0;
  fields.read("logprobs", [&](const JsonField& field) { logprobs = field.boolean(); });
  fields.read("top_logprobs", [&](const JsonField& field) {
    num_top = static_cast<int>(field.integer(0, defaults.limits.max_logprobs));
    if (num_top > 0 && !logprobs) field.fail("only with logprobs: true");
  });
  if (logprobs) request.num_top_logprobs = num_top;
  for (const char* name : {"functions", "function_call"}) fields.refuse(name, "give tools instead");
  fields.refuse("echo", "only completions have it");
  for (const char* name : {"audio", "prediction"}) fields.refuse(name, "is not implemented");
  fields.read("web_search_options", [](const JsonField&) {  // without an option it searches, too
    throw ApiError(501, "web_search_options: is not implemented", "web_search_options", "not_implemented");
  });
  fields.read("modalities", [](const JsonField& field) {
    for (const JsonField& element : field.elements())
      if (element.text() != "text")
        throw ApiError(501, "modalities: only text is implemented", "modalities", "not_implemented");
  });
  fields.check_all_known();
  return request;
}

}  // namespace heddle::server
