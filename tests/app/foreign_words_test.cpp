// docs/megatron_flags.md: every key it names exists and takes the value shown, and the committed page is what the table says.
#include "train/config/foreign_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "app/subcommands.h"
#include "core/file_io.h"
#include "model/config/model_config.h"
#include "train/config/option_check.h"

namespace trident {
namespace {

using Kind = ForeignWord::Kind;

TEST(MegatronFlags, KeysExistAndTakeTheirValues) {
  for (const ForeignWord& row : foreign_words()) {
    if (row.kind != Kind::kKey) continue;
    const Option* option = find_option(row.target);
    ASSERT_NE(option, nullptr) << row.target;
    if (row.value.empty()) continue;
    const JsonValue value = parse_json(row.value, row.flag);
    const bool planned = option->status == OptionStatus::kReserved ||
                         std::any_of(option->reserved_values.begin(), option->reserved_values.end(),
                                     [&](const ReservedValue& reserved) { return in_quotes(reserved.value) == row.value; });
    if (planned) {
      EXPECT_THROW(checked_value(*option, value, ""), ConfigError) << row.flag;
    } else {
      EXPECT_NO_THROW(checked_value(*option, value, "")) << row.flag;
    }
  }
}

// A model key is one that the families' reader knows; what it says of a value is another matter.
TEST(MegatronFlags, ModelKeysAreHuggingFaces) {
  for (const ForeignWord& row : foreign_words()) {
    if (row.kind != Kind::kModelKey) continue;
    JsonValue model = parse_json(
        row.target.starts_with("n_")
            ? R"({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8})"
            : R"({"model_type": "mistral", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                  "num_key_value_heads": 2, "intermediate_size": 8, "max_position_embeddings": 8})",
        "m");
    if (model.find(row.target) == nullptr) model.set(row.target, JsonValue{});
    try {
      model_config_from_hf(model, "model", std::nullopt);
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find("unknown key"), std::string::npos) << error.what();
    }
  }
}

TEST(MegatronFlags, CommandsExist) {
  int commands = 0;
  for (const ForeignWord& row : foreign_words()) {
    if (row.kind != Kind::kCommand) continue;
    ++commands;
    ASSERT_EQ(row.target.rfind("trident data ", 0), 0u) << row.target;
    const Subcommand* data = find_subcommand("data");
    const std::string_view action = row.target.substr(13, row.target.find(' ', 13) - 13);
    EXPECT_NE(std::ranges::find(data->actions, action, &Subcommand::Action::name), data->actions.end()) << action;
  }
  EXPECT_GE(commands, 1);
}

TEST(MegatronFlags, RowsAreWellFormed) {
  std::set<std::string_view> flags;
  for (const ForeignWord& row : foreign_words()) {
    EXPECT_TRUE(flags.insert(row.flag).second) << row.flag;
    const bool names_something = row.kind == Kind::kKey || row.kind == Kind::kModelKey || row.kind == Kind::kCommand;
    EXPECT_EQ(row.target.empty(), !names_something) << row.flag;
    EXPECT_TRUE(names_something || !row.note.empty()) << row.flag << ": say why";
    for (const std::string_view text : {row.flag, row.value, row.note}) EXPECT_EQ(text.find('|'), text.npos) << text;
  }
  EXPECT_GE(flags.size(), 80u);
}

TEST(MegatronFlags, WhatIsPlannedSaysSo) {
  const std::string page = megatron_flags_markdown();
  const auto line_of = [&](const std::string& flag) {
    const auto at = page.find("| `" + flag);
    EXPECT_NE(at, std::string::npos) << flag;
    return page.substr(at, page.find('\n', at) - at);
  };
  for (const Option& option : option_table()) {
    if (option.status != OptionStatus::kReserved) continue;
    for (const ForeignWord& row : foreign_words()) {
      if (row.target != option.path) continue;
      EXPECT_NE(line_of(std::string(row.flag.substr(0, row.flag.find(", ")))).find("until built"), std::string::npos) << row.flag;
    }
  }
  EXPECT_EQ(line_of("--tensor-model-parallel-size T").find("until built"), std::string::npos);
}

TEST(MegatronFlags, CommittedPageIsWhatTheTableSays) {
  EXPECT_TRUE(read_file(TRIDENT_SOURCE_DIR "/docs/megatron_flags.md") == megatron_flags_markdown())
      << "run: trident docs megatron-flags > docs/megatron_flags.md";
}

}  // namespace
}  // namespace trident
