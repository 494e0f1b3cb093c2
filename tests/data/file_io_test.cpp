#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/file_descriptor.h"
#include "core/file_io.h"
#include "core/scratch_folder.h"
#include "data/block_reader.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/file_faults.h"

namespace trident {
namespace {

TEST(FileIo, WritesAndReadsBack) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  std::string content(3'000'000, 'x');  // more than one write buffer
  content[1'500'000] = '\0';
  write_file(path, content);
  EXPECT_EQ(read_file(path), content);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
  EXPECT_TRUE(file_exists(path));
  EXPECT_FALSE(file_exists(folder.path()));
  EXPECT_TRUE(folder_exists(folder.path()));
  EXPECT_FALSE(folder_exists(path));
}

TEST(FileIo, EmptyFilesAreRead) {
  const TemporaryFolder folder;
  write_file(folder / "empty", "");
  EXPECT_EQ(read_file(folder / "empty"), "");
}

TEST(FileIo, WhatCannotBeReadIsNamed) {
  const TemporaryFolder folder;
  const std::string missing = folder / "missing";
  expect_error<DataError>([&] { read_file(missing); }, {missing, "No such file", "check the path"});
  expect_error<DataError>([&] { read_file(folder.path()); }, {folder.path(), "is a folder"});
  const std::string pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_error<DataError>([&] { read_file(pipe); }, {pipe, "not a regular file"});  // and it does not wait for a writer
}

TEST(FileIo, WithoutCommitTheOldFileStays) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  write_file(path, "old");
  {
    AtomicFile file(path);
    file.append("new");
    EXPECT_EQ(file.size(), 3);
    EXPECT_EQ(read_file(path), "old");
  }
  EXPECT_EQ(read_file(path), "old");
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
  AtomicFile file(path);
  file.append("new");
  file.commit();
  EXPECT_EQ(read_file(path), "new");
  EXPECT_THROW(file.commit(), InternalError);
}

TEST(FileIo, TemporariesAreNobodyElses) {
  const TemporaryFolder folder;
  const std::string path = folder / "a", victim = folder / "victim";
  write_file(victim, "precious");
  const AtomicFile first(path), second(path);  // two containers may have equal pids
  EXPECT_NE(first.temporary_path(), second.temporary_path());
  constexpr int kOwn = O_EXCL | O_NOFOLLOW | O_CLOEXEC;  // and where somebody guesses a name, it is refused and not followed
  EXPECT_EQ(flags_of_last_creation() & kOwn, kOwn);
  std::filesystem::create_symlink(victim, fmt::format("{}.tmp.{}", path, ::getpid()));  // what names with pids would have followed
  AtomicFile third(path);
  third.append("new");
  third.commit();
  EXPECT_EQ(read_file(victim), "precious");
  EXPECT_TRUE(is_being_written(path));
  remove_temporaries(path);
  EXPECT_TRUE(file_exists(first.temporary_path()) && file_exists(second.temporary_path()));
}

TEST(FileIo, RenamesReachTheDisk) {
  const TemporaryFolder folder;
  const FileFault fault(Fault::kError, 5, EIO);  // after open, write, fsync, rename and opening the folder: its fsync
  expect_error<StorageError>([&] { write_file(folder / "a", "x"); },
                             {folder.path() + ": cannot be flushed to the disk: ", "check"});
}

TEST(FileIo, WhatCannotBeWrittenIsNamed) {
  const TemporaryFolder folder;
  const std::string nowhere = folder / "no/such/folder";
  expect_error<StorageError>([&] { AtomicFile{nowhere}; }, {nowhere, "cannot be created", "create its folder"});
  expect_error<StorageError>([&] { AtomicFile{folder.path()}; }, {folder.path(), "is a folder"});
  // The folder appears under the final name while the file is written: the rename fails.
  const std::string path = folder / "a";
  expect_error<StorageError>(
      [&] {
        AtomicFile file(path);
        std::filesystem::create_directory(path);
        file.commit();
      },
      {path, "cannot be renamed"});
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

// Stands for a full disk: a write fails halfway.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit small = before_;
    small.rlim_cur = bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(FileIo, AFullDiskLeavesNothingBehind) {
  const TemporaryFolder folder;
  const std::string path = folder / "big";
  const FileSizeLimit limit(1 << 20);
  expect_error<StorageError>([&] { write_file(path, std::string(5 << 20, 'x')); }, {path, "cannot be written", "check"});
  EXPECT_TRUE(folder.names().empty());
}

TEST(ScratchFolder, IsRemovedWithAllItHoldsOrSaysWhyItCannotBe) {
  std::string path;
  {
    const ScratchFolder folder("one"), other("one");
    EXPECT_NE(folder.path(), other.path());
    path = folder.path();
    std::filesystem::create_directories(folder / "a/b");
    write_file(folder / "a/b/c", "x");
  }
  EXPECT_FALSE(is_there(path));
  const char* const before = std::getenv("TMPDIR");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("TMPDIR", "/dev/null", 1);
  expect_error<StorageError>([] { ScratchFolder folder("one"); }, {"TMPDIR", "a folder that can be written"});
  ::setenv("TMPDIR", "/sys", 1);
  expect_error<StorageError>([] { ScratchFolder folder("one"); }, {"/sys/one_", "set TMPDIR"});
  if (before == nullptr) ::unsetenv("TMPDIR");
  else ::setenv("TMPDIR", kept.c_str(), 1);
}

// A rename would put a file in the place of /dev/null, or of a pipe that somebody reads.
TEST(FileIo, ADeviceOrAPipeIsNotReplaced) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  for (const std::string& special : {std::string("/dev/null"), std::string("/dev/full"), folder / "pipe"}) {
    expect_error<StorageError>([&] { AtomicFile file(special); }, {special + ": is a device or a pipe; name a file"});
    struct stat there {};
    ASSERT_EQ(::stat(special.c_str(), &there), 0);
    EXPECT_FALSE(S_ISREG(there.st_mode));
  }
}

