// Folders of Hugging Face's form whose files change between the look at their headers and the reading of values.
#include "checkpoint/hf_folder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/format/safetensors.h"
#include "checkpoint/hf_shard_reader.h"
#include "core/file_io.h"
#include "model/config/hf_tensors.h"
#include "model/config/model_presets.h"
#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

constexpr std::int64_t kElements = 100'000;  // of each of two tensors; more than one read takes

class HfFolderThatChanges : public ::testing::Test {
 protected:
  // Two tensors of f32, full of 1 and of 2, in the order of `names`.
  void write(const std::vector<std::string>& names) const {
    SafetensorsHeader header{{{"format", "pt"}}, {}};
    std::vector<float> values;
    for (const std::string& name : names) {
      const std::int64_t begin = header.data_bytes();
      header.entries.push_back({name, DType::kF32, {kElements}, begin, begin + kElements * 4});
      values.insert(values.end(), kElements, name == "one" ? 1.0f : 2.0f);
    }
    const std::string path = folder_ / "model.safetensors", text = to_text(header);
    std::ofstream file(path + ".new", std::ios::binary);
    file << text;
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size() * sizeof(float)));
    file.close();
    std::filesystem::rename(path + ".new", path);
  }
  std::shared_ptr<const HfFolder> open() const {
    const std::vector<ManifestTensor> expected{{"one", {kElements}}, {"two", {kElements}}};
    return std::make_shared<HfFolder>(folder_.path(), expected, [](std::string_view name) {
      return HfName{HfNameKind::kTensor, std::string(name)};
    });
  }
  static std::vector<float> read(HfShardReader& reader, const std::string& name) {
    std::vector<float> values(kElements);
    ShardBox box;
    box.columns = kElements;
    box.tensor = name;
    box.tensor_shape = {kElements};
    box.box = {{0}, {kElements}};
    reader.read(box, TensorView(values.data(), DType::kF32, {kElements}));
    return values;
  }
  TemporaryFolder folder_;
};

TEST_F(HfFolderThatChanges, IsReadWhileItStays) {
  write({"one", "two"});
  HfShardReader reader(open());
  EXPECT_EQ(read(reader, "two"), std::vector<float>(kElements, 2.0f));
  EXPECT_EQ(read(reader, "one"), std::vector<float>(kElements, 1.0f));
}

TEST_F(HfFolderThatChanges, IsRefusedByTheNameOfTheFile) {
  write({"one", "two"});
  HfShardReader reader(open());
  write({"two", "one"});  // as long, and its tensors of the same shapes
  expect_error<DataError>([&] { read(reader, "one"); }, {folder_ / "model.safetensors", "was replaced while the run started"});
  std::filesystem::resize_file(folder_ / "model.safetensors", 4 * kElements);
  expect_error<DataError>([&] { read(reader, "one"); }, {folder_ / "model.safetensors"});
  std::filesystem::resize_file(folder_ / "model.safetensors", 3);
  expect_error<DataError>([&] { read(reader, "one"); }, {folder_ / "model.safetensors"});
}

TEST(HfFolder, OfMoreTensorsThanAnyModelHasIsRefused) {
  std::size_t most = 0;
  for (const std::string_view name : model_preset_names()) {
    ModelConfig model = model_preset(name, "preset");
    model.layers = 4096;
    EXPECT_NO_THROW(validate(model, name));
    most = std::max(most, hf_tensors(model).size());
  }
  EXPECT_GT(most, 12 * 4096u);
  EXPECT_LE(most, kMaxTensors);

  const TemporaryFolder folder;
  SafetensorsHeader header;
  for (std::size_t i = 0; i <= kMaxTensors; ++i) header.entries.push_back({fmt::format("{}", i), DType::kF32, {0}, 0, 0});
  write_file(folder / "model.safetensors", to_text(header));
  const auto unknown = [](std::string_view) { return HfName{HfNameKind::kUnknown, ""}; };
  expect_error<DataError>([&] { HfFolder(folder.path(), {}, unknown); }, {"model.safetensors: more than 65536 tensors"});
  header.entries.pop_back();
  write_file(folder / "model.safetensors", to_text(header));
  expect_error<DataError>([&] { HfFolder(folder.path(), {}, unknown); }, {"has tensor \"0\", which the model"});
}

}  // namespace
}  // namespace trident
