#include "planner/price/step_ops.h"

#include <algorithm>

#include "core/at.h"
#include "core/check.h"
#include "pipeline/schedule/step_waits.h"

namespace trident {
namespace {

using Kind = InstructionKind;

StreamOp::Cause cause_of(const Instruction& i, int rank) {
  if (i.is_compute()) return StreamOp::Cause::kCompute;
  if (i.kind == Kind::kGather || i.kind == Kind::kReduceGradients || i.kind == Kind::kFree) return StreamOp::Cause::kData;
  return i.kind == Kind::kTieExchange && i.peer != rank ? StreamOp::Cause::kMessage : StreamOp::Cause::kUpdate;
}

class Builder {
 public:
  explicit Builder(const RankOpsInputs& in) : in_(in), instructions_(in.program.instructions), loop_(in.loops.begin()) {
    out_.computes.assign(in.pass_seconds.size(), 0);
    int units = 0, chunks = 0;
    for (const Instruction& i : instructions_) {
      units = std::max(units, i.unit + 1);
      chunks = std::max(chunks, i.virtual_stage / in.program.num_ranks + 1);
    }
    gathered_.assign(static_cast<std::size_t>(units), kNever);
    last_stage_ = chunks * in.program.num_ranks - 1;
  }

  RankOps run() {
    out_.ops.reserve(in_.spans == Spans::kOn ? instructions_.size() : instructions_.size() / 2);
    std::size_t loop_begin = 0;
    for (std::size_t at = 0; at < instructions_.size(); ++at) {
      if (loop_ != in_.loops.end() && at == loop_->begin) begin_apart(), loop_begin = out_.ops.size();
      add(at);
      if (loop_ != in_.loops.end() && at + 1 == loop_->end()) {
        begin_apart();
        out_.loops.push_back({loop_begin, out_.ops.size(), loop_->times, {}});
        for (std::size_t o = loop_begin; o < out_.ops.size(); ++o) {
          const StreamOp& op = out_.ops[o];
          if (op.receives || op.stream == StreamOp::Stream::kWire)
            trident::at(out_.loops.back().micro_batches, op.channel & 1) = loop_->micro_batches;
        }
        ++loop_;
      }
    }
    TRIDENT_CHECK(loop_ == in_.loops.end(), "a loop at {} of {} instructions", loop_->begin, instructions_.size());
    return std::move(out_);
  }

 private:
  static constexpr std::int64_t kNever = -1;
  struct Reduction {
    GradientPlace place;
    std::int64_t item = 0;
  };

  void begin_apart() { may_join_ = false; }

  void add(std::size_t at) {
    const Instruction& i = instructions_[at];
    const auto pass = static_cast<std::size_t>(in_.pass_of[at]);
    if (i.is_compute()) out_.computes[pass] += 1 + more_turns(at);
    StreamOp op;
    op.instruction = at;
    op.cause = cause_of(i, in_.program.rank);
    op.seconds = i.is_receive() ? 0 : in_.pass_seconds[pass];  // its message was priced where it was sent
    if (i.is_send()) {
      const bool activation = i.kind == Kind::kSendActivation;
      op.stream = StreamOp::Stream::kWire;
      op.channel = channel_of(activation, i.virtual_stage + (activation ? 1 : -1));
      op.micro_batch = i.micro_batch;
    } else if (i.is_compute()) {
      wait_for_inputs(i, op);
      before_ = &i;
    } else if (i.kind == Kind::kGather || i.kind == Kind::kReduceGradients) {
      if (in_.overlap) op.stream = StreamOp::Stream::kOverlapped, note_overlapped(i);
    } else if (i.kind == Kind::kTieExchange && i.peer != in_.program.rank) {
      op.barrier = StreamOp::Barrier::kTie;
    } else if (i.kind == Kind::kGradNorm) {
      op.barrier = StreamOp::Barrier::kNorm;
    }
    push(op);
  }

  std::int64_t more_turns(std::size_t at) const {
    return loop_ != in_.loops.end() && at >= loop_->begin && at < loop_->end() ? loop_->times : 0;
  }

  // Whether it is the first compute of an action whose input another rank sends.
  bool reads_message(const Instruction& i) const {
    if (in_.program.num_ranks == 1 || i.virtual_stage == (i.is_forward() ? 0 : last_stage_)) return false;
    if (!i.is_forward() && !i.computes_input_gradient()) return false;
    return before_ == nullptr || before_->kind != i.kind || before_->virtual_stage != i.virtual_stage ||
           before_->micro_batch != i.micro_batch;
  }

  // The first compute that reads a message waits for it, and the first one behind a gather of its unit for that. Receives say
  // nothing more, and programs for pricing have none.
  void wait_for_inputs(const Instruction& i, StreamOp& op) {
    if (reads_message(i)) {
      op.receives = true;
      op.channel = channel_of(i.is_forward(), i.virtual_stage);
      op.micro_batch = i.micro_batch;
    }
    std::int64_t item = at(gathered_, i.unit);
    if (!i.is_forward() && !reductions_.empty()) {
      // Reductions run one after the other: the last one that reads this memory stands for all of them.
      const GradientPlace mine = gradient_place(in_.program, i);
      const auto meets = [&](const Reduction& r) { return r.place.meets(mine); };
      const auto last = std::find_if(reductions_.rbegin(), reductions_.rend(), meets);
      if (last != reductions_.rend()) item = std::max(item, last->item);
    }
    if (item <= waited_) return;
    waited_ = item;
    op.back = static_cast<std::int32_t>(issued_ - item);
    out_.most_back = std::max<std::int64_t>(out_.most_back, op.back);
  }

  void note_overlapped(const Instruction& i) {
    if (i.kind == Kind::kGather && i.gather_place != Instruction::kNone) at(gathered_, i.unit) = issued_;
    if (i.kind == Kind::kReduceGradients) {
      // A wait that is over need not be repeated.
      const auto first = std::find_if(reductions_.begin(), reductions_.end(), [&](const Reduction& r) { return r.item > waited_; });
      reductions_.erase(reductions_.begin(), first);
      reductions_.push_back({gradient_place(in_.program, i), issued_});
    }
    ++issued_;
  }

  void push(const StreamOp& op) {
    if (in_.spans == Spans::kOff && op.stream == StreamOp::Stream::kLine && op.barrier == StreamOp::Barrier::kNone &&
        !op.receives && op.back == 0) {
      if (op.seconds == 0) return;  // takes nothing and waits for nothing
      if (may_join_ && out_.ops.back().stream == StreamOp::Stream::kLine && out_.ops.back().cause == op.cause) {
        out_.ops.back().seconds += op.seconds;
        return;
      }
    }
    out_.ops.push_back(op);
    may_join_ = true;
  }

  const RankOpsInputs& in_;
  const std::vector<Instruction>& instructions_;
  ProgramLoops::const_iterator loop_;
  RankOps out_;
  bool may_join_ = false;
  int last_stage_ = 0;
  const Instruction* before_ = nullptr;  // the last compute
  std::vector<std::int64_t> gathered_;  // by unit: the item of its last gather
  std::vector<Reduction> reductions_;   // in order, without those that were waited for
  std::int64_t issued_ = 0, waited_ = kNever;  // items beside: how many; the last one that was waited for
};

}  // namespace

RankOps make_rank_ops(const RankOpsInputs& in) { return Builder(in).run(); }

}  // namespace trident
