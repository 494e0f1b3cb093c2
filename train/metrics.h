// metrics.jsonl: one JSON object per logged step. eval.jsonl: one per evaluation. Apart, so that every line of a file has the same keys.
#pragma once

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace trident {

// Logical bytes sent in one step, summed over ranks, by axis.
struct CommBytes {
  std::int64_t tp = 0, cp = 0, dp = 0, pp = 0;
};

struct StepMetrics {
  std::int64_t step = 0;         // completed updates; the first is 1
  double loss = 0;               // mean nats per token of this global batch, before the update
  double grad_norm = 0;          // unscaled, before clipping
  double lr = 0;
  std::int64_t tokens = 0;       // trained on so far, this step included
  double step_ms = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu;     // model FLOPs over the named peak, in [0, 1]; nothing: peak unknown
  std::int64_t peak_bytes = 0;   // arena high-water, maximum over ranks
  CommBytes comm_bytes;
};

struct EvalMetrics {
  std::int64_t step = 0;            // updates made before the evaluation
  double valid_loss = 0;            // mean nats per token
  std::optional<double> valid_bits_per_byte;  // of the text that the tokens stand for; nothing: tokenizer unknown
};

// One line without its end. Doubles in their shortest exact form; a non-finite or absent number is null (JSON has no other word).
std::string to_json_line(const StepMetrics& metrics);  // step, loss, grad_norm, lr, tokens, step_ms, tokens_per_s, mfu, peak_bytes, comm_bytes
std::string to_json_line(const EvalMetrics& metrics);  // step, valid_loss, valid_bits_per_byte

// Appends lines to a file, each flushed to the operating system before write() returns, so that a reader sees whole lines and a crash loses
// none. Used by one thread. Throws StorageError naming the file, also when another process is writing it.
class MetricsWriter {
 public:
  enum class Start : std::uint8_t { kNewFile, kAppend };  // kNewFile empties a file that is there

  explicit MetricsWriter(std::string path, Start start = Start::kNewFile);
  ~MetricsWriter();
  MetricsWriter(const MetricsWriter&) = delete;
  MetricsWriter& operator=(const MetricsWriter&) = delete;

  void write(const StepMetrics& metrics) { write_line(to_json_line(metrics)); }
  void write(const EvalMetrics& metrics) { write_line(to_json_line(metrics)); }
  void write_line(std::string line);  // any other object's, without its end

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  std::FILE* file_ = nullptr;
};

}  // namespace trident
