// Tests that files are recognised by what they hold, and that commands become flags of the systems that read them.
#include "import/foreign_input.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/file_io.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "import/import.h"
#include "import/shell_reader.h"

namespace trident {
namespace {

std::string_view short_name(ForeignSystem system) {
  constexpr std::array<std::string_view, 11> kNames = {"Accelerate", "DeepSpeed",     "Hugging Face", "ms-swift",
                                                       "axolotl",    "LLaMA-Factory", "Megatron-LM",  "torchtitan",
                                                       "OLMo",       "launcher",      "others"};
  return kNames.at(static_cast<std::size_t>(system));
}

class ForeignInput : public ::testing::Test {
 protected:
  std::string add(const std::string& name, std::string_view content) const {
    create_folder_of(folder_ / name);
    write_file(folder_ / name, content);
    return folder_ / name;
  }
  // "System key=value", one line for each leaf.
  static std::string leaves_of(const std::vector<std::string>& files, const std::string& from = "") {
    std::string all;
    for (const ForeignLeaf& leaf : read_foreign_inputs(files, from)) {
      if (leaf.key == "program") continue;
      all += fmt::format("{} {}={}{}\n", short_name(leaf.system), leaf.key, to_json_text(leaf.value),
                         leaf.is_replaced ? " replaced" : "");
    }
    return all;
  }
  std::string of_command(std::string_view command) const { return leaves_of({add("run.sh", command)}); }
  std::string refusal(std::string_view text, const std::string& name = "run.sh", const std::string& from = "") const {
    const std::string file = add(name, text);
    std::string message = error_of<ConfigError>([&] { leaves_of({file}, from); });
    for (std::size_t at; (at = message.find(folder_ / "")) != message.npos;) message.erase(at, std::string(folder_ / "").size());
    return message;
  }

