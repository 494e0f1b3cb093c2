// From a checkpoint and prompts to text: what trident generate does, but for its arguments and its output.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/logging.h"
#include "infer/generate/prompt_file.h"
#include "infer/generate/token_loop.h"
#include "parallel/cuda/cuda_backend.h"

namespace trident {

struct GenerateOptions {
  // Exactly one of these three.
  std::optional<std::string> checkpoint;  // a folder of a checkpoint, or of several: the newest
  std::optional<std::string> hf_folder;   // of Hugging Face's form
  std::string adapter = {};               // to it, of PEFT's form; "": none
  std::optional<std::string> config;      // a run's configuration
  bool random_weights = false;            // of `config`, though its run has a checkpoint; otherwise the newest, if there is one
  std::vector<std::string> settings;      // as --set of trident train, of what is not the model: layout, precision, threads
  std::optional<std::string> tokenizer;   // as data.tokenizer; nothing: the run's
  bool no_special = false;                // prompts get nothing around them

  std::vector<Prompt> prompts;
  std::vector<std::string> messages;  // files of messages (data/chat), prompts behind the others
  std::string chat_template;          // of those: a file or a built-in name; "": the tokenizer folder's
  // It returns the next thing that the user says in a conversation, which the file of `messages` may begin; nothing ends it.
  // Called by rank 0 after each answer.
  std::function<std::optional<std::string>()> ask = {};
  std::int64_t samples = 1, max_new_tokens = 64, slots = 8;
  SamplingOptions sampling;
  std::vector<std::string> given;  // flags of `sampling` that were given; the model's generation_config.json says the others
  std::vector<std::string> stops;
  std::vector<std::int32_t> ends;  // none: the folder's eos_token_id, or the tokenizer's end of a document
  bool ignore_end = false;
  // Keep the time of every pass, and measure the machine between them if there is one rank, which takes time of its own.
  bool timings = false;
};

struct GenerateResult {
  std::vector<Continuation> continuations;  // by prompt, then by sample
  bool has_text = false;
  std::string model;  // the folder of the weights; "": they are random
  int ranks = 1;
  GenerateTimes times;  // of rank 0, if asked for
};

inline constexpr std::int64_t kMostSlots = 32;
inline constexpr std::int64_t kChatPositions = 8192;  // of a conversation, or as many as the model has

// Runs the ranks by run_forward(): this process is one of them where mpirun or srun started it as one of several, otherwise they
// are threads of it.
// `read`: what is asked for; called once in each process, and what it throws is said once.
// `show`: of rank 0, called while text is made if it is one continuation. Nothing on processes that leave printing to rank 0.
// `log`: told of weights that are no numbers, and of ranks that are lost.
// ConfigError for options and layouts that cannot be, DataError for what is wrong with the checkpoint or its weights.
std::optional<GenerateResult> run_generate(const std::function<GenerateOptions()>& read, const ShowText& show, LogSink& log,
                                           CudaBackend& cuda);

}  // namespace trident
