// The command line inside this process: dispatch, flags, messages, exit codes.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>
#include <tuple>

#include "app/subcommands.h"
#include "core/file_io.h"
#include "planner/price/kept_profile.h"
#include "tests/support/error_text.h"
#include "tests/support/no_gpus.h"
#include "train/config/option_docs.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

struct Outcome {
  int exit_code;
  std::string out, err;
};

// `begin` is called when training begins.
Outcome run(const Arguments& arguments, const std::function<void()>& begin = [] {}) {
  std::ostringstream out, err;
  const auto make_cuda = [&] {
    begin();
    return std::make_unique<testing::NoGpus>();
  };
  const int exit_code = run_command_line(arguments, {out, err, make_cuda});
  return {exit_code, out.str(), err.str()};
}

void expect_refusal(const Arguments& arguments, const std::string& contains, int exit_code = 64) {
  const Outcome outcome = run(arguments);
  EXPECT_EQ(outcome.exit_code, exit_code) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err.rfind("trident: ", 0), 0u) << outcome.err;
  EXPECT_NE(outcome.err.find(contains), std::string::npos) << outcome.err;
  EXPECT_EQ(outcome.err.find('\n'), outcome.err.size() - 1) << outcome.err;  // exactly one line
}

class CommandLine : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) / ("command_line_" + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_);
    config_ = path("c.json");
    std::ofstream(config_) << "{ // small\n \"run\": {\"steps\": 5, \"dir\": \"" << path("run")
                           << "\"}, \"model\": {\"preset\": \"llama-1m\"},\n"
                           << " \"batch\": {\"global\": 8, \"sequence\": 64}, \"data\": {\"train\": \"x\"}}";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  std::filesystem::path folder_;
  std::string config_;
};

TEST_F(CommandLine, Version) {
  const std::string version = run({"--version"}).out;
  EXPECT_EQ(version.rfind("trident ", 0), 0u);
  for (const char* part : {"\ncommit:    ", "\ncompiler:  ", "\nlibraries: fmt ", ", oneDNN ", ", zlib ", ", zstd "})
    EXPECT_NE(version.find(part), std::string::npos) << part << " is not in " << version;
}

TEST_F(CommandLine, UnknownSubcommandsAndActions) {
  const Outcome nothing = run({});
  EXPECT_EQ(nothing.exit_code, 64);
  EXPECT_EQ(nothing.out, "");
  EXPECT_EQ(nothing.err, run({"help"}).out) << "who types the name alone sees what there is";
  expect_refusal({"trian"}, "unknown subcommand \"trian\"; did you mean train?");
  expect_refusal({"\x1b[31m\nxxxxxxxxx"}, "unknown subcommand");
  expect_refusal({"tokenizer", "--config", config_},
                 "trident tokenizer \"--config\": a flag, not an action; use encode, decode, show, render or diff");
  expect_refusal({"data"}, "trident data: no action; name one: prepare, inspect, merge or pack");
  expect_refusal({"data", ""}, "trident data \"\": not an action; use prepare, inspect, merge or pack");
  expect_refusal({"ckpt"}, "trident ckpt: no action; name one: ls, show, verify, diff or prune");
  expect_refusal({"data", "mrege"}, "trident data \"mrege\"");
  expect_refusal({"docs", "cooking"}, "there is no page \"cooking\"");
}

// In both spellings of C1, and with marks that turn the direction of what follows.
TEST_F(CommandLine, ErrorsAreOnlyShownByTerminals) {
  const std::string err = run({"data", "inspect", "a\xC2\x9B" "2J\xE2\x80\xAE" "b\x9B"}).err;
  EXPECT_EQ(err.rfind("trident: a 2J b\xEF\xBF\xBD.idx: no such file", 0), 0u) << err;
}