  TemporaryFolder folder_;
};

TEST_F(ForeignInput, FilesAreRecognisedByTheirKeys) {
  for (const auto& [text, leaf] : std::vector<std::pair<std::string, std::string>>{
           {"compute_environment: LOCAL_MACHINE", "Accelerate compute_environment=\"LOCAL_MACHINE\""},
           {"# x\n---\nmax_duration: 2e12T\nmodel: {d_model: 8}", "OLMo max_duration=\"2e12T\"\nOLMo model.d_model=8"},
           {"{\"zero_optimization\": {\"stage\": 2}}", "DeepSpeed zero_optimization.stage=2"},
           {"{\n\"bf16\": {\"enabled\": true}}", "DeepSpeed bf16.enabled=true"},
           {"{\"activation_checkpointing\": {\"partition_activations\": true}}",
            "DeepSpeed activation_checkpointing.partition_activations=true"},
           {"{\"optimizer\": {\"type\": \"AdamW\"}}", "DeepSpeed optimizer.type=\"AdamW\""},
           {"{\"wall_clock_breakdown\": true}", "DeepSpeed wall_clock_breakdown=true"},
           {"[training]\nsteps = 5", "torchtitan training.steps=5"},
           {"{\"training\": {\"steps\": 5}, \"parallelism\": {}}", "torchtitan training.steps=5\ntorchtitan parallelism={}"},
           {R"({"training": {}, "model_spec": {"name": "a", "model": {"layers": [{"b": 1}]}}})",
            "torchtitan training={}\ntorchtitan model_spec.name=\"a\"\n"
            "torchtitan model_spec.model={\"layers\":[{\"b\":1}]}"},
           {"base_model: x\ndatasets: [{path: a, n: [1, 2]}, b]",
            "axolotl base_model=\"x\"\naxolotl datasets[0].path=\"a\"\naxolotl datasets[0].n=[1,2]\naxolotl datasets[1]=\"b\""},
           {"model_name_or_path: x\nfinetuning_type: full\nlearning_rate: 1e-5",
            "LLaMA-Factory model_name_or_path=\"x\"\nLLaMA-Factory finetuning_type=\"full\"\nLLaMA-Factory learning_rate=1e-05"},
           {"model: x\ntuner_type: lora", "ms-swift model=\"x\"\nms-swift tuner_type=\"lora\""},
           {"learning_rate: 1e-5", "Hugging Face learning_rate=\"1e-5\""}}) {
    EXPECT_EQ(leaves_of({add("x", text)}), leaf + "\n");
  }
  const std::vector<ForeignLeaf> leaves = read_foreign_inputs({add("z.yaml", "fsdp_config:\n  a: 1\ndistributed_type: FSDP\n")});
  ASSERT_EQ(leaves.size(), 2);
  EXPECT_EQ(place_of(leaves[0]), (folder_ / "z.yaml") + ":2");
  EXPECT_EQ(leaves[0].key, "fsdp_config.a");
}

TEST_F(ForeignInput, WhatIsNoConfigurationIsRefusedWithWhatToDo) {
  EXPECT_EQ(refusal("from x import y", "x"),
            "x: a Python program, which import does not execute; print its configuration as JSON there, "
            "and import that");
  EXPECT_TRUE(contains(refusal("", "x.py"), "x.py: a Python program"));
  EXPECT_TRUE(contains(refusal("{\"run\": {\"steps\": 1}}", "c.json"),
                       "is a configuration of Trident's already; use it by trident train --config"));
  EXPECT_TRUE(contains(refusal("name: me", "c.yaml"), "c.yaml: no known kind of configuration; import reads YAML of Accelerate"));
  EXPECT_TRUE(contains(refusal("parallelism: {dp: 2}\ntokens: {}", "nanotron.yaml"), "no known kind of configuration"));
  EXPECT_TRUE(contains(refusal("model: {_component_: m}\ndataset: {_component_: d}", "tune.yaml"), "and trident help KEY answers"));
  EXPECT_TRUE(contains(refusal("echo hi"), "run.sh:1:1: no command of a training and no known kind of file; import reads"));
  for (const char* const script : {"if [ \"$1\" == train ]; then\ntorchrun x.py\nfi", "case $1 in train)\ntorchrun x.py;; esac",
                                   "while [ $# -gt 0 ]; do M=$1; shift; done; if [ $M = train ]; then\ntorchrun x.py\nfi"}) {
    const std::string asked = refusal(script);
    EXPECT_TRUE(asked.starts_with("run.sh:2:1: nobody knows whether this command runs: it depends on the ")) << asked;
    EXPECT_TRUE(contains(asked, " is an argument of the script (set -- ARGUMENTS above its first command gives it)")) << asked;
  }
  EXPECT_TRUE(contains(refusal("a: 1", "c.yaml", "word"), "--from \"word\": no such kind; they are accelerate, "));
  EXPECT_TRUE(contains(refusal("{\"train_batch_size\": 1, \"train_batch_size\": 2}", "d.json"), "d.json:1:"));
  EXPECT_TRUE(contains(error_of<ConfigError>([&] { leaves_of({folder_ / "none.yaml"}); }), "none.yaml\": no such file"));
  EXPECT_EQ(leaves_of({add("c.yaml", "mystery: 1")}, "megatron"), "Megatron-LM mystery=1\n");
  EXPECT_TRUE(contains(error_of<ConfigError>([&] { leaves_of({folder_ / ""}); }), "a folder; give the files in it"));
  EXPECT_TRUE(contains(error_of<ConfigError>([&] { leaves_of({"/dev/zero"}); }), "no regular file; give - and its text"));
}

TEST_F(ForeignInput, AFileIsWhatItsNameSays) {
  EXPECT_TRUE(refusal("[]", "a.json").starts_with("a.json:1:1: no keys; import reads "));
}

TEST_F(ForeignInput, TextsOfEveryKindAreUtf8WithOrWithoutAMark) {
  for (const auto& [text, leaf] : std::vector<std::pair<std::string, std::string>>{
           {"# x\nlearning_rate: 1e-5", "Hugging Face learning_rate=\"1e-5\""},
           {"{\"zero_optimization\": {\"stage\": 2}}", "DeepSpeed zero_optimization.stage=2"},
           {"[training]\nsteps = 5", "torchtitan training.steps=5"},
           {"torchrun x.py \\\r\n  --bf16\r\n", "launcher torchrun=true\nHugging Face --bf16=true"}}) {
    EXPECT_EQ(leaves_of({add("x", "\xEF\xBB\xBF" + text)}), leaf + "\n");
  }
  EXPECT_EQ(refusal("torchrun x.py --bf16\ntrue \x1B[2J"), "run.sh:2:6: the byte 0x1B is a control character");
  EXPECT_EQ(refusal("torchrun x.py --output_dir \xFF"), "run.sh:1:28: the byte 0xFF is not UTF-8");
  EXPECT_EQ(refusal(std::string("t\0o\0", 4)), "run.sh:1:2: the byte 0x00 is a control character");
}

TEST_F(ForeignInput, LaunchersAndProgramsHaveTheirOwnFlags) {
  add("z.yaml", "distributed_type: FSDP");
  EXPECT_EQ(
      of_command("A=b accelerate launch --config_file z.yaml --num_processes=8 src/sft.py --packing --lr 1e-5 --x a b --no-y -1"),
      "Accelerate --config_file=\"z.yaml\"\nAccelerate --num_processes=\"8\"\nHugging Face --packing=true\n"
      "Hugging Face --lr=\"1e-5\"\nHugging Face --x=[\"a\",\"b\"]\nHugging Face --no-y=\"-1\"\n"
      "Accelerate distributed_type=\"FSDP\"\n");
  EXPECT_EQ(of_command("python /home/swift/axolotl/train.py --learning_rate 1"),
            "launcher python=true\nHugging Face --learning_rate=\"1\"\n") << "the name of a folder is no system's";
  EXPECT_EQ(of_command("torchrun /home/torchtitan/tools/x.py --bf16"), "launcher torchrun=true\nHugging Face --bf16=true\n");
  EXPECT_EQ(of_command("mpirun -np 8 -x A --bind-to none python -u pretrain_gpt.py --num-layers 4"),
            "launcher -np=\"8\"\nlauncher -x=\"A\"\nlauncher --bind-to=\"none\"\nMegatron-LM --num-layers=\"4\"\n");
  EXPECT_EQ(of_command("python3 -m torch.distributed.run --nproc_per_node 2 train.py --micro-batch-size=1"),
            "launcher --nproc_per_node=\"2\"\nMegatron-LM --micro-batch-size=\"1\"\n");
  EXPECT_EQ(of_command("srun -N4 --ntasks 4 bash -c \"torchrun --nnodes 4 x.py --bf16\""),
            "launcher srun.nodes=\"4\"\nlauncher srun.ntasks=\"4\"\nlauncher --nnodes=\"4\"\nlauncher torchrun=true\n"
            "Hugging Face --bf16=true\n")
      << "torchrun starts the ranks";
  EXPECT_EQ(of_command("NPROC_PER_NODE=2 swift sft --model m --deepspeed zero2"),
            "ms-swift --model=\"m\"\nms-swift --deepspeed=\"zero2\"\nlauncher --nproc_per_node=\"2\"\n");
  EXPECT_EQ(of_command("swift sft --model m"), "ms-swift --model=\"m\"\nlauncher swift=true\n");
  EXPECT_EQ(of_command("NNODES=2 swift sft --model m"), "ms-swift --model=\"m\"\nlauncher --nnodes=\"2\"\nlauncher torchrun=true\n")
      << "one process on each machine";
  for (const std::string first : {": ${A:=1}", "[[ -n $A && $B == 1 ]] || exit", "[ -z \"$A\" ]"})
    EXPECT_EQ(of_command(first + "\ntorchrun x.py --bf16"), "launcher torchrun=true\nHugging Face --bf16=true\n")
        << "neither YAML nor TOML";
  EXPECT_EQ(of_command("export A=1\nuv run accelerate launch -m axolotl.cli.train --x"), "axolotl --x=true\n");
  EXPECT_EQ(of_command("conda run -n trl trl sft --bf16"), "Hugging Face --bf16=true\n") << "the first names an environment";
  EXPECT_EQ(of_command("trl sft --fsdp_config '{\"version\": 2, \"a\": {\"b\": [1]}}'"),
            "Accelerate fsdp_config.version=2\nAccelerate fsdp_config.a.b=[1]\n");
  EXPECT_EQ(of_command("trl orpo --bf16"), "Hugging Face --bf16=true\n") << "what it asks for is refused by name";
  EXPECT_EQ(of_command("trl sft --num_processes 4 --bf16"), "Accelerate --num_processes=\"4\"\nHugging Face --bf16=true\n")
      << "trl hands what it does not know to accelerate launch";
  EXPECT_EQ(of_command("mpirun -x A -x B trl sft --lr 1e-4 --packing --lr-x 1 --lr 3e-4 --packing"),
            "launcher -x=\"A\"\nlauncher -x=\"B\"\nHugging Face --lr=\"1e-4\" replaced\nHugging Face --packing=true\n"
            "Hugging Face --lr-x=\"1\"\nHugging Face --lr=\"3e-4\"\nHugging Face --packing=true\n")
      << "the last of one command counts";
  EXPECT_EQ(of_command("torchrun x.py --deepspeed '{\"zero_optimization\": {}}'"),
            "launcher torchrun=true\nDeepSpeed zero_optimization={}\n");
}

TEST_F(ForeignInput, LinesOfSbatchCountWhereSrunStartsTheRanks) {
  const std::string lines = "#!/bin/bash\n#SBATCH --nodes=4 --ntasks-per-node=8\n\n#SBATCH -t 0:30:00 --gres=gpu:8  # a node\n";
  const std::string nodes = "launcher sbatch.nodes=\"4\"", each = "launcher sbatch.ntasks_per_node=\"8\"",
                    gpus = "launcher sbatch.gpus_per_node=\"8\"", replaced = " replaced\n", program = "Megatron-LM --bf16=true\n";
  EXPECT_EQ(of_command(lines + "srun python pretrain_gpt.py --bf16"), nodes + '\n' + each + '\n' + gpus + replaced + program);
  EXPECT_EQ(of_command("#SBATCH -N 4\n#SBATCH --gpus-per-node=h100:8\nsrun python pretrain_gpt.py --bf16"),
            nodes + '\n' + gpus + '\n' + program);
  EXPECT_EQ(of_command("#SBATCH -N 4\n#SBATCH --gres=nvme:100,gpu:v100:8,ssd:2\nsrun python pretrain_gpt.py --bf16"),
            nodes + '\n' + gpus + '\n' + program);
  EXPECT_EQ(of_command("#SBATCH -N 4\n#SBATCH --gres=nvme:100\nsrun python pretrain_gpt.py --bf16"), nodes + '\n' + program);
  EXPECT_EQ(of_command("#SBATCH -N4\n#SBATCH -n 6\nsrun python pretrain_gpt.py --bf16"),
            nodes + replaced + "launcher sbatch.ntasks=\"6\"\n" + program);
  EXPECT_EQ(of_command(lines + "srun --nodes 2 python pretrain_gpt.py --bf16"),
            "launcher --nodes=\"2\"\n" + nodes + replaced + each + '\n' + gpus + replaced + program)
      << "srun's own option counts";
  EXPECT_EQ(of_command(lines + "mpirun -np 2 python pretrain_gpt.py --bf16"),
            "launcher -np=\"2\"\n" + nodes + replaced + each + replaced + gpus + replaced + program);
  EXPECT_EQ(of_command(lines + "torchrun --nnodes $SLURM_NNODES --nproc_per_node ${SLURM_GPUS_ON_NODE:-1} pretrain_gpt.py --bf16"),
            "launcher --nnodes=\"4\"\nlauncher --nproc_per_node=\"8\"\n" + nodes + replaced + each + replaced + gpus + replaced +
                program);
  EXPECT_EQ(of_command("true\n#SBATCH -N 4\nsrun python pretrain_gpt.py --bf16"), program) << "sbatch stops at the first command";
  EXPECT_EQ(of_command("#SBATCH --nodes=2-4 --ntasks\nsrun python pretrain_gpt.py --bf16"),
            "launcher sbatch.nodes=\"2-4\"\n" + program) << "no number of nodes, which is refused, not passed over";
  EXPECT_EQ(of_command("#SBATCH --nodes=$N\n#SBATCH --gres=gpu:v100\nsrun python pretrain_gpt.py --bf16"),
            "launcher sbatch.nodes=\"$N\"\nlauncher sbatch.gpus_per_node=\"1\"\n" + program) << "a type alone is one GPU";
  for (const auto& [asked, number] : {std::pair{"--gres=\"gpu:8(S:0-1)\"", "8"}, {"--gpus-per-node=4k", "4k"}})
    EXPECT_EQ(of_command(fmt::format("#SBATCH {}\nsrun python pretrain_gpt.py --bf16", asked)),
              fmt::format("launcher sbatch.gpus_per_node=\"{}\"\n{}", number, program));
  EXPECT_EQ(of_command("A=1\nsbatch -p x <<E\n#!/bin/bash\n#SBATCH -N 4\nsrun python pretrain_gpt.py --bf16\n#SBATCH -n 2\nE\n"),
            nodes + '\n' + program) << "a script on its standard input";
}

TEST_F(ForeignInput, SettingsOfACommandArePassedOn) {
  const std::vector<std::string_view> names = {"NGPU"};
  const auto setting = [&](std::string_view script) {
    const std::vector<ShellCommand> commands = read_shell(script, "run.sh", names);
    return commands.back().settings.empty() ? "" : commands.back().settings[0].text;
  };
  EXPECT_EQ(setting("NGPU=8 LR=1 run"), "NGPU=8");
  EXPECT_EQ(setting("export NGPU=4\nrun"), "NGPU=4");
  EXPECT_EQ(setting("NGPU=4\nexport NGPU\nNGPU=2 run"), "NGPU=2");
  EXPECT_EQ(setting("NGPU=4\nrun"), "");
}

TEST_F(ForeignInput, AVariableThatNoCommandSetsIsNoValueOfASwitch) {
  const std::string script = "if [ a = b ]; then A=--swiglu; fi\ntorchrun pretrain_gpt.py ";
  EXPECT_EQ(of_command(script + "--bf16 $A"), "launcher torchrun=true\nMegatron-LM --bf16=true\n");
  EXPECT_EQ(of_command(script + "--lr $A"), "launcher torchrun=true\nMegatron-LM --lr=\"$A\"\n") << "it has a value";
  EXPECT_TRUE(contains(refusal(script + "--bf16 \"$A\""), "\"$A\" is set nowhere before line 2")) << "an empty word";
  EXPECT_TRUE(contains(refusal(script + "--bf16 $B"), "\"$B\" is set nowhere before line 2"));
}

TEST_F(ForeignInput, KeysAreLimited) {
  std::string flags;
  for (int i = 0; i < 6000; ++i) flags += " \\\n --bf16";
  EXPECT_EQ(refusal("torchrun pretrain_gpt.py" + flags),
            "run.sh:1:1: more than 5000 keys and flags; give the configuration alone");
}

TEST_F(ForeignInput, OneFileIsReadOnceWhateverItsNames) {
  add("run.sh", "accelerate launch --config_file z.yaml --num_processes 8 x.py --bf16");
  add("z.yaml", "distributed_type: FSDP\nnum_processes: 4");
  std::filesystem::create_symlink("z.yaml", folder_ / "link.yaml");
  for (const char* name : {"z.yaml", "./z.yaml", "link.yaml"})
    EXPECT_EQ(leaves_of({folder_ / name, folder_ / "run.sh"}),
              "Accelerate distributed_type=\"FSDP\"\nAccelerate num_processes=4 replaced\n"
              "Accelerate --config_file=\"z.yaml\"\nAccelerate --num_processes=\"8\"\nHugging Face --bf16=true\n")
        << name;
  EXPECT_TRUE(contains(refusal("trl sft --config ./run.sh --bf16"), "\"--config\" names the file that it stands in"));
}

TEST_F(ForeignInput, FilesThatCommandsNameAreReadOnceAndGiveWay) {
  add("d.json", "{\"train_batch_size\": 8}");
  add("t.toml", "[training]\nsteps = 5\nseq_len = 8");
  add("c.yaml", "learning_rate: 1e-5\ndeepspeed: d.json");
  add("o.yaml", "max_duration: 8\nfsdp: {precision: pure}");
  add("d.yaml", "learning_rate: 1e-5\ndeepspeed: other.json");
  EXPECT_EQ(of_command("trl sft --config d.yaml --deepspeed d.json"),
            "Hugging Face --config=\"d.yaml\"\nHugging Face --deepspeed=\"d.json\"\nHugging Face learning_rate=\"1e-5\"\n"
            "Hugging Face deepspeed=\"other.json\" replaced\nDeepSpeed train_batch_size=8\n");
  EXPECT_EQ(of_command("trl sft --config c.yaml"), "Hugging Face --config=\"c.yaml\"\nHugging Face learning_rate=\"1e-5\"\n"
                                                   "Hugging Face deepspeed=\"d.json\"\nDeepSpeed train_batch_size=8\n");
  EXPECT_EQ(of_command("torchrun -m torchtitan.train --job.config_file t.toml --training.steps 100"),
            "launcher torchrun=true\ntorchtitan --job.config_file=\"t.toml\"\ntorchtitan --training.steps=\"100\"\n"
            "torchtitan training.steps=5 replaced\ntorchtitan training.seq_len=8\n");
  EXPECT_EQ(of_command("NGPU=4 CONFIG_FILE=./t.toml ./run_train.sh"),
            "launcher --nproc_per_node=\"4\"\ntorchtitan --job.config_file=\"./t.toml\"\ntorchtitan training.steps=5\n"
            "torchtitan training.seq_len=8\n");
  EXPECT_EQ(
      of_command("torchrun scripts/train.py o.yaml --fsdp.precision=mixed"),
      "launcher torchrun=true\nOLMo config=\"o.yaml\"\nOLMo --fsdp.precision=\"mixed\"\n"
      "OLMo max_duration=8\nOLMo fsdp.precision=\"pure\" replaced\n");
  EXPECT_EQ(leaves_of({folder_ / "d.json", folder_ / "d.json"}), "DeepSpeed train_batch_size=8\n");
  EXPECT_EQ(leaves_of({add("e.yaml", "learning_rate: 1e-5\ndeepspeed: {zero_optimization: {stage: 2}}")}),
            "Hugging Face learning_rate=\"1e-5\"\nDeepSpeed zero_optimization.stage=2\n");
  EXPECT_EQ(leaves_of({add("n.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: none}")}),
            "Accelerate distributed_type=\"DEEPSPEED\"\nAccelerate deepspeed_config.deepspeed_config_file=\"none\"\n");
  EXPECT_TRUE(contains(refusal("torchrun x.py --deepspeed conf/stage2"), "names \"conf/stage2\", and there is no such file"));
  EXPECT_EQ(refusal("trl sft --config run.sh --bf16"),
            "run.sh:1:9: \"--config\" names the file that it stands in; leave it out");
  add("other.sh", "trl sft --config run.sh --bf16");
  EXPECT_TRUE(contains(refusal("trl sft --config other.sh"), "other.sh\", which is neither YAML, JSON nor TOML"));
  remove_file(folder_ / "n.yaml");
  EXPECT_EQ(refusal("trl sft --config n.yaml"),
            "run.sh:1:9: \"--config\" names \"n.yaml\", and there is no such file beside run.sh or in the working directory; put "
            "it there");
}

TEST_F(ForeignInput, FilesAreFoundWhereTheProgramWouldOrWhereTheyLie) {
  const auto add_to = [&](const std::string& name, const std::string& stage) {
    add(name, fmt::format("{{\"zero_optimization\": {{\"stage\": {}}}}}", stage));
  };
  const auto stage_of = [&](const std::string& script, const std::string& text) {
    for (const ForeignLeaf& leaf : read_foreign_inputs({add(script, text)}))
      if (leaf.key == "zero_optimization.stage") return to_json_text(leaf.value);
    return std::string("none");
  };
  add_to("repo/conf/ds.json", "1");
  add_to("repo/examples/gpt/ds.json", "2");
  add_to("repo/examples/other/ds.json", "3");
  const std::string script = "repo/examples/gpt/run.sh", deepspeed = "deepspeed pretrain_gpt.py --deepspeed_config ";
  EXPECT_EQ(stage_of(script, deepspeed + "ds.json"), "2") << "beside the script";
  EXPECT_EQ(stage_of(script, deepspeed + "conf/ds.json"), "1") << "from the top of the repository";
  EXPECT_EQ(stage_of(script, deepspeed + "$(dirname \"$0\")/../other/ds.json"), "3");
  EXPECT_EQ(stage_of(script, "D=$(cd $(dirname ${BASH_SOURCE[0]}) && pwd)\ncd /\n" + deepspeed + "$D/ds.json"), "2");
  EXPECT_EQ(stage_of(script, "cd \"$(dirname $0)/../other\"\n" + deepspeed + "ds.json"), "3") << "where the script goes";
  EXPECT_EQ(stage_of("repo/examples/gpt/c.yaml", "base_model: m\ndeepspeed: conf/ds.json"), "1");
  add("repo/examples/gpt/a.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: ds.json}");
  const std::string other = "cd " + (folder_ / "repo/examples/other") + '\n';
  EXPECT_EQ(stage_of(script, other + "accelerate launch --config_file ../gpt/a.yaml sft.py --bf16"), "3")
      << "of a file that the script names, too";
  const auto refusal_of = [&](const std::string& text) { return error_of<ConfigError>([&] { stage_of(script, text); }); };
  EXPECT_TRUE(contains(refusal_of(deepspeed + "x.json"), "and there is no such file beside "));
  EXPECT_TRUE(contains(refusal_of(deepspeed + "x/y.json"), "/run.sh, in the folders above it or in the working directory; put"));
  EXPECT_TRUE(contains(refusal_of("cd /a\n" + deepspeed + "x.json"), "and there is no such file in /a, where the script"));
  add("above.json", "{}");
  for (const std::string name : {"./above.json", "../none/above.json"})
    EXPECT_TRUE(contains(refusal_of(deepspeed + name), "and there is no such file beside ")) << name << " lies not there";
  EXPECT_TRUE(contains(refusal_of("sed -i s/2/3/ ds.json\n" + deepspeed + "$PWD/ds.json"), "which the script writes: line 1"));
  for (const std::string change : {"sed -i s/2/3/ ds.json", "cat x > ds.json", "cat <<E >> ds.json\n{}\nE"})
    EXPECT_TRUE(contains(refusal_of(change + "\n" + deepspeed + "ds.json"),
                         "which the script writes: line 1 changes it, and nothing is"))
        << change << ": the one beside the script is of another time";
}

TEST_F(ForeignInput, ValuesThatOnlyTheScriptsUserKnowsAreRemarked) {
  const std::string script = "torchrun --nproc_per_node $N pretrain_gpt.py --data-path $1 --lr $LR --bf16 --save $(cat x)";
  std::string remarks;
  for (const ForeignLeaf& leaf : read_foreign_inputs({add("run.sh", script)}))
    if (!leaf.remark.empty()) remarks += fmt::format("{} {}: {}\n", leaf.key, to_json_text(leaf.value), leaf.remark);
  EXPECT_EQ(remarks, "--nproc_per_node \"$N\": \"$N\" is set nowhere before line 1; write N=... above it\n"
                     "--data-path \"$1\": \"$1\" is an argument of the script (set -- ARGUMENTS above its first command gives it)\n"
                     "--lr \"$LR\": \"$LR\" is set nowhere before line 1; write LR=... above it\n"
                     "--save \"$(cat x)\": \"$(cat x)\" in line 1 would have to be executed; write its value in its place\n");
  EXPECT_EQ(refusal("torchrun pretrain_gpt.py --bf16 $ARGS"),
            "run.sh:1:33: \"$ARGS\" is set nowhere before line 1; write ARGS=... above it") << "it may be flags";
  EXPECT_EQ(refusal("torchrun x.py $ARGS"), "run.sh:1:15: \"$ARGS\" is set nowhere before line 1; write ARGS=... above it");
  for (const std::string flag : {"--lr 1e-4", "--num-workers 8", "--train-samples $2", "--unknown 1"})
    EXPECT_TRUE(contains(refusal("set -- a b\ntorchrun pretrain_gpt.py " + flag + " $ARGS"),
                         ": \"$ARGS\" is set nowhere before line 2; write ARGS=... above it"))
        << "flags may stand in it";
  for (const std::string flag : {"--data-path 0.3 a 0.7 $B", "--lr $B --bf16"})
    EXPECT_TRUE(contains(of_command("torchrun pretrain_gpt.py " + flag), "$B")) << "a list goes on, and one word is the value";
  EXPECT_EQ(refusal("for i in 1 2; do\n  torchrun x.py --lr $i\ndone"),
            "run.sh:2:3: the script runs this command again with other values; write those of the run that is meant in their "
            "place");
  EXPECT_EQ(refusal("for i in $(ls); do\n  torchrun x.py\ndone"),
            "run.sh:2:3: nobody knows whether this command runs: it depends on the loop in line 1, which import does not follow; "
            "give import "
            "the command alone");
  EXPECT_EQ(refusal("torchrun x.py --lr 1\ntorchrun y.py"),
            "run.sh:2:1: a second command of a training, beside that in line 1; give import one of them");
  EXPECT_TRUE(contains(refusal("torchrun -m torchtitan.train --module llama3 --config x"), "is a Python program since 0.3"));
}

TEST_F(ForeignInput, ASettingAnswersWhatOnlyTheScriptsUserKnows) {
  const std::string file = add("run.sh", "torchrun --nproc_per_node $1 pretrain_gpt.py --micro-batch-size 2 --train-samples $2");
  const auto unknown = [&](const ImportRules& rules) {
    std::string paths;
    for (const ImportedValue& value : import_files({file}, rules).values)
      if (!value.unknown.empty()) paths += value.path + ' ';
    return paths;
  };
  ImportRules rules;
  EXPECT_EQ(unknown(rules), "run.steps parallel.data batch.global ") << "what follows from it is as unknown";
  add("run.sh", "torchrun --nproc_per_node `nproc` pretrain_gpt.py --micro-batch-size 2 --train-samples $(wc -l x)");
  EXPECT_EQ(unknown(rules), "run.steps parallel.data batch.global ") << "as it is of what a program says";
  add("run.sh", "torchrun --nproc_per_node $1 pretrain_gpt.py --micro-batch-size 2 --train-samples $2");
  rules.ranks = 8;
  EXPECT_EQ(unknown(rules), "run.steps ");
  rules.settings = {"run.steps=5"};
  const Import import = import_files({file}, rules);
  EXPECT_EQ(import.keys.back().note, "--set run.steps=5 counts in its place");
  EXPECT_TRUE(std::ranges::none_of(import.values, [](const ImportedValue& one) { return one.path == "run.steps"; }));
}

TEST_F(ForeignInput, AFileThatTheScriptWritesIsReadFromIt) {
  EXPECT_EQ(of_command("Z=1\nF=\"./ds.$JOB.json\"\ncat <<EOT > $F\n{\"zero_optimization\": {\"stage\": $Z}}\nEOT\n"
                       "deepspeed pretrain_gpt.py --deepspeed --deepspeed_config $F --lr 1"),
            "Megatron-LM --deepspeed=true\nMegatron-LM --deepspeed_config=\"./ds.$JOB.json\"\nMegatron-LM --lr=\"1\"\n"
            "DeepSpeed zero_optimization.stage=1\n");
  EXPECT_TRUE(of_command("cat <<E > ./ds.json\n{\"bf16\": {\"enabled\": true}}\nE\ndeepspeed x.py --deepspeed d/../ds.json")
                  .ends_with("DeepSpeed bf16.enabled=true\n"));
  EXPECT_EQ(refusal("cat <<E > ds.json\n{\"a\"\nE\ndeepspeed pretrain_gpt.py --deepspeed_config ds.json"),
            "ds.json:2:1: not valid JSON: the end of the text (the { of line 1 is open) where \":\" is expected");
}

TEST_F(ForeignInput, AFileCountsAsItIsAtTheCommand) {
  const std::string write = "cat <<E > ds.json\n{\"gradient_clipping\": 1}\nE\n", command = "deepspeed x.py --deepspeed ds.json\n";
  EXPECT_TRUE(of_command(write + command + "rm ds.json").ends_with("DeepSpeed gradient_clipping=1\n"));
  EXPECT_TRUE(of_command("cat <<E > ds.json && " + command + "{\"gradient_clipping\": 2}\nE").ends_with("gradient_clipping=2\n"));
  add("ds.json", "{\"gradient_clipping\": 3}");
  EXPECT_TRUE(of_command(command + write).ends_with("DeepSpeed gradient_clipping=3\n")) << "which is written later";
  EXPECT_TRUE(contains(refusal(write + "rm ds.json\n" + command), "which the script writes: line 4 changes it"));
}

TEST_F(ForeignInput, ACommandThatALoopRunsAgainCountsOnce) {
  const auto first = [&](const std::string& script) {
    const std::vector<ForeignLeaf> leaves = read_foreign_inputs({add("run.sh", script)});
    std::string all = leaves[0].note;
    for (const ForeignLeaf& leaf : leaves) all += leaf.key == "--lr" ? ' ' + to_json_text(leaf.value) : "";
    return all;
  };
  const std::string again = "the script runs this command again; the first time counts \"1\"", run = "torchrun x.py --lr $A";
  EXPECT_EQ(first("A=1\nwhile true; do " + run + "; if [ $? = 0 ]; then break; fi; A=2; done"), again);
  EXPECT_EQ(first("A=1\nfor i in 1 2 3; do " + run + "; done"), again);
  EXPECT_EQ(first("A=1\nuntil " + run + "; do A=2; done"), " \"1\"");
  EXPECT_TRUE(contains(refusal("while true; do torchrun x.py --lr 1; torchrun y.py; done"), "a second command of a training"));
  EXPECT_TRUE(contains(refusal("until [ -f x ]; do " + run + "; done"), "this command runs: it depends on the loop in line 1"));
  EXPECT_EQ(first("A=1\nif [ $# = 0 ]; then exit 1; fi\n" + run), " \"1\"") << "who runs it gives it arguments";
}

TEST_F(ForeignInput, FilesThatAScriptReadsLieBesideIt) {
  add("env.sh", "LR=3");
  add("env.bin", std::string("LR=3\0", 5));
  EXPECT_TRUE(contains(of_command("LR=1\n. ./env.sh\ntorchrun x.py --lr $LR"), "--lr=\"3\""));
  for (const std::string file : {"none.sh", "env.bin"})
    EXPECT_TRUE(contains(of_command("LR=1\n. " + file + "\ntorchrun x.py --lr $LR"), "--lr=\"$LR\"")) << file;
  add("z.yaml", "num_processes: 2");
  const std::vector<ForeignLeaf> leaves =
      read_foreign_inputs({add("run.sh", "cd $WORK\naccelerate launch --config_file z.yaml sft.py --learning_rate 1")});
  EXPECT_TRUE(contains(leaves[0].note, "z.yaml is taken, as nobody knows where the script goes by cd")) << leaves[0].note;
}

TEST_F(ForeignInput, ProgramsThatTrainSomethingElseAreRefused) {
  for (const std::string name : {"pretrain_bert.py", "a/pretrain_t5.py", "pretrain_prefix_lm.py", "finetune-bert.py"})
    EXPECT_TRUE(contains(refusal("torchrun " + name + " --num-layers 2 --micro-batch-size 1"),
                         "trains another model than a decoder of text"))
        << name;
  EXPECT_TRUE(contains(refusal("torchrun run_mlm.py --bf16"), "trains another model than a decoder of text; give a command of "
   "sft.py"));
  EXPECT_TRUE(contains(refusal("torchrun pretrain_gpt.py --lr 1 --$A 2"), "\"$A\" is set nowhere before line 1"));
  EXPECT_TRUE(contains(of_command("torchrun pretrain_gpt_bertha.py --num-layers 2"), "--num-layers"));
  for (const std::string launcher : {"srun", "mpirun -n 2 python"})
    EXPECT_TRUE(contains(refusal(launcher + " serve.py --port 80"), "no command of a training")) << launcher;
  for (const std::string other : {"tools/preprocess_data.py --learning_rate 1", "merge_lora.py --output_dir x", "evaluate_vqa.py "
   "--bf16"})
    EXPECT_TRUE(contains(refusal("torchrun " + other), "no command of a training")) << other;
  EXPECT_TRUE(contains(of_command("python convert.py --output_dir x\ntorchrun train_eval.py --bf16"), "--bf16"));
  EXPECT_TRUE(contains(of_command("srun python x.py --learning_rate 1"), "learning_rate"));
  EXPECT_TRUE(contains(refusal("python sft.py --output_dir x \\\n ..."), "run.sh:2:2: \"...\" stands for words that are not here"));
}

TEST_F(ForeignInput, WhatEachMachineRunsIsOneTraining) {
  const std::string run = "torchrun --nnodes 2 --nproc_per_node 8 --node_rank 0 sft.py --bf16\n";
  EXPECT_TRUE(contains(of_command(run + "torchrun --nnodes 2 --nproc_per_node 8 --node_rank 1 sft.py --bf16"),
   "--node_rank=\"0\""));
  EXPECT_TRUE(contains(refusal(run + "torchrun --nnodes 2 --nproc_per_node 8 --node_rank 1 sft.py --fp16"), "a second command"));
}

TEST_F(ForeignInput, DeepspeedsListOfGpusCountsRanks) {
  const auto ranks = [&](const std::string& flags) {
    return import_files({add("run.sh", "deepspeed " + flags + " sft.py --model_name_or_path m")}).ranks;
  };
  EXPECT_EQ(ranks("--include localhost:0,1,2,3"), 4);
  EXPECT_EQ(ranks("--include=a:0,1@b:2"), 3);
  for (const char* const open : {"a@b:2", "a:0,x", "a:0-3", "a:", "a:0,@b:1"})
    EXPECT_EQ(ranks(std::string("--include ") + open), std::nullopt) << open;
  EXPECT_TRUE(contains(error_of<ConfigError>([&] { ranks("--include=a:0,1 --num_gpus 4"); }), "run.sh:1 --include.ranks"));
}

TEST_F(ForeignInput, AProgramOfNobodyHasNoDefaults) {
  EXPECT_TRUE(import_files({add("run.sh", "torchrun --nproc_per_node 2 loop.py")}).defaults.empty());
  EXPECT_FALSE(import_files({add("run.sh", "torchrun --nproc_per_node 2 loop.py --bf16")}).defaults.empty());
}

TEST_F(ForeignInput, AFileThatFsdpNamesIsReadInItsPlace) {
  add("fsdp.json", R"({"fsdp": "shard_grad_op auto_wrap", "fsdp_config": {"fsdp_version": 2}})");
  const Import import = import_files({add("run.sh", "swift sft --model m --fsdp fsdp.json")});
  const auto zero = std::ranges::find(import.values, "parallel.zero", &ImportedValue::path);
  EXPECT_EQ(to_json_text(zero->value), "\"shard_grad_op\"");
  const auto flag = std::ranges::find(import.keys, "--fsdp", [](const ImportedKey& key) { return key.leaf.key; });
  EXPECT_EQ(flag->note, "its file is read");
}

TEST_F(ForeignInput, MegatronOfSwiftHasFlagsOfBoth) {
  EXPECT_EQ(of_command("NPROC_PER_NODE=2 megatron sft --model m --micro_batch_size 4 --lr 1e-5 --optimizer adam --max_length 8"),
            "ms-swift --model=\"m\"\nMegatron-LM --micro_batch_size=\"4\"\nMegatron-LM --lr=\"1e-5\"\n"
            "Megatron-LM --optimizer=\"adam\"\nms-swift --max_length=\"8\"\nlauncher --nproc_per_node=\"2\"\n");
  EXPECT_TRUE(contains(of_command("megatron sft --loss_scale last_round"), "ms-swift --loss_scale=\"last_round\"\n"))
      << "a word for the targets that count";
  add("args.yaml", "model: m\nlr: 1e-5\nmasked_softmax_fusion: false\nENV:\n  A: b\n");
  EXPECT_TRUE(contains(of_command("megatron sft args.yaml"), "Megatron-LM lr=\"1e-5\"\nMegatron-LM masked_softmax_fusion=false\n"));
}

TEST_F(ForeignInput, AnArgumentOfTheScriptMayBeAWordThatATableNames) {
  const std::string file = add("run.sh", "python sft.py --model_name_or_path m --lr_scheduler_type $1 --optim ${OPTIM:-$2}");
  const auto key = [](const Import& import, std::string_view name) {
    return *std::ranges::find(import.keys, name, [](const ImportedKey& one) { return one.leaf.key; });
  };
  const Import import = import_files({file});
  EXPECT_EQ(key(import, "--lr_scheduler_type").note,
            "\"$1\" is an argument of the script (set -- ARGUMENTS above its first command gives it); left out: give it with --set "
            "lr_schedule.type=...");
  EXPECT_EQ(key(import, "--optim").note,
            "\"$2\" is an argument of the script (set -- ARGUMENTS above its first command gives it); left out: give it with --set "
            "optimizer.type=...");
  ImportRules rules;
  rules.settings = {"lr_schedule.type=cosine", "optimizer.type=lion"};
  const Import given = import_files({file}, rules);
  EXPECT_EQ(key(given, "--lr_scheduler_type").to, "lr_schedule.type = \"cosine\"");
}

TEST(ShellReader, ACommandKnowsTheFilesBeforeIt) {
  ShellFiles files;
  const std::string script = "cat > a <<E && run\n1\nE\nrm a\nrun\ncat > a <<E\n2\nE";
  const std::vector<ShellCommand> commands = read_shell(script, "x", {}, {}, &files);
  ASSERT_EQ(commands.size(), 5);
  ASSERT_EQ(files.size(), 3);
  EXPECT_EQ(commands[1].files, 1);
  EXPECT_EQ(files[0].text + files[0].unknown, "1\n");
  EXPECT_EQ(commands[3].files, 2);
  EXPECT_NE(files[1].unknown, "");
  EXPECT_EQ(files[2].text, "2\n");
}

}  // namespace
}  // namespace trident
