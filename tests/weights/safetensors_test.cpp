#include "weights/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "base/error.h"
#include "base/sanitizer.h"
#include "temporary_folder.h"
#include "weights/safetensors_builder.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<StoredTensor> parse(std::string_view file) {
  return parse_safetensors(bytes_of(file), "m.safetensors");
}

std::string error_of(std::string_view file) {
  return message_of<InputError>([&] { parse(file); });
}

TEST(Safetensors, ReadsTensorsInTheOrderOfTheirBytes) {
  const std::string file = safetensors_file(
      R"({"__metadata__":{"format":"pt"},)"
      R"("a":{"dtype":"F32","shape":[2],"data_offsets":[6,14]},"b":{"dtype":"BF16","shape":[3,1],"data_offsets":[0,6]}})",
      "abcdefABCDEFGH");
  const auto tensors = parse(file);
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "b");
  EXPECT_EQ(tensors[0].dtype.dtype, DType::bfloat16);
  EXPECT_THAT(tensors[0].shape, ElementsAre(3, 1));
  EXPECT_EQ(tensors[1].dtype.name, "F32");
  EXPECT_EQ(tensors[1].bytes.size(), 8u);
  EXPECT_EQ(tensors[1].bytes[0], std::byte{'A'});
}

TEST(Safetensors, AcceptsWhatTheFormatAllows) {
  const struct {
    const char* why;
    std::string file;
    std::size_t num_tensors;
  } cases[] = {
      {"no tensor at all", safetensors_file("{}"), 0},
      {"header padded with spaces, as writers do to align the data", safetensors_file("{}      "), 0},
      {"null-size tensors: alone, before and behind others",
       safetensors_file(
           R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
           R"("c":{"dtype":"F32","shape":[7,0,3],"data_offsets":[2,2]}})",
           "xy"),
       3},
      {"a scalar has no dimension", safetensors_file(R"({"a":{"dtype":"F16","shape":[],"data_offsets":[0,2]}})", "xy"),
       1},
      {"unknown fields of a tensor",
       safetensors_file(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"note":1}})", "x"), 1},
      {"names in any script, escaped zero bytes included",
       safetensors_file(R"({"\u0000é":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "x"), 1},
      {"half a byte each", safetensors_file(R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]}})", "xy"), 1},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(error_of(c.file), "") << c.why;
    EXPECT_EQ(parse(c.file).size(), c.num_tensors) << c.why;
  }
}

