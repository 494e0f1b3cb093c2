// The promise "nothing allocates inside a step", as a check.
//
// While a NoAllocationScope is open on a thread, any Buffer allocation and any operator new on that thread throws InternalError
// with the scope's name. Library calls that allocate internally and cannot be told not to (oneDNN builds a small argument map
// per execution) run inside an AllocationExemption, each with a comment that says why.
//
// Code that builds an error message inside a scope does so inside an exemption too, or the message is replaced by this check's.
#pragma once

#include <cstddef>
#include <string_view>

namespace trident {

class NoAllocationScope {
 public:
  explicit NoAllocationScope(std::string_view what);  // `what` outlives the scope
  ~NoAllocationScope();
  NoAllocationScope(const NoAllocationScope&) = delete;
  NoAllocationScope& operator=(const NoAllocationScope&) = delete;

 private:
  std::string_view outer_;
};

class AllocationExemption {
 public:
  AllocationExemption();
  ~AllocationExemption();
  AllocationExemption(const AllocationExemption&) = delete;
  AllocationExemption& operator=(const AllocationExemption&) = delete;
};

// Whether this thread may allocate now: no scope is open, or an exemption is.
bool allocation_allowed();
// Throws InternalError naming the scope and `what` unless allocation_allowed(). Called by allocate_host and by the replaced
// operator new (allocation_guard.cpp, linked into every program that opens a scope).
void check_allocation_allowed(std::size_t bytes, std::string_view what);

}  // namespace trident
