// Scripts and commands of other systems.
#include <optional>
#include <string>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "import/command_line.h"
#include "import/shell_reader.h"
#include "import/text_limits.h"

namespace trident::fuzz {
namespace {

// The text is quoted so that a shell takes it for the same word.
std::string in_single_quotes(std::string_view word) {
  std::string text(1, '\'');
  for (const char c : word) {
    if (c == '\'') text += "'\\'";
    text += c;
  }
  text += '\'';
  return text;
}

}  // namespace

// A script: its words, quoted, are the same words.
bool shell(std::string_view input) {
  bool accepted = false;
  accepts([&] {
    check_foreign_text(input, "x.sh");
    const Batch batch = batch_of(input, "x.sh");
    const std::vector<ShellCommand> commands = read_shell(input, "x.sh", kCommandSettings, batch.variables);
    accepted = !commands.empty();
    for (const ShellCommand& command : commands) {
      std::string again = "x";
      bool is_shell = false;
      for (const ShellWord& word : command.words) {
        require(word.line > 0 && word.column > 0, "a word in line {}, column {}", word.line, word.column);
        again += ' ';
        again += in_single_quotes(word.text);
        is_shell |= word.text == "-c" || word.text.ends_with("c");
      }
      accepts([&] { leaves_of_command(command, "x.sh", std::nullopt, batch.leaves); });
      if (is_shell) continue;  // its words may be a script
      const std::vector<ShellCommand> read = read_shell(again, "x.sh");
      require(read.size() == 1 && read[0].words.size() == command.words.size() + 1, "other words than {}", again);
      for (std::size_t i = 0; i < command.words.size(); ++i)
        require(read[0].words[i + 1].text == command.words[i].text, "word {} differs", i);
    }
  });
  return accepted;
}

}  // namespace trident::fuzz
