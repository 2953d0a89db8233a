// heddle generate with prompts files and with several samples of a prompt.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <future>
#include <set>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/sanitizer.h"
#include "end_to_end/json_lines.h"
#include "end_to_end/program.h"
#include "engine/chi_square.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::ContainsRegex;
using testing::ElementsAre;
using testing::HasSubstr;
using Strings = std::vector<std::string>;

class GenerateBatch : public testing::Test {
 protected:
  static ProgramResult generate(const Strings& more, const ProgramOptions& options = {}) {
    return run_heddle(arguments(more), options);
  }

  // The answers to a file of these lines, as JSON.
  ProgramResult batch(const std::vector<json>& lines, Strings more = {}, const ProgramOptions& options = {}) {
    more.insert(more.end(), {"--prompts-file", write(lines)});
    return generate(more, options);
  }
  std::vector<json> answers(const std::vector<json>& lines, Strings more = {}) {
    more.push_back("--json");
    const ProgramResult result = batch(lines, more);
    EXPECT_EQ(result.status, 0) << result.err;
    return json_lines(result.out);
  }
  static json answer(Strings more) {
    more.push_back("--json");
    const ProgramResult result = generate(more);
    EXPECT_EQ(result.status, 0) << result.err;
    return json_lines(result.out).at(0);
  }

  std::string write(const std::vector<json>& lines) {
    std::string text;
    for (const json& line : lines) text += line.dump() + "\n";
    write_file(folder_.path() / "prompts.jsonl", text);
    return (folder_.path() / "prompts.jsonl").string();
  }

  static Strings arguments(const Strings& more) {
    Strings arguments{"generate", "--model", demo_model().string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return arguments;
  }

  TemporaryFolder folder_;
};

std::set<std::string> distinct_texts(const std::vector<json>& answers) {
  std::set<std::string> texts;
  for (const json& answer : answers) texts.insert(answer["text"].get<std::string>());
  return texts;
}

const json kStory{{"prompt", "Once upon a time"}};
const Strings kSampled{"--temperature", "1", "--seed", "5", "--max-tokens", "12"};

Strings with(Strings one, const Strings& other) {
  one.insert(one.end(), other.begin(), other.end());
  return one;
}

TEST_F(GenerateBatch, CopiesOfAPromptGetTextsOfTheirOwn) {
  EXPECT_GT(distinct_texts(answers(std::vector<json>(50, kStory), kSampled)).size(), 40u);
  EXPECT_GT(distinct_texts(answers({kStory}, with(kSampled, {"-n", "50"}))).size(), 40u);
}

TEST_F(GenerateBatch, TheSameSeedGivesTheSameFile) {
  const std::vector<json> lines(5, kStory);
  const auto run = [&](const std::string& seed, const Strings& more) {
    return batch(lines, with({"--json", "-n", "2", "--temperature", "1", "--max-tokens", "12", "--seed", seed}, more))
        .out;
  };
  EXPECT_EQ(run("5", {}), run("5", {"--threads", "1"}));
  EXPECT_NE(run("5", {}), run("6", {}));
}

// The first tokens of hundreds of prompts, and of as many samples, against the model's own probabilities.
TEST_F(GenerateBatch, FirstTokensFollowSoftmax) {
  constexpr int kVocab = 1280, kDrawn = 400;
  const json likely =
      answer({"--prompt", "Once upon a time", "--max-tokens", "1", "--logprobs", std::to_string(kVocab)});
  std::vector<double> probabilities(kVocab, 0);
  for (const json& top : likely["logprobs"][0]["top"])
    probabilities[top["id"].get<std::size_t>()] = std::exp(top["logprob"].get<double>());

  const Strings options{"--temperature", "1", "--seed", "9", "--max-tokens", "1"};
  for (const std::vector<json>& drawn : {answers(std::vector<json>(kDrawn, kStory), options),
                                         answers({kStory}, with(options, {"-n", std::to_string(kDrawn)}))}) {
    ASSERT_EQ(drawn.size(), std::size_t{kDrawn});
    std::vector<int> counts(kVocab, 0);
    for (const json& each : drawn) ++counts[each["tokens"][0].get<std::size_t>()];
    EXPECT_TRUE(follows(counts, probabilities));
  }
}

TEST_F(GenerateBatch, AnAnswersSeedRepeatsItAlone) {
  const std::vector<json> all = answers({kStory, kStory}, with(kSampled, {"-n", "2"}));
  ASSERT_EQ(all.size(), 4u);
  for (const json& one : all) {
    const json alone = answer(
        {"--prompt", "Once upon a time", "--temperature", "1", "--max-tokens", "12", "--seed", one["seed"].dump()});
    EXPECT_EQ(alone["tokens"], one["tokens"]) << "alone or in company";
  }
}

TEST_F(GenerateBatch, ALinesOwnSeedIsNotMixedWithItsNumber) {
  json own = kStory;
  own["seed"] = 5;
  const std::vector<json> all = answers({kStory, own, own}, with(kSampled, {"-n", "2"}));
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[0]["tokens"], answer(with({"--prompt", "Once upon a time"}, kSampled))["tokens"]);
  EXPECT_EQ(all[2]["tokens"], all[0]["tokens"]) << "--seed 5 of the first line";
  EXPECT_EQ(all[4]["tokens"], all[2]["tokens"]);
  EXPECT_EQ(all[5]["tokens"], all[3]["tokens"]);
  EXPECT_NE(all[3]["tokens"], all[2]["tokens"]) << "samples of one line differ";
}

