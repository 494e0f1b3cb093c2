// Tests what is read out of a study's rows: efficiency, causes, tables.
#include "planner/study/study_result.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

#include "core/file_io.h"
#include "planner/study/study_table.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/support/text_counts.h"

namespace trident {
namespace {

StudyRow row(const StudyPoint& point, double seconds, TimePart most, std::int64_t tokens = 1 << 20) {
  StudyRow row;
  row.point = point;
  row.gpus = point.gpus;
  row.replicas = row.micro_batches = 4;
  row.tokens = tokens;
  row.seconds = seconds;
  row.parts[TimePart::kCompute] = seconds / 4;
  row.parts[most] += 3 * seconds / 4;
  row.memory_bytes = 10'000'000'000;
  row.memory_there = 20'000'000'000;
  return row;
}

StudyResult grown(std::vector<double> seconds, const std::string& gpus, Scaling scaling = Scaling::kStrong) {
  StudyResult result;
  result.spec.varied = {parse_varied(gpus)};
  result.spec.scaling = scaling;
  result.hardware = "some";
  const std::vector<StudyPoint> points = points_of(result.spec);
  for (std::size_t i = 0; i < points.size(); ++i)
    result.rows.push_back(row(points[i], seconds[i], i == 0 ? TimePart::kCompute : TimePart::kBubble));
  return result;
}

TEST(StudyEfficiency, OfStrongScalingIsTimeTimesGpus) {
  StudyResult result = grown({10, 6, 4}, "gpus=8..32");
  compare_rows(result);
  EXPECT_EQ(result.rows[0].efficiency, 1);
  EXPECT_DOUBLE_EQ(result.rows[1].efficiency, 10.0 * 8 / (6.0 * 16));
  EXPECT_DOUBLE_EQ(result.rows[2].efficiency, 10.0 * 8 / (4.0 * 32));
}

TEST(StudyEfficiency, OfWeakScalingIsTimeOverTime) {
  StudyResult result = grown({10, 12.5, 20}, "gpus=8..32", Scaling::kWeak);
  for (std::size_t i = 0; i < 3; ++i) result.rows[i].tokens = std::int64_t{1000} << i;
  compare_rows(result);
  EXPECT_DOUBLE_EQ(result.rows[1].efficiency, 0.8);
  EXPECT_DOUBLE_EQ(result.rows[2].efficiency, 0.5);
}

TEST(StudyEfficiency, TheReferenceFitsAndCanBe) {
  StudyResult result = grown({10, 6, 4}, "gpus=8..32");
  result.rows[0].fits = false;
  compare_rows(result);
  EXPECT_EQ(result.rows[1].efficiency, 1);
  EXPECT_EQ(result.rows[0].efficiency, 0);  // nobody can have it
  expect_parts(to_text(result), {" -  does not fit\n"});
  EXPECT_TRUE(to_json(result).find("rows")->items()[0].find("efficiency")->is_null());
  const std::string picture = study_svg(result);
  EXPECT_EQ(occurrences(picture, "<circle"), 2u) << picture;
  result.rows[1].reason = "cannot";
  compare_rows(result);
  EXPECT_EQ(result.rows[1].efficiency, 0);
  EXPECT_EQ(result.rows[2].efficiency, 1);
  for (StudyRow& row : result.rows) row.fits = false;
  result.rows[1].reason = "";
  compare_rows(result);
  for (const StudyRow& row : result.rows) EXPECT_EQ(row.efficiency, 0);
  EXPECT_TRUE(causes_of(result).empty());
}

TEST(StudyEfficiency, OfOnePointOrOfOtherSettingsIsNone) {
  StudyResult result;
  result.spec.varied = {parse_varied("zero=zero1|zero3")};
  result.spec.gpus = 8;
  for (const StudyPoint& point : points_of(result.spec))
    result.rows.push_back(row(point, 1.0 + point.values[0].back(), TimePart::kData));
  compare_rows(result);
  EXPECT_EQ(result.rows[0].efficiency, 0);
  EXPECT_EQ(result.rows[1].efficiency, 0);
  EXPECT_EQ(result.rows[0].of_first, 1);
  EXPECT_LT(result.rows[1].of_first, 1);
}

bool says(const std::vector<std::string>& sentences, std::size_t which, const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    if (which < sentences.size() && sentences[which].find(part) != std::string::npos) continue;
    ADD_FAILURE() << "no \"" << part << "\" in: " << (which < sentences.size() ? sentences[which] : "nothing");
    return false;
  }
  return true;
}

TEST(StudyCauses, OfProcessorsAreOfRanks) {
  StudyResult result = grown({10, 6, 4}, "gpus=8..32");
  result.counted_as = "rank";
  compare_rows(result);
  says(causes_of(result), 0, {"from 8 to 32 ranks efficiency falls"});
  EXPECT_EQ(held_fixed(result.spec, "rank").back().find("GPU"), std::string::npos);
  result.spec.varied = {parse_varied("zero=zero1|zero3|zero2")};
  for (StudyRow& row : result.rows) row.gpus = 8;
  result.rows[2].bytes_sent[0] = result.rows[1].bytes_sent[0] = 1e9;
  for (const std::string& sentence : causes_of(result)) EXPECT_EQ(sentence.find("GPU"), std::string::npos) << sentence;
  EXPECT_TRUE(held_fixed(result.spec, "rank").empty()) << "a preset changes no number of replicas";
  result.spec.varied = {parse_varied("parallel.context=1")};
  ASSERT_FALSE(held_fixed(result.spec, "rank").empty()) << "ranks that share a sequence are no replicas";
  EXPECT_TRUE(held_fixed(result.spec, "rank").front().starts_with("The global batch ")) << "nothing is scaled";
}

TEST(StudyResultRows, ReasonsAreToldOnceAndThreeAtMost) {
  StudyResult result = grown({1, 1, 1, 1, 1}, "gpus=1..16");
  EXPECT_TRUE(result.any_possible());
  EXPECT_EQ(reasons_text(result), "");
  for (StudyRow& row : result.rows) row.reason = "the same";
  EXPECT_FALSE(result.any_possible());
  EXPECT_EQ(reasons_text(result), "the same");
  for (std::size_t i = 0; i < 5; ++i) result.rows[i].reason = std::string(1, static_cast<char>('a' + i));
  EXPECT_EQ(reasons_text(result), "a; b; c (2 more reasons)");
  result.rows[4].reason = "a";
  EXPECT_EQ(reasons_text(result), "a; b; c (1 more reason)");
}

TEST(StudyMeasured, IsWhatAComparisonSays) {
  const std::string whole = R"({"steps": 5, "clock": "processor", "step_seconds": {"predicted": 0.5, "measured": 0.625},
                               "arena_bytes": {"predicted": 1, "measured": 12345678901}})";
  const auto taken = [](const std::string& text) {
    StudyRow row;
    take_comparison(parse_json(text, "a test"), row);
    return row;
  };
  const StudyRow row = taken(whole);
  ASSERT_TRUE(row.measured.has_value());
  EXPECT_EQ(row.measured->seconds, 0.625);
  EXPECT_EQ(row.measured->predicted, 0.5);
  EXPECT_EQ(row.measured->clock, "processor");
  EXPECT_EQ(row.measured->steps, 5);
  EXPECT_EQ(row.measured->memory_bytes, 12'345'678'901);
  EXPECT_EQ(row.not_run, "");
  EXPECT_FALSE(row.measured->worked.has_value());
  EXPECT_EQ(taken(R"({"worked_seconds": 0.25, )" + whole.substr(1)).measured->worked, 0.25);
  const StudyRow without = taken(R"({"steps": 5, "not_predicted": "no prices", "arena_bytes": 3})");
  EXPECT_FALSE(without.measured.has_value());
  EXPECT_EQ(without.not_run, "trained, and not compared: no prices");
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"[]", "no object"},
           {R"({"steps": 5})", "not_predicted: missing"},
           {R"({"not_predicted": 5})", "not_predicted: missing, or of another kind"},
           {R"({"step_seconds": 5})", "step_seconds: "},
           {R"({"step_seconds": {}})", "step_seconds.measured: "},
           {R"({"step_seconds": {"measured": "1"}})", "step_seconds.measured: "},
           {R"({"step_seconds": {"measured": 1}})", "step_seconds.predicted: "},
           {R"({"step_seconds": {"measured": 1, "predicted": 1}})", "clock: "},
           {R"({"step_seconds": {"measured": 1, "predicted": 1}, "clock": "wall"})", "steps: "},
           {R"({"step_seconds": {"measured": 1, "predicted": 1}, "clock": "wall", "steps": 1})", "arena_bytes: "},
           {R"({"step_seconds": {"measured": 1, "predicted": 1}, "clock": "wall", "steps": 1, "arena_bytes": {}})",
            "arena_bytes.measured: "}}) {
    const std::string error = error_of<DataError>([&, given = text] { taken(given); });
    EXPECT_TRUE(error.starts_with("comparison.json: ") && contains(error, part)) << text << ": " << error;
  }
}

