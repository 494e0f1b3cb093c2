// trident import FILE|- ... [--from KIND] [--ranks N] [--output FILE] [--json] [--strict]
//                [--plan [--config BASE] [--set path=value ...] [--cluster NAME|FILE] [--gpus N]]
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <limits>
#include <numeric>
#include <ostream>
#include <utility>

#include "app/command_line.h"
#include "app/path_arguments.h"
#include "core/file_io.h"
#include "core/printable.h"
#include "core/shell_word.h"
#include "planner/price/cluster.h"
#include "planner/study/study.h"
#include "planner/study/study_table.h"
#include "report/table.h"
#include "train/config/foreign_answers.h"
#include "train/config/option_check.h"
#include "import/import.h"
#include "import/text_limits.h"

namespace trident {
namespace {

constexpr std::size_t kImportColumns = 80;

struct ImportFlags {
  std::vector<std::string> files;
  ImportRules rules;
  std::int64_t ranks = 0, gpus = 0;
  std::string output, cluster;
  bool json = false, strict = false, plan = false;
  ConfigFlags base;  // of --plan
};

// One paragraph for all of which the same is said: pairs of what is said, and of what.
std::string folded_rows(const std::vector<std::pair<std::string, std::string>>& said) {
  std::vector<std::pair<std::string, std::string>> lines;  // in the order of the inputs
  for (const auto& [note, name] : said) {
    const auto line = std::ranges::find(lines, note, &std::pair<std::string, std::string>::first);
    if (line == lines.end()) lines.emplace_back(note, name);
    else line->second += ", " + name;
  }
  std::string text;
  for (const auto& [note, names] : lines)
    text += folded_between_words(fmt::format("  {}{}{}", names, note.empty() ? "" : ": ", note), 6, kImportColumns) + '\n';
  return text;
}

// A note stands once, behind the last of the neighbours that have it.
std::string full_rows(const std::vector<const ImportedKey*>& keys) {
  const auto place = [](const ImportedKey& key) {  // without the folder
    const std::string whole = place_of(key.leaf);
    return whole.substr(whole.rfind('/') + 1);
  };
  const auto note_of = [](const ImportedKey& key) {  // what is taken over needs no words that hold for every such key
    const bool is_cut = key.verdict == Verdict::kMapped && key.general > 0 && !key.to.empty();
    return is_cut ? key.note.substr(std::min(key.note.size(), key.general + 2)) : key.note;
  };
  const auto is_of_list = [](const ImportedKey& a, const ImportedKey& b) {
    const auto list = a.leaf.key.find('[');
    return list != a.leaf.key.npos && a.to.empty() && b.to.empty() && a.note == b.note &&
           b.leaf.key.starts_with(a.leaf.key.substr(0, list + 1));
  };
  std::size_t places = 0, said = 0;
  for (const ImportedKey* const key : keys) {
    places = std::max(places, place(*key).size());
    said = std::max(said, std::min<std::size_t>(26, said_text(key->leaf).size()));
  }
  std::string text;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const ImportedKey& key = *keys[i];
    std::size_t more = 0;  // of one list, of which the same is said
    while (i + more + 1 < keys.size() && is_of_list(key, *keys[i + more + 1])) ++more;
    if (more < 3) more = 0;
    i += more;
    const std::string begin = fmt::format("  {:<{}}  {}{}", place(key), places, said_text(key.leaf),
                                          more == 0 ? "" : fmt::format(", and {} more of the list", more));
    const std::size_t column = places + said + 6, left = kImportColumns - std::min(kImportColumns, key.to.size());
    std::string between;
    if (begin.size() + 2 <= column && column <= left) between.assign(column - begin.size(), ' ');
    else between = begin.size() + 2 <= left ? "  " : "\n      ";
    if (key.to.empty()) between.clear();
    text += begin + between + key.to;
    const bool is_last = i + 1 == keys.size() || note_of(*keys[i + 1]) != note_of(key);
    const std::string note = is_last ? note_of(key) : "";
    if (note.empty() || text.size() - text.rfind('\n') + note.size() + 3 <= kImportColumns)
      text += fmt::format("{}\n", note.empty() ? "" : fmt::format(" ({})", note));
    else text += '\n' + help_paragraph(note, 6, kImportColumns);
  }
  return text;
}

constexpr std::array<std::pair<Verdict, std::string_view>, 6> kGroups{
    {{Verdict::kMapped, "taken over"}, {Verdict::kDiffers, "different here"}, {Verdict::kNotBuilt, "not built yet"},
     {Verdict::kRefused, "refused"}, {Verdict::kAlways, "always so here, or needless"},
     {Verdict::kLauncher, "for what starts the ranks"}}};

// How many keys have which verdict, where prices follow.
std::string counts_text(const Import& import, const ImportFlags& flags) {
  std::string text;
  for (const auto& [verdict, title] : kGroups)
    if (const auto count = std::ranges::count(import.keys, verdict, &ImportedKey::verdict); count > 0)
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, title);
  std::string command = ": trident import";
  for (const std::string& file : flags.files) command += ' ' + for_shell(file);
  if (!flags.rules.from.empty()) command += " --from " + for_shell(flags.rules.from);
  if (flags.ranks > 0) command += fmt::format(" --ranks {}", flags.ranks);
  for (const std::string& name : flags.rules.without) command += " --without " + for_shell(name);
  if (std::ranges::count(flags.files, "-") == 0) text += command + " lists them";  // a pipe is used up
  if (import.is_one_process) text += "; no input says how many ranks there are: this is one process, --ranks N is others";
  return on_lines(folded_between_words(text, 0, kImportColumns) + "\n");
}

