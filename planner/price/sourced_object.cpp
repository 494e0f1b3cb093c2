#include "planner/price/sourced_object.h"

#include <fmt/format.h>

#include <cmath>

#include "core/check.h"
#include "core/nearest_name.h"

namespace trident {

SourcedObject::SourcedObject(const JsonValue& object, std::string where, bool calibrated)
    : object_(object), where_(std::move(where)), calibrated_(calibrated) {
  if (object.kind() != JsonValue::Kind::kObject)
    throw ConfigError(fmt::format("{}: expected an object, got {}; write an object", where_, describe(object.kind())));
}

void SourcedObject::refuse(std::string_view key, const std::string& what) const {
  throw ConfigError(fmt::format("{}.{}: {}", where_, key, what));
}

const JsonValue& SourcedObject::member(std::string_view key) {
  const JsonValue* value = object_.find(key);
  if (!value) {
    std::vector<std::string_view> others;
    for (const JsonMember& m : object_.members())
      if (!asked_.contains(m.key)) others.push_back(m.key);
    const std::string_view near = likely_name(key, others);
    refuse(key, fmt::format("is missing{}; no key of these files has a default{}",
                            near.empty() ? "" : fmt::format(" ({}, which is there, may be a misspelling of it)", near),
                            calibrated_ ? ", and one of an earlier version is calibrated again" : ""));
  }
  asked_.emplace(key);
  return *value;
}

const JsonValue& SourcedObject::sourced_value(std::string_view key) {
  const JsonValue& said = member(key);
  if (said.kind() != JsonValue::Kind::kObject)
    refuse(key, fmt::format("is {}; write {{\"value\": {}, \"source\": \"where it is from\"}}", describe(said.kind()),
                            said.is_array() ? "..." : to_json_text(said)));
  SourcedObject constant(said, fmt::format("{}.{}", where_, key));
  const JsonValue& value = constant.member("value");
  const JsonValue& source = constant.member("source");
  if (!source.is_string() || source.as_string().empty()) refuse(key, "names no source; every constant says where it is from");
  constant.finish();
  return value;
}

double SourcedObject::number(std::string_view key, double low, double high) {
  const JsonValue& value = sourced_value(key);
  if (!value.is_number()) refuse(key, "its value must be a number; write one");
  const double x = value.as_number();
  if (!(x >= low && x <= high))
    refuse(key, fmt::format("{} is not in [{}, {}]; write a value of that range, in the unit that the key names", x, low, high));
  return x;
}

int SourcedObject::whole_number(std::string_view key, int low, int high) {
  const double x = number(key, low, high);
  if (x != std::floor(x)) refuse(key, fmt::format("{} is no whole number; write one", x));
  return static_cast<int>(x);
}

std::string SourcedObject::sourced_text(std::string_view key) {
  const JsonValue& value = sourced_value(key);
  if (!value.is_string() || value.as_string().empty()) refuse(key, "its value must be a text; write one");
  return value.as_string();
}

std::string SourcedObject::text(std::string_view key) {
  const JsonValue& value = member(key);
  if (!value.is_string() || value.as_string().empty()) refuse(key, "must be text");
  return value.as_string();
}

std::vector<std::string> SourcedObject::texts(std::string_view key) {
  const JsonValue& value = member(key);
  if (!value.is_array()) refuse(key, "must be a list of texts");
  std::vector<std::string> result;
  for (const JsonValue& item : value.items()) {
    if (!item.is_string()) refuse(key, "must be a list of texts");
    result.push_back(item.as_string());
  }
  return result;
}

bool SourcedObject::flag(std::string_view key) {
  const JsonValue& value = sourced_value(key);
  if (!value.is_bool()) refuse(key, "its value must be true or false; write one of them");
  return value.as_bool();
}

SourcedObject SourcedObject::object(std::string_view key) {
  return SourcedObject(member(key), fmt::format("{}.{}", where_, key));
}

std::vector<std::string> SourcedObject::keys() const {
  std::vector<std::string> result;
  for (const JsonMember& m : object_.members()) result.push_back(m.key);
  return result;
}

void SourcedObject::finish() const {
  for (const JsonMember& m : object_.members())
    if (!asked_.contains(m.key)) refuse(m.key, "is not a key of this object; remove it");
}

}  // namespace trident
