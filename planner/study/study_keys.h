// The keys of --vary: what users call settings, and how a model is varied that a preset or a file names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/config/train_config.h"

namespace trident {

inline constexpr std::string_view kGpusKey = "gpus", kReplicasKey = "parallel.data";

// "gpus", the path of a key of the configuration ("parallel.zero", "model.hidden_size"), or a section that takes one text
// ("parallel"), for what the user wrote: one of those, a short name (tp, pp, dp, cp, vpp, sp, seq, recompute, layers, hidden, ffn,
// heads, kv_heads, vocab), a key of a model without its section ("num_hidden_layers"), or what ends only one path ("zero",
// "micro"). Throws ConfigError that begins with `where`: an ambiguous key (the message has its paths), or an unknown one (the
// message has the nearest).
std::string varied_path(std::string_view key, std::string_view where);

// A key's name in tables, which varied_path() takes: its short name, or the last part of its path where only this one ends so, or
// the whole path.
std::string_view short_key(std::string_view path);

// True for keys of the number of ranks: gpus, or the replicas that they follow from. Efficiency is told along these.
bool counts_ranks(std::string_view path);

// A key of the model's architecture, as config.json has them; not model.preset and the like.
bool is_model_key(std::string_view path);

// `path` as the configuration's model spells it: of a model with n_layer, model.num_hidden_layers is model.n_layer. ConfigError
// that begins with `where`: a key that models of this type do not have.
std::string model_path(const TrainConfig& config, const std::string& path, std::string_view where);

// Settings after which keys of the model can be set one by one: a model that is named by model.preset or model.hf_config is spelled
// out by them. None where its keys stand in the configuration.
std::vector<std::string> spell_model_out(const TrainConfig& config);

}  // namespace trident
