#include "core/block_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/file_descriptor.h"

namespace trident {
namespace {

[[noreturn]] void fail(const std::string& path, std::string_view what) {
  const int error = errno;
  const char* remedy = error == ENOSPC || error == EDQUOT ? "free some space" : "check the folder's permissions and the disk";
  throw StorageError(fmt::format("{}: {}: {}; {}", path, what, std::strerror(error), remedy), error);
}

int create(const std::string& path) {
  constexpr int kFlags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  const int direct = uninterrupted([&] { return ::open(path.c_str(), kFlags | O_DIRECT, 0666); });
  if (direct >= 0 || errno != EINVAL) return direct;
  ::unlink(path.c_str());  // some file systems make the file before they refuse
  return uninterrupted([&] { return ::open(path.c_str(), kFlags, 0666); });
}

}  // namespace

BlockFile::BlockFile(const std::string& path, std::int64_t bytes) : path_(path), bytes_(bytes), descriptor_(create(path)) {
  if (descriptor_ < 0) fail(path_, "cannot be created");
  if (bytes == 0 || uninterrupted([&] { return ::fallocate(descriptor_, 0, 0, bytes); }) == 0) return;
  if (errno == EOPNOTSUPP || errno == ENOSYS) return;  // then a full disk is noticed while writing
  const int error = errno;
  close();
  errno = error;
  fail(path_, fmt::format("{} bytes cannot be reserved", bytes));
}

BlockFile::~BlockFile() { close(); }

BlockFile::BlockFile(BlockFile&& other) noexcept
    : path_(std::move(other.path_)), bytes_(other.bytes_), descriptor_(std::exchange(other.descriptor_, -1)) {}

BlockFile& BlockFile::operator=(BlockFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(bytes_, other.bytes_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void BlockFile::close() {
  if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

void BlockFile::write(std::int64_t offset, std::span<const std::byte> data) {
  TRIDENT_CHECK(offset % kDirectAlignment == 0 && std::ssize(data) % kDirectAlignment == 0 &&
                    reinterpret_cast<std::uintptr_t>(data.data()) % kDirectAlignment == 0,
                "{}: {} bytes at byte {} are not aligned", path_, data.size(), offset);
  while (!data.empty()) {
    const ssize_t written = uninterrupted([&] { return ::pwrite(descriptor_, data.data(), data.size(), offset); });
    if (written < 0) fail(path_, fmt::format("{} bytes at byte {} cannot be written", data.size(), offset));
    // A write that ends between boundaries is repeated from the last boundary; if none was reached, the disk is full, or nearly so.
    const ssize_t whole = written / kDirectAlignment * kDirectAlignment;
    if (whole == 0) {
      errno = ENOSPC;
      fail(path_, fmt::format("{} bytes at byte {} cannot be written", data.size(), offset));
    }
    data = data.subspan(static_cast<std::size_t>(whole));
    offset += whole;
  }
}

void BlockFile::finish() {
  if (uninterrupted([&] { return ::ftruncate(descriptor_, bytes_); }) != 0) fail(path_, "its size cannot be set");
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail(path_, "cannot be flushed to the disk");
  close();
}

}  // namespace trident
