// A server with the demo model on loopback, whose steps a test can hold up or let fail.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "server/loopback.h"
#include "server/serve.h"

namespace heddle::server {

// What happens to the steps of a model.
struct Steps {
  enum class Fault : std::uint8_t { failure, lost_device, timeout };
  std::atomic<int> num_failures = 0;  // so many steps throw
  std::atomic<Fault> fault = Fault::failure;
  std::atomic<bool> blocked = false;  // while it is true, steps do not return
  std::deque<std::int32_t>
      answer;  // the next tokens of the one request that runs, where they are allowed; set while none does
};

ServedModel demo_model(int max_sequences, std::int64_t kv_bytes, const std::shared_ptr<Steps>& steps);

class Running {
 public:
  explicit Running(ServeOptions options = {}, std::int64_t kv_bytes = std::int64_t{64} << 20);
  ~Running();
  void stop() { server_->request_stop(); }
  std::uint16_t port() const { return server_->http().port(); }
  Reply get(const std::string& path, const std::string& headers = {}) const {
    return ask(port(), "GET", path, {}, headers);
  }
  Reply post(const std::string& path, const nlohmann::json& body, const std::string& headers = {}) const {
    return ask(port(), "POST", path, body.dump(), headers);
  }
  Steps& steps() { return *steps_; }
  // The next request's answer, and the model's end token after it.
  void let_answer(const std::string& text);
  int num_connections() const { return server_->http().num_connections(); }
  EngineLoop& loop() { return server_->service().loop(); }
  nlohmann::json live() const { return get("/live").json(); }
  // Waits until no answer is under way and the engine has taken notice.
  nlohmann::json idle() const;

 private:
  std::shared_ptr<Steps> steps_ = std::make_shared<Steps>();
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

// A request whose answer is beyond what the system's buffers hold.
struct LongAnswer {
  explicit LongAnswer(const Running& server);
  std::string request;
  std::size_t fewest_bytes = 0;  // of the answer
};

// Waits until `condition` holds, for 120 s at most.
template <class Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

// A request for a completion, the same each time.
nlohmann::json story(int max_tokens = 12);

// The text of a streamed answer.
std::string text_of(const std::vector<nlohmann::json>& events);

}  // namespace heddle::server
