#include "checkpoint/shard_writer.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>
#include <utility>

#include "checkpoint/commit.h"
#include "core/at.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "device/no_allocation.h"

namespace trident {
namespace {

std::int64_t slot_bytes_of(const SavePlan& plan) {
  std::int64_t largest = 0;
  for (const SaveFile& file : plan.files) largest = std::max(largest, file.table.data_bytes());
  return std::min(kBlockBytes, direct_size(largest));
}

}  // namespace

std::int64_t ShardWriter::whole_staging(const SavePlan& plan) {
  std::int64_t blocks = 0;
  for (const SaveFile& file : plan.files) blocks += file.table.num_blocks();
  return blocks * slot_bytes_of(plan);
}

// Every file may have a block that is not full yet; when one is, it is written to make room.
std::int64_t ShardWriter::least_staging(const SavePlan& plan) { return std::ssize(plan.files) * slot_bytes_of(plan); }

std::int64_t ShardWriter::transposing_bytes(const SavePlan& plan) {
  std::int64_t largest = 0;
  for (const SaveCopy& copy : plan.copies)
    if (copy.transposed && copy.from.where() == MemoryKind::kDevice) largest = std::max(largest, copy.bytes());
  return largest;
}

ShardWriter::ShardWriter(SavePlan plan, Buffer staging, ShardWriterOptions options)
    : plan_(std::move(plan)), staging_(std::move(staging)), options_(std::move(options)), slot_bytes_(slot_bytes_of(plan_)) {
  TRIDENT_CHECK(staging_.num_bytes() >= least_staging(plan_), "{} bytes to stage {}", staging_.num_bytes(), least_staging(plan_));
  std::int64_t largest = 0;
  for (const SaveFile& file : plan_.files) {
    table_bytes_.push_back(std::ssize(to_text(file.table)));
    largest = std::max(largest, table_bytes_.back());
  }
  header_ = allocate_host(direct_size(largest), "checkpoint headers");
  const auto on_device = [](const SaveCopy& copy) { return copy.from.where() == MemoryKind::kDevice; };
  TRIDENT_CHECK(options_.reads != nullptr || std::ranges::none_of(plan_.copies, on_device),
                "values of a device, and nobody who reads them");
  if (options_.reads != nullptr) {
    transposed_ = options_.reads->allocate(transposing_bytes(plan_), "checkpoint values to be transposed");
  }
  open_.resize(plan_.files.size());
  out_.resize(plan_.files.size());
  units_copied_ = plan_.units.size();
  thread_ = std::thread([this] { work(); });
}

ShardWriter::~ShardWriter() {
  {
    std::unique_lock lock(mutex_);
    ends_ = given_up_ = true;
    changed_.notify_all();
    const std::chrono::duration<double> patience(options_.hang_seconds);
    if (!changed_.wait_for(lock, patience, [this] { return is_over_; }) && options_.warn)
      options_.warn(fmt::format("the end waits for the disk, which has been {} for {:.0f} s; see whether it hangs; kill -9 ends the "
                                "run without it",
                                doing_, monotonic_seconds() - doing_since_));
  }
  thread_.join();
  let_reads_end();
}

// ---- the rank's side ---------------------------------------------------------------------------------------------------------

void ShardWriter::start(const std::string& folder) {
  {
    const std::lock_guard lock(mutex_);
    TRIDENT_CHECK(!task_, "a save is in progress");
    if (options_.reads != nullptr) options_.reads->begin();
    folder_ = folder;
    units_copied_ = 0;
    given_up_ = false;
    error_.reset();
    saves_ = true;
    task_ = [this] { save(); };
    doing_ = "making " + folder;
    doing_since_ = monotonic_seconds();
  }
  changed_.notify_all();
}

void ShardWriter::run(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    TRIDENT_CHECK(!task_, "a save is in progress");
    error_.reset();
    task_ = std::move(task);
    doing_since_ = monotonic_seconds();
  }
  changed_.notify_all();
}

double ShardWriter::before_update(int unit) {
  const auto at = std::ranges::find(plan_.units, unit);
  if (at == plan_.units.end()) return 0;
  const auto index = static_cast<std::size_t>(at - plan_.units.begin());
  std::unique_lock lock(mutex_);
  const double seconds = may_change(index) ? 0 : wait_until_copied(lock, index);
  const bool is_read = options_.reads != nullptr && saves_ && !given_up_;
  lock.unlock();
  if (is_read) options_.reads->hold(index);
  return seconds;
}

