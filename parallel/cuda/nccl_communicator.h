// The communicator of device memory over NCCL: a GPU per rank.
//
// Operations run on the GPU in the order of their stream; the host enqueues them and goes on. Sums are taken in the library's
// order and rounded at every step (numerics differ from the other transports in the last bits). NCCL runs the operations of one
// communicator one after another, in the order in which they were issued, whatever streams they are on; all ranks must issue them
// in one order. Messages have communicators of their own where NcclTraffic says so: one for every sender and receiver, in which
// only earlier messages of the pair hold up later ones; in a group scope they run side by side. Everything connects when the
// communicator is made.
//
// At most 256 operations of a communicator are under way; more make the caller wait. A failure, of the library, of a peer or of
// this rank while it waits, ends what NCCL has under way on this rank before anything is freed, and fails the world.
//
// Beside every operation the hosts compare what they called, without waiting for it (nccl_watch.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "parallel/cuda/device_communicator.h"
#include "parallel/cuda/nccl_handle.h"
#include "parallel/cuda/nccl_options.h"
#include "parallel/cuda/nccl_watch.h"

namespace trident {

class NcclCommunicator final : public DeviceCommunicator, private GiveUpListener {
 public:
  // Collective over the group; a group of one calls nothing of NCCL unless NcclOptions::alone says so. ConfigError on all ranks if their libraries differ or two of them are on one GPU.
  NcclCommunicator(std::unique_ptr<Communicator> host, const DevicePlace& place, const NcclOptions& options);
  ~NcclCommunicator() override;

  void abort(std::string_view reason) override;
  // Registered with all communicators of NCCL here on every rank, or with none: what becomes of an operation on memory that some of its
  // ranks have registered is undefined. Best from allocate_nccl().
  std::string register_memory(TensorView memory) override;

 private:
  // Messages of an ordered pair.
  struct Path {
    Path(int from, int to, int device, const std::string& name, int max_ctas)
        : sender(from), receiver(to), handle(device, name, max_ctas), queue(device), done(device) {}
    int sender, receiver;
    NcclHandle handle;
    CudaQueue queue;  // in a group scope
    CudaEvent done;
    bool in_group = false;
  };

  void run(CudaStream& stream, std::span<const CollectiveCall> calls) override;
  void meet() override;
  std::unique_ptr<Communicator> make(std::unique_ptr<Communicator> host) override;
  void on_give_up() noexcept override;
  void after_give_up() noexcept override;

  std::string register_here(TensorView memory);
  void compare_surroundings();
  void join(NcclHandle& handle, const std::vector<int>& members);
  void connect();
  Path* path_of(const CollectiveCall& call);
  NcclHandle& handle_of(const CollectiveCall& call);
  CpuStream& control_of(const CollectiveCall& call);
  std::uint64_t number_of(const CollectiveCall& call);
  NcclWatch& watch(const CollectiveCall& call);
  void launch(cudaStream_t stream, std::span<const CollectiveCall> calls);
  void launch_paths(cudaStream_t stream, std::span<const CollectiveCall> calls);
  void launch_on(NcclHandle& handle, cudaStream_t stream, std::span<const CollectiveCall> calls);
  ncclResult_t call_together(NcclHandle& handle, cudaStream_t stream, std::span<const CollectiveCall> calls);
  ncclResult_t call_library(const CollectiveCall& call, NcclHandle& handle, const Path* path, cudaStream_t stream) const;
  void require(ncclResult_t result, const NcclHandle& handle, std::string_view what);
  [[noreturn]] void give_up(const std::string& reason);
  void wait_for(const CudaEvent& event, std::string_view what);
  bool leave() noexcept;

  NcclOptions options_;
  NcclTraffic traffic_;
  bool ended_ = false;
  NcclHandle all_;
  std::vector<std::unique_ptr<Path>> paths_;  // that begin or end here
  CudaEvent fork_;
  // Ranks exchange these records of their calls.
  Buffer records_;
  CpuStream watches_, collective_control_;
  std::vector<std::unique_ptr<CpuStream>> control_to_, control_from_;       // by peer
  std::uint64_t collectives_ = 0;
  std::vector<std::uint64_t> sent_, received_;                              // by peer
  NcclWatchGroup watch_group_;
  std::int64_t watches_made_ = 0;
  OperationPool<NcclWatch> pool_;
  std::vector<NcclWatch*> launching_;
};

// Device memory that NCCL prefers, zero-filled; where the library gives none, ordinary device memory, and why.
struct NcclMemory {
  Buffer buffer;
  std::string ordinary_because;
};
NcclMemory allocate_nccl(int device, std::int64_t bytes, const std::string& name);

}  // namespace trident
