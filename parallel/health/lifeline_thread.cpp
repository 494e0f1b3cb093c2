#include "parallel/health/lifeline_thread.h"

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <exception>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <variant>

#include "core/at.h"
#include "core/check.h"
#include "core/clock.h"
#include "parallel/health/lifeline_acceptor.h"
#include "parallel/health/lifeline_dial.h"

namespace trident {
namespace {

constexpr double kFreshSeconds = 0.5;   // a wait that was not confirmed for longer is over
constexpr double kLingerSeconds = 0.5;  // at the end, for what is not sent yet
constexpr double kPartingSecondsPerRank = 1e-3;

std::chrono::duration<double> seconds_of(double seconds) { return std::chrono::duration<double>(seconds); }

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

}  // namespace

LifelineThread::LifelineThread(const LifelineOptions& options)
    : options_(options),
      judge_({options.rank, options.deputy, getpid(), options.host, options.silence_seconds,
              options.parting_seconds + kPartingSecondsPerRank * options.size}) {
  epoll_ = FileDescriptor(epoll_create1(EPOLL_CLOEXEC));
  wake_ = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_ || !wake_) throw CommunicationError(fmt::format("lifeline: {}; raise ulimit -n", std::strerror(errno)));
  epoll_control(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), EPOLLIN);
  if (is_listener()) open_door();
  clock_read_at_ = monotonic_seconds();
  // Signals are for the threads that have handlers in mind.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw CommunicationError(fmt::format("lifeline: rank {} got no thread: {}; raise ulimit -u", options_.rank, error.what()));
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void LifelineThread::open_door() {
  make_room_for_descriptors(options_.size + 64, fmt::format("lifeline: rank {} of {}", options_.rank, options_.size));
  LifelineListener listener = open_lifeline_listener(options_.host, options_.reach, options_.interfaces);
  contact_ = to_text(listener.contact);
  for (int r = 1; r < options_.size; ++r)
    if (r != options_.rank) awaited_.insert(r);
  if (!awaited_.empty()) door_.emplace(epoll_.get(), std::move(listener), hello(), options_.size);
}

LifelineThread::~LifelineThread() {
  post(nullptr);
  thread_.join();
}

void LifelineThread::post(std::function<void()> order) {
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back(std::move(order));
  }
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(wake_.get(), &one, sizeof one);  // a full counter wakes as well
}

LifelineHello LifelineThread::hello() const {
  LifelineHello hello;
  hello.rank = options_.rank;
  hello.pid = getpid();
  set_field(hello.host, options_.host);
  return hello;
}

void LifelineThread::set_job(const SipHashKey& key) {
  const std::lock_guard lock(mutex_);
  job_ = key;
}

std::string LifelineThread::refusal() {
  const std::lock_guard lock(mutex_);
  return refusal_;
}

std::set<int> LifelineThread::wait_for_calls(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, seconds_of(seconds), [&] { return awaited_.empty() || verdict_; });
  return awaited_;
}

std::optional<LifelineVerdict> LifelineThread::wait_for_verdict(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, seconds_of(seconds), [&] { return verdict_.has_value(); });
  return verdict_;
}

void LifelineThread::wait_for_goodbye(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, seconds_of(seconds), [&] { return goodbye_said_; });
}

void LifelineThread::wait_for_the_last() {
  if (options_.rank != 0) return;
  std::unique_lock lock(mutex_);
  const double most = options_.parting_seconds + kPartingSecondsPerRank * options_.size + kLingerSeconds;
  changed_.wait_for(lock, seconds_of(most), [&] { return verdict_ || is_alone_; });
}

void LifelineThread::run() {
  try {
    watch();
  } catch (const std::exception& error) {
    give_up(error.what());
  }
}

void LifelineThread::watch() {
  std::array<epoll_event, 64> events;
  for (;;) {
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), milliseconds_to_next_duty());
    advance_clock();
    for (int i = 0; i < count; ++i) dispatch(at(events, i).data.fd);
    obey_orders();
    do_duties();
    judge();
    if (end_at_ && (may_end() || clock_ >= *end_at_)) return;
    if (!end_at_ && exit_at_ && clock_ >= *exit_at_) _exit(exit_code_);
  }
}

