#include "plan/training_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "plan/case_row.h"

namespace trident {

namespace {

class Reader {
 public:
  Reader(const JsonValue& object, RowReading& out) : object_(object), out_(out) {}

  // The value at "group.key"; nullptr: absent or null.
  const JsonValue* find(std::string_view group, std::string_view key) const {
    const JsonValue* value = &object_;
    if (!group.empty()) value = object_.find(group);
    if (value) value = value->find(key);
    return value && !value->is_null() ? value : nullptr;
  }
  double number(std::string_view group, std::string_view key) const {
    const JsonValue* value = find(group, key);
    if (!value || !value->is_number() || !(value->as_number() > 0))
      throw UnsupportedCase(fmt::format("{}.{} must be a positive number", group, key));
    return whole_size(group, key, value->as_number());
  }
  double number_or(std::string_view group, std::string_view key, double otherwise, bool tell = true) {
    const JsonValue* value = find(group, key);
    if (value && !value->is_number()) refuse(fmt::format("{}.{}: not a number", group, key));
    if (value && value->is_number() && value->as_number() > 0) return whole_size(group, key, value->as_number());
    if (tell) assume(fmt::format("{}.{}", group, key), whole(otherwise));
    return otherwise;
  }
  std::string text(std::string_view group, std::string_view key) const {
    const JsonValue* value = find(group, key);
    return value && value->is_string() ? value->as_string() : std::string();
  }
  void assume(std::string path, JsonValue value) { out_.assumed.push_back({std::move(path), std::move(value)}); }
  void leave_sequence_parallel_open(bool open) { out_.sequence_parallel_open = open; }
  void refuse(std::string why) {
    if (out_.unsupported.empty()) out_.unsupported = std::move(why);
  }
  static JsonValue whole(double x) {
    return std::floor(x) == x ? JsonValue(static_cast<std::int64_t>(x)) : JsonValue(x);
  }

 private:
  // Sizes, degrees and counts: whole, and so small that products of them are numbers.
  static double whole_size(std::string_view group, std::string_view key, double value) {
    constexpr double kMost = 1e8;
    if (!(value <= kMost) || std::floor(value) != value)
      throw UnsupportedCase(fmt::format("{}.{} = {}: must be a whole number up to {:.0f}", group, key, value, kMost));
    return value;
  }

