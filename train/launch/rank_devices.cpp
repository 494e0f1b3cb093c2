#include "train/launch/rank_devices.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "core/at.h"
#include "core/host_name.h"
#include "core/json_reader.h"
#include "core/number_text.h"
#include "train/plan/machine.h"
#include "train/run/run_files.h"

namespace trident {
namespace {

// Bytes that CUDA, its libraries and their kernels take of a GPU beside the arenas, for each rank; and its context alone, at most.
constexpr std::int64_t kReservedPerRank = std::int64_t{1} << 30;
constexpr std::int64_t kContextPerRank = std::int64_t{1} << 29;
constexpr double kBusyShare = 0.05;  // of a GPU's memory in others' hands: worth a line
constexpr JsonRules kGpuRules{.comments = false, .max_bytes = std::size_t{4} << 20, .max_depth = 8, .blame = ExitCode::kConfig};

std::int64_t usable_bytes(std::int64_t free, std::size_t ranks) {
  return std::max<std::int64_t>(0, free - static_cast<std::int64_t>(ranks) * kReservedPerRank);
}

std::string text_of(const GpuFacts& gpu) { return fmt::format("GPU {} ({}, {}) of {}", gpu.number, gpu.name, gpu.place, host_name()); }

// A process's facts about a GPU; those not asked for are left empty.
struct GpuWord {
  std::string id = {}, name = {}, text = {};  // `text`: for messages
  std::int64_t free_bytes = 0, total_bytes = 0;
};
using GpuWords = std::vector<GpuWord>;

std::string encode(const GpuWords& words) {
  JsonValue::Array all;
  for (const GpuWord& w : words)
    all.emplace_back(JsonValue::Object{{"id", w.id}, {"name", w.name}, {"text", w.text}, {"free", w.free_bytes}, {"total", w.total_bytes}});
  return to_json_text(all);
}

GpuWords decode(const std::string& text) {
  GpuWords words;
  const JsonValue all = parse_json(text, "what a rank says of its GPUs", kGpuRules);
  for (const JsonValue& w : all.items())
    words.push_back({w.find("id")->as_string(), w.find("name")->as_string(), w.find("text")->as_string(), w.find("free")->as_integer(),
                     w.find("total")->as_integer()});
  return words;
}

// By rank.
std::vector<GpuWords> exchange_words(const ExchangeTexts& exchange, const GpuWords& mine) {
  std::vector<GpuWords> all;
  for (const std::string& text : exchange(encode(mine))) all.push_back(decode(text));
  return all;
}

// The search of one process.
class GpusAsked {
 public:
  GpusAsked(AskedDevice asked, CudaBackend& cuda, const RunRanks& ranks) : cuda_(cuda), ranks_(ranks) {
    if (asked == AskedDevice::kCpu) return;
    for (const GpuFacts& gpu : cuda.facts().gpus) {
      if (gpu.problem.empty()) usable_.push_back(gpu);
      else left_out(gpu, gpu.problem);
    }
    found_.problem = cuda.facts().problem;
  }

  GpuSearch run() {
    do {
      share_out();
    } while (somebody_looks_ && open_and_leave_out());
    take_gpu_slots();
    if (somebody_looks_) {
      note_left_out();  // and from here on nobody is on a GPU that is not its own
      ask_for_memory();
      describe_run();
    }
    return std::move(found_);
  }

 private:
  // Who sees what, and takes which.
  void share_out() {
    GpuWords mine;
    for (const GpuFacts& gpu : usable_) mine.push_back({.id = gpu.id, .name = gpu.name});
    const std::vector<GpuWords> all = exchange_words(ranks_.exchange, mine);
    std::vector<std::vector<std::string>> seen(all.size());
    for (std::size_t r = 0; r < all.size(); ++r)
      for (const GpuWord& gpu : all[r]) seen[r].push_back(gpu.id);
    somebody_looks_ = std::ranges::any_of(seen, [](const auto& list) { return !list.empty(); });
    assigned_ = assign_gpus(seen);
    ranks_of_gpu_.clear();
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (assigned_[r] < 0) continue;
      const GpuWord& gpu = at(all[r], assigned_[r]);
      ranks_of_gpu_[gpu.id].push_back(static_cast<int>(r));
      names_[gpu.id] = gpu.name;
    }
  }

