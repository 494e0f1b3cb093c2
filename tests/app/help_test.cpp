// trident help: every page fits a terminal, knows every subcommand, key and section, and what it names exists.
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "app/help_text.h"
#include "app/subcommands.h"
#include "core/file_io.h"
#include "model/config/model_presets.h"
#include "tests/support/error_text.h"
#include "train/config/option_docs.h"

namespace trident {
namespace {

struct Page {
  int exit_code;
  std::string out, err;
};

Page page(const Arguments& arguments) {
  std::ostringstream out, err;
  const int exit_code = run_command_line(arguments, {out, err});
  return {exit_code, out.str(), err.str()};
}

std::string help(const Arguments& arguments) {
  const Page shown = page(arguments);
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  return shown.out;
}

TEST(Help, EveryPageFitsATerminal) {
  std::vector<Arguments> pages{{"help"}, {"help", "parallel"}, {"help", "help"}};
  for (const Subcommand& command : subcommands()) {
    const std::string name(command.name);
    pages.push_back({name, "--help"});
    if (command.run == completion_command) continue;  // its actions take no flags
    for (const Subcommand::Action& action : command.actions) pages.push_back({name, std::string(action.name), "--help"});
  }
  for (const Arguments& arguments : pages) {
    std::istringstream lines(help(arguments));
    int count = 0;
    for (std::string line; std::getline(lines, line); ++count)
      EXPECT_LE(line.size(), kHelpWidth) << arguments.front() << ": " << line;
    EXPECT_GE(count, 1) << arguments.front();
  }
}

TEST(Help, OverviewNamesSubcommandsAndExitCodes) {
  const std::string overview = help({"help"});
  for (const Subcommand& command : subcommands())
    EXPECT_NE(overview.find("\n  " + std::string(command.name) + " "), std::string::npos) << command.name;
  for (const int code : {0, 64, 65, 70, 74, 75, 76, 93, 128})
    EXPECT_NE(overview.find("\n  " + std::to_string(code) + " "), std::string::npos) << code;
  EXPECT_EQ(help({"--help"}), overview);
  EXPECT_EQ(help({"help", "--help"}), overview);
}

TEST(Help, ThePageOfStoppingKnowsTheSameExitCodes) {
  const std::string page = read_file(TRIDENT_SOURCE_DIR "/docs/stopping.md");
  for (const ExitCodeText& text : exit_code_texts()) {
    const std::string row = text.code == 128 ? "| 128 + n |" : fmt::format("| {} |", text.code);
    EXPECT_NE(page.find("\n" + row), std::string::npos) << row;
  }
}

TEST(Help, TrainSaysHowRanksStart) {
  const std::string train = help({"train", "--help"}), all = help({"train", "--help-all"});
  for (const char* part : {"--config", "--set", "--print-config", "mpirun -np 32", "srun --mpi=pmix", "OMPI_COMM_WORLD_SIZE",
                           "SLURM_STEP_NUM_TASKS", "Exit codes:", "parallel.tensor = 1", "data.train, required"})
    EXPECT_NE(all.find(part), std::string::npos) << part;
  EXPECT_TRUE(help({"help", "train"}).starts_with(train));
  EXPECT_NE(train.find("  --print-config[=TEXT] "), std::string::npos) << train;
  EXPECT_NE(help({"convert", "--help"}).find("  --to KIND DIR REQUIRED "), std::string::npos);
  EXPECT_NE(help({"help", "train"}).find("train.only"), std::string::npos);
  EXPECT_EQ(help({"help", "data", "prepare"}), help({"data", "prepare", "--help"}));
}

TEST(Help, SearchSaysWhatItNeeds) {
  const std::string text = help({"plan", "--search", "--help"});
  for (const char* part :
       {"trident plan search [OPTIONS]", "NAME TEXT", "required, as NAME or", "--gpus INT ", "--best INT=10 "})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
}

TEST(Help, EvalAndGenerateSayHowTheirOwnRanksStart) {
  for (const std::string name : {"eval", "generate"}) {
    const std::string text = help({name, "--help-all"});
    for (const char* before : {"  ", "mpirun -np 32 ", "--ntasks-per-node=8 "})
      EXPECT_NE(text.find(before + ("trident " + name) + " --ckpt D"), std::string::npos) << before << text;
    EXPECT_EQ(text.find("trident train"), std::string::npos) << text;
  }
}

TEST(Help, ExitCodesAreThoseOfTheSubcommand) {
  for (const Arguments& page : {Arguments{"train", "--help-all"}, {"supervise", "--help"}}) {
    const std::string text = help(page);
    EXPECT_EQ(text.find("ckpt diff"), std::string::npos) << text;
    EXPECT_NE(text.find("out of memory"), std::string::npos) << text;
    EXPECT_EQ(text.find("sage: "), text.rfind("sage: ")) << text;
  }
  for (const char* name : {"eval", "generate"}) {  // neither saves and asks to be started again
    const std::string text = help({name, "--help-all"});
    EXPECT_NE(text.find("\n  76 "), std::string::npos) << text;
    for (const char* code : {"\n  1 ", "\n  75 ", "\n  93 "}) EXPECT_EQ(text.find(code), std::string::npos) << code << text;
  }
  EXPECT_NE(help({"help"}).find("ckpt diff"), std::string::npos);
}

TEST(Help, EvalAndGenerateSayTheirFlagsInGroups) {
  const std::vector<std::string> groups{"\nModel:\n", "\nInput:\n", "\nOutput:\n", "\nMachine:\n"};
  expect_parts(help({"eval", "--help"}), groups);
  const std::string generate = help({"generate", "--help"});
  expect_parts(generate, groups);
  expect_parts(generate, {"\nSampling (a model's generation_config.json goes before these defaults):\n",
                          "\nDraws:\n  --seed ", "\nLength:\n"});
  EXPECT_EQ(generate.find("Exit codes:"), generate.npos) << "those are for --help-all";
}

TEST(Help, TrainSaysOnAScreenWhatMostPeopleNeed) {
  const std::string text = help({"train", "--help"});
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40) << text;
  for (const char* part :
       {"--help-all", "run.steps ", "parallel.zero = \"zero1\"", "batch.micro = ", "mpirun -np 4 --oversubscribe trident train"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  for (const char* part : {"Exit codes", "parallel.bucket_mb"}) EXPECT_EQ(text.find(part), std::string::npos) << part;
}

TEST(Help, KeysAndSections) {
  EXPECT_EQ(help({"help", "parallel.zero"}), option_help("parallel.zero"));
  EXPECT_EQ(help({"help", "lr_schedule"}), option_help("lr_schedule"));
  for (const char* both : {"eval", "data"}) {  // subcommands and sections
    const std::string text = help({"help", both});
    EXPECT_NE(text.find(std::string("trident ") + both), std::string::npos) << text;
    EXPECT_TRUE(text.ends_with("\nKeys of the configuration:\n" + option_help(both))) << text;
  }
  EXPECT_EQ(help({"help", "data", "prepare"}).find("Keys of the configuration:"), std::string::npos);
  EXPECT_EQ(help({"help", "model.hidden_size"}),
            "model.hidden_size: a key of Hugging Face's config.json, of a spelled-out model\n"
            "  takes      an integer\n  default    must be given (llama, qwen2, qwen3, mistral, olmo, olmo2, phi3)\n");
  EXPECT_NE(help({"help", "model.model_type"}).find("one of gpt2, llama, qwen2, "), std::string::npos);
  EXPECT_NE(help({"help", "model.vocab_size"}).find("50257 (gpt2); 32000 (llama, mistral); 151936 ("), std::string::npos);
  EXPECT_NE(help({"help", "model.num_key_value_heads"}).find("num_attention_heads (llama, "), std::string::npos);
  EXPECT_TRUE(help({"help", "exit"}).starts_with("Exit codes:\n"));
}

TEST(Help, UnknownNamesGetAHint) {
  const auto refusal = [](const Arguments& arguments) {
    const Page shown = page(arguments);
    EXPECT_EQ(shown.exit_code, 64);
    EXPECT_EQ(shown.out, "");
    return shown.err;
  };
  EXPECT_NE(refusal({"help", "parallel.zeor"}).find("did you mean parallel.zero?"), std::string::npos);
  EXPECT_NE(refusal({"help", "trian"}).find("did you mean train?"), std::string::npos);
  EXPECT_NE(refusal({"help", "seq_length"}).find("did you mean batch.sequence?"), std::string::npos);
  EXPECT_NE(refusal({"help", "xyzzyxyzzy"}).find("see trident help"), std::string::npos);
  EXPECT_NE(refusal({"help", "parallel", "zero"}).find("unknown argument \"zero\""), std::string::npos);
  EXPECT_NE(refusal({"help", "mlp"}).find("see trident help"), std::string::npos) << "not far from help";
  EXPECT_NE(refusal({"help", "--tensor-model-parallel-size"}).find("; did you mean parallel.tensor?"), std::string::npos);
  EXPECT_EQ(page_about("wandb"), "logs");
  EXPECT_NE(refusal({"help", "signals"}).find("; trident docs stopping is about it"), std::string::npos);
  EXPECT_NE(refusal({"help", "trl"}).find("; trident import FILE reads its files"), std::string::npos);
  EXPECT_NE(refusal({"help", "moe-grouped-gemm"}).find("dense models only"), std::string::npos);
}

TEST(Help, PresetsAreListed) {
  const std::string text = help({"help", "model.preset"});
  EXPECT_NE(text.find("--set model.preset=NAME"), std::string::npos) << text;
  for (const std::string_view preset : model_preset_names()) EXPECT_NE(text.find(preset), std::string::npos) << preset;
}

TEST(Help, LinesAreAsLongAsTheTerminal) {
  for (const std::size_t columns : {60, 100, 200}) {
    std::ostringstream out, err;
    const CommandContext context{.out = out, .err = err, .columns = columns};
    ASSERT_EQ(run_command_line({"help", "parallel"}, context), 0) << err.str();
    std::istringstream lines(out.str());
    std::size_t longest = 0;
    for (std::string line; std::getline(lines, line);) longest = std::max(longest, line.size());
    EXPECT_LE(longest, columns);
    EXPECT_GT(longest, columns - 20);
  }
}

TEST(Help, LongLinesContinueBelowTheDescription) {
  const std::string line = "  --flag TEXT     " + std::string(60, 'a') + " bbb";
  EXPECT_EQ(folded(line + "\n\n\n"), "  --flag TEXT     " + std::string(60, 'a') + "\n                  bbb\n");
  EXPECT_EQ(folded("short\n"), "short\n");
}

}  // namespace
}  // namespace trident
