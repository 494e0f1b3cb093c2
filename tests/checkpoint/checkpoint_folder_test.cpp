#include "checkpoint/checkpoint_folder.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>

#include "checkpoint/checkpoint_path.h"
#include "core/file_io.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

Manifest at_step(std::int64_t step) {
  Manifest manifest = test::small_manifest();
  manifest.state.updates = manifest.state.batches = step;
  manifest.written_unix = 1'700'000'000 + step;
  return manifest;
}

TEST(CheckpointName, RoundTrips) {
  EXPECT_EQ(checkpoint_name(1000), "step-00001000");
  EXPECT_EQ(checkpoint_name(123456789012), "step-123456789012");
  EXPECT_EQ(checkpoint_name_from("step-00001000"), (CheckpointName{1000, "", ""}));
  EXPECT_EQ(checkpoint_name_from("step-123456789012"), (CheckpointName{123456789012, "", ""}));
  EXPECT_EQ(checkpoint_name_from("step-00000000.tmp-4fA2"), (CheckpointName{0, ".tmp-", "4fA2"}));
  EXPECT_EQ(checkpoint_name_from("step-00001000.aside-12"), (CheckpointName{1000, ".aside-", "12"}));
  for (const char* name :
       {"", "step-", "step-1000", "step-000001000", "step-0000100x", "step--0001000", "step-+0001000", "Step-00001000",
        "step-00001000 ", "step-00001000.", "step-00001000.tmp-", "step-00001000.tmp-a.b", "step-00001000.tmp-a-b",
        "step-00001000.bak", "step-00001000.aside-", "xstep-00001000", "step-99999999999999999999", "manifest.json"})
    EXPECT_EQ(checkpoint_name_from(name), std::nullopt) << name;
}

