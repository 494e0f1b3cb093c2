// Profiles and stacks: the shipped ones are whole, and a constant without its source, an unknown or missing key is refused by name.
#include <gtest/gtest.h>

#include <set>

#include "core/file_io.h"
#include "planner/published/published_book.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

std::string rates_text() { return std::string(shipped_hardware_texts().front().text); }

std::string edited(std::string text, std::string_view what, std::string_view with) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), with);
}

std::string refusal_of_profile(const std::string& text) {
  return error_of<ConfigError>([&] { gpu_rates_from_json(parse_json(text, "p.json"), "p.json"); });
}

TEST(GpuRates, ShippedOnesAreReadAndFoundByName) {
  const PublishedBook book = shipped_published_book();
  std::set<std::string> names;
  for (const GpuRates& gpu : book.hardware) EXPECT_TRUE(names.insert(gpu.name).second) << gpu.name;
  for (const char* name : {"A100-SXM4-80GB", "A100-SXM4-40GB", "H100-SXM5-80GB", "H200-SXM-141GB", "B200", "B300", "GB200",
                           "GB300", "V100-16GB", "V100-SXM2/3-32GB", "V100-32GB"})
    ASSERT_NE(find_profile(book.hardware, name), nullptr) << name;
  EXPECT_EQ(find_profile(book.hardware, "A100"), nullptr);
  EXPECT_DOUBLE_EQ(find_profile(book.hardware, "A100-SXM4-80GB")->peak_16bit, 312e12);
  EXPECT_DOUBLE_EQ(find_profile(book.hardware, "H100-SXM5-80GB")->memory_bytes_per_s, 3350e9);
  EXPECT_DOUBLE_EQ(find_profile(book.hardware, "H100-SXM5-80GB")->nvlink.bytes_per_s, 450e9);
}

// The folder of the source tree is what the program carries; each number counts.
TEST(PriceBook, IsReadFromAFolder) {
  const PublishedBook shipped = shipped_published_book(), read = read_published_book(TRIDENT_SOURCE_DIR "/configs");
  ASSERT_EQ(read.hardware.size(), shipped.hardware.size());
  ASSERT_EQ(read.stacks.size(), shipped.stacks.size());
  for (std::size_t i = 0; i < read.hardware.size(); ++i) EXPECT_EQ(read.hardware[i].name, shipped.hardware[i].name);
  for (std::size_t i = 0; i < read.stacks.size(); ++i) EXPECT_EQ(read.stacks[i].issue_s, shipped.stacks[i].issue_s);
  EXPECT_THROW(read_published_book(TRIDENT_SOURCE_DIR "/planner"), ConfigError);
}

TEST(GpuRates, EveryConstantNamesItsSource) {
  std::size_t sources = 0;
  for (const ShippedText& file : shipped_hardware_texts()) {
    std::string text(file.text);
    for (std::size_t at = 0; (at = text.find("\"source\": \"", at)) != std::string::npos; ++at, ++sources)
      EXPECT_GT(text.find('"', at + 11) - (at + 11), 6u) << file.name;
  }
  EXPECT_GT(sources, 200u);
  EXPECT_EQ(refusal_of_profile(edited(rates_text(), "\"source\": \"NVIDIA A100 data sheet, dense\"", "\"source\": \"\"")),
            "p.json.peak_16bit_tflops: names no source; every constant says where it is from");
}

TEST(GpuRates, BadOnesAreRefusedByKey) {
  EXPECT_EQ(refusal_of_profile(rates_text()), "no error");
  EXPECT_EQ(refusal_of_profile(edited(rates_text(), "\"row_fraction\"", "\"row_fractions\"")),
            "p.json.row_fraction: is missing (row_fractions, which is there, may be a misspelling of it); no key of these files "
            "has a default");
  EXPECT_EQ(refusal_of_profile(edited(rates_text(), "\"aliases\"", "\"colour\": 1, \"aliases\"")),
            "p.json.colour: is not a key of this object; remove it");
  EXPECT_EQ(refusal_of_profile(edited(rates_text(), "\"value\": 312", "\"value\": -312")),
            "p.json.peak_16bit_tflops: -312 is not in [1, 100000]; write a value of that range, in the unit that the key names");
  EXPECT_EQ(refusal_of_profile(edited(rates_text(), "\"value\": 312", "\"value\": \"fast\"")),
            "p.json.peak_16bit_tflops: its value must be a number; write one");
  EXPECT_EQ(refusal_of_profile("[]"), "p.json: expected an object, got a list; write an object");
}

TEST(Stack, IsFoundByFrameworkAndYear) {
  const PublishedBook book = shipped_published_book();
  ASSERT_NE(find_stack(book.stacks, "megatron_lm", 2023), nullptr);
  EXPECT_EQ(find_stack(book.stacks, "megatron_lm", 2023), find_stack(book.stacks, "megatron_lm", 0));
  EXPECT_NE(find_stack(book.stacks, "megatron_core_te", 2025), find_stack(book.stacks, "megatron_lm", 2023));
  EXPECT_EQ(find_stack(book.stacks, "mesh", 2023), nullptr);
  std::vector<TrainingStack> two{*find_stack(book.stacks, "megatron_lm", 2023), *find_stack(book.stacks, "megatron_lm", 2023)};
  two[0].first_year = 2019, two[0].last_year = 2021, two[1].first_year = 2022, two[1].last_year = 2024;
  EXPECT_EQ(find_stack(two, "megatron_lm", 2020), &two[0]);
  EXPECT_EQ(find_stack(two, "megatron_lm", 2024), &two[1]);
  EXPECT_EQ(find_stack(two, "megatron_lm", 2030), &two[1]) << "a year beyond them is the latest's";
}

TEST(Stack, GptKeptItsScoresByDefault) {
  const PublishedBook book = shipped_published_book();
  const TrainingStack& megatron = *find_stack(book.stacks, "megatron_lm", 2023);
  const auto ran = [&](const char* named, bool plain_block, int year) {
    return attention_that_ran(megatron, named, plain_block, year);
  };
  EXPECT_EQ(ran("flash2", true, 2023), "megatron_fused_softmax");
  EXPECT_EQ(ran("flash2", true, 2024), "flash2");
  EXPECT_EQ(ran("flash2", true, 0), "flash2") << "nobody knows when";
  EXPECT_EQ(ran("flash2", false, 2023), "flash2") << "no GPT";
  EXPECT_EQ(ran("unfused", true, 2023), "unfused") << "keeps them anyway";
  EXPECT_EQ(attention_that_ran(*find_stack(book.stacks, "pytorch_fsdp1", 2023), "flash2", true, 2023), "flash2");
}

TEST(Stack, BadOnesAreRefusedByKey) {
  const std::string text(shipped_stack_texts().front().text);
  const auto refusal = [](const std::string& changed) {
    return error_of<ConfigError>([&] { stack_from_json(parse_json(changed, "s.json"), "s.json"); });
  };
  EXPECT_EQ(refusal(text), "no error");
  EXPECT_EQ(refusal(edited(text, "\"issue_us\"", "\"issue\"")),
            "s.json.host.issue_us: is missing; no key of these files has a default");
  EXPECT_EQ(refusal(R"({"name": "S", "frameworks": []})"), "s.json.frameworks: is empty; write the names that tables have for it");
  EXPECT_EQ(refusal(edited(text, "\"overlap_reduce\": {\n      \"value\": true", "\"overlap_reduce\": {\n      \"value\": 1")),
            "s.json.communication.overlap_reduce: its value must be true or false; write one of them");
}

}  // namespace
}  // namespace trident