// Users of other programs type what they know, and get the line to type instead.
TEST_F(CommandLine, FlagsOfOtherProgramsAreAnsweredByOurs) {
  const std::vector<std::tuple<Arguments, std::string>> cases = {
      {{"generate", "--model", "my model"}, "say --hf 'my model' for a Hugging Face folder, or --ckpt 'my model' for a checkpoint"},
      {{"generate", "--max_tokens=20"}, "say --max-new-tokens 20"},
      {{"generate", "--max_new_tokens", "20"}, "did you mean --max-new-tokens?"},
      {{"generate", "-p", "hi you"}, "say --prompt 'hi you'"},
      {{"generate", "--num-beams", "3"}, "leave it out, there is no such thing here: --greedy takes the likeliest token"},
      {{"generate", "--max-length", "20"}, "say --max-new-tokens 20"},
      {{"generate", "--temp", "1"}, "say --temperature 1"},
      {{"generate", "--num_samples", "3"}, "say -n 3"},
      {{"generate", "--n", "3"}, "say -n 3"},
      {{"generate", "--min-p", "0.1"}, "there is no such thing here: --top-k, --top-p and --repetition-penalty shape"},
      {{"generate", "--system", "Be kind"}, "of --messages: [{\"role\": \"system\", \"content\": \"...\"}, ...]"},
      {{"tokenizer", "encode", "models/qwen", "t.txt"}, "name the tokenizer in --tokenizer, and one file"},
      {{"tokenizer", "render", "m.json"}, "say --messages m.json"},
      {{"generate", "--batch_size", "3"}, "say --batch 3"},
      {{"eval", "--batch_size", "8"}, "say --set batch.micro=8"},
      {{"convert", "--step", "87"}, "name the step behind the folder of checkpoints, as in --from ckpt runs/a/ckpt/87"},
      {{"eval", "--step", "87"}, "name the step behind the folder of checkpoints, as in --ckpt runs/a/ckpt/87"},
      {{"convert", "--output", "a"}, "say --to hf a, or --to ckpt a"},
      {{"tokenizer", "encode", "--model", "a"}, "say --tokenizer T: gpt2, a model's folder, or a tokenizer's file"},
      {{"tokenizer", "encode", "--text", "a b"}, "say echo 'a b' | trident tokenizer encode"},
      {{"data", "prepare", "--output-prefix", "a"}, "say --output a"},
      {{"data", "prepare", "--text-column", "a"}, "say --json-key a"},
      {{"data", "prepare", "--tokenizer-type", "GPT2BPETokenizer"}, "say --tokenizer T: gpt2,"},
      {{"data", "pack", "x", "--seq_length=8"}, "say --sequence 8"},
      {{"plan", "search", "--nodes", "8"}, "say --gpus N, those of all nodes together"},
      {{"plan", "search", "--top-k", "3"}, "say --best 3"},
      {{"plan", "search", "--output", "x"}, "say --write x, the configuration with the best layout"},
      {{"generate", "--lora", "a"}, "say --adapter a"},
      {{"data", "prepare", "--dpo"}, "say --preference"},
      {{"report", "a", "--json"}, "say --csv"},
      {{"compare", "a", "b"}, "that is trident report RUN RUN here"},
      {{"export"}, "that is trident convert --from ckpt RUN --to hf FOLDER here"},
      {{"eval", "--tasks", "hellaswag"}, "no task is downloaded; put its questions into a file, and say --choices FILE"},
      {{"eval", "--model_args", "pretrained=x"}, "say --hf DIR for"},
      {{"convert", "--ckpt", "a"}, "say --from ckpt a --to hf DIR"},
      {{"convert", "--hf", "a"}, "say --from hf a --to ckpt DIR"},
      {{"data", "prepare", "--dataset_name", "a"}, "say --input a, a file: nothing is downloaded"},
      {{"plan", "search", "--gpus-per-node", "8"}, "say --gpus N, those of all nodes together"},
      {{"plan", "search", "--model", "llama3-8b", "--config", "c"}, "say --set model.preset=llama3-8b"},
      {{"help", "search"}, "did you mean trident help plan search?"},
      {{"data", "tokenize"},
       "not an action; use prepare, inspect, merge or pack (see trident data --help); that is trident data prepare here"},
      {{"ckpt", "list"}, "that is trident ckpt ls here"},
      {{"finetune"}, "unknown subcommand \"finetune\"; that is trident train here; see trident help"},
      {{"chat"}, "that is trident generate --chat --ckpt RUN, or --hf FOLDER, here"},
      {{"tune"}, "that is trident train, or trident plan search for a layout, here"},
      {{"verify"}, "did you mean trident ckpt verify?"},
      {{"diff"}, "did you mean trident tokenizer diff or trident ckpt diff?"},
      {{"eval", "--text", "a b"}, "say --ids \"$(echo 'a b' | trident tokenizer encode --tokenizer T)\", or --data PREFIX"},
      {{"import", "--xyzzy", "8"}, "see trident import --help"},
      {{"import", "--micro-batch-size", "8"}, "write the whole command into one, run.sh: trident import run.sh"},
      {{"train", "--deepspeed", "ds.json"}, "import its file: trident train --import ds.json"},
  };
  for (const auto& [arguments, answer] : cases) expect_refusal(arguments, answer);
}

