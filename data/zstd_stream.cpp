#include "data/zstd_stream.h"

#include <zstd.h>
#include <zstd_errors.h>

#include <cstdint>
#include <new>
#include <utility>

#include "core/check.h"
#include "data/block_reader.h"

namespace trident {

namespace {

class ZstdStream final : public ByteStream {
 public:
  explicit ZstdStream(RandomAccessFile file) : file_(std::move(file)), context_(::ZSTD_createDCtx()) {
    if (context_ == nullptr) throw std::bad_alloc();
    // The default stops at 2^27 bytes; `zstd --long=31` is read as well. The window is allocated when a frame asks for it.
    max_window_log_ = ::ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound;
    ::ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, max_window_log_);
  }

  std::size_t read(std::span<char> out) override {
    ZSTD_outBuffer produced{out.data(), out.size(), 0};
    while (produced.pos == 0) {
      if (at_ == file_.size() && !in_frame_) return 0;
      const std::span<const std::byte> rest = blocks_.block_at(at_);
      ZSTD_inBuffer in{rest.data(), rest.size(), 0};
      const std::size_t status = ::ZSTD_decompressStream(context_.get(), &produced, &in);
      if (::ZSTD_isError(status)) refuse(status);
      const bool stuck = in.pos == 0 && produced.pos == 0;
      at_ += static_cast<std::int64_t>(in.pos);
      in_frame_ = status != 0;
      if (in_frame_ && stuck)
        refuse_with(fmt::format("ends inside compressed data, after {} bytes", at_), "download or copy it again");
    }
    return produced.pos;
  }
  std::int64_t bytes_consumed() const override { return at_; }

 private:
  [[noreturn]] void refuse(std::size_t status) const {
    switch (::ZSTD_getErrorCode(status)) {
      case ZSTD_error_memory_allocation: throw std::bad_alloc();
      case ZSTD_error_frameParameter_windowTooLarge:
        refuse_with(fmt::format("needs a window of more than 2^{} bytes, libzstd's limit", max_window_log_),
                    fmt::format("compress it again with zstd --long={} or less", max_window_log_));
      case ZSTD_error_dictionary_wrong: refuse_with("needs the dictionary it was compressed with", "compress it again without one");
      default:
        refuse_with(fmt::format("damaged near byte {}: {}", at_, ::ZSTD_getErrorName(status)), "download or copy it again");
    }
  }
  [[noreturn]] void refuse_with(const std::string& what, const std::string& remedy) const {
    throw DataError(fmt::format("{}: {}; {}", file_.path(), what, remedy));
  }

  RandomAccessFile file_;
  BlockReader blocks_{file_, kStoredBlock};
  std::unique_ptr<ZSTD_DCtx, decltype([](ZSTD_DCtx* context) { ::ZSTD_freeDCtx(context); })> context_;
  int max_window_log_ = 0;
  std::int64_t at_ = 0;
  bool in_frame_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> make_zstd_stream(RandomAccessFile file) { return std::make_unique<ZstdStream>(std::move(file)); }

}  // namespace trident
