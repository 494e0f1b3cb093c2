// Tests what follows a command's end: every code, every history, and the waits, without a process or a clock.
#include "supervise/supervision.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>

#include "core/check.h"
#include "core/file_io.h"
#include "supervise/supervised_nodes.h"
#include "supervise/host_probe.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "train/launch/failure_file.h"

namespace trident {
namespace {

TEST(Supervision, EveryExitCodeHasItsAnswer) {
  for (int code = 0; code < 256; ++code) {
    const bool by_signal = code > 128 && code <= 128 + SIGRTMAX;
    const bool restarted = code == 74 || code == 75 || code == 76 || code == 1 || code == 9 || code == 205 || by_signal;
    const NextMove next = what_follows({}, {}, {.code = code, .made_progress = true});
    EXPECT_EQ(next.restart, restarted) << code;
    if (!next.restart) {
      EXPECT_EQ(next.exit_code, code);
    }
    EXPECT_EQ(describe_exit(code).rfind(std::to_string(code) + ": ", 0), 0u) << describe_exit(code);
  }
  EXPECT_EQ(describe_exit(137), "137: killed by SIGKILL");
}

// A run that saves at its end alone leaves nothing to go on from when it crashes.
TEST(Supervision, WhatSavesAtItsEndAloneIsStartedAgainAfterASaveOnly) {
  SupervisionRules rules;
  rules.saves_on_the_way = false;
  for (int code = 0; code < 256; ++code) {
    const NextMove next = what_follows(rules, {}, {.code = code});
    EXPECT_EQ(next.restart, code == 75) << code;
    EXPECT_EQ(next.exit_code, code);
    const bool otherwise = what_follows({}, {}, {.code = code, .made_progress = true}).restart;
    EXPECT_EQ(next.why.find("checkpoint.every is \"end\"") != std::string::npos, otherwise && code != 75) << next.why;
  }
}

TEST(Supervision, WaitsGrowToAMinute) {
  const double seconds[] = {0, 1, 2, 4, 8, 16, 32, 60, 60, 60};
  for (int idle = 0; idle < 10; ++idle) EXPECT_EQ(back_off_seconds(idle), seconds[idle]) << idle;
  EXPECT_EQ(back_off_seconds(2000000000), 60);
}

// One kill after the other, as the minutes pass: the history alone says how long to wait.
TEST(Supervision, ProgressTakesTheWaitAway) {
  const SupervisionRules patient{.max_restarts = {}, .max_idle_starts = 100};
  SupervisionHistory history;
  struct Row { int code; bool progress; double wait; };
  const Row rows[] = {{137, true, 0}, {137, false, 1}, {76, false, 2}, {74, false, 4}, {75, false, 0}, {139, false, 16},
                      {76, true, 0},  {76, true, 0},   {1, false, 1},  {205, false, 2}};
  for (std::size_t i = 0; i < std::size(rows); ++i) {
    const NextMove next = what_follows(patient, history, {.code = rows[i].code, .made_progress = rows[i].progress});
    ASSERT_TRUE(next.restart) << i;
    EXPECT_EQ(next.wait_seconds, rows[i].wait) << i;
    EXPECT_EQ(next.history.restarts, static_cast<int>(i) + 1);
    history = next.history;
  }
}

TEST(Supervision, ThreeStartsWithoutAStepEndWith93) {
  SupervisionHistory history;
  const auto ends = [&](int code, bool progress) {
    const NextMove next = what_follows({}, history, {.code = code, .made_progress = progress});
    history = next.history;
    return next.restart ? -1 : next.exit_code;
  };
  EXPECT_EQ(ends(137, false), -1);
  EXPECT_EQ(ends(76, false), -1);
  EXPECT_EQ(ends(76, true), -1) << "in a row means in a row";
  EXPECT_EQ(ends(76, false), -1);
  EXPECT_EQ(ends(75, false), -1);
  EXPECT_EQ(ends(74, false), 93);
  const NextMove last = what_follows({}, {.restarts = 2, .idle_starts = 2}, {.code = 76});
  expect_parts(last.why, {"3 starts in a row committed no new step"});
}

TEST(Supervision, WhoIsAskedToStopStartsNothing) {
  for (const int code : {0, 1, 74, 75, 76, 137, 138}) {
    const NextMove next = what_follows({}, {.restarts = 1, .idle_starts = 2}, {.code = code, .asked_to_stop = true});
    EXPECT_FALSE(next.restart);
    EXPECT_EQ(next.exit_code, code) << "not 93: it was not given its time";
  }
}

TEST(Supervision, RestartsAreCounted) {
  const SupervisionRules rules{.max_restarts = 2};
  EXPECT_TRUE(what_follows(rules, {.restarts = 1}, {.code = 76, .made_progress = true}).restart);
  const NextMove next = what_follows(rules, {.restarts = 2}, {.code = 76, .made_progress = true});
  EXPECT_FALSE(next.restart);
  EXPECT_EQ(next.exit_code, 76);
  expect_parts(next.why, {"--max-restarts 2"});
  EXPECT_FALSE(what_follows({.max_restarts = 0}, {}, {.code = 137, .made_progress = true}).restart);
}

TEST(FailureFile, ComesBackAsItWasWritten) {
  const TemporaryFolder folder;
  const RunFailure failure{.rank = 3, .host = "n1", .cause = "was killed or crashed", .exit_code = 76, .step = 17,
                           .message = "rank \"3\"", .start = "a0"};
  EXPECT_EQ(failure_text(folder.path()), "");
  write_failure(folder.path(), failure);
  const std::string first = failure_text(folder.path());
  const auto read = failure_from(first);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->rank, 3);
  EXPECT_EQ(read->host, "n1");
  EXPECT_EQ(read->cause, failure.cause);
  EXPECT_EQ(read->exit_code, 76);
  EXPECT_EQ(read->step, 17);
  EXPECT_EQ(read->message, failure.message);
  EXPECT_EQ(read->start, "a0");
  write_failure(folder.path(), failure);
  EXPECT_NE(failure_text(folder.path()), first) << "another failure has another text";
  for (const char* text : {"", "{}", "[1]", R"({"rank": -1, "cause": "x"})", R"({"rank": "3", "cause": "x"})", R"({"rank": 3)",
                           "null", R"({"rank": 4294967296, "cause": "x"})", R"({"rank": 3, "cause": "x\u001b[2J"})",
                           R"({"rank": 3, "cause": "x", "host": "a\nb"})"})
    EXPECT_FALSE(failure_from(text)) << text;
  for (const std::string& odd : {first.substr(0, first.size() / 2), std::string(1 << 20, ' ') + first, std::string(100000, '[')}) {
    write_file(folder / "failure.json", odd);
    EXPECT_FALSE(failure_from(failure_text(folder.path()))) << odd.size() << " bytes";
  }
  remove_file(folder / "failure.json");
  ASSERT_EQ(::mkfifo((folder / "failure.json").c_str(), 0600), 0);
  EXPECT_EQ(failure_text(folder.path()), "") << "nor is a pipe waited for";
  remove_file(folder / "failure.json");
  write_failure(folder.path(), failure);
  write_failure(folder / "not_there", failure);
  EXPECT_EQ(folder.names(), std::vector<std::string>{"failure.json"}) << "no folder is made for it";
}

// A start gets its hosts and its layout: files of hosts, hosts that are gone or failed, layouts that fit, without a process.

std::string refusal(const std::string& text) {
  return error_of<ConfigError>([&] { parse_hostfile(text, "hosts"); });
}

TEST(Hostfile, IsReadAsMpirunReadsIt) {
  const std::vector<HostSlots> hosts = parse_hostfile(
      "# two nodes\n\n n1 slots=4 max_slots=8 # the first\r\nn2.cluster\tslots=2\nn1 slots=1\nfd77::1 slots=3", "hosts");
  EXPECT_EQ(hosts, (std::vector<HostSlots>{{"n1", 5}, {"n2.cluster", 2}, {"fd77::1", 3}}));
  EXPECT_EQ(slots_of(hosts), 10);
  EXPECT_EQ(parse_hostfile(hostfile_text(hosts), "again"), hosts);
  std::string many;
  for (int i = 0; i < 8192; ++i) many += fmt::format("node{:05} slots=8\n", i);
  EXPECT_EQ(slots_of(parse_hostfile(many, "hosts")), 65536);
}

TEST(Hostfile, RefusesWhatItDoesNotUnderstandWithItsLine) {
  const std::pair<const char*, const char*> cases[] = {{"", "hosts: names no host"},
                                                       {"# nothing\n", "names no host"},
                                                       {"n1 slots=2\nn2", "hosts:2: how many ranks n2 may have is missing"},
                                                       {"n1 slots=0", "hosts:1: \"slots=0\": must be an integer from 1"},
                                                       {"n1 slots=-2", "must be an integer"},
                                                       {"n1 slots=", "must be an integer"},
                                                       {"n1 slots", "must be an integer"},
                                                       {"n1 slots=2x", "must be an integer"},
                                                       {"n1 slots=65537", "must be an integer"},
                                                       {"n1 slots=99999999999999999999", "must be an integer"},
                                                       {"n1 slots=2 user=root", "\"user=root\" is not known here"},
                                                       {"-oProxyCommand=x slots=1", "is not the name of a host"},
                                                       {"a;rm slots=1", "is not the name of a host"},
                                                       {"$(id) slots=1", "is not the name of a host"},
                                                       {"n1 slots=65536\nn2 slots=1", "hosts:2: more than 65536 slots"}};
  for (const auto& [text, part] : cases) EXPECT_NE(refusal(text).find(part), std::string::npos) << text << " -> " << refusal(text);
}

TEST(Hostfile, NamesOfOneHost) {
  EXPECT_TRUE(is_same_host("n1", "N1"));
  EXPECT_TRUE(is_same_host("n1", "n1.cluster.org"));
  EXPECT_TRUE(is_same_host("n1.cluster.org", "n1"));
  EXPECT_FALSE(is_same_host("n1.a.org", "n1.b.org"));
  EXPECT_FALSE(is_same_host("n1", "n11"));
  EXPECT_FALSE(is_same_host("10.0.0.1", "10.0.0.2")) << "addresses have no domain";
  EXPECT_FALSE(is_same_host("10.0.0.1", "10"));
  EXPECT_TRUE(is_same_host("fd77::1", "FD77::1"));
}

TEST(Placeholders, AreReplacedOnce) {
  EXPECT_EQ(with_placeholders("-np {ranks} {hostfile}{ranks}", {{"{ranks}", "4"}, {"{hostfile}", "/a/{ranks}"}}),
            "-np 4 /a/{ranks}4");
  EXPECT_EQ(with_placeholders("{rank} {", {{"{ranks}", "4"}}), "{rank} {");
}

const std::vector<ElasticLayout> kLayouts{{"2DP x 3PP", "", 6},
                                          {"1DP x 2PP", "parallel=1DP x 2PP", 2},
                                          {"2DP x 2PP", "parallel=2DP x 2PP", 4},
                                          {"1DP x 4PP", "parallel=1DP x 4PP", 4},
                                          {"9DP", "parallel=9DP", 9}};
const std::vector<HostSlots> kHosts{{"n1", 2}, {"n2", 2}, {"n3", 2}};

TEST(HostChoice, TheConfigurationsLayoutGoesFirstThenTheLargest) {
  const HostFailures none;
  const HostChoice whole = choose_hosts(kHosts, {"", "", ""}, none, 0, kLayouts);
  EXPECT_EQ(whole.hosts, kHosts);
  ASSERT_TRUE(whole.layout);
  EXPECT_EQ(whole.layout->setting, "");
  EXPECT_EQ(whole.line, "3 of 3 hosts with 6 slots; layout 2DP x 3PP on 6 ranks");
  // More slots than it needs change nothing: a larger layout of elastic is no fall-back.
  EXPECT_EQ(choose_hosts({{"n1", 99}}, {""}, none, 0, kLayouts).layout->ranks, 6);

  const HostChoice less = choose_hosts(kHosts, {"", "port 22: No route to host", ""}, none, 0, kLayouts);
  EXPECT_EQ(less.hosts, (std::vector<HostSlots>{{"n1", 2}, {"n3", 2}}));
  EXPECT_EQ(less.layout->setting, "parallel=2DP x 2PP") << "the first of the largest";
  EXPECT_EQ(less.line,
            "2 of 3 hosts with 4 slots; n2 is left out: port 22: No route to host; layout 2DP x 2PP on 4 ranks instead of 2DP x "
            "3PP on 6");
  EXPECT_EQ(choose_hosts({{"n1", 3}}, {""}, none, 0, kLayouts).layout->ranks, 2);
  const HostChoice nothing = choose_hosts({{"n1", 1}, {"n2", 2}}, {"", "x"}, none, 0, kLayouts);
  EXPECT_FALSE(nothing.layout);
  expect_parts(nothing.line, {"no layout fits, the smallest has 2 ranks"});
}

TEST(HostChoice, TwoFailuresWithinAnHourLeaveAHostOut) {
  const std::vector<std::string> there(3);
  HostFailures failures;
  failures.emplace_back("n2.cluster", 100);
  EXPECT_EQ(choose_hosts(kHosts, there, failures, 200, kLayouts).hosts.size(), 3u) << "once is no habit";
  failures.emplace_back("n3", 300);
  EXPECT_EQ(choose_hosts(kHosts, there, failures, 400, kLayouts).hosts.size(), 3u);
  failures.emplace_back("n2", 3699);
  const HostChoice choice = choose_hosts(kHosts, there, failures, 3699.5, kLayouts);
  EXPECT_EQ(choice.hosts, (std::vector<HostSlots>{{"n1", 2}, {"n3", 2}}));
  expect_parts(choice.line, {"n2 failed 2 times within an hour and is left out"});
  EXPECT_EQ(choose_hosts(kHosts, there, failures, 3700, kLayouts).hosts.size(), 3u) << "the first is an hour ago";
}

// Better a host that fails now and then than no run.
TEST(HostChoice, FailedHostsAreTakenWhereNothingFitsWithoutThem) {
  HostFailures failures;
  for (int i = 0; i < 5; ++i) failures.emplace_back("n1", i);
  const HostChoice choice = choose_hosts({{"n1", 2}}, {""}, failures, 10, kLayouts);
  ASSERT_TRUE(choice.layout);
  EXPECT_EQ(choice.hosts.size(), 1u);
  expect_parts(choice.line, {"n1 failed 5 times within an hour and is used all the same: no layout fits without it"});
  EXPECT_FALSE(choose_hosts({{"n1", 2}}, {"gone"}, failures, 10, kLayouts).layout) << "not where it is gone, too";
  const HostChoice beside = choose_hosts({{"n1", 2}, {"n2", 2}}, {"", "gone"}, failures, 10, kLayouts);
  EXPECT_EQ(beside.hosts, (std::vector<HostSlots>{{"n1", 2}})) << "and nobody else who is gone";
}

TEST(HostChoice, ALongListIsCut) {
  std::vector<HostSlots> hosts;
  for (int i = 0; i < 500; ++i) hosts.push_back({fmt::format("n{}", i), 1});
  const HostChoice choice = choose_hosts(hosts, std::vector<std::string>(500, "gone"), {}, 0, kLayouts);
  EXPECT_LT(choice.line.size(), 400u) << choice.line;
  expect_parts(choice.line, {"and 492 more"});
}

// ---- layouts of a configuration ------------------------------------------------------------------------------------------------

class ElasticLayouts : public ::testing::Test {
 protected:
  std::vector<ElasticLayout> layouts(const std::string& elastic, const std::string& parallel = "2DP x 2PP") {
    write_file(folder_ / "c.json", fmt::format(R"({{"run": {{"steps": 3}}, "data": {{"train": "none"}}, "optimizer": {{"lr": 1e-3}},
      "model": {{"model_type": "llama", "vocab_size": 50257, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}},
      "batch": {{"global": 8, "micro": 1, "sequence": 32}}, "parallel": "{}", "elastic": {}}})",
                                               parallel, elastic));
    OptionValues values;
    const TrainConfig config = load_train_config(folder_ / "c.json", {}, values);
    std::vector<ElasticLayout> all = elastic_layouts(folder_ / "c.json", {}, config);
    all.insert(all.begin(), own_layout(config));
    return all;
  }
  std::string refused(const std::string& elastic) {
    return error_of<ConfigError>([&] { layouts(elastic); });
  }
  TemporaryFolder folder_;
};

