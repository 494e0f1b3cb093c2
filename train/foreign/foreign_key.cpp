#include "train/foreign/foreign_key.h"

#include "train/foreign/tables.h"

namespace trident {

std::span<const ForeignSection> foreign_sections() {
  static const std::vector<ForeignSection> sections = [] {
    std::vector<ForeignSection> all;
    for (const auto part : {accelerate_sections(), deepspeed_sections(), hugging_face_sections(), swift_sections(),
                            axolotl_sections(), llama_factory_sections(), megatron_sections(), torchtitan_sections(),
                            olmo_sections(), launcher_sections(), other_sections()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return sections;
}

}  // namespace trident