TEST(StudyMeasured, AFileThatCannotBeReadLeavesTheRowWithoutATime) {
  const TemporaryFolder folder;
  const std::string path = folder / "comparison.json";
  StudyRow row;
  read_comparison(path, row);
  expect_parts(row.not_run, {path});
  for (const char* const text : {"", "{", R"({"steps": 5})"}) {
    write_file(path, text);
    row.not_run.clear();
    read_comparison(path, row);
    EXPECT_TRUE(row.not_run.starts_with("trained, and not compared: comparison.json")) << row.not_run;
    EXPECT_FALSE(row.measured.has_value());
  }
}

TEST(StudyCauses, GrowthNamesThePartThatGrewMost) {
  StudyResult result = grown({10, 6, 4}, "gpus=8..32");
  compare_rows(result);
  const std::vector<std::string> causes = causes_of(result);
  ASSERT_EQ(causes.size(), 1u);
  says(causes, 0, {"from 8 to 32 GPUs", "0.62", "bubble", "75 % of the step instead of 0 %"});
  result = grown({10, 5, 2.5}, "gpus=8..32");  // perfect: nothing to tell
  compare_rows(result);
  EXPECT_TRUE(causes_of(result).empty());
}

TEST(StudyCauses, CommunicationIsTracedToBytesAndCollectives) {
  StudyResult result;
  result.spec.arms = {{"DDP", {}}, {"FSDP", {}}, {"same", {}}};
  result.spec.gpus = 4;
  const std::vector<StudyPoint> points = points_of(result.spec);
  result.rows = {row(points[0], 10, TimePart::kCompute), row(points[1], 50, TimePart::kData),
                 row(points[2], 10.2, TimePart::kData)};
  for (StudyRow& r : result.rows) r.gpus = 4, r.micro_batches = 32, r.reductions = 1;
  result.rows[0].bytes_sent[static_cast<std::size_t>(Axis::kData)] = 7e9;
  result.rows[1].bytes_sent[static_cast<std::size_t>(Axis::kData)] = 226e9;
  result.rows[1].gathers = 63, result.rows[1].reductions = 32;
  compare_rows(result);
  const std::vector<std::string> causes = causes_of(result);
  ASSERT_EQ(causes.size(), 1u);  // 2 % is not told
  says(causes, 0, {"On 4 GPUs FSDP takes 5.00 times as long per token as DDP", "gathers and reductions over dp",
                   "226.0 GB a GPU over dp instead of 7.0 GB", "gathered 63 times", "reduced 32 times",
                   "32 micro-batches x 3 collectives", "never and once"});
  EXPECT_DOUBLE_EQ(result.rows[1].of_first, 0.2);
}

