#include "import/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <unordered_set>

#include "core/printable.h"
#include "import/text_limits.h"

namespace trident {
namespace {

constexpr std::string_view kDigits = "0123456789", kDigitsOrBar = "0123456789_";
constexpr std::string_view kCoreTag = "tag:yaml.org,2002:";

bool begins_with_digit(std::string_view text) { return !text.empty() && kDigits.find(text.front()) != text.npos; }

// Takes the longest beginning of `text` that consists of `set`.
std::string_view take_run(std::string_view& text, std::string_view set) {
  const std::string_view run = text.substr(0, std::min(text.size(), text.find_first_not_of(set)));
  text.remove_prefix(run.size());
  return run;
}

// Reads `text` without its underscores as std::from_chars does. ConfigError, without a place, beyond 64 bits.
template <class Number, class... Base>
Number parsed(std::string_view text, Base... base) {
  std::string digits(text);
  std::erase(digits, '_');
  Number value = 0;
  if (std::from_chars(digits.data(), digits.data() + digits.size(), value, base...).ec == std::errc::result_out_of_range)
    throw ConfigError(fmt::format("{} is no number of 64 bits", in_quotes(text)));
  return value;
}

// Null: the text is no number.
JsonValue yaml_number(std::string_view text, YamlTyping typing) {
  const bool is_signed = text.starts_with('-') || text.starts_with('+'), negative = text.starts_with('-');
  std::string_view body = text.substr(is_signed ? 1 : 0);
  if (body == ".inf" || body == ".Inf" || body == ".INF")
    return (negative ? -1 : 1) * std::numeric_limits<double>::infinity();
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return std::numeric_limits<double>::quiet_NaN();
  int base = 10;
  std::size_t prefix = 0;
  std::string_view set = kDigitsOrBar;
  if (body.starts_with("0b")) base = 2, prefix = 2, set = "01_";
  else if (body.starts_with("0x")) base = 16, prefix = 2, set = "0123456789abcdefABCDEF_";
  else if (body.starts_with('0') && body.size() > 1) base = 8, prefix = 1, set = "01234567_";
  const std::string_view integer = body.substr(prefix);
  if (!integer.empty() && (prefix > 0 || begins_with_digit(integer)) && integer.find_first_not_of(set) == text.npos) {
    const auto value = parsed<std::int64_t>(integer, base);
    return negative ? -value : value;
  }
  std::string_view rest = body;
  const bool has_whole = begins_with_digit(rest), lenient = has_whole && typing == YamlTyping::kOmegaConf;
  if (has_whole) take_run(rest, kDigitsOrBar);
  const bool has_point = rest.starts_with('.');
  rest.remove_prefix(has_point ? 1 : 0);
  if (!has_whole && (is_signed || !has_point || !begins_with_digit(rest))) return nullptr;
  if (has_point) take_run(rest, kDigitsOrBar);
  const bool has_exponent = rest.starts_with('e') || rest.starts_with('E');
  if (has_exponent) {
    rest.remove_prefix(1);
    const bool has_sign = rest.starts_with('-') || rest.starts_with('+');
    rest.remove_prefix(has_sign ? 1 : 0);
    if ((!has_sign && !lenient) || take_run(rest, kDigits).empty()) return nullptr;
  }
  if (!rest.empty() || !(has_point || (has_exponent && lenient))) return nullptr;
  const auto value = parsed<double>(body);
  return negative ? -value : value;
}

// Refuses a second document: of text that yaml-cpp does not understand, such as ", a", it makes documents without end.
class OneDocument : public YAML::EventHandler {
 public:
  explicit OneDocument(std::string_view source) : source_(source) {}
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (documents_++ == 0) return;
    refuse_at(source_, mark.line + 1, mark.column + 1, "a second document begins; give a file of one document");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override {}
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {}
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {}
  void OnMapEnd() override {}

 private:
  std::string_view source_;
  int documents_ = 0;
};

// Makes values of what yaml-cpp parsed. Its nodes share what aliases stand for, so that a bomb grows here alone, within limits.
class YamlConverter {
 public:
  YamlConverter(std::string_view text, std::string_view source, YamlTyping typing)
      : text_(text), source_(source), typing_(typing), limits_(source) {}

