// Whole checkpoints: what makes one up, and comparing two.
#include "checkpoint/checkpoint_check.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "checkpoint/box_copy.h"
#include "checkpoint/checkpoint_diff.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_index.h"
#include "checkpoint/commit.h"
#include "core/clock.h"
#include "core/file_descriptor.h"
#include "core/file_io.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

TEST(BoxTiling, FindsHolesAndOverlaps) {
  const auto problem = [](std::vector<std::int64_t> shape, const std::vector<TensorBox>& boxes) {
    return tiling_problem(shape, boxes).value_or(std::string());
  };
  EXPECT_EQ(problem({4, 6}, {{{0, 0}, {4, 6}}}), "");
  EXPECT_EQ(problem({4, 6}, {{{2, 0}, {2, 6}}, {{0, 0}, {2, 1}}, {{0, 1}, {2, 5}}}), "");
  EXPECT_EQ(problem({}, {{{}, {}}}), "");
  EXPECT_EQ(problem({0, 6}, {}), "");
  EXPECT_EQ(problem({2, 2, 2}, {{{0, 0, 0}, {2, 2, 1}}, {{0, 0, 1}, {2, 1, 1}}, {{0, 1, 1}, {2, 1, 1}}}), "");
  EXPECT_EQ(problem({4, 6}, {{{0, 0}, {4, 6}}, {{1, 1}, {0, 3}}}), "");  // nothing in it
  EXPECT_EQ(problem({4, 6}, {}), "24 of 24 elements are in no box");
  EXPECT_EQ(problem({}, {}), "1 of 1 elements are in no box");
  EXPECT_EQ(problem({4, 6}, {{{0, 0}, {4, 5}}}), "4 of 24 elements are in no box");
  EXPECT_EQ(problem({4, 6}, {{{0, 0}, {4, 6}}, {{3, 5}, {1, 1}}}), "boxes [0:4, 0:6] and [3:4, 5:6] overlap");
  EXPECT_EQ(problem({}, {{{}, {}}, {{}, {}}}), "boxes [] and [] overlap");
  // As many elements as there are, and yet wrong.
  EXPECT_EQ(problem({4, 6}, {{{0, 0}, {2, 6}}, {{1, 0}, {2, 6}}}), "boxes [0:2, 0:6] and [1:3, 0:6] overlap");
  EXPECT_EQ(problem({4, 6}, {{{1, 0}, {4, 6}}}), "box [1:5, 0:6] lies outside of [0:4, 0:6]");
  EXPECT_EQ(problem({4, 6}, {{{0}, {4}}}), "box [0:4] lies outside of [0:4, 0:6]");
  // Beyond the convenient size: 2^62 elements, 1,024 columns.
  const std::int64_t side = std::int64_t{1} << 31;
  std::vector<TensorBox> columns;
  for (std::int64_t i = 0; i < 1024; ++i) columns.push_back({{0, i * (side / 1024)}, {side, side / 1024}});
  EXPECT_EQ(problem({side, side}, columns), "");
  columns[7].shape[1] -= 1;
  EXPECT_EQ(problem({side, side}, columns), fmt::format("{} of {} elements are in no box", side, side * side));
}

