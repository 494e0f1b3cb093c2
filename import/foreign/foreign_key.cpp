#include "import/foreign/foreign_key.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "core/nearest_name.h"

namespace trident {
namespace {

using enum Verdict;
using enum Convert;

// Sentences of several rows.
constexpr std::string_view
    kFsdpOffload = "offload.parameters, offload.optimizer and offload.gradients, which FSDP keeps together",
    kStages = "0 is ddp, and stage N is zeroN",
    kReducesOften = "stage N is zeroN; gradients are reduced after every micro-batch, as DeepSpeed does, though in fp32; "
                    "parallel.grad_sync \"step\" reduces once a step",
    kWithData = "the targets that count are chosen with the data",
    kNoSuchMethod = "a method that is not there: all weights or LoRA's train, by AdamW or Lion",
    kMoreTokens = "data.tokenizer names a tokenizer that has them, and rows are added; beside adapters adapter.modules_to_save "
                  "trains them",
    kSetAside = "the last documents of each file are set aside; there they are drawn at random",
    kSendsNothing = "nothing is sent anywhere; ten lines in docs/logs.md send metrics.jsonl to Weights & Biases or MLflow",
    kPreparesValid = "data.valid names what trident data prepare writes of each",
    kTemplateOfData = "the tokenizer folder's own template counts, and such a name is left out; where it has none, or to have "
                      "another, --template takes chatml, llama3 or a file",
    kPrepareByTemplate = "trident data prepare --chat",
    kSystemMessage = "there it opens every conversation that has no system message; put {\"role\": \"system\", \"content\": "
                     "...} before the other messages of each: trident data prepare adds no text",
    kBuiltIn = "trident data prepare has it built in",
    kQwens = "chatml is its form; Qwen's own template, which counts without --template, has a system message for conversations "
             "without one, too",
    kOwnTemplate = "the tokenizer's own template where none is named",
    kTextOfTemplate = "it changes the text that a template makes, which is the tokenizer's own here: --template takes a changed "
                      "copy",
    kMeansWhole = "data-parallel ranks with whole copies (ddp), unless DeepSpeed or FSDP is asked for elsewhere",
    kMeansFsdp = "zero3 where fsdp_config says nothing else",
    kMeansDeepSpeed = "zero2 where no stage is named",
    kMeansMegatron = "zero1 with use_distributed_optimizer, ddp without",
    kWarmsUp = "Trainer takes it in the place of lr_scheduler_type; its warm-up is logarithmic unless warmup_type is linear, here "
               "it is linear",
    kStepAhead = "step n has the rate that Trainer gives to step n + 1: there the first has 0 of a warm-up, and the last is one "
                 "step before the end of the decay",
    kMoreBits = "the same rule, whose states have 32 bits here and take the memory of those",
    kPresetFile = "ms-swift's name of a file of DeepSpeed's",
    kKeepsDropout = "the model's own configuration says how much; loss.type dpo takes no adapter.dropout",
    kReadAhead = "samples are read ahead, in an order drawn from run.seed",
    kOneOf = "one implementation, without such a switch",
    kStarts = "mpirun or srun starts the ranks",
    kOtherPrefix = "the prefix that trident data prepare wrote";

// Words in the place of a key, in rows that begin the table of a system and a section of it.
constexpr std::string_view kSystem = "##", kHeading = "#";
constexpr ForeignKey system(std::string_view name, std::string_view default_origin, std::string_view defaults = "{}") {
  return {name, kAlways, kSystem, {}, default_origin, defaults};
}
constexpr ForeignKey heading(std::string_view title) { return {title, kAlways, kHeading}; }
// These make rows that become no key of ours. `instead` is a command, or what to write there.
constexpr ForeignKey always(std::string_view names, std::string_view note, std::string_view instead = {}) {
  return {names, kAlways, instead, {}, note};
}
constexpr ForeignKey differs(std::string_view names, std::string_view note, std::string_view instead = {}) {
  return {names, kDiffers, instead, {}, note};
}
constexpr ForeignKey refused(std::string_view names, std::string_view note, std::string_view instead = {}) {
  return {names, kRefused, instead, {}, note};
}
constexpr ForeignKey launcher(std::string_view names, std::string_view note) { return {names, Verdict::kLauncher, {}, {}, note}; }

// In the order of ForeignSystem.
constexpr ForeignKey kRows[] = {
#include "import/foreign/accelerate.inl"
#include "import/foreign/deepspeed.inl"
#include "import/foreign/hugging_face.inl"
#include "import/foreign/swift.inl"
#include "import/foreign/axolotl.inl"
#include "import/foreign/llama_factory.inl"
#include "import/foreign/megatron.inl"
#include "import/foreign/torchtitan.inl"
#include "import/foreign/olmo.inl"
#include "import/foreign/launcher.inl"
#include "import/foreign/other.inl"
};
static_assert(std::ranges::count(kRows, kSystem, &ForeignKey::to) == kForeignSystems);

const ForeignKey& row_of(ForeignSystem system) {
  auto before = static_cast<std::size_t>(system);
  return *std::ranges::find_if(kRows, [&](const ForeignKey& row) { return row.to == kSystem && before-- == 0; });
}

// The same settings under names that begin otherwise. The first that fits counts.
struct OtherBegin {
  ForeignSystem system;
  std::string_view other, own;
};
constexpr OtherBegin kOtherBegins[] = {
    {ForeignSystem::kAccelerate, "deepspeed_config.zero", "zero"},
    {ForeignSystem::kAccelerate, "deepspeed_config.gradient_", "gradient_"},
    {ForeignSystem::kAccelerate, "deepspeed_config.offload_", "offload_"},
    {ForeignSystem::kAccelerate, "deepspeed_config.deepspeed_", "deepspeed_"},
    {ForeignSystem::kAccelerate, "fsdp_config.fsdp_", "fsdp_"},
    {ForeignSystem::kAccelerate, "fsdp_config.", "fsdp_"},
    {ForeignSystem::kAccelerate, "megatron_lm_config.megatron_lm_", "megatron_lm_"},
    {ForeignSystem::kAccelerate, "parallelism_config.parallelism_config_", "parallelism_config_"},
    {ForeignSystem::kAccelerate, "parallelism_config.", "parallelism_config_"},
    {ForeignSystem::kDeepSpeed, "bfloat16.", "bf16."},
    {ForeignSystem::kDeepSpeed, "zero_optimization.", "zero_optimization.stage3_"},
    {ForeignSystem::kMegatron, "disable_", "no_"},
    {ForeignSystem::kTorchtitan, "training.", "parallelism."},  // before 0.2
    {ForeignSystem::kTorchtitan, "experimental.", "parallelism."},
    {ForeignSystem::kTorchtitan, "profiler.", "profiling."},
    {ForeignSystem::kTorchtitan, "validator.", "validation."},
};
const OtherBegin* other_begin(ForeignSystem system, std::string_view name) {
  const auto* const found = std::ranges::find_if(
      kOtherBegins, [&](const OtherBegin& one) { return one.system == system && name.starts_with(one.other); });
  return found == std::end(kOtherBegins) ? nullptr : found;
}

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(", "), list.size());
    parts.push_back(list.substr(0, comma));
    list.remove_prefix(std::min(list.size(), comma + 2));
  }
  return parts;
}

