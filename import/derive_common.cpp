#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/file_io.h"
#include "core/shell_word.h"
#include "model/config/model_presets.h"
#include "import/facts.h"

namespace trident {
namespace {

bool is_of_command_line(const Fact* ranks) { return ranks != nullptr && ranks->origin.starts_with("--ranks"); }

// Ranks of all axes; ranks that share a copy (@shard, -1: all that are left), and how many such groups there are (@replicate).
void derive_degrees(Facts& facts) {
  derive_ranks(facts);
  apply(facts, {"parallel.data", "@ranks", "parallel.tensor? parallel.pipeline? parallel.context?"});
  const Fact *const copies = facts.find("@replicate"), *const sharers = facts.find("@shard");
  if (copies == nullptr && sharers == nullptr) return;
  const std::int64_t r = facts.positive("@replicate").value_or(1);
  if (facts.is("@shard", -1)) {
    const Fact* const data = facts.find("parallel.data");
    if (data == nullptr || !data->value.is_number()) {
      if (r > 1)
        facts.remark(*copies,
                     "how many ranks share a copy follows from their number, which no input says: give trident import --ranks N");
      return;
    }
    const Fact all = *facts.pull("@shard");
    apply(facts, {"@shard", "parallel.data", "@replicate?"});
    facts.set("@shard", {facts.find("@shard")->value, all.origin, all.weight});
  }
  const std::int64_t s = facts.positive("@shard").value_or(1);
  if (r > 1 || s > 1) apply(facts, {"parallel.data", copies == nullptr ? "@shard" : "@replicate @shard?"});
  if (r > 1 && s > 1)
    facts.set("parallel.shard_group", s, {"@replicate", "@shard"});
  else if (r > 1)
    facts.set("parallel.zero", "ddp", {"@replicate", "@shard"});
}

// batch.global = batch.micro x @accumulation x parallel.data. What inputs say goes first, defaults fill what is missing then.
void derive_batch(Facts& facts) {
  const bool micro = facts.is_given("batch.micro"), accumulation = facts.is_given("@accumulation");
  const Fact* const data = facts.find("parallel.data");
  if (!facts.is_given("batch.global")) {
    if (facts.find("@accumulation") != nullptr) apply(facts, {"batch.global", "batch.micro @accumulation parallel.data"});
  } else if (data == nullptr || !data->value.is_number()) {
    if (micro && accumulation) apply(facts, {"parallel.data", "batch.global", "batch.micro @accumulation"});
  } else if (accumulation && !micro) {
    apply(facts, {"batch.micro", "batch.global", "@accumulation parallel.data"});
  } else if (facts.find("batch.micro") != nullptr) {
    if (accumulation) apply(facts, {"@batch", "batch.micro @accumulation parallel.data"});
    const Fact *const global = facts.find("batch.global"), *const all = facts.find("@batch");
    if (all != nullptr && !all->is_open() && !global->is_open() && !is_same_value(global->value, all->value))
      throw ConfigError(
          fmt::format("{}: is not micro-batch x accumulation x data-parallel ranks = {} x {} x {} = {} ({}); change one of them",
                      global->origin, *facts.integer("batch.micro"), *facts.integer("@accumulation"),
                      *facts.integer("parallel.data"), to_json_text(all->value), all->origin));
    apply(facts, {"@accumulation", "batch.global", "batch.micro parallel.data"});
  }
}

// run.steps from what counts samples or tokens, in whole steps: what is left of the last one is not trained.
void derive_length(Facts& facts) {
  if (facts.is_open("@max_steps") || facts.integer("@max_steps").value_or(0) > 0) {
    facts.take("run.steps", *facts.find("@max_steps"));
    facts.remark("run.epochs", fmt::format("no effect: {} counts", facts.find("run.steps")->origin));
    facts.erase("run.epochs");
  }
  if (facts.is_given("run.steps") && !facts.is_given("run.epochs")) facts.erase("run.epochs");
  const auto number = [&](std::string_view name) { return facts.is_open(name) ? std::nullopt : facts.number(name); };
  if (const auto samples = number("@train_samples"), tokens = number("@train_tokens"), length = number("batch.sequence");
      samples && tokens && length) {  // Megatron-DeepSpeed ends where the first of both does
    const std::string_view later = *samples * *length > *tokens ? "@train_samples" : "@train_tokens";
    facts.remark(later, "the other number ends the run before");
    facts.erase(later);
  }
  apply(facts, {"run.steps", "@train_samples", "batch.global", Round::kDown});
  apply(facts, {"run.steps", "@train_tokens", "batch.global batch.sequence", Round::kDown});
}

// The schedule of the learning rate, and the numbers of its optimizer.
void derive_schedule(Facts& facts) {
  apply(facts, {"lr_schedule.warmup_steps", "@warmup_samples", "batch.global", Round::kUp});
  apply(facts, {"lr_schedule.decay_steps", "@decay_samples", "batch.global", Round::kUp});
  apply(facts, {"lr_schedule.warmup_steps", "@warmup_tokens", "batch.global batch.sequence", Round::kUp});
  apply(facts, {"lr_schedule.decay_steps", "@decay_tokens", "batch.global batch.sequence", Round::kUp});
  const std::optional<double> share = facts.share("@warmup_ratio");
  const bool has_steps = facts.is_open("lr_schedule.warmup_steps") ||
                         facts.number("lr_schedule.warmup_steps").value_or(0) != 0 ||
                         (facts.is_given("lr_schedule.warmup_steps") && !facts.is_given("@warmup_ratio"));
  if (facts.is_on("@no_warmup")) {
    facts.remark("lr_schedule.warmup_steps", "this constant rate has no warm-up there");
    facts.set("lr_schedule.warmup_steps", 0, {"@no_warmup"});
  } else if (share && has_steps) {
    facts.remark("@warmup_ratio", "warmup_steps counts in its place");
  } else if (share) {
    facts.set("lr_schedule.warmup_steps", *share > 0 ? JsonValue(*share) : JsonValue(0), {"@warmup_ratio"});
    if (facts.find("run.steps") != nullptr) {
      facts.erase("lr_schedule.warmup_steps");
      apply(facts, {"lr_schedule.warmup_steps", "@warmup_ratio run.steps", "", Round::kUp});
    }
  }
  apply(facts, {"lr_schedule.min_lr", "@min_lr_ratio optimizer.lr", "", Round::kNot});
  if (facts.find("@beta1") == nullptr && facts.find("@beta2") == nullptr) return;
  const JsonValue::Array betas{facts.number("@beta1").value_or(0.9), facts.number("@beta2").value_or(0.95)};
  facts.take("optimizer.betas", computed(betas, {facts.find("@beta1"), facts.find("@beta2")}));
}

// Trainer's pairs of a strategy and a number: "no", "epoch", "best", "steps".
void derive_interval(Facts& facts, const std::string& what, std::string_view path, std::int64_t least) {
  const std::string strategy = fmt::format("@{}_strategy", what), kind = facts.word(strategy);
  std::string steps = fmt::format("@{}_steps", what);
  if (what == "eval" && kind == "steps" && facts.find(steps) == nullptr) steps = "@logging_steps";
  if (facts.find(path) != nullptr) return;
  if (kind == "best") {
    facts.set("checkpoint.keep_best", true, {strategy});
    if (const Fact* const eval = facts.find("eval.every")) facts.set(path, eval->value, {strategy, "eval.every"});
    facts.remark(strategy, "saved at every evaluation, of which the best and the newest stay");
  } else if (!kind.empty() && kind != "steps") {
    if (what != "logging") return facts.set(path, kind == "no" ? JsonValue(0) : JsonValue(kind), {strategy});
    facts.remark(strategy, "log.every counts steps, and there is always a line: ours stays");
  } else if (facts.is_open(steps)) {
    facts.set(path, facts.find(steps)->value, {strategy, steps});
  } else if (const std::optional<double> every = facts.not_negative(steps)) {
    const bool is_share = *every > 0 && *every < 1;
    if (is_share && facts.find("run.steps") == nullptr)
      return facts.remark(steps, fmt::format("a share of steps that no input counts: {} stays", path));
    const double count = std::ceil(is_share ? *every * *facts.number("run.steps") : *every);
    facts.set(path, std::max(least, whole_number(count, {facts.find(steps)})), {strategy, steps});
  }
}

bool is_preset(const std::string& name) {
  try {
    model_preset_json(name, "");
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

// The name of the file that LLaMA-Factory's dataset_info.json gives to a data set; "" where it gives none.
std::string file_in_dataset_info(const std::string& info, const std::string& dataset) {
  const JsonValue root = read_json_file(info);
  const JsonValue* const entry = root.is_object() ? root.find(dataset) : nullptr;
  const JsonValue* const name = entry != nullptr && entry->is_object() ? entry->find("file_name") : nullptr;
  if (name == nullptr || !name->is_string()) return "";
  return (std::filesystem::path(info).parent_path() / name->as_string()).lexically_normal().string();
}

// Says beside `fact` which file it is, as far as LLaMA-Factory's table or ms-swift's number of samples says it.
std::string file_of_dataset(Facts& facts, const Fact& fact, const std::string& dataset) {
  if (facts.find("@data_folder") != nullptr) {
    const std::string beside = fact.origin.substr(0, fact.origin.find(':'));  // the input
    const std::filesystem::path name = std::filesystem::path(facts.text("@data_folder")) / "dataset_info.json";
    for (const std::string& info : {name.string(), (std::filesystem::path(beside).parent_path() / name).string()}) {
      if (!file_exists(info)) continue;
      if (std::string file = file_in_dataset_info(info, dataset); !file.empty()) return file;
    }
    facts.remark(fact, fmt::format("{}, which says the file of {}, is not here and was not read", name.string(),
                                   in_quotes(dataset)));
  }
  const std::size_t hash = dataset.rfind('#');
  if (hash == dataset.npos || hash + 1 == dataset.size() || file_exists(dataset) ||
      dataset.find_first_not_of("0123456789", hash + 1) != dataset.npos)
    return dataset;
  const std::string file = dataset.substr(0, hash), count = dataset.substr(hash + 1);
  facts.remark(fact, fmt::format("#{0} is {0} samples, drawn at random there: for the first ones give the output of head -n {0} "
                                 "{1} in its place", count, file));
  return file;
}

// Whether the first line of a file has a prompt and a completion; nothing: it is not here, or its lines are no objects.
std::optional<bool> has_completions(const std::string& dataset) {
  if (!file_exists(dataset)) return std::nullopt;
  try {
    const RandomAccessFile file(dataset);
    const std::string begin = file.text(0, std::min<std::int64_t>(file.size(), 1 << 20));
    const JsonValue row = parse_json(begin.substr(0, begin.find('\n')), dataset);
    return row.find("prompt") != nullptr && row.find("completion") != nullptr;
  } catch (const ConfigError&) {  // no line of JSON
    return std::nullopt;
  }
}

// The commands that make token files of what `dataset` names, and the prefix of their names: one that is not in `taken`, to which
// it is added.
std::pair<std::string, std::string> how_to_prepare(const Facts& facts, const std::string& dataset, std::set<std::string>& taken) {
  const std::filesystem::path path(dataset);
  const std::string ending = path.extension().string();
  const bool is_file = file_exists(dataset) || ending == ".jsonl" || ending == ".json" || ending == ".txt";
  const std::string name = (is_file ? path.stem() : path.filename()).string(), first = "data/" + (name.empty() ? "NAME" : name);
  const std::string packed = facts.find("@pack") == nullptr ? "" : "_packed";
  std::string output = first;
  for (int n = 2; taken.contains(output) || taken.contains(output + packed); ++n) output = fmt::format("{}_{}", first, n);
  taken.insert({output, output + packed});
  const std::string model = facts.text("@model"), named = facts.text("data.tokenizer"), style = facts.text("@template");
  const Fact* const how = facts.find("@loss");
  const std::optional<bool> completes =
      how != nullptr && how->is_default() && facts.is("@loss", "all") ? has_completions(dataset) : false;
  const std::string loss = completes.value_or(false) ? "completion" : facts.text("@loss");
  const std::string tokenizer = !named.empty() ? named : folder_exists(model) ? model : "MODEL";
  const bool is_chat = !loss.empty() && loss != "preference";
  const std::string prepare = fmt::format(
      "give token files of it{}: trident data prepare {}--input {} --tokenizer {}{}{} --output {}",
      completes ? "" : ", by --loss completion where its lines have prompt and completion",
      is_chat        ? "--chat "
      : loss.empty() ? ""
                     : "--preference ",
      is_file ? for_shell(dataset) : "FILE", for_shell(tokenizer), is_chat ? " --loss " + loss : "",
      loss.empty() || style.empty() ? "" : " --template " + for_shell(style), for_shell(output));
  if (packed.empty()) return {prepare, output};
  const std::string sequence = facts.find("batch.sequence") == nullptr ? "T" : facts.text("batch.sequence");
  return {fmt::format("{}, trident data pack {} --sequence {} --output {}", prepare, for_shell(output), sequence,
                      for_shell(output + packed)),
          output + packed};
}

std::string derive_names(Facts& facts) {
  if (const Fact* const model = facts.find("@model")) {
    const std::string name = facts.text("@model");
    const bool is_folder = folder_exists(name), is_shape = !is_folder && is_preset(name);
    facts.remark(*model, is_folder  ? ""
                         : is_shape ? "the shape alone: give its folder with --set model.init_from=DIR for the weights"
                                    : name + ": no such folder here; give one with --set model.init_from=DIR");
    if (is_folder || is_shape) facts.take(is_folder ? "model.init_from" : "model.preset", *model);
  }
  std::vector<Fact> datasets;  // "@dataset", "@dataset[1]", ..., or several in one value
  for (const auto& [name, fact] : facts.all())
    for (const std::string& one : name.starts_with("@dataset") ? words_in(fact.value, ",") : std::vector<std::string>())
      datasets.push_back({one.substr(std::min(one.size(), one.find_first_not_of(' '))), fact.origin, fact.weight});
  if (datasets.empty()) return "";
  const auto name_of = [](const Fact& dataset) { return dataset.value.as_string(); };
  const auto value_of = [&](const JsonValue::Array& items) { return datasets.size() == 1 ? items[0] : JsonValue(items); };
  Fact all;
  JsonValue::Array names, prefixes;
  std::set<std::string> there;  // token files that need no command
  for (const Fact& dataset : datasets) {
    const std::string name = name_of(dataset);
    all = computed({}, {&all, &dataset});
    names.emplace_back(name);
    if (file_exists(name + ".bin") && file_exists(name + ".idx")) there.insert(name);
  }
  if (std::ranges::all_of(datasets, [&](const Fact& dataset) { return there.contains(name_of(dataset)); })) {
    all.value = value_of(names);
    return facts.take("data.train", all), "";
  }
  std::set<std::string> taken = there;
  std::string setting;
  for (const Fact& dataset : datasets) {
    const std::string name = name_of(dataset);
    const auto [commands, prefix] = there.contains(name) ? std::pair(std::string("has token files already"), name)
                                                         : how_to_prepare(facts, file_of_dataset(facts, dataset, name), taken);
    prefixes.emplace_back(prefix);
    if (prefixes.size() == datasets.size()) setting = for_shell(text_of(value_of(prefixes)));
    facts.remark(dataset, commands + (setting.empty() ? "" : ", then --set data.train=" + setting));
  }
  return setting;
}

}  // namespace

JsonValue llama3_rope_scaling(double factor) {
  return JsonValue::Object{{"rope_type", "llama3"},
                           {"factor", factor},
                           {"low_freq_factor", 1.0},
                           {"high_freq_factor", 4.0},
                           {"original_max_position_embeddings", 8192}};
}

void take_fp8(Facts& facts) {
  if (const Fact* const fp8 = facts.find("@fp8"))
    facts.set("precision.fp8", (facts.find("@fp8_recipe") == nullptr ? fp8 : facts.find("@fp8_recipe"))->value,
              {"@fp8", "@fp8_recipe"});
  else
    facts.remark("@fp8_recipe", "goes with fp8, which no key asks for");
}

void derive_ranks(Facts& facts) {
  if (facts.text("@nodes").find(':') != std::string::npos) {  // torchrun's MIN:MAX
    facts.remark("@nodes", "ranks do not come and go: elastic lists the layouts that trident supervise falls back on; give trident "
                           "import --ranks N");
    for (const char* const name : {"@nodes", "@ranks_per_node"}) facts.erase(name);
  }
  if (is_of_command_line(facts.find("@ranks")) || facts.find("@nodes") == nullptr) return;
  apply(facts, {"@ranks", facts.is_given("@nodes") ? "@ranks_per_node @nodes" : "@ranks_per_node"});
}

std::string derive_common(Facts& facts) {
  derive_degrees(facts);
  derive_batch(facts);
  derive_length(facts);
  derive_schedule(facts);
  derive_interval(facts, "logging", "log.every", 1);
  derive_interval(facts, "eval", "eval.every", 0);
  derive_interval(facts, "save", "checkpoint.every", 0);
  std::string prepared = derive_names(facts);
  const Fact* const steps = facts.find("run.steps");
  if (const Fact* const traced = facts.find("log.trace_steps");
      traced != nullptr && traced->value.is_array() && steps != nullptr && steps->value.is_number() &&
      traced->value.items().back().as_number() > steps->value.as_number()) {
    facts.remark(*traced, fmt::format("nothing is traced: run.steps = {} ends before", to_json_text(steps->value)));
    facts.erase("log.trace_steps");
  }
  // FSDP keeps gradients and states of the optimizer where it keeps parameters.
  if (const std::optional<Fact> host = facts.pull("@fsdp_offload"))
    for (const char* const path : {"offload.parameters", "offload.optimizer", "offload.gradients"}) facts.take(path, *host);
  facts.erase_block("@");
  return prepared;
}

}  // namespace trident
