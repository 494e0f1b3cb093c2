# cuBLASLt, whose major version is the CUDA toolkit's: cuBLASLt_FOUND, cuBLASLt_VERSION, cuBLASLt_INCLUDE_DIR and the target
# cuBLASLt::cublasLt; CUBLAS_PATH says where, if not in the toolkit (a wheel's: nvidia/cublas, or nvidia/cu13).
include(TridentFindNvidia)
trident_find_nvidia(cuBLASLt CUBLAS_PATH HEADER cublasLt.h VERSION_HEADER cublas_api.h
  DEFINES CUBLAS_VER_MAJOR CUBLAS_VER_MINOR CUBLAS_VER_PATCH
  LIBRARIES cublasLt libcublasLt.so.${CUDAToolkit_VERSION_MAJOR})
