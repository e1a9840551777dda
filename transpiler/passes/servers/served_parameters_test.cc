#include "transpiler/passes/servers/served_parameters.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/analysis/testing/compact_program.h"

namespace weft::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

ParamAttrsByName Served(const std::string& name) {
  ParamAttrsByName attrs;
  attrs[name].parameter_server = true;
  return attrs;
}

constexpr char kMomentum[] = R"(
    Out=[y] = mul(X=[x], Y=[w])
    Out=[y@GRAD] = fill_constant() role=backward|loss {shape=longs[2, 2], value=1.0}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[y@GRAD]) role=backward vars=[w, w@GRAD]
    ParamOut=[w], VelocityOut=[v] = momentum(Param=[w], Velocity=[v], Grad=[w@GRAD], LearningRate=[lr]) role=optimize {mu=0.9}
)";

TEST(ServedParameters, UpdateNamesGradientStateAndLearningRate) {
  const Program program = CompactProgram(kMomentum);
  WEFT_ASSERT_OK_AND_ASSIGN(const auto served, FindServedParameters(program, Served("w")));
  ASSERT_THAT(served, SizeIs(1));
  EXPECT_EQ(program.name(served[0].param), "w");
  EXPECT_EQ(ToString(served[0].type), "fp32[2, 2]");
  EXPECT_EQ(program.name(served[0].grad), "w@GRAD");
  ASSERT_THAT(served[0].states, SizeIs(1));
  EXPECT_EQ(program.name(served[0].states[0]), "v");
  EXPECT_EQ(program.name(served[0].learning_rate), "lr");
  EXPECT_THAT(served[0].others, IsEmpty());
  EXPECT_EQ(program.op(served[0].first_use).type(), "mul");
  EXPECT_FALSE(served[0].is_table());
  EXPECT_THAT(FindServedParameters(program, {}), testing::IsOkAndHolds(IsEmpty()));
}

constexpr char kTable[] = R"(
    var ids : int64[4] need_check_feed
    var table : fp32[5, 2] parameter persistable
    Out=[rows] = lookup_table_v2(Ids=[ids], W=[table]) {is_sparse=true}
    Out=[rows@GRAD] = fill_constant() role=backward|loss {shape=longs[4, 2], value=1.0}
    W@GRAD=[table@GRAD] = lookup_table_v2_grad(Ids=[ids], Out@GRAD=[rows@GRAD], W=[table]) role=backward vars=[table, table@GRAD] {is_sparse=true}
    ParamOut=[table] = sgd(Param=[table], Grad=[table@GRAD], LearningRate=[lr]) role=optimize
)";

TEST(ServedParameters, TableIsHeldByRowsIfOnlyLookupsReadIt) {
  WEFT_ASSERT_OK_AND_ASSIGN(const auto table,
                            FindServedParameters(CompactProgram(kTable), Served("table")));
  EXPECT_TRUE(table[0].is_table());
  EXPECT_TRUE(table[0].grad_is_sparse);
  EXPECT_THAT(table[0].lookups, SizeIs(1));
  EXPECT_THAT(table[0].lookup_grads, SizeIs(1));
  WEFT_ASSERT_OK_AND_ASSIGN(
      const auto whole,
      FindServedParameters(CompactProgram(absl::StrCat("Out=[m] = mean(X=[table])", kTable)),
                           Served("table")));
  EXPECT_FALSE(whole[0].is_table());
  EXPECT_THAT(whole[0].lookup_grads, IsEmpty());
}

TEST(ServedParameters, WhatWorkersCannotLeaveToServersIsRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"Out=[m] = mean(X=[v])",
       "op 4 (mean): variable v: expected an optimizer's state that only "
       "op 3 (momentum) uses"},
      {"Out=[m] = mean(X=[w])", "op 4 (mean): variable w: expected no use after the update"},
      {"Out=[w] = scale(X=[x])", "variable w: expected a parameter that only its optimizer writes"},
      {"ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize",
       "op 4 (sgd): variable w: expected one optimizer, found another one, too"},
  };
  for (const auto& [op, message] : cases) {
    EXPECT_THAT(FindServedParameters(CompactProgram(absl::StrCat(kMomentum, op)), Served("w")),
                IsFailedPrecondition(message))
        << op;
  }
  EXPECT_THAT(FindServedParameters(CompactProgram(kMomentum), Served("x")),
              IsFailedPrecondition("parameter x: expected an optimizer that servers can run"));
  EXPECT_THAT(FindServedParameters(CompactProgram(absl::StrCat(
                                       "var w : fp32[-1, 2] parameter persistable", kMomentum)),
                                   Served("w")),
              IsFailedPrecondition("expected a tensor of known dimensions, as servers hold it"));
}

}  // namespace
}  // namespace weft::testing
