#include "data/byte_stream.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
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
    case Compression::kGzip: return make_gzip_stream(std::move(file));
    case Compression::kZstd: return make_zstd_stream(std::move(file));
  }
  throw InternalError("a compression of an unknown kind");
}

}  // namespace trident
