// open_many_boxes FOLDER [TENSORS FILES]: writes a checkpoint of 10,000 tensors in 1,024 boxes each over 1,024 files (2 GB of
// tables), unless FOLDER has it, and prints how long it takes to open it, and to read what ranks of several layouts hold. Seconds
// of the clock and of the processor. For docs/benchmarks, run by hand.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <string>

#include "checkpoint/checkpoint_check.h"
#include "checkpoint/checkpoint_folder.h"
#include "core/check.h"
#include "core/file_io.h"
#include "tests/checkpoint/many_boxes.h"

namespace trident {
namespace {

template <class Body> void timed(const std::string& what, Body&& body) {
  const auto begin = std::chrono::steady_clock::now();
  const std::clock_t processor = std::clock();
  body();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const double of_processor = static_cast<double>(std::clock() - processor) / CLOCKS_PER_SEC;
  std::printf("%-70s %8.3f s, %8.3f s of the processor\n", what.c_str(), seconds, of_processor);
  std::fflush(stdout);
}

void measure(const std::string& folder, const test::ManyBoxes& many) {
  if (!file_exists(folder + "/manifest.json"))
    timed("written", [&] { test::write_many_boxes(folder, many, [](std::int64_t) { return true; }); });
  Manifest manifest;
  timed("manifest read, its hash and members checked", [&] { manifest = open_manifest(folder); });
  timed("each file is there and as long as it should be", [&] { check_files(folder, manifest); });
  std::int64_t tables = 0;
  for (const ManifestFile& file : manifest.files) tables += file.table_bytes;
  std::printf("%zu tensors, %zu files, tables of %.1f MB\n", manifest.tensors.size(), manifest.files.size(),
              1e-6 * static_cast<double>(tables));
  for (const std::int64_t ranks : {many.files, many.files / 2, many.files / 16, many.files / 64}) {
    const std::int64_t rows = many.files / ranks, first = ranks / 2 * rows;
    timed(fmt::format("one of {} ranks reads its part of every tensor, from {} files", ranks, rows), [&] {
      ShardReader reader(folder, manifest);
      const std::vector<float> values = test::read_rows(reader, many, first, rows);
      TRIDENT_CHECK(values.back() == many.value(many.tensors - 1, first + rows - 1), "read {}", values.back());
    });
  }
}

}  // namespace
}  // namespace trident

int main(int count, char** arguments) {
  if (count != 2 && count != 4) {
    std::fprintf(stderr, "usage: open_many_boxes FOLDER [TENSORS FILES]\n");
    return 64;
  }
  try {
    trident::test::ManyBoxes many;
    if (count == 4) many = {std::atoll(arguments[2]), std::atoll(arguments[3])};
    trident::measure(arguments[1], many);
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "open_many_boxes: %s\n", error.what());
    return 1;
  }
}
