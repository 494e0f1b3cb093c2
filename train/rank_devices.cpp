#include "train/rank_devices.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "device/cpu/cpu_device.h"
#include "train/machine.h"

namespace trident {
namespace {

// What CUDA, its libraries and their kernels take of a card beside the arenas.
constexpr std::int64_t kReservedPerRank = std::int64_t{1} << 30;
constexpr int kFirstFastBf16 = 80;       // compute capability: Ampere
constexpr double kBusyShare = 0.05;      // of a card's memory in others' hands: worth a line

double gigabytes(std::int64_t bytes) { return 1e-9 * static_cast<double>(bytes); }

// Ranks of this machine on each card.
std::vector<int> ranks_per_card(int local_ranks, int cards) {
  std::vector<int> ranks(static_cast<std::size_t>(cards), 0);
  for (int r = 0; r < local_ranks; ++r) ++ranks[static_cast<std::size_t>(card_of_rank(r, local_ranks, cards))];
  return ranks;
}

MachineFacts cuda_machine_facts(const CudaFacts& cuda, int local_ranks) {
  const std::vector<int> ranks = ranks_per_card(local_ranks, static_cast<int>(cuda.cards.size()));
  MachineFacts facts;
  facts.computes = "card";
  facts.fast_bf16 = true;
  facts.memory_per_rank = INT64_MAX;
  for (std::size_t c = 0; c < ranks.size(); ++c) {
    if (ranks[c] == 0) continue;
    const CardFacts& card = cuda.cards[c];
    facts.fast_bf16 = facts.fast_bf16 && card.compute_capability >= kFirstFastBf16;
    facts.memory_per_rank = std::min(facts.memory_per_rank, std::max<std::int64_t>(0, card.free_bytes / ranks[c] - kReservedPerRank));
    if (facts.description.empty()) facts.description = card.name;
  }
  return facts;
}

}  // namespace

std::string_view to_string(DeviceKind kind) { return kind == DeviceKind::kCuda ? "cuda" : "cpu"; }

DeviceChoice choose_device(const std::string& asked, CudaBackend& cuda) {
  if (asked == "cpu") return {DeviceKind::kCpu, "device = cpu"};
  const CudaFacts& facts = cuda.facts();
  if (facts.problem.empty()) {
    return {DeviceKind::kCuda, fmt::format("device = {}: {} card{}, {}", asked, facts.cards.size(), facts.cards.size() == 1 ? "" : "s", facts.libraries)};
  }
  if (asked == "cuda") throw ConfigError(fmt::format("device = cuda: {}", facts.problem));
  return {DeviceKind::kCpu, fmt::format("device = auto: cpu, for no card can be used ({})", facts.problem)};
}

int card_of_rank(int local_rank, int local_ranks, int cards) { return local_ranks <= cards ? local_rank : local_rank * cards / local_ranks; }

MachineFacts machine_facts(const DeviceChoice& choice, CudaBackend& cuda, int local_ranks) {
  return choice.kind == DeviceKind::kCuda ? cuda_machine_facts(cuda.facts(), local_ranks) : cpu_machine_facts(local_ranks);
}

std::vector<std::string> device_notes(const DeviceChoice& choice, CudaBackend& cuda, int local_ranks) {
  std::vector<std::string> notes{choice.why};
  if (choice.kind == DeviceKind::kCpu) return notes;
  const std::vector<CardFacts>& cards = cuda.facts().cards;
  const std::vector<int> ranks = ranks_per_card(local_ranks, static_cast<int>(cards.size()));
  for (std::size_t c = 0; c < cards.size(); ++c) {
    if (ranks[c] == 0) continue;
    const std::int64_t taken = cards[c].total_bytes - cards[c].free_bytes;
    if (static_cast<double>(taken) > kBusyShare * static_cast<double>(cards[c].total_bytes)) {
      notes.push_back(fmt::format("card {} ({}): {:.1f} of {:.1f} GB are in use already; another process may be computing there", cards[c].number,
                                  cards[c].name, gigabytes(taken), gigabytes(cards[c].total_bytes)));
    }
  }
  if (const int most = *std::ranges::max_element(ranks); most > 1) {
    notes.push_back(fmt::format("{} ranks share {} card{}, up to {} on one: right for tests, slower than one rank per card", local_ranks, cards.size(),
                                cards.size() == 1 ? "" : "s", most));
  }
  return notes;
}

std::optional<double> named_peak_flops(const std::string& card, DType compute) {
  if (compute != DType::kBF16) return std::nullopt;
  // NVIDIA's data sheets, dense. The first name that the card's contains counts, so the longer ones come first.
  static constexpr std::array<std::pair<std::string_view, double>, 7> kPeaks = {{{"H100 PCIe", 756e12},
                                                                                  {"H100 NVL", 835e12},
                                                                                  {"H100", 989e12},
                                                                                  {"GH200", 989e12},
                                                                                  {"H200 NVL", 835e12},
                                                                                  {"H200", 989e12},
                                                                                  {"A100", 312e12}}};
  for (const auto& [name, flops] : kPeaks) {
    if (card.find(name) != std::string::npos) return flops;
  }
  return std::nullopt;
}

std::unique_ptr<Device> make_rank_device(const DeviceChoice& choice, CudaBackend& cuda, Doorbell& doorbell, const RankDeviceOptions& options) {
  if (choice.kind == DeviceKind::kCuda) {
    const std::vector<CardFacts>& cards = cuda.facts().cards;
    const int card = card_of_rank(options.local_rank, options.local_ranks, static_cast<int>(cards.size()));
    return cuda.make_device(cards[static_cast<std::size_t>(card)].number, doorbell, options.host_memory);
  }
  CpuDeviceOptions cpu;
  cpu.threads_per_rank = options.threads_per_rank;
  cpu.first_core = options.first_core;
  cpu.memory = options.host_memory;
  return std::make_unique<CpuDevice>(doorbell, cpu);
}

OnDevice on_device(const DeviceChoice& choice, CudaBackend& cuda, Device& device, DeviceTransport transport) {
  if (choice.kind == DeviceKind::kCpu) return {};
  return [&cuda, &device, transport](std::unique_ptr<Communicator> host) { return cuda.on_device(transport, device, std::move(host)); };
}

}  // namespace trident
