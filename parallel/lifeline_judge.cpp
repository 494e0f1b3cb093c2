#include "parallel/lifeline_judge.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace trident {
namespace {

constexpr std::size_t kMaxWaitGroups = 2, kMaxText = 600;
constexpr double kIdleSeconds = 3;

std::string one_line(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  if (text.size() > kMaxText) text = text.substr(0, kMaxText) + "...";
  return text;
}

std::string subject(const std::vector<int>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", rank_list(ranks));
}

std::string what_happened(const LifelineRank& rank, double now) {
  switch (rank.trouble) {
    case LifelineTrouble::kLost: return "was killed or crashed";
    case LifelineTrouble::kFailed: return "failed: " + one_line(rank.reason) + ";";
    case LifelineTrouble::kSilent:
      return fmt::format("was stopped or cannot be reached, not heard of for {:.1f} s,", now - rank.heard_at);
    case LifelineTrouble::kLeft: return "left before the job's end";
    case LifelineTrouble::kNone: break;
  }
  return "is well";
}

// "in training, step 17, after all_reduce #42 over tp, waiting 3.2 s in ..."
std::string where(const LifelineRank& rank) {
  const RankStatus& status = rank.status;
  std::string text = fmt::format("in {}", to_string(status.phase));
  if (status.step > 0) text += fmt::format(", step {}", status.step);
  if (status.sequence > 0)
    text += fmt::format(", last entered {} #{} over {}", field_text(status.operation), status.sequence,
                        field_text(status.communicator));
  if (status.waiting[0] != '\0') text += fmt::format(", waiting {:.1f} s in {}", status.waited_seconds, field_text(status.waiting));
  else if (rank.idle_seconds > kIdleSeconds) text += fmt::format(", without progress for {:.0f} s", rank.idle_seconds);
  return text;
}

// What the ranks without trouble were doing, those in the same wait together, the largest crowd first.
std::string others(const std::vector<LifelineRank>& ranks) {
  std::vector<std::pair<std::string, std::vector<int>>> waits;
  std::vector<int> busy;
  for (const LifelineRank& rank : ranks) {
    if (rank.trouble != LifelineTrouble::kNone || rank.finished) continue;
    const std::string text(field_text(rank.status.waiting));
    if (text.empty()) {
      busy.push_back(rank.rank);
      continue;
    }
    const auto same = std::find_if(waits.begin(), waits.end(), [&](const auto& wait) { return wait.first == text; });
    if (same != waits.end()) same->second.push_back(rank.rank);
    else waits.push_back({text, {rank.rank}});
  }
  std::stable_sort(waits.begin(), waits.end(), [](const auto& a, const auto& b) { return a.second.size() > b.second.size(); });
  std::string text;
  std::vector<int> elsewhere;
  for (std::size_t i = 0; i < waits.size(); ++i) {
    if (i < kMaxWaitGroups) text += fmt::format("; {} waited in {}", subject(waits[i].second), one_line(waits[i].first));
    else elsewhere.insert(elsewhere.end(), waits[i].second.begin(), waits[i].second.end());
  }
  std::sort(elsewhere.begin(), elsewhere.end());
  if (!elsewhere.empty()) text += fmt::format("; {} waited elsewhere", subject(elsewhere));
  if (!busy.empty()) text += fmt::format("; {} not waiting", subject(busy));
  return text;
}

const LifelineRank* first_cause(const std::vector<LifelineRank>& ranks) {
  const LifelineRank* cause = nullptr;
  for (const LifelineRank& rank : ranks) {
    if (rank.trouble == LifelineTrouble::kNone) continue;
    if (cause == nullptr || rank.trouble > cause->trouble || (rank.trouble == cause->trouble && rank.rank < cause->rank))
      cause = &rank;
  }
  return cause;
}

// The others in trouble. Those that merely left are a consequence.
std::string fellows(const std::vector<LifelineRank>& ranks, const LifelineRank& cause) {
  std::vector<int> same, failed, silent;
  for (const LifelineRank& rank : ranks) {
    if (&rank == &cause) continue;
    if (rank.trouble == cause.trouble) same.push_back(rank.rank);
    else if (rank.trouble == LifelineTrouble::kFailed) failed.push_back(rank.rank);
    else if (rank.trouble == LifelineTrouble::kSilent) silent.push_back(rank.rank);
  }
  std::string text;
  if (!same.empty()) text += fmt::format("; likewise {}", subject(same));
  if (!failed.empty()) text += fmt::format("; {} failed", subject(failed));
  if (!silent.empty()) text += fmt::format("; nothing is heard of {}", subject(silent));
  return text;
}

}  // namespace

std::string rank_list(const std::vector<int>& sorted_ranks) {
  std::string text;
  for (std::size_t i = 0; i < sorted_ranks.size();) {
    std::size_t end = i + 1;
    while (end < sorted_ranks.size() && sorted_ranks[end] == sorted_ranks[end - 1] + 1) ++end;
    if (!text.empty()) text += ", ";
    text += end - i >= 3 ? fmt::format("{}-{}", sorted_ranks[i], sorted_ranks[end - 1]) : fmt::format("{}", sorted_ranks[i]);
    i = end - i >= 3 ? end : i + 1;
  }
  return text;
}

std::string lifeline_line(const std::vector<LifelineRank>& ranks, double now, int exit_code) {
  const LifelineRank* cause = first_cause(ranks);
  if (cause == nullptr) return "";
  std::string line = fmt::format("rank {} (host {}, pid {}) {} {}", cause->rank, cause->host, cause->pid,
                                 what_happened(*cause, now), where(*cause));
  line += fellows(ranks, *cause) + others(ranks);
  return line + fmt::format("; exit code {} on all ranks", exit_code);
}

