#include "train/step_record.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "core/check.h"
#include "device/dry/dry_device.h"
#include "device/ranges.h"
#include "parallel/dry_communicator.h"
#include "train/rank_trainer.h"

namespace trident {
namespace {

// Takes what is called into the record that is open.
class RecordingOps final : public DryOps {
 public:
  RecordingOps() : DryOps(nullptr) {}
  void record_into(PassRecord* record) { record_ = record; }

  void run(Stream& stream, OperationRef operation) override {
    if (record_ != nullptr) std::visit([&](const auto* o) { note(*o); }, operation);
    DryOps::run(stream, operation);
  }

 private:
  template <class Operation>
  void note(const Operation& o) {
    PassRecord::Operation one{o.kName.kind, o.kName.name};
    o.fields([&](const Field& field) { one.bytes += static_cast<double>(field.bytes_moved()); });
    if constexpr (requires { o.flops(); }) one.flops = o.flops();
    record_->operations.push_back(one);
  }

  PassRecord* record_ = nullptr;
};

// A step is a range, and what is directly inside it are the batch and the instructions (Executor).
class Recorder final : public Ranges {
 public:
  explicit Recorder(RecordingOps& ops) : ops_(ops) {}

  void begin(ParallelContext& context) {
    context_ = &context;
    open(record_.rest);
  }
  StepRecord end() {
    close(record_.rest);
    ops_.record_into(nullptr);
    context_ = nullptr;
    return std::move(record_);
  }

  std::uint64_t start(const char*) override { return 0; }
  void end(std::uint64_t) noexcept override {}

 protected:
  void push(const char* name) override {
    if (++depth_ != kInstruction || context_ == nullptr || name == kBatch) return;
    close(record_.rest);
    now_ = {};
    open(now_);
    in_instruction_ = true;
  }
  void pop() noexcept override {
    if (depth_-- != kInstruction || !std::exchange(in_instruction_, false)) return;
    close(now_);
    const auto same = std::ranges::find(record_.passes, now_);
    record_.pass_of.push_back(static_cast<std::size_t>(same - record_.passes.begin()));
    if (same == record_.passes.end()) record_.passes.push_back(now_);
    open(record_.rest);
  }

 private:
  static constexpr int kInstruction = 2;
  static constexpr std::string_view kBatch = "batch";

  // Counted from 0 each time: differences of sums of fractions would not be equal for equal passes.
  void open(PassRecord& record) {
    ops_.record_into(&record);
    context_->reset_bytes_sent();
  }
  void close(PassRecord& record) {
    const std::array<double, kNumAxes> sent = context_->bytes_sent();
    for (std::size_t axis = 0; axis < sent.size(); ++axis) record.bytes[axis] += sent[axis];
  }

  RecordingOps& ops_;
  ParallelContext* context_ = nullptr;
  StepRecord record_;
  PassRecord now_;
  int depth_ = 0;
  bool in_instruction_ = false;
};

class RecordingDevice final : public DryDevice {
 public:
  RecordingDevice() : DryDevice(nullptr), recorder_(recording_) {}
  Ops& ops() override { return recording_; }
  Ranges* ranges() override { return &recorder_; }
  Recorder& recorder() { return recorder_; }

 private:
  RecordingOps recording_;
  Recorder recorder_;
};

}  // namespace

StepRecord record_step(const RunPlan& plan, int rank) {
  RecordingDevice device;
  RankTrainer trainer(plan, device, make_dry_world(rank, plan.world_size()));
  device.recorder().begin(trainer.context());
  trainer.step([](std::int64_t, std::int64_t, std::span<std::int32_t>, std::span<std::int32_t>) {});
  StepRecord record = device.recorder().end();
  const auto stage = static_cast<std::size_t>(plan.grid.coordinates(rank).pipeline);
  const std::size_t instructions = plan.step_programs[stage].instructions.size();
  TRIDENT_CHECK(record.pass_of.size() == instructions, "{} of {} instructions of rank {} were recorded", record.pass_of.size(),
                instructions, rank);
  return record;
}

}  // namespace trident
