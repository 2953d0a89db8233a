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

bool is_for_admins(const std::string& path) {
  return path == "/metrics" || path == "/live" || path == "/live?stream=1";
}

}  // namespace

void Service::check_access(const HttpRequest& request) const {
  const std::string& path = request.path;
  if (is_health(path)) return;
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

void Service::route(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  const std::string& path = request.path;
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
  if (path == "/tokenize") return text_route([&] { tokenize(request, responder); });
  if (path == "/detokenize") return text_route([&] { detokenize(request, responder); });
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
    check_model(name);
    return {.body = json_text(model(name)) + "\n"};
  }
  Json list{{"object", "list"}, {"data", Json::array()}};
  list["data"].push_back(model(options_.model_names.front()));
  return {.body = json_text(list) + "\n"};
}

void Service::tokenize(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  require_ready();
  threads_.worker([this, body = request.body, responder, alive = std::weak_ptr(alive_)] {
    HttpResponse response;
    try {
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
        fields.read("add_special_tokens", [&](const JsonField& field) {
          specials = field.boolean() ? SpecialTokens::add : SpecialTokens::omit;
        });
        fields.read("return_token_strs", [&](const JsonField& field) { with_texts = field.boolean(); });
        fields.ignore({"model"});
        fields.check_all_known();
        tokens = encoder_.encode_text(prompt, specials);
      }
      Json answer{{"count", tokens.size()}, {"max_model_len", loop_->engine().max_length()}, {"tokens", tokens}};
      if (with_texts)
        for (const std::int32_t id : tokens) answer["token_strs"].push_back(completion_token(id, encoder_.tokenizer()));
      response.body = json_text(answer) + "\n";
    } catch (const std::exception& error) {
      response = error_response(as_api_error(error));
    }
    threads_.server([responder, response, alive] {
      if (alive.lock()) responder->respond(response);
    });
  });
}

void Service::detokenize(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  require_ready();
  const RequestDefaults defaults = request_defaults();
  const nlohmann::json root = parse_json(request.body, "the body", defaults.limits.max_json_depth);
  RequestFields fields(root);
  std::vector<std::int32_t> tokens;
  if (!root.contains("tokens")) throw ApiError(400, "tokens: is missing", "tokens");
  fields.read("tokens", [&](const JsonField& field) {
    const std::int64_t last = encoder_.tokenizer().vocab_size() - 1;
    for (const JsonField& id : field.elements()) tokens.push_back(static_cast<std::int32_t>(id.integer(0, last)));
  });
  fields.ignore({"model"});
  fields.check_all_known();
  responder->respond({.body = json_text({{"prompt", encoder_.tokenizer().decode(tokens)}}) + "\n"});
}

}  // namespace heddle::server
