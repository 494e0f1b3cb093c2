#include "core/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "core/file_descriptor.h"

namespace trident {

namespace {

// True: the machine or the disk failed, perhaps for a moment. Any other error is about the path.
bool is_storage_error(int error) {
  constexpr int kErrors[] = {EIO, ESTALE, ETIMEDOUT, ENOTCONN, ESHUTDOWN, EMFILE, ENFILE, ENOMEM};
  return std::ranges::find(kErrors, error) != std::end(kErrors);
}

[[noreturn]] void refuse_unpermitted(const std::string& path, std::string_view what, int error) {
  throw NotPermitted(fmt::format("{}: cannot be {}: {}; check its permissions, and those of the folders above it", path, what,
                                 std::strerror(error)),
                     error);
}

[[noreturn]] void fail_to_open(const std::string& path) {
  const int error = errno;
  if (is_storage_error(error))
    throw StorageError(fmt::format("{}: cannot be opened: {}; {}", path, std::strerror(error),
                                   error == EMFILE || error == ENFILE ? "raise ulimit -n" : "check the disk"),
                       error);
  if (error == EACCES || error == EPERM) refuse_unpermitted(path, "opened", error);
  throw DataError(fmt::format("{}: cannot be opened: {}; {}", path, std::strerror(error),
                              error == ENOENT  ? "check the path"
                              : error == ELOOP ? "it is a symbolic link, which is not followed: put the file itself there"
                                               : "check the path, and what lies there"));
}

int open_to_read(const std::string& path) {
  // O_NONBLOCK: opening a pipe nobody writes to must be refused below instead of waiting for ever. Regular files ignore it.
  const int descriptor = uninterrupted([&] { return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); });
  if (descriptor < 0) fail_to_open(path);
  return descriptor;
}

// Whether a look found something. A disk that does not answer has not said that nothing is there: who believed it would replace
// what is there, or tell people to remove it.
bool is_found(int result, const std::string& path) {
  if (result == 0) return true;
  const int error = errno;
  if (!is_storage_error(error)) return false;
  throw StorageError(fmt::format("{}: cannot be looked at: {}; check the disk", path, std::strerror(error)), error);
}

// One part of a path, through no link. A link opened as a folder gives ENOTDIR, as a file does: which it is, is asked again.
int open_below(int folder, const std::string& part, bool is_last, const std::string& path) {
  const int flags = O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | (is_last ? 0 : O_DIRECTORY);
  const int descriptor = uninterrupted([&] { return ::openat(folder, part.c_str(), flags); });
  if (descriptor >= 0) return descriptor;
  struct stat status {};
  if (errno == ENOTDIR && ::fstatat(folder, part.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
    errno = S_ISLNK(status.st_mode) ? ELOOP : ENOTDIR;
  fail_to_open(path);
}

// Where git-lfs was not there when a repository was cloned, every large file is such a text, whatever its name says.
void refuse_lfs_pointer(int descriptor, const std::string& path, off_t size) {
  constexpr off_t kLongest = 1024;
  std::string beginning(64, '\0');
  if (size < std::ssize(beginning) || size > kLongest || ::pread(descriptor, beginning.data(), beginning.size(), 0) < 0) return;
  if (beginning.starts_with("version https://git-lfs.github.com/spec/"))
    throw DataError(fmt::format("{}: is a git-lfs pointer in place of the file; run git lfs pull in its folder", path));
}

std::size_t size_of_regular_file(int descriptor, const std::string& path) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0)
    throw StorageError(fmt::format("{}: {}; check the disk", path, std::strerror(errno)), errno);
  if (S_ISDIR(status.st_mode)) throw DataError(fmt::format("{}: is a folder; name a file", path));
  if (!S_ISREG(status.st_mode)) throw DataError(fmt::format("{}: is not a regular file; copy its content into one", path));
  refuse_lfs_pointer(descriptor, path, status.st_size);
  return static_cast<std::size_t>(status.st_size);
}

}  // namespace