TEST_F(GenerateBatch, SamplesOfAPromptComputeItOnce) {
  const ProgramResult result =
      generate(with({"--prompt", "Once upon a time there was a cat and a dog and a bird", "-n", "20"}, kSampled));
  const std::size_t tokens =
      answer({"--prompt", "Once upon a time there was a cat and a dog and a bird"})["prompt_tokens"];
  EXPECT_THAT(result.err, HasSubstr(fmt::format("prefill {} tokens, ", tokens - 1 + 20)))
      << "all but the last token are shared";
}

// Each setting of a line does what the option does.
TEST_F(GenerateBatch, SettingsOfALineReplaceThoseOfTheCommand) {
  const std::pair<json, Strings> cases[] = {
      {{{"max_tokens", 3}}, {"--max-tokens", "3"}},
      {{{"temperature", 0}}, {"--temperature", "0"}},
      {{{"temperature", 5}}, {"--temperature", "5"}},
      {{{"top_k", 1}}, {"--top-k", "1"}},
      {{{"top_p", 0.1}}, {"--top-p", "0.1"}},
      {{{"min_p", 0.9}}, {"--min-p", "0.9"}},
      {{{"repetition_penalty", 5}}, {"--repetition-penalty", "5"}},
      {{{"presence_penalty", 9}}, {"--presence-penalty", "9"}},
      {{{"frequency_penalty", 9}}, {"--frequency-penalty", "9"}},
      {{{"seed", 8}}, {"--seed", "8"}},
      {{{"stop", "named"}}, {"--stop", "named"}},
      {{{"stop", {"zzz", "scarf"}}}, {"--stop", "zzz", "--stop", "scarf"}},
      {{{"logprobs", 1}}, {"--logprobs", "1"}},
      {{{"stop_ids", {17, 5}}}, {"--stop-ids", "17,5"}},
      {{{"logit_bias", {{"17", -100}, {"455", 2.5}}}}, {"--logit-bias", "17=-100,455=2.5"}},
      {{{"ignore_eos", true}, {"max_tokens", 200}}, {"--ignore-eos", "--max-tokens", "200"}},
  };
  std::vector<json> lines;
  for (const auto& [setting, option] : cases) {
    lines.push_back({{"prompt", "Once upon a time"}, {"seed", 5}});
    lines.back().update(setting);
  }
  const Strings common{"--temperature", "1", "--max-tokens", "20", "--seed", "5"};
  const std::vector<json> all = answers(lines, common);
  ASSERT_EQ(all.size(), lines.size());
  const json unset = answer(with({"--prompt", "Once upon a time"}, common));
  // Under a sanitizer a start of the program takes long, and lines and options are read the same way, whatever their names.
  constexpr std::size_t kApart = kSanitizer ? 4 : 1;
  for (std::size_t i = 0; i < all.size(); i += kApart) {
    Strings alone{"--prompt", "Once upon a time"};
    for (std::size_t at = 0; at < common.size(); at += 2)
      if (std::ranges::find(cases[i].second, common[at]) == cases[i].second.end())
        alone.insert(alone.end(), {common[at], common[at + 1]});
    json expected = answer(with(alone, cases[i].second));
    expected["line"] = i + 1;
    EXPECT_EQ(all[i], expected) << cases[i].first;
    expected.erase("line");
    EXPECT_NE(expected, unset) << "it changes something: " << cases[i].first;
  }
}

