// Faults of the file system, at a chosen call: the linker sends this executable's calls of open, write, fsync, rename and unlink
// through here (--wrap in CMakeLists.txt), the product's included. fsync does nothing else: no test loses power, and disks are
// slow.
#pragma once

#include <cstdint>

namespace trident {

enum class Fault : std::uint8_t {
  kKill,        // the process dies instead of the call, as by SIGKILL
  kError,       // this one call fails with EIO
  kErrorsFrom,  // this call and all after it do
};

// While alive, call number `at` (from 0) does not happen.
class FileFault {
 public:
  FileFault(Fault fault, int at, int error = 5 /* EIO */);
  ~FileFault();
  FileFault(const FileFault&) = delete;
  FileFault& operator=(const FileFault&) = delete;

  bool happened() const;
};

// The flags of the last open that could make a file.
int flags_of_last_creation();
void note_creation(int flags);

}  // namespace trident
