#include "planner/price/step_price.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "core/check.h"
#include "planner/price/step_ops.h"

namespace trident {
namespace {

// Names of the groups that parameters are gathered and gradients reduced in (parallel/grid/parallel_context.cpp).
constexpr std::string_view kGatherGroup = "dp (gather)", kReduceGroup = "dp";

// "tp[2:4] (reduce)" -> 4; 1 for a whole axis.
int sub_axis_stride(std::string_view group) {
  const std::size_t open = group.find('['), colon = group.find(':'), close = group.find(']');
  if (open == std::string_view::npos || colon == std::string_view::npos || close == std::string_view::npos) return 1;
  int stride = 0;
  for (const char digit : group.substr(colon + 1, close - colon - 1)) stride = 10 * stride + (digit - '0');
  return std::max(1, stride);
}

// Buckets of one unit, which are gathered or reduced as one group. Statistics and partial sums are calls of their own.
bool joins(const RecordedCollective& before, const std::variant<RecordedOperation, RecordedCollective>& call) {
  const auto* const next = std::get_if<RecordedCollective>(&call);
  return next != nullptr && next->operation == before.operation && next->group == before.group &&
         (before.group == kGatherGroup || before.group == kReduceGroup);
}

// Where a rank's seconds go: what it computes, by pass, and what the simulation says beside that.
TimeParts parts_of(const RankTimeline& rank, const std::vector<TimeParts>& passes, const std::vector<std::int64_t>& computes,
                   double makespan) {
  TimeParts parts;
  for (std::size_t pass = 0; pass < passes.size(); ++pass) {
    for (std::size_t part = 0; part < kNumTimeParts; ++part)
      parts.seconds[part] += static_cast<double>(computes[pass]) * passes[pass].seconds[part];
  }
  parts[TimePart::kData] += rank.data;
  parts[TimePart::kPipeline] += rank.message;
  parts[TimePart::kBubble] += rank.bubble + makespan - rank.end;
  parts[TimePart::kOptimizer] += rank.update;
  return parts;
}

// As StepTimeline::bubble_over_ideal() has it.
double bubble_over_ideal(const std::vector<RankTimeline>& ranks) {
  double busy = 0, longest = 0;
  for (const RankTimeline& rank : ranks) {
    busy += rank.busy;
    longest = std::max(longest, rank.last - rank.first);
  }
  const double mean = busy / static_cast<double>(ranks.size());
  return mean > 0 ? (longest - mean) / mean : 0;
}

// Prices of a rank's distinct passes. Ranks of the same units have the same ones, mostly one after the other.
std::vector<std::vector<TimeParts>> price_passes(const RecordedStep& step, const WorkPrices& prices) {
  std::vector<std::vector<TimeParts>> all;
  all.reserve(step.records.size());
  for (std::size_t rank = 0; rank < step.records.size(); ++rank) {
    const std::vector<PassRecord>& passes = step.records[rank].passes;
    auto& list = all.emplace_back();
    list.reserve(passes.size());
    for (std::size_t pass = 0; pass < passes.size(); ++pass) {
      const bool as_before = rank > 0 && pass < all[rank - 1].size() && passes[pass] == step.records[rank - 1].passes[pass];
      list.push_back(as_before ? all[rank - 1][pass] : price_pass(passes[pass], step.grid, prices));
    }
  }
  return all;
}

StepPrice price(const RecordedStep& step, const std::vector<ProgramLoops>& loops, int micro_batches, const WorkPrices& prices,
                Spans spans, const SharedCores& cores = {}) {
  TRIDENT_CHECK(!step.programs.empty() && step.programs.size() == step.records.size(), "{} programs, {} records",
                step.programs.size(), step.records.size());
  const std::vector<std::vector<TimeParts>> passes = price_passes(step, prices);
  std::vector<RankOps> ranks;
  ranks.reserve(step.programs.size());
  int stages = 1;
  for (std::size_t rank = 0; rank < step.programs.size(); ++rank) {
    const StepProgram& program = step.programs[rank];
    TRIDENT_CHECK(step.records[rank].pass_of.size() == program.instructions.size(),
                  "pipeline rank {}: {} instructions recorded of {}", rank, step.records[rank].pass_of.size(),
                  program.instructions.size());
    std::vector<double> seconds;
    seconds.reserve(passes[rank].size());
    for (const TimeParts& pass : passes[rank]) seconds.push_back(pass.total());
    ranks.push_back(make_rank_ops({program, step.records[rank].pass_of, seconds, step.overlap,
                                   loops.empty() ? ProgramLoops() : loops[rank], spans}));
    for (const Instruction& i : program.instructions) stages = std::max(stages, i.virtual_stage + 1);
  }
  SimulatedStep times = simulate(ranks, {stages, micro_batches, cores}, prices.slowdown(), spans);

  StepPrice price;
  double outside = 0;
  for (const auto& of_rank : passes) outside = std::max(outside, of_rank.front().total());
  outside += prices.step_seconds();
  price.seconds = times.makespan + outside;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    price.ranks.push_back(parts_of(times.ranks[rank], passes[rank], ranks[rank].computes, times.makespan));
    price.ranks.back()[TimePart::kOther] += outside;
  }
  price.spans = std::move(times.spans);
  price.bubble_over_ideal = bubble_over_ideal(times.ranks);
  return price;
}

}  // namespace