TEST(AppendFile, EveryRecordIsThereAtOnce) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  {
    AppendFile file(path, AppendFile::Start::kNewFile);
    file.append("one\n");
    EXPECT_EQ(read_file(path), "one\n");
    file.append("two\n");
  }
  { AppendFile(path, AppendFile::Start::kAppend).append("three\n"); }
  EXPECT_EQ(read_file(path), "one\ntwo\nthree\n");
  { AppendFile(path, AppendFile::Start::kNewFile).append("four\n"); }
  EXPECT_EQ(read_file(path), "four\n");
}

TEST(AppendFile, IsCreatedOnceAndKeepsOthersOut) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  {
    std::optional<AppendFile> file = AppendFile::create(path);
    ASSERT_TRUE(file);
    AppendFile moved = std::move(*file);
    file.reset();
    moved.append("one");
    EXPECT_EQ(moved.path(), path);
    EXPECT_FALSE(AppendFile::create(path));
    expect_error<StorageError>([&] { AppendFile(path, AppendFile::Start::kNewFile); },
                               {path, "another run is writing it", "a folder of its own"});
    EXPECT_EQ(read_file(path), "one");
  }
  EXPECT_FALSE(AppendFile::create(path));
  AppendFile(path, AppendFile::Start::kAppend).append("two");
  EXPECT_EQ(read_file(path), "onetwo");
}

// Anybody who may read a file can lock it so.
TEST(FileLocks, OfReadersKeepNoWriterOut) {
  const TemporaryFolder folder;
  const std::string path = folder / "a", left = path + ".tmp.0123456789abcdef";
  for (const std::string& file : {path, left}) write_file(file, "");
  std::vector<FileDescriptor> readers;
  for (const std::string& file : {path, left, folder.path()}) {
    const FileDescriptor& reader = readers.emplace_back(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(::flock(reader.get(), LOCK_EX | LOCK_NB), 0);
    struct flock lock {};
    lock.l_type = F_RDLCK;
    ASSERT_EQ(::fcntl(reader.get(), F_OFD_SETLK, &lock), 0);
  }
  AppendFile(path, AppendFile::Start::kAppend).append("one");
  EXPECT_EQ(read_file(path), "one");
  EXPECT_FALSE(is_being_written(path));
  remove_temporaries(path);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
  EXPECT_TRUE(LockFile::take(path));
}

// The second is refused, whether the reader stays or goes while the first writes, and whatever a killed writer left.
TEST(FileLocks, OfTwoWritersNeverBothGoOn) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  const auto start = [&] { return AppendFile(path, AppendFile::Start::kAppend); };
  const auto expect_held = [&] {
    EXPECT_TRUE(AppendFile::is_held(path));
    expect_error<StorageError>(start, {path + ": another run is writing it; give each run a folder of its own"});
  };
  write_file(path, "");
  for (const bool stays : {true, false}) {
    FileDescriptor reader(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct flock lock {};
    lock.l_type = F_RDLCK;
    ASSERT_EQ(::fcntl(reader.get(), F_OFD_SETLK, &lock), 0);
    write_file(path + ".lock", "");
    std::optional<AppendFile> first(start());
    if (!stays) reader = FileDescriptor();
    expect_held();
    const AppendFile moved = *std::move(first);
    first.reset();
    expect_held();
    if (stays) continue;
    AppendFile::take_over(path);
    EXPECT_FALSE(AppendFile::is_held(path));
    const AppendFile second = start();
    expect_held();
  }
  EXPECT_FALSE(AppendFile::is_held(path));
  EXPECT_EQ(folder.names(), std::vector<std::string>{"a"});
}

TEST(AppendFile, AFullDiskKeepsWholeRecords) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  AppendFile file(path, AppendFile::Start::kNewFile);
  {
    const FileSizeLimit limit(10);
    file.append("record1\n");
    for (int i = 0; i < 2; ++i) {
      expect_error<StorageError>([&] { file.append("record2\n"); }, {path + ": cannot be written: File too large; check"});
      EXPECT_EQ(read_file(path), "record1\n");
    }
  }
  file.append("record3\n");  // there is room again
  EXPECT_EQ(read_file(path), "record1\nrecord3\n");
}

