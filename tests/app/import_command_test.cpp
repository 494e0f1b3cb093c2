// trident import and trident train --import, as a user runs them.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/file_io.h"
#include "tests/app/program.h"

namespace trident {
namespace {

class ImportCommand : public ::testing::Test {
 protected:
  ImportCommand() {
    write_file(zero2(),
               "distributed_type: DEEPSPEED\n"
               "deepspeed_config:\n"
               "  gradient_accumulation_steps: 2\n"
               "  zero_stage: 2\n"
               "mixed_precision: bf16\n"
               "num_machines: 1\n"
               "num_processes: 4\n");
    write_file(offload(),
               "distributed_type: DEEPSPEED\n"
               "deepspeed_config:\n"
               "  offload_optimizer_device: cpu\n"
               "  offload_param_device: nvme\n"
               "  zero_stage: 3\n"
               "num_processes: 4\n");
    write_file(base(), R"({
  "run": {"steps": 5}, "model": {"preset": "llama-1m"},
  "parallel": {"zero": "zero1"},
  "batch": {"global": 16, "micro": 2, "sequence": 64}, "data": {"train": "corpus/text"}})");
  }
  std::string zero2() const { return folder_ / "zero2.yaml"; }
  std::string offload() const { return folder_ / "offload.yaml"; }
  std::string base() const { return folder_ / "base.json"; }

