#include "tests/cuda/simulated/shared_memory.h"

#include <elf.h>
#include <link.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <vector>

#include "tests/cuda/simulated/poison.h"

namespace trident::simulated {

namespace {

struct Section {
  void* start;
  std::size_t bytes;
};

std::uintptr_t load_address() {
  std::uintptr_t address = 0;
  // The first object reported is the program.
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) { return *static_cast<std::uintptr_t*>(out) = info->dlpi_addr, 1; }, &address);
  return address;
}

// The sections of __shared__ variables, from the program's own section table.
std::vector<Section> find_sections() {
  std::ifstream file("/proc/self/exe", std::ios::binary);
  const auto read = [&](std::uint64_t offset, void* to, std::size_t bytes) {
    if (!file.seekg(static_cast<std::streamoff>(offset)) ||
        !file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes))) {
      std::fprintf(stderr, "simulated CUDA: the program's section table cannot be read\n");
      std::abort();
    }
  };
  Elf64_Ehdr header;
  read(0, &header, sizeof header);
  std::vector<Elf64_Shdr> table(header.e_shnum);
  read(header.e_shoff, table.data(), table.size() * sizeof(Elf64_Shdr));
  std::vector<char> names(table[header.e_shstrndx].sh_size);
  read(table[header.e_shstrndx].sh_offset, names.data(), names.size());
  const std::uintptr_t base = load_address();
  std::vector<Section> sections;
  for (const Elf64_Shdr& section : table) {
    if (std::string_view(names.data() + section.sh_name).starts_with("simt_shared_"))
      sections.push_back({reinterpret_cast<void*>(base + section.sh_addr), section.sh_size});
  }
  return sections;
}

alignas(256) unsigned char dynamic_memory[kSharedBytes];

// Unlike memset, not looked at by a sanitizer: sections contain its red zones.
void fill(void* start, std::size_t bytes, unsigned char value) {
  asm volatile("rep stosb" : "+D"(start), "+c"(bytes) : "a"(value) : "memory");
}

}  // namespace

unsigned char* dynamic_shared_memory(std::size_t bytes) {
  unpoison(dynamic_memory, kSharedBytes);
  poison(dynamic_memory + bytes, kSharedBytes - bytes);
  return dynamic_memory;
}

void fill_shared_memory(std::size_t dynamic_bytes, unsigned char value) {
  static const std::vector<Section> sections = find_sections();
  for (const Section& section : sections) fill(section.start, section.bytes, value);
  fill(dynamic_memory, dynamic_bytes, value);
}

}  // namespace trident::simulated