TEST_F(ElasticLayouts, AreReadInBothForms) {
  const auto all = layouts(R"(["1DP x 4PP", {"data": 1, "pipeline": 2, "schedule": "interleaved", "virtual_stages": 2}, "8dp"])");
  ASSERT_EQ(all.size(), 4u);
  EXPECT_EQ(all[0].text, "2DP x 2PP x 1TP");
  EXPECT_EQ(all[0].ranks, 4);
  EXPECT_EQ(all[1].text, "1DP x 4PP x 1TP (elastic[0])");
  EXPECT_EQ(all[1].setting, "parallel=1DP x 4PP");
  EXPECT_EQ(all[2].ranks, 2);
  EXPECT_EQ(all[3].ranks, 8);
  // The next command reads the file back as that layout.
  for (const ElasticLayout& layout : all) {
    if (layout.setting.empty()) continue;
    OptionValues values;
    const TrainConfig config = load_train_config(folder_ / "c.json", {layout.setting}, values);
    EXPECT_EQ(config.parallel.data.value() * config.parallel.pipeline * config.parallel.tensor, layout.ranks) << layout.setting;
  }
}

TEST_F(ElasticLayouts, EachMustBeLegalForModelAndBatch) {
  const std::pair<const char*, std::vector<const char*>> cases[] = {
      {R"(["2DP", "3DP"])", {"elastic[1] = \"3DP\": ", "batch.global = 8: not divisible"}},
      {R"(["8TP"])", {"elastic[0]", "heads"}},
      {R"(["5PP x 1DP"])", {"elastic[0]"}},
      {R"([{"data": "auto"}])", {"elastic[0]", "parallel.data = \"auto\""}},
      {R"([{"data": 1, "layers": [1, 1, 2]}])", {"elastic[0]", "parallel.layers"}},
      {R"(["2XP"])", {"elastic[0]", "expected TP, PP, DP or CP"}},
      {R"(["2CP"])", {"elastic[0]", "parallel.context = 2: not built yet"}},
      {R"(["0DP"])", {"elastic[0]", "parallel.data = 0"}},
      {R"([{"pipelin": 2}])", {"elastic[0]", "unknown key \"parallel.pipelin\"; did you mean parallel.pipeline?"}},
      {R"([{}])", {"elastic = "}},
      {R"([4])", {"elastic = "}},
      {R"("2DP")", {"elastic = "}}};
  for (const auto& [elastic, parts] : cases)
    for (const char* part : parts)
      EXPECT_NE(refused(elastic).find(part), std::string::npos) << elastic << " -> " << refused(elastic);
  EXPECT_EQ(layouts("[]").size(), 1u);
}

}  // namespace
}  // namespace trident
