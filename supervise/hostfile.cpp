#include "supervise/hostfile.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>
#include <sstream>

#include "core/check.h"
#include "core/file_io.h"
#include "core/json_reader.h"

namespace trident {
namespace {

constexpr int kMostSlots = 65536;  // as parallel's degrees

bool is_host_name(std::string_view text) {
  return !text.empty() && text.size() <= 253 && text.front() != '-' && std::ranges::all_of(text, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_' || c == ':';
  });
}

std::optional<int> slots_from(std::string_view text) {
  int slots = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), slots);
  if (error != std::errc{} || end != text.data() + text.size() || slots < 1 || slots > kMostSlots) return std::nullopt;
  return slots;
}

HostSlots host_from(const std::string& line, const std::string& where) {
  std::istringstream words(line);
  HostSlots host;
  words >> host.name;
  if (!is_host_name(host.name))
    throw ConfigError(
        fmt::format("{}: {} is not the name of a host; write one host per line, as in n1 slots=8", where, in_quotes(host.name)));
  for (std::string word; words >> word;) {
    const std::string key = word.substr(0, word.find('='));
    const std::optional<int> slots = slots_from(std::string_view(word).substr(std::min(key.size() + 1, word.size())));
    if (key != "slots" && key != "max_slots" && key != "max-slots")
      throw ConfigError(
          fmt::format("{}: {} is not known here; write slots=N, and the rest into mpirun's own options", where, in_quotes(word)));
    if (!slots) throw ConfigError(fmt::format("{}: {}: must be an integer from 1 to {}", where, in_quotes(word), kMostSlots));
    if (key == "slots") host.slots = *slots;
  }
  if (host.slots == 0) throw ConfigError(fmt::format("{}: how many ranks {} may have is missing; add slots=N", where, host.name));
  return host;
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_address(std::string_view name) {
  return name.find(':') != std::string_view::npos || name.find_first_not_of("0123456789.") == std::string_view::npos;
}

}  // namespace

std::vector<HostSlots> parse_hostfile(std::string_view text, std::string_view source) {
  std::vector<HostSlots> hosts;
  std::istringstream lines{std::string(text)};
  int number = 0, slots = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    line.erase(std::min(line.find('#'), line.size()));
    if (line.find_first_not_of(" \t\r\v\f") == std::string::npos) continue;
    const std::string where = fmt::format("{}:{}", source, number);
    const HostSlots host = host_from(line, where);
    slots += host.slots;
    if (slots > kMostSlots) throw ConfigError(fmt::format("{}: more than {} slots; name fewer", where, kMostSlots));
    const auto known = std::ranges::find(hosts, host.name, &HostSlots::name);
    if (known == hosts.end())
      hosts.push_back(host);
    else
      known->slots += host.slots;
  }
  if (hosts.empty()) throw ConfigError(fmt::format("{}: names no host; write one per line, as in n1 slots=8", source));
  return hosts;
}

std::vector<HostSlots> read_hostfile(const std::string& path) {
  try {
    return parse_hostfile(read_file(path), path);
  } catch (const DataError& error) {
    throw ConfigError(fmt::format("--nodes-from {}; name a file of hosts as mpirun reads it", error.what()));
  }
}

std::string hostfile_text(std::span<const HostSlots> hosts) {
  std::string text;
  for (const HostSlots& host : hosts) text += fmt::format("{} slots={}\n", host.name, host.slots);
  return text;
}

int slots_of(std::span<const HostSlots> hosts) {
  int slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return slots;
}

bool is_same_host(std::string_view name, std::string_view rank_host) {
  const std::string a = lower(name), b = lower(rank_host);
  if (a == b || is_address(a) || is_address(b)) return a == b;
  const std::size_t dot_a = a.find('.'), dot_b = b.find('.');
  const bool one_is_short = (dot_a == std::string::npos) != (dot_b == std::string::npos);
  return one_is_short && a.substr(0, dot_a) == b.substr(0, dot_b);
}

}  // namespace trident
