// From what other systems' files say to a configuration of ours: each key has one verdict, each value one origin.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "train/config/option_values.h"
#include "import/foreign/foreign_key.h"
#include "import/foreign_input.h"

namespace trident {

// It says what became of one leaf.
struct ImportedKey {
  ForeignLeaf leaf;
  Verdict verdict;
  std::string to;    // "parallel.zero = \"zero2\""; "" where the verdict has none
  std::string note;  // "" or one sentence
  std::size_t general = 0;  // its first bytes, which hold for every such key
};

// One key of the configuration that comes out.
struct ImportedValue {
  std::string path;  // of the option table, or "model." and a key of config.json
  JsonValue value;
  std::string origin;       // "zero2.yaml:8 zero_stage: 2", "TrainingArguments' default"
  bool is_default = false;  // no input said so: a base that gives the key wins
  std::string unknown = {};  // why the value is not known: "\"$1\" is an argument of the script"; "": it is
  std::string not_built = {};  // the option table's refusal of what is reserved; "": it is built
};

struct Import {
  std::vector<ImportedValue> values;  // in the option table's order, model keys behind the model block's
  std::vector<ImportedKey> keys;      // in the order of the inputs
  std::vector<ImportedValue> defaults;  // those of `values` that no input gave: the other system's, or what follows from such
  std::optional<std::int64_t> ranks;  // processes in all, where the inputs say so
  bool is_one_process = false;        // as ImportRules::assumes_one_process
  std::string prepared = {};  // what data.train is, once the commands in the notes have prepared the data; "": there are none
  std::vector<std::string> faults = {};  // with `keeps_faults`: what is unknown or refused, whose keys have the verdict kRefused
};

struct ImportRules {
  std::string from;                   // --from
  std::optional<std::int64_t> ranks;  // --ranks
  // The configuration that the inputs change: what follows from several keys takes those that no input says from it.
  const OptionValues* base = nullptr;
  // "path=value" of --set: over the base, and in the place of what only the user of a script knows.
  std::vector<std::string> settings = {};
  std::vector<std::string> without = {};  // names of keys and flags of --without, which count for nothing
  bool assumes_one_process = false;  // where neither the inputs nor the base say how many, nor what divides them
  bool keeps_faults = false;  // for a report of all keys, although some of them end the import
};

// Throws ConfigError: what read_foreign_inputs does; an unknown key, with the nearest name; two keys that disagree, with both
// places and values; a refused key; batch sizes that do not divide. Reserved keys are among `values` with what they ask for.
Import import_files(const std::vector<std::string>& files, const ImportRules& rules = {});

// The same of leaves that were read already, by the rows of `tables`.
Import import_leaves(const std::vector<ForeignLeaf>& leaves, const ImportRules& rules = {},
                     const ForeignTables& tables = foreign_tables());

// The configuration as JSON text without what is unknown; each value has its origin behind it as a comment.
std::string config_text(const Import& import);
// One object: `config`, `keys` (objects {file, line, key, value, verdict, to, note}) and `defaults` ({key, value, origin}).
JsonValue report_of(const Import& import);

}  // namespace trident
