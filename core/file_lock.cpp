#include "core/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "core/clock.h"
#include "core/file_descriptor.h"

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
  const FileDescriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return file && has_writer(file.get());
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