TEST_F(CommandLine, AllUnknownFlagsAreToldAtOnce) {
  const Outcome outcome =
      run({"train", "--config", config_, "--micro-batch-size", "4", "--bf16", "--xyzzy=1", "--lr", "-1", "more"});
  EXPECT_EQ(outcome.exit_code, 64);
  EXPECT_EQ(outcome.err,
            "trident: trident train: unknown argument \"--micro-batch-size\"; say --set batch.micro=4;\n"
            "  also the command they are of can be imported whole: write it into a file, run.sh, and say trident train --import "
            "run.sh;\n"
            "  also unknown argument \"--bf16\"; say --set precision.compute=bf16;\n"
            "  also unknown argument \"--xyzzy=1\"; see trident train --help;\n"
            "  also unknown argument \"--lr\"; say --set optimizer.lr=-1\n");
  Arguments many{"train", "--config", config_};
  for (int i = 0; i < 22; ++i) many.push_back("--xyzzy" + std::to_string(i));
  EXPECT_NE(run(many).err.find("\"--xyzzy18\"; see trident train --help;\n  also others\n"), std::string::npos) << run(many).err;
}

// A configuration of another system says whose it is, and how it is imported.
TEST_F(CommandLine, ConfigurationsOfOthersAreImported) {
  const auto given = [&](const std::string& name, const std::string& text, const std::string& answer,
                         const char* command = "train") {
    write_file(path(name), text);
    expect_refusal({command, "--config", path(name)}, answer);
  };
  given("my ds.json", R"({"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}})",
        "is a configuration of DeepSpeed; import it: trident train --import '" + path("my ds.json") + "'");
  given("ds.json", R"({"zero_optimization": {"stage": 2}})",
        "make one of it: trident import " + path("ds.json") + " --output c.json", "bench");
  expect_refusal({"train", path("ds.json")}, "; import it: trident train --import " + path("ds.json") + " (trident import ");
  given("args.json", R"({"model_name_or_path": "a", "learning_rate": 1e-5})", "is a configuration of Hugging Face");
  given("acc.yaml", "distributed_type: FSDP\n", "is no JSON; import it: trident train --import " + path("acc.yaml"));
  given("run.sh", "torchrun pretrain_gpt.py\n", "is no JSON; import it: trident train --import " + path("run.sh"));
  given("train.py", "batch_size = 12\n", "is Python, and no Python is run");
  given("config.json", R"({"model_type": "llama", "hidden_size": 8})",
        "--config FILE --set model.hf_config=" + path("config.json"));
  given("ours.json", R"({"run": {"steps": 5}, "optimiser": {}})", "unknown key optimiser; did you mean optimizer?");
}

