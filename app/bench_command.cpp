// trident bench --config FILE [--set path=value ...] [--device auto|cpu|cuda] [--json]
// trident bench --calibrate [FILE]
#include <algorithm>
#include <cstdint>
#include <optional>
#include <ostream>

#include "app/command_line.h"
#include "app/foreign_flag_hint.h"
#include "app/interruption.h"
#include "app/path_arguments.h"
#include "core/file_io.h"
#include "core/printable.h"
#include "planner/bench/bench.h"
#include "planner/price/kept_profile.h"
#include "train/plan/machine.h"
#include "train/run/stored_model.h"

namespace trident {
namespace {

constexpr std::size_t kMostProfileBytes = 1 << 20;  // ten times the largest so far

// "fp32 multiplies at 0.512 TFLOP/s, its largest product at 0.476": what tells a disturbed profile from another.
std::string speed_text(const CpuRates& rates) {
  const auto rate = [](double flops) { return fmt::format("{:.3f} TFLOP/s", 1e-12 * flops); };
  std::string text = "fp32 multiplies at " + (rates.fp32_peak > 0 ? rate(rates.cores * rates.fp32_peak) : "an unknown rate");
  if (rates.products.empty()) return text;
  const LogTable& product = rates.products.front().seconds;
  double flops = 2.0 * rates.cores / rates.products.front().threads / product.values().back();
  for (const auto& sides : product.axes()) flops *= sides.back();
  return text + ", its largest product at " + rate(flops);
}

// A damaged profile counts as none, so that the next one replaces it.
std::optional<CpuRates> earlier_profile(const std::string& file) {
  try {
    return file_exists(file) ? std::optional(read_cpu_rates(file)) : std::nullopt;
  } catch (const Error&) {
    return std::nullopt;
  }
}

// The file is written at the end: one that cannot be, or a disk without room for it, is refused before anything is measured.
// Returns what was measured where it was not written: other programs that disturbed a profile of this machine leave an earlier one
// in its place.
std::optional<CpuRates> calibrate(const std::string& file, CalibrateOptions options, const CommandContext& context) {
  const Interruption interruption(fmt::format("{} was not written", file));  // else what is measured with would be left behind
  {
    AtomicFile room(file);
    room.append(std::string(kMostProfileBytes, ' '));
    room.finish();
  }
  options.check = [&] { interruption.check(); };
  AtomicFile output(file);
  CpuRates rates;
  try {
    rates = context.calibrate(options, [&](const std::string& line) { context.out << on_one_line(line) << std::endl; });
  } catch (const Error&) {
    interruption.check();  // a terminal's signal ends the runs that are measured, too
    throw;
  }
  interruption.check();
  if (!rates.disturbance.empty() && options.name == kThisMachine && earlier_profile(file)) return rates;
  output.append(to_json_text(to_json(rates), 1) + '\n');
  output.commit();
  return std::nullopt;
}

// Without FILE: what this user's later runs on this machine are predicted by.
void calibrate_this_machine(CalibrateOptions options, const CommandContext& context) {
  const std::string file = kept_profile_path(cpu_machine_facts(1).core_share.at_once());
  if (file.empty())
    throw ConfigError("--calibrate: neither XDG_CACHE_HOME nor HOME says where to keep the profile; set one, or name a file");
  create_folder_of(file);
  options.name = kThisMachine;
  const std::optional<CpuRates> disturbed = calibrate(file, std::move(options), context);
  if (!disturbed)
    return void(context.out << fmt::format("kept as {}: runs on this machine are predicted by it\n", on_one_line(file)));
  throw Error(ExitCode::kRequeue,
              fmt::format("not kept, because other programs had the cores: {}. {} has an earlier profile, by which runs on this "
                          "machine are still predicted: {}; start again when nothing else runs, or delete it to keep the next one "
                          "whatever disturbs it", speed_text(*disturbed), on_one_line(file), speed_text(read_cpu_rates(file))));
}

}  // namespace

void bench_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Measure what this machine reaches (products, copies, collectives), and where the time of one training step goes, beside the "
      "least that the same work could take here. One rank, random tokens, whatever layout the configuration has; no data is read. "
      "Under mpirun also the rates of collectives between the processes.",
      "trident bench");
  ConfigFlags flags;
  std::string device;
  BenchOptions options;
  bool json = false;
  add_config_flags(app, flags);
  app.add_option("--device", device, "auto, cpu or cuda, in place of the configuration's");
  in_range(app.add_option("--seconds", options.seconds, "time for each rate")->capture_default_str(), 0, 60);
  in_range(app.add_option("--steps", options.steps, "steps of training; the median counts")->capture_default_str(), 1, 1000);
  in_range(app.add_option("--ranks", options.collective_ranks, "ranks of the collectives, threads of this process")
               ->capture_default_str(), 1, 64);
  app.add_flag("--json", json, "print one JSON object");
  std::string profile;
  CalibrateOptions calibration;
  app.add_option(
          "--calibrate", profile,
          "instead of a configuration: measure what the processors reach by size, all cores at work, and write it to this file, a "
          "hardware profile, in a little more than two minutes; without FILE less is measured, in a minute, and kept for later "
          "runs on this machine")
      ->expected(0, 1)
      ->type_name("[FILE]");
  in_range(app.add_option("--largest", calibration.largest, "with --calibrate: longest side of a product and longest sequence")
               ->capture_default_str(), 64, 8192);
  const bool calibrates = std::any_of(arguments.begin(), arguments.end(),
                                      [](const std::string& a) { return a == "--calibrate" || a.starts_with("--calibrate="); });
  if (!parse_flags(app, arguments, context, {{}, foreign_flag_hint})) return;
  const auto is_empty = [](const std::string& a) { return a.empty() || a == "--calibrate="; };
  if (calibrates && profile.empty() && std::ranges::any_of(arguments, is_empty))
    throw ConfigError("--calibrate: names no file; give the one to write, or leave it out");
  if (profile.empty())
    check_named_files(app, {"--config"}, {});
  else
    check_named_files(app, {"--config"}, {"--calibrate"});
  if (calibrates) {
    if (!flags.file.empty() || !flags.settings.empty() || !device.empty() || json)
      throw ConfigError(
          "--calibrate: measures the processors with models of its own; leave out --config, --set, --device and --json");
    refuse_given(app, {"--steps", "--ranks"}, "--calibrate measures what it needs, with 1 to 8 ranks", "measure a configuration");
    if (profile.empty()) {
      const std::int64_t largest = calibration.largest;
      calibration = short_calibration();
      if (app.get_option("--largest")->count() > 0) calibration.largest = largest;
    }
    if (app.get_option("--seconds")->count() > 0) calibration.seconds = options.seconds;
    if (profile.empty()) return calibrate_this_machine(calibration, context);
    calibrate(profile, calibration, context);
    return;
  }
  if (!device.empty()) flags.settings.push_back("device=" + device);
  OptionValues values = values_of_config(app, flags);
  const TrainConfig config = config_to_plan(values, flags.settings);
  const std::optional<BenchReport> report = run_bench_here(config, options, *context.make_cuda());
  if (!report) return;
  context.out << (json ? to_json_text(to_json(*report)) + '\n' : on_screen(to_text(*report, context.table_columns()), context));
}

}  // namespace trident
