// Learning rates of runs that go on with more steps, and what their last lines say.
#include "tests/train/stored_runs.h"

namespace trident::testing {
namespace {

// As versions before 2026-12 left it: the first start's run.steps, in the place of a length that nobody gave.
TEST_F(StoredRuns, ALengthBelowTheWarmUpIsReadWithAWarning) {
  const std::vector<std::string> warm{"lr_schedule.warmup_steps=5"};
  train(settings("run", {"run.steps=3", warm[0]}));
  const std::string step = newest(folder_ / "run/ckpt");
  Manifest manifest = open_manifest(step);
  manifest.config.find("lr_schedule")->set("decay_steps", 2);
  std::erase_if(manifest.config.members(), [](const JsonMember& member) { return member.key == kResolvedMember; });
  // It is the user's once it is given as --config: what trains refuses it, and nothing else does.
  const std::string file = folder_ / "run/config.resolved.json";
  write_file(file, to_json_text(manifest.config));
  OptionValues values;
  expect_error<ConfigError>([&] { load_train_config(file, {}, values); },
                            {"warmup_steps = 5: must be below", "(--set lr_schedule.decay_steps=null: to run.steps)"});
  EXPECT_NO_THROW(load_train_config(file, {"lr_schedule.decay_steps=null"}, values));
  generate([&](GenerateOptions& options) { options.config = file; });
  manifest.config.set("of_later_versions", JsonValue::Object{{"key", 1}});
  write_file(step + "/manifest.json", to_text(manifest));
  const std::vector<std::string> faults = read_stored(manifest.config, step).faults;
  ASSERT_EQ(faults.size(), 1u);
  EXPECT_TRUE(contains(faults[0], "lr_schedule.warmup_steps = 5: must be below lr_schedule.decay_steps = 2"));
  evaluate_and_convert(step);
  train(settings("begun", {"model.init_from=" + step}));
  const std::string said = train(settings("run", {"run.steps=9", warm[0]}));
  EXPECT_TRUE(contains(said, "warning: read as it stands: " + step + "/manifest.json: lr_schedule.warmup_steps = 5")) << said;
  EXPECT_TRUE(contains(said, "decay_steps was 2 and is 9 from here on")) << said;
  read("run");
}

// A schedule that is over before the run's new end.
TEST_F(StoredRuns, StepsThatWouldChangeNothingAreRefused) {
  const std::string linear = "lr_schedule.type=linear", minimum = "lr_schedule.min_lr=1e-4";
  const std::vector<std::string> first{"run.steps=4", linear, "lr_schedule.decay_steps=4"};
  train(settings("run", first));
  const auto on = [&](const std::vector<std::string>& more) { return train(settings("run", more)); };
  const std::vector<std::string> before = folder_.names();
  const std::vector<std::string> refused{
      "lr_schedule.decay_steps = 4: the learning rate is 0 from step 5 to the last, 9, which would change nothing; "
      "--set lr_schedule.decay_steps=9"};
  for (const char* type : {"linear", "cosine", "inverse_sqrt", "wsd"}) {  // the first start, and one that goes on
    std::vector<std::string> longer{"run.steps=9", fmt::format("lr_schedule.type={}", type), "lr_schedule.decay_steps=4",
                                    "lr_schedule.wsd_decay_steps=1"};
    for (const std::string run : {"new", "run"}) expect_error<ConfigError>([&] { train(settings(run, longer)); }, refused);
  }
  EXPECT_EQ(folder_.names(), before);
  EXPECT_NO_THROW(on(first)) << "a run that is over";
  EXPECT_FALSE(contains(on({"run.steps=4", "lr_schedule.decay_steps=2", "optimizer.lr=1"}), "from here on"))
      << "nothing is made any more";
  std::filesystem::remove_all(folder_ / "run/ckpt/step-00000004");
  EXPECT_NO_THROW(on(first)) << "one that was killed before its last step, whose rate is 0 as it should be";
  const std::vector<std::string> low{"run.steps=6", linear, minimum, "lr_schedule.decay_steps=4"};
  const std::string warned =
      "\nwarning: lr_schedule.decay_steps = 4: the learning rate is 0.0001 from step 5 to the last, 6, its minimum; ";
  EXPECT_TRUE(contains(on(low), warned));
  EXPECT_FALSE(contains(on(low), warned)) << "it is over";
  EXPECT_TRUE(contains(train(settings("warned", low)), warned));
  for (const std::string same : {"lr_schedule.type=constant", "lr_schedule.min_lr=1e-3"})
    EXPECT_FALSE(contains(train(settings(same, {"run.steps=3", "lr_schedule.decay_steps=2", "checkpoint.every=0", same})),
                          "decay_steps = "));
  EXPECT_TRUE(contains(on({"run.steps=8", linear, minimum}),
                       "decay_steps was 4 and is 8 from here on, as run.steps grew and it is not given: the learning rate of "
                       "step 7 was 0.0001 and is 0.0002125"));
  const std::string shorter = on({"run.steps=7", linear, minimum});
  EXPECT_FALSE(contains(shorter, "decay_steps")) << shorter;
  const JsonValue resolved = read_json_file(folder_ / "run/config.resolved.json");
  EXPECT_TRUE(resolved.find("lr_schedule")->find("decay_steps")->is_null());
  EXPECT_EQ(resolved.find("resolved")->find("decay_length")->as_integer(), 8);
}

TEST_F(StoredRuns, AWarmUpThatIsAShareGrowsWithTheDecay) {
  const auto on = [&](const std::string& steps, const std::string& decay) {
    return train(settings("run", {"run.steps=" + steps, "lr_schedule.decay_steps=" + decay, "lr_schedule.type=linear",
                                  "lr_schedule.warmup_steps=0.5", "log.every=1"}));
  };
  const std::string first = on("2", "4"), longer = on("8", "null");
  EXPECT_TRUE(contains(first, "  lr 5.00e-04")) << first;
  EXPECT_TRUE(contains(longer, "the learning rate of step 3 was 0.0005 and is 0.00075")) << longer;
  EXPECT_EQ(*read_json_file(folder_ / "run/config.resolved.json").find("lr_schedule")->find("warmup_steps"), JsonValue(0.5));
}

// The last step of a decay to 0 changes nothing; a start that makes that step alone would change nothing at all.
TEST_F(StoredRuns, AStepThatIsAddedAloneHasARate) {
  const auto on = [&](const std::string& steps, const std::string& more = "log.every=1") {
    return train(settings("run", {"run.steps=" + steps, "lr_schedule.type=linear", more}));
  };
  const auto rate = [](const std::string& said) { return said.substr(said.find("  lr "), 13); };
  on("2");
  const std::string third = on("3");
  EXPECT_TRUE(contains(third, "lr_schedule.decay_steps was 2 and is 3 from here on, as run.steps grew and it is not given: the "
                              "learning rate of step 3 was 0 and is 0.00025, as if another step came: a last step's is 0 "
                              "(lr_schedule.min_lr)"))
      << third;
  EXPECT_EQ(rate(third), "  lr 2.50e-04");
  std::filesystem::remove_all(folder_ / "run/ckpt/step-00000003");
  EXPECT_EQ(rate(on("3")), rate(third)) << "it was killed, and started again";
  EXPECT_EQ(rate(on("4")), "  lr 2.00e-04") << "one more";
  const JsonValue resolved = read_json_file(folder_ / "run/config.resolved.json");
  EXPECT_EQ(resolved.find("resolved")->find("decay_length")->as_integer(), 4);
  std::filesystem::remove_all(folder_ / "run/ckpt/step-00000004");
  EXPECT_EQ(rate(on("5")), "  lr 2.00e-04") << "the first of two";
  std::filesystem::remove_all(folder_ / "run/ckpt/step-00000005");
  EXPECT_EQ(rate(on("5")), "  lr 0.00e+00") << "the second";
  EXPECT_EQ(rate(on("6", "lr_schedule.min_lr=1e-4")), "  lr 1.00e-04");
}

// The loss that training began with is the run's, not the last start's.
TEST_F(StoredRuns, ARunThatGoesOnEndsWithItsFirstLoss) {
  const auto result_of = [&](const std::string& said) {
    const std::size_t at = said.find("training loss ");
    return said.substr(at, said.find(' ', at + 20) - at);
  };
  const std::string first = result_of(train(settings("run", {"run.steps=1"}))), second = train(settings("run", {"run.steps=3"}));
  EXPECT_EQ(result_of(second), first) << second;
  std::filesystem::remove(folder_ / "run/metrics.jsonl");  // logs that were rotated
  EXPECT_NE(result_of(train(settings("run", {"run.steps=4"}))), first);
}

}  // namespace
}  // namespace trident::testing
