// The folder goldens/ holds what `trident import` prints of every file in tests/import/files, with where each value comes from.
// RENEW_GOLDENS=1 test_import --gtest_filter='*ImportGolden*' writes them anew; git diff then shows what changed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "core/file_io.h"
#include "import/import.h"

namespace trident {
namespace {

const std::filesystem::path kInputFolder = TRIDENT_SOURCE_DIR "/tests/import/files";

// Names of the files that import reads. The others list keys; one is refused, which ImportOfSystems says.
std::vector<std::string> golden_inputs() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kInputFolder))
    if (!entry.is_directory() && entry.path().extension() != ".txt" && entry.path().filename() != "open_r1.sh")
      names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

std::string golden_of(const std::string& input) {
  return (kInputFolder / "goldens" / std::filesystem::path(input).replace_extension("json")).string();
}

// In the folder of the inputs, so that places are plain names.
class ImportGolden : public ::testing::TestWithParam<std::string> {
 protected:
  ImportGolden() { std::filesystem::current_path(kInputFolder); }
  ~ImportGolden() override { std::filesystem::current_path(before_); }

 private:
  std::filesystem::path before_ = std::filesystem::current_path();
};

TEST_P(ImportGolden, IsWhatImportPrints) {
  const std::string printed = config_text(import_files({GetParam()}));
  EXPECT_EQ(config_text(import_files({GetParam()})), printed) << "the second time";
  if (std::getenv("RENEW_GOLDENS") != nullptr) write_file(golden_of(GetParam()), printed);
  EXPECT_EQ(printed, file_exists(golden_of(GetParam())) ? read_file(golden_of(GetParam())) : "no golden");
}

INSTANTIATE_TEST_SUITE_P(Folder, ImportGolden, ::testing::ValuesIn(golden_inputs()), [](const auto& info) {
  return std::filesystem::path(info.param).stem().string();
});

TEST(ImportGoldens, EachHasItsInput) {
  std::vector<std::string> expected;
  for (const std::string& input : golden_inputs()) expected.push_back(golden_of(input));
  for (const auto& entry : std::filesystem::directory_iterator(kInputFolder / "goldens"))
    EXPECT_EQ(std::ranges::count(expected, entry.path().string()), 1) << entry.path();
}

}  // namespace
}  // namespace trident
