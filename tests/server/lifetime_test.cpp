// How a server ends, is filled, and fails: draining, budgets, faults of the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

#include "base/error.h"
#include "server/loopback.h"
#include "server/running_server.h"

namespace heddle::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json stream_of(int max_tokens) {
  json body = story(max_tokens);
  body["stream"] = true;
  return body;
}

TEST(Server, StoppingFinishesWhatIsUnderWay) {
  auto server = std::make_unique<Running>();
  json body = story(100);
  body["stream"] = true;
  const std::string lone = text_of(server->post("/v1/completions", body).events());
  const Connection connection(server->port());
  connection.send(http_text("POST", "/v1/completions", body.dump()));
  const std::string first = connection.read_some();
  server.reset();  // SIGTERM's way; the destructor waits for run() to return
  EXPECT_EQ(text_of(parse_reply(first + connection.read_all()).events()), lone);
}

TEST(Server, ASecondStopEndsStreamsWithAnError) {
  ServeOptions options;
  auto server = std::make_unique<Running>(options);
  json body = story(450);
  body["stream"] = true;
  body["n"] = 16;
  const Connection connection(server->port());
  connection.send(http_text("POST", "/v1/completions", body.dump()));
  const std::string first = connection.read_some();
  server->stop();
  server.reset();  // the second
  const Reply reply = parse_reply(first + connection.read_all());
  ASSERT_FALSE(reply.events().empty());
  EXPECT_EQ(reply.events().back()["error"]["type"], "service_unavailable_error");
}

// The answer is beyond what the system's buffers hold, and its client begins to read after the server has been stopped.
TEST(Server, StoppingWaitsForAnswersThatAreBeingWritten) {
  auto server = std::make_unique<Running>();
  const LongAnswer answer(*server);
  const Connection connection(server->port());
  connection.send(answer.request);
  const std::string first = connection.read_some();
  server->stop();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const Reply reply = parse_reply(first + connection.read_all(120));
  EXPECT_EQ(reply.status, 200);
  EXPECT_GE(reply.body.size(), answer.fewest_bytes);
}

TEST(Server, AnswersThatOutliveTheTimeToStopEndWithAnError) {
  ServeOptions options;
  options.drain_limit = std::chrono::seconds(1);
  Running server(options);
  server.steps().blocked = true;
  const Connection stream(server.port()), whole(server.port());
  stream.send(http_text("POST", "/v1/completions", stream_of(20).dump()));
  const std::string first = stream.read_some();
  whole.send(http_text("POST", "/v1/completions", story().dump()));
  EXPECT_TRUE(eventually([&] { return server.live()["queue"]["outstanding"] == 2; }));
  server.stop();
  const auto events = parse_reply(first + stream.read_all()).events();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["error"]["type"], "service_unavailable_error");
  EXPECT_THAT(events.back()["error"]["message"].get<std::string>(), HasSubstr("its time to finish is over"));
  EXPECT_EQ(parse_reply(whole.read_all()).status, 503);
  server.steps().blocked = false;
}

TEST(Server, SaysThatItStopsUntilAnswersHaveEnded) {
  Running server;
  server.steps().blocked = true;
  const Connection connection(server.port());
  connection.send(http_text("POST", "/v1/completions", stream_of(20).dump()));
  std::string bytes = connection.read_some();
  server.stop();
  EXPECT_TRUE(eventually([&] { return server.get("/ready").status == 503; }));
  EXPECT_EQ(server.get("/health").status, 200);
  const Reply refused = server.post("/v1/completions", story());
  EXPECT_EQ(refused.status, 503);
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
  server.steps().blocked = false;
  bytes += connection.read_all();
  EXPECT_TRUE(parse_reply(bytes).body.ends_with("data: [DONE]\n\n"));
}

TEST(Server, ConversionsTakeAPlaceAndAreBounded) {
  ServeOptions options;
  options.service.limits.max_prompt_tokens = 10;
  Running server(options);
  EXPECT_EQ(server.post("/detokenize", {{"tokens", std::vector<int>(10, 20)}}).status, 200);
  for (const auto& [path, body] :
       {std::pair<const char*, json>("/detokenize", {{"tokens", std::vector<int>(11, 20)}}),
        std::pair<const char*, json>("/tokenize", {{"prompt", "a b c d e f g h i j k l"}})}) {
    const Reply reply = server.post(path, body);
    EXPECT_EQ(reply.status, 400) << path;
    EXPECT_THAT(reply.body, HasSubstr("max_prompt_tokens")) << path;
  }
  EXPECT_EQ(server.idle()["queue"]["outstanding"], 0);
}

