// A device that measures what is done on it, operation by operation: calls, seconds, products and bytes.
//
// While it measures, every operation is waited for, so that its time is its own; a step takes longer than it would otherwise.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/clock.h"
#include "device/device.h"
#include "planner/bench/bench_report.h"

namespace trident {

// Is told of every operation while it measures.
class WorkListener {
 public:
  virtual ~WorkListener() = default;
  bool measures() const { return measures_; }
  void stop() { measures_ = false; }
  virtual void add(const Work& one) = 0;  // of one call

 protected:
  bool measures_ = false;
};

class WorkMeter final : public WorkListener {
 public:
  void start();  // forgets what was measured before
  void add(const Work& one) override;
  std::span<const Work> work() const { return work_; }          // by operation
  std::span<const Work> products() const { return products_; }  // of these the products, by shape

 private:
  std::vector<Work> work_, products_;
};

// `device` and `listener` outlive the result. Everything but ops() is the device's own. `clock`: whose seconds are measured.
std::unique_ptr<Device> make_metered_device(Device& device, WorkListener& listener, double (*clock)() = monotonic_seconds);

}  // namespace trident
