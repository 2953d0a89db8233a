// A whole server with the demo model on loopback.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <thread>

#include "base/error.h"
#include "server/loopback.h"
#include "server/running_server.h"

namespace heddle::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

TEST(Server, StreamsWhatItAnswersWhole) {
  Running server;
  const Reply whole = server.post("/v1/completions", story());
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json answer = whole.json();
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(answer["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 12);
  EXPECT_THAT(whole.head, HasSubstr("X-Request-Id: "));

  json body = story();
  body["stream"] = true;
  body["stream_options"] = {{"include_usage", true}};
  const Reply stream = server.post("/v1/completions", body, "X-Request-Id: mine-1\r\n");
  EXPECT_THAT(stream.head, HasSubstr("text/event-stream"));
  EXPECT_THAT(stream.head, HasSubstr("X-Request-Id: mine-1"));
  const auto events = stream.events();
  EXPECT_EQ(answer["choices"][0]["text"], text_of(events));
  EXPECT_EQ(events.back()["usage"], answer["usage"]);
  EXPECT_EQ(events[events.size() - 2]["choices"][0]["finish_reason"], "length");
  EXPECT_TRUE(stream.body.ends_with("data: [DONE]\n\n"));
}

TEST(Server, ChatsThroughTheModelsTemplate) {
  Running server;
  json body{{"messages", {{{"role", "user"}, {"content", "Tell me a story."}}}},
            {"max_tokens", 8},
            {"logprobs", true},
            {"top_logprobs", 2}};
  const Reply whole = server.post("/v1/chat/completions", body);
  ASSERT_EQ(whole.status, 200) << whole.body;
  const json choice = whole.json()["choices"][0];
  EXPECT_EQ(choice["message"]["role"], "assistant");
  ASSERT_GE(choice["logprobs"]["content"].size(), 1U);
  EXPECT_EQ(choice["logprobs"]["content"][0]["top_logprobs"].size(), 2U);
  body["stream"] = true;
  const auto events = server.post("/v1/chat/completions", body).events();
  EXPECT_EQ(events[0]["choices"][0]["delta"]["role"], "assistant");
  EXPECT_EQ(choice["message"]["content"], text_of(events));
}

TEST(Server, SamplesDifferAndTheFirstIsTheLoneAnswer) {
  Running server;
  json body = story();
  const std::string lone = server.post("/v1/completions", body).json()["choices"][0]["text"];
  body["n"] = 3;
  const json choices = server.post("/v1/completions", body).json()["choices"];
  ASSERT_EQ(choices.size(), 3U);
  EXPECT_EQ(choices[0]["text"], lone);
  EXPECT_NE(choices[1]["text"], lone);
  body["best_of"] = 4;
  body["n"] = 1;
  EXPECT_EQ(server.post("/v1/completions", body).json()["choices"].size(), 1U);
  const json state = server.idle();
  EXPECT_EQ(state["pages"]["total"], state["pages"]["free"].get<int>() + state["pages"]["cached"].get<int>());
}

TEST(Server, EchoScoresThePrompt) {
  Running server;
  const json body{{"prompt", {10, 11, 12}}, {"max_tokens", 1}, {"echo", true}, {"logprobs", 1}};
  const json logprobs = server.post("/v1/completions", body).json()["choices"][0]["logprobs"];
  EXPECT_EQ(logprobs["token_logprobs"].size(), 4U);
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_LT(logprobs["token_logprobs"][1], 0);
  const json scored{{"prompt", {10, 11, 12}}, {"max_tokens", 1}, {"prompt_logprobs", 1}};
  const json entry = server.post("/v1/completions", scored).json()["choices"][0]["prompt_logprobs"][1];
  EXPECT_GE(entry["11"]["rank"], 1);  // though it is not among the first
  json only = body;
  only["max_tokens"] = 0;
  EXPECT_EQ(server.post("/v1/completions", only).json()["choices"][0]["logprobs"]["tokens"].size(), 3U);
}

// Special tokens are no part of the text, and a character may be cut between tokens.
TEST(Server, OffsetsOfTokensCountTheTextsCharacters) {
  Running server;
  const std::string prompt = "na\u00efve \u65e5 boy";
  const json body{{"prompt", prompt}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 1}};
  const json logprobs = server.post("/v1/completions", body).json()["choices"][0]["logprobs"];
  const json& tokens = logprobs["tokens"];
  const json& offsets = logprobs["text_offset"];
  ASSERT_GT(tokens.size(), 8U);
  EXPECT_EQ(tokens[0], "<|begin|>");
  EXPECT_EQ(offsets[1], 0);
  EXPECT_EQ(tokens.back(), " boy");
  EXPECT_EQ(offsets.back(), 7);  // "na\u00efve \u65e5" has 7 characters
  std::size_t num_cut = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto text = tokens[i].get<std::string>();
    num_cut += text.starts_with("bytes:\\x") ? 1 : 0;
    EXPECT_THAT(text, testing::Not(HasSubstr("\xEF\xBF\xBD")));  // U+FFFD
  }
  EXPECT_GE(num_cut, 2U);
}

