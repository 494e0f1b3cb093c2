#include "train/plan/step_recorder.h"

#include <algorithm>
#include <functional>
#include <utility>
#include <variant>

#include "core/at.h"
#include "core/check.h"
#include "parallel/communicator/collective_call.h"

namespace trident {
namespace {

// The axis is the first word of a group's name.
Axis axis_of(std::string_view group) {
  std::size_t axis = 0;
  while (axis < kNumAxes && !group.starts_with(to_string(static_cast<Axis>(axis)))) ++axis;
  TRIDENT_CHECK(axis < kNumAxes, "communicator {} is of no axis: a step record cannot say whose bytes it sends", group);
  return static_cast<Axis>(axis);
}

// Most of the few passes that are not equal differ in this.
std::size_t hash_of(const PassRecord& pass) {
  std::size_t hash = pass.calls.size();
  for (const auto& call : pass.calls) {
    const auto* const o = std::get_if<RecordedOperation>(&call);
    const auto* const c = std::get_if<RecordedCollective>(&call);
    hash = hash * 31 + (o != nullptr ? std::hash<double>{}(o->bytes) : static_cast<std::size_t>(c->operand_bytes));
  }
  return hash;
}

template <class Operation>
RecordedOperation without_shape(const Operation& operation) {
  const OperationName name = op::name_of(operation);
  RecordedOperation seen;
  seen.kind = name.kind;
  seen.name = name.name;
  operation.fields([&](const Field& field) { seen.bytes += static_cast<double>(field.bytes_moved()); });
  if constexpr (requires { operation.flops(); }) seen.flops = operation.flops();
  return seen;
}

}  // namespace

void StepRecorder::begin(const StepProgram& program, const CudaOptions& cuda) {
  program_ = &program;
  graphs_ = cuda.graphs;
  tf32_ = cuda.tf32;
  record_ = {};
  record_.passes.emplace_back();
}

StepRecord StepRecorder::finish() {
  TRIDENT_CHECK(program_ != nullptr && record_.pass_of.size() == program_->instructions.size(),
                "a step record has {} instructions, the program {}", record_.pass_of.size(),
                program_ == nullptr ? 0 : program_->instructions.size());
  record_.passes.front() = std::move(outside_);
  return std::move(record_);
}

void StepRecorder::performed(OperationRef operation) { add(recorded(operation)); }
void StepRecorder::performed(const op::Fused& fused) { add(recorded(fused)); }

RecordedOperation recorded(OperationRef operation) {
  RecordedOperation seen = std::visit([](const auto* o) { return without_shape(*o); }, operation);
  if (const auto* m = std::get_if<const op::Matmul*>(&operation)) seen.shape = (*m)->shape();
  if (const auto* a = std::get_if<const op::AttentionForward*>(&operation)) seen.shape = (*a)->shape;
  if (const auto* a = std::get_if<const op::AttentionBackward*>(&operation)) seen.shape = (*a)->shape;
  return seen;
}

RecordedOperation recorded(const op::Fused& fused) {
  RecordedOperation seen = without_shape(fused);
  seen.shape = op::Matmul{fused.call.product}.shape();
  return seen;
}

void StepRecorder::add(RecordedOperation operation) {
  if (program_ == nullptr) return;
  operation.recomputed = depth_of_recompute_ > 0;
  operation.in_graph = graphs_ && depth_of_repeat_ > 0 && std::exchange(graph_begun_, true);
  const auto* const product = std::get_if<MatmulShape>(&operation.shape);
  operation.tf32 = tf32_ && product != nullptr && product->in == DType::kF32;
  (depth_of_instruction_ > 0 ? inside_ : outside_).calls.emplace_back(operation);
}

void StepRecorder::called(std::string_view group, int size, const CollectiveCall& call) {
  if (program_ == nullptr) return;
  const std::int64_t operand = std::max(call.in.num_bytes(), call.out.num_bytes());
  (depth_of_instruction_ > 0 ? inside_ : outside_)
      .calls.emplace_back(RecordedCollective{axis_of(group), std::string(group), size, call.operation, call.in.dtype(), operand,
                                             bytes_sent_times_n(call, size), depth_of_recompute_ > 0});
}

// The executor's range of an instruction has its name; others lie around them.
void StepRecorder::push(const char* name) {
  ++depth_;
  const std::size_t next = record_.pass_of.size();
  if (depth_of_recompute_ == 0 && std::string_view(name) == kRecomputeRange) depth_of_recompute_ = depth_;
  if (depth_of_repeat_ == 0 && std::string_view(name) == kRepeatRange) {
    depth_of_repeat_ = depth_;
    graph_begun_ = false;
  }
  if (program_ == nullptr || depth_of_instruction_ > 0 || next == program_->instructions.size()) return;
  if (short_name(program_->instructions[next]) == name) depth_of_instruction_ = depth_;
}

void StepRecorder::pop() noexcept {
  if (depth_of_instruction_ == depth_) {
    record_.pass_of.push_back(number_of(inside_));
    inside_.calls.clear();
    depth_of_instruction_ = 0;
  }
  if (depth_of_recompute_ == depth_) depth_of_recompute_ = 0;
  if (depth_of_repeat_ == depth_) depth_of_repeat_ = 0;
  --depth_;
}

std::int32_t StepRecorder::number_of(PassRecord& pass) {
  const std::size_t hash = hash_of(pass);
  if (interning_ == Interning::kOn) {
    const auto [first, last] = by_hash_.equal_range(hash);
    for (auto it = first; it != last; ++it) {
      if (at(record_.passes, it->second) == pass) return it->second;
    }
  }
  const auto number = static_cast<std::int32_t>(record_.passes.size());
  record_.passes.push_back(pass);
  by_hash_.emplace(hash, number);
  return number;
}

}  // namespace trident
