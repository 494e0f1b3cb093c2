#include "train/forecast/study_spec.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <optional>

#include "core/counted.h"
#include "core/nearest_name.h"
#include "train/config/option_check.h"
#include "train/config/option_table.h"

namespace trident {
namespace {

constexpr std::string_view kGpus = "gpus";
constexpr std::int64_t kMaxGpus = 1 << 24;

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

// The path that a key of --vary names.
std::string path_of(std::string_view key, std::string_view where) {
  static constexpr std::pair<std::string_view, std::string_view> kShort[] = {
      {"tp", "parallel.tensor"}, {"pp", "parallel.pipeline"}, {"cp", "parallel.context"}, {"dp", "parallel.data"}};
  if (key == kGpus || key == "parallel" || find_option(key) != nullptr || key.starts_with("model.")) return std::string(key);
  for (const auto& [name, path] : kShort)
    if (key == name) return std::string(path);
  std::vector<std::string_view> ends_so;
  for (const Option& option : option_table())
    if (key_of(option) == key) ends_so.push_back(option.path);
  if (ends_so.size() == 1) return std::string(ends_so.front());
  if (ends_so.size() > 1) {
    std::string paths;
    for (const std::string_view path : ends_so) paths += (paths.empty() ? "" : ", ") + std::string(path);
    throw ConfigError(fmt::format("{}: {} may be {}; write the whole path", where, in_quotes(key), paths));
  }
  std::vector<std::string_view> names{kGpus, "tp", "pp", "cp"};
  for (const Option& option : option_table()) names.push_back(key_of(option));
  const std::string_view near = likely_name(key, names);
  throw ConfigError(fmt::format("{}: unknown key {}{}", where, in_quotes(key),
                                near.empty() ? did_you_mean(key) + "; trident help lists the keys of a configuration"
                                             : fmt::format("; did you mean {}?", near)));
}

// "64..4096", which doubles; nothing where the text is no range.
std::optional<std::vector<std::string>> doubled(std::string_view text, std::string_view where) {
  const auto dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const auto low = whole_number(text.substr(0, dots)), high = whole_number(text.substr(dots + 2));
  if (!low || !high) {  // "../corpus/text" is no range
    if (text.find_first_not_of("0123456789.-") != std::string_view::npos) return std::nullopt;
    throw ConfigError(fmt::format("{}: {} must be A..B with whole numbers, such as 64..4096", where, in_quotes(text)));
  }
  if (*low < 1) throw ConfigError(fmt::format("{}: {} must begin at 1 or above: it doubles", where, in_quotes(text)));
  if (*low > *high)
    throw ConfigError(fmt::format("{}: {} is empty; write {}..{}", where, in_quotes(text), *high, *low));
  std::vector<std::string> values;
  for (std::int64_t value = *low; value <= *high; value *= 2) {
    values.push_back(fmt::format("{}", value));
    if (value > *high / 2) break;
  }
  return values;
}

// ConfigError unless the key takes the value; of model keys that is known when the model is read.
void check_value(const std::string& key, const std::string& value, std::string_view where) {
  if (key == kGpus) {
    const auto number = whole_number(value);
    if (!number || *number < 1 || *number > kMaxGpus)
      throw ConfigError(fmt::format("{}: gpus = {}: must be a whole number from 1 to {}", where, in_quotes(value), kMaxGpus));
    return;
  }
  try {
    OptionValues().take_setting(key + '=' + value);
  } catch (const ConfigError& error) {
    std::string_view why = error.what();
    if (why.starts_with("--set: ")) why.remove_prefix(7);
    throw ConfigError(fmt::format("{}: {}", where, why));
  }
}

VariedKey checked(VariedKey varied, std::string_view where) {
  if (varied.key == "parallel.data")
    throw ConfigError(fmt::format("{}: parallel.data follows from gpus: vary gpus", where));
  for (std::size_t i = 0; i < varied.values.size(); ++i) {
    check_value(varied.key, varied.values[i], where);
    if (std::find(varied.values.begin(), varied.values.begin() + static_cast<std::ptrdiff_t>(i), varied.values[i]) !=
        varied.values.begin() + static_cast<std::ptrdiff_t>(i))
      throw ConfigError(fmt::format("{}: {} has {} twice", where, varied.key, in_quotes(varied.values[i])));
  }
  if (varied.key == kGpus) {  // efficiency is told in this order
    std::sort(varied.values.begin(), varied.values.end(),
              [](const std::string& a, const std::string& b) { return *whole_number(a) < *whole_number(b); });
  }
  return varied;
}

// The ranks of one replica.
std::int64_t replica_ranks(const ParallelConfig& parallel) { return parallel.pipeline * parallel.tensor * parallel.context; }

std::int64_t smallest_gpus(const StudySpec& spec) {
  for (const VariedKey& varied : spec.varied)
    if (varied.key == kGpus) return *whole_number(varied.values.front());
  return spec.gpus;
}

std::vector<std::string> settings_of(const StudySpec& spec, std::size_t arm) {
  std::vector<std::string> settings = spec.settings;
  const StudyArm& chosen = spec.arms.at(arm);
  settings.insert(settings.end(), chosen.settings.begin(), chosen.settings.end());
  return settings;
}

}  // namespace

std::string_view to_string(Scaling scaling) { return scaling == Scaling::kStrong ? "strong" : "weak"; }

Scaling parse_scaling(std::string_view text, std::string_view where) {
  if (text == "strong") return Scaling::kStrong;
  if (text == "weak") return Scaling::kWeak;
  throw ConfigError(fmt::format("{} = {}: must be strong (the global batch stays the same) or weak (that of a replica does)", where,
                                in_quotes(text)));
}

std::vector<std::string> split_varied(std::string_view text) {
  const auto begins_key = [&](std::size_t at) {
    const std::size_t first = at;
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_' || text[at] == '.'))
      ++at;
    return at > first && at < text.size() && text[at] == '=';
  };
  std::vector<std::string> parts;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != ',' || !begins_key(at + 1)) continue;
    parts.emplace_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  parts.emplace_back(text.substr(begin));
  return parts;
}

