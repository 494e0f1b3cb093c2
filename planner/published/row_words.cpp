#include "planner/published/row_words.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <optional>
#include <vector>

namespace trident {
namespace {

// Letters and digits in a row, in small letters.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool open = false;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (!std::isalnum(byte)) {
      open = false;
      continue;
    }
    if (!open) words.emplace_back();
    words.back() += static_cast<char>(std::tolower(byte));
    open = true;
  }
  return words;
}

template <std::size_t N>
bool is_any_of(std::string_view word, const std::array<std::string_view, N>& list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// "3" or "stage3" or "zero3": the stage; -1: a number that is none, or that `word` has another form.
int stage_of(std::string_view word) {
  for (const std::string_view before : {"zero", "stage"})
    if (word.starts_with(before)) word.remove_prefix(before.size());
  return word.size() == 1 && word[0] >= '0' && word[0] <= '3' ? word[0] - '0' : -1;
}

constexpr std::array<std::string_view, 7> kNone{"none", "no", "off", "false", "disabled", "without", "0"};

}  // namespace

std::optional<ZeroWords> zero_of(std::string_view text) {
  const std::vector<std::string> words = words_of(text);
  std::string joined;
  for (const std::string& word : words) joined += word;
  const auto says = [&](std::string_view part) { return joined.find(part) != joined.npos; };
  for (const std::string_view part : {"hsdp", "hybrid", "offload", "infinity", "nvme", "mics", "hpz"})
    if (says(part)) return std::nullopt;
  if (text.find("++") != text.npos) return std::nullopt;
  if (words.size() == 1 && (is_any_of(words[0], kNone) || words[0] == "ddp" || words[0] == "dp")) return ZeroWords{};
  if (joined == "noshard") return ZeroWords{};
  if (says("distopt") || says("distributedopt")) return ZeroWords{1, false};
  // Every number that is said is a stage, and all are the same one.
  int stage = -1;
  const bool fsdp = says("fsdp");
  for (const std::string& word : words) {
    if (word == "fsdp" || word == "fsdp1" || word == "fsdp2") continue;  // its versions
    if (std::none_of(word.begin(), word.end(), is_digit)) continue;
    const int said = stage_of(word);
    if (said < 0 || (stage >= 0 && said != stage)) return std::nullopt;
    stage = said;
  }
  const bool named = says("zero") || says("stage") || fsdp || words.size() == 1;
  if (stage >= 0) return named ? std::optional(ZeroWords{stage, stage != 0}) : std::nullopt;
  if (says("shardgrad") || (fsdp && says("grad"))) return ZeroWords{2, true};
  if (fsdp || says("fullshard")) return ZeroWords{3, true};
  return std::nullopt;
}

std::optional<Recompute> recompute_of(std::string_view text) {
  // Whatever stands beside the mode and changes nothing.
  constexpr std::array<std::string_view, 18> kBeside{"activation",    "activations",   "checkpointing", "checkpoint",
                                                     "checkpoints",   "recompute",     "recomputation", "recomputing",
                                                     "granularity",   "ac",            "every",         "each",
                                                     "all",           "layer",         "layers",        "uniform",
                                                     "only",          "the"};
  constexpr std::array<std::string_view, 3> kAttention{"core", "attn", "attention"};
  constexpr std::array<std::string_view, 5> kPerOp{"per", "op", "ops", "operation", "operations"};
  constexpr std::array<std::string_view, 4> kYes{"true", "yes", "on", "full"};
  bool none = false, full = false, selective = false, per_op = false, attention = false;
  for (const std::string& word : words_of(text)) {
    if (is_any_of(word, kNone)) none = true;
    else if (is_any_of(word, kYes)) full = true;
    else if (word == "selective" || word == "sac") selective = true;
    else if (is_any_of(word, kPerOp)) per_op = true;
    else if (is_any_of(word, kAttention)) attention = true;
    else if (!is_any_of(word, kBeside)) return std::nullopt;
  }
  if (none + full + (selective || per_op || attention) != 1 || (per_op && attention)) return std::nullopt;
  if (none) return Recompute::kNone;
  if (full) return Recompute::kFull;
  if (per_op) return Recompute::kPerOperation;
  return Recompute::kSelective;
}

std::string_view to_string(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone: return "none";
    case Recompute::kSelective: return "selective";
    case Recompute::kPerOperation: return "selective per-op";
    case Recompute::kFull: return "full";
  }
  return "?";
}

