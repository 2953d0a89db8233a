// The command line as such: misspellings, short options, pipes, limits, tokens, completion and man pages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
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
using testing::StartsWith;

// Arguments that let the demo model sum two numbers: at most 8 tokens, unless `more` says otherwise.
std::vector<std::string> sum_with(std::vector<std::string> more) {
  std::vector<std::string> begin{"generate", demo_model().string(), "-p", "137 + 254 =", "--temperature", "0"};
  if (std::ranges::find(more, "--max-tokens") == more.end()) begin.insert(begin.end(), {"--max-tokens", "8"});
  more.insert(more.begin(), begin.begin(), begin.end());
  return more;
}

// What a shell's command prints; `$heddle` stands for the program.
std::string shell_output(const std::string& command, int* status = nullptr) {
  ::setenv("heddle", HEDDLE_PROGRAM, 1);
  std::FILE* pipe = ::popen(command.c_str(), "r");
  std::string output;
  std::array<char, 4096> buffer{};
  while (const std::size_t count = std::fread(buffer.data(), 1, buffer.size(), pipe))
    output.append(buffer.data(), count);
  const int ended = ::pclose(pipe);
  if (status != nullptr) *status = WEXITSTATUS(ended);
  return output;
}

bool has_program(const std::string& name) {
  int status = 0;
  shell_output("command -v " + name, &status);
  return status == 0;
}

// Of a command, or of one below another: "wafer tune".
std::string run_heddle_help(const std::string& command) {
  return shell_output("\"$heddle\" " + command + " --help");
}

TEST(CommandLine, AMisspeltOptionOrCommandIsAnsweredByTheNearest) {
  const std::string model = demo_model().string();
  struct Case {
    std::vector<std::string> arguments;
    std::string error;
  };
  for (const Case& c : {
           Case{{"genrate"}, "heddle has no command \"genrate\"; did you mean generate?; see heddle --help"},
           Case{{"help", "genrate"}, "heddle has no command \"genrate\"; did you mean generate?"},
           Case{{"help", "bench", "decoed"}, "heddle bench has no command \"decoed\"; did you mean decode?"},
           Case{{"frobnicate"}, "heddle has no command \"frobnicate\"; there are chat, generate, "},
           Case{{}, "which command? There are chat, generate"},
           Case{{"generate", "--seed", "1", "--seed", "2"}, "--seed is given more than once; see heddle generate"},
           Case{{"generate", model, "-p", "--json", "--max-tokens", "3"},
                "--prompt is given without its value: --json is an option; where \"--json\" is the value, write "
                "--prompt=--json; see heddle generate --help"},
           Case{{"generate", model, "--stop", "--seed=1", "-p", "x"}, "--stop is given without its value: --seed=1 is"},
           Case{{"score", model, "--text", "-h"}, "--text is given without its value"},
           Case{{"generate", model, "-p"}, "--prompt is given without its value; see heddle generate --help"},
           Case{{"generate", model, "-p", "Once", "-maxtokens=3"},
                "heddle generate has no option -maxtokens; did you mean --max-tokens?; see heddle generate --help"},
           Case{{"bench", "decode", "-model", "x"}, "heddle bench decode has no option -model; did you mean --model?"},
           Case{{"score", model, "--text", "hi", "--file", "x"},
                "give only one of --text and --file; see heddle score"},
           Case{{"generate", "--seed", "99999999999999999999"},
                "expected a whole number from 0 to 18446744073709551615"},
           Case{{"launch", "-n", "0", "--", "true"}, "-n,--ranks: is \"0\", expected a whole number"},
           Case{{"launch", "--", "true"}, "-n is required"},
           Case{{"bench", "decoed"}, "heddle bench has no command \"decoed\"; did you mean decode?"},
           Case{{"generate", "--model", model, "--promt", "x"},
                "heddle generate has no option --promt; did you mean "
                "--prompt?"},
           Case{{"generate", "--temprature", "0.5", "--model", model, "-p", "x"},
                "no option --temprature; did you mean "
                "--temperature?"},
           Case{{"generate", "-m", model, "-p", "x", "--max-token=3"}, "--max-token=3; did you mean --max-tokens?"},
           Case{{"generate", "-m", model, "M", "-p", "x"},
                "takes one model, and was given \"" + model + "\" and \"M\";"},
           Case{{"generate", model, "Once"}, "and \"Once\"; a prompt needs --prompt; see heddle generate --help"},
           Case{{"generate", "-m=" + model, "-p", "x"}, "is \"=" + model + "\"; write -m " + model + " or --model"},
           Case{{"score", "-m", model, "--fiel", "x"}, "no option --fiel; did you mean --file?"},
           Case{{"wafer", "tune", "--modle", "x"}, "heddle wafer tune has no option --modle; did you mean --model?"},
           Case{{"generate", "-m", model, "-p", "x", "--frobnicate"},
                "no option --frobnicate; see heddle generate "
                "--help"},
       }) {
    const ProgramResult result = run_heddle(c.arguments);
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr(c.error));
    EXPECT_EQ(std::ranges::count(result.err, '\n'), 1);
  }
}

