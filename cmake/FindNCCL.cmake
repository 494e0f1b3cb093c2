# NCCL: NCCL_FOUND, NCCL_VERSION, NCCL_INCLUDE_DIR and the target NCCL::nccl; NCCL_PATH says where (a wheel's: nvidia/nccl).
include(TridentFindNvidia)
trident_find_nvidia(NCCL NCCL_PATH HEADER nccl.h VERSION_HEADER nccl.h
  DEFINES NCCL_MAJOR NCCL_MINOR NCCL_PATCH LIBRARIES nccl libnccl.so.2)
