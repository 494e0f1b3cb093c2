#include "train/launch/start_up.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "core/at.h"
#include "core/host_name.h"
#include "core/json_reader.h"
#include "device/cpu/cpu_device.h"
#include "device/cpu/multiply_rates.h"
#include "train/config/stored_config.h"
#include "train/launch/rank_devices.h"
#include "train/run/run_together.h"

namespace trident {
namespace {

constexpr JsonRules kExchanged{.comments = false, .max_bytes = std::size_t{4} << 20, .max_depth = 64, .blame = ExitCode::kConfig};

const JsonValue& member(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  TRIDENT_CHECK(value != nullptr, "exchanged text without {}", key);
  return *value;
}

// "ranks 0-3 (n1), 4-7 (n2)"
std::string ranks_by_host(const std::vector<int>& ranks, const std::function<std::string(int)>& host_of) {
  std::vector<std::pair<std::string, std::vector<int>>> hosts;
  for (const int r : ranks) {
    const std::string host = host_of(r);
    auto at = std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.first == host; });
    if (at == hosts.end()) at = hosts.insert(hosts.end(), {host, {}});
    at->second.push_back(r);
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < hosts.size(); ++i)
    text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", number_ranges(hosts[i].second), hosts[i].first);
  return text;
}

std::string who(std::size_t rank, const std::vector<StartUpFacts>& facts) { return fmt::format("rank {} ({})", rank, facts[rank].host); }

// Ranks by what `key` says of them, in order of the first rank.
template <class Key> std::vector<std::pair<std::string, std::vector<int>>> grouped(const std::vector<StartUpFacts>& facts, Key key) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (std::size_t r = 0; r < facts.size(); ++r) {
    const std::string value = key(facts[r]);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& g) { return g.first == value; });
    if (group == groups.end()) group = groups.insert(groups.end(), {value, {}});
    group->second.push_back(static_cast<int>(r));
  }
  return groups;
}

// "avx512, bf16 by AMX on ranks 0-3 (n1); avx2, no bf16 on ranks 4-7 (n2)"
template <class Key> std::string who_has_what(const std::vector<StartUpFacts>& facts, Key key) {
  const auto host_of = [&](int rank) { return at(facts, rank).host; };
  std::string text;
  for (const auto& [value, ranks] : grouped(facts, key))
    text += fmt::format("{}{} on {}", text.empty() ? "" : "; ", value, ranks_by_host(ranks, host_of));
  return text;
}

int find_build_id(dl_phdr_info* info, std::size_t, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(info->dlpi_addr + header.p_vaddr);
    const auto* const end = at + header.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const auto padded = [](std::size_t bytes) { return (bytes + 3) / 4 * 4; };
      const unsigned char* content = at + sizeof *note + padded(note->n_namesz);
      if (note->n_type == NT_GNU_BUILD_ID) {
        for (std::size_t b = 0; b < note->n_descsz; ++b) *static_cast<std::string*>(result) += fmt::format("{:02x}", content[b]);
        return 1;
      }
      at = content + padded(note->n_descsz);
    }
  }
  return 1;  // the first object is the program itself; others do not count
}

}  // namespace

StartUpFacts facts_of_this_process(const TrainConfig& config, Rendezvous& node, const DeviceChoice& choice) {
  StartUpFacts facts;
  facts.host = host_name();
  facts.build = build_id();
  const std::string ratio =
      node.broadcast(node.rank() == 0 && choice.kind == DeviceKind::kCpu ? to_json_text(bf16_over_fp32()) : "0", 0);
  facts.machine = machine_facts(choice, node.size(), parse_json(ratio, "a node's first rank", kExchanged).as_number());
  facts.instruction_set = instruction_set(detect_cpu_features());
  facts.config = to_json_text(to_json(config));
  facts.device_why = choice.why;
  return facts;
}

std::string build_id() {
  std::string id;
  dl_iterate_phdr(find_build_id, &id);
  return id.empty() ? "unknown" : id;
}

std::string to_text(const StartUpFacts& facts) {
  return to_json_text(JsonValue::Object{{"host", facts.host},
                                        {"build", facts.build},
                                        {"instruction_set", facts.instruction_set},
                                        {"config", facts.config},
                                        {"bf16_over_fp32", facts.machine.bf16_over_fp32},
                                        {"multiplies_fp16", facts.machine.multiplies_fp16},
                                        {"description", facts.machine.description},
                                        {"device", std::string(to_string(facts.machine.device))},
                                        {"device_why", facts.device_why},
                                        {"memory", facts.machine.bytes()},
                                        {"cores", number_ranges(facts.machine.cores.ids)},
                                        {"core_quota", facts.machine.cores.quota}});
}

