#include "import/import.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>

#include "core/printable.h"
#include "train/config/foreign_answers.h"
#include "train/config/option_check.h"
#include "train/config/option_table.h"
#include "import/facts.h"
#include "import/text_limits.h"

namespace trident {
namespace {

constexpr std::string_view kCommand = "trident ";  // begins what stands in the place of a key
constexpr std::string_view kLossCommand = "trident data prepare --chat --loss ";
// Keys of config.json that may be other numbers than integers.
constexpr std::string_view kFractions =
    "rms_norm_eps layer_norm_epsilon rope_theta partial_rotary_factor initializer_range clip_qkv";
constexpr std::size_t kLongestValue = 80;  // bytes of one in messages and comments

// Whose defaults go before whose: a program's before a launcher's, and those of what builds on another before the other's.
constexpr std::array kByDefaults{ForeignSystem::kSwift,       ForeignSystem::kAxolotl,   ForeignSystem::kLlamaFactory,
                                 ForeignSystem::kHuggingFace, ForeignSystem::kMegatron,  ForeignSystem::kTorchtitan,
                                 ForeignSystem::kOlmo,        ForeignSystem::kDeepSpeed, ForeignSystem::kAccelerate,
                                 ForeignSystem::kLauncher};

// "zero2.yaml:8 zero_stage: 2", "run.sh:3 --bf16".
std::string origin_of(const ForeignLeaf& leaf) {
  const bool is_flag = leaf.key.starts_with('-'), is_bare = is_flag && leaf.value == JsonValue(true);
  std::string value = text_of(leaf.value);
  if (value.size() > kLongestValue) value = value.substr(0, kLongestValue) + "...";
  const std::string said = is_bare ? "" : fmt::format("{} {}", is_flag ? "" : ":", value);
  return on_one_line(fmt::format("{} {}{}", place_of(leaf), leaf.key, said));
}

// Off, or nothing: what asks for a thing that there is not may say so.
bool is_neutral(const JsonValue& value) {
  if (value.is_array() || value.is_object()) return value.is_array() ? value.items().empty() : value.members().empty();
  const std::string text = lower(text_of(value));
  return text.empty() || is_listed(text, "null none no false 0 0.0");
}

// An argument of the script is the value, or a part of it.
bool is_open(const ForeignLeaf& leaf) { return !leaf.is_replaced && !leaf.remark.empty(); }

bool is_comment(std::string_view key) {
  if (key.starts_with('-')) return false;
  return std::ranges::any_of(words_in(key, "."),
                             [](std::string_view part) { return part.starts_with('_') || part.starts_with("x-"); });
}

std::optional<bool> bool_in(std::string_view text) {
  const std::string word = lower(text);
  if (is_listed(word, "true yes on 1")) return true;
  return is_listed(word, "false no off 0") ? std::optional(false) : std::nullopt;
}

// The one item of a list, as of TRL's loss_type: [sigmoid]; else the value itself.
const JsonValue& only_item(const JsonValue& value) {
  return value.is_array() && value.items().size() == 1 ? value.items()[0] : value;
}

JsonValue::Array list_of(const JsonValue& value) {
  const std::vector<std::string> words = words_in(value);
  return JsonValue::Array(words.begin(), words.end());
}

// Texts of flags become what the option takes; of what is no option, numbers and truths where they look like ones.
JsonValue typed(const JsonValue& value, std::string_view to, const Option* option) {
  if (!value.is_string()) {
    const bool is_whole = value.kind() == JsonValue::Kind::kNumber && std::abs(value.as_number()) < 9e15 &&
                          value.as_number() == std::floor(value.as_number());
    if (option == nullptr) return is_whole && to.starts_with('@') ? JsonValue(static_cast<std::int64_t>(value.as_number())) : value;
    if (is_whole && takes(option->takes, Takes::kInteger) && !takes(option->takes, Takes::kNumber))
      return static_cast<std::int64_t>(value.as_number());
    const bool wants_text = option->takes == Takes::kString || option->takes == (Takes::kNull | Takes::kString);
    return wants_text && option->choices.empty() && (value.is_number() || value.is_bool()) ? JsonValue(to_json_text(value)) : value;
  }
  const std::string& text = value.as_string();
  if (to == "@model" || to == "@dataset" || to == "@program") return value;
  const auto wants = [&](Takes kind) { return option == nullptr || takes(option->takes, kind); };
  if (const std::optional<JsonValue> number = number_in(text); number && (wants(Takes::kInteger) || wants(Takes::kNumber)))
    return option == nullptr ? *number : typed(*number, to, option);
  if (const std::optional<bool> truth = bool_in(text); truth && wants(Takes::kBool) && (option != nullptr || text.size() > 3))
    return *truth;
  if (option != nullptr && (takes(option->takes, Takes::kIntegers) || takes(option->takes, Takes::kNumbers))) {
    JsonValue::Array numbers;
    for (const std::string& item : words_in(value)) numbers.push_back(number_in(item).value_or(item));
    return numbers;
  }
  return value;
}

bool is_reserved(const Option& option, const JsonValue& value) {
  return option.reserved ||
         std::ranges::any_of(option.reserved_values, [&](const ReservedValue& one) { return value == JsonValue(one.value); });
}

// The value in the option's own form. ConfigError, with its place, for a number that the option refuses, before it is multiplied;
// what else is refused stays, and is said in the end, if it is still there.
JsonValue canonical(const JsonValue& value, const Option& option, std::string_view origin) {
  if (takes(option.takes, Takes::kSources) || takes(option.takes, Takes::kTexts)) return value;
  try {
    return checked_value(option, value, fmt::format("{}: ", origin));
  } catch (const ConfigError&) {
    if (value.is_number() && !is_reserved(option, value)) throw;
    return value;
  }
}

// The value of a row's key, by its own value or its conversion.
JsonValue converted(const ForeignKey& row, const JsonValue& given, std::string_view origin) {
  const Option* const option = find_option(row.to);
  const JsonValue value = [&]() -> JsonValue {
    if (!row.value.empty()) return parse_json(row.value, row.names);
    switch (row.convert) {
      case Convert::kElementsToMb:
        if (const JsonValue number = typed(given, "@", nullptr); number.is_number()) return number.as_number() * 4e-6;
        throw ConfigError(fmt::format("{}: must be a number; correct it", origin));
      case Convert::kList: return given.is_string() ? JsonValue(list_of(given)) : given;
      default: return typed(given, fact_of(row.to), option);
    }
  }();
  const bool may_be_zero = fact_of(row.to) != row.to;
  if (option == nullptr && row.to.starts_with("model.") && value.is_number() &&
      !(value.as_number() > 0 || (may_be_zero && value.as_number() == 0)))
    throw ConfigError(fmt::format("{}: must be {}; correct it", origin, may_be_zero ? "0 or more" : "above 0"));
  return option == nullptr ? value : canonical(value, *option, origin);
}

Weight weight_of(const ForeignKey& row) {
  return row.convert == Convert::kUnlessSaid      ? Weight::kImplied
         : row.convert == Convert::kUnlessImplied ? Weight::kFallback
                                                  : Weight::kGiven;
}

void append_sentence(std::string& note, std::string_view sentence) {
  if (!sentence.empty()) note += fmt::format("{}{}", note.empty() ? "" : "; ", sentence);
}

class Resolver {
 public:
  Resolver(const ImportRules& rules, const ForeignTables& tables) : rules_(rules), tables_(tables) {}