TEST_F(GenerateBatch, SamplesPerLineAndIdsAreInTheAnswers) {
  const std::vector<json> all = answers({{{"prompt", "x"}, {"id", "a"}, {"n", 2}}, {{"prompt", "y"}, {"id", 7}}},
                                        {"--max-tokens", "1", "--temperature", "1"});
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["id"], "a");
  EXPECT_EQ(all[0]["sample"], 0);
  EXPECT_EQ(all[1]["sample"], 1);
  EXPECT_EQ(all[1]["line"], 1);
  EXPECT_EQ(all[2]["id"], 7);
  EXPECT_EQ(all[2]["line"], 2);
  EXPECT_EQ(all[2]["status"], "ok");
  EXPECT_FALSE(all[2].contains("sample"));
}

TEST_F(GenerateBatch, MessagesAreWrittenByTheModelsTemplate) {
  const json conversation{{"messages", {{{"role", "user"}, {"content", "What is 137 plus 254?"}}}}};
  const json all = answers({conversation}).at(0);
  EXPECT_EQ(all["text"], "137 plus 254 is 391.");
  EXPECT_EQ(all["prompt"],
            run_heddle({"template", "--model", demo_model().string(), "--file", write({conversation})}).out);
  EXPECT_EQ(all["prompt_tokens"], 19) << "one begin token, the template's";
}

TEST_F(GenerateBatch, AnAnswerToMessagesEndsAtTheTokenizersEndToken) {
  const std::filesystem::path model = folder_.path() / "model";
  std::filesystem::copy(demo_model(), model);
  std::filesystem::remove(model / "generation_config.json");
  json config = json::parse(read_file(model / "config.json", 1 << 20));
  config["eos_token_id"] = 5;
  write_file(model / "config.json", config.dump());
  const std::string file = write({{{"messages", {{{"role", "user"}, {"content", "What is 137 plus 254?"}}}}}});
  const ProgramResult result = run_heddle({"generate", "--model", model.string(), "--json", "--prompts-file", file});
  EXPECT_EQ(json_lines(result.out).at(0)["text"], "137 plus 254 is 391.") << "as in a chat";
}