  const JsonValue& object_;
  RowReading& out_;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

void read_model(Reader& in, TrainingRow& row) {
  row.layers = static_cast<int>(in.number("model", "layers"));
  row.hidden = in.number("model", "hidden");
  row.heads = in.number("model", "heads");
  row.kv_heads = in.number_or("model", "kv_heads", row.heads);
  row.sequence = in.number("model", "seq");
  row.activation = lower(in.text("model", "act"));
  row.gated = row.activation == "swiglu" || row.activation == "geglu";
  row.plain_block = row.activation == "gelu" || row.activation.empty();
  row.ffn = in.number_or("model", "ffn", 4 * row.hidden);
  row.vocab = in.number_or("model", "vocab", 51200);
  const JsonValue* tied = in.find("model", "tied");
  row.tied = tied && tied->is_bool() ? tied->as_bool() : row.plain_block;
  if (in.find("model", "experts") || in.find("model", "num_experts")) in.refuse("mixture of experts is not priced");
}

// The whole number that ends at `end`, or at a blank before it; -1: none.
double number_before(std::string_view text, std::size_t end) {
  if (end > 0 && text[end - 1] == ' ') --end;
  std::size_t begin = end;
  while (begin > 0 && text[begin - 1] >= '0' && text[begin - 1] <= '9') --begin;
  double number = -1;
  std::from_chars(text.data() + begin, text.data() + end, number);  // left alone where it is none, or none that fits
  return number;
}

// "8x HDR 200 Gb/s IB per node", "1600 Gb/s RoCE per node": bytes per second of a node; 0: the text does not say. What belongs
// together stands between separators.
double network_of(std::string_view text) {
  constexpr std::string_view kUnit = "Gb/s", kSeparators = ",;:";
  double of_node = 0;
  for (std::size_t unit = text.find(kUnit); unit != text.npos; unit = text.find(kUnit, unit + 1)) {
    const double rate = number_before(text, unit);
    if (rate < 0) continue;
    const std::size_t before = text.find_last_of(kSeparators, unit), after = text.find_first_of(kSeparators, unit);
    const std::size_t begin = before == text.npos ? 0 : before + 1;
    for (std::size_t x = text.find('x', begin); x < unit; x = text.find('x', x + 1)) {
      const bool is_count = x > begin && text[x - 1] >= '0' && text[x - 1] <= '9';
      if (is_count) return number_before(text, x) * rate / 8 * 1e9;
    }
    const std::string_view rest = text.substr(unit, after == text.npos ? text.npos : after - unit);
    if (of_node == 0 && rest.find("per node") != rest.npos) of_node = rate / 8 * 1e9;
  }
  return of_node;
}

void read_cluster(Reader& in, TrainingRow& row) {
  row.gpu = in.text("cluster", "gpu");
  row.gpus = static_cast<int>(in.number("cluster", "gpus"));
  row.gpus_per_node = static_cast<int>(in.number_or("cluster", "gpus_per_node", 8));
  row.network_bytes_per_s = network_of(in.text("cluster", "interconnect"));
  if (!in.find("cluster", "interconnect") && row.gpus > row.gpus_per_node)
    in.assume("cluster.interconnect", "that of the GPU's usual node");
}

struct ZeroWords {
  int stage = 0;
  bool by_number = false;  // TrainingRow::zero_by_number
};

// "FSDP", "full_shard", "SHARD_GRAD_OP", "zero-3", "dist-opt", ...; nothing for what is none of them, or shards within groups of
// ranks.
std::optional<ZeroWords> zero_of(const std::string& name) {
  const auto says = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  if (says("hsdp") || says("hybrid")) return std::nullopt;
  if (says("dist-opt") || says("distributed opt") || says("distributed_opt")) return ZeroWords{1, false};
  if (says("shard_grad") || says("shard grad") || (says("fsdp") && says("grad"))) return ZeroWords{2, true};
  if (says("fsdp") || says("full_shard") || says("full shard")) return ZeroWords{3, true};
  if (name == "none" || name == "ddp" || name == "no") return ZeroWords{0, false};
  if (const std::size_t zero = name.find("zero"); zero != std::string::npos) {
    for (const char c : name.substr(zero)) {
      if (c >= '0' && c <= '3') return ZeroWords{c - '0', c != '0'};
    }
  }
  return std::nullopt;
}

void read_zero(Reader& in, TrainingRow& row) {
  const JsonValue* zero = in.find("parallel", "zero");
  if (!zero) {
    in.assume("parallel.zero", 0);
  } else if (zero->is_integer()) {
    row.zero = static_cast<int>(zero->as_integer());
    row.zero_by_number = row.zero > 0;
  } else if (zero->is_string()) {
    const std::string name = lower(zero->as_string());
    const std::optional<ZeroWords> words = zero_of(name);
    if (!words) in.refuse(fmt::format("parallel.zero: {} is not priced", in_quotes(name)));
    else row.zero = words->stage, row.zero_by_number = words->by_number;
  } else {
    in.refuse("parallel.zero: neither a stage nor a name");
  }
  if (row.zero < 0 || row.zero > 3) in.refuse(fmt::format("there is no ZeRO stage {}", row.zero));
}

void read_layout(Reader& in, TrainingRow& row) {
  row.tp = static_cast<int>(in.number_or("parallel", "tp", 1));
  row.pp = static_cast<int>(in.number_or("parallel", "pp", 1));
  row.cp = static_cast<int>(in.number_or("parallel", "cp", 1, false));
  row.schedule = read_schedule_words(in.text("parallel", "schedule"));
  if (!row.schedule.unknown.empty())
    in.refuse(fmt::format("parallel.schedule: {} is not priced", in_quotes(row.schedule.unknown)));
  const JsonValue* vpp = in.find("parallel", "vpp");
  if (!vpp && row.pp > 1) in.assume("parallel.vpp", 1);
  if (vpp && vpp->is_number()) row.vpp = static_cast<int>(in.number("parallel", "vpp"));
  // "max": one layer a chunk; embedding and head count as a layer each where only so the layers divide.
  if (vpp && !vpp->is_number()) {
    if (vpp->is_string() && vpp->as_string().starts_with("max")) row.vpp = std::max(1, (row.layers + row.pp - 1) / row.pp);
    else in.refuse("parallel.vpp: neither a number nor \"max\"");
  }
  if (in.number_or("parallel", "ep", 1, false) > 1) in.refuse("expert parallelism is not priced");
  if (std::fmod(row.heads, row.tp) != 0) in.refuse(fmt::format("tp {} does not divide {} heads", row.tp, row.heads));
  const std::int64_t model_ranks = std::int64_t{row.tp} * row.pp * std::min(row.cp, row.gpus);
  if (model_ranks > row.gpus || row.gpus % model_ranks != 0 || row.cp > row.gpus) {
    in.refuse(fmt::format("tp {} x pp {} x cp {} does not divide {} GPUs", row.tp, row.pp, row.cp, row.gpus));
    return;
  }
  row.dp = static_cast<int>(row.gpus / model_ranks);  // some tables print another number beside it; the GPUs decide
  const JsonValue* sp = in.find("parallel", "sp");
  if (sp && sp->is_bool())
    row.sequence_parallel = sp->as_bool() && row.tp > 1;
  else
    in.leave_sequence_parallel_open(row.tp > 1);
  read_zero(in, row);
}

void read_batch(Reader& in, TrainingRow& row) {
  row.global_batch = in.number("batch", "global");
  const double of_replica = row.global_batch / row.dp;
  row.micro_batch = in.number_or("batch", "micro", row.pp > 1 ? 1 : of_replica);
  row.micro_batches = of_replica / row.micro_batch;
  if (row.micro_batches < 1 || std::abs(row.micro_batches - std::round(row.micro_batches)) > 1e-6)
    in.refuse(fmt::format("a global batch of {} is no whole number of micro-batches of {} on {} replicas", row.global_batch,
                          row.micro_batch, row.dp));
}

void read_numbers(Reader& in, TrainingRow& row) {
  const std::string precision = lower(in.text("", "precision"));
  row.bf16 = precision.find("bf16") != std::string::npos && precision.find("fp16") == std::string::npos;
  row.compiled = precision.find("compile") != std::string::npos;
  if (precision.find("fp8") != std::string::npos) row.format = MathFormat::kFp8;
  if (precision.find("fp4") != std::string::npos) row.format = MathFormat::kFp4;
  if (precision.empty()) in.assume("precision", "16-bit");
  const auto says = [&](std::string_view word) { return precision.find(word) != std::string::npos; };
  if (!precision.empty() && !says("16") && !says("fp8") && !says("fp4") && !says("mixed") && !says("half"))
    in.refuse(fmt::format("precision: {} is not priced", in_quotes(precision)));
  if (precision.find("fp32") == 0 || precision.find("tf32") == 0) in.refuse("single precision is not priced");
  const JsonValue* recompute = in.find("", "recompute");
  std::string mode = recompute && recompute->is_string() ? lower(recompute->as_string()) : "";
  if (recompute && recompute->is_bool()) mode = recompute->as_bool() ? "full" : "none";
  if (mode.empty()) in.assume("recompute", "none");
  if (mode.starts_with("full")) row.recompute = Recompute::kFull;
  else if (mode.starts_with("selective per-op")) row.recompute = Recompute::kPerOperation;
  else if (mode.starts_with("selective")) row.recompute = Recompute::kSelective;
  else if (!mode.empty() && mode != "none" && mode != "no" && mode != "off")
    in.refuse(fmt::format("recompute: {} is not priced", in_quotes(mode)));
  row.bf16 = row.bf16 || row.format != MathFormat::k16Bit;
}

void read_stack(Reader& in, TrainingRow& row) {
  row.framework = in.text("stack", "framework");
  row.attention = in.text("stack", "attention");
  const JsonValue* fused = in.find("stack", "fused_rms_norm");
  row.fused_norm = fused && fused->is_bool() && fused->as_bool();
  row.year = static_cast<int>(in.number_or("stack", "year", 0, false));
  if (row.attention.empty()) {
    row.attention = "flash2";
    in.assume("stack.attention", row.attention);
  }
}

}  // namespace

RowReading read_training_row(const JsonValue& object) {
  RowReading out;
  Reader in(object, out);
  out.row.id = in.text("", "id");
  read_stack(in, out.row);
  read_model(in, out.row);
  read_cluster(in, out.row);
  read_layout(in, out.row);
  if (out.unsupported.empty()) read_batch(in, out.row);
  if (out.row.framework.empty()) {
    const bool shards_alone = out.row.zero_by_number && out.row.zero >= 2 && out.row.tp * out.row.pp == 1;
    out.row.framework = shards_alone ? "pytorch_fsdp1" : "megatron_lm";
    in.assume("stack.framework", out.row.framework);
  }
  read_numbers(in, out.row);
  return out;
}

}  // namespace trident
