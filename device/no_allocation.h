// The promise "nothing allocates inside a step", as a check.
//
// While a NoAllocationScope is open on a thread, any Buffer allocation and any operator new on that thread throws InternalError
// with the scope's name. Library calls that allocate internally and cannot be told not to (oneDNN builds a small argument map
// per execution) run inside an AllocationExemption, each with a comment that says why.
#pragma once

#include <cstddef>
#include <string_view>

namespace trident {

class NoAllocationScope {
 public:
  explicit NoAllocationScope(std::string_view what);
  ~NoAllocationScope();
  NoAllocationScope(const NoAllocationScope&) = delete;
  NoAllocationScope& operator=(const NoAllocationScope&) = delete;
};

class AllocationExemption {
 public:
  AllocationExemption();
  ~AllocationExemption();
  AllocationExemption(const AllocationExemption&) = delete;
  AllocationExemption& operator=(const AllocationExemption&) = delete;
};

// Throws when a scope is active and not exempted. Called by allocate_host and by the replaced operator new.
void check_allocation_allowed(std::size_t bytes);

}  // namespace trident
