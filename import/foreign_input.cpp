#include "import/foreign_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/file_io.h"
#include "import/command_line.h"
#include "import/shell_reader.h"
#include "import/text_limits.h"
#include "import/toml_reader.h"
#include "import/yaml_reader.h"

namespace trident {
namespace {

constexpr std::string_view kKnown =
    "YAML of Accelerate, OLMo, TRL, ms-swift, axolotl and LLaMA-Factory, JSON of DeepSpeed, TOML and JSON of torchtitan, "
    "arguments in JSON, and commands: accelerate launch, torchrun, deepspeed, mpirun, srun, python, trl, swift, axolotl, "
    "llamafactory-cli";

// A name for --from, and keys of which a file of this system alone has one, where it has none of those above.
struct Kind {
  std::string_view name;
  ForeignSystem system;
  std::string_view keys;
};
constexpr std::array<Kind, 9> kKinds = {{
    {"accelerate", ForeignSystem::kAccelerate, "compute_environment distributed_type"},
    {"olmo", ForeignSystem::kOlmo, "global_train_batch_size device_train_microbatch_size max_duration"},
    {"deepspeed", ForeignSystem::kDeepSpeed,
     "zero_optimization train_batch_size train_micro_batch_size_per_gpu zero_allow_untested_optimizer"},
    {"torchtitan", ForeignSystem::kTorchtitan, "job training parallelism activation_checkpoint"},
    {"axolotl", ForeignSystem::kAxolotl, "base_model"},
    {"swift", ForeignSystem::kSwift, "tuner_type train_type tuner_backend"},
    {"llama-factory", ForeignSystem::kLlamaFactory, "finetuning_type template cutoff_len"},
    {"trl", ForeignSystem::kHuggingFace,
     "model_name_or_path per_device_train_batch_size learning_rate num_train_epochs dataset_name output_dir fsdp fsdp_config"},
    {"megatron", ForeignSystem::kMegatron, ""},
}};

bool is_hugging_face(ForeignSystem system) {
  return system == ForeignSystem::kHuggingFace || system == ForeignSystem::kOthers || base_of(system);
}

constexpr std::size_t kMaxForeignKeys = 5'000;  // of all inputs together: messages list every place that says the same

// Tells what a text is written in, by its first line that says something.
enum class Format : std::uint8_t { kJson, kYaml, kToml, kPython, kShell };
Format format_of(std::string_view text, std::string_view file) {
  if (file.ends_with(".py")) return Format::kPython;
  if (file.ends_with(".json")) return Format::kJson;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    line.remove_prefix(std::min(line.size(), line.find_first_not_of(" \t\r")));
    if (line.empty() || (line[0] == '#' && !line.starts_with("#!")) || line.starts_with("//") || line.starts_with("/*")) continue;
    if (line.starts_with("#!")) return line.find("python") != line.npos ? Format::kPython : Format::kShell;
    if (line[0] == '{') return Format::kJson;
    if (line[0] == '[' && !line.starts_with("[ ") && !line.starts_with("[[ ")) return Format::kToml;
    if (line.starts_with("---") || line.starts_with("%YAML")) return Format::kYaml;
    for (const std::string_view word : {"import ", "from ", "def ", "class ", "\"\"\"", "@"})
      if (line.starts_with(word)) return Format::kPython;
    const std::size_t end = line.find_first_of(" \t:=", line[0] == '"' || line[0] == '\'' ? line.find(line[0], 1) : 0);
    const std::string_view behind = end == line.npos ? "" : line.substr(end);
    if (end > 0 && behind.starts_with(":") && (behind.size() == 1 || behind[1] == ' ' || behind[1] == '\r')) return Format::kYaml;
    return behind.starts_with(" = ") ? Format::kToml : Format::kShell;
  }
  return Format::kShell;
}

// Whether DeepSpeed has such a key, or a block of that name with such a key in it.
bool is_of_deepspeed(const JsonMember& member) {
  const auto knows = [](std::string_view key) { return find_foreign_key(ForeignSystem::kDeepSpeed, key, "") != nullptr; };
  if (!member.value.is_object()) return knows(member.key);
  return std::ranges::any_of(member.value.members(),
                             [&](const JsonMember& inner) { return knows(fmt::format("{}.{}", member.key, inner.key)); });
}

ForeignSystem system_of(const JsonValue& value, Format format, std::string_view file) {
  const auto has_object = [&](std::string_view key) {
    const JsonValue* const member = value.find(key);
    return member != nullptr && member->is_object();
  };
  if (has_object("run") || has_object("batch") || has_object("lr_schedule"))
    throw ConfigError(
        fmt::format("{}: this is a configuration of Trident's already; use it by trident train --config {}", file, file));
  for (const Kind& kind : kKinds)
    for (const JsonMember& member : value.members())
      if (is_listed(member.key, kind.keys) && (format != Format::kYaml || kind.system != ForeignSystem::kTorchtitan))
        return kind.system;  // nanotron's YAML has such blocks, too
  if (value.find("model") != nullptr && value.find("dataset") != nullptr && !has_object("model")) return ForeignSystem::kSwift;
  const bool may_be_deepspeed = format == Format::kJson && value.find("model_type") == nullptr;
  if (may_be_deepspeed && std::ranges::any_of(value.members(), is_of_deepspeed)) return ForeignSystem::kDeepSpeed;
  throw ConfigError(fmt::format("{}: no known kind of configuration; import reads {}, and trident help KEY answers keys of others, "
                                "such as NeMo; --from KIND says which it is", file, kKnown));
}

class Inputs {
 public:
  Inputs(std::string_view from, const std::vector<std::string>& without) : without_(without) {
    if (from.empty()) return;
    const auto kind = std::ranges::find(kKinds, from, &Kind::name);
    if (kind == kKinds.end()) {
      std::string names;
      for (const Kind& known : kKinds) names += fmt::format("{}{}", names.empty() ? "" : ", ", known.name);
      throw ConfigError(fmt::format("--from {}: no such kind; they are {}", in_quotes(from), names));
    }
    from_ = kind->system;
  }
  void read_given(const std::string& file) {
    if (std::error_code error; file != "-" && !file_exists(file)) {
      const std::string name = in_quotes(file, 200);
      if (folder_exists(file)) throw ConfigError(fmt::format("{}: a folder; give the files in it", name));
      if (std::filesystem::exists(file, error))
        throw ConfigError(fmt::format("{}: no regular file; give - and its text as standard input", name));
      throw ConfigError(fmt::format("{}: no such file; correct its name", name));
    }
    const std::size_t first = leaves_.size();
    read(file, nullptr, from_, "");
    for (std::size_t i = first; i < leaves_.size(); ++i) {
      if (leaves_.size() > kMaxForeignKeys)
        refuse_at(file, leaves_[i].line, leaves_[i].column,
                  fmt::format("more than {} keys and flags; give the configuration alone", kMaxForeignKeys));
      i += follow(i, first);
    }
  }
  // Arguments of `megatron sft`, of its command and its file, are Megatron-LM's where ms-swift has none of that name.
  std::vector<ForeignLeaf> take() {
    const auto is_megatron = [](const ForeignLeaf& leaf) {
      return leaf.key == "program" && leaf.value.is_string() && leaf.value.as_string().starts_with("megatron ");
    };
    const bool passes_on = std::ranges::any_of(leaves_, is_megatron);
    for (ForeignLeaf& leaf : leaves_) {
      if (!passes_on || leaf.system != ForeignSystem::kSwift) continue;
      const ForeignKey* const own = find_foreign_key(leaf.system, leaf.key, "");
      const bool is_own = own != nullptr && (own->verdict != Verdict::kRefused ||
                                             plain_foreign_name(leaf.key) == "loss_scale");  // a name of weights there, no number
      const bool is_others = foreign_tables().find_key(ForeignSystem::kMegatron, leaf.key) != nullptr;
      if (!is_own && is_others) leaf.system = ForeignSystem::kMegatron;
    }
    return std::move(leaves_);
  }

