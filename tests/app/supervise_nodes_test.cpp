// trident supervise --nodes-from: which hosts and which layout a command gets, with loopback addresses as hosts.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <thread>

#include "checkpoint/lease.h"
#include "core/clock.h"
#include "core/file_io.h"
#include "tests/app/background_program.h"
#include "tests/app/program.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

// Accepts connections at some addresses, all on one port.
class Listeners {
 public:
  explicit Listeners(const std::vector<const char*>& addresses) {
    for (int tries = 0; tries < 100 && sockets_.size() < addresses.size(); ++tries) try_to_bind(addresses);
    EXPECT_EQ(sockets_.size(), addresses.size());
  }
  ~Listeners() { close_all(); }
  int port() const { return port_; }

 private:
  void try_to_bind(const std::vector<const char*>& addresses) {
    close_all();
    port_ = 0;
    for (const char* text : addresses) {
      sockaddr_in address{
          .sin_family = AF_INET, .sin_port = htons(static_cast<std::uint16_t>(port_)), .sin_addr = {}, .sin_zero = {}};
      ::inet_pton(AF_INET, text, &address.sin_addr);
      const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      sockets_.push_back(listener);
      socklen_t size = sizeof address;
      if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, 8) != 0) return close_all();
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size);
      port_ = ntohs(address.sin_port);
    }
  }
  void close_all() {
    for (const int listener : sockets_) ::close(listener);
    sockets_.clear();
  }
  std::vector<int> sockets_;
  int port_ = 0;
};

class SuperviseNodes : public ::testing::Test {
 protected:
  void SetUp() override { configure(R"("2DP x 3PP")", R"(["1DP x 2PP", {"data": 2, "pipeline": 2}])"); }
  void configure(const std::string& parallel, const std::string& elastic) {
    write_file(folder_ / "c.json", fmt::format(R"({{"run": {{"dir": "{}/run", "steps": 3}}, "data": {{"train": "none"}},
      "model": {{"preset": "llama-1m"}}, "checkpoint": {{"every": 1}},
      "batch": {{"global": 8, "micro": 1, "sequence": 32}}, "parallel": {}, "elastic": {}}})",
                                               folder_.path(), parallel, elastic));
  }
  // supervise FLAGS -- sh -c SCRIPT train --config c.json: `train` is the shell's $0, and what is added comes into "$@". F is a
  // file of this test, D the run directory.
  std::vector<std::string> words(const std::string& hosts, const std::string& script, std::vector<std::string> flags) const {
    write_file(folder_ / "hosts", hosts);
    return plus(plus({"supervise", "--nodes-from", folder_ / "hosts"}, flags),
                {"--", "sh", "-c", fmt::format("F='{}' D='{}'; {}", folder_ / "f", folder_ / "run", script), "train", "--config",
                 folder_ / "c.json"});
  }
  std::string noted() const { return file_exists(folder_ / "f") ? read_file(folder_ / "f") : ""; }

  TemporaryFolder folder_;
};

const std::string kNote = "{ cat {hostfile}; printf '%s ' {ranks} \"$3\" \"$4\"; } >> $F; ";

