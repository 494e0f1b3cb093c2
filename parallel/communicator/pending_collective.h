// Operations of communicators of host memory, as a stream sees them: issued in an order that all ranks share, then polled.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "device/host/cpu_stream.h"

namespace trident {

// Work whose sequence number is drawn when it is issued; in between it is prepared, perhaps within a group scope.
class CommunicatorOperation : public PendingOperation {
 public:
  virtual void issue() = 0;
  bool busy() const { return busy_; }  // between prepare() and completion or drop()
  void drop() { busy_ = false; }

 protected:
  bool complete() {
    busy_ = false;
    return true;
  }
  bool busy_ = false;

 private:
  friend class BatchOperation;
  CommunicatorOperation* next_ = nullptr;  // in its batch
};

// The operations of a group scope, advanced together.
class BatchOperation final : public CommunicatorOperation {
 public:
  void prepare(std::span<CommunicatorOperation* const> members);
  void issue() override;
  bool poll() override;
  bool has_peers() const override { return has_peers_; }
  std::string describe() const override;

 private:
  CommunicatorOperation* first_ = nullptr;  // of those not yet complete
  bool has_peers_ = false;                  // whether one of its members has
};

// Operations of one kind: room for `capacity` is reserved at once and touched only as far as so many are in flight.
template <class Operation>
class OperationPool {
 public:
  explicit OperationPool(std::size_t capacity) { operations_.reserve(capacity); }
  // An operation that is not busy; waits for one if all are. `make` constructs one.
  template <class Make> Operation& take(Progress& progress, Make make) {
    if (Operation* idle = find(false)) return *idle;
    if (operations_.size() < operations_.capacity()) return operations_.emplace_back(make());
    Operation* idle = nullptr;
    progress.wait_until([&] { return (idle = find(false)) != nullptr; }, [&] { return operations_.front().describe(); });
    return *idle;
  }
  // The first operation that is busy, or is not; null if there is none.
  Operation* find(bool busy) {
    for (Operation& operation : operations_)
      if (operation.busy() == busy) return &operation;
    return nullptr;
  }
  // Says what the first busy operation is doing; "" if none is busy.
  std::string describe_pending() {
    const Operation* operation = find(true);
    return operation == nullptr ? "" : operation->describe();
  }

 private:
  std::vector<Operation> operations_;  // never beyond its capacity: streams hold pointers into it
};

}  // namespace trident
