// The assembler copies the files into read-only data, so the one binary works anywhere; the build passes their folder.
#include "data/tokenizer/built_in_files.h"

asm(".pushsection .rodata\n"
    "1: .incbin \"" TRIDENT_DATA_FOLDER "/gpt2/vocab.json\"\n"
    "2: .incbin \"" TRIDENT_DATA_FOLDER "/gpt2/merges.txt\"\n"
    "3: .incbin \"" TRIDENT_DATA_FOLDER "/cl100k/cl100k_base.tiktoken\"\n"
    "4: .incbin \"" TRIDENT_DATA_FOLDER "/excerpt/valid.txt\"\n"
    "5:\n"
    ".popsection\n"
    ".pushsection .data.rel.ro, \"aw\"\n"
    ".balign 8\n"
    "trident_built_in_files: .quad 1b, 2b, 3b, 4b, 5b\n"
    ".popsection\n");

extern "C" const char* const trident_built_in_files[5];

namespace trident {
namespace {

std::string_view built_in_file(int i) { return {trident_built_in_files[i], trident_built_in_files[i + 1]}; }

}  // namespace

std::string_view gpt2_vocab_json() { return built_in_file(0); }
std::string_view gpt2_merges_txt() { return built_in_file(1); }
std::string_view cl100k_ranks() { return built_in_file(2); }
std::string_view sample_text() { return built_in_file(3); }

}  // namespace trident
