#include "weights/weight_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <random>

#include "base/error.h"
#include "base/file.h"
#include "base/stand_in.h"
#include "temporary_folder.h"
#include "weights/checkpoint.h"
#include "weights/safetensors_builder.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;

// Tensors in memory, like those of a synthetic model.
class FakeSource : public TensorSource {
 public:
  // Values, rounded to `dtype`. `offset`: bytes by which the tensor misses an aligned address.
  void add(const std::string& name, DType dtype, std::vector<std::int64_t> shape, std::span<const float> values,
           std::size_t offset = 0) {
    const std::size_t size_bytes = values.size() * size_of(dtype);
    auto memory = std::make_shared<std::vector<std::byte>>(size_bytes + offset);
    std::vector<std::byte> converted(size_bytes);
    convert(values.data(), DType::float32, converted.data(), dtype, values.size());
    std::ranges::copy(converted, memory->begin() + static_cast<std::ptrdiff_t>(offset));
    const std::span<const std::byte> bytes = std::span(*memory).subspan(offset);
    tensors_[name] = {{stored_dtype(dtype), std::move(shape), size_bytes, "m.safetensors"}, {bytes, std::move(memory)}};
  }
  void set_dtype(const std::string& name, std::string_view dtype) {
    tensors_.at(name).info.dtype = *stored_dtype(dtype);
  }
  const std::byte* data(const std::string& name) const { return tensors_.at(name).rows.bytes.data(); }
  long uses(const std::string& name) const { return tensors_.at(name).rows.owner.use_count(); }

  std::vector<std::string_view> names() const override {
    std::vector<std::string_view> names;
    for (const auto& [name, tensor] : tensors_) names.push_back(name);
    return names;
  }
  const TensorInfo* find(std::string_view name) const override {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second.info;
  }
  TensorRows rows(std::string_view name, std::int64_t first_row, std::int64_t num_rows) const override {
    const auto& [info, all] = tensors_.find(name)->second;
    const std::size_t row_bytes = info.size_bytes / static_cast<std::size_t>(info.shape[0]);
    return {all.bytes.subspan(static_cast<std::size_t>(first_row) * row_bytes,
                              static_cast<std::size_t>(num_rows) * row_bytes),
            all.owner};
  }
  std::string where() const override { return "m.safetensors"; }

 private:
  struct Tensor {
    TensorInfo info;
    TensorRows rows;
  };
  std::map<std::string, Tensor, std::less<>> tensors_;
};

std::vector<float> counting(std::size_t count, float first = 1) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

std::vector<float> values_of(const Weight& weight) {
  std::vector<float> values(static_cast<std::size_t>(weight.out_features * weight.in_features));
  for (std::int64_t row = 0; row < weight.out_features; ++row)
    convert(weight.row(row), weight.dtype, values.data() + row * weight.in_features, DType::float32,
            static_cast<std::size_t>(weight.in_features));
  return values;
}

class WeightLoaderTest : public ::testing::TestWithParam<DType> {
 protected:
  FakeSource source_;
};

TEST_P(WeightLoaderTest, ViewsWhatIsStoredInTheWantedDtype) {
  source_.add("a", GetParam(), {2, 3}, counting(6));
  for (const std::optional<DType> wanted : {std::optional<DType>(), std::optional(GetParam())}) {
    WeightLoader loader(source_, {.dtype = wanted});
    const Weight weight = loader.matrix({"a", {2, ""}}, {3, ""});
    EXPECT_EQ(weight.blocks[0].data, source_.data("a"));
    EXPECT_EQ(weight.dtype, GetParam());
    EXPECT_EQ(weight.out_features, 2);
    EXPECT_EQ(weight.in_features, 3);
  }
}

TEST_P(WeightLoaderTest, CopiesWhatIsNotAligned) {
  const std::vector<float> values = counting(6);
  source_.add("a", GetParam(), {2, 3}, values, 1);
  WeightLoader loader(source_);
  const Weight weight = loader.matrix({"a", {2, ""}}, {3, ""});
  EXPECT_NE(weight.blocks[0].data, source_.data("a"));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(weight.blocks[0].data) % 64, 0u);
  EXPECT_EQ(weight.dtype, GetParam());
  EXPECT_EQ(values_of(weight), values);
}

