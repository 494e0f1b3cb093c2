// Watching over an operation of NCCL: whether all ranks called the same, whether the library reports an error, whether it ends.
//
// The operation itself runs on the GPU without the host. Beside it the hosts tell each other what they called, and nobody waits
// for that: a disagreement is noticed when the records meet, and then everybody gives up.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/communicator/communicator.h"
#include "parallel/communicator/pending_collective.h"
#include "parallel/cuda/call_record.h"
#include "parallel/cuda/cuda_handles.h"
#include "parallel/cuda/nccl_handle.h"

namespace trident {

// All watches of a communicator share this.
struct NcclWatchGroup {
  std::string_view name;
  int rank = 0;
  std::vector<int> global_ranks;
  int device = 0;
  double timeout_seconds = 0;
  // The rank gives up, with everything NCCL has under way; throws CommunicationError.
  std::function<void(const std::string& reason)> fail;
};

class NcclWatch final : public CommunicatorOperation {
 public:
  // `mine`, `all`: words for this rank's record and for those of the group, of a message for the sender's.
  NcclWatch(NcclWatchGroup& group, TensorView mine, TensorView all) : group_(&group), mine_(mine), all_(all), done_(group.device) {}

  // The call is about to be made on `handle`, as operation `number` (of the pair, if it is a message).
  void prepare(const CollectiveCall& call, std::uint64_t number, const NcclHandle& handle);
  // Tells peers on `stream`, through `host`.
  void tell(Communicator& host, CpuStream& stream);
  // The call was made; it is over when `stream` has come this far.
  void launched(cudaStream_t stream);

  void issue() override {}
  bool poll() override;
  std::string describe() const override;

 private:
  void compare();
  void look_for_trouble();
  std::string call_text() const;
  std::string ranks_text() const;

  NcclWatchGroup* group_;
  TensorView mine_, all_;
  CudaEvent done_;
  CollectiveCall call_;
  std::uint64_t number_ = 0;
  const NcclHandle* handle_ = nullptr;
  const CpuStream* told_on_ = nullptr;  // null: nothing is compared, or it has been
  Event told_;
  bool compared_ = false, launched_ = false;
  double watched_since_ = 0, looked_ = 0;
};

}  // namespace trident
