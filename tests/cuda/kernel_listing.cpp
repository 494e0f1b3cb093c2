#include "tests/cuda/kernel_listing.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "core/file_io.h"
#include "tests/cuda/simulated/launched_kernels.h"

namespace trident::testing {
namespace {

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), &std::free);
  return status == 0 ? text.get() : "";
}

template <class T>
T read_at(const std::string& bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

// Where the program was loaded, less where it was linked for.
std::uintptr_t load_offset() {
  std::uintptr_t offset = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* to) {
        *static_cast<std::uintptr_t*>(to) = info->dlpi_addr;
        return 1;  // the program itself comes first
      },
      &offset);
  return offset;
}

// Functions of the program's symbol table that may be kernels, by address.
std::map<std::uintptr_t, std::string> functions_of_program() {
  const std::string image = read_file("/proc/self/exe");
  const auto header = read_at<Elf64_Ehdr>(image, 0);
  std::map<std::uintptr_t, std::string> functions;
  for (std::size_t s = 0; s < header.e_shnum; ++s) {
    const auto table = read_at<Elf64_Shdr>(image, header.e_shoff + s * header.e_shentsize);
    if (table.sh_type != SHT_SYMTAB) continue;
    const auto names = read_at<Elf64_Shdr>(image, header.e_shoff + table.sh_link * header.e_shentsize);
    for (std::size_t at = 0; at < table.sh_size; at += sizeof(Elf64_Sym)) {
      const auto symbol = read_at<Elf64_Sym>(image, table.sh_offset + at);
      const char* const name = image.data() + names.sh_offset + symbol.st_name;
      if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value != 0 && std::strstr(name, "cuda_kernels") != nullptr)
        functions[symbol.st_value + load_offset()] = demangled(name);
    }
  }
  return functions;
}

// "add_kernel<float, 4>" of "void trident::cuda_kernels::(anonymous namespace)::add_kernel<float, 4>(long, ...)"; empty for what is
// no kernel, such as a lambda in one.
std::string kernel_name(const std::string& function) {
  const std::string scope = "trident::cuda_kernels::(anonymous namespace)::", result = "void ";
  if (function.find("{lambda") != std::string::npos || function.find("[clone") != std::string::npos) return "";
  const std::size_t begin = function.rfind(result, 0) == 0 ? result.size() : 0;
  if (function.compare(begin, scope.size(), scope) != 0) return "";
  const std::string rest = function.substr(begin + scope.size());
  const std::size_t end = rest.find_first_of("<(:");
  if (end == std::string::npos || rest[end] == ':' || !ends_with(rest.substr(0, end), "_kernel")) return "";
  // The arguments of a template: up to the parenthesis outside of angle brackets.
  int depth = 0;
  for (std::size_t i = end; i < rest.size(); ++i) {
    depth += rest[i] == '<' ? 1 : rest[i] == '>' ? -1 : 0;
    if (rest[i] == '(' && depth == 0) return rest.substr(0, i);
  }
  return "";
}

// Returns the kernels whose names begin with `prefix`, less those of `without`.
std::vector<std::string> kernels(const std::string& prefix, const std::set<const void*>& without) {
  std::vector<std::string> names;
  for (const auto& [address, function] : functions_of_program()) {
    const std::string name = kernel_name(function);
    if (name.empty() || name.rfind(prefix, 0) != 0) continue;
    if (!without.contains(reinterpret_cast<const void*>(address))) names.push_back(name);
  }
  return names;
}

}  // namespace

std::vector<std::string> compiled_kernels(const std::string& prefix) { return kernels(prefix, {}); }
std::vector<std::string> untested_kernels(const std::string& prefix) { return kernels(prefix, simulated::launched_kernels()); }
std::vector<std::string> unloaded_kernels(int device) { return kernels("", simulated::loaded_kernels(device)); }

std::vector<std::string> global_functions(const std::string& path) {
  std::string source;
  std::istringstream lines(read_file(path));
  for (std::string line; std::getline(lines, line);) source += line.substr(0, line.find("//")) + ' ';
  const std::string bounds = "__launch_bounds__";
  std::vector<std::string> names;
  for (std::size_t at = source.find("__global__"); at != std::string::npos; at = source.find("__global__", at + 1)) {
    // The word before the first parenthesis that is not the bounds'.
    std::size_t open = source.find('(', at);
    if (ends_with(source.substr(0, open), bounds)) open = source.find('(', open + 1);
    std::size_t begin = open;
    while (std::isalnum(static_cast<unsigned char>(source[begin - 1])) != 0 || source[begin - 1] == '_') --begin;
    names.push_back(source.substr(begin, open - begin));
  }
  return names;
}

}  // namespace trident::testing
