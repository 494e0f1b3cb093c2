// Damaged, short and foreign token files, through the real program.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <thread>

#include "core/file_io.h"
#include "core/shell_word.h"
#include "data/indexed_dataset.h"
#include "data/sample_order.h"
#include "tests/app/program.h"
#include "tests/data/token_files.h"

extern char** environ;

namespace trident {
namespace {

class BadData : public ::testing::Test {
 protected:
  void refuse(const std::vector<std::string>& settings, const std::vector<std::string>& parts) {
    const std::vector<std::string> before = place_.files();
    expect_one_line(place_.train(settings), 65, parts);
    EXPECT_EQ(place_.files(), before);
  }
  // The training data under another name, to be damaged.
  std::string copy(const std::string& name) {
    for (const char* suffix : {".bin", ".idx"})
      std::filesystem::copy_file(place_ / ("text" + std::string(suffix)), place_ / (name + suffix));
    return place_ / name;
  }
  static void shorten(const std::string& file, std::int64_t bytes) {
    std::filesystem::resize_file(file, std::filesystem::file_size(file) - static_cast<std::uintmax_t>(bytes));
  }

  Workplace place_;
};

TEST_F(BadData, MissingFilesAreNamed) {
  refuse({"data.train=" + (place_ / "none")}, {"none.idx", "no such file", "trident data prepare --output", "data.train"});
  std::filesystem::remove(copy("half") + ".bin");
  refuse({"data.train=" + (place_ / "half")}, {"half.bin", "no such file"});
  refuse({"data.valid=" + (place_ / "none"), "eval.every=1"}, {"none.idx", "no such file"});
}

TEST_F(BadData, ATextInThePlaceOfTokensGetsTheLineThatPreparesIt) {
  const auto prepare = [&](const std::string& name, const std::string& more, const std::string& output) {
    return fmt::format(
        "trident data prepare --input {} {}--append-eod --tokenizer gpt2 --output {}, and give ",
        for_shell(place_ / name), more, for_shell(place_ / output));
  };
  write_file(place_ / "my text.txt", "hello\n");
  refuse({"data.train=" + (place_ / "my text.txt")},
         {"is text: make token files of it: ", prepare("my text.txt", "--separator-line '' ", "my text")});
  refuse({"data.train=" + (place_ / "a.jsonl.gz")}, {prepare("a.jsonl.gz", "", "a")});
  refuse({"data.train=" + (place_ / "a.jsonl.gz"), "data.tokenizer=null"}, {" (or the model's folder for gpt2), and give "});
  write_file(place_ / "chats.jsonl", R"({"messages": [{"role": "user", "content": "a"}]})" "\n");
  const std::string chats = for_shell(place_ / "chats"), input = "chats.jsonl has conversations: make token files of them: ";
  refuse({"data.train=" + (place_ / "chats.jsonl"), "data.samples=packed", "batch.sequence=64"},
         {input, fmt::format("trident data prepare --chat --input {0}.jsonl --tokenizer gpt2 --output {0}, pack them: trident data "
                             "pack {0} --sequence 64 --output {0}-packed, and give {1}-packed",
                             chats, place_ / "chats")});
  write_file(place_ / "pairs.jsonl", R"({"prompt": "a", "chosen": "b", "rejected": "c"})" "\n");
  refuse({"data.train=" + (place_ / "pairs.jsonl"), "data.tokenizer=null"},
         {"has pairs of answers", "trident data prepare --preference --input ", " --tokenizer DIR --output "});
  for (const char* table : {"a.parquet", "a.arrow", "a.csv"})
    refuse({"data.train=" + (place_ / table)},
           {std::string(table) + " is a table: write its texts as JSON lines", prepare("a.jsonl", "", "a")});
  refuse({"data.train=" + (place_ / "text.bin")}, {"text.bin.idx: no such file; give the prefix alone: " + (place_ / "text")});
  refuse({"data.train=" + (place_ / "")}, {"is a folder; give the prefix of files in it, such as ", "/text"});
  refuse({"data.train=no-such-owner/set"}, {"hf download --repo-type dataset no-such-owner/set --local-dir DIR"});
}

TEST_F(BadData, ATruncatedIndexIsNamed) {
  const std::string prefix = copy("cut");
  shorten(prefix + ".idx", 3);
  refuse({"data.train=" + prefix}, {"cut.idx", "truncated or damaged", "prepare the data again"});
  std::filesystem::resize_file(prefix + ".idx", 20);
  refuse({"data.train=" + prefix}, {"cut.idx", "truncated: 20 bytes"});
  std::filesystem::resize_file(prefix + ".idx", 0);
  refuse({"data.train=" + prefix}, {"cut.idx", "truncated: 0 bytes"});
  write_file(prefix + ".idx", std::string(200, 'x'));
  refuse({"data.train=" + prefix}, {"cut.idx", "not an index of Megatron's format"});
}

TEST_F(BadData, AShortBinIsNamed) {
  const std::string prefix = copy("short");
  shorten(prefix + ".bin", 100);
  refuse({"data.train=" + prefix}, {"short.bin", "too short", "prepare the data again"});
  std::filesystem::resize_file(prefix + ".bin", 0);
  refuse({"data.train=" + prefix}, {"short.bin", "too short: 0 bytes"});
}

TEST_F(BadData, LessThanOneSampleIsRefused) {
  write_dataset(place_ / "tiny", {{1, 2, 3, 4, 5}}, 50257);
  write_dataset(place_ / "empty", {{}}, 50257);
  refuse({"data.train=" + (place_ / "tiny")},
         {"tiny", "5 tokens available", "batch.sequence = 32 needs 33", "shorter sequence or more text"});
  refuse({"data.train=" + (place_ / "empty")}, {"empty", "0 tokens available"});
  refuse({"data.valid=" + (place_ / "tiny"), "eval.every=1"}, {"tiny", "5 tokens available"});
  refuse({"data.split=1,0", "eval.every=1"}, {"validation part of data.split", "0 tokens available"});
  refuse({"data.split=0,1"}, {"training part of data.split", "0 tokens available"});
  write_dataset(place_ / "novel", {std::vector<std::int32_t>(500, 7)}, 50257);
  refuse({"data.train=" + (place_ / "novel"), "data.split=95,5", "eval.every=1"},
         {"validation part of data.split, 0 of 1 document)", "whole documents", "--separator-line", "data.valid"});
}

TEST_F(BadData, IdsOutsideTheVocabularyAreRefused) {
  refuse({"model.vocab_size=50256"}, {"text.trident.json", "tokenizer \"gpt2\" of 50257 tokens", "the model's vocabulary has 50256",
                                      "vocab_size to 50257 or more"});
  std::filesystem::remove(place_ / "text.trident.json");
  // The tokenizer knows more tokens than the model, and the text has them.
  refuse({"model.vocab_size=50000"}, {"text.bin", "has id 5", "vocabulary of 50000 tokens", "model's vocab_size"});
  refuse({"model.vocab_size=50256"}, {"text.bin", "id 50256", "vocabulary of 50256 tokens"});  // only the end of the document
  std::vector<std::int32_t> ids(200, 7);
  write_dataset(place_ / "seven", {ids}, 100);
  ids.back() = 99;
  write_dataset(place_ / "last", {ids}, 100);
  const std::vector<std::string> small{"model.vocab_size=50", "data.tokenizer=null"};
  refuse({small[0], small[1], "data.train=" + (place_ / "last")}, {"last.bin", "token 199 has id 99"});
  refuse({small[0], small[1], "data.train=" + (place_ / "seven"), "data.valid=" + (place_ / "last"), "eval.every=1"},
         {"last.bin", "token 199"});
  // A vocabulary smaller than that of data.tokenizer is no error by itself.
  const std::vector<std::string> larger{"model.vocab_size=50", "data.tokenizer=gpt2", "run.steps=1",
                                        "data.train=" + (place_ / "seven")};
  EXPECT_EQ(place_.train(larger).exit_code, 0);
}

// Where start-up does not look, and only one data-parallel rank of eight ranks comes across it, in a later step.
TEST_F(BadData, AnIdOutsideTheVocabularyEndsTraining) {
  constexpr std::int64_t kTokens = std::int64_t{1} << 28, kSequence = 32;
  const SampleOrder order(num_samples_of(kTokens, kSequence), 1234, Shuffle::kPerEpoch);
  constexpr std::int64_t kPosition = 18;  // of the third step
  const std::int64_t token = order.sample_at(kPosition) * kSequence + 5;
  {
    std::ofstream bin(place_ / "large.bin", std::ios::binary);  // sparse: token 0 everywhere else
    bin.seekp(token).put(static_cast<char>(250));
    bin.seekp(kTokens - 1).put(0);
    std::ofstream idx(place_ / "large.idx", std::ios::binary);
    const auto put = [&](auto value) { idx.write(reinterpret_cast<const char*>(&value), sizeof value); };
    idx.write("MMIDIDX\0\0", 9);
    put(std::uint64_t{1}), put(std::uint8_t{1}), put(std::uint64_t{1}), put(std::uint64_t{2});
    put(static_cast<std::int32_t>(kTokens)), put(std::int64_t{0}), put(std::int64_t{0}), put(std::int64_t{1});
  }
  const ProgramOutcome outcome = place_.train({"model.vocab_size=250", "data.tokenizer=null", "data.train=" + (place_ / "large"),
                                               "run.steps=10", "parallel=2DP x 2PP x 2TP"});
  EXPECT_EQ(outcome.exit_code, 65) << outcome.err;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  expect_parts(outcome.err, {fmt::format("large.bin: token {0} has id 250 (document 0, its token {0})", token)});
  // The steps trained until then stay on record; in the step before, other ranks may have been ahead of the one that writes.
  const auto steps = static_cast<std::int64_t>(place_.metrics().size());
  EXPECT_GE(steps, kPosition / 8 - 1);
  EXPECT_LE(steps, kPosition / 8);
  expect_one_line(run_program({"data", "inspect", place_ / "large", "--check", "--vocab-size", "250"}), 65,
                  {fmt::format("large.bin: token {0} has id 250 (document 0, its token {0})", token)});
}

// Not a signal that leaves no word: a line with the file, and code 74.
TEST_F(BadData, AFileThatIsCutEndsTraining) {
  const std::string prefix = copy("cut"), metrics = place_ / "run/metrics.jsonl";
  const std::string command = fmt::format(
      "'{}' train --config '{}' --set run.steps=1000000 --set 'data.train={}' --set 'parallel=2DP x 2PP x 2TP' & "
      "until [ -s '{}' ] || ! kill -0 $!; do sleep 0.05; done; truncate -s 500 '{}.bin'; wait $!",
      TRIDENT_BINARY, place_ / "config.json", prefix, metrics, prefix);
  const ProgramOutcome outcome = run_command({"sh", "-c", command});
  EXPECT_EQ(outcome.exit_code, 74) << outcome.err;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;
  expect_parts(outcome.err, {"cut.bin: ", " bytes at byte ", "became shorter while it was in use; put it back"});
}

// Without its record the pair would be taken for what it is not; a wrong tokenizer shows only in bits per byte.
TEST_F(BadData, RecordsAreCompared) {
  std::filesystem::create_directory(place_ / "mine");
  write_file(place_ / "mine/vocab.json", read_file(TRIDENT_SOURCE_DIR "/data/gpt2/vocab.json"));
  const std::string merges = read_file(TRIDENT_SOURCE_DIR "/data/gpt2/merges.txt");
  write_file(place_ / "mine/merges.txt", merges.substr(0, merges.rfind('\n', merges.size() - 2) + 1));  // one less
  refuse({"data.tokenizer=" + (place_ / "mine")},
         {"text.trident.json: was made by tokenizer \"gpt2\"", "the one in use is tokenizer", "name the one that made the data"});
  write_file(place_ / "mine/tokenizer.json", R"({"normalizer": {"type": "NFC"}})");
  refuse({"data.tokenizer=" + (place_ / "mine")}, {"mine/tokenizer.json: model is \"null\""});
  const std::string prefix = copy("other");
  std::filesystem::copy_file(place_ / "valid.trident.json", prefix + ".trident.json");
  refuse({"data.train=" + prefix}, {"other.trident.json: does not belong to this pair", "other.bin has"});
  std::filesystem::remove(prefix + ".trident.json");
  const ProgramOutcome bare = place_.train({"data.train=" + prefix});
  EXPECT_EQ(bare.exit_code, 0) << bare.err;
  const std::string log = read_file(place_ / "run/run.log");
  EXPECT_NE(log.find("other: no record of the tokenizer that made it"), std::string::npos) << log;
  EXPECT_EQ(log.find("no record", log.find("no record") + 1), std::string::npos) << log;  // of text, and once
  succeeded(place_.train({"model.vocab_size=201028", "data.tokenizer=gpt2", "run.steps=1", "run.dir=" + (place_ / "large")}));
  expect_parts(read_file(place_ / "large/run.log"),
               {"model.vocab_size = 201028, the tokenizer has 50257: --set model.vocab_size=50260 trains a smaller"});
}

TEST_F(BadData, InterruptedPairsAreRefused) {
  const std::string prefix = copy("half");
  std::filesystem::rename(prefix + ".idx", prefix + ".idx.before-overwrite");
  const std::string command = fmt::format("mv -f {0}.idx.before-overwrite {0}.idx", prefix);
  refuse({"data.train=" + prefix}, {prefix + ": a command that wrote this data set was interrupted half-way", command});
  const std::string said = place_.train({"data.train=" + prefix}).err;
  EXPECT_TRUE(said.starts_with(fmt::format("trident: data.train = {0}: {0}: a command", prefix))) << said;
  EXPECT_TRUE(said.ends_with(": " + command + "\n")) << "nothing that a shell would run as well: " << said;
  expect_one_line(run_program({"data", "inspect", prefix}), 65, {command});
  expect_one_line(run_program({"data", "merge", "--input", place_ / "text", "--output", prefix, "--overwrite"}), 65, {command});
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(run_program({"data", "inspect", prefix}).exit_code, 0);
}

TEST_F(BadData, PrepareLeavesNoHalfFiles) {
  write_file(place_ / "good.jsonl", "{\"text\": \"one\"}\n");
  write_file(place_ / "bad.jsonl", "{\"text\": \"one\"}\n{\"txt\": \"two\"}\n");
  write_file(place_ / "nothing.txt", "");
  const std::vector<std::string> before = place_.files();
  const auto prepare = [&](const std::vector<std::string>& inputs, const std::string& output) {
    std::vector<std::string> arguments{"data", "prepare", "--tokenizer", "gpt2", "--output", place_ / output, "--input"};
    for (const std::string& input : inputs) arguments.push_back(place_ / input);
    return run_program(arguments);
  };
  expect_one_line(prepare({"good.jsonl", "bad.jsonl"}, "out"), 65, {"bad.jsonl:2", "text"});
  expect_one_line(prepare({"good.jsonl", "missing.jsonl"}, "out"), 65, {"missing.jsonl"});
  expect_one_line(prepare({"nothing.txt"}, "out"), 65, {"nothing.txt"});
  write_file(place_ / "mine.bin", "text that must survive\n");
  expect_one_line(prepare({"mine.bin"}, "mine"), 64, {"--output", "overwrite", "mine.bin"});
  EXPECT_EQ(read_file(place_ / "mine.bin"), "text that must survive\n");
  std::filesystem::remove(place_ / "mine.bin");
  expect_one_line(prepare({"good.jsonl"}, "good.jsonl/out"), 74, {"good.jsonl: the folder cannot be created"});
  expect_one_line(prepare({"good.jsonl"}, "text"), 64, {"text.bin and ", "text.idx are there", "--overwrite"});
  expect_one_line(
      run_program({"data", "prepare", "--tokenizer", "gpt9", "--output", place_ / "out", "--input", place_ / "good.jsonl"}), 64,
      {"--tokenizer = \"gpt9\"", "use \"gpt2\""});
  EXPECT_EQ(place_.files(), before);
}

// trident data leaves nothing new when it is stopped while it writes.

class DataSignals : public ::testing::Test {
 protected:
  DataSignals() {
    std::string lines;
    while (lines.size() < std::size_t{20} << 20)
      lines += "{\"text\": \"In the beginning God created the heaven and the earth.\"}\n";
    write_file(folder_ / "long.jsonl", lines);
    write_file(folder_ / "short.jsonl", "{\"text\": \"one\"}\n");
  }

