#include "checkpoint/commit.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/lease.h"
#include "core/check.h"
#include "core/file_io.h"
#include "core/file_lock.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTrashMark = ".trash-";  // of a folder that is being removed

// The step of a checkpoint's own name.
std::optional<std::int64_t> step_of_name(std::string_view name) {
  const auto parts = checkpoint_name_from(name);
  return parts && parts->mark.empty() ? std::optional(parts->step) : std::nullopt;
}

bool is_leftover(std::string_view name) {
  const auto trash = name.find(kTrashMark);
  const auto parts = checkpoint_name_from(name.substr(0, trash));
  return parts && (trash != std::string_view::npos || parts->mark == kTemporaryMark);
}

}  // namespace

std::string temporary_name(std::int64_t step, std::string_view token) { return fmt::format("{}{}{}", checkpoint_name(step), kTemporaryMark, token); }

std::vector<std::int64_t> checkpoint_steps(const std::string& directory) {
  std::vector<std::int64_t> steps;
  for (const std::string& name : names_in(directory))
    if (const auto step = step_of_name(name)) steps.push_back(*step);
  std::ranges::sort(steps, std::ranges::greater());
  return steps;
}

CheckpointReadLock::CheckpointReadLock(const std::string& folder) : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  if (descriptor_ && !try_to_lock(descriptor_.get(), LOCK_SH))  // is_being_read() has a lock of its own for a moment
    note_ = fmt::format("{}: another program keeps it locked (flock), so it is read without a lock; remove no checkpoint meanwhile",
                        folder);
}

bool is_being_read(const std::string& folder) {
  const FileDescriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return descriptor && ::flock(descriptor.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

void make_temporary_folder(const std::string& folder) {
  create_folder(folder + "/weights");
  create_folder(folder + "/optim");
}

void commit_checkpoint(const std::string& directory, const std::string& temporary, std::int64_t step, const Manifest& manifest, Lease* lease) {
  write_file(fmt::format("{}/{}/{}", directory, temporary, kManifestName), to_text(manifest));
  const std::string path = fmt::format("{}/{}", directory, checkpoint_name(step));
  // A takeover between these two calls is harmless: the new holder moves temporary folders away before it reads which
  // checkpoints there are.
  if (lease != nullptr) lease->check();
  rename_file(fmt::format("{}/{}", directory, temporary), path);
  try {
    sync_folder_of(path);
  } catch (const StorageError&) {
    // Nobody may count on a name that the disk may not have. Where this is refused too, a whole checkpoint stays.
    ::rename(path.c_str(), fmt::format("{}/{}", directory, temporary).c_str());
    throw;
  }
}

std::string free_aside(const std::string& path) {
  for (int n = 1;; ++n)
    if (std::string aside = fmt::format("{}{}{}", path, kAsideMark, n); !is_there(aside)) return aside;
}

std::string set_checkpoint_aside(const std::string& directory, std::int64_t step) {
  const std::string path = fmt::format("{}/{}", directory, checkpoint_name(step)), aside = free_aside(path);
  rename_file(path, aside);
  sync_folder_of(path);
  return aside;
}

void remove_checkpoint_folder(const std::string& directory, const std::string& name) {
  std::string path = fmt::format("{}/{}", directory, name);
  if (!is_there(path)) return;
  if (name.find(kTrashMark) == std::string::npos) {
    for (int n = 1;; ++n) {
      const std::string trash = fmt::format("{}{}{}", path, kTrashMark, n);
      if (is_there(trash)) continue;
      rename_file(path, trash);
      path = trash;
      break;
    }
  }
  std::error_code error;
  fs::remove_all(path, error);
  if (error)
    throw StorageError(fmt::format("{}: cannot be removed: {}; check its permissions and the disk", path, error.message()),
                       error.value());
}

std::vector<std::string> remove_leftovers(const std::string& directory) {
  std::vector<std::string> faults;
  for (const std::string& name : names_in(directory)) {
    try {
      if (is_leftover(name)) remove_checkpoint_folder(directory, name);
    } catch (const StorageError& error) {  // another user's, perhaps
      faults.emplace_back(error.what());
    }
  }
  return faults;
}

}  // namespace trident
