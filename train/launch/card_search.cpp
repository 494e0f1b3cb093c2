#include "train/launch/card_search.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

#include "core/host_name.h"
#include "core/json_reader.h"
#include "core/number_text.h"

namespace trident {
namespace {

// What CUDA, its libraries and their kernels take of a card beside the arenas, for each rank; and its context alone, at most.
constexpr std::int64_t kReservedPerRank = std::int64_t{1} << 30;
constexpr std::int64_t kContextPerRank = std::int64_t{1} << 29;
constexpr double kBusyShare = 0.05;  // of a card's memory in others' hands: worth a line
constexpr JsonRules kCardRules{.comments = JsonComments::kRefused, .max_bytes = std::size_t{4} << 20, .max_depth = 8, .blame = ExitCode::kConfig};

std::int64_t usable_bytes(std::int64_t free, std::size_t ranks) {
  return std::max<std::int64_t>(0, free - static_cast<std::int64_t>(ranks) * kReservedPerRank);
}

std::string text_of(const CardFacts& card) { return fmt::format("card {} ({}, {}) of {}", card.number, card.name, card.place, host_name()); }

// What a process says of a card; what is not asked for is left empty.
struct CardWord {
  std::string id = {}, name = {}, text = {};  // `text`: for messages
  std::int64_t free_bytes = 0, total_bytes = 0;
};
using CardWords = std::vector<CardWord>;

std::string encode(const CardWords& words) {
  JsonValue::Array all;
  for (const CardWord& w : words)
    all.emplace_back(JsonValue::Object{{"id", w.id}, {"name", w.name}, {"text", w.text}, {"free", w.free_bytes}, {"total", w.total_bytes}});
  return to_json_text(all);
}

CardWords decode(const std::string& text) {
  CardWords words;
  const JsonValue all = parse_json(text, "what a rank says of its cards", kCardRules);
  for (const JsonValue& w : all.items())
    words.push_back({w.find("id")->as_string(), w.find("name")->as_string(), w.find("text")->as_string(), w.find("free")->as_integer(),
                     w.find("total")->as_integer()});
  return words;
}

// By rank.
std::vector<CardWords> exchange_words(const ExchangeTexts& exchange, const CardWords& mine) {
  std::vector<CardWords> all;
  for (const std::string& text : exchange(encode(mine))) all.push_back(decode(text));
  return all;
}

// The search of one process.
class CardsAsked {
 public:
  CardsAsked(AskedDevice asked, CudaBackend& cuda, const RunRanks& ranks) : cuda_(cuda), ranks_(ranks) {
    if (asked == AskedDevice::kCpu) return;
    for (const CardFacts& card : cuda.facts().cards) {
      if (card.problem.empty()) usable_.push_back(card);
      else left_out(card, card.problem);
    }
    found_.problem = cuda.facts().problem;
  }

  CardSearch run() {
    do {
      share_out();
    } while (somebody_looks_ && open_and_leave_out());
    take_seats();
    if (somebody_looks_) {
      note_left_out();  // and from here on nobody is on a card that is not its own
      ask_for_memory();
      describe_run();
    }
    return std::move(found_);
  }

 private:
  // Who sees what, and takes which.
  void share_out() {
    CardWords mine;
    for (const CardFacts& card : usable_) mine.push_back({.id = card.id, .name = card.name});
    const std::vector<CardWords> all = exchange_words(ranks_.exchange, mine);
    std::vector<std::vector<std::string>> seen(all.size());
    for (std::size_t r = 0; r < all.size(); ++r)
      for (const CardWord& card : all[r]) seen[r].push_back(card.id);
    somebody_looks_ = std::ranges::any_of(seen, [](const auto& list) { return !list.empty(); });
    assigned_ = assign_cards(seen);
    ranks_of_card_.clear();
    for (std::size_t r = 0; r < all.size(); ++r) {
      if (assigned_[r] < 0) continue;
      const CardWord& card = all[r][static_cast<std::size_t>(assigned_[r])];
      ranks_of_card_[card.id].push_back(static_cast<int>(r));
      names_[card.id] = card.name;
    }
  }

  const CardFacts* card_of(int rank) const {
    const int place = assigned_[static_cast<std::size_t>(rank)];
    return place < 0 ? nullptr : &usable_[static_cast<std::size_t>(place)];
  }

  void left_out(const CardFacts& card, const std::string& why) {
    remarks_.push_back({.text = fmt::format("{} is left out: {}", text_of(card), why)});
  }

  // Opens the cards of this process's ranks; true if that failed for any rank's card, which nobody considers any longer.
  bool open_and_leave_out() {
    CardWords failed;
    for (const int rank : ranks_.mine) {
      const CardFacts* const card = card_of(rank);
      if (card == nullptr || opened_.contains(card->number)) continue;
      if (std::ranges::any_of(failed, [&](const CardWord& word) { return word.id == card->id; })) continue;
      const std::string problem = cuda_.open_card(card->number);
      if (problem.empty()) {
        opened_.insert(card->number);
        continue;
      }
      failed.push_back({.id = card->id, .text = fmt::format("{}: {}", text_of(*card), problem)});
      left_out(*card, problem);
    }
    bool any = false;
    for (const CardWords& words : exchange_words(ranks_.exchange, failed)) {
      for (const CardWord& word : words) {
        any = true;
        const auto gone = std::erase_if(usable_, [&](const CardFacts& card) { return card.id == word.id; });
        if (gone > 0 && found_.problem.empty()) found_.problem = word.text;
      }
    }
    return any;
  }

