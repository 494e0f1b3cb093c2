#include "app/help_text.h"

#include <algorithm>
#include <sstream>

namespace trident {

const std::vector<ExitCodeText>& exit_code_texts() {
  constexpr auto code = [](ExitCode exit_code) { return static_cast<int>(exit_code); };
  static const std::vector<ExitCodeText> table{
      {code(ExitCode::kOk), "done", ""},
      {kExitDifferent, "trident ckpt diff found a difference", ""},
      {code(ExitCode::kConfig), "the configuration or the command line", "correct what the message names"},
      {code(ExitCode::kData), "data or checkpoint files", "correct or prepare the file that the message names"},
      {code(ExitCode::kInternal), "a bug in trident, or a host out of memory",
       "report it with the configuration; for want of memory the message says what to make smaller"},
      {code(ExitCode::kStorage), "the file system refused", "make room or repair it, then start again"},
      {code(ExitCode::kRequeue), "state is saved", "start again (scripts/slurm/train.sbatch requeues itself)"},
      {code(ExitCode::kCommunication), "a rank is gone, late or out of step", "look at the first message; start again"},
      {code(ExitCode::kNoProgress), "no progress", 
       "ten batches in a row had non-finite gradients, or three supervised starts saved nothing; change the run"},
      {128, "+ n, stopped by signal n", "nothing was saved since the last checkpoint"},
  };
  return table;
}

std::string exit_codes_help(std::size_t width, ExitCodes codes) {
  std::string out = "Exit codes:\n";
  for (const ExitCodeText& text : exit_code_texts()) {
    const bool of_training = text.code == exit_status(ExitCode::kRequeue) || text.code == exit_status(ExitCode::kNoProgress);
    if (codes != ExitCodes::kAll && text.code == kExitDifferent) continue;
    if (codes == ExitCodes::kOfUse && of_training) continue;
    std::string line =
        help_paragraph(fmt::format("{}{}{}", text.meaning, text.what_next.empty() ? "" : ": ", text.what_next), 7, width);
    out += line.replace(0, 7, fmt::format("  {:<5}", text.code));
  }
  return out;
}

std::string launch_help(std::size_t width, std::string_view command) {
  const std::string alone(command), processes = fmt::format("mpirun -np 32 {}", command);
  return folded(fmt::format("Ranks:\n"
                            "  {:<{}}  threads of one process, as parallel.* says\n"
                            "  {}  one process each\n"
                            "  srun --mpi=pmix -N 4 --ntasks-per-node=8 {}\n",
                            alone, processes.size(), processes, command),
                width) +
         help_paragraph(
             "A launcher is known by OMPI_COMM_WORLD_SIZE, PMI_SIZE or SLURM_STEP_NUM_TASKS above 1. parallel.data \"auto\" takes "
             "what remains of its ranks. docs/slurm.md says more.",
             2, width);
}

std::string folded(const std::string& help, std::size_t width) {
  std::istringstream lines(help);
  std::string out;
  for (std::string line; std::getline(lines, line);) {
    // The description begins after the last run of two spaces; without one the line continues where it began.
    const std::size_t gap = line.rfind("  ");
    const std::size_t indent = gap == line.npos ? 0 : line.find_first_not_of(' ', gap);
    if (line.size() <= width || indent == line.npos) {
      out += line + '\n';
      continue;
    }
    std::string paragraph = help_paragraph(line.substr(indent), indent, width);
    paragraph.replace(0, indent, line.substr(0, indent));
    out += paragraph;
  }
  while (out.ends_with("\n\n")) out.pop_back();
  return out;
}

}  // namespace trident
