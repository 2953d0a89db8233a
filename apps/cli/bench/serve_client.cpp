#include "cli/bench/serve_client.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string_view>

#include "base/error.h"
#include "base/json.h"
#include "base/printable.h"
#include "cli/bench/bench.h"
#include "cli/bench/curl_library.h"
#include "cli/bench/event_stream.h"

namespace heddle {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::size_t kMostErrorBytes = 2000;
constexpr std::size_t kMostListBytes = std::size_t{1} << 20;
constexpr int kLongestPollMs = 100;
constexpr long kConnectMs = 10'000;

struct EasyDeleter {
  void operator()(CURL* easy) const { curl().easy_cleanup(easy); }
};
struct ListDeleter {
  void operator()(curl_slist* list) const { curl().slist_free_all(list); }
};
struct MultiDeleter {
  void operator()(CURLM* multi) const { curl().multi_cleanup(multi); }
};
using Easy = std::unique_ptr<CURL, EasyDeleter>;
using HeaderList = std::unique_ptr<curl_slist, ListDeleter>;

HeaderList headers_of(const ServeTarget& target) {
  curl_slist* list = curl().slist_append(nullptr, "Content-Type: application/json");
  if (!target.api_key.empty()) list = curl().slist_append(list, ("Authorization: Bearer " + target.api_key).c_str());
  return HeaderList(list);
}

Easy easy_for(const ServeTarget& target, const std::string& path, const curl_slist* headers) {
  Easy easy(curl().easy_init());
  if (!easy) throw Failure("libcurl could not start a request");
  CURL* handle = easy.get();
  curl().easy_setopt(handle, CURLOPT_URL, (target.url + path).c_str());
  curl().easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
  curl().easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl().easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl().easy_setopt(handle, CURLOPT_TCP_NODELAY, 1L);
  curl().easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, kConnectMs);
  curl().easy_setopt(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(1e3 * target.timeout_s));
  return easy;
}

std::size_t append_to_string(char* bytes, std::size_t, std::size_t size, void* text) {
  auto& all = *static_cast<std::string*>(text);
  if (all.size() + size > kMostListBytes) return 0;
  all.append(bytes, size);
  return size;
}

const char* path_of(ServeEndpoint endpoint) {
  return endpoint == ServeEndpoint::chat ? "/v1/chat/completions" : "/v1/completions";
}

// Whether a chunk's choice has a piece of the answer: text of a completion; content, reasoning or calls of a chat.
bool has_text(const nlohmann::json& choice) {
  const auto holds = [](const nlohmann::json& object, const char* name) {
    const auto field = object.find(name);
    return field != object.end() && !field->empty() &&
           (!field->is_string() || !field->get_ref<const std::string&>().empty());
  };
  if (!choice.is_object()) return false;
  const auto delta = choice.find("delta");
  if (delta == choice.end() || !delta->is_object()) return holds(choice, "text");
  return holds(*delta, "content") || holds(*delta, "reasoning_content") || holds(*delta, "reasoning") ||
         holds(*delta, "tool_calls");
}

// "401: the key is wrong", in one line.
std::string error_text(long status, const std::string& body) {
  std::string message = body;
  const auto answer = nlohmann::json::parse(body, nullptr, false);
  if (answer.is_object() && answer.contains("error") && answer["error"].is_object())
    message = answer["error"].value("message", body);
  return fmt::format("{}: {}", status, printable(message, 200));
}

class Transfer {
 public:
  Transfer(const ServeTarget& target, const curl_slist* headers, const LoadRequest& request, std::string body,
           ServedAnswer& answer, SteadyClock::time_point start)
      : easy_(easy_for(target, path_of(target.endpoint), headers)),
        body_(std::move(body)),
        answer_(answer),
        start_(start) {
    answer_.prompt_tokens = request.prompt_tokens;
    answer_.sent = now();
    CURL* handle = easy_.get();
    curl().easy_setopt(handle, CURLOPT_POSTFIELDS, body_.c_str());
    curl().easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(body_.size()));
    curl().easy_setopt(handle, CURLOPT_WRITEFUNCTION, &Transfer::write);
    curl().easy_setopt(handle, CURLOPT_WRITEDATA, this);
    curl().easy_setopt(handle, CURLOPT_PRIVATE, this);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  CURL* handle() { return easy_.get(); }

