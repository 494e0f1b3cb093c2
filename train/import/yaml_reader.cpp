#include "train/import/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <sstream>
#include <unordered_set>

#include "core/printable.h"
#include "train/import/text_limits.h"

namespace trident {
namespace {

constexpr std::string_view kDigits = "0123456789", kDigitsOrBar = "0123456789_";

bool begins_with_digit(std::string_view text) { return !text.empty() && kDigits.find(text.front()) != text.npos; }

// Takes the longest beginning of `text` that consists of `set`.
std::string_view take_run(std::string_view& text, std::string_view set) {
  const std::string_view run = text.substr(0, std::min(text.size(), text.find_first_not_of(set)));
  text.remove_prefix(run.size());
  return run;
}

// Takes ":0" to ":59" as often as it stands there, which YAML 1.1 counts in sixtieths: 1:30 is 90.
bool take_sixtieths(std::string_view& text) {
  const std::size_t before = text.size();
  while (text.starts_with(':') && begins_with_digit(text.substr(1)))
    text.remove_prefix(text[1] <= '5' && begins_with_digit(text.substr(2)) ? 3 : 2);
  return text.size() < before;
}

std::optional<char> take_sign(std::string_view& text) {
  if (!text.starts_with('-') && !text.starts_with('+')) return {};
  const char sign = text.front();
  text.remove_prefix(1);
  return sign;
}

// A text that is not of the type asked for; or one that is, with a number that no 64 bits hold.
enum class NoNumber : std::uint8_t { kOtherType, kTooLarge };
using ScalarNumber = std::variant<JsonValue, NoNumber>;

ScalarNumber yaml_integer(std::string_view text) {
  const bool negative = take_sign(text) == '-';
  int base = 10;
  std::string_view set = kDigitsOrBar;
  if (text.starts_with("0b")) base = 2, set = "01_", text.remove_prefix(2);
  else if (text.starts_with("0x")) base = 16, set = "0123456789abcdefABCDEF_", text.remove_prefix(2);
  else if (text.size() > 1 && text.front() == '0') base = 8, set = "01234567_", text.remove_prefix(1);
  else if (!begins_with_digit(text)) return NoNumber::kOtherType;
  std::string_view rest = text;
  if (take_run(rest, set).empty()) return NoNumber::kOtherType;
  if (base == 10) take_sixtieths(rest);
  if (!rest.empty()) return NoNumber::kOtherType;
  std::int64_t whole = 0, part = 0;
  for (const char c : text) {
    if (c == '_') continue;
    const int digit = c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10;
    const bool fits = c == ':' ? !__builtin_add_overflow(whole, part, &whole) && !__builtin_mul_overflow(whole, 60, &whole)
                               : !__builtin_mul_overflow(part, base, &part) && !__builtin_add_overflow(part, digit, &part);
    if (!fits) return NoNumber::kTooLarge;
    if (c == ':') part = 0;
  }
  if (__builtin_add_overflow(whole, part, &whole)) return NoNumber::kTooLarge;
  return JsonValue(negative ? -whole : whole);
}

ScalarNumber yaml_float(std::string_view text, YamlTyping typing) {
  constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
  const std::optional<char> sign = take_sign(text);
  const double factor = sign == '-' ? -1 : 1;
  if (text == ".inf" || text == ".Inf" || text == ".INF") return JsonValue(factor * kInf);
  if (!sign && (text == ".nan" || text == ".NaN" || text == ".NAN")) return JsonValue(kNan);
  std::string_view rest = text;
  const bool has_whole = begins_with_digit(rest);
  if (has_whole) take_run(rest, kDigitsOrBar);
  const bool sixtieths = has_whole && take_sixtieths(rest);
  const bool has_point = rest.starts_with('.');
  if (has_point) {
    rest.remove_prefix(1);
    if (!has_whole && (sign || !begins_with_digit(rest))) return NoNumber::kOtherType;
    take_run(rest, kDigitsOrBar);
  }
  const bool lenient = has_whole && typing == YamlTyping::kOmegaConf;
  const bool has_exponent = !sixtieths && (rest.starts_with('e') || rest.starts_with('E'));
  if (has_exponent) {
    rest.remove_prefix(1);
    if ((!take_sign(rest) && !lenient) || take_run(rest, kDigits).empty()) return NoNumber::kOtherType;
  }
  if (!rest.empty() || !(has_point || (has_exponent && lenient))) return NoNumber::kOtherType;
  std::string digits(text);
  std::erase(digits, '_');
  double sum = 0, unit = factor;
  for (std::string_view parts = digits; !parts.empty(); unit *= 60) {
    const std::size_t colon = parts.rfind(':');
    const std::string_view part = colon == parts.npos ? parts : parts.substr(colon + 1);
    double value = 0;
    if (std::from_chars(part.data(), part.data() + part.size(), value).ec != std::errc()) return NoNumber::kTooLarge;
    sum += value * unit;
    parts = parts.substr(0, colon == parts.npos ? 0 : colon);
  }
  return JsonValue(sum);
}

std::optional<bool> yaml_bool(std::string_view text) {
  constexpr std::array<std::string_view, 18> kWords = {"yes", "Yes", "YES", "true",  "True",  "TRUE",  "on",  "On",  "ON",
                                                       "no",  "No",  "NO",  "false", "False", "FALSE", "off", "Off", "OFF"};
  const auto found = std::ranges::find(kWords, text);
  if (found == kWords.end()) return {};
  return found - kWords.begin() < 9;
}

// Makes the value of the events that yaml-cpp's parser sends. Limits hold while it grows, so that an alias bomb never does.
class YamlBuilder : public YAML::EventHandler {
 public:
  YamlBuilder(std::string_view text, std::string_view source, YamlTyping typing)
      : text_(text), source_(source), typing_(typing), limits_(source) {}

