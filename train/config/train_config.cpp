#include "train/config/train_config.h"

#include <algorithm>
#include <concepts>

#include "core/counted.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "core/nearest_name.h"
#include "train/config/near_sizes.h"
#include "train/config/option_check.h"
#include "train/config/resolve_model.h"
#include "train/config/resolve_tuning.h"

namespace trident {
namespace {

constexpr std::string_view kAuto = "auto";                     // of data.tokenizer
constexpr std::string_view kNewest = "auto", kNever = "never";  // of checkpoint.resume

// One overload pair per member type: from a canonical option value, and back.
void read(const JsonValue& v, std::string& out) { out = v.as_string(); }
void read(const JsonValue& v, std::int64_t& out) { out = v.is_null() ? 0 : v.as_integer(); }
void read(const JsonValue& v, double& out) { out = v.as_number(); }
void read(const JsonValue& v, bool& out) { out = !v.is_null() && v.as_bool(); }
template <NamedEnum Enum> void read(const JsonValue& v, Enum& out) { out = parse_name<Enum>(v.as_string()).value(); }
void read(const JsonValue& v, UpdateRule& out) { out = parse_update_rule(v.as_string()).value(); }
void read(const JsonValue& v, AxisOrder& out) { out = parse_axis_order(v.as_string()).value(); }
void read(const JsonValue& v, ResumeFrom& out) { out = v.is_null() ? ResumeFrom{} : parse_resume_from(v.as_string()); }
void read(const JsonValue& v, GradSync& out) {
  if (v.is_null()) out = {GradSync::Kind::kPreset, 0};
  else if (v.is_object()) out = {GradSync::Kind::kEvery, v.find("every")->as_integer()};
  else out = {v.as_string() == "step" ? GradSync::Kind::kStep : GradSync::Kind::kAuto, 0};
}
void read(const JsonValue& v, LossScale& out) {
  if (v.is_null()) out = {LossScale::Kind::kByFormat, 1};
  else if (v.is_string()) out = {LossScale::Kind::kDynamic, 1};
  else out = {LossScale::Kind::kFixed, v.as_number()};
}
void read(const JsonValue& v, std::array<double, 2>& out) { out = {v.items()[0].as_number(), v.items()[1].as_number()}; }
void read(const JsonValue& v, JsonValue& out) { out = v; }
void read(const JsonValue& v, WeightedPath& out) { out = {v.find("path")->as_string(), v.find("weight")->as_number()}; }
void read(const JsonValue& v, StepInterval& out) { out = {v.is_integer() ? v.as_integer() : 0, v.is_string()}; }
void read(const JsonValue& v, SaveInterval& out) {
  out.steps = v.is_integer() ? v.as_integer() : 0;
  out.at_end = v.is_string() || out.steps > 0;
  out.epochs = v == JsonValue("epoch");
}
void read(const JsonValue& v, ScheduleLength& out) {
  out = v.is_integer() ? ScheduleLength{v.as_integer(), std::nullopt} : ScheduleLength{0, v.as_number()};
}
void read(const JsonValue& v, NcclMaxCtas& out) {
  const auto of = [&](std::string_view axis) {
    const JsonValue* const count = v.is_object() ? v.find(axis) : &v;
    return count == nullptr ? 0 : count->as_integer();
  };
  out = {of("tp"), of("dp"), of("pp")};
}
template <class T> void read(const JsonValue& v, std::vector<T>& out) {
  out.clear();
  if (v.is_null()) return;
  for (const JsonValue& item : v.items()) read(item, out.emplace_back());
}
template <class T> void read(const JsonValue& v, std::optional<T>& out) {
  if (v.is_null()) out.reset();
  else read(v, out.emplace());
}
template <class T> void read(const JsonValue& v, OrAuto<T>& out) {
  if (v.is_number()) read(v, out.emplace());
  else out.reset();
}

JsonValue write(const std::string& x) { return x; }
JsonValue write(std::int64_t x) { return x; }
JsonValue write(double x) { return x; }
JsonValue write(bool x) { return x; }
JsonValue write(UpdateRule x) { return to_string(x); }
template <class Enum> requires requires(Enum x) { { to_string(x) } -> std::same_as<std::string_view>; }
JsonValue write(Enum x) { return std::string(to_string(x)); }
JsonValue write(const AxisOrder& x) { return to_string(x); }
JsonValue write(const ResumeFrom& x) { return to_string(x); }
template <class T>
JsonValue write(const OrAuto<T>& x) {
  return x ? JsonValue(*x) : JsonValue("auto");
}
JsonValue write(const GradSync& x) {
  switch (x.kind) {
    case GradSync::Kind::kPreset: return {};
    case GradSync::Kind::kStep: return "step";
    case GradSync::Kind::kAuto: return "auto";
    case GradSync::Kind::kEvery: return JsonValue::Object{{"every", x.every}};
  }
  return {};
}
JsonValue write(const LossScale& x) {
  switch (x.kind) {
    case LossScale::Kind::kByFormat: return {};
    case LossScale::Kind::kDynamic: return "dynamic";
    case LossScale::Kind::kFixed: return x.fixed;
  }
  return {};
}
JsonValue write(const std::array<double, 2>& x) { return JsonValue::Array{x[0], x[1]}; }
template <class T> JsonValue write(const std::vector<T>& x) { return JsonValue::Array(x.begin(), x.end()); }
JsonValue write(const StepInterval& x) { return x.epochs ? JsonValue("epoch") : JsonValue(x.steps); }
JsonValue write(const SaveInterval& x) { return x.at_end && !x.on_the_way().ever() ? JsonValue("end") : write(x.on_the_way()); }
JsonValue write(const ScheduleLength& x) { return x.share ? JsonValue(*x.share) : JsonValue(x.steps); }
JsonValue write(const std::vector<WeightedPath>& x) {
  if (x.empty()) return {};
  JsonValue::Array items;
  for (const WeightedPath& source : x) items.emplace_back(JsonValue::Object{{"path", source.path}, {"weight", source.weight}});
  return items;
}
JsonValue write(const NcclMaxCtas& x) {
  if (x == NcclMaxCtas{x.tensor, x.tensor, x.tensor}) return x.tensor;
  return JsonValue::Object{{"tp", x.tensor}, {"dp", x.data}, {"pp", x.pipeline}};
}
template <class T> JsonValue write(const std::optional<T>& x) { return x ? write(*x) : JsonValue{}; }

// The one list that ties paths to members; used for reading and for writing.
template <class Config, class Visitor> void visit_members(Config& c, Visitor&& v) {
  v("run.dir", c.run.dir), v("run.overwrite", c.run.overwrite), v("run.seed", c.run.seed), v("run.steps", c.run.steps);
  v("run.epochs", c.run.epochs), v("run.max_minutes", c.run.max_minutes), v("run.threads_per_rank", c.run.threads_per_rank);
  v("run.pin", c.run.pin), v("run.hardware_profile", c.run.hardware_profile), v("device", c.device);
  v("model.preset", c.model.preset), v("model.hf_config", c.model.hf_config), v("model.init_from", c.model.init_from);
  v("model.dropout", c.model.dropout);
  v("train.only", c.train.only), v("train.freeze", c.train.freeze);
  auto& p = c.parallel;
  v("parallel.data", p.data), v("parallel.pipeline", p.pipeline), v("parallel.tensor", p.tensor), v("parallel.context", p.context);
  v("parallel.virtual_stages", p.virtual_stages), v("parallel.schedule", p.schedule);
  v("parallel.sequence_parallel", p.sequence_parallel), v("parallel.zero", p.zero), v("parallel.grad_sync", p.grad_sync);
  v("parallel.param_gather", p.param_gather), v("parallel.layers", p.layers), v("parallel.order", p.order);
  v("parallel.overlap", p.overlap), v("parallel.bucket_mb", p.bucket_mb);
  v("batch.global", c.batch.global), v("batch.micro", c.batch.micro), v("batch.sequence", c.batch.sequence);
  auto& a = c.adapter;
  v("adapter.type", a.type), v("adapter.r", a.r), v("adapter.alpha", a.alpha), v("adapter.dropout", a.dropout);
  v("adapter.target_modules", a.target_modules), v("adapter.exclude_modules", a.exclude_modules);
  v("adapter.modules_to_save", a.modules_to_save), v("adapter.layers", a.layers), v("adapter.rslora", a.rslora);
  v("adapter.dtype", a.dtype), v("adapter.init_from", a.init_from);
  v("precision.compute", c.precision.compute), v("precision.master", c.precision.master), v("precision.reduce", c.precision.reduce);
  v("precision.loss_scale", c.precision.loss_scale), v("precision.stochastic_rounding", c.precision.stochastic_rounding);
  v("recompute.policy", c.recompute.policy), v("recompute.head_chunk", c.recompute.head_chunk);
  auto& o = c.optimizer;
  v("optimizer.type", o.type), v("optimizer.lr", o.lr), v("optimizer.betas", o.betas), v("optimizer.eps", o.eps);
  v("optimizer.weight_decay", o.weight_decay), v("optimizer.grad_clip", o.grad_clip);
  auto& s = c.lr_schedule;
  v("lr_schedule.type", s.type), v("lr_schedule.warmup_steps", s.warmup), v("lr_schedule.min_lr", s.min_lr);
  v("lr_schedule.decay_steps", s.decay_steps), v("lr_schedule.wsd_decay_steps", s.wsd_decay_steps);
  v("lr_schedule.wsd_decay_type", s.wsd_decay_type);
  v("loss.type", c.loss.type), v("loss.normalize", c.loss.normalize), v("loss.beta", c.loss.beta);
  v("loss.variant", c.loss.variant), v("loss.label_smoothing", c.loss.label_smoothing), v("loss.nll_weight", c.loss.nll_weight);
  v("loss.length_normalized", c.loss.length_normalized), v("reference", c.reference);
  v("data.train", c.data.train), v("data.valid", c.data.valid), v("data.split", c.data.split), v("data.shuffle", c.data.shuffle);
  v("data.samples", c.data.samples), v("data.tokenizer", c.data.tokenizer), v("data.reset_position_ids", c.data.reset_position_ids);
  v("data.reset_attention_mask", c.data.reset_attention_mask), v("data.eod_mask_loss", c.data.eod_mask_loss);
  v("data.boundaries", c.data.boundaries), v("data.eod", c.data.eod), v("data.mean_document", c.data.mean_document);
  v("eval.every", c.eval.every), v("eval.steps", c.eval.steps), v("eval.samples", c.eval.samples);
  v("eval.sample_ids", c.eval.sample_ids), v("eval.sample_tokens", c.eval.sample_tokens);
  v("eval.sample_temperature", c.eval.sample_temperature);
  auto& k = c.checkpoint;
  v("checkpoint.dir", k.dir), v("checkpoint.every", k.every), v("checkpoint.keep_last", k.keep_last);
  v("checkpoint.keep_every", k.keep_every), v("checkpoint.keep_best", k.keep_best), v("checkpoint.content", k.content);
  v("checkpoint.staging", k.staging), v("checkpoint.on_error", k.on_error), v("checkpoint.resume", k.resume);
  v("checkpoint.allow", k.allow), v("elastic", c.elastic);
  v("log.every", c.log.every), v("log.tensorboard", c.log.tensorboard), v("log.trace_steps", c.log.trace_steps);
  v("log.report", c.log.report), v("log.prometheus", c.log.prometheus), v("log.verbose", c.log.verbose);
  v("log.on_error", c.log.on_error);
  v("cuda.tf32", c.cuda.tf32), v("cuda.deterministic", c.cuda.deterministic), v("cuda.autotune", c.cuda.autotune);
  v("cuda.nccl_max_ctas", c.cuda.nccl_max_ctas), v("cuda.nccl_any_order", c.cuda.nccl_any_order);
  v("cuda.spare_multiprocessors", c.cuda.spare_multiprocessors), v("cuda.nccl_register", c.cuda.nccl_register);
  v("cuda.nccl_timeout", c.cuda.nccl_timeout), v("cuda.epilogues", c.cuda.epilogues), v("cuda.graphs", c.cuda.graphs);
  v("debug.no_alloc", c.debug.no_alloc), v("debug.check_collectives", c.debug.check_collectives);
}

[[noreturn]] void contradict(const std::string& message) { throw ConfigError(message); }

void check_nccl_order(const CudaOptions& cuda) {
  const NcclMaxCtas& most = cuda.nccl_max_ctas;
  if (!cuda.nccl_any_order || (most.tensor > 0 && most.data > 0 && most.pipeline > 0)) return;
  contradict(fmt::format("cuda.nccl_any_order = true: cuda.nccl_max_ctas = {}: operations of NCCL that start in any order must all fit onto the "
                         "GPU; limit every axis (cuda.nccl_max_ctas = 4, say)",
                         value_text(write(most))));
}

void check_loss_scale(const PrecisionConfig& p) {
  if (p.loss_scale.kind == LossScale::Kind::kByFormat) return;
  const std::string given = value_text(write(p.loss_scale));
  if (p.compute != ComputeFormat::kFp16)
    contradict(fmt::format("precision.loss_scale = {}: precision.compute {} needs none; remove the key or set precision.compute to \"fp16\"",
                           given, in_quotes(to_string(p.compute))));
  int exponent = 0;
  if (p.loss_scale.kind == LossScale::Kind::kFixed && std::frexp(p.loss_scale.fixed, &exponent) != 0.5)
    contradict(fmt::format("precision.loss_scale = {}: must be a power of two, so that scaling is exact; take {:.0f} or \"dynamic\"",
                           given, std::ldexp(1.0, exponent - 1)));
}

void check_adapter(const TrainConfig& c) {
  const std::vector<std::string> set = c.adapter.type ? std::vector<std::string>() : keys_set_in(c, "adapter");
  if (!set.empty())
    contradict(fmt::format("{}: adapter.type is null, so that there are no adapters; set adapter.type to \"lora\"", set.front()));
  if (c.adapter.init_from && !c.model.init_from)
    contradict(fmt::format("adapter.init_from = {}: training begins with random weights; name the base of these adapters in "
                           "model.init_from",
                           in_quotes(*c.adapter.init_from)));
  if (c.adapter.type && (!c.train.only.empty() || !c.train.freeze.empty()))
    contradict(fmt::format("train.{} = {}: beside adapters (adapter.type) modules train whole by adapter.modules_to_save "
                           "alone; remove one of the two",
                           c.train.only.empty() ? "freeze" : "only",
                           value_text(write(c.train.only.empty() ? c.train.freeze : c.train.only))));
}

// With "auto", what the processor can do decides: see make_run_plan().
void check_stochastic_rounding(const PrecisionConfig& p) {
  if (!p.stochastic_rounding || p.compute == ComputeFormat::kBf16 || p.compute == ComputeFormat::kAuto) return;
  contradict(fmt::format("precision.stochastic_rounding = true: only bf16 weights are rounded at random, and precision.compute is {}; set it "
                         "to \"bf16\", or precision.stochastic_rounding to false",
                         in_quotes(to_string(p.compute))));
}

// The keys of the folder's config.json, those in `given` in the place of its own.
JsonValue keys_of_folder(const std::string& given_folder, const JsonValue& given) {
  const std::string folder = hub_snapshot(given_folder), path = folder + "/config.json";
  if (const std::optional<std::string> other = file_exists(path) ? std::nullopt : what_stands_at(folder))
    throw DataError(fmt::format("model.init_from = {}: {}", folder, *other));
  if (!file_exists(path))
    throw DataError(fmt::format("model: missing, and model.init_from = {} is neither a Hugging Face folder nor a checkpoint, which "
                                "would say it; give model.preset, model.hf_config, or the keys of a Hugging Face config.json "
                                "(\"model_type\", ...)",
                                folder));
  const JsonValue keys = hf_config_keys(read_json_file(path, {.blame = ExitCode::kData}), given);
  if (keys.find("model_type") == nullptr)
    throw ConfigError(fmt::format("{}: has no model_type; it is no config.json of a Hugging Face folder", path));
  for (const JsonMember& member : keys.members())
    if (find_option(fmt::format("{}.{}", kModelBlock, member.key)) != nullptr)
      throw ConfigError(fmt::format("{}: {} is no key of a model; remove it", path, in_quotes(member.key)));
  return keys;
}

// A pack is several samples in one: none sees, continues or predicts another.
void keep_sequences_apart(DataConfig& data) {
  data.reset_position_ids = data.reset_attention_mask = data.eod_mask_loss = true;
  data.boundaries = DocumentBoundaries::kIndex;
}

// Somebody gave a key that says otherwise.
void refuse_other_rules(const OptionValues& values) {
  for (const char* key : {"data.reset_position_ids", "data.reset_attention_mask", "data.eod_mask_loss", "data.boundaries"}) {
    const auto& [value, origin] = values.at(key);
    if (origin == OptionValue().origin || value.is_null() || value == JsonValue(true) || value == JsonValue("index")) continue;
    contradict(fmt::format("{} = {}: data.samples = \"packed\" keeps the sequences of the .idx apart; leave the key out", key,
                           value_text(value)));
  }
}

}  // namespace

ResumeFrom parse_resume_from(std::string_view text) {
  if (text == kNewest) return {ResumeFrom::Kind::kNewest, ""};
  if (text == kNever) return {ResumeFrom::Kind::kNever, ""};
  return {ResumeFrom::Kind::kPath, std::string(text)};
}

std::string to_string(const ResumeFrom& from) {
  switch (from.kind) {
    case ResumeFrom::Kind::kNewest: return std::string(kNewest);
    case ResumeFrom::Kind::kNever: return std::string(kNever);
    case ResumeFrom::Kind::kPath: break;
  }
  return from.path;
}

TrainConfig unvalidated_config(const OptionValues& values) {
  values.require_complete();
  TrainConfig config;
  config.replaced = values.replaced();
  visit_members(config, [&](std::string_view path, auto& member) { read(values.at(path).value, member); });
  for (const Option& option : option_table())
    if (values.at(option.path).origin != OptionValue().origin) config.given.emplace_back(option.path);
  if (values.model_keys().is_object())
    for (const JsonMember& key : values.model_keys().members()) config.given.push_back("model." + key.key);
  config.eval.every_origin = values.at("eval.every").origin;
  config.checkpoint.every_was_given = values.at("checkpoint.every").origin != OptionValue().origin;
  ModelSource& model = config.model;
  model.keys = values.model_keys();
  if (!model.preset && !model.hf_config && model.keys.find("model_type") == nullptr)
    model.keys = keys_of_folder(model.init_from.value(), model.keys);
  if (config.data.tokenizer == kAuto) {
    config.data.tokenizer_was_auto = true;
    config.data.tokenizer = tokenizer_of_vocabulary(resolve_model(config));
  }
  if (config.data.is_packed()) keep_sequences_apart(config.data);
  return config;
}

TrainConfig make_train_config(const OptionValues& values) {
  values.require_complete();
  values.check_model();
  TrainConfig config = unvalidated_config(values);
  const auto given = [&](std::string_view key) { return values.at(key).origin != OptionValue().origin; };
  if (config.adapter.init_from && !config.adapter.type && given("adapter.type"))
    contradict(fmt::format("adapter.type = null: training begins with the adapters of adapter.init_from = {}; leave adapter.type "
                           "out, or set adapter to null, and all weights train",
                           in_quotes(*config.adapter.init_from)));
  if (config.adapter.init_from) take_adapter_folder(config, given);
  if (config.data.is_packed()) refuse_other_rules(values);
  if (config.run.epochs && !values.at("run.steps").value.is_null())
    contradict(fmt::format("run.epochs = {}: run.steps = {} is given too; set one of them to null (--set run.steps=null)",
                           *config.run.epochs, config.run.steps));
  validate(config);
  return config;
}

namespace {

TrainConfig configuration_of(const JsonValue& file, std::string_view source, const std::vector<std::string>& settings,
                             OptionValues& values) {
  values.take_file(file, source);
  values.take_settings(settings);
  return make_train_config(values);
}

}  // namespace

TrainConfig load_train_config(const std::string& file, const std::vector<std::string>& settings, OptionValues& values) {
  return configuration_of(read_json_file(file), file, settings, values);
}

TrainConfig parse_train_config(std::string_view text, std::string_view source, const std::vector<std::string>& settings) {
  OptionValues values;
  return configuration_of(parse_json(text, source), source, settings, values);
}

namespace {

void check_loss(const TrainConfig& c) {
  if (c.loss.normalize == LossNormalize::kSequence && !c.data.finds_documents())
    contradict(
        "loss.normalize = \"sequence\": nothing says where a sequence of a sample ends; set data.samples to \"packed\", or "
        "data.reset_attention_mask, data.reset_position_ids or data.eod_mask_loss to true");
  if (!c.loss.is_dpo()) {
    if (c.reference != kInitialReference)
      contradict(fmt::format("reference = {}: only loss.type \"dpo\" has one; leave it out", in_quotes(c.reference)));
    std::vector<std::string> set = keys_set_in(c, "loss");
    std::erase(set, "loss.normalize");
    if (!set.empty())
      contradict(fmt::format("{}: only loss.type \"dpo\" has it; set loss.type to that, or leave it out", set.front()));
    return;
  }
  if (!c.data.is_packed())
    contradict(
        "loss.type = \"dpo\": a sample is a document of pairs of answers, as trident data prepare --preference writes it; set "
        "data.samples to \"packed\"");
  if (c.loss.normalize != LossNormalize::kToken)
    contradict("loss.normalize = \"sequence\": with loss.type \"dpo\" every pair weighs the same; leave it out");
  if (c.loss.label_smoothing > 0 && c.loss.variant != DpoVariant::kSigmoid)
    contradict(fmt::format("loss.label_smoothing = {}: loss.variant \"sigmoid\" alone has it; set one of them back",
                           c.loss.label_smoothing));
  if (c.adapter.dropout > 0)
    contradict(fmt::format("adapter.dropout = {}: loss.type \"dpo\" compares the model with a reference that has none; set it to 0",
                           c.adapter.dropout));
  if (c.cuda.graphs)
    contradict("cuda.graphs = true: loss.type \"dpo\" makes weights between the passes of a micro-batch; set it to false");
  if (c.reference == kAdapterOffReference && !c.adapter.type)
    contradict("reference = \"adapter_off\": there are no adapters to leave out; set adapter.type, or reference to \"initial\"");
  if (c.reference == kAdapterOffReference && c.adapter.init_from && !c.adapter.modules_to_save.empty())
    contradict(fmt::format("reference = \"adapter_off\": adapter.init_from = {} has a copy of {} (modules_to_save), and the "
                           "original is not in memory; set reference to \"initial\"",
                           in_quotes(*c.adapter.init_from), c.adapter.modules_to_save.front()));
  if (c.names_reference() && c.reference.find('/') == c.reference.npos)
    if (const std::string_view near = likely_name(c.reference, {kInitialReference, kAdapterOffReference}); !near.empty())
      contradict(fmt::format("reference = {}: must be \"initial\", \"adapter_off\" or the path of a checkpoint or folder, with a "
                             "/ in it; did you mean {}?", in_quotes(c.reference), in_quotes(near)));
  if (c.reference != kInitialReference && !c.model.init_from)
    contradict(
        fmt::format("reference = {}: training begins with random weights; name them by model.init_from", in_quotes(c.reference)));
}

void check_samples(const TrainConfig& c) {
  if (!c.eval.has_samples()) return;
  if (!c.eval.every.ever())
    contradict(fmt::format("eval.{0}: continuations are made at evaluations, and eval.every is 0; set it, or leave the prompts "
                           "out: --set eval.{0}=[]",
                           c.eval.samples.empty() ? "sample_ids" : "samples"));
}

}  // namespace

void validate(const TrainConfig& c) {
  const ParallelConfig& p = c.parallel;
  if (!c.train.only.empty() && !c.train.freeze.empty())
    contradict(fmt::format("train.freeze = {}: train.only = {} says already what is trained; remove one of the two",
                           value_text(write(c.train.freeze)), value_text(write(c.train.only))));
  if (p.virtual_stages > 1 && p.schedule != ScheduleKind::kInterleaved)
    contradict(fmt::format(
        "parallel.virtual_stages = {}: parallel.schedule {} has one stage per rank; --set parallel.virtual_stages=1, or set "
        "parallel.schedule to \"interleaved\"",
        p.virtual_stages, in_quotes(to_string(p.schedule))));
  if (p.layers && static_cast<std::int64_t>(p.layers->size()) != p.pipeline * p.virtual_stages)
    contradict(fmt::format("parallel.layers = {}: {}, but parallel.pipeline x parallel.virtual_stages = {} x {} stages need {}",
                           value_text(write(*p.layers)), counted(std::ssize(*p.layers), "count"), p.pipeline, p.virtual_stages,
                           p.pipeline * p.virtual_stages));
  // The model may have no positions for a longer one.
  const std::int64_t divisible = std::max(p.tensor, c.batch.sequence / p.tensor * p.tensor);
  if (p.sequence_parallel && c.batch.sequence % p.tensor != 0)
    contradict(
        fmt::format("batch.sequence = {}: not divisible by parallel.tensor = {}, which parallel.sequence_parallel splits it over; "
                    "use {} or set parallel.sequence_parallel to false",
                    c.batch.sequence, p.tensor, divisible));
  if (c.batch.global % c.batch.micro != 0)
    contradict(fmt::format("batch.global = {}: not divisible by batch.micro = {}; use {}", c.batch.global, c.batch.micro,
                           batch_that_divides(c.batch.global, c.batch.micro, p.data.value_or(1))));
  if (c.log.prometheus && !c.log.prometheus->ends_with(".prom"))
    contradict(fmt::format("log.prometheus = {}: a file of that name is replaced; name one that ends in .prom",
                           in_quotes(*c.log.prometheus)));
  check_nccl_order(c.cuda);
  check_loss_scale(c.precision);
  check_stochastic_rounding(c.precision);
  check_adapter(c);
  const LrScheduleConfig& s = c.lr_schedule;
  if (s.min_lr > c.optimizer.lr)
    contradict(fmt::format("lr_schedule.min_lr = {}: above optimizer.lr = {}; lower it", s.min_lr, c.optimizer.lr));
  if (s.decay_steps && s.warmup.steps >= *s.decay_steps)
    contradict(
        fmt::format("lr_schedule.warmup_steps = {}: must be below lr_schedule.decay_steps = {}; shorten the warm-up, or lengthen "
                    "the decay (--set lr_schedule.decay_steps=null: to run.steps)",
                    s.warmup.steps, *s.decay_steps));
  if (s.type == LrScheduleType::kWsd && !s.wsd_decay_steps)
    contradict(
        "lr_schedule.wsd_decay_steps = null: lr_schedule.type \"wsd\" needs the length of its final decay; give a number of steps, "
        "or a share such as 0.1");
  if (s.decay_steps && s.wsd_decay_steps && s.wsd_decay_steps->steps > *s.decay_steps)
    contradict(fmt::format("lr_schedule.wsd_decay_steps = {}: must be at most lr_schedule.decay_steps = {}",
                           s.wsd_decay_steps->steps, *s.decay_steps));
  // Shares of more than the whole fit no decay; the length of another may follow from the data, or from the checkpoint.
  if (s.decay_steps || s.warmup.share.value_or(0) + s.wsd_decay_steps.value_or(ScheduleLength()).share.value_or(0) > 1)
    check_wsd_tail(c);
  if (c.data.split && !c.data.valid.empty())
    contradict(fmt::format("data.split = {}: data.valid is given too; set one of them to null", in_quotes(*c.data.split)));
  check_loss(c);
  check_samples(c);
  const std::int64_t last = c.run.epochs ? INT64_MAX : c.run.steps;  // the data say how many steps an epoch is
  if (const std::vector<std::int64_t>& t = c.log.trace_steps; !t.empty() && (t.size() != 2 || t[0] > t[1] || t[1] > last))
    contradict(
        fmt::format("log.trace_steps = {}: not a first and a last step up to run.steps = {}; write two numbers such as [3, 5]",
                    value_text(write(t)), c.run.steps));
}

JsonValue& slot_at(JsonValue& root, std::string_view path) {
  JsonValue* object = &root;
  for (auto dot = path.find('.'); dot != path.npos; path.remove_prefix(dot + 1), dot = path.find('.')) {
    const std::string_view block = path.substr(0, dot);
    if (object->find(block) == nullptr) object->set(block, JsonValue::Object{});
    object = object->find(block);
  }
  if (object->find(path) == nullptr) object->set(path, {});
  return *object->find(path);
}

JsonValue to_json(const TrainConfig& config) {
  // From the table, so that keys that have no member yet (reserved ones) are there with their neutral value.
  JsonValue root{JsonValue::Object{}};
  for (const Option& option : option_table()) slot_at(root, option.path) = default_value(option);
  visit_members(config, [&](std::string_view path, const auto& member) { slot_at(root, path) = write(member); });
  if (config.run.epochs) slot_at(root, "run.steps") = {};  // they follow from the data
  if (config.model.keys.is_object())
    for (const JsonMember& member : config.model.keys.members()) root.find(kModelBlock)->set(member.key, member.value);
  return root;
}

std::int64_t decay_length(const TrainConfig& config) {
  const LrScheduleConfig& s = config.lr_schedule;
  return s.decay_steps.value_or(std::max(s.earlier_decay_length, config.run.steps));
}

void check_wsd_tail(const TrainConfig& config) {
  const LrScheduleConfig& s = config.lr_schedule;
  if (s.type != LrScheduleType::kWsd) return;
  const std::int64_t length = decay_length(config), most = length - std::min(s.warmup.within(length), length);
  const std::int64_t decay = s.wsd_decay_steps->within(length);
  if (decay > most)
    contradict(fmt::format("lr_schedule.wsd_decay_steps = {}: of {}, lr_schedule.warmup_steps = {} leaves {} for the final decay; "
                           "--set lr_schedule.{}",
                           value_text(write(*s.wsd_decay_steps)), counted(length, "step"), value_text(write(s.warmup)), most,
                           most > 0 ? fmt::format("wsd_decay_steps={}", most)
                                    : fmt::format("warmup_steps={}", std::max<std::int64_t>(length - decay, 0))));
}

std::vector<std::string> keys_set_in(const TrainConfig& config, std::string_view section) {
  const auto values_of = [section](const TrainConfig& of) {
    std::vector<std::pair<std::string, JsonValue>> values;
    visit_members(of, [&](std::string_view path, const auto& member) {
      if (path.substr(0, path.find('.')) == section) values.emplace_back(path, write(member));
    });
    return values;
  };
  const auto chosen = values_of(config), usual = values_of(TrainConfig());
  std::vector<std::string> keys;
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (!(chosen[i].second == usual[i].second)) keys.push_back(chosen[i].first);
  return keys;
}

}  // namespace trident
