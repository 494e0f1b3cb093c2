#include "checkpoint/checkpoint_folder.h"

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <set>

#include "checkpoint/checkpoint_path.h"
#include "checkpoint/commit.h"
#include "checkpoint/format/hash128.h"
#include "checkpoint/keep_checkpoints.h"
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

TEST(ListCheckpoints, CheckpointsAreListedInOrderWithTheirHealth) {
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

TEST(ListCheckpoints, AFolderWithoutCheckpointsHasNone) {
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

// A run keeps the right checkpoints, over random histories.

Manifest empty_manifest(std::int64_t step) {
  Manifest manifest;
  manifest.state.updates = manifest.state.batches = step;
  return manifest;
}

void save(const std::string& directory, std::int64_t step) {
  const std::string temporary = temporary_name(step, "t");
  make_temporary_folder(directory + "/" + temporary);
  commit_checkpoint(directory, temporary, step, empty_manifest(step));
}

std::set<std::int64_t> valid_steps(const std::string& directory) {
  std::set<std::int64_t> steps;
  for (const CheckpointEntry& entry : list_checkpoints(directory))
    if (entry.parts.mark.empty() && entry.health == CheckpointHealth::kValid) steps.insert(entry.parts.step);
  return steps;
}

TEST(KeepCheckpoints, TheRulesDecideWhatGoes) {
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(steps_to_remove({10, 20, 30}, {}), Steps{});
  EXPECT_EQ(steps_to_remove({20, 40, 10, 30}, {.newest = 2}), (Steps{20, 10}));
  EXPECT_EQ(steps_to_remove({10, 20, 30, 40}, {.newest = 1, .every = 20}), (Steps{30, 10}));
  EXPECT_EQ(steps_to_remove({10, 20, 30, 40}, {.newest = 1, .best = 10}), (Steps{30, 20}));
  EXPECT_EQ(steps_to_remove({10}, {.newest = 3}), Steps{});
}

// At no point fewer than one valid checkpoint; the newest ones, the one gone on from, the best, and those that are read stay.
TEST(KeepCheckpoints, RandomHistoriesAlwaysKeepAWholeOne) {
  std::mt19937 random(411);
  int removed = 0, damaged_newest = 0;
  for (int history = 0; history < 60; ++history) {
    SCOPED_TRACE(history);
    const TemporaryFolder folder;
    const std::string& directory = folder.path();
    save(directory, 10);
    KeepRules rules{.newest = 1 + static_cast<std::int64_t>(random() % 3),
                    .every = random() % 2 ? 40 : 0,
                    .loaded = directory + "/./" + checkpoint_name(10)};
    if (random() % 3 == 0) rules.best = 20;
    if (random() % 3 == 0) rules.loaded.clear();
    std::map<std::int64_t, std::unique_ptr<CheckpointReadLock>> readers;
    std::int64_t step = 10;
    for (int event = 0; event < 25; ++event) {
      const std::set<std::int64_t> before = valid_steps(directory);
      ASSERT_FALSE(before.empty());
      const std::int64_t any = *std::next(before.begin(), static_cast<std::ptrdiff_t>(random() % before.size()));
      switch (random() % 6) {
        case 0:
        case 1: save(directory, step += 10); break;
        case 2:  // a save that was killed
          make_temporary_folder(directory + "/" + temporary_name(step += 10, "killed"));
          break;
        case 3:  // the disk damages a newer one, not the last that is whole
          if (before.size() > 1)
            write_file(fmt::format("{}/{}/{}", directory, checkpoint_name(*before.rbegin()), kManifestName), "{}"),
                ++damaged_newest;
          break;
        case 4:
          if (random() % 2)
            readers.erase(any);
          else if (!readers.contains(any))
            readers[any] = std::make_unique<CheckpointReadLock>(folder / checkpoint_name(any));
          break;
        default: {
          prune_checkpoints(directory, rules);
          const std::set<std::int64_t> after = valid_steps(directory);
          std::int64_t newer = 0;
          for (auto at = before.rbegin(); at != before.rend(); ++at, ++newer) {
            const bool stays = newer < rules.newest || (rules.every > 0 && *at % rules.every == 0) || rules.best == *at ||
                               readers.contains(*at) || (!rules.loaded.empty() && *at == 10);
            EXPECT_EQ(after.contains(*at), stays) << "step " << *at << ", " << newer << " are newer";
            removed += stays ? 0 : 1;
          }
          break;
        }
      }
      ASSERT_FALSE(valid_steps(directory).empty());
    }
    remove_leftovers(directory);
    for (const std::string& name : folder.names()) EXPECT_EQ(name.find(".tmp-"), std::string::npos);
  }
  EXPECT_GE(removed, 60);
  EXPECT_GE(damaged_newest, 60);
}

TEST(KeepCheckpoints, AStartSetsAsideWhatIsLater) {
  const TemporaryFolder folder;
  const std::string directory = folder / "a/b";
  std::vector<std::string> said;
  const auto say = [&](const std::string& line) { said.push_back(line); };
  prepare_checkpoint_folder(directory, -1, say);
  EXPECT_TRUE(said.empty());
  for (const std::int64_t step : {10, 20, 30}) save(directory, step);
  make_temporary_folder(directory + "/" + temporary_name(40, "killed"));
  create_folder(directory + "/step-00000010.trash-1/weights");
  create_folder(directory + "/step-00000010.aside-1.trash-1/weights");
  create_folder(directory + "/something of a user's.trash-1");
  prepare_checkpoint_folder(directory, 20, say);
  EXPECT_EQ(said, std::vector<std::string>{"step-00000030 is set aside as " + directory + "/step-00000030.aside-1"});
  save(directory, 30);
  prepare_checkpoint_folder(directory, 20, say);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"something of a user's.trash-1", "step-00000010", "step-00000020",
                                             "step-00000030.aside-1", "step-00000030.aside-2"}));
}