  Import run(const std::vector<ForeignLeaf>& leaves) {
    if (rules_.keeps_faults) facts_.tell_faults(&out_.faults);
    for (const std::string& setting : rules_.settings) facts_.settle(setting.substr(0, setting.find('=')));
    for (const ForeignLeaf& leaf : leaves) {  // all faults are told at once
      const std::size_t before = out_.faults.size();
      collect(out_.faults, [&] { judge(leaf); });
      if (out_.faults.size() > before) judged_.back().key.verdict = Verdict::kRefused;
    }
    for (const std::string& name : rules_.without)
      if (std::ranges::none_of(leaves, [&](const ForeignLeaf& leaf) { return is_named(leaf.key, {name}); }))
        throw ConfigError(fmt::format("--without {}: no input has such a key; correct its name", name));
    if (present_.contains(ForeignSystem::kHuggingFace)) check_stage(facts_);  // before the arguments that go with it
    if (!rules_.keeps_faults) refuse_all(out_.faults);
    take_base();
    if (present_.contains(ForeignSystem::kHuggingFace)) take_stage_defaults(facts_, present_);
    fill_defaults();
    if (rules_.ranks) {
      const std::string option = fmt::format("--ranks {}", *rules_.ranks);
      for (const char* name : {"@ranks", "@ranks_per_node"})
        if (const Fact* const said = facts_.find(name))
          facts_.remark(*said, is_same_value(said->value, *rules_.ranks) ? fmt::format("{} ranks", *rules_.ranks)
                                                                          : option + " counts in its place");
      facts_.set("@ranks", {*rules_.ranks, option});
    } else if (rules_.assumes_one_process && !says_ranks()) {
      facts_.set("@ranks", {1, "one process, as no input says how many", Weight::kDefault});
      out_.is_one_process = true;
    }
    try {
      derive();
      list_values();
    } catch (const ConfigError& error) {
      take_fault(error.what());
    }
    for (Judged& one : judged_)
      if (std::ranges::any_of(out_.faults, [&](const std::string& fault) { return begins(fault, one.origin); }))
        one.key.verdict = Verdict::kRefused;
    for (Judged& one : judged_) one.key.general = one.key.note.size(), finish(one);
    list_defaults();
    return std::move(out_);
  }