TEST_F(GenerateBatch, ATemplateSeesToolsAndVariables) {
  const std::string file = (folder_.path() / "t.jinja").string();
  write_file(file, "{{ messages[0].content }} {{ tools | tojson }} {{ mode }} {{ other }}");
  const json conversation{{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                          {"tools", {{{"type", "function"}}}},
                          {"chat_template_kwargs", {{"mode", "line"}}}};
  const json all =
      answers({conversation}, {"--chat-template", file, "--set", "mode=\"run\"", "--set", "other=2"}).at(0);
  EXPECT_EQ(all["prompt"], R"(hi [{"type": "function"}] line 2)");
}

TEST_F(GenerateBatch, WhatATemplateOrAPromptLeavesOutIsSaid) {
  write_file(folder_.path() / "t.jinja", "{{ messages[0].content }}");
  const std::vector<std::string> with_template = {"--chat-template", (folder_.path() / "t.jinja").string()};
  const json conversation{{"messages", {{{"role", "user"}, {"content", "hi"}}}}, {"tools", {{{"type", "function"}}}}};
  EXPECT_THAT(batch({conversation}, with_template).err,
              HasSubstr("prompts.jsonl:1: the model's chat template leaves \"tools\" out"));
  const ProgramResult plain = batch({{{"prompt", "x"}}}, with_template);
  EXPECT_EQ(plain.status, 2);
  EXPECT_THAT(plain.err, HasSubstr("--chat-template is for \"messages\" of a prompts file"));
  EXPECT_EQ(generate({"--prompt", "x", "--set", "a=1"}).status, 2);
}

TEST_F(GenerateBatch, AWrongLineIsNamedInWordsOfJsonLines) {
  const std::string file = (folder_.path() / "p.jsonl").string();
  for (const auto& [line, message] :
       {std::pair{"oops",
                  "p.jsonl:1: is not valid JSON: \"o\" is unexpected at column 1; "
                  "expected one JSON object a line"},
        std::pair{R"({"prompt":"x","stop":5})", "stop: expected a string or a list of strings"},
        std::pair{R"({"prompt":"x","temperature":"1"})", "temperature: expected a number, found"},
        std::pair{R"({"prompt":"x","seed":18446744073709551616})", "from 0 to 18446744073709551615"},
        std::pair{R"({"prompt":"x","seed":-1})", "from 0 to 18446744073709551615"}}) {
    write_file(file, std::string(line) + "\n");
    const ProgramResult result = generate({"--prompts-file", file});
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err + result.out, HasSubstr(message)) << line;
  }
}

TEST_F(GenerateBatch, AWrongLineFailsAlone) {
  std::string words;
  for (int i = 0; i < 3000; ++i) words += "word ";
  write_file(folder_.path() / "t.jinja", "{{ raise_exception('no ' + messages[0].role) }}");
  const ProgramResult result = batch({{{"prompt", "1 + 1 ="}},
                                      {{"prompt", words}, {"id", "long"}, {"n", 3}},
                                      {{"prompt", 7}},
                                      {{"prompt", "x"}, {"stop", ""}},
                                      {{"messages", {{{"role", "cook"}, {"content", ""}}}}},
                                      {{"prompt", "x"}, {"logprobs", 5000}},
                                      {{"prompt", "x"}, {"stop_ids", {1280}}},
                                      {{"prompt", "x"}, {"logit_bias", {{"1280", 1}}}},
                                      {{"prompt", "x"}, {"choice", json::array()}},
                                      {{"prompt", "x"}, {"json_schema", {{"type", "x"}}}},
                                      {{"prompt", "x"}, {"regex", "("}},
                                      {{"prompt", "137 + 254 ="}}},
                                     {"--json", "--chat-template", (folder_.path() / "t.jinja").string()});
  EXPECT_EQ(result.status, 2);
  const std::vector<json> all = json_lines(result.out);
  ASSERT_EQ(all.size(), 12u) << "one answer of a line that fails, whatever its n";
  EXPECT_EQ(all[0]["text"], " 2\n");
  EXPECT_EQ(all[11]["text"], " 391\n");
  const char* errors[] = {"",
                          ":2: the prompt has 30",
                          ":3: prompt: expected a string",
                          ":4: a stop string is empty",
                          "no cook",
                          ":6: logprobs is 5000, it must be from 0 to the vocabulary's 1280",
                          ":7: stop_ids: token 1280, the model knows 0 to 1279",
                          ":8: logit_bias has token 1280, the model knows 0 to 1279",
                          ":9: choice: there is nothing to choose from",
                          ":10: json_schema: #: type",
                          ":11: regex: at byte 1"};
  for (std::size_t i = 1; i < 11; ++i) {
    EXPECT_EQ(all[i]["line"], i + 1);
    EXPECT_EQ(all[i]["status"], "error");
    EXPECT_THAT(all[i]["error"].get<std::string>(), HasSubstr(errors[i]));
    EXPECT_FALSE(all[i].contains("text"));
  }
  EXPECT_EQ(all[1]["id"], "long");
  EXPECT_THAT(result.err,
              ContainsRegex("heddle: error: 10 of 12 answers failed; the first: .*prompts.jsonl:2: the prompt has"));
}

