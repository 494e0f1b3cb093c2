#include "checkpoint/format/manifest.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>
#include <limits>

#include "core/check.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

Manifest small_manifest() {
  Manifest manifest;
  manifest.state = {.updates = 1000,
                    .batches = 1003,
                    .skipped = 3,
                    .skipped_in_a_row = 1,
                    .position = 64'320,
                    .samples = 64'000,
                    .tokens = 32'768'000,
                    .loss_scale = 65536,
                    .loss_scale_clean_steps = 12,
                    .loss_scale_overflows_left = 2,
                    .blend_start = 7,
                    .blend_taken = {1, 0},
                    .blend_now = {40'000, 24'192},
                    .best_valid_loss = 3.1,
                    .best_valid_step = 900,
                    .last_eval = 1000};
  manifest.weights = DType::kBF16;
  manifest.optimizer_states = {"exp_avg", "exp_avg_sq"};
  manifest.tensors = {{"model.embed_tokens.weight", {512, 64}}, {"model.norm.weight", {64}}, {"scale", {}}};
  manifest.files = {{"weights/w-00000-0.safetensors", 70'000, 4096, hash128("a"), {{0, 2, 0, 65536}, {2, 1, 5, 9}}},
                    {"optim/o-00000-0.safetensors", 4096, 4096, hash128("b"), {}}};
  manifest.generation = "4f\"2 \xC3\xA9";
  manifest.written_unix = 1'795'200'000;
  manifest.config = JsonValue::Object{{"run", JsonValue::Object{{"seed", 1234}, {"lr", 3e-4}}}, {"hash", "not the end"}};
  manifest.data = JsonValue::Array{"fnv1a64:1", nullptr};
  return manifest;
}

// `text` with its first `from` replaced, and the hash that it has then.
std::string edited_manifest(std::string text, std::string_view from, std::string_view to) {
  text.resize(text.rfind(",\"hash\":"));
  text = replaced(std::move(text), from, to);
  return text + ",\"hash\":\"" + to_string(hash128(text)) + "\"}\n";
}

std::string refusal_of(const std::string& text) {
  return error_of<DataError>([&] { parse_manifest(text, "dir/manifest.json"); });
}

void refused(std::string_view from, std::string_view to, std::string_view because) {
  const std::string message = refusal_of(edited_manifest(to_text(small_manifest()), from, to));
  EXPECT_TRUE(message.starts_with("dir/manifest.json:")) << message;
  EXPECT_TRUE(contains(message, because)) << message << "\n  for " << to;
}

TEST(Manifest, RoundTrips) {
  const Manifest manifest = small_manifest();
  EXPECT_EQ(parse_manifest(to_text(manifest), "x"), manifest);
  Manifest other;  // nothing in it, nothing null that was not
  EXPECT_EQ(parse_manifest(to_text(other), "x"), other);
  other.complete = false;
  other.state.loss_scale = 0x1p-14;
  other.state.best_valid_loss = -1.0 / 3;
  other.state.tokens = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(parse_manifest(to_text(other), "x"), other);
}

TEST(Manifest, ABaseMakesItFormatTwo) {
  Manifest manifest = small_manifest();
  EXPECT_TRUE(contains(to_text(manifest), R"("version":1,"min_reader_version":1)"));
  manifest.base = "/models/a \"base\"";
  manifest.tensors[0].frozen = true;
  manifest.tensors[0].base = 0xfedcba9876543210u;
  const std::string text = to_text(manifest);
  EXPECT_TRUE(contains(text, R"("version":2,"min_reader_version":2)"));
  EXPECT_EQ(parse_manifest(text, "x"), manifest);
  const auto with = [&](std::string_view from, std::string_view to) { return refusal_of(edited_manifest(text, from, to)); };
  EXPECT_TRUE(contains(with(R"("frozen":true)", R"("frozen":false)"), "has a base, and is not frozen"));
  EXPECT_TRUE(contains(with(R"("base":"fedc)", R"("base":"xedc)"), "base is not a hash"));
  EXPECT_TRUE(contains(with(R"("base":"fedcba9876543210")", R"("base":3)"), "base is not a string"));
  EXPECT_TRUE(contains(with(R"("base":"/models)", R"("hidden":"/models)"), "base is missing"));
}

// A text of format 1, whoever wrote it, for ever.
TEST(Manifest, FormatOneStaysReadable) {
  const std::string text =
      R"({"format":"trident-checkpoint","version":1,"min_reader_version":1,"state":{"updates":2,"batches":3,"skipped":1,)"
      R"("skipped_in_a_row":0,"position":8,"samples":8,"tokens":64,"loss_scale":1.0,"loss_scale_clean_steps":0,"loss_scale_overflows_left":0,)"
      R"("blend_start":0,"blend_taken":[],"blend_now":[],"best_valid_loss":null,"best_valid_step":0,"last_eval":-1},)"
      R"("weights":"F32","complete":true,"optimizer_states":["exp_avg"],"tensors":[{"name":"w","shape":[2,3]}],)"
      R"("files":[{"path":"weights/w.safetensors","bytes":4120,"table_bytes":4096,"table":"99aa06d3014798d86001c324468d497f",)"
      R"("runs":[[0,1,0,65536]]}],)"
      R"("generation":"g","written_unix":1795200000,"config":null,"data":null,"writer":null,)"
      R"("hash":"13da2bb1b4df62770431f6356678c639"})"
      "\n";
  const Manifest manifest = parse_manifest(text, "x");
  EXPECT_EQ(manifest.state.batches, 3);
  EXPECT_EQ(manifest.files[0].table, hash128(""));
  EXPECT_EQ(to_text(manifest), text);
}

TEST(Manifest, EveryFlippedBitIsRefused) {
  const std::string text = to_text(small_manifest());
  std::string flipped = text;
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      flipped[i] = static_cast<char>(text[i] ^ (1 << bit));
      EXPECT_NE(refusal_of(flipped), "no error") << "bit " << bit << " of byte " << i;
    }
    flipped[i] = text[i];
  }
  EXPECT_EQ(refusal_of(text), "no error");
}

