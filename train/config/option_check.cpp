#include "train/config/option_check.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <sstream>

#include "core/at.h"
#include "core/nearest_name.h"
#include "core/parallel_axis.h"
#include "train/config/foreign_answers.h"
#include "train/config/option_values.h"

namespace trident {
namespace {

constexpr std::size_t kMaxTextBytes = 4096;

bool within(const Range& range, double x) {
  if (std::isnan(x) || x < range.low || x > range.high) return false;
  if (range.ends == Range::Ends::kOpenLow && x == range.low) return false;
  return !(range.ends == Range::Ends::kOpenHigh && x == range.high);
}

std::string number_text(double x) { return fmt::format("{}", x); }

std::string range_text(const Range& range) {
  const bool low = std::isfinite(range.low), high = std::isfinite(range.high);
  const bool open_low = range.ends == Range::Ends::kOpenLow, open_high = range.ends == Range::Ends::kOpenHigh;
  if (low && high && !open_low && !open_high) return fmt::format(" from {} to {}", number_text(range.low), number_text(range.high));
  std::string text;
  if (low) text += fmt::format(" {} {}", open_low ? ">" : ">=", number_text(range.low));
  if (high) text += fmt::format("{} {} {}", low ? " and" : "", open_high ? "<" : "<=", number_text(range.high));
  return text;
}

// One to three non-negative numbers with commas between, not all zero.
bool is_split(std::string_view text) {
  int parts = 0;
  double sum = 0;
  while (true) {
    const auto comma = text.find(',');
    std::string_view part = text.substr(0, comma);
    while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
    while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
    if (part.empty() || part.size() > 15 || part.find_first_not_of("0123456789.") != std::string_view::npos) return false;
    if (std::count(part.begin(), part.end(), '.') > 1 || part == ".") return false;
    sum += std::stod(std::string(part));
    if (++parts > 3) return false;
    if (comma == std::string_view::npos) return sum > 0;
    text.remove_prefix(comma + 1);
  }
}

// A consent to what once needed one.
bool is_past_consent(std::string_view text) {
  const std::string_view block = text.substr(0, text.find('.'));
  return (block == "optimizer" || block == "lr_schedule") && (text == block || find_option(text) != nullptr);
}

// The choice that was meant by its own name, or by the last word of it.
std::string_view likely_choice(std::string_view text, const std::vector<std::string_view>& choices) {
  if (const std::string_view near = likely_name(text, choices); !near.empty()) return near;
  std::vector<std::string_view> words;
  for (const std::string_view choice : choices) words.push_back(choice.substr(choice.rfind('.') + 1));
  const auto word = std::ranges::find(words, likely_name(text.substr(text.rfind('.') + 1), words));
  return word == words.end() ? "" : at(choices, word - words.begin());
}

// The choice that another system calls so: "zb-v" of "ZBVZeroBubble"; "": none.
std::string_view choice_of_others(std::string_view path, std::string_view text) {
  for (const ForeignSection& section : foreign_sections())
    for (const ForeignKey& row : section.keys)
      if (row.to == path && row.value.starts_with('"') && is_among_values(text, names_of(row).values))
        return row.value.substr(1, row.value.size() - 2);
  return "";
}

class Checker {
 public:
  Checker(const Option& option, const JsonValue& value, std::string_view where) : option_(option), value_(value), where_(where) {}

  JsonValue run() const {
    refuse_reserved_value();
    if (option_.reserved) return neutral_or_refused();
    return in_form();
  }

 private:
  [[noreturn]] void refuse(std::string_view why) const {
    throw ConfigError(fmt::format("{}{} = {}: {}", where_, option_.path, value_text(value_), why));
  }
  [[noreturn]] void refuse_type() const { refuse("must be " + expected_text(option_)); }
  bool takes(Takes kind) const { return trident::takes(option_.takes, kind); }

  void refuse_reserved_value() const {
    if (!value_.is_string()) return;
    for (const ReservedValue& reserved : option_.reserved_values)
      if (reserved.value == value_.as_string()) refuse(reserved.remedy);
  }

  JsonValue neutral_or_refused() const {
    const JsonValue fallback = default_value(option_);
    const bool zero = value_.is_number() && value_.as_number() == 0;
    if (value_.is_null() || zero || (value_.is_bool() && !value_.as_bool()) || value_ == fallback) return fallback;
    for (const std::string_view neutral : option_.neutral)
      if (parse_json(neutral, "neutral value") == value_) return value_;
    in_form_or_type();  // a typing error is said as one
    refuse(fmt::format("not built yet; remove the key or set it to {}", to_json_text(fallback)));
  }
  // A path of checkpoint.resume is no choice, yet well-formed: only the kind of value counts here.
  void in_form_or_type() const {
    if (value_.is_string() && takes(Takes::kString)) return;
    in_form();
  }

