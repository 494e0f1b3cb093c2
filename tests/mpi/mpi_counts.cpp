// Counts what a rank asks of MPI and leaves open: a library to preload into a job (scripts/count_control.sh) that knows nothing of
// the program.
//
// Where MPI_COUNTS names a folder, a process that ends in order, with whatever code, leaves RANK.txt there: lines of "what calls
// bytes". Messages are counted when their send begins, by tag. Collectives: bytes are what the rank holds of the result; which
// messages they become is the library's.
// RANK.lifeline has the process's id, and what it said on its lifeline by kind of word: "ask 62 992". It is as new as the last
// word, because a job that fails has its processes killed.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <mpi.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "parallel/health/lifeline_message.h"

namespace {

struct Count {
  std::int64_t calls = 0, bytes = 0;
};

// The counts are one process'; they are made with the first call.
class Counts {
 public:
  static Counts& all() {
    static Counts counts;
    return counts;
  }
  void add(const std::string& what, std::int64_t elements, MPI_Datatype type) {
    int size = 0;
    PMPI_Type_size(type, &size);
    add(what, elements * size);
  }
  void add(const std::string& what, std::int64_t bytes = 0) {
    const std::lock_guard lock(mutex_);
    Count& count = counts_[what];
    ++count.calls;
    count.bytes += bytes;
  }
  void set(const std::string& what, std::int64_t bytes) {
    const std::lock_guard lock(mutex_);
    counts_[what] = {1, bytes};
  }
  void set_rank(int rank) { rank_ = rank; }
  ~Counts() {
    const std::lock_guard lock(mutex_);
    const char* const folder = std::getenv("MPI_COUNTS");
    if (folder == nullptr || rank_ < 0) return;
    std::ofstream file(std::string(folder) + "/" + std::to_string(rank_) + ".txt");
    for (const auto& [what, count] : counts_) file << what << ' ' << count.calls << ' ' << count.bytes << '\n';
  }

