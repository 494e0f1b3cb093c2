// A device that measures what is done on it, operation by operation: calls, seconds, products and bytes.
//
// While it measures, every operation is waited for, so that its time is its own; a step takes longer than it would otherwise.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "train/bench/bench_report.h"

namespace trident {

class WorkMeter {
 public:
  bool measures() const { return measures_; }
  void start();  // forgets what was measured before
  void stop() { measures_ = false; }
  void add(const Work& one);
  std::span<const Work> work() const { return work_; }  // by operation

 private:
  bool measures_ = false;
  std::vector<Work> work_;
};

// `device` and `meter` outlive the result. Everything but ops() is the device's own.
std::unique_ptr<Device> make_metered_device(Device& device, WorkMeter& meter);

}  // namespace trident
