#include "train/run/run_files.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <tuple>
#include <utility>

#include "core/clock.h"
#include "core/file_io.h"
#include "core/json_by_name.h"
#include "core/printable.h"
#include "model/config/model_stats.h"
#include "train/config/stored_config.h"
#include "train/run/between_steps.h"
#include "train/run/run_manifest.h"

namespace trident {
namespace {

constexpr std::size_t kMostStarts = 1000;

// The starts of run.json; none where it is not there or is not as runs write it.
JsonValue::Array starts_in(const std::string& folder) {
  const std::string path = folder + "/run.json";
  try {
    if (!file_exists(path)) return {};
    return read_json_file(path, {.max_bytes = 64 << 20, .blame = ExitCode::kData}).items_at("starts");
  } catch (const DataError&) {
    return {};
  }
}

JsonValue texts(const std::vector<std::string>& values) {
  JsonValue::Array items;
  for (const std::string& value : values) items.emplace_back(on_one_line(value));
  return JsonValue(std::move(items));
}

void write_starts(const std::string& folder, const RunPlan& plan, JsonValue::Array starts) {
  const JsonValue run = JsonValue::Object{{"id", plan.config.run.id}, {"starts", std::move(starts)}};
  write_file(folder + "/run.json", to_json_text(run, 2) + "\n");
}

std::vector<std::string> command_of_process() {
  std::ifstream file("/proc/self/cmdline");
  std::vector<std::string> words;
  for (std::string word; std::getline(file, word, '\0');) words.push_back(word);
  return words;
}

}  // namespace

std::string resumed_from_in(const std::string& folder) {
  const JsonValue::Array starts = starts_in(folder);
  return starts.empty() ? "" : starts.back().text_at("resumed_from");
}

std::int64_t write_run_start(const std::string& folder, const RunPlan& plan, std::int64_t step,
                             const std::string& resumed_from, const std::vector<std::string>& hosts) {
  const std::int64_t start = std::llround(1e3 * unix_seconds());
  std::error_code ignored;
  JsonValue::Array starts = starts_in(folder);
  if (starts.size() >= kMostStarts) starts.erase(starts.begin(), starts.end() - (kMostStarts - 1));
  std::vector<std::string> nodes;
  for (const std::string& host : hosts)
    if (std::ranges::find(nodes, host) == nodes.end()) nodes.push_back(host);
  std::vector<std::string> valid;
  for (const WeightedPath& file : plan.config.data.valid) valid.push_back(file.path);
  if (valid.empty() && plan.config.data.split) valid.push_back("data.split = " + *plan.config.data.split);
  JsonValue from;
  if (!resumed_from.empty()) from = std::filesystem::absolute(resumed_from, ignored).string();
  starts.push_back(JsonValue::Object{{"time", 1e-3 * static_cast<double>(start)},
                                     {"step", step},
                                     {"resumed_from", std::move(from)},
                                     {"ranks", plan.world_size()},
                                     {"layout", layout_json(plan)},
                                     {"valid", texts(valid)},
                                     {"given", texts(plan.config.given)},
                                     {"hosts", texts(nodes)},
                                     {"version", TRIDENT_VERSION},
                                     {"command", texts(command_of_process())},
                                     {"working_dir", on_one_line(std::filesystem::current_path(ignored).string())}});
  write_starts(folder, plan, std::move(starts));
  return start;
}

namespace {

// The message of failure.json, where it came later than the start began; else "".
std::string failure_since(const JsonValue& start, const std::string& folder) {
  const std::string path = folder + "/failure.json";
  try {
    if (!file_exists(path)) return "";
    const JsonValue failure = read_json_file(path, {.max_bytes = 1 << 20, .blame = ExitCode::kData});
    const std::optional<double> began = start.number_at("time"), time = failure.number_at("unix_time");
    return began && time && *time >= *began ? failure.text_at("message") : "";
  } catch (const Error&) {
    return "";
  }
}

}  // namespace

std::string cause_of(const std::string& message) { return message.substr(0, message.find("; ")); }

std::string bad_end(const std::string& folder) {
  const JsonValue::Array starts = starts_in(folder);
  if (starts.empty()) return "";
  const JsonValue* const ended = starts.back().find("ended");
  if (ended == nullptr) {
    // A launcher that ends a failed job may end it between failure.json, which comes first, and the end in run.json.
    const std::string failure = failure_since(starts.back(), folder);
    return failure.empty() ? "has no end on record: it was killed or cut off" : "failed: " + on_one_line(cause_of(failure));
  }
  const std::int64_t code = ended->integer_at("exit_code").value_or(0);
  if (code == 0 || code == exit_status(ExitCode::kRequeue) || !ended->get("why").is_string()) return "";
  return fmt::format("ended with {}: {}", code, on_one_line(cause_of(ended->text_at("why"))));
}

void write_run_end(const std::string& folder, const RunPlan& plan, std::int64_t start, std::int64_t step, int exit_code,
                   std::string_view why) {
  JsonValue::Array starts = starts_in(folder);
  if (starts.empty() || starts.back().find("ended") != nullptr) return;
  const std::optional<double> time = starts.back().number_at("time");
  if (!time || std::llround(1e3 * *time) != start) return;
  starts.back().set("ended", JsonValue::Object{{"time", unix_seconds()}, {"step", step}, {"exit_code", exit_code}, {"why", why}});
  write_starts(folder, plan, std::move(starts));
}

JsonValue bytes_by_use(const ArenaPlan& memory) {
  JsonValue uses;
  for (const MemoryUse use : kMemoryUses) uses.set(to_string(use), memory.total_bytes(use));
  return uses;
}

JsonValue allocations_of(const ArenaPlan& memory) {
  JsonValue::Array allocations;
  for (const ArenaPlan::Entry& entry : memory.entries())
    allocations.emplace_back(
        JsonValue::Object{{"name", entry.name}, {"use", to_string(entry.use)}, {"bytes", entry.slot.bytes}});
  return JsonValue(std::move(allocations));
}

void make_run_folder(const std::string& folder) {
  try {
    create_lasting_folder(folder);
  } catch (const StorageError& error) {
    throw StorageError(fmt::format("run.dir = {}; choose a folder that may be written", error.what()), error.system_error());
  }
}

namespace {

// Null where there is none that can be read.
JsonValue first_line_of(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  try {
    return parse_json(line, path, {.blame = ExitCode::kData});
  } catch (const DataError&) {
    return {};
  }
}

}  // namespace

std::optional<double> first_logged_loss(const std::string& folder) {
  const JsonValue first = first_line_of(folder + "/metrics.jsonl");
  return first.get("step") == JsonValue(1) ? first.number_at("loss") : std::nullopt;
}

std::optional<EvalMetrics> first_logged_evaluation(const TrainConfig& now, const TrainConfig& then) {
  const auto evaluated = [](const TrainConfig& c) {
    const bool is_part = c.data.valid.empty();  // of the training data
    return std::tuple(is_part ? c.data.train : c.data.valid, is_part ? c.data.split : std::nullopt, c.eval.steps, c.batch.global,
                      c.batch.sequence);
  };
  if (evaluated(now) != evaluated(then)) return std::nullopt;
  return eval_metrics_from(first_line_of(now.run.dir + "/eval.jsonl"));
}

void sync_run_files(const std::string& folder) {
  for (const char* name : {"metrics.jsonl", "timing.jsonl", "eval.jsonl", "samples.jsonl", "run.log"}) {
    const std::string path = folder + "/" + name;
    if (file_exists(path)) sync_file(path);
  }
  std::error_code ignored;  // a run without TensorBoard has no such files
  for (std::filesystem::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored)) {
    const std::string name = at->path().filename();
    if (name.starts_with("events.out.tfevents.") && file_exists(at->path())) sync_file(at->path());
  }
  if (folder_exists(folder)) sync_folder_of(folder + "/metrics.jsonl");
}