// Random cuts, and the same with one box moved, taken away or doubled.
TEST(BoxTiling, AgreesWithCounting) {
  std::uint32_t random = 7;
  const auto draw = [&](std::int64_t below) {
    return static_cast<std::int64_t>((random = random * 1664525 + 1013904223) >> 16) % below;
  };
  int wrong = 0;
  for (int i = 0; i < 300; ++i) {
    const std::vector<std::int64_t> shape{5, 4, 6};
    std::vector<TensorBox> boxes{whole(shape)};
    for (int cut = 0; cut < 6; ++cut) {  // halves one box along one dimension
      TensorBox& box = boxes[static_cast<std::size_t>(draw(std::ssize(boxes)))];
      const auto d = static_cast<std::size_t>(draw(3));
      if (box.shape[d] < 2) continue;
      TensorBox rest = box;
      const std::int64_t first = 1 + draw(box.shape[d] - 1);
      box.shape[d] = first;
      rest.offset[d] += first;
      rest.shape[d] -= first;
      boxes.push_back(rest);
    }
    const std::int64_t change = draw(4);
    TensorBox& some = boxes[static_cast<std::size_t>(draw(std::ssize(boxes)))];
    if (change == 1) some.shape[0] = std::min<std::int64_t>(some.shape[0] + 1, 5 - some.offset[0]);
    if (change == 2) some.offset[2] = std::max<std::int64_t>(some.offset[2] - 1, 0);
    if (change == 3) boxes.push_back(TensorBox(some));
    std::vector<int> times(5 * 4 * 6);
    for (const TensorBox& box : boxes)
      for (std::int64_t x = 0; x < box.shape[0]; ++x)
        for (std::int64_t y = 0; y < box.shape[1]; ++y)
          for (std::int64_t z = 0; z < box.shape[2]; ++z)
            ++times[static_cast<std::size_t>(((box.offset[0] + x) * 4 + box.offset[1] + y) * 6 + box.offset[2] + z)];
    const bool right = std::all_of(times.begin(), times.end(), [](int n) { return n == 1; });
    wrong += !right;
    EXPECT_EQ(!tiling_problem(shape, boxes), right) << i;
  }
  EXPECT_GT(wrong, 100);
  EXPECT_LT(wrong, 280);
}

class WholeCheckpoints : public ::testing::Test {
 protected:
  // A checkpoint in this cut, in a folder of that name.
  std::string write(const std::string& name, int cut, DType weights = DType::kBF16, const test::ValueOf& value = test::some_value) {
    const Manifest manifest = test::small_manifest(weights);
    test::write_checkpoint(folder_ / name, manifest, test::small_files(manifest, cut), value);
    return folder_ / name;
  }
  static std::vector<std::string> problems(const std::string& path) { return check_checkpoint(path, open_manifest(path)); }
  // Rewrites the manifest after a change.
  static void change(const std::string& path, const std::function<void(Manifest&)>& how) {
    Manifest manifest = open_manifest(path);
    how(manifest);
    test::write_manifest(path, manifest);
  }
  static CheckpointDifference diff(const std::string& a, const std::string& b) {
    StoredTensors of_a(a), of_b(b);
    return compare_checkpoints(of_a, of_b);
  }

  TemporaryFolder folder_;
};

TEST_F(WholeCheckpoints, AreWhole) {
  for (const int cut : {0, 1, 2})
    for (const DType weights : {DType::kBF16, DType::kF32}) {
      const std::string path = write(fmt::format("{}{}", cut, to_string(weights)), cut, weights);
      EXPECT_EQ(problems(path), std::vector<std::string>{});
      EXPECT_NO_THROW(check_files(path, open_manifest(path)));
    }
}

TEST_F(WholeCheckpoints, AreLockedWhileTheyAreChecked) {
  const std::string path = write("a", 1);
  const Manifest manifest = open_manifest(path);
  const auto remove = [&](std::int64_t, std::int64_t) {
    EXPECT_TRUE(is_being_read(path));
    if (folder_exists(path)) std::filesystem::rename(path, folder_ / "b");
  };
  expect_error<DataError>([&] { check_checkpoint(path, manifest, remove); }, {path + ": was removed while it was read"});
}

