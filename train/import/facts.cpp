#include "train/import/facts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/check.h"

namespace trident {
namespace {

constexpr std::string_view kBetween = ", ";  // origins of one fact

[[noreturn]] void refuse_kind(const Fact& fact, std::string_view kind) {
  throw ConfigError(fmt::format("{}: must be {}; correct it", fact.origin, kind));
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

Fact computed(JsonValue value, std::initializer_list<const Fact*> from) {
  Fact fact{std::move(value), "", true};
  for (const Fact* const one : from) {
    if (one == nullptr) continue;
    fact.is_default = fact.is_default && one->is_default;
    if (!is_part_of(one->origin, fact.origin)) fact.origin += (fact.origin.empty() ? "" : std::string(kBetween)) + one->origin;
  }
  return fact;
}

const Fact* Facts::find(std::string_view name) const {
  const auto found = facts_.find(name);
  return found == facts_.end() ? nullptr : &found->second;
}

bool Facts::is_given(std::string_view name) const {
  const Fact* const fact = find(name);
  return fact != nullptr && !fact->is_default;
}

std::optional<std::int64_t> Facts::integer(std::string_view name) const {
  const Fact* const fact = find(name);
  if (fact == nullptr) return std::nullopt;
  if (!fact->value.is_number() || fact->value.as_number() != std::floor(fact->value.as_number()) ||
      std::abs(fact->value.as_number()) > 9e15)
    refuse_kind(*fact, "an integer");
  return fact->value.is_integer() ? fact->value.as_integer() : static_cast<std::int64_t>(fact->value.as_number());
}

std::optional<double> Facts::number(std::string_view name) const {
  const Fact* const fact = find(name);
  if (fact == nullptr) return std::nullopt;
  if (!fact->value.is_number()) refuse_kind(*fact, "a number");
  return fact->value.as_number();
}

std::optional<std::string> Facts::text(std::string_view name) const {
  const Fact* const fact = find(name);
  if (fact == nullptr) return std::nullopt;
  if (!fact->value.is_string()) refuse_kind(*fact, "a text");
  return fact->value.as_string();
}

void Facts::take(std::string_view name, Fact fact) {
  const auto found = facts_.find(name);
  if (found == facts_.end()) return set(name, std::move(fact));
  Fact& known = found->second;
  if (fact.is_default) return;
  if (known.is_default) {
    known = std::move(fact);
  } else if (is_same_value(known.value, fact.value)) {
    known.origin = computed({}, {&known, &fact}).origin;
  } else {
    const std::string ours =
        name.starts_with('@') ? "" : fmt::format(" ({}: {} and {})", name, to_json_text(fact.value), to_json_text(known.value));
    throw ConfigError(fmt::format("{}: {} says otherwise{}; keep one of the two", fact.origin, known.origin, ours));
  }
}

void Facts::set(std::string_view name, Fact fact) { facts_.insert_or_assign(std::string(name), std::move(fact)); }

void Facts::erase(std::string_view name) {
  if (const auto found = facts_.find(name); found != facts_.end()) facts_.erase(found);
}

void Facts::remark(const Fact& fact, std::string text) { remarks_.emplace_back(fact.origin, std::move(text)); }

}  // namespace trident
