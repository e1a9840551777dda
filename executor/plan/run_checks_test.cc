#include "executor/plan/run_checks.h"

#include "base/testing/test.h"
#include "proto/testing/program_builder.h"

namespace weft::testing {
namespace {

ProgramBuilder& Sgd(ProgramBuilder& builder) {
  return builder.Op("sgd", {{"Param", {"w"}}, {"Grad", {"g"}}, {"LearningRate", {"lr"}}},
                    {{"ParamOut", {"w"}}}, kRoleOptimize);
}
ProgramBuilder& AllReduce(ProgramBuilder& builder) {
  return builder.Op("c_allreduce_sum", {{"X", {"g"}}}, {{"Out", {"g"}}}, kRoleBackward);
}

TEST(CheckSynchronizedTest, UpdatesWithoutCommunicationAreRefusedOnSeveralRanks) {
  ProgramBuilder builder;
  builder.Param("w").Op("scale", {{"X", {"x"}}}, {{"Out", {"g"}}});
  const Program program = Sgd(builder).Build();
  WEFT_EXPECT_OK(CheckSynchronized(program, 1));
  EXPECT_THAT(CheckSynchronized(program, 2),
              IsFailedPrecondition(
                  "op 1 (sgd): updates a parameter, but no op communicates, so 2 ranks would train "
                  "2 models; rewrite the program with transpile option:mode grad_allreduce"));
}

TEST(CheckSynchronizedTest, AnyCollectiveWillDo) {
  ProgramBuilder builder;
  builder.Param("w");
  Sgd(AllReduce(builder));
  WEFT_EXPECT_OK(CheckSynchronized(builder.Build(), 2));
}

TEST(CheckSynchronizedTest, OtherCommunicationWillDoButMomentsWillNot) {
  const auto check = [](const char* type) {
    ProgramBuilder builder;
    builder.Param("w").Op(type, {{"X", {"x"}}}, {{"Out", {"g"}}});
    return CheckSynchronized(Sgd(builder).Build(), 2);
  };
  WEFT_EXPECT_OK(check("recv_v2"));
  EXPECT_THAT(check("sync_batch_norm"), IsFailedPrecondition("no op communicates"));
}

TEST(CheckSynchronizedTest, SubBlocksAreLookedInto) {
  ProgramBuilder builder;
  builder.Param("w").Op("conditional_block", {}, {}).BlockAttr("sub_block", 1);
  Sgd(builder.NewBlock(0));
  EXPECT_THAT(CheckSynchronized(builder.Build(), 2),
              IsFailedPrecondition(StartsWith("block 1, op 0 (sgd): ")));
  AllReduce(builder);
  WEFT_EXPECT_OK(CheckSynchronized(builder.Build(), 2));
}

TEST(CheckSynchronizedTest, ProgramThatTrainsNothingIsFine) {
  const Program program = ProgramBuilder().Op("scale", {{"X", {"x"}}}, {{"Out", {"y"}}}).Build();
  WEFT_EXPECT_OK(CheckSynchronized(program, 4));
}

TEST(CheckParamTest, ParameterIsATensorThatTheProgramDeclaresSo) {
  ProgramBuilder builder;
  builder.Param("w", {-1, 3}).Var("x");
  builder.Rows("rows", {-1, 3}).last_var().set_persistable(true);
  builder.Param("reader").last_var().mutable_type()->set_type(pb::VarType::READER);
  const Program program = builder.Build();
  WEFT_EXPECT_OK(CheckParam(program, "w", {DType::kFloat32, {2, 3}}));
  EXPECT_THAT(CheckParam(program, "w", {DType::kFloat32, {3, 2}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "parameter w: expected fp32[-1, 3], found fp32[3, 2]"));
  EXPECT_THAT(CheckParam(program, "w", {DType::kFloat64, {2, 3}}),
              IsInvalidArgument("found fp64[2, 3]"));
  for (const char* name : {"x", "nobody"}) {
    EXPECT_THAT(CheckParam(program, name, {DType::kFloat32, {2, 2}}),
                IsInvalidArgument("no persistable variable"));
  }
  EXPECT_THAT(CheckParam(program, "rows", {DType::kFloat32, {2, 3}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "parameter rows: expected rows fp32[-1, 3], found fp32[2, 3]"));
  EXPECT_THAT(CheckParam(program, "reader", {DType::kFloat32, {2, 2}}),
              IsInvalidArgument("does not declare it as"));
}

}  // namespace
}  // namespace weft::testing
