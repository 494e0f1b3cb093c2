// How ranks find their GPUs, on machines that a stand-in describes.
#include "train/launch/rank_devices.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "tests/support/error_text.h"
#include "tests/support/meeting.h"

namespace trident {
namespace {

constexpr std::int64_t kGB = 1'000'000'000, kGpu = 80 * kGB;
constexpr std::int64_t kContext = 400'000'000;

// The GPUs of one machine, and who has opened them: shared by the processes on it.
struct Machine {
  std::map<std::string, std::string> broken;  // by id: what opening it says
  std::map<std::string, std::int64_t> taken;  // by id, in others' hands
  std::mutex mutex;
  std::map<std::string, std::set<const void*>> open;  // by id: backends
};

class StandIn final : public CudaBackend {
 public:
  StandIn(Machine& machine, const std::vector<std::string>& ids, const std::string& name = "NVIDIA H100 80GB HBM3")
      : machine_(machine) {
    for (const std::string& id : ids) {
      GpuFacts& gpu = facts_.gpus.emplace_back();
      gpu.number = static_cast<int>(facts_.gpus.size()) - 1;
      gpu.name = name;
      gpu.id = id;
      gpu.place = "bus of " + id;
      gpu.compute_capability = 90;
      gpu.total_bytes = kGpu;
    }
    facts_.libraries = "CUDA 99";
    if (ids.empty()) facts_.problem = "no GPU in this machine";
  }

  const CudaFacts& facts() override {
    ++asked;
    return facts_;
  }
  std::string open_gpu(int number) override {
    const std::lock_guard lock(machine_.mutex);
    const std::string& id = of(number).id;
    opened.push_back(id);
    if (machine_.broken.contains(id)) return machine_.broken.at(id);
    machine_.open[id].insert(this);
    return "";
  }
  void close_gpu(int number) override {
    const std::lock_guard lock(machine_.mutex);
    EXPECT_EQ(machine_.open[of(number).id].erase(this), 1u);
  }
  std::int64_t free_bytes(int number) override {
    const std::lock_guard lock(machine_.mutex);
    if (fails_later) throw ConfigError("the GPU left");
    const std::string& id = of(number).id;
    EXPECT_EQ(machine_.open[id].count(this), 1u) << "asked before it was opened";
    return kGpu - machine_.taken[id] - static_cast<std::int64_t>(machine_.open[id].size()) * kContext;
  }
  std::unique_ptr<Device> make_device(int number, Doorbell&, HostAllocator, const CudaOptions& options) override {
    made = number;
    made_with = options;
    return nullptr;
  }
  std::unique_ptr<Communicator> on_device(DeviceTransport, Device&, Axis, std::unique_ptr<Communicator>) override {
    return nullptr;
  }

  GpuFacts& of(int number) { return facts_.gpus.at(static_cast<std::size_t>(number)); }

  int asked = 0, made = -1;
  CudaOptions made_with;
  bool fails_later = false;
  std::vector<std::string> opened;

 private:
  Machine& machine_;
  CudaFacts facts_;
};

GpuSearch as_threads(StandIn& cuda, int ranks, AskedDevice asked = AskedDevice::kAuto) {
  return look_for_gpus(asked, cuda, thread_ranks(ranks));
}

// One process per rank, each with the GPUs it sees.
std::vector<GpuSearch> as_processes(std::vector<StandIn*> of_rank, const std::vector<AskedDevice>& asked = {}) {
  const int ranks = static_cast<int>(of_rank.size());
  testing::Meeting meeting(ranks);
  std::vector<GpuSearch> found(of_rank.size());
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto at = static_cast<std::size_t>(r);
      const RunRanks seen_from{{r}, [&, r](const std::string& mine) { return meeting.exchange(r, mine); }};
      found[at] = look_for_gpus(asked.empty() ? AskedDevice::kCuda : asked[at], *of_rank[at], seen_from);
    });
  }
  threads.clear();
  return found;
}

