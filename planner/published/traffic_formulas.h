// Communication volumes as the literature counts them: bytes or elements that one rank sends, rings of n ranks sending (n-1)/n of a
// buffer. For cases that give these letters and no model; what Trident sends is found by dry runs (docs/design/communication.md).
#pragma once

namespace trident {

// Elements of one layer and micro-batch: four all-reduces of s b h (two forward, two backward), 8 s b h (t-1)/t. Narayanan et al.
// 2021, section 3.2. Full recomputation repeats the two forward ones: 1.5 times as much.
double tensor_parallel_elements(double sequence, double micro_batch, double hidden, double tensor);

// Bytes that a rank which is neither first nor last sends forward in a step: s b h of every micro-batch and virtual stage. 1/t of
// it with sequence parallelism.
double pipeline_forward_bytes(double sequence, double micro_batch, double hidden, double micro_batches, double virtual_stages,
                              double bytes_per_element);

// 2 (d-1)/d and (d-1)/d of a buffer of `bytes`.
double all_reduce_bytes(double bytes, double ranks);
double gather_bytes(double bytes, double ranks);  // all-gather or reduce-scatter; `bytes` gathered

// Ring attention, one layer: keys and values travel c-1 hops forward; they and their gradients backward.
double ring_attention_forward_bytes(double sequence, double micro_batch, double kv_width, double context, double bytes_per_element);

}  // namespace trident
