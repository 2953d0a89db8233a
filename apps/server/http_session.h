// One connection of the server, over any stream: HTTP/1.1 with its limits and time-outs (Boost.Beast). Included by the
// server's own source and by the fuzzer alone, since Beast's headers take long to compile.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>

#include "server/api_error.h"
#include "server/http_server.h"

namespace heddle::server {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using Socket = asio::ip::tcp::socket;
using TlsStream = asio::ssl::stream<Socket>;
using boost::system::error_code;

inline constexpr std::size_t kReadBytes = 4096;
inline constexpr std::size_t kWriteBytes = std::size_t{256} << 10;
inline constexpr std::size_t kLingerBytes = std::size_t{64} << 10;  // read at a time
inline constexpr std::size_t kSmallBody = std::size_t{64} << 10;    // does not count against max_held_bytes

// The bytes of bodies that are held. Thread-safe.
struct BodyBudget {
  explicit BodyBudget(std::size_t bytes) : most(bytes) {}
  std::size_t most;
  std::atomic<std::size_t> held = 0;
};

// The share of one body.
class HeldBytes {
 public:
  explicit HeldBytes(std::shared_ptr<BodyBudget> budget) : budget_(std::move(budget)) {}
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;
  ~HeldBytes() { budget_->held -= bytes_; }

  // False: the budget has no room for so many.
  bool grow_to(std::size_t bytes) {
    if (bytes <= std::max(bytes_, kSmallBody)) return true;
    const std::size_t more = bytes - bytes_;
    bytes_ = bytes;
    return (budget_->held += more) <= budget_->most;
  }

 private:
  std::shared_ptr<BodyBudget> budget_;
  std::size_t bytes_ = 0;
};

// What the connections of a server share. But for the atomics, of the thread that runs `context`.
struct SessionHost {
  explicit SessionHost(HttpOptions given)
      : options(std::move(given)), bodies(std::make_shared<BodyBudget>(options.max_held_bytes)) {}

  HttpOptions options;
  std::shared_ptr<BodyBudget> bodies;
  HttpServer::Handler handler;
  HttpServer::HeadCheck head_check;
  asio::io_context context{1};
  std::atomic<int> num_connections = 0;
  std::atomic<int> num_answering = 0;     // connections with a request whose answer is not written
  std::list<std::function<void()>> idle;  // closes a connection that waits for a request; longest first
  std::function<void()> answered;         // HttpServer::when_answered
  bool closing = false;                   // after the next answer

  void check_answered() {
    if (answered && num_answering == 0) asio::post(context, std::exchange(answered, {}));
  }
};

inline bool is_id_character(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
}

inline std::string new_request_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}{:08x}", random(), static_cast<std::uint32_t>(random()));
}

template <class Field>
std::string text_of(const Field& field) {
  return {field.data(), field.size()};
}

// One connection: reads a request, waits for its answer while it watches for the client to go, and so on.
// The stream is a Socket, a TlsStream over one, or what a test puts in a socket's place.
template <class Stream>
class Session : public Responder, public std::enable_shared_from_this<Session<Stream>> {
 public:
  Session(Stream stream, SessionHost& server, bool beyond_limit)
      : stream_(std::move(stream)), server_(server), deadline_(server.context), beyond_limit_(beyond_limit) {
    ++server_.num_connections;
  }
  ~Session() override {  // on any thread
    if (state_ != State::closed) --server_.num_connections;
    if (owes_answer_) --server_.num_answering;
  }

  void start() {
    wait_idly();
    error_code ignored;
    socket().set_option(asio::ip::tcp::no_delay(true), ignored);
    if constexpr (std::is_same_v<Stream, TlsStream>) {
      arm(server_.options.idle_limit);
      stream_.async_handshake(asio::ssl::stream_base::server, [self = this->shared_from_this()](error_code error) {
        if (error) return self->close();
        self->read_head();
      });
    } else {
      read_head();
    }
  }

  void respond(HttpResponse answer) override {
    if (state_ != State::answering || begun_) return;
    state_ = State::sending;
    response_.emplace(static_cast<http::status>(answer.status), version_);
    fill_head(*response_, answer);
    response_->body() = head_only_ ? std::string() : std::move(answer.body);
    response_->keep_alive(keeps_alive());
    if (head_only_)
      response_->content_length(answer.body.size());
    else
      response_->prepare_payload();
    whole_.emplace(*response_);
    write_whole();
  }

