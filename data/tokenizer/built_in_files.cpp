// The assembler copies the files into read-only data, so the one binary works anywhere; the build passes their folder.
#include "data/tokenizer/built_in_files.h"

asm(".section .rodata\n"
    ".balign 16\n"
    "trident_gpt2_vocab:\n"
    ".incbin \"" TRIDENT_DATA_FOLDER "/gpt2/vocab.json\"\n"
    "trident_gpt2_vocab_end:\n"
    "trident_gpt2_merges:\n"
    ".incbin \"" TRIDENT_DATA_FOLDER "/gpt2/merges.txt\"\n"
    "trident_gpt2_merges_end:\n"
    "trident_cl100k_ranks:\n"
    ".incbin \"" TRIDENT_DATA_FOLDER "/cl100k/cl100k_base.tiktoken\"\n"
    "trident_cl100k_ranks_end:\n"
    "trident_sample_text:\n"
    ".incbin \"" TRIDENT_DATA_FOLDER "/excerpt/valid.txt\"\n"
    "trident_sample_text_end:\n"
    ".previous\n");

extern "C" {
extern const char trident_gpt2_vocab[];
extern const char trident_gpt2_vocab_end[];
extern const char trident_gpt2_merges[];
extern const char trident_gpt2_merges_end[];
extern const char trident_cl100k_ranks[];
extern const char trident_cl100k_ranks_end[];
extern const char trident_sample_text[];
extern const char trident_sample_text_end[];
}

namespace trident {

std::string_view gpt2_vocab_json() { return {trident_gpt2_vocab, trident_gpt2_vocab_end}; }
std::string_view gpt2_merges_txt() { return {trident_gpt2_merges, trident_gpt2_merges_end}; }
std::string_view cl100k_ranks() { return {trident_cl100k_ranks, trident_cl100k_ranks_end}; }
std::string_view sample_text() { return {trident_sample_text, trident_sample_text_end}; }

}  // namespace trident
