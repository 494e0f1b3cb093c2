// What a build without MPI says; linked with parallel/no_mpi in every build.
#include <gtest/gtest.h>

#include <string>

#include "parallel/mpi/process_world.h"

namespace trident {
namespace {

TEST(NoMpi, RefusesToJoinAndSaysWhatToDo) {
  try {
    join_process_world();
    FAIL() << "joined";
  } catch (const ConfigError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("this program was built without MPI"), std::string::npos);
    EXPECT_NE(text.find("-DTRIDENT_MPI=ON"), std::string::npos);
    EXPECT_NE(text.find("libopenmpi-dev"), std::string::npos);
  }
}

}  // namespace
}  // namespace trident
