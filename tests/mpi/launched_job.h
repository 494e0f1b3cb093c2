// A job of several processes in the background, to be disturbed.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/app/program.h"

namespace trident {

class LaunchedJob {
 public:
  // Starts trident train with these settings as `ranks` processes; its run directory is <place>/<name>. `before`: words in front of
  // the program, of a command that becomes it.
  LaunchedJob(const Workplace& place, const std::string& name, int ranks, std::vector<std::string> settings,
              const std::vector<std::string>& before = {});
  // Starts trident with these arguments; <place>/<name>.log is what it prints.
  LaunchedJob(const std::string& place, const std::string& name, int ranks, const std::vector<std::string>& arguments);
  ~LaunchedJob();
  LaunchedJob(const LaunchedJob&) = delete;
  LaunchedJob& operator=(const LaunchedJob&) = delete;

  // Waits until all ranks are processes, or until so many steps are logged. False after 60 s, or when the job ended before.
  bool wait_for_ranks();
  bool wait_for_steps(int steps);
  int steps_logged() const;
  // The process of a rank.
  pid_t rank(int number) const { return ranks_[static_cast<std::size_t>(number)]; }
  pid_t launcher() const { return launcher_; }
  // Waits until the output has this text. False after so many seconds, or when the job ended before.
  bool wait_for_text(const std::string& text, double seconds);
  // The exit code, or 128 + signal; -1 when it did not end within so many seconds.
  int wait_to_end(double seconds);
  // Everything that launcher and ranks printed so far.
  std::string said() const;
  // Ranks that still live after so many seconds, as text; returns as soon as none does. A launcher may leave while the last ranks
  // are still being ended.
  std::string survivors(double seconds = 3) const;

 private:
  void launch(std::vector<std::string> words, const std::string& scratch);
  std::vector<pid_t> children() const;
  bool ended();

  std::string output_, metrics_;
  pid_t launcher_ = -1;
  std::vector<pid_t> ranks_;
  int status_ = 0;
  bool ended_ = false;
};

}  // namespace trident
