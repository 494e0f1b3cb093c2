#include "parallel/host_communicator.h"

#include <algorithm>
#include <cstdint>

#include "core/check.h"

namespace trident {

HostCommunicator::HostCommunicator(std::string name, int rank, int size, Progress& progress)
    : name_(std::move(name)), rank_(rank), size_(size), progress_(progress), batches_(kOperations) {
  TRIDENT_CHECK(rank >= 0 && rank < size, "rank {} of {}", rank, size);
  deferred_.reserve(kOperations);
}

void HostCommunicator::all_reduce(Stream& stream, TensorView inout, ReduceOp op) {
  collective(stream, rules().all_reduce(inout, op));
}

void HostCommunicator::reduce_scatter(Stream& stream, TensorView out, ConstTensorView in, ReduceOp op) {
  collective(stream, rules().reduce_scatter(out, in, op));
}

void HostCommunicator::all_gather(Stream& stream, TensorView out, ConstTensorView in) {
  collective(stream, rules().all_gather(out, in));
}

void HostCommunicator::broadcast(Stream& stream, TensorView inout, int root) { collective(stream, rules().broadcast(inout, root)); }

void HostCommunicator::all_to_all(Stream& stream, TensorView out, ConstTensorView in) {
  collective(stream, rules().all_to_all(out, in));
}

void HostCommunicator::collective(Stream& stream, const CollectiveCall& call) {
  CpuStream& cpu = admit(stream);
  submit(cpu, prepare(call));
}

void HostCommunicator::send(Stream& stream, ConstTensorView data, int peer) {
  const CollectiveCall call = rules().send(data, peer);
  CpuStream& cpu = admit(stream);
  submit(cpu, prepare_send(call.in, peer));
}

void HostCommunicator::recv(Stream& stream, TensorView data, int peer) {
  const CollectiveCall call = rules().recv(data, peer);
  CpuStream& cpu = admit(stream);
  submit(cpu, prepare_recv(call.out, peer));
}

CpuStream& HostCommunicator::admit(Stream& stream) const {
  auto* cpu = dynamic_cast<CpuStream*>(&stream);
  TRIDENT_CHECK(cpu != nullptr, "stream {} is not a CPU stream", stream.name());
  if (group_depth_ == 0) return *cpu;
  TRIDENT_CHECK(group_stream_ == nullptr || group_stream_ == cpu, "a group of operations on streams {} and {}",
                group_stream_->name(), cpu->name());
  TRIDENT_CHECK(deferred_.size() + 1 < kOperations, "a group of more than {} operations", kOperations - 1);
  return *cpu;
}

void HostCommunicator::submit(CpuStream& stream, CommunicatorOperation& operation) {
  if (group_depth_ == 0) {
    operation.issue();
    stream.enqueue(operation);
    return;
  }
  group_stream_ = &stream;
  deferred_.push_back(&operation);
}

void HostCommunicator::group_begin() { ++group_depth_; }

void HostCommunicator::group_end() {
  TRIDENT_CHECK(group_depth_ > 0, "group_end() without group_begin()");
  if (--group_depth_ > 0 || deferred_.empty()) return;
  BatchOperation& batch = batches_.take(progress_, [] { return BatchOperation(); });
  batch.prepare(deferred_);
  deferred_.clear();
  CpuStream& stream = *std::exchange(group_stream_, nullptr);
  batch.issue();
  stream.enqueue(batch);
}

void HostCommunicator::group_cancel() noexcept {
  for (CommunicatorOperation* operation : deferred_) operation->drop();
  deferred_.clear();
  group_stream_ = nullptr;
  group_depth_ = 0;
}

void HostCommunicator::run_now(const CollectiveCall& call) {
  TRIDENT_CHECK(group_depth_ == 0, "{} inside a group of operations", to_string(call.operation));
  CommunicatorOperation& operation = prepare(call);
  operation.issue();
  progress_.wait_until([&] { return operation.poll(); }, [&] { return operation.describe(); });
}

void HostCommunicator::barrier() { run_now({}); }

std::int64_t HostCommunicator::largest_now(std::int64_t mine) {
  const TensorView value(&mine, DType::kI64, {1});
  run_now({CommOperation::kAllReduce, ReduceOp::kMax, value, value});
  return mine;
}

int HostCommunicator::number_among(std::span<const int> members) const {
  const auto me = std::find(members.begin(), members.end(), rank_);
  TRIDENT_CHECK(me != members.end(), "rank {} of {} is not among the members of the group that it asks for", rank_, name_);
  for (const int r : members) TRIDENT_CHECK(r >= 0 && r < size_, "rank {} of {} ranks in {}", r, size_, name_);
  return static_cast<int>(me - members.begin());
}

}  // namespace trident
