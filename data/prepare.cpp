#include "data/prepare.h"

#include <sys/stat.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <new>
#include <stop_token>
#include <system_error>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "core/counted.h"
#include "core/fnv1a.h"
#include "core/shell_word.h"
#include "data/dataset_files.h"
#include "data/document_reader.h"
#include "data/indexed_dataset.h"
#include "data/indexed_dataset_writer.h"

namespace trident {
namespace {

constexpr std::int64_t kBatchBytes = 1 << 20;  // of input that one worker takes at once

// Documents of one file on their way from the reader through a worker to the writer.
struct Batch {
  std::vector<RawDocument> documents;
  std::vector<std::int32_t> ids;    // of all of them, eod included
  std::vector<std::int64_t> sizes;  // ids of each, or of each answer of a pair
  std::vector<std::uint8_t> counts; // of ids, of conversations
  std::vector<std::string> bad;     // why lines are no documents
  bool unfit = false;               // whether one of them is only no document of this tokenizer and these flags
  std::size_t lines = 0;            // documents when they were read
  PrepareStats stats = {};          // of these documents alone, what their texts say
  bool all_usual = true;                  // conversations and lists of ids begin with what the tokenizer puts before a text
  std::int64_t bytes = 0;           // of memory, as it was read
  std::int64_t bytes_done = 0;      // of all inputs, once this was read
};

std::int32_t eod_of(const Tokenizer& tokenizer, const PrepareOptions& options) {
  if (!options.append_eod) return -1;
  return options.eod ? *options.eod : tokenizer.eod_for("--append-eod", "name it with --eod TOKEN");
}

// The inputs as they are now and the options that decide how they become documents; "" of standard input, and of conversations,
// whose template may be a file that has changed. No change of a file, nor of one that takes its place, leaves its ctime as it was.
std::string recorded_options(const Tokenizer& tokenizer, const PrepareOptions& options, const std::vector<InputFile>& files) {
  if (options.chat != nullptr) return "";
  Fnv1a inputs;
  for (const InputFile& file : files) {
    struct stat now {};
    std::error_code lost;
    const std::string path = std::filesystem::canonical(file.path, lost).string();
    if (file.path == kStandardInput || lost || ::stat(path.c_str(), &now) != 0) return "";
    inputs.add(path);
    for (const auto number : {std::int64_t(now.st_ino), now.st_size, now.st_ctim.tv_sec, now.st_ctim.tv_nsec})
      inputs.add(static_cast<std::uint64_t>(number));
  }
  return fmt::format("json_key {}, separator_line {}, eod {}, bad lines {}, inputs {}", in_quotes(options.json_key),
                     options.separator_line ? in_quotes(*options.separator_line) : "none", eod_of(tokenizer, options),
                     options.most_bad_lines.value_or(0), inputs.text());
}

void take_ids(const std::vector<std::int32_t>& ids, const RawDocument& line, const InputFile& input, const Tokenizer& tokenizer,
              Batch& batch) {
  const auto other = std::ranges::find_if(ids, [&](std::int32_t id) { return id < 0 || id >= tokenizer.vocab_size(); });
  if (other != ids.end())
    throw UnfitLineError(
        fmt::format("{}:{}:1: id {} is not among the tokenizer's {}; name the tokenizer of these ids by --tokenizer", input.path,
                    line.line, *other, tokenizer.vocab_size()));
  std::ranges::copy(ids, std::back_inserter(batch.ids));
  const std::vector<std::int32_t>& before = tokenizer.special_ids().before;
  batch.all_usual = batch.all_usual && std::ranges::mismatch(before, ids).in1 == before.end();
}

void encode_one(RawDocument& document, Batch& batch, Encoder& encoder, const InputFile& input, const Tokenizer& tokenizer,
                std::int32_t eod, const PrepareOptions& options) {
  std::string text;
  bool is_text = true;  // else ids
  const std::size_t before = batch.ids.size();
  if (input.kind == InputKind::kJsonLines) {
    JsonLineText line = text_of_json_line(document, input.path, options.json_key);
    text = std::move(line.text);
    if (line.ids) {
      is_text = false;
      take_ids(*line.ids, document, input, tokenizer, batch);
      batch.stats.bytes += std::ssize(document.bytes);
    }
    batch.stats.lone_surrogates += line.lone_surrogates;
  } else text = std::move(document.bytes);
  document.bytes = std::string();
  if (is_text) encoder.encode(text, &batch.ids, options.rule);
  if (const auto& control = encoder.first_control(); is_text && control && batch.stats.first_control.empty()) {
    const auto above = input.kind == InputKind::kText ? std::ranges::count(std::string_view(text).substr(0, control->at), '\n') : 0;
    batch.stats.first_control = fmt::format("{}:{}", input.path, document.line + above), batch.stats.first_control_id = control->id;
  }
  if (batch.ids.size() > before && options.append_eod) batch.ids.push_back(eod);
  batch.sizes.push_back(static_cast<std::int64_t>(batch.ids.size() - before));
  batch.stats.bytes += static_cast<std::int64_t>(text.size());
}

void add_conversation(const ConversationTokens& tokens, const InputFile& input, const RawDocument& line, Batch& batch) {
  std::ranges::copy(tokens.ids, std::back_inserter(batch.ids));
  std::ranges::copy(tokens.counts, std::back_inserter(batch.counts));
  batch.sizes.push_back(std::ssize(tokens.ids));
  batch.stats.bytes += tokens.bytes;
  batch.stats.endless += tokens.ends ? 0 : 1;
  if (!tokens.dropped.empty() && ++batch.stats.dropped == 1)
    batch.stats.first_dropped = fmt::format("{}:{}: {}", input.path, line.line, tokens.dropped);
  batch.all_usual = batch.all_usual && tokens.is_usual;
}

void encode_chat(const RawDocument& line, Batch& batch, Encoder& encoder, const InputFile& input, const Tokenizer& tokenizer,
                 const ChatOptions& chat) {
  const auto counts = [](const ConversationTokens& tokens) { return std::ranges::find(tokens.counts, 1) != tokens.counts.end(); };
  std::vector<ConversationTokens> parts;
  if (chat.preferences)
    std::ranges::move(encode_preference(line, input.path, chat, tokenizer, encoder), std::back_inserter(parts));
  else
    parts.push_back(encode_conversation(line, input.path, chat, tokenizer, encoder));
  batch.stats.skipped += std::ranges::all_of(parts, counts) ? 0 : 1;
  if (!std::ranges::all_of(parts, counts)) return;
  batch.stats.equal_answers += parts.size() == 2 && parts[0].ids == parts[1].ids ? 1 : 0;
  for (const ConversationTokens& tokens : parts) add_conversation(tokens, input, line, batch);
}

// A list of messages is a row of its own.
bool begins_an_array_of_rows(std::string_view line) {
  std::string first;
  for (const char c : line.substr(0, 64))
    if (c != ' ' && c != '\t' && c != '\r') first += c;
  return first.starts_with('[') && !first.starts_with("[{\"role\"") && !first.starts_with("[{\"content\"") &&
         !first.starts_with("[{\"from\"") && !first.starts_with("[{\"value\"");
}

void encode(Batch& batch, Encoder& encoder, const InputFile& input, const Tokenizer& tokenizer, std::int32_t eod,
            const PrepareOptions& options) {
  batch.lines = batch.documents.size();
  for (RawDocument& document : batch.documents) {
    try {
      if (options.chat != nullptr)
        encode_chat(document, batch, encoder, input, tokenizer, *options.chat);
      else
        encode_one(document, batch, encoder, input, tokenizer, eod, options);
    } catch (const std::bad_alloc&) {
      refuse_without_memory(input.path, document.line);
    } catch (DataError& error) {
      if (input.kind == InputKind::kJsonLines && document.line == 1 && begins_an_array_of_rows(document.bytes))
        error.add_context(fmt::format("; if the file is one JSON array, write a line of each element: jq -c '.[]' {} > rows.jsonl",
                                      for_shell(input.path)));
      batch.bad.emplace_back(error.what());
      batch.unfit = batch.unfit || dynamic_cast<const UnfitLineError*>(&error) != nullptr;
    }
  }
  batch.documents = {};
}

// Threads that each own an Encoder and work on tasks in the order of their submission.
class EncoderPool {
 public:
  // ConfigError that names --workers where the system does not give so many threads.
  EncoderPool(const Tokenizer& tokenizer, int workers) {
    for (int i = 0; i < workers; ++i) encoders_.push_back(tokenizer.new_encoder());
    try {
      for (const auto& encoder : encoders_)
        threads_.emplace_back([this, &encoder](const std::stop_token& stop) { run(stop, *encoder); });
    } catch (const std::system_error& error) {
      throw ConfigError(fmt::format("--workers = {}: the system gave {}: {}; use fewer, or raise ulimit -u or -v", workers,
                                    counted(std::ssize(threads_), "thread"), error.what()));
    }
  }
  // Tasks that have not begun are dropped; the others are waited for.
  ~EncoderPool() {
    const std::lock_guard lock(mutex_);
    tasks_.clear();
  }
  EncoderPool(const EncoderPool&) = delete;
  EncoderPool& operator=(const EncoderPool&) = delete;

