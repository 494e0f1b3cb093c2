// trident tokenizer encode, decode, show, render and diff inside this process, and what data prepare says of a tokenizer.
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>

#include "app/subcommands.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "data/chat_documents.h"
#include "data/dataset_record.h"
#include "data/indexed_dataset.h"
#include "data/loss_mask.h"
#include "tests/data/temporary_folder.h"
#include "tests/data/token_files.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

class TokenizerCommand : public ::testing::Test {
 protected:
  TemporaryFolder folder_;

  struct Result {
    int code;
    std::string out, err;
  };
  static Result run(const Arguments& arguments) {
    std::ostringstream out, err;
    const int code = run_command_line(arguments, {out, err});
    return {code, out.str(), err.str()};
  }
  static std::string output(const Arguments& arguments) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    return result.out;
  }
  static void refuse(const Arguments& arguments, int code, std::initializer_list<std::string_view> parts) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, code) << result.err;
    expect_parts(result.err, parts);
  }

  // A folder whose texts begin with <s>, and whose chat template writes its eos.
  std::string chat_folder() {
    nlohmann::json vocab;
    for (int b = 'a'; b <= 'z'; ++b) vocab[std::string(1, static_cast<char>(b))] = b - 'a';
    vocab["ab"] = 26;
    const auto added = [](const char* content, int id) {
      return nlohmann::json{{"content", content}, {"id", id}, {"special", true}};
    };
    nlohmann::json json;
    json["added_tokens"] = {added("<s>", 27), added("<|end|>", 28), added("<|doc|>", 29)};
    json["pre_tokenizer"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
    json["post_processor"] = nlohmann::json::parse(
        R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [27], "tokens": ["<s>"]}}})");
    json["model"] = {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"a b"}}};
    create_folder(folder_ / "chat");
    write_file(folder_ / "chat/tokenizer.json", json.dump());
    write_file(folder_ / "chat/tokenizer_config.json",
               R"({"bos_token": "<s>", "eos_token": "<|end|>", "chat_template": "{{ m }}<|end|>"})");
    return folder_ / "chat";
  }
};

TEST_F(TokenizerCommand, LinesAreEncodedAndDecodedAgain) {
  const std::string text = "Hello world\n\n don't<|endoftext|> caf\u00e9\n";
  write_file(folder_ / "a.txt", text);
  const std::string ids = output({"tokenizer", "encode", folder_ / "a.txt"});
  EXPECT_EQ(ids, "15496 995\n\n836 470 50256 40304\n");
  write_file(folder_ / "ids", ids);
  EXPECT_EQ(output({"tokenizer", "decode", folder_ / "ids"}), text);
  const std::string shown = output({"tokenizer", "show", folder_ / "a.txt"});
  EXPECT_TRUE(
      shown.ends_with("\n\n   15496  \"Hello\"\n     995  \" world\"\n\n\n     836  \" don\"\n     470  \"'t\"\n   50256  "
                      "\"<|endoftext|>\"\n   40304  \" caf\u00e9\"\n"))
      << shown;
  write_file(folder_ / "bytes.txt", "\u2602\xff\n");
  const Result odd = run({"tokenizer", "encode", "--pieces", folder_ / "bytes.txt"});
  EXPECT_EQ(odd.out, "\"<0xE2><0x98>\" \"<0x82>\" \"\ufffd\"\n");
  EXPECT_EQ(odd.err, fmt::format("warning: {}: 1 ill-formed UTF-8 sequence read as U+FFFD\n", folder_ / "bytes.txt"));
  EXPECT_EQ(output({"tokenizer", "encode", "--tokenizer", "cl100k", folder_ / "a.txt"}), "9906 1917\n\n1541 956 100257 53050\n");
  const std::string plain = output({"tokenizer", "encode", "--plain-special", folder_ / "a.txt"});
  EXPECT_EQ(plain.find("50256"), std::string::npos);
  write_file(folder_ / "ids", plain);
  EXPECT_EQ(output({"tokenizer", "decode", folder_ / "ids"}), text);
  write_file(folder_ / "ids", "15496\n15496 x\n");
  refuse({"tokenizer", "decode", folder_ / "ids"}, 65, {"ids:2", "\"x\" is no token id"});
  write_file(folder_ / "ids", "50257\n");
  refuse({"tokenizer", "decode", folder_ / "ids"}, 65, {"ids:1]", "50257", "gpt2"});
  refuse({"tokenizer", "encode", "no file"}, 65, {"no file: no such file; a text itself", "echo 'no file' | trident tokenizer"});
  write_file(folder_ / "a.txt", "Hello  world\"\n");
  EXPECT_EQ(output({"tokenizer", "encode", "--pieces", folder_ / "a.txt"}), "\"Hello\" \" \" \" world\" \"\\\"\"\n");
  refuse({"tokenizer", "encode", "--tokenizer", folder_ / "gone"}, 64,
         {"--tokenizer = ", "gone", "no such folder", "check the path"});
  refuse({"tokenizer"}, 64, {"encode, decode, show, render or diff"});
}

