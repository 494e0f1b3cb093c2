// A folder of its own for a test, removed with all it holds; and what tests say about errors.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/check.h"
#include "core/scratch_folder.h"

namespace trident {

class TemporaryFolder {
 public:
  std::string operator/(const std::string& name) const { return folder_ / name; }
  const std::string& path() const { return folder_.path(); }
  std::vector<std::string> names() const;  // sorted

 private:
  ScratchFolder folder_{"trident_test"};
};

// Runs `body`, which must throw an ErrorType whose message contains every one of `parts` and is one line.
template <class ErrorType, class Body>
void expect_error(Body body, const std::vector<std::string>& parts) {
  try {
    body();
    ADD_FAILURE() << "no error was thrown";
  } catch (const ErrorType& error) {
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos) << message;
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << "no \"" << part << "\" in: " << message;
  }
}

}  // namespace trident
