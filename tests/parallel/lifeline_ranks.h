// Ranks as forked processes, each with a lifeline, for tests that kill and stop them: what each prints and how it ends is seen
// here.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "parallel/health/lifeline.h"
#include "parallel/health/lifeline_message.h"

namespace trident {

// For tests of silence: more than a busy machine stops a process for, if rarely, and little to wait for.
constexpr double kSilence = 3;

void pause_for(double seconds);

struct ForkedRank {
  int rank;
  Lifeline& lifeline;
  const std::atomic<bool>& woken;  // on_failure was called
  const FileDescriptor& talk;      // to the test

  // Tells the test that what this rank has set so far is on its way to the others; takes two heartbeats.
  void settle() const;
  // Settles, and waits for LifelineJob::order().
  void await_order() const;
};

// A rank does this once it is connected; the process ends with what it returns, after the lifeline's destructor.
using RankBody = std::function<int(ForkedRank&)>;

// Pretends to train: step 17, in a collective that waits for rank `victim`, until the lifeline says that it is over.
int train_until_woken(ForkedRank& self, int victim);

struct RankEnd {
  bool ended = false;
  int exit_code = -1;  // -1: by `signal`
  int signal = 0;
};

// The lifelines of all ranks handed this out.
struct JobWords {
  std::vector<std::string> printed;    // to `print`
  std::vector<std::string> woken;      // to `on_failure`
};

class LifelineJob {
 public:
  // Forks the ranks and returns when all are connected. Options: a heartbeat of 0.2 s, and more silence than a busy machine
  // imposes, 6 s; `tune` may change a rank's.
  LifelineJob(int size, RankBody body, const std::function<void(LifelineOptions&)>& tune = {});
  ~LifelineJob();  // kills and reaps what is left
  LifelineJob(const LifelineJob&) = delete;
  LifelineJob& operator=(const LifelineJob&) = delete;

  int pid(int rank) const { return ranks_.at(static_cast<std::size_t>(rank)).pid; }
  void kill(int rank, int signal) const;
  // Waits until every rank has settled.
  void settle();
  void order(int rank) const;
  // Waits for the end of all ranks but `running`, 60 s at most.
  std::vector<RankEnd> wait(const std::vector<int>& running = {});
  JobWords words();

 private:
  struct Rank {
    int pid = 0;
    FileDescriptor talk;  // to the process
    std::string heard;    // lines of it
    RankEnd end;
  };
  void hear(Rank& rank, double deadline);  // something more; throws at the deadline
  std::string next_line(Rank& rank);       // waits for it; throws after 60 s
  [[noreturn]] void be_rank(int rank, int size, FileDescriptor talk, const RankBody& body,
                            const std::function<void(LifelineOptions&)>& tune);

  std::vector<Rank> ranks_;
};

// The seconds that a line gives behind its start: at least the limit, and the machine decides how many more. -1: another start.
double seconds_after(const std::string& start, const std::string& line);

// All ranks but `dead` ended by themselves with `code`.
void expect_all_end(const std::vector<RankEnd>& ends, const std::vector<int>& dead, int code = 76);
// One line was printed, and exactly the `woken` ranks were given it; the line.
std::string the_line(LifelineJob& job, std::size_t woken);
std::string who(const LifelineJob& job, int rank);

}  // namespace trident