TEST_P(WeightLoaderTest, ConvertsToEveryWantedDtype) {
  // Small numbers: exact in all three dtypes. Misaligned, as after a header of odd length.
  const std::vector<float> values = counting(6, -3);
  for (const std::size_t offset : {0, 1})
    for (const DType wanted : {DType::float32, DType::bfloat16, DType::float16}) {
      source_.add("a", GetParam(), {2, 3}, values, offset);
      WeightLoader loader(source_, {.dtype = wanted});
      const Weight weight = loader.matrix({"a", {2, ""}}, {3, ""});
      EXPECT_EQ(weight.dtype, wanted);
      EXPECT_EQ(values_of(weight), values);
    }
}

TEST_P(WeightLoaderTest, VectorsAreFloat32WhateverIsWanted) {
  const std::vector<float> values = counting(5, 250);
  source_.add("a", GetParam(), {5}, values);
  WeightLoader loader(source_, {.dtype = DType::float16});
  const float* vector = loader.vector("a", {5, ""});
  EXPECT_EQ(std::vector<float>(vector, vector + 5), values);
  EXPECT_EQ(vector == static_cast<const void*>(source_.data("a")), GetParam() == DType::float32);
}

INSTANTIATE_TEST_SUITE_P(DTypes, WeightLoaderTest, ::testing::Values(DType::float32, DType::bfloat16, DType::float16),
                         [](const auto& param_info) { return std::string(name_of(param_info.param)); });

TEST(WeightLoader, RoundsAsConvertDoes) {
  FakeSource source;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> values(4096 * 700);  // more than is converted at a time, and no multiple of it
  for (float& value : values) value = normal(random);
  source.add("a", DType::float32, {700, 4096}, values);
  std::vector<std::size_t> progress;
  WeightLoader loader(source,
                      {.dtype = DType::bfloat16, .on_progress = [&](std::size_t bytes) { progress.push_back(bytes); }});
  const Weight weight = loader.matrix({"a", {700, ""}}, {4096, ""});

  std::vector<bfloat16> expected(values.size());
  convert(values.data(), DType::float32, expected.data(), DType::bfloat16, values.size());
  EXPECT_EQ(std::memcmp(weight.blocks[0].data, expected.data(), expected.size() * 2), 0);
  EXPECT_GT(progress.size(), 1u);
  EXPECT_TRUE(std::ranges::is_sorted(progress));
  EXPECT_EQ(progress.back(), values.size() * 4);
}

TEST(WeightLoader, StacksBlocksInOrder) {
  FakeSource source;
  source.add("q", DType::bfloat16, {4, 2}, counting(8, 1));
  source.add("k", DType::bfloat16, {1, 2}, counting(2, 101));
  source.add("v", DType::bfloat16, {2, 2}, counting(4, 201), 1);  // a copy beside views
  WeightLoader loader(source);
  const NamedRows blocks[] = {{"q", {4, ""}}, {"k", {1, ""}}, {"v", {2, ""}}};
  const Weight weight = loader.matrix(blocks, {2, ""});
  EXPECT_EQ(weight.out_features, 7);
  EXPECT_EQ(weight.dtype, DType::bfloat16);
  EXPECT_EQ(weight.blocks[1].data, source.data("k"));
  EXPECT_THAT(values_of(weight), ElementsAre(1, 2, 3, 4, 5, 6, 7, 8, 101, 102, 201, 202, 203, 204));
}

TEST(WeightLoader, StacksVectorsInOrderAsFloat32) {
  FakeSource source;
  source.add("q", DType::float32, {4}, counting(4, 1));
  source.add("k", DType::bfloat16, {3}, counting(3, 101), 1);
  source.add("v", DType::float16, {2}, counting(2, 201));
  WeightLoader loader(source, {.dtype = DType::float16});
  const NamedRows blocks[] = {{"q", {4, ""}}, {"k", {3, ""}, 1, 1}, {"v", {2, ""}}};
  const float* vector = loader.vector(blocks);
  const WeightStorage storage = loader.finish();  // all three were loaded
  EXPECT_THAT(std::vector<float>(vector, vector + 7), ElementsAre(1, 2, 3, 4, 102, 201, 202));
  EXPECT_THROW(loader.vector(std::array{NamedRows{"k", {2, ""}}}), InputError);
  EXPECT_THROW(loader.vector(std::array{NamedRows{"k", {3, ""}, 2, 2}}), InvalidArgument);
}

