#include "parallel/shared_memory/thread_world.h"

#include <sys/mman.h>

#include <cstdint>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "core/at.h"
#include "core/check.h"
#include "parallel/communicator/peer_failure.h"
#include "parallel/shared_memory/shared_memory_communicator.h"

namespace trident {

// The region of a world of threads: anonymous memory that costs nothing until it is touched.
class ThreadWorld::Shared {
 public:
  Shared(int ranks, double timeout_seconds)
      : region_(map(SharedWorld::region_bytes(ranks)), Unmap{SharedWorld::region_bytes(ranks)}),
        world_(lay_out(region_.get(), ranks), timeout_seconds, memory_) {}

  SharedWorld& world() { return world_; }

 private:
  struct Unmap {
    std::uint64_t bytes;
    void operator()(std::byte* region) const { munmap(region, bytes); }
  };
  static std::byte* map(std::uint64_t bytes) {
    void* region = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (region == MAP_FAILED)
      throw CommunicationError(
          fmt::format("cannot map {} bytes of address space for the ranks' control blocks; raise ulimit -v", bytes));
    return static_cast<std::byte*>(region);
  }
  static std::byte* lay_out(std::byte* region, int ranks) {
    SharedWorld::lay_out(region, SharedWorld::region_bytes(ranks), ranks);
    return region;
  }

  ThreadMemory memory_;
  std::unique_ptr<std::byte, Unmap> region_;
  SharedWorld world_;
};

ThreadWorld::ThreadWorld(int world_size, double timeout_seconds) : shared_(std::make_unique<Shared>(world_size, timeout_seconds)) {}

ThreadWorld::~ThreadWorld() = default;

int ThreadWorld::size() const { return shared_->world().size(); }

Doorbell& ThreadWorld::doorbell(int rank) { return shared_->world().doorbell(rank); }

std::unique_ptr<Communicator> ThreadWorld::communicator(int rank, Progress& progress) {
  return make_world_communicator(shared_->world(), rank, progress);
}

void ThreadWorld::fail(int rank, const std::string& why) { shared_->world().fail(fmt::format("rank {} failed: {}", rank, why)); }

namespace {

struct Outcome {
  std::exception_ptr error;
  bool is_consequence = false;  // a report of a peer's failure
};

Outcome run_rank(ThreadWorld& world, int rank, const std::function<void(int)>& body) {
  try {
    body(rank);
    return {};
  } catch (const PeerFailure&) {
    return {std::current_exception(), true};
  } catch (const std::exception& error) {
    world.fail(rank, error.what());
    return {std::current_exception(), false};
  } catch (...) {
    world.fail(rank, "an exception of unknown type");
    return {std::current_exception(), false};
  }
}

}  // namespace

void run_thread_ranks(ThreadWorld& world, const std::function<void(int rank)>& body) {
  std::vector<Outcome> outcomes(static_cast<std::size_t>(world.size()));
  std::vector<std::jthread> threads;
  std::string not_started;
  for (int r = 0; r < world.size() && not_started.empty(); ++r) {
    try {
      threads.emplace_back([&, r] { at(outcomes, r) = run_rank(world, r, body); });
    } catch (const std::system_error& error) {
      not_started =
          fmt::format("rank {} of {} got no thread: {}; raise ulimit -u or start fewer ranks", r, world.size(), error.what());
      world.fail(r, not_started);  // the ranks that did start are waiting for this one
    }
  }
  for (std::jthread& thread : threads) thread.join();
  if (!not_started.empty()) throw CommunicationError(not_started);

  for (const bool consequence : {false, true})
    for (const Outcome& outcome : outcomes)
      if (outcome.error && outcome.is_consequence == consequence) std::rethrow_exception(outcome.error);
}

}  // namespace trident
