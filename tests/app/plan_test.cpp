// Tests that `trident train` takes and sends what `trident plan` says.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <tuple>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/file_io.h"
#include "tests/app/json_answer.h"
#include "tests/app/program.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

std::int64_t integer(const JsonValue& object, const std::string& key) { return object.find(key)->as_integer(); }

class Plan : public ::testing::TestWithParam<std::vector<std::string>> {
 protected:
  Workplace place_;
};

TEST_P(Plan, IsWhatTrainingTakesAndSends) {
  std::vector<std::string> words{"plan", "--config", place_ / "config.json", "--json"}, settings = GetParam();
  for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
  const ProgramOutcome planned = succeeded(run_program(words));
  EXPECT_EQ(planned.err, "");
  const JsonValue plan = parsed(planned.out);
  EXPECT_EQ(plan.find("workspaces")->as_string(), "exact");

  settings.insert(settings.end(), {"run.steps=2", "log.every=1"});
  succeeded(place_.train(settings));
  const JsonValue memory = parsed(read_file(place_ / "run/memory.json"));
  const JsonValue::Array& ranks = memory.find("ranks")->items();
  EXPECT_EQ(static_cast<std::int64_t>(ranks.size()), integer(plan, "ranks"));
  for (const JsonValue& rank : ranks) {
    const JsonValue& stage = plan.find("stages")->items().at(static_cast<std::size_t>(integer(rank, "pp")));
    EXPECT_EQ(integer(rank, "bytes"), integer(stage, "bytes")) << "rank " << integer(rank, "rank");
    EXPECT_EQ(to_json_text(*rank.find("by_use")), to_json_text(*stage.find("by_use"))) << "rank " << integer(rank, "rank");
    if (const JsonValue* allocations = rank.find("allocations")) {
      EXPECT_EQ(to_json_text(*allocations), to_json_text(*stage.find("allocations")));
    }
  }
  const std::vector<JsonValue> metrics = place_.metrics();
  for (const std::string axis : {"tp", "cp", "dp", "pp"})
    EXPECT_EQ(metrics.at(1).find("comm_bytes")->find(axis)->as_number(), plan.find("step_comm_bytes")->find(axis)->as_number())
        << axis;
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, Plan,
    ::testing::Values(std::vector<std::string>{"parallel=1DP"},
                    std::vector<std::string>{"parallel=2DP x 2PP x 2TP", "parallel.zero=zero3", "parallel.sequence_parallel=true"},
                    std::vector<std::string>{"parallel=3DP x 1PP x 2TP", "parallel.zero=shard_grad_op", "batch.global=12",
                                             "precision.compute=fp32", "recompute.policy=full"}),
    [](const auto& info) {
      return std::string(info.index == 0 ? "OneRank" : info.index == 1 ? "EightRanks" : "SixRanks");
    });

// The machine needs neither the ranks nor the memory: 1,024 ranks of 20 to 26 GB.
TEST(PlanOfALargeJob, NeedsNoLargeMachine) {
  const ProgramOutcome planned = succeeded(run_program(
      {"plan", "--config", TRIDENT_SOURCE_DIR "/configs/gpt3_175b_tp8_pp8.json", "--set", "batch.global=8192", "--json"}));
  const JsonValue plan = parsed(planned.out);
  EXPECT_EQ(plan.find("stages")->items().size(), 8u);
  EXPECT_EQ(integer(plan, "micro_batches"), 512);
  for (const JsonValue& stage : plan.find("stages")->items()) EXPECT_GT(integer(stage, "bytes"), std::int64_t{15} << 30);
}

// Bytes that `trident plan` of the 175B model has resident at most, with this global batch.
std::int64_t resident_bytes_of_plan(int batch) {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {  // whose children are this one alone
    const ProgramOutcome planned = run_program({"plan", "--config", TRIDENT_SOURCE_DIR "/configs/gpt3_175b_tp8_pp8.json", "--set",
                                                fmt::format("batch.global={}", batch)});
    rusage usage{};
    getrusage(RUSAGE_CHILDREN, &usage);
    const std::int64_t bytes = planned.exit_code == 0 ? std::int64_t{usage.ru_maxrss} * 1024 : -1;
    _exit(write(ends[1], &bytes, sizeof(bytes)) == sizeof(bytes) ? 0 : 1);
  }
  std::int64_t bytes = -1;
  EXPECT_EQ(read(ends[0], &bytes, sizeof(bytes)), static_cast<ssize_t>(sizeof(bytes)));
  waitpid(child, nullptr, 0);
  close(ends[0]), close(ends[1]);
  return bytes;
}

