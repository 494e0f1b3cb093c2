#include "report/run_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <ostream>
#include <string_view>

#include "core/file_io.h"
#include "core/file_lock.h"
#include "core/function_ref.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "report/records.h"
#include "report/table.h"

namespace trident {
namespace {

constexpr std::int64_t kLongestLine = 1 << 16;   // bytes; longer lines are left out
constexpr std::int64_t kReadWhole = 1 << 20;     // bytes; larger logs are sampled
constexpr std::int64_t kLargestFile = 16 << 20;  // bytes; memory.json of thousands of ranks is larger
constexpr std::string_view kMetrics = "metrics.jsonl";

std::string text_at(const RandomAccessFile& file, std::int64_t offset, std::int64_t bytes) {
  return file.text(offset, std::min(bytes, file.size() - offset));
}

// The lines of a text that end in it.
std::vector<std::string_view> whole_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) lines.push_back(text.substr(at, end - at));
  return lines;
}

std::optional<JsonValue> record_from(std::string_view line, const std::string& path) {
  try {
    JsonValue record = parse_json(line, path, {.blame = ExitCode::kData});
    if (record.is_object()) return record;
  } catch (const DataError&) {
  }
  return std::nullopt;
}

std::string unreadable_text(std::string_view name, std::int64_t lines) {
  return fmt::format("{} line{} of {} cannot be read and {} left out", with_commas(lines), lines == 1 ? "" : "s", name,
                     lines == 1 ? "is" : "are");
}

class LineSampler {
 public:
  LineSampler(const std::string& path, std::size_t most) : file_(path), most_(most) {}

  std::vector<JsonValue> read() {
    file_.size() <= kReadWhole ? read_whole() : read_here_and_there();
    return std::move(records_);
  }
  bool left_out() const { return left_out_; }
  std::int64_t unreadable() const { return unreadable_; }  // of the lines that were looked at

 private:
  void add(std::string_view line) {
    std::optional<JsonValue> record = record_from(line, file_.path());
    if (record) records_.push_back(*std::move(record));
    else ++unreadable_;
  }

  void read_whole() {
    const std::string text = text_at(file_, 0, file_.size());
    const std::vector<std::string_view> lines = whole_lines(text);
    const std::size_t every = 1 + (lines.size() - (lines.empty() ? 0 : 1)) / most_;
    left_out_ = every > 1;
    for (std::size_t i = 0; i < lines.size(); ++i)
      if (i % every == 0 || i + 1 == lines.size()) add(lines[i]);
  }

  void read_here_and_there() {
    left_out_ = true;
    std::int64_t after = 0;  // where the last line that was taken ends
    for (std::size_t i = 0; i + 1 < most_; ++i) {
      const auto at =
          static_cast<std::int64_t>(static_cast<double>(file_.size()) * static_cast<double>(i) / static_cast<double>(most_));
      if (at < after) continue;
      for (std::int64_t bytes = 4096; bytes <= kLongestLine; bytes *= 4) {
        const std::string text = text_at(file_, at, bytes);
        const std::size_t begin = at == 0 ? 0 : text.find('\n') + 1, end = text.find('\n', begin);
        if ((at > 0 && begin == 0) || end == text.npos) continue;
        add(std::string_view(text).substr(begin, end - begin));
        after = at + static_cast<std::int64_t>(end);
        break;
      }
    }
    const std::int64_t tail = std::max(after + 1, file_.size() - kLongestLine);
    if (tail >= file_.size()) return;
    const std::string text = text_at(file_, tail, kLongestLine);
    if (const std::vector<std::string_view> lines = whole_lines(text); !lines.empty()) add(lines.back());
  }

  RandomAccessFile file_;
  std::size_t most_;
  std::vector<JsonValue> records_;
  bool left_out_ = false;
  std::int64_t unreadable_ = 0;
};

class FolderReader {
 public:
  explicit FolderReader(const std::string& path) { folder_.path = path; }

  RunFolder read(std::size_t most_lines) {
    // First: a run that ends meanwhile has its end in run.json, which counts.
    folder_.is_written = file_exists(path(kMetrics)) && has_writer(path(kMetrics));
    folder_.config = object("config.resolved.json");
    folder_.plan = object("plan.json");
    folder_.memory = object("memory.json");
    folder_.comparison = object("comparison.json");
    folder_.run = object("run.json");
    folder_.failure = object("failure.json");
    folder_.last_step = object("last_step.json");
    folder_.metrics = records(kMetrics, most_lines);
    folder_.timing = records("timing.jsonl", most_lines);
    folder_.evals = records("eval.jsonl", most_lines);
    folder_.samples = records("samples.jsonl", most_lines);
    return std::move(folder_);
  }

