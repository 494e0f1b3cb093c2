#include "report/run_page.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/file_io.h"
#include "core/number_text.h"
#include "core/shell_word.h"
#include "report/markup.h"
#include "report/records.h"
#include "report/run_curves.h"

namespace trident {
namespace {

constexpr std::size_t kMostPageBytes = 4'000'000;
// A page shows at most so many of anything; more is for programs.
constexpr std::size_t kMostRows = 400, kMostLines = 100, kMostTextBytes = 4000, kMostNameBytes = 200, kMostSampledSteps = 12;

std::string text_of(const JsonValue& value) { return value.is_string() ? value.as_string() : ""; }

std::string joined(const JsonValue::Array& texts, std::string_view between) {
  std::string out;
  for (const JsonValue& text : texts) {
    if (!out.empty()) out += between;
    out += text_of(text);
  }
  return out;
}

// As a shell takes it.
std::string command_text(const JsonValue& start) {
  std::string out;
  for (const JsonValue& word : start.items_at("command")) {
    if (!out.empty()) out += ' ';
    out += for_shell(text_of(word));
  }
  return out;
}

std::string value_text(const JsonValue& value) { return value.is_string() ? value.as_string() : to_json_text(value); }

double last(const std::vector<JsonValue>& records, std::string_view key) {
  return records.empty() ? kNone : number(records.back(), key);
}
double logged_step(const RunFolder& run) { return last(run.metrics, "step"); }
std::string step_text(double step) { return std::abs(step) < 1e15 ? with_commas(std::llround(step)) : "none"; }

// Null where there is none.
const JsonValue& last_start(const RunFolder& run) {
  static const JsonValue none;
  const JsonValue::Array& starts = run.run.items_at("starts");
  return starts.empty() ? none : starts.back();
}

// Where the last start ended, if that is known, else the last step of the log.
double last_step_of(const RunFolder& run) {
  const double step = number(last_start(run).get("ended"), "step");
  return std::isfinite(step) ? step : logged_step(run);
}

// The time of all starts, as far as the log says; elapsed_s begins anew with each.
double seconds_of(const RunFolder& run) {
  const std::vector<double> starts = start_times(run.run);
  double seconds = 0, before = 0, start = 0;
  for (const JsonValue& record : run.metrics) {
    const double now = number(record, "elapsed_s");
    const auto writer = static_cast<double>(start_of(record, starts));
    if (std::exchange(start, writer) != writer || now < before) seconds += std::exchange(before, 0);
    if (std::isfinite(now)) before = now;
  }
  return seconds + before > 0 ? seconds + before : kNone;
}

// A run by run.epochs has its steps beside the keys.
double steps_of(const RunFolder& run) {
  const JsonValue& asked = run.config.get("run").get("steps");
  return number(asked.is_null() ? run.config.get("resolved").get("steps") : asked);
}

// ---- the runs

// "12.34M parameters on 32 ranks, zero1, fp32; earlier starts had 8 ranks", as far as plan.json, of the last start, says it.
std::string layout_text(const RunFolder& run) {
  const double parameters = number(run.plan, "parameters"), ranks = number(run.plan, "world_size");
  if (!std::isfinite(parameters) || !std::isfinite(ranks)) return "";
  const auto ranks_text = [](double n) { return fmt::format("{} rank{}", step_text(n), n == 1 ? "" : "s"); };
  std::set<double> others;
  for (const JsonValue& start : run.run.items_at("starts"))
    if (const double n = number(start, "ranks"); std::isfinite(n) && n != ranks) others.insert(n);
  std::string earlier;
  for (const double n : others) earlier += (earlier.empty() ? "; earlier starts had " : ", ") + ranks_text(n);
  return fmt::format("{} parameters on {}, {}, {}{}", parameters_text(parameters), ranks_text(ranks), run.plan.text_at("zero"),
                     run.plan.text_at("compute"), earlier);
}

std::string time_text(const JsonValue& record, std::string_view key) {
  const double time = number(record, key);
  return std::abs(time) < 1e12 ? utc_text(std::llround(time)) : "";
}

// "2DP x 2PP x 2TP zero1", with "x V virtual" where a rank has several stages; "" for starts of older programs.
std::string start_layout(const JsonValue& start) {
  const JsonValue& layout = start.get("layout");
  if (!layout.is_object()) return "";
  const double stages = number(layout, "virtual_stages");
  return fmt::format("{}DP x {}PP x {}TP {}{}", step_text(number(layout, "dp")), step_text(number(layout, "pp")),
                     step_text(number(layout, "tp")), layout.text_at("zero"),
                     stages > 1 ? fmt::format(", {} virtual stages", step_text(stages)) : "");
}

// A start that ended by itself has 0, and one that ended as a signal asked 75 or 128 and its number.
bool ended_badly(const JsonValue& start) {
  const double code = number(start.get("ended"), "exit_code");
  return !(code == 0 || code == exit_status(ExitCode::kRequeue) || code > 128);
}

// The starts, and by themselves their commands, which are long.
std::pair<Table, Table> starts_tables(const RunFolder& run) {
  Table table{"", {{"began", true}, {"at step"}, {"ranks"}, {"layout", true}, {"hosts", true}, {"version", true}, {"end", true}}};
  Table commands{"Commands", {{"began", true}, {"command", true}}};
  commands.folded = true;
  const JsonValue::Array& starts = run.run.items_at("starts");
  if (starts.size() > kMostRows) table.title = fmt::format("The last {} of {} starts", kMostRows, with_commas(std::ssize(starts)));
  for (const JsonValue& start : std::span(starts).last(std::min(starts.size(), kMostRows))) {
    const JsonValue* const ended = start.find("ended");
    const std::string end = ended != nullptr
                                ? fmt::format("{}, step {}, exit {:.0f}: {}", time_text(*ended, "time"),
                                              step_text(number(*ended, "step")), number(*ended, "exit_code"), ended->text_at("why"))
                            : &start == &starts.back() ? state_text(run)
                                                       : "killed or cut off";
    const std::string began = time_text(start, "time");
    table.rows.push_back({began, step_text(number(start, "step")), step_text(number(start, "ranks")), start_layout(start),
                          joined(start.items_at("hosts"), ", "), start.text_at("version"), end});
    commands.rows.push_back({began, command_text(start)});
  }
  return {std::move(table), std::move(commands)};
}

ReportSection runs_section(const std::vector<RunFolder>& runs) {
  ReportSection section{runs.size() == 1 ? "The run" : "The runs", {}};
  if (runs.size() == 1) {
    KeyNumbers numbers;
    const auto add = [&](const std::string& name, double value, const std::string& text, const std::string& remark) {
      if (std::isfinite(value)) numbers.numbers.push_back({name, text, remark});
    };
    const RunFolder& run = runs.front();
    if (!run.metrics.empty()) {
      const JsonValue& now = run.metrics.back();
      const auto first_text = [](const std::vector<JsonValue>& records, std::string_view key) {
        for (const JsonValue& record : records)
          if (const double loss = number(record, key); std::isfinite(loss))
            return fmt::format("{:.4f} at step {}", loss, step_text(number(record, "step")));
        return std::string();
      };
      const double loss = number(now, "loss"), speed = number(now, "tokens_per_s");
      const double masked = number(now, "mfu_masked"), mfu = std::isfinite(masked) ? masked : number(now, "mfu");
      add("steps", last_step_of(run), step_text(last_step_of(run)),
          number(now, "tokens") >= 0
              ? fmt::format("{} tokens{}", count_text(number(now, "tokens")),
                            last_step_of(run) == logged_step(run) ? "" : fmt::format(" at step {}", step_text(logged_step(run))))
              : "");
      if (now.find("loss") != nullptr)  // null where it was not finite
        add("training loss", 0, std::isfinite(loss) ? fmt::format("{:.4f}", loss) : "not finite", first_text(run.metrics, "loss"));
      const double valid = last(run.evals, "valid_loss");
      const double accuracy = last(run.evals, "valid_accuracy");  // of pairs, whose loss has no perplexity
      add("validation loss", valid, fmt::format("{:.4f}", valid),
          (std::isfinite(accuracy) ? fmt::format("accuracy {:.4f}", accuracy) : fmt::format("perplexity {:.2f}", std::exp(valid))) +
              (run.evals.size() > 1 ? "; " + first_text(run.evals, "valid_loss") : ""));
      const double tokens = number(run.config.get("batch"), "global") * number(run.config.get("batch"), "sequence");
      double counted = 0;
      for (const JsonValue& record : run.metrics) counted += number(record, "loss_tokens") / tokens;
      const double share = counted / static_cast<double>(run.metrics.size());
      add("counted targets", share, percent_text(share), "of all tokens, mean of the logged steps");
      double done = logged_step(run) - number(last_start(run), "step");  // by the last start, in elapsed_s
      if (!run.is_written || number(now, "time") < number(last_start(run), "time")) done = kNone;
      const double left = (steps_of(run) - logged_step(run)) / done * number(now, "elapsed_s");
      const std::string rest = left > 0 && done > 0 ? fmt::format("about {} left", seconds_text(left)) : "";
      add("time", seconds_of(run), seconds_text(seconds_of(run)), rest);
      add("tokens/s", speed, rounded_text(speed),
          std::isfinite(mfu)
              ? fmt::format("{} MFU{}, last logged step", percent_text(mfu), std::isfinite(masked) ? " (masked)" : "")
              : "last logged step");
    }
    if (!numbers.numbers.empty()) section.blocks.emplace_back(std::move(numbers));
    BulletList facts{{fmt::format("State: {}", state_text(run)), fmt::format("Folder: {}", run.path)}};
    if (const JsonValue& start = last_start(run); !start.is_null())
      facts.items.push_back(fmt::format("Last start: {}: {}", time_text(start, "time"), command_text(start)));
    const auto paths = [&](std::string_view key) {
      std::string all;
      for (const JsonValue& file : run.config.get("data").items_at(key)) all += (all.empty() ? "" : ", ") + file.text_at("path");
      return all;
    };
    const auto fact = [&](std::string_view name, const std::string& text) {
      if (!text.empty()) facts.items.push_back(fmt::format("{}: {}", name, text));
    };
    fact("Data", paths("train"));
    fact("Validation data", paths("valid"));
    if (const double epochs = number(run.config.get("run"), "epochs"); std::isfinite(epochs)) fact("Epochs", short_number(epochs));
    fact("Begins with the weights of", run.config.get("model").text_at("init_from"));
    const JsonValue& adapter = run.config.get("adapter");
    if (const std::string type = adapter.text_at("type"); !type.empty())
      fact("Adapters", fmt::format("{}, r {}, on {}", type, step_text(number(adapter, "r")),
                                   joined(adapter.items_at("target_modules"), ", ")));
    const JsonValue::Array& starts = run.run.items_at("starts");
    if (const auto bad = std::count_if(starts.begin(), std::prev(starts.end(), starts.empty() ? 0 : 1), ended_badly); bad > 0)
      facts.items.push_back(fmt::format("Earlier starts with a bad end: {} (see Starts)", bad));
    section.blocks.emplace_back(std::move(facts));
  } else {
    section.blocks.emplace_back(runs_table(runs));
  }
  BulletList remarks;
  for (const RunFolder& run : runs)
    for (const std::string& remark : run.remarks) remarks.items.push_back(fmt::format("{}: {}.", run.name, remark));
  if (!remarks.items.empty()) section.blocks.emplace_back(std::move(remarks));
  return section;
}

// ---- configurations

void flatten(const JsonValue& value, const std::string& path, std::map<std::string, std::string>& out) {
  if (value.is_object() && !value.members().empty()) {
    for (const JsonMember& member : value.members())
      flatten(member.value, path.empty() ? member.key : fmt::format("{}.{}", path, member.key), out);
  } else if (!value.is_null()) {
    out[path] = value_text(value);
  }
}

// Keys whose values differ stand first.
ReportSection configuration_section(const std::vector<RunFolder>& runs) {
  ReportSection section{"Configuration", {}};
  std::vector<std::map<std::string, std::string>> settings(runs.size());
  std::set<std::string> keys;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    JsonValue config = runs[r].config;
    const auto is_no_key = [](const JsonMember& member) { return member.key == "resolved"; };
    if (config.is_object()) std::erase_if(config.members(), is_no_key);
    flatten(config, "", settings[r]);
    if (runs[r].config.get("lr_schedule").text_at("type") != "constant")
      if (const double length = number(runs[r].config.get("resolved"), "decay_length"); std::isfinite(length))
        settings[r]["lr_schedule: the rate decays until step"] = step_text(length);
    for (const auto& [key, value] : settings[r]) keys.insert(key);
  }
  if (keys.empty()) return section;
  const bool is_one = runs.size() == 1;
  std::set<std::string> given;  // by the only run's last start
  if (is_one)
    for (const JsonValue& key : last_start(runs.front()).items_at("given"))
      if (key.is_string()) given.insert(key.as_string());
  Table differing{is_one ? "Set" : "Different", {{"key", true}}}, same{"", {{"key", true}, {"value", true}}};
  for (const RunFolder& run : runs) differing.columns.push_back({is_one ? "value" : run.name, true});
  for (const std::string& key : keys) {
    std::vector<std::string> row{key};
    for (const auto& one : settings) row.push_back(one.contains(key) ? one.at(key) : "");
    const bool differs = std::ranges::any_of(row.begin() + 1, row.end(), [&](const std::string& value) { return value != row[1]; });
    if (differs || given.contains(key))
      differing.rows.push_back(std::move(row));
    else
      same.rows.push_back({key, row[1]});
  }
  same.folded = true;
  same.title = fmt::format("{} keys{}", with_commas(std::ssize(same.rows)),
                           differing.rows.empty() ? ""
                           : is_one               ? " that were not set"
                                                  : " are the same in all runs");
  if (!differing.rows.empty()) section.blocks.emplace_back(std::move(differing));
  section.blocks.emplace_back(std::move(same));
  return section;
}

// ---- one run

std::optional<LinePlot> times_plot(const RunFolder& run) {
  LinePlot plot;
  plot.title = "Time of a step by kind of work, mean of the ranks", plot.x_label = "step", plot.y_label = "ms";
  std::map<std::string, PlotLine> lines;
  for (const JsonValue& record : run.timing) {
    for (const JsonMember& part : record.members_at("ms"))
      lines[part.key].points.push_back({number(record, "step"), number(part.value)});
  }
  for (auto& [name, line] : lines) {
    if (std::ranges::none_of(line.points, [](const PlotPoint& point) { return point.y > 0; })) continue;
    line.name = name, line.hue = hue_of(plot.lines.size()), line.marked = line.points.size() <= 30;
    plot.lines.push_back(std::move(line));
  }
  return plot.lines.empty() ? std::nullopt : std::optional(std::move(plot));
}

// Bytes that all ranks send in a step: predicted at the start, counted in the last logged step.
std::optional<Table> traffic_table(const RunFolder& run) {
  if (run.metrics.empty()) return std::nullopt;
  Table table{"Bytes that all ranks send in a step", {{"axis", true}, {"predicted"}, {"counted"}}};
  for (const JsonMember& axis : run.metrics.back().members_at("comm_bytes")) {
    const double bytes = number(axis.value), before = number(run.plan.get("step_comm_bytes"), axis.key);
    if (bytes > 0 || before > 0)
      table.rows.push_back({axis.key, std::isfinite(before) ? bytes_text(before) : "", bytes_text(bytes)});
  }
  return table.rows.empty() ? std::nullopt : std::optional(std::move(table));
}

std::optional<StackedBars> memory_bars(const RunFolder& run) {
  StackedBars bars;
  bars.title = "Arena of the first rank of each pipeline stage", bars.unit = "MB";
  for (const JsonValue& rank : run.memory.items_at("ranks")) {
    // Others of the stage hold the same.
    if (rank.find("allocations") == nullptr || !rank.get("by_use").is_object()) continue;
    std::vector<double> values;
    for (const JsonMember& use : rank.members_at("by_use")) {
      if (bars.bars.empty()) bars.parts.push_back({use.key, hue_of(bars.parts.size())});
      const double bytes = number(use.value);
      values.push_back(bytes > 0 ? 1e-6 * bytes : 0);
    }
    values.resize(bars.parts.size());
    bars.bars.push_back({fmt::format("stage {}", step_text(number(rank, "pp"))), std::move(values)});
  }
  return bars.bars.empty() ? std::nullopt : std::optional(std::move(bars));
}

std::optional<Table> comparison_table_of(const RunFolder& run) {
  Table table{"", {{"", true}, {"predicted"}, {"measured"}}};
  const auto add = [&](const std::string& name, const JsonValue& pair, auto text) {
    const double predicted = number(pair, "predicted"), measured = number(pair, "measured");
    if (std::isfinite(predicted) && std::isfinite(measured)) table.rows.push_back({name, text(predicted), text(measured)});
  };
  const JsonValue& step = run.comparison.get("step_seconds");
  const double least = 0.001 * std::max(number(step, "predicted"), number(step, "measured"));
  for (const JsonValue& part : run.comparison.items_at("parts"))
    if (!(number(part, "predicted") < least && number(part, "measured") < least))
      add(joined(part.items_at("parts"), " + "), part, seconds_text);
  add(run.comparison.text_at("clock") == "processor" ? "CPU time of a step" : "step", step, seconds_text);
  add("bubble (idle over ideal)", run.comparison.get("bubble_over_ideal"), [](double it) { return fmt::format("{:.3f}", it); });
  const auto bytes = [](double it) { return bytes_text(it); };
  add("arena of the largest rank", run.comparison.get("arena_bytes"), bytes);
  add("resident in rank 0's process", run.comparison.get("resident_bytes"), bytes);
  return table.rows.empty() ? std::nullopt : std::optional(std::move(table));
}

std::optional<Table> samples_table(const RunFolder& run) {
  Table table{"", {{"step"}, {"prompt", true}, {"continuation", true}}};
  table.columns.front().words = true;
  std::set<double> steps;  // a step is shown with all its prompts, or not
  for (const JsonValue& sample : run.samples)
    if (const double step = number(sample, "step"); std::isfinite(step) && !sample.text_at("text").empty()) steps.insert(step);
  const std::size_t every = (steps.size() + kMostSampledSteps - 1) / kMostSampledSteps;
  for (auto sample = run.samples.rbegin(); sample != run.samples.rend(); ++sample) {
    const auto step = steps.find(number(*sample, "step"));
    const std::string prompt = sample->text_at("prompt"), text = sample->text_at("text");
    if (step != steps.end() && !text.empty() && static_cast<std::size_t>(std::distance(step, steps.end()) - 1) % every == 0)
      table.rows.push_back({step_text(*step), prompt, text});
  }
  if (every > 1) table.title = fmt::format("One of {} steps that have texts, from the last on", every);
  return table.rows.empty() ? std::nullopt : std::optional(std::move(table));
}

void add_run(const RunFolder& run, const std::string& of, std::vector<ReportSection>& sections) {
  const auto add = [&](const std::string& title, auto&&... blocks) {
    ReportSection section{title + of, {}};
    (..., [&](auto&& block) {
      if (block) section.blocks.emplace_back(std::move(*block));
    }(blocks));
    if (!section.blocks.empty()) sections.push_back(std::move(section));
  };
  const auto step_of = [&](std::string_view name) {
    const JsonValue& step = run.last_step.get(name);
    return step.is_object() ? std::optional(DrawnTimeline{step.text_at("title"), step}) : std::nullopt;
  };
  std::optional<DrawnTimeline> measured = step_of("measured"), simulated = step_of("simulated");
  if (measured && simulated)  // one scale, so that they can be compared by eye
    for (DrawnTimeline* const one : {&*measured, &*simulated}) {
      const JsonValue& other = (one == &*measured ? simulated : measured)->data;
      if (number(other, "end") > number(one->data, "end")) one->data.set("end", *other.find("end"));
    }
  add("Texts", samples_table(run));
  add("A step", measured, simulated, times_plot(run));
  add("Memory and traffic", memory_bars(run), traffic_table(run));
  const auto remark = [&](std::string_view key, std::string_view text) {
    const std::string why = run.comparison.text_at(key);
    return why.empty() ? std::nullopt : std::optional(Paragraph{fmt::format("{}: {}.", text, why)});
  };
  add("Predicted beside measured", remark("not_predicted", "The time of a step was not predicted"),
      remark("not_judged", "Times are not judged"), comparison_table_of(run));
  auto [starts, commands] = starts_tables(run);
  if (!starts.rows.empty()) add("Starts", std::optional(std::move(starts)), std::optional(std::move(commands)));
}

// ---- bounds

std::string more_text(std::size_t all, std::size_t shown, std::string_view what) {
  return fmt::format("{} more {} are left out", with_commas(static_cast<std::int64_t>(all - shown)), what);
}

void bound(std::vector<std::string>& texts) {
  for (std::string& text : texts) text = beginning_of(text, kMostTextBytes);
}

void bound(Table& table) {
  table.title = beginning_of(table.title, kMostNameBytes);
  const std::size_t rows = table.rows.size();
  table.rows.resize(std::min(rows, kMostRows));
  for (std::vector<std::string>& row : table.rows) bound(row);
  if (rows > kMostRows) table.rows.push_back({more_text(rows, kMostRows, "rows")});
}

void bound(Paragraph& paragraph) { paragraph.text = beginning_of(paragraph.text, kMostTextBytes); }

void bound(BulletList& list) {
  const std::size_t items = list.items.size();
  list.items.resize(std::min(items, kMostRows));
  bound(list.items);
  if (items > kMostRows) list.items.push_back(more_text(items, kMostRows, "remarks"));
}

void bound(std::string& title, auto& drawn, std::string_view what) {
  if (drawn.size() <= kMostLines) return;
  title += fmt::format(" ({})", more_text(drawn.size(), kMostLines, what));
  drawn.resize(kMostLines);
}

void bound(StackedBars& bars) { bound(bars.title, bars.bars, "bars"); }

void bound(LinePlot& plot) { bound(plot.title, plot.lines, "lines"); }

void bound(auto&) {}  // the page leaves out what does not fit

}  // namespace

