#include "parallel/mpi/network_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/data/temporary_folder.h"

namespace trident {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A tree like /, with what the test writes into it.
class NetworkFactsTest : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + path).parent_path());
    std::ofstream(root + path) << text << '\n';
  }
  void interface(const std::string& name, const std::string& state, const std::string& speed, const std::string& type = "1") {
    write("/sys/class/net/" + name + "/operstate", state);
    write("/sys/class/net/" + name + "/type", type);
    if (!speed.empty()) write("/sys/class/net/" + name + "/speed", speed);
  }
  void port(const std::string& device, int number, const std::string& state, const std::string& layer = "InfiniBand") {
    const std::string folder = "/sys/class/infiniband/" + device + "/ports/" + std::to_string(number);
    write(folder + "/state", state);
    write(folder + "/link_layer", layer);
    write(folder + "/rate", "100 Gb/sec (4X EDR)");
  }
  void open_file(int descriptor, const std::string& target) {
    std::filesystem::create_directories(root + "/proc/self/fd");
    std::filesystem::create_symlink(target, root + "/proc/self/fd/" + std::to_string(descriptor));
  }
  const TemporaryFolder folder;
  const std::string root = folder.path();
};

TEST_F(NetworkFactsTest, WhereNothingIsKnownItIsTcp) {
  const NetworkFacts facts = network_facts(root);
  EXPECT_THAT(facts.infiniband, IsEmpty());
  EXPECT_THAT(facts.interfaces, IsEmpty());
  EXPECT_EQ(describe(facts), "between nodes: TCP");
  EXPECT_EQ(network_warning(facts), "");
}

TEST_F(NetworkFactsTest, NamesInterfacesThatAreUp) {
  interface("lo", "up", "", "772");
  interface("eth0", "up", "25000");
  interface("eth1", "down", "10000");
  interface("veth", "up", "-1");
  interface("wlan0", "up", "");
  interface("slave", "up", "1000");
  write("/sys/class/net/slave/master/type", "1");
  interface("usb", "up", "2500");
  const NetworkFacts facts = network_facts(root);
  EXPECT_THAT(facts.interfaces, ElementsAre("eth0 (25 Gb/s)", "usb (2.5 Gb/s)", "veth", "wlan0"));
  EXPECT_EQ(describe(facts),
            "between nodes: TCP over eth0 (25 Gb/s), usb (2.5 Gb/s), veth, wlan0, as far as btl_tcp_if_include and "
            "btl_tcp_if_exclude allow");
  EXPECT_EQ(network_warning(facts), "");
}

TEST_F(NetworkFactsTest, WarnsOfInfinibandThatIdles) {
  interface("ib0", "up", "100000", "32");
  port("mlx5_0", 1, "4: ACTIVE");
  port("mlx5_0", 2, "1: DOWN");
  port("mlx5_1", 1, "4: ACTIVE", "Ethernet");
  open_file(3, "/dev/null");
  open_file(4, "socket:[123]");
  NetworkFacts facts = network_facts(root);
  EXPECT_THAT(facts.infiniband, ElementsAre("mlx5_0 port 1 (100 Gb/sec (4X EDR))"));
  EXPECT_THAT(describe(facts), HasSubstr("TCP over ib0 (100 Gb/s), as far"));
  EXPECT_THAT(
      network_warning(facts),
      HasSubstr(
          "InfiniBand is not used: mlx5_0 port 1 (100 Gb/sec (4X EDR)) is up, but messages between nodes go over TCP; build"));
  port("mlx5_2", 1, "4: ACTIVE");
  EXPECT_THAT(network_warning(network_facts(root)), HasSubstr("(4X EDR)), mlx5_2 port 1 (100 Gb/sec (4X EDR)) are up"));
}

TEST_F(NetworkFactsTest, SaysNothingWhereMpiHasTheDeviceOpen) {
  port("mlx5_0", 1, "4: ACTIVE");
  open_file(17, "/dev/infiniband/uverbs0");
  const NetworkFacts facts = network_facts(root);
  EXPECT_EQ(network_warning(facts), "");
  EXPECT_EQ(describe(facts), "between nodes: /dev/infiniband/uverbs0, mlx5_0 port 1 (100 Gb/sec (4X EDR))");
}

TEST_F(NetworkFactsTest, KnowsOmniPathAndSlingshotByTheirFiles) {
  for (const char* file : {"/dev/hfi1_0", "/dev/cxi2"}) {
    std::filesystem::remove_all(root + "/proc");
    open_file(9, file);
    EXPECT_EQ(describe(network_facts(root)), std::string("between nodes: ") + file);
  }
}

TEST_F(NetworkFactsTest, OfThisMachineCanBeRead) { EXPECT_THAT(describe(network_facts()), HasSubstr("between nodes: ")); }

}  // namespace
}  // namespace trident
