// tokenizer_speed TOKENIZER FILE [THREADS]: encodes the file's documents of 4 KB, thread t the documents t, t + THREADS, ..., and
// prints MB per second of CPU time, MB per second, and the Adler-32 of all ids as little-endian 32-bit integers.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/file_io.h"
#include "data/tokenizer/tokenizer.h"

namespace {

constexpr std::size_t kDocument = 4096;

std::vector<std::string_view> documents_of(std::string_view text) {
  std::vector<std::string_view> documents;
  while (!text.empty()) {
    std::size_t end = std::min(kDocument, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    documents.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  return documents;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) return 64;
  const std::string text = trident::read_file(argv[2]);
  const auto tokenizer = trident::load_tokenizer(argv[1]);
  if (text.empty()) return 65;
  const std::vector<std::string_view> documents = documents_of(text);
  const std::size_t num_threads = argc == 4 ? std::strtoul(argv[3], nullptr, 10) : 1;
  std::vector<std::vector<std::int32_t>> ids(documents.size());
  std::vector<double> seconds(num_threads);
  const double start = trident::monotonic_seconds();
  {
    std::vector<std::jthread> threads;
    for (std::size_t t = 0; t < num_threads; ++t)
      threads.emplace_back([&, t] {
        const auto encoder = tokenizer->new_encoder();
        const trident::TextRule rule{.specials = trident::Specials::kPlain, .around = trident::Around::kLeftOut};
        std::vector<std::int32_t> first;
        encoder->encode(documents.front(), &first, rule);
        const double begin = trident::thread_cpu_seconds();
        for (std::size_t i = t; i < documents.size(); i += num_threads) {
          std::vector<std::int32_t> own;  // neighbours in `ids` share a cache line, and other threads write to them
          encoder->encode(documents[i], &own, rule);
          ids[i] = std::move(own);
        }
        seconds[t] = trident::thread_cpu_seconds() - begin;
      });
  }
  const double wall = trident::monotonic_seconds() - start, megabytes = static_cast<double>(text.size()) * 1e-6;
  double cpu = 0;
  for (const double one : seconds) cpu += one;
  std::uint32_t low = 1, high = 0;
  for (const auto& of_document : ids)
    for (const std::int32_t id : of_document)
      for (int byte = 0; byte < 4; ++byte) {
        low = (low + (static_cast<std::uint32_t>(id) >> 8 * byte & 0xFF)) % 65521;
        high = (high + low) % 65521;
      }
  std::printf("%.2f %.2f %08x\n", megabytes / cpu, megabytes / wall, high << 16 | low);
}
