// Whatever a start was asked for, what it saved can be gone on from, evaluated, converted, generated from and begun with.
#include "tests/train/stored_runs.h"

// Every start measures the machine for 0.2 s, which is nothing to these tests (linked with --wrap).
std::optional<double> measured_peak(trident::Device&, trident::DType)
    __asm__("__wrap__ZN7trident19measure_matmul_peakERNS_6DeviceENS_5DTypeE");
std::optional<double> measured_peak(trident::Device&, trident::DType) { return 1e9; }

namespace trident::testing {
namespace {

// A start, which goes on from the one in the row above it; "new": in a folder of its own.
struct StartRow {
  std::string_view settings;
  std::string_view says = "";  // a part of what it prints
};

// Each row is gone on from by the next one, and the last of each folder by one more step.
constexpr StartRow kStarts[] = {
    // a first start that is no longer than its warm-up
    {"new run.steps=2 lr_schedule.warmup_steps=5"},
    {"run.steps=8 lr_schedule.warmup_steps=5", "decay_steps was 2 and is 8 from here on, as run.steps grew"},
    {"new run.steps=3 lr_schedule.warmup_steps=3"},
    {"run.steps=6 lr_schedule.warmup_steps=3", "the learning rate of step 4 was 0 and is 0.00075"},
    {"new run.steps=1 lr_schedule.warmup_steps=4 lr_schedule.type=constant"},
    {"run.steps=2 lr_schedule.warmup_steps=4 lr_schedule.type=constant"},
    {"run.steps=7 lr_schedule.warmup_steps=4 lr_schedule.type=constant"},
    {"new run.steps=1 lr_schedule.warmup_steps=4 lr_schedule.type=linear"},
    {"run.steps=7 lr_schedule.warmup_steps=4 lr_schedule.type=linear"},
    {"new run.steps=2 lr_schedule.warmup_steps=4 lr_schedule.type=inverse_sqrt"},
    {"run.steps=6 lr_schedule.warmup_steps=4 lr_schedule.type=inverse_sqrt"},
    {"new run.steps=6 lr_schedule.type=wsd lr_schedule.wsd_decay_steps=2"},
    {"run.steps=9 lr_schedule.type=wsd lr_schedule.wsd_decay_steps=3", "lr_schedule.wsd_decay_steps was 2 and is 3 from here on"},
    {"run.steps=12 lr_schedule.type=wsd lr_schedule.wsd_decay_steps=0.5",
     "lr_schedule.wsd_decay_steps was 3 and is 0.5 from here on"},
    // a warm-up that grows above what the decay was
    {"new run.steps=2"},
    {"run.steps=4 lr_schedule.warmup_steps=3", "lr_schedule.warmup_steps was 0 and is 3 from here on"},
    {"run.steps=5 lr_schedule.warmup_steps=30"},
    {"run.steps=6 lr_schedule.warmup_steps=6"},
    {"run.steps=9 lr_schedule.warmup_steps=2"},
    // lengths that are given, taken back and given again
    {"new run.steps=2 lr_schedule.decay_steps=6 lr_schedule.warmup_steps=5"},
    {"run.steps=3 lr_schedule.warmup_steps=5"},
    {"run.steps=4 lr_schedule.warmup_steps=8"},
    {"run.steps=5 lr_schedule.decay_steps=9 lr_schedule.warmup_steps=8", "lr_schedule.decay_steps was 6 and is 9 from here on"},
    {"run.steps=12 lr_schedule.warmup_steps=8", "decay_steps was 9 and is 12 from here on, as run.steps grew"},
    {"new run.steps=4 lr_schedule.decay_steps=2 lr_schedule.min_lr=1e-4",
     "warning: lr_schedule.decay_steps = 2: the learning rate is 0.0001 from step 3 to the last, 4, its minimum; "
     "--set lr_schedule.decay_steps=4"},
    {"run.steps=6 lr_schedule.decay_steps=2 lr_schedule.min_lr=1e-4", "--set lr_schedule.decay_steps=6"},
    {"run.steps=7 lr_schedule.min_lr=1e-4"},
    // how it learns
    {"new optimizer.lr=1e-2"},
    {"run.steps=3 optimizer.lr=2e-2 lr_schedule.type=linear", "optimizer.lr was 0.01 and is 0.02 from here on"},
    {"run.steps=4 optimizer.weight_decay=0 optimizer.grad_clip=0", "optimizer.lr was 0.02 and is 0.001 from here on"},
    {"run.steps=5 optimizer.betas=[0.8,0.9] optimizer.eps=1e-6", "optimizer.betas was "},
    {"run.steps=6 lr_schedule.min_lr=5e-4 lr_schedule.type=cosine"},
    {"new optimizer.type=lion optimizer.lr=1e-4 lr_schedule.type=constant lr_schedule.min_lr=1e-4"},
    {"run.steps=3 optimizer.type=lion optimizer.lr=1e-2"},
    {"new optimizer.type=lion"},
    {"run.steps=3 optimizer.type=lion", "the learning rate of step 3 was 0 and is 0.0001464, as if another step came"},
    // layouts and formats
    {"new parallel.data=2"},
    {"run.steps=3 parallel.tensor=2"},
    {"run.steps=4 parallel.tensor=2 parallel.sequence_parallel=true"},
    {"run.steps=5 parallel.data=2 parallel.zero=zero3"},
    {"new precision.compute=fp16 precision.loss_scale=1024"},
    {"run.steps=3 precision.compute=bf16 precision.stochastic_rounding=true"},
    {"run.steps=4 precision.compute=fp32 recompute.policy=full"},
    {"run.steps=5 precision.compute=fp16"},
    // what is saved, logged and evaluated
    {"new log.trace_steps=[1,2] log.every=3"},
    {"run.steps=3 log.every=1 eval.every=1 eval.steps=1 data.split=1,1 checkpoint.allow=data"},
    {"new eval.every=1 eval.steps=1 data.split=1,1 eval.sample_ids=[\"1\"] eval.sample_tokens=2"},
    {"run.steps=3 data.split=1,1 checkpoint.every=3"},
    {"run.steps=4 data.split=1,1 checkpoint.keep_last=1 checkpoint.keep_every=2 checkpoint.staging=1"},
    {"new checkpoint.keep_last=null run.max_minutes=9 run.pin=true"},
    {"run.steps=3 checkpoint.on_error=stop debug.no_alloc=true"},
    {"new elastic=[\"1DP\",\"2DP\"] cuda.nccl_max_ctas=4 cuda.nccl_any_order=true"},
    {"run.steps=3 cuda.tf32=false"},
    // with consent
    {"new run.seed=7 batch.global=4"},
    {"run.steps=3 run.seed=8 batch.global=4 checkpoint.allow=run.seed", "run.seed was 7 and is 8 from here on (checkpoint.allow)"},
    {"run.steps=4 batch.global=2 checkpoint.allow=[\"run.seed\",\"batch\"]"},
    {"run.steps=5 batch.sequence=4 data.shuffle=false checkpoint.allow=[\"run.seed\",\"batch\",\"data\"]"},
    {"new data.reset_position_ids=true data.boundaries=index"},
    {"run.steps=3 data.reset_position_ids=true data.boundaries=index loss.normalize=sequence checkpoint.allow=loss",
     "loss.normalize was \"token\" and is \"sequence\" from here on (checkpoint.allow)"},
    {"new"},
    {"run.steps=3 data.split=1,1 checkpoint.allow=data.split",
     "data.split was null and is \"1,1\" from here on (checkpoint.allow)"},
    {"run.steps=4 data.split=1,1"},
    {"new"},
    {"run.steps=3 data.train=[\"TEXT\",\"TEXT\"] checkpoint.allow=data.train",
     "data.train.weights was null and is [1.0,1.0] from here on"},
    {"run.steps=4 data.train=[\"TEXT\",\"TEXT\"]"},
    {"run.steps=5 data.train=[\"TEXT\",\"TEXT\",{\"path\":\"TEXT\",\"weight\":3}] checkpoint.allow=data"},
    {"run.steps=6 data.train=[{\"path\":\"TEXT\",\"weight\":3},\"TEXT\"] checkpoint.allow=data"},
    {"run.steps=7 checkpoint.allow=data.train"},
    // models
    {"new model.dropout=0.1 model.rope_theta=5000"},
    {"run.steps=3 model.dropout=0.1 model.rope_theta=5000 recompute.head_chunk=4"},
    {"new model.tie_word_embeddings=true model.max_position_embeddings=8"},
    {"run.steps=3 model.tie_word_embeddings=true model.max_position_embeddings=8 lr_schedule.warmup_steps=3"},
    {"new model.bos_token_id=3 model.rope_scaling={\"rope_type\":\"linear\",\"factor\":2}"},
    {"run.steps=4 model.bos_token_id=3 model.rope_scaling={\"rope_type\":\"linear\",\"factor\":2}"},
};
static_assert(std::size(kStarts) >= 60);

TEST_F(StoredRuns, WhatAStartSavedEveryReaderTakes) {
  int folders = 0, steps = 0;
  std::vector<std::string> before;
  const auto one_more = [&] {
    if (folders == 0) return;
    before.push_back("run.steps=" + std::to_string(steps + 1));
    EXPECT_NO_THROW(train(settings(fmt::format("run{}", folders), before)));
  };
  for (const StartRow& row : kStarts) {
    SCOPED_TRACE(row.settings);
    std::vector<std::string> given = words_of(row.settings);
    for (std::string& word : given)
      for (std::size_t at; (at = word.find("TEXT")) != word.npos;) word.replace(at, 4, folder_ / "text");
    if (given.front() == "new") {
      one_more();
      given.erase(given.begin());
      ++folders;
    }
    const std::string run = fmt::format("run{}", folders);
    EXPECT_NO_THROW({
      const std::string said = train(settings(run, given));
      EXPECT_TRUE(contains(said, row.says)) << said;
      read(run);
      steps = static_cast<int>(open_manifest(newest(folder_ / (run + "/ckpt"))).state.updates);
    });
    before = given;
  }
  one_more();
}

TEST_F(StoredRuns, ThreadsSayWhichRankWarnsUnlessItIsTheFirst) {
  std::ostringstream out;
  LogSink sink(out);
  Job job(sink, no_gpus_);
  job.agree_on_machine(parse_train_config(kStoredConfig, "test", settings("run", {"parallel.data=2"})));
  job.run({}, [](JobRank rank) { rank.logger.warning("here"); });
  std::vector<std::string> lines{"warning: here\n", "[rank 1] warning: here\n"};
  if (out.str().starts_with('[')) std::swap(lines[0], lines[1]);
  EXPECT_EQ(out.str(), lines[0] + lines[1]);
}

// The first start says what a later start of the same command would be refused.
TEST_F(StoredRuns, WeightsAloneAreSaidToEndTheRun) {
  const std::string weights = "checkpoint.content=weights", warned = "warning: checkpoint.content = \"weights\": ";
  EXPECT_TRUE(contains(train(settings("run", {weights})), warned));
  expect_error<ConfigError>([&] { train(settings("run", {weights})); }, {"holds weights alone"});
  for (const std::string other : {"checkpoint.resume=never", "checkpoint.every=0"})
    for (int start = 0; start < 2; ++start) EXPECT_FALSE(contains(train(settings(other, {weights, other})), warned)) << other;
}

// An older checkpoint in the place of a damaged one goes on as if that had never been; where none may, none is said to be damaged.
TEST_F(StoredRuns, AnOlderCheckpointGoesOnByItsOwnLength) {
  const auto damage_newest = [&] {
    const std::string weights = newest(folder_ / "run/ckpt") + "/weights/w-00000-0.safetensors";
    std::string text = read_file(weights);
    text[text.size() / 2] ^= 1;
    write_file(weights, text);
  };
  const std::vector<std::string> keeps{"checkpoint.keep_last=null", "lr_schedule.type=linear"};
  const auto on = [&](const std::vector<std::string>& more) { return train(settings("run", plus(more, keeps))); };
  on({"run.steps=3"});
  on({"run.steps=4", "lr_schedule.decay_steps=9"});
  damage_newest();
  const std::string said = on({"run.steps=6", "log.every=1"});
  EXPECT_TRUE(contains(said, "goes on from step 3\n")) << said;
  EXPECT_TRUE(contains(said, "the learning rate of step 4 was 0 and is 0.0003333")) << said;
  EXPECT_TRUE(contains(said, "step 4/6  loss ") && contains(said, "lr 3.33e-04")) << said;
  const JsonValue stored = open_manifest(newest(folder_ / "run/ckpt")).config;
  const JsonValue resolved = read_json_file(folder_ / "run/config.resolved.json");
  for (const JsonValue* const config : {&stored, &resolved})
    EXPECT_EQ(config->find("resolved")->find("decay_length")->as_integer(), 6);

  on({"run.steps=7", "run.seed=5", "checkpoint.allow=run.seed"});
  damage_newest();
  const std::vector<std::string> anew{"run.steps=8", "run.seed=5", "run.overwrite=true"};
  expect_error<Error>([&] { on(anew); }, {"no older checkpoint is whole and one that this run goes on from; ", "\"never\""});
  EXPECT_TRUE(contains(on({anew[0], anew[1], anew[2], "checkpoint.resume=never"}), "this run begins at step 1"));
}

// Consent is for another model in the same shapes: no older checkpoint takes the place of one that has others.
TEST_F(StoredRuns, TensorsOfOtherShapesAreRefusedWithConsent) {
  const std::string allow = "checkpoint.allow=model";
  train(settings("run", {}));
  train(settings("run", {"run.steps=3", "model.dropout=0.1", allow}));
  const std::vector<std::string> before = folder_.names();
  for (const std::string other : {"model.hidden_size=12", "model.num_hidden_layers=2", "model.vocab_size=64"})
    expect_error<ConfigError>([&] { train(settings("run", {"run.steps=5", other, allow})); },
                              {"checkpoint.resume = auto: ", " in the model, and is ", "step-00000003"});
  EXPECT_EQ(folder_.names(), before);
  EXPECT_TRUE(
      contains(train(settings("run", {"run.steps=5", "model.hidden_size=12", allow, "run.overwrite=true"})), "begins at step 1"));
}

// Adapters to the weights of a checkpoint are drawn where it has none, and taken from it where it has them.
TEST_F(StoredRuns, AdaptersBeginWithAnyCheckpoint) {
  train(settings("base", {}));
  const auto tune = [&](const std::string& run, const std::string& from) {
    return train(settings(run, {"model.init_from=" + (folder_ / from), "adapter.type=lora", "precision.compute=bf16"}));
  };
  EXPECT_TRUE(contains(tune("tuned", "base"), "begins with the weights of "));
  EXPECT_TRUE(contains(tune("again", "tuned"), "begins with the weights of "));
  // They are merged into the checkpoint that they are beside, or into the one that this is beside.
  checkpoint_to_hf(newest(folder_ / "base/ckpt"), folder_ / "base_hf", {DType::kF32});
  for (const std::string run : {"tuned", "again"}) {
    const std::string at_once = folder_ / (run + "_hf"), adapter = folder_ / (run + "_peft"), merged = folder_ / (run + "_merged");
    checkpoint_to_hf(newest(folder_ / (run + "/ckpt")), at_once, {DType::kF32});
    checkpoint_to_peft(newest(folder_ / (run + "/ckpt")), adapter);
    peft_to_hf({folder_ / "base_hf", adapter}, merged, {DType::kF32});
    EXPECT_EQ(read_file(at_once + "/model.safetensors"), read_file(merged + "/model.safetensors")) << run;
  }
  EXPECT_NE(read_file(folder_ / "again_hf/model.safetensors"), read_file(folder_ / "tuned_hf/model.safetensors"));
  expect_error<ConfigError>([&] { train(settings("full", {"model.init_from=" + (folder_ / "tuned")})); },
                            {"model.init_from = ", "lora_A.weight is not there in the model, and is [8,8] in the checkpoint"});
}

TEST_F(StoredRuns, AnotherLossNeedsConsent) {
  const std::string documents = "data.reset_position_ids=true", index = "data.boundaries=index";
  train(settings("run", {documents, index}));
  expect_error<ConfigError>([&] { train(settings("run", {"run.steps=3", documents, index, "loss.normalize=sequence"})); },
                            {"loss.normalize = ", "(was ", "in checkpoint.allow"});
}

// Consent is for what the saved tensors can be used with.
TEST_F(StoredRuns, OtherAdaptersAreRefusedWithConsent) {
  const auto on = [&](const std::string& steps, const std::vector<std::string>& more) {
    return train(settings("run", plus({"run.steps=" + steps, "adapter.type=lora", "checkpoint.allow=adapter.alpha"}, more)));
  };
  on("2", {});
  for (const std::string other : {"adapter.type=null", "adapter.r=4", "adapter.target_modules=[\"q_proj\"]",
                                  "adapter.exclude_modules=[\"q_proj\"]", "adapter.layers=[0]"})
    expect_error<ConfigError>([&] { on("3", {other}); },
                              {other.substr(0, other.find('=')) + " = ", "another run.dir, or", "--to peft"});
  expect_error<ConfigError>([&] { on("3", {"adapter.r=4", "optimizer.type=lion"}); },
                            {"(was \"adamw\")", "model.init_from = the model that these adapters began with", "--to peft"});
  expect_error<ConfigError>(
      [&] {
        on("3", {R"(adapter.target_modules=["model.layers.0.self_attn.q_proj","model.layers.0.self_attn.k_proj",
                                            "v_proj","o_proj","gate_proj"])"});
      },
      {"adapter.target_modules = 5 names that end in gate_proj, k_proj, o_proj, q_proj, v_proj (was [\"all-linear\"]): the "
       "checkpoint"});
  EXPECT_TRUE(contains(on("3", {"adapter.alpha=2"}), "adapter.alpha was 8.0 and is 2.0 from here on (checkpoint.allow)"));
  EXPECT_NO_THROW(on("4", {"adapter.alpha=2", "model.dropout=0.1", "checkpoint.allow=model"}));
  train(settings("full", {}));
  expect_error<ConfigError>(
      [&] {
        train(settings("full", {"run.steps=3", "adapter.type=lora"}));
      },
      {"adapter.type = \"lora\" (was null)", "begin in another run.dir with model.init_from = " + newest(folder_ / "full/ckpt"),
       "because the checkpoint's tensors and states are those of the earlier adapter.type"});
}

std::string id_in(const std::string& run) { return run_id_of(read_json_file(run + "/config.resolved.json")); }

TEST_F(StoredRuns, FoldersThatMoveTogetherGoOnAtTheirNewPaths) {
  const auto place = [&](const std::string& at, const std::vector<std::string>& more) {
    return plus({"run.dir=" + (folder_ / at + "/run"), "checkpoint.dir=" + (folder_ / at + "/saved"),
                 "data.train=" + (folder_ / "text")}, more);
  };
  const auto lines = [&](const std::string& run) {
    const std::string text = read_file(folder_ / (run + "/metrics.jsonl"));
    return std::ranges::count(text, '\n');
  };
  train(place("first", {"log.every=1"}));
  std::filesystem::copy(folder_ / "first", folder_ / "copy", std::filesystem::copy_options::recursive);
  std::filesystem::rename(folder_ / "first", folder_ / "moved");
  int steps = 2;
  for (const std::string at : {"copy", "moved"}) {
    train(place(at, {"log.every=1", fmt::format("run.steps={}", ++steps)}));
    EXPECT_EQ(lines(at + "/run"), steps) << "as one course";
    EXPECT_FALSE(folder_exists(folder_ / at + "/run/earlier-1"));
  }
  const std::string id = id_in(folder_ / "moved/run");
  EXPECT_EQ(id.size(), 16u);
  EXPECT_EQ(id_in(folder_ / "copy/run"), id);
  EXPECT_EQ(run_id_of(open_manifest(newest(folder_ / "moved/saved")).config), id);
  // Another run goes on from the same checkpoints: it is none of the two, whatever file it was started with.
  const std::string resolved = read_file(folder_ / "moved/run/config.resolved.json");
  train({"run.dir=" + (folder_ / "another"), "run.steps=5"}, resolved);
  EXPECT_NE(id_in(folder_ / "another"), id);
  EXPECT_EQ(lines("another"), 1);
  train(place("moved", {"run.steps=6"}));
  EXPECT_TRUE(folder_exists(folder_ / "moved/run/earlier-1")) << "the newest checkpoint is of another run";
}

// The model of a folder that was moved away, or of a file.
TEST_F(StoredRuns, TheModelOfAFolderThatIsGoneIsTheCheckpoints) {
  train(settings("donor", {}));
  checkpoint_to_hf(newest(folder_ / "donor/ckpt"), folder_ / "hf", {});
  JsonValue json = parse_json(kStoredConfig, "test");
  std::erase_if(json.members(), [](const JsonMember& member) { return member.key == "model"; });
  const std::string file = folder_ / "config.json";
  write_file(file, to_json_text(json));
  const auto on = [&](const std::string& run, const std::string& model) {
    const std::vector<std::string> asked = settings(run, {model, "run.steps=" + std::to_string(++steps_)});
    OptionValues values;
    const TrainConfig config = load_train_config(file, with_stored_model(file, asked), values);
    std::ostringstream out;
    LogSink sink(out);
    run_training([&] { return config; }, {.console = out, .log = sink}, no_gpus_, train_hooks());
    return out.str();
  };
  const std::string begun = "model.init_from=" + (folder_ / "hf"), named = "model.hf_config=" + (folder_ / "model.json");
  std::filesystem::copy_file(folder_ / "hf/config.json", folder_ / "model.json");
  on("begun", begun);
  on("named", named);
  std::filesystem::remove_all(folder_ / "hf");
  std::filesystem::remove(folder_ / "model.json");
  const std::string said = on("begun", begun);
  EXPECT_TRUE(contains(said, "hf: is not there any more, and not needed to go on")) << said;
  EXPECT_TRUE(contains(said, "goes on from step 1\n")) << said;
  EXPECT_TRUE(contains(on("named", named), "goes on from step 2\n"));
  for (const std::string run : {"begun", "named"}) evaluate_and_convert(newest(folder_ / (run + "/ckpt")));
  expect_error<DataError>([&] { on("new", begun); }, {"model.init_from = ", "no such folder"});
  const std::string tuned = on("tuned", "model.init_from=" + (folder_ / "donor"));  // a run's folder says its model as well
  EXPECT_FALSE(contains(tuned, "goes on")) << tuned;
}

// A used folder is the last thing that a start is told about.
TEST_F(StoredRuns, AMistakeIsSaidBeforeAFolderThatIsUsed) {
  train(settings("run", {"checkpoint.every=0"}));
  const auto refused = [&](const std::vector<std::string>& more, const std::vector<std::string>& says) {
    expect_error<Error>([&] { train(settings("run", plus({"checkpoint.every=0", "optimizer.lr=1"}, more))); }, says);
  };
  refused({"parallel.tensor=3"}, {"parallel.tensor = 3"});
  refused({"parallel.pipeline=9"}, {"parallel.pipeline = 9"});
  refused({"data.train=" + (folder_ / "none")}, {"none"});
  refused({"batch.sequence=4096"}, {"batch.sequence = 4096"});
  train(settings("saved", {}));  // with another model each of these could not go on either
  const std::string saved = "run.dir=" + (folder_ / "saved"), wider = "model.hidden_size=12";
  refused({saved, wider, "data.train=" + (folder_ / "none")}, {"none"});
  refused({saved, wider, "batch.sequence=4096"}, {"batch.sequence = 4096", "positions"});
  refused({saved, wider}, {"model.hidden_size = 12 (was 8): "});
  refused({}, {"of another run, whose optimizer.lr is 0.001, not 1.0; choose another run.dir, or --set run.overwrite=true"});
}

// Whatever changes a configuration behind its validation.
TEST_F(StoredRuns, WhatAReaderWouldTakeForSomethingElseIsNotTrained) {
  TrainConfig config = parse_train_config(kStoredConfig, "test", settings("run", {"lr_schedule.warmup_steps=5"}));
  config.lr_schedule.decay_steps = 3;
  const auto prepare = [&] { return prepare_run(config, {}, cpu_machine_facts(1)); };
  expect_error<ConfigError>(prepare, {"no checkpoint of this run could be read back: ", "warmup_steps = 5: must be below"});
  config.lr_schedule.decay_steps = 9;
  EXPECT_NO_THROW(prepare());
  config.optimizer.betas[0] = 7;
  expect_error<ConfigError>(prepare, {"could be read back: ", "optimizer.betas"});
}

}  // namespace
}  // namespace trident::testing
