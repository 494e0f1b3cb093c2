// The page of runs: what their folders hold is read within bounds, their state is named, and foreign text stays text.
#include "report/run_page.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <sstream>
#include <string>
#include <tuple>

#include "core/file_io.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

class RunPages : public ::testing::Test {
 protected:
  RunPages() : root_(::testing::TempDir() + "/run_pages_" + ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(root_);
  }
  ~RunPages() override { std::filesystem::remove_all(root_); }

  // A run of so many logged steps, with one evaluation.
  std::string make_run(const std::string& name, int steps, const std::string& lr = "0.1") {
    const std::string folder = root_ + "/" + name;
    create_folder(folder);
    write_file(folder + "/config.resolved.json",
               R"({"run": {"steps": 1500}, "optimizer": {"lr": )" + lr + R"(, "type": "adamw"}})");
    std::string lines;
    for (int step = 1; step <= steps; ++step)
      lines +=
          fmt::format("{{\"step\": {}, \"loss\": {}, \"grad_norm\": null, \"lr\": 0.1, \"tokens\": {}, \"tokens_per_s\": 7}}\n",
                      step, 10.0 / step, 256 * step);
    write_file(folder + "/metrics.jsonl", lines);
    write_file(folder + "/eval.jsonl", "{\"step\": 1, \"valid_loss\": 2.5}\n");
    return folder;
  }
  static void write_run(const std::string& folder, const std::string& ended) {
    write_file(folder + "/run.json", R"({"starts": [{"time": 1000, "step": 0, "ranks": 2, "hosts": ["a"], "version": "0",
        "layout": {"ranks": 2, "tp": 1, "pp": 2, "dp": 1, "virtual_stages": 2, "zero": "zero1"}, "command": ["trident"])" +
                                         ended + "}]}");
  }
  static const ReportSection& section_of(const ReportPage& page, std::string_view title) {
    const auto found = std::ranges::find(page.sections, title, &ReportSection::title);
    if (found == page.sections.end()) throw InternalError("no section of this title");
    return *found;
  }
  static const LinePlot& loss_of(const ReportPage& page) {
    return std::get<LinePlot>(section_of(page, "Curves").blocks.front());
  }

  std::string root_;
};

