#include "parallel/dry_communicator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/check.h"
#include "parallel/collective_call.h"
#include "parallel/rank_order_sum.h"

namespace trident {
namespace {

class DryCommunicator final : public Communicator {
 public:
  DryCommunicator(std::string name, int rank, int size) : name_(std::move(name)), rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view name() const override { return name_; }

  void all_reduce(Stream&, TensorView inout, ReduceOp op) override {
    rules(inout).all_reduce(inout, op);
    reduce(inout, inout, op);
  }
  void reduce_scatter(Stream&, TensorView out, ConstTensorView in, ReduceOp op) override {
    rules(in).reduce_scatter(out, in, op);
    reduce(out, in.flat().range(rank_ * out.num_elements(), out.num_elements()), op);
  }
  void all_gather(Stream&, TensorView out, ConstTensorView in) override {
    rules(in).all_gather(out, in);
    for (int r = 0; r < size_; ++r) copy(out.flat().range(r * in.num_elements(), in.num_elements()), in);
  }
  void broadcast(Stream&, TensorView inout, int root) override { rules(inout).broadcast(inout, root); }
  void all_to_all(Stream&, TensorView out, ConstTensorView in) override {
    rules(in).all_to_all(out, in);
    const std::int64_t count = in.num_elements() / size_;
    for (int r = 0; r < size_; ++r) copy(out.flat().range(r * count, count), in.flat().range(rank_ * count, count));
  }
  void send(Stream&, ConstTensorView data, int peer) override { rules(data).send(data, peer); }
  void recv(Stream&, TensorView data, int peer) override {
    rules(data).recv(data, peer);
    if (has_bytes(data)) std::memset(data.data(), 0, static_cast<std::size_t>(data.num_bytes()));
  }
  void group_begin() override { ++group_depth_; }
  void group_end() override {
    TRIDENT_CHECK(group_depth_ > 0, "{}: a group ends that did not begin", name_);
    --group_depth_;
  }
  void group_cancel() noexcept override { --group_depth_; }
  void barrier() override {}
  std::unique_ptr<Communicator> split(std::span<const int> members, std::string name) override {
    const auto me = std::ranges::find(members, rank_);
    TRIDENT_CHECK(me != members.end(), "rank {} of {} is not among the members of the group that it asks for", rank_, name_);
    for (const int r : members) TRIDENT_CHECK(r >= 0 && r < size_, "rank {} of {} ranks in {}", r, size_, name_);
    const auto number = static_cast<int>(me - members.begin());
    return std::make_unique<DryCommunicator>(std::move(name), number, static_cast<int>(members.size()));
  }
  void abort(std::string_view) override {}
  void set_checks(CollectiveChecks) override {}

 private:
  static bool has_bytes(ConstTensorView view) { return view.where() != MemoryKind::kDevice && !view.empty(); }

  CallRules rules(ConstTensorView operand) const {
    return {rank_, size_, operand.where() == MemoryKind::kDevice ? CallRules::Side::kDevice : CallRules::Side::kHost};
  }
  // `out` becomes the reduction of as many `mine` as there are ranks.
  void reduce(TensorView out, ConstTensorView mine, ReduceOp op) {
    if (!has_bytes(out)) return;
    const std::vector<const std::byte*> sources(static_cast<std::size_t>(size_), mine.data());
    std::byte* const outs[] = {out.data()};
    reduce_in_rank_order(out.dtype(), op, outs, sources, out.num_elements());
  }
  static void copy(TensorView out, ConstTensorView in) {
    if (has_bytes(out) && out.data() != in.data()) std::memcpy(out.data(), in.data(), static_cast<std::size_t>(in.num_bytes()));
  }

  std::string name_;
  int rank_, size_;
  int group_depth_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_dry_world(int rank, int size) {
  TRIDENT_CHECK(rank >= 0 && rank < size, "rank {} of a dry world of {}", rank, size);
  return std::make_unique<DryCommunicator>("world", rank, size);
}

}  // namespace trident