// `config_follows`: its comments say what was taken over, but for notes. A refusal follows names alone.
std::string verdicts_text(const Import& import, bool config_follows = false) {
  const bool is_refused = !import.faults.empty();
  std::string text;
  for (const auto& [verdict, title] : kGroups) {
    std::vector<const ImportedKey*> keys;
    std::vector<std::pair<std::string, std::string>> notes;
    for (const ImportedKey& key : import.keys)
      if (key.verdict == verdict) keys.push_back(&key), notes.emplace_back(is_refused ? "" : key.note, key.leaf.key);
    if (keys.empty()) continue;
    text += fmt::format("{} ({})\n", title, keys.size());
    const bool is_short = verdict == Verdict::kMapped && config_follows;
    if (is_short)
      std::erase_if(keys, [](const ImportedKey* key) { return !key->to.empty() && key->note.size() == key->general; });
    const bool is_moot = is_refused || verdict == Verdict::kAlways || verdict == Verdict::kLauncher;
    text += is_moot ? folded_rows(notes) : full_rows(keys);
  }
  if (is_refused) return on_lines(text);
  std::vector<std::pair<std::string, std::string>> defaults;
  for (const ImportedValue& it : import.defaults)
    defaults.emplace_back(it.origin, fmt::format("{} = {}", it.path, value_text(it.value)));
  if (!defaults.empty()) text += fmt::format("filled in, because no input says it ({})\n", defaults.size());
  text += folded_rows(defaults);
  return on_lines(text);
}

// A run reads the inputs, or the file that was made of them, in which nothing follows from the ranks any more.
enum class Lacking : std::uint8_t { kPrice, kRunOfInputs, kRunOfFile };

