#include "report/run_folder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

#include "core/file_io.h"
#include "core/file_lock.h"
#include "core/number_text.h"

namespace trident {
namespace {

constexpr std::int64_t kLongestLine = 1 << 16;   // bytes; longer lines are left out
constexpr std::int64_t kReadWhole = 1 << 20;     // bytes; larger logs are sampled
constexpr std::int64_t kLargestFile = 16 << 20;  // bytes; memory.json of thousands of ranks is larger

std::string text_at(const RandomAccessFile& file, std::int64_t offset, std::int64_t bytes) {
  std::string text(static_cast<std::size_t>(std::min(bytes, file.size() - offset)), '\0');
  file.read(offset, std::as_writable_bytes(std::span(text)));
  return text;
}

// The lines of a text that end in it.
std::vector<std::string_view> whole_lines(std::string_view text) {
  std::vector<std::string_view> lines;
  for (std::size_t at = 0, end; (end = text.find('\n', at)) != text.npos; at = end + 1) lines.push_back(text.substr(at, end - at));
  return lines;
}

class LineSampler {
 public:
  LineSampler(const std::string& path, std::size_t most) : file_(path), most_(most) {}

  std::vector<JsonValue> read() {
    file_.size() <= kReadWhole || most_ == kEveryLine ? read_whole() : read_here_and_there();
    return std::move(records_);
  }
  bool left_out() const { return left_out_; }

 private:
  // A line that cannot be read, such as one that is being written, is left out.
  void add(std::string_view line) {
    try {
      records_.push_back(parse_json(line, file_.path(), {.blame = ExitCode::kData}));
      if (!records_.back().is_object()) records_.pop_back();
    } catch (const Error&) {
    }
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
};

class FolderReader {
 public:
  explicit FolderReader(const std::string& path) { folder_.path = path; }

  RunFolder read(std::size_t most_lines) {
    // First: a run that ends meanwhile has its end in run.json, which counts.
    folder_.is_written = file_exists(path("metrics.jsonl")) && has_writer(path("metrics.jsonl"));
    folder_.config = object("config.resolved.json");
    folder_.plan = object("plan.json");
    folder_.memory = object("memory.json");
    folder_.comparison = object("comparison.json");
    folder_.run = object("run.json");
    folder_.failure = object("failure.json");
    folder_.last_step = object("last_step.json");
    folder_.metrics = records("metrics.jsonl", most_lines);
    folder_.timing = records("timing.jsonl", most_lines);
    folder_.evals = records("eval.jsonl", most_lines);
    folder_.samples = records("samples.jsonl", 20);
    return std::move(folder_);
  }

 private:
  std::string path(std::string_view name) const { return fmt::format("{}/{}", folder_.path, name); }

  JsonValue object(std::string_view name) {
    if (!file_exists(path(name))) return {};
    try {
      JsonValue value = read_json_file(path(name), {.max_bytes = kLargestFile, .blame = ExitCode::kData});
      if (value.is_object()) return value;
      folder_.remarks.push_back(fmt::format("{} is left out: it is {}, not an object", name, describe(value.kind())));
    } catch (const Error& error) {
      folder_.remarks.push_back(fmt::format("{} is left out: {}", name, error.what()));
    }
    return {};
  }

  std::vector<JsonValue> records(std::string_view name, std::size_t most) {
    if (!file_exists(path(name))) return {};
    try {
      LineSampler lines(path(name), most);
      std::vector<JsonValue> read = lines.read();
      if (lines.left_out())
        folder_.remarks.push_back(fmt::format("of {} {} evenly spaced lines are shown", name, with_commas(std::ssize(read))));
      return read;
    } catch (const Error& error) {
      folder_.remarks.push_back(fmt::format("{} is left out: {}", name, error.what()));
      return {};
    }
  }

  RunFolder folder_;
};

}  // namespace

RunFolder read_run_folder(const std::string& path, std::size_t most_lines) {
  check_may_read(path);
  if (!file_exists(path + "/config.resolved.json") && !file_exists(path + "/metrics.jsonl"))
    throw DataError(fmt::format(
        "{}: is no run's folder: it has neither config.resolved.json nor metrics.jsonl; give the run.dir of a run", path));
  RunFolder folder = FolderReader(path).read(most_lines);
  folder.name = std::filesystem::absolute(path + "/.").lexically_normal().parent_path().filename().string();
  return folder;
}

}  // namespace trident