TEST(Server, AFullQueueRefusesConversionsToo) {
  ServeOptions options;
  options.service.max_sequences = 1;
  options.service.max_queue = 0;
  Running server(options);
  server.steps().blocked = true;
  const Connection connection(server.port());
  connection.send(http_text("POST", "/v1/completions", stream_of(2).dump()));
  connection.read_some();
  EXPECT_EQ(server.post("/tokenize", {{"prompt", "a"}}).status, 429);
  EXPECT_EQ(server.post("/detokenize", {{"tokens", {20}}}).status, 429);
  server.steps().blocked = false;
}

TEST(Server, AKeyThatFillsTheQueueLeavesRoomForAnother) {
  ServeOptions options;
  options.service.max_sequences = 1;
  options.service.max_queue = 8;
  options.service.access.api_keys = ApiKeys::parse("alice-key\nbobby-key\n", "keys");
  options.service.access.admin_keys = ApiKeys::parse("admin-key\n", "keys");
  Running server(options);
  const std::string alice = "Authorization: Bearer alice-key\r\n", bob = "Authorization: Bearer bobby-key\r\n";
  server.steps().blocked = true;
  std::vector<std::unique_ptr<Connection>> streams;
  const auto begins = [&](const std::string& key) {
    streams.push_back(std::make_unique<Connection>(server.port()));
    streams.back()->send(http_text("POST", "/v1/completions", stream_of(2).dump(), key));
    return streams.back()->read_some().starts_with("HTTP/1.1 200");
  };
  int num_taken = 0;
  while (begins(alice)) ++num_taken;
  EXPECT_EQ(num_taken, 7);  // of 9, of which two are kept for bob
  EXPECT_TRUE(begins(bob));
  EXPECT_TRUE(begins(bob));
  EXPECT_FALSE(begins(bob));
  server.steps().blocked = false;
}

TEST(Server, BodiesThatAreHeldHaveABudget) {
  ServeOptions options;
  options.http.max_held_bytes = std::size_t{200} << 10;
  Running server(options);
  const std::string half(std::size_t{150} << 10, 'x');
  Reply refused;
  // Whichever body the server reads last is refused, and it may read that of `held` last.
  EXPECT_TRUE(eventually([&] {
    const Connection held(server.port());
    held.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 160000\r\n\r\n" + half);
    refused = ask(server.port(), "POST", "/v1/completions", half, {});
    return refused.status == 503;
  }));
  EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
  EXPECT_EQ(server.post("/v1/completions", story()).status, 200);  // a small one
}

TEST(Server, AnIdleConnectionGivesWayWhenAllAreTaken) {
  ServeOptions options;
  options.http.max_connections = 2;
  Running server(options);
  const Connection first(server.port()), second(server.port());
  EXPECT_EQ(server.get("/v1/models").status, 200);
  EXPECT_EQ(first.read_all(5), "");  // closed
}

TEST(Server, HealthIsAnsweredBeyondTheLimitOfConnections) {
  ServeOptions options;
  options.http.max_connections = 2;
  Running server(options);
  server.steps().blocked = true;
  const Connection first(server.port()), second(server.port());
  for (const Connection* busy : {&first, &second}) {
    busy->send(http_text("POST", "/v1/completions", stream_of(2).dump()));
    busy->read_some();
  }
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/v1/models").status, 503);
  server.steps().blocked = false;
}

TEST(Server, AFailedStepFailsItsRequestsAndNoOthers) {
  Running server;
  const std::string lone = server.post("/v1/completions", story()).json()["choices"][0]["text"];
  server.steps().num_failures = 1;
  const Reply failed = server.post("/v1/completions", story());
  EXPECT_EQ(failed.status, 500);
  EXPECT_THAT(failed.body, HasSubstr("a step that fails"));
  EXPECT_EQ(server.post("/v1/completions", story()).json()["choices"][0]["text"], lone);
  server.steps().num_failures = 1000;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(server.post("/v1/completions", story()).status, 500);
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.live()["state"], "failed");
}

TEST(Server, ACancelledAnswersPagesAreFreeAfterTheStepThatRuns) {
  Running server;
  server.steps().blocked = true;
  Connection connection(server.port());
  connection.send(http_text("POST", "/v1/completions", stream_of(400).dump()));
  EXPECT_TRUE(eventually([&] { return server.loop().step_time().count() > 0; }));
  connection.close();
  EXPECT_TRUE(eventually([&] { return server.live()["queue"]["outstanding"] == 0; }));
  server.steps().blocked = false;
  LoopSnapshot after;
  EXPECT_TRUE(eventually([&] {
    after = server.loop().snapshot();
    return after.num_steps > 0 && after.engine.num_running == 0;
  }));
  EXPECT_EQ(after.num_steps, 1);
  EXPECT_EQ(after.engine.num_pages, after.engine.num_free_pages + after.engine.num_cached_pages);
}