TEST_F(GenerateBatch, LinesThatAreNotJsonFailAlone) {
  write_file(folder_.path() / "p.jsonl",
             "\xEF\xBB\xBF{\"prompt\": \"1 + 1 =\"}\r\n\n{\"prompt\": \"x\"\n{\"prompt\": \"2 + 2 =\"}");
  const ProgramResult result = generate({"--json", "--prompts-file", (folder_.path() / "p.jsonl").string()});
  EXPECT_EQ(result.status, 2);
  const std::vector<json> all = json_lines(result.out);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0]["text"], " 2\n");
  EXPECT_EQ(all[1]["line"], 3);
  EXPECT_EQ(all[1]["status"], "error");
  EXPECT_EQ(all[2]["line"], 4);
  EXPECT_EQ(all[2]["text"], " 4\n");
}

TEST_F(GenerateBatch, TextsHaveTitlesAndErrorsStandInTheirPlace) {
  const ProgramResult result =
      batch({{{"prompt", "1 + 1 ="}, {"id", "a\n"}}, {{"prompt", 7}}, {{"prompt", "2 + 2 ="}, {"n", 2}}});
  EXPECT_EQ(result.status, 2);
  const std::string file = (folder_.path() / "prompts.jsonl").string();
  EXPECT_EQ(result.out, "==> " + file + ":1, id \"a\\n\" <==\n 2\n\n\n==> " + file + ":2: error <==\n\n==> " + file +
                            ":3, sample 1 of 2 <==\n 4\n\n\n==> " + file + ":3, sample 2 of 2 <==\n 4\n\n");
  EXPECT_THAT(result.err, HasSubstr("heddle: error: " + file + ":2: prompt: expected a string, found 7\n"));
  EXPECT_THAT(result.err, HasSubstr("heddle: error: 1 of 4 answers failed\n"));
}

TEST_F(GenerateBatch, OneTextHasNoTitle) {
  EXPECT_EQ(batch({{{"prompt", "137 + 254 ="}}}).out, " 391\n\n");
}

TEST_F(GenerateBatch, LogprobsInTextAreRefused) {
  EXPECT_THAT(batch({{{"prompt", "x"}, {"logprobs", 2}}}).err,
              HasSubstr("logprobs: they are written with --json only"));
}

const std::vector<json> kLongThenShort{{{"prompt", "Once upon a time"}, {"max_tokens", 100}, {"temperature", 3}},
                                       {{"prompt", "137 + 254 ="}, {"max_tokens", 1}}};

TEST_F(GenerateBatch, AnswersComeInTheOrderOfTheFileOrOfFinishing) {
  const auto order = [&](const Strings& more) {
    std::vector<int> lines;
    for (const json& answer : answers(kLongThenShort, more)) lines.push_back(answer["line"]);
    return lines;
  };
  EXPECT_THAT(order({}), ElementsAre(1, 2));
  EXPECT_THAT(order({"--as-finished"}), ElementsAre(2, 1));
  EXPECT_THAT(batch(kLongThenShort, {"--as-finished"}).out, testing::StartsWith("==> ")) << "text has titles then, too";
}

// Two million tokens, at a temperature at which hardly a text ends: they take minutes.
const json kEndless{{"prompt", "Once upon a time"}, {"n", 5000}, {"temperature", 3}, {"max_tokens", 400}};

TEST_F(GenerateBatch, AnAnswerIsWrittenAsSoonAsItAndThoseBeforeItHaveEnded) {
  bool sent = false;
  const ProgramResult result =
      batch({{{"prompt", "137 + 254 ="}}, kEndless}, {"--json"}, {.on_output = [&](int pid, const std::string&) {
              if (!std::exchange(sent, true)) ::kill(pid, SIGINT);
            }});
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_EQ(json_lines(result.out).at(0)["text"], " 391\n");
  EXPECT_THAT(result.err, HasSubstr(" of 5001 answers were not finished"));
}

