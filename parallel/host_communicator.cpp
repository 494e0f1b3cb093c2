#include "parallel/host_communicator.h"

#include <algorithm>

#include "core/check.h"

namespace trident {

namespace {

void check_dense(ConstTensorView view) {
  TRIDENT_CHECK(view.where() != MemoryKind::kDevice, "device memory given to a communicator of host memory");
  TRIDENT_CHECK(view.empty() || view.data() != nullptr, "a view of {} elements without memory", view.num_elements());
}

// `part` is exactly slice `rank` of `whole`, or does not touch it.
void check_overlap(ConstTensorView whole, ConstTensorView part, int rank) {
  const bool apart = part.data() + part.num_bytes() <= whole.data() || whole.data() + whole.num_bytes() <= part.data();
  TRIDENT_CHECK(apart || part.empty() || part.data() == whole.data() + rank * part.num_bytes(),
                "operands overlap elsewhere than in slice {}", rank);
}

void check_slices(ConstTensorView whole, ConstTensorView part, int ranks) {
  check_dense(whole);
  check_dense(part);
  TRIDENT_CHECK(whole.dtype() == part.dtype() && whole.num_elements() == ranks * part.num_elements(),
                "{}{} is not {} slices of {}{}", to_string(whole.dtype()), to_string(whole.shape()), ranks, to_string(part.dtype()),
                to_string(part.shape()));
}

void check_reducible(DType dtype) {
  TRIDENT_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF64 || dtype == DType::kI64 || dtype == DType::kI32,
                "{} cannot be reduced", to_string(dtype));
}

}  // namespace

HostCommunicator::HostCommunicator(std::string name, int rank, int size, Progress& progress)
    : name_(std::move(name)), rank_(rank), size_(size), progress_(progress), batches_(kOperations) {
  TRIDENT_CHECK(rank >= 0 && rank < size, "rank {} of {}", rank, size);
  deferred_.reserve(kOperations);
}

void HostCommunicator::all_reduce(Stream& stream, TensorView inout, ReduceOp op) {
  check_dense(inout);
  check_reducible(inout.dtype());
  collective(stream, {CommOperation::kAllReduce, op, inout, inout});
}

void HostCommunicator::reduce_scatter(Stream& stream, TensorView out, ConstTensorView in, ReduceOp op) {
  check_slices(in, out, size());
  check_overlap(in, out, rank());
  check_reducible(in.dtype());
  collective(stream, {CommOperation::kReduceScatter, op, out, in});
}

void HostCommunicator::all_gather(Stream& stream, TensorView out, ConstTensorView in) {
  check_slices(out, in, size());
  check_overlap(out, in, rank());
  collective(stream, {CommOperation::kAllGather, ReduceOp::kSum, out, in});
}

void HostCommunicator::broadcast(Stream& stream, TensorView inout, int root) {
  check_dense(inout);
  TRIDENT_CHECK(root >= 0 && root < size(), "root {} of {} ranks", root, size());
  collective(stream, {CommOperation::kBroadcast, ReduceOp::kSum, inout, inout, root});
}

void HostCommunicator::all_to_all(Stream& stream, TensorView out, ConstTensorView in) {
  check_slices(in, out.flat().range(0, out.num_elements() / size()), size());
  check_slices(out, in.flat().range(0, in.num_elements() / size()), size());
  TRIDENT_CHECK(in.empty() || out.data() + out.num_bytes() <= in.data() || in.data() + in.num_bytes() <= out.data(),
                "all_to_all in place");
  collective(stream, {CommOperation::kAllToAll, ReduceOp::kSum, out, in});
}

void HostCommunicator::collective(Stream& stream, const CollectiveCall& call) {
  CpuStream& cpu = admit(stream);
  submit(cpu, prepare(call));
}

void HostCommunicator::send(Stream& stream, ConstTensorView data, int peer) {
  check_dense(data);
  check_peer(peer);
  CpuStream& cpu = admit(stream);
  submit(cpu, prepare_send(data, peer));
}

void HostCommunicator::recv(Stream& stream, TensorView data, int peer) {
  check_dense(data);
  check_peer(peer);
  CpuStream& cpu = admit(stream);
  submit(cpu, prepare_recv(data, peer));
}

void HostCommunicator::check_peer(int peer) const {
  TRIDENT_CHECK(peer >= 0 && peer < size_ && peer != rank_, "peer {} of rank {} of {}", peer, rank_, size_);
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

std::vector<std::int64_t> HostCommunicator::gather_now(std::vector<std::int64_t> mine) {
  const auto count = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(size_));
  run_now({CommOperation::kAllGather, ReduceOp::kSum, {all.data(), DType::kI64, {size_ * count}}, {mine.data(), DType::kI64, {count}}});
  return all;
}

std::vector<int> members_of_color(const std::vector<std::int64_t>& choices, std::size_t stride, std::int64_t color) {
  std::vector<std::pair<std::int64_t, int>> members;  // (key, rank)
  for (std::size_t r = 0; r * stride < choices.size(); ++r)
    if (choices[r * stride] == color) members.emplace_back(choices[r * stride + 1], static_cast<int>(r));
  std::sort(members.begin(), members.end());
  std::vector<int> ranks;
  for (const auto& member : members) ranks.push_back(member.second);
  return ranks;
}

}  // namespace trident
