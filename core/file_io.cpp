#include "core/file_io.h"

#include <fcntl.h>
#include <sys/file.h>
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

constexpr std::size_t kWriteBuffer = 1 << 20;

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

// What errno says about writing `path`.
[[noreturn]] void fail_to_write(const std::string& path, std::string_view what) {
  const int error = errno;
  const char* remedy = error == ENOENT                      ? "create its folder first"
                       : error == ENOSPC || error == EDQUOT ? "free some space"
                                                            : "check the folder's permissions and the disk";
  throw StorageError(fmt::format("{}: {}: {}; {}", path, what, std::strerror(error), remedy));
}

// Returns how many of the bytes were written: all, or fewer and errno says why.
std::size_t write_all(int descriptor, std::string_view bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t written = ::write(descriptor, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return bytes.size() - rest.size();
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

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  if (folder_exists(path)) throw StorageError(fmt::format("{}: is a folder; name a file", path));
  std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
  descriptor_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_to_write(path_, "cannot be created");
  temporary_ = std::move(temporary);
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

void AtomicFile::append(std::span<const std::byte> bytes) {
  size_ += static_cast<std::int64_t>(bytes.size());
  while (!bytes.empty()) {  // in portions, so that the buffer stays small whatever is appended
    const std::span<const std::byte> portion = bytes.first(std::min(bytes.size(), kWriteBuffer));
    buffer_.append(reinterpret_cast<const char*>(portion.data()), portion.size());
    bytes = bytes.subspan(portion.size());
    if (buffer_.size() >= kWriteBuffer) flush();
  }
}

void AtomicFile::flush() {
  if (write_all(descriptor_, buffer_) != buffer_.size()) fail_to_write(path_, "cannot be written");
  buffer_.clear();
}

void AtomicFile::commit() {
  TRIDENT_CHECK(!temporary_.empty(), "{} was committed before", path_);
  flush();
  if (::fsync(descriptor_) != 0) fail_to_write(path_, "cannot be flushed to the disk");
  if (::close(std::exchange(descriptor_, -1)) != 0) fail_to_write(path_, "cannot be closed");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_to_write(path_, "cannot be renamed into place");
  temporary_.clear();
}

AppendFile::AppendFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {
  if (descriptor_ < 0) fail_to_write(path_, "cannot be opened for writing");
}

AppendFile::AppendFile(const std::string& path, Start start)
    : AppendFile(path, ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  // Before the file is emptied: another run may be writing it.
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    throw StorageError(fmt::format("{}: another run is writing it; give each run a folder of its own", path_));
  if (start == Start::kNewFile && ::ftruncate(descriptor_, 0) != 0 && errno != EINVAL)  // EINVAL: no regular file
    fail_to_write(path_, "cannot be emptied");
}

std::optional<AppendFile> AppendFile::create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0 && errno == EEXIST) return std::nullopt;
  AppendFile file(path, descriptor);
  ::flock(descriptor, LOCK_EX | LOCK_NB);  // nobody else knows it yet
  return file;
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void AppendFile::append(std::string_view record) {
  const std::size_t written = write_all(descriptor_, record);
  if (written == record.size()) return;
  const int error = errno;
  struct stat status {};
  const bool cut = written == 0 || (::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode) &&
                                    ::ftruncate(descriptor_, status.st_size - static_cast<off_t>(written)) == 0);
  errno = error;
  if (cut) fail_to_write(path_, "cannot be written");
  fail_to_write(path_, "cannot be written, and now ends within a record");
}

void write_file(const std::string& path, std::string_view content) {
  AtomicFile file(path);
  file.append(content);
  file.commit();
}

}  // namespace trident
