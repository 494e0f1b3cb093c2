// The files of a data set, PREFIX.bin, PREFIX.idx, PREFIX.trident.json and perhaps PREFIX.mask, and how new ones take the place of
// old ones.
//
// All bytes are on the disk under temporary names before the first rename. Then, in this order: the old .idx, record, .mask and
// .bin are renamed to NAME.before-overwrite; the new record, .mask, .bin and .idx are renamed in; the old files are removed. The
// .idx is the first to go and the last to come: where it is, the data set is whole, and where it is not while others of these files
// are, an interrupted command left the prefix half-way. From there the way back is always known (decision 0014).
#pragma once

#include <string>
#include <vector>

namespace trident {

class AtomicFile;

std::string record_path(const std::string& prefix);  // PREFIX.trident.json
std::vector<std::string> paths_of(const std::string& prefix);  // all four, whichever are there, as the old ones go

// Returns without a word unless a command was interrupted half-way: DataError with the shell command that restores the old data
// set, or that removes what never became one.
void refuse_half_way(const std::string& prefix);

// Puts new files, complete under their temporary names, in the place of what is there; without a mask (nullptr) every token counts
// as a target. Whatever goes wrong, the old data set is restored, or the error holds the command that does it. StorageError. The
// caller holds the LockFile of the prefix.
void put_in_place(const std::string& prefix, AtomicFile& bin, AtomicFile& idx, AtomicFile& record, AtomicFile* mask);

}  // namespace trident