TEST(Server, StopsAtStringsAndHoldsBackEnds) {
  Running server;
  json body = story(64);
  const std::string text = server.post("/v1/completions", body).json()["choices"][0]["text"];
  const std::string stop = text.substr(text.size() / 2, 4);
  body["stop"] = {stop};
  const json choice = server.post("/v1/completions", body).json()["choices"][0];
  EXPECT_EQ(choice["text"], text.substr(0, text.find(stop)));
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(server.idle()["batch"]["running"], 0);
}

TEST(Server, RefusesByName) {
  ServeOptions options;
  options.service.access.only_local_hosts = true;
  options.service.model_names = {"demo", "second"};
  Running server(options);
  const auto error_of = [](const Reply& reply) { return reply.json()["error"]; };
  EXPECT_EQ(server.post("/v1/embeddings", json::object()).status, 501);
  EXPECT_EQ(server.post("/v1/responses", json::object()).status, 501);
  EXPECT_EQ(server.post("/v1/nothing", json::object()).status, 404);
  const Reply wrong_method = server.get("/v1/completions");
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_THAT(wrong_method.head, HasSubstr("Allow: POST\r\n"));
  json body = story();
  body["model"] = "other";
  EXPECT_EQ(error_of(server.post("/v1/completions", body))["code"], "model_not_found");
  body["model"] = "demo";
  body["prompt"] = std::string(5000, 'a');
  const Reply too_long = server.post("/v1/completions", body);
  EXPECT_EQ(too_long.status, 400);
  EXPECT_EQ(error_of(too_long)["code"], "context_length_exceeded");
  EXPECT_EQ(error_of(too_long)["param"], "prompt");
  EXPECT_EQ(server.get("/v1/models").json()["data"][0]["id"], "demo");
  EXPECT_EQ(server.get("/v1/models").json()["data"][1]["id"], "second");
  EXPECT_EQ(server.get("/v1/models/demo").status, 200);
  EXPECT_EQ(server.get("/v1/models/%64em%6F").status, 200);  // clients encode "/" and ":" of names so
  EXPECT_EQ(server.get("/v1/models/demo%").status, 404);
  EXPECT_EQ(server.get("/v1/models/%").status, 404);
  EXPECT_EQ(server.get("/v1/models/").status, 404);  // of the one with an empty name, not of the first
  EXPECT_EQ(server.get("/v1/models/x").status, 404);
  EXPECT_EQ(ask(server.port(), "POST", "/v1/completions", "{", {}).status, 400);
  EXPECT_EQ(server.get("/", "Origin: http://evil.example\r\n").status, 403);
  const Connection raw(server.port());
  raw.send("NONSENSE\r\n\r\n");
  EXPECT_EQ(parse_reply(raw.read_all()).status, 400);
  const Connection rebound(server.port());
  rebound.send("GET /v1/models HTTP/1.1\r\nHost: 127.evil.example\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(parse_reply(rebound.read_all()).status, 403);
}

TEST(Server, AnswersHaveTheFormThatTheyAreAskedFor) {
  Running server;
  json body = story(200);
  body.erase("ignore_eos");
  body["guided_choice"] = {"yes", "no"};
  const json choice = server.post("/v1/completions", body).json()["choices"][0];
  EXPECT_THAT(choice["text"].get<std::string>(), testing::AnyOf("yes", "no"));
  EXPECT_EQ(choice["finish_reason"], "stop");
  json chat{{"messages", {{{"role", "user"}, {"content", "Hello"}}}}, {"max_tokens", 200}};
  chat["response_format"] = {
      {"type", "json_schema"},
      {"json_schema",
       {{"name", "n"},
        {"schema", {{"type", "object"}, {"properties", {{"ok", {{"type", "boolean"}}}}}, {"required", {"ok"}}}}}}};
  const json answer = server.post("/v1/chat/completions", chat).json();
  EXPECT_TRUE(json::parse(answer["choices"][0]["message"]["content"].get<std::string>())["ok"].is_boolean()) << answer;
  body["guided_regex"] = "a+";
  EXPECT_EQ(server.post("/v1/completions", body).status, 400);  // two forms
  body.erase("guided_choice");
  body["guided_regex"] = "(";
  EXPECT_EQ(server.post("/v1/completions", body).status, 400);
}

TEST(Server, ReasoningIsApartFromTheAnswer) {
  ServeOptions options;
  options.service.reasons = true;
  Running server(options);
  json body{{"messages", {{{"role", "user"}, {"content", "How late is it?"}}}}, {"max_tokens", 100}};
  server.let_answer("<think>It is dark.</think>It is late.");
  const json message = server.post("/v1/chat/completions", body).json()["choices"][0]["message"];
  EXPECT_EQ(message.value("reasoning_content", ""), "It is dark.") << message;
  EXPECT_EQ(message["content"], "It is late.");
  server.let_answer("<think>It is dark.</think>It is late.");
  body["stream"] = true;
  std::string reasoning, content;
  for (const json& event : server.post("/v1/chat/completions", body).events()) {
    const json delta = event["choices"][0]["delta"];
    if (delta.contains("reasoning_content")) {
      EXPECT_EQ(content, "");
      reasoning += delta["reasoning_content"].get<std::string>();
    } else if (delta.contains("content") && delta["content"].is_string()) {
      content += delta["content"].get<std::string>();
    }
  }
  EXPECT_EQ(reasoning, "It is dark.");
  EXPECT_EQ(content, "It is late.");
}

TEST(Server, AJsonObjectIsAllThatAnAnswerSaysIfItMayBeNothingElse) {
  Running server;
  json body{{"messages", {{{"role", "user"}, {"content", "Who is it?"}}}},
            {"max_tokens", 100},
            {"response_format", {{"type", "json_object"}}}};
  server.let_answer(R"({"name": "Ada", "ages": [1, 2]} she said.)");
  const json choice = server.post("/v1/chat/completions", body).json()["choices"][0];
  EXPECT_EQ(json::parse(choice["message"]["content"].get<std::string>()),
            json::parse(R"({"name": "Ada", "ages": [1, 2]})"));
  EXPECT_EQ(choice["finish_reason"], "stop");
  server.let_answer("Ada");
  body["max_tokens"] = 1;
  const json begun = server.post("/v1/chat/completions", body).json()["choices"][0];
  EXPECT_THAT(begun["message"]["content"].get<std::string>(), testing::StartsWith("{"));
}

// The calls of a streamed answer: name and arguments, joined.
std::vector<std::pair<std::string, std::string>> calls_of(const std::vector<json>& events) {
  std::vector<std::pair<std::string, std::string>> calls;
  for (const json& event : events)
    for (const json& choice : event["choices"]) {
      if (!choice["delta"].contains("tool_calls")) continue;
      for (const json& call : choice["delta"]["tool_calls"]) {
        if (call["index"] == calls.size()) calls.emplace_back(call["function"]["name"], "");
        calls.back().second += call["function"]["arguments"].get<std::string>();
      }
    }
  return calls;
}

TEST(Server, CallsToolsThatARequestForces) {
  for (const ToolFormat format : {ToolFormat::none, ToolFormat::tagged}) {
    ServeOptions options;
    options.service.tools = format;
    Running server(options);
    const json weather = json::parse(R"({"type": "function", "function": {"name": "weather", "parameters": {
        "type": "object", "properties": {"unit": {"enum": ["C", "F"]}, "days": {"$ref": "#/$defs/n"}},
        "required": ["unit", "days"], "$defs": {"n": {"type": "integer", "minimum": 1, "maximum": 9}}}}})");
    const json clock = json::parse(R"({"type": "function", "function": {"name": "clock"}})");
    json body{{"messages", {{{"role", "user"}, {"content", "Hello"}}}},
              {"max_tokens", 400},
              {"tools", {clock, weather}},
              {"tool_choice", {{"type", "function"}, {"function", {{"name", "weather"}}}}}};
    const json choice = server.post("/v1/chat/completions", body).json()["choices"][0];
    ASSERT_EQ(choice["message"]["tool_calls"].size(), 1U) << choice;
    const json& call = choice["message"]["tool_calls"][0];
    EXPECT_EQ(choice["finish_reason"], "tool_calls");
    EXPECT_TRUE(choice["message"]["content"].is_null());
    EXPECT_EQ(call["function"]["name"], "weather");
    const json arguments = json::parse(call["function"]["arguments"].get<std::string>());
    EXPECT_THAT(arguments["unit"].get<std::string>(), testing::AnyOf("C", "F"));
    EXPECT_THAT(arguments["days"].get<int>(), testing::AllOf(testing::Ge(1), testing::Le(9)));

    body["stream"] = true;
    const auto events = server.post("/v1/chat/completions", body).events();
    const auto calls = calls_of(events);
    ASSERT_EQ(calls.size(), 1U);
    EXPECT_EQ(call["function"]["arguments"], calls[0].second);
    EXPECT_GT(events.size(), 4U);  // the arguments came in pieces
    EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "tool_calls");

    body["tool_choice"] = "required";
    body["parallel_tool_calls"] = false;
    EXPECT_EQ(calls_of(server.post("/v1/chat/completions", body).events()).size(), 1U);
    body["parallel_tool_calls"] = true;  // a model that was never taught may go on until it is cut
    body["temperature"] = 1;
    EXPECT_GE(calls_of(server.post("/v1/chat/completions", body).events()).size(), 1U);
    body["tools"][1]["function"]["parameters"]["properties"]["days"] = {{"not", json::object()}};
    const json error = server.post("/v1/chat/completions", body).json()["error"];
    EXPECT_EQ(error["param"], "tools");
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("\"not\""));
  }
}

