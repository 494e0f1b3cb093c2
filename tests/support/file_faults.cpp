#include "tests/support/file_faults.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdarg>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace trident {
namespace {

struct Planned {
  std::atomic<bool> armed{false};
  std::atomic<Fault> fault{};
  std::atomic<int> at = 0, error = 0;
  std::atomic<int> calls{0};
} planned;

std::atomic<int> last_creation{0};

struct {
  std::string suffix;
  std::function<void()> action;
} before_open;

struct {
  std::string suffix;
  std::atomic<bool> armed{false};
} failing_look;

bool is_short(Fault fault) { return fault == Fault::kShort || fault == Fault::kShortFrom; }

// Whether the call that is about to happen is the one, or one of those.
bool is_chosen() {
  if (!planned.armed || planned.fault == Fault::kHangBlocks) return false;
  const int call = planned.calls++;
  const bool lasts = planned.fault == Fault::kErrorsFrom || planned.fault == Fault::kShortFrom;
  return lasts ? call >= planned.at : call == planned.at;
}

// Whether it must fail; errno is set.
bool fails(bool chosen) {
  if (!chosen || is_short(planned.fault)) return false;
  if (planned.fault == Fault::kHang) {
    while (planned.armed) ::usleep(1000);
    return false;
  }
  if (planned.fault == Fault::kKill) {
    ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
  }
  errno = planned.error;
  return true;
}

bool fails_here() { return fails(is_chosen()); }

// How many of `size` bytes a call writes; -1: it fails.
ssize_t bytes_to_write(size_t size) {
  constexpr size_t kBlock = 4096;
  if (planned.armed && planned.fault == Fault::kHangBlocks && size >= kBlock) {
    ++planned.calls;
    while (planned.armed) ::usleep(1000);
  }
  const bool chosen = is_chosen();
  if (fails(chosen)) return -1;
  return static_cast<ssize_t>(chosen && is_short(planned.fault) && size > 1 ? size / 2 : size);
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

bool FileFault::happens() const {
  for (int ms = 0; ms < 60'000 && !happened(); ++ms) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return happened();
}

int flags_of_last_creation() { return last_creation; }

BeforeOpen::BeforeOpen(std::string suffix, std::function<void()> action) {
  before_open.suffix = std::move(suffix);
  before_open.action = std::move(action);
}

BeforeOpen::~BeforeOpen() { before_open.action = nullptr; }

void note_open(const char* path) {
  if (before_open.action && std::string_view(path).ends_with(before_open.suffix)) std::exchange(before_open.action, nullptr)();
}

FailingLook::FailingLook(std::string suffix) {
  failing_look.suffix = std::move(suffix);
  failing_look.armed = true;
}

FailingLook::~FailingLook() { failing_look.armed = false; }

bool look_fails(const char* path) {
  const bool fails = failing_look.armed && std::string_view(path).ends_with(failing_look.suffix);
  if (fails) errno = EIO;
  return fails;
}

void note_creation(int flags) { last_creation = flags; }

}  // namespace trident

extern "C" {

int __real_open(const char* path, int flags, ...);
ssize_t __real_write(int descriptor, const void* data, size_t size);
ssize_t __real_pwrite(int descriptor, const void* data, size_t size, off_t offset);
int __real_fallocate(int descriptor, int mode, off_t offset, off_t size);
int __real_ftruncate(int descriptor, off_t size);
int __real_rename(const char* from, const char* to);
int __real_unlink(const char* path);
int __real_stat(const char* path, struct stat* status);
int __real_lstat(const char* path, struct stat* status);

int __wrap_open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
  va_end(arguments);
  if ((flags & O_CREAT) != 0) trident::note_creation(flags);
  trident::note_open(path);
  return trident::fails_here() ? -1 : __real_open(path, flags, mode);
}
ssize_t __wrap_write(int descriptor, const void* data, size_t size) {
  const ssize_t bytes = trident::bytes_to_write(size);
  return bytes < 0 ? -1 : __real_write(descriptor, data, static_cast<size_t>(bytes));
}
ssize_t __wrap_pwrite(int descriptor, const void* data, size_t size, off_t offset) {
  const ssize_t bytes = trident::bytes_to_write(size);
  return bytes < 0 ? -1 : __real_pwrite(descriptor, data, static_cast<size_t>(bytes), offset);
}
int __wrap_fallocate(int descriptor, int mode, off_t offset, off_t size) {
  return trident::fails_here() ? -1 : __real_fallocate(descriptor, mode, offset, size);
}
int __wrap_ftruncate(int descriptor, off_t size) { return trident::fails_here() ? -1 : __real_ftruncate(descriptor, size); }
int __wrap_fsync(int) { return trident::fails_here() ? -1 : 0; }
int __wrap_rename(const char* from, const char* to) { return trident::fails_here() ? -1 : __real_rename(from, to); }
int __wrap_unlink(const char* path) { return trident::fails_here() ? -1 : __real_unlink(path); }
int __wrap_stat(const char* path, struct stat* status) { return trident::look_fails(path) ? -1 : __real_stat(path, status); }
int __wrap_lstat(const char* path, struct stat* status) { return trident::look_fails(path) ? -1 : __real_lstat(path, status); }

// The library's calls of these find the executable's.
int mkdir(const char* path, mode_t mode) noexcept {
  return trident::fails_here() ? -1 : static_cast<int>(::syscall(SYS_mkdirat, AT_FDCWD, path, mode));
}
int rmdir(const char* path) noexcept {
  return trident::fails_here() ? -1 : static_cast<int>(::syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR));
}
int unlinkat(int folder, const char* path, int flags) noexcept {
  return trident::fails_here() ? -1 : static_cast<int>(::syscall(SYS_unlinkat, folder, path, flags));
}

}  // extern "C"
