// Lifelines of one process, one thread each for connecting: what holds without anybody's death.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "core/check.h"
#include "core/clock.h"
#include "parallel/communicator/peer_failure.h"
#include "parallel/health/lifeline.h"
#include "parallel/health/lifeline_dial.h"
#include "parallel/health/lifeline_listener.h"
#include "parallel/health/socket_address.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

struct Crew {
  explicit Crew(int size, const std::function<void(LifelineOptions&)>& tune = {}) : woken(static_cast<std::size_t>(size)) {
    for (int r = 0; r < size; ++r) {
      LifelineOptions options;
      options.rank = r;
      options.size = size;
      options.host = "h";
      options.heartbeat_seconds = 0.2;
      options.silence_seconds = 5;
      options.grace_seconds = 100;  // it would be the end of the test's process
      options.print = [this](const LifelineVerdict& verdict) {
        const std::lock_guard lock(mutex);
        printed.push_back(verdict.line);
      };
      options.on_failure = [this, r](const LifelineVerdict&) { woken[static_cast<std::size_t>(r)] = true; };
      if (tune) tune(options);
      deputy = static_cast<std::size_t>(options.deputy);
      lifelines.push_back(std::make_unique<Lifeline>(options));
    }
  }
  // The hub goes last, because it waits for the others to have left.
  ~Crew() {
    while (!lifelines.empty()) lifelines.pop_back();
  }
  std::vector<std::string> contacts() const {
    std::vector<std::string> all;
    for (const auto& lifeline : lifelines) all.push_back(lifeline->contact());
    return all;
  }
  LifelineContacts listeners() const {
    return {lifelines[0]->contact(), deputy < lifelines.size() ? lifelines[deputy]->contact() : ""};
  }
  // Connects the ranks from `first` on; every rank's error.
  std::vector<std::string> connect(std::size_t first = 0) {
    std::vector<std::string> errors(lifelines.size());
    std::vector<std::thread> threads;
    for (std::size_t r = first; r < lifelines.size(); ++r)
      threads.emplace_back([&, r] { errors[r] = error_of<CommunicationError>([&] { lifelines[r]->connect(listeners()); }); });
    for (std::thread& thread : threads) thread.join();
    return errors;
  }

  std::size_t deputy = 1;
  std::mutex mutex;
  std::vector<std::string> printed;
  std::vector<std::atomic<bool>> woken;
  std::vector<std::unique_ptr<Lifeline>> lifelines;
};