 private:
  // A colon or a comma ends an origin.
  static bool begins(std::string_view fault, std::string_view origin) {
    return fault.starts_with(origin) && fault.find_first_of(":,", origin.size()) == origin.size();
  }

  // A fault of what is derived ends the import, unless the verdicts of all keys are wanted.
  void take_fault(std::string what) {
    for (const Judged& one : judged_)
      if (is_open(one.key.leaf) && begins(what, one.origin)) what += fmt::format(" ({})", one.key.leaf.remark);
    if (out_.faults.empty()) out_.faults.push_back(what);  // else it may follow from one of them
    if (!rules_.keeps_faults) refuse_all(out_.faults);
  }

  struct Judged {
    ImportedKey key;
    std::string origin;
    std::string_view to;  // of the row that gives its verdict
    bool is_auto = false;
  };

  static std::string without(const ForeignLeaf& leaf) {
    return fmt::format("--without {}", leaf.key.substr(std::min(leaf.key.find_first_not_of('-'), leaf.key.size())));
  }

  [[noreturn]] void refuse_unknown(const ForeignLeaf& leaf) const {
    std::string near(tables_.nearest(leaf.system, leaf.key));
    if (near == plain_foreign_name(leaf.key))
      throw ConfigError(fmt::format("{}: there is no such value of this key; take {}", origin_of(leaf),
                                    tables_.values_of(leaf.system, near)));
    if (leaf.key.find('-', 2) != leaf.key.npos) std::ranges::replace(near, '_', '-');
    const std::string dashes = leaf.key.substr(0, std::min(leaf.key.find_first_not_of('-'), leaf.key.size()));
    std::string remedy = near.empty() ? "correct it or leave it out" : fmt::format("did you mean {}{}?", dashes, near);
    for (const ForeignAnswer& answer : foreign_answers(near.empty() ? leaf.key : "", text_of(leaf.value)))
      if (!answer.key.empty()) remedy = fmt::format("leave it out there, and give it by --set {}=...", answer.key);
    throw ConfigError(fmt::format("{}: unknown key {} of {}; {}{} or go on without it: {}", place_of(leaf), in_quotes(leaf.key),
                                  name_of(leaf.system), remedy, remedy.ends_with('?') ? "" : ",", without(leaf)));
  }

