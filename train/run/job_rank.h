// One rank of a job (train/launch/job.h), as the work that runs on it gets it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "core/logging.h"
#include "device/device.h"
#include "parallel/communicator/communicator.h"
#include "parallel/communicator/status_board.h"
#include "parallel/grid/parallel_context.h"

namespace trident {

struct JobRank {
  Device& device;
  std::unique_ptr<Communicator> world;
  OnDevice on_device = {};  // how groups of ranks exchange what lies on devices
  Logger logger;
  // Only ranks that are processes have these.
  StatusBoard* board = nullptr;                         // where the rank tells its peers what it is doing
  std::function<std::int64_t()> inter_node_bytes = {};  // payload this rank sent to other nodes so far
};

}  // namespace trident