bool is_there(const std::string& path) {
  struct stat status {};
  return is_found(::lstat(path.c_str(), &status), path);
}

bool file_exists(const std::string& path) {
  struct stat status {};
  return is_found(::stat(path.c_str(), &status), path) && S_ISREG(status.st_mode);
}

bool folder_exists(const std::string& path) {
  struct stat status {};
  return is_found(::stat(path.c_str(), &status), path) && S_ISDIR(status.st_mode);
}

void check_may_read(const std::string& path) {
  if (::access(path.c_str(), folder_exists(path) ? R_OK | X_OK : R_OK) != 0 && errno == EACCES)
    refuse_unpermitted(path, "read", errno);
}

std::vector<std::string> names_in(const std::string& folder) {
  namespace fs = std::filesystem;
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
    names.push_back(entry->path().filename().string());
  if (error == std::errc::permission_denied) refuse_unpermitted(folder, "listed", error.value());
  if (error && error != std::errc::no_such_file_or_directory && error != std::errc::not_a_directory)
    throw StorageError(fmt::format("{}: cannot be listed: {}; check its permissions and the disk", folder, error.message()),
                       error.value());
  std::ranges::sort(names);
  return names;
}

std::string read_file(const std::string& path) {
  const FileDescriptor file(open_to_read(path));
  std::string content(size_of_regular_file(file.get(), path), '\0');
  std::size_t done = 0;
  while (done < content.size()) {
    const ssize_t got = uninterrupted([&] { return ::read(file.get(), content.data() + done, content.size() - done); });
    if (got < 0) throw StorageError(fmt::format("{}: cannot be read: {}; check the disk", path, std::strerror(errno)), errno);
    if (got == 0) break;  // it shrank meanwhile: what is there is what we return
    done += static_cast<std::size_t>(got);
  }
  content.resize(done);
  return content;
}

RandomAccessFile::RandomAccessFile(const std::string& path, ReadAt read_at)
    : RandomAccessFile(path, open_to_read(path), std::move(read_at)) {}

RandomAccessFile RandomAccessFile::below(const std::string& folder, const std::string& path, ReadAt read_at) {
  const std::string whole = folder + "/" + path;
  FileDescriptor at(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (at.get() < 0) fail_to_open(folder);
  for (std::size_t begin = 0;;) {
    const std::size_t slash = path.find('/', begin);
    const std::string part = path.substr(begin, slash - begin);
    TRIDENT_CHECK(!part.empty() && part != "..", "{} below a folder", path);
    const int next = open_below(at.get(), part, slash == path.npos, whole);
    if (slash == path.npos) return RandomAccessFile(whole, next, std::move(read_at));
    at = FileDescriptor(next);
    begin = slash + 1;
  }
}

RandomAccessFile::RandomAccessFile(std::string path, int descriptor, ReadAt read_at)
    : path_(std::move(path)), read_at_(std::move(read_at)) {
  FileDescriptor file(descriptor);
  size_ = static_cast<std::int64_t>(size_of_regular_file(file.get(), path_));
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
    const ssize_t got = uninterrupted(
        [&] { return read_at_(descriptor_, out.data() + done, static_cast<std::size_t>(bytes - done), offset + done); });
    if (got < 0) {
      throw StorageError(fmt::format("{}: {} bytes at byte {} of {} cannot be read: {}; check the disk", path_, bytes - done,
                                     offset + done, size_, std::strerror(errno)),
                         errno);
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

std::string RandomAccessFile::text(std::int64_t offset, std::int64_t bytes) const {
  std::string text(static_cast<std::size_t>(bytes), '\0');
  read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

void RandomAccessFile::will_need(std::int64_t offset, std::int64_t bytes) const {
  TRIDENT_CHECK(offset >= 0 && bytes >= 0 && offset <= size_ - bytes, "{}: bytes {}+{} of {}", path_, offset, bytes, size_);
  if (bytes > 0) ::posix_fadvise(descriptor_, offset, bytes, POSIX_FADV_WILLNEED);  // a length of 0 would mean the rest of the file
}

}  // namespace trident
