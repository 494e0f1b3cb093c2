// The one seam through which Trident touches files: reading, writing so that a reader sees all of a file or none, and
// appending.
//
// A path that cannot be read (missing, a folder, NotPermitted) throws DataError; a file system that refuses to read or write
// (disk full, input/output error) throws StorageError. Every message is "<path>: <what>; <remedy>".
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "core/file_lock.h"
#include "core/function_ref.h"

namespace trident {

// This user may not read the file, which may be whole: no reader takes it for damaged.
class NotPermitted : public DataError {
 public:
  using DataError::DataError;
};

bool file_exists(const std::string& path);  // a regular file, or a link to one
bool folder_exists(const std::string& path);

// Throws NotPermitted where this user may not read the file or look into the folder, or may not search a folder above it: such a
// path looks as if nothing were there.
void check_may_read(const std::string& path);

// The names of a folder's entries, sorted; none where there is no such folder. NotPermitted; StorageError.
std::vector<std::string> names_in(const std::string& folder);

// The whole content.
std::string read_file(const std::string& path);

// How bytes leave a file; tests put one that counts or fails in its place.
using ReadAt = std::function<ssize_t(int descriptor, void* out, std::size_t bytes, off_t offset)>;

// Any bytes of a regular file, by pread: where a disk fails or the file becomes shorter, a reader gets a StorageError that names
// file, position and reason, and no signal. Immutable: threads share one.
class RandomAccessFile {
 public:
  explicit RandomAccessFile(const std::string& path, ReadAt read_at = ::pread);
  // The file `path` ("a/b") below `folder`, reached through no symbolic link: what lies in a folder that others may have filled
  // cannot lead out of it. `folder` itself may be reached through links.
  static RandomAccessFile below(const std::string& folder, const std::string& path, ReadAt read_at = ::pread);
  ~RandomAccessFile();
  RandomAccessFile(RandomAccessFile&& other) noexcept;
  RandomAccessFile& operator=(RandomAccessFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::int64_t size() const { return size_; }  // in bytes, when it was opened

  // Fills `out` with the bytes from `offset` on, which lay in the file when it was opened. One pread, more only where the system
  // hands over less than was asked for. Allocates nothing.
  void read(std::int64_t offset, std::span<std::byte> out) const;

  std::string text(std::int64_t offset, std::int64_t bytes) const;  // likewise

  // Asks the kernel to read these bytes from the disk and does not wait for them. Without effect where the kernel refuses.
  void will_need(std::int64_t offset, std::int64_t bytes) const;

 private:
  RandomAccessFile(std::string path, int descriptor, ReadAt read_at);

  std::string path_;
  ReadAt read_at_;
  std::int64_t size_ = 0;
  int descriptor_ = -1;
};

// A file that appears under its name only when it is complete. Bytes go to "<path>.tmp.<16 random hexadecimal digits>" beside it, a
// file of its own that no other process has; commit() flushes them to the disk, renames and flushes the folder. Without it the
// destructor removes the temporary file, and an earlier file of that name stays. A device of that name is refused. What a killed
// process leaves is found by remove_temporaries().
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void append(std::span<const std::byte> bytes);  // buffered
  void append(std::string_view text) { append(std::as_bytes(std::span(text))); }
  std::int64_t size() const { return size_; }     // bytes appended so far
  const std::string& path() const { return path_; }
  void commit();

  // The parts of commit(), for files that appear together: all bytes on the disk, under temporary_path(); then the rename alone.
  void finish();
  void put_in_place();
  const std::string& temporary_path() const { return temporary_; }  // "" once the file is in place

 private:
  void flush();

  std::string path_;
  std::string temporary_;
  std::string buffer_;
  std::int64_t size_ = 0;
  int descriptor_ = -1;
};

// Whether a living process has an AtomicFile of that path, and removing those that killed ones left: temporary files of this user
// whose lock is free. On file systems without locks both see nothing.
bool is_being_written(const std::string& path);
void remove_temporaries(const std::string& path);
// The name that an AtomicFile's temporary file will get; nothing if `name` is none of those.
std::optional<std::string_view> name_of_temporary(std::string_view name);
// Removes the files of this user in `folder` that `is_leftover` chooses by their names and whose lock is free.
void remove_unlocked(const std::string& folder, FunctionRef<bool(std::string_view name)> is_leftover);

// Changes to folders. StorageError as above; what is not there needs no removing.
bool is_there(const std::string& path);  // whatever it is, a link that leads nowhere included
void rename_file(const std::string& from, const std::string& to);
void remove_file(const std::string& path);
// Makes the folder and those above it, or none of them. Returns what it made, the deepest first.
std::vector<std::string> create_folder(const std::string& path);
// The same, and they outlive a machine that loses power: a folder that its parent forgets takes along all that was synced in it.
std::vector<std::string> create_lasting_folder(const std::string& path);
void create_folder_of(const std::string& path);  // the one that a file of this path lies in
void sync_folder_of(const std::string& path);    // what was renamed and removed there outlives a machine that loses power

// Returns when the disk has all that was written to the file.
void sync_file(const std::string& path);

// A file that grows by whole records. Each is handed to the operating system before append() returns: readers see it, and it
// outlives this process, though not a machine that loses power. What the disk has no room for is cut off again, at the latest
// before the next record: append() may be tried again after a StorageError. While the object
// lives, no other AppendFile, of this process or another, has the file; file systems without locks are taken on trust. Used by one
// thread. Only regular files are opened, and none through a symbolic link.
class AppendFile {
 public:
  enum class Start : std::uint8_t { kNewFile, kAppend };  // kNewFile empties a file that is there

  AppendFile(const std::string& path, Start start);
  // Nothing if there is something of that name.
  static std::optional<AppendFile> create(const std::string& path);
  ~AppendFile();
  AppendFile(AppendFile&& other) noexcept;
  AppendFile& operator=(AppendFile&& other) noexcept;

  void append(std::string_view record);
  void cut(std::int64_t size);  // leaves the first bytes; needs no room on the disk

  // Whether an AppendFile has the file now. And what one has becomes a file that nobody else sees: an equal one takes its place.
  static bool is_held(const std::string& path);
  static void take_over(const std::string& path);

  const std::string& path() const { return path_; }

 private:
  AppendFile(std::string path, int descriptor);
  bool take_lock();
  bool cut_torn();

  std::string path_;
  int descriptor_ = -1;
  std::optional<LockFile> lock_file_;
  off_t torn_ = 0;  // bytes of a record that failed, at the end of the file
};

// Replaces `path` by a file with this content, whole or not at all.
void write_file(const std::string& path, std::string_view content);

}  // namespace trident
