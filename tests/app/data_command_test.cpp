// trident data prepare, inspect, merge and pack inside this process.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <sstream>

#include "app/progress_line.h"
#include "app/subcommands.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/data/token_files.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

class DataCommand : public ::testing::Test {
 protected:
  TemporaryFolder folder_;

  // Returns the output of `trident data ARGUMENTS`, which must succeed.
  static std::string run(Arguments arguments) {
    arguments.insert(arguments.begin(), "data");
    std::ostringstream out, err;
    const CommandContext context{out, err};
    EXPECT_EQ(run_command_line(arguments, context), 0) << err.str();
    EXPECT_EQ(err.str(), "");
    return out.str();
  }
  static void refuse(Arguments arguments, int exit_code, const std::vector<std::string>& parts) {
    arguments.insert(arguments.begin(), "data");
    std::ostringstream out, err;
    EXPECT_EQ(run_command_line(arguments, {out, err}), exit_code) << err.str();
    EXPECT_EQ(out.str(), "");
    EXPECT_EQ(err.str().find('\n'), err.str().size() - 1) << err.str();
    for (const std::string& part : parts) EXPECT_NE(err.str().find(part), std::string::npos) << err.str();
  }
  static void expect_lines(const std::string& text, const std::vector<std::string>& lines) {
    for (const std::string& line : lines) EXPECT_NE(text.find(line), std::string::npos) << "no \"" << line << "\" in:\n" << text;
  }