// Rows that differ in several keys have several causes: a sentence each where they differ from the fastest that fits in one.
TEST(StudyCauses, AreOfOneKeyAgainstTheFastestThatFits) {
  StudyResult result;
  result.spec.varied = {parse_varied("zero=zero1|zero3"), parse_varied("recompute=none|full")};
  result.spec.gpus = 8;
  const double seconds[] = {2, 8, 4, 10};  // zero1 none, zero1 full, zero3 none, zero3 full
  for (const StudyPoint& point : points_of(result.spec))
    result.rows.push_back(row(point, seconds[result.rows.size()], TimePart::kData));
  result.rows[0].fits = false;
  compare_rows(result);
  const std::vector<std::string> causes = causes_of(result);
  ASSERT_EQ(causes.size(), 1u);  // zero1, full differs in both
  says(causes, 0, {"zero3, recompute full takes 2.50 times as long per token as zero3, recompute none"});
  const std::string text = to_text(result);
  expect_parts(text, {"  of fastest\n", "tokens/s a GPU  step s  compute s  dp s", " of GB ", " 2.000  does not fit\n",
                      " 1.000  fastest\n", " 0.400\n"});
  result.rows[2].tight = true;  // it is held against one that leaves room
  expect_parts(to_text(result), {" 1.000  fastest\n", " 2.000  fits tightly\n"});
  EXPECT_TRUE(to_json(result).find("rows")->items()[2].find("tight")->as_bool());
  EXPECT_EQ(fastest_of(result, 8), &result.rows[1]);
}

