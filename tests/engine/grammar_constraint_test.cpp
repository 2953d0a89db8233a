// Requests with a constraint: what the engine samples, and how answers end.
#include "engine/grammar_constraint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "engine/engine.h"
#include "models/registry.h"
#include "text/tokenizer/tokenizer.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using grammar::GrammarSource;
using Kind = GrammarSource::Kind;
using testing::HasSubstr;

const std::filesystem::path& demo_folder() {
  static const auto folder = std::filesystem::path(HEDDLE_SOURCE_DIR) / "assets/demo-llama";
  return folder;
}

const Tokenizer& demo_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::load(demo_folder());
  return tokenizer;
}

Engine demo_engine(const EngineOptions& options = {}) {
  return Engine(load_model(Checkpoint(demo_folder()), {}), options);
}

struct GrammarAnswer {
  std::string text;
  std::vector<std::int32_t> tokens;
  FinishReason finish = FinishReason::error;
  std::string error;
};

GrammarAnswer answer_of(Engine& engine, Request request) {
  const std::int64_t id = engine.submit(std::move(request));
  GrammarAnswer answer;
  while (!engine.idle())
    for (const TokenOutput& output : engine.step()) {
      if (output.request != id) continue;
      if (output.finish) answer.finish = *output.finish;
      answer.error = output.error;
      if (output.error.empty()) answer.tokens.push_back(output.token);
    }
  answer.text = demo_tokenizer().decode(answer.tokens, Specials::skip);
  return answer;
}

Request request_of(GrammarConstraints& constraints, const GrammarSource& source, double temperature,
                   std::uint64_t seed = 1) {
  const std::int32_t eos = *demo_tokenizer().eos_id();
  return {.prompt = demo_tokenizer().encode("Once upon a time"),
          .sampling = {.temperature = temperature, .seed = seed},
          .max_tokens = 200,
          .stop_ids = {eos},
          .constraint = constraints.make(source, "test", {eos})};
}

const GrammarSource& person() {
  static const GrammarSource source{
      .kind = Kind::json_schema,
      .text =
          R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer",
        "minimum": 1, "maximum": 99}, "tags": {"type": "array", "items": {"enum": ["big", "small"]}, "maxItems": 2}},
        "required": ["name", "age"], "additionalProperties": false})"};
  return source;
}

TEST(GrammarConstraint, AnswersAreJsonOfTheSchema) {
  Engine engine = demo_engine();
  GrammarConstraints constraints(demo_tokenizer());
  for (const double temperature : {0.0, 1.0}) {
    const std::uint64_t seeds = temperature == 0 ? 1 : 8;  // which greedy answers do not depend on
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      const GrammarAnswer answer = answer_of(engine, request_of(constraints, person(), temperature, seed));
      ASSERT_EQ(answer.finish, FinishReason::stop) << answer.text << answer.error;
      const auto value = nlohmann::json::parse(answer.text);
      EXPECT_LE(value.at("name").get<std::string>().size(), 48U);
      EXPECT_GE(value.at("age").get<int>(), 1);
      EXPECT_LE(value.at("age").get<int>(), 99);
    }
  }
}

TEST(GrammarConstraint, ACompleteAnswerStopsAtOnce) {
  Engine engine = demo_engine();
  GrammarConstraints constraints(demo_tokenizer());
  const GrammarSource source{.kind = Kind::choice, .choices = {"The end.", "The cat."}};
  const GrammarAnswer answer = answer_of(engine, request_of(constraints, source, 0));
  EXPECT_EQ(answer.finish, FinishReason::stop);
  EXPECT_TRUE(answer.text == "The end." || answer.text == "The cat.") << answer.text;
  EXPECT_NE(answer.tokens.back(), *demo_tokenizer().eos_id());
}