// Time in which this process did not run counts for nobody, or whoever stops a debugger would accuse all the others.
void LifelineThread::advance_clock() {
  const double now = monotonic_seconds();
  clock_ += std::min(now - clock_read_at_, 2 * options_.heartbeat_seconds);
  clock_read_at_ = now;
}

int LifelineThread::milliseconds_to_next_duty() const {
  double next = next_heartbeat_;
  // Later it takes no step, and one that is due stays due.
  if (!exit_at_ && !end_at_) next = std::min(next, judge_.next_step(clock_));
  for (const auto& [rank, due] : answers_due_) next = std::min(next, due);
  if (exit_at_) next = std::min(next, *exit_at_);
  if (end_at_) next = std::min(next, *end_at_);
  return std::max(0, static_cast<int>(std::ceil(1000 * (next - clock_))));
}

void LifelineThread::dispatch(int fd) {
  std::uint64_t count;
  if (fd == wake_.get()) {
    [[maybe_unused]] const ssize_t got = read(fd, &count, sizeof count);
  } else if (door_ && door_->knows(fd)) {
    if (std::optional<LifelineAcceptor::Arrival> arrival = door_->serve(fd, clock_)) welcome(std::move(*arrival));
  } else if (const auto known = rank_of_.find(fd); known != rank_of_.end()) {
    serve(known->second);
  }
}

// Calls

// Once everybody is here, nobody else can get in.
void LifelineThread::welcome(LifelineAcceptor::Arrival arrival) {
  const int rank = arrival.first.rank;
  if (judge_.peers().contains(rank)) return;
  adopt(arrival.first, std::move(arrival.second));
  bool is_last = false;
  {
    const std::lock_guard lock(mutex_);
    awaited_.erase(rank);
    is_last = awaited_.empty();
    changed_.notify_all();
  }
  if (is_last) door_.reset();
  serve(rank);  // what came right behind lies in the channel, where epoll does not see it
}

void LifelineThread::adopt(const LifelineHello& peer, LifelineChannel channel) {
  const int fd = channel.fd();
  epoll_control(epoll_.get(), EPOLL_CTL_ADD, fd, EPOLLIN);
  rank_of_[fd] = peer.rank;
  links_.insert_or_assign(peer.rank, Link{std::move(channel)});
  judge_.join(peer.rank, peer.pid, std::string(field_text(peer.host)), clock_);
}

// Conversation

void LifelineThread::serve(int rank) {
  const auto found = links_.find(rank);
  Link& link = found->second;
  link.channel.flush();
  if (link.awaits_room && !link.channel.has_unsent()) {
    link.awaits_room = false;
    epoll_control(epoll_.get(), EPOLL_CTL_MOD, link.channel.fd(), EPOLLIN);
  }
  link.channel.receive();
  while (const std::optional<LifelineMessage> message = link.channel.next()) take(rank, *message);
  if (link.channel.open()) return;
  judge_.closed(rank);
  rank_of_.erase(link.channel.fd());
  answers_due_.erase(rank);
  links_.erase(found);
  if (!links_.empty()) return;
  const std::lock_guard lock(mutex_);
  is_alone_ = true;
  changed_.notify_all();
}

void LifelineThread::take(int rank, const LifelineMessage& message) {
  std::visit(Overloaded{
                 [&](const LifelineHeartbeat& beat) {
                   judge_.heard(rank, beat.status, beat.idle_seconds, beat.is_answer != 0, clock_);
                 },
                 [&](const LifelineAsk&) { answers_due_[rank] = clock_ + LifelineJudge::kAnswerSeconds; },
                 [&](const LifelineFailure& failure) {
                   judge_.trouble(rank, failure.is_departure != 0 ? LifelineTrouble::kLeft : LifelineTrouble::kFailed,
                                  std::string(field_text(failure.text)), failure.exit_code);
                 },
                 [&](const LifelineDecision& decision) {
                   if (exit_at_) return;
                   if (is_listener()) say_to_all(decision);  // whoever cannot hear the speaker may hear its deputy
                   pronounce({std::string(field_text(decision.line)), decision.exit_code, decision.is_failure != 0});
                 },
                 [&](const LifelineGoodbye&) { judge_.goodbye(rank); }, [](const auto&) {},  // introductions are over
             },
             message);
}

