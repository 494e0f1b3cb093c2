# cuDNN 9: cuDNN_FOUND, cuDNN_VERSION, cuDNN_INCLUDE_DIR and the target cuDNN::cudnn;
# CUDNN_PATH says where (a wheel's: nvidia/cudnn).
include(TridentFindNvidia)
trident_find_nvidia(cuDNN CUDNN_PATH HEADER cudnn_version.h VERSION_HEADER cudnn_version.h
  DEFINES CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL
  LIBRARIES cudnn libcudnn.so.9)
