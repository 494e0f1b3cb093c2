#include "planner/study/study_table.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/number_text.h"
#include "planner/study/study_keys.h"

namespace trident {
namespace {

bool is_gpus(const StudySpec& spec, std::size_t key) { return spec.varied[key].key == kGpusKey; }

struct Column {
  std::string title;
  std::vector<std::string> cells;  // by row
  bool left = false;
};

class Table {
 public:
  explicit Table(const StudyResult& result) : result_(result) {
    for (const StudyRow& row : result.rows) {
      any_ = any_ || row.possible();
      measured_ = measured_ || row.measured.has_value();
      efficiency_ = efficiency_ || row.efficiency > 0;
      first_ = first_ || (row.possible() && row.of_first != 1);
      sends_ = sends_ || std::any_of(row.bytes_sent.begin(), row.bytes_sent.end(), [](double bytes) { return bytes > 0; });
      mfu_ = mfu_ || row.mfu > 0;
    }
    names();
    if (any_) numbers();
  }

  std::string text() const {
    std::string text;
    std::vector<std::size_t> widths;
    for (const Column& column : columns_) {
      std::size_t width = column.title.size();
      for (std::size_t i = 0; i < column.cells.size(); ++i)
        if (result_.rows[i].possible() || &column < &columns_[names_]) width = std::max(width, column.cells[i].size());
      widths.push_back(width);
    }
    const auto put = [&](std::size_t column, const std::string& cell) {
      const std::string fill(widths[column] - std::min(widths[column], cell.size()), ' ');
      if (column > 0) text += "  ";
      text += columns_[column].left ? cell + fill : fill + cell;
    };
    for (std::size_t c = 0; c < columns_.size(); ++c) put(c, columns_[c].title);
    end_line(text);
    for (std::size_t row = 0; row < result_.rows.size(); ++row) {
      const bool possible = result_.rows[row].possible();
      for (std::size_t c = 0; c < (possible ? columns_.size() : names_); ++c) put(c, columns_[c].cells[row]);
      if (const std::string remark = remark_of(result_.rows[row]); !remark.empty()) text += "  " + remark;
      end_line(text);
    }
    return text;
  }

 private:
  static void end_line(std::string& text) {
    while (text.ends_with(' ')) text.pop_back();
    text += '\n';
  }

  static std::string remark_of(const StudyRow& row) {
    if (!row.possible()) return "cannot be: " + row.reason;
    const std::string not_run = row.not_run.empty() ? "" : fmt::format("not run: {}", row.not_run);
    if (row.measured && row.measured->worked) return disturbance_text(*row.measured);
    if (row.fits) return not_run;
    return not_run.empty() ? "does not fit" : fmt::format("does not fit; {}", not_run);
  }

  template <class Cell>
  void add(std::string title, Cell cell, bool left = false) {
    Column column{std::move(title), {}, left};
    for (const StudyRow& row : result_.rows) column.cells.push_back(cell(row));
    columns_.push_back(std::move(column));
  }

  void names() {
    const StudySpec& spec = result_.spec;
    if (spec.arms.size() > 1 || !spec.arms.front().name.empty())
      add("", [&](const StudyRow& row) { return spec.arms[row.point.arm].name; }, true);
    for (std::size_t i = 0; i < spec.varied.size(); ++i) {
      if (is_gpus(spec, i)) continue;
      add(std::string(short_key(spec.varied[i].key)),
          [i](const StudyRow& row) { return row.point.values[i]; }, true);
    }
    add(result_.counted_as + "s", [](const StudyRow& row) {
      const std::int64_t gpus = row.possible() ? row.gpus : row.point.gpus;
      return gpus > 0 ? fmt::format("{}", gpus) : std::string("-");
    });
    names_ = columns_.size();
  }

