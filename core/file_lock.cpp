#include "core/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/check.h"
#include "core/clock.h"

namespace trident {
namespace {

constexpr double kSecondsOfTries = 2;

struct flock lock_of_all(short kind) {
  struct flock lock {};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  return lock;
}

}  // namespace

WriterLock take_writer_lock(int descriptor) {
  struct flock lock = lock_of_all(F_WRLCK);
  if (::fcntl(descriptor, F_OFD_SETLK, &lock) == 0) return WriterLock::kTaken;
  if (errno != EAGAIN && errno != EACCES) return WriterLock::kUnknown;
  return has_writer(descriptor) ? WriterLock::kAnothers : WriterLock::kNobodys;
}

bool has_writer(int descriptor) {
  struct flock lock = lock_of_all(F_RDLCK);  // in whose way a writer's alone is
  return ::fcntl(descriptor, F_OFD_GETLK, &lock) == 0 && lock.l_type == F_WRLCK;
}

bool has_writer(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return file && has_writer(file.get());
}

std::optional<LockFile> LockFile::take(const std::string& path) {
  const std::string name = path_of(path);
  for (;;) {
    FileDescriptor file(::open(name.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0222));
    if (!file) {
      const int error = errno;
      struct stat there {};
      const bool is_anothers = error == EACCES && ::lstat(name.c_str(), &there) == 0;
      throw StorageError(fmt::format("{}: cannot be opened for writing: {}; {}", name, std::strerror(error),
                                     is_anothers ? "remove it once no command of another user is writing there"
                                                 : "check the folder's permissions and the disk"),
                         error);
    }
    const WriterLock lock = take_writer_lock(file.get());
    if (lock == WriterLock::kAnothers || lock == WriterLock::kNobodys) return std::nullopt;
    struct stat status {};
    if (::fstat(file.get(), &status) != 0 || status.st_nlink > 0) return LockFile(name, std::move(file));
  }  // whoever had it removed it before the lock was taken
}

bool LockFile::is_held(const std::string& path) {
  const FileDescriptor file(::open(path_of(path).c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return file && has_writer(file.get());
}

LockFile::~LockFile() {
  struct stat status {};
  if (file_ && ::fstat(file_.get(), &status) == 0 && status.st_nlink > 0) ::unlink(path_.c_str());  // else that name is another's
}

LockFile& LockFile::operator=(LockFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  return *this;
}

bool try_to_lock(int descriptor, int operation) {
  for (const double give_up = monotonic_seconds() + kSecondsOfTries; ::flock(descriptor, operation | LOCK_NB) != 0;) {
    if (errno != EWOULDBLOCK && errno != EINTR) return true;  // a file system without locks is taken on trust
    if (monotonic_seconds() >= give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace trident
