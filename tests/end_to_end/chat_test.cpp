#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "end_to_end/program.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class Chat : public testing::Test {
 protected:
  Chat() {
    ::setenv("XDG_STATE_HOME", folder_.path().c_str(), 1);  // the history of terminals
    ::setenv("TERM", "xterm", 1);                           // whatever the tests run in
  }

  static std::vector<std::string> arguments(std::vector<std::string> more, const std::string& model) {
    more.insert(more.begin(), {"chat", "--model", model, "--temperature", "0"});
    return more;
  }
  static ProgramResult chat(const std::string& input, std::vector<std::string> more = {},
                            const std::string& model = demo_model().string()) {
    return run_heddle(arguments(std::move(more), model), {.stdin_text = input});
  }
  static ProgramResult on_terminal(const std::vector<Typed>& typed, const std::vector<std::string>& more = {}) {
    return run_heddle_on_terminal(arguments(more, demo_model().string()), typed);
  }
  std::string file(const std::string& name) const { return (folder_.path() / name).string(); }
  json saved(const std::string& name) const { return json::parse(read_file(file(name), 1 << 20)); }

  TemporaryFolder folder_;
};

TEST_F(Chat, InAPipePrintsAnswersAndNothingElse) {
  const ProgramResult result = chat("What is 137 plus 254?\n\nWhat is 20 plus 22?");
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "137 plus 254 is 391.\n20 plus 22 is 42.\n");
  EXPECT_EQ(result.err, "");
}

TEST_F(Chat, ATurnComputesWhatIsNewInIt) {
  const ProgramResult result =
      chat("What is 137 plus 254?\nWhat is 20 plus 22?\n/reset\nWhat is 137 plus 254?\n", {"--verbose"});
  EXPECT_EQ(result.out, "137 plus 254 is 391.\n20 plus 22 is 42.\n137 plus 254 is 391.\n");
  const auto first = result.err.find("heddle: 0 of 19 prompt tokens were in the cache");
  const auto second = result.err.find("heddle: 33 of ");  // 19, and 14 of the answer's 15: the last was only sampled
  const auto third = result.err.rfind("heddle: 0 of 19 prompt tokens were in the cache");
  EXPECT_LT(first, second) << result.err;
  EXPECT_LT(second, third) << "/reset gives the cache back\n" << result.err;
  EXPECT_NE(third, std::string::npos);
}

TEST_F(Chat, SavesWhatLoadAndTemplateRead) {
  const ProgramResult first =
      chat("What is 137 plus 254?\n/save " + file("a.json") + "\n/system Be kind.\n/save " + file("b.json") + "\n");
  ASSERT_EQ(first.status, 0) << first.err;
  EXPECT_EQ(saved("a.json"), (json{{"messages",
                                    {{{"role", "user"}, {"content", "What is 137 plus 254?"}},
                                     {{"role", "assistant"}, {"content", "137 plus 254 is 391."}}}}}));
  EXPECT_EQ(saved("b.json")["messages"][0], (json{{"role", "system"}, {"content", "Be kind."}}));

  const ProgramResult loaded = chat("What is 20 plus 22?\n/save " + file("c.json") + "\n", {"--load", file("a.json")});
  EXPECT_EQ(loaded.out, "20 plus 22 is 42.\n");
  EXPECT_EQ(saved("c.json")["messages"].size(), 4u);
  EXPECT_EQ(
      run_heddle({"template", "--model", demo_model().string(), "--file", file("a.json"), "--no-generation-prompt"})
          .out,
      "<|begin|><|user|>\nWhat is 137 plus 254?<|end|>\n<|assistant|>\n137 plus 254 is 391.<|end|>\n");
}

TEST_F(Chat, MessagesMayHaveSeveralLinesAndBeginWithASlash) {
  chat("one\\\ntwo\n\"\"\"\n/three\n\nfour\n\"\"\"\n//five\n/save " + file("a.json") + "\n");
  const json messages = saved("a.json")["messages"];
  ASSERT_EQ(messages.size(), 6u);
  EXPECT_EQ(messages[0]["content"], "one\ntwo");
  EXPECT_EQ(messages[2]["content"], "/three\n\nfour");
  EXPECT_EQ(messages[4]["content"], "/five");
}

