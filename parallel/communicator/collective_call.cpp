#include "parallel/communicator/collective_call.h"

#include "core/at.h"
#include "core/check.h"

namespace trident {

namespace {

void check_reducible(DType dtype) {
  TRIDENT_CHECK(dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 || dtype == DType::kF64 ||
                    dtype == DType::kI64 || dtype == DType::kI32,
                "{} cannot be reduced", to_string(dtype));
}

bool apart(ConstTensorView a, ConstTensorView b) {
  return a.data() + a.num_bytes() <= b.data() || b.data() + b.num_bytes() <= a.data();
}

}  // namespace

std::int64_t bytes_sent_times_n(const CollectiveCall& call, int size) {
  switch (call.operation) {
    case CommOperation::kAllReduce: return 2 * (size - 1) * call.out.num_bytes();
    case CommOperation::kReduceScatter:
    case CommOperation::kAllToAll: return (size - 1) * call.in.num_bytes();
    case CommOperation::kAllGather:
    case CommOperation::kBroadcast: return (size - 1) * call.out.num_bytes();
    case CommOperation::kSend: return size * call.in.num_bytes();
    case CommOperation::kRecv:
    case CommOperation::kBarrier: return 0;
  }
  return 0;
}

CommFingerprint fingerprint_of(const CollectiveCall& call, std::span<const int> global_ranks) {
  const bool has_root = call.operation == CommOperation::kBroadcast;
  return {call.operation, call.reduce, call.in.dtype(), has_root ? at(global_ranks, call.root) : -1, call.in.num_elements()};
}

void CallRules::check_dense(ConstTensorView view) const {
  const bool on_device = view.where() == MemoryKind::kDevice;
  TRIDENT_CHECK(side == Side::kEither || on_device == (side == Side::kDevice), "{} memory given to a communicator of {} memory",
                on_device ? "device" : "host", on_device ? "host" : "device");
  TRIDENT_CHECK(view.empty() || view.data() != nullptr, "a view of {} elements without memory", view.num_elements());
}

// `part` is exactly slice `rank` of `whole`, or does not touch it.
void CallRules::check_overlap(ConstTensorView whole, ConstTensorView part) const {
  TRIDENT_CHECK(apart(whole, part) || part.empty() || part.data() == whole.data() + rank * part.num_bytes(),
                "operands overlap elsewhere than in slice {}", rank);
}

void CallRules::check_slices(ConstTensorView whole, ConstTensorView part) const {
  check_dense(whole);
  check_dense(part);
  TRIDENT_CHECK(whole.dtype() == part.dtype() && whole.num_elements() == size * part.num_elements(),
                "{}{} is not {} slices of {}{}", to_string(whole.dtype()), to_string(whole.shape()), size, to_string(part.dtype()),
                to_string(part.shape()));
}

void CallRules::check_peer(int peer) const {
  TRIDENT_CHECK(peer >= 0 && peer < size && peer != rank, "peer {} of rank {} of {}", peer, rank, size);
}

CollectiveCall CallRules::all_reduce(TensorView inout, ReduceOp op) const {
  check_dense(inout);
  check_reducible(inout.dtype());
  return {CommOperation::kAllReduce, op, inout, inout};
}

CollectiveCall CallRules::reduce_scatter(TensorView out, ConstTensorView in, ReduceOp op) const {
  check_slices(in, out);
  check_overlap(in, out);
  check_reducible(in.dtype());
  return {CommOperation::kReduceScatter, op, out, in};
}

CollectiveCall CallRules::all_gather(TensorView out, ConstTensorView in) const {
  check_slices(out, in);
  check_overlap(out, in);
  return {CommOperation::kAllGather, ReduceOp::kSum, out, in};
}

CollectiveCall CallRules::broadcast(TensorView inout, int root) const {
  check_dense(inout);
  TRIDENT_CHECK(root >= 0 && root < size, "root {} of {} ranks", root, size);
  return {CommOperation::kBroadcast, ReduceOp::kSum, inout, inout, root};
}

CollectiveCall CallRules::all_to_all(TensorView out, ConstTensorView in) const {
  check_slices(in, out.flat().range(0, out.num_elements() / size));
  check_slices(out, in.flat().range(0, in.num_elements() / size));
  TRIDENT_CHECK(in.empty() || apart(out, in), "all_to_all in place");
  return {CommOperation::kAllToAll, ReduceOp::kSum, out, in};
}

CollectiveCall CallRules::send(ConstTensorView data, int peer) const {
  check_dense(data);
  check_peer(peer);
  return {.operation = CommOperation::kSend, .in = data, .root = peer};
}

CollectiveCall CallRules::recv(TensorView data, int peer) const {
  check_dense(data);
  check_peer(peer);
  return {.operation = CommOperation::kRecv, .out = data, .in = data, .root = peer};
}

}  // namespace trident