  const GpuFacts* gpu_of(int rank) const {
    const int place = at(assigned_, rank);
    return place < 0 ? nullptr : &at(usable_, place);
  }

  void left_out(const GpuFacts& gpu, const std::string& why) {
    remarks_.push_back({.text = fmt::format("{} is left out: {}", text_of(gpu), why)});
  }

  // Opens the GPUs of this process's ranks; true if that failed for any rank's GPU, which nobody considers any longer.
  bool open_and_leave_out() {
    GpuWords failed;
    for (const int rank : ranks_.mine) {
      const GpuFacts* const gpu = gpu_of(rank);
      if (gpu == nullptr || opened_.contains(gpu->number)) continue;
      if (std::ranges::any_of(failed, [&](const GpuWord& word) { return word.id == gpu->id; })) continue;
      const std::string problem = cuda_.open_gpu(gpu->number);
      if (problem.empty()) {
        opened_.insert(gpu->number);
        continue;
      }
      failed.push_back({.id = gpu->id, .text = fmt::format("{}: {}", text_of(*gpu), problem)});
      left_out(*gpu, problem);
    }
    bool any = false;
    for (const GpuWords& words : exchange_words(ranks_.exchange, failed)) {
      for (const GpuWord& word : words) {
        any = true;
        const auto gone = std::erase_if(usable_, [&](const GpuFacts& gpu) { return gpu.id == word.id; });
        if (gone > 0 && found_.problem.empty()) found_.problem = word.text;
      }
    }
    return any;
  }

  void take_gpu_slots() {
    for (const int rank : ranks_.mine) {
      if (const GpuFacts* const gpu = gpu_of(rank)) found_.gpu_slots.push_back({*gpu, static_cast<int>(ranks_of_gpu_.at(gpu->id).size())});
    }
    if (found_.gpu_slots.size() < ranks_.mine.size()) found_.gpu_slots.clear();
    if (!found_.gpu_slots.empty()) found_.problem.clear();
    for (const int number : opened_) {
      if (std::ranges::none_of(found_.gpu_slots, [&](const GpuSlot& gpu_slot) { return gpu_slot.gpu.number == number; })) cuda_.close_gpu(number);
    }
  }

  void note_left_out() {
    std::set<std::string> noted;
    for (const GpuWords& words : exchange_words(ranks_.exchange, remarks_)) {
      for (const GpuWord& word : words)
        if (noted.insert(word.text).second) found_.notes.push_back(word.text);
    }
  }

  // All have opened their GPUs by now, and none has taken memory.
  void ask_for_memory() {
    try {
      for (GpuSlot& gpu_slot : found_.gpu_slots) gpu_slot.free_bytes = cuda_.free_bytes(gpu_slot.gpu.number);
    } catch (const Error& error) {
      found_.problem = error.what();
      found_.gpu_slots.clear();
    }
  }

  // The same on every rank.
  void describe_run() {
    GpuWords mine;
    for (const GpuSlot& gpu_slot : found_.gpu_slots)
      mine.push_back({.id = gpu_slot.gpu.id, .text = text_of(gpu_slot.gpu), .free_bytes = gpu_slot.free_bytes, .total_bytes = gpu_slot.gpu.total_bytes});
    std::map<std::string, std::int64_t> free;
    std::vector<std::string> ids;  // of the GPUs in found_.memory
    for (const GpuWords& words : exchange_words(ranks_.exchange, mine)) {
      for (const GpuWord& word : words) {
        const auto [at, first] = free.emplace(word.id, word.free_bytes);
        at->second = std::min(at->second, word.free_bytes);
        if (!first) continue;
        ids.push_back(word.id);
        describe_gpu(word);
      }
    }
    for (std::size_t c = 0; c < ids.size(); ++c) {
      found_.gpus.push_back(names_.at(ids[c]));
      found_.memory[c].bytes = usable_bytes(free.at(ids[c]), found_.memory[c].ranks.size());
    }
    describe_sharing();
  }