TEST(WeightLoader, CountsTheBytesOfMatricesVectorsAndConstantsAsTheyLieInMemory) {
  FakeSource source;
  source.add("w", DType::bfloat16, {3, 7}, counting(21));
  source.add("n", DType::bfloat16, {11}, counting(11));
  source.add("a", DType::float16, {5}, counting(5));
  source.add("b", DType::float32, {8}, counting(8));
  const auto bytes_of = [&](auto load) {
    WeightLoader loader(source, {.dtype = DType::float16});
    load(loader);
    // What nobody asked for is harmless here.
    constexpr std::string_view kAll[] = {"w", "n", "a", "b"};
    return loader.finish(kAll).size_bytes;
  };
  EXPECT_EQ(bytes_of([](WeightLoader& loader) { loader.matrix({"w", {3, ""}}, {7, ""}); }), 3u * 7 * 2);
  EXPECT_EQ(bytes_of([](WeightLoader& loader) { loader.vector("n", {11, ""}); }), 11u * 4);
  EXPECT_EQ(bytes_of([](WeightLoader& loader) {
              loader.vector(std::array{NamedRows{"a", {5, ""}}, NamedRows{"b", {8, ""}, 2, 5}});
            }),
            (5u + 5) * 4);
  EXPECT_EQ(bytes_of([](WeightLoader& loader) { loader.constants(std::array{1.0f, 2.0f, 3.0f}); }), 3u * 4);
}

TEST(WeightLoader, TellsInWhichDtypeBiasesAreStored) {
  FakeSource source;
  source.add("a", DType::bfloat16, {5}, counting(5));
  source.add("b", DType::bfloat16, {3}, counting(3));
  source.add("c", DType::float16, {3}, counting(3));
  WeightLoader loader(source, {.dtype = DType::float16});
  const NamedRows a{"a", {5, ""}}, b{"b", {3, ""}}, c{"c", {3, ""}};
  EXPECT_EQ(loader.stored_dtype(std::array{a}), DType::bfloat16);
  EXPECT_EQ(loader.stored_dtype(std::array{a, b}), DType::bfloat16);
  EXPECT_EQ(loader.stored_dtype(std::array{c}), DType::float16);
  EXPECT_EQ(loader.stored_dtype(std::array{a, c}), DType::float32);
}

TEST(WeightLoader, TakesSlicesOfRows) {
  FakeSource source;
  source.add("q", DType::float32, {4, 2}, counting(8, 1));
  source.add("k", DType::float32, {2, 2}, counting(4, 101));
  for (const std::optional<DType> wanted : {std::optional<DType>(), std::optional(DType::bfloat16)}) {
    WeightLoader loader(source, {.dtype = wanted});
    const NamedRows blocks[] = {{"q", {4, ""}, 1, 2}, {"k", {2, ""}, 1}};
    const Weight weight = loader.matrix(blocks, {2, ""});
    EXPECT_EQ(weight.out_features, 3);
    EXPECT_THAT(values_of(weight), ElementsAre(3, 4, 5, 6, 103, 104));
  }
  WeightLoader loader(source);
  EXPECT_EQ(loader.matrix({"q", {4, ""}, 1, 2}, {2, ""}).blocks[0].data, source.data("q") + 8);
  EXPECT_EQ(loader.matrix({"q", {4, ""}, 4, 0}, {2, ""}).out_features, 0);
  EXPECT_THROW(loader.matrix({"q", {4, ""}, 3, 2}, {2, ""}), InvalidArgument);
  EXPECT_THROW(loader.matrix({"q", {4, ""}, -1, 2}, {2, ""}), InvalidArgument);
}

TEST(WeightLoader, MixedDtypesBecomeFloat32) {
  FakeSource source;
  source.add("q", DType::bfloat16, {1, 2}, std::array{0x1p100f, 1.0f});     // beyond float16
  source.add("k", DType::float16, {1, 2}, std::array{1 + 0x1p-10f, 1.0f});  // beyond bfloat16
  WeightLoader loader(source);
  const NamedRows blocks[] = {{"q", {1, ""}}, {"k", {1, ""}}};
  const Weight weight = loader.matrix(blocks, {2, ""});
  EXPECT_EQ(weight.dtype, DType::float32);
  EXPECT_THAT(values_of(weight), ElementsAre(0x1p100f, 1, 1 + 0x1p-10f, 1));
}

