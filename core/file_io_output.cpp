// The writing half of file_io.h.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/file_descriptor.h"
#include "core/file_io.h"
#include "core/file_lock.h"
#include "core/random_token.h"

namespace trident {

namespace {

constexpr std::size_t kWriteBuffer = 1 << 20;

constexpr std::string_view kTemporary = ".tmp.";  // then a random_token()

// Throws the StorageError that errno stands for.
[[noreturn]] void fail_to_write(const std::string& path, std::string_view what) {
  const int error = errno;
  const char* remedy = error == ENOENT                      ? "create its folder first"
                       : error == ENOSPC || error == EDQUOT ? "free some space"
                       : error == ELOOP                     ? "it is a symbolic link, which is not followed: remove it"
                                                            : "check the folder's permissions and the disk";
  throw StorageError(fmt::format("{}: {}: {}; {}", path, what, std::strerror(error), remedy), error);
}

// Returns how many of the bytes were written: all, or fewer and errno says why.
std::size_t write_all(int descriptor, std::string_view bytes) {
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const ssize_t written = uninterrupted([&] { return ::write(descriptor, rest.data(), rest.size()); });
    if (written < 0) break;
    rest.remove_prefix(static_cast<std::size_t>(written));
  }
  return bytes.size() - rest.size();
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

// A new file under a name that nobody else has, locked for as long as the descriptor is open: remove_temporaries() tells by the
// lock that a living process writes it. -1 and errno if there is none.
int create_temporary(const std::string& path, std::string* name) {
  for (;;) {
    *name = fmt::format("{}{}{}", path, kTemporary, random_token());
    const int descriptor = ::open(name->c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (descriptor < 0 && errno == EEXIST) continue;
    if (descriptor < 0) return -1;
    struct stat status {};
    const WriterLock lock = take_writer_lock(descriptor);
    const bool is_ours = lock == WriterLock::kTaken || lock == WriterLock::kUnknown;
    if (is_ours && ::fstat(descriptor, &status) == 0 && status.st_nlink > 0) return descriptor;
    ::unlink(name->c_str());  // another process locked it before, or took it for a dead one's
    ::close(descriptor);
  }
}

// Calls function(path, descriptor) for the regular files of this user in a folder that are chosen by their names.
void for_each_file(const std::string& folder, FunctionRef<bool(std::string_view)> is_chosen,
                   FunctionRef<void(const std::string&, int descriptor)> function) {
  std::error_code ignored;  // no folder, no files
  for (std::filesystem::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    const std::filesystem::path& path = at->path();
    if (!is_chosen(path.filename().string())) continue;
    const FileDescriptor file(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat status {};
    if (!file || ::fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_uid != ::geteuid()) continue;
    function(path.string(), file.get());
  }
}

auto is_temporary_of(const std::string& path) {
  const std::string file = std::filesystem::path(path).filename().string();
  return [file](std::string_view name) { return name_of_temporary(name) == file; };
}

void flush_and_close(int descriptor, const std::string& path) {
  // EINVAL: the file system has no such thing.
  const int error = uninterrupted([&] { return ::fsync(descriptor); }) == 0 || errno == EINVAL ? 0 : errno;
  ::close(descriptor);
  errno = error;
  if (error != 0) fail_to_write(path, "cannot be flushed to the disk");
}

}  // namespace

void rename_file(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail_to_write(to, fmt::format("{} cannot be renamed into its place", from));
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_to_write(path, "cannot be removed");
}

std::vector<std::string> create_folder(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error, ignored;
  std::vector<std::string> made;
  for (fs::path at = fs::path(path).lexically_normal(); !at.empty() && !fs::exists(at, ignored); at = at.parent_path())
    if (at.has_filename()) made.push_back(at.string());  // "a/" is "a"
  fs::create_directories(path, error);
  if (error) {
    for (const std::string& folder : made) fs::remove(folder, ignored);  // what was made of them is empty
    errno = error.value();
    fail_to_write(path, "the folder cannot be created");
  }
  return made;
}

std::vector<std::string> create_lasting_folder(const std::string& path) {
  std::vector<std::string> made = create_folder(path);
  for (const std::string& folder : made) sync_folder_of(folder);
  return made;
}

void create_folder_of(const std::string& path) { create_folder(folder_of(path)); }

void sync_folder_of(const std::string& path) {
  const std::string folder = folder_of(path);
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0 && errno == EACCES) return;  // may be written and not read: nobody can sync it
  if (descriptor < 0) fail_to_write(folder, "cannot be opened");
  flush_and_close(descriptor, folder);
}

void sync_file(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (descriptor < 0) fail_to_write(path, "cannot be opened");
  flush_and_close(descriptor, path);
}

std::optional<std::string_view> name_of_temporary(std::string_view name) {
  const std::size_t mark = name.rfind(kTemporary);
  if (mark == name.npos || mark == 0) return std::nullopt;
  const std::string_view digits = name.substr(mark + kTemporary.size());
  const bool is_temporary = digits.size() == kRandomDigits && digits.find_first_not_of("0123456789abcdef") == digits.npos;
  return is_temporary ? std::optional(name.substr(0, mark)) : std::nullopt;
}

bool is_being_written(const std::string& path) {
  bool in_use = false;
  for_each_file(folder_of(path), is_temporary_of(path),
                [&](const std::string&, int descriptor) { in_use = in_use || has_writer(descriptor); });
  return in_use;
}

void remove_temporaries(const std::string& path) { remove_unlocked(folder_of(path), is_temporary_of(path)); }

void remove_unlocked(const std::string& folder, FunctionRef<bool(std::string_view)> is_leftover) {
  for_each_file(folder, is_leftover, [](const std::string& path, int descriptor) {
    const WriterLock lock = take_writer_lock(descriptor);
    if (lock == WriterLock::kTaken || lock == WriterLock::kNobodys) ::unlink(path.c_str());
  });
}

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  if (folder_exists(path)) throw StorageError(fmt::format("{}: is a folder; name a file", path));
  struct stat there {};  // a rename would put a file in its place, for all programs of this machine
  if (::stat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode))
    throw StorageError(fmt::format("{}: is a device or a pipe; name a file", path));
  std::string temporary;
  descriptor_ = create_temporary(path, &temporary);
  if (descriptor_ < 0) fail_to_write(path_, "cannot be created");
  temporary_ = std::move(temporary);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  if (descriptor_ >= 0) ::close(descriptor_);
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

void AtomicFile::finish() {
  TRIDENT_CHECK(!temporary_.empty(), "{} was committed before", path_);
  flush();
  if (uninterrupted([&] { return ::fsync(descriptor_); }) != 0) fail_to_write(path_, "cannot be flushed to the disk");
}

void AtomicFile::put_in_place() {
  TRIDENT_CHECK(!temporary_.empty() && buffer_.empty(), "{} is not finished", path_);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail_to_write(path_, "cannot be renamed into place");
  temporary_.clear();
}

void AtomicFile::commit() {
  finish();
  put_in_place();
  sync_folder_of(path_);
}

AppendFile::AppendFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {
  if (descriptor_ < 0 && errno != ENXIO) fail_to_write(path_, "cannot be opened for writing");
  struct stat status {};
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode)) {  // ENXIO: a pipe that nobody reads
    if (descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
    throw StorageError(fmt::format("{}: is not a regular file; remove it, or choose another place", path_));
  }
}