StartUpFacts start_up_facts_from(const std::string& text) {
  const JsonValue value = parse_json(text, "start-up facts", kExchanged);
  StartUpFacts facts;
  facts.host = member(value, "host").as_string();
  facts.build = member(value, "build").as_string();
  facts.instruction_set = member(value, "instruction_set").as_string();
  facts.config = member(value, "config").as_string();
  facts.machine.bf16_over_fp32 = member(value, "bf16_over_fp32").as_number();
  facts.machine.multiplies_fp16 = member(value, "multiplies_fp16").as_bool();
  facts.machine.description = member(value, "description").as_string();
  facts.machine.device = member(value, "device").as_string() == to_string(DeviceKind::kCuda) ? DeviceKind::kCuda : DeviceKind::kCpu;
  facts.machine.memory = {{facts.host, {}, member(value, "memory").as_integer()}};
  facts.machine.cores.ids = numbers_in(member(value, "cores").as_string());
  facts.machine.cores.quota = value.number_at("core_quota");
  facts.device_why = member(value, "device_why").as_string();
  return facts;
}

std::vector<std::string> start_up_conflicts(const std::vector<StartUpFacts>& ranks) {
  std::vector<std::string> lines;
  for (std::size_t r = 1; r < ranks.size(); ++r) {
    if (ranks[r].config.empty() || ranks[r].config == ranks[0].config) continue;
    const JsonValue first = parse_json(ranks[0].config, "rank 0", kExchanged), other = parse_json(ranks[r].config, "another rank", kExchanged);
    const auto difference = first_difference(first, other);
    if (!difference) continue;
    lines.push_back(fmt::format("{}: {} is {} on {} and {} on {}; start all ranks with the same configuration", "different configurations",
                                difference->path, difference->a, who(0, ranks), difference->b, who(r, ranks)));
    break;
  }
  if (grouped(ranks, [](const StartUpFacts& f) { return f.build; }).size() > 1) {
    lines.push_back(fmt::format("different builds of trident: {}; copy the same executable to all nodes",
                                who_has_what(ranks, [](const StartUpFacts& f) { return f.build.substr(0, 12); })));
  }
  if (grouped(ranks, [](const StartUpFacts& f) { return std::string(to_string(f.machine.device)); }).size() > 1) {
    lines.push_back(fmt::format("different devices: {}; say device = cpu, or give every node GPUs that can be used",
                                who_has_what(ranks, [](const StartUpFacts& f) { return f.device_why; })));
  }
  return lines;
}

std::vector<std::string> start_up_warnings(const std::vector<StartUpFacts>& ranks) {
  const auto set = [](const StartUpFacts& f) { return f.instruction_set; };
  const auto faster = [](const StartUpFacts& f) { return std::string(f.machine.fast_bf16() ? "bf16" : "fp32"); };
  std::vector<std::string> lines;
  if (grouped(ranks, set).size() > 1)
    lines.push_back(
        fmt::format("the nodes' processors differ: {}; results will differ in their last bits from those of nodes of one kind",
                    who_has_what(ranks, set)));
  if (grouped(ranks, faster).size() > 1)
    lines.push_back(fmt::format("some processors multiply bf16 no faster than fp32, and all ranks go by those: faster is {}",
                                who_has_what(ranks, faster)));
  return lines;
}

StartUpAgreement compare_start_up(Rendezvous& job, const StartUpFacts& mine) {
  const StartUpFacts rank_0 = start_up_facts_from(job.broadcast(job.rank() == 0 ? to_text(mine) : "", 0));
  StartUpAgreement agreement{rank_0.machine.description, {}};
  const bool other_config = mine.config != rank_0.config;
  const bool differs = other_config || mine.build != rank_0.build || mine.instruction_set != rank_0.instruction_set ||
                       mine.machine.device != rank_0.machine.device || mine.machine.fast_bf16() != rank_0.machine.fast_bf16();
  if (first_rank(job, differs) < 0) return agreement;

  StartUpFacts told = mine;
  if (first_rank(job, other_config) != job.rank() && job.rank() != 0) told.config.clear();
  std::vector<StartUpFacts> ranks;
  for (const std::string& text : job.gather(to_text(told))) ranks.push_back(start_up_facts_from(text));
  std::string message;
  if (job.rank() == 0) {
    for (const std::string& line : start_up_conflicts(ranks)) message += (message.empty() ? "" : "; also ") + line;
    agreement.warnings = start_up_warnings(ranks);
  }
  message = job.broadcast(message, 0);
  if (message.empty()) return agreement;
  if (job.rank() != 0) throw ReportedElsewhere(ExitCode::kConfig, message);
  throw AgreedError(ExitCode::kConfig, message);
}

