#include "train/import/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "core/check.h"
#include "core/json_reader.h"

namespace trident {
namespace {

using Words = std::span<const ShellWord>;

bool is_among(std::string_view word, std::string_view words) {
  return !word.empty() && fmt::format(" {} ", words).find(fmt::format(" {} ", word)) != std::string::npos;
}
std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }
bool is_in(std::string_view part, std::string_view text) { return text.find(part) != text.npos; }

bool is_flag(std::string_view word) {
  return word.size() > 1 && word[0] == '-' && !(word[1] >= '0' && word[1] <= '9') && word[1] != '.';
}
// "tensor_model_parallel_size" of "--tensor-model-parallel-size=4".
std::string plain_name(std::string_view flag) {
  flag = flag.substr(0, flag.find('='));
  std::string name(flag.substr(std::min(flag.size(), flag.find_first_not_of('-'))));
  std::ranges::replace(name, '-', '_');
  return name;
}
bool is_configuration(std::string_view word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json") || word.ends_with(".toml");
}

// Words that begin a part of a command.
enum class Starter : std::uint8_t { kNone, kWrapper, kPython, kOuter, kRanks, kAccelerate, kProgram };
Starter starter(std::string_view word) {
  const std::string_view name = last_part(word);
  if (name.starts_with("python")) return Starter::kPython;
  if (is_among(name, "mpirun mpiexec srun")) return Starter::kOuter;
  if (is_among(name, "torchrun deepspeed")) return Starter::kRanks;
  if (name == "accelerate" || name == "accelerate-launch") return Starter::kAccelerate;
  if (name.ends_with(".py") || is_among(name, "swift trl axolotl llamafactory-cli run_train.sh")) return Starter::kProgram;
  if (is_among(name, "env exec time nohup sudo numactl uv poetry conda nsys ncu timeout stdbuf singularity apptainer docker"))
    return Starter::kWrapper;
  return Starter::kNone;
}

class Command {
 public:
  Command(const ShellCommand& command, const std::string& file, std::optional<ForeignSystem> system)
      : command_(command), words_(command.words), file_(file), forced_(system) {}

  std::optional<std::vector<ForeignLeaf>> leaves() {
    if (!take_launchers() || !take_program()) return std::nullopt;
    if (!command_.doubt.empty())
      fail(command_.words.front(),
           fmt::format("nobody knows whether this command runs: {}; give import the command alone", command_.doubt));
    return std::move(leaves_);
  }

 private:
  [[noreturn]] void fail(const ShellWord& word, std::string_view why) const {
    throw ConfigError(fmt::format("{}:{}:{}: {}", file_, word.line, word.column, why));
  }

