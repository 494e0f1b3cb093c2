// The memory that the ranks of a node share: one anonymous file (memfd), mapped by each of them at an address of its own.
//
// The node's first rank creates it and hands it to the others over a Unix socket; no file system is involved, so the size of
// /dev/shm does not matter, and the kernel takes the memory back when the last process that has it is gone, however it ended. The
// segment is far larger than any machine's memory; pages exist once they are touched and until they are given back.
//
// Layout: a header, the control region (a SharedWorld), then buffers. Each buffer lies at addresses of its own, which are not used
// again; only its memory is given back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "core/file_descriptor.h"
#include "device/buffer.h"
#include "core/available_memory.h"
#include "parallel/shared_memory/peer_memory.h"

namespace trident {

inline constexpr std::int64_t kSegmentBytes = std::int64_t{16} << 40;

class NodeSegment {
 public:
  using AskSystem = std::function<AvailableMemory()>;

  // A new segment of zeros, by the node's first rank. ConfigError that says what the system refused. `ask`: what this object and
  // its copies take for the memory that is left.
  static NodeSegment create(std::int64_t control_bytes, std::int64_t bytes = kSegmentBytes,
                            AskSystem ask = [] { return available_memory(); });
  // The segment behind a descriptor that was received. ConfigError like create().
  static NodeSegment attach(FileDescriptor descriptor);

  std::byte* control() const;
  std::int64_t num_bytes() const;
  int descriptor() const;

  // `bytes` zeroed bytes, aligned to 4096, resident from the start, in huge pages where they are large and the kernel has them for
  // shared memory. Safe to call by all ranks of the node at once: each is judged by what is left of the machine's memory once all
  // that were promised some have touched it. ConfigError that names `name` when the segment or the machine has no room;
  // InternalError inside a NoAllocationScope. The segment stays mapped for as long as a buffer of it lives.
  Buffer allocate(std::int64_t bytes, const std::string& name);

  // Whether `bytes` bytes from `address` lie in the segment.
  bool contains(const void* address, std::int64_t bytes) const;
  std::uint64_t offset_of(const void* address) const;  // which lies in it
  std::byte* at(std::uint64_t offset) const;

 private:
  class Mapping;
  explicit NodeSegment(std::shared_ptr<Mapping> mapping);
  std::shared_ptr<Mapping> mapping_;
};

// Ranks are processes of one node: posted words are offsets in its segment.
class SegmentMemory final : public PeerMemory {
 public:
  explicit SegmentMemory(NodeSegment segment) : segment_(std::move(segment)) {}
  bool reaches(const void* address, std::int64_t bytes) const override { return segment_.contains(address, bytes); }
  std::uint64_t post(const void* address) override { return segment_.offset_of(address); }
  std::byte* reach(std::uint64_t posted) override { return segment_.at(posted); }

 private:
  NodeSegment segment_;
};

// Whether the kernel gives shared memory huge pages when asked: "huge pages", or "small pages: ..." with the setting that says so.
std::string segment_pages();

}  // namespace trident
