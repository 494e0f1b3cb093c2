// docs/coming_from.md: every key it names exists and takes the value shown, and the committed page is what the tables say.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string>

#include "app/subcommands.h"
#include "core/file_io.h"
#include "model/config/model_config.h"
#include "train/config/foreign_answers.h"

namespace trident {
namespace {

// Rows that lead to a key of the option table or of a model.
std::vector<ForeignKey> rows_with_keys() {
  std::vector<ForeignKey> rows;
  for (const ForeignSection& section : foreign_sections())
    for (const ForeignKey& row : section.keys)
      if (!row.to.empty() && !row.to.starts_with("trident ") && row.verdict != Verdict::kAlways && row.verdict != Verdict::kRefused)
        rows.push_back(row);
  return rows;
}

// A model key is one that the families' reader knows; what it says of a value is another matter.
TEST(ComingFrom, ModelKeysAreHuggingFaces) {
  for (const ForeignKey& row : rows_with_keys()) {
    if (!row.to.starts_with("model.") || find_option(key_of(row.to)) != nullptr) continue;
    const std::string_view key = key_of(row.to).substr(6);
    JsonValue model = parse_json(
        key.starts_with("n_")
            ? R"({"model_type": "gpt2", "vocab_size": 10, "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 8})"
            : R"({"model_type": "mistral", "vocab_size": 10, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
                  "num_key_value_heads": 2, "intermediate_size": 8, "max_position_embeddings": 8})",
        "m");
    if (model.find(key) == nullptr) model.set(key, JsonValue{});
    if (key == "clip_qkv") model.set("model_type", "olmo");  // which alone has it
    try {
      model_config_from_hf(model, "model", std::nullopt);
    } catch (const ConfigError& error) {
      EXPECT_EQ(std::string(error.what()).find("unknown key"), std::string::npos) << error.what();
    }
  }
}

TEST(ComingFrom, CommandsExist) {
  int commands = 0;
  for (const ForeignSection& section : foreign_sections())
    for (const ForeignKey& row : section.keys) {
      if (!row.to.starts_with("trident ")) continue;
      ++commands;
      const std::string_view rest = row.to.substr(8), name = rest.substr(0, rest.find(' '));
      const Subcommand* const command = find_subcommand(name);
      ASSERT_NE(command, nullptr) << row.to;
      const std::string_view behind = rest.substr(std::min(rest.size(), name.size() + 1));
      const std::string_view action = behind.substr(0, behind.find(' '));
      EXPECT_TRUE(command->run != nullptr || std::ranges::find(command->actions, action, &Subcommand::Action::name) !=
                                                 command->actions.end()) << row.to;
    }
  EXPECT_GE(commands, 1);
}

// Rows that become something have a key, and others a reason; no cell that answers "here" is empty.
TEST(ComingFrom, EveryRowSaysWhatToDo) {
  for (const ForeignSection& section : foreign_sections())
    for (const ForeignKey& row : section.keys)
      EXPECT_FALSE(row.verdict == Verdict::kMapped || row.verdict == Verdict::kNotBuilt ? key_of(row.to).empty() : row.note.empty())
          << row.names;
  std::istringstream page(coming_from_markdown());
  for (std::string line; std::getline(page, line);)
    for (const char* const verdict : {"| mapped |", "| differs |", "| not built |"})
      EXPECT_EQ(line.find(fmt::format("{}  |", verdict)), line.npos) << line;
}

TEST(ComingFrom, CommittedPageIsWhatTheTablesSay) {
  EXPECT_TRUE(read_file(TRIDENT_SOURCE_DIR "/docs/coming_from.md") == coming_from_markdown())
      << "run: trident docs coming-from > docs/coming_from.md";
}

}  // namespace
}  // namespace trident
