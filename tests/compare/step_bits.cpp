// step_bits cpu|GPU llama|gpt2 [KEY=VALUE ...]: trains a tiny model for a few steps and prints every bit that matters, a line
// each.
//
// loss and norm of each step as hexadecimal floats; then XXH3-128 of all initial weights, of the first step's reduced gradients and
// of the final weights, by tensor name, so that no layout shows in them. "GPU": on the simulated GPU. Exit status: 0, 64 wrong
// usage, 77 no simulated GPU in this build.
#include <exception>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "checkpoint/format/hash128.h"
#include "support/layout_run.h"

namespace trident::testing {
namespace {

std::string hash_of(const NamedTensors& tensors) {
  std::string bytes;
  for (const auto& [name, values] : tensors) {
    bytes += name;
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  return to_string(hash128(bytes));
}

int run(const std::vector<std::string>& words) {
  if (words.size() < 2 || (words[0] != "cpu" && words[0] != "card") || (words[1] != "llama" && words[1] != "gpt2")) {
    std::cerr << "usage: step_bits cpu|GPU llama|gpt2 [KEY=VALUE ...]\n";
    return 64;
  }
  const std::unique_ptr<CudaBackend> backend = make_cuda_backend();
  LayoutRunOptions options;
  if (words[0] == "card") options.cuda = backend.get();
  if (options.cuda != nullptr && options.cuda->facts().gpus.empty()) {
    std::cerr << "step_bits: this build has no simulated GPU\n";
    return 77;
  }
  const LayoutRun run =
      run_layout(words[1] == "llama" ? tiny_llama_config() : tiny_gpt2_config(), {words.begin() + 2, words.end()}, options);
  for (std::size_t step = 0; step < run.losses.size(); ++step)
    std::cout << fmt::format("step {} loss {:a} norm {:a}\n", step + 1, run.losses[step], run.grad_norms[step]);
  for (const auto& [name, tensors] : {std::pair{"initial", &run.initial}, {"gradients", &run.gradients}, {"weights", &run.weights}})
    std::cout << name << ' ' << hash_of(*tensors) << '\n';
  return 0;
}

}  // namespace
}  // namespace trident::testing

int main(int argc, char** argv) {
  try {
    return trident::testing::run({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::cerr << "step_bits: " << error.what() << '\n';
    return 1;
  }
}