// A step's record has each pass once: 512 micro-batches need little more than 16, which is what eight programs of instructions and
// their simulated times take.
TEST(PlanOfALargeJob, NeedsLittleMemory) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers keep memory of their own";
#endif
  const std::int64_t few = resident_bytes_of_plan(256), many = resident_bytes_of_plan(8192);
  ASSERT_GT(few, 0);
  ASSERT_GT(many, 0);
  EXPECT_LE(many, 200'000'000);
  EXPECT_LE(many - few, 20'000'000);
}

// A hundred million positions, a chunk for each of eight million rows: what is only planned is not made.
TEST(PlanOfALargeJob, TakesNoLongerThanItsInstructions) {
  const Workplace place;
  const auto plan = [&](const std::vector<std::string>& settings) {
    std::vector<std::string> words{"plan", "--config", place / "config.json"};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    return run_program(words);
  };
  succeeded(plan({"model.max_position_embeddings=100000000", "batch.sequence=100000000", "batch.micro=1", "batch.global=1"}));
  expect_one_line(place.train({"recompute.head_chunk=1", "batch.micro=262144", "batch.global=262144"}), 64,
                  {"batch.micro = 262144: the arena of rank 0 needs"});
  expect_one_line(plan({"model.vocab_size=2147483647", "model.max_position_embeddings=1000000", "batch.sequence=1000000",
                        "batch.micro=2147", "batch.global=2147"}),
                  64, {"batch.micro = 2147, batch.sequence = 1000000", "more than can be counted"});
}

TEST(PlanOfALargeJob, IsReadAsATable) {
  const ProgramOutcome planned = succeeded(
      run_program({"plan", "--config", TRIDENT_SOURCE_DIR "/configs/demo_2dp_4pp_4tp.json", "--set", "precision.compute=bf16"}));
  for (const char* part :
       {"layout: 2DP x 4PP x 4TP = 32 ranks, zero1, 1f1b, sequence parallel, 4 micro-batches of 2 x 256 tokens",
        "\nstage parameters gradients optimizer activations workspace communication  all\n"
        "    0        5.5      10.9      16.4         6.4       2.1           5.1 46.4\n",
        "\nMB of one rank's tensors (trident plan cluster adds what a GPU holds besides):\n",
        "\nstage 1 (first rank 8): blocks 2-3\n", "\nstage 3 is the fullest; --json has every tensor by name\n",
        "\nsent in a step by all ranks: tp 401.510 MB, ",
        "\nby a rank, on average: tp 12.547 MB, "})
    EXPECT_NE(planned.out.find(part), std::string::npos) << part << " in\n" << planned.out;
}

// Replicas that nobody counted are one, which is said with the flag that counts them; gigabytes are told as such.
TEST(PlanOfALargeJob, SaysThatAutoIsOneReplica) {
  const auto plan = [](const std::vector<std::string>& command) {
    return succeeded(run_program(plus(command, {"--config", TRIDENT_SOURCE_DIR "/configs/gpt3_175b_tp8_pp8.json", "--set",
                                                "parallel.data=auto"}))).out;
  };
  const std::string said = "\nparallel.data is auto and is planned as 1, with 64 ";
  expect_parts(plan({"plan"}), {said + "ranks; --ranks N plans it for N ranks\n", "\nGB of one rank's tensors ("});
  expect_parts(plan({"plan", "cluster", "h100_sxm_ndr"}), {said + "GPUs; --gpus N plans it for N\n"});
  EXPECT_EQ(plan({"plan", "--ranks", "128"}).find(said), std::string::npos);
  EXPECT_EQ(plan({"plan", "cluster", "h100_sxm_ndr", "--gpus", "128"}).find(said), std::string::npos);
}

// How many steps an epoch is, nobody knows; what a step takes does not go by it.
TEST(PlanOfALargeJob, NeedsNoDataToGoByEpochs) {
  const Workplace place;
  const auto plan = [&](std::vector<std::string> words) {
    words.insert(words.end(), {"--config", place / "config.json", "--set", "data.train=" + (place / "nowhere")});
    return succeeded(run_program(words)).out;
  };
  const std::vector<std::string> epochs{"--set", "run.steps=null", "--set", "run.epochs=1.5"};
  for (const std::vector<std::string>& command : {std::vector<std::string>{"plan"}, {"plan", "cluster", "a10_pcie"}}) {
    const std::vector<std::string> words = plus(command, epochs);
    std::string text = plan(words);
    const std::string note = "how many steps the run has is not known: run.steps says it, or run.epochs of data that can be read\n";
    expect_parts(text, {note});
    EXPECT_EQ(text.find(" tokens take "), std::string::npos) << text;
    text.erase(std::min(text.find(note), text.size()), note.size());
    if (command.size() == 1) {
      EXPECT_EQ(text, plan({"plan", "--set", "run.steps=7"}));
    }
  }
}

