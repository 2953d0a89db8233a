#include "server/service.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/printable.h"
#include "server/access.h"
#include "server/api_error.h"
#include "server/engine_requests.h"

namespace heddle::server {
namespace {

constexpr std::chrono::milliseconds kTimePeriod{1000};  // at which late requests are looked for

std::int64_t unix_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
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
      work_(threads_.worker, threads_.num_workers),
      created_(unix_seconds()),
      places_(options_.max_sequences, options_.max_queue, options_.access.api_keys.size()) {
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
      std::move(make_engine),
      EngineLoop::Callbacks{.deliver =
                                [this, on_server](LoopOutputs outputs) {
                                  auto shared = std::make_shared<LoopOutputs>(std::move(outputs));
                                  on_server([this, shared] { deliver(std::move(*shared)); });
                                },
                            .state_changed = [this, on_server] { on_server([this] { take_state(loop_->state()); }); }});
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

void Service::check_model(const std::string& name) const {
  constexpr std::size_t kShown = 100;
  for (const auto* names : {&options_.model_names, &options_.other_names})
    if (name.empty() || std::ranges::find(*names, name) != names->end()) return;
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
          .tools = options_.tools,
          .limits = options_.limits};
}

// As Engine::check. A prompt beyond the context has OpenAI's code, by which clients know to shorten it.
void Service::check_prompt(const Request& request, bool chat) const {
  try {
    loop_->engine().check(request);
  } catch (const InputError& error) {
    const bool too_long = std::ssize(request.prompt) >= loop_->engine().max_length();
    if (!too_long) throw;
    throw ApiError(400, error.what(), chat ? "messages" : "prompt", "context_length_exceeded");
  }
}

// Seconds until the queue has room, by how long answers took.
int Service::retry_after() const {
  const double excess = std::max(0, num_outstanding() - options_.max_sequences) + 1;
  return static_cast<int>(std::clamp(std::ceil(answer_seconds_ * excess / options_.max_sequences), 1.0, 60.0));
}

// Throws ApiError 429 unless there are so many places for the owner.
void Service::take_places(std::uint64_t owner, int count) {
  if (places_.take(owner, count)) return;
  ++metrics_.num_rejected;
  ApiError error(429, fmt::format("{} answers run or wait: there is no room for {} more of yours, try again later",
                                  num_outstanding(), count));
  error.retry_after = retry_after();
  throw error;
}

void Service::generate(bool chat, HttpRequest& request, const std::shared_ptr<Responder>& responder) {
  require_ready();
  const std::uint64_t owner = authorize(request, options_.access);
  take_places(owner, 1);
  auto pending = std::make_shared<Pending>(Pending{
      .http = std::move(request), .responder = responder, .chat = chat, .owner = owner, .arrival = Clock::now()});
  ++num_parsing_;
  responder->on_disconnect([pending] { pending->gone = true; });
  work_.add(owner, FairWork::Kind::quick, [this, pending] { parse(pending); });
}

// On a worker. A form is compiled later, because that may take seconds.
void Service::parse(const std::shared_ptr<Pending>& pending) {
  try {
    const RequestDefaults defaults = request_defaults();
    pending->request = pending->chat ? parse_chat_request(pending->http.body, defaults)
                                     : parse_completion_request(pending->http.body, defaults);
    pending->http.body = {};
    pending->http.body_bytes.reset();
    check_model(pending->request.model);
    pending->prompts = encoder_.encode(pending->request, defaults.limits);
  } catch (const std::exception& error) {
    pending->error = as_api_error(error);
    return admit_soon(pending);
  }
  if (!pending->request.grammar) return make_requests(pending);
  work_.add(pending->owner, FairWork::Kind::slow, [this, pending] { make_requests(pending); });
}

// On a worker.
void Service::make_requests(const std::shared_ptr<Pending>& pending) {
  try {
    pending->engine_requests = engine_requests(pending->request, pending->prompts, pending->owner,
                                               {.engine = loop_->engine(),
                                                .defaults = defaults_,
                                                .constraints = constraints_.get(),
                                                .reasons = options_.reasons});
    for (const LoopRequest& each : pending->engine_requests) check_prompt(each.request, pending->chat);
  } catch (const std::exception& error) {
    pending->error = as_api_error(error);
  }
  admit_soon(pending);
}

void Service::admit_soon(const std::shared_ptr<Pending>& pending) {
  threads_.server([this, pending, alive = std::weak_ptr(alive_)] {
    if (alive.lock()) admit(*pending);
  });
}

void Service::admit(Pending& pending) {
  places_.give_back(pending.owner, 1);
  --num_parsing_;
  if (pending.gone) return check_drained();
  try {
    if (pending.error) throw ApiError(*pending.error);
    require_ready();
    const auto num_answers = static_cast<int>(pending.engine_requests.size());
    const int most = places_.most_of_one();
    if (num_answers > most)
      throw ApiError(400, fmt::format("{} answers in one request; the server takes {}", num_answers, most), "n");
    take_places(pending.owner, num_answers);
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
      std::make_shared<Generation>(GenerationContext{encoder_.tokenizer(), metrics_, options_.reasons},
                                   GenerationInput{.request = std::move(pending.request),
                                                   .prompts = std::move(pending.prompts),
                                                   .id = pending.http.request_id,
                                                   .model = options_.model_names.front(),
                                                   .created = unix_seconds(),
                                                   .owner = pending.owner,
                                                   .arrival = pending.arrival},
                                   first, pending.responder);
  for (int i = 0; i < generation->num_answers(); ++i) generations_.emplace(first + static_cast<Ticket>(i), generation);
  pending.responder->on_disconnect([this, weak = std::weak_ptr(generation), alive = std::weak_ptr(alive_)] {
    const auto dropped = weak.lock();
    if (alive.lock() && dropped) drop(dropped, true);
  });
  generation->start();
  watch_time();
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
  places_.give_back(generation->owner(), generation->num_answers());
  if (cancel) {
    if (!generation->done()) metrics_.num_cancelled += generation->num_answers();
    loop_->cancel(std::move(tickets));
  }
  constexpr double kWeight = 0.1;
  answer_seconds_ += kWeight * (generation->seconds_since_arrival() - answer_seconds_);
  if (options_.log) options_.log(generation->summary());
  check_drained();
}

// Looks at the time of requests and of the engine's step, as long as there are requests.
void Service::watch_time() {
  std::chrono::milliseconds period = kTimePeriod;
  for (const auto limit : {options_.request_limit, options_.step_limit})
    if (limit.count() > 0) period = std::min(period, limit);
  if (options_.request_limit.count() == 0 && options_.step_limit.count() == 0) return;
  if (generations_.empty() || std::exchange(watches_time_, true)) return;
  threads_.later(period, [this, alive = std::weak_ptr(alive_)] {
    if (!alive.lock()) return;
    watches_time_ = false;
    if (options_.request_limit.count() > 0) end_late();
    if (options_.step_limit.count() > 0) check_step();
    watch_time();
  });
}

// Ends requests that take longer than they may.
void Service::end_late() {
  const double limit = std::chrono::duration<double>(options_.request_limit).count();
  std::vector<std::shared_ptr<Generation>> late;
  for (const auto& [ticket, generation] : generations_)
    if (ticket == generation->first_ticket() && generation->seconds_since_arrival() > limit) late.push_back(generation);
  for (const auto& generation : late) {
    generation->fail(ApiError(504, fmt::format("the request took more than {} s (--request-seconds)", limit)));
    drop(generation, true);
  }
}

// A step that does not return: the engine has failed, and its requests with it.
void Service::check_step() {
  if (loop_->step_time() < options_.step_limit || loop_->state() != LoopState::running) return;
  const std::string reason = fmt::format("a step has not returned for {} s (--step-seconds)",
                                         std::chrono::duration<double>(options_.step_limit).count());
  loop_->give_up(reason);
}

// A loop that has failed may have lost what it had to say about some requests.
void Service::take_state(LoopState state) {
  if (state == LoopState::failed) fail_all(ApiError(500, "the engine has failed: " + loop_->snapshot().failure));
  if (state_changed_) state_changed_(state);
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
  fail_all(ApiError(503, reason));
}

void Service::fail_all(const ApiError& error) {
  while (!generations_.empty()) {
    const std::shared_ptr<Generation> generation = generations_.begin()->second;
    generation->fail(error);
    drop(generation, true);
  }
}

}  // namespace heddle::server
