#include "executor/jobs/host_address.h"

#include "base/testing/test.h"

namespace weft::testing {
namespace {

TEST(HostAddressTest, ChoosesTheSubnetOfAll) {
  const std::vector<std::string> networks = {"a/1 172.17.0.1/16 192.168.3.4/24 10.0.0.1/24",
                                             "b/1 172.17.0.1/16 192.168.4.4/24 10.0.0.2/24",
                                             "b/1 172.17.0.1/16 192.168.4.4/24 10.0.0.2/24"};
  EXPECT_EQ(ChooseAddress(networks, 0).value(), "10.0.0.1");
  EXPECT_EQ(ChooseAddress(networks, 2).value(), "10.0.0.2");
  EXPECT_FALSE(IsOneNetwork(networks));
}

TEST(HostAddressTest, WithoutACommonSubnetTakesTheFirstThatOthersDoNotHave) {
  const std::vector<std::string> networks = {"a/1 172.17.0.1/16 10.0.1.1/24",
                                             "b/1 172.17.0.1/16 10.0.2.1/24"};
  EXPECT_EQ(ChooseAddress(networks, 0).value(), "10.0.1.1");
  EXPECT_EQ(ChooseAddress(networks, 1).value(), "10.0.2.1");
}

TEST(HostAddressTest, NamesAProcessWithoutAddress) {
  EXPECT_THAT(ChooseAddress({"a/1 10.0.0.1/8", "b/1"}, 1),
              StatusIs(absl::StatusCode::kUnavailable,
                       "process 1 has no IPv4 address for other hosts: only the loopback is up"));
  EXPECT_THAT(ChooseAddress({"a/1 10.0.0.1/8", "b/1 10.0.0.1/8"}, 1),
              IsUnavailable("have the same addresses"));
}

TEST(HostAddressTest, ThisHostIsOneNetwork) {
  const std::string network = DescribeNetwork();
  EXPECT_THAT(network, HasSubstr("/net:["));
  EXPECT_TRUE(IsOneNetwork({network, network}));
  EXPECT_FALSE(IsOneNetwork({network, "x" + network}));
}

}  // namespace
}  // namespace weft::testing
