// trident ckpt ls DIR [--json] | show DIR[/STEP] [--json] | verify DIR[/STEP] | diff A B | prune DIR
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <system_error>
#include <vector>

#include "app/command_line.h"
#include "app/help_text.h"
#include "app/progress_line.h"
#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_path.h"
#include "checkpoint/commit.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/keep_checkpoints.h"
#include "checkpoint/lease.h"
#include "checkpoint/save_plan.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "core/function_ref.h"
#include "core/json_reader.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "core/random_token.h"
#include "core/shell_word.h"
#include "report/table.h"
#include "train/config/stored_config.h"
#include "train/run/run_files.h"
#include "train/run/run_manifest.h"

namespace trident {
namespace {

// Refuses what stands at a path in place of checkpoints, of which there are none.
void refuse_other_folder(const std::string& path) {
  if (is_hf_folder(hub_snapshot(path)))
    throw DataError(fmt::format("{}: is a Hugging Face folder, no checkpoint; trident convert --from hf makes one of it", path));
  if (const std::optional<std::string> other = what_stands_at(path, WantedFolder::kCheckpoint))
    throw DataError(fmt::format("{}: {}", path, *other));
}

// The checkpoint that a path means (checkpoint_path): of several the newest_checkpoint(). DataError if there is none.
std::string find_checkpoint(const std::string& given) {
  const std::string path = checkpoint_path(given);
  if (std::optional<std::string> newest = newest_checkpoint(path)) return *std::move(newest);
  check_may_read(path);
  if (path != given && !folder_exists(path)) throw DataError(fmt::format("{}: there is no {}; see trident ckpt ls", given, path));
  refuse_other_folder(path);
  throw DataError(fmt::format("{}: neither a checkpoint nor a folder with a valid one; see trident ckpt ls", path));
}

std::string age_text(std::int64_t written_unix) {
  const std::int64_t seconds = std::max<std::int64_t>(0, static_cast<std::int64_t>(std::time(nullptr)) - written_unix);
  if (seconds < 120) return fmt::format("{} s", seconds);
  if (seconds < 120 * 60) return fmt::format("{} min", seconds / 60);
  if (seconds < 48 * 3600) return fmt::format("{} h", seconds / 3600);
  return fmt::format("{} days", seconds / 86'400);
}

// "bf16 weights, masters, exp_avg, exp_avg_sq"
std::string content_text(const Manifest& manifest) {
  std::string text;
  for (const StoredKind& kind : stored_kinds(manifest)) {
    if (kind.prefix.empty())
      text = fmt::format("{} weights", to_string(kind.dtype));
    else if (kind.prefix == kMasterPrefix)
      text += ", masters";
    else
      text += ", " + on_one_line(kind.prefix.substr(0, kind.prefix.size() - 1));
  }
  return text;
}

std::string base_text(const Manifest& manifest) {
  return manifest.base.empty() ? "" : ", frozen weights in " + on_one_line(manifest.base);
}

std::string step_text(const CheckpointEntry& entry) {
  return fmt::format("{}{}", entry.parts.step, entry.name.substr(checkpoint_name(entry.parts.step).size()));
}

// A line of JSON, and the cells of a row.
JsonValue row(const std::string& folder, const CheckpointEntry& entry, std::int64_t bytes, JsonValue written_unix,
              const std::string& health, const std::string& content) {
  return JsonValue::Object{{"step", entry.parts.step}, {"folder", folder + "/" + entry.name}, {"bytes", bytes},
                           {"written_unix", std::move(written_unix)}, {"health", health}, {"content", on_one_line(content)}};
}

JsonValue row_of_valid(const std::string& folder, const CheckpointEntry& entry, const Manifest& manifest) {
  std::string health, content = content_text(manifest) + base_text(manifest);
  try {
    check_files(folder + "/" + entry.name, manifest);
    health = entry.parts.mark == kAsideMark ? "set aside" : entry.parts.mark == kTemporaryMark ? "not committed" : "all there";
  } catch (const NotPermitted& error) {
    health = "no permission", content = error.what();
  } catch (const Error& error) {
    health = "damaged", content = error.what();
  }
  return row(folder, entry, total_bytes(manifest), manifest.written_unix, health, content);
}

JsonValue row_of_other(const std::string& folder, const CheckpointEntry& entry) {
  return row(folder, entry, bytes_below(folder + "/" + entry.name), JsonValue(),
             entry.health == CheckpointHealth::kDamaged        ? "damaged"
             : entry.health == CheckpointHealth::kNotPermitted ? "no permission"
                                                               : "incomplete",
             entry.why);
}

void add_state(const Manifest& manifest, Table& facts) {
  const TrainingState& state = manifest.state;
  const auto add = [&](const char* name, const std::string& value) { facts.rows.push_back({name, value}); };
  const std::string skipped =
      state.skipped == 0 ? "" : fmt::format(", {} skipped ({} in a row)", state.skipped, state.skipped_in_a_row);
  add("updates", fmt::format("{} of {} batches{}", state.updates, state.batches, skipped));
  add("samples", fmt::format("{}", state.samples));
  add("tokens", fmt::format("{}", state.tokens));
  if (manifest.weights == DType::kF16)
    add("loss scale", fmt::format("{}, {} clean steps, {} overflows left", state.loss_scale, state.loss_scale_clean_steps,
                                  state.loss_scale_overflows_left));
  if (state.blend_now.size() > 1)
    add("blend", fmt::format("{} taken, {} at position {}", to_json_text(state.blend_now), to_json_text(state.blend_taken),
                             state.blend_start));
  if (state.best_valid_loss)
    add("best valid loss", fmt::format("{:.6g} at step {}, the lowest of steps that were saved", *state.best_valid_loss,
                                       state.best_valid_step));
  if (state.last_eval >= 0) add("last evaluation", fmt::format("at step {}", state.last_eval));
}

// "program trident, host n1, ranks 4, ..."
std::string facts_text(const JsonValue& facts) {
  std::string text;
  if (!facts.is_object()) return facts.is_string() ? facts.as_string() : to_json_text(facts);
  for (const auto& [name, value] : facts.members())
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", value.is_object() ? "" : name + ' ', facts_text(value));
  return text;
}

void print_differences(const CheckpointDifference& difference, std::ostream& out) {
  for (const std::string& note : difference.notes) out << on_one_line(note) << '\n';
  for (const std::string& line : difference.state) out << "state: " << on_one_line(line) << '\n';
  for (const TensorDifference& tensor : difference.tensors) {
    const std::string name = on_one_line(tensor.key);
    if (!tensor.what.empty())
      out << fmt::format("{}: {}\n", name, tensor.what);
    else
      out << fmt::format("{}: {} of {} elements differ, the first at {}: {} and {}\n", name, tensor.different, tensor.elements,
                         shape_text(tensor.first), tensor.first_a, tensor.first_b);
  }
}

// "3 of 12 tensors compared, 2 that could not be compared"
std::string tensors_text(const CheckpointDifference& difference) {
  const auto not_compared =
      std::ranges::count_if(difference.tensors, [](const TensorDifference& tensor) { return !tensor.what.empty(); });
  if (difference.compared == 0) return fmt::format("none of {} could be compared", counted(not_compared, "tensor"));
  const std::int64_t different = std::ssize(difference.tensors) - not_compared;
  const std::string others = not_compared == 0 ? "" : fmt::format(", {} that could not be compared", not_compared);
  return fmt::format("{} of {} compared{}", different, counted(difference.compared, "tensor"), others);
}

void warn(const std::string& note, const CommandContext& context) {
  if (!note.empty()) say(context, "warning: " + on_one_line(note));
}

// All of a folder, damaged or not, the oldest first.
std::vector<std::string> checkpoints_to_verify(const std::string& given) {
  const std::string path = checkpoint_path(given);
  std::vector<std::string> folders;
  for (const std::int64_t step : checkpoint_steps(path)) folders.push_back(fmt::format("{}/{}", path, checkpoint_name(step)));
  if (folders.empty()) folders.push_back(find_checkpoint(given));
  std::ranges::reverse(folders);
  return folders;
}

// Prints what is wrong, and throws then.
void verify_one(const std::string& folder, const CommandContext& context) {
  const Manifest manifest = open_manifest(folder);
  ProgressLine line(context, "ckpt verify");
  const std::vector<std::string> problems = check_checkpoint(
      folder, manifest, [&](std::int64_t done, std::int64_t all) { line.bytes(done, all); },
      [&](const std::string& note) { warn(note, context); });
  line.finish();
  for (const std::string& problem : problems) context.out << on_one_line(problem) << '\n';
  if (!problems.empty())
    throw DataError(fmt::format("{}: damaged: {}; use an older checkpoint, or copy this one again", folder,
                                counted(std::ssize(problems), "problem")));
  context.out << fmt::format("{}: whole: {} in {}, {} read and compared with their hashes{}\n", on_one_line(folder),
                             counted(std::ssize(manifest.tensors), "tensor"), counted(std::ssize(manifest.files), "file"),
                             bytes_text(total_bytes(manifest)), base_text(manifest));
}

void ckpt_ls(const std::string& path, bool as_json, const CommandContext& context) {
  const std::string folder = checkpoint_path(path);
  std::map<std::string, JsonValue> valid;
  const std::vector<CheckpointEntry> entries =
      list_checkpoints(folder, [&](const CheckpointEntry& entry, const Manifest& manifest) {
        valid.emplace(entry.name, row_of_valid(folder, entry, manifest));
      });
  if (entries.empty()) refuse_other_folder(folder);
  if (entries.empty() && is_there(folder + "/" + std::string(kManifestName)))
    throw DataError(fmt::format("{}: is one checkpoint; trident ckpt show prints it, and ls lists the folder above it", folder));
  if (entries.empty())
    throw DataError(fmt::format("{}: has no checkpoints; name the folder that checkpoint.dir names, or that of a run", folder));
  Table table{"", {{"step", true}, {"size"}, {"age"}, {"files", true}, {"content", true}}};
  const std::string resumed = resumed_from_in(file_exists(path + "/run.json") ? path : folder + "/..");
  for (const CheckpointEntry& entry : entries) {
    const auto found = valid.find(entry.name);
    JsonValue line = found != valid.end() ? found->second : row_of_other(folder, entry);
    std::error_code gone;
    const bool is_resumed = std::filesystem::equivalent(line.find("folder")->as_string(), resumed, gone);
    line.set("resumed_from", is_resumed);
    if (as_json) context.out << to_json_text(line) << '\n';
    const JsonValue& written = *line.find("written_unix");
    table.rows.push_back({step_text(entry), bytes_text(line.find("bytes")->as_integer()),
                          written.is_null() ? "-" : age_text(written.as_integer()), line.find("health")->as_string(),
                          line.find("content")->as_string() + (is_resumed ? "; the last start went on from it" : "")});
  }
  if (!as_json) context.out << to_text(table, context.table_columns());
}

// The configuration of the run that wrote a checkpoint; nothing if it is none that this version reads.
std::optional<TrainConfig> config_of(const Manifest& manifest) {
  try {
    return read_stored(manifest.config, "manifest.json").config;
  } catch (const Error&) {
    return std::nullopt;
  }
}

JsonValue to_json(StoredTensors& checkpoint) {
  const Manifest& manifest = checkpoint.manifest();
  const TrainingState& state = manifest.state;
  JsonValue::Array tensors;
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
    const ManifestTensor& tensor = manifest.tensors[t];
    tensors.push_back(JsonValue::Object{{"name", tensor.name},
                                        {"shape", tensor.shape},
                                        {"norm", tensor.base ? JsonValue() : JsonValue(weight_norm(checkpoint, t))}});
  }
  return JsonValue::Object{{"folder", checkpoint.folder()}, {"step", state.updates}, {"batches", state.batches},
                           {"skipped", state.skipped}, {"samples", state.samples}, {"tokens", state.tokens},
                           {"best_valid_loss", state.best_valid_loss},
                           {"best_valid_step", state.best_valid_step}, {"content", content_text(manifest)},
                           {"base", manifest.base.empty() ? JsonValue() : JsonValue(manifest.base)},
                           {"files", std::ssize(manifest.files)}, {"bytes", total_bytes(manifest)},
                           {"written_unix", manifest.written_unix}, {"writer", manifest.writer}, {"config", manifest.config},
                           {"dtype", to_string(manifest.weights)}, {"tensors", std::move(tensors)}};
}

void ckpt_show(const std::string& path, bool as_json, const CommandContext& context) {
  StoredTensors checkpoint(find_checkpoint(path));
  warn(checkpoint.lock_note(), context);
  const Manifest& manifest = checkpoint.manifest();
  std::ostream& out = context.out;
  if (as_json) return void(out << to_json_text(to_json(checkpoint)) << '\n');
  Table facts{"", {{"", true, 16}, {"", true}}, {}, 2, 1};
  add_state(manifest, facts);
  if (const std::optional<TrainConfig> config = config_of(manifest)) {
    std::vector<std::string> data;
    for (const WeightedPath& file : config->data.train) data.push_back(file.path);
    facts.rows.push_back({"trained on", fmt::format("{}, batches of {} x {} tokens, learning rate {:g}", fmt::join(data, ", "),
                                                    config->batch.global, config->batch.sequence, config->optimizer.lr)});
  }
  JsonValue writer = manifest.writer;
  if (const std::string layout = saved_layout(manifest); !layout.empty()) writer.set("saved_with", layout);
  facts.rows.insert(facts.rows.end(),
                    {{"content", content_text(manifest) + base_text(manifest)},
                     {"files", fmt::format("{}, {}", manifest.files.size(), bytes_text(total_bytes(manifest)))},
                     {"written", utc_text(manifest.written_unix)},
                     {"written by", facts_text(writer)}});
  for (std::vector<std::string>& row : facts.rows) row.back() = on_one_line(row.back());
  out << on_one_line(checkpoint.folder()) << '\n' << to_text(facts, context.table_columns());
  out << fmt::format("{}: shape, dtype, norm\n", counted(std::ssize(manifest.tensors), "tensor"));
  Table table{"", {{"", true}, {"", true}, {"", true}, {"", true}}, {{}}, 2, 2, false, 4};
  for (const ManifestTensor& tensor : manifest.tensors) {
    table.columns[0].width = std::max(table.columns[0].width, on_one_line(tensor.name).size());
    table.columns[1].width = std::max(table.columns[1].width, shape_text(tensor.shape).size());
  }
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {  // a row at a time: norms take long, and one may not be readable
    const ManifestTensor& tensor = manifest.tensors[t];
    std::vector<std::string>& row = table.rows.front();
    row = {on_one_line(tensor.name), shape_text(tensor.shape), "in the base"};
    if (!tensor.base) row.back() = to_string(manifest.weights), row.push_back(fmt::format("{:.6g}", weight_norm(checkpoint, t)));
    out << to_text(table, context.table_columns());
  }
}

void ckpt_verify(const std::string& path, const CommandContext& context) {
  const std::vector<std::string> folders = checkpoints_to_verify(path);
  std::vector<Error> faults;
  for (const std::string& folder : folders) {
    try {
      verify_one(folder, context);
    } catch (const Error& error) {
      if (folders.size() == 1 || is_there(folder)) faults.push_back(error);
      else context.out << fmt::format("{}: removed meanwhile, as a run that keeps the newest does\n", on_one_line(folder));
    }
  }
  if (faults.size() == 1) throw faults.front();
  for (const Error& fault : faults) context.out << on_one_line(fault.what()) << '\n';
  if (faults.empty()) return;
  const auto is_damage = [](const Error& fault) { return fault.code() == ExitCode::kData; };
  throw Error(std::ranges::any_of(faults, is_damage) ? ExitCode::kData : faults.front().code(),
              fmt::format("{}: {} of {} checkpoints are not whole; the lines above say why", path, faults.size(), folders.size()));
}

void ckpt_diff(const std::string& a, const std::string& b, const CommandContext& context) {
  StoredTensors of_a(find_checkpoint(a)), of_b(find_checkpoint(b));
  for (const StoredTensors* of : {&of_a, &of_b}) warn(of->lock_note(), context);
  ProgressLine line(context, "ckpt diff");
  const CheckpointDifference difference =
      compare_checkpoints(of_a, of_b, [&](std::int64_t done, std::int64_t all) { line.count(done, all, "tensors"); });
  line.finish();
  print_differences(difference, context.out);
  if (!difference.is_equal())
    throw Error(static_cast<ExitCode>(kExitDifferent),
                fmt::format("{} and {} differ: {}, {} of the state; the lines above say where", of_a.folder(), of_b.folder(),
                            tensors_text(difference), counted(std::ssize(difference.state), "number")));
  context.out << fmt::format("equal: {} of {}, and the state of training\n", counted(difference.compared, "tensor"),
                             counted(std::ssize(of_a.manifest().tensors), "name"));
}

// ---- prune: what a run does after a save, by hand

struct PruneRequest {
  std::string folder;
  std::optional<std::int64_t> keep_last, keep_every;  // nothing: what the run that wrote the newest one keeps
  bool dry_run = false;                               // says what would go
  bool unread = false;                                // without reading the newest one back
};

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
    throw ConfigError(fmt::format("{}: nothing says which checkpoints go, because the run that wrote them keeps all; give "
                                  "--keep-last N", request.folder));
  return rules;
}

void refuse_damaged(const std::string& newest, const Manifest& manifest) {
  const std::vector<std::string> problems = check_checkpoint(newest, manifest);
  if (problems.empty()) return;
  throw DataError(fmt::format("nothing is removed, because the newest checkpoint is damaged: {}; mv {} {}, then older ones are "
                              "judged", cause_of(problems.front()), for_shell(newest), for_shell(free_aside(newest))));
}

// DataError if the newest checkpoint is not whole; StorageError while a run writes there: then nothing is removed.
void ckpt_prune(const PruneRequest& given, const CommandContext& context) {
  PruneRequest request = given;
  request.folder = checkpoint_path(given.folder);
  const std::string newest = find_checkpoint(request.folder);
  if (is_there(request.folder + "/" + std::string(kManifestName)) || !folder_exists(request.folder))
    throw DataError(
        fmt::format("{}: is a checkpoint, not a folder of them; name the folder that checkpoint.dir names", request.folder));
  const Manifest manifest = open_manifest(newest);
  const std::optional<TrainConfig> config = config_of(manifest);
  const KeepRules rules = rules_of(request, config, manifest);
  std::vector<AppendFile> held;
  std::optional<Lease> lease;  // against runs on other machines, too
  if (!request.dry_run) held = hold_run_files(request.folder, config ? config->run.dir : "");
  const Pruned pruned = prune_checkpoints(request.folder, rules, PruneMode::kLook);
  if (!request.unread && !pruned.removed.empty()) refuse_damaged(newest, manifest);
  std::map<std::int64_t, std::int64_t> sizes;
  for (const std::int64_t step : pruned.removed)
    sizes[step] = total_bytes(open_manifest(request.folder + "/" + checkpoint_name(step)));
  LeaseOptions options;
  options.say = [&context](const std::string& line) { context.out << on_one_line(line) << '\n'; };
  if (!request.dry_run) lease.emplace(request.folder, random_token(), std::move(options));
  const Pruned done = request.dry_run ? pruned : prune_checkpoints(request.folder, rules);
  std::ostream& out = context.out;
  for (const std::int64_t step : done.locked) out << fmt::format("{} stays: a reader has locked it\n", checkpoint_name(step));
  for (const CheckpointEntry& entry : list_checkpoints(request.folder, [](const CheckpointEntry&, const Manifest&) {}))
    if (entry.parts.mark == kAsideMark)
      out << fmt::format("{} stays: it was set aside; to remove it: rm -r {}\n", entry.name,
                         on_one_line(for_shell(request.folder + "/" + entry.name)));
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

// ---- the command line

constexpr const char* kPathHelp =
    "a checkpoint's folder; DIR/1000 for DIR/step-00001000; or DIR, also a run's, for the newest in it";

void one_path(const Arguments& arguments, const CommandContext& context, CLI::App&& app, const char* what, const char* name,
              FunctionRef<void(const std::string&)> run, bool* as_json = nullptr) {
  std::string path;
  app.add_option(name, path, what)->required();
  if (as_json != nullptr) app.add_flag("--json", *as_json, "print JSON, an object a line");
  const auto step_of = [&](const std::string& word, const std::string&) {
    const bool is_step = !word.empty() && std::ranges::all_of(word, [](char c) { return c >= '0' && c <= '9'; });
    return is_step ? fmt::format("say {} for step {}", for_shell((std::filesystem::path(path) / word).string()), word) : "";
  };
  if (!parse_flags(app, arguments, context, {.instead = step_of})) return;
  run(path);
}

}  // namespace

void ckpt_ls_command(const Arguments& arguments, const CommandContext& context) {
  bool as_json = false;
  one_path(arguments, context,
           CLI::App("List the checkpoints of a folder: step, size, age, files, content. \"all there\" says that the manifest is "
                    "valid and all files have their sizes; trident ckpt verify reads them.",
                    "trident ckpt ls"),
           "folder of checkpoints, or a run's", "DIR", [&](const std::string& path) { ckpt_ls(path, as_json, context); }, &as_json);
}

void ckpt_show_command(const Arguments& arguments, const CommandContext& context) {
  bool as_json = false;
  one_path(arguments, context,
           CLI::App("Show what a checkpoint holds: the state of training, the layout that wrote it, every tensor with shape, "
                    "dtype and norm. Reads all weights.",
                    "trident ckpt show"),
           kPathHelp, "CHECKPOINT", [&](const std::string& path) { ckpt_show(path, as_json, context); }, &as_json);
}

void ckpt_verify_command(const Arguments& arguments, const CommandContext& context) {
  one_path(arguments, context,
           CLI::App("Read every block of a checkpoint, or of all in a folder, and compare it with its hash; check that its boxes "
                    "make up every tensor. What is wrong is listed; exit code 65 then.",
                    "trident ckpt verify"),
           "a checkpoint's folder; DIR/1000 for DIR/step-00001000; or DIR, also a run's, for all in it", "CHECKPOINT",
           [&](const std::string& path) { ckpt_verify(path, context); });
}

void ckpt_diff_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Compare two checkpoints bit by bit: tensors by name whatever layouts wrote them, masters where both have them, the "
      "optimizer's states, "
      "the state of training. Exit code 0: equal; 1: different, with the first differing element of each tensor.",
      "trident ckpt diff");
  std::string a, b;
  app.add_option("A", a, kPathHelp)->required();
  app.add_option("B", b, "likewise")->required();
  if (!parse_flags(app, arguments, context)) return;
  ckpt_diff(a, b, context);
}