// A save that was given up is not waited for again.
bool ShardWriter::may_change(std::size_t index) const { return units_copied_ > index || given_up_; }

double ShardWriter::wait_until_copied(std::unique_lock<std::mutex>& lock, std::size_t index) {
  const double start = monotonic_seconds();
  constexpr std::chrono::seconds kSaysSo(1);
  const std::chrono::duration<double> patience(options_.patience_seconds);
  const auto copied = [&] { return may_change(index); };
  bool done = changed_.wait_for(lock, std::min<std::chrono::duration<double>>(kSaysSo, patience), copied);
  if (!done && options_.warn) {
    const AllocationExemption message;  // within a step
    options_.warn(fmt::format("the update of unit {} waits until its values are copied for the checkpoint", plan_.units[index]));
  }
  done = done || changed_.wait_for(lock, patience - kSaysSo, copied);
  if (!done) {
    given_up_ = true;
    lock.unlock();
    { const std::lock_guard values(values_mutex_); }  // whoever reads them now finishes, and nobody begins
    lock.lock();
  }
  return monotonic_seconds() - start;
}

bool ShardWriter::busy() const {
  const std::lock_guard lock(mutex_);
  return static_cast<bool>(task_);
}

std::optional<std::string> ShardWriter::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

std::optional<ShardWriter::Activity> ShardWriter::activity() const {
  const std::lock_guard lock(mutex_);
  if (!task_) return std::nullopt;
  return Activity{doing_, monotonic_seconds() - doing_since_};
}

void ShardWriter::note(std::string what) {
  const std::lock_guard lock(mutex_);
  doing_ = std::move(what);
  doing_since_ = monotonic_seconds();
}

// ---- the writer's thread -----------------------------------------------------------------------------------------------------

void ShardWriter::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || task_; });
    if (ends_) break;
    lock.unlock();
    std::optional<std::string> error;
    try {
      task_();
    } catch (const std::exception& e) {
      error = e.what();
    }
    if (error) {
      let_reads_end();
      forget_last_save();  // open files hold space of the disk after they were removed
    }
    lock.lock();
    error_ = std::move(error);
    task_ = nullptr;
    saves_ = false;
    units_copied_ = plan_.units.size();  // nobody reads values any more
    changed_.notify_all();
  }
  is_over_ = true;
  changed_.notify_all();
}

void ShardWriter::forget_last_save() {
  units_marked_ = 0;
  full_.clear();
  free_slots_.clear();
  for (std::int64_t at = 0; at + slot_bytes_ <= staging_.num_bytes() && slot_bytes_ > 0; at += slot_bytes_) free_slots_.push_back(staging_.data() + at);
  blocks_begun_.assign(plan_.files.size(), 0);
  for (std::optional<Block>& block : open_) block.reset();
  for (std::optional<BlockFile>& file : out_) file.reset();
}

void ShardWriter::save() {
  forget_last_save();
  make_temporary_folder(folder_);
  auto copy = plan_.copies.begin();
  for (std::size_t unit = 0; unit < plan_.units.size(); ++unit) {
    for (; copy != plan_.copies.end() && copy->unit == plan_.units[unit]; ++copy) put(*copy, unit);
    if (options_.reads != nullptr) {
      options_.reads->mark(unit);
      ++units_marked_;
    }
    {
      const std::lock_guard lock(mutex_);
      ++units_copied_;
    }
    changed_.notify_all();
  }
  for (std::size_t file = 0; file < plan_.files.size(); ++file) close_block(file);
  while (!full_.empty()) write_oldest();
  for (std::size_t file = 0; file < plan_.files.size(); ++file) finish_file(file);
  sync_folders();
}

void ShardWriter::put(const SaveCopy& copy, std::size_t unit) {
  const std::int64_t bytes = copy.bytes();
  if (copy.transposed && copy.from.where() == MemoryKind::kDevice) {
    refuse_given_up();
    options_.reads->read(transposed_.data(), copy.from);
    options_.reads->wait_all();
  }
  for (std::int64_t done = 0; done < bytes;) {
    Block& block = open_block(copy.file);
    const std::int64_t n = std::min(slot_bytes_ - block.bytes, bytes - done);
    fill(copy, done, {block.memory + block.bytes, static_cast<std::size_t>(n)});
    block.last_unit = unit;
    block.bytes += n;
    done += n;
    if (block.bytes == slot_bytes_) close_block(copy.file);
  }
}

