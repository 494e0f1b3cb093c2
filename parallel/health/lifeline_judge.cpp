#include "parallel/health/lifeline_judge.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

namespace trident {
namespace {

constexpr std::size_t kMaxWaitGroups = 2, kMaxText = 600, kMaxListed = 8;
constexpr double kIdleSeconds = 3;
constexpr double kSoonSeconds = 0.005;  // what is due is due at once, and no sooner

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
    case LifelineTrouble::kLost: return std::string(to_string(rank.trouble));
    case LifelineTrouble::kFailed: return "failed: " + one_line(rank.reason) + ";";
    case LifelineTrouble::kSilent:
      return fmt::format("was stopped or cannot be reached, not heard of for {:.1f} s,", now - rank.heard_at);
    case LifelineTrouble::kLeft: return "left before the job's end";
    case LifelineTrouble::kStuck:
      return fmt::format("has stood in {} for {:.1f} s", field_text(rank.status.call), rank.status.call_seconds);
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

// Says what the ranks without trouble were doing, grouped by wait, the largest group first.
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

// The remedy of the cause, where the line does not name it already.
std::string remedy(const LifelineRank& cause) {
  if (cause.trouble != LifelineTrouble::kStuck) return "";
  return fmt::format(
      "; that call never waits: most likely a process outside the job holds a connection to the MPI port of rank {}; "
      "let no host outside the job reach the ranks' MPI ports: a firewall, or a network of the job's own (docs/stopping.md)",
      cause.rank);
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
  const std::size_t count = sorted_ranks.size();
  std::size_t listed = 0;
  for (std::size_t i = 0; i < count; ++listed) {
    if (listed == kMaxListed) return text + fmt::format(" and {} more", count - i);
    // As many as follow at equal distances: three that are neighbours or four that are not are worth a range.
    std::size_t end = std::min(i + 2, count);
    const int step = end - i == 2 ? sorted_ranks[i + 1] - sorted_ranks[i] : 1;
    while (end < count && sorted_ranks[end] == sorted_ranks[end - 1] + step) ++end;
    if (end - i < (step == 1 ? 3u : 4u)) end = i + 1;
    if (!text.empty()) text += ", ";
    text += std::to_string(sorted_ranks[i]);
    if (end - i > 1) text += fmt::format("-{}", sorted_ranks[end - 1]);
    if (end - i > 1 && step > 1) text += fmt::format(" step {}", step);
    i = end;
  }
  return text;
}

std::string lifeline_line(const std::vector<LifelineRank>& ranks, double now, int exit_code) {
  const LifelineRank* cause = first_cause(ranks);
  if (cause == nullptr) return "";
  std::string line = fmt::format("rank {} (host {}, pid {}) {} {}", cause->rank, cause->host, cause->pid,
                                 what_happened(*cause, now), where(*cause));
  line += remedy(*cause) + fellows(ranks, *cause) + others(ranks);
  return line + fmt::format("; exit code {} on all ranks", exit_code);
}

std::string parting_line(const std::vector<LifelineRank>& ranks, int speaker, double now, double seconds, int exit_code) {
  std::map<std::string, std::vector<int>> by_call;
  std::string stopped, where;
  std::size_t num_stopped = 0;
  for (const LifelineRank& rank : ranks) {
    const std::string call(field_text(rank.status.call));
    if (!rank.open || (rank.rank == speaker && call.empty())) continue;
    // A process that runs is heard of many times in this; it hears the verdict and ends, wherever it is.
    if (rank.rank == speaker || now - rank.heard_at <= seconds / 2) {
      by_call[call.empty() ? "no call of MPI" : call].push_back(rank.rank);
    } else if (++num_stopped <= kMaxListed) {
      stopped += fmt::format("{}rank {} (host {}, pid {})", num_stopped == 1 ? "; " : ", ", rank.rank, rank.host, rank.pid);
    }
  }
  if (num_stopped > kMaxListed) stopped += fmt::format(" and {} more", num_stopped - kMaxListed);
  if (num_stopped == 1) where = stopped + " has not ended, and the launcher waits for it: kill it there";
  if (num_stopped > 1) where = stopped + " have not ended, and the launcher waits for them: kill them there";
  for (const auto& [call, there] : by_call) where += fmt::format("; {} in {}", subject(there), call);
  return fmt::format(
      "the job is done and its files are written, but its ranks have not parted for {:.0f} s{}; exit code {} on all ranks", seconds,
      where, exit_code);
}

LifelineJudge::LifelineJudge(const LifelineJudgeOptions& options) : options_(options) {
  self_.rank = options_.rank;
  self_.pid = options_.pid;
  self_.host = options_.host;
}

void LifelineJudge::join(int rank, std::int64_t pid, std::string host, double now) {
  const auto [found, is_new] = peers_.try_emplace(rank);
  if (!is_new) return;
  LifelineRank& peer = found->second;
  peer.rank = rank;
  peer.pid = pid;
  peer.host = std::move(host);
  peer.heard_at = now;
  place_[rank] = by_silence_.insert(by_silence_.end(), rank);
  ++num_at_work_;
}

void LifelineJudge::heard(int rank, const RankStatus& status, double idle_seconds, bool is_answer, double now) {
  const auto found = peers_.find(rank);
  if (found == peers_.end()) return;
  LifelineRank& peer = found->second;
  peer.status = status;
  peer.idle_seconds = idle_seconds;
  peer.heard_at = now;
  peer.answered = peer.answered || is_answer;
  const bool is_stuck = status.call_seconds > options_.silence_seconds && !peer.finished;
  if (peer.trouble <= LifelineTrouble::kSilent && peer.trouble != LifelineTrouble::kLeft)
    set_trouble(peer, is_stuck ? LifelineTrouble::kStuck : LifelineTrouble::kNone);
  const auto place = place_.find(rank);
  if (place != place_.end())
    by_silence_.splice(by_silence_.end(), by_silence_, place->second);
  else if (peer.open && !peer.finished)
    place_[rank] = by_silence_.insert(by_silence_.end(), rank);
}

void LifelineJudge::trouble(int rank, LifelineTrouble kind, std::string reason, int exit_code) {
  const auto found = peers_.find(rank);
  if (found == peers_.end() || found->second.trouble >= kind) return;
  set_trouble(found->second, kind);
  found->second.reason = std::move(reason);
  found->second.exit_code = exit_code;
}

void LifelineJudge::goodbye(int rank) {
  const auto found = peers_.find(rank);
  if (found == peers_.end() || found->second.finished) return;
  found->second.finished = true;
  if (found->second.open) no_longer_expected(rank);
}

void LifelineJudge::closed(int rank) {
  const auto found = peers_.find(rank);
  if (found == peers_.end() || !found->second.open) return;
  LifelineRank& peer = found->second;
  peer.open = false;
  if (!peer.finished) no_longer_expected(rank);
  const bool explained = peer.finished || peer.trouble == LifelineTrouble::kFailed || peer.trouble == LifelineTrouble::kLeft;
  if (!explained) set_trouble(peer, LifelineTrouble::kLost);
}

void LifelineJudge::no_longer_expected(int rank) {
  --num_at_work_;
  const auto place = place_.find(rank);
  if (place == place_.end()) return;
  by_silence_.erase(place->second);
  place_.erase(place);
}

void LifelineJudge::set_trouble(LifelineRank& peer, LifelineTrouble kind) {
  num_troubled_ += (kind != LifelineTrouble::kNone) - (peer.trouble != LifelineTrouble::kNone);
  peer.trouble = kind;
}

void LifelineJudge::update_self(const RankStatus& status, double idle_seconds) {
  self_.status = status;
  self_.idle_seconds = idle_seconds;
  const bool is_stuck = status.call_seconds > options_.silence_seconds && !self_.finished;
  if (self_.trouble == LifelineTrouble::kNone || self_.trouble == LifelineTrouble::kStuck)
    self_.trouble = is_stuck ? LifelineTrouble::kStuck : LifelineTrouble::kNone;
}

void LifelineJudge::fail_self(LifelineTrouble kind, std::string reason, int exit_code) {
  if (self_.trouble >= kind) return;
  self_.trouble = kind;
  self_.reason = std::move(reason);
  self_.exit_code = exit_code;
}

void LifelineJudge::finish_self(int exit_code) {
  self_.finished = true;
  self_.exit_code = exit_code;
  if (self_.trouble == LifelineTrouble::kStuck) self_.trouble = LifelineTrouble::kNone;
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

bool LifelineJudge::all_answered() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const auto& entry) {
    const LifelineRank& peer = entry.second;
    return peer.answered || !peer.open || peer.finished || peer.trouble != LifelineTrouble::kNone;
  });
}