void LifelineThread::say(int rank, const LifelineMessage& message) {
  const auto found = links_.find(rank);
  if (found == links_.end()) return;
  Link& link = found->second;
  link.channel.send(message);
  if (link.channel.has_unsent() && !link.awaits_room) {
    link.awaits_room = true;
    epoll_control(epoll_.get(), EPOLL_CTL_MOD, link.channel.fd(), EPOLLIN | EPOLLOUT);
  }
}

void LifelineThread::say_to_all(const LifelineMessage& message) {
  for (const auto& [rank, link] : links_) say(rank, message);
}

LifelineHeartbeat LifelineThread::heartbeat(bool is_answer) {
  LifelineHeartbeat beat;
  beat.status = board_.read();
  if (beat.status.progress != progress_) {
    progress_ = beat.status.progress;
    progressed_at_ = clock_;
  }
  if (monotonic_seconds() - beat.status.waiting_as_of > kFreshSeconds) beat.status.waiting[0] = '\0';
  beat.idle_seconds = clock_ - progressed_at_;
  const CallMark::Look call = options_.calls == nullptr ? CallMark::Look() : options_.calls->look();
  if (call != call_) {
    call_ = call;
    in_call_since_ = clock_;
  }
  if (call.call != nullptr) {
    set_field(beat.status.call, call.call);
    beat.status.call_seconds = clock_ - in_call_since_;
  }
  beat.is_answer = is_answer ? 1 : 0;
  return beat;
}

// Duties

void LifelineThread::connected(const LifelineHello& peer, LifelineChannel channel) {
  post([this, peer, mine = std::make_shared<LifelineChannel>(std::move(channel))] {
    adopt(peer, std::move(*mine));
    say(peer.rank, heartbeat(false));
    serve(peer.rank);
  });
}

void LifelineThread::fail(LifelineTrouble trouble, const std::string& reason, int exit_code) {
  post([=, this] {
    failed_self_ = true;
    judge_.fail_self(trouble, reason, exit_code);
    LifelineFailure message;
    message.exit_code = exit_code;
    message.is_departure = trouble == LifelineTrouble::kLeft ? 1 : 0;
    set_field(message.text, reason);
    if (!exit_at_) say_to_all(message);
  });
}

void LifelineThread::say_goodbye(int exit_code) {
  post([=, this] {
    say_to_all(LifelineGoodbye());
    judge_.finish_self(exit_code);
    const std::lock_guard lock(mutex_);
    goodbye_said_ = true;
    changed_.notify_all();
  });
}

void LifelineThread::obey_orders() {
  std::vector<std::function<void()>> orders;
  {
    const std::lock_guard lock(mutex_);
    orders.swap(orders_);
  }
  for (const std::function<void()>& order : orders) {
    if (order != nullptr) order();
    // Whoever spoke for many is there until the slowest of them has concluded.
    else end_at_ = claim_ ? *exit_at_ : clock_ + kLingerSeconds;
  }
}

void LifelineThread::do_duties() {
  for (auto due = answers_due_.begin(); due != answers_due_.end();) {
    if (clock_ < due->second) {
      ++due;
      continue;
    }
    say(due->first, heartbeat(true));
    due = answers_due_.erase(due);
  }
  if (clock_ < next_heartbeat_) return;
  next_heartbeat_ = clock_ + options_.heartbeat_seconds;
  const LifelineHeartbeat beat = heartbeat(false);
  judge_.update_self(beat.status, beat.idle_seconds);
  say_to_all(beat);
  if (!door_) return;
  door_->tend(clock_);
  const std::lock_guard lock(mutex_);
  refusal_ = door_->refusal();
}

