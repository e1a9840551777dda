#include "transpiler/passes/optimizer_offload.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/testing/compact_program.h"
#include "transpiler/testing/expect_rewrite.h"
#include "transpiler/transpile.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::weft::testing::ExpectRewrite;
using ::weft::testing::StatusIs;

constexpr char kVars[] = R"(
    var g : fp32[2, 2] need_check_feed
    var w : fp32[2, 2] parameter persistable
    var w_1 : fp32[2, 2] parameter persistable
)";
constexpr char kUpdate[] = R"(
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
    Out=[w_1@GRAD] = scale(X=[g]) role=backward vars=[w_1, w_1@GRAD] {scale=3.0}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w_1] = sgd(Param=[w_1], Grad=[w_1@GRAD], LearningRate=[lr]) role=optimize
)";

absl::Status Refused(const std::string& passes, const std::string& ops) {
  Program main = testing::CompactProgram(ops);
  ProgramPair programs{&main, nullptr};
  TranspileOptions options;
  options.passes = passes;
  return Transpile(options, programs).status();
}

TEST(OptimizerOffload, UpdatesThatMatchGoToTheHost) {
  ExpectRewrite("optimizer-offload{params=w_*}", absl::StrCat(kVars, kUpdate), R"(
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
    Out=[w_1@GRAD] = scale(X=[g]) role=backward vars=[w_1, w_1@GRAD] {scale=3.0}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    ParamOut=[w_1] = sgd(Param=[w_1], Grad=[w_1@GRAD], LearningRate=[lr]) role=optimize {op_device="cpu"}
  )");
}

TEST(OptimizerOffload, StatesAloneReturnWhatTheParameterChangesBy) {
  ExpectRewrite("optimizer-offload{params=w,offload=states}", absl::StrCat(kVars, kUpdate), R"(
    var w@DELTA : fp32[2, 2]
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
    Out=[w_1@GRAD] = scale(X=[g]) role=backward vars=[w_1, w_1@GRAD] {scale=3.0}
    Out=[w@DELTA] = fill_constant() role=optimize {shape=longs[2, 2], dtype=5, value=0.0, op_device="cpu"}
    ParamOut=[w@DELTA] = sgd(Param=[w@DELTA], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {op_device="cpu"}
    Out=[w] = elementwise_add(X=[w], Y=[w@DELTA]) role=optimize
    ParamOut=[w_1] = sgd(Param=[w_1], Grad=[w_1@GRAD], LearningRate=[lr]) role=optimize
  )");
}

TEST(OptimizerOffload, ChangeThatDependsOnTheParameterIsRefused) {
  EXPECT_THAT(
      Refused("optimizer-offload{offload=states}", absl::StrCat(kVars, R"(
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
    Beta1PowOut=[p], Beta2PowOut=[q], Moment1Out=[m], Moment2Out=[v], ParamOut=[w] = lamb(Beta1Pow=[p], Beta2Pow=[q], Grad=[w@GRAD], LearningRate=[lr], Moment1=[m], Moment2=[v], Param=[w]) role=optimize {weight_decay=0.01}
  )")),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr("offload=states cannot: what it changes may depend on the parameter; use "
                         "offload=full")));
}

TEST(OptimizerOffload, HalfPrecisionWithoutMasterWeightsIsRefused) {
  const std::string ops = R"(
    var g : fp16[2, 2] need_check_feed
    var w : fp16[2, 2] parameter persistable
    var w@GRAD : fp16[2, 2]
    Out=[w@GRAD] = scale(X=[g]) role=backward vars=[w, w@GRAD] {scale=2.0}
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
  )";
  EXPECT_THAT(Refused("optimizer-offload", ops),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("op 1 (sgd) input Param (w): expected a parameter with master "
                                 "weights, found fp16 without MasterParam")));
  WEFT_EXPECT_OK(Refused("optimizer-offload{master_weights=none}", ops));
}

TEST(OptimizerOffload, PatternThatMatchesNothingIsRefused) {
  EXPECT_THAT(Refused("optimizer-offload{params=x*}", absl::StrCat(kVars, kUpdate)),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("params 'x*'")));
}

}  // namespace
}  // namespace weft