TEST_F(SuperviseNodes, HostsThatDoNotAnswerAreLeftOut) {
  const Listeners listeners({"127.0.0.2", "127.0.0.4", "127.0.0.5"});
  const std::vector<std::string> port{"--probe-port", std::to_string(listeners.port())};
  const std::string hosts =
      "127.0.0.2 slots=2 # n1\n127.0.0.3 slots=2\n127.0.0.4 slots=3 max_slots=3\nno-such-host.invalid slots=9\n";
  const ProgramOutcome less = run_program(words(hosts, kNote + "exit 64", port));
  EXPECT_EQ(less.exit_code, 64) << less.err;
  EXPECT_EQ(noted(), "127.0.0.2 slots=2\n127.0.0.4 slots=3\n4 --set parallel={\"data\":2,\"pipeline\":2} ") << less.err;
  EXPECT_TRUE(contains(less.err, "2 of 4 hosts with 5 slots")) << less.err;
  EXPECT_TRUE(contains(less.err, fmt::format("127.0.0.3 is left out: port {}: Connection refused", listeners.port()))) << less.err;
  EXPECT_TRUE(contains(less.err, "no-such-host.invalid is left out: ")) << less.err;
  EXPECT_TRUE(contains(less.err, "layout 2DP x 2PP x 1TP (elastic[1]) on 4 ranks instead of 2DP x 3PP x 1TP on 6")) << less.err;

  remove_file(folder_ / "f");
  const ProgramOutcome whole =
      run_program(words("127.0.0.2 slots=2\n127.0.0.4 slots=2\n127.0.0.5 slots=2\n", kNote + "exit 64", port));
  EXPECT_EQ(noted(), "127.0.0.2 slots=2\n127.0.0.4 slots=2\n127.0.0.5 slots=2\n6   ") << whole.err;
}

// However many are silent, they are asked at once, and nothing of the asking is left.
TEST_F(SuperviseNodes, AProbeOfTheUsersHasItsTime) {
  std::string hosts = "good slots=4\nnone slots=1\n";
  for (int i = 0; i < 30; ++i) hosts += fmt::format("silent{} slots=1\n", i);
  const double start = monotonic_seconds();
  const ProgramOutcome outcome = run_program(
      words(hosts, kNote + "exit 64", {"--probe", "case {host} in good) ;; none) no-such-program;; *) sleep 77; false;; esac",
                                          "--probe-seconds", "10"}));
  EXPECT_LT(monotonic_seconds() - start, 100) << "one after the other it would be 300 s";
  EXPECT_EQ(noted(), "good slots=4\n4 --set parallel={\"data\":2,\"pipeline\":2} ") << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "silent0 is left out: the probe took more than 10 s")) << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "none is left out: the probe ended with 127, which means that its program is not found"));
  EXPECT_TRUE(contains(outcome.err, "and 23 more")) << outcome.err;
}

// A disk that hangs holds a killed process as a tracer does that does not ask how its own has ended.
TEST_F(SuperviseNodes, AProbeThatDoesNotEndWhenKilledHoldsNobodyUp) {
  BackgroundProgram job(words("n1 slots=4\nn2 slots=2\n", kNote + "exit 64",
                              {"--probe", "test {host} = n1 || exec sleep 1000", "--probe-seconds", "15"}));
  const auto sleeping = [&] {
    std::vector<pid_t> all = descendants_of(job.process());
    std::erase_if(all, [](pid_t process) {
      std::string name;
      std::getline(std::ifstream(fmt::format("/proc/{}/comm", process)), name);
      return name != "sleep";
    });
    return all;
  };
  ASSERT_TRUE(within(10, [&] { return !sleeping().empty(); })) << job.err();
  const pid_t probe = sleeping().at(0);
  if (ptrace(PTRACE_SEIZE, probe, nullptr, nullptr) != 0) GTEST_SKIP() << "this system lets no process trace another";
  EXPECT_TRUE(within(60, [&] { return !noted().empty(); })) << job.err();
  EXPECT_TRUE(contains(job.err(), "n2 is left out: the probe took more than 15 s")) << job.err();
  EXPECT_EQ(job.wait_to_end(150), 64) << job.err();
  waitpid(probe, nullptr, 0);
}

