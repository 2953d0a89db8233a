// Which route a request takes, and the answers that need no engine.
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

ApiError not_implemented(const std::string& path) {
  return {501, fmt::format("{} is not implemented", path), {}, "not_implemented"};
}

}  // namespace

void Service::route(const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  const std::string& path = request.path;
  const auto require_method = [&](std::string_view method) {
    if (request.method != method && !(method == "GET" && request.method == "HEAD"))
      throw ApiError(405, fmt::format("{}: use {}", path, method));
  };
  const auto text_route = [&](auto serve) {
    require_method("POST");
    serve();
  };
  if (path == "/health" || path == "/ready" || path == "/ping") {
    require_method("GET");
    return responder->respond(path == "/ready" ? ready() : health());
  }
  check_origin(request, options_.access);
  for (const PageFile& file : page_files())
    if (file.path == path) {
      require_method("GET");
      return responder->respond(page_response(file));
    }
  if (path == "/metrics" || path == "/live" || path == "/live?stream=1") {
    authorize_admin(request, options_.access);
    require_method("GET");
    if (path == "/metrics")
      return responder->respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                                 .body = prometheus_text(metrics_, loop_->snapshot(), options_.model_names.front())});
    if (path == "/live") return responder->respond({.body = live() + "\n"});
    return stream_live(responder);
  }
  authorize(request, options_.access);
  if (path == "/v1/completions") return text_route([&] { generate(false, request, responder); });
  if (path == "/v1/chat/completions") return text_route([&] { generate(true, request, responder); });
  if (path == "/tokenize") return text_route([&] { tokenize(request, responder); });
  if (path == "/detokenize") return text_route([&] { detokenize(request, responder); });
  if (path == "/v1/models" || path.starts_with("/v1/models/")) {
    require_method("GET");
    return responder->respond(models(path));
  }
  if (path == "/version") return responder->respond({.body = "{\"version\":\"" HEDDLE_VERSION "\"}\n"});
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
    const std::string name = path.substr(kPrefix.size());
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
        fields.ignore({"model"});
        fields.check_all_known();
        tokens = encoder_.encode_text(prompt, specials);
      }
      response.body =
          json_text({{"count", tokens.size()}, {"max_model_len", loop_->engine().max_length()}, {"tokens", tokens}}) +
          "\n";
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
