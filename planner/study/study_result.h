// A study's result, point by point, and what follows from comparing its rows. Values only.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/parallel_axis.h"
#include "planner/price/step_price.h"
#include "planner/study/study_spec.h"

namespace trident {

// Measurements of a point that was executed.
struct StudyMeasurement {
  double seconds = 0;     // of a step, the mean; where ranks share cores, what processors worked over them
  double predicted = 0;   // likewise, by the executed run itself
  std::string clock;      // "wall", or "processor" where ranks share cores
  int steps = 0;          // that it is the mean of
  std::int64_t memory_bytes = 0;  // the largest arena of a rank
  std::optional<double> worked;   // of `seconds`, by a rank, where other work had the cores: nothing is said by them then
};

struct StudyRow {
  StudyPoint point;
  std::string reason;  // why the point cannot be; then only `point` counts

  // On processors gpus are ranks, threads of one process, and what is said of a GPU is said of a rank.
  std::int64_t gpus = 0, replicas = 0, micro_batches = 0, tokens = 0;  // tokens: of a step
  std::int64_t parameters = 0;  // of the model
  double seconds = 0;   // of a step
  TimeParts parts;      // of the pipeline rank that waits least; they add up to `seconds`
  double mfu = 0;       // model FLOPs (attention in full, no recomputation) over seconds x gpus x peak; 0: no peak is known
  double bubble = 0;    // idle over ideal
  double uneven = 0;    // seconds that the stage of `parts` computes longer than stages do on average; 0: no pipeline
  std::string stage;    // that stage, "stage 1 (block 5, head)"
  std::int64_t memory_bytes = 0;  // that have to fit: of the GPU that needs most, or of the process whose threads are ranks
  std::int64_t optimizer_bytes = 0;  // on GPUs, of them its optimizer state: what offloading would take away
  std::int64_t memory_there = 0;  // of that GPU, or of this machine where the processors are its own; 0: not known
  bool fits = true;
  bool tight = false;  // with less free than its memory may be off
  std::array<double, kNumAxes> bytes_sent{};  // of a step, by axis, of a rank on average
  double gathers = 0, reductions = 0;         // over dp, of a unit in a step on average

  double efficiency = 0;  // see held_fixed(); 0: it does not fit, or is the only point
  double of_first = 0;    // tokens/s a GPU over that of the first row of equally many GPUs that can be, itself included

  std::optional<StudyMeasurement> measured;
  std::string not_run;  // why not, where points were to be executed

  bool possible() const { return reason.empty(); }
  double tokens_per_second() const { return static_cast<double>(tokens) / seconds; }
  double tokens_per_gpu() const { return tokens_per_second() / static_cast<double>(gpus); }
};

struct StudyResult {
  StudySpec spec;
  std::vector<std::string> models, batches;  // lines, each once: of points that can be
  std::string hardware;           // what prices are of
  std::string counted_as = "GPU";   // what rows' gpus are; "rank" on processors
  std::vector<std::string> held;  // sentences: what stays the same, and what efficiency is
  std::vector<StudyRow> rows;     // in the order of points_of()
  std::vector<std::string> causes;  // sentences: why rows differ

  bool any_possible() const;
};

// One unit for all times of a study, by its longest step.
struct StudyTimeUnit {
  std::string_view name;  // "s", or "ms"
  double of_second = 1;
};
StudyTimeUnit time_unit_of(const StudyResult& result);

// "other work had the cores: a rank worked 0.3 s of 0.9 s, not judged"; "" where none had.
std::string disturbance_text(const StudyMeasurement& measured, const StudyTimeUnit& unit);

// "batch.global = 96: ...; 12 GPUs: ... (2 more reasons)": why no point can be, each reason once and three at most.
std::string reasons_text(const StudyResult& result);

// Fills row.measured from the comparison.json (docs/logs.md) of a run that executed the point, or row.not_run where it has no time.
// DataError naming a member that is missing, or is not of its kind.
void take_comparison(const JsonValue& comparison, StudyRow& row);

// The same of a file. One that is missing, or cannot be taken, is why the row has no time (row.not_run): the points before it and
// behind it keep what they measured.
void read_comparison(const std::string& path, StudyRow& row);

// Fills efficiency and of_first. Rows are compared that differ in gpus alone; the reference has the fewest GPUs among rows that can
// be and fit. A row that does not fit has no efficiency: nobody can have it.
void compare_rows(StudyResult& result);

// Returns the fastest row with so many GPUs. Rows that fit go before others, and among them rows that are not tight. nullptr: none
// can be.
const StudyRow* fastest_of(const StudyResult& result, std::int64_t gpus);

// The row that another is held against: the first arm's with the same values, or without arms the fastest of as many GPUs.
const StudyRow* reference_of(const StudyResult& result, const StudyRow& row);

// Says what is held fixed, and what efficiency means, from the specification alone: nothing where ranks and layout do not vary.
// `counted_as` as in StudyResult.
std::vector<std::string> held_fixed(const StudySpec& spec, std::string_view counted_as);

// Why rows differ by more than 5 %, a sentence for each line of rows that differ in gpus alone. Against reference_of(), where they
// differ from it in one key: the part of the step that makes most of the difference, where it is largest; for gathers
// and reductions the bytes and collectives behind it. Where GPUs grow, a sentence names the part that grew most. The first
// sentences name keys that change nothing of a row.
std::vector<std::string> causes_of(const StudyResult& result);

// "zero3, micro 2": what tells a row from others, without gpus.
std::string row_name(const StudySpec& spec, const StudyPoint& point);

}  // namespace trident