// Keys that it depends on and that nobody says, with the settings that give them. `prepared`: Import's.
std::vector<std::pair<std::string, std::string>> missing_of(const OptionValues& values, Lacking lacking,
                                                            const std::string& prepared = "") {
  std::vector<std::pair<std::string, std::string>> missing;
  const auto has_one = [&](std::initializer_list<const char*> paths) {
    return std::ranges::any_of(paths, [&](const char* path) { return !values.at(path).value.is_null(); });
  };
  const auto is_said = [&](const char* path) { return values.at(path).origin != OptionValue().origin; };
  const bool lacks_ranks = is_said("batch.micro") && !is_said("parallel.data");
  if (!has_one({"batch.global"}))
    missing.emplace_back("batch.global",
                         !lacks_ranks ? "batch.global=N"
                         : lacking == Lacking::kRunOfFile
                             ? "batch.global=N, or trident import --ranks N: it follows from the ranks"
                             : "parallel.data=N, or trident import --ranks N: it follows from the ranks");
  if (!has_one({"batch.sequence"})) missing.emplace_back("batch.sequence", "batch.sequence=N");
  if (!has_one({"model.preset", "model.hf_config", "model.init_from"}) && values.model_keys().is_null())
    missing.emplace_back("model", "model.preset=NAME (or --set model.init_from=FOLDER)");
  if (lacking == Lacking::kPrice) return missing;
  if (!has_one({"run.steps", "run.epochs"})) missing.emplace_back("run.steps", "run.steps=N (or --set run.epochs=N)");
  if (!has_one({"data.train"}))
    missing.emplace_back("data.train", prepared.empty() ? "data.train=PREFIX, files that trident data prepare writes"
                                                        : fmt::format("data.train={}, as the commands above write it", prepared));
  const JsonValue& every = values.at("eval.every").value;
  if (!every.is_null() && every != JsonValue(0) && !has_one({"data.valid", "data.split"}))
    missing.emplace_back("data.valid", "data.valid=PREFIX (or --set data.split=99,1, or --set eval.every=0)");
  return missing;
}

// The key that says how many machines there are, and their number; nullptr: one, or nobody knows.
std::pair<const ImportedKey*, int> nodes_of(const Import& import) {
  for (const ImportedKey& key : import.keys) {
    const ForeignKey* const row = find_foreign_key(key.leaf.system, key.leaf.key, "");
    if (row == nullptr || row->to != "parallel.data@nodes" || key.leaf.is_replaced || !import.ranks) continue;
    const JsonValue& value = key.leaf.value;
    const int nodes = std::atoi((value.is_string() ? value.as_string() : value_text(value)).c_str());
    if (nodes > 1 && *import.ranks % nodes == 0) return {&key, nodes};
  }
  return {nullptr, 1};
}

