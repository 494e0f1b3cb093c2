#include "parallel/transport/wire_group.h"

#include <cstring>
#include <utility>

#include "core/int_math.h"

namespace trident {

namespace {

// A piece is worth a message while it is several times as long as the message's own header. With pieces this small the staging of
// 16,385 nodes stays within MessageOptions::staging_bytes; beyond, it grows.
constexpr std::int64_t kLeastChunk = 512, kChunkAlignment = 8;

std::int64_t chunk_bytes(const MessageOptions& options, int ranks) {
  const std::int64_t share = options.staging_bytes / (Transfer::kWindow * std::max(1, ranks - 1));
  const std::int64_t bytes = std::min(options.chunk_bytes, std::max(share, kLeastChunk));
  return std::max(bytes / kChunkAlignment, std::int64_t{1}) * kChunkAlignment;
}

}  // namespace

void Transfer::begin(std::byte* data, std::int64_t bytes, std::int64_t piece, Target target) {
  data_ = data;
  bytes_ = bytes;
  piece_ = piece;
  target_ = target;
  pieces_ = ceil_div(bytes, piece);
  posted_ = done_ = 0;
}

void Transfer::advance(WireEndpoint& endpoint, Direction direction, int peer, std::int32_t channel, std::int64_t limit) {
  for (;;) {
    for (; posted_ < std::min(limit, pieces_) && posted_ - done_ < kWindow; ++posted_) {
      std::byte* const at = data_ + (target_ == Target::kStaged ? posted_ % kWindow : posted_) * piece_;
      const std::int64_t bytes = std::min(piece_, bytes_ - posted_ * piece_);
      requests_[posted_ % kWindow] = direction == Direction::kSend ? endpoint.wire->send(at, bytes, peer, channel)
                                                                   : endpoint.wire->recv(at, bytes, peer, channel);
    }
    if (done_ == posted_ || !endpoint.test(requests_[done_ % kWindow])) return;
    ++done_;
  }
}

WireGroup::WireGroup(std::shared_ptr<WireEndpoint> endpoint, std::string name, int rank, std::vector<int> global_ranks,
                     std::int32_t channel, Staging staging)
    : sends(global_ranks.size()),
      recvs(global_ranks.size()),
      peers(global_ranks.size()),
      sources(global_ranks.size()),
      endpoint_(std::move(endpoint)),
      name_(std::move(name)),
      rank_(rank),
      global_ranks_(std::move(global_ranks)),
      channel_(channel),
      chunk_bytes_(trident::chunk_bytes(endpoint_->options, size())),
      staging_(new std::byte[static_cast<std::size_t>(staging == Staging::kNone ? 0 : staging_bytes())]) {}

std::byte* WireGroup::staging_of(int r) const {
  return staging_.get() + Transfer::kWindow * chunk_bytes_ * (r < rank_ ? r : r - 1);
}

std::int32_t WireEndpoint::take_channels(std::int64_t free) {
  const auto channel = checked_cast<std::int32_t>(free);
  next_channel = channel + WireGroup::kChannels;
  return channel;
}

void copy_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
  if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace trident
