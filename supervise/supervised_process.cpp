#include "supervise/supervised_process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "core/check.h"
#include "core/clock.h"
#include "core/file_descriptor.h"
#include "core/json_reader.h"
#include "core/process_status.h"
#include "train/run/stop_request.h"

namespace trident {
namespace {

constexpr int kStartMilliseconds = 2000;
constexpr std::array kHeld = {SIGTERM, SIGINT, SIGUSR1, SIGHUP, SIGCHLD};

// A signal that is blocked is kept although it is ignored, so that one which shall stay ignored must not be blocked.
bool stays_ignored(int signal) {
  struct sigaction action {};
  return (signal == SIGINT || signal == SIGHUP) && ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// In the child, before it becomes the command: calls that are safe there only. Returns if it cannot.
void become(char** arguments, pid_t supervisor, const sigset_t& mask) {
  ::setpgid(0, 0);
  // The supervisor may be gone already, and then nobody will send that signal.
  if (::prctl(PR_SET_PDEATHSIG, SIGTERM) != 0 || ::getppid() != supervisor) return;
  // Reading a terminal from outside its foreground group would stop the command.
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (nothing < 0 || ::dup2(nothing, STDIN_FILENO) < 0) return;
  ::signal(SIGTTOU, SIG_IGN);  // nor shall `stty tostop` when it writes to one
  for (const int signal : {SIGXFSZ, SIGPIPE}) ::signal(signal, SIG_DFL);  // main() ignores them for itself
  ::sigprocmask(SIG_SETMASK, &mask, nullptr);
  ::execvp(arguments[0], arguments);
}

// From /proc; those that ended and were not waited for count.
std::vector<pid_t> children_in(const std::string& list) {
  std::vector<pid_t> found;
  std::ifstream file(list);
  for (pid_t process; file >> process;) found.push_back(process);
  return found;
}

std::vector<pid_t> own_children() { return children_in("/proc/thread-self/children"); }

// The children of all its threads.
std::vector<pid_t> children_of(pid_t process) {
  std::vector<pid_t> found;
  std::error_code gone;
  for (std::filesystem::directory_iterator at(fmt::format("/proc/{}/task", process), gone), end; !gone && at != end;
       at.increment(gone))
    for (const pid_t child : children_in(at->path() / "children")) found.push_back(child);
  return found;
}

}  // namespace

HeldSignals::HeldSignals() {
  sigemptyset(&held_);
  for (const int signal : kHeld)
    if (!stays_ignored(signal)) sigaddset(&held_, signal);
  struct sigaction usual {};
  usual.sa_handler = SIG_DFL;  // ignored, as some parents leave it, ends of children would go unseen
  ::sigaction(SIGCHLD, &usual, &child_before_);
  ::pthread_sigmask(SIG_BLOCK, &held_, &before_);
}

HeldSignals::~HeldSignals() {
  // The rest of a request that was answered must not end the process in its place. wait() measures when a signal is taken.
  if (asked_at_ >= 0) wait_for_signal(*this, asked_at_ + kSameRequestSeconds - monotonic_seconds());
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  ::sigaction(SIGCHLD, &child_before_, nullptr);
}

std::optional<int> HeldSignals::wait(double seconds) const {
  const double whole = std::floor(seconds);
  const timespec limit{static_cast<time_t>(whole), static_cast<std::int64_t>((seconds - whole) * 1e9)};
  const int signal = ::sigtimedwait(&held_, nullptr, &limit);
  if (signal <= 0) return std::nullopt;
  if (signal == SIGCHLD) return signal;
  const double now = monotonic_seconds();
  if (now - asked_at_ < kSameRequestSeconds) return std::nullopt;
  asked_at_ = now;
  return signal;
}

std::optional<int> wait_for_signal(const HeldSignals& signals, double seconds) {
  const double until = monotonic_seconds() + seconds;
  do {
    const std::optional<int> signal = signals.wait(std::max(0.0, until - monotonic_seconds()));
    if (signal && *signal != SIGCHLD) return signal;
  } while (monotonic_seconds() < until);
  return std::nullopt;
}

SupervisedProcess::SupervisedProcess(const std::vector<std::string>& words, const HeldSignals& signals) : earlier_(own_children()) {
  TRIDENT_CHECK(!words.empty());
  std::vector<std::string> copies = words;
  std::vector<char*> arguments;
  for (std::string& word : copies) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  const auto refuse = [&words](int error) {
    throw ConfigError(
        fmt::format("trident supervise: {} cannot be started: {}; give the command as it is typed in a shell, after --",
                    in_quotes(words[0]), std::strerror(error)));
  };
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  std::array<int, 2> news{};  // closed by a successful exec, else the reason comes through it
  if (::pipe2(news.data(), O_CLOEXEC) != 0) refuse(errno);
  const pid_t supervisor = ::getpid();
  process_ = ::fork();
  if (process_ == 0) {
    become(arguments.data(), supervisor, signals.mask_before());
    const int error = errno;
    ::signal(SIGPIPE, SIG_IGN);  // who waited too long for this does not read it any more: the end is 127 then
    [[maybe_unused]] const ssize_t told = ::write(news[1], &error, sizeof error);
    ::_exit(127);
  }
  const int fork_error = errno;
  ::close(news[1]);
  int error = process_ < 0 ? fork_error : 0;
  if (process_ > 0) {
    ::setpgid(process_, process_);  // here too: whoever comes second finds it done
    // A disk that hangs may hold the exec: then the command's end says what became of it.
    pollfd told{news[0], POLLIN, 0};
    const int ready = uninterrupted([&] { return ::poll(&told, 1, kStartMilliseconds); });
    if (ready > 0 && ::read(news[0], &error, sizeof error) < 0) error = errno;
  }
  ::close(news[0]);
  if (error == 0) return;
  if (process_ > 0) ::waitpid(process_, nullptr, 0);
  refuse(error);
}

SupervisedProcess::~SupervisedProcess() {
  while (has_left_some() || !code_) {
    kill_all();
    ::usleep(1000);
  }
}

void SupervisedProcess::reap() {
  while (!none_left_) {
    int status = 0;
    const pid_t ended = ::waitpid(-1, &status, WNOHANG);
    if (ended < 0 && errno == EINTR) return;
    if (ended <= 0) none_left_ = ended < 0 || (!earlier_.empty() && processes().empty());
    if (ended == 0) return;
    std::erase(earlier_, ended);  // its number may be another's next
    if (ended == process_) code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
}

std::optional<int> SupervisedProcess::exit_code() {
  reap();
  return code_;
}

bool SupervisedProcess::has_left_some() {
  reap();
  return !none_left_;
}

std::vector<pid_t> SupervisedProcess::processes() const {
  std::vector<pid_t> found = own_children();
  std::erase_if(found, [this](pid_t child) { return std::ranges::count(earlier_, child) > 0; });
  return found;
}

std::optional<std::int64_t> SupervisedProcess::ticks_beside_the_dead() const {
  const std::vector<pid_t> children = children_of(process_);
  const auto lives = [](pid_t child) {
    const auto status = process_status(child);
    return status && !status->has_ended();
  };
  if (children.empty() || std::ranges::any_of(children, lives)) return std::nullopt;
  const auto status = process_status(process_);
  return status ? status->cpu_ticks : 0;
}

void SupervisedProcess::send(int signal) const { ::kill(-process_, signal); }

void SupervisedProcess::kill_all() {
  if (!none_left_) send(SIGKILL);
  for (const pid_t process : processes()) ::kill(process, SIGKILL);
}

}  // namespace trident
