#include "tests/parallel/lifeline_ranks.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/clock.h"

namespace trident {
namespace {

constexpr double kPatienceSeconds = 60;  // with a test that is about to fail
constexpr std::string_view kSettled = "settled \n";

void say(const FileDescriptor& talk, std::string_view kind, std::string_view text) {
  const std::string line = fmt::format("{} {}\n", kind, text);
  [[maybe_unused]] const ssize_t sent = send(talk.get(), line.data(), line.size(), MSG_NOSIGNAL);
}

std::string read_line(const FileDescriptor& talk) {
  std::string line;
  for (char c; recv(talk.get(), &c, 1, 0) == 1 && c != '\n';) line += c;
  return line;
}

}  // namespace

void pause_for(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Counted in turns of this thread: where the machine stops the process, its lifeline's heartbeats wait as long as this does.
void ForkedRank::settle() const {
  for (int turn = 0; turn < 20; ++turn) pause_for(0.02);
  say(talk, "settled", "");
}

void ForkedRank::await_order() const {
  settle();
  read_line(talk);
}

int train_until_woken(ForkedRank& self, int victim) {
  StatusBoard& board = self.lifeline.board();
  board.set_phase(RunPhase::kTraining);
  board.set_step(17);
  board.set_operation("tp", "all_reduce", 42);
  const double start = monotonic_seconds();
  for (int turn = 0; !self.woken; ++turn) {
    if (self.rank != victim)
      board.set_waiting(fmt::format("all_reduce #42 over tp: waiting for rank {}", victim), monotonic_seconds() - start);
    pause_for(0.02);
    if (turn == 20) say(self.talk, "settled", "");  // as settle() does, while it waits
  }
  return self.lifeline.wait_for_verdict(1)->exit_code;
}

LifelineJob::LifelineJob(int size, RankBody body, const std::function<void(LifelineOptions&)>& tune) {
  for (int r = 0; r < size; ++r) {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) throw std::runtime_error("no socket pair");
    FileDescriptor here(ends[0]), there(ends[1]);
    const int pid = fork();
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      ranks_.clear();
      here = FileDescriptor();
      be_rank(r, size, std::move(there), body, tune);
    }
    ranks_.push_back({pid, std::move(here), "", {}});
  }
  std::string contacts;
  for (Rank& rank : ranks_) contacts += next_line(rank) + "\n";
  for (Rank& rank : ranks_) send(rank.talk.get(), contacts.data(), contacts.size(), MSG_NOSIGNAL);
  for (Rank& rank : ranks_)
    if (const std::string line = next_line(rank); line != "connected ") throw std::runtime_error("not connected: " + line);
  // Nobody begins before: a rank that leaves at once would be reported by others that have not said so yet.
  for (Rank& rank : ranks_) send(rank.talk.get(), "begin\n", 6, MSG_NOSIGNAL);
}

LifelineJob::~LifelineJob() {
  for (Rank& rank : ranks_) {
    if (rank.end.ended) continue;
    ::kill(rank.pid, SIGKILL);
    waitpid(rank.pid, nullptr, 0);
  }
}

void LifelineJob::be_rank(int rank, int size, FileDescriptor talk, const RankBody& body,
                          const std::function<void(LifelineOptions&)>& tune) {
  int code = 99;
  try {
    std::atomic<bool> woken{false};
    LifelineOptions options;
    options.rank = rank;
    options.size = size;
    options.host = "h";
    options.heartbeat_seconds = 0.2;
    options.silence_seconds = 6;
    options.print = [&](const LifelineVerdict& verdict) { say(talk, "printed", verdict.line); };
    options.on_failure = [&](const LifelineVerdict& verdict) {
      say(talk, "woken", verdict.line);
      woken = true;
    };
    if (tune) tune(options);
    Lifeline lifeline(options);
    const std::string contact = lifeline.contact() + "\n";
    send(talk.get(), contact.data(), contact.size(), MSG_NOSIGNAL);
    std::vector<std::string> contacts;
    for (int r = 0; r < size; ++r) contacts.push_back(read_line(talk));
    const auto deputy = static_cast<std::size_t>(options.deputy);
    lifeline.connect({contacts[0], deputy < contacts.size() ? contacts[deputy] : ""});
    say(talk, "connected", "");
    read_line(talk);
    ForkedRank self{rank, lifeline, woken, talk};
    code = body(self);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
  }
  _exit(code);
}

