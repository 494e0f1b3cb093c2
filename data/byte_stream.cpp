#include "data/byte_stream.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/check.h"
#include "data/block_reader.h"
#include "data/gzip_stream.h"
#include "data/zstd_stream.h"

namespace trident {

namespace {

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(RandomAccessFile file) : file_(std::move(file)) {}

  std::size_t read(std::span<char> out) override {
    const std::span<const std::byte> rest = blocks_.block_at(at_);
    const std::size_t size = std::min(rest.size(), out.size());
    std::copy_n(reinterpret_cast<const char*>(rest.data()), size, out.data());
    at_ += static_cast<std::int64_t>(size);
    return size;
  }
  std::int64_t bytes_consumed() const override { return at_; }

 private:
  RandomAccessFile file_;
  BlockReader blocks_{file_, kStoredBlock};
  std::int64_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> open_byte_stream(const InputFile& input) {
  RandomAccessFile file(input.path);
  switch (input.compression) {
    case Compression::kNone: return std::make_unique<PlainStream>(std::move(file));
    case Compression::kGzip: return make_gzip_stream(std::move(file));
    case Compression::kZstd: return make_zstd_stream(std::move(file));
  }
  throw InternalError("a compression of an unknown kind");
}

}  // namespace trident
