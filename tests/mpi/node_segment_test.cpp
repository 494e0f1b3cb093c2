#include "parallel/hierarchical/node_segment.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "device/no_allocation.h"
#include "parallel/health/descriptor_handover.h"
#include "parallel/shared_memory/shared_memory_communicator.h"
#include "tests/mpi/child_process.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {


}  // namespace
}  // namespace trident