// A folder behind a link is not ours to remove.
TEST(KeepCheckpoints, RemovesNothingThroughLinks) {
  const TemporaryFolder folder, other;
  write_file(other / "precious", "x");
  save(folder.path(), 10);
  std::filesystem::create_directory_symlink(other.path(), folder / (checkpoint_name(10) + "/weights/link"));
  std::filesystem::create_directory_symlink(other.path(), folder / temporary_name(20, "t"));
  remove_checkpoint_folder(folder.path(), checkpoint_name(10));
  remove_leftovers(folder.path());
  EXPECT_TRUE(folder.names().empty());
  EXPECT_TRUE(file_exists(other / "precious"));
  EXPECT_NO_THROW(remove_checkpoint_folder(folder.path(), checkpoint_name(10)));
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
  const std::string absolute = write_run("f", "saved/a");  // by a start that worked in "started"
  write_file(absolute + "/config.resolved.json",
             fmt::format(R"({{"run": {{"dir": "{}"}}, "checkpoint": {{"dir": "saved/a"}}}})", absolute));
  EXPECT_EQ(checkpoint_path(absolute), absolute) << "nothing says where it worked";
  write_file(absolute + "/run.json", fmt::format(R"({{"starts": [{{"working_dir": "{}"}}]}})", folder / "started"));
  EXPECT_EQ(checkpoint_path(absolute), folder / "started/saved/a");
}

TEST(CheckpointPath, WhatAStartRecordedIsLookedForWhereItWorked) {
  using Places = std::vector<std::string>;
  EXPECT_EQ(places_of("/tokens", {"runs/a", "/home/runs/a", "/old"}), Places{"/tokens"});
  EXPECT_EQ(places_of("./tokens", {"runs/a", "/home/runs/a", "/old"}), (Places{"/home/tokens", "/old/tokens", "tokens"}));
  EXPECT_EQ(places_of("tokens", {"/home/runs/a", "/home/runs/a", "/old"}), (Places{"/old/tokens", "tokens"}));
  EXPECT_EQ(places_of("tokens", {"", "/home/runs/a", ""}), Places{"tokens"});
}

// Byte i is i * 7 % 251.
std::string counting(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 % 251);
  return text;
}

// python3 -c 'import xxhash; print(xxhash.xxh128(bytes(i * 7 % 251 for i in range(N))).hexdigest())' prints these: a size for each
// of the algorithm's ways through short and long inputs, and one of more than 4 MiB.
TEST(Hash128, EqualsTheReference) {
  const std::pair<std::size_t, std::string_view> cases[] = {
      {0, "99aa06d3014798d86001c324468d497f"},    {1, "a6cd5e9392000f6ac44bdff4074eecdb"},
      {3, "656e81c56e41fe02c3489259e968ad9e"},    {4, "ab5c3e7474d809db81a65295de8e7dde"},
      {8, "e4b9dd0b66ff3c50ebabbd0695002ff6"},    {9, "82ddc95bc76007671c69c3f04aaed08c"},
      {16, "ddf6c1254d70f76794eaa17b20756f46"},   {17, "263f67af63088041735fe434ded90c3c"},
      {128, "381610c474b8adfb2dfb73305de1f91a"},  {129, "4e05eed4427255d51f8b5092c9ba3be8"},
      {240, "17ffe035d71c1ec8e6bf81617aad6c4a"},  {241, "29bc1e9cffb6d79bc614c8c3575348c1"},
      {512, "f9a147f95e48ea8b95e4fda72852917f"},  {1024, "07fe8eadab1cf098f22ef3dc84ff47ea"},
      {1025, "c89d767cdacc7c7643f869a83769a435"}, {5000000, "54267257613dd3ee3840835fa3d7cdd3"}};
  for (const auto& [size, digits] : cases) EXPECT_EQ(to_string(hash128(counting(size))), digits) << size;
}

TEST(Hash128, DigitsRoundTrip) {
  const Hash128 hash{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(to_string(hash), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(hash_from(to_string(hash)), hash);
  EXPECT_EQ(to_string(Hash128{1, 2}), "00000000000000010000000000000002");
}

TEST(Hash128, OtherTextIsNoHash) {
  const std::string good(kHashDigits, 'a');
  EXPECT_TRUE(hash_from(good));
  EXPECT_FALSE(hash_from(""));
  EXPECT_FALSE(hash_from(good.substr(1)));
  EXPECT_FALSE(hash_from(good + "a"));
  // Every byte but the sixteen digits, at both ends.
  for (int c = 0; c < 256; ++c) {
    const bool digit = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    for (const std::size_t at : {std::size_t{0}, kHashDigits - 1}) {
      std::string text = good;
      text[at] = static_cast<char>(c);
      EXPECT_EQ(hash_from(text).has_value(), digit) << c;
    }
  }
}

}  // namespace
}  // namespace trident
