#include "train/start_up.h"

#include <elf.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/host_name.h"
#include "core/json_reader.h"
#include "train/config_difference.h"

namespace trident {
namespace {

constexpr JsonRules kExchanged{.comments = JsonComments::kRefused, .max_bytes = std::size_t{4} << 20, .max_depth = 64, .blame = ExitCode::kConfig};

const JsonValue& member(const JsonValue& object, std::string_view key) {
  const JsonValue* value = object.find(key);
  TRIDENT_CHECK(value != nullptr, "exchanged text without {}", key);
  return *value;
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
  std::string text;
  for (const auto& [value, ranks] : grouped(facts, key)) text += fmt::format("{}{} on {}", text.empty() ? "" : "; ", value, ranks_by_host(ranks, facts));
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

std::string build_id() {
  std::string id;
  dl_iterate_phdr(find_build_id, &id);
  return id.empty() ? "unknown" : id;
}

std::string ranks_by_host(const std::vector<int>& ranks, const std::vector<StartUpFacts>& facts) {
  std::vector<std::pair<std::string, std::vector<int>>> hosts;
  for (const int r : ranks) {
    const std::string& host = facts[static_cast<std::size_t>(r)].host;
    auto at = std::find_if(hosts.begin(), hosts.end(), [&](const auto& h) { return h.first == host; });
    if (at == hosts.end()) at = hosts.insert(hosts.end(), {host, {}});
    at->second.push_back(r);
  }
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < hosts.size(); ++i) text += fmt::format("{}{} ({})", i == 0 ? "" : ", ", number_ranges(hosts[i].second), hosts[i].first);
  return text;
}

std::vector<std::int32_t> of_rank_0(const BroadcastText& broadcast, int rank, const std::vector<std::int32_t>& mine) {
  std::string bytes;  // one build on all ranks: one order of bytes
  if (rank == 0 && !mine.empty()) bytes.assign(reinterpret_cast<const char*>(mine.data()), mine.size() * sizeof mine[0]);
  bytes = broadcast(bytes);
  std::vector<std::int32_t> values(bytes.size() / sizeof mine[0]);
  if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::string to_text(const StartUpFacts& facts) {
  return to_json_text(JsonValue::Object{{"host", facts.host},
                                        {"build", facts.build},
                                        {"instruction_set", facts.instruction_set},
                                        {"config", facts.config},
                                        {"fast_bf16", facts.machine.fast_bf16},
                                        {"multiplies_fp16", facts.machine.multiplies_fp16},
                                        {"description", facts.machine.description},
                                        {"device", std::string(to_string(facts.machine.device))},
                                        {"device_why", facts.device_why},
                                        {"card", facts.card},
                                        {"memory", facts.machine.bytes()},
                                        {"cores", number_ranges(facts.machine.cores.ids)},
                                        {"core_quota", facts.machine.cores.quota ? JsonValue(*facts.machine.cores.quota) : JsonValue{}}});
}

StartUpFacts start_up_facts_from(const std::string& text) {
  const JsonValue value = parse_json(text, "start-up facts", kExchanged);
  StartUpFacts facts;
  facts.host = member(value, "host").as_string();
  facts.build = member(value, "build").as_string();
  facts.instruction_set = member(value, "instruction_set").as_string();
  facts.config = member(value, "config").as_string();
  facts.machine.fast_bf16 = member(value, "fast_bf16").as_bool();
  facts.machine.multiplies_fp16 = member(value, "multiplies_fp16").as_bool();
  facts.machine.description = member(value, "description").as_string();
  facts.machine.device = member(value, "device").as_string() == to_string(DeviceKind::kCuda) ? DeviceKind::kCuda : DeviceKind::kCpu;
  facts.machine.memory = {{facts.host, {}, member(value, "memory").as_integer()}};
  facts.machine.cores.ids = numbers_in(member(value, "cores").as_string());
  if (const JsonValue& quota = member(value, "core_quota"); quota.is_number()) facts.machine.cores.quota = quota.as_number();
  facts.device_why = member(value, "device_why").as_string();
  facts.card = member(value, "card").as_string();
  return facts;
}

void run_together(const ExchangeTexts& exchange, int rank, const std::function<void()>& step) {
  JsonValue mine = JsonValue::Object{{"code", 0}};
  try {
    step();
  } catch (const Error& error) {
    mine = JsonValue::Object{{"code", static_cast<int>(error.code())}, {"message", error.what()}, {"host", host_name()}};
  } catch (const std::exception& error) {  // out of memory, say
    mine = JsonValue::Object{{"code", static_cast<int>(ExitCode::kInternal)}, {"message", error.what()}, {"host", host_name()}};
  }
  const std::vector<std::string> texts = exchange(to_json_text(mine));
  std::size_t failed = 0, first = texts.size();
  JsonValue failure;
  bool alike = true;
  for (std::size_t r = 0; r < texts.size(); ++r) {
    const JsonValue outcome = parse_json(texts[r], "start-up outcome", kExchanged);
    if (member(outcome, "code").as_integer() == 0) continue;
    ++failed;
    if (first == texts.size()) failure = outcome, first = r;
    alike = alike && member(outcome, "message") == member(failure, "message");
  }
  if (failed == 0) return;
  const auto code = static_cast<ExitCode>(member(failure, "code").as_integer());
  const std::string& message = member(failure, "message").as_string();
  if (rank != 0) throw ReportedElsewhere(code, message);
  if (failed == texts.size() && alike) throw AgreedError(code, message);
  throw AgreedError(code, fmt::format("rank {} ({}){}: {}", first, member(failure, "host").as_string(),
                                failed == 1 ? "" : fmt::format(" and {} more", failed - 1), message));
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
    lines.push_back(fmt::format("different devices: {}; say device = cpu, or give every node cards that can be used",
                                who_has_what(ranks, [](const StartUpFacts& f) { return f.device_why; })));
  }
  const JsonValue config = parse_json(ranks[0].config, "rank 0", kExchanged);
  const JsonValue* precision = config.find("precision");
  const bool automatic = precision != nullptr && precision->find("compute") != nullptr && *precision->find("compute") == JsonValue("auto");
  if (automatic && grouped(ranks, [](const StartUpFacts& f) { return std::string(f.machine.fast_bf16 ? "bf16" : "fp32"); }).size() > 1) {
    lines.push_back(fmt::format("precision.compute = auto: the processors decide differently, {}; say bf16 or fp32",
                                who_has_what(ranks, [](const StartUpFacts& f) { return f.instruction_set; })));
  }
  return lines;
}

std::vector<std::string> start_up_warnings(const std::vector<StartUpFacts>& ranks) {
  const auto set = [](const StartUpFacts& f) { return f.instruction_set; };
  if (grouped(ranks, set).size() == 1) return {};
  return {fmt::format("the nodes' processors differ: {}; results are not bit for bit those of one kind of node", who_has_what(ranks, set))};
}

std::vector<StartUpFacts> compare_start_up(const ExchangeTexts& exchange, const BroadcastText& broadcast, int rank, StartUpFacts mine) {
  const bool as_rank_0 = broadcast(mine.config) == mine.config;
  if (rank != 0 && as_rank_0) mine.config.clear();
  std::vector<StartUpFacts> facts;
  for (const std::string& text : exchange(to_text(mine))) facts.push_back(start_up_facts_from(text));
  std::string message;
  for (const std::string& line : start_up_conflicts(facts)) message += (message.empty() ? "" : "; also ") + line;
  if (message.empty()) return facts;
  if (rank != 0) throw ReportedElsewhere(ExitCode::kConfig, message);
  throw AgreedError(ExitCode::kConfig, message);
}

MachineFacts weakest(const MachineFacts& mine, const std::vector<StartUpFacts>& ranks) {
  MachineFacts machine = mine;
  machine.description = ranks.front().machine.description;
  for (const StartUpFacts& facts : ranks) {
    machine.fast_bf16 = machine.fast_bf16 && facts.machine.fast_bf16;
    machine.multiplies_fp16 = machine.multiplies_fp16 && facts.machine.multiplies_fp16;
  }
  if (machine.device == DeviceKind::kCuda) return machine;
  machine.memory.clear();
  const auto hosts = grouped(ranks, [](const StartUpFacts& f) { return f.host; });
  for (const auto& [host, there] : hosts) {
    MemoryPool& pool = machine.memory.emplace_back(MemoryPool{hosts.size() == 1 ? "this machine" : host, there, 0});
    pool.bytes = std::numeric_limits<std::int64_t>::max();
    std::vector<UsableCores> cores;
    for (const int rank : there) {
      const MachineFacts& facts = ranks[static_cast<std::size_t>(rank)].machine;
      pool.bytes = std::min(pool.bytes, facts.bytes());
      cores.push_back(facts.cores);
    }
    CoreShare share = share_cores(cores, static_cast<int>(there.size()));
    if (hosts.size() > 1) share.node = fmt::format("{}, where a rank has fewest,", host);
    if (&host == &hosts.front().first || share.threads() < machine.core_share.threads()) machine.core_share = share;
  }
  return machine;
}

std::string topology_warning(const ProcessGrid& grid, const std::vector<int>& nodes, const std::vector<StartUpFacts>& facts) {
  int groups = 0, spanning = 0;
  std::vector<int> example;
  for (int r = 0; r < grid.world_size(); ++r) {
    const std::vector<int> group = grid.group(r, grid.whole(Axis::kTensor));
    if (group.front() != r) continue;
    ++groups;
    const auto node_of = [&](int member) { return nodes[static_cast<std::size_t>(member)]; };
    if (std::all_of(group.begin(), group.end(), [&](int member) { return node_of(member) == node_of(r); })) continue;
    if (spanning++ == 0) example = group;
  }
  if (spanning == 0) return "";
  return fmt::format("{} of {} tensor-parallel groups span nodes ({}): every layer's collectives cross the network; start a multiple of parallel.tensor "
                     "= {} ranks per node in rank order, or put tp first in parallel.order", spanning, groups, ranks_by_host(example, facts),
                     grid.degrees().tensor);
}

}  // namespace trident
