#include "data/byte_stream.h"

#include <poll.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/counted.h"
#include "data/block_reader.h"

namespace trident {
namespace {

// A file that is read block after block.
class StoredStream : public ByteStream {
 public:
  explicit StoredStream(RandomAccessFile file) : file_(std::move(file)) {}
  std::int64_t bytes_consumed() const final { return at_; }

 protected:
  [[noreturn]] void refuse(const std::string& what, std::string_view remedy) const {
    throw DataError(fmt::format("{}: {}; {}", file_.path(), what, remedy));
  }

  RandomAccessFile file_;
  BlockReader blocks_{file_, kStoredBlock};
  std::int64_t at_ = 0;
};

constexpr std::size_t kMostOfZlib = std::size_t{1} << 30;  // zlib counts what it is given in 32 bits
constexpr int kGzipOnly = 15 + 16;                      // the largest window; no zlib wrapper

// gzip members one after the other (gzip, pigz, bgzip), and zeros after the last (tapes).
class GzipStream final : public StoredStream {
 public:
  explicit GzipStream(RandomAccessFile file) : StoredStream(std::move(file)) {
    if (::inflateInit2(&inflater_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipStream() override { ::inflateEnd(&inflater_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  std::size_t read(std::span<char> out) override {
    while (in_member_ || begin_member()) {
      const std::size_t produced = inflate_some(out.first(std::min(out.size(), kMostOfZlib)));
      if (produced > 0) return produced;
    }
    return 0;
  }

 private:
  bool only_zeros_follow() {
    for (std::int64_t at = at_; at < file_.size();) {
      const std::span<const std::byte> block = blocks_.block_at(at);
      if (std::any_of(block.begin(), block.end(), [](std::byte b) { return b != std::byte{0}; })) return false;
      at += std::ssize(block);
    }
    return true;
  }

  // False at the end of the file.
  bool begin_member() {
    if (only_zeros_follow()) {
      at_ = file_.size();
      return false;
    }
    const std::int64_t magic = std::min<std::int64_t>(2, file_.size() - at_);
    if (std::string_view(reinterpret_cast<const char*>(blocks_.bytes_at(at_, magic)), static_cast<std::size_t>(magic)) !=
        "\x1F\x8B") {
      refuse(fmt::format("what follows byte {} ({}) is not a gzip member", at_, counted(file_.size() - at_, "byte")),
             "cut it off, or download or copy the file again");
    }
    ::inflateReset(&inflater_);
    return in_member_ = true;
  }

  std::size_t inflate_some(std::span<char> out) {
    const std::span<const std::byte> input = blocks_.block_at(at_);
    inflater_.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(input.data()));  // it only reads
    inflater_.avail_in = static_cast<uInt>(input.size());
    inflater_.next_out = reinterpret_cast<Bytef*>(out.data());
    inflater_.avail_out = static_cast<uInt>(out.size());
    const int status = ::inflate(&inflater_, Z_NO_FLUSH);
    at_ += std::ssize(input) - static_cast<std::int64_t>(inflater_.avail_in);
    const std::size_t produced = out.size() - inflater_.avail_out;
    if (status == Z_MEM_ERROR) throw std::bad_alloc();
    if (status == Z_STREAM_END) in_member_ = false;
    else if (status == Z_BUF_ERROR)
      refuse(fmt::format("ends inside compressed data, after {} bytes", at_), "download or copy it again");
    else if (status != Z_OK)
      refuse(fmt::format("damaged near byte {}: {}", at_, inflater_.msg != nullptr ? inflater_.msg : "no gzip data"),
             "download or copy it again");
    return produced;
  }

  z_stream inflater_{};
  bool in_member_ = false;
};

// zstd frames and skippable frames one after the other (zstd, pzstd), with windows up to libzstd's largest; dictionaries are
// refused.
class ZstdStream final : public StoredStream {
 public:
  explicit ZstdStream(RandomAccessFile file) : StoredStream(std::move(file)), context_(::ZSTD_createDCtx()) {
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
      if (::ZSTD_isError(status)) refuse_status(status);
      const bool stuck = in.pos == 0 && produced.pos == 0;
      at_ += static_cast<std::int64_t>(in.pos);
      in_frame_ = status != 0;
      if (in_frame_ && stuck)
        refuse(fmt::format("ends inside compressed data, after {} bytes", at_), "download or copy it again");
    }
    return produced.pos;
  }

 private:
  [[noreturn]] void refuse_status(std::size_t status) const {
    switch (::ZSTD_getErrorCode(status)) {
      case ZSTD_error_memory_allocation: throw std::bad_alloc();
      case ZSTD_error_frameParameter_windowTooLarge:
        refuse(fmt::format("needs a window of more than 2^{} bytes, libzstd's limit", max_window_log_),
               fmt::format("compress it again with zstd --long={} or less", max_window_log_));
      case ZSTD_error_dictionary_wrong: refuse("needs the dictionary it was compressed with", "compress it again without one");
      default:
        refuse(fmt::format("damaged near byte {}: {}", at_, ::ZSTD_getErrorName(status)), "download or copy it again");
    }
  }

  std::unique_ptr<ZSTD_DCtx, decltype([](ZSTD_DCtx* context) { ::ZSTD_freeDCtx(context); })> context_;
  int max_window_log_ = 0;
  bool in_frame_ = false;
};

class PlainStream final : public StoredStream {
 public:
  using StoredStream::StoredStream;

  std::size_t read(std::span<char> out) override {
    const std::span<const std::byte> rest = blocks_.block_at(at_);
    const std::size_t size = std::min(rest.size(), out.size());
    std::copy_n(reinterpret_cast<const char*>(rest.data()), size, out.data());
    at_ += static_cast<std::int64_t>(size);
    return size;
  }
};

class StandardInput final : public ByteStream {
 public:
  StandardInput(std::string begun, std::function<void()> waiting) : begun_(std::move(begun)), waiting_(std::move(waiting)) {}

  std::size_t read(std::span<char> out) override {
    if (at_ < std::ssize(begun_)) {
      const std::size_t size = begun_.copy(out.data(), out.size(), static_cast<std::size_t>(at_));
      at_ += static_cast<std::int64_t>(size);
      return size;
    }
    for (;;) {
      pollfd ready{STDIN_FILENO, POLLIN, 0};
      // A signal ends the wait, and whoever waits asks after it; read() alone would go on.
      if (::poll(&ready, 1, kPollMilliseconds) <= 0) {
        if (waiting_) waiting_();
        continue;
      }
      const ssize_t got = ::read(STDIN_FILENO, out.data(), out.size());
      if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (got < 0) throw StorageError(fmt::format("standard input: {}; check where it comes from", std::strerror(errno)), errno);
      at_ += got;
      return static_cast<std::size_t>(got);
    }
  }
  std::int64_t bytes_consumed() const override { return at_; }

 private:
  static constexpr int kPollMilliseconds = 200;
  std::string begun_;
  std::function<void()> waiting_;
  std::int64_t at_ = 0;
};

}  // namespace

std::unique_ptr<ByteStream> open_byte_stream(const InputFile& input, std::function<void()> waiting) {
  if (input.begun) return std::make_unique<StandardInput>(*input.begun, std::move(waiting));
  RandomAccessFile file(input.path);
  switch (input.compression) {
    case Compression::kNone: return std::make_unique<PlainStream>(std::move(file));
    case Compression::kGzip: return std::make_unique<GzipStream>(std::move(file));
    case Compression::kZstd: return std::make_unique<ZstdStream>(std::move(file));
  }
  throw InternalError("a compression of an unknown kind");
}

}  // namespace trident
