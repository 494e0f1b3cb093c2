// How ranks find their cards, on machines that a stand-in describes.
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

constexpr std::int64_t kGB = 1'000'000'000, kCard = 80 * kGB;
constexpr std::int64_t kContext = 400'000'000;

// The cards of one machine, and who has opened them: shared by the processes on it.
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
      CardFacts& card = facts_.cards.emplace_back();
      card.number = static_cast<int>(facts_.cards.size()) - 1;
      card.name = name;
      card.id = id;
      card.place = "bus of " + id;
      card.compute_capability = 90;
      card.total_bytes = kCard;
    }
    facts_.libraries = "CUDA 99";
    if (ids.empty()) facts_.problem = "no card in this machine";
  }

  const CudaFacts& facts() override {
    ++asked;
    return facts_;
  }
  std::string open_card(int number) override {
    const std::lock_guard lock(machine_.mutex);
    const std::string& id = of(number).id;
    opened.push_back(id);
    if (machine_.broken.contains(id)) return machine_.broken.at(id);
    machine_.open[id].insert(this);
    return "";
  }
  void close_card(int number) override {
    const std::lock_guard lock(machine_.mutex);
    EXPECT_EQ(machine_.open[of(number).id].erase(this), 1u);
  }
  std::int64_t free_bytes(int number) override {
    const std::lock_guard lock(machine_.mutex);
    if (fails_later) throw ConfigError("the card left");
    const std::string& id = of(number).id;
    EXPECT_EQ(machine_.open[id].count(this), 1u) << "asked before it was opened";
    return kCard - machine_.taken[id] - static_cast<std::int64_t>(machine_.open[id].size()) * kContext;
  }
  std::unique_ptr<Device> make_device(int number, Doorbell&, HostAllocator, const CudaOptions& options) override {
    made = number;
    made_with = options;
    return nullptr;
  }
  std::unique_ptr<Communicator> on_device(DeviceTransport, Device&, Axis, std::unique_ptr<Communicator>) override {
    return nullptr;
  }

  CardFacts& of(int number) { return facts_.cards.at(static_cast<std::size_t>(number)); }

  int asked = 0, made = -1;
  CudaOptions made_with;
  bool fails_later = false;
  std::vector<std::string> opened;

 private:
  Machine& machine_;
  CudaFacts facts_;
};

CardSearch as_threads(StandIn& cuda, int ranks, AskedDevice asked = AskedDevice::kAuto) {
  return look_for_cards(asked, cuda, thread_ranks(ranks));
}

// One process per rank, each with the cards it sees.
std::vector<CardSearch> as_processes(std::vector<StandIn*> of_rank, const std::vector<AskedDevice>& asked = {}) {
  const int ranks = static_cast<int>(of_rank.size());
  testing::Meeting meeting(ranks);
  std::vector<CardSearch> found(of_rank.size());
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto at = static_cast<std::size_t>(r);
      const RunRanks seen_from{{r}, [&, r](const std::string& mine) { return meeting.exchange(r, mine); }};
      found[at] = look_for_cards(asked.empty() ? AskedDevice::kCuda : asked[at], *of_rank[at], seen_from);
    });
  }
  threads.clear();
  return found;
}

std::vector<std::string> ids_of(const CardSearch& found) {
  std::vector<std::string> ids;
  for (const CardSeat& seat : found.seats) ids.push_back(seat.card.id);
  return ids;
}

using Ids = std::vector<std::string>;

TEST(CardOfRank, OneEachWhileThereAreEnough) {
  for (int cards = 1; cards <= 8; ++cards) {
    for (int ranks = 1; ranks <= 24; ++ranks) {
      std::vector<int> on(static_cast<std::size_t>(cards), 0);
      for (int r = 0; r < ranks; ++r) {
        const int card = card_of_rank(r, ranks, cards);
        ASSERT_TRUE(card >= 0 && card < cards) << r << " of " << ranks << " on " << cards;
        ++on[static_cast<std::size_t>(card)];
        EXPECT_GE(card, card_of_rank(std::max(r - 1, 0), ranks, cards)) << "neighbours share";
      }
      const int least = *std::ranges::min_element(on), most = *std::ranges::max_element(on);
      EXPECT_LE(most - least, 1) << ranks << " on " << cards;
    }
  }
}