void LifelineJudge::find_the_silent(double now) {
  while (!by_silence_.empty()) {
    LifelineRank& peer = peers_.at(by_silence_.front());
    if (now - peer.heard_at <= options_.silence_seconds) return;
    if (peer.trouble == LifelineTrouble::kNone || peer.trouble == LifelineTrouble::kStuck)
      set_trouble(peer, LifelineTrouble::kSilent);
    place_.erase(peer.rank);  // until it is heard again
    by_silence_.pop_front();
  }
}

LifelineJudge::Step LifelineJudge::step(double now) {
  if (concluded_) return Step::kNothing;
  find_the_silent(now);
  if (!any_trouble()) {
    trouble_since_.reset();
    asked_at_.reset();
    return parting_step(now);
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

// Whoever is not the hub may know of few ranks only, and counts from when it is the one to speak.
LifelineJudge::Step LifelineJudge::parting_step(double now) {
  if (!all_finished() || !speaks(now)) {
    finished_since_.reset();
    return Step::kNothing;
  }
  if (!finished_since_) finished_since_ = now;
  concluded_ = now - *finished_since_ >= options_.parting_seconds;
  return concluded_ ? Step::kConclude : Step::kNothing;
}

double LifelineJudge::next_step(double now) const {
  if (asked_at_ && !concluded_) return *asked_at_ + kCollectSeconds;
  if (trouble_since_ && !concluded_) return now + kPatienceSeconds / 16;
  double next = now + options_.silence_seconds;
  if (!by_silence_.empty() && !concluded_) next = peers_.at(by_silence_.front()).heard_at + options_.silence_seconds;
  if (finished_since_ && !concluded_) next = std::min(next, *finished_since_ + options_.parting_seconds);
  return std::max(next, now + kSoonSeconds);
}

std::vector<LifelineRank> LifelineJudge::everybody() const {
  std::vector<LifelineRank> ranks{self_};
  for (const auto& [rank, peer] : peers_) ranks.push_back(peer);
  std::sort(ranks.begin(), ranks.end(), [](const LifelineRank& a, const LifelineRank& b) { return a.rank < b.rank; });
  return ranks;
}

int LifelineJudge::exit_code() const {
  if (!any_trouble()) return self_.exit_code;
  const std::vector<LifelineRank> ranks = everybody();
  const LifelineRank* cause = first_cause(ranks);
  return cause != nullptr && cause->trouble == LifelineTrouble::kFailed ? cause->exit_code : LifelineRank().exit_code;
}

std::optional<LifelineRank> LifelineJudge::cause() const {
  const std::vector<LifelineRank> ranks = everybody();
  const LifelineRank* cause = first_cause(ranks);
  return cause == nullptr ? std::nullopt : std::optional(*cause);
}

std::string LifelineJudge::line(double now) const {
  if (!any_trouble())
    return parting_line(everybody(), options_.rank, now, now - finished_since_.value_or(now), exit_code());
  return lifeline_line(everybody(), now, exit_code());
}

}  // namespace trident
