// Checkpoints that were damaged: refused with file and tensor before a value is used, wherever the damage is.
#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <functional>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/shard_reader.h"
#include "core/file_io.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/sanitized.h"

namespace trident {
namespace {

constexpr float kUntouched = -7.0f;  // values are within [-1, 1)
// One of so many bytes or lengths is tried; the number divides no part's size.
constexpr std::int64_t kEvery = test::kSanitized ? 7 : 1;

class ShardDamage : public ::testing::Test {
 protected:
  ShardDamage() : path_(folder_ / checkpoint_name(7)) {
    const Manifest manifest = test::small_manifest(DType::kF32);
    manifest_ = test::write_checkpoint(path_, manifest, test::small_files(manifest, 2));
  }

  // Reads all tensors; which values came is checked whether or not that failed.
  void read_all() const {
    std::vector<float> values;
    std::string tensor;
    std::string_view prefix;
    const auto check = [&] {
      for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_TRUE(values[i] == kUntouched ||
                    values[i] == static_cast<float>(test::some_value(std::string(prefix) + tensor, static_cast<std::int64_t>(i))))
            << prefix << tensor << " " << i << ": " << values[i];
    };
    try {
      ShardReader reader(path_, open_manifest(path_));
      for (const std::string_view p : {"", "exp_avg/", "exp_avg_sq/"}) {
        for (const ManifestTensor& t : manifest_.tensors) {
          ShardBox box{.tensor = t.name, .tensor_shape = t.shape, .box = whole(t.shape)};
          box.columns = t.shape.empty() ? 1 : t.shape.back();
          box.rows = box.box.elements() / box.columns;
          prefix = p, tensor = t.name;
          values.assign(static_cast<std::size_t>(box.elements()), kUntouched);
          reader.read(p, box, TensorView(values.data(), DType::kF32, {box.elements()}));
          for (const float value : values) ASSERT_NE(value, kUntouched);
          check();
        }
      }
    } catch (const Error&) {
      check();
      throw;
    }
  }
  void refused(const std::vector<std::string>& parts) const {
    expect_error<DataError>([&] { read_all(); }, parts);
  }
  std::string file(std::size_t i) const { return path_ + "/" + manifest_.files[i].path; }

  static void overwrite(const std::string& path, std::int64_t at, char value) {
    FILE* const out = std::fopen(path.c_str(), "r+b");
    ASSERT_NE(out, nullptr);
    std::fseek(out, static_cast<long>(at), SEEK_SET);
    std::fputc(value, out);
    std::fclose(out);
  }

  TemporaryFolder folder_;
  std::string path_;
  Manifest manifest_;
};

// Tables and payload: every byte of every file, one bit of each; all eight of the payload's.
TEST_F(ShardDamage, EveryByteOfEveryFileMatters) {
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    const std::string content = read_file(file(f));
    const std::int64_t table = manifest_.files[f].table_bytes;
    for (std::int64_t byte = 0; byte < std::ssize(content); byte += kEvery) {
      const char good = content[static_cast<std::size_t>(byte)];
      for (int bit = 0; bit < (byte < table ? 1 : 8); ++bit) {
        overwrite(file(f), byte, static_cast<char>(good ^ (1 << (byte < table ? byte % 8 : bit))));
        if (byte < table)
          refused({file(f) + ": its table of tensors has the hash"});
        else
          refused({file(f) + ": block 0", "tensor"});
        ASSERT_FALSE(HasFailure()) << file(f) << " byte " << byte;
      }
      overwrite(file(f), byte, good);
    }
  }
  EXPECT_NO_THROW(read_all());
}

TEST_F(ShardDamage, EveryLengthMatters) {
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    const std::string content = read_file(file(f));
    for (std::int64_t bytes = std::ssize(content) - 1; bytes >= 0; bytes -= kEvery) {
      std::filesystem::resize_file(file(f), static_cast<std::uintmax_t>(bytes));
      refused({file(f) + fmt::format(": has {} bytes, the manifest says {}", bytes, content.size())});
      ASSERT_FALSE(HasFailure());
    }
    write_file(file(f), content + std::string(4096, '\0'));
    refused({file(f) + ": has "});
    write_file(file(f), content);
  }
  EXPECT_NO_THROW(read_all());
}

