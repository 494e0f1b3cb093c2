#include "checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <system_error>
#include <tuple>

#include "core/check.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace trident {

namespace {

constexpr std::string_view kPrefix = "step-";

bool is_token(std::string_view text) {
  const auto is_part = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); };
  return !text.empty() && std::all_of(text.begin(), text.end(), is_part);
}

// Cuts an error down to its reason, without path and remedy: one sentence for a list.
std::string reason_of(const Error& error, const std::string& path) {
  std::string_view what = error.what();
  if (what.starts_with(path)) what.remove_prefix(path.size());
  if (what.starts_with(": ")) what.remove_prefix(2);
  return std::string(what.substr(0, what.rfind(';')));
}

using OnValid = FunctionRef<void(const CheckpointEntry&, const Manifest&)>;

CheckpointEntry entry_of(const std::string& folder, const std::string& name, CheckpointName parts, OnValid on_valid) {
  CheckpointEntry entry{name, std::move(parts), CheckpointHealth::kDamaged, "", 0, ""};
  const std::string path = folder + "/" + name, manifest = path + "/" + std::string(kManifestName);
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path, ignored);
  if (status.type() != std::filesystem::file_type::directory && status.type() != std::filesystem::file_type::none) {
    entry.why = "is not a folder";
  } else {
    try {
      const Manifest read = open_manifest(path);
      entry.written_unix = read.written_unix;
      entry.generation = read.generation;
      entry.health = CheckpointHealth::kValid;
      on_valid(entry, read);
    } catch (const NotPermitted& error) {
      entry.health = CheckpointHealth::kNotPermitted;
      entry.why = reason_of(error, manifest);
    } catch (const DataError& error) {
      bool has_manifest = true;
      try {
        has_manifest = is_there(manifest);
      } catch (const StorageError&) {  // the disk, as below
      }
      if (!has_manifest) entry.health = CheckpointHealth::kIncomplete;
      entry.why = has_manifest ? reason_of(error, manifest) : "has no manifest";
    } catch (const StorageError& error) {  // the disk: other checkpoints may still be read
      entry.why = reason_of(error, manifest);
    }
  }
  return entry;
}

}  // namespace

std::string checkpoint_name(std::int64_t step) { return fmt::format("{}{:08}", kPrefix, step); }

std::optional<CheckpointName> checkpoint_name_from(std::string_view name) {
  const std::string_view base = name.substr(0, name.find('.'));
  if (!base.starts_with(kPrefix)) return std::nullopt;
  CheckpointName parts;
  const std::string_view digits = base.substr(kPrefix.size());
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), parts.step);
  if (error != std::errc{} || parts.step < 0 || base != checkpoint_name(parts.step)) return std::nullopt;
  std::string_view rest = name.substr(base.size());
  if (rest.empty()) return parts;
  for (const std::string_view mark : {kTemporaryMark, kAsideMark})
    if (rest.starts_with(mark) && is_token(rest.substr(mark.size()))) {
      parts.mark = mark;
      parts.token = rest.substr(mark.size());
      return parts;
    }
  return std::nullopt;
}

std::vector<CheckpointEntry> list_checkpoints(const std::string& folder, OnValid on_valid) {
  std::vector<CheckpointEntry> entries;
  for (const std::string& name : names_in(folder))
    if (std::optional<CheckpointName> parts = checkpoint_name_from(name))
      entries.push_back(entry_of(folder, name, *std::move(parts), on_valid));
  std::sort(entries.begin(), entries.end(), [](const CheckpointEntry& a, const CheckpointEntry& b) {
    return std::tie(a.parts.step, a.name) < std::tie(b.parts.step, b.name);
  });
  return entries;
}

Manifest open_manifest(const std::string& checkpoint) {
  const RandomAccessFile file = RandomAccessFile::below(checkpoint, std::string(kManifestName));
  if (file.size() > kMaxManifestBytes)
    throw DataError(fmt::format("{}: {} bytes, manifests have at most {}; use another checkpoint", file.path(), file.size(),
                                kMaxManifestBytes));
  Manifest manifest = parse_manifest(file.text(0, file.size()), file.path());
  // A path may end in slashes.
  const std::size_t end = checkpoint.find_last_not_of('/');
  const std::string name = end == checkpoint.npos ? "" : std::filesystem::path(checkpoint.substr(0, end + 1)).filename().string();
  const std::optional<CheckpointName> parts = checkpoint_name_from(name);
  if (parts && parts->step != manifest.state.updates)
    throw DataError(
        fmt::format("{}: holds step {}, but its folder's name is {}; give the folder its name back, or use another checkpoint",
                    file.path(), manifest.state.updates, name));
  return manifest;
}

std::int64_t bytes_below(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code error, gone;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    if (at->is_regular_file(gone) && !at->is_symlink(gone)) bytes += static_cast<std::int64_t>(at->file_size(gone));
  return bytes;
}

}  // namespace trident
