// Rows of published runs with members taken away, set to null or to what they cannot be: one object for each row, never a crash,
// never a number that is none, and nothing that is put in a member's place without being said.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "tests/planner/price/price_fixture.h"

namespace trident {
namespace {

const std::set<std::string> kAnswers{"measured", "derived", "expected", "tolerance", "notes"};
const std::set<std::string> kOrigins{"source", "ref", "confidence", "tags", "split"};

JsonValue published() {
  return read_json_file(TRIDENT_TRUTH_DIR "/published_rows.json",
                        {.comments = false, .max_bytes = 4 << 20, .max_depth = 16, .blame = ExitCode::kData});
}

const JsonValue::Array& rows_of(const JsonValue& table) {
  return table.is_array() ? table.items() : table.find("entries")->items();
}

const PublishedBook& hostile_book() {
  static const PublishedBook shipped = shipped_published_book();
  return shipped;
}

JsonValue answer_to(const JsonValue& row) {
  const std::vector<CaseRow> rows = case_rows(JsonValue(JsonValue::Array{row}), "rows");
  EXPECT_EQ(rows.size(), 1u);
  return answer_case(rows.at(0), hostile_book());
}

// The row's members, "model.hidden"; groups among them.
std::vector<std::string> paths_of(const JsonValue& row) {
  std::vector<std::string> paths;
  for (const JsonMember& member : row.members()) {
    if (kAnswers.contains(member.key) || kOrigins.contains(member.key)) continue;
    paths.push_back(member.key);
    if (!member.value.is_object()) continue;
    for (const JsonMember& inner : member.value.members()) paths.push_back(member.key + '.' + inner.key);
  }
  return paths;
}

JsonValue& group_of(JsonValue& row, const std::string& path) {
  const std::size_t dot = path.find('.');
  return dot == path.npos ? row : *row.find(path.substr(0, dot));
}
std::string key_of(const std::string& path) { return path.substr(path.find('.') + 1); }

// The answer but for its list: a null is listed also where no price depends on it.
JsonValue filled_alike(JsonValue answer) {
  std::erase_if(answer.members(), [](const JsonMember& member) { return member.key == "assumed"; });
  return answer;
}

void remove(JsonValue& row, const std::string& path) {
  std::erase_if(group_of(row, path).members(), [&](const JsonMember& member) { return member.key == key_of(path); });
}

// One object under the row's name: the reason, or numbers that are numbers.
void check(const JsonValue& row, const JsonValue& answer) {
  const JsonValue* id = row.find("id");
  ASSERT_NE(answer.find("id"), nullptr);
  if (id && id->is_string()) {
    ASSERT_EQ(answer.find("id")->as_string(), id->as_string());
  }
  if (const JsonValue* why = answer.find("unsupported")) {
    ASSERT_EQ(answer.members().size(), 2u);
    ASSERT_FALSE(why->as_string().empty());
    return;
  }
  for (const char* key : {"step_time_s", "tokens_per_s_per_gpu", "peak_allocated_bytes", "peak_memory_bytes", "device_bytes"}) {
    const double value = number(answer, key);
    ASSERT_TRUE(std::isfinite(value) && value > 0) << key;
  }
  for (const JsonMember& part : answer.find("memory_parts")->members()) ASSERT_GE(part.value.as_number(), 0) << part.key;
}

std::vector<JsonValue> hostile_values() {
  // clang-format off: one to a line takes a page
  return {
          nullptr, 0, -1, 1e30, 1e308, std::int64_t{1} << 31, (std::int64_t{1} << 32) + 8,
          std::numeric_limits<std::int64_t>::max(), 0.5, 8.5, -0.0, 1e-300, 3, 7, 2015, 100000000, "NaN", "8", "", " ", "\x01",
          "\xC3\xBC\xE4\xB8\xAD\xF0\x9F\x98\x80", std::string(5000, 'a'), true, false, JsonValue::Array{}, JsonValue::Array{1},
          JsonValue(JsonValue::Object{}), JsonValue(JsonValue::Object{{"value", 8}}), "zb-v", "v-min", "dualpipe", "ZB-1p",
          "interleaved", "gpipe", "int8", "fp32", "nvfp4", "full 3 layers", "selective", "hsdp", "zero-10", "FSDP", "max",
          "H100", "B200", "colossalai", "deepspeed", "flash9", "unfused", "swiglu"};
  // clang-format on
}

// Rows that differ in what matters to a reader.
std::vector<JsonValue> kinds_of_rows() {
  std::map<std::string, JsonValue> kinds;
  const JsonValue table = published();
  for (const JsonValue& row : rows_of(table)) {
    const JsonValue* schedule = row.find("parallel")->find("schedule");
    kinds.emplace(to_json_text(*row.find("cluster")->find("gpu")) + to_json_text(*row.find("precision")) +
                      to_json_text(*row.find("recompute")) + to_json_text(*row.find("stack")) +
                      (schedule ? to_json_text(*schedule) : ""),
                  row);
  }
  std::vector<JsonValue> rows;
  for (auto& [name, row] : kinds) rows.push_back(std::move(row));
  return rows;
}

TEST(HostileRows, EachMutatedRowIsOneAnswer) {
  std::mt19937 random(16);
  const auto any = [&](std::size_t count) { return std::uniform_int_distribution<std::size_t>(0, count - 1)(random); };
  const std::vector<JsonValue> rows = kinds_of_rows(), values = hostile_values();
  int answered = 0, refused = 0;
  for (int i = 0; i < 5000; ++i) {
    JsonValue row = rows[any(rows.size())];
    std::string what;
    for (std::size_t changes = 1 + any(2); changes > 0; --changes) {
      const std::vector<std::string> paths = paths_of(row);
      const std::string& path = paths[any(paths.size())];
      const std::size_t value = any(values.size() + 1);
      if (value == values.size()) remove(row, path);
      else group_of(row, path).set(key_of(path), values[value]);
      what += path + " = " + (value == values.size() ? "absent" : to_json_text(values[value]).substr(0, 60)) + "; ";
    }
    SCOPED_TRACE(what);
    const JsonValue answer = answer_to(row);
    check(row, answer);
    if (HasFatalFailure()) return;
    ++(answer.find("unsupported") ? refused : answered);
  }
  EXPECT_GT(answered, 250);
  EXPECT_GT(refused, 500);
}

// A member that is absent or null is refused, or what stands for it is said, or it makes no difference.
TEST(HostileRows, WhatIsPutInTheirPlaceIsSaid) {
  int looked_at = 0;
  for (const JsonValue& row : kinds_of_rows()) {
    const JsonValue before = answer_to(row);
    ASSERT_EQ(before.find("unsupported"), nullptr) << to_json_text(before);
    for (const std::string& path : paths_of(row)) {
      if (path == "id" || row.find(path)) continue;  // groups: each of their members is looked at
      SCOPED_TRACE(to_json_text(*row.find("id")) + ' ' + path);
      JsonValue without = row, null = row;
      remove(without, path);
      group_of(null, path).set(key_of(path), nullptr);
      JsonValue answer = answer_to(without);
      ASSERT_EQ(to_json_text(filled_alike(answer)), to_json_text(filled_alike(answer_to(null)))) << "absent and null are the same";
      ++looked_at;
      if (answer.find("unsupported")) continue;
      const JsonValue* assumed = answer.find("assumed");
      if (assumed && assumed->find(path)) continue;
      ASSERT_EQ(number(answer, "step_time_s"), number(before, "step_time_s"));
      ASSERT_EQ(number(answer, "device_bytes"), number(before, "device_bytes"));
    }
  }
  EXPECT_GT(looked_at, 500);
}

TEST(HostileRows, AnswersDoNotLookAtWhatTheyAreComparedWith) {
  const JsonValue table = published();
  for (const JsonValue& row : rows_of(table)) {
    const std::string plain = to_json_text(answer_to(row));
    JsonValue scrambled = row, bare = row;
    for (const std::set<std::string>& keys : {kAnswers, kOrigins})
      for (const std::string& key : keys) {
        scrambled.set(key, JsonValue(JsonValue::Object{{"iter_time_s", -1}, {"memory_mib", "many"}, {"oom", true}}));
        remove(bare, key);
      }
    ASSERT_EQ(to_json_text(answer_to(scrambled)), plain);
    ASSERT_EQ(to_json_text(answer_to(bare)), plain);
  }
}

}  // namespace
}  // namespace trident
