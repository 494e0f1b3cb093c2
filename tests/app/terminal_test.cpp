// A run on a terminal, which this test is the other end of.
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <regex>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

struct Shown {
  int exit_code = -1;
  std::string text;  // every byte

  // Returns all that stood in a row at any time, without colours.
  std::vector<std::string> rows() const {
    std::vector<std::string> rows;
    std::istringstream lines(std::regex_replace(text, std::regex("\x1b\\[[0-9;]*m"), ""));
    for (std::string line; std::getline(lines, line);) {
      while (line.ends_with('\r')) line.pop_back();
      const std::string taken_away = "\r\x1b[K";
      for (std::size_t at; (at = line.find(taken_away)) != line.npos; line = line.substr(at + taken_away.size()))
        if (at > 0) rows.push_back(line.substr(0, at));
      rows.push_back(line);
    }
    return rows;
  }
};

using Variables = std::vector<std::pair<std::string, std::string>>;

Shown on_terminal(int columns, std::vector<std::string> words, const Variables& variables = {}) {
  winsize size{};
  size.ws_row = 24, size.ws_col = static_cast<unsigned short>(columns);
  if (words.front() != "bash") words.insert(words.begin(), TRIDENT_BINARY);
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  int terminal = -1;
  const pid_t process = ::forkpty(&terminal, nullptr, nullptr, &size);
  if (process == 0) {
    ::setenv("TERM", "xterm", 1);
    ::unsetenv("NO_COLOR");
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  Shown shown;
  std::array<char, 4096> bytes{};
  for (ssize_t n; (n = ::read(terminal, bytes.data(), bytes.size())) > 0;)
    shown.text.append(bytes.data(), static_cast<std::size_t>(n));
  int status = 0;
  ::waitpid(process, &status, 0);
  ::close(terminal);
  if (WIFEXITED(status)) shown.exit_code = WEXITSTATUS(status);
  return shown;
}

// The rows that go on under a label are one line again.
std::string joined(const std::vector<std::string>& rows, const std::string& label) {
  std::string line;
  for (const std::string& row : rows) {
    if (line.empty() && row.starts_with(label)) line = row;
    else if (!line.empty() && row.starts_with("        ")) line += ' ' + row.substr(8);
    else if (!line.empty()) break;
  }
  return line;
}

const std::vector<std::string> kSettings{"run.steps=4", "log.every=2", "eval.every=2", "eval.steps=3", "parallel.data=2",
                                         "parallel.zero=zero2", "lr_schedule.decay_steps=2", "lr_schedule.min_lr=1e-5",
                                         "checkpoint.every=end"};

TEST(Terminal, ARunFoldsItsLinesAndItsBarSaysWhereItIs) {
  const Workplace place;
  std::vector<std::string> models;
  for (const int columns : {80, 140}) {
    SCOPED_TRACE(columns);
    const std::string run = fmt::format("a run of {}", columns);
    std::vector<std::string> words{"train", "--config", place / "config.json"};
    for (const std::string& setting : plus({"run.dir=" + (place / run), "data.valid=" + (place / "valid")}, kSettings))
      words.insert(words.end(), {"--set", setting});
    const Shown shown = on_terminal(columns, words);
    ASSERT_EQ(shown.exit_code, 0) << shown.text;
    const std::vector<std::string> rows = shown.rows();
    for (const std::string& row : rows)
      EXPECT_TRUE(static_cast<int>(row.size()) <= columns || row.find(' ', 8) == row.npos || row.starts_with("next:   trident "))
          << row.size() << ": " << row;
    // A training step is one row, whose last numbers a narrow terminal leaves out; an evaluation keeps all of its numbers.
    for (std::size_t i = 0; i + 1 < rows.size(); ++i)
      EXPECT_FALSE(rows[i].find("  loss ") != rows[i].npos && rows[i + 1].starts_with("  ")) << rows[i] << '\n' << rows[i + 1];
    std::string labels;
    for (const std::string& row : rows)
      if (row.size() > 8 && row.find(": ") < 7 && row[7] == ' ' && row[8] != ' ') labels += row.substr(0, row.find(':')) + ' ';
    EXPECT_EQ(labels, "model layout device memory data eval result files next ");
    models.push_back(joined(rows, "model: "));
    for (const char* said : {"step 0/4  evaluating 1/3", "step 0/4  evaluating 3/3", "step 0/4  first step", "] step 3/4  loss ",
                             " tok/s  ETA 0:0", "[===============>              ] step 2/4  evaluating 2/3  ETA "})
      EXPECT_NE(shown.text.find(said), std::string::npos) << said << '\n' << shown.text;
    EXPECT_NE(shown.text.find("\x1b[1;33mwarning\x1b[0m: lr_schedule.decay_steps = 2"), std::string::npos) << shown.text;
    // Some lines nobody may miss, others are only for those who ask.
    EXPECT_NE(shown.text.find("zero2 with 4 micro-batches: "), std::string::npos) << shown.text;
    EXPECT_EQ(shown.text.find("memory of rank 0"), std::string::npos) << shown.text;
    const std::string log = read_file(place / run + "/run.log");
    for (const char* said :
         {" memory of rank 0: ", " warning: lr_schedule.decay_steps = 2", "step 4/4  loss ", "100 % done", " next:   "})
      EXPECT_NE(log.find(said), std::string::npos) << said << '\n' << log;
    EXPECT_EQ(joined(rows, "next: "), fmt::format("next:   trident generate --ckpt '{}' --prompt 'And Sarah was an'", place / run));
  }
  EXPECT_EQ(models.front(), models.back()) << "the same words at any width";
}

TEST(Terminal, PlansFoldTheirWordsAndLeaveTablesAndCommandsWhole) {
  const Workplace place;
  std::vector<std::string> words{"plan", "search", "a10_pcie", "--config", place / "config.json", "--gpus", "2", "--best", "1"};
  const Shown narrow = on_terminal(60, words), wide = on_terminal(1000, words);
  ASSERT_EQ(narrow.exit_code, 0) << narrow.text;
  int folded = 0;
  for (const std::string& row : narrow.rows()) {
    const std::size_t begin = std::min(row.find_first_not_of(' '), row.size());
    folded += begin == 6;
    EXPECT_TRUE(row.size() <= 60 || row.find("  ", begin) != row.npos || row.find("--set ") != row.npos) << row;
  }
  EXPECT_GT(folded, 2) << "memory by part alone is longer";
  const std::size_t command = wide.text.find("    to train it: --set ");
  ASSERT_NE(command, wide.text.npos) << wide.text;
  expect_parts(narrow.text, {wide.text.substr(command, wide.text.find('\n', command) - command)});
}

TEST(Terminal, AnswersOfOtherCommandsFoldBetweenWords) {
  const Workplace place;
  ASSERT_EQ(place.train({"checkpoint.every=end"}).exit_code, 0);
  write_file(place / "a.jsonl", R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]})"
                                "\n");
  const std::vector<std::vector<std::string>> all{
      {"data", "prepare", "--chat", "--template", "chatml", "--input", "a.jsonl", "--tokenizer", "bytes", "--output", "chats"},
      {"data", "inspect", "chats", "--tokenizer", "bytes"},
      {"eval", "--ckpt", "run", "--data", "valid"},
      {"convert", "--from", "ckpt", "run", "--to", "hf", "hf"}};
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(place / "");
  for (const std::vector<std::string>& words : all) {
    const Shown shown = on_terminal(50, words);
    EXPECT_EQ(shown.exit_code, 0) << shown.text;
    for (const std::string& row : shown.rows())
      EXPECT_TRUE(row.size() <= 50 || row.find(' ', row.find_first_not_of(' ')) == row.npos) << row;
    const bool warns = shown.text.find("\x1b[1;33mwarning\x1b[0m: the built-in template") != std::string::npos;
    EXPECT_EQ(warns, words[1] == "prepare") << shown.text;
  }
  std::filesystem::current_path(here);
}