void write_config_file(const std::string& folder, const TrainConfig& config) {
  write_file(folder + "/config.resolved.json", to_json_text(to_stored(config), 2) + "\n");
}

void write_memory_file(const std::string& folder, ParallelContext& context, const ArenaPlan& memory, std::int64_t staging_bytes) {
  const GridCoordinates at = context.coordinates();
  JsonValue mine;
  mine.set("rank", context.rank());
  mine.set("dp", at.data);
  mine.set("pp", at.pipeline);
  mine.set("tp", at.tensor);
  mine.set("bytes", memory.total_bytes());
  mine.set("by_use", bytes_by_use(memory));
  if (staging_bytes > 0) mine.set("checkpoint_staging", staging_bytes);
  if (at.data == 0 && at.tensor == 0 && at.context == 0) mine.set("allocations", allocations_of(memory));
  const std::string text = to_json_text(mine);

  const std::vector<std::string> texts = gather_texts(context.world(), context.host_stream(), text);
  if (context.rank() != 0 || folder.empty()) return;
  AtomicFile file(folder + "/memory.json");
  for (std::size_t rank = 0; rank < texts.size(); ++rank) {
    file.append(rank == 0 ? "{\"ranks\":[\n" : ",\n");
    file.append(texts[rank]);
  }
  file.append("\n]}\n");
  file.commit();
}

void write_plan_file(const std::string& folder, const RunPlan& plan, const ArenaPlan& memory,
                     const std::array<double, kNumAxes>& bytes_sent, const JsonValue& step) {
  JsonValue out;
  out.set("world_size", plan.world_size());
  out.set("parameters", num_parameters(plan.model));
  out.set("compute", to_string(plan.compute));
  out.set("micro_batches", plan.num_micro_batches);
  out.set("zero", to_string(plan.zero.preset));
  out.set("param_gather", to_string(plan.zero.param_gather));
  out.set("grad_sync_every", plan.zero.grad_sync_every);
  out.set("units_of_stage", plan.step_spec.units_of_stage);
  out.set("bubble_over_ideal", plan.predicted_bubble);
  out.set("step_comm_bytes", json_by_name<Axis>(bytes_sent));
  if (!step.is_null()) out.set("predicted_step", step);
  out.set("arena_bytes_rank0", memory.total_bytes());
  out.set("allocations_rank0", allocations_of(memory));
  write_file(folder + "/plan.json", to_json_text(out, 2) + "\n");
}

}  // namespace trident
