#include "parallel/cuda/nccl_watch.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/at.h"
#include "core/check.h"
#include "core/clock.h"
#include "device/no_allocation.h"

namespace trident {

namespace {

constexpr double kLookSeconds = 0.01;

}  // namespace

void NcclWatch::prepare(const CollectiveCall& call, std::uint64_t number, const NcclHandle& handle) {
  busy_ = true;
  call_ = call;
  number_ = number;
  handle_ = &handle;
  told_on_ = nullptr;
  compared_ = launched_ = false;
  watched_since_ = 0;
}

void NcclWatch::tell(Communicator& host, CpuStream& stream) {
  const auto words = CallRecord{fingerprint_of(call_, group_->global_ranks), 0}.words();
  std::copy(words.begin(), words.end(), mine_.as<std::int64_t>());
  told_on_ = &stream;
  if (call_.operation == CommOperation::kSend) host.send(stream, mine_, call_.root);
  else if (call_.operation == CommOperation::kRecv) host.recv(stream, all_.range(0, kRecordWords), call_.root);
  else host.all_gather(stream, all_, mine_);
  told_ = stream.record();
}

void NcclWatch::launched(cudaStream_t stream) {
  done_.record(stream);
  launched_ = true;
}

bool NcclWatch::poll() {
  if (told_on_ != nullptr && told_.done()) compare();
  if (launched_ && told_on_ == nullptr && done_.done()) return complete();
  look_for_trouble();
  return false;
}

void NcclWatch::compare() {
  told_on_ = nullptr;
  compared_ = true;
  const AllocationExemption message;
  std::optional<std::string> differs;
  if (call_.operation == CommOperation::kRecv) {
    const IssuedCall receiver{fingerprint_of(call_, group_->global_ranks), number_, at(group_->global_ranks, group_->rank)};
    const IssuedCall sender{record_of_words(all_.span<std::int64_t>()).fingerprint, number_, at(group_->global_ranks, call_.root)};
    if (!is_one_message(sender.fingerprint, receiver.fingerprint)) differs = message_disagreement(group_->name, receiver, sender);
  } else if (call_.operation != CommOperation::kSend) {
    differs = first_disagreement(group_->name, number_, group_->global_ranks, all_.span<std::int64_t>());
  }
  if (differs) group_->fail(*differs);
}

void NcclWatch::look_for_trouble() {
  const double now = monotonic_seconds();
  if (watched_since_ == 0) watched_since_ = looked_ = now;
  if (now - looked_ < kLookSeconds || !handle_->joined()) return;
  looked_ = now;
  const AllocationExemption message;
  if (const ncclResult_t state = handle_->asynchronous_error(); state != ncclSuccess && state != ncclInProgress) {
    group_->fail(fmt::format("{}: NCCL reports \"{}\" while rank {} waits for {} {}; NCCL_DEBUG=WARN says more", group_->name,
                             handle_->explain(state), at(group_->global_ranks, group_->rank), call_text(), ranks_text()));
  }
  if (now - watched_since_ >= group_->timeout_seconds) {
    group_->fail(
        fmt::format("rank {} waited {:.3g} s for {}", at(group_->global_ranks, group_->rank), now - watched_since_, describe()));
  }
}

std::string NcclWatch::call_text() const { return describe_call(call_, number_, group_->global_ranks, group_->name); }

std::string NcclWatch::ranks_text() const { return fmt::format("among ranks {}", fmt::join(group_->global_ranks, ", ")); }

std::string NcclWatch::describe() const {
  if (told_on_ != nullptr) return fmt::format("{}: {}", call_text(), told_on_->describe_head());
  if (!launched_) return call_text() + ": not started";
  return fmt::format("{}: {}, and NCCL is not done {}", call_text(), compared_ ? "all have called it" : "nothing was compared",
                     ranks_text());
}

}  // namespace trident
