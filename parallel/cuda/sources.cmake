# Sources of the CUDA backend above the device, for the product (parallel/cuda) and for the tests' simulated CUDA (tests/cuda).
set(TRIDENT_CUDA_BACKEND_SOURCES cuda_backend.cpp)
list(TRANSFORM TRIDENT_CUDA_BACKEND_SOURCES PREPEND ${CMAKE_CURRENT_LIST_DIR}/)
