// Messages for people: a level, the rank that speaks, one line each.
//
// A Logger is a value passed to whoever has something to say (no global). All loggers of a process share one sink, which writes
// whole lines, so that ranks in one process never interleave inside a line.
#pragma once

#include <fmt/core.h>

#include <array>
#include <cstdint>
#include <functional>
#include <mutex>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>

#include "core/named_enum.h"

namespace trident {

enum class LogLevel : std::uint8_t { kDebug, kInfo, kWarning, kError };
template <>
inline constexpr std::array<std::string_view, 4> kNamesOf<LogLevel>{"debug", "info", "warning", "error"};

// Writes lines to a stream that outlives it. Safe to call from several threads; flushed per line.
class LogSink {
 public:
  // Shapes a line, given without its end, for the place where it is shown: a terminal has colours.
  using Dress = std::function<std::string(LogLevel level, const std::string& line)>;

  explicit LogSink(std::ostream& stream, LogLevel threshold = LogLevel::kInfo, Dress dress = {})
      : stream_(stream), threshold_(threshold), dress_(std::move(dress)) {}
  LogSink(const LogSink&) = delete;
  LogSink& operator=(const LogSink&) = delete;

  LogLevel threshold() const { return threshold_; }
  // One message is one line that a terminal only shows, whatever was quoted in it (on_one_line).
  void write(LogLevel level, std::string_view tag, std::string_view message);
  // From now on `copy` is given every line, without its end and undressed; {}: no more. It runs under this sink's lock and logs
  // nothing.
  void copy_to(std::function<void(const std::string& line)> copy);

 private:
  std::ostream& stream_;
  const LogLevel threshold_;
  const Dress dress_;
  std::function<void(const std::string& line)> copy_;
  std::mutex mutex_;
};

// "[rank 3] warning: ..."; a logger without a rank (the launcher, tools) writes no tag. Info carries no level word.
class Logger {
 public:
  static constexpr int kNoRank = -1;

  explicit Logger(LogSink& sink, int rank = kNoRank) : sink_(&sink), tag_(rank == kNoRank ? "" : fmt::format("[rank {}] ", rank)) {}

  template <class... Args> void debug(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kDebug, format, std::forward<Args>(args)...);
  }
  template <class... Args> void info(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kInfo, format, std::forward<Args>(args)...);
  }
  template <class... Args> void warning(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kWarning, format, std::forward<Args>(args)...);
  }
  template <class... Args> void error(fmt::format_string<Args...> format, Args&&... args) const {
    write(LogLevel::kError, format, std::forward<Args>(args)...);
  }

 private:
  template <class... Args> void write(LogLevel level, fmt::format_string<Args...> format, Args&&... args) const {
    if (level >= sink_->threshold()) sink_->write(level, tag_, fmt::format(format, std::forward<Args>(args)...));
  }

  LogSink* sink_;
  std::string tag_;
};

}  // namespace trident
