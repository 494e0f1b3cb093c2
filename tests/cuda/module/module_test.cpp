// trident_cuda.so as a program loads it: what it finds on a machine without GPUs, that its errors are the program's, and
// that the two share no function that each has its own of.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>

#include "core/check.h"
#include "device/host/doorbell.h"
#include "parallel/cuda/cuda_backend.h"

namespace trident {
namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  std::string text;
  std::array<char, 4096> part;
  while (pipe != nullptr && std::fgets(part.data(), part.size(), pipe.get()) != nullptr) text += part.data();
  return text;
}

// Dynamic symbols that a file defines, by their nm letter; those that may be defined twice (weak, unique) are left out.
std::set<std::string> strong_symbols(const std::string& file) {
  std::istringstream lines(output_of(fmt::format("'{}' -D --defined-only -P '{}'", TRIDENT_NM, file)));
  std::set<std::string> names;
  std::string name, letter, rest;
  while (lines >> name >> letter && std::getline(lines, rest)) {
    if (letter == "T" || letter == "D" || letter == "B" || letter == "R") names.insert(name);
  }
  return names;
}

class CudaModule : public ::testing::Test {
 protected:
  // Whoever asks for libcuda.so.1 from now on gets what is loaded.
  static void SetUpTestSuite() { ASSERT_NE(dlopen(TRIDENT_DRIVER, RTLD_NOW | RTLD_GLOBAL), nullptr) << dlerror(); }
};

TEST_F(CudaModule, IsLoadedAndSaysThatThereIsNoGpu) {
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  const CudaFacts& facts = cuda->facts();
  EXPECT_NE(facts.problem.find("no GPU is visible to this process"), std::string::npos) << facts.problem;
  EXPECT_TRUE(facts.gpus.empty());
  for (const char* library : {"CUDA ", "cuBLASLt ", "cuDNN ", "NCCL "})
    EXPECT_NE(facts.libraries.find(library), std::string::npos) << facts.libraries;
}

TEST_F(CudaModule, ItsErrorsAreTheProgramsErrors) {
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  Doorbell doorbell;
  EXPECT_THROW(cuda->make_device(0, doorbell, {}, {}), ConfigError);
  EXPECT_THROW(cuda->open_gpu(0), InternalError);
}

TEST_F(CudaModule, SharesNoFunctionWithTheProgram) {
  const std::set<std::string> module = strong_symbols(TRIDENT_MODULE),
                              program = strong_symbols(std::filesystem::read_symlink("/proc/self/exe"));
  EXPECT_EQ(module.count("trident_make_cuda_backend"), 1u);
  EXPECT_GT(module.size(), 100u);
  EXPECT_GT(program.size(), 100u);
  for (const std::string& name : module)
    EXPECT_EQ(program.count(name), 0u) << name << " is in the module and in the program; only one of them is used";
}

}  // namespace
}  // namespace trident
