// trident plan --cases ROWS [--book FOLDER] [--json]
#pragma once

#include <iosfwd>
#include <string>

namespace trident {

// A line for each row of the table at `path`, priced with the tables in `folder`; empty: the program's own.
void answer_cases(const std::string& path, const std::string& folder, bool json, std::ostream& out);

}  // namespace trident
