#include "tests/contracts/expected.h"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace trident::contracts {
namespace {

constexpr std::int64_t kFloat = 4, kBlock = 64, kVocabularyMultiple = 128;
// Loss and norm as exact sums of 70 words each, and one count: 64-bit integers.
constexpr std::int64_t kStatisticsBytes = (70 + 70 + 1 + 1) * 8;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

struct Parameter {
  std::int64_t elements = 0;
  int partial = 1;
  bool tied = false;
};

std::vector<Parameter> block_parameters(const ContractCase& c) {
  const ModelNumbers& m = c.model;
  const int t = c.tensor, under_sequence = c.shards_sequence() ? t : 1;
  std::vector<Parameter> list;
  const auto add = [&](std::int64_t elements, int partial) { list.push_back({elements, partial}); };
  const auto norm = [&] {
    add(m.hidden, under_sequence);
    if (m.gpt2()) add(m.hidden, under_sequence);
  };
  const auto linear = [&](std::int64_t rows, int partial, bool bias) {
    add(rows * m.hidden, partial);
    if (bias) add(rows, partial);
  };
  norm();
  if (t <= m.kv_heads) {
    linear((m.heads + 2 * m.kv_heads) / t * m.head_dim, 1, m.qkv_bias());
  } else {  // every key/value head lies on t / kv_heads ranks
    linear(m.heads / t * m.head_dim, 1, m.qkv_bias());
    linear(2 * m.head_dim, t / static_cast<int>(m.kv_heads), m.qkv_bias());
  }
  if (m.qk_norm()) {
    add(m.head_dim, t);
    add(m.head_dim, t);
  }
  if (m.olmo2()) {
    const int replicas = t > m.kv_heads ? t / static_cast<int>(m.kv_heads) : 1;
    add(m.heads / t * m.head_dim, 1);
    add(m.kv_heads * replicas / t * m.head_dim, replicas);
  }
  add(m.hidden * m.heads * m.head_dim / t, 1);
  if (m.gpt2()) add(m.hidden, under_sequence);
  norm();
  linear((m.gpt2() ? 1 : 2) * m.ffn / t, 1, m.gpt2());
  add(m.hidden * m.ffn / t, 1);
  if (m.gpt2()) add(m.hidden, under_sequence);
  return list;
}

std::vector<Parameter> parameters(const ContractCase& c, std::int64_t unit) {
  const ModelNumbers& m = c.model;
  const std::int64_t table = round_up(m.vocabulary, kVocabularyMultiple * c.tensor) / c.tensor * m.hidden;
  const int under_sequence = c.shards_sequence() ? c.tensor : 1;
  if (unit > 0 && unit <= m.layers) return block_parameters(c);
  std::vector<Parameter> list;
  if (unit == 0) {
    list.push_back({table, 1, m.tied});
    if (m.gpt2()) list.push_back({m.positions * m.hidden, under_sequence});
    return list;
  }
  list.push_back({m.hidden, under_sequence});
  if (m.gpt2()) list.push_back({m.hidden, under_sequence});
  list.push_back({table, 1, m.tied});
  return list;
}

// The order in which a pipeline rank computes: (forward?, chunk), one entry per micro-batch and chunk and direction.
std::vector<std::pair<bool, int>> compute_order(const ContractCase& c, int rank) {
  const int p = c.pipeline, v = c.chunks;
  const auto total = static_cast<int>(c.micro_batches) * v;
  int warm_up = total;  // gpipe
  if (c.schedule == "1f1b") warm_up = std::min(total, p - rank - 1);
  if (c.schedule == "interleaved") warm_up = std::min(total, 2 * (p - rank - 1) + (v - 1) * p);
  const auto chunk = [&](int k) { return k % (p * v) / p; };
  std::vector<std::pair<bool, int>> order;
  for (int k = 0; k < warm_up; ++k) order.emplace_back(true, chunk(k));
  for (int k = 0; k < total; ++k) {
    if (warm_up + k < total) order.emplace_back(true, chunk(warm_up + k));
    order.emplace_back(false, v - 1 - chunk(k));
  }
  return order;
}

int layers_of(const ContractCase& c, int virtual_stage) {
  if (!c.layers.empty()) return c.layers.at(static_cast<std::size_t>(virtual_stage));
  return static_cast<int>(c.model.layers) / (c.pipeline * c.chunks);
}

std::vector<std::int64_t> units_of_stage(const ContractCase& c, int virtual_stage) {
  std::int64_t first = 1;
  for (int s = 0; s < virtual_stage; ++s) first += layers_of(c, s);
  std::vector<std::int64_t> units;
  if (virtual_stage == 0) units.push_back(0);
  for (int i = 0; i < layers_of(c, virtual_stage); ++i) units.push_back(first + i);
  if (virtual_stage == c.pipeline * c.chunks - 1) units.push_back(c.model.layers + 1);
  return units;
}

// A rank's computes, one after the other.
struct Use {
  std::int64_t unit = 0;
  bool forward = false;
};
std::vector<Use> uses(const ContractCase& c, int rank) {
  std::vector<Use> list;
  for (const auto& [forward, chunk] : compute_order(c, rank)) {
    std::vector<std::int64_t> units = units_of_stage(c, chunk * c.pipeline + rank);
    if (!forward) std::reverse(units.begin(), units.end());
    for (const std::int64_t unit : units) list.push_back({unit, forward});
  }
  return list;
}

// A stretch of computes during which something of a unit takes memory.
struct Stay {
  std::int64_t unit = 0;
  std::size_t first = 0, last = 0;
};
std::int64_t most_at_once(const ContractCase& c, const std::vector<Stay>& stays, std::size_t computes) {
  std::int64_t most = 0;
  for (std::size_t at = 0; at < computes; ++at) {
    std::int64_t sum = 0;
    for (const Stay& stay : stays) sum += stay.first <= at && at <= stay.last ? expected_elements(c, stay.unit) : 0;
    most = std::max(most, sum);
  }
  return most;
}

// Where a rank would gather units on use: before every use that is not of the unit just used, and, per micro-batch, only if none is
// in flight.
std::vector<Stay> gathered_stays(const ContractCase& c, int rank) {
  const std::vector<Use> list = uses(c, rank);
  std::map<std::int64_t, std::size_t> current;  // by unit: its stay
  std::map<std::int64_t, int> in_flight;
  std::vector<Stay> stays;
  for (std::size_t at = 0; at < list.size(); ++at) {
    const std::int64_t unit = list[at].unit;
    const bool again = at > 0 && list[at - 1].unit == unit;
    if (!again && (c.gather_policy() == "per_use" || in_flight[unit] == 0)) {
      current[unit] = stays.size();
      stays.push_back({unit, at - (c.overlap && at > 0 ? 1 : 0), at});
    }
    stays[current[unit]].last = at;
    in_flight[unit] += list[at].forward ? 1 : -1;
  }
  return stays;
}

// How often a rank gathers each of its units in a step.
std::map<std::int64_t, std::int64_t> gathers(const ContractCase& c, int rank) {
  std::map<std::int64_t, std::int64_t> count;
  if (expected_regions(c, rank).gathered == 0) {
    for (const std::int64_t unit : expected_units(c, rank)) count[unit] = c.shards_state() ? 1 : 0;
    return count;
  }
  for (const Stay& stay : gathered_stays(c, rank)) ++count[stay.unit];
  return count;
}

// ---- by axis --------------------------------------------------------------------------------------------------------------------

void add_tensor_bytes(const ContractCase& c, Bytes& bytes) {
  const std::int64_t t = c.tensor, rows = c.micro * c.sequence;
  const std::int64_t activation = rows * c.model.hidden * c.compute_bytes;
  const std::int64_t times = c.micro_batches * c.data;  // tensor groups that do the same, over a step
  const auto whole_to_part = [&](const char* operation, std::int64_t calls) {
    bytes[operation] += times * calls * (t - 1) * activation;
  };
  const std::int64_t blocks = c.model.layers;
  const int head = c.head_chunk > 0 ? 0 : 1;  // logits in chunks are made by backward alone
  const bool full = c.recompute == "full", after = c.model.olmo2();
  if (c.shards_sequence()) {
    //                                     embedding F B      head F B    blocks: forward, input, weight gradients, made again
    whole_to_part("tp all_gather",         0 + 1 +            head + 1 +  blocks * (2 + 2 + 2 + (full ? 2 : 0)));
    whole_to_part("tp reduce_scatter",     1 + 0 +            0 + 1 +     blocks * (2 + 2 + 0 + (full ? after ? 2 : 1 : 0)));
  } else {
    whole_to_part("tp all_reduce", 2 * (1 + 1 + blocks * (2 + 2 + (full ? after ? 2 : 1 : 0))));
  }
  // Norms over all heads: two sums of every row, in forward, backward and forward made again.
  if (after) bytes["tp all_reduce"] += times * 2 * (t - 1) * blocks * (1 + 1 + (full ? 1 : 0)) * 2 * rows * kFloat;
  // Cross-entropy: the maximum of every row, then its sum of exponentials and its target's logit.
  bytes["tp all_reduce"] += times * 2 * (t - 1) * (rows + 2 * rows) * kFloat;
  for (std::int64_t unit = 0; unit <= blocks + 1; ++unit) {
    for (const ExpectedBucket& bucket : expected_buckets(c, unit)) {
      bytes["tp all_reduce"] += c.data * t / bucket.partial * 2 * (bucket.partial - 1) * bucket.owned * kFloat;
    }
  }
}

void add_data_bytes(const ContractCase& c, Bytes& bytes) {
  const std::int64_t n = c.data;
  for (int rank = 0; rank < c.pipeline; ++rank) {
    const bool one_copy = c.model.tied && c.pipeline == 1 && expected_regions(c, rank).gathered == 0;
    std::map<std::int64_t, std::int64_t> times = gathers(c, rank);
    for (const std::int64_t unit : expected_units(c, rank)) {
      for (const ExpectedBucket& bucket : expected_buckets(c, unit)) {
        const std::int64_t parts = c.tensor * (n - 1) * bucket.elements;
        if (c.shards_state()) {
          bytes["dp reduce_scatter"] += c.reductions() * parts * kFloat;
        } else {
          bytes["dp all_reduce"] += c.reductions() * 2 * parts * kFloat;
        }
        if (one_copy && bucket.tied && unit > 0) continue;  // gathered with the embedding
        bytes["dp all_gather"] += times[unit] * parts * c.compute_bytes;
      }
    }
  }
}

void add_pipeline_bytes(const ContractCase& c, Bytes& bytes) {
  if (c.pipeline == 1) return;
  const std::int64_t columns = c.tensor * c.data;
  const std::int64_t local_sequence = c.shards_sequence() ? c.sequence / c.tensor : c.sequence;
  const std::int64_t boundary = local_sequence * c.micro * c.model.hidden * c.compute_bytes;
  bytes["pp send"] += columns * 2 * c.micro_batches * (c.pipeline * c.chunks - 1) * boundary;
  for (const ExpectedBucket& bucket : expected_buckets(c, 0)) {
    if (bucket.tied) bytes["pp send"] += columns * 2 * bucket.owned * kFloat;  // each end's gradient to the other
  }
}

}  // namespace

