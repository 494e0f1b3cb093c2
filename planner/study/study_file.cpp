#include <algorithm>
#include <array>
#include <filesystem>

#include "core/nearest_name.h"
#include "planner/price/cluster.h"
#include "planner/price/kept_profile.h"
#include "planner/study/study_spec.h"

namespace trident {
namespace {

constexpr std::array<std::string_view, 8> kKeys{"study", "config", "set", "arms", "vary", "scaling", "cluster", "gpus"};

class Reader {
 public:
  Reader(const std::string& file, const JsonValue& root) : file_(file), root_(root) {}

  StudySpec spec() const {
    require_known(root_, {kKeys.begin(), kKeys.end()});
    StudySpec spec;
    spec.title = text(root_, "study", true);
    spec.config = beside(text(root_, "config", true));
    spec.settings = settings(root_);
    spec.cluster = text(root_, "cluster", false);
    if (spec.cluster.find('/') != std::string::npos || spec.cluster.ends_with(".json")) spec.cluster = beside(spec.cluster);
    else if (!spec.cluster.empty() && spec.cluster != "cpu" && spec.cluster != kThisMachine) check_cluster(*root_.find("cluster"));
    if (const JsonValue* scaling = root_.find("scaling")) {
      if (!scaling->is_string()) refuse(*scaling, "scaling: must be \"strong\" or \"weak\"");
      spec.scaling = parse_scaling(scaling->as_string(), at(*scaling) + "scaling");
    }
    if (const JsonValue* gpus = root_.find("gpus")) {
      if (!gpus->is_integer() || gpus->as_integer() < 1) refuse(*gpus, "gpus: must be a whole number of 1 or above");
      spec.gpus = gpus->as_integer();
    }
    if (const JsonValue* arms = root_.find("arms")) spec.arms = read_arms(*arms);
    if (const JsonValue* vary = root_.find("vary")) spec.varied = read_varied(*vary);
    return spec;
  }

 private:
  std::string at(const JsonValue& value) const { return fmt::format("{}:{}: ", file_, value.line()); }
  [[noreturn]] void refuse(const JsonValue& value, const std::string& why) const { throw ConfigError(at(value) + why); }

  void check_cluster(const JsonValue& name) const {
    try {
      find_cluster(shipped_price_book(), name.as_string());
    } catch (const ConfigError& error) {
      refuse(name, error.what());
    }
  }

  void require_known(const JsonValue& object, const std::vector<std::string_view>& known) const {
    for (const JsonMember& member : object.members()) {
      if (std::find(known.begin(), known.end(), member.key) != known.end()) continue;
      const std::string_view near = likely_name(member.key, known);
      refuse(member.value, fmt::format("unknown key {}{}", in_quotes(member.key),
                                       near.empty() ? "; remove it" : fmt::format("; did you mean {}?", near)));
    }
  }

  std::string text(const JsonValue& object, std::string_view key, bool required) const {
    const JsonValue* value = object.find(key);
    if (value == nullptr && !required) return "";
    if (value == nullptr || !value->is_string() || value->as_string().empty())
      refuse(value == nullptr ? object : *value, fmt::format("{}: missing or no text", key));
    return value->as_string();
  }

  std::string beside(const std::string& path) const {
    if (path.empty()) return path;
    return (std::filesystem::path(file_).parent_path() / path).lexically_normal().string();
  }

  // {"parallel.zero": "zero3"}: as --set takes it.
  std::vector<std::string> settings(const JsonValue& object) const {
    const JsonValue* set = object.find("set");
    if (set == nullptr) return {};
    if (!set->is_object()) refuse(*set, "set: must be an object of keys of the configuration and their values");
    std::vector<std::string> settings;
    for (const JsonMember& member : set->members()) {
      settings.push_back(member.key + '=' + to_json_text(member.value));
      try {
        OptionValues().take_setting(settings.back());
      } catch (const ConfigError& error) {
        std::string_view why = error.what();
        if (why.starts_with("--set: ")) why.remove_prefix(7);
        refuse(member.value, std::string(why));
      }
    }
    return settings;
  }

  std::vector<StudyArm> read_arms(const JsonValue& list) const {
    if (!list.is_array() || list.items().empty()) refuse(list, "arms: must be a list of {\"name\": ..., \"set\": {...}}");
    std::vector<StudyArm> arms;
    for (const JsonValue& item : list.items()) {
      if (!item.is_object()) refuse(item, "arms: must be a list of {\"name\": ..., \"set\": {...}}");
      require_known(item, {"name", "set"});
      arms.push_back({text(item, "name", true), settings(item)});
      for (std::size_t i = 0; i + 1 < arms.size(); ++i)
        if (arms[i].name == arms.back().name) refuse(item, fmt::format("two arms are called {}", in_quotes(arms.back().name)));
    }
    return arms;
  }

  std::vector<VariedKey> read_varied(const JsonValue& list) const {
    if (!list.is_array()) refuse(list, "vary: must be a list of texts such as \"gpus=64..4096\"");
    std::vector<VariedKey> varied;
    for (const JsonValue& item : list.items()) {
      if (!item.is_string()) refuse(item, "vary: must be a list of texts such as \"gpus=64..4096\"");
      for (const std::string& text : split_varied(item.as_string())) {
        varied.push_back(parse_varied(text, at(item) + "vary"));
        for (std::size_t i = 0; i + 1 < varied.size(); ++i)
          if (varied[i].key == varied.back().key) refuse(item, fmt::format("vary: {} stands there twice", varied.back().key));
      }
    }
    return varied;
  }

  const std::string& file_;
  const JsonValue& root_;
};

}  // namespace

bool is_study(const JsonValue& file) { return file.is_object() && file.find("study") != nullptr; }

StudySpec read_study(const std::string& file) {
  const JsonValue root = read_json_file(file, {.comments = true, .max_depth = 8});
  if (!is_study(root)) throw ConfigError(fmt::format("{}: this is no study: it has no member \"study\"", file));
  return Reader(file, root).spec();
}

}  // namespace trident
