#include "tests/cuda/simulated/machine.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/cuda/simulated/block_run.h"

namespace trident::simulated {

namespace {

thread_local int device_of_thread = 0;
thread_local int calls_of_thread = 0;  // that have not returned
thread_local cudaError_t last_error = cudaSuccess;

// Calls that the real library answers without a context.
bool only_describes(std::string_view name) {
  return name == "cudaGetDevice" || name == "cudaGetDeviceProperties" || name == "cudaDeviceGetAttribute" ||
         name == "cudaDeviceGetPCIBusId";
}

// Nothing could run for so long: no thread will ever enqueue what is missing.
constexpr std::chrono::seconds kHang{100};

cudaError_t keep(cudaError_t status) {
  if (status != cudaSuccess && status != cudaErrorNotReady) last_error = status;
  return status;
}

}  // namespace

Machine& Machine::instance() {
  static Machine* const machine = new Machine;  // outlives every thread
  return *machine;
}

CUstream_st* Machine::find(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) {
    for (auto& stream : streams)
      if (stream->id == 0 && stream->device == device_of_thread) return stream.get();
    CUstream_st* const made = create_stream(device_of_thread, cudaStreamDefault, 0);
    made->id = 0;
    return made;
  }
  for (auto& stream : streams)
    if (stream.get() == handle && !stream->destroyed) return stream.get();
  return nullptr;
}

CUstream_st* Machine::create_stream(int device, unsigned flags, int priority) {
  streams.push_back(std::make_unique<CUstream_st>());
  CUstream_st& stream = *streams.back();
  stream.device = device;
  stream.flags = flags;
  stream.priority = priority;
  stream.id = next_stream_++;
  stream.held = holds_new_streams;
  return &stream;
}

void Machine::push(CUstream_st& stream, Item item) {
  if (failed_devices.count(stream.device) != 0) return;
  if (stream.capture) return keep_in_capture(stream, std::move(item));
  stream.items.push_back(std::move(item));
  ++stream.enqueued;
  changed_.notify_all();
  // The default stream waits for all streams that were not made non-blocking; here its work is done at once.
  if (stream.id == 0) {
    std::vector<StreamPoint> points;
    for (auto& other : streams)
      if (other->device == stream.device && (other->flags & cudaStreamNonBlocking) == 0 && other.get() != &stream)
        points.push_back({other.get(), other->enqueued});
    wait_for(points);
    wait_for({{&stream, stream.enqueued}});
  } else if (settings.stream_order == StreamOrder::kEager) {
    while (run_one(nullptr)) {
    }
  }
}

bool Machine::run_one(const CUstream_st* target) {
  std::vector<CUstream_st*> runnable;
  for (auto& stream : streams) {
    if (stream->held || stream->items.empty()) continue;
    if (!stream->items.front().ready || stream->items.front().ready()) runnable.push_back(stream.get());
  }
  if (runnable.empty()) return false;
  const auto wanted = std::find(runnable.begin(), runnable.end(), target);
  if (wanted != runnable.end() && settings.stream_order == StreamOrder::kTargetFirst) {
    run_head(**wanted);
    return true;
  }
  if (wanted != runnable.end() && settings.stream_order == StreamOrder::kOthersFirst && runnable.size() > 1) runnable.erase(wanted);
  run_head(*runnable[random() % runnable.size()]);
  return true;
}

void Machine::run_head(CUstream_st& stream) {
  const Item item = std::move(stream.items.front());
  stream.items.pop_front();
  const int device = stream.device;
  open_memory();
  try {
    if (const std::optional<int> error = injected_failure(item.what)) throw DeviceFailure{*error};
    if (item.run) item.run();
    ++stream.done;
  } catch (const DeviceFailure& failure) {
    ++stream.done;
    fail_device(device, static_cast<cudaError_t>(failure.error));
  }
  forget_finished();
  changed_.notify_all();
}

void Machine::fail_device(int device, cudaError_t error) {
  failed_devices.emplace(device, error);
  for (auto& stream : streams) {
    if (stream->device != device) continue;
    stream->done = stream->enqueued;
    stream->items.clear();
  }
}

void Machine::forget_finished() {
  std::erase_if(streams, [](const auto& stream) { return stream->destroyed && stream->items.empty(); });
}

void Machine::wait_for(const std::vector<StreamPoint>& points) {
  for (const StreamPoint& point : points) {
    const auto alive = [&] {
      return std::any_of(streams.begin(), streams.end(), [&](const auto& s) { return s.get() == point.stream; });
    };
    wait_for([&] { return !alive() || point.stream->done >= point.ticket; }, point.stream);
  }
}

void Machine::wait_for(const std::function<bool()>& done, const CUstream_st* target) {
  if (!wait_at_most(kHang, done, target)) give_up();
}

bool Machine::wait_at_most(std::chrono::duration<double> most, const std::function<bool()>& done, const CUstream_st* target) {
  ++executors_;
  while (!done()) {
    if (run_one(target)) {
      // Others may enqueue between two items.
      mutex.unlock();
      mutex.lock();
      continue;
    }
    if (--executors_ == 0) close_memory();
    if (changed_.wait_for(mutex, most) == std::cv_status::timeout) return false;
    ++executors_;
  }
  --executors_;
  return true;
}

void Machine::run_some() {
  constexpr unsigned kAtMost = 12;
  for (unsigned left = static_cast<unsigned>(random() % kAtMost); left > 0 && run_one(nullptr); --left) {
  }
}

