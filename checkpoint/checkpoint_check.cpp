#include "checkpoint/checkpoint_check.h"

#include <algorithm>
#include <cstdint>
#include <span>

#include "checkpoint/box_reader.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/commit.h"
#include "core/check.h"
#include "core/file_io.h"

namespace trident {

namespace {

// Notes a DataError of the action as a problem, and returns false then.
template <class Action>
bool succeeds(std::vector<std::string>* problems, Action&& action) {
  try {
    action();
    return true;
  } catch (const NotPermitted&) {
    throw;  // it may be right
  } catch (const DataError& error) {
    problems->emplace_back(error.what());
    return false;
  }
}

}  // namespace

void check_files(const std::string& folder, const Manifest& manifest) {
  for (const ManifestFile& file : manifest.files) {
    const RandomAccessFile found = RandomAccessFile::below(folder, file.path);
    if (found.size() != file.bytes)
      throw DataError(fmt::format("{}: has {} bytes, the manifest says {}; copy it again, or use an older checkpoint", found.path(),
                                  found.size(), file.bytes));
  }
}

std::vector<std::string> check_checkpoint(const std::string& folder, const Manifest& manifest, const OnProgress& progress,
                                          const std::function<void(const std::string& line)>& say) {
  const CheckpointReadLock lock(folder);
  if (say && !lock.note().empty()) say(lock.note());
  std::vector<std::string> problems;
  CheckpointIndex index(manifest);
  std::int64_t bytes_before = 0, all_bytes = 0;
  for (const ManifestFile& file : manifest.files) all_bytes += file.bytes;
  bool all_tables = true;
  std::vector<std::byte> block(static_cast<std::size_t>(kBlockBytes));
  for (std::size_t f = 0; f < manifest.files.size(); ++f) {
    const ManifestFile& file = manifest.files[f];
    bool has_table = false;
    succeeds(&problems, [&] {
      BoxReader reader(folder, file);
      index.add(f, reader.table(), reader.path());
      has_table = true;
      for (std::int64_t done = 0; done < reader.table().data_bytes();) {
        const auto bytes = std::min(reader.table().block_bytes, reader.table().data_bytes() - done);
        reader.read(done, std::span(block).first(static_cast<std::size_t>(bytes)));
        done += bytes;
        if (progress) progress(bytes_before + done, all_bytes);
      }
    });
    all_tables = all_tables && has_table;
    bytes_before += file.bytes;
  }
  if (!folder_exists(folder)) throw DataError(fmt::format("{}: was removed while it was read; read a newer one", folder));
  if (!all_tables) return problems;  // what is missing then is what those files had
  for (std::size_t k = 0; k < index.kinds().size(); ++k)
    for (std::size_t t = 0; t < manifest.tensors.size(); ++t) succeeds(&problems, [&] { index.check_tiling(k, t, folder); });
  return problems;
}

}  // namespace trident