// Whoever may read the folder can keep it locked.
TEST_F(WholeCheckpoints, AreReadAlthoughAnotherHasTheLock) {
  const std::string path = write("a", 1);
  const FileDescriptor another(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ASSERT_EQ(::flock(another.get(), LOCK_EX | LOCK_NB), 0);
  const double start = monotonic_seconds();
  std::string said;
  const auto say = [&](const std::string& line) { said = line; };
  EXPECT_EQ(check_checkpoint(path, open_manifest(path), {}, say), std::vector<std::string>{});
  EXPECT_GE(monotonic_seconds() - start, 1.9);
  EXPECT_TRUE(contains(said, path + ": another program keeps it locked (flock)")) << said;
  ASSERT_EQ(::flock(another.get(), LOCK_UN), 0);
  EXPECT_EQ(StoredTensors(path).lock_note(), "");
}

TEST_F(WholeCheckpoints, AllProblemsAreNamed) {
  const std::string path = write("a", 1);
  std::filesystem::remove(path + "/weights/w-00001-0.safetensors");
  std::string other = read_file(path + "/optim/o-00000-0.safetensors");
  other.back() = static_cast<char>(other.back() ^ 1);
  write_file(path + "/optim/o-00000-0.safetensors", other);
  const Manifest manifest = open_manifest(path);
  const auto weights = std::ranges::find(manifest.files, "weights/w-00000-0.safetensors", &ManifestFile::path);
  ASSERT_NE(weights, manifest.files.end());
  other = read_file(path + "/" + weights->path);
  char& first = other[static_cast<std::size_t>(weights->table_bytes)];
  first = static_cast<char>(first ^ 0x10);
  write_file(path + "/" + weights->path, other);
  const std::vector<std::string> found = problems(path);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_TRUE(contains(found[0], "w-00000-0.safetensors: block 0")) << found[0];
  EXPECT_TRUE(contains(found[1], "o-00000-0.safetensors: block 0")) << found[1];
  EXPECT_TRUE(contains(found[2], "w-00001-0.safetensors: cannot be opened: No such file")) << found[1];
  EXPECT_TRUE(contains(error_of<DataError>([&] { check_files(path, open_manifest(path)); }), "w-00001-0.safetensors"));
  EXPECT_TRUE(contains(error_of<DataError>([&] { StoredTensors{path}; }), "w-00001-0.safetensors"));
}

TEST_F(WholeCheckpoints, NothingOfABaseIsStored) {
  const auto leave = [&](const std::string& name, std::uint64_t hash) {
    Manifest manifest = test::small_manifest();
    std::vector<test::SmallFile> files = test::small_files(manifest, 1);
    manifest.base = "/base";
    manifest.tensors[0].frozen = true, manifest.tensors[0].base = hash;
    for (test::SmallFile& file : files)
      std::erase_if(file.boxes, [&](const FileBox& box) { return box.key.ends_with(manifest.tensors[0].name); });
    test::write_checkpoint(folder_ / name, manifest, files);
    return folder_ / name;
  };
  const std::string a = leave("a", 7), b = leave("b", 7), c = leave("c", 8), all = write("all", 1);
  EXPECT_EQ(problems(a), std::vector<std::string>{});
  EXPECT_TRUE(diff(a, b).is_equal());
  EXPECT_EQ(diff(a, b).compared, diff(a, c).compared + 1);
  ASSERT_EQ(diff(a, c).tensors.size(), 1u);
  EXPECT_EQ(diff(a, c).tensors[0].what, "has other values in the base of B than in that of A");
  EXPECT_EQ(diff(all, c).notes, std::vector<std::string>{"w lies in the base of B only: not compared"});
  change(all, [](Manifest& manifest) {
    manifest.base = "/base";
    manifest.tensors[0].frozen = true, manifest.tensors[0].base = 7;
  });
  ASSERT_FALSE(problems(all).empty());
  EXPECT_TRUE(contains(problems(all)[0], "tensor \"w\": is there, and the manifest says that the tensor lies in a base"));
}

TEST_F(WholeCheckpoints, BoxesMustMakeUpTheTensors) {
  // A file that the manifest forgot.
  std::string path = write("hole", 1);
  change(path, [](Manifest& manifest) { manifest.files.erase(manifest.files.begin() + 2); });
  const std::vector<std::string> found = problems(path);
  ASSERT_EQ(found.size(), 2u);  // of w and b
  EXPECT_TRUE(contains(found[0], "hole: tensor \"w\": 20 of 60 elements are in no box")) << found[0];
  EXPECT_TRUE(contains(found[1], "hole: tensor \"b\": 4 of 7 elements are in no box")) << found[1];
  EXPECT_TRUE(contains(error_of<DataError>([&] { StoredTensors{path}; }), "tensor \"w\": 20 of 60"));
  // One twice, under two names.
  path = write("twice", 0);
  change(path, [&](Manifest& manifest) {
    std::filesystem::copy_file(path + "/" + manifest.files[1].path, path + "/again");
    manifest.files.push_back(manifest.files[1]);
    manifest.files.back().path = std::string("again");
  });
  ASSERT_EQ(problems(path).size(), 9u);
  EXPECT_TRUE(contains(problems(path)[0], "tensor \"master/w\": boxes [0:6, 0:10] and [0:6, 0:10] overlap"));
}

TEST_F(WholeCheckpoints, BoxesMustBeTheManifests) {
  const auto only_problem = [&](const std::string& name, const std::function<void(Manifest&)>& how) {
    const std::string path = write(name, 0);
    change(path, how);
    const std::vector<std::string> found = problems(path);
    return found.empty() ? std::string() : found[0];
  };
  EXPECT_TRUE(contains(only_problem("other", [](Manifest& m) { m.tensors[1].name = std::string("c"); }),
                       "tensor \"b\": the manifest does not name it"));
  EXPECT_TRUE(contains(only_problem("state",
                                    [](Manifest& m) {
                                      m.optimizer_states = {"exp_avg", "momentum"};
                                    }),
                       "tensor \"exp_avg_sq/w\": the manifest does not name it"));
  EXPECT_TRUE(contains(only_problem("dtype", [](Manifest& m) { m.weights = DType::kF16; }),
                       "tensor \"w\": is bf16, the manifest says f16"));
  EXPECT_TRUE(contains(only_problem("small",
                                    [](Manifest& m) {
                                      m.tensors[0].shape = {6, 9};
                                    }),
                       "tensor \"w\": box [0:6, 0:10] lies outside of [0:6, 0:9]"));
  EXPECT_TRUE(contains(only_problem("rank",
                                    [](Manifest& m) {
                                      m.tensors[1].shape = {7, 1};
                                    }),
                       "tensor \"b\": box [0:7] lies outside"));
  EXPECT_TRUE(contains(only_problem("weights", [](Manifest& m) { m.complete = false; }),
                       "tensor \"master/w\": the manifest does not name it"));
}

TEST_F(WholeCheckpoints, RunsMustAnnounceTheBoxes) {
  const auto with_run = [&](const std::string& name, TensorRun run) {
    const std::string path = write(name, 1);
    change(path, [&](Manifest& manifest) { manifest.files[2].runs = {run, {1, 1, 0, kTensorParts}}; });  // rows 1 and 2 of six
    const std::vector<std::string> found = problems(path);
    return found.empty() ? std::string() : found[0];
  };
  const int first = kTensorParts * 10 / 60;  // of elements 10 to 29
  const int last = static_cast<int>(std::int64_t{kTensorParts} * 29 / 60);
  EXPECT_EQ(with_run("all", {0, 3, 0, kTensorParts}), "");
  EXPECT_EQ(with_run("just", {0, 1, first, last + 1}), "");
  const std::string missing = "tensor \"w\": box [1:3, 0:10] is in no run that the manifest has of this file";
  EXPECT_TRUE(contains(with_run("late", {0, 1, first + 1, kTensorParts}), missing));
  EXPECT_TRUE(contains(with_run("early", {0, 1, 0, last}), missing));
  EXPECT_TRUE(contains(with_run("none", {2, 1, 0, kTensorParts}), missing));
}

TEST_F(WholeCheckpoints, AreEqualInAnyCut) {
  for (const DType weights : {DType::kBF16, DType::kF32}) {
    const std::string name(to_string(weights));
    std::vector<std::string> paths;
    for (const int cut : {0, 1, 2}) paths.push_back(write(fmt::format("{}{}", name, cut), cut, weights));
    for (const std::string& a : paths)
      for (const std::string& b : paths) {
        const CheckpointDifference difference = diff(a, b);
        EXPECT_TRUE(difference.is_equal()) << a << b;
        EXPECT_EQ(difference.compared, weights == DType::kF32 ? 9 : 12);
      }
  }
}

TEST_F(WholeCheckpoints, TheFirstDifferenceIsNamed) {
  // Elements 25 = [2, 5] and 41 = [4, 1] of exp_avg/w, and the sign of a zero in master/b.
  const auto changed = [](const std::string& key, std::int64_t i) {
    if (key == "exp_avg/w" && (i == 25 || i == 41)) return 2.5;
    if (key == "master/b" && i == 6) return -0.0;
    return key == "master/b" && i == 5 ? std::nan("") : test::some_value(key, i);
  };
  const auto before = [](const std::string& key, std::int64_t i) {
    if (key == "master/b" && i == 6) return 0.0;
    return key == "master/b" && i == 5 ? std::nan("") : test::some_value(key, i);
  };
  for (const int cut_a : {0, 1, 2})
    for (const int cut_b : {0, 1, 2}) {
      const CheckpointDifference difference = diff(write(fmt::format("a{}", cut_a), cut_a, DType::kBF16, before),
                                                   write(fmt::format("b{}", cut_b), cut_b, DType::kBF16, changed));
      ASSERT_EQ(difference.tensors.size(), 2u);
      const TensorDifference& w = difference.tensors[0];
      EXPECT_EQ(w.key, "exp_avg/w");
      EXPECT_EQ(w.different, 2);
      EXPECT_EQ(w.elements, 60);
      EXPECT_EQ(w.first, (std::vector<std::int64_t>{2, 5})) << cut_a << cut_b;
      EXPECT_EQ(w.first_a, static_cast<float>(test::some_value("exp_avg/w", 25)));
      EXPECT_EQ(w.first_b, 2.5);
      const TensorDifference& b = difference.tensors[1];
      EXPECT_EQ(b.key, "master/b");
      EXPECT_EQ(b.different, 1);
      EXPECT_EQ(b.first, std::vector<std::int64_t>{6});
      EXPECT_TRUE(difference.state.empty());
    }
}

TEST_F(WholeCheckpoints, AreComparedInThreeDimensions) {
  Manifest manifest = test::small_manifest(DType::kF32);
  manifest.complete = false;
  manifest.tensors = {{"t", {3, 4, 5}}};
  const std::vector<std::vector<TensorBox>> cuts = {
      {whole({3, 4, 5})}, {{{0, 0, 0}, {3, 1, 5}}, {{0, 1, 0}, {3, 3, 5}}}, {{{0, 0, 0}, {3, 4, 2}}, {{0, 0, 2}, {3, 4, 3}}}};
  for (std::size_t c = 0; c < cuts.size(); ++c)
    for (const bool changed : {false, true}) {
      std::vector<test::SmallFile> files;
      for (const TensorBox& box : cuts[c]) files.push_back({fmt::format("{}", files.size()), {{"t", DType::kF32, box}}});
      test::write_checkpoint(
          folder_ / fmt::format("{}{}", c, changed), manifest, files,
          [&](const std::string& key, std::int64_t i) { return changed && (i == 33 || i == 58) ? 7 : test::some_value(key, i); });
    }
  for (std::size_t a = 0; a < cuts.size(); ++a)
    for (std::size_t b = 0; b < cuts.size(); ++b) {
      EXPECT_TRUE(diff(folder_ / fmt::format("{}false", a), folder_ / fmt::format("{}false", b)).is_equal()) << a << b;
      const CheckpointDifference difference = diff(folder_ / fmt::format("{}false", a), folder_ / fmt::format("{}true", b));
      ASSERT_EQ(difference.tensors.size(), 1u) << a << b;
      EXPECT_EQ(difference.tensors[0].different, 2) << a << b;
      EXPECT_EQ(difference.tensors[0].first, (std::vector<std::int64_t>{1, 2, 3})) << a << b;
    }
}

TEST_F(WholeCheckpoints, MastersAreComparedAcrossDtypes) {
  // f32 weights are the masters of the bf16 run.
  const auto narrow = [](const std::string& key, std::int64_t i) { return test::some_value(key.substr(key.find('/') + 1), i); };
  const std::string bf16 = write("bf16", 1, DType::kBF16, narrow), f32 = write("f32", 2, DType::kF32, narrow);
  const CheckpointDifference difference = diff(bf16, f32);
  EXPECT_TRUE(difference.is_equal());
  EXPECT_EQ(difference.compared, 9);  // masters and two states
  // Without masters there is only what is stored.
  Manifest alone = test::small_manifest();
  alone.complete = false;
  test::write_checkpoint(folder_ / "alone", alone, test::small_files(alone, 2), narrow);
  EXPECT_TRUE(diff(bf16, folder_ / "alone").is_equal());
  EXPECT_EQ(diff(bf16, folder_ / "alone").notes.size(), 2u);  // the states
  const CheckpointDifference rounded = diff(f32, folder_ / "alone");
  EXPECT_EQ(rounded.tensors.size(), 3u);  // bf16 is not f32
  EXPECT_TRUE(contains(rounded.notes.at(0), "weights are f32 and bf16"));
}

TEST_F(WholeCheckpoints, OtherTensorsAndStatesDiffer) {
  const std::string a = write("a", 0), b = write("b", 1);
  change(b, [](Manifest& manifest) {
    manifest.state.batches += 2;
    manifest.state.best_valid_loss = 2.5;
    manifest.state.blend_now = {3};
  });
  EXPECT_EQ(diff(a, b).state, (std::vector<std::string>{"batches: 7 and 9", "blend_now: [] and [3]"}));
  EXPECT_TRUE(contains(diff(a, b).notes.at(0), "best_valid_loss: null and 2.5, of the steps that each run saved: not counted"));
  EXPECT_TRUE(diff(a, b).tensors.empty());
  Manifest other = test::small_manifest();
  other.tensors = {{"w", {10, 6}}, {"c", {7}}, {"scale", {}}};
  other.optimizer_states = {"exp_avg"};
  std::vector<test::SmallFile> files = test::small_files(other, 0);
  for (test::SmallFile& file : files)
    for (FileBox& box : file.boxes)
      if (box.key.ends_with("w")) box.box = whole({10, 6});
  test::write_checkpoint(folder_ / "c", other, files);
  std::vector<std::string> seen;
  for (const TensorDifference& tensor : diff(a, folder_ / "c").tensors) seen.push_back(tensor.key + " " + tensor.what);
  EXPECT_EQ(seen, (std::vector<std::string>{"exp_avg_sq is a state of the optimizer in A only",
                                            "w has the shapes [0:6, 0:10] and [0:10, 0:6]", "b is in A only", "c is in B only"}));
}

TEST_F(WholeCheckpoints, NormsAreThoseOfTheStoredWeights) {
  for (const int cut : {0, 1, 2}) {
    StoredTensors checkpoint(write(fmt::format("{}", cut), cut, DType::kBF16,
                                   [](const std::string&, std::int64_t i) { return 0.5 + static_cast<double>(i); }));
    double sum = 0;
    for (int i = 0; i < 60; ++i) sum += (0.5 + i) * (0.5 + i);  // exact in bf16
    EXPECT_DOUBLE_EQ(weight_norm(checkpoint, 0), std::sqrt(sum));
    EXPECT_DOUBLE_EQ(weight_norm(checkpoint, 2), 0.5);
  }
}

// The reader that docs/checkpoints.md shows, run as it stands there.

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
  // The program's output and exit.
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