TEST_F(RunPages, ShowEveryLineOfAShortLogAndFewOfALongOne) {
  const std::string brief = make_run("brief", 10), endless = make_run("endless", 60'000);
  const ReportPage page = run_page({read_run_folder(brief)});
  ASSERT_EQ(loss_of(page).lines.size(), 2u);
  EXPECT_EQ(loss_of(page).lines[0].points.size(), 10u);
  EXPECT_EQ(loss_of(page).lines[0].other_x.back(), 2560);
  EXPECT_EQ(loss_of(page).lines[1].other_x.front(), 256) << "an evaluation lies at the tokens of its step";

  ASSERT_GT(std::filesystem::file_size(endless + "/metrics.jsonl"), 4u << 20);
  const RunFolder folder = read_run_folder(endless);
  EXPECT_LE(folder.metrics.size(), 2001u);
  EXPECT_GT(folder.metrics.size(), 1900u);
  EXPECT_EQ(folder.metrics.front().find("step")->as_integer(), 1);
  EXPECT_EQ(folder.metrics.back().find("step")->as_integer(), 60'000);
  for (std::size_t i = 1; i < folder.metrics.size(); ++i)
    ASSERT_GT(folder.metrics[i].find("step")->as_integer(), folder.metrics[i - 1].find("step")->as_integer());
  ASSERT_EQ(folder.remarks.size(), 1u);
  EXPECT_NE(folder.remarks[0].find("metrics.jsonl"), std::string::npos) << folder.remarks[0];
  EXPECT_LE(to_html(run_page({folder})).size(), 4u << 20);
}

TEST_F(RunPages, NameTheStateOfARun) {
  const std::string folder = make_run("run", 7);
  const auto state = [&] { return state_text(read_run_folder(folder)); };
  EXPECT_EQ(state(), "nobody writes it: step 7 of 1,500") << "an older run left no run.json";
  write_run(folder, "");
  EXPECT_EQ(state(), "killed or cut off: step 7 of 1,500");
  {
    const AppendFile writer(folder + "/metrics.jsonl", AppendFile::Start::kAppend);
    EXPECT_EQ(state(), "going on: step 7 of 1,500");
    const bool root = ::geteuid() == 0;
    std::filesystem::permissions(folder + "/metrics.jsonl", std::filesystem::perms(0444));
    if (root) {
      ASSERT_EQ(::seteuid(65534), 0);
    }
    EXPECT_EQ(state(), "going on: step 7 of 1,500") << "to whoever may only read";
    if (root) {
      ASSERT_EQ(::seteuid(0), 0);
    }
  }
  write_file(folder + "/failure.json", R"({"unix_time": 999, "message": "an older start"})");
  EXPECT_EQ(state(), "killed or cut off: step 7 of 1,500") << "the failure is of an earlier start";
  write_file(folder + "/failure.json", R"({"unix_time": 1001, "message": "rank 3 was killed"})");
  EXPECT_EQ(state(), "failed: rank 3 was killed");
  write_run(folder, R"(, "ended": {"time": 1002, "step": 9, "exit_code": 75, "why": "stopped by SIGTERM"})");
  EXPECT_EQ(state(), "stopped by SIGTERM: step 9 of 1,500") << "the log may end before";
  write_run(folder, R"(, "ended": {"time": 1002, "step": 7, "exit_code": 0, "why": "the run is over"})");
  EXPECT_EQ(state(), "over: step 7 of 1,500");
  EXPECT_NE(to_html(run_page({read_run_folder(folder)})).find("1DP x 2PP x 1TP zero1, 2 virtual stages"), std::string::npos);
  write_file(folder + "/failure.json", R"({"unix_time": 1003, "message": "the disk failed"})");
  EXPECT_EQ(state(), "failed: the disk failed") << "after the end was written";
  const std::string page = to_html(run_page({read_run_folder(folder)}));
  EXPECT_EQ(page.find("killed or cut off"), std::string::npos);
  EXPECT_NE(to_html(run_page({read_run_folder(folder)})).find("Last start: 1970-01-01 00:16:40 UTC: trident"), std::string::npos);
  write_file(folder + "/run.json", R"({"starts": [{"time": 900, "step": 0}, {"ended": {"exit_code": 130}},
    {"time": 1000, "step": 3, "ended":
    {"time": 1002, "step": 7, "exit_code": 0, "why": "the run is over"}}]})");
  const ReportPage restarted = run_page({read_run_folder(folder)});
  EXPECT_NE(to_html(restarted).find("Earlier starts with a bad end: 1 (see Starts)"), std::string::npos);
  EXPECT_EQ(page.find("bad end"), std::string::npos) << "the last start's end is the state";
  const PlotLine& starts = loss_of(restarted).lines.back();
  ASSERT_EQ(starts.points.size(), 2u) << "a gap, then a dot";
  EXPECT_EQ(starts.points.back().x, 4) << "the first step that was logged after step 3";
  EXPECT_EQ(starts.points.back().y, 2.5);
  write_file(folder + "/plan.json", R"({"parameters": 118600, "world_size": 4, "zero": "zero1", "compute": "fp32"})");
  write_file(folder + "/run.json", R"({"starts": [{"ranks": 2}, {"ranks": 1}, {"ranks": 2}, {"ranks": 4}]})");
  EXPECT_EQ(run_page({read_run_folder(folder)}).subtitle,
            "118.6K parameters on 4 ranks, zero1, fp32; earlier starts had 1 rank, 2 ranks");
}

