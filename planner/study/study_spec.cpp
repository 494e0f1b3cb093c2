#include "planner/study/study_spec.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>
#include <iterator>
#include <utility>

#include "core/counted.h"
#include "planner/price/cluster.h"
#include "planner/study/study_keys.h"
#include "train/config/rank_count.h"
#include "train/run/stored_model.h"

namespace trident {
namespace {

std::optional<std::int64_t> whole_number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
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
    throw ConfigError(fmt::format("{}: {} is empty: it ends below its begin; write {}..{}", where, in_quotes(text),
                                  std::max<std::int64_t>(*high, 1), *low));
  std::vector<std::string> values;
  for (std::int64_t value = *low; value <= *high; value *= 2) {
    values.push_back(fmt::format("{}", value));
    if (value > *high / 2) break;
  }
  return values;
}

// Returns how a study writes "16-128", which is a range elsewhere; "" for every other value.
std::string range_hint(std::string_view value) {
  const auto dash = std::min(value.find('-'), value.size());
  const auto low = whole_number(value.substr(0, dash)), high = whole_number(value.substr(std::min(dash + 1, value.size())));
  return low && high ? fmt::format("; write {}..{}", *low, *high) : "";
}

// The value as the study has it. ConfigError unless the key takes it; of model keys that is known when the model is read.
std::string taken(const std::string& key, const std::string& value, std::string_view where) {
  if (counts_ranks(key)) {
    const auto number = whole_number(value);
    if (!number || *number < 1 || *number > kMostGpus)
      throw ConfigError(fmt::format("{}: {} = {}: must be a whole number from 1 to {}{}", where, key, in_quotes(value),
                                    kMostGpus, range_hint(value)));
    return fmt::format("{}", *number);
  }
  try {
    OptionValues().take_setting(key + '=' + value);
  } catch (const ConfigError& error) {
    std::string_view why = error.what();
    if (why.starts_with("--set: ")) why.remove_prefix(7);
    throw ConfigError(fmt::format("{}: {}{}", where, why, range_hint(value)));
  }
  return value;
}

// The values that one part of a list stands for.
std::vector<std::string> values_of(const std::string& key, std::string_view part, std::string_view where) {
  const auto range = doubled(part, where);
  if (!range) return {taken(key, std::string(part), where)};
  std::vector<std::string> values;
  const std::string within = fmt::format("{}: {}", where, in_quotes(part));  // the user wrote none of its values
  for (const std::string& value : *range) values.push_back(taken(key, value, within));
  return values;
}

// The global batch of the smallest point, with replicas of `ranks`.
std::int64_t fewest_replicas(const StudySpec& spec, std::int64_t ranks) {
  std::int64_t gpus = spec.gpus;
  for (const VariedKey& varied : spec.varied) {
    if (varied.key == kReplicasKey) return *whole_number(varied.values.front());
    if (varied.key == kGpusKey) gpus = *whole_number(varied.values.front());
  }
  return std::max<std::int64_t>(gpus / ranks, 1);
}

std::vector<std::string> settings_of(const StudySpec& spec, std::size_t arm) {
  std::vector<std::string> settings = spec.settings;
  const StudyArm& chosen = spec.arms.at(arm);
  settings.insert(settings.end(), chosen.settings.begin(), chosen.settings.end());
  return settings;
}

TrainConfig config_with(const StudySpec& spec, const std::vector<std::string>& settings) {
  OptionValues values = spec.given.value_or(OptionValues());
  if (!spec.config.empty()) values.take_file(read_json_file(spec.config), spec.config);
  return config_to_plan(values, settings);
}

// Refuses a setting of which no run would have the value.
void check_arm(const StudyArm& arm, const std::function<bool(const std::string& key)>& varies) {
  for (const std::string& setting : arm.settings) {
    if (varies(setting.substr(0, setting.find('='))))
      throw ConfigError(
          fmt::format("arm {} sets {}, which varies: its value would never count; take it out of the arm, or out of "
                      "what varies",
                      in_quotes(arm.name), setting));
  }
}

}  // namespace

Scaling parse_scaling(std::string_view text, std::string_view where) {
  if (const auto scaling = parse_name<Scaling>(text)) return *scaling;
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
    throw ConfigError(fmt::format("{} {}: must be KEY=VALUES, such as gpus=64..4096 or 'zero=zero1|zero3'", where,
                                  in_quotes(text)));
  VariedKey varied{varied_path(text.substr(0, equals), where), {}};
  std::string_view rest = text.substr(equals + 1);
  while (true) {
    const auto bar = rest.find('|');
    const std::string_view part = rest.substr(0, bar);
    if (part.empty()) throw ConfigError(fmt::format("{}: {} has an empty value in {}", where, varied.key, in_quotes(text)));
    for (std::string& value : values_of(varied.key, part, where)) {
      if (std::ranges::find(varied.values, value) != varied.values.end())
        throw ConfigError(fmt::format("{}: {} has {} twice", where, varied.key, in_quotes(value)));
      varied.values.push_back(std::move(value));
    }
    if (bar == std::string_view::npos) break;
    rest.remove_prefix(bar + 1);
  }
  if (counts_ranks(varied.key))  // efficiency is told in this order
    std::ranges::sort(varied.values, {}, [](const std::string& value) { return *whole_number(value); });
  return varied;
}

