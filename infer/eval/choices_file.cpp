#include "infer/eval/choices_file.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>

#include "core/check.h"
#include "core/json_reader.h"
#include "core/utf8.h"
#include "data/byte_stream.h"
#include "data/chat/python_text.h"
#include "data/input_file.h"
#include "data/line_reader.h"

namespace trident {
namespace {

constexpr std::int64_t kMaxLine = std::int64_t{64} << 20;

// This stands before the first token of a text that has nothing before it.
std::vector<std::int32_t> first_token(const Tokenizer& tokenizer) {
  const SpecialIds& special = tokenizer.special_ids();
  const std::optional<std::int32_t> id = special.bos ? special.bos : special.eod;
  return id ? std::vector{*id} : std::vector<std::int32_t>();
}

// A text that goes on: what the tokenizer puts behind one is left out.
std::vector<std::int32_t> encode_begin(const Tokenizer& tokenizer, std::string_view text, const TextRule& rule) {
  std::vector<std::int32_t> ids = tokenizer.encode(text, rule);
  if (rule.around == Around::kAdded) ids.resize(ids.size() - tokenizer.special_ids().after.size());
  return ids;
}

// One line of the file.
class LineOfChoices {
 public:
  LineOfChoices(std::string where, const ChoicesRules& rules) : where_(std::move(where)), rules_(rules) {}