  TemporaryFolder folder_;
};

TEST_F(ImportCommand, PrintsTheConfigurationAndWhatBecameOfEachKeyBesideIt) {
  const ProgramOutcome printed = succeeded(run_program({"import", zero2()}));
  const JsonValue config = parse_json(printed.out, "printed");
  EXPECT_EQ(*config.find("parallel")->find("zero"), JsonValue("zero2"));
  EXPECT_EQ(*config.find("parallel")->find("data"), JsonValue(4));
  EXPECT_NE(printed.out.find("zero2.yaml:4"), std::string::npos) << "where it comes from: " << printed.out;
  expect_parts(printed.err, {"taken over (6)", "\n  zero2.yaml:6  num_machines: 1 ("});
  EXPECT_EQ(printed.err.find("mixed_precision: bf16"), std::string::npos) << "the configuration's own comment says it";
  expect_parts(printed.err, {"still missing for trident train (5)", "\n  data.train: --set data.train=PREFIX",
                             "\nthe run\n  trident train --import ", "zero2.yaml", " --set batch.global=N", "model.preset=NAME"});
  expect_parts(succeeded(run_program({"import", zero2(), "--ranks", "4"})).err, {"zero2.yaml", " --set parallel.data=4"});
  expect_parts(succeeded(run_program({"import", zero2(), "--from", "accelerate"})).err,
               {"the run, once --output c.json has written it\n  trident train --config c.json"});
  for (std::size_t at = 0, end = 0; (end = printed.err.find('\n', at)) != std::string::npos; at = end + 1)
    EXPECT_LE(end - at, 140u) << printed.err.substr(at, end - at);
  const std::string copy = folder_ / "c.json";
  const ProgramOutcome written = succeeded(run_program({"import", zero2(), "--output", copy}));
  EXPECT_EQ(read_file(copy), printed.out);
  expect_parts(written.out, {"taken over (6)", "zero2.yaml:5", "mixed_precision: bf16", "precision.compute = \"bf16\""});
  EXPECT_NE(written.out.find("\nthe run\n  trident train --config " + copy), std::string::npos) << written.out;
  const std::string titan = TRIDENT_SOURCE_DIR "/tests/import/files/torchtitan_llama3_8b.toml";
  expect_parts(succeeded(run_program({"import", titan, "--output", copy})).out,
               {"batch.global: --set batch.global=N, or trident import --ranks N", "train --config " + copy,
                " --set batch.global=N"});
  const JsonValue report = parse_json(succeeded(run_program({"import", zero2(), "--json"})).out, "report");
  EXPECT_EQ(*report.find("config"), config);
  EXPECT_EQ(report.find("keys")->items().size(), 6u);
}

TEST_F(ImportCommand, AnInputIsNeverWrittenOver) {
  const std::string before = read_file(zero2());
  expect_one_line(run_program({"import", zero2(), "--output", zero2()}), 64, {"--output", "which would be lost"});
  EXPECT_EQ(read_file(zero2()), before);
}

TEST_F(ImportCommand, WhatIsNotBuiltIsListedOrRefused) {
  expect_parts(succeeded(run_program({"import", offload()})).err,
               {"not built yet (2)", "offload.yaml:3", "offload.optimizer", "offload.yaml:4", "offload.parameters",
                "--set offload.optimizer=none"});
  expect_one_line(run_program({"import", offload(), "--strict"}), 64,
                  {"offload.yaml:3", "(offload.optimizer", "offload.yaml:4", "(offload.parameters",
                   "--set offload.optimizer=none"});
}

TEST_F(ImportCommand, ThePlanComparesItWithItsNeighbours) {
  const ProgramOutcome plan = succeeded(run_program({"import", zero2(), "--plan", "--config", base(), "--cluster", "h100_sxm_ndr",
                                                     "--gpus", "4", "--set", "batch.global=32"}));
  expect_parts(plan.out, {"GB sent", "\n  ddp ", "\n  zero1 ", "\n  zero2 ", "\n  zero3 ", "\n  zero2, grad_sync step ",
                          "\n> imported: zero2 "});
  expect_parts(plan.err, {"the run\n  trident train --import ", "--config " + base(), "--set batch.global=32"});
  EXPECT_EQ(plan.err.find("still missing"), std::string::npos) << plan.err;
  EXPECT_TRUE(plan.err.starts_with("6 taken over: trident import ")) << "counts alone: " << plan.err;
  EXPECT_TRUE(plan.out.ends_with(" is predicted to be faster than what is imported.\n") ||
              plan.out.find(" % faster: --set parallel.") != std::string::npos) << plan.out;
  write_file(folder_ / "ds.json", R"({"steps_per_print": 9, "zero_optimization": {"stage": 2}})");
  std::string again = succeeded(run_program({"import", folder_ / "ds.json", "--from", "deepspeed", "--ranks", "4", "--without",
                                             "steps_per_print", "--plan", "--config", base(), "--cluster", "h100_sxm_ndr"})).err;
  std::ranges::replace(again, '\n', ' ');
  expect_parts(again, {"ds.json --from deepspeed --ranks 4 --without steps_per_print lists them"});
  const ProgramOutcome large = succeeded(run_program({"import", zero2(), "--plan", "--config", base(), "--cluster", "a10_pcie",
                                                      "--set", "model.preset=llama3-70b", "--set", "batch.sequence=8192"}));
  expect_parts(large.out, {"\nNone of them fits.\n"});
  const std::vector<std::string> alone{"import", folder_ / "ds.json", "--plan", "--config", base()};
  expect_parts(succeeded(run_program(alone)).err,
               {"how many ranks there are: this is one process, --ranks N", "--set parallel.data=1"});
  write_file(folder_ / "tp.toml", "[parallelism]\ntensor_parallel_degree = 2\n");
  expect_one_line(run_program({"import", folder_ / "tp.toml", "--plan", "--config", base(), "--cluster", "h100_sxm_ndr"}), 64,
                  {"--plan: no input says how many ranks there are; give --ranks N, or --gpus N"});
  const ProgramOutcome refused = succeeded(run_program({"import", offload(), "--plan", "--config", base()}));
  expect_parts(refused.out, {"\n> imported: zero3 ", "priced without, as not built yet: offload.optimizer, offload.parameters\n"});
  EXPECT_EQ(refused.out.find("cannot be: "), std::string::npos) << refused.out;
  expect_one_line(run_program({"import", zero2(), "--plan"}), 64,
                  {"--plan: batch.global, batch.sequence, model: missing", "--set or --config", "--set batch.micro=N (else 1)"});
  write_file(folder_ / "bad.json", R"({"batch": {"global": "x"}, "bogus": 1})");
  expect_parts(run_program({"import", zero2(), "--plan", "--config", folder_ / "bad.json"}).err,
               {"batch.global = \"x\": must be", "bogus"});
  expect_one_line(run_program({"import", zero2(), offload(), "--plan"}), 64,
                  {"says otherwise", "or give --plan one file at a time"});
  expect_one_line(run_program({"import", zero2(), "--set", "batch.global=2"}), 64,
                  {"--set: ", "give it to trident train, add --plan"});
  expect_one_line(run_program({"import", zero2(), "--gpus", "4"}), 64, {"--gpus: nothing is priced; add --plan"});
}

TEST_F(ImportCommand, TrainingTakesAnImportOverTheConfiguration) {
  const std::vector<std::string> train{"train", "--config", base(), "--import", zero2()};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), train.begin(), train.end());
    return run_program(more);
  };
  expect_parts(succeeded(with({"--print-config=origins"})).out,
               {"\"zero\": \"zero2\",  // ", "zero2.yaml:4", "in the place of ", "base.json:3", "\"preset\": \"llama-1m\""});
  expect_parts(succeeded(with({"--set", "parallel.zero=ddp", "--print-config=origins"})).out, {"\"zero\": \"ddp\",  // --set"});
  expect_one_line(run_program({"train", "--config", base(), "--import", offload()}), 64,
                  {"offload.yaml:3", "offload.optimizer = \"host\": not built yet", "offload.yaml:4",
                   "offload.parameters = \"disk\": not built yet; leave it out there, or train without: "
                   "--set offload.parameters=none"});
  expect_one_line(run_program({"train", "--import", zero2()}), 64, {"missing"});
}