  void end(CURLcode code) {
    answer_.ended = now();
    if (num_counted_ > 0) answer_.output_tokens = num_counted_;
    if (answer_.output_tokens == 0) answer_.output_tokens = static_cast<int>(answer_.chunks.size());
    const long status = http_status();
    if (!answer_.error.empty()) return;
    if (code != CURLE_OK)
      answer_.error = curl().easy_strerror(code);
    else if (status != 200)
      answer_.error = error_text(status, other_body_);
    else if (!done_)
      answer_.error = "the stream ended without [DONE]";
  }

 private:
  double now() const { return std::chrono::duration<double>(SteadyClock::now() - start_).count(); }

  long http_status() const {
    long status = 0;
    curl().easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }

  static std::size_t write(char* bytes, std::size_t, std::size_t size, void* self) {
    return static_cast<Transfer*>(self)->take({bytes, size}) ? size : 0;
  }

  bool take(std::string_view bytes) {
    if (http_status() != 200) {
      other_body_ += bytes.substr(0, kMostErrorBytes - std::min(kMostErrorBytes, other_body_.size()));
      return true;
    }
    return events_.push(bytes, [&](std::string_view data) { take_event(data); });
  }

  void take_event(std::string_view data) {
    if (data == "[DONE]") {
      done_ = true;
      return;
    }
    const auto event = nlohmann::json::parse(data, nullptr, false);
    if (!event.is_object()) {
      answer_.error = "the stream holds what is not JSON";
      return;
    }
    if (event.contains("error")) answer_.error = error_text(200, std::string(data));
    if (const auto usage = event.find("usage"); usage != event.end() && usage->is_object()) {
      num_counted_ = usage->value("completion_tokens", num_counted_);
      answer_.prompt_tokens = usage->value("prompt_tokens", answer_.prompt_tokens);
    }
    const auto choices = event.find("choices");
    if (choices == event.end() || !choices->is_array() || choices->empty()) return;
    if (has_text(choices->front())) answer_.chunks.push_back(now());
  }

  Easy easy_;
  std::string body_;
  ServedAnswer& answer_;
  SteadyClock::time_point start_;
  EventStream events_;
  std::string other_body_;
  int num_counted_ = 0;
  bool done_ = false;
};

// Words that are one token each in most vocabularies.
std::string random_words(int count, std::mt19937_64& random) {
  constexpr std::string_view kWords[] = {"time", "people", "water", "light", "house", "world", "story", "night",
                                         "hand", "river",  "road",  "green", "small", "open",  "long",  "under"};
  std::uniform_int_distribution<std::size_t> word(0, std::size(kWords) - 1);
  std::string text;
  for (int i = 0; i < count; ++i) text.append(i > 0 ? " " : "").append(kWords[word(random)]);
  return text;
}

std::string body_of(const ServeTarget& target, const LoadRequest& request, std::mt19937_64& random) {
  nlohmann::json body{{"model", target.model},
                      {"max_tokens", request.output_tokens},
                      {"temperature", 0},
                      {"stream", true},
                      {"stream_options", {{"include_usage", true}}}};
  if (target.ignore_eos) body["ignore_eos"] = true;
  if (target.endpoint == ServeEndpoint::chat) {
    body["messages"] = {{{"role", "user"}, {"content", random_words(request.prompt_tokens, random)}}};
  } else {
    std::uniform_int_distribution<int> token(target.first_token, target.last_token);
    std::vector<int> prompt(static_cast<std::size_t>(request.prompt_tokens));
    for (int& id : prompt) id = token(random);
    body["prompt"] = prompt;
  }
  return body.dump();
}

}  // namespace

