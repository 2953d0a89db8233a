#include <gmock/gmock.h>
#include <heddle/heddle.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <utility>

#include "base/error.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

const std::string kDemo = HEDDLE_SOURCE_DIR "/assets/demo-llama";
const TextModelOptions kCpu{.device = "cpu"};

struct Text {
  std::string text;
  std::vector<std::int32_t> tokens;
  std::optional<TextEnd> end;
};

// Steps until nothing is left.
std::map<std::int64_t, Text> texts_of(TextModel& model) {
  std::map<std::int64_t, Text> texts;
  while (!model.idle()) {
    for (const TextPiece& piece : model.step()) {
      Text& text = texts[piece.request];
      EXPECT_FALSE(text.end) << "a piece after the last one";
      text.text += piece.text;
      text.tokens.push_back(piece.token);
      text.end = piece.end;
    }
  }
  return texts;
}

Text answer(TextModel& model, const TextRequest& request) {
  const std::int64_t id = model.submit(request);
  return texts_of(model).at(id);
}

TEST(TextModel, ContinuesAPromptUpToTheModelsEnd) {
  TextModel model(kDemo, kCpu);
  const Text text = answer(model, {.prompt = model.encode("137 + 254 =")});
  EXPECT_THAT(text.text, StartsWith(" 391"));
  EXPECT_EQ(text.end, TextEnd::stop);
  EXPECT_EQ(text.tokens.back(), model.tokenizer().eos_id());
}

TEST(TextModel, EndsAtMaxTokens) {
  TextModel model(kDemo, kCpu);
  const Text text = answer(model, {.prompt = model.encode("Once upon a time"), .max_tokens = 3});
  EXPECT_EQ(text.tokens.size(), 3U);
  EXPECT_EQ(text.end, TextEnd::length);
}

