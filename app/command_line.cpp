#include "app/command_line.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <optional>
#include <sstream>

#include "app/foreign_flag_hint.h"
#include "app/help_text.h"
#include "app/path_arguments.h"
#include "app/version_text.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/nearest_name.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "core/shell_word.h"
#include "import/foreign_input.h"
#include "import/text_limits.h"
#include "planner/study/study_spec.h"
#include "train/config/option_check.h"
#include "train/config/option_table.h"

namespace trident {
namespace {

std::string nearest_flag(const CLI::App& app, const std::string& argument) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::string flag = argument.substr(0, argument.find('='));
  std::vector<std::string> longer;
  std::ranges::copy_if(names, std::back_inserter(longer), [&](const std::string& name) { return name.starts_with(flag + "-"); });
  if (flag.starts_with("--") && !longer.empty()) return fmt::format("{}", fmt::join(longer, " or "));
  return std::string(likely_name(flag, std::vector<std::string_view>(names.begin(), names.end())));
}

[[noreturn]] void refuse_incomplete(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (option->get_required() && option->count() == 0) names.push_back(option->get_name());
  throw ConfigError(fmt::format("{0}: {1} {2} required; see {0} --help", app.get_name(), fmt::join(names, ", "),
                                names.size() == 1 ? "is" : "are"));
}

std::string one_line(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return text;
}

// A word without a flag is most often what the command works on.
std::string flag_of_word(const CLI::App& app, const std::string& word) {
  const auto takes = [&](const char* flag) {
    const CLI::Option* const option = app.get_option_no_throw(flag);
    return option != nullptr && option->count() == 0;
  };
  if (word.starts_with('-')) return "";
  const bool is_adapter = file_exists(word + "/adapter_config.json"), is_hf = file_exists(word + "/config.json");
  if (takes("--from") && is_adapter) return fmt::format("say --from peft BASE {}", for_shell(word));
  if (takes("--from") && is_hf) return fmt::format("say --from hf {}", for_shell(word));
  if (takes("--ckpt") && takes("--hf") && is_adapter) return fmt::format("say --hf BASE --adapter {}", for_shell(word));
  if (takes("--ckpt") && takes("--hf") && is_hf) return fmt::format("say --hf {}", for_shell(word));
  if (takes("--messages") && takes("--tools")) return fmt::format("say --messages {}", for_shell(word));
  if (takes("--pieces") && takes("--tokenizer")) return "name the tokenizer in --tokenizer, and one file";
  if (takes("--from")) return fmt::format("say --from ckpt {0} or --from hf {0}", for_shell(word));
  if (takes("--ckpt") && takes("--hf")) return fmt::format("say --ckpt {}", for_shell(word));
  if (app.get_option_no_throw("--chat") != nullptr && takes("--prompt") && !takes("--chat"))
    return fmt::format("--chat answers lines of standard input: echo {} | {} --chat ...", for_shell(word), app.get_name());
  for (const char* const flag : {"--input", "--prompt", "--data", "--config"})
    if (takes(flag) && (std::string_view(flag) != "--config" || file_exists(word) || word.find('.') != word.npos))
      return fmt::format("say {} {}", flag, for_shell(word));
  return "";
}

// A flag of ours, and what other programs call it; hyphens within are underscores. The first row counts whose flag the command has.
struct OtherFlag {
  const char* ours;
  std::string_view theirs, remedy;  // {0} is the value
};
constexpr OtherFlag kOtherFlags[] = {
    {"--hf", "model model_name model_name_or_path model_path model_id model_dir pretrained base_model hf_model model_args m",
     "say --hf {0} for a Hugging Face folder, or --ckpt {0} for a checkpoint"},
    {"--ckpt", "checkpoint checkpoint_dir checkpoint_path ckpt_path ckpt_dir load load_dir weights init_from out_dir",
     "say --ckpt {0}"},
    {"--from", "ckpt checkpoint checkpoint_dir checkpoint_path ckpt_path load load_dir", "say --from ckpt {0} --to hf DIR"},
    {"--from", "hf model model_name_or_path model_path model_dir input i",
     "say --from hf {0} --to ckpt DIR, or --from ckpt {0} --to hf DIR"},
    {"--to", "output out o save save_dir output_dir out_dir", "say --to hf {0}, or --to ckpt {0}"},
    {"--from", "loader saver model_type target_tensor_parallel_size",
     "leave it out: checkpoints of Megatron-LM are not read; its tools make "
     "Hugging Face folders of them, which --from hf reads"},
    {"--from", "adapter base", "say --from peft BASE ADAPTER --to hf DIR"},
    {"--from", "step steps iteration ckpt_step checkpoint_step load_step",
     "name the step behind the folder of checkpoints, as in --from ckpt runs/a/ckpt/{0}"},
    {"--ckpt", "step steps iteration ckpt_step checkpoint_step load_step",
     "name the step behind the folder of checkpoints, as in --ckpt runs/a/ckpt/{0}"},
    {"--max-new-tokens", "max_length max_tokens max_gen_toks n_predict num_tokens tokens_to_generate out_seq_length length",
     "say --max-new-tokens {0}, which the prompt is no part of"},
    {"--temperature", "temp t", "say --temperature {0}"},
    {"--prompt", "p start text input", "say --prompt {0}"},
    {"--ids", "text texts input prompt string",
     "say --ids \"$(echo {0} | trident tokenizer encode --tokenizer T)\", or --data PREFIX of what trident data prepare wrote of a "
     "file"},
    {"--greedy", "do_sample", "leave it out: tokens are drawn, unless --greedy is given"},
    {"--greedy", "num_beams beam_size", "leave it out, there is no such thing here: --greedy takes the likeliest token"},
    {"--greedy", "min_p typical_p presence_penalty frequency_penalty mirostat",
     "leave it out, there is no such thing here: --top-k, --top-p and --repetition-penalty shape what is drawn"},
    {"--repetition-penalty", "repeat_penalty", "say --repetition-penalty {0}"},
    {"--messages", "system system_prompt",
     "put it into the file of --messages: [{{\"role\": \"system\", \"content\": \"...\"}}, ...]"},
    {"-n", "n num_samples num_return_sequences", "say -n {0}"},
    {"--batch", "batch_size", "say --batch {0}"},
    {"--choices", "tasks task num_fewshot",
     "no task is downloaded; put its questions into a file, and say --choices FILE (lines "
     "{{\"context\": ..., \"choices\": [...], \"answer\": 0}})"},
    {"--choices", "limit", "leave it out: all that the files hold is measured"},
    {"--ckpt", "batch_size micro_batch_size per_device_eval_batch_size", "say --set batch.micro={0}"},
    {"--ckpt", "device", "say --set device={0}"},
    {"--ckpt", "dtype torch_dtype precision", "say --set precision.compute={0}"},
    {"--dtype", "torch_dtype precision outtype", "say --dtype {0}"},
    {"--pieces", "text texts string input prompt p", "say echo {0} | trident tokenizer encode"},
    {"--data", "dataset data_path valid_data test_data data_dir val_data", "say --data {0}, the prefix of .bin and .idx"},
    {"--tokenizer",
     "model tokenizer_model tokenizer_type tokenizer_name tokenizer_name_or_path tokenizer_path vocab_file vocab "
     "merge_file",
     "say --tokenizer T: gpt2, a model's folder, or a tokenizer's file"},
    {"--sequence", "max_length max_seq_length seq_length seq_len block_size context_length cutoff_len", "say --sequence {0}"},
    {"--gpus", "nodes num_nodes nnodes num_gpus n_gpus ngpus world_size gpus_per_node num_gpus_per_node nproc_per_node",
     "say --gpus N, those of all nodes together"},
    {"--best", "top_k topk top n_best num_results", "say --best {0}"},
    {"--write", "output out o output_file save", "say --write {0}, the configuration with the best layout"},
    {"--adapter", "lora lora_path lora_dir lora_adapter peft peft_path peft_model adapter_path adapter_dir adapter_name_or_path",
     "say --adapter {0}"},
    {"--preference", "dpo pairs preferences", "say --preference"},
    {"--csv", "json", "say --csv"},
    {"--input", "i in data dataset dataset_name file files train_file input_file data_path",
     "say --input {0}, a file: nothing is downloaded"},
    {"--output", "o out output_prefix output_path output_dir out_dir outfile save_path", "say --output {0}"},
    {"--json-key", "json_keys text_column text_field dataset_text_field text_key key column_name", "say --json-key {0}"},
    {"--append-eod", "add_eos append_eos add_eod", "say --append-eod"},
    {"--workers", "num_proc num_workers nproc partitions j", "say --workers {0}"},
};

std::string flag_here(const CLI::App& app, const std::string& argument, const std::string& next) {
  const std::size_t equals = argument.find('=');
  const std::string name = plain_foreign_name(argument.substr(0, equals));
  const std::string given = equals != argument.npos ? argument.substr(equals + 1) : next;
  // lm_eval has --model hf --model_args pretrained=DIR.
  const bool is_of_harness = given == "hf" || given == "vllm" || given.starts_with("pretrained=");
  const std::string value = given.empty() || given.starts_with("--") ? "..." : is_of_harness ? "DIR" : for_shell(given);
  for (const OtherFlag& row : kOtherFlags)
    if (argument.starts_with('-') && app.get_option_no_throw(row.ours) != nullptr && is_listed(name, row.theirs))
      return fmt::format(fmt::runtime(row.remedy), value);
  return "";
}

// A value that follows `--set KEY` as a word of its own.
std::string setting_of_value(const CLI::App& app, const Arguments& arguments, Arguments::const_iterator value) {
  if (app.get_option_no_throw("--set") == nullptr || value - arguments.begin() < 2 || *(value - 2) != "--set") return "";
  const std::string& key = *(value - 1);
  return key.find('=') != key.npos ? "" : "say --set " + for_shell(fmt::format("{}={}", key, *value));
}

// Told before whatever else is wrong: a misspelt flag is the reason why another one is missing. All of them are told at once.
void refuse_extras(const CLI::App& app, const Arguments& arguments, const FlagTexts& texts) {
  const std::vector<std::string> extras = app.remaining();
  const auto is_flag = [](const std::string& word) {
    return word.size() > 1 && word[0] == '-' && std::isdigit(static_cast<unsigned char>(word[1])) == 0;
  };
  const auto is_number = [](const std::string& it) { return !it.empty() && std::isdigit(static_cast<unsigned char>(it[0])) != 0; };
  std::vector<std::string> faults;
  auto place = arguments.begin();
  for (std::size_t i = 0; i < extras.size(); ++i) {
    const std::string& word = extras[i];
    std::string next = i + 1 < extras.size() ? extras[i + 1] : "", remedy;
    // A positional takes the value of an unknown flag, which stands behind the flag nevertheless.
    if (const auto at = std::find(place, arguments.end(), word); at != arguments.end()) {
      place = at + 1;
      remedy = setting_of_value(app, arguments, at);
      next = place != arguments.end() && !is_flag(*place) ? *place : "";
    }
    const bool is_value = is_flag(word) && word.find('=') == word.npos && !next.empty() && !is_flag(next);
    const bool is_extra = i + 1 < extras.size() && extras[i + 1] == next;
    if (is_value && is_extra && plain_foreign_name(word) == "data_path" && app.get_option_no_throw("--data") == nullptr) {
      JsonValue::Array files{next};
      std::string blend = next;
      for (std::size_t j = i + 2; j < extras.size() && !is_flag(extras[j]); blend += ' ' + extras[j++])
        files.emplace_back(extras[j]);
      if (files.size() > 1) next = is_number(next) ? blend : to_json_text(files);
    }
    if (is_value && is_extra) ++i;
    if (!faults.empty() && !is_flag(word)) continue;
    if (remedy.empty()) remedy = flag_here(app, word, next);
    if (remedy.empty() && texts.instead) remedy = texts.instead(word, next);
    if (remedy.empty()) remedy = flag_of_word(app, word);
    if (remedy.empty()) {
      const std::string near = nearest_flag(app, word);
      remedy = near.empty() ? fmt::format("see {} --help", app.get_name()) : fmt::format("did you mean {}?", near);
    }
    collect(faults, [&] { throw ConfigError(fmt::format("unknown argument {}; {}", in_quotes(word), remedy)); });
  }
  if (faults.size() > 2 && app.get_option_no_throw("--import") != nullptr)
    faults.insert(faults.begin() + 1,
                  "the command they are of can be imported whole: write it into a file, run.sh, and say "
                  "trident train --import run.sh");
  if (!faults.empty()) faults.front().insert(0, app.get_name() + ": ");
  refuse_all(faults);
}

// Says what a flag takes where it has too few or too many words behind it.
[[noreturn]] void refuse_words(const CLI::App& app, const CLI::ParseError& error) {
  const std::string what = one_line(error.what()), name = app.get_name(), flag = what.substr(0, what.find(':'));
  const bool is_count = dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr;
  const CLI::Option* const option = is_count ? app.get_option_no_throw(flag) : nullptr;
  if (option == nullptr) throw ConfigError(fmt::format("{0}: {1}; see {0} --help", name, what));
  const int most = option->get_items_expected_max();
  if (most == 1 && what.find("At Most") != what.npos)
    throw ConfigError(fmt::format("{0}: {1}: is given more than once; give it once; see {0} --help", name, flag));
  const int words = what.find("At Most") != what.npos ? most : option->get_items_expected_min();
  throw ConfigError(fmt::format("{0}: {1}: takes {2} behind it: {3}; see {0} --help", name, flag, counted(words, "word"),
                                option->get_description()));
}

// Another system's configuration is neither broken JSON to its user nor one of ours with unknown keys.
void refuse_other_forms(const CLI::App& app, const std::string& path) {
  const bool is_other = std::ranges::any_of(std::array{".yaml", ".yml", ".toml", ".sh", ".py"},
                                            [&](const char* ending) { return path.ends_with(ending); });
  if ((!is_other && !path.ends_with(".json")) || !file_exists(path)) return;
  const std::string name = in_quotes(path), file = for_shell(path);
  const std::string import = app.get_option_no_throw("--import") != nullptr
                                 ? fmt::format("import it: trident train --import {}", file)
                                 : fmt::format("make one of it: trident import {} --output c.json", file);
  std::optional<JsonValue> root;
  try {
    root = read_json_file(path);
  } catch (const ConfigError&) {  // told where the configuration is read, unless it is no JSON by its name
  }
  if (root) {
    if (const std::string system = system_of_json(*root, path); !system.empty())
      throw ConfigError(fmt::format("--config {}: is a configuration of {}; {}", name, system, import));
    if (root->find("model_type") != nullptr)
      throw ConfigError(fmt::format("--config {}: is a model's config.json; a configuration names it: --config FILE --set {}", name,
                                    for_shell(fmt::format("model.hf_config={}", path))));
  } else if (path.ends_with(".py")) {
    throw ConfigError(
        fmt::format("--config {}: is Python, and no Python is run; write its values into a JSON file, or give them by "
                    "--set (docs/coming_from.md has the names)",
                    name));
  } else if (is_other) {
    throw ConfigError(fmt::format("--config {}: is no JSON; {}", name, import));
  }
}

// "TRIDENT=/opt/bin/trident ": train.sbatch takes build/release/bin/trident below the current folder, else the first in PATH, where
// it is not told of another.
std::string other_program() {
  const char* const paths = std::getenv("PATH");
  std::istringstream folders(paths == nullptr ? "" : fmt::format("{}:", paths));  // an empty one is the current folder
  std::string taken = "build/release/bin/trident";
  std::error_code failed;
  const auto is_program = [&] { return std::filesystem::is_regular_file(taken, failed) && ::access(taken.c_str(), X_OK) == 0; };
  for (std::string folder; !is_program() && std::getline(folders, folder, ':');)
    taken = (folder.empty() ? "." : folder) + "/trident";
  const std::string program = folder_of_program() + "/trident";
  return std::filesystem::equivalent(taken, program, failed) ? "" : fmt::format("TRIDENT={} ", for_shell(program));
}

// Flags as they are typed: neither the value that one has by itself, in braces, nor how many words its value has.
class FlagFormatter : public CLI::Formatter {
 public:
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override {
    const std::string name = CLI::Formatter::make_option_name(option, is_positional);
    const std::size_t brace = name.find('{');
    return brace == name.npos ? name : name.substr(0, brace) + "[=TEXT]";
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    const std::string count = fmt::format(" x {}", option->get_expected());
    if (const std::size_t at = text.find(count); at != text.npos) text.erase(at, count.size());
    return text;
  }
};

}  // namespace