  void judge(const ForeignLeaf& leaf) {
    Judged& one = judged_.emplace_back();
    one.key = {leaf, Verdict::kAlways, "", ""};
    one.origin = origin_of(leaf);
    if (is_comment(leaf.key)) {
      one.key.note = "a comment";
      return;
    }
    present_.insert(leaf.system);
    if (const std::optional<ForeignSystem> base = base_of(leaf.system)) present_.insert(*base);
    if (leaf.key == "program" && text_of(leaf.value).starts_with("megatron ")) present_.insert(ForeignSystem::kMegatron);
    std::vector<const ForeignKey*> rows = tables_.find_all(leaf.system, leaf.key, text_of(only_item(leaf.value)));
    if (is_named(leaf.key, rules_.without)) {
      one.key.verdict = Verdict::kDiffers, one.key.note = "left out, as --without says";
      return append_sentence(one.key.note, !rows.empty() && rows.front()->verdict == Verdict::kRefused ? rows.front()->note : "");
    }
    if (const ForeignKey* const row = is_open(leaf) && !rows.empty() && rows.front()->verdict == Verdict::kRefused
                                          ? tables_.find_key(leaf.system, leaf.key)
                                          : nullptr) {
      one.key.verdict = row->verdict, one.to = key_of(row->to);
      return facts_.take(one.to, {leaf.value, one.origin});
    }
    if (!rows.empty() && leaf.is_replaced) return;  // its remark says by what
    std::vector<std::string> words(rows.size(), text_of(only_item(leaf.value)));
    if (!rows.empty() && rows.front()->convert == Convert::kWords) {
      rows.clear(), words.clear();
      for (const std::string& word : words_in(leaf.value, ", []\""))
        for (const ForeignKey* const row : tables_.find_all(leaf.system, leaf.key, word)) {
          if (row->convert == Convert::kWords)
            throw ConfigError(fmt::format("{}: there is no word {} of this key; correct it", one.origin, in_quotes(word)));
          rows.push_back(row), words.push_back(word);
        }
      if (rows.empty()) {
        one.key.note = "off, as here";
        return;
      }
    }
    // Rows of one flag may be of several facts, which do not know of one another.
    const auto [first, is_first] = flags_.try_emplace(std::pair(leaf.system, leaf.key), rows, one.origin);
    if (leaf.key.starts_with('-') && !is_first && first->second.first != rows)
      throw ConfigError(fmt::format("{}: {} says otherwise; keep one of the two", one.origin, first->second.second));
    // Launchers have more flags than their table: one that is nearly in it is misspelt.
    const bool is_misspelt = !rows.empty() && rows.front()->names == "*" && !tables_.nearest(leaf.system, leaf.key).empty();
    if (is_misspelt || (rows.empty() && !leaf.value.is_object())) refuse_unknown(leaf);
    if (rows.empty()) one.key.note = "an empty block says nothing";
    for (std::size_t i = 0; i < rows.size(); ++i) judge_by_row(one, *rows[i], words[i]);
  }

  // The first of a key's rows gives it its verdict, unless that is nothing.
  void judge_by_row(Judged& one, const ForeignKey& row, std::string_view word) {
    const ForeignLeaf& leaf = one.key.leaf;
    if (one.to.empty()) one.key.verdict = row.verdict, one.to = fact_of(row.to);
    append_sentence(one.key.note, row.note);
    const bool names_values = !names_of(row).values.empty(), is_auto = !names_values && lower(word) == "auto";
    const bool becomes_something = row.verdict == Verdict::kMapped || row.verdict == Verdict::kDiffers ||
                                   row.verdict == Verdict::kNotBuilt || row.to.starts_with('@');
    const auto says_nothing = [&](std::string_view note) { one.key.verdict = Verdict::kAlways, one.key.note = note; };
    if (row.verdict == Verdict::kRefused) {
      if (!names_values && (is_neutral(leaf.value) || is_auto)) return says_nothing("off, as here");
      throw ConfigError(
          fmt::format("{}: {}; {}, or go on without it: {}", one.origin, row.note,
                      row.to.empty() ? "leave it out" : fmt::format("use {}", row.to), without(leaf)));
    }
    const bool has_no_key = row.to.empty() || row.to.starts_with(kCommand);
    const bool is_off = is_neutral(leaf.value) && !number_in(text_of(leaf.value));
    if (row.verdict == Verdict::kDiffers && has_no_key && !names_values && is_off)
      return says_nothing("off, as here");
    if (!becomes_something || has_no_key) {
      if (one.to == row.to) one.key.to = row.to;
      if (!row.to.starts_with(kLossCommand)) return;
      const std::string_view loss = row.to.substr(kLossCommand.size());
      one.key.note = fmt::format("--loss {}: {}", loss, row.note);
      if (loss != "all" || facts_.find("@loss") == nullptr) facts_.set("@loss", {loss, one.origin});
      return;
    }
    if (leaf.system == ForeignSystem::kDeepSpeed)
      for (const std::string& name : {std::string("@json"), fmt::format("@json:{}", fact_of(row.to))})
        facts_.set(name, {true, one.origin});
    if (is_auto) {
      one.is_auto = true;
      return;
    }
    if (!names_values && leaf.value.is_null()) return says_nothing("null says nothing");
    // A row that gives one value, whatever the key's, means the key that is on.
    const bool is_switch = !names_values && !row.value.empty() && tables_.find(leaf.system, leaf.key, "true") == &row;
    if (is_neutral(leaf.value) && !names_values && (is_switch || row.verdict == Verdict::kNotBuilt))
      return says_nothing("off, as here");
    std::string fact(fact_of(row.to));
    if (const std::size_t index = leaf.key.find('['); fact == "@dataset" && index != leaf.key.npos)  // each is prepared
      fact += leaf.key.substr(index, leaf.key.find(']') + 1 - index);
    const JsonValue& value = names_values ? only_item(leaf.value) : leaf.value;
    facts_.take(fact, {converted(row, value, one.origin), one.origin, weight_of(row)});
  }

