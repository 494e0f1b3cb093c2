// TensorBoard event files: scalars by step and texts, written natively.
//
// A file is a sequence of records, each u64 length, u32 masked CRC32C of those eight bytes, data, u32 masked CRC32C of the data,
// all little-endian; the data is one Event message of TensorFlow's protocol buffers, of which the few fields in use are encoded by
// hand. Scalars are written in the form `simple_value` (f32), which every reader of such files understands.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/file_io.h"

namespace trident {

struct Scalar {
  std::string tag;  // "train/loss"; TensorBoard groups by what stands before the slash
  double value = 0;
};

// ---- encoding, pure

std::uint32_t crc32c(std::string_view bytes);  // Castagnoli, reflected
std::string framed(std::string_view event);    // one record of the file

// Event messages. `wall_seconds`: since 1970.
std::string version_event(double wall_seconds);                          // the first of every file
std::string start_event(double wall_seconds,
                        std::int64_t first_step);  // readers forget what earlier files of the folder say from first_step on
std::string scalars_event(double wall_seconds, std::int64_t step, std::span<const Scalar> scalars);
std::string text_event(double wall_seconds, std::int64_t step, std::string_view tag, std::string_view markdown);

// ---- writing

// One new file in `folder` per object, named events.out.tfevents.<seconds>.<host>.<process>.<n>: TensorBoard reads all of a folder
// as one run. The first event makes the file, so who has none to write leaves none. An AppendFile: a TensorBoard that watches the
// folder sees every event when the call returns. Used by one thread. A StorageError names the file, and the next event tries again.
class TensorBoardWriter {
 public:
  // `first_step`: the first step that this file speaks of; 0 replaces everything that earlier files of the folder say. `config`:
  // Markdown that stands under "config"; "": none.
  TensorBoardWriter(std::string folder, std::int64_t first_step, std::string_view config = "");

  void scalars(std::int64_t step, std::span<const Scalar> scalars);
  void text(std::int64_t step, std::string_view tag, std::string_view markdown);
  const std::string& path() const { return file_.value().path(); }  // of the first event

 private:
  void write(const std::string& event);

  std::string folder_;
  std::string head_;  // the records that stand before the first event, until they are written
  std::optional<AppendFile> file_;
};

}  // namespace trident