TEST(TextModel, EndsBeforeAStopStringAndForgetsTheRequest) {
  TextModel model(kDemo, kCpu);
  const std::vector<std::int32_t> prompt = model.encode("Once upon a time");
  const std::string whole = answer(model, {.prompt = prompt}).text;
  const std::string stop = whole.substr(whole.size() / 2, 5);
  const Text text = answer(model, {.prompt = prompt, .stop = {stop}});
  EXPECT_EQ(text.text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(text.end, TextEnd::stop);
  EXPECT_TRUE(model.idle());
}

TEST(TextModel, StopsAtTokensIgnoresEosAndAddsBiases) {
  TextModel model(kDemo, kCpu);
  const std::vector<std::int32_t> prompt = model.encode("137 + 254 =");
  const std::vector<std::int32_t> whole = answer(model, {.prompt = prompt}).tokens;
  const Text stopped = answer(model, {.prompt = prompt, .stop_ids = {whole[2]}});
  EXPECT_EQ(stopped.tokens, std::vector<std::int32_t>(whole.begin(), whole.begin() + 3));
  EXPECT_EQ(stopped.end, TextEnd::stop);
  const Text on = answer(model, {.prompt = prompt, .max_tokens = 20, .ignore_eos = true});
  EXPECT_EQ(on.tokens.size(), 20U);
  EXPECT_EQ(on.end, TextEnd::length);
  const Text biased = answer(
      model, {.prompt = prompt, .max_tokens = 3, .ignore_eos = true, .logit_bias = {{whole[0], -100}, {77, 40}}});
  EXPECT_EQ(biased.tokens, std::vector<std::int32_t>(3, 77));
}

TEST(TextModel, EndsAtTheLargestContext) {
  TextModel model(kDemo, {.device = "cpu", .max_context = 14});
  EXPECT_EQ(model.max_length(), 14);
  const std::vector<std::int32_t> prompt = model.encode("137 + 254 =");
  EXPECT_EQ(answer(model, {.prompt = prompt, .ignore_eos = true}).tokens.size(), 14 - prompt.size());
}

TEST(TextModel, RequestsTogetherGiveTheTextsThatTheyGiveAlone) {
  TextModel model(kDemo, kCpu);
  const char* const prompts[] = {"137 + 254 =", "Once upon a time", "3 + 4 ="};
  std::map<std::int64_t, std::string> alone;
  std::vector<std::int64_t> requests;
  for (const char* prompt : prompts)
    requests.push_back(model.submit({.prompt = model.encode(prompt), .temperature = 0.8, .seed = 7}));
  const std::map<std::int64_t, Text> together = texts_of(model);
  for (std::size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(together.at(requests[i]).text,
              answer(model, {.prompt = model.encode(prompts[i]), .temperature = 0.8, .seed = 7}).text);
}

TEST(TextModel, AnswersAChatAndReadsItFromJsonToo) {
  TextModel model(kDemo, kCpu);
  const std::vector<ChatMessage> messages{{.role = "user", .content = "What is 137 plus 254?"}};
  const std::vector<std::int32_t> prompt = model.encode_chat(messages);
  EXPECT_THAT(model.tokenizer().decode(prompt), StartsWith("<|begin|><|user|>"));
  EXPECT_EQ(prompt, model.encode_chat(R"([{"role": "user", "content": "What is 137 plus 254?"}])"));
  EXPECT_EQ(answer(model, {.prompt = prompt}).text, "137 plus 254 is 391.");
}

TEST(TextModel, SamplesAsTheModelsFolderSaysUnlessTheRequestDoes) {
  const TemporaryFolder folder;
  for (const fs::directory_entry& entry : fs::directory_iterator(kDemo))
    fs::create_symlink(entry.path(), folder.path() / entry.path().filename());
  fs::remove(folder.path() / "generation_config.json");
  std::ofstream(folder.path() / "generation_config.json") << R"({"do_sample": true, "temperature": 1.5})";

  TextModel greedy(kDemo, kCpu);
  TextModel sampling(folder.path().string(), kCpu);
  const std::vector<std::int32_t> prompt = greedy.encode("Once upon a time");
  const std::string first = answer(sampling, {.prompt = prompt, .seed = 1}).text;
  EXPECT_EQ(first, answer(sampling, {.prompt = prompt, .seed = 1}).text);
  EXPECT_NE(first, answer(sampling, {.prompt = prompt, .seed = 2}).text);
  EXPECT_EQ(answer(sampling, {.prompt = prompt, .temperature = 0}).text, answer(greedy, {.prompt = prompt}).text);
}

TEST(TextModel, CopiesOfAPromptGetTextsOfTheirOwnAndTheSameOnesInEveryRun) {
  const auto run = [] {
    TextModel model(kDemo, kCpu);
    const TextRequest request{.prompt = model.encode("Once upon a time"), .max_tokens = 12, .temperature = 1};
    for (int copy = 0; copy < 8; ++copy) model.submit(request);
    std::vector<std::string> texts;
    for (const auto& [id, text] : texts_of(model)) texts.push_back(text.text);
    return texts;
  };
  const std::vector<std::string> texts = run();
  EXPECT_GT(std::set<std::string>(texts.begin(), texts.end()).size(), 6U);
  EXPECT_EQ(run(), texts);
}

TEST(TextModel, CancelDropsARequestAndLeavesTheOthers) {
  TextModel model(kDemo, kCpu);
  const std::int64_t dropped = model.submit({.prompt = model.encode("Once upon a time")});
  const std::int64_t kept = model.submit({.prompt = model.encode("137 + 254 =")});
  model.step();
  model.cancel(dropped);
  const std::map<std::int64_t, Text> texts = texts_of(model);
  EXPECT_FALSE(texts.contains(dropped));
  EXPECT_EQ(texts.at(kept).end, TextEnd::stop);
}

TEST(TextModel, MovesWithItsRequests) {
  TextModel model(kDemo, kCpu);
  const std::int64_t id = model.submit({.prompt = model.encode("137 + 254 =")});
  TextModel moved = std::move(model);
  EXPECT_THAT(texts_of(moved).at(id).text, StartsWith(" 391"));
}

TEST(TextModel, RejectsOptionsByName) {
  const auto load = [](const TextModelOptions& options) { return [options] { TextModel(kDemo, options); }; };
  EXPECT_THAT(load({.device = "tpu"}),
              ThrowsMessage<InputError>("device is \"tpu\", expected auto, cpu, cuda or cuda:N"));
  EXPECT_THAT(load({.device = "cpu", .threads = -1}), ThrowsMessage<InputError>(HasSubstr("threads is -1")));
  EXPECT_THAT(load({.device = "cpu", .max_sequences = 0}), ThrowsMessage<InputError>(HasSubstr("max_sequences is 0")));
  EXPECT_THAT(load({.device = "cpu", .kv_bytes = 0}), ThrowsMessage<InputError>(HasSubstr("kv_bytes is 0")));
  EXPECT_THAT(load({.device = "cpu", .max_context = 1}), ThrowsMessage<InputError>(HasSubstr("max_context is 1")));
  EXPECT_THAT([] { TextModel("/no/such/folder"); }, ThrowsMessage<InputError>(HasSubstr("/no/such/folder")));
}

TEST(TextModel, RejectsARequestAndGoesOn) {
  TextModel model(kDemo, kCpu);
  const std::vector<std::int32_t> prompt = model.encode("137 + 254 =");
  const TextRequest wrong[] = {
      {.prompt = {}},
      {.prompt = {1 << 20}},  // no token of the model
      {.prompt = std::vector<std::int32_t>(static_cast<std::size_t>(model.max_length()), prompt[1])},
      {.prompt = prompt, .max_tokens = 0},
      {.prompt = prompt, .stop = {""}},
      {.prompt = prompt, .logit_bias = {{1 << 20, 1}}},
      {.prompt = prompt, .temperature = -1},
      {.prompt = prompt, .top_p = 2},
  };
  for (const TextRequest& request : wrong) EXPECT_THROW(model.submit(request), InputError);
  EXPECT_THROW(model.encode("\xff"), InputError);
  EXPECT_THROW(model.encode_chat("{"), InputError);
  EXPECT_THROW(model.encode_chat(std::vector<ChatMessage>{{.role = "user", .content = "\xff"}}), InputError);
  EXPECT_TRUE(model.idle());
  EXPECT_THAT(answer(model, {.prompt = prompt}).text, Not(IsEmpty()));
}

}  // namespace
}  // namespace heddle
