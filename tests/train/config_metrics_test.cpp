#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <sstream>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "train/log/console.h"
#include "train/log/metrics.h"

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

TEST(Metrics, WriterFlushesEachLine) {
  const std::string path = ::testing::TempDir() + "metrics_" + std::to_string(::getpid()) + ".jsonl";
  const std::string line = to_json_line(sample()) + "\n", eval = to_json_line(EvalMetrics{1, {2, 3}, {}}) + "\n";
  {
    MetricsWriter writer(path);
    writer.write(sample());
    EXPECT_EQ(read_file(path), line);  // before the writer is closed
    writer.write(EvalMetrics{1, {2, 3}, {}});
    EXPECT_EQ(read_file(path), line + eval);
  }
  { MetricsWriter(path, MetricsWriter::Start::kAppend).write(sample()); }
  EXPECT_EQ(read_file(path), line + eval + line);
  { MetricsWriter fresh(path); }
  EXPECT_EQ(read_file(path), "");
  std::filesystem::remove(path);
}

TEST(Metrics, TwoRunsInOneDirectoryAreRefused) {
  const std::string path = ::testing::TempDir() + "metrics_shared_" + std::to_string(::getpid()) + ".jsonl";
  MetricsWriter first(path);
  first.write(sample());
  try {
    MetricsWriter second(path);
    ADD_FAILURE() << "two writers of one file";
  } catch (const StorageError& error) {
    EXPECT_NE(std::string(error.what()).find("another run is writing it"), std::string::npos) << error.what();
  }
  EXPECT_FALSE(read_file(path).empty()) << "the second one emptied it";
  std::filesystem::remove(path);
}

TEST(Metrics, WriterNamesTheFileItCannotWrite) {
  EXPECT_THROW(MetricsWriter("/nonexistent/metrics.jsonl"), StorageError);
  try {
    MetricsWriter full("/dev/full");
    FAIL() << "what is no file was taken for one";
  } catch (const StorageError& error) {
    EXPECT_NE(std::string(error.what()).find("/dev/full: is not a regular file"), std::string::npos) << error.what();
  }
}

TEST(Console, PlainLines) {
  std::ostringstream out;
  Console console(out, ConsoleMode::kPlain, 200, 0, 0.0);
  console.step(sample(), 10.0);
  console.progress(21, 11.0);
  console.eval({20, {3.0, 1.5}, {}});
  console.eval({20, {3.0, std::nullopt}, {{"wiki", {2.0, std::nullopt}}, {"books", {4.0, std::nullopt}}}});
  console.line("done");
  console.finish();
  EXPECT_EQ(out.str(), "step 20/200  loss 0.3000  grad norm 0.333  lr 3.00e-04  1000000 tokens/s  12.5 ms  mfu 50.0 %\n"
                       "step 20/200  valid loss 3.0000  perplexity 20.09  1.5000 bits per byte\n"
                       "step 20/200  valid loss 3.0000  perplexity 20.09\n"
                       "  wiki  loss 2.0000  perplexity 7.39\n"
                       "  books  loss 4.0000  perplexity 54.60\ndone\n");
}

TEST(Console, TheLossScaleAndWhatItCost) {
  StepMetrics m = sample();
  m.loss_scale = 65536;
  const std::string line = step_line(m, 200);
  EXPECT_TRUE(line.ends_with("  mfu 50.0 %  loss scale 65536")) << line;
  m.skipped = 17;
  EXPECT_TRUE(step_line(m, 200).ends_with("  loss scale 65536  skipped 17")) << step_line(m, 200);
}

TEST(Console, TerminalHasABarBelowTheLines) {
  std::ostringstream out;
  Console console(out, ConsoleMode::kTerminal, 40, 10, 100.0);
  console.line("start");  // no step yet: no bar
  EXPECT_EQ(out.str(), "start\n");
  console.step(sample(), 110.0);  // 10 steps of 30 took 10 s: 20 s left
  EXPECT_NE(out.str().find("\n[===============>              ]  50%  ETA 0:20"), std::string::npos) << out.str();
  out.str("");
  console.progress(25, 115.0);
  EXPECT_EQ(out.str().rfind("\r\x1b[K[", 0), 0u) << out.str();
  out.str("");
  console.finish();
  EXPECT_EQ(out.str(), "\r\x1b[K");
}

TEST(Console, BarAndClock) {
  EXPECT_EQ(progress_bar(0, 10, NAN, 4), "[>   ]   0%  ETA -:--");
  EXPECT_EQ(progress_bar(10, 10, 0, 4), "[====] 100%  ETA 0:00");
  EXPECT_EQ(progress_bar(0, 0, 0, 4), "[>   ]   0%  ETA 0:00");
  EXPECT_EQ(clock_text(3723.4), "1:02:03");
  EXPECT_EQ(clock_text(245), "4:05");
  EXPECT_EQ(clock_text(-1), "-:--");
  EXPECT_EQ(console_mode_of(-1), ConsoleMode::kPlain);
}

}  // namespace
}  // namespace trident