TEST_F(RunPages, NumbersOfStartsStandInTheLastColumn) {
  const std::string folder = make_run("run", 1);
  write_file(folder + "/metrics.jsonl",
             "{\"step\": 1, \"time\": 901, \"elapsed_s\": 1}\n{\"step\": 2, \"time\": 1000, \"elapsed_s\": 0}\n");
  write_file(folder + "/run.json", R"({"starts": [{"time": 900}, {"time": 1000}]})");
  std::filesystem::remove(folder + "/eval.jsonl");
  std::ostringstream out;
  write_metrics_csv({folder}, out);
  EXPECT_TRUE(out.str().starts_with("run,step,time,elapsed_s,start")) << out.str();
  EXPECT_NE(out.str().find("run,1,901,1,1"), std::string::npos) << out.str();
  EXPECT_NE(out.str().find("run,2,1000,0,2"), std::string::npos) << out.str();
  std::string lines;  // the second start is longer by its first line than the first one was
  for (const auto& [step, time, elapsed] : {std::tuple(1, 910, 10), {2, 912, 12}, {3, 1013, 13}, {4, 1020, 20}})
    lines += fmt::format("{{\"step\": {}, \"time\": {}, \"elapsed_s\": {}}}\n", step, time, elapsed);
  write_file(folder + "/metrics.jsonl", lines);
  EXPECT_EQ(runs_table({read_run_folder(folder)}).rows[0][3], "32.00 s");
  EXPECT_NE(error_of<DataError>([&] { read_run_folder(folder + "/none"); }).find("none: no such folder"), std::string::npos);
}

TEST_F(RunPages, DrawRunsOverEachOtherAndShowWhatDiffersFirst) {
  const std::string two = make_run("two", 9, "0.2");
  JsonValue config = read_json_file(two + "/config.resolved.json");
  config.set("resolved", JsonValue::Object{{"run_id", "0123"}, {"decay_length", 400}});  // nobody sets the first
  write_file(two + "/config.resolved.json", to_json_text(config));
  write_file(two + "/comparison.json", R"({"not_judged": "the first step met its memory"})");
  const std::string one = make_run("one", 5);
  std::string lines;
  for (const auto& [step, elapsed] : {std::pair(1, 4), {2, 7}, {3, 1}, {5, 5}})
    lines += fmt::format("{{\"step\": {}, \"loss\": 2, \"tokens\": {}, \"tokens_per_s\": 7, \"elapsed_s\": {}}}\n", step,
                         256 * step, elapsed);
  write_file(one + "/metrics.jsonl", lines);
  write_file(one + "/eval.jsonl", R"({"step": 0, "valid_loss": 4}
{"step": 2, "valid_loss": null}
{"step": 3, "valid_loss": 2.25, "valid_perplexity": 9.487, "valid_bits_per_byte": 3.1}
{"step": 5, "valid_loss": 2.5}
)");
  std::string starts;
  for (const int ranks : {1, 1, 2})
    starts += fmt::format(R"({}{{"time": 1, "layout": {{"tp": 1, "pp": 1, "dp": {}, "virtual_stages": 1, "zero": "zero1"}}}})",
                          starts.empty() ? "" : ", ", ranks);
  write_file(one + "/run.json", "{\"starts\": [" + starts + "]}");
  write_file(root_ + "/one/eval.jsonl", "{\"step\": 0, \"valid_loss\": null}\n" + read_file(root_ + "/one/eval.jsonl"));
  expect_parts(to_html(run_page({read_run_folder(one)})), {"perplexity 12.18; 4.0000 at step 0"});
  const ReportPage page = run_page({read_run_folder(one), read_run_folder(two)});
  EXPECT_NE(to_html(page).find("Times are not judged: the first step met its memory."), std::string::npos);
  ASSERT_EQ(loss_of(page).lines.size(), 4u);
  EXPECT_EQ(loss_of(page).lines[1].name, "two, training");
  EXPECT_NE(loss_of(page).lines[0].hue, loss_of(page).lines[1].hue);
  const Table& both = std::get<Table>(page.sections[0].blocks[0]);
  EXPECT_EQ(both.columns[4].title, "training loss, nats/token");
  ASSERT_EQ(both.rows.size(), 2u);
  EXPECT_EQ(both.rows[0], (std::vector<std::string>{"one", "5", "1,280", "12.00 s", "2.0000", "2.2500", "3", "9.49", "3.100", "7",
                                                    "2DP x 1PP x 1TP zero1 (the last of 2)",
                                                    "killed or cut off: step 5 of 1,500"}));
  const ReportSection& configuration = page.sections[1];
  ASSERT_EQ(configuration.title, "Configuration");
  const Table& different = std::get<Table>(configuration.blocks[0]);
  ASSERT_EQ(different.rows.size(), 2u);
  EXPECT_EQ(different.rows[0], (std::vector<std::string>{"lr_schedule: the rate decays until step", "", "400"}));
  EXPECT_EQ(different.rows[1], (std::vector<std::string>{"optimizer.lr", "0.1", "0.2"}));
  EXPECT_EQ(std::get<Table>(configuration.blocks[1]).rows.size(), 2u);
}