bool parse_flags(CLI::App& app, const Arguments& arguments, const CommandContext& context, const FlagTexts& texts) {
  app.allow_extras();
  app.formatter(std::make_shared<FlagFormatter>());
  if (texts.all) app.set_help_all_flag("--help-all", "print everything: also how ranks start, exit codes, keys");
  try {
    app.parse(Arguments(arguments.rbegin(), arguments.rend()));  // CLI11 wants them last first
  } catch (const CLI::Success& asked) {  // for help
    const auto& details = dynamic_cast<const CLI::CallForAllHelp*>(&asked) != nullptr ? texts.all : texts.details;
    context.out << folded(app.help(), context.columns);
    if (details) context.out << '\n' << details();
    return false;
  } catch (const ConfigError&) {  // of in_range()
    refuse_extras(app, arguments, texts);
    throw;
  } catch (const CLI::RequiredError&) {
    refuse_extras(app, arguments, texts);
    refuse_incomplete(app);
  } catch (const CLI::ParseError& error) {
    refuse_extras(app, arguments, texts);
    refuse_words(app, error);
  }
  refuse_extras(app, arguments, texts);
  return true;
}

void add_config_flags(CLI::App& app, ConfigFlags& flags) {
  CLI::Option* const config = app.add_option("-c,--config", flags.file, "configuration file (JSON, comments allowed)");
  config->check(CLI::Validator([&app](const std::string& path) { return refuse_other_forms(app, path), std::string(); }, ""));
  add_repeatable(app, "--set", flags.settings, "path=value: change a key of the configuration; repeatable, later ones win");
}

