#include "core/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace trident {

namespace {

// Owns a descriptor for the length of a scope.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) ::close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

int open_to_read(const std::string& path) {
  // O_NONBLOCK: opening a pipe nobody writes to must be refused below instead of waiting for ever. Regular files ignore it.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    const int error = errno;
    throw DataError(fmt::format("{}: cannot be opened: {}; {}", path, std::strerror(error),
                                error == ENOENT ? "check the path" : "check its permissions"));
  }
  return descriptor;
}

std::size_t size_of_regular_file(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) throw StorageError(fmt::format("{}: {}; check the disk", path, std::strerror(errno)));
  if (S_ISDIR(status.st_mode)) throw DataError(fmt::format("{}: is a folder; name a file", path));
  if (!S_ISREG(status.st_mode)) throw DataError(fmt::format("{}: is not a regular file; copy its content into one", path));
  return static_cast<std::size_t>(status.st_size);
}

}  // namespace

bool file_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool folder_exists(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::string read_file(const std::string& path) {
  const Descriptor file(open_to_read(path));
  std::string content(size_of_regular_file(file.get(), path), '\0');
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = ::read(file.get(), content.data() + done, content.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) throw StorageError(fmt::format("{}: cannot be read: {}; check the disk", path, std::strerror(errno)));
    if (got == 0) break;  // it shrank meanwhile: what is there is what we return
    done += static_cast<std::size_t>(got);
  }
  content.resize(done);
  return content;
}

RandomAccessFile::RandomAccessFile(const std::string& path, ReadAt read_at) : path_(path), read_at_(std::move(read_at)) {
  Descriptor file(open_to_read(path));
  size_ = static_cast<std::int64_t>(size_of_regular_file(file.get(), path));
  descriptor_ = file.release();
  // Readers jump about, and say themselves what they need next (will_need). The kernel's own read-ahead would fetch 128 KB and more
  // around each place, most of it for nothing.
  ::posix_fadvise(descriptor_, 0, 0, POSIX_FADV_RANDOM);
}

RandomAccessFile::~RandomAccessFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

RandomAccessFile::RandomAccessFile(RandomAccessFile&& other) noexcept
    : path_(std::move(other.path_)),
      read_at_(std::move(other.read_at_)),
      size_(std::exchange(other.size_, 0)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

RandomAccessFile& RandomAccessFile::operator=(RandomAccessFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(read_at_, other.read_at_);
  std::swap(size_, other.size_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void RandomAccessFile::read(std::int64_t offset, std::span<std::byte> out) const {
  const std::int64_t bytes = std::ssize(out);
  TRIDENT_CHECK(offset >= 0 && offset <= size_ - bytes, "{}: bytes {}+{} of {}", path_, offset, bytes, size_);
  for (std::int64_t done = 0; done < bytes;) {
    const ssize_t got = read_at_(descriptor_, out.data() + done, static_cast<std::size_t>(bytes - done), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw StorageError(fmt::format("{}: {} bytes at byte {} of {} cannot be read: {}; check the disk", path_, bytes - done,
                                     offset + done, size_, std::strerror(errno)));
    }
    if (got == 0) {
      throw StorageError(
          fmt::format("{}: {} bytes at byte {} of {} are not there: the file became shorter while it was in use; put it "
                      "back, and leave files alone that a run reads",
                      path_, bytes - done, offset + done, size_));
    }
    done += got;
  }
}

void RandomAccessFile::will_need(std::int64_t offset, std::int64_t bytes) const {
  TRIDENT_CHECK(offset >= 0 && bytes >= 0 && offset <= size_ - bytes, "{}: bytes {}+{} of {}", path_, offset, bytes, size_);
  if (bytes > 0) ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);  // a length of 0 would mean the rest of the file
}

}  // namespace trident
