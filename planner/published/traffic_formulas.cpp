#include "planner/published/traffic_formulas.h"

namespace trident {

double tensor_parallel_elements(double s, double b, double h, double t) { return 8 * s * b * h * (t - 1) / t; }

double pipeline_forward_bytes(double s, double b, double h, double m, double v, double bytes_per_element) {
  return s * b * h * bytes_per_element * m * v;
}

double all_reduce_bytes(double bytes, double ranks) { return 2 * bytes * (ranks - 1) / ranks; }

double gather_bytes(double bytes, double ranks) { return bytes * (ranks - 1) / ranks; }

double ring_attention_forward_bytes(double s, double b, double kv_width, double c, double bytes_per_element) {
  return 2 * (c - 1) * (s / c) * b * kv_width * bytes_per_element;
}

}  // namespace trident