  // `at` is its place in messages, and `more` counts with its bytes.
  JsonValue value(const YAML::Node& node, const YAML::Mark& at, int depth = 0, std::size_t more = 0) {
    const bool is_scalar = node.IsScalar(), is_null = node.IsNull();
    limits_.add(more + (is_scalar ? node.Scalar().size() : 0), depth + (is_scalar || is_null ? 0 : 1), at.line + 1, at.column + 1);
    JsonValue made;
    if (is_scalar) {
      made = scalar(node);
    } else if (!is_null) {
      if (node.Tag() != "?" && node.Tag() != "!" && !node.Tag().starts_with(kCoreTag)) refuse_tag(node);
      made = node.IsMap() ? members(node, depth + 1) : items(node, depth + 1);
    }
    made.set_position(at.line + 1, at.column + 1);
    return made;
  }

  // Puts scalars in the place of references to them, and to references.
  void resolve(JsonValue& value, const JsonValue& root, int depth = 0) {
    if (value.is_object())
      for (JsonMember& member : value.members()) resolve(member.value, root);
    if (!value.is_string()) return;
    std::string_view path = value.as_string();
    if (!path.starts_with("${") || path.find('}') != path.size() - 1) return;
    path = path.substr(2, path.size() - 3);
    const JsonValue* target = &root;
    for (bool more = true; more && target != nullptr;) {
      const std::size_t dot = std::min(path.find('.'), path.size());
      target = target->find(path.substr(0, dot));
      more = dot < path.size();
      path.remove_prefix(more ? dot + 1 : dot);
    }
    if (target == nullptr || target->is_object() || target->is_array() || depth == kMaxForeignDepth) return;
    JsonValue found = *target;
    limits_.add(found.is_string() ? found.as_string().size() : 0, 0, value.line(), value.column());
    resolve(found, root, depth + 1);
    found.set_position(value.line(), value.column());
    value = std::move(found);
  }

 private:
  [[noreturn]] void refuse(const YAML::Mark& mark, std::string_view why) const {
    refuse_at(source_, mark.line + 1, mark.column + 1, why);
  }
  [[noreturn]] void refuse_tag(const YAML::Node& node) const {
    refuse(node.Mark(), fmt::format("the tag {} stands for no value of a configuration", in_quotes(node.Tag())));
  }
  std::string_view rest_at(const YAML::Mark& mark) const {
    return text_.substr(std::min(text_.size(), static_cast<std::size_t>(mark.pos)));
  }

  // yaml-cpp takes the end of the file for a missing quote.
  void check_quote(const YAML::Node& node) const {
    std::string_view rest = rest_at(node.Mark());
    while (rest.starts_with('&') || rest.starts_with('!')) {
      rest.remove_prefix(std::min(rest.size(), rest.find_first_of(" \t\r\n")));
      rest.remove_prefix(std::min(rest.size(), rest.find_first_not_of(" \t\r\n")));
    }
    if (!rest.starts_with('"') && !rest.starts_with('\'')) return;
    const char quote = rest.front();
    for (std::size_t at = 1; at < rest.size(); ++at) {
      const bool escapes = quote == '"' ? rest[at] == '\\' : rest.substr(at, 2) == "''";
      if (escapes) ++at;
      else if (rest[at] == quote) return;
    }
    refuse(node.Mark(), "a quote is not closed");
  }

  JsonValue scalar(const YAML::Node& node) const {
    constexpr std::array<std::string_view, 18> kWords = {"yes", "Yes", "YES", "true",  "True",  "TRUE",  "on",  "On",  "ON",
                                                         "no",  "No",  "NO",  "false", "False", "FALSE", "off", "Off", "OFF"};
    const std::string &text = node.Scalar(), &tag = node.Tag();
    const bool is_plain = tag == "?", is_float = tag == "tag:yaml.org,2002:float", is_int = tag == "tag:yaml.org,2002:int";
    if (!is_plain) check_quote(node);
    if (tag == "!" || tag == "tag:yaml.org,2002:str") return text;
    if (!is_plain && !is_float && !is_int) refuse_tag(node);
    const auto* const word = std::ranges::find(kWords, std::string_view(text));
    if (is_plain && word != kWords.end()) return word - kWords.begin() < 9;
    try {
      const JsonValue number = yaml_number(text, is_plain ? typing_ : YamlTyping::kOmegaConf);
      if (is_float && number.is_number()) return number.as_number();
      if (is_int ? number.is_integer() : number.is_number()) return number;
    } catch (const ConfigError& error) {
      refuse(node.Mark(), error.what());
    }
    if (!is_plain) refuse(node.Mark(), fmt::format("{} has the tag {}, which it does not fit", in_quotes(text), in_quotes(tag)));
    return text;
  }