 private:
  int rank_ = -1;
  std::mutex mutex_;
  std::map<std::string, Count> counts_;
};

// "RssAnon", ... of /proc/self/status, in bytes.
std::int64_t memory(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  return 0;
}

// Sockets of this process that are connections, by TCP.
std::int64_t connections() {
  std::set<std::string> established;
  for (const char* table : {"/proc/self/net/tcp", "/proc/self/net/tcp6"}) {
    std::ifstream file(table);
    std::string line;
    std::getline(file, line);
    while (std::getline(file, line)) {
      std::istringstream words(line);
      std::string number, local, remote, state, queues, timer, retransmits, user, timeout, inode;
      words >> number >> local >> remote >> state >> queues >> timer >> retransmits >> user >> timeout >> inode;
      if (state == "01") established.insert("socket:[" + inode + "]");
    }
  }
  std::int64_t count = 0;
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return -1;
  while (const dirent* entry = readdir(folder)) {
    char target[64] = {};
    if (readlink(("/proc/self/fd/" + std::string(entry->d_name)).c_str(), target, sizeof target - 1) > 0)
      count += static_cast<std::int64_t>(established.count(target));
  }
  closedir(folder);
  return count;
}

constexpr std::array kWords = {"hello", "welcome", "proof", "heartbeat", "ask", "failure", "decision", "goodbye", "answer"};
constexpr std::size_t kKinds = std::variant_size_v<trident::LifelineMessage>, kAnswer = kKinds;
static_assert(kWords.size() == kKinds + 1);  // an answer is a heartbeat that says so

template <std::size_t... i> constexpr std::array<std::size_t, sizeof...(i)> payload_sizes(std::index_sequence<i...>) {
  return {sizeof(std::variant_alternative_t<i, trident::LifelineMessage>)...};
}

// The words that this process says on its lifeline, in a file of one line of fixed length for each kind.
class Words {
 public:
  static Words& all() {
    static Words words;
    return words;
  }
  void open(int rank) {
    const char* const folder = std::getenv("MPI_COUNTS");
    if (folder == nullptr) return;
    const std::lock_guard lock(mutex_);
    file_ = ::open((std::string(folder) + "/" + std::to_string(rank) + ".lifeline").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    for (std::size_t word = 0; word < kWords.size(); ++word) write_line(word, kWords[word], counts_[word]);
    write_line(kWords.size(), "pid", {getpid(), 0});
  }
  // A socket took these bytes. Words come whole or in parts, one behind the other.
  void add(int socket, std::string_view bytes) {
    constexpr std::size_t kHeader = 8;
    const std::lock_guard lock(mutex_);
    std::size_t& rest = rest_[socket];  // of a word that has begun
    while (!bytes.empty()) {
      if (rest == 0) {
        std::uint32_t kind = 0;
        if (bytes.size() < kHeader || !bytes.starts_with("TLL2")) return;
        std::memcpy(&kind, bytes.data() + 4, sizeof kind);
        if (kind >= kKinds) return;
        rest = kHeader + payload_sizes(std::make_index_sequence<kKinds>())[kind];
        count(is_answer(kind, bytes.substr(kHeader)) ? kAnswer : kind, rest);
      }
      const std::size_t here = std::min(rest, bytes.size());
      bytes.remove_prefix(here);
      rest -= here;
    }
  }

 private:
  static bool is_answer(std::size_t kind, std::string_view payload) {
    trident::LifelineHeartbeat beat;
    if (std::string_view(kWords[kind]) != "heartbeat" || payload.size() < sizeof beat) return false;
    std::memcpy(static_cast<void*>(&beat), payload.data(), sizeof beat);
    return beat.is_answer != 0;
  }
  void count(std::size_t word, std::size_t bytes) {
    ++counts_[word].calls;
    counts_[word].bytes += static_cast<std::int64_t>(bytes);
    write_line(word, kWords[word], counts_[word]);
  }
  void write_line(std::size_t line, const char* what, const Count& count) const {
    std::array<char, 64> text{};
    const int length = std::snprintf(text.data(), text.size(), "%-10s %18lld %18lld\n", what, static_cast<long long>(count.calls),
                                     static_cast<long long>(count.bytes));
    [[maybe_unused]] const ssize_t written =
        pwrite(file_, text.data(), static_cast<std::size_t>(length), static_cast<off_t>(line) * length);
  }

  std::mutex mutex_;
  int file_ = -1;
  std::array<Count, kWords.size()> counts_;
  std::map<int, std::size_t> rest_;
};

int size_of(MPI_Comm comm) {
  int size = 0;
  PMPI_Comm_size(comm, &size);
  return size;
}

}  // namespace

extern "C" {

ssize_t send(int socket, const void* data, size_t bytes, int flags) {
  using Send = ssize_t (*)(int, const void*, size_t, int);
  static const Send next = reinterpret_cast<Send>(dlsym(RTLD_NEXT, "send"));
  const ssize_t sent = next(socket, data, bytes, flags);
  if (sent > 0) Words::all().add(socket, {static_cast<const char*>(data), static_cast<std::size_t>(sent)});
  return sent;
}

int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  const int code = PMPI_Init_thread(argc, argv, required, provided);
  int rank = 0;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  Counts::all().set_rank(rank);
  Words::all().open(rank);
  Counts::all().set("anonymous_memory_after_init", memory("RssAnon"));
  return code;
}

int MPI_Send(const void* data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  Counts::all().add("MPI_Send", n, type);
  return PMPI_Send(data, n, type, to, tag, comm);
}
int MPI_Isend(const void* data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
  Counts::all().add("tag_" + std::to_string(tag), n, type);
  return PMPI_Isend(data, n, type, to, tag, comm, request);
}
int MPI_Allreduce(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  Counts::all().add("MPI_Allreduce", n, type);
  return PMPI_Allreduce(in, out, n, type, op, comm);
}
int MPI_Bcast(void* data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
  Counts::all().add("MPI_Bcast", n, type);
  return PMPI_Bcast(data, n, type, root, comm);
}
int MPI_Exscan(const void* in, void* out, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  Counts::all().add("MPI_Exscan", n, type);
  return PMPI_Exscan(in, out, n, type, op, comm);
}
int MPI_Gather(const void* in, int n, MPI_Datatype type, void* out, int m, MPI_Datatype to, int root, MPI_Comm comm) {
  int rank = 0;
  PMPI_Comm_rank(comm, &rank);
  Counts::all().add("MPI_Gather", rank == root ? static_cast<std::int64_t>(n) * size_of(comm) : n, type);
  return PMPI_Gather(in, n, type, out, m, to, root, comm);
}
int MPI_Allgather(const void* in, int n, MPI_Datatype type, void* out, int m, MPI_Datatype to, MPI_Comm comm) {
  Counts::all().add("MPI_Allgather", static_cast<std::int64_t>(m) * size_of(comm), to);
  return PMPI_Allgather(in, n, type, out, m, to, comm);
}
int MPI_Allgatherv(const void* in, int n, MPI_Datatype type, void* out, const int* counts, const int* at, MPI_Datatype to,
                   MPI_Comm comm) {
  std::int64_t sum = 0;
  for (int r = 0; r < size_of(comm); ++r) sum += counts[r];
  Counts::all().add("MPI_Allgatherv", sum, to);
  return PMPI_Allgatherv(in, n, type, out, counts, at, to, comm);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  Counts::all().add("MPI_Ibarrier");
  return PMPI_Ibarrier(comm, request);
}
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* part) {
  Counts::all().add("MPI_Comm_split");
  return PMPI_Comm_split(comm, color, key, part);
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* part) {
  Counts::all().add("MPI_Comm_split");
  return PMPI_Comm_split_type(comm, type, key, info, part);
}
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* copy) {
  Counts::all().add("MPI_Comm_dup");
  return PMPI_Comm_dup(comm, copy);
}

int MPI_Finalize() {
  Counts::all().set("anonymous_memory_at_end", memory("RssAnon"));
  Counts::all().set("connections", connections());
  return PMPI_Finalize();
}

}  // extern "C"
