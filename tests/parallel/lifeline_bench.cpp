// By hand: what a hub of N ranks costs. bench_lifeline N [SECONDS]
//
// The judge alone, per message; then a hub with N - 1 connections in this process: how long they take to come about when all call
// at once, and what share of a core the hub's thread uses while each says something every second.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "parallel/health/lifeline.h"
#include "parallel/health/lifeline_dial.h"
#include "parallel/health/lifeline_judge.h"

namespace trident {
namespace {

void judge(int ranks) {
  LifelineJudge hub({0, 1, 1, "h", 8});
  for (int r = 1; r < ranks; ++r) hub.join(r, r, "h", 0);
  const int wakes = 20000;
  const double begin = monotonic_seconds();
  double now = 0;
  for (int i = 0; i < wakes; ++i) {
    now += 1.0 / ranks;  // everybody once a second
    hub.heard(1 + i % (ranks - 1), RankStatus(), 0, false, now);
    hub.step(now);
    hub.next_step(now);
  }
  fmt::print("judge of {} ranks: {:.2f} us per wake\n", ranks, 1e6 * (monotonic_seconds() - begin) / wakes);
}

std::set<std::string> threads() {
  std::set<std::string> all;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) all.insert(task.path());
  return all;
}

double cpu_seconds(const std::string& task) {
  std::ifstream file(task + "/stat");
  std::string text, word;
  std::getline(file, text);
  std::istringstream words(text.substr(text.rfind(')') + 2));
  double user = 0, system = 0;
  for (int i = 3; i < 14; ++i) words >> word;
  words >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

void hub(int ranks, double seconds) {
  LifelineOptions options;
  options.size = ranks;
  options.deputy = ranks;  // none in this process
  options.host = "h";
  options.connect_seconds = lifeline_connect_seconds(ranks);
  const std::set<std::string> before = threads();
  Lifeline lifeline(options);
  std::string task;
  for (const std::string& t : threads())
    if (!before.contains(t)) task = t;
  const LifelineContact contact = parse_lifeline_contact(lifeline.contact());

  const double begin = monotonic_seconds();
  std::vector<std::vector<LifelineChannel>> parts(64);
  std::vector<std::thread> callers;
  for (std::size_t p = 0; p < parts.size(); ++p)
    callers.emplace_back([&, p] {
      for (int r = 1 + static_cast<int>(p); r < ranks; r += static_cast<int>(parts.size())) {
        LifelineHello mine, answer;
        mine.rank = r;
        parts[p].push_back(dial_lifeline(contact, {mine, 0, 1, options.connect_seconds}, answer));
      }
    });
  lifeline.connect({lifeline.contact()});
  for (std::thread& caller : callers) caller.join();
  fmt::print("{} calls: {:.2f} s, {:.2f} s of the hub's thread\n", ranks - 1, monotonic_seconds() - begin, cpu_seconds(task));

  const double cpu = cpu_seconds(task), start = monotonic_seconds();
  for (int second = 0; second < seconds; ++second) {
    int said = 0;
    for (auto& part : parts)
      for (LifelineChannel& channel : part) {
        channel.send(LifelineHeartbeat());
        channel.receive();
        while (channel.next()) continue;
        const double due = start + second + static_cast<double>(++said) / ranks;
        if (const double early = due - monotonic_seconds(); early > 1e-3)
          std::this_thread::sleep_for(std::chrono::duration<double>(early));
      }
  }
  const double used = cpu_seconds(task) - cpu, passed = monotonic_seconds() - start;
  fmt::print("{} ranks, a heartbeat each per second: {:.1f} % of a core\n", ranks, 100 * used / passed);
  lifeline.goodbye();
  std::fflush(stdout);
  _exit(0);  // the connections' other ends are here, too: nobody would say goodbye
}

}  // namespace
}  // namespace trident

int main(int argc, char** argv) {
  if (argc < 2) return 64;
  const int ranks = std::max(3, std::atoi(argv[1]));
  trident::judge(ranks);
  trident::hub(ranks, argc > 2 ? std::atof(argv[2]) : 5);
}
