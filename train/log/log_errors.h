// log.on_error: what becomes of a run whose logs cannot be written. All of them are written through here.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "core/check.h"
#include "core/function_ref.h"
#include "core/logging.h"
#include "train/config/config_enums.h"

namespace trident {

// Used by the thread that logs and by the one that flushes the logs before a checkpoint.
class LogErrors {
 public:
  LogErrors(OnError reaction, const Logger& logger) : reaction_(reaction), logger_(logger) {}

  // Calls write(), which adds `lines` lines to the log of this name. What a disk refuses is missing there and counted, with one
  // warning for the whole run, and the next call tries again; or it ends the run by a StorageError, as log.on_error says. Returns
  // whether it was written.
  bool keep(const std::string& log, FunctionRef<void()> write, std::int64_t lines = 1);
  // Gives the warning for an error that costs no line by itself, whatever log.on_error says.
  void note(const StorageError& error);
  // At the end of a run: how many lines each log lacks.
  void warn_of_missing() const;

  const Logger& logger() const { return logger_; }

 private:
  const OnError reaction_;
  const Logger logger_;
  mutable std::mutex mutex_;
  bool warned_ = false;
  std::map<std::string, std::int64_t> missing_;
};

}  // namespace trident