std::string next_steps(const Import& import, const OptionValues& base, const ImportFlags& flags) {
  // A pipe is used up, and train --import has no --from: such input is written first.
  const bool reads_again = flags.rules.from.empty() && std::ranges::find(flags.files, "-") == flags.files.end();
  const auto [machines, nodes] = nodes_of(import);
  const bool in_batch = machines != nullptr && std::ranges::any_of(import.keys, [](const ImportedKey& key) {
                          return key.leaf.key == "sbatch.nodes";
                        });
  const bool from_file = !flags.output.empty() || !reads_again || in_batch;  // train.sbatch takes a file
  OptionValues values = from_file ? OptionValues() : base;
  for (const ImportedValue& it : import.values)
    if (it.unknown.empty()) values.take_import(it.path, it.value, it.origin, it.is_default);
  values.take_settings(flags.base.settings);
  const auto missing = missing_of(values, from_file ? Lacking::kRunOfFile : Lacking::kRunOfInputs, import.prepared);
  std::string text = missing.empty() ? "" : fmt::format("still missing for trident train ({})\n", missing.size());
  const std::string written = flags.output.empty() ? "c.json" : flags.output;
  std::string command, line = from_file ? "  trident train --config" : "  trident train --import";
  if (in_batch) line = "  " + sbatch_start(nodes, static_cast<int>(*import.ranks / nodes));
  else if (machines != nullptr) line.insert(2, fmt::format("mpirun -np {} --hostfile HOSTS ", *import.ranks));
  const auto add = [&](const std::string& word) {
    if (line.size() + word.size() + 3 > kImportColumns) command += std::exchange(line, "     ") + " \\\n";
    line += ' ' + word;
  };
  if (from_file) add(for_shell(written));
  else std::ranges::for_each(flags.files, add, for_shell);
  if (!from_file && !flags.base.file.empty()) add("--config " + for_shell(flags.base.file));
  for (const std::string& setting : flags.base.settings) add("--set " + for_shell(setting));
  for (const std::string& name : from_file ? std::vector<std::string>() : flags.rules.without) add("--without " + for_shell(name));
  const bool counts_ranks = !from_file && (flags.ranks > 0 || import.is_one_process);
  if (const JsonValue& data = values.at("parallel.data").value; counts_ranks && !data.is_null())
    add("--set parallel.data=" + for_shell(to_json_text(data)));
  for (const auto& [key, setting] : missing) {
    text += folded_between_words(fmt::format("  {}: --set {}", key, setting), 6, kImportColumns) + '\n';
    add(fmt::format("--set {}", setting.substr(0, std::min(setting.find(", "), setting.find(" (")))));
  }
  for (const ImportedValue& it : import.values)  // without what is not built, and with what only the user knows
    if (const Option* const option = find_option(it.path);
        !it.not_built.empty() || (!it.unknown.empty() && option != nullptr && option->reserved))
      add(neutral_setting(it));
    else if (const auto is_it = [&](const auto& one) { return one.first == it.path || one.second.starts_with(it.path + '='); };
             !it.unknown.empty() && !it.is_default && std::ranges::none_of(missing, is_it))
      add(fmt::format("--set {}=...", it.path));
  const std::string_view first = from_file && flags.output.empty() ? ", once --output c.json has written it" : "";
  const std::string hosts = machines == nullptr || in_batch
                                ? ""
                                : fmt::format("; HOSTS has {} lines such as n1 slots={}", nodes, *import.ranks / nodes);
  return on_lines(fmt::format("{}the run{}{}\n{}{}\n", text, first, hosts, command, line));
}

void refuse_reserved(const Import& import) {
  std::string names, settings;
  for (const ImportedKey& key : import.keys)
    if (key.verdict == Verdict::kNotBuilt)
      names += fmt::format("{}{} {} ({})", names.empty() ? "" : "; ", place_of(key.leaf), said_text(key.leaf), key.to);
  for (const ImportedValue& value : import.values)
    if (!value.not_built.empty()) settings += ' ' + neutral_setting(value);
  if (names.empty()) return;
  const std::string without =
      settings.empty() ? "" : fmt::format(", or train without them: trident train --import ...{}", settings);
  throw ConfigError(fmt::format("--strict: {}: not built yet; leave these keys out there{}", names, without));
}

// The imported configuration beside others that differ from it in what data-parallel ranks share out, all of them without what is
// not built. The first is what the others are compared with.
StudySpec neighbours_of(const Import& import, const ImportFlags& flags) {
  OptionValues values = *flags.rules.base;
  take_import(values, import);
  for (const std::string& setting : flags.base.settings) values.take_setting(setting);
  std::vector<std::string> built;
  for (const ImportedValue& value : import.values)
    if (!value.not_built.empty()) built.push_back(fmt::format("{}={}", value.path, find_option(value.path)->fallback));
  const auto arm = [&](std::string name, std::vector<std::string> settings) {
    settings.insert(settings.end(), built.begin(), built.end());
    return StudyArm{std::move(name), std::move(settings)};
  };
  const std::string zero = values.at("parallel.zero").value.as_string();
  StudySpec spec;
  spec.given = values;
  spec.arms.clear();
  for (const char* const preset : {"ddp", "zero1", "zero2", "zero3"})
    spec.arms.push_back(arm(preset, {std::string("parallel.zero=") + preset, "parallel.grad_sync=null",
                                     "parallel.param_gather=null"}));
  spec.arms.push_back(arm(zero + ", grad_sync step", {"parallel.grad_sync=step"}));
  spec.arms.push_back(arm(fmt::format("imported: {}", zero), {}));
  spec.cluster = flags.cluster;
  if (!flags.cluster.empty()) spec.gpus = flags.gpus > 0 ? flags.gpus : import.ranks.value_or(0);
  return spec;
}