  JsonValue in_form() const {
    switch (value_.kind()) {
      case JsonValue::Kind::kNull:
        if (takes(Takes::kNull)) return value_;
        break;
      case JsonValue::Kind::kBool:
        if (takes(Takes::kBool)) return value_;
        break;
      case JsonValue::Kind::kInteger:
      case JsonValue::Kind::kNumber:
        if (takes(Takes::kNumber) || takes(Takes::kInteger)) return number();
        for (const Alias& alias : option_.aliases)  // stages of ZeRO are numbers elsewhere
          if (alias.written == to_json_text(value_)) return JsonValue(alias.means);
        break;
      case JsonValue::Kind::kString:
        if (takes(Takes::kString)) return text();
        break;
      case JsonValue::Kind::kArray:
        if (takes(Takes::kIntegers) || takes(Takes::kNumbers)) return list();
        if (takes(Takes::kSources)) return sources();
        if (takes(Takes::kTexts)) return texts();
        if (takes(Takes::kLayouts)) return layouts();
        break;
      case JsonValue::Kind::kObject:
        if (takes(Takes::kEvery)) return every();
        if (takes(Takes::kAxes)) return axes();
        break;
    }
    refuse_type();
  }
  JsonValue number() const {
    if (takes(Takes::kShare) && value_.as_number() > 0 && value_.as_number() < 1) return value_;
    if (takes(Takes::kNumber)) return any_number(value_);
    if (takes(Takes::kShare) && !value_.is_integer() && value_.as_number() <= 1) refuse_type();  // 1.0 might be meant as a share
    return integer(value_);
  }
  JsonValue any_number(const JsonValue& value) const {
    if (!value.is_number() || !within(option_.range, value.as_number())) refuse_type();
    return JsonValue(value.as_number());
  }
  // "1e3" is an integer, too.
  JsonValue integer(const JsonValue& value) const {
    constexpr double kExact = 9007199254740992.0;
    const double number = any_number(value).as_number();
    if (value.is_integer()) return value;
    if (number != std::trunc(number) || std::abs(number) > kExact) refuse_type();
    return JsonValue(static_cast<std::int64_t>(number));
  }
  JsonValue text() const {
    const std::string& text = value_.as_string();
    for (const Alias& alias : option_.aliases)
      if (alias.written == text) return JsonValue(alias.means);
    if (option_.form == TextForm::kAxisOrder && !parse_axis_order(text)) refuse_type();
    if (option_.form == TextForm::kSplit && !is_split(text)) refuse_type();
    refuse_other_choice(text);
    refuse_odd_text(text);
    if (takes(Takes::kTexts)) return JsonValue(JsonValue::Array{value_});
    return takes(Takes::kSources) ? sources_in(text) : value_;
  }
  // A path, or a blend as Megatron-LM writes it, "0.7 web 0.3 books".
  static JsonValue sources_in(const std::string& text) {
    std::istringstream words(text);
    JsonValue::Array blend;
    std::string path;
    bool is_whole = true;  // no weight is without a path
    for (double weight = 0; is_whole && words >> weight;) {
      is_whole = weight > 0 && words.peek() == ' ' && words >> path;
      if (is_whole) blend.push_back(source(path, weight));
    }
    return blend.size() > 1 && is_whole && words.eof() ? blend : JsonValue::Array{source(text, 1.0)};
  }
  void refuse_other_choice(const std::string& text) const {
    if (option_.choices.empty() || std::ranges::find(option_.choices, text) != option_.choices.end()) return;
    if (option_.form == TextForm::kConsent && is_past_consent(text)) return;
    std::vector<std::string_view> names = option_.choices;
    for (const Alias& alias : option_.aliases) names.push_back(alias.written);
    for (const ReservedValue& reserved : option_.reserved_values) names.push_back(reserved.value);
    std::string_view near = likely_choice(text, names);
    if (near.empty()) near = choice_of_others(option_.path, text);
    for (const ReservedValue& reserved : option_.reserved_values)
      if (reserved.value == near) refuse(fmt::format("looks like {}; {}", in_quotes(near), reserved.remedy));
    for (const Alias& alias : option_.aliases)
      if (alias.written == near) near = alias.means;
    refuse(fmt::format("must be {}{}", expected_text(option_),
                       near.empty() ? "" : fmt::format("; did you mean {}?", in_quotes(near))));
  }
  static JsonValue source(const std::string& path, double weight) {
    return JsonValue::Object{{"path", path}, {"weight", weight}};
  }
  void refuse_odd_text(const std::string& text) const {
    if (text.empty()) refuse("must not be empty; write a text or remove the key");
    if (text.size() > kMaxTextBytes) refuse(fmt::format("longer than {} bytes; shorten it", kMaxTextBytes));
    for (const char c : text)
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) refuse("contains a control character; remove it");
  }
  JsonValue list() const {
    const auto& items = value_.items();
    if (option_.length > 0 && static_cast<std::int64_t>(items.size()) != option_.length) refuse_type();
    JsonValue::Array canonical;
    for (const JsonValue& item : items) canonical.push_back(takes(Takes::kNumbers) ? any_number(item) : integer(item));
    return JsonValue(std::move(canonical));
  }
  JsonValue texts() const {
    const JsonValue::Array& items = value_.items();
    const bool is_one = !items.empty() && items[0].is_object() && items[0].find("role") != nullptr;  // as a text is a list of one
    if (takes(Takes::kMessages) && is_one) return JsonValue(JsonValue::Array{value_});
    for (const JsonValue& item : items) {
      if (takes(Takes::kMessages) && (item.is_array() || item.is_object())) continue;
      if (!item.is_string()) refuse_type();
      refuse_other_choice(item.as_string());
      refuse_odd_text(item.as_string());
    }
    return value_;
  }
  // Canonical: texts as they are, objects with canonical values.
  JsonValue layouts() const {
    JsonValue::Array canonical;
    for (std::size_t i = 0; i < value_.items().size(); ++i)
      canonical.push_back(layout(value_.items()[i], fmt::format("{}{}[{}]: ", where_, option_.path, i)));
    return JsonValue(std::move(canonical));
  }
  JsonValue layout(const JsonValue& item, const std::string& where) const {
    if (item.is_string()) {
      const LayoutDegrees degrees = parse_layout(item.as_string(), where);
      for (const auto& [path, degree] : {std::pair("parallel.data", degrees.data), {"parallel.pipeline", degrees.pipeline},
                                         {"parallel.tensor", degrees.tensor}, {"parallel.context", degrees.context}})
        checked_value(*find_option(path), JsonValue(degree), where);
      return item;
    }
    if (!item.is_object() || item.members().empty()) refuse_type();
    JsonValue canonical;
    for (const JsonMember& member : item.members()) {
      const std::string path = fmt::format("parallel.{}", member.key);
      const Option* const option = find_option(path);
      if (option == nullptr)
        throw ConfigError(fmt::format("{}unknown key {}{}; name one of parallel", where, in_quotes(path), did_you_mean(path)));
      canonical.set(member.key, checked_value(*option, member.value, where));
    }
    return canonical;
  }
  JsonValue every() const {
    const JsonValue* k = value_.find("every");
    if (value_.members().size() != 1 || k == nullptr) refuse_type();
    return JsonValue::Object{{"every", integer(*k)}};
  }
  // Canonical: the axes that were given.
  JsonValue axes() const {
    JsonValue::Object canonical;
    for (const JsonMember& member : value_.members()) {
      if (std::ranges::find(kCountedAxes, member.key) == kCountedAxes.end())
        refuse(fmt::format("no axis {}; must be {}", in_quotes(member.key), expected_text(option_)));
      canonical.push_back({member.key, integer(member.value)});
    }
    return canonical;
  }
  // Canonical: a list of {"path", "weight"}.
  JsonValue sources() const {
    if (value_.items().empty()) refuse("an empty list; name at least one path");
    JsonValue::Array canonical;
    for (const JsonValue& item : value_.items()) {
      const JsonValue* path = item.is_string() ? &item : item.find("path");
      const JsonValue* weight = item.find("weight");
      if (path == nullptr || !path->is_string()) refuse_type();
      if (item.is_object() && item.members().size() != (weight == nullptr ? 1u : 2u)) refuse_type();
      if (weight != nullptr && (!weight->is_number() || weight->as_number() <= 0))
        refuse("a weight must be a number > 0; leave the source out instead");
      refuse_odd_text(path->as_string());
      canonical.push_back(source(path->as_string(), weight == nullptr ? 1.0 : weight->as_number()));
    }
    return JsonValue(std::move(canonical));
  }

