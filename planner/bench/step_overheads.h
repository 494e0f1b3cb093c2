// The overhead of whole steps beside their operations and collectives: so much for each of what they
// count.
#pragma once

#include <span>
#include <utility>

namespace trident {

// A rank's step, on average.
struct StepSum {
  double measured = 0;  // seconds
  double priced = 0;    // seconds of it that are accounted for: its operations, and its collectives by the tables
  double tables = 0;    // seconds of its operations by the tables
  double one = 1, calls = 0, collectives = 0;  // steps, operations, calls of groups
  double roots = 0;  // sum over calls of groups of the root of the seconds worked since the one before
};

// Explains what is measured and not priced as so much for each of `of`: least squares of errors relative to `measured`, at least 0.
// 0 where no step has any.
double seconds_of_each(std::span<const StepSum> sums, double StepSum::*of);

// The same as the median of what each step says, so that neither a step that was disturbed weighs, nor one of a model so small that
// most of it is what is asked for. Of steps with any of `of` in them.
double median_of_each(std::span<const StepSum> sums, double StepSum::*of);

// As seconds_of_each(), so much for each of `first` and for each of `second`; neither below 0. Where there are steps, these two
// must not be in proportion to each other in all of them: no step would tell them apart, and the one column is what can be asked.
std::pair<double, double> seconds_of_each(std::span<const StepSum> sums, double StepSum::*first, double StepSum::*second);

}  // namespace trident
