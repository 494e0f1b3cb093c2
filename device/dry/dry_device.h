// A device that only counts: memory is addresses without bytes, operations check their operands and compute nothing, streams are
// done with whatever is enqueued. What a rank would do is found by letting it do it here (train/run/dry_run.h).
//
// Its addresses are such as no process has: reading or writing there is a fault of the processor, not a wrong number. Copies to it
// go nowhere; what is copied from it is zeros, so that losses and norms of a dry step are finite.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "device/device.h"
#include "device/dry/dry_ops.h"
#include "device/host/cpu_stream.h"
#include "device/host/doorbell.h"

namespace trident {

class DryStream final : public Stream {
 public:
  explicit DryStream(std::string name) : name_(std::move(name)) {}

  std::string_view name() const override { return name_; }
  Event record() override { return {}; }
  void wait(const Event&) override {}
  void synchronize() override {}
  bool is_done(std::uint64_t) override { return true; }
  void wait_host(std::uint64_t) override {}
  double waited_seconds() const override { return 0; }

 private:
  std::string name_;
};

class DryDevice final : public Device {
 public:
  // In place of the device of `oracle`'s operations, which say what workspaces they take (DryOps).
  explicit DryDevice(Ops* oracle) : ops_(oracle), compute_stream_("compute"), progress_(doorbell_) {}

  // From here on `operations` is told of what operations are called, and `ranges` of steps and instructions. Both outlive this.
  void watch(OperationWatcher& operations, Ranges& ranges) {
    ops_.set_watcher(&operations);
    ranges_ = &ranges;
  }

  DeviceKind kind() const override { return DeviceKind::kCpu; }
  std::string describe() const override { return "dry: nothing is computed"; }
  bool has_bytes() const override { return false; }
  Ops& ops() override { return ops_; }
  Stream& compute_stream() override { return compute_stream_; }
  Stream& new_stream(std::string name) override;
  // MemoryKind::kDevice, because the host cannot reach it.
  Buffer allocate(std::int64_t bytes, const std::string& name) override;
  Buffer allocate_host_shared(std::int64_t bytes, const std::string& name) override { return allocate_host(bytes, name); }
  void write(Stream&, TensorView, const void*) override {}
  void read(Stream& stream, void* to, ConstTensorView from) override;
  std::unique_ptr<BackgroundReads> make_background_reads(std::size_t) override { return nullptr; }
  Stream& host_stream() override { return compute_stream_; }
  Progress& progress() override { return progress_; }
  void poll() override {}
  std::vector<std::string> notes() const override { return {}; }
  double waited_seconds() const override { return 0; }
  void log_operations(OperationLog*) override {}
  void run_capturable(FunctionRef<void()> work) override {
    const RangeScope captured(ranges_, kRepeatRange);
    work();
  }
  Ranges* ranges() override { return ranges_; }

 private:
  DryOps ops_;
  Ranges* ranges_ = nullptr;
  DryStream compute_stream_;
  std::vector<std::unique_ptr<DryStream>> streams_;
  std::int64_t next_address_ = std::int64_t{1} << 60;  // of what is allocated next; x86-64 has no such addresses
  Doorbell doorbell_;
  Progress progress_;
};

}  // namespace trident
