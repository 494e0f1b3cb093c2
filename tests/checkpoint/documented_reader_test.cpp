// The reader that docs/checkpoints.md shows, run as it stands there.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "checkpoint/checkpoint_index.h"
#include "core/file_io.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

class DocumentedReader : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("python3 -c 'import numpy' 2>/dev/null") != 0) GTEST_SKIP() << "python3 has no numpy here";
    const std::string page = read_file(TRIDENT_SOURCE_DIR "/docs/checkpoints.md");
    const std::string_view fence = "```python\n";
    const std::size_t begin = page.find(fence);
    ASSERT_NE(begin, page.npos);
    write_file(folder_ / "read_checkpoint.py",
               page.substr(begin + fence.size(), page.find("```\n", begin + 1) - begin - fence.size()));
  }
  // What it prints, and how it ends.
  std::pair<std::string, int> run(const std::string& checkpoint) const {
    const std::string said = folder_ / "said";
    const int status = std::system(fmt::format("python3 {} {} >{} 2>&1", folder_ / "read_checkpoint.py", checkpoint, said).c_str());
    return {read_file(said), status};
  }

  TemporaryFolder folder_;
};

TEST_F(DocumentedReader, ReadsEveryCut) {
  for (const DType weights : {DType::kBF16, DType::kF32})
    for (const int cut : {0, 1, 2}) {
      const Manifest manifest = test::small_manifest(weights);
      const std::string path = folder_ / fmt::format("{}-{}", to_string(weights), cut);
      // Values that bf16 has, too.
      const auto value = [](const std::string& key, std::int64_t i) { return std::round(100 * test::some_value(key, i)); };
      test::write_checkpoint(path, manifest, test::small_files(manifest, cut), value);
      const auto [out, status] = run(path);
      ASSERT_EQ(status, 0) << out;
      // Every key, its shape and norm.
      std::map<std::string, std::string> expected;
      for (const StoredKind& kind : stored_kinds(manifest))
        for (const ManifestTensor& tensor : manifest.tensors) {
          double sum = 0;
          for (std::int64_t i = 0; i < whole(tensor.shape).elements(); ++i) sum += std::pow(value(kind.prefix + tensor.name, i), 2);
          std::string shape;
          for (const std::int64_t extent : tensor.shape) shape += fmt::format("{}{}", shape.empty() ? "" : ", ", extent);
          expected[kind.prefix + tensor.name] = fmt::format("[{}] {:.6g}", shape, std::sqrt(sum));
        }
      std::map<std::string, std::string> seen;
      std::istringstream lines(out);
      for (std::string line; std::getline(lines, line);) seen[line.substr(0, line.find(' '))] = line.substr(line.find(' ') + 1);
      EXPECT_EQ(seen, expected) << path;
    }
}

TEST_F(DocumentedReader, FindsDamage) {
  if (std::system("python3 -c 'import xxhash' 2>/dev/null") != 0) GTEST_SKIP() << "python3 has no xxhash here";
  const Manifest manifest =
      test::write_checkpoint(folder_ / "a", test::small_manifest(), test::small_files(test::small_manifest(), 1));
  for (const std::string& name : {std::string("manifest.json"), manifest.files[0].path}) {
    const std::string path = folder_ / "a/" + name, content = read_file(path);
    for (const std::size_t byte : {std::size_t{40}, content.size() - 60}) {
      std::string damaged = content;
      damaged[byte] = static_cast<char>(damaged[byte] ^ 1);
      write_file(path, damaged);
      const auto [out, status] = run(folder_ / "a");
      EXPECT_NE(status, 0) << out;
    }
    write_file(path, content);
  }
  EXPECT_EQ(run(folder_ / "a").second, 0);
}

}  // namespace
}  // namespace trident
