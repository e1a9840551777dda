#include "transpiler/pipeline/participants.h"

#include "absl/status/status.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::HasSubstr;
using ::weft::testing::StatusIs;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

ParticipantsSpec TwoEndpoints() {
  ParticipantsSpec spec;
  spec.endpoints = {"10.0.0.1:6170", "10.0.0.2:6170"};
  return spec;
}

TEST(Participants, NothingSaidMeansUnknown) {
  WEFT_ASSERT_OK_AND_ASSIGN(Participants p, Participants::Create({}));
  EXPECT_EQ(p.nranks(), absl::nullopt);
  EXPECT_FALSE(p.has_endpoints());
}

TEST(Participants, EndpointsGiveTheNumberOfRanks) {
  ParticipantsSpec spec = TwoEndpoints();
  spec.rank = 1;
  spec.current_endpoint = "10.0.0.2:6170";
  WEFT_ASSERT_OK_AND_ASSIGN(Participants p, Participants::Create(spec));
  EXPECT_EQ(p.nranks(), 2);
  EXPECT_EQ(p.rank(), 1);
  EXPECT_THAT(p.other_endpoints(), ElementsAre("10.0.0.1:6170"));
}

TEST(Participants, CurrentEndpointDefaultsToThatOfTheRank) {
  ParticipantsSpec spec = TwoEndpoints();
  spec.rank = 1;
  WEFT_ASSERT_OK_AND_ASSIGN(Participants p, Participants::Create(spec));
  EXPECT_EQ(p.current_endpoint(), "10.0.0.2:6170");
}

TEST(Participants, FewerThanTwoRanksAreRefused) {
  ParticipantsSpec one;
  one.endpoints = {"127.0.0.1:6170"};
  EXPECT_THAT(Participants::Create(one), StatusIs(kInvalid, HasSubstr("at least 2, found 1")));
  ParticipantsSpec zero;
  zero.nranks = 0;
  EXPECT_THAT(Participants::Create(zero), StatusIs(kInvalid, HasSubstr("at least 2, found 0")));
}

TEST(Participants, RanksAreTrainersTimesDevices) {
  ParticipantsSpec spec = TwoEndpoints();
  spec.devices = std::vector<int>{0, 2, 3};
  WEFT_ASSERT_OK_AND_ASSIGN(Participants p, Participants::Create(spec));
  EXPECT_EQ(p.trainers(), 2);
  EXPECT_EQ(p.nranks(), 6);
  spec.nranks = 6;
  WEFT_EXPECT_OK(Participants::Create(spec).status());
  spec.nranks = 2;
  EXPECT_THAT(Participants::Create(spec),
              StatusIs(kInvalid, HasSubstr("given as 2, but there are 2 endpoints of 3 devices")));
}

TEST(Participants, WithoutEndpointsRanksAreDividedAmongTrainers) {
  ParticipantsSpec spec;
  spec.nranks = 8;
  spec.devices = std::vector<int>{0, 1};
  WEFT_ASSERT_OK_AND_ASSIGN(Participants p, Participants::Create(spec));
  EXPECT_EQ(p.trainers(), 4);
  spec.nranks = 7;
  EXPECT_THAT(Participants::Create(spec),
              StatusIs(kInvalid, HasSubstr("7 ranks are no number of trainers of 2 devices")));
}

TEST(Participants, OneTrainerIsEnoughWhereTheCallerSaysSo) {
  ParticipantsSpec spec;
  spec.endpoints = {"127.0.0.1:6170"};
  WEFT_ASSERT_OK_AND_ASSIGN(Participants p, Participants::Create(spec, /*min_trainers=*/1));
  EXPECT_EQ(p.nranks(), 1);
  spec.devices = std::vector<int>{0, 1};
  WEFT_ASSERT_OK_AND_ASSIGN(p, Participants::Create(spec, /*min_trainers=*/1));
  EXPECT_EQ(p.nranks(), 2);
}

