// Locks of files and folders. Whoever may read a file can hold its flock(2) for ever, so nobody may depend on getting it: a writer
// has a lock that needs the right to write, and a reader does without after a while.
#pragma once

#include <cstdint>
#include <string>

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
bool has_writer(const std::string& path);  // false where it cannot be opened for writing

// flock(2) with `operation`, LOCK_SH or LOCK_EX, tried for 2 s. False: another held it all that time.
bool try_to_lock(int descriptor, int operation);

}  // namespace trident