TEST(Terminal, ErrorsAreRedUnlessSomebodyWantsNoColours) {
  const std::vector<std::string> wrong{"train", "--config", "/none/of/these/folders/is/there/c.json"};
  const auto with = [&wrong](const std::vector<std::string>& more) { return plus(more, wrong); };
  const std::string red = "\x1b[1;31mtrident\x1b[0m: ";
  EXPECT_NE(on_terminal(80, wrong).text.find(red), std::string::npos) << on_terminal(80, wrong).text;
  EXPECT_NE(on_terminal(80, wrong, {{"NO_COLOR", ""}}).text.find(red), std::string::npos) << "empty is not set";
  EXPECT_NE(on_terminal(80, with({"--color=always"}), {{"NO_COLOR", "1"}}).text.find(red), std::string::npos);
  for (const Shown& plain : {on_terminal(80, wrong, {{"NO_COLOR", "1"}}), on_terminal(80, wrong, {{"TERM", "dumb"}}),
                             on_terminal(80, with({"--color", "never"}))}) {
    EXPECT_EQ(plain.exit_code, 64);
    EXPECT_EQ(plain.text.find("\x1b["), plain.text.find("\x1b[K")) << plain.text;
    EXPECT_NE(plain.text.find("trident: "), std::string::npos) << plain.text;
  }
  EXPECT_EQ(run_program(wrong).err.find('\x1b'), std::string::npos);
  EXPECT_EQ(run_program(with({"--color=always"})).err.find(red), 0u);
  expect_one_line(run_program(with({"--color=blue"})), 64, {"--color: \"blue\" is none of its words; say auto, always or never"});
}

