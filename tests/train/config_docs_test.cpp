// Everything computed from the option table agrees with it, and the committed page with the generator.
#include <set>
#include <sstream>

#include "core/file_io.h"
#include "tests/support/error_text.h"
#include "tests/train/config_support.h"
#include "train/config/option_docs.h"
#include "train/config/option_table.h"

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
      const std::string_view block = block_of(option), outer = block.substr(0, block.find('.'));
      holder = properties->find(outer);
      if (outer != block) holder = holder->find("properties")->find(block.substr(outer.size() + 1));
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
  expect_parts(text, {R"("tensor":{"type":"integer","minimum":1,"maximum":65536)", R"("enum":["gpipe","1f1b","interleaved"])",
                      R"("required":["model","batch","data"])"});
}

TEST(ConfigDocs, HelpAndPageNameEveryOption) {
  const std::string help = options_help(), page = options_markdown();
  for (const Option& option : option_table()) {
    EXPECT_NE(help.find("\n  " + std::string(option.path) + (option.fallback.empty() ? ", required" : " = ")), std::string::npos)
        << option.path;
    EXPECT_NE(page.find("| `" + std::string(option.path) + "` |"), std::string::npos) << option.path;
  }
}

TEST(ConfigDocs, HelpOfOneKeyShowsALegalSetting) {
  for (const Option& option : option_table()) {
    const std::string text = option_help(option.path);
    EXPECT_EQ(text.rfind(std::string(option.path) + ": ", 0), 0u) << text;
    expect_parts(text, {"  default    "});
    const auto at = text.find("--set ");
    EXPECT_EQ(at == std::string::npos, option.status == OptionStatus::kReserved) << text;
    if (at == std::string::npos) continue;
    std::string setting = text.substr(at + 6, text.find('\n', at) - at - 6);
    if (setting.front() == '\'') setting = setting.substr(1, setting.size() - 2);  // for a shell
    OptionValues values;
    EXPECT_NO_THROW(values.take_setting(setting)) << setting;
    EXPECT_EQ(values.at(option.path).origin, "--set") << setting;
    const auto file = text.find("  file       ") + 13;
    const std::string object = "{" + text.substr(file, text.find('\n', file) - file) + "}";
    EXPECT_NO_THROW(OptionValues().take_file(parse_json(object, "sample"), "sample")) << object;
  }
  expect_parts(option_help("parallel.zero"), {"SHARD_GRAD_OP = shard_grad_op"});
  expect_parts(option_help("parallel"), {"\n  parallel.tensor = 1\n"});
  EXPECT_EQ(option_help("parallel").find("batch.micro"), std::string::npos);
  EXPECT_EQ(option_help("parallel.tensr"), "");
}

TEST(ConfigDocs, HelpFitsItsWidth) {
  std::istringstream lines(options_help());
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), kHelpWidth) << line;
  EXPECT_EQ(help_paragraph("one two", 2), "  one two\n");
  const std::string word(kHelpWidth, 'x');
  EXPECT_EQ(help_paragraph("a " + word + " b", 2), "  a\n  " + word + "\n  b\n");
  EXPECT_EQ(help_paragraph(std::string(kHelpWidth - 4, 'y') + " z", 2), "  " + std::string(kHelpWidth - 4, 'y') + " z\n");
}

// Whoever copies an example has a configuration that is one.
TEST(ConfigDocs, ExamplesOfThePageAreConfigurations) {
  const std::string page = options_markdown(), fence = "```json\n";
  int examples = 0;
  for (std::size_t at = page.find(fence); at != page.npos; at = page.find(fence, at + 1), ++examples) {
    const std::size_t begin = at + fence.size(), end = page.find("```", begin);
    const std::string text = page.substr(begin, end - begin);
    const bool has_folder = text.find("init_from") != text.npos;  // which is not here
    const std::vector<std::string> instead{"model.init_from=null", "model.preset=llama-1m"};
    EXPECT_NO_THROW(parse_train_config(text, "example", has_folder ? instead : std::vector<std::string>())) << text;
  }
  EXPECT_EQ(examples, 3);
}

TEST(ConfigDocs, CommittedPageIsWhatTheTableSays) {
  EXPECT_EQ(read_file(std::string(TRIDENT_SOURCE_DIR) + "/docs/configuration.md"), options_markdown())
      << "run: trident docs configuration > docs/configuration.md";
}

}  // namespace
}  // namespace trident