TEST(Manifest, EveryTruncationAndExtensionIsRefused) {
  const std::string text = to_text(small_manifest());
  for (std::size_t size = 0; size < text.size(); ++size) EXPECT_NE(refusal_of(text.substr(0, size)), "no error") << size;
  for (const char* more : {" ", "\n", "}", "x"}) EXPECT_NE(refusal_of(text + more), "no error");
  EXPECT_NE(refusal_of(text + text), "no error");
  for (const char* end : {"", " ", "\r", "\t", "\r\n"}) EXPECT_NE(refusal_of(text.substr(0, text.size() - 1) + end), "no error");
  EXPECT_NE(refusal_of(text + std::string(1, '\0')), "no error");
}

TEST(Manifest, SwappedMembersAreRefused) {
  const std::string text = to_text(small_manifest());
  const auto swapped = [&](std::string_view a, std::string_view b) {
    std::string other = text;
    const std::size_t at_a = other.find(a), at_b = other.find(b);
    EXPECT_LT(at_a, at_b);
    other.replace(at_b, b.size(), a);
    return other.replace(at_a, a.size(), b);
  };
  // The same members in another order are another text.
  EXPECT_TRUE(contains(refusal_of(swapped("\"updates\":1000", "\"batches\":1003")), "hash"));
  EXPECT_TRUE(contains(refusal_of(swapped(to_string(hash128("a")), to_string(hash128("b")))), "hash"));
  // Where the hash is right, order means nothing.
  std::string other = swapped("\"updates\":1000", "\"batches\":1003");
  EXPECT_EQ(parse_manifest(edited_manifest(other, "", ""), "x"), small_manifest());
  const std::string message = refusal_of(swapped("\"updates\"", "\"batches\""));
  EXPECT_TRUE(contains(message, "its text has the hash ")) << message;
  EXPECT_TRUE(contains(message, text.substr(text.rfind(":\"") + 2, 32))) << message;
}