// A disk that neither takes the rest of a record nor lets go of its beginning.
TEST(AppendFile, AHalfRecordIsFollowedByNone) {
  const TemporaryFolder folder;
  const std::string path = folder / "a";
  AppendFile file(path, AppendFile::Start::kNewFile);
  file.append("record1\n");
  {
    const FileSizeLimit limit(10);
    const FileFault uncut(Fault::kError, 2);  // behind the write of two bytes and the one that is refused
    expect_error<StorageError>([&] { file.append("record2\n"); }, {path + ": cannot be written, and now ends within a record:"});
  }
  EXPECT_EQ(read_file(path), "record1\nre");
  {
    const FileFault uncut(Fault::kErrorsFrom, 0);
    expect_error<StorageError>([&] { file.append("record3\n"); }, {path + ": ends within a record, which cannot be cut off:"});
  }
  file.append("record4\n");
  EXPECT_EQ(read_file(path), "record1\nrecord4\n");
}

// A pipe that nobody reads must not be waited for, and nothing may be written through a link that somebody put there.
TEST(AppendFile, OpensRegularFilesOnly) {
  const TemporaryFolder folder;
  const std::string pipe = folder / "pipe", link = folder / "link", target = folder / "target";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  write_file(target, "precious");
  std::filesystem::create_symlink(target, link);
  for (const auto start : {AppendFile::Start::kNewFile, AppendFile::Start::kAppend}) {
    expect_error<StorageError>([&] { AppendFile(pipe, start); }, {pipe + ": is not a regular file; remove it"});
    expect_error<StorageError>([&] { AppendFile("/dev/null", start); }, {"/dev/null: is not a regular file"});
    expect_error<StorageError>([&] { AppendFile(link, start); }, {link, "symbolic link", "remove it"});
  }
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);  // somebody reads it now
  expect_error<StorageError>([&] { AppendFile(pipe, AppendFile::Start::kAppend); }, {pipe + ": is not a regular file"});
  ::close(reader);
  EXPECT_FALSE(AppendFile::create(link));
  EXPECT_EQ(read_file(target), "precious");
}

TEST(AppendFile, NamesWhatTheSystemRefuses) {
  const TemporaryFolder folder;
  const std::string path = folder / "full";
  AppendFile full(path, AppendFile::Start::kNewFile);
  {
    const FileFault disk(Fault::kError, 0, ENOSPC);
    expect_error<StorageError>([&] { full.append("x"); }, {path + ": cannot be written: No space left on device; free some space"});
  }
  const std::string nowhere = folder / "no/such";
  const std::string refusal = nowhere + ": cannot be opened for writing: No such file or directory; create its folder first";
  expect_error<StorageError>([&] { AppendFile(nowhere, AppendFile::Start::kAppend); }, {refusal});
  expect_error<StorageError>([&] { AppendFile::create(nowhere); }, {refusal});
  expect_error<StorageError>([&] { AppendFile(folder.path(), AppendFile::Start::kAppend); }, {folder.path(), "Is a directory"});
}

// Reading by pread: what the system may hand over, and refuse.

std::string text_at(const RandomAccessFile& file, std::int64_t offset, std::size_t bytes) {
  std::string text(bytes, '?');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

class RandomAccessFileTest : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::string path_ = folder_ / "a";

  void SetUp() override { write_file(path_, "0123456789"); }
};

TEST_F(RandomAccessFileTest, AnyBytesAreRead) {
  RandomAccessFile file(path_);
  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(file.path(), path_);
  EXPECT_EQ(text_at(file, 0, 10), "0123456789");
  EXPECT_EQ(text_at(file, 7, 3), "789");
  EXPECT_EQ(text_at(file, 10, 0), "");
  write_file(folder_ / "b", "other");
  RandomAccessFile moved(std::move(file));
  EXPECT_EQ(text_at(moved, 2, 2), "23");
  moved = RandomAccessFile(folder_ / "b");
  EXPECT_EQ(text_at(moved, 0, 5), "other");
  EXPECT_EQ(moved.size(), 5);
}

