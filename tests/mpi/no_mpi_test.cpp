// Tests what a build without MPI says; linked with parallel/no_mpi in every build.
#include <gtest/gtest.h>

#include <string>

#include "parallel/mpi/process_world.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

TEST(NoMpi, RefusesToJoinAndSaysWhatToDo) {
  const std::string text = error_of<ConfigError>([&] { join_process_world(); });
  expect_parts(text, {"this program was built without MPI", "-DTRIDENT_MPI=ON", "libopenmpi-dev"});
}

}  // namespace
}  // namespace trident
