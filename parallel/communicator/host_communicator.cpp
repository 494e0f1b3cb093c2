#include "parallel/communicator/host_communicator.h"

#include "core/check.h"

namespace trident {

HostCommunicator::HostCommunicator(std::string name, int rank, int size, Progress& progress)
    : Communicator(std::move(name), rank, size, CallRules::Side::kHost), progress_(progress), batches_(kOperations) {
  deferred_.reserve(kOperations);
}

void HostCommunicator::enqueue(Stream& stream, const CollectiveCall& call) {
  CpuStream& cpu = admit(stream);
  submit(cpu, prepare(call));
}

CpuStream& HostCommunicator::admit(Stream& stream) const {
  auto* cpu = dynamic_cast<CpuStream*>(&stream);
  TRIDENT_CHECK(cpu != nullptr, "stream {} is not a CPU stream", stream.name());
  if (!in_group()) return *cpu;
  TRIDENT_CHECK(group_stream_ == nullptr || group_stream_ == cpu, "a group of operations on streams {} and {}",
                group_stream_->name(), cpu->name());
  TRIDENT_CHECK(deferred_.size() + 1 < kOperations, "a group of more than {} operations", kOperations - 1);
  return *cpu;
}

void HostCommunicator::submit(CpuStream& stream, CommunicatorOperation& operation) {
  if (!in_group()) {
    operation.issue();
    stream.enqueue(operation);
    return;
  }
  group_stream_ = &stream;
  deferred_.push_back(&operation);
}

void HostCommunicator::flush() {
  if (deferred_.empty()) return;
  BatchOperation& batch = batches_.take(progress_, [] { return BatchOperation(); });
  batch.prepare(deferred_);
  deferred_.clear();
  CpuStream& stream = *std::exchange(group_stream_, nullptr);
  batch.issue();
  stream.enqueue(batch);
}

void HostCommunicator::drop() noexcept {
  for (CommunicatorOperation* operation : deferred_) operation->drop();
  deferred_.clear();
  group_stream_ = nullptr;
}

void HostCommunicator::run_now(const CollectiveCall& call) {
  CommunicatorOperation& operation = prepare(call);
  operation.issue();
  progress_.wait_until([&] { return operation.poll(); }, [&] { return operation.describe(); });
}

std::int64_t HostCommunicator::largest_now(std::int64_t mine) {
  const TensorView value(&mine, DType::kI64, {1});
  run_now({CommOperation::kAllReduce, ReduceOp::kMax, value, value});
  return mine;
}

}  // namespace trident
