#include "planner/bench/metered_device.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "device/operations.h"
#include "device/ops.h"
#include "train/plan/step_recorder.h"

namespace trident {
namespace {

class MeteredOps final : public Ops {
 public:
  MeteredOps(Ops& ops, WorkListener& meter, double (*clock)()) : ops_(ops), meter_(meter), clock_(clock) {}

  std::int64_t prepare_matmul(const MatmulShape& shape) override { return ops_.prepare_matmul(shape); }
  PreparedProduct prepare_fused(const MatmulShape& shape, Epilogue epilogue, std::int64_t rank) override {
    return ops_.prepare_fused(shape, epilogue, rank);
  }
  std::int64_t attention_workspace(const AttentionShape& shape) override { return ops_.attention_workspace(shape); }
  std::int64_t cached_attention_workspace(const AttentionShape& shape) override { return ops_.cached_attention_workspace(shape); }
  bool attends_by_rows() const override { return ops_.attends_by_rows(); }
  bool try_fused(Stream& stream, const FusedMatmul& fused) override {
    return measure(stream, op::Fused{fused}, [&] { return ops_.try_fused(stream, fused); });
  }
  void run(Stream& stream, OperationRef operation) override {
    measure(stream, operation, [&] { return ops_.run(stream, operation), true; });
  }

 private:
  // A `call` that returns false has done nothing.
  template <class Operation, class Call>
  bool measure(Stream& stream, const Operation& operation, Call call) {
    if (!meter_.measures()) return call();
    const RecordedOperation one = recorded(operation);
    stream.synchronize();
    const double start = clock_();
    if (!call()) return false;
    stream.synchronize();
    meter_.add({one.kind, one.name, 1, clock_() - start, one.flops, one.bytes, one.shape});
    return true;
  }

  Ops& ops_;
  WorkListener& meter_;
  double (*clock_)();
};

class MeteredDevice final : public Device {
 public:
  MeteredDevice(Device& device, WorkListener& meter, double (*clock)())
      : device_(device), meter_(meter), ops_(device.ops(), meter, clock) {}

  DeviceKind kind() const override { return device_.kind(); }
  std::string describe() const override { return device_.describe(); }
  bool has_bytes() const override { return device_.has_bytes(); }
  Ops& ops() override { return ops_; }
  Stream& compute_stream() override { return device_.compute_stream(); }
  Stream& new_stream(std::string name) override { return device_.new_stream(std::move(name)); }
  Buffer allocate(std::int64_t bytes, const std::string& name) override { return device_.allocate(bytes, name); }
  std::optional<std::int64_t> free_bytes() const override { return device_.free_bytes(); }
  Buffer allocate_host_shared(std::int64_t bytes, const std::string& name) override {
    return device_.allocate_host_shared(bytes, name);
  }
  void write(Stream& stream, TensorView to, const void* from) override { device_.write(stream, to, from); }
  void read(Stream& stream, void* to, ConstTensorView from) override { device_.read(stream, to, from); }
  std::unique_ptr<BackgroundReads> make_background_reads(std::size_t marks) override { return device_.make_background_reads(marks); }
  Stream& host_stream() override { return device_.host_stream(); }
  Progress& progress() override { return device_.progress(); }
  void poll() override { device_.poll(); }
  void run_announced() override { device_.run_announced(); }
  std::vector<std::string> notes() const override { return device_.notes(); }
  double waited_seconds() const override { return device_.waited_seconds(); }
  void log_operations(OperationLog* log) override { device_.log_operations(log); }
  // Work is measured operation by operation.
  void run_capturable(FunctionRef<void()> work) override {
    if (meter_.measures()) return work();
    device_.run_capturable(work);
  }
  Ranges* ranges() override { return device_.ranges(); }

 private:
  Device& device_;
  WorkListener& meter_;
  MeteredOps ops_;
};

}  // namespace

void WorkMeter::start() {
  for (std::vector<Work>* list : {&work_, &products_}) {
    list->clear();
    list->reserve(256);  // more than there are operations and shapes of products: nothing is allocated inside a step
  }
  measures_ = true;
}

namespace {

void add_to(Work* same, std::vector<Work>& list, const Work& one) {
  if (same == list.data() + list.size()) {
    list.push_back(one);
    return;
  }
  same->calls += one.calls;
  same->seconds += one.seconds;
  same->flops += one.flops;
  same->bytes += one.bytes;
}

}  // namespace

void WorkMeter::add(const Work& one) {
  add_to(std::to_address(std::ranges::find(work_, one.operation, &Work::operation)), work_, one);
  if (one.kind != WorkKind::kMatmuls) return;
  add_to(std::to_address(std::ranges::find(products_, one.shape, &Work::shape)), products_, one);
}

std::unique_ptr<Device> make_metered_device(Device& device, WorkListener& listener, double (*clock)()) {
  return std::make_unique<MeteredDevice>(device, listener, clock);
}

}  // namespace trident
