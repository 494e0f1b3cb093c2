#include "planner/published/layout_pricing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/at.h"
#include "core/check.h"
#include "pipeline/schedule/partition.h"
#include "planner/published/simulated_schedules.h"

namespace trident {

namespace {

constexpr double kMostPricedPasses = 1 << 20, kMostSearchedPasses = 1 << 17;

struct Stage {
  PassSeconds forward, backward;
  double weight_gradient = 0;
  double message = 0;  // pipeline messages of one pass that nothing hides
  double host = 0;
  double parameters = 0;  // on this rank
  double f() const { return forward.total() + message + host / 3; }
  double b() const { return backward.total() + message + host * 2 / 3; }
};

void add(PassSeconds& sum, const PassSeconds& part, double times) {
  sum.compute += times * part.compute;
  sum.recompute += times * part.recompute;
  sum.tp += times * part.tp;
  sum.launch += times * part.launch;
}

void add(Stage& stage, const PartSeconds& part, double times) {
  add(stage.forward, part.forward, times);
  add(stage.backward, part.backward, times);
  stage.weight_gradient += times * part.weight_gradient;
}

PartSeconds full_block_seconds(const PricingInput& in) {
  TrainingRow full = in.row;
  full.recompute = Recompute::kFull;
  return block_seconds({full, in.gpu, in.stack, in.links});
}

std::vector<Stage> stages_of(const PricingInput& in, const StageSplit& layers) {
  const TrainingRow& row = in.row;
  const PartSeconds block = block_seconds(in), full = full_block_seconds(in);
  const PartSeconds embedding = embedding_seconds(in), head = head_seconds(in);
  const std::size_t count = layers.blocks.size();
  const bool one_holds_both = rank_of_stage(row, static_cast<int>(count) - 1) == 0;
  const double bytes = 2 * tokens_of_micro_batch(row) * row.hidden;
  const bool split = in.stack.split_messages && !row.sequence_parallel;
  double message = message_seconds(in.links, pp_place(row), row.sequence_parallel || split ? bytes / row.tp : bytes);
  if (split && row.pp > 1) message += in.gpu.network_slowdown * gather_seconds(in.links, tp_place(row), bytes);
  std::vector<Stage> stages(count);
  for (std::size_t i = 0; i < count; ++i) {
    Stage& stage = stages[i];
    add(stage, block, layers.blocks[i] * (1 - row.full_share));
    add(stage, full, layers.blocks[i] * row.full_share);
    stage.parameters = layers.blocks[i] * block_parameters(row) / row.tp;
    const double share = layers.vocabulary_divided ? 1.0 / static_cast<double>(row.pp) : 1.0;
    if (i == 0 || layers.vocabulary_divided) add(stage, embedding, share);
    if (i + 1 == count || layers.vocabulary_divided) add(stage, head, share);
    const double table = table_parameters(row) / row.tp * share;
    if (i == 0 || layers.vocabulary_divided) stage.parameters += table;
    if ((i + 1 == count || layers.vocabulary_divided) && !(row.tied && one_holds_both)) stage.parameters += table;
    const auto leaves = [&](std::size_t a, std::size_t b) {
      return rank_of_stage(row, static_cast<int>(a)) != rank_of_stage(row, static_cast<int>(b));
    };
    if (row.pp > 1 && !in.stack.overlap_messages)
      stage.message = ((i > 0 && leaves(i - 1, i)) + (i + 1 < count && leaves(i, i + 1))) * message;
    stage.host = in.stack.micro_batch_s;
  }
  return stages;
}

// Micro-batches that are simulated; beyond them each costs the same.
int most_simulated(const TrainingRow& row) { return (splits_backwards(row.schedule.order) ? 8 : 4) * row.pp; }

// A schedule takes at least what a rank works, behind the first forwards and before the last backwards of the stages before.
double least_span(const TrainingRow& row, const std::vector<Stage>& stages, double m) {
  std::vector<double> work(static_cast<std::size_t>(row.pp));
  for (std::size_t i = 0; i < stages.size(); ++i)
    at(work, rank_of_stage(row, static_cast<int>(i))) += stages[i].f() + stages[i].b();
  double least = 0, before = 0;
  for (std::size_t rank = 0; rank < work.size(); ++rank) {
    least = std::max(least, before + m * work[rank]);
    before += stages[rank].f() + stages[rank].b();
  }
  return least;
}

// From the first pass of the busiest rank to its last, which it begins its next step after; where all ranks end a step together,
// from the first of all to the last. Beyond some rounds of the pipeline each further micro-batch costs the same; where backwards
// are split, what the busiest rank works for it: other waits are filled.
double pipeline_span(const PricingInput& in, const std::vector<Stage>& stages, double m) {
  const ScheduleWords& words = in.row.schedule;
  const int p = in.row.pp, chunks = static_cast<int>(stages.size()) / p;
  const SimulatedKind kind = chunks > 1 && !is_v_shaped(words.order) ? SimulatedKind::kInterleaved : words.order;
  std::vector<PassTimes> times;  // messages are in them: at both ranks' expense
  for (const Stage& s : stages) times.push_back({s.f(), s.b() - s.weight_gradient, s.weight_gradient, 0});
  const auto run = [&](int micro_batches) {
    const SimulatedSchedule made = make_simulated_schedule(kind, p, chunks, micro_batches, times);
    const ScheduleTimeline timeline = simulate(made.placed, times);
    return splits_backwards(kind) && !words.waits_for_all ? timeline.largest_span : timeline.makespan;
  };
  const int most = most_simulated(in.row);
  if (m <= most) return run(static_cast<int>(m));
  const double long_run = run(most);
  // A busier rank behind a longer way may not be what ends the rounds that are simulated.
  if (!splits_backwards(kind))
    return std::max(long_run + (m - most) * (long_run - run(most - p)) / p, least_span(in.row, stages, m));
  std::vector<double> work(static_cast<std::size_t>(p));
  for (std::size_t i = 0; i < stages.size(); ++i)
    at(work, rank_of_stage(in.row, static_cast<int>(i))) += stages[i].f() + stages[i].b();
  return long_run + (m - most) * *std::max_element(work.begin(), work.end());
}

// Gathers and reductions of every unit in every micro-batch: how much longer a micro-batch takes than its compute.
double sharded_exposed(const PricingInput& in, const Stage& stage, int blocks) {
  const TrainingRow& row = in.row;
  const PartSeconds block = block_seconds(in);
  const double bytes = 2 * block_parameters(row) / row.tp;
  ClusterLinks links = in.links;
  links.network.bytes_per_s *= in.stack.sharded_network_share;
  const double gather = gather_seconds(links, dp_place(row), bytes);
  const double wire = in.stack.wire_bytes > 0 ? in.stack.wire_bytes / 2 : 1;
  const double reduce = gather_seconds(links, dp_place(row), bytes * wire);
  const auto beside = [&](double compute, double network) {
    return overlapped_seconds(compute, network, in.gpu.compute_slowdown, in.gpu.network_slowdown) - compute;
  };
  const double f = block.forward.total();
  const double b = (1 - row.full_share) * block.backward.total() + row.full_share * full_block_seconds(in).backward.total();
  const double again = row.zero == 3 ? gather : 0;
  const double outer = gather_seconds(links, dp_place(row), 2 * (stage.parameters - blocks * bytes / 2));
  // Nothing runs beside the first gather and the last reduction; embedding and head are one unit with them.
  const double backward = in.stack.gather_ahead ? beside(b, again + reduce) : again + beside(b, reduce);
  return blocks * (beside(f, gather) + backward) + outer * (1 + wire) + gather + reduce;
}

// A rank waits so long. No schedule is shorter than the work of one rank, but sums in another order differ in their last
// digits.
double bubble_of(double span, double work) {
  constexpr double kRounding = 1e-9;
  TRIDENT_CHECK(span >= (1 - kRounding) * work, "a schedule of {} s in which one rank works {} s", span, work);
  return std::max(0.0, span - work);
}

struct StepEnd {
  double dp = 0, optimizer = 0;
};

// Once per step: reduction of gradients, update, gather of parameters.
StepEnd end_of_step(const PricingInput& in, const std::vector<Stage>& stages, double parameters) {
  const TrainingRow& row = in.row;
  const TrainingStack& s = in.stack;
  StepEnd end;
  const int shards = row.zero > 0 ? row.dp * row.cp : 1;
  const double own = parameters / shards;
  const double held = row.zero_by_number ? s.gradient_bytes_zero : row.bf16 ? s.gradient_bytes_bf16 : s.gradient_bytes_fp16;
  const double reduced = row.zero >= 2 ? own : parameters;
  end.optimizer = row_seconds(in.gpu, own * s.optimizer_traffic + reduced * s.gradient_traffic, 20);
  if (shards_in_each_micro_batch(in)) return end;
  const double wire = s.wire_bytes > 0 ? s.wire_bytes : held;
  const GroupPlace group = dp_place(row);
  const double last_backward = stages.front().b() * static_cast<double>(stages.size()) / row.pp;
  const auto exposed = [&](double traffic, double work, bool beside) {
    if (!beside) return traffic;
    return overlapped_seconds(work, traffic, in.gpu.compute_slowdown, in.gpu.network_slowdown) - work;
  };
  if (row.zero == 0) {
    end.dp = exposed(all_reduce_seconds(in.links, group, wire * parameters), last_backward, s.overlap_reduce);
  } else {
    const double first_forward = stages.front().f() * static_cast<double>(stages.size()) / row.pp;
    end.dp = exposed(gather_seconds(in.links, group, wire * parameters), last_backward, s.overlap_reduce) +
             exposed(gather_seconds(in.links, group, 2 * parameters), first_forward, s.overlap_gather);
  }
  // Where both ends hold the table they add its gradients.
  if (row.tied && rank_of_stage(row, static_cast<int>(stages.size()) - 1) != 0)
    end.dp += all_reduce_seconds(in.links, {2, pp_place(row).stride}, held * table_parameters(row) / row.tp);
  return end;
}

}  // namespace

bool shards_in_each_micro_batch(const PricingInput& in) {
  return in.row.zero >= 2 && !(in.row.pp > 1 && in.stack.stages_keep_gathered);
}

StageSplit split_stages(const PricingInput& in) {
  const TrainingRow& row = in.row;
  StageSplit split;
  const int parts = row.pp * row.vpp;
  split.vocabulary_divided = row.schedule.vocabulary_divided;
  const bool by_cost = row.schedule.blocks_by_cost;
  if (row.layers % parts == 0 && !by_cost) {
    split.blocks.assign(static_cast<std::size_t>(parts), row.layers / parts);
    return split;
  }
  if ((row.layers + 2) % parts == 0 && !by_cost) {
    split.blocks.assign(static_cast<std::size_t>(parts), (row.layers + 2) / parts);
    --split.blocks.front();
    --split.blocks.back();
    split.assumed = "one block less on the first and the last stage";
    return split;
  }
  const PartSeconds block = block_seconds(in), embedding = embedding_seconds(in), head = head_seconds(in);
  std::vector<double> costs(static_cast<std::size_t>(row.layers) + 2, block.forward.total() + block.backward.total());
  costs.front() = embedding.forward.total() + embedding.backward.total();
  costs.back() = head.forward.total() + head.backward.total();
  for (const std::vector<int>& units : partition_balanced(costs, row.pp, row.vpp)) {
    int blocks = 0;
    for (int unit : units) blocks += unit > 0 && unit <= row.layers;
    split.blocks.push_back(blocks);
  }
  split.assumed = "blocks divided by cost";
  return split;
}

std::string why_not_priced(const PricingInput& in) {
  const TrainingRow& row = in.row;
  if (row.format != MathFormat::k16Bit && peak_flops(in.gpu, row.format) == 0)
    return fmt::format("{} has no units of that precision", in.gpu.name);
  if (row.layers < row.pp * row.vpp && row.layers + 2 != row.pp * row.vpp)  // embedding and head may fill the ends
    return fmt::format("{} layers do not fill {} stages", row.layers, row.pp * row.vpp);
  const double m = std::round(row.micro_batches);
  // A search simulates passes some forty times.
  const double passes = 1.0 * row.pp * row.vpp * std::min<double>(m, most_simulated(row));
  const double limit = depends_on_times(row.schedule.order) ? kMostSearchedPasses : kMostPricedPasses;
  if (passes > limit) return fmt::format("{} stages of a pipeline are more than {} passes to simulate", row.pp * row.vpp, limit);
  if (row.vpp > 1 && !is_v_shaped(row.schedule.order) && std::fmod(m, row.pp) != 0)
    return fmt::format("interleaving needs micro-batches in groups of {}, not {}", row.pp, m);
  return "";
}

RowPrice price_row(const PricingInput& in, const StageSplit& split) {
  const TrainingRow& row = in.row;
  const double m = std::round(row.micro_batches);
  std::vector<Stage> stages = stages_of(in, split);
  RowPrice price;
  double exposed = 0;
  if (shards_in_each_micro_batch(in))
    for (std::size_t i = 0; i < stages.size(); ++i) exposed += sharded_exposed(in, stages[i], split.blocks[i]) / row.pp;

  const double span = pipeline_span(in, stages, m);

  // By part: the rank that works most. What it does not work is the bubble.
  std::vector<Stage> ranks(static_cast<std::size_t>(row.pp));
  for (std::size_t i = 0; i < stages.size(); ++i) {
    Stage& rank = at(ranks, rank_of_stage(row, static_cast<int>(i)));
    add(rank.forward, stages[i].forward, 1);
    add(rank.backward, stages[i].backward, 1);
    rank.message += stages[i].message;
    rank.host += stages[i].host;
    rank.parameters += stages[i].parameters;
  }
  const Stage& most = *std::max_element(ranks.begin(), ranks.end(),
                                        [](const Stage& a, const Stage& b) { return a.f() + a.b() < b.f() + b.b(); });
  double parameters = 0;
  for (const Stage& rank : ranks) parameters = std::max(parameters, rank.parameters);
  price.compute_s = m * (most.forward.compute + most.backward.compute);
  price.recompute_s = m * most.backward.recompute;
  price.tp_s = m * (most.forward.tp + most.backward.tp);
  price.launch_s = m * (most.forward.launch + most.backward.launch + most.host);
  price.bubble_s = bubble_of(span, m * (most.f() + most.b())) + 2 * m * most.message;
  const StepEnd end = end_of_step(in, stages, parameters);
  price.dp_s = end.dp + m * exposed;
  price.optimizer_s = end.optimizer;
  price.fixed_s = in.stack.step_s;
  price.step_s = span + price.dp_s + price.optimizer_s + price.fixed_s;
  return price;
}

}  // namespace trident