  void describe_gpu(const GpuWord& gpu) {
    const std::vector<int>& ranks = ranks_of_gpu_.at(gpu.id);
    found_.memory.push_back({gpu.text, ranks, 0});
    const std::int64_t taken = gpu.total_bytes - gpu.free_bytes;
    const double of_others = static_cast<double>(taken - static_cast<std::int64_t>(ranks.size()) * kContextPerRank);
    if (of_others <= kBusyShare * static_cast<double>(gpu.total_bytes)) return;
    found_.notes.push_back(fmt::format("{}: {:.1f} of {:.1f} GB are in use already; another process may be computing there", gpu.text, gigabytes(taken),
                                       gigabytes(gpu.total_bytes)));
  }

  void describe_sharing() {
    std::size_t ranks = 0, most = 0;
    for (const MemoryPool& pool : found_.memory) ranks += pool.ranks.size(), most = std::max(most, pool.ranks.size());
    if (most < 2) return;
    const std::size_t gpus = found_.memory.size();
    found_.notes.push_back(fmt::format("{} ranks share {} GPU{}, up to {} on one: right for tests, slower than one rank per GPU", ranks, gpus,
                                       gpus == 1 ? "" : "s", most));
  }

  CudaBackend& cuda_;
  const RunRanks& ranks_;
  std::vector<GpuFacts> usable_;  // that this process sees
  std::set<int> opened_;           // their numbers
  GpuWords remarks_;              // on GPUs left out
  bool somebody_looks_ = false;
  std::vector<int> assigned_;                             // by rank: the place in its list
  std::map<std::string, std::vector<int>> ranks_of_gpu_; // by id
  std::map<std::string, std::string> names_;              // of GPUs by id
  GpuSearch found_;
};

}  // namespace

RunRanks thread_ranks(int ranks) {
  RunRanks all;
  for (int r = 0; r < ranks; ++r) all.mine.push_back(r);
  all.exchange = [ranks](const std::string& mine) { return std::vector<std::string>(static_cast<std::size_t>(ranks), mine); };
  return all;
}

GpuSearch look_for_gpus(AskedDevice asked, CudaBackend& cuda, const RunRanks& ranks) {
  return GpusAsked(asked, cuda, ranks).run();
}

bool sees_gpus(AskedDevice asked, CudaBackend& cuda) {
  return asked != AskedDevice::kCpu &&
         std::ranges::any_of(cuda.facts().gpus, [](const GpuFacts& gpu) { return gpu.problem.empty(); });
}

int gpu_of_rank(int rank, int ranks, int gpus) { return ranks <= gpus ? rank : rank * gpus / ranks; }

std::vector<int> assign_gpus(const std::vector<std::vector<std::string>>& seen) {
  std::map<std::vector<std::string>, std::vector<std::size_t>> alike;
  for (std::size_t r = 0; r < seen.size(); ++r) alike[seen[r]].push_back(r);
  std::vector<int> assigned(seen.size(), -1);
  for (const auto& [gpus, ranks] : alike) {
    if (gpus.empty()) continue;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      assigned[ranks[i]] = gpu_of_rank(static_cast<int>(i), static_cast<int>(ranks.size()), static_cast<int>(gpus.size()));
  }
  return assigned;
}