TEST(Server, ARequestThatTakesTooLongEndsWithAnError) {
  ServeOptions options;
  options.service.request_limit = std::chrono::milliseconds(1);
  Running server(options);
  json body = story(450);
  body["n"] = 32;
  const Reply whole = server.post("/v1/completions", body);
  EXPECT_EQ(whole.status, 504);
  EXPECT_EQ(whole.json()["error"]["type"], "timeout_error");
  body["stream"] = true;
  const auto events = server.post("/v1/completions", body).events();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["error"]["type"], "timeout_error");
  const json state = server.idle();
  EXPECT_EQ(state["pages"]["total"], state["pages"]["free"].get<int>() + state["pages"]["cached"].get<int>());
}

TEST(Server, TokenizesBothWays) {
  Running server;
  const json tokens = server.post("/tokenize", {{"prompt", "Once upon"}}).json();
  EXPECT_EQ(tokens["count"], tokens["tokens"].size());
  EXPECT_THAT(server.post("/detokenize", {{"tokens", tokens["tokens"]}}).json()["prompt"].get<std::string>(),
              HasSubstr("Once upon"));
  EXPECT_EQ(server.post("/detokenize", {{"tokens", {-1}}}).status, 400);
  const json texts = server.post("/tokenize", {{"prompt", "Once"}, {"return_token_strs", true}}).json()["token_strs"];
  EXPECT_EQ(texts, json({"<|begin|>", "Once"}));
  const auto prompt_tokens = [&](bool add) {
    const json body{{"prompt", "Once"}, {"max_tokens", 1}, {"add_special_tokens", add}};
    return server.post("/v1/completions", body).json()["usage"]["prompt_tokens"];
  };
  EXPECT_EQ(prompt_tokens(true), 2);
  EXPECT_EQ(prompt_tokens(false), 1);
}