TEST(CommandLine, AnOptionsNameIsAValueWhereItIsWrittenSo) {
  const ProgramResult result =
      run_heddle({"generate", demo_model().string(), "--prompt=--json", "--max-tokens", "1", "--echo", "--quiet"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, StartsWith("--json"));
  EXPECT_EQ(run_heddle({"tokenize", demo_model().string(), "--text", "-maxtokens"}).status, 0) << "is no option's name";
  EXPECT_EQ(run_heddle({"launch", "--dry-run", "-n", "2", "--", "heddle", "generate", "-p", "--json"}).status, 0)
      << "another command's";
}

TEST(CommandLine, WhatChangesNothingIsNamedWhereItWasGiven) {
  EXPECT_THAT(run_heddle(sum_with({"--seed", "1"})).err, HasSubstr("warning: --seed changes nothing at temperature 0"));
  EXPECT_THAT(run_heddle(sum_with({"--seed", "1", "--top-k", "5", "--min-p", "0.1"})).err,
              HasSubstr("warning: --top-k, --min-p and --seed change nothing at temperature 0"));
}

TEST(CommandLine, HelpIsACommandToo) {
  EXPECT_EQ(run_heddle({"help"}).out, run_heddle({"--help"}).out);
  EXPECT_EQ(run_heddle({"help", "wafer", "run"}).out, run_heddle({"wafer", "run", "--help"}).out);
  EXPECT_EQ(run_heddle({"help"}).status, 0);
}

TEST(CommandLine, TheModelIsGivenByPositionByLetterOrByName) {
  const std::string model = demo_model().string();
  const ProgramResult expected = run_heddle(sum_with({}));
  EXPECT_THAT(expected.out, HasSubstr("391")) << expected.err;
  for (const std::vector<std::string>& given : std::vector<std::vector<std::string>>{
           {"generate", "-m", model}, {"generate", "--model", model}, {"generate", "--stop", "Z", model}}) {
    std::vector<std::string> arguments = given;
    for (const char* more : {"--prompt", "137 + 254 =", "--temperature", "0", "--max-tokens", "8"})
      arguments.emplace_back(more);
    EXPECT_EQ(run_heddle(arguments).out, expected.out) << testing::PrintToString(given);
  }
  EXPECT_EQ(run_heddle({"tokenize", model, "--text", "1"}).out,
            run_heddle({"tokenize", "-m", model, "--text", "1"}).out);
  EXPECT_EQ(run_heddle({"score", model, "--text", "1 + 1"}).status, 0);
  EXPECT_EQ(run_heddle({"chat", model}).status, 0);
  for (const char* command : {"wafer tune", "wafer predict", "wafer kv", "bench tokenize", "wafer run"})
    EXPECT_THAT(run_heddle_help(command), AllOf(HasSubstr("-m,--model"), HasSubstr("by position, too"))) << command;
  EXPECT_EQ(run_heddle({"generate", model, "-m", model, "-p", "x"}).status, 2) << "given twice";
}

TEST(CommandLine, AReaderThatGoesEndsTheProgramSilently) {
  const std::string command =
      "\"$heddle\" generate " + demo_model().string() + " -p Once --max-tokens 400 --ignore-eos --seed 1";
  const std::string gone = shell_output("exec 2>&1; { " + command + "; echo status $? >&2; } | head -c 5");
  EXPECT_THAT(gone, AllOf(HasSubstr("status 141"), Not(HasSubstr("error")), Not(HasSubstr("Broken pipe"))));
  const std::string full = shell_output("{ " + command + "; echo status $? >&2; } 2>&1 >/dev/full");
  EXPECT_THAT(full, AllOf(HasSubstr("status 1\n"), HasSubstr("No space left on device"))) << "other errors are said";
  for (const char* words : {"--help", "--version", "chat --help", "help chat"})
    EXPECT_THAT(shell_output("{ \"$heddle\" " + std::string(words) + "; echo status $? >&2; } 2>&1 >/dev/full"),
                AllOf(HasSubstr("status 1\n"), HasSubstr("No space left on device")))
        << words;
}

TEST(CommandLine, EchoPutsThePromptBeforeTheTextInJsonToo) {
  const json plain = json::parse(run_heddle(sum_with({"--json"})).out);
  const json echoed = json::parse(run_heddle(sum_with({"--json", "--echo"})).out);
  EXPECT_EQ(echoed["text"], plain["prompt"].get<std::string>() + plain["text"].get<std::string>());
  EXPECT_EQ(echoed["tokens"], plain["tokens"]);
}

TEST(CommandLine, ScoreTakesAPlainTextFile) {
  const TemporaryFolder folder;
  const std::string model = demo_model().string(), text = "137 + 254 = 391";
  const std::string expected = run_heddle({"score", model, "--text", text, "--json"}).out;
  for (const char* name : {"text.txt", "text", "text.md"}) {
    const std::string file = (folder.path() / name).string();
    write_file(file, text);
    EXPECT_EQ(run_heddle({"score", model, "--file", file, "--json"}).out, expected) << name;
  }
  const std::string text_file = (folder.path() / "text.txt").string();
  EXPECT_THAT(run_heddle({"score", model, "--file", text_file}).out,
              StartsWith(text_file + ": 14 tokens, perplexity 3.421\n"));
  const std::string lines = (folder.path() / "lines").string(), braces = (folder.path() / "braces.txt").string();
  write_file(lines, "\n{\"text\": \"" + text + "\"}\n");
  json of_line = json::parse(expected);
  of_line["line"] = 2;
  EXPECT_EQ(json::parse(run_heddle({"score", model, "--file", lines, "--json"}).out), of_line)
      << "a brace begins JSON lines";
  write_file(braces, "{\"text\": 1}");
  EXPECT_EQ(run_heddle({"score", model, "--file", braces}).status, 0) << "*.txt never is";
  for (const std::string& named : {std::string("-"), std::string("/dev/stdin")})
    EXPECT_EQ(run_heddle({"score", model, "--file", named, "--json"}, {.stdin_text = text}).out, expected)
        << "pipes, too";
  EXPECT_EQ(run_heddle({"score", model, "--json"}, {.stdin_text = text}).out, expected) << "and without an option";
  write_file(braces, "x\xff");
  const ProgramResult bad = run_heddle({"score", model, "--file", braces});
  EXPECT_EQ(bad.status, 2);
  EXPECT_THAT(bad.err, AllOf(HasSubstr("braces.txt: "), HasSubstr("UTF-8")));
}

TEST(CommandLine, TokenizeTakesWhatIsPipedIn) {
  const std::string model = demo_model().string(), ids = "0 22 24 28 274 226 23 26 25 264\n";
  EXPECT_EQ(run_heddle({"tokenize", model}, {.stdin_text = "137 + 254 ="}).out, ids);
  EXPECT_EQ(run_heddle({"tokenize", model, "--file", "-"}, {.stdin_text = R"({"text": "137 + 254 ="})"}).out, ids);
  EXPECT_EQ(run_heddle({"tokenize", model, "--decode", "--no-special"}, {.stdin_text = ids}).out, "137 + 254 =\n");
  EXPECT_THAT(run_heddle({"tokenize", model}).err, HasSubstr("--text, --file or a text on standard input is required"));
  EXPECT_THAT(run_heddle({"tokenize", model, "--text", "x", "--file", "y"}).err,
              HasSubstr("give only one of --text and --file"));
}

TEST(CommandLine, LimitsAreObeyed) {
  const json limited =
      json::parse(run_heddle(sum_with({"--json", "--ignore-eos", "--context", "14", "--max-tokens", "100"})).out);
  EXPECT_EQ(limited["tokens"].size() + limited["prompt_tokens"].get<std::size_t>(), 14u);
  EXPECT_EQ(limited["finish_reason"], "length");
  const ProgramResult too_long = run_heddle(sum_with({"--context", "10"}));
  EXPECT_EQ(too_long.status, 2);
  EXPECT_THAT(too_long.err, HasSubstr("10 tokens, the context is limited to 10"));
  EXPECT_THAT(run_heddle(sum_with({"--context", "9999"})).err,
              HasSubstr("warning: --context 9999: the model's context is "
                        "512"));
  const std::string expected = run_heddle(sum_with({})).out;
  EXPECT_EQ(run_heddle(sum_with({"--kv-memory", "4MiB", "--max-sequences", "1"})).out, expected);
  EXPECT_EQ(run_heddle(sum_with({"--kv-memory", "1.5GiB"})).out, expected);
  const ProgramResult no_page = run_heddle(sum_with({"--kv-memory", "100"}));
  EXPECT_EQ(no_page.status, 2);
  EXPECT_THAT(no_page.err,
              HasSubstr("--kv-memory: the key-value cache may take 100 bytes, one page of 32 tokens takes"));
  for (const char* bad : {"-1", "0", "4XB", "", "GiB", "1e3", "1.5e3", "1.5XB", ".5GiB", "0.5", "99999999999GiB",
                          "99999999999.5GiB", "4 4"}) {
    const ProgramResult result = run_heddle(sum_with({std::string("--kv-memory=") + bad}));
    EXPECT_EQ(result.status, 2) << bad;
    EXPECT_THAT(result.err, HasSubstr("--kv-memory")) << bad;
  }
  EXPECT_EQ(run_heddle(sum_with({"--max-sequences", "0"})).status, 2);
  EXPECT_EQ(run_heddle({"score", demo_model().string(), "--text", "1 + 1", "--context", "3", "--window", "4"}).status,
            2);
}

TEST(CommandLine, TokensEndATextOrAreForcedAndForbidden) {
  const json plain = json::parse(run_heddle(sum_with({"--json"})).out);
  const std::vector<std::int32_t> tokens = plain["tokens"];
  EXPECT_EQ(plain["finish_reason"], "stop");
  const json on = json::parse(run_heddle(sum_with({"--json", "--ignore-eos", "--max-tokens", "20"})).out);
  EXPECT_EQ(on["tokens"].size(), 20u);
  EXPECT_EQ(on["finish_reason"], "length");
  const json stopped =
      json::parse(run_heddle(sum_with({"--json", "--stop-ids", "7," + std::to_string(tokens[1])})).out);
  EXPECT_EQ(stopped["tokens"], (json{tokens[0], tokens[1]}));
  const json biased = json::parse(
      run_heddle(sum_with({"--json", "--logit-bias", std::to_string(tokens[0]) + "=-100,77=40", "--ignore-eos"})).out);
  EXPECT_EQ(biased["tokens"], json(std::vector<int>(8, 77)));
  const struct {
    std::vector<std::string> arguments;
    const char* error;
  } cases[] = {{{"--stop-ids", "x"}, "--stop-ids: is \"x\", expected token ids like 13,198"},
               {{"--stop-ids", "1280"}, "--stop-ids: token 1280, the model knows 0 to 1279"},
               {{"--logit-bias", "5"}, "--logit-bias: is \"5\", expected ID=BIAS"},
               {{"--logit-bias", "5=1001"}, "a number from -1000 to 1000"},
               {{"--logit-bias", "-5=1"}, "expected ID=BIAS"},
               {{"--logit-bias", "5=nan"}, "expected ID=BIAS"},
               {{"--logit-bias", "1280=1"}, "--logit-bias: token 1280, the model knows 0 to 1279"}};
  for (const auto& c : cases) {
    const ProgramResult result = run_heddle(sum_with(c.arguments));
    EXPECT_EQ(result.status, 2) << c.error;
    EXPECT_THAT(result.err, HasSubstr(c.error));
  }
}

TEST(CommandLine, AnAnswerIsOfTheFormThatWasAskedFor) {
  const TemporaryFolder folder;
  const std::string schema = (folder.path() / "schema.json").string();
  std::ofstream(schema) << R"({"type": "object", "properties": {"n": {"type": "integer", "minimum": 3, "maximum": 77}},
                               "required": ["n"]})";
  const auto run = [](std::vector<std::string> options) {
    std::vector<std::string> arguments{
        "generate", demo_model().string(), "-p", "Tom said", "--temperature", "1", "--seed", "3", "--quiet"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    return run_heddle(arguments);
  };
  const ProgramResult of_schema = run({"--json-schema", schema});
  const json value = json::parse(of_schema.out, nullptr, false);
  ASSERT_TRUE(value.is_object()) << of_schema.out << of_schema.err;
  EXPECT_GE(value.at("n"), 3);
  EXPECT_LE(value.at("n"), 77);
  EXPECT_THAT(run({"--choice", "yes", "--choice", "no"}).out, testing::AnyOf("yes\n", "no\n"));
  EXPECT_THAT(run({"--regex", "[A-Z]{3}"}).out, testing::MatchesRegex("[A-Z][A-Z][A-Z]\n"));

  std::ofstream(schema) << R"({"not": {}})";
  const ProgramResult wrong = run({"--json-schema", schema});
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.err, HasSubstr("schema.json: #: the keyword \"not\" is not supported"));
  EXPECT_EQ(run({"--regex", "a", "--choice", "b"}).status, 2);
}