// 4.5 s more of a step that is 2 s longer: the rest took less.
TEST(StudyCauses, APartMayGrowByMoreThanTheStep) {
  StudyResult result;
  result.spec.varied = {parse_varied("micro=1|2")};
  result.spec.gpus = 8;
  const std::vector<StudyPoint> points = points_of(result.spec);
  result.rows = {row(points[0], 4, TimePart::kCompute), row(points[1], 6, TimePart::kBubble)};
  compare_rows(result);
  const std::vector<std::string> causes = causes_of(result);
  ASSERT_EQ(causes.size(), 1u);
  says(causes, 0, {"micro 2 takes 1.50 times as long per token as micro 1: 4.5 s more a step are the pipeline's bubble, all other "
                   "parts together take 2.5 s less."});
  result.rows[1].parts = {};
  result.rows[1].parts[TimePart::kCompute] = 4.5;
  result.rows[1].parts[TimePart::kBubble] = 1.5;
  says(causes_of(result), 0, {"1.5 of the 2 s more a step are the pipeline's bubble."});
}

// The ranks of a pipeline with one long stage wait for it, and the one that waits least has nothing to wait for.
TEST(StudyCauses, NameTheStageThatOthersWaitFor) {
  StudyResult result;
  result.spec.varied = {parse_varied("parallel=2DP|2PP")};
  result.spec.gpus = 2;
  const std::vector<StudyPoint> points = points_of(result.spec);
  result.rows = {row(points[0], 4, TimePart::kCompute), row(points[1], 8, TimePart::kCompute)};
  for (StudyRow& each : result.rows) each.gpus = 2;
  result.rows[1].uneven = 3, result.rows[1].bubble = 0.9, result.rows[1].stage = "stage 1 (block 5, head)";
  compare_rows(result);
  says(causes_of(result), 0, {"4 of the 4 s more a step are computing of stage 1 (block 5, head), 1.6 times as long as stages "
                              "compute on average, while the others wait (bubble 0.900 of the ideal step)."});
  result.rows[1].uneven = 1;
  says(causes_of(result), 0, {"4 of the 4 s more a step are computing."});
}

TEST(StudyCauses, BeginWithKeysThatChangeNothing) {
  StudyResult result;
  result.spec.varied = {parse_varied("optimizer.lr=1e-3|3e-3"), parse_varied("micro=1|2")};
  result.spec.gpus = 8;
  for (const StudyPoint& point : points_of(result.spec))
    result.rows.push_back(row(point, point.values[1] == "1" ? 1 : 2, TimePart::kCompute));
  compare_rows(result);
  const std::vector<std::string> causes = causes_of(result);
  ASSERT_EQ(causes.size(), 2u);
  says(causes, 0, {"lr changes neither time nor memory here. To compare losses, train each value and type: trident report "});
  says(causes, 1, {"micro 2 takes 2.00 times"});
  result.rows[3].memory_bytes += 1;
  EXPECT_EQ(causes_of(result).size(), 1u);
  expect_parts(to_text(result), {"  fastest\n"});
  result.rows.resize(1);
  result.rows.push_back(result.rows.front());
  EXPECT_EQ(to_text(result).find("fastest"), std::string::npos);  // all are
}

