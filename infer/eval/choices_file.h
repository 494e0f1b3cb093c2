// Multiple-choice questions, one JSON object a line, and how they are split into what is given and what is scored: as
// lm-evaluation-harness does (EleutherAI, v0.4.13: lm_eval/api/model.py, _encode_pair and loglikelihood; api/task.py,
// multiple_choice).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace trident {

// The tokens of a context and a choice: `tokens` ends in the `scored` ones whose log-likelihoods are summed; at least one token
// comes before them.
struct ChoiceTokens {
  std::vector<std::int32_t> tokens;
  std::int64_t scored = 0;
  std::int64_t length = 0;  // of the choice's text in code points; 0 where it is given as ids, without a tokenizer
};

struct Question {
  std::vector<ChoiceTokens> choices;
  std::int64_t answer = 0;
};

struct ChoicesRules {
  const Tokenizer* tokenizer = nullptr;  // or none: ids alone
  TextRule rule = {};                    // of texts
  std::string no_tokenizer = {};         // of messages about that: behind "there is no tokenizer", why
  std::int64_t vocab_size = 0;           // of the model
  std::int64_t sequence = 0;             // the most inputs that it takes
  std::string delimiter = " ";           // between context and choice
};

// Lines {"context": "...", "choices": ["...", ...], "answer": 0}. Context and choices may be lists of token ids, both or neither;
// the delimiter then stands in them. Other keys, such as ids and categories, are not read. Blank lines are passed over. DataError
// that names file, line and key: no JSON object, a key that is missing or of another type, no choice, an answer that is none of
// them, an empty choice, a choice of more tokens than fit, an id outside the vocabulary; a file without a question. ConfigError for
// text without a tokenizer.
std::vector<Question> read_choices(const std::string& path, const ChoicesRules& rules);

// Splits as lm-evaluation-harness does: white space at the context's end goes over to the continuation,
// both are encoded together, and what lies behind the tokens that the context alone has is the continuation. An empty context is
// the tokenizer's first token of a text, or its end-of-document token; one of white space alone, which that program refuses, is
// taken as empty.
ChoiceTokens encode_choice(const Tokenizer& tokenizer, std::string_view context, std::string_view continuation,
                           const TextRule& rule = {});

}  // namespace trident
