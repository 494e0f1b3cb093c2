// Every file of the corpus through its target: what was once found stays found, with any compiler.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/fuzz/fuzz_target.h"

namespace trident::fuzz {

void PrintTo(const NamedTarget& target, std::ostream* out) { *out << target.name; }

namespace {

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

class Corpus : public ::testing::TestWithParam<NamedTarget> {
 protected:
  std::string folder() const { return std::string(TRIDENT_CORPUS "/") + std::string(GetParam().name); }
  bool run(const std::string& name) const { return GetParam().run(read_file(folder() + "/" + name)); }
};

// Seeds are files as the product's writers made them: they are read forever.
TEST_P(Corpus, SeedsAreAccepted) {
  int seeds = 0;
  for (const std::string& name : names_in(folder())) {
    if (!name.starts_with("seed-")) continue;
    SCOPED_TRACE(name);
    ++seeds;
    EXPECT_TRUE(run(name));
  }
  EXPECT_GE(seeds, 2);
}

// Others are what a fuzzer found, or what it was led to.
TEST_P(Corpus, HoldsNoFinding) {
  for (const std::string& name : names_in(folder())) {
    SCOPED_TRACE(name);
    EXPECT_NO_THROW(run(name));
  }
}

// Cut anywhere, with each byte changed in turn: the smallest of what a fuzzer does, without one.
TEST_P(Corpus, SeedsThatAreCutOrChangedHoldNone) {
  for (const std::string& name : names_in(folder())) {
    if (!name.starts_with("seed-")) continue;
    const std::string seed = read_file(folder() + "/" + name);
    const std::size_t step = std::max<std::size_t>(1, seed.size() / 50);
    for (std::size_t at = 0; at < seed.size(); at += step) {
      SCOPED_TRACE(name + " at byte " + std::to_string(at));
      std::string changed = seed;
      changed[at] = static_cast<char>(changed[at] ^ (1 << (at % 8)));
      EXPECT_NO_THROW(GetParam().run(changed));
      EXPECT_NO_THROW(GetParam().run(std::string_view(seed).substr(0, at)));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Corpus, ::testing::ValuesIn(targets().begin(), targets().end()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CorpusFolder, HasOneFolderPerTarget) {
  std::set<std::string> expected;
  for (const NamedTarget& target : targets()) expected.emplace(target.name);
  const std::vector<std::string> found = names_in(TRIDENT_CORPUS);
  EXPECT_EQ(std::set(found.begin(), found.end()), expected);
}

}  // namespace
}  // namespace trident::fuzz
