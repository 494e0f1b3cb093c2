// Reading by pread: what the system may hand over, and refuse.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <utility>

#include "core/file_io.h"
#include "data/block_reader.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

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

TEST_F(RandomAccessFileTest, AnyBytes) {
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
