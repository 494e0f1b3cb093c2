#include "tests/mpi/launched_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>

#include "core/file_io.h"
#include "tests/app/background_program.h"

namespace trident {
namespace {

constexpr double kPatience = 150;

// The number that Open MPI gave to a process; -1 for another process.
int rank_of(pid_t process) {
  std::ifstream environment("/proc/" + std::to_string(process) + "/environ");
  for (std::string variable; std::getline(environment, variable, '\0');) {
    const std::string name = "OMPI_COMM_WORLD_RANK=";
    if (variable.starts_with(name)) return std::stoi(variable.substr(name.size()));
  }
  return -1;
}

}  // namespace

LaunchedJob::LaunchedJob(const Workplace& place, const std::string& name, int ranks, std::vector<std::string> settings,
                         const std::vector<std::string>& before)
    : output_(place / (name + ".log")), metrics_(place / (name + "/metrics.jsonl")), ranks_(static_cast<std::size_t>(ranks), -1) {
  settings.push_back("run.dir=" + (place / name));
  std::vector<std::string> words{TRIDENT_SOURCE_DIR "/scripts/mpirun_local", std::to_string(ranks)};
  words.insert(words.end(), before.begin(), before.end());
  words.insert(words.end(), {TRIDENT_BINARY, "train", "--config", place / "config.json"});
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  launch(std::move(words), place / (name + ".tmp"));
}

LaunchedJob::LaunchedJob(const std::string& place, const std::string& name, int ranks, const std::vector<std::string>& arguments)
    : output_(place + "/" + name + ".log"), ranks_(static_cast<std::size_t>(ranks), -1) {
  launch(plus({TRIDENT_SOURCE_DIR "/scripts/mpirun_local", std::to_string(ranks), TRIDENT_BINARY}, arguments),
         place + "/" + name + ".tmp");
}

void LaunchedJob::launch(std::vector<std::string> words, const std::string& scratch) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::filesystem::create_directory(scratch);
  launcher_ = fork();
  if (launcher_ != 0) return;
  setenv("TMPDIR", scratch.c_str(),
         1);  // where Open MPI keeps a folder for every job; jobs that start at once get in each other's way
  setpgid(0, 0);
  const int log = open(output_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  execv(arguments[0], arguments.data());
  _exit(127);
}

LaunchedJob::~LaunchedJob() {
  if (ended()) return;
  for (const pid_t process : children()) kill(process, SIGKILL);
  kill(launcher_, SIGKILL);
  waitpid(launcher_, nullptr, 0);
}

std::vector<pid_t> LaunchedJob::children() const {
  std::vector<pid_t> found;
  const std::filesystem::path tasks = "/proc/" + std::to_string(launcher_) + "/task";
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(tasks, gone)) {
    std::ifstream list(task.path() / "children");
    for (pid_t process; list >> process;) found.push_back(process);
  }
  return found;
}

bool LaunchedJob::wait_for_ranks() {
  return within(kPatience, [&] {
    for (const pid_t process : children())
      if (const int number = rank_of(process); number >= 0 && number < static_cast<int>(ranks_.size()))
        ranks_[static_cast<std::size_t>(number)] = process;
    return ended() || std::count(ranks_.begin(), ranks_.end(), -1) == 0;
  }) && !ended();
}

bool LaunchedJob::wait_for_steps(int steps) {
  if (!wait_for_ranks()) return false;
  return within(kPatience, [&] { return ended() || steps_logged() >= steps; }) && !ended();
}

int LaunchedJob::steps_logged() const {
  std::ifstream metrics(metrics_);
  return static_cast<int>(std::count(std::istreambuf_iterator<char>(metrics), {}, '\n'));
}

bool LaunchedJob::wait_for_text(const std::string& text, double seconds) {
  return within(seconds, [&] { return said().find(text) != std::string::npos || ended(); }) &&
         said().find(text) != std::string::npos;
}

bool LaunchedJob::ended() {
  if (!ended_) ended_ = waitpid(launcher_, &status_, WNOHANG) == launcher_;
  return ended_;
}

int LaunchedJob::wait_to_end(double seconds) {
  if (!within(seconds, [&] { return ended(); })) return -1;
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

std::string LaunchedJob::said() const { return read_file(output_); }

std::string LaunchedJob::survivors(double seconds) const {
  within(seconds, [&] { return std::none_of(ranks_.begin(), ranks_.end(), is_running); });
  std::string text;
  for (std::size_t r = 0; r < ranks_.size(); ++r)
    if (is_running(ranks_[r])) text += fmt::format("rank {} (pid {}) ", r, ranks_[r]);
  return text;
}

}  // namespace trident
