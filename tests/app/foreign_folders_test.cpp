// Folders as other programs leave them, given to every command: masks in dtypes that no weight has, and what is no folder of
// safetensors, which each command names, with what to do.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "core/file_io.h"
#include "tests/app/checkpoint_runs.h"

namespace trident {
namespace {

namespace fs = std::filesystem;

const std::string kGolden = TRIDENT_SOURCE_DIR "/tests/model/goldens/families/gpt2/";

// A safetensors file with a tensor appended: its values are zeros.
std::string with_tensor(const std::string& file, const std::string& name, const std::string& dtype, std::size_t bytes) {
  std::uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof length);
  std::string header = file.substr(8, length), data = file.substr(8 + length);
  header.resize(header.find_last_of('}'));
  header +=
      fmt::format(R"(,"{}":{{"dtype":"{}","shape":[8],"data_offsets":[{},{}]}}}})", name, dtype, data.size(), data.size() + bytes);
  length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  return text + header + data + std::string(bytes, '\0');
}

class ForeignFolders : public Checkpoints {
 protected:
  static std::vector<std::vector<std::string>> readers_of(const std::string& folder) {
    return {{"eval", "--hf", folder, "--ids", "5 6 7"},
            {"generate", "--hf", folder, "--prompt-ids", "5 6", "--max-new-tokens", "1"}};
  }
  ProgramOutcome begin_with(const std::string& folder) const { return place_.train({"model.init_from=" + folder}); }
  std::vector<std::string> convert(const std::string& folder) const {
    fs::remove_all(place_ / "out");
    return {"convert", "--from", "hf", folder, "--to", "ckpt", place_ / "out"};
  }
  std::string make(const std::string& folder, const std::vector<std::string>& names, const std::string& content = "x") const {
    create_folder(place_ / folder);
    for (const std::string& name : names) write_file(place_ / folder + "/" + name, content);
    return place_ / folder;
  }
  void copy_golden(const std::string& folder) const {
    create_folder(folder);
    for (const char* name : {"config.json", "model.safetensors"}) write_file(folder + "/" + name, read_file(kGolden + name));
  }
};

TEST_F(ForeignFolders, AMaskRefusesNoFileByItsDType) {
  const std::string good = read_file(kGolden + "model.safetensors"), folder = place_ / "hf";
  copy_golden(folder);
  const ProgramOutcome expected = run_program(readers_of(folder)[0]);
  const std::string begun = begin_with(folder).err;  // of another model, which is said behind the files' headers
  for (const auto& [dtype, bytes] :
       {std::pair{"BOOL", 8}, {"U8", 8}, {"F8_E4M3", 8}, {"U32", 32}, {"U64", 64}, {"I16", 16}, {"F4", 4}, {"F6_E2M3", 6},
        {"Q5_OF_TOMORROW", 5}, {"bool", 1}}) {
    SCOPED_TRACE(dtype);
    const std::string masked = with_tensor(good, "transformer.h.0.attn.bias", dtype, static_cast<std::size_t>(bytes));
    write_file(folder + "/model.safetensors", masked);
    EXPECT_EQ(run_program(readers_of(folder)[0]).out, expected.out);
    EXPECT_EQ(run_program(convert(folder)).exit_code, 0);
    write_file(folder + "/model.safetensors", masked + "x");
    expect_one_line(run_program(readers_of(folder)[0]), 65, {"model.safetensors", "1 bytes after the last tensor"});
  }
  write_file(folder + "/model.safetensors", with_tensor(good, "transformer.h.0.attn.masked_bias", "BOOL", 8));
  EXPECT_EQ(begin_with(folder).err, begun);
  for (const auto& [dtype, said] : {std::pair{R"("I8" )", "its shape needs"}, {R"("F9" )", "is F9, expected F32, BF16 or F16"}}) {
    std::string used = good;
    used.replace(used.find("\"F32\""), 5, dtype);
    write_file(folder + "/model.safetensors", used);
    expect_one_line(run_program(readers_of(folder)[0]), 65, {"model.safetensors", "tensor \"", said});
  }
}

TEST_F(ForeignFolders, WhatAFolderIsInsteadIsSaidByEveryCommand) {
  const std::string pointer =
      "version https://git-lfs.github.com/spec/v1\noid sha256:" + std::string(64, 'a') + "\nsize 548105171\n";
  copy_golden(place_ / "lfs");
  write_file(place_ / "lfs/model.safetensors", pointer);
  copy_golden(place_ / "lfs-config");
  write_file(place_ / "lfs-config/config.json", pointer);
  create_folder(place_ / "models--a--b/snapshots/11");
  create_folder(place_ / "models--a--b/snapshots/22");
  make("models--c--d/snapshots/33", {"adapter_config.json"});
  const struct {
    std::string path;
    std::vector<std::string> said;
  } kinds[] = {
      {place_ / "lfs", {"lfs/model.safetensors: is a git-lfs pointer", "git lfs pull"}},
      {place_ / "lfs-config", {"lfs-config/config.json: is a git-lfs pointer", "git lfs pull"}},
      {make("pickle", {"config.json", "pytorch_model.bin"}, "{}"), {"as a pickle, pytorch_model.bin", "as safetensors"}},
      {make("shards", {"config.json", "pytorch_model.bin.index.json", "pytorch_model-00001-of-00002.bin"}, "{}"),
       {"as a pickle", "as safetensors"}},
      {make("adapter", {"adapter_config.json", "adapter_model.safetensors"}), {"is an adapter", "merge it"}},
      {make("llama", {"consolidated.00.pth", "params.json"}), {"consolidated.00.pth", "config.json and model.safetensors"}},
      {make("gguf", {"model-q4.gguf"}, "GGUF"), {"model-q4.gguf", "safetensors"}},
      {place_ / "gguf/model-q4.gguf", {"is a GGUF file", "safetensors"}},
      {place_ / "models--a--b", {"2 snapshots, 11, 22", "models--a--b/snapshots/11"}},
      {place_ / "models--c--d", {"is an adapter", "merge it"}},
      {make("unindexed", {"config.json", "model-00001-of-00002.safetensors"}, "{}"),
       {"model-00001-of-00002.safetensors", "index.json"}},
      {"Qwen/Qwen2-0.5B", {"nothing is downloaded", "hf download Qwen/Qwen2-0.5B"}},
  };
  for (const auto& [path, said] : kinds) {
    SCOPED_TRACE(path);
    for (const std::vector<std::string>& words : readers_of(path)) expect_one_line(run_program(words), 65, said);
    expect_one_line(run_program(convert(path)), 65, said);
    expect_one_line(begin_with(path), 65, said);
    if (path.starts_with(place_ / "lfs")) continue;
    for (const char* action : {"show", "ls"}) expect_one_line(run_program({"ckpt", action, path}), 65, said);
    expect_one_line(run_program({"eval", "--ckpt", path, "--ids", "1 2"}), 65, said);
  }
  expect_one_line(run_program(readers_of(place_ / "run")[0]), 65, {"--hf = ", "no such folder"});
}

// The one that refs/main names, else the only one; in place of the folder everywhere.
TEST_F(ForeignFolders, AFolderOfTheHubsCacheIsItsSnapshot) {
  const std::string cache = place_ / "models--a--b", plain = place_ / "hf";
  copy_golden(plain);
  copy_golden(cache + "/snapshots/0123");
  const auto ids_of = [](const std::string& folder) {
    return run_program(plus(readers_of(folder)[1], {"--greedy", "--print-ids"}));
  };
  const ProgramOutcome expected = ids_of(plain);
  ASSERT_EQ(expected.exit_code, 0) << expected.err;
  EXPECT_EQ(ids_of(cache).out, expected.out);
  create_folder(cache + "/snapshots/4567");
  EXPECT_EQ(ids_of(cache).exit_code, 65);
  create_folder(cache + "/refs");
  write_file(cache + "/refs/main", "0123\n");
  EXPECT_EQ(ids_of(cache).out, expected.out);
  EXPECT_EQ(run_program(convert(cache)).exit_code, 0);
}

}  // namespace
}  // namespace trident
