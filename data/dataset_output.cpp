#include "data/dataset_output.h"

#include <chrono>
#include <ranges>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "data/dataset_files.h"
#include "data/indexed_dataset.h"
#include "data/loss_mask.h"

namespace trident {

namespace {

void refuse_existing(const std::string& prefix, Overwrite overwrite) {
  refuse_half_way(prefix);
  const std::string bin = bin_path(prefix), idx = idx_path(prefix);
  if (is_there(idx) && !is_there(bin))
    throw ConfigError(fmt::format("--output = {}: {} is there without {}; remove it, or choose another prefix", prefix, idx, bin));
  if (overwrite == Overwrite::kYes || !is_there(bin)) return;
  throw ConfigError(fmt::format("--output = {}: {} {} there; choose another prefix, or replace {} with --overwrite", prefix,
                                is_there(idx) ? fmt::format("{} and {}", bin, idx) : bin, is_there(idx) ? "are" : "is",
                                is_there(idx) ? "them" : "it"));
}

// Another command holds it while it renames.
LockFile lock_of(const std::string& prefix) {
  constexpr double kSeconds = 60;
  for (const double give_up = monotonic_seconds() + kSeconds;;) {
    if (std::optional<LockFile> lock = LockFile::take(prefix)) return *std::move(lock);
    if (monotonic_seconds() >= give_up)
      throw StorageError(fmt::format("{}: another command is writing it; wait for its end, or choose another --output", prefix));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Once the prefix may be written; for as long as temporary files are made, by which the next command sees this one.
LockFile locked_for_output(const std::string& prefix, Overwrite overwrite) {
  refuse_existing(prefix, overwrite);
  create_folder_of(prefix);
  LockFile lock = lock_of(prefix);
  const std::vector<std::string> paths = paths_of(prefix);
  for (const std::string& path : std::views::reverse(paths)) {  // the .bin is what they are known by
    if (is_being_written(path))
      throw StorageError(fmt::format("{}: another command is writing it; wait for its end, or choose another --output", path));
    remove_temporaries(path);
  }
  return lock;
}

}  // namespace

DatasetOutput::DatasetOutput(const std::string& prefix, Overwrite overwrite, WithMask with_mask)
    : prefix_(prefix),
      overwrite_(overwrite),
      lock_(locked_for_output(prefix, overwrite)),
      bin_(bin_path(prefix)),
      idx_(idx_path(prefix)),
      record_(record_path(prefix)) {
  if (with_mask == WithMask::kYes) mask_.emplace(mask_path(prefix));
  lock_.reset();
}

void DatasetOutput::commit(const DatasetOrigin& origin, const DatasetCounts& counts) {
  bin_.finish();
  idx_.finish();
  DatasetRecord record{origin, counts, sample_file(bin_.temporary_path()), sample_file(idx_.temporary_path())};
  if (mask_) {
    mask_->finish();
    record.mask = sample_file(mask_->temporary_path());
  }
  record_.append(to_json_text(to_json(record), 2) + "\n");
  record_.finish();
  lock_ = lock_of(prefix_);
  refuse_existing(prefix_, overwrite_);  // once more: another command may have been faster
  put_in_place(prefix_, bin_, idx_, record_, mask());
}

}  // namespace trident
