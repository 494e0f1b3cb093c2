#include "parallel/shared_memory_communicator.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/check.h"

namespace trident {

namespace {

// Operations of each kind that a communicator keeps; issuing more waits for the oldest.
constexpr std::size_t kOperations = CpuStream::kCapacity;

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

SharedMemoryCommunicator::SharedMemoryCommunicator(SharedWorld& world, GroupBlock block, std::string name, int rank,
                                                   std::vector<int> world_ranks, Progress& progress)
    : group_{&world, block, std::move(name), rank, std::move(world_ranks), CollectiveChecks::kOn, {}, {}},
      progress_(progress),
      next_send_(group_.world_ranks.size()),
      next_recv_(group_.world_ranks.size()),
      collectives_(kOperations),
      messages_(kOperations),
      batches_(kOperations) {
  TRIDENT_CHECK(rank >= 0 && rank < size(), "rank {} of {}", rank, size());
  group_.sources.resize(group_.world_ranks.size());
  group_.outs.reserve(group_.world_ranks.size());
  deferred_.reserve(kOperations);
}

SharedMemoryCommunicator::~SharedMemoryCommunicator() {
  group_cancel();
  const std::string pending = describe_pending();
  if (pending.empty()) return;
  group_.world->fail(fmt::format("rank {} left with operations pending: {}", group_.world_rank(), pending));
  group_.world->wait_until_untouched(group_.world_rank());
}

std::string SharedMemoryCommunicator::describe_pending() {
  if (const auto* operation = collectives_.find(true)) return operation->describe();
  if (const auto* operation = messages_.find(true)) return operation->describe();
  return "";
}

CollectiveOperation& SharedMemoryCommunicator::take_collective() {
  return collectives_.take(progress_, [&] { return CollectiveOperation(group_, next_collective_); });
}

void SharedMemoryCommunicator::all_reduce(Stream& stream, TensorView inout, ReduceOp op) {
  check_dense(inout);
  check_reducible(inout.dtype());
  collective(stream, CommOperation::kAllReduce, op, inout, inout, -1);
}

void SharedMemoryCommunicator::reduce_scatter(Stream& stream, TensorView out, ConstTensorView in, ReduceOp op) {
  check_slices(in, out, size());
  check_overlap(in, out, rank());
  check_reducible(in.dtype());
  collective(stream, CommOperation::kReduceScatter, op, out, in, -1);
}

void SharedMemoryCommunicator::all_gather(Stream& stream, TensorView out, ConstTensorView in) {
  check_slices(out, in, size());
  check_overlap(out, in, rank());
  collective(stream, CommOperation::kAllGather, ReduceOp::kSum, out, in, -1);
}

void SharedMemoryCommunicator::broadcast(Stream& stream, TensorView inout, int root) {
  check_dense(inout);
  TRIDENT_CHECK(root >= 0 && root < size(), "root {} of {} ranks", root, size());
  collective(stream, CommOperation::kBroadcast, ReduceOp::kSum, inout, inout, root);
}

void SharedMemoryCommunicator::all_to_all(Stream& stream, TensorView out, ConstTensorView in) {
  check_slices(in, out.flat().range(0, out.num_elements() / size()), size());
  check_slices(out, in.flat().range(0, in.num_elements() / size()), size());
  TRIDENT_CHECK(in.empty() || out.data() + out.num_bytes() <= in.data() || in.data() + in.num_bytes() <= out.data(),
                "all_to_all in place");
  collective(stream, CommOperation::kAllToAll, ReduceOp::kSum, out, in, -1);
}

void SharedMemoryCommunicator::collective(Stream& stream, CommOperation operation, ReduceOp reduce, TensorView out,
                                          ConstTensorView in, int root) {
  CollectiveOperation& call = take_collective();
  call.prepare(operation, reduce, out, in, root);
  submit(stream, call);
}

MessageOperation& SharedMemoryCommunicator::take_message(int peer) {
  TRIDENT_CHECK(peer >= 0 && peer < size() && peer != rank(), "peer {} of rank {} of {}", peer, rank(), size());
  return messages_.take(progress_, [&] { return MessageOperation(group_); });
}

void SharedMemoryCommunicator::send(Stream& stream, ConstTensorView data, int peer) {
  check_dense(data);
  MessageOperation& message = take_message(peer);
  message.prepare_send(data, peer, next_send_[static_cast<std::size_t>(peer)]);
  submit(stream, message);
}

void SharedMemoryCommunicator::recv(Stream& stream, TensorView data, int peer) {
  check_dense(data);
  MessageOperation& message = take_message(peer);
  message.prepare_recv(data, peer, next_recv_[static_cast<std::size_t>(peer)]);
  submit(stream, message);
}

void SharedMemoryCommunicator::submit(Stream& stream, SharedOperation& operation) {
  auto* cpu = dynamic_cast<CpuStream*>(&stream);
  TRIDENT_CHECK(cpu != nullptr, "stream {} is not a CPU stream", stream.name());
  if (group_depth_ == 0) {
    operation.issue();
    cpu->enqueue(operation);
    return;
  }
  TRIDENT_CHECK(group_stream_ == nullptr || group_stream_ == cpu, "a group of operations on streams {} and {}",
                group_stream_->name(), cpu->name());
  TRIDENT_CHECK(deferred_.size() + 1 < kOperations, "a group of more than {} operations", kOperations - 1);
  group_stream_ = cpu;
  deferred_.push_back(&operation);
}

void SharedMemoryCommunicator::group_begin() { ++group_depth_; }

void SharedMemoryCommunicator::group_end() {
  TRIDENT_CHECK(group_depth_ > 0, "group_end() without group_begin()");
  if (--group_depth_ > 0 || deferred_.empty()) return;
  BatchOperation& batch = batches_.take(progress_, [] { return BatchOperation(); });
  batch.prepare(deferred_);
  deferred_.clear();
  CpuStream& stream = *std::exchange(group_stream_, nullptr);
  batch.issue();
  stream.enqueue(batch);
}

void SharedMemoryCommunicator::group_cancel() noexcept {
  for (SharedOperation* operation : deferred_) operation->drop();
  deferred_.clear();
  group_stream_ = nullptr;
  group_depth_ = 0;
}

void SharedMemoryCommunicator::run_now(CommOperation operation, TensorView out, ConstTensorView in) {
  TRIDENT_CHECK(group_depth_ == 0, "{} inside a group of operations", to_string(operation));
  CollectiveOperation& call = take_collective();
  call.prepare(operation, ReduceOp::kSum, out, in, -1);
  call.issue();
  progress_.wait_until([&] { return call.poll(); }, [&] { return call.describe(); });
}

void SharedMemoryCommunicator::barrier() { run_now(CommOperation::kBarrier, {nullptr, DType::kU8, {0}}, {nullptr, DType::kU8, {0}}); }

std::vector<std::int64_t> SharedMemoryCommunicator::gather_now(std::vector<std::int64_t> mine) {
  const auto count = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(size()));
  run_now(CommOperation::kAllGather, {all.data(), DType::kI64, {size() * count}}, {mine.data(), DType::kI64, {count}});
  return all;
}

std::unique_ptr<Communicator> SharedMemoryCommunicator::split(int color, int key, std::string name) {
  const std::vector<std::int64_t> choices = gather_now({color, key});
  std::vector<std::pair<std::int64_t, int>> members;  // (key, rank in this group)
  for (int r = 0; r < size(); ++r) {
    const auto* choice = &choices[static_cast<std::size_t>(2 * r)];
    if (choice[0] == color) members.emplace_back(choice[1], r);
  }
  std::sort(members.begin(), members.end());

  int new_rank = 0;
  std::vector<int> world_ranks;
  for (const auto& [member_key, r] : members) {
    if (r == rank()) new_rank = static_cast<int>(world_ranks.size());
    world_ranks.push_back(group_.world_rank_of(r));
  }
  const int ranks = static_cast<int>(world_ranks.size());
  // The new group's first rank lays out its control block; everybody learns where.
  const std::uint64_t mine = new_rank == 0 ? group_.world->allocate_group(ranks) : 0;
  const std::vector<std::int64_t> offsets = gather_now({static_cast<std::int64_t>(mine)});
  const auto offset = static_cast<std::uint64_t>(offsets[static_cast<std::size_t>(members.front().second)]);
  auto communicator = std::make_unique<SharedMemoryCommunicator>(*group_.world, group_.world->group(offset, ranks), std::move(name),
                                                                 new_rank, std::move(world_ranks), progress_);
  communicator->set_checks(group_.checks);
  return communicator;
}

void SharedMemoryCommunicator::abort(std::string_view reason) { group_.world->fail(reason); }

std::unique_ptr<Communicator> make_world_communicator(SharedWorld& world, int rank, Progress& progress) {
  progress.set_idle_hook([&world, rank](double seconds, FunctionRef<std::string()> describe) {
    world.throw_if_failed(rank);
    if (seconds >= world.timeout_seconds())
      world.raise(rank, fmt::format("rank {} waited {:.3g} s in {}", rank, seconds, describe()));
  });
  std::vector<int> ranks(static_cast<std::size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<SharedMemoryCommunicator>(world, world.group(world.world_group(), world.size()), "world", rank,
                                                    std::move(ranks), progress);
}

}  // namespace trident
