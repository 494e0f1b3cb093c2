#include "data/byte_stream.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace trident {

namespace {

class PlainStream final : public ByteStream {
 public:
  explicit PlainStream(MappedFile file) : file_(std::move(file)) {}

  std::size_t read(std::span<char> out) override {
    const std::string_view rest = file_.text().substr(at_);
    const std::size_t size = std::min(rest.size(), out.size());
    if (size > 0) std::memcpy(out.data(), rest.data(), size);
    at_ += size;
    return size;
  }
  std::int64_t bytes_consumed() const override { return static_cast<std::int64_t>(at_); }

 private:
  MappedFile file_;
  std::size_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> open_byte_stream(const InputFile& input) {
  MappedFile file(input.path);
  switch (input.compression) {
    case Compression::kNone: return std::make_unique<PlainStream>(std::move(file));
    case Compression::kGzip: return make_gzip_stream(std::move(file));
    case Compression::kZstd: return make_zstd_stream(std::move(file));
  }
  throw InternalError("a compression of no known kind");
}

}  // namespace trident
