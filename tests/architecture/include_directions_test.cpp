#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "architecture/markdown_links.h"
#include "architecture/rules.h"
#include "temporary_folder.h"

namespace heddle::architecture {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

fs::path checkout() {
  return HEDDLE_SOURCE_DIR;
}

// One test, since reading takes longer than checking.
TEST(Checkout, IncludesKeepTheRules) {
  const SourceTree tree = read_sources(checkout());
  // Whether files are read at all: with a wrong root, all below would pass.
  ASSERT_TRUE(tree.contains("src/base/json.cpp"));
  ASSERT_THAT(tree.at("src/base/json.cpp"), ::testing::Not(IsEmpty()));
  EXPECT_EQ(tree.at("src/base/json.cpp").front().target, "src/base/json.h");

  EXPECT_THAT(check_directions(tree), IsEmpty());
  EXPECT_THAT(check_resolution(tree), IsEmpty());
  EXPECT_THAT(check_operator_headers(tree), IsEmpty());
  EXPECT_THAT(check_communication_headers(tree), IsEmpty());
}
TEST(Checkout, EveryRoomHasAReadme) {
  EXPECT_THAT(check_readmes(checkout()), IsEmpty());
}
TEST(Checkout, MarkdownLeadsToFiles) {
  EXPECT_THAT(check_markdown_links(checkout()), IsEmpty());
}

using Files = std::map<std::string, std::string>;

class MadeUpTree {
 public:
  explicit MadeUpTree(const Files& files) {
    for (const auto& [path, text] : files) {
      fs::create_directories((root() / path).parent_path());
      std::ofstream(root() / path, std::ios::binary) << text;
    }
  }
  const fs::path& root() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

SourceTree read(const Files& files) {
  return read_sources(MadeUpTree(files).root());
}

TEST(ReadIncludes, FindsThoseThatCompilersSee) {
  const std::vector<Include> includes = read_includes(
      "#include <vector>\n"
      "  #  include\t\"base/error.h\"  // \"why\"\n"
      "// #include \"engine/a.h\"\n"
      "/* #include \"engine/b.h\"\n"
      "#include \"engine/c.h\" */ #include \"base/d.h\"\n"
      "const char* s = \"/*\";\n"
      "#include HEADER\n"
      "#include\n"
      "#include \"open\n"
      "#includ");
  std::vector<std::string> found;
  for (const Include& include : includes) found.push_back(fmt::format("{} {}", include.line, include.text));
  EXPECT_THAT(found, ElementsAre("1 <vector>", "2 \"base/error.h\"", "5 \"base/d.h\"", "7 ", "8 ", "9 "));
}

// The arrows of docs/architecture.md and their transitive closure: for each module all modules that it may use.
struct ArrowRow {
  std::string from;
  std::set<std::string> allowed;
};
const std::set<std::string> kDevice{"device", "schedule", "base"};
std::set<std::string> with(std::set<std::string> modules, const std::set<std::string>& more) {
  modules.insert(more.begin(), more.end());
  return modules;
}
const std::set<std::string> kKernels = with({"kernels/cpu", "kernels/sm90"}, kDevice);
const std::set<std::string> kFabric = with({"machine"}, kDevice);
const std::set<std::string> kParallel =
    with({"fused", "collectives", "fabric", "kernels", "step", "weights", "machine"}, kKernels);
const std::set<std::string> kModels = with({"layers", "parallel"}, kParallel);
const std::set<std::string> kEngine = with({"models", "text/tokenizer", "text/chat_template"}, kModels);
const std::set<std::string> kWaferMesh{"wafer/cost", "schedule", "machine", "base"};
const std::vector<ArrowRow> kRows{
    {"apps", with({"engine", "wafer/programs", "wafer/mesh", "wafer/cost"}, kEngine)},
    {"heddle", with({"engine"}, kEngine)},
    {"engine", kEngine},
    {"wafer/programs", with(with({"models", "wafer/mesh"}, kWaferMesh), kModels)},
    {"wafer/mesh", kWaferMesh},
    {"wafer/cost", {"schedule", "machine", "base"}},
    {"models", kModels},
    {"layers", with({"parallel"}, kParallel)},
    {"parallel", kParallel},
    {"fused", with(with({"fabric", "kernels", "step"}, kFabric), kKernels)},
    {"collectives", with(with({"fabric", "kernels"}, kFabric), kKernels)},
    {"fabric", kFabric},
    {"kernels", kKernels},
    {"kernels/cpu", kDevice},
    {"kernels/sm90", kDevice},
    {"device", {"schedule", "base"}},
    {"text/chat_template", {"base"}},
    {"text/tokenizer", {"base"}},
    {"weights", {"base"}},
    {"step", {"base"}},
    {"machine", {"base"}},
    {"schedule", {"base"}},
    {"base", {}},
};
void PrintTo(const ArrowRow& row, std::ostream* stream) {
  *stream << row.from;
}

// "src/wafer/mesh" -> "../../../"
std::string climb_out_of(const std::string& folder) {
  std::string climb = "../";
  for (const char c : folder) climb += c == '/' ? "../" : "";
  return climb;
}

class Arrows : public ::testing::TestWithParam<ArrowRow> {};

// One file includes a header of every module.
TEST_P(Arrows, AreAllowedOrNamedWithTheirLine) {
  const auto folder = [](const std::string& module) { return module == "apps" ? "apps/cli" : "src/" + module; };
  const auto& [from, allowed] = GetParam();
  const std::string file = folder(from) + "/y.cpp";
  Files files;
  std::string includes;
  std::vector<::testing::Matcher<std::string>> faults;
  int line = 0;
  for (const auto& [to, unused] : kRows) {
    // Modules are compiled without apps/ on the include path: an include would need "../".
    const std::string header = to != "apps" ? to + "/x.h"
                               : from == to ? "cli/x.h"
                                            : climb_out_of(folder(from)) + "apps/cli/x.h";
    files[folder(to) + "/x.h"] = "";
    includes += "#include \"" + header + "\"\n";
    ++line;
    if (from != to && !allowed.contains(to))
      faults.push_back(HasSubstr(fmt::format("{}:{}: #include \"{}\": {} -> {}", file, line, header, from, to)));
  }
  files[file] = includes;
  EXPECT_THAT(check_directions(read(files)), ElementsAreArray(faults));
}
INSTANTIATE_TEST_SUITE_P(Modules, Arrows, ::testing::ValuesIn(kRows), [](const auto& test) {
  std::string name = test.param.from;
  std::ranges::replace(name, '/', '_');
  return name;
});

TEST(Directions, ASubfolderWithArrowsOfItsOwnIsHeldToThem) {
  EXPECT_THAT(check_directions(read({{"src/kernels/linear/x.h", ""},
                                     {"src/kernels/sm90/y.cuh", "#include \"kernels/linear/x.h\"\n"},
                                     {"src/kernels/rows/z.cpp", "#include \"kernels/sm90/y.cuh\"\n"}})),
              ElementsAre(HasSubstr("kernels/sm90 -> kernels runs upwards")));
}

TEST(Directions, ASubfolderBelongsToItsRoom) {
  EXPECT_THAT(
      check_directions(read({{"src/models/llama/llama.h", ""},
                             {"src/engine/engine.cpp", "#include \"models/llama/llama.h\"\n"},
                             {"src/step/plan.cpp", "#include \"models/llama/llama.h\"\n"}})),
      ElementsAre(HasSubstr("src/step/plan.cpp:1: #include \"models/llama/llama.h\": step -> models runs upwards")));
}

TEST(Directions, SubfoldersOfAModuleUseEachOtherAlongArrowsOnly) {
  const Files targets{{"src/kernels/rows/x.h", ""},
                      {"src/kernels/linear/x.h", ""},
                      {"src/kernels/x.h", "#include \"kernels/rows/x.h\"\n"},
                      {"src/fused/x.h", ""},
                      {"src/fused/a/x.h", ""},
                      {"src/kernels/moe/y.cpp", "#include \"kernels/rows/x.h\"\n#include \"kernels/x.h\"\n"}};
  EXPECT_THAT(check_directions(read(targets)), IsEmpty());
  Files files = targets;
  files["src/kernels/rows/y.cpp"] = "#include \"kernels/rows/x.h\"\n#include \"kernels/linear/x.h\"\n";
  files["src/fused/b/y.cpp"] = "#include \"fused/x.h\"\n#include \"fused/a/x.h\"\n#include \"kernels/rows/x.h\"\n";
  EXPECT_THAT(check_directions(read(files)),
              ElementsAre(HasSubstr("2: #include \"fused/a/x.h\": fused/b -> fused/a is"),
                          HasSubstr("kernels/rows -> kernels/linear is no arrow")));
}

TEST(Directions, NoSpellingGetsAround) {
  const Files target{{"src/engine/x.h", ""}};
  for (const std::string include :
       {"\"../engine/x.h\"", "<engine/x.h>", "\"engine/../engine/x.h\"", "\"./../engine/x.h\""}) {
    Files files = target;
    files["src/base/y.h"] = "#include " + include + "\n";
    EXPECT_THAT(check_directions(read(files)), SizeIs(1)) << include;
  }
}

TEST(Directions, AFolderThatIsNoRoomIsNamed) {
  EXPECT_THAT(check_directions(read({{"src/utils/x.h", ""}})), ElementsAre(HasSubstr("utils is not a module")));
}

TEST(Resolution, AMissingOrUnreadableHeaderIsNamed) {
  EXPECT_THAT(
      check_resolution(read({{"src/base/x.cpp", "#include \"base/gone.h\"\n#include <vector>\n#include WHAT\n"}})),
      ElementsAre(HasSubstr("src/base/x.cpp:1: #include \"base/gone.h\": no such file"),
                  HasSubstr("src/base/x.cpp:3: an include that names no header")));
  EXPECT_THAT(check_resolution(read({{"tests/base/folder.h", ""},
                                     {"tests/base/x.cpp", "#include \"base/folder.h\"\n#include \"cli/o.h\"\n"},
                                     {"apps/cli/o.h", "#include \"o.h\"\n#include \"cli/made.h\"\n"},
                                     {"apps/cli/made.h.in", ""}})),
              IsEmpty());
}

TEST(OperatorHeaders, MayNotLeadToCuda) {
  for (const std::string module : {"kernels", "fused", "collectives"}) {
    const std::string file = "src/" + module + "/x.h";
    EXPECT_THAT(check_operator_headers(read({{file, "#include <cuda_runtime.h>\n"}})), SizeIs(1)) << module;
    EXPECT_THAT(check_operator_headers(read({{file, "#include \"base/s.h\"\n"},
                                             {"src/base/s.h", "#include \"base/t.h\"\n#include \"base/s.h\"\n"},
                                             {"src/base/t.h", "#include <cuda/std/array>\n"}})),
                ElementsAre(HasSubstr("src/base/s.h -> src/base/t.h -> cuda/std/array")))
        << module;
  }
  // Allowed: the source, headers of device code, and headers of ours whose names begin this way.
  EXPECT_THAT(check_operator_headers(read({{"src/kernels/x_sm90.cu", "#include <cuda_runtime.h>\n"},
                                           {"src/kernels/ptx.cuh", "#include <cuda_bf16.h>\n"},
                                           {"src/kernels/y.h", "#include \"base/cuda_runtime.h\"\n"},
                                           {"src/base/cuda_runtime.h", "#include <vector>\n"}})),
              IsEmpty());
}

TEST(CommunicationHeaders, StayInsideTheirFabric) {
  EXPECT_THAT(check_communication_headers(read({{"src/fabric/nvlink/x.cpp", "#include <nccl.h>\n"},
                                                {"src/fabric/mpi/x.h", "#include <mpi.h>\n"},
                                                {"bench/baselines/x.cpp", "#include <nccl.h>\n"}})),
              IsEmpty());
  EXPECT_THAT(check_communication_headers(read({{"src/fabric/fabric.h", "#include <nccl_device.h>\n"},
                                                {"src/parallel/x.cpp", "#include <mpi.h>\n"},
                                                {"apps/cli/x.cpp", "#include <nccl.h>\n"}})),
              SizeIs(3));
}

TEST(Readmes, AreMissedWhereAFolderHoldsSomething) {
  const MadeUpTree tree({{"src/base/x.h", ""},
                         {"src/step/README.md", ""},
                         {"tests/base/deep/x.cpp", ""},
                         {"docs/architecture.md", ""},
                         {"tools/__pycache__/x.pyc", ""}});
  fs::create_directories(tree.root() / "src" / "empty");
  EXPECT_THAT(check_readmes(tree.root()), ElementsAre(HasSubstr("src/base"), HasSubstr("tests/base")));
}

TEST(MarkdownLinks, ThatLeadNowhereAreNamedWithTheirLine) {
  const MadeUpTree tree({{"README.md", "[a](docs/a.md) [b](docs/b.md#part)\n`src/base/x.h` `base/y.h`\n"},
                         {"docs/a.md",
                          "[up](../README.md) [here](#part) [out](https://example.org/x) `a/b` `1/2`\n"
                          "`src/<module>/x.h` `src/*.h` `x.h`\n"
                          "```\n[c](c.md)\n```\n"
                          "    `src/base/z.h`\n"},
                         {"src/base/README.md", "`x.h`, [tests](../tests)"},
                         {"src/base/x.h", ""}});
  EXPECT_THAT(check_markdown_links(tree.root()), ElementsAre("README.md:1: the link docs/b.md#part leads nowhere",
                                                             "README.md:2: the path base/y.h leads nowhere",
                                                             "src/base/README.md:1: the link ../tests leads nowhere"));
}

}  // namespace
}  // namespace heddle::architecture