TEST_F(Chat, CommandsThatFailAreNamedAndTheConversationGoesOn) {
  const ProgramResult result = chat(
      "/foo bar\n/params temprature=1\n/params top_p=2\n/params top_k\n/params max_tokens=4 seed=x\n/save\n/save "
      "/nonexistent/x\n/params\nWhat is 137 plus 254?\n/exit\nnot read\n");
  EXPECT_EQ(result.status, 2) << "a script must hear of it";
  EXPECT_EQ(result.out, "137 plus 254 is 391.\n");
  for (const char* error : {"unknown command \"/foo\"", "unknown parameter \"temprature\"", "top_p is 2, it must be in",
                            "\"top_k\": expected name=value", "seed is \"x\"", "/save: give the name", "/nonexistent/x",
                            "temperature=0 top_k=0 top_p=1", "max_tokens=1024"})
    EXPECT_THAT(result.err, HasSubstr(error));
}

TEST_F(Chat, TextThatIsNotUtf8IsTheMessagesFaultNotTheTemplates) {
  const ProgramResult result = chat("caf\xe9\n/system \xff\nWhat is 137 plus 254?\n");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "137 plus 254 is 391.\n");
  EXPECT_THAT(result.err, HasSubstr("heddle: error: the message is not valid UTF-8 at byte 3 of 4\n"));
  EXPECT_THAT(result.err, HasSubstr("heddle: error: the system message is not valid UTF-8 at byte 0 of 1\n"));
  EXPECT_THAT(result.err, testing::Not(HasSubstr("template")));
}

TEST_F(Chat, ParametersHoldFromTheNextAnswerOn) {
  const ProgramResult result = chat("/params max_tokens=4\nWhat is 137 plus 254?\n");
  EXPECT_LT(result.out.size(), std::string("137 plus 254 is 391.\n").size());
  EXPECT_THAT(result.err, HasSubstr("the answer ended at max_tokens (4)"));
}

TEST_F(Chat, SavesWhatWasSaidOfAnAnswerThatWasCut) {
  const ProgramResult cut = chat("What is 137 plus 254?\n/save " + file("a.json") + "\n", {"--max-tokens", "4"});
  ASSERT_EQ(cut.status, 0) << cut.err;
  const json answer = saved("a.json")["messages"][1];
  EXPECT_EQ(answer["content"].get<std::string>() + "\n", cut.out);
  EXPECT_EQ(answer["finish_reason"], "length");
  EXPECT_EQ(chat("What is 20 plus 22?\n", {"--load", file("a.json")}).out, "20 plus 22 is 42.\n");
}

TEST_F(Chat, AFullContextIsSaidAndTheConversationSurvives) {
  const std::string words = [] {
    std::string text;
    for (int i = 0; i < 300; ++i) text += " 77";
    return text;
  }();
  const ProgramResult result = chat("Count" + words + "\nWhat is 137 plus 254?\n");
  EXPECT_EQ(result.status, 2);
  EXPECT_EQ(result.out, "137 plus 254 is 391.\n");
  EXPECT_THAT(result.err, HasSubstr("tokens, and the context is 512: give a shorter one"));
}

// Four turns of which two fit into the context.
std::string long_talk() {
  std::string text;
  for (int turn = 0; turn < 4; ++turn) {
    text += "Sort these:";
    for (int i = 0; i < 60; ++i) text += " " + std::to_string(10 + turn);
    text += "\n";
  }
  return text;
}

TEST_F(Chat, ShiftsTheOldestMessagesOutOfAFullContext) {
  const std::vector<std::string> few{"--max-tokens", "8", "--context", "256"};
  const ProgramResult stopped = chat(long_talk(), few);
  EXPECT_EQ(stopped.status, 2) << "without /shift";
  EXPECT_THAT(stopped.err, HasSubstr("/shift leaves out the oldest messages"));
  for (const bool by_command : {false, true}) {
    std::vector<std::string> more = few;
    if (!by_command) more.emplace_back("--shift");
    const ProgramResult shifted =
        chat((by_command ? "/shift\n" : "") + long_talk() + "/save " + file("a.json") + "\n", more);
    EXPECT_EQ(shifted.status, 0) << shifted.err;
    EXPECT_THAT(shifted.err, HasSubstr("the context is full: the model no longer sees the oldest "));
    EXPECT_EQ(saved("a.json")["messages"].size(), 8u) << "/save keeps all";
  }
  EXPECT_EQ(chat("/shift\n/shift\n" + long_talk(), few).status, 2) << "twice is off";
  EXPECT_EQ(chat("Count" + long_talk().substr(0, 60) + long_talk() + "x\n", few).status, 2);
}

