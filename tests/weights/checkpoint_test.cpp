#include "weights/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "temporary_folder.h"
#include "weights/safetensors_builder.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// A file of tensors of 2 x 3 bytes each: those of the n-th are 'a' + n.
std::string file_with(std::initializer_list<std::string_view> names) {
  std::string header = "{";
  std::string data;
  for (const std::string_view name : names) {
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[2,3],"data_offsets":[{},{}]}})", data.empty() ? "" : ",",
                          name, data.size(), data.size() + 6);
    data += std::string(6, static_cast<char>('a' + data.size() / 6));
  }
  return safetensors_file(header + "}", data);
}

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() { write("config.json", R"({"hidden_size":8})"); }

  void write(const std::string& name, std::string_view text) { write_file(folder_.path() / name, text); }
  void write_index(std::string_view weight_map) {
    write("model.safetensors.index.json",
          fmt::format(R"({{"metadata":{{"total_size":1}},"weight_map":{}}})", weight_map));
  }
  // Two shards as an index may describe them.
  void write_shards() {
    write("s1.safetensors", file_with({"a", "b"}));
    write("s2.safetensors", file_with({"c"}));
  }
  // The message without the folder's own name.
  std::string error() {
    std::string message = message_of<InputError>([&] { Checkpoint{folder_.path()}; });
    const std::string prefix = folder_.path().string();
    for (std::size_t at; (at = message.find(prefix)) != std::string::npos;) message.replace(at, prefix.size(), "DIR");
    return message;
  }

  TemporaryFolder folder_;
};

TEST_F(CheckpointTest, ReadsASingleFile) {
  write("model.safetensors", file_with({"b", "a"}));
  write("generation_config.json", R"({"do_sample":true})");
  const Checkpoint checkpoint(folder_.path());
  EXPECT_EQ(checkpoint.config().at("hidden_size").integer(0, 10), 8);
  EXPECT_EQ(checkpoint.config().path(), (folder_.path() / "config.json").string());
  EXPECT_TRUE(checkpoint.generation_config()->at("do_sample").boolean());
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b"));
  EXPECT_THAT(checkpoint.weight_files(), ElementsAre("model.safetensors"));
  EXPECT_EQ(checkpoint.total_bytes(), 12u);
  const TensorInfo* info = checkpoint.find("a");
  ASSERT_NE(info, nullptr);
  EXPECT_EQ(info->dtype.name, "U8");
  EXPECT_THAT(info->shape, ElementsAre(2, 3));
  EXPECT_EQ(info->size_bytes, 6u);
  EXPECT_EQ(info->file, (folder_.path() / "model.safetensors").string());
  EXPECT_EQ(checkpoint.find("c"), nullptr);
}

TEST_F(CheckpointTest, GenerationConfigIsOptional) {
  write("model.safetensors", file_with({"a"}));
  EXPECT_FALSE(Checkpoint(folder_.path()).generation_config());
}

TEST_F(CheckpointTest, ReadsShards) {
  write_shards();
  write_index(R"({"a":"s1.safetensors","b":"s1.safetensors","c":"s2.safetensors"})");
  const Checkpoint checkpoint(folder_.path());
  EXPECT_THAT(checkpoint.names(), ElementsAre("a", "b", "c"));
  EXPECT_THAT(checkpoint.weight_files(), ElementsAre("s1.safetensors", "s2.safetensors"));
  EXPECT_EQ(checkpoint.total_bytes(), 18u);
  EXPECT_EQ(checkpoint.find("c")->file, (folder_.path() / "s2.safetensors").string());
}

TEST_F(CheckpointTest, GivesRowsThatOutliveIt) {
  write("model.safetensors", file_with({"a", "b"}));
  TensorRows rows;
  {
    const Checkpoint checkpoint(folder_.path());
    const TensorRows all = checkpoint.rows("b", 0, 2);
    EXPECT_EQ(all.bytes.size(), 6u);
    rows = checkpoint.rows("b", 1, 1);
    EXPECT_EQ(rows.bytes.data(), all.bytes.data() + 3);
    EXPECT_TRUE(checkpoint.rows("b", 2, 0).bytes.empty());
  }
  ASSERT_EQ(rows.bytes.size(), 3u);
  EXPECT_EQ(rows.bytes[2], std::byte{'b'});
}

