// Tests what holds of the answer to every published run: its verdict agrees with its numbers, bytes are whole, every null is
// listed.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/planner/price/price_fixture.h"

namespace trident {
namespace {

constexpr JsonRules kTables{.comments = false, .max_bytes = 1 << 22, .max_depth = 16, .blame = ExitCode::kData};

std::vector<JsonValue> published_rows() {
  std::vector<JsonValue> rows;
  for (const char* name : {"published_rows.json", "other_rows.json"}) {
    const JsonValue table = read_json_file(std::string(TRIDENT_TRUTH_DIR "/") + name, kTables);
    const JsonValue* entries = table.is_array() ? &table : table.find("entries");
    rows.insert(rows.end(), entries->items().begin(), entries->items().end());
  }
  return rows;
}

// Members of a row that only describe.
bool is_priced(const std::string& path) {
  return path != "model.name" && path != "model.positions" && !path.starts_with("model.params");
}

// "parallel.vpp", ...: what a row says to be open.
std::vector<std::string> nulls_of(const JsonValue& row) {
  std::vector<std::string> paths;
  for (const JsonMember& member : row.members()) {
    if (member.key == "measured" || member.key == "derived") continue;
    if (member.value.is_null()) paths.push_back(member.key);
    if (!member.value.is_object()) continue;
    for (const JsonMember& inner : member.value.members())
      if (inner.value.is_null() && is_priced(member.key + '.' + inner.key)) paths.push_back(member.key + '.' + inner.key);
  }
  return paths;
}

void expect_whole_bytes(const JsonValue& answer) {
  for (const JsonMember& member : answer.members())
    if (member.key.ends_with("_bytes")) {
      EXPECT_TRUE(member.value.is_integer()) << member.key;
    }
  for (const JsonMember& part : answer.find("memory_parts")->members()) EXPECT_TRUE(part.value.is_integer()) << part.key;
}

TEST(PublishedRows, VerdictsAgreeWithTheirNumbers) {
  int full = 0, small = 0, large = 0, refused = 0;
  for (const JsonValue& row : published_rows()) {
    const JsonValue answer = priced_row(row);
    SCOPED_TRACE(to_json_text(*row.find("id")));
    if (!unsupported(answer).empty()) {  // batches that their replicas do not divide
      ++refused;
      continue;
    }
    const double device = number(answer, "device_bytes"), least = number(answer, "least_device_bytes"),
                 capacity = number(answer, "capacity_bytes");
    const bool fits = answer.find("fits")->as_bool();
    EXPECT_EQ(fits, least <= capacity);
    EXPECT_EQ(fits, device <= capacity);
    EXPECT_LE(number(answer, "peak_allocated_bytes"), least);
    EXPECT_LE(least, device);
    (!fits ? large : device == capacity ? full : small) += 1;
    expect_whole_bytes(answer);
  }
  EXPECT_GT(full, 10) << "GPUs that their allocator's usual reserve would not fit";
  EXPECT_GT(small, 100);
  EXPECT_GT(large, 50);
  EXPECT_LE(refused, 2);
}

TEST(PublishedRows, EveryNullIsListed) {
  std::size_t nulls = 0;
  for (const JsonValue& row : published_rows()) {
    const JsonValue answer = priced_row(row);
    SCOPED_TRACE(to_json_text(*row.find("id")));
    if (!unsupported(answer).empty()) continue;
    ASSERT_NE(answer.find("assumed"), nullptr);
    for (const std::string& path : nulls_of(row)) {
      EXPECT_NE(answer.find("assumed")->find(path), nullptr) << path;
      ++nulls;
    }
  }
  EXPECT_GT(nulls, 1000u);
}

// Each member of a row that says all of them, left open by itself; one node and one rank, too.
TEST(PublishedRows, EachMemberThatIsLeftOpenIsListed) {
  const JsonValue full = run_row(
      R"({"model": {"tied": true, "experts": 1}, "cluster": {"interconnect": "8x 200 Gb/s"},
          "stack": {"attention": "flash2", "year": 2024},
          "parallel": {"tp": 1, "pp": 1, "vpp": 1, "dp": 8, "cp": 1, "ep": 1, "sp": false, "zero": 0, "schedule": "1f1b"}})");
  EXPECT_EQ(to_json_text(*priced_row(full).find("assumed")), "{}");
  int listed = 0, refused = 0;
  const auto look = [&](const JsonValue& row, const std::string& path) {
    const JsonValue answer = priced_row(row);
    if (!unsupported(answer).empty()) {
      EXPECT_TRUE(unsupported(answer).starts_with(path + " is missing")) << unsupported(answer);
      ++refused;
      return;
    }
    EXPECT_NE(answer.find("assumed")->find(path), nullptr) << path;
    EXPECT_EQ(answer.find("assumed")->members().size(), 1u) << to_json_text(answer);
    ++listed;
  };
  for (const JsonMember& member : full.members()) {
    if (member.key == "id") continue;
    if (!member.value.is_object()) {
      JsonValue open = full;
      open.set(member.key, nullptr);
      look(open, member.key);
      continue;
    }
    for (const JsonMember& inner : member.value.members()) {
      JsonValue open = full;
      open.find(member.key)->set(inner.key, nullptr);
      look(open, member.key + '.' + inner.key);
    }
  }
  EXPECT_EQ(refused, 7) << "layers, hidden, heads, sequence, GPU, GPUs, batch";
  EXPECT_GE(listed, 20);
}

}  // namespace
}  // namespace trident
