#include "transpiler/verifier/testing/matchers.h"

#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_matchers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/op_role.h"
#include "proto/text/program_text.h"
#include "transpiler/verifier/testing/training_steps.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What a test that fails would say of the program.
template <typename M>
std::string Explanation(const M& matcher, const Program& program) {
  ::testing::StringMatchResultListener listener;
  matcher.MatchAndExplain(program, &listener);
  return listener.str();
}

template <typename M>
std::string Description(const M& matcher) {
  std::ostringstream out;
  matcher.DescribeTo(&out);
  return out.str();
}

// A step of sgd on one device, and on two ranks, with `between` before the update.
Program Step(absl::string_view between) {
  const absl::StatusOr<Program> program = ParseProgramText(SgdStepText(between));
  EXPECT_THAT(program, testing::IsOk());
  return *program;
}

Program Original() { return Step(""); }
Program Averaged() { return Step(absl::StrCat(kWaitCompute, kAllReduce, kWaitComm)); }
Program Racy() { return Step(absl::StrCat(kWaitCompute, kAllReduce)); }
Program Summed() {
  return Step(
      "    Out=[w@GRAD] = c_allreduce_sum(X=[w@GRAD]) role=backward {ring_id=0, "
      "use_calc_stream=true}\n");
}

TEST(Matchers, ProgramThatIsRightMatches) {
  EXPECT_THAT(Averaged(), HasNoRaces());
  EXPECT_THAT(Averaged(), VerifiesFor(2));
  EXPECT_THAT(Averaged(), IsEquivalentTo(Original()));
  EXPECT_EQ(Explanation(VerifiesFor(2), Averaged()), "in which the verifier finds nothing");
}

TEST(Matchers, RaceIsShownWithItsRule) {
  EXPECT_THAT(Racy(), Not(HasNoRaces()));
  EXPECT_THAT(Racy(), Not(VerifiesFor(2)));
  EXPECT_THAT(Explanation(HasNoRaces(), Racy()),
              AllOf(HasSubstr("\n  error: W401: op 7 (sgd) reads w@GRAD"),
                    HasSubstr("insert c_wait_comm")));
  // Races do not change what is computed where streams keep their order.
  EXPECT_THAT(Racy(), IsEquivalentTo(Original()));
}

TEST(Matchers, RacesAreFoundInAnIncompleteProgram) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program program, ParseProgramText(R"(program {
  block 0 parent=-1 {
    var g : fp32[4]
    Out=[g] = c_allreduce_sum(X=[g]) {ring_id=0, use_calc_stream=false}
    Out=[g] = relu(X=[g])
  }
})"));
  EXPECT_THAT(program, Not(HasNoRaces()));
  EXPECT_THAT(Explanation(HasNoRaces(), program), HasSubstr("error: W401: op 1 (relu)"));
}

TEST(Matchers, SumOverRanksIsNotEquivalentToTheMean) {
  EXPECT_THAT(Summed(), HasNoRaces());
  EXPECT_THAT(Summed(), Not(VerifiesFor(2)));
  EXPECT_THAT(Explanation(VerifiesFor(2), Summed()), HasSubstr("error: W312: op 6 (sgd)"));
  VerifyOptions two;
  two.setting.nranks = 2;
  EXPECT_THAT(Summed(), Not(IsEquivalentTo(Original(), two)));
  EXPECT_THAT(Explanation(IsEquivalentTo(Original(), two), Summed()), HasSubstr("error: W601: "));
}

TEST(Matchers, OptionsOfTheVerifierApply) {
  VerifyOptions options;
  options.setting.nranks = 2;
  options.setting.reduction = Setting::Reduction::kSum;
  EXPECT_THAT(Summed(), VerifiesFor(options));
}

TEST(Matchers, StartupProgramHasToSetTheRingsUp) {
  WEFT_ASSERT_OK_AND_ASSIGN(const Program startup, ParseProgramText(R"(program version=2006002 {
  block 0 parent=-1 {
    var w : fp32[4, 1] parameter persistable
    var lr : fp32[1] persistable
    Out=[w] = fill_constant() {dtype=5, shape=longs[4, 1], value=1.0}
    Out=[lr] = fill_constant() {dtype=5, shape=longs[1], value=0.5}
  }
})"));
  EXPECT_THAT(Explanation(VerifiesFor(2).WithStartup(startup), Averaged()),
              HasSubstr("error: W301: op "));
}

TEST(Matchers, OpIsFoundByItsDescription) {
  const Program program = Averaged();
  EXPECT_THAT(program, HasOp("c_allreduce_avg"));
  EXPECT_THAT(program, HasOp("c_allreduce_avg")
                           .WithRing(0)
                           .WithInput("X", "w@GRAD")
                           .WithOutput("Out", "w@GRAD")
                           .WithAttr("use_calc_stream", false)
                           .WithRole(kRoleBackward)
                           .InBlock(0)
                           .Times(1));
  EXPECT_THAT(program, HasOp("fill_constant").WithAttr("value", 1.0f).WithAttr("dtype", 5));
  EXPECT_THAT(program, HasOp("reduce_mean").WithAttr("dim", std::vector<int64_t>{0}));
  EXPECT_THAT(program, HasOp("c_broadcast").Times(0));
}

TEST(Matchers, OpThatDiffersInOneThingDoesNotMatch) {
  const Program program = Averaged();
  EXPECT_THAT(program, Not(HasOp("c_allreduce_sum")));
  const auto op = HasOp("c_allreduce_avg");
  EXPECT_THAT(program, Not(op.WithRing(1)));
  EXPECT_THAT(program, Not(op.WithInput("X", "w")));
  EXPECT_THAT(program, Not(op.WithInput("Out", "w@GRAD")));
  EXPECT_THAT(program, Not(op.WithOutput("X", "w@GRAD")));
  EXPECT_THAT(program, Not(op.WithAttr("use_calc_stream", true)));
  EXPECT_THAT(program, Not(op.WithAttr("use_calc_stream", 0)));  // another type
  EXPECT_THAT(program, Not(op.WithAttr("nranks", 2)));
  EXPECT_THAT(program, Not(op.WithRole(kRoleOptimize)));
  EXPECT_THAT(program, Not(op.InBlock(1)));
  EXPECT_THAT(program, Not(op.Times(2)));
  EXPECT_THAT(program, Not(op.Times(0)));
}

TEST(Matchers, ExistingOpsAreShown) {
  EXPECT_EQ(Explanation(HasOp("c_broadcast"), Averaged()), "which has no c_broadcast");
  EXPECT_THAT(Explanation(HasOp("c_allreduce_avg").WithRing(1), Averaged()),
              HasSubstr("which has 0 such, of these c_allreduce_avg:\n  op 6: Out=[w@GRAD"));
  EXPECT_EQ(Description(HasOp("c_allreduce_avg").WithInput("X", "w@GRAD").WithRing(1).Times(2)),
            "has 2 times c_allreduce_avg with input X w@GRAD and ring_id 1");
}

TEST(Matchers, ProgramIsPrintedAsText) {
  EXPECT_THAT(::testing::PrintToString(Averaged()), HasSubstr("= c_allreduce_avg(X=[w@GRAD])"));
}

}  // namespace
}  // namespace weft::testing