std::size_t open_descriptors() {
  const auto entries = std::filesystem::directory_iterator("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(std::filesystem::begin(entries), std::filesystem::end(entries)));
}

TEST(LifelineCrew, OnlyHubAndDeputyListen) {
  Crew crew(4, [](LifelineOptions& options) { options.deputy = 2; });
  const std::vector<std::string> contacts = crew.contacts();
  EXPECT_NE(contacts[0], "");
  EXPECT_EQ(contacts[1], "");
  EXPECT_NE(contacts[2], "");
  EXPECT_EQ(contacts[3], "");
  EXPECT_EQ(crew.connect(), std::vector<std::string>(4, "no error"));
  for (const auto& lifeline : crew.lifelines) lifeline->goodbye();
}

TEST(LifelineCrew, LeavesNoDescriptorBehind) {
  const std::size_t before = open_descriptors();
  {
    Crew crew(5);
    ASSERT_EQ(crew.connect(), std::vector<std::string>(5, "no error"));
    EXPECT_GT(open_descriptors(), before + 5);
    for (const auto& lifeline : crew.lifelines) lifeline->goodbye();
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(LifelineCrew, AFailureReachesEverybodyButTheOneThatFailed) {
  Crew crew(4);
  ASSERT_EQ(crew.connect(), std::vector<std::string>(4, "no error"));
  EXPECT_FALSE(crew.lifelines[1]->wait_for_verdict(0));
  EXPECT_TRUE(crew.lifelines[2]->report_failure("no more data", 65));
  for (std::size_t r = 0; r < 4; ++r) {
    const auto verdict = crew.lifelines[r]->wait_for_verdict(60);
    ASSERT_TRUE(verdict) << r;
    EXPECT_EQ(verdict->exit_code, 65);
    EXPECT_EQ(verdict->line, crew.printed.at(0));
    EXPECT_EQ(crew.woken[r], r != 2) << r;
  }
  EXPECT_EQ(crew.printed.size(), 1u);
  EXPECT_TRUE(
      contains(crew.printed[0], " failed: no more data; in starting; ranks 0, 1, 3 not waiting; exit code 65 on all ranks"));
}

TEST(LifelineCrew, AnUnconnectedOneHasNobodyToTell) {
  Crew crew(2);
  EXPECT_FALSE(crew.lifelines[0]->report_failure("early"));
  EXPECT_FALSE(crew.lifelines[1]->report_failure("early"));
}

TEST(LifelineCrew, AJobOfOneNeedsNone) {
  Crew crew(1);
  EXPECT_EQ(crew.contacts(), std::vector<std::string>{""});
  EXPECT_EQ(crew.connect(), std::vector<std::string>{"no error"});
  crew.lifelines[0]->board().set_step(3);
  EXPECT_EQ(crew.lifelines[0]->board().read().step, 3);
  EXPECT_FALSE(crew.lifelines[0]->report_failure("alone"));
  EXPECT_FALSE(crew.lifelines[0]->wait_for_verdict(0));
  crew.lifelines[0]->goodbye();
}

TEST(LifelineCrew, RanksThatDoNotCallAreNamed) {
  Crew crew(5, [](LifelineOptions& options) { options.connect_seconds = 0.4; });
  const LifelineContacts contacts = crew.listeners();
  expect_parts(error_of<CommunicationError>([&] { crew.lifelines[0]->connect(contacts); }),
               {"rank 0 waited 0.4 s on host h", "ranks 1-4", "firewall"});
}

// A rank dies while others still connect: they learn it from connect().
TEST(LifelineCrew, AVerdictDuringConnectEndsIt) {
  Crew crew(4, [](LifelineOptions& options) { options.connect_seconds = 60; });
  const LifelineContacts contacts = crew.listeners();
  std::string hub_error;
  std::thread hub([&] { hub_error = error_of<PeerFailure>([&] { crew.lifelines[0]->connect(contacts); }); });
  crew.lifelines[3]->connect(contacts);
  EXPECT_TRUE(crew.lifelines[3]->report_failure("changed its mind"));
  hub.join();
  EXPECT_TRUE(contains(hub_error, "rank 3 (host h, pid")) << hub_error;
  EXPECT_TRUE(contains(hub_error, " failed: changed its mind")) << hub_error;
}

FileDescriptor call_at(const LifelineEndpoint& endpoint) {
  const SocketAddress address = *socket_address(endpoint.address, endpoint.port);
  FileDescriptor caller(socket(address.storage.ss_family, SOCK_STREAM, 0));
  EXPECT_EQ(connect(caller.get(), address.get(), address.length), 0);
  return caller;
}

// One that knows the key, up to its proof.
std::unique_ptr<LifelineChannel> prove_to_be(int rank, const LifelineContact& contact, std::uint64_t wrong_by = 0) {
  auto channel = std::make_unique<LifelineChannel>(call_at(contact.endpoints[0]));
  LifelineHello mine{random_nonce(), rank, 1, {}};
  channel->send(mine);
  for (const double give_up = monotonic_seconds() + 60; channel->open() && monotonic_seconds() < give_up;) {
    channel->receive();
    const auto message = channel->next();
    if (!message) continue;
    const auto& welcome = std::get<LifelineWelcome>(*message);
    EXPECT_EQ(welcome.proof, lifeline_proof(contact.key, LifelineEnd::kListener, mine, welcome.hello));
    channel->send(LifelineProof{lifeline_proof(contact.key, LifelineEnd::kCaller, mine, welcome.hello) + wrong_by});
    break;
  }
  return channel;
}

// At the door: scanners, another job's ranks, a second caller under the same number. The job connects all the same.
TEST(LifelineCrew, StrangersAreIgnored) {
  Crew crew(3);
  const LifelineContact contact = parse_lifeline_contact(crew.contacts()[0]), deputy = parse_lifeline_contact(crew.contacts()[1]);
  std::vector<std::unique_ptr<LifelineChannel>> strangers;
  const auto call = [](const LifelineContact& at) { return std::make_unique<LifelineChannel>(call_at(at.endpoints[0])); };
  for (int i = 0; i < 200; ++i) strangers.push_back(call(contact));  // more than it keeps, and silent
  for (int i = 0; i < 50; ++i) {
    strangers.push_back(call(contact));
    const std::string garbage(1000, static_cast<char>(i));
    [[maybe_unused]] const ssize_t sent = send(strangers.back()->fd(), garbage.data(), garbage.size(), MSG_NOSIGNAL);
  }
  for (const int rank : {-1, 0, 3, 1000}) {
    strangers.push_back(call(contact));
    strangers.back()->send(LifelineHello{{}, rank, 1, {}});
  }
  strangers.push_back(prove_to_be(1, contact, 1));  // of another job, or a liar
  strangers.push_back(call(contact));
  strangers.back()->send(LifelineHello{{}, 1, 1, {}});
  strangers.back()->send(LifelineHeartbeat());  // without a proof
  strangers.push_back(call(contact));
  strangers.back()->send(LifelineProof());  // without an introduction
  strangers.push_back(call(contact));
  strangers.back()->send(LifelineHello{{}, 2, 1, {}});  // introduced as rank 2, which then calls by another way
  strangers.back()->send(LifelineGoodbye());
  strangers.push_back(call(deputy));
  strangers.back()->send(LifelineHello{{}, 1, 1, {}});  // claims to be the deputy itself
  EXPECT_EQ(crew.connect(), std::vector<std::string>(3, "no error"));
  EXPECT_TRUE(crew.printed.empty());

  // The door is closed now, and everybody outside has been sent away.
  for (const auto& stranger : strangers) {
    while (stranger->open()) {
      stranger->receive();
      while (stranger->next()) continue;
      std::this_thread::yield();
    }
  }
  LifelineHello answer;
  EXPECT_TRUE(contains(error_of<CommunicationError>([&] {
                         dial_lifeline(contact, {{}, 0, 1, 0.2}, answer);
                       }),
                       ": Connection refused"));
  for (const auto& lifeline : crew.lifelines) lifeline->goodbye();
}

// News of a rank's call says nothing to the next one: a proof counts once.
TEST(LifelineCrew, AProofCannotBeSaidAgain) {
  Crew crew(2);
  const LifelineContact contact = parse_lifeline_contact(crew.contacts()[0]);
  const LifelineHello mine{random_nonce(), 1, 1, {}};
  std::uint64_t heard = 0;
  for (int call = 0; call < 2; ++call) {
    LifelineChannel channel(call_at(contact.endpoints[0]));
    channel.send(mine);
    std::optional<LifelineMessage> message;
    while (!(message = channel.next())) channel.receive();
    if (call == 0)
      heard = lifeline_proof(contact.key, LifelineEnd::kCaller, mine, std::get<LifelineWelcome>(*message).hello);
    else
      channel.send(LifelineProof{heard});
    if (call == 0) continue;
    for (const double give_up = monotonic_seconds() + 60; channel.open() && monotonic_seconds() < give_up;) channel.receive();
    EXPECT_FALSE(channel.open());
  }
  EXPECT_TRUE(crew.printed.empty());
  EXPECT_EQ(crew.connect(), std::vector<std::string>(2, "no error"));
  for (const auto& lifeline : crew.lifelines) lifeline->goodbye();
}

// A rank that fails at once: its proof, its first heartbeat and its last words arrive together, and no other word ever follows.
TEST(LifelineCrew, WordsRightBehindTheProofAreHeard) {
  Crew crew(2, [](LifelineOptions& options) { options.heartbeat_seconds = 100, options.silence_seconds = 300; });
  const LifelineContact contact = parse_lifeline_contact(crew.contacts()[0]);
  LifelineChannel channel(call_at(contact.endpoints[0]));
  const LifelineHello mine{random_nonce(), 1, 1, {}};
  channel.send(mine);
  std::optional<LifelineMessage> message;
  while (!(message = channel.next())) channel.receive();

  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  LifelineChannel writer{FileDescriptor(ends[0])};
  const FileDescriptor reader(ends[1]);
  writer.send(LifelineProof{lifeline_proof(contact.key, LifelineEnd::kCaller, mine, std::get<LifelineWelcome>(*message).hello)});
  writer.send(LifelineHeartbeat());
  LifelineFailure failure{75, 0, {}};
  set_field(failure.text, "at once");
  writer.send(failure);
  std::array<char, 4096> words;
  const ssize_t size = read(reader.get(), words.data(), words.size());
  ASSERT_EQ(send(channel.fd(), words.data(), static_cast<std::size_t>(size), MSG_NOSIGNAL), size);
  const auto verdict = crew.lifelines[0]->wait_for_verdict(60);
  ASSERT_TRUE(verdict);
  EXPECT_TRUE(contains(verdict->line, "failed: at once")) << verdict->line;
  EXPECT_EQ(verdict->exit_code, 75);
}

TEST(LifelineCrew, MeetsOnItsNodeWithoutAPort) {
  Crew crew(4, [](LifelineOptions& options) { options.reach = LifelineReach::kNode; });
  for (const LifelineEndpoint& endpoint : parse_lifeline_contact(crew.contacts()[0]).endpoints) EXPECT_EQ(endpoint.port, 0);
  EXPECT_EQ(crew.connect(), std::vector<std::string>(4, "no error"));
  EXPECT_TRUE(crew.lifelines[3]->report_failure("no more data", 65));
  EXPECT_TRUE(crew.lifelines[1]->wait_for_verdict(60));
}

// They are for threads that have handlers in mind.
TEST(LifelineCrew, SignalsPassTheLifelinesBy) {
  Crew crew(3);
  ASSERT_EQ(crew.connect(), std::vector<std::string>(3, "no error"));
  sigset_t usr1, before, pending;
  sigemptyset(&usr1);
  sigaddset(&usr1, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &usr1, &before);
  kill(getpid(), SIGUSR1);  // would end the process if any other thread took it
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGUSR1), 1);
  int taken = 0;
  sigwait(&usr1, &taken);
  EXPECT_EQ(taken, SIGUSR1);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  for (const auto& lifeline : crew.lifelines) lifeline->goodbye();
}

TEST(LifelineCrew, NonsenseIsABug) {
  LifelineOptions options;
  options.rank = 2;
  options.size = 2;
  EXPECT_THROW(Lifeline{options}, InternalError);
  options.rank = 0;
  options.deputy = 0;
  EXPECT_THROW(Lifeline{options}, InternalError);
  options.deputy = 1;
  options.silence_seconds = 2;
  EXPECT_THROW(Lifeline{options}, InternalError);
  Crew crew(2);
  EXPECT_THROW(crew.lifelines[0]->connect({"no contact"}), CommunicationError);
}

TEST(LifelineDeputy, SitsOnAnotherNodeWhereThereIsOne) {
  EXPECT_EQ(lifeline_deputy({0}), 1);
  EXPECT_EQ(lifeline_deputy({0, 0, 0}), 1);
  EXPECT_EQ(lifeline_deputy({0, 0, 1, 1}), 2);
  EXPECT_EQ(lifeline_deputy({0, 1, 0, 1}), 1);
}

}  // namespace
}  // namespace trident
