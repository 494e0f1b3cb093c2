#include "core/logging.h"

namespace trident {

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return "debug";
    case LogLevel::kInfo: return "info";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kError: return "error";
  }
  return "?";
}

void LogSink::write(LogLevel level, std::string_view tag, std::string_view message) {
  if (level < threshold_) return;
  std::string line(tag);
  if (level != LogLevel::kInfo) line.append(to_string(level)).append(": ");
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    line += byte < 0x20 || byte == 0x7f ? ' ' : c;
  }
  line += '\n';
  const std::lock_guard lock(mutex_);
  stream_ << line << std::flush;
}

}  // namespace trident
