// Writes one rank's part of a checkpoint while training goes on: a thread copies the values into staging memory, unit by unit in the
// order of their next updates, then hashes and writes them. An update waits until its unit is copied, never for a disk, unless the
// staging memory is smaller than the values.
//
// Values of a device are read in the background (device/background_reads.h): the writer's thread enqueues the reads, the rank's thread
// goes on when those of its unit are enqueued, and its stream lets the update wait until they are done.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/save_plan.h"
#include "core/block_file.h"
#include "device/background_reads.h"
#include "device/buffer.h"

namespace trident {

struct ShardWriterOptions {
  BackgroundReads* reads = nullptr;  // of the device that has the values, with a mark for each unit; outlives the writer. nullptr: they lie in host memory
  double patience_seconds = 30;      // an update waits so long for staging memory, then the save is given up
  double hang_seconds = 10;          // the destructor waits so long for the disk before it says so
  std::function<void(std::string_view)> warn = {};  // from the thread that waits
};

class ShardWriter {
 public:
  // Bytes of staging memory in which all of a plan's values have room, and the least that works.
  static std::int64_t whole_staging(const SavePlan& plan);
  static std::int64_t least_staging(const SavePlan& plan);
  // Bytes that it takes beside staging memory for values of a device that are stored transposed: the largest of them.
  static std::int64_t transposing_bytes(const SavePlan& plan);

  // `staging`: host memory of at least least_staging(plan), aligned to kDirectAlignment; of options.reads where values lie on a device.
  // Allocates all that it needs.
  ShardWriter(SavePlan plan, Buffer staging, ShardWriterOptions options = {});
  ~ShardWriter();  // gives up what is in progress, and waits until a write that the system has is over: it reads the staging memory
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  // From the rank's thread, when nothing is in progress. The values are those after all work of the rank's compute stream so far; they
  // must stay as they are until before_update() of their unit returns, on a device for work that was enqueued before that.
  // Makes `folder` where it is not there, and files in it.
  void start(const std::string& folder);
  // Runs `task` on the writer's thread, when nothing is in progress: busy until it is done, error() if it throws.
  void run(std::function<void()> task);
  // A waiting rank says what the writer's thread does, in words with the file, and for how long. Nothing while it is idle.
  struct Activity {
    std::string what;
    double seconds = 0;
  };
  std::optional<Activity> activity() const;
  // From a task: it goes on to something else.
  void note(std::string what);
  // Returns when the unit's values may change, on a device by work that is enqueued from then on. Seconds that took.
  double before_update(int unit);
  bool busy() const;
  // Why what was started last failed: nothing while it is in progress, or if it did not.
  std::optional<std::string> error() const;

  // The files of the last save that succeeded.
  const std::vector<SaveFile>& files() const { return plan_.files; }

 private:
  struct Block {  // of a file, being filled or full
    std::size_t file = 0;
    std::int64_t index = 0, bytes = 0;
    std::byte* memory = nullptr;
    std::size_t last_unit = 0;  // whose values are in it, of plan_.units
  };

  bool may_change(std::size_t index) const;
  double wait_until_copied(std::unique_lock<std::mutex>& lock, std::size_t index);
  void work();
  void save();
  void forget_last_save();
  void put(const SaveCopy& copy, std::size_t unit);
  void fill(const SaveCopy& copy, std::int64_t done, std::span<std::byte> out);
  void refuse_given_up() const;
  void wait_for_reads(const Block& block);
  void let_reads_end() noexcept;
  Block& open_block(std::size_t file);
  void close_block(std::size_t file);
  void write_oldest();
  void finish_file(std::size_t file);
  void sync_folders();

  SavePlan plan_;
  Buffer staging_;
  ShardWriterOptions options_;
  Buffer header_;                          // of a file, on its way to the disk
  std::int64_t slot_bytes_ = 0;            // of staging memory: for one block
  std::vector<std::int64_t> table_bytes_;  // by file
  Buffer transposed_;                      // one copy's values, where they are on a device and must be transposed

  // Only the writer's thread uses these.
  std::string folder_;
  std::vector<std::byte*> free_slots_;
  std::deque<Block> full_;
  std::vector<std::optional<Block>> open_;  // by file
  std::vector<std::int64_t> blocks_begun_;  // by file
  std::vector<std::optional<BlockFile>> out_;
  std::size_t units_marked_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::mutex values_mutex_;             // held while values are read
  std::function<void()> task_;          // nothing: idle
  std::size_t units_copied_ = 0;        // or enqueued to be read
  bool saves_ = false;                  // the task is a save
  bool given_up_ = false, ends_ = false, is_over_ = false;  // is_over_: the thread is done
  std::optional<std::string> error_;
  std::string doing_;
  double doing_since_ = 0;
  std::thread thread_;
};

}  // namespace trident
