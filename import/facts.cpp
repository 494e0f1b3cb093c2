#include "import/facts.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>

#include "core/check.h"
#include "train/config/option_table.h"
#include "train/config/option_values.h"

namespace trident {
namespace {

constexpr std::string_view kBetween = ", ";  // origins of one fact

[[noreturn]] void refuse_kind(std::string_view name, const Fact& fact, std::string_view kind) {
  std::string_view key = key_of(name);
  for (const ForeignSection& section : foreign_sections())
    for (const ForeignKey& row : section.keys)
      if (key.empty() && fact_of(row.to) == name) key = key_of(row.to);
  const bool is_open = fact.is_open(), counts_ranks = name == "@nodes" || name == "@ranks" ||
                                                                                         name == "@ranks_per_node";
  throw ConfigError(fmt::format("{}: must be {}; {}{}", fact.origin, kind,
                                is_open ? "write it there" : counts_ranks ? "write one number" : "correct it",
                                !is_open       ? ""
                                : counts_ranks ? ", or give trident import --ranks N"
                                : key.empty()  ? ""
                                               : fmt::format(", or give trident train --import --set {}=...", key)));
}

// The product of one side of a formula, and what it is made of.
struct Factors {
  double product = 1;
  Fact from{{}, "", Weight::kDefault};
  std::string text, missing, open;

  void multiply(double factor, std::string_view name) {
    product *= factor;
    text += fmt::format("{}{}", text.empty() ? "" : " x ", name.substr(name.starts_with('@') ? 1 : 0));
  }
};

Factors factors_of(const Facts& facts, std::string_view names, bool is_divisor) {
  Factors all;
  for (std::string& name : words_in(names)) {
    const bool is_optional = name.ends_with('?');
    if (is_optional) name.pop_back();
    if (const std::optional<JsonValue> number = number_in(name)) {
      all.multiply(number->as_number(), name);
    } else if (const Fact* const fact = facts.find(name); fact != nullptr && !fact->value.is_null()) {
      if (fact->is_open()) all.open = text_of(fact->value);
      else all.multiply(is_divisor ? static_cast<double>(*facts.positive(name)) : *facts.not_negative(name), name);
      const Weight weight = name == "parallel.data" ? Weight::kDefault : fact->weight;
      all.from = {{}, computed({}, {&all.from, fact}).origin, std::max(all.from.weight, weight)};
    } else if (!is_optional) {
      all.missing = name;
    }
  }
  return all;
}

}  // namespace

bool is_same_value(const JsonValue& a, const JsonValue& b) {
  if (a.is_number() && b.is_number()) return a.as_number() == b.as_number();
  if (!a.is_array() || !b.is_array()) return a == b;
  return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), is_same_value);
}

