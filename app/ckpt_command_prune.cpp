// trident ckpt prune: what a run does after a save, by hand.
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <system_error>
#include <vector>

#include "app/ckpt_command.h"
#include "app/progress_line.h"
#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_path.h"
#include "checkpoint/commit.h"
#include "checkpoint/keep_checkpoints.h"
#include "checkpoint/lease.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "core/random_token.h"
#include "train/config/stored_config.h"

namespace trident {
namespace {

// Keeps a run from starting where its files are known: in the folder that the manifest's configuration names, and above the
// checkpoints, where they lie unless checkpoint.dir says otherwise. StorageError while one is going on there.
std::vector<AppendFile> hold_run_files(const std::string& folder, const std::string& run_dir) {
  std::vector<AppendFile> held;
  for (const std::string& of : {run_dir, folder + "/.."}) {
    const std::string metrics = of + "/metrics.jsonl";
    std::error_code ignored;
    const bool again = !held.empty() && std::filesystem::equivalent(metrics, held.front().path(), ignored);
    if (!of.empty() && !again && file_exists(metrics)) held.emplace_back(metrics, AppendFile::Start::kAppend);
  }
  return held;
}

// The configuration of the run that wrote a checkpoint; nothing if it is none that this version reads.
std::optional<TrainConfig> config_of(const Manifest& manifest) {
  try {
    return read_stored(manifest.config, "manifest.json").config;
  } catch (const Error&) {
    return std::nullopt;
  }
}

KeepRules rules_of(const PruneRequest& request, const std::optional<TrainConfig>& config, const Manifest& newest) {
  KeepRules rules;
  if (config) {
    rules.newest = config->checkpoint.keep_last.value_or(0);
    rules.every = config->checkpoint.keep_every.value_or(0);
    if (config->checkpoint.keep_best && newest.state.best_valid_loss) rules.best = newest.state.best_valid_step;
  }
  rules.newest = request.keep_last.value_or(rules.newest);
  rules.every = request.keep_every.value_or(rules.every);
  if (rules.newest == 0)
    throw ConfigError(fmt::format("{}: nothing says which checkpoints go, because the run that wrote them keeps all; give --keep-last N", request.folder));
  return rules;
}

void refuse_damaged(const std::string& newest, const Manifest& manifest) {
  const std::vector<std::string> problems = check_checkpoint(newest, manifest);
  if (problems.empty()) return;
  throw DataError(fmt::format("{}: nothing is removed, because the newest checkpoint is damaged: {}; set it aside ({}.aside-1), then older ones are judged",
                              newest, problems.front(), checkpoint_name(manifest.state.updates)));
}

}  // namespace

void ckpt_prune(const PruneRequest& given, const CommandContext& context) {
  PruneRequest request = given;
  request.folder = checkpoint_path(given.folder);
  const std::string newest = find_checkpoint(request.folder);
  if (is_there(request.folder + "/" + std::string(kManifestName)) || !folder_exists(request.folder))
    throw DataError(fmt::format("{}: is a checkpoint, not a folder of them; name the folder that checkpoint.dir names", request.folder));
  const Manifest manifest = open_manifest(newest);
  const std::optional<TrainConfig> config = config_of(manifest);
  const KeepRules rules = rules_of(request, config, manifest);
  std::vector<AppendFile> held;
  std::optional<Lease> lease;  // against runs on other machines, too
  if (!request.dry_run) held = hold_run_files(request.folder, config ? config->run.dir : "");
  const Pruned pruned = prune_checkpoints(request.folder, rules, PruneMode::kLook);
  if (!request.unread && !pruned.removed.empty()) refuse_damaged(newest, manifest);
  std::map<std::int64_t, std::int64_t> sizes;
  for (const std::int64_t step : pruned.removed) sizes[step] = total_bytes(open_manifest(request.folder + "/" + checkpoint_name(step)));
  LeaseOptions options;
  options.say = [&context](const std::string& line) { context.out << on_one_line(line) << '\n'; };
  if (!request.dry_run) lease.emplace(request.folder, random_token(), std::move(options));
  const Pruned done = request.dry_run ? pruned : prune_checkpoints(request.folder, rules);
  std::ostream& out = context.out;
  for (const std::int64_t step : done.locked) out << fmt::format("{} stays: a reader has locked it\n", checkpoint_name(step));
  std::int64_t bytes = 0;
  for (const std::int64_t step : done.removed) {
    bytes += sizes[step];
    out << fmt::format("{} {}, {}\n", checkpoint_name(step), request.dry_run ? "would be removed" : "is removed",
                       bytes_text(sizes[step]));
  }
  out << fmt::format("{}: {} {}, {}; {} {}\n", on_one_line(request.folder), counted(std::ssize(done.removed), "checkpoint"),
                     request.dry_run ? "would be removed" : "removed", bytes_text(bytes), std::ssize(done.stayed),
                     done.stayed.size() == 1 ? "stays" : "stay");
}

}  // namespace trident
