// The price book and the training systems of published runs.
#pragma once

#include <string>
#include <vector>

#include "planner/price/cluster.h"
#include "planner/published/stack.h"

namespace trident {

struct PublishedBook : PriceBook {
  std::vector<TrainingStack> stacks;
};

// The shipped price book, and the stacks of configs/stacks, which the program carries within itself.
PublishedBook shipped_published_book();
std::vector<ShippedText> shipped_stack_texts();

// Reads the .json files in `folder`/hardware, `folder`/stacks and, if there is one, `folder`/clusters. Throws ConfigError: a folder
// that is missing or empty, a bad file.
PublishedBook read_published_book(const std::string& folder);

}  // namespace trident
