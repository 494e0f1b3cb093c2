#include "parallel/health/lifeline.h"

#include <utility>

#include "core/clock.h"
#include "parallel/communicator/peer_failure.h"
#include "parallel/health/lifeline_dial.h"
#include "parallel/health/lifeline_thread.h"

namespace trident {
namespace {

constexpr double kAnswerSeconds = 1;

}  // namespace

int lifeline_deputy(const std::vector<int>& nodes) {
  for (std::size_t r = 1; r < nodes.size(); ++r)
    if (nodes[r] != nodes[0]) return static_cast<int>(r);
  return 1;
}

Lifeline::Lifeline(LifelineOptions options) {
  TRIDENT_CHECK(options.rank >= 0 && options.rank < options.size, "rank {} of {}", options.rank, options.size);
  TRIDENT_CHECK(options.deputy >= 1, "rank {} as the deputy of rank 0", options.deputy);
  TRIDENT_CHECK(options.silence_seconds >= 3 * options.heartbeat_seconds, "a silence of {} s with a heartbeat every {} s",
                options.silence_seconds, options.heartbeat_seconds);
  if (options.size > 1) thread_ = std::make_unique<LifelineThread>(options);
}

Lifeline::~Lifeline() {
  if (!thread_ || !connected_ || wait_for_verdict(0)) return;
  if (said_goodbye_) {
    thread_->wait_for_the_last();
    return;
  }
  thread_->fail(LifelineTrouble::kLeft, "", exit_status(ExitCode::kCommunication));
  wait_for_verdict(kAnswerSeconds);
}

std::string Lifeline::contact() const { return thread_ ? thread_->contact() : ""; }

void Lifeline::connect(const LifelineContacts& contacts) {
  if (!thread_) return;
  const LifelineOptions& options = thread_->options();
  connected_ = options.rank == 0;  // from the first connection on this rank owes the others a last word
  const double deadline = monotonic_seconds() + options.connect_seconds;
  thread_->set_job(parse_lifeline_contact(contacts.hub).key);
  for (const int listener : {0, options.deputy}) {
    if (options.rank == 0 || options.rank == listener || listener >= options.size) continue;
    LifelineHello peer;
    const LifelineCall call{thread_->hello(), listener, options.size, deadline - monotonic_seconds()};
    LifelineChannel channel = dial_lifeline(parse_lifeline_contact(listener == 0 ? contacts.hub : contacts.deputy), call, peer);
    thread_->connected(peer, std::move(channel));
    connected_ = true;
  }
  const std::set<int> missing = thread_->wait_for_calls(deadline - monotonic_seconds());
  if (const std::optional<LifelineVerdict> verdict = wait_for_verdict(0)) throw PeerFailure(verdict->line);
  if (missing.empty()) return;
  const std::string refusal = thread_->refusal();
  throw CommunicationError(
      fmt::format("lifeline: rank {} waited {:.3g} s on host {} for the calls of {} {}{}; look at what they printed, and let "
                  "TCP connections between the job's hosts pass the firewall",
                  options.rank, options.connect_seconds, options.host, missing.size() == 1 ? "rank" : "ranks",
                  rank_list({missing.begin(), missing.end()}), refusal.empty() ? "" : " (" + refusal + ")"));
}

StatusBoard& Lifeline::board() { return thread_ ? thread_->board() : board_; }

bool Lifeline::report_failure(std::string_view reason, int exit_code) {
  if (!thread_ || !connected_) return false;
  thread_->fail(LifelineTrouble::kFailed, std::string(reason), exit_code);
  return wait_for_verdict(kAnswerSeconds).has_value();
}

void Lifeline::goodbye(int exit_code) {
  if (!thread_) return;
  said_goodbye_ = true;
  thread_->say_goodbye(exit_code);
  thread_->wait_for_goodbye(kAnswerSeconds);
}

std::optional<LifelineVerdict> Lifeline::wait_for_verdict(double seconds) {
  return thread_ ? thread_->wait_for_verdict(seconds) : std::nullopt;
}

}  // namespace trident
