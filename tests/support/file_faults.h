// Faults of the file system, at a chosen call. An executable that links trident_file_faults has its calls of open, write, pwrite,
// fallocate, ftruncate, fsync, rename, unlink, stat and lstat sent through here by the linker (--wrap, in CMakeLists.txt), the
// product's included, and those of mkdir, rmdir and unlinkat, which std::filesystem makes, because this executable defines them.
// fsync does nothing else: no test loses power, and disks are slow.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace trident {

enum class Fault : std::uint8_t {
  kKill,        // the process dies instead of the call, as by SIGKILL
  kError,       // this one call fails with EIO
  kErrorsFrom,  // this call and all after it do
  kShort,       // this call, if it writes, writes half
  kShortFrom,   // this call and all after it do
  kHang,        // this call begins when the fault is over
  kHangBlocks,  // writes of 4096 bytes or more begin when the fault is over; `at` means nothing, and other calls are not counted
};

// While alive, call number `at` (from 0) does not happen.
class FileFault {
 public:
  FileFault(Fault fault, int at, int error = 5 /* EIO */);
  ~FileFault();
  FileFault(const FileFault&) = delete;
  FileFault& operator=(const FileFault&) = delete;

  bool happened() const;
  bool happens() const;  // waits for it, and at most 60 s
};

// While alive: `action` happens once, before the first open of a path that ends with `suffix`.
class BeforeOpen {
 public:
  BeforeOpen(std::string suffix, std::function<void()> action);
  ~BeforeOpen();
  BeforeOpen(const BeforeOpen&) = delete;
  BeforeOpen& operator=(const BeforeOpen&) = delete;
};
void note_open(const char* path);

// While alive, stat and lstat of paths that end with `suffix` fail with EIO.
class FailingLook {
 public:
  explicit FailingLook(std::string suffix);
  ~FailingLook();
  FailingLook(const FailingLook&) = delete;
  FailingLook& operator=(const FailingLook&) = delete;
};
bool look_fails(const char* path);

// The flags of the last open that could make a file.
int flags_of_last_creation();
void note_creation(int flags);

}  // namespace trident
