// heddle serve: the server from start to end.
#pragma once

#include <functional>
#include <string>

#include "server/http_server.h"
#include "server/service.h"

namespace heddle::server {

struct ServeOptions {
  HttpOptions http;
  ServiceOptions service;
  std::chrono::seconds drain_limit{30};  // after the first SIGTERM
  // Lines for the operator: the address, what stops it. May be empty.
  std::function<void(const std::string&)> note;
  bool handles_signals = true;
};

struct ServedModel {
  Tokenizer tokenizer;
  std::optional<ModelChatTemplate> chat_template;
  GenerationDefaults defaults;
  std::function<std::unique_ptr<Engine>()> make_engine;
};

// A server that a test can run beside itself.
class Server {
 public:
  // Listens, and loads the model on the engine's thread. Throws as HttpServer does.
  Server(ServeOptions options, ServedModel model);
  ~Server();

  const HttpServer& http() const { return http_; }
  Service& service() { return service_; }

  // Serves until a signal or request_stop(), then drains: no new requests, those under way finish; after drain_limit
  // they end with an error. A second signal ends them at once, and is returned; otherwise 0. Throws what loading has thrown.
  int run();

  // As a signal does. Thread-safe.
  void request_stop();

 private:
  void on_stop(int signal);
  void finish();

  ServeOptions options_;
  HttpServer http_;
  Service service_;
  int signal_ = 0;  // that has ended answers
  int num_stops_ = 0;
};

}  // namespace heddle::server
