// What trident data leaves when it is stopped while it writes.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>

#include "core/file_io.h"
#include "tests/app/program.h"

extern char** environ;

namespace trident {
namespace {

class DataSignals : public ::testing::Test {
 protected:
  DataSignals() {
    std::string lines;
    while (lines.size() < std::size_t{20} << 20)
      lines += "{\"text\": \"In the beginning God created the heaven and the earth.\"}\n";
    write_file(folder_ / "long.jsonl", lines);
    write_file(folder_ / "short.jsonl", "{\"text\": \"one\"}\n");
  }

  std::vector<std::string> words(const std::string& input) const {
    return {"data", "prepare", "--tokenizer", "gpt2", "--input", folder_ / input, "--output", folder_ / "out"};
  }
  std::vector<std::string> temporaries() const {
    std::vector<std::string> names = folder_.names();
    std::erase_if(names, [](const std::string& name) { return name.find(".tmp.") == std::string::npos; });
    return names;
  }
  // Starts a long prepare, sends it `signal` once its temporary files are there, and returns its wait status and what it said. One
  // that had ended before shows nothing, and is tried again.
  int stop_by(int signal, std::string* said) {
    int status = 0;
    for (int tries = 0; tries < 10; ++tries) {
      status = stop_once_by(signal, said);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) break;
      for (const std::string& name : folder_.names())
        if (name.starts_with("out.")) remove_file(folder_ / name);
    }
    return status;
  }

  int stop_once_by(int signal, std::string* said) {
    std::vector<std::string> arguments = words("long.jsonl");
    arguments.insert(arguments.begin(), TRIDENT_BINARY);
    std::vector<char*> argv;
    for (std::string& word : arguments) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (folder_ / "said").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t process = 0;
    EXPECT_EQ(posix_spawn(&process, TRIDENT_BINARY, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    siginfo_t ended{};
    while (temporaries().empty() && ended.si_pid == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ::waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    ::kill(process, signal);
    int status = 0;
    EXPECT_EQ(::waitpid(process, &status, 0), process);
    *said = read_file(folder_ / "said");
    remove_file(folder_ / "said");
    return status;
  }

  TemporaryFolder folder_;
};

TEST_F(DataSignals, StoppedWithoutATrace) {
  for (const auto& [signal, name] : {std::pair{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}}) {
    std::string said;
    const int status = stop_by(signal, &said);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + signal) << status << said;
    EXPECT_EQ(said.rfind(std::string("trident: stopped by ") + name + ": no file was changed", 0), 0u) << said;
    EXPECT_EQ(folder_.names(), (std::vector<std::string>{"long.jsonl", "short.jsonl"}));
  }
}

TEST_F(DataSignals, WhatAKilledCommandLeavesGoesWithTheNext) {
  std::string said;
  const int status = stop_by(SIGKILL, &said);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_FALSE(temporaries().empty());
  succeeded(run_program(words("short.jsonl")));
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"long.jsonl", "out.bin", "out.idx", "out.trident.json", "short.jsonl"}));
}

}  // namespace
}  // namespace trident