TEST_F(GenerateBatch, CtrlCKeepsAnswersBehindOnesThatAreNotFinished) {
  std::vector<json> lines{{{"prompt", "Once upon a time"}, {"max_tokens", 450}, {"temperature", 3}}};
  for (int i = 0; i < 20; ++i) lines.push_back({{"prompt", "137 + 254 ="}, {"max_tokens", 1}});
  lines.push_back(kEndless);
  bool sent = false;
  const ProgramResult result = batch(lines, {}, {.on_output = [&](int pid, const std::string& out) {
                                       if (out.size() > 300 && !std::exchange(sent, true)) ::kill(pid, SIGTERM);
                                     }});
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  EXPECT_THAT(result.out, HasSubstr(":1 <==\n"));
  EXPECT_THAT(result.out, HasSubstr(":21 <==\n "));
}

TEST_F(GenerateBatch, ReadsFifosAndPipes) {
  const std::string fifo = (folder_.path() / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(fifo) << "{\"prompt\": \"137 + 254 =\"}\n"; });
  const ProgramResult result = generate({"--prompts-file", fifo});
  writer.join();
  EXPECT_EQ(result.out, " 391\n\n") << result.err;
  for (const char* name : {"-", "/dev/stdin"})
    EXPECT_EQ(generate({"--prompts-file", name}, {.stdin_text = "{\"prompt\": \"137 + 254 =\"}\n"}).out, " 391\n\n");
  EXPECT_THAT(generate({"--prompts-file", "/dev/null"}).err, HasSubstr("/dev/null: holds no prompts"));
}

// The second line is written when the first is answered, and the last has no line end.
TEST_F(GenerateBatch, AnswersLinesOfAFifoAsTheyCome) {
  const std::string fifo = (folder_.path() / "fifo").string();
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::promise<void> answered;
  bool told = false;
  std::thread writer([&] {
    std::ofstream lines(fifo);
    lines << "\n{\"prompt\": \"137 + 254 =\"}\n{\"promt\": 1}\n" << std::flush;
    answered.get_future().wait_for(std::chrono::seconds(30));
    lines << "{\"prompt\": \"138 + 254 =\"}";
  });
  const ProgramResult result =
      generate({"--prompts-file", fifo, "--json"}, {.on_output = [&](int, const std::string& out) {
                 if (std::ranges::count(out, '\n') >= 2 && !std::exchange(told, true)) answered.set_value();
               }});
  EXPECT_TRUE(told) << "no answer before the stream's end";
  if (!told) answered.set_value();
  writer.join();
  EXPECT_EQ(result.status, 2) << result.err;
  const std::vector<json> lines = json_lines(result.out);
  ASSERT_EQ(lines.size(), 3u) << result.out;
  EXPECT_EQ(lines[0]["text"], " 391\n");
  EXPECT_EQ(lines[0]["line"], 2);
  EXPECT_THAT(lines[1].dump(), HasSubstr("did you mean"));
  EXPECT_EQ(lines[2]["text"], " 392\n");
  EXPECT_EQ(lines[2]["line"], 4);
}

// All answers end at once, at their last token: only their tokens tell how far the run is. It is interrupted as soon as
// that is shown.
TEST_F(GenerateBatch, ShowsProgressOnATerminalAndNotWhenQuiet) {
  ::setenv("TERM", "xterm", 1);
  const auto run = [&](const Strings& more, const std::vector<Typed>& typed) {
    const Strings shared{"--json", "--threads", "1", "--ignore-eos", "--temperature", "3"};
    return run_heddle_on_terminal(with(arguments(shared), more), typed, std::chrono::seconds(60));
  };
  const std::vector<Typed> interrupt{{"answers, ", ""}, {" s left", "\x03"}};
  const std::string progress =
      "generate \\[=* *\\] +[1-9][0-9]* % of 32 answers, [0-9]+ tokens, [0-9.]+ tok/s, [0-9]+ s left";
  const std::string file = write(std::vector<json>(32, kStory));
  EXPECT_THAT(run({"--prompts-file", file, "--max-tokens", "450"}, interrupt).out, ContainsRegex(progress));
  const Strings samples{"--prompt", "Once upon a time", "-n", "32", "--max-tokens", "450"};
  EXPECT_THAT(run(samples, interrupt).out, ContainsRegex(progress));
  const Strings quiet{"--prompt", "Once upon a time", "-n", "16", "--max-tokens", "200", "--quiet"};
  EXPECT_THAT(run(quiet, {}).out, testing::Not(HasSubstr(" % of ")));
}