TEST_F(Chat, DoesNotAdviseToShiftWhereNothingCouldBeLeftOut) {
  const ProgramResult result = chat("Once upon a time\n", {"--context", "32", "--max-tokens", "64", "--ignore-eos"});
  EXPECT_THAT(result.err, AllOf(HasSubstr("the answer ended where the context of 32 tokens does: /save FILE keeps"),
                                Not(HasSubstr("/shift"))));
}

TEST_F(Chat, UndoDropsTheLastExchange) {
  const ProgramResult result = chat("What is 137 plus 254?\nWhat is 20 plus 22?\n/undo\n/save " + file("a.json") +
                                    "\n/undo\n/undo\nWhat is 20 plus 22?\n/save " + file("b.json") + "\n");
  EXPECT_EQ(result.status, 2) << "the third has nothing to drop";
  EXPECT_THAT(result.err, HasSubstr("heddle: error: /undo: there is no message to drop\n"));
  EXPECT_THAT(result.err, HasSubstr("dropped; the conversation has 2 messages"));
  EXPECT_EQ(result.out, "137 plus 254 is 391.\n20 plus 22 is 42.\n20 plus 22 is 42.\n");
  EXPECT_EQ(saved("a.json")["messages"].size(), 2u);
  EXPECT_EQ(saved("b.json")["messages"].size(), 2u);
}

TEST_F(Chat, RegenerateAnswersTheLastMessageAgainWithAnotherSeed) {
  const ProgramResult result =
      chat("/regenerate\n/params temperature=1.5 seed=1 max_tokens=60\nTell me a story.\n/save " + file("a.json") +
           "\n/regenerate\n/save " + file("b.json") + "\n/params\n");
  EXPECT_THAT(result.err, HasSubstr("/regenerate: there is no message to answer"));
  EXPECT_THAT(result.err, HasSubstr("seed=2"));
  const json first = saved("a.json")["messages"], second = saved("b.json")["messages"];
  ASSERT_EQ(first.size(), 2u);
  ASSERT_EQ(second.size(), 2u);
  EXPECT_EQ(first[0], second[0]);
  EXPECT_NE(first[1]["content"], second[1]["content"]);
  const ProgramResult greedy = chat("What is 137 plus 254?\n/regenerate\n");
  EXPECT_EQ(greedy.out, "137 plus 254 is 391.\n137 plus 254 is 391.\n");
  EXPECT_THAT(greedy.err, HasSubstr("at temperature 0 another seed changes nothing"));
}

TEST_F(Chat, LoadGoesOnWithASavedConversation) {
  write_file(file("a.json"), R"([{"role": "user", "content": "What is 20 plus 22?"}])");
  write_file(file("bad.json"), "[5]");
  const ProgramResult result = chat("What is 137 plus 254?\n/load " + file("bad.json") + "\n/load\n/load " +
                                    file("a.json") + "\n/regenerate\n/save " + file("b.json") + "\n");
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, testing::AllOf(HasSubstr("bad.json"), HasSubstr("/load: give the name of a file"),
                                         HasSubstr("loaded 1 messages from " + file("a.json"))));
  EXPECT_EQ(result.out, "137 plus 254 is 391.\n20 plus 22 is 42.\n");
  EXPECT_EQ(saved("b.json")["messages"].size(), 2u);
}