TEST(WeightLoader, StorageKeepsViewsAndCopiesAlive) {
  FakeSource source;
  source.add("view", DType::float32, {1, 2}, counting(2));
  source.add("copy", DType::float32, {1, 2}, counting(2), 2);
  const long uses = source.uses("view");
  WeightStorage storage;
  const float* copy = nullptr;
  {
    WeightLoader loader(source);
    loader.matrix({"view", {1, ""}}, {2, ""});
    copy = static_cast<const float*>(loader.matrix({"copy", {1, ""}}, {2, ""}).blocks[0].data);
    storage = loader.finish();
  }
  EXPECT_EQ(source.uses("view"), uses + 1);
  EXPECT_EQ(source.uses("copy"), uses);  // the misaligned original is not held
  EXPECT_EQ(copy[1], 2);                 // under AddressSanitizer: still there
}

TEST(WeightLoader, RefusesTensorsThatNobodyAskedFor) {
  FakeSource source;
  source.add("model.a", DType::float32, {1, 2}, counting(2));
  source.add("model.layers.0.rotary_emb.inv_freq", DType::float32, {2}, counting(2));
  WeightLoader loader(source);
  loader.matrix({"model.a", {1, ""}}, {2, ""});
  EXPECT_EQ(message_of<InputError>([&] { loader.finish(); }),
            "m.safetensors: tensor \"model.layers.0.rotary_emb.inv_freq\" belongs to no part of this model. "
            "Is this config.json from another model?");
  constexpr std::string_view kHarmless[] = {"lm_head.weight", "rotary_emb.inv_freq"};
  EXPECT_EQ(loader.finish(kHarmless).owners.size(), 1u);

  source.add("x", DType::float32, {1}, counting(1));
  source.add("y", DType::float32, {1}, counting(1));
  EXPECT_EQ(message_of<InputError>([&] { loader.finish(kHarmless); }),
            "m.safetensors: tensor \"x\" (one of 2 such) belongs to no part of this model. "
            "Is this config.json from another model?");
}

TEST(WeightLoader, SaysWhatIsWrongWithATensor) {
  FakeSource source;
  source.add("up", DType::float32, {2, 3}, counting(6));
  source.add("norm", DType::float32, {3}, counting(3));
  source.add("int8", DType::float32, {2, 3}, counting(6));
  source.set_dtype("int8", "I8");
  WeightLoader loader(source, {.dtype = DType::float32});
  const auto matrix = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    return message_of<InputError>([&] {
      loader.matrix({name, {rows, fmt::format("intermediate_size in config.json is {}", rows)}},
                    {columns, fmt::format("hidden_size in config.json is {}", columns)});
    });
  };
  EXPECT_EQ(matrix("up", 2, 3), "");
  EXPECT_EQ(matrix("up", 4, 3),
            "m.safetensors: tensor \"up\" has shape [2, 3], expected [4, 3] (intermediate_size in config.json is 4). "
            "Is this config.json from another model?");
  EXPECT_EQ(matrix("up", 2, 5),
            "m.safetensors: tensor \"up\" has shape [2, 3], expected [2, 5] (hidden_size in config.json is 5). "
            "Is this config.json from another model?");
  EXPECT_EQ(matrix("up", 3, 2),  // as many elements, but transposed
            "m.safetensors: tensor \"up\" has shape [2, 3], expected [3, 2] (intermediate_size in config.json is 3; "
            "hidden_size in config.json is 2). Is this config.json from another model?");
  EXPECT_EQ(matrix("norm", 1, 3),  // as many elements, but no matrix
            "m.safetensors: tensor \"norm\" has shape [3], expected [1, 3] (intermediate_size in config.json is 1; "
            "hidden_size in config.json is 3). Is this config.json from another model?");
  EXPECT_EQ(matrix("down", 2, 3), "m.safetensors: tensor \"down\" is missing. Is this config.json from another model?");
  EXPECT_EQ(matrix("int8", 2, 3), "m.safetensors: tensor \"int8\" has dtype I8, expected F32, F16 or BF16");
  EXPECT_EQ(message_of<InputError>([&] {
              loader.vector("up", {2, ""});
            }),
            "m.safetensors: tensor \"up\" has shape [2, 3], expected [2]. Is this config.json from another model?");
}

