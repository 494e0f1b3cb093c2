// The state of the simulated CUDA, for the files that implement its functions. Everything is guarded by one lock, which Call holds.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/cuda/simulated/runtime.h"

namespace trident::simulated {

// An event stands for this since it was recorded.
struct Record {
  bool done = false;
  double seconds = 0;
};

struct Item {
  std::string what;
  std::function<bool()> ready;  // none: at once
  std::function<void()> run;
};

// A stream keeps this instead of running it.
struct Capture {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;  // that began it
  std::vector<Item> items;
  bool spoiled = false;  // by a call that is not allowed; it then gives no graph
};

}  // namespace trident::simulated

struct CUstream_st {
  int device = 0;
  int priority = 0;
  unsigned flags = 0;
  unsigned long long id = 0;
  bool destroyed = false;  // goes when its work is done
  bool held = false;
  std::deque<trident::simulated::Item> items;
  std::uint64_t enqueued = 0, done = 0;
  std::shared_ptr<trident::simulated::Capture> capture;
};

struct CUevent_st {
  int device = 0;
  unsigned flags = 0;
  std::shared_ptr<trident::simulated::Record> latest;
  bool captured = false;  // recorded last in a stream that captured: it stands for nothing that will be
};

namespace trident::simulated {

struct Allocation {
  enum class Kind : std::uint8_t { kDevice, kPinned, kRegistered } kind = Kind::kDevice;
  int device = 0;
  std::size_t bytes = 0;
  std::byte* start = nullptr;
  std::byte* mapping = nullptr;
  std::size_t mapping_bytes = 0;
};

// Where a stream stood.
struct StreamPoint {
  CUstream_st* stream;
  std::uint64_t ticket;
};

class Machine {
 public:
  static Machine& instance();

  std::recursive_mutex mutex;
  Settings settings;
  std::map<std::uintptr_t, Allocation> allocations;  // by first byte
  std::vector<std::unique_ptr<CUstream_st>> streams;
  bool holds_new_streams = false;
  std::unordered_map<CUevent_st*, std::unique_ptr<CUevent_st>> events;
  std::unordered_map<cudaGraph_t, std::shared_ptr<CUgraph_st>> graphs;
  std::unordered_map<cudaGraphExec_t, std::shared_ptr<CUgraphExec_st>> executables;
  GraphUses graph_uses;
  std::unordered_map<int, cudaError_t> failed_devices;
  std::set<int> opened_devices;
  std::unordered_map<const void*, int> shared_limits;  // of kernels, by cudaFuncSetAttribute
  std::minstd_rand random;

  // ---- failures to inject
  struct Injection {
    std::string name;
    int error;
    int skip;
  };
  std::vector<Injection> injections;

  // ---- memory
  const Allocation* find(const void* data, std::size_t bytes) const;
  std::size_t used(int device) const;
  void* allocate(Allocation::Kind kind, int device, std::size_t bytes);
  bool release(void* data, Allocation::Kind kind);
  // Only work that runs may touch memory of a device: the host's own code, like on a real machine, faults.
  void open_memory();
  void close_memory();
  // No work runs on any thread.
  bool idle() const { return executors_ == 0; }
  // The allocation whose reserved pages include the address, live or freed, in words; empty if it is none of ours. For reports of
  // faults.
  std::string describe_address(std::uintptr_t address) const;

  // ---- streams
  // The stream with this handle; nullptr if there is none. The null handle is the current device's default stream.
  CUstream_st* find(cudaStream_t handle);
  CUstream_st* create_stream(int device, unsigned flags, int priority);
  void push(CUstream_st& stream, Item item);
  // Runs one item; false if none can. `target`: the stream that is waited for, if any.
  bool run_one(const CUstream_st* target);
  // Runs items, and sleeps while none can run, until `points` are passed.
  void wait_for(const std::vector<StreamPoint>& points);
  void wait_for(const std::function<bool()>& done, const CUstream_st* target);
  // The same; false if nothing could run and nothing was enqueued for so long.
  bool wait_at_most(std::chrono::duration<double> most, const std::function<bool()>& done, const CUstream_st* target);
  // A bounded and random amount of progress.
  void run_some();
  std::vector<StreamPoint> points_of_device(int device) const;
  void notify() { changed_.notify_all(); }

 private:
  Machine() = default;
  void run_head(CUstream_st& stream);
  void fail_device(int device, cudaError_t error);
  void forget_finished();
  [[noreturn]] void give_up() const;

  std::condition_variable_any changed_;
  std::vector<Allocation> freed_;
  bool memory_open_ = false;
  int executors_ = 0;  // threads that run work or look for some
  unsigned long long next_stream_ = 1;
};

// ---- for the functions of the API
// Runs `body` as the function called `name` unless a failure is due; keeps the error for cudaGetLastError.
cudaError_t run_api_call(const char* name, const std::function<cudaError_t()>& body);
template <class Body>
cudaError_t api_call(const char* name, const Body& body) {
  return run_api_call(name, std::ref(body));  // by reference: nothing may allocate before Call allows it
}
// The same for functions that also work without devices or after a device failed.
cudaError_t run_plain_call(const char* name, const std::function<cudaError_t()>& body);
template <class Body>
cudaError_t plain_call(const char* name, const Body& body) {
  return run_plain_call(name, std::ref(body));
}
// ---- captures
// A call that is not allowed now: its capture will give no graph.
cudaError_t spoil(CUstream_st& stream, cudaError_t error);
// The error of a call that the calling thread may not make because it captures.
cudaError_t refuse_while_capturing(std::string_view call);
void keep_in_capture(CUstream_st& stream, Item item);

cudaError_t take_last_error();
cudaError_t peek_last_error();
void set_current_device(int device);
double simulated_seconds();

}  // namespace trident::simulated
