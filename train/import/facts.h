// Facts that the inputs state, in our words, while keys of ours are computed from them. Inside train/import only.
//
// A fact's name is a path of the option table ("optimizer.lr"), "model." and a key of config.json ("model.hidden_size"), or "@" and
// a name for what no key of ours says alone:
//   @ranks, @nodes, @ranks_per_node      processes: in all; machines; of each machine
//   @replicate, @shard                   data-parallel ranks with whole copies; ranks that share a copy, -1: all that are left
//   @accumulation                        micro-batches of a rank in one update
//   @step_tokens                         tokens of one update, over all ranks
//   @train_samples, @train_tokens        length of the run
//   @warmup_samples, @decay_samples      of the schedule of the learning rate
//   @warmup_ratio, @decay_ratio          of the run's steps
//   @min_lr_ratio                        lowest over highest learning rate
//   @beta1, @beta2                       of optimizer.betas
//   @max_steps                           run.steps where > 0; else run.epochs counts
//   @save_strategy, @save_steps          Trainer's: "no", "epoch", "steps"; likewise @eval_*, @logging_*
//   @model, @dataset                     a local path, or a hub's name
//   @loss, @pack                         of @dataset: --loss of trident data prepare, or "preference"; given where it is packed
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json_reader.h"

namespace trident {

struct Fact {
  JsonValue value;     // in our words
  std::string origin;  // "zero2.yaml:8 zero_stage: 2"; of a default "TrainingArguments' default"
  bool is_default = false;
};

class Facts {
 public:
  const Fact* find(std::string_view name) const;  // nullptr: nobody says so
  bool is_given(std::string_view name) const;     // some input says so
  // Values of a fact, or nothing where nobody says so. ConfigError, with the origin, for one of another kind.
  std::optional<std::int64_t> integer(std::string_view name) const;
  std::optional<std::int64_t> positive(std::string_view name) const;  // an integer from 1, which may divide
  std::optional<double> number(std::string_view name) const;
  std::optional<double> share(std::string_view name) const;  // a number from 0 to 1
  std::optional<std::string> text(std::string_view name) const;

  // A given value replaces a default; a default gives way. ConfigError, naming both origins, where two given values differ.
  void take(std::string_view name, Fact fact);
  // Replaces without a word: for what is computed.
  void set(std::string_view name, Fact fact);
  void erase(std::string_view name);
  std::optional<Fact> pull(std::string_view name);  // erases what it returns
  // A sentence without its full stop for whoever gave the fact: what became of it, where no value shows it.
  void remark(const Fact& fact, std::string text);

  const std::map<std::string, Fact, std::less<>>& all() const { return facts_; }
  const std::vector<std::pair<std::string, std::string>>& remarks() const { return remarks_; }  // origin, sentence

 private:
  std::map<std::string, Fact, std::less<>> facts_;
  std::vector<std::pair<std::string, std::string>> remarks_;
};

// The origin of what is computed from these facts: theirs one after the other, which is how a key of an input is found again in a
// value; a default only where all of them are.
Fact computed(JsonValue value, std::initializer_list<const Fact*> from);
// An integer that is a product or a rounded quotient of numbers in these facts: `value` without its fraction. ConfigError, with
// their origins, beyond 9e15, up to which doubles hold every integer, and for a quotient by zero.
std::int64_t whole_number(double value, std::initializer_list<const Fact*> from);
// Whether `origin` is `part`, or one of several that it is made of.
bool is_part_of(std::string_view part, std::string_view origin);
// Equal content, numbers by value.
bool is_same_value(const JsonValue& a, const JsonValue& b);

// Computes keys from facts that only this system has; each before derive_common, and only where the system is among the inputs.
void derive_hugging_face(Facts& facts);  // with TRL, ms-swift, axolotl, LLaMA-Factory
void derive_deepspeed(Facts& facts);     // with Accelerate
void derive_megatron(Facts& facts);      // the model block from flags
void derive_torchtitan(Facts& facts);
void derive_olmo(Facts& facts);
// Turns every "@" fact of the list above into keys of the option table. Afterwards no "@" fact is left.
void derive_common(Facts& facts);

}  // namespace trident
