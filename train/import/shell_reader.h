// Commands of a shell script as words, without executing anything.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace trident {

struct ShellWord {
  std::string text;  // after quotes, escapes and variables
  int line = 0;      // where it stands in the script, from 1: of a word from a variable, where the variable was given it
  int column = 0;
};

// One simple command: "torchrun ... pretrain_gpt.py --lr 1e-4", variables expanded. Assignments before it are not its words.
using ShellCommand = std::vector<ShellWord>;

// All commands of `text` but those that say nothing of a training: comments, `set`, `export`, `cd`, `mkdir`, `echo` and the like.
// Quotes, continued lines, NAME=value, ${NAME}, ${NAME:-default}, NAME=( .. ), "${NAME[@]}", NAME+=( .. ), $(( integers )) and
// positional parameters with defaults are followed. Throws ConfigError "<source>:<line>:<column>: <why>": $(..) and backquotes that a
// training command needs, loops, conditions around such a command, unknown variables (naming `NAME=... trident import` as remedy).
std::vector<ShellCommand> read_shell(std::string_view text, std::string_view source);

}  // namespace trident
