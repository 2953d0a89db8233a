// Which route a request takes, and the answers that need no engine.
#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "base/printable.h"
#include "server/access.h"
#include "server/api_error.h"
#include "server/page.h"
#include "server/request_fields.h"
#include "server/service.h"

namespace heddle::server {
namespace {

constexpr std::string_view kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'";

HttpResponse page_response(const PageFile& file) {
  return {.content_type = std::string(file.content_type),
          .headers = {{"Content-Security-Policy", std::string(kContentPolicy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"},
                      {"Cache-Control", "no-cache"}},
          .body = std::string(file.bytes)};
}

// A part of a path without its percent-encoding (RFC 3986, section 2.1); what is no such code stays as it is.
std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* const code = text.data() + i + 1;
    if (text[i] == '%' && text.size() - i > 2 && std::from_chars(code, code + 2, byte, 16).ptr == code + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

ApiError not_implemented(const std::string& path) {
  return {501, fmt::format("{} is not implemented", path), {}, "not_implemented"};
}

bool is_page(const std::string& path) {
  return std::ranges::any_of(page_files(), [&](const PageFile& file) { return file.path == path; });
}

bool is_health(const std::string& path) {
  return path == "/health" || path == "/ready" || path == "/ping";
}

void check_num_tokens(std::int64_t count, const RequestLimits& limits, const char* field) {
  if (count > limits.max_prompt_tokens)
    throw ApiError(400, fmt::format("{}: more than {} tokens (max_prompt_tokens)", field, limits.max_prompt_tokens),
                   field);
}

bool is_for_admins(const std::string& path) {
  return path == "/metrics" || path == "/live" || path == "/live?stream=1";
}

}  // namespace

void Service::check_access(const HttpRequest& request) const {
  const std::string& path = request.path;
  if (is_health(path)) return;
  if (request.beyond_limit) {
    ApiError error(503, "too many connections (--max-connections): try again later");
    error.retry_after = 1;
    throw error;
  }
  check_origin(request, options_.access);
  if (is_page(path)) return;
  if (is_for_admins(path))
    authorize_admin(request, options_.access);
  else
    authorize(request, options_.access);
}

std::optional<HttpResponse> Service::refuse_early(const HttpRequest& head) const {
  try {
    check_access(head);
    return std::nullopt;
  } catch (const ApiError& error) {
    return error_response(error);
  }
}

void Service::route(HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  const std::string path = request.path;
  const auto require_method = [&](std::string_view method) {
    if (request.method == method || (method == "GET" && request.method == "HEAD")) return;
    ApiError error(405, fmt::format("{}: use {}", path, method));
    error.allow = method == "GET" ? "GET, HEAD" : method;
    throw error;
  };
  const auto text_route = [&](auto serve) {
    require_method("POST");
    serve();
  };
  check_access(request);
  if (is_health(path)) {
    require_method("GET");
    return responder->respond(path == "/ready" ? ready() : health());
  }
  for (const PageFile& file : page_files())
    if (file.path == path) {
      require_method("GET");
      return responder->respond(page_response(file));
    }
  if (is_for_admins(path)) {
    require_method("GET");
    if (path == "/metrics")
      return responder->respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                                 .body = prometheus_text(metrics_, loop_->snapshot(), options_.model_names.front())});
    if (path == "/live") return responder->respond({.body = live() + "\n"});
    return stream_live(responder);
  }
  if (path == "/v1/completions") return text_route([&] { generate(false, request, responder); });
  if (path == "/v1/chat/completions") return text_route([&] { generate(true, request, responder); });
  if (path == "/tokenize") return text_route([&] { convert(&Service::tokenized, request, responder); });
  if (path == "/detokenize") return text_route([&] { convert(&Service::detokenized, request, responder); });
  if (path == "/v1/models" || path.starts_with("/v1/models/")) {
    require_method("GET");
    return responder->respond(models(path));
  }
  if (path == "/version") {
    require_method("GET");
    return responder->respond({.body = "{\"version\":\"" HEDDLE_VERSION "\"}\n"});
  }
  for (const char* known :
       {"/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/audio/transcriptions", "/v1/audio/translations",
        "/v1/audio/speech", "/v1/images/generations", "/v1/moderations", "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter", "/rerank", "/v1/rerank", "/score", "/pooling", "/classify"})
    if (path == known) throw not_implemented(path);
  constexpr std::size_t kShown = 100;
  throw ApiError(404, fmt::format("there is no {}", printable(path, kShown)));
}

HttpResponse Service::health() const {
  const LoopState state = loop_->state();
  if (state == LoopState::failed || state == LoopState::stopped)
    return {.status = 503, .body = "{\"status\":\"failed\"}\n"};
  return {.body = "{\"status\":\"ok\"}\n"};
}

HttpResponse Service::ready() const {
  if (loop_->state() == LoopState::running && !draining_) return {.body = "{\"ready\":true}\n"};
  return {.status = 503, .headers = {{"Retry-After", "1"}}, .body = "{\"ready\":false}\n"};
}

HttpResponse Service::models(const std::string& path) const {
  const auto model = [&](const std::string& name) {
    Json entry{{"id", name},           {"object", "model"}, {"created", created_},
               {"owned_by", "heddle"}, {"root", name},      {"parent", nullptr}};
    if (loop_->state() == LoopState::running) entry["max_model_len"] = loop_->engine().max_length();
    return entry;
  };
  constexpr std::string_view kPrefix = "/v1/models/";
  if (path.starts_with(kPrefix)) {
    const std::string name = percent_decoded(std::string_view(path).substr(kPrefix.size()));
    if (name.empty()) throw ApiError(404, "there is no model without a name: /v1/models lists all");
    check_model(name);
    return {.body = json_text(model(name)) + "\n"};
  }
  Json list{{"object", "list"}, {"data", Json::array()}};
  for (const std::string& name : options_.model_names) list["data"].push_back(model(name));
  return {.body = json_text(list) + "\n"};
}

// Answers by what `conversion` makes of the body, on a worker, which takes a place of the queue.
void Service::convert(std::string (Service::*conversion)(const std::string& body) const, HttpRequest& request,
                      const std::shared_ptr<Responder>& responder) {
  require_ready();
  const std::uint64_t owner = authorize(request, options_.access);
  take_places(owner, 1);
  ++num_parsing_;
  const auto body = std::make_shared<HttpRequest>(std::move(request));
  work_.add(owner, FairWork::Kind::quick, [this, conversion, owner, body, responder] {
    auto response = std::make_shared<HttpResponse>();
    try {
      response->body = (this->*conversion)(body->body);
    } catch (const std::exception& error) {
      *response = error_response(as_api_error(error));
    }
    *body = {};
    threads_.server([this, owner, responder, response, alive = std::weak_ptr(alive_)] {
      if (!alive.lock()) return;
      places_.give_back(owner, 1);
      --num_parsing_;
      responder->respond(std::move(*response));
      check_drained();
    });
  });
}

std::string Service::tokenized(const std::string& body) const {
  const RequestDefaults defaults = request_defaults();
  const nlohmann::json root = parse_json(body, "the body", defaults.limits.max_json_depth);
  RequestFields fields(root);
  std::vector<std::int32_t> tokens;
  bool with_texts = false;
  if (root.contains("messages")) {
    tokens = encoder_.encode(parse_chat_request(body, defaults), defaults.limits).tokens.front();
  } else {
    std::string prompt;
    auto specials = SpecialTokens::add;
    if (!root.contains("prompt")) throw ApiError(400, "prompt: is missing", "prompt");
    fields.read("prompt", [&](const JsonField& field) { prompt = field.text(); });
    fields.read("add_special_tokens",
                [&](const JsonField& field) { specials = field.boolean() ? SpecialTokens::add : SpecialTokens::omit; });
    fields.read("return_token_strs", [&](const JsonField& field) { with_texts = field.boolean(); });
    fields.ignore({"model"});
    fields.check_all_known();
    tokens = encoder_.encode_text(prompt, specials);
  }
  check_num_tokens(std::ssize(tokens), defaults.limits, "prompt");
  Json answer{{"count", tokens.size()}, {"max_model_len", loop_->engine().max_length()}, {"tokens", tokens}};
  if (with_texts)
    for (const std::int32_t id : tokens) answer["token_strs"].push_back(completion_token(id, encoder_.tokenizer()));
  return json_text(answer) + "\n";
}

std::string Service::detokenized(const std::string& body) const {
  const RequestDefaults defaults = request_defaults();
  const nlohmann::json root = parse_json(body, "the body", defaults.limits.max_json_depth);
  RequestFields fields(root);
  std::vector<std::int32_t> tokens;
  if (!root.contains("tokens")) throw ApiError(400, "tokens: is missing", "tokens");
  fields.read("tokens", [&](const JsonField& field) {
    const std::int64_t last = encoder_.tokenizer().vocab_size() - 1;
    check_num_tokens(std::ssize(field.value()), defaults.limits, "tokens");
    tokens.reserve(field.value().size());
    for (const JsonField& id : field.elements()) tokens.push_back(static_cast<std::int32_t>(id.integer(0, last)));
  });
  fields.ignore({"model"});
  fields.check_all_known();
  return json_text({{"prompt", encoder_.tokenizer().decode(tokens)}}) + "\n";
}

}  // namespace heddle::server