std::optional<PrecisionWords> precision_of(std::string_view text) {
  constexpr std::array<std::string_view, 5> kBf16{"bf16", "bfloat16", "bfp16", "fp16bf16", "bf"};
  constexpr std::array<std::string_view, 6> kFp16{"fp16", "float16", "f16", "half", "16", "16bit"};
  constexpr std::array<std::string_view, 7> kFp8{"fp8", "float8", "mxfp8", "f8", "e4m3", "8bit", "nvfp8"};
  constexpr std::array<std::string_view, 5> kFp4{"fp4", "float4", "nvfp4", "mxfp4", "e2m1"};
  constexpr std::array<std::string_view, 9> kOther{"int8", "int4", "uint8", "w8a8", "w4a16", "nf4", "fp6", "mxfp6", "fp64"};
  constexpr std::array<std::string_view, 6> kSingle{"fp32", "float32", "tf32", "f32", "32", "single"};
  constexpr std::array<std::string_view, 4> kMixed{"mixed", "amp", "o1", "o2"};
  PrecisionWords result;
  bool bf16 = false, fp16 = false, fp8 = false, fp4 = false, mixed = false, single = false;
  for (const std::string& word : words_of(text)) {
    if (is_any_of(word, kOther)) return std::nullopt;
    bf16 = bf16 || is_any_of(word, kBf16);
    fp16 = fp16 || is_any_of(word, kFp16);
    fp8 = fp8 || is_any_of(word, kFp8);
    fp4 = fp4 || is_any_of(word, kFp4);
    single = single || is_any_of(word, kSingle);  // beside a narrow format: of master weights or sums
    mixed = mixed || is_any_of(word, kMixed);
    result.compiled = result.compiled || word.starts_with("compile");
  }
  result.by_name = bf16 || fp16 || fp8 || fp4;
  if (!result.by_name && (!mixed || single)) return std::nullopt;
  result.format = fp4 ? MathFormat::kFp4 : fp8 ? MathFormat::kFp8 : MathFormat::k16Bit;
  result.bf16 = (bf16 && !fp16) || fp8 || fp4;
  return result;
}

namespace {

// The number that ends at `end`, or at a blank before it; -1: none.
double number_before(std::string_view text, std::size_t end) {
  if (end > 0 && text[end - 1] == ' ') --end;
  std::size_t begin = end;
  while (begin > 0 && (is_digit(text[begin - 1]) || text[begin - 1] == '.')) --begin;
  double number = -1;
  const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + end, number);
  return error == std::errc() && stop == text.data() + end ? number : -1;
}

struct Unit {
  std::string_view text;
  double bytes_per_s;
};
constexpr Unit kUnits[] = {{"Gb/s", 1e9 / 8}, {"Gbps", 1e9 / 8}, {"Gbit/s", 1e9 / 8},
                           {"Tb/s", 1e12 / 8}, {"Tbps", 1e12 / 8}, {"Tbit/s", 1e12 / 8}};

}  // namespace

double network_of(std::string_view text, double gpus_per_node) {
  constexpr std::string_view kSeparators = ",;:";
  double of_node = 0;
  for (const Unit& known : kUnits) {
    for (std::size_t unit = text.find(known.text); unit != text.npos; unit = text.find(known.text, unit + 1)) {
      const double number = number_before(text, unit);
      if (!(number > 0 && number < 1e6)) continue;
      const double rate = number * known.bytes_per_s;
      const std::size_t before = text.find_last_of(kSeparators, unit), after = text.find_first_of(kSeparators, unit);
      const std::size_t begin = before == text.npos ? 0 : before + 1;
      for (std::size_t x = text.find('x', begin); x < unit; x = text.find('x', x + 1)) {
        const double count = x > begin && is_digit(text[x - 1]) ? number_before(text, x) : 0;
        if (count > 0 && count < 1e4) return count * rate;
      }
      const std::string_view rest = text.substr(unit, after == text.npos ? text.npos : after - unit);
      if (of_node == 0 && rest.find("per node") != rest.npos) of_node = rate;
      if (of_node == 0 && rest.find("per GPU") != rest.npos) of_node = rate * gpus_per_node;
    }
  }
  return of_node;
}

double memory_of(std::string_view text) {
  double found = 0;
  for (std::size_t unit = text.find("GB"); unit != text.npos; unit = text.find("GB", unit + 1)) {
    const std::string_view rest = text.substr(unit + 2);
    const double number = number_before(text, unit);
    if (!(number >= 8 && number <= 1024) || rest.starts_with("/s") || rest.starts_with("ps") || rest.starts_with("it")) continue;
    if (found > 0 && found != number) return 0;
    found = number;
  }
  return found;
}

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