// A disk that hangs holds the start of a program as a tracer does.
TEST_F(SuperviseNodes, ACommandThatDoesNotBeginLeavesSignalsHeard) {
  const std::string go = folder_ / "go";
  const std::string probe = "until test -e " + go + "; do sleep 0.1; done; echo {host}";
  BackgroundProgram job(words("n1 slots=4\n", kNote + "exit 64", {"--probe", probe, "--probe-seconds", "90"}));
  ASSERT_TRUE(within(60, [&] { return !descendants_of(job.process()).empty(); })) << job.err();
  if (ptrace(PTRACE_SEIZE, job.process(), nullptr, PTRACE_O_TRACEFORK) != 0)
    GTEST_SKIP() << "this system lets no process trace another";
  write_file(go, "");
  ASSERT_EQ(waitpid(job.process(), nullptr, 0), job.process());
  unsigned long command = 0;
  ASSERT_EQ(ptrace(PTRACE_GETEVENTMSG, job.process(), nullptr, &command), 0);
  ASSERT_EQ(ptrace(PTRACE_DETACH, job.process(), nullptr, nullptr), 0);
  kill(job.process(), SIGTERM);
  EXPECT_TRUE(within(60, [&] { return contains(job.err(), "SIGTERM: passed on as SIGUSR1"); })) << job.err();
  kill(static_cast<pid_t>(command), SIGKILL);
  waitpid(static_cast<pid_t>(command), nullptr, 0);
  EXPECT_EQ(job.wait_to_end(60), 137) << job.err();
}

TEST_F(SuperviseNodes, AHostThatFailedTwiceIsLeftOut) {
  const std::string fails =
      ": {hostfile}; n=$(wc -c < $F 2>/dev/null || echo 0); printf {ranks} >> $F; test $n -lt 3 || exit 64; mkdir -p $D; "
      "printf '{\"rank\": 1, \"host\": \"n2.cluster\", \"exit_code\": 76, \"cause\": \"was killed or crashed\", \"step\": 4, "
      "\"unix_time\": %s, \"start\": \"%s\"}' $n $TRIDENT_START > "
      "$D/failure.json; "
      "exit 75";
  const ProgramOutcome outcome =
      run_program(words("n1 slots=4\nn2 slots=2\n", fails, {"--probe", "true {host}", "--give-up-after", "9"}));
  EXPECT_EQ(outcome.exit_code, 64) << outcome.err;
  EXPECT_EQ(noted(), "6644") << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "rank 1 on n2.cluster was killed or crashed in step 4")) << outcome.err;
  EXPECT_TRUE(
      contains(outcome.err, "1 of 2 hosts with 4 slots; n2 failed 2 times within an hour and is left out; layout 2DP x 2PP"))
      << outcome.err;
  EXPECT_EQ(read_file(folder_ / "run/hostfile"), "n1 slots=4\n");
}