// Which one to take, and how.
std::string fastest_text(const StudyResult& result) {
  const StudyRow &own = result.rows.back(), *best = &own;
  const auto seconds = [](const StudyRow& row) {
    return row.possible() && row.fits ? row.seconds : std::numeric_limits<double>::infinity();
  };
  for (const StudyRow& row : result.rows)
    if (seconds(row) < seconds(*best)) best = &row;
  if (std::isinf(seconds(*best))) return "None of them fits.";
  const double gain = seconds(own) / seconds(*best) - 1;
  if (best == &own || gain < 0.005) return "None of them is predicted to be faster than what is imported.";
  const std::vector<std::string>& kept = result.spec.arms[own.point.arm].settings;
  std::string settings;
  for (const std::string& setting : result.spec.arms[best->point.arm].settings) {
    const auto equals = setting.find('=');
    const std::string now = value_text(result.spec.given->at(setting.substr(0, equals)).value);
    if (now != setting.substr(equals + 1) && std::ranges::find(kept, setting) == kept.end()) settings += " --set " + setting;
  }
  return fmt::format("{} is predicted {}:{}", result.spec.arms[best->point.arm].name,
                     std::isfinite(gain) ? fmt::format("{:.0f} % faster", 100 * gain) : "to be the fastest that fits", settings);
}

