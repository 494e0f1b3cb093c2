#include "train/log/log_errors.h"

#include <utility>

namespace trident {

bool LogErrors::keep(const std::string& log, FunctionRef<void()> write, std::int64_t lines) {
  try {
    write();
    return true;
  } catch (const StorageError& error) {
    if (reaction_ == OnError::kStop)
      throw StorageError(fmt::format("{}; the run ends because log.on_error is \"stop\"", error.what()), error.system_error());
    note(error);
    const std::lock_guard lock(mutex_);
    if (lines > 0) missing_[log] += lines;
    return false;
  }
}

void LogErrors::note(const StorageError& error) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(warned_, true)) return;
  logger_.warning("{}; the run goes on without what its logs cannot take, and goes on trying (log.on_error)", error.what());
}

void LogErrors::warn_of_missing() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [log, lines] : missing_) text += fmt::format("{}{} of {}", text.empty() ? "" : ", ", lines, log);
  if (!text.empty())
    logger_.warning("lines of this run could not be written and are missing: {}; no later start makes them again", text);
}

}  // namespace trident