  // Two documents with text and an empty one, as token files text.bin and text.idx.
  std::string prepared(const std::vector<std::string>& flags = {"--append-eod"}) {
    write_file(folder_ / "a.jsonl",
               "{\"text\": \"one two\"}\n{\"text\": \"\"}\n{\"text\": \"caf\\u00e9\\u0007\\u001b[31m\\u009b \\\"q\\\"\\n\"}\n");
    Arguments arguments{"prepare", "--input", folder_ / "a.jsonl", "--tokenizer", "gpt2", "--output", folder_ / "text"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    expect_lines(run(arguments), {"text.bin, ", "3 documents", "1 document is empty\n"});
    return folder_ / "text";
  }
};

TEST_F(DataCommand, InspectPrintsText) {
  const std::string prefix = prepared();
  const std::string out = run({"inspect", prefix, "--tokenizer", "gpt2", "--documents", "9", "--sequence", "4"});
  const IndexedDataset dataset(prefix);
  const std::int64_t last = dataset.num_tokens() - 3;  // "one two" and its eod are three tokens
  expect_lines(out, {prefix + "\n", "dtype            uint16\n", "documents        3, 1 of them empty\n", "sequences        2\n",
                     fmt::format("tokens           {}\n", dataset.num_tokens()),
                     fmt::format("document length  3 to {} tokens, mean {:.1f}\n", last, static_cast<double>(last + 3) / 2),
                     "to 50256\n", "eod at the ends  yes: 2 of 2 documents end in token 50256, gpt2's eod\n",
                     fmt::format("samples          {} of 4 tokens\n", (dataset.num_tokens() - 1) / 4),
                     fmt::format(".bin             {} bytes\n", 2 * dataset.num_tokens()), ".idx             90 bytes",
                     "document 0: 3 tokens\n  ids  505 734 50256\n  text \"one two<|endoftext|>\"\n",
                     "document 1: 0 tokens\n  ids \n  text \"\"\n",
                     // Nothing of it reaches the terminal as a control: bell, escape, and the one-character form of "escape [".
                     "text \"café\\u0007\\u001b[31m\\u009b \\\"q\\\"\\n<|endoftext|>\"\n"});
  EXPECT_EQ(out.find('\x1b'), std::string::npos);
}

TEST_F(DataCommand, InspectShowsBeginnings) {
  const std::string prefix = prepared();
  const std::string out = run({"inspect", prefix, "--tokens", "2"});
  expect_lines(out, {"document 0: 3 tokens\n  ids  505 734 ...\n", "yes: 2 of 2 documents end in token 50256, gpt2's eod\n",
                     "text \"one two\" ...\n"});
  EXPECT_EQ(out.find("document 1:"), std::string::npos);
  EXPECT_EQ(out.find("samples"), std::string::npos);
  EXPECT_EQ(run({"inspect", prefix, "--documents", "0"}).find("document 0"), std::string::npos);
  // A token that ends inside a character.
  write_dataset(folder_ / "half", {{8582}}, 50257);
  expect_lines(run({"inspect", folder_ / "half", "--tokenizer", "gpt2"}),
               {"\xEF\xBF\xBD", "no: 0 of 1 document end in token 50256"});
}

TEST_F(DataCommand, InspectPrintsJson) {
  const std::string prefix = prepared({});
  const std::string out = run({"inspect", prefix, "--tokenizer", "gpt2", "--json", "--sequence", "2", "--tokens", "1"});
  EXPECT_EQ(out.find('\n'), out.size() - 1);
  const JsonValue json = parse_json(out, "out", {.comments = false});
  const IndexedDataset dataset(prefix);
  const auto integer = [&](const char* key) { return json.find(key)->as_integer(); };
  EXPECT_EQ(json.find("prefix")->as_string(), prefix);
  EXPECT_EQ(json.find("dtype")->as_string(), "uint16");
  EXPECT_EQ(integer("documents"), 3);
  EXPECT_EQ(integer("empty_documents"), 1);
  EXPECT_EQ(integer("sequences"), 2);
  EXPECT_EQ(integer("tokens"), dataset.num_tokens());
  EXPECT_EQ(integer("shortest_document"), 2);
  EXPECT_EQ(integer("longest_document"), dataset.num_tokens() - 2);
  EXPECT_EQ(json.find("mean_document")->as_number(), static_cast<double>(dataset.num_tokens()) / 2);
  EXPECT_EQ(integer("end_token"), 50256);
  EXPECT_EQ(integer("documents_with_end_token"), 0);
  EXPECT_FALSE(json.find("eod_at_ends")->as_bool());
  EXPECT_EQ(integer("samples"), (dataset.num_tokens() - 1) / 2);
  EXPECT_EQ(integer("bin_bytes"), 2 * dataset.num_tokens());
  EXPECT_EQ(integer("idx_bytes"), 90);
  EXPECT_GT(integer("largest_id"), integer("smallest_id"));
  ASSERT_EQ(json.find("first_documents")->items().size(), 1u);
  const JsonValue& first = json.find("first_documents")->items()[0];
  EXPECT_EQ(first.find("document")->as_integer(), 0);
  EXPECT_EQ(first.find("tokens")->as_integer(), 2);
  EXPECT_EQ(first.find("ids")->items(), (JsonValue::Array{505}));
  EXPECT_EQ(first.find("text")->as_string(), "one");
  EXPECT_FALSE(parse_json(run({"inspect", prefix, "--json"}), "out").find("eod_at_ends")->as_bool()) << "the recorded tokenizer's";
  write_dataset(folder_ / "unrecorded", {{505}}, 50257);
  const JsonValue plain = parse_json(run({"inspect", folder_ / "unrecorded", "--json"}), "out");
  EXPECT_TRUE(plain.find("eod_at_ends")->is_null());  // who knows
  EXPECT_EQ(plain.find("samples"), nullptr);
}

TEST_F(DataCommand, PackSaysHowFullPacksAreAndWhatCounts) {
  const std::string chat = folder_ / "chat", packs = folder_ / "packs";
  write_masked_dataset(chat, {{1, 2, 3, 4, 5, 6}, {7, 8}, {9}}, std::vector<std::uint8_t>{0, 0, 1, 1, 0, 1, 0, 1, 1}, 50257);
  expect_lines(run({"pack", chat, "--sequence", "8", "--output", packs}),
               {packs + ".bin, " + packs + ".idx: 1 pack of at most 8 tokens, 8 tokens of 2 sequences\n",
                "efficiency 1.0000 (tokens / (packs x 8))\n",
                "4 of 8 tokens are targets that count (50.0 %)\n",
                "1 sequence without a target that counts left out, 1 of one token\n"});
  refuse({"pack", chat, "--sequence", "8", "--output", packs}, 64, {"--overwrite"});
  refuse({"pack", chat, "--sequence", "4", "--output", folder_ / "x"}, 65,
         {"sequence 0 of " + chat, "6 tokens", "no other is longer", "--overflow"});
  expect_lines(run({"pack", chat, "--sequence", "4", "--output", packs, "--overwrite", "--overflow", "truncate"}),
               {"1 sequence longer than 4 truncated; the longest, sequence 0 of " + chat + ", has 6 tokens\n"});
  refuse({"pack", chat, "--sequence", "1", "--output", folder_ / "x"}, 64, {"--sequence = 1", "at least 2"});
}

TEST_F(DataCommand, InspectAndMergeCountTargetsOfMasks) {
  write_masked_dataset(folder_ / "chat", {{1, 2, 3}, {}, {4, 5}}, std::vector<std::uint8_t>{0, 1, 1, 0, 0}, 50257);
  expect_lines(run({"inspect", folder_ / "chat", "--documents", "3"}),
               {"  targets          2 count as targets (40.0 %); 1 of the documents with text have none\n",
                "  .mask            17 bytes\n", "document 0: 3 tokens, 2 count as targets\n",
                "document 2: 2 tokens, 0 count as targets\n"});
  expect_lines(run({"inspect", folder_ / "chat"}), {"targets\n  context 1\n  target  2 3\n"});
  expect_lines(run({"inspect", folder_ / "chat", "--tokenizer", "gpt2", "--tokens", "2"}),
               {"targets\n  context \"\\\"\"\n  target  \"#\" ...\n", "gpt2's eod; a template may write a newline behind it"});
  const JsonValue json = parse_json(run({"inspect", folder_ / "chat", "--json"}), "out");
  EXPECT_EQ(json.find("counted_tokens")->as_integer(), 2);
  EXPECT_EQ(json.find("documents_without_counted")->as_integer(), 1);
  EXPECT_EQ(json.find("mask_bytes")->as_integer(), 17);
  EXPECT_EQ(json.find("first_documents")->items().at(0).find("counted")->as_integer(), 2);
  EXPECT_EQ(json.find("first_documents")->items().at(0).find("counts")->items(), (JsonValue::Array{0, 1, 1}));
  write_dataset(folder_ / "plain", {{6, 7}}, 50257);
  EXPECT_EQ(parse_json(run({"inspect", folder_ / "plain", "--json"}), "out").find("counted_tokens"), nullptr);
  const Arguments merge{"merge", "--input", folder_ / "chat", folder_ / "plain", "--output", folder_ / "both"};
  expect_lines(run(merge), {"both.mask: 4 of 7 tokens count as targets; of inputs without a mask all do\n"});
}

TEST_F(DataCommand, InspectOfNothing) {
  write_dataset(folder_ / "none", {}, 50257);
  expect_lines(run({"inspect", folder_ / "none"}),
               {"documents        0, 0 of them empty\n", "ids              none\n", "no tokens\n"});
  EXPECT_TRUE(parse_json(run({"inspect", folder_ / "none", "--json"}), "out").find("largest_id")->is_null());
}

TEST_F(DataCommand, InspectRefuses) {
  refuse({"inspect"}, 64, {"PREFIX is required"});
  refuse({"inspect", folder_ / "none"}, 65, {"none.idx", "no such file"});
  refuse({"inspect", prepared(), "--documents", "-1"}, 64, {"--documents = -1"});
  refuse({"inspect", folder_ / "text", "--tokenizer", "gtp2"}, 64, {"--tokenizer"});
  write_dataset(folder_ / "wide", {{1, 60000}}, 128256);
  refuse({"inspect", folder_ / "wide", "--tokenizer", "gpt2"}, 65,
         {"wide.bin", "from 1 to 60000", "gpt2 has 0 to 50256", "made the file"});
}

TEST_F(DataCommand, InspectChecks) {
  const std::string prefix = prepared();
  const std::int64_t tokens = IndexedDataset(prefix).num_tokens();
  expect_lines(
      run({"inspect", prefix, "--check", "--tokenizer", "gpt2"}),
      {fmt::format("check            ok: 2 sequences and 3 documents in order, {} ids below 50257\n", tokens)});
  expect_lines(run({"inspect", prefix, "--check"}), {"ids below 50257\n"});  // as its record says
  const JsonValue json = parse_json(run({"inspect", prefix, "--check", "--vocab-size", "60000", "--json"}), "out");
  EXPECT_EQ(json.find("ids_checked_below")->as_integer(), 60'000);
  EXPECT_EQ(parse_json(run({"inspect", prefix, "--json"}), "out").find("ids_checked_below"), nullptr);

  write_dataset(folder_ / "wide", {{1, 2}, {}, {3, 60000, 70000}}, 128256);
  expect_lines(run({"inspect", folder_ / "wide", "--check"}), {"ids below 2147483648\n"});  // there is no record
  const std::string first = "wide.bin: token 3 has id 60000 (document 2, its token 1), outside";
  refuse({"inspect", folder_ / "wide", "--check", "--tokenizer", "gpt2"}, 65, {first, "50257 tokens"});
  refuse({"inspect", folder_ / "wide", "--check", "--vocab-size", "60000", "--json"}, 65, {first});
  EXPECT_NE(run({"inspect", folder_ / "wide", "--check", "--vocab-size", "70001"}).find("check            ok"), std::string::npos);
  refuse({"inspect", folder_ / "wide", "--vocab-size", "9"}, 64, {"--vocab-size = 9", "add --check"});
  for (const char* none : {"-9", "0"})
    refuse({"inspect", folder_ / "wide", "--check", "--vocab-size", none}, 64,
           {std::string("--vocab-size = ") + none + ": must be at least 1"});
}

TEST_F(DataCommand, InspectNamesWhatIsWrongInTheIndex) {
  const std::string prefix = folder_ / "many";
  write_dataset(prefix, counting_documents(700, 1000), 1000);
  std::string idx = read_file(prefix + ".idx");
  idx[34 + 4 * 300] = 9;  // the length of a sequence that start-up does not look at
  write_file(prefix + ".idx", idx);
  for (const char* flag : {"--check", "--json"})
    refuse({"inspect", prefix, flag}, 65,
           {"many.idx: offset of sequence 301 = ", "must follow each other; prepare the data again"});
}

TEST_F(DataCommand, Merge) {
  const std::string prefix = prepared(), out = folder_ / "all";
  expect_lines(run({"merge", "--input", prefix, prefix, "--output", out}), {"all.bin, ", "6 documents", "from 2 datasets"});
  EXPECT_EQ(IndexedDataset(out).num_documents(), 6);
  refuse({"merge", "--input", prefix, "--output", prefix}, 64, {"--output", "overwrite"});
  refuse({"merge", "--input", prefix}, 64, {"--output is required"});
}

TEST_F(DataCommand, OutputIsTheBeginningOfNames) {
  const std::string prefix = prepared();
  for (const std::string& output : {std::string(), folder_ / ""}) {
    refuse({"prepare", "--input", folder_ / "a.jsonl", "--tokenizer", "gpt2", "--output", output}, 64,
           {"--output = \"" + output + "\""});
    refuse({"merge", "--input", prefix, "--output", output}, 64, {"add a name, such as " + output + "text"});
  }
}

TEST_F(DataCommand, FilesAreReplacedOnRequest) {
  const std::string prefix = prepared(), out = folder_ / "new/folder/all";
  const Arguments prepare{"prepare", "--input", folder_ / "a.jsonl", "--tokenizer", "gpt2", "--output", prefix};
  const Arguments merge{"merge", "--input", prefix, "--output", out};
  run(merge);  // makes the folder
  const std::int64_t with_eod = RandomAccessFile(prefix + ".bin").size();
  for (Arguments arguments : {prepare, merge}) {
    const std::string before = read_file(prefix + ".bin");
    refuse(arguments, 64, {"--output = " + arguments.back(), ".bin and ", "are there", "--overwrite"});
    EXPECT_EQ(read_file(prefix + ".bin"), before);
    arguments.push_back("--overwrite");
    run(arguments);
  }
  EXPECT_EQ(RandomAccessFile(prefix + ".bin").size(), with_eod - 4);
  EXPECT_EQ(RandomAccessFile(out + ".bin").size(), with_eod - 4);
  refuse(
      {"prepare", "--input", folder_ / "a.jsonl", "--tokenizer", "gpt2", "--output", folder_ / "x", "--max-document-bytes", "10"},
      65, {"a.jsonl:1: a document of more than 10 bytes", "--max-document-bytes"});
}

// Whoever types a command twice has what it makes; other texts, another rule or damage are said as before.
TEST_F(DataCommand, TheSameOnceMoreIsThereAlready) {
  const std::string prefix = prepared(), input = folder_ / "a.jsonl", text = read_file(input), bin = read_file(prefix + ".bin");
  const Arguments again{"prepare", "--input", input, "--tokenizer", "gpt2", "--append-eod", "--output", prefix};
  const auto with = [&](const Arguments& more) {
    Arguments all = again;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  for (const Arguments& more : {Arguments{}, {"--workers", "2"}})
    expect_lines(run(with(more)), {prefix + ".idx: 3 documents, there already: made of these inputs", "--overwrite"});
  write_file(folder_ / "b.jsonl", text);
  for (const Arguments& more : {Arguments{"--json-key", "other"}, {"--plain-special"}, {"--input", folder_ / "b.jsonl"}})
    refuse(with(more), 64, {"are there", "--overwrite"});
  // Another file of that size in its place, from before the data was prepared, by its folder or by itself.
  const auto before = std::filesystem::last_write_time(input) - std::chrono::hours(1);
  for (const char* other : {"one", "two"}) {
    create_folder(folder_ / other);
    write_file(folder_ / other + "/a.jsonl", text);
    std::filesystem::last_write_time(folder_ / other + "/a.jsonl", before);
  }
  const std::string link = folder_ / "link", through = link + "/a.jsonl", linked = folder_ / "linked";
  const Arguments by_link{"prepare", "--input", through, "--tokenizer", "gpt2", "--output", linked};
  std::filesystem::create_directory_symlink("one", link);
  run(by_link);
  expect_lines(run(by_link), {"there already"});
  std::filesystem::remove(link);
  std::filesystem::create_directory_symlink("two", link);
  refuse(by_link, 64, {"are there", "--overwrite"});
  run(again);
  std::filesystem::rename(folder_ / "one/a.jsonl", input);
  refuse(again, 64, {"are there", "--overwrite"});
  run(with({"--overwrite"}));
  expect_lines(run(again), {"there already"});
  write_file(prefix + ".bin", std::string(bin.size(), 'x'));
  refuse(again, 64, {"are there", "--overwrite"});
}

TEST_F(DataCommand, InspectShowsTheRecord) {
  const std::string prefix = prepared();
  expect_lines(run({"inspect", prefix}), {"  made by          tokenizer \"gpt2\" of 50257 tokens (fnv1a64:", "from 1 file of "});
  const JsonValue record = *parse_json(run({"inspect", prefix, "--json"}), "out").find("record");
  EXPECT_EQ(record.find("tokenizer")->find("name")->as_string(), "gpt2");
  EXPECT_EQ(record.find("documents")->as_integer(), 3);
  write_dataset(folder_ / "bare", {{1, 2}}, 50257);
  expect_lines(run({"inspect", folder_ / "bare"}), {"  made by          not recorded"});
  EXPECT_TRUE(parse_json(run({"inspect", folder_ / "bare", "--json"}), "out").find("record")->is_null());
  write_file(prefix + ".idx", read_file(folder_ / "bare.idx"));
  write_file(prefix + ".bin", read_file(folder_ / "bare.bin"));
  refuse({"inspect", prefix}, 65, {"text.trident.json: does not belong to this pair"});
}

TEST_F(DataCommand, Usage) {
  expect_lines(run({"--help"}), {"data prepare --input F...", "data inspect PREFIX", "data merge --input PREFIX..."});
  expect_lines(run({"merge", "--help"}), {"--input", "prefixes of .bin and .idx"});
  refuse({}, 64, {"name one: prepare, inspect, merge or pack"});
  refuse({"mrege"}, 64, {"\"mrege\""});
  refuse({"prepare", "--input", folder_.path(), "--tokenizer", "gpt2", "--output", folder_ / "x"}, 65,
         {"names no file to read"});
}

TEST(ProgressLine, IsDrawnInPlaceOnATerminalAndSeldomElsewhere) {
  std::ostringstream out, terminal, plain;
  CommandContext in_place{out, terminal};
  in_place.err_console = ConsoleMode::kTerminal;
  {
    ProgressLine drawn(in_place, "eval", 100), lines({out, plain}, "eval", 100);
    const auto at = [&](double seconds, std::int64_t done) {
      for (ProgressLine* line : {&drawn, &lines}) line->update(done, 200, fmt::format("{}/200 windows", done), seconds);
    };
    at(100, 0);
    EXPECT_EQ(terminal.str(), "\r\x1b[Keval  0/200 windows  0%  ETA -:--");
    at(102, 0);  // what came before is no measure of what is to come
    terminal.str("");
    at(106, 50);
    EXPECT_EQ(terminal.str(), "\r\x1b[Keval  50/200 windows  25%  ETA 0:12");
    at(106.1, 51);
    EXPECT_TRUE(terminal.str().ends_with("ETA 0:12")) << "not drawn again within a fifth of a second";
    at(129, 75);
    EXPECT_EQ(plain.str(), "");
    at(131, 150);
    at(132, 199);
    EXPECT_EQ(plain.str(), "eval  150/200 windows  75%  ETA 0:10\n");
    drawn.update(1, 0, std::string(100, 'x'), 140);
    EXPECT_TRUE(terminal.str().ends_with("\r\x1b[Keval  " + std::string(73, 'x'))) << "no wider than the terminal, without a total";
  }
  EXPECT_TRUE(terminal.str().ends_with("\r\x1b[K")) << "taken away";
  EXPECT_EQ(plain.str().find('\r'), std::string::npos);
  EXPECT_EQ(out.str(), "");
}

}  // namespace
}  // namespace trident