void ckpt_prune_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Remove checkpoints as a run does after a save: all but the newest ones, those of every so many steps, and the one with the "
      "lowest validation loss where the run keeps that. Rules that are not given are those of the run that wrote the newest one. "
      "Damaged ones neither count nor go, nor do those that a reader has locked. First the newest one is read back; if it is not "
      "whole, or a run is writing there, nothing is removed.",
      "trident ckpt prune");
  PruneRequest request;
  app.add_option("DIR", request.folder, "folder of checkpoints, or a run's")->required();
  app.add_option("--keep-last", request.keep_last, "newest ones to keep, at least 1");
  app.add_option("--keep-every", request.keep_every, "also keep those of every so many steps; 0: none");
  app.add_flag("--dry-run", request.dry_run, "say what would be removed, and remove nothing");
  app.add_flag("--unread", request.unread, "do not read the newest one back first");
  if (!parse_flags(app, arguments, context)) return;
  if (request.keep_last && *request.keep_last < 1)
    throw ConfigError(fmt::format("trident ckpt prune: --keep-last {}: must be at least 1; the newest checkpoint always stays",
                                  *request.keep_last));
  if (request.keep_every && *request.keep_every < 0)
    throw ConfigError(fmt::format("trident ckpt prune: --keep-every {}: must be a number of steps, or 0 for none",
                                  *request.keep_every));
  ckpt_prune(request, context);
}

}  // namespace trident
