// This process as a rank of a test job, and the test suite's ranks as parts of it.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "parallel/process_world.h"
#include "tests/parallel/rank_context.h"

namespace trident::conformance {

// Values in the node's segment. Memory that was given back is kept for values of about the same size: tests make thousands.
class SegmentValues final : public ValuesMemory {
 public:
  explicit SegmentValues(ProcessWorld& world) : world_(world) {}
  void* allocate(std::size_t bytes) override {
    const std::size_t size = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
    std::vector<Buffer>& kept = kept_[size];
    if (kept.empty()) kept.push_back(world_.allocate(static_cast<std::int64_t>(size), "values"));
    Buffer buffer = std::move(kept.back());
    kept.pop_back();
    void* const data = buffer.data();
    used_.emplace(data, std::move(buffer));
    return data;
  }
  void release(void* memory) override {
    auto used = used_.extract(memory);
    kept_[static_cast<std::size_t>(used.mapped().num_bytes())].push_back(std::move(used.mapped()));
  }

 private:
  ProcessWorld& world_;
  std::map<std::size_t, std::vector<Buffer>> kept_;
  std::map<void*, Buffer> used_;
};

// What a rank has for as long as the job runs: a process joins once and makes one world communicator.
class MpiSession {
 public:
  explicit MpiSession(const ProcessWorldOptions& options);
  ~MpiSession();

  // The session of this process, between its construction in main() and its end.
  static MpiSession& current();

  ProcessWorld& world() { return *world_; }
  Communicator& communicator() { return *communicator_; }
  Progress& progress() { return progress_; }
  // A context of this rank over `communicator`.
  RankContext context(Communicator& communicator) { return {communicator, compute_, {&queue0_, &queue1_}}; }
  // Everybody is done: to be called by all ranks.
  void finish();

 private:
  std::unique_ptr<ProcessWorld> world_;
  SegmentValues values_;
  Progress progress_;
  CpuStream compute_{"compute", CpuStream::Mode::kImmediate, progress_};
  CpuStream queue0_{"queue 0", CpuStream::Mode::kQueue, progress_};
  CpuStream queue1_{"queue 1", CpuStream::Mode::kQueue, progress_};
  std::unique_ptr<Communicator> communicator_;
};

// Cuts the job into groups of `ranks` ranks, neighbours or as far apart as possible; all of them run `body` at the same time. A
// rank whose body throws says why and ends its process, and with it the job.
void launch_neighbours(int ranks, const std::function<void(RankContext&)>& body);
void launch_strangers(int ranks, const std::function<void(RankContext&)>& body);

}  // namespace trident::conformance
