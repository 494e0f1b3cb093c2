#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "core/check.h"
#include "core/file_io.h"
#include "model/config/model_presets.h"
#include "train/import/facts.h"

namespace trident {
namespace {

// A computed value takes the place of a default and of nothing, and must be what an input says.
void take_computed(Facts& facts, std::string_view name, JsonValue value, std::initializer_list<const Fact*> from) {
  facts.take(name, computed(std::move(value), from));
}

// Multiplies the facts among these that somebody says.
std::int64_t product_of(const Facts& facts, std::initializer_list<std::string_view> names) {
  std::int64_t product = 1;
  for (const std::string_view name : names)
    if (const std::optional<std::int64_t> factor = facts.positive(name))
      product = whole_number(static_cast<double>(product) * static_cast<double>(*factor), {facts.find(name)});
  return product;
}

// A product of decimal fractions as people write it: 1e-6, not 1.0000000000000002e-06.
double in_fifteen_digits(double value) { return std::strtod(fmt::format("{:.15g}", value).c_str(), nullptr); }

std::int64_t quotient(std::int64_t whole, std::int64_t part, std::initializer_list<const Fact*> from, std::string_view what) {
  if (part <= 0 || whole % part != 0)
    throw ConfigError(
        fmt::format("{}: {} is not a whole number: {} / {}; change one of them", computed({}, from).origin, what, whole, part));
  return whole / part;
}

void derive_ranks(Facts& facts) {
  const Fact *const nodes = facts.find("@nodes"), *const each = facts.find("@ranks_per_node");
  if (nodes == nullptr || each == nullptr) return;
  const std::int64_t all = product_of(facts, {"@nodes", "@ranks_per_node"});
  if (const Fact* const ranks = facts.find("@ranks"); ranks != nullptr && ranks->origin.starts_with("--ranks")) return;
  facts.take("@ranks", computed(all, {each, nodes->is_default ? nullptr : nodes}));
}

// Whole copies of what is shared out (@replicate), and ranks that share a copy (@shard, -1: all that are left).
void derive_sharding(Facts& facts) {
  const Fact *const copies = facts.find("@replicate"), *const sharers = facts.find("@shard"),
                    *const data = facts.find("parallel.data");
  const std::int64_t r = facts.positive("@replicate").value_or(1);
  std::int64_t s = facts.integer("@shard").value_or(1);
  const bool all = data != nullptr && data->value.is_integer();
  if (s < 0 && r > 1 && !all) {
    facts.remark(*copies, "how many ranks share a copy follows from their number, which no input says: give --ranks");
    return;
  }
  if (s < 0 && !all) return;
  if (s < 0) s = quotient(data->value.as_integer(), r, {data, copies}, "the number of ranks that share a copy");
  else s = facts.positive("@shard").value_or(1);
  const std::int64_t both = whole_number(static_cast<double>(r) * static_cast<double>(s), {copies, sharers});
  if (both > 1) take_computed(facts, "parallel.data", both, {copies, sharers});
  if (r > 1 && s > 1)
    facts.set("parallel.shard_group", computed(s, {copies, sharers}));
  else if (r > 1)
    facts.set("parallel.zero", computed("ddp", {copies, sharers}));
}

void derive_data_degree(Facts& facts) {
  const std::array<const char*, 3> axes{"parallel.tensor", "parallel.pipeline", "parallel.context"};
  const std::int64_t others = product_of(facts, {axes[0], axes[1], axes[2]});
  const Fact *const ranks = facts.find("@ranks"), *const tensor = facts.find(axes[0]), *const pipeline = facts.find(axes[1]),
                    *const context = facts.find(axes[2]);
  if (ranks == nullptr) return derive_sharding(facts);
  const std::int64_t all = *facts.integer("@ranks");
  if (all < 1 || all % others != 0)
    throw ConfigError(fmt::format("{}: {} ranks are no multiple of tensor x pipeline x context = {}; take a multiple of it",
                                  computed({}, {ranks, tensor, pipeline, context}).origin, all, others));
  take_computed(facts, "parallel.data", all / others, {ranks, tensor, pipeline, context});
  derive_sharding(facts);
}

// batch.global = batch.micro x @accumulation x parallel.data. What inputs say goes first, defaults fill what is missing then.
void derive_batch(Facts& facts) {
  if (const Fact* const tokens = facts.find("@step_tokens")) {
    if (const Fact* const sequence = facts.find("batch.sequence"))
      take_computed(facts, "batch.global",
                    quotient(*facts.integer("@step_tokens"), *facts.integer("batch.sequence"), {tokens, sequence}, "batch.global"),
                    {tokens, sequence});
    else
      facts.remark(*tokens, "batch.global is this over batch.sequence, which no input says");
  }
  const Fact *global = facts.find("batch.global"), *micro = facts.find("batch.micro"), *accumulation = facts.find("@accumulation"),
             *data = facts.find("parallel.data");
  if (data != nullptr && !data->value.is_integer()) data = nullptr;
  const auto given = [](const Fact* fact) { return fact != nullptr && !fact->is_default; };
  const auto of = [&](const char* name) { return *facts.positive(name); };
  if (!given(global)) {
    if (accumulation != nullptr && micro == nullptr)
      facts.remark(*accumulation, "batch.global is this times batch.micro, which no input says, and the data-parallel ranks");
    if (micro == nullptr || accumulation == nullptr) return;
    if (data == nullptr) {
      facts.remark(*accumulation,
                   "batch.global is this times batch.micro and the data-parallel ranks, which no input counts: give --ranks");
      facts.remark(*micro, "without the number of ranks batch.global is not known: give --ranks");
      return;
    }
    Fact product = computed(product_of(facts, {"batch.micro", "@accumulation", "parallel.data"}), {micro, accumulation, data});
    product.is_default = micro->is_default && accumulation->is_default;
    return facts.take("batch.global", std::move(product));
  }
  if (data == nullptr) {
    if (given(micro) && given(accumulation))
      take_computed(facts, "parallel.data",
                    quotient(of("batch.global"), product_of(facts, {"batch.micro", "@accumulation"}), {global, micro, accumulation},
                             "the data-parallel degree, batch.global / (batch.micro x accumulation),"),
                    {global, micro, accumulation});
    return;
  }
  if (given(accumulation) && !given(micro)) {
    const std::int64_t size = quotient(of("batch.global"), product_of(facts, {"@accumulation", "parallel.data"}),
                                       {global, accumulation, data},
                                       "batch.micro, batch.global / (accumulation x data-parallel ranks),");
    return facts.set("batch.micro", computed(size, {global, accumulation, data}));
  }
  if (micro == nullptr) return;
  const std::int64_t all = given(accumulation) ? product_of(facts, {"batch.micro", "@accumulation", "parallel.data"}) : 0;
  if (given(accumulation) && all != of("batch.global"))
    throw ConfigError(fmt::format(
        "{}: is not micro-batch x accumulation x data-parallel ranks = {} x {} x {} = {} ({}); change one of them", global->origin,
        of("batch.micro"), of("@accumulation"), of("parallel.data"), all, computed({}, {micro, accumulation, data}).origin));
  quotient(of("batch.global"), product_of(facts, {"batch.micro", "parallel.data"}), {global, micro, data},
           "the accumulation, batch.global / (batch.micro x data-parallel ranks),");
}

// run.steps from what counts samples or tokens, in whole steps: what is left of the last one is not trained.
void derive_length(Facts& facts) {
  const std::optional<std::int64_t> most = facts.integer("@max_steps");
  if (most && *most > 0) {
    facts.take("run.steps", *facts.find("@max_steps"));
    if (const Fact* const epochs = facts.find("run.epochs")) {
      facts.remark(*epochs, "max_steps counts in its place");
      facts.erase("run.epochs");
    }
  }
  for (const auto& [name, unit] : {std::pair{"@train_samples", false}, {"@train_tokens", true}}) {
    const Fact *const length = facts.find(name), *const global = facts.find("batch.global"),
                      *const sequence = facts.find("batch.sequence");
    if (length == nullptr) continue;
    if (global == nullptr || (unit && sequence == nullptr)) {
      facts.remark(*length, unit ? "run.steps is this over batch.global x batch.sequence, which no input says"
                                 : "run.steps is this over batch.global, which no input says");
      continue;
    }
    const std::int64_t step =
        unit ? product_of(facts, {"batch.global", "batch.sequence"}) : facts.positive("batch.global").value();
    take_computed(facts, "run.steps", std::max<std::int64_t>(1, *facts.integer(name) / step),
                  {length, global, unit ? sequence : nullptr});
  }
}

// Lengths within the schedule of the learning rate.
void derive_schedule(Facts& facts) {
  const Fact *const steps = facts.find("run.steps"), *const global = facts.find("batch.global");
  for (const auto& [samples, path] :
       {std::pair{"@warmup_samples", "lr_schedule.warmup_steps"}, {"@decay_samples", "lr_schedule.decay_steps"}}) {
    const Fact* const length = facts.find(samples);
    if (length == nullptr) continue;
    if (global == nullptr)
      facts.remark(*length, fmt::format("{} is this over batch.global, which no input says", path));
    else
      take_computed(facts, path,
                    whole_number(std::ceil(*facts.number(samples) / *facts.number("batch.global")), {length, global}),
                    {length, global});
  }
  if (const Fact* const ratio = facts.find("@warmup_ratio")) {
    const double share = *facts.share("@warmup_ratio");
    const Fact* const count = facts.find("lr_schedule.warmup_steps");
    if (count != nullptr && !(count->value.is_number() && count->value.as_number() == 0))
      facts.remark(*ratio, "warmup_steps counts in its place");
    else if (steps != nullptr)
      facts.set("lr_schedule.warmup_steps",
                computed(whole_number(std::ceil(share * *facts.number("run.steps")), {ratio, steps}), {ratio, steps}));
    else
      facts.set("lr_schedule.warmup_steps", computed(share > 0 ? JsonValue(share) : JsonValue(0), {ratio}));
  }
  if (const Fact* const ratio = facts.find("@decay_ratio")) {
    if (steps == nullptr)
      facts.remark(*ratio, "lr_schedule.wsd_decay_steps is this of the run's steps, which no input counts");
    else
      take_computed(facts, "lr_schedule.wsd_decay_steps",
                    whole_number(std::round(*facts.share("@decay_ratio") * *facts.number("run.steps")), {ratio, steps}),
                    {ratio, steps});
  }
  if (const Fact* const ratio = facts.find("@min_lr_ratio")) {
    const Fact* const lr = facts.find("optimizer.lr");
    if (lr == nullptr)
      facts.remark(*ratio, "lr_schedule.min_lr is this of optimizer.lr, which no input says");
    else
      take_computed(facts, "lr_schedule.min_lr",
                    in_fifteen_digits(*facts.number("@min_lr_ratio") * *facts.number("optimizer.lr")), {ratio, lr});
  }
}

void derive_betas(Facts& facts) {
  const Fact *const first = facts.find("@beta1"), *const second = facts.find("@beta2");
  if (first == nullptr && second == nullptr) return;
  const JsonValue::Array betas{facts.number("@beta1").value_or(0.9), facts.number("@beta2").value_or(0.95)};
  take_computed(facts, "optimizer.betas", betas, {first, second});
}

// Trainer's pairs of a strategy and a number: "no", "epoch", "steps".
void derive_interval(Facts& facts, const std::string& what, std::string_view path) {
  const Fact *const strategy = facts.find("@" + what + "_strategy"), *steps = facts.find("@" + what + "_steps");
  std::string steps_name = "@" + what + "_steps";
  if (facts.find(path) != nullptr || (strategy == nullptr && steps == nullptr)) return;
  const std::string kind = strategy == nullptr || !strategy->value.is_string() ? "steps" : strategy->value.as_string();
  const bool can_be_off = what != "logging";
  if (kind == "steps") {
    if (steps == nullptr && what == "eval") steps_name = "@logging_steps", steps = facts.find(steps_name);
    if (steps == nullptr) return;
    double every = *facts.number(steps_name);
    const Fact* const all = facts.find("run.steps");
    if (every > 0 && every < 1 && all == nullptr)
      return facts.remark(*steps, fmt::format("a share of steps that no input counts: {} stays", path));
    if (every > 0 && every < 1) every = std::ceil(every * *facts.number("run.steps"));
    const std::int64_t whole = whole_number(std::ceil(every), {steps});
    facts.set(path, computed(std::max<std::int64_t>(can_be_off ? 0 : 1, whole), {strategy, steps}));
  } else if (!can_be_off) {
    facts.remark(*strategy, "log.every counts steps, and there is always a line: ours stays");
  } else if (kind == "best") {
    facts.set("checkpoint.keep_best", computed(true, {strategy}));
    if (const Fact* const eval = facts.find("eval.every")) facts.set(path, computed(eval->value, {strategy, eval}));
    facts.remark(*strategy, "saved at every evaluation, of which the best and the newest stay");
  } else {
    facts.set(path, computed(kind == "no" ? JsonValue(0) : JsonValue(kind), {strategy}));
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

// The commands that make token files of what `dataset` names.
std::string how_to_prepare(const Facts& facts, const std::string& dataset) {
  const std::filesystem::path path(dataset);
  const std::string ending = path.extension().string();
  const bool is_file = file_exists(dataset) || ending == ".jsonl" || ending == ".json" || ending == ".txt";
  const std::string name = (is_file ? path.stem() : path.filename()).string(), output = "data/" + (name.empty() ? "NAME" : name);
  const std::string model = facts.text("@model").value_or(""), loss = facts.text("@loss").value_or("");
  const std::string tokenizer = facts.text("data.tokenizer").value_or(folder_exists(model) ? model : "MODEL");
  const bool is_chat = !loss.empty() && loss != "preference";
  const std::string text =
      fmt::format("give token files of it: trident data prepare {}--input {} --tokenizer {}{} --output {}",
                  is_chat ? "--chat " : loss.empty() ? "" : "--preference ", is_file ? dataset : "FILE", tokenizer,
                  is_chat ? " --loss " + loss : "", output);
  if (facts.find("@pack") == nullptr) return fmt::format("{}, then --set data.train={}", text, output);
  const std::string sequence = facts.find("batch.sequence") == nullptr ? "T" : std::to_string(*facts.integer("batch.sequence"));
  return fmt::format("{0}, trident data pack {1} --sequence {2} --output {1}_packed, then --set data.train={1}_packed", text,
                     output, sequence);
}

void derive_names(Facts& facts) {
  if (const Fact* const model = facts.find("@model")) {
    const std::string name = facts.text("@model").value();
    if (folder_exists(name))
      facts.take("model.init_from", *model);
    else if (is_preset(name)) {
      facts.take("model.preset", *model);
      facts.remark(*model, "the shape alone: give its folder with --set model.init_from=DIR for the weights");
    } else
      facts.remark(*model, "no folder of this machine: give one with --set model.init_from=DIR");
  }
  if (const Fact* const dataset = facts.find("@dataset")) {
    const std::string prefix = dataset->value.is_string() ? dataset->value.as_string() : "";
    if (file_exists(prefix + ".bin") && file_exists(prefix + ".idx"))
      facts.take("data.train", *dataset);
    else
      facts.remark(*dataset, how_to_prepare(facts, prefix));
  }
}

}  // namespace

void derive_common(Facts& facts) {
  derive_ranks(facts);
  derive_data_degree(facts);
  derive_batch(facts);
  derive_length(facts);
  derive_schedule(facts);
  derive_betas(facts);
  derive_interval(facts, "logging", "log.every");
  derive_interval(facts, "eval", "eval.every");
  derive_interval(facts, "save", "checkpoint.every");
  derive_names(facts);
  std::vector<std::string> left;
  for (const auto& [name, fact] : facts.all())
    if (name.starts_with('@')) left.push_back(name);
  for (const std::string& name : left) facts.erase(name);
}

}  // namespace trident