TEST(ListCheckpoints, InOrderWithTheirHealth) {
  TemporaryFolder folder;
  for (const std::int64_t step : {2000, 100, 123456789, 300}) test::write_manifest(folder / checkpoint_name(step), at_step(step));
  test::write_manifest(folder / "step-00000300.aside-1", at_step(300));
  create_folder(folder / "step-00000400.tmp-ab12");
  create_folder(folder / "step-00000500");  // without a manifest
  test::write_manifest(folder / "step-00000600", at_step(600));
  std::filesystem::resize_file(folder / "step-00000600/manifest.json", 100);
  test::write_manifest(folder / "step-00000700", at_step(701));  // renamed by somebody
  write_file(folder / "step-00000800", "a file");
  std::filesystem::create_symlink("step-00000100", folder / "step-00000900");
  create_folder(folder / "step-00001100");
  std::filesystem::create_symlink("../step-00000100/manifest.json", folder / "step-00001100/manifest.json");
  create_folder(folder / "step-00001200");
  ASSERT_EQ(::mkfifo((folder / "step-00001200/manifest.json").c_str(), 0600), 0);
  create_folder(folder / "step-00001300/manifest.json");
  write_file(folder / "latest", "step-99999999\n");
  create_folder(folder / "stuff");

  std::vector<std::string> seen;
  for (const CheckpointEntry& entry : list_checkpoints(folder.path())) {
    const char* health = entry.health == CheckpointHealth::kValid     ? "valid"
                         : entry.health == CheckpointHealth::kDamaged ? "damaged"
                                                                      : "incomplete";
    seen.push_back(fmt::format("{} {} {}", entry.name, health, entry.why.substr(0, 34)));
    EXPECT_EQ(entry.written_unix, entry.health == CheckpointHealth::kValid ? 1'700'000'000 + entry.parts.step : 0) << entry.name;
    EXPECT_EQ(entry.why.empty(), entry.health == CheckpointHealth::kValid) << entry.name;
  }
  EXPECT_EQ(seen, (std::vector<std::string>{
                      "step-00000100 valid ", "step-00000300 valid ", "step-00000300.aside-1 valid ",
                      "step-00000400.tmp-ab12 incomplete has no manifest", "step-00000500 incomplete has no manifest",
                      "step-00000600 damaged does not end with its hash: no man",
                      "step-00000700 damaged holds step 701, but its folder's n", "step-00000800 damaged is not a folder",
                      "step-00000900 damaged is not a folder", "step-00001100 damaged cannot be opened: Too many levels ",
                      "step-00001200 damaged is not a regular file", "step-00001300 damaged is a folder", "step-00002000 valid ",
                      "step-123456789 valid "}));
}

TEST(ListCheckpoints, OfNothing) {
  TemporaryFolder folder;
  EXPECT_TRUE(list_checkpoints(folder.path()).empty());
  EXPECT_TRUE(list_checkpoints(folder / "none").empty());
  write_file(folder / "file", "");
  EXPECT_TRUE(list_checkpoints(folder / "file").empty());
}

TEST(OpenManifest, ReadsAndRefuses) {
  TemporaryFolder folder;
  const std::string place = folder / checkpoint_name(7);
  test::write_manifest(place, at_step(7));
  EXPECT_EQ(open_manifest(place), at_step(7));
  EXPECT_EQ(open_manifest(place + "/"), at_step(7));
  std::filesystem::create_symlink(place, folder / "best");  // a user's own name for it
  EXPECT_EQ(open_manifest(folder / "best"), at_step(7));
  const std::string manifest = place + "/manifest.json", text = read_file(manifest);
  const auto refused = [&](const std::vector<std::string>& parts) {
    expect_error<DataError>([&] { open_manifest(place); }, parts);
  };

  write_file(manifest, to_text(at_step(8)));
  refused({manifest + ": holds step 8, but its folder's name is step-00000007"});
  write_file(manifest, text.substr(0, text.size() / 2));
  refused({manifest + ": does not end with its hash"});
  ASSERT_EQ(::truncate(manifest.c_str(), kMaxManifestBytes + 1), 0);  // sparse
  refused({manifest + ": 268435457 bytes, manifests have at most 268435456"});
  std::filesystem::remove(manifest);
  refused({manifest + ": cannot be opened: No such file"});
  write_file(folder / "elsewhere", text);
  std::filesystem::create_symlink(folder / "elsewhere", manifest);
  refused({manifest + ": cannot be opened", "a symbolic link, which is not followed"});
  std::filesystem::remove(manifest);
  ASSERT_EQ(::mkfifo(manifest.c_str(), 0600), 0);
  refused({manifest + ": is not a regular file"});
  std::filesystem::remove(manifest);
  create_folder(manifest);
  refused({manifest + ": is a folder"});
  expect_error<DataError>([&] { open_manifest(folder / "none"); }, {folder / "none", "No such file"});
}

// Whoever names the run stands elsewhere than whoever started it in "started".
TEST(CheckpointPath, ARelativeFolderOfARunIsFoundFromAnywhere) {
  TemporaryFolder folder;
  const auto write_run = [&](const std::string& run_dir, const std::string& checkpoints) {
    const std::string run = folder / ("started/" + run_dir);
    create_folder(run);
    write_file(run + "/config.resolved.json",
               fmt::format(R"({{"run": {{"dir": "{}"}}, "checkpoint": {{"dir": "{}"}}}})", run_dir, checkpoints));
    return run;
  };
  for (const char* saved : {"saved/a", "runs/a/elsewhere"}) {
    const std::string checkpoints = folder / (std::string("started/") + saved);
    test::write_manifest(checkpoints + "/" + checkpoint_name(7), at_step(7));
    for (const char* run_dir : {"runs/a", "./runs//a/", "b"}) {
      const std::string run = write_run(run_dir, saved);
      EXPECT_EQ(checkpoint_path(run), checkpoints) << run_dir;
      EXPECT_EQ(checkpoint_path(run + "/7"), checkpoints + "/" + checkpoint_name(7)) << run_dir;
    }
  }
  EXPECT_EQ(checkpoint_path(write_run("c", folder / "started/saved/a")), folder / "started/saved/a") << "an absolute one";
  EXPECT_EQ(checkpoint_path(write_run("d", "none")), folder / "started/d");
  std::filesystem::rename(write_run("e", "saved/a"), folder / "moved");
  const std::filesystem::path here = std::filesystem::current_path();
  std::filesystem::current_path(folder / "started");
  const std::string moved = checkpoint_path("../moved");
  std::filesystem::current_path(here);
  EXPECT_EQ(moved, "saved/a");
}

}  // namespace
}  // namespace trident
