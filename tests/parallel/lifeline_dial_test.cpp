// How lifelines find each other and talk: contacts, frames, calls that fail.
#include "parallel/health/lifeline_dial.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "parallel/health/socket_address.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// GPUs

TEST(LifelineContact, SurvivesItsText) {
  for (const LifelineReach reach : {LifelineReach::kNode, LifelineReach::kNetwork}) {
    const LifelineListener listener = open_lifeline_listener("node-7", reach);
    const LifelineContact contact = parse_lifeline_contact(to_text(listener.contact));
    EXPECT_EQ(contact.key, listener.contact.key);
    EXPECT_EQ(contact.host, "node-7");
    EXPECT_EQ(contact.endpoints, listener.contact.endpoints);
    EXPECT_EQ(listener.sockets.size(), contact.endpoints.size());
    EXPECT_NE(open_lifeline_listener("node-7").contact.key, contact.key);
  }
}

TEST(LifelineContact, WhatIsNoneIsRefused) {
  const std::string key = "00112233445566778899aabbccddeeff";
  const LifelineContact contact = parse_lifeline_contact("trident-lifeline 2 " + key + " h ::1@9,10.0.0.1@65535,name@0");
  EXPECT_EQ(contact.endpoints, (std::vector<LifelineEndpoint>{{"::1", 9}, {"10.0.0.1", 65535}, {"name", 0}}));
  EXPECT_EQ(contact.key[15], 0xff);
  for (const std::string& text :
       std::vector<std::string>{"", "trident-lifeline 1 " + key + " h ::1@9", "trident-lifeline 2 " + key + " h ::1@port",
                                "trident-lifeline 2 " + key + " h", "trident-lifeline 2 0011 h ::1@9",
                                "trident-lifeline 2 zz112233445566778899aabbccddeeff h ::1@9", "other 2 " + key + " h ::1@9",
                                "trident-lifeline 2 " + key + " h ::1", "trident-lifeline 2 " + key + " h @9",
                                "trident-lifeline 2 " + key + " h ::1@65536", "trident-lifeline 2 " + key + " h ::1@-1"}) {
    EXPECT_EQ(error_of<CommunicationError>([&] { parse_lifeline_contact(text); }),
              "lifeline: a rank's contact is not of this version; start the same build on all ranks")
        << text;
  }
}

// Interfaces

bool is_any_address(int socket) {
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  getsockname(socket, reinterpret_cast<sockaddr*>(&bound), &bytes);
  const std::string text = address_text(reinterpret_cast<const sockaddr&>(bound));
  return text == "0.0.0.0" || text == "::";
}

TEST(LifelineListener, ListensOnWhatWasChosenOnly) {
  for (const char* chosen : {"lo", "127.0.0.0/8", "10.254.0.0/16,127.0.0.1"}) {
    const LifelineListener listener = open_lifeline_listener("h", LifelineReach::kNetwork, {chosen, ""});
    ASSERT_FALSE(listener.contact.endpoints.empty());
    EXPECT_EQ(listener.contact.endpoints[0].address, "127.0.0.1") << chosen;
    for (const FileDescriptor& socket : listener.sockets) EXPECT_FALSE(is_any_address(socket.get())) << chosen;
  }
  const LifelineListener all = open_lifeline_listener("h");
  for (const FileDescriptor& socket : all.sockets) EXPECT_FALSE(is_any_address(socket.get()));
}

TEST(LifelineListener, WhatIsExcludedIsNotListenedOn) {
  const std::vector<std::string> all = own_addresses({}, "h");
  if (all == std::vector<std::string>{"127.0.0.1"}) GTEST_SKIP() << "this machine has no interface but loopback";
  for (const std::string& address : all) {
    const std::vector<std::string> rest = own_addresses({"", address}, "h");
    EXPECT_EQ(std::count(rest.begin(), rest.end(), address), 0) << address;
  }
  EXPECT_EQ(own_addresses({"", "0.0.0.0/0,::/0"}, "h"), std::vector<std::string>{"127.0.0.1"}) << "there must be one";
}

TEST(LifelineListener, AnInterfaceThatTheHostLacksIsRefused) {
  EXPECT_EQ(error_of<ConfigError>([] {
              open_lifeline_listener("h", LifelineReach::kNetwork, {"nonsense0", ""});
            }),
            "btl_tcp_if_include = nonsense0: host h has no such interface or network; name one that all hosts of the job have");
}

TEST(LifelineListener, OnANodeThereIsNoPort) {
  const LifelineListener listener = open_lifeline_listener("h", LifelineReach::kNode);
  ASSERT_EQ(listener.sockets.size(), 1u);
  sockaddr_storage bound{};
  socklen_t bytes = sizeof bound;
  ASSERT_EQ(getsockname(listener.sockets[0].get(), reinterpret_cast<sockaddr*>(&bound), &bytes), 0);
  EXPECT_EQ(bound.ss_family, AF_UNIX);
  EXPECT_EQ(listener.contact.endpoints[0].port, 0);
}