TEST_F(RandomAccessFileTest, WhatIsOutsideIsABug) {
  const RandomAccessFile file(path_);
  EXPECT_THROW(text_at(file, 9, 2), InternalError);
  EXPECT_THROW(text_at(file, -1, 1), InternalError);
  EXPECT_THROW(text_at(file, 0, 11), InternalError);
  EXPECT_NO_THROW(file.will_need(0, 10));
  EXPECT_NO_THROW(file.will_need(10, 0));
  EXPECT_THROW(file.will_need(10, 1), InternalError);
  EXPECT_THROW(file.will_need(-1, 1), InternalError);
}

TEST_F(RandomAccessFileTest, WhatCannotBeOpenedIsNamed) {
  expect_error<DataError>([&] { RandomAccessFile{folder_ / "none"}; }, {"none", "No such file", "check the path"});
  expect_error<DataError>([&] { RandomAccessFile{folder_.path()}; }, {folder_.path(), "is a folder"});
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  expect_error<DataError>([&] { RandomAccessFile{folder_ / "pipe"}; }, {"pipe", "not a regular file"});  // and does not wait
}

// pread may return less than it was asked for (at the 2 GiB that Linux hands over at once, on network file systems), or be
// interrupted before the first byte.
TEST_F(RandomAccessFileTest, ShortAndInterruptedReadsGoOn) {
  int calls = 0;
  const RandomAccessFile file(path_, [&](int descriptor, void* out, std::size_t bytes, off_t offset) -> ssize_t {
    if (++calls % 2 == 1) return errno = EINTR, -1;
    return ::pread(descriptor, out, std::min<std::size_t>(bytes, 3), offset);
  });
  EXPECT_EQ(text_at(file, 1, 8), "12345678");
  EXPECT_EQ(calls, 6);
}

TEST_F(RandomAccessFileTest, AnErrorOfTheDiskNamesFileAndPosition) {
  const RandomAccessFile file(path_, [](int descriptor, void* out, std::size_t bytes, off_t offset) -> ssize_t {
    if (offset + static_cast<off_t>(bytes) > 6) return offset < 4 ? ::pread(descriptor, out, 2, offset) : (errno = EIO, -1);
    return ::pread(descriptor, out, bytes, offset);
  });
  EXPECT_EQ(text_at(file, 2, 4), "2345");
  expect_error<StorageError>([&] { text_at(file, 2, 7); },
                             {path_ + ": 5 bytes at byte 4 of 10 cannot be read: Input/output error; check the disk"});
}

TEST_F(RandomAccessFileTest, AFileThatBecomesShorterIsAnErrorAndNoSignal) {
  const RandomAccessFile file(path_);
  std::filesystem::resize_file(path_, 4);
  EXPECT_EQ(text_at(file, 0, 4), "0123");
  try {
    text_at(file, 2, 5);
    ADD_FAILURE() << "bytes from nowhere";
  } catch (const StorageError& error) {
    EXPECT_EQ(error.code(), ExitCode::kStorage);
    EXPECT_EQ(error.what(),
              path_ +
                  ": 3 bytes at byte 4 of 10 are not there: the file became shorter while it was in use; put it back, "
                  "and leave files alone that a run reads");
  }
  expect_error<StorageError>([&] { text_at(file, 9, 1); }, {path_, "1 bytes at byte 9 of 10"});
}

TEST_F(RandomAccessFileTest, BlocksAreReadOnce) {
  int calls = 0;
  bool fails = false;
  const RandomAccessFile file(path_, [&](int descriptor, void* out, std::size_t bytes, off_t offset) -> ssize_t {
    ++calls;
    if (!fails) return ::pread(descriptor, out, bytes, offset);
    std::memset(out, '?', bytes);
    return errno = EIO, -1;
  });
  BlockReader blocks(file, 4), single(file, 0);
  std::string seen;
  for (std::int64_t i = 0; i < 10; ++i) seen += blocks.value_at<char>(i);
  EXPECT_EQ(seen, "0123456789");
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(blocks.value_at<char>(3), '3');                         // backwards, too
  EXPECT_EQ(std::memcmp(blocks.bytes_at(2, 8), "23456789", 8), 0);  // more than a block
  EXPECT_EQ(calls, 5);
  EXPECT_EQ(single.value_at<char>(5), '5');
  EXPECT_EQ(single.value_at<char>(6), '6');
  EXPECT_EQ(calls, 7);
  fails = true;
  EXPECT_THROW(blocks.value_at<char>(0), StorageError);
  fails = false;
  EXPECT_EQ(blocks.value_at<char>(3), '3') << "what was not read is not there";
  EXPECT_EQ(blocks.block_at(5).size(), 2u) << "the rest of its block";
  EXPECT_EQ(blocks.block_at(8).size(), 2u) << "the rest of the file";
  EXPECT_EQ(blocks.block_at(10).size(), 0u);
  EXPECT_THROW(blocks.value_at<char>(10), InternalError);
}

}  // namespace
}  // namespace trident
