// How many messages a rank sends beside tensors, by phase, as the number of nodes grows: through what the trainer itself calls.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <mutex>

#include "device/cpu/cpu_device.h"
#include "optim/step_statistics.h"
#include "tests/data/temporary_folder.h"
#include "tests/parallel/node_ranks.h"
#include "train/run/between_steps.h"
#include "train/run/rank_trainer.h"
#include "train/run/run_files.h"
#include "train/run/run_report.h"

namespace trident {
namespace {

using conformance::equal_nodes;
using conformance::NodeCluster;
using conformance::ThreadWire;

constexpr int kRanksPerNode = 2;
constexpr std::int64_t kMachine = std::int64_t{1} << 40;

// tp inside a node, dp and pp between nodes. Parameters stay where they are: nothing gathers them at the start. Of memory each rank
// knows its node's.
RunPlan plan_of(int nodes, int rank, std::int64_t bytes_of_a_node) {
  const TrainConfig config =
      parse_train_config("{}", "test",
                         {"run.steps=1", "run.dir=\"unused\"", "data.train=\"unused\"", "model.preset=\"llama-1m\"",
                          "batch.sequence=16", "batch.micro=1", fmt::format("batch.global={}", nodes), "parallel.tensor=2",
                          "parallel.pipeline=2", fmt::format("parallel.data={}", nodes / 2), "parallel.zero=\"ddp\"",
                          "run.threads_per_rank=1", "debug.check_collectives=false"});
  const int node = rank / kRanksPerNode;
  MachineFacts machine;
  machine.memory = {{fmt::format("n{}", node), {kRanksPerNode * node, kRanksPerNode * node + 1}, bytes_of_a_node}};
  machine.elsewhere = {bytes_of_a_node * (nodes - 1), bytes_of_a_node / kRanksPerNode};
  return make_run_plan(config, resolve_model(config), kRanksPerNode * nodes, machine);
}

struct Messages {
  std::int64_t start = 0, step = 0, line = 0, end = 0;
};

StepTimes one_step() {
  StepTimes times;
  times.step = times.steps = 1;
  return times;
}

// A rank with a trainer, and what its wire has sent.
class TrainingRank {
 public:
  TrainingRank(NodeCluster& cluster, int rank, const RunPlan& plan)
      : wire_(cluster.network().wire(rank)),
        device_(cluster.doorbell(rank),
                {1, {}, {}, [&cluster, rank](std::int64_t bytes, const std::string&) { return cluster.allocate(rank, bytes); }}),
        trainer_(plan, device_, world_of(cluster, rank)),
        statistics_(trainer_.context(), arena_plan_),
        arena_(arena_plan_, device_.allocate(arena_plan_.total_bytes(), "statistics")) {
    statistics_.bind(arena_);
  }
  std::int64_t messages() const { return static_cast<const ThreadWire&>(*wire_).messages_sent(); }
  RankTrainer& trainer() { return trainer_; }

  void end_a_step() {
    agree_to_stop(trainer_.context().world(), trainer_.context().host_stream(), {});
    statistics_.reduce({}, {});
  }
  void log() { totals_for_log(trainer_.context().world(), trainer_.context().host_stream(), {.times = one_step()}); }
  // The closing lines need these of all ranks.
  void close(const RunPlan& plan) {
    collect_cpu_seconds(trainer_, plan);
    Communicator& world = trainer_.context().world();
    Stream& stream = trainer_.context().host_stream();
    std::int64_t bytes_between_nodes = 0;
    world.all_reduce(stream, TensorView(&bytes_between_nodes, DType::kI64, {1}), ReduceOp::kSum);
    sum_over_ranks(one_step(), world, stream);
  }

 private:
  // Up to eight nodes tell each other what they call, each each: a constant, which is left out.
  std::unique_ptr<Communicator> world_of(NodeCluster& cluster, int rank) {
    std::unique_ptr<Communicator> world = make_node_world(rank, cluster.place(rank, wire_.get(), device_.progress()));
    world->set_checks(CollectiveChecks::kOff);
    return world;
  }

  std::unique_ptr<Wire> wire_;
  CpuDevice device_;
  RankTrainer trainer_;
  ArenaPlan arena_plan_;
  StatisticsReducer statistics_;
  Arena arena_;
};

// The most that any rank sends.
Messages most_messages(int nodes) {
  const TemporaryFolder folder;
  NodeCluster cluster({.nodes = equal_nodes(nodes, kRanksPerNode)});
  std::mutex mutex;
  Messages most;
  run_threads_on_nodes(cluster, [&](int rank) {
    const RunPlan plan = plan_of(nodes, rank, kMachine);
    TrainingRank self(cluster, rank, plan);
    write_memory_file(folder.path(), self.trainer().context(), self.trainer().arena_plan(), 0);
    const std::int64_t started = self.messages();
    self.end_a_step();
    const std::int64_t stepped = self.messages();
    self.log();
    const std::int64_t logged = self.messages();
    self.close(plan);
    const std::int64_t closed = self.messages();
    self.trainer().drain();
    const std::lock_guard lock(mutex);
    most = {std::max(most.start, started), std::max(most.step, stepped - started), std::max(most.line, logged - stepped),
            std::max(most.end, closed - logged)};
  });
  return most;
}

std::int64_t log2_up(int n) { return std::bit_width(static_cast<unsigned>(n - 1)); }

// `rounds` of an exchange between `nodes` nodes.
void expect_at_most(int nodes, std::int64_t rounds) {
  const Messages most = most_messages(nodes);
  // Nine groups. memory.json: a length and a text, each behind a header.
  EXPECT_LE(most.start, 9 * rounds + 4) << nodes << " nodes";
  // All agree to stop; statistics over dp, which is half of the nodes, and over pp, which is two.
  EXPECT_LE(most.step, 2 * rounds) << nodes << " nodes";
  EXPECT_LE(most.line, 6 * rounds) << nodes << " nodes";
  // CPU times of a step's instructions: their sum over dp, which is half of the nodes, then gathered over pp, which is two; bytes
  // between nodes and the mean step of all.
  EXPECT_LE(most.end, 3 * rounds) << nodes << " nodes";
  // And nothing was left out of the count.
  EXPECT_GE(most.start, 9 * log2_up(nodes)) << nodes << " nodes";
  EXPECT_GE(most.step, 2 * log2_up(nodes) - 1) << nodes << " nodes";
  EXPECT_GE(most.line, 6 * log2_up(nodes)) << nodes << " nodes";
  EXPECT_GE(most.end, 3 * log2_up(nodes)) << nodes << " nodes";
}

TEST(ControlMessages, GrowAsALogarithm) {
  for (const int nodes : {4, 8, 16, 32}) expect_at_most(nodes, log2_up(nodes));
}

TEST(ControlMessages, AnyNumberOfNodesNeedsFewMessages) {
  for (const int nodes : {6, 10, 22}) expect_at_most(nodes, log2_up(nodes) + 2);
}

}  // namespace
}  // namespace trident
