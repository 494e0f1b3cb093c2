#include "train/config/foreign_answers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <tuple>

#include "core/json_reader.h"
#include "core/nearest_name.h"
#include "model/config/model_presets.h"
#include "train/config/option_check.h"
#include "train/config/option_docs.h"
#include "train/config/option_table.h"

namespace trident {
namespace {

constexpr std::size_t kMostMeanings = 3;

// Notes of facts that have the same in every system, by a part of their names, for rows that say nothing themselves.
constexpr std::string_view kRanks = "mpirun or srun says how many ranks there are; without one the ranks of parallel are threads";
constexpr std::pair<std::string_view, std::string_view> kFactNotes[] = {
    {"@ranks", kRanks},
    {"@nodes", kRanks},
    {"@replicate", "ranks that share a copy: the data-parallel ranks over these"},
    {"@shard", "with parallel.zero=zero3"},
    {"@accumulation", "batch.micro x parallel.data x N"},
    {"_samples", "samples / batch.global"},
    {"@warmup_ratio", "a number below 1 is a share of the steps"},
    {"@min_lr_ratio", "X x optimizer.lr"},
    {"beta", "a list of both"},
    {"@dataset", "the prefix that trident data prepare wrote"},
};
// The value of these facts is the key's, too.
constexpr std::array<std::string_view, 5> kSameValue{"@max_steps", "@save_steps", "@eval_steps", "@logging_steps", "@model"};

// Dots of a row's name count as underscores, which `word` has alone.
bool ends_with_word(std::string_view name, std::string_view word) {
  const auto plain = [](char c) { return c == '.' ? '_' : c; };
  return name.size() >= word.size() && std::ranges::equal(name.substr(name.size() - word.size()), word, {}, plain);
}

// The first path of the option table in a note.
std::string key_in(std::string_view note) {
  while (!note.empty()) {
    const std::size_t end = std::min(note.find_first_not_of("abcdefghijklmnopqrstuvwxyz_.0123456789"), note.size());
    std::string_view word = note.substr(0, end);
    while (word.ends_with('.')) word.remove_suffix(1);
    if (word.find('.') != word.npos && find_option(word) != nullptr) return std::string(word);
    note.remove_prefix(std::min(note.size(), end + 1));
  }
  return "";
}

// The choice of the option that a note names first, as JSON text; "": none.
std::string value_in(std::string_view note, const Option* option) {
  std::size_t first = note.npos;
  std::string value;
  for (const std::string_view choice : option == nullptr ? std::vector<std::string_view>() : option->choices)
    if (const std::size_t at = note.find(choice); at < first) first = at, value = in_quotes(choice);
  return value;
}

bool is_value_of(std::string_view key, std::string_view json) {
  const Option* const option = find_option(key);
  if (option == nullptr || option->choices.empty()) return false;
  try {
    checked_value(*option, parse_json(json, key), "");
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

bool is_command(std::string_view to) { return to.starts_with("trident "); }

ForeignAnswer answer_of(ForeignSystem system, const ForeignKey& row) {
  ForeignAnswer answer{system, &row, "", std::string(row.value), std::string(row.note)};
  const bool has_key = row.verdict == Verdict::kMapped || row.verdict == Verdict::kDiffers || row.verdict == Verdict::kNotBuilt;
  if (is_command(row.to) || !has_key) return answer;
  const std::string_view fact = fact_of(row.to);
  answer.key = row.to.empty() ? key_in(row.note) : std::string(key_of(row.to));
  answer.takes_value = row.value.empty() && row.convert == Convert::kSame && row.verdict == Verdict::kMapped;
  if (!fact.starts_with('@')) return answer;
  answer.takes_value = answer.takes_value && std::ranges::find(kSameValue, fact) != kSameValue.end();
  for (const auto& [part, note] : kFactNotes)
    if (answer.note.empty() && fact.find(part) != fact.npos) answer.note = note;
  if (!answer.value.empty() && !is_value_of(answer.key, answer.value))  // a word of the fact's own
    answer.value = value_in(answer.note, find_option(answer.key));
  return answer;
}

// How well a row names the word: 3 whole, 2 its last part, 1 a beginning that ends in *. Allocates nothing, because each start of
// a training asks for every key of its model.
int fit_of(const ForeignKey& row, std::string_view word) {
  int best = 0;
  std::string_view names = row.names.substr(0, row.names.find(" = "));
  while (!names.empty()) {
    std::string_view name = names.substr(0, names.find(", "));
    names.remove_prefix(std::min(names.size(), name.size() + 2));
    if (name.ends_with('*')) {
      name.remove_suffix(1);
      const bool begins = word.size() >= name.size() && ends_with_word(name, word.substr(0, name.size()));
      if (begins && !name.empty()) best = std::max(best, 1);
    } else if (ends_with_word(name, word)) {
      if (name.size() == word.size()) return 3;
      if (word.find('_') != word.npos && name[name.size() - word.size() - 1] == '.') best = 2;
    }
  }
  return best;
}

// Rows of just this value go before those of any, and those before rows of others.
int value_fit(const ForeignNames& parts, std::string_view value) {
  if (parts.values.empty()) return 1;
  return is_among_values(value.empty() ? "true" : value, parts.values) ? 2 : 0;
}

std::string code(std::string_view text) { return text.empty() ? "" : fmt::format("`{}`", text); }

std::string listed(const std::vector<std::string_view>& texts) {
  std::string out;
  for (const std::string_view text : texts) out += (out.empty() ? "" : ", ") + code(text);
  return out;
}

// The address of a heading within its page.
std::string anchor_of(std::string_view heading) {
  std::string anchor;
  for (const char c : heading)
    if (std::isalpha(static_cast<unsigned char>(c)) != 0) anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (c == ' ' || c == '-') anchor += '-';
  return anchor;
}

std::string row_markdown(ForeignSystem system, const ForeignKey& row) {
  const ForeignNames parts = names_of(row);
  const ForeignAnswer answer = answer_of(system, row);
  const bool has_value = !answer.key.empty() && !answer.value.empty();
  std::string here = code(is_command(row.to) ? row.to : has_value ? fmt::format("{}: {}", answer.key, answer.value) : answer.key);
  if (here.empty() && row.verdict == Verdict::kDiffers) here = "no key";
  std::string note = answer.note;
  if (!row.fallback.empty()) note += fmt::format("{}its default there: `{}`", note.empty() ? "" : "; ", row.fallback);
  return fmt::format("| {}{} | {} | {} | {} |\n", markdown_cell(listed(parts.names)),
                     parts.values.empty() ? "" : fmt::format(" = {}", markdown_cell(listed(parts.values))), name_of(row.verdict),
                     markdown_cell(here), markdown_cell(note));
}

}  // namespace

bool is_everybodys(const ForeignAnswer& answer) { return answer.system == ForeignSystem::kOthers; }

bool leads_somewhere(const ForeignAnswer& answer) { return !answer.key.empty() || is_command(answer.row->to); }

std::vector<ForeignAnswer> foreign_answers(std::string_view word, std::string_view value) {
  struct Found {
    ForeignAnswer answer;
    std::pair<int, int> fit;  // of the word, of the value
    // Whoever names this value, or a key, goes before who does not.
    auto rank() const { return std::tuple(fit.first, fit.second > 0, !answer.key.empty(), leads_somewhere(answer)); }
  };
  const std::string plain = plain_foreign_name(word);
  const auto wanted_as = [](std::string name) { return std::ranges::replace(name, '.', '_'), name; };
  const std::string wanted = wanted_as(plain);
  const bool has_block = find_block(word.substr(0, word.find('.'))) != nullptr && word.find('.') != word.npos;
  std::vector<Found> found;  // the best row of each system
  for (const ForeignSection& section : foreign_sections()) {
    const std::string other = wanted_as(other_foreign_name(section.system, plain));
    for (const ForeignKey& row : section.keys) {
      const int fit = std::max(fit_of(row, wanted), other.empty() ? 0 : fit_of(row, other));
      if (fit == 0 || (fit == 1 && has_block)) continue;  // a key of a block of ours is none of all those of theirs
      const std::pair both(fit, value_fit(names_of(row), value));
      const auto of_system = std::ranges::find(found, section.system, [](const Found& it) { return it.answer.system; });
      if (of_system == found.end()) found.push_back({answer_of(section.system, row), both});
      else if (both > of_system->fit) *of_system = {answer_of(section.system, row), both};
    }
  }
  std::vector<ForeignAnswer> answers;
  if (found.empty()) return answers;
  const auto best = std::ranges::max(found, {}, &Found::rank).rank();
  std::ranges::stable_partition(found, [](const Found& it) { return is_everybodys(it.answer); });  // before one system's word
  for (const Found& it : found) {
    if (it.rank() != best) continue;
    const auto same = std::ranges::find(answers, it.answer.key, &ForeignAnswer::key);
    if (same == answers.end()) answers.push_back(it.answer);
    else if (it.answer.takes_value && !same->takes_value && !is_everybodys(*same)) *same = it.answer;  // a note on the user's value
  }
  // A word for a model's shape here and its weights there: the value says which.
  const bool is_folder = value.find('/') != value.npos, is_preset = !likely_name(value, model_preset_names()).empty();
  if (is_folder != is_preset && answers.size() > 1 && !value.empty())
    std::erase_if(answers, [&](const ForeignAnswer& it) { return it.key == (is_folder ? "model.preset" : "model.init_from"); });
  if (answers.size() > kMostMeanings && std::get<0>(best) < 3) answers.clear();  // a word of everybody says nothing
  return answers;
}

std::string answer_text(const ForeignAnswer& answer, const std::string& with_key) {
  const ForeignKey& row = *answer.row;
  if (is_command(row.to)) return fmt::format("see {}{}", row.to, answer.note.empty() ? "" : fmt::format(" ({})", answer.note));
  if (const Option* const option = find_option(answer.key)) {
    if (option->reserved)
      return fmt::format("its key {} is not built yet{}", answer.key, row.note.empty() ? "" : fmt::format(" ({})", row.note));
    for (const ReservedValue& reserved : option->reserved_values)
      if (in_quotes(reserved.value) == answer.value) return fmt::format("{} = {}: {}", answer.key, answer.value, reserved.remedy);
  }
  if (!answer.key.empty()) return with_key + (answer.note.empty() ? "" : fmt::format(" ({})", answer.note));
  if (row.verdict == Verdict::kRefused) return fmt::format("leave it out, there is no such thing here: {}", answer.note);
  return fmt::format("leave it out: {}", answer.note);
}

std::string joined_answers(const std::vector<ForeignAnswer>& answers, const std::vector<std::string>& texts) {
  std::string all;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const bool is_alone = texts.size() == 1 || is_everybodys(answers[i]);
    all += fmt::format("{}{}{}", i == 0 ? "" : "; or ", is_alone ? "" : fmt::format("{}: ", name_of(answers[i].system)), texts[i]);
  }
  return all;
}

std::string coming_from_markdown() {
  std::string out =
      "# Coming from other systems\n\n"
      "Generated by `trident docs coming-from` from import/foreign and the option table; do not edit.\n\n"
      "```sh\n"
      "trident import run.sh --output c.json                      # the configuration it comes to, and what became of each key\n"
      "trident train --import run.sh --set data.train=PREFIX      # the run itself\n"
      "trident import run.sh --plan --cluster h100_sxm_ndr        # what a step costs with it, and with ddp, zero1, zero2, zero3\n"
      "```\n\n"
      "Write a command into a file such as `run.sh`, or give `-` and the command on standard input. Files that it names are\n"
      "looked for where it goes by `cd`, else in the working directory and beside it, and such as `conf/ds.json` in the folders\n"
      "above, too. Functions, and files that `source` names, are read as a shell reads them; a command that a loop runs again\n"
      "with the same values counts once. Nothing is executed or downloaded. `PREFIX` is of token files that\n"
      "`trident data prepare` wrote;\n"
      "[quickstart.md](quickstart.md#coming-from-another-system) goes through a whole run.\n\n"
      "A value that only the script's user knows, such as `$1`, `$DATA_PATH` or `$(nproc)`, is left out and listed; `trident\n"
      "train` asks for it. A line `set -- ARGUMENTS` above the script's first command gives it its arguments, and what\n"
      "`cat <<END > ds.json` writes there is read as that file, as `sbatch <<END` is as a script. A file that `sed -i`, `cp`,\n"
      "`tee` or a redirection changes is refused; `--without NAME` goes on without what is refused.\n\n"
      "The tables below are what is read: ";
  std::string systems;
  for (const ForeignSection& section : foreign_sections()) {
    const std::string link = fmt::format("[{}](#{})", name_of(section.system), anchor_of(name_of(section.system)));
    if (systems.find(link) == std::string::npos) systems += (systems.empty() ? "" : ",\n") + link;
  }
  out += systems +
      ".\nA word of theirs elsewhere, as a flag, in `--set` or in a configuration, is answered from the same tables.\n"
      "A setting that has several names there stands by one: `fsdp_version` is Accelerate's `fsdp_config.version`, too, and\n"
      "`parallelism.X` torchtitan's older `training.X`.\n\n"
      "*Mapped*: becomes the key beside it. *Always so here*: so without a key, or needless. *Differs*: there is something like\n"
      "it, and the note says what is different. *Not built*: the key is known and refused until it is. *Refused*: there is no\n"
      "such thing, and the input is refused. *Launcher's matter*: what starts the ranks decides it. Keys stand in\n"
      "[configuration.md](configuration.md); `trident help KEY` explains one.\n";
  const ForeignSystem* last = nullptr;
  for (const ForeignSection& section : foreign_sections()) {
    if (last == nullptr || *last != section.system) {
      out += fmt::format("\n## {}\n", name_of(section.system));
      std::string defaults;
      const JsonValue own = parse_json(defaults_of(section.system), "defaults");
      for (const JsonMember& member : own.members())
        defaults += fmt::format("{}`{}: {}`", defaults.empty() ? "" : ", ", member.key, to_json_text(member.value));
      if (!defaults.empty()) out += fmt::format("\nIts defaults in the place of Trainer's: {}\n", defaults);
    }
    last = &section.system;
    out += fmt::format("\n### {}\n\n| there | | here | note |\n|---|---|---|---|\n", section.title);
    for (const ForeignKey& row : section.keys) out += row_markdown(section.system, row);
  }
  return out;
}

}  // namespace trident
