// Tests what the system refuses to a lifeline: descriptors, a thread; and what it costs while it waits.
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <optional>
#include <thread>

#include "core/check.h"
#include "core/clock.h"
#include "parallel/health/lifeline.h"
#include "parallel/health/lifeline_dial.h"
#include "parallel/health/lifeline_message.h"
#include "parallel/health/lifeline_thread.h"
#include "parallel/health/socket_address.h"
#include "tests/mpi/child_process.h"
#include "tests/support/error_text.h"
#include "tests/support/no_threads.h"

namespace trident {
namespace {

LifelineOptions of_the_hub() {
  LifelineOptions options;
  options.size = 2;
  options.host = std::string("h");  // g++ 12 warns wrongly of a text without its type here
  return options;
}

TEST(Lifeline, WithoutDescriptorsSaysSo) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the undefined-behaviour sanitizer itself needs descriptors to look at a thrown error";
#endif
  ChildProcess child([] {
    const int next = dup(0);
    close(next);
    const rlimit most{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
    if (setrlimit(RLIMIT_NOFILE, &most) != 0) return false;
    return error_of<CommunicationError>([] { Lifeline lifeline(of_the_hub()); }) ==
           "lifeline: Too many open files; raise ulimit -n";
  });
  EXPECT_TRUE(child.wait());
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// A call that cannot be taken stays in the queue, and would wake the hub for ever.
TEST(Lifeline, CallsThatTheSystemRefusesAreTakenLaterAndCostNothingUntilThen) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the undefined-behaviour sanitizer itself needs descriptors to look at a thrown error";
#endif
  ChildProcess child([] {
    LifelineOptions options = of_the_hub();
    options.connect_seconds = 3;
    options.heartbeat_seconds = 0.1;
    Lifeline lifeline(options);
    const LifelineContact contact = parse_lifeline_contact(lifeline.contact());
    const SocketAddress address = *socket_address(contact.endpoints[0].address, contact.endpoints[0].port);
    LifelineChannel caller{FileDescriptor(socket(address.storage.ss_family, SOCK_STREAM, 0))};
    const int next = dup(0);
    close(next);
    rlimit before{};
    getrlimit(RLIMIT_NOFILE, &before);
    const rlimit none{static_cast<rlim_t>(next), before.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &none) != 0 || connect(caller.fd(), address.get(), address.length) != 0) return false;
    const double cpu = cpu_seconds();
    const std::string text = error_of<CommunicationError>([&] { lifeline.connect({lifeline.contact()}); });
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    const double used = cpu_seconds() - cpu;
    setrlimit(RLIMIT_NOFILE, &before);
    caller.send(LifelineHello{{}, 1, 1, {}});
    std::optional<LifelineMessage> message;
    for (const double give_up = monotonic_seconds() + 60; !(message = caller.next()) && monotonic_seconds() < give_up;)
      caller.receive();
    const bool is_as_promised =
        text.find("for the calls of rank 1 (the system refused calls: Too many open files); look") != std::string::npos &&
        used < 0.2 && message && std::holds_alternative<LifelineWelcome>(*message);
    if (!is_as_promised) fmt::print(stderr, "{} s of CPU time, answered: {}, {}\n", used, message.has_value(), text);
    _exit(is_as_promised ? 0 : 1);  // without the lifeline's last word, which nobody waits for
    return false;
  });
  EXPECT_TRUE(child.wait());
}

FileDescriptor socket_for(const LifelineEndpoint& door) {
  const int family = door.port == 0 ? AF_UNIX : socket_address(door.address, door.port)->storage.ss_family;
  return FileDescriptor(socket(family, SOCK_STREAM, 0));
}

bool call(const LifelineEndpoint& door, int socket) {
  if (door.port == 0) {
    const AbstractAddress address = abstract_address(door.address);
    return connect(socket, address.get(), address.length) == 0;
  }
  const SocketAddress address = *socket_address(door.address, door.port);
  return connect(socket, address.get(), address.length) == 0;
}

// The system looks for a descriptor before it looks for a call: with the last one taken, it says that there is none, whoever calls.
TEST(Lifeline, WhoTakesTheLastDescriptorKeepsIt) {
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "the undefined-behaviour sanitizer itself needs descriptors to look at a thrown error";
#endif
  for (const LifelineReach reach : {LifelineReach::kNetwork, LifelineReach::kNode}) {
    ChildProcess child([reach] {
      LifelineOptions options = of_the_hub();
      options.reach = reach;
      Lifeline lifeline(options);
      const LifelineEndpoint door = parse_lifeline_contact(lifeline.contact()).endpoints[0];
      LifelineChannel caller(socket_for(door));
      const int next = dup(0);
      close(next);
      const rlimit one{static_cast<rlim_t>(next) + 1, static_cast<rlim_t>(next) + 1};
      if (setrlimit(RLIMIT_NOFILE, &one) != 0 || !call(door, caller.fd())) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      caller.send(LifelineHello{{}, 1, 1, {}});
      std::optional<LifelineMessage> message;
      for (const double give_up = monotonic_seconds() + 60;
           !(message = caller.next()) && caller.open() && monotonic_seconds() < give_up;)
        caller.receive();
      const bool is_welcome = message && std::holds_alternative<LifelineWelcome>(*message);
      _exit(is_welcome ? 0 : 1);  // without the lifeline's last word, which nobody waits for
      return false;
    });
    EXPECT_TRUE(child.wait()) << (reach == LifelineReach::kNode ? "on a node" : "on a network");
  }
}

// A deputy that has asked, and hears the verdict of somebody else: the step that it would take next stays due until the grace is
// over.
TEST(Lifeline, TheGraceAfterAVerdictCostsNothing) {
  ChildProcess child([] {
    LifelineOptions options = of_the_hub();
    options.rank = 1;
    options.size = 4;
    options.grace_seconds = 30;
    LifelineThread deputy(options);
    std::array<std::array<int, 2>, 2> pairs{};
    for (auto& pair : pairs)
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0) return false;
    const auto [hub, third] = pairs;
    const auto adopt = [&](int rank, int descriptor) {
      LifelineHello peer;
      peer.rank = rank;
      deputy.connected(peer, LifelineChannel(FileDescriptor(descriptor)));
    };
    LifelineChannel other{FileDescriptor(third[1])};
    const auto hear = [&](auto is_it) {
      std::optional<LifelineMessage> message;
      for (const double give_up = monotonic_seconds() + 60; monotonic_seconds() < give_up; other.receive())
        while ((message = other.next()))
          if (is_it(*message)) return true;
      return false;
    };
    // A deputy asks those that it knows when the hub dies: it has to know of the third rank before.
    adopt(2, third[0]);
    if (!hear([](const LifelineMessage& m) { return std::holds_alternative<LifelineHeartbeat>(m); })) return false;
    adopt(0, hub[0]);
    close(hub[1]);  // the hub dies
    if (!hear([](const LifelineMessage& m) { return std::holds_alternative<LifelineAsk>(m); })) return false;
    other.send(LifelineDecision());
    if (!deputy.wait_for_verdict(60)) return false;
    const double cpu = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::seconds(1));
    const double used = cpu_seconds() - cpu;
    if (used >= 0.2) fmt::print(stderr, "{} s of CPU time in a second of waiting\n", used);
    _exit(used < 0.2 ? 0 : 1);  // without the lifeline's last word, which nobody waits for
    return false;
  });
  EXPECT_TRUE(child.wait());
}