TEST(Server, KeysOpenEveryRouteButHealth) {
  ServeOptions options;
  options.service.access.api_keys = ApiKeys::parse("user-key-1\n", "keys");
  options.service.access.admin_keys = ApiKeys::parse("admin-key-1\n", "keys");
  Running server(options);
  const std::string user = "Authorization: Bearer user-key-1\r\n";
  const std::string admin = "Authorization: Bearer admin-key-1\r\n";
  EXPECT_EQ(server.get("/health").status, 200);
  EXPECT_EQ(server.get("/v1/models").status, 401);
  EXPECT_EQ(server.post("/v1/completions", story(), "Authorization: Bearer wrong-key\r\n").status, 401);
  EXPECT_EQ(server.post("/v1/completions", story(), user).status, 200);
  const Connection early(server.port());  // refused by its head alone, whose body never comes
  early.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n");
  EXPECT_EQ(parse_reply(early.read_some()).status, 401);
  EXPECT_EQ(server.get("/metrics", user).status, 401);
  const Reply metrics = server.get("/metrics", admin);
  EXPECT_EQ(metrics.status, 200);
  EXPECT_THAT(metrics.body, HasSubstr("heddle:generation_tokens_total{model_name=\"demo\"} 12"));
  EXPECT_THAT(metrics.body, HasSubstr("heddle:time_to_first_token_seconds_bucket"));
  EXPECT_THAT(metrics.body, HasSubstr("request_success_total{model_name=\"demo\",finished_reason=\"stop\"} 0"));
  EXPECT_THAT(metrics.body, HasSubstr("heddle:request_generation_tokens_sum{model_name=\"demo\"} 12"));
  for (const char* name : {"request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
                           "request_inference_time_seconds", "request_prompt_tokens",
                           "request_max_num_generation_tokens", "request_params_n", "request_params_max_tokens"})
    EXPECT_THAT(metrics.body, HasSubstr(std::string("heddle:") + name + "_count{model_name=\"demo\"} 1")) << name;
  EXPECT_THAT(metrics.body, HasSubstr("heddle:iteration_tokens_total_bucket"));
  EXPECT_THAT(metrics.body, HasSubstr("heddle:cache_config_info{model_name=\"demo\",block_size=\"16\""));
}

