// Everything computed from the option table agrees with it, and the committed page with the generator.
#include <set>

#include "core/file_io.h"
#include "tests/train/config_support.h"
#include "train/option_docs.h"
#include "train/option_table.h"

namespace trident {
namespace {

TEST(ConfigDocs, TableIsWellFormed) {
  std::set<std::string_view> paths, blocks;
  for (const OptionBlock& block : option_blocks()) EXPECT_TRUE(blocks.insert(block.name).second) << block.name;
  for (const Option& option : option_table()) {
    EXPECT_TRUE(paths.insert(option.path).second) << option.path;
    EXPECT_TRUE(block_of(option).empty() || blocks.contains(block_of(option))) << option.path;
    EXPECT_FALSE(option.doc.empty()) << option.path;
    EXPECT_EQ(option.doc.back(), '.') << option.path;
    EXPECT_EQ(find_option(option.path), &option);
  }
  EXPECT_EQ(find_option("no.such"), nullptr);
}

TEST(ConfigDocs, SchemaListsEveryOption) {
  const JsonValue schema = parse_json(to_json_text(options_schema(), 2), "schema");
  EXPECT_EQ(schema.find("additionalProperties")->as_bool(), false);
  const JsonValue* properties = schema.find("properties");
  for (const Option& option : option_table()) {
    const JsonValue* holder = properties;
    if (!block_of(option).empty()) {
      holder = properties->find(block_of(option));
      ASSERT_NE(holder, nullptr) << option.path;
      if (const JsonValue* any = holder->find("anyOf")) holder = &any->items().front();
      EXPECT_EQ(holder->find("additionalProperties")->as_bool(), block_of(option) == kModelBlock) << option.path;
      holder = holder->find("properties");
    }
    const JsonValue* entry = holder->find(key_of(option));
    ASSERT_NE(entry, nullptr) << option.path;
    EXPECT_NE(entry->find("description"), nullptr) << option.path;
    EXPECT_EQ(entry->find("default") == nullptr, option.fallback.empty()) << option.path;
    EXPECT_TRUE(entry->find("type") != nullptr || entry->find("anyOf") != nullptr || entry->find("enum") != nullptr) << option.path;
  }
}

TEST(ConfigDocs, SchemaKnowsRangesAndChoices) {
  const std::string text = to_json_text(options_schema());
  EXPECT_NE(text.find(R"("tensor":{"type":"integer","minimum":1,"maximum":65536)"), std::string::npos);
  EXPECT_NE(text.find(R"("enum":["gpipe","1f1b","interleaved"])"), std::string::npos);
  EXPECT_NE(text.find(R"("required":["model","run","batch","data"])"), std::string::npos);
}

TEST(ConfigDocs, HelpAndPageNameEveryOption) {
  const std::string help = options_help(), page = options_markdown();
  for (const Option& option : option_table()) {
    EXPECT_NE(help.find("  " + std::string(option.path) + ": "), std::string::npos) << option.path;
    EXPECT_NE(page.find("| `" + std::string(option.path) + "` |"), std::string::npos) << option.path;
  }
}

TEST(ConfigDocs, CommittedPageIsWhatTheTableSays) {
  EXPECT_EQ(read_file(std::string(TRIDENT_SOURCE_DIR) + "/docs/configuration.md"), options_markdown())
      << "run: trident docs configuration > docs/configuration.md";
}

}  // namespace
}  // namespace trident
