#include "data/dataset_files.h"

#include "core/check.h"
#include "core/file_io.h"
#include "core/shell_word.h"
#include "data/indexed_dataset.h"
#include "data/loss_mask.h"

namespace trident {

namespace {

std::string set_aside(const std::string& path) { return path + ".before-overwrite"; }

// One step of the way back: a rename, or a removal where `to` is empty.
struct Step {
  std::string from, to;
};

// The way back to the old data set, or to no data set, from wherever a command was interrupted; empty where there is nothing to go
// back from. Each step leads to a state whose own way back is the rest of the steps.
std::vector<Step> way_back(const std::string& prefix) {
  const std::string bin = bin_path(prefix), idx = idx_path(prefix), record = record_path(prefix), mask = mask_path(prefix);
  if (is_there(idx)) return {};
  const bool old_bin = is_there(set_aside(bin)), old_idx = is_there(set_aside(idx)), old_record = is_there(set_aside(record)),
             old_mask = is_there(set_aside(mask));
  std::vector<Step> steps;
  // The old .bin is the last to be set aside, before anything new comes: with it there, a record or a mask under its final name is
  // a new one. So it is where nothing old is there at all, and a new record, which comes first.
  const bool nothing_old = !old_bin && !old_idx && !old_record, new_alone = nothing_old && is_there(record);
  if (new_alone && is_there(bin)) steps.push_back({bin, ""});
  for (const auto& [path, is_old] : {std::pair{mask, old_mask}, {record, old_record}})
    if (is_there(path) && !is_old && (old_bin || new_alone)) steps.push_back({path, ""});
  for (const auto& [path, is_old] : {std::pair{bin, old_bin}, {mask, old_mask}, {record, old_record}, {idx, old_idx}})
    if (is_old) steps.push_back({set_aside(path), path});
  return steps;
}

void take(const Step& step) {
  if (step.to.empty()) remove_file(step.from);
  else rename_file(step.from, step.to);
}

std::string shell_word(const std::string& path) { return for_shell(path.starts_with('-') ? "./" + path : path); }

std::string shell_command(const std::vector<Step>& steps) {
  std::string command;
  for (const Step& step : steps) {
    if (!command.empty()) command += " && ";
    command += step.to.empty() ? "rm -f " + shell_word(step.from)
                               : fmt::format("mv -f {} {}", shell_word(step.from), shell_word(step.to));
  }
  return command;
}

// Removes what an earlier command, interrupted while it tidied up, left beside a whole data set.
void remove_leftovers(const std::string& prefix) {
  for (const std::string& path : paths_of(prefix)) remove_file(set_aside(path));
}

void exchange(const std::string& prefix, AtomicFile& bin, AtomicFile& idx, AtomicFile& record, AtomicFile* mask) {
  for (const std::string& path : paths_of(prefix))
    if (is_there(path)) rename_file(path, set_aside(path));
  sync_folder_of(prefix);  // renames reach the disk in their order
  record.put_in_place();
  if (mask != nullptr) mask->put_in_place();
  bin.put_in_place();
  sync_folder_of(prefix);
  idx.put_in_place();
}

void go_back(const std::string& prefix, Error& error) {
  try {
    for (const Step& step : way_back(prefix)) take(step);
    sync_folder_of(prefix);
  } catch (const Error& second) {
    std::string command;
    try {
      command = shell_command(way_back(prefix));
    } catch (const Error&) {  // a disk that does not answer
    }
    error.add_context(fmt::format("; and then {}{}{}", second.what(), command.empty() ? "" : "; restore the old files: ", command));
  }
}

}  // namespace

std::string record_path(const std::string& prefix) { return prefix + ".trident.json"; }

std::vector<std::string> paths_of(const std::string& prefix) {
  return {idx_path(prefix), record_path(prefix), mask_path(prefix), bin_path(prefix)};
}

void refuse_half_way(const std::string& prefix) {
  const std::vector<Step> steps = way_back(prefix);
  if (steps.empty()) return;
  if (is_being_written(idx_path(prefix)))
    throw DataError(fmt::format("{}: another command replaces it at this moment; try again when that has ended", prefix));
  if (!steps.back().to.empty())
    throw DataError(fmt::format("{}: a command that wrote this data set was interrupted half-way; restore the data set from before it: {}", prefix,
                                shell_command(steps)));
  throw DataError(fmt::format("{}: {} is missing: a command that wrote this data set was interrupted, or the file was lost; put it back if there "
                              "is a copy, else remove the rest: {}", prefix, idx_path(prefix), shell_command(steps)));
}

void put_in_place(const std::string& prefix, AtomicFile& bin, AtomicFile& idx, AtomicFile& record, AtomicFile* mask) {
  if (is_there(idx_path(prefix))) {
    remove_leftovers(prefix);
    sync_folder_of(prefix);
  }
  try {
    exchange(prefix, bin, idx, record, mask);
  } catch (Error& error) {
    go_back(prefix, error);
    throw;
  }
  try {
    sync_folder_of(prefix);
  } catch (Error& error) {
    error.add_context("; the new data set is in place and whole, but a power cut may still bring the old one back");
    throw;
  }
  try {
    remove_leftovers(prefix);
  } catch (const StorageError&) {
    // The new data set is in place and whole. What is left of the old one goes when it is replaced next.
  }
}

}  // namespace trident