namespace {

std::string to_text(const CoreShare& share) {
  return to_json_text(
      JsonValue::Object{{"node", share.node}, {"cores", share.cores}, {"quota", share.quota}, {"ranks", share.ranks}});
}

CoreShare core_share_from(const std::string& text) {
  const JsonValue value = parse_json(text, "a node's cores", kExchanged);
  CoreShare share;
  share.node = member(value, "node").as_string();
  share.cores = static_cast<int>(member(value, "cores").as_integer());
  share.quota = value.number_at("quota");
  share.ranks = static_cast<int>(member(value, "ranks").as_integer());
  return share;
}

// Collective over both. The node's first rank puts together what its ranks know of its memory and its cores.
std::pair<MemoryPool, CoreShare> node_facts(Rendezvous& job, Rendezvous& node, StartUpFacts mine) {
  mine.config.clear();
  std::vector<StartUpFacts> here;
  std::vector<int> ranks;
  for (const std::string& text : node.gather(to_text(mine))) here.push_back(start_up_facts_from(text));
  for (const std::string& rank : node.gather(std::to_string(job.rank()))) ranks.push_back(std::stoi(rank));
  std::int64_t bytes = std::numeric_limits<std::int64_t>::max();
  std::vector<UsableCores> cores;
  for (const StartUpFacts& facts : here) {
    bytes = std::min(bytes, facts.machine.bytes());
    cores.push_back(facts.machine.cores);
  }
  std::string text;
  if (node.rank() == 0) {
    CoreShare share = share_cores(cores, node.size());
    share.node = mine.host;
    text = to_json_text(JsonValue::Object{{"ranks", number_ranges(ranks)}, {"bytes", bytes}, {"share", to_text(share)}});
  }
  const JsonValue value = parse_json(node.broadcast(text, 0), "a node's facts", kExchanged);
  CoreShare share = core_share_from(member(value, "share").as_string());
  return {{share.node, numbers_in(member(value, "ranks").as_string()), member(value, "bytes").as_integer()}, share};
}

}  // namespace

MachineFacts weakest(Rendezvous& job, Rendezvous& node, const StartUpFacts& mine) {
  MachineFacts machine = mine.machine;
  constexpr double kHundredths = 100;
  std::array<std::int64_t, 2> lacks{-std::llround(kHundredths * machine.bf16_over_fp32), machine.multiplies_fp16 ? 0 : 1};
  job.all_reduce(lacks, ReduceOp::kMax);
  machine.bf16_over_fp32 = static_cast<double>(-lacks[0]) / kHundredths;
  machine.multiplies_fp16 = lacks[1] == 0;
  if (machine.device == DeviceKind::kCuda) return machine;

  const auto [memory, share] = node_facts(job, node, mine);
  const bool leads = node.rank() == 0;
  std::array<std::int64_t, 2> sums{leads ? memory.bytes : 0, leads ? 1 : 0};  // of nodes
  std::array<std::int64_t, 2> least{-memory.bytes / node.size(), -share.threads()};
  job.all_reduce(sums, ReduceOp::kSum);
  job.all_reduce(least, ReduceOp::kMax);
  const int tightest = first_rank(job, share.threads() == -least[1]);
  machine.core_share = core_share_from(job.broadcast(job.rank() == tightest ? to_text(share) : "", tightest));
  machine.core_share.node = sums[1] == 1 ? CoreShare().node : fmt::format("{}, where a rank has fewest,", machine.core_share.node);
  machine.memory = {memory};
  if (sums[1] == 1) machine.memory.front().name = "this machine";
  machine.elsewhere = {sums[0] - memory.bytes, -least[0]};
  return machine;
}

std::string topology_warning(Rendezvous& job, const ProcessGrid& grid, const std::vector<int>& nodes, const std::string& host) {
  int groups = 0, spanning = 0;
  std::vector<int> example;
  for (int r = 0; r < grid.world_size(); ++r) {
    const std::vector<int> group = grid.group(r, grid.whole(Axis::kTensor));
    if (group.front() != r) continue;
    ++groups;
    const auto node_of = [&](int member) { return at(nodes, member); };
    if (std::all_of(group.begin(), group.end(), [&](int member) { return node_of(member) == node_of(r); })) continue;
    if (spanning++ == 0) example = group;
  }
  if (spanning == 0) return "";
  const bool named = std::find(example.begin(), example.end(), job.rank()) != example.end();
  const std::vector<std::string> hosts = job.gather(named ? host : "");
  if (job.rank() != 0) return "";
  return fmt::format(
      "{} of {} tensor-parallel groups span nodes ({}): every layer's collectives cross the network; start a multiple of "
      "parallel.tensor = {} ranks per node in rank order, or put tp first in parallel.order",
      spanning, groups, ranks_by_host(example, [&](int r) { return at(hosts, r); }), grid.degrees().tensor);
}

}  // namespace trident