TEST(Server, AFullQueueAnswers429WithRetryAfter) {
  ServeOptions options;
  options.service.max_sequences = 1;
  options.service.max_queue = 1;
  Running server(options);
  server.steps().blocked = true;
  json body = story();
  body["stream"] = true;
  const Connection running(server.port()), waiting(server.port());
  std::vector<std::string> answers;
  for (const Connection* each : {&running, &waiting}) {
    each->send(http_text("POST", "/v1/completions", body.dump()));
    answers.push_back(each->read_some());
  }
  for (int i = 0; i < 3; ++i) {
    const Reply refused = server.post("/v1/completions", story());
    EXPECT_EQ(refused.status, 429);
    EXPECT_THAT(refused.head, HasSubstr("Retry-After: "));
  }
  server.steps().blocked = false;
  EXPECT_TRUE(parse_reply(answers[0] + running.read_all()).body.ends_with("data: [DONE]\n\n"));
  EXPECT_TRUE(parse_reply(answers[1] + waiting.read_all()).body.ends_with("data: [DONE]\n\n"));
}

TEST(Server, ADisconnectedClientsPagesAreFreed) {
  Running server;
  json body = story(400);
  body["stream"] = true;
  Connection connection(server.port());
  connection.send(http_text("POST", "/v1/completions", body.dump()));
  ASSERT_FALSE(connection.read_some().empty());
  connection.close();
  const json state = server.idle();
  EXPECT_EQ(state["totals"]["cancelled"], 1);
  EXPECT_EQ(state["pages"]["total"], state["pages"]["free"].get<int>() + state["pages"]["cached"].get<int>());
}

