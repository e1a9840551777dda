#include "transpiler/pipeline/cluster.h"

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

ClusterSpec TwoEndpoints() {
  ClusterSpec spec;
  spec.endpoints = {"10.0.0.1:6170", "10.0.0.2:6170"};
  return spec;
}

TEST(Cluster, EmptySpecMeansUnknown) {
  WEFT_ASSERT_OK_AND_ASSIGN(Cluster p, Cluster::Create({}));
  EXPECT_EQ(p.nranks(), absl::nullopt);
  EXPECT_FALSE(p.has_endpoints());
}

TEST(Cluster, EndpointsGiveTheNumberOfRanks) {
  ClusterSpec spec = TwoEndpoints();
  spec.rank = 1;
  spec.current_endpoint = "10.0.0.2:6170";
  WEFT_ASSERT_OK_AND_ASSIGN(Cluster p, Cluster::Create(spec));
  EXPECT_EQ(p.nranks(), 2);
  EXPECT_EQ(p.rank(), 1);
  EXPECT_THAT(p.other_endpoints(), ElementsAre("10.0.0.1:6170"));
}

TEST(Cluster, CurrentEndpointDefaultsToThatOfTheRank) {
  ClusterSpec spec = TwoEndpoints();
  spec.rank = 1;
  WEFT_ASSERT_OK_AND_ASSIGN(Cluster p, Cluster::Create(spec));
  EXPECT_EQ(p.current_endpoint(), "10.0.0.2:6170");
}

TEST(Cluster, FewerThanTwoRanksAreRefused) {
  ClusterSpec one;
  one.endpoints = {"127.0.0.1:6170"};
  EXPECT_THAT(Cluster::Create(one), StatusIs(kInvalid, HasSubstr("at least 2, found 1")));
  ClusterSpec zero;
  zero.nranks = 0;
  EXPECT_THAT(Cluster::Create(zero), StatusIs(kInvalid, HasSubstr("at least 2, found 0")));
}

TEST(Cluster, RanksAreTrainersTimesDevices) {
  ClusterSpec spec = TwoEndpoints();
  spec.devices = std::vector<int>{0, 2, 3};
  WEFT_ASSERT_OK_AND_ASSIGN(Cluster p, Cluster::Create(spec));
  EXPECT_EQ(p.trainers(), 2);
  EXPECT_EQ(p.nranks(), 6);
  spec.nranks = 6;
  WEFT_EXPECT_OK(Cluster::Create(spec).status());
  spec.nranks = 2;
  EXPECT_THAT(
      Cluster::Create(spec),
      StatusIs(kInvalid, HasSubstr("given as 2, but there are 2 endpoints with 3 devices each")));
}

TEST(Cluster, WithoutEndpointsRanksAreDividedAmongTrainers) {
  ClusterSpec spec;
  spec.nranks = 8;
  spec.devices = std::vector<int>{0, 1};
  WEFT_ASSERT_OK_AND_ASSIGN(Cluster p, Cluster::Create(spec));
  EXPECT_EQ(p.trainers(), 4);
  spec.nranks = 7;
  EXPECT_THAT(Cluster::Create(spec),
              StatusIs(kInvalid, HasSubstr("7, expected a multiple of the 2 devices")));
}

TEST(Cluster, OneTrainerIsEnoughWhereTheCallerSaysSo) {
  ClusterSpec spec;
  spec.endpoints = {"127.0.0.1:6170"};
  WEFT_ASSERT_OK_AND_ASSIGN(Cluster p, Cluster::Create(spec, /*min_trainers=*/1));
  EXPECT_EQ(p.nranks(), 1);
  spec.devices = std::vector<int>{0, 1};
  WEFT_ASSERT_OK_AND_ASSIGN(p, Cluster::Create(spec, /*min_trainers=*/1));
  EXPECT_EQ(p.nranks(), 2);
}

TEST(Cluster, DevicesMustBeDistinctNumbers) {
  ClusterSpec spec = TwoEndpoints();
  spec.devices = std::vector<int>{};
  EXPECT_THAT(Cluster::Create(spec), StatusIs(kInvalid, HasSubstr("devices is empty")));
  spec.devices = std::vector<int>{0, -1};
  EXPECT_THAT(Cluster::Create(spec), StatusIs(kInvalid, HasSubstr("negative, found -1")));
  spec.devices = std::vector<int>{1, 0, 1};
  EXPECT_THAT(Cluster::Create(spec), StatusIs(kInvalid, HasSubstr("device 1 is given twice")));
}

TEST(Cluster, HostsAreCountedOnce) {
  ClusterSpec spec = TwoEndpoints();
  spec.endpoints.push_back("10.0.0.1:6171");
  WEFT_ASSERT_OK_AND_ASSIGN(Cluster p, Cluster::Create(spec));
  EXPECT_EQ(p.hosts(), 2);
}

TEST(Cluster, RankOutsideTheRanksIsRefused) {
  ClusterSpec spec = TwoEndpoints();
  spec.rank = -1;
  EXPECT_THAT(Cluster::Create(spec),
              StatusIs(kInvalid, HasSubstr("must not be negative, found -1")));
  spec.rank = 7;
  EXPECT_THAT(Cluster::Create(spec),
              StatusIs(kInvalid, HasSubstr("rank 7 is out of range: expected at most 1")));
}

TEST(Cluster, CurrentEndpointMustBeAmongTheEndpoints) {
  ClusterSpec spec = TwoEndpoints();
  spec.current_endpoint = "10.0.0.9:6170";
  EXPECT_THAT(Cluster::Create(spec),
              StatusIs(kInvalid, Eq("current endpoint 10.0.0.9:6170 is not among the endpoints "
                                    "10.0.0.1:6170,10.0.0.2:6170")));
}

TEST(Cluster, CurrentEndpointMustBeThatOfTheRank) {
  ClusterSpec spec = TwoEndpoints();
  spec.rank = 1;
  spec.current_endpoint = "10.0.0.1:6170";
  EXPECT_THAT(Cluster::Create(spec),
              StatusIs(kInvalid, HasSubstr("rank 1 has endpoint 10.0.0.2:6170")));
}

TEST(Cluster, RepeatedAndEmptyEndpointsAreRefused) {
  ClusterSpec spec;
  spec.endpoints = {"a:1", "b:1", "a:1"};
  EXPECT_THAT(Cluster::Create(spec),
              StatusIs(kInvalid, Eq("endpoint a:1 is given twice: for rank 0 and for rank 2")));
  spec.endpoints = {"a:1", ""};
  EXPECT_THAT(Cluster::Create(spec), StatusIs(kInvalid, HasSubstr("rank 1 is empty")));
}

TEST(Cluster, NumberThatContradictsTheEndpointsIsRefused) {
  ClusterSpec spec = TwoEndpoints();
  spec.nranks = 4;
  EXPECT_THAT(Cluster::Create(spec),
              StatusIs(kInvalid, HasSubstr("given as 4, but there are 2 endpoints")));
}

TEST(Cluster, RankWithoutEndpointsIsRefused) {
  ClusterSpec spec;
  spec.nranks = 2;
  spec.rank = 1;
  EXPECT_THAT(Cluster::Create(spec), StatusIs(kInvalid, HasSubstr("without the endpoints")));
}

}  // namespace
}  // namespace weft::testing