  void numbers() {
    add("replicas", [](const StudyRow& row) { return fmt::format("{}", row.replicas); });
    add("micro-batches", [](const StudyRow& row) { return fmt::format("{}", row.micro_batches); });
    add("tokens/s", [](const StudyRow& row) { return fmt::format("{:.0f}", row.possible() ? row.tokens_per_second() : 0); });
    add("a " + result_.counted_as,
        [](const StudyRow& row) { return fmt::format("{:.0f}", row.possible() ? row.tokens_per_gpu() : 0); });
    add("step s", [](const StudyRow& row) { return fmt::format("{:.4g}", row.seconds); });
    if (measured_) {
      add("measured", [](const StudyRow& row) { return row.measured ? fmt::format("{:.4g}", row.measured->seconds) : ""; });
      add("of predicted", [](const StudyRow& row) {
        return row.measured ? fmt::format("{:.2f}", row.measured->seconds / row.seconds) : "";
      });
    }
    for (std::size_t part = 0; part < kNumTimeParts; ++part) {
      const bool used = std::any_of(result_.rows.begin(), result_.rows.end(), [part](const StudyRow& row) {
        return row.possible() && row.parts.seconds[part] > 5e-4 * row.seconds;
      });
      if (used)
        add(std::string(to_string(static_cast<TimePart>(part))),
            [part](const StudyRow& row) {  // rounding of other parts is none of this one
              return fmt::format("{:.3g}", row.parts.seconds[part] > 1e-9 * row.seconds ? row.parts.seconds[part] : 0);
            });
    }
    if (mfu_) add("MFU %", [](const StudyRow& row) { return percent_digits(row.mfu); });
    if (sends_) add("GB sent", [](const StudyRow& row) {
      double sent = 0;
      for (const double bytes : row.bytes_sent) sent += bytes;
      return fmt::format("{:.4g}", gigabytes(sent));
    });
    add("GB held", [](const StudyRow& row) { return fmt::format("{:.4g}", gigabytes(row.memory_bytes)); });
    add("of", [](const StudyRow& row) {
      return row.memory_there > 0 ? fmt::format("{:.4g}", gigabytes(row.memory_there)) : "?";
    });
    if (efficiency_) add("efficiency", [](const StudyRow& row) {
      return row.efficiency > 0 ? fmt::format("{:.3f}", row.efficiency) : std::string("-");
    });
    if (first_) add("of first", [](const StudyRow& row) { return fmt::format("{:.3f}", row.of_first); });
  }