TEST(SocketAddress, LiesInItsNetwork) {
  const auto lies = [](const char* address, const char* network) {
    return lies_in_network(*socket_address(address, 0)->get(), network);
  };
  EXPECT_TRUE(lies("10.1.2.3", "10.0.0.0/8"));
  EXPECT_TRUE(lies("10.1.2.3", "10.1.2.3"));
  EXPECT_TRUE(lies("10.1.2.3", "0.0.0.0/0"));
  EXPECT_TRUE(lies("10.1.2.129", "10.1.2.128/25"));
  EXPECT_FALSE(lies("10.1.2.127", "10.1.2.128/25"));
  EXPECT_FALSE(lies("11.1.2.3", "10.0.0.0/8"));
  EXPECT_TRUE(lies("fd00::7", "fd00::/8"));
  EXPECT_FALSE(lies("fe00::7", "fd00::/9"));
  for (const char* nonsense : {"", "eth0", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/x", "::/0"})
    EXPECT_FALSE(lies("10.0.0.0", nonsense)) << nonsense;
}

// Proofs

// The vectors of the paper's authors: key 00 01 ... 0f, messages of the bytes 00 01 ....
TEST(SipHash, OfThePublishedVectors) {
  SipHashKey key;
  std::iota(key.begin(), key.end(), 0);
  const std::vector<std::pair<std::size_t, std::uint64_t>> vectors = {
      {0, 0x726fdb47dd0e0e31}, {1, 0x74f839c593dc67fd},  {2, 0x0d6c8009d9a94f5a},  {3, 0x85676696d7fb7e2d}, {7, 0xab0200f58b01d137},
      {8, 0x93f5f5799a932462}, {15, 0xa129ca6149be45e5}, {16, 0x3f2acc7f57c29bdb}, {63, 0x958a324ceb064572}};
  for (const auto& [length, expected] : vectors) {
    std::string message(length, '\0');
    std::iota(message.begin(), message.end(), 0);
    EXPECT_EQ(siphash(key, message), expected) << length;
  }
}

TEST(LifelineProof, DependsOnEverything) {
  const LifelineHello caller{{1}, 5, 77, {'h'}}, listener{{2}, 0, 78, {'i'}};
  const SipHashKey key{3};
  std::set<std::uint64_t> proofs{lifeline_proof(key, LifelineEnd::kCaller, caller, listener),
                                 lifeline_proof(key, LifelineEnd::kListener, caller, listener),
                                 lifeline_proof(SipHashKey{4}, LifelineEnd::kCaller, caller, listener),
                                 lifeline_proof(key, LifelineEnd::kCaller, listener, caller)};
  LifelineHello other = caller;
  other.rank = 6;
  proofs.insert(lifeline_proof(key, LifelineEnd::kCaller, other, listener));
  other = listener;
  other.nonce[15] = 1;
  proofs.insert(lifeline_proof(key, LifelineEnd::kCaller, caller, other));
  EXPECT_EQ(proofs.size(), 6u);
  EXPECT_NE(random_nonce(), random_nonce());
}

// Frames

struct ChannelPair {
  ChannelPair() {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) throw CommunicationError("no socket pair");
    a = std::make_unique<LifelineChannel>(FileDescriptor(ends[0]));
    b = std::make_unique<LifelineChannel>(FileDescriptor(ends[1]));
  }
  std::unique_ptr<LifelineChannel> a, b;
};

TEST(LifelineChannel, CarriesEveryKindOfMessage) {
  ChannelPair pair;
  LifelineHello hello{{1, 2, 3}, 5, 77, {}};
  set_field(hello.host, "h");
  LifelineHeartbeat beat;
  beat.status.step = 9;
  beat.is_answer = 1;
  LifelineFailure failure{65, 1, {}};
  set_field(failure.text, "why");
  LifelineDecision decision{76, 1, {}};
  set_field(decision.line, "who");
  for (const LifelineMessage& message : {LifelineMessage(hello), LifelineMessage(LifelineWelcome{hello, 6}),
                                         LifelineMessage(LifelineProof{7}), LifelineMessage(beat), LifelineMessage(LifelineAsk()),
                                         LifelineMessage(failure), LifelineMessage(decision), LifelineMessage(LifelineGoodbye())})
    pair.a->send(message);
  pair.b->receive();
  const auto got_hello = std::get<LifelineHello>(*pair.b->next());
  EXPECT_EQ(got_hello.nonce, hello.nonce);
  EXPECT_EQ(got_hello.rank, 5);
  EXPECT_EQ(got_hello.pid, 77);
  EXPECT_EQ(field_text(got_hello.host), "h");
  const auto got_welcome = std::get<LifelineWelcome>(*pair.b->next());
  EXPECT_EQ(got_welcome.hello.rank, 5);
  EXPECT_EQ(got_welcome.proof, 6u);
  EXPECT_EQ(std::get<LifelineProof>(*pair.b->next()).proof, 7u);
  const auto got_beat = std::get<LifelineHeartbeat>(*pair.b->next());
  EXPECT_EQ(got_beat.status.step, 9);
  EXPECT_EQ(got_beat.is_answer, 1u);
  EXPECT_TRUE(std::holds_alternative<LifelineAsk>(*pair.b->next()));
  const auto got_failure = std::get<LifelineFailure>(*pair.b->next());
  EXPECT_EQ(got_failure.exit_code, 65);
  EXPECT_EQ(got_failure.is_departure, 1);
  EXPECT_EQ(field_text(got_failure.text), "why");
  EXPECT_EQ(field_text(std::get<LifelineDecision>(*pair.b->next()).line), "who");
  EXPECT_TRUE(std::holds_alternative<LifelineGoodbye>(*pair.b->next()));
  EXPECT_FALSE(pair.b->next());
  EXPECT_TRUE(pair.b->open());
}

TEST(LifelineChannel, PutsPiecesTogether) {
  ChannelPair whole, pieces;
  LifelineFailure failure{65, 0, {}};
  set_field(failure.text, "in pieces");
  whole.a->send(failure);
  std::string bytes(4096, '\0');
  bytes.resize(static_cast<std::size_t>(recv(whole.b->fd(), bytes.data(), bytes.size(), 0)));
  for (std::size_t i = 0; i < bytes.size(); i += 100) {
    EXPECT_FALSE(pieces.b->next());
    ASSERT_GT(send(pieces.a->fd(), bytes.data() + i, std::min<std::size_t>(100, bytes.size() - i), 0), 0);
    pieces.b->receive();
  }
  EXPECT_EQ(field_text(std::get<LifelineFailure>(*pieces.b->next()).text), "in pieces");
}

TEST(LifelineChannel, LastWordsAreReadBeforeTheEnd) {
  ChannelPair pair;
  pair.a->send(LifelineGoodbye());
  pair.a.reset();
  pair.b->receive();
  EXPECT_TRUE(pair.b->next().has_value());
  EXPECT_FALSE(pair.b->open());
}

TEST(LifelineChannel, ForeignWordsCloseIt) {
  for (const std::string& words : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("TLL2\x7f\0\0\0", 8)}) {
    ChannelPair pair;
    ASSERT_GT(send(pair.a->fd(), words.data(), words.size(), 0), 0);
    pair.b->receive();
    EXPECT_FALSE(pair.b->next());
    EXPECT_FALSE(pair.b->open());
  }
}