std::string state_text(const RunFolder& run) {
  const std::string at = fmt::format("step {} of {}", step_text(last_step_of(run)), step_text(steps_of(run)));
  const JsonValue& start = last_start(run);
  const JsonValue* const ended = start.find("ended");
  const double failed = number(run.failure, "unix_time");
  if (ended != nullptr && !(failed > number(*ended, "time"))) {
    const std::string why = ended->text_at("why");
    const bool is_failure = !why.empty() && why == run.failure.text_at("message");
    return fmt::format("{}{}: {}", is_failure ? "failed: " : "", number(*ended, "exit_code") == 0 ? "over" : why, at);
  }
  if (run.is_written) return fmt::format("going on: {}", at);
  if (std::isfinite(failed) && !(failed < number(start, "time"))) return fmt::format("failed: {}", run.failure.text_at("message"));
  return fmt::format("{}: {}", start.is_null() ? "nobody writes it" : "killed or cut off", at);
}

Table runs_table(const std::vector<RunFolder>& runs) {
  const bool of_pairs = std::ranges::any_of(runs, [](const RunFolder& run) { return has(run.metrics, "margin"); });
  const std::string unit = of_pairs ? "" : ", nats/token";
  Table table{"", {{"run", true}, {"steps"}, {"tokens"}, {"time"}, {"training loss" + unit}, {"best validation loss"}, {"at step"},
                   {"perplexity"}, {"bits/byte"}, {"tokens/s, last step"}, {"layout", true}, {"state", true}}};
  const auto text = [](double value, auto written) { return std::isfinite(value) ? std::string(written(value)) : ""; };
  const auto digits = [](int n) { return [n](double value) { return fmt::format("{:.{}f}", value, n); }; };
  for (const RunFolder& run : runs) {
    const JsonValue none{}, *best = &none;
    for (const JsonValue& record : run.evals)
      if (const double loss = number(record, "valid_loss"); std::isfinite(loss) && !(loss >= number(*best, "valid_loss")))
        best = &record;
    std::string layout;
    int layouts = 0;
    for (const JsonValue& start : run.run.items_at("starts"))
      if (const std::string next = start_layout(start); !next.empty() && next != std::exchange(layout, next)) ++layouts;
    if (layouts > 1) layout += fmt::format(" (the last of {})", layouts);
    table.rows.push_back({run.name, text(last_step_of(run), step_text), text(last(run.metrics, "tokens"), count_text),
                          text(seconds_of(run), seconds_text), text(last(run.metrics, "loss"), digits(4)),
                          text(number(*best, "valid_loss"), digits(4)), text(number(*best, "step"), step_text),
                          text(number(*best, "valid_perplexity"), digits(2)), text(number(*best, "valid_bits_per_byte"), digits(3)),
                          text(last(run.metrics, "tokens_per_s"), rounded_text), layout, state_text(run)});
  }
  return table;
}