  // Ready once `work` has run; holds what it threw.
  std::future<void> submit(std::function<void(Encoder&)> work) {
    std::packaged_task<void(Encoder&)> task(std::move(work));
    std::future<void> done = task.get_future();
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    changed_.notify_one();
    return done;
  }

  // A count of all threads' encoders together, such as Encoder::num_replaced. Only while no task runs.
  std::int64_t sum_of(std::int64_t (Encoder::*count)() const) const {
    std::int64_t sum = 0;
    for (const auto& encoder : encoders_) sum += ((*encoder).*count)();
    return sum;
  }

 private:
  void run(const std::stop_token& stop, Encoder& encoder) {
    for (;;) {
      std::packaged_task<void(Encoder&)> task;
      {
        std::unique_lock lock(mutex_);
        if (!changed_.wait(lock, stop, [this] { return !tasks_.empty(); })) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      task(encoder);
    }
  }

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::packaged_task<void(Encoder&)>> tasks_;
  std::vector<std::unique_ptr<Encoder>> encoders_;
  std::vector<std::jthread> threads_;  // last: they use all of the above, and end with it even if the constructor throws
};

// Hands batches to the workers and writes what they return, in the order of submission.
class Preparation {
 public:
  using Progress = std::function<void(const PrepareProgress&)>;

