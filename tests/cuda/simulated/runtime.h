// The simulated CUDA: devices that are described, memory that is the host's, streams whose work runs late and in an adversarial
// order.
//
// Linked instead of the vendors' libraries. Work is queued and runs only while some thread waits or asks (cudaStreamSynchronize,
// cudaEventQuery, ...), on that thread, one item at a time in the whole process; which of the runnable streams goes first is chosen
// by a seed. So a missing wait, a buffer reused too early, a pointer of the host given to a device show as wrong numbers or errors.
// All functions may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>

#include "device/no_allocation.h"

struct CUstream_st;

namespace trident::simulated {

// Says which runnable stream goes next, seen from the thread that waits for one of them.
enum class StreamOrder : std::uint8_t {
  kRandom,
  kTargetFirst,  // the awaited stream as long as it can: all others are late
  kOthersFirst,  // the awaited stream only when no other can run
  kEager,        // at once when enqueued, if nothing has to be waited for: fast, and hides missing waits
};
// In which order the threads of a block take turns.
enum class FiberOrder : std::uint8_t {
  kForward,
  kReverse,
  kRandom,
  kWarpByWarp,  // a warp as far as it gets alone, then the next, as on a GPU: finds barriers that are missing between warps
};
// Whether the host ends with a message when it touches memory of a device: two system calls per
// allocation for most calls, which many threads wait for.
enum class HostGuard : std::uint8_t { kOn, kOff };
enum class Driver : std::uint8_t { kPresent, kNone, kTooOld };

struct Settings {
  std::uint64_t seed = 1;
  StreamOrder stream_order = StreamOrder::kRandom;
  FiberOrder fiber_order = FiberOrder::kRandom;
  HostGuard host_guard = HostGuard::kOn;
  int devices = 1;
  Driver driver = Driver::kPresent;
  int driver_version = 0;  // of one that is present, as cudaDriverGetVersion() has it; 0: the headers'
  std::size_t total_bytes = std::size_t{79} << 30;  // of each device
  std::size_t used_bytes = 0;                       // held by other processes
  std::optional<int> prohibited = {};               // a device whose compute mode lets nobody use it
  int compute_capability = 90;                      // of each device; kernels have code for 90 alone
};
// In force from now on, for all threads; work queued before stays queued.
void configure(const Settings& settings);
Settings settings();
// Puts back what configure() and fail_next() changed and forgets failures of devices. All threads' queued work must be complete.
void reset();

// Devices on which this process has a context, since configure(): those it made current or used.
std::set<int> opened_devices();

// Devices that failed work again, as after the end of the process that made them fail.
void recover();

// The next call of the function with this name (after `skip` others) fails with `error`: "cudaMalloc", "ncclAllReduce", ... Work
// fails while it runs under the name it was enqueued with: a kernel's name, "cudaMemcpyAsync".
void fail_next(const std::string& name, int error, int skip = 0);
// For a function of a simulated library: the error to return instead of doing anything.
std::optional<int> injected_failure(const std::string& name);

// First in every function of the simulated CUDA: holds the lock of the simulation (recursive) and allows
// allocations, for CUDA does not call our operator new.
class Call {
 public:
  Call();
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  AllocationExemption exemption_;
};

// First in every function of cuBLASLt, cuDNN and NCCL, which do: whoever calls them has to allow it.
class LibraryCall {
 public:
  LibraryCall() { check_allocation_allowed(1, "a library"); }

 private:
  Call call_;
};

// Work on `stream`, which has been checked (stream_device). `run` is called under the lock after everything enqueued on the stream
// before, and, in the second form, not before `ready` is true; `ready` must not change anything. It may throw DeviceFailure.
void enqueue(CUstream_st* stream, std::string what, std::function<void()> run);
void enqueue(CUstream_st* stream, std::string what, std::function<bool()> ready, std::function<void()> run);
// Runs what can run until `done`, as a call does that waits; false if it is not for so many seconds in which nothing could run.
bool wait_at_most(double seconds, const std::function<bool()>& done);
// Says that what a `ready` looks at has changed otherwise than by work done or enqueued.
void notify();

// Streams made from now on run nothing until release_held_streams(): a GPU that is late with what is enqueued there.
void hold_new_streams();
void release_held_streams();
// Runs all that can run now: nobody needs to wait for it.
void run_what_can_run();

// Work that failed on the GPU: from now on every call for that device fails with the cudaError_t `error`.
struct DeviceFailure {
  int error;
};

// The number of the stream's device; nothing if there is no such stream.
std::optional<int> stream_device(CUstream_st* stream);
int current_device();
// Whether bytes [data, data + bytes) lie in one live allocation of a device; the device; memory a kernel can reach (pinned host
// memory too).
bool is_device_memory(const void* data, std::size_t bytes);
std::optional<int> memory_device(const void* data);
bool is_reachable(const void* data, std::size_t bytes);
// For libraries that own memory (ncclMemAlloc): as cudaMalloc and cudaFree; nullptr if there is not so much.
void* allocate_device_memory(int device, std::size_t bytes);
bool free_device_memory(void* data);

// Counts what exists now, over all threads: for tests of ownership.
struct Census {
  std::size_t allocations = 0, bytes = 0, streams = 0, events = 0, queued = 0, graphs = 0;
};
Census census();

// Since the last reset().
struct GraphUses {
  std::size_t instantiated = 0, launched = 0;
  std::size_t operations = 0;  // of all launches
};
GraphUses graph_uses();

}  // namespace trident::simulated
