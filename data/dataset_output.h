// The output of a command that makes a data set: PREFIX.bin, PREFIX.idx, perhaps PREFIX.mask, and their record, all or none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/file_io.h"
#include "data/dataset_record.h"

namespace trident {

enum class Overwrite : std::uint8_t { kNo, kYes };  // whether an existing data set may be replaced
enum class WithMask : std::uint8_t { kNo, kYes };   // whether there is a PREFIX.mask

class DatasetOutput {
 public:
  // Makes the folder, and removes the temporary files of commands on this prefix that were killed. Refused: with Overwrite::kNo a
  // file that is there (ConfigError); a prefix that was left half-way (DataError, see dataset_files.h); a prefix that another
  // process writes (StorageError).
  DatasetOutput(const std::string& prefix, Overwrite overwrite, WithMask with_mask = WithMask::kNo);

  AtomicFile& bin() { return bin_; }
  AtomicFile& idx() { return idx_; }
  AtomicFile* mask() { return mask_ ? &*mask_ : nullptr; }

  // Puts the files and their record in place, together; without it nothing is left. Errors as the constructor's, and
  // StorageError: what was there before is there again.
  void commit(const DatasetOrigin& origin, const DatasetCounts& counts);

 private:
  std::string prefix_;
  Overwrite overwrite_;
  std::optional<LockFile> lock_;  // against other commands on this prefix, while names appear
  AtomicFile bin_, idx_, record_;
  std::optional<AtomicFile> mask_;
};

}  // namespace trident