TEST_F(CommandLine, BadFlags) {
  expect_refusal({"train"}, "give --config FILE (JSON, such as configs/laptop.json), or --import FILE");
  expect_refusal({"train", "--cnfig", config_}, "unknown argument \"--cnfig\"; did you mean --config?");
  expect_refusal({"train", "--config", config_, "more"}, "unknown argument \"more\"");
  expect_refusal({"train", "--config", config_, "--set", "run.steps", "3"}, "\"3\"; say --set run.steps=3");
  expect_refusal({"train", "--config", config_, "--set", "run.dir", "runs/q"}, "\"runs/q\"; say --set run.dir=runs/q");
  expect_refusal({"train", "--config"}, "--config");
  expect_refusal({"train", "--config", config_, "parallel.tensor=4"}, "; say --set parallel.tensor=4");
  expect_refusal({"train", "--config", config_, "--data-path", "0.5", "a", "0.5", "b"}, "; say --set 'data.train=0.5 a 0.5 b' (");
  expect_refusal({"train", "--config", config_, "--data-path", "a", "b"}, "; say --set 'data.train=[\"a\",\"b\"]' (");
  std::ofstream(path("few.json")) << R"({"model": {"model_type": "llama"}})";
  const std::string missing = run({"train", "--config", path("few.json")}).err;
  for (const char* key : {"batch.global: missing", "run.steps: missing", "model.hidden_size: is missing"})
    EXPECT_NE(missing.find(key), std::string::npos) << missing;
  expect_refusal({"train", "--config", config_, "--set", "tensor-model-parallel-size=4"}, "; did you mean parallel.tensor?");
  expect_refusal({"bench", "--config", config_, "--micro-batch-size=2"}, "; say --set batch.micro=2");
  expect_refusal({"train", "--config", config_, "--print-config=xml"}, "must be json or origins");
  // A word without its flag, and a flag without all of its words.
  expect_refusal({"generate", "runs/a", "hi"}, "unknown argument \"runs/a\"; say --ckpt runs/a");
  expect_refusal({"generate", "--ckpt", "runs/a", "hi you"}, "unknown argument \"hi you\"; say --prompt 'hi you'");
  expect_refusal({"generate", "--ckpt", "runs/a", "--chat", "hi you"},
                 "--chat answers lines of standard input: echo 'hi you' | trident generate --chat");
  expect_refusal({"eval", "--hf", "models/a", "valid"}, "unknown argument \"valid\"; say --data valid");
  expect_refusal({"data", "prepare", "a.txt"}, "unknown argument \"a.txt\"; say --input a.txt");
  expect_refusal({"convert", "runs/a", "out"}, "unknown argument \"runs/a\"; say --from ckpt runs/a or --from hf runs/a");
  expect_refusal({"convert", "--from", "runs/a", "--to", "hf", "x"}, "say --from ckpt runs/a, or --from hf runs/a");
  expect_refusal({"convert", "--from", "ckpt", "a", "--to", "gguf", "x"}, "a GGUF file of DIR by convert_hf_to_gguf.py");
  expect_refusal({"convert", "--from", "hf", "a", "--to", "ckpt"}, "--to: takes 2 words behind it: ckpt DIR, hf DIR, or peft DIR");
  expect_refusal({"convert", "--from", "hf", "a", "--to", "peft"}, "--to: takes 2 words behind it: ckpt DIR");
  expect_refusal({"eval", "--hf", "a", "--hf", "b"}, "trident eval: --hf: is given more than once; give it once; see");
  expect_refusal({"train", "--set"}, "--set: takes 1 word behind it: path=value: change a key of the configuration");
  expect_refusal({"--verison"}, "did you mean --version?");
  expect_refusal({"bench", "--config", config_, "--steps", "0"}, "--steps = 0: must be from 1 to 1000");
  expect_refusal({"study", "--config", config_, "--vary", "micro=1", "--gpus", "99999999999999999999"},
                 "--gpus = 1e+20: must be from 1 to 16777216");
  expect_refusal({"bench", "--config", config_, "--device", "tpu"}, "device");
  expect_refusal({"bench", "--calibrate", path("p.json"), "--config", config_}, "leave out --config, --set, --device and --json");
  expect_refusal({"bench", "--calibrate", ""}, "--calibrate: names no file");
  expect_refusal({"bench", "--calibrate", path("p.json"), "--steps", "2"}, "--steps: --calibrate measures what it needs");
  expect_refusal({"bench", "--calibrate", path("p.json"), "--largest", "63"}, "--largest = 63: must be from 64 to 8192");
  expect_refusal({"bench", "--calibrate", path("none/p.json")}, "none/p.json", 74);
  const Arguments search{"plan", "--search", "--config", config_, "--cluster", "h100_sxm_ndr"};
  expect_refusal({"plan", "search", "--config", config_, "--cluster", "h100_sxm_ndr", "--gpus", "8", "--rank", "2"},
                 "--rank: no configuration is written; add --write FILE");
  expect_refusal(search, "--gpus: missing; write --gpus N");
  expect_refusal({"plan", "search", "--config", config_, "--cluster", "h10"}, "; did you mean \"h100_sxm_ndr\"?");
  for (const Arguments& words : {Arguments{"plan"}, {"plan", "cluster", "h100_sxm_ndr"}, {"plan", "search"}, {"study"}, {"bench"}})
    expect_refusal(words,
                   ": nothing says which model; give --config FILE (JSON, such as configs/laptop.json), or --set "
                   "model.preset=NAME and more; see trident " +
                       words[0]);
  for (const char* const action : {"cluster", "search"})
    expect_refusal({"plan", action, config_, "--gpus", "8"},
                   "give --config " + config_ + " if that is the configuration, or --set");
  expect_refusal({"help", "dpo"}, "; trident docs finetuning is about it");
  for (const char* const word : {"perplexity", "bits_per_byte", "mfu", "bubble", "validation"})
    EXPECT_TRUE(run({"help", word}).out.starts_with(std::string(word) + ": ")) << run({"help", word}).err;
  const Arguments settings{"--set", "model.preset=llama-1m", "--set", "batch.global=2", "--set", "batch.sequence=16"};
  for (const Arguments& words :
       {Arguments{"plan"}, {"plan", "search", "cpu"}, {"study", "--cluster", "cpu", "--vary", "micro=1|2"}})
    EXPECT_EQ(run(plus(words, settings)).exit_code, 0) << "settings alone are a configuration";
  // A word of a closed list that is none.
  expect_refusal({"ckpt", "shwo"}, "; did you mean \"show\"?");
  expect_refusal({"completion", "zhs"}, "; did you mean \"zsh\"?");
  expect_refusal({"convert", "--from", "ckp", "a", "--to", "hf", "b"}, "; did you mean \"ckpt\"?");
  expect_refusal({"convert", "--from", "ckpt", "a", "--to", "hf", "b", "--dtype", "bf61"}, "; did you mean \"bf16\"?");
  expect_refusal({"data", "prepare", "--input", config_}, "--tokenizer, --output are required");
  expect_refusal({"data", "prepare", "--input", config_, "--tokenizer", "gtp2", "--output", path("o")}, "; did you mean \"gpt2\"?");
  expect_refusal({"data", "prepare", "--input", config_, "--tokenizer", "gpt2", "--output", path("o"), "--workers", "x"},
                 "--workers");
}

