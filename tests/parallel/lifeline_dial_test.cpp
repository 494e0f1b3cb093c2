// How lifelines find each other and talk: cards, frames, calls that fail.
#include "parallel/lifeline_dial.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <memory>
#include <thread>

#include "core/check.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// Cards

TEST(LifelineCard, SurvivesItsText) {
  const LifelineListener listener = open_lifeline_listener("node-7");
  const LifelineCard card = parse_lifeline_card(to_text(listener.card));
  EXPECT_EQ(card.token, listener.card.token);
  EXPECT_EQ(card.port, listener.card.port);
  EXPECT_EQ(card.host, "node-7");
  EXPECT_EQ(card.addresses, listener.card.addresses);
  EXPECT_EQ(card.addresses.back(), "127.0.0.1");
  EXPECT_NE(open_lifeline_listener("node-7").card.token, card.token);
}

TEST(LifelineCard, WhatIsNoneIsRefused) {
  const std::string token = "00112233445566778899aabbccddeeff";
  EXPECT_EQ(parse_lifeline_card("trident-lifeline 1 " + token + " 99 h ::1,10.0.0.1").addresses,
            (std::vector<std::string>{"::1", "10.0.0.1"}));
  EXPECT_EQ(parse_lifeline_card("trident-lifeline 1 " + token + " 99 h ::1").token[15], 0xff);
  for (const std::string& text :
       std::vector<std::string>{"", "trident-lifeline 2 " + token + " 99 h ::1", "trident-lifeline 1 " + token + " port h ::1",
                                "trident-lifeline 1 " + token + " 99 h", "trident-lifeline 1 0011 99 h ::1",
                                "trident-lifeline 1 zz112233445566778899aabbccddeeff 99 h ::1", "other 1 " + token + " 99 h ::1"}) {
    EXPECT_EQ(error_of<CommunicationError>([&] { parse_lifeline_card(text); }),
              "lifeline: \"" + text + "\" is no contact card of this version; start the same build on all ranks");
  }
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
  LifelineDecision decision{76, {}};
  set_field(decision.line, "who");
  for (const LifelineMessage& message :
       {LifelineMessage(hello), LifelineMessage(LifelineWelcome{hello}), LifelineMessage(beat), LifelineMessage(LifelineAsk()),
        LifelineMessage(failure), LifelineMessage(decision), LifelineMessage(LifelineGoodbye())})
    pair.a->send(message);
  pair.b->receive();
  const auto got_hello = std::get<LifelineHello>(*pair.b->next());
  EXPECT_EQ(got_hello.token, hello.token);
  EXPECT_EQ(got_hello.rank, 5);
  EXPECT_EQ(got_hello.pid, 77);
  EXPECT_EQ(field_text(got_hello.host), "h");
  EXPECT_EQ(std::get<LifelineWelcome>(*pair.b->next()).hello.rank, 5);
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
  for (const std::string& words : {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("TLL1\x7f\0\0\0", 8)}) {
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
  pair.a->send(LifelineDecision{76, {}});
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

// A listener's socket that nobody serves, or that is served by `serve` on the first connection.
LifelineCard card_at(const LifelineListener& listener) {
  LifelineCard card = listener.card;
  card.addresses = {"127.0.0.1"};
  return card;
}

std::string dial_error(const LifelineCard& card, double seconds) {
  LifelineHello mine, answer;
  mine.rank = 3;
  set_field(mine.host, "here");
  return error_of<CommunicationError>([&] { dial_lifeline(card, 0, mine, seconds, answer); });
}

TEST(LifelineDial, SaysWhatEveryAddressAnswered) {
  LifelineCard card;
  {
    const LifelineListener listener = open_lifeline_listener("there");
    card = card_at(listener);
  }
  card.addresses = {"127.0.0.1", "nonsense"};
  EXPECT_EQ(
      dial_error(card, 0.3),
      fmt::format(
          "lifeline: rank 3 on host here reached rank 0 on host there within 0.3 s at none of its addresses, port {} (127.0.0.1: "
          "Connection refused, nonsense: no numeric address); let TCP connections between the job's hosts pass the firewall",
          card.port));
}

TEST(LifelineDial, AListenerThatNeverAnswersIsGivenUp) {
  const LifelineListener listener = open_lifeline_listener("there");
  EXPECT_TRUE(contains(dial_error(card_at(listener), 0.3), "(127.0.0.1: no answer)"));
}

TEST(LifelineDial, SomebodyElseAtTheAddressIsNotTakenForTheHub) {
  const LifelineListener listener = open_lifeline_listener("there");
  for (const bool same_program : {true, false}) {
    std::thread server([&] {
      int fd = -1;
      while ((fd = accept4(listener.socket.get(), nullptr, nullptr, SOCK_NONBLOCK)) < 0) std::this_thread::yield();
      LifelineChannel channel{FileDescriptor(fd)};
      while (!channel.next()) channel.receive();
      if (same_program) channel.send(LifelineWelcome());  // with the token of another job
      else [[maybe_unused]] const ssize_t sent = send(fd, "SSH-2.0-OpenSSH\r\n", 17, 0);
      while (channel.open()) channel.receive();
    });
    const std::string error = dial_error(card_at(listener), 0.3);
    server.join();
    EXPECT_TRUE(contains(error, same_program ? "(127.0.0.1: somebody else answered)" : "(127.0.0.1: hung up or is not this job's)"))
        << error;
  }
}

TEST(LifelineClaim, BelongsToOneAtATime) {
  const LifelineToken job = open_lifeline_listener("h").card.token, other = open_lifeline_listener("h").card.token;
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
  make_room_for_descriptors(4);
  getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_cur, std::min<rlim_t>(524, before.rlim_max));
  make_room_for_descriptors(1);  // never lowered
  getrlimit(RLIMIT_NOFILE, &after);
  EXPECT_EQ(after.rlim_cur, std::min<rlim_t>(524, before.rlim_max));
  setrlimit(RLIMIT_NOFILE, &before);
  const auto too_many = static_cast<int>(std::min<rlim_t>(before.rlim_max, 2'000'000'000));
  EXPECT_TRUE(
      contains(error_of<CommunicationError>([&] { make_room_for_descriptors(too_many); }), " are allowed; raise ulimit -Hn"));
  setrlimit(RLIMIT_NOFILE, &before);
}

}  // namespace
}  // namespace trident
