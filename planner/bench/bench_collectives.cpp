#include "planner/bench/bench_collectives.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <set>

#include "core/clock.h"
#include "device/operations.h"
#include "device/ops.h"
#include "parallel/shared_memory/thread_world.h"
#include "train/launch/start_up.h"
#include "train/run/run_together.h"

namespace trident {
namespace {

std::int64_t operand_bytes(Device& device, double megabytes) {
  return static_cast<std::int64_t>((megabytes > 0 ? megabytes : device.kind() == DeviceKind::kCpu ? 16 : 256) * (1 << 20));
}

// The bytes of a collective are compared with these.
enum class Floor : std::uint8_t {
  kCopies,   // of all ranks at once, of their own memory: for ranks that work in each other's
  kMessages  // from every rank to the next at once, on the same way
};

// One rank measures this together with the others.
class CollectiveMeter {
 public:
  CollectiveMeter(Device& device, Communicator& group, Floor floor, double megabytes)
      : device_(device),
        group_(group),
        floor_(group.size() == 1 ? Floor::kCopies : floor),
        count_(operand_bytes(device, megabytes) / size_of(DType::kF32) / group.size() * group.size()),  // slices of equal size
        memory_(device.allocate(2 * count_ * size_of(DType::kF32), "collectives")),
        whole_(memory_.data(), DType::kF32, {count_}, memory_.where()),
        other_(memory_.data() + whole_.num_bytes(), DType::kF32, {count_}, memory_.where()) {}

  CollectiveRates measure(std::string way) {
    const double n = group_.size(), bytes = static_cast<double>(whole_.num_bytes());
    CollectiveRates all;
    all.way = std::move(way);
    all.ranks = group_.size();
    const bool copies = floor_ == Floor::kCopies;
    all.floor_of = copies ? "copies of all ranks at once, read and written" : "messages of all ranks to the next at once";
    all.floor_rate = copies ? 2 * n * bytes / best_seconds([&](Stream& stream) {
      device_.ops().run(stream, op::Convert{.out = other_, .x = whole_});
    })
                            : bytes / best_seconds([&](Stream& stream) { pass_on(stream); });
    const TensorView part = other_.range(0, count_ / group_.size());
    const auto add = [&](const char* name, double copied, double received, const std::function<void(Stream&)>& call) {
      all.rates.push_back({name, bytes, best_seconds(call), (copies ? copied : received) * bytes});
    };
    // Copies: a rank reads its slice of every operand and writes the sum; then, if all are to have all of it, reads the others' slices
    // and writes them to its own. Messages: all but its own slice reaches a rank, of sums and of what is to be added up.
    const double others = (n - 1) / n;
    add("all_reduce", 3 * n - 1, 2 * others, [&](Stream& stream) { group_.all_reduce(stream, whole_, ReduceOp::kSum); });
    add("reduce_scatter", n + 1, others, [&](Stream& stream) { group_.reduce_scatter(stream, part, whole_, ReduceOp::kSum); });
    add("all_gather", 2 * n, others, [&](Stream& stream) { group_.all_gather(stream, whole_, part); });
    return all;
  }

 private:
  void pass_on(Stream& stream) {
    const int n = group_.size(), rank = group_.rank();
    const GroupScope together(group_);
    group_.send(stream, whole_, (rank + 1) % n);
    group_.recv(stream, other_, (rank + n - 1) % n);
  }

  // So many calls of all ranks each: a rank cannot decide alone when it is enough. The best of them, begun and ended together.
  double best_seconds(const std::function<void(Stream&)>& call) {
    constexpr int kCalls = 8;
    double best = 1e30;
    Stream& stream = device_.compute_stream();
    for (int i = 0; i < kCalls; ++i) {
      group_.barrier();
      const double before = monotonic_seconds();
      call(stream);
      stream.synchronize();
      group_.barrier();
      best = std::min(best, monotonic_seconds() - before);
    }
    return best;
  }