TEST(Server, ManyClientsSomeOfThemRudeGetTheLoneAnswer) {
  ServeOptions options;
  options.service.max_sequences = 8;
  Running server(options, std::int64_t{1} << 20);  // pages run short: sequences are preempted
  json body = story(24);
  body["stream"] = true;
  const std::string lone = text_of(server.post("/v1/completions", body).events());
  std::vector<std::future<void>> clients;
  for (int i = 0; i < 24; ++i)
    clients.push_back(std::async(std::launch::async, [&, i] {
      Connection connection(server.port());
      const std::string bytes = http_text("POST", "/v1/completions", body.dump());
      if (i % 8 == 1) {  // slowly
        for (std::size_t at = 0; at < bytes.size(); at += 40) {
          connection.send(bytes.substr(at, 40));
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
      } else {
        connection.send(bytes);
      }
      if (i % 3 == 0) {
        connection.read_some();
        return connection.close();
      }
      EXPECT_EQ(text_of(parse_reply(connection.read_all()).events()), lone);
    }));
  for (auto& client : clients) client.get();
  const json state = server.idle();
  EXPECT_EQ(state["pages"]["total"], state["pages"]["free"].get<int>() + state["pages"]["cached"].get<int>());
}

TEST(Server, ASharedPrefixIsComputedOnce) {
  Running server;
  json body = story(2);
  body["prompt"] = std::vector<int>(100, 20);
  server.post("/v1/completions", body);
  const std::int64_t before = server.idle()["prefix"]["hit_tokens"];
  server.post("/v1/completions", body);
  const auto hits = [&] { return server.idle()["prefix"]["hit_tokens"].get<std::int64_t>() - before; };
  for (int i = 0; i < 500 && hits() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // counted later
  EXPECT_EQ(hits(), 96);                                         // whole pages of 16
}

TEST(Server, LimitsOfHeadAndBodyAreErrors) {
  ServeOptions options;
  options.http.max_body_bytes = 1000;
  options.http.body_limit = std::chrono::milliseconds(200);
  Running server(options);
  EXPECT_EQ(ask(server.port(), "POST", "/v1/completions", std::string(2000, 'x')).status, 413);
  // A client that sends all of a large body before it reads gets its answer, too.
  EXPECT_EQ(ask(server.port(), "POST", "/v1/completions", std::string(std::size_t{20} << 20, 'x')).status, 413);
  EXPECT_EQ(ask(server.port(), "GET", "/health", {}, "X-Long: " + std::string(20000, 'x') + "\r\n").status, 431);
  const Connection slow(server.port());
  slow.send("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(slow.read_all(5), "");  // closed after body_limit, long before 5 s
}

TEST(Server, AnIdleConnectionIsClosed) {
  ServeOptions options;
  options.http.idle_limit = std::chrono::milliseconds(500);
  Running server(options);
  const Connection silent(server.port()), slow(server.port()), kept(server.port());
  slow.send("GET /health HTTP/1.1\r\nHost");
  kept.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(silent.read_all(60), "");
  EXPECT_EQ(slow.read_all(60), "");
  EXPECT_EQ(parse_reply(kept.read_all(60)).status, 200);
  EXPECT_TRUE(eventually([&] { return server.num_connections() == 0; }));
}

TEST(Server, AClientThatTakesNothingOfItsAnswerIsLeft) {
  ServeOptions options;
  options.http.write_limit = std::chrono::milliseconds(200);
  Running server(options);
  const LongAnswer answer(server);
  const Connection connection(server.port());
  connection.send(answer.request);
  ASSERT_FALSE(connection.read_some().empty());
  EXPECT_TRUE(eventually([&] { return server.num_connections() == 0; }));
  EXPECT_LT(connection.read_all().size(), answer.fewest_bytes);
}

TEST(Server, AnAnswerThatWaitsForASlowClientIsBounded) {
  ServeOptions options;
  options.http.max_unsent_bytes = 16;  // less than a piece has
  Running server(options);
  json body = story(400);
  body["stream"] = true;
  EXPECT_THAT(server.post("/v1/completions", body).events(), testing::IsEmpty());
  EXPECT_EQ(server.idle()["totals"]["cancelled"], 1);
}

TEST(Server, LogsHaveCountsAndNoTexts) {
  std::vector<std::string> lines;  // of the server's thread
  ServeOptions options;
  options.note = options.http.note = options.service.log = [&](const std::string& line) { lines.push_back(line); };
  auto server = std::make_unique<Running>(options);
  json body = story(30);
  body["prompt"] = "The magic word is xyzzy";
  server->let_answer("plugh");
  EXPECT_EQ(server->post("/v1/completions", body).json()["choices"][0]["text"].get<std::string>().substr(0, 5),
            "plugh");
  body["stream"] = true;
  server->post("/v1/completions", body);
  server->post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "xyzzy"}}}}, {"max_tokens", 3}});
  server->steps().num_failures = 1;
  server->post("/v1/completions", body);
  server->post("/v1/completions", {{"prompt", "xyzzy"}, {"max_tokens", -1}});
  server->post("/v1/completions", {{"prompt", "xyzzy"}, {"stop", {{"xyzzy", 1}}}});
  server.reset();
  std::string all;
  for (const std::string& line : lines) all += line + "\n";
  EXPECT_THAT(all, HasSubstr("1 answers, "));
  EXPECT_THAT(all, testing::Not(testing::AnyOf(HasSubstr("xyzzy"), HasSubstr("plugh"), HasSubstr("magic"))));
}

TEST(Server, KeepsConnectionsForFurtherRequests) {
  Running server;
  const Connection connection(server.port());
  const std::string request = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  connection.send(request + request);  // pipelined, too
  std::string bytes;
  while (bytes.find("ok\"}\n") == bytes.rfind("ok\"}\n")) {
    const std::string more = connection.read_some();
    ASSERT_FALSE(more.empty());
    bytes += more;
  }
}

TEST(Server, ServesThePageWithAPolicy) {
  Running server;
  const Reply page = server.get("/");
  EXPECT_EQ(page.status, 200);
  EXPECT_THAT(page.head, HasSubstr("Content-Security-Policy: default-src 'none'"));
}

}  // namespace
}  // namespace heddle::server