// A third start that has the first's validation data goes on with its curve, behind a gap.
TEST_F(RunPages, DrawEachValidationDataByItself) {
  const std::string folder = make_run("run", 9);
  std::string starts = R"({"valid": ["none"]})", evals;  // the first without its time
  for (const auto& [time, valid] : {std::pair(10, "a"), {20, "b"}, {30, "a"}}) {
    starts += fmt::format(R"(, {{"time": {}, "valid": ["{}"]}})", time, valid);
    for (const int step : {time / 10, time / 10 + 1})
      evals += fmt::format("{{\"step\": {}, \"time\": {}, \"valid_loss\": {}}}\n", step, time + 1, time);
  }
  write_file(folder + "/run.json", "{\"starts\": [" + starts + "]}");
  write_file(folder + "/eval.jsonl", evals);
  const LinePlot plot = loss_of(run_page({read_run_folder(folder)}));
  ASSERT_EQ(plot.lines.size(), 3u);
  EXPECT_EQ(plot.lines[1].name, "validation, a");
  EXPECT_EQ(plot.lines[2].name, "validation, b");
  EXPECT_NE(plot.lines[1].hue, plot.lines[2].hue);
  ASSERT_EQ(plot.lines[1].points.size(), 5u);
  EXPECT_TRUE(std::isnan(plot.lines[1].points[2].y));
  EXPECT_EQ(plot.lines[1].points[3].y, 30);
  EXPECT_EQ(plot.lines[2].points.size(), 2u);
  write_file(folder + "/eval.jsonl", R"({"step": 1, "sets": {"wiki": {"loss": 3}, "books": {"loss": null}}}
{"step": 9, "sets": {"wiki": {"loss": 2}, "books": {"loss": 1}}}
)");
  const ReportPage page = run_page({read_run_folder(folder)});
  const LinePlot& sets = std::get<LinePlot>(section_of(page, "Curves").blocks.at(1));
  EXPECT_EQ(sets.title, "Validation loss by set");
  ASSERT_EQ(sets.lines.size(), 2u);
  EXPECT_EQ(sets.lines[0].name, "books");
  EXPECT_EQ(sets.lines[1].points.back().y, 2);
  EXPECT_EQ(sets.lines[1].other_x.back(), 9 * 256);
}

TEST_F(RunPages, ShowAllPromptsOfTheStepsThatTheyShow) {
  const std::string folder = make_run("run", 3);
  std::string samples;
  for (int step = 0; step <= 30; ++step)
    for (const char* const prompt : {"one", "two"})
      samples += fmt::format("{{\"step\": {}, \"prompt\": \"{}\", \"text\": \"t\"}}\n", step, prompt);
  write_file(folder + "/samples.jsonl", samples);
  const ReportPage page = run_page({read_run_folder(folder)});
  const Table& texts = std::get<Table>(section_of(page, "Texts").blocks.at(0));
  ASSERT_EQ(texts.rows.size(), 22u);
  EXPECT_EQ(texts.rows[0], (std::vector<std::string>{"30", "two", "t"}));
  EXPECT_EQ(texts.rows[1], (std::vector<std::string>{"30", "one", "t"}));
  EXPECT_EQ(texts.rows[2][0], "27");
  EXPECT_EQ(texts.title, "One of 3 steps that have texts, from the last on");
}

TEST_F(RunPages, SayWhereTheLossIsNotFiniteAndHowLongARunTakes) {
  const std::string folder = make_run("run", 0);
  write_file(folder + "/metrics.jsonl", R"({"step": 10, "loss": 4, "elapsed_s": 50}
{"step": 110, "loss": null, "elapsed_s": 100}
)");
  write_file(folder + "/run.json", R"({"starts": [{"time": 1, "step": 10}]})");
  const AppendFile writer(folder + "/metrics.jsonl", AppendFile::Start::kAppend);
  const ReportPage page = run_page({read_run_folder(folder)});
  std::string all;
  for (const auto& [name, value, remark] : std::get<KeyNumbers>(page.sections[0].blocks[0]).numbers)
    all += fmt::format("{}: {} ({}); ", name, value, remark);
  expect_parts(all, {"training loss: not finite (4.0000 at step 10)", "time: 100.0 s (about 1390.0 s left)"});
}