// A launcher waits for ever for the daemon of a node that is cut off. What is not this start's failure, or not of a run that is
// gone, ends nothing.
TEST_F(SuperviseNodes, ALauncherThatOutlivesItsFailedRunIsKilledAndTheNextLayoutStarts) {
  const auto failure = [](int code, const std::string& start = "$TRIDENT_START") {
    return fmt::format("mkdir -p $D; printf '{{\"rank\": 4, \"host\": \"n2\", \"exit_code\": {}, \"cause\": \"was cut off\", "
                       "\"step\": 7, \"message\": \"rank 4 is gone\", \"unix_time\": %s, \"start\": \"%s\"}}' $(date +%s%N) \"{}\" "
                       "> $D/failure.json; ",
                       code, start);
  };
  const auto waits = [&](const std::string& run, const std::string& script, std::vector<std::string> flags, int seconds = 1000) {
    flags.insert(flags.begin(), "supervise");
    flags.insert(flags.end(), {"--", "sh", "-c", fmt::format("D='{}'; {} sleep {}; exit 0", folder_ / run, script, seconds)});
    return flags;
  };
  const auto lives = [&](const std::string& run, const std::string& script) {
    std::vector<std::string> all = waits(run, script, {}, 18);
    all.insert(all.end(), {"train", "--config", folder_ / "c.json", "--set", "run.dir=" + (folder_ / run)});
    return all;
  };
  create_folder(folder_ / "earlier");
  write_file(folder_ / "earlier/failure.json", R"({"rank": 4, "host": "n2", "exit_code": 76, "cause": "was cut off", "step": 7})");
  BackgroundProgram earlier(lives("earlier", "")), disk(lives("disk", failure(74))), alive(lives("alive", failure(76)));
  BackgroundProgram late(lives("late", failure(76, "an earlier start")));  // of which a rank on a node that was cut off speaks now
  // A script that names no configuration has its checkpoints in run.dir, or says which folder that is.
  BackgroundProgram script(waits("script", failure(76), {"--max-restarts", "0", "--checkpoints", folder_ / "script/ckpt"}));
  BackgroundProgram named(waits("named", failure(76), {"--max-restarts", "0", "--checkpoints", folder_ / "named"}));
  const std::string hangs = ": {hostfile}; printf '{ranks} ' >> $F; test {ranks} = 6 || exit 64; touch $D-cut-n2; " + failure(76) +
                            "trap '' TERM USR1 HUP; setsid sleep 77 & while :; do sleep 0.5; done";
  const double start = monotonic_seconds();
  BackgroundProgram job(words("n1 slots=4\nn2 slots=2\n", hangs,
                              {"--probe", fmt::format("test ! -e '{}-cut-{{host}}'", folder_ / "run")}));
  std::vector<pid_t> started;
  for (std::int64_t look = 1; !(job.ended() && alive.ended()); ++look) {
    create_folder(folder_ / "alive/ckpt");
    write_file(folder_ / ("alive/ckpt/" + lease_name(1)), to_text({.holder = this_process("a"), .generation = 1, .counter = look}));
    if (started.empty() && contains(noted(), "6")) started = descendants_of(job.process());
    ASSERT_LT(monotonic_seconds() - start, 150) << job.err();
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  EXPECT_EQ(job.wait_to_end(0), 64) << job.err();
  EXPECT_EQ(noted(), "6 4 ");
  for (const char* said : {"\"sh\" has not ended 15 s after its run failed (rank 4 is gone): it is killed with all that it started",
                           " with 76: a rank is gone, late or out of step; rank 4 on n2 was cut off in step 7;"})
    EXPECT_TRUE(contains(job.err(), said)) << job.err();
  EXPECT_TRUE(std::ranges::none_of(started, is_running));
  for (BackgroundProgram* other : {&earlier, &disk, &alive, &late}) EXPECT_EQ(other->wait_to_end(150), 0) << other->err();
  for (BackgroundProgram* other : {&script, &named}) EXPECT_EQ(other->wait_to_end(150), 76) << other->err();
}

TEST_F(SuperviseNodes, WaitsForHostsAndStopsWhenAsked) {
  const std::string hosts = "n1 slots=4\nn2 slots=2\n", probe = fmt::format("test -e '{}/{{host}}'", folder_.path());
  {
    BackgroundProgram job(words(hosts, kNote + "exit 64", {"--probe", probe}));
    ASSERT_TRUE(within(150, [&] { return contains(job.err(), "no layout fits, the smallest has 2 ranks; waiting for hosts"); }))
        << job.err();
    write_file(folder_ / "n2", "");
    EXPECT_EQ(job.wait_to_end(150), 64) << job.err();
    EXPECT_EQ(noted(), "n2 slots=2\n2 --set parallel=1DP x 2PP ") << job.err();
  }
  remove_file(folder_ / "n2");
  const ProgramOutcome late = run_program(words(hosts, kNote + "exit 64", {"--probe", probe, "--wait-for-hosts", "1"}));
  EXPECT_EQ(late.exit_code, 76) << late.err;
  EXPECT_TRUE(contains(late.err, "waited 1 s for hosts (--wait-for-hosts); exit code 76")) << late.err;
  // While it waits, and while a probe runs.
  for (const std::string& slow : {probe, std::string("sleep 77 # {host}")}) {
    BackgroundProgram job(words(hosts, kNote + "exit 64", {"--probe", slow, "--probe-seconds", "60"}));
    ASSERT_TRUE(within(150, [&] { return contains(job.err(), "waiting for hosts") || descendants_of(job.process()).size() >= 2; }))
        << job.err();
    const std::vector<pid_t> probes = descendants_of(job.process());
    kill(job.process(), SIGTERM);
    EXPECT_EQ(job.wait_to_end(150), 143) << job.err();
    EXPECT_TRUE(within(150, [&] { return std::ranges::none_of(probes, is_running); }));
  }
}

TEST_F(SuperviseNodes, TheFileIsReadAgainBeforeEachStart) {
  const std::string changes = fmt::format(
      ": {{hostfile}}; n=$(wc -c < $F 2>/dev/null || echo 0); printf {{ranks}} >> $F; case $n in 0) echo 'n1 slots=2' > '{0}';; 1) "
      "echo 'n1 slo' > "
      "'{0}';; "
      "*) exit 64;; esac; exit 75",
      folder_ / "hosts");
  const ProgramOutcome outcome = run_program(words("n1 slots=6\n", changes, {"--probe", "true {host}", "--give-up-after", "9"}));
  EXPECT_EQ(noted(), "622") << outcome.err;
  EXPECT_TRUE(contains(outcome.err, "hosts:1: \"slo\" is not known here")) << outcome.err;
}

TEST_F(SuperviseNodes, WhatCannotWorkIsRefused) {
  const std::vector<std::string> probe{"--probe", "true {host}"};
  const auto refused = [&](const std::string& script, std::vector<std::string> flags, const std::vector<std::string>& parts) {
    expect_one_line(run_program(words("n1 slots=6\n", script, std::move(flags))), 64, parts);
  };
  refused("echo {ranks}", probe, {"the command has no {hostfile}", "mpirun --hostfile {hostfile} -np {ranks}"});
  refused("echo {hostfile}", probe, {"the command has no {ranks}"});
  refused(kNote, {"--probe", "true"}, {"--probe = \"true\": has no {host}"});
  refused(kNote, {"--probe-port", "0"}, {"--probe-port = 0: must be from 1 to 65535"});
  refused(kNote, {"--probe-seconds", "0"}, {"--probe-seconds = 0"});
  refused(kNote, {"--wait-for-hosts", "-1"}, {"--wait-for-hosts = -1"});
  expect_one_line(run_program(words("n1 slots=1\n", kNote, probe)), 64,
                  {"1 slot in all", "1DP x 2PP x 1TP (elastic[0]), has 2 ranks"});
  expect_one_line(run_program({"supervise", "--nodes-from", folder_ / "none", "--", "mpirun", "{hostfile}", "{ranks}", "train",
                               "--config", folder_ / "c.json"}),
                  64, {"--nodes-from ", "/none: "});
  expect_one_line(run_program({"supervise", "--nodes-from", folder_ / "hosts", "--checkpoints", folder_ / "ckpt", "--", "mpirun",
                               "{hostfile}", "{ranks}"}),
                  64, {"names no \"train --config FILE\""});
  expect_one_line(run_program({"supervise", "--checkpoints", folder_ / "ckpt", "--", "mpirun", "-np", "{ranks}"}), 64,
                  {"the command has {ranks}, and no --nodes-from"});
  configure(R"("3PP")", R"(["2DP x 2PP", "3DP"])");
  refused(kNote, probe, {"elastic[1] = \"3DP\": batch.global = 8: not divisible"});
  configure(R"({"pipeline": 2})", R"(["2DP"])");
  refused(kNote, probe, {"parallel.data = \"auto\"", "give the degree"});
  EXPECT_EQ(noted(), "") << "nothing was started";
}

// Layouts are checked even where no hosts are chosen: whoever writes them learns it at the first start, not when a host is gone.
TEST_F(SuperviseNodes, LayoutsAreCheckedWithoutHostsToo) {
  configure(R"("1DP")", R"(["3DP"])");
  expect_one_line(run_program({"supervise", "--", "true", "train", "--config", folder_ / "c.json"}), 64, {"elastic[0] = \"3DP\""});
  configure(R"("1DP")", R"(["2DP"])");
  EXPECT_EQ(run_program({"supervise", "--", "true", "train", "--config", folder_ / "c.json"}).exit_code, 0);
}

}  // namespace
}  // namespace trident