 private:
  struct Known {
    std::string name;  // by which it was read
    std::optional<ForeignSystem> system = {};
  };

  // One byte more than the limit, at most.
  static std::string text_of(const std::string& file) {
    std::string text(kMaxForeignBytes + 1, '\0');
    if (file == "-") {
      std::cin.read(text.data(), static_cast<std::streamsize>(text.size()));
      text.resize(static_cast<std::size_t>(std::cin.gcount()));
      return text;
    }
    try {
      const RandomAccessFile opened(file);
      text = opened.text(0, std::min(std::ssize(text), opened.size()));
    } catch (const DataError& error) {
      throw ConfigError(error.what());
    }
    return text;
  }

  // `by` names the file, unless the user does. `prefix` goes before the keys of a file of a part of its system's. A file is read
  // once, whatever its names.
  const Known& read(const std::string& file, const ForeignLeaf* by, std::optional<ForeignSystem> system, std::string_view prefix) {
    const auto written = file == "-" ? written_.end() : written_.find(shell_file_name(file));
    const bool is_written = by != nullptr && written != written_.end() && written->second.unknown.empty();
    const std::string identity = file == "-"  ? file
                                 : is_written ? written->first
                                              : std::filesystem::weakly_canonical(file).string();
    const auto [known, is_new] = known_.try_emplace(identity, Known{file});
    if (!is_new) return known->second;
    if (by != nullptr && folders_.contains(by->file)) folders_[file] = folders_[by->file];
    const std::string whole = is_written ? written->second.text : text_of(file);
    check_foreign_text(whole, file);
    const std::string_view text = std::string_view(whole).substr(whole.starts_with("\xEF\xBB\xBF") ? 3 : 0);  // no mark of UTF-8
    const Format format = format_of(text, file);
    if (format == Format::kPython)
      throw ConfigError(fmt::format("{}: a Python program, which import does not execute; print its configuration as JSON there, "
                                    "and import that", file));
    if (format == Format::kShell && by != nullptr)
      refuse_at(by->file, by->line, by->column, fmt::format("{} names {}, which is neither YAML, JSON nor TOML; correct its name",
                                                            in_quotes(by->key), in_quotes(file)));
    if (format == Format::kShell) return read_commands(text, file, system), known->second;
    JsonValue value = format == Format::kJson
                          ? parse_json(text, file, {.max_bytes = kMaxForeignBytes, .max_values = kMaxForeignValues})
                      : format == Format::kToml ? read_toml(text, file)
                                                : read_yaml(text, file, YamlTyping::kPyYaml);
    if (!value.is_object()) throw ConfigError(fmt::format("{}:1:1: no keys; import reads {}", file, kKnown));
    const ForeignSystem own = system ? *system : system_of(value, format, file);
    if (format == Format::kYaml && (own == ForeignSystem::kOlmo || own == ForeignSystem::kLlamaFactory))
      value = read_yaml(text, file, YamlTyping::kOmegaConf);
    known->second.system = own;
    if (value.find("fsdp") != nullptr || value.find("fsdp_config") != nullptr) prefix = "";
    flatten({own, file, 1, 1, std::string(prefix), {}}, value, leaves_);
    return known->second;
  }
  void read_commands(std::string_view text, const std::string& file, std::optional<ForeignSystem> system) {
    std::optional<int> line, column;
    bool again = false;
    if (system == ForeignSystem::kAccelerate || system == ForeignSystem::kDeepSpeed) system = std::nullopt;  // no programs' systems
    const Batch batch = batch_of(text, file);
    const std::size_t first = leaves_.size();
    ShellFiles changes;
    const auto source = [&](const std::string& path) { return sourced(path, file); };
    std::vector<ShellCommand> commands = read_shell(text, file, kCommandSettings, batch.variables, &changes, source);
    const auto starts = [&](const ShellCommand& command) {
      return leaves_of_command(command, file, system, batch.leaves).has_value();
    };
    if (std::ranges::none_of(commands, starts))  // the arguments may decide it, which a refusal says then
      commands = read_shell(text, file, kCommandSettings, batch.variables, &changes, source, true);
    for (const ShellCommand& command : commands) {
      const ShellWord& word = command.words.front();
      const bool is_there = line == word.line && column == word.column;  // as the one that was found
      if (is_there && !command.doubt.empty()) {
        again = true;
        continue;
      }
      std::optional<std::vector<ForeignLeaf>> leaves = leaves_of_command(command, file, system, batch.leaves);
      if (!leaves) continue;
      again |= line.has_value();
      const auto is_same = [](const ForeignLeaf& a, const ForeignLeaf& b) {
        const ForeignKey* const row = find_foreign_key(a.system, a.key, "");
        return a.key == b.key && (a.value == b.value || (row != nullptr && row->verdict == Verdict::kLauncher));
      };
      if (line && std::ranges::equal(*leaves, std::span(leaves_).subspan(first), is_same)) continue;  // each machine's
      if (is_there)
        refuse_at(file, word.line, word.column,
                  "the script runs this command again with other values; write those of the run that is meant in their place");
      if (line)
        refuse_at(file, word.line, word.column,
                  fmt::format("a second command of a training, beside that in line {}; give import one of them", *line));
      line = word.line, column = word.column;
      folders_[file] = command.folder;
      for (std::size_t i = 0; i < command.files; ++i) written_[changes[i].name] = changes[i];
      std::ranges::move(*leaves, std::back_inserter(leaves_));
    }
    if (again) leaves_[first].note = "the script runs this command again; the first time counts";
    if (!line)
      throw ConfigError(
          fmt::format("{}:1:1: no command of a training and no known kind of file; import reads {}; flags of other programs, "
                      "such as nanoGPT's, are answered one by one by trident train",
                      file, kKnown));
  }