std::string ContractCase::gather_policy() const {
  if (!gather.empty()) return gather;
  return zero == "zero3" ? "per_use" : zero == "shard_grad_op" ? "per_micro_batch" : "resident";
}

std::int64_t ContractCase::every() const { return sync_every >= 0 ? sync_every : (zero == "ddp" || zero == "zero1") ? 0 : 1; }

std::int64_t ContractCase::reductions() const { return every() == 0 ? 1 : ceil_div(micro_batches, every()); }

std::vector<ExpectedBucket> expected_buckets(const ContractCase& c, std::int64_t unit) {
  const double limit = c.bucket_mb * 1e6;
  std::vector<ExpectedBucket> buckets;
  std::map<int, std::size_t> open;  // by partial
  for (const Parameter& p : parameters(c, unit)) {
    const auto found = open.find(p.partial);
    const bool joins = !p.tied && found != open.end() &&
                       static_cast<double>((buckets[found->second].elements + p.elements) * kFloat) <= limit;
    if (!joins) {
      buckets.push_back({0, 0, p.partial, p.tied});
      if (!p.tied) open[p.partial] = buckets.size() - 1;
    }
    ExpectedBucket& bucket = joins ? buckets[found->second] : buckets.back();
    bucket.elements = round_up(bucket.elements + p.elements, kBlock);
  }
  for (ExpectedBucket& bucket : buckets) {
    const std::int64_t shard = round_up(ceil_div(bucket.elements, c.data), kBlock);
    bucket.elements = shard * c.data;
    bucket.owned = c.shards_state() ? shard : bucket.elements;
  }
  return buckets;
}

