#include "executor/rewrites/merge_updates.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/testing/test.h"
#include "executor/rewrites/rewrites_testing.h"
#include "ops/cpu/testing.h"

namespace weft::testing {
namespace {

std::vector<std::string> OpsOf(const std::string& block, const std::vector<std::string>& results) {
  const auto rewrite = [](const std::vector<int>&, Plan* plan) { MergeUpdates(plan); };
  return OpTypes(ExpectSameResults(block, results, rewrite, /*tolerance=*/0));
}

// Variables p, g, v, m1, m2, b1, b2 with this number.
std::string Variables(int i) {
  std::string text;
  for (const char* name : {"p", "v", "m1_", "m2_"}) {
    absl::StrAppend(&text, "var ", name, i, " : fp32[", 10 * i + 3, "] persistable\n");
  }
  absl::StrAppend(&text, "var g", i, " : fp32[", 10 * i + 3, "]\n");
  for (const char* name : {"b1_", "b2_"}) {
    absl::StrAppend(&text, "var ", name, i, " : fp32[1] persistable\n");
  }
  return text;
}

std::string Momentum(int i, const std::string& attrs = "mu=0.9") {
  return absl::StrCat("ParamOut=[p", i, "], VelocityOut=[v", i, "] = momentum(Grad=[g", i,
                      "], LearningRate=[lr], Param=[p", i, "], Velocity=[v", i, "]) {", attrs,
                      "}\n");
}

std::string Adam(int i) {
  return absl::StrCat("Beta1PowOut=[b1_", i, "], Beta2PowOut=[b2_", i, "], Moment1Out=[m1_", i,
                      "], Moment2Out=[m2_", i, "], ParamOut=[p", i, "] = adam(Beta1Pow=[b1_", i,
                      "], Beta2Pow=[b2_", i, "], Grad=[g", i, "], LearningRate=[lr], Moment1=[m1_",
                      i, "], Moment2=[m2_", i, "], Param=[p", i, "]) {beta1=0.9, beta2=0.99}\n");
}

std::string Sgd(int i) {
  return absl::StrCat("ParamOut=[p", i, "] = sgd(Grad=[g", i, "], LearningRate=[lr], Param=[p", i,
                      "])\n");
}

const std::string& Three() {
  static const auto* const text =
      new std::string("var lr : fp32[1]\n" + Variables(1) + Variables(2) + Variables(3));
  return *text;
}

TEST(MergeUpdatesTest, UpdatesOfOneOptimizerAreOneOp) {
  EXPECT_THAT(OpsOf(Three() + Adam(1) + Adam(2) + Adam(3),
                    {"p1", "p2", "p3", "m1_2", "m2_3", "b1_1", "b2_3"}),
              ElementsAre("adam"));
  EXPECT_THAT(OpsOf(Three() + Momentum(1) + Momentum(2) + Momentum(3), {"p1", "p2", "v3"}),
              ElementsAre("momentum"));
  EXPECT_THAT(OpsOf(Three() + Sgd(1) + Sgd(2) + Sgd(3), {"p1", "p2", "p3"}), ElementsAre("sgd"));
  const std::string decay =
      "mu=0.9, regularization_method=\"l2_decay\", regularization_coeff=0.1, use_nesterov=true";
  EXPECT_THAT(OpsOf(Three() + Momentum(1, decay) + Momentum(2, decay), {"p1", "p2"}),
              ElementsAre("momentum"));
}

TEST(MergeUpdatesTest, OtherAttributesOptimizersAndOpsSeparateThem) {
  EXPECT_THAT(
      OpsOf(Three() + Momentum(1) + Momentum(2) + Momentum(3, "mu=0.8"), {"p1", "p2", "p3"}),
      ElementsAre("momentum", "momentum"));
  EXPECT_THAT(OpsOf(Three() + Sgd(1) + Adam(2) + Sgd(3), {"p1", "p2", "p3"}),
              ElementsAre("sgd", "adam", "sgd"));
  EXPECT_THAT(OpsOf(Three() + "var s : fp32[13]\n" + Sgd(1) +
                        "Out=[s] = scale(X=[g1]) {scale=2.0}\n" + Sgd(3),
                    {"p1", "p3", "s"}),
              ElementsAre("sgd", "scale", "sgd"));
}

// Of these, an attribute has an element for each parameter.
TEST(MergeUpdatesTest, UpdatesWithNumbersForEachParameterStayApart) {
  const auto lars = [](int i) {
    return absl::StrReplaceAll(
        Momentum(i, "mu=0.9, lars_weight_decay=floats[0.0005], lars_coeff=0.001"),
        {{"momentum(", "lars_momentum("}});
  };
  EXPECT_THAT(OpsOf(Three() + lars(1) + lars(2), {"p1", "p2", "v2"}),
              ElementsAre("lars_momentum", "lars_momentum"));
  const auto merged = [](int i) {
    return absl::StrReplaceAll(Momentum(i,
                                        "mu=0.9, regularization_method=strings[\"l2_decay\"], "
                                        "regularization_coeff=floats[0.1]"),
                               {{"momentum(", "merged_momentum("}});
  };
  EXPECT_THAT(OpsOf(Three() + merged(1) + merged(2), {"p1", "p2", "v2"}),
              ElementsAre("merged_momentum", "merged_momentum"));
}

TEST(MergeUpdatesTest, AnUpdateThatUsesWhatAnotherWritesIsApart) {
  EXPECT_THAT(OpsOf(Three() + Adam(1) + Adam(1), {"p1", "b1_1", "m1_1"}),
              ElementsAre("adam", "adam"));
  // One power of beta for two parameters.
  const std::string shared = absl::StrReplaceAll(Adam(2), {{"b1_2", "b1_1"}, {"b2_2", "b2_1"}});
  EXPECT_THAT(OpsOf(Three() + Adam(1) + shared + Adam(3), {"p1", "p2", "p3", "b1_1"}),
              ElementsAre("adam", "adam"));
  // The gradient is a parameter that the first one updates.
  const std::string other = "var q : fp32[13] persistable\n";
  EXPECT_THAT(OpsOf(Three() + other + Sgd(1) +
                        "ParamOut=[q] = sgd(Grad=[p1], LearningRate=[lr], Param=[q])\n",
                    {"p1", "q"}),
              ElementsAre("sgd", "sgd"));
}

TEST(MergeUpdatesTest, OneOpHasSixtyFourUpdatesAtMost) {
  std::string variables = "var lr : fp32[1]\n", ops;
  for (int i = 0; i < 70; ++i) {
    variables += Variables(i);
    ops += Sgd(i);
  }
  EXPECT_THAT(OpsOf(variables + ops, {"p0", "p63", "p64", "p69"}), ElementsAre("sgd", "sgd"));
}

}  // namespace
}  // namespace weft::testing
