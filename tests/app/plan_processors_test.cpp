// `trident plan --cluster cpu`: memory is what training holds, the step is that of the profile, and what is missing is named.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "planner/price/cpu_rates.h"
#include "planner/price/kept_profile.h"
#include "tests/app/program.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

class PlanOnProcessors : public ::testing::Test {
 protected:
  ProgramOutcome plan(const std::vector<std::string>& more) {
    return run_program(plus({"plan", "--config", place_ / "config.json"}, more));
  }
  JsonValue priced(const std::vector<std::string>& more) {
    const ProgramOutcome outcome = succeeded(plan(plus({"--json"}, more)));
    return *parse_json(outcome.out, "printed", {.max_bytes = 1 << 24}).find("cluster");
  }
  // The shipped profile, changed.
  std::string profile(void (*change)(CpuRates&)) {
    CpuRates rates = shipped_cpu_rates();
    change(rates);
    write_file(place_ / "profile.json", to_json_text(to_json(rates)));
    return place_ / "profile.json";
  }

  Workplace place_;
};

TEST_F(PlanOnProcessors, ArenasAreThoseOfTraining) {
  const std::vector<std::string> layout{"parallel.pipeline=2", "parallel.data=2", "checkpoint.every=1"};
  const JsonValue cluster = priced({"--cluster", "cpu", "--set", layout[0], "--set", layout[1], "--set", layout[2]});
  std::vector<std::string> settings = layout;
  settings.emplace_back("run.steps=1");
  ASSERT_EQ(place_.train(settings).exit_code, 0);
  const JsonValue memory = parse_json(read_file(place_ / "run/memory.json"), "memory", {.max_bytes = 1 << 24});
  std::int64_t bytes = 0, staging = 0;
  for (const JsonValue& rank : memory.find("ranks")->items()) {
    bytes += rank.find("bytes")->as_integer();
    staging += rank.find("checkpoint_staging")->as_integer();
  }
  EXPECT_EQ(cluster.find("staging_bytes")->as_integer(), staging);
  EXPECT_EQ(cluster.find("arena_bytes")->as_integer(), bytes) << "bytes are written as integers";
  EXPECT_GT(cluster.find("resident_bytes")->as_integer(), bytes);
  EXPECT_TRUE(cluster.find("device_bytes")->is_integer());
  EXPECT_TRUE(cluster.find("needed")->find("value")->is_integer());
  for (const JsonMember& axis : cluster.find("bytes_of_a_rank")->members()) EXPECT_TRUE(axis.value.is_integer()) << axis.key;
  EXPECT_EQ(cluster.find("ranks")->as_integer(), 4);
}

TEST_F(PlanOnProcessors, ThisMachineIsPlannedByItsKeptProfile) {
  ::setenv("XDG_CACHE_HOME", (place_ / "cache").c_str(), 1);
  const std::string kept = kept_profile_path(cpu_machine_facts(1).core_share.at_once());
  create_folder_of(kept);
  write_file(kept, read_file(profile([](CpuRates& rates) { rates.processor = "a kept one"; })));
  expect_parts(succeeded(plan({"--cluster", "this-machine"})).out, {"the profile cpu of a kept one"});
  const std::vector<std::string> more{"--config", place_ / "config.json", "--gpus", "1", "--best", "1"};
  expect_parts(succeeded(run_program(plus({"plan", "search", "this-machine"}, more))).out, {"the profile cpu of a kept one"});
  ::unsetenv("XDG_CACHE_HOME");
}

TEST_F(PlanOnProcessors, MoreCoresThanRanksAreNotShared) {
  const std::vector<std::string> two{"--set", "parallel.data=2", "--set", "run.threads_per_rank=1"};
  std::vector<std::string> words{"--cluster", profile([](CpuRates& rates) { rates.cores = 2; })};
  words.insert(words.end(), two.begin(), two.end());
  const JsonValue apart = priced(words);
  profile([](CpuRates& rates) { rates.cores = 1; });
  const JsonValue shared = priced(words);
  EXPECT_FALSE(apart.find("step")->find("shares_cores")->as_bool());
  EXPECT_TRUE(shared.find("step")->find("shares_cores")->as_bool());
  EXPECT_DOUBLE_EQ(shared.find("step")->find("seconds")->as_number(), shared.find("step")->find("cpu_seconds")->as_number());
  EXPECT_GT(shared.find("step")->find("seconds")->as_number(), 1.2 * apart.find("step")->find("seconds")->as_number());
}

// The same report as of GPUs.
TEST_F(PlanOnProcessors, TheReportIsThatOfGpus) {
  const ProgramOutcome text = succeeded(plan({"--cluster", "cpu", "--html", place_ / "page.html"}));
  EXPECT_EQ(text.out.find(": the process of 1 rank takes ") < text.out.find('\n'), true) << text.out;
  for (const char* part : {"\na step takes ", "\nMFU ", "\nfirst limit: ", "\n  activations: MLP ", " core-hours (",
                           "\nbands: of "})
    EXPECT_NE(text.out.find(part), std::string::npos) << part << " in\n" << text.out;
  const std::string html = read_file(place_ / "page.html");
  expect_parts(html, {"memory of the process"});
  EXPECT_TRUE(html.ends_with("</html>\n"));
  const ProgramOutcome csv = succeeded(plan({"--cluster", "cpu", "--csv"}));
  EXPECT_TRUE(csv.out.starts_with("quantity,part,stage,unit,value,low,high\nmemory,parameters,0,bytes,")) << csv.out;
  expect_parts(csv.out, {"\ntraining,,,core-hours,"});
  const JsonValue json = priced({"--cluster", "cpu"});
  const double resident = json.find("resident_bytes")->as_number();
  EXPECT_LT(json.find("needed")->find("low")->as_number(), resident);
  EXPECT_NE(json.find("band"), nullptr);
  const JsonValue own = priced({"--cluster", profile([](CpuRates&) {})});
  EXPECT_EQ(own.find("band"), nullptr) << "nobody measured how far a profile of one's own is off";
  EXPECT_EQ(own.find("step")->find("low"), nullptr);
}

TEST_F(PlanOnProcessors, WhatIsMissingIsNamed) {
  const auto refused = [&](const std::vector<std::string>& words, const std::string& why) {
    const ProgramOutcome outcome = plan(words);
    EXPECT_EQ(outcome.exit_code, 64) << outcome.err;
    expect_parts(outcome.err, {why});
  };
  const std::string no_attention = profile([](CpuRates& rates) { rates.attention.clear(); });
  refused({"--cluster", no_attention}, "has no table of attention attention_forward ");
  refused({"--cluster", "cpu", "--set", "device=cuda"}, "device = cuda: --cluster names processors");
  refused({"--cluster", "cpu", "--gpus", "1026", "--set", "batch.global=1026"}, "1026 ranks");
  refused({"--cluster", "cpu", "--gpus", "3", "--set", "parallel.pipeline=2"}, "3 ranks: not a multiple of the 2 that one replica");
  write_file(place_ / "other.json", R"({"cores": 2})");
  refused({"--cluster", place_ / "other.json"}, "other.json.name: is missing");
}

}  // namespace
}  // namespace trident