// Bytes of a copy from `done` on; on a device they are there once the block was waited for.
void ShardWriter::fill(const SaveCopy& copy, std::int64_t done, std::span<std::byte> out) {
  const std::lock_guard values(values_mutex_);
  refuse_given_up();
  const bool on_device = copy.from.where() == MemoryKind::kDevice;
  const std::int64_t size = size_of(copy.from.dtype());
  if (on_device && !copy.transposed) return options_.reads->read(out.data(), copy.from.range(done / size, std::ssize(out) / size));
  copy_bytes(copy, on_device ? transposed_.data() : copy.from.data(), done, out);
}

// Where the end of the last unit is not marked yet, for want of memory, everything so far.
void ShardWriter::wait_for_reads(const Block& block) {
  if (options_.reads == nullptr) return;
  if (block.last_unit < units_marked_) options_.reads->wait(block.last_unit);
  else options_.reads->wait_all();
}

// Before the memory that they go to is used for something else, whatever became of them.
void ShardWriter::let_reads_end() noexcept {
  if (options_.reads == nullptr) return;
  try {
    options_.reads->wait_all();
  } catch (const std::exception&) {  // the device failed: nothing comes any more, and whoever works there hears of it
  }
}

void ShardWriter::refuse_given_up() const {
  const std::lock_guard lock(mutex_);
  if (given_up_) throw StorageError(fmt::format("{}: was given up because its values could not be copied in time; see whether the disk is slow or hangs", folder_));
}

ShardWriter::Block& ShardWriter::open_block(std::size_t file) {
  std::optional<Block>& block = open_[file];
  if (block) return *block;
  while (free_slots_.empty()) write_oldest();
  const bool is_first = !out_[file];
  if (is_first) note(fmt::format("making {}/{}", folder_, plan_.files[file].path));
  if (is_first) out_[file].emplace(folder_ + "/" + plan_.files[file].path, table_bytes_[file] + plan_.files[file].table.data_bytes());
  block.emplace(Block{file, blocks_begun_[file]++, 0, free_slots_.back(), 0});
  free_slots_.pop_back();
  return *block;
}

void ShardWriter::close_block(std::size_t file) {
  if (!open_[file]) return;
  full_.push_back(*open_[file]);
  open_[file].reset();
}

void ShardWriter::write_oldest() {
  refuse_given_up();
  TRIDENT_CHECK(!full_.empty(), "no staging memory is full, and none is free");
  const Block block = full_.front();
  full_.pop_front();
  wait_for_reads(block);
  const std::int64_t padded = direct_size(block.bytes);
  std::memset(block.memory + block.bytes, 0, static_cast<std::size_t>(padded - block.bytes));
  const std::span<const std::byte> data(block.memory, static_cast<std::size_t>(padded));
  at(plan_.files[block.file].table.blocks, block.index) = hash128(data.first(static_cast<std::size_t>(block.bytes)));
  note("writing " + out_[block.file]->path());
  out_[block.file]->write(table_bytes_[block.file] + block.index * kBlockBytes, data);
  free_slots_.push_back(block.memory);
}

// Last of all, because it says what the blocks hash to.
void ShardWriter::finish_file(std::size_t file) {
  const std::string text = to_text(plan_.files[file].table);
  TRIDENT_CHECK(std::ssize(text) == table_bytes_[file], "the table of {} has {} bytes, not {}", plan_.files[file].path,
                text.size(), table_bytes_[file]);
  std::memcpy(header_.data(), text.data(), text.size());
  note("flushing " + out_[file]->path());
  out_[file]->write(0, {header_.data(), text.size()});
  out_[file]->finish();
  out_[file].reset();
}

void ShardWriter::sync_folders() {
  std::set<std::string> folders;
  for (const SaveFile& file : plan_.files) {
    if (!folders.insert(file.path.substr(0, file.path.find('/'))).second) continue;
    note("flushing the folder of " + folder_ + "/" + file.path);
    sync_folder_of(folder_ + "/" + file.path);
  }
}

}  // namespace trident
