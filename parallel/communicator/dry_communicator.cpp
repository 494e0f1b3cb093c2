#include "parallel/communicator/dry_communicator.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/at.h"
#include "core/check.h"
#include "parallel/communicator/collective_call.h"
#include "parallel/communicator/rank_order_sum.h"

namespace trident {
namespace {

class DryCommunicator final : public Communicator {
 public:
  DryCommunicator(std::string name, int rank, std::vector<int> global_ranks, CallWatcher* watcher)
      : Communicator(std::move(name), rank, static_cast<int>(global_ranks.size()), CallRules::Side::kEither),
        global_ranks_(std::move(global_ranks)),
        watcher_(watcher) {}

  int global_rank_of(int rank) const override { return at(global_ranks_, rank); }
  void abort(std::string_view) override {}

 private:
  void enqueue(Stream&, const CollectiveCall& call) override {
    if (watcher_ != nullptr) watcher_->called(name(), size(), call);
    const TensorView out = call.out.flat();
    const ConstTensorView in = call.in.flat();
    const std::int64_t received = out.num_elements() / size(), sent = in.num_elements() / size(), mine = out.num_elements();
    switch (call.operation) {
      case CommOperation::kAllReduce: return reduce(out, in, call.reduce);
      case CommOperation::kReduceScatter: return reduce(out, in.range(rank() * mine, mine), call.reduce);
      case CommOperation::kAllGather: return fill(out, received, in);
      case CommOperation::kAllToAll: return fill(out, received, in.range(rank() * sent, sent));
      case CommOperation::kRecv:
        if (has_bytes(out)) std::memset(out.data(), 0, static_cast<std::size_t>(out.num_bytes()));
        return;
      case CommOperation::kBroadcast:
      case CommOperation::kSend:
      case CommOperation::kBarrier: return;
    }
  }
  void flush() override {}
  void drop() noexcept override {}
  void meet() override {}
  std::unique_ptr<Communicator> make_part(std::span<const int> members, int number, std::string name) override {
    std::vector<int> global_ranks;
    for (const int r : members) global_ranks.push_back(global_rank_of(r));
    return std::make_unique<DryCommunicator>(std::move(name), number, std::move(global_ranks), watcher_);
  }

  static bool has_bytes(ConstTensorView view) { return view.where() != MemoryKind::kDevice && !view.empty(); }
  // `out` becomes the reduction of as many `mine` as there are ranks.
  void reduce(TensorView out, ConstTensorView mine, ReduceOp op) const {
    if (!has_bytes(out)) return;
    const std::vector<const std::byte*> sources(global_ranks_.size(), mine.data());
    std::byte* const outs[] = {out.data()};
    reduce_in_rank_order(out.dtype(), op, outs, sources, out.num_elements());
  }
  // Each slice of `count` elements of `out` becomes `in`.
  void fill(TensorView out, std::int64_t count, ConstTensorView in) const {
    for (int r = 0; has_bytes(out) && r < size(); ++r) {
      const TensorView slice = out.range(r * count, count);
      if (slice.data() != in.data()) std::memcpy(slice.data(), in.data(), static_cast<std::size_t>(in.num_bytes()));
    }
  }

  std::vector<int> global_ranks_;
  CallWatcher* watcher_;
};

}  // namespace

std::unique_ptr<Communicator> make_dry_world(int rank, int size, CallWatcher* watcher) {
  TRIDENT_CHECK(rank >= 0 && rank < size, "rank {} of a dry world of {}", rank, size);
  std::vector<int> everybody(static_cast<std::size_t>(size));
  std::iota(everybody.begin(), everybody.end(), 0);
  return std::make_unique<DryCommunicator>("world", rank, std::move(everybody), watcher);
}

}  // namespace trident