  // Null where the file is missing or cannot be read.
  JsonValue object(std::string_view name) {
    try {
      if (!has_file(name)) return {};
      JsonValue value = read_json_file(path(name), {.max_bytes = kLargestFile, .blame = ExitCode::kData});
      if (value.is_object()) return value;
      folder_.remarks.push_back(fmt::format("{} is left out: it is {}, not an object", name, describe(value.kind())));
    } catch (const Error& error) {
      folder_.remarks.push_back(fmt::format("{} is left out: {}", name, error.what()));
    }
    return {};
  }

 private:
  std::string path(std::string_view name) const { return fmt::format("{}/{}", folder_.path, name); }

  // Whether the file can be read; what lies there and is none is said.
  bool has_file(std::string_view name) {
    if (file_exists(path(name))) return true;
    if (is_there(path(name))) folder_.remarks.push_back(fmt::format("{} is left out: it is not a regular file", name));
    return false;
  }

  std::vector<JsonValue> records(std::string_view name, std::size_t most) {
    try {
      if (!has_file(name)) return {};
      LineSampler lines(path(name), most);
      std::vector<JsonValue> read = lines.read();
      if (lines.left_out())
        folder_.remarks.push_back(fmt::format("of {} {} evenly spaced lines are shown", name, with_commas(std::ssize(read))));
      if (lines.unreadable() > 0) folder_.remarks.push_back(unreadable_text(name, lines.unreadable()));
      return read;
    } catch (const Error& error) {
      folder_.remarks.push_back(fmt::format("{} is left out: {}", name, error.what()));
      return {};
    }
  }

  RunFolder folder_;
};

bool is_run(const std::string& path) {
  return file_exists(path + "/config.resolved.json") || file_exists(fmt::format("{}/{}", path, kMetrics));
}

// A path may be any, and a run of any name: what is no run's folder is refused.
void check_is_run(const std::string& path) {
  check_may_read(path);
  if (is_run(path)) return;
  if (!is_there(path)) throw DataError(fmt::format("{}: no such folder; give the run.dir of a run, or a folder of several", path));
  const std::string above = std::filesystem::path(path + "/.").lexically_normal().parent_path().parent_path().string();
  throw DataError(fmt::format(
      "{}: is no run's folder: it has neither config.resolved.json nor metrics.jsonl; give {}", path,
      !above.empty() && is_run(above) ? fmt::format("the folder that it is in, {}", above)
                                      : "the run.dir of a run, or a folder of several"));
}

std::string name_of(const std::string& path) {
  return std::filesystem::absolute(path + "/.").lexically_normal().parent_path().filename().string();
}

// Runs of one name are told apart by their paths.
std::vector<std::string> names_of(const std::vector<std::string>& paths) {
  std::map<std::string, int> runs;
  for (const std::string& path : paths) ++runs[name_of(path)];
  std::vector<std::string> names;
  for (const std::string& path : paths) names.push_back(runs[name_of(path)] > 1 ? path : name_of(path));
  return names;
}

// Every line that ends in the file, in order, a block of the file at a time; of one that is too long nothing.
void for_each_line(const RandomAccessFile& file, FunctionRef<void(std::string_view)> take) {
  std::string text;  // from the beginning of a line on
  bool is_too_long = false;
  for (std::int64_t offset = 0; offset < file.size();) {
    const std::size_t old = text.size();
    text += text_at(file, offset, kReadWhole);
    offset += kReadWhole;
    std::size_t begin = 0;
    for (std::size_t end = text.find('\n', old); end != text.npos; end = text.find('\n', begin)) {
      take(is_too_long ? std::string_view() : std::string_view(text).substr(begin, end - begin));
      is_too_long = false;
      begin = end + 1;
    }
    text.erase(0, begin);
    if (std::ssize(text) <= kReadWhole) continue;
    is_too_long = true;
    text.clear();
  }
}

// The evaluations of a run by their steps, without what its metrics say of those.
std::map<std::int64_t, JsonValue> evaluations_in(const std::string& path, std::vector<std::string>& remarks) {
  std::map<std::int64_t, JsonValue> by_step;
  if (!file_exists(path)) return by_step;
  std::int64_t unreadable = 0;
  for_each_line(RandomAccessFile(path), [&](std::string_view line) {
    std::optional<JsonValue> record = record_from(line, path);
    const std::optional<std::int64_t> step = record ? record->integer_at("step") : std::nullopt;
    if (step) by_step.insert_or_assign(*step, *std::move(record));
    else ++unreadable;
  });
  if (unreadable > 0) remarks.push_back(unreadable_text(path, unreadable));
  return by_step;
}

}  // namespace