TEST_F(Chat, ColoursAndEditingAreLeftOutWhereTheyAreNotWanted) {
  const auto talk = [] { return on_terminal({{"> ", "What is 137 plus 254?\r"}, {"is 391.", ""}, {"> ", "/exit\r"}}); };
  const auto has_dim = testing::HasSubstr("\x1b[2m");
  EXPECT_THAT(talk().out, has_dim);
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_THAT(talk().out, testing::AllOf(testing::Not(has_dim), HasSubstr("137 plus 254 is 391.")));
  ::setenv("NO_COLOR", "", 1);  // as if it were not set, by no-color.org
  EXPECT_THAT(talk().out, has_dim);
  ::unsetenv("NO_COLOR");
  const char* terminal = ::getenv("TERM");
  const std::string before = terminal == nullptr ? "" : terminal;
  ::setenv("TERM", "dumb", 1);
  const ProgramResult dumb = talk();
  EXPECT_EQ(dumb.status, 0) << dumb.out;
  EXPECT_THAT(dumb.out, testing::AllOf(testing::Not(HasSubstr("\x1b")), HasSubstr("137 plus 254 is 391.")));
  EXPECT_EQ(on_terminal({{"> ", "half"}, {"half", "\x03"}, {"leaves", ""}, {"> ", "\x03"}}).status, 130);
  terminal == nullptr ? ::unsetenv("TERM") : ::setenv("TERM", before.c_str(), 1);
}

TEST_F(Chat, AMisspeltCommandIsAnsweredByTheNearest) {
  EXPECT_THAT(chat("/parms\n").err, HasSubstr("unknown command \"/parms\"; did you mean /params? /help lists"));
}

TEST_F(Chat, QuietLeavesOutTheGreeting) {
  const ProgramResult result = on_terminal({{"> ", "/exit\r"}}, {"--quiet"});
  EXPECT_EQ(result.status, 0);
  EXPECT_THAT(result.out, testing::Not(HasSubstr("/help lists commands")));
}

TEST_F(Chat, ATemplatesOwnMessageReachesTheUser) {
  write_file(file("strict.jinja"),
             "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
             "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}<|end|>\n{% endfor %}"
             "<|assistant|>\n{{ note }}");
  const ProgramResult result = chat("/system Be kind.\nWhat is 137 plus 254?\n/system \"\"\nWhat is 137 plus 254?\n",
                                    {"--chat-template", file("strict.jinja"), "--set", "note=\"\""});
  EXPECT_EQ(result.out, "137 plus 254 is 391.\n");
  EXPECT_THAT(result.err, HasSubstr("System role not supported"));
}