TEST(StudyTable, AnAnswerHasOneUnitForTimesAndOneForMemory) {
  StudyResult result;
  result.spec.varied = {parse_varied("hidden=64|128")};
  result.held = held_fixed(result.spec, "rank");
  result.models = {"small", "large"};
  for (const StudyPoint& point : points_of(result.spec)) {
    StudyRow made = row(point, point.values[0] == "64" ? 0.0125 : 0.025, TimePart::kCompute);
    made.gpus = 1, made.memory_bytes = 20'000'000, made.memory_there = 25'282'000'000;
    made.parameters = point.values[0] == "64" ? 123'456 : 7'000'000;
    made.measured = StudyMeasurement{.seconds = 0.02, .predicted = 0.02, .clock = "wall", .steps = 5, .worked = 0.006};
    result.rows.push_back(made);
  }
  compare_rows(result);
  result.causes = causes_of(result);
  const std::string text = to_text(result);
  expect_parts(text, {" GPUs  parameters  ", "123.5K ", "7M ", "83,886,080 ", " step ms ", " of MB ", " 25,280 ",
                      "12.5 of the 12.5 ms more a step are", "worked 6 ms of 20 ms", "hidden size varies alone"});
  for (const char* const other : {"Strong scaling", " s ", " GB "}) EXPECT_EQ(text.find(other), text.npos) << text;
  result.spec.varied.push_back(parse_varied("heads=2|4"));
  EXPECT_TRUE(held_fixed(result.spec, "rank").empty());
}

TEST(StudyTable, RowsThatCannotBeHaveTheirReasonAndNoNumbers) {
  StudyResult result = grown({10, 6, 4}, "gpus=8..32");
  result.rows[1].reason = "because";
  result.rows[2].fits = false;
  result.rows[2].not_run = "too large";
  compare_rows(result);
  const std::string text = to_text(result);
  expect_parts(text, {"cannot be: because\n", "does not fit; not run: too large\n"});
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
  EXPECT_EQ(text.find("inf"), std::string::npos) << text;
  const JsonValue json = to_json(result);
  const JsonValue::Array& rows = json.find("rows")->items();
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[1].find("reason")->as_string(), "because");
  EXPECT_EQ(rows[1].find("step_s"), nullptr);
  EXPECT_EQ(rows[1].find("gpus")->as_integer(), 16);
  EXPECT_EQ(rows[0].find("step_s")->as_number(), 10);
  EXPECT_EQ(rows[0].find("parts_s")->find("compute")->as_number(), 10);
  EXPECT_FALSE(rows[2].find("fits")->as_bool());
  EXPECT_TRUE(rows[0].find("mfu")->is_null());
  for (StudyRow& row : result.rows) row.reason = "none can";
  compare_rows(result);
  expect_parts(to_text(result), {"cannot be: none can"});
}

// Fields of a line of CSV without quotes.
std::size_t fields(const std::string& line) { return static_cast<std::size_t>(std::count(line.begin(), line.end(), ',')) + 1; }

TEST(StudyTable, CsvHasEveryRowInAsManyFields) {
  StudyResult result = grown({10, 6, 4}, "gpus=8..32");
  result.rows[1].reason = "because";
  compare_rows(result);
  const std::string csv = to_csv(result);
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < csv.size();) {
    const std::size_t end = csv.find("\r\n", at);
    ASSERT_NE(end, std::string::npos);
    lines.push_back(csv.substr(at, end - at));
    at = end + 2;
  }
  ASSERT_EQ(lines.size(), 4u);
  expect_parts(lines[0], {"parts_s_bubble"});
  for (const std::string& line : lines) EXPECT_EQ(fields(line), fields(lines[0])) << line;
  result.spec.arms = {{"a, \"b\"", {}}};
  expect_parts(to_csv(result), {"\r\n\"a, \"\"b\"\"\","});
}

}  // namespace
}  // namespace trident