  // Points to what the base gives; nullptr: nothing.
  const OptionValue* of_base(std::string_view path) const {
    if (rules_.base == nullptr) return nullptr;
    const OptionValue& value = rules_.base->at(path);
    return value.origin == OptionValue().origin ? nullptr : &value;
  }

  // Numbers of the base that others are computed from, as defaults that go before the systems'.
  void take_base() {
    for (const char* const path : {"run.steps", "parallel.data", "parallel.pipeline", "parallel.tensor", "batch.global",
                                   "batch.micro", "batch.sequence", "optimizer.lr"}) {
      const OptionValue* const value = of_base(path);
      if (value == nullptr || !value->value.is_number()) continue;
      const bool is_steps = std::string_view(path) == "run.steps";
      if (is_steps && facts_.is_given("run.epochs")) continue;  // which take their place
      const std::string setting = fmt::format("{}={}", path, to_json_text(value->value));
      if (const Fact* const said = facts_.find(path);
          is_steps && said != nullptr && std::ranges::find(rules_.settings, setting) != rules_.settings.end()) {
        facts_.remark(*said, fmt::format("--set {} counts in its place", setting));
        facts_.set(path, {value->value, value->origin});
      }
      facts_.take(path, {value->value, value->origin, Weight::kDefault});
    }
  }

  bool says_ranks() const {
    const auto is_there = [&](const char* name) { return facts_.find(name) != nullptr; };
    const auto is_given = [&](const char* name) { return facts_.is_given(name) && !facts_.is(name, 1); };
    return std::ranges::any_of(std::array{"@ranks", "@ranks_per_node", "parallel.data"}, is_there) ||
           std::ranges::any_of(std::array{"@nodes", "@replicate", "@shard", "parallel.tensor", "parallel.pipeline",
                                          "parallel.context"}, is_given);
  }

  // A default is in the system's own words: the row of that value says what it is here.
  void fill_defaults() {
    const auto fill = [&](ForeignSystem system, std::string_view name, const JsonValue& value) {
      for (const ForeignKey* const row : tables_.find_all(system, name, text_of(value)))
        if (!row->to.empty() && (row->verdict == Verdict::kMapped || row->verdict == Verdict::kDiffers))
          facts_.take(fact_of(row->to), of_default(system, converted(*row, value, default_origin(system)),
                                                   row->verdict == Verdict::kDiffers ? fmt::format(": {}", row->note) : ""));
    };
    for (const ForeignSystem system : kByDefaults) {
      if (!present_.contains(system)) continue;
      const JsonValue own = parse_json(defaults_of(system), "defaults");
      for (const JsonMember& member : own.members()) fill(system, member.key, member.value);
      for (const ForeignSection& section : tables_.sections()) {
        if (section.system != system) continue;
        for (const ForeignKey& said : section.keys)
          if (!said.fallback.empty()) fill(system, names_of(said).names.front(), parse_json(said.fallback, said.names));
      }
    }
  }