void LifelineJob::hear(Rank& rank, double deadline) {
  pollfd descriptor{rank.talk.get(), POLLIN, 0};
  std::array<char, 4096> chunk;
  ssize_t got = -1;
  if (poll(&descriptor, 1, 100) == 1) got = recv(rank.talk.get(), chunk.data(), chunk.size(), 0);
  if (got == 0 || monotonic_seconds() > deadline) throw std::runtime_error("a rank said nothing");
  if (got > 0) rank.heard.append(chunk.data(), static_cast<std::size_t>(got));
}

std::string LifelineJob::next_line(Rank& rank) {
  const double deadline = monotonic_seconds() + kPatienceSeconds;
  while (rank.heard.find('\n') == std::string::npos) hear(rank, deadline);
  const std::size_t end = rank.heard.find('\n');
  const std::string line = rank.heard.substr(0, end);
  rank.heard.erase(0, end + 1);
  return line;
}

void LifelineJob::settle() {
  const double deadline = monotonic_seconds() + kPatienceSeconds;
  for (Rank& rank : ranks_)
    while (rank.heard.find(kSettled) == std::string::npos) hear(rank, deadline);
}

void LifelineJob::order(int rank) const { send(ranks_.at(static_cast<std::size_t>(rank)).talk.get(), "now\n", 4, MSG_NOSIGNAL); }

void LifelineJob::kill(int rank, int signal) const { ::kill(pid(rank), signal); }

std::vector<RankEnd> LifelineJob::wait(const std::vector<int>& running) {
  const double deadline = monotonic_seconds() + kPatienceSeconds;
  const auto is_over = [&] {
    bool over = true;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      RankEnd& end = ranks_[r].end;
      int status = 0;
      if (!end.ended && waitpid(ranks_[r].pid, &status, WNOHANG) == ranks_[r].pid) {
        end.ended = true;
        if (WIFEXITED(status)) end.exit_code = WEXITSTATUS(status);
        else end.signal = WTERMSIG(status);
      }
      over = over && (end.ended || std::count(running.begin(), running.end(), static_cast<int>(r)) != 0);
    }
    return over;
  };
  while (!is_over() && monotonic_seconds() < deadline) pause_for(0.005);
  std::vector<RankEnd> ends;
  for (const Rank& rank : ranks_) ends.push_back(rank.end);
  return ends;
}

JobWords LifelineJob::words() {
  JobWords words;
  for (Rank& rank : ranks_) {
    std::array<char, 4096> chunk;
    for (ssize_t got; (got = recv(rank.talk.get(), chunk.data(), chunk.size(), MSG_DONTWAIT)) > 0;)
      rank.heard.append(chunk.data(), static_cast<std::size_t>(got));
    while (rank.heard.find('\n') != std::string::npos) {
      const std::string line = next_line(rank);
      const std::size_t space = line.find(' ');
      if (line == "settled ") continue;
      (line.substr(0, space) == "printed" ? words.printed : words.woken).push_back(line.substr(space + 1));
    }
  }
  return words;
}

double seconds_after(const std::string& start, const std::string& line) {
  return line.starts_with(start) ? std::strtod(line.c_str() + start.size(), nullptr) : -1;
}

void expect_all_end(const std::vector<RankEnd>& ends, const std::vector<int>& dead, int code) {
  for (std::size_t r = 0; r < ends.size(); ++r) {
    if (std::count(dead.begin(), dead.end(), static_cast<int>(r)) != 0) continue;
    EXPECT_TRUE(ends[r].ended) << "rank " << r;
    EXPECT_EQ(ends[r].exit_code, code) << "rank " << r << ", signal " << ends[r].signal;
  }
}

std::string the_line(LifelineJob& job, std::size_t woken) {
  const JobWords words = job.words();
  EXPECT_EQ(words.printed.size(), 1u);
  EXPECT_EQ(words.woken.size(), woken);
  if (words.printed.empty()) return "";
  for (const std::string& line : words.woken) EXPECT_EQ(line, words.printed[0]);
  return words.printed[0];
}

std::string who(const LifelineJob& job, int rank) { return fmt::format("rank {} (host h, pid {})", rank, job.pid(rank)); }

}  // namespace trident