TEST(Plan, SaysThatAWarmUpDoesNotEnd) {
  const Workplace place;
  const auto plan = [&](const std::string& steps) {
    return succeeded(run_program({"plan", "--config", place / "config.json", "--set", "run.steps=10", "--set",
                                  "lr_schedule.warmup_steps=" + steps})).out;
  };
  expect_parts(plan("11"), {"lr_schedule.warmup_steps = 11: beyond run.steps = 10, so that the learning rate does not get to"});
  EXPECT_EQ(plan("10").find("warmup_steps"), std::string::npos);
}

TEST(PlanOfALargeJob, HasLargeUnitsAndNothingOfThisMachine) {
  const ProgramOutcome planned = succeeded(run_program({"plan", "--config", TRIDENT_SOURCE_DIR "/configs/gpt3_175b_tp8_pp8.json"}));
  for (const char* part : {" of 174.6B parameters, ",
                           "all ranks: tp 522.227 TB, dp 15.792 TB, pp 1.087 TB\n",
                           "average: tp 509.988 GB, "})
    EXPECT_NE(planned.out.find(part), std::string::npos) << part << " in\n" << planned.out;
  EXPECT_EQ(planned.out.find("of this node"), std::string::npos) << planned.out;
}

// A window is priced by what is seen, and left out where the configuration says so, beside a preset, too.
TEST(PlanOfALargeJob, AWindowCostsLessAndIsLeftOutOnRequest) {
  const auto seconds = [](const std::string& window) {
    const ProgramOutcome priced = succeeded(run_program(
        {"plan", "cluster", "h100_sxm_ndr", "--gpus", "8", "--config", TRIDENT_SOURCE_DIR "/configs/laptop.json", "--set",
         "model.preset=phi3-mini", "--set", "device=cuda", "--set", "batch.sequence=4096", "--set", "batch.micro=1", "--set",
         "batch.global=8", "--set", "model.sliding_window=" + window, "--json"}));
    return parsed(priced.out).find("cluster")->find("step")->find("seconds")->as_number();
  };
  const double whole = seconds("null");
  EXPECT_EQ(seconds("4096"), whole);
  EXPECT_LT(seconds("2047"), whole);
  EXPECT_LT(seconds("256"), seconds("2047"));
}

// A GPU that is not here: the most that its workspaces take is booked, and said to be that.
TEST(PlanOfALargeJob, SaysWhatItDoesNotKnowOfGpus) {
  const std::vector<std::string> words{"plan", "--config", TRIDENT_SOURCE_DIR "/configs/demo_2dp_4pp_4tp.json", "--set",
                                       "device=cuda"};
  const ProgramOutcome planned = succeeded(run_program(words));
  expect_parts(planned.out, {"workspaces of products and attention: the most that a GPU's take"});
  const ProgramOutcome json = succeeded(run_program({words[0], words[1], words[2], words[3], words[4], "--json"}));
  const JsonValue plan = parsed(json.out);
  EXPECT_EQ(plan.find("workspaces")->as_string(), "bound");
  std::int64_t workspaces = 0;
  for (const JsonValue& entry : plan.find("stages")->items()[1].find("allocations")->items())
    if (entry.find("use")->as_string() == "workspace") workspaces += entry.find("bytes")->as_integer();
  EXPECT_GE(workspaces, 32 << 20) << "that of products";
  EXPECT_NE(json.out.find("keys of block "), std::string::npos) << "the configuration asks for samples";
}

// The text between `begin` and the next "```" of a page.
std::string block_of(const std::string& page, const std::string& begin) {
  const std::size_t at = page.find(begin);
  EXPECT_NE(at, std::string::npos) << begin;
  if (at == std::string::npos) return "";
  const std::size_t first = at + begin.size();
  return page.substr(first, page.find("```", first) - first);
}

