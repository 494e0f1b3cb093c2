#include "tests/train/trace_file.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace trident::testing {
namespace {

using nlohmann::json;

bool has_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "integer") return value.is_number_integer();
  throw std::runtime_error("the schema names a type " + type);
}

class Judge {
 public:
  explicit Judge(const json& schema) : root_(schema) {}

  std::vector<std::string> problems(const json& schema, const json& value, const std::string& path) const {
    std::vector<std::string> found;
    const auto say = [&](const std::string& what) { found.push_back(path + ": " + what); };
    const auto take = [&](std::vector<std::string> more) { found.insert(found.end(), more.begin(), more.end()); };
    if (schema.contains("$ref")) {
      const std::string name = schema["$ref"].get<std::string>().substr(std::string("#/$defs/").size());
      return problems(root_.at("$defs").at(name), value, path);
    }
    if (schema.contains("const") && value != schema["const"]) say(value.dump() + " is not " + schema["const"].dump());
    if (schema.contains("enum") && std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
      say(value.dump() + " is none of the values");
    if (schema.contains("type") && !has_type(value, schema["type"])) {
      say(value.dump().substr(0, 40) + " is no " + schema["type"].get<std::string>());
      return found;
    }
    if (schema.contains("minimum") && value.get<double>() < schema["minimum"].get<double>()) say(value.dump() + " is too small");
    if (schema.contains("oneOf")) take(one_of(schema["oneOf"], value, path));
    if (value.is_object()) {
      for (const json& key : schema.value("required", json::array()))
        if (!value.contains(key)) say("lacks " + key.get<std::string>());
      const json properties = schema.value("properties", json::object());
      for (const auto& [key, member] : value.items()) {
        if (properties.contains(key)) take(problems(properties[key], member, path + "." + key));
        else if (!schema.value("additionalProperties", true)) say("has a key " + key);
      }
    }
    if (value.is_array() && schema.contains("items"))
      for (std::size_t i = 0; i < value.size(); ++i)
        take(problems(schema["items"], value[i], path + "[" + std::to_string(i) + "]"));
    return found;
  }

 private:
  std::vector<std::string> one_of(const json& choices, const json& value, const std::string& path) const {
    std::vector<std::string> closest;
    int fits = 0;
    for (const json& choice : choices) {
      const std::vector<std::string> found = problems(choice, value, path);
      if (found.empty()) ++fits;
      else if (closest.empty() || found.size() < closest.size()) closest = found;
    }
    if (fits == 1) return {};
    return fits == 0 ? closest : std::vector<std::string>{path + ": fits " + std::to_string(fits) + " forms"};
  }

  const json& root_;
};

std::int64_t nanoseconds(const json& microseconds) { return std::llround(1e3 * microseconds.get<double>()); }

std::map<std::pair<int, int>, std::string> lane_names(const json& trace) {
  std::map<std::pair<int, int>, std::string> names;
  for (const json& e : trace["traceEvents"])
    if (e["ph"] == "M" && e["name"] == "thread_name") names[{e["pid"], e["tid"]}] = e["args"]["name"];
  return names;
}

}  // namespace

std::vector<std::string> schema_problems(const json& schema, const json& value) {
  return Judge(schema).problems(schema, value, "$");
}

std::map<std::pair<int, std::string>, std::vector<json>> slices_by_lane(const json& trace) {
  const auto names = lane_names(trace);
  std::map<std::pair<int, std::string>, std::vector<json>> lanes;
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "X") continue;
    const auto name = names.find({e["pid"], e["tid"]});
    lanes[{e["pid"], name == names.end() ? "?" : name->second}].push_back(e);
  }
  for (auto& [lane, slices] : lanes) {
    std::stable_sort(slices.begin(), slices.end(), [](const json& a, const json& b) {
      return std::pair(nanoseconds(a["ts"]), nanoseconds(a["dur"])) < std::pair(nanoseconds(b["ts"]), nanoseconds(b["dur"]));
    });
  }
  return lanes;
}

std::vector<std::string> trace_problems(const json& trace) {
  std::vector<std::string> found;
  const auto lanes = slices_by_lane(trace);
  for (const auto& [lane, slices] : lanes) {
    const std::string where = "rank " + std::to_string(lane.first) + ", " + lane.second;
    if (lane.second == "?") found.push_back(where + ": a lane without a name");
    for (std::size_t i = 1; i < slices.size(); ++i) {
      if (nanoseconds(slices[i - 1]["ts"]) + nanoseconds(slices[i - 1]["dur"]) > nanoseconds(slices[i]["ts"]))
        found.push_back(where + ": " + slices[i - 1].dump() + " overlaps " + slices[i].dump());
    }
  }
  std::map<std::int64_t, std::vector<json>> starts, ends;
  const auto names = lane_names(trace);
  for (const json& e : trace["traceEvents"]) {
    if (e["ph"] != "s" && e["ph"] != "f") continue;
    (e["ph"] == "s" ? starts : ends)[e["id"]].push_back(e);
    const auto lane = lanes.find({e["pid"], names.at({e["pid"], e["tid"]})});
    const std::int64_t at = nanoseconds(e["ts"]);
    const bool inside = lane != lanes.end() && std::any_of(lane->second.begin(), lane->second.end(), [&](const json& slice) {
      return nanoseconds(slice["ts"]) <= at && at <= nanoseconds(slice["ts"]) + nanoseconds(slice["dur"]);
    });
    if (!inside) found.push_back(e.dump() + " lies in no slice");
  }
  for (const auto& [id, list] : starts) {
    const auto end = ends.find(id);
    if (list.size() != 1 || end == ends.end() || end->second.size() != 1) {
      found.push_back("arrow " + std::to_string(id) + " has " + std::to_string(list.size()) + " starts and " +
                      std::to_string(end == ends.end() ? 0 : end->second.size()) + " ends");
    } else if (nanoseconds(end->second[0]["ts"]) < nanoseconds(list[0]["ts"])) {
      found.push_back("arrow " + std::to_string(id) + " ends before it starts");
    }
  }
  for (const auto& [id, list] : ends)
    if (!starts.contains(id)) found.push_back("arrow " + std::to_string(id) + " has no start");
  return found;
}

std::size_t count_arrows(const json& trace) {
  return static_cast<std::size_t>(
      std::count_if(trace["traceEvents"].begin(), trace["traceEvents"].end(), [](const json& e) { return e["ph"] == "s"; }));
}

}  // namespace trident::testing