  Question parse(std::string_view line) const {
    const JsonValue object = parse_json(
        line, where_, {.comments = false, .max_bytes = kMaxLine, .max_depth = 8, .blame = ExitCode::kData});
    if (!object.is_object())
      refuse(fmt::format("is {}; it must be an object with context, choices and answer", describe(object.kind())));
    const JsonValue &context = wanted(object, "context"), &choices = wanted(object, "choices"), &answer = wanted(object, "answer");
    if (!choices.is_array()) refuse(fmt::format("choices is {}; it must be a list", describe(choices.kind())));
    if (choices.items().empty()) refuse("choices is empty; there must be one or more");
    const auto count = std::ssize(choices.items());
    if (!answer.is_integer())
      refuse(fmt::format("answer is {}; it must be a whole number from 0 to {}",
                         answer.is_number() ? to_json_text(answer) : std::string(describe(answer.kind())), count - 1));
    Question question;
    question.answer = answer.as_integer();
    if (question.answer < 0 || question.answer >= count)
      refuse(fmt::format("answer = {}: no such choice; they are 0 to {}", question.answer, count - 1));
    for (std::int64_t i = 0; i < count; ++i)
      question.choices.push_back(choice(context, choices.items()[static_cast<std::size_t>(i)], fmt::format("choices[{}]", i)));
    return question;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const { throw DataError(fmt::format("{}: {}", where_, what)); }

  const JsonValue& wanted(const JsonValue& object, std::string_view key) const {
    const JsonValue* const value = object.find(key);
    if (value == nullptr) refuse(fmt::format("has no {}; there must be context, choices and answer", key));
    return *value;
  }

  ChoiceTokens choice(const JsonValue& context, const JsonValue& value, const std::string& key) const {
    if (context.is_string() != value.is_string() || (!value.is_string() && !(context.is_array() && value.is_array())))
      refuse(fmt::format("context is {} and {} is {}; both must be strings, or both lists of token ids", describe(context.kind()),
                         key, describe(value.kind())));
    ChoiceTokens made = value.is_string() ? of_text(context.as_string(), value.as_string(), key) : of_ids(context, value, key);
    if (made.scored > rules_.sequence)
      refuse(fmt::format("{} has {} tokens, the model is given {} at a time; raise --sequence, or shorten it", key, made.scored,
                         rules_.sequence));
    for (const std::int32_t id : made.tokens)
      if (id < 0 || id >= rules_.vocab_size)
        refuse(fmt::format(
            "{} and its context have token {}, the model's vocabulary is 0 to {}; name the tokenizer that made its data", key, id,
            rules_.vocab_size - 1));
    return made;
  }

  ChoiceTokens of_text(const std::string& context, const std::string& text, const std::string& key) const {
    if (rules_.tokenizer == nullptr)
      throw ConfigError(
          fmt::format("{}: {} is text, and there is no tokenizer{}; name one with --tokenizer, or give token ids", where_, key,
                      rules_.no_tokenizer));
    if (text.empty()) refuse(fmt::format("{} is empty; each choice must have text", key));
    ChoiceTokens made = encode_choice(*rules_.tokenizer, context, rules_.delimiter + text, rules_.rule);
    if (made.scored < 1)
      refuse(fmt::format("{} adds no token to its context; give it text that is not joined to the context's last token", key));
    made.length = static_cast<std::int64_t>(jinja::count_code_points(text));
    return made;
  }

  ChoiceTokens of_ids(const JsonValue& context, const JsonValue& value, const std::string& key) const {
    ChoiceTokens made;
    add_ids(context, "context", made.tokens);
    if (made.tokens.empty() && rules_.tokenizer != nullptr) made.tokens = first_token(*rules_.tokenizer);
    if (made.tokens.empty()) refuse("context has no token; give it one for the choices to follow");
    const std::size_t before = made.tokens.size();
    add_ids(value, key, made.tokens);
    made.scored = static_cast<std::int64_t>(made.tokens.size() - before);
    if (made.scored == 0) refuse(fmt::format("{} is empty; each choice must have a token", key));
    if (rules_.tokenizer == nullptr) return made;
    const std::span<const std::int32_t> ids = std::span(made.tokens).subspan(before);
    if (std::ranges::any_of(ids, [&](std::int32_t id) { return id < 0 || id >= rules_.tokenizer->vocab_size(); }))
      return made;  // refused by choice()
    std::string text;
    replace_ill_formed(rules_.tokenizer->decode(ids), &text);
    made.length = static_cast<std::int64_t>(jinja::count_code_points(text));
    return made;
  }

  void add_ids(const JsonValue& list, const std::string& key, std::vector<std::int32_t>& ids) const {
    for (const JsonValue& item : list.items()) {
      if (!item.is_integer()) refuse(fmt::format("{} has {}; its items must be token ids", key, describe(item.kind())));
      if (item.as_integer() < 0 || item.as_integer() >= rules_.vocab_size)
        refuse(fmt::format("{} has token {}; the model's are 0 to {}", key, item.as_integer(), rules_.vocab_size - 1));
      ids.push_back(static_cast<std::int32_t>(item.as_integer()));
    }
  }

  std::string where_;
  const ChoicesRules& rules_;
};

}  // namespace

ChoiceTokens encode_choice(const Tokenizer& tokenizer, std::string_view context, std::string_view continuation,
                           const TextRule& rule) {
  std::string given, scored;
  replace_ill_formed(context, &given);
  replace_ill_formed(continuation, &scored);
  const std::size_t end = jinja::stripped_end(given);
  ChoiceTokens made;
  if (end == 0) {
    const std::vector<std::int32_t> ids = encode_begin(tokenizer, given + scored, rule);
    // lm-evaluation-harness does not add the token to a text that begins with it.
    made.tokens = first_token(tokenizer);
    if (!ids.empty() && !made.tokens.empty() && ids.front() == made.tokens.front()) made.tokens.clear();
    made.tokens.insert(made.tokens.end(), ids.begin(), ids.end());
    made.scored = std::ssize(made.tokens) - 1;
    return made;
  }
  const std::vector<std::int32_t> before = encode_begin(tokenizer, std::string_view(given).substr(0, end), rule);
  const std::vector<std::int32_t> whole = encode_begin(tokenizer, given + scored, rule);
  // Not `whole` alone: where the two do not join, that program gives the context as it is by itself.
  made.tokens = before;
  if (whole.size() > before.size()) made.tokens.insert(made.tokens.end(), whole.begin() + std::ssize(before), whole.end());
  made.scored = std::ssize(made.tokens) - std::ssize(before);
  return made;
}

std::vector<Question> read_choices(const std::string& path, const ChoicesRules& rules) {
  LineReader lines(open_byte_stream(identify_input(path)), path, LineLimits{kMaxLine, kMaxLine});
  std::vector<Question> questions;
  for (std::string_view line = lines.next(); !line.empty(); line = lines.next()) {
    const std::string_view text = without_line_end(line);
    if (text.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    questions.push_back(LineOfChoices(fmt::format("{}:{}", path, lines.line_number()), rules).parse(text));
  }
  if (questions.empty())
    throw DataError(fmt::format("{}: has no question; give lines {{\"context\": ..., \"choices\": [...], \"answer\": 0}}", path));
  return questions;
}

}  // namespace trident