// Somebody who does not read for long: heartbeats are given up, the verdict is not, and memory is bounded.
TEST(LifelineChannel, ANoReaderMissesHeartbeatsOnly) {
  ChannelPair pair;
  for (int i = 0; i < 5000; ++i) pair.a->send(LifelineHeartbeat());
  EXPECT_TRUE(pair.a->has_unsent());
  pair.a->send(LifelineDecision{76, 1, {}});
  int beats = 0, decisions = 0;
  for (int round = 0; round < 1000 && decisions == 0; ++round) {
    pair.b->receive();
    while (const auto message = pair.b->next()) ++(std::holds_alternative<LifelineDecision>(*message) ? decisions : beats);
    pair.a->flush();
  }
  EXPECT_EQ(decisions, 1);
  EXPECT_LT(beats, 5000);
  EXPECT_FALSE(pair.a->has_unsent());
}

TEST(LifelineChannel, SendingToTheGoneIsHarmless) {
  ChannelPair pair;
  pair.b.reset();
  pair.a->send(LifelineGoodbye());
  pair.a->send(LifelineGoodbye());
  EXPECT_FALSE(pair.a->has_unsent());
  pair.a->receive();
  EXPECT_FALSE(pair.a->open());
}

// Calls

const InterfaceChoice kLoopback{"127.0.0.1", ""};

std::string dial_error(const LifelineContact& contact, double seconds) {
  LifelineCall call;
  call.mine.rank = 3;
  call.seconds = seconds;
  set_field(call.mine.host, "here");
  LifelineHello answer;
  return error_of<CommunicationError>([&] { dial_lifeline(contact, call, answer); });
}