std::string_view to_string(TimePart part) { return part_words(part).name; }

double TimeParts::total() const { return std::accumulate(seconds.begin(), seconds.end(), 0.0); }

GroupPlace place_of(const RecordedCollective& call, const ProcessGrid& grid) {
  const int next = grid.rank([&] {
    GridCoordinates at;
    switch (call.axis) {
      case Axis::kTensor: at.tensor = 1; break;
      case Axis::kContext: at.context = 1; break;
      case Axis::kData: at.data = 1; break;
      case Axis::kPipeline: at.pipeline = 1; break;
    }
    return grid.degree(call.axis) > 1 ? at : GridCoordinates{};
  }());
  return {call.size, std::max(1, next) * sub_axis_stride(call.group), grid.world_size()};
}

TimeParts price_pass(const PassRecord& pass, const ProcessGrid& grid, const WorkPrices& prices) {
  TimeParts parts;
  double issue = 0, worked = 0;
  for (std::size_t at = 0; at < pass.calls.size(); ++at) {
    if (const auto* const operation = std::get_if<RecordedOperation>(&pass.calls[at])) {
      const double seconds = prices.device_seconds(*operation);
      parts[operation->recomputed ? TimePart::kRecompute : TimePart::kCompute] += seconds;
      worked += seconds;
      issue += prices.issue_seconds(*operation);
      continue;
    }
    RecordedCollective collective = std::get<RecordedCollective>(pass.calls[at]);
    // Buckets of one unit are issued as one group.
    while (prices.joins_groups() && at + 1 < pass.calls.size() && joins(collective, pass.calls[at + 1]))
      collective.operand_bytes += std::get<RecordedCollective>(pass.calls[++at]).operand_bytes;
    parts[TimePart::kTensor] += prices.seconds(collective, place_of(collective, grid));
    if (collective.size > 1) parts[TimePart::kTensor] += prices.waiting_seconds(std::exchange(worked, 0.0));
  }
  parts[TimePart::kLaunch] = std::max(0.0, issue - parts.total());
  return parts;
}

std::size_t StepPrice::busiest() const {
  const auto waits = [](const TimeParts& parts) { return parts[TimePart::kBubble] + parts[TimePart::kPipeline]; };
  const auto least = [&](const TimeParts& a, const TimeParts& b) { return waits(a) < waits(b); };
  return static_cast<std::size_t>(std::min_element(ranks.begin(), ranks.end(), least) - ranks.begin());
}

StepPrice price_step(const RecordedStep& step, const WorkPrices& prices, const SharedCores& cores) {
  int micro_batches = 1;
  for (const StepProgram& program : step.programs)
    for (const Instruction& i : program.instructions) micro_batches = std::max(micro_batches, i.micro_batch + 1);
  return price(step, {}, micro_batches, prices, Spans::kOn, cores);
}

StepPrice price_step(const LoopedStep& step, const WorkPrices& prices) {
  TRIDENT_CHECK(step.loops.size() == step.step.programs.size(), "{} programs, loops of {}", step.step.programs.size(),
                step.loops.size());
  return price(step.step, step.loops, step.micro_batches, prices, Spans::kOff);
}

const TimePartWords& part_words(TimePart part) {
  static constexpr std::array<TimePartWords, kNumTimeParts> kWords = {{  // by TimePart
      {"compute", "compute", "forward and backward passes", "computing"},
      {"recompute", "recompute", "forwards that backwards make again", "computing again what was not kept"},
      {"tp", "tensor parallel", "collectives within layers (tensor parallel)", "tensor-parallel collectives"},
      {"pp", "messages", "waiting for messages between stages that are under way", "waiting for messages between stages"},
      {"dp", "data parallel", "gathers and reductions that computing does not hide (data parallel, ZeRO)",
       "waiting for gathers and reductions over dp"},
      {"bubble", "bubble", "waiting for the work of other stages", "the pipeline's bubble"},
      {"optimizer", "optimizer", "gradient norm and update", "norm and update"},
      {"launch", "launch gaps", "the device waits for the host to issue kernels", "launching kernels"},
      {"other", "other", "work of no other part", "what is beside the recorded work"},
  }};
  return at(kWords, part);
}

}  // namespace trident