  Device& device_;
  Communicator& group_;
  Floor floor_;
  std::int64_t count_;
  Buffer memory_;
  TensorView whole_, other_;
};

std::string way_of(const DeviceChoice& choice, const char* ranks, DeviceTransport transport) {
  if (choice.kind == DeviceKind::kCpu) return fmt::format("{} in host memory", ranks);
  if (transport == DeviceTransport::kThread) return fmt::format("{} in each other's device memory", ranks);
  return fmt::format("{} {}", ranks, to_string(transport));
}

CollectiveRates skipped(std::string way, std::string why) {
  CollectiveRates none;
  none.way = std::move(way);
  none.skipped = std::move(why);
  return none;
}

}  // namespace

CollectiveRates rates_between_threads(const DeviceChoice& choice, CudaBackend& cuda, DeviceTransport transport, int ranks,
                                      const CollectiveOptions& asked) {
  CollectiveRates of_rank_0;
  ThreadWorld world(ranks);
  run_thread_ranks(world, [&](int rank) {
    RankDeviceOptions options;
    options.gpu_slot = rank;
    options.cuda = asked.cuda;
    options.cpu.threads_per_rank = asked.threads_per_rank;
    const std::unique_ptr<Device> device = make_rank_device(choice, cuda, world.doorbell(rank), options);
    std::unique_ptr<Communicator> group = world.communicator(rank, device->progress());
    if (const OnDevice wrap = on_device(choice, cuda, *device, transport)) group = wrap(Axis::kData, std::move(group));
    const Floor floor = transport == DeviceTransport::kThread ? Floor::kCopies : Floor::kMessages;
    CollectiveRates measured = CollectiveMeter(*device, *group, floor, asked.megabytes).measure(way_of(choice, "threads", transport));
    group->barrier();
    if (rank == 0) of_rank_0 = std::move(measured);
  });
  return of_rank_0;
}

CollectiveRates nccl_rates_between_gpus(CudaBackend& cuda, const CollectiveOptions& options) {
  const std::string way = "threads by NCCL";
  const auto usable = std::ranges::count_if(cuda.facts().gpus, [](const GpuFacts& gpu) { return gpu.problem.empty(); });
  if (usable == 0) return skipped(way, cuda.facts().problem);
  try {
    const int ranks = static_cast<int>(usable);
    const DeviceChoice choice =
        choose_device(AskedDevice::kCuda, cuda, look_for_gpus(AskedDevice::kCuda, cuda, thread_ranks(ranks)));
    const int opened = static_cast<int>(choice.found.gpus.size());
    if (opened < ranks) return skipped(way, fmt::format("of {} GPUs only {} can be opened", ranks, opened));
    return rates_between_threads(choice, cuda, DeviceTransport::kNcclEvenAlone, ranks, options);
  } catch (const Error& error) {
    return skipped(way, error.what());
  }
}

std::vector<CollectiveRates> rates_between_processes(ProcessWorld& world, AskedDevice asked, CudaBackend& cuda,
                                                     const CollectiveOptions& collectives) {
  const ExchangeTexts exchange = [&](const std::string& mine) { return world.all_gather(mine); };
  GpuSearch found = look_for_gpus(asked, cuda, {{world.rank()}, exchange});
  DeviceChoice choice;
  run_together(world, [&] { choice = choose_device(asked, cuda, std::move(found)); });
  const std::vector<std::string> gpus = exchange(choice.kind == DeviceKind::kCuda ? choice.found.gpu_slots.front().gpu.id : "");
  const auto on_gpus = std::ranges::count_if(gpus, [](const std::string& gpu) { return !gpu.empty(); });
  if (on_gpus != 0 && on_gpus != world.size())
    return {skipped("processes", fmt::format("{} of {} processes have a GPU", on_gpus, world.size()))};

  RankDeviceOptions options;
  options.cuda = collectives.cuda;
  options.cpu.threads_per_rank = collectives.threads_per_rank;
  options.cpu.memory = [&](std::int64_t bytes, const std::string& name) { return world.allocate(bytes, name); };
  const std::unique_ptr<Device> device = make_rank_device(choice, cuda, world.doorbell(), options);
  const std::unique_ptr<Communicator> all = world.communicator(device->progress());
  const auto measure = [&](DeviceTransport transport, Floor floor) {
    std::unique_ptr<Communicator> group = all->split(all_ranks(*all), "bench");
    if (const OnDevice wrap = on_device(choice, cuda, *device, transport)) group = wrap(Axis::kData, std::move(group));
    return CollectiveMeter(*device, *group, floor, collectives.megabytes).measure(way_of(choice, "processes", transport));
  };
  if (choice.kind == DeviceKind::kCpu) return {measure(DeviceTransport::kThread, Floor::kMessages)};
  const TransportChoice usual = choose_transport(gpus.size(), std::set(gpus.begin(), gpus.end()).size());
  std::vector<CollectiveRates> rates;
  if (usual.transport == DeviceTransport::kNccl) rates.push_back(measure(DeviceTransport::kNcclEvenAlone, Floor::kMessages));
  else rates.push_back(skipped("processes by NCCL", usual.why));
  rates.push_back(measure(DeviceTransport::kHostStaged, Floor::kMessages));
  return rates;
}

}  // namespace trident