std::string first_model(const ServeTarget& target) {
  const HeaderList headers = headers_of(target);
  const Easy easy = easy_for(target, "/v1/models", headers.get());
  std::string body;
  curl().easy_setopt(easy.get(), CURLOPT_WRITEFUNCTION, &append_to_string);
  curl().easy_setopt(easy.get(), CURLOPT_WRITEDATA, &body);
  const CURLcode code = curl().easy_perform(easy.get());
  if (code != CURLE_OK) throw_error<Failure>("{}/v1/models: {}", target.url, curl().easy_strerror(code));
  long status = 0;
  curl().easy_getinfo(easy.get(), CURLINFO_RESPONSE_CODE, &status);
  if (status != 200) throw_error<Failure>("{}/v1/models: {}", target.url, error_text(status, body));
  const auto models = nlohmann::json::parse(body, nullptr, false);
  if (!models.is_object() || !models.contains("data") || !models["data"].is_array() || models["data"].empty() ||
      !models["data"][0].contains("id") || !models["data"][0]["id"].is_string())
    throw_error<Failure>("{}/v1/models: lists no model", target.url);
  return models["data"][0]["id"];
}

ServeRun run_load(const ServeTarget& target, const std::vector<LoadRequest>& load, int most_running, std::uint64_t seed,
                  const InterruptGuard& guard) {
  const HeaderList headers = headers_of(target);
  std::mt19937_64 random(seed);
  ServeRun run;
  run.answers.resize(load.size());
  const std::unique_ptr<CURLM, MultiDeleter> multi(curl().multi_init());
  if (!multi) throw Failure("libcurl could not start");
  std::vector<std::unique_ptr<Transfer>> transfers(load.size());
  // Bodies are made before the clock starts.
  std::vector<std::string> bodies;
  bodies.reserve(load.size());
  for (const LoadRequest& request : load) bodies.push_back(body_of(target, request, random));

  const auto start = SteadyClock::now();
  const auto now = [&] { return std::chrono::duration<double>(SteadyClock::now() - start).count(); };
  std::size_t next = 0;
  int num_running = 0;
  while (next < load.size() || num_running > 0) {
    stop_if_interrupted(guard);
    while (next < load.size() && load[next].arrival_s <= now() && (most_running == 0 || num_running < most_running)) {
      transfers[next] = std::make_unique<Transfer>(target, headers.get(), load[next], std::move(bodies[next]),
                                                   run.answers[next], start);
      curl().multi_add_handle(multi.get(), transfers[next]->handle());
      ++next;
      ++num_running;
    }
    int still_running = 0;
    curl().multi_perform(multi.get(), &still_running);
    int num_left = 0;
    while (const CURLMsg* message = curl().multi_info_read(multi.get(), &num_left)) {
      if (message->msg != CURLMSG_DONE) continue;
      char* owner = nullptr;
      curl().easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &owner);
      auto* transfer = reinterpret_cast<Transfer*>(owner);
      const CURLcode code = message->data.result;
      curl().multi_remove_handle(multi.get(), transfer->handle());
      transfer->end(code);
      std::ranges::find_if(transfers, [&](const auto& one) { return one.get() == transfer; })->reset();
      --num_running;
    }
    int wait_ms = kLongestPollMs;
    if (next < load.size() && (most_running == 0 || num_running < most_running))
      wait_ms = std::clamp(static_cast<int>(1e3 * (load[next].arrival_s - now())), 0, kLongestPollMs);
    curl().multi_poll(multi.get(), nullptr, 0, wait_ms, nullptr);
  }
  for (const ServedAnswer& answer : run.answers) run.duration_s = std::max(run.duration_s, answer.ended);
  return run;
}

}  // namespace heddle