TEST(Server, AModelThatCannotBeLoadedEndsIt) {
  ServeOptions options;
  options.handles_signals = false;
  options.service.model_names = {"demo"};
  ServedModel model = demo_model(1, 1 << 20, std::make_shared<Steps>());
  model.make_engine = []() -> std::unique_ptr<Engine> { throw Failure("no such luck"); };
  Server server(options, std::move(model));
  EXPECT_THROW(server.run(), Failure);
}

TEST(Server, ALostDeviceOrATimeoutFailsTheEngineAtOnce) {
  for (const Steps::Fault fault : {Steps::Fault::lost_device, Steps::Fault::timeout}) {
    Running server;
    server.steps().fault = fault;
    server.steps().num_failures = 1;
    EXPECT_EQ(server.post("/v1/completions", story()).status, 500);
    EXPECT_TRUE(eventually([&] { return server.get("/health").status == 503; }));
    EXPECT_EQ(server.post("/v1/completions", story()).status, 500);
  }
}

TEST(Server, AStepThatDoesNotReturnFailsItsRequests) {
  ServeOptions options;
  options.service.step_limit = std::chrono::milliseconds(100);
  Running server(options);
  server.steps().blocked = true;
  EXPECT_EQ(server.post("/v1/completions", story()).status, 500);
  EXPECT_EQ(server.get("/health").status, 503);
  EXPECT_EQ(server.post("/v1/completions", story()).status, 500);
  server.steps().blocked = false;
  EXPECT_TRUE(eventually([&] { return server.loop().step_time().count() == 0; }));
  EXPECT_EQ(server.get("/health").status, 503);  // what the engine has computed since cannot be relied on
}

TEST(Server, AStepThatDoesNotReturnIsFoundAtTheEnd) {
  Running server;
  server.steps().blocked = true;
  const Connection connection(server.port());
  connection.send(http_text("POST", "/v1/completions", stream_of(2).dump()));
  EXPECT_TRUE(eventually([&] { return server.loop().step_time().count() > 0; }));
  EXPECT_FALSE(server.loop().stop_within(std::chrono::milliseconds(50)));
  server.steps().blocked = false;
  EXPECT_TRUE(server.loop().stop_within(std::chrono::seconds(120)));
}

// Keeps a status.
class Told : public Responder {
 public:
  void respond(HttpResponse response) override { status = response.status; }
  void begin(const HttpResponse& head) override { status = head.status; }
  void write(std::string) override {}
  void end() override {}
  void on_disconnect(std::function<void()>) override {}
  int status = 0;
};

// A service whose server's thread and workers are the test's thread.
class LoneService {
 public:
  LoneService() {
    ServiceOptions options;
    options.model_names = {"demo"};
    ServedModel model = demo_model(4, std::int64_t{64} << 20, std::make_shared<Steps>());
    const auto later = [this](std::function<void()> action) {
      const std::lock_guard lock(mutex_);
      if (std::this_thread::get_id() != thread_ && std::exchange(fails_, false)) throw std::bad_alloc();
      actions_.push_back(std::move(action));
    };
    service_.emplace(options, std::move(model.tokenizer), std::move(model.chat_template), model.defaults,
                     std::move(model.make_engine),
                     Threads{.server = later, .worker = later, .later = [](std::chrono::milliseconds, auto) {}});
    EXPECT_TRUE(eventually([&] { return service_->loop().state() == LoopState::running; }));
  }

  // What the engine's thread next hands to the server's throws.
  void fail_once() {
    const std::lock_guard lock(mutex_);
    fails_ = true;
  }

  int status_of(const std::string& path, const json& body) {
    const auto told = std::make_shared<Told>();
    service_->handle({.method = "POST", .path = path, .body = body.dump()}, told);
    EXPECT_TRUE(eventually([&] {
      run_actions();
      return told->status != 0;
    }));
    return told->status;
  }

  LoopState state() { return service_->loop().state(); }

 private:
  void run_actions() {
    std::vector<std::function<void()>> actions;
    {
      const std::lock_guard lock(mutex_);
      actions.swap(actions_);
    }
    for (const auto& action : actions) action();
  }

  const std::thread::id thread_ = std::this_thread::get_id();
  std::mutex mutex_;
  bool fails_ = false;
  std::vector<std::function<void()>> actions_;
  std::optional<Service> service_;  // last: its loop uses the others
};

TEST(Service, AFaultOfTheEnginesThreadBesideAStepFailsRequests) {
  LoneService service;
  EXPECT_EQ(service.status_of("/v1/completions", story()), 200);
  service.fail_once();
  EXPECT_EQ(service.status_of("/v1/completions", story()), 500);
  EXPECT_EQ(service.state(), LoopState::failed);
  EXPECT_EQ(service.status_of("/v1/completions", story()), 500);
}

}  // namespace
}  // namespace heddle::server
