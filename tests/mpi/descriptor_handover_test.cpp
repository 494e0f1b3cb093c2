#include "parallel/health/descriptor_handover.h"

#include <gmock/gmock.h>

#include <csignal>
#include <cstring>
#include <optional>

#include "core/check.h"
#include "tests/mpi/child_process.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using ::testing::HasSubstr;

TEST(DescriptorHandover, ServesOnlyThoseWhoKnowItsName) {
  DescriptorHandover one, other;
  EXPECT_NE(one.name(), other.name());
  EXPECT_EQ(one.name().size(), std::strlen("trident-") + 32);
  EXPECT_THAT(error_of<CommunicationError>([] { receive_descriptor("trident-nobody", 1); }),
              HasSubstr("first rank cannot be reached over a Unix socket: Connection refused"));
}

TEST(DescriptorHandover, EndsWithItsObject) {
  std::optional<DescriptorHandover> handover(std::in_place);
  const std::string name = handover->name();
  handover.reset();
  EXPECT_THAT(error_of<CommunicationError>([&] { receive_descriptor(name, 1); }), HasSubstr("cannot be reached"));
}

TEST(DescriptorHandover, SaysHowManyCame) {
  DescriptorHandover handover;
  ChildProcess one([&] { return bool(receive_descriptor(handover.name(), 100)); });
  // On a busy machine it comes to a later call.
  std::string said = "0 of this";
  for (double seconds = 0.25; seconds <= 64 && said.starts_with("0 of this"); seconds *= 2) {
    said = error_of<CommunicationError>([&] { handover.give(0, 2, seconds); });
    EXPECT_THAT(said, HasSubstr(fmt::format(" of this node's 2 other ranks came for the node's memory within {} s", seconds)));
  }
  EXPECT_THAT(said, HasSubstr("1 of this node's 2 other ranks"));
  EXPECT_TRUE(one.wait());
}

TEST(DescriptorHandover, NoticesAGiverThatEnds) {
  int channel[2];
  ASSERT_EQ(pipe(channel), 0);
  ChildProcess giver([&] {
    DescriptorHandover handover;
    const bool written = write(channel[1], handover.name().data(), handover.name().size()) > 0;
    usleep(200'000);  // the receiver is in the queue by then, or finds nobody: it is told either way
    return written;
  });
  std::string name(40, ' ');
  ASSERT_EQ(read(channel[0], name.data(), name.size()), 40);
  EXPECT_THAT(error_of<CommunicationError>([&] { receive_descriptor(name, 10); }), HasSubstr("this node's first rank"));
  EXPECT_TRUE(giver.wait());
}

TEST(DescriptorHandover, RefusesOtherUsers) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  DescriptorHandover handover;
  ChildProcess stranger([&] {
    if (setuid(65534) != 0) return false;
    return error_of<CommunicationError>([&] { receive_descriptor(handover.name(), 10); }).find("runs as another user") !=
           std::string::npos;
  });
  do {
    EXPECT_THAT(error_of<CommunicationError>([&] { handover.give(0, 1, 0.25); }), HasSubstr("0 of this node's 1 other ranks"));
  } while (!stranger.ended());
  EXPECT_TRUE(stranger.wait());
}

TEST(DescriptorHandover, SaysThatThereIsNoRoomForAReceiver) {
  DescriptorHandover handover;
  ChildProcess giver([&] {
    const int next = dup(0);
    close(next);
    limit(RLIMIT_NOFILE, static_cast<rlim_t>(next));
    return error_of<ConfigError>([&] { handover.give(0, 1, 10); }) ==
           "this node's first rank has no room for the connection of another: Too many open files; raise ulimit -n";
  });
  ChildProcess receiver([&] { return bool(receive_descriptor(handover.name(), 10)); });
  EXPECT_TRUE(giver.wait());
  kill(receiver.id(), SIGKILL);  // this process listens too: it would wait for it
  EXPECT_FALSE(receiver.wait());
}

TEST(DescriptorHandover, SaysThatTheSystemRefusesSockets) {
  ChildProcess child([] {
    limit(RLIMIT_NOFILE, 3);
    const bool giver = error_of<ConfigError>([] { DescriptorHandover(); }).find("which this system refuses: Too many open files") !=
                       std::string::npos;
    const bool receiver =
        error_of<CommunicationError>([] { receive_descriptor("trident-x", 1); }).find("Too many open files") != std::string::npos;
    return giver && receiver;
  });
  EXPECT_TRUE(child.wait());
}

}  // namespace
}  // namespace trident
