// Request and answer of `trident eval`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json_reader.h"

namespace trident {

struct NamedPrefix {
  std::string name, prefix;                 // of .bin and .idx
  std::optional<std::string> split = {};    // data.split, whose validation part is evaluated; not given: all of it
};

struct EvalOptions {
  std::string checkpoint, hf_folder;  // one of them; the other is empty
  std::string adapter = {};           // to hf_folder, of PEFT's form; "": none
  std::vector<std::string> settings;  // --set
  std::vector<NamedPrefix> sets;
  std::optional<std::vector<std::int32_t>> ids;  // a text by itself
  std::optional<std::string> choices;            // a file
  std::string delimiter = " ";                   // between context and choice
  std::optional<std::string> tokenizer;          // not given: the model's (find_tokenizer)
  bool no_special = false;                       // texts get nothing around them
  std::optional<std::int64_t> sequence, stride;  // not given: the checkpoint's batch.sequence; as sequence
  bool per_document = false;
  bool token_losses = false;  // of `ids` alone
  bool per_question = false;  // of `choices` alone
};

// Sums over the predicted tokens of a text that count.
struct LossSum {
  double nats = 0;
  std::int64_t tokens = 0;
  std::int64_t correct = 0;  // of them: no other token is likelier
  std::int64_t bytes = 0;    // of their text

  LossSum& operator+=(const LossSum& other) {
    nats += other.nats, tokens += other.tokens, correct += other.correct, bytes += other.bytes;
    return *this;
  }
  double loss() const;                          // nats per token; NaN of none
  double perplexity() const;                    // e to that
  double token_accuracy() const;                // NaN of none
  std::optional<double> bits_per_byte() const;  // nothing where there are no bytes
};

struct SetReport {
  std::string name;
  LossSum sum;
  std::vector<LossSum> documents;  // --per-document
};

struct QuestionReport {
  std::vector<double> log_likelihoods;            // of its choices
  std::int64_t chosen = 0;                        // the first of the largest
  std::optional<std::int64_t> chosen_normalised;  // that of the largest after dividing by code points, where those are known
};

struct ChoicesReport {
  std::int64_t questions = 0;
  std::optional<std::int64_t> not_finite;        // the first question, from 0 on, with a log-likelihood that is no number
  std::int64_t right = 0;                        // the choice of the largest log-likelihood is the answer
  std::optional<std::int64_t> right_normalised;  // that divided by the choice's code points
  std::vector<QuestionReport> each;              // EvalOptions::per_question
};

struct EvalReport {
  std::string model;
  std::optional<std::int64_t> updates;  // of its training; nothing of a Hugging Face folder
  bool knows_bytes = false;             // there was a tokenizer
  std::int64_t sequence = 0, stride = 0;  // of the windows that sets are cut into, in tokens
  std::vector<SetReport> sets;
  std::vector<double> token_nats;  // EvalOptions::token_losses; NaN of a target that does not count
  std::optional<ChoicesReport> choices;
};

// One object: loss, ppl, mean_token_accuracy, bits_per_byte (null without a tokenizer) and tokens of all sets together, each set's
// under "sets" where there are several, its documents' under "documents"; acc, acc_norm and questions of choices, and each of
// those under "answers".
JsonValue to_json(const EvalReport& report);
// The same for people.
std::string to_text(const EvalReport& report);

}  // namespace trident
