// Reads of a device's memory beside the rank's work: a thread of its own enqueues them and waits for them, and the rank's stream does
// not overwrite what is still to be read. The rank's host waits for nothing.
//
//   the rank's thread                          the other thread
//   begin()   what is read is there
//                                              read(), read(), mark(0), read(), mark(1), ...
//   hold(0)   what mark 0 covers may change
//                                              wait(1)   what mark 1 covers is in host memory
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "core/tensor_view.h"
#include "device/buffer.h"

namespace trident {

// Made by Device::make_background_reads(), before the steps: nothing is allocated later. Throws what the device throws where it fails.
class BackgroundReads {
 public:
  virtual ~BackgroundReads() = default;  // waits for what is under way

  // Zero-filled host memory, aligned to 4096 bytes, that the device can write while nobody waits: page-locked.
  virtual Buffer allocate(std::int64_t bytes, const std::string& name) = 0;

  // ---- by the rank's thread, outside Device::run_capturable()
  // Later reads see everything enqueued on the compute stream before.
  virtual void begin() = 0;
  // Work enqueued on the compute stream from now on runs after the reads before mark(`mark`), which has returned.
  virtual void hold(std::size_t mark) = 0;

  // ---- by the other thread
  // Enqueues: `to`, in memory of allocate(), has the bytes of `from` once a wait for them returned.
  virtual void read(void* to, ConstTensorView from) = 0;
  // Gives everything read so far a number, less than the one they were made with. A number may be given again.
  virtual void mark(std::size_t mark) = 0;
  virtual void wait(std::size_t mark) = 0;
  virtual void wait_all() = 0;
};

}  // namespace trident