std::optional<double> number_of(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

bool is_same_value(std::string_view a, std::string_view b) {
  const auto same = [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  };
  if (std::ranges::equal(a, b, same)) return true;
  const std::optional<double> x = number_of(a), y = number_of(b);
  return x && y && *x == *y;
}

// "param_groups.lr" of "param_groups[0].lr": a key of a list's items may have a row of its own.
std::string name_within_lists(std::string_view name) {
  std::string whole;
  for (bool is_index = false; const char c : name) {
    is_index |= c == '[';
    if (!is_index) whole += c;
    is_index &= c != ']';
  }
  return whole;
}

}  // namespace

std::string plain_foreign_name(std::string_view name) {
  name.remove_prefix(std::min(name.size(), name.find_first_not_of('-')));
  std::string plain(name.substr(0, name.find('[')));
  std::ranges::replace(plain, '-', '_');
  return plain;
}

std::string other_foreign_name(ForeignSystem system, std::string_view plain) {
  const OtherBegin* const begin = other_begin(system, plain);
  return begin == nullptr ? "" : std::string(begin->own).append(plain.substr(begin->other.size()));
}

std::span<const ForeignSection> foreign_sections() {
  static const std::vector<ForeignSection> sections = [] {
    std::vector<ForeignSection> all;
    std::size_t systems = 0;
    for (const ForeignKey& row : kRows)
      if (row.to == kSystem) ++systems;
      else if (row.to == kHeading) all.push_back({static_cast<ForeignSystem>(systems - 1), row.names, {&row + 1, std::size_t{0}}});
      else all.back().keys = {all.back().keys.data(), all.back().keys.size() + 1};
    return all;
  }();
  return sections;
}

std::string_view name_of(ForeignSystem system) { return row_of(system).names; }
std::string_view default_origin(ForeignSystem system) { return row_of(system).note; }
std::string_view defaults_of(ForeignSystem system) { return row_of(system).fallback; }

std::string_view name_of(Verdict verdict) {
  static constexpr std::array<std::string_view, 6> kNames{"mapped",    "always so here", "differs",
                                                          "not built", "refused",        "launcher's matter"};
  return kNames[static_cast<std::size_t>(verdict)];
}

std::optional<ForeignSystem> base_of(ForeignSystem system) {
  const bool builds_on_trainer =
      system == ForeignSystem::kSwift || system == ForeignSystem::kAxolotl || system == ForeignSystem::kLlamaFactory;
  return builds_on_trainer ? std::optional(ForeignSystem::kHuggingFace) : std::nullopt;
}