RunFolder read_run_folder(const std::string& path, std::size_t most_lines) {
  check_is_run(path);
  RunFolder folder = FolderReader(path).read(most_lines);
  folder.name = name_of(path);
  return folder;
}

std::vector<double> start_times(const JsonValue& run) {
  std::vector<double> times;
  for (const JsonValue& start : run.items_at("starts"))
    if (const double time = number(start, "time"); std::isfinite(time)) times.push_back(time);
  return times;
}

std::int64_t start_of(const JsonValue& line, const std::vector<double>& times) {
  return std::ranges::count_if(times, [written = number(line, "time")](double began) { return began <= written; });
}

std::vector<std::string> runs_at(const std::vector<std::string>& paths) {
  std::vector<std::string> runs;
  for (const std::string& path : paths) {
    const std::size_t before = runs.size();
    if (!is_run(path) && folder_exists(path)) {
      for (const std::string& name : names_in(path))
        if (is_run(fmt::format("{}/{}", path, name))) runs.push_back(fmt::format("{}/{}", path, name));
      std::sort(runs.begin() + static_cast<std::ptrdiff_t>(before), runs.end());
    }
    if (runs.size() == before) runs.push_back(path);
  }
  return runs;
}

std::vector<RunFolder> read_run_folders(const std::vector<std::string>& paths) {
  const std::vector<std::string> names = names_of(paths);
  std::vector<RunFolder> runs;
  for (std::size_t i = 0; i < paths.size(); ++i)
    runs.emplace_back(read_run_folder(paths[i], kDrawnLines / paths.size() + 2)).name = names[i];
  return runs;
}

std::vector<std::string> write_metrics_csv(const std::vector<std::string>& paths, std::ostream& out) {
  const std::vector<std::string> names = names_of(paths);
  std::vector<std::optional<RandomAccessFile>> files(paths.size());
  std::vector<std::map<std::int64_t, JsonValue>> evaluations(paths.size());
  std::vector<std::vector<double>> starts(paths.size());
  std::vector<std::string> remarks;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    check_is_run(paths[i]);
    const std::string path = fmt::format("{}/{}", paths[i], kMetrics);
    if (file_exists(path)) files[i].emplace(path);
    else remarks.push_back(fmt::format("{}: {}", path, is_there(path) ? "is not a regular file" : "is not there"));
    evaluations[i] = evaluations_in(paths[i] + "/eval.jsonl", remarks);
    starts[i] = start_times(FolderReader(paths[i]).object("run.json"));
  }
  CsvColumns columns;
  columns.note(JsonValue::Object{{"run", ""}});
  const auto each = [&](std::size_t i, FunctionRef<void(std::optional<JsonValue> record)> take) {
    if (files[i]) for_each_line(*files[i], [&](std::string_view line) { take(record_from(line, files[i]->path())); });
  };
  std::vector<std::int64_t> unreadable(paths.size());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    each(i, [&](const std::optional<JsonValue>& record) {
      if (record) columns.note(*record);
      else ++unreadable[i];
    });
    for (const auto& [step, record] : evaluations[i]) columns.note(record);
  }
  // The number of the start, by which elapsed_s is read: it begins anew at each.
  if (std::ranges::any_of(starts, [](const auto& times) { return !times.empty(); }))
    columns.note(JsonValue::Object{{"start", 0}});
  out << on_lines(columns.header());
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto write = [&](JsonValue row) {
      row.set("run", names[i]);  // whatever a line of another program says of it
      if (const std::int64_t start = start_of(row, starts[i]); start > 0) row.set("start", start);
      out << on_lines(columns.line(row));
    };
    std::map<std::int64_t, JsonValue>& left = evaluations[i];
    each(i, [&](std::optional<JsonValue> record) {
      if (!record) return;
      const std::int64_t at = record->integer_at("step").value_or(-1);
      for (; !left.empty() && left.begin()->first < at; left.erase(left.begin())) write(left.begin()->second);
      if (const auto evaluation = left.extract(at))
        for (const JsonMember& member : evaluation.mapped().members())
          if (record->find(member.key) == nullptr) record->set(member.key, member.value);
      write(*std::move(record));
    });
    for (const auto& [step, record] : left) write(record);
  }
  for (std::size_t i = 0; i < paths.size(); ++i)
    if (unreadable[i] > 0) remarks.push_back(unreadable_text(files[i]->path(), unreadable[i]));
  return remarks;
}

}  // namespace trident