  // Up to the program; false: there is none.
  bool take_launchers() {
    Starter kind = words_.empty() ? Starter::kNone : starter(words_[0].text);
    const auto is_program = [](const ShellWord& word) { return word.text.ends_with(".py"); };
    if (kind == Starter::kNone && !words_.empty() && !words_[0].unknown.empty() && std::ranges::any_of(words_, is_program))
      fail(words_[0], words_[0].unknown);
    while (kind == Starter::kWrapper) {
      do words_ = words_.subspan(1);
      while (!words_.empty() && starter(words_[0].text) == Starter::kNone);
      kind = words_.empty() ? Starter::kNone : starter(words_[0].text);
    }
    while (kind == Starter::kOuter || kind == Starter::kRanks || kind == Starter::kAccelerate || kind == Starter::kPython) {
      const std::string name(last_part(words_[0].text));
      const bool takes_module = kind != Starter::kOuter;
      words_ = words_.subspan(1);
      if (name == "accelerate") {
        if (words_.empty() || words_[0].text != "launch") return false;
        words_ = words_.subspan(1);
      }
      std::size_t end = 0;
      while (end < words_.size() && starter(words_[end].text) <= Starter::kWrapper &&
             !(takes_module && is_among(words_[end].text, "-m --module")))
        ++end;
      if (end == words_.size()) return false;
      const std::size_t first = leaves_.size();
      if (kind != Starter::kPython)
        take_flags(words_.first(end), kind == Starter::kAccelerate ? ForeignSystem::kAccelerate : ForeignSystem::kLauncher);
      if (kind == Starter::kOuter) {
        outer_.resize(leaves_.size());
        for (std::size_t i = first; i < leaves_.size(); ++i) {
        outer_[i] = name;
        if (leaves_[i].key == "-N") leaves_[i].key = name == "srun" ? "--nodes" : "--npernode";
      }
      }
      has_launcher_ |= kind != Starter::kPython;
      words_ = words_.subspan(end);
      kind = starter(words_[0].text);
      if (is_flag(words_[0].text)) {  // -m
        if (words_.size() < 2) return false;
        words_ = words_.subspan(1);
        kind = is_among(words_[0].text, "torch.distributed.run torch.distributed.launch") ? Starter::kRanks
               : words_[0].text == "accelerate.commands.launch"                           ? Starter::kAccelerate
                                                                                          : Starter::kProgram;
      }
      if (kind == Starter::kRanks || kind == Starter::kAccelerate) rename_outer();
    }
    return kind == Starter::kProgram;
  }
  // A launcher that starts another says nothing of ranks.
  void rename_outer() {
    for (std::size_t i = 0; i < outer_.size(); ++i)
      if (!outer_[i].empty()) leaves_[i].key = fmt::format("{}.{}", outer_[i], plain_name(leaves_[i].key));
    outer_.clear();
  }

  bool has_flag(std::string_view names) const {
    return std::ranges::any_of(words_,
                               [&](const ShellWord& word) { return is_flag(word.text) && is_among(plain_name(word.text), names); });
  }
  // The program's name and words; false: it trains nothing.
  bool take_program() {
    const ShellWord program = words_[0];
    const std::string name(last_part(program.text));
    words_ = words_.subspan(1);
    std::string_view action = "";
    if (is_among(name, "swift trl axolotl llamafactory-cli")) {
      if (words_.empty()) return false;
      action = words_[0].text;
      passes_on_ = name == "trl";
      words_ = words_.subspan(1);
      if (!is_among(action, "train sft pt rlhf dpo kto grpo rloo reward")) return false;
    }
    const bool has_file = !words_.empty() && !is_flag(words_[0].text) && is_configuration(words_[0].text);
    const bool is_titan = is_in("torchtitan", program.text) || name == "run_train.sh" || has_flag("job.config_file");
    ForeignSystem system = ForeignSystem::kHuggingFace;
    if (is_titan) system = ForeignSystem::kTorchtitan;
    else if (is_in("swift", program.text)) system = ForeignSystem::kSwift;
    else if (is_in("axolotl", program.text)) system = ForeignSystem::kAxolotl;
    else if (is_in("llamafactory", program.text)) system = ForeignSystem::kLlamaFactory;
    else if (name.starts_with("pretrain_") || has_flag("micro_batch_size tensor_model_parallel_size num_layers train_iters"))
      system = ForeignSystem::kMegatron;
    else if (has_file) system = ForeignSystem::kOthers;
    else if (!has_launcher_ && action.empty() &&
             !has_flag("model_name_or_path learning_rate per_device_train_batch_size output_dir deepspeed deepspeed_config config"))
      return false;
    if (is_titan && has_flag("module config") && !has_flag("job.config_file"))
      fail(program, "torchtitan's configuration is a Python program since 0.3; print the Config as JSON there and import that");
    system = forced_.value_or(system);
    // Tables that have such a row say whose defaults count by it.
    const std::string words = action.empty() ? program.text : fmt::format("{} {}", name, action);
    if (find_foreign_key(system, "program", words) != nullptr) add(system, program, "program", words);
    if (has_file) {
      add(system, words_[0], "config", words_[0].text);
      words_ = words_.subspan(1);
    }
    take_flags(words_, system);
    take_settings(system);
    return true;
  }
  void take_settings(ForeignSystem system) {
    for (const ShellWord& word : command_.settings) {
      const std::size_t equals = word.text.find('=');
      const std::string_view name = std::string_view(word.text).substr(0, equals);
      const bool is_titan = system == ForeignSystem::kTorchtitan;
      if (has_launcher_ || is_titan != is_among(name, "NGPU CONFIG_FILE")) continue;
      if (!is_titan && system != ForeignSystem::kSwift && system != ForeignSystem::kLlamaFactory) continue;
      add(name == "CONFIG_FILE" ? system : ForeignSystem::kLauncher, word,
          name == "CONFIG_FILE" ? "--job.config_file"
          : name == "NNODES"    ? "--nnodes"
                                : "--nproc_per_node",
          word.text.substr(equals + 1));
    }
  }

