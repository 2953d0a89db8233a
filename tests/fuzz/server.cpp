// What a client may send to heddle serve, from the bytes of HTTP to the answer, without sockets: the parser with its limits
// (smaller here, so that short inputs reach them), routes, keys, bodies, the chat template, the tokenizer, forms that are
// compiled, and an engine that answers at once. Input: a byte that chooses how the client behaves, then what it sends.
#include <array>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/instant_engine.h"
#include "fuzz/memory_stream.h"
#include "fuzz/target.h"
#include "server/api_error.h"
#include "server/http_session.h"
#include "server/service.h"

namespace heddle::fuzz {
namespace {

using nlohmann::json;
using server::HttpRequest;
using server::HttpResponse;
using server::Responder;

constexpr std::chrono::seconds kTimeout{20};  // until the engine's thread has answered

// The bits of an input's first byte; '0' has none of these, 'p' the last one.
struct Client {
  explicit Client(unsigned bits)
      : has_keys((bits & 1U) != 0),
        piece(std::array<std::size_t, 4>{std::size_t{1} << 20U, 1, 13, 200}[bits >> 1U & 3U]),
        leaves((bits & 8U) != 0),
        counts((bits & 64U) != 0) {}

  bool has_keys;      // its server wants some
  std::size_t piece;  // it sends so many bytes at a time
  bool leaves;        // as soon as all is sent
  bool counts;        // what follows the first head is its body, and a Content-Length goes in
};

// What the client sends. Mutations of a body need not find its new length this way.
std::string sent_by(const Client& client, std::string_view text) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  std::string bytes(text);
  const std::size_t end = text.find(kEnd);
  if (client.counts && end != std::string_view::npos)
    bytes.insert(end, fmt::format("\r\nContent-Length: {}", text.size() - end - kEnd.size()));
  return bytes;
}

std::string text_of_message(const std::string& body) {
  const json root = json::parse(body, nullptr, false);
  expect(root.is_object() && root.contains("error") && root["error"].is_object(), "an error of another shape: {}",
         body);
  expect(root["error"]["message"].is_string() && root["error"]["type"].is_string(), "an error without a text: {}",
         body);
  check_message(root["error"]["message"].get<std::string>());
  return root["error"]["message"];
}

// An engine may fail a request whose form is too hard to follow; nothing else may be the server's fault.
void check_failure(int status, const std::string& message) {
  const bool known = status == 400 || status == 401 || status == 403 || status == 404 || status == 405 ||
                     status == 413 || status == 429 || status == 431 || status == 501 ||
                     (status == 500 && (message.find("the grammar") != std::string::npos ||
                                        message.find("the answer's grammar") != std::string::npos));
  expect(known, "status {}: {}", status, message);
}

void check_answer(const HttpResponse& response) {
  if (response.status == 200) {
    expect(response.content_type != "application/json" || json::accept(response.body), "no JSON: {}", response.body);
    return;
  }
  check_failure(response.status, text_of_message(response.body));
}

// Checks what is answered, and hands it on.
class Checked : public Responder {
 public:
  Checked(std::shared_ptr<Responder> next, std::string path, int& num_owed)
      : next_(std::move(next)), path_(std::move(path)), num_owed_(num_owed) {
    ++num_owed_;
  }

  void respond(HttpResponse response) override {
    answer();
    check_answer(response);
    next_->respond(std::move(response));
  }
  void begin(const HttpResponse& head) override {
    expect(!begun_, "a stream that begins twice");
    begun_ = true;
    if (path_ == "/live?stream=1") answer();  // it ends when the client goes
    next_->begin(head);
  }
  void write(std::string piece) override {
    events_ += piece;
    next_->write(std::move(piece));
  }
  void end() override {
    answer();
    check_events();
    next_->end();
  }
  void on_disconnect(std::function<void()> gone) override { next_->on_disconnect(std::move(gone)); }

 private:
  void answer() {
    expect(!std::exchange(answered_, true), "a request of {} that is answered twice", path_);
    --num_owed_;
  }

  void check_events() const {
    constexpr std::string_view kData = "data: ", kEnd = "\n\n";
    std::string_view rest = events_;
    bool done = false;
    while (!rest.empty()) {
      const std::size_t end = rest.find(kEnd);
      expect(!done && rest.starts_with(kData) && end != std::string_view::npos, "no events: {}", events_);
      const std::string_view data = rest.substr(kData.size(), end - kData.size());
      rest.remove_prefix(end + kEnd.size());
      done = data == "[DONE]";
      if (done) continue;
      const json event = json::parse(data, nullptr, false);
      expect(event.is_object(), "an event that is no JSON: {}", data);
      if (event.contains("error")) check_failure(500, text_of_message(std::string(data)));
    }
    expect(done, "a stream without an end: {}", events_);
  }

