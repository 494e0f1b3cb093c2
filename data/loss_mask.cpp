#include "data/loss_mask.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/int_math.h"
#include "data/indexed_dataset.h"

namespace trident {
namespace {

constexpr std::int64_t kMaskHeaderBytes = 16;
constexpr std::int64_t kBytesAtOnce = 4096;

std::int64_t mask_bytes(std::int64_t num_tokens) { return kMaskHeaderBytes + ceil_div(num_tokens, 8); }

}  // namespace

std::string mask_path(const std::string& prefix) { return prefix + ".mask"; }

LossMask::LossMask(RandomAccessFile file, std::int64_t num_tokens) : file_(std::move(file)), num_tokens_(num_tokens) {
  if (file_.size() < kMaskHeaderBytes)
    refuse_dataset(file_, fmt::format("truncated: {} bytes, the header alone has {}", file_.size(), kMaskHeaderBytes));
  std::array<std::byte, kMaskHeaderBytes> header;
  file_.read(0, header);
  if (std::memcmp(header.data(), kMaskMagic.data(), kMaskMagic.size()) != 0)
    refuse_dataset(file_, "magic is not TMSK: not a mask of targets");
  std::uint32_t version = 0;
  std::uint64_t tokens = 0;
  std::memcpy(&version, header.data() + kMaskMagic.size(), sizeof version);
  std::memcpy(&tokens, header.data() + kMaskMagic.size() + sizeof version, sizeof tokens);
  if (version != kMaskVersion) refuse_dataset(file_, fmt::format("version = {}, expected {}", version, kMaskVersion));
  if (tokens != static_cast<std::uint64_t>(num_tokens))
    refuse_dataset(file_, fmt::format("token_count = {}, its .bin has {}: the mask of another file", tokens, num_tokens));
  if (file_.size() != mask_bytes(num_tokens))
    refuse_dataset(file_, fmt::format("{} bytes, {} tokens need {}: truncated or damaged", file_.size(), num_tokens,
                                      mask_bytes(num_tokens)));
}

void LossMask::read(std::int64_t first, std::span<std::uint8_t> counts) const {
  TRIDENT_CHECK(first >= 0 && first <= num_tokens_ - std::ssize(counts), "tokens {}+{} of {}", first, counts.size(), num_tokens_);
  std::array<std::byte, kBytesAtOnce> bytes;
  while (!counts.empty()) {
    const std::int64_t skipped = first % 8, here = std::min(std::ssize(counts), 8 * kBytesAtOnce - skipped);
    file_.read(kMaskHeaderBytes + first / 8, std::span(bytes).first(static_cast<std::size_t>(ceil_div(skipped + here, 8))));
    for (std::int64_t i = 0; i < here; ++i) {
      const std::int64_t bit = skipped + i;
      counts[static_cast<std::size_t>(i)] = std::to_integer<std::uint8_t>(bytes[static_cast<std::size_t>(bit / 8)]) >> bit % 8 & 1;
    }
    counts = counts.subspan(static_cast<std::size_t>(here));
    first += here;
  }
}

std::int64_t LossMask::counted(std::int64_t first, std::int64_t count) const {
  std::array<std::uint8_t, kBytesAtOnce> counts;
  std::int64_t sum = 0;
  for (const std::int64_t end = first + count; first < end;) {
    const std::span some = std::span(counts).first(static_cast<std::size_t>(std::min(kBytesAtOnce, end - first)));
    read(first, some);
    sum = std::accumulate(some.begin(), some.end(), sum);
    first += std::ssize(some);
  }
  return sum;
}

void LossMask::will_need(std::int64_t first, std::int64_t count) const {
  file_.will_need(kMaskHeaderBytes + first / 8, ceil_div(first % 8 + count, 8));
}

LossMaskWriter::LossMaskWriter(AtomicFile& file, std::int64_t num_tokens) : file_(file), num_tokens_(num_tokens) {
  const auto tokens = static_cast<std::uint64_t>(num_tokens);
  file_.append(kMaskMagic);
  file_.append(std::as_bytes(std::span(&kMaskVersion, 1)));
  file_.append(std::as_bytes(std::span(&tokens, 1)));
}

void LossMaskWriter::append(bool counts) {
  byte_ = static_cast<std::uint8_t>(byte_ | counts << appended_ % 8);
  counted_ += counts;
  if (++appended_ % 8 == 0) write_byte();
}

void LossMaskWriter::finish() {
  TRIDENT_CHECK(appended_ == num_tokens_, "{} of {} tokens were appended", appended_, num_tokens_);
  if (appended_ % 8 != 0) write_byte();
}

void LossMaskWriter::write_byte() {
  file_.append(std::as_bytes(std::span(&byte_, 1)));
  byte_ = 0;
}

}  // namespace trident
