// Commands of a shell script as words, without executing anything.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trident {

struct ShellWord {
  std::string text;  // after quotes, escapes and variables
  int line = 0;      // where it stands in the script, from 1: of a word from a variable, where the variable was given it
  int column = 0;
  std::string unknown = {};  // why a part of it has no value here, with the remedy; `text` has that part as it was typed: "$NAME"
  bool may_be_nothing = false;  // all of it is a variable that no command sets that runs
};

// One simple command: "torchrun ... pretrain_gpt.py --lr 1e-4", variables expanded.
struct ShellCommand {
  std::vector<ShellWord> words;
  std::vector<ShellWord> settings;  // "NAME=value" of those variables that the caller asked for
  std::string doubt;                // why nobody knows whether it runs; "": it does
  std::optional<std::string> folder = {};  // that `cd` went to; "": none; nothing: nobody knows which
  std::size_t files = 0;            // how many changes of files come before it
};

// A file as the script leaves it when it changes it: by `cat <<END > FILE`, or by what is not followed.
struct ShellFile {
  std::string name, text;
  std::string unknown = {};  // why nobody knows what is in it; "": `text` is all of it
};
using ShellFiles = std::vector<ShellFile>;  // one for each change, in their order
// The text of a file that `source` names, by its path; nothing: there is none that import may read.
using ShellSources = std::function<std::optional<std::string>(const std::string& path)>;
// The name by which they have a file: without "." and "..", and without the working directory where it lies below.
std::string shell_file_name(const std::string& path);

// The commands that `text`, which check_foreign_text() accepts, runs in an environment of `variables` ("NAME=value" with their
// lines) and with the arguments that `set --` gives it, in their order. Quotes, continued lines, NAME=value, NAME+=.., NAME=( .. ),
// "${NAME[@]}", ${NAME:-default}, $(( integers )), $(expr integers), `case`, tests of texts and integers, functions, eval, bash -c
// and files that `source` names are followed, and so are loops while their passes are known, and paths: $0, which is `source`,
// $PWD, cd, and $(..) of dirname, basename, realpath, readlink and pwd. Variables of ( .. ), pipelines and `&` stay in there.
// Nothing is executed: other $(..) and loops, tests of files, and what read, printf -v, let and others set leave variables unknown
// and commands in doubt, which each of them says. A variable that is set nowhere is empty in a test, and unknown in a word.
// `settings` are names of variables to pass on where they stand before a command or are exported. `files` gets what is written.
// Where the script gives itself no arguments it has none, or with `has_open_arguments` those that nobody knows.
// Throws ConfigError "<source>:<line>:<column>: <why>": quotes, brackets and blocks that do not close, more than 64 levels, and
// more than 4 MiB once variables are replaced.
std::vector<ShellCommand> read_shell(std::string_view text, std::string_view source,
                                     std::span<const std::string_view> settings = {}, std::span<const ShellWord> variables = {},
                                     ShellFiles* files = nullptr, const ShellSources& sources = {},
                                     bool has_open_arguments = false);

}  // namespace trident
