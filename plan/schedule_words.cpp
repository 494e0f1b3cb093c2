#include "plan/schedule_words.h"

#include <cctype>

namespace trident {

namespace {

struct Word {
  std::string_view text;
  void (*apply)(ScheduleWords&);
};

// Zero-bubble orders: Qi et al. 2024. Divided vocabularies and what their passes keep in flight: Yeung et al. 2025.
constexpr Word kWords[] = {
    {"1f1b", [](ScheduleWords&) {}},
    {"1f1b-i", [](ScheduleWords&) {}},
    {"interleaved", [](ScheduleWords&) {}},
    {"baseline", [](ScheduleWords&) {}},
    {"all-reduce", [](ScheduleWords&) {}},
    {"optimizer", [](ScheduleWords&) {}},
    {"gpipe", [](ScheduleWords& s) { s.order = SimulatedKind::kGpipe; }},
    {"zb-1p", [](ScheduleWords& s) { s.order = SimulatedKind::kZb1p; }},
    {"zb-h1", [](ScheduleWords& s) { s.order = SimulatedKind::kZbH1; }},
    {"zb-2p", [](ScheduleWords& s) { s.order = SimulatedKind::kZb2p; }},
    {"zb-h2", [](ScheduleWords& s) { s.order = SimulatedKind::kZbH2; }},
    {"sync", [](ScheduleWords& s) { s.waits_for_all = true; }},
    {"redis", [](ScheduleWords& s) { s.blocks_by_cost = true; }},
    {"vocab-1", [](ScheduleWords& s) { s.vocabulary_divided = true, s.more_in_flight = 2; }},
    {"vocab-2", [](ScheduleWords& s) { s.vocabulary_divided = true, s.more_in_flight = 1; }},
    {"interlaced", [](ScheduleWords& s) { s.vocabulary_divided = true, s.in_flight_factor = 1.5; }},
};

bool apply_word(std::string_view text, ScheduleWords& result) {
  for (const Word& word : kWords)
    if (word.text == text) {
      word.apply(result);
      return true;
    }
  return false;
}

}  // namespace

ScheduleWords read_schedule_words(std::string_view name) {
  ScheduleWords result;
  std::string word;
  for (std::size_t i = 0; i <= name.size(); ++i) {
    const unsigned char c = i < name.size() ? static_cast<unsigned char>(name[i]) : ' ';
    if (std::isalnum(c) || c == '-') {
      word += static_cast<char>(std::tolower(c));
    } else if (!word.empty()) {
      if (!apply_word(word, result) && result.unknown.empty()) result.unknown = word;
      word.clear();
    }
  }
  return result;
}

}  // namespace trident