bool StudySpec::varies_gpus() const {
  return std::ranges::any_of(varied, [](const VariedKey& v) { return counts_ranks(v.key) && v.values.size() > 1; });
}

bool StudySpec::varies(std::string_view path) const {
  return std::ranges::any_of(varied, [&](const VariedKey& v) { return v.key == path; });
}

TrainConfig config_of_arm(const StudySpec& spec, std::size_t arm) {
  return config_with(spec, settings_of(spec, arm));
}

void check_spec(const StudySpec& spec) {
  if (spec.varied.empty() && spec.arms.size() == 1)
    throw ConfigError("trident study: nothing varies; add --vary gpus=8..64, --vary 'zero=zero1|zero3' or another key");
  if (spec.varies(kReplicasKey) && (spec.varies(kGpusKey) || spec.gpus > 0))
    throw ConfigError(
        "parallel.data and gpus both vary or are given: replicas and GPUs follow from each other; leave one of them out");
  for (std::size_t arm = 0; arm < spec.arms.size(); ++arm) {
    check_arm(spec.arms[arm], [&](const std::string& key) { return spec.varies(key); });
    const TrainConfig config = config_of_arm(spec, arm);  // what is wrong with it is no matter of a point
    std::vector<std::string> varied_keys;
    for (const VariedKey& varied : spec.varied)
      if (is_model_key(varied.key)) varied_keys.push_back(model_path(config, varied.key, "--vary"));
    check_arm(spec.arms[arm], [&](const std::string& key) {  // by either of its names
      return is_model_key(key) && std::ranges::find(varied_keys, model_path(config, key, "arms")) != varied_keys.end();
    });
  }
}

std::vector<StudyPoint> points_of(const StudySpec& spec) {
  // gpus and replicas last, whatever their place: rows that are compared then stand together.
  std::vector<std::size_t> order;
  std::size_t count = spec.arms.size();
  for (std::size_t i = 0; i < spec.varied.size(); ++i) {
    if (!counts_ranks(spec.varied[i].key)) order.push_back(i);
    count = std::min(count, kMaxStudyPoints + 1) * spec.varied[i].values.size();
  }
  for (std::size_t i = 0; i < spec.varied.size(); ++i)
    if (counts_ranks(spec.varied[i].key)) order.push_back(i);
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
      if (varied.key == kGpusKey) point.gpus = *whole_number(point.values[*i]);
    }
    point.arm = rest;
    points.push_back(std::move(point));
  }
  return points;
}

std::int64_t replica_batch(const StudySpec& spec, std::size_t arm) {
  const TrainConfig config = config_of_arm(spec, arm);
  const std::int64_t replicas =
      config.parallel.data ? *config.parallel.data : fewest_replicas(spec, ranks_of_a_replica(config.parallel));
  if (config.batch.global % replicas != 0)
    throw ConfigError(fmt::format("weak scaling: batch.global = {} is not divided by {}; what a replica gets is held fixed",
                                  config.batch.global, counted(replicas, "replica")));
  return config.batch.global / replicas;
}

PointConfig config_of(const StudySpec& spec, const StudyPoint& point) {
  std::vector<std::string> settings = settings_of(spec, point.arm), of_point;
  std::optional<TrainConfig> base;  // whose model is varied
  for (std::size_t i = 0; i < spec.varied.size(); ++i) {
    std::string path = spec.varied[i].key;
    if (path == kGpusKey) continue;
    if (is_model_key(path)) {
      if (!base) base = config_of_arm(spec, point.arm);
      path = model_path(*base, path, "--vary");
    }
    of_point.push_back(path + '=' + point.values[i]);
  }
  if (base) std::ranges::move(spell_model_out(*base), std::back_inserter(settings));
  std::ranges::move(of_point, std::back_inserter(settings));
  const TrainConfig config = config_with(spec, settings);
  const std::int64_t ranks = ranks_of_a_replica(config.parallel);
  const std::int64_t gpus = point.gpus > 0 ? point.gpus : ranks_of(config.parallel);
  if (gpus > kMostGpus) throw ConfigError(fmt::format("parallel: {} ranks; at most {} are planned", gpus, kMostGpus));
  if (gpus % ranks != 0)
    throw ConfigError(fmt::format("{} are not a multiple of the {} ranks of a replica (tp {} x pp {}{}), as {}{} are",
                                  counted(gpus, "rank"), ranks, config.parallel.tensor, config.parallel.pipeline,
                                  config.parallel.context > 1 ? fmt::format(" x cp {}", config.parallel.context) : "",
                                  gpus < ranks ? "" : fmt::format("{} or ", gpus / ranks * ranks), (gpus / ranks + 1) * ranks));
  const std::int64_t replicas = gpus / ranks;
  settings.push_back(fmt::format("parallel.data={}", replicas));
  if (spec.scaling == Scaling::kWeak) {
    if (spec.varies("batch.global"))
      throw ConfigError("weak scaling makes batch.global of the replicas; vary it with --scaling strong");
    settings.push_back(fmt::format("batch.global={}", replica_batch(spec, point.arm) * replicas));
  }
  return {config_with(spec, settings), gpus, replicas};
}

}  // namespace trident
