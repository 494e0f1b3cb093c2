// Several indexed datasets one after the other in one: what `trident data merge` does.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/file_io.h"
#include "core/on_progress.h"
#include "data/dataset_output.h"
#include "data/indexed_dataset.h"

namespace trident {

struct MergeStats {
  std::int64_t documents = 0, sequences = 0, tokens = 0;
  std::int64_t bytes = 0;  // of the new .bin
  std::optional<std::int64_t> counted = {};  // tokens that count as targets, where the output has a mask
};

// Writes OUTPUT.bin and OUTPUT.idx, byte for byte what Megatron-LM's merge_datasets.py makes of the inputs in this order, and
// OUTPUT.mask where an input has one: every token of an input without counts. Streams: memory does not grow with the data. Errors
// leave no output: DataError (an input that cannot be read, or two that store their tokens in different types or were made by
// different tokenizers), ConfigError (no input, or the output is an input), and those of DatasetOutput. The record names the
// inputs' sources, and their tokenizer if all of them have one. `progress` counts bytes of .bin and is called about once per 16 MB.
MergeStats merge_datasets(const std::vector<std::string>& inputs, const std::string& output, Overwrite overwrite,
                          const OnProgress& progress = {});

// Inputs of one output, opened, and an origin that names their sources, and their tokenizer if all of them have one.
// ConfigError, DataError: those of merge_datasets() for its inputs.
std::pair<std::vector<IndexedDataset>, DatasetOrigin> open_inputs(const std::vector<std::string>& inputs,
                                                                 const std::string& output);

// The index of datasets of one type that follow each other, without a commit.
void append_merged_index(AtomicFile& idx, std::span<const IndexedDataset> datasets);

}  // namespace trident