TEST_F(ImportCommand, AnArgumentOfTheScriptIsNoValueOfARun) {
  const std::string script = folder_ / "run.sh";
  write_file(script, "torchrun pretrain_gpt.py --lr 1e-4 \\\n  --save $1 --data-path \"$HOME/text\"\n");
  expect_parts(succeeded(run_program({"import", script})).err, {"an argument of the script (set -- ARGUMENTS"});
  const auto train = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"train", "--config", base(), "--import", script, "--print-config"});
    return run_program(more);
  };
  expect_one_line(train({}), 64,
                  {"run.sh:2 --save $1: \"$1\" is an argument of the script (", "); give its value: --set checkpoint.dir=...",
                   "run.sh:2 --data-path $HOME/text: ", "--set data.train=..."});
  const ProgramOutcome given = succeeded(train({"--set", "checkpoint.dir=" + (folder_ / "ckpt"), "--set", "data.train=text"}));
  EXPECT_EQ(given.out.find("$1"), std::string::npos) << given.out;
  const std::string copy = folder_ / "c.json";
  expect_parts(succeeded(run_program({"import", script, "--output", copy})).out,
               {"left out: give it", "--set checkpoint.dir=...", "data.train=...\n"});
  EXPECT_EQ(read_file(copy).find('$'), std::string::npos) << "nothing unknown lands in the file: " << read_file(copy);
  const std::string asked = succeeded(run_program({"import", script})).err;
  EXPECT_EQ(asked.find("--set run.dir=..."), std::string::npos) << "it is checkpoint.dir, unless another is given: " << asked;
  write_file(script, "torchrun --nproc_per_node 4 pretrain_gpt.py --lr $1\n");
  expect_parts(succeeded(run_program({"import", script})).err, {"give it with --set optimizer.lr=..."});
  expect_one_line(train({}), 64,
                  {"run.sh:1 --lr $1: \"$1\" is an argument of the script (", "); give its value: --set optimizer.lr=..."});
  write_file(script, "torchrun --nproc_per_node 4 pretrain_gpt.py --lr $1 --tensor-model-parallel-size $2\n");
  const JsonValue config = parse_json(succeeded(train({"--set", "optimizer.lr=0.5", "--set", "parallel.tensor=2"})).out, "config");
  EXPECT_EQ(*config.find("optimizer")->find("lr"), JsonValue(0.5));
  EXPECT_EQ(*config.find("parallel")->find("data"), JsonValue(2)) << "what follows from it is computed from --set";
  write_file(script, "torchrun pretrain_gpt.py --lr 1e-4 --save $1 --load $1 --data-path $2\n");
  expect_parts(succeeded(train({"--set", "checkpoint.dir=" + (folder_ / "ckpt"), "--set", "data.train=text"})).out,
               {"\"resume\": \"auto\""});
  write_file(script, "torchrun pretrain_gpt.py --lr 1e-4 --num-layers $1 --hidden-size 64 --num-attention-heads 4\n");
  expect_one_line(train({}), 64, {"run.sh:1 --num-layers $1: ", "--set model.n_layer=..."});
}

