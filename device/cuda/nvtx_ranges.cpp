#include "device/cuda/nvtx_ranges.h"

#include <nvtx3/nvToolsExt.h>

namespace trident {
namespace {

nvtxEventAttributes_t attributes(const char* name) {
  nvtxEventAttributes_t event = {};
  event.version = NVTX_VERSION;
  event.size = NVTX_EVENT_ATTRIB_STRUCT_SIZE;
  event.messageType = NVTX_MESSAGE_TYPE_ASCII;
  event.message.ascii = name;
  return event;
}

}  // namespace

std::unique_ptr<NvtxRanges> NvtxRanges::attach() {
  // Without a profiler NVTX makes no domain.
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("trident");
  return domain == nullptr ? nullptr : std::unique_ptr<NvtxRanges>(new NvtxRanges(domain));
}

NvtxRanges::~NvtxRanges() { nvtxDomainDestroy(domain_); }

std::uint64_t NvtxRanges::start(const char* name) {
  const nvtxEventAttributes_t event = attributes(name);
  return nvtxDomainRangeStartEx(domain_, &event);
}

void NvtxRanges::end(std::uint64_t range) noexcept { nvtxDomainRangeEnd(domain_, range); }

void NvtxRanges::push(const char* name) {
  const nvtxEventAttributes_t event = attributes(name);
  nvtxDomainRangePushEx(domain_, &event);
}

void NvtxRanges::pop() noexcept { nvtxDomainRangePop(domain_); }

}  // namespace trident
