#include "core/logging.h"

#include "core/printable.h"

namespace trident {

void LogSink::write(LogLevel level, std::string_view tag, std::string_view message) {
  if (level < threshold_) return;
  std::string line(tag);
  if (level != LogLevel::kInfo) line.append(to_string(level)).append(": ");
  line += on_one_line(message);
  const std::lock_guard lock(mutex_);
  stream_.clear();  // a disk that was full may have room again
  stream_ << (dress_ ? dress_(level, line) : line) + '\n' << std::flush;
  if (copy_) copy_(line);
}

void LogSink::copy_to(std::function<void(const std::string& line)> copy) {
  const std::lock_guard lock(mutex_);
  copy_ = std::move(copy);
}

}  // namespace trident
