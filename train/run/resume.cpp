#include "train/run/resume.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_path.h"
#include "checkpoint/commit.h"
#include "checkpoint/format/hf_index.h"
#include "checkpoint/lease.h"
#include "core/foreign_folder.h"
#include "core/random_token.h"
#include "train/config/resolve_model.h"
#include "train/run/adopt.h"
#include "train/run/run_manifest.h"

namespace trident {
namespace {

enum class Content : std::uint8_t { kAll, kAny };

// The search's request.
struct Wanted {
  std::string_view key;  // that asks for it
  std::string value;
  Content content = Content::kAny;
  std::string remedy = "";  // where nothing is valid
};

// The newest checkpoint of steps below `step` that has all; "" if there is none.
std::string newest_with_all(const std::string& directory, std::int64_t step) {
  for (const std::int64_t other : checkpoint_steps(directory)) {
    std::string folder = fmt::format("{}/{}", directory, checkpoint_name(other));
    try {
      if (other < step && open_manifest(folder).complete) return folder;
    } catch (const Error&) {
      continue;  // no advice
    }
  }
  return "";
}

// Not damaged: an older one in its place would make steps again that are made, and set the newer weights aside.
[[noreturn]] void refuse_weights_alone(const std::string& folder, const Manifest& manifest, const Wanted& wanted) {
  const std::string older = newest_with_all(std::filesystem::path(folder).parent_path().string(), manifest.state.updates);
  const std::string go_on = older.empty() ? "set checkpoint.resume to \"never\""
                                          : fmt::format("name {} in checkpoint.resume, the newest before it that has all", older);
  throw ConfigError(fmt::format("{} = {}: {} holds weights alone (checkpoint.content), so no run can go on from it; {}, or give "
                                "model.init_from = {} in a run.dir of its own, which begins with them",
                                wanted.key, wanted.value, folder, go_on, folder));
}

// Reads for what is wanted, a few times where the storage refuses.
template <class Read>
auto read_wanted(const Wanted& wanted, Read&& read) {
  try {
    return read_again(read, [](const StorageError&, double) {});
  } catch (const NotPermitted& error) {
    throw not_permitted(wanted.key, wanted.value, error);
  }
}

Manifest open_with(const std::string& folder, const Wanted& wanted) {
  Manifest manifest = read_wanted(wanted, [&] { return open_manifest(folder); });
  if (!manifest.complete && wanted.content == Content::kAll) refuse_weights_alone(folder, manifest, wanted);
  return manifest;
}

// Refuses what is known to be no checkpoint and no Hugging Face folder.
void refuse_foreign_folder(const std::string& path, std::string_view key, WantedFolder folder = WantedFolder::kModel) {
  const Wanted wanted{key, path};
  if (const std::optional<std::string> other = read_wanted(wanted, [&] { return what_stands_at(path, folder); }))
    throw DataError(fmt::format("{} = {}: {}", key, path, *other));
}

// `first`: the fault of the one before which it looks. Where nothing is valid, that fault is the error, or the newest one's.
std::optional<Resume> newest_in(const std::string& directory, std::optional<std::int64_t> before, const Wanted& wanted,
                                std::optional<Error> first = {}) {
  Resume resume;
  for (const std::int64_t step : read_wanted(wanted, [&] { return checkpoint_steps(directory); })) {
    if (before && step >= *before) continue;
    resume.folder = fmt::format("{}/{}", directory, checkpoint_name(step));
    try {
      resume.manifest = open_with(resume.folder, wanted);
      resume.among = directory;
      return resume;
    } catch (const NewerFormat&) {
      throw;  // nothing is wrong with it: who went on from an older one would train its steps again
    } catch (const NotPermitted&) {
      throw;  // nor with this one, perhaps
    } catch (const Error& error) {
      if (error.code() != ExitCode::kData && error.code() != ExitCode::kStorage) throw;
      if (!first) first = error;
      resume.notes.push_back(skipped_text(checkpoint_name(step), error));
    }
  }
  if (!first) return std::nullopt;
  const std::string text = fmt::format("{}; no other checkpoint is valid: {}", first->what(), wanted.remedy);
  if (first->code() == ExitCode::kStorage) throw StorageError(text);
  throw DataError(text);
}

// A path may mean a checkpoint, or the newest in a folder of them.
std::optional<Resume> named_checkpoint(const std::string& given, std::optional<std::int64_t> before, const Wanted& wanted) {
  const std::string path = read_wanted(wanted, [&] { return checkpoint_path(given); });
  if (!is_there(path + "/" + std::string(kManifestName))) return newest_in(path, before, wanted);
  if (before) return std::nullopt;  // it was that one and no other
  Manifest manifest = open_with(path, wanted);
  return Resume{{path, std::move(manifest)}};
}

bool same_folder(const std::filesystem::path& a, const std::filesystem::path& b) {
  std::error_code error;
  if (std::filesystem::equivalent(a, b, error)) return true;
  return std::filesystem::weakly_canonical(a, error) == std::filesystem::weakly_canonical(b, error);
}

// The id of the run whose files are in the folder; "" where nothing says so.
std::string run_id_in(const std::string& run_dir) {
  const std::string path = run_dir + "/config.resolved.json";
  try {
    return file_exists(path) ? run_id_of(read_json_file(path)) : "";
  } catch (const Error&) {
    return "";  // it may have become anything
  }
}

// Whether run.overwrite leaves this checkpoint of its own folder for a new run.
bool begins_over(const TrainConfig& config, const Resume& resume) {
  if (!config.run.overwrite || !goes_on_in_run_dir(config, resume)) return false;
  const std::optional<std::string> token = lease_token_given();
  const std::optional<LeaseRecord> lease = token ? newest_lease(checkpoint_folder_of(config)) : std::nullopt;
  if (lease && lease->holder.token == *token) return false;  // an earlier start of this supervised run has begun anew
  if (!resume.manifest.complete || resume.manifest.state.updates >= config.run.steps) return true;
  try {
    TrainConfig as_asked = config;
    Resume found = resume;
    adopt(as_asked, found);
  } catch (const ConfigError&) {
    return true;
  }
  return false;
}

Resume initial_at(const std::string& from, std::string_view key = "model.init_from");

Resume open_folder(const std::string& folder, std::string_view key, std::string_view value, TiedCopies copies) {
  try {
    auto hf = open_hf(folder, copies);  // before the object: where it throws within, gcc 12 ends members that never began
    return {{folder, {}, std::move(hf)}};
  } catch (const NotPermitted& error) {
    throw not_permitted(key, value, error);
  }
}

}  // namespace

NotPermitted not_permitted(std::string_view key, std::string_view value, const NotPermitted& error) {
  return NotPermitted(fmt::format("{} = {}: {}, or name another one in {}", key, value, error.what(), key), error.system_error());
}

Manifest open_found(const std::string& folder, std::string_view key, std::string_view value) {
  try {
    return open_manifest(folder);
  } catch (const NotPermitted& error) {
    throw not_permitted(key, value, error);
  }
}

std::string skipped_text(std::string_view name, const Error& fault) {
  const std::string_view why = fault.what();
  // Another checkpoint takes the place of a damaged one, and storage still has to be mended.
  return fmt::format("{} is skipped: {}", name, fault.code() == ExitCode::kData ? why.substr(0, why.rfind("; ")) : why);
}

std::string checkpoint_folder_of(const TrainConfig& config) { return config.checkpoint.dir.value_or(config.run.dir + "/ckpt"); }

bool saves_checkpoints(const TrainConfig& config) { return config.checkpoint.every.at_end; }

bool can_go_on(const TrainConfig& config) {
  return config.checkpoint.content == CheckpointContent::kAll && config.checkpoint.resume.kind != ResumeFrom::Kind::kNever;
}

std::optional<Resume> find_resume(const TrainConfig& config, std::optional<std::int64_t> before) {
  constexpr std::string_view kAnew = "set checkpoint.resume to \"never\" to begin anew";
  using Kind = ResumeFrom::Kind;
  if (config.checkpoint.resume.kind == Kind::kNever) return std::nullopt;
  const std::string from = to_string(config.checkpoint.resume);
  const Wanted wanted{"checkpoint.resume", from, Content::kAll, std::string(kAnew)};
  if (config.checkpoint.resume.kind == Kind::kNewest) {
    Wanted newest = wanted;
    if (config.run.overwrite) newest.content = Content::kAny;
    std::optional<Resume> found = newest_in(checkpoint_folder_of(config), before, newest);
    if (found && begins_over(config, *found)) return std::nullopt;
    if (found && !found->manifest.complete) refuse_weights_alone(found->folder, found->manifest, wanted);
    return found;
  }
  std::optional<Resume> resume = named_checkpoint(from, before, wanted);
  if (!resume && !before && is_hf_folder(hub_snapshot(from)))
    throw DataError(
        fmt::format("checkpoint.resume = {}: is a Hugging Face folder, from which no run goes on; begin with its weights: "
                    "name it in model.init_from",
                    from));
  if (!resume && !before) refuse_foreign_folder(from, "checkpoint.resume", WantedFolder::kCheckpoint);
  if (!resume && !before)
    throw DataError(
        fmt::format("checkpoint.resume = {}: there is no checkpoint; name one, the folder of several, or a run's", from));
  return resume;
}

std::optional<Resume> find_initial(const TrainConfig& config) {
  return config.model.init_from ? std::optional(initial_at(hub_snapshot(*config.model.init_from))) : std::nullopt;
}

std::optional<Resume> find_reference(const TrainConfig& config) {
  return config.names_reference() ? std::optional(initial_at(hub_snapshot(config.reference), "reference")) : std::nullopt;
}

namespace {

Resume initial_at(const std::string& from, std::string_view key) {
  if (is_hf_folder(from)) return open_initial(from, from, TiedCopies::kCompared, key);
  std::optional<Resume> initial =
      named_checkpoint(from, std::nullopt, {key, from, Content::kAny, fmt::format("name another in {}", key)});
  if (initial) {
    open_base(*initial);
    return *std::move(initial);
  }
  refuse_foreign_folder(from, key);
  throw DataError(fmt::format("{} = {}: there is no checkpoint; name one, the folder of several, a run's, or a Hugging "
                              "Face folder, which has config.json and model.safetensors{}",
                              key, from, key == "reference" ? "; or \"initial\" or \"adapter_off\"" : ""));
}

}  // namespace

Resume open_initial(const std::string& folder, std::string_view value, TiedCopies copies, std::string_view key) {
  if (is_hf_folder(folder)) return open_folder(folder, key, value, copies);
  Manifest manifest = open_found(folder, key, value);
  Resume initial{{folder, std::move(manifest)}};
  open_base(initial);
  return initial;
}

void open_adapter(Resume& initial, const TrainConfig& config) {
  if (!config.adapter.init_from) return;
  const std::string folder = hub_snapshot(*config.adapter.init_from);
  const ModelConfig base_model = model_of(initial);
  const auto adapter = std::make_shared<PeftAdapter>(folder, base_model);
  for (const std::string& name : tensors_by_token(base_model))
    if (const HfFileTensor* const copy = adapter->tensors().find(name);
        copy != nullptr && copy->shape.front() != base_model.vocab_size && std::ranges::count(adapter->config().copies, name) == 0)
      throw ConfigError(fmt::format("adapter.init_from = {}: has {} of {} tokens, which did not train, and {} has {}; merge it "
                                    "(trident convert --from peft BASE ADAPTER --to ckpt OUT), and begin new adapters beside the "
                                    "result",
                                    folder, name, copy->shape.front(), initial.folder, base_model.vocab_size));
  if (const std::int64_t rows = resolve_model(config).vocab_size; adapter->vocab_size() > rows)
    throw ConfigError(fmt::format("adapter.init_from = {}: has copies for {} tokens, and model.vocab_size is {}; set it to {}",
                                  folder, adapter->vocab_size(), rows, adapter->vocab_size()));
  initial.beside = adapter;
  const std::string& base = adapter->config().base;
  initial.notes.push_back(fmt::format(
      "begins with the adapters of {} (adapter.init_from){}", folder,
      adapter->base_values().is_object()
          ? ""
          : fmt::format("; it says of its base {}, and no values: whether these are model.init_from's cannot be checked",
                        base.empty() ? "nothing" : "the name " + in_quotes(base))));
}

Resume find_base(const Resume& checkpoint, const std::optional<std::string>& init_from) {
  std::string path = checkpoint.manifest.base;
  if (init_from) {
    const std::optional<std::string> then = config_of(checkpoint).config.model.init_from;
    if (!then || recorded_path(*init_from) != *then) path = hub_snapshot(*init_from);
  }
  if (!is_there(path))
    refuse_base(checkpoint, path == checkpoint.manifest.base ? "nothing is there any more" : fmt::format("there is no {}", path),
                hint_beside(path));
  try {
    return initial_at(path);
  } catch (const NotPermitted&) {
    throw;
  } catch (const DataError& error) {
    refuse_base(checkpoint, error.what());
  }
}

void set_base(Resume& checkpoint, Resume base) {
  std::map<std::string_view, const std::vector<std::int64_t>*> shapes;
  for (const ManifestTensor& tensor : base.manifest.tensors) shapes.emplace(tensor.name, &tensor.shape);
  for (const ManifestTensor& tensor : checkpoint.manifest.tensors) {
    if (!tensor.base) continue;
    const HfFileTensor* const of_folder = base.hf != nullptr ? base.hf->find(tensor.name) : nullptr;
    const auto stored = shapes.find(tensor.name);
    const auto fits = [&](const HfFileTensor& there) {  // or gets rows
      return there.shape == tensor.shape || (there.by_token && added_rows(there.shape, tensor.shape) > 0);
    };
    if (of_folder != nullptr ? fits(*of_folder) : stored != shapes.end() && *stored->second == tensor.shape)
      continue;
    refuse_base(checkpoint, fmt::format("{} has no {} of that shape", base.folder, tensor.name));
  }
  std::ranges::move(base.notes, std::back_inserter(checkpoint.notes));
  checkpoint.base = std::make_shared<WeightsSource>(std::move(base));
}

void open_base(Resume& checkpoint, const std::optional<std::string>& init_from) {
  if (!checkpoint.manifest.base.empty()) set_base(checkpoint, find_base(checkpoint, init_from));
}

Resume find_weights(const std::string& path, std::string_view key) {
  std::optional<Resume> found =
      named_checkpoint(path, std::nullopt, {key, path, Content::kAny, fmt::format("name another in {}", key)});
  if (found) {
    for (const std::string& fault : config_of(*found).faults) found->notes.push_back(fmt::format("read as it stands: {}", fault));
    return *std::move(found);
  }
  if (is_hf_folder(hub_snapshot(path)))
    throw DataError(fmt::format("{} = {}: is a Hugging Face folder; name it in --hf", key, path));
  refuse_foreign_folder(path, key, WantedFolder::kCheckpoint);
  throw DataError(fmt::format("{} = {}: there is no checkpoint; name one, the folder of several, or a run's", key, path));
}

Resume find_older_weights(const Resume& damaged, const Error& fault, std::string_view key) {
  if (damaged.among.empty()) throw fault;
  const Wanted wanted{key, damaged.among, Content::kAny, fmt::format("name another in {}", key)};
  std::optional<Resume> older = newest_in(damaged.among, damaged.manifest.state.updates, wanted, fault);
  older->notes.insert(older->notes.begin(), skipped_text(damaged.folder, fault));
  older->notes.push_back(fmt::format("{} takes its place; remove the damaged one, or put its files back", older->folder));
  return *std::move(older);
}

Resume find_hf_weights(const std::string& given, std::string_view key, const std::string& adapter) {
  const std::string path = hub_snapshot(given);
  if (is_hf_folder(path)) {
    Resume found = open_folder(path, key, path, TiedCopies::kCompared);
    if (!adapter.empty()) found.adapter = std::make_shared<PeftAdapter>(hub_snapshot(adapter), model_of_hf(path));
    return found;
  }
  const Wanted wanted{key, path};
  read_wanted(wanted, [&] { check_may_read(path); });
  const std::string checkpoints = checkpoint_path(path);
  if (is_there(checkpoints + "/" + std::string(kManifestName)) || !checkpoint_steps(checkpoints).empty())
    throw DataError(
        fmt::format("{} = {}: holds checkpoints of Trident; name it in {}", key, path, key == "--hf" ? "--ckpt" : "--from ckpt"));
  refuse_foreign_folder(path, key);
  throw DataError(fmt::format("{} = {}: no Hugging Face folder (config.json and {}); name one", key, path, kHfWeightsName));
}

bool goes_on_in_run_dir(const TrainConfig& config, const std::optional<Resume>& resume) {
  if (!resume) return false;
  const std::string checkpoints = checkpoint_folder_of(config);
  if (!same_folder(std::filesystem::path(resume->folder).parent_path(), checkpoints)) return false;
  if (same_folder(checkpoints, config.run.dir + "/ckpt")) return true;
  const std::string id = run_id_of(resume->manifest.config), id_here = run_id_in(config.run.dir);
  if (!id.empty() && !id_here.empty()) return id == id_here;  // wherever both folders were moved or copied to
  return same_folder(config_of(*resume).config.run.dir, config.run.dir);
}

std::string run_id_for(const TrainConfig& config, const std::optional<Resume>& resume) {
  const std::string id = goes_on_in_run_dir(config, resume) ? run_id_of(resume->manifest.config) : "";
  return id.empty() ? random_token() : id;
}

}  // namespace trident
