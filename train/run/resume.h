// Which checkpoint a run goes on from, or takes its weights from.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "checkpoint/format/manifest.h"
#include "checkpoint/shard_reader.h"
#include "core/check.h"
#include "core/file_io.h"
#include "train/config/train_config.h"
#include "train/run/weights_source.h"

namespace trident {

// Where a run's checkpoints lie: checkpoint.dir, or a folder of run.dir.
std::string checkpoint_folder_of(const TrainConfig& config);
// Whether this run saves any.
bool saves_checkpoints(const TrainConfig& config);
// Whether the same command goes on from what it saves: not from weights alone, and not where checkpoint.resume is "never".
bool can_go_on(const TrainConfig& config);

// Weights, and where they are a checkpoint's of all content the rest of a run.
struct Resume : WeightsSource {
  std::vector<std::string> notes = {};  // one line each: what was passed over
  std::vector<std::string> changes = {}, warnings = {};  // as adopt() found them, said once its values are read
  std::string among = {};  // the folder in which this is the newest that may be whole; "": it was named itself
};

// "NAME is skipped: WHY", without the remedy of the fault, which is to take an older one.
std::string skipped_text(std::string_view name, const Error& fault);

// The checkpoint that checkpoint.resume means, judged by its manifest: the newest valid one, of steps below `before` if that is
// given; nothing if there is none, or none is wanted: run.overwrite wants none that the run cannot go on from, because that one is
// over or another run's of this run.dir. After a few tries a file that cannot be read is passed over like a damaged one.
// ConfigError for one of weights alone, from which no run goes on; NotPermitted for one that this user may not read; DataError if
// a path was named that is none, or if all that are there are damaged; StorageError if the newest could not be read.
std::optional<Resume> find_resume(const TrainConfig& config, std::optional<std::int64_t> before = std::nullopt);

// How a file that may not be read is refused: not as damaged, for which an older checkpoint would be taken. `key` and `value`: what
// asks for it.
NotPermitted not_permitted(std::string_view key, std::string_view value, const NotPermitted& error);
// The manifest of a checkpoint that another rank found for `key`. As open_manifest(), but not_permitted().
Manifest open_found(const std::string& folder, std::string_view key, std::string_view value);

// The checkpoint or Hugging Face folder whose weights model.init_from asks for, of whatever content; nothing without the key.
// `notes` says what was passed over. As find_resume(), and of a Hugging Face folder as open_hf(), which reads all but its values
// here. A checkpoint's base is opened, too (find_base).
std::optional<Resume> find_initial(const TrainConfig& config);
// The same for `reference`; nothing where that is "initial".
std::optional<Resume> find_reference(const TrainConfig& config);
// One of these folders, found by another rank for `key`.
Resume open_initial(const std::string& folder, std::string_view value, TiedCopies copies = TiedCopies::kTrusted,
                    std::string_view key = "model.init_from");

// Opens the PEFT folder of adapter.init_from beside the weights that training begins with; nothing without the key. As PeftAdapter.
void open_adapter(Resume& initial, const TrainConfig& config);

// The checkpoint that a path means (checkpoint_path; the newest of several), of whatever content. As
// find_initial(), for `key`.
Resume find_weights(const std::string& path, std::string_view key);
// The newest one before `damaged` in the same folder, for whoever found `fault` in its values; notes say what is passed over.
// An error with the fault and its code where `damaged` was named itself, or no older one is valid.
Resume find_older_weights(const Resume& damaged, const Error& fault, std::string_view key);
// use(find_weights()), and where it finds values of that checkpoint damaged, of the newest older one that is whole.
template <class Use>
auto use_newest_weights(const std::string& path, std::string_view key, const Use& use) {
  for (Resume source = find_weights(path, key);;) {
    try {
      return use(Resume(source));
    } catch (const DamagedValues& error) {
      if (source.among.empty() || error.folder() != source.folder) throw;
      Resume older = find_older_weights(source, error, key);
      older.notes.insert(older.notes.begin(), source.notes.begin(), source.notes.end());
      source = std::move(older);
    }
  }
}
// The Hugging Face folder at a path, for `key`, and an adapter to it in the PEFT folder `adapter` ("": none). DataError where there
// is none; as open_hf() and PeftAdapter.
Resume find_hf_weights(const std::string& path, std::string_view key, const std::string& adapter = "");

// Opens the model that has the tensors which a checkpoint leaves there: its base, where that lay at the last start, unless
// model.init_from is another than then. ConfigError where nothing that can be read is there (refuse_base). Without `init_from`:
// none is given.
Resume find_base(const Resume& checkpoint, const std::optional<std::string>& init_from = {});
// Gives it to the checkpoint. ConfigError where it lacks a tensor, or has one of another shape.
void set_base(Resume& checkpoint, Resume base);
// Does both, where the checkpoint has a base.
void open_base(Resume& checkpoint, const std::optional<std::string>& init_from = {});

// Whether run.dir is that of the run that is gone on with, so that its files go on, too. Another run may share checkpoint.dir: ids
// tell, and where one has none, whether the checkpoint was written from this run.dir.
bool goes_on_in_run_dir(const TrainConfig& config, const std::optional<Resume>& resume);
// run.id of this start: the one of the run that goes on in run.dir, or a new one, which differs from every other.
std::string run_id_for(const TrainConfig& config, const std::optional<Resume>& resume);

// read(), up to four times in 2.6 s while it throws StorageError, for a network file system that comes back; note(error, seconds)
// before each wait. Damage and missing files end it at once.
template <class Read, class Note>
auto read_again(Read&& read, Note&& note) {
  for (const double seconds : {0.1, 0.5, 2.0}) {
    try {
      return read();
    } catch (const StorageError& error) {
      note(error, seconds);
      std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    }
  }
  return read();
}

}  // namespace trident
