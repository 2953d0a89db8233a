// The server without sockets: routes, keys, admission, and the requests under way. All of it runs on one thread, the
// server's, but for parsing and encoding, which run on workers.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/generation_defaults.h"
#include "engine/grammar_constraint.h"
#include "server/access.h"
#include "server/api_error.h"
#include "server/engine_loop.h"
#include "server/fair_work.h"
#include "server/generation.h"
#include "server/http_message.h"
#include "server/metrics.h"
#include "server/places.h"
#include "server/prompt_encoder.h"

namespace heddle::server {

// Where a service runs its work. Thread-safe.
struct Threads {
  std::function<void(std::function<void()>)> server;                            // on the server's thread, soon
  std::function<void(std::function<void()>)> worker;                            // on some worker
  std::function<void(std::chrono::milliseconds, std::function<void()>)> later;  // on the server's thread
  int num_workers = 1;
};

struct ServiceOptions {
  std::vector<std::string> model_names;  // that requests may use; the first is the one in answers. At least one
  std::vector<std::string> other_names;  // that they may use, too, and no list has
  int max_sequences = 64;                // of the engine
  int max_queue = 256;                   // answers that wait beyond those; more are answered by 429
  RequestLimits limits;
  std::chrono::milliseconds request_limit{0};  // from a request to the end of its answers; 0: none
  std::chrono::milliseconds step_limit{0};     // a step of the engine that runs longer counts as lost; 0: none
  AccessRules access;
  ToolFormat tools = ToolFormat::none;  // that the model has learnt
  bool reasons = false;
  double memory_gbps = 0;                       // of the device; 0: unknown
  std::function<void(const std::string&)> log;  // a line for each answered request, without texts; may be empty
};

class Service {
 public:
  Service(ServiceOptions options, Tokenizer tokenizer, std::optional<ModelChatTemplate> chat_template,
          GenerationDefaults defaults, std::function<std::unique_ptr<Engine>()> make_engine, Threads threads);
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  // The threads must run nothing of the service's any more.
  ~Service();

  // Answers one request, now or later. On the server's thread.
  void handle(HttpRequest request, std::shared_ptr<Responder> responder);

  // The answer to a request whose head shows already that it may not be made, before its body is read.
  std::optional<HttpResponse> refuse_early(const HttpRequest& head) const;

  // From now on new requests for text are answered by 503. `drained` is called on the server's thread once no request is
  // under way.
  void drain(std::function<void()> drained);

  // Ends the requests under way with an error.
  void abort(const std::string& reason);

  // Called on the server's thread when the engine begins to run, and when it has failed.
  void on_state(std::function<void(LoopState)> changed) { state_changed_ = std::move(changed); }

  EngineLoop& loop() { return *loop_; }
  const Metrics& metrics() const { return metrics_; }
  int num_outstanding() const { return places_.taken(); }

 private:
  struct Pending;

  void check_access(const HttpRequest& request) const;
  void route(HttpRequest& request, const std::shared_ptr<Responder>& responder);
  RequestDefaults request_defaults() const;
  void require_ready() const;
  void check_model(const std::string& name) const;
  void check_prompt(const Request& request, bool chat) const;
  int retry_after() const;

  void take_places(std::uint64_t owner, int count);
  void generate(bool chat, HttpRequest& request, const std::shared_ptr<Responder>& responder);
  void parse(const std::shared_ptr<Pending>& pending);
  void make_requests(const std::shared_ptr<Pending>& pending);
  void admit_soon(const std::shared_ptr<Pending>& pending);
  void admit(Pending& pending);
  void deliver(LoopOutputs outputs);
  void drop(const std::shared_ptr<Generation>& generation, bool cancel);
  void watch_time();
  void end_late();
  void check_step();
  void take_state(LoopState state);
  void check_drained();
  void fail_all(const ApiError& error);

  HttpResponse models(const std::string& path) const;
  void convert(std::string (Service::*conversion)(const std::string& body) const, HttpRequest& request,
               const std::shared_ptr<Responder>& responder);
  std::string tokenized(const std::string& body) const;    // on a worker
  std::string detokenized(const std::string& body) const;  // on a worker
  std::string live();
  void stream_live(const std::shared_ptr<Responder>& responder);
  HttpResponse health() const;
  HttpResponse ready() const;

  ServiceOptions options_;
  PromptEncoder encoder_;
  std::unique_ptr<GrammarConstraints> constraints_;  // null: the tokenizer's tokens have no bytes of their own
  GenerationDefaults defaults_;
  Threads threads_;
  FairWork work_;
  Clock::time_point start_ = Clock::now();
  std::int64_t created_;
  Metrics metrics_;
  RecentRates rates_;
  std::unordered_map<Ticket, std::shared_ptr<Generation>> generations_;  // by each of its tickets
  Ticket next_ticket_ = 1;
  Places places_;        // of answers accepted, and of requests on workers
  int num_parsing_ = 0;  // requests on workers
  int num_live_ = 0;
  double answer_seconds_ = 1;  // a running mean
  bool draining_ = false;
  bool watches_time_ = false;
  std::function<void()> drained_;
  std::function<void(LoopState)> state_changed_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // for what the threads run later
  std::unique_ptr<EngineLoop> loop_;                            // last: it delivers to the others
};

}  // namespace heddle::server