TEST(PlanProgram, IsTheOneWorkedOutInTheDocuments) {
  const std::string page = read_file(TRIDENT_SOURCE_DIR "/docs/design/architecture.md");
  const std::string worked = page.substr(std::min(page.find("## A step, worked out"), page.size()));
  const TemporaryFolder folder;
  write_file(folder / "worked.json", block_of(worked, "```json\n"));
  const std::vector<std::string> words{"plan", "--config", folder / "worked.json", "--set", "precision.compute=bf16", "--program"};
  const ProgramOutcome text = succeeded(run_program(words));
  const std::string program = block_of(worked, "```text\n");
  EXPECT_EQ(text.out.substr(std::min(text.out.find("\nrank 0: "), text.out.size() - 1) + 1), program);
  const ProgramOutcome json = succeeded(run_program({words[0], words[1], words[2], words[3], words[4], words[5], "--json"}));
  const JsonValue plan = parsed(json.out);
  for (const JsonValue& stage : plan.find("stages")->items()) {
    std::string line = fmt::format("rank {}:", integer(stage, "stage"));
    EXPECT_EQ(stage.find("program")->items().size(), stage.find("pass_of")->items().size());
    const auto passes = static_cast<std::int64_t>(stage.find("passes")->items().size());
    for (const JsonValue& pass : stage.find("pass_of")->items()) EXPECT_LT(pass.as_integer(), passes);
    for (const JsonValue& instruction : stage.find("program")->items()) line += ' ' + instruction.as_string();
    std::string wrapped = program.substr(program.find(line.substr(0, 7)), line.size() + 1000);
    for (std::size_t at = 0; (at = wrapped.find("\n        ", at)) != std::string::npos;) wrapped.replace(at, 9, " ");
    EXPECT_EQ(wrapped.substr(0, line.size()), line);
  }
}

// A pipeline whose ranks wait for one long stage, or for lack of micro-batches, says so before it is trained; others say nothing.
TEST(PlanOfALargeJob, SaysForWhatAPipelineWaits) {
  for (const auto& [config, micro, said] : std::vector<std::tuple<std::string, std::string, std::string>>{
           {"demo_2dp_4pp_4tp", "2", " times as long as stages do on average, and ranks wait 67 % of a step, by FLOPs alone; "},
           {"demo_2dp_4pp_4tp", "8", "pipeline: ranks wait 75 % of a step, by FLOPs alone, with 1 micro-batch on 4 stages; "},
           {"learn_1f1b", "1", ""},
           {"laptop", "2", ""}}) {
    const std::string file = fmt::format("{}/configs/{}.json", TRIDENT_SOURCE_DIR, config);
    const std::string out = succeeded(run_program({"plan", "--config", file, "--set", "batch.micro=" + micro})).out;
    if (said.empty())
      EXPECT_EQ(out.find("\npipeline: "), out.npos) << out;
    else
      expect_parts(out, {"\npipeline: ", said, "ask trident plan search\n"});
  }
}

TEST(PlanOfALargeJob, RefusesWhatTrainingRefuses) {
  const std::string config = TRIDENT_SOURCE_DIR "/configs/demo_2dp_4pp_4tp.json";
  expect_one_line(run_program({"plan", "--config", config, "--set", "parallel=2DP x 3PP x 3TP"}), 64, {"tensor = 3"});
  expect_one_line(run_program({"plan", "--config", config, "--ranks", "33"}), 64, {"33"});
  expect_one_line(run_program({"plan", "--config", config, "--ranks", "-1"}), 64, {"--ranks = -1: must be from 1 to"});
  expect_one_line(run_program({"plan"}), 64, {"nothing says which model; give --config FILE"});
}

class PlanOfCases : public ::testing::Test {
 protected:
  std::string file(const std::string& text) const {
    write_file(folder_ / "rows.json", text);
    return folder_ / "rows.json";
  }
  static ProgramOutcome cases(std::vector<std::string> words) {
    words.insert(words.begin(), TRIDENT_CASES);
    return run_command(words);
  }
  TemporaryFolder folder_;
};

TEST_F(PlanOfCases, AreAnsweredRowByRow) {
  const std::string rows = file(
      R"([{"id": "late", "kind": "in-flight-microbatches", "config": {"schedule": "1f1b", "pp": 3, "micro_batches": 2}},
          {"id": "early", "model": {}, "parallel": {}},
          {"id": "x\u001b", "kind": "logits"}])");
  const ProgramOutcome json = succeeded(cases({rows, "--json"}));
  EXPECT_EQ(json.out, R"({"id":"late","per_stage":[2,2,1],"assumed":{}}
{"id":"early","unsupported":"model.layers is missing: must be a whole number from 1 to 100000000"}
{"id":"x\u001b","unsupported":"kind = \"logits\": no such kind of case is known"}
)");
  const ProgramOutcome text = succeeded(cases({rows}));
  EXPECT_EQ(text.out.substr(0, text.out.find('\n', 40)),
            "late: per_stage [2,2,1], assumed {}\n"
            "early: unsupported model.layers is missing: must be a whole number from 1 to 100000000");
  EXPECT_EQ(text.out.find('\x1b'), std::string::npos);
}