  Preparation(const Tokenizer& tokenizer, const std::string& output_prefix, const PrepareOptions& options, std::int64_t bytes_total,
              const Progress& progress)
      : options_(options),
        tokenizer_(tokenizer),
        progress_(progress),
        eod_(eod_of(tokenizer, options)),
        writer_(output_prefix, tokenizer.vocab_size(), options.overwrite, options.chat != nullptr ? WithMask::kYes : WithMask::kNo),
        pool_(tokenizer, options.workers) {
    seen_.bytes_total = bytes_total;
  }

  // Returns its bytes as stored.
  std::int64_t add_file(const InputFile& input) {
    DocumentReader reader(input, options_.separator_line, {options_.max_line_bytes, options_.max_document_bytes},
                          [this] { if (progress_) progress_(seen_); });
    std::int64_t documents = 0;
    for (bool more = true; more;) {
      auto batch = std::make_unique<Batch>();
      try {
        while (more && batch->bytes < kBatchBytes) {
          std::optional<RawDocument> document = reader.next();
          more = document.has_value();
          if (!more) break;
          batch->bytes += static_cast<std::int64_t>(document->bytes.size() + sizeof *document);
          batch->documents.push_back(std::move(*document));
        }
      } catch (const Error&) {
        submit(std::move(batch), input);
        write_all();  // where an earlier document is wrong, that is the error
        throw;
      }
      documents += static_cast<std::int64_t>(batch->documents.size());
      batch->bytes_done = bytes_before_ + (more || input.begun ? reader.bytes_done() : input.bytes);
      submit(std::move(batch), input);
    }
    if (documents == 0) {
      write_all();
      throw DataError(fmt::format("{}: holds no document; leave it out of --input", input.path));
    }
    const std::int64_t bytes = input.begun ? reader.bytes_done() : input.bytes;
    bytes_before_ += bytes;
    return bytes;
  }

  PrepareStats finish(DatasetOrigin origin) {
    write_all();
    if (options_.chat != nullptr || !all_usual_)  // a template, or what made ids, may write itself what stands before a text
      origin.tokenizer = recorded(tokenizer_, {.around = all_usual_ ? Around::kAdded : Around::kLeftOut});
    if (writer_.num_documents() == 0 && stats_.skipped > 0)
      throw DataError(fmt::format("--input: no token counts in any of {}; look at one with trident tokenizer render",
                                  counted(stats_.skipped, options_.chat->preferences ? "pair" : "conversation")));
    if (writer_.num_documents() == 0)
      throw DataError(
          fmt::format("--input: all {} lines are bad; name the key of the text by --json-key, or mend them", stats_.bad_lines));
    writer_.finish(origin);
    stats_.documents = writer_.num_documents();
    stats_.tokens = writer_.num_tokens();
    stats_.replaced = pool_.sum_of(&Encoder::num_replaced);
    if (options_.chat == nullptr) stats_.controls = pool_.sum_of(&Encoder::num_controls);  // else they are the template's
    stats_.unknown = pool_.sum_of(&Encoder::num_unknown);
    return stats_;
  }

