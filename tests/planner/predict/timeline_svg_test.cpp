// docs/timeline.svg: what the generator draws, and that the committed picture is what it draws now.
#include "planner/predict/timeline_svg.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/file_io.h"
#include "core/json_reader.h"
#include "tests/support/error_text.h"
#include "tests/support/text_counts.h"
#include "train/config/option_values.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

const std::string kDemo = TRIDENT_SOURCE_DIR "/configs/demo_2dp_4pp_4tp.json";

RunPlan plan_of(const std::vector<std::string>& settings = {}, const std::string& file = kDemo) {
  OptionValues values;
  values.take_file(read_json_file(file), file);
  for (const std::string& setting : settings) values.take_setting(setting);
  const TrainConfig config = make_train_config(values);
  return make_run_plan(config, resolve_model(config), 0, kAnyMachine);
}

template <class Predicate>
std::size_t instructions(const RunPlan& plan, Predicate counts) {
  std::size_t n = 0;
  for (const StepProgram& program : plan.step_programs) {
    for (const Instruction& i : program.instructions) n += counts(i) ? 1 : 0;
  }
  return n;
}

TEST(TimelineSvg, CommittedPictureIsWhatTheGeneratorDraws) {
  EXPECT_TRUE(read_file(TRIDENT_SOURCE_DIR "/docs/timeline.svg") == timeline_svg(plan_of()))
      << "run: build/release/bin/trident docs timeline --config configs/demo_2dp_4pp_4tp.json > docs/timeline.svg";
}

// docs/learn.md
TEST(TimelineSvg, PicturesThatTeachAreWhatTheGeneratorDraws) {
  struct Picture {
    std::string file, config;
    std::vector<std::string> settings;
  };
  for (const Picture& picture : std::vector<Picture>{{"gpipe", "gpipe", {}},
                                                     {"1f1b", "1f1b", {}},
                                                     {"1f1b_24", "1f1b", {"batch.global=24"}},
                                                     {"interleaved", "interleaved", {}},
                                                     {"ddp", "zero3", {"parallel.zero=ddp"}},
                                                     {"zero1", "zero3", {"parallel.zero=zero1"}},
                                                     {"zero2", "zero3", {"parallel.zero=zero2"}},
                                                     {"zero3", "zero3", {}},
                                                     {"tp", "tp", {}}}) {
    const std::string config = fmt::format(TRIDENT_SOURCE_DIR "/configs/learn_{}.json", picture.config);
    std::string settings;
    for (const std::string& setting : picture.settings) settings += " --set " + setting;
    EXPECT_TRUE(read_file(fmt::format(TRIDENT_SOURCE_DIR "/docs/learn/{}.svg", picture.file)) ==
                timeline_svg(plan_of(picture.settings, config)))
        << "run: build/release/bin/trident docs timeline --config configs/learn_" << picture.config << ".json" << settings
        << " > docs/learn/" << picture.file << ".svg";
  }
}

// Without chunks nothing is drawn of them; with them every number has its chunk, and the shades are as many as the chunks.
TEST(TimelineSvg, ChunksHaveShadesNumbersAndALegend) {
  EXPECT_EQ(timeline_svg(plan_of()).find("fill-opacity=\""), std::string::npos);
  EXPECT_EQ(timeline_svg(plan_of()).find(", chunk "), std::string::npos);
  const std::string file = TRIDENT_SOURCE_DIR "/configs/learn_interleaved.json";
  for (const int chunks : {2, 4}) {
    SCOPED_TRACE(chunks);
    const RunPlan plan = plan_of({fmt::format("parallel.virtual_stages={}", chunks), "model.num_hidden_layers=16"}, file);
    const std::string svg = timeline_svg(plan);
    EXPECT_EQ(first_fault(svg), "");
    const auto units_of_last =
        instructions(plan, [&](const Instruction& i) { return i.is_compute() && i.virtual_stage / 4 == chunks - 1; });
    EXPECT_EQ(occurrences(svg, "fill-opacity=\"0.40\""), units_of_last + 2);  // and twice in the legend
    EXPECT_EQ(occurrences(svg, fmt::format(", chunk {}</title>", chunks - 1)), units_of_last);
    expect_parts(svg, {fmt::format("A rank holds {} chunks", chunks), "c0: embed, "});
  }
  const std::string many = timeline_svg(plan_of({"parallel.virtual_stages=8", "model.num_hidden_layers=32"}, file));
  expect_parts(many, {"8 chunks, 9 units"});
}