  const StudyResult& result_;
  std::vector<Column> columns_;
  std::size_t names_ = 0;  // columns that say which row it is
  bool any_ = false, measured_ = false, efficiency_ = false, first_ = false, sends_ = false, mfu_ = false;
};

JsonValue row_json(const StudySpec& spec, const StudyRow& row) {
  JsonValue out, settings{JsonValue::Object{}};
  out.set("arm", spec.arms[row.point.arm].name);
  for (std::size_t i = 0; i < spec.varied.size(); ++i)
    if (!is_gpus(spec, i)) settings.set(spec.varied[i].key, row.point.values[i]);
  out.set("settings", std::move(settings));
  const std::int64_t gpus = row.possible() ? row.gpus : row.point.gpus;
  out.set("gpus", gpus > 0 ? JsonValue(gpus) : JsonValue());
  out.set("possible", row.possible());
  if (!row.possible()) {
    out.set("reason", row.reason);
    return out;
  }
  out.set("replicas", row.replicas);
  out.set("micro_batches", row.micro_batches);
  out.set("tokens_per_step", row.tokens);
  out.set("step_s", row.seconds);
  JsonValue parts, sent;
  for (std::size_t part = 0; part < kNumTimeParts; ++part)
    parts.set(to_string(static_cast<TimePart>(part)), row.parts.seconds[part]);
  out.set("parts_s", std::move(parts));
  out.set("tokens_per_s", row.tokens_per_second());
  out.set("tokens_per_s_per_gpu", row.tokens_per_gpu());
  out.set("mfu", row.mfu > 0 ? JsonValue(row.mfu) : JsonValue());
  out.set("bubble_over_ideal", row.bubble);
  out.set("memory_bytes", row.memory_bytes);
  out.set("optimizer_bytes", row.optimizer_bytes);
  out.set("memory_there_bytes", row.memory_there > 0 ? JsonValue(row.memory_there) : JsonValue());
  out.set("fits", row.fits);
  for (std::size_t axis = 0; axis < kNumAxes; ++axis) sent.set(to_string(static_cast<Axis>(axis)), row.bytes_sent[axis]);
  out.set("bytes_sent", std::move(sent));
  out.set("gathers", row.gathers);
  out.set("reductions", row.reductions);
  out.set("efficiency", row.efficiency > 0 ? JsonValue(row.efficiency) : JsonValue());
  out.set("of_first", row.of_first);
  if (row.measured) {
    out.set("measured_s", row.measured->seconds);
    out.set("measured_over_predicted", row.measured->seconds / row.seconds);
    out.set("measured_clock", row.measured->clock);
    out.set("measured_steps", row.measured->steps);
    if (row.measured->worked) out.set("worked_s", *row.measured->worked);
    out.set("predicted_by_run_s", row.measured->predicted);
    out.set("measured_memory_bytes", row.measured->memory_bytes);
  }
  if (!row.not_run.empty()) out.set("not_run", row.not_run);
  return out;
}

std::string csv_field(const JsonValue& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return to_json_text(value);
  const std::string& text = value.as_string();
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

}  // namespace

std::string to_text(const StudyResult& result) {
  std::string text = result.spec.title.empty() ? "" : result.spec.title + '\n';
  text += "prices of: " + result.hardware + '\n';
  for (const std::string& sentence : result.held) text += sentence + '\n';
  text += '\n' + Table(result).text();
  if (!result.causes.empty()) text += '\n';
  for (const std::string& sentence : result.causes) text += sentence + '\n';
  return text;
}

JsonValue to_json(const StudyResult& result) {
  JsonValue out;
  out.set("study", result.spec.title);
  out.set("config", result.spec.config);
  out.set("hardware", result.hardware);
  out.set("counted_as", result.counted_as);
  out.set("scaling", to_string(result.spec.scaling));
  JsonValue::Array held, rows, causes;
  for (const std::string& sentence : result.held) held.emplace_back(sentence);
  for (const StudyRow& row : result.rows) rows.push_back(row_json(result.spec, row));
  for (const std::string& sentence : result.causes) causes.emplace_back(sentence);
  out.set("held_fixed", JsonValue(std::move(held)));
  out.set("rows", JsonValue(std::move(rows)));
  out.set("causes", JsonValue(std::move(causes)));
  return out;
}

std::string to_csv(const StudyResult& result) {
  std::vector<std::string> names;
  std::vector<std::vector<std::pair<std::string, std::string>>> rows;
  for (const StudyRow& row : result.rows) {
    rows.emplace_back();
    const JsonValue object = row_json(result.spec, row);
    for (const JsonMember& member : object.members()) {
      if (!member.value.is_object()) {
        rows.back().emplace_back(member.key, csv_field(member.value));
        continue;
      }
      for (const JsonMember& inner : member.value.members())
        rows.back().emplace_back(member.key + '_' + inner.key, csv_field(inner.value));
    }
    for (std::size_t i = 0; i < rows.back().size(); ++i)
      if (std::find(names.begin(), names.end(), rows.back()[i].first) == names.end()) names.push_back(rows.back()[i].first);
  }
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) text += fmt::format("{}{}", i == 0 ? "" : ",", csv_field(JsonValue(names[i])));
  text += "\r\n";
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto found = std::find_if(row.begin(), row.end(), [&](const auto& cell) { return cell.first == names[i]; });
      text += fmt::format("{}{}", i == 0 ? "" : ",", found == row.end() ? "" : found->second);
    }
    text += "\r\n";
  }
  return text;
}

}  // namespace trident