TEST_F(TokenizerCommand, ItsStepsAreShownAndTwoCompared) {
  const std::string chat = chat_folder();
  expect_parts(
      output({"tokenizer", "show", "--tokenizer", chat}),
      {chat, "kind tokenizer.json", "added tokens 3, 3 of them control tokens", "split \"'s|'t", "before a text \"<s>\" (27)",
       "model BPE over bytes; 27 tokens, 1 merges", "end of a document \"<|end|>\" (28)", "ids 0 to 29", "fingerprint fnv1a64:"});
  EXPECT_EQ(output({"tokenizer", "diff", "gpt2", "gpt2"}), "the same: both do the same to every text\n");
  const Result result = run({"tokenizer", "diff", "gpt2", "cl100k"});
  EXPECT_EQ(result.code, 1);
  expect_parts(result.out, {"different: \"", "\nfrom its token 1 on:\n", "\n  A (", " tokens)  ", "\n  B ("});
  expect_parts(result.err, {"gpt2 and cl100k differ"});
}

TEST_F(TokenizerCommand, PreparedDocumentsGetWhatTheTokenizerAdds) {
  const std::string chat = chat_folder();
  write_file(folder_ / "a.jsonl", "{\"text\": \"ab\"}\n{\"text\": \"\"}\n{\"text\": \"c<|end|>0\"}\n");
  const auto prepare = [&](const std::string& name, Arguments more) {
    Arguments all{"data", "prepare", "--input", folder_ / "a.jsonl", "--tokenizer", chat, "--output", folder_ / name};
    all.insert(all.end(), more.begin(), more.end());
    return output(all);
  };
  const auto tokens = [&](const std::string& name) {
    const IndexedDataset dataset(folder_ / name);
    IndexReader index(dataset);
    Documents documents;
    for (std::int64_t d = 0; d < dataset.num_documents(); ++d)
      documents.push_back(tokens_of(dataset, index.document_begin(d), index.document_begin(d + 1) - index.document_begin(d), 30));
    return documents;
  };
  expect_parts(prepare("a", {"--append-eod"}),
               {"documents end in \"<|end|>\" (token id 28)\n", "warning: the chat template writes \"<|end|>\" itself",
                "documents begin with \"<s>\" (token id 27)\n",
                "1 piece in the text became control tokens, the first, \"<|end|>\" (token id 28), at " +
                    (folder_ / "a.jsonl") + ":3;",
                "1 character without a token"});
  EXPECT_EQ(tokens("a"), (Documents{{27, 26, 28}, {27, 28}, {27, 2, 28, 28}}));
  EXPECT_EQ(prepare("b", {"--append-eod", "--eod", "<|doc|>", "--no-special"}).find("begin with"), std::string::npos);
  EXPECT_EQ(tokens("b"), (Documents{{26, 29}, {}, {2, 28, 29}}));
  EXPECT_EQ(prepare("c", {"--plain-special"}).find("control"), std::string::npos);
  EXPECT_EQ(tokens("c"), (Documents{{27, 26}, {27}, {27, 2, 4, 13, 3}}));
  prepare("d", {"--append-eod", "--workers", "3"});
  for (const char* end : {".bin", ".idx", ".trident.json"})
    EXPECT_EQ(read_file(folder_ / ("a" + std::string(end))), read_file(folder_ / ("d" + std::string(end))));
  EXPECT_EQ(read_record(folder_ / "a")->origin.tokenizer->before, std::vector<std::int32_t>{27});
  EXPECT_TRUE(read_record(folder_ / "b")->origin.tokenizer->before.empty());
  EXPECT_TRUE(read_record(folder_ / "c")->origin.tokenizer->plain);
  refuse({"data", "merge", "--input", folder_ / "a", folder_ / "b", "--output", folder_ / "all"}, 65,
         {"b.trident.json", "--no-special"});
  refuse({"data", "prepare", "--input", folder_ / "a.jsonl", "--tokenizer", chat, "--output", folder_ / "x", "--append-eod",
          "--eod", "<|no|>"},
         64, {"--eod = \"<|no|>\"", "no token of"});
  remove_file(folder_ / "chat/tokenizer_config.json");
  refuse({"data", "prepare", "--input", folder_ / "a.jsonl", "--tokenizer", chat, "--output", folder_ / "x", "--append-eod"}, 64,
         {"--append-eod: the tokenizer", "--eod TOKEN"});
}