TEST(LifelineDial, SaysWhatEveryAddressAnswered) {
  LifelineContact contact = open_lifeline_listener("there", LifelineReach::kNetwork, kLoopback).contact;  // nobody listens any more
  contact.endpoints.push_back({"nonsense", 9});
  EXPECT_EQ(
      dial_error(contact, 0.8),
      fmt::format(
          "lifeline: rank 3 on host here reached rank 0 on host there within 0.8 s at none of its addresses (127.0.0.1 port {}: "
          "Connection refused, nonsense port 9: no numeric address); let TCP connections between the job's hosts pass the firewall",
          contact.endpoints[0].port));
}

TEST(LifelineDial, SaysThatNobodyIsOnTheNode) {
  const LifelineContact contact = open_lifeline_listener("there", LifelineReach::kNode).contact;
  EXPECT_EQ(dial_error(contact, 0.3),
            "lifeline: rank 3 on host here reached rank 0 on host there within 0.3 s at none of its addresses (a Unix socket: "
            "Connection refused); start the ranks of a node in one network namespace, as one user");
}

TEST(LifelineDial, AListenerThatNeverAnswersIsGivenUp) {
  const LifelineListener listener = open_lifeline_listener("there", LifelineReach::kNetwork, kLoopback);
  EXPECT_TRUE(contains(dial_error(listener.contact, 0.3), "no answer)"));
}

TEST(LifelineDial, SomebodyElseAtTheAddressIsNotTakenForTheHub) {
  for (const bool same_program : {true, false}) {
    const LifelineListener listener = open_lifeline_listener("there", LifelineReach::kNetwork, kLoopback);
    std::thread server([&] {
      int fd = -1;
      while ((fd = accept4(listener.sockets[0].get(), nullptr, nullptr, SOCK_NONBLOCK)) < 0) std::this_thread::yield();
      LifelineChannel channel{FileDescriptor(fd)};
      bool called = false;
      while (!(called = channel.next().has_value()) && channel.open()) channel.receive();
      if (!called) return;  // the caller left
      if (same_program)
        channel.send(LifelineWelcome());  // without the key
      else [[maybe_unused]] const ssize_t sent = send(fd, "SSH-2.0-OpenSSH\r\n", 17, 0);
      while (channel.open()) channel.receive();
    });
    const std::string error = dial_error(listener.contact, 2);
    server.join();
    EXPECT_TRUE(contains(error, same_program ? ": somebody else answered)" : ": hung up or is not this job's)")) << error;
  }
}

// A hub that is overrun hangs up on some: they call again, later and later.
TEST(LifelineDial, WhoIsSentAwayCallsAgain) {
  const LifelineListener listener = open_lifeline_listener("there", LifelineReach::kNetwork, kLoopback);
  std::vector<double> calls_at;
  std::atomic<bool> over{false};
  std::thread server([&] {
    while (!over) {
      const FileDescriptor call(accept4(listener.sockets[0].get(), nullptr, nullptr, SOCK_NONBLOCK));
      if (call)
        calls_at.push_back(monotonic_seconds());
      else
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  EXPECT_TRUE(contains(dial_error(listener.contact, 2), ": hung up or is not this job's)"));
  over = true;
  server.join();
  ASSERT_GE(calls_at.size(), 2u);
  EXPECT_LE(calls_at.size(), 6u);
}

TEST(LifelineDial, ManyRanksAreGivenMoreTime) {
  EXPECT_NEAR(lifeline_connect_seconds(8), 10, 0.1);
  EXPECT_GT(lifeline_connect_seconds(16384), 60);
}

TEST(LifelineClaim, BelongsToOneAtATime) {
  const SipHashKey job = open_lifeline_listener("h").contact.key, other = open_lifeline_listener("h").contact.key;
  FileDescriptor first = claim_job(job);
  EXPECT_TRUE(first);
  EXPECT_FALSE(claim_job(job));
  EXPECT_TRUE(claim_job(other));
  first = FileDescriptor();
  EXPECT_TRUE(claim_job(job));
}

TEST(LifelineLimits, OpenFilesAreRaisedOrRefused) {
  rlimit before{}, after{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit low = before;
  low.rlim_cur = 100;
  setrlimit(RLIMIT_NOFILE, &low);
  make_room_for_descriptors(50, "the test");
  getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_cur, before.rlim_max) << "to the hard limit, whatever is needed now";
  setrlimit(RLIMIT_NOFILE, &before);
  const auto too_many = static_cast<std::int64_t>(std::min<rlim_t>(before.rlim_max, 2'000'000'000)) + 1;
  EXPECT_EQ(
      error_of<ConfigError>([&] { make_room_for_descriptors(too_many, "the test"); }),
      fmt::format("the test needs {} open files, {} are allowed; raise the hard limit (ulimit -Hn {}; under Slurm LimitNOFILE of "
                  "slurmd, or the submitting shell's)",
                  too_many, before.rlim_max, too_many));
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace trident
