// The choices that a group makes about NCCL.
#pragma once

#include <cstdint>

#include "core/cuda_options.h"
#include "parallel/grid/process_grid.h"

namespace trident {

// The traffic of a group. NCCL runs the operations of one of its communicators one after another, so a message that waits for its
// receiver would hold up all others; ranks between which messages go their own ways get a communicator of NCCL for each direction.
struct NcclTraffic {
  int max_ctas = 0;  // blocks an operation may take from computation; 0: the library's choice
  enum class Messages : std::uint8_t {
    kRare,        // all on the group's communicator: one that waits holds up the others
    kNeighbours,  // of their own between ranks r and r + 1, around the end too
    kAll          // of their own between any two
  } messages = Messages::kRare;
};

struct NcclOptions {
  NcclTraffic traffic = {};
  // Without any operation of a group done while one is under way. Shorter than the world's: this message names the operation.
  double timeout_seconds = 590;
  // Several ranks on one GPU: NCCL itself refuses them, unless NCCL_HOSTID differs between processes or (2.30 and later)
  // NCCL_MULTI_RANK_GPU_ENABLE=1 is set. For tests: it is slow and may hang.
  bool allow_shared_gpus = false;
  // A group of one rank copies, or joins so that the library is called at all where there is one GPU.
  enum class Alone : std::uint8_t { kCopies, kJoins } alone = Alone::kCopies;
};

// The options of groups along `axis`: along the pipeline and the context messages go to neighbours; other groups rarely send.
NcclOptions nccl_options(Axis axis, const CudaOptions& chosen);

}  // namespace trident
