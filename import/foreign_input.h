// Reads what other systems' files and commands say: one leaf for each key and flag, with its place.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json_reader.h"
#include "import/foreign/foreign_key.h"

namespace trident {

// One key or flag of an input. A list is one leaf, unless objects are in it; an empty object is one, too.
struct ForeignLeaf {
  ForeignSystem system;
  std::string file;  // as the user named it; "-" is standard input
  int line = 0;      // from 1
  int column = 0;    // from 1
  std::string key;   // with dots where it is nested: "deepspeed_config.zero_stage", "datasets[0].path"; a flag as typed: "--bf16"
  JsonValue value;   // typed as that system's own loader types it; a flag without a value is true, one with a value is a text, with
                     // several a list of texts
  std::string remark = {};     // "" or a sentence: "\"$1\" is an argument of the script", "run.sh:3 --lr=1e-4 replaces it"
  std::string note = {};       // "" or a sentence about the command or the file, whose value is known
  bool is_replaced = false;    // of a key of the file that a command names: a flag of that command gives it, and counts
};

// "zero2.yaml:8".
std::string place_of(const ForeignLeaf& leaf);

// Reads each file ("-": standard input; of the kind `from` that --from names, "" by content) and those that its commands and keys
// name (looked for beside it, then in the working directory), all of them once. The key or flag that names a file is a leaf, too;
// of a file among a program's words it is "config". Throws ConfigError: a file of no known kind or in Python (with what to do),
// malformed text ("file:line:column: why"), a duplicate key, more than 1 MiB, 64 levels or 100,000 values after aliases are
// expanded, shell text that would have to be executed, a named file that is not there, and no or several commands of a training in
// one file.
// Files that keys of `without` name are not read.
std::vector<ForeignLeaf> read_foreign_inputs(const std::vector<std::string>& files, std::string_view from = "",
                                             const std::vector<std::string>& without = {});
// Whether `key` is one of them, however each is written.
bool is_named(std::string_view key, const std::vector<std::string>& names);

}  // namespace trident
