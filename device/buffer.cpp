#include "device/buffer.h"

#include <sys/mman.h>

#include <utility>

#include "core/check.h"
#include "core/int_math.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

// A zero-filled private mapping of `length` bytes whose start is a multiple of `alignment`.
std::byte* map_aligned(std::int64_t length, std::int64_t alignment, const std::string& name) {
  const std::int64_t slack = alignment > kPage ? alignment : 0;
  void* mapped =
      mmap(nullptr, static_cast<std::size_t>(length + slack), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    throw ConfigError(
        fmt::format("memory: {} needs {:.1f} MB and the system refused them; make the model, the micro-batch or the "
                    "sequence smaller, or use more ranks",
                    name, static_cast<double>(length) * 1e-6));
  }
  auto* start = static_cast<std::byte*>(mapped);
  if (slack == 0) return start;
  const auto address = reinterpret_cast<std::uintptr_t>(start);
  const auto head = static_cast<std::int64_t>((static_cast<std::uintptr_t>(alignment) - address % alignment) % alignment);
  if (head > 0) munmap(start, static_cast<std::size_t>(head));
  if (slack - head > 0) munmap(start + head + length, static_cast<std::size_t>(slack - head));
  return start + head;
}

}  // namespace

Buffer::Buffer(void* data, std::int64_t bytes, MemoryKind where, Release release)
    : data_(data), bytes_(bytes), where_(where), release_(std::move(release)) {}

Buffer::Buffer(Buffer&& other) noexcept { *this = std::move(other); }

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  if (data_ != nullptr && release_) release_(data_, bytes_);
  data_ = std::exchange(other.data_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  where_ = other.where_;
  release_ = std::exchange(other.release_, nullptr);
  return *this;
}

Buffer::~Buffer() {
  if (data_ != nullptr && release_) release_(data_, bytes_);
}

Buffer allocate_host(std::int64_t bytes, const std::string& name) {
  TRIDENT_CHECK(bytes >= 0, "{}: {} bytes", name, bytes);
  check_allocation_allowed(static_cast<std::size_t>(bytes), name);
  if (bytes == 0) return {};
  const bool huge = bytes >= 2 * kHugePage;
  const std::int64_t length = round_up(bytes, kPage);
  std::byte* data = map_aligned(length, huge ? kHugePage : kPage, name);
  // Both are wishes: a kernel that does not know them gives small pages, or pages on first touch.
  if (huge) madvise(data, static_cast<std::size_t>(length), MADV_HUGEPAGE);
  madvise(data, static_cast<std::size_t>(length), MADV_POPULATE_WRITE);  // no page fault inside a step
  return {data, bytes, MemoryKind::kHost, [length](void* p, std::int64_t) { munmap(p, static_cast<std::size_t>(length)); }};
}

}  // namespace trident
