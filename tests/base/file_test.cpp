#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "base/error.h"
#include "temporary_folder.h"

namespace heddle {
namespace {

TEST(File, ReadsWhatWasWritten) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "text";
  write_file(path, "one");
  write_file(path, std::string("two\0three", 9));
  EXPECT_EQ(read_file(path, 100), std::string("two\0three", 9));
}

TEST(File, LeavesNothingBesideWhatItWrote) {
  const TemporaryFolder folder;
  write_file(folder.path() / "text", "one");
  EXPECT_THROW(write_file(folder.path() / "missing" / "text", "one"), Failure);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

// A small text is still buffered in this process when the file is closed, so closing detects the full disk.
TEST(File, AnErrorOnCloseKeepsTheOldText) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP() << "no /dev/full here";
  const TemporaryFolder folder;
  const auto path = folder.path() / "text";
  write_file(path, "old");
  std::filesystem::create_symlink("/dev/full", path.string() + fmt::format(".{}.tmp", ::getpid()));
  EXPECT_THROW(write_file(path, "new"), Failure);
  EXPECT_EQ(read_file(path, 100), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1);
}

TEST(PendingFile, TakesItsNameWhenItIsComplete) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "text";
  write_file(path, "old");
  PendingFile file(path);
  file.write(std::as_bytes(std::span("one, ", 5)));
  file.write({});
  file.write(std::as_bytes(std::span("two", 3)));
  EXPECT_EQ(read_file(path, 100), "old");
  file.commit();
  EXPECT_EQ(read_file(path, 100), "one, two");
  EXPECT_THROW(file.commit(), InvalidArgument);
  EXPECT_THROW(file.write({}), InvalidArgument);
}

TEST(PendingFile, LeavesNothingWithoutACommit) {
  const TemporaryFolder folder;
  { PendingFile(folder.path() / "text").write(std::as_bytes(std::span("one", 3))); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(PendingFile, LeavesNothingWhenTheNameIsTaken) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder.path() / "text");
  PendingFile file(folder.path() / "text");
  EXPECT_THROW(file.commit(), Failure);
}

TEST(File, RefusesMoreThanTheLimit) {
  const TemporaryFolder folder;
  write_file(folder.path() / "text", "12345");
  EXPECT_EQ(read_file(folder.path() / "text", 5), "12345");
  EXPECT_THROW(read_file(folder.path() / "text", 4), InputError);
}

TEST(File, RefusesWhatIsNotAFile) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_file(folder.path() / "missing", 10), InputError);
  EXPECT_THROW(read_file(folder.path(), 10), InputError);
  EXPECT_THROW(MappedFile(folder.path()), InputError);
  EXPECT_THROW(read_file("/dev/zero", 10), InputError);
}

TEST(File, DoesNotWaitForTheWriterOfAFifo) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_THROW(read_file(path, 10), InputError);
}

TEST(MappedFile, ShowsTheBytes) {
  const TemporaryFolder folder;
  write_file(folder.path() / "text", "abc");
  const MappedFile file(folder.path() / "text");
  ASSERT_EQ(file.bytes().size(), 3u);
  EXPECT_EQ(file.bytes()[2], std::byte{'c'});
}

TEST(MappedFile, PartsAreReadAtOnceOrAnErrorSaysWhyNot) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "text";
  write_file(path, std::string(100'000, 'x'));
  const MappedFile file(path);
  read_mapped(file.bytes().subspan(5'001, 70'000));
  read_mapped({});
  std::filesystem::resize_file(path, 100);
  EXPECT_THROW(read_mapped(file.bytes().subspan(50'000)), Failure);
}

TEST(MappedFile, MayBeEmpty) {
  const TemporaryFolder folder;
  write_file(folder.path() / "text", "");
  EXPECT_TRUE(MappedFile(folder.path() / "text").bytes().empty());
}

}  // namespace
}  // namespace heddle
