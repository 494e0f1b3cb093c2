#include "parallel/hierarchical/node_segment.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <set>
#include <vector>

#include "device/no_allocation.h"
#include "parallel/health/descriptor_handover.h"
#include "parallel/shared_memory/shared_memory_communicator.h"
#include "tests/mpi/child_process.h"
#include "tests/support/error_text.h"

namespace trident {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kMegabyte = 1 << 20;

std::int64_t resident_bytes(const NodeSegment& segment) {
  struct stat file{};
  EXPECT_EQ(fstat(segment.descriptor(), &file), 0);
  return file.st_blocks * 512;
}

bool is_zero(const Buffer& buffer) {
  return std::all_of(buffer.data(), buffer.data() + buffer.num_bytes(), [](std::byte b) { return b == std::byte{0}; });
}

// The thread sanitizer leaves no room for a mapping of such a size.
bool full_size_fits() {
#ifdef TRIDENT_TSAN
  return false;
#else
  return true;
#endif
}

TEST(NodeSegment, IsFarLargerThanTheMachineAndCostsNothing) {
  if (!full_size_fits()) GTEST_SKIP() << "no address space for a whole segment under the thread sanitizer";
  const NodeSegment segment = NodeSegment::create(64 * kMegabyte);
  EXPECT_EQ(segment.num_bytes(), kSegmentBytes);
  EXPECT_LT(resident_bytes(segment), kMegabyte);
}

TEST(NodeSegment, BuffersAreZeroedAlignedResidentAndApart) {
  NodeSegment segment = NodeSegment::create(5000, 64 * kMegabyte);
  std::memset(segment.control(), 1, 5000);
  std::vector<Buffer> buffers;
  for (const std::int64_t bytes : {std::int64_t{1}, std::int64_t{4096}, std::int64_t{100'000}, 5 * kMegabyte, std::int64_t{7}}) {
    const std::int64_t before = resident_bytes(segment);
    buffers.push_back(segment.allocate(bytes, "a buffer"));
    const Buffer& buffer = buffers.back();
    EXPECT_EQ(buffer.num_bytes(), bytes);
    EXPECT_GE(resident_bytes(segment), before + bytes);
    EXPECT_EQ(segment.offset_of(buffer.data()) % 4096, 0U);
    EXPECT_TRUE(is_zero(buffer));
    std::memset(buffer.data(), 2, static_cast<std::size_t>(bytes));
  }
  EXPECT_EQ(segment.offset_of(buffers[3].data()) % (2 * kMegabyte), 0U);
  for (const Buffer& buffer : buffers) EXPECT_EQ(buffer.data()[buffer.num_bytes() - 1], std::byte{2});
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(segment.control()[i], std::byte{1});
  EXPECT_EQ(segment.allocate(0, "nothing").data(), nullptr);
}

TEST(NodeSegment, ABufferReleasedGivesItsMemoryBackAndNothingElse) {
  NodeSegment segment = NodeSegment::create(0, 64 * kMegabyte);
  const Buffer before = segment.allocate(100, "before");
  const std::int64_t without = resident_bytes(segment);
  Buffer large = segment.allocate(8 * kMegabyte, "large");
  const Buffer after = segment.allocate(100, "after");
  for (const Buffer* buffer : {&before, static_cast<const Buffer*>(&large), &after})
    std::memset(buffer->data(), 3, static_cast<std::size_t>(buffer->num_bytes()));
  std::byte* const where = large.data();
  large = Buffer();
  EXPECT_LE(resident_bytes(segment), without + 4096);
  EXPECT_EQ(where[0], std::byte{0});
  EXPECT_EQ(before.data()[99], std::byte{3});
  EXPECT_EQ(after.data()[0], std::byte{3});
}

TEST(NodeSegment, LivesAsLongAsABuffer) {
  Buffer buffer;
  {
    NodeSegment segment = NodeSegment::create(0, kMegabyte);
    buffer = segment.allocate(5000, "survivor");
  }
  std::memset(buffer.data(), 4, 5000);
  EXPECT_EQ(buffer.data()[4999], std::byte{4});
}

// A 16 MiB segment: what does not fit is refused and takes nothing.
TEST(NodeSegment, WithoutAddressesLeftNamesTheBufferAndGoesOn) {
  NodeSegment segment = NodeSegment::create(0, 16 * kMegabyte);
  EXPECT_THAT(error_of<ConfigError>([&] { segment.allocate(20 * kMegabyte, "gradients"); }),
              ::testing::AllOf(HasSubstr("memory: gradients needs 21.0 MB"), HasSubstr("0.0168 GB has no addresses left")));
  const Buffer fits = segment.allocate(3 * kMegabyte, "values");
  EXPECT_NE(fits.data(), nullptr);
}

TEST(NodeSegment, OnAMachineTooSmallNamesTheBufferBeforeTheKernelKills) {
  if (!full_size_fits()) GTEST_SKIP() << "no address space for a whole segment under the thread sanitizer";
  NodeSegment segment = NodeSegment::create(0);
  EXPECT_THAT(error_of<ConfigError>([&] { segment.allocate(kSegmentBytes / 2, "optimizer state"); }),
              ::testing::AllOf(HasSubstr("memory: optimizer state needs 8796093.0 MB and this node has "),
                             HasSubstr(" MB left, 0.0 MB of them promised to other buffers of its ranks; make the model")));
  EXPECT_LT(resident_bytes(segment), kMegabyte);
}

// Five ranks ask at once for 20 MiB of 70, and each is told that all of it is free: what counts is what the others were promised.
TEST(NodeSegment, RefusesRanksThatAskAtOnceForMoreThanThereIs) {
  constexpr int kRanks = 5;
  struct Board {
    std::atomic<int> asking{0}, given{0}, refused{0}, finished{0};
  };
  Board* board = nullptr;
  const auto all = [](const std::atomic<int>& count) {
    while (count.load() < kRanks) usleep(100);
  };
  NodeSegment segment = NodeSegment::create(sizeof(Board), 256 * kMegabyte, [&] {
    ++board->asking;
    all(board->asking);
    return AvailableMemory{70 * kMegabyte, "this node"};
  });
  board = new (segment.control()) Board;
  const auto ask = [&] {
    Buffer buffer;
    bool good = true;
    try {
      buffer = segment.allocate(20 * kMegabyte, "optimizer state");
      ++board->given;
    } catch (const ConfigError& error) {
      good = std::string(error.what())
                 .starts_with(
                     "memory: optimizer state needs 21.0 MB and this node has 73.4 MB left, 62.9 MB of them "
                     "promised to other buffers of its ranks; make the model");
      if (!good) std::fprintf(stderr, "%s\n", error.what());
      ++board->refused;
    }
    ++board->finished;
    all(board->finished);
    return good;
  };
  std::vector<std::unique_ptr<ChildProcess>> others;
  for (int rank = 1; rank < kRanks; ++rank) others.push_back(std::make_unique<ChildProcess>(ask));
  EXPECT_TRUE(ask());
  for (const auto& other : others) EXPECT_TRUE(other->wait());
  EXPECT_EQ(board->given, 3);
  EXPECT_EQ(board->refused, 2);
}

// Touched memory is missing from what the system has left, and returned memory is there again.
TEST(NodeSegment, CountsNoBufferTwiceAndForgetsThoseThatEnded) {
  int descriptor = -1;
  NodeSegment segment = NodeSegment::create(0, 256 * kMegabyte, [&] {
    struct stat file{};
    return AvailableMemory{64 * kMegabyte + 4096 - (fstat(descriptor, &file) == 0 ? file.st_blocks * 512 : 0), "this node"};
  });
  descriptor = segment.descriptor();
  for (int i = 0; i < 3; ++i) {
    const Buffer one = segment.allocate(32 * kMegabyte, "one"), two = segment.allocate(30 * kMegabyte, "two");
    EXPECT_THAT(error_of<ConfigError>([&] { segment.allocate(4 * kMegabyte, "three"); }),
                HasSubstr("has 2.1 MB left, 0.0 MB of them"));
    const Buffer rest = segment.allocate(2 * kMegabyte, "the rest");
  }
  EXPECT_THAT(error_of<ConfigError>([&] { segment.allocate(300 * kMegabyte, "all"); }), HasSubstr("has 67.1 MB left, 0.0 MB"));
}

TEST(NodeSegment, AllocatesNothingWhereNothingMay) {
  NodeSegment segment = NodeSegment::create(0, kMegabyte);
  const std::string name = "a buffer";
  std::string text;
  {
    const NoAllocationScope scope("step 3");
    try {
      segment.allocate(4096, name);
    } catch (const InternalError& error) {
      const AllocationExemption copy;
      text = error.what();
    }
  }
  EXPECT_THAT(text, HasSubstr("step 3: a buffer allocates 4096 bytes"));
}

TEST(NodeSegment, ReachesWhatLiesInIt) {
  NodeSegment segment = NodeSegment::create(0, kMegabyte);
  SegmentMemory memory(segment);
  const Buffer inside = segment.allocate(8192, "inside");
  std::vector<char> outside(5000);
  EXPECT_TRUE(memory.reaches(inside.data() + 10, 100));
  EXPECT_EQ(memory.reach(memory.post(inside.data() + 10)), inside.data() + 10);
  const std::byte* const end = segment.at(static_cast<std::uint64_t>(kMegabyte));
  EXPECT_TRUE(memory.reaches(end - 16, 16));
  for (const auto& [address, bytes] : {std::pair<const void*, std::int64_t>{outside.data(), 5000}, {outside.data(), 1}, {end - 16, 17},
                                       {end, 1}, {segment.at(0) - 1, 1}, {nullptr, 1}})
    EXPECT_FALSE(memory.reaches(address, bytes)) << bytes << " bytes";
}

TEST(NodeSegment, SaysWhichLimitRefusesIt) {
  const auto refused = [](__rlimit_resource resource, rlim_t most, const char* expected) {
    ChildProcess child([&] {
      limit(resource, most);
      const std::string text = error_of<ConfigError>([] { NodeSegment::create(0); });
      if (text.find(expected) != std::string::npos) return true;
      std::fprintf(stderr, "instead of %s: %s\n", expected, text.c_str());
      return false;
    });
    return child.wait();
  };
  EXPECT_TRUE(refused(RLIMIT_FSIZE, 1 << 20, "files are limited to 0.00105 GB; set ulimit -f unlimited"));
  EXPECT_TRUE(refused(RLIMIT_NOFILE, 3, "memfd_create: Too many open files"));
#ifndef __SANITIZE_ADDRESS__  // whose shadow is beyond any such limit
  EXPECT_TRUE(refused(RLIMIT_AS, rlim_t{1} << 40, "mapping 17592 GB of address space: Cannot allocate memory; raise ulimit -v"));
#endif
  EXPECT_THAT(error_of<ConfigError>([] { NodeSegment::attach(FileDescriptor()); }), HasSubstr("fstat: Bad file descriptor"));
}

TEST(NodeSegment, SaysWhichPagesItGets) {
  EXPECT_THAT(segment_pages(), ::testing::AnyOf("huge pages", HasSubstr("small pages: ")));
}

// Two processes see one segment at different addresses, and both take buffers of it at once.
TEST(NodeSegment, IsOneMemoryForSeveralProcesses) {
  constexpr int kBuffers = 200;
  struct Board {
    std::atomic<std::uint64_t> greeting{0}, answer{0};
    std::uint64_t offsets[2][kBuffers] = {};
  };
  NodeSegment segment = NodeSegment::create(sizeof(Board), 64 * kMegabyte);
  Board& board = *new (segment.control()) Board;
  const auto take_buffers = [](NodeSegment& from, std::uint64_t* offsets) {
    std::vector<Buffer> buffers;
    for (int i = 0; i < kBuffers; ++i) {
      buffers.push_back(from.allocate(1000 + 5000 * (i % 3), "one of many"));
      offsets[i] = from.offset_of(buffers.back().data());
      std::memset(buffers.back().data(), i, static_cast<std::size_t>(buffers.back().num_bytes()));
    }
    return std::all_of(buffers.begin(), buffers.end(), [&](const Buffer& buffer) {
      return buffer.data()[buffer.num_bytes() - 1] == static_cast<std::byte>(&buffer - buffers.data());
    });
  };
  DescriptorHandover handover;
  ChildProcess child([&] {
    NodeSegment mine = NodeSegment::attach(receive_descriptor(handover.name(), 10));
    Board& here = *reinterpret_cast<Board*>(mine.control());
    while (here.greeting.load() == 0) usleep(100);
    std::byte* const text = mine.at(here.greeting.load());
    const bool same = std::strcmp(reinterpret_cast<const char*>(text), "hello") == 0 && mine.at(0) != segment.at(0);
    std::strcpy(reinterpret_cast<char*>(text), "hi");
    here.answer.store(1);
    return take_buffers(mine, here.offsets[1]) && same;
  });
  handover.give(segment.descriptor(), 1, 10);
  const Buffer message = segment.allocate(100, "message");
  std::strcpy(reinterpret_cast<char*>(message.data()), "hello");
  board.greeting.store(segment.offset_of(message.data()));
  EXPECT_TRUE(take_buffers(segment, board.offsets[0]));
  ASSERT_TRUE(child.wait());
  EXPECT_EQ(board.answer.load(), 1U);
  EXPECT_STREQ(reinterpret_cast<const char*>(message.data()), "hi");
  std::set<std::uint64_t> offsets(board.offsets[0], board.offsets[0] + 2 * kBuffers);
  EXPECT_EQ(offsets.size(), 2U * kBuffers);
}

// A world laid out by one process and attached to by another.
class SegmentWorld {
 public:
  explicit SegmentWorld(int ranks)
      : segment_(NodeSegment::create(static_cast<std::int64_t>(SharedWorld::region_bytes(ranks)), 256 * kMegabyte)) {
    SharedWorld::lay_out(segment_.control(), SharedWorld::region_bytes(ranks), ranks);
  }
  // Runs `body` as rank `rank` on a mapping of its own.
  bool run(int rank, const std::function<bool(NodeSegment&, Communicator&, Stream&)>& body) {
    NodeSegment mine = NodeSegment::attach(FileDescriptor(dup(segment_.descriptor())));
    SegmentMemory memory(mine);
    SharedWorld world(mine.control(), 20.0, memory);
    Progress progress(world.doorbell(rank));
    CpuStream stream("compute", CpuStream::Mode::kImmediate, progress);
    const auto communicator = make_world_communicator(world, rank, progress);
    try {
      return body(mine, *communicator, stream);
    } catch (const Error& error) {
      world.fail(error.what());
      throw;
    }
  }

 private:
  NodeSegment segment_;
};

TEST(SegmentWorld, ReducesBetweenProcesses) {
  constexpr int kRanks = 3;
  SegmentWorld world(kRanks);
  const auto body = [](NodeSegment& segment, Communicator& communicator, Stream& stream) {
    const Buffer memory = segment.allocate(40'000, "operand");
    const TensorView x(memory.data(), DType::kF32, {10'000});
    for (std::int64_t i = 0; i < 10'000; ++i) x.as<float>()[i] = static_cast<float>(communicator.rank() + i);
    communicator.all_reduce(stream, x, ReduceOp::kSum);
    communicator.all_reduce(stream, x.range(0, 3), ReduceOp::kMax);  // small: through the control block
    communicator.barrier();
    for (std::int64_t i = 0; i < 10'000; ++i)
      if (x.as<float>()[i] != static_cast<float>(3 * i + 3)) return false;
    const auto pair = communicator.split(communicator.rank() < 2 ? std::vector<int>{0, 1} : std::vector<int>{2}, "pair");
    return pair->size() == (communicator.rank() < 2 ? 2 : 1);
  };
  std::vector<std::unique_ptr<ChildProcess>> others;
  for (int rank = 1; rank < kRanks; ++rank) others.push_back(std::make_unique<ChildProcess>([&] { return world.run(rank, body); }));
  EXPECT_TRUE(world.run(0, body));
  for (const auto& other : others) EXPECT_TRUE(other->wait());
}

TEST(SegmentWorld, ReducesWhatLiesOutsideTheSegmentOnOneRank) {
  constexpr std::int64_t kCount = 20'000;  // ten pieces
  SegmentWorld world(2);
  const auto reduce = [](float* data, Communicator& communicator, Stream& stream) {
    for (std::int64_t i = 0; i < kCount; ++i) data[i] = static_cast<float>(communicator.rank() + i);
    communicator.all_reduce(stream, {data, DType::kF32, {kCount}}, ReduceOp::kSum);
    for (std::int64_t i = 0; i < kCount; ++i)
      if (data[i] != static_cast<float>(2 * i + 1)) return false;
    return true;
  };
  ChildProcess other([&] {
    return world.run(1, [&](NodeSegment& segment, Communicator& communicator, Stream& stream) {
      const Buffer memory = segment.allocate(kCount * 4, "operand");
      return reduce(reinterpret_cast<float*>(memory.data()), communicator, stream);
    });
  });
  std::vector<float> outside(kCount);
  EXPECT_TRUE(world.run(0, [&](NodeSegment&, Communicator& communicator, Stream& stream) { return reduce(outside.data(), communicator, stream); }));
  EXPECT_TRUE(other.wait());
}

// The reason cannot be read, so that the process is ended by SIGSEGV after it has marked the world and before it has said why.
TEST(SegmentWorld, NamesAFailureWhoseProcessWasEndedBeforeItSaidWhy) {
  NodeSegment segment = NodeSegment::create(static_cast<std::int64_t>(SharedWorld::region_bytes(2)), 256 * kMegabyte);
  SharedWorld::lay_out(segment.control(), SharedWorld::region_bytes(2), 2);
  SegmentMemory memory(segment);
  SharedWorld world(segment.control(), 20.0, memory);
  ChildProcess other([&] {
    world.fail({static_cast<const char*>(mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)), 100});
    return true;
  });
  EXPECT_FALSE(other.wait());
  EXPECT_THAT(world.failure(), HasSubstr("was ended before it could say why"));
}

TEST(SegmentWorld, IsNotAttachedToWhereNoneWasLaidOut) {
  NodeSegment segment = NodeSegment::create(kMegabyte, 2 * kMegabyte);
  SegmentMemory memory(segment);
  EXPECT_THAT(error_of<InternalError>([&] { SharedWorld(segment.control(), 1.0, memory); }), HasSubstr("no world was laid out"));
}

}  // namespace
}  // namespace trident