TEST(Lifeline, WithoutAThreadSaysSoAndBlocksNoSignals) {
  ChildProcess probe(forbid_threads);
  if (!probe.wait()) GTEST_SKIP() << "this system does not limit threads";
  ChildProcess child([] {
    forbid_threads();
    const std::string text = error_of<CommunicationError>([] { Lifeline lifeline(of_the_hub()); });
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
    return text.starts_with("lifeline: rank 0 got no thread: ") && text.ends_with("; raise ulimit -u") &&
           sigismember(&blocked, SIGTERM) == 0;
  });
  EXPECT_TRUE(child.wait());
}

// On a node names of sockets are no secret.
TEST(Lifeline, OtherUsersOfTheNodeAreSentAway) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  LifelineOptions options = of_the_hub();
  options.reach = LifelineReach::kNode;
  Lifeline lifeline(options);
  const LifelineContact contact = parse_lifeline_contact(lifeline.contact());
  ChildProcess child([&] {
    if (setuid(65534) != 0) return false;
    LifelineHello answer;
    const std::string text = error_of<CommunicationError>([&] { dial_lifeline(contact, {{}, 0, 1, 0.3}, answer); });
    const AbstractAddress address = abstract_address(contact.endpoints[0].address);
    LifelineChannel caller{FileDescriptor(socket(AF_UNIX, SOCK_STREAM, 0))};
    if (connect(caller.fd(), address.get(), address.length) != 0) return false;
    caller.send(LifelineHello{{}, 1, 1, {}});
    for (const double give_up = monotonic_seconds() + 60; caller.open() && monotonic_seconds() < give_up;) caller.receive();
    return contains(text, "(a Unix socket: another user's)") && !caller.open() && !caller.next();
  });
  EXPECT_TRUE(child.wait());
}

}  // namespace
}  // namespace trident