void write_run_page(const std::string& folder) {
  write_file(folder + "/report.html", to_html(run_page({read_run_folder(folder)})));
}

ReportPage run_page(const std::vector<RunFolder>& runs) {
  ReportPage page;
  page.most_bytes = kMostPageBytes;
  for (const RunFolder& run : runs)
    page.title += fmt::format("{}{}", !page.title.empty() ? ", " : runs.size() == 1 ? "Run " : "Runs ", run.name);
  page.title = beginning_of(page.title, 3 * kMostNameBytes);
  page.subtitle = runs.size() == 1 ? layout_text(runs.front()) : fmt::format("{} runs beside each other", runs.size());
  std::vector<ReportSection> sections{runs_section(runs)};
  if (runs.size() > 1) sections.push_back(configuration_section(runs));  // who compares asks first in what runs differ
  sections.push_back(curves_section(runs));
  for (const RunFolder& run : runs) add_run(run, runs.size() == 1 ? "" : fmt::format(": {}", run.name), sections);
  if (runs.size() == 1) sections.push_back(configuration_section(runs));
  for (ReportSection& section : sections) {
    if (section.blocks.empty()) continue;
    for (ReportBlock& block : section.blocks) std::visit([](auto& it) { bound(it); }, block);
    page.sections.push_back(std::move(section));
  }
  return page;
}

}  // namespace trident
