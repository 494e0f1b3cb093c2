#include "device/cpu/attention_rows_body.h"

namespace trident {

AttentionRows attention_rows_avx2();
AttentionRows attention_rows_avx2() { return make_attention_rows(); }

}  // namespace trident