  void take_seats() {
    for (const int rank : ranks_.mine) {
      if (const CardFacts* const card = card_of(rank)) found_.seats.push_back({*card, static_cast<int>(ranks_of_card_.at(card->id).size())});
    }
    if (found_.seats.size() < ranks_.mine.size()) found_.seats.clear();
    if (!found_.seats.empty()) found_.problem.clear();
    for (const int number : opened_) {
      if (std::ranges::none_of(found_.seats, [&](const CardSeat& seat) { return seat.card.number == number; })) cuda_.close_card(number);
    }
  }

  void note_left_out() {
    std::set<std::string> noted;
    for (const CardWords& words : exchange_words(ranks_.exchange, remarks_)) {
      for (const CardWord& word : words)
        if (noted.insert(word.text).second) found_.notes.push_back(word.text);
    }
  }

  // All have opened their cards by now, and none has taken memory.
  void ask_for_memory() {
    try {
      for (CardSeat& seat : found_.seats) seat.free_bytes = cuda_.free_bytes(seat.card.number);
    } catch (const Error& error) {
      found_.problem = error.what();
      found_.seats.clear();
    }
  }

  // What is the same on every rank.
  void describe_run() {
    CardWords mine;
    for (const CardSeat& seat : found_.seats)
      mine.push_back({.id = seat.card.id, .text = text_of(seat.card), .free_bytes = seat.free_bytes, .total_bytes = seat.card.total_bytes});
    std::map<std::string, std::int64_t> free;
    std::vector<std::string> ids;  // of the cards in found_.memory
    for (const CardWords& words : exchange_words(ranks_.exchange, mine)) {
      for (const CardWord& word : words) {
        const auto [at, first] = free.emplace(word.id, word.free_bytes);
        at->second = std::min(at->second, word.free_bytes);
        if (!first) continue;
        ids.push_back(word.id);
        describe_card(word);
      }
    }
    for (std::size_t c = 0; c < ids.size(); ++c) {
      found_.cards.push_back(names_.at(ids[c]));
      found_.memory[c].bytes = usable_bytes(free.at(ids[c]), found_.memory[c].ranks.size());
    }
    describe_sharing();
  }

  void describe_card(const CardWord& card) {
    const std::vector<int>& ranks = ranks_of_card_.at(card.id);
    found_.memory.push_back({card.text, ranks, 0});
    const std::int64_t taken = card.total_bytes - card.free_bytes;
    const double of_others = static_cast<double>(taken - static_cast<std::int64_t>(ranks.size()) * kContextPerRank);
    if (of_others <= kBusyShare * static_cast<double>(card.total_bytes)) return;
    found_.notes.push_back(fmt::format("{}: {:.1f} of {:.1f} GB are in use already; another process may be computing there", card.text, gigabytes(taken),
                                       gigabytes(card.total_bytes)));
  }

  void describe_sharing() {
    std::size_t ranks = 0, most = 0;
    for (const MemoryPool& pool : found_.memory) ranks += pool.ranks.size(), most = std::max(most, pool.ranks.size());
    if (most < 2) return;
    const std::size_t cards = found_.memory.size();
    found_.notes.push_back(fmt::format("{} ranks share {} card{}, up to {} on one: right for tests, slower than one rank per card", ranks, cards,
                                       cards == 1 ? "" : "s", most));
  }

  CudaBackend& cuda_;
  const RunRanks& ranks_;
  std::vector<CardFacts> usable_;  // that this process sees
  std::set<int> opened_;           // their numbers
  CardWords remarks_;              // on cards left out
  bool somebody_looks_ = false;
  std::vector<int> assigned_;                             // by rank: the place in its list
  std::map<std::string, std::vector<int>> ranks_of_card_; // by id
  std::map<std::string, std::string> names_;              // of cards by id
  CardSearch found_;
};

}  // namespace

RunRanks thread_ranks(int ranks) {
  RunRanks all;
  for (int r = 0; r < ranks; ++r) all.mine.push_back(r);
  all.exchange = [ranks](const std::string& mine) { return std::vector<std::string>(static_cast<std::size_t>(ranks), mine); };
  return all;
}

CardSearch look_for_cards(AskedDevice asked, CudaBackend& cuda, const RunRanks& ranks) {
  return CardsAsked(asked, cuda, ranks).run();
}

bool sees_cards(AskedDevice asked, CudaBackend& cuda) {
  return asked != AskedDevice::kCpu &&
         std::ranges::any_of(cuda.facts().cards, [](const CardFacts& card) { return card.problem.empty(); });
}

int card_of_rank(int rank, int ranks, int cards) { return ranks <= cards ? rank : rank * cards / ranks; }

std::vector<int> assign_cards(const std::vector<std::vector<std::string>>& seen) {
  std::map<std::vector<std::string>, std::vector<std::size_t>> alike;
  for (std::size_t r = 0; r < seen.size(); ++r) alike[seen[r]].push_back(r);
  std::vector<int> assigned(seen.size(), -1);
  for (const auto& [cards, ranks] : alike) {
    if (cards.empty()) continue;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      assigned[ranks[i]] = card_of_rank(static_cast<int>(i), static_cast<int>(ranks.size()), static_cast<int>(cards.size()));
  }
  return assigned;
}

}  // namespace trident
