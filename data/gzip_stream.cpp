#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "core/check.h"
#include "data/byte_stream.h"

namespace trident {

namespace {

constexpr std::size_t kPortion = std::size_t{1} << 30;  // zlib counts what it is given in 32 bits
constexpr int kGzipOnly = 15 + 16;                      // the largest window; no zlib wrapper

class GzipStream final : public ByteStream {
 public:
  explicit GzipStream(MappedFile file) : file_(std::move(file)) {
    if (::inflateInit2(&inflater_, kGzipOnly) != Z_OK) throw std::bad_alloc();
  }
  ~GzipStream() override { ::inflateEnd(&inflater_); }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  std::size_t read(std::span<char> out) override {
    while (in_member_ || begin_member()) {
      const std::size_t produced = inflate_some(out.first(std::min(out.size(), kPortion)));
      if (produced > 0) return produced;
    }
    return 0;
  }
  std::int64_t bytes_consumed() const override { return static_cast<std::int64_t>(at_); }

 private:
  // False at the end of the file.
  bool begin_member() {
    const std::string_view rest = file_.text().substr(at_);
    if (rest.find_first_not_of('\0') == std::string_view::npos) return false;
    if (!rest.starts_with("\x1F\x8B")) {
      refuse(fmt::format("{} bytes from byte {} on are no gzip member", rest.size(), at_),
             "cut them off, or download or copy it again");
    }
    ::inflateReset(&inflater_);
    return in_member_ = true;
  }

  std::size_t inflate_some(std::span<char> out) {
    const std::string_view rest = file_.text().substr(at_, kPortion);
    inflater_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(rest.data()));  // it only reads
    inflater_.avail_in = static_cast<uInt>(rest.size());
    inflater_.next_out = reinterpret_cast<Bytef*>(out.data());
    inflater_.avail_out = static_cast<uInt>(out.size());
    const int status = ::inflate(&inflater_, Z_NO_FLUSH);
    at_ += rest.size() - inflater_.avail_in;
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

  MappedFile file_;
  z_stream inflater_{};
  std::size_t at_ = 0;
  bool in_member_ = false;
};

}  // namespace

std::unique_ptr<ByteStream> make_gzip_stream(MappedFile file) { return std::make_unique<GzipStream>(std::move(file)); }

}  // namespace trident
