#include "device/cpu/cpu_stream.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

// Rounds of polling before a waiting rank sleeps: a few microseconds, less than a wake-up costs.
constexpr int kSpinRounds = 64;
constexpr double kIdleSeconds = 0.1;
constexpr Progress::Naps kNoNaps = {kIdleSeconds, kIdleSeconds, kIdleSeconds};  // peers ring

}  // namespace

Progress::Progress(Doorbell& doorbell) : doorbell_(doorbell), naps_(kNoNaps) {}

void Progress::add(CpuStream& stream) { streams_.push_back(&stream); }

bool Progress::poll() {
  bool any = false;
  for (CpuStream* stream : streams_) any = stream->poll() || any;
  return any;
}

void Progress::set_idle_hook(IdleHook hook) { on_idle_ = std::move(hook); }

void Progress::wait_until(FunctionRef<bool()> ready, FunctionRef<std::string()> describe) {
  double waiting_since = -1, next_report = 0, nap = naps_.first;
  for (int round = 0;; ++round) {
    // Read before looking: what a peer changes after this look changes the count, and then the sleep below is none.
    const std::uint32_t seen = doorbell_.count();
    if (ready()) return;
    if (poll() || std::exchange(advanced_, false)) {
      waiting_since = -1;
      round = 0;
      nap = naps_.first;
      continue;
    }
    if (round < kSpinRounds) {
      __builtin_ia32_pause();
      continue;
    }
    const double now = monotonic_seconds();
    if (waiting_since < 0) {
      waiting_since = now;
      next_report = now + kIdleSeconds;
    }
    if (now >= next_report) {
      next_report = now + kIdleSeconds;
      const AllocationExemption message;  // the hook describes what is awaited; nothing else happens meanwhile
      if (on_idle_) on_idle_(now - waiting_since, describe);
    }
    nap = std::min(nap, awaiting_ > 0 ? naps_.awaiting : naps_.idle);
    doorbell_.wait(seen, std::min(nap, next_report - now));
    nap *= 2;
  }
}

CpuStream::CpuStream(std::string name, Mode mode, Progress& progress)
    : name_(std::move(name)), mode_(mode), progress_(progress), ring_(kCapacity) {
  progress_.add(*this);
}

void CpuStream::enqueue(PendingOperation& operation) {
  if (mode_ == Mode::kQueue) {
    push({&operation, Event()});
    return;
  }
  progress_.wait_until([&] { return operation.poll(); }, [&] { return operation.describe(); });
}

void CpuStream::push(const Item& item) {
  progress_.wait_until([&] { return issued_ - done_ < kCapacity; }, [&] { return describe_head(); });
  ring_[issued_ % kCapacity] = item;
  ++issued_;
  poll();
}

bool CpuStream::poll() {
  bool any = false;
  while (done_ < issued_) {
    const Item& head = ring_[done_ % kCapacity];
    const bool complete = head.operation != nullptr ? head.operation->poll() : head.event.done();
    if (!complete) break;
    ++done_;
    any = true;
  }
  return any;
}

std::string CpuStream::describe_head() const {
  if (done_ == issued_) return name_ + ": nothing pending";
  const Item& head = ring_[done_ % kCapacity];
  if (head.operation != nullptr) return head.operation->describe();
  return fmt::format("stream {}: waiting for event {} of stream {}", name_, head.event.ticket(), head.event.stream()->name());
}

Event CpuStream::record() { return done_ == issued_ ? Event() : Event(this, issued_); }

void CpuStream::wait(const Event& event) {
  if (event.stream() == this || event.done()) return;  // a stream is in order with itself
  if (mode_ == Mode::kImmediate) {
    event.wait_host();
  } else {
    push({nullptr, event});
  }
}

void CpuStream::synchronize() { wait_host(issued_); }

bool CpuStream::is_done(std::uint64_t ticket) {
  TRIDENT_CHECK(ticket <= issued_, "event {} of stream {}, which issued {}", ticket, name_, issued_);
  return done_ >= ticket;
}

void CpuStream::wait_host(std::uint64_t ticket) {
  progress_.wait_until([&] { return is_done(ticket); }, [&] { return describe_head(); });
}

}  // namespace trident
