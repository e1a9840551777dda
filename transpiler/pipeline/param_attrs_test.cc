#include "transpiler/pipeline/param_attrs.h"

#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

Cluster OfRanks(int nranks) {
  ClusterSpec spec;
  spec.nranks = nranks;
  return *Cluster::Create(spec, 1);
}

ParamAttrs In(std::string name, std::vector<int> ranks) {
  ParamAttrs attrs;
  attrs.group = RankGroup{std::move(name), std::move(ranks)};
  return attrs;
}

TEST(ResolveGroups, GroupsAreNumberedByName) {
  ParamAttrsByName params = {{"a", In("z", {3, 2})}, {"b", In("y", {0})}, {"c", In("z", {2, 3})}};
  params["d"];
  WEFT_ASSERT_OK(ResolveGroups(Cluster(), &params));
  EXPECT_THAT(GroupsOf(params), ElementsAre(RankGroup{"y", {0}, 0}, RankGroup{"z", {2, 3}, 1}));
  EXPECT_EQ(params["a"].group->index, 1);
  EXPECT_FALSE(params["d"].group.has_value());
}

TEST(ResolveGroups, AGroupOfAllRanksIsNone) {
  ParamAttrsByName params = {{"a", In("all", {1, 0})}, {"b", In("one", {1})}};
  WEFT_ASSERT_OK(ResolveGroups(OfRanks(2), &params));
  EXPECT_FALSE(params["a"].group.has_value());
  EXPECT_THAT(GroupsOf(params), ElementsAre(RankGroup{"one", {1}, 0}));
  params = {{"a", In("all", {1, 0})}};
  WEFT_ASSERT_OK(ResolveGroups(Cluster(), &params));
  EXPECT_EQ(GroupsOf(params).size(), 1) << "there may be more ranks";
}

TEST(ResolveGroups, SaysWhatIsWrong) {
  const auto status_of = [](ParamAttrs attrs) {
    ParamAttrsByName params = {{"w", std::move(attrs)}};
    return ResolveGroups(OfRanks(4), &params);
  };
  EXPECT_THAT(status_of(In("g", {})),
              StatusIs(kInvalid, "parameter w, group 'g': expected at least 1 rank"));
  EXPECT_THAT(status_of(In("g", {1, 1})),
              StatusIs(kInvalid, HasSubstr("expected distinct ranks, found 1, 1")));
  EXPECT_THAT(status_of(In("g", {4})),
              StatusIs(kInvalid, HasSubstr("expected ranks of 0 or more and below 4, found 4")));
  EXPECT_THAT(status_of(In("g", {-1})), StatusIs(kInvalid, HasSubstr("found -1")));
  EXPECT_THAT(status_of(In("", {1})), StatusIs(kInvalid, HasSubstr("1 to 127 bytes, found 0")));
  EXPECT_THAT(status_of(In(std::string(128, 'g'), {1})), StatusIs(kInvalid, HasSubstr("128")));
  WEFT_EXPECT_OK(status_of(In(std::string(127, 'g'), {1})));
  ParamAttrs sharded = In("g", {1});
  sharded.in_shard = true;
  EXPECT_THAT(status_of(sharded), StatusIs(kInvalid, HasSubstr("expected a replicated parameter")));
}

TEST(CheckParamAttrs, GroupsAreForParameters) {
  ProgramBuilder p;
  p.Param("w").Var("w@GRAD", {2, 2});
  const Program program = p.Build();
  WEFT_EXPECT_OK(CheckParamAttrs({{"w", In("g", {0, 1})}}, program));
  EXPECT_THAT(CheckParamAttrs({{"w@GRAD", In("g", {0, 1})}}, program),
              StatusIs(kInvalid, HasSubstr("w@GRAD, group 'g': expected a parameter")));
  EXPECT_THAT(CheckParamAttrs({{"v", ParamAttrs()}}, program),
              StatusIs(kInvalid, HasSubstr("parameter v: the program has no such variable")));
}

TEST(ResolveGroups, OneNameMeansOneSetOfRanks) {
  ParamAttrsByName params = {{"a", In("g", {0, 1})}, {"b", In("g", {0, 2})}};
  EXPECT_THAT(ResolveGroups(Cluster(), &params),
              StatusIs(kInvalid,
                       "parameter b, group 'g': expected ranks 0, 1, as for another "
                       "parameter, found 0, 2"));
}

TEST(ResolveGroups, TrainersWithSeveralDevicesHaveNoGroups) {
  ClusterSpec spec;
  spec.devices = {{0, 1, 2}};
  spec.nranks = 3;
  ParamAttrsByName params = {{"a", In("g", {0, 1})}};
  EXPECT_THAT(ResolveGroups(*Cluster::Create(spec, 1), &params),
              StatusIs(kInvalid, HasSubstr("expected one device for each trainer")));
  params = {};
  WEFT_EXPECT_OK(ResolveGroups(*Cluster::Create(spec, 1), &params));
  EXPECT_THAT(GroupsOf(params), IsEmpty());
}

}  // namespace
}  // namespace weft::testing
