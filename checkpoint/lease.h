// One run at a time in a folder of checkpoints: the lease, which says whose turn it is.
//
// The folder has a file "lease-00000007.json" for turn (generation) 7: who has it, and a counter that a thread advances while the
// run lives, also while a step lasts minutes. The next turn is the file of the next number, which only one process can make. So the
// highest number counts, and whoever was thought dead and is not finds that number when it commits, and ends.
//
// A holder is dead when it says that it is done; on the watcher's host when its process is gone; elsewhere when its counter stays
// as it is for 15 s of the watcher's clock. A start with the holder's own token waits for nobody: who gave it out knows that the
// holder is gone.
//
// Whoever saves much later does not advance the counter until then: while it is at 0 the writer's lock of the file shows that its
// holder lives, where the file system has such locks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace trident {

// Which process has a lease, and whether it still lives, as far as another process can tell.
struct LeaseHolder {
  std::string token;                      // who starts a run again hands the same one to each start
  std::string host, boot, pid_namespace;  // "" where the kernel does not say
  std::int64_t pid = 0, started = 0;  // started: clock ticks after the boot, so that a reused pid is another process; 0: unknown
  bool operator==(const LeaseHolder&) const = default;
};

LeaseHolder this_process(std::string token);

enum class HolderState : std::uint8_t {
  kAlive,
  kDead,
  kElsewhere,  // on another host, before a reboot, in another process namespace, or hidden from this process: only what it writes
               // shows that it lives
};
// As `watcher`, which is the process that asks, sees it.
HolderState state_of(const LeaseHolder& holder, const LeaseHolder& watcher);

// "pid 4711 on n1".
std::string describe(const LeaseHolder& holder);

// Who starts a run again sets these variables of its environment to the same token each time. The second one is for ranks of other
// nodes: of an environment, Open MPI's mpirun takes along what begins with OMPI_. Slurm's srun takes all.
inline constexpr std::array kLeaseTokenVariables{"TRIDENT_LEASE_TOKEN", "OMPI_TRIDENT_LEASE_TOKEN"};
// The token that the environment has under one of these names, if any.
std::optional<std::string> lease_token_given();

// "lease-00000007.json".
std::string lease_name(std::int64_t generation);

// The content of a lease file.
struct LeaseRecord {
  LeaseHolder holder;
  std::int64_t generation = 0;
  bool done = false;
  std::int64_t counter = 0;
};
std::string to_text(const LeaseRecord& record);
// Nothing if it is none, or not whole.
std::optional<LeaseRecord> lease_from(const std::string& text);

// The record of the newest turn in `directory`; nothing where there is none, or none that can be read.
std::optional<LeaseRecord> newest_lease(const std::string& directory);

struct LeaseOptions {
  double renew_seconds = 3;      // between two advances of the counter
  double patience_seconds = 15;  // a counter that stays so long is that of a dead holder; the same for all runs of a folder
  double ending_seconds = 2;     // a holder that lives is given so long to end; one that was killed takes a while to be gone
  double release_seconds = 10;   // the end waits so long for the disk to take that it is done
  bool renews = true;            // from the start; else from renew() on
  std::function<void(const std::string& line)> say = {};  // before it waits, from the thread that takes
  std::function<void(std::string_view line)> warn = {};   // from the lease's thread, and where it ends; not after that
};

class Lease {
 public:
  // Takes the next turn in `directory`, which is there. ConfigError while another run has it, also after ending_seconds, with its
  // host, pid and a remedy; StorageError if the file cannot be made. Waits up to patience_seconds for a sign of life of a holder
  // elsewhere.
  Lease(std::string directory, std::string token, LeaseOptions options = {});
  // Says that it is done; a killed process leaves it as it is, and so does one whose disk hangs for release_seconds: no checkpoint
  // depends on it, and the next start waits as it does for a dead holder.
  ~Lease();
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  // For a lease that was not renewed until now. False where it is lost, as check() finds out.
  bool renew();

  // Throws ConfigError if another run has taken the folder over, StorageError if somebody removed the lease, with the folder or
  // alone. Asks the file system.
  void check();
  // Throws as check() does if that was seen since: the lease's thread looks every few seconds. Asks nobody.
  void refuse_if_lost() const;

  // Where the start is refused after all: as if this turn had never been. Only of a folder in which nothing was done.
  void withdraw();

 private:
  struct Turn;  // what the lease's thread works on; outlives the lease where the disk hangs

  bool try_to_take();
  void wait_for_end_of(std::int64_t generation) const;
  bool stop_renewing(bool release);

  const std::string directory_;
  const LeaseOptions options_;
  LeaseHolder self_;
  std::shared_ptr<Turn> turn_;
  bool withdrawn_ = false;
  std::thread thread_;
};

}  // namespace trident
