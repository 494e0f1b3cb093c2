// A rank of a job in which something goes wrong: failing_rank FOLDER WHAT. Run under mpirun by failure_test.sh.
//
// Every rank writes how it ended to FOLDER/<rank>, and leaves when all have, so that the launcher cuts nobody short. Rank 1 is the
// one that does what is wrong:
//   throws       fails while the others reduce
//   is_late      never arrives
//   is_outside   gives an operand that its peers cannot reach, which is fine
//   leaves       ends without finish(), while the others finish
//   is_limited   may not map the segment
//   is_apart     counts as of rank 0's node, as all pairs are told to, and is on another machine (run by tests/nodes)
//   nothing      all is well
//   lives        all ranks meet in barriers until they are killed; FOLDER/<rank> is their process id
#include <fmt/core.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "core/check.h"
#include "parallel/mpi/process_world.h"

namespace trident {
namespace {

struct Outcome {
  int status = 0;
  std::string text;
};

void write_outcome(const std::string& folder, int rank, const std::string& text) {
  const std::string path = fmt::format("{}/{}", folder, rank);
  std::ofstream(path + ".part") << text << '\n';
  std::filesystem::rename(path + ".part", path);
}

void wait_for(const std::string& folder, const std::vector<int>& ranks) {
  for (const int rank : ranks)
    for (int i = 0; i < 6000 && !std::filesystem::exists(fmt::format("{}/{}", folder, rank)); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

void live(ProcessWorld& world, Communicator& communicator, const std::string& folder) {
  const Buffer buffer = world.allocate(100'000, "buffer");
  write_outcome(folder, world.rank(), std::to_string(getpid()));
  for (;;) {
    communicator.barrier();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void reduce(ProcessWorld& world, Communicator& communicator, Stream& stream, const std::string& folder, const std::string& what) {
  const bool wrong = world.rank() == 1;
  const Buffer buffer = world.allocate(20'000, "operand");
  std::vector<float> outside(5000);
  if (wrong && what == "throws") throw DataError("a file is damaged");
  communicator.barrier();  // everybody is here
  if (wrong && what == "is_late") wait_for(folder, {0, 2});
  float* const operand = wrong && what == "is_outside" ? outside.data() : reinterpret_cast<float*>(buffer.data());
  std::fill_n(operand, 5000, static_cast<float>(world.rank() + 1));
  communicator.all_reduce(stream, {operand, DType::kF32, {5000}}, ReduceOp::kSum);
  const auto sum = static_cast<float>(world.size() * (world.size() + 1) / 2);
  TRIDENT_CHECK(std::count(operand, operand + 5000, sum) == 5000, "a sum of {} ranks is not {}", world.size(), sum);
}

void work(ProcessWorld& world, const std::string& folder, const std::string& what) {
  Progress progress(world.doorbell());
  CpuStream stream("compute", CpuStream::Mode::kImmediate, progress);
  const auto communicator = world.communicator(progress);
  try {
    if (what == "lives") live(world, *communicator, folder);
    reduce(world, *communicator, stream, folder, what);
    communicator->barrier();
  } catch (const Error& error) {
    world.fail(fmt::format("rank {} failed: {}", world.rank(), error.what()));  // before the communicator says it for itself
    throw;
  }
}

Outcome run(const std::string& folder, const std::string& what, int& rank, int& size) {
  ProcessWorldOptions options;
  options.timeout_seconds = what == "is_late" ? 5 : 60;  // a rank may stand still so long elsewhere
  if (what == "is_apart") options.ranks_per_node = 2;
  // As the launcher says it: what is wrong may come before the rank can ask MPI.
  const char* const launched = std::getenv("OMPI_COMM_WORLD_RANK");
  const char* const ranks = std::getenv("OMPI_COMM_WORLD_SIZE");
  if (launched == nullptr || ranks == nullptr) return {1, "not started by mpirun"};
  rank = std::atoi(launched);
  size = std::atoi(ranks);
  if (rank == 1 && what == "is_limited") {
    const rlimit limit{rlim_t{1} << 40, rlim_t{1} << 40};
    if (setrlimit(RLIMIT_AS, &limit) != 0) return {1, "no limit could be set"};
  }
  try {
    const auto world = join_process_world(options);
    work(*world, folder, what);
    if (what == "leaves" && rank == 1) return {0, "left"};
    world->finish();
  } catch (const Error& error) {
    return {static_cast<int>(error.code()), error.what()};
  }
  return {0, "finished"};
}

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  int rank = 0, size = 1;
  const trident::Outcome outcome = trident::run(argv[1], argv[2], rank, size);
  trident::write_outcome(argv[1], rank, fmt::format("{} {}", outcome.status, outcome.text));
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  trident::wait_for(argv[1], all);
  _exit(outcome.status);
}
