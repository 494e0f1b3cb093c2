// The judge concludes from messages who is in trouble, who speaks for the job, and the line to print. No sockets, no clock:
// times are given, in seconds during which this process ran.
#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/named_enum.h"
#include "parallel/communicator/status_board.h"

namespace trident {

// Why a rank is in trouble; where ranks have different reasons, the later in this list is the cause of the others.
enum class LifelineTrouble : std::uint8_t {
  kNone,
  kLeft,    // ended without goodbye and without a reason
  kStuck,   // in a call of the message library that returns at once where nobody interferes
  kSilent,  // stopped, or cut off
  kFailed,  // by an exception
  kLost     // its connection closed: killed or crashed
};
template <>  // what a rank did
inline constexpr std::array<std::string_view, 6> kNamesOf<LifelineTrouble>{
    "is well", "left before the job's end", "has stood in a call of the message library", "was stopped or cannot be reached",
    "failed", "was killed or crashed"};

// A rank as last heard.
struct LifelineRank {
  int rank = -1;
  std::int64_t pid = 0;
  std::string host;
  RankStatus status;
  double idle_seconds = 0;  // without progress, as it said itself
  double heard_at = 0;
  bool open = true;         // the connection
  bool finished = false;    // it said goodbye
  bool answered = false;    // since everybody was asked
  LifelineTrouble trouble = LifelineTrouble::kNone;
  std::string reason;  // of kFailed
  int exit_code = exit_status(ExitCode::kCommunication);
};

// "0-3, 7", "0-4092 step 4"; what would be long ends with "and 812 more".
std::string rank_list(const std::vector<int>& sorted_ranks);
// The job's last line; its first cause is the rank with the gravest trouble, the lowest of several. `ranks`: all that are known.
std::string lifeline_line(const std::vector<LifelineRank>& ranks, double now, int exit_code);
// The last line of a job whose ranks have done all they had to, and have not parted for `seconds`; `speaker` says it.
std::string parting_line(const std::vector<LifelineRank>& ranks, int speaker, double now, double seconds, int exit_code);

struct LifelineJudgeOptions {
  int rank = 0, deputy = 1;
  std::int64_t pid = 0;
  std::string host;
  double silence_seconds = 8;
  double parting_seconds = 8;
};

class LifelineJudge {
 public:
  explicit LifelineJudge(const LifelineJudgeOptions& options);

  // Messages of peers arrive here. Ranks that are not known are ignored, except by join().
  void join(int rank, std::int64_t pid, std::string host, double now);
  void heard(int rank, const RankStatus& status, double idle_seconds, bool is_answer, double now);
  void trouble(int rank, LifelineTrouble kind, std::string reason, int exit_code);
  void goodbye(int rank);
  void closed(int rank);
  const std::map<int, LifelineRank>& peers() const { return peers_; }

  // This rank itself.
  void update_self(const RankStatus& status, double idle_seconds);
  void fail_self(LifelineTrouble kind, std::string reason, int exit_code);
  // It has nothing left to do but to part from the others, and its process is to end with this code.
  void finish_self(int exit_code);

  enum class Step : std::uint8_t {
    kNothing,
    kAsk,       // somebody is in trouble and this rank speaks for the job: ask all peers what they wait for
    kConclude,  // answers have had their time: line() is final
  };
  Step step(double now);
  // When step() wants to be called again at the latest.
  double next_step(double now) const;
  // Neither hub nor deputy is left, so several survivors may conclude at once.
  bool is_one_of_many() const { return options_.rank != 0 && options_.rank != options_.deputy; }

  // Somebody is in trouble; else a conclusion is that the ranks do not part.
  bool any_trouble() const { return self_.trouble != LifelineTrouble::kNone || num_troubled_ > 0; }
  int exit_code() const;
  std::string line(double now) const;
  std::optional<LifelineRank> cause() const;  // the rank that line() begins with, if any is in trouble

  static constexpr double kAnswerSeconds = 0.11;   // from being asked: a rank knows what it waits for after 0.1 s
  static constexpr double kCollectSeconds = 0.18;  // from asking to the line
  static constexpr double kPatienceSeconds = 1.5;  // for a deputy that says nothing about a lost hub

 private:
  bool is_out(int rank, double now) const;
  bool speaks(double now) const;
  bool all_answered() const;
  bool all_finished() const { return self_.finished && num_at_work_ == 0; }
  std::vector<LifelineRank> everybody() const;
  void find_the_silent(double now);
  Step parting_step(double now);
  void set_trouble(LifelineRank& peer, LifelineTrouble kind);
  void no_longer_expected(int rank);

  LifelineJudgeOptions options_;
  std::map<int, LifelineRank> peers_;
  LifelineRank self_;
  // Peers that must be heard of, longest silence first. All may be silent for equally long, so the first is the next to be missed,
  // and hearing of one costs the same however many there are: no heap is needed.
  std::list<int> by_silence_;
  std::map<int, std::list<int>::iterator> place_;
  int num_troubled_ = 0;  // peers
  int num_at_work_ = 0;   // peers that are connected and have not said goodbye
  std::optional<double> trouble_since_, asked_at_, finished_since_;
  bool concluded_ = false;
};

}  // namespace trident