LifelineJudge::LifelineJudge(const LifelineJudgeOptions& options) : options_(options) {
  self_.rank = options_.rank;
  self_.pid = options_.pid;
  self_.host = options_.host;
}

void LifelineJudge::join(int rank, std::int64_t pid, std::string host, double now) {
  LifelineRank& peer = peers_[rank];
  peer.rank = rank;
  peer.pid = pid;
  peer.host = std::move(host);
  peer.heard_at = now;
}

void LifelineJudge::heard(int rank, const RankStatus& status, double idle_seconds, bool is_answer, double now) {
  const auto found = peers_.find(rank);
  if (found == peers_.end()) return;
  LifelineRank& peer = found->second;
  peer.status = status;
  peer.idle_seconds = idle_seconds;
  peer.heard_at = now;
  peer.answered = peer.answered || is_answer;
  if (peer.trouble == LifelineTrouble::kSilent) peer.trouble = LifelineTrouble::kNone;
}

void LifelineJudge::trouble(int rank, LifelineTrouble kind, std::string reason, int exit_code) {
  const auto found = peers_.find(rank);
  if (found == peers_.end() || found->second.trouble >= kind) return;
  found->second.trouble = kind;
  found->second.reason = std::move(reason);
  found->second.exit_code = exit_code;
}

void LifelineJudge::goodbye(int rank) {
  if (const auto found = peers_.find(rank); found != peers_.end()) found->second.finished = true;
}

void LifelineJudge::closed(int rank) {
  const auto found = peers_.find(rank);
  if (found == peers_.end()) return;
  LifelineRank& peer = found->second;
  peer.open = false;
  const bool explained = peer.finished || peer.trouble == LifelineTrouble::kFailed || peer.trouble == LifelineTrouble::kLeft;
  if (!explained) peer.trouble = LifelineTrouble::kLost;
}

void LifelineJudge::update_self(const RankStatus& status, double idle_seconds) {
  self_.status = status;
  self_.idle_seconds = idle_seconds;
}

void LifelineJudge::fail_self(LifelineTrouble kind, std::string reason, int exit_code) {
  if (self_.trouble >= kind) return;
  self_.trouble = kind;
  self_.reason = std::move(reason);
  self_.exit_code = exit_code;
}

bool LifelineJudge::is_out(int rank, double now) const {
  const auto found = peers_.find(rank);
  if (found == peers_.end()) return false;  // about to be called
  return !found->second.open || now - found->second.heard_at > options_.silence_seconds;
}

// Hub, else deputy, else everybody. A deputy that keeps quiet about a lost hub cannot see that it is lost: after some time the
// others speak as if there were none.
bool LifelineJudge::speaks(double now) const {
  if (options_.rank == 0) return true;
  if (!is_out(0, now)) return false;
  if (options_.rank == options_.deputy || is_out(options_.deputy, now)) return true;
  return trouble_since_ && now - *trouble_since_ > kPatienceSeconds;
}

bool LifelineJudge::any_trouble() const {
  return self_.trouble != LifelineTrouble::kNone ||
         std::any_of(peers_.begin(), peers_.end(), [](const auto& peer) { return peer.second.trouble != LifelineTrouble::kNone; });
}

bool LifelineJudge::all_answered() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    const LifelineRank& peer = entry.second;
    return peer.answered || !peer.open || peer.finished || peer.trouble != LifelineTrouble::kNone;
  });
}

LifelineJudge::Step LifelineJudge::step(double now) {
  if (concluded_) return Step::kNothing;
  for (auto& [rank, peer] : peers_) {
    const bool silent = peer.open && !peer.finished && now - peer.heard_at > options_.silence_seconds;
    if (silent && peer.trouble == LifelineTrouble::kNone) peer.trouble = LifelineTrouble::kSilent;
  }
  if (!any_trouble()) {
    trouble_since_.reset();
    asked_at_.reset();
    return Step::kNothing;
  }
  if (!trouble_since_) trouble_since_ = now;
  if (!speaks(now)) return Step::kNothing;
  if (!asked_at_) {
    asked_at_ = now;
    for (auto& [rank, peer] : peers_) peer.answered = false;
    return Step::kAsk;
  }
  if (now - *asked_at_ < kCollectSeconds && !all_answered()) return Step::kNothing;
  concluded_ = true;
  return Step::kConclude;
}

double LifelineJudge::next_step(double now) const {
  if (concluded_ || !trouble_since_) return now + options_.silence_seconds / 16;
  return asked_at_ ? *asked_at_ + kCollectSeconds : now + kPatienceSeconds / 16;
}

int LifelineJudge::exit_code() const {
  std::vector<LifelineRank> ranks{self_};
  for (const auto& [rank, peer] : peers_) ranks.push_back(peer);
  const LifelineRank* cause = first_cause(ranks);
  return cause != nullptr && cause->trouble == LifelineTrouble::kFailed ? cause->exit_code : LifelineRank().exit_code;
}

std::string LifelineJudge::line(double now) const {
  std::vector<LifelineRank> ranks{self_};
  for (const auto& [rank, peer] : peers_) ranks.push_back(peer);
  std::sort(ranks.begin(), ranks.end(), [](const LifelineRank& a, const LifelineRank& b) { return a.rank < b.rank; });
  return lifeline_line(ranks, now, exit_code());
}

}  // namespace trident