 private:
  struct InFlight {
    std::unique_ptr<Batch> batch;
    std::future<void> done;
  };

  void submit(std::unique_ptr<Batch> batch, const InputFile& input) {
    auto done = pool_.submit([this, &input, batch = batch.get()](Encoder& encoder) {
      encode(*batch, encoder, input, tokenizer_, eod_, options_);
    });
    bytes_in_flight_ += batch->bytes;
    in_flight_.push_back({std::move(batch), std::move(done)});
    // Two batches per worker, one in work and one that waits for it, but no second one beside a long document.
    while (in_flight_.size() > static_cast<std::size_t>(2 * options_.workers) ||
           (!in_flight_.empty() && bytes_in_flight_ > 4 * options_.workers * kBatchBytes))
      write_oldest();
  }
  void write_all() {
    while (!in_flight_.empty()) write_oldest();
  }

  // "a.jsonl:1: why; likewise a.jsonl:2, a.jsonl:5; also a.jsonl:7: another why; also 90 more".
  static std::string first_bad_lines(const std::vector<std::string>& bad) {
    const std::size_t shown = std::min(bad.size(), std::size_t{kShownBadLines});
    std::string text, why;
    for (const std::string& line : std::span(bad).first(shown)) {
      const std::size_t place = std::min(line.find(": "), line.size());
      const bool is_alike = !text.empty() && line.substr(place) == why;
      if (!is_alike) text += (text.empty() ? "" : "; also ") + line;
      else text += (text.ends_with(why) ? "; likewise " : ", ") + line.substr(0, place);
      why = line.substr(place);
    }
    return text + (shown == bad.size() ? "" : fmt::format("; also {} more", bad.size() - shown));
  }

  // Where all lines are bad they are of another kind, and the first says which.
  [[noreturn]] static void refuse_bad(const Batch& batch) {
    if (batch.bad.size() == batch.lines) throw DataError(batch.bad.front());
    if (batch.unfit) throw DataError(first_bad_lines(batch.bad));
    throw DataError(fmt::format("{}; --skip-bad-lines leaves such lines out", first_bad_lines(batch.bad)));
  }

  void leave_out(const std::string& why) {
    if (++stats_.bad_lines > *options_.most_bad_lines)
      throw DataError(
          fmt::format("{}; {}, and --most-bad allows {}", why, counted(stats_.bad_lines, "bad line"), *options_.most_bad_lines));
    if (stats_.bad_lines <= kShownBadLines && options_.on_bad_line) options_.on_bad_line(why);
  }

  void write_oldest() {
    in_flight_.front().done.get();  // throws what the worker threw
    const std::unique_ptr<Batch> batch = std::move(in_flight_.front().batch);
    if (!batch->bad.empty() && !options_.most_bad_lines) refuse_bad(*batch);
    for (const std::string& why : batch->bad) leave_out(why);
    in_flight_.pop_front();
    bytes_in_flight_ -= batch->bytes;
    std::span<const std::int32_t> ids(batch->ids);
    std::span<const std::uint8_t> counts(batch->counts);
    for (const std::int64_t size : batch->sizes) {
      const auto length = static_cast<std::size_t>(size), bits = options_.chat != nullptr ? length : 0;
      stats_.empty_documents += size == 0;
      if (options_.chat == nullptr || !options_.chat->preferences) {
        writer_.add_document(ids.first(length), counts.first(bits));
      } else {
        writer_.add_sequence(ids.first(length), counts.first(bits));
        if (writer_.num_sequences() % 2 == 0) writer_.end_document();
      }
      ids = ids.subspan(length), counts = counts.subspan(bits);
    }
    const PrepareStats& of_batch = batch->stats;
    if (stats_.first_control.empty())
      stats_.first_control = of_batch.first_control, stats_.first_control_id = of_batch.first_control_id;
    if (stats_.dropped == 0) stats_.first_dropped = of_batch.first_dropped;
    for (const auto sum : {&PrepareStats::skipped, &PrepareStats::equal_answers, &PrepareStats::endless, &PrepareStats::dropped,
                           &PrepareStats::bytes, &PrepareStats::lone_surrogates})
      stats_.*sum += of_batch.*sum;
    stats_.counted += std::ranges::count(batch->counts, 1);
    all_usual_ = all_usual_ && batch->all_usual;
    seen_.bytes_done = batch->bytes_done;
    seen_.text_bytes = stats_.bytes;
    seen_.tokens = writer_.num_tokens();
    if (progress_) progress_(seen_);
  }

