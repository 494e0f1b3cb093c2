#include <unistd.h>

#include <iostream>

#include "app/subcommands.h"
#include "train/trainer.h"

int main(int argc, char** argv) {
  using namespace trident;
  const auto train = [](const TrainConfig& config) {
    refuse_launcher();
    LogSink log(std::cerr);
    run_training(config, {std::cout, console_mode_of(STDOUT_FILENO), log});
  };
  return run_command_line(Arguments(argv + 1, argv + argc), {std::cout, train}, std::cerr);
}