// A header is one letter; what follows the assistant's counts. A control text that a user writes stays text.
class Conversations : public TokenizerCommand {
 protected:
  std::string folder() {
    const std::string chat = chat_folder();
    std::string json = read_file(chat + "/tokenizer.json");
    for (const auto& [letter, sign] : {std::pair{R"("x":23)", R"("<":23)"}, {R"("y":24)", R"("|":24)"}, {R"("z":25)", R"(">":25)"}})
      json.replace(json.find(letter), 6, sign);
    write_file(chat + "/tokenizer.json", json);
    write_file(chat + "/chat_template.jinja",
               "{{ bos_token }}{% for m in messages %}{{ m.role[0] }}{{ m.content }}<|end|>{% endfor %}"
               "{% if add_generation_prompt %}a{% endif %}");
    return chat;
  }
  void write_rows(const std::string& rows) { write_file(folder_ / "c.jsonl", rows); }
  Arguments prepare(const std::string& chat, Arguments more = {}) const {
    Arguments all{"data", "prepare", "--chat", "--input", folder_ / "c.jsonl", "--tokenizer", chat, "--output", folder_ / "c"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  void expect_tokens(const std::vector<std::int32_t>& ids, const std::vector<std::uint8_t>& counted) const {
    const IndexedDataset dataset(folder_ / "c");
    EXPECT_EQ(tokens_of(dataset, 0, dataset.num_tokens(), 30), ids);
    ASSERT_NE(dataset.mask(), nullptr);
    std::vector<std::uint8_t> counts(counted.size());
    dataset.mask()->read(0, counts);
    EXPECT_EQ(counts, counted);
  }
};

constexpr std::string_view kTurns =
    R"({"messages": [{"role": "user", "content": "ab<|end|>"}, {"role": "assistant", "content": "abb"}]})";

TEST_F(Conversations, CountWhatTheAssistantSays) {
  const std::string chat = folder();
  write_rows(std::string(kTurns) + "\n" +
             R"({"conversations": [{"from": "human", "value": "c"}, {"from": "gpt", "value": "d"}]})" "\n");
  expect_parts(output(prepare(chat)), {"2 documents", "5 of 22 tokens count as targets (22.7 %)"});
  const std::vector<std::int32_t> ids{27, 20, 26, 23, 24, 4, 13, 3, 24, 25, 28, 0, 26, 1, 28, 27, 20, 2, 28, 0, 3, 28};
  expect_tokens(ids, {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 1, 1});
  EXPECT_EQ(read_record(folder_ / "c")->origin.tokenizer->before, std::vector<std::int32_t>{27}) << "the template writes it";
  const std::string bin = read_file(folder_ / "c.bin"), mask = read_file(folder_ / "c.mask");
  output(prepare(chat, {"--overwrite", "--workers", "3"}));
  EXPECT_EQ(read_file(folder_ / "c.bin"), bin);
  EXPECT_EQ(read_file(folder_ / "c.mask"), mask);
  output(prepare(chat, {"--overwrite", "--loss", "all"}));
  expect_tokens(ids, std::vector<std::uint8_t>(ids.size(), 1));
}

TEST_F(Conversations, InPairsOfAnswersAreADocumentOfTwoSequences) {
  const std::string chat = folder();
  const auto pairs = [&](const std::string& rows, const std::string& tokenizer, std::vector<std::string> more = {}) {
    write_rows(rows);
    Arguments all{"data", "prepare", "--preference", "--overwrite", "--input", folder_ / "c.jsonl", "--tokenizer", tokenizer,
                  "--output", folder_ / "c"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  const std::string texts = "{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"d\"}\n";
  expect_parts(output(pairs(texts, chat)), {"1 document,", "4 of 8 tokens count as targets (50.0 %)"});
  expect_tokens({27, 26, 2, 28, 27, 26, 3, 28}, {0, 0, 1, 1, 0, 0, 1, 1});  // the tokenizer's eos ends each answer
  const IndexedDataset dataset(folder_ / "c");
  EXPECT_EQ(dataset.num_documents(), 1);
  EXPECT_EQ(dataset.num_sequences(), 2);
  const std::string user = R"({"role": "user", "content": "c"})", d = R"({"role": "assistant", "content": "d"})",
                    b = R"({"role": "assistant", "content": "e"})";
  const std::vector<std::int32_t> ids{27, 20, 2, 28, 0, 3, 28, 27, 20, 2, 28, 0, 4, 28};
  const std::vector<std::uint8_t> counts{0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 1, 1};
  output(pairs(fmt::format(R"({{"prompt": [{}], "chosen": [{}], "rejected": [{}]}})", user, d, b) + "\n", chat));
  expect_tokens(ids, counts);
  output(pairs(fmt::format(R"({{"prompt": "c", "chosen": [{0}, {1}], "rejected": [{0}, {2}]}})", user, d, b) + "\n", chat));
  expect_tokens(ids, counts);
  const auto refused = [&](const std::string& row, std::initializer_list<std::string_view> parts) {
    refuse(pairs(texts + row + "\n", chat), 65, parts);
  };
  refused(R"({"prompt": "ab", "chosen": "c"})", {"c.jsonl:2: the row has no \"rejected\"; rows have \"prompt\""});
  refused(R"({"chosen": "c", "rejected": "d"})", {"c.jsonl:2: chosen and rejected begin differently and the row has no"});
  refused(R"({"prompt": "ab", "chosen": "c", "rejected": []})", {"c.jsonl:2: rejected is a list, and prompt is a string"});
  refused(fmt::format(R"({{"chosen": [{0}], "rejected": [{0}, {1}]}})", user, d),
          {"c.jsonl:2: one of chosen and rejected has no message"});
  refused("3", {"c.jsonl:2: a pair is"});
  output(pairs("{\"prompt\": \"ab\", \"chosen\": \"c\", \"rejected\": \"\"}\n", chat));
  expect_tokens({27, 26, 2, 28, 27, 26, 28}, {0, 0, 1, 1, 0, 0, 1});  // an empty answer ends at once
  refuse(pairs(texts, chat, {"--chat"}), 64, {"--preference", "--chat"});
  refuse(pairs(fmt::format(R"({{"prompt": [{}], "chosen": [{}], "rejected": [{}]}})", user, d, b) + "\n", "gpt2"), 65,
         {"give --template"});
  output(pairs("{\"prompt\": \"ab\", \"chosen\": \" c\", \"rejected\": \" d\"}\n", "gpt2"));
  // Texts need no template, and become what TRL's tokenizer makes of them: control texts, one end, tokens across the prompt's end.
  remove_file(chat + "/chat_template.jinja");
  write_file(chat + "/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "<|end|>"})");
  output(pairs("{\"prompt\": \"c<|end|>\", \"chosen\": \"d<|end|>\", \"rejected\": \"e\"}\n", chat));
  expect_tokens({27, 2, 28, 3, 28, 27, 2, 28, 4, 28}, {0, 0, 0, 1, 1, 0, 0, 0, 1, 1});
  output(pairs("{\"prompt\": \"ca\", \"chosen\": \"b\", \"rejected\": \"d\"}\n", chat));
  expect_tokens({27, 2, 26, 28, 27, 2, 0, 3, 28}, {0, 0, 1, 1, 0, 0, 1, 1, 1});
  output(pairs("{\"chosen\": \"abc\", \"rejected\": \"abd\"}\n", chat));
  expect_tokens({27, 26, 2, 28, 27, 26, 3, 28}, {0, 0, 1, 1, 0, 0, 1, 1});
  refuse(pairs(fmt::format(R"({{"prompt": [{}], "chosen": [{}], "rejected": [{}]}})", user, d, b) + "\n", chat), 65,
         {"c.jsonl:1", "give --template"});
  write_file(chat + "/tokenizer_config.json", R"({"bos_token": "<s>"})");
  expect_parts(output(pairs(texts, chat)), {"warning: in 2 answers no end-of-sequence token counts"});
}

TEST_F(Conversations, WithoutACountedTokenAreRefusedOrLeftOut) {
  const std::string chat = folder();
  write_rows(std::string(kTurns) + "\n[{\"role\": \"user\", \"content\": \"a\"}]\n");
  refuse(prepare(chat), 65,
         {"c.jsonl:2: no token of the conversation counts", ": no message has the role assistant; ", "--skip-empty"});
  EXPECT_FALSE(file_exists(folder_ / "c.bin"));
  expect_parts(output(prepare(chat, {"--skip-empty"})), {"1 document,", "1 conversation without a token that counts left out"});
  write_rows("[{\"role\": \"user\", \"content\": \"a\"}]\n");
  refuse(prepare(chat, {"--skip-empty", "--overwrite"}), 65, {"no token counts in any of 1 conversation"});
  refuse(prepare(chat, {"--append-eod"}), 64, {"--append-eod", "--chat"});
  refuse(prepare("gpt2", {"--overwrite"}), 65,
         {"c.jsonl:1: messages need a chat template, and tokenizer \"gpt2\" has none; ", "--template"});
  write_rows("{\"messages\": 3}\n" + std::string(kTurns) +
             "\n[{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0}]\n");
  expect_parts(output(prepare(chat, {"--overwrite", "--skip-bad-lines"})),
               {"left out: " + (folder_ / "c.jsonl") + ":1:", "a list of messages is expected", "messages[0].weight",
                "1 document,"});
}

TEST_F(Conversations, AreRefusedWhereTokensAreNotTheTextsBytes) {
  const std::string chat = folder();
  write_rows(R"([{"role": "user", "content": "a!b"}, {"role": "assistant", "content": "c"}])" "\n");  // nothing stands for "!"
  refuse(prepare(chat), 65, {"c.jsonl:1: token ", "nothing says which tokens count"});
}

// As TRL 1.16 does: no template, control texts are tokens, one eos ends the text, and the completion counts.
TEST_F(Conversations, OfTextsEndWithEosAndNeedNoTemplate) {
  const std::string chat = folder();
  remove_file(chat + "/chat_template.jinja");
  write_file(chat + "/tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": "<|end|>"})");
  write_rows(R"({"prompt": "ab", "completion": "c"})" "\n" R"({"prompt": "c<|end|>", "completion": "d<|end|>"})" "\n"
             R"({"prompt": "ca", "completion": "b"})" "\n" R"({"prompt": "ab", "completion": ""})" "\n");
  const std::vector<std::int32_t> ids{27, 26, 2, 28, 27, 2, 28, 3, 28, 27, 2, 26, 28, 27, 26, 28};
  for (const char* loss : {"assistant", "completion", "last"}) {
    EXPECT_EQ(output(prepare(chat, {"--overwrite", "--loss", loss})).find("warning"), std::string::npos);
    expect_tokens(ids, {0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1});
  }
  output(prepare(chat, {"--overwrite", "--loss", "all"}));
  expect_tokens(ids, std::vector<std::uint8_t>(ids.size(), 1));
  write_file(chat + "/tokenizer_config.json", "{}");  // no eos
  refuse(prepare(chat, {"--overwrite"}), 65, {"c.jsonl:4: no token of the conversation counts", "--skip-empty"});
  expect_parts(output(prepare(chat, {"--overwrite", "--skip-empty"})),
               {"1 conversation without a token that counts left out", "warning: in 3 conversations no end-of-sequence"});
  write_rows(std::string(kTurns) + "\n");
  refuse(prepare(chat, {"--overwrite"}), 65, {"c.jsonl:1", "messages need a chat template", "--template chatml"});
}

// LLaMA-Factory's and ShareGPT's files are arrays.
TEST_F(Conversations, OfAnArrayAreRefusedWithTheWayOut) {
  const std::string chat = folder();
  for (const std::string rows : {"[{\"messages\": []}]", "[\n  {\"messages\": []}\n]\n"}) {
    write_rows(rows);
    refuse(prepare(chat), 65, {"c.jsonl:1:", "; if the file is one JSON array, write a line of each element: jq -c '.[]' "});
    refuse({"data", "prepare", "--input", folder_ / "c.jsonl", "--tokenizer", chat, "--output", folder_ / "c"}, 65,
           {"jq -c '.[]' "});
  }
  write_rows(std::string(kTurns) + "\n" + std::string(kTurns) + "\n");
  refuse({"tokenizer", "render", "--messages", folder_ / "c.jsonl", "--tokenizer", chat}, 65,
         {"c.jsonl:2:1: not valid JSON", "; one conversation is read: take a line of it, sed -n 1p " + (folder_ / "c.jsonl")});
}

TEST_F(Conversations, OfAForeignTemplateAreWarnedOf) {
  const std::string chat = folder();
  write_rows(std::string(kTurns) + "\n");
  EXPECT_EQ(output(prepare(chat)).find("warning: "), std::string::npos);
  write_file(folder_ / "own.jinja",
             "{% for m in messages %}<|a|>{{ m.content }}<|end|>{% endfor %}{{ '<|a|>' if add_generation_prompt }}");
  expect_parts(output(prepare(chat, {"--overwrite", "--template", folder_ / "own.jinja"})),
               {"warning: " + (folder_ / "own.jinja") + " writes \"<|a|>\", which is no token of tokenizer"});
}

TEST_F(Conversations, OfWhichATemplateLeavesSomethingOutAreCounted) {
  const std::string chat = folder();
  write_file(chat + "/chat_template.jinja",
             "{% for m in messages %}{% if m.role != 'critic' %}{{ m.role[0] }}{{ m.content }}<|end|>{% endif %}{% endfor %}"
             "{% if add_generation_prompt %}a{% endif %}");
  write_rows(std::string(kTurns) + "\n" +
             R"({"messages": [{"role": "critic", "content": "zzz"}, {"role": "assistant", "content": "b"}]})" "\n" +
             R"({"messages": [{"role": "user", "content": "b"}, {"role": "assistant", "content": "b"}], "tools": []})" "\n");
  expect_parts(output(prepare(chat, {"--workers", "2"})),
               {"warning: the chat template leaves out a part of 2 conversations, the first " + (folder_ / "c.jsonl") +
                ":2: messages[0], of role \"critic\"\n"});
}

TEST_F(Conversations, EndWithTheTokenBehindAnAnswer) {
  const std::string chat = folder();
  write_file(chat + "/tokenizer_config.json", R"({"eos_token": "<|doc|>"})");
  const auto tokenizer = load_tokenizer(chat);
  EXPECT_EQ(chat_marks(load_chat_source(chat, ""), *tokenizer).ends, std::vector<std::int32_t>{28});
  write_file(chat + "/chat_template.jinja", "{{ raise_exception('') }}");
  EXPECT_TRUE(chat_marks(load_chat_source(chat, ""), *tokenizer).ends.empty());
}

TEST_F(Conversations, AreRenderedAsTextAndNothingElse) {
  const std::string chat = folder();
  write_file(folder_ / "m.json", kTurns);
  EXPECT_EQ(output({"tokenizer", "render", "--messages", folder_ / "m.json", "--tokenizer", chat, "--add-generation-prompt"}),
            "<s>uab<|end|><|end|>aabb<|end|>a");
  EXPECT_EQ(output({"tokenizer", "render", "--messages", folder_ / "m.json", "--template", "chatml"}),
            "<|im_start|>user\nab<|end|><|im_end|>\n<|im_start|>assistant\nabb<|im_end|>\n");
  refuse({"tokenizer", "render", "--messages", folder_ / "m.json"}, 64, {"--tokenizer DIR", "chatml"});
  refuse({"tokenizer", "render", "--messages", folder_ / "m.json", "--tokenizer", folder_ / "gone"}, 64,
         {"--tokenizer = ", "no such folder"});
  EXPECT_EQ(output({"tokenizer", "render", "--messages", folder_ / "m.json", "--tokenizer", chat, "--ids"}),
            "27 20 26 23 24 4 13 3 24 25 28 0 26 1 28\n") << "as data prepare --chat writes them";
  refuse({"tokenizer", "render", "--messages", folder_ / "m.json", "--template", "chatml", "--ids"}, 64,
         {"--ids: no tokenizer says which", "--tokenizer"});
  refuse({"tokenizer", "render", "--messages", "How are you?", "--tokenizer", chat}, 65,
         {"\"content\": \"How are you?\"}]"});
  write_file(folder_ / "m.json", "[{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{}]}]");
  for (const char* name : {"chatml", "llama3"})
    refuse({"tokenizer", "render", "--messages", folder_ / "m.json", "--template", name}, 65, {"content is text"});
  write_file(folder_ / "m.json", kTurns);
  write_file(chat + "/chat_template.jinja", "{{ raise_exception('roles') }}");
  refuse({"tokenizer", "render", "--messages", folder_ / "m.json", "--tokenizer", chat}, 65, {"chat_template.jinja:1:", "roles"});
  write_file(folder_ / "date.jinja", "{% for m in messages %}{{ strftime_now('%d %b %Y %H:%M %A') }}{% endfor %}");
  const Arguments dated{"tokenizer", "render", "--messages", folder_ / "m.json", "--template", folder_ / "date.jinja"};
  const auto at = [&](const char* now) {
    Arguments all = dated;
    all.insert(all.end(), {"--now", now});
    return all;
  };
  EXPECT_EQ(output(at("2024-02-29")).substr(0, 26), "29 Feb 2024 00:00 Thursday");
  EXPECT_EQ(output(at("2026-11-29T13:05:00")).substr(0, 24), "29 Nov 2026 13:05 Sunday");
  EXPECT_EQ(output(dated).substr(6, 6), " " + local_time_text("%Y") + " ");
  for (const char* now : {"2023-02-29", "today", "2024-02-29T"}) refuse(at(now), 64, {"--now = ", "such as 2026-11-29"});
  write_rows(std::string(kTurns) + "\n");
  refuse(prepare(chat, {"--template", folder_ / "date.jinja", "--loss", "all"}), 65, {"by --now YYYY-MM-DD"});
  refuse(prepare(chat, {"--template", folder_ / "date.jinja", "--now", "today"}), 64, {"--now = \"today\""});
}

}  // namespace
}  // namespace trident
