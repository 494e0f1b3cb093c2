#include "tests/cuda/training/profiler.h"

// NVTX looks for this in a program that brings its own profiler; defined at the end, instead of in NVTX's header.
extern "C" {
extern int (*InitializeInjectionNvtx2_fnptr)(const void* (*)(std::uint32_t));
}
#define NVTX_STATIC_INJECTION_IMPL
#include <nvtx3/nvToolsExt.h>

#include <cstdint>
#include <map>
#include <mutex>

#include "device/no_allocation.h"

namespace trident::testing {
namespace {

struct Thread {
  std::vector<ProfiledRange> ranges;
  std::vector<std::size_t> open;  // pushed
  int pops_of_nothing = 0;
};

struct Profiler {
  std::mutex mutex;
  std::map<std::thread::id, Thread> threads;
  std::map<nvtxRangeId_t, std::pair<std::thread::id, std::size_t>> started;
  std::size_t domains = 0;
  int ends_of_nothing = 0;

  static Profiler& instance() {
    static auto* const profiler = new Profiler;
    return *profiler;
  }
  // A tool's memory is its own.
  template <class Body>
  auto locked(const Body& body) {
    const AllocationExemption tool;
    const std::lock_guard lock(mutex);
    return body(threads[std::this_thread::get_id()]);
  }
  std::size_t begin(Thread& thread, ProfiledRange::Kind kind, const nvtxEventAttributes_t* event) {
    ProfiledRange range{kind, event->messageType == NVTX_MESSAGE_TYPE_ASCII ? event->message.ascii : "?", {}, 0};
    for (const std::size_t outer : thread.open) range.inside.push_back(thread.ranges[outer].name);
    thread.ranges.push_back(std::move(range));
    return thread.ranges.size() - 1;
  }
};

nvtxDomainHandle_t create_domain(const char*) {
  return Profiler::instance().locked([](Thread&) { return reinterpret_cast<nvtxDomainHandle_t>(++Profiler::instance().domains); });
}

void destroy_domain(nvtxDomainHandle_t) {
  Profiler::instance().locked([](Thread&) { --Profiler::instance().domains; });
}

int push(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  return Profiler::instance().locked([&](Thread& thread) {
    const std::size_t at = Profiler::instance().begin(thread, ProfiledRange::Kind::kPushed, event);
    thread.open.push_back(at);
    return static_cast<int>(thread.open.size()) - 1;
  });
}

int pop(nvtxDomainHandle_t) {
  return Profiler::instance().locked([](Thread& thread) {
    if (thread.open.empty()) {
      ++thread.pops_of_nothing;
      return -1;
    }
    ++thread.ranges[thread.open.back()].ends;
    thread.open.pop_back();
    return static_cast<int>(thread.open.size());
  });
}

nvtxRangeId_t start(nvtxDomainHandle_t, const nvtxEventAttributes_t* event) {
  Profiler& profiler = Profiler::instance();
  return profiler.locked([&](Thread& thread) {
    const nvtxRangeId_t id = profiler.started.size() + 1;
    profiler.started[id] = {std::this_thread::get_id(), profiler.begin(thread, ProfiledRange::Kind::kStarted, event)};
    return id;
  });
}

void end(nvtxDomainHandle_t, nvtxRangeId_t id) {
  Profiler& profiler = Profiler::instance();
  profiler.locked([&](Thread&) {
    const auto found = profiler.started.find(id);
    if (found == profiler.started.end()) {
      ++profiler.ends_of_nothing;
      return;
    }
    ++profiler.threads[found->second.first].ranges[found->second.second].ends;
  });
}

int attach(NvtxGetExportTableFunc_t tables) {
  const auto* const callbacks = static_cast<const NvtxExportTableCallbacks*>(tables(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable table = nullptr;
  unsigned size = 0;
  if (callbacks == nullptr || callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0) return 0;
  const auto take = [&](NvtxCallbackIdCore2 id, auto* function) { *table[id] = reinterpret_cast<NvtxFunctionPointer>(function); };
  take(NVTX_CBID_CORE2_DomainCreateA, create_domain);
  take(NVTX_CBID_CORE2_DomainDestroy, destroy_domain);
  take(NVTX_CBID_CORE2_DomainRangePushEx, push);
  take(NVTX_CBID_CORE2_DomainRangePop, pop);
  take(NVTX_CBID_CORE2_DomainRangeStartEx, start);
  take(NVTX_CBID_CORE2_DomainRangeEnd, end);
  return 1;
}

}  // namespace

std::vector<ProfiledRange> profiled_ranges(std::thread::id thread) {
  Profiler& profiler = Profiler::instance();
  const std::lock_guard lock(profiler.mutex);
  return profiler.threads[thread].ranges;
}

std::string unfinished_ranges() {
  Profiler& profiler = Profiler::instance();
  const std::lock_guard lock(profiler.mutex);
  if (profiler.domains != 0) return std::to_string(profiler.domains) + " domains are left";
  if (profiler.ends_of_nothing != 0) return "an end of no range";
  for (const auto& [id, thread] : profiler.threads) {
    if (thread.pops_of_nothing != 0) return "a pop of no range";
    for (const ProfiledRange& range : thread.ranges)
      if (range.ends != 1) return range.name + ": ended " + std::to_string(range.ends) + " times";
  }
  return "";
}

void forget_ranges() {
  Profiler& profiler = Profiler::instance();
  const std::lock_guard lock(profiler.mutex);
  profiler.threads.clear();
  profiler.started.clear();
  profiler.ends_of_nothing = 0;
}

}  // namespace trident::testing

int (*InitializeInjectionNvtx2_fnptr)(const void* (*)(std::uint32_t)) = trident::testing::attach;
