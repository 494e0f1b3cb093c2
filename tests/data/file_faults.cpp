#include "tests/data/file_faults.h"

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdarg>
#include <cstdio>

namespace trident {
namespace {

struct Planned {
  std::atomic<bool> armed{false};
  Fault fault{};
  int at = 0, error = 0;
  std::atomic<int> calls{0};
} planned;

std::atomic<int> last_creation{0};

// Whether the call that is about to happen must fail; errno is set.
bool fails_here() {
  if (!planned.armed) return false;
  const int call = planned.calls++;
  const bool now = planned.fault == Fault::kErrorsFrom ? call >= planned.at : call == planned.at;
  if (!now) return false;
  if (planned.fault == Fault::kKill) {
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }
  errno = planned.error;
  return true;
}

}  // namespace

FileFault::FileFault(Fault fault, int at, int error) {
  planned.fault = fault;
  planned.at = at;
  planned.error = error;
  planned.calls = 0;
  planned.armed = true;
}

FileFault::~FileFault() { planned.armed = false; }

bool FileFault::happened() const { return planned.calls > planned.at; }

int flags_of_last_creation() { return last_creation; }

void note_creation(int flags) { last_creation = flags; }

}  // namespace trident

extern "C" {

int __real_open(const char* path, int flags, ...);
ssize_t __real_write(int descriptor, const void* data, size_t size);
int __real_rename(const char* from, const char* to);
int __real_unlink(const char* path);

int __wrap_open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if ((flags & O_CREAT) != 0) trident::note_creation(flags);
  return trident::fails_here() ? -1 : __real_open(path, flags, mode);
}
ssize_t __wrap_write(int descriptor, const void* data, size_t size) {
  return trident::fails_here() ? -1 : __real_write(descriptor, data, size);
}
int __wrap_fsync(int) { return trident::fails_here() ? -1 : 0; }
int __wrap_rename(const char* from, const char* to) { return trident::fails_here() ? -1 : __real_rename(from, to); }
int __wrap_unlink(const char* path) { return trident::fails_here() ? -1 : __real_unlink(path); }

}  // extern "C"