// O_NONBLOCK: opening a pipe that nobody reads must be refused instead of waiting for ever. Regular files ignore it.
AppendFile::AppendFile(const std::string& path, Start start)
    : AppendFile(path, ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0666)) {
  // Before the file is emptied: another run may be writing it.
  if (!take_lock())
    throw StorageError(fmt::format("{}: another run is writing it; give each run a folder of its own", path_));
  if (start == Start::kNewFile && ::ftruncate(descriptor_, 0) != 0) fail_to_write(path_, "cannot be emptied");
}

std::optional<AppendFile> AppendFile::create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0 && errno == EEXIST) return std::nullopt;
  AppendFile file(path, descriptor);
  take_writer_lock(descriptor);  // nobody else knows it yet
  return file;
}

// Where a reader's lock is in the way, the lock file does instead. Each writer takes one lock before it asks after the other: at
// least one of two sees the other.
bool AppendFile::take_lock() {
  const WriterLock lock = take_writer_lock(descriptor_);
  if (lock == WriterLock::kAnothers) return false;
  if (lock != WriterLock::kNobodys && !is_there(LockFile::path_of(path_))) return true;
  lock_file_ = LockFile::take(path_);
  return lock_file_ && (lock != WriterLock::kNobodys || !has_writer(descriptor_));
}

bool AppendFile::is_held(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return (file && has_writer(file.get())) || LockFile::is_held(path);
}

void AppendFile::take_over(const std::string& path) {
  if (!is_held(path)) return;
  write_file(path, read_file(path));
  remove_file(LockFile::path_of(path));
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      lock_file_(std::move(other.lock_file_)),
      torn_(std::exchange(other.torn_, 0)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  std::swap(lock_file_, other.lock_file_);
  std::swap(torn_, other.torn_);
  return *this;
}

// Whether the file ends with a whole record now; else errno says why not.
bool AppendFile::cut_torn() {
  struct stat status {};
  if (torn_ == 0) return true;
  const bool cut = ::fstat(descriptor_, &status) == 0 && ::ftruncate(descriptor_, std::max<off_t>(0, status.st_size - torn_)) == 0;
  if (cut) torn_ = 0;
  return cut;
}

void AppendFile::cut(std::int64_t size) {
  if (::ftruncate(descriptor_, static_cast<off_t>(size)) != 0) fail_to_write(path_, "cannot be cut");
  torn_ = 0;
}

void AppendFile::append(std::string_view record) {
  if (!cut_torn()) fail_to_write(path_, "ends within a record, which cannot be cut off");
  const std::size_t written = write_all(descriptor_, record);
  if (written == record.size()) return;
  const int error = errno;
  torn_ = static_cast<off_t>(written);
  const bool cut = cut_torn();
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
