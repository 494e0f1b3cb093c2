// Makes a StepRecord of what a dry rank calls: it watches the device's operations, the communicators and the executor's ranges.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>

#include "device/dry/dry_ops.h"
#include "device/ranges.h"
#include "parallel/communicator/dry_communicator.h"
#include "pipeline/schedule/step_program.h"
#include "train/config/train_config.h"
#include "train/plan/step_record.h"

namespace trident {

// The operation by itself, wherever it is called.
RecordedOperation recorded(OperationRef operation);
RecordedOperation recorded(const op::Fused& fused);

class StepRecorder final : public OperationWatcher, public CallWatcher, public Ranges {
 public:
  explicit StepRecorder(Interning interning) : interning_(interning) {}

  // The next calls are `program`, once, as GPUs that are set so launch and multiply.
  void begin(const StepProgram& program, const CudaOptions& cuda);
  StepRecord finish();

  void performed(OperationRef operation) override;
  void performed(const op::Fused& fused) override;
  void called(std::string_view group, int size, const CollectiveCall& call) override;
  std::uint64_t start(const char*) override { return 0; }
  void end(std::uint64_t) noexcept override {}

 private:
  void push(const char* name) override;
  void pop() noexcept override;
  void add(RecordedOperation operation);
  std::int32_t number_of(PassRecord& pass);

  Interning interning_;
  const StepProgram* program_ = nullptr;
  StepRecord record_;
  PassRecord outside_, inside_;  // of instructions; the instruction's in progress
  int depth_ = 0, depth_of_instruction_ = 0, depth_of_recompute_ = 0, depth_of_repeat_ = 0;  // of ranges; 0: outside
  bool graphs_ = false, tf32_ = false;
  bool graph_begun_ = false;  // of the repeat in progress something was called
  std::unordered_multimap<std::size_t, std::int32_t> by_hash_;
};

}  // namespace trident
