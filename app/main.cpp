#include <iostream>

#include "app/subcommands.h"

int main(int argc, char** argv) {
  using namespace trident;
  const auto run_training = [](const TrainConfig&) { throw ConfigError("trident train: the trainer is not built yet; --print-config works"); };
  return run_command_line(Arguments(argv + 1, argv + argc), {std::cout, run_training}, std::cerr);
}