TEST_F(CommandLine, WhatIsWrittenIsNeitherReadNorWrittenTwice) {
  const std::string before = read_file(config_), cluster = path("cluster.json"), page = path("page.html");
  write_file(cluster, "{}");
  const std::string link = path("link.json"), hard = path("hard.json"), dotted = path("run/../c.json");
  std::filesystem::create_symlink(config_, link);
  std::filesystem::create_hard_link(config_, hard);
  std::filesystem::create_directory(path("run"));
  const auto plan = [&](Arguments more) {
    more.insert(more.begin(), {"plan", "--config", config_, "--cluster", cluster});
    return more;
  };
  for (const std::string& same : {config_, link, hard, dotted}) {
    for (const char* flag : {"--html", "--trace"})
      expect_refusal(plan({flag, same}), fmt::format("{} \"{}\": is what --config names", flag, same));
    for (const char* flag : {"--html", "--svg"})
      expect_refusal({"study", "--config", config_, "--vary", "micro=1", flag, same},
                     "is what --config names, which would be lost");
    expect_refusal({"plan", "--search", "--config", config_, "--cluster", "h100_sxm_ndr", "--gpus", "8", "--write", same},
                   "is what --config names");
    expect_refusal({"bench", "--config", config_, "--calibrate", same}, "is what --config names");
  }
  expect_refusal(plan({"--html", cluster}), "is what --cluster names");
  expect_refusal({"plan", "--search", "--config", config_, "--cluster", cluster, "--gpus", "8", "--write", cluster},
                 "is what --cluster names");
  const std::string study = path("study.json");
  write_file(study, R"({"study": "s", "config": "c.json", "cluster": "./cluster.json", "vary": ["micro=1|2"]})");
  expect_refusal({"study", "--config", study, "--svg", study}, "is what --config names");
  expect_refusal({"study", "--config", study, "--svg", path("c.json")}, "is what the study's config names");
  expect_refusal({"study", "--config", study, "--html", cluster}, "is what the study's cluster names");
  // None of these is there yet.
  for (const std::string& same : {page, path("run/../page.html"), path("./page.html")}) {
    expect_refusal(plan({"--html", page, "--trace", same}), "is the file of --html, too");
    expect_refusal({"study", "--config", study, "--svg", page, "--html", same}, "is the file of --svg, too");
  }
  expect_refusal(plan({"--html", page, "--trace", path("trace.json")}), cluster + ".name: is missing");
  expect_refusal({"plan", "--config", config_, "--cluster", "page.html", "--html", "page.html"}, "there is no such one");
  EXPECT_EQ(read_file(config_), before);
  EXPECT_FALSE(std::filesystem::exists(page));
}

TEST_F(CommandLine, AnEmptyNameIsNotLeftOut) {
  expect_refusal({"plan", "--config", config_, "--cluster", ""}, "--cluster: is empty; ");
  for (const char* flag : {"--html", "--trace"})
    expect_refusal({"plan", "--config", config_, "--cluster", "cpu", flag, ""}, fmt::format("{}: is empty; ", flag));
  for (const char* flag : {"--html", "--svg", "--cluster"})
    expect_refusal({"study", "--config", config_, "--vary", "micro=1", flag, ""}, fmt::format("{}: is empty; ", flag));
  expect_refusal({"plan", "--search", "--config", config_, "--cluster", "cpu", "--write", ""}, "--write: is empty; ");
  expect_refusal({"plan", "--search", "--config", config_, "--cluster", ""}, "--cluster: is empty; ");
  expect_refusal({"docs", "timeline", "--config", ""}, "--config: is empty; ");
}