TEST_F(ImportCommand, ARunWithoutALauncherHasOneRankAndOthersAreAskedFor) {
  const std::string script = folder_ / "run.sh",
                    more = " x.py --per_device_train_batch_size 8 --gradient_accumulation_steps 2 --bf16\n";
  const auto global = [&](const std::string& launcher, std::vector<std::string> settings) {
    write_file(script, launcher + more);
    settings.insert(settings.begin(), {"train", "--import", script, "--set", "model.preset=llama-1m", "--set", "data.train=text",
                                       "--set", "batch.sequence=64", "--print-config"});
    return run_program(settings);
  };
  expect_parts(succeeded(global("python", {})).out, {"\"global\": 16", "\"data\": 1"});
  expect_parts(succeeded(global("torchrun --nnodes 2", {})).out, {"\"global\": 32", "\"data\": 2"});
  expect_one_line(global("accelerate launch", {}), 64,
                  {"run.sh:1 --gradient_accumulation_steps 2: ",
                   "batch.global is this times the data-parallel ranks, which no input counts: give trident import --ranks N, or "
                   "trident train --import --set parallel.data=N"});
  expect_parts(succeeded(global("accelerate launch", {"--set", "parallel.data=4"})).out, {"\"global\": 64", "\"data\": 4"});
}

TEST_F(ImportCommand, RanksOfSbatchAreThoseOfSrun) {
  const std::string script = folder_ / "run.sh";
  write_file(script, "#!/bin/bash\n#SBATCH -N 2\n#SBATCH --ntasks-per-node=4\n"
                     "srun python pretrain_gpt.py --tensor-model-parallel-size 2\n");
  const JsonValue report = parse_json(succeeded(run_program({"import", script, "--json"})).out, "report");
  EXPECT_EQ(*report.find("config")->find("parallel")->find("data"), JsonValue(4));
  expect_parts(succeeded(run_program({"import", script})).err,
               {"the run, once --output c.json has written it\n", "sbatch --nodes=2 --ntasks-per-node=4 --gpus-per-task=1 ",
                "/train.sbatch ", " c.json --set "});
  for (const std::string command : {"torchrun --nnodes $SLURM_NNODES --nproc_per_node 4 ",
                                    "srun --nodes 2 --ntasks-per-node=4 python "}) {
    write_file(script, "#SBATCH -N 2\n" + command + "pretrain_gpt.py --lr 1e-4\n");
    expect_parts(succeeded(run_program({"import", script})).err, {"sbatch --nodes=2 --ntasks-per-node=4 "});
  }
  for (const auto& [command, start] :
       {std::pair{"torchrun --nnodes 2 --nproc_per_node 4 pretrain_gpt.py --lr 1e-4\n", "train --import "},
        {"accelerate launch --num_machines 2 --num_processes 8 sft.py --learning_rate 1e-4 --output_dir o\n", "train --import "}}) {
    write_file(script, command);
    expect_parts(succeeded(run_program({"import", script})).err,
                 {"the run; HOSTS has 2 lines such as n1 slots=4\n  mpirun -np 8 --hostfile HOSTS trident ", start});
  }
  write_file(script, "#SBATCH -N $N\n#SBATCH --ntasks-per-node=4\nsrun python pretrain_gpt.py --micro-batch-size 2\n");
  const std::string open = succeeded(run_program({"import", script})).err;
  expect_parts(open, {"Slurm replaces no variable in such a line: write the number there", "--set parallel.data=N"});
  EXPECT_EQ(open.substr(open.find("the run\n")).find("=..."), std::string::npos) << "each setting is asked for once: " << open;
  const JsonValue& nodes = report.find("keys")->items()[0];
  EXPECT_EQ(*nodes.find("key"), JsonValue("sbatch.nodes"));
  EXPECT_EQ(*nodes.find("line"), JsonValue(2));
  EXPECT_EQ(*nodes.find("verdict"), JsonValue("mapped"));
}