VariedKey parse_varied(std::string_view text, std::string_view where) {
  const auto equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0)
    throw ConfigError(fmt::format("{} {}: must be KEY=VALUES, such as gpus=64..4096 or zero=zero1|zero3", where, in_quotes(text)));
  VariedKey varied{path_of(text.substr(0, equals), where), {}};
  std::string_view rest = text.substr(equals + 1);
  while (true) {
    const auto bar = rest.find('|');
    const std::string_view part = rest.substr(0, bar);
    if (part.empty()) throw ConfigError(fmt::format("{}: {} has an empty value in {}", where, varied.key, in_quotes(text)));
    if (const auto range = doubled(part, where))
      varied.values.insert(varied.values.end(), range->begin(), range->end());
    else
      varied.values.emplace_back(part);
    if (bar == std::string_view::npos) break;
    rest.remove_prefix(bar + 1);
  }
  return checked(std::move(varied), where);
}

bool StudySpec::varies_gpus() const {
  return std::any_of(varied.begin(), varied.end(), [](const VariedKey& v) { return v.key == kGpus && v.values.size() > 1; });
}

std::vector<StudyPoint> points_of(const StudySpec& spec) {
  // gpus last, whatever its place: rows that are compared then stand together.
  std::vector<std::size_t> order;
  std::size_t count = spec.arms.size();
  for (std::size_t i = 0; i < spec.varied.size(); ++i) {
    if (spec.varied[i].key != kGpus) order.push_back(i);
    count = std::min(count, kMaxStudyPoints + 1) * spec.varied[i].values.size();
  }
  for (std::size_t i = 0; i < spec.varied.size(); ++i)
    if (spec.varied[i].key == kGpus) order.push_back(i);
  if (count > kMaxStudyPoints)
    throw ConfigError(fmt::format("a study of more than {} points; vary less at a time", kMaxStudyPoints));
  std::vector<StudyPoint> points;
  for (std::size_t at = 0; at < count; ++at) {
    StudyPoint point{0, std::vector<std::string>(spec.varied.size()), spec.gpus};
    std::size_t rest = at;
    for (auto i = order.rbegin(); i != order.rend(); ++i) {
      const VariedKey& varied = spec.varied[*i];
      point.values[*i] = varied.values[rest % varied.values.size()];
      rest /= varied.values.size();
      if (varied.key == kGpus) point.gpus = *whole_number(point.values[*i]);
    }
    point.arm = rest;
    points.push_back(std::move(point));
  }
  return points;
}

std::int64_t replica_batch(const StudySpec& spec, std::size_t arm) {
  OptionValues values;
  const TrainConfig config = load_train_config(spec.config, settings_of(spec, arm), values);
  const std::int64_t ranks = replica_ranks(config.parallel), fewest = smallest_gpus(spec);
  const std::int64_t replicas = config.parallel.data.ranks.value_or(std::max<std::int64_t>(fewest / ranks, 1));
  if (config.batch.global % replicas != 0)
    throw ConfigError(fmt::format("weak scaling: batch.global = {} is not divided by {}; what a replica gets is held fixed",
                                  config.batch.global, counted(replicas, "replica")));
  return config.batch.global / replicas;
}

PointConfig config_of(const StudySpec& spec, const StudyPoint& point) {
  std::vector<std::string> settings = settings_of(spec, point.arm);
  bool varies_batch = false;
  for (std::size_t i = 0; i < spec.varied.size(); ++i) {
    varies_batch = varies_batch || spec.varied[i].key == "batch.global";
    if (spec.varied[i].key != kGpus) settings.push_back(spec.varied[i].key + '=' + point.values[i]);
  }
  OptionValues values;
  TrainConfig config = load_train_config(spec.config, settings, values);
  const std::int64_t ranks = replica_ranks(config.parallel);
  const std::int64_t gpus = point.gpus > 0 ? point.gpus : ranks * config.parallel.data.ranks.value_or(1);
  if (gpus % ranks != 0)
    throw ConfigError(fmt::format("{} are no whole replicas of {} (tp {} x pp {}{})", counted(gpus, "GPU"), ranks,
                                  config.parallel.tensor, config.parallel.pipeline,
                                  config.parallel.context > 1 ? fmt::format(" x cp {}", config.parallel.context) : ""));
  const std::int64_t replicas = gpus / ranks;
  settings.push_back(fmt::format("parallel.data={}", replicas));
  if (spec.scaling == Scaling::kWeak) {
    if (varies_batch) throw ConfigError("weak scaling makes batch.global of the replicas; vary it with --scaling strong");
    settings.push_back(fmt::format("batch.global={}", replica_batch(spec, point.arm) * replicas));
  }
  OptionValues settled;
  return {load_train_config(spec.config, settings, settled), gpus, replicas};
}

}  // namespace trident
