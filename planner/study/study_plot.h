// A study's rows as pictures.
#pragma once

#include <string>

#include "planner/study/study_result.h"

namespace trident {

// Where the number of GPUs varies: efficiency over it, a line for each combination of other settings. Else the step's time by part,
// a bar for each row. Rows that cannot be are left out; ConfigError where none can be.
std::string study_svg(const StudyResult& result);

// Everything that to_text() says, with efficiency and tokens/s over GPUs where these vary, and time by part; one file that needs
// nothing else.
std::string study_html(const StudyResult& result);

}  // namespace trident
