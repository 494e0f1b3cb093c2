#include "planner/published/training_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

namespace trident {
namespace {

constexpr double kFewestChunks = 2;  // that interleave
constexpr int kMostLayers = 1024;     // whose best division over stages is looked for

void read_model(RunFields& in, TrainingRow& row) {
  constexpr std::array<std::string_view, 9> kActivations{"gelu",         "swiglu", "geglu", "squared-relu", "squared_relu",
                                                         "relu-squared", "relu2",  "relu",  "silu"};
  row.layers = static_cast<int>(in.number("model", "layers"));
  if (row.layers > kMostLayers) in.cannot_be_priced("model", "layers", fmt::format("at most {}", kMostLayers));
  row.hidden = in.number("model", "hidden");
  row.heads = in.number("model", "heads");
  row.kv_heads = in.number_or("model", "kv_heads", row.heads);
  row.sequence = in.number("model", "seq");
  if (std::fmod(row.hidden, row.heads) != 0)
    in.cannot_be_priced("model", "heads", fmt::format("a divisor of hidden = {:.0f}", row.hidden));
  if (std::fmod(row.heads, row.kv_heads) != 0)
    in.cannot_be_priced("model", "kv_heads", fmt::format("a divisor of heads = {:.0f}", row.heads));
  const std::optional<std::string> activation = in.said_text("model", "act");
  if (!activation) in.assume("model.act", "gelu");
  row.activation = activation.value_or("gelu");
  if (std::find(kActivations.begin(), kActivations.end(), row.activation) == kActivations.end())
    in.cannot_be_priced("model", "act", "gelu, swiglu, geglu, squared-relu, relu or silu");
  row.gated = row.activation == "swiglu" || row.activation == "geglu";
  row.plain_block = row.activation == "gelu";
  // Two branches have as many parameters as one of four times the width when each is 8/3 as wide, in whole 256ths.
  constexpr double kGated = 8.0 / 3, kMultiple = 256;
  const double gated_width = std::ceil(kGated * row.hidden / kMultiple) * kMultiple;
  row.ffn = in.number_or("model", "ffn", row.gated ? gated_width : 4 * row.hidden);
  row.vocab = in.number_or("model", "vocab", 51200);
  const std::optional<bool> tied = in.said_flag("model", "tied");
  row.tied = tied.value_or(row.plain_block);
  if (!tied) in.assume("model.tied", row.tied);
  for (const char* key : {"experts", "num_experts", "moe", "top_k"}) {
    if (in.is_null("model", key)) in.assume(fmt::format("model.{}", key), 1);
    if (const JsonValue* value = in.find("model", key); value && *value != JsonValue(1) && *value != JsonValue(0))
      in.cannot_be_priced("model", key, "1: mixture of experts is not priced");
  }
}

void read_cluster(RunFields& in, TrainingRow& row) {
  const JsonValue* gpu = in.find("cluster", "gpu");
  if (!gpu || !gpu->is_string()) in.cannot_be_priced("cluster", "gpu", "the name of a GPU");
  row.gpu = gpu->as_string();
  row.gpus = static_cast<int>(in.number("cluster", "gpus"));
  row.gpus_per_node = static_cast<int>(in.number_or("cluster", "gpus_per_node", 8));
  const JsonValue* text = in.find("cluster", "interconnect");
  if (text && !text->is_string()) in.cannot_be_priced("cluster", "interconnect", "a text");
  if (text) {
    row.network_bytes_per_s = network_of(text->as_string(), row.gpus_per_node);
    row.memory_gb = memory_of(text->as_string());
  }
  if ((row.network_bytes_per_s == 0 && row.gpus > row.gpus_per_node) || in.is_null("cluster", "interconnect"))
    in.assume("cluster.interconnect", "that of the GPU's usual node");
}

void read_zero(RunFields& in, RowReading& out) {
  const JsonValue* zero = in.find("parallel", "zero");
  constexpr std::string_view kWanted = "a ZeRO stage from 0 to 3, \"dist-opt\", \"FSDP\" or another word for one of them";
  if (!zero) {
    out.open.zero = true;
    return;
  }
  std::optional<ZeroWords> words;
  if (zero->is_string() && zero->as_string().find_first_not_of("0123456789 ") != std::string::npos)  // a number is none in quotes
    words = zero_of(zero->as_string());
  if (zero->is_number())
    for (int stage = 0; stage <= 3; ++stage)
      if (zero->as_number() == stage) words = ZeroWords{stage, stage > 0};
  if (!words) in.cannot_be_priced("parallel", "zero", kWanted);
  out.row.zero = words->stage;
  out.row.zero_by_number = words->by_number;
}

// Virtual stages on a rank, by what the schedule's name needs.
void read_chunks(RunFields& in, TrainingRow& row) {
  const bool v_shaped = is_v_shaped(row.schedule.order);
  const JsonValue* vpp = in.find("parallel", "vpp");
  if (!vpp) {
    row.vpp = v_shaped || (row.schedule.interleaved && row.pp > 1) ? static_cast<int>(kFewestChunks) : 1;
    if (row.pp > 1 || in.is_null("parallel", "vpp")) in.assume("parallel.vpp", row.vpp);
    return;
  }
  // "max": one layer a chunk; embedding and head count as a layer each where only so the layers divide.
  if (vpp->is_string() && in_small_letters(vpp->as_string()).starts_with("max"))
    row.vpp = std::max(1, (row.layers + row.pp - 1) / row.pp);
  else if (vpp->is_number())
    row.vpp = static_cast<int>(in.number("parallel", "vpp"));
  else
    in.cannot_be_priced("parallel", "vpp", "a whole number or \"max\"");
  const std::int64_t stages = std::int64_t{row.pp} * row.vpp;
  if (stages > row.layers + 2) throw UnsupportedCase(fmt::format("{} layers do not fill {} stages", row.layers, stages));
  if (v_shaped && row.vpp == 1) {  // tables that count the stages of a rank as one
    row.vpp = static_cast<int>(kFewestChunks);
    in.assume("parallel.vpp", row.vpp);
  }
  if (v_shaped && row.vpp != 2) in.cannot_be_priced("parallel", "vpp", "2: this schedule has two stages on every rank");
  const bool one_stage = splits_backwards(row.schedule.order) || row.schedule.order == SimulatedKind::kGpipe;
  if (!v_shaped && one_stage && row.vpp > 1) in.cannot_be_priced("parallel", "vpp", "1: this schedule has one stage on every rank");
}

void read_degrees(RunFields& in, TrainingRow& row) {
  row.tp = static_cast<int>(in.number_or("parallel", "tp", 1));
  row.pp = static_cast<int>(in.number_or("parallel", "pp", 1));
  row.cp = static_cast<int>(in.number_or("parallel", "cp", 1));
  if (in.said_number("parallel", "ep").value_or(1) > 1)
    in.cannot_be_priced("parallel", "ep", "1: expert parallelism is not priced");
  if (in.is_null("parallel", "ep")) in.assume("parallel.ep", 1);
  if (std::fmod(row.heads, row.tp) != 0)
    throw UnsupportedCase(fmt::format("tp {} does not divide {} heads", row.tp, row.heads));
  const std::int64_t model_ranks = std::int64_t{row.tp} * row.pp * std::min(row.cp, row.gpus);
  if (model_ranks > row.gpus || row.gpus % model_ranks != 0 || row.cp > row.gpus)
    throw UnsupportedCase(fmt::format("tp {} x pp {} x cp {} does not divide {} GPUs", row.tp, row.pp, row.cp, row.gpus));
  row.dp = static_cast<int>(row.gpus / model_ranks);
  // Some tables print another number beside it; the GPUs decide.
  const std::optional<double> dp = in.said_number("parallel", "dp");
  if ((dp && *dp != row.dp) || in.is_null("parallel", "dp")) in.assume("parallel.dp", row.dp);
}

void read_layout(RunFields& in, RowReading& out) {
  TrainingRow& row = out.row;
  read_degrees(in, row);
  const std::optional<std::string> schedule = in.said_text("parallel", "schedule");
  if (schedule) row.schedule = read_schedule_words(*schedule);
  if (!row.schedule.unknown.empty())
    in.cannot_be_priced("parallel", "schedule",
                        fmt::format("one that is priced; {} is no word of those", in_quotes(row.schedule.unknown)));
  read_chunks(in, row);
  if ((!schedule && row.pp > 1) || in.is_null("parallel", "schedule"))
    in.assume("parallel.schedule", row.vpp > 1 ? "interleaved 1f1b" : "1f1b");
  const std::optional<bool> sp = in.said_flag("parallel", "sp");
  row.sequence_parallel = sp.value_or(false) && row.tp > 1;
  out.open.sequence_parallel = (!sp && row.tp > 1) || in.is_null("parallel", "sp");
  read_zero(in, out);
}

void read_batch(RunFields& in, TrainingRow& row) {
  row.global_batch = in.number("batch", "global");
  const double of_replica = row.global_batch / row.dp;
  const bool whole = std::floor(of_replica) == of_replica;
  row.micro_batch = in.number_or("batch", "micro", row.pp > 1 || !whole ? 1 : of_replica);
  row.micro_batches = of_replica / row.micro_batch;
  if (row.micro_batches < 1 || std::abs(row.micro_batches - std::round(row.micro_batches)) > 1e-6)
    throw UnsupportedCase(fmt::format("a global batch of {} is no whole number of micro-batches of {} on {} replicas",
                                      row.global_batch, row.micro_batch, row.dp));
}

void read_numbers(RunFields& in, RowReading& out) {
  TrainingRow& row = out.row;
  if (const std::optional<std::string> text = in.said_text("", "precision")) {
    const std::optional<PrecisionWords> words = precision_of(*text);
    if (!words) in.cannot_be_priced("", "precision", "of 16, 8 or 4 bits: bf16, fp16, fp8, mxfp8, nvfp4, ...");
    row.bf16 = words->bf16;
    row.compiled = words->compiled;
    row.format = words->format;
    if (!words->by_name) in.assume("precision", "fp16 mixed");
  } else {
    row.bf16 = true;
    in.assume("precision", "bf16");
  }
  const JsonValue* recompute = in.find("", "recompute");
  if (!recompute) {
    out.open.recompute = true;
    return;
  }
  std::optional<Recompute> mode;
  if (recompute->is_bool()) mode = recompute->as_bool() ? Recompute::kFull : Recompute::kNone;
  if (recompute->is_string()) mode = recompute_of(recompute->as_string());
  if (!mode) in.cannot_be_priced("", "recompute", "none, selective, selective per-op or full (of every layer)");
  row.recompute = *mode;
}

void read_stack(RunFields& in, RowReading& out) {
  TrainingRow& row = out.row;
  constexpr double kFirst = 2015, kLast = 2100;
  const auto text = [&](const char* key) {
    const JsonValue* value = in.find("stack", key);
    if (value && (!value->is_string() || value->as_string().empty())) in.cannot_be_priced("stack", key, "a text that is not empty");
    return value ? value->as_string() : std::string();
  };
  row.framework = text("framework");
  row.attention = text("attention");
  out.open.attention = row.attention.empty();
  const std::optional<bool> fused = in.said_flag("stack", "fused_rms_norm");
  row.fused_norm = fused.value_or(false);
  out.open.fused_norm = (!fused && row.gated) || in.is_null("stack", "fused_rms_norm");
  const std::optional<double> year = in.said_number("stack", "year");
  if (year && (*year < kFirst || *year > kLast))
    in.cannot_be_priced("stack", "year", fmt::format("a year from {} to {}", kFirst, kLast));
  row.year = static_cast<int>(year.value_or(0));
  if (!year) in.assume("stack.year", "that of the newest version");
  if (row.framework.empty()) {
    const bool shards_alone = row.zero_by_number && row.zero >= 2 && row.tp * row.pp == 1;
    row.framework = shards_alone ? "pytorch_fsdp1" : "megatron_lm";
    in.assume("stack.framework", row.framework);
  }
}

}  // namespace

int rank_of_stage(const TrainingRow& row, int virtual_stage) {
  const int p = row.pp;
  if (!is_v_shaped(row.schedule.order)) return virtual_stage % p;
  return virtual_stage < p ? virtual_stage : 2 * p - 1 - virtual_stage;
}

RowReading read_training_row(const JsonValue& object) {
  RowReading out;
  RunFields in(object);
  read_model(in, out.row);
  read_cluster(in, out.row);
  read_layout(in, out);
  read_batch(in, out.row);
  read_numbers(in, out);
  read_stack(in, out);
  out.assumed = in.take_assumed();
  out.not_read = in.not_read();
  return out;
}

}  // namespace trident
