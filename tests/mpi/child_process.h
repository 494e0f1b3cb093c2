// A part of a test in a process of its own.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <exception>
#include <functional>

namespace trident {

class ChildProcess {
 public:
  // Runs `body` in a copy of this process, which ends well if it returns true and throws nothing.
  explicit ChildProcess(const std::function<bool()>& body) : id_(fork()) {
    if (id_ != 0) return;
    bool good = false;
    try {
      good = body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child process: %s\n", error.what());
    }
    _exit(good ? 0 : 1);
  }
  ~ChildProcess() {
    if (!waited_) wait();
  }
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  pid_t id() const { return id_; }
  bool ended() const {
    siginfo_t end{};
    return waitid(P_PID, static_cast<id_t>(id_), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == id_;
  }
  // Whether it ended well.
  bool wait() {
    int status = 0;
    waited_ = true;
    return waitpid(id_, &status, 0) == id_ && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }

 private:
  pid_t id_;
  bool waited_ = false;
};

// For a child process: at most so much of a resource.
inline void limit(__rlimit_resource resource, rlim_t most) {
  const rlimit both{most, most};
  ASSERT_EQ(setrlimit(resource, &both), 0);
}

}  // namespace trident
