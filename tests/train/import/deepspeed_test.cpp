// Accelerate's and DeepSpeed's files by their own tables: every key has a verdict, and each file of tests/import becomes what it says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>
#include <set>

#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "train/import/import.h"
#include "train/import/yaml_reader.h"

namespace trident {
namespace {

using S = ForeignSystem;

const std::string kImports = TRIDENT_SOURCE_DIR "/tests/import/";

std::vector<std::string> lines_of(const std::string& path) {
  const std::string text = read_file(path);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size(); at = std::min(text.find('\n', at), text.size()) + 1)
    lines.push_back(text.substr(at, text.find('\n', at) - at));
  return lines;
}

void flatten(const JsonValue& value, const std::string& key, S system, const std::string& file, std::vector<ForeignLeaf>& leaves) {
  if (value.is_object() && !value.members().empty())
    for (const auto& [name, member] : value.members()) flatten(member, key.empty() ? name : key + "." + name, system, file, leaves);
  else
    leaves.push_back({system, file, value.line(), value.column(), key, value});
}

std::vector<ForeignLeaf> leaves_of(const std::string& name, std::string_view text) {
  std::vector<ForeignLeaf> leaves;
  const bool is_yaml = name.ends_with(".yaml");
  flatten(is_yaml ? read_yaml(text, name, YamlTyping::kPyYaml) : parse_json(text, name), "", is_yaml ? S::kAccelerate : S::kDeepSpeed,
          name, leaves);
  return leaves;
}

Import imported(const std::string& name) { return import_leaves(leaves_of(name, read_file(kImports + name))); }
Import imported_text(const std::string& name, std::string_view text) { return import_leaves(leaves_of(name, text)); }

// "batch.micro=8 parallel.zero=\"zero2\"": what inputs say, and defaults of the system after a "?".
std::string values_of(const Import& import) {
  std::string all;
  for (const ImportedValue& value : import.values)
    all += (all.empty() ? "" : " ") + value.path + (value.is_default ? "?" : "") + "=" + to_json_text(value.value);
  return all;
}

std::string verdict_of(const Import& import, std::string_view key) {
  const auto found = std::ranges::find_if(import.keys, [&](const ImportedKey& one) { return one.leaf.key == key; });
  return found == import.keys.end() ? "no such key" : std::string(name_of(found->verdict));
}

TEST(AccelerateKeys, EveryOneHasAVerdictWhateverItsValue) {
  for (const std::string& key : lines_of(kImports + "accelerate_keys.txt"))
    EXPECT_NE(find_foreign_key(S::kAccelerate, key, "?"), nullptr) << key;
}

TEST(DeepSpeedKeys, EveryOneHasAVerdictWhateverItsValue) {
  for (const std::string& key : lines_of(kImports + "deepspeed_keys.txt"))
    EXPECT_NE(find_foreign_key(S::kDeepSpeed, key, "?"), nullptr) << key;
}

// Names of what a Python file has: fields of dataclasses, keys that the dialogue writes, flags of the launcher.
void add_fields(const std::string& path, std::set<std::string>& names) {
  static const std::map<std::string, std::string> blocks{
      {"DeepSpeedPlugin", "deepspeed_config."},           {"FullyShardedDataParallelPlugin", "fsdp_config."},
      {"MegatronLMPlugin", "megatron_lm_config.megatron_lm_"}, {"ParallelismConfig", "parallelism_config."},
      {"TorchContextParallelConfig", "parallelism_config."}, {"DeepSpeedSequenceParallelConfig", "parallelism_config."},
      {"TorchTensorParallelConfig", "parallelism_config."}, {"TorchTensorParallelPlugin", "torch_tp_plugin."},
      {"BaseConfig", ""},                                 {"ClusterConfig", ""},
      {"SageMakerConfig", ""}};
  const std::regex a_class("class (\\w+).*"), a_method("    (@|def ).*"), a_field("    ([a-z]\\w*): \\S.*");
  std::string prefix;
  bool is_decorated = false, is_inside = false;
  for (const std::string& line : lines_of(path)) {
    std::smatch found;
    if (line.starts_with('@')) is_decorated = line.starts_with("@dataclass");
    if (std::regex_match(line, found, a_class)) {
      const auto block = blocks.find(found[1]);
      prefix = block == blocks.end() ? found[1].str() + "." : block->second;
      is_inside = std::exchange(is_decorated, false);
    } else if (std::regex_match(line, a_method)) {
      is_inside = false;
    } else if (is_inside && std::regex_match(line, found, a_field)) {
      names.insert(prefix + found[1].str());
    }
  }
}

void add_matches(const std::string& path, const std::string& pattern, const std::function<std::string(const std::smatch&)>& name,
                 std::set<std::string>& names) {
  const std::regex regex(pattern);
  for (const std::string& line : lines_of(path))
    for (std::sregex_iterator at(line.begin(), line.end(), regex), end; at != end; ++at) names.insert(name(*at));
}

TEST(AccelerateKeys, TheListIsThatOfTheInstalledPackage) {
  const char* const folder = std::getenv("ACCELERATE_PACKAGE");
  if (folder == nullptr) GTEST_SKIP() << "ACCELERATE_PACKAGE names no folder of Accelerate 1.15";
  const std::string root = std::string(folder) + "/";
  std::set<std::string> names;
  for (const char* file : {"utils/dataclasses.py", "parallelism_config.py", "commands/config/config_args.py"})
    add_fields(root + file, names);
  add_matches(root + "commands/config/cluster.py", "(\\w+)_config\\[(prefix \\+ )?\"(\\w+)\"\\]", [](const std::smatch& found) {
    return found[1].str() + "_config." + (found[2].matched ? found[1].str() + (found[1] == "parallelism" ? "_config_" : "_") : "") +
           found[3].str();
  }, names);
  for (const char* pattern : {"^ *\"--?(\\w+)\",", "add_argument\\(\"--?(\\w+)\", ", "add_argument\\(\"-\\w\", \"--(\\w+)\","})
    add_matches(root + "commands/launch.py", pattern, [](const std::smatch& found) { return found[1].str(); }, names);
  for (const char* help : {"h", "help"}) names.erase(help);
  const std::vector<std::string> known = lines_of(kImports + "accelerate_keys.txt");
  EXPECT_EQ(std::vector(names.begin(), names.end()), known);
}

}  // namespace
}  // namespace trident
