#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <regex>
#include <set>
#include <sstream>
#include <utility>

#include "core/clock.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/support/error_text.h"
#include "tests/support/log_text.h"
#include "tests/train/config_support.h"
#include "train/config/option_docs.h"
#include "train/config/option_table.h"
#include "train/log/console.h"
#include "train/log/metrics.h"
#include "train/log/prometheus.h"

namespace trident {
namespace {

StepMetrics sample() {
  StepMetrics m;
  m.step = 20;
  m.loss = 0.1 + 0.2;
  m.grad_norm = 1.0 / 3;
  m.lr = 3e-4;
  m.tokens = std::int64_t{1} << 40;
  m.step_ms = 12.5;
  m.tokens_per_s = 1e6;
  m.mfu = 0.5;
  m.peak_bytes = 123;
  m.comm_bytes = {1, 2, 3, 4};
  m.seconds_left = 245;
  return m;
}

TEST(Metrics, OneObjectWithExactlyTheFields) {
  const std::string line = to_json_line(sample());
  EXPECT_EQ(
      line,
      R"({"step":20,"loss":0.30000000000000004,"grad_norm":0.3333333333333333,"lr":0.0003,"loss_scale":null,"tokens":1099511627776,"step_ms":12.5,)"
      R"("tokens_per_s":1000000.0,"mfu":0.5,"peak_bytes":123,"comm_bytes":{"tp":1,"cp":2,"dp":3,"pp":4}})");
  EXPECT_EQ(parse_json(line, "m").find("loss")->as_number(), 0.1 + 0.2);
  StepMetrics scaled = sample();
  scaled.loss_scale = 65536;
  EXPECT_EQ(parse_json(to_json_line(scaled), "m").find("loss_scale")->as_number(), 65536);
}

TEST(Metrics, UnknownAndNonFiniteNumbersAreNull) {
  StepMetrics m = sample();
  m.mfu.reset();
  m.loss = std::nan("");
  m.grad_norm = INFINITY;
  const JsonValue v = parse_json(to_json_line(m), "m");
  EXPECT_TRUE(v.find("mfu")->is_null());
  EXPECT_TRUE(v.find("loss")->is_null());
  EXPECT_TRUE(v.find("grad_norm")->is_null());
}

TEST(Metrics, EvaluationLine) {
  EXPECT_EQ(to_json_line(EvalMetrics{10, {0, 1.25}, {}}),
            R"({"step":10,"valid_loss":0.0,"valid_perplexity":1.0,"valid_bits_per_byte":1.25})");
  EXPECT_EQ(to_json_line(EvalMetrics{10, {0, std::nullopt}, {}}),
            R"({"step":10,"valid_loss":0.0,"valid_perplexity":1.0,"valid_bits_per_byte":null})");
  EXPECT_EQ(
      to_json_line(EvalMetrics{10, {0, 1.25}, {{"wiki", {0, 1}}, {"books", {0, std::nullopt}}}}),
      R"({"step":10,"valid_loss":0.0,"valid_perplexity":1.0,"valid_bits_per_byte":1.25,"sets":{)"
      R"("wiki":{"loss":0.0,"perplexity":1.0,"bits_per_byte":1.0},"books":{"loss":0.0,"perplexity":1.0,"bits_per_byte":null}}})");
}

TEST(Metrics, WriterFlushesEachLineAndSaysWhenItWasWritten) {
  const std::string path = ::testing::TempDir() + "metrics_" + std::to_string(::getpid()) + ".jsonl";
  const std::string line = lines_without_clocks(to_json_line(sample())).front();
  const std::string eval = to_json_line(EvalMetrics{1, {2, 3}, {}});
  const auto lines = [&path] { return lines_without_clocks(read_file(path)); };
  using Lines = std::vector<std::string>;
  constexpr double kRounding = 1e-3;
  const double began = unix_seconds(), start = monotonic_seconds();
  {
    MetricsWriter writer(path, start);
    writer.write_line(line);
    EXPECT_EQ(lines(), Lines{line});  // before the writer is closed
  }
  { MetricsWriter(path, start).write_line(eval); }
  EXPECT_EQ(lines(), (Lines{line, eval}));
  const double elapsed = monotonic_seconds() - start, ended = unix_seconds();
  const std::string text = read_file(path);
  std::istringstream in(text);
  double time = began - kRounding, since_start = 0;
  for (std::string written; std::getline(in, written);) {
    const JsonValue value = parse_json(written, path);
    EXPECT_GE(value.find("time")->as_number(), std::exchange(time, value.find("time")->as_number()));
    EXPECT_GE(value.find("elapsed_s")->as_number(), std::exchange(since_start, value.find("elapsed_s")->as_number()));
    EXPECT_EQ(written.substr(written.find(",\"time\":") + 8).find('.'), 10u) << "seconds, with milliseconds behind: " << written;
  }
  EXPECT_LE(time, ended + kRounding);
  EXPECT_LE(since_start, elapsed + kRounding);
  std::filesystem::remove(path);
}

// The text format of node_exporter: HELP, TYPE and the value of each, and what is not known is not there.
TEST(Prometheus, EachValueHasItsHelpAndType) {
  RunGauges gauges;
  gauges.run = "a \"b\" \\c";
  gauges.steps = 200;
  gauges.time = 1764349541.125;
  EXPECT_EQ(prometheus_text(gauges),
            "# HELP trident_steps Updates that the run is to make (run.steps).\n# TYPE trident_steps gauge\n"
            "trident_steps{run=\"a \\\"b\\\" \\\\c\"} 200\n"
            "# HELP trident_last_update_timestamp_seconds When this file was written, unix time.\n"
            "# TYPE trident_last_update_timestamp_seconds gauge\n"
            "trident_last_update_timestamp_seconds{run=\"a \\\"b\\\" \\\\c\"} 1764349541.125\n");
  gauges.run = "r";
  gauges.logged = sample();
  gauges.logged->loss = std::nan("");
  gauges.checkpoint = 18;
  const std::string text = prometheus_text(gauges);
  for (const std::string line :
       {"trident_step{run=\"r\"} 20\n", "trident_loss{run=\"r\"} NaN\n", "trident_eta_seconds{run=\"r\"} 245\n",
        "trident_tokens_per_second{run=\"r\"} 1000000\n", "trident_last_checkpoint_step{run=\"r\"} 18\n",
        "# TYPE trident_tokens_total counter\n"})
    EXPECT_NE(text.find('\n' + line), std::string::npos) << line << text;
  EXPECT_EQ(text.find("valid_loss"), std::string::npos) << "nothing was evaluated";
  std::istringstream in(text);
  std::string help, type, value;
  while (std::getline(in, help) && std::getline(in, type) && std::getline(in, value)) {
    const std::string name = value.substr(0, value.find('{'));
    EXPECT_TRUE(name.starts_with("trident_")) << value;
    EXPECT_TRUE(help.starts_with("# HELP " + name + ' ') && type.starts_with("# TYPE " + name + ' '))
        << help << '\n' << type << '\n' << value;
  }
}

TEST(Metrics, TwoRunsInOneDirectoryAreRefused) {
  const std::string path = ::testing::TempDir() + "metrics_shared_" + std::to_string(::getpid()) + ".jsonl";
  MetricsWriter first(path, 0);
  first.write_line(to_json_line(sample()));
  expect_parts(error_of<StorageError>([&] { const MetricsWriter second(path, 0); }), {"another run is writing it"});
  EXPECT_FALSE(read_file(path).empty()) << "the second one emptied it";
  std::filesystem::remove(path);
}

TEST(Metrics, WriterNamesTheFileItCannotWrite) {
  EXPECT_THROW(MetricsWriter("/nonexistent/metrics.jsonl", 0), StorageError);
  expect_parts(error_of<StorageError>([] { const MetricsWriter full("/dev/full", 0); }), {"/dev/full: is not a regular file"});
}

TEST(Console, PlainLines) {
  std::ostringstream out;
  Console console(out, ConsoleMode::kPlain, 200, 0);
  console.step(sample());
  console.progress(sample());
  console.eval({20, {3.0, 1.5}, {}});
  console.eval({20, {3.0, std::nullopt}, {{"wiki", {2.0, std::nullopt}}, {"books", {4.0, std::nullopt}}}});
  console.line("done");
  console.finish();
  const std::regex time_of_day("\\[[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\\] ");
  EXPECT_EQ(std::regex_replace(out.str(), time_of_day, "[] "),
            "[] step 20/200  loss 0.3000  grad norm 0.333  lr 3.00e-04  1,000,000 tokens/s  12.5 ms  mfu 50.0 %  10 % done  "
            "ETA 4:05\n"
            "[] step 20/200  valid loss 3.0000  perplexity 20.09  1.5000 bits/byte\n"
            "[] step 20/200  valid loss 3.0000  perplexity 20.09\n"
            "  wiki  loss 2.0000  perplexity 7.39\n"
            "  books  loss 4.0000  perplexity 54.60\ndone\n");
}

TEST(Console, TheLossScaleAndWhatItCost) {
  StepMetrics m = sample();
  m.loss_scale = 65536;
  const std::string line = step_line(m, 200);
  EXPECT_TRUE(line.ends_with("  mfu 50.0 %  loss scale 65536")) << line;
  m.masked_flops_share = 0.25;
  EXPECT_TRUE(step_line(m, 200).ends_with("  mfu_masked 12.5 %  loss scale 65536")) << step_line(m, 200);
  m.skipped = 17;
  EXPECT_TRUE(step_line(m, 200).ends_with("  loss scale 65536  skipped 17")) << step_line(m, 200);
}

TEST(Console, RewardsOfPairs) {
  StepMetrics m = sample();
  m.rewards = {.chosen = 0.25, .rejected = -0.5, .accuracy = 0.75};
  const std::string rewards = "  accuracy 0.7500  margin 0.7500";
  EXPECT_NE(step_line(m, 200).find("  loss 0.3000" + rewards + "  grad norm "), std::string::npos) << step_line(m, 200);
  EXPECT_TRUE(eval_lines({20, {3.0, {}, {}, m.rewards}, {}}, 200).front().ends_with("loss 3.0000" + rewards));
}

TEST(Console, TerminalHasABarBelowTheLines) {
  std::ostringstream out;
  Console console(out, ConsoleMode::kTerminal, 40, 10);
  console.line("start");  // no step yet: no numbers
  EXPECT_EQ(out.str(), "start\n[=======>                      ] step 10/40");
  console.step(sample());
  EXPECT_TRUE(out.str().ends_with("lr 3.00e-04\n[===============>              ] step 20/40  loss 0.30  1.0M tok/s  ETA 4:05"))
      << out.str();
  out.str("");
  StepMetrics next = sample();
  next.step = 25, next.loss = 2.314, next.tokens_per_s = 5949;
  console.progress(next);
  EXPECT_EQ(out.str(), "\r\x1b[K[==================>           ] step 25/40  loss 2.31  5.9k tok/s  ETA 4:05");
  out.str("");
  console.finish();
  EXPECT_EQ(out.str(), "\r\x1b[K");
}

TEST(Console, ATerminalsRowsAreCutAndNotFolded) {
  std::ostringstream out;
  Console console(out, ConsoleMode::kTerminal, 20000, 0);
  console.eval({10000, {10.0, 1.5}, {}});
  const std::string row = out.str().substr(0, out.str().find('\n'));
  EXPECT_TRUE(row.ends_with("] step 10000/20000  valid loss 10.0000  perplexity 22026")) << row;
  console.eval({5, {10.0, 1.5}, {}});
  EXPECT_NE(out.str().find("] step     5/20000  valid loss 10.0000"), std::string::npos) << "the columns begin below each other";
}

TEST(Console, LinesFoldBetweenWords) {
  EXPECT_EQ(folded_line("model:  llama of 14.37M parameters", 34), "model:  llama of 14.37M parameters");
  EXPECT_EQ(folded_line("model:  llama of 14.37M parameters", 24), "model:  llama of 14.37M\n        parameters");
  const std::string command = "next:   trident generate --ckpt runs/a --chat";
  EXPECT_EQ(folded_line(command, 24), command) << "is pasted";
  EXPECT_EQ(folded_line("a line of words  and two spaces", 18), "a line of words\n  and two spaces");
  EXPECT_EQ(folded_line("no ABCDEFGHIJKLMNOPQRSTUVWXYZ z", 20), "no\n  ABCDEFGHIJKLMNOPQRSTUVWXYZ\n  z");
}

TEST(Console, AStateStandsWhereTheNumbersAre) {
  std::ostringstream out;
  Console console(out, ConsoleMode::kTerminal, 40, 10);
  console.doing("first step");
  EXPECT_TRUE(out.str().ends_with("] step 10/40  first step")) << out.str();
  console.step(sample());
  console.doing("evaluating 1/3");
  EXPECT_TRUE(out.str().ends_with("] step 20/40  evaluating 1/3  ETA 4:05")) << out.str();
  console.eval({20, {3.0, 1.5}, {}});
  EXPECT_TRUE(out.str().ends_with("] step 20/40  loss 0.30  1.0M tok/s  ETA 4:05")) << out.str();
}

TEST(Console, ClockAndMode) {
  EXPECT_EQ(clock_text(3723.4), "1:02:03");
  EXPECT_EQ(clock_text(245), "4:05");
  EXPECT_EQ(clock_text(-1), "-:--");
  EXPECT_EQ(console_mode_of(-1), ConsoleMode::kPlain);
}

// Everything computed from the option table agrees with it, and the committed page with the generator.

TEST(ConfigDocs, TableIsWellFormed) {
  std::set<std::string_view> paths, blocks;
  for (const OptionBlock& block : option_blocks()) EXPECT_TRUE(blocks.insert(block.name).second) << block.name;
  for (const Option& option : option_table()) {
    EXPECT_TRUE(paths.insert(option.path).second) << option.path;
    EXPECT_TRUE(block_of(option).empty() || blocks.contains(block_of(option))) << option.path;
    EXPECT_FALSE(option.doc.empty()) << option.path;
    EXPECT_EQ(option.doc.back(), '.') << option.path;
    EXPECT_EQ(find_option(option.path), &option);
  }
  EXPECT_EQ(find_option("no.such"), nullptr);
}

TEST(ConfigDocs, SchemaListsEveryOption) {
  const JsonValue schema = parse_json(to_json_text(options_schema(), 2), "schema");
  EXPECT_EQ(schema.find("additionalProperties")->as_bool(), false);
  const JsonValue* properties = schema.find("properties");
  for (const Option& option : option_table()) {
    const JsonValue* holder = properties;
    if (!block_of(option).empty()) {
      const std::string_view block = block_of(option), outer = block.substr(0, block.find('.'));
      holder = properties->find(outer);
      if (outer != block) holder = holder->find("properties")->find(block.substr(outer.size() + 1));
      ASSERT_NE(holder, nullptr) << option.path;
      if (const JsonValue* any = holder->find("anyOf")) holder = &any->items().front();
      EXPECT_EQ(holder->find("additionalProperties")->as_bool(), block_of(option) == kModelBlock) << option.path;
      holder = holder->find("properties");
    }
    const JsonValue* entry = holder->find(key_of(option));
    ASSERT_NE(entry, nullptr) << option.path;
    EXPECT_NE(entry->find("description"), nullptr) << option.path;
    EXPECT_EQ(entry->find("default") == nullptr, option.fallback.empty()) << option.path;
    EXPECT_TRUE(entry->find("type") != nullptr || entry->find("anyOf") != nullptr || entry->find("enum") != nullptr) << option.path;
  }
}

TEST(ConfigDocs, SchemaKnowsRangesAndChoices) {
  const std::string text = to_json_text(options_schema());
  expect_parts(text, {R"("tensor":{"type":"integer","minimum":1,"maximum":65536)", R"("enum":["gpipe","1f1b","interleaved"])",
                      R"("required":["model","batch","data"])"});
}

TEST(ConfigDocs, HelpAndPageNameEveryOption) {
  const std::string help = options_help(), page = options_markdown();
  for (const Option& option : option_table()) {
    EXPECT_NE(help.find("\n  " + std::string(option.path) + (option.fallback.empty() ? ", required" : " = ")), std::string::npos)
        << option.path;
    EXPECT_NE(page.find("| `" + std::string(option.path) + "` |"), std::string::npos) << option.path;
  }
}

TEST(ConfigDocs, HelpOfOneKeyShowsALegalSetting) {
  for (const Option& option : option_table()) {
    const std::string text = option_help(option.path);
    EXPECT_EQ(text.rfind(std::string(option.path) + ": ", 0), 0u) << text;
    expect_parts(text, {"  default    "});
    const auto at = text.find("--set ");
    EXPECT_EQ(at == std::string::npos, option.reserved) << text;
    if (at == std::string::npos) continue;
    std::string setting = text.substr(at + 6, text.find('\n', at) - at - 6);
    if (setting.front() == '\'') setting = setting.substr(1, setting.size() - 2);  // for a shell
    OptionValues values;
    EXPECT_NO_THROW(values.take_setting(setting)) << setting;
    EXPECT_EQ(values.at(option.path).origin, "--set") << setting;
    const auto file = text.find("  file       ") + 13;
    const std::string object = "{" + text.substr(file, text.find('\n', file) - file) + "}";
    EXPECT_NO_THROW(OptionValues().take_file(parse_json(object, "sample"), "sample")) << object;
  }
  expect_parts(option_help("parallel.zero"), {"SHARD_GRAD_OP = shard_grad_op"});
  expect_parts(option_help("parallel"), {"\n  parallel.tensor = 1\n"});
  EXPECT_EQ(option_help("parallel").find("batch.micro"), std::string::npos);
  EXPECT_EQ(option_help("parallel.tensr"), "");
}

TEST(ConfigDocs, HelpFitsItsWidth) {
  std::istringstream lines(options_help());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kHelpWidth) << line;
  EXPECT_EQ(help_paragraph("one two", 2), "  one two\n");
  const std::string word(kHelpWidth, 'x');
  EXPECT_EQ(help_paragraph("a " + word + " b", 2), "  a\n  " + word + "\n  b\n");
  EXPECT_EQ(help_paragraph(std::string(kHelpWidth - 4, 'y') + " z", 2), "  " + std::string(kHelpWidth - 4, 'y') + " z\n");
}

// Whoever copies an example has a configuration that is one.
TEST(ConfigDocs, ExamplesOfThePageAreConfigurations) {
  const std::string page = options_markdown(), fence = "```json\n";
  int examples = 0;
  for (std::size_t at = page.find(fence); at != page.npos; at = page.find(fence, at + 1), ++examples) {
    const std::size_t begin = at + fence.size(), end = page.find("```", begin);
    const std::string text = page.substr(begin, end - begin);
    const bool has_folder = text.find("init_from") != text.npos;  // which is not here
    const std::vector<std::string> instead{"model.init_from=null", "model.preset=llama-1m"};
    EXPECT_NO_THROW(parse_train_config(text, "example", has_folder ? instead : std::vector<std::string>())) << text;
  }
  EXPECT_EQ(examples, 4);
}

TEST(ConfigDocs, CommittedPageIsWhatTheTableSays) {
  EXPECT_EQ(read_file(std::string(TRIDENT_SOURCE_DIR) + "/docs/configuration.md"), options_markdown())
      << "run: trident docs configuration > docs/configuration.md";
}

}  // namespace
}  // namespace trident
