// From text to token files: what `trident data prepare` does.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/chat_documents.h"
#include "data/dataset_output.h"
#include "data/tokenizer/tokenizer.h"

namespace trident {

inline constexpr std::int64_t kShownBadLines = 10;

struct PrepareOptions {
  bool append_eod = false;                         // after each document that has tokens
  std::optional<std::int32_t> eod = std::nullopt;  // not set: the tokenizer's
  TextRule rule = {};                              // of each text
  std::string json_key = "text";          // for .jsonl and .json inputs
  // Text inputs: a line equal to this (without its line end) separates documents and belongs to none; "" cuts at blank lines.
  // Stretches without any text between two separators are no documents. Not set: a file is one document.
  std::optional<std::string> separator_line = std::nullopt;
  const ChatOptions* chat = nullptr;  // inputs are conversations, and PREFIX.mask says which tokens count
  Overwrite overwrite = Overwrite::kNo;
  std::int64_t max_document_bytes = std::int64_t{256} << 20;  // of text, or of a line of JSON; longer ones are refused
  std::int64_t max_line_bytes = std::int64_t{256} << 20;      // of any input; longer ones are refused
  // JSONL: bad lines that are left out; not set: they are refused, the first kShownBadLines of the first MB that has some by name.
  std::optional<std::int64_t> most_bad_lines = std::nullopt;
  std::function<void(const std::string&)> on_bad_line = {};  // is told why the first kShownBadLines are bad
  int workers = 1;  // threads that tokenize; the output does not depend on their number
};

struct PrepareStats {
  std::int64_t documents = 0;
  std::int64_t empty_documents = 0;  // JSONL: kept as documents of no sequence
  std::int64_t tokens = 0;           // eod included
  std::int64_t bytes = 0;            // of the documents' text
  std::int64_t replaced = 0;         // ill-formed UTF-8 sequences, read as U+FFFD
  std::int64_t lone_surrogates = 0;  // of JSON strings, read as U+FFFD
  std::int64_t controls = 0;         // control texts that became their tokens
  std::string first_control = {};    // FILE:LINE of the first
  std::int32_t first_control_id = -1;
  std::int64_t unknown = 0;          // characters without a token
  std::int64_t bad_lines = 0;        // left out
  std::int64_t counted = 0;          // of conversations: tokens that count
  std::int64_t skipped = 0;          // conversations without such
  std::int64_t equal_answers = 0;    // pairs
  std::int64_t dropped = 0;          // conversations of which the template leaves something out
  std::string first_dropped = {};    // FILE:LINE of the first, and what
  std::int64_t endless = 0;          // conversations in which no eos ends the last stretch that counts
  double seconds = 0;
  bool was_there = false;            // the files are there, made of the same inputs, and nothing was done: only `documents` counts
};

struct PrepareProgress {
  std::int64_t bytes_done = 0;   // of the input files, as stored
  std::int64_t bytes_total = 0;  // 0: standard input, which does not say
  std::int64_t text_bytes = 0;   // of the documents written so far
  std::int64_t tokens = 0;
};

// Writes PREFIX.bin and PREFIX.idx (Megatron-LM's indexed dataset; exactly these names), one sequence per document that has text
// (of ChatOptions::preferences two: the chosen and the rejected answer), in the order of input_paths(names). An input is JSON lines
// (one object a line, blank lines are skipped) or plain text, either also compressed (see InputFile). Memory: a few MB per worker,
// or three times the longest document where that is more. Errors leave no output, whichever the number of workers the first one in
// the order of the documents: DataError (input missing, damaged, empty, or a bad line: FILE:LINE), ConfigError (no inputs,
// workers), StorageError (output). `progress` is called on this thread, about once per MB of text.
PrepareStats prepare_text(const std::vector<std::string>& names, const Tokenizer& tokenizer, const std::string& output_prefix,
                          const PrepareOptions& options, const std::function<void(const PrepareProgress&)>& progress = {});

}  // namespace trident