std::int64_t expected_elements(const ContractCase& c, std::int64_t unit) {
  std::int64_t sum = 0;
  for (const ExpectedBucket& bucket : expected_buckets(c, unit)) sum += bucket.elements;
  return sum;
}

std::vector<std::int64_t> expected_units(const ContractCase& c, int pipeline_rank) {
  std::vector<std::int64_t> units;
  for (int stage = pipeline_rank; stage < c.pipeline * c.chunks; stage += c.pipeline) {
    for (const std::int64_t unit : units_of_stage(c, stage)) units.push_back(unit);
  }
  return units;
}

ExpectedRegions expected_regions(const ContractCase& c, int rank) {
  ExpectedRegions regions;
  const std::vector<Use> list = uses(c, rank);
  if (c.every() == 1) {
    std::vector<Stay> stays;
    for (std::size_t at = 0; at < list.size(); ++at) {
      const bool another_follows = at + 1 < list.size() && !list[at + 1].forward && list[at + 1].unit != list[at].unit;
      if (!list[at].forward) stays.push_back({list[at].unit, at, at + (c.overlap && another_follows ? 1 : 0)});
    }
    regions.gradients = most_at_once(c, stays, list.size());
  }
  if (c.data == 1 || c.gather_policy() == "resident") return regions;
  std::int64_t held = 0, owned = 0;
  for (const std::int64_t unit : expected_units(c, rank)) {
    for (const ExpectedBucket& bucket : expected_buckets(c, unit)) {
      if (bucket.tied && unit > 0 && c.pipeline == 1) continue;  // a resident tied weight lies with the embedding
      held += bucket.elements;
      owned += bucket.owned;
    }
  }
  const std::int64_t gathered = most_at_once(c, gathered_stays(c, rank), list.size());
  if (gathered + owned < held) regions.gathered = gathered;
  return regions;
}

Bytes expected_bytes(const ContractCase& c) {
  Bytes bytes;
  add_tensor_bytes(c, bytes);
  add_data_bytes(c, bytes);
  add_pipeline_bytes(c, bytes);
  for (const auto& [axis, n] : std::map<std::string, int>{{"tp", c.tensor}, {"dp", c.data}, {"pp", c.pipeline}}) {
    bytes[axis + " all_reduce"] += c.world() / n * (n - 1) * 2 * kStatisticsBytes;
  }
  std::erase_if(bytes, [](const auto& entry) { return entry.second == 0; });
  return bytes;
}

}  // namespace trident::contracts
