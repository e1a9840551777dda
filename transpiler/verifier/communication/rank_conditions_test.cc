// Values that each rank chooses by a condition on its own batch: what paddle.static.nn.cond and
// paddle.where make. The mean of the ranks' gradients is that of the mean of their losses, whatever
// each of these is. What ranks must have in common may not depend on the condition.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "transpiler/verifier/testing/found.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Scales what a loss is the mean of, by one of two constants.
constexpr absl::string_view kChoice = R"(
    var x : fp32[-1, 4] need_check_feed
    var w : fp32[4, 1] parameter persistable
    var limit : fp32[1] persistable
    var due : bool[1]
    var factor : fp32[1]
    var h, h@GRAD : fp32[-1, 1]
    Out=[size] = reduce_mean(X=[x]) {dim=ints[0], keep_dim=false, reduce_all=true}
    Out=[due] = greater_than(X=[size], Y=[limit])
    Out=[not_due] = logical_not(X=[due])
    Out=[mask] = cast(X=[due]) {in_dtype=0, out_dtype=2}
    Out=[a], Scope=[scope1] = conditional_block(Cond=[due], Input=[]) {sub_block=block(1), is_scalar_condition=true}
    Out=[b], Scope=[scope2] = conditional_block(Cond=[not_due], Input=[]) {sub_block=block(2), is_scalar_condition=true}
    Out=[factor] = select_input(X=[b, a], Mask=[mask])
    Out=[h] = mul(X=[x], Y=[w])
    Out=[y] = elementwise_mul(X=[h], Y=[factor]) {axis=-1}
    Out=[loss] = mean(X=[y]) role=forward|loss
    Out=[loss@GRAD] = fill_constant() role=backward|loss {shape=longs[], dtype=5, value=1.0}
    X@GRAD=[y@GRAD] = mean_grad(X=[y], Out@GRAD=[loss@GRAD]) role=backward
    X@GRAD=[h@GRAD] = elementwise_mul_grad(X=[h], Y=[factor], Out@GRAD=[y@GRAD]) role=backward {axis=-1}
    Y@GRAD=[w@GRAD] = mul_grad(X=[x], Y=[w], Out@GRAD=[h@GRAD]) role=backward
    ParamOut=[w] = sgd(Param=[w], Grad=[w@GRAD], LearningRate=[lr]) role=optimize
    block 1:
    Out=[a] = fill_constant() {shape=longs[1], dtype=5, value=2.0}
    block 2:
    Out=[b] = fill_constant() {shape=longs[1], dtype=5, value=0.5}
)";

constexpr absl::string_view kUpdate = "    ParamOut=[w] = sgd";
constexpr absl::string_view kReduceAndUpdate =
    "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {use_calc_stream=true}\n"
    "    ParamOut=[w] = sgd";
constexpr absl::string_view kSelect = "    Out=[factor] = select_input(X=[b, a], Mask=[mask])\n";
constexpr absl::string_view kTwo =
    "    Out=[a] = fill_constant() {shape=longs[1], dtype=5, value=2.0}\n";

// The program after these edits, and its rewrite for two ranks after further ones.
std::vector<std::string> ErrorsAfter(const Edits& of_both, const Edits& of_rewrite = {}) {
  Edits edits = of_both;
  edits.emplace_back(kUpdate, kReduceAndUpdate);
  edits.insert(edits.end(), of_rewrite.begin(), of_rewrite.end());
  const Program original = ProgramOf(kChoice, of_both), rewritten = ProgramOf(kChoice, edits);
  return Errors({{&rewritten}}, &original);
}

TEST(RankConditions, RanksMayChooseConstantsByTheirOwnBatch) {
  EXPECT_THAT(ErrorsAfter({}), IsEmpty());
  // Parameters, and what is computed of them in a block.
  EXPECT_THAT(ErrorsAfter({{kTwo, "    Out=[a] = scale(X=[lr]) {scale=2.0}\n"}}), IsEmpty());
  // As where does.
  EXPECT_THAT(ErrorsAfter({{kSelect, "    Out=[factor] = where(Condition=[due], X=[a], Y=[b])\n"}}),
              IsEmpty());
  // In a block, the condition is known to differ.
  EXPECT_THAT(Found(absl::StrReplaceAll(kChoice, {{kUpdate, kReduceAndUpdate}})),
              ElementsAre(HasSubstr("W706")));
}

