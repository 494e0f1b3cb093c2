// Preparing data where memory or threads run out, which no sanitizer lets a process live through.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "core/file_io.h"
#include "data/prepare.h"
#include "tests/data/compress.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

class PrepareLimits : public ::testing::Test {
 protected:
  TemporaryFolder folder_;
  std::unique_ptr<Tokenizer> tokenizer_ = load_tokenizer("gpt2");

  std::string input(const std::string& name, const std::string& content) {
    write_file(folder_ / name, content);
    return folder_ / name;
  }
  void prepare(const std::vector<std::string>& inputs, PrepareOptions options) {
    options.overwrite = Overwrite::kYes;
    prepare_text(inputs, *tokenizer_, folder_ / "out", options);
  }
};

TEST_F(PrepareLimits, DocumentsThatMemoryHasNoRoomForAreNamed) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the process where memory ends";
#endif
  const auto prepare_with = [&](const std::string& path, rlim_t megabytes) {
    std::ifstream size("/proc/self/statm");
    rlim_t pages = 0;
    size >> pages;
    const rlimit limit{pages * 4096 + (megabytes << 20), RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    try {
      prepare({path}, {.separator_line = ""});
    } catch (const DataError& error) {
      std::cerr << error.what();
      std::_Exit(static_cast<int>(folder_.names().size()));  // the input, and no output
    }
    std::_Exit(0);
  };
  const std::string line(20 << 20, 'x');
  const std::string read = input("a.txt.gz", gzipped("first\n\n" + line + line + line));
  EXPECT_EXIT(prepare_with(read, 80), ::testing::ExitedWithCode(1),
              "a.txt.gz:3: out of memory for the document that begins here; use fewer");
  std::filesystem::remove(read);
  const std::string encoded = input("b.jsonl.gz", gzipped("{\"text\": \"one\"}\n{\"text\": \"" + line + "\"}\n"));
  EXPECT_EXIT(prepare_with(encoded, 240), ::testing::ExitedWithCode(1),
              "b.jsonl.gz:2: out of memory for the document that begins here");
}

// With some threads started and no address space for the stacks of the others.
TEST_F(PrepareLimits, TooFewThreadsAreAnErrorAndNotAWait) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers need more address space than this test leaves";
#endif
  const std::string path = input("a.txt", "text");
  const auto prepare_with_little_room = [&] {
    std::ifstream size("/proc/self/statm");
    rlim_t pages = 0;
    size >> pages;
    const rlimit limit{pages * 4096 + (rlim_t{500} << 20), RLIM_INFINITY};
    setrlimit(RLIMIT_AS, &limit);
    try {
      prepare({path}, {.workers = 100});
    } catch (const ConfigError& error) {
      std::cerr << error.what();
      std::_Exit(static_cast<int>(folder_.names().size()));  // the output files are gone, the input is there
    }
    std::_Exit(0);
  };
  EXPECT_EXIT(prepare_with_little_room(), ::testing::ExitedWithCode(1),
              "--workers = 100: the system gave [1-9][0-9]? threads: .*; use fewer, or raise ulimit");
  EXPECT_EQ(folder_.names().size(), 1u);
}

}  // namespace
}  // namespace trident
