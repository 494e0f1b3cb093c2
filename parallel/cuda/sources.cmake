# Sources of the CUDA backend above the device, for the product (parallel/cuda) and for the tests' simulated CUDA (tests/cuda).
set(TRIDENT_CUDA_COMMUNICATOR_SOURCES
  call_record.cpp cuda_handles.cpp device_communicator.cpp device_communicators.cpp
  device_thread_communicator.cpp host_staged_communicator.cpp
  lane_operation.cpp nccl_arguments.cpp nccl_communicator.cpp nccl_handle.cpp nccl_options.cpp nccl_watch.cpp)
set(TRIDENT_CUDA_BACKEND_SOURCES cuda_backend.cpp linked_backend.cpp)
list(TRANSFORM TRIDENT_CUDA_COMMUNICATOR_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
list(TRANSFORM TRIDENT_CUDA_BACKEND_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
