// The real program, run as a user runs it, in a folder with real text.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "core/json_reader.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"

namespace trident {

struct ProgramOutcome {
  int exit_code = -1;
  std::string out, err;
};

// Runs trident with these arguments. `environment`: "NAME=value ..." before the command. A program that hangs ends with code 124.
ProgramOutcome run_program(const std::vector<std::string>& arguments, const std::string& environment = "");
// The same for any command.
ProgramOutcome run_command(const std::vector<std::string>& words, const std::string& environment = "");

// The outcome, whose exit code ought to be 0. What fails names the caller's line.
ProgramOutcome succeeded(ProgramOutcome outcome, std::source_location where = std::source_location::current());

// A folder with config.json (a tiny Llama with GPT-2's vocabulary) and the token files text and valid, prepared from the excerpt.
class Workplace {
 public:
  Workplace();

  std::string operator/(const std::string& name) const { return folder_ / name; }
  // trident train with the configuration and these --set arguments; run.dir is <folder>/run.
  ProgramOutcome train(const std::vector<std::string>& settings, const std::string& environment = "",
                       const std::string& config = "config.json") const;
  // Every path below the folder.
  std::vector<std::string> files() const;
  // The objects of a metrics.jsonl.
  std::vector<JsonValue> metrics(const std::string& run = "run") const { return records(run + "/metrics.jsonl"); }
  // One value per line of a file of this place.
  std::vector<JsonValue> records(const std::string& file) const;

 private:
  TemporaryFolder folder_;
};

// One line "trident: ..." on standard error, or one for each fault, with every one of `parts`, nothing on standard output, and this
// exit code.
void expect_one_line(const ProgramOutcome& outcome, int exit_code, const std::vector<std::string>& parts);

}  // namespace trident
