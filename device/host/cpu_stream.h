// CPU streams: the compute stream runs at once; queue streams hold operations in progress that advance when polled.
//
// Nothing moves by itself: a rank that waits for anything polls all of its streams (its peers may be waiting for its share of
// another collective), spins briefly, then sleeps on its doorbell. That makes a set of ranks deadlock-free as long as every rank
// issues the operations of each communicator in the same order.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/function_ref.h"
#include "device/host/doorbell.h"
#include "device/operation_log.h"
#include "device/ranges.h"
#include "device/stream.h"

namespace trident {

// Work that a queue stream advances. Owned by whoever enqueues it (a communicator reuses its own), alive until done.
class PendingOperation {
 public:
  virtual ~PendingOperation() = default;
  // Advances without blocking; true once complete. Not called again after that.
  virtual bool poll() = 0;
  // For the watchdog: "all_reduce #17 over tp of rank 3: waiting for ranks 1, 2".
  virtual std::string describe() const = 0;
  // A group of one moves bytes and holds nobody.
  virtual bool has_peers() const { return true; }
};

class CpuStream;

// Who must act at once when a rank gives up waiting, before what the exception unwinds is freed.
class GiveUpListener {
 public:
  virtual void on_give_up() noexcept = 0;
  // When all of the rank's listeners were told: for what takes until the others have acted too.
  virtual void after_give_up() noexcept {}

 protected:
  ~GiveUpListener() = default;
};

// All queue streams of one rank, and how that rank waits.
class Progress {
 public:
  // `doorbell` is rung by peers whenever an operation of this rank may be able to advance; outlives the object.
  explicit Progress(Doorbell& doorbell);

  void add(CpuStream& stream);
  void remove(CpuStream& stream);  // not from within poll()
  // One round over all streams; true if any operation completed.
  bool poll();
  // Polls and sleeps until `ready()`. `describe` names what is awaited, for the watchdog's message.
  // Not called again after it returned true. Throws what polled operations and the idle hook throw, after the listeners were told.
  void wait_until(FunctionRef<bool()> ready, FunctionRef<std::string()> describe);
  // Tells the listeners.
  void give_up() noexcept;
  void add(GiveUpListener& listener) { listeners_.push_back(&listener); }
  void remove(GiveUpListener& listener) { std::erase(listeners_, &listener); }
  // Called about every 0.1 s of fruitless waiting with the seconds since the last progress and a description of what is awaited; throws
  // CommunicationError to give up (peer failed, time-out). Set by the communicator that owns the world.
  using IdleHook = std::function<void(double seconds_waited, FunctionRef<std::string()> describe)>;
  void set_idle_hook(IdleHook hook);
  // Called at the same moments, before the idle hook, by who only wants to know; throws nothing.
  void set_wait_observer(IdleHook observer);

  // How long this rank sleeps at most before it looks again, for nobody rings when messages of other nodes arrive. Sleeps grow from
  // `first` to `awaiting` seconds while operations await messages, else to `idle`. Set by the communicator that owns the world.
  struct Backoff {
    double first, awaiting, idle;
  };
  // `before` is called before every sleep.
  void set_naps(const Backoff& naps, std::function<void()> before) {
    naps_ = naps;
    before_nap_ = std::move(before);
  }
  // Sleeps are never longer than this from now on: something is awaited of which nobody is told.
  void limit_naps(double seconds) { nap_limit_ = std::min(nap_limit_, seconds); }
  // Counts operations that await messages.
  void expect_messages(int change) { awaiting_ += change; }
  // A part of an operation is done: looking again soon is worth while.
  void note_advance() { advanced_ = true; }

  // Time spent in wait_until() while nothing of this rank could advance.
  double waited_seconds() const { return waited_; }
  // Where streams put their records, or nullptr; see Device::log_operations.
  void set_log(OperationLog* log) { log_ = log; }
  OperationLog* log() const { return log_; }
  // Likewise where ranges are told, or nullptr; outlives the streams.
  void set_ranges(Ranges* ranges) { ranges_ = ranges; }
  Ranges* ranges() const { return ranges_; }

 private:
  void wait(FunctionRef<bool()> ready, FunctionRef<std::string()> describe);

  Doorbell& doorbell_;
  double waited_ = 0;
  OperationLog* log_ = nullptr;
  Ranges* ranges_ = nullptr;
  std::vector<CpuStream*> streams_;
  std::vector<GiveUpListener*> listeners_;
  IdleHook on_idle_, on_wait_;
  Backoff naps_;
  double nap_limit_;
  std::function<void()> before_nap_;
  int awaiting_ = 0;
  bool advanced_ = false;
};

class CpuStream final : public Stream {
 public:
  enum class Mode : std::uint8_t { kImmediate, kQueue };  // immediate: enqueue() returns when the operation is complete

  // Records of the log name `logged_as`, for a stream that is part of another; null: this stream. Operations of a device's streams,
  // which are parts, are also ranges under the name of what issued them; what communicators queue for themselves is not.
  CpuStream(std::string name, Mode mode, Progress& progress, const Stream* logged_as = nullptr);
  ~CpuStream() override;

  // Hands over `operation` (not owned). kQueue: at most kCapacity operations wait at once; a full queue makes enqueue() wait.
  void enqueue(PendingOperation& operation);
  // Advances the operation at the head of the queue, and those behind it as long as heads complete; true if any completed.
  bool poll();
  // Says what the operation at the head of the queue is doing.
  std::string describe_head() const;

  std::string_view name() const override { return name_; }
  Event record() override;
  void wait(const Event& event) override;
  void synchronize() override;
  bool is_done(std::uint64_t ticket) override;
  void wait_host(std::uint64_t ticket) override;
  double waited_seconds() const override { return waited_; }
  std::optional<double> held_seconds() const override { return mode_ == Mode::kImmediate ? std::optional(held_) : std::nullopt; }

  static constexpr std::size_t kCapacity = 256;

 private:
  struct Item {  // an operation, or an event of another stream to wait for
    PendingOperation* operation = nullptr;
    Event event;
    double issued = 0;  // set while there is a log
    const char* name = nullptr;        // of the range around who issued it; set while there are ranges
    std::optional<std::uint64_t> range = {};  // its own, while it is at the head
  };
  void push(Item item);
  void wait_until(FunctionRef<bool()> ready, FunctionRef<std::string()> describe);
  const char* name_of_issuer() const;
  void start_range(Item& item);
  void end_range(Item& item);
  void log_done(const Item& item);

  std::string name_;
  Mode mode_;
  Progress& progress_;
  const Stream* logged_as_;
  std::vector<Item> ring_;               // capacity kCapacity, allocated once
  std::uint64_t issued_ = 0, done_ = 0;  // tickets
  double waited_ = 0, held_ = 0, last_end_ = 0;  // last_end_: of the item recorded last
};

}  // namespace trident
