#include "machine/tuned_store.h"

#include <gmock/gmock.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "machine/folder.h"

namespace heddle {
namespace {

using ::testing::Eq;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

constexpr std::size_t kMegabyte = std::size_t{1} << 20;

TEST(TunedStore, KeepsValuesByMachineVersionAndName) {
  const TestFolder folder;
  const auto file = folder.path() / "new" / "folder" / "tuned.json";  // both are made
  CaptureStderr();
  TunedStore(file, "m1", "1").put("rate", 2.5);
  TunedStore(file, "m1", "1").put("layout", {{"rows", 4}});
  TunedStore(file, "m2", "1").put("rate", 7);
  TunedStore(file, "m1", "2").put("rate", "fast");
  const TunedStore store(file, "m1", "1");
  EXPECT_THAT(store.number("rate"), Eq(2.5));
  EXPECT_EQ(store.value("layout"), nlohmann::json({{"rows", 4}}));
  EXPECT_THAT(TunedStore(file, "m2", "1").number("rate"), Eq(7.0));
  EXPECT_THAT(TunedStore(file, "m1", "2").text("rate"), Eq("fast"));
  EXPECT_THAT(TunedStore(file, "m1", "3").number("rate"), Eq(std::nullopt));
  EXPECT_THAT(GetCapturedStderr(), IsEmpty());
}

TEST(TunedStore, AValueOfAnotherTypeIsNone) {
  TunedStore store("", "m", "1");
  store.put("text", "x");
  store.put("number", 1);
  store.put("nothing", nullptr);
  EXPECT_THAT(store.number("text"), Eq(std::nullopt));
  EXPECT_THAT(store.text("number"), Eq(std::nullopt));
  EXPECT_FALSE(store.value("nothing").has_value());
  EXPECT_FALSE(store.value("unknown").has_value());
}

TEST(TunedStore, WithoutAFileValuesLiveInMemory) {
  TunedStore store("", "m", "1");
  store.put("rate", 1.5);
  store.put("rate", 2.5);
  EXPECT_THAT(store.number("rate"), Eq(2.5));
}

TEST(TunedStore, NumbersComeBackToTheBit) {
  const TestFolder folder;
  const auto file = folder.path() / "tuned.json";
  const double values[] = {0.1, 1.0 / 3.0, std::numeric_limits<double>::denorm_min(),
                           std::numeric_limits<double>::max()};
  for (const double value : values) {
    TunedStore(file, "m", "1").put("x", value);
    EXPECT_THAT(TunedStore(file, "m", "1").number("x"), Eq(value));
  }
}

TEST(TunedStore, StringsThatAreNotUtf8DoNoHarm) {
  const TestFolder folder;
  const auto file = folder.path() / "tuned.json";
  TunedStore store(file, "m\xff", "\xfe");
  store.put("\x80", "\xc0");
  EXPECT_NO_THROW(TunedStore(file, "m", "1").put("x", 1));
  EXPECT_THAT(TunedStore(file, "m", "1").number("x"), Eq(1.0));
}

struct BadFile {
  std::string name;
  std::string text;
};
void PrintTo(const BadFile& bad, std::ostream* stream) {
  *stream << bad.name;
}

class TunedStoreBadFile : public ::testing::TestWithParam<BadFile> {};

TEST_P(TunedStoreBadFile, IsIgnoredWithOneWarningAndReplacedByTheNextPut) {
  const TestFolder folder;
  const auto file = folder.path() / "tuned.json";
  folder.write("tuned.json", GetParam().text);
  CaptureStderr();
  TunedStore store(file, "m", "1");
  EXPECT_THAT(store.number("x"), Eq(std::nullopt));
  store.put("x", 3);
  const std::string warnings = GetCapturedStderr();
  EXPECT_THAT(warnings, HasSubstr("tuned.json"));
  EXPECT_EQ(std::ranges::count(warnings, '\n'), 1) << warnings;

  CaptureStderr();
  EXPECT_THAT(TunedStore(file, "m", "1").number("x"), Eq(3.0));
  EXPECT_THAT(GetCapturedStderr(), IsEmpty());
}

const std::vector<BadFile> kBadFiles{
    {"empty", ""},
    {"cut_off", R"({"format":1,"machines":{"m":{"1":{"x":)"},
    {"not_json",
     "\x7f"
     "ELF\x02\x01"},
    {"not_utf8", "\"\xff\xff\""},
    {"another_format", R"({"format":2,"machines":{}})"},
    {"foreign", R"({"name":"package.json"})"},
    {"an_array", "[1,2,3]"},
    {"machines_of_the_wrong_type", R"({"format":1,"machines":[]})"},
    {"versions_of_the_wrong_type", R"({"format":1,"machines":{"m":7}})"},
    {"values_of_the_wrong_type", R"({"format":1,"machines":{"m":{"1":[]}}})"},
    {"deep", std::string(100000, '[')},
    {"oversized", std::string(5 * kMegabyte, ' ')},
};
INSTANTIATE_TEST_SUITE_P(Files, TunedStoreBadFile, ::testing::ValuesIn(kBadFiles),
                         [](const auto& test) { return test.param.name; });

TEST(TunedStore, AFileThatGrowsTooLargeStartsAnewWithItsOwnMachine) {
  const TestFolder folder;
  const auto file = folder.path() / "tuned.json";
  TunedStore(file, "old", "1").put("big", std::string(3 * kMegabyte, 'a'));
  TunedStore store(file, "m", "1");
  store.put("x", 1);
  store.put("big", std::string(2 * kMegabyte, 'b'));
  EXPECT_THAT(TunedStore(file, "m", "1").number("x"), Eq(1.0));
  EXPECT_FALSE(TunedStore(file, "old", "1").value("big").has_value());

  CaptureStderr();  // what can never fit stays in memory, and the file keeps what it had
  store.put("huge", std::string(5 * kMegabyte, 'c'));
  EXPECT_THAT(GetCapturedStderr(), HasSubstr("would grow"));
  EXPECT_THAT(TunedStore(file, "m", "1").number("x"), Eq(1.0));
}

TEST(TunedStore, AnUnusableFolderIsAWarning) {
  const TestFolder folder;
  folder.write("file", "");
  folder.write("taken/tuned.json/inside", "");  // the name belongs to a folder; so does the next one, to a file
  for (const auto& file : {folder.path() / "taken" / "tuned.json", folder.path() / "file" / "tuned.json",
                           std::filesystem::path("/proc/heddle/tuned.json")}) {
    CaptureStderr();
    TunedStore store(file, "m", "1");
    store.put("x", 1);
    store.put("y", 2);
    const std::string warnings = GetCapturedStderr();
    EXPECT_EQ(std::ranges::count(warnings, '\n'), 1) << warnings;
    EXPECT_THAT(warnings, HasSubstr("warning"));
    EXPECT_THAT(store.number("x"), Eq(1.0));
  }
}

TEST(TunedStore, PutsOfManyProcessesAllStay) {
  constexpr int kProcesses = 4;
  constexpr int kPuts = 25;
  const TestFolder folder;
  const auto file = folder.path() / "tuned.json";
  std::vector<pid_t> children;
  for (int process = 0; process < kProcesses; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      TunedStore store(file, "m", "1");
      for (int i = 0; i < kPuts; ++i) store.put(std::to_string(process) + "." + std::to_string(i), i);
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const TunedStore store(file, "m", "1");
  for (int process = 0; process < kProcesses; ++process)
    for (int i = 0; i < kPuts; ++i)
      EXPECT_THAT(store.number(std::to_string(process) + "." + std::to_string(i)), Eq(i)) << process;
}

TEST(TunedStore, PutsOfManyThreadsAllStay) {
  constexpr int kThreads = 4;
  constexpr int kPuts = 25;
  const TestFolder folder;
  const auto file = folder.path() / "tuned.json";
  TunedStore shared(file, "m", "1");
  {
    std::vector<std::jthread> threads;
    threads.reserve(kThreads);
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        TunedStore own(file, "m", "1");  // half of the puts through a store of its own
        for (int i = 0; i < kPuts; ++i)
          (i % 2 == 0 ? shared : own).put(std::to_string(thread) + "." + std::to_string(i), i);
      });
  }
  const TunedStore store(file, "m", "1");
  for (int thread = 0; thread < kThreads; ++thread)
    for (int i = 0; i < kPuts; ++i)
      EXPECT_THAT(store.number(std::to_string(thread) + "." + std::to_string(i)), Eq(i)) << thread;
}

// Sets variables of the environment for one test.
class Environment {
 public:
  explicit Environment(const std::vector<std::pair<std::string, std::optional<std::string>>>& values) {
    for (const auto& [name, value] : values) {
      const char* old = std::getenv(name.c_str());
      old_.emplace_back(name, old == nullptr ? std::nullopt : std::optional<std::string>(old));
      set(name, value);
    }
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;
  ~Environment() {
    for (const auto& [name, value] : old_) set(name, value);
  }

 private:
  static void set(const std::string& name, const std::optional<std::string>& value) {
    if (value)
      ::setenv(name.c_str(), value->c_str(), 1);
    else
      ::unsetenv(name.c_str());
  }
  std::vector<std::pair<std::string, std::optional<std::string>>> old_;
};

TEST(TunedStore, LiesInTheFirstCacheFolderThatIsSet) {
  struct Case {
    std::optional<std::string> heddle, xdg, home;
    std::string expected;
  };
  const Case cases[] = {
      {"/h", "/x", "/home/u", "/h/tuned.json"},
      {"", "/x", "/home/u", "/x/heddle/tuned.json"},
      {{}, "relative", "/home/u", "/home/u/.cache/heddle/tuned.json"},  // the XDG specification: ignore such
      {{}, {}, "/home/u", "/home/u/.cache/heddle/tuned.json"},
      {{}, {}, "", ""},
      {{}, {}, {}, ""},
  };
  for (const Case& c : cases) {
    const Environment environment({{"HEDDLE_CACHE_DIR", c.heddle}, {"XDG_CACHE_HOME", c.xdg}, {"HOME", c.home}});
    EXPECT_EQ(default_tuned_store_file(), c.expected);
  }
}

}  // namespace
}  // namespace heddle
