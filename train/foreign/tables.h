// The tables, one function a file; foreign_sections() puts them together.
#pragma once

#include <span>

#include "train/foreign/foreign_key.h"

namespace trident {

std::span<const ForeignSection> accelerate_sections();
std::span<const ForeignSection> deepspeed_sections();
std::span<const ForeignSection> launcher_sections();
std::span<const ForeignSection> hugging_face_sections();
std::span<const ForeignSection> swift_sections();
std::span<const ForeignSection> axolotl_sections();
std::span<const ForeignSection> llama_factory_sections();
std::span<const ForeignSection> megatron_sections();
std::span<const ForeignSection> torchtitan_sections();
std::span<const ForeignSection> olmo_sections();
std::span<const ForeignSection> other_sections();

}  // namespace trident
