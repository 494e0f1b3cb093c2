// trident ckpt ls DIR | show DIR[/STEP] | verify DIR[/STEP] | diff A B | prune DIR
#include "app/ckpt_command.h"

#include <ostream>

#include "app/command_line.h"
#include "checkpoint/checkpoint_path.h"
#include "checkpoint/hf_folder.h"
#include "core/file_io.h"
#include "core/foreign_folder.h"
#include "core/json_reader.h"

namespace trident {
namespace {

constexpr const char* kPathHelp =
    "a checkpoint's folder; DIR/1000 for DIR/step-00001000; or DIR, also a run's, for the newest in it";

void one_path(const Arguments& arguments, const CommandContext& context, CLI::App&& app, const char* what, const char* name,
              void (*run)(const std::string&, const CommandContext&)) {
  std::string path;
  app.add_option(name, path, what)->required();
  if (!parse_flags(app, arguments, context)) return;
  run(path, context);
}

}  // namespace

std::string find_checkpoint(const std::string& given) {
  const std::string path = checkpoint_path(given);
  if (std::optional<std::string> newest = newest_checkpoint(path)) return *std::move(newest);
  check_may_read(path);
  if (path != given && !folder_exists(path)) throw DataError(fmt::format("{}: there is no {}; see trident ckpt ls", given, path));
  refuse_other_folder(path);
  throw DataError(fmt::format("{}: neither a checkpoint nor a folder with a valid one; see trident ckpt ls", path));
}

void refuse_other_folder(const std::string& path) {
  if (is_hf_folder(hub_snapshot(path)))
    throw DataError(fmt::format("{}: is a Hugging Face folder, no checkpoint; trident convert --from hf makes one of it", path));
  if (const std::optional<std::string> other = what_stands_at(path, WantedFolder::kCheckpoint))
    throw DataError(fmt::format("{}: {}", path, *other));
}

void ckpt_ls_command(const Arguments& arguments, const CommandContext& context) {
  one_path(arguments, context,
           CLI::App("List the checkpoints of a folder: step, size, age, health, content. \"ok\" says that the manifest is valid "
                    "and all files have their sizes; trident ckpt verify reads them.",
                    "trident ckpt ls"),
           "folder of checkpoints, or a run's", "DIR", ckpt_ls);
}

void ckpt_show_command(const Arguments& arguments, const CommandContext& context) {
  one_path(arguments, context,
           CLI::App("Show what a checkpoint holds: the state of training, the layout that wrote it, every tensor with shape, "
                    "dtype and norm. Reads all weights.",
                    "trident ckpt show"),
           kPathHelp, "CHECKPOINT", ckpt_show);
}

void ckpt_verify_command(const Arguments& arguments, const CommandContext& context) {
  one_path(arguments, context,
           CLI::App("Read every block of a checkpoint, or of all in a folder, and compare it with its hash; check that its boxes "
                    "make up every tensor. What is wrong is listed; exit code 65 then.",
                    "trident ckpt verify"),
           "a checkpoint's folder; DIR/1000 for DIR/step-00001000; or DIR, also a run's, for all in it", "CHECKPOINT", ckpt_verify);
}

void ckpt_diff_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Compare two checkpoints bit by bit: tensors by name whatever layouts wrote them, masters where both have them, the "
      "optimizer's states, "
      "the state of training. Exit code 0: equal; 1: different, with the first differing element of each tensor.",
      "trident ckpt diff");
  std::string a, b;
  app.add_option("A", a, kPathHelp)->required();
  app.add_option("B", b, "likewise")->required();
  if (!parse_flags(app, arguments, context)) return;
  ckpt_diff(a, b, context);
}

void ckpt_prune_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Remove checkpoints as a run does after a save: all but the newest ones, those of every so many steps, and the one with the "
      "lowest validation loss where the run keeps that. Rules that are not given are those of the run that wrote the newest one. "
      "Damaged ones neither count nor go, nor do those that a reader has locked. First the newest one is read back; if it is not "
      "whole, or a run is writing there, nothing is removed.",
      "trident ckpt prune");
  PruneRequest request;
  app.add_option("DIR", request.folder, "folder of checkpoints, or a run's")->required();
  app.add_option("--keep-last", request.keep_last, "newest ones to keep, at least 1");
  app.add_option("--keep-every", request.keep_every, "also keep those of every so many steps; 0: none");
  app.add_flag("--dry-run", request.dry_run, "say what would be removed, and remove nothing");
  app.add_flag("--unread", request.unread, "do not read the newest one back first");
  if (!parse_flags(app, arguments, context)) return;
  if (request.keep_last && *request.keep_last < 1)
    throw ConfigError(fmt::format("trident ckpt prune: --keep-last {}: must be at least 1; the newest checkpoint always stays", *request.keep_last));
  if (request.keep_every && *request.keep_every < 0)
    throw ConfigError(fmt::format("trident ckpt prune: --keep-every {}: must be a number of steps, or 0 for none", *request.keep_every));
  ckpt_prune(request, context);
}

}  // namespace trident
