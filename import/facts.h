// Facts that the inputs state, in our words, while keys of ours are computed from them. Inside import only.
//
// A fact's name is a path of the option table ("optimizer.lr"), "model." and a key of config.json ("model.hidden_size"), or "@" and
// a name for what no key of ours says alone; the rows of import/foreign say which key it is of. None of these outlives
// derive_common.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_reader.h"
#include "import/foreign/foreign_key.h"

namespace trident {

// The heavier of two values counts, and the first of two defaults or two fallbacks. Two others must be equal.
enum class Weight : std::uint8_t {
  kDefault,   // of a system
  kFallback,  // an input says so, if nothing else does: "bf16: false" is fp32, distributed_type FSDP zero3
  kImplied,   // an input says so by the way: "fsdp: full_shard" is zero3, unless fsdp_config has another strategy
  kGiven
};

struct Fact {
  JsonValue value;     // in our words
  std::string origin;  // "zero2.yaml:8 zero_stage: 2"; of a default "TrainingArguments' default"
  Weight weight = Weight::kGiven;

  bool is_default() const { return weight == Weight::kDefault; }
  bool is_open() const;  // the value has a "$" or "`": the script's user alone knows it
};

inline constexpr double kMostExact = 9e15;  // integers up to it are doubles

class Facts {
  static constexpr double kMost = std::numeric_limits<double>::infinity();

 public:
  const Fact* find(std::string_view name) const;                 // nullptr: nobody says so
  bool is_given(std::string_view name) const;                    // some input says so
  bool is(std::string_view name, const JsonValue& value) const;  // somebody says so, and it is this value
  bool is_on(std::string_view name) const { return is(name, true); }
  bool is_open(std::string_view name) const { return find(name) != nullptr && find(name)->is_open(); }
  // Values of a fact, or nothing where nobody says so. ConfigError, with the origin, for one of another kind.
  std::optional<double> number(std::string_view name, std::string_view kind = "a number", double least = -kMost,
                               double most = kMost) const;
  std::optional<double> not_negative(std::string_view name) const { return number(name, "0 or more", 0); }
  std::optional<double> share(std::string_view name) const { return number(name, "from 0 to 1", 0, 1); }
  std::optional<std::int64_t> integer(std::string_view name, std::string_view kind = "an integer", double least = -kMost) const;
  std::optional<std::int64_t> positive(std::string_view name) const { return integer(name, "an integer from 1", 1); }  // may divide
  // Text, or JSON of another value; "": nobody says so.
  std::string text(std::string_view name) const;
  // Returns text() in small letters, "no" for YAML's false.
  std::string word(std::string_view name) const;

  // A heavier value replaces the one there is; a lighter one gives way. ConfigError, naming both, where two must be equal.
  void take(std::string_view name, Fact fact);
  // Replaces without a word.
  void set(std::string_view name, Fact fact);
  // Replaces by what is computed from these facts.
  void set(std::string_view name, JsonValue value, std::initializer_list<std::string_view> from);
  void erase(std::string_view name);
  void erase_block(std::string_view prefix, Weight heaviest = Weight::kGiven);
  std::optional<Fact> pull(std::string_view name);  // erases what it returns
  // A sentence without its full stop for whoever gave the fact: what became of it, where no value shows it.
  void remark(const Fact& fact, std::string text);
  void remark(std::string_view name, std::string text);  // of nobody: nothing
  // --set says this one: inputs that say two things of it do not disagree, and the first of them stays.
  void settle(std::string_view name) { settled_.emplace(name); }
  // Inputs that disagree are told there, and the first of them stays; else they end the import.
  void tell_faults(std::vector<std::string>* faults) { faults_ = faults; }
  // These facts count beside `other` alone: without it they are erased, and said to go with `flag`.
  void keep_beside(std::string_view other, std::initializer_list<std::string_view> names, std::string_view flag);

  const std::map<std::string, Fact, std::less<>>& all() const { return facts_; }
  const std::vector<std::pair<std::string, std::string>>& remarks() const { return remarks_; }  // origin, sentence

 private:
  std::map<std::string, Fact, std::less<>> facts_;
  std::vector<std::pair<std::string, std::string>> remarks_;
  std::set<std::string, std::less<>> settled_;
  std::vector<std::string>* faults_ = nullptr;
};

// The origin of what is computed from these facts: theirs one after the other, which is how a key of an input is found again in a
// value. As light as the heaviest of them. nullptr: nobody says so.
Fact computed(JsonValue value, std::initializer_list<const Fact*> from);
Fact of_default(ForeignSystem system, JsonValue value, std::string_view why = "");
// An integer that is a product or a rounded quotient of numbers in these facts: `value` without its fraction. ConfigError, with
// their origins, beyond 9e15, up to which doubles hold every integer, and for a quotient by zero.
std::int64_t whole_number(double value, std::initializer_list<const Fact*> from);

enum class Round : std::uint8_t { kExact, kDown, kUp, kNot };  // kExact refuses fractions; kDown gives 1 at least

// `to` is the product of facts over that of others, where the first of them that begins with @, or else the first, is said.
struct Formula {
  std::string_view to;
  std::string_view product, over = {};  // names and numbers, with blanks; a name that ends in ? is 1 where nobody says it
  Round round = Round::kExact;
};
// Takes what the formula gives, which is open where one of its facts is. Where a name has no fact, a remark says so. Whether it
// is a default does not depend on the ranks. ConfigError for a fraction that the formula does not round, and for a divisor below 1.
void apply(Facts& facts, const Formula& formula);

// Whether `origin` is `part`, or one of several that it is made of.
bool is_part_of(std::string_view part, std::string_view origin);
// Equal content, numbers by value.
bool is_same_value(const JsonValue& a, const JsonValue& b);
std::string lower(std::string_view text);
// "8", "1.0e-5", "+.5" and "1_000" as numbers; nothing: another text.
std::optional<JsonValue> number_in(std::string_view text);
// The words of a text, or of a list of them, between blanks and commas.
std::vector<std::string> words_in(const JsonValue& value, std::string_view between = ", ");
// Text as it is, other values as JSON.
std::string text_of(const JsonValue& value);

// model.rope_scaling of Llama 3.1.
JsonValue llama3_rope_scaling(double factor);
// @ranks of the nodes and of the ranks of each, unless --ranks counts. Twice is as once.
void derive_ranks(Facts& facts);
// precision.fp8 of @fp8, or of the recipe beside it.
void take_fp8(Facts& facts);

// Computes keys from facts that only this system has; each before derive_common, and only where the system is among the inputs.
void derive_hugging_face(Facts& facts, const std::set<ForeignSystem>& systems);  // with TRL, ms-swift, axolotl, LLaMA-Factory
void derive_deepspeed(Facts& facts);                                             // with Accelerate
void derive_megatron(Facts& facts);                                              // the model block from flags
void derive_torchtitan(Facts& facts);
void derive_olmo(Facts& facts);
// Refuses a method that is not there, such as GRPO.
void check_stage(const Facts& facts);
// Defaults of what is trained, such as TRL's of supervised fine-tuning, which go before those of the tables.
void take_stage_defaults(Facts& facts, const std::set<ForeignSystem>& systems);
// Turns what systems have in common into keys of the option table. Afterwards no "@" fact is left. Returns what data.train is once
// the commands of the remarks have prepared the data; "": there are none.
std::string derive_common(Facts& facts);

}  // namespace trident
