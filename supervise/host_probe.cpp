#include "supervise/host_probe.h"

#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "core/check.h"
#include "core/clock.h"
#include "core/host_name.h"
#include "supervise/hostfile.h"

namespace trident {
namespace {

constexpr int kNoSuchName = 255;  // no error number

// The exit code of a probe by TCP: 0, an error number, or kNoSuchName. All addresses at once: the first may lead nowhere.
int connect_to(const std::string& host, int port) {
  addrinfo hints{}, *addresses = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &addresses) != 0) return kNoSuchName;
  std::vector<pollfd> tried;
  int error = EHOSTUNREACH;
  for (const addrinfo* at = addresses; at != nullptr; at = at->ai_next) {
    const int socket = ::socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, at->ai_protocol);
    if (socket >= 0 && ::connect(socket, at->ai_addr, at->ai_addrlen) == 0) return 0;
    if (socket >= 0 && errno == EINPROGRESS)
      tried.push_back({socket, POLLOUT, 0});
    else
      error = errno;
  }
  while (!tried.empty()) {
    if (::poll(tried.data(), tried.size(), -1) < 0 && errno != EINTR) return errno;
    for (std::size_t i = tried.size(); i-- > 0;) {
      if (tried[i].revents == 0) continue;
      int result = 0;
      socklen_t size = sizeof result;
      ::getsockopt(tried[i].fd, SOL_SOCKET, SO_ERROR, &result, &size);
      if (result == 0) return 0;
      error = result;
      tried.erase(tried.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return error;
}

bool is_this_machine(const std::string& host) {
  return host == "localhost" || host == "127.0.0.1" || host == "::1" || is_same_host(host, host_name());
}

class RunningProbe {
 public:
  RunningProbe(const std::string& host, const HostProbe& probe, const HeldSignals& signals) : probe_(probe) {
    if (probe.command.empty() && is_this_machine(host)) {
      fault_ = "";
      return;
    }
    const std::string command = with_placeholders(probe.command, {{"{host}", host}});
    const pid_t parent = ::getpid();
    process_ = ::fork();
    if (process_ == 0) run(host, command, parent, signals);
    if (process_ < 0)
      fault_ = fmt::format("no process could be started to ask it: {}", std::strerror(errno));
    else
      ::setpgid(process_, process_);
  }

  bool is_running() const { return !fault_; }
  const std::string& fault() const { return *fault_; }
  pid_t process() const { return process_; }

  void ended(int status) {
    const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (code == 0)
      fault_ = "";
    else if (!probe_.command.empty())
      fault_ = fmt::format("the probe ended with {}{}", code, code == 127 ? ", which means that its program is not found" : "");
    else if (code == kNoSuchName)
      fault_ = "its name is not known";
    else
      fault_ = fmt::format("port {}: {}", probe_.port, std::strerror(code));
  }
  void give_up() {
    ::kill(-process_, SIGKILL);
    fault_ = probe_.command.empty() ? fmt::format("no answer on port {} within {} s", probe_.port, probe_.seconds)
                                    : fmt::format("the probe took more than {} s", probe_.seconds);
  }

 private:
  [[noreturn]] void run(const std::string& host, const std::string& command, pid_t parent, const HeldSignals& signals) const {
    ::setpgid(0, 0);
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != parent) ::_exit(ESRCH);
    ::sigprocmask(SIG_SETMASK, &signals.mask_before(), nullptr);
    ::signal(SIGPIPE, SIG_DFL);  // main() ignores it for itself
    if (command.empty()) ::_exit(connect_to(host, probe_.port));
    const int nothing = ::open("/dev/null", O_RDWR);
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nothing, stream);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
    ::_exit(127);
  }

  const HostProbe& probe_;
  pid_t process_ = -1;
  std::optional<std::string> fault_;  // nothing while it runs
};

}  // namespace

std::string with_placeholders(std::string_view text, const Placeholders& values) {
  std::string out;
  while (!text.empty()) {
    const auto here = std::ranges::find_if(values, [text](const auto& value) { return text.starts_with(value.first); });
    out += here == values.end() ? std::string(1, text.front()) : here->second;
    text.remove_prefix(here == values.end() ? 1 : here->first.size());
  }
  return out;
}

ProbeResult probe_hosts(const std::vector<std::string>& hosts, const HostProbe& probe, const HeldSignals& signals) {
  std::vector<RunningProbe> probes;
  for (const std::string& host : hosts) probes.emplace_back(host, probe, signals);
  const auto reap = [&probes] {
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, WNOHANG)) > 0;)
      if (const auto of = std::ranges::find(probes, ended, &RunningProbe::process); of != probes.end()) of->ended(status);
  };
  ProbeResult result;
  const double until = monotonic_seconds() + probe.seconds;
  for (reap(); std::ranges::any_of(probes, &RunningProbe::is_running) && !result.stop_signal; reap()) {
    const double left = until - monotonic_seconds();
    if (left <= 0) break;
    const std::optional<int> signal = signals.wait(left);
    if (signal && *signal != SIGCHLD) result.stop_signal = signal;
  }
  for (RunningProbe& running : probes)
    if (running.is_running()) running.give_up();
  // A disk that hangs may hold some: then whoever waits for children next hears of their end.
  for (int looks = 0, ended = 0; looks < 100 && (ended = ::waitpid(-1, nullptr, WNOHANG)) >= 0;)
    if (ended == 0) ++looks, ::usleep(10'000);
  if (result.stop_signal) return result;
  for (const RunningProbe& ended : probes) result.faults.push_back(ended.fault());
  return result;
}

}  // namespace trident
