// trident convert --from hf|ckpt DIR | peft BASE ADAPTER --to ckpt|hf|peft DIR [--dtype D] [--shard-size S] [--set KEY=VALUE]
#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>

#include "app/command_line.h"
#include "app/interruption.h"
#include "app/progress_line.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/file_io.h"
#include "core/json_reader.h"
#include "core/nearest_name.h"
#include "core/number_text.h"
#include "core/printable.h"
#include "core/shell_word.h"
#include "infer/convert/convert.h"

namespace trident {
namespace {

constexpr std::string_view kHf = "hf", kCheckpoint = "ckpt", kPeft = "peft";

DType dtype_from(const std::string& text) {
  if (text == "fp32" || text == "float32") return DType::kF32;
  if (text == "bf16" || text == "bfloat16") return DType::kBF16;
  if (text == "fp16" || text == "float16") return DType::kF16;
  throw ConfigError(
      fmt::format("--dtype {}: must be fp32, bf16 or fp16{}", in_quotes(text), name_hint(text, {"fp32", "bf16", "fp16"})));
}

// "5GB": powers of 1000, as the reference writer's max_shard_size; a plain number is bytes.
std::int64_t bytes_from(const std::string& text) {
  std::int64_t value = 0, unit = 1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view rest(end, text.data() + text.size());
  bool is_unit = rest.empty();
  for (const auto& [name, bytes] : {std::pair{"KB", 1'000}, {"MB", 1'000'000}, {"GB", 1'000'000'000}})
    if (rest == name) unit = bytes, is_unit = true;
  if (error != std::errc{} || !is_unit || value < 1 || value > std::numeric_limits<std::int64_t>::max() / unit)
    throw ConfigError(
        fmt::format("--shard-size {}: must be a number of bytes, or one with KB, MB or GB, such as 5GB", in_quotes(text)));
  return value * unit;
}

// Reads from --set where the base of a checkpoint lies now.
std::optional<std::string> base_from(const std::vector<std::string>& settings) {
  constexpr std::string_view kKey = "model.init_from=";
  std::optional<std::string> base;
  for (const std::string& setting : settings) {
    if (!setting.starts_with(kKey))
      throw ConfigError(fmt::format("--set {}: convert takes {}DIR alone, where the base of a checkpoint lies; leave it out",
                                    setting, kKey));
    base = setting.substr(kKey.size());
  }
  return base;
}

void check_kinds(const std::vector<std::string>& from, const std::vector<std::string>& to) {
  const auto hint = [](const std::string& kind) { return name_hint(kind, {kHf, kCheckpoint, kPeft}); };
  if (from.size() == 1)
    throw ConfigError(fmt::format("--from {0}: names no kind and folder; say --from ckpt {0}, or --from hf {0}",
                                  for_shell(from[0] == kHf || from[0] == kCheckpoint || from[0] == kPeft ? "DIR" : from[0])));
  if (from[0] != kHf && from[0] != kCheckpoint && from[0] != kPeft)
    throw ConfigError(fmt::format("--from {}: must be hf or ckpt, and a folder, or peft, a base and its adapter{}",
                                  in_quotes(from[0]), hint(from[0])));
  if (to[0] == "gguf")
    throw ConfigError(
        "--to gguf: is not written; say --to hf DIR, and make a GGUF file of DIR by convert_hf_to_gguf.py of ggml-org");
  if (to[0] != kHf && to[0] != kCheckpoint && to[0] != kPeft)
    throw ConfigError(fmt::format("--to {}: must be hf, ckpt or peft, and a folder{}", in_quotes(to[0]), hint(to[0])));
  if (to.front() == kPeft && from.front() != kCheckpoint)
    throw ConfigError(fmt::format("--from {} --to peft: only a run's checkpoint has adapters; write --from ckpt", from[0]));
  if (from[0] == kPeft && from.size() != 3)
    throw ConfigError("--from peft: needs two folders; give the base's and the adapter's");
  if (from[0] == kPeft && file_exists(from[1] + "/adapter_config.json") && !file_exists(from[1] + "/config.json"))
    throw ConfigError(fmt::format("--from peft {0} {1}: {0} is the adapter, and the base stands first; say --from peft {1} {0}",
                                  for_shell(from[1]), for_shell(from[2])));
  if (from[0] != kPeft && from.size() != 2) throw ConfigError(fmt::format("--from {}: names two folders; give one", from[0]));
  for (const auto& [flag, words] : {std::pair{"--from", &from}, {"--to", &to}})
    if ((*words)[1].empty() || words->back().empty())
      throw ConfigError(fmt::format("{} {} \"\": names no folder; give its path", flag, (*words)[0]));
  if (from[0] == to[0])
    throw ConfigError(fmt::format("--from {} --to {}: nothing to convert; one of them is hf, the other ckpt", from[0], to[0]));
}

}  // namespace

void convert_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Make a checkpoint of a Hugging Face folder (config.json, safetensors), or such a folder of a checkpoint, or merge an "
      "adapter of PEFT's form into its base, tensor by tensor in little memory. The new folder appears whole, with "
      "generation_config.json and the tokenizer's files carried along. A checkpoint "
      "made so has weights alone: model.init_from begins with it.",
      "trident convert");
  std::vector<std::string> from, to, settings;
  std::string dtype, shard_size;
  app.add_option("--from", from,
                 "hf DIR: a Hugging Face folder; ckpt DIR: a checkpoint, or the newest in a folder of them; peft BASE ADAPTER: a "
                 "Hugging Face folder, and a PEFT folder (adapter_config.json) that is merged into it")
      ->expected(1, 3)
      ->type_name("KIND DIR")
      ->required();
  app.add_option("--to", to,
                 "ckpt DIR, hf DIR, or peft DIR for the adapters of a run's checkpoint: the folder to write, which is not there "
                 "yet")->expected(2)->type_name("KIND DIR")->required();
  app.add_option("--dtype", dtype,
                 "of the weights written: fp32, bf16 or fp16; not given: as they are. fp32 takes a checkpoint's masters");
  app.add_option(
      "--shard-size", shard_size,
      "of hf: most bytes of tensors in a file, such as 5GB or 200MB; not given: as the folder that the checkpoint was made "
      "from, or 5GB");
  app.add_option("--set", settings,
                 "model.init_from=DIR: of --from ckpt --to hf, where the base of a run with frozen weights lies now; not given: "
                 "where it lay when the checkpoint was written")
      ->expected(1);
  if (!parse_flags(app, arguments, context)) return;
  check_kinds(from, to);
  const bool to_hf = to[0] == kHf;
  ExportOptions options;
  if (!dtype.empty()) options.dtype = dtype_from(dtype);
  if (!shard_size.empty()) options.shard_bytes = bytes_from(shard_size);
  if (options.shard_bytes && !to_hf)
    throw ConfigError(fmt::format("--shard-size {}: files of a checkpoint are not cut by it; leave it out", in_quotes(shard_size)));

  options.init_from = base_from(settings);
  if (options.init_from && (from[0] != kCheckpoint || !to_hf))
    throw ConfigError("--set model.init_from: only --from ckpt --to hf reads a checkpoint's base; leave it out");
  if (to[0] == kPeft) refuse_given(app, {"--dtype"}, "PEFT has adapters in fp32", "leave it out");
  const Interruption interruption("nothing was written");
  const double start = monotonic_seconds();
  ConvertReport report;
  {
    ProgressLine line(context, "convert", start);
    const auto progress = [&](std::int64_t done, std::int64_t all) {
      interruption.check();
      line.update(done, all, fmt::format("{} of {}", bytes_text(done), bytes_text(all)));
    };
    const HfSource folder{from[1], from.size() == 3 ? from[2] : ""};
    report = to[0] == kPeft     ? checkpoint_to_peft(from[1], to[1], progress)
             : !to_hf           ? hf_to_checkpoint(folder, to[1], options.dtype, progress)
             : from[0] == kPeft ? peft_to_hf(folder, to[1], options, progress)
                                : checkpoint_to_hf(from[1], to[1], options, progress);
  }
  const double seconds = monotonic_seconds() - start;
  for (const std::string& warning : report.warnings) say(context, "warning: " + on_one_line(warning));
  say(context,
      fmt::format("{}: {} of {}{}, {} in {}, {}, and {}; {}, {}/s", on_one_line(to[1]), counted(report.tensors, "tensor"),
                  on_one_line(report.from), from.size() == 3 ? fmt::format(" with {} merged into them", on_one_line(from[2])) : "",
                  bytes_text(report.bytes), to_string(report.dtype), counted(std::ssize(report.weight_files), "weight file"),
                  counted(std::ssize(report.other_files), "other file"), seconds_text(seconds),
                  bytes_text(static_cast<double>(report.bytes) / std::max(seconds, 1e-3))));
}

}  // namespace trident
