// Keys and flags of other systems, and what each becomes here. Pure data: one table a system, read by trident import, by the
// answers to words that people type (flags, --set, configuration files) and by docs/coming_from.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trident {

enum class ForeignSystem : std::uint8_t {
  kAccelerate,    // YAML of accelerate config, flags of accelerate launch
  kDeepSpeed,     // JSON
  kHuggingFace,   // TrainingArguments, TRL and PEFT: command lines and YAML
  kSwift,         // ms-swift's arguments, beyond kHuggingFace
  kAxolotl,       // YAML, beyond kHuggingFace
  kLlamaFactory,  // YAML, beyond kHuggingFace
  kMegatron,      // flags
  kTorchtitan,    // TOML (<= 0.2.2), JSON of a later Config
  kOlmo,          // YAML (ai2-olmo <= 0.6)
  kLauncher,      // torchrun, deepspeed, mpirun, srun: flags before the program's name
  kOthers         // words that no file of a system has but that people type: nanoGPT, Lightning, nanotron
};

inline constexpr std::size_t kForeignSystems = static_cast<std::size_t>(ForeignSystem::kOthers) + 1;

// Every key of an input ends in exactly one of them.
enum class Verdict : std::uint8_t {
  kMapped,    // becomes a key of the option table, or a fact that such keys are computed from
  kAlways,    // always so here, or needless
  kDiffers,   // something like it is here; the note says what differs
  kNotBuilt,  // stands for a reserved key or value of the option table
  kRefused,   // there is no such thing here
  kLauncher   // what starts the ranks decides it
};

// How the value of a foreign key becomes that of ours.
enum class Convert : std::uint8_t {
  kSame,
  kElementsToMb,  // of gradients, 4 bytes each, in units of 10^6 bytes
  kList,          // "a,b" or "a b" is ["a", "b"]
  kWords,         // each word has a row that names it as a value
  // As kSame, but what another key says outright counts in its place; or also what another one implies.
  kUnlessSaid,
  kUnlessImplied
};

// A row that names values answers those alone and goes before those of the same name without values. Several rows of one name and
// value count together, the first of them for the verdict. A name that ends in * is any that begins so, and comes last. Nested keys
// have dots: "zero_optimization.stage". Flags have neither hyphens before them nor within: "micro_batch_size".
struct ForeignKey {
  std::string_view names;  // "a, b" or "a, b = V, W"
  Verdict verdict;
  // kMapped, kDiffers, kNotBuilt: a path of the option table; "model." and a key of config.json; or such a key and a fact behind
  // it, "run.steps@train_samples", from which import/derive*.cpp computes the key, among others. kAlways: "@name" of a fact
  // that has no key. kAlways, kRefused, kDiffers: a command to use instead ("trident ..."), or nothing.
  std::string_view to = {};
  std::string_view value = {};  // JSON text to give `to`; empty: the user's value, converted
  std::string_view note = {};   // one sentence without its full stop: why, or what differs
  std::string_view fallback = {};  // JSON text of the system's own default, in its words; empty: it has none, or none counts here
  Convert convert = Convert::kSame;
};

// "run.steps" and "@train_samples" of "run.steps@train_samples"; of a key alone both are the key.
inline std::string_view key_of(std::string_view to) { return to.substr(0, to.find('@')); }
inline std::string_view fact_of(std::string_view to) { return to.find('@') == to.npos ? to : to.substr(to.find('@')); }

// A part of a system's table, with a heading in docs/coming_from.md.
struct ForeignSection {
  ForeignSystem system;
  std::string_view title;  // "Parallelism"
  std::span<const ForeignKey> keys;
};

// All tables, in the order of docs/coming_from.md.
std::span<const ForeignSection> foreign_sections();

// "DeepSpeed"; and the words that defaults of the system are marked with: "TrainingArguments' default".
std::string_view name_of(ForeignSystem system);
std::string_view default_origin(ForeignSystem system);
// JSON of the defaults that it has for keys of the table it builds on.
std::string_view defaults_of(ForeignSystem system);
// "mapped", "always so here", ...: as reports and documents say it.
std::string_view name_of(Verdict verdict);
// The system whose keys this one takes beside its own; nothing: none.
std::optional<ForeignSystem> base_of(ForeignSystem system);

// The names and the values of a row, taken apart.
struct ForeignNames {
  std::vector<std::string_view> names;
  std::vector<std::string_view> values;  // empty: any
};
ForeignNames names_of(const ForeignKey& row);
// Whether one of `values` is this one: the case of letters does not count, and numbers are equal by value.
bool is_among_values(std::string_view value, const std::vector<std::string_view>& values);

// "micro_batch_size" of "--micro-batch-size": hyphens before a name are none of it, and those within are underscores. "datasets" of
// "datasets[0].path": what a list has is of the list's key.
std::string plain_foreign_name(std::string_view name);
// "fsdp_offload_params" of Accelerate's "fsdp_config.offload_params": a name without a row of its own may stand for one that begins
// otherwise. "": for none.
std::string other_foreign_name(ForeignSystem system, std::string_view plain);

// Rows by plain_foreign_name().
class ForeignTables {
 public:
  // `sections` outlive it.
  explicit ForeignTables(std::span<const ForeignSection> sections);

  // The rows of a key of this system with this value (as text: "true", "zero3", "1e-5", "null"; is_among_values). Systems that
  // build on another (base_of) ask that one next. None: not a key of it.
  std::vector<const ForeignKey*> find_all(ForeignSystem system, std::string_view name, std::string_view value) const;
  // The first of them; nullptr: none.
  const ForeignKey* find(ForeignSystem system, std::string_view name, std::string_view value) const;
  // The row that says which key of ours this one is of, whatever its value: of any value, or else the first; nullptr: none says it.
  const ForeignKey* find_key(ForeignSystem system, std::string_view name) const;
  // "a, b": the values that the rows of a key name.
  std::string values_of(ForeignSystem system, std::string_view name) const;
  // The known name of the system that is nearest to a misspelt one; empty: none is near.
  std::string nearest(ForeignSystem system, std::string_view name) const;

  std::span<const ForeignSection> sections() const { return sections_; }

 private:
  struct Row {
    const ForeignKey* key;
    std::vector<std::string_view> values;
    bool answers(std::string_view value) const { return values.empty() || is_among_values(value, values); }
  };
  struct OfSystem {
    std::map<std::string, std::vector<Row>, std::less<>> exact;  // those that name values first
    std::vector<std::pair<std::string, Row>> prefixes;           // names that end in *, without it; the longest first
  };
  const OfSystem& of(ForeignSystem system) const { return systems_[static_cast<std::size_t>(system)]; }
  // The rows of this system's own table, by one of their names.
  std::span<const Row> rows_of(ForeignSystem system, std::string_view plain) const;

  std::span<const ForeignSection> sections_;
  std::array<OfSystem, kForeignSystems> systems_;
};

// Holds the rows of foreign_sections(); built when it is first asked.
const ForeignTables& foreign_tables();
inline const ForeignKey* find_foreign_key(ForeignSystem system, std::string_view name, std::string_view value) {
  return foreign_tables().find(system, name, value);
}

}  // namespace trident