  void begin(const HttpResponse& head) override {
    if (state_ != State::answering || begun_) return;
    begun_ = true;
    chunked_ = version_ >= 11;
    head_.emplace(static_cast<http::status>(head.status), version_);
    fill_head(*head_, head);
    head_->set(http::field::cache_control, "no-store");
    head_->chunked(chunked_);
    head_->keep_alive(chunked_ && keeps_alive());
    serializer_.emplace(*head_);
    writing_ = true;
    arm(server_.options.write_limit);
    http::async_write_header(stream_, *serializer_, [self = this->shared_from_this()](error_code error, std::size_t) {
      self->written(error);
    });
  }

  void write(std::string piece) override {
    if (!begun_ || ended_ || state_ != State::answering) return;
    unsent_ += piece;
    if (unsent_.size() > server_.options.max_unsent_bytes) return lose();
    write_more();
  }

  void end() override {
    if (!begun_ || ended_ || state_ != State::answering) return;
    ended_ = true;
    write_more();
  }

  void on_disconnect(std::function<void()> gone) override { gone_ = std::move(gone); }

 private:
  enum class State : std::uint8_t {
    reading,
    answering,  // the handler has the request
    sending,    // the whole answer
    lingering,  // it is out, and what still comes does not count
    closed
  };

  auto& socket() {
    if constexpr (std::is_same_v<Stream, TlsStream>)
      return stream_.next_layer();
    else
      return stream_;
  }

  bool keeps_alive() const { return keep_alive_ && !server_.closing && !beyond_limit_; }

  // The connection waits for a request: it may be closed for others.
  void wait_idly() {
    stop_idling();
    idle_at_ = server_.idle.insert(server_.idle.end(), [this] { close(); });
  }

  void stop_idling() {
    if (idle_at_) server_.idle.erase(*std::exchange(idle_at_, {}));
  }

  void owe_answer() {
    if (!std::exchange(owes_answer_, true)) ++server_.num_answering;
  }

  void owe_nothing() {
    if (!std::exchange(owes_answer_, false)) return;
    --server_.num_answering;
    server_.check_answered();
  }

  // A client that takes something, however little, within the limit is not too slow.
  void write_whole() {
    arm(server_.options.write_limit);
    http::async_write_some(stream_, *whole_, [self = this->shared_from_this()](error_code error, std::size_t) {
      if (!error && !self->whole_->is_done()) return self->write_whole();
      self->whole_.reset();
      self->response_.reset();
      if (error) return self->lose();
      self->finish();
    });
  }

  auto while_taken() {
    return [this](error_code error, std::size_t) -> std::size_t {  // bytes to write at most before it is called again
      arm(server_.options.write_limit);
      return error ? 0 : kWriteBytes;
    };
  }

  template <class Message>
  void fill_head(Message& message, const HttpResponse& answer) {
    message.set(http::field::server, "heddle");
    message.set(http::field::content_type, answer.content_type);
    message.set("X-Request-Id", request_id_);
    for (const auto& [name, value] : answer.headers) message.set(name, value);
  }

  // Loses the connection unless it is disarmed or armed again before the limit. The timer itself is set again only when it
  // would fire too late: most waits are over soon, and setting it takes longer than what they wait for.
  void arm(std::chrono::milliseconds limit) {
    limit_at_ = std::chrono::steady_clock::now() + limit;
    if (!timer_runs_ || timer_at_ > *limit_at_) run_timer();
  }

  void run_timer() {
    timer_runs_ = true;
    timer_at_ = *limit_at_;
    deadline_.expires_at(timer_at_);
    deadline_.async_wait([weak = this->weak_from_this()](error_code error) {
      const auto self = weak.lock();
      if (error || !self) return;
      self->timer_runs_ = false;
      if (!self->limit_at_) return;
      if (std::chrono::steady_clock::now() >= *self->limit_at_) return self->lose();
      self->run_timer();
    });
  }

  void disarm() { limit_at_.reset(); }

