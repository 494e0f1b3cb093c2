// A command in the background, to be disturbed.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/data/temporary_folder.h"

namespace trident {

class BackgroundProgram {
 public:
  // trident with these arguments, behind a command and its own if `launcher` names one.
  explicit BackgroundProgram(std::vector<std::string> arguments, std::vector<std::string> launcher = {});
  ~BackgroundProgram();  // kills it
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;

  pid_t process() const { return process_; }
  // The exit code, or 128 + signal; -1 when it did not end within so many seconds.
  int wait_to_end(double seconds);
  bool ended();
  std::string out() const;
  std::string err() const;
  // Lines of training steps in out().
  int steps_said() const;

 private:
  TemporaryFolder streams_;
  pid_t process_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

// Waits for `ready` to return true; false when it did not within so many seconds.
bool within(double seconds, const std::function<bool()>& ready);
// Processes that `process` has started and that live, and those that they have.
std::vector<pid_t> descendants_of(pid_t process);
bool is_running(pid_t process);  // zombies are not

}  // namespace trident
