// The one seam through which Trident touches files: reading, mapping, writing so that a reader sees all of a file or none, and
// appending.
//
// What cannot be read (missing, a folder, not permitted) throws DataError; what the file system refuses while reading or writing
// (disk full, input/output error) throws StorageError. Every message is "<path>: <what>; <remedy>".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trident {

bool file_exists(const std::string& path);  // a regular file, or a link to one
bool folder_exists(const std::string& path);

// The whole content.
std::string read_file(const std::string& path);

// Parts of a file, one after the other. A file that ends before a part does throws StorageError.
struct FilePart {
  std::int64_t first, bytes;
};
std::int64_t file_size(const std::string& path);
std::string read_parts(const std::string& path, std::span<const FilePart> parts);

// A read-only mapping of a whole regular file. An empty file gives an empty span. The file must not shrink while it is mapped.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  std::int64_t size() const { return static_cast<std::int64_t>(size_); }

  // Asks the kernel to read these bytes from the disk and does not wait for them. Without effect where the kernel refuses.
  void will_need(std::int64_t offset, std::int64_t bytes) const;

 private:
  std::string path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// A file that appears under its name only when it is complete. Bytes go to "<path>.tmp.<16 random hexadecimal digits>" beside it, a
// file of its own that no other process has; commit() flushes them to the disk, renames and flushes the folder. Without it the
// destructor removes the temporary file, and an earlier file of that name stays. What a killed process leaves is found by
// remove_temporaries().
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

// Changes to folders. StorageError as above; what is not there needs no removing.
bool is_there(const std::string& path);  // whatever it is, a link that leads nowhere included
void rename_file(const std::string& from, const std::string& to);
void remove_file(const std::string& path);
void create_folder(const std::string& path);     // and those above it
void create_folder_of(const std::string& path);  // the one that a file of this path lies in
void sync_folder_of(const std::string& path);    // what was renamed and removed there outlives a machine that loses power

// Keeps other FolderLocks of the folder in which `path` lies waiting, those of other processes included. File systems without locks
// are taken on trust.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

// A file that grows by whole records. Each is handed to the operating system before append() returns: readers see it, and it
// outlives this process, though not a machine that loses power. What the disk has no room for is cut off again. While the object
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
  const std::string& path() const { return path_; }

 private:
  AppendFile(std::string path, int descriptor);

  std::string path_;
  int descriptor_ = -1;
};

// Replaces `path` by a file with this content, whole or not at all.
void write_file(const std::string& path, std::string_view content);

}  // namespace trident
