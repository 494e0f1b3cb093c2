// The assembler copies the two files into read-only data, so the one binary works anywhere; the build passes their folder.
#include "data/tokenizer/gpt2_vocabulary.h"

asm(".section .rodata\n"
    ".balign 16\n"
    "trident_gpt2_vocab:\n"
    ".incbin \"" TRIDENT_GPT2_FOLDER "/vocab.json\"\n"
    "trident_gpt2_vocab_end:\n"
    "trident_gpt2_merges:\n"
    ".incbin \"" TRIDENT_GPT2_FOLDER "/merges.txt\"\n"
    "trident_gpt2_merges_end:\n"
    ".previous\n");

extern "C" {
extern const char trident_gpt2_vocab[];
extern const char trident_gpt2_vocab_end[];
extern const char trident_gpt2_merges[];
extern const char trident_gpt2_merges_end[];
}

namespace trident {

std::string_view gpt2_vocab_json() { return {trident_gpt2_vocab, trident_gpt2_vocab_end}; }
std::string_view gpt2_merges_txt() { return {trident_gpt2_merges, trident_gpt2_merges_end}; }

}  // namespace trident
