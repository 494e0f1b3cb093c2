// Tests what reading a checkpoint takes beside the memory it reads into. The linker sends this executable's calls of malloc and
// free through here (--wrap, in CMakeLists.txt), those of the operators new and delete included.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/format/hf_index.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/shard_reader.h"
#include "core/json_scanner.h"
#include "device/no_allocation.h"
#include "tests/checkpoint/save_ranks.h"
#include "tests/data/gpt2_style.h"
#include "tests/data/temporary_folder.h"

namespace {

// The count is the measuring thread's.
struct Counted {
  std::int64_t live = 0, peak = 0;
};
thread_local Counted counted;

void* note(void* memory) {
  if (memory != nullptr) counted.live += static_cast<std::int64_t>(malloc_usable_size(memory));
  counted.peak = std::max(counted.peak, counted.live);
  return memory;
}

}  // namespace

extern "C" {
void* __real_malloc(std::size_t bytes);
void* __real_aligned_alloc(std::size_t alignment, std::size_t bytes);
void __real_free(void* memory);

void* __wrap_malloc(std::size_t bytes) { return note(__real_malloc(bytes)); }
void* __wrap_aligned_alloc(std::size_t alignment, std::size_t bytes) { return note(__real_aligned_alloc(alignment, bytes)); }
void __wrap_free(void* memory) {
  if (memory != nullptr) counted.live -= static_cast<std::int64_t>(malloc_usable_size(memory));
  __real_free(memory);
}
}