TEST_F(RunPages, SayWithWhatARunWasTunedAndLeaveOutPartsOfNoTime) {
  const std::string folder = make_run("run", 3);
  write_file(folder + "/config.resolved.json", R"({"run": {"steps": 3, "epochs": 2.5}, "model": {"init_from": "models/qwen"},
    "data": {"train": [{"path": "corpus/packed"}], "valid": [{"path": "a"}, {"path": "b"}]},
    "batch": {"global": 8, "sequence": 32}, "adapter": {"type": "lora", "r": 16, "target_modules": ["q_proj", "v_proj"]}})");
  write_file(folder + "/metrics.jsonl", R"({"step": 1, "loss": 2, "loss_tokens": 64}
{"step": 2, "loss": 2, "loss_tokens": 32}
)");
  write_file(folder + "/comparison.json", R"({"step_seconds": {"predicted": 0.08, "measured": 0.09}, "parts": [
    {"parts": ["compute"], "predicted": 0.08, "measured": 0.09}, {"parts": ["dp"], "predicted": 4.77e-18, "measured": 1e-5}]})");
  write_file(folder + "/run.json", R"({"starts": [{"time": 1, "given": ["run.epochs", "batch.global"]}]})");
  const ReportPage page = run_page({read_run_folder(folder)});
  const ReportSection& configuration = page.sections.back();
  ASSERT_EQ(configuration.title, "Configuration");
  EXPECT_EQ(std::get<Table>(configuration.blocks[0]).rows,
            (std::vector<std::vector<std::string>>{{"batch.global", "8"}, {"run.epochs", "2.5"}}));
  EXPECT_EQ(std::get<Table>(configuration.blocks[1]).title, "8 keys that were not set");
  const std::string html = to_html(page);
  expect_parts(html, {"Epochs: 2.5<", "Data: corpus/packed<", "Validation data: a, b<", "Begins with the weights of: models/qwen<",
                      "Adapters: lora, r 16, on q_proj, v_proj<", "80.00 ms", "counted targets", ">18.8 %<"});
  EXPECT_EQ(html.find(" us<"), html.npos);
}

TEST_F(RunPages, DrawTheMeasuredAndTheSimulatedStepToOneScale) {
  const std::string folder = make_run("run", 3);
  const auto ends = [&](const char* measured, const char* simulated) {
    write_file(folder + "/last_step.json", fmt::format(R"({{"measured": {{"title": "Measured", "end": {}}}, "simulated": {{"title":
      "Simulated", "end": {}}}}})", measured, simulated));
    const ReportPage page = run_page({read_run_folder(folder)});
    std::string text;
    for (const ReportSection& section : page.sections)
      for (const ReportBlock& block : section.blocks)
        if (const auto* const step = std::get_if<DrawnTimeline>(&block)) text += to_json_text(*step->data.find("end")) + ' ';
    return text;
  };
  EXPECT_EQ(ends("90", "30"), "90 90 ");
  EXPECT_EQ(ends("30", "90"), "90 90 ");
  EXPECT_EQ(ends("\"x\"", "90"), "\"x\" 90 ") << "a file that says something else is not drawn";
}

