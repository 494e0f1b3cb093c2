#include "device/no_allocation.h"

#include "core/check.h"

namespace trident {

namespace {

struct ThreadState {
  std::string_view scope;  // of the innermost NoAllocationScope
  int scopes = 0;
  int exemptions = 0;
};
// Which scope a thread is in is a property of the thread, as its stack is.
thread_local ThreadState state;

}  // namespace

void require_allocation_guard();  // allocation_guard.cpp: referring to it makes the linker take its operator new

NoAllocationScope::NoAllocationScope(std::string_view what) : outer_(state.scope) {
  require_allocation_guard();
  state.scope = what;
  ++state.scopes;
}

NoAllocationScope::~NoAllocationScope() {
  --state.scopes;
  state.scope = outer_;
}

AllocationExemption::AllocationExemption() { ++state.exemptions; }
AllocationExemption::~AllocationExemption() { --state.exemptions; }

bool allocation_allowed() { return state.scopes == 0 || state.exemptions > 0; }

void check_allocation_allowed(std::size_t bytes, std::string_view what) {
  if (allocation_allowed()) [[likely]]
    return;
  const AllocationExemption message;  // the message itself is allocated
  throw InternalError(
      fmt::format("{}: {} allocates {} bytes where nothing may; book it while planning (if this hides another "
                  "error: debug.no_alloc = false shows that one)",
                  state.scope, what, bytes));
}

}  // namespace trident
