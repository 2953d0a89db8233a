// A request and the way to answer it, without sockets: what routes work on, and what tests replace.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace heddle::server {

struct HttpRequest {
  std::string method;         // "GET"
  std::string path;           // of the target, without the query
  std::string authorization;  // the headers of these names, or empty
  std::string host;
  std::string origin;
  std::string request_id;  // X-Request-Id: 1 to 128 letters, digits and "-_."; the server's own if the client sent none
  bool beyond_limit = false;  // its connection is of the few beyond max_connections: only health is answered
  std::string body;
  std::shared_ptr<void> body_bytes;  // while it lives, the body's bytes count against the server's budget for bodies
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  HttpHeaders headers;  // beside Content-Type, Content-Length, X-Request-Id and Server
  std::string body;
};

// Answers one request, either by respond() or by begin(), any number of write() and end(). Called on the server's thread
// only. After the client has gone, every function does nothing.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void respond(HttpResponse response) = 0;
  // A body in pieces, sent as soon as they are written.
  virtual void begin(const HttpResponse& head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end() = 0;
  // `gone` is called once if the client disconnects, or takes nothing for too long, before the answer is complete.
  virtual void on_disconnect(std::function<void()> gone) = 0;
};

}  // namespace heddle::server
