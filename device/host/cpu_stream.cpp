#include "device/host/cpu_stream.h"

#include "core/check.h"
#include "core/clock.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

// Rounds of polling before a waiting rank sleeps: a few microseconds, less than a wake-up costs.
constexpr int kSpinRounds = 64;
constexpr int kSpinRoundsPerClock = 8;  // the clock costs as much as a round
constexpr double kIdleSeconds = 0.1;
constexpr Progress::Backoff kNoNaps = {kIdleSeconds, kIdleSeconds, kIdleSeconds};  // peers ring

}  // namespace

Progress::Progress(Doorbell& doorbell) : doorbell_(doorbell), naps_(kNoNaps), nap_limit_(kIdleSeconds) {}

void Progress::add(CpuStream& stream) { streams_.push_back(&stream); }

void Progress::remove(CpuStream& stream) { std::erase(streams_, &stream); }

bool Progress::poll() {
  bool any = false;
  for (CpuStream* stream : streams_) any = stream->poll() || any;
  return any;
}

void Progress::set_idle_hook(IdleHook hook) { on_idle_ = std::move(hook); }

void Progress::set_wait_observer(IdleHook observer) { on_wait_ = std::move(observer); }

void Progress::wait_until(FunctionRef<bool()> ready, FunctionRef<std::string()> describe) {
  try {
    wait(ready, describe);
  } catch (...) {
    give_up();
    throw;
  }
}

void Progress::give_up() noexcept {
  for (GiveUpListener* listener : listeners_) listener->on_give_up();
  for (GiveUpListener* listener : listeners_) listener->after_give_up();
}

void Progress::wait(FunctionRef<bool()> ready, FunctionRef<std::string()> describe) {
  double now = 0, waiting_since = -1, next_report = 0, nap = naps_.first;  // since: the first look in vain after the last progress
  const auto end_wait = [&] {
    if (waiting_since >= 0) waited_ += now - waiting_since;
    waiting_since = -1;
  };
  for (int round = 0;; ++round) {
    // Read before looking: what a peer changes after this look changes the count, and then the sleep below is none.
    const std::uint32_t seen = doorbell_.count();
    // Before looking as well, for a look that is not in vain does work (it adds what peers sent), and that is no waiting.
    if (round >= kSpinRounds || round % kSpinRoundsPerClock == 1) now = monotonic_seconds();
    if (ready()) return end_wait();
    if (poll() || std::exchange(advanced_, false)) {
      end_wait();
      round = -1;
      nap = naps_.first;
      continue;
    }
    if (waiting_since < 0) {
      waiting_since = now = monotonic_seconds();
      next_report = waiting_since + kIdleSeconds;
    }
    if (round < kSpinRounds) {
      __builtin_ia32_pause();
      continue;
    }
    if (now >= next_report) {
      next_report = now + kIdleSeconds;
      const AllocationExemption message;  // the hook describes what is awaited; nothing else happens meanwhile
      if (on_wait_) on_wait_(now - waiting_since, describe);
      if (on_idle_) on_idle_(now - waiting_since, describe);
    }
    if (before_nap_) before_nap_();
    nap = std::min({nap, awaiting_ > 0 ? naps_.awaiting : naps_.idle, nap_limit_});
    doorbell_.wait(seen, std::min(nap, next_report - now));
    nap *= 2;
  }
}

CpuStream::CpuStream(std::string name, Mode mode, Progress& progress, const Stream* logged_as)
    : name_(std::move(name)), mode_(mode), progress_(progress), logged_as_(logged_as != nullptr ? logged_as : this), ring_(kCapacity) {
  progress_.add(*this);
}

CpuStream::~CpuStream() {
  if (done_ < issued_) end_range(ring_[done_ % kCapacity]);
  progress_.remove(*this);
}

void CpuStream::enqueue(PendingOperation& operation) {
  if (mode_ == Mode::kQueue) {
    push({&operation, Event(), 0, name_of_issuer()});
    return;
  }
  const double start = monotonic_seconds();
  Item now{&operation, Event(), start, name_of_issuer()};
  start_range(now);
  try {
    wait_until([&] { return operation.poll(); }, [&] { return operation.describe(); });
  } catch (...) {
    end_range(now);
    throw;
  }
  end_range(now);
  if (operation.has_peers()) held_ += monotonic_seconds() - start;
  if (progress_.log() != nullptr) log_done(now);
}

void CpuStream::push(Item item) {
  wait_until([&] { return issued_ - done_ < kCapacity; }, [&] { return describe_head(); });
  if (progress_.log() != nullptr) item.issued = monotonic_seconds();
  ring_[issued_ % kCapacity] = item;
  ++issued_;
  poll();
}

bool CpuStream::poll() try {
  bool any = false;
  while (done_ < issued_) {
    Item& head = ring_[done_ % kCapacity];
    start_range(head);
    const bool complete = head.operation != nullptr ? head.operation->poll() : head.event.done();
    if (!complete) break;
    end_range(head);
    if (progress_.log() != nullptr) log_done(head);
    ++done_;
    any = true;
  }
  return any;
} catch (...) {
  progress_.give_up();  // also where nobody waits
  throw;
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
    push({nullptr, event, 0, nullptr});
  }
}

void CpuStream::synchronize() { wait_host(issued_); }

bool CpuStream::is_done(std::uint64_t ticket) {
  TRIDENT_CHECK(ticket <= issued_, "event {} of stream {}, which issued {}", ticket, name_, issued_);
  return done_ >= ticket;
}

void CpuStream::wait_host(std::uint64_t ticket) {
  if (is_done(ticket)) return;
  const RangeScope range(logged_as_ != this ? progress_.ranges() : nullptr, "wait");
  const double start = progress_.log() != nullptr ? monotonic_seconds() : 0;
  wait_until([&] { return is_done(ticket); }, [&] { return describe_head(); });
  if (progress_.log() != nullptr) progress_.log()->add({OperationRecord::Kind::kWait, logged_as_, start, start, monotonic_seconds()});
}

void CpuStream::wait_until(FunctionRef<bool()> ready, FunctionRef<std::string()> describe) {
  const double before = progress_.waited_seconds();
  progress_.wait_until(ready, describe);
  waited_ += progress_.waited_seconds() - before;
}

const char* CpuStream::name_of_issuer() const {
  const Ranges* const ranges = progress_.ranges();
  return ranges != nullptr && logged_as_ != this ? ranges->innermost() : nullptr;
}

void CpuStream::start_range(Item& item) {
  if (item.name != nullptr && !item.range) item.range = progress_.ranges()->start(item.name);
}

void CpuStream::end_range(Item& item) {
  if (item.range) progress_.ranges()->end(*item.range);
  item.range.reset();
}

// Items of a stream follow each other, so a record begins where the one before it ended, or when it was issued.
void CpuStream::log_done(const Item& item) {
  const double end = monotonic_seconds();
  if (item.operation != nullptr) progress_.log()->add({OperationRecord::Kind::kOperation, logged_as_, item.issued, std::max(item.issued, last_end_), end});
  last_end_ = end;
}

}  // namespace trident