  // The text of a shell file that a script reads.
  std::optional<std::string> sourced(const std::string& path, const std::string& script) const {
    const std::string beside = (std::filesystem::path(script).parent_path() / path).string();
    const std::string& file = file_exists(path) ? path : beside;
    if (!file_exists(file) || (file != beside && file_exists(beside) && text_of(path) != text_of(beside))) return std::nullopt;
    std::string text = text_of(file);
    try {
      check_foreign_text(text, file);
    } catch (const ConfigError&) {
      return std::nullopt;
    }
    const Format format = format_of(text, file);
    return format == Format::kShell ? std::optional(std::move(text)) : std::nullopt;
  }

  // The members of `value`, each with `leaf`'s key before its own.
  static void flatten(const ForeignLeaf& leaf, const JsonValue& value, std::vector<ForeignLeaf>& out) {
    if (value.is_array() && std::ranges::any_of(value.items(), &JsonValue::is_object)) {
      for (std::size_t i = 0; i < value.items().size(); ++i) {
        ForeignLeaf inner = leaf;
        inner.key += fmt::format("[{}]", i);
        inner.line = value.items()[i].line(), inner.column = value.items()[i].column();
        flatten(inner, value.items()[i], out);
      }
      return;
    }
    const bool is_whole = leaf.system == ForeignSystem::kTorchtitan && leaf.key == "model_spec.model";  // keys of all layers
    if (!value.is_object() || is_whole || (value.members().empty() && !leaf.key.empty())) {
      out.push_back(leaf);
      out.back().value = value;
      return;
    }
    const bool is_program = is_hugging_face(leaf.system),
               is_deepspeed = is_program && is_listed(leaf.key, "deepspeed deepspeed_config"),
               is_accelerate = is_program && is_listed(leaf.key, "fsdp_config parallelism_config");
    for (const JsonMember& member : value.members()) {
      ForeignLeaf inner = leaf;
      if (is_deepspeed) inner.system = ForeignSystem::kDeepSpeed, inner.key = "";
      if (is_accelerate) inner.system = ForeignSystem::kAccelerate;
      if (member.value.line() > 0) inner.line = member.value.line(), inner.column = member.value.column();
      inner.key += (inner.key.empty() ? "" : ".") + member.key;
      flatten(inner, member.value, out);
    }
  }