DeviceChoice choose_device(AskedDevice asked, CudaBackend& cuda, GpuSearch found) {
  if (asked == AskedDevice::kCpu) return {DeviceKind::kCpu, "device = cpu", {}};
  if (!found.gpu_slots.empty()) {
    const std::size_t gpus = found.gpus.size();
    return {DeviceKind::kCuda,
            fmt::format("device = {}: {} GPU{}, {}", to_string(asked), gpus, gpus == 1 ? "" : "s", cuda.facts().libraries),
            std::move(found)};
  }
  if (asked == AskedDevice::kCuda) throw ConfigError(fmt::format("device = cuda: {}", found.problem));
  return {DeviceKind::kCpu, cause_of(found.problem), {}};
}

MachineFacts machine_facts(const DeviceChoice& choice, int local_ranks, std::optional<double> bf16_over_fp32) {
  MachineFacts facts;
  if (choice.kind == DeviceKind::kCpu) {
    facts = cpu_machine_facts(local_ranks, bf16_over_fp32);
  } else {
    facts.device = DeviceKind::kCuda;
    facts.multiplies_fp16 = true;
    const auto has_bf16 = [](const GpuSlot& gpu_slot) { return gpu_slot.gpu.compute_capability >= kFirstFastBf16; };
    facts.bf16_over_fp32 = std::ranges::all_of(choice.found.gpu_slots, has_bf16) ? kMatrixUnitsOverFp32 : 0;
    facts.memory = choice.found.memory;
    facts.description = choice.found.gpu_slots.front().gpu.name;
  }
  facts.device_reason = choice.why;
  facts.notes = choice.found.notes;
  return facts;
}

std::optional<double> named_peak_flops(const std::vector<std::string>& gpus, DType compute) {
  if (compute != DType::kBF16 && compute != DType::kF16) return std::nullopt;
  // NVIDIA's data sheets, dense. The first name that the GPU's contains counts, so the longer ones come first.
  static constexpr std::array<std::pair<std::string_view, double>, 7> kPeaks = {{{"H100 PCIe", 756e12},
                                                                                  {"H100 NVL", 835e12},
                                                                                  {"H100", 989e12},
                                                                                  {"GH200", 989e12},
                                                                                  {"H200 NVL", 835e12},
                                                                                  {"H200", 989e12},
                                                                                  {"A100", 312e12}}};
  double sum = 0;
  for (const std::string& gpu : gpus) {
    const auto named = std::ranges::find_if(kPeaks, [&](const auto& peak) { return gpu.find(peak.first) != std::string::npos; });
    if (named == kPeaks.end() || gpu.find(" MIG ") != std::string::npos) return std::nullopt;
    sum += named->second;
  }
  return sum;
}

std::unique_ptr<Device> make_rank_device(const DeviceChoice& choice, CudaBackend& cuda, Doorbell& doorbell, const RankDeviceOptions& options) {
  if (choice.kind == DeviceKind::kCuda) {
    return cuda.make_device(choice.found.gpu_slots.at(static_cast<std::size_t>(options.gpu_slot)).gpu.number, doorbell, options.cpu.memory, options.cuda);
  }
  return std::make_unique<CpuDevice>(doorbell, options.cpu);
}

void check_nccl_register(const CudaOptions& config, const DeviceChoice& choice, int ranks, const TransportChoice& transport) {
  if (!config.nccl_register || choice.kind == DeviceKind::kCpu || (ranks > 1 && transport.transport == DeviceTransport::kNccl)) return;
  if (ranks == 1) throw ConfigError("cuda.nccl_register = true: one rank exchanges nothing; set it to false");
  throw ConfigError(fmt::format("cuda.nccl_register = true: ranks exchange {} ({}), not by NCCL; start a process with a GPU of its own for each "
                                "rank (mpirun), or set it to false",
                                to_string(transport.transport), transport.why));
}

OnDevice on_device(const DeviceChoice& choice, CudaBackend& cuda, Device& device, DeviceTransport transport) {
  if (choice.kind == DeviceKind::kCpu) return {};
  return [&cuda, &device, transport](Axis axis, std::unique_ptr<Communicator> host) { return cuda.on_device(transport, device, axis, std::move(host)); };
}

}  // namespace trident