TEST_F(ImportCommand, ReportsAllKeysWhereSomeAreRefused) {
  write_file(folder_ / "moe.sh", "torchrun --nproc_per_node 2 pretrain_gpt.py --num-layers 2 --hidden-size 64 "
             "--num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 2 --global-batch-size 8 "
             "--train-iters 10 --lr 1e-3 --num-experts 4 --lrr 4 --bf16\n");
  const ProgramOutcome refused = run_program({"import", folder_ / "moe.sh", "--output", folder_ / "moe.json"});
  EXPECT_EQ(refused.exit_code, 64);
  expect_parts(refused.err, {"taken over (", "--lr,", "refused (2)\n  --num-experts, --lrr\ntrident: ", "dense models only",
                             "unknown key \"--lrr\""});
  EXPECT_LE(std::ranges::count(refused.err, '\n'), 10) << "names alone stand above the errors: " << refused.err;
  EXPECT_FALSE(file_exists(folder_ / "moe.json"));
  write_file(folder_ / "run.sh", "torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 "
             "--attention-dropout 0.1 --lrr 4 --bf16 --deepspeed --deepspeed_config none.json\n");
  expect_one_line(run_program({"import", folder_ / "run.sh"}), 64, {"\"--deepspeed_config\" names \"none.json\""});
  const std::vector<std::string> without = {"import",    folder_ / "run.sh", "--without", "deepspeed_config",
                                            "--without", "lrr",              "--without", "attention-dropout"};
  expect_parts(run_program({without.begin(), without.begin() + 4}).err,
               {"go on without it: --without lrr", "go on without it: --without attention-dropout"});
  const ProgramOutcome left_out = succeeded(run_program(without));
  expect_parts(left_out.err, {"different here (3)", "--attention-dropout 0.1", "left out, as --without says", " --without lrr"});
  expect_parts(left_out.err, {"ranks / (parallel.tensor) = 8 / 2"});
  expect_one_line(run_program({"train", "--config", base(), "--without", "lrr"}), 64, {"--without: nothing is imported"});
  expect_one_line(run_program({"import", zero2(), "--without", "lrr"}), 64, {"--without lrr: no input has such a key"});
  expect_parts(run_program({"train", "--import", folder_ / "run.sh", "--without", "deepspeed_config", "--without", "lrr"}).err,
               {"--attention-dropout 0.1"});
  write_file(folder_ / "merge.yaml", "model_name_or_path: m\nadapter_name_or_path: a\ntemplate: qwen\nexport_dir: out\n");
  write_file(folder_ / "run.sh", "llamafactory-cli export " + (folder_ / "merge.yaml\n"));
  expect_one_line(run_program({"import", folder_ / "run.sh"}), 64, {"use trident convert --from peft m a --to hf out"});
}

TEST_F(ImportCommand, ASettingDecidesBetweenTwoThatDisagree) {
  write_file(folder_ / "ds.json", R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 2}}})");
  write_file(folder_ / "run.sh", "deepspeed --num_gpus 2 x.py --deepspeed ds.json --lr_scheduler_type cosine --max_steps 9\n");
  const ProgramOutcome refused = run_program({"import", folder_ / "run.sh"});
  EXPECT_EQ(refused.exit_code, 64);
  expect_parts(refused.err, {"taken over (", "refused (1)", "scheduler.type: WarmupLR", "says otherwise",
                             "--set lr_schedule.type="});
  expect_parts(succeeded(run_program({"train", "--config", base(), "--import", folder_ / "run.sh", "--set",
                                      "lr_schedule.type=cosine", "--print-config"})).out,
               {"\"type\": \"cosine\""});
}

TEST_F(ImportCommand, WhatTheNextStartWouldRefuseIsMissing) {
  write_file(folder_ / "run.sh", "trl sft --dataset_name clean.jsonl --eval_strategy steps --eval_steps 10 --max_steps 4\n");
  expect_parts(succeeded(run_program({"import", folder_ / "run.sh"})).err,
               {"data.valid: --set data.valid=PREFIX", "--set data.train=data/clean ", "--set data.valid=PREFIX"});
}

TEST_F(ImportCommand, ACommandAsArgumentsIsToldWhereItGoes) {
  const std::vector<std::string> remedy{"a command is read from a file or standard input", "trident import - <<'EOF'"};
  expect_one_line(run_program({"import", "accelerate", "launch", "--use_fsdp", "sft.py", "--learning_rate", "1e-5"}), 64, remedy);
  expect_one_line(run_program({"import", "CUDA_VISIBLE_DEVICES=0 torchrun sft.py"}), 64, remedy);
  expect_one_line(run_program({"import", "none.yaml", "--from", "trl"}), 64, {"none.yaml"});
  expect_one_line(run_program({"import", "--json", "trl", "--from", "trl"}), 64, remedy);
  expect_parts(succeeded(run_program({"import", "--help"})).out, {"Examples:", "trident import - <<'EOF'"});
}

TEST_F(ImportCommand, WhoGivesAnotherSystemsFileIsToldToImportIt) {
  expect_one_line(run_program({"train", "--config", zero2()}), 64,
                  {"zero2.yaml", "is no JSON; import it: trident train --import "});
  expect_one_line(run_program({"train", zero2()}), 64, {"import it: trident train --import "});
  const ProgramOutcome missing = run_program({"train", "--config", folder_ / "none.yaml"});
  expect_one_line(missing, 64, {"none.yaml"});
  EXPECT_EQ(missing.err.find("import"), std::string::npos) << "no file, no import: " << missing.err;
}

}  // namespace
}  // namespace trident
