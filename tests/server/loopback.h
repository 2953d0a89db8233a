// A client of plain sockets.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace heddle::server {

struct Reply {
  int status = 0;  // 0: the server closed without an answer
  std::string head;
  std::string body;  // without chunks' frames
  nlohmann::json json() const { return nlohmann::json::parse(body); }
  std::vector<nlohmann::json> events() const;  // of a stream, without [DONE]
};

class Connection {
 public:
  explicit Connection(std::uint16_t port);
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() { close(); }

  void send(const std::string& bytes) const;
  // All bytes until the server closes, or what there is after `seconds`: under sanitizers, beside other tests, answers take long.
  std::string read_all(double seconds = 120) const;
  // At least one byte; empty at the end.
  std::string read_some() const;
  void close();

 private:
  int socket_;
};

std::string http_text(const std::string& method, const std::string& path, const std::string& body = {},
                      const std::string& headers = {});
Reply parse_reply(const std::string& bytes);

// One request on a connection of its own.
Reply ask(std::uint16_t port, const std::string& method, const std::string& path, const std::string& body = {},
          const std::string& headers = {});

}  // namespace heddle::server
