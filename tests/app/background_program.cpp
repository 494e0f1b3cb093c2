#include "tests/app/background_program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/clock.h"
#include "core/file_io.h"
#include "core/process_status.h"

namespace trident {

BackgroundProgram::BackgroundProgram(std::vector<std::string> arguments, std::vector<std::string> launcher) {
  arguments.insert(arguments.begin(), TRIDENT_BINARY);
  arguments.insert(arguments.begin(), launcher.begin(), launcher.end());
  std::vector<char*> words;
  for (std::string& word : arguments) words.push_back(word.data());
  words.push_back(nullptr);
  const std::string out = streams_ / "out", err = streams_ / "err";
  process_ = fork();
  if (process_ != 0) return;
  dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDOUT_FILENO);
  dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), STDERR_FILENO);
  execvp(words[0], words.data());
  _exit(127);
}

BackgroundProgram::~BackgroundProgram() {
  if (ended()) return;
  for (const pid_t process : descendants_of(process_)) kill(process, SIGKILL);
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

bool BackgroundProgram::ended() {
  if (!ended_) ended_ = waitpid(process_, &status_, WNOHANG) == process_;
  return ended_;
}

int BackgroundProgram::wait_to_end(double seconds) {
  if (!within(seconds, [&] { return ended(); })) return -1;
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

std::string BackgroundProgram::out() const { return file_exists(streams_ / "out") ? read_file(streams_ / "out") : ""; }
std::string BackgroundProgram::err() const { return file_exists(streams_ / "err") ? read_file(streams_ / "err") : ""; }

int BackgroundProgram::steps_said() const {
  const std::string text = out();
  int count = 0;
  for (std::size_t at = 0; (at = text.find("] step ", at)) != std::string::npos; ++at) ++count;
  return count;
}

bool within(double seconds, const std::function<bool()>& ready) {
  for (const double give_up = monotonic_seconds() + seconds; monotonic_seconds() < give_up;) {
    if (ready()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return ready();
}

std::vector<pid_t> descendants_of(pid_t process) {
  std::vector<pid_t> found;
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), gone)) {
    std::ifstream list(task.path() / "children");
    for (pid_t child; list >> child;) found.push_back(child);
  }
  const std::vector<pid_t> children = found;
  for (const pid_t child : children)
    for (const pid_t below : descendants_of(child)) found.push_back(below);
  return found;
}

bool is_running(pid_t process) {
  const auto status = process_status(process);
  return status && !status->has_ended();
}

}  // namespace trident