  // Reads what the leaf names, and takes apart what it says in JSON. How many leaves it became beside its own place.
  std::size_t follow(std::size_t i, std::size_t first) {
    const ForeignLeaf leaf = leaves_[i];
    if (!leaf.value.is_string() || leaf.is_replaced || is_named(leaf.key, without_)) return 0;
    const std::string &text = leaf.value.as_string(), name = plain_foreign_name(leaf.key);
    const bool is_program = is_hugging_face(leaf.system), is_accelerate = leaf.system == ForeignSystem::kAccelerate;
    if (is_program && leaf.key.starts_with('-') && text.starts_with('{')) {
      const JsonValue value = parse_json(text, fmt::format("{}:{}:{}: {}", leaf.file, leaf.line, leaf.column, leaf.key),
                                         {.comments = false, .max_values = kMaxForeignValues});
      std::vector<ForeignLeaf> parts;
      flatten({leaf.system, leaf.file, leaf.line, leaf.column, name, {}}, value, parts);
      for (ForeignLeaf& part : parts) part.line = leaf.line, part.column = leaf.column;
      const auto at = leaves_.erase(leaves_.begin() + static_cast<std::ptrdiff_t>(i));
      leaves_.insert(at, parts.begin(), parts.end());
      return parts.size() - 1;  // -1 where there are none: the loop adds 1
    }
    const ForeignKey* const row = find_foreign_key(leaf.system, name, text);
    const bool is_word = row != nullptr && row->verdict == Verdict::kMapped;  // for a file that ms-swift or TRL brings along
    const bool is_deepspeed = is_accelerate ? is_listed(name, "deepspeed_config_file deepspeed_config.deepspeed_config_file")
                              : leaf.system == ForeignSystem::kMegatron
                                  ? name == "deepspeed_config"
                                  : is_program && is_listed(name, "deepspeed deepspeed_config");
    const bool is_fsdp = is_program && (name == "fsdp_config" || (name == "fsdp" && is_configuration(text)));
    const bool is_launch = is_program && leaf.key.starts_with('-') && name == "accelerate_config" && is_configuration(text);
    const bool is_config = is_accelerate                                             ? name == "config_file"
                           : leaf.system == ForeignSystem::kTorchtitan               ? name == "job.config_file"
                           : is_program || leaf.system == ForeignSystem::kOlmo ? name == "config"
                                                                                     : false;
    if (text.empty() || text == "none" || !((is_deepspeed && !is_word) || is_fsdp || is_launch || is_config)) return 0;
    const bool is_open = leaf.system == ForeignSystem::kOthers && is_config;
    const auto& [file, system] = read(find_file(leaf, text), &leaf,
                                      is_deepspeed ? std::optional(ForeignSystem::kDeepSpeed)
                                      : is_launch  ? std::optional(ForeignSystem::kAccelerate)
                                      : is_open    ? std::nullopt
                                                   : std::optional(leaf.system),
                                      is_fsdp ? "fsdp_config" : "");
    if (name == "fsdp") leaves_[i].is_replaced = true, leaves_[i].remark = "its file is read";
    const auto script = folders_.find(leaf.file);
    if (script != folders_.end() && !script->second && std::filesystem::path(text).is_relative())
      leaves_[i].note = fmt::format("{} is taken, as nobody knows where the script goes by cd", file);
    if (file == leaf.file)
      refuse_at(file, leaf.line, leaf.column,
                fmt::format("{} names the file that it stands in; leave it out", in_quotes(leaf.key)));
    const ForeignSystem own = is_open ? system.value_or(leaf.system) : leaf.system;
    for (std::size_t k = is_open ? first : leaves_.size(); k < leaves_.size(); ++k) {
      const bool is_named = leaves_[k].key != "program" || find_foreign_key(own, "program", "") != nullptr;
      if (leaves_[k].system == ForeignSystem::kOthers && is_named) leaves_[k].system = own;
    }
    if (!is_launch) replace_keys(file, own, first, leaf.file);
    return 0;
  }
  // A program's flags go before its own file, and those of accelerate launch before its YAML.
  void replace_keys(const std::string& file, ForeignSystem system, std::size_t first, const std::string& by) {
    std::map<std::string, const ForeignLeaf*> flags;
    for (std::size_t k = first; k < leaves_.size(); ++k)
      if (const ForeignLeaf& leaf = leaves_[k]; leaf.system == system && leaf.file == by && !leaf.is_replaced)
        flags.emplace(setting_of(leaf), &leaf);
    for (ForeignLeaf& leaf : leaves_) {
      const auto flag = leaf.file == file && leaf.system == system ? flags.find(setting_of(leaf)) : flags.end();
      if (flag == flags.end()) continue;
      leaf.is_replaced = true;
      leaf.remark = fmt::format("{} {} replaces it", place_of(*flag->second), flag->second->key);
    }
  }
  // One name for the flag and for the key of the file: Accelerate's flags have no block before them.
  static std::string setting_of(const ForeignLeaf& leaf) {
    const std::string name = plain_foreign_name(leaf.key);
    if (leaf.system != ForeignSystem::kAccelerate) return name;
    if (is_listed(name, "multi_gpu use_deepspeed use_fsdp use_megatron_lm")) return "distributed_type";
    const std::string other = other_foreign_name(leaf.system, name), &own = other.empty() ? name : other;
    return own.substr(own.find('.') + 1);
  }
  // A program looks in the folder that it runs in: the working directory, unless the script goes elsewhere. Files that lie together
  // name one another, and a repository's files are named from its top.
  std::string find_file(const ForeignLeaf& leaf, const std::string& name) const {
    namespace fs = std::filesystem;
    const auto refuse = [&](std::string_view why) {
      refuse_at(leaf.file, leaf.line, leaf.column, fmt::format("{} names {}, {}", in_quotes(leaf.key), in_quotes(name), why));
    };
    const fs::path folder = leaf.file == "-" ? "" : fs::path(leaf.file).parent_path();
    const auto script = folders_.find(leaf.file);
    const std::string gone = script == folders_.end() ? "" : script->second.value_or(""), beside = (folder / name).string();
    if (const auto written = written_.find(shell_file_name((fs::path(gone) / name).string())); written != written_.end()) {
      if (written->second.unknown.empty()) return written->first;
      refuse(fmt::format("which the script writes: {}; make the file, and give import the command alone, or go on without it: "
                         "--without {}", written->second.unknown, plain_foreign_name(leaf.key)));
    }
    if (const std::string there = (fs::path(gone) / name).string(); !gone.empty() && file_exists(there)) return there;
    if (!gone.empty() && fs::path(name).is_relative())
      refuse(fmt::format("and there is no such file in {}, where the script goes; put it there, or give its whole path", gone));
    if (file_exists(name) && file_exists(beside) && text_of(name) != text_of(beside))
      refuse(fmt::format("and there are two such files, in the working directory and beside {}; name one of them by its whole path",
                         leaf.file));
    for (const std::string& one : {beside, name})
      if (file_exists(one)) return one;
    const fs::path plain = fs::path(name).lexically_normal();
    const bool is_deep = plain.is_relative() && plain.has_parent_path() && *plain.begin() != "..";
    if (is_deep)  // up to the top of the repository
      for (fs::path above = fs::absolute(folder / ".").lexically_normal();
           above.has_relative_path() && !is_there((above / ".git").string()); above = above.parent_path())
        if (const std::string there = (above.parent_path() / plain).string(); file_exists(there)) return there;
    std::string where = "in the working directory";
    if (!folder.empty() && beside != name)
      where = fmt::format("beside {}{} or {}", leaf.file, is_deep ? ", in the folders above it" : "", where);
    refuse(fmt::format("and there is no such file {}; put it there", where));
    return "";
  }

  const std::vector<std::string>& without_;
  std::optional<ForeignSystem> from_;
  std::vector<ForeignLeaf> leaves_;
  std::map<std::string, ShellFile, std::less<>> written_;  // by the script, before its command
  // That scripts go to before their command, and for the files that it names; nothing: nobody knows which.
  std::map<std::string, std::optional<std::string>> folders_;
  std::map<std::string, Known> known_;  // files by their whole paths, without links
};

}  // namespace

std::string place_of(const ForeignLeaf& leaf) { return fmt::format("{}:{}", leaf.file, leaf.line); }

bool is_named(std::string_view key, const std::vector<std::string>& names) {
  return std::ranges::find(names, plain_foreign_name(key), plain_foreign_name) != names.end();
}

std::vector<ForeignLeaf> read_foreign_inputs(const std::vector<std::string>& files, std::string_view from,
                                             const std::vector<std::string>& without) {
  Inputs inputs(from, without);
  for (const std::string& file : files) inputs.read_given(file);
  return inputs.take();
}

}  // namespace trident
