#include "weights/checkpoint_write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "temporary_folder.h"
#include "weights/checkpoint.h"

namespace heddle {
namespace {

using ::testing::ElementsAre;

void expect_same(const ModelSource& written, const ModelSource& source) {
  EXPECT_EQ(written.config().value(), source.config().value());
  EXPECT_EQ(written.generation_config()->value(), source.generation_config()->value());
  ASSERT_EQ(written.names(), source.names());
  for (const std::string_view name : source.names()) {
    const TensorInfo& info = *source.find(name);
    EXPECT_EQ(written.find(name)->shape, info.shape);
    EXPECT_EQ(written.find(name)->dtype, info.dtype);
    const TensorRows a = written.rows(name, 0, info.shape[0]);
    const TensorRows b = source.rows(name, 0, info.shape[0]);
    EXPECT_TRUE(std::ranges::equal(a.bytes, b.bytes)) << name;
  }
}

TEST(WriteCheckpoint, WritesWhatCheckpointReads) {
  const TemporaryFolder folder;
  const auto source = open_model("synth:tiny,layers=2");
  std::size_t done = 0;
  write_checkpoint(*source, folder.path(), {.on_progress = [&](std::size_t bytes) {
    EXPECT_GT(bytes, done);
    done = bytes;
  }});
  EXPECT_EQ(done, source->total_bytes());
  const Checkpoint written(folder.path());
  EXPECT_THAT(written.weight_files(), ElementsAre("model.safetensors"));
  expect_same(written, *source);
}

TEST(WriteCheckpoint, CutsLargeModelsIntoShards) {
  const TemporaryFolder folder;
  const auto source = open_model("synth:tiny,layers=1,dtype=float32");
  // The embedding and the output weights have 512 000 bytes each, and a shard each.
  write_checkpoint(*source, folder.path(), {.max_shard_bytes = 512'000});
  const Checkpoint written(folder.path());
  const auto files = written.weight_files();
  EXPECT_GE(files.size(), 3u);
  EXPECT_EQ(files[0], fmt::format("model-00001-of-{:05}.safetensors", files.size()));
  expect_same(written, *source);
}

TEST(WriteCheckpoint, GivesATensorThatIsTooLargeAFileOfItsOwn) {
  const TemporaryFolder folder;
  const auto source = open_model("synth:tiny,layers=1");
  write_checkpoint(*source, folder.path(), {.max_shard_bytes = 1});
  const Checkpoint written(folder.path());
  EXPECT_EQ(written.weight_files().size(), source->names().size());
  expect_same(written, *source);
}

TEST(WriteCheckpoint, NamesTheFileThatCannotBeWritten) {
  const auto source = open_model("synth:tiny,layers=1");
  try {
    write_checkpoint(*source, "/no/such/folder");
    FAIL();
  } catch (const Failure& failure) {
    EXPECT_THAT(failure.what(), testing::HasSubstr("/no/such/folder/config.json"));
  }
}

}  // namespace
}  // namespace heddle
