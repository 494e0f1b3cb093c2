// The texts of trident ckpt.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <map>
#include <ostream>

#include "app/ckpt_command.h"
#include "app/help_text.h"
#include "app/progress_line.h"
#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_path.h"
#include "checkpoint/commit.h"
#include "checkpoint/save_plan.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/json_reader.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "report/table.h"

namespace trident {
namespace {

// The bytes below a folder, as far as they can be seen; links are not followed.
std::int64_t bytes_below(const std::string& folder) {
  std::int64_t bytes = 0;
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code gone;
    if (at->is_regular_file(gone) && !at->is_symlink(gone)) bytes += static_cast<std::int64_t>(at->file_size(gone));
  }
  return bytes;
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
  return entry.parts.mark.empty() ? fmt::format("{}", entry.parts.step) : entry.name.substr(5);
}

// The cells are step, size, age, health and content.
std::vector<std::string> row_of_valid(const std::string& folder, const CheckpointEntry& entry, const Manifest& manifest) {
  std::string health, content = content_text(manifest) + base_text(manifest);
  try {
    check_files(folder + "/" + entry.name, manifest);
    health = entry.parts.mark == kAsideMark ? "set aside" : entry.parts.mark == kTemporaryMark ? "not committed" : "ok";
  } catch (const NotPermitted& error) {
    health = "no permission", content = error.what();
  } catch (const Error& error) {
    health = "damaged", content = error.what();
  }
  return {step_text(entry), bytes_text(total_bytes(manifest)), age_text(manifest.written_unix), health, on_one_line(content)};
}

std::vector<std::string> row_of_other(const std::string& folder, const CheckpointEntry& entry) {
  return {step_text(entry), bytes_text(bytes_below(folder + "/" + entry.name)), "-",
          entry.health == CheckpointHealth::kDamaged        ? "damaged"
          : entry.health == CheckpointHealth::kNotPermitted ? "no permission"
                                                            : "incomplete",
          on_one_line(entry.why)};
}

void print_state(const Manifest& manifest, std::ostream& out) {
  const TrainingState& state = manifest.state;
  const auto line = [&](std::string_view name, const std::string& value) {
    out << fmt::format("  {:<16} {}\n", name, on_one_line(value));
  };
  line("updates", fmt::format("{} of {} batches, {} skipped ({} in a row)", state.updates, state.batches, state.skipped,
                              state.skipped_in_a_row));
  line("samples", fmt::format("{}", state.samples));
  line("tokens", fmt::format("{}", state.tokens));
  if (manifest.weights == DType::kF16)
    line("loss scale", fmt::format("{}, {} clean steps, {} overflows left", state.loss_scale, state.loss_scale_clean_steps,
                                   state.loss_scale_overflows_left));
  const auto list = [](const std::vector<std::int64_t>& values) {
    return to_json_text(JsonValue::Array(values.begin(), values.end()));
  };
  if (state.blend_now.size() > 1)
    line("blend", fmt::format("{} taken, {} at position {}", list(state.blend_now), list(state.blend_taken), state.blend_start));
  if (state.best_valid_loss)
    line("best valid loss", fmt::format("{:.6g} at step {}", *state.best_valid_loss, state.best_valid_step));
  if (state.last_eval >= 0) line("last evaluation", fmt::format("at step {}", state.last_eval));
}

// "program trident, host n1, ranks 4, ..."
std::string facts_text(const JsonValue& facts) {
  std::string text;
  if (!facts.is_object()) return facts.is_string() ? facts.as_string() : to_json_text(facts);
  for (const auto& [name, value] : facts.members())
    text += fmt::format("{}{}{}", text.empty() ? "" : ", ", value.is_object() ? "" : name + ' ', facts_text(value));
  return text;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  return to_json_text(JsonValue::Array(shape.begin(), shape.end()));
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
  if (!note.empty()) context.out << "warning: " << on_one_line(note) << '\n';
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
  const double start = monotonic_seconds();
  ProgressLine line(context, "ckpt verify", start);
  const std::vector<std::string> problems = check_checkpoint(
      folder, manifest,
      [&](std::int64_t done, std::int64_t all) {
        const double now = monotonic_seconds();
        line.update(done, all, fmt::format("{}/s", bytes_text(static_cast<double>(done) / (now - start))), now);
      },
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

}  // namespace

void ckpt_ls(const std::string& path, const CommandContext& context) {
  const std::string folder = checkpoint_path(path);
  std::map<std::string, std::vector<std::string>> valid;
  const std::vector<CheckpointEntry> entries =
      list_checkpoints(folder, [&](const CheckpointEntry& entry, const Manifest& manifest) {
        valid.emplace(entry.name, row_of_valid(folder, entry, manifest));
      });
  if (entries.empty()) refuse_other_folder(folder);
  if (entries.empty())
    throw DataError(fmt::format("{}: has no checkpoints; name the folder that checkpoint.dir names, or that of a run", folder));
  Table table{"", {{"step", true}, {"size"}, {"age"}, {"health", true}, {"content", true}}};
  for (const CheckpointEntry& entry : entries) {
    const auto found = valid.find(entry.name);
    table.rows.push_back(found != valid.end() ? found->second : row_of_other(folder, entry));
  }
  context.out << to_text(table);
}

void ckpt_show(const std::string& path, const CommandContext& context) {
  StoredTensors checkpoint(find_checkpoint(path));
  warn(checkpoint.lock_note(), context);
  const Manifest& manifest = checkpoint.manifest();
  std::ostream& out = context.out;
  const auto line = [&](std::string_view name, const std::string& value) {
    out << fmt::format("  {:<16} {}\n", name, on_one_line(value));
  };
  out << on_one_line(checkpoint.folder()) << '\n';
  print_state(manifest, out);
  line("content", content_text(manifest) + base_text(manifest));
  line("files", fmt::format("{}, {}", manifest.files.size(), bytes_text(total_bytes(manifest))));
  line("written", utc_text(manifest.written_unix));
  line("written by", facts_text(manifest.writer));
  std::size_t names = 0, shapes = 0;
  for (const ManifestTensor& tensor : manifest.tensors) {
    names = std::max(names, on_one_line(tensor.name).size());
    shapes = std::max(shapes, shape_text(tensor.shape).size());
  }
  out << fmt::format("{}: shape, dtype, norm\n", counted(std::ssize(manifest.tensors), "tensor"));
  for (std::size_t t = 0; t < manifest.tensors.size(); ++t) {
    const ManifestTensor& tensor = manifest.tensors[t];
    const std::string values =
        tensor.base ? "in the base" : fmt::format("{}  {:.6g}", to_string(manifest.weights), weight_norm(checkpoint, t));
    out << fmt::format("  {:<{}}  {:<{}}  {}\n", on_one_line(tensor.name), names, shape_text(tensor.shape), shapes, values);
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

}  // namespace trident
