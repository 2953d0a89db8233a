// How a server ends, is filled, and fails: draining, budgets, faults of the engine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>

#include "base/error.h"
#include "server/loopback.h"
#include "server/running_server.h"

namespace heddle::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

// Waits until `condition` holds, for 30 s at most.
template <class Condition>
bool eventually(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(120);
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

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
  const std::size_t num_tokens = 1'500'000;
  const json id = server->post("/tokenize", {{"prompt", " little"}, {"add_special_tokens", false}}).json()["tokens"][0];
  const std::string text = server->post("/detokenize", {{"tokens", {id}}}).json()["prompt"];
  const std::string number = id.dump();
  std::string body = "{\"tokens\":[" + number;
  body.reserve(16 + (number.size() + 1) * num_tokens);
  for (std::size_t i = 1; i < num_tokens; ++i) body.append(",").append(number);
  const Connection connection(server->port());
  connection.send(http_text("POST", "/detokenize", body + "]}"));
  const std::string first = connection.read_some();
  server->stop();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const Reply reply = parse_reply(first + connection.read_all(120));
  EXPECT_EQ(reply.status, 200);
  EXPECT_GE(reply.body.size(), num_tokens * text.size());
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

}  // namespace
}  // namespace heddle::server
