# Read by package.sh and package/check: whose libraries stay outside a package, as extended regular expressions of names without ".so".

# Every machine's own, from this version on.
newest_glibc=2.36
glibc='(ld-linux-x86-64|lib(c|m|dl|rt|pthread|resolv|util|anl|mvec))'
# Larger than all the rest, and have to suit the machine's driver. package/start looks for them.
nvidia='lib(cuda|cublas|cublasLt|cudnn[a-z_]*|nccl|nvrtc)'