TEST(AssignCards, RanksThatSeeTheSameShareIt) {
  const Ids all{"a", "b", "c", "d"};
  EXPECT_EQ(assign_cards({all, all, all, all}), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(assign_cards({{"a"}, {"b"}, {"c"}}), (std::vector<int>{0, 0, 0})) << "a card each, shown by the launcher";
  EXPECT_EQ(assign_cards({{"a", "b"}, {"a", "b"}, {"c", "d"}, {"c", "d"}}), (std::vector<int>{0, 1, 0, 1}))
      << "two nodes, or two halves of one";
  EXPECT_EQ(assign_cards({{"a"}, {}, {"a"}}), (std::vector<int>{0, -1, 0}));
}

TEST(LookForCards, ThreadsTakeACardEachAndOpenNoOther) {
  Machine machine;
  StandIn cuda(machine, {"a", "b", "c", "d"});
  const CardSearch found = as_threads(cuda, 2);
  EXPECT_EQ(ids_of(found), (Ids{"a", "b"}));
  EXPECT_EQ(cuda.opened, (Ids{"a", "b"}));
  EXPECT_EQ(found.problem, "");
  EXPECT_EQ(found.notes, Ids{});
  EXPECT_EQ(found.cards.size(), 2u);
  EXPECT_EQ(found.seats[1].ranks, 1);
  EXPECT_EQ(found.seats[1].free_bytes, kCard - kContext);
}

TEST(LookForCards, RanksThatShareACardShareItsMemory) {
  Machine machine;
  StandIn cuda(machine, {"a", "b"});
  const CardSearch found = as_threads(cuda, 6);
  EXPECT_EQ(ids_of(found), (Ids{"a", "a", "a", "b", "b", "b"}));
  EXPECT_EQ(cuda.opened, (Ids{"a", "b"})) << "each once";
  EXPECT_EQ(found.seats[0].ranks, 3);
  ASSERT_EQ(found.memory.size(), 2u);
  EXPECT_EQ(found.memory[1].ranks, (std::vector<int>{3, 4, 5}));
  EXPECT_EQ(found.memory[1].bytes, kCard - kContext - (std::int64_t{3} << 30));
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_EQ(found.notes[0], "6 ranks share 2 cards, up to 3 on one: right for tests, slower than one rank per card");
}

// Every process is shown one card, number 0: nobody shares anything.
TEST(LookForCards, ACardPerProcessIsNotShared) {
  Machine machine;
  StandIn a(machine, {"a"}), b(machine, {"b"}), c(machine, {"c"});
  const std::vector<CardSearch> found = as_processes({&a, &b, &c});
  for (const CardSearch& of_rank : found) {
    ASSERT_EQ(of_rank.seats.size(), 1u);
    EXPECT_EQ(of_rank.seats[0].ranks, 1);
    EXPECT_EQ(of_rank.seats[0].free_bytes, kCard - kContext);
    EXPECT_EQ(of_rank.cards.size(), 3u);
    EXPECT_EQ(of_rank.memory.size(), 3u);
    EXPECT_EQ(of_rank.notes, Ids{});
  }
  EXPECT_EQ(ids_of(found[2]), Ids{"c"});
}

TEST(LookForCards, ProcessesThatSeeAllCardsOpenTheirOwn) {
  Machine machine;
  const Ids all{"a", "b", "c", "d"};
  StandIn p0(machine, all), p1(machine, all), p2(machine, all), p3(machine, all);
  const std::vector<CardSearch> found = as_processes({&p0, &p1, &p2, &p3});
  EXPECT_EQ(ids_of(found[2]), Ids{"c"});
  EXPECT_EQ(p2.opened, Ids{"c"});
  EXPECT_EQ(found[0].memory[3].ranks, std::vector<int>{3});
}

// What each says about memory is asked when all have opened their cards: the note means others, not the ranks themselves.
TEST(LookForCards, ProcessesOnOneCardAreNotTakenForStrangers) {
  Machine machine;
  StandIn p0(machine, {"a"}), p1(machine, {"a"}), p2(machine, {"a"}), p3(machine, {"a"});
  const std::vector<CardSearch> found = as_processes({&p0, &p1, &p2, &p3});
  for (const CardSearch& of_rank : found) {
    EXPECT_EQ(of_rank.seats[0].ranks, 4);
    EXPECT_EQ(of_rank.seats[0].free_bytes, kCard - 4 * kContext);
    EXPECT_EQ(of_rank.notes, Ids{"4 ranks share 1 card, up to 4 on one: right for tests, slower than one rank per card"});
  }
}

TEST(LookForCards, AStrangerOnAnyRanksCardIsNotedByAll) {
  Machine machine;
  machine.taken["b"] = 20 * kGB;
  StandIn a(machine, {"a"}), b(machine, {"b"});
  const std::vector<CardSearch> found = as_processes({&a, &b});
  for (const CardSearch& of_rank : found) {
    ASSERT_EQ(of_rank.notes.size(), 1u);
    EXPECT_TRUE(contains(of_rank.notes[0], "bus of b")) << of_rank.notes[0];
    EXPECT_TRUE(contains(of_rank.notes[0], "20.4 of 80.0 GB are in use already; another process may be computing there"))
        << of_rank.notes[0];
  }
}

TEST(LookForCards, ABrokenCardInTheMiddleIsLeftOut) {
  Machine machine;
  machine.broken["b"] = "it is on fire; put it out";
  StandIn cuda(machine, {"a", "b", "c"});
  const CardSearch found = as_threads(cuda, 2);
  EXPECT_EQ(ids_of(found), (Ids{"a", "c"}));
  EXPECT_EQ(cuda.opened, (Ids{"a", "b", "c"}));
  ASSERT_EQ(found.notes.size(), 1u);
  EXPECT_TRUE(contains(found.notes[0], "card 1 (NVIDIA H100 80GB HBM3, bus of b)") &&
              contains(found.notes[0], "is left out: it is on fire; put it out"))
      << found.notes[0];
}

TEST(LookForCards, ProcessesMoveUpTogetherAndGiveBackWhatTheyLeave) {
  Machine machine;
  machine.broken["b"] = "it is on fire";
  const Ids all{"a", "b", "c", "d"};
  StandIn p0(machine, all), p1(machine, all), p2(machine, all);
  const std::vector<CardSearch> found = as_processes({&p0, &p1, &p2});
  EXPECT_EQ(ids_of(found[0]), Ids{"a"});
  EXPECT_EQ(ids_of(found[1]), Ids{"c"});
  EXPECT_EQ(ids_of(found[2]), Ids{"d"});
  EXPECT_EQ(machine.open["c"], (std::set<const void*>{&p1})) << "its first rank went on to d";
  EXPECT_EQ(found[1].seats[0].free_bytes, kCard - kContext);
  EXPECT_EQ(found[0].notes.size(), 1u);
}

TEST(LookForCards, ACardThatTheDriverSaysIsBrokenIsNotOpened) {
  Machine machine;
  StandIn cuda(machine, {"a", "b"});
  cuda.of(0).problem = "its compute mode is Prohibited";
  const CardSearch found = as_threads(cuda, 1);
  EXPECT_EQ(ids_of(found), Ids{"b"});
  EXPECT_EQ(cuda.opened, Ids{"b"});
  EXPECT_EQ(found.notes.size(), 1u);
}

TEST(LookForCards, WithoutAnyTheReasonIsTheFirstCards) {
  Machine machine;
  machine.broken = {{"a", "no code"}, {"b", "held by another process"}};
  StandIn cuda(machine, {"a", "b"});
  const CardSearch found = as_threads(cuda, 1);
  EXPECT_TRUE(found.seats.empty());
  EXPECT_TRUE(contains(found.problem, "no code")) << found.problem;
  EXPECT_TRUE(found.memory.empty());
}

// One process opened the card, the other could not: neither has it.
TEST(LookForCards, AProcessLosesACardThatItsNeighbourCannotOpen) {
  Machine machine;
  StandIn p0(machine, {"a"}), p1(machine, {"a"});
  Machine other;
  other.broken["a"] = "another process holds the GPU";
  StandIn excluded(other, {"a"});
  const std::vector<CardSearch> found = as_processes({&p0, &excluded});
  EXPECT_TRUE(found[0].seats.empty());
  EXPECT_TRUE(contains(found[0].problem, "another process holds the GPU")) << found[0].problem;
  EXPECT_TRUE(machine.open["a"].empty());
}

TEST(LookForCards, CpuLooksForNoneButTakesPart) {
  Machine machine;
  StandIn a(machine, {"a"}), b(machine, {"b"});
  const std::vector<CardSearch> found = as_processes({&a, &b}, {AskedDevice::kCpu, AskedDevice::kCuda});
  EXPECT_EQ(a.asked, 0);
  EXPECT_TRUE(found[0].seats.empty());
  EXPECT_EQ(ids_of(found[1]), Ids{"b"});
}

TEST(LookForCards, AFailureWhileAskingIsTheProblem) {
  Machine machine;
  StandIn cuda(machine, {"a"});
  cuda.fails_later = true;
  const CardSearch found = as_threads(cuda, 1);
  EXPECT_TRUE(found.seats.empty());
  EXPECT_EQ(found.problem, "the card left");
}

TEST(ChooseDevice, WhatEveryWordComesTo) {
  Machine machine;
  StandIn cards(machine, {"a", "b"}), none(machine, {});
  const auto choose = [](AskedDevice asked, StandIn& cuda) { return choose_device(asked, cuda, as_threads(cuda, 2, asked)); };
  EXPECT_EQ(choose(AskedDevice::kCpu, cards).kind, DeviceKind::kCpu);
  EXPECT_EQ(cards.asked, 0) << "cpu looks for none";
  const DeviceChoice automatic = choose(AskedDevice::kAuto, cards);
  EXPECT_EQ(automatic.kind, DeviceKind::kCuda);
  EXPECT_EQ(automatic.why, "device = auto: 2 cards, CUDA 99");
  EXPECT_EQ(choose(AskedDevice::kCuda, cards).kind, DeviceKind::kCuda);
  const DeviceChoice without = choose(AskedDevice::kAuto, none);
  EXPECT_EQ(without.kind, DeviceKind::kCpu);
  EXPECT_EQ(without.why, "device: CPU (no card in this machine)");
  try {
    choose(AskedDevice::kCuda, none);
    ADD_FAILURE() << "no card, and no error";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(), "device = cuda: no card in this machine");
  }
}

