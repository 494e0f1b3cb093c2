// tokenizer_speed FILE: encodes the file once with GPT-2's tokenizer on one thread and prints MB per second of CPU time.
#include <cstdint>
#include <cstdio>

#include "core/clock.h"
#include "core/file_io.h"
#include "data/tokenizer/tokenizer.h"

int main(int argc, char** argv) {
  if (argc != 2) return 64;
  const std::string text = trident::read_file(argv[1]);
  const auto tokenizer = trident::load_tokenizer("gpt2");
  const auto encoder = tokenizer->new_encoder();
  std::vector<std::int32_t> ids;
  const double start = trident::thread_cpu_seconds();
  encoder->encode(text, &ids);
  const double seconds = trident::thread_cpu_seconds() - start;
  const double megabytes = static_cast<double>(text.size()) * 1e-6;
  std::printf("%.2f MB, %zu tokens, %.3f s, %.1f MB/s\n", megabytes, ids.size(), seconds, megabytes / seconds);
}