  JsonValue items(const YAML::Node& node, int depth) {
    JsonValue::Array items;
    for (const YAML::Node& item : node) {
      if (item.IsNull() && rest_at(item.Mark()).starts_with(',')) refuse(item.Mark(), "nothing stands before the comma");
      items.push_back(value(item, item.Mark(), depth));
    }
    return items;
  }

  JsonValue members(const YAML::Node& node, int depth) {
    JsonValue::Object own, all;
    std::unordered_set<std::string> keys;
    JsonValue::Array merged;  // mappings behind <<; the first that has a key wins
    for (const auto& member : node) {
      const YAML::Node &key = member.first, &content = member.second;
      const YAML::Mark at = key.Mark();
      if (key.IsNull()) refuse(at, "a key is empty");
      if (!key.IsScalar()) refuse(at, "a key is a list or a mapping, or a bracket is not closed; keys are texts");
      check_quote(key);
      if (!keys.insert(key.Scalar()).second) refuse(at, fmt::format("duplicate key {}", in_quotes(key.Scalar())));
      // yaml-cpp takes a line without a colon as a key, and gives its value the key's own place.
      if (node.Style() == YAML::EmitterStyle::Block && content.IsNull() && content.Mark().pos == at.pos)
        refuse(at, fmt::format("there is no colon behind {}", in_quotes(key.Scalar())));
      JsonValue made = value(content, at, depth, key.Scalar().size());
      if (key.Scalar() != "<<" || key.Tag() != "?") {
        own.push_back({key.Scalar(), std::move(made)});
        continue;
      }
      if (made.is_array()) merged = made.items();
      else merged.push_back(std::move(made));
      if (!std::ranges::all_of(merged, &JsonValue::is_object)) refuse(at, "<< takes a mapping or a list of mappings");
    }
    for (JsonValue& one : merged)
      for (JsonMember& member : one.members())
        if (keys.insert(member.key).second) all.push_back(std::move(member));
    std::ranges::move(own, std::back_inserter(all));
    return all;
  }

  std::string_view text_, source_;
  YamlTyping typing_;
  ForeignLimits limits_;
};

// yaml-cpp's words, and what they mean to who wrote the text.
std::string in_plain_words(const std::string& why) {
  constexpr std::string_view kWords[][2] = {
      {"bad file", "nested deeper than 500 levels"},
      {"illegal map value", "a second colon in one value, a tab, or a key deeper than those before it; put a text that has a colon "
                            "in quotes, and begin the keys of one block with as many spaces"},
      {"end of map not found", "words behind a quote that ends, or a line that is of no block; put the whole text in quotes, and "
                               "begin the keys of one block with as many spaces"},
      {"end of sequence not found", "a line that is of no list; begin its items with as many spaces and -"},
      {"end of map flow not found", "{ is not closed, or a comma is missing within it; write }"},
      {"end of sequence flow not found", "[ is not closed, or a comma is missing within it; write ]"},
      {"illegal flow end", "a bracket closes that was not opened; leave it out, or put the text in quotes"},
      {"illegal block entry", "- of a list stands behind other words; begin a line with it"},
      {"unknown token", "no text begins with this character; put it in quotes"},
      {"unknown escape character", "\\ begins an escape in double quotes; write single quotes"},
      {"the referenced anchor", "* names an anchor that is not before it; put a text that begins with * in quotes"},
      {"alias not found", "* begins a name that is missing; put the text in quotes"},
  };
  for (const auto& [theirs, plain] : kWords)
    if (why.starts_with(theirs)) return std::string(plain);
  return on_one_line(why) + "; correct the YAML there";
}

}  // namespace

JsonValue read_yaml(std::string_view text, std::string_view source, YamlTyping typing) {
  // yaml-cpp drops directives that it does not know, and with them a key that begins so.
  if (text.starts_with('%') && !text.starts_with("%YAML ") && !text.starts_with("%TAG "))
    refuse_at(source, 1, 1, "an unknown directive");
  YAML::Node document;
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    OneDocument events(source);
    while (parser.HandleNextDocument(events)) {}
    document = YAML::Load(std::string(text));
  } catch (const YAML::Exception& error) {
    refuse_at(source, error.mark.line + 1, error.mark.column + 1, in_plain_words(error.msg));
  }
  YamlConverter converter(text, source, typing);
  JsonValue root = converter.value(document, document.Mark());
  if (typing == YamlTyping::kOmegaConf) converter.resolve(root, root);
  return root;
}

}  // namespace trident