TEST(WeightLoader, RefusesMoreBlocksThanAWeightHas) {
  FakeSource source;
  source.add("a", DType::float32, {1, 1}, counting(1));
  WeightLoader loader(source);
  const std::vector<NamedRows> blocks(Weight::kMaxBlocks + 1, {"a", {1, ""}});
  EXPECT_THROW(loader.matrix(blocks, {1, ""}), InvalidArgument);
  EXPECT_THROW(loader.matrix(std::span<const NamedRows>(), {1, ""}), InvalidArgument);
}

// End to end: a header whose length is not a multiple of 8 puts the float32 tensor at an odd address of the mapping.
TEST(WeightLoader, LoadsMisalignedTensorsOfAFile) {
  const std::vector<float> values = counting(6);
  const std::string data(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  for (const int padding : {0, 1, 2, 3}) {
    const TemporaryFolder folder;
    write_file(folder.path() / "config.json", "{}");
    std::string header = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})";
    header.resize((header.size() + 7) / 8 * 8 + static_cast<std::size_t>(padding), ' ');
    write_file(folder.path() / "model.safetensors", safetensors_file(header, data));

    Weight weight;
    WeightStorage storage;
    bool is_view = false;
    {
      const Checkpoint checkpoint(folder.path());
      WeightLoader loader(checkpoint);
      weight = loader.matrix({"a", {2, ""}}, {3, ""});
      is_view = weight.blocks[0].data == checkpoint.rows("a", 0, 2).bytes.data();
      storage = loader.finish();
    }
    EXPECT_EQ(is_view, padding == 0);
    EXPECT_EQ(values_of(weight), values);
  }
}

TEST(WeightLoader, WithoutContentsItChecksAndLoadsNothing) {
  const TemporaryFolder folder;
  write_file(folder.path() / "config.json", "{}");
  write_file(folder.path() / "model.safetensors",
             safetensors_file(R"({"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}})", "123456789012"));
  const Checkpoint checkpoint = Checkpoint(folder.path()).without_contents();
  EXPECT_THROW(checkpoint.rows("a", 0, 1), InvalidArgument);
  for (const std::optional<DType> wanted : {std::optional<DType>(), std::optional(DType::float32)}) {
    std::size_t bytes_done = 0;
    WeightLoader loader(checkpoint, {.dtype = wanted, .on_progress = [&](std::size_t bytes) { bytes_done = bytes; }});
    EXPECT_THROW(loader.finish(), InputError);  // a was not loaded
    EXPECT_THROW(loader.matrix({"a", {3, ""}}, {2, ""}), InputError);
    EXPECT_THROW(loader.matrix({"b", {2, ""}}, {3, ""}), InputError);
    const Weight weight = loader.matrix({"a", {2, ""}}, {3, ""});
    EXPECT_EQ(weight.blocks[0].data, stand_in_memory());
    EXPECT_EQ(weight.out_features, 2);
    EXPECT_THROW(loader.vector(std::array{NamedRows{"a", {2, ""}}}), InputError);
    EXPECT_TRUE(loader.finish().owners.empty());
    EXPECT_EQ(bytes_done, 0u);
  }
}