TEST(RankConditions, GradientsOfChosenLossesMustBeReduced) {
  const Program original = ProgramOf(kChoice);
  EXPECT_THAT(Errors({{&original}}, &original),
              Contains(StartsWith("error: W310: op 14 (sgd) updates w by w@GRAD")));
  EXPECT_THAT(ErrorsAfter({}, {{"    Out=[w@GRAD] = c_allreduce_avg",
                                "    Out=[w@GRAD] = square(X=[w@GRAD]) role=backward\n"
                                "    Out=[w@GRAD] = c_allreduce_avg"}}),
              Contains(AllOf(StartsWith("error: W313: "), HasSubstr("is reduced after op 14"))));
}

// One device chooses by the whole batch.
TEST(RankConditions, RanksMayNotChooseAmongMeanGradients) {
  constexpr absl::string_view kReduce =
      "    Out=[w@GRAD] = c_allreduce_avg(X=[w@GRAD]) role=backward {use_calc_stream=true}\n";
  const std::string choose = absl::StrCat(
      "    Out=[half] = scale(X=[w@GRAD]) role=optimize {scale=0.5}\n"
      "    Out=[w@GRAD] = select_input(X=[w@GRAD, half], Mask=[mask]) role=optimize\n",
      kUpdate);
  const std::string vars = absl::StrReplaceAll(
      kChoice, {{"    var loss :", "    var half : fp32[4, 1]\n    var loss :"}});
  const std::string original = absl::StrReplaceAll(vars, {{kUpdate, choose}});
  const std::string once = absl::StrReplaceAll(vars, {{kUpdate, absl::StrCat(kReduce, choose)}});
  const std::string twice = absl::StrReplaceAll(once, {{kUpdate, kReduceAndUpdate}});
  EXPECT_THAT(Differences(original, once),
              Contains(AllOf(StartsWith("error: W310: "), HasSubstr("never reduced"))));
  EXPECT_THAT(Differences(original, twice), Contains(StartsWith("error: W601: ")));
}

TEST(RankConditions, CollectivesNeedConditionsThatRanksAgreeOn) {
  const std::string reduces =
      absl::StrCat(kTwo, "    Out=[a] = c_allreduce_avg(X=[a]) {use_calc_stream=true}\n");
  EXPECT_THAT(ErrorsAfter({}, {{kTwo, reduces}}),
              Contains(AllOf(StartsWith("error: W503: op 4 (conditional_block)"),
                             HasSubstr("due is rank-local"))));
}

TEST(RankConditions, ParametersAndWhatUpdatesThemMayNotDependOnThem) {
  // A parameter that a block writes.
  EXPECT_THAT(ErrorsAfter({{kTwo, absl::StrCat(kTwo, "    Out=[w] = scale(X=[w]) {scale=0.5}\n")}}),
              Contains(StartsWith("error: W601: variable w")));
  // A learning rate that a block writes, for the next step.
  EXPECT_THAT(
      ErrorsAfter({{kTwo, absl::StrCat(kTwo, "    Out=[lr] = scale(X=[lr]) {scale=0.5}\n")}}),
      Contains(AllOf(StartsWith("error: W317: "), HasSubstr("begins to differ between ranks"))));
  // An optimizer in a block.
  EXPECT_THAT(ErrorsAfter({}, {{kTwo, absl::StrCat(kTwo,
                                                   "    ParamOut=[w] = sgd(Param=[w], Grad=[w], "
                                                   "LearningRate=[lr]) role=optimize\n")}}),
              Contains(StartsWith("error: W310: block 1, op 1 (sgd) updates w")));
}

}  // namespace
}  // namespace weft::testing
