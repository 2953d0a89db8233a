#include "server/service.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "engine/sampler.h"
#include "server/api_error.h"
#include "server/page.h"
#include "server/request_fields.h"

namespace heddle::server {
namespace {

constexpr std::int64_t kDefaultCompletionTokens = 16;  // OpenAI's
constexpr int kMostLiveStreams = 16;
constexpr std::chrono::milliseconds kLivePeriod{250};
constexpr std::string_view kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'";

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A host without its port.
std::string_view host_name(std::string_view host) {
  if (host.starts_with('[')) return host.substr(0, host.find(']') + 1);
  return host.substr(0, host.find(':'));
}

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

// A request for text while a worker parses it.
struct Service::Pending {
  HttpRequest http;
  std::shared_ptr<Responder> responder;
  bool chat = false;
  std::uint64_t owner = 0;
  Clock::time_point arrival;
  GenerationRequest request;
  EncodedPrompts prompts;
  std::vector<LoopRequest> engine_requests;
  std::optional<ApiError> error;
  bool gone = false;  // the client; of the server's thread
};

Service::Service(ServiceOptions options, Tokenizer tokenizer, std::optional<ModelChatTemplate> chat_template,
                 GenerationDefaults defaults, std::function<std::unique_ptr<Engine>()> make_engine, Threads threads)
    : options_(std::move(options)),
      encoder_(tokenizer, std::move(chat_template)),
      defaults_(std::move(defaults)),
      threads_(std::move(threads)),
      created_(unix_seconds()) {
  require(!options_.model_names.empty(), "a service without a model's name");
  try {
    constraints_ = std::make_unique<GrammarConstraints>(tokenizer);
  } catch (const InputError&) {  // requests with a form are refused
  }
  const auto on_server = [this, alive = std::weak_ptr(alive_)](auto action) {
    threads_.server([alive, action = std::move(action)]() mutable {
      if (alive.lock()) action();
    });
  };
  loop_ = std::make_unique<EngineLoop>(
      std::move(make_engine), EngineLoop::Callbacks{.deliver =
                                                        [this, on_server](LoopOutputs outputs) {
                                                          auto shared =
                                                              std::make_shared<LoopOutputs>(std::move(outputs));
                                                          on_server([this, shared] { deliver(std::move(*shared)); });
                                                        },
                                                    .state_changed =
                                                        [this, on_server] {
                                                          on_server([this] {
                                                            if (state_changed_) state_changed_(loop_->state());
                                                          });
                                                        }});
}

Service::~Service() {
  alive_.reset();
  loop_->stop();
}

void Service::handle(HttpRequest request, std::shared_ptr<Responder> responder) {
  try {
    route(request, responder);
  } catch (const std::exception& error) {
    responder->respond(error_response(as_api_error(error)));
  }
}

void Service::check_origin(const HttpRequest& request) const {
  if (options_.only_local_hosts && !request.host.empty()) {
    const std::string_view host = host_name(request.host);
    if (host != "localhost" && host != "[::1]" && !host.starts_with("127."))
      throw ApiError(403, "the Host is not local: start the server with --host to serve others");
  }
  if (request.origin.empty()) return;
  const std::size_t scheme = request.origin.find("://");
  if (scheme == std::string::npos || request.origin.substr(scheme + 3) != request.host)
    throw ApiError(403, "requests of pages of other origins are refused");
}

std::uint64_t Service::authorize(const HttpRequest& request) const {
  if (options_.api_keys.empty()) return 0;
  const auto owner = options_.api_keys.owner_of(request.authorization);
  if (!owner) throw ApiError(401, "a valid API key is required: Authorization: Bearer KEY", {}, "invalid_api_key");
  return *owner;
}

void Service::authorize_admin(const HttpRequest& request) const {
  if (options_.admin_keys.empty())
    authorize(request);
  else if (!options_.admin_keys.owner_of(request.authorization))
    throw ApiError(401, "a valid admin key is required: Authorization: Bearer KEY", {}, "invalid_api_key");
}

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
  check_origin(request);
  for (const PageFile& file : page_files())
    if (file.path == path) {
      require_method("GET");
      return responder->respond(page_response(file));
    }
  if (path == "/metrics" || path == "/live" || path == "/live?stream=1") {
    authorize_admin(request);
    require_method("GET");
    if (path == "/metrics")
      return responder->respond({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                                 .body = prometheus_text(metrics_, loop_->snapshot(), options_.model_names.front())});
    if (path == "/live") return responder->respond({.body = live() + "\n"});
    return stream_live(responder);
  }
  authorize(request);
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

void Service::check_model(const std::string& name) const {
  constexpr std::size_t kShown = 100;
  if (name.empty() || std::ranges::find(options_.model_names, name) != options_.model_names.end()) return;
  throw ApiError(404,
                 fmt::format("the model \"{}\" does not exist; this server has {}, and no adapters",
                             printable(name, kShown), options_.model_names.front()),
                 "model", "model_not_found");
}

void Service::require_ready() const {
  const LoopState state = loop_->state();
  if (state == LoopState::running && !draining_) return;
  if (state == LoopState::failed) throw ApiError(500, "the engine has failed: " + loop_->snapshot().failure);
  ApiError error(503, draining_ ? "the server is about to stop" : "the model is being loaded");
  error.retry_after = draining_ ? 10 : 1;
  throw error;
}

RequestDefaults Service::request_defaults() const {
  return {.sampling = defaults_.sampling,
          .vocab_size = loop_->engine().model_shape().vocab_size,
          .limits = options_.limits};
}

// Seconds until the queue has room, by how long answers took.
int Service::retry_after() const {
  const double excess = std::max(0, num_outstanding_ - options_.max_sequences) + 1;
  return static_cast<int>(std::clamp(std::ceil(answer_seconds_ * excess / options_.max_sequences), 1.0, 60.0));
}

void Service::generate(bool chat, const HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  require_ready();
  if (num_outstanding_ >= options_.max_sequences + options_.max_queue) {
    ++metrics_.num_rejected;
    ApiError error(429, fmt::format("{} answers run or wait, which is the limit: try again later", num_outstanding_));
    error.retry_after = retry_after();
    throw error;
  }
  auto pending = std::make_shared<Pending>(Pending{
      .http = request, .responder = responder, .chat = chat, .owner = authorize(request), .arrival = Clock::now()});
  ++num_outstanding_;
  ++num_parsing_;
  responder->on_disconnect([pending] { pending->gone = true; });
  threads_.worker([this, pending, alive = std::weak_ptr(alive_)] {
    try {
      const RequestDefaults defaults = request_defaults();
      pending->request = pending->chat ? parse_chat_request(pending->http.body, defaults)
                                       : parse_completion_request(pending->http.body, defaults);
      check_model(pending->request.model);
      pending->prompts = encoder_.encode(pending->request, defaults.limits);
      pending->engine_requests = engine_requests(pending->request, pending->prompts, pending->owner);
      for (const LoopRequest& each : pending->engine_requests) loop_->engine().check(each.request);
    } catch (const std::exception& error) {
      pending->error = as_api_error(error);
    }
    pending->http.body = {};
    threads_.server([this, pending, alive] {
      if (alive.lock()) admit(*pending);
    });
  });
}

std::vector<LoopRequest> Service::engine_requests(const GenerationRequest& request, const EncodedPrompts& prompts,
                                                  std::uint64_t owner) const {
  const Engine& engine = loop_->engine();
  std::vector<std::int32_t> stop_ids = request.stop_ids;
  const auto& own = defaults_.eos_ids.empty() ? engine.model_shape().eos_ids : defaults_.eos_ids;
  if (request.grammar && !constraints_)
    throw ApiError(501, "answers of a given form are not implemented for this model's tokenizer", {},
                   "not_implemented");
  if (!request.ignore_eos) {
    stop_ids.insert(stop_ids.end(), own.begin(), own.end());
  }
  const std::uint64_t seed = request.seed.value_or(std::random_device()());
  const bool scored = request.num_prompt_logprobs || (request.echo && request.num_top_logprobs);
  std::vector<LoopRequest> list;
  for (std::size_t prompt = 0; prompt < prompts.tokens.size(); ++prompt) {
    const auto& tokens = prompts.tokens[prompt];
    const std::int64_t room = std::max<std::int64_t>(1, engine.max_length() - std::ssize(tokens));
    Request base{.prompt = tokens,
                 .sampling = request.sampling,
                 .max_tokens = request.max_tokens.value_or(request.chat ? room : kDefaultCompletionTokens),
                 .stop_ids = stop_ids,
                 .num_top_logprobs = request.num_top_logprobs,
                 .logit_bias = request.logit_bias,
                 .min_tokens = request.min_tokens,
                 .owner = owner};
    if (request.num_samples > request.num_answers && !base.num_top_logprobs) base.num_top_logprobs = 0;
    for (int sample = 0; sample < request.num_samples; ++sample) {
      LoopRequest entry{.request = base};
      entry.request.sampling.seed = seed_of(seed, {.prompt = prompt, .sample = static_cast<std::uint32_t>(sample)});
      if (sample == 0 && scored && tokens.size() > 1)
        entry.request.prompt_logprobs =
            PromptLogprobs{.num_top = request.num_prompt_logprobs.value_or(request.num_top_logprobs.value_or(0))};
      if (request.grammar) entry.request.constraint = constraints_->make(*request.grammar, "the form", own);
      if (sample > 0) entry.same_prompt_as = list.size() - static_cast<std::size_t>(sample);  // an index, for now
      list.push_back(std::move(entry));
    }
  }
  return list;
}

void Service::admit(Pending& pending) {
  --num_outstanding_;
  --num_parsing_;
  if (pending.gone) return check_drained();
  try {
    if (pending.error) throw ApiError(*pending.error);
    require_ready();
    const auto num_answers = static_cast<int>(pending.engine_requests.size());
    const int capacity = options_.max_sequences + options_.max_queue;
    if (num_answers > capacity)
      throw ApiError(400, fmt::format("{} answers in one request; the server takes {}", num_answers, capacity), "n");
    if (num_outstanding_ + num_answers > capacity) {
      ++metrics_.num_rejected;
      ApiError error(
          429, fmt::format("{} answers run or wait: there is no room for {} more", num_outstanding_, num_answers));
      error.retry_after = retry_after();
      throw error;
    }
  } catch (const std::exception& error) {
    pending.responder->respond(error_response(as_api_error(error)));
    return check_drained();
  }
  const Ticket first = next_ticket_;
  for (LoopRequest& request : pending.engine_requests) {
    request.ticket = next_ticket_++;
    if (request.same_prompt_as) *request.same_prompt_as += first;
  }
  const bool needs_engine = pending.request.max_tokens != 0 || pending.engine_requests.front().request.prompt_logprobs;
  const auto generation =
      std::make_shared<Generation>(GenerationContext{encoder_.tokenizer(), metrics_, options_.tools, options_.reasons},
                                   GenerationInput{.request = std::move(pending.request),
                                                   .prompts = std::move(pending.prompts),
                                                   .id = pending.http.request_id,
                                                   .model = options_.model_names.front(),
                                                   .created = unix_seconds(),
                                                   .arrival = pending.arrival},
                                   first, pending.responder);
  for (int i = 0; i < generation->num_answers(); ++i) generations_.emplace(first + static_cast<Ticket>(i), generation);
  num_outstanding_ += generation->num_answers();
  pending.responder->on_disconnect([this, weak = std::weak_ptr(generation), alive = std::weak_ptr(alive_)] {
    const auto dropped = weak.lock();
    if (alive.lock() && dropped) drop(dropped, true);
  });
  generation->start();
  if (generation->done() || !needs_engine)
    drop(generation, false);
  else
    loop_->submit(std::move(pending.engine_requests));
}

void Service::deliver(LoopOutputs outputs) {
  std::vector<Ticket> cancelled;
  for (const LoopOutput& output : outputs.list) {
    const auto found = generations_.find(output.ticket);
    if (found == generations_.end()) continue;
    const std::shared_ptr<Generation> generation = found->second;
    if (generation->take(output.ticket, output, outputs.time)) cancelled.push_back(output.ticket);
    if (generation->done()) drop(generation, !output.failure.empty());
  }
  if (!cancelled.empty()) loop_->cancel(std::move(cancelled));
}

// Forgets a generation, and cancels what the engine still computes of it.
void Service::drop(const std::shared_ptr<Generation>& generation, bool cancel) {
  std::vector<Ticket> tickets;
  for (int i = 0; i < generation->num_answers(); ++i) {
    const Ticket ticket = generation->first_ticket() + static_cast<Ticket>(i);
    if (generations_.erase(ticket) > 0) tickets.push_back(ticket);
  }
  if (tickets.empty()) return;
  num_outstanding_ -= generation->num_answers();
  if (cancel) {
    if (!generation->done()) metrics_.num_cancelled += generation->num_answers();
    loop_->cancel(std::move(tickets));
  }
  constexpr double kWeight = 0.1;
  answer_seconds_ += kWeight * (generation->seconds_since_arrival() - answer_seconds_);
  if (options_.log) options_.log(generation->summary());
  check_drained();
}

void Service::drain(std::function<void()> drained) {
  draining_ = true;
  drained_ = std::move(drained);
  check_drained();
}

void Service::check_drained() {
  if (draining_ && drained_ && generations_.empty() && num_parsing_ == 0) std::exchange(drained_, {})();
}

void Service::abort(const std::string& reason) {
  draining_ = true;
  while (!generations_.empty()) {
    const std::shared_ptr<Generation> generation = generations_.begin()->second;
    generation->fail(ApiError(503, reason));
    drop(generation, true);
  }
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

std::string Service::live() {
  const LoopSnapshot snapshot = loop_->snapshot();
  LiveInput input{.metrics = metrics_,
                  .snapshot = snapshot,
                  .rates = rates_.update(snapshot, Clock::now()),
                  .model = options_.model_names.front(),
                  .uptime_seconds = std::chrono::duration<double>(Clock::now() - start_).count(),
                  .memory_gbps = options_.memory_gbps,
                  .max_sequences = options_.max_sequences,
                  .max_queue = options_.max_queue,
                  .num_outstanding = num_outstanding_};
  for (const RunningRequest& request : snapshot.requests)
    if (const auto found = generations_.find(request.ticket); found != generations_.end())
      input.request_ids.emplace(request.ticket, found->second->id());
  return live_json(input);
}

void Service::stream_live(const std::shared_ptr<Responder>& responder) {
  if (num_live_ == kMostLiveStreams) {
    ApiError error(429, fmt::format("{} clients watch /live already", kMostLiveStreams));
    error.retry_after = 10;
    throw error;
  }
  ++num_live_;
  const auto open = std::make_shared<bool>(true);
  responder->on_disconnect([this, open, alive = std::weak_ptr(alive_)] {
    if (alive.lock() && std::exchange(*open, false)) --num_live_;
  });
  responder->begin({.content_type = "text/event-stream; charset=utf-8"});
  const auto tick = std::make_shared<std::function<void()>>();
  *tick = [this, open, responder, weak = std::weak_ptr(tick), alive = std::weak_ptr(alive_)] {
    if (!alive.lock() || !*open) return;
    responder->write(sse_event(live()));
    const auto next = weak.lock();
    if (draining_) {
      *open = false;
      --num_live_;
      responder->end();
    } else if (next) {
      threads_.later(kLivePeriod, [next] { (*next)(); });
    }
  };
  (*tick)();
}

}  // namespace heddle::server