TEST_F(RunPages, SurviveFoldersThatHoldAnything) {
  EXPECT_NE(error_of<DataError>([&] { read_run_folder(root_); }).find("no such folder"), std::string::npos);
  std::filesystem::create_directories(root_);
  EXPECT_NE(error_of<DataError>([&] { read_run_folder(root_); }).find("is no run's folder"), std::string::npos);
  const std::string folder = make_run("<img src=x>", 3);
  EXPECT_TRUE(error_of<DataError>([&] { read_run_folder(folder + "/metrics.jsonl"); })
                  .ends_with("give the folder that it is in, " + std::filesystem::path(folder).lexically_normal().string()));
  const std::string hostile = "</script><img src=x onerror=alert(1)>";
  write_file(folder + "/metrics.jsonl",
             "{\"step\": 1, \"loss\": 2, \"tokens\": 1}\nno json\n[1]\n{\"step\": \"x\", \"loss\": []}\n{\"step\": 2, \"lo");
  write_file(folder + "/samples.jsonl", "{\"step\": 1, \"prompt\": \"" + hostile + "\", \"text\": \"" + hostile + "\"}\n");
  write_file(folder + "/plan.json", "[1, 2]");
  write_file(folder + "/memory.json",
             R"({"ranks": [{"allocations": 1, "by_use": {"a": "b", "c": 5}}, {"allocations": 1, "by_use": {}}, 7]})");
  write_file(folder + "/comparison.json", "{");
  write_file(folder + "/last_step.json", R"({"measured": {"title": ")" + hostile + R"(", "rows": 5}})");
  write_file(folder + "/run.json", R"({"starts": [{"time": 1e300, "hosts": 5, "command": [1, "x"], "ended": {"why": 5}}, 7]})");
  const RunFolder run = read_run_folder(folder);
  EXPECT_EQ(run.metrics.size(), 2u);
  EXPECT_EQ(run.remarks.size(), 3u) << "plan.json, comparison.json and two lines of metrics.jsonl";
  const std::string html = to_html(run_page({run}));
  EXPECT_EQ(html.find("<img"), std::string::npos);
  std::filesystem::remove(folder + "/config.resolved.json");
  EXPECT_NE(to_html(run_page({run, read_run_folder(folder)})), "") << "of two runs, one without a configuration";
}

TEST_F(RunPages, SayWhichFilesAndLinesCannotBeRead) {
  const std::string folder = make_run("run", 3);
  create_folder(folder + "/timing.jsonl");
  create_folder(folder + "/memory.json");
  std::filesystem::create_symlink("nowhere", folder + "/samples.jsonl");
  write_file(folder + "/eval.jsonl", "{\"step\": 1, \"valid_loss\": 2.5}\n\x01\n{\"step\": 2, \"val");
  const RunFolder run = read_run_folder(folder);
  EXPECT_EQ(run.evals.size(), 1u);
  EXPECT_EQ(run.remarks, (std::vector<std::string>{"memory.json is left out: it is not a regular file",
                                                   "timing.jsonl is left out: it is not a regular file",
                                                   "1 line of eval.jsonl cannot be read and is left out",
                                                   "samples.jsonl is left out: it is not a regular file"}));
  EXPECT_NE(to_html(run_page({run})).find("1 line of eval.jsonl cannot be read"), std::string::npos);
}

TEST_F(RunPages, CallRunsOfOneNameByTheirPaths) {
  const std::string one = make_run("a/run", 2), two = make_run("b/run", 3), other = make_run("other", 4);
  const std::vector<RunFolder> runs = read_run_folders({one, other, two});
  EXPECT_EQ(runs[0].name, one);
  EXPECT_EQ(runs[1].name, "other");
  EXPECT_EQ(runs[2].name, two);
  EXPECT_EQ(runs[2].metrics.size(), 3u);
}

TEST_F(RunPages, AreOfAllRunsOfAFolder) {
  const std::string b = make_run("sweep/b", 3), a = make_run("sweep/a", 3), folder = root_ + "/sweep";
  create_folder(folder + "/no_run");
  EXPECT_EQ(runs_at({folder}), (std::vector<std::string>{a, b}));
  EXPECT_EQ(runs_at({b, folder}), (std::vector<std::string>{b, a, b}));
  make_run("sweep/a/earlier-1", 3);
  EXPECT_EQ(runs_at({a}), std::vector<std::string>{a}) << "a run is not the runs in it";
  const std::string none = folder + "/no_run";
  EXPECT_EQ(runs_at({none, root_ + "/nothing"}), (std::vector<std::string>{none, root_ + "/nothing"}));
  expect_parts(error_of<DataError>([&] { read_run_folders(runs_at({none})); }), {"the run.dir of a run, or a folder of several"});
}

