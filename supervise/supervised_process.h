// A command and all that it starts, as seen by who watches over it.
#pragma once

#include <sys/types.h>

#include <csignal>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trident {

// While alive, SIGTERM, SIGINT, SIGUSR1, SIGHUP and SIGCHLD to this process wait until they are asked for. Made by the only thread
// of a process; a SIGINT or SIGHUP that was ignored (a background job of a shell, nohup) stays ignored.
class HeldSignals {
 public:
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  // The next one; nothing if none came for so long, or one of the same request as the one before. SIGCHLD included.
  std::optional<int> wait(double seconds) const;
  const sigset_t& mask_before() const { return before_; }

 private:
  mutable double asked_at_ = -1;
  sigset_t held_{}, before_{};
  struct sigaction child_before_ {};
};

// Waits that long, ends of children passed over. The signal that asked to stop meanwhile; nothing if none did.
std::optional<int> wait_for_signal(const HeldSignals& signals, double seconds);

// A running command. Its processes are a group of their own, so that a terminal's Ctrl-C reaches the supervisor alone; its standard
// input is empty, its output is the supervisor's. Should the supervisor be killed, the command gets SIGTERM. What the command
// leaves behind when it ends becomes the supervisor's to wait for: two starts never overlap on this machine.
class SupervisedProcess {
 public:
  // ConfigError that names words[0] if it cannot be started. One at a time in a process.
  SupervisedProcess(const std::vector<std::string>& words, const HeldSignals& signals);
  // Kills what still runs.
  ~SupervisedProcess();
  SupervisedProcess(const SupervisedProcess&) = delete;
  SupervisedProcess& operator=(const SupervisedProcess&) = delete;

  // The exit code of the command itself, or 128 + signal; nothing while it runs. Does not wait.
  std::optional<int> exit_code();
  // Whether processes that it started live on. After its end. Does not wait.
  bool has_left_some();
  // The command and those that it left behind, as far as they have not ended.
  std::vector<pid_t> processes() const;

  // CPU ticks of the command so far, if it has child processes and all of them are dead: a launcher whose number then stays the
  // same waits for nothing that could come. Nothing if one lives, or it has none.
  std::optional<std::int64_t> ticks_beside_the_dead() const;

  void send(int signal) const;  // to the whole group
  void kill_all();              // and what has left the group, as far as it is an orphan

 private:
  void reap();

  pid_t process_ = -1;
  std::optional<int> code_;
  bool none_left_ = false;
  std::vector<pid_t> earlier_;  // children from before, which a disk that hangs may hold for ever: not of this command
};

}  // namespace trident