// The formulas against dry ranks: what four more layers, or twice as long sequences, add to a step's bytes over all ranks.
TEST_F(PlanOfCases, TrafficIsWhatDryRanksSend) {
  const Workplace place;
  const auto sent = [&](const std::string& axis, std::vector<std::string> settings) {
    std::vector<std::string> words{"plan", "--config", place / "config.json", "--json"};
    // Widths that two ranks share without padding.
    settings.insert(settings.begin(), {"model.hidden_size=64", "model.intermediate_size=128"});
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    const ProgramOutcome planned = succeeded(run_program(words));
    const JsonValue plan = parsed(planned.out);
    return std::pair(plan.find("step_comm_bytes")->find(axis)->as_number(), integer(plan, "parameters"));
  };
  const auto answer = [&](const std::string& input, const std::string& quantity) {
    const ProgramOutcome answered =
        succeeded(cases({"--json", file(R"([{"id": "x", "kind": "comm-volume", "input": )" + input + "}]")}));
    return parsed(answered.out).find(quantity)->as_number();
  };
  const std::string deeper = "model.num_hidden_layers=8";

  const double tensor = sent("tp", {"parallel=1DP x 1PP x 2TP", deeper}).first - sent("tp", {"parallel=1DP x 1PP x 2TP"}).first;
  const std::string letters = R"("layers": 4, "hidden": 64, "micro_batch": 1, "micro_batches": 8, "bytes_per_element": 4, )";
  EXPECT_EQ(tensor, 2 * answer("{" + letters + R"("seq": 32, "tp": 2, "pp": 1})", "bytes_per_iteration_per_rank"));

  // Every boundary carries as much forward as backward.
  const double pipeline =
      sent("pp", {"parallel=1DP x 4PP x 1TP", "batch.sequence=64"}).first - sent("pp", {"parallel=1DP x 4PP x 1TP"}).first;
  const std::string stages = "{" + letters + R"("seq": 32, "tp": 1, "pp": 4})";
  EXPECT_EQ(pipeline, 2 * 3 * answer(stages, "bytes_sent_forward_per_iteration_middle_rank"));

  for (const std::string zero : {"ddp", "zero3"}) {
    const std::vector<std::string> shallow{"parallel=2DP x 1PP x 1TP", "parallel.zero=" + zero};
    std::vector<std::string> deep = shallow;
    deep.push_back(deeper);
    const auto [bytes, params] = sent("dp", shallow);
    const auto [more_bytes, more_params] = sent("dp", deep);
    const std::string input = fmt::format(R"({{"params_on_rank": {}, "dp": 2}})", more_params - params);
    // fp32, and four micro-batches on each of two ranks.
    const double expected = zero == "ddp" ? answer(input, "allreduce_fp32_bytes_sent")
                                          : 2 * 4 * answer(input, "zero3_bf16_bytes_sent_per_extra_microbatch");
    EXPECT_EQ(more_bytes - bytes, 2 * expected) << zero;
  }
}

TEST_F(PlanOfCases, RefusesWhatIsNoTable) {
  const std::string rows = file("[]");
  EXPECT_EQ(cases({rows, "--json"}).exit_code, 0);
  const auto refuses = [&](const std::vector<std::string>& arguments, int code, const std::string& part) {
    const ProgramOutcome outcome = cases(arguments);
    EXPECT_EQ(outcome.exit_code, code) << outcome.err;
    expect_parts(outcome.err, {part});
  };
  refuses({rows, "--book", folder_ / "none"}, 64, "none/hardware: ");
  refuses({rows, "--book", folder_ / "."}, 64, "hardware: ");
  refuses({}, 64, "ROWS");
  refuses({rows, "--ranks", "4"}, 64, "--ranks");
  refuses({folder_ / "none.json"}, 65, "none.json");
  refuses({file("[{]")}, 65, "rows.json:1:");
  refuses({file("{\"king\": \"x\"}")}, 65, "this is an object, no rows");
  const ProgramOutcome nameless = succeeded(cases({file("[{\"kind\": \"x\"}]")}));
  EXPECT_TRUE(nameless.out.starts_with("without a name: unsupported ")) << nameless.out;
  expect_one_line(run_program({"plan", "--cases", rows}), 64, {"--cases: ", "run trident_cases " + rows});
}

}  // namespace
}  // namespace trident