// Numbers of two digits are wider than short actions: then some are left out, from the first to the last micro-batch, and none lies
// on the one before it.
TEST(TimelineSvg, ShortActionsHaveNumbersToo) {
  const RunPlan plan = plan_of({"batch.global=24"}, TRIDENT_SOURCE_DIR "/configs/learn_interleaved.json");
  const std::string svg = timeline_svg(plan);
  std::size_t narrow = 0, late = 0;
  double before = 0, line = 0;
  for (std::size_t at = svg.find("class=\"micro"); at != svg.npos; at = svg.find("class=\"micro", at + 1)) {
    const std::size_t tag = svg.rfind('<', at), begin = svg.find('>', at) + 1;
    const std::string_view style = std::string_view(svg).substr(at, begin - at);
    const std::string number = svg.substr(begin, svg.find('<', begin) - begin);
    if (number.starts_with('c')) continue;
    const double x = std::stod(svg.substr(tag + 9)), y = std::stod(svg.substr(svg.find("y=\"", tag) + 3));
    const double half = 2.5 * static_cast<double>(number.size());  // digits of 10 pixels' height are 5 to 6 wide
    if (y == line) {
      EXPECT_GE(x - half, before) << number;
    }
    line = y, before = x + half;
    narrow += style.find(" axis") != style.npos ? 1 : 0;
    late += std::stoi(number) >= 10 ? 1 : 0;
  }
  EXPECT_GT(narrow, 0u);
  EXPECT_GE(late, instructions(plan, [](const Instruction& i) { return i.is_compute() && i.micro_batch >= 10; }) / 8);
  EXPECT_NE(svg.find(">23</text>"), svg.npos) << "the last micro-batch";
}

TEST(TimelineSvg, OneBarPerInstruction) {
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {},
           {"parallel.zero=zero3"},
           {"parallel.schedule=gpipe"},
           {"parallel=\"1DP x 2PP x 1TP\"", "parallel.sequence_parallel=false"},
           {"parallel.schedule=interleaved", "parallel.pipeline=2", "parallel.virtual_stages=2", "parallel.overlap=false"}}) {
    const RunPlan plan = plan_of(settings);
    const std::string svg = timeline_svg(plan);
    SCOPED_TRACE(settings.empty() ? "demo" : settings.front());
    EXPECT_EQ(first_fault(svg), "");
    EXPECT_EQ(occurrences(svg, "class=\"bar f "),
              instructions(plan, [](const Instruction& i) { return i.is_compute() && i.is_forward(); }));
    EXPECT_EQ(occurrences(svg, "class=\"bar b "),
              instructions(plan, [](const Instruction& i) { return i.is_compute() && !i.is_forward(); }));
    EXPECT_EQ(occurrences(svg, "class=\"comm reduce\""),
              instructions(plan, [](const Instruction& i) { return i.kind == InstructionKind::kReduceGradients; }));
    EXPECT_EQ(occurrences(svg, "class=\"comm gather\""),
              instructions(plan, [](const Instruction& i) { return i.kind == InstructionKind::kGather; }));
    EXPECT_EQ(occurrences(svg, "class=\"message\""), instructions(plan, [](const Instruction& i) { return i.is_send(); }));
    EXPECT_EQ(svg.find("nan"), std::string::npos);
  }
}

TEST(TimelineSvg, NamesEveryRankOfTheDemo) {
  const RunPlan plan = plan_of();
  const std::string svg = timeline_svg(plan);
  for (int rank = 0; rank < plan.world_size(); ++rank)
    EXPECT_EQ(occurrences(svg, fmt::format("class=\"rank\">{}<", rank)), 1u) << rank;
}

TEST(TimelineSvg, ManyRanksAreNamedAsARange) {
  const std::string svg = timeline_svg(plan_of({"parallel.data=8", "batch.global=32"}));
  EXPECT_EQ(occurrences(svg, "class=\"rank\""), 0u);
  expect_parts(svg, {"ranks 0 to 31"});
}

TEST(TimelineSvg, FaultsAreSeen) {  // of the test's own reader
  EXPECT_EQ(first_fault("<a><b x=\"1\"/></a>"), "");
  EXPECT_NE(first_fault("<a><b></a>"), "");
  EXPECT_NE(first_fault("<a x=\"1/>"), "");
  EXPECT_NE(first_fault("<a>"), "");
}

}  // namespace
}  // namespace trident