std::string prices_text(const StudyResult& result, const Import& import) {
  const bool is_small = std::ranges::all_of(result.rows, [](const StudyRow& row) { return row.memory_bytes < 1'000'000'000; });
  const auto bytes = [&](auto count) {
    return fmt::format("{:.{}f}", static_cast<double>(count) / (is_small ? 1e6 : 1e9), is_small ? 1 : 2);
  };
  const std::string unit = is_small ? "MB" : "GB";
  Table table{"", {{"", true}, {unit + " held"}, {"of"}, {unit + " sent"}, {"step s"}, {"tokens/s"}, {"", true}}};
  for (const StudyRow& row : result.rows) {
    std::vector<std::string> cells{result.spec.arms[row.point.arm].name};
    if (row.point.arm + 1 == result.spec.arms.size()) cells.front().insert(0, "> ");
    else cells.front().insert(0, "  ");
    if (!row.possible()) cells.push_back("cannot be: " + row.reason);
    else
      cells.insert(cells.end(), {bytes(row.memory_bytes),
                                 row.memory_there > 0 ? bytes(row.memory_there) : "?",
                                 bytes(std::reduce(row.bytes_sent.begin(), row.bytes_sent.end())),
                                 fmt::format("{:.4g}", row.seconds), fmt::format("{:.0f}", row.tokens_per_second()),
                                 row.fits ? "" : "does not fit"});
    table.rows.push_back(std::move(cells));
  }
  std::string unbuilt;
  for (const ImportedValue& value : import.values)
    if (!value.not_built.empty())
      unbuilt += fmt::format("{}{}", unbuilt.empty() ? "\npriced without, as not built yet: " : ", ", value.path);
  std::string text = fmt::format("prices of: {}; sent by a rank in a step{}\n\n{}", result.hardware,
                                 result.counted_as == "GPU" ? ", held by a GPU" : ", held by all ranks, which are one process",
                                 to_text(table, kImportColumns));
  if (!unbuilt.empty()) text += folded_between_words(unbuilt, 0, kImportColumns) + '\n';
  for (const std::string& sentence : result.causes) text += '\n' + folded_between_words(sentence, 0, kImportColumns);
  return text + (result.causes.empty() ? "" : "\n") + '\n' + folded_between_words(fastest_text(result), 0, kImportColumns) + '\n';
}

// Names all that a price depends on and nobody says, with the settings that give them.
void refuse_missing(const OptionValues& values) {
  std::string missing, settings;
  for (const auto& [key, setting] : missing_of(values, Lacking::kPrice)) {
    missing += fmt::format("{}{}", missing.empty() ? "" : ", ", key);
    settings += fmt::format(" --set {}", setting);
  }
  if (missing.empty()) return;
  if (values.at("batch.micro").origin == OptionValue().origin) settings += " --set batch.micro=N (else 1)";
  throw ConfigError(
      fmt::format("--plan: {}: missing; say with --set or --config what the inputs leave open:{}", missing, settings));
}

StudyResult price(const Import& import, const ImportFlags& flags, const CommandContext& context) {
  OptionValues base = *flags.rules.base;
  base.take_settings(flags.base.settings);
  base.refuse_illegal();  // before what it lacks; the inputs may ask for what is not built
  if (!import.ranks && flags.gpus == 0)
    throw ConfigError(fmt::format("--plan: no input says how many ranks there are; give --ranks N{}",
                                  flags.cluster.empty() ? "" : ", or --gpus N"));
  const StudySpec spec = neighbours_of(import, flags);
  refuse_missing(*spec.given);
  StudyResult result = run_study_here(spec, false, *context.make_cuda());
  if (!result.any_possible())
    throw ConfigError(fmt::format("--plan: {}; say with --set or --config what the inputs leave open", reasons_text(result)));
  return result;
}

// A command as arguments, or as one of them.
void refuse_command(const CLI::App& app, const Arguments& arguments) {
  constexpr std::string_view kPrograms =
      "accelerate torchrun deepspeed mpirun mpiexec srun python python3 trl swift axolotl llamafactory-cli";
  const CLI::Option* flag = nullptr;
  for (const std::string& argument : arguments) {
    const bool is_value = flag != nullptr && flag->get_items_expected_max() > 0;
    flag = argument.starts_with("--") ? app.get_option_no_throw(argument) : nullptr;
    if (is_value) continue;
    std::string_view word = argument;
    for (std::size_t blank = 0; (blank = word.find(' ')) != word.npos && word.substr(0, blank).find('=') != word.npos;)
      word.remove_prefix(blank + 1);  // NAME=value before it
    word = word.substr(0, word.find(' '));
    word.remove_prefix(word.rfind('/') + 1);  // of none, too
    if (!is_listed(word, kPrograms) || file_exists(argument)) continue;
    throw ConfigError(fmt::format("trident import {}: a command is read from a file or standard input, not from arguments; write "
                                  "it into a file, run.sh, and give its name, or pipe it: trident import - <<'EOF'",
                                  in_quotes(argument, 60)));
  }
}

Import import_of(const ImportFlags& flags) {
  try {
    return import_files(flags.files, flags.rules);
  } catch (const ConfigError& error) {
    const bool disagree = std::string_view(error.what()).find("says otherwise") != std::string_view::npos;
    if (!flags.plan || flags.files.size() < 2 || !disagree) throw;
    throw ConfigError(fmt::format("{}; or give --plan one file at a time", error.what()));
  }
}

std::string examples_help() {
  return "Examples:\n"
         "  trident import zero2.yaml                      a file\n"
         "  trident import ds.json args.yaml               several files of one run\n"
         "  trident import - <<'EOF'                       a command, on standard input\n"
         "  accelerate launch --config_file zero2.yaml sft.py --bf16\n"
         "  EOF\n"
         "  trident import run.sh --plan --cluster NAME    priced beside other presets\n";
}

void add_flags(CLI::App& app, ImportFlags& flags) {
  app.add_option("FILE", flags.files, "files and commands, -: from standard input")->required();
  app.add_option("--from", flags.rules.from, "the system they are of, where that is not clear from them");
  in_range(app.add_option("--ranks", flags.ranks, "processes in all, where no input says so"), 1, kMostGpus);
  add_repeatable(app, "--without", flags.rules.without, "a key or flag that counts for nothing, such as neftune_noise_alpha");
  app.add_option("--output", flags.output, "write the configuration to this file; else it is printed");
  app.add_flag("--json", flags.json, "print one JSON object: config, keys, defaults");
  app.add_flag("--strict", flags.strict, "refuse what is not built yet");
  app.add_flag("--plan", flags.plan, "price a step beside ddp, zero1, zero2, zero3 and gradients reduced once");
  add_config_flags(app, flags.base);
  app.get_option("--config")->description("with --plan: the configuration that the inputs change");
  app.get_option("--set")->description("with --plan: path=value, what the inputs leave open, such as model.preset=olmo-1b");
  app.add_option("--cluster", flags.cluster, "with --plan: the GPUs, as trident study takes them; else this machine");
  in_range(app.add_option("--gpus", flags.gpus, "with --cluster: how many; else as many as the inputs say"), 1, kMostGpus);
}

}  // namespace

void import_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Take over configurations of other systems: Accelerate, DeepSpeed, Megatron-LM, torchtitan, OLMo, TRL, ms-swift, axolotl, "
      "LLaMA-Factory; files, and the commands that start them. Nothing is executed. Prints the configuration that they come to, "
      "and what became of every key. docs/coming_from.md has the keys.",
      "trident import");
  ImportFlags flags;
  add_flags(app, flags);
  refuse_command(app, arguments);
  const auto instead = [](const std::string& argument, const std::string&) {
    const bool is_theirs = argument.starts_with("--") && !foreign_answers(argument.substr(0, argument.find('='))).empty();
    return std::string(is_theirs ? "it is read in a file: write the whole command into one, run.sh: trident import run.sh" : "");
  };
  if (!parse_flags(app, arguments, context, {examples_help, instead})) return;
  if (!flags.plan) refuse_given(app, {"--config", "--cluster", "--gpus"}, "nothing is priced", "add --plan");
  if (!flags.plan)
    refuse_given(app, {"--set"}, "says what --plan prices, and nothing is priced", "give it to trident train, add --plan");
  if (flags.cluster.empty()) refuse_given(app, {"--gpus"}, "there is no cluster", "add --cluster NAME");
  if (flags.ranks > 0) flags.rules.ranks = flags.ranks;
  const OptionValues base = values_of_file(flags.base);
  flags.rules.base = &base;
  flags.rules.settings = flags.base.settings;
  flags.rules.keeps_faults = !flags.plan && !flags.json;
  flags.rules.assumes_one_process = flags.plan && flags.gpus == 0;
  const Import import = import_of(flags);
  const auto says_all = [](const std::string& fault) {
    return fault.find(": unknown key ") != fault.npos || fault.find(": with it nothing is trained") != fault.npos;
  };
  if (!std::ranges::all_of(import.faults, says_all)) context.err << verdicts_text(import);
  refuse_all(import.faults);
  std::vector<NamedFile> inputs;
  for (const std::string& file : flags.files) inputs.push_back({"FILE", file});
  for (const ImportedKey& key : import.keys) inputs.push_back({"an input", key.leaf.file});
  check_named_files(app, {"--config", "--cluster"}, {"--output"}, inputs);
  if (flags.strict) refuse_reserved(import);
  std::optional<StudyResult> prices;
  if (flags.plan) prices = price(import, flags, context);
  if (!flags.output.empty()) write_file(flags.output, config_text(import));
  if (flags.json) {
    JsonValue report = report_of(import);
    if (prices) report.set("plan", to_json(*prices));
    context.out << to_json_text(report) << '\n';
    return;
  }
  const bool table_alone = !flags.output.empty() && !prices;
  std::ostream& beside = table_alone ? context.out : context.err;
  beside << (prices ? counts_text(import, flags) : verdicts_text(import, !table_alone));
  if (prices) context.out << on_lines(prices_text(*prices, import));
  else if (!table_alone) context.out << config_text(import);
  context.out.flush();
  beside << next_steps(import, base, flags);  // the last that is read
}

}  // namespace trident