// The names of all commands, from the program itself.
const char* const kSomeOptions[] = {"--temperature", "--logit-bias", "--kv-memory", "--prompts-file"};

TEST(Completion, EachShellsScriptHasEveryCommandAndOption) {
  for (const char* shell : {"bash", "zsh", "fish"}) {
    const ProgramResult script = run_heddle({"completion", shell});
    EXPECT_EQ(script.status, 0);
    for (const char* option : kSomeOptions)
      EXPECT_THAT(script.out, HasSubstr(std::string(shell) == "fish" ? std::string("-l ") + (option + 2) : option))
          << shell;
    for (const char* command : {"heddle generate", "heddle bench decode", "heddle wafer tune"})
      EXPECT_THAT(script.out, HasSubstr(command)) << shell;
    if (has_program(shell)) {
      const TemporaryFolder folder;
      const std::string file = (folder.path() / "script").string();
      EXPECT_EQ(run_heddle({"completion", shell, "--out", file}).status, 0);
      EXPECT_EQ(read_file(file, 1 << 20), script.out);
      int status = 1;
      EXPECT_EQ(shell_output(std::string(shell) + " -n " + file + " 2>&1", &status), "");
      EXPECT_EQ(status, 0) << shell << " cannot parse it";
    }
  }
  EXPECT_EQ(run_heddle({"completion", "csh"}).status, 2);
}