// The shards have equal size and valid hashes of their own: from another rank, and from another step.
TEST_F(ShardDamage, FilesThatBelongElsewhere) {
  const std::string other = folder_ / checkpoint_name(8);
  Manifest later = test::small_manifest(DType::kF32);
  later.state.updates = later.state.batches = 8;
  later = test::write_checkpoint(other, later, test::small_files(later, 2),
                                 [](const std::string& key, std::int64_t i) { return test::some_value("later" + key, i); });
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    const std::string content = read_file(file(f));
    ASSERT_EQ(later.files[f].bytes, manifest_.files[f].bytes);
    write_file(file(f), read_file(other + "/" + later.files[f].path));
    refused({file(f) + ": its table of tensors has the hash"});
    for (std::size_t g = 0; g < manifest_.files.size(); ++g) {
      if (g == f || read_file(file(g)).size() != content.size()) continue;
      write_file(file(f), read_file(file(g)));
      refused({file(f) + ": its table of tensors has the hash"});
    }
    write_file(file(f), content);
  }
  // The other's whole manifest: its step is not the folder's.
  const std::string name = path_ + "/" + std::string(kManifestName);
  write_file(name, read_file(other + "/" + std::string(kManifestName)));
  refused({name + ": holds step 8"});
}

// Its hash fits, and so do those of the tables: two hands wrote them, or one that errs.
TEST_F(ShardDamage, AManifestThatSaysSomethingElseThanTheTables) {
  const auto manifest_says = [&](const std::function<void(Manifest&)>& change) {
    Manifest changed = manifest_;
    change(changed);
    test::write_manifest(path_, changed);
  };
  for (std::size_t f = 0; f < manifest_.files.size(); ++f) {
    ASSERT_EQ(manifest_.files[f].runs.front().first, 0) << "tensor w";
    const std::string key = manifest_.files[f].path.starts_with("weights/") ? "\"w\"" : "\"exp_avg/w\"";
    const std::vector<std::string> not_announced{file(f) + ": tensor " + key + ": box ",
                                                 " is in no run that the manifest has of this file"};
    manifest_says([&](Manifest& m) { std::erase_if(m.files[f].runs, [](const TensorRun& run) { return run.first == 0; }); });
    refused(not_announced);
    manifest_says([&](Manifest& m) { m.files[f].runs = {{0, 3, kTensorParts - 1, kTensorParts}}; });
    refused(not_announced);
    manifest_says([&](Manifest& m) { m.files[f].runs = {}; });  // nobody looks into it
    refused(not_announced);
  }
  manifest_says([](Manifest& m) { m.tensors[1].shape = {6}; });
  refused({file(0) + ": tensor \"b\": box [5:7] lies outside of [0:6]"});
  manifest_says([](Manifest& m) { m.tensors[2].shape = {1}; });
  refused({file(0) + ": tensor \"scale\": box ", " lies outside of [0:1]"});
  manifest_says([](Manifest& m) { m.weights = DType::kF16; });
  refused({file(0) + ": tensor \"w\": is f32, the manifest says f16"});
  manifest_says([](Manifest& m) { m.optimizer_states = {"exp_avg"}; });
  refused({": tensor \"exp_avg_sq/w\": the manifest does not name it"});
  manifest_says([](Manifest&) {});
  EXPECT_NO_THROW(read_all());
}

// As many elements as there are, but some twice and others not at all.
TEST_F(ShardDamage, BoxesThatOverlapWhereOthersAreMissing) {
  const Manifest manifest = test::small_manifest(DType::kF32);
  std::vector<test::SmallFile> files = test::small_files(manifest, 2);
  for (test::SmallFile& one : files) {
    for (FileBox& box : one.boxes)
      if (box.box == TensorBox{{0, 3}, {6, 7}}) box.box.offset[1] = 2;
  }
  std::filesystem::remove_all(path_);
  test::write_checkpoint(path_, manifest, files);
  refused({path_ + ": w [0:6, 0:10]: boxes [0:6, 0:3] and [0:6, 2:9] overlap"});
}

}  // namespace
}  // namespace trident
