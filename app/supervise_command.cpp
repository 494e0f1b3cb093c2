// trident supervise [--max-restarts N] [--give-up-after N] [--checkpoints DIR] [--nodes-from HOSTFILE ...] -- COMMAND...
#include <algorithm>
#include <csignal>

#include "app/command_line.h"
#include "app/help_text.h"
#include "core/json_reader.h"
#include "core/shell_word.h"
#include "supervise/supervisor.h"

namespace trident {
namespace {

void check_nodes(const NodeOptions& nodes) {
  const HostProbe& probe = nodes.probe;
  if (!(probe.seconds > 0) || probe.seconds > 600)
    throw ConfigError(fmt::format("--probe-seconds = {}: must be > 0 and <= 600", probe.seconds));
  if (!probe.command.empty() && probe.command.find("{host}") == std::string::npos)
    throw ConfigError(
        fmt::format("--probe = {}: has no {{host}}; without it every host is asked the same: write it where the name goes",
                    in_quotes(probe.command)));
}

void check_placeholders(const SuperviseOptions& options) {
  if (!options.nodes.hostfile.empty()) return;
  for (const char* word : {"{hostfile}", "{ranks}"})
    if (std::ranges::find(options.command, word) != options.command.end())
      throw ConfigError(
          fmt::format("trident supervise: the command has {}, and no --nodes-from says which hosts there are; give it", word));
}

// Without -- the command's first word is where the options end.
void refuse_missing_dashes(const CLI::App& app, const Arguments& arguments) {
  std::string typed;
  for (auto word = arguments.begin(); word != arguments.end(); ++word) {
    const bool is_flag = word->starts_with('-');
    if (!is_flag) {
      const std::string unknown = in_quotes(*word);
      typed += " --";
      for (; word != arguments.end(); ++word) typed += ' ' + for_shell(*word);
      throw ConfigError(fmt::format("trident supervise: unknown argument {}; write -- before the command: trident supervise{}",
                                    unknown, typed));
    }
    typed += ' ' + for_shell(*word);
    const CLI::Option* const option = app.get_option_no_throw(*word);
    if (option != nullptr && option->get_items_expected_max() > 0 && word + 1 != arguments.end()) typed += ' ' + for_shell(*++word);
  }
}

}  // namespace

void supervise_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app(
      "Run a command (mpirun ... trident train, srun ... trident train, or trident train), and start it again from its newest "
      "checkpoint when a rank died, the file system failed, or it saved and asked for it.",
      "trident supervise");
  app.footer("After the options: -- COMMAND...");
  SuperviseOptions options;
  app.add_option("--max-restarts", options.rules.max_restarts, "restarts at the most; without it as many as it takes")
      ->check(CLI::NonNegativeNumber);
  in_range(app.add_option("--give-up-after", options.rules.max_idle_starts,
                          "starts in a row without a newly committed step, after which it ends with 93")
               ->capture_default_str(), 1, 1000);
  app.add_option("--checkpoints", options.checkpoints,
                 "folder in which the command commits checkpoints, or its run.dir; without it that of the configuration which the "
                 "command names");
  app.add_option(
      "--nodes-from", options.nodes.hostfile,
      "mpirun's file of hosts; before each start those that are gone are left out, and {hostfile} and {ranks} in the command are "
      "replaced by what remains");
  in_range(app.add_option("--probe-port", options.nodes.probe.port, "a host is there when it accepts a TCP connection on this port")
               ->capture_default_str(), 1, 65535);
  app.add_option("--probe", options.nodes.probe.command,
                 "ask with this shell command instead, which ends with 0; {host} is the host");
  app.add_option("--probe-seconds", options.nodes.probe.seconds, "time that a host has to answer; all are asked at once")
      ->capture_default_str();
  in_range(app.add_option("--wait-for-hosts", options.nodes.wait_seconds,
                          "seconds to wait for hosts while too few for any layout are there")
               ->capture_default_str(), 0, 1e6);
  const auto details = [&context] {
    return "Example:\n"
           "  trident supervise -- mpirun -np 8 trident train --config c.json\n\n" +
           help_paragraph(
               "Started again: 74, 75, 76, deaths by signal (137, 139, ...) and what launchers end with when they are disturbed "
               "(1, 9, 205). Not: 0, 64, 65, 70, 93 and other codes. After a start without a newly committed step it waits 1, 2, "
               "4, ... 60 s. A first SIGTERM, SIGINT, SIGUSR1 or SIGHUP is passed on as SIGUSR1 (save, end with 75), a second one "
               "too (end without saving; 15 s later what still runs is killed), a third one kills. docs/stopping.md says more.",
               0, context.columns) +
           '\n' + exit_codes_help(context.columns, ExitCodes::kOfTraining);
  };
  const auto dashes = std::ranges::find(arguments, "--");
  if (dashes == arguments.end()) refuse_missing_dashes(app, arguments);
  if (!parse_flags(app, Arguments(arguments.begin(), dashes), context, {details})) return;
  check_nodes(options.nodes);
  if (dashes != arguments.end()) options.command.assign(dashes + 1, arguments.end());
  if (options.command.empty())
    throw ConfigError("trident supervise: no command; write it after --, as in trident supervise -- trident train --config FILE");
  check_placeholders(options);
  std::signal(SIGPIPE, SIG_IGN);
  LogSink log(context.err, LogLevel::kInfo, context.dress);
  const int code = supervise(options, log);
  if (code != 0) throw ReportedElsewhere(static_cast<ExitCode>(code), "the supervised command ended");
}

}  // namespace trident