std::vector<std::string> ids_of(const GpuSearch& found) {
  std::vector<std::string> ids;
  for (const GpuSlot& gpu_slot : found.gpu_slots) ids.push_back(gpu_slot.gpu.id);
  return ids;
}

using Ids = std::vector<std::string>;

TEST(GpuOfRank, OneEachWhileThereAreEnough) {
  for (int gpus = 1; gpus <= 8; ++gpus) {
    for (int ranks = 1; ranks <= 24; ++ranks) {
      std::vector<int> on(static_cast<std::size_t>(gpus), 0);
      for (int r = 0; r < ranks; ++r) {
        const int gpu = gpu_of_rank(r, ranks, gpus);
        ASSERT_TRUE(gpu >= 0 && gpu < gpus) << r << " of " << ranks << " on " << gpus;
        ++on[static_cast<std::size_t>(gpu)];
        EXPECT_GE(gpu, gpu_of_rank(std::max(r - 1, 0), ranks, gpus)) << "neighbours share";
      }
      const int least = *std::ranges::min_element(on), most = *std::ranges::max_element(on);
      EXPECT_LE(most - least, 1) << ranks << " on " << gpus;
    }
  }
}

TEST(AssignGpus, RanksThatSeeTheSameShareIt) {
  const Ids all{"a", "b", "c", "d"};
  EXPECT_EQ(assign_gpus({all, all, all, all}), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(assign_gpus({{"a"}, {"b"}, {"c"}}), (std::vector<int>{0, 0, 0})) << "a GPU each, shown by the launcher";
  EXPECT_EQ(assign_gpus({{"a", "b"}, {"a", "b"}, {"c", "d"}, {"c", "d"}}), (std::vector<int>{0, 1, 0, 1}))
      << "two nodes, or two halves of one";
  EXPECT_EQ(assign_gpus({{"a"}, {}, {"a"}}), (std::vector<int>{0, -1, 0}));
}

TEST(LookForGpus, ThreadsTakeAGpuEachAndOpenNoOther) {
  Machine machine;
  StandIn cuda(machine, {"a", "b", "c", "d"});
  const GpuSearch found = as_threads(cuda, 2);
  EXPECT_EQ(ids_of(found), (Ids{"a", "b"}));
  EXPECT_EQ(cuda.opened, (Ids{"a", "b"}));
  EXPECT_EQ(found.problem, "");
  EXPECT_EQ(found.notes, Ids{});
  EXPECT_EQ(found.gpus.size(), 2u);
  EXPECT_EQ(found.gpu_slots[1].ranks, 1);
  EXPECT_EQ(found.gpu_slots[1].free_bytes, kGpu - kContext);
}

TEST(LookForGpus, RanksThatShareAGpuShareItsMemory) {
  Machine machine;
  StandIn cuda(machine, {"a", "b"});
  const GpuSearch found = as_threads(cuda, 6);
  EXPECT_EQ(ids_of(found), (Ids{"a", "a", "a", "b", "b", "b"}));
  EXPECT_EQ(cuda.opened, (Ids{"a", "b"})) << "each once";
  EXPECT_EQ(found.gpu_slots[0].ranks, 3);
  ASSERT_EQ(found.memory.size(), 2u);
  EXPECT_EQ(found.memory[1].ranks, (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(found.memory[1].bytes, kGpu - kContext - (std::int64_t{3} << 30));
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_EQ(found.notes[0], "6 ranks share 2 GPUs, up to 3 on one: right for tests, slower than one rank per GPU");
}

// Every process is shown one GPU, number 0: nobody shares anything.
TEST(LookForGpus, AGpuPerProcessIsNotShared) {
  Machine machine;
  StandIn a(machine, {"a"}), b(machine, {"b"}), c(machine, {"c"});
  const std::vector<GpuSearch> found = as_processes({&a, &b, &c});
  for (const GpuSearch& of_rank : found) {
    ASSERT_EQ(of_rank.gpu_slots.size(), 1u);
    EXPECT_EQ(of_rank.gpu_slots[0].ranks, 1);
    EXPECT_EQ(of_rank.gpu_slots[0].free_bytes, kGpu - kContext);
    EXPECT_EQ(of_rank.gpus.size(), 3u);
    EXPECT_EQ(of_rank.memory.size(), 3u);
    EXPECT_EQ(of_rank.notes, Ids{});
  }
  EXPECT_EQ(ids_of(found[2]), Ids{"c"});
}

TEST(LookForGpus, ProcessesThatSeeAllGpusOpenTheirOwn) {
  Machine machine;
  const Ids all{"a", "b", "c", "d"};
  StandIn p0(machine, all), p1(machine, all), p2(machine, all), p3(machine, all);
  const std::vector<GpuSearch> found = as_processes({&p0, &p1, &p2, &p3});
  EXPECT_EQ(ids_of(found[2]), Ids{"c"});
  EXPECT_EQ(p2.opened, Ids{"c"});
  EXPECT_EQ(found[0].memory[3].ranks, std::vector<int>{3});
}

// Ranks are asked about memory when all have opened their GPUs: the note means others, not the ranks themselves.
TEST(LookForGpus, ProcessesOnOneGpuAreNotTakenForStrangers) {
  Machine machine;
  StandIn p0(machine, {"a"}), p1(machine, {"a"}), p2(machine, {"a"}), p3(machine, {"a"});
  const std::vector<GpuSearch> found = as_processes({&p0, &p1, &p2, &p3});
  for (const GpuSearch& of_rank : found) {
    EXPECT_EQ(of_rank.gpu_slots[0].ranks, 4);
    EXPECT_EQ(of_rank.gpu_slots[0].free_bytes, kGpu - 4 * kContext);
    EXPECT_EQ(of_rank.notes, Ids{"4 ranks share 1 GPU, up to 4 on one: right for tests, slower than one rank per GPU"});
  }
}

TEST(LookForGpus, AStrangerOnAnyRanksGpuIsNotedByAll) {
  Machine machine;
  machine.taken["b"] = 20 * kGB;
  StandIn a(machine, {"a"}), b(machine, {"b"});
  const std::vector<GpuSearch> found = as_processes({&a, &b});
  for (const GpuSearch& of_rank : found) {
    ASSERT_EQ(of_rank.notes.size(), 1u);
    EXPECT_TRUE(contains(of_rank.notes[0], "bus of b")) << of_rank.notes[0];
    EXPECT_TRUE(contains(of_rank.notes[0], "20.4 of 80.0 GB are in use already; another process may be computing there"))
        << of_rank.notes[0];
  }
}

TEST(LookForGpus, ABrokenGpuInTheMiddleIsLeftOut) {
  Machine machine;
  machine.broken["b"] = "it is on fire; put it out";
  StandIn cuda(machine, {"a", "b", "c"});
  const GpuSearch found = as_threads(cuda, 2);
  EXPECT_EQ(ids_of(found), (Ids{"a", "c"}));
  EXPECT_EQ(cuda.opened, (Ids{"a", "b", "c"}));
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_TRUE(contains(found.notes[0], "GPU 1 (NVIDIA H100 80GB HBM3, bus of b)") &&
              contains(found.notes[0], "is left out: it is on fire; put it out"))
      << found.notes[0];
}

TEST(LookForGpus, ProcessesMoveUpTogetherAndGiveBackWhatTheyLeave) {
  Machine machine;
  machine.broken["b"] = "it is on fire";
  const Ids all{"a", "b", "c", "d"};
  StandIn p0(machine, all), p1(machine, all), p2(machine, all);
  const std::vector<GpuSearch> found = as_processes({&p0, &p1, &p2});
  EXPECT_EQ(ids_of(found[0]), Ids{"a"});
  EXPECT_EQ(ids_of(found[1]), Ids{"c"});
  EXPECT_EQ(ids_of(found[2]), Ids{"d"});
  EXPECT_EQ(machine.open["c"], (std::set<const void*>{&p1})) << "its first rank went on to d";
  EXPECT_EQ(found[1].gpu_slots[0].free_bytes, kGpu - kContext);
  EXPECT_EQ(found[0].notes.size(), 1u);
}

TEST(LookForGpus, AGpuThatTheDriverSaysIsBrokenIsNotOpened) {
  Machine machine;
  StandIn cuda(machine, {"a", "b"});
  cuda.of(0).problem = "its compute mode is Prohibited";
  const GpuSearch found = as_threads(cuda, 1);
  EXPECT_EQ(ids_of(found), Ids{"b"});
  EXPECT_EQ(cuda.opened, Ids{"b"});
  EXPECT_EQ(found.notes.size(), 1u);
}

TEST(LookForGpus, WithoutAnyTheReasonIsTheFirstGpus) {
  Machine machine;
  machine.broken = {{"a", "no code"}, {"b", "held by another process"}};
  StandIn cuda(machine, {"a", "b"});
  const GpuSearch found = as_threads(cuda, 1);
  EXPECT_TRUE(found.gpu_slots.empty());
  EXPECT_TRUE(contains(found.problem, "no code")) << found.problem;
  EXPECT_TRUE(found.memory.empty());
}

// One process opened the GPU, the other could not: neither has it.
TEST(LookForGpus, AProcessLosesAGpuThatItsNeighbourCannotOpen) {
  Machine machine;
  StandIn p0(machine, {"a"}), p1(machine, {"a"});
  Machine other;
  other.broken["a"] = "another process holds the GPU";
  StandIn excluded(other, {"a"});
  const std::vector<GpuSearch> found = as_processes({&p0, &excluded});
  EXPECT_TRUE(found[0].gpu_slots.empty());
  EXPECT_TRUE(contains(found[0].problem, "another process holds the GPU")) << found[0].problem;
  EXPECT_TRUE(machine.open["a"].empty());
}

TEST(LookForGpus, CpuLooksForNoneButTakesPart) {
  Machine machine;
  StandIn a(machine, {"a"}), b(machine, {"b"});
  const std::vector<GpuSearch> found = as_processes({&a, &b}, {AskedDevice::kCpu, AskedDevice::kCuda});
  EXPECT_EQ(a.asked, 0);
  EXPECT_TRUE(found[0].gpu_slots.empty());
  EXPECT_EQ(ids_of(found[1]), Ids{"b"});
}

TEST(LookForGpus, AFailureWhileAskingIsTheProblem) {
  Machine machine;
  StandIn cuda(machine, {"a"});
  cuda.fails_later = true;
  const GpuSearch found = as_threads(cuda, 1);
  EXPECT_TRUE(found.gpu_slots.empty());
  EXPECT_EQ(found.problem, "the GPU left");
}

TEST(ChooseDevice, WhatEveryWordComesTo) {
  Machine machine;
  StandIn gpus(machine, {"a", "b"}), none(machine, {});
  const auto choose = [](AskedDevice asked, StandIn& cuda) { return choose_device(asked, cuda, as_threads(cuda, 2, asked)); };
  EXPECT_EQ(choose(AskedDevice::kCpu, gpus).kind, DeviceKind::kCpu);
  EXPECT_EQ(gpus.asked, 0) << "cpu looks for none";
  const DeviceChoice automatic = choose(AskedDevice::kAuto, gpus);
  EXPECT_EQ(automatic.kind, DeviceKind::kCuda);
  EXPECT_EQ(automatic.why, "device = auto: 2 GPUs, CUDA 99");
  EXPECT_EQ(choose(AskedDevice::kCuda, gpus).kind, DeviceKind::kCuda);
  const DeviceChoice without = choose(AskedDevice::kAuto, none);
  EXPECT_EQ(without.kind, DeviceKind::kCpu);
  EXPECT_EQ(without.why, "no GPU in this machine");
  EXPECT_EQ(error_of<ConfigError>([&] { choose(AskedDevice::kCuda, none); }), "device = cuda: no GPU in this machine");
}

TEST(ChooseDevice, TheLeastMemoryAndOldestGpuDecide) {
  Machine machine;
  machine.taken["b"] = 30 * kGB;
  StandIn cuda(machine, {"a", "b"});
  cuda.of(0).compute_capability = 75;
  const DeviceChoice choice = choose_device(AskedDevice::kCuda, cuda, as_threads(cuda, 2));
  const MachineFacts facts = machine_facts(choice, 2);
  EXPECT_EQ(facts.bytes_per_rank(), kGpu - 30 * kGB - kContext - (std::int64_t{1} << 30));
  EXPECT_FALSE(facts.fast_bf16());
  EXPECT_EQ(facts.device, DeviceKind::kCuda);
  EXPECT_EQ(facts.description, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(facts.notes.size(), 1u);
  EXPECT_TRUE(contains(facts.device_reason, "device = cuda: 2 GPUs")) << facts.device_reason;
  EXPECT_EQ(facts.memory.size(), 2u);
}

TEST(ChooseDevice, RanksGetTheDeviceOfTheirSlot) {
  Machine machine;
  machine.broken["a"] = "broken";
  StandIn cuda(machine, {"a", "b", "c"});
  const DeviceChoice choice = choose_device(AskedDevice::kCuda, cuda, as_threads(cuda, 2));
  Doorbell doorbell;
  make_rank_device(choice, cuda, doorbell, {.gpu_slot = 1});
  EXPECT_EQ(cuda.made, 2);
}

TEST(ChooseDevice, WhatTheConfigurationSaysOfGpusReachesTheDevice) {
  Machine machine;
  StandIn cuda(machine, {"a"});
  const DeviceChoice choice = choose_device(AskedDevice::kCuda, cuda, as_threads(cuda, 1));
  Doorbell doorbell;
  const CudaOptions chosen{.tf32 = true,
                           .deterministic = false,
                           .autotune = "file",
                           .epilogues = true,
                           .nccl_max_ctas = {16, 4, 2},
                           .nccl_any_order = true,
                           .spare_multiprocessors = 8,
                           .nccl_register = true,
                           .nccl_timeout = 30,
                           .graphs = true};
  make_rank_device(choice, cuda, doorbell, {.cuda = chosen});
  EXPECT_EQ(cuda.made_with, chosen);
}

TEST(NamedPeak, GpusAndTheirPartsHaveOne) {
  EXPECT_EQ(named_peak_flops({"NVIDIA H100 80GB HBM3"}, DType::kBF16), 989e12);
  EXPECT_EQ(named_peak_flops({"NVIDIA H100 PCIe"}, DType::kBF16), 756e12);
  EXPECT_EQ(named_peak_flops({"NVIDIA A100-SXM4-80GB"}, DType::kBF16), 312e12);
  EXPECT_EQ(named_peak_flops({"NVIDIA H100 80GB HBM3"}, DType::kF32), std::nullopt);
  EXPECT_EQ(named_peak_flops({"NVIDIA H100 80GB HBM3 MIG 1g.10gb"}, DType::kBF16), std::nullopt);
  EXPECT_EQ(named_peak_flops({"Some GPU"}, DType::kBF16), std::nullopt);
  EXPECT_EQ(named_peak_flops(Ids{"NVIDIA H200", "NVIDIA H200"}, DType::kBF16), 2 * 989e12);
  EXPECT_EQ(named_peak_flops(Ids{"NVIDIA H200", "Some GPU"}, DType::kBF16), std::nullopt);
}

}  // namespace
}  // namespace trident
