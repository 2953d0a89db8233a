// HTTP/1.1 over TCP or TLS (Boost.Beast): sockets, limits and time-outs. What a request means is the handler's affair.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server/http_message.h"

namespace heddle::server {

struct TlsFiles {
  std::string certificate;  // PEM, a chain
  std::string key;          // PEM
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  std::uint16_t port = 0;  // 0: any that is free
  std::optional<TlsFiles> tls;
  // Beyond these, the connection that has waited longest for a request gives way; where none waits, a few more are taken,
  // for requests about health.
  int max_connections = 4096;
  std::size_t max_header_bytes = std::size_t{16} << 10;
  std::size_t max_body_bytes = std::size_t{16} << 20;
  // Bodies that are held at once: those that are read, and those that the handler has not released
  // (HttpRequest::body_bytes). Small ones, of 64 KiB at most, do not count. More are answered by 503.
  std::size_t max_held_bytes = std::size_t{256} << 20;
  // A piece of an answer that waits for a slow client, at most; then the client counts as gone.
  std::size_t max_unsent_bytes = std::size_t{64} << 20;
  std::chrono::milliseconds idle_limit{75'000};   // until the head of a request has come, on a new or kept connection
  std::chrono::milliseconds body_limit{30'000};   // until its body has come
  std::chrono::milliseconds write_limit{30'000};  // while the client takes nothing of the answer
  std::chrono::milliseconds linger_limit{5'000};  // while a client whose body is not wanted goes on sending it
  int num_workers = 2;
  std::function<void(const std::string&)> note;  // a line for the operator, once for each shortage; may be empty
};

class HttpServer {
 public:
  // Called on the server's thread, the one in run().
  using Handler = std::function<void(HttpRequest, std::shared_ptr<Responder>)>;

  // Listens. Throws InputError for a host that is no address of this machine, a port in use, and PEM files that are not
  // right; Failure when the system has no sockets left.
  explicit HttpServer(HttpOptions options);
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer();

  // Also called on the server's thread, for a request whose body has not come yet: an answer is sent instead of reading it.
  using HeadCheck = std::function<std::optional<HttpResponse>(const HttpRequest&)>;

  void set_handler(Handler handler);  // before run()
  void set_head_check(HeadCheck check);

  std::uint16_t port() const;
  std::string address() const;  // "http://127.0.0.1:8000"

  // Serves until stop(). `on_signal` is called for each SIGINT and SIGTERM; without it, signals are not touched.
  void run(std::function<void(int signal)> on_signal = {});

  // Thread-safe:
  void post(std::function<void()> action);                                         // on the server's thread
  void post_work(std::function<void()> action);                                    // on a worker
  void post_after(std::chrono::milliseconds delay, std::function<void()> action);  // on the server's thread
  void stop();                                                                     // run() returns soon

  // On the server's thread, the steps of an orderly end: connections close after their next answer; no new ones; `answered`
  // is called once every answer that was begun has been written.
  void close_after_answers();
  void stop_accepting();
  void when_answered(std::function<void()> answered);

  // Ends the workers after what they do now.
  void join_workers();

  int num_connections() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::server
