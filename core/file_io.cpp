#include "core/file_io.h"

#include <fcntl.h>
#include <sys/mman.h>
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

std::int64_t file_size(const std::string& path) {
  const Descriptor file(open_to_read(path));
  return static_cast<std::int64_t>(size_of_regular_file(file.get(), path));
}

std::string read_parts(const std::string& path, std::span<const FilePart> parts) {
  const Descriptor file(open_to_read(path));
  size_of_regular_file(file.get(), path);  // refuses what is none
  std::string content;
  for (const FilePart& part : parts) {
    std::size_t at = content.size();
    content.resize(at + static_cast<std::size_t>(part.bytes));
    while (at < content.size()) {
      const auto offset = static_cast<off_t>(part.first + part.bytes - static_cast<std::int64_t>(content.size() - at));
      const ssize_t got = ::pread(file.get(), content.data() + at, content.size() - at, offset);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw StorageError(fmt::format("{}: cannot be read: {}; check the disk", path, std::strerror(errno)));
      if (got == 0) throw StorageError(fmt::format("{}: ends at byte {}: it became shorter; see who writes it", path, offset));
      at += static_cast<std::size_t>(got);
    }
  }
  return content;
}

MappedFile::MappedFile(const std::string& path) : path_(path) {
  const Descriptor file(open_to_read(path));
  size_ = size_of_regular_file(file.get(), path);
  if (size_ == 0) return;  // mmap refuses a length of 0
  void* address = ::mmap(nullptr, size_, PROT_READ, MAP_SHARED, file.get(), 0);
  if (address == MAP_FAILED) {
    throw StorageError(fmt::format("{}: {} bytes cannot be mapped: {}; check limits on virtual memory (ulimit -v)", path, size_,
                                   std::strerror(errno)));
  }
  data_ = static_cast<const std::byte*>(address);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)), data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void MappedFile::will_need(std::int64_t offset, std::int64_t bytes) const {
  TRIDENT_CHECK(offset >= 0 && bytes >= 0 && offset <= size() - bytes, "bytes {}+{} of {}", offset, bytes, size());
  if (bytes == 0) return;
  const std::int64_t before = offset % ::sysconf(_SC_PAGESIZE);  // advice is about whole pages; the mapping begins with one
  ::posix_madvise(const_cast<std::byte*>(data_) + (offset - before), static_cast<std::size_t>(before + bytes), POSIX_MADV_WILLNEED);
}

}  // namespace trident