TEST(ChooseDevice, TheLeastMemoryAndOldestCardDecide) {
  Machine machine;
  machine.taken["b"] = 30 * kGB;
  StandIn cuda(machine, {"a", "b"});
  cuda.of(0).compute_capability = 75;
  const DeviceChoice choice = choose_device(AskedDevice::kCuda, cuda, as_threads(cuda, 2));
  const MachineFacts facts = machine_facts(choice, 2);
  EXPECT_EQ(facts.bytes_per_rank(), kCard - 30 * kGB - kContext - (std::int64_t{1} << 30));
  EXPECT_FALSE(facts.fast_bf16);
  EXPECT_EQ(facts.device, DeviceKind::kCuda);
  EXPECT_EQ(facts.description, "NVIDIA H100 80GB HBM3");
  EXPECT_EQ(facts.notes.size(), 2u);
  EXPECT_EQ(facts.memory.size(), 2u);
}

TEST(ChooseDevice, RanksGetTheDeviceOfTheirSeat) {
  Machine machine;
  machine.broken["a"] = "broken";
  StandIn cuda(machine, {"a", "b", "c"});
  const DeviceChoice choice = choose_device(AskedDevice::kCuda, cuda, as_threads(cuda, 2));
  Doorbell doorbell;
  make_rank_device(choice, cuda, doorbell, {.seat = 1});
  EXPECT_EQ(cuda.made, 2);
}

TEST(ChooseDevice, WhatTheConfigurationSaysOfCardsReachesTheDevice) {
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

TEST(NamedPeak, OfCardsAndOfParts) {
  EXPECT_EQ(named_peak_flops("NVIDIA H100 80GB HBM3", DType::kBF16), 989e12);
  EXPECT_EQ(named_peak_flops("NVIDIA H100 PCIe", DType::kBF16), 756e12);
  EXPECT_EQ(named_peak_flops("NVIDIA A100-SXM4-80GB", DType::kBF16), 312e12);
  EXPECT_EQ(named_peak_flops("NVIDIA H100 80GB HBM3", DType::kF32), std::nullopt);
  EXPECT_EQ(named_peak_flops("NVIDIA H100 80GB HBM3 MIG 1g.10gb", DType::kBF16), std::nullopt);
  EXPECT_EQ(named_peak_flops("Some Card", DType::kBF16), std::nullopt);
  EXPECT_EQ(named_peak_flops(Ids{"NVIDIA H200", "NVIDIA H200"}, DType::kBF16), 2 * 989e12);
  EXPECT_EQ(named_peak_flops(Ids{"NVIDIA H200", "Some Card"}, DType::kBF16), std::nullopt);
}

}  // namespace
}  // namespace trident
