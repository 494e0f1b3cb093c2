#include "infer/convert/output_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "checkpoint/checkpoint_folder.h"
#include "core/check.h"
#include "core/file_io.h"
#include "core/random_token.h"

namespace trident {
namespace {

std::string without_slash(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

constexpr std::string_view kTemporary = ".tmp-";  // then a random_token()

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

struct LockedFolder {
  FileDescriptor lock = {};       // none: it is not ours
  bool held_by_another = false;  // else there is no such folder of this user, or no lock on its file system
};

LockedFolder locked(const std::string& folder) {
  FileDescriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status {};
  if (!opened || ::fstat(opened.get(), &status) != 0 || status.st_uid != ::geteuid()) return {};
  if (::flock(opened.get(), LOCK_EX | LOCK_NB) == 0) return {std::move(opened), false};
  return {{}, errno == EWOULDBLOCK};
}

bool is_temporary_of(std::string_view name, std::string_view folder) {
  if (name.size() != folder.size() + kTemporary.size() + kRandomDigits || !name.starts_with(folder)) return false;
  name.remove_prefix(folder.size());
  return name.starts_with(kTemporary) &&
         name.find_first_not_of("0123456789abcdef", kTemporary.size()) == std::string_view::npos;
}

// Nobody holds the lock of what a killed process left.
void remove_abandoned(const std::string& path) {
  namespace fs = std::filesystem;
  const std::string name = fs::path(path).filename().string();
  std::error_code ignored;  // no folder, nothing left in it
  for (fs::directory_iterator at(parent_of(path), ignored), end; !ignored && at != end; at.increment(ignored)) {
    if (!is_temporary_of(at->path().filename().string(), name)) continue;
    const LockedFolder left = locked(at->path().string());
    if (!left.lock) continue;
    std::error_code stays;  // for the next conversion
    fs::remove_all(at->path(), stays);
  }
}

void refuse_taken(const std::string& path) {
  if (is_there(path)) throw ConfigError(fmt::format("{}: is there already; remove it, or name another folder to write", path));
}

}  // namespace

void refuse_name_of_step(const std::string& path, std::string_view own) {
  const std::string name = std::filesystem::path(without_slash(path)).lexically_normal().filename().string();
  const std::optional<CheckpointName> parts = checkpoint_name_from(name.substr(0, name.find('.')));
  if (!parts || name == own) return;
  throw ConfigError(fmt::format("{}: has the name of a checkpoint of step {}, which it is not; give it another name{}", path,
                                parts->step, own.empty() ? "" : fmt::format(", such as {}", own)));
}

OutputFolder::OutputFolder(std::string path) : final_(without_slash(std::move(path))) {
  refuse_taken(final_);
  create_lasting_folder(parent_of(final_));
  remove_abandoned(final_);
  for (;;) {
    temporary_ = fmt::format("{}{}{}", final_, kTemporary, random_token());
    create_folder(temporary_);
    LockedFolder made = locked(temporary_);
    lock_ = std::move(made.lock);
    if (!made.held_by_another && is_there(temporary_)) break;  // else another process took it for a dead one's, before the lock
  }
  sync_folder_of(temporary_);
}

OutputFolder::~OutputFolder() {
  std::error_code ignored;  // what cannot be removed has a name that says what it is
  if (!committed_) std::filesystem::remove_all(temporary_, ignored);
}

void OutputFolder::commit() {
  std::string a_file;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(temporary_)) {
    a_file = entry.path().string();
    sync_folder_of(a_file);
  }
  refuse_taken(final_);
  rename_file(temporary_, final_);
  committed_ = true;
  sync_folder_of(final_);
}

}  // namespace trident
