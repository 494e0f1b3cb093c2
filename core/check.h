// Errors and checks: the only macros of the project.
//
// Every failure is an exception that says what happened, where, and what to do. The exit code a process ends with is a property
// of the error's type, so that main() needs no table. Library code never calls exit() or abort(); _exit() ends forked
// children, and a rank whose training thread stands in a call that does not return (parallel/health). Destructors never throw.
#pragma once

#include <fmt/core.h>

#include <exception>
#include <string>
#include <string_view>
#include <utility>

namespace trident {

// Process exit codes (users' scripts depend on them).
enum class ExitCode : int {
  kOk = 0,
  kConfig = 64,         // the configuration or the command line
  kData = 65,           // data or checkpoint files
  kInternal = 70,       // a broken invariant: a bug in this program
  kStorage = 74,        // the file system refused
  kRequeue = 75,        // saved, or disturbed: the same command again
  kCommunication = 76,  // a peer is gone, late, or out of step
  kNoProgress = 93,
};
constexpr int exit_status(ExitCode code) { return static_cast<int>(code); }

class Error : public std::exception {
 public:
  Error(ExitCode code, std::string message, int system_error = 0)
      : message_(std::move(message)), code_(code), system_error_(system_error) {}
  const char* what() const noexcept override { return message_.c_str(); }
  ExitCode code() const { return code_; }
  int system_error() const { return system_error_; }  // errno, where a call of the system failed and it is known; else 0

  // Where it happened, added on the way up: catch (Error& e) { e.add_context(" [...]"); throw; } keeps the error's type.
  void add_context(std::string_view context) { message_ += context; }

 private:
  std::string message_;
  ExitCode code_;
  int system_error_;
};

// The user's configuration or command line cannot be honoured. Message form: "<json path> = <value>: <why>; <remedy>".
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message) : Error(ExitCode::kConfig, message) {}
};

// A data file or checkpoint is missing, damaged or does not fit the model. The message names the file.
class DataError : public Error {
 public:
  explicit DataError(const std::string& message, int system_error = 0) : Error(ExitCode::kData, message, system_error) {}
};

class StorageError : public Error {
 public:
  explicit StorageError(const std::string& message, int system_error = 0) : Error(ExitCode::kStorage, message, system_error) {}
};

// A rank is missing, late, failed, or called another operation than its peers. The message names axis, operation and ranks.
class CommunicationError : public Error {
 public:
  explicit CommunicationError(const std::string& message) : Error(ExitCode::kCommunication, message) {}
};

// A broken invariant inside Trident.
class InternalError : public Error {
 public:
  explicit InternalError(const std::string& message) : Error(ExitCode::kInternal, message) {}
};

// Another process of the job says what went wrong; this one ends with the same code, silently.
class ReportedElsewhere : public Error {
 public:
  using Error::Error;
};

namespace detail {
[[noreturn]] void throw_check_failure(std::string_view expression, std::string_view file, int line, const std::string& message);
}  // namespace detail

// Throws InternalError with the expression, the place and a formatted message (fmt syntax) unless `condition` holds.
// For invariants only: what a user can cause throws ConfigError or DataError in plain words instead.
#define TRIDENT_CHECK(condition, ...)                                                                              \
  do {                                                                                                             \
    if (!(condition)) [[unlikely]]                                                                                 \
      ::trident::detail::throw_check_failure(#condition, __FILE__, __LINE__, ::fmt::format("" __VA_ARGS__));       \
  } while (false)

}  // namespace trident
