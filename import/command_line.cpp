#include "import/command_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdint>

#include "core/json_reader.h"
#include "train/config/option_table.h"
#include "import/text_limits.h"

namespace trident {
namespace {

using Words = std::span<const ShellWord>;

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('/') + 1); }
bool is_in(std::string_view part, std::string_view text) { return text.find(part) != text.npos; }
bool is_number(std::string_view text) { return !text.empty() && text.find_first_not_of("0123456789") == text.npos; }
bool is_flag(std::string_view word) { return word.size() > 1 && word[0] == '-' && !is_in(word.substr(1, 1), "0123456789."); }
// "tensor_model_parallel_size" of "--tensor-model-parallel-size=4".
std::string flag_name(std::string_view flag) { return plain_foreign_name(flag.substr(0, flag.find('='))); }

// Options of sbatch by the last part of their leaves' keys, and the variables that hold their values in the script.
struct BatchOption {
  std::string_view names, key, variable, other;
};
constexpr std::array<BatchOption, 4> kBatchOptions{{
    {"--nodes -N", "nodes", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"},
    {"--ntasks -n", "ntasks", "SLURM_NTASKS", "SLURM_NPROCS"},
    {"--ntasks-per-node", "ntasks_per_node", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE"},
    {"--gpus-per-node --gres", "gpus_per_node", "SLURM_GPUS_PER_NODE", "SLURM_GPUS_ON_NODE"},
}};

// "8" of gpu:a100:8, beside which --gres may ask for other things, nvme:100, and "1" of gpu:a100. Empty where it asks for no GPU.
std::string_view batch_number(std::string_view option, std::string_view value) {
  if (option == "--gres") value.remove_prefix(std::min(value.size(), value.find("gpu")));
  value = value.substr(0, value.find_first_of(",("));
  const std::string_view last = value.substr(value.rfind(':') + 1);
  const bool is_type = option.starts_with("--g") && !last.empty() && std::isalpha(static_cast<unsigned char>(last[0]));
  return is_type ? "1" : last;
}

// A program of a system, and what the name of a module or the path of a file has in it.
struct Program {
  ForeignSystem system;
  std::string_view name, module, path;
};
constexpr std::array<Program, 5> kPrograms{{
    {ForeignSystem::kTorchtitan, "run_train.sh", "torchtitan.train", "torchtitan/train.py"},
    {ForeignSystem::kSwift, "swift", "swift.cli.", "swift/cli/"},
    {ForeignSystem::kSwift, "megatron", "swift.cli._megatron", "swift/cli/_megatron"},  // ms-swift's, with flags of both
    {ForeignSystem::kAxolotl, "axolotl", "axolotl.cli.", "axolotl/cli/"},
    {ForeignSystem::kLlamaFactory, "llamafactory-cli", "llamafactory.", "llamafactory/"},
}};
std::optional<ForeignSystem> program_system(std::string_view program) {
  for (const Program& one : kPrograms)
    if (last_part(program) == one.name || is_in(one.module, program) || is_in(one.path, program)) return one.system;
  return std::nullopt;
}

constexpr std::string_view kLeftOut = "... [...]";
constexpr std::string_view kOtherModels =  // parts of the names of programs
    "mlm plm glue xnli qa ner squad swag summarization translation seq2seq ctc dreambooth bert t5 ict retro realm orqa biencoder "
    "vision vlm dino inpaint classify multimodal mamba hybrid prefix";
// Parts of the names of programs that train nothing, and of those that train whatever else their names say.
constexpr std::string_view kOtherPrograms = "preprocess convert converter generate generation inference infer eval evaluate "
                                            "evaluation server serve export merge bench benchmark tokenize test pytest",
                           kTrainings = "train training trainer pretrain pretraining finetune finetuning sft dpo";
bool has_part(std::string_view name, std::string_view parts) {
  for (; !name.empty(); name.remove_prefix(std::min(name.size(), name.find_first_of("_-.") + 1))) {
    const std::size_t end = name.find_first_of("_-.");
    if (is_listed(name.substr(0, end), parts)) return true;
    if (end == name.npos) return false;
  }
  return false;
}
constexpr std::string_view kClis = "swift megatron trl axolotl llamafactory-cli",  // they take an action first
                           kActions = "train sft pt rlhf dpo kto grpo rloo reward orpo cpo simpo gkd ppo";

// Words that begin a part of a command.
enum class Starter : std::uint8_t { kNone, kWrapper, kPython, kOuter, kRanks, kAccelerate, kProgram };
Starter starter(std::string_view word) {
  const std::string_view name = last_part(word);
  if (name.starts_with("python")) return Starter::kPython;
  if (is_listed(name, "mpirun mpiexec srun")) return Starter::kOuter;
  if (is_listed(name, "torchrun deepspeed")) return Starter::kRanks;
  if (name == "accelerate" || name == "accelerate-launch") return Starter::kAccelerate;
  if (name.ends_with(".py") || name == "run_train.sh" || is_listed(name, kClis)) return Starter::kProgram;
  if (is_listed(name, "env exec time nohup sudo numactl uv poetry conda nsys ncu timeout stdbuf singularity apptainer docker"))
    return Starter::kWrapper;
  return Starter::kNone;
}

class Command {
 public:
  Command(const ShellCommand& command, const std::string& file, std::optional<ForeignSystem> system,
          std::span<const ForeignLeaf> batch)
      : command_(command), words_(command.words), file_(file), forced_(system), batch_(batch) {}

  std::optional<std::vector<ForeignLeaf>> leaves() {
    if (!take_launchers() || !take_program()) return std::nullopt;
    if (!command_.doubt.empty())
      fail(command_.words.front(),
           fmt::format("nobody knows whether this command runs: {}; give import the command alone", command_.doubt));
    replace_repeated();
    return std::move(leaves_);
  }

 private:
  struct Launcher {
    Starter kind;
    std::string name;
    Words flags;
    const ShellWord* word;
  };

  [[noreturn]] void fail(const ShellWord& word, std::string_view why) const { refuse_at(file_, word.line, word.column, why); }
  Starter kind_here() const { return words_.empty() ? Starter::kNone : starter(words_[0].text); }
  // The last of a flag counts, as in argparse; what starts the ranks may take several of one, such as -x.
  void replace_repeated() {
    for (std::size_t i = 0; i < leaves_.size(); ++i) {
      ForeignLeaf& leaf = leaves_[i];
      const auto is_other = [&](const ForeignLeaf& later) {
        return later.system == leaf.system && flag_name(later.key) == flag_name(leaf.key) && later.value != leaf.value;
      };
      const ForeignKey* const row = find_foreign_key(leaf.system, leaf.key, "");
      if (!leaf.key.starts_with('-') || (row != nullptr && row->verdict == Verdict::kLauncher)) continue;
      if (std::ranges::none_of(std::span(leaves_).subspan(i + 1), is_other)) continue;
      leaf.is_replaced = true;
      leaf.remark = fmt::format("the last {} of the command counts", leaf.key);
    }
  }
  void skip_word() { words_ = words_.subspan(1); }
  bool lacks_action() const {
    const std::string_view name = last_part(words_[0].text), action = words_.size() < 2 ? "" : std::string_view(words_[1].text);
    return is_listed(name, kClis) && !is_listed(action, kActions) && (name != "llamafactory-cli" || action != "export");
  }

  // Up to the program; false: there is none.
  bool take_launchers() {
    const auto is_program = [](const ShellWord& word) { return word.text.ends_with(".py"); };
    if (kind_here() == Starter::kNone && !words_.empty() && !words_[0].unknown.empty() && std::ranges::any_of(words_, is_program))
      fail(words_[0], words_[0].unknown);
    while (kind_here() == Starter::kWrapper) {
      do skip_word();
      while (!words_.empty() && (kind_here() == Starter::kNone || lacks_action()));  // conda run -n trl
    }
    std::vector<Launcher> launchers;
    const ShellWord* python = nullptr;
    Starter kind = kind_here();
    for (std::size_t end = 0; kind > Starter::kWrapper && kind < Starter::kProgram; end = 0) {
      const ShellWord& word = words_[0];
      const std::string name(last_part(word.text));
      if (kind == Starter::kPython) python = &word;
      skip_word();
      if (name == "accelerate") {
        if (words_.empty() || words_[0].text != "launch") return false;
        skip_word();
      }
      while (end < words_.size() && starter(words_[end].text) <= Starter::kWrapper &&
             !(kind != Starter::kOuter && is_listed(words_[end].text, "-m --module")))
        ++end;
      if (end == words_.size()) return false;
      if (kind != Starter::kPython) launchers.push_back({kind, name, words_.first(end), &word});
      words_ = words_.subspan(end);
      kind = kind_here();
      if (!is_flag(words_[0].text)) continue;
      if (words_.size() < 2) return false;
      skip_word();  // -m
      kind = is_listed(words_[0].text, "torch.distributed.run torch.distributed.launch") ? Starter::kRanks
             : words_[0].text == "accelerate.commands.launch"                            ? Starter::kAccelerate
                                                                                         : Starter::kProgram;
    }
    has_launcher_ = !launchers.empty();
    starts_training_ = has_launcher_ && launchers.back().kind != Starter::kOuter;  // mpirun and srun start any program
    for (const Launcher& launcher : launchers) take_launcher(launcher, launcher.kind < launchers.back().kind);
    if (python != nullptr && !has_launcher_) add(ForeignSystem::kLauncher, *python, "python", true);
    take_batch(has_launcher_ && launchers.back().kind == Starter::kOuter);
    return kind == Starter::kProgram;
  }
  // A launcher that starts another says nothing of ranks.
  void take_launcher(const Launcher& launcher, bool starts_another) {
    const std::size_t first = leaves_.size();
    take_flags(launcher.flags, launcher.kind == Starter::kAccelerate ? ForeignSystem::kAccelerate : ForeignSystem::kLauncher);
    const auto counts = [](const ForeignLeaf& leaf) { return flag_name(leaf.key) == "nproc_per_node"; };
    if (launcher.kind == Starter::kRanks && launcher.name != "deepspeed" && std::ranges::none_of(leaves_, counts))
      add(ForeignSystem::kLauncher, *launcher.word, "torchrun", true);
    for (std::size_t i = first; launcher.name == "deepspeed" && i < leaves_.size(); ++i)
      if (const std::size_t gpus = is_listed(leaves_[i].key, "--include -i") ? included(leaves_[i].value) : 0; gpus > 0) {
        add(ForeignSystem::kLauncher, *launcher.word, "--include.ranks", static_cast<std::int64_t>(gpus));
        break;
      }
    for (std::size_t i = first; launcher.kind == Starter::kOuter && i < leaves_.size(); ++i) {
      std::string& key = leaves_[i].key;
      if (key == "-N") key = launcher.name == "srun" ? "--nodes" : "--npernode";
      if (starts_another) key = fmt::format("{}.{}", launcher.name, flag_name(key));
    }
  }
  // How many GPUs "a:0,1@b:2" names; 0: all of some machine, none, or nobody knows.
  static std::size_t included(const JsonValue& value) {
    std::string_view rest = value.is_string() ? value.as_string() : std::string_view();
    std::size_t count = 0;
    for (; !rest.empty(); rest.remove_prefix(std::min(rest.size(), rest.find('@') + 1))) {
      const std::string_view node = rest.substr(0, rest.find('@'));
      if (!is_in(":", node)) return 0;
      for (std::size_t slot = node.find(':'); slot != node.npos; slot = node.find(',', slot + 1), ++count)
        if (!is_number(node.substr(slot + 1, node.find(',', slot + 1) - slot - 1))) return 0;
      if (node == rest) break;
    }
    return count;
  }
  // Slurm computes tasks from the first of these that is said: how many there are, how many of each node, and here of its GPUs.
  void take_batch(bool starts_ranks) {
    const auto says = [](std::span<const ForeignLeaf> leaves, std::string_view names) {
      return std::ranges::any_of(leaves, [&](const ForeignLeaf& leaf) { return is_listed(flag_name(leaf.key), names); });
    };
    const bool all = says(leaves_, "n np ntasks"), each = says(leaves_, "ntasks_per_node npernode ppn"),
               nodes = says(leaves_, "nodes"), batch_all = !each && says(batch_, "sbatch.ntasks"),
               batch_each = says(batch_, "sbatch.ntasks_per_node");
    for (ForeignLeaf leaf : batch_) {
      const bool counts = leaf.key == "sbatch.nodes"             ? !nodes && !batch_all
                          : leaf.key == "sbatch.ntasks"          ? batch_all
                          : leaf.key == "sbatch.ntasks_per_node" ? !each && !batch_all
                                                                 : !each && !batch_all && !batch_each;
      leaf.is_replaced = !starts_ranks || all || !counts;
      if (leaf.is_replaced) leaf.remark = "the command, or another of these lines, says how many ranks there are";
      leaves_.push_back(std::move(leaf));
    }
  }

  bool has_flag(std::string_view names) const {
    return std::ranges::any_of(
        words_, [&](const ShellWord& word) { return is_flag(word.text) && is_listed(flag_name(word.text), names); });
  }
  // The program's name and words; false: it trains nothing.
  bool take_program() {
    ShellWord program = words_[0];
    const std::string name(last_part(program.text));
    if (name.find_first_of("$`") == name.npos) program.unknown.clear();  // the folder that it lies in says nothing
    if (lacks_action()) return false;
    skip_word();
    std::string_view action = "";
    if (is_listed(name, kClis)) {
      action = words_[0].text;
      if (is_listed(name, "trl axolotl")) passes_on_ = ForeignSystem::kAccelerate;
      skip_word();
    }
    const bool has_file = !words_.empty() && !is_flag(words_[0].text) && is_configuration(words_[0].text);
    const std::optional<ForeignSystem> own = program_system(program.text);
    if (!own && action.empty() && has_part(name, kOtherPrograms) && !has_part(name, kTrainings)) return false;
    const bool is_titan = own == ForeignSystem::kTorchtitan || has_flag("job.config_file");
    ForeignSystem system = ForeignSystem::kHuggingFace;
    if (is_titan || own) system = own.value_or(ForeignSystem::kTorchtitan);
    else if (name.starts_with("pretrain_") || has_flag("micro_batch_size tensor_model_parallel_size num_layers train_iters"))
      system = ForeignSystem::kMegatron;
    else if (has_file) system = ForeignSystem::kOthers;
    else if (!starts_training_ && action.empty() &&
             !has_flag("model_name_or_path learning_rate per_device_train_batch_size output_dir deepspeed deepspeed_config config"))
      return false;
    if (is_titan && has_flag("module config") && !has_flag("job.config_file"))
      fail(program, "torchtitan's configuration is a Python program since 0.3; print the Config as JSON there and import that");
    system = forced_.value_or(system);
    if (const bool is_megatron = system == ForeignSystem::kMegatron; has_part(name, kOtherModels) && (is_megatron || !own))
      fail(program, fmt::format("{} trains another model than a decoder of text; give a command of {}", in_quotes(name),
                                is_megatron ? "pretrain_gpt.py" : "sft.py, dpo.py or run_clm.py"));
    // Tables that have such a row say whose defaults count by it. A program without arguments may be anybody's.
    const std::string words = action.empty() ? program.text : fmt::format("{} {}", name, action);
    const bool is_known = !words_.empty() || !action.empty() || has_part(name, kTrainings) || !program.unknown.empty();
    if (is_known && find_foreign_key(system, "program", words) != nullptr) add(system, program, "program", words);
    if (has_file) {
      add(system, words_[0], "config", words_[0].text);
      skip_word();
    }
    take_flags(words_, system);
    take_settings(system);
    const auto has_setting = [&](std::string_view key) {
      return std::ranges::find(leaves_, key, &ForeignLeaf::key) != leaves_.end();
    };
    // Both start torchrun, where NNODES says so, too.
    if (is_listed(name, "swift megatron") && !has_launcher_ && !has_setting("--nproc_per_node"))
      add(ForeignSystem::kLauncher, program, has_setting("--nnodes") ? "torchrun" : "swift", true);
    return true;
  }
  void take_settings(ForeignSystem system) {
    const bool is_titan = system == ForeignSystem::kTorchtitan;
    if (has_launcher_ || (!is_titan && system != ForeignSystem::kSwift && system != ForeignSystem::kLlamaFactory)) return;
    for (const ShellWord& word : command_.settings) {
      const std::size_t equals = word.text.find('=');
      const std::string_view name = std::string_view(word.text).substr(0, equals);
      if (is_titan != is_listed(name, "NGPU CONFIG_FILE")) continue;
      const bool is_file = name == "CONFIG_FILE";
      add(is_file ? system : ForeignSystem::kLauncher, word,
          is_file ? "--job.config_file" : name == "NNODES" ? "--nnodes" : "--nproc_per_node", word.text.substr(equals + 1));
    }
  }

  // `axolotl train` passes what stands behind "--" to its launcher.
  bool says_torchrun() const {
    return std::ranges::any_of(
        leaves_, [](const ForeignLeaf& leaf) { return leaf.key == "--launcher" && leaf.value == JsonValue("torchrun"); });
  }

  // ---- flags
  void take_flags(Words words, ForeignSystem system) {
    for (std::size_t i = 0; i < words.size();) {
      const ShellWord& word = words[i++];
      const std::string& text = word.text;
      const std::size_t equals = text.find('=');
      if (is_listed(text, kLeftOut)) fail(word, "\"...\" stands for words that are not here; write them, or leave it out");
      if (text == "--" && system == ForeignSystem::kAxolotl)
        return take_flags(words.subspan(i), says_torchrun() ? ForeignSystem::kLauncher : ForeignSystem::kAccelerate);
      if (!is_flag(text) || equals != text.npos) {
        add(system, word, text.substr(0, equals), equals == text.npos ? JsonValue(true) : JsonValue(text.substr(equals + 1)));
        continue;
      }
      if (system == ForeignSystem::kLauncher && text[1] != '-' && is_number(std::string_view(text).substr(2))) {  // -N4
        add(system, word, text.substr(0, 2), text.substr(2));
        continue;
      }
      const ShellWord* unknown = nullptr;
      JsonValue::Array values;
      for (; i < words.size() && !is_flag(words[i].text) && !is_listed(words[i].text, kLeftOut); ++i) {
        values.emplace_back(words[i].text);
        if (unknown == nullptr && !words[i].unknown.empty()) unknown = &words[i];
      }
      add(system, word, text, values.empty() ? JsonValue(true) : values.size() == 1 ? values[0] : JsonValue(std::move(values)),
          unknown);
    }
  }
  // `unknown`: the word of the value that has no value here; else `word` itself may be one.
  void add(ForeignSystem system, const ShellWord& word, std::string key, JsonValue value, const ShellWord* unknown = nullptr) {
    if (unknown == nullptr && !word.unknown.empty()) unknown = &word;
    const auto row_of = [&](ForeignSystem one) { return find_foreign_key(one, flag_name(key), ""); };
    if (passes_on_ && (system == ForeignSystem::kHuggingFace || base_of(system))) {
      const std::vector<const ForeignKey*> own = foreign_tables().find_all(system, flag_name(key), "");
      const bool is_own = !own.empty() && std::ranges::find(own, "@deepspeed_chat", &ForeignKey::to) == own.end();
      if (!is_own && foreign_tables().find_key(*passes_on_, flag_name(key)) != nullptr) system = *passes_on_;
    }
    if (unknown != nullptr) {  // the user gives one value later; other words may be flags
      const ForeignKey* const row = row_of(system);
      const auto ends = [&](std::string_view end) { return flag_name(key).ends_with(end); };  // as names of flags with a value do
      const bool is_switch = row != nullptr && !row->value.empty() && row->verdict != Verdict::kAlways && !ends("_dir") &&
                             !ends("_path") && !ends("_format") && !ends("_impl") && !ends("_method");
      const Option* const option = row == nullptr ? nullptr : find_option(key_of(row->to));
      const bool takes_list = (row != nullptr && row->convert == Convert::kList) ||
                              (option != nullptr && (takes(option->takes, Takes::kSources) || takes(option->takes, Takes::kTexts)));
      const bool is_name = unknown == &word && (!key.starts_with('-') || key.find_first_of("$`<") != key.npos);
      if (is_switch && unknown != &word && unknown->may_be_nothing && value.is_string())
        value = true, unknown = nullptr;
      else if (is_switch || is_name || (value.is_array() && !takes_list))
        fail(*unknown, unknown->unknown + (unknown->unknown.starts_with("it ") ? "; give import the command alone" : ""));
    }
    leaves_.push_back(
        {system, file_, word.line, word.column, std::move(key), std::move(value), unknown == nullptr ? "" : unknown->unknown});
  }

  const ShellCommand& command_;
  Words words_;
  const std::string& file_;
  std::optional<ForeignSystem> forced_;
  std::span<const ForeignLeaf> batch_;
  std::vector<ForeignLeaf> leaves_;
  bool has_launcher_ = false, starts_training_ = false;
  std::optional<ForeignSystem> passes_on_;  // whose the flags are that are not its own
};

}  // namespace

bool is_configuration(std::string_view name) {
  return name.ends_with(".yaml") || name.ends_with(".yml") || name.ends_with(".json") || name.ends_with(".toml");
}

Batch batch_of(std::string_view text, const std::string& file) {
  Batch batch;
  bool is_header = true;  // of the script, or of one that it gives to sbatch
  for (int line = 1; !text.empty(); ++line) {
    std::string_view rest = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), rest.size() + 1));
    if (const std::size_t first = rest.find_first_not_of(" \t\r"); first != rest.npos && rest[first] != '#')
      is_header = is_in("sbatch", rest) && is_in("<<", rest);
    if (!is_header || !rest.starts_with("#SBATCH")) continue;
    std::vector<std::string_view> words;  // "--nodes", "4" of --nodes=4, and "-N", "4" of -N4
    while (!rest.empty()) {
      const std::string_view word = rest.substr(0, rest.find_first_of(" \t\r="));
      rest.remove_prefix(std::min(rest.size(), word.size() + 1));
      const bool is_joined = is_flag(word) && word[1] != '-' && is_number(word.substr(2));
      words.push_back(word.substr(0, is_joined ? 2 : word.npos));
      if (is_joined) words.push_back(word.substr(2));
    }
    std::erase(words, "");
    for (std::size_t i = 0; i + 1 < words.size(); ++i)
      for (const BatchOption& option : kBatchOptions) {
        const std::string_view value = batch_number(words[i], words[i + 1]);
        if (!is_listed(words[i], option.names) || value.empty()) continue;
        batch.leaves.push_back({ForeignSystem::kLauncher, file, line, 1, fmt::format("sbatch.{}", option.key), value});
        if (is_in("$", value)) batch.leaves.back().remark = "Slurm replaces no variable in such a line: write the number there";
        if (!is_number(value)) continue;
        for (const std::string_view name : {option.variable, option.other})
          batch.variables.push_back({fmt::format("{}={}", name, value), line, 1});
      }
  }
  return batch;
}

std::optional<std::vector<ForeignLeaf>> leaves_of_command(const ShellCommand& command, const std::string& file,
                                                          std::optional<ForeignSystem> system, std::span<const ForeignLeaf> batch) {
  return Command(command, file, system, batch).leaves();
}

}  // namespace trident