TEST(Participants, DevicesMustBeDistinctNumbers) {
  ParticipantsSpec spec = TwoEndpoints();
  spec.devices = std::vector<int>{};
  EXPECT_THAT(Participants::Create(spec), StatusIs(kInvalid, HasSubstr("devices is empty")));
  spec.devices = std::vector<int>{0, -1};
  EXPECT_THAT(Participants::Create(spec), StatusIs(kInvalid, HasSubstr("negative, found -1")));
  spec.devices = std::vector<int>{1, 0, 1};
  EXPECT_THAT(Participants::Create(spec), StatusIs(kInvalid, HasSubstr("device 1 is given twice")));
}

TEST(Participants, HostsAreCountedOnce) {
  ParticipantsSpec spec = TwoEndpoints();
  spec.endpoints.push_back("10.0.0.1:6171");
  WEFT_ASSERT_OK_AND_ASSIGN(Participants p, Participants::Create(spec));
  EXPECT_EQ(p.hosts(), 2);
}

TEST(Participants, RankOutsideTheRanksIsRefused) {
  ParticipantsSpec spec = TwoEndpoints();
  spec.rank = -1;
  EXPECT_THAT(Participants::Create(spec),
              StatusIs(kInvalid, HasSubstr("must not be negative, found -1")));
  spec.rank = 7;
  EXPECT_THAT(Participants::Create(spec), StatusIs(kInvalid, HasSubstr("rank 7 is beyond")));
}

TEST(Participants, CurrentEndpointMustBeAmongTheEndpoints) {
  ParticipantsSpec spec = TwoEndpoints();
  spec.current_endpoint = "10.0.0.9:6170";
  EXPECT_THAT(Participants::Create(spec),
              StatusIs(kInvalid, Eq("current endpoint 10.0.0.9:6170 is not among the endpoints "
                                    "10.0.0.1:6170,10.0.0.2:6170")));
}

TEST(Participants, CurrentEndpointMustBeThatOfTheRank) {
  ParticipantsSpec spec = TwoEndpoints();
  spec.rank = 1;
  spec.current_endpoint = "10.0.0.1:6170";
  EXPECT_THAT(Participants::Create(spec),
              StatusIs(kInvalid, HasSubstr("rank 1 has endpoint 10.0.0.2:6170")));
}

TEST(Participants, RepeatedAndEmptyEndpointsAreRefused) {
  ParticipantsSpec spec;
  spec.endpoints = {"a:1", "b:1", "a:1"};
  EXPECT_THAT(Participants::Create(spec),
              StatusIs(kInvalid, Eq("endpoint a:1 is given twice: for rank 0 and for rank 2")));
  spec.endpoints = {"a:1", ""};
  EXPECT_THAT(Participants::Create(spec), StatusIs(kInvalid, HasSubstr("rank 1 is empty")));
}

TEST(Participants, NumberThatContradictsTheEndpointsIsRefused) {
  ParticipantsSpec spec = TwoEndpoints();
  spec.nranks = 4;
  EXPECT_THAT(Participants::Create(spec),
              StatusIs(kInvalid, HasSubstr("given as 4, but there are 2 endpoints")));
}

TEST(Participants, RankWithoutEndpointsIsRefused) {
  ParticipantsSpec spec;
  spec.nranks = 2;
  spec.rank = 1;
  EXPECT_THAT(Participants::Create(spec), StatusIs(kInvalid, HasSubstr("without the endpoints")));
}

TEST(ParticipantsSpec, FieldsThatAreGivenAreNamed) {
  EXPECT_THAT(NamesOfGiven(ParticipantsSpec()), ::testing::IsEmpty());
  ParticipantsSpec spec;
  spec.nranks = 4;
  spec.devices = {{0, 1}};
  EXPECT_THAT(NamesOfGiven(spec), ::testing::ElementsAre("nranks", "devices"));
  spec.endpoints = {"a:1", "b:1"};
  spec.rank = 0;
  spec.current_endpoint = "a:1";
  EXPECT_THAT(NamesOfGiven(spec),
              ::testing::ElementsAre("nranks", "endpoints", "rank", "current_endpoint", "devices"));
}

}  // namespace
}  // namespace weft