  // ---- flags
  void take_flags(Words words, ForeignSystem system) {
    for (std::size_t i = 0; i < words.size();) {
      const ShellWord& word = words[i++];
      const std::string& text = word.text;
      const std::size_t equals = text.find('=');
      if (text == "--" && system == ForeignSystem::kAxolotl)
        return take_flags(words.subspan(i), ForeignSystem::kAccelerate);  // `axolotl train` passes them on
      if (!is_flag(text) || equals != text.npos) {
        add(system, word, text.substr(0, equals), equals == text.npos ? JsonValue(true) : JsonValue(text.substr(equals + 1)));
        continue;
      }
      if (system == ForeignSystem::kLauncher && text.size() > 2 && text[1] != '-' &&
          std::all_of(text.begin() + 2, text.end(), [](char c) { return c >= '0' && c <= '9'; })) {  // -N4
        add(system, word, text.substr(0, 2), text.substr(2));
        continue;
      }
      const std::size_t first = i;
      while (i < words.size() && !is_flag(words[i].text)) ++i;
      JsonValue::Array values;
      for (std::size_t k = first; k < i; ++k) values.emplace_back(words[k].text);
      const auto unknown =
          std::ranges::find_if(words.subspan(first, i - first), [](const ShellWord& w) { return !w.unknown.empty(); });
      const bool is_known = unknown == words.subspan(first, i - first).end();
      add(system, word, text, values.empty() ? JsonValue(true) : values.size() == 1 ? values[0] : JsonValue(std::move(values)),
          is_known ? nullptr : &*unknown);
    }
  }
  // `unknown`: the word of the value that has no value here; else `word` itself may be one.
  void add(ForeignSystem system, const ShellWord& word, std::string key, JsonValue value, const ShellWord* unknown = nullptr) {
    if (unknown == nullptr && !word.unknown.empty()) unknown = &word;
    const auto knows = [&](ForeignSystem one) { return find_foreign_key(one, plain_name(key), "") != nullptr; };
    if (passes_on_ && system == ForeignSystem::kHuggingFace && !knows(system) && knows(ForeignSystem::kAccelerate))
      system = ForeignSystem::kAccelerate;
    if (unknown != nullptr && !unknown->is_parameter) {
      const ForeignKey* const row =
          unknown == &word && !is_flag(word.text) ? nullptr : find_foreign_key(system, plain_name(key), "");
      if (row == nullptr || (row->verdict != Verdict::kLauncher && row->verdict != Verdict::kAlways))
        fail(*unknown, unknown->unknown);
    }
    leaves_.push_back(
        {system, file_, word.line, word.column, std::move(key), std::move(value), unknown == nullptr ? "" : unknown->unknown});
  }

  const ShellCommand& command_;
  Words words_;
  const std::string& file_;
  std::optional<ForeignSystem> forced_;
  std::vector<ForeignLeaf> leaves_;
  std::vector<std::string> outer_;  // of each leaf the srun or mpirun that it is a flag of, or ""
  bool has_launcher_ = false;
  bool passes_on_ = false;  // flags that are not its own, to accelerate launch
};

}  // namespace

std::optional<std::vector<ForeignLeaf>> leaves_of_command(const ShellCommand& command, const std::string& file,
                                                          std::optional<ForeignSystem> system) {
  return Command(command, file, system).leaves();
}

}  // namespace trident
