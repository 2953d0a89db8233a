#include "server/serve.h"

#include <fmt/format.h>

#include <utility>

namespace heddle::server {

Server::Server(ServeOptions options, ServedModel model)
    : options_(std::move(options)),
      http_(options_.http),
      service_(options_.service, std::move(model.tokenizer), std::move(model.chat_template), std::move(model.defaults),
               std::move(model.make_engine),
               {.server = [this](std::function<void()> action) { http_.post(std::move(action)); },
                .worker = [this](std::function<void()> action) { http_.post_work(std::move(action)); },
                .later = [this](std::chrono::milliseconds delay,
                                std::function<void()> action) { http_.post_after(delay, std::move(action)); },
                .num_workers = options_.http.num_workers}) {
  http_.set_handler([this](HttpRequest request, std::shared_ptr<Responder> responder) {
    service_.handle(std::move(request), std::move(responder));
  });
  http_.set_head_check([this](const HttpRequest& head) { return service_.refuse_early(head); });
  service_.on_state([this](LoopState state) {
    const auto note = [&](const std::string& line) {
      if (options_.note) options_.note(line);
    };
    if (state == LoopState::running) note(fmt::format("ready at {}", http_.address()));
    if (state != LoopState::failed) return;
    if (service_.loop().loading_error())
      http_.stop();
    else
      note("the engine has failed, and every request from now on: " + service_.loop().snapshot().failure);
  });
}

Server::~Server() {
  http_.join_workers();
}

int Server::run() {
  if (options_.handles_signals)
    http_.run([this](int signal) { on_stop(signal); });
  else
    http_.run();
  if (const auto error = service_.loop().loading_error()) std::rethrow_exception(error);
  return signal_;
}

void Server::request_stop() {
  http_.post([this] { on_stop(0); });
}

void Server::on_stop(int signal) {
  if (++num_stops_ > 1) {
    signal_ = signal;
    service_.abort("the server stops now");
    return finish();
  }
  http_.close_after_answers();
  if (options_.note && service_.num_outstanding() > 0)
    options_.note(fmt::format("stopping when {} answers have ended, in {} s at the latest; once more to stop now",
                              service_.num_outstanding(), options_.drain_limit.count()));
  http_.post_after(options_.drain_limit, [this] {
    service_.abort("the server stops: its time to finish is over");
    finish();
  });
  service_.drain([this] {
    http_.stop_accepting();
    http_.when_answered([this] { http_.stop(); });
  });
}

// Ends soon, whoever still reads an answer.
void Server::finish() {
  constexpr std::chrono::milliseconds kLastWrites{200};
  http_.stop_accepting();
  http_.post_after(kLastWrites, [this] { http_.stop(); });
}

}  // namespace heddle::server
