// Completion, in the shells themselves: bash with COMP_WORDS as it sets them, fish through its own `complete -C`, zsh as far as
// loading goes.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <sstream>

#include "app/completion_script.h"
#include "app/subcommands.h"
#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "train/config/option_table.h"

namespace trident {
namespace {

std::string script_of(const std::string& shell) {
  std::ostringstream out, err;
  EXPECT_EQ(run_command_line({"completion", shell}, {out, err}), 0) << err.str();
  return out.str();
}

struct ShellOutcome {
  int exit_code = -1;
  std::vector<std::string> lines;
  // A line that is `word`, or begins with it before a tab (fish writes descriptions there).
  bool has(const std::string& word) const {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string& line) { return line.substr(0, line.find('\t')) == word; });
  }
};

ShellOutcome shell(const std::string& command) {
  ShellOutcome outcome;
  std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::string text;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) text.append(buffer.data(), n);
  const int status = ::pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) outcome.lines.push_back(line);
  return outcome;
}

bool installed(const std::string& program) { return shell("command -v " + program).exit_code == 0; }

class Completion : public ::testing::Test {
 protected:
  // Returns the words that bash offers for the last of these.
  ShellOutcome bash(const std::vector<std::string>& words) {
    write_file(folder_ / "script.bash", script_of("bash"));
    std::string line = ". ./script.bash; COMP_WORDS=(";
    for (const std::string& word : words) line += "'" + word + "' ";
    line += "); COMP_CWORD=" + std::to_string(words.size() - 1) + "; _trident; printf \"%s\\n\" \"${COMPREPLY[@]}\"";
    write_file(folder_ / "run.bash", line);
    return shell("cd " + folder_.path() + " && bash --norc -u run.bash");
  }
  std::string save(const std::string& name, const std::string& text) {
    write_file(folder_ / name, text);
    return folder_ / name;
  }
  TemporaryFolder folder_;
};

TEST_F(Completion, BashSubcommandsAndFlags) {
  EXPECT_EQ(bash({"trident", "tr"}).lines, std::vector<std::string>{"train"});
  const ShellOutcome all = bash({"trident", ""});
  EXPECT_TRUE(all.has("data") && all.has("completion") && all.has("help") && all.has("--version"));
  EXPECT_TRUE(all.has("plan"));
  EXPECT_TRUE(all.has("study"));
  EXPECT_TRUE(bash({"trident", "tokenizer", "en"}).has("encode"));
  EXPECT_TRUE(all.has("docs"));
  EXPECT_TRUE(bash({"trident", "docs", "time"}).has("timeline"));
  EXPECT_EQ(bash({"trident", "plan", "s"}).lines, std::vector<std::string>{"search"});
  EXPECT_EQ(bash({"trident", "plan", "search", "--be"}).lines, std::vector<std::string>{"--best"});
  EXPECT_EQ(bash({"trident", "train", "--pr"}).lines, std::vector<std::string>{"--print-config"});
  const ShellOutcome flags = bash({"trident", "train", "--"});
  EXPECT_TRUE(flags.has("--config") && flags.has("--set") && flags.has("--help"));
  EXPECT_FALSE(flags.has("--append-eod"));
  EXPECT_TRUE(bash({"trident", "data", "prepare", "--app"}).has("--append-eod"));
  EXPECT_TRUE(bash({"trident", "data", "p"}).has("prepare"));
  EXPECT_TRUE(bash({"trident", "completion", "f"}).has("fish"));
}

TEST_F(Completion, BashKeysAndTheirValues) {
  EXPECT_EQ(bash({"trident", "train", "--set", "parallel.zer"}).lines, std::vector<std::string>{"parallel.zero="});
  const ShellOutcome keys = bash({"trident", "train", "--set", ""});
  for (const Option& option : option_table())
    EXPECT_EQ(keys.has(std::string(option.path) + "="), option.path != "$schema") << option.path;
  const std::vector<std::string> zero{"zero1", "zero2", "zero3"};
  EXPECT_EQ(bash({"trident", "train", "--set", "parallel.zero", "=", "zero"}).lines, zero);
  EXPECT_TRUE(bash({"trident", "train", "--set", "parallel.zero", "="}).has("ddp"));
  EXPECT_EQ(bash({"trident", "train", "--set", "=", "parallel.sch"}).lines,
            std::vector<std::string>{"parallel.schedule="});  // --set=
  EXPECT_TRUE(bash({"trident", "train", "--set", "run.pin", "=", "t"}).has("true"));
  EXPECT_EQ(bash({"trident", "train", "--print-config", "=", ""}).lines, (std::vector<std::string>{"json", "origins"}));
  EXPECT_TRUE(bash({"trident", "help", "lr_sch"}).has("lr_schedule"));
  EXPECT_TRUE(bash({"trident", "help", "lr_sch"}).has("lr_schedule.type"));
}

