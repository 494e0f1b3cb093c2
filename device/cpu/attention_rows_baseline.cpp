#include "device/cpu/attention_rows_body.h"

namespace trident {

AttentionRows attention_rows_baseline();
AttentionRows attention_rows_baseline() { return make_attention_rows(); }

}  // namespace trident
