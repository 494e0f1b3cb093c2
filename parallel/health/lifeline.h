// Noticing that another rank died: a small thread in each process of a job, beside training and with no lock in common with it.
//
// Rank 0 is the hub: every other rank holds a connection to it (a Unix socket in a job of one node, which then has no open port;
// TCP between nodes) and sends its status once a heartbeat. A connection that closes without a goodbye is a process that was killed
// or crashed, a silent one a process that was stopped or cut off, and a rank that catches an exception says so itself. The hub then
// asks everybody what they are waiting for, prints one line for the whole job, and tells every rank; each wakes its training
// thread, and ends the process after a grace period if it has not ended by itself.
//
// The deputy, preferably on another node, is connected to everybody too and takes over when the hub is lost. When both are, the
// survivors of each node print one line together.
//
// A rank that stands in a call of the message library for as long as one may be silent is in trouble, too: such calls do not wait,
// so somebody else holds it. After everybody's goodbye nothing is a failure any more; ranks that then do not part are ended with
// the exit code of their training.
//
// Silence is counted in time during which the observer itself ran, so a process that was stopped and continued, or a suspended
// machine, blames nobody.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "parallel/communicator/call_mark.h"
#include "parallel/communicator/status_board.h"
#include "parallel/health/lifeline_listener.h"

namespace trident {

struct LifelineVerdict {
  std::string line;    // who, what, where, what the others waited for, exit code; printed once in the job, by one rank
  int exit_code = exit_status(ExitCode::kCommunication);  // every process ends with it
  bool is_failure = true;  // else all ranks had said goodbye
  // The first cause of a failure, known to the one rank that printed the line; -1 on all others.
  int rank = -1;
  std::string host = {}, what = {};  // of that rank; "was killed or crashed"
  std::int64_t step = 0;             // that it was in; 0: before the first
};

struct LifelineOptions {
  int rank = 0, size = 1;
  int deputy = 1;    // see lifeline_deputy(); equal on all ranks
  std::string host;  // of this process, for messages
  LifelineReach reach = LifelineReach::kNetwork;
  InterfaceChoice interfaces;       // where hub and deputy listen, with kNetwork
  const CallMark* calls = nullptr;  // of the training thread, if it marks its calls; outlives the lifeline
  double heartbeat_seconds = 1;
  double silence_seconds = 8;   // without a heartbeat until a rank counts as stopped; several heartbeats
  double grace_seconds = 2;     // from the verdict until a process that is still there is ended
  double parting_seconds = 8;   // from everybody's goodbye until ranks that are still there are told to end; more with many ranks
  double connect_seconds = 10;  // for connect(); see lifeline_connect_seconds()
  // Both are called on the lifeline's thread, at most once. `print` on the one rank that speaks for the job, before `on_failure`.
  std::function<void(const LifelineVerdict&)> print;
  // Wakes the training thread; must return soon. Not called on a rank that reported its own failure.
  std::function<void(const LifelineVerdict&)> on_failure;
};

// The contacts of those who listen; the deputy's is "" where there is none.
struct LifelineContacts {
  std::string hub, deputy = {};
};

// The lowest rank on another node than rank 0, or 1. nodes[r]: the node of rank r.
int lifeline_deputy(const std::vector<int>& nodes);

class LifelineThread;

class Lifeline {
 public:
  // Starts listening where this rank is the hub or the deputy. CommunicationError when the system refuses.
  explicit Lifeline(LifelineOptions options);
  // Ends the thread. Without goodbye() and without a verdict the others learn that this rank left. Until here the grace period
  // runs: keep the object as long as the process may hang. After goodbye() the hub waits until the other processes have ended too,
  // or have had parting_seconds for that.
  ~Lifeline();
  Lifeline(const Lifeline&) = delete;
  Lifeline& operator=(const Lifeline&) = delete;

  // A line of text to give to every rank and nobody else, "" where this rank does not listen: addresses, and a key.
  std::string contact() const;
  // Returns when this rank is connected, on hub and deputy when all ranks are; from then on deaths
  // are noticed. All ranks call it at about the same time. CommunicationError that names the addresses tried, or the ranks that did
  // not come, and the remedy; PeerFailure when a verdict fell meanwhile.
  void connect(const LifelineContacts& contacts);

  StatusBoard& board();

  // This rank's training ended by an exception that is not a peer's doing. Returns when the line is printed (true) or after a
  // second (false: the caller should print its own). The others end with `exit_code`.
  bool report_failure(std::string_view reason, int exit_code = exit_status(ExitCode::kCommunication));
  // After the last collective of the job and the last file: from now on this rank may end, with this code. It still obeys verdicts
  // while the object lives.
  void goodbye(int exit_code = 0);
  // The verdict over the job, once its line is printed; waits for it up to `seconds`. For a rank that ends because of its peers.
  std::optional<LifelineVerdict> wait_for_verdict(double seconds);

 private:
  std::unique_ptr<LifelineThread> thread_;  // none in a job of one rank, whose board nobody reads
  StatusBoard board_;
  bool connected_ = false, said_goodbye_ = false;
};

}  // namespace trident
