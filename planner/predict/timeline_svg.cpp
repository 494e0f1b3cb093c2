#include "planner/predict/timeline_svg.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "core/at.h"
#include "core/counted.h"
#include "core/number_text.h"
#include "model/config/model_stats.h"
#include "pipeline/schedule/step_simulator.h"
#include "planner/price/unit_kind.h"

namespace trident {
namespace {

// Pixels.
constexpr double kWidth = 1200, kLeft = 286, kRight = 24, kTop = 92, kPitch = 96, kLane = 40, kCommTop = 48, kCommLane = 14;
constexpr double kCell = 26, kCellHeight = 17, kFooter = 92, kChunkLegend = 18;
constexpr double kLightest = 0.4, kFar = 0.75;  // opacity of the last chunk; below kFar a dark number is read better
constexpr double kLeastNumbered = 4;  // of an action: narrower ones have no number
constexpr int kMaxNamedChunks = 4, kMaxLegendChunks = 8;
constexpr int kMaxNamedRows = 3, kMaxNamedColumns = 4;  // of ranks beside a pipeline rank; more are named as a range

constexpr std::string_view kStyle = R"css(
  text { font-family: -apple-system, "Segoe UI", Helvetica, Arial, "DejaVu Sans", sans-serif; font-size: 12px }
  text { fill: #57606a }
  .page { fill: #ffffff } .lane { fill: #eef1f4 } .strong { fill: #1f2328; font-weight: 600; font-size: 13px }
  .title { fill: #1f2328; font-weight: 600; font-size: 18px }
  .small { font-size: 11px }
  .micro { fill: #ffffff; font-weight: 600 }
  .cell { fill: #eef1f4 } .rank { fill: #1f2328; font-size: 11px; text-anchor: middle } .axis { font-size: 10px; text-anchor: middle }
  .middle { text-anchor: middle } .end { text-anchor: end }
  .f.block { fill: #3f7fe0 } .f.head { fill: #2456ac } .f.embedding { fill: #7aa9f0 }
  .b.block { fill: #1f9a7d } .b.head { fill: #0f6a55 } .b.embedding { fill: #67c2ac }
  .reduce { fill: #e8842c } .gather { fill: #8a63d2 } .tie { fill: #d6408b } .step { fill: #c9a227 }
  .far { fill: #1f2328 } .chunk { font-size: 10px; font-weight: 400 }
  .message { fill: none; stroke: #8c959f; stroke-width: 1; opacity: 0.75 } .mark { stroke: #8c959f; stroke-dasharray: 3 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #9198a1 } .page { fill: #0d1117 } .lane, .cell { fill: #1b222c } .strong, .title, .rank { fill: #e6edf3 }
    .f.block { fill: #3b78d6 } .f.head { fill: #5f9bf5 } .f.embedding { fill: #274f8f }
    .b.block { fill: #1c8a70 } .b.head { fill: #2fb894 } .b.embedding { fill: #125c4b }
    .far { fill: #ffffff } .message, .mark { stroke: #6e7681 }
  }
)css";

class TimelineDrawing {
 public:
  explicit TimelineDrawing(const RunPlan& plan)
      : plan_(plan), flops_(unit_costs(plan.model, plan.config.batch)),
        tensors_touched_(3 + 2.0 * num_states(plan.config.optimizer.type)) {
    const StepCosts costs{[this](int, std::size_t, const Instruction& i) { return cost(i); }, [](int, int) { return 0.0; },
                          plan.step_spec.overlap};
    times_ = simulate(plan.step_programs, costs);
    scale_ = (kWidth - kLeft - kRight) / times_.makespan;
    for (const StepProgram& program : plan.step_programs) {
      for (std::size_t at = 0; at < program.instructions.size(); ++at) {
        if (program.instructions[at].is_compute()) last_compute_ = std::max(last_compute_, times(program, at).end);
      }
    }
  }

  std::string svg() {
    const double height = kTop + kPitch * static_cast<double>(plan_.step_programs.size()) + kFooter +
                          (chunks() > 1 ? kChunkLegend : 0);
    out_ = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" role=\"img\">\n<title>{2}</title>\n<style>{3}</style>\n"
        "<rect class=\"page\" width=\"{0:.0f}\" height=\"{1:.0f}\" rx=\"8\"/>\n",
        kWidth, height, title(), kStyle);
    text(24, 34, "title", title());
    text(24, 56, "", subtitle());
    for (const StepProgram& program : plan_.step_programs) label(program), lanes(program.rank);
    for (const StepProgram& program : plan_.step_programs) messages(program);
    for (const StepProgram& program : plan_.step_programs) row(program);
    const double bottom = kTop + kPitch * static_cast<double>(plan_.step_programs.size());
    update_mark(bottom);
    footer(bottom + 22);
    return std::move(out_) + "</svg>\n";
  }

 private:
  // ---- times

  double elements(int unit) const { return static_cast<double>(at(plan_.units, unit).elements()); }

  double cost(const Instruction& i) const {
    const double replicas = plan_.step_spec.data_parallel, share = (replicas - 1) / replicas;
    if (i.is_compute()) {
      const double passes = i.is_forward() ? 1 : i.kind == InstructionKind::kBackward ? 2 : 1;
      return passes * at(flops_, i.unit) / plan_.tensor_layout.degree;
    }
    switch (i.kind) {
      case InstructionKind::kGather:
        return kTimelineFlopsPerByteSent * share * elements(i.unit) * static_cast<double>(size_of(plan_.compute));
      case InstructionKind::kReduceGradients:
        return kTimelineFlopsPerByteSent * (plan_.zero.shard_optimizer ? 1 : 2) * share * elements(i.unit) * 4;
      case InstructionKind::kOptimizerStep:
        return kTimelineFlopsPerByteTouched * tensors_touched_ * 4 * elements(i.unit) / (plan_.zero.shard_optimizer ? replicas : 1);
      default: return 0;
    }
  }

  TaskTimes times(const StepProgram& program, std::size_t at) const { return trident::at(times_.ranks, program.rank)[at]; }
  double x(double time) const { return kLeft + scale_ * time; }
  static double y(int rank) { return kTop + kPitch * rank; }

  UnitKind kind_of(int unit) const {
    return unit == plan_.step_spec.embedding_unit() ? UnitKind::kEmbedding
           : unit == plan_.step_spec.head_unit()    ? UnitKind::kHead
                                                    : UnitKind::kBlock;
  }
  std::string unit_name(int unit) const {
    if (kind_of(unit) == UnitKind::kBlock) return fmt::format("block {}", unit - 1);
    return kind_of(unit) == UnitKind::kHead ? "head" : "embedding";
  }

  int chunks() const { return static_cast<int>(plan_.config.parallel.virtual_stages); }
  int chunk_of(const Instruction& i) const { return i.virtual_stage / static_cast<int>(plan_.step_programs.size()); }
  // Chunks of a rank from dark to light.
  double opacity(int chunk) const { return chunks() > 1 ? 1 - (1 - kLightest) * chunk / (chunks() - 1) : 1; }

  // ---- pieces

  void text(double at_x, double at_y, std::string_view style, std::string_view words) {
    out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", at_x, at_y, style, words);
  }
  void rect(double left, double top, double width, double height, std::string_view style, std::string_view tip = {},
            double opacity = 1) {
    out_ += fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" class=\"{}\"", left, top, width, height,
                        style);
    if (opacity < 1) out_ += fmt::format(" fill-opacity=\"{:.2f}\"", opacity);
    out_ += tip.empty() ? "/>\n" : fmt::format("><title>{}</title></rect>\n", tip);
  }
  // With a hairline between neighbours; never too thin to be seen.
  void bar(TaskTimes t, double top, double height, std::string_view style, std::string_view tip, double opacity = 1) {
    rect(x(t.start), top, std::max(x(t.end) - x(t.start) - 0.6, 0.8), height, style, tip, opacity);
  }

  std::string title() const {
    const ParallelDegrees& d = plan_.grid.degrees();
    return fmt::format("One training step of {}DP x {}PP x {}TP = {}", d.data, d.pipeline, d.tensor,
                       counted(plan_.world_size(), "rank"));
  }
  std::string subtitle() const {
    const std::string model = plan_.config.model.preset.value_or(std::string(to_string(plan_.model.family)));
    return fmt::format(
        "{} ({} parameters), schedule {}, {} of {} x {} tokens per data rank, {}; bubble {:.2f} of "
        "ideal time",
        model, parameters_text(static_cast<double>(num_parameters(plan_.model))), to_string(plan_.config.parallel.schedule),
        counted(plan_.num_micro_batches, "micro-batch", "micro-batches"), plan_.config.batch.micro, plan_.config.batch.sequence,
        to_string(plan_.zero.preset), times_.bubble_over_ideal());
  }

  // Name, units, and the ranks that run this program: a table of data rows and tensor columns.
  void label(const StepProgram& program) {
    const double top = y(program.rank);
    text(24, top + 14, "strong", fmt::format("pipeline {}", program.rank));
    double line = top + 31;
    const auto [first, last] = std::minmax_element(program.units.begin(), program.units.end());
    const int blocks_from = std::max(*first, 1), blocks_to = std::min(*last, plan_.step_spec.head_unit() - 1);
    const auto say = [&](const std::string& words) { text(24, line, "small", words), line += 14; };
    if (chunks() > 1) return say_chunks(program.rank, line), ranks(program.rank);
    if (kind_of(*first) == UnitKind::kEmbedding) say("embedding");
    say(blocks_from == blocks_to ? unit_name(blocks_from) : fmt::format("blocks {}-{}", blocks_from - 1, blocks_to - 1));
    if (kind_of(*last) == UnitKind::kHead) say("head, loss");
    ranks(program.rank);
  }

  // "c0: embedding, block 0" and so on; of many chunks how many.
  void say_chunks(int rank, double line) {
    const auto& stages = plan_.step_spec.units_of_stage;
    if (chunks() > kMaxNamedChunks) {
      std::size_t units = 0;
      for (std::size_t s = static_cast<std::size_t>(rank); s < stages.size(); s += plan_.step_programs.size())
        units += stages[s].size();
      return text(24, line, "small", fmt::format("{} chunks, {}", chunks(), counted(static_cast<std::int64_t>(units), "unit")));
    }
    for (int chunk = 0; chunk < chunks(); ++chunk, line += 14) {
      const std::vector<int>& units =
          stages[static_cast<std::size_t>(chunk) * plan_.step_programs.size() + static_cast<std::size_t>(rank)];
      const int from = std::max(units.front(), 1), to = std::min(units.back(), plan_.step_spec.head_unit() - 1);
      std::string words = fmt::format("c{}:{}", chunk, kind_of(units.front()) == UnitKind::kEmbedding ? " embed," : "");
      if (from <= to) words += from == to ? fmt::format(" block {}", from - 1) : fmt::format(" {}-{}", from - 1, to - 1);
      if (words.ends_with(',')) words.pop_back();
      if (kind_of(units.back()) == UnitKind::kHead) words += from <= to ? ", head" : " head";
      text(24, line, "small", words);
    }
  }

  void ranks(int pipeline) {
    const ParallelDegrees& d = plan_.grid.degrees();
    const double left = 142, top = y(pipeline);
    const int rows = d.data * d.context;
    if (rows > kMaxNamedRows || d.tensor > kMaxNamedColumns) {
      const int last = plan_.grid.rank({d.tensor - 1, d.context - 1, d.data - 1, pipeline});
      return text(left, top + 14, "small", fmt::format("ranks {} to {}", plan_.grid.rank({0, 0, 0, pipeline}), last));
    }
    for (int tensor = 0; tensor < d.tensor; ++tensor) {
      text(left + 24 + kCell * tensor + kCell / 2, top - 4, "axis", fmt::format("tp{}", tensor));
    }
    for (int row = 0; row < rows; ++row) {
      const double cell_top = top + (kCellHeight + 2) * row;
      text(left, cell_top + 13, "small", fmt::format("dp{}", row));
      for (int tensor = 0; tensor < d.tensor; ++tensor) {
        const double cell_left = left + 24 + kCell * tensor;
        rect(cell_left, cell_top, kCell - 2, kCellHeight, "cell");
        const int rank = plan_.grid.rank({tensor, row % d.context, row / d.context, pipeline});
        text(cell_left + (kCell - 2) / 2, cell_top + 12.5, "rank", fmt::format("{}", rank));
      }
    }
  }

  // A line from where an output leaves to where it is first used.
  void messages(const StepProgram& program) {
    for (std::size_t at = 0; at < program.instructions.size(); ++at) {
      const Instruction& sent = program.instructions[at];
      if (!sent.is_send()) continue;
      const bool activation = sent.kind == InstructionKind::kSendActivation;
      const int reader_stage = sent.virtual_stage + (activation ? 1 : -1);
      const StepProgram& reader = trident::at(plan_.step_programs, sent.peer);
      const auto used = std::find_if(reader.instructions.begin(), reader.instructions.end(), [&](const Instruction& i) {
        return i.is_compute() && i.is_forward() == activation && i.virtual_stage == reader_stage &&
               i.micro_batch == sent.micro_batch;
      });
      const double from = x(times(program, at).start);
      const double to = x(times(reader, static_cast<std::size_t>(used - reader.instructions.begin())).start);
      const bool down = sent.peer > program.rank;
      const double from_y = y(program.rank) + (down ? kLane : 0), to_y = y(sent.peer) + (down ? 0 : kLane);
      out_ += fmt::format("<path class=\"message\" d=\"M{0:.1f} {1:.1f} C{0:.1f} {2:.1f} {3:.1f} {2:.1f} {3:.1f} {4:.1f}\"/>\n",
                          from, from_y, (from_y + to_y) / 2, to, to_y);
    }
  }

  void lanes(int rank) {
    rect(kLeft, y(rank), kWidth - kLeft - kRight, kLane, "lane");
    rect(kLeft, y(rank) + kCommTop, kWidth - kLeft - kRight, kCommLane, "lane");
  }

  void row(const StepProgram& program) {
    const double top = y(program.rank);
    for (std::size_t at = 0; at < program.instructions.size(); ++at) {
      const Instruction& i = program.instructions[at];
      const TaskTimes t = times(program, at);
      const auto tip = [&](std::string_view what) { return fmt::format("{} of {}", what, unit_name(i.unit)); };
      if (i.is_compute()) {
        static constexpr std::array<std::string_view, 3> kKinds = {"embedding", "block", "head"};
        const std::string_view kind = trident::at(kKinds, kind_of(i.unit));
        bar(t, top, kLane, fmt::format("bar {} {}", i.is_forward() ? "f" : "b", kind),
            fmt::format("{} of {}, micro-batch {}{}", i.is_forward() ? "forward" : "backward", unit_name(i.unit), i.micro_batch,
                        chunks() > 1 ? fmt::format(", chunk {}", chunk_of(i)) : ""),
            opacity(chunk_of(i)));
      } else if (i.kind == InstructionKind::kReduceGradients) {
        bar(t, top + kCommTop, kCommLane, "comm reduce", tip("reduce the gradients"));
      } else if (i.kind == InstructionKind::kGather) {
        bar(t, top + kCommTop, kCommLane, "comm gather", tip("gather the parameters"));
      } else if (i.kind == InstructionKind::kOptimizerStep) {
        bar(t, top, kLane, "step", tip("optimizer step"));
      } else if (i.kind == InstructionKind::kTieExchange) {
        bar({t.start, t.start}, top + kCommTop, kCommLane, "tie", "exchange of the tied embedding's gradients");
      }
    }
    micro_batch_numbers(program);
  }

  // Once per action: over the units of a stage that run one after another. A number that is wider than its action is drawn smaller,
  // and then over the edge where the one before it leaves room.
  void micro_batch_numbers(const StepProgram& program) {
    const auto& list = program.instructions;
    double written = 0;  // up to where numbers are
    for (std::size_t first = 0; first < list.size(); ++first) {
      if (!list[first].is_compute()) continue;
      std::size_t last = first;
      const auto continues = [&](const Instruction& i) {
        return !i.is_compute() || (i.kind == list[first].kind && i.virtual_stage == list[first].virtual_stage &&
                                   i.micro_batch == list[first].micro_batch);
      };
      for (std::size_t next = first + 1; next < list.size() && continues(list[next]); ++next) {
        if (list[next].is_compute()) last = next;
      }
      const double left = x(times(program, first).start), right = x(times(program, last).end);
      const std::string number = fmt::format("{}", list[first].micro_batch);
      const bool divided = chunks() > 1;
      const std::string_view style = opacity(chunk_of(list[first])) < kFar ? "micro far middle" : "micro middle";
      const double plain = 3 + 7 * static_cast<double>(number.size()), narrow = 1 + 6 * static_cast<double>(number.size());
      const bool fits = right - left >= plain;
      const double half = (fits ? plain : narrow) / 2, middle = (left + right) / 2;
      if (right - left >= kLeastNumbered && middle - half >= written) {
        text(middle, y(program.rank) + kLane / 2 + (divided ? -1.5 : 4.5), fmt::format("{}{}", style, fits ? "" : " axis"),
             number);
        written = middle + half;
      }
      if (divided && right - left >= 15)
        text((left + right) / 2, y(program.rank) + kLane / 2 + 13, fmt::format("{} chunk", style),
             fmt::format("c{}", chunk_of(list[first])));
      first = last;
    }
  }

  void update_mark(double bottom) {
    const double at = x(last_compute_);
    out_ += fmt::format("<line class=\"mark\" x1=\"{0:.1f}\" y1=\"{1:.1f}\" x2=\"{0:.1f}\" y2=\"{2:.1f}\"/>\n", at, kTop - 14,
                        bottom - 20);
    const bool wide = kWidth - kRight - at > 45;
    text(at - 6, kTop - 10, "small end", wide ? "forward and backward" : "forward and backward, then update");
    if (wide) text(at + 6, kTop - 10, "small", "update");
  }

  void footer(double top) {
    struct Entry {
      std::string_view style, words;
    };
    static constexpr std::array<Entry, 10> kEntries = {{{"f embedding", "forward: embedding"},
                                                        {"f block", "block"},
                                                        {"f head", "head"},
                                                        {"b embedding", "backward: embedding"},
                                                        {"b block", "block"},
                                                        {"b head", "head"},
                                                        {"step", "optimizer step"},
                                                        {"reduce", "reduce gradients"},
                                                        {"gather", "gather parameters"},
                                                        {"lane", "idle"}}};
    double left = 24;
    for (const Entry& entry : kEntries) {
      rect(left, top - 10, 12, 12, entry.style);
      text(left + 17, top, "small", entry.words);
      left += 17 + 6.3 * static_cast<double>(entry.words.size()) + 16;
    }
    if (chunks() > 1) chunk_legend(top + 60);
    text(24, top + 24, "small",
         "Upper lane: what a rank computes, numbered by micro-batch. Lower lane: what travels over dp meanwhile. Grey lines: "
         "activations down, gradients up. Every rank of a row runs the same program.");
    text(24, top + 42, "small",
         fmt::format(
             "Simulated from the step programs that the trainer runs, priced by model FLOPs (backward = 2 x forward); bytes by "
             "assumption: {:.0f} FLOPs per byte sent, {:.0f} per byte touched. Not a measurement.",
             kTimelineFlopsPerByteSent, kTimelineFlopsPerByteTouched));
  }

  void chunk_legend(double top) {
    double left = 24;
    for (int chunk = 0; chunk < std::min(chunks(), kMaxLegendChunks); ++chunk, left += 40) {
      rect(left, top - 10, 12, 6, "f block", {}, opacity(chunk));
      rect(left, top - 4, 12, 6, "b block", {}, opacity(chunk));
      text(left + 17, top, "small", fmt::format("c{}", chunk));
    }
    text(left + 8, top, "small",
         fmt::format("A rank holds {} chunks of the model ({} from each other), each with its shade; under a micro-batch's number "
                     "stands its chunk.", chunks(), counted(static_cast<std::int64_t>(plan_.step_programs.size()), "stage")));
  }

  const RunPlan& plan_;
  std::vector<double> flops_;  // forward, by unit
  double tensors_touched_;     // f32, by an update: gradient, master and states read, master and states written
  StepTimeline times_;
  double scale_ = 1, last_compute_ = 0;
  std::string out_;
};

}  // namespace

void check_can_be_drawn(const TrainConfig& config, const ModelConfig& model) {
  const std::int64_t of_a_micro_batch = 2 * num_units(model), replicas = config.parallel.data.value_or(1);
  const std::int64_t of_a_turn = std::max<std::int64_t>(1, config.batch.micro * replicas);  // sequences
  const std::int64_t micro_batches = config.batch.global / of_a_turn, most = kMostDrawnPasses / of_a_micro_batch;
  if (micro_batches <= most) return;
  throw ConfigError(fmt::format(
      "docs timeline: batch.global = {}: {} of {} passes through units each; at most {} passes are drawn, so that they can be told "
      "apart; {}",
      config.batch.global, counted(micro_batches, "micro-batch", "micro-batches"), of_a_micro_batch, kMostDrawnPasses,
      most > 0 ? fmt::format("set batch.global to {} or less", most * of_a_turn) : "draw a model with fewer layers"));
}

std::string timeline_svg(const RunPlan& plan) { return TimelineDrawing(plan).svg(); }

}  // namespace trident
