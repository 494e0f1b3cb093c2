#include "train/metrics.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

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
  const int descriptor = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) fail("cannot be opened for writing");
  file_ = fdopen(descriptor, "a");
  if (file_ == nullptr) {
    close(descriptor);
    fail("cannot be opened for writing");
  }
  // Before the file is emptied: another run may be writing it. File systems without locks are taken on trust.
  if (flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    std::fclose(file_);
    throw StorageError(fmt::format("{}: another run is writing it; give each run a run.dir of its own", path_));
  }
  if (start == Start::kNewFile && ftruncate(descriptor, 0) != 0 && errno != EINVAL) {  // EINVAL: no regular file
    std::fclose(file_);
    fail("cannot be emptied");
  }
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