namespace trident {
namespace {

// The most that was allocated at a time while `body` ran.
template <class Body>
std::int64_t peak_of(Body&& body) {
  const std::int64_t before = counted.live;
  counted.peak = before;
  body();
  return counted.peak - before;
}

TEST(LoadMemory, IsCounted) {
  const NoAllocationScope none("nothing");  // links the operator new that calls malloc
  const AllocationExemption but;
  const std::int64_t peak = peak_of([] { std::vector<char>(1 << 20).swap(*std::make_unique<std::vector<char>>()); });
  EXPECT_GE(peak, 1 << 20);
  EXPECT_LT(peak, (1 << 20) + 8192);
}

// Tensors of 32 MB that eight ranks wrote, each into files of more than a block: whoever has them whole takes two blocks of files,
// a scratch of 1 MiB, and on a device a block of rows; never a tensor, nor a block of each file.
TEST(LoadMemory, IsTwoBlocksAndARowBlock) {
  ModelConfig model = test::llama_config(131'072, 1, false);
  model.hidden = 64;
  model.heads = 1;
  model.head_dim = 64;
  model.layers = 1;
  model.ffn = 64;
  const std::int64_t tensor_bytes = model.vocab_size * model.hidden * 4;
  const TemporaryFolder folder;
  {
    std::vector<test::LayoutRank> ranks = test::all_ranks(model, {.data = 8});
    for (test::LayoutRank& rank : ranks) rank.allocate(DType::kF32, 1);
    test::save_ranks(folder.path(), 3, model, ranks, DType::kF32, test::Staging::kLeast);
  }
  const Manifest manifest = open_manifest(folder / checkpoint_name(3));
  std::int64_t tables = 0;
  for (const ManifestFile& file : manifest.files) tables += file.table_bytes;
  ASSERT_EQ(manifest.files.size(), 16u);
  test::LayoutRank one = std::move(test::all_ranks(model, {})[0]);
  one.allocate(DType::kF32, 0);
  constexpr std::int64_t kScratch = 1 << 20;
  // Parsed tables are larger than their texts, by pointers and padding, and the manifest is held once more.
  const std::int64_t records = 4 * tables;
  ASSERT_LT(records, kBlockBytes / 4);
  for (const bool on_device : {false, true}) {
    std::int64_t written = 0;
    const WriteValues write = [&](const TensorView& to, const void* from) {
      std::memcpy(to.data(), from, static_cast<std::size_t>(to.num_bytes()));
      written += to.num_bytes();
    };
    const std::int64_t peak = peak_of([&] {
      ShardReader reader(folder / checkpoint_name(3), manifest);
      for (const ShardBox& box : boxes_held(one.shards(), one.holder())) {
        for (const char* prefix : {"", "exp_avg/", "exp_avg_sq/"}) {
          TensorView values = one.values(box.shard, prefix);
          if (on_device) values = {values.data(), values.dtype(), values.shape(), MemoryKind::kDevice};
          reader.read(prefix, box, values, write);
        }
      }
    });
    RecordProperty(on_device ? "device_bytes" : "host_bytes", static_cast<int>(peak));
    const std::int64_t allowed = 2 * kBlockBytes + kScratch + (on_device ? kBlockBytes : 0) + records;
    EXPECT_LE(peak, allowed) << on_device;
    EXPECT_GT(peak, kBlockBytes) << "of which something was counted";
    EXPECT_LT(allowed, tensor_bytes / 2) << "so little that a tensor would be noticed";
    EXPECT_EQ(written > 6 * tensor_bytes, on_device);
  }
}

// `head`, as many items as 40 MB have room for, each with another number in the place of its #, and `tail`.
std::string long_text(std::string_view head, std::string_view item, std::string_view tail) {
  const std::size_t mark = item.find('#');
  std::string text(head);
  text.reserve(40'100'000);
  for (int i = 0; text.size() < 40'000'000; ++i) {
    if (i > 0) text += ',';
    text.append(item.substr(0, mark));
    if (mark < item.size()) text.append(fmt::format("{:x}", i)).append(item.substr(mark + 1));
  }
  return text.append(tail);
}

std::string manifest_text(std::string_view key, std::string_view begin, std::string_view item, std::string_view end) {
  Manifest manifest;
  manifest.tensors = {{"w", {1}}};
  std::string text = to_text(manifest);
  text.resize(text.rfind(",\"hash\""));
  const std::size_t at = text.find(fmt::format("\"{}\":[", key)) + key.size() + 4;
  std::string whole = long_text(text.substr(0, at).append(begin), item, std::string(end).append(text, text.find("],\"", at)));
  const std::string hash = to_string(hash128(whole));
  return whole.append(",\"hash\":\"").append(hash).append("\"}\n");
}

// Readers may take twice the text beside it, and 64 MB, of which a process has a part.
TEST(LoadMemory, OfAReaderIsBoundedByTheText) {
  using Read = void (*)(const std::string& text);
  const Read index = [](const std::string& text) { parse_hf_index(text, "index"); };
  const Read header = [](const std::string& text) { parse_safetensors_header(text, 0, "header"); };
  const Read manifest = [](const std::string& text) { parse_manifest(text, "manifest"); };
  const Read none = [](const std::string& text) { JsonScanner(text, "text", {.max_bytes = text.size()}).skip(); };
  const std::string file = R"("bytes":10,"table_bytes":10,"table":"0123456789abcdef0123456789abcdef","runs":[)";
  const struct {
    const char* name;
    std::string text;
    Read read;
  } cases[] = {
      {"keys of nothing", long_text("{", "\"\":0", "}"), none},
      {"an index of many tensors", long_text("{\"weight_map\":{", "\"#\":\"a.safetensors\"", "}}"), index},
      {"a header of many tensors", long_text("{", R"("#":{"dtype":"F32","shape":[0],"data_offsets":[0,0]})", "}"), header},
      {"a header of many sizes", long_text("{", R"("#":{"dtype":"I4","shape":[0,0,0,0,0,0,0],"data_offsets":[0,0]})", "}"), header},
      {"a manifest of many tensors", manifest_text("tensors", "", R"({"name":"#","shape":[]})", ""), manifest},
      {"a manifest of many sizes", manifest_text("tensors", "", R"({"name":"#","shape":[1,1,1,1,1,1,1,1,1]})", ""), manifest},
      {"a manifest of many files", manifest_text("files", "", R"({"path":"#",)" + file + "]}", ""), manifest},
      {"a manifest of many runs", manifest_text("files", R"({"path":"a",)" + file, "[0,1,0,1]", "]}"), manifest},
  };
  for (const auto& [name, text, read] : cases) {
    SCOPED_TRACE(name);
    const std::int64_t peak = peak_of([&] {
      try {
        read(text);
      } catch (const Error& error) {
        EXPECT_LT(std::string_view(error.what()).size(), 300u);
      }
    });
    EXPECT_LE(peak, 2 * std::ssize(text) + 40'000'000) << text.size();
  }
}

TEST(LoadMemory, OfATokenizerIsBoundedByItsVocabulary) {
  std::string vocabulary = "{\"<|endoftext|>\":0";
  for (int id = 1; id < 1 << 20; ++id) vocabulary += fmt::format(",\"{:024x}\":{}", id, id);
  vocabulary += '}';
  const std::int64_t peak = peak_of([&] { make_gpt2_style("long", {vocabulary, "", "vocab.json", "merges.txt"}); });
  EXPECT_LE(peak, 2 * std::ssize(vocabulary) + 40'000'000) << vocabulary.size();
}

}  // namespace
}  // namespace trident