void LifelineThread::judge() {
  if (exit_at_ || end_at_) return;
  switch (judge_.step(clock_)) {
    case LifelineJudge::Step::kNothing: return;
    case LifelineJudge::Step::kAsk: say_to_all(LifelineAsk()); return;
    case LifelineJudge::Step::kConclude: conclude();
  }
}

void LifelineThread::conclude() {
  const LifelineHeartbeat now = heartbeat(false);
  judge_.update_self(now.status, now.idle_seconds);
  LifelineVerdict verdict{.line = judge_.line(clock_), .exit_code = judge_.exit_code(), .is_failure = judge_.any_trouble()};
  if (judge_.is_one_of_many()) {
    const std::lock_guard lock(mutex_);
    claim_ = claim_job(job_);
  }
  if (options_.print && (!judge_.is_one_of_many() || claim_)) {
    if (const std::optional<LifelineRank> cause = judge_.cause()) {
      verdict.rank = cause->rank;
      verdict.host = cause->host;
      verdict.what = to_string(cause->trouble);
      verdict.step = cause->status.step;
    }
    options_.print(verdict);
  }
  LifelineDecision decision;
  decision.exit_code = verdict.exit_code;
  decision.is_failure = verdict.is_failure ? 1 : 0;
  set_field(decision.line, verdict.line);
  say_to_all(decision);
  pronounce(std::move(verdict));
}

void LifelineThread::pronounce(LifelineVerdict verdict) {
  exit_code_ = verdict.exit_code;
  exit_at_ = clock_ + options_.grace_seconds;
  say_to_all(LifelineGoodbye());  // what ends from here on ends because of the verdict
  if (!failed_self_ && options_.on_failure) options_.on_failure(verdict);
  const std::lock_guard lock(mutex_);
  verdict_ = std::move(verdict);
  changed_.notify_all();
}

// Nothing is left to send; after a verdict everybody who can hear has heard it.
bool LifelineThread::may_end() const {
  if (claim_) return false;
  return std::all_of(links_.begin(), links_.end(), [&](const auto& entry) {
    const LifelineRank& peer = judge_.peers().at(entry.first);
    const bool knows = !exit_at_ || !is_listener() || peer.finished || peer.trouble == LifelineTrouble::kSilent;
    return knows && !entry.second.channel.has_unsent();
  });
}

// Without its lifeline a rank would hold up nobody but be missed by all: it ends, as one that failed, and says so where it can.
// Little is called here that could fail as what came before did.
void LifelineThread::give_up(const char* why) noexcept {
  exit_code_ = exit_at_ || end_at_ ? exit_code_ : LifelineVerdict().exit_code;
  const double deadline = monotonic_seconds() + options_.grace_seconds;
  try {
    const std::string reason = fmt::format("its lifeline ended: {}", why);
    LifelineFailure message;
    message.exit_code = exit_code_;
    set_field(message.text, reason);
    if (!exit_at_) say_to_all(message);
    links_.clear();
    const std::string line = fmt::format("rank {} (host {}, pid {}) failed: {}; exit code {}", options_.rank, options_.host,
                                         getpid(), reason, exit_code_);
    LifelineVerdict verdict{line, exit_code_};
    if (!exit_at_ && !failed_self_ && options_.on_failure) options_.on_failure(verdict);
    const std::lock_guard lock(mutex_);
    if (!verdict_) verdict_ = std::move(verdict);
  } catch (...) {  // the process ends below
  }
  changed_.notify_all();
  if (!wait_for_end(deadline - monotonic_seconds())) _exit(exit_code_);
}

// Whether the process has come to its end by itself within `seconds`.
bool LifelineThread::wait_for_end(double seconds) noexcept {
  const double deadline = monotonic_seconds() + seconds;
  const auto is_asked = [&] {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(orders_, [](const auto& order) { return order == nullptr; });
  };
  while (!end_at_ && !is_asked()) {
    if (monotonic_seconds() >= deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace trident
