#include "server/http_server.h"

#include <fmt/format.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <utility>

#include "base/error.h"
#include "server/http_session.h"

namespace heddle::server {
namespace {

constexpr int kMostBeyondLimit = 16;  // connections beyond max_connections, for health

}  // namespace

struct HttpServer::Impl : SessionHost {
  explicit Impl(HttpOptions given)
      : SessionHost(std::move(given)), workers(static_cast<std::size_t>(std::max(1, options.num_workers))) {}

  asio::ip::tcp::acceptor acceptor{context};
  std::optional<asio::ssl::context> tls;
  asio::steady_timer accept_pause{context};
  asio::thread_pool workers;
  bool accepting = true;
  bool noted_full = false;
  bool noted_error = false;

  void listen();
  void load_tls();
  void accept();
  void take(Socket socket);
  void make_room();
  void note_once(bool& noted, const std::string& line) const {
    if (!std::exchange(noted, true) && options.note) options.note(line);
  }
};

void HttpServer::Impl::load_tls() {
  if (!options.tls) return;
  tls.emplace(asio::ssl::context::tls_server);
  tls->set_options(asio::ssl::context::default_workarounds | asio::ssl::context::no_sslv2 |
                   asio::ssl::context::no_sslv3 | asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1 |
                   asio::ssl::context::single_dh_use);
  // Without a callback, OpenSSL would ask on the terminal, and the server would wait for it.
  const auto encrypted = std::make_shared<bool>(false);
  tls->set_password_callback([encrypted](std::size_t, asio::ssl::context::password_purpose) {
    *encrypted = true;
    return std::string();
  });
  error_code error;
  tls->use_certificate_chain_file(options.tls->certificate, error);
  if (error) throw_error<InputError>("{}: no certificate in PEM: {}", options.tls->certificate, error.message());
  tls->use_private_key_file(options.tls->key, asio::ssl::context::pem, error);
  if (error && *encrypted)
    throw_error<InputError>(
        "{0}: the private key is encrypted, and nobody is asked for its passphrase: give it decrypted, in a file that "
        "the server alone may read (umask 077; openssl pkey -in {0} -out FILE)",
        options.tls->key);
  if (error)
    throw_error<InputError>("{}: no private key in PEM that fits {}: {}", options.tls->key, options.tls->certificate,
                            error.message());
}

void HttpServer::Impl::listen() {
  error_code error;
  asio::ip::tcp::resolver resolver(context);
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port),
                       asio::ip::tcp::resolver::passive | asio::ip::tcp::resolver::numeric_service, error);
  if (error || found.empty())
    throw_error<InputError>("--host {}: is no address of this machine: {}", options.host, error.message());
  const asio::ip::tcp::endpoint endpoint = *found.begin();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(asio::socket_base::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error)
    throw_error<InputError>("cannot listen on {}, port {}: {}; choose another with --host and --port", options.host,
                            options.port, error.message());
}

void HttpServer::Impl::accept() {
  if (!accepting) return;
  acceptor.async_accept([this](error_code error, Socket socket) {
    if (!accepting) return;
    if (error) {  // out of file descriptors, say: they come back
      note_once(noted_error, "cannot accept a connection: " + error.message());
      if (!idle.empty()) std::function<void()>(idle.front())();
      accept_pause.expires_after(std::chrono::milliseconds(100));
      accept_pause.async_wait([this](error_code ended) {
        if (!ended) accept();
      });
      return;
    }
    take(std::move(socket));
    accept();
  });
}

void HttpServer::Impl::take(Socket socket) {
  if (num_connections >= options.max_connections) make_room();
  if (num_connections >= options.max_connections + kMostBeyondLimit) return;
  const bool beyond_limit = num_connections >= options.max_connections;
  if (tls)
    std::make_shared<Session<TlsStream>>(TlsStream(std::move(socket), *tls), *this, beyond_limit)->start();
  else
    std::make_shared<Session<Socket>>(std::move(socket), *this, beyond_limit)->start();
}

void HttpServer::Impl::make_room() {
  note_once(noted_full,
            fmt::format("{} connections are open, which is the limit (--max-connections): for each new one the "
                        "one that has been idle longest is closed",
                        num_connections.load()));
  if (!idle.empty()) std::function<void()>(idle.front())();
}

HttpServer::HttpServer(HttpOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {
  impl_->load_tls();
  impl_->listen();
}

HttpServer::~HttpServer() {
  join_workers();
}

void HttpServer::join_workers() {
  impl_->workers.stop();
  impl_->workers.join();
}

void HttpServer::set_head_check(HeadCheck check) {
  impl_->head_check = std::move(check);
}

void HttpServer::set_handler(Handler handler) {
  impl_->handler = std::move(handler);
}

std::uint16_t HttpServer::port() const {
  return impl_->acceptor.local_endpoint().port();
}

std::string HttpServer::address() const {
  const auto endpoint = impl_->acceptor.local_endpoint();
  const std::string host =
      endpoint.address().is_v6() ? "[" + endpoint.address().to_string() + "]" : endpoint.address().to_string();
  return fmt::format("{}://{}:{}", impl_->tls ? "https" : "http", host, endpoint.port());
}

void HttpServer::run(std::function<void(int)> on_signal) {
  std::optional<asio::signal_set> signals;
  std::function<void()> wait;
  if (on_signal) {
    signals.emplace(impl_->context, SIGINT, SIGTERM);
    wait = [&] {
      signals->async_wait([&](error_code error, int signal) {
        if (error) return;
        on_signal(signal);
        wait();
      });
    };
    wait();
  }
  impl_->accept();
  const auto guard = asio::make_work_guard(impl_->context);
  impl_->context.run();
}

void HttpServer::post(std::function<void()> action) {
  asio::post(impl_->context, std::move(action));
}

void HttpServer::post_work(std::function<void()> action) {
  asio::post(impl_->workers, std::move(action));
}

void HttpServer::post_after(std::chrono::milliseconds delay, std::function<void()> action) {
  const auto timer = std::make_shared<asio::steady_timer>(impl_->context, delay);
  timer->async_wait([timer, action = std::move(action)](error_code error) {
    if (!error) action();
  });
}

void HttpServer::stop() {
  impl_->context.stop();
}

void HttpServer::close_after_answers() {
  impl_->closing = true;
}

void HttpServer::when_answered(std::function<void()> answered) {
  impl_->answered = std::move(answered);
  impl_->check_answered();
}

void HttpServer::stop_accepting() {
  impl_->accepting = false;
  error_code ignored;
  impl_->acceptor.close(ignored);
}

int HttpServer::num_connections() const {
  return impl_->num_connections;
}

}  // namespace heddle::server