TEST_F(CommandLine, LaterSettingsWin) {
  const Outcome outcome =
      run({"train", "-c", config_, "--set", "run.seed=1", "--set", "run.seed=2", "--set=parallel=2TP", "--print-config"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const TrainConfig seen = parse_train_config(outcome.out, "printed");
  EXPECT_EQ(seen.run.seed, 2);
  EXPECT_EQ(seen.parallel.tensor, 2);
  EXPECT_EQ(seen.run.steps, 5);
}

TEST_F(CommandLine, BenchHandsOverTheConfigurationAndPrints) {
  const Outcome outcome = run({"bench", "-c", config_, "--device", "cpu", "--set", "precision.compute=fp32", "--steps", "1",
                               "--ranks", "3", "--seconds", "0", "--json"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const JsonValue report = parse_json(outcome.out, "printed");
  EXPECT_EQ(report.find("compute")->as_string(), "f32");
  EXPECT_EQ(report.find("collectives")->items().at(0).find("ranks")->as_integer(), 3);
}

TEST_F(CommandLine, BenchCalibratesIntoAFileThatAppearsWhole) {
  std::ostringstream out, err;
  CalibrateOptions seen;
  bool there = true;
  CommandContext context{out, err};
  const std::string file = path("profile.json");
  context.calibrate = [&](const CalibrateOptions& options, const std::function<void(const std::string&)>& say) {
    seen = options, there = std::filesystem::exists(file);
    say("products: 1.0 s");
    CpuRates rates;
    rates.name = options.name, rates.processor = "a stand-in", rates.constants_source = "a test";
    return rates;
  };
  EXPECT_EQ(run_command_line({"bench", "--calibrate", file, "--largest", "128", "--seconds", "0.25"}, context), 0)
      << err.str();
  EXPECT_FALSE(there) << "before it was measured";
  EXPECT_EQ(seen.largest, 128);
  EXPECT_EQ(seen.seconds, 0.25);
  EXPECT_EQ(out.str(), "products: 1.0 s\n");
  EXPECT_EQ(read_cpu_rates(file).processor, "a stand-in");
  EXPECT_EQ(run_command_line({"bench", "--calibrate", file}, context), 0);
  EXPECT_LT(seen.seconds, 0.1) << "--seconds of other measurements is not meant";
}

TEST_F(CommandLine, BenchCalibratesThisMachineIntoTheCache) {
  std::string disturbance;
  std::ostringstream out, err;
  CalibrateOptions seen;
  CommandContext context{out, err};
  context.calibrate = [&](const CalibrateOptions& options, const std::function<void(const std::string&)>&) {
    seen = options;
    CpuRates rates;
    rates.name = options.name, rates.processor = "a stand-in", rates.constants_source = "a test";
    rates.disturbance = disturbance;
    rates.cores = 2, rates.fp32_peak = disturbance.empty() ? 2e11 : 1e11;
    const LogTable product({{8, 1000}, {8, 1000}, {8, 1000}}, std::vector<double>(8, disturbance.empty() ? 0.02 : 0.04), {1, 1, 1});
    rates.products.push_back({1, DType::kF32, Transpose::kNo, Transpose::kYes, Accumulate::kNo, product, "a test"});
    return rates;
  };
  const auto calibrated = [&] { return run_command_line({"bench", "--calibrate"}, context); };
  const int cores = cpu_machine_facts(1).core_share.at_once();
  const std::string home = path("home"), cache = path("cache");
  const char* const given = std::getenv("HOME");
  const std::string before = given == nullptr ? "" : given;
  ::setenv("HOME", home.c_str(), 1);
  for (const char* folder : {"", "relative", cache.c_str()}) {
    ::setenv("XDG_CACHE_HOME", folder, 1);
    EXPECT_EQ(calibrated(), 0) << err.str();
    const std::string kept = kept_profile_path(cores);
    EXPECT_EQ(kept.rfind((folder == cache ? cache : home + "/.cache") + "/trident/", 0), 0u) << kept;
    EXPECT_NE(out.str().find("kept as " + kept + ": runs on this machine are predicted by it\n"), std::string::npos) << out.str();
    EXPECT_EQ(kept_cpu_rates(cores)->name, "this-machine");
    EXPECT_FALSE(kept_cpu_rates(cores + 1).has_value()) << "another machine's";
  }
  EXPECT_EQ(seen.largest, short_calibration().largest) << "as a minute allows";
  const std::string kept = kept_profile_path(cores);
  const std::string earlier = replaced(read_file(kept), "a stand-in", "an earlier one");
  disturbance = "other programs had the cores as well";
  for (const std::string& before : {earlier, std::string("{"), std::string()}) {  // damaged, and none
    const bool there = before == earlier;
    write_file(kept, before);
    if (before.empty()) remove_file(kept);
    out.str(""), err.str("");
    EXPECT_EQ(calibrated(), there ? 75 : 0) << err.str();
    EXPECT_EQ(kept_cpu_rates(cores)->processor, there ? "an earlier one" : "a stand-in");
    const bool warns = name_of_profile(*kept_cpu_rates(cores)).ends_with(" while other programs ran (calibrate again)");
    EXPECT_EQ(warns, !there) << name_of_profile(*kept_cpu_rates(cores));
    const std::string said = !there ? "kept as " + kept
                                    : "not kept, because other programs had the cores: fp32 multiplies at 0.200 TFLOP/s, its "
                                      "largest product at 0.100 TFLOP/s. " + kept + " has an earlier profile, by which runs on "
                                      "this machine are still predicted: fp32 multiplies at 0.400 TFLOP/s, its largest product at "
                                      "0.200 TFLOP/s; start again when nothing else runs";
    EXPECT_NE((there ? err : out).str().find(said), std::string::npos) << out.str() << err.str();
  }
  ::unsetenv("XDG_CACHE_HOME");
  ::unsetenv("HOME");
  EXPECT_FALSE(kept_cpu_rates(cores).has_value());
  EXPECT_EQ(calibrated(), 64) << "nowhere to keep it";
  EXPECT_NE(err.str().find("neither XDG_CACHE_HOME nor HOME"), std::string::npos) << err.str();
  ::setenv("HOME", before.c_str(), 1);
}

// As a terminal or timeout(1) ends it: what is measured with is removed.
TEST_F(CommandLine, BenchCalibratesUntilItIsStopped) {
  const auto given = std::signal(SIGINT, SIG_DFL);  // a shell's job in the background ignores it, and then so would the program
  for (const auto& [signal, name, code] : {std::tuple{SIGINT, "SIGINT", 130}, {SIGTERM, "SIGTERM", 143}}) {
    for (const bool fails : {false, true}) {
      std::ostringstream out, err;
      CommandContext context{out, err};
      const std::string file = path("profile.json");
      context.calibrate = [&](const CalibrateOptions& options, const std::function<void(const std::string&)>&) {
        options.check();
        ::kill(::getpid(), signal);
        try {
          while (fails) options.check();
        } catch (const Error&) {  // it has come, and what is measured fails by it first
          throw StorageError("a run that the signal reached, too");
        }
        while (true) options.check();
        return CpuRates{};
      };
      EXPECT_EQ(run_command_line({"bench", "--calibrate", file}, context), code);
      EXPECT_NE(err.str().find(fmt::format("stopped by {}: {} was not written", name, file)), std::string::npos) << err.str();
      std::size_t files = 0;  // but the configuration
      for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++files;
      EXPECT_EQ(files, 1u) << "nothing is left behind";
    }
  }
  std::signal(SIGINT, given);
}

// A calibration takes minutes: what cannot be written is refused before it.
TEST_F(CommandLine, BenchCalibratesNothingThatCannotBeWritten) {
  std::ostringstream out, err;
  CommandContext context{out, err};
  int calibrations = 0;
  context.calibrate = [&](const CalibrateOptions&, const std::function<void(const std::string&)>&) {
    ++calibrations;
    return CpuRates{};
  };
  const auto refused = [&](const std::string& file, const std::string& part) {
    err.str("");
    EXPECT_EQ(run_command_line({"bench", "--calibrate", file}, context), 74) << file;
    EXPECT_NE(err.str().find(file), std::string::npos) << err.str();
    EXPECT_NE(err.str().find(part), std::string::npos) << err.str();
  };
  refused(path("none/p.json"), "cannot be created");
  refused("/sys/p.json", "cannot be created");  // may not be written, even by root
  refused(path(""), "is a folder");
  refused("/dev/full", "is a device");
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1 << 16, before.rlim_max};  // stands for a full disk
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  refused(path("p.json"), "cannot be written");
  EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(calibrations, 0);
  std::size_t files = 0;  // but the configuration
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder_)) ++files;
  EXPECT_EQ(files, 1u) << "nothing is left behind";
}

TEST_F(CommandLine, PrintConfigIsJsonThatMeansTheSame) {
  const Arguments base{"train", "--config", config_, "--set", "optimizer.lr=0.25"};
  Arguments json = base, origins = base;
  json.emplace_back("--print-config");
  origins.emplace_back("--print-config=origins");
  const Outcome printed = run(json), explained = run(origins);
  EXPECT_EQ(printed.exit_code, 0) << printed.err;
  JsonRules strict;
  strict.comments = false;  // other programs read it
  EXPECT_EQ(parse_json(printed.out, "printed", strict).find("optimizer")->find("lr")->as_number(), 0.25);
  EXPECT_NE(explained.out.find("\"lr\": 0.25,  // --set"), std::string::npos) << explained.out;
  EXPECT_NE(explained.out.find("// " + config_ + ":2"), std::string::npos);
  EXPECT_NE(explained.out.find("\"fp8\": false  // reserved: not built yet"), std::string::npos) << explained.out;
  EXPECT_EQ(to_json(parse_train_config(explained.out, "e")), to_json(parse_train_config(printed.out, "p")));
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(CommandLine, BadConfigurationsLeaveNothingBehind) {
  expect_refusal({"train", "--config", path("missing.json")}, "missing.json: cannot be opened");
  expect_refusal({"train", "--config", folder_.string()}, "folder");
  expect_refusal({"train", "--config", config_, "--set", "parallel.tensr=2"}, "did you mean parallel.tensor?");
  expect_refusal({"train", "--config", config_, "--set", "parallel.context=2"}, "parallel.context = 2: not built yet");
  std::ofstream(path("bad.json")) << "{\n \"run\": {\"steps\": \"five\"}}";
  expect_refusal({"train", "--config", path("bad.json")}, path("bad.json") + ":2: run.steps = \"five\": must be an integer >= 1");
  std::ofstream(path("broken.json")) << "{\n \"run\": ";
  expect_refusal({"train", "--config", path("broken.json")}, "broken.json:2:");
  EXPECT_FALSE(std::filesystem::exists(path("run")));
}

TEST_F(CommandLine, EveryKindOfFailureHasItsExitCode) {
  const auto code_of = [&](const std::function<void()>& fail) {
    return run({"train", "--config", config_}, fail);
  };
  EXPECT_EQ(code_of([] { throw DataError("d"); }).exit_code, 65);
  EXPECT_EQ(code_of([] { throw StorageError("s"); }).exit_code, 74);
  EXPECT_EQ(code_of([] { throw CommunicationError("c"); }).exit_code, 76);
  EXPECT_EQ(code_of([] { throw InternalError("i"); }).exit_code, 70);
  EXPECT_EQ(code_of([] { throw std::bad_alloc(); }).err.rfind("trident: out of memory; ", 0), 0u);
  EXPECT_EQ(code_of([] { throw std::bad_alloc(); }).exit_code, 70);
  const Outcome other = code_of([] { throw std::runtime_error("two\nlines"); });
  EXPECT_EQ(other.exit_code, 70);
  EXPECT_NE(other.err.find("two lines"), std::string::npos);
}

TEST_F(CommandLine, SchemaAndPage) {
  EXPECT_EQ(parse_json(run({"schema"}).out, "schema"), parse_json(to_json_text(options_schema()), "schema"));
  EXPECT_EQ(run({"docs", "configuration"}).out, options_markdown());
}

TEST_F(CommandLine, DataPrepare) {
  std::ofstream(path("a.txt")) << "Hello world.";
  std::ofstream(path("b.jsonl")) << "{\"body\": \"one\"}\n{\"body\": \"two\"}\n";
  const Outcome outcome = run({"data", "prepare", "--input", path("a.txt"), path("b.jsonl"), "--tokenizer", "gpt2", "--output",
                               path("out"), "--json-key", "body", "--append-eod"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("3 documents, 8 tokens"), std::string::npos) << outcome.out;
  EXPECT_TRUE(file_exists(path("out.bin")) && file_exists(path("out.idx")));
  const Outcome cut =
      run({"data", "prepare", "--input", path("a.txt"), "--tokenizer", "gpt2", "--output", path("cut"), "--separator-line", ""});
  EXPECT_EQ(cut.exit_code, 0) << cut.err;
  std::ofstream(path("long.txt")) << std::string(10'000, 'a') << "\n\nb\n";
  Arguments whole{"data", "prepare", "--input", path("long.txt"), "--tokenizer", "bytes", "--output", path("long")};
  EXPECT_NE(run(whole).out.find("hint: it is one document"), std::string::npos) << run(whole).out;
  whole.insert(whole.end(), {"--separator-line", "", "--overwrite"});
  EXPECT_EQ(run(whole).out.find("hint: "), std::string::npos) << run(whole).out;
  expect_refusal({"data", "prepare", "--input", path("none.txt"), "--tokenizer", "gpt2", "--output", path("no")}, "none.txt", 65);
  expect_refusal({"data", "prepare", "--input", path("a.txt"), "--tokenizer", "gpt9", "--output", path("no")}, "gpt9");
  EXPECT_FALSE(std::filesystem::exists(path("no.bin")));
}

}  // namespace
}  // namespace trident
