// Reads a zstd file as a stream. Only this module knows the library.
#pragma once

#include <memory>

#include "data/byte_stream.h"

namespace trident {

// zstd frames and skippable frames one after the other (zstd, pzstd), with windows up to libzstd's largest; dictionaries are
// refused.
std::unique_ptr<ByteStream> make_zstd_stream(RandomAccessFile file);

}  // namespace trident