  std::shared_ptr<Responder> next_;
  std::string path_;
  int& num_owed_;
  std::string events_;
  bool begun_ = false;
  bool answered_ = false;
};

Tokenizer load_tokenizer() {
  const char* elsewhere = std::getenv("HEDDLE_FUZZ_DATA");
  const std::filesystem::path data = elsewhere != nullptr ? elsewhere : HEDDLE_SOURCE_DIR "/tests/data";
  return Tokenizer::load(data / "tokenizer/qwen2");  // which has tokens for calls of tools
}

constexpr std::string_view kTemplate = R"({"eos_token": "<|im_end|>", "chat_template":
"{% if tools %}<|im_start|>system\n{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}<|im_end|>\n{% endif %}{% for message in messages %}<|im_start|>{{ message.role }}\n{% if message.content %}{{ message.content }}{% endif %}{% for call in message.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"})";

// A server without a socket. All but the engine runs on the thread that calls serve().
class FuzzedServer {
 public:
  explicit FuzzedServer(bool with_keys) : host_(http_options()) {
    const Tokenizer tokenizer = load_tokenizer();
    const std::int32_t end = tokenizer.id_of("<|im_end|>").value();
    server::ServiceOptions options{
        .model_names = {"fuzz", "other"}, .max_sequences = 8, .max_queue = 16, .tools = server::ToolFormat::tagged};
    if (with_keys) {
      options.access.api_keys = server::ApiKeys::parse("first-key\nsecond-key\n", "keys");
      options.access.admin_keys = server::ApiKeys::parse("admin-key\n", "keys");
    } else {
      options.access.only_local_hosts = true;
    }
    const auto soon = [this](std::function<void()> action) { asio::post(host_.context, std::move(action)); };
    service_.emplace(
        std::move(options), tokenizer, ModelChatTemplate::from_config(kTemplate, "template"),
        GenerationDefaults{.eos_ids = {end}},
        [size = tokenizer.vocab_size(), end] { return instant_engine(size, end); },
        server::Threads{.server = soon,
                        .worker = soon,
                        .later = [this](std::chrono::milliseconds,
                                        std::function<void()> action) { later_.push_back(std::move(action)); },
                        .num_workers = 2});
    host_.handler = [this](HttpRequest request, const std::shared_ptr<Responder>& responder) {
      const std::string path = request.path;
      service_->handle(std::move(request), std::make_shared<Checked>(responder, path, num_owed_));
    };
    host_.head_check = [this](const HttpRequest& head) {
      auto refusal = service_->refuse_early(head);
      if (refusal) check_answer(*refusal);
      return refusal;
    };
    run_until([this] { return service_->loop().state() == server::LoopState::running; });
  }

  void serve(const Client& client, std::string_view text) {
    num_owed_ = 0;
    later_.clear();
    const std::string bytes = sent_by(client, text);
    const auto wire = std::make_shared<Wire>(Wire{.unread = bytes, .piece = client.piece, .hung_up = client.leaves});
    auto session = std::make_shared<server::Session<MemoryStream>>(MemoryStream(host_.context, wire), host_, false);
    session->start();
    const std::weak_ptr connection = std::exchange(session, {});
    run_until([&] { return service_->num_outstanding() == 0; });
    // A stream that does not end, as the live view's, with the next request behind it finds out by writing that nobody is there.
    const bool writes_on = !later_.empty();
    if (!wire->closed)
      expect(wire->try_again || client.leaves || writes_on, "a connection that neither reads nor is closed");
    if (!client.leaves) expect(num_owed_ == 0, "{} requests without an answer", num_owed_);
    wire->hang_up();
    run_until([&] {
      for (const std::function<void()>& action : std::exchange(later_, {})) action();
      return connection.expired() && service_->num_outstanding() == 0;
    });
    expect(wire->received.empty() || wire->received.starts_with("HTTP/1."), "no HTTP: {}", wire->received);
    expect(host_.num_connections == 0 && host_.num_answering == 0 && host_.idle.empty() && host_.bodies->held == 0,
           "connections, answers or bytes that are left over");
    const EngineStatus engine = service_->loop().snapshot().engine;
    expect(engine.num_running > 0 || engine.num_waiting > 0 ||
               engine.num_free_pages + engine.num_cached_pages == engine.num_pages,
           "pages that nobody uses and that are not free");
  }

 private:
  static server::HttpOptions http_options() {
    return {.max_header_bytes = std::size_t{2} << 10, .max_body_bytes = std::size_t{8} << 10};
  }

  // Runs what is ready, and then, while `done` does not hold, what the engine's thread brings.
  template <class Done>
  void run_until(Done done) {
    const auto limit = std::chrono::steady_clock::now() + kTimeout;
    const auto guard = asio::make_work_guard(host_.context);
    for (;;) {
      host_.context.restart();
      host_.context.poll();
      if (done()) return;
      expect(std::chrono::steady_clock::now() < limit, "a request that hangs");
      host_.context.run_one_for(std::chrono::milliseconds(10));
    }
  }

  server::SessionHost host_;
  std::optional<server::Service> service_;
  int num_owed_ = 0;
  std::vector<std::function<void()>> later_;  // what the service does when time has passed
};

}  // namespace

void fuzz_server(std::string_view input) {
  static FuzzedServer open(false), with_keys(true);
  if (input.empty()) return;
  const Client client(static_cast<unsigned char>(input.front()));
  (client.has_keys ? with_keys : open).serve(client, input.substr(1));
}

}  // namespace heddle::fuzz
