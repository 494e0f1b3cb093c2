# The CUDA device's sources, for the product (device/cuda) and for the tests' simulated CUDA (tests/cuda).
set(TRIDENT_CUDA_DEVICE_SOURCES
  cudnn_attention.cpp cudnn_attention_graphs.cpp cudnn_attention_rules.cpp cudnn_graph.cpp cudnn_handle.cpp
  cublaslt_autotune.cpp cublaslt_choices.cpp cublaslt_handle.cpp cublaslt_layout.cpp cublaslt_matmul.cpp cublaslt_plan.cpp
  blamed_error.cpp cuda_background_reads.cpp cuda_gpus.cpp cuda_device.cpp cuda_error.cpp cuda_memory.cpp cuda_ops.cpp cuda_ops_rows.cpp cuda_stream.cpp kernels/grid_size.cpp kernels/kernel_list.cpp kernels/launch.cpp
  call_trace.cpp cuda_graphs.cpp nvtx_ranges.cpp)
set(TRIDENT_CUDA_KERNELS
  activations.cu attention_f32.cu cached_attention.cu column_sums.cu dropout.cu elementwise.cu embedding.cu exact_sum.cu heads.cu loss.cu norms.cu norms_backward.cu optimizer.cu
  rank_order_sum.cu sum_squares.cu)
list(TRANSFORM TRIDENT_CUDA_DEVICE_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM TRIDENT_CUDA_KERNELS PREPEND ${CMAKE_CURRENT_LIST_DIR}/kernels/)
trident_compiled_alone(${CMAKE_CURRENT_LIST_DIR}/cublaslt_autotune.cpp ${CMAKE_CURRENT_LIST_DIR}/cublaslt_matmul.cpp)