TEST_F(Chat, AModelWithoutATemplateSaysWhatToDo) {
  const std::filesystem::path model = folder_.path() / "model";
  std::filesystem::copy(demo_model(), model);
  write_file(model / "tokenizer_config.json", "{\"bos_token\": \"<|begin|>\", \"eos_token\": \"<|end|>\"}");
  const ProgramResult result = chat("hello\n", {}, model.string());
  EXPECT_EQ(result.status, 2);
  EXPECT_THAT(result.err, HasSubstr("has no chat template"));
  EXPECT_THAT(result.err, HasSubstr("--chat-template FILE"));
  write_file(model / "tokenizer_config.json", R"({"chat_template": "{{ x"})");
  const ProgramResult broken = chat("hello\n", {}, model.string());
  EXPECT_EQ(broken.status, 2);
  EXPECT_THAT(broken.err, HasSubstr("'end of print statement'; give one with --chat-template FILE"));
}

TEST_F(Chat, ATemplateOfOnesOwnKnowsEverySpecialToken) {
  const std::filesystem::path model = folder_.path() / "model";
  std::filesystem::copy(demo_model(), model);
  write_file(model / "tokenizer_config.json",
             R"({"bos_token": "<|begin|>", "eos_token": "<|end|>", "pad_token": "<|end|>", "chat_template": "{{"})");
  write_file(file("own.jinja"),
             "{{ bos_token }}{% for m in messages %}<|{{ m['role'] }}|>\n{{ m['content'] }}{{ pad_token }}\n"
             "{% endfor %}<|assistant|>\n{{ extra | list | join }}");
  const std::vector<std::string> own = {"--chat-template", file("own.jinja"), "--set", R"(extra={"b": 1, "a": 2})"};
  write_file(file("a.json"), R"([{"role": "user", "content": "x"}])");
  std::vector<std::string> rendered{"template", "--model", model.string(), "--file", file("a.json")};
  rendered.insert(rendered.end(), own.begin(), own.end());
  EXPECT_EQ(run_heddle(rendered).out, "<|begin|><|user|>\nx<|end|>\n<|assistant|>\nba");
  EXPECT_EQ(chat("What is 137 plus 254?\n", {own[0], own[1], "--set", "extra=[]"}, model.string()).out,
            "137 plus 254 is 391.\n");
}

TEST_F(Chat, ALineOrMessageThatIsTooLongIsRefusedOnceAndWhole) {
  const std::string line(65 << 20, 'x'), half(33 << 20, 'x'), question = "What is 137 plus 254?\n";
  for (const std::string& input : {line + "\n" + question, half + "\\\n" + half + "\n" + question,
                                   "\"\"\"" + half + "\n" + half + "\nmore\n\"\"\"\n" + question, question + line}) {
    const ProgramResult result = chat(input);
    EXPECT_EQ(result.status, 2);
    EXPECT_EQ(result.out, "137 plus 254 is 391.\n");
    EXPECT_THAT(result.err, HasSubstr("is longer than 67108864 bytes"));
    EXPECT_LT(result.err.size(), 300u) << "said more than once";
  }
}

TEST_F(Chat, BadOptionsAndFilesAreRefused) {
  EXPECT_EQ(chat("", {"--set", "x"}).status, 2);
  EXPECT_EQ(chat("", {"--set", "x={"}).status, 2);
  EXPECT_EQ(chat("", {"--load", file("none.json")}).status, 2);
  for (const char* text :
       {"5", "{}", "[5]", "[{\"content\": \"a\"}]", "{\"messages\": 5}", "{\"messages\": [], \"tools\": 5}"}) {
    write_file(file("bad.json"), text);
    const ProgramResult result = chat("", {"--load", file("bad.json")});
    EXPECT_EQ(result.status, 2) << text;
    EXPECT_THAT(result.err, HasSubstr("bad.json")) << text;
  }
}

TEST_F(Chat, OnATerminalEditsKeepsAHistoryAndLeavesAtCtrlD) {
  const ProgramResult result =
      on_terminal({{"> ", "What is 137 plus 255?\x7f\x7f"}, {"255", "4?\r"}, {"is 391.", ""}, {"> ", "\x04"}});
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("137 plus 254 is 391."));
  const std::string history = file("heddle/chat_history");
  EXPECT_THAT(read_file(history, 1 << 20), HasSubstr("254"));
  struct stat status {};
  ASSERT_EQ(::stat(history.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  const ProgramResult completed =
      on_terminal({{"> ", "/sa\t" + file("heddle/chat_h") + "\t"}, {"istory", "\x15/ex\t\r"}});
  EXPECT_EQ(completed.status, 0) << completed.out;
  const ProgramResult again = on_terminal({{"> ", "\x1b[A\r"}, {"is 391.", ""}, {"> ", "/exit\r"}});  // the arrow up
  EXPECT_EQ(again.status, 0) << again.out;
}

TEST_F(Chat, CtrlCClearsTheLineAndTwiceLeaves) {
  const ProgramResult result =
      on_terminal({{"> ", "half a li"}, {"half a li", "\x03"}, {"leaves", ""}, {"> ", "\x03"}});
  EXPECT_EQ(result.status, 130) << result.out;
}

// At temperature 100 the answer goes on for about a second: long enough to be stopped.
TEST_F(Chat, CtrlCStopsAnAnswerAndKeepsTheTurn) {
  // An answer may have ended before the key is typed: where the machine is busy elsewhere, or where the model ends it,
  // which any of 1280 tokens may be at that temperature. Which one it is depends on the processor; hence other seeds.
  ProgramResult result;
  for (int attempt = 0; attempt < 3 && result.out.find("saved 2 messages") == std::string::npos; ++attempt)
    result = on_terminal({{"> ", fmt::format("/params temperature=100 max_tokens=480 seed={}\r", attempt)},
                          {"max_tokens=480", ""},
                          {"> ", "Tell me a story.\r"},
                          {"story.\r\n", ""},
                          {"", "\x03"},
                          {"stopped", ""},
                          {"> ", "/save " + file("a.json") + "\r"},
                          {"saved 2 messages", ""},
                          {"> ", "\x04"}});
  EXPECT_THAT(result.out, HasSubstr("stopped"));
  EXPECT_EQ(saved("a.json")["messages"].back()["finish_reason"], "interrupted");
  EXPECT_EQ(result.status, 0) << result.out;
}

}  // namespace
}  // namespace heddle
