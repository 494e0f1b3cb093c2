// Several data sets of one input: each is prepared apart, and none that is there already.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "import/import.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

Import read(const std::vector<std::string>& datasets) {
  std::vector<ForeignLeaf> leaves;
  for (const std::string& dataset : datasets)
    leaves.push_back({ForeignSystem::kAxolotl, "a.yaml", static_cast<int>(leaves.size()) + 1, 1,
                      fmt::format("datasets[{}].path", leaves.size()), dataset});
  return import_leaves(leaves);
}

TEST(SeveralDatasets, AreWrittenApart) {
  const Import import = read({"a/train.jsonl", "b/it's.jsonl", "b/train.jsonl"});
  const std::string first = import.keys[0].note, quoted = import.keys[1].note, last = import.keys[2].note;
  EXPECT_TRUE(first.ends_with("trident data prepare --chat --input a/train.jsonl --tokenizer MODEL --loss assistant --output "
                              "data/train")) << first;
  EXPECT_NE(quoted.find(R"(--input 'b/it'\''s.jsonl' )"), quoted.npos) << quoted;
  EXPECT_TRUE(last.ends_with(R"(--output data/train_2, then --set data.train='["data/train","data/it'\''s","data/train_2"]')"))
      << last;
}

TEST(SeveralDatasets, OfOneValueAreWrittenApart) {
  for (const auto& [system, value] :
       {std::pair{ForeignSystem::kLlamaFactory, JsonValue("a.jsonl, b.jsonl")},
        {ForeignSystem::kSwift, JsonValue(JsonValue::Array{"a.jsonl", "b.jsonl"})}}) {
    const std::string note = import_leaves({{system, "a.yaml", 1, 1, "dataset", value}}).keys[0].note;
    for (const char* const part : {"--input a.jsonl ", "--input b.jsonl ", R"(then --set data.train='["data/a","data/b"]')"})
      EXPECT_NE(note.find(part), note.npos) << note;
  }
}

TEST(SeveralDatasets, AreLeftWhereTheyArePrepared) {
  const TemporaryFolder folder;
  for (const char* const file : {"a.bin", "a.idx", "b.bin", "b.idx"}) std::ofstream(folder / file) << "";
  const std::string a = folder / "a", b = folder / "b";
  const Import some = read({a, "c.jsonl"});
  EXPECT_EQ(some.keys[0].note, "has token files already");
  EXPECT_TRUE(some.keys[1].note.ends_with(fmt::format(R"(then --set data.train='["{}","data/c"]')", a))) << some.keys[1].note;
  const Import all = read({a, b});
  const auto found = std::ranges::find(all.values, "data.train", &ImportedValue::path);
  ASSERT_NE(found, all.values.end());
  EXPECT_EQ(found->value, JsonValue(JsonValue::Array{a, b}));
  EXPECT_TRUE(read({a, a}).prepared.empty());
}

}  // namespace
}  // namespace trident
