// Keys of the section `cuda` reach what they name: a run on a simulated GPU shows it.
#include <cuda_runtime_api.h>
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nccl.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>

#include "core/check.h"
#include "core/file_io.h"
#include "cuda/simulated/cublaslt.h"
#include "cuda/simulated/launched_kernels.h"
#include "cuda/simulated/nccl.h"
#include "cuda/simulated/runtime.h"
#include "device/host/doorbell.h"
#include "device/ops.h"
#include "parallel/cuda/cuda_backend.h"
#include "planner/bench/metered_device.h"
#include "support/layout_run.h"
#include "tests/cuda/simulated_scope.h"
#include "tests/cuda/training/on_gpus.h"
#include "tests/data/temporary_folder.h"
#include "tests/support/error_text.h"
#include "tests/support/layout_run.h"
#include "train/launch/rank_devices.h"

namespace trident {
namespace {

testing::LayoutRun run(const std::vector<std::string>& settings) {
  const SimulatedScope scope;
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  testing::LayoutRunOptions options;
  options.cuda = cuda.get();
  options.steps = 1;
  return testing::run_layout(testing::tiny_llama_config(), plus({"model.num_hidden_layers=1", "batch.global=2"}, settings),
                             options);
}

TEST(CudaOptions, Tf32RoundsAndTheDefaultDoesNot) {
  const testing::LayoutRun plain = run({}), again = run({}), tf32 = run({"cuda.tf32=true"});
  EXPECT_EQ(plain.grad_norms, again.grad_norms);
  EXPECT_NE(plain.grad_norms, tf32.grad_norms);
  EXPECT_NEAR(plain.losses.at(0), tf32.losses.at(0), 0.05);
}

TEST(CudaOptions, AutotuneKeepsAFile) {
  const TemporaryFolder folder;
  const std::string file = folder.path() + "/choices.json";
  const testing::LayoutRun run_1 = run({"cuda.autotune=" + file});
  const std::string choices = read_file(file);
  EXPECT_NE(choices.find("NVIDIA H100 80GB HBM3"), std::string::npos) << choices.substr(0, 200);
  EXPECT_EQ(run({"cuda.autotune=" + file}).losses, run_1.losses);
  EXPECT_EQ(read_file(file), choices) << "nothing was left to time";
}

TEST(CudaOptions, ProductsNeedAMultiprocessor) {
  const SimulatedScope scope;
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  Doorbell doorbell;
  CudaOptions options;
  options.spare_multiprocessors = 131;
  EXPECT_NO_THROW(cuda->make_device(0, doorbell, {}, options));
  options.spare_multiprocessors = 132;
  expect_parts(error_of<ConfigError>([&] { cuda->make_device(0, doorbell, {}, options); }),
               {"cuda.spare_multiprocessors = 132: GPU 0 has 132", "cuda.nccl_max_ctas", "or to 0"});
}

// bf16 heads of a size that cuDNN does not take: our own kernels compute them, and the device says so.
TEST(CudaOptions, ASlowerWayIsNoted) {
  const SimulatedScope scope;
  const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
  Doorbell doorbell;
  const std::unique_ptr<Device> device = cuda->make_device(0, doorbell, {}, {});
  AttentionShape shape;
  shape.batch = 1, shape.query_heads = shape.kv_heads = 2, shape.query_length = shape.key_length = 8, shape.head_dim = 12,
  shape.dtype = DType::kBF16;
  device->ops().attention_workspace(shape);
  const std::vector<std::string> notes = device->notes();
  ASSERT_EQ(notes.size(), 2u);
  expect_parts(notes[0], {"forward computed by our own kernels"});
  expect_parts(notes[1], {"backward computed by our own kernels"});
  WorkMeter meter;
  EXPECT_EQ(make_metered_device(*device, meter)->notes(), notes) << "a device that measures says the same";
}

// A GPU without room for a run: which tensors want it, and what would make them fit.

// Refused by the driver all the same: somebody else was quicker. Of what is allocated before the arena nothing is told that much.
std::string refused_by_driver() {
  for (int before = 0; before < 16; ++before) {
    const SimulatedScope scope;
    simulated::fail_next("cudaMalloc", cudaErrorMemoryAllocation, before);
    const std::unique_ptr<CudaBackend> cuda = make_cuda_backend();
    testing::LayoutRunOptions options;
    options.cuda = cuda.get();
    options.steps = 1;
    try {
      testing::run_layout(testing::tiny_llama_config(), {}, options);
    } catch (const ConfigError& error) {
      const std::string text = error.what();
      if (text.find("the arena of rank 0") != std::string::npos) return text;
    }
  }
  return "";
}

TEST(GpuMemory, TheLargestTensorsAreNamed) {
  const std::string text = refused_by_driver();
  expect_parts(text, {"memory: the arena of rank 0 (most of it for ", "of CUDA device 0 (NVIDIA H100 80GB HBM3), which has",
                      "; make batch.micro or batch.sequence smaller, set recompute.policy = full or recompute.head_chunk, "});
  // 16 tokens, 16 blocks; feed-forward gate and up of 96 columns each, a vocabulary of 97 padded to 128.
  expect_parts(text, {"activations of stage 0, block 0 (the largest: f32 [16, 192] of block 0) ", "gradients f32 ["});
}

}  // namespace
}  // namespace trident