void Machine::give_up() const {
  std::fprintf(stderr, "simulated CUDA: nothing can run and nothing was enqueued for a long time; waiting are\n");
  for (const auto& stream : streams)
    if (!stream->items.empty())
      std::fprintf(stderr, "  stream %llu of device %d: %s and %zu more\n", stream->id, stream->device,
                   stream->items.front().what.c_str(), stream->items.size() - 1);
  std::abort();
}

std::vector<StreamPoint> Machine::points_of_device(int device) const {
  std::vector<StreamPoint> points;
  for (const auto& stream : streams)
    if (stream->device == device && !stream->items.empty()) points.push_back({stream.get(), stream->enqueued});
  return points;
}

Call::Call() {
  Machine::instance().mutex.lock();
  ++calls_of_thread;
}

Call::~Call() {
  Machine& machine = Machine::instance();
  if (--calls_of_thread == 0 && machine.idle()) machine.close_memory();
  machine.mutex.unlock();
}

void configure(const Settings& wanted) {
  const Call call;
  Machine& machine = Machine::instance();
  machine.settings = wanted;
  machine.opened_devices.clear();
  machine.random.seed(static_cast<std::minstd_rand::result_type>(wanted.seed % 2147483646u + 1));
}

Settings settings() {
  const Call call;
  return Machine::instance().settings;
}

void reset() {
  const Call call;
  release_held_streams();
  Machine& machine = Machine::instance();
  for (const auto& stream : machine.streams) {
    if (stream->items.empty()) continue;
    std::fprintf(stderr, "simulated CUDA: reset with work queued on stream %llu: %s\n", stream->id,
                 stream->items.front().what.c_str());
    std::abort();
  }
  configure(Settings());
  machine.injections.clear();
  machine.graph_uses = {};
  machine.failed_devices.clear();
  last_error = cudaSuccess;
  device_of_thread = 0;
}

std::set<int> opened_devices() {
  const Call call;
  return Machine::instance().opened_devices;
}

void recover() {
  const Call call;
  Machine::instance().failed_devices.clear();
}

void fail_next(const std::string& name, int error, int skip) {
  const Call call;
  Machine::instance().injections.push_back({name, error, skip});
}

std::optional<int> injected_failure(const std::string& name) {
  const Call call;
  auto& injections = Machine::instance().injections;
  for (auto injection = injections.begin(); injection != injections.end(); ++injection) {
    if (injection->name != name || injection->skip-- > 0) continue;
    const int error = injection->error;
    injections.erase(injection);
    return error;
  }
  return std::nullopt;
}

void enqueue(CUstream_st* stream, std::string what, std::function<void()> run) {
  enqueue(stream, std::move(what), nullptr, std::move(run));
}

void enqueue(CUstream_st* stream, std::string what, std::function<bool()> ready, std::function<void()> run) {
  const Call call;
  CUstream_st* const found = Machine::instance().find(stream);
  if (found == nullptr) {
    std::fprintf(stderr, "simulated CUDA: %s enqueued on no stream\n", what.c_str());
    std::abort();
  }
  Machine::instance().push(*found, {std::move(what), std::move(ready), std::move(run)});
}

bool wait_at_most(double seconds, const std::function<bool()>& done) {
  const Call call;
  return Machine::instance().wait_at_most(std::chrono::duration<double>(seconds), done, nullptr);
}

void notify() {
  const Call call;
  Machine::instance().notify();
}

void hold_new_streams() {
  const Call call;
  Machine::instance().holds_new_streams = true;
}

void release_held_streams() {
  const Call call;
  Machine& machine = Machine::instance();
  machine.holds_new_streams = false;
  for (const auto& stream : machine.streams) stream->held = false;
  machine.notify();
}

void run_what_can_run() {
  const Call call;
  while (Machine::instance().run_one(nullptr)) continue;
}

std::optional<int> stream_device(CUstream_st* stream) {
  const Call call;
  const CUstream_st* const found = Machine::instance().find(stream);
  return found == nullptr ? std::nullopt : std::optional<int>(found->device);
}

int current_device() { return device_of_thread; }
void set_current_device(int device) { device_of_thread = device; }

Census census() {
  const Call call;
  const Machine& machine = Machine::instance();
  Census count;
  count.allocations = machine.allocations.size();
  for (const auto& [start, allocation] : machine.allocations)
    count.bytes += allocation.kind == Allocation::Kind::kDevice ? allocation.bytes : 0;
  for (const auto& stream : machine.streams) {
    count.streams += stream->id != 0 && !stream->destroyed;
    count.queued += stream->items.size();
  }
  count.events = machine.events.size();
  count.graphs = machine.graphs.size() + machine.executables.size();
  return count;
}

GraphUses graph_uses() {
  const Call call;
  return Machine::instance().graph_uses;
}

cudaError_t run_plain_call(const char* name, const std::function<cudaError_t()>& body) {
  const Call call;
  if (const std::optional<int> error = injected_failure(name)) return keep(static_cast<cudaError_t>(*error));
  return keep(body());
}

cudaError_t run_api_call(const char* name, const std::function<cudaError_t()>& body) {
  return plain_call(name, [&] {
    Machine& machine = Machine::instance();
    if (machine.settings.driver != Driver::kPresent) return cudaErrorInsufficientDriver;  // without a driver too
    if (machine.settings.devices == 0) return cudaErrorNoDevice;
    if (!only_describes(name)) machine.opened_devices.insert(device_of_thread);
    const auto failed = machine.failed_devices.find(device_of_thread);
    if (failed != machine.failed_devices.end()) return failed->second;
    const cudaError_t refused = refuse_while_capturing(name);
    return refused == cudaSuccess ? body() : refused;
  });
}

cudaError_t take_last_error() { return std::exchange(last_error, cudaSuccess); }
cudaError_t peek_last_error() { return last_error; }

double simulated_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace trident::simulated
