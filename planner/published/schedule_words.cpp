#include "planner/published/schedule_words.h"

#include <cctype>
#include <optional>

namespace trident {

namespace {

struct Word {
  std::string_view text;  // without dashes
  void (*apply)(ScheduleWords&);
};

// Divided vocabularies and what their passes keep in flight: Yeung et al. 2025.
constexpr Word kWords[] = {
    {"1f1b", [](ScheduleWords&) {}},
    {"pipedreamflush", [](ScheduleWords&) {}},
    {"1f1bi", [](ScheduleWords& s) { s.interleaved = true; }},
    {"interleaved", [](ScheduleWords& s) { s.interleaved = true; }},
    {"interleaved1f1b", [](ScheduleWords& s) { s.interleaved = true; }},
    {"1f1binterleaved", [](ScheduleWords& s) { s.interleaved = true; }},
    {"baseline", [](ScheduleWords&) {}},
    {"allreduce", [](ScheduleWords&) {}},
    {"optimizer", [](ScheduleWords&) {}},
    {"sync", [](ScheduleWords& s) { s.waits_for_all = true; }},
    {"redis", [](ScheduleWords& s) { s.blocks_by_cost = true; }},
    {"vocab1", [](ScheduleWords& s) { s.vocabulary_divided = true, s.more_in_flight = 2; }},
    {"vocab2", [](ScheduleWords& s) { s.vocabulary_divided = true, s.more_in_flight = 1; }},
    {"interlaced", [](ScheduleWords& s) { s.vocabulary_divided = true, s.in_flight_factor = 1.5; }},
};

struct Order {
  std::string_view text;  // without dashes
  SimulatedKind kind;
};

// Zero-bubble orders: Qi et al. 2023. V-shaped ones: Qi et al. 2024, which calls zb-v V-ZB.
constexpr Order kOrders[] = {
    {"gpipe", SimulatedKind::kGpipe}, {"afab", SimulatedKind::kGpipe},  {"zb1p", SimulatedKind::kZb1p},
    {"zbh1", SimulatedKind::kZbH1},   {"zb2p", SimulatedKind::kZb2p},   {"zbh2", SimulatedKind::kZbH2},
    {"zbv", SimulatedKind::kZbV},     {"vzb", SimulatedKind::kZbV},     {"zbvzerobubble", SimulatedKind::kZbV},
    {"vhalf", SimulatedKind::kVHalf}, {"zbvhalf", SimulatedKind::kVHalf}, {"vmin", SimulatedKind::kVMin},
    {"zbvmin", SimulatedKind::kVMin},
};

// false: no such word, or one that contradicts another.
bool apply_word(std::string_view text, ScheduleWords& result, std::optional<SimulatedKind>& order) {
  for (const Order& known : kOrders)
    if (known.text == text) {
      if (order && *order != known.kind) return false;
      order = result.order = known.kind;
      return !result.interleaved;
    }
  for (const Word& word : kWords)
    if (word.text == text) {
      word.apply(result);
      return !result.interleaved || !order;
    }
  return false;
}

}  // namespace

ScheduleWords read_schedule_words(std::string_view name) {
  ScheduleWords result;
  std::optional<SimulatedKind> order;
  std::string said, word;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    const unsigned char c = i < name.size() ? static_cast<unsigned char>(name[i]) : ' ';
    const bool dash = c == '-' || c == '_';
    // A byte that is neither a letter of ASCII nor a sign between words is part of a word, which then nobody knows.
    if (std::isalnum(c) || dash || c < ' ' || c > '~') {
      said += static_cast<char>(std::tolower(c));
      if (!dash) word += said.back();
    } else {
      if (!said.empty() && !apply_word(word, result, order) && result.unknown.empty()) result.unknown = said;
      said.clear();
      word.clear();
    }
  }
  return result;
}

}  // namespace trident