namespace trident::testing {
namespace {

// A configuration's choices about NCCL reach the library, in a training run between simulated GPUs.

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class NcclOptionsOfARun : public OnGpus {
 protected:
  void SetUp() override {
    configure({.devices = 8});
    simulated::reset_nccl();
  }
  void TearDown() override {
    EXPECT_THAT(simulated::nccl_complaints(), IsEmpty());
    EXPECT_EQ(simulated::nccl_communicators() + simulated::nccl_registrations(), 0);
    OnGpus::TearDown();
    simulated::reset_nccl();
  }

  // A line for each note of rank 0's trainer and device, besides the run.
  LayoutRun run(std::vector<std::string> settings, std::vector<std::string>* notes = nullptr) {
    settings.insert(settings.begin(), {"model.num_hidden_layers=2", "batch.global=2", "debug.no_alloc=true"});
    LayoutRunOptions options;
    options.transport = DeviceTransport::kNccl;
    options.steps = 3;
    options.before_steps = [&](RankTrainer& trainer) {
      if (trainer.context().rank() != 0) return;
      registered_ = simulated::nccl_registrations();
      if (notes == nullptr) return;
      for (const std::string& note : trainer.context().device().notes()) notes->push_back(note);
      for (const std::string& note : trainer.notes()) notes->push_back(note);
    };
    return on_gpu(tiny_llama_config(), settings, options);
  }

  int registered_ = -1;  // before the first step
};

TEST_F(NcclOptionsOfARun, EachAxisHasItsOwnLimitOnBlocks) {
  run({"parallel=\"2DP x 2PP x 2TP\"", "cuda.nccl_max_ctas={\"tp\": 16, \"dp\": 4}"});
  std::map<std::string, std::set<int>> limits;  // by axis
  for (const simulated::NcclJoined& one : simulated::nccl_joined()) limits[one.name.substr(0, 2)].insert(one.max_ctas);
  EXPECT_THAT(limits["tp"], ElementsAre(16));
  EXPECT_THAT(limits["dp"], ElementsAre(4));
  EXPECT_THAT(limits["pp"], ElementsAre(0));
}

TEST_F(NcclOptionsOfARun, ProductsLeaveMultiprocessorsToCommunication) {
  run({"parallel=\"2DP\"", "cuda.spare_multiprocessors=8"});
  EXPECT_EQ(simulated::cublaslt_counts().last_multiprocessors, 132 - 8);
  run({"parallel=\"2DP\""});
  EXPECT_EQ(simulated::cublaslt_counts().last_multiprocessors, 0);
}

TEST_F(NcclOptionsOfARun, TheOrderOfLaunchesIsTheUsersBeforeItIsOurs) {
  const auto order_of = [&](const char* users, const std::vector<std::string>& settings) {
    users == nullptr ? unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT") : setenv("NCCL_LAUNCH_ORDER_IMPLICIT", users, 1);
    backend_ = make_cuda_backend();
    run(settings);
    const std::string order = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    return order;
  };
  const std::vector<std::string> ours = {"parallel=\"2DP\""},
                                 any = {"parallel=\"2DP\"", "cuda.nccl_any_order=true", "cuda.nccl_max_ctas=4"};
  EXPECT_EQ(order_of(nullptr, ours), "1");
  EXPECT_EQ(order_of(nullptr, any), "0");
  EXPECT_EQ(order_of("1", any), "1");
  EXPECT_EQ(order_of("0", ours), "0");
}

// A library's first use on a GPU may wait for a kernel that waits for a peer.
TEST_F(NcclOptionsOfARun, NoKernelOfALibraryComesToAGpuAfterItsCommunicators) {
  const std::vector<std::string> layouts[] = {
      {"parallel=\"2DP x 2PP x 2TP\"", "parallel.zero=zero3", "precision.compute=bf16"},
      {"parallel=\"2DP\"", "recompute.policy=full", "recompute.head_chunk=8", "precision.compute=fp16"},
      {"parallel=\"2PP x 2TP\"", "parallel.sequence_parallel=true"},
  };
  for (const std::vector<std::string>& layout : layouts) {
    for (const char* epilogues : {"false", "true"}) {
      simulated::reset_library_kernels();
      std::vector<std::string> settings = layout;
      settings.push_back(fmt::format("cuda.epilogues={}", epilogues));
      run(settings);
      EXPECT_THAT(simulated::late_library_kernels(), IsEmpty()) << layout.front();
      EXPECT_GT(simulated::library_kernels().size(), 8u) << layout.front();
    }
  }
}

// The first runs of another run find no memory for their operands: the bits are the same, and what the run has at its end, too.
TEST_F(NcclOptionsOfARun, FirstRunsChangeNoBitOfARun) {
  const auto trained = [&](std::optional<int> refused, std::int64_t* products) {
    const std::int64_t before = simulated::cublaslt_counts().products;
    // The second allocation of a rank, behind scratch memory of kernels.
    if (refused) simulated::fail_next("cudaMalloc", cudaErrorMemoryAllocation, *refused);
    const LayoutRun result = run({"parallel=\"1DP\"", "precision.compute=bf16", "cuda.epilogues=true"});
    *products = simulated::cublaslt_counts().products - before;
    return result;
  };
  std::int64_t with = 0, without = 0;
  const LayoutRun plain = trained(std::nullopt, &with);
  EXPECT_EQ("", compare_bits(trained(1, &without), plain));
  EXPECT_GT(with, without + 20) << "nothing was run before the first step";
}

// Every operand lies in it, at the same place on every rank of a group: the simulation complains of others.
TEST_F(NcclOptionsOfARun, MemoryIsRegisteredWithEveryCommunicator) {
  const std::vector<std::string> layout = {"parallel=\"2DP x 2PP x 2TP\"", "parallel.zero=zero3"};
  std::vector<std::string> with = layout, notes;
  const LayoutRun plain = run(layout);
  EXPECT_EQ(registered_, 0);
  with.emplace_back("cuda.nccl_register=true");
  const LayoutRun registered = run(with, &notes);
  EXPECT_EQ("", compare_bits(registered, plain));
  EXPECT_THAT(notes, IsEmpty());
  // Every rank has these: tp, two of dp, and each direction of the pipeline with two paths.
  EXPECT_EQ(registered_, 8 * (1 + 2 + 2 * 3));
}

TEST_F(NcclOptionsOfARun, MemoryIsRegisteredWhereGraphsAreLaunched) {
  const std::vector<std::string> layout = {"parallel=\"2DP x 2PP\"", "cuda.graphs=true"};
  std::vector<std::string> with = layout;
  with.emplace_back("cuda.nccl_register=true");
  const LayoutRun plain = run(layout);
  EXPECT_EQ("", compare_bits(run(with), plain));
  EXPECT_GT(registered_, 0);
  EXPECT_GT(simulated::graph_uses().launched, 0u);
}

TEST_F(NcclOptionsOfARun, WithoutNcclsMemoryOrdinaryMemoryIsRegistered) {
  std::vector<std::string> notes;
  simulated::fail_next("ncclMemAlloc", ncclSystemError);
  simulated::fail_next("ncclMemAlloc", ncclSystemError);
  run({"parallel=\"2DP\"", "cuda.nccl_register=true"}, &notes);
  EXPECT_EQ(registered_, 2 * 2);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_THAT(notes[0], ::testing::MatchesRegex(
                            "cuda.nccl_register: the arena of rank 0 \\(most of it for .*\\) is ordinary memory, for NCCL gives "
                            "none \\(unhandled system error\\)"));
}

// One of two groups goes without, and every rank knows.
TEST_F(NcclOptionsOfARun, AGroupThatCannotRegisterGoesWithout) {
  std::vector<std::string> notes;
  simulated::fail_next("ncclCommRegister", ncclSystemError);
  run({"parallel=\"2DP\"", "cuda.nccl_register=true"}, &notes);
  EXPECT_EQ(registered_, 2) << "those of the gathers";
  EXPECT_THAT(notes, ElementsAre(::testing::MatchesRegex(
                         "cuda.nccl_register: dp: NCCL does not register the memory of rank [01]: unhandled system error")));
}

TEST_F(NcclOptionsOfARun, ALibraryThatPassesRegistrationOverIsNoted) {
  simulated::configure_nccl({.passes_registration_over = true});
  std::vector<std::string> notes;
  run({"parallel=\"2DP\"", "cuda.nccl_register=true"}, &notes);
  EXPECT_EQ(registered_, 0);
  EXPECT_THAT(
      notes,
      ElementsAre(::testing::StartsWith("cuda.nccl_register: dp: NCCL does not register the memory of rank 0: passed over; ")))
      << "the first of both";
}

std::string refusal(DeviceKind kind, int ranks, const TransportChoice& transport) {
  CudaOptions config;
  config.nccl_register = true;
  DeviceChoice choice;
  choice.kind = kind;
  try {
    check_nccl_register(config, choice, ranks, transport);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(NcclRegister, IsRefusedWhereNcclIsNotUsed) {
  const TransportChoice threads{DeviceTransport::kThread, "the 2 ranks are threads of this process"},
      shared = choose_transport(2, 1), own = choose_transport(2, 2), alone = choose_transport(1, 1);
  EXPECT_EQ(refusal(DeviceKind::kCuda, 2, own), "");
  EXPECT_EQ(refusal(DeviceKind::kCpu, 2, threads), "") << "has no effect on CPUs";
  expect_parts(refusal(DeviceKind::kCuda, 2, threads), {"cuda.nccl_register = true: ", "the 2 ranks are threads of this process",
                                                        "not by NCCL", "mpirun", "set it to false"});
  expect_parts(refusal(DeviceKind::kCuda, 2, shared),
               {"cuda.nccl_register = true: ", "2 processes share 1 GPU", "not by NCCL", "mpirun", "set it to false"});
  expect_parts(refusal(DeviceKind::kCuda, 1, alone), {"cuda.nccl_register = true: one rank", "set it to false"});
}

}  // namespace
}  // namespace trident::testing
