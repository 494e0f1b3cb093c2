// A study on what its specification names.
#pragma once

#include "train/forecast/study_result.h"

namespace trident {

// Throws ConfigError: a cluster that is not there, none named.
StudyResult run_study_here(const StudySpec& spec, bool executes);

}  // namespace trident