TEST(GrammarConstraint, TheEndTokenComesOnlyWhereTheTextMatches) {
  Engine engine = demo_engine();
  GrammarConstraints constraints(demo_tokenizer());
  const std::int32_t eos = *demo_tokenizer().eos_id();
  const GrammarSource source{.kind = Kind::regex, .text = "(ab){3,}"};
  Request request = request_of(constraints, source, 0);
  request.logit_bias = {{eos, 1000}};  // as soon as it may
  const GrammarAnswer answer = answer_of(engine, std::move(request));
  EXPECT_EQ(answer.finish, FinishReason::stop);
  EXPECT_EQ(answer.tokens.back(), eos);
  EXPECT_EQ(answer.text, "ababab");
}

TEST(GrammarConstraint, SpecialTokensAreNeverText) {
  GrammarConstraints constraints(demo_tokenizer());
  const std::int32_t eos = *demo_tokenizer().eos_id();
  const auto constraint = constraints.make({.kind = Kind::regex, .text = "x.*"}, "test", {eos});
  const auto allowed = [&](std::int32_t id) {
    const auto words = constraint->allowed();
    const auto word = static_cast<std::size_t>(id) / 64;
    return word < words.size() && (words[word] >> (static_cast<std::size_t>(id) % 64) & 1) != 0;
  };
  EXPECT_FALSE(allowed(eos));
  constraint->accept(*demo_tokenizer().id_of("x"));
  for (std::int32_t id = 0; id < demo_tokenizer().vocab_size(); ++id)
    if (demo_tokenizer().is_special(id)) {
      EXPECT_EQ(allowed(id), id == eos) << id;
    }
  EXPECT_FALSE(constraint->complete());
}

TEST(GrammarConstraint, OverlapAndPreemptionChangeNothing) {
  GrammarConstraints constraints(demo_tokenizer());
  Engine plain = demo_engine();
  const GrammarAnswer expected = answer_of(plain, request_of(constraints, person(), 1, 5));
  Engine overlapping = demo_engine({.overlap = Overlap::on});
  EXPECT_EQ(answer_of(overlapping, request_of(constraints, person(), 1, 5)).tokens, expected.tokens);

  // Beside others, in a cache that holds few of them.
  Engine small = demo_engine({.max_sequences = 8, .page_size = 8, .kv_bytes = 24 * 8 * 6 * 2 * 2 * 32 * 4});
  for (std::uint64_t seed = 10; seed < 20; ++seed) small.submit(request_of(constraints, person(), 1, seed));
  EXPECT_EQ(answer_of(small, request_of(constraints, person(), 1, 5)).tokens, expected.tokens);
}

class NothingAllowed final : public TokenConstraint {
 public:
  std::span<const std::uint64_t> allowed() override { return {}; }
  void accept(std::int32_t) override {}
  bool complete() override { return false; }
};

TEST(GrammarConstraint, ARequestThatNoTokenContinuesFailsAlone) {
  Engine engine = demo_engine();
  GrammarConstraints constraints(demo_tokenizer());
  Request request = request_of(constraints, person(), 0);
  const std::int64_t other = engine.submit(request_of(constraints, person(), 0));
  request.constraint = std::make_shared<NothingAllowed>();
  const std::int64_t failing = engine.submit(std::move(request));
  std::optional<FinishReason> ends[2];
  while (!engine.idle())
    for (const TokenOutput& output : engine.step()) {
      if (output.finish) ends[output.request == failing ? 1 : 0] = output.finish;
      if (output.request == failing) {
        EXPECT_THAT(output.error, HasSubstr("no token of the model can continue"));
      }
    }
  EXPECT_EQ(ends[0], FinishReason::stop) << other;
  EXPECT_EQ(ends[1], FinishReason::error);
}

TEST(GrammarConstraint, NamesTheSourceInErrors) {
  GrammarConstraints constraints(demo_tokenizer());
  try {
    constraints.make({.kind = Kind::json_schema, .text = R"({"not": {}})"}, "response_format", {});
    ADD_FAILURE() << "no error";
  } catch (const InputError& error) {
    EXPECT_THAT(error.what(), HasSubstr("response_format: #: the keyword \"not\" is not supported"));
  }
}

}  // namespace
}  // namespace heddle
