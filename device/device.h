// A device: where a rank's tensors live and its operations run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/function_ref.h"
#include "device/background_reads.h"
#include "device/buffer.h"
#include "device/device_kind.h"
#include "device/operation_log.h"
#include "device/ranges.h"
#include "device/stream.h"

namespace trident {

class Ops;
class Progress;

class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceKind kind() const = 0;
  // One line: kind, instruction set or GPU, and why it was chosen.
  virtual std::string describe() const = 0;
  // Whether memory keeps what is written to it: not that of device/dry, where any arena fits and weights need not be drawn.
  virtual bool has_bytes() const { return true; }
  virtual Ops& ops() = 0;
  // The stream that layers compute on.
  virtual Stream& compute_stream() = 0;
  // A further stream, for communication beside computation. Lives as long as the device.
  virtual Stream& new_stream(std::string name) = 0;
  // Device memory, zero-filled. Throws InternalError naming `name` inside a NoAllocationScope.
  virtual Buffer allocate(std::int64_t bytes, const std::string& name) = 0;
  // Zero-filled host memory that the communicators of host memory reach, as allocate() otherwise.
  virtual Buffer allocate_host_shared(std::int64_t bytes, const std::string& name) = 0;
  // Copies host memory to `to` after what was enqueued on `stream` before; `from` may be reused on return.
  virtual void write(Stream& stream, TensorView to, const void* from) = 0;
  // Copies `from` to host memory once everything enqueued on `stream` before is done; the host waits.
  virtual void read(Stream& stream, void* to, ConstTensorView from) = 0;
  // For a thread that reads memory of the device beside the rank's work, with as many marks; ends before the device. nullptr where the
  // device's memory is the host's, which any thread reads.
  virtual std::unique_ptr<BackgroundReads> make_background_reads(std::size_t marks) = 0;
  // Bytes of the device's own memory that nobody has taken, now; none where it is the host's.
  virtual std::optional<std::int64_t> free_bytes() const { return std::nullopt; }
  // For communicators of host memory; operations on it are complete when enqueued. A CPU's compute stream.
  virtual Stream& host_stream() = 0;
  // How this rank waits; communicators are made with it.
  virtual Progress& progress() = 0;
  // Advances communication in progress without waiting; called between actions and layers (a CPU makes no progress by itself).
  virtual void poll() = 0;
  // Runs once, on operands of its own, every product and attention that was announced to ops() since the last such call, and
  // waits for them: libraries bring a kernel to a GPU with its first use, and may wait until the GPU is idle to do so. Nothing
  // else of it lasts. Where the memory of the operands is not to be had, nothing is run.
  virtual void run_announced() {}
  // One line each for what the user ought to know of operations that were prepared: which of them take a slower way, and why.
  virtual std::vector<std::string> notes() const = 0;
  // How long the host has waited for communication, on all streams together.
  virtual double waited_seconds() const = 0;
  // From now on `log`, which outlives the device or this setting, is told of every operation; nullptr: none is.
  virtual void log_operations(OperationLog* log) = 0;
  // Runs `work`, which calls operations of ops() on compute_stream() with arguments that it finds the same way each time, and does
  // nothing else that could be noticed: a device may call it twice, and where the same operations with the same arguments come again
  // it may start them all at once, if its options say so. Not from within `work`.
  virtual void run_capturable(FunctionRef<void()> work) = 0;
  // Where a profiler is told what this rank's thread is doing; nullptr: there is none to tell.
  virtual Ranges* ranges() = 0;
};

}  // namespace trident
