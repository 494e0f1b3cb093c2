// Locks of files and folders. Whoever may read a file can lock it for ever, so nobody may depend on that: a writer has a lock that
// needs the right to write, and a reader does without after a while.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "core/file_descriptor.h"

namespace trident {

// The lock of a file's writer, for as long as its descriptor is open, which must be open for writing (fcntl(2), open file
// description locks).
enum class WriterLock : std::uint8_t {
  kTaken,
  kAnothers,  // another descriptor has it, of this process or another
  kNobodys,   // a lock of the same kind that somebody reads under is in the way: not taken, and no writer has one
  kUnknown,   // the file system has no such locks
};
WriterLock take_writer_lock(int descriptor);
// Whether another descriptor has it; takes nothing.
bool has_writer(int descriptor);
bool has_writer(const std::string& path);  // false where it cannot be opened

// The lock of whoever writes `path`, where no reader can be in its way: of "<path>.lock", a file that may be written only and lies
// there for as long as the object lives. What a killed process leaves is the next one's.
class LockFile {
 public:
  // Nothing while another has it. StorageError where the file can be neither made nor opened.
  static std::optional<LockFile> take(const std::string& path);
  static bool is_held(const std::string& path);
  static std::string path_of(const std::string& path) { return path + ".lock"; }

  ~LockFile();
  LockFile(LockFile&& other) noexcept = default;
  LockFile& operator=(LockFile&& other) noexcept;

 private:
  LockFile(std::string path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}

  std::string path_;  // of the lock file
  FileDescriptor file_;
};

// flock(2) with `operation`, LOCK_SH or LOCK_EX, tried for 2 s. False: another held it all that time.
bool try_to_lock(int descriptor, int operation);

}  // namespace trident