bool is_part_of(std::string_view part, std::string_view origin) {
  for (std::size_t at = origin.find(part); at != origin.npos; at = origin.find(part, at + 1)) {
    const std::string_view before = origin.substr(0, at), behind = origin.substr(at + part.size());
    if ((before.empty() || before.ends_with(kBetween)) && (behind.empty() || behind.starts_with(kBetween))) return true;
  }
  return false;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

bool Fact::is_open() const { return text_of(value).find_first_of("$`") != std::string::npos; }

std::string text_of(const JsonValue& value) { return value.is_string() ? value.as_string() : to_json_text(value); }

std::optional<JsonValue> number_in(std::string_view given) {
  if (given.starts_with('+')) given.remove_prefix(1);
  const auto is_digit = [&](std::size_t at) { return at < given.size() && given[at] >= '0' && given[at] <= '9'; };
  std::string text;
  for (std::size_t i = 0; i < given.size(); ++i)
    if (given[i] != '_' || i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) text += given[i];  // Python's 300_000_000
  if (text.empty() || text.find_first_not_of("0123456789.eE+-") != text.npos) return std::nullopt;
  const char* const end = text.data() + text.size();
  std::int64_t integer = 0;
  if (const auto [at, error] = std::from_chars(text.data(), end, integer); error == std::errc() && at == end)
    return JsonValue(integer);
  double number = 0;
  if (const auto [at, error] = std::from_chars(text.data(), end, number); error == std::errc() && at == end)
    return JsonValue(number);
  return std::nullopt;
}

std::vector<std::string> words_in(const JsonValue& value, std::string_view between) {
  std::vector<std::string> words;
  if (value.is_array()) {
    for (const JsonValue& item : value.items()) std::ranges::move(words_in(item, between), std::back_inserter(words));
    return words;
  }
  const std::string text = text_of(value);
  for (std::size_t at = text.find_first_not_of(between); at < text.size(); at = text.find_first_not_of(between, at)) {
    const std::size_t end = std::min(text.find_first_of(between, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

Fact computed(JsonValue value, std::initializer_list<const Fact*> from) {
  Fact fact{std::move(value), "", Weight::kDefault};
  for (const Fact* const one : from) {
    if (one == nullptr || one->origin.empty()) continue;
    fact.weight = std::max(fact.weight, one->weight);
    if (!is_part_of(one->origin, fact.origin)) fact.origin += (fact.origin.empty() ? "" : std::string(kBetween)) + one->origin;
  }
  return fact;
}

Fact of_default(ForeignSystem system, JsonValue value, std::string_view why) {
  return {std::move(value), fmt::format("{}{}", default_origin(system), why), Weight::kDefault};
}

std::int64_t whole_number(double value, std::initializer_list<const Fact*> from) {
  if (!(std::abs(value) <= kMostExact))  // also what is no number
    throw ConfigError(fmt::format("{}: no whole number of 9e15 or less follows; correct one of them", computed({}, from).origin));
  return static_cast<std::int64_t>(value);
}

void apply(Facts& facts, const Formula& formula) {
  const std::vector<std::string> names = words_in(formula.product);
  const auto own = std::ranges::find_if(names, [](const std::string& name) { return name.starts_with('@'); });
  const Fact* const first = facts.find(own == names.end() ? names.front() : *own);
  if (first == nullptr) return;
  const Factors above = factors_of(facts, formula.product, false), below = factors_of(facts, formula.over, true);
  Fact fact = computed({}, {&above.from, &below.from});
  if (const std::string& missing = above.missing.empty() ? below.missing : above.missing; missing == "parallel.data")
    return facts.remark(first->is_default() ? fact : *first,
                        fmt::format("{} is this times the data-parallel ranks, which no input counts: give trident import --ranks "
                                    "N, or trident train --import --set parallel.data=N", formula.to));
  else if (!missing.empty())
    return facts.remark(*first, fmt::format("{} is this {} {}, which no input says", formula.to,
                                            above.missing.empty() ? "over" : "times", missing));
  if (const std::string& open = above.open.empty() ? below.open : above.open; !open.empty()) {
    fact.value = open;
    return facts.take(formula.to, std::move(fact));
  }
  const double value = above.product / below.product;
  if (formula.round == Round::kExact && std::fmod(above.product, below.product) != 0)
    throw ConfigError(fmt::format("{}: {}, {} / ({}), is not a whole number: {} / {}; change one of them{}", fact.origin,
                                  formula.to.substr(formula.to.starts_with('@') ? 1 : 0), above.text, below.text,
                                  above.product, below.product,
                                  formula.to == "parallel.data" ? ", or count the ranks with trident import --ranks N" : ""));
  if (formula.round == Round::kNot)  // a product of decimal fractions as people write it: 1e-6, not 1.0000000000000002e-06
    fact.value = std::strtod(fmt::format("{:.15g}", value).c_str(), nullptr);
  else
    fact.value = whole_number(formula.round == Round::kUp     ? std::ceil(value)
                              : formula.round == Round::kDown ? std::max(1.0, std::floor(value))
                                                              : value,
                              {&fact});
  if (formula.to == "parallel.data" && below.product > 1)
    facts.remark(*first, fmt::format("{} / ({}) = {} / {}", above.text, below.text, above.product, below.product));
  facts.take(formula.to, std::move(fact));
}

const Fact* Facts::find(std::string_view name) const {
  const auto found = facts_.find(name);
  return found == facts_.end() ? nullptr : &found->second;
}

bool Facts::is_given(std::string_view name) const { return find(name) != nullptr && !find(name)->is_default(); }

bool Facts::is(std::string_view name, const JsonValue& value) const {
  return find(name) != nullptr && is_same_value(find(name)->value, value);
}

std::optional<double> Facts::number(std::string_view name, std::string_view kind, double least, double most) const {
  const Fact* const fact = find(name);
  if (fact == nullptr) return std::nullopt;
  if (!fact->value.is_number()) refuse_kind(name, *fact, "a number");
  const double value = fact->value.as_number();
  if (!(value >= least && value <= most)) refuse_kind(name, *fact, kind);
  return value;
}

std::optional<std::int64_t> Facts::integer(std::string_view name, std::string_view kind, double least) const {
  const std::optional<double> value = number(name, "an integer", -kMostExact, kMostExact);
  if (value && *value != std::floor(*value)) refuse_kind(name, *find(name), "an integer");
  if (value && *value < least) refuse_kind(name, *find(name), kind);
  return value ? std::optional(static_cast<std::int64_t>(*value)) : std::nullopt;
}

std::string Facts::text(std::string_view name) const {
  const Fact* const fact = find(name);
  return fact == nullptr || fact->value.is_null() ? "" : text_of(fact->value);
}

std::string Facts::word(std::string_view name) const {
  const std::string word = lower(text(name));
  return word == "false" ? "no" : word;
}

void Facts::take(std::string_view name, Fact fact) {
  const auto found = facts_.find(name);
  if (found == facts_.end()) return set(name, std::move(fact));
  Fact& known = found->second;
  if (fact.weight > known.weight) {
    if (!known.is_default() && is_same_value(known.value, fact.value)) fact.origin = computed({}, {&known, &fact}).origin;
    known = std::move(fact);
  } else if (fact.weight < known.weight || fact.is_default()) {
    return;
  } else if (is_same_value(known.value, fact.value)) {
    known.origin = computed({}, {&known, &fact}).origin;
  } else if (known.is_open() != fact.is_open()) {  // nobody knows whether they are the same
    if (known.is_open()) std::swap(known, fact);
    remark(fact, fmt::format("{} counts in its place", known.origin));
  } else if (settled_.contains(name)) {
    for (const Fact* const one : {&known, &fact}) remark(*one, fmt::format("--set {} counts in its place", name));
  } else if (fact.weight != Weight::kFallback) {
    const std::string ours =
        name.starts_with('@') ? "" : fmt::format(" ({}: {} and {})", name, to_json_text(fact.value), to_json_text(known.value));
    const std::string setting =
        find_option(name) == nullptr ? "" : fmt::format(", or decide by trident train --import --set {}=...", name);
    const auto disagree = [&] {
      throw ConfigError(
          fmt::format("{}: {} says otherwise{}; keep one of the two{}", fact.origin, known.origin, ours, setting));
    };
    if (faults_ == nullptr) disagree();
    collect(*faults_, disagree);
  }
}

void Facts::set(std::string_view name, Fact fact) { facts_.insert_or_assign(std::string(name), std::move(fact)); }

void Facts::set(std::string_view name, JsonValue value, std::initializer_list<std::string_view> from) {
  Fact fact{std::move(value), "", Weight::kDefault};
  for (const std::string_view one : from)
    if (const Fact* const part = find(one)) fact = computed(std::move(fact.value), {&fact, part});
  set(name, std::move(fact));
}

void Facts::erase(std::string_view name) {
  if (const auto found = facts_.find(name); found != facts_.end()) facts_.erase(found);
}

void Facts::erase_block(std::string_view prefix, Weight heaviest) {
  std::erase_if(facts_, [&](const auto& fact) { return fact.first.starts_with(prefix) && fact.second.weight <= heaviest; });
}

std::optional<Fact> Facts::pull(std::string_view name) {
  std::optional<Fact> fact = find(name) == nullptr ? std::nullopt : std::optional(*find(name));
  erase(name);
  return fact;
}

void Facts::remark(const Fact& fact, std::string text) { remarks_.emplace_back(fact.origin, std::move(text)); }

void Facts::remark(std::string_view name, std::string text) {
  if (const Fact* const fact = find(name)) remark(*fact, std::move(text));
}

void Facts::keep_beside(std::string_view other, std::initializer_list<std::string_view> names, std::string_view flag) {
  if (is_on(other)) return;
  for (const std::string_view name : names) {
    if (is_given(name) && !flag.empty()) remark(name, fmt::format("goes with {}", flag));
    erase(name);
  }
}

}  // namespace trident
