#include "device/arena.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "core/int_math.h"
#include "core/number_text.h"

namespace trident {

namespace {

constexpr std::size_t kLargestEntriesShown = 8, kLargestEntriesNamed = 4;

// "unit  gradients f32 []": entries of equal size that have it in common are told as one.
std::string without_numbers(std::string name) {
  std::erase_if(name, [](unsigned char c) { return std::isdigit(c) != 0; });
  return name;
}

std::vector<const ArenaPlan::Entry*> largest_of(const ArenaPlan& plan, std::size_t most) {
  std::vector<const ArenaPlan::Entry*> largest;
  for (const ArenaPlan::Entry& entry : plan.entries()) largest.push_back(&entry);
  std::stable_sort(largest.begin(), largest.end(), [](const auto* a, const auto* b) { return a->slot.bytes > b->slot.bytes; });
  if (largest.size() > most) largest.resize(most);
  return largest;
}

}  // namespace

ArenaSlot ArenaPlan::book(std::string name, MemoryUse use, std::int64_t bytes) {
  TRIDENT_CHECK(bytes >= 0, "{}: {} bytes", name, bytes);
  const ArenaSlot slot{total_, bytes};
  total_ = round_up(total_ + bytes, kArenaAlignment);
  entries_.push_back({std::move(name), use, slot});
  return slot;
}

std::int64_t ArenaPlan::total_bytes(MemoryUse use) const {
  std::int64_t total = 0;
  for (const Entry& entry : entries_) {
    if (entry.use == use) total += round_up(entry.slot.bytes, kArenaAlignment);
  }
  return total;
}

ArenaSlot ScratchPlan::take(std::int64_t bytes) {
  TRIDENT_CHECK(bytes >= 0, "{} bytes of scratch", bytes);
  const ArenaSlot slot{top_, bytes};
  top_ = round_up(top_ + bytes, kArenaAlignment);
  high_water_ = std::max(high_water_, top_);
  return slot;
}

Arena::Arena(const ArenaPlan& plan, Buffer backing) : backing_(std::move(backing)), planned_(plan.total_bytes()) {
  TRIDENT_CHECK(backing_.num_bytes() >= planned_, "an arena of {} bytes on a backing of {}", planned_, backing_.num_bytes());
}

TensorView Arena::grant(ArenaSlot slot, DType dtype, Shape shape) {
  const TensorView view(backing_.data() + slot.offset, dtype, shape, backing_.where());
  TRIDENT_CHECK(view.num_bytes() <= slot.bytes, "{} {} needs {} bytes, the slot has {}", to_string(dtype), to_string(shape),
                view.num_bytes(), slot.bytes);
  const std::int64_t end = round_up(slot.offset + slot.bytes, kArenaAlignment);
  TRIDENT_CHECK(slot.offset >= 0 && slot.offset % kArenaAlignment == 0 && end <= planned_, "slot {}+{} of an arena of {} bytes",
                slot.offset, slot.bytes, planned_);
  high_water_ = std::max(high_water_, end);
  return view;
}

std::string largest_entries(const ArenaPlan& plan) {
  struct Alike {
    const ArenaPlan::Entry* first;
    int others;
  };
  std::vector<Alike> named;
  for (const ArenaPlan::Entry* entry : largest_of(plan, plan.entries().size())) {
    const auto same = [&](const Alike& it) {
      return it.first->slot.bytes == entry->slot.bytes && without_numbers(it.first->name) == without_numbers(entry->name);
    };
    const auto found = std::ranges::find_if(named, same);
    if (found != named.end()) ++found->others;
    else if (named.size() < kLargestEntriesNamed) named.push_back({entry, 0});
    else if (entry->slot.bytes < named.back().first->slot.bytes) break;
  }
  std::string text;
  for (const auto& [first, others] : named)
    text += fmt::format("{}{} {:.1f} MB{}", text.empty() ? "most of it for " : ", ", first->name, megabytes(first->slot.bytes),
                        others > 0 ? fmt::format(" and {} like it", others) : "");
  return text.empty() ? "nothing in it" : text;
}

std::string memory_report(const ArenaPlan& plan) {
  std::string text = fmt::format("{:.1f} MB:", megabytes(plan.total_bytes()));
  for (const MemoryUse use : kMemoryUses) {
    const std::int64_t bytes = plan.total_bytes(use);
    if (bytes > 0) text += fmt::format(" {} {:.1f} MB,", to_string(use), megabytes(bytes));
  }
  text.back() = '\n';
  for (const ArenaPlan::Entry* entry : largest_of(plan, kLargestEntriesShown)) {
    text += fmt::format("  {:>10.3f} MB  {:<13} {}\n", megabytes(entry->slot.bytes), to_string(entry->use), entry->name);
  }
  return text;
}

}  // namespace trident
