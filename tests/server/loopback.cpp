#include "server/loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>

namespace heddle::server {

std::vector<nlohmann::json> Reply::events() const {
  std::vector<nlohmann::json> events;
  for (std::size_t at = body.find("data: "); at != std::string::npos; at = body.find("data: ", at + 1)) {
    const std::string data = body.substr(at + 6, body.find("\n\n", at) - at - 6);
    if (data != "[DONE]") events.push_back(nlohmann::json::parse(data));
  }
  return events;
}

Connection::Connection(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    throw std::runtime_error("cannot connect to the server");
}

void Connection::send(const std::string& bytes) const {
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (count <= 0) return;  // the server has closed: its answer tells why
    done += static_cast<std::size_t>(count);
  }
}

std::string Connection::read_some() const {
  char buffer[4096];
  const ssize_t count = ::recv(socket_, buffer, sizeof buffer, 0);
  return {buffer, buffer + std::max<ssize_t>(count, 0)};
}

std::string Connection::read_all(double seconds) const {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::string all;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - std::chrono::steady_clock::now());
    pollfd ready{socket_, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return all;
    const std::string more = read_some();
    if (more.empty()) return all;
    all += more;
  }
}

void Connection::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

std::string http_text(const std::string& method, const std::string& path, const std::string& body,
                      const std::string& headers) {
  return method + " " + path +
         " HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: " + std::to_string(body.size()) +
         "\r\n" + headers + "\r\n" + body;
}

Reply parse_reply(const std::string& bytes) {
  Reply reply;
  const std::size_t end = bytes.find("\r\n\r\n");
  if (end == std::string::npos) return reply;
  reply.head = bytes.substr(0, end + 2);
  reply.status = std::stoi(bytes.substr(9, 3));
  std::string rest = bytes.substr(end + 4);
  if (reply.head.find("chunked") == std::string::npos) {
    reply.body = rest;
    return reply;
  }
  while (!rest.empty()) {
    const std::size_t line = rest.find("\r\n");
    if (line == std::string::npos) break;
    const std::size_t size = std::stoul(rest.substr(0, line), nullptr, 16);
    if (size == 0) break;
    reply.body += rest.substr(line + 2, size);
    rest.erase(0, std::min(rest.size(), line + 2 + size + 2));
  }
  return reply;
}

Reply ask(std::uint16_t port, const std::string& method, const std::string& path, const std::string& body,
          const std::string& headers) {
  const Connection connection(port);
  connection.send(http_text(method, path, body, headers));
  return parse_reply(connection.read_all());
}

}  // namespace heddle::server
