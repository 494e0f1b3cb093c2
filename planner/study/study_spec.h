// A study's specification: a configuration, which of its settings vary, on how many GPUs. Values only; nothing is planned here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/named_enum.h"
#include "train/config/train_config.h"

namespace trident {

// This stays constant while the number of GPUs grows: the global batch, or the batch of a replica (the ranks that hold one copy of
// the model together; there are parallel.data of them).
enum class Scaling : std::uint8_t { kStrong, kWeak };
template <>
inline constexpr std::array<std::string_view, 2> kNamesOf<Scaling>{"strong", "weak"};
Scaling parse_scaling(std::string_view text, std::string_view where);  // ConfigError

// A key as varied_path() (planner/study/study_keys.h) has it; its values as --set takes them.
struct VariedKey {
  std::string key;
  std::vector<std::string> values;  // at least one, none twice
  bool operator==(const VariedKey&) const = default;
};

// "KEY=A|B|C" or "KEY=A..B", which doubles from A to at most B; both forms mix: "gpus=8..64|96". KEY is what varied_path() takes.
// Throws ConfigError that begins with `where`: an unknown or ambiguous key, an empty or backward range, a value that the key does
// not take, one twice.
VariedKey parse_varied(std::string_view text, std::string_view where = "--vary");

// "gpus=64..4096,zero=zero1|zero3,micro=1|2" in its parts: a comma before KEY= separates; others belong to values.
std::vector<std::string> split_varied(std::string_view text);

// One of several things compared: settings beside those of the study.
struct StudyArm {
  std::string name;                   // "" for the only arm of a study without arms
  std::vector<std::string> settings;  // as --set takes them
};

struct StudySpec {
  std::string title;
  std::string config;                 // path of a training configuration
  std::optional<OptionValues> given;  // what was read in its place
  std::vector<std::string> settings;  // as --set takes them, before those of arms
  std::vector<StudyArm> arms{{}};
  std::vector<VariedKey> varied;
  Scaling scaling = Scaling::kStrong;
  std::string cluster;    // name or path, as find_cluster() takes it; empty: none named
  std::int64_t gpus = 0;  // where they do not vary; 0: as many as the configuration's degrees say

  bool varies_gpus() const;  // or the replicas that they follow from
  bool varies(std::string_view path) const;  // even over one value
};

// A JSON object of configs/studies with the member "study"; docs/studies.md has its keys.
bool is_study(const JsonValue& file);
// Paths in it are relative to the folder of `file`. Throws ConfigError naming file, line and member.
StudySpec read_study(const std::string& file);

// The configuration with the settings of the study and of an arm, whatever varies.
TrainConfig config_of_arm(const StudySpec& spec, std::size_t arm);

// ConfigError where the study as a whole cannot be: nothing varies, GPUs beside replicas, a configuration that is refused whatever
// varies, a key that its model does not have.
void check_spec(const StudySpec& spec);

// One run of the study: of which arm, with which value of each varied key.
struct StudyPoint {
  std::size_t arm = 0;
  std::vector<std::string> values;  // by varied key
  std::int64_t gpus = 0;            // 0: as many as the configuration's degrees say
};

inline constexpr std::size_t kMaxStudyPoints = 4096;

// Every arm with every combination of values; arms outermost, gpus or replicas innermost, the others in their order. Throws
// ConfigError for more than kMaxStudyPoints.
std::vector<StudyPoint> points_of(const StudySpec& spec);

// The configuration of a point: parallel.data is gpus over the ranks of a replica, or where it varies gpus follow from it;
// batch.global is what the scaling makes of it. A point that cannot be (gpus that are no whole replicas, a batch that does not
// divide, whatever load_train_config refuses) throws ConfigError.
struct PointConfig {
  TrainConfig config;
  std::int64_t gpus = 0, replicas = 0;
};
PointConfig config_of(const StudySpec& spec, const StudyPoint& point);

// Sequences of a replica in a step that weak scaling holds fixed for an arm: batch.global / parallel.data of the configuration with
// the arm's settings; where parallel.data is auto, over the replicas of the smallest point. ConfigError where that is no whole
// number.
std::int64_t replica_batch(const StudySpec& spec, std::size_t arm);

}  // namespace trident