// Standard output is a file, so that what comes on the terminal is standard error.
TEST(Terminal, LongCommandsSayOnStandardErrorHowFarTheyAre) {
  const Workplace place;
  write_file(place / "a", "One two three.\n");
  ASSERT_EQ(place.train({"checkpoint.every=end"}).exit_code, 0);
  const std::string config = place / "config.json", cluster = "h100_sxm_ndr";
  struct Case {
    std::vector<std::string> words;
    std::string shown, printed;
  };
  const std::vector<Case> cases{
      {{"eval", "--ckpt", place / "run", "--data", place / "valid", "--json"}, "eval  0/", "{\"model\":"},
      {{"convert", "--from", "ckpt", place / "run", "--to", "hf", place / "hf"}, "convert  ", "/hf: "},
      {{"data", "prepare", "--input", place / "a", "--tokenizer", "gpt2", "--output", place / "again"}, "data prepare  ", ".idx: "},
      {{"study", "--config", config, "--cluster", cluster, "--vary", "gpus=2..4"}, "study  0/2 points  0%  ETA -:--", " MFU"},
      {{"plan", "search", "--config", config, "--cluster", cluster, "--gpus", "4", "--json"}, "plan search  0/", "{\"model\":"}};
  for (const Case& it : cases) {
    SCOPED_TRACE(it.words.front());
    std::string command = "exec '" TRIDENT_BINARY "'";
    for (const std::string& word : it.words) command += " '" + word + "'";
    const std::string file = place / "printed";
    const auto printed = [&](const Variables& variables) {
      for (const char* made : {"hf", "again.bin", "again.idx", "again.trident.json"}) std::filesystem::remove_all(place / made);
      const Shown shown = on_terminal(80, {"bash", "-c", command + " > '" + file + "'"}, variables);
      EXPECT_EQ(shown.exit_code, 0) << shown.text;
      return shown.text;
    };
    const std::string drawn = printed({});
    EXPECT_NE(drawn.find("\r\x1b[K" + it.shown), std::string::npos) << drawn;
    EXPECT_TRUE(drawn.ends_with("\r\x1b[K")) << drawn;
    const std::string out = read_file(file);
    EXPECT_NE(out.find(it.printed), std::string::npos) << out;
    EXPECT_EQ(out.find('\x1b'), std::string::npos) << out;
    EXPECT_EQ(out.find("ETA"), std::string::npos) << out;
    EXPECT_EQ(printed({{"TERM", "dumb"}}).find(it.shown), std::string::npos) << "it cannot take back what it shows";
  }
}

}  // namespace
}  // namespace trident