TEST(Safetensors, KnowsAllDtypesOfTheFormat) {
  const std::pair<const char*, int> dtypes[] = {{"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
                                                {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
                                                {"U32", 4},  {"F32", 4}, {"F64", 8}, {"I64", 8},     {"U64", 8}};
  for (const auto& [name, size] : dtypes) {
    const std::string header =
        fmt::format(R"({{"a":{{"dtype":"{}","shape":[3],"data_offsets":[0,{}]}}}})", name, 3 * size);
    EXPECT_EQ(error_of(safetensors_file(header, std::string(3 * size, 'x'))), "") << name;
  }
}

TEST(Safetensors, LoadsThreeDtypesAlone) {
  EXPECT_EQ(stored_dtype("F32")->dtype, DType::float32);
  EXPECT_EQ(stored_dtype("F16")->dtype, DType::float16);
  EXPECT_EQ(stored_dtype("BF16")->dtype, DType::bfloat16);
  EXPECT_EQ(stored_dtype("F64")->dtype, std::nullopt);
  EXPECT_EQ(stored_dtype("F8_E4M3")->dtype, std::nullopt);
}

// One tensor `a` of U8 with this shape and these offsets, and 8 bytes of data.
std::string with(std::string_view shape, std::string_view offsets, std::string_view dtype = "\"U8\"") {
  return safetensors_file(fmt::format(R"({{"a":{{"dtype":{},"shape":{},"data_offsets":{}}}}})", dtype, shape, offsets),
                          "12345678");
}

TEST(Safetensors, RefusesWhatTheFormatForbids) {
  const std::string entry = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  const struct {
    std::string file;
    const char* message;
  } cases[] = {
      {"", "has 0 bytes, too few"},
      {"1234567", "has 7 bytes, too few"},
      {little_endian(100'000'001) + "{}",
       "header would have 100000001 bytes, more than the format's 100000000 (max_header_bytes)"},
      {little_endian(~std::uint64_t{0}) + "{}", "header would have 18446744073709551615 bytes"},
      {little_endian(3) + "{}", "header has 3 bytes, the file only 10"},
      {"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"},
      {safetensors_file(""), "header is not a JSON object"},
      {safetensors_file(" {}"), "header is not a JSON object"},
      {safetensors_file("[]"), "header is not a JSON object"},
      {safetensors_file("\xEF\xBB\xBF{}"), "header is not a JSON object"},  // a byte order mark
      {safetensors_file("{"), "not valid JSON"},
      {safetensors_file("{}{}"), "not valid JSON"},
      {safetensors_file(std::string("{}\0{", 4)), "zero byte"},  // the JSON parser would stop there
      {safetensors_file("{\"\xff\":1}"), "not valid JSON"},
      {safetensors_file("{\"\xc0\x80\":1}"), "not valid JSON"},  // an overlong zero byte
      {safetensors_file(R"({"a":1})"), "tensor \"a\": expected an object, found 1"},
      {safetensors_file(R"({"a":{"shape":[],"data_offsets":[0,1]}})", "x"),
       "tensor \"a\": the field \"dtype\" is missing"},
      {safetensors_file(R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", "x"), "the field \"shape\" is missing"},
      {safetensors_file(R"({"a":{"dtype":"U8","shape":[1]}})", "x"), "the field \"data_offsets\" is missing"},
      {safetensors_file(R"({"a":)" + entry + R"(,"a":)" + entry + "}", "1234"), "the key \"a\" stands twice"},
      {safetensors_file(R"({"a":{"dtype":"U8","dtype":"I8","shape":[1],"data_offsets":[0,1]}})", "x"), "stands twice"},
      {safetensors_file(R"({"__metadata__":[]})"), "__metadata__: expected an object"},
      {safetensors_file(R"({"__metadata__":{"k":1}})"), "__metadata__: \"k\": expected a string, found 1"},
      {safetensors_file(R"({"__metadata__":{"k":{"l":"m"}}})"), "expected a string"},
      {safetensors_file(R"({"a":{"dtype":"U8","shape":[[[1]]],"data_offsets":[0,1]}})", "x"), "nested deeper"},
      {safetensors_file("{\"a\":" + std::string(100'000, '[')), "nested deeper"},

      {with("[8]", "[0,8]", "\"U9\""), "dtype: \"U9\" is not a dtype of the safetensors format"},
      {with("[8]", "[0,8]", "8"), "dtype: expected a string, found 8"},
      {with("8", "[0,8]"), "shape: expected an array, found 8"},
      {with("[-8]", "[0,8]"), "found -8"},
      {with("[8.0]", "[0,8]"), "found 8.0"},
      {with("[\"8\"]", "[0,8]"), "found \"8\""},
      {with("[9223372036854775808]", "[0,8]"), "found 9223372036854775808"},
      {with("[4294967296,4294967296]", "[0,8]"), "overflows"},
      {with("[4294967296,4294967296]", "[0,0]"), "overflows"},  // 2^64 is 0 in 64 bits
      {with("[3037000500,3037000500,0]", "[0,8]"), "overflows"},
      {with("[2]", "[0,8]"), "has 8 bytes by data_offsets, but 2 by shape [2] and dtype U8"},
      {with("[0]", "[0,8]"), "has 8 bytes by data_offsets, but 0 by shape [0]"},
      {with("[]", "[0,8]"), "but 1 by shape [] and dtype U8"},
      {with("[8]", "[0,8]", "\"F16\""), "but 16 by shape [8] and dtype F16"},
      {with("[3]", "[0,8]", "\"F4\""), "not a whole number of bytes"},
      {with("[8]", "[8,0]"), "[8, 0] ends before it begins"},
      {with("[8]", "[0]"), "data_offsets: expected two whole numbers"},
      {with("[8]", "[0,8,8]"), "data_offsets: expected two whole numbers"},
      {with("[8]", "8"), "data_offsets: expected two whole numbers"},
      {with("[8]", "[-1,7]"), "data_offsets: expected two whole numbers"},
      {with("[8]", "[0,8.5]"), "data_offsets: expected two whole numbers"},
      {with("[8]", "[0,18446744073709551615]"), "data_offsets: expected two whole numbers"},
      {with("[9]", "[0,9]"), "[0, 9] lies outside of the file, which has 8 bytes after its header"},
      {with("[8]", "[9223372036854775799,9223372036854775807]"), "lies outside of the file"},

      {with("[7]", "[0,7]"), "1 bytes after the last tensor belong to none"},
      {with("[7]", "[1,8]"), "begins at byte 1, but the tensors before it end at 0: there is a hole"},
      {safetensors_file("{}", "x"), "1 bytes after the last tensor"},
      {safetensors_file(R"({"a":)" + entry + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", "123456789"),
       "tensor \"b\": begins at byte 5, but the tensors before it end at 4: there is a hole"},
      {safetensors_file(R"({"a":)" + entry + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})", "1234567"),
       "tensor \"b\": begins at byte 3, but the tensors before it end at 4: they overlap"},
      {safetensors_file(R"({"a":)" + entry + R"(,"b":)" + entry + "}", "1234"), "they overlap"},
      {safetensors_file(R"({"a":)" + entry + R"(,"b":{"dtype":"U8","shape":[0],"data_offsets":[2,2]}})", "1234"),
       "tensor \"b\": begins at byte 2"},  // empty, but inside another
  };
  for (const auto& c : cases) {
    const std::string message = error_of(c.file);
    EXPECT_THAT(message, StartsWith("m.safetensors: ")) << c.message;
    EXPECT_THAT(message, HasSubstr(c.message));
    EXPECT_THAT(message, Not(HasSubstr("\n")));
    EXPECT_LT(message.size(), 500u);
  }
}

TEST(Safetensors, EveryTruncationIsAnError) {
  const std::string file = safetensors_file(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[3,1],"data_offsets":[8,14]}} )",
      "abcdefgh123456");
  ASSERT_EQ(error_of(file), "");
  for (std::size_t size = 0; size < file.size(); ++size) {
    // A copy of its own, so that AddressSanitizer sees a read past its end.
    const std::vector<char> prefix(file.begin(), file.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_NE(error_of({prefix.data(), prefix.size()}), "") << size;
  }
}

TEST(Safetensors, EveryChangedByteOfTheHeaderIsReadOrRefused) {
  const std::string file = safetensors_file(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "abcdefgh");
  for (std::size_t i = 0; i < file.size() - 8; ++i)
    for (const int change : {0x01, 0x10, 0x80, 0xff}) {
      std::string changed = file;
      changed[i] = static_cast<char>(changed[i] ^ change);
      for (const StoredTensor& tensor : [&]() -> std::vector<StoredTensor> {
             try {
               return parse(changed);
             } catch (const InputError&) {
               return {};
             }
           }())
        EXPECT_EQ(tensor.bytes.size(), 8u);  // accepted input still accounts for each byte
    }
}

TEST(Safetensors, EscapesAndCutsNamesInMessages) {
  const std::string name = "\\n\\u0000" + std::string(10'000, 'x');
  const std::string message = error_of(safetensors_file("{\"" + name + "\":{}}"));
  EXPECT_THAT(message, StartsWith("m.safetensors: tensor \"\\n\\u0000xxx"));
  EXPECT_LT(message.size(), 300u);
}

// With work quadratic in the number of tensors, the largest possible file would take hours.
TEST(Safetensors, ReadsManyTensors) {
  constexpr int kCount = kSanitizer ? 10'000 : 100'000;
  std::string header = "{";
  for (int i = 0; i < kCount; ++i)
    header += fmt::format(R"({}"t{}":{{"dtype":"U8","shape":[1],"data_offsets":[{},{}]}})", i == 0 ? "" : ",", i,
                          kCount - 1 - i, kCount - i);
  const std::string file = safetensors_file(header + "}", std::string(kCount, 'x'));
  const auto tensors = parse(file);
  ASSERT_EQ(tensors.size(), static_cast<std::size_t>(kCount));
  EXPECT_EQ(tensors[0].name, fmt::format("t{}", kCount - 1));
}

TEST(SafetensorsFile, NamesItsPathInErrors) {
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "w.safetensors").string();
  EXPECT_THAT(message_of<InputError>([&] { SafetensorsFile{path}; }), StartsWith(path + ": "));
  write_file(path, "");
  EXPECT_THAT(message_of<InputError>([&] { SafetensorsFile{path}; }), StartsWith(path + ": has 0 bytes"));
}

TEST(WriteSafetensors, WritesWhatIsReadBack) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "w.safetensors";
  const std::array<float, 3> a{1, 2, 3};
  const std::array<std::uint16_t, 2> b{7, 8};
  const TensorToWrite tensors[] = {{"a", stored_dtype(DType::float32), {3, 1}},
                                   {"quo\"te", stored_dtype(DType::bfloat16), {2}},
                                   {"empty", stored_dtype(DType::float16), {0, 5}}};
  write_safetensors(path, tensors, [&](std::size_t i, ByteSink sink) {
    if (i == 0) {  // in two pieces
      sink(std::as_bytes(std::span(a).first(1)));
      sink(std::as_bytes(std::span(a).subspan(1)));
    }
    if (i == 1) sink(std::as_bytes(std::span(b)));
  });

  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.tensors()[0].name, "a");
  EXPECT_THAT(file.tensors()[0].shape, ElementsAre(3, 1));
  EXPECT_EQ(std::memcmp(file.tensors()[0].bytes.data(), a.data(), sizeof(a)), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(file.tensors()[0].bytes.data()) % 8, 0u);
  EXPECT_THAT(read_file(path, 1 << 20), HasSubstr(R"("__metadata__":{"format":"pt"})"));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(WriteSafetensors, LeavesNothingWhenItFails) {
  const TemporaryFolder folder;
  const TensorToWrite tensors[] = {{"a", stored_dtype(DType::float32), {1}}};
  const auto too_few = [](std::size_t, ByteSink sink) { sink(bytes_of("123")); };
  const auto path = folder.path() / "w.safetensors";
  EXPECT_EQ(message_of<InvalidArgument>([&] { write_safetensors(path, tensors, too_few); }),
            "tensor \"a\" has 4 bytes, 3 were given");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(message_of<Failure>([&] { write_safetensors(folder.path() / "none" / "w", tensors, too_few); }),
              EndsWith("none/w: cannot write: No such file or directory"));
}

TEST(WriteSafetensors, ReportsAFullDisk) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const TemporaryFolder folder;
  // The temporary file's name is the path's plus the process id; a link there leads to the full device.
  const auto path = folder.path() / "w";
  std::filesystem::create_symlink("/dev/full", path.string() + fmt::format(".{}.tmp", ::getpid()));
  const TensorToWrite tensors[] = {{"a", stored_dtype(DType::float32), {1}}};
  EXPECT_THAT(message_of<Failure>([&] {
                write_safetensors(path, tensors, [](std::size_t, ByteSink sink) { sink(bytes_of("1234")); });
              }),
              HasSubstr("No space left on device"));
  EXPECT_FALSE(std::filesystem::exists(path));
}

}  // namespace
}  // namespace heddle