CLI::Option* add_repeatable(CLI::App& app, const char* name, std::vector<std::string>& values, const char* help) {
  return app.add_option(name, values, help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

OptionValues values_of_file(const ConfigFlags& flags) {
  OptionValues values;
  if (flags.file.empty()) return values;
  const JsonValue file = read_json_file(flags.file);
  if (is_study(file))
    throw ConfigError(fmt::format("{}: is a study; write trident study --config {}, or give the file that its \"config\" names",
                                  flags.file, for_shell(flags.file)));
  values.take_file(file, flags.file);
  return values;
}

OptionValues values_of_config(const CLI::App& app, const ConfigFlags& flags) {
  if (!flags.file.empty() || !flags.settings.empty()) return values_of_file(flags);
  const CLI::Option* const cluster = app.get_option_no_throw("--cluster");
  const std::string name = cluster == nullptr || cluster->count() == 0 ? "" : cluster->as<std::string>();
  throw ConfigError(fmt::format(
      "{0}: nothing says which model; give --config {1}, or --set model.preset=NAME and more; see {0} --help", app.get_name(),
      name.ends_with(".json") ? for_shell(name) + " if that is the configuration" : "FILE (JSON, such as configs/laptop.json)"));
}

void write_page(const std::string& file, ReportPage page, const CLI::App& app, const Arguments& arguments) {
  std::string command = app.get_name();
  for (const std::string& word : arguments) command += ' ' + for_shell(word);
  page.made_by = fmt::format("Made by {}, {}: {}", version_text().substr(0, version_text().find('\n')),
                             utc_text(std::llround(unix_seconds())), on_one_line(command));
  write_file(file, to_html(page));
}

std::string files_text(std::initializer_list<std::pair<std::string, const char*>> files) {
  std::string text;
  for (const auto& [file, program] : files)
    if (!file.empty()) text += fmt::format("{}{}: open it in {}\n", text.empty() ? "\n" : "", on_one_line(file), program);
  return text;
}

void take_import(OptionValues& values, const Import& import) {
  for (const ImportedValue& it : import.values) values.take_import(it.path, it.value, it.origin, it.is_default);
}

std::string said_text(const ForeignLeaf& leaf) {
  const std::string value = leaf.value.is_string() ? leaf.value.as_string() : value_text(leaf.value);
  if (!leaf.key.starts_with('-')) return fmt::format("{}: {}", leaf.key, value);
  return leaf.value == JsonValue(true) ? leaf.key : fmt::format("{} {}", leaf.key, value);
}

std::string sbatch_start(int nodes, int ranks_per_node) {
  const std::string script = beside_program("scripts/slurm/train.sbatch");
  return fmt::format("{}sbatch --nodes={} --ntasks-per-node={} --gpus-per-task=1 {}", other_program(), nodes, ranks_per_node,
                     for_shell(script.empty() ? "train.sbatch" : script));
}

std::string neutral_setting(const ImportedValue& value) {
  const JsonValue neutral = default_value(*find_option(value.path));
  const std::string text = neutral.is_string() ? neutral.as_string() : to_json_text(neutral);
  return fmt::format("--set {}", for_shell(fmt::format("{}={}", value.path, text)));
}

void in_range(CLI::Option* option, double least, double most) {
  const auto check = [=](std::string& text) {
    double value = 0;
    if (CLI::detail::lexical_cast(text, value) && !(value >= least && value <= most))
      throw ConfigError(fmt::format("{} = {}: must be from {} to {}", option->get_name(), value, least, most));
    return std::string();
  };
  option->check(CLI::Validator(check, ""));
}

void put_in_group(CLI::App& app, const char* title, std::initializer_list<const char*> flags) {
  for (const char* const flag : flags) app.get_option(flag)->group(title);
}

std::string on_screen(const std::string& text, const CommandContext& context) {
  if (context.console != ConsoleMode::kTerminal) return on_lines(text);
  std::istringstream lines(on_lines(text));
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t begin = std::min(line.find_first_not_of(' '), line.size());
    const std::size_t gap = line.find("  ", begin), value = std::min(line.find_first_not_of(' ', gap), line.size());
    const bool is_whole = (gap != line.npos && line.find("  ", value) != line.npos) || line.find("--set ") != line.npos;
    out += (is_whole ? line : folded_between_words(line, gap == line.npos ? begin + 2 : value, context.columns)) + '\n';
  }
  return out;
}

void say(const CommandContext& context, const std::string& line) {
  if (line.starts_with("warning: ") && context.color != nullptr)
    context.out << dressed_line(STDOUT_FILENO, *context.color, LogLevel::kWarning, on_one_line(line)) << '\n';
  else
    context.out << on_screen(line + '\n', context);
}

void refuse_given(const CLI::App& app, std::initializer_list<const char*> flags, std::string_view why, std::string_view instead) {
  for (const char* const flag : flags)
    if (app.count(flag) > 0)
      throw ConfigError(
          fmt::format("{}: {}; {}{}", flag, why, instead, instead == "leave it out" ? "" : fmt::format(", or leave {} out", flag)));
}

}  // namespace trident
