// What stands in the place of a socket: bytes that a client sends, and those that a server has written.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace heddle::fuzz {

using boost::system::error_code;
namespace asio = boost::asio;

// The client's end. Used on the thread that runs the context.
struct Wire {
  std::string_view unread;          // of what the client has sent
  std::size_t piece = 1;            // bytes of one read, at most
  bool hung_up = false;             // the client sends no more
  bool gone = false;                // nor does it take what is written
  bool closed = false;              // by the server
  std::string received;             // what the server has written
  std::function<void()> try_again;  // a read that waits for bytes; empty: none does

  void hang_up() {
    hung_up = gone = true;
    if (try_again) std::exchange(try_again, {})();
  }
};

// An AsyncReadStream and AsyncWriteStream, for handlers alone, with what server::Session wants of a socket besides.
class MemoryStream {
 public:
  using executor_type = asio::io_context::executor_type;

  MemoryStream(asio::io_context& context, std::shared_ptr<Wire> wire) : context_(&context), wire_(std::move(wire)) {}

  executor_type get_executor() noexcept { return context_->get_executor(); }

  template <class Buffers, class Handler>
  void async_read_some(const Buffers& buffers, Handler handler) {
    read(context_, wire_, buffers, std::make_shared<Handler>(std::move(handler)));
  }

  template <class Buffers, class Handler>
  void async_write_some(const Buffers& buffers, Handler handler) {
    const bool fails = wire_->closed || wire_->gone;
    const std::size_t size = fails ? 0 : asio::buffer_size(buffers);
    const std::size_t before = wire_->received.size();
    wire_->received.resize(before + size);
    asio::buffer_copy(asio::buffer(wire_->received.data() + before, size), buffers);
    const error_code error = fails ? asio::error::operation_aborted : error_code();
    asio::post(*context_, [handler = std::move(handler), error, size]() mutable { handler(error, size); });
  }

  template <class Option>
  void set_option(const Option& /*option*/, error_code& /*error*/) {}
  void shutdown(asio::socket_base::shutdown_type /*ends*/, error_code& /*error*/) {}
  void close(error_code& /*error*/) {
    wire_->closed = true;
    if (wire_->try_again) std::exchange(wire_->try_again, {})();
  }

 private:
  template <class Buffers, class Shared>
  static void read(asio::io_context* context, const std::shared_ptr<Wire>& wire, const Buffers& buffers,
                   Shared handler) {
    error_code error;
    std::size_t size = 0;
    if (wire->closed) {
      error = asio::error::operation_aborted;
    } else if (!wire->unread.empty()) {
      size = asio::buffer_copy(buffers, asio::buffer(wire->unread.data(), wire->unread.size()), wire->piece);
      wire->unread.remove_prefix(size);
    } else if (wire->hung_up) {
      error = asio::error::eof;
    } else {
      wire->try_again = [context, weak = std::weak_ptr(wire), buffers, handler = std::move(handler)] {
        if (const auto again = weak.lock()) read(context, again, buffers, handler);
      };
      return;
    }
    asio::post(*context, [handler = std::move(handler), error, size] { (*handler)(error, size); });
  }

  asio::io_context* context_;
  std::shared_ptr<Wire> wire_;
};

}  // namespace heddle::fuzz