  std::vector<std::string> words(const std::string& input) const {
    return {"data", "prepare", "--tokenizer", "gpt2", "--input", folder_ / input, "--output", folder_ / "out"};
  }
  std::vector<std::string> temporaries() const {
    std::vector<std::string> names = folder_.names();
    std::erase_if(names, [](const std::string& name) { return name.find(".tmp.") == std::string::npos; });
    return names;
  }
  // Starts a long prepare, sends it `signal` once its temporary files are there, and returns its wait status and what it said. One
  // that had ended before shows nothing, and is tried again.
  int stop_by(int signal, std::string* said) {
    int status = 0;
    for (int tries = 0; tries < 10; ++tries) {
      status = stop_once_by(signal, said);
      if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) break;
      for (const std::string& name : folder_.names())
        if (name.starts_with("out.")) remove_file(folder_ / name);
    }
    return status;
  }

  int stop_once_by(int signal, std::string* said) {
    std::vector<std::string> arguments = words("long.jsonl");
    arguments.insert(arguments.begin(), TRIDENT_BINARY);
    std::vector<char*> argv;
    for (std::string& word : arguments) argv.push_back(word.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, (folder_ / "said").c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    pid_t process = 0;
    EXPECT_EQ(posix_spawn(&process, TRIDENT_BINARY, &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    siginfo_t ended{};
    while (temporaries().empty() && ended.si_pid == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ::waitid(P_PID, static_cast<id_t>(process), &ended, WEXITED | WNOHANG | WNOWAIT);
    }
    ::kill(process, signal);
    int status = 0;
    EXPECT_EQ(::waitpid(process, &status, 0), process);
    *said = read_file(folder_ / "said");
    remove_file(folder_ / "said");
    return status;
  }

  TemporaryFolder folder_;
};

TEST_F(DataSignals, StoppedWithoutATrace) {
  for (const auto& [signal, name] : {std::pair{SIGTERM, "SIGTERM"}, {SIGINT, "SIGINT"}, {SIGHUP, "SIGHUP"}}) {
    std::string said;
    const int status = stop_by(signal, &said);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 128 + signal) << status << said;
    EXPECT_EQ(said.rfind(std::string("trident: stopped by ") + name + ": no file was changed", 0), 0u) << said;
    EXPECT_EQ(folder_.names(), (std::vector<std::string>{"long.jsonl", "short.jsonl"}));
  }
}

TEST_F(DataSignals, WhatAKilledCommandLeavesGoesWithTheNext) {
  std::string said;
  const int status = stop_by(SIGKILL, &said);
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
  EXPECT_FALSE(temporaries().empty());
  succeeded(run_program(words("short.jsonl")));
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{"long.jsonl", "out.bin", "out.idx", "out.trident.json", "short.jsonl"}));
}

}  // namespace
}  // namespace trident