  void read_head() {
    state_ = State::reading;
    wait_idly();
    parser_.emplace();
    parser_->header_limit(static_cast<std::uint32_t>(server_.options.max_header_bytes));
    parser_->body_limit(server_.options.max_body_bytes);
    arm(server_.options.idle_limit);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = this->shared_from_this()](error_code error, std::size_t) { self->head_read(error); });
  }

  void head_read(error_code error) {
    if (state_ == State::closed) return;  // for others
    stop_idling();
    if (error) return refuse(error);
    const auto& message = parser_->get();
    take_head(message);
    if (!parser_->is_done() && server_.head_check)
      if (auto refusal = server_.head_check(request_of(message))) return refuse(std::move(*refusal));
    held_ = std::make_shared<HeldBytes>(server_.bodies);
    parser_->eager(true);
    arm(server_.options.body_limit);
    if (beast::iequals(message[http::field::expect], "100-continue")) {
      go_on_.emplace(http::status::continue_, version_);
      http::async_write(stream_, *go_on_, [self = this->shared_from_this()](error_code failed, std::size_t) {
        if (failed) return self->close();
        self->read_body();
      });
    } else {
      read_body();
    }
  }

  void take_head(const http::request<http::string_body>& message) {
    version_ = message.version();
    keep_alive_ = message.keep_alive();
    head_only_ = message.method() == http::verb::head;
    const std::string id = text_of(message["X-Request-Id"]);
    constexpr std::size_t kLongestId = 128;
    const bool good = !id.empty() && id.size() <= kLongestId && std::ranges::all_of(id, is_id_character);
    request_id_ = good ? id : new_request_id();
  }

  void read_body() {
    if (parser_->is_done()) return body_read({});
    http::async_read_some(stream_, buffer_, *parser_, [self = this->shared_from_this()](error_code error, std::size_t) {
      if (error) return self->body_read(error);
      if (self->held_->grow_to(self->parser_->get().body().size())) return self->read_body();
      ApiError full(503, "the server holds as many bytes of requests as it may: try again later");
      full.retry_after = 1;
      self->parser_.reset();
      self->held_.reset();
      self->refuse(error_response(full));
    });
  }

  void body_read(error_code error) {
    if (error) return refuse(error);
    disarm();
    auto message = parser_->release();
    state_ = State::answering;
    watch();
    HttpRequest request = request_of(message);
    request.body = std::move(message.body());
    request.body_bytes = std::exchange(held_, {});
    owe_answer();
    server_.handler(std::move(request), this->shared_from_this());
  }

  // Without its body.
  HttpRequest request_of(const http::request<http::string_body>& message) const {
    HttpRequest request{.method = text_of(message.method_string()),
                        .path = text_of(message.target()),
                        .authorization = text_of(message[http::field::authorization]),
                        .host = text_of(message[http::field::host]),
                        .origin = text_of(message[http::field::origin]),
                        .request_id = request_id_,
                        .beyond_limit = beyond_limit_};
    if (request.path != "/live?stream=1") request.path.resize(std::min(request.path.find('?'), request.path.size()));
    if (request.path == "/live" && message[http::field::accept].find("text/event-stream") != beast::string_view::npos)
      request.path += "?stream=1";
    return request;
  }

  // What could not be read gets an error, if it was HTTP at all, and the connection ends.
  void refuse(error_code error) {
    int status = 0;
    if (error == http::error::header_limit) status = 431;
    if (error == http::error::body_limit) status = 413;
    if (status == 0 && error != http::error::end_of_stream && error != http::error::partial_message &&
        error.category() == make_error_code(http::error::bad_method).category())
      status = 400;
    if (status == 0) return close();
    if (request_id_.empty()) request_id_ = new_request_id();
    const std::string what =
        status == 431   ? fmt::format("more than {} bytes of headers", server_.options.max_header_bytes)
        : status == 413 ? fmt::format("a body of more than {} bytes", server_.options.max_body_bytes)
                        : "no HTTP request: " + error.message();
    refuse(error_response(ApiError(status, what)));
  }

  // Answers without reading the rest.
  void refuse(HttpResponse answer) {
    keep_alive_ = false;
    lingers_ = true;
    state_ = State::answering;
    owe_answer();
    respond(std::move(answer));
  }

  // Reads ahead, which tells at once when the client has gone. What comes is the next request's.
  void watch() {
    if (watching_ || buffer_.size() > 0) return;  // the next request is here already: the client has not gone
    watching_ = true;
    stream_.async_read_some(buffer_.prepare(kReadBytes),
                            [self = this->shared_from_this()](error_code error, std::size_t bytes) {
                              self->watching_ = false;
                              if (error) return self->lose();
                              self->buffer_.commit(bytes);
                              if (self->waits_for_watch_) self->next_request();
                            });
  }

  void write_more() {
    if (writing_ || state_ != State::answering) return;
    if (unsent_.empty() && !ended_) return;
    writing_ = true;
    arm(server_.options.write_limit);
    const auto done = [self = this->shared_from_this()](error_code error, std::size_t) { self->written(error); };
    if (unsent_.empty()) {
      last_sent_ = true;
      if (chunked_)
        asio::async_write(stream_, http::make_chunk_last(), while_taken(), done);
      else
        asio::post(server_.context, [done] { done({}, 0); });
      return;
    }
    in_flight_ = std::exchange(unsent_, {});
    if (chunked_)
      asio::async_write(stream_, http::make_chunk(asio::buffer(in_flight_)), while_taken(), done);
    else
      asio::async_write(stream_, asio::buffer(in_flight_), while_taken(), done);
  }

  void written(error_code error) {
    writing_ = false;
    if (error) return lose();
    disarm();
    if (last_sent_) return finish();
    write_more();
  }

  // The answer is out.
  void finish() {
    disarm();
    if (state_ == State::closed) return;
    const bool again = keeps_alive() && (!begun_ || chunked_);
    gone_ = {};
    begun_ = ended_ = last_sent_ = writing_ = false;
    unsent_.clear();
    head_.reset();
    serializer_.reset();
    if (!again) return lingers_ ? linger() : close();
    owe_nothing();
    state_ = State::reading;
    if (watching_) {
      wait_idly();
      waits_for_watch_ = true;
      arm(server_.options.idle_limit);
    } else {
      read_head();
    }
  }

  // Takes what the client still sends, for a while: to close at once would reset the connection, and the client could lose
  // the answer.
  void linger() {
    state_ = State::lingering;
    error_code ignored;
    socket().shutdown(Socket::shutdown_send, ignored);
    arm(server_.options.linger_limit);
    discard();
  }

  void discard() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(kLingerBytes),
                            [self = this->shared_from_this()](error_code error, std::size_t) {
                              if (error) return self->close();
                              self->discard();
                            });
  }

  void next_request() {
    waits_for_watch_ = false;
    read_head();
  }

  // The client has gone, or is too slow.
  void lose() {
    if (state_ == State::closed) return;
    const auto gone = std::exchange(gone_, {});
    close();
    if (gone) gone();
  }

  void close() {
    if (state_ != State::closed) --server_.num_connections;
    state_ = State::closed;
    stop_idling();
    owe_nothing();
    held_.reset();
    deadline_.cancel();
    error_code ignored;
    socket().shutdown(Socket::shutdown_both, ignored);
    socket().close(ignored);
  }

  Stream stream_;
  SessionHost& server_;
  asio::steady_timer deadline_;
  std::optional<std::chrono::steady_clock::time_point> limit_at_;
  std::chrono::steady_clock::time_point timer_at_;
  bool timer_runs_ = false;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<HeldBytes> held_;  // of the body that is read
  std::optional<http::response<http::string_body>> response_;
  std::optional<http::response_serializer<http::string_body>> whole_;  // of response_
  std::optional<http::response<http::empty_body>> head_;
  std::optional<http::response<http::empty_body>> go_on_;
  std::optional<http::response_serializer<http::empty_body>> serializer_;
  std::function<void()> gone_;
  std::string request_id_;
  std::string unsent_;
  std::string in_flight_;
  State state_ = State::reading;
  unsigned version_ = 11;
  bool keep_alive_ = true;
  bool head_only_ = false;
  bool begun_ = false;  // begin() was called
  bool ended_ = false;  // end() was called
  bool chunked_ = false;
  bool writing_ = false;
  bool last_sent_ = false;  // the last piece is on its way
  bool watching_ = false;
  bool waits_for_watch_ = false;
  bool lingers_ = false;      // something may come that nobody reads
  bool owes_answer_ = false;  // counted in num_answering
  bool beyond_limit_;
  std::optional<std::list<std::function<void()>>::iterator> idle_at_;
};

}  // namespace heddle::server