TEST(Manifest, VersionsDecide) {
  const Manifest manifest = small_manifest();
  const std::string text = to_text(manifest);
  // A later writer: more members at every place, and this reader is good enough.
  std::string later = edited_manifest(text, "\"version\":1,", "\"version\":2,\"new\":{\"a\":[1,2.5]},");
  later = edited_manifest(later, "\"updates\":", "\"new\":[],\"updates\":");
  later = edited_manifest(later, "\"name\":", "\"new\":null,\"name\":");
  later = edited_manifest(later, "\"path\":", "\"new\":\"\",\"path\":");
  EXPECT_EQ(parse_manifest(later, "x"), manifest);
  const std::string newer = edited_manifest(edited_manifest(later, "\"version\":2", "\"version\":3"), "\"min_reader_version\":1",
                                            "\"min_reader_version\":3");
  const std::string message = refusal_of(newer);
  EXPECT_TRUE(contains(message, "format 3, which readers of format 3 and later understand, this is one of 2; use a newer trident"))
      << message;
  refused("\"min_reader_version\":1", "\"min_reader_version\":2", "version 1 for readers from 2 on");
  refused("\"min_reader_version\":1", "\"min_reader_version\":0", "min_reader_version is not an integer of at least 1");
  refused("\"version\":1,", "\"version\":0,", "version is not an integer of at least 1");
  refused("trident-checkpoint", "trident-dataset", "format is \"trident-dataset\"");
}

