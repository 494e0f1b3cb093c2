#include "tests/cuda/simulated/cudnn.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <set>

#include "tests/cuda/simulated/cudnn_interpreter.h"
#include "tests/cuda/simulated/launched_kernels.h"
#include "tests/cuda/simulated/runtime.h"

struct cudnnContext {
  int device = 0;
  cudaStream_t stream = nullptr;
};

namespace trident::simulated {

namespace {

struct Engine {
  std::int64_t number;
  bool can_plan;
  SumOrder order;
};
constexpr std::array<Engine, 3> kEngines = {
    {{1, false, SumOrder::kAscending}, {9, true, SumOrder::kRandom}, {6, true, SumOrder::kAscending}}};

// This lies behind a cudnnBackendDescriptor_t.
struct Object {
  CudnnReference state;
  std::shared_ptr<const CudnnGraphState> graph;  // of operation graphs and what was made of them
  const Engine* engine = nullptr;                // of engine configurations, engines and plans
};

// Under the simulation's lock.
struct CudnnLibrary {
  std::set<cudnnContext*> handles;
  std::map<void*, Object> objects;
  std::map<const CudnnDescriptorState*, Object*> by_state;
  CudnnCounts counts;
};
CudnnLibrary& cudnn_library() {
  static CudnnLibrary library;
  return library;
}

// cuDNN keeps its last message per thread.
std::string& last_message() {
  static thread_local std::string message;
  return message;
}

[[noreturn]] void fail(cudnnStatus_t status, std::string text) { throw CudnnFailure{status, std::move(text)}; }

// Runs `body` as the function `name` of the library.
template <class F>
cudnnStatus_t as_call(const char* name, F&& body) {
  const LibraryCall call;
  try {
    if (const auto injected = injected_failure(name)) fail(static_cast<cudnnStatus_t>(*injected), "asked for by a test");
    body();
    return CUDNN_STATUS_SUCCESS;
  } catch (const CudnnFailure& failure) {
    last_message() = failure.text;
    return failure.status;
  }
}

Object& object(cudnnBackendDescriptor_t descriptor) {
  const auto found = cudnn_library().objects.find(descriptor);
  if (found == cudnn_library().objects.end()) fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no such descriptor");
  return found->second;
}

Object& object(const CudnnReference& state) { return *cudnn_library().by_state.at(state.get()); }

Object& final_object(cudnnBackendDescriptor_t descriptor, cudnnBackendDescriptorType_t type) {
  Object& found = object(descriptor);
  if (found.state->type != type) fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "a descriptor of another type");
  if (!found.state->final) fail(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the descriptor is not final");
  return found;
}

cudnnContext& context(cudnnHandle_t handle) {
  if (cudnn_library().handles.count(handle) == 0) fail(CUDNN_STATUS_NOT_INITIALIZED, "no such handle");
  return *handle;
}

// Makes what a finalized descriptor has beyond its attributes.
void make(Object& made) {
  const CudnnDescriptorState& state = *made.state;
  switch (state.type) {
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
      context(state.value<cudnnHandle_t>(CUDNN_ATTR_OPERATIONGRAPH_HANDLE));
      made.graph = std::make_shared<const CudnnGraphState>(state);
      break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
      if (state.value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE) != CUDNN_HEUR_MODE_A)
        fail(CUDNN_STATUS_NOT_SUPPORTED, "heuristics other than A");
      made.graph = object(state.reference(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)).graph;
      break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: {
      const Object& config = object(state.reference(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG));
      context(state.value<cudnnHandle_t>(CUDNN_ATTR_EXECUTION_PLAN_HANDLE));
      if (const auto injected = injected_failure("execution plan"))
        fail(static_cast<cudnnStatus_t>(*injected), "asked for by a test");
      if (!config.engine->can_plan)
        fail(CUDNN_STATUS_NOT_SUPPORTED_SHARED_MEMORY_INSUFFICIENT, "more shared memory than the GPU has");
      made.graph = config.graph;
      made.engine = config.engine;
      ++cudnn_library().counts.plans;
      break;
    }
    default: break;
  }
}

std::int64_t get_references(const Object& from, int name, std::int64_t room, void** to) {
  if (from.state->type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR && name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
    if (!from.graph->is_fusable()) return 0;
    const std::int64_t count = std::min(room, static_cast<std::int64_t>(kEngines.size()));
    for (std::int64_t i = 0; i < count; ++i) {
      Object& config = object(to[i]);
      if (config.state->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)
        fail(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE, "results are engine configurations");
      config.graph = from.graph;
      config.engine = &kEngines[static_cast<std::size_t>(i)];
      config.state->final = true;
    }
    return count;
  }
  if (from.state->type == CUDNN_BACKEND_ENGINECFG_DESCRIPTOR && name == CUDNN_ATTR_ENGINECFG_ENGINE) {
    Object& engine = object(to[0]);
    engine.engine = from.engine;
    engine.state->final = true;
    return 1;
  }
  fail(CUDNN_STATUS_NOT_SUPPORTED, fmt::format("attribute {} cannot be asked for", name));
}

std::int64_t get_values(const Object& from, int name, cudnnBackendAttributeType_t type, std::int64_t room, void* to) {
  const auto put = [&](cudnnBackendAttributeType_t its, auto value) {
    if (type != its) fail(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, fmt::format("attribute {} has another type", name));
    if (room < 1) fail(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, "no room");
    std::memcpy(to, &value, sizeof value);
    return std::int64_t{1};
  };
  if (from.state->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
    return put(CUDNN_TYPE_INT64, from.engine->number);
  if (from.state->type == CUDNN_BACKEND_ENGINE_DESCRIPTOR && name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE)
    return from.engine->order == SumOrder::kAscending ? 0 : put(CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  if (from.state->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR && name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)
    return put(CUDNN_TYPE_INT64, from.graph->workspace_bytes());
  fail(CUDNN_STATUS_NOT_SUPPORTED, fmt::format("attribute {} cannot be asked for", name));
}

constexpr std::size_t kAlignment = 16;

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0; }

void require_memory(const cudnnContext& handle, const void* data, std::int64_t bytes, std::string_view what) {
  if (data == nullptr) fail(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, fmt::format("{}: no pointer", what));
  if (!aligned(data)) fail(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, fmt::format("{} is not 16-byte aligned", what));
  if (!is_device_memory(data, static_cast<std::size_t>(std::max<std::int64_t>(bytes, 1))) || memory_device(data) != handle.device)
    fail(CUDNN_STATUS_EXECUTION_FAILED_CUDART,
         fmt::format("{}: not {} bytes in the memory of device {}", what, bytes, handle.device));
}

// Pointers by name, scalars copied: their values are those of now.
struct Bound {
  std::map<std::int64_t, std::byte*> memory;
  std::vector<std::unique_ptr<float>> scalars;
};

std::shared_ptr<Bound> bind(const cudnnContext& handle, const CudnnGraphState& graph, const CudnnDescriptorState& pack) {
  const auto uids = pack.values<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  const auto pointers = pack.values<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  auto bound = std::make_shared<Bound>();
  for (std::size_t i = 0; i < uids.size(); ++i) {
    const auto tensor = graph.tensors().find(uids[i]);
    if (tensor == graph.tensors().end() || tensor->second.is_virtual)
      fail(CUDNN_STATUS_BAD_PARAM, fmt::format("the graph has no tensor {} in memory", uids[i]));
    std::byte* data = static_cast<std::byte*>(pointers[i]);
    if (tensor->second.by_value) {
      if (data == nullptr || memory_device(data))
        fail(CUDNN_STATUS_BAD_PARAM, fmt::format("scalar {} lies in device memory", uids[i]));
      bound->scalars.push_back(std::make_unique<float>());
      std::memcpy(bound->scalars.back().get(), data, sizeof(float));
      data = reinterpret_cast<std::byte*>(bound->scalars.back().get());
    } else {
      require_memory(handle, data, tensor->second.extent_bytes(), fmt::format("tensor {}", uids[i]));
    }
    if (!bound->memory.emplace(uids[i], data).second)
      fail(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, fmt::format("tensor {} is given twice", uids[i]));
  }
  for (const auto& [uid, tensor] : graph.tensors())
    if (!tensor.is_virtual && bound->memory.count(uid) == 0)
      fail(CUDNN_STATUS_BAD_PARAM, fmt::format("tensor {} is not given", uid));
  return bound;
}

void execute(cudnnContext& handle, const Object& plan, const Object& pack) {
  if (current_device() != handle.device) fail(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "the thread's current device is another");
  void* workspace = pack.state->value<void*>(CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  const std::int64_t bytes = plan.graph->workspace_bytes();
  if (bytes > 0) require_memory(handle, workspace, bytes, "the workspace");
  auto bound = bind(handle, *plan.graph, *pack.state);
  const std::uint64_t seed = settings().seed + static_cast<std::uint64_t>(cudnn_library().counts.executions);
  ++cudnn_library().counts.executions;
  cudnn_library().counts.last_engine = plan.engine->number;
  note_library_kernel(handle.device, fmt::format("cuDNN: {}", static_cast<const void*>(plan.graph.get())));
  enqueue(handle.stream, "cudnnBackendExecute", [graph = plan.graph, order = plan.engine->order, bound, workspace, bytes, seed] {
    constexpr int kGarbage = 0xff;  // NaN in every type
    if (bytes > 0) std::memset(workspace, kGarbage, static_cast<std::size_t>(bytes));
    graph->run(bound->memory, order, seed);
    if (bytes > 0) std::memset(workspace, kGarbage, static_cast<std::size_t>(bytes));
  });
}

}  // namespace

CudnnCounts cudnn_counts() {
  const Call call;
  CudnnCounts counts = cudnn_library().counts;
  counts.handles = static_cast<std::int64_t>(cudnn_library().handles.size());
  counts.descriptors = static_cast<std::int64_t>(cudnn_library().objects.size());
  return counts;
}

}  // namespace trident::simulated

using namespace trident::simulated;

// ---- the C interface
// ------------------------------------------------------------------------------------------------------------------

size_t cudnnGetVersion() {
  const LibraryCall call;
  return static_cast<size_t>(injected_failure("cudnnGetVersion").value_or(CUDNN_VERSION));
}

const char* cudnnGetErrorString(cudnnStatus_t status) {
  switch (status) {
    case CUDNN_STATUS_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_EXECUTION_FAILED_CUDART: return "CUDNN_STATUS_EXECUTION_FAILED_CUDART";
    default: break;
  }
  switch (CUDNN_STATUS_CATEGORY(static_cast<int>(status))) {
    case CUDNN_STATUS_BAD_PARAM: return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_EXECUTION_FAILED: return "CUDNN_STATUS_EXECUTION_FAILED";
    default: return "CUDNN_STATUS_INTERNAL_ERROR";
  }
}

void cudnnGetLastErrorString(char* message, size_t room) {
  const LibraryCall call;
  std::snprintf(message, room, "%s", last_message().c_str());
  last_message().clear();
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  return as_call("cudnnCreate", [&] {
    if (settings().driver != Driver::kPresent) fail(CUDNN_STATUS_NOT_INITIALIZED, "no driver");
    *handle = new cudnnContext{current_device(), nullptr};
    cudnn_library().handles.insert(*handle);
  });
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return as_call("cudnnDestroy", [&] {
    context(handle);
    cudnn_library().handles.erase(handle);
    delete handle;
  });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return as_call("cudnnSetStream", [&] {
    if (stream != nullptr && stream_device(stream) != context(handle).device)
      fail(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "a stream of another device");
    context(handle).stream = stream;
  });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t* descriptor) {
  return as_call("cudnnBackendCreateDescriptor", [&] {
    Object made{std::make_shared<CudnnDescriptorState>(CudnnDescriptorState{type, false, {}}), nullptr, nullptr};
    *descriptor = made.state.get();
    Object& kept = cudnn_library().objects.emplace(*descriptor, std::move(made)).first->second;
    cudnn_library().by_state.emplace(kept.state.get(), &kept);
  });
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return as_call("cudnnBackendDestroyDescriptor", [&] {
    object(descriptor);
    cudnn_library().by_state.erase(static_cast<CudnnDescriptorState*>(descriptor));
    cudnn_library().objects.erase(descriptor);
  });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count, const void* values) {
  return as_call("cudnnBackendSetAttribute", [&] {
    std::vector<CudnnReference> references;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR && values != nullptr)
      for (std::int64_t i = 0; i < count; ++i)
        references.push_back(object(static_cast<const cudnnBackendDescriptor_t*>(values)[i]).state);
    set_attribute(*object(descriptor).state, static_cast<int>(name), type, count, values, std::move(references));
  });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  return as_call("cudnnBackendFinalize", [&] {
    Object& made = object(descriptor);
    finalize(*made.state);
    made.state->final = false;
    make(made);
    made.state->final = true;
  });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t room, int64_t* count, void* values) {
  return as_call("cudnnBackendGetAttribute", [&] {
    const Object& from = object(descriptor);
    if (!from.state->final) fail(CUDNN_STATUS_NOT_INITIALIZED, "the descriptor is not final");
    *count = type == CUDNN_TYPE_BACKEND_DESCRIPTOR ? get_references(from, static_cast<int>(name), room, static_cast<void**>(values))
                                                   : get_values(from, static_cast<int>(name), type, room, values);
  });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
  return as_call("cudnnBackendExecute", [&] {
    execute(context(handle), final_object(plan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR),
            final_object(pack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR));
  });
}