  void derive() {
    using enum ForeignSystem;
    if (present_.contains(kHuggingFace)) derive_hugging_face(facts_, present_);
    if (present_.contains(kDeepSpeed) || present_.contains(kAccelerate)) derive_deepspeed(facts_);
    if (present_.contains(kMegatron)) derive_megatron(facts_);
    if (present_.contains(kTorchtitan)) derive_torchtitan(facts_);
    if (present_.contains(kOlmo)) derive_olmo(facts_);
    before_common_ = facts_;
    out_.prepared = derive_common(facts_);
  }

  // An argument of the script stands in the value as it was typed.
  std::string unknown_of(const Fact& fact) const {
    if (!fact.is_open()) return "";
    for (const Judged& one : judged_)
      if (const ForeignLeaf& leaf = one.key.leaf; is_open(leaf) && is_part_of(one.origin, fact.origin)) return leaf.remark;
    return "";
  }

  void list_value(const std::string& path, const Fact& fact, const Option* option) {
    ImportedValue value{path, fact.value, fact.origin, fact.is_default(), unknown_of(fact)};
    const bool is_fraction = fact.value.is_number() && fact.value.as_number() != std::floor(fact.value.as_number());
    if (option == nullptr && is_fraction && !is_listed(path.substr(path.find('.') + 1), kFractions))
      throw ConfigError(fmt::format("{}: {} = {}: must be an integer; correct it", fact.origin, path, to_json_text(fact.value)));
    if (option != nullptr && value.unknown.empty()) try {
        const JsonValue checked = checked_value(*option, fact.value, fact.origin + ": ");
        if (!takes(option->takes, Takes::kSources) && !takes(option->takes, Takes::kTexts)) value.value = checked;
      } catch (const ConfigError& error) {
        if (!is_reserved(*option, fact.value)) throw;
        value.not_built = std::string_view(error.what()).substr(fact.origin.size() + 2);
      }
    out_.values.push_back(std::move(value));
  }

  void list_values() {
    const auto is_of_model = [](std::string_view path) { return path.starts_with("model."); };
    const auto list_model_keys = [&] {
      for (const auto& [path, fact] : facts_.all())
        if (path == "model.model_type") list_value(path, fact, nullptr);
      for (const auto& [path, fact] : facts_.all())
        if (is_of_model(path) && path != "model.model_type" && find_option(path) == nullptr) list_value(path, fact, nullptr);
    };
    bool in_model = false;
    for (const Option& option : option_table()) {
      if (in_model && !is_of_model(option.path)) list_model_keys();
      in_model = is_of_model(option.path);
      const std::string path(option.path);
      const Fact* const fact = facts_.find(path);
      const OptionValue* const base = of_base(path);
      const bool is_of_base = fact != nullptr && base != nullptr && fact->origin == base->origin;
      if (fact != nullptr && !is_of_base) list_value(path, *fact, &option);
    }
    for (const auto& [path, fact] : facts_.all())
      TRIDENT_CHECK(is_of_model(path) || find_option(path) != nullptr, "{}: {} is in no table", fact.origin, path);
    if (const Fact* const data = facts_.find("parallel.data"); data == nullptr || !data->value.is_number()) return;
    apply(facts_, {"@ranks", "parallel.data parallel.tensor? parallel.pipeline? parallel.context?"});
    out_.ranks = facts_.integer("@ranks");
  }

