// Reads a gzip file as a stream. Only this module knows the library.
#pragma once

#include <memory>

#include "data/byte_stream.h"

namespace trident {

// gzip members one after the other (gzip, pigz, bgzip), and zeros after the last (tapes).
std::unique_ptr<ByteStream> make_gzip_stream(RandomAccessFile file);

}  // namespace trident