TEST(Completion, BashCompletesCommandsOptionsAndValues) {
  if (!has_program("bash")) GTEST_SKIP() << "there is no bash";
  const auto complete = [](const std::string& line) {
    return shell_output("bash -c 'source <(\"$heddle\" completion bash); COMP_WORDS=(" + line +
                        "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _heddle; echo \"${COMPREPLY[*]}\"'");
  };
  EXPECT_EQ(complete("heddle gen"), "generate\n");
  EXPECT_EQ(complete("heddle bench dec"), "decode\n");
  EXPECT_EQ(complete("heddle generate --temp"), "--temperature\n");
  EXPECT_EQ(complete("heddle generate --dtype b"), "bfloat16\n");
  EXPECT_EQ(complete("heddle generate x --model assets --kv"), "--kv-memory\n");
  EXPECT_EQ(complete("heddle completion z"), "zsh\n");
  EXPECT_EQ(complete("heddle generate --dtype = b"), "bfloat16\n") << "bash parts --dtype=b so";
  EXPECT_EQ(complete("heddle generate --dtype ="), "auto float32 bfloat16 float16\n");
  EXPECT_EQ(complete("heddle wafer run --sync d"), "dataflow\n");
  EXPECT_EQ(complete("heddle man wafer-t"), "wafer-tune wafer-tables\n");
  EXPECT_EQ(complete("heddle man bench dec"), "decode\n");
  EXPECT_EQ(complete("heddle inspect synth:qwen2.5-7b"), "synth:qwen2.5-7b\n");
  EXPECT_EQ(complete("heddle inspect synth : qwen2.5-7b"), "qwen2.5-7b\n") << "bash parts a name at its colon";
  EXPECT_EQ(complete("heddle generate --model synth : mixtral-8x7"), "mixtral-8x7b\n");
  EXPECT_EQ(complete("heddle generate --model = synth : mixtral-8x7"), "mixtral-8x7b\n");
  EXPECT_THAT(complete("heddle generate -m synth :"), HasSubstr("llama-3-8b"));
  EXPECT_EQ(complete("heddle wafer run -m synth : qwen2.5-7b"), "qwen2.5-7b\n");
  EXPECT_EQ(complete("heddle synth mixtral-8x7"), "mixtral-8x7b\n");
  EXPECT_EQ(complete("heddle inspect \"\""), "\n") << "left to the names of folders";
  EXPECT_EQ(complete("heddle generate --prompts-file \"\""), "\n") << "left to the names of files";
}