// A view (BF16 as stored), and a copy (converted to F32): neither may end the program.
TEST(WeightLoader, AFileThatShrinksDuringTheLoadIsAnError) {
  const TemporaryFolder folder;
  write_file(folder.path() / "config.json", "{}");
  constexpr std::string_view kHeader = R"({"a":{"dtype":"BF16","shape":[100,1000],"data_offsets":[0,200000]}})";
  for (const std::optional<DType> wanted : {std::optional<DType>(), std::optional(DType::float32)}) {
    write_file(folder.path() / "model.safetensors", safetensors_file(kHeader, std::string(200'000, '\0')));
    const Checkpoint checkpoint(folder.path());
    std::filesystem::resize_file(folder.path() / "model.safetensors", 1000);
    WeightLoader loader(checkpoint, {.dtype = wanted});
    EXPECT_THAT(message_of<Failure>([&] {
                  loader.matrix({"a", {100, ""}}, {1000, ""});
                }),
                ::testing::HasSubstr("has it become shorter?"));
    const NamedRows rows{.name = "a", .rows = {100, ""}};
    EXPECT_THAT(message_of<Failure>([&] {
                  loader.matrix({&rows, 1}, {1000, ""}, Slice{10, 500});
                }),
                ::testing::HasSubstr("has it become shorter?"));
  }
}

TEST(WeightLoader, LoadsSomeColumnsOfSomeRowsInEveryDtype) {
  std::vector<float> values(4 * 5);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(10 * (i / 5) + i % 5);
  for (const DType stored : {DType::float32, DType::bfloat16, DType::float16})
    for (const DType wanted : {DType::float32, DType::bfloat16, DType::float16}) {
      FakeSource source;
      source.add("a", stored, {4, 5}, values, 1);
      std::size_t bytes_done = 0;
      WeightLoader loader(source, {.dtype = wanted, .on_progress = [&](std::size_t bytes) { bytes_done = bytes; }});
      const NamedRows rows{.name = "a", .rows = {4, ""}, .first = 1, .count = 2};
      const Weight weight = loader.matrix({&rows, 1}, {5, ""}, Slice{2, 3});
      EXPECT_EQ(weight.in_features, 3);
      EXPECT_THAT(values_of(weight), ElementsAre(12, 13, 14, 22, 23, 24));
      EXPECT_EQ(bytes_done, 6 * size_of(stored));
      EXPECT_EQ(loader.finish().size_bytes, 6 * size_of(wanted));
    }
}

TEST(WeightLoader, RearrangesTheElementsOfRowsThatItReadsOnce) {
  FakeSource source;
  source.add("w", DType::float16, {4, 3}, counting(12));
  std::size_t progress = 0;
  WeightLoader loader(source, {.on_progress = [&](std::size_t bytes) { progress = bytes; }});
  // Rows 1 and 2: 4 5 6, 7 8 9.
  const Rearrangement results[] = {{3, 2,
                                    [](std::int64_t row, std::int64_t column) {
                                      return Rearrangement::Place{column, row};
                                    }},
                                   {1, 2, [](std::int64_t, std::int64_t column) {
                                      return Rearrangement::Place{1, 2 - column};
                                    }}};
  const NamedRows rows{.name = "w", .rows = {4, ""}, .first = 1, .count = 2};
  const std::vector<Weight> weights = loader.rearranged(rows, {3, ""}, results);
  ASSERT_EQ(weights.size(), 2U);
  EXPECT_EQ(weights[0].dtype, DType::float16);
  EXPECT_THAT(values_of(weights[0]), ElementsAre(4, 7, 5, 8, 6, 9));
  EXPECT_THAT(values_of(weights[1]), ElementsAre(9, 8));
  EXPECT_EQ(progress, 2U * 3 * 2);  // once
  EXPECT_EQ(loader.finish().size_bytes, (6U + 2) * 2);
}

TEST(WeightLoader, ATableOfPointersIsForAGpu) {
  FakeSource source;
  WeightLoader loader(source);
  const void* const addresses[] = {&source};
  EXPECT_EQ(loader.pointers(addresses), nullptr);
}

TEST(WeightLoader, AllColumnsAreAViewAndOthersAreRefused) {
  FakeSource source;
  source.add("a", DType::float32, {2, 3}, counting(6));
  WeightLoader loader(source);
  const NamedRows rows{.name = "a", .rows = {2, ""}};
  EXPECT_EQ(loader.matrix({&rows, 1}, {3, ""}, Slice{0, 3}).blocks[0].data, source.data("a"));
  EXPECT_THROW(loader.matrix({&rows, 1}, {3, ""}, Slice{1, 3}), InvalidArgument);
  EXPECT_THROW(loader.matrix({&rows, 1}, {3, ""}, Slice{-1, 2}), InvalidArgument);
  std::byte unused[16];
  EXPECT_THROW(source.read_columns("a", 0, 2, {2, 2}, unused), InvalidArgument);
}

}  // namespace
}  // namespace heddle
