#include "model/config/hf_rope.h"

#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"

namespace trident {
namespace {

// Without scaling, numbers that only a scaling would read do not make two models different.
RopeConfig unscaled(const RopeConfig& rope) {
  RopeConfig plain;
  plain.theta = rope.theta;
  plain.partial_rotary_factor = rope.partial_rotary_factor;
  return plain;
}

RopeScaling read_scaling(HfReader& reader, ModelFamily family) {
  const std::string_view key = reader.spelling("rope_type", "type");
  const std::string type = reader.text(key, "default");
  // The first files of Phi-3 called it "su" and "yarn".
  const bool renamed = family == ModelFamily::kPhi3 && (type == "su" || type == "yarn");
  if (renamed) return RopeScaling::kLongRope;
  if (const auto scaling = parse_name<RopeScaling>(type)) return *scaling;
  reader.refuse(key, "this scaling is not supported; supported are default, linear, dynamic, llama3, yarn and longrope");
}

std::vector<double> read_factors(HfReader& reader, std::string_view key) {
  const JsonValue* list = reader.find(key);
  if (list == nullptr) return {};
  if (!list->is_array()) reader.refuse(key, "must be a list of numbers");
  std::vector<double> factors;
  for (const JsonValue& item : list->items()) {
    if (!item.is_number()) reader.refuse(key, "must be a list of numbers");
    factors.push_back(item.as_number());
  }
  return factors;
}

struct RopeSource {
  ModelFamily family;
  std::int64_t max_positions;
  RopeConfig base;  // from the keys beside the object
};

RopeConfig read_object(HfReader reader, const RopeSource& source) {
  RopeConfig rope = source.base;
  rope.scaling = read_scaling(reader, source.family);
  rope.theta = reader.number("rope_theta", rope.theta);
  rope.partial_rotary_factor = reader.number("partial_rotary_factor", rope.partial_rotary_factor);
  const std::optional<std::int64_t> inner = reader.optional_integer("original_max_position_embeddings");
  const std::optional<double> factor = reader.optional_number("factor");
  rope.low_freq_factor = reader.number("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = reader.number("high_freq_factor", rope.high_freq_factor);
  rope.beta_fast = reader.number("beta_fast", rope.beta_fast);
  rope.beta_slow = reader.number("beta_slow", rope.beta_slow);
  rope.attention_factor = reader.optional_number("attention_factor");
  rope.mscale = reader.optional_number("mscale");
  rope.mscale_all_dim = reader.optional_number("mscale_all_dim");
  rope.truncate = reader.boolean("truncate", true);
  rope.short_factors = read_factors(reader, "short_factor");
  rope.long_factors = read_factors(reader, "long_factor");
  reader.ignore("finetuned");
  reader.refuse_unknown_keys();
  if (rope.scaling == RopeScaling::kNone) return unscaled(rope);

  // A key beside the object wins over the one inside (Phi-3's spelling); without either the frequencies were trained for the
  // configured context, which Phi-3 takes to be 4096.
  const std::int64_t trained = source.family == ModelFamily::kPhi3 ? 4096 : source.max_positions;
  if (rope.original_max_positions == 0) rope.original_max_positions = inner.value_or(trained);
  if (rope.scaling == RopeScaling::kDynamic) rope.original_max_positions = source.max_positions;  // whatever else the file says
  const bool derives_factor = rope.scaling == RopeScaling::kYarn || rope.scaling == RopeScaling::kLongRope;
  if (!factor && !derives_factor)
    reader.refuse("factor", fmt::format("scaling \"{}\" needs a factor", to_string(rope.scaling)));
  if (!factor && rope.original_max_positions < 1) reader.refuse("original_max_position_embeddings", "must be at least 1");
  rope.factor = factor ? *factor : static_cast<double>(source.max_positions) / static_cast<double>(rope.original_max_positions);
  return rope;
}

// One object, or one for each kind of layer, which must agree.
RopeConfig read_objects(const HfReader& reader, const JsonValue* object, const std::string& where, const RopeSource& source) {
  if (object == nullptr) return unscaled(source.base);
  std::optional<RopeConfig> found;
  for (const std::string_view kind : {"full_attention", "sliding_attention"}) {
    const JsonValue* of_kind = object->find(kind);
    if (of_kind == nullptr || of_kind->is_null()) continue;
    const std::string path = fmt::format("{}.{}", where, kind);
    const RopeConfig rope = read_object(reader.inner(*of_kind, path), source);
    if (found && !(*found == rope))
      throw ConfigError(fmt::format("{} = {}: differs from that of full_attention; layers of two kinds are not supported", path,
                                    to_json_text(*of_kind)));
    found = rope;
  }
  return found ? *found : read_object(reader.inner(*object, where), source);
}

}  // namespace

RopeConfig read_hf_rope(HfReader& reader, ModelFamily family, std::int64_t max_positions) {
  RopeSource source{family, max_positions, {}};
  RopeConfig& base = source.base;
  base.theta = reader.number("rope_theta", base.theta);
  base.partial_rotary_factor = reader.number("partial_rotary_factor", base.partial_rotary_factor);
  base.original_max_positions = reader.integer("original_max_position_embeddings", 0);
  reader.refuse_true("rope_interleaved", "rotation of neighbouring elements is");
  reader.refuse_true("use_mrope", "multi-dimensional rotary embedding is");
  const JsonValue* old_object = reader.find("rope_scaling");
  const JsonValue* new_object = reader.find("rope_parameters");
  const RopeConfig from_old = read_objects(reader, old_object, reader.path("rope_scaling"), source);
  const RopeConfig from_new = read_objects(reader, new_object, reader.path("rope_parameters"), source);
  if (old_object != nullptr && new_object != nullptr && !(from_old == from_new))
    reader.refuse("rope_scaling", "contradicts rope_parameters, the newer spelling of the same thing; keep one");
  return new_object != nullptr ? from_new : from_old;
}

}  // namespace trident
