#include "parallel/hierarchical/node_segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <new>
#include <optional>
#include <utility>

#include "core/check.h"
#include "core/int_math.h"
#include "core/number_text.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;
constexpr std::int64_t kControlTouched = 4;  // a fourth of a control region: the rest is stages for operands that peers do not reach

struct Header {
  std::atomic<std::int64_t> used{0};      // where the next buffer may begin
  std::atomic<std::int64_t> promised{0};  // bytes that live buffers have or will have, and what is used of the control region
  std::int64_t control_offset = 0;
};

[[noreturn]] void refuse(const std::string& what) {
  throw ConfigError(fmt::format("the ranks of a node share one segment of memory, which this system refuses: {}", what));
}

}  // namespace

class NodeSegment::Mapping {
 public:
  Mapping(FileDescriptor descriptor, AskSystem ask) : descriptor_(std::move(descriptor)), ask_(std::move(ask)) {
    struct stat file{};
    if (fstat(descriptor_.get(), &file) != 0) refuse(fmt::format("fstat: {}", std::strerror(errno)));
    bytes_ = file.st_size;
    void* mapped =
        mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor_.get(), 0);
    if (mapped == MAP_FAILED)
      refuse(fmt::format("mapping {:.0f} GB of address space: {}; raise ulimit -v", gigabytes(bytes_), std::strerror(errno)));
    base_ = static_cast<std::byte*>(mapped);
    madvise(base_, static_cast<std::size_t>(bytes_),
            MADV_DONTDUMP);  // a core file of one rank is not the place for all ranks' memory
  }
  ~Mapping() { munmap(base_, static_cast<std::size_t>(bytes_)); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::byte* base() const { return base_; }
  std::int64_t num_bytes() const { return bytes_; }
  int descriptor() const { return descriptor_.get(); }
  Header& header() const { return *reinterpret_cast<Header*>(base_); }

  struct Refusal {
    AvailableMemory available;
    std::int64_t promised = 0;  // of what is available, to others
  };
  // Promises memory to a buffer unless that, with all that was promised before, is more than there is. Pages that were touched are
  // neither available nor missing: they count on both sides.
  std::optional<Refusal> promise(std::int64_t length) const {
    struct stat file{};
    const std::int64_t touched = fstat(descriptor_.get(), &file) == 0 ? file.st_blocks * 512 : 0;
    const AvailableMemory available = ask_();
    constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
    const std::int64_t most = available.bytes > kUnknown - touched ? kUnknown : available.bytes + touched;
    std::atomic<std::int64_t>& promised = header().promised;
    std::int64_t before = promised.load(std::memory_order_relaxed);
    do {
      if (length > most - before) return Refusal{available, std::max<std::int64_t>(before - touched, 0)};
    } while (!promised.compare_exchange_weak(before, before + length, std::memory_order_relaxed));
    return std::nullopt;
  }

  // Addresses for a buffer, which nobody else gets; -1 if there are none left.
  std::int64_t take(std::int64_t length, std::int64_t alignment) const {
    std::atomic<std::int64_t>& used = header().used;
    std::int64_t before = used.load(std::memory_order_relaxed), offset = 0;
    do {
      offset = round_up(before, alignment);
      if (length > bytes_ - offset) return -1;
    } while (!used.compare_exchange_weak(before, offset + length, std::memory_order_relaxed));
    return offset;
  }

  // Makes the pages of a buffer exist; an errno.
  int populate(std::int64_t offset, std::int64_t length) const {
    // Large pages are a wish, and so is populating: before Linux 5.14 the pages are reserved here and mapped when touched.
    if (length >= 2 * kHugePage) madvise(base_ + offset, static_cast<std::size_t>(length), MADV_HUGEPAGE);
    const auto make_pages = [&] { return madvise(base_ + offset, static_cast<std::size_t>(length), MADV_POPULATE_WRITE); };
    if (uninterrupted(make_pages) == 0) return 0;
    if (errno != EINVAL) return errno;
    return uninterrupted([&] { return fallocate(descriptor_.get(), 0, offset, length); }) == 0 ? 0 : errno;
  }

  // The memory, then what was promised: in between there seems to be less than there is, never more.
  void give_back(std::int64_t offset, std::int64_t length) const {
    madvise(base_ + offset, static_cast<std::size_t>(length), MADV_REMOVE);
    withdraw(length);
  }
  void withdraw(std::int64_t length) const { header().promised.fetch_sub(length, std::memory_order_relaxed); }

 private:
  FileDescriptor descriptor_;
  AskSystem ask_;
  std::int64_t bytes_ = 0;
  std::byte* base_ = nullptr;
};

