#include "import/foreign/foreign_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "train/config/option_check.h"

namespace trident {
namespace {

using enum Verdict;
using S = ForeignSystem;

constexpr ForeignKey kTrainerRows[] = {
    {"fsdp_*", kAlways},
    {"fsdp_config.*", kDiffers},
    {"lr, learning_rate", kMapped, "optimizer.lr"},
    {"schedule", kRefused},
    {"schedule = cosine, cosine_warm", kMapped, "lr_schedule.type", "\"cosine\""},
    {"stage = 2", kMapped, "parallel.zero"},
    {"fsdp_size", kMapped, "parallel.data"},
    {"groups", kDiffers},
    {"groups.lr", kMapped, "optimizer.lr"},
};
constexpr ForeignKey kSwiftRows[] = {{"lr", kRefused}, {"fsdp = fsdp2", kMapped}};
constexpr ForeignSection kSections[] = {{S::kHuggingFace, "Trainer", kTrainerRows}, {S::kSwift, "ms-swift", kSwiftRows}};

const ForeignKey* find(ForeignSystem system, std::string_view name, std::string_view value = "x") {
  static const ForeignTables tables(kSections);
  return tables.find(system, name, value);
}

TEST(ForeignKey, NamesAndValuesAreTakenApart) {
  const ForeignNames two = names_of({"a, b-c = V, W W", kMapped});
  EXPECT_EQ(two.names, (std::vector<std::string_view>{"a", "b-c"}));
  EXPECT_EQ(two.values, (std::vector<std::string_view>{"V", "W W"}));
  EXPECT_EQ(names_of({"a.b", kMapped}).names, std::vector<std::string_view>{"a.b"});
  EXPECT_TRUE(names_of({"a.b", kMapped}).values.empty());
}

TEST(ForeignKey, ARowThatNamesTheValueGoesBeforeOneThatNamesNone) {
  EXPECT_EQ(find(S::kHuggingFace, "schedule", "COSINE"), &kTrainerRows[4]);
  EXPECT_EQ(find(S::kHuggingFace, "--schedule", "linear"), &kTrainerRows[3]);
  EXPECT_EQ(find(S::kHuggingFace, "stage", "2.0"), &kTrainerRows[5]);
  EXPECT_EQ(find(S::kHuggingFace, "stage", "3"), nullptr);
}

TEST(ForeignKey, HyphensAndUnderscoresAreOne) {
  EXPECT_EQ(find(S::kHuggingFace, "--learning-rate"), &kTrainerRows[2]);
  EXPECT_EQ(find(S::kHuggingFace, "learning_rate"), &kTrainerRows[2]);
  EXPECT_EQ(find(S::kHuggingFace, "Learning_Rate"), nullptr) << "the case of names counts";
}

TEST(ForeignKey, APrefixComesLastAndTheLongestOneFirst) {
  EXPECT_EQ(find(S::kHuggingFace, "fsdp_size"), &kTrainerRows[6]);
  EXPECT_EQ(find(S::kHuggingFace, "fsdp_other"), &kTrainerRows[0]);
  EXPECT_EQ(find(S::kHuggingFace, "fsdp_config.a"), &kTrainerRows[1]);
}

TEST(ForeignKey, AKeyWithinAListHasItsOwnRowOrThatOfTheList) {
  EXPECT_EQ(find(S::kHuggingFace, "groups[0].lr"), &kTrainerRows[8]);
  EXPECT_EQ(find(S::kSwift, "groups[12].eps[3]"), &kTrainerRows[7]);
}

TEST(ForeignKey, ASystemThatBuildsOnAnotherAsksItNext) {
  EXPECT_EQ(find(S::kSwift, "lr"), &kSwiftRows[0]);
  EXPECT_EQ(find(S::kSwift, "learning_rate"), &kTrainerRows[2]);
  EXPECT_EQ(find(S::kSwift, "fsdp", "fsdp1"), nullptr);
  EXPECT_EQ(find(S::kHuggingFace, "fsdp", "fsdp2"), nullptr);
  EXPECT_EQ(find(S::kDeepSpeed, "lr"), nullptr);
}

TEST(ForeignKey, TheNearestNameIsOfTheSystemOrItsBase) {
  const ForeignTables tables(kSections);
  EXPECT_EQ(tables.nearest(S::kSwift, "--learning-rte"), "learning_rate");
  EXPECT_EQ(tables.nearest(S::kDeepSpeed, "learning_rte"), "");
  EXPECT_EQ(foreign_tables().nearest(S::kAccelerate, "fsdp_config.ofload_params"), "fsdp_config.offload_params");
}

TEST(ForeignKey, ASettingHasOneRowWhateverItsNames) {
  for (const auto& [system, own, others] :
       {std::tuple{S::kAccelerate, "fsdp_offload_params", "fsdp_config.fsdp_offload_params fsdp_config.offload_params"},
        {S::kAccelerate, "zero_stage", "deepspeed_config.zero_stage"},
        {S::kAccelerate, "parallelism_config_tp_size", "parallelism_config.parallelism_config_tp_size parallelism_config.tp_size"},
        {S::kDeepSpeed, "zero_optimization.stage3_max_live_parameters", "zero_optimization.max_live_parameters"},
        {S::kMegatron, "no_log_x", "disable_log_x"},
        {S::kTorchtitan, "parallelism.tensor_parallel_degree", "training.tensor_parallel_degree"}}) {
    std::istringstream names(others);
    for (std::string name; names >> name;) {
      EXPECT_NE(find_foreign_key(system, name, "2"), nullptr) << name;
      EXPECT_EQ(find_foreign_key(system, name, "2"), find_foreign_key(system, own, "2")) << name;
    }
  }
  EXPECT_EQ(find_foreign_key(S::kTorchtitan, "training.steps", "2")->to, "run.steps") << "its own row counts";
  for (const char* const other : {"fsdp_config.mystery", "fsdp_config.num_processes", "deepspeed_config.num_processes"})
    EXPECT_EQ(find_foreign_key(S::kAccelerate, other, "2"), nullptr) << other;
}

// The names of all fields of the systems' configuration classes, and of all flags of Accelerate's launcher.
TEST(ForeignKey, EveryNameOfASystemHasAVerdict) {
  // Values, of which one is enough.
  const std::vector<const char*> any{"?"}, some{"?", "true", "false", "null", "1", "rope", "optim", "pretrain"};
  for (const auto& [file, system, least, values] : {std::tuple{"accelerate", S::kAccelerate, 396, any},
                                                    {"deepspeed", S::kDeepSpeed, 402, any},
                                                    {"hugging_face", S::kHuggingFace, 284, some},
                                                    {"swift", S::kSwift, 395, some},
                                                    {"megatron", S::kMegatron, 1008, some},
                                                    {"axolotl", S::kAxolotl, 478, some},
                                                    {"llama_factory", S::kLlamaFactory, 306, some},
                                                    {"torchtitan", S::kTorchtitan, 277, some},
                                                    {"olmo", S::kOlmo, 188, some}}) {
    std::ifstream lines(fmt::format("{}/tests/import/files/{}_names.txt", TRIDENT_SOURCE_DIR, file));
    int count = 0;
    for (std::string name; lines >> name;) {
      if (name == "#") {
        std::getline(lines, name);
        continue;
      }
      ++count;
      const S own = name.starts_with("fsdp_config.") ? S::kAccelerate : system;  // whose table has that block
      const auto has_row = [&](const char* value) { return find_foreign_key(own, name, value) != nullptr; };
      EXPECT_TRUE(std::ranges::any_of(values, has_row)) << file << ": " << name;
    }
    EXPECT_GE(count, least) << file;
  }
}

TEST(ForeignKey, RowsOfTheDataSayWhatTheyAreHere) {
  struct Row {
    S system;
    const char *name, *value;
    Verdict verdict;
    const char* part;
  };
  constexpr const char *kSystemText = "put {\"role\": \"system\"", *kTargets = "the targets that count are chosen with the data",
                       *kRates = "the rate that Trainer gives to step n + 1";
  for (const Row& row : {Row{S::kSwift, "system", "Be kind.", kDiffers, kSystemText},
                         {S::kLlamaFactory, "default_system", "Be kind.", kDiffers, kSystemText},
                         {S::kAxolotl, "default_system_message", "Be kind.", kDiffers, kSystemText},
                         {S::kAxolotl, "datasets[0].default_system_message", "Be kind.", kDiffers, kSystemText},
                         {S::kHuggingFace, "system_prompt", "Be kind.", kDiffers, kSystemText},
                         {S::kAxolotl, "chat_template_kwargs.x", "1", kDiffers, "changes the text"},
                         {S::kSwift, "response_prefix", "x", kDiffers, "changes the text"},
                         {S::kLlamaFactory, "enable_thinking", "true", kDiffers, "changes the text"},
                         {S::kAxolotl, "train_on_inputs", "false", kAlways, kTargets},
                         {S::kLlamaFactory, "train_on_prompt", "false", kAlways, kTargets},
                         {S::kAxolotl, "special_tokens.pad_token", "<pad>", kAlways, "padding has no part in the loss"},
                         {S::kLlamaFactory, "template", "qwen", kDiffers, "chatml is its form"},
                         {S::kSwift, "template", "qwen2_5", kDiffers, "chatml is its form"},
                         {S::kSwift, "template", "gemma", kDiffers, "such a name is left out"},
                         {S::kAxolotl, "chat_template", "llama3", kAlways, "has it built in"},
                         {S::kAxolotl, "val_set_size", "0.05", kDiffers, "drawn at random"},
                         {S::kSwift, "split_dataset_ratio", "0.0", kAlways, "nothing is set aside"},
                         {S::kAxolotl, "lr_scheduler", "cosine", kDiffers, kRates},
                         {S::kSwift, "lr_scheduler_type", "cosine", kDiffers, kRates},
                         {S::kLlamaFactory, "lr_scheduler_type", "inverse_sqrt", kDiffers, kRates},
                         {S::kHuggingFace, "lr_scheduler_type", "warmup_stable_decay", kDiffers, kRates}}) {
    const ForeignKey* const found = find_foreign_key(row.system, row.name, row.value);
    ASSERT_NE(found, nullptr) << row.name;
    EXPECT_EQ(found->verdict, row.verdict) << row.name;
    EXPECT_NE(found->note.find(row.part), std::string_view::npos) << row.name << ": " << found->note;
    EXPECT_EQ(found->to.find("NAME"), std::string_view::npos) << row.name << ": " << found->to;
  }
}

TEST(ForeignKey, EveryRowOfTheTablesIsWellFormed) {
  std::set<std::string> seen;
  for (const ForeignSection& section : foreign_sections())
    for (const ForeignKey& row : section.keys) {
      const ForeignNames parts = names_of(row);
      EXPECT_FALSE(parts.names.empty()) << row.names;
      for (const std::string_view name : parts.names) {
        EXPECT_FALSE(name.empty() || name.find_first_of("- ") != name.npos) << row.names;
        for (const std::string_view value : parts.values.empty() ? std::vector<std::string_view>{""} : parts.values)
          EXPECT_TRUE(seen.insert(fmt::format("{} {} = {}: {}", name_of(section.system), name, value, row.to)).second)
              << name << " stands twice";
      }
      EXPECT_FALSE(row.note.ends_with('.')) << row.names << ": " << row.note;
      const bool becomes_something = row.verdict == kMapped || row.verdict == kNotBuilt;
      EXPECT_TRUE(!becomes_something || !row.to.empty()) << row.names;
      EXPECT_TRUE(row.verdict != kRefused || !row.note.empty()) << row.names << ": a refusal says why";
    }
}

// A row's own value is one that its key takes, or a reserved one; a default is in words that the system's own rows know.
TEST(ForeignKey, EveryRowOfTheTablesNamesAKeyThatTakesItsValue) {
  for (const S system : {S::kSwift, S::kAxolotl, S::kLlamaFactory}) {
    const JsonValue defaults = parse_json(defaults_of(system), "defaults");
    for (const JsonMember& said : defaults.members()) {
      const std::string text = said.value.is_string() ? said.value.as_string() : to_json_text(said.value);
      const ForeignKey* const row = find_foreign_key(system, said.key, text);
      EXPECT_TRUE(row != nullptr && (row->verdict == kMapped || row->verdict == kDiffers)) << said.key;
    }
  }
  for (const ForeignSection& section : foreign_sections())
    for (const ForeignKey& row : section.keys) {
      if (!row.fallback.empty()) {
        const JsonValue words = parse_json(row.fallback, row.names);
        const std::string text = words.is_string() ? words.as_string() : to_json_text(words);
        EXPECT_NE(find_foreign_key(section.system, names_of(row).names.front(), text), nullptr) << row.names;
      }
      if (row.verdict != kMapped && row.verdict != kDiffers && row.verdict != kNotBuilt) continue;
      if (row.to.empty() || row.to.starts_with("trident ")) continue;
      const Option* const option = find_option(key_of(row.to));
      EXPECT_TRUE(option != nullptr || row.to.starts_with("model.")) << row.names << " becomes " << row.to;
      if (option == nullptr || row.value.empty() || fact_of(row.to) != row.to) continue;  // a fact has words of its own
      try {
        checked_value(*option, parse_json(row.value, row.names), "");
        EXPECT_TRUE(row.verdict != kNotBuilt || option->reserved) << row.names;
      } catch (const ConfigError& error) {
        EXPECT_NE(std::string_view(error.what()).find("not built"), std::string_view::npos) << row.names << ": " << error.what();
      }
    }
}

}  // namespace
}  // namespace trident
