#include "core/foreign_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "core/file_io.h"
#include "core/nearest_name.h"

namespace trident {
namespace {

std::string beginning_of(const std::string& path) {
  const RandomAccessFile file(path);
  return file.text(0, std::min<std::int64_t>(file.size(), 8));
}

// A file by which a kind of folder is known: how its name begins and ends. `{}` of `what` is that name.
struct Sign {
  std::string_view begins, ends, what;
};
constexpr std::string_view kPickle =
    "has weights as a pickle, {}, which is not read; save them once more as safetensors (save_pretrained() of transformers does)";
constexpr std::string_view kLlamasOwn =
    "is a model in the form of its makers, {}, which is not read; take the one in Hugging Face's form, with config.json and "
    "model.safetensors";
constexpr std::string_view kOtherFramework =
    "has weights of another framework, {}, which are not read; save them once more as safetensors of PyTorch";
constexpr std::string_view kAdapter =
    "is an adapter, {}, and no model; name its model, and this in --adapter, or merge it into its model (trident convert --from "
    "peft BASE ADAPTER)";
// The first that fits counts.
constexpr Sign kSigns[] = {
    {"adapter_config", ".json", kAdapter},
    {"adapter_model", "", kAdapter},
    {"pytorch_model", ".bin", kPickle},
    {"pytorch_model", ".bin.index.json", kPickle},
    {"consolidated", "", kLlamasOwn},
    {"params", ".json", kLlamasOwn},
    {"", ".gguf", "has a GGUF file, {}, which is not read; name the folder with safetensors that it was made of"},
    {"tf_model", ".h5", kOtherFramework},
    {"flax_model", ".msgpack", kOtherFramework},
    {"model", ".bin", kPickle},
    {"model", ".pt", kPickle},
    {"model", ".pth", kPickle},
    {"model", ".ckpt", kPickle},
    {"pytorch_model", ".pt", kPickle},
    {"zero_to_fp32", ".py", "is a checkpoint of DeepSpeed, which its {} makes weights of; run that, and name its output"},
    {"global_step", "", "is a checkpoint of DeepSpeed, {}, which is not read; save the model as safetensors, and name that folder"},
    {"checkpoint-", "", "has checkpoints of transformers' Trainer; name one of them, as {}"},
    {"models--", "", "is a cache of the hub; name one of the models in it, as {}"},
};

std::optional<std::string> what_a_folder_is(const std::string& path) {
  const std::vector<std::string> names = names_in(path);
  if (const std::vector<std::string> snapshots = names_in(path + "/snapshots"); !snapshots.empty())
    return fmt::format(
        "is a model in the hub's cache with {} snapshots, {}, and refs/main names none of them; name one, as {}/snapshots/{}",
        snapshots.size(), fmt::join(snapshots, ", "), path, snapshots.front());
  for (const Sign& sign : kSigns)
    for (const std::string& name : names)
      if (name.size() >= sign.begins.size() + sign.ends.size() && name.starts_with(sign.begins) && name.ends_with(sign.ends))
        return fmt::format(fmt::runtime(sign.what), name);
  const auto weights = std::ranges::find_if(names, [](std::string_view name) { return name.ends_with(".safetensors"); });
  if (weights == names.end()) return std::nullopt;
  if (std::ranges::find(names, "config.json") == names.end())
    return fmt::format("has {}, and no config.json, which says of what model it is; put the model's there", *weights);
  return fmt::format("has {}, and neither model.safetensors nor model.safetensors.index.json; copy the folder again", *weights);
}

std::string what_a_file_is(const std::string& path) {
  const std::string beginning = beginning_of(path);
  if (beginning.starts_with("GGUF"))
    return "is a GGUF file, which is not read; name the folder with safetensors that it was made of";
  if (beginning.starts_with("PK\x03\x04") || beginning.starts_with("\x80\x02"))
    return "is a pickle, which is not read; save the model once more as safetensors, and name its folder";
  return "is a file; name the folder that it lies in";
}

// "Qwen/Qwen2-0.5B" and "gpt2", where no such folder is begun here.
bool is_name_of_hub(const std::string& path) {
  const std::size_t slash = path.find('/');
  const bool has_good_characters = std::ranges::all_of(path, [](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.' ||
           c == '/';
  });
  if (path.empty() || path.front() == '.' || path.front() == '/' || path.back() == '/' || !has_good_characters) return false;
  return slash == path.npos || (path.find('/', slash + 1) == path.npos && !folder_exists(path.substr(0, slash)));
}

}  // namespace

std::string hint_beside(const std::string& path) {
  const std::filesystem::path whole(path.substr(0, path.find_last_not_of('/') + 1));
  const std::string above = whole.has_parent_path() ? whole.parent_path().string() : ".";
  std::vector<std::string> beside;
  try {
    beside = names_in(above);
  } catch (const Error&) {  // it may be entered and not listed
  }
  std::erase_if(beside, [&](const std::string& name) { return !folder_exists(fmt::format("{}/{}", above, name)); });
  return name_hint(whole.filename().string(), {beside.begin(), beside.end()});
}

std::string hub_snapshot(const std::string& path) {
  const std::string snapshots = path + "/snapshots";
  if (!folder_exists(snapshots) || file_exists(path + "/config.json")) return path;
  const std::vector<std::string> names = names_in(snapshots);
  if (const std::string main = path + "/refs/main"; file_exists(main)) {
    std::string named = read_file(main);
    while (!named.empty() && (named.back() == '\n' || named.back() == '\r' || named.back() == ' ')) named.pop_back();
    if (std::ranges::find(names, named) != names.end()) return snapshots + "/" + named;
  }
  return names.size() == 1 ? snapshots + "/" + names.front() : path;
}

std::optional<std::string> what_stands_at(const std::string& given, WantedFolder wanted) {
  const std::string path = hub_snapshot(given);
  check_may_read(path);
  if (folder_exists(path)) return what_a_folder_is(path);
  if (file_exists(path)) return what_a_file_is(path);
  if (is_there(path)) return std::nullopt;
  const std::string hint = hint_beside(path);
  if (wanted == WantedFolder::kCheckpoint) return "no such folder; check the path" + hint;
  if (is_name_of_hub(path))
    return fmt::format(
        "no such folder (nothing is downloaded){}; check the path, or download a model of the hub first: hf download {} "
        "--local-dir DIR",
        hint, path);
  return "no such folder (nothing is downloaded); check the path" + hint;
}

}  // namespace trident
