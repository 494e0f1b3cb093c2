#include "train/metrics.h"

#include <cerrno>
#include <cstring>

#include "core/json_reader.h"

namespace trident {
namespace {

JsonValue optional_number(const std::optional<double>& x) { return x ? JsonValue(*x) : JsonValue{}; }

}  // namespace

std::string to_json_line(const StepMetrics& m) {
  const JsonValue::Object comm{{"tp", m.comm_bytes.tp}, {"cp", m.comm_bytes.cp}, {"dp", m.comm_bytes.dp}, {"pp", m.comm_bytes.pp}};
  return to_json_text(JsonValue::Object{{"step", m.step}, {"loss", m.loss}, {"grad_norm", m.grad_norm}, {"lr", m.lr}, {"tokens", m.tokens},
                                        {"step_ms", m.step_ms}, {"tokens_per_s", m.tokens_per_s}, {"mfu", optional_number(m.mfu)},
                                        {"peak_bytes", m.peak_bytes}, {"comm_bytes", comm}});
}

std::string to_json_line(const EvalMetrics& m) {
  return to_json_text(JsonValue::Object{{"step", m.step}, {"valid_loss", m.valid_loss}, {"valid_bits_per_byte", optional_number(m.valid_bits_per_byte)}});
}

MetricsWriter::MetricsWriter(std::string path, Start start) : path_(std::move(path)) {
  file_ = std::fopen(path_.c_str(), start == Start::kAppend ? "ae" : "we");
  if (file_ == nullptr) fail("cannot be opened for writing");
}

MetricsWriter::~MetricsWriter() { std::fclose(file_); }

void MetricsWriter::write_line(std::string line) {
  line += '\n';
  if (std::fwrite(line.data(), 1, line.size(), file_) != line.size() || std::fflush(file_) != 0) fail("cannot be written");
}

void MetricsWriter::fail(const char* what) const {
  throw StorageError(fmt::format("{}: {}: {}; check the folder and the space on the disk", path_, what, std::strerror(errno)));
}

}  // namespace trident