  const PrepareOptions& options_;
  const Tokenizer& tokenizer_;
  const Progress& progress_;
  std::int32_t eod_;
  IndexedDatasetWriter writer_;
  std::int64_t bytes_before_ = 0;  // of the files that were read to their end
  std::int64_t bytes_in_flight_ = 0;
  PrepareStats stats_;
  bool all_usual_ = true;
  PrepareProgress seen_;
  std::deque<InFlight> in_flight_;
  EncoderPool pool_;  // last: its threads end before the batches that they work on
};

}  // namespace

PrepareStats prepare_text(const std::vector<std::string>& names, const Tokenizer& tokenizer, const std::string& output_prefix,
                          const PrepareOptions& options, const std::function<void(const PrepareProgress&)>& progress) {
  const std::vector<std::string> inputs = input_paths(names);
  if (inputs.empty()) throw ConfigError("--input: no files; name at least one text or JSONL file");
  if (options.workers < 1 || options.workers > 256)
    throw ConfigError(fmt::format("--workers = {}: allowed are 1 to 256", options.workers));
  if (options.max_document_bytes < 1)
    throw ConfigError(fmt::format("--max-document-bytes = {}: must be positive", options.max_document_bytes));
  if (options.max_line_bytes < 1) throw ConfigError(fmt::format("--max-line = {}: must be positive", options.max_line_bytes));
  if (options.most_bad_lines && *options.most_bad_lines < 0)
    throw ConfigError(fmt::format("--most-bad = {}: must not be negative", *options.most_bad_lines));
  if (std::ranges::count(inputs, kStandardInput) > 1) throw ConfigError("--input = -: given twice; standard input is read once");
  const double start = monotonic_seconds();

  // All inputs are looked at before any work is done: a typing error in the last name is told at once.
  std::vector<InputFile> files;
  std::int64_t bytes_total = 0;
  DatasetOrigin origin{.tokenizer = recorded(tokenizer, options.rule),
                       .sources = {},
                       .pairs = options.chat != nullptr && options.chat->preferences,
                       .chat_template = options.chat == nullptr ? "" : options.chat->template_name};
  for (const std::string& path : inputs) {
    for (const std::string& output : {bin_path(output_prefix), idx_path(output_prefix), record_path(output_prefix)}) {
      std::error_code ignored;  // of files that are not there
      if (path != output && !std::filesystem::equivalent(path, output, ignored)) continue;
      throw ConfigError(fmt::format("--output = {}: would overwrite the input {}; choose another prefix", output_prefix, path));
    }
    files.push_back(identify_input(path, [&] { if (progress) progress({}); }));
    if (files.back().begun && options.separator_line) files.back().kind = InputKind::kText;
    if (options.chat != nullptr && files.back().kind != InputKind::kJsonLines)
      throw ConfigError(fmt::format("--chat: {} is no file of JSON lines; name it FILE.jsonl, one conversation a line", path));
    bytes_total += files.back().bytes;
  }
  if (std::ranges::find(inputs, kStandardInput) != inputs.end()) bytes_total = 0;

  origin.options = recorded_options(tokenizer, options, files);
  if (options.overwrite == Overwrite::kNo && is_made_of(output_prefix, origin)) {
    PrepareStats there;
    there.documents = IndexedDataset(output_prefix).num_documents(), there.was_there = true;
    return there;
  }

  Preparation preparation(tokenizer, output_prefix, options, bytes_total, progress);
  for (const InputFile& file : files) origin.add({file.path, preparation.add_file(file)});
  PrepareStats stats = preparation.finish(origin);
  stats.seconds = monotonic_seconds() - start;
  return stats;
}

}  // namespace trident