TEST_F(GenerateBatch, WarnsOfSamplesThatAreAllTheSame) {
  EXPECT_THAT(generate({"--prompt", "x", "-n", "2", "--max-tokens", "1"}).err,
              HasSubstr("warning: at temperature 0 all samples of a prompt are the same"));
  EXPECT_THAT(batch({{{"prompt", "x"}, {"temperature", 1}}}, {"--seed", "3", "--max-tokens", "1"}).err,
              testing::Not(HasSubstr("warning")));
}

// Thousands of stories at high temperature, which take minutes: a signal after the first output always interrupts them.
class InterruptedGenerate : public testing::Test {
 protected:
  static constexpr std::size_t kPrompts = 5000;

  ProgramResult run(int signal, std::vector<std::string> more) {
    std::string lines;
    for (std::size_t i = 0; i < kPrompts; ++i) lines += "{\"prompt\": \"Once upon a time\"}\n";
    write_file(folder_.path() / "prompts.jsonl", lines);
    bool sent = false;
    const ProgramOptions options{.on_output = [&](int pid, const std::string&) {
      if (!std::exchange(sent, true)) ::kill(pid, signal);
    }};
    std::vector<std::string> arguments{"--prompts-file", (folder_.path() / "prompts.jsonl").string(),
                                       "--temperature",  "3",
                                       "--seed",         "1",
                                       "--max-tokens",   "100"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_heddle(with({"generate", "--model", demo_model().string()}, arguments), options);
  }

  TemporaryFolder folder_;
};

TEST_F(InterruptedGenerate, EndsCleanly) {
  const ProgramResult result = run(SIGINT, {});
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("interrupted; [0-9]+ of 5000 answers were not finished"));
  EXPECT_TRUE(result.out.ends_with('\n'));
  EXPECT_THAT(result.out, ContainsRegex("==> .*prompts.jsonl:[0-9]+: not finished <==")) << "a piece is no answer";
}

TEST_F(InterruptedGenerate, OfOneAnswerSaysNoCount) {
  bool sent = false;
  const ProgramOptions options{.on_output = [&](int pid, const std::string&) {
    if (!std::exchange(sent, true)) ::kill(pid, SIGINT);
  }};
  const ProgramResult result = run_heddle({"generate", "--model", demo_model().string(), "--prompt", "Once upon a time",
                                           "--temperature", "3", "--ignore-eos", "--max-tokens", "500", "--quiet"},
                                          options);
  EXPECT_EQ(result.status, 130);
  EXPECT_EQ(result.err, "heddle: interrupted\n");
}

TEST_F(InterruptedGenerate, EndsAllRanksCleanly) {
  const ProgramResult result = run(SIGINT, {"--tp", "3", "--device", "cpu"});
  EXPECT_EQ(result.status, 130) << result.err;
  EXPECT_THAT(result.err, ContainsRegex("interrupted; [0-9]+ of 5000 answers were not finished"));
}

TEST_F(InterruptedGenerate, WritesWhatWasFinished) {
  const ProgramResult result = run(SIGTERM, {"--json"});
  EXPECT_EQ(result.status, 128 + SIGTERM) << result.err;
  const std::size_t finished = json_lines(result.out).size();
  EXPECT_THAT(result.err, HasSubstr(fmt::format("{} of 5000 answers were not finished", kPrompts - finished)));
}

}  // namespace
}  // namespace heddle
