// A rank's communicators in a world without peers: calls are checked and answered as if every rank held what this one does.
//
// Host memory gets what the call would leave there: a sum is the number of ranks times this rank's values, a gather its values from
// each. A device's memory is left alone (device/dry has no bytes in it). Nothing is sent and nobody is waited for.
#pragma once

#include <memory>
#include <string_view>

#include "parallel/communicator/communicator.h"

namespace trident {

// Is told of every call of a dry world's communicators, in order. `group`: its name; of `size` ranks.
class CallWatcher {
 public:
  virtual void called(std::string_view group, int size, const CollectiveCall& call) = 0;

 protected:
  ~CallWatcher() = default;
};

// Rank `rank` of a world of `size`. `watcher`, if there is one, outlives it and the groups split off.
std::unique_ptr<Communicator> make_dry_world(int rank, int size, CallWatcher* watcher = nullptr);

}  // namespace trident