TEST_F(RunPages, StayWithinTheirSizeAndSayWhatIsLeftOut) {
  const std::string folder = make_run("run", 3), text(100'000, 'x');
  std::string config = "{\"run\": {\"steps\": 3}", ranks, starts, samples;
  for (int i = 0; i < 5000; ++i) config += fmt::format(", \"key {}\": \"{}\"", i, text.substr(0, 100));
  write_file(folder + "/config.resolved.json", config + ", \"long\": \"" + text + "\"}");
  for (int i = 0; i < 3000; ++i)
    ranks += fmt::format("{}{{\"pp\": {}, \"allocations\": 1, \"by_use\": {{\"parameters\": 5}}}}", i == 0 ? "" : ", ", i);
  write_file(folder + "/memory.json", "{\"ranks\": [" + ranks + "]}");
  for (int i = 0; i < 900; ++i)
    starts += fmt::format("{}{{\"time\": 1, \"step\": {}, \"command\": [\"{}\"]}}", i == 0 ? "" : ", ", i, text.substr(0, 9000));
  write_file(folder + "/run.json", "{\"starts\": [" + starts + "]}");
  for (int i = 0; i < 9; ++i) samples += fmt::format("{{\"step\": {}, \"prompt\": \"p\", \"text\": \"{}\"}}\n", i, text);
  write_file(folder + "/samples.jsonl", samples);
  std::string numbers = "1";
  for (int i = 0; i < 400'000; ++i) numbers += ",1234567890";
  write_file(folder + "/last_step.json", "{\"measured\": {\"title\": \"Measured: step 3\", \"rows\": [" + numbers + "]}}");
  const RunFolder run = read_run_folder(folder);
  EXPECT_TRUE(run.remarks.empty()) << run.remarks.front();
  const std::string html = to_html(run_page({run}));
  EXPECT_LE(html.size(), 4'000'000u);
  for (const std::string said : {"Left out, because the page would be larger than 4.0 MB: A step: Measured: step 3.",
                                 "5,002 keys", "4,602 more rows are left out", "(2,900 more bars are left out)",
                                 "... (100,000 bytes)", "The last 400 of 900 starts", ">899<"})
    EXPECT_NE(html.find(said), std::string::npos) << said;
  std::vector<RunFolder> runs(2000, read_run_folder(make_run("small", 30)));
  for (RunFolder& one : runs) one.name = text.substr(0, 255);
  EXPECT_LE(to_html(run_page(runs)).size(), 4'000'000u);
}

TEST_F(RunPages, WriteEveryLineAsCommaSeparatedValues) {
  const std::string one = make_run("one", 60'000), two = make_run("two", 2);
  write_file(two + "/metrics.jsonl", "{\"step\": 1, \"run\": \"its own\", \"bytes\": {\"tp\": 7}}\nno json\n{\"text\": \"" +
                                         std::string(3 << 20, 'x') + "\"}\n{\"step\": 2, \"loss\": 0.5}\n{\"step\": 3");
  create_folder(two + "/memory.json");  // is not looked at
  write_file(two + "/eval.jsonl", "{\"step\": 0, \"valid_loss\": 6.5}\n{\"step\": 2, \"valid_loss\": 0.75, \"sets\": {\"a\": "
                                  "{\"loss\": 0.5}}}\n{\"step\": 4, \"valid_loss\": 0.25}\nno json\n");
  std::ostringstream out;
  const std::vector<std::string> remarks = write_metrics_csv({one, two}, out);
  EXPECT_EQ(remarks, (std::vector<std::string>{"1 line of " + two + "/eval.jsonl cannot be read and is left out",
                                               "2 lines of " + two + "/metrics.jsonl cannot be read and are left out"}));
  std::istringstream lines(out.str());
  std::vector<std::string> rows;
  for (std::string line; std::getline(lines, line);) rows.push_back(line.substr(0, line.size() - 1));
  ASSERT_EQ(rows.size(), 60'005u);
  EXPECT_EQ(rows[0], "run,step,loss,grad_norm,lr,tokens,tokens_per_s,valid_loss,bytes_tp,sets_a_loss");
  EXPECT_EQ(rows[1], "one,1,10,,0.1,256,7,2.5,,");
  EXPECT_EQ(rows[60'000].substr(0, 10), "one,60000,");
  EXPECT_EQ(rows[60'001], "two,0,,,,,,6.5,,") << "an evaluation without a logged step";
  EXPECT_EQ(rows[60'002], "two,1,,,,,,,7,");
  EXPECT_EQ(rows[60'003], "two,2,0.5,,,,,0.75,,0.5");
  EXPECT_EQ(rows[60'004], "two,4,,,,,,0.25,,");
}

}  // namespace
}  // namespace trident
