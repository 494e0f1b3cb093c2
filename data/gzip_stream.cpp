#include "data/gzip_stream.h"

#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "core/check.h"
#include "core/counted.h"
#include "data/block_reader.h"

namespace trident {

namespace {

constexpr std::size_t kMostOfZlib = std::size_t{1} << 30;  // zlib counts what it is given in 32 bits
constexpr int kGzipOnly = 15 + 16;                      // the largest window; no zlib wrapper

class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(RandomAccessFile file) : file_(std::move(file)) {
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
  std::int64_t bytes_consumed() const override { return at_; }

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

  [[noreturn]] void refuse(const std::string& what, std::string_view remedy) const {
    throw DataError(fmt::format("{}: {}; {}", file_.path(), what, remedy));
  }

  RandomAccessFile file_;
  BlockReader blocks_{file_, kStoredBlock};
  z_stream inflater_{};
  std::int64_t at_ = 0;
  bool in_member_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> make_gzip_stream(RandomAccessFile file) { return std::make_unique<GzipStream>(std::move(file)); }

}  // namespace trident
