// trident docs [PAGE | timeline --config FILE [--set path=value ...]]: the pages of docs/, and what of them the code computes.
// trident schema
#include <algorithm>
#include <filesystem>
#include <ostream>
#include <string_view>
#include <utility>

#include "app/command_line.h"
#include "app/foreign_flag_hint.h"
#include "app/help_text.h"
#include "app/path_arguments.h"
#include "core/file_io.h"
#include "core/nearest_name.h"
#include "core/printable.h"
#include "import/text_limits.h"
#include "planner/predict/timeline_svg.h"
#include "train/config/foreign_answers.h"
#include "train/config/option_docs.h"
#include "train/plan/machine.h"

namespace trident {
namespace {

// A page, and other words for what it is about.
constexpr std::pair<std::string_view, std::string_view> kOtherWords[] = {
    {"finetuning", "lora qlora dora peft adapter adapters sft dpo finetune fine-tuning chat preference"},
    {"install", "build installation setup"},
    {"coming-from",
     "import megatron deepspeed transformers trl axolotl llamafactory llama-factory swift ms-swift accelerate torchtitan olmo"},
    {"planner", "plan search cluster"},
    {"checkpoints", "checkpoint ckpt convert resume"},
    {"generation", "generate inference"},
    {"evaluation", "eval"},
    {"slurm", "mpi cluster nodes launch"},
    {"stopping", "exit exit-codes signals supervise elastic"},
    {"logs", "report metrics tensorboard wandb weights-and-biases mlflow prometheus"},
};

std::string page_hint(std::string_view word, const std::vector<std::string>& pages) {
  if (const std::string_view page = page_about(word); !page.empty()) return fmt::format("; did you mean {}?", page);
  return name_hint(word, {pages.begin(), pages.end()});
}

// The folder of the pages, "" where there is none. A folder of that name may be another's: this page is ours alone.
std::string folder_of_pages() {
  const std::string page = beside_program("docs/coming_from.md");
  return page.empty() ? "" : std::filesystem::path(page).parent_path().string();
}

// The names of the pages in a folder; none where it is not there.
std::vector<std::string> pages_in(const std::string& folder) {
  std::vector<std::string> pages;
  for (const std::string& name : folder.empty() ? std::vector<std::string>() : names_in(folder))
    if (name.ends_with(".md")) pages.push_back(name.substr(0, name.size() - 3));
  return pages;
}

void print_pages(const std::string& folder, std::ostream& out) {
  out << "usage: trident docs PAGE\n"
         "       trident docs timeline --config FILE [--set KEY=VALUE ...]\n\n"
         "timeline is one training step of a configuration, as SVG.\n";
  const std::vector<std::string> pages = pages_in(folder);
  if (pages.empty())
    out << "Pages: configuration, coming-from; docs/ of the package or source has all.\n";
  else
    out << fmt::format("Pages, in {}:\n", on_one_line(folder));
  for (const std::string& page : pages) {
    const std::string text = read_file(fmt::format("{}/{}.md", folder, page));
    out << on_lines(fmt::format("  {:<16} {}\n", page, text.substr(std::min(text.size(), std::size_t{2}), text.find('\n') - 2)));
  }
}

void draw_timeline(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Draw one training step of a configuration as SVG.", "trident docs timeline");
  ConfigFlags flags;
  add_config_flags(app, flags);
  app.get_option("--config")->required();
  if (!parse_flags(app, arguments, context, {{}, foreign_flag_hint})) return;
  check_named_files(app, {"--config"}, {});
  OptionValues values;
  const TrainConfig config = load_train_config(flags.file, flags.settings, values);
  const ModelConfig model = resolve_model(config);
  check_can_be_drawn(config, model);
  context.out << timeline_svg(make_run_plan(config, model, 0, kAnyMachine));
}

}  // namespace

std::string_view page_about(std::string_view word) {
  for (const auto& [page, words] : kOtherWords)
    if (is_listed(word, words)) return page;
  return "";
}

void docs_command(const Arguments& arguments, const CommandContext& context) {
  const std::string page = arguments.empty() ? "" : arguments.front(), folder = folder_of_pages();
  if (page == "timeline") return draw_timeline({arguments.begin() + 1, arguments.end()}, context);
  if (page.empty() || arguments.back() == "--help" || arguments.back() == "-h") return print_pages(folder, context.out);
  if (arguments.size() > 1)
    throw ConfigError(fmt::format("trident docs: unknown argument {}; name one page", in_quotes(arguments[1])));
  const std::vector<std::string> pages = pages_in(folder);
  if (page == "configuration") {
    context.out << options_markdown();
  } else if (page == "coming-from") {
    context.out << coming_from_markdown();
  } else if (std::ranges::count(pages, page) > 0) {
    context.out << on_lines(read_file(fmt::format("{}/{}.md", folder, page)));
  } else if (folder.empty()) {
    throw ConfigError(fmt::format("trident docs: there is no page {}: the folder docs is neither beside the program, in {}, nor in "
                                  "the three above it; call the program that lies in its package or checkout",
                                  in_quotes(page), in_quotes(folder_of_program())));
  } else {
    throw ConfigError(fmt::format("trident docs: there is no page {}; trident docs lists them{}", in_quotes(page),
                                  page_hint(page, pages)));
  }
}

void schema_command(const Arguments& arguments, const CommandContext& context) {
  CLI::App app("Print the JSON Schema of the configuration, for editors.", "trident schema");
  if (!parse_flags(app, arguments, context)) return;
  context.out << to_json_text(options_schema(), 2) << '\n';
}

}  // namespace trident