  // Says what became of a key, now that all values are known.
  void finish(Judged& one) const {
    ImportedKey& key = one.key;
    bool any = false, reserved = false;
    const auto say = [&](const ImportedValue& value) {
      const std::string setting = fmt::format("{} = {}", value.path, value_text(value.value));
      append_sentence(key.to, setting);
      any = true;
      reserved |= !value.not_built.empty();
      const bool names_it = value.not_built.starts_with(setting + ": ");
      const std::string why = value.not_built.substr(names_it ? setting.size() + 2 : 0);
      if (!key.note.ends_with(why)) append_sentence(key.note, why);
    };
    const std::string_view to = one.to;
    for (const bool is_direct : {true, false})
      for (const ImportedValue& value : out_.values)
        if ((value.path == to) == is_direct && (one.is_auto ? is_direct : is_part_of(one.origin, value.origin)) &&
            (value.path != "parallel.data" || is_direct || !to.starts_with("parallel.")))
          say(value);
    if (reserved && key.verdict != Verdict::kRefused)
      key.verdict = Verdict::kNotBuilt;
    else if (any && key.verdict == Verdict::kNotBuilt && !is_open(key.leaf))
      key.verdict = Verdict::kAlways;
    if (one.is_auto) {
      const Fact* fact = facts_.find(to);
      if (fact == nullptr) fact = before_common_.find(to);
      append_sentence(key.note, fact == nullptr ? "no input says it: ours stays"
                                                : fmt::format("resolved to {} ({})", value_text(fact->value), fact->origin));
    }
    append_sentence(key.note, key.leaf.remark);
    append_sentence(key.note, key.leaf.note);
    const ImportedValue* left_out = nullptr;  // the key's own, from which others follow
    for (const ImportedValue& value : out_.values)
      if (!value.unknown.empty() && is_part_of(one.origin, value.origin) && (left_out == nullptr || value.path == to))
        left_out = &value;
    if (left_out != nullptr) append_sentence(key.note, fmt::format("left out: give it with --set {}=...", left_out->path));
    for (const auto& [origin, sentence] : facts_.remarks())
      if (const bool is_dropped = !any && sentence.starts_with("no effect: "); is_part_of(one.origin, origin)) {
        if (is_dropped) key.verdict = Verdict::kAlways, key.note.clear();
        append_sentence(key.note, sentence);
      }
    if ((to.starts_with('@') || key.verdict == Verdict::kMapped) && !any && key.note.empty())
      key.note = "the other keys say as much, or it needs one that is left out";
  }

  void list_defaults() {
    const auto says = [&](const ImportedValue& value) {
      return std::ranges::any_of(judged_, [&](const Judged& one) { return is_part_of(one.origin, value.origin); });
    };
    for (const ImportedValue& value : out_.values)
      if (value.is_default && !says(value)) out_.defaults.push_back(value);
    for (Judged& one : judged_) out_.keys.push_back(std::move(one.key));
  }

  const ImportRules& rules_;
  const ForeignTables& tables_;
  Facts facts_, before_common_;
  std::vector<Judged> judged_;
  std::set<ForeignSystem> present_;
  // The rows and the origin of the first of each flag, as typed.
  std::map<std::pair<ForeignSystem, std::string>, std::pair<std::vector<const ForeignKey*>, std::string>> flags_;
  Import out_;
};

}  // namespace

Import import_leaves(const std::vector<ForeignLeaf>& leaves, const ImportRules& rules, const ForeignTables& tables) {
  return Resolver(rules, tables).run(leaves);
}

Import import_files(const std::vector<std::string>& files, const ImportRules& rules) {
  std::vector<ForeignLeaf> leaves = read_foreign_inputs(files, rules.from, rules.without);
  std::map<std::string, JsonValue> said;  // arguments of the script, such as "$1" of --save, whose values --set gives
  for (ForeignLeaf& leaf : leaves) {
    const ForeignKey* const row = is_open(leaf) ? foreign_tables().find_key(leaf.system, leaf.key) : nullptr;
    const std::string_view key = row == nullptr ? "" : key_of(row->to);
    for (const std::string& setting : rules.settings) {
      if (key.empty() || !setting.starts_with(fmt::format("{}=", key))) continue;
      leaf.is_replaced = key != row->to;  // whose value is another than the key's
      if (!leaf.is_replaced) said.emplace(text_of(leaf.value), setting.substr(key.size() + 1));
      leaf.value = leaf.is_replaced ? leaf.value : JsonValue(setting.substr(key.size() + 1));
      leaf.remark = leaf.is_replaced ? fmt::format("--set {} counts in its place", setting) : "";
    }
  }
  for (ForeignLeaf& leaf : leaves)  // --load of the same argument
    if (const auto value = said.find(text_of(leaf.value)); is_open(leaf) && value != said.end())
      leaf.value = value->second, leaf.remark.clear();
  // Keys that follow from several take the user's numbers, such as parallel.data, as they take the base's.
  OptionValues base = rules.base == nullptr ? OptionValues() : *rules.base;
  base.take_settings(rules.settings);
  ImportRules both = rules;
  both.base = &base;
  return import_leaves(leaves, both);
}

}  // namespace trident