  JsonValue take() {
    if (typing_ == YamlTyping::kOmegaConf) resolve(root_);
    return std::move(root_);
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ > 0) refuse(mark, "a second document begins; give a file of one document");
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (is_key_next()) refuse(mark, "a key is empty");
    if (!open_.empty() && !open_.back().is_map && rest_at(mark).starts_with(',')) refuse(mark, "nothing stands before the comma");
    // yaml-cpp takes a line without a colon as a key, and gives its value the key's own place.
    if (!open_.empty() && open_.back().is_block && open_.back().key_mark.pos == mark.pos)
      refuse(mark, fmt::format("there is no colon behind {}", in_quotes(open_.back().key)));
    add(nullptr, mark, anchor, 0);
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string& value) override {
    check_quote(mark);
    if (is_key_next()) return begin_member(mark, tag, value);
    add(typed(value, tag, mark), mark, anchor, value.size());
  }

  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (is_key_next()) refuse(mark, "a key is an alias; write it out");
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end()) refuse(mark, "an alias stands inside what it stands for");
    const Anchored& target = found->second;
    limits_.add(target.size, mark.line + 1, mark.column + 1);
    limits_.check_depth(static_cast<int>(open_.size()) + target.height, mark.line + 1, mark.column + 1);
    raise(target.height);
    place(target.value, mark);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value) override {
    begin(mark, tag, anchor, "tag:yaml.org,2002:seq", {});
  }
  void OnSequenceEnd() override {
    Open closed = close();
    finish(JsonValue(std::move(closed.items)), closed);
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YAML::EmitterStyle::value style) override {
    begin(mark, tag, anchor, "tag:yaml.org,2002:map", style);
  }
  void OnMapEnd() override {
    Open closed = close();
    JsonValue::Object members = {};
    for (JsonValue& merged : closed.merged)
      for (JsonMember& member : merged.members())
        if (closed.keys.insert(member.key).second) members.push_back(std::move(member));
    std::ranges::move(closed.members, std::back_inserter(members));
    finish(JsonValue(std::move(members)), closed);
  }

 private:
  // A list or mapping whose end has not come yet.
  struct Open {
    YAML::Mark mark;
    YAML::anchor_t anchor = 0;
    bool is_map = false, is_block = false;
    ForeignLimits::Size before;  // counted before it
    int height = 1;              // levels of it and what is in it
    JsonValue::Array items = {};
    JsonValue::Object members = {};
    std::unordered_set<std::string> keys = {};
    std::vector<JsonValue> merged = {};  // mappings behind <<; the first that has a key wins
    bool has_key = false;                // whose value comes next
    bool merges = false;                 // the key is <<
    std::string key = {};
    YAML::Mark key_mark = YAML::Mark::null_mark();
  };
  struct Anchored {
    JsonValue value;
    ForeignLimits::Size size;
    int height = 0;
  };

  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view why) const {
    refuse_at(source_, mark.line + 1, mark.column + 1, why);
  }

  std::string_view rest_at(const YAML::Mark& mark) const {
    return text_.substr(std::min(text_.size(), static_cast<std::size_t>(mark.pos)));
  }

  // yaml-cpp takes the end of the file for a missing quote.
  void check_quote(const YAML::Mark& mark) const {
    std::string_view rest = rest_at(mark);
    while (rest.starts_with('&') || rest.starts_with('!')) {
      rest.remove_prefix(std::min(rest.size(), rest.find_first_of(" \t\r\n")));
      rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(" \t\r\n")));
    }
    if (!rest.starts_with('"') && !rest.starts_with('\'')) return;
    const char quote = rest.front();
    std::size_t at = 1;
    for (; at < rest.size(); ++at) {
      const bool escapes = quote == '"' ? rest[at] == '\\' : rest.substr(at, 2) == "''";
      if (escapes) ++at;
      else if (rest[at] == quote) break;
    }
    if (at >= rest.size()) refuse(mark, "a quote is not closed");
  }

  bool is_key_next() const { return !open_.empty() && open_.back().is_map && !open_.back().has_key; }

  void begin_member(const YAML::Mark& mark, const std::string& tag, const std::string& key) {
    Open& map = open_.back();
    limits_.add({0, key.size()}, mark.line + 1, mark.column + 1);
    if (!map.keys.insert(key).second) refuse(mark, fmt::format("duplicate key {}", in_quotes(key)));
    map.has_key = true, map.merges = key == "<<" && tag == "?";
    map.key = key, map.key_mark = mark;
  }

  void begin(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, std::string_view own_tag,
             std::optional<YAML::EmitterStyle::value> map_style) {
    if (is_key_next()) refuse(mark, "a key is a list or a mapping, or a bracket is not closed; keys are texts");
    if (tag != "?" && tag != "!" && tag != own_tag) refuse_tag(mark, tag);
    limits_.check_depth(static_cast<int>(open_.size()) + 1, mark.line + 1, mark.column + 1);
    open_.push_back({.mark = mark, .anchor = anchor, .is_map = map_style.has_value(),
                     .is_block = map_style == YAML::EmitterStyle::Block, .before = limits_.counted()});
    limits_.add({1, 0}, mark.line + 1, mark.column + 1);
  }

  Open close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    return closed;
  }

  void finish(JsonValue value, const Open& closed) {
    raise(closed.height);
    keep(closed.anchor, value, limits_.counted() - closed.before, closed.height, closed.mark);
    place(std::move(value), closed.mark);
  }

  // A value in the innermost list or mapping has that many levels.
  void raise(int height) {
    if (!open_.empty()) open_.back().height = std::max(open_.back().height, height + 1);
  }

  void add(JsonValue value, const YAML::Mark& mark, YAML::anchor_t anchor, std::size_t bytes) {
    limits_.add({1, bytes}, mark.line + 1, mark.column + 1);
    value.set_position(mark.line + 1, mark.column + 1);
    keep(anchor, value, {1, bytes}, 0, mark);
    place(std::move(value), mark);
  }

  // The copy that aliases are made of counts as one of them.
  void keep(YAML::anchor_t anchor, const JsonValue& value, ForeignLimits::Size size, int height, const YAML::Mark& mark) {
    if (anchor == YAML::NullAnchor) return;
    limits_.add(size, mark.line + 1, mark.column + 1);
    anchored_.insert_or_assign(anchor, Anchored{value, size, height});
  }

  void place(JsonValue value, const YAML::Mark& mark) {
    if (open_.empty()) {
      root_ = std::move(value);
      root_.set_position(mark.line + 1, mark.column + 1);
      return;
    }
    Open& parent = open_.back();
    const YAML::Mark& at = parent.is_map ? parent.key_mark : mark;
    value.set_position(at.line + 1, at.column + 1);
    if (!parent.is_map) return parent.items.push_back(std::move(value));
    parent.has_key = false;
    if (!parent.merges) return parent.members.push_back({std::move(parent.key), std::move(value)});
    if (value.is_object()) return parent.merged.push_back(std::move(value));
    if (!value.is_array() || !std::ranges::all_of(value.items(), &JsonValue::is_object))
      refuse(at, "<< takes a mapping or a list of mappings");
    parent.merged = value.items();
  }

  [[noreturn]] void refuse_tag(const YAML::Mark& mark, std::string_view tag) const {
    refuse(mark, fmt::format("the tag {} stands for no value of a configuration", in_quotes(tag)));
  }

  JsonValue typed(const std::string& text, std::string_view tag, const YAML::Mark& mark) const {
    constexpr std::string_view kCore = "tag:yaml.org,2002:";
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return text;
    const std::string_view type = tag.starts_with(kCore) ? tag.substr(kCore.size()) : tag;
    const bool any = type == "?";
    if (!any && type != "int" && type != "float" && type != "bool" && type != "null") refuse_tag(mark, tag);
    if (any || type == "bool")
      if (const std::optional<bool> value = yaml_bool(text)) return *value;
    if (type == "null" && (text.empty() || text == "~" || text == "null")) return nullptr;
    const auto number = [&](const ScalarNumber& found) -> const JsonValue* {
      if (found == ScalarNumber(NoNumber::kTooLarge)) refuse(mark, fmt::format("{} is no number of 64 bits", in_quotes(text)));
      return std::get_if<JsonValue>(&found);
    };
    if (type != "bool" && type != "null") {
      const ScalarNumber integer = yaml_integer(text), real = yaml_float(text, typing_);
      if (const JsonValue* value = number(integer)) return type == "float" ? JsonValue(value->as_number()) : *value;
      if (const JsonValue* value = type == "int" ? nullptr : number(real)) return *value;
    }
    if (!any) refuse(mark, fmt::format("{} has the tag {}, which it does not fit", in_quotes(text), in_quotes(tag)));
    return text;
  }

  // Puts scalars in the place of references to them.
  void resolve(JsonValue& value) {
    if (value.is_object())
      for (JsonMember& member : value.members()) resolve(member.value);
    const JsonValue* target = &value;
    for (int hops = 0; hops < 16 && target != nullptr && target->is_string(); ++hops) {
      std::string_view path = target->as_string();
      if (!path.starts_with("${") || path.find('}') != path.size() - 1) break;
      path = path.substr(2, path.size() - 3);
      for (target = &root_; target != nullptr && !path.empty(); path.remove_prefix(std::min(path.size(), path.find('.') + 1))) {
        target = target->find(path.substr(0, path.find('.')));
        if (path.find('.') == path.npos) break;
      }
    }
    if (target == nullptr || target == &value || target->is_object() || target->is_array()) return;
    JsonValue found = *target;
    limits_.add({1, found.is_string() ? found.as_string().size() : 0}, value.line(), value.column());
    found.set_position(value.line(), value.column());
    value = std::move(found);
  }

  std::string_view text_, source_;
  YamlTyping typing_;
  ForeignLimits limits_;
  JsonValue root_;
  int documents_ = 0;
  std::vector<Open> open_;
  std::map<YAML::anchor_t, Anchored> anchored_;
};

}  // namespace

JsonValue read_yaml(std::string_view text, std::string_view source, YamlTyping typing) {
  check_foreign_text(text, source);
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  // yaml-cpp drops directives that it does not know, and with them a key that begins so.
  if (text.starts_with('%') && !text.starts_with("%YAML ") && !text.starts_with("%TAG "))
    refuse_at(source, 1, 1, "an unknown directive");
  std::istringstream stream{std::string(text)};
  YamlBuilder builder(text, source, typing);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {}
  } catch (const YAML::Exception& error) {
    refuse_at(source, error.mark.line + 1, error.mark.column + 1, on_one_line(error.msg));
  }
  return builder.take();
}

}  // namespace trident
