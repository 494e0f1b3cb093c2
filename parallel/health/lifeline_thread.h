// The thread of a Lifeline: one loop over its connections. It does what other threads want of it in the order in which they ask.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "parallel/health/lifeline.h"
#include "parallel/health/lifeline_acceptor.h"
#include "parallel/health/lifeline_judge.h"
#include "parallel/health/lifeline_message.h"

namespace trident {

class LifelineThread {
 public:
  // Starts at once; a hub or deputy accepts calls from then on. CommunicationError when the system refuses.
  explicit LifelineThread(const LifelineOptions& options);
  ~LifelineThread();

  // A connection that this rank made.
  void connected(const LifelineHello& peer, LifelineChannel channel);
  void fail(LifelineTrouble trouble, const std::string& reason, int exit_code);
  void say_goodbye(int exit_code);

  const LifelineOptions& options() const { return options_; }
  StatusBoard& board() { return board_; }
  std::string contact() const { return contact_; }
  LifelineHello hello() const;  // without a nonce
  bool is_listener() const { return options_.rank == 0 || options_.rank == options_.deputy; }

  // The hub's key names the job.
  void set_job(const SipHashKey& key);
  // The ranks that have not called after `seconds`; returns early when there are none, or with a verdict.
  std::set<int> wait_for_calls(double seconds);
  // Why calls were refused by this end's system, or "".
  std::string refusal();
  std::optional<LifelineVerdict> wait_for_verdict(double seconds);
  void wait_for_goodbye(double seconds);
  // On the hub, after its goodbye: until no other rank is connected, or the line is said that names those that still are.
  void wait_for_the_last();

 private:
  struct Link {
    LifelineChannel channel;
    bool awaits_room = false;  // epoll reports when there is room to send
  };
  void post(std::function<void()> order);  // an empty one ends the thread
  void run();
  void watch();
  void give_up(const char* why) noexcept;
  bool wait_for_end(double seconds) noexcept;
  void dispatch(int fd);
  int milliseconds_to_next_duty() const;
  void advance_clock();

  void welcome(LifelineAcceptor::Arrival arrival);
  void adopt(const LifelineHello& peer, LifelineChannel channel);
  void open_door();

  void serve(int rank);
  void take(int rank, const LifelineMessage& message);
  void say(int rank, const LifelineMessage& message);
  void say_to_all(const LifelineMessage& message);
  LifelineHeartbeat heartbeat(bool is_answer);

  void obey_orders();
  void do_duties();
  void judge();
  void conclude();
  void pronounce(LifelineVerdict verdict);
  bool may_end() const;

  const LifelineOptions options_;
  StatusBoard board_;
  std::string contact_;

  // Shared with other threads.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::function<void()>> orders_;
  std::set<int> awaited_;  // ranks that have not called yet
  SipHashKey job_{};
  std::string refusal_;
  std::optional<LifelineVerdict> verdict_;
  bool goodbye_said_ = false, is_alone_ = false;

  // Only the thread uses these.
  FileDescriptor epoll_, wake_, claim_;
  std::optional<LifelineAcceptor> door_;  // while somebody is awaited
  LifelineJudge judge_;
  std::map<int, Link> links_;          // by rank
  std::map<int, int> rank_of_;         // by descriptor
  std::map<int, double> answers_due_;  // by the rank that asked
  double clock_ = 0, clock_read_at_ = 0;  // seconds during which this process ran; monotonic_seconds() of the last look
  double next_heartbeat_ = 0, progressed_at_ = 0;
  std::uint64_t progress_ = 0;
  CallMark::Look call_;       // at the last look
  double in_call_since_ = 0;  // when it was seen first
  std::optional<double> exit_at_, end_at_;
  int exit_code_ = 0;
  bool failed_self_ = false;
  std::thread thread_;
};

}  // namespace trident