NodeSegment::NodeSegment(std::shared_ptr<Mapping> mapping) : mapping_(std::move(mapping)) {}

NodeSegment NodeSegment::attach(FileDescriptor descriptor) {
  return NodeSegment(std::make_shared<Mapping>(std::move(descriptor), [] { return available_memory(); }));
}

NodeSegment NodeSegment::create(std::int64_t control_bytes, std::int64_t bytes, AskSystem ask) {
  const std::int64_t buffers = kPage + round_up(control_bytes, kPage);
  TRIDENT_CHECK(control_bytes >= 0 && buffers <= bytes, "{} bytes of control region in a segment of {}", control_bytes, bytes);
  // Asking for more than the limit on files would not be refused but kill the process.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < static_cast<rlim_t>(bytes))
    refuse(fmt::format("files are limited to {:.3g} GB; set ulimit -f unlimited",
                       gigabytes(static_cast<std::int64_t>(limit.rlim_cur))));
  FileDescriptor descriptor(memfd_create("trident", MFD_CLOEXEC));
  if (!descriptor) refuse(fmt::format("memfd_create: {}", std::strerror(errno)));
  if (uninterrupted([&] { return ftruncate(descriptor.get(), bytes); }) != 0)
    refuse(fmt::format("a sparse memory file of {:.0f} GB: {}", gigabytes(bytes), std::strerror(errno)));
  NodeSegment segment(std::make_shared<Mapping>(std::move(descriptor), std::move(ask)));
  Header& header = *new (segment.mapping_->base()) Header;
  header.control_offset = kPage;
  header.used = buffers;
  header.promised = kPage + round_up(control_bytes, kPage) / kControlTouched;
  return segment;
}

std::byte* NodeSegment::control() const { return mapping_->base() + mapping_->header().control_offset; }
std::int64_t NodeSegment::num_bytes() const { return mapping_->num_bytes(); }
int NodeSegment::descriptor() const { return mapping_->descriptor(); }

Buffer NodeSegment::allocate(std::int64_t bytes, const std::string& name) {
  TRIDENT_CHECK(bytes >= 0, "{}: {} bytes", name, bytes);
  check_allocation_allowed(static_cast<std::size_t>(bytes), name);
  if (bytes == 0) return {};
  const std::int64_t page = bytes >= 2 * kHugePage ? kHugePage : kPage;
  const std::int64_t length = round_up(bytes, page);
  // Asked before, because a kernel that is out of memory kills instead of refusing.
  const auto refuse_buffer = [&](const std::string& why) {
    throw ConfigError(
        fmt::format("memory: {} needs {:.1f} MB and {}; make the model, the micro-batch or the sequence smaller, or use more "
                    "ranks on more nodes",
                    name, megabytes(length), why));
  };
  if (const auto refusal = mapping_->promise(length))
    refuse_buffer(fmt::format("{} has {:.1f} MB left, {:.1f} MB of them promised to other buffers of its ranks",
                              refusal->available.limit, megabytes(refusal->available.bytes), megabytes(refusal->promised)));
  const std::int64_t offset = mapping_->take(length, page);
  if (offset < 0) {
    mapping_->withdraw(length);
    refuse_buffer(fmt::format("the node's segment of {:.3g} GB has no addresses left", gigabytes(num_bytes())));
  }
  if (const int error = mapping_->populate(offset, length); error != 0) {
    mapping_->give_back(offset, length);
    refuse_buffer(fmt::format("the system refused them ({})", std::strerror(error)));
  }
  const auto release = [mapping = mapping_, offset, length](void*, std::int64_t) { mapping->give_back(offset, length); };
  return {mapping_->base() + offset, bytes, MemoryKind::kHost, release};
}

bool NodeSegment::contains(const void* address, std::int64_t bytes) const {
  const std::uint64_t offset = offset_of(address), end = static_cast<std::uint64_t>(num_bytes());
  return offset <= end && static_cast<std::uint64_t>(bytes) <= end - offset;
}

std::uint64_t NodeSegment::offset_of(const void* address) const {
  return reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(mapping_->base());
}

std::byte* NodeSegment::at(std::uint64_t offset) const { return mapping_->base() + offset; }

std::string segment_pages() {
  const char* const path = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
  std::ifstream file(path);
  for (std::string word; file >> word;)
    if (word.front() == '[') {
      const std::string setting = word.substr(1, word.size() - 2);
      return setting == "never" || setting == "deny" ? fmt::format("small pages: {} is {}", path, setting) : "huge pages";
    }
  return "small pages: this kernel has no others for shared memory";
}

}  // namespace trident