ForeignNames names_of(const ForeignKey& row) {
  const std::size_t equals = row.names.find(" = ");
  if (equals == row.names.npos) return {parts_of(row.names), {}};
  return {parts_of(row.names.substr(0, equals)), parts_of(row.names.substr(equals + 3))};
}

bool is_among_values(std::string_view value, const std::vector<std::string_view>& values) {
  return std::ranges::any_of(values, [&](std::string_view one) { return is_same_value(one, value); });
}

ForeignTables::ForeignTables(std::span<const ForeignSection> sections) : sections_(sections) {
  for (const ForeignSection& section : sections)
    for (const ForeignKey& row : section.keys) {
      const ForeignNames parts = names_of(row);
      OfSystem& keys = systems_[static_cast<std::size_t>(section.system)];
      for (const std::string_view name : parts.names) {
        std::string plain = plain_foreign_name(name);
        if (plain.ends_with('*'))
          keys.prefixes.push_back({plain.substr(0, plain.size() - 1), {&row, parts.values}});
        else
          keys.exact[std::move(plain)].push_back({&row, parts.values});
      }
    }
  for (OfSystem& keys : systems_) {
    for (auto& [name, rows] : keys.exact) std::ranges::stable_sort(rows, {}, [](const Row& row) { return row.values.empty(); });
    std::ranges::stable_sort(keys.prefixes, std::greater<>(),
                             [](const auto& prefix) { return std::pair(prefix.first.size(), !prefix.second.values.empty()); });
  }
}

std::span<const ForeignTables::Row> ForeignTables::rows_of(ForeignSystem system, std::string_view plain) const {
  const auto& exact = of(system).exact;
  auto rows = exact.find(plain);
  if (rows == exact.end()) rows = exact.find(other_foreign_name(system, plain));
  return rows == exact.end() ? std::span<const Row>() : rows->second;
}

std::vector<const ForeignKey*> ForeignTables::find_all(ForeignSystem system, std::string_view name, std::string_view value) const {
  std::string plain = plain_foreign_name(name);
  if (const std::string whole = name_within_lists(name); whole != plain)
    for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
      if (of(*one).exact.contains(whole)) plain = whole;
  std::vector<const ForeignKey*> found;
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one)) {
    for (const Row& row : rows_of(*one, plain))
      if (row.answers(value) && (found.empty() || row.values.empty() == names_of(*found.front()).values.empty()))
        found.push_back(row.key);
    if (!found.empty()) return found;
  }
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    for (const auto& [prefix, row] : of(*one).prefixes)
      if ((plain.starts_with(prefix) || other_foreign_name(*one, plain).starts_with(prefix)) && row.answers(value))
        return {row.key};
  return {};
}

const ForeignKey* ForeignTables::find(ForeignSystem system, std::string_view name, std::string_view value) const {
  const std::vector<const ForeignKey*> rows = find_all(system, name, value);
  return rows.empty() ? nullptr : rows.front();
}

const ForeignKey* ForeignTables::find_key(ForeignSystem system, std::string_view name) const {
  const ForeignKey* const any = find(system, name, "");
  if (any != nullptr && any->verdict == kMapped) return any;
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    for (const Row& row : rows_of(*one, plain_foreign_name(name)))
      if (row.key->verdict == kMapped) return row.key;
  return any;
}

std::string ForeignTables::values_of(ForeignSystem system, std::string_view name) const {
  std::string values;
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    for (const Row& row : rows_of(*one, name))
      for (const std::string_view value : row.values) values.append(values.empty() ? "" : ", ").append(value);
  return values;
}

std::string ForeignTables::nearest(ForeignSystem system, std::string_view name) const {
  std::vector<std::string_view> names;
  for (std::optional<ForeignSystem> one = system; one; one = base_of(*one))
    for (const auto& [known, rows] : of(*one).exact) names.push_back(known);
  const std::string plain = plain_foreign_name(name);
  if (const OtherBegin* const begin = other_begin(system, plain))
    if (const std::string_view near = likely_name(other_foreign_name(system, plain), names); near.starts_with(begin->own))
      if (!near.empty()) return std::string(begin->other).append(near.substr(begin->own.size()));
  const auto of_training = std::ranges::find_if(names, [&](std::string_view one) { return one.ends_with("train_" + plain); });
  if (of_training != names.end()) return std::string(*of_training);  // per_device_train_batch_size, not block_size, of batch_size
  if (const std::string_view likely = likely_name(plain, names); !likely.empty()) return std::string(likely);
  const auto longer = std::ranges::find_if(names, [&](std::string_view one) { return plain.size() > 5 && one.starts_with(plain); });
  return longer == names.end() ? "" : std::string(*longer);
}

const ForeignTables& foreign_tables() {
  static const ForeignTables tables(foreign_sections());
  return tables;
}

}  // namespace trident