TEST(Manifest, RefusesWhatCannotBe) {
  refused("\"updates\":1000,", "", "state: updates is missing");
  refused("\"updates\":1000", "\"updates\":-1", "state: updates is not an integer of at least 0");
  refused("\"updates\":1000", "\"updates\":1000.0", "updates is not an integer");
  refused("\"updates\":1000", "\"updates\":1004", "state: 1004 updates of 1003 batches");
  refused("\"updates\":1000", "\"updates\":99999999999999999999", "updates is not an integer");
  refused("\"updates\":1000", "\"updates\":1000,\"updates\":1000", "duplicate key \"updates\"");
  refused("\"skipped\":3", "\"skipped\":1004", "of 1003 batches 1004 were skipped");
  refused("\"skipped_in_a_row\":1", "\"skipped_in_a_row\":4", "3 were skipped, 4 in a row");
  refused("\"loss_scale\":65536.0", "\"loss_scale\":0", "loss_scale is 0");
  refused("\"loss_scale\":65536.0", "\"loss_scale\":-2", "loss_scale is -2");
  refused("\"loss_scale\":65536.0", "\"loss_scale\":null", "loss_scale is not a number");
  refused("\"loss_scale\":65536.0", "\"loss_scale\":1e999", "dir/manifest.json:");
  refused("\"blend_now\":[40000", "\"blend_now\":[-40000", "blend_now holds something that is not a count");
  refused("\"last_eval\":1000", "\"last_eval\":-2", "last_eval is not an integer of at least -1");
  refused("\"best_valid_loss\":3.1", "\"best_valid_loss\":\"3.1\"", "best_valid_loss is not a number");
  refused("\"state\":{", "\"state\":7,\"was\":{", "state: is not an object");
  refused("\"weights\":\"BF16\"", "\"weights\":\"I32\"", "weights are \"I32\"");
  refused("\"weights\":\"BF16\"", "\"weights\":16", "weights is not a string");
  refused("\"complete\":true", "\"complete\":1", "complete is neither true nor false");
  refused("\"exp_avg_sq\"", "\"exp_avg\"", "optimizer state \"exp_avg\" twice");
  refused("\"exp_avg_sq\"", "\"master\"", "optimizer state \"master\" twice");
  refused("\"exp_avg_sq\"", "\"a/b\"", "optimizer state \"a/b\": no name");
  refused("\"exp_avg_sq\"", "7", "optimizer_states holds something that is not a string");
  refused("\"tensors\":[", "\"tensors\":{},\"was\":[", "tensors is not a list");
  refused("model.norm.weight", "model.embed_tokens.weight", "tensor \"model.embed_tokens.weight\" twice");
  refused("model.norm.weight", "", "tensor 1: tensor \"\": no name");
  refused("model.norm.weight", "master/norm", "tensor \"master/norm\": no name");
  refused("model.norm.weight", std::string(4097, 'n'), "no name");
  refused("[512,64]", "[512,-64]", "tensor \"model.embed_tokens.weight\": shape holds something that is not a count");
  refused("[512,64]", "[4611686018427387904,64]", "tensor \"model.embed_tokens.weight\": the shape is too large");
  refused("[512,64]", "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "more than 16 dimensions");
  refused("\"generation\":\"", "\"generation\":7,\"was\":\"", "generation is not a string");
  refused("\"written_unix\":1", "\"written_unix\":-1", "written_unix is not an integer");
  for (const char* member : {"config", "data", "writer"})
    refused(fmt::format("\"{}\":", member), "\"was\":", fmt::format("{} is missing", member));
  EXPECT_TRUE(contains(refusal_of(""), "does not end with its hash"));
  EXPECT_TRUE(contains(refusal_of(edited_manifest("[],\"hash\":", "", "")), "dir/manifest.json:"));
}

TEST(Manifest, RefusesFilesThatCannotBe) {
  for (const char* path : {"", "/etc/passwd", "../w", "weights/../../w", "weights/..", "./w", "weights//w", "weights/", "a b",
                           "a\\\\b", "w\\u0000", "caf\xC3\xA9", "manifest.json", "C:w", "~"})
    refused("weights/w-00000-0.safetensors", path, "leaves the checkpoint, or has characters that no file of it has");
  for (const char* path : {"w", "..w", "a.b/c-d/E_9", "..."}) {
    const std::string text = edited_manifest(to_text(small_manifest()), "weights/w-00000-0.safetensors", path);
    EXPECT_EQ(parse_manifest(text, "x").files[0].path, path);
  }
  refused("optim/o-00000-0.safetensors", "weights/w-00000-0.safetensors", "file \"weights/w-00000-0.safetensors\" twice");
  const std::string_view file = "file weights/w-00000-0.safetensors: ";
  refused("\"bytes\":70000", "\"bytes\":4095", fmt::format("{}4095 bytes, of which the table has 4096", file));
  refused("\"table_bytes\":4096", "\"table_bytes\":9", fmt::format("{}table_bytes is not an integer of at least 10", file));
  refused("\"bytes\":70000,\"table_bytes\":4096", "\"bytes\":200000000,\"table_bytes\":100000009",
          "of which the table has 100000009");
  refused("\"bytes\":70000", "\"bytes\":9223372036854775807", "more than all files together can have");
  refused("\"table\":\"", "\"table\":\"0", fmt::format("{}table is not a hash", file));
  refused("[0,2,0,65536]", "[0,2,0]", fmt::format("{}a run is not [first, count, begin, end]", file));
  refused("[0,2,0,65536]", "[0,2,0,1.5]", "a run of parts 0 to -1");
  refused("[0,2,0,65536]", "7", "a run is not");
  refused("[0,2,0,65536]", "[-1,2,0,65536]", "a run of 2 tensors from -1 on, there are 3");
  refused("[0,2,0,65536]", "[0,0,0,65536]", "a run of 0 tensors from 0 on");
  refused("[0,2,0,65536]", "[2,2,0,65536]", "a run of 2 tensors from 2 on, there are 3");
  refused("[0,2,0,65536]", "[2,9223372036854775807,0,65536]", "a run of 9223372036854775807 tensors from 2 on");
  refused("[0,2,0,65536]", "[0,2,0,65537]", "a run of parts 0 to 65537");
  refused("[0,2,0,65536]", "[0,2,7,7]", "a run of parts 7 to 7");
  refused("[0,2,0,65536]", "[0,2,-1,7]", "a run of parts -1 to 7");
}

// 10,000 tensors in 1,024 files, of which each has some of a quarter of the tensors: what a checkpoint of a large job opens with.
TEST(Manifest, OfALargeJobIsReadFast) {
  Manifest manifest = small_manifest();
  manifest.tensors.clear();
  manifest.files.clear();
  for (int i = 0; i < 10'000; ++i)
    manifest.tensors.push_back({fmt::format("model.layers.{}.mlp.experts.{}.down_proj.weight", i / 100, i), {8192, 28672}});
  for (int i = 0; i < 1024; ++i) {
    ManifestFile file{
        fmt::format("weights/w-{:05}-0.safetensors", i), std::int64_t{1} << 36, 1 << 20, hash128(fmt::format("{}", i)), {}};
    for (int run = 0; run < 8; ++run) file.runs.push_back({2500 * (i % 4) + 300 * run, 300, 64 * (i / 4), 64 * (i / 4) + 64});
    manifest.files.push_back(std::move(file));
  }
  const std::string text = to_text(manifest);
  const std::clock_t start = std::clock();  // other work on the machine is none of the reader's
  const Manifest back = parse_manifest(text, "x");
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  RecordProperty("milliseconds", static_cast<int>(1e3 * seconds));
  RecordProperty("bytes", static_cast<int>(text.size()));
  EXPECT_EQ(back, manifest);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(seconds, 1.0) << text.size() << " bytes";
#endif
}

}  // namespace
}  // namespace trident