  const Option& option_;
  const JsonValue& value_;
  std::string_view where_;
};

// Keys of these blocks are everyday words (path, depth): they are asked for with the block's name.
bool needs_block(const Option& option) { return block_of(option) == "offload" || block_of(option) == "model.quantize"; }

// Whether the option can have that value; null: any.
bool may_be(const Option& option, const JsonValue& value) {
  if (value.is_null() || option.reserved) return true;
  try {
    checked_value(option, value, "");
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

std::string value_text(const JsonValue& value) {
  constexpr std::size_t kMax = 80;
  std::string text = to_json_text(value);
  return text.size() <= kMax ? text : text.substr(0, kMax) + "...";
}

std::string expected_text(const Option& option) {
  std::vector<std::string> parts;
  const std::string range = range_text(option.range);
  const std::string count = option.length > 0 ? fmt::format("{} ", option.length) : "";
  if (takes(option.takes, Takes::kBool)) parts.emplace_back("true or false");
  if (takes(option.takes, Takes::kInteger)) parts.push_back("an integer" + range);
  if (takes(option.takes, Takes::kShare)) parts.emplace_back("a share between 0 and 1");
  if (takes(option.takes, Takes::kNumber)) parts.push_back("a number" + range);
  if (takes(option.takes, Takes::kIntegers)) parts.push_back(fmt::format("a list of {}integers{}", count, range));
  if (takes(option.takes, Takes::kNumbers)) parts.push_back(fmt::format("a list of {}numbers{}", count, range));
  const bool has_messages = takes(option.takes, Takes::kMessages);
  if (takes(option.takes, Takes::kTexts) && option.choices.empty())
    parts.emplace_back(has_messages ? "a list of texts or of lists of messages" : "a list of texts");
  if (takes(option.takes, Takes::kString)) {
    if (option.form == TextForm::kAxisOrder) parts.emplace_back("the axes tp, cp, dp, pp in any order joined by '-'");
    else if (option.form == TextForm::kSplit) parts.emplace_back("up to three shares such as \"969,30,1\"");
    else if (option.choices.empty()) parts.emplace_back("a text");
    for (const std::string_view choice : option.choices) parts.push_back(in_quotes(choice));
  }
  if (takes(option.takes, Takes::kTexts) && !option.choices.empty()) parts.emplace_back("a list of these");
  if (takes(option.takes, Takes::kEvery)) parts.push_back(fmt::format("{{\"every\": k}} with an integer k{}", range));
  if (takes(option.takes, Takes::kAxes))
    parts.push_back(fmt::format("any of {{\"tp\": n, \"dp\": n, \"pp\": n}} with integers n{}", range));
  if (takes(option.takes, Takes::kSources)) parts.emplace_back("a list of paths or of {\"path\": text, \"weight\": number > 0}");
  if (takes(option.takes, Takes::kLayouts))
    parts.emplace_back("a list of layouts such as \"2DP x 4PP x 4TP\" or of objects with keys of parallel");
  if (takes(option.takes, Takes::kNull)) parts.emplace_back("null");
  std::string text;
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "" : i + 1 == parts.size() ? " or " : ", ") + parts[i];
  return text;
}

JsonValue checked_value(const Option& option, const JsonValue& value, std::string_view where) {
  return Checker(option, value, where).run();
}

JsonValue default_value(const Option& option) {
  if (option.fallback.empty()) return {};
  const JsonValue value = parse_json(option.fallback, option.path);
  if (takes(option.takes, Takes::kNumber) && value.is_integer()) return JsonValue(value.as_number());
  return value;
}

const Option* option_with_key(std::string_view key, const JsonValue& value) {
  const Option* only = nullptr;
  for (const Option& option : option_table()) {
    if (key_of(option) != key || needs_block(option) || !may_be(option, value)) continue;
    if (block_of(option) == "run") return &option;
    if (only != nullptr && block_of(option) == "adapter") continue;  // adapters are asked for by their block
    if (only != nullptr) return nullptr;
    only = &option;
  }
  return only;
}

namespace {

// Our own key of which `word` is a misspelling, or the beginning: of the block that it names, else the only one, and a block before
// keys; "": none.
std::string near_key(std::string_view word) {
  const auto dot = word.find('.');
  const std::string_view block = word.substr(0, dot + 1), key = word.substr(block.size());
  const auto begins = [&](std::string_view whole) {
    return key.size() > 2 && whole.size() > word.size() && whole.starts_with(word);
  };
  for (const OptionBlock& it : option_blocks())
    if (dot == word.npos && begins(it.name)) return std::string(it.name);
  std::vector<std::string_view> keys, begun;
  for (const Option& option : option_table()) {
    const bool has_block = dot != word.npos;
    if (has_block && option.path.starts_with(block)) keys.push_back(option.path.substr(block.size()));
    if (begins(has_block ? option.path : key_of(option)) && (has_block || !option.reserved)) begun.push_back(option.path);
  }
  if (const std::string_view near = likely_name(key, keys); !near.empty()) return fmt::format("{}{}", block, near);
  return begun.empty() || (dot == word.npos && begun.size() > 1) ? "" : std::string(begun.front());
}

}  // namespace

std::string name_here(std::string_view word, const JsonValue& value, std::string_view near) {
  const auto hint = [](std::string_view path) { return fmt::format("; did you mean {}?", path); };
  const std::string_view key = word.substr(word.rfind('.') + 1);
  if (word.find('.') == std::string_view::npos)
    if (const Option* const option = option_with_key(key, value)) return hint(option->path);
  for (const Option& option : option_table())
    if (std::find(option.aka.begin(), option.aka.end(), key) != option.aka.end()) return hint(option.path);
  const std::string text = value.is_string() ? value.as_string() : value.is_null() ? "" : to_json_text(value);
  std::vector<ForeignAnswer> answers = foreign_answers(word, text);
  if (key != word && std::ranges::none_of(answers, leads_somewhere)) {
    std::vector<ForeignAnswer> of_key = foreign_answers(key, text);
    // Plain words mean this only where they stand alone: recompute.layers is not the model's layers.
    if (key.find('_') == key.npos) std::erase_if(of_key, is_everybodys);
    if (answers.empty() || std::ranges::any_of(of_key, leads_somewhere)) answers = std::move(of_key);
  }
  std::erase_if(answers, [&](const ForeignAnswer& it) { return it.key == word; });  // Hugging Face's own key
  if (!near.empty()) std::erase_if(answers, [&](const ForeignAnswer& it) { return it.key != near; });
  std::vector<std::string> texts;
  for (const ForeignAnswer& answer : answers) {
    if (!answer.key.empty() && !answer.value.empty() && value == JsonValue(false)) return "; leave it out";
    const std::string shown = answer.value.empty() ? "" : fmt::format(" = {}", answer.value);
    texts.push_back(answer_text(answer, fmt::format("did you mean {}{}?", answer.key, shown)));
  }
  return texts.empty() ? "" : "; " + joined_answers(answers, texts);
}

std::string did_you_mean(std::string_view unknown, const JsonValue& value) {
  const auto hint = [](std::string_view path) { return fmt::format("; did you mean {}?", path); };
  // Other systems' command lines write it so.
  std::string plain(unknown.substr(std::min(unknown.size(), unknown.find_first_not_of('-'))));
  std::ranges::replace(plain, '-', '_');
  unknown = plain;
  const std::string_view key = unknown.substr(unknown.rfind('.') + 1);
  const auto dot = unknown.find('.');
  const std::string near_one = near_key(unknown);
  // Other systems' words that begin a block, as optim does, mean one of its keys.
  const std::string_view near_to_answers = find_block(near_one) == nullptr ? near_one : std::string_view();
  if (std::string known = name_here(unknown, value, near_to_answers); !known.empty()) return known;
  if (!near_one.empty()) return hint(near_one);
  if (dot != unknown.npos) {
    // The same word in one other block; a word that several blocks have, or that is a block, says nothing.
    const auto has_key = [&](const Option& option) { return key_of(option) == key && !needs_block(option); };
    const std::span<const Option> table = option_table();
    const auto only = std::ranges::find_if(table, has_key);
    const bool is_block = std::ranges::any_of(option_blocks(), [&](const OptionBlock& block) { return block.name == key; });
    if (!is_block && std::ranges::count_if(table, has_key) == 1 && may_be(*only, value)) return hint(only->path);
  }
  std::vector<std::string_view> paths;
  for (const Option& option : option_table()) paths.push_back(option.path);
  for (const OptionBlock& block : option_blocks()) paths.push_back(block.name);
  // The block's own keys were compared without its name, which would make any short one of them seem near.
  if (dot != std::string_view::npos)
    std::erase_if(paths, [&](std::string_view path) { return path.substr(0, path.find('.')) == unknown.substr(0, dot); });
  const std::string_view near = likely_name(unknown, paths);
  return near.empty() ? "" : hint(near);
}

}  // namespace trident