TEST(Man, EveryCommandHasAPageThatManCanFormat) {
  const TemporaryFolder folder;
  ASSERT_EQ(run_heddle({"man", "--out", folder.path().string()}).status, 0);
  int pages = 0;
  std::string all;
  for (const auto& page : std::filesystem::directory_iterator(folder.path())) {
    ++pages;
    const std::string text = read_file(page.path(), 1 << 20);
    EXPECT_THAT(text, AllOf(StartsWith(".TH HEDDLE"), HasSubstr("\n.SH SYNOPSIS\n"), HasSubstr("\n.SH OPTIONS\n")));
    all += " " + page.path().string();
  }
  if (has_program("groff")) {  // which names a page that it complains of
    EXPECT_EQ(shell_output("groff -man -Tutf8 -ww" + all + " 2>&1 >/dev/null"), "");
  }
  EXPECT_GT(pages, 20);
  const std::string decode = read_file(folder.path() / "heddle-bench-decode.1", 1 << 20);
  EXPECT_EQ(run_heddle({"man", "bench", "decode"}).out, decode);
  EXPECT_EQ(run_heddle({"man", "bench-decode"}).out, decode);
  EXPECT_EQ(run_heddle({"man", "heddle-bench", "decode"}).out, decode);
  EXPECT_EQ(run_heddle({"man", "heddle"}).out, read_file(folder.path() / "heddle.1", 1 << 20));
  const std::string page = run_heddle({"man", "generate"}).out;
  for (const char* option : {"\\-\\-temperature", "\\fB\\-m\\fR, \\fB\\-\\-model\\fR", "\\-\\-logit\\-bias"})
    EXPECT_THAT(page, HasSubstr(option));
  const ProgramResult unknown = run_heddle({"man", "frobnicate"});
  EXPECT_EQ(unknown.status, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no command \"heddle frobnicate\"; heddle --help lists"));
  EXPECT_THAT(run_heddle({"man", "genrate"}).err, HasSubstr("\"heddle genrate\"; did you mean heddle generate?"));
  for (const std::vector<std::string>& far : std::vector<std::vector<std::string>>{{"nosuch"}, {"bench", "abcd"}}) {
    std::vector<std::string> arguments{"man"};
    arguments.insert(arguments.end(), far.begin(), far.end());
    EXPECT_THAT(run_heddle(arguments).err, Not(HasSubstr("did you mean"))) << far.back();
  }
  EXPECT_THAT(run_heddle({"man", "bench-decoed"}).err, HasSubstr("did you mean heddle bench decode?"));
  EXPECT_THAT(run_heddle({"man", "wafer", "tabels"}).err, HasSubstr("did you mean heddle wafer tables?"));
}

}  // namespace
}  // namespace heddle