TEST_F(Completion, BashFiles) {
  save("one.json", "{}");
  save("two.jsonc", "{}");
  save("note.txt", "");
  const ShellOutcome configs = bash({"trident", "train", "--config", ""});
  EXPECT_TRUE(configs.has("one.json") && configs.has("two.jsonc"));
  EXPECT_FALSE(configs.has("note.txt"));
  EXPECT_TRUE(bash({"trident", "train", "-c", "on"}).has("one.json"));
  EXPECT_TRUE(bash({"trident", "train", "--config", "=", "on"}).has("one.json"));
  EXPECT_TRUE(bash({"trident", "data", "prepare", "--input", "no"}).has("note.txt"));
}

TEST_F(Completion, BashIsCleanToShellcheck) {
  if (!installed("shellcheck")) GTEST_SKIP() << "shellcheck is not installed";
  const ShellOutcome checked = shell("shellcheck --shell=bash --severity=warning " + save("s.bash", script_of("bash")));
  EXPECT_EQ(checked.exit_code, 0) << (checked.lines.empty() ? "" : checked.lines.front());
}

TEST_F(Completion, FishCompletesKeys) {
  if (!installed("fish")) GTEST_SKIP() << "fish is not installed";
  const std::string script = save("trident.fish", script_of("fish"));
  const auto offered = [&](const std::string& line) {
    return shell("HOME=" + folder_.path() + " fish --no-config -c 'source " + script + "; complete -C \"" + line + "\"'");
  };
  EXPECT_TRUE(offered("trident train --set parallel.zero=zero").has("parallel.zero=zero3"));
  EXPECT_EQ(offered("trident comp").lines.size(), 1u);
  const ShellOutcome flags = offered("trident train --conf");
  ASSERT_EQ(flags.lines.size(), 1u);
  EXPECT_EQ(flags.lines.front().rfind("--config\t", 0), 0u) << flags.lines.front();
}

TEST_F(Completion, ZshLoads) {
  if (!installed("zsh")) GTEST_SKIP() << "zsh is not installed";
  const std::string script = save("_trident", script_of("zsh"));
  EXPECT_EQ(shell("zsh -n " + script).exit_code, 0);
  EXPECT_NE(script_of("zsh").find("':action:(prepare inspect merge)'"), std::string::npos) << "no flags behind an action";
  const ShellOutcome loaded = shell("cd " + folder_.path() + " && HOME=$PWD zsh -f -c "
                                  "'autoload -U compinit && compinit -u -d ./dump && . ./_trident && echo ${_comps[trident]}'");
  EXPECT_EQ(loaded.lines, std::vector<std::string>{"_trident"});
}

TEST(CompletionCommand, RefusesOtherShells) {
  for (const Arguments& arguments :
       {Arguments{"completion"}, Arguments{"completion", "tcsh"}, Arguments{"completion", "bash", "more"}}) {
    std::ostringstream out, err;
    EXPECT_EQ(run_command_line(arguments, {out, err}), 64);
    EXPECT_NE(err.str().find("choose bash, zsh or fish"), std::string::npos) << err.str();
  }
}

TEST(CompletionFlags, AreReadFromHelpPages) {
  const std::vector<CompletionFlag> flags = flags_of_help(
      "Usage: x\n  -c,--config TEXT REQUIRED   a file\n  --set TEXT   a key\n               of many\n  --quick     no value\n"
      "  --print-config[=TEXT]   text\n  trident train --x\n");
  ASSERT_EQ(flags.size(), 4u);
  EXPECT_EQ(flags[0].short_name, "-c");
  EXPECT_EQ(flags[0].name, "--config");
  EXPECT_EQ(flags[0].description, "a file");
  EXPECT_EQ(flags[0].value, CompletionFlag::Value::kConfigFile);
  EXPECT_EQ(flags[1].value, CompletionFlag::Value::kSetting);
  EXPECT_EQ(flags[1].description, "a key of many");
  EXPECT_EQ(flags[2].value, CompletionFlag::Value::kNone);
  EXPECT_EQ(flags[3].name, "--print-config");
}

}  // namespace
}  // namespace trident