// Of rows as narrow as a rank's share often is, and of rows with whole pages between the columns of one and the next.
TEST_F(CheckpointTest, ReadsColumnsOfNarrowAndOfWideRows) {
  for (const std::size_t row_bytes : {10u, 20'000u}) {
    constexpr std::size_t kRows = 5;
    std::string data;
    for (std::size_t i = 0; i < kRows * row_bytes; ++i) data += static_cast<char>(i % 251);
    write("model.safetensors",
          safetensors_file(fmt::format(R"({{"m":{{"dtype":"U8","shape":[{},{}],"data_offsets":[0,{}]}}}})", kRows,
                                       row_bytes, data.size()),
                           data));
    const Checkpoint checkpoint(folder_.path());
    const std::size_t count = row_bytes / 5, first = row_bytes - count;  // the last columns, of the last rows, too
    std::string columns(3 * count, '\0');
    checkpoint.read_columns("m", 2, 3, {static_cast<std::int64_t>(first), static_cast<std::int64_t>(count)},
                            reinterpret_cast<std::byte*>(columns.data()));
    std::string wanted;
    for (std::size_t row = 2; row < kRows; ++row) wanted += data.substr(row * row_bytes + first, count);
    EXPECT_TRUE(columns == wanted) << row_bytes;
    checkpoint.read_columns("m", kRows, 0, {0, 1}, nullptr);
  }
}

TEST_F(CheckpointTest, RefusesRowsThatAreNotThere) {
  write("model.safetensors", file_with({"a"}));
  const Checkpoint checkpoint(folder_.path());
  EXPECT_THROW(checkpoint.rows("x", 0, 1), InvalidArgument);
  EXPECT_THROW(checkpoint.rows("a", 0, 3), InvalidArgument);
  EXPECT_THROW(checkpoint.rows("a", -1, 1), InvalidArgument);
  EXPECT_THROW(checkpoint.rows("a", 0, -1), InvalidArgument);
  EXPECT_THROW(checkpoint.rows("a", 1, INT64_MAX), InvalidArgument);
}

TEST_F(CheckpointTest, EmptyTensorsHaveRowsWithoutBytes) {
  write("model.safetensors", safetensors_file(R"({"a":{"dtype":"F32","shape":[0,4],"data_offsets":[0,0]}})"));
  EXPECT_TRUE(Checkpoint(folder_.path()).rows("a", 0, 0).bytes.empty());
}

TEST(Checkpoint, RefusesWhatIsNotAFolder) {
  const TemporaryFolder folder;
  write_file(folder.path() / "file", "");
  EXPECT_EQ(message_of<InputError>([] { Checkpoint{"/none/such"}; }),
            "/none/such: no such folder. Give the folder that holds config.json and the weights");
  EXPECT_THAT(message_of<InputError>([&] { Checkpoint{folder.path() / "file"}; }), HasSubstr("file: is not a folder"));
  EXPECT_THAT(message_of<InputError>([&] { Checkpoint{folder.path()}; }), HasSubstr("holds no config.json"));
  EXPECT_NE(message_of<InputError>([] { Checkpoint{""}; }), "");
}

TEST_F(CheckpointTest, RefusesFoldersThatAreNotWhole) {
  const std::string good = file_with({"a"});
  const struct {
    const char* why;
    std::function<void()> prepare;
    const char* message;
  } cases[] = {
      {"no weights", [] {}, "DIR: holds no weights; looked for model.safetensors and model.safetensors.index.json"},
      {"pickled weights", [&] { write("pytorch_model.bin", ""); }, "DIR/pytorch_model.bin: these weights are pickled"},
      {"config.json is a list", [&] { write("config.json", "[]"); },
       "DIR/config.json: expected an object, found an array"},
      {"config.json is cut off", [&] { write("config.json", "{\"a\":"); }, "DIR/config.json: is not valid JSON"},
      {"config.json nests", [&] { write("config.json", std::string(100'000, '[')); }, "DIR/config.json: nested deeper"},
      {"NaN is not JSON", [&] { write("config.json", R"({"rms_norm_eps": NaN})"); },
       "DIR/config.json: is not valid JSON"},
      {"generation_config.json is a number",
       [&] {
         write("config.json", "{}");
         write("generation_config.json", "1");
       },
       "DIR/generation_config.json: expected an object, found 1"},
      {"truncated weights",
       [&] {
         std::filesystem::remove(folder_.path() / "generation_config.json");
         write("model.safetensors", good.substr(0, good.size() - 1));
       },
       "DIR/model.safetensors: tensor \"a\": data_offsets: [0, 6] lies outside of the file"},
      {"weights are a folder",
       [&] {
         std::filesystem::remove(folder_.path() / "model.safetensors");
         std::filesystem::create_directory(folder_.path() / "model.safetensors");
       },
       "DIR/model.safetensors: is a folder, expected a file"},
  };
  for (const auto& c : cases) {
    c.prepare();
    EXPECT_THAT(error(), StartsWith(c.message)) << c.why;
  }
}

TEST_F(CheckpointTest, RefusesAnIndexThatDoesNotMatchItsShards) {
  write_shards();
  std::filesystem::create_symlink("/dev/null", folder_.path() / "device");
  const struct {
    const char* weight_map;
    const char* message;
  } cases[] = {
      {"{}", "DIR/model.safetensors.index.json: weight_map: expected an object that names the file of each tensor"},
      {"[]", "DIR/model.safetensors.index.json: weight_map: expected an object that names"},
      {R"({"a":1})", R"(DIR/model.safetensors.index.json: weight_map: "a": expected a string, found 1)"},
      {R"({"a":"s1.safetensors","b":"s3.safetensors"})",
       R"(DIR/model.safetensors.index.json: names the file "s3.safetensors", which is missing)"},
      {R"({"a":"s1.safetensors"})", "DIR/s1.safetensors: tensor \"b\" is not listed in model.safetensors.index.json"},
      {R"({"a":"s1.safetensors","b":"s1.safetensors","c":"s1.safetensors"})",
       "DIR/s1.safetensors: tensor \"c\" is missing; model.safetensors.index.json says that it lies here"},
      {R"({"a":"s1.safetensors","b":"s2.safetensors","c":"s2.safetensors"})",
       "DIR/s2.safetensors: tensor \"b\" lies in DIR/s1.safetensors; model.safetensors.index.json says that it lies "
       "here"},
      {R"({"a":"s1.safetensors","b":"device"})", "DIR/device: is not a regular file"},
      {R"({"a":"../s1.safetensors"})",
       R"(DIR/model.safetensors.index.json: weight_map: "a": "../s1.safetensors" is not the plain name of a file)"},
      {R"({"a":"/etc/passwd"})",
       R"(DIR/model.safetensors.index.json: weight_map: "a": "/etc/passwd" is not the plain name)"},
      {R"({"a":"sub/s1.safetensors"})",
       R"(DIR/model.safetensors.index.json: weight_map: "a": "sub/s1.safetensors" is not)"},
      {R"({"a":".."})", R"(DIR/model.safetensors.index.json: weight_map: "a": ".." is not)"},
      {R"({"a":"."})", R"(DIR/model.safetensors.index.json: weight_map: "a": "." is not)"},
      {R"({"a":""})", R"(DIR/model.safetensors.index.json: weight_map: "a": "" is not)"},
      {R"({"a":"s1.safetensors\u0000"})",
       R"(DIR/model.safetensors.index.json: weight_map: "a": "s1.safetensors\u0000" is not)"},
  };
  for (const auto& c : cases) {
    write_index(c.weight_map);
    EXPECT_THAT(error(), StartsWith(c.message));
  }
  write("model.safetensors.index.json", "{}");
  EXPECT_THAT(error(), StartsWith("DIR/model.safetensors.index.json: the field \"weight_map\" is missing"));
}

TEST_F(CheckpointTest, RefusesATensorThatLiesInTwoShards) {
  write("s1.safetensors", file_with({"a", "b"}));
  write("s2.safetensors", file_with({"b"}));
  write_index(R"({"a":"s1.safetensors","b":"s2.safetensors"})");
  EXPECT_EQ(error(), "DIR/s2.safetensors: tensor \"b\" lies in DIR/s1.safetensors, too");
}

}  // namespace
}  // namespace heddle
