// The layouts whose contracts are checked, and their configurations as a user would write them.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "tests/contracts/expected.h"

namespace trident::contracts {

std::vector<ContractCase> contract_cases();
// Adapters and frozen parameters, for what holds whatever trains.
std::vector<ContractCase> tuned_contract_cases();
std::string config_of(const ContractCase& c);  // JSON
void PrintTo(const ContractCase& c, std::ostream* out);

}  // namespace trident::contracts
